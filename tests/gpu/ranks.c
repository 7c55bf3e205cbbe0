/*
 * ranks.c: one problem over 4 and 8 ranks that are threads and share one device, with its kernels, against
 * one rank's call on the same device: every scheme of lathe_dist.h, both passes, shards of any lengths, none
 * among them.
 *
 * In: the contexts that main opened. Out: a line for each case, counts in totals. Whether the comparison sees
 * a message that is dropped, and two shards that are swapped, is tested of a case of each scheme.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "forms_call.h"
#include "ranks.h"
#include "system.h"

#define GATHER      LATHE_SCHEME_GATHER
#define RING        LATHE_SCHEME_RING
#define HEADS       LATHE_SCHEME_HEADS
#define KEYS        LATHE_SCHEME_KEYS
#define STATES      LATHE_SCHEME_STATES
#define ZIGZAG      LATHE_SHARDS_ZIGZAG
#define CONTIGUOUS  LATHE_SHARDS_CONTIGUOUS
#define INTERLEAVED LATHE_SHARDS_INTERLEAVED
#define EVEN        CUT_EVEN
#define UNEVEN      CUT_UNEVEN
/* spec, scheme, ranks, shards, cut; heads, key heads, head dim; tokens of a rank, queries of all, keys of a
   chunk; passes, and how */
static const struct ranks_case CASES[] = {
    {"causal", GATHER, 8, ZIGZAG, EVEN, 32, 8, 128, 512, 0, 0, 2, QUICK | ON_COMM | ON_SECOND},
    {"alibi", GATHER, 8, ZIGZAG, EVEN, 16, 16, 64, 512, 0, 0, 2, FAULTS},
    {"full", GATHER, 4, CONTIGUOUS, UNEVEN, 16, 16, 64, 1024, 0, 0, 2, 0},
    {"sliding_window", GATHER, 8, CONTIGUOUS, UNEVEN, 16, 16, 128, 512, 0, 0, 2, ON_COMM},
    {"document", GATHER, 4, ZIGZAG, EVEN, 32, 8, 64, 1024, 0, 0, 2, ON_COMM | FEW_HEADS},
    {"softcap", GATHER, 4, CONTIGUOUS, EVEN, 16, 16, 64, 1024, 0, 0, 2, ON_SECOND},
    {"sinks", GATHER, 8, ZIGZAG, EVEN, 16, 16, 64, 512, 0, 0, 2, ON_COMM | ON_SECOND},
    {"causal", RING, 8, ZIGZAG, EVEN, 32, 8, 128, 512, 0, 0, 2, QUICK | FAULTS | ON_COMM | ON_SECOND},
    {"causal", RING, 4, CONTIGUOUS, EVEN, 16, 16, 64, 2048, 0, 0, 2, ON_SECOND},
    {"document", RING, 8, CONTIGUOUS, UNEVEN, 32, 8, 64, 512, 0, 0, 2, 0},
    {"softcap", RING, 4, ZIGZAG, EVEN, 16, 16, 64, 1024, 0, 0, 2, ON_COMM | ON_SECOND | MERGED},
    {"sinks", RING, 8, CONTIGUOUS, UNEVEN, 16, 16, 64, 512, 0, 0, 2, QUICK | ON_COMM},
    {"sliding_window", RING, 8, ZIGZAG, EVEN, 16, 16, 128, 512, 0, 0, 2, ON_COMM},
    {"causal", HEADS, 8, CONTIGUOUS, UNEVEN, 32, 8, 128, 512, 0, 0, 2, QUICK},
    {"causal", HEADS, 8, ZIGZAG, EVEN, 16, 16, 64, 512, 0, 0, 2, FAULTS | ON_COMM},
    {"sinks", HEADS, 4, ZIGZAG, EVEN, 16, 16, 64, 1024, 0, 0, 2, ON_COMM},
    {"causal", HEADS, 8, CONTIGUOUS, EVEN, 16, 16, 64, 512, 0, 0, 2, PACKED_CALL},
    {"sliding_window", HEADS, 4, CONTIGUOUS, UNEVEN, 16, 16, 128, 1024, 0, 0, 2, 0},
    {"causal", KEYS, 8, CONTIGUOUS, UNEVEN, 32, 8, 128, 2048, 1, 0, 1, QUICK},
    {"causal", KEYS, 8, CONTIGUOUS, EVEN, 16, 16, 64, 1024, 5, 0, 2, FAULTS},
    {"sinks", KEYS, 4, CONTIGUOUS, UNEVEN, 16, 16, 64, 1024, 33, 0, 2, 0},
    {"causal", KEYS, 8, INTERLEAVED, UNEVEN, 32, 8, 128, 2048, 1, 16, 1, QUICK},
    {"sliding_window", KEYS, 8, INTERLEAVED, UNEVEN, 16, 16, 128, 1024, 3, 64, 2, 0},
    {"document", KEYS, 4, INTERLEAVED, UNEVEN, 32, 8, 64, 1024, 2, 1, 1, 0},
    {"gated_delta", STATES, 8, CONTIGUOUS, EVEN, 16, 16, 128, 512, 0, 0, 2, QUICK | FAULTS},
    {"gated_delta", STATES, 8, CONTIGUOUS, EVEN, 16, 16, 128, 512, 0, 0, 1, PARALLEL},
    {"gated_delta", STATES, 4, CONTIGUOUS, UNEVEN, 16, 8, 64, 1024, 0, 0, 2, 0},
    {"kda", STATES, 8, CONTIGUOUS, UNEVEN, 16, 16, 64, 512, 0, 0, 2, 0},
    {"kda", STATES, 4, CONTIGUOUS, EVEN, 16, 16, 128, 1024, 0, 0, 1, QUICK | PARALLEL},
};
enum { COUNT = sizeof CASES / sizeof *CASES };

