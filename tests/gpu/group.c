/*
 * group.c: run a list of cases on several threads and print one line about it.
 *
 * In: cases, and the contexts that all threads share. Out: lines on standard output, counts in totals.
 * Each thread has a stream of its own, takes the next case, and prints only what failed.
 */
#include "cases.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_THREADS = 64, MAX_FAILURE_LINES = 25 };

struct work {
    const struct bench *shared;
    const struct case_list *list;
    const char *chosen; /* what the name of a case that runs contains; NULL: all run */
    pthread_mutex_t lock;
    int next;
    int lines;
    struct tally total;
};

bool text_is_chosen(const char *chosen, const char *name)
{
    char part[256];
    bool found = !chosen;
    for (const char *text = chosen; text && *text && !found; text += strspn(text, "|")) {
        const size_t length = strcspn(text, "|");
        (void)snprintf(part, sizeof part, "%.*s", (int)length, text);
        found = strstr(name, part) != NULL;
        text += length;
    }
    return found;
}

/* As a failure's line begins with it; with the comma behind it, so that "seed 7," is not that of 77. */
static bool is_chosen(const struct work *work, int number)
{
    char name[256];
    char line[sizeof name + 1];
    case_name(&work->list->item[number], name, sizeof name);
    (void)snprintf(line, sizeof line, "%s,", name);
    return text_is_chosen(work->chosen, line);
}

/* Have enough runs seen the fault, whatever the others would? A third of all that may run. */
static bool is_seen(const struct work *work)
{
    return work->shared->fault && 3 * work->total.failed >= work->list->n;
}

static int take(struct work *work)
{
    (void)pthread_mutex_lock(&work->lock);
    while (work->next < work->list->n && !is_chosen(work, work->next)) {
        work->next++;
    }
    const int mine = work->next < work->list->n && !is_seen(work) ? work->next++ : -1;
    (void)pthread_mutex_unlock(&work->lock);
    return mine;
}

static void merge(struct work *work, const struct tally *tally)
{
    (void)pthread_mutex_lock(&work->lock);
    work->total.passed += tally->passed;
    work->total.failed += tally->failed;
    work->total.refused += tally->refused;
    if (tally->worst > work->total.worst) {
        work->total.worst = tally->worst;
    }
    if (tally->first[0] && work->lines < MAX_FAILURE_LINES && !work->shared->fault) {
        work->lines++;
        (void)printf("  FAILED %s\n", tally->first);
        (void)fflush(stdout);
    }
    (void)pthread_mutex_unlock(&work->lock);
}

static void *worker(void *argument)
{
    struct work *work = argument;
    struct bench bench = *work->shared;
    const bool bound = device_bind(bench.tested.device);
    bench.tested.stream = device_stream_new(bench.tested.device);
    bench.strict.stream = bench.tested.stream;
    for (int i = take(work); i >= 0; i = take(work)) {
        struct tally tally;
        memset(&tally, 0, sizeof tally);
        if (bound) {
            case_check(&bench, &work->list->item[i], &tally);
        } else {
            tally.failed = 1;
            (void)snprintf(tally.first, sizeof tally.first, "%s", device_error());
        }
        merge(work, &tally);
    }
    device_stream_free(bench.tested.device, bench.tested.stream);
    return NULL;
}

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_threads(struct work *work, int n)
{
    pthread_t thread[MAX_THREADS];
    int started = 0;
    for (; started < n && started < MAX_THREADS; started++) {
        if (pthread_create(&thread[started], NULL, worker, work) != 0) {
            break;
        }
    }
    if (started == 0) {
        (void)worker(work);
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
    }
}

void group_run(const char *name, struct case_list *list, const struct bench *shared,
               const struct options *options, struct totals *totals)
{
    struct work work;
    memset(&work, 0, sizeof work);
    work.shared = shared;
    work.list = list;
    work.chosen = options->chosen;
    (void)pthread_mutex_init(&work.lock, NULL);
    const double start = seconds_now();
    run_threads(&work, options->threads);
    (void)pthread_mutex_destroy(&work.lock);
    if (list->failed) {
        work.total.failed++;
        (void)printf("  FAILED %s: out of host memory while listing cases\n", name);
    }
    const int runs = work.total.passed + work.total.failed;
    if (shared->fault && (runs == 0 || 3 * work.total.failed < runs)) {
        totals->blind++;
        (void)printf("  BLIND %s: fewer than a third of the runs see the fault\n", name);
    }
    char refused[48] = "";
    if (work.total.refused) {
        (void)snprintf(refused, sizeof refused, ", %d of them refused as allowed", work.total.refused);
    }
    (void)printf("%-9s %5d passed%s, %d failed; worst error %.2f of its bound; %.1f s\n", name,
                 work.total.passed, refused, work.total.failed, work.total.worst, seconds_now() - start);
    (void)fflush(stdout);
    totals->passed += work.total.passed;
    totals->failed += work.total.failed;
    free(list->item);
    memset(list, 0, sizeof *list);
}
