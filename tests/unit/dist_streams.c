/*
 * dist_streams.c: what schemes put on several streams waits for what it needs. A launch is only recorded:
 * calls, messages, events. Then every rank does what it has recorded, on the host device, in an order of its
 * own that streams and events allow: at random, or one stream as late as it may be. What does not wait where
 * it has to reads NaN or what was there before. And how many launches, messages and bytes a scheme takes.
 */
#include "dist_call.h"
#include "runtime/dist/dist.h"

enum { MOST_OPS = 1024, STREAMS = 3, WAYS = 6 };
enum { WAY_STEP = LATHE_TEST_EVERY > 1 ? 3 : 1 }; /* one stream late, and at random */
enum op_kind { OP_OF_KERNEL, OP_OF_EVENT, OP_OF_WAIT, OP_OF_MESSAGE };
enum message { TO_ALL, ALL_TO_ALL, EXCHANGE, REDUCE };

struct op {
    enum op_kind kind;
    int stream;
    int event; /* of OP_OF_EVENT; of a wait the op that it waits for, -1: none */
    bool is_done;
    /* a kernel */
    const lathe_kernel *kernel;
    int n;
    lathe_arg arg[MOST_IN_CALL];
    int64_t shape[MOST_IN_CALL][LATHE_MAX_DIMS], stride[MOST_IN_CALL][LATHE_MAX_DIMS];
    int64_t number[MOST_IN_CALL]; /* what scalars are at the call */
    void *workspace;
    /* a message */
    enum message message;
    void *to;
    const void *from;
    size_t a[RANKS], b[RANKS], c[RANKS], d[RANKS];
    int32_t from_rank, to_rank;
    lathe_dtype dtype;
};

struct record { /* of one rank */
    lathe_transport real;
    int n;
    int last[EVENTS]; /* op that recorded the event */
    struct op *op;
    uint64_t random;
    int way;
};

/* ---- recording --------------------------------------------------------------------------------------------
 */

static const char *const STREAM_NAME[STREAMS] = {"first stream", "stream of what is sent", "second stream"};
static char handle[STREAMS]; /* streams 1 and 2 are their addresses, stream 0 is NULL */

static int stream_of(lathe_stream stream)
{
    for (int i = 1; i < STREAMS; i++)
        if ((char *)stream == &handle[i])
            return i;
    CHECK(stream == NULL);
    return 0;
}

