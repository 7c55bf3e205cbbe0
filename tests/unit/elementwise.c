/*
 * elementwise.c: elementwise specs on the host device against formulas written out here: activations, gated
 * forms, rotary positions, lrpe, sums, gathered inputs; what is refused. Specs are shipped ones or text in
 * the test, which frees what it makes.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *noise(int64_t n, unsigned seed)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    uint64_t state = seed * 2654435761u + 1u;
    if (!v)
        abort();
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v[i] = 3.0 * ((double)(state >> 11) / 4503599627370496.0 - 1.0); /* -3 .. 3 */
    }
    return v;
}

/* A shipped spec by its name, or text. */
/* Status and sentence of a pass on the host device. */
static lathe_status try_pass(const char *spec, lathe_pass pass, const lathe_arg *args, int n,
                             lathe_error *err)
{
    struct signature sig;
    struct ir *ir = load_signed(spec, pass, &sig);
    const lathe_status status = pass == LATHE_FORWARD ? host_forward(ir, &sig, args, n, NULL, 0, err)
                                                      : host_backward(ir, &sig, args, n, err);
    ir_free(ir);
    return status;
}

static void run(const char *spec, lathe_pass pass, const lathe_arg *args, int n)
{
    lathe_error err = {0};
    const lathe_status status = try_pass(spec, pass, args, n, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

static void refuse(const char *spec, const lathe_arg *args, int n, const char *part)
{
    lathe_error err = {0};
    CHECK(try_pass(spec, LATHE_FORWARD, args, n, &err) != LATHE_OK);
    CHECK_HAS(err.text, part);
}

/* ---- activations --------------------------------------------------------------------------------- */

static double f_none(double x)
{
    return x;
}
static double f_relu(double x)
{
    return x < 0.0 ? 0.0 : x;
}
static double f_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
static double f_silu(double x)
{
    return x / (1.0 + exp(-x));
}
static double f_gelu(double x)
{
    return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
}
static double d_none(double x)
{
    (void)x;
    return 1.0;
}
static double d_relu(double x)
{
    return x > 0.0;
}
static double d_sigmoid(double x)
{
    return f_sigmoid(x) * (1.0 - f_sigmoid(x));
}
static double d_silu(double x)
{
    return f_sigmoid(x) * (1.0 + x * (1.0 - f_sigmoid(x)));
}
static double d_gelu(double x)
{
    return 0.5 * (1.0 + erf(x / sqrt(2.0))) + x * exp(-0.5 * x * x) / sqrt(2.0 * 3.14159265358979323846);
}

static const struct activation {
    const char *spec, *gated;
    double (*f)(double x);
    double (*df)(double x);
} ACTIVATIONS[] = {{"act_none", NULL, f_none, d_none},
                   {"act_relu", "reglu", f_relu, d_relu},
                   {"act_sigmoid", "glu", f_sigmoid, d_sigmoid},
                   {"act_silu", "swiglu", f_silu, d_silu},
                   {"act_gelu", "geglu", f_gelu, d_gelu}};
enum { N_ACTIVATIONS = sizeof ACTIVATIONS / sizeof *ACTIVATIONS };

static void check_activation(const struct activation *a, int64_t n)
{
    double *x = noise(n, 1);
    double *dy = noise(n, 2);
    double *y = noise(n, 3);
    double *dx = noise(n, 4);
    run(a->spec, LATHE_FORWARD,
        (lathe_arg[]){{"x", x, LATHE_F64, 1, &n, NULL}, {"y", y, LATHE_F64, 1, &n, NULL}}, 2);
    run(a->spec, LATHE_BACKWARD,
        (lathe_arg[]){{"x", x, LATHE_F64, 1, &n, NULL},
                      {"dy", dy, LATHE_F64, 1, &n, NULL},
                      {"dx", dx, LATHE_F64, 1, &n, NULL}},
        3);
    for (int64_t i = 0; i < n; i++) {
        CHECK_CLOSE(y[i], a->f(x[i]), 1e-14);
        CHECK_CLOSE(dx[i], dy[i] * a->df(x[i]), 1e-13);
    }
    free(x);
    free(dy);
    free(y);
    free(dx);
}

TEST(activations_of_odd_sizes)
{
    static const int64_t sizes[] = {1, 31, 33, 255, 257, 1025, 65537};
    for (int i = 0; i < N_ACTIVATIONS; i++)
        for (int k = 0; k < 7; k++)
            check_activation(&ACTIVATIONS[i], sizes[k]);
}

TEST(activations_keep_what_is_not_finite)
{
    const double inf = (double)INFINITY;
    for (int i = 0; i < N_ACTIVATIONS; i++) {
        double x[] = {(double)NAN, inf, -inf, 1.0, -0.0};
        double y[5] = {7, 7, 7, 7, 7};
        const int64_t n = 5;
        run(ACTIVATIONS[i].spec, LATHE_FORWARD,
            (lathe_arg[]){{"x", x, LATHE_F64, 1, &n, NULL}, {"y", y, LATHE_F64, 1, &n, NULL}}, 2);
        CHECK(isnan(y[0]));
        CHECK(y[1] == (i == 2 ? 1.0 : inf));
        CHECK(i == 0 ? y[2] == -inf : y[2] == 0.0);
        CHECK_CLOSE(y[3], ACTIVATIONS[i].f(1.0), 1e-14);
    }
}

TEST(gated_forms_with_strides)
{
    enum { ROWS = 5, N = 33, GAP = 40 };
    const int64_t shape[] = {ROWS, N};
    const int64_t wide[] = {GAP, 1};
    const int64_t turned[] = {1, ROWS};
    for (int i = 1; i < N_ACTIVATIONS; i++) {
        const struct activation *a = &ACTIVATIONS[i];
        double *gate = noise(ROWS * GAP, 1);
        double *up = noise(ROWS * N, 2);
        double *dy = noise(ROWS * N, 3);
        double *y = noise(ROWS * GAP, 4);
        double *dgate = noise(ROWS * N, 5);
        double *dup = noise(ROWS * GAP, 6);
        const lathe_arg in[] = {{"gate", gate, LATHE_F64, 2, shape, wide},
                                {"up", up, LATHE_F64, 2, shape, turned}};
        run(a->gated, LATHE_FORWARD, (lathe_arg[]){in[0], in[1], {"y", y, LATHE_F64, 2, shape, wide}}, 3);
        run(a->gated, LATHE_BACKWARD,
            (lathe_arg[]){in[0],
                          in[1],
                          {"dy", dy, LATHE_F64, 2, shape, NULL},
                          {"dgate", dgate, LATHE_F64, 2, shape, turned},
                          {"dup", dup, LATHE_F64, 2, shape, wide}},
            5);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < N; c++) {
                const double g = gate[r * GAP + c];
                const double u = up[c * ROWS + r];
                const double seed = dy[r * N + c];
                CHECK_CLOSE(y[r * GAP + c], a->f(g) * u, 1e-13);
                CHECK_CLOSE(dgate[c * ROWS + r], seed * u * a->df(g), 1e-12);
                CHECK_CLOSE(dup[r * GAP + c], seed * a->f(g), 1e-12);
            }
        free(gate), free(up), free(dy), free(y), free(dgate), free(dup);
    }
}

/* ---- rotary positions ---------------------------------------------------------------------------- */

enum { B = 2, T = 7, D = 10 };

/* [b, t, h, d], by the definition: the other half of the pair is D / 2 away, or next to it. */
static void rotate(const double *in, double *out, int heads, bool interleaved, const double *position,
                   double sign)
{
    for (int i = 0; i < B * T * heads; i++)
        for (int k = 0; k < D / 2; k++) {
            const double angle = sign * position[i / heads] * pow(10000.0, -2.0 * k / D);
            const int lo = i * D + (interleaved ? 2 * k : k);
            const int hi = lo + (interleaved ? 1 : D / 2);
            out[lo] = in[lo] * cos(angle) - in[hi] * sin(angle);
            out[hi] = in[hi] * cos(angle) + in[lo] * sin(angle);
        }
}

static void compare(const double *given, const double *wanted, int64_t n, double bound)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_CLOSE(given[i], wanted[i], bound);
}

