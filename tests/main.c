/*
 * main.c: runs the registered tests, each in a process of its own.
 * In: FILE, FILE/TEST or a part of a test's name on the command line; --list; --timeout SECONDS; --update
 * (golden files are rewritten). Out: a line per test, a summary, exit code 0 (none failed), 1 (one failed),
 * 77 (every test was skipped), 2 (wrong use, or a filter that names nothing).
 * The list of tests is static memory; the temporary folder of a test is removed by the parent.
 */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef LATHE_SOURCE_DIR
#define LATHE_SOURCE_DIR "."
#endif

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77, DEFAULT_SECONDS = 60 };

/* The list of tests, and the folder of the one that runs: the two things this program keeps. */
static struct check_test *first_test;
static char temp_dir[256];

struct totals {
    int passed;
    int failed;
    int skipped;
};

void check_register(struct check_test *test)
{
    struct check_test **at = &first_test;

    while (*at != NULL && strcmp((*at)->file, test->file) <= 0) {
        if (strcmp((*at)->file, test->file) == 0 && (*at)->line > test->line) {
            break;
        }
        at = &(*at)->next;
    }
    test->next = *at;
    *at = test;
}

/* Under a sanitizer libraries stay open: what a closed one has left behind (libstdc++ inside NVRTC keeps a
   pool) would be reported as a leak without a name. */
#ifdef LATHE_TEST_KEEPS_LIBRARIES
int dlclose(void *library)
{
    (void)library;
    return 0;
}
#endif

/* ---- what a test calls ------------------------------------------------------------------------- */

void check_fail(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    fflush(NULL);
    _exit(EXIT_FAILED);
}

void check_skip(const char *file, int line, const char *why)
{
    fprintf(stderr, "%s:%d: skipped: %s\n", file, line, why);
    fflush(NULL);
    _exit(EXIT_SKIPPED);
}

void check_true(const char *file, int line, bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: CHECK(%s)\n", file, line, what);
        check_fail(file, line, "does not hold");
    }
}

void check_integers(const char *file, int line, const char *a_text, const char *b_text, intmax_t a,
                    intmax_t b)
{
    if (a != b) {
        fprintf(stderr, "%s:%d: CHECK_EQ(%s, %s)\n  left:  %" PRIdMAX "\n  right: %" PRIdMAX "\n", file, line,
                a_text, b_text, a, b);
        check_fail(file, line, "not equal");
    }
}

/* Long texts: from the first line that differs, a few lines of each. */
static void print_difference(const char *a, const char *b)
{
    enum { SHOWN = 300 };
    size_t line_start = 0;
    int number = 1;
    for (size_t i = 0; a[i] != 0 && a[i] == b[i]; i++) {
        if (a[i] == '\n') {
            line_start = i + 1;
            number++;
        }
    }
    fprintf(stderr, "  from line %d\n  left:  %.*s\n  right: %.*s\n", number, SHOWN, a + line_start, SHOWN,
            b + line_start);
}

void check_strings(const char *file, int line, const char *a_text, const char *b_text, const char *a,
                   const char *b)
{
    if (a != NULL && b != NULL && strcmp(a, b) == 0) {
        return;
    }
    fprintf(stderr, "%s:%d: CHECK_STR(%s, %s)\n", file, line, a_text, b_text);
    if (a == NULL || b == NULL) {
        fprintf(stderr, "  left:  %s\n  right: %s\n", a == NULL ? "(null)" : a, b == NULL ? "(null)" : b);
    } else {
        print_difference(a, b);
    }
    check_fail(file, line, "not equal");
}

static bool close_enough(double a, double b, double tol)
{
    if (isnan(a) || isnan(b)) {
        return isnan(a) && isnan(b);
    }
    if (isinf(a) || isinf(b)) {
        return isinf(a) && isinf(b) && signbit(a) == signbit(b);
    }
    return fabs(a - b) <= tol * (1.0 + fabs(b));
}

