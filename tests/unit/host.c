/*
 * host.c: attention on the host device against loops written out here, on whole problems. A fixture holds
 * compact double tensors; `naive` computes softmax attention from them in long double with a mask and a score
 * given as C functions. Specs are text in the test. Fixtures free their tensors.
 */
#include "host_call.h"
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- softmax attention ----------------------------------------------------------------------- */

static const char CAUSAL[] = "return attention { mask_mod = causal }";

TEST(causal_softmax)
{
    static const int64_t sizes[][7] = {
        {2, 4, 2, 9, 9, 8, 8}, {1, 6, 1, 7, 20, 5, 3}, {1, 2, 2, 1, 33, 16, 24}, {1, 3, 3, 12, 5, 4, 4},
        {2, 2, 1, 3, 1, 7, 9}, {1, 1, 1, 4, 0, 8, 8},  {1, 2, 1, 0, 6, 8, 8},    {0, 2, 1, 3, 3, 8, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct fixture f;
        setup(&f, sizes[i]);
        forward(CAUSAL, &f);
        naive(&f, live_causal, NULL, default_scale(&f));
        compare(&f, 1e-13);
        teardown(&f);
    }
}

/* Rows 0 .. 6 have no key: their o is 0 and lse -inf, also beside an output mod. */
TEST(rows_without_keys)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 2, 1, 12, 5, 4, 4});
    forward("return attention { mask_mod = causal, output_mod = function(o) return o + 7.0 end }", &f);
    for (int64_t row = 0; row < 7; row++) {
        CHECK(f.o[row * 4] == 0.0 && f.o[row * 4 + 3] == 0.0);
        CHECK(f.lse[row] == -(double)INFINITY);
    }
    naive(&f, live_causal, NULL, default_scale(&f));
    CHECK_CLOSE(f.o[7 * 4], f.expected[7 * 4] + 7.0, 1e-14);
    teardown(&f);
}

/* What the mask removes is not read as a number: NaN there changes nothing, inf neither. */
TEST(dead_pairs_do_not_count)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 1, 1, 4, 10, 8, 8});
    f.q_start = 0;
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t i = 4 * 8; i < 10 * 8; i++) {
        f.ks[i] = (double)NAN;
        f.vs[i] = i % 2 ? (double)NAN : (double)INFINITY;
    }
    int32_t start = 0;
    add_arg(&f, "q_start", &start, LATHE_I32, 0, NULL);
    forward(CAUSAL, &f);
    compare(&f, 1e-13);
    teardown(&f);
}

/* Tokens before heads, padded rows, one key head broadcast over the batch. */
TEST(strides)
{
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 6, 11, 8, 8});
    int64_t q_strides[] = {6 * 4 * 10, 10, 4 * 10, 1};
    int64_t o_strides[] = {6 * 4 * 9, 9, 4 * 9, 1};
    int64_t v_strides[] = {0, 11 * 8, 8, 1};
    double *query = blank(2 * 6 * 4 * 10);
    double *o = blank(2 * 6 * 4 * 9);
    for (int64_t i = 0; i < 2 * 4 * 6 * 8; i++)
        query[(i / 192) * 240 + (i / 48 % 4) * 10 + (i / 8 % 6) * 40 + i % 8] = f.qs[i];
    for (int64_t i = 0; i < 2 * 11 * 8; i++)
        f.vs[2 * 11 * 8 + i] = f.vs[i];
    f.arg[0].data = query;
    f.arg[0].strides = q_strides;
    f.arg[2].strides = v_strides;
    f.arg[3].data = o;
    f.arg[3].strides = o_strides;
    forward(CAUSAL, &f);
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t i = 0; i < 2 * 4 * 6 * 8; i++)
        f.o[i] = o[(i / 192) * 216 + (i / 48 % 4) * 9 + (i / 8 % 6) * 36 + i % 8];
    compare(&f, 1e-13);
    CHECK(isnan(o[8]) && isnan(o[2 * 6 * 4 * 9 - 1])); /* the padding was left alone */
    free(query);
    free(o);
    teardown(&f);
}