static void check_rope(const char *spec, bool interleaved, bool given)
{
    enum { H = 3, H_KV = 1 };
    const int64_t qs[] = {B, T, H, D};
    const int64_t ks[] = {B, T, H_KV, D};
    const int64_t ps[] = {B, T};
    double *q = noise(B * T * H * D, 1);
    double *k = noise(B * T * H_KV * D, 2);
    double *dq = noise(B * T * H * D, 3);
    double *dk = noise(B * T * H_KV * D, 4);
    double wanted[B * T * H * D];
    double position[B * T];
    int32_t pos[B * T];
    int32_t offset = 5;
    for (int i = 0; i < B * T; i++) {
        pos[i] = 100 - 7 * i;
        position[i] = given ? pos[i] : i % T + offset;
    }
    const lathe_arg more[] = {{"offset", &offset, LATHE_I32, 0, NULL, NULL},
                              {"pos", pos, LATHE_I32, 2, ps, NULL}};
    /* backward first: q and k are not read; the rotation by the opposite angle */
    double *gq = noise(B * T * H * D, 5);
    double *gk = noise(B * T * H_KV * D, 6);
    run(spec, LATHE_BACKWARD,
        (lathe_arg[]){{"dq_out", dq, LATHE_F64, 4, qs, NULL},
                      {"dk_out", dk, LATHE_F64, 4, ks, NULL},
                      {"dq", gq, LATHE_F64, 4, qs, NULL},
                      {"dk", gk, LATHE_F64, 4, ks, NULL},
                      more[0],
                      more[1]},
        given ? 6 : 5);
    rotate(dq, wanted, H, interleaved, position, -1.0);
    compare(gq, wanted, B * T * H * D, 1e-12);
    rotate(dk, wanted, H_KV, interleaved, position, -1.0);
    compare(gk, wanted, B * T * H_KV * D, 1e-12);
    rotate(q, wanted, H, interleaved, position, 1.0); /* q in place, k not */
    run(spec, LATHE_FORWARD,
        (lathe_arg[]){{"q", q, LATHE_F64, 4, qs, NULL},
                      {"k", k, LATHE_F64, 4, ks, NULL},
                      {"k_out", gk, LATHE_F64, 4, ks, NULL},
                      more[0],
                      more[1]},
        given ? 5 : 4);
    compare(q, wanted, B * T * H * D, 1e-12);
    rotate(k, wanted, H_KV, interleaved, position, 1.0);
    compare(gk, wanted, B * T * H_KV * D, 1e-12);
    free(q), free(k), free(dq), free(dk), free(gq), free(gk);
}

