/*
 * host_parts.c: parts of rows of attention on the host device, through the public functions: rows computed
 * apart over some of the keys and put together are those of one forward pass; what cannot be is refused.
 */
#include "check.h"
#include "lathe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, H = 4, H_KV = 2, Q = 3, KV = 11, D = 8, STATES = 2, PARTS = 4, MOST = 12 };

static const char PLAIN[] = "return attention { mask_mod = causal }";
static const char SINK[] =
    "local function sink(at, x) return x.sink(at.h) end\n"
    "return attention { inputs = { sink = tensor('f32', 'h'), bias = tensor('f32', 'h', 'q') },\n"
    "  mask_mod = causal, score_mod = function(s, at, x) return s + x.bias(at.h, at.row) end,\n"
    "  online_func = softmax_with_sink(sink),\n"
    "  output_mod = function(o) return o * rsqrt(dimsum(o * o) + 1e-6) end }";
static const char SIGMOID[] =
    "return attention { mask_mod = causal, online_func = elementwise_weights(sigmoid) }";
static const char TURNED[] =
    "return attention { mask_mod = causal, output_mod = function(o, at) return o * (at.pos + 1) end }";
static const char BARE[] = "return attention { online_func = online_func { online_rowscales = {}, forward = "
                           "function(s) return s end,\n"
                           "  online_fwd = function(s) return s, {}, 1.0 end,\n"
                           "  online_fwd_epilogue = function() return 1.0, {} end } }";
static const char LENGTH[] =
    "return attention { output_mod = function(o, at) return o * f32(at.len_kv) end }";

struct bench {
    lathe_ctx *ctx;
    lathe_spec *spec;
    float q[B * H * Q * D], k[B * H_KV * KV * D], v[B * H_KV * KV * D], sink[H], bias[H * Q];
    float whole[B * H * Q * D], whole_lse[B * H * Q];
    float o[B * H * Q * D], lse[B * H * Q];
    float part_o[PARTS * B * H * Q * D], part_rows[PARTS * B * H * Q * (STATES + 1)];
    lathe_error err;
};

static void fill(float *x, size_t n, double seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)sin(seed + 1.7 * (double)i);
}

static void open_bench(struct bench *b, const char *text)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    options.device = LATHE_DEVICE_HOST;
    options.cache_dir = "";
    memset(b, 0, sizeof *b);
    CHECK_EQ(lathe_ctx_create(&b->ctx, &options, &b->err), LATHE_OK);
    CHECK_EQ(lathe_spec_parse(&b->spec, "t.lua", text, strlen(text), &b->err), LATHE_OK);
    CHECK_STR(b->err.text, "");
    fill(b->q, B * H * Q * D, 0.3);
    fill(b->k, B * H_KV * KV * D, 1.1);
    fill(b->v, B * H_KV * KV * D, 2.9);
    fill(b->sink, H, 0.7);
    fill(b->bias, H * Q, 4.1);
}

static void close_bench(struct bench *b)
{
    lathe_spec_destroy(b->spec);
    lathe_ctx_destroy(b->ctx);
}

static lathe_status call(struct bench *b, lathe_pass pass, const lathe_arg *arg, int n)
{
    lathe_kernel *kernel;
    lathe_status status = lathe_kernel_get(&kernel, b->ctx, b->spec, pass, arg, n, &b->err);
    if (status == LATHE_OK)
        status = lathe_launch(kernel, arg, n, NULL, NULL, &b->err);
    lathe_kernel_release(kernel);
    return status;
}

static const int64_t SHAPE_Q[] = {B, H, Q, D}, SHAPE_ROW[] = {B, H, Q}, SHAPE_H[] = {H},
                     SHAPE_BIAS[] = {H, Q};

