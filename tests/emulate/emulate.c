/*
 * emulate.c: the program: runs the generated kernels on this machine's CPU and compares them with the host
 * device.
 *
 *     lathe_emulate [--full] [--fresh] [--renew] [--group NAME] [--groups LIST] [--only TEXT] [--specs
 * FOLDER]
 *                   [--jobs N] [--seed N] [--list] [--seeds N] [--from N]
 *
 * A job (cases that share what is compiled in) is a process of its own, so that a crash costs one job. It
 * writes its verdicts to a pipe, one byte a case, and a line per failure to standard output. Exit code 77: no
 * C++ compiler.
 */
#include "budget.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_JOBS = 16, MAX_GROUPS = 128, CASE_SECONDS = 300, BROKEN_JOB = -1 };

struct options {
    bool full;
    bool list;
    bool fresh; /* run what has passed before, too */
    bool renew; /* write tests/passed */
    const char *only;
    const char *group;
    const char *groups;
    const char *specs;
    int jobs;
    uint64_t seed;
    unsigned orders; /* of blocks side by side */
    unsigned first_order;
    double budget;    /* seconds for cases that have not passed before; 0: no limit */
    const char *draw; /* which of them come first, where there is a limit */
};

struct tally {
    const char *group;
    int passed, refused, failed, not_run;
};

struct job {
    pid_t child;
    int pipe;
    int first; /* case; BROKEN_JOB: the broken kernels */
    int n;
    int done;
};

struct run {
    struct options options;
    struct workshop workshop;
    struct case_list cases;
    struct job job[MAX_JOBS];
    int n_jobs; /* running */
    struct tally tally[MAX_GROUPS];
    int n_tallies;
};

/* ---- names and sums --------------------------------------------------------------------------------------
 */

static const char *group_of(const struct run *r, const struct job *j)
{
    return j->first == BROKEN_JOB ? "broken" : r->cases.item[j->first].group;
}

static void name_of(const struct run *r, const struct job *j, int i, char *out, size_t size)
{
    if (j->first == BROKEN_JOB)
        snprintf(out, size, "broken kernel %s",
                 i < broken_count() ? broken_name(i) : hopper_name(i - broken_count()));
    else
        case_name(&r->cases.item[j->first + i], out, size);
}

static struct tally *tally_of(struct run *r, const char *group)
{
    for (int i = 0; i < r->n_tallies; i++)
        if (strcmp(r->tally[i].group, group) == 0)
            return &r->tally[i];
    if (r->n_tallies == MAX_GROUPS) {
        fprintf(stderr, "lathe_emulate: more than %d groups of cases; raise MAX_GROUPS\n", MAX_GROUPS);
        exit(1);
    }
    struct tally *t = &r->tally[r->n_tallies++];
    *t = (struct tally){.group = group};
    return t;
}

static void count(struct run *r, const struct job *j, enum verdict v)
{
    struct tally *t = tally_of(r, group_of(r, j));
    t->passed += v == VERDICT_PASSED;
    t->refused += v == VERDICT_REFUSED;
    t->failed += v == VERDICT_FAILED;
    t->not_run += (int)v == VERDICT_NOT_RUN;
}

static void say_failure(const struct run *r, const struct job *j, int i, const char *why)
{
    char name[300];
    name_of(r, j, i, name, sizeof name);
    printf("FAILED %s: %s\n", name, why);
    fflush(stdout);
}

/* ---- in the child ----------------------------------------------------------------------------------------
 */

static struct ir *load_spec(const struct test_case *c, char *why, size_t size)
{
    struct diag diag = {0};
    char name[80];
    snprintf(name, sizeof name, c->text ? "%s.lua" : "specs/%s.lua", c->spec);
    const struct embedded *file = c->text ? NULL : embedded_find(name);
    if (!c->text && !file) {
        snprintf(why, size, "no shipped spec of this name");
        return NULL;
    }
    struct ir *ir =
        spec_load(name, c->text ? c->text : file->data, c->text ? strlen(c->text) : file->size, &diag);
    if (!ir)
        snprintf(why, size, "%s:%d: %s", diag.entry[0].file, diag.entry[0].line, diag.entry[0].text);
    return ir;
}

static void report(const struct run *r, const struct job *j, int i, enum verdict v, const char *why)
{
    const unsigned char byte = (unsigned char)v;
    if (v == VERDICT_FAILED)
        say_failure(r, j, i, why);
    if (write(j->pipe, &byte, 1) != 1)
        _exit(3);
}