/* Beside the bound of bounds.c, which is of one kernel against exact values: both sides are rounded here, and
   shares of gradients are rounded before they are added. A part of the typical element. */
static const double LEFT = 2e-3;

/* ---- one rank ---------------------------------------------------------------------------------------------
 */

/* Results stay in the problem. */
static bool run_one_rank(struct problem *p, lathe_pass pass, const struct side *side, lathe_error *err)
{
    struct call_of_rank call;
    call_of_rank(p, pass, WHOLE, &call);
    bool good = call_of_rank_fill(p, pass, side->device, &call);
    if (!good) {
        (void)snprintf(err->text, sizeof err->text, "%s", device_error());
    }
    good = good && call_launch(side, p->spec, pass, call.arg, call.n, err) == LATHE_OK;
    for (int k = 0; k < call.n && good; k++) {
        if (call.of[k]->written[pass]) {
            good = device_download(side->device, call.of[k]->bytes, call.arg[k].data, call.size[k]);
        }
    }
    call_of_rank_free(side->device, &call);
    return good;
}

/* ---- all ranks --------------------------------------------------------------------------------------------
 */

struct ranks_launch { /* a launch of all ranks */
    const struct problem *p;
    lathe_pass pass;
    const struct side *side;
    struct thread_transport *transport;
    enum message_fault fault;
    pthread_mutex_t lock;
    double *share[MOST_VALUES]; /* of values that are shares: the sum over ranks */
    double worst;
    bool wrong, failed;
    char why[640];
};

struct rank_thread {
    struct ranks_launch *launched;
    int rank;
    lathe_stream stream, comm, second;
    struct call_of_rank call;
    lathe_dist *dist;
    void *workspace;
};

static void record_failure(struct ranks_launch *t, int rank, bool failed, const char *why)
{
    (void)pthread_mutex_lock(&t->lock);
    if (!t->wrong && !t->failed) {
        (void)snprintf(t->why, sizeof t->why, "rank %d: %.600s", rank, why);
    }
    t->wrong |= !failed;
    t->failed |= failed;
    (void)pthread_mutex_unlock(&t->lock);
}