static struct op *add(struct record *r, enum op_kind kind, lathe_stream stream)
{
    CHECK(r->n < MOST_OPS);
    struct op *op = &r->op[r->n++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->stream = stream_of(stream);
    return op;
}

static lathe_status record_event(void *user, int event, lathe_stream on, lathe_error *err)
{
    struct record *r = user;
    (void)err;
    add(r, OP_OF_EVENT, on)->event = event;
    r->last[event] = r->n - 1;
    return LATHE_OK;
}

static lathe_status record_wait(void *user, int event, lathe_stream on, lathe_error *err)
{
    struct record *r = user;
    (void)err;
    add(r, OP_OF_WAIT, on)->event = r->last[event];
    return LATHE_OK;
}

static lathe_status record_launch(void *user, const lathe_kernel *kernel, const lathe_arg *arg, int n,
                                  void *workspace, lathe_stream on, lathe_error *err)
{
    struct op *op = add(user, OP_OF_KERNEL, on);
    (void)err;
    op->kernel = kernel;
    op->n = n;
    op->workspace = workspace;
    for (int i = 0; i < n; i++) {
        op->arg[i] = arg[i];
        memcpy(op->shape[i], arg[i].shape, (size_t)arg[i].ndim * sizeof *arg[i].shape);
        memcpy(op->stride[i], arg[i].strides, (size_t)arg[i].ndim * sizeof *arg[i].strides);
        op->arg[i].shape = op->shape[i];
        op->arg[i].strides = op->stride[i];
        if (arg[i].ndim == 0 && arg[i].data) {
            memcpy(&op->number[i], arg[i].data, lathe_dtype_size(arg[i].dtype));
            op->arg[i].data = &op->number[i];
        }
    }
    return LATHE_OK;
}

static struct op *add_message(struct record *r, enum message what, void *to, const void *from,
                              lathe_stream on)
{
    struct op *op = add(r, OP_OF_MESSAGE, on);
    op->message = what;
    op->to = to;
    op->from = from;
    return op;
}

static void keep(const struct record *r, size_t *to, const size_t *from)
{
    memcpy(to, from, (size_t)r->real.ranks * sizeof *from);
}

static lathe_status all_gather(void *user, void *to, const size_t *place, const size_t *bytes,
                               const void *from, lathe_stream on, lathe_error *err)
{
    struct op *op = add_message(user, TO_ALL, to, from, on);
    (void)err;
    keep(user, op->a, place);
    keep(user, op->b, bytes);
    return LATHE_OK;
}

static lathe_status all_to_all(void *user, void *to, const size_t *to_place, const size_t *to_bytes,
                               const void *from, const size_t *from_place, const size_t *from_bytes,
                               lathe_stream on, lathe_error *err)
{
    struct op *op = add_message(user, ALL_TO_ALL, to, from, on);
    (void)err;
    keep(user, op->a, to_place);
    keep(user, op->b, to_bytes);
    keep(user, op->c, from_place);
    keep(user, op->d, from_bytes);
    return LATHE_OK;
}

static lathe_status exchange(void *user, void *to, size_t to_bytes, int32_t from_rank, const void *from,
                             size_t from_bytes, int32_t to_rank, lathe_stream on, lathe_error *err)
{
    struct op *op = add_message(user, EXCHANGE, to, from, on);
    (void)err;
    op->a[0] = to_bytes;
    op->b[0] = from_bytes;
    op->from_rank = from_rank;
    op->to_rank = to_rank;
    return LATHE_OK;
}

static lathe_status reduce_scatter(void *user, void *to, const void *from, const size_t *place,
                                   const size_t *count, lathe_dtype dtype, lathe_stream on, lathe_error *err)
{
    struct op *op = add_message(user, REDUCE, to, from, on);
    (void)err;
    op->dtype = dtype;
    keep(user, op->a, place);
    keep(user, op->b, count);
    return LATHE_OK;
}

/* ---- doing it ---------------------------------------------------------------------------------------------
 */

static lathe_status do_op(const struct record *r, struct op *op, lathe_error *err)
{
    const lathe_transport *t = &r->real;
    op->is_done = true;
    if (op->kind == OP_OF_KERNEL)
        return lathe_launch(op->kernel, op->arg, op->n, op->workspace, NULL, err);
    if (op->kind != OP_OF_MESSAGE)
        return LATHE_OK;
    switch (op->message) {
    case TO_ALL:
        return t->all_gather(t->user, op->to, op->a, op->b, op->from, NULL, err);
    case ALL_TO_ALL:
        return t->all_to_all(t->user, op->to, op->a, op->b, op->from, op->c, op->d, NULL, err);
    case EXCHANGE:
        return t->exchange(t->user, op->to, op->a[0], op->from_rank, op->from, op->b[0], op->to_rank, NULL,
                           err);
    case REDUCE:
        return t->reduce_scatter(t->user, op->to, op->from, op->a, op->b, op->dtype, NULL, err);
    }
    return LATHE_OK;
}

/* The next op of a stream, if it may be done; NULL: not yet. Messages of a transport keep their order, as
   those of a communicator of NCCL do. */
static struct op *ready(const struct record *r, int stream)
{
    bool message_ahead = false;
    for (int i = 0; i < r->n; i++) {
        struct op *op = &r->op[i];
        if (op->is_done)
            continue;
        if (op->stream == stream) {
            const bool waits = op->kind == OP_OF_WAIT && op->event >= 0 && !r->op[op->event].is_done;
            return waits || (op->kind == OP_OF_MESSAGE && message_ahead) ? NULL : op;
        }
        message_ahead |= op->kind == OP_OF_MESSAGE;
    }
    return NULL;
}

static int draw(struct record *r, int n)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((r->random >> 33) % (unsigned)n);
}