TEST(rope_of_halves_and_of_neighbours)
{
    check_rope("rope_half", false, true);
    check_rope("rope_half", false, false);
    check_rope("rope_interleaved", true, true);
    check_rope("rope_interleaved", true, false);
}

TEST(a_pair_needs_an_even_dim)
{
    const int64_t odd[] = {1, 1, 1, 9};
    const int64_t even[] = {1, 1, 1, 8};
    double *q = noise(9, 1);
    double *k = noise(8, 2);
    refuse("rope_half", (lathe_arg[]){{"q", q, LATHE_F64, 4, odd, NULL}, {"k", k, LATHE_F64, 4, even, NULL}},
           2, "expected shape [(b=1,t=1,h=1),2*i]");
    refuse("rope_half", (lathe_arg[]){{"k", k, LATHE_F64, 4, even, NULL}, {"q", q, LATHE_F64, 4, odd, NULL}},
           2, "argument 'q': expected shape [(b=1,t=1,h=1),2*i=4]");
    free(q), free(k);
}

/* ---- lrpe ---------------------------------------------------------------------------------------- */

/* <q_s, k_t> after lrpe is sum of q k cos((s - t) theta): of positions only their difference matters. */
TEST(lrpe_scores_depend_on_distance)
{
    enum { N = 6, F = 5 };
    const int64_t in[] = {1, 1, N, F};
    const int64_t out[] = {1, 1, N, 2 * F};
    const int64_t th[] = {1, F};
    double *q = noise(N * F, 1);
    double *k = noise(N * F, 2);
    double *theta = noise(F, 3);
    double *lq = noise(N * 2 * F, 4);
    double *lk = noise(N * 2 * F, 5);
    int32_t offset = 11;
    const lathe_arg more[] = {{"theta", theta, LATHE_F64, 2, th, NULL},
                              {"offset", &offset, LATHE_I32, 0, NULL, NULL}};
    run("lrpe", LATHE_FORWARD,
        (lathe_arg[]){{"x", q, LATHE_F64, 4, in, NULL}, {"y", lq, LATHE_F64, 4, out, NULL}, more[0], more[1]},
        4);
    run("lrpe", LATHE_FORWARD,
        (lathe_arg[]){{"x", k, LATHE_F64, 4, in, NULL}, {"y", lk, LATHE_F64, 4, out, NULL}, more[0]}, 3);
    for (int s = 0; s < N; s++)
        for (int t = 0; t < N; t++) {
            double given = 0.0;
            double wanted = 0.0;
            for (int f = 0; f < 2 * F; f++)
                given += lq[s * 2 * F + f] * lk[t * 2 * F + f];
            for (int f = 0; f < F; f++)
                wanted += q[s * F + f] * k[t * F + f] * cos((s + offset - t) * theta[f]);
            CHECK_CLOSE(given, wanted, 1e-12);
        }
    free(q), free(k), free(theta), free(lq), free(lk);
}

