/*
 * dist.c: one problem over ranks that are threads, on the host device, beside the same on one rank: every
 * shipped spec that a scheme serves, both passes, shards of any size, none and masked ones among them. Ranks
 * that fail leave a sentence at the others.
 */
#include "dist_call.h"

#include <dlfcn.h>

/* ---- every shipped spec
 * ------------------------------------------------------------------------------------ */

enum { MOST_SWEPT = 4 }; /* ranks that all specs go over; a few go over more */
static const int64_t EDGE[MOST_SWEPT][MOST_SWEPT + 1] = {
    {0, TOKENS}, {0, 9, TOKENS}, {0, 0, 16, TOKENS}, {0, 1, 8, 20, TOKENS}};
static const int64_t EVEN[MOST_SWEPT][MOST_SWEPT + 1] = {
    {0, 24}, {0, 12, 24}, {0, 8, 16, 24}, {0, 6, 12, 18, 24}};
/* Of 6 queries. */
static const int64_t Q_EDGE[MOST_SWEPT][MOST_SWEPT + 1] = {{0, 6}, {0, 2, 6}, {0, 3, 3, 6}, {0, 1, 2, 4, 6}};

/* Does a scheme refuse this, with a sentence that begins with its name? */
static bool refuses(const struct bench *b, const char *scheme)
{
    char begin[64];
    snprintf(begin, sizeof begin, "dist: scheme %s: ", scheme);
    for (int r = 0; r < b->ranks; r++)
        if (b->status[r] == LATHE_UNSUPPORTED || b->status[r] == LATHE_ARG)
            return strstr(b->err[r].text, begin) != NULL;
    return false;
}

struct sweep {
    lathe_scheme scheme;
    const char *name;
    int kind;
    int64_t q;
    bool whole_q, zigzag, backward;
    double bound;
    int least, refused; /* specs that are served at least, and refused at most */
    bool parallel;
    int interleave; /* keys of a chunk; 0: shards are contiguous or zigzag */
};

static void sweep(const struct sweep *s)
{
    static char name[MOST_SPECS][64];
    const int n = list_shipped(name, s->kind);
    int served = 0;
    int refused = 0;
    for (int i = CHECK_FIRST_TAKEN; i < n; i += LATHE_TEST_EVERY) {
        struct bench b;
        bool fits = true;
        open_bench(&b, name[i], s->q);
        b.options.scheme = s->scheme;
        b.options.whole_q = s->whole_q;
        b.options.shards = s->zigzag ? LATHE_SHARDS_ZIGZAG : LATHE_SHARDS_CONTIGUOUS;
        b.options.parallel_states = s->parallel;
        b.options.interleave = s->interleave;
        if (s->interleave)
            b.options.shards = LATHE_SHARDS_INTERLEAVED;
        whole(&b, LATHE_FORWARD);
        if (s->backward)
            whole(&b, LATHE_BACKWARD);
        for (int ranks = 1; ranks <= MOST_SWEPT && fits; ranks++) {
            int64_t apart[RANKS + 1];
            const int64_t *const kv = s->interleave ? apart : s->zigzag ? EVEN[ranks - 1] : EDGE[ranks - 1];
            if (s->interleave)
                interleave(&b, ranks, apart);
            run(&b, ranks, s->q == TOKENS ? kv : Q_EDGE[ranks - 1], kv);
            fits = !refuses(&b, s->name);
            if (fits)
                compare(&b, name[i], s->bound);
            else
                printf("  %s over %d ranks: %s; %s\n", name[i], ranks, b.err[0].text, b.err[ranks - 1].text);
        }
        served += fits;
        refused += !fits;
        close_bench(&b);
    }
    printf("  %s: %d specs served, %d refused\n", s->name, served, refused);
    CHECK(served >= (s->least - s->refused) / LATHE_TEST_EVERY && refused <= s->refused);
    CHECK(LATHE_TEST_EVERY > 1 || served >= s->least);
}

#define SWEEP_WITH(what, parallel, interleave, ...)                                                          \
    TEST_TIMEOUT(what, 300)                                                                                  \
    {                                                                                                        \
        sweep(&(struct sweep){__VA_ARGS__, parallel, interleave});                                           \
    }
#define SWEEP(what, ...) SWEEP_WITH(what, false, 0, __VA_ARGS__)