/* Ways 0 to 2: of that stream only what nothing else goes on without; the others: at random. */
static lathe_status do_all(struct record *r, lathe_error *err)
{
    for (int left = r->n; left > 0; left--) {
        struct op *may[STREAMS];
        struct op *late = NULL;
        int n = 0;
        for (int s = 0; s < STREAMS; s++) {
            struct op *const op = ready(r, s);
            if (op && s == r->way)
                late = op;
            else if (op)
                may[n++] = op;
        }
        CHECK(n > 0 || late != NULL);
        TRY(do_op(r, n > 0 ? may[draw(r, n)] : late, err));
    }
    return LATHE_OK;
}

/* What the caller puts on its stream behind the launch waits for all of it. */
static bool all_is_awaited(const struct record *r)
{
    bool awaited[MOST_OPS] = {false};
    bool of_stream[STREAMS] = {true, false, false}; /* what is ahead on it is awaited */
    bool all = true;
    for (int i = r->n - 1; i >= 0; i--) {
        const struct op *op = &r->op[i];
        awaited[i] |= of_stream[op->stream];
        of_stream[op->stream] |= awaited[i];
        all &= awaited[i] || op->kind == OP_OF_WAIT || op->kind == OP_OF_EVENT;
        if (awaited[i] && op->kind == OP_OF_WAIT && op->event >= 0)
            awaited[op->event] = true;
    }
    return all;
}

static int way;           /* of the test that runs */
static int used[STREAMS]; /* kernels and messages on each stream, of rank 0 */

static lathe_status launch_recorded(struct part *p, lathe_dist *dist, void *workspace, lathe_error *err)
{
    struct record r = {.real = dist->t, .last = {-1, -1, -1}, .way = way};
    const struct seam seam = {&r, record_event, record_wait, record_launch};
    r.op = calloc(MOST_OPS, sizeof *r.op);
    CHECK(r.op != NULL);
    r.random = (uint64_t)(p->rank * 1000 + way);
    dist->seam = &seam;
    dist->t.user = &r;
    dist->t.all_gather = all_gather;
    dist->t.all_to_all = all_to_all;
    dist->t.exchange = exchange;
    dist->t.reduce_scatter = reduce_scatter;
    lathe_status status = lathe_dist_launch(dist, p->arg, p->n, workspace, NULL, err);
    for (int i = 0; i < r.n && p->rank == 0; i++)
        used[r.op[i].stream] += r.op[i].kind == OP_OF_KERNEL || r.op[i].kind == OP_OF_MESSAGE;
    CHECK(status != LATHE_OK || all_is_awaited(&r));
    if (status == LATHE_OK)
        status = do_all(&r, err);
    dist->t = r.real;
    dist->seam = NULL;
    free(r.op);
    return status;
}

/* ---- tests ------------------------------------------------------------------------------------------------
 */

struct problem_of_streams {
    const char *spec;
    lathe_scheme scheme;
    bool zigzag, comm, second;
    int64_t heads_at_once;
    bool idle_second;  /* the scheme puts nothing there */
    size_t most_bytes; /* beyond which parts are merged as they come */
};

static void streams_of(const struct problem_of_streams *p)
{
    static const int64_t two[] = {0, 12, 24}, three[] = {0, 8, 16, 24};
    for (int pass = 0; pass < 2; pass++) {
        memset(used, 0, sizeof used);
        for (int ranks = 1; ranks <= 3; ranks++)
            for (way = 0; way < WAYS; way += WAY_STEP) {
                struct bench b;
                const int64_t one[] = {0, 24};
                const int64_t *const edge = ranks == 1 ? one : ranks == 2 ? two : three;
                open_bench_of_heads(&b, p->spec, TOKENS, H);
                b.launch = launch_recorded;
                b.options.scheme = p->scheme;
                b.options.shards = p->zigzag ? LATHE_SHARDS_ZIGZAG : LATHE_SHARDS_CONTIGUOUS;
                b.options.comm_stream = p->comm ? (lathe_stream)&handle[1] : NULL;
                b.options.second_compute_stream = p->second ? (lathe_stream)&handle[2] : NULL;
                b.options.heads_at_once = (int32_t)p->heads_at_once;
                b.options.most_bytes = p->most_bytes;
                for (int k = 0; k <= pass; k++)
                    whole(&b, (lathe_pass)k);
                run(&b, ranks, edge, edge);
                compare(&b, p->spec, 1e-9);
                close_bench(&b);
            }
        printf("  %s pass %d:", p->spec, pass);
        for (int s = 0; s < STREAMS; s++)
            printf(" %d on the %s", used[s], STREAM_NAME[s]);
        printf("\n");
        CHECK(used[0] > 0);
        CHECK_EQ(used[1] > 0, p->comm);
        CHECK_EQ(used[2] > 0, pass == 0 && p->second && !p->idle_second);
    }
}