static uint64_t hash(uint64_t h, const char *text) /* FNV-1a */
{
    for (const char *at = text; *at; at++)
        h = (h ^ (unsigned char)*at) * 0x100000001b3u;
    return h;
}

static uint64_t hash_of_name(uint64_t h, const struct test_case *c)
{
    char name[300];
    case_name(c, name, sizeof name);
    return hash(h, name);
}

/* By name, so that other cases may come and go, and one that runs alone has the data of the whole run. */
static uint64_t case_seed(const struct run *r, const struct test_case *c)
{
    return hash_of_name(0xcbf29ce484222325u, c) + r->options.seed;
}

static void run_job(struct run *r, const struct job *j)
{
    static char why[6000] = "";
    struct workshop *w = &r->workshop;
    struct ir *ir = NULL;
    const bool broken = j->first == BROKEN_JOB;
    const bool ready = workshop_start(w, why, sizeof why);
    if (ready && !broken) {
        ir = load_spec(&r->cases.item[j->first], why, sizeof why);
        store_take_list(&w->store, group_of(r, j));
    }
    for (int i = 0; i < j->n; i++) {
        const struct test_case *c = broken ? NULL : &r->cases.item[j->first + i];
        enum verdict v = VERDICT_FAILED;
        alarm(CASE_SECONDS + (c && c->beside > 0 ? 10 * r->workshop.orders : 0));
        if (broken && ready)
            v = i < broken_count() ? broken_run(w, i, r->options.seed, why, sizeof why)
                                   : hopper_run(w, i - broken_count(), r->options.seed, why, sizeof why);
        else if (ir)
            v = case_run(w, c, ir, case_seed(r, c), why, sizeof why);
        report(r, j, i, v, why);
    }
    if (ir)
        ir_free(ir);
    store_close(&w->store);
    workshop_end(w);
}

/* ---- in the parent ---------------------------------------------------------------------------------------
 */

static bool start_job(struct run *r, int first, int n)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    struct job *j = &r->job[r->n_jobs];
    *j = (struct job){.pipe = ends[1], .first = first, .n = n};
    fflush(stdout);
    j->child = fork();
    if (j->child == 0) {
        close(ends[0]);
        run_job(r, j);
        exit(0);
    }
    close(ends[1]);
    j->pipe = ends[0];
    r->n_jobs += j->child > 0;
    return j->child > 0;
}

/* What did not get a verdict has failed: the child crashed or took too long. */
static void end_job(struct run *r, int k)
{
    struct job *j = &r->job[k];
    int status = 0;
    close(j->pipe);
    while (waitpid(j->child, &status, 0) < 0 && errno == EINTR) {
    }
    for (int i = j->done; i < j->n; i++) {
        char why[100];
        snprintf(why, sizeof why,
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "took longer than %d seconds"
                                                                    : "its process died (status 0x%x)",
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? CASE_SECONDS : status);
        say_failure(r, j, i, i == j->done ? why : "not run, because of the case before");
        count(r, j, VERDICT_FAILED);
    }
    *j = r->job[--r->n_jobs];
}

static void read_verdicts(struct run *r)
{
    struct pollfd wait[MAX_JOBS];
    const int n = r->n_jobs;
    for (int i = 0; i < n; i++)
        wait[i] = (struct pollfd){.fd = r->job[i].pipe, .events = POLLIN};
    if (poll(wait, (nfds_t)n, -1) < 0)
        return;
    for (int i = n - 1; i >= 0; i--) { /* downwards: end_job moves the last one */
        unsigned char byte[64];
        if (wait[i].revents == 0)
            continue;
        const ssize_t got = read(r->job[i].pipe, byte, sizeof byte);
        for (ssize_t k = 0; k < got; k++, r->job[i].done++)
            count(r, &r->job[i], (enum verdict)byte[k]);
        if (got <= 0)
            end_job(r, i);
    }
}

static bool is_chosen(const struct options *o, const struct test_case *c)
{
    char name[300];
    char line[360];
    case_name(c, name, sizeof name);
    snprintf(line, sizeof line, "%s: %s", c->group, name); /* as --list prints it */
    return (!o->group || strcmp(c->group, o->group) == 0) && (!o->only || strstr(line, o->only));
}

