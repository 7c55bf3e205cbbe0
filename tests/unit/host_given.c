/*
 * host_given.c: what the host device makes of results of the forward pass that a backward pass is given. Keys
 * in two shards, each with the o and lse of the whole; statistics that are others than the row's own. Right
 * values are those of the whole, or formulas written out here.
 */
#include "check.h"
#include "loaded.h"
#include "gen/ir/tensor.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------------- */

enum { MOST = 24, H = 4, H_KV = 2, Q = 5, KV = 9, FIRST = 4, D = 6, D_V = 8 };

struct bench {
    struct ir *ir;
    struct signature sig[2]; /* forward, backward */
    lathe_dtype dtype;
    int n;
    lathe_arg arg[MOST];
    int64_t shape[MOST][4];
    int64_t stride[MOST][4];
    int32_t q_start;
    int64_t d_v;
    lathe_error err;
};

static void open_bench(struct bench *b, const char *spec, lathe_dtype dtype)
{
    memset(b, 0, sizeof *b);
    b->ir = load_spec(spec);
    b->dtype = dtype;
    b->d_v = D_V;
    for (int pass = 0; pass < 2; pass++)
        signature_make(b->ir, pass ? LATHE_BACKWARD : LATHE_FORWARD, &b->sig[pass]);
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->arg[i].data);
    ir_free(b->ir);
}

static lathe_arg *find(struct bench *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->arg[i].name, name) == 0)
            return &b->arg[i];
    return NULL;
}

static lathe_arg *need(struct bench *b, const char *name)
{
    lathe_arg *arg = find(b, name);
    CHECK(arg != NULL);
    return arg;
}

/* Compact; sines of its own. f: always f32, but beside f64. */
static lathe_arg *add(struct bench *b, const char *name, bool f, int ndim, const int64_t *shape)
{
    CHECK(b->n < MOST);
    lathe_arg *t = &b->arg[b->n];
    int64_t count = 1;
    *t = (lathe_arg){.name = name, .ndim = ndim, .shape = b->shape[b->n], .strides = b->stride[b->n]};
    t->dtype = f && b->dtype != LATHE_F64 ? LATHE_F32 : b->dtype;
    for (int d = ndim - 1; d >= 0; d--) {
        b->shape[b->n][d] = shape[d];
        b->stride[b->n][d] = count;
        count *= shape[d];
    }
    t->data = calloc((size_t)count + 1, sizeof(double));
    CHECK(t->data != NULL);
    b->n++;
    for (int64_t i = 0; i < count; i++)
        dtype_store(t->dtype, t->data, i, sin(0.9 * b->n + 1.7 * (double)i));
    return t;
}

/* A pass on the arguments that it knows; those that `without` names are left out. */
static lathe_status run(struct bench *b, int pass, const char *without)
{
    lathe_arg arg[MOST];
    int n = 0;
    b->err = (lathe_error){0};
    for (int i = 0; i < b->n; i++)
        if (lathe__arg_find(&b->sig[pass], b->arg[i].name, 0) >= 0 && !strstr(without, b->arg[i].name))
            arg[n++] = b->arg[i];
    const lathe_status status = pass ? host_backward(b->ir, &b->sig[1], arg, n, &b->err)
                                     : host_forward(b->ir, &b->sig[0], arg, n, NULL, 0, &b->err);
    return status;
}