#define STREAMS_OF(what, ...)                                                                                \
    TEST_TIMEOUT(what, 120)                                                                                  \
    {                                                                                                        \
        streams_of(&(struct problem_of_streams){__VA_ARGS__});                                               \
    }

#define GATHER .scheme = LATHE_SCHEME_GATHER
#define RING   .scheme = LATHE_SCHEME_RING
#define HEADS  .scheme = LATHE_SCHEME_HEADS
STREAMS_OF(gather_on_one_stream, GATHER, .spec = "causal", .zigzag = true)
STREAMS_OF(gather_that_sends_on_its_own_stream, GATHER, .spec = "alibi", .zigzag = true, .comm = true)
STREAMS_OF(gather_with_calls_on_two_streams, GATHER, .spec = "causal", .zigzag = true, .second = true)
STREAMS_OF(gather_with_both, GATHER, .spec = "causal", .zigzag = true, .comm = true, .second = true)
STREAMS_OF(gather_of_single_heads, GATHER, .spec = "sinks", .comm = true, .second = true, .heads_at_once = 1)
STREAMS_OF(ring_on_one_stream, RING, .spec = "causal", .zigzag = true)
STREAMS_OF(ring_that_sends_on_its_own_stream, RING, .spec = "causal", .zigzag = true, .comm = true)
STREAMS_OF(ring_with_calls_on_two_streams, RING, .spec = "sinks", .zigzag = true, .second = true)
STREAMS_OF(ring_with_both, RING, .spec = "alibi", .zigzag = true, .comm = true, .second = true)
STREAMS_OF(ring_that_merges, RING, .spec = "sinks", .zigzag = true, .comm = true, .second = true,
           .most_bytes = 1)
STREAMS_OF(ring_of_one_piece, RING, .spec = "full", .comm = true, .second = true)
STREAMS_OF(heads_on_one_stream, HEADS, .spec = "causal", .zigzag = true, .second = true, .idle_second = true)
STREAMS_OF(heads_that_send_on_their_own_stream, HEADS, .spec = "alibi", .zigzag = true, .comm = true)
STREAMS_OF(heads_of_one_piece, HEADS, .spec = "sinks", .comm = true)

/* ---- how much of each -------------------------------------------------------------------------------------
 */

enum { OWN_K = B * H_KV * 12 * D * 8, OWN_LSE = B * H * 12 * 8, OWN_STATES = 3 * OWN_LSE }; /* bytes */
enum { STATE = B * H * D * D * 8 };  /* of linear attention, and of what it is multiplied by */
enum { OWN_V = B * H * 12 * D * 8 }; /* of it, whose v has all heads */

struct bill { /* of a launch on rank 0 of two, causal or gated_delta, whose states at both ends are given */
    lathe_scheme scheme;
    int pass;
    int messages, kernels, computing;
    int sent, moved; /* bytes */
    bool parallel;
};

/* What a scheme takes is what it needs, and stays so. A copy reads and writes, a sum reads two. v has as many
   bytes as k, q and o of twice as many heads have twice as many. */