static void choose(struct run *r)
{
    int kept = 0;
    for (int i = 0; i < r->cases.n; i++)
        if (is_chosen(&r->options, &r->cases.item[i]))
            r->cases.item[kept++] = r->cases.item[i];
    r->cases.n = kept;
}

/* Kernels that break a rule are a group of their own, ahead of the cases. */
static bool wants_broken(const struct options *o)
{
    return (!o->group || strcmp(o->group, "broken") == 0) && (!o->only || strstr("broken", o->only));
}

/* Is every group in the list, whose words stand between spaces? Who runs groups one by one asks this. */
static int compare_groups(const struct run *r)
{
    int missing = 0;
    const char *last = "";
    for (int i = 0; i < r->cases.n; i++) {
        char word[80];
        char list[2000];
        const char *group = r->cases.item[i].group;
        snprintf(word, sizeof word, " %s ", group);
        snprintf(list, sizeof list, " %s ", r->options.groups);
        if (strcmp(group, last) != 0 && !strstr(list, word))
            missing += printf("FAILED: the group %s is not in the list\n", group) > 0;
        last = group;
    }
    return missing > 0;
}

struct span { /* the cases of a job */
    int first, n;
    uint64_t draw;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a;
    const struct span *y = b;
    return x->draw != y->draw ? (x->draw > y->draw) - (x->draw < y->draw)
                              : (x->first > y->first) - (x->first < y->first);
}

/* In their order; where there may not be time for all of them in one that is drawn, so that another change
 * runs other cases. */
static struct span *make_spans(const struct run *r, int *count)
{
    struct span *span = calloc((size_t)r->cases.n + 1, sizeof *span);
    int n = 0;
    if (span && wants_broken(&r->options))
        span[n++] = (struct span){BROKEN_JOB, broken_count() + hopper_count, 0};
    for (int i = 0; span && i < r->cases.n; i += span[n++].n) {
        span[n] = (struct span){i, 1, 1};
        while (i + span[n].n < r->cases.n && same_job(&r->cases.item[i], &r->cases.item[i + span[n].n]))
            span[n].n++;
        if (budget_is_limited())
            span[n].draw = hash_of_name(hash(0xcbf29ce484222325u, r->options.draw), &r->cases.item[i]) | 1;
    }
    if (span)
        qsort(span, (size_t)n, sizeof *span, compare_spans);
    *count = n;
    return span;
}

static void run_all(struct run *r)
{
    int n = 0;
    int next = 0;
    struct span *const span = make_spans(r, &n);
    while (next < n || r->n_jobs > 0) {
        for (; next < n && r->n_jobs < r->options.jobs; next++)
            if (!start_job(r, span[next].first, span[next].n)) {
                perror("lathe_emulate: fork");
                exit(1);
            }
        read_verdicts(r);
    }
    free(span);
}

static int summarise(const struct run *r, double seconds)
{
    int passed = 0;
    int failed = 0;
    int not_run = 0;
    for (int i = 0; i < r->n_tallies; i++) {
        const struct tally *t = &r->tally[i];
        printf("%-8s %5d passed, %d of them refused with a reason, %d failed\n", t->group,
               t->passed + t->refused, t->refused, t->failed);
        if (t->not_run > 0)
            printf(
                "%-8s %5d of %d not run: not known to pass, and the %g seconds for such cases were spent\n",
                t->group, t->not_run, t->passed + t->refused + t->failed + t->not_run, r->options.budget);
        passed += t->passed + t->refused;
        failed += t->failed;
        not_run += t->not_run;
    }
    if (passed + failed + not_run == 0)
        printf("FAILED: no case is chosen by --group and --only; --list prints them\n");
    printf("%d passed, %d failed (%.0f s)\n", passed, failed, seconds);
    return failed > 0 || passed == 0; /* one case is run at least */
}

/* Who asks for all of them, or for some by their name, gets them. */
static void take_budget(struct options *o)
{
    const char *budget = getenv("LATHE_TEST_BUDGET");
    const char *full = getenv("LATHE_TEST_FULL");
    const char *draw = getenv("LATHE_TEST_DRAW");
    const bool all = o->full || o->fresh || o->only || o->specs || (full && *full);
    o->budget = budget && !all ? strtod(budget, NULL) : 0.0;
    o->draw = draw ? draw : "";
}