/* kernel_get reads no scalars: all query heads are then those of an input that has all key heads. */
TEST(a_kernel_for_some_heads_may_be_asked_for_without_data)
{
    const int64_t q[] = {B, 2, 6, D}, k[] = {B, 1, TOKENS, D}, blocks[] = {B, H_KV, 6, 16};
    const lathe_arg arg[] = {
        {"q", NULL, LATHE_F64, 4, q, NULL},           {"k", NULL, LATHE_F64, 4, k, NULL},
        {"v", NULL, LATHE_F64, 4, k, NULL},           {"o", NULL, LATHE_F64, 4, q, NULL},
        {"blocks", NULL, LATHE_I32, 4, blocks, NULL}, {"h_start", NULL, LATHE_I32, 0, NULL, NULL},
        {"n_h", NULL, LATHE_I32, 0, NULL, NULL}};
    struct bench b;
    lathe_error err = {0};
    open_bench(&b, "nsa_selected", 6);
    CHECK_EQ(lathe_supported(b.ctx, b.spec, LATHE_FORWARD, arg, 7, &err), LATHE_OK);
    close_bench(&b);
}

SWEEP(keys_forward, LATHE_SCHEME_KEYS, "keys", KIND_ATTENTION, 6, true, false, false, 1e-9, 20, 4)
SWEEP(keys_backward, LATHE_SCHEME_KEYS, "keys", KIND_ATTENTION, 6, true, false, true, 1e-9, 18, 7)
SWEEP_WITH(interleaved_forward, false, 4, LATHE_SCHEME_KEYS, "keys", KIND_ATTENTION, 6, true, false, false,
           1e-9, 20, 4)
SWEEP_WITH(interleaved_backward, false, 1, LATHE_SCHEME_KEYS, "keys", KIND_ATTENTION, 6, true, false, true,
           1e-9, 18, 7)
SWEEP(heads_forward, LATHE_SCHEME_HEADS, "heads", KIND_ATTENTION, 6, false, false, false, 0, 20, 0)
SWEEP(heads_backward, LATHE_SCHEME_HEADS, "heads", KIND_ATTENTION, TOKENS, false, true, true, 1e-9, 20, 0)
SWEEP(gather_forward, LATHE_SCHEME_GATHER, "gather", KIND_ATTENTION, 6, false, false, false, 0, 20, 4)
SWEEP(gather_zigzag, LATHE_SCHEME_GATHER, "gather", KIND_ATTENTION, TOKENS, false, true, false, 0, 20, 4)
SWEEP(gather_backward, LATHE_SCHEME_GATHER, "gather", KIND_ATTENTION, 6, false, false, true, 1e-9, 20, 4)
SWEEP(gather_zigzag_backward, LATHE_SCHEME_GATHER, "gather", KIND_ATTENTION, TOKENS, false, true, true, 1e-9,
      20, 4)
SWEEP(ring_forward, LATHE_SCHEME_RING, "ring", KIND_ATTENTION, 6, false, false, false, 1e-9, 20, 4)
SWEEP(ring_zigzag, LATHE_SCHEME_RING, "ring", KIND_ATTENTION, TOKENS, false, true, false, 1e-9, 20, 4)
SWEEP(ring_backward, LATHE_SCHEME_RING, "ring", KIND_ATTENTION, 6, false, false, true, 1e-9, 18, 6)
SWEEP(ring_zigzag_backward, LATHE_SCHEME_RING, "ring", KIND_ATTENTION, TOKENS, false, true, true, 1e-9, 18, 6)
SWEEP(states_forward, LATHE_SCHEME_STATES, "states", KIND_LINEAR, TOKENS, false, false, false, 1e-9, 15, 6)
SWEEP_WITH(states_parallel, true, 0, LATHE_SCHEME_STATES, "states", KIND_LINEAR, TOKENS, false, false, false,
           1e-9, 14, 12)
SWEEP(states_backward, LATHE_SCHEME_STATES, "states", KIND_LINEAR, TOKENS, false, false, true, 1e-8, 15, 6)

/* Both passes of a spec of linear attention over 3 ranks, one without tokens. */
static void states_of(const char *text)
{
    struct bench b;
    open_bench(&b, text, TOKENS);
    for (int pass = 0; pass < 2; pass++) {
        whole(&b, (lathe_pass)pass);
        run(&b, 3, EDGE[2], EDGE[2]);
        compare(&b, text, 1e-9);
    }
    close_bench(&b);
}

