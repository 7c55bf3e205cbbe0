/*
 * threads.c: ranks that are threads of one process. In: what each rank posts. Out: copies between their
 * buffers in host memory. Every function posts, waits for all, checks, waits, copies what is its own, and
 * waits again: nobody's buffer changes or goes away while another rank reads it. A rank that fails breaks the
 * barrier, and whoever waits there returns its sentence.
 */
#include "lathe_dist.h"
#include "runtime/base/base.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum what { ALL_GATHER, ALL_TO_ALL, EXCHANGE, REDUCE_SCATTER };
static const char *const WHAT[] = {"all_gather", "all_to_all", "exchange", "reduce_scatter"};

struct post { /* what one rank has for the others */
    enum what what;
    const void *from;
    size_t place[LATHE_MOST_RANKS], bytes[LATHE_MOST_RANKS]; /* what is for each rank */
};

struct seat {
    lathe_threads *group;
    int32_t rank;
    struct post post;
};

struct lathe_threads {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    int32_t ranks, waiting;
    unsigned round;
    bool broken;
    lathe_status status; /* of the rank that broke it */
    char why[sizeof((lathe_error *)NULL)->text];
    struct seat seat[];
};

lathe_status lathe_threads_create(lathe_threads **out, int32_t ranks, lathe_error *err)
{
    if (!out)
        return lathe__fail(err, LATHE_ARG, "threads: out: expected a place for the group, given NULL");
    *out = NULL;
    if (ranks < 1 || ranks > LATHE_MOST_RANKS)
        return lathe__fail(err, LATHE_ARG, "threads: ranks: expected 1 to %d, given %d", LATHE_MOST_RANKS,
                           ranks);
    lathe_threads *t = calloc(1, sizeof *t + (size_t)ranks * sizeof t->seat[0]);
    if (!t)
        return lathe__fail_memory(err);
    t->ranks = ranks;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->all_here, NULL);
    for (int32_t r = 0; r < ranks; r++)
        t->seat[r] = (struct seat){.group = t, .rank = r};
    *out = t;
    return LATHE_OK;
}

void lathe_threads_destroy(lathe_threads *threads)
{
    if (!threads)
        return;
    pthread_cond_destroy(&threads->all_here);
    pthread_mutex_destroy(&threads->lock);
    free(threads);
}

/* ---- the barrier ----------------------------------------------------------------------------------------
 */

/* The first sentence counts. */
static void break_group(lathe_threads *t, lathe_status status, int32_t rank, const char *why)
{
    pthread_mutex_lock(&t->lock);
    if (!t->broken) {
        t->broken = true;
        t->status = status;
        (void)lathe__print(t->why, sizeof t->why, "rank %d of %d failed: %s", rank, t->ranks, why);
        pthread_cond_broadcast(&t->all_here);
    }
    pthread_mutex_unlock(&t->lock);
}

static lathe_status wait_for_all(lathe_threads *t, lathe_error *err)
{
    pthread_mutex_lock(&t->lock);
    const unsigned round = t->round;
    if (!t->broken && ++t->waiting == t->ranks) {
        t->waiting = 0;
        t->round++;
        pthread_cond_broadcast(&t->all_here);
    }
    while (!t->broken && t->round == round)
        pthread_cond_wait(&t->all_here, &t->lock);
    const bool passed = t->round != round;
    pthread_mutex_unlock(&t->lock);
    return passed ? LATHE_OK : lathe__fail(err, t->status, "%s", t->why);
}