void check_close(const char *file, int line, const char *a_text, const char *b_text, double a, double b,
                 double tol)
{
    if (!close_enough(a, b, tol)) {
        fprintf(stderr,
                "%s:%d: CHECK_CLOSE(%s, %s)\n  left:  %.17g\n  right: %.17g\n  error: %.3g, allowed %.3g\n",
                file, line, a_text, b_text, a, b, fabs(a - b), tol * (1.0 + fabs(b)));
        check_fail(file, line, "not close");
    }
}

void check_has(const char *file, int line, const char *a_text, const char *text, const char *part)
{
    if (text == NULL || part == NULL || strstr(text, part) == NULL) {
        fprintf(stderr, "%s:%d: CHECK_HAS(%s)\n  text: %s\n  part: %s\n", file, line, a_text,
                text == NULL ? "(null)" : text, part == NULL ? "(null)" : part);
        check_fail(file, line, "not in the text");
    }
}

int check_drawn(int every)
{
    const char *draw = getenv("LATHE_TEST_DRAW");
    unsigned number = 0;
    for (int i = 0; draw && draw[i] && i < 8; i++)
        number = 31 * number + (unsigned char)draw[i];
    return (int)(number % (unsigned)every);
}

const char *check_source_path(const char *relative)
{
    static char path[4][1024]; /* a few at once, for calls with two paths */
    static unsigned turn;
    const char *root = getenv("LATHE_SOURCE_DIR");
    char *out = path[turn++ % 4];

    snprintf(out, sizeof path[0], "%s/%s", root != NULL ? root : LATHE_SOURCE_DIR, relative);
    return out;
}

const char *check_temp_dir(void)
{
    if (mkdir(temp_dir, 0700) != 0 && errno != EEXIST) {
        check_fail(__FILE__, __LINE__, "cannot make a temporary folder");
    }
    return temp_dir;
}

bool check_update(void)
{
    return getenv("LATHE_TEST_UPDATE") != NULL;
}

/* ---- running ------------------------------------------------------------------------------------ */

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* "tests/unit/ir.c" and "folds" become "ir/folds". */
static void full_name(const struct check_test *test, char *out, size_t size)
{
    const char *base = strrchr(test->file, '/');
    const char *end;

    base = base == NULL ? test->file : base + 1;
    end = strrchr(base, '.');
    snprintf(out, size, "%.*s/%s", end == NULL ? (int)strlen(base) : (int)(end - base), base, test->name);
}

/* "ir" selects a file, "ir/folds" a test, "folds" any test with that in its name. */
static bool selected(const char *name, const char *filter)
{
    size_t length = strlen(filter);
    const char *slash = strchr(name, '/');

    if (slash != NULL && (size_t)(slash - name) == length && strncmp(name, filter, length) == 0) {
        return true;
    }
    return strchr(filter, '/') != NULL ? strcmp(name, filter) == 0 : strstr(slash, filter) != NULL;
}

/* A filter that names a file selects nothing else: "ir" must not run "trace/gives_ir". */
static bool names_file(const char *filter)
{
    char name[256];
    size_t length = strlen(filter);

    for (const struct check_test *test = first_test; test != NULL; test = test->next) {
        full_name(test, name, sizeof name);
        if (strncmp(name, filter, length) == 0 && name[length] == '/') {
            return true;
        }
    }
    return false;
}

static bool wanted(const struct check_test *test, int n, char **filter)
{
    char name[256];

    full_name(test, name, sizeof name);
    for (int i = 0; i < n; i++) {
        size_t length = strlen(filter[i]);
        if (names_file(filter[i]) ? strncmp(name, filter[i], length) == 0 && name[length] == '/'
                                  : selected(name, filter[i])) {
            return true;
        }
    }
    return n == 0;
}

static void remove_tree(const char *path)
{
    pid_t child = fork();

    if (child == 0) {
        execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(127);
    }
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
}

