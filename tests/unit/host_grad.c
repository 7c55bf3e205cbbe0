/*
 * host_grad.c: the backward pass on the host against formulas written out by hand: softmax attention with
 * grouped heads, a row without keys, a seed for lse and a learned bias; a row-wise softmax with a gain.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { H = 4, H_KV = 2, Q = 3, KV = 2, D = 2, D_V = 3, BUCKETS = 2 };

static void fill(double *x, int n, double seed)
{
    for (int i = 0; i < n; i++)
        x[i] = sin(seed + 1.7 * i);
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- attention --------------------------------------------------------------------------------- */

struct tensors {
    double q[H][Q][D], k[H_KV][KV][D], v[H_KV][KV][D_V];
    double table[H][BUCKETS];
    double dout[H][Q][D_V], dlse[H][Q];
    double dq[H][Q][D], dk[H_KV][KV][D], dv[H_KV][KV][D_V], dtable[H][BUCKETS];
};

/* Causal, end-aligned: query row i sees keys 0 .. i + KV - Q. The bias is table[h][key % 2]. */
static void by_hand(struct tensors *t)
{
    memset(t->dq, 0, sizeof t->dq);
    memset(t->dk, 0, sizeof t->dk);
    memset(t->dv, 0, sizeof t->dv);
    memset(t->dtable, 0, sizeof t->dtable);
    double scale = 1 / sqrt((double)D);
    for (int h = 0; h < H; h++) {
        int g = h / (H / H_KV);
        for (int i = 0; i < Q; i++) {
            int n = i + KV - Q + 1;
            double p[KV];
            double dp[KV];
            double sum = 0;
            double delta = 0;
            for (int j = 0; j < n; j++)
                sum += p[j] = exp(scale * dot(t->q[h][i], t->k[g][j], D) + t->table[h][j % BUCKETS]);
            for (int j = 0; j < n; j++) {
                p[j] /= sum;
                dp[j] = dot(t->dout[h][i], t->v[g][j], D_V);
                delta += p[j] * dp[j];
            }
            for (int j = 0; j < n; j++) {
                double ds = p[j] * (dp[j] - delta + t->dlse[h][i]);
                t->dtable[h][j % BUCKETS] += ds;
                for (int e = 0; e < D; e++) {
                    t->dq[h][i][e] += scale * ds * t->k[g][j][e];
                    t->dk[g][j][e] += scale * ds * t->q[h][i][e];
                }
                for (int e = 0; e < D_V; e++)
                    t->dv[g][j][e] += p[j] * t->dout[h][i][e];
            }
        }
    }
}

static const int64_t Q_SHAPE[] = {1, H, Q, D};
static const int64_t K_SHAPE[] = {1, H_KV, KV, D};
static const int64_t V_SHAPE[] = {1, H_KV, KV, D_V};
static const int64_t O_SHAPE[] = {1, H, Q, D_V};
static const int64_t LSE_SHAPE[] = {1, H, Q};
static const int64_t TABLE_SHAPE[] = {H, BUCKETS};
static const char *const BIASED =
    "return attention { mask_mod = causal,\n"
    "  inputs = { table = tensor('f32', 'h', 2, { grad = true }) },\n"
    "  score_mod = function(s, at, x) return s + x.table(at.h, at.kv % 2) end }";

static void attention_inputs(struct tensors *t)
{
    fill(&t->q[0][0][0], H * Q * D, 0.1);
    fill(&t->k[0][0][0], H_KV * KV * D, 0.2);
    fill(&t->v[0][0][0], H_KV * KV * D_V, 0.3);
    fill(&t->table[0][0], H * BUCKETS, 0.4);
    fill(&t->dout[0][0][0], H * Q * D_V, 0.5);
    fill(&t->dlse[0][0], H * Q, 0.6);
    memset(t->dq, 0x55, sizeof t->dq); /* outputs are overwritten, whatever was there */
    memset(t->dk, 0x55, sizeof t->dk);
    memset(t->dv, 0x55, sizeof t->dv);
    memset(t->dtable, 0x55, sizeof t->dtable);
}

static void same(const double *a, const double *b, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_CLOSE(a[i], b[i], 1e-13);
}