/* Gradients by the formulas of the definition, with an activation. */
TEST(lrpe_gradients_of_x_and_theta)
{
    enum { BB = 2, H = 3, N = 4, F = 5 };
    const int64_t in[] = {BB, H, N, F};
    const int64_t out[] = {BB, H, N, 2 * F};
    const int64_t th[] = {H, F};
    double *x = noise(BB * H * N * F, 1);
    double *theta = noise(H * F, 2);
    double *dy = noise(BB * H * N * 2 * F, 3);
    double *dx = noise(BB * H * N * F, 4);
    double *dtheta = noise(H * F, 5);
    double wanted[H * F] = {0};
    run("lrpe_silu", LATHE_BACKWARD,
        (lathe_arg[]){{"x", x, LATHE_F64, 4, in, NULL},
                      {"dy", dy, LATHE_F64, 4, out, NULL},
                      {"dx", dx, LATHE_F64, 4, in, NULL},
                      {"theta", theta, LATHE_F64, 2, th, NULL},
                      {"dtheta", dtheta, LATHE_F64, 2, th, NULL}},
        5);
    for (int i = 0; i < BB * H * N; i++)
        for (int f = 0; f < F; f++) {
            const int s = i % N;
            const int h = i / N % H;
            const double angle = s * theta[h * F + f];
            const double a = f_silu(x[i * F + f]);
            const double dc = dy[i * 2 * F + f];
            const double ds = dy[i * 2 * F + F + f];
            CHECK_CLOSE(dx[i * F + f], (dc * cos(angle) + ds * sin(angle)) * d_silu(x[i * F + f]), 1e-12);
            wanted[h * F + f] += s * a * (ds * cos(angle) - dc * sin(angle));
        }
    compare(dtheta, wanted, H * F, 1e-12);
    free(x), free(theta), free(dy), free(dx), free(dtheta);
}