/* Without states at the ends, first and last rank compute less. */
TEST(states_without_ends)
{
    static const char *const SPEC[] = {"gated_delta", "kda", "gla", "linear_elu", "retention_linear"};
    static const char *const END[] = {"state", "state_out", "dstate", "dstate_out",
                                      "norm",  "norm_out",  "dnorm",  "dnorm_out"};
    for (int i = 0; i < 5; i++)
        for (int kept = 0; kept < 5; kept++) { /* none, or one of them */
            struct bench b;
            if (!CHECK_IS_TAKEN(i + kept))
                continue;
            open_bench(&b, SPEC[i], TOKENS);
            for (int e = 0; e < 8; e++)
                if (find(&b, END[e]) && e % 4 != kept - 1)
                    find(&b, END[e])->name[0] = '-';
            for (int pass = 0; pass < 2; pass++) {
                whole(&b, (lathe_pass)pass);
                run(&b, 1, EDGE[0], EDGE[0]);
                compare(&b, SPEC[i], 1e-9);
                run(&b, 3, EDGE[2], EDGE[2]);
                compare(&b, SPEC[i], 1e-9);
                run(&b, 4, EDGE[3], EDGE[3]);
                compare(&b, SPEC[i], 1e-9);
            }
            close_bench(&b);
        }
}

TEST(states_go_either_way_and_fade_by_either_channel)
{
    states_of("return linear_attention { reverse = true, inputs = { g = tensor('float', 'b', 'h', 't', { "
              "grad = true }) "
              "}, decay = function(at, x) return x.g(at.b, at.h, at.t) end }");
    states_of(
        "return linear_attention { inputs = { w = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }) },\n"
        "decay = function(at, x) return x.w(at.b, at.h, at.t, at.j) end }");
    states_of("return linear_attention { reverse = true, normalise = true, key_mod = function(k) return "
              "exp(k) end,\n"
              "query_mod = function(q) return exp(q) end }");
    states_of("return linear_attention { delta = function(at) return 8.0 / f32(at.d_v) end }"); /* d_v = d */
}

/* ---- ranks that fail
 * --------------------------------------------------------------------------------------- */

TEST(a_rank_that_fails_leaves_a_sentence_at_the_others)
{
    static const lathe_scheme LIST[] = {LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER, LATHE_SCHEME_RING};
    for (int i = 0; i < 3; i++) {
        struct bench b;
        open_bench(&b, "causal", 6);
        b.options.scheme = LIST[i];
        b.failing = 2;
        b.pass = LATHE_FORWARD;
        run(&b, 4, Q_EDGE[3], EDGE[3]);
        for (int r = 0; r < 4; r++) {
            CHECK_EQ(b.status[r], LATHE_ARG);
            CHECK_HAS(b.err[r].text, r == 2 ? "dist: argument 'q': expected the dtype and the shape"
                                            : "rank 2 of 4 failed: dist: argument 'q'");
        }
        close_bench(&b);
    }
}

TEST(a_rank_that_cannot_begin_says_so_too)
{
    struct bench b;
    open_bench(&b, "causal", 6);
    b.options.scheme = LATHE_SCHEME_RING;
    b.failing = 1;
    b.fails_early = true;
    b.pass = LATHE_FORWARD;
    run(&b, 3, Q_EDGE[2], EDGE[2]);
    for (int r = 0; r < 3; r++) {
        CHECK_EQ(b.status[r], LATHE_ARG);
        CHECK_HAS(b.err[r].text,
                  r == 1 ? "dist: expected q and k of 4 dims" : "rank 1 of 3 failed: dist: expected q and k");
    }
    close_bench(&b);
}