/* q, k, v of keys from `first` to `end`, and what the spec takes beside them. */
static int keys(struct bench *b, int first, int end, bool sink, int32_t *start, int64_t shape[4],
                lathe_arg *arg)
{
    static const int64_t strides[] = {H_KV * KV * D, KV * D, D, 1};
    int n = 0;
    const int64_t here[] = {B, H_KV, end - first, D};
    memcpy(shape, here, sizeof here);
    *start = KV - Q - first;
    arg[n++] = (lathe_arg){"q", b->q, LATHE_F32, 4, SHAPE_Q, NULL};
    arg[n++] = (lathe_arg){"k", b->k + first * D, LATHE_F32, 4, shape, strides};
    arg[n++] = (lathe_arg){"v", b->v + first * D, LATHE_F32, 4, shape, strides};
    arg[n++] = (lathe_arg){"q_start", start, LATHE_I32, 0, NULL, NULL};
    if (sink) {
        arg[n++] = (lathe_arg){"sink", b->sink, LATHE_F32, 1, SHAPE_H, NULL};
        arg[n++] = (lathe_arg){"bias", b->bias, LATHE_F32, 2, SHAPE_BIAS, NULL};
    }
    return n;
}

static void whole(struct bench *b, bool sink, bool lse)
{
    lathe_arg arg[MOST];
    int64_t shape[4];
    int32_t start;
    int n = keys(b, 0, KV, sink, &start, shape, arg);
    arg[n++] = (lathe_arg){"o", b->whole, LATHE_F32, 4, SHAPE_Q, NULL};
    if (lse)
        arg[n++] = (lathe_arg){"lse", b->whole_lse, LATHE_F32, 3, SHAPE_ROW, NULL};
    CHECK_EQ(call(b, LATHE_FORWARD, arg, n), LATHE_OK);
}

static void part(struct bench *b, int number, int first, int end, bool sink, int states)
{
    const int64_t rows[] = {B, H, Q, states + 1};
    lathe_arg arg[MOST];
    int64_t shape[4];
    int32_t start;
    int n = keys(b, first, end, sink, &start, shape, arg);
    arg[n++] = (lathe_arg){"part_o", b->part_o + number * B * H * Q * D, LATHE_F32, 4, SHAPE_Q, NULL};
    arg[n++] =
        (lathe_arg){"part_rows", b->part_rows + number * B * H * Q * (states + 1), LATHE_F32, 4, rows, NULL};
    const lathe_status status = call(b, LATHE_FORWARD, arg, n);
    CHECK_STR(status == LATHE_OK ? "" : b->err.text, "");
}

static lathe_status combine(struct bench *b, int parts, bool sink, bool lse, int states, const int32_t *start)
{
    const int64_t os[] = {parts, B, H, Q, D}, rows[] = {parts, B, H, Q, states + 1};
    lathe_arg arg[MOST];
    int n = 0;
    arg[n++] = (lathe_arg){"part_o", b->part_o, LATHE_F32, 5, os, NULL};
    arg[n++] = (lathe_arg){"part_rows", b->part_rows, LATHE_F32, 5, rows, NULL};
    arg[n++] = (lathe_arg){"o", b->o, LATHE_F32, 4, SHAPE_Q, NULL};
    if (lse)
        arg[n++] = (lathe_arg){"lse", b->lse, LATHE_F32, 3, SHAPE_ROW, NULL};
    if (sink)
        arg[n++] = (lathe_arg){"sink", b->sink, LATHE_F32, 1, SHAPE_H, NULL};
    if (start)
        arg[n++] = (lathe_arg){"q_start", (void *)start, LATHE_I32, 0, NULL, NULL};
    b->err.text[0] = 0;
    return call(b, LATHE_COMBINE, arg, n);
}

static void same(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_CLOSE(a[i], b[i], 2e-6);
}

/* Parts in any order, one of them without keys. The last keys are masked for the first rows. */
static void three_parts(struct bench *b, bool sink, bool lse, int states, const int32_t *start)
{
    whole(b, sink, lse);
    part(b, 0, 4, KV - 1, sink, states);
    part(b, 1, 2, 2, sink, states);
    part(b, 2, KV - 1, KV, sink, states);
    part(b, 3, 0, 4, sink, states);
    const lathe_status status = combine(b, PARTS, sink, lse, states, start);
    CHECK_STR(status == LATHE_OK ? "" : b->err.text, "");
    same(b->o, b->whole, B * H * Q * D);
    if (lse)
        same(b->lse, b->whole_lse, B * H * Q);
}

