/*
 * host.c: attention on the host device against loops written out here, on whole problems. A fixture holds
 * compact double tensors; `naive` computes softmax attention from them in long double with a mask and a score
 * given as C functions. Specs are text in the test. Fixtures free their tensors.
 */
#include "check.h"
#include "gen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fixtures -------------------------------------------------------------------------------- */

struct fixture {
    int64_t b, h, h_kv, q, kv, d, dv;
    int64_t q_start;
    int64_t q_shape[4], k_shape[4], v_shape[4], o_shape[4];
    double *qs, *ks, *vs, *o, *lse;  /* compact; o and lse start as NaN */
    double *expected, *expected_lse; /* of naive */
    int n_args;
    lathe_arg arg[16];
};

static double *noise(int64_t n, unsigned seed)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    uint64_t state = seed * 2654435761u + 1u;
    CHECK(v != NULL);
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v[i] = (double)(state >> 11) / 4503599627370496.0 - 1.0; /* -1 .. 1 */
    }
    return v;
}

static double *blank(int64_t n)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    CHECK(v != NULL);
    for (int64_t i = 0; i < n; i++)
        v[i] = (double)NAN;
    return v;
}

static void add_arg(struct fixture *f, const char *name, void *data, lathe_dtype dtype, int ndim,
                    const int64_t *shape)
{
    CHECK(f->n_args < 16);
    f->arg[f->n_args++] = (lathe_arg){name, data, dtype, ndim, shape, NULL};
}

/* b h h_kv q kv d d_v */
static void setup(struct fixture *f, const int64_t size[7])
{
    memset(f, 0, sizeof *f);
    f->b = size[0];
    f->h = size[1];
    f->h_kv = size[2];
    f->q = size[3];
    f->kv = size[4];
    f->d = size[5];
    f->dv = size[6];
    f->q_start = f->kv - f->q;
    memcpy(f->q_shape, (int64_t[]){f->b, f->h, f->q, f->d}, sizeof f->q_shape);
    memcpy(f->k_shape, (int64_t[]){f->b, f->h_kv, f->kv, f->d}, sizeof f->k_shape);
    memcpy(f->v_shape, (int64_t[]){f->b, f->h_kv, f->kv, f->dv}, sizeof f->v_shape);
    memcpy(f->o_shape, (int64_t[]){f->b, f->h, f->q, f->dv}, sizeof f->o_shape);
    f->qs = noise(f->b * f->h * f->q * f->d, 1);
    f->ks = noise(f->b * f->h_kv * f->kv * f->d, 2);
    f->vs = noise(f->b * f->h_kv * f->kv * f->dv, 3);
    f->o = blank(f->b * f->h * f->q * f->dv);
    f->lse = blank(f->b * f->h * f->q);
    f->expected = blank(f->b * f->h * f->q * f->dv);
    f->expected_lse = blank(f->b * f->h * f->q);
    add_arg(f, "q", f->qs, LATHE_F64, 4, f->q_shape);
    add_arg(f, "k", f->ks, LATHE_F64, 4, f->k_shape);
    add_arg(f, "v", f->vs, LATHE_F64, 4, f->v_shape);
    add_arg(f, "o", f->o, LATHE_F64, 4, f->o_shape);
    add_arg(f, "lse", f->lse, LATHE_F64, 3, f->q_shape);
}

static void teardown(struct fixture *f)
{
    double *const block[] = {f->qs, f->ks, f->vs, f->o, f->lse, f->expected, f->expected_lse};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        free(block[i]);
}

static struct ir *load(const char *text)
{
    struct diag diag = {0};
    lathe_error err = {0};
    struct ir *ir = spec_load("t.lua", text, strlen(text), &diag);
    diag_to_error(&diag, LATHE_SPEC, &err);
    CHECK_STR(err.text, "");
    CHECK(ir != NULL);
    return ir;
}

static lathe_status forward_args(const char *text, const lathe_arg *args, int n, const int64_t *rows,
                                 int64_t n_rows, lathe_error *err)
{
    struct signature sig;
    struct ir *ir = load(text);
    *err = (lathe_error){0};
    signature_make(ir, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, rows, n_rows, err);
    ir_free(ir);
    return status;
}

