/*
 * race.c: processes: eight that want one kernel from a cold cache compile it once.
 *
 * In: the path of this binary. Out: a line and counts. A child counts the library's "compiling" messages
 * and prints the number; the folder of the cache is made here and removed here.
 */
#include "system.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8 };

bool folder_make(char *out, size_t size)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(out, size, "%s/lathe-gpu-tests-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(out) != NULL;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void folder_remove(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* What a child compiles is in no cache but the one it is given: NVRTC keeps its results in the driver's. */
int child_start(const struct options *options, const char *what, const char *cache, int *output)
{
    int end[2] = {-1, -1};
    (void)setenv("CUDA_CACHE_DISABLE", "1", 1);
    (void)setenv("LATHE_SYSTEM_CACHE_DIR", "", 1);
    if (pipe(end) != 0) {
        return -1;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(end[1], STDOUT_FILENO);
        (void)close(end[0]);
        (void)close(end[1]);
        (void)execl(options->self, options->self, "--child", what, cache, (char *)NULL);
        _exit(127);
    }
    (void)close(end[1]);
    if (pid < 0) {
        (void)close(end[0]);
        return -1;
    }
    *output = end[0];
    return (int)pid;
}

int child_wait(int pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void count_compiling(void *user, int level, const char *text)
{
    if (level == 1 && strncmp(text, "compiling", 9) == 0) {
        ++*(int *)user;
    }
}

int child_compile(const char *cache)
{
    char why[256] = "";
    int compiled = 0;
    lathe_error err = {0};
    struct side side = {0};
    struct opened o;
    memset(&o, 0, sizeof o);
    struct device *device = device_open(false, why, sizeof why);
    const bool good = device && side_open(&side, device, cache, count_compiling, &compiled, &err) &&
                      opened_open(&o, &side, "alibi", LATHE_BF16, 64, &err) &&
                      ready_launch(&o.ready, &side, false, &err) == LATHE_OK;
    (void)printf("%d %s\n", compiled, good ? "" : (*why ? why : err.text));
    (void)fflush(stdout);
    return good ? 0 : 1;
}

struct racer {
    int pid;
    int output;
};

/* Adds what one child says; false: it failed, and why holds its words. */
static bool read_racer(const struct racer *racer, int *compiled, char *why, size_t size)
{
    char line[512] = "";
    FILE *stream = fdopen(racer->output, "r");
    const bool spoke = stream && fgets(line, sizeof line, stream);
    if (stream) {
        (void)fclose(stream);
    }
    const int code = child_wait(racer->pid);
    if (!spoke || code != 0) {
        (void)snprintf(why, size, "a process ended with %d: %.400s", code, line);
        return false;
    }
    *compiled += (int)strtol(line, NULL, 10);
    return true;
}

void test_race(const struct options *options, struct totals *totals)
{
    char cache[256] = "";
    char why[512] = "";
    struct racer racer[PROCESSES];
    int started = 0;
    int compiled = 0;
    bool good = folder_make(cache, sizeof cache);
    while (good && started < PROCESSES) {
        racer[started].pid = child_start(options, "compile", cache, &racer[started].output);
        good = racer[started].pid > 0;
        started += good;
    }
    for (int i = 0; i < started; i++) {
        good = read_racer(&racer[i], &compiled, why, sizeof why) && good;
    }
    folder_remove(cache);
    if (good) {
        (void)snprintf(why, sizeof why, "%d processes on a cold cache compiled %d time%s", PROCESSES,
                       compiled, compiled == 1 ? "" : "s");
    }
    verdict(totals, good && compiled == 1, "race", why);
}