static bool parse(struct options *o, int argc, char **argv)
{
    const char *seed = getenv("LATHE_TEST_SEED");
    const char *renew = getenv("LATHE_TEST_RENEW");
    *o = (struct options){.jobs = (int)sysconf(_SC_NPROCESSORS_ONLN),
                          .seed = seed && *seed ? strtoull(seed, NULL, 10) : 1,
                          .renew = renew && *renew,
                          .orders = 2};
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (strcmp(argv[i], "--full") == 0)
            o->full = true;
        else if (strcmp(argv[i], "--list") == 0)
            o->list = true;
        else if (strcmp(argv[i], "--fresh") == 0)
            o->fresh = true;
        else if (strcmp(argv[i], "--renew") == 0)
            o->renew = true;
        else if (strcmp(argv[i], "--groups") == 0 && more)
            o->groups = argv[++i];
        else if (strcmp(argv[i], "--group") == 0 && more)
            o->group = argv[++i];
        else if (strcmp(argv[i], "--only") == 0 && more)
            o->only = argv[++i];
        else if (strcmp(argv[i], "--specs") == 0 && more)
            o->specs = argv[++i];
        else if (strcmp(argv[i], "--jobs") == 0 && more)
            o->jobs = (int)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && more)
            o->seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seeds") == 0 && more)
            o->orders = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--from") == 0 && more)
            o->first_order = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            return false;
    }
    take_budget(o);
    o->jobs = o->jobs < 1 ? 1 : o->jobs > MAX_JOBS ? MAX_JOBS : o->jobs;
    return true;
}

/* The lists are of whole groups of the default run. */
static bool may_renew(const struct options *o)
{
    if (!o->renew || !(o->full || o->only || o->specs || o->seed != 1 || o->orders != 2 || o->first_order))
        return true;
    fprintf(
        stderr,
        "lathe_emulate: --renew (LATHE_TEST_RENEW) goes with --group, --fresh and --jobs alone: the lists of "
        "tests/passed are of whole groups of the default run\n");
    return false;
}

/* Runs everything; with --renew the lists are those of what has passed now. Exit code. */
static int run_and_sum(struct run *r)
{
    char renewed[400];
    struct timespec from;
    struct timespec to;
    struct workshop *w = &r->workshop;
    snprintf(renewed, sizeof renewed, "%s/renewed", w->folder);
    w->store.renewed = r->options.renew ? renewed : NULL;
    if (r->options.budget > 0.0 && !budget_open(r->options.budget)) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    run_all(r);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (r->options.renew && access(renewed, R_OK) == 0 && !store_write_lists(&w->store)) {
        printf("FAILED: the lists cannot be written to %s\n", w->store.lists);
        return 1;
    }
    return summarise(r, (double)(to.tv_sec - from.tv_sec));
}

int main(int argc, char **argv)
{
    static struct run r;
    if (!parse(&r.options, argc, argv)) {
        fprintf(
            stderr,
            "usage: lathe_emulate [--full] [--fresh] [--renew] [--group NAME] [--groups LIST] [--only TEXT] "
            "[--specs FOLDER] [--jobs N] [--seed N] [--list] [--seeds N] [--from N]\n");
        return 2;
    }
    if (!may_renew(&r.options))
        return 2;
    if (!(r.options.specs ? cases_of_folder(&r.cases, r.options.specs)
                          : cases_make(&r.cases, r.options.full))) {
        fprintf(stderr, "%s\n",
                r.options.specs ? "--specs: there is no spec in the folder" : "out of memory");
        return 1;
    }
    choose(&r);
    for (int i = 0; r.options.list && i < r.cases.n; i++) {
        char name[300];
        case_name(&r.cases.item[i], name, sizeof name);
        printf("%s: %s\n", r.cases.item[i].group, name);
    }
    if (r.options.list)
        return 0;
    if (r.options.groups)
        return compare_groups(&r);
    const enum workshop_state state =
        workshop_open(&r.workshop, LATHE_SOURCE_DIR "/tests/emulate", r.options.fresh);
    if (state != WORKSHOP_READY)
        return state == WORKSHOP_MISSING ? 77 : 1;
    r.workshop.orders = r.options.orders > 0 ? r.options.orders : 1;
    r.workshop.first_order = r.options.first_order;
    const int result = run_and_sum(&r);
    workshop_close(&r.workshop);
    free(r.cases.item);
    return result;
}