static lathe_status no_memory(lathe_error *err)
{
    (void)snprintf(err->text, sizeof err->text, "%s", device_error());
    return err->status = LATHE_MEMORY;
}

/* The workspace begins with NaNs, or with zeros where a message is dropped, so that numbers are wrong and not
   NaN. The second launch behind the first may not overwrite what others still read. */
static lathe_status launch(struct rank_thread *s, lathe_error *err)
{
    enum { POISON = 0xFF };
    const struct ranks_launch *t = s->launched;
    const struct device *device = t->side->device;
    const lathe_transport transport = thread_transport_of(t->transport, s->rank);
    const lathe_dist_options options = problem_options(t->p, s->comm, s->second);
    lathe_status status = lathe_dist_create(&s->dist, t->side->ctx, t->p->spec, t->pass, &transport, &options,
                                            s->call.arg, s->call.n, err);
    if (status != LATHE_OK) {
        return status;
    }
    const size_t bytes = lathe_dist_workspace_size(s->dist);
    s->workspace = device_alloc(device, bytes);
    if (!s->workspace || !device_fill(device, s->workspace, t->fault ? 0 : POISON, bytes)) {
        return no_memory(err);
    }
    const int launches = t->fault || device_is_dry(device) ? 1 : 2;
    for (int i = 0; i < launches && status == LATHE_OK; i++) {
        status = lathe_dist_launch(s->dist, s->call.arg, s->call.n, s->workspace, s->stream, err);
    }
    return status;
}

static struct test_case case_of(const struct problem *p, lathe_pass pass)
{
    struct test_case c;
    memset(&c, 0, sizeof c);
    c.spec = p->linear ? NULL : spec_find(p->c->spec);
    c.sums = p->linear;
    c.pass = pass;
    c.n_runs = 1;
    c.run[0] = (struct case_run){LATHE_BF16, LAYOUT_COMPACT};
    return c;
}

static struct tensor tensor_of(const struct call_of_rank *call, int k)
{
    struct tensor t;
    const char *name = call->of[k]->name;
    const bool is_big = strcmp(name, "dq") == 0 || strcmp(name, "dk") == 0 || strcmp(name, "dv") == 0 ||
                        strcmp(name, "dstate") == 0 || name[0] != 'd';
    memset(&t, 0, sizeof t);
    (void)snprintf(t.row.name, sizeof t.row.name, "%s", name);
    t.row.role = strcmp(name, "lse") == 0 ? ROLE_FINAL : is_big ? ROLE_RESULT : ROLE_GRADIENT;
    t.dtype = call->arg[k].dtype;
    t.ndim = call->arg[k].ndim;
    t.count = 1;
    for (int d = t.ndim - 1; d >= 0; d--) {
        t.shape[d] = call->shape[k][d];
        t.strides[d] = t.count;
        t.count *= t.shape[d];
    }
    t.span = t.count;
    return t;
}

/* What is in t->bytes against what one rank has in `expected`. */
static void compare(struct ranks_launch *launched, int rank, const struct tensor *t,
                    const unsigned char *expected)
{
    const struct test_case c = case_of(launched->p, launched->pass);
    double *value = malloc(((size_t)t->count + 1) * sizeof *value);
    char why[512];
    double worst = 0.0;
    double sum = 0.0;
    if (!value) {
        record_failure(launched, rank, true, "out of host memory");
        return;
    }
    for (int64_t i = 0; i < t->count; i++) {
        value[i] = dtype_get(t->dtype, expected, i);
        sum += isfinite(value[i]) ? value[i] * value[i] : 0.0;
    }
    const struct spread spread = {.least = LEFT * sqrt(sum / (double)(t->count > 0 ? t->count : 1))};
    if (result_compare(t, value, &spread, &c, &worst, why, sizeof why)) {
        record_failure(launched, rank, false, why);
    }
    (void)pthread_mutex_lock(&launched->lock);
    launched->worst = worst > launched->worst ? worst : launched->worst;
    (void)pthread_mutex_unlock(&launched->lock);
    free(value);
}