static long double score_alibi(const struct fixture *f, long double s, int64_t b, int64_t h, int64_t q,
                               int64_t kv)
{
    (void)b;
    return s - powl(2.0L, -8.0L * (long double)(h + 1) / (long double)f->h) * (long double)(q - kv);
}

TEST(score_mod)
{
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 9, 13, 8, 8});
    forward(
        "return attention { mask_mod = causal,\n"
        "  score_mod = function(s, at) return s - exp2(-8.0 * (at.h + 1) / at.n_h) * (at.q - at.kv) end }",
        &f);
    naive(&f, live_causal, score_alibi, default_scale(&f));
    compare(&f, 1e-13);
    teardown(&f);
}

static long double score_constant(const struct fixture *f, long double s, int64_t b, int64_t h, int64_t q,
                                  int64_t kv)
{
    (void)f, (void)s, (void)b, (void)h, (void)q, (void)kv;
    return 0.5L;
}

/* Values that do not vary where they could: a score per row, a mask per head. */
TEST(values_with_fewer_spans)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 2, 2, 3, 5, 4, 4});
    forward("return attention { score_mod = function() return 0.5 end }", &f);
    naive(&f, NULL, score_constant, 1.0L);
    compare(&f, 1e-13);
    forward("return attention { mask_mod = function(at) return eq(at.h, 1) end, scale = 2.0 }", &f);
    naive(&f, NULL, NULL, 2.0L);
    CHECK(f.lse[0] == -(double)INFINITY && f.o[0] == 0.0);
    CHECK_CLOSE(f.lse[3], f.expected_lse[3], 1e-13);
    teardown(&f);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static double table_of_test[] = {0.5, -1.0, 2.0, 0.25, 0.75, -0.5, 1.0, 3.0};

static long double score_table(const struct fixture *f, long double s, int64_t b, int64_t h, int64_t q,
                               int64_t kv)
{
    (void)f, (void)b;
    return s + (long double)table_of_test[h * 4 + q - kv];
}

static const char TABLE[] =
    "return attention { inputs = { table = tensor('f32', 'h', 'distance') }, mask_mod = causal,\n"
    "  score_mod = function(s, at, x)\n"
    "    return s + x.table(at.h, at.q - at.kv)\n"
    "  end }";

/* The table has no entry for dead pairs: score_mod is not evaluated there. A live pair beyond it is a
 * mistake. */
TEST(tables_and_their_bounds)
{
    struct fixture f;
    lathe_error err;
    setup(&f, (int64_t[]){1, 2, 1, 4, 4, 8, 8});
    float table[8];
    int64_t shape[] = {2, 4};
    for (int i = 0; i < 8; i++)
        table[i] = (float)table_of_test[i];
    add_arg(&f, "table", table, LATHE_F32, 2, shape);
    forward(TABLE, &f);
    naive(&f, live_causal, score_table, default_scale(&f));
    compare(&f, 1e-13);
    shape[1] = 3;
    CHECK_EQ(forward_args(TABLE, f.arg, f.n_args, NULL, 0, &err), LATHE_SPEC);
    CHECK_STR(err.text, "test.lua:3: table: index 3 of dim 1 (distance) is outside 0..2");
    CHECK_EQ(err.line, 3);
    CHECK_STR(err.file, "test.lua");
    CHECK_EQ(err.status, LATHE_SPEC);
    teardown(&f);
}

static bool live_document(const struct fixture *f, int64_t b, int64_t h, int64_t q, int64_t kv)
{
    (void)f, (void)h;
    return kv <= q && (q + 2 * b) / 3 == (kv + 2 * b) / 3;
}

TEST(masks_that_read_tensors)
{
    static const char text[] =
        "local function same(at, x) return eq(x.doc(at.b, at.q), x.doc(at.b, at.kv)) end\n"
        "return attention { inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = both(causal, same) }";
    struct fixture f;
    setup(&f, (int64_t[]){2, 1, 1, 9, 9, 4, 4});
    int32_t doc[18];
    const int64_t shape[] = {2, 9};
    for (int i = 0; i < 18; i++)
        doc[i] = (i % 9 + 2 * (i / 9)) / 3;
    add_arg(&f, "doc", doc, LATHE_I32, 2, shape);
    forward(text, &f);
    naive(&f, live_document, NULL, default_scale(&f));
    compare(&f, 1e-13);
    teardown(&f);
}