static const struct bill BILL[] = {
    /* k and v to their place: 4 */
    {LATHE_SCHEME_GATHER, 0, 2, 6, 2, 2 * OWN_K, 4 * OWN_K, false},
    /* and the shares of the later queries, over all keys: 8; of the earlier ones over a quarter: 3; what
       comes home: 4 */
    {LATHE_SCHEME_GATHER, 1, 4, 14, 2, 4 * OWN_K, 19 * OWN_K, false},
    /* half of q, k, v, o and lse is sent, all of them are copied */
    {LATHE_SCHEME_HEADS, 0, 10, 21, 1, 3 * OWN_K + OWN_LSE / 2, 12 * OWN_K + 2 * OWN_LSE, false},
    {LATHE_SCHEME_HEADS, 1, 20, 41, 1, 6 * OWN_K + OWN_LSE, 24 * OWN_K + 4 * OWN_LSE, false},
    /* 5 of 8 pairs of pieces are alive */
    {LATHE_SCHEME_RING, 0, 1, 9, 7, 2 * OWN_K, 4 * OWN_K, false},
    /* keys, their sums, and those that come home; k and v: 4, 5 shares of dk, dv and dq that begin a sum (2
       each) or not: 26; what goes home: 8, dq: 4 */
    {LATHE_SCHEME_RING, 1, 3, 27, 5, 6 * OWN_K, 42 * OWN_K, false},
    /* all queries of a rank */
    {LATHE_SCHEME_KEYS, 0, 1, 2, 2, 4 * OWN_K + 2 * OWN_STATES, 0, false},
    {LATHE_SCHEME_KEYS, 1, 2, 3, 1, 4 * OWN_K, 16 * OWN_K, false},
    /* B and T are sent. 0 and the unit matrix for the calls that leave them: 2; into the walk along both
       ranks, the own one, and out: 6; a step is a product, a sum and a copy: 8. Numbers: zeros of all places
     */
    {LATHE_SCHEME_STATES, 0, 2, 19, 3, 2 * STATE, 24 * STATE + 9 * 8, false},
    /* the same, of one call; v and columns of 0 beside it, which are copied: 3 rows, o = o0 + r S: 3 and S */
    {LATHE_SCHEME_STATES, 0, 1, 21, 1, 2 * STATE, 25 * STATE + 6 * OWN_V + 12 * 8, true},
    /* B, T and C; the walk forward ends at the own rank: 4, that back is as long as forward: 22; and 3 */
    {LATHE_SCHEME_STATES, 1, 3, 23, 4, 3 * STATE, 29 * STATE + 9 * 8, false},
};

TEST(launches_messages_and_bytes)
{
    static const int64_t edge[] = {0, 12, 24};
    for (size_t i = 0; i < sizeof BILL / sizeof *BILL; i++) {
        const struct bill *l = &BILL[i];
        const bool keys = l->scheme == LATHE_SCHEME_KEYS;
        const bool states = l->scheme == LATHE_SCHEME_STATES;
        const char *const spec = states ? "gated_delta" : "causal";
        char expected[256];
        struct bench b;
        open_bench(&b, spec, TOKENS);
        b.options.scheme = l->scheme;
        b.options.parallel_states = l->parallel;
        b.options.whole_q = keys;
        b.options.shards = keys || states ? LATHE_SHARDS_CONTIGUOUS : LATHE_SHARDS_ZIGZAG;
        for (int pass = 0; pass <= l->pass; pass++)
            whole(&b, (lathe_pass)pass);
        run(&b, 2, edge, edge);
        compare(&b, spec, 1e-8);
        snprintf(
            expected, sizeof expected,
            "shards: a launch sends %d bytes to other ranks in %d calls, launches %d kernels, of which %d "
            "compute and the others read and write %d bytes, and takes a workspace of ",
            l->sent, l->messages, l->kernels, l->computing, l->moved);
        CHECK_HAS(b.info, expected);
        close_bench(&b);
    }
}

/* ---- what is said and what is sent ------------------------------------------------------------------------
 */

struct counted { /* a transport, and what goes through it */
    lathe_transport real;
    size_t sent, received; /* bytes to and from other ranks */
    int calls;
    int fails_at; /* the number of a call that fails, from 1; 0: none */
};

static size_t of_others(const struct counted *c, const size_t *bytes)
{
    size_t sum = 0;
    for (int32_t r = 0; r < c->real.ranks; r++)
        sum += r == c->real.rank ? 0 : bytes[r];
    return sum;
}