TEST(what_is_refused_says_why)
{
    const int64_t tokens[] = {TOKENS, 23, 1};
    struct bench b;
    open_bench(&b, "causal", TOKENS);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.scheme = LATHE_SCHEME_KEYS},
                    "dist: scheme keys: every rank needs all queries (whole_q = 1)"),
             LATHE_UNSUPPORTED);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.scheme = (lathe_scheme)77}, "dist: scheme: expected 0 to"),
             LATHE_ARG);
    CHECK_EQ(refuse(&b,
                    &(lathe_dist_options){.comm_stream = (lathe_stream)&b,
                                          .second_compute_stream = (lathe_stream)&b},
                    "rank 0 of 3"), /* schemes that are refused on the way have no streams */
             LATHE_OK);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.shards = LATHE_SHARDS_ZIGZAG, .kv_tokens = tokens},
                    "zigzag shards have as many tokens on all ranks"),
             LATHE_ARG);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.shards = (lathe_shards)3},
                    "dist: shards: expected 0 to 2, given 3"),
             LATHE_ARG);
    CHECK_EQ(
        refuse(&b, &(lathe_dist_options){.heads_at_once = -1}, "dist: heads_at_once: expected 0 or more"),
        LATHE_ARG);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.whole_q = 2}, "dist: whole_q: expected 0 or 1, given 2"),
             LATHE_ARG);
    CHECK_EQ(
        refuse(&b, &(lathe_dist_options){.parallel_states = -1}, "dist: parallel_states: expected 0 or 1"),
        LATHE_ARG);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.interleave = 4},
                    "dist: interleave: expected 0 beside other shards"),
             LATHE_ARG);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.shards = LATHE_SHARDS_INTERLEAVED, .interleave = INT32_MAX},
                    "dist: interleave: expected the keys of a chunk, 1 to 715827882"),
             LATHE_ARG);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.shards = LATHE_SHARDS_INTERLEAVED, .interleave = 4},
                    "interleaved shards are of caches, which scheme keys takes"),
             LATHE_UNSUPPORTED);
    CHECK_EQ(
        refuse(&b,
               &(lathe_dist_options){
                   .shards = LATHE_SHARDS_INTERLEAVED, .interleave = 7, .whole_q = 1, .kv_tokens = tokens},
               "dist: kv_tokens: expected 20 of rank 0, which chunks of 7 of all 48 keys leave it, given 24"),
        LATHE_ARG);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.shards = LATHE_SHARDS_ZIGZAG, .whole_q = 1},
                    "zigzag shards are of queries and keys alike"),
             LATHE_UNSUPPORTED);
    close_bench(&b);
    open_bench(&b, "flamingo", TOKENS);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.scheme = LATHE_SCHEME_GATHER},
                    "line 5 of the spec reads at.row or at.len_q"),
             LATHE_UNSUPPORTED);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.scheme = LATHE_SCHEME_AUTO}, "scheme heads, rank 0 of 3"),
             LATHE_OK);
    close_bench(&b);
}

/* An object is made of addresses that nothing is read from: of a workspace that is not there yet, which may
   not seem to lie where the caller's tensors do. */
TEST(no_argument_lies_where_a_workspace_will)
{
    static const lathe_scheme LIST[] = {LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER, LATHE_SCHEME_RING};
    static char nearby[256]; /* a tensor of 1 GB that begins here reaches over all of the program's data */
    const int64_t shape[] = {B, H, 1 << 20, D};
    const lathe_arg arg[] = {{"q", nearby, LATHE_F64, 4, shape, NULL},
                             {"k", nearby, LATHE_F64, 4, shape, NULL},
                             {"v", nearby, LATHE_F64, 4, shape, NULL},
                             {"o", NULL, LATHE_F64, 4, shape, NULL}};
    struct bench b;
    open_bench(&b, "full", TOKENS);
    for (int i = 0; i < 3; i++) {
        const lathe_dist_options o = {.scheme = LIST[i]};
        const lathe_transport t = {.rank = 1, .ranks = 2};
        lathe_dist *dist;
        lathe_error err = {0};
        const lathe_status status =
            lathe_dist_create(&dist, b.ctx, b.spec, LATHE_FORWARD, &t, &o, arg, 4, &err);
        CHECK_HAS(status == LATHE_OK ? lathe_dist_info(dist) : err.text, "rank 1 of 2");
        lathe_dist_destroy(dist);
    }
    close_bench(&b);
}