/* Waits for the end of the test. False: it ran past its limit and was killed with all its children. */
static bool wait_for(pid_t child, double limit, int *status)
{
    double end = seconds_now() + limit;
    struct timespec pause = {0, 200000};

    while (waitpid(child, status, WNOHANG) == 0) {
        if (seconds_now() > end) {
            kill(-child, SIGKILL);
            waitpid(child, status, 0);
            return false;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < 10000000 ? pause.tv_nsec * 2 : pause.tv_nsec;
    }
    kill(-child, SIGKILL); /* whatever the test left running */
    return true;
}

static pid_t start(const struct check_test *test)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        test->run();
        fflush(NULL);
        exit(0); /* not _exit: the leak checker reports here */
    }
    return child;
}

static void report(const char *name, int status, bool in_time, int limit, double took, struct totals *totals)
{
    if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        totals->passed++;
        printf("ok    %-48s %7.3f s\n", name, took);
    } else if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
        totals->skipped++;
        printf("SKIP  %s\n", name);
    } else {
        totals->failed++;
        if (!in_time) {
            printf("FAIL  %s: still running after %d s\n", name, limit);
        } else if (WIFSIGNALED(status)) {
            printf("FAIL  %s: killed by signal %d (%s)\n", name, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
        } else {
            printf("FAIL  %s: exit code %d\n", name, WEXITSTATUS(status));
        }
    }
}

static void run_one(const struct check_test *test, int default_seconds, struct totals *totals)
{
    char name[256];
    const char *base = getenv("TMPDIR");
    int limit = LATHE_TEST_SLOWDOWN * (test->seconds > 0 ? test->seconds : default_seconds);
    double began = seconds_now();
    int status = 0;
    bool in_time;
    pid_t child;

    full_name(test, name, sizeof name);
    snprintf(temp_dir, sizeof temp_dir, "%s/lathe-test-%ld-%s", base != NULL ? base : "/tmp", (long)getpid(),
             test->name);
    child = start(test);
    if (child < 0) {
        perror("fork");
        exit(EXIT_USAGE);
    }
    in_time = wait_for(child, limit, &status);
    report(name, status, in_time, limit, seconds_now() - began, totals);
    if (access(temp_dir, F_OK) == 0) {
        remove_tree(temp_dir);
    }
}

static int list_tests(void)
{
    char name[256];

    for (const struct check_test *test = first_test; test != NULL; test = test->next) {
        full_name(test, name, sizeof name);
        puts(name);
    }
    return 0;
}

/* Reads the options; returns the number of the first filter, 0 for wrong use. */
static int read_options(int argc, char **argv, int *seconds)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--timeout") == 0 && i + 1 < argc) {
            *seconds = (int)strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--update") == 0) {
            setenv("LATHE_TEST_UPDATE", "1", 1);
        } else {
            return 0;
        }
    }
    for (int rest = i; rest < argc; rest++)
        if (argv[rest][0] == '-')
            return 0; /* options stand before names: behind them they would be names of no test */
    return *seconds > 0 ? i : 0;
}

int main(int argc, char **argv)
{
    struct totals totals = {0, 0, 0};
    int seconds = DEFAULT_SECONDS;
    int first;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        return list_tests();
    }
    first = read_options(argc, argv, &seconds);
    if (first == 0) {
        fprintf(stderr, "usage: %s [--list] [--timeout SECONDS] [--update] [FILE | FILE/TEST | PART]...\n",
                argv[0]);
        return EXIT_USAGE;
    }
    for (const struct check_test *test = first_test; test != NULL; test = test->next) {
        if (wanted(test, argc - first, argv + first)) {
            run_one(test, seconds, &totals);
        }
    }
    if (totals.passed + totals.failed + totals.skipped == 0) {
        fprintf(stderr, "no test has that name (--list shows all)\n");
        return EXIT_USAGE;
    }
    printf("%d passed, %d failed, %d skipped\n", totals.passed, totals.failed, totals.skipped);
    if (totals.failed > 0) {
        return EXIT_FAILED;
    }
    return totals.passed == 0 ? EXIT_SKIPPED : 0;
}