/* A (2, 3) grid after l = 2 tokens: row-major, axis 0 has the first features; 2 * 3 features for d = 5. */
TEST(md_lrpe_on_a_grid)
{
    enum { L = 2, N = L + 6, F = 5, E = 3 };
    const int64_t in[] = {1, 1, N, F};
    const int64_t out[] = {1, 1, N, 2 * F};
    const int64_t th[] = {1, E};
    double *x = noise(N * F, 1);
    double *theta = noise(E, 2);
    double *y = noise(N * 2 * F, 3);
    int32_t l = L;
    int32_t n_2 = 3;
    run("md_lrpe_2d", LATHE_FORWARD,
        (lathe_arg[]){{"x", x, LATHE_F64, 4, in, NULL},
                      {"y", y, LATHE_F64, 4, out, NULL},
                      {"theta", theta, LATHE_F64, 2, th, NULL},
                      {"l", &l, LATHE_I32, 0, NULL, NULL},
                      {"n_2", &n_2, LATHE_I32, 0, NULL, NULL}},
        5);
    for (int s = 0; s < N; s++)
        for (int f = 0; f < F; f++) {
            const int index = s < L ? 0 : f < E ? (s - L) / 3 : (s - L) % 3;
            CHECK_CLOSE(y[s * 2 * F + f], x[s * F + f] * cos(index * theta[f % E]), 1e-13);
            CHECK_CLOSE(y[s * 2 * F + F + f], x[s * F + f] * sin(index * theta[f % E]), 1e-13);
        }
    free(x), free(theta), free(y);
}

TEST(md_lrpe_of_three_axes)
{
    enum { N = 2 * 3 * 4, F = 7, E = 3 };
    const int64_t in[] = {1, 1, N, F};
    const int64_t out[] = {1, 1, N, 2 * F};
    const int64_t th[] = {1, E};
    double *x = noise(N * F, 1);
    double *theta = noise(E, 2);
    double *y = noise(N * 2 * F, 3);
    int32_t n_2 = 3;
    int32_t n_3 = 4;
    run("md_lrpe_3d", LATHE_FORWARD,
        (lathe_arg[]){{"x", x, LATHE_F64, 4, in, NULL},
                      {"y", y, LATHE_F64, 4, out, NULL},
                      {"theta", theta, LATHE_F64, 2, th, NULL},
                      {"n_2", &n_2, LATHE_I32, 0, NULL, NULL},
                      {"n_3", &n_3, LATHE_I32, 0, NULL, NULL}},
        5);
    for (int s = 0; s < N; s++)
        for (int f = 0; f < F; f++) {
            const int index[] = {s / 12, s / 4 % 3, s % 4};
            CHECK_CLOSE(y[s * 2 * F + f], x[s * F + f] * cos(index[f / E] * theta[f % E]), 1e-13);
        }
    free(x), free(theta), free(y);
}

/* Softmax over the tokens by lse: the gradient of x and that through lse together are those of the softmax.
 */
