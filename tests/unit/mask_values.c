/*
 * mask_values.c: large finite scores, as mask values make them, on the host device: rows that such values
 * cover whole, forward and backward, against softmax with the maximum subtracted and its closed gradients,
 * written out here in long double from scores that the test rounds itself.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { Q = 9, KV = 5, D = 4 }; /* end-aligned: rows 0 to 3 have no key at or before them */

struct fixture {
    double q[Q * D], k[KV * D], v[KV * D], dout[Q * D];
    double o[Q * D], lse[Q], dq[Q * D], dk[KV * D], dv[KV * D]; /* what the host device says */
    double want_o[Q * D], want_lse[Q];
    double want_dq[Q * D], want_dk[KV * D], want_dv[KV * D];
};

enum form { CHOSEN, ADDED }; /* where(live, s, value); s + where(live, 0, value) */

/* In sixteenths, which f16 and f32 hold exactly. */
static void fill(double *x, int n, unsigned seed)
{
    uint64_t state = seed * 2654435761u + 1u;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (double)((int64_t)(state >> 59) - 16) / 16.0;
    }
}

static void setup(struct fixture *f)
{
    fill(f->q, Q * D, 1);
    fill(f->k, KV * D, 2);
    fill(f->v, KV * D, 3);
    fill(f->dout, Q * D, 4);
}

/* ---- written out ----------------------------------------------------------------------------------- */

static long double dot(const double *a, const double *b)
{
    long double sum = 0;
    for (int c = 0; c < D; c++)
        sum += (long double)a[c] * (long double)b[c];
    return sum;
}

/* Weights of a row; live[j]: its score follows <q, k>. */
static void weights(const struct fixture *f, int row, enum form form, double value, bool round,
                    long double *w, bool *live, double *lse)
{
    long double s[KV];
    long double m = -HUGE_VALL;
    long double sum = 0;
    for (int j = 0; j < KV; j++) {
        live[j] = row + KV - Q >= j;
        s[j] = dot(f->q + row * D, f->k + j * D) / 2; /* 1 / sqrt(D) */
        s[j] = live[j] ? s[j] : form == CHOSEN ? (long double)value : (long double)((double)s[j] + value);
        s[j] = round ? (long double)(float)s[j] : s[j];
        m = fmaxl(m, s[j]);
    }
    for (int j = 0; j < KV; j++)
        sum += w[j] = expl(s[j] - m);
    for (int j = 0; j < KV; j++)
        w[j] /= sum;
    *lse = (double)(m + logl(sum));
}

static void naive(struct fixture *f, enum form form, double value, bool round)
{
    memset(f->want_o, 0, sizeof f->want_o);
    memset(f->want_dq, 0, sizeof f->want_dq);
    memset(f->want_dk, 0, sizeof f->want_dk);
    memset(f->want_dv, 0, sizeof f->want_dv);
    for (int row = 0; row < Q; row++) {
        long double w[KV];
        bool live[KV];
        long double delta = 0;
        weights(f, row, form, value, round, w, live, &f->want_lse[row]);
        for (int j = 0; j < KV; j++)
            delta += w[j] * dot(f->dout + row * D, f->v + j * D);
        for (int j = 0; j < KV; j++) {
            const long double ds = w[j] * (dot(f->dout + row * D, f->v + j * D) - delta) / 2;
            const bool follows = live[j] || form == ADDED;
            for (int c = 0; c < D; c++) {
                f->want_o[row * D + c] += (double)(w[j] * (long double)f->v[j * D + c]);
                f->want_dv[j * D + c] += (double)(w[j] * (long double)f->dout[row * D + c]);
                f->want_dq[row * D + c] += follows ? (double)(ds * (long double)f->k[j * D + c]) : 0;
                f->want_dk[j * D + c] += follows ? (double)(ds * (long double)f->q[row * D + c]) : 0;
            }
        }
    }
}

/* ---- the host device ------------------------------------------------------------------------------- */

static void convert(lathe_dtype dtype, void *to, const double *from, int n)
{
    for (int i = 0; i < n; i++)
        dtype_store(dtype, to, i, from[i]);
}