/* Lists of sequences, whose places among all keys nobody knows. */
TEST(lists_that_a_scheme_does_not_take_say_why)
{
    const int32_t none[B * TOKENS] = {0};
    const lathe_dist_options keys = {.scheme = LATHE_SCHEME_KEYS, .whole_q = 1};
    struct bench b;
    open_bench(&b, "alibi", TOKENS);
    give_i32(&b, "used_kv", none);
    CHECK_EQ(refuse(&b, &keys, "argument 'q_start': expected it beside 'used_kv'"), LATHE_ARG);
    give_i32(&b, "cu_q", none);
    CHECK_EQ(refuse(&b, &keys, "argument 'cu_q' is not taken: packed sequences are cut between ranks"),
             LATHE_UNSUPPORTED);
    close_bench(&b);
    open_bench(&b, "relu", TOKENS);
    give_i32(&b, "used_kv", none);
    give_i32(&b, "q_start", none);
    CHECK_EQ(refuse(&b, &keys, "argument 'used_kv' is not taken: line 4 of the spec reads at.len_kv"),
             LATHE_UNSUPPORTED);
    close_bench(&b);
    open_bench(&b, "linear", TOKENS);
    give_i32(&b, "states_index", none);
    CHECK_EQ(refuse(&b, NULL, "argument 'states_index' is not taken"), LATHE_UNSUPPORTED);
    close_bench(&b);
}

/* Rank 1 has keys of one sequence alone, which is the longer one; or both have chunks of both, and the second
   sequence ends within one of them. */
static void caches(const char *spec, int interleaved, bool paged, lathe_scheme scheme)
{
    static const int64_t edge[] = {0, 16, TOKENS};
    const int32_t used[B] = {TOKENS, 13};
    const int32_t q_start = 10;
    int64_t apart[RANKS + 1];
    struct bench b;
    open_bench(&b, spec, 6);
    give_i32(&b, "used_kv", used);
    give_i32(&b, "q_start", &q_start);
    b.options.scheme = scheme;
    b.options.whole_q = 1;
    b.options.interleave = interleaved;
    b.options.shards = interleaved ? LATHE_SHARDS_INTERLEAVED : LATHE_SHARDS_CONTIGUOUS;
    b.paged = paged;
    interleave(&b, 2, apart);
    whole(&b, LATHE_FORWARD);
    run(&b, 2, Q_EDGE[1], interleaved ? apart : edge);
    compare(&b, spec, 1e-9);
    close_bench(&b);
}

TEST(caches_with_keys_in_use_and_in_pages)
{
    static const int CHUNK[] = {0, 1, 4, 8};
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < 4; way++)
            caches("alibi", CHUNK[i], way & 1, way & 2 ? LATHE_SCHEME_AUTO : LATHE_SCHEME_KEYS);
}

/* Masks, tables by key and random numbers by the places of all, over as many ranks as there are chunks and
   more, of which some have no keys. */
TEST(interleaved_caches_of_several_ranks)
{
    static const char *const WINDOW =
        "return attention { mask_mod = function(at) return le(at.kv, at.q) & lt(at.q - at.kv, 5) end }";
    const char *const SPEC[] = {"causal", "document", "sinks", "dropout", "pair_bias", WINDOW};
    static const int CHUNK[] = {1, 3, 5, 10, TOKENS};
    for (int i = 0; i < 6; i++)
        for (int c = 0; c < 5; c++)
            for (int ranks = 2; ranks <= 4; ranks++) {
                struct bench b;
                int64_t apart[RANKS + 1];
                if (!CHECK_IS_TAKEN(i + c + ranks))
                    continue;
                open_bench(&b, SPEC[i], 6);
                b.options.whole_q = 1;
                b.options.shards = LATHE_SHARDS_INTERLEAVED;
                b.options.interleave = CHUNK[c];
                interleave(&b, ranks, apart);
                for (int pass = 0; pass < 2; pass++) {
                    whole(&b, (lathe_pass)pass);
                    run(&b, ranks, Q_EDGE[0], apart);
                    compare(&b, SPEC[i], 1e-9);
                }
                close_bench(&b);
            }
}

TEST(a_state_that_cannot_be_carried_says_why)
{
    struct bench b;
    open_bench(
        &b,
        "return linear_attention { decay = function(at) return -0.1 end, value_mod = function(v) return v + "
        "1.0 end }",
        TOKENS);
    CHECK_EQ(refuse(&b, NULL, "value_mod makes something else than 0 of a v of 0"), LATHE_UNSUPPORTED);
    close_bench(&b);
    open_bench(&b, "return linear_attention { scale = function(at) return f32(at.len_t) end }", TOKENS);
    CHECK_EQ(refuse(&b, NULL, "line 1 of the spec reads at.t, at.pos or at.len_t"), LATHE_UNSUPPORTED);
    close_bench(&b);
    open_bench_sized(&b, "return linear_attention { delta = function(at) return 8.0 / f32(at.d_v) end }",
                     TOKENS, H_KV, 8, LATHE_F64);
    CHECK_EQ(refuse(&b, NULL, "line 1 of the spec reads at.d_v"), LATHE_UNSUPPORTED);
    close_bench(&b);
}