static void add_share(struct ranks_launch *launched, int k, const struct tensor *t)
{
    (void)pthread_mutex_lock(&launched->lock);
    if (!launched->share[k]) {
        launched->share[k] = calloc((size_t)t->count + 1, sizeof(double));
    }
    for (int64_t i = 0; i < t->count && launched->share[k]; i++) {
        launched->share[k][i] += dtype_get(t->dtype, t->bytes, i);
    }
    (void)pthread_mutex_unlock(&launched->lock);
}

static void check_result(struct rank_thread *s, int k)
{
    struct ranks_launch *launched = s->launched;
    struct tensor t = tensor_of(&s->call, k);
    unsigned char *expected = malloc(s->call.size[k] + 1);
    t.bytes = malloc(s->call.size[k] + 1);
    if (!expected || !t.bytes ||
        !device_download(launched->side->device, t.bytes, s->call.arg[k].data, s->call.size[k])) {
        record_failure(launched, s->rank, true, expected && t.bytes ? device_error() : "out of host memory");
    } else if (s->call.of[k]->is_share) {
        add_share(launched, k, &t);
    } else {
        problem_part(launched->p, s->call.of[k], s->rank, expected);
        compare(launched, s->rank, &t, expected);
    }
    free(expected);
    free(t.bytes);
}

static void rank_close(struct rank_thread *s)
{
    const struct device *device = s->launched->side->device;
    lathe_dist_destroy(s->dist);
    device_free(device, s->workspace);
    call_of_rank_free(device, &s->call);
    device_stream_free(device, s->stream);
    device_stream_free(device, s->comm);
    device_stream_free(device, s->second);
}

static void *run_rank(void *argument)
{
    struct rank_thread *s = argument;
    struct ranks_launch *t = s->launched;
    const struct device *device = t->side->device;
    lathe_error err = {0};
    const bool bound = device_bind(device);
    s->stream = device_stream_new(device);
    s->comm = device_stream_new(device);
    s->second = device_stream_new(device);
    call_of_rank(t->p, t->pass, s->rank, &s->call);
    lathe_status status =
        bound && call_of_rank_fill(t->p, t->pass, device, &s->call) ? launch(s, &err) : no_memory(&err);
    if (status == LATHE_OK && (!device_sync(device, s->stream) || !device_sync(device, s->comm) ||
                               !device_sync(device, s->second))) {
        status = no_memory(&err);
    }
    if (status != LATHE_OK) {
        const lathe_transport transport = thread_transport_of(t->transport, s->rank);
        transport.fail(transport.user, status, err.text);
        record_failure(t, s->rank, true, err.text);
    }
    for (int k = 0; k < s->call.n && status == LATHE_OK; k++) {
        if (s->call.of[k]->written[t->pass]) {
            check_result(s, k);
        }
    }
    return NULL;
}

static void compare_shares(struct ranks_launch *launched, const struct rank_thread *s)
{
    for (int k = 0; k < s->call.n; k++) {
        struct tensor t = tensor_of(&s->call, k);
        if (launched->share[k] && (t.bytes = malloc(s->call.size[k] + 1)) != NULL) {
            for (int64_t i = 0; i < t.count; i++) {
                dtype_put(t.dtype, t.bytes, i, dtype_round(t.dtype, launched->share[k][i]));
            }
            compare(launched, WHOLE, &t, s->call.of[k]->bytes);
            free(t.bytes);
        }
        free(launched->share[k]);
    }
}