/* ---- other online functions ------------------------------------------------------------------ */

/* Sigmoid weights are not normalised and have no finals. */
TEST(elementwise_weights)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 2, 1, 5, 5, 8, 8});
    float bias = -0.5f;
    f.n_args = 4;
    add_arg(&f, "bias", &bias, LATHE_F32, 0, NULL);
    forward("return attention { inputs = { bias = scalar('f32') }, mask_mod = causal,\n"
            "  online_func = elementwise_weights(sigmoid), score_mod = function(s, at, x) return s + x.bias "
            "end }",
            &f);
    for (int64_t row = 0; row < 2 * 5; row++) {
        double o[8] = {0};
        for (int64_t j = 0; j <= row % 5; j++) {
            double s = 0.0;
            for (int64_t c = 0; c < 8; c++)
                s += f.qs[row * 8 + c] * f.ks[j * 8 + c];
            const double weight = 1.0 / (1.0 + exp(-(s / sqrt(8.0) - 0.5)));
            for (int64_t c = 0; c < 8; c++)
                o[c] += weight * f.vs[j * 8 + c];
        }
        for (int64_t c = 0; c < 8; c++)
            CHECK_CLOSE(f.o[row * 8 + c], o[c], 1e-13);
    }
    teardown(&f);
}

static const char RETENTION[] =
    "return attention { mask_mod = causal, scale = 1.0, online_func = online_func {\n"
    "  online_rowscales = { r = 0.0 },\n"
    "  online_fwd = function(s, row)\n"
    "    local r = row.r + rowsum(abs(s))\n"
    "    return s / max(r, 1.0), { r = r }, max(row.r, 1.0) / max(r, 1.0)\n"
    "  end,\n"
    "  online_fwd_epilogue = function(row) return 2.0, { n = max(row.r, 1.0) } end,\n"
    "  forward = function(s, final) return 2.0 * s / detach(final.n) end } }";

/* A state that is not softmax's, a factor, and a final by another name; its empty value is not -inf. */
TEST(online_states_and_finals)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 1, 1, 6, 4, 8, 3});
    f.arg[4].name = "n";
    forward(RETENTION, &f);
    CHECK(f.lse[0] == 1.0 && f.o[0] == 0.0 && f.lse[1] == 1.0);
    for (int64_t row = 2; row < 6; row++) {
        double sum = 0.0;
        double o[3] = {0};
        for (int64_t j = 0; j <= row - 2; j++) {
            double s = 0.0;
            for (int64_t c = 0; c < 8; c++)
                s += f.qs[row * 8 + c] * f.ks[j * 8 + c];
            sum += fabs(s);
            for (int64_t c = 0; c < 3; c++)
                o[c] += s * f.vs[j * 3 + c];
        }
        CHECK_CLOSE(f.lse[row], fmax(sum, 1.0), 1e-13);
        for (int64_t c = 0; c < 3; c++)
            CHECK_CLOSE(f.o[row * 3 + c], 2.0 * o[c] / fmax(sum, 1.0), 1e-13);
    }
    teardown(&f);
}

/* ---- rows, dtypes, arguments ----------------------------------------------------------------- */