TEST(lrpe_with_softmax_over_tokens)
{
    enum { N = 6, F = 3 };
    const int64_t in[] = {1, 1, N, F};
    const int64_t out[] = {1, 1, N, 2 * F};
    const int64_t th[] = {1, F};
    const int64_t stat[] = {1, 1, F};
    double *x = noise(N * F, 1);
    double *theta = noise(F, 2);
    double *dy = noise(N * 2 * F, 3);
    double *y = noise(N * 2 * F, 4);
    double *dx = noise(N * F, 5);
    double lse[F];
    double dlse[F];
    for (int f = 0; f < F; f++) {
        double sum = 0.0;
        for (int s = 0; s < N; s++)
            sum += exp(x[s * F + f]);
        lse[f] = log(sum);
    }
    const lathe_arg common[] = {{"x", x, LATHE_F64, 4, in, NULL},
                                {"lse", lse, LATHE_F64, 3, stat, NULL},
                                {"theta", theta, LATHE_F64, 2, th, NULL}};
    run("lrpe_softmax_n", LATHE_FORWARD,
        (lathe_arg[]){common[0], common[1], common[2], {"y", y, LATHE_F64, 4, out, NULL}}, 4);
    run("lrpe_softmax_n", LATHE_BACKWARD,
        (lathe_arg[]){common[0],
                      common[1],
                      common[2],
                      {"dy", dy, LATHE_F64, 4, out, NULL},
                      {"dx", dx, LATHE_F64, 4, in, NULL},
                      {"dlse", dlse, LATHE_F64, 3, stat, NULL}},
        6);
    for (int f = 0; f < F; f++) {
        double mean = 0.0;
        for (int s = 0; s < N; s++) {
            const double p = exp(x[s * F + f] - lse[f]);
            const double dp =
                dy[s * 2 * F + f] * cos(s * theta[f]) + dy[s * 2 * F + F + f] * sin(s * theta[f]);
            CHECK_CLOSE(y[s * 2 * F + f], p * cos(s * theta[f]), 1e-13);
            mean += p * dp;
        }
        for (int s = 0; s < N; s++) {
            const double p = exp(x[s * F + f] - lse[f]);
            const double dp =
                dy[s * 2 * F + f] * cos(s * theta[f]) + dy[s * 2 * F + F + f] * sin(s * theta[f]);
            CHECK_CLOSE(dx[s * F + f] + dlse[f] * p, p * (dp - mean), 1e-12); /* d lse / d x = p */
        }
    }
    free(x), free(theta), free(dy), free(y), free(dx);
}

/* ---- sums, gathers ------------------------------------------------------------------------------- */

static const char EMBEDDING[] =
    "return elementwise { over = { 't', 'd' },\n"
    "  inputs = { table = tensor('float', 'words', 'd', { grad = true }), id = tensor('i32', 't') },\n"
    "  results = { y = tensor('float') },\n"
    "  forward = function(v, at, x) return x.table(x.id(at.t), at.d) end }";

TEST(rows_of_a_table_and_their_gradient)
{
    const int64_t table_shape[] = {4, 3};
    const int64_t y_shape[] = {5, 3};
    const int64_t id_shape[] = {5};
    int32_t id[] = {2, 0, 2, 3, 2};
    double *table = noise(12, 1);
    double *dy = noise(15, 2);
    double *y = noise(15, 3);
    double *dtable = noise(12, 4);
    double wanted[12] = {0};
    const lathe_arg in[] = {{"table", table, LATHE_F64, 2, table_shape, NULL},
                            {"id", id, LATHE_I32, 1, id_shape, NULL}};
    run(EMBEDDING, LATHE_FORWARD, (lathe_arg[]){in[0], in[1], {"y", y, LATHE_F64, 2, y_shape, NULL}}, 3);
    run(EMBEDDING, LATHE_BACKWARD,
        (lathe_arg[]){in[0],
                      in[1],
                      {"dy", dy, LATHE_F64, 2, y_shape, NULL},
                      {"dtable", dtable, LATHE_F64, 2, table_shape, NULL}},
        4);
    for (int i = 0; i < 15; i++) {
        CHECK(y[i] == table[id[i / 3] * 3 + i % 3]);
        wanted[id[i / 3] * 3 + i % 3] += dy[i];
    }
    compare(dtable, wanted, 12, 1e-14);
    id[3] = 4;
    refuse(EMBEDDING, (lathe_arg[]){in[0], in[1], {"y", y, LATHE_F64, 2, y_shape, NULL}}, 3,
           "t.lua:4: table: index 4 of dim 0 (words) is outside 0..3");
    free(table), free(dy), free(y), free(dtable);
}