/* Buffers are there until all ranks have read what is theirs. */
static void run_ranks(struct ranks_launch *launched)
{
    pthread_t thread[MOST_RANKS];
    struct rank_thread threads[MOST_RANKS];
    lathe_error err = {0};
    const int ranks = launched->p->c->ranks;
    int started = 0;
    memset(threads, 0, sizeof threads);
    (void)pthread_mutex_init(&launched->lock, NULL);
    launched->transport =
        thread_transport_open(launched->side->device, launched->side->ctx, ranks, launched->fault, &err);
    if (!launched->transport) {
        record_failure(launched, WHOLE, true, err.text);
    }
    for (int r = 0; r < ranks && launched->transport; r++) {
        threads[r].launched = launched;
        threads[r].rank = r;
        if (pthread_create(&thread[r], NULL, run_rank, &threads[r]) != 0) {
            const lathe_transport transport = thread_transport_of(launched->transport, r);
            transport.fail(transport.user, LATHE_MEMORY, "no thread for it");
            record_failure(launched, r, true, "no thread for it");
            break;
        }
        started++;
    }
    for (int r = 0; r < started; r++) {
        (void)pthread_join(thread[r], NULL);
    }
    if (started == ranks) {
        compare_shares(launched, &threads[0]);
    }
    for (int r = 0; r < started; r++) {
        rank_close(&threads[r]);
    }
    thread_transport_close(launched->transport);
    (void)pthread_mutex_destroy(&launched->lock);
}

/* ---- cases ------------------------------------------------------------------------------------------------
 */

static const char *const SCHEME[] = {"auto", "keys", "heads", "gather", "ring", "states"};
static const char *const SHARDS[] = {"contiguous", "zigzag", "interleaved"};

static void name_case(const struct ranks_case *c, char *out, size_t size)
{
    char more[64] = "";
    if (c->queries > 0) {
        (void)snprintf(more, sizeof more, " against %d queries", c->queries);
    }
    (void)snprintf(out, size, "%s %s%s over %d ranks, %s%s%s, h=%d/%d, d=%d, %d tokens a rank%s%s%s", c->spec,
                   SCHEME[c->scheme], c->how & PARALLEL ? " in parallel" : "", c->ranks, SHARDS[c->shards],
                   c->cut == UNEVEN ? ", uneven" : "", c->how & PACKED_CALL ? ", packed" : "", c->h, c->h_kv,
                   c->d, c->tokens, more, c->how & ON_COMM ? ", comm stream" : "",
                   c->how & ON_SECOND ? ", second stream" : "");
}

/* Parts that scheme keys leaves are merged whatever their order is, and sums have none. */
static bool is_seen(const struct ranks_case *c, enum message_fault fault)
{
    return fault == MESSAGE_DROPPED || c->scheme != KEYS;
}

static void check_faults(const struct problem *p, lathe_pass pass, const struct side *side, const char *name,
                         struct totals *totals)
{
    static const char *const FAULT[] = {"", "a dropped message", "swapped shards"};
    for (int fault = MESSAGE_DROPPED; fault <= MESSAGES_SWAPPED; fault++) {
        struct ranks_launch launched = {
            .p = p, .pass = pass, .side = side, .fault = (enum message_fault)fault};
        char text[1100];
        if (!is_seen(p->c, launched.fault)) {
            continue;
        }
        run_ranks(&launched);
        const bool seen = launched.wrong && !launched.failed;
        (void)snprintf(text, sizeof text, "%s, %s: %s is %s%s", name, pass ? "backward" : "forward",
                       FAULT[fault], seen ? "found: " : "not found ", launched.why);
        verdict(totals, seen, "ranks", text);
    }
}