TEST(chosen_rows)
{
    struct fixture f;
    lathe_error err;
    setup(&f, (int64_t[]){2, 2, 1, 5, 5, 8, 4});
    naive(&f, live_causal, NULL, default_scale(&f));
    const int64_t rows[] = {0, 4, 5, 13, 19};
    CHECK_EQ(forward_args(CAUSAL, f.arg, f.n_args, rows, 5, &err), LATHE_OK);
    for (int64_t row = 0, next = 0; row < 20; row++) {
        const bool chosen = next < 5 && rows[next] == row;
        next += chosen;
        for (int64_t c = 0; c < 4; c++) {
            if (chosen)
                CHECK_CLOSE(f.o[row * 4 + c], f.expected[row * 4 + c], 1e-13);
            else
                CHECK(isnan(f.o[row * 4 + c]));
        }
        CHECK(chosen == !isnan(f.lse[row]));
    }
    CHECK_EQ(forward_args(CAUSAL, f.arg, f.n_args, (int64_t[]){3, 20}, 2, &err), LATHE_ARG);
    CHECK_STR(err.text, "rows: entry 1 is 20; expected ascending row numbers in 0..19");
    CHECK_EQ(forward_args(CAUSAL, f.arg, f.n_args, (int64_t[]){3, 3}, 2, &err), LATHE_ARG);
    CHECK_EQ(forward_args(CAUSAL, f.arg, f.n_args, (int64_t[]){-1}, 1, &err), LATHE_ARG);
    teardown(&f);
}

/* 16-bit tensors: exact in, one rounding out. */
static void check_dtype(lathe_dtype dtype)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 2, 2, 6, 6, 8, 8});
    uint16_t stored[4][96];
    float lse[12];
    double *const source[] = {f.qs, f.ks, f.vs};
    for (int t = 0; t < 3; t++)
        for (int64_t i = 0; i < 96; i++) {
            dtype_store(dtype, stored[t], i, source[t][i]);
            source[t][i] = dtype_load(dtype, stored[t], i);
        }
    for (int t = 0; t < 4; t++) {
        f.arg[t].data = stored[t];
        f.arg[t].dtype = dtype;
    }
    f.arg[4].data = lse;
    f.arg[4].dtype = LATHE_F32;
    forward(CAUSAL, &f);
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t i = 0; i < 96; i++) {
        uint16_t expected;
        dtype_store(dtype, &expected, 0, f.expected[i]);
        CHECK_EQ(stored[3][i], expected);
    }
    for (int64_t i = 0; i < 12; i++)
        CHECK(lse[i] == (float)f.expected_lse[i]);
    teardown(&f);
}

TEST(sixteen_bit_tensors)
{
    check_dtype(LATHE_F16);
    check_dtype(LATHE_BF16);
}

TEST(outputs_not_given_are_not_computed)
{
    struct fixture f;
    setup(&f, (int64_t[]){1, 1, 1, 3, 3, 8, 8});
    f.n_args = 4;
    forward(CAUSAL, &f);
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t i = 0; i < 24; i++)
        CHECK_CLOSE(f.o[i], f.expected[i], 1e-13);
    CHECK(isnan(f.lse[0]));
    teardown(&f);
}

TEST(missing_arguments_are_named)
{
    struct fixture f;
    lathe_error err;
    setup(&f, (int64_t[]){1, 1, 1, 3, 3, 8, 8});
    CHECK_EQ(forward_args(CAUSAL, f.arg, 2, NULL, 0, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'v'");
    CHECK_EQ(forward_args(TABLE, f.arg, f.n_args, NULL, 0, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'table'");
    teardown(&f);
}

/* A mask that reads by row: with no key there is no pair, and nothing to read. */
TEST(no_keys_read_nothing)
{
    struct signature sig;
    lathe_error err;
    static double q[2 * 8];
    static double o[2 * 8] = {7};
    static int32_t doc[1];
    const int64_t rows[] = {1, 1, 2, 8};
    const int64_t none[] = {1, 1, 0, 8};
    const int64_t ids[] = {1, 0};
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, rows, NULL},
                              {"k", q, LATHE_F64, 4, none, NULL},
                              {"v", q, LATHE_F64, 4, none, NULL},
                              {"o", o, LATHE_F64, 4, rows, NULL},
                              {"doc", doc, LATHE_I32, 2, ids, NULL}};
    struct ir *ir = load_signed("document", LATHE_FORWARD, &sig);
    CHECK_EQ(host_forward(ir, &sig, args, 5, NULL, 0, &err), LATHE_OK);
    CHECK_CLOSE(o[0], 0, 0);
    ir_free(ir);
}