/* An ordinary call serves what no scheme does. */
TEST(one_rank_needs_no_scheme)
{
    struct bench b;
    open_bench(&b, "return linear_attention { causal = false }", TOKENS);
    CHECK_EQ(refuse_of(&b, 1, NULL, "one rank has all of t, which an ordinary call serves (lathe_launch)"),
             LATHE_UNSUPPORTED);
    close_bench(&b);
}

TEST(auto_takes_what_sends_least_and_says_why)
{
    struct bench b;
    open_bench(&b, "causal", TOKENS);
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.scheme = LATHE_SCHEME_AUTO},
                    "heads: serves; a rank of equal shards would send"),
             LATHE_OK);
    CHECK_EQ(
        refuse(&b, &(lathe_dist_options){.scheme = LATHE_SCHEME_AUTO}, "keys: every rank needs all queries"),
        LATHE_OK);
    close_bench(&b);
}

/* Shards of any size, none among them: every rank comes to the same scheme by itself. */
TEST(auto_is_the_same_on_every_rank)
{
    for (int pass = 0; pass < 2; pass++) {
        struct bench b;
        open_bench(&b, "sinks", 6);
        whole(&b, LATHE_FORWARD);
        if (pass)
            whole(&b, LATHE_BACKWARD);
        run(&b, 3, Q_EDGE[2], EDGE[2]);
        compare(&b, "sinks", 1e-9);
        run(&b, 4, (const int64_t[]){0, 0, 0, 6, 6}, (const int64_t[]){0, TOKENS, TOKENS, TOKENS, TOKENS});
        compare(&b, "sinks", 1e-9);
        close_bench(&b);
    }
}

/* Sums of shares are f32: of what is bf16 they come out as often rounded as there are ranks. */
TEST(f32_and_bf16)
{
    static const lathe_scheme LIST[] = {LATHE_SCHEME_KEYS, LATHE_SCHEME_HEADS,  LATHE_SCHEME_GATHER,
                                        LATHE_SCHEME_RING, LATHE_SCHEME_STATES, LATHE_SCHEME_STATES};
    for (int i = 0; i < 12; i++)
        for (int pass = 0; pass < (i % 6 == 5 ? 1 : 2); pass++) {
            const lathe_scheme scheme = LIST[i % 6];
            const char *const spec = scheme == LATHE_SCHEME_STATES ? "kda" : "sinks";
            struct bench b;
            open_bench_of(&b, spec, TOKENS, i < 6 ? LATHE_F32 : LATHE_BF16);
            b.options.scheme = scheme;
            b.options.parallel_states = i % 6 == 5;
            b.options.whole_q = scheme == LATHE_SCHEME_KEYS;
            whole(&b, LATHE_FORWARD);
            if (pass)
                whole(&b, LATHE_BACKWARD);
            run(&b, 3, EDGE[2], EDGE[2]);
            compare(&b, spec, i < 6 ? 2e-6 : 2e-2);
            close_bench(&b);
        }
}

static void store_as(struct bench *b, const char *name, lathe_dtype dtype)
{
    struct value *v = find(b, name);
    v->arg.dtype = dtype;
    for (int64_t i = 0; i < v->count; i++)
        dtype_store(dtype, v->arg.data, i, unit(b) * 4 - 2);
}

TEST(caches_of_8_bits_travel_as_they_are)
{
    static const lathe_scheme LIST[] = {LATHE_SCHEME_KEYS, LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER,
                                        LATHE_SCHEME_RING};
    static const char *const SPEC[] = {"causal", "sinks", "fp8_cache"}; /* shares of inputs among them */
    for (int i = 0; i < 3 * 8;
         i++) { /* k and v, v alone, k alone: sums and parts are of f64 beside any of them */
        struct bench b;
        const int pass = i / 4 % 2;
        const int which = i / 8;
        open_bench(&b, SPEC[which], 6);
        b.options.scheme = LIST[i % 4];
        b.options.whole_q = i % 4 == 0;
        if (which != 1)
            store_as(&b, "k", LATHE_F8_E4M3);
        if (which != 2)
            store_as(&b, "v", LATHE_I8);
        for (int k = 0; k <= pass; k++)
            whole(&b, (lathe_pass)k);
        run(&b, 3, Q_EDGE[2], EDGE[2]);
        compare(&b, SPEC[which], 1e-13);
        close_bench(&b);
    }
}