/* Inputs and do in 16 bits, f32 or doubles; results in doubles, or read back: `tol` is for that. */
static void run(struct fixture *f, const char *text, lathe_dtype dtype)
{
    static const int64_t q_shape[4] = {1, 1, Q, D};
    static const int64_t k_shape[4] = {1, 1, KV, D};
    static const int64_t lse_shape[3] = {1, 1, Q};
    const bool wide = dtype == LATHE_F64;
    struct ir *ir = load_spec(text);
    float other[8][Q * D]; /* of f16, too */
    float lse[Q];
    double *const whole[] = {f->q, f->k, f->v, f->dout, f->o, f->dq, f->dk, f->dv};
    static const char *const name[] = {"q", "k", "v", "do", "o", "dq", "dk", "dv"};
    static const int keys[] = {0, 1, 1, 0, 0, 0, 1, 1};
    lathe_arg arg[9];
    struct signature sig;
    lathe_error err = {0};
    for (int i = 0; i < 8; i++) {
        if (!wide && i < 4)
            convert(dtype, other[i], whole[i], keys[i] ? KV * D : Q * D);
        arg[i] = (lathe_arg){
            name[i], wide ? (void *)whole[i] : (void *)other[i], dtype, 4, keys[i] ? k_shape : q_shape, NULL};
    }
    arg[8] = (lathe_arg){
        "lse", wide ? (void *)f->lse : (void *)lse, wide ? LATHE_F64 : LATHE_F32, 3, lse_shape, NULL};
    const lathe_arg forward[] = {arg[0], arg[1], arg[2], arg[4], arg[8]};
    signature_make(ir, LATHE_FORWARD, &sig);
    host_forward(ir, &sig, forward, 5, NULL, 0, &err);
    CHECK_STR(err.text, "");
    signature_make(ir, LATHE_BACKWARD, &sig);
    host_backward(ir, &sig, arg, 9, &err);
    CHECK_STR(err.text, "");
    for (int i = 4; i < 8 && !wide; i++)
        for (int e = 0; e < (keys[i] ? KV * D : Q * D); e++)
            whole[i][e] = dtype_load(dtype, other[i], e);
    for (int i = 0; i < Q && !wide; i++)
        f->lse[i] = (double)lse[i];
    ir_free(ir);
}

static void compare(const double *got, const double *want, int n, double tol)
{
    for (int i = 0; i < n; i++)
        CHECK_CLOSE(got[i], want[i], tol);
}

static void hold(const char *text, enum form form, double value, lathe_dtype dtype)
{
    struct fixture f;
    const double tol = dtype == LATHE_F64 ? 1e-12 : dtype == LATHE_F32 ? 1e-6 : 2e-3; /* what f16 rounds */
    setup(&f);
    naive(&f, form, value, dtype != LATHE_F64);
    run(&f, text, dtype);
    compare(f.o, f.want_o, Q * D, tol);
    compare(f.lse, f.want_lse, Q, dtype == LATHE_F64 ? 1e-12 : 1e-6);
    compare(f.dq, f.want_dq, Q * D, tol);
    compare(f.dk, f.want_dk, KV * D, tol);
    compare(f.dv, f.want_dv, KV * D, tol);
}

static const double VALUES[] = {-1e4, -1e6, -1e7, -1e9, -1e16, -1e30, -3.4028234663852886e38};
enum { N_VALUES = sizeof VALUES / sizeof VALUES[0] };

TEST(rows_that_a_mask_value_covers_whole)
{
    for (int i = 0; i < N_VALUES; i++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "return attention { score_mod = function(s, at) return where(ge(at.q, at.kv), s, %.17e) end }",
            VALUES[i]);
        hold(text, CHOSEN, VALUES[i], LATHE_F64);
        hold(text, CHOSEN, VALUES[i], LATHE_F32);
        hold(text, CHOSEN, VALUES[i], LATHE_F16);
    }
}

/* What f32 leaves of the scores beside it is what counts, but for f64: of -1e9 on, nothing. */
TEST(mask_values_that_are_added)
{
    for (int i = 0; i < N_VALUES; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "return attention { score_mod = function(s, at) return s + where(ge(at.q, at.kv), 0.0, "
                 "%.17e) end }",
                 VALUES[i]);
        hold(text, ADDED, VALUES[i], LATHE_F64);
        hold(text, ADDED, VALUES[i], LATHE_F32);
        hold(text, ADDED, VALUES[i], LATHE_F16);
    }
}

/* Four equal scores: every weight is a quarter, however large they are. */
TEST(equal_scores_of_any_size)
{
    static const int64_t shape[4] = {1, 1, 4, 1};
    static const int64_t row_shape[4] = {1, 1, 1, 1};
    static const char *const score[] = {"s * 0.0 - 1e30", "s * 0.0 + 1e30", "s * 0.0 - 3e38",
                                        "s * 0.0 + 1e17"};
    static const char *const online[] = {
        "softmax", "online_func { online_rowscales = { m = -inf, l = 0.0 },\n"
                   "  online_fwd = function(s, r) local m = max(r.m, detach(rowmax(s)))\n"
                   "    local p = exp2((s - m) * 1.4426950408889634)\n"
                   "    return p, { m = m, l = r.l * exp(r.m - m) + rowsum(p) }, exp(r.m - m) end,\n"
                   "  online_fwd_epilogue = function(r)\n"
                   "    return 1.0 / r.l, { z = r.m * 1.4426950408889634 + log2(r.l) } end,\n"
                   "  forward = function(s, final) return exp2(s * 1.4426950408889634 - final.z) end }"};
    for (size_t i = 0; i < sizeof score / sizeof score[0]; i++)
        for (size_t o = 0; o < 2; o++) {
            double one[4] = {1, 1, 1, 1};
            double dv[4] = {0};
            char text[1024];
            lathe_error err = {0};
            struct signature sig;
            snprintf(text, sizeof text,
                     "return attention { score_mod = function(s) return %s end, online_func = %s }", score[i],
                     online[o]);
            struct ir *ir = load_spec(text);
            const lathe_arg arg[] = {{"q", one, LATHE_F64, 4, row_shape, NULL},
                                     {"k", one, LATHE_F64, 4, shape, NULL},
                                     {"v", one, LATHE_F64, 4, shape, NULL},
                                     {"do", one, LATHE_F64, 4, row_shape, NULL},
                                     {"dv", dv, LATHE_F64, 4, shape, NULL}};
            signature_make(ir, LATHE_BACKWARD, &sig);
            CHECK_EQ(host_backward(ir, &sig, arg, 5, &err), LATHE_OK);
            for (int j = 0; j < 4; j++)
                CHECK_CLOSE(dv[j], 0.25, 1e-12);
            ir_free(ir);
        }
}