/* Wrong calls: this rank's sentence, for all. */
static lathe_status disagree(struct seat *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static lathe_status disagree(struct seat *s, const char *fmt, ...)
{
    char text[256];
    va_list list;
    va_start(list, fmt);
    (void)lathe__format(text, sizeof text, fmt, list);
    va_end(list);
    break_group(s->group, LATHE_ARG, s->rank, text);
    return LATHE_ARG;
}

/* The others have made the same call, and what rank r sends is expected[r] bytes or numbers; behind this
 * nothing fails until all have copied. */
static lathe_status meet(struct seat *s, enum what what, const size_t *expected, lathe_error *err)
{
    lathe_threads *t = s->group;
    lathe_status status = LATHE_OK;
    s->post.what = what;
    TRY(wait_for_all(t, err));
    for (int32_t r = 0; r < t->ranks && status == LATHE_OK; r++) {
        const struct post *p = &t->seat[r].post;
        if (p->what != what)
            status = disagree(s, "rank %d calls %s where it calls %s: all have to make the same calls", r,
                              WHAT[p->what], WHAT[what]);
        else if (p->bytes[s->rank] != expected[r])
            status =
                disagree(s,
                         "%s: rank %d sends %zu bytes where %zu are expected: sizes or options of the ranks "
                         "differ",
                         WHAT[what], r, p->bytes[s->rank], expected[r]);
    }
    return wait_for_all(t, err);
}

/* A rank's own bytes may lie in their place already. */
static void copy(void *to, size_t place, const void *from, size_t from_place, size_t bytes)
{
    if (bytes > 0 && (char *)to + place != (const char *)from + from_place)
        memcpy((char *)to + place, (const char *)from + from_place, bytes);
}

/* ---- the functions of a transport ---------------------------------------------------------------------- */

static lathe_status all_gather(void *user, void *to, const size_t *place, const size_t *bytes,
                               const void *from, lathe_stream stream, lathe_error *err)
{
    struct seat *s = user;
    (void)stream;
    s->post.from = from;
    for (int32_t r = 0; r < s->group->ranks; r++) {
        s->post.place[r] = 0;
        s->post.bytes[r] = bytes[s->rank];
    }
    TRY(meet(s, ALL_GATHER, bytes, err));
    for (int32_t r = 0; r < s->group->ranks; r++)
        copy(to, place[r], s->group->seat[r].post.from, 0, bytes[r]);
    return wait_for_all(s->group, err);
}

static lathe_status all_to_all(void *user, void *to, const size_t *to_place, const size_t *to_bytes,
                               const void *from, const size_t *from_place, const size_t *from_bytes,
                               lathe_stream stream, lathe_error *err)
{
    struct seat *s = user;
    const size_t n = (size_t)s->group->ranks;
    (void)stream;
    s->post.from = from;
    memcpy(s->post.place, from_place, n * sizeof *from_place);
    memcpy(s->post.bytes, from_bytes, n * sizeof *from_bytes);
    TRY(meet(s, ALL_TO_ALL, to_bytes, err));
    for (int32_t r = 0; r < s->group->ranks; r++) {
        const struct post *p = &s->group->seat[r].post;
        copy(to, to_place[r], p->from, p->place[s->rank], to_bytes[r]);
    }
    return wait_for_all(s->group, err);
}

static lathe_status exchange(void *user, void *to, size_t to_bytes, int32_t from_rank, const void *from,
                             size_t from_bytes, int32_t to_rank, lathe_stream stream, lathe_error *err)
{
    struct seat *s = user;
    size_t expected[LATHE_MOST_RANKS] = {0};
    (void)stream;
    s->post.from = from;
    memset(s->post.bytes, 0, sizeof s->post.bytes);
    s->post.bytes[to_rank] = from_bytes;
    expected[from_rank] = to_bytes;
    TRY(meet(s, EXCHANGE, expected, err));
    copy(to, 0, s->group->seat[from_rank].post.from, 0, to_bytes);
    return wait_for_all(s->group, err);
}

static void add(void *to, const void *from, size_t place, size_t count, lathe_dtype dtype, bool first)
{
    for (size_t i = 0; i < count; i++)
        if (dtype == LATHE_F64)
            ((double *)to)[i] = (first ? 0.0 : ((double *)to)[i]) + ((const double *)from)[place + i];
        else
            ((float *)to)[i] = (first ? 0.0F : ((float *)to)[i]) + ((const float *)from)[place + i];
}

static lathe_status reduce_scatter(void *user, void *to, const void *from, const size_t *place,
                                   const size_t *count, lathe_dtype dtype, lathe_stream stream,
                                   lathe_error *err)
{
    struct seat *s = user;
    size_t expected[LATHE_MOST_RANKS];
    (void)stream;
    s->post.from = from;
    for (int32_t r = 0; r < s->group->ranks; r++) {
        s->post.place[r] = place[r];
        s->post.bytes[r] = count[r];
        expected[r] = count[s->rank];
    }
    TRY(meet(s, REDUCE_SCATTER, expected, err));
    for (int32_t r = 0; r < s->group->ranks; r++) {
        const struct post *p = &s->group->seat[r].post;
        add(to, p->from, p->place[s->rank], count[s->rank], dtype, r == 0);
    }
    return wait_for_all(s->group, err);
}

static void fail(void *user, lathe_status status, const char *why)
{
    struct seat *s = user;
    break_group(s->group, status, s->rank, why);
}

lathe_status lathe_threads_rank(lathe_threads *threads, int32_t rank, lathe_transport *out, lathe_error *err)
{
    if (!threads || !out)
        return lathe__fail(err, LATHE_ARG, "threads: %s, given NULL",
                           threads ? "out: expected a place for the transport"
                                   : "expected what lathe_threads_create made");
    if (rank < 0 || rank >= threads->ranks)
        return lathe__fail(err, LATHE_ARG, "threads: rank: expected 0 to %d, given %d", threads->ranks - 1,
                           rank);
    *out = (lathe_transport){.user = &threads->seat[rank],
                             .rank = rank,
                             .ranks = threads->ranks,
                             .all_gather = all_gather,
                             .all_to_all = all_to_all,
                             .exchange = exchange,
                             .reduce_scatter = reduce_scatter,
                             .fail = fail};
    return LATHE_OK;
}