/* Parts `at` and at + 1 of the four become part `to`, which is neither. */
static lathe_status merge(struct bench *b, int at, int to, bool sink, int states)
{
    const int o = B * H * Q * D;
    const int r = B * H * Q * (states + 1);
    const int64_t os[] = {2, B, H, Q, D}, rows[] = {2, B, H, Q, states + 1};
    lathe_arg arg[MOST];
    int n = 0;
    arg[n++] = (lathe_arg){"part_o", b->part_o + at * o, LATHE_F32, 5, os, NULL};
    arg[n++] = (lathe_arg){"part_rows", b->part_rows + at * r, LATHE_F32, 5, rows, NULL};
    arg[n++] = (lathe_arg){"merged_o", b->part_o + to * o, LATHE_F32, 4, os + 1, NULL};
    arg[n++] = (lathe_arg){"merged_rows", b->part_rows + to * r, LATHE_F32, 4, rows + 1, NULL};
    if (sink)
        arg[n++] = (lathe_arg){"sink", b->sink, LATHE_F32, 1, SHAPE_H, NULL};
    b->err.text[0] = 0;
    return call(b, LATHE_COMBINE, arg, n);
}

/* One part after the other is merged into what there is, in the places of three: rows end once, at the end.
 */
static void merge_as_they_come(const char *spec, bool sink, bool lse, int states)
{
    struct bench b;
    open_bench(&b, spec);
    whole(&b, sink, lse);
    part(&b, 0, 2, 2, sink, states); /* of no keys */
    part(&b, 1, KV - 1, KV, sink, states);
    CHECK_STR(merge(&b, 0, 2, sink, states) == LATHE_OK ? "" : b.err.text, "");
    part(&b, 1, 0, 4, sink, states);
    CHECK_EQ(merge(&b, 1, 0, sink, states), LATHE_OK);
    part(&b, 1, 4, KV - 1, sink, states);
    CHECK_EQ(combine(&b, 2, sink, lse, states, NULL), LATHE_OK);
    same(b.o, b.whole, B * H * Q * D);
    if (lse)
        same(b.lse, b.whole_lse, B * H * Q);
    close_bench(&b);
}

TEST(parts_are_merged_into_a_part)
{
    merge_as_they_come(PLAIN, false, true, 2);
    merge_as_they_come(SINK, true, true, 2);
    merge_as_they_come(SIGMOID, false, false, 0);
}

/* Of parts without a live pair: one without. */
TEST(nothing_merged_into_nothing_is_nothing)
{
    struct bench b;
    open_bench(&b, PLAIN);
    part(&b, 0, 2, 2, false, 2);
    part(&b, 1, 5, 5, false, 2);
    CHECK_EQ(merge(&b, 0, 2, false, 2), LATHE_OK);
    for (int i = 0; i < B * H * Q; i++)
        CHECK(b.part_rows[(2 * B * H * Q + i) * 3 + 2] == 0);
    for (int i = 0; i < B * H * Q * D; i++)
        CHECK(b.part_o[2 * B * H * Q * D + i] == 0);
    CHECK_EQ(merge(&b, 0, 1, false, 2), LATHE_ARG); /* over one of them */
    CHECK_HAS(b.err.text, "argument 'merged_o'");
    close_bench(&b);
}