static void forward(const char *text, const struct fixture *f)
{
    lathe_error err;
    const lathe_status status = forward_args(text, f->arg, f->n_args, NULL, 0, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

/* ---- softmax attention, written out ---------------------------------------------------------- */

typedef bool live_fn(const struct fixture *f, int64_t b, int64_t h, int64_t q, int64_t kv);
typedef long double score_fn(const struct fixture *f, long double s, int64_t b, int64_t h, int64_t q,
                             int64_t kv);

static bool live_causal(const struct fixture *f, int64_t b, int64_t h, int64_t q, int64_t kv)
{
    (void)f, (void)b, (void)h;
    return kv <= q;
}

/* Over the compact tensors qs, ks, vs; q is the position: row + q_start. */
static void naive_row(const struct fixture *f, live_fn *live, score_fn *score, long double scale, int64_t b,
                      int64_t h, int64_t row)
{
    const int64_t h_kv = h * f->h_kv / f->h;
    const double *query = f->qs + ((b * f->h + h) * f->q + row) * f->d;
    const double *keys = f->ks + (b * f->h_kv + h_kv) * f->kv * f->d;
    const double *values = f->vs + (b * f->h_kv + h_kv) * f->kv * f->dv;
    double *o = f->expected + ((b * f->h + h) * f->q + row) * f->dv;
    long double sum = 0.0L;
    long double *weight = calloc((size_t)f->kv + 1, sizeof *weight);
    CHECK(weight != NULL);
    for (int64_t j = 0; j < f->kv; j++) {
        if (live && !live(f, b, h, row + f->q_start, j))
            continue;
        long double s = 0.0L;
        for (int64_t c = 0; c < f->d; c++)
            s += (long double)query[c] * (long double)keys[j * f->d + c];
        s *= scale;
        weight[j] = expl(score ? score(f, s, b, h, row + f->q_start, j) : s);
        sum += weight[j];
    }
    for (int64_t c = 0; c < f->dv; c++) {
        long double total = 0.0L;
        for (int64_t j = 0; j < f->kv; j++)
            total += weight[j] != 0.0L ? weight[j] * (long double)values[j * f->dv + c] : 0.0L;
        o[c] = sum != 0.0L ? (double)(total / sum) : 0.0;
    }
    f->expected_lse[(b * f->h + h) * f->q + row] = (double)logl(sum);
    free(weight);
}

static void naive(const struct fixture *f, live_fn *live, score_fn *score, long double scale)
{
    for (int64_t b = 0; b < f->b; b++)
        for (int64_t h = 0; h < f->h; h++)
            for (int64_t row = 0; row < f->q; row++)
                naive_row(f, live, score, scale, b, h, row);
}

static void compare(const struct fixture *f, double tol)
{
    for (int64_t i = 0; i < f->b * f->h * f->q * f->dv; i++)
        CHECK_CLOSE(f->o[i], f->expected[i], tol);
    for (int64_t i = 0; i < f->b * f->h * f->q; i++)
        CHECK_CLOSE(f->lse[i], f->expected_lse[i], tol);
}

static long double default_scale(const struct fixture *f)
{
    return 1.0L / sqrtl((long double)f->d);
}

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
    CHECK_STR(err.text, "t.lua:3: table: index 3 of dim 1 (distance) is outside 0..2");
    CHECK_EQ(err.line, 3);
    CHECK_STR(err.file, "t.lua");
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

/* ---- vector mods ----------------------------------------------------------------------------- */

/* Turn pairs of every token by pos * 100^(-2 i / d); half: (i, i + d/2), else (2 i, 2 i + 1). */
static void rotate(double *x, int64_t n_heads, int64_t len, int64_t d, int64_t start, bool half)
{
    for (int64_t t = 0; t < n_heads * len; t++)
        for (int64_t i = 0; i < d / 2; i++) {
            double *lo = x + t * d + (half ? i : 2 * i);
            double *hi = x + t * d + (half ? i + d / 2 : 2 * i + 1);
            const double angle = (double)(t % len + start) * pow(100.0, -2.0 * (double)i / (double)d);
            const double turned = *lo * cos(angle) - *hi * sin(angle);
            *hi = *lo * sin(angle) + *hi * cos(angle);
            *lo = turned;
        }
}

static void check_rope(bool half)
{
    char text[600];
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 5, 9, 8, 6});
    snprintf(text, sizeof text,
             "local function turn(lo, hi, at)\n"
             "  local t = at.pos * 100.0 ^ (-2.0 * at.i / at.d)\n"
             "  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)\n"
             "end\n"
             "return attention { query_mod = %s(turn), key_mod = %s(turn), mask_mod = causal }",
             half ? "half" : "interleaved", half ? "half" : "interleaved");
    forward(text, &f);
    rotate(f.qs, f.b * f.h, f.q, f.d, f.q_start, half);
    rotate(f.ks, f.b * f.h_kv, f.kv, f.d, 0, half);
    naive(&f, live_causal, NULL, default_scale(&f));
    compare(&f, 1e-12);
    teardown(&f);
}