/* Groups of one key head at a time are the same, bit for bit. */
static int kernels_of(const char *info)
{
    const char *const at = strstr(info, "launches ");
    return at ? atoi(at + strlen("launches ")) : -1;
}

/* Of keys behind all queries of a piece nothing is launched; of rank 0 of 3, zigzag, that is 4 and 0 of 6
 * pieces. */
TEST(a_ring_leaves_out_what_a_causal_mask_does)
{
    static const char *const SPEC[] = {"full", "causal"};
    int kernels[2][2];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 2; i++) {
            struct bench b;
            open_bench(&b, SPEC[i], TOKENS);
            b.options.scheme = LATHE_SCHEME_RING;
            b.options.shards = LATHE_SHARDS_ZIGZAG;
            whole(&b, LATHE_FORWARD);
            if (pass)
                whole(&b, LATHE_BACKWARD);
            run(&b, 3, EVEN[2], EVEN[2]);
            compare(&b, SPEC[i], 1e-9);
            kernels[pass][i] = kernels_of(b.info);
            close_bench(&b);
        }
    CHECK_EQ(kernels[0][0] - kernels[0][1], 5);
    CHECK(kernels[1][0] > kernels[1][1]);
}

static long workspace_of(const char *info)
{
    const char *const at = strstr(info, "a workspace of ");
    return at ? atol(at + strlen("a workspace of ")) : -1;
}

/* Where all parts would be too much they are merged as they come: of 4 ranks, zigzag, 3 places for 8. */
TEST(a_ring_merges_parts_as_they_come)
{
    static const char *const SPEC[] = {"full", "causal", "sinks", "document", "sigmoid", "retention"};
    for (int i = 0; i < 6; i++) {
        long bytes[2];
        int kernels[2];
        for (int folds = 0; folds < 2; folds++) {
            struct bench b;
            open_bench(&b, SPEC[i], TOKENS);
            b.options.scheme = LATHE_SCHEME_RING;
            b.options.shards = LATHE_SHARDS_ZIGZAG;
            b.options.most_bytes = (size_t)folds;
            whole(&b, LATHE_FORWARD);
            run(&b, 4, EVEN[3], EVEN[3]);
            compare(&b, SPEC[i], 1e-9);
            bytes[folds] = workspace_of(b.info);
            kernels[folds] = kernels_of(b.info);
            b.options.shards = LATHE_SHARDS_CONTIGUOUS;
            run(&b, 4, EDGE[3], EDGE[3]);
            compare(&b, SPEC[i], 1e-9);
            close_bench(&b);
        }
        CHECK(bytes[1] < bytes[0]);
        CHECK(kernels[1] > kernels[0]);
    }
}

TEST(gather_by_groups_of_heads)
{
    for (int way = 0; way < 8; way++) {
        struct bench b;
        const bool zigzag = way & 2;
        open_bench(&b, "alibi", zigzag ? TOKENS : 6);
        b.options.scheme = LATHE_SCHEME_GATHER;
        b.options.shards = zigzag ? LATHE_SHARDS_ZIGZAG : LATHE_SHARDS_CONTIGUOUS;
        if (way & 4)
            b.options.comm_stream =
                (void *)&b; /* two sets of buffers take turns; the host device has one order of things */
        else
            b.options.heads_at_once = 1;
        whole(&b, LATHE_FORWARD);
        if (way & 1)
            whole(&b, LATHE_BACKWARD);
        run(&b, 3, zigzag ? EVEN[2] : Q_EDGE[2], zigzag ? EVEN[2] : EDGE[2]);
        compare(&b, "alibi", way & 1 ? 1e-9 : 0);
        close_bench(&b);
    }
}

TEST(ranks_without_nccl_say_what_is_missing)
{
    char id[LATHE_NCCL_ID_BYTES];
    lathe_error err = {0};
    if (lathe_nccl_id(id, &err) == LATHE_OK)
        SKIP("NCCL is here");
    CHECK_EQ(err.status, LATHE_CUDA);
    CHECK_HAS(err.text, "NCCL cannot be opened: ");
    CHECK_HAS(err.text, "lathe_threads_create");
}