static lathe_status count_call(struct counted *c, lathe_error *err)
{
    return ++c->calls == c->fails_at ? lathe__fail(err, LATHE_CUDA, "the wire is cut") : LATHE_OK;
}

static lathe_status count_all_gather(void *user, void *to, const size_t *place, const size_t *bytes,
                                     const void *from, lathe_stream on, lathe_error *err)
{
    struct counted *c = user;
    TRY(count_call(c, err));
    c->sent += bytes[c->real.rank] * (size_t)(c->real.ranks - 1);
    c->received += of_others(c, bytes);
    return c->real.all_gather(c->real.user, to, place, bytes, from, on, err);
}

static lathe_status count_all_to_all(void *user, void *to, const size_t *to_place, const size_t *to_bytes,
                                     const void *from, const size_t *from_place, const size_t *from_bytes,
                                     lathe_stream on, lathe_error *err)
{
    struct counted *c = user;
    TRY(count_call(c, err));
    c->sent += of_others(c, from_bytes);
    c->received += of_others(c, to_bytes);
    return c->real.all_to_all(c->real.user, to, to_place, to_bytes, from, from_place, from_bytes, on, err);
}

static lathe_status count_exchange(void *user, void *to, size_t to_bytes, int32_t from_rank, const void *from,
                                   size_t from_bytes, int32_t to_rank, lathe_stream on, lathe_error *err)
{
    struct counted *c = user;
    TRY(count_call(c, err));
    c->sent += to_rank == c->real.rank ? 0 : from_bytes;
    c->received += from_rank == c->real.rank ? 0 : to_bytes;
    return c->real.exchange(c->real.user, to, to_bytes, from_rank, from, from_bytes, to_rank, on, err);
}

static lathe_status count_reduce_scatter(void *user, void *to, const void *from, const size_t *place,
                                         const size_t *count, lathe_dtype dtype, lathe_stream on,
                                         lathe_error *err)
{
    struct counted *c = user;
    TRY(count_call(c, err));
    c->sent += of_others(c, count) * lathe_dtype_size(dtype);
    c->received += count[c->real.rank] * (size_t)(c->real.ranks - 1) * lathe_dtype_size(dtype);
    return c->real.reduce_scatter(c->real.user, to, from, place, count, dtype, on, err);
}

static void count_all(lathe_dist *dist, struct counted *c)
{
    dist->t.user = c;
    dist->t.all_gather = count_all_gather;
    dist->t.all_to_all = count_all_to_all;
    dist->t.exchange = count_exchange;
    dist->t.reduce_scatter = count_reduce_scatter;
}

static size_t all_sent, all_received; /* of all ranks, under the bench's lock */

static lathe_status launch_counted(struct part *p, lathe_dist *dist, void *workspace, lathe_error *err)
{
    struct counted c = {.real = dist->t};
    char expected[128];
    count_all(dist, &c);
    const lathe_status status = lathe_dist_launch(dist, p->arg, p->n, workspace, NULL, err);
    dist->t = c.real;
    snprintf(expected, sizeof expected, "a launch sends %zu bytes to other ranks in %d calls", c.sent,
             c.calls);
    CHECK_HAS(lathe_dist_info(dist), expected);
    pthread_mutex_lock(&p->b->lock);
    all_sent += c.sent;
    all_received += c.received;
    pthread_mutex_unlock(&p->b->lock);
    return status;
}