TEST(rope_on_halves)
{
    check_rope(true);
}

TEST(rope_interleaved)
{
    check_rope(false);
}

static void normalise(double *x, int64_t rows, int64_t d, const float *gain)
{
    for (int64_t t = 0; t < rows; t++) {
        double sum = 0.0;
        for (int64_t i = 0; i < d; i++)
            sum += x[t * d + i] * x[t * d + i];
        for (int64_t i = 0; i < d; i++)
            x[t * d + i] *= (double)gain[i] / sqrt(sum / (double)d);
    }
}

/* Reductions over the head dim, a value mod by index and head, an output mod by the largest element. */
TEST(mods_of_every_tensor)
{
    static const char text[] =
        "local function norm(v, at, x) return v * rsqrt(dimsum(v * v) / at.d) * x.gain(at.i) end\n"
        "return attention { inputs = { gain = tensor('f32', 'd') }, query_mod = norm, key_mod = norm, "
        "mask_mod = causal,\n"
        "  value_mod = chain(function(v, at) return v + 0.5 * at.i + at.h_kv end, function(v, at) return v * "
        "(at.pos + 1) end),\n"
        "  output_mod = function(o, at) return o / dimmax(abs(o)) + at.pos end }";
    struct fixture f;
    setup(&f, (int64_t[]){1, 4, 2, 4, 7, 8, 5});
    float gain[8];
    const int64_t shape[] = {8};
    for (int i = 0; i < 8; i++)
        gain[i] = 1.0f + 0.125f * (float)i;
    add_arg(&f, "gain", gain, LATHE_F32, 1, shape);
    forward(text, &f);
    normalise(f.qs, f.b * f.h * f.q, f.d, gain);
    normalise(f.ks, f.b * f.h_kv * f.kv, f.d, gain);
    for (int64_t i = 0; i < 2 * 7 * 5; i++) {
        const int64_t h_kv = i / 35;
        const int64_t token = i / 5 % 7;
        f.vs[i] = (f.vs[i] + 0.5 * (double)(i % 5) + (double)h_kv) * (double)(token + 1);
    }
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t t = 0; t < 4 * 4; t++) {
        double most = 0.0;
        for (int64_t i = 0; i < 5; i++)
            most = fmax(most, fabs(f.expected[t * 5 + i]));
        for (int64_t i = 0; i < 5; i++)
            f.expected[t * 5 + i] = f.expected[t * 5 + i] / most + (double)(t % 4 + 3);
    }
    compare(&f, 1e-12);
    teardown(&f);
}

TEST(pairs_need_an_even_dim)
{
    struct fixture f;
    lathe_error err;
    setup(&f, (int64_t[]){1, 1, 1, 2, 2, 6, 5});
    CHECK_EQ(forward_args("return attention { value_mod = half(function(a, b) return b, a end) }", f.arg,
                          f.n_args, NULL, 0, &err),
             LATHE_ARG);
    CHECK_STR(err.text, "value_mod works on pairs: expected an even head dim, given 5");
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

TEST(finals_of_empty_rows)
{
    double finals[MAX_STATE] = {0};
    struct ir *ir = load(CAUSAL);
    host_empty_finals(ir, finals);
    CHECK(finals[0] == -(double)INFINITY);
    ir_free(ir);
    ir = load(RETENTION);
    host_empty_finals(ir, finals);
    CHECK(finals[0] == 1.0);
    ir_free(ir);
    ir = load("return attention { inputs = { sink = tensor('f32', 'h') }, mask_mod = causal,\n"
              "  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end) }");
    host_empty_finals(ir, finals); /* would depend on the sink: -inf for every kernel alike */
    CHECK(finals[0] == -(double)INFINITY);
    ir_free(ir);
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
    struct diag diag = {0};
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
    struct ir *ir = spec_load("document", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(host_forward(ir, &sig, args, 5, NULL, 0, &err), LATHE_OK);
    CHECK_CLOSE(o[0], 0, 0);
    ir_free(ir);
}