TEST(a_merged_part_stands_in_the_place_of_o)
{
    static const int64_t os[] = {2, B, H, Q, D}, rows[] = {2, B, H, Q, 3};
    struct bench b;
    lathe_arg arg[MOST];
    int n = 0;
    open_bench(&b, PLAIN);
    arg[n++] = (lathe_arg){"part_o", b.part_o, LATHE_F32, 5, os, NULL};
    arg[n++] = (lathe_arg){"part_rows", b.part_rows, LATHE_F32, 5, rows, NULL};
    arg[n++] = (lathe_arg){"merged_o", b.o, LATHE_F32, 4, SHAPE_Q, NULL};
    CHECK_EQ(call(&b, LATHE_COMBINE, arg, n), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'merged_o': expected 'merged_rows' beside it");
    arg[n++] = (lathe_arg){"merged_rows", b.part_rows + 2 * B * H * Q * 3, LATHE_F32, 4, rows + 1, NULL};
    arg[n++] = (lathe_arg){"lse", b.lse, LATHE_F32, 3, SHAPE_ROW, NULL};
    CHECK_EQ(call(&b, LATHE_COMBINE, arg, n), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'lse': expected it to be left out beside 'merged_o'");
    close_bench(&b);
}

TEST(parts_of_softmax_are_the_whole)
{
    struct bench b;
    open_bench(&b, PLAIN);
    three_parts(&b, false, true, 2, NULL);
    close_bench(&b);
}

TEST(a_sink_counts_once_and_the_mod_of_o_comes_last)
{
    struct bench b;
    open_bench(&b, SINK);
    three_parts(&b, true, true, 2, NULL);
    close_bench(&b);
}

TEST(weights_without_row_states_add_up)
{
    struct bench b;
    open_bench(&b, SIGMOID);
    three_parts(&b, false, false, 0, NULL);
    close_bench(&b);
}

TEST(the_end_of_a_row_has_its_position_from_q_start)
{
    struct bench b;
    const int32_t start = KV - Q;
    open_bench(&b, TURNED);
    three_parts(&b, false, true, 2, &start);
    CHECK_EQ(combine(&b, PARTS, false, true, 2, NULL), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'q_start': missing");
    close_bench(&b);
}

TEST(a_row_without_live_pairs_in_any_part_is_empty)
{
    struct bench b;
    open_bench(&b, PLAIN);
    part(&b, 0, KV - 1, KV, false, 2); /* the last query's key */
    part(&b, 1, 5, 5, false, 2);
    for (int i = 0; i < B * H * Q * D; i++)
        b.part_o[B * H * Q * D + i] = NAN; /* says nothing beside a 0 */
    CHECK_EQ(combine(&b, 2, false, true, 2, NULL), LATHE_OK);
    for (int r = 0; r < B * H * Q; r++) {
        const bool last = r % Q == Q - 1;
        CHECK(last ? isfinite(b.lse[r]) : b.lse[r] == -INFINITY);
        CHECK(last ? b.o[r * D] != 0 : b.o[r * D] == 0);
    }
    close_bench(&b);
}

TEST(what_has_no_parts_says_why)
{
    struct bench b;
    open_bench(&b, BARE);
    CHECK_EQ(combine(&b, 2, false, false, 0, NULL), LATHE_ARG);
    CHECK_HAS(b.err.text, "its online_func has no combine");
    lathe_arg arg[MOST];
    int64_t shape[4];
    int32_t start;
    int n = keys(&b, 0, KV, false, &start, shape, arg);
    arg[n++] = (lathe_arg){"part_o", b.part_o, LATHE_F32, 4, SHAPE_Q, NULL};
    CHECK_EQ(call(&b, LATHE_FORWARD, arg, n), LATHE_ARG);
    CHECK_HAS(b.err.text,
              "argument 'part_o': this spec makes no parts of rows: its online_func has no combine");
    close_bench(&b);
    open_bench(&b, LENGTH);
    CHECK_EQ(combine(&b, 2, false, true, 2, NULL), LATHE_ARG);
    CHECK_HAS(b.err.text, "reads at.len_kv, which parts of rows do not tell");
    close_bench(&b);
}

TEST(parts_stand_in_the_place_of_o)
{
    static const int64_t rows[] = {B, H, Q, 3};
    struct bench b;
    lathe_arg arg[MOST];
    int64_t shape[4];
    int32_t start;
    open_bench(&b, PLAIN);
    int n = keys(&b, 0, KV, false, &start, shape, arg);
    CHECK_EQ(call(&b, LATHE_FORWARD, arg, n), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'o': missing");
    arg[n++] = (lathe_arg){"part_o", b.part_o, LATHE_F32, 4, SHAPE_Q, NULL};
    CHECK_EQ(call(&b, LATHE_FORWARD, arg, n), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'part_o': expected 'part_rows' beside it");
    arg[n++] = (lathe_arg){"part_rows", b.part_rows, LATHE_F32, 4, rows, NULL};
    CHECK_EQ(call(&b, LATHE_FORWARD, arg, n), LATHE_OK);
    arg[n++] = (lathe_arg){"o", b.o, LATHE_F32, 4, SHAPE_Q, NULL};
    CHECK_EQ(call(&b, LATHE_FORWARD, arg, n), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'o': expected it to be left out beside 'part_o'");
    close_bench(&b);
}