/* Every scheme, both passes, over 1 to 4 ranks whose shards differ. */
TEST_TIMEOUT(what_is_said_is_sent, 120)
{
    static const int64_t any[4][5] = {{0, 24}, {0, 9, 24}, {0, 0, 16, 24}, {0, 1, 8, 20, 24}};
    static const int64_t even[4][5] = {{0, 24}, {0, 12, 24}, {0, 8, 16, 24}, {0, 6, 12, 18, 24}};
    static const struct {
        const char *spec;
        lathe_scheme scheme;
        bool zigzag, parallel;
        size_t most_bytes;
    } LIST[] = {{"sinks", LATHE_SCHEME_KEYS, false, false, 0},
                {"sinks", LATHE_SCHEME_HEADS, false, false, 0},
                {"alibi", LATHE_SCHEME_HEADS, true, false, 0},
                {"sinks", LATHE_SCHEME_GATHER, false, false, 0},
                {"causal", LATHE_SCHEME_GATHER, true, false, 0},
                {"sinks", LATHE_SCHEME_RING, false, false, 0},
                {"causal", LATHE_SCHEME_RING, true, false, 1},
                {"gated_delta", LATHE_SCHEME_STATES, false, false, 0},
                {"gated_delta", LATHE_SCHEME_STATES, false, true, 0},
                {"linear_elu", LATHE_SCHEME_STATES, false, false, 0},
                {"retention_linear", LATHE_SCHEME_STATES, false, false, 0}};
    for (size_t i = 0; i < sizeof LIST / sizeof *LIST; i++)
        for (int pass = 0; pass < (LIST[i].parallel ? 1 : 2); pass++)
            for (int ranks = 1; ranks <= 4; ranks++) {
                struct bench b;
                if (!CHECK_IS_TAKEN((int)i + pass + ranks))
                    continue;
                const int64_t *const edge = LIST[i].zigzag ? even[ranks - 1] : any[ranks - 1];
                open_bench(&b, LIST[i].spec, TOKENS);
                b.options.scheme = LIST[i].scheme;
                b.options.whole_q = LIST[i].scheme == LATHE_SCHEME_KEYS;
                b.options.shards = LIST[i].zigzag ? LATHE_SHARDS_ZIGZAG : LATHE_SHARDS_CONTIGUOUS;
                b.options.parallel_states = LIST[i].parallel;
                b.options.most_bytes = LIST[i].most_bytes;
                b.launch = launch_counted;
                all_sent = all_received = 0;
                for (int k = 0; k <= pass; k++)
                    whole(&b, (lathe_pass)k);
                run(&b, ranks, edge, edge);
                compare(&b, LIST[i].spec, 1e-8);
                CHECK_EQ(all_sent, all_received);
                CHECK_EQ(all_sent > 0, ranks > 1);
                close_bench(&b);
            }
}

/* ---- a rank that fails in the middle ----------------------------------------------------------------------
 */

static int failing_call;

static void give_up(void *user, lathe_status status, const char *why)
{
    const struct counted *c = user;
    c->real.fail(c->real.user, status, why);
}

static lathe_status launch_until(struct part *p, lathe_dist *dist, void *workspace, lathe_error *err)
{
    struct counted c = {.real = dist->t, .fails_at = p->rank == 1 ? failing_call : 0};
    count_all(dist, &c);
    dist->t.fail = give_up;
    const lathe_status status = lathe_dist_launch(dist, p->arg, p->n, workspace, NULL, err);
    dist->t = c.real;
    return status;
}

/* Whichever of its messages fails, the others return with its sentence. */
TEST_TIMEOUT(a_rank_that_fails_in_the_middle, 120)
{
    static const int64_t edge[] = {0, 8, 16, 24};
    static const lathe_scheme LIST[] = {LATHE_SCHEME_KEYS, LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER,
                                        LATHE_SCHEME_RING, LATHE_SCHEME_STATES};
    for (int i = 0; i < 5; i++)
        for (int pass = 0; pass < 2; pass++)
            for (failing_call = 1; failing_call <= 2; failing_call++) {
                struct bench b;
                open_bench(&b, i == 4 ? "gated_delta" : "sinks", TOKENS);
                b.options.scheme = LIST[i];
                b.options.whole_q = i == 0;
                b.launch = launch_until;
                b.pass = (lathe_pass)pass;
                run(&b, 3, edge, edge);
                CHECK(failing_call > 1 || b.status[1] != LATHE_OK);
                for (int r = 0; r < 3 && b.status[1] != LATHE_OK; r++) { /* some send once */
                    CHECK_EQ(b.status[r], LATHE_CUDA);
                    CHECK_HAS(b.err[r].text,
                              r == 1 ? "the wire is cut" : "rank 1 of 3 failed: the wire is cut");
                }
                close_bench(&b);
            }
}