TEST(softmax_attention_by_hand)
{
    struct ir *ir = load_spec(BIASED);
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    static struct tensors t;
    attention_inputs(&t);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {
        {"q", t.q, LATHE_F64, 4, Q_SHAPE, NULL},     {"k", t.k, LATHE_F64, 4, K_SHAPE, NULL},
        {"v", t.v, LATHE_F64, 4, V_SHAPE, NULL},     {"table", t.table, LATHE_F64, 2, TABLE_SHAPE, NULL},
        {"do", t.dout, LATHE_F64, 4, O_SHAPE, NULL}, {"dlse", t.dlse, LATHE_F64, 3, LSE_SHAPE, NULL},
        {"dq", t.dq, LATHE_F64, 4, Q_SHAPE, NULL},   {"dk", t.dk, LATHE_F64, 4, K_SHAPE, NULL},
        {"dv", t.dv, LATHE_F64, 4, V_SHAPE, NULL},   {"dtable", t.dtable, LATHE_F64, 2, TABLE_SHAPE, NULL},
    };
    lathe_status status = host_backward(ir, &sig, args, (int)(sizeof args / sizeof args[0]), &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
    static struct tensors expected;
    expected = t;
    by_hand(&expected);
    same(&t.dq[0][0][0], &expected.dq[0][0][0], H * Q * D);
    same(&t.dk[0][0][0], &expected.dk[0][0][0], H_KV * KV * D);
    same(&t.dv[0][0][0], &expected.dv[0][0][0], H_KV * KV * D_V);
    same(&t.dtable[0][0], &expected.dtable[0][0], H * BUCKETS);
    for (int e = 0; e < D; e++)
        CHECK_CLOSE(t.dq[1][0][e], 0, 0); /* row 0 sees no key */
    ir_free(ir);
}

/* Outputs that are not asked for are left out; a seed that is not given is zero. */
TEST(outputs_and_seeds_are_optional)
{
    struct ir *ir = load_spec(BIASED);
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    static struct tensors t;
    attention_inputs(&t);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {
        {"q", t.q, LATHE_F64, 4, Q_SHAPE, NULL},     {"k", t.k, LATHE_F64, 4, K_SHAPE, NULL},
        {"v", t.v, LATHE_F64, 4, V_SHAPE, NULL},     {"table", t.table, LATHE_F64, 2, TABLE_SHAPE, NULL},
        {"do", t.dout, LATHE_F64, 4, O_SHAPE, NULL}, {"dk", t.dk, LATHE_F64, 4, K_SHAPE, NULL},
    };
    CHECK_EQ(host_backward(ir, &sig, args, (int)(sizeof args / sizeof args[0]), &err), LATHE_OK);
    static struct tensors expected;
    expected = t;
    memset(expected.dlse, 0, sizeof expected.dlse);
    by_hand(&expected);
    same(&t.dk[0][0][0], &expected.dk[0][0][0], H_KV * KV * D);
    ir_free(ir);
}

/* Gradients of some rows' seeds: what the formulas give where all other seeds are zero. dq of other rows is
   left alone. */
TEST(seeds_of_some_rows)
{
    enum { LAST = H * Q - 1 };
    static const int64_t chosen[][3] = {{0, 4, LAST}, {5, 6, 7}, {1, 1, 2}, {2, 1, 3}, {0, 1, H * Q}};
    struct ir *ir = load_spec(BIASED);
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    static struct tensors t;
    static struct tensors expected;
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {
        {"q", t.q, LATHE_F64, 4, Q_SHAPE, NULL},     {"k", t.k, LATHE_F64, 4, K_SHAPE, NULL},
        {"v", t.v, LATHE_F64, 4, V_SHAPE, NULL},     {"table", t.table, LATHE_F64, 2, TABLE_SHAPE, NULL},
        {"do", t.dout, LATHE_F64, 4, O_SHAPE, NULL}, {"dlse", t.dlse, LATHE_F64, 3, LSE_SHAPE, NULL},
        {"dq", t.dq, LATHE_F64, 4, Q_SHAPE, NULL},   {"dk", t.dk, LATHE_F64, 4, K_SHAPE, NULL},
        {"dv", t.dv, LATHE_F64, 4, V_SHAPE, NULL},   {"dtable", t.dtable, LATHE_F64, 2, TABLE_SHAPE, NULL},
    };
    const int n = (int)(sizeof args / sizeof args[0]);
    for (int c = 0; c < 2; c++) {
        attention_inputs(&t);
        expected = t;
        for (int row = 0; row < H * Q; row++) {
            if (row == chosen[c][0] || row == chosen[c][1] || row == chosen[c][2])
                continue;
            memset(expected.dout[row / Q][row % Q], 0, sizeof expected.dout[0][0]);
            expected.dlse[row / Q][row % Q] = 0;
        }
        by_hand(&expected);
        for (int row = 0; row < H * Q; row++)
            if (row != chosen[c][0] && row != chosen[c][1] && row != chosen[c][2])
                memset(expected.dq[row / Q][row % Q], 0x55, sizeof expected.dq[0][0]);
        CHECK_EQ(host_backward_rows(ir, &sig, args, n, chosen[c], 3, &err), LATHE_OK);
        same(&t.dq[0][0][0], &expected.dq[0][0][0], H * Q * D);
        same(&t.dk[0][0][0], &expected.dk[0][0][0], H_KV * KV * D);
        same(&t.dv[0][0][0], &expected.dv[0][0][0], H_KV * KV * D_V);
        same(&t.dtable[0][0], &expected.dtable[0][0], H * BUCKETS);
    }
    for (int c = 2; c < 5; c++) {
        CHECK_EQ(host_backward_rows(ir, &sig, args, n, chosen[c], 3, &err), LATHE_ARG);
        CHECK_HAS(err.text, "expected ascending row numbers in 0..11");
    }
    ir_free(ir);
}

/* The gradient of a plain sum is one value with strides of 0. */
TEST(gradient_of_a_plain_sum)
{
    static const int64_t NONE[4] = {0, 0, 0, 0};
    const double one = 1;
    struct ir *ir = load_spec(BIASED);
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    static struct tensors t;
    attention_inputs(&t);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {
        {"q", t.q, LATHE_F64, 4, Q_SHAPE, NULL},
        {"k", t.k, LATHE_F64, 4, K_SHAPE, NULL},
        {"v", t.v, LATHE_F64, 4, V_SHAPE, NULL},
        {"table", t.table, LATHE_F64, 2, TABLE_SHAPE, NULL},
        {"do", (void *)&one, LATHE_F64, 4, O_SHAPE, NONE},
        {"dk", t.dk, LATHE_F64, 4, K_SHAPE, NULL},
    };
    CHECK_EQ(host_backward(ir, &sig, args, (int)(sizeof args / sizeof args[0]), &err), LATHE_OK);
    static struct tensors expected;
    expected = t;
    memset(expected.dlse, 0, sizeof expected.dlse);
    for (int i = 0; i < H * Q * D_V; i++)
        (&expected.dout[0][0][0])[i] = 1;
    by_hand(&expected);
    same(&t.dk[0][0][0], &expected.dk[0][0][0], H_KV * KV * D);
    ir_free(ir);
}

TEST(nothing_wanted_is_refused)
{
    static const char *const SPEC[] = {"causal", "layer_norm", "swiglu"};
    for (size_t k = 0; k < sizeof SPEC / sizeof *SPEC; k++) {
        struct diag diag = {0};
        struct ir *ir = spec_load(SPEC[k], NULL, 0, &diag);
        struct signature sig;
        struct problem problem;
        char text[256] = "dtype=bf16";
        lathe_error err = {.status = LATHE_OK};
        CHECK(ir != NULL);
        signature_make(ir, LATHE_BACKWARD, &sig);
        CHECK_EQ(problem_parse(&sig, text, &problem, &err), LATHE_OK);
        for (int i = 0; i < sig.n_args; i++)
            if (sig.arg[i].role == ROLE_OUT_OPTIONAL)
                snprintf(text + strlen(text), sizeof text - strlen(text), ",%s=none", sig.arg[i].name);
        CHECK_EQ(problem_parse(&sig, text, &problem, &err), LATHE_ARG);
        CHECK_HAS(err.text, "expected a gradient to compute, given none; this pass gives d");
        ir_free(ir);
    }
}

TEST(missing_seed_is_named)
{
    struct ir *ir = load_spec("return attention {}");
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    static struct tensors t;
    attention_inputs(&t);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {
        {"q", t.q, LATHE_F64, 4, Q_SHAPE, NULL},
        {"k", t.k, LATHE_F64, 4, K_SHAPE, NULL},
        {"v", t.v, LATHE_F64, 4, V_SHAPE, NULL},
    };
    CHECK_EQ(host_backward(ir, &sig, args, 3, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'do'");
    ir_free(ir);
}

/* ---- rowwise ----------------------------------------------------------------------------------- */

enum { ROWS = 3, N = 4 };

TEST(rowwise_softmax_with_a_gain)
{
    struct ir *ir = load_spec("return rowwise { inputs = { w = tensor('float', 'n', { grad = true }) },\n"
                              "  forward = function(x, at, p)\n"
                              "    local e = exp(x)\n"
                              "    local l = rowsum(e)\n"
                              "    return p.w(at.i) * e / l, { z = log(l) } end }");
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    double x[ROWS][N];
    double w[N];
    double dy[ROWS][N];
    double dz[ROWS];
    double dx[ROWS][N];
    double dw[N];
    double dw_expected[N] = {0};
    static const int64_t shape[] = {ROWS, N};
    fill(&x[0][0], ROWS * N, 0.7);
    fill(w, N, 0.8);
    fill(&dy[0][0], ROWS * N, 0.9);
    fill(dz, ROWS, 1.0);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {
        {"x", x, LATHE_F64, 2, shape, NULL},   {"w", w, LATHE_F64, 1, shape + 1, NULL},
        {"dy", dy, LATHE_F64, 2, shape, NULL}, {"dz", dz, LATHE_F64, 1, shape, NULL},
        {"dx", dx, LATHE_F64, 2, shape, NULL}, {"dw", dw, LATHE_F64, 1, shape + 1, NULL},
    };
    CHECK_EQ(host_backward(ir, &sig, args, (int)(sizeof args / sizeof args[0]), &err), LATHE_OK);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        double delta = 0;
        for (int j = 0; j < N; j++)
            sum += exp(x[i][j]);
        for (int j = 0; j < N; j++)
            delta += exp(x[i][j]) / sum * w[j] * dy[i][j];
        for (int j = 0; j < N; j++) {
            double p = exp(x[i][j]) / sum;
            CHECK_CLOSE(dx[i][j], p * (w[j] * dy[i][j] - delta + dz[i]), 1e-13);
            dw_expected[j] += p * dy[i][j];
        }
    }
    same(dw, dw_expected, N);
    ir_free(ir);
}

/* Rows along an inner dim are numbered as they lie: x[o][j][r] is element j of row 3 o + r. */
TEST(seeds_of_some_rows_along_an_inner_dim)
{
    enum { O = 2, R = 3, LENGTH = 4 };
    static const int64_t chosen[2] = {1, 5};
    static const int64_t shape[] = {O, LENGTH, R};
    struct ir *ir = load_spec("return rowwise { along = -2, forward = function(x)\n"
                              "  local e = exp(x)\n"
                              "  return e / rowsum(e) end }");
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    double x[O][LENGTH][R];
    double dy[O][LENGTH][R];
    double dx[O][LENGTH][R];
    fill(&x[0][0][0], O * LENGTH * R, 0.3);
    fill(&dy[0][0][0], O * LENGTH * R, 0.4);
    memset(dx, 0, sizeof dx);
    signature_make(ir, LATHE_BACKWARD, &sig);
    const lathe_arg args[] = {{"x", x, LATHE_F64, 3, shape, NULL},
                              {"dy", dy, LATHE_F64, 3, shape, NULL},
                              {"dx", dx, LATHE_F64, 3, shape, NULL}};
    CHECK_EQ(host_backward_rows(ir, &sig, args, 3, chosen, 2, &err), LATHE_OK);
    for (int row = 0; row < O * R; row++) {
        const int o = row / R;
        const int r = row % R;
        double sum = 0;
        double delta = 0;
        for (int j = 0; j < LENGTH; j++)
            sum += exp(x[o][j][r]);
        for (int j = 0; j < LENGTH; j++)
            delta += exp(x[o][j][r]) / sum * dy[o][j][r];
        for (int j = 0; j < LENGTH; j++)
            CHECK_CLOSE(dx[o][j][r],
                        row == chosen[0] || row == chosen[1] ? exp(x[o][j][r]) / sum * (dy[o][j][r] - delta)
                                                             : 0.0,
                        1e-13);
    }
    ir_free(ir);
}