static void run_well(struct bench *b, int pass, const char *without)
{
    const lathe_status status = run(b, pass, without);
    CHECK_STR(b->err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

static double *copy_of(struct bench *b, const char *name)
{
    const lathe_arg *t = need(b, name);
    const int64_t n = tensor_count(t);
    double *copy = calloc((size_t)n + 1, sizeof *copy);
    CHECK(copy != NULL);
    for (int64_t i = 0; i < n; i++)
        copy[i] = tensor_nth(t, i);
    return copy;
}

static void check_values(struct bench *b, const char *name, const double *wanted, double tolerance)
{
    const lathe_arg *t = need(b, name);
    for (int64_t i = 0; i < tensor_count(t); i++)
        CHECK_CLOSE(tensor_nth(t, i), wanted[i], tolerance);
}

static double tolerance_of(lathe_dtype dtype)
{
    return dtype == LATHE_F64 ? 1e-13 : dtype == LATHE_F32 ? 2e-6 : 2e-2;
}

/* ---- attention --------------------------------------------------------------------------------------- */

static void add_attention(struct bench *b)
{
    static const int64_t q[] = {2, H, Q, D}, k[] = {2, H_KV, KV, D}, row[] = {2, H, Q}, one[] = {1},
                         bias[] = {H, KV}, head[] = {H};
    const int64_t v[] = {2, H_KV, KV, b->d_v};
    const int64_t o[] = {2, H, Q, b->d_v};
    add(b, "q", false, 4, q);
    add(b, "k", false, 4, k);
    add(b, "v", false, 4, v);
    add(b, "o", false, 4, o);
    add(b, "lse", true, 3, row);
    add(b, "do", false, 4, o);
    add(b, "dlse", true, 3, row);
    add(b, "dq", false, 4, q);
    add(b, "dk", false, 4, k);
    add(b, "dv", false, 4, v);
    if (lathe__arg_find(&b->sig[0], "bias", 0) >= 0) {
        add(b, "bias", true, 2, bias);
        add(b, "dbias", true, 2, bias);
    }
    if (lathe__arg_find(&b->sig[0], "sink", 0) >= 0) {
        add(b, "sink", true, 1, head);
        add(b, "dsink", true, 1, head);
    }
    lathe_arg *start = add(b, "q_start", false, 0, one);
    start->dtype = LATHE_I32;
    b->q_start = KV - Q;
    memcpy(start->data, &b->q_start, sizeof b->q_start);
}

/* Dims over keys from `first` on, n of them. */
static void cut_keys(struct bench *b, int64_t first, int64_t n)
{
    static const char *const by_key[] = {"k", "v", "dk", "dv", "bias", "dbias"};
    const int32_t start = b->q_start - (int32_t)first; /* how far the queries are from this shard's key 0 */
    for (size_t i = 0; i < sizeof by_key / sizeof by_key[0]; i++) {
        lathe_arg *t = find(b, by_key[i]);
        const int dim = t && t->ndim == 4 ? 2 : 1;
        if (!t)
            continue;
        b->shape[t - b->arg][dim] = n;
        t->data = (char *)t->data + first * b->stride[t - b->arg][dim] * (int64_t)lathe_dtype_size(t->dtype);
    }
    memcpy(need(b, "q_start")->data, &start, sizeof start);
}

static void check_shards(const char *spec, lathe_dtype dtype)
{
    struct bench b;
    open_bench(&b, spec, dtype);
    add_attention(&b);
    run_well(&b, 0, "");
    run_well(&b, 1, " o lse ");
    static const char *const gradient[] = {"dq", "dk", "dv", "dbias"};
    double *whole[4] = {NULL};
    for (int i = 0; i < 4; i++)
        whole[i] = find(&b, gradient[i]) ? copy_of(&b, gradient[i]) : NULL;
    void *keep[MOST];
    for (int i = 0; i < b.n; i++)
        keep[i] = b.arg[i].data;
    double *dq = NULL;
    for (int shard = 0; shard < 2; shard++) {
        cut_keys(&b, shard ? FIRST : 0, shard ? KV - FIRST : FIRST);
        run_well(&b, 1, "");
        for (int i = 0; i < b.n; i++)
            b.arg[i].data = keep[i];
        cut_keys(&b, 0, KV);
        if (!dq)
            dq = copy_of(&b, "dq");
    }
    for (int64_t i = 0; i < 2 * H * Q * D; i++)
        CHECK_CLOSE(dq[i] + tensor_nth(need(&b, "dq"), i), whole[0][i], tolerance_of(dtype));
    for (int i = 1; i < 4; i++)
        if (whole[i])
            check_values(&b, gradient[i], whole[i], tolerance_of(dtype));
    for (int i = 0; i < 4; i++)
        free(whole[i]);
    free(dq);
    close_bench(&b);
}

#define BIAS                                                                                                 \
    "inputs = { bias = tensor('f32', 'h', 'kv', { grad = true }) }, score_mod = function(s, at, x)\n"        \
    "  return 3.0 * tanh((s + x.bias(at.h, at.kv)) / 3.0) end"

/* As ring attention has it: dq is a sum over shards, dk, dv and what is per key are side by side. */
TEST(shards_of_keys_make_the_whole)
{
    static const char *const spec[] = {"return attention {}", "causal",
                                       "return attention { mask_mod = causal, " BIAS " }", "sinks"};
    static const lathe_dtype dtype[] = {LATHE_F64, LATHE_F32, LATHE_F16};
    for (size_t s = 0; s < sizeof spec / sizeof spec[0]; s++)
        for (size_t t = 0; t < 3; t++)
            check_shards(spec[s], dtype[t]);
}

/* Own results give what the derivative of the whole row gives. A weight that is dropped by a test of integers
   against a constant is 0, and its score has a gradient all the same: through lse, which is that of all. */
TEST(own_results_change_nothing)
{
    static const char *const spec[] = {
        "return attention { online_func = softmax_with_dropout(function(at) return ne(at.kv % 3, 0) end,\n"
        "  function(at) return 2.0 end) }",
        "return attention { mask_mod = causal, online_func = softmax_with_dropout(\n"
        "  function(at) return eq(at.kv // 4, 1) end, function(at) return 1.25 end) }",
        "softmax_one",
        "sinks",
    };
    static const char *const gradient[] = {"dq", "dk", "dv", "dsink"};
    for (size_t i = 0; i < sizeof spec / sizeof spec[0]; i++) {
        struct bench b;
        open_bench(&b, spec[i], LATHE_F64);
        add_attention(&b);
        run_well(&b, 0, "");
        run_well(&b, 1, " o lse ");
        double *whole[4];
        for (int k = 0; k < 4; k++)
            whole[k] = find(&b, gradient[k]) ? copy_of(&b, gradient[k]) : NULL;
        run_well(&b, 1, "");
        for (int k = 0; k < 4; k++) {
            if (whole[k])
                check_values(&b, gradient[k], whole[k], 1e-13);
            free(whole[k]);
        }
        close_bench(&b);
    }
}

/* delta is made of the o that is given: with o + 1 it is larger by sum(do), and ds by -w sum(do). */
TEST(delta_is_made_of_the_given_o)
{
    struct bench b;
    open_bench(&b, "return attention { scale = 1.0 }", LATHE_F64);
    add_attention(&b);
    run_well(&b, 0, "");
    run_well(&b, 1, "");
    double *before = copy_of(&b, "dq");
    const double *q = need(&b, "q")->data;
    const double *k = need(&b, "k")->data;
    const double *lse = need(&b, "lse")->data;
    const double *dout = need(&b, "do")->data;
    double *o = need(&b, "o")->data;
    for (int64_t i = 0; i < 2 * H * Q * D_V; i++)
        o[i] += 1;
    run_well(&b, 1, "");
    for (int64_t row = 0; row < 2 * H * Q; row++) {
        const double *keys = k + row / Q / (H / H_KV) * KV * D;
        double change[D] = {0};
        double sum = 0;
        for (int e = 0; e < D_V; e++)
            sum += dout[row * D_V + e];
        for (int j = 0; j < KV; j++) {
            double s = 0;
            for (int e = 0; e < D; e++)
                s += q[row * D + e] * keys[j * D + e];
            for (int e = 0; e < D; e++)
                change[e] -= exp(s - lse[row]) * sum * keys[j * D + e];
        }
        for (int e = 0; e < D; e++)
            CHECK_CLOSE(tensor_nth(need(&b, "dq"), row * D + e), before[row * D + e] + change[e], 1e-12);
    }
    free(before);
    close_bench(&b);
}

/* A row of -1e9 alone has an f32 lse without the logarithm of its length: one that is these keys' own is made
   anew, one of other keys stands. */
TEST(large_lse_is_found_again_where_it_is_of_these_keys)
{
    struct bench b;
    open_bench(&b, "return attention { score_mod = function(s) return s - 1e9 end }", LATHE_F16);
    add_attention(&b);
    run_well(&b, 0, "");
    run_well(&b, 1, " o lse ");
    double *dv = copy_of(&b, "dv");
    run_well(&b, 1, "");
    check_values(&b, "dv", dv, 1e-2);
    lathe_arg *lse = need(&b, "lse");
    for (int64_t i = 0; i < 2 * H * Q; i++)
        ((float *)lse->data)[i] += 4096; /* more than a part of 2^-20, and weights of nothing */
    run_well(&b, 1, "");
    for (int64_t i = 0; i < tensor_count(need(&b, "dv")); i++)
        CHECK_CLOSE(tensor_nth(need(&b, "dv"), i), 0, 0);
    free(dv);
    close_bench(&b);
}

/* What no kernel would take is refused where it says something else than the keys do. */
TEST(lse_of_other_keys_is_refused_where_it_does_not_count)
{
    struct bench b;
    open_bench(&b, "return attention {}", LATHE_F64);
    add_attention(&b);
    run_well(&b, 0, "");
    run_well(&b, 1, " o ");
    ((double *)need(&b, "lse")->data)[3] += 1;
    CHECK_EQ(run(&b, 1, " o "), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'lse': expected that of these keys");
    CHECK_HAS(b.err.text, "for query 3 of head 0");
    CHECK_HAS(b.err.text, "finals of other keys count where 'o' and all finals are given together");
    close_bench(&b);
    open_bench(&b, "return attention { output_mod = function(v) return 2.0 * v end }", LATHE_F64);
    add_attention(&b);
    run_well(&b, 0, "");
    run_well(&b, 1, "");
    ((double *)need(&b, "lse")->data)[3] += 1;
    CHECK_EQ(run(&b, 1, ""), LATHE_ARG);
    CHECK_HAS(b.err.text, "beside an output_mod the backward pass makes them anew");
    close_bench(&b);
}

/* n = max(r, 1) does not say on which side of 1 the state r is, so its gradient needs r, which the forward
   pass makes. */
TEST(finals_of_other_keys_are_refused_where_a_state_is_no_final)
{
    static const int64_t row[] = {2, H, Q};
    struct bench b;
    open_bench(&b, "retention", LATHE_F64);
    add_attention(&b);
    add(&b, "n", true, 3, row);
    add(&b, "dn", true, 3, row);
    run_well(&b, 0, "");
    run_well(&b, 1, "");
    ((double *)need(&b, "n")->data)[3] += 1;
    CHECK_EQ(run(&b, 1, ""), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'n': expected that of these keys");
    CHECK_HAS(b.err.text,
              "gradients need the row state 'r', which is no final, so the backward pass makes them anew");
    close_bench(&b);
}

/* Kernels copy rows of such a v, and run the forward pass first: what is given of these keys is welcome, and
   changes nothing. */
TEST(lse_of_other_keys_is_refused_where_d_v_is_no_multiple_of_8)
{
    struct bench b;
    open_bench(&b, "causal", LATHE_F64);
    b.d_v = 6;
    add_attention(&b);
    run_well(&b, 0, "");
    run_well(&b, 1, " o lse ");
    double *dq = copy_of(&b, "dq");
    run_well(&b, 1, "");
    check_values(&b, "dq", dq, 0);
    ((double *)need(&b, "lse")->data)[3] += 1;
    CHECK_EQ(run(&b, 1, ""), LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'lse': expected that of these keys");
    CHECK_HAS(b.err.text, "where d_v is no multiple of 8 the backward pass makes them anew; pad v, o and do");
    free(dq);
    close_bench(&b);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

enum { ROWS = 3, N = 7, CUT = 3 };

static void add_rows(struct bench *b, const char *statistic)
{
    static const int64_t x[] = {ROWS, N}, row[] = {ROWS}, n[] = {N};
    add(b, "x", false, 2, x);
    if (lathe__arg_find(&b->sig[0], "weight", 0) >= 0) {
        add(b, "weight", false, 1, n);
        add(b, "dweight", true, 1, n);
    }
    add(b, statistic, true, 1, row);
    add(b, "y", false, 2, x);
    add(b, "dy", false, 2, x);
    add(b, "dx", false, 2, x);
}

TEST(statistics_that_are_given_count)
{
    struct bench b;
    open_bench(&b, "rms_norm", LATHE_F64);
    add_rows(&b, "rstd");
    run_well(&b, 0, "");
    double *rstd = need(&b, "rstd")->data;
    for (int i = 0; i < ROWS; i++)
        rstd[i] *= 2;
    run_well(&b, 1, "");
    const double *x = need(&b, "x")->data;
    const double *w = need(&b, "weight")->data;
    const double *dy = need(&b, "dy")->data;
    double dw[N] = {0};
    double dx[ROWS * N];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < N; i++) {
            sum += dy[r * N + i] * w[i] * x[r * N + i];
            dw[i] += dy[r * N + i] * x[r * N + i] * rstd[r];
        }
        for (int i = 0; i < N; i++)
            dx[r * N + i] =
                dy[r * N + i] * w[i] * rstd[r] - x[r * N + i] * rstd[r] * rstd[r] * rstd[r] * sum / N;
    }
    check_values(&b, "dx", dx, 1e-12);
    check_values(&b, "dweight", dw, 1e-12);
    close_bench(&b);
}

/* dx = dy - exp(x - lse) sum(dy). Rows of f32 are added up once more, as in kernels. */
TEST(lse_of_a_row_counts_but_in_f32)
{
    static const lathe_dtype dtype[] = {LATHE_F64, LATHE_F32, LATHE_F16};
    for (int t = 0; t < 3; t++) {
        struct bench b;
        double dx[ROWS * N];
        open_bench(&b, "log_softmax", dtype[t]);
        add_rows(&b, "lse");
        run_well(&b, 0, "");
        lathe_arg *lse = need(&b, "lse");
        for (int64_t r = 0; r < ROWS; r++) {
            double sum = 0;
            const double given = tensor_nth(lse, r) + 1;
            const double counts = dtype[t] == LATHE_F32 ? given - 1 : given;
            dtype_store(lse->dtype, lse->data, r, given);
            for (int64_t i = 0; i < N; i++)
                sum += tensor_nth(need(&b, "dy"), r * N + i);
            for (int64_t i = 0; i < N; i++)
                dx[r * N + i] = tensor_nth(need(&b, "dy"), r * N + i) -
                                exp(tensor_nth(need(&b, "x"), r * N + i) - counts) * sum;
        }
        run_well(&b, 1, "");
        check_values(&b, "dx", dx, dtype[t] == LATHE_F16 ? 4e-3 : tolerance_of(dtype[t]));
        close_bench(&b);
    }
}

/* Where all results are named and none is given, a call would make nothing. */
TEST(a_call_without_a_result_is_refused)
{
    static const int64_t row[] = {ROWS}, x[] = {ROWS, N};
    struct bench b;
    open_bench(&b, "logsumexp", LATHE_F32);
    add(&b, "x", false, 2, x);
    CHECK_EQ(run(&b, 0, ""), LATHE_ARG);
    CHECK_HAS(b.err.text, "problem: expected a result to compute, given none; this pass gives lse");
    add(&b, "lse", true, 1, row);
    run_well(&b, 0, "");
    close_bench(&b);
}

/* A mean that is given is taken for the row's own: the sum of distances from it is 0, as kernels have it. */
TEST(mean_that_is_given_is_the_rows_own)
{
    static const int64_t row[] = {ROWS};
    struct bench b;
    open_bench(&b, "layer_norm", LATHE_F64);
    add_rows(&b, "rstd");
    add(&b, "mean", true, 1, row);
    add(&b, "bias", false, 1, (const int64_t[]){N});
    run_well(&b, 0, "");
    run_well(&b, 1, "mean rstd");
    double *own = copy_of(&b, "dx");
    run_well(&b, 1, "");
    check_values(&b, "dx", own, 1e-13);
    free(own);
    close_bench(&b);
}