static void run_case(const struct ranks_case *c, const struct side *side, struct totals *totals)
{
    static const char *const PASS[] = {"forward", "backward"};
    struct problem p;
    lathe_error err = {0};
    char name[256];
    char said[1024];
    size_t used = 0;
    bool good = problem_open(&p, c, device_is_dry(side->device), true, &err);
    name_case(c, name, sizeof name);
    used = (size_t)snprintf(said, sizeof said, "%s:%s", name, good ? "" : err.text);
    for (int pass = 0; pass < c->passes && good; pass++) {
        struct ranks_launch launched = {.p = &p, .pass = (lathe_pass)pass, .side = side};
        good = run_one_rank(&p, launched.pass, side, &err);
        if (good) {
            run_ranks(&launched);
        }
        good = good && !launched.wrong && !launched.failed;
        used += (size_t)snprintf(said + used, used < sizeof said ? sizeof said - used : 0, " %s %.2f%s%s",
                                 PASS[pass], launched.worst, good ? "" : ": ",
                                 *err.text ? err.text : launched.why);
        if (good && (c->how & FAULTS)) {
            check_faults(&p, launched.pass, side, name, totals);
        }
    }
    verdict(totals, good, "ranks", said);
    problem_close(&p);
}

/* ---- kernels ahead of all cases ---------------------------------------------------------------------------
 */

struct kernels { /* that threads get at the same time */
    const struct side *side;
    const bool *chosen;
    atomic_int next;
};

/* Kernels of a rank's calls, or of one rank's call of the whole. What fails says so again when it is
 * launched. */
static void get_kernels(const struct problem *p, lathe_pass pass, int rank, const struct side *side)
{
    struct call_of_rank call;
    lathe_error err;
    lathe_kernel *kernel = NULL;
    lathe_dist *dist = NULL;
    call_of_rank(p, pass, rank, &call);
    if (rank == WHOLE) {
        (void)(lathe_kernel_get(&kernel, side->ctx, p->spec, pass, call.arg, call.n, &err) == LATHE_OK);
        lathe_kernel_release(kernel);
        return;
    }
    const lathe_transport nobody = {.rank = rank, .ranks = p->c->ranks};
    const lathe_dist_options options = problem_options(p, side->stream, side->stream);
    (void)(lathe_dist_create(&dist, side->ctx, p->spec, pass, &nobody, &options, call.arg, call.n, &err) ==
           LATHE_OK);
    lathe_dist_destroy(dist);
}

static void *compile(void *argument)
{
    struct kernels *work = argument;
    const bool bound = device_bind(work->side->device);
    for (int i = atomic_fetch_add(&work->next, 1); bound && i < COUNT * 2;
         i = atomic_fetch_add(&work->next, 1)) {
        const struct ranks_case *c = &CASES[i / 2];
        struct problem p;
        lathe_error err;
        if (!work->chosen[i / 2] || i % 2 >= c->passes) {
            continue;
        }
        if (problem_open(&p, c, false, false, &err)) {
            for (int rank = WHOLE; rank < c->ranks; rank++) {
                get_kernels(&p, (lathe_pass)(i % 2), rank, work->side);
            }
        }
        problem_close(&p);
    }
    return NULL;
}

static void compile_all(const struct side *side, const bool *chosen, int threads)
{
    enum { MOST_THREADS = 64 };
    pthread_t thread[MOST_THREADS];
    struct kernels work = {.side = side, .chosen = chosen};
    int started = 0;
    while (started < threads && started < MOST_THREADS &&
           pthread_create(&thread[started], NULL, compile, &work) == 0) {
        started++;
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
    }
}

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void ranks_run(const struct bench *shared, const struct options *options, struct totals *totals)
{
    const struct side *side = &shared->tested;
    bool chosen[COUNT];
    const double start = seconds_now();
    for (int i = 0; i < COUNT; i++) {
        char name[256];
        name_case(&CASES[i], name, sizeof name);
        chosen[i] = ((CASES[i].how & QUICK) || !options->quick) && text_is_chosen(options->chosen, name);
    }
    if (!options->dry) {
        compile_all(side, chosen, options->threads);
    }
    const double compiled = seconds_now();
    for (int i = 0; i < COUNT; i++) {
        if (chosen[i]) {
            run_case(&CASES[i], side, totals);
        }
    }
    (void)printf("ranks     %.1f s for kernels, %.1f s for cases\n", compiled - start,
                 seconds_now() - compiled);
}