static const char NORMS[] =
    "return elementwise { over = { 'rows', 'n' },\n"
    "  operands = { x = tensor('float'), w = tensor('float', 'n') },\n"
    "  results = { square = tensor('f32', 'rows'), column = tensor('f32', 'n'), y = tensor('float', 'n', "
    "'rows') },\n"
    "  forward = function(v) return { square = v.x * v.x, column = v.x * v.w, y = v.x + v.w } end }";

TEST(results_that_lack_dims_are_sums)
{
    enum { ROWS = 4, N = 7 };
    const int64_t shape[] = {ROWS, N};
    const int64_t turned[] = {N, ROWS};
    const int64_t n = N;
    const int64_t rows = ROWS;
    double *x = noise(ROWS * N, 1);
    double *w = noise(N, 2);
    double *y = noise(ROWS * N, 3);
    double square[ROWS];
    double column[N];
    double wanted_row[ROWS] = {0};
    double wanted[N] = {0};
    double *dsquare = noise(ROWS, 4);
    double *dw = noise(N, 5);
    double dw_wanted[N] = {0};
    double *dx = noise(ROWS * N, 6);
    const lathe_arg in[] = {{"x", x, LATHE_F64, 2, shape, NULL}, {"w", w, LATHE_F64, 1, &n, NULL}};
    run(NORMS, LATHE_FORWARD,
        (lathe_arg[]){in[0],
                      in[1],
                      {"square", square, LATHE_F64, 1, &rows, NULL},
                      {"column", column, LATHE_F64, 1, &n, NULL},
                      {"y", y, LATHE_F64, 2, turned, NULL}},
        5);
    run(NORMS, LATHE_BACKWARD, /* seeds that are left out are 0 */
        (lathe_arg[]){in[0],
                      in[1],
                      {"dsquare", dsquare, LATHE_F64, 1, &rows, NULL},
                      {"dcolumn", w, LATHE_F64, 1, &n, NULL},
                      {"dw", dw, LATHE_F64, 1, &n, NULL},
                      {"dx", dx, LATHE_F64, 2, shape, NULL}},
        6);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < N; c++) {
            const double v = x[r * N + c];
            CHECK(y[c * ROWS + r] == v + w[c]);
            wanted_row[r] += v * v;
            wanted[c] += v * w[c];
            dw_wanted[c] += v * w[c];
            CHECK_CLOSE(dx[r * N + c], 2.0 * v * dsquare[r] + w[c] * w[c], 1e-13);
        }
    compare(square, wanted_row, ROWS, 1e-13);
    compare(column, wanted, N, 1e-13);
    compare(dw, dw_wanted, N, 1e-13);
    free(x), free(w), free(y), free(dsquare), free(dw), free(dx);
}

/* ---- what is refused ----------------------------------------------------------------------------- */

TEST(memory_in_common_is_declared)
{
    const int64_t n = 8;
    double *x = noise(8, 1);
    double *u = noise(8, 2);
    const lathe_arg gate = {"gate", x, LATHE_F64, 1, &n, NULL};
    const lathe_arg up = {"up", u, LATHE_F64, 1, &n, NULL};
    refuse("swiglu", (lathe_arg[]){gate, up, {"y", u, LATHE_F64, 1, &n, NULL}}, 3,
           "argument 'y': expected memory of its own, given some of that of 'up'");
    run("act_silu", LATHE_FORWARD,
        (lathe_arg[]){{"x", x, LATHE_F64, 1, &n, NULL}, {"y", x, LATHE_F64, 1, &n, NULL}}, 2);
    refuse("swiglu", (lathe_arg[]){gate, {"y", u, LATHE_F64, 1, &n, NULL}}, 2, "argument 'up': missing");
    const lathe_arg late = {"y", x + 1, LATHE_F64, 1, &n, NULL};
    refuse("act_silu", (lathe_arg[]){{"x", x, LATHE_F64, 1, &n, NULL}, late}, 2, "given some of that of 'x'");
    free(x), free(u);
}