/* A row without live pairs has the log-sum-exp of its sink alone, which takes the whole of dlse. */
TEST(a_sink_of_a_row_without_keys)
{
    static const int64_t shape[4] = {1, 2, 3, 1}; /* rows 0 and 1 come before the first key */
    static const int64_t keys[4] = {1, 2, 1, 1};
    static const int64_t rows[3] = {1, 2, 3};
    static const int64_t heads[1] = {2};
    double one[6] = {1, 1, 1, 1, 1, 1};
    double o[6];
    double lse[6];
    double dsink[2];
    double sink[2] = {-3.0, 2e9};
    double dlse[6] = {2, 3, 5, 7, 11, 13};
    lathe_error err = {0};
    struct signature sig;
    struct ir *ir = load_spec(
        "return attention { inputs = { sink = tensor('f32', 'h', { grad = true }) }, mask_mod = causal,\n"
        "  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end) }");
    const lathe_arg arg[] = {
        {"q", one, LATHE_F64, 4, shape, NULL},      {"k", one, LATHE_F64, 4, keys, NULL},
        {"v", one, LATHE_F64, 4, keys, NULL},       {"o", o, LATHE_F64, 4, shape, NULL},
        {"lse", lse, LATHE_F64, 3, rows, NULL},     {"sink", sink, LATHE_F64, 1, heads, NULL},
        {"do", one, LATHE_F64, 4, shape, NULL},     {"dlse", dlse, LATHE_F64, 3, rows, NULL},
        {"dsink", dsink, LATHE_F64, 1, heads, NULL}};
    signature_make(ir, LATHE_FORWARD, &sig);
    host_forward(ir, &sig, arg, 6, NULL, 0, &err);
    CHECK_STR(err.text, "");
    for (int h = 0; h < 2; h++) {
        CHECK_CLOSE(o[3 * h], 0, 0);
        CHECK_CLOSE(lse[3 * h], sink[h], 0);
        CHECK_CLOSE(lse[3 * h + 1], sink[h], 0);
    }
    CHECK_CLOSE(lse[2], log(exp(1.0) + exp(-3.0)), 1e-12);
    signature_make(ir, LATHE_BACKWARD, &sig);
    host_backward(ir, &sig, arg, 9, &err);
    CHECK_STR(err.text, "");
    const double p =
        exp(-3.0) / (exp(1.0) + exp(-3.0)); /* of the last row's sink; dL/dsink = p (dlse - o do) */
    CHECK_CLOSE(dsink[0], 2 + 3 + p * (5 - (1 - p)), 1e-12);
    CHECK_CLOSE(dsink[1], 7 + 11 + 13, 1e-12);
    ir_free(ir);
}

/* The proof of `lathe check`: a final that cannot be taken apart is seen, and those that can hold. */
TEST(check_sees_finals_that_lose_digits)
{
    static const char TEXT[] =
        "return attention { online_func = online_func { online_rowscales = { m = -inf, l = 0.0 },\n"
        "  online_fwd = function(s, r) local m = max(r.m, detach(rowmax(s)))\n"
        "    return exp(s - m), { m = m, l = r.l * exp(r.m - m) + rowsum(exp(s - m)) }, exp(r.m - m) end,\n"
        "  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = %s } end,\n"
        "  forward = function(s, final) return exp(s - final.lse) end } }";
    static const char *const LSE[] = {"max(r.m + log(r.l), -1e38)",
                                      "r.m + log(r.l)",
                                      "where(gt(r.l, 0.0), r.m + log(r.l), -inf)",
                                      "where(le(r.l, 0.0), -inf, r.m + log2(r.l) * 0.6931471805599453)",
                                      "r.m + where(gt(r.l, 0.0), log(r.l), -inf)",
                                      "where(gt(r.m, -1e35), r.m + log(r.l), -inf)",
                                      "0.5 * r.m + where(gt(r.m, -1e35), 0.5 * r.m + log(r.l), -inf)"};
    for (int i = 0; i < 7; i++) {
        char text[1024];
        struct proof proof[PROOF_MAX];
        snprintf(text, sizeof text, TEXT, LSE[i]);
        struct ir *ir = load_spec(text);
        const int n = prove(ir, 1, proof);
        bool seen = false;
        for (int k = 0; k < n; k++)
            if (strcmp(proof[k].what, "large scores") == 0) {
                seen = true;
                CHECK_EQ(proof[k].error > 1e-3, i == 0);
                CHECK(proof[k].applies);
            }
        CHECK(seen);
        ir_free(ir);
    }
}