/* ---- the functions that NCCL fills, over one that pretends
 * -------------------------------------------------- */

static lathe_status say_nothing(void *user, void *to, const size_t *place, const size_t *bytes,
                                const void *from, lathe_stream stream, lathe_error *err)
{
    (void)user, (void)to, (void)place, (void)bytes, (void)from, (void)stream, (void)err;
    return LATHE_OK;
}

/* Parts of one row are 12 bytes: those of rank 1 do not begin at a multiple of 16. */
TEST(parts_of_one_row)
{
    static const int64_t one[] = {1, 1, 1, 16}, keys[] = {1, 1, 4, 16};
    static _Alignas(256) char workspace[1 << 16];
    static float q[16], k[64], o[16];
    const lathe_transport transport = {.rank = 1, .ranks = 2, .all_gather = say_nothing};
    const lathe_dist_options options = {.scheme = LATHE_SCHEME_KEYS, .whole_q = 1};
    const lathe_arg arg[] = {{"q", q, LATHE_F32, 4, one, NULL},
                             {"k", k, LATHE_F32, 4, keys, NULL},
                             {"v", k, LATHE_F32, 4, keys, NULL},
                             {"o", o, LATHE_F32, 4, one, NULL}};
    lathe_dist *dist = NULL;
    struct bench b;
    open_bench(&b, "causal", TOKENS);
    CHECK_EQ(lathe_dist_create(&dist, b.ctx, b.spec, LATHE_FORWARD, &transport, &options, arg, 4, &b.err[0]),
             LATHE_OK);
    CHECK(lathe_dist_workspace_size(dist) <= sizeof workspace);
    CHECK_EQ(lathe_dist_launch(dist, arg, 4, workspace, NULL, &b.err[0]), LATHE_OK);
    lathe_dist_destroy(dist);
    close_bench(&b);
}

static void open_fake_nccl(void)
{
    CHECK(dlopen(LATHE_FAKE_NCCL, RTLD_NOW | RTLD_GLOBAL) != NULL);
}

TEST(schemes_over_nccl)
{
    static const lathe_scheme LIST[] = {LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER, LATHE_SCHEME_RING,
                                        LATHE_SCHEME_KEYS};
    open_fake_nccl();
    for (int i = 0; i < 4; i++)
        for (int pass = 0; pass < 2; pass++) {
            struct bench b;
            open_bench(&b, "alibi", i == 3 ? 6 : TOKENS);
            b.nccl = true;
            b.options.scheme = LIST[i];
            b.options.whole_q = i == 3;
            whole(&b, LATHE_FORWARD);
            if (pass)
                whole(&b, LATHE_BACKWARD);
            run(&b, 3, EDGE[2], EDGE[2]); /* sends and receives of any sizes */
            compare(&b, "alibi", 1e-9);
            run(&b, 4, EVEN[3], EVEN[3]); /* NCCL's own collectives */
            compare(&b, "alibi", 1e-9);
            close_bench(&b);
        }
}

TEST(states_over_nccl)
{
    struct bench b;
    open_fake_nccl();
    open_bench(&b, "gated_delta", TOKENS);
    b.nccl = true;
    whole(&b, LATHE_FORWARD);
    whole(&b, LATHE_BACKWARD);
    run(&b, 4, EDGE[3], EDGE[3]);
    compare(&b, "gated_delta", 1e-8);
    close_bench(&b);
}

TEST(a_rank_that_fails_ends_the_others_over_nccl)
{
    struct bench b;
    open_fake_nccl();
    open_bench(&b, "causal", 6);
    b.nccl = true;
    b.options.scheme = LATHE_SCHEME_GATHER;
    b.failing = 1;
    b.pass = LATHE_FORWARD;
    run(&b, 3, Q_EDGE[2], EDGE[2]);
    for (int r = 0; r < 3; r++) {
        CHECK_EQ(b.status[r], r == 1 ? LATHE_ARG : LATHE_CUDA);
        CHECK_HAS(b.err[r].text,
                  r == 1 ? "dist: argument 'q'" : "remote process exited or there was a network error");
    }
    close_bench(&b);
}
