/*
 * row_ops.c: the row-wise operators against formulas written out by hand in double precision, forward and
 * backward, on the host device. Nothing here goes through the evaluator: the formulas are those of the
 * literature, with the sums over rows of every parameter.
 */
#include "check.h"

#include "gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_MAX = 24, MAX_SIZE = 8192 };

/* ---- a call ------------------------------------------------------------------------------------------ */

struct call {
    struct ir *ir;
    int n;
    lathe_arg arg[ARGS_MAX];
    int64_t shape[ARGS_MAX][MAX_DIMS];
    double *data[ARGS_MAX];
    bool is_result[ARGS_MAX]; /* of the forward pass, and read by the backward pass only if `is_saved` */
    bool is_gradient[ARGS_MAX];
    bool is_saved[ARGS_MAX];
};

enum role { GIVEN, RESULT, SAVED, GRADIENT, SEED };

static void open_call(struct call *c, const char *spec)
{
    struct diag diag = {0};
    memset(c, 0, sizeof *c);
    c->ir = spec_load(spec, NULL, 0, &diag);
    CHECK_STR(diag.n > 0 ? diag.entry[0].text : "", "");
}

static void close_call(struct call *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->data[i]);
    ir_free(c->ir);
}

/* A tensor of doubles with some values; shape ends at 0. */
static double *add(struct call *c, const char *name, enum role role, const int64_t *shape, int ndim)
{
    int64_t count = 1;
    const int k = c->n++;
    CHECK(k < ARGS_MAX);
    for (int i = 0; i < ndim; i++)
        count *= c->shape[k][i] = shape[i];
    double *data = calloc((size_t)count + 1, sizeof *data);
    CHECK(data != NULL && count <= MAX_SIZE);
    for (int64_t i = 0; i < count; i++)
        data[i] = role == RESULT || role == SAVED || role == GRADIENT ? 1e300
                                                                      : 1.5 * sin(1.0 + 1.7 * (double)i + k);
    c->data[k] = data;
    c->arg[k] = (lathe_arg){name, data, LATHE_F64, ndim, c->shape[k], NULL};
    c->is_result[k] = role == RESULT || role == SAVED;
    c->is_saved[k] = role == SAVED;
    c->is_gradient[k] = role == GRADIENT || role == SEED;
    return data;
}

static double *vector(struct call *c, const char *name, enum role role, int64_t n)
{
    return add(c, name, role, &n, 1);
}

static double *rows(struct call *c, const char *name, enum role role, int64_t n_rows, int64_t n)
{
    const int64_t shape[] = {n_rows, n};
    return add(c, name, role, shape, 2);
}

static void scalar(struct call *c, const char *name, double value)
{
    *add(c, name, GIVEN, NULL, 0) = value;
}

static void run(const struct call *c, lathe_pass pass)
{
    struct signature sig;
    lathe_arg arg[ARGS_MAX];
    lathe_error err = {.status = LATHE_OK};
    int n = 0;
    signature_make(c->ir, pass, &sig);
    for (int i = 0; i < c->n; i++) {
        const bool here = pass == LATHE_FORWARD ? !c->is_gradient[i] : !c->is_result[i] || c->is_saved[i];
        if (here)
            arg[n++] = c->arg[i];
    }
    const lathe_status status = pass == LATHE_FORWARD ? host_forward(c->ir, &sig, arg, n, NULL, 0, &err)
                                                      : host_backward(c->ir, &sig, arg, n, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

static void same(const double *given, const double *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_CLOSE(given[i], expected[i], 1e-11 * (1.0 + fabs(expected[i])));
}

static double *whole(struct call *c, const char *name, double value)
{
    double *data = add(c, name, GIVEN, NULL, 0);
    *(int32_t *)(void *)data = (int32_t)value;
    c->arg[c->n - 1].dtype = LATHE_I32;
    return data;
}

static const int SIZES[][2] = {{1, 1}, {3, 31}, {2, 33}, {7, 255}, {5, 257}, {2, 1025}}; /* rows, n */
enum { N_SIZES = (int)(sizeof SIZES / sizeof *SIZES) };

/* ---- softmax ------------------------------------------------------------------------------------------ */

static double lse_of(const double *x, int n)
{
    double m = -(double)INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++)
        m = fmax(m, x[i]);
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - m);
    return m + log(sum);
}

/* dx = y (dy - sum y dy) */
TEST(softmax)
{
    for (int s = 0; s < N_SIZES; s++) {
        const int r = SIZES[s][0];
        const int n = SIZES[s][1];
        struct call c;
        double expected[MAX_SIZE];
        double expected_dx[MAX_SIZE];
        open_call(&c, "softmax");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int k = 0; k < r * n; k += n) {
            const double lse = lse_of(x + k, n);
            double dot = 0;
            for (int i = k; i < k + n; i++)
                dot += (expected[i] = exp(x[i] - lse)) * dy[i];
            for (int i = k; i < k + n; i++)
                expected_dx[i] = expected[i] * (dy[i] - dot);
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, expected, (int64_t)r * n);
        same(dx, expected_dx, (int64_t)r * n);
        close_call(&c);
    }
}

/* dx = dy - e^y (sum dy - dlse) */
TEST(log_softmax)
{
    for (int s = 0; s < N_SIZES; s++) {
        const int r = SIZES[s][0];
        const int n = SIZES[s][1];
        struct call c;
        double expected[MAX_SIZE];
        double expected_dx[MAX_SIZE];
        double expected_lse[16];
        open_call(&c, "log_softmax");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *dlse = vector(&c, "dlse", SEED, r);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *lse = vector(&c, "lse", SAVED, r);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int k = 0; k < r; k++) {
            double sum = 0;
            expected_lse[k] = lse_of(x + k * n, n);
            for (int i = k * n; i < (k + 1) * n; i++)
                sum += dy[i];
            for (int i = k * n; i < (k + 1) * n; i++) {
                expected[i] = x[i] - expected_lse[k];
                expected_dx[i] = dy[i] - exp(expected[i]) * (sum - dlse[k]);
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, expected, (int64_t)r * n);
        same(lse, expected_lse, r);
        same(dx, expected_dx, (int64_t)r * n);
        close_call(&c);
    }
}

/* ---- norms -------------------------------------------------------------------------------------------- */

/* m = dy (w + offset); dx = rstd m - x rstd^3 sum(m x) / n; dw = sum over rows of dy x rstd */
TEST(rms_norm)
{
    for (int s = 0; s < 2 * N_SIZES; s++) {
        const int r = SIZES[s / 2][0];
        const int n = SIZES[s / 2][1];
        const double offset = s % 2; /* 1: Gemma's form */
        struct call c;
        double y_want[MAX_SIZE];
        double dx_want[MAX_SIZE];
        double dw_want[MAX_SIZE] = {0};
        open_call(&c, "rms_norm");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *w = vector(&c, "weight", GIVEN, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *rstd_given = vector(&c, "rstd", SAVED, r);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        const double *dw = vector(&c, "dweight", GRADIENT, n);
        scalar(&c, "offset", offset);
        scalar(&c, "eps", 1e-6);
        for (int k = 0; k < r; k++) {
            double square = 0;
            double dot = 0;
            for (int i = 0; i < n; i++) {
                square += x[k * n + i] * x[k * n + i];
                dot += dy[k * n + i] * (w[i] + offset) * x[k * n + i];
            }
            const double rstd = 1 / sqrt(square / n + 1e-6);
            for (int i = 0; i < n; i++) {
                const int at = k * n + i;
                y_want[at] = (offset + w[i]) * x[at] * rstd;
                dx_want[at] = rstd * dy[at] * (w[i] + offset) - x[at] * rstd * rstd * rstd * dot / n;
                dw_want[i] += dy[at] * x[at] * rstd;
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, y_want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        same(dw, dw_want, n);
        CHECK(rstd_given[0] > 0);
        close_call(&c);
    }
}

/* u = w dy; dx = (u - x^ mean(u x^) - mean(u)) rstd; dw = sum dy x^; db = sum dy */
TEST(layer_norm)
{
    for (int s = 0; s < N_SIZES; s++) {
        const int r = SIZES[s][0];
        const int n = SIZES[s][1];
        struct call c;
        double y_want[MAX_SIZE];
        double dx_want[MAX_SIZE];
        double dw_want[MAX_SIZE] = {0};
        double db_want[MAX_SIZE] = {0};
        open_call(&c, "layer_norm");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *w = vector(&c, "weight", GIVEN, n);
        const double *b = vector(&c, "bias", GIVEN, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        const double *dw = vector(&c, "dweight", GRADIENT, n);
        const double *db = vector(&c, "dbias", GRADIENT, n);
        scalar(&c, "eps", 1e-5);
        for (int k = 0; k < r; k++) {
            const double *row = x + k * n;
            double mean = 0;
            double var = 0;
            double c1 = 0;
            double c2 = 0;
            for (int i = 0; i < n; i++)
                mean += row[i] / n;
            for (int i = 0; i < n; i++)
                var += (row[i] - mean) * (row[i] - mean) / n;
            const double rstd = 1 / sqrt(var + 1e-5);
            for (int i = 0; i < n; i++) {
                c1 += w[i] * dy[k * n + i] * (row[i] - mean) * rstd / n;
                c2 += w[i] * dy[k * n + i] / n;
            }
            for (int i = 0; i < n; i++) {
                const int at = k * n + i;
                const double normal = (row[i] - mean) * rstd;
                y_want[at] = w[i] * normal + b[i];
                dx_want[at] = (w[i] * dy[at] - normal * c1 - c2) * rstd;
                dw_want[i] += dy[at] * normal;
                db_want[i] += dy[at];
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, y_want, (int64_t)r * n);
        if (n > 1) /* of one element the terms cancel, times rstd^3 of eps alone */
            same(dx, dx_want, (int64_t)r * n);
        same(dw, dw_want, n);
        same(db, db_want, n);
        close_call(&c);
    }
}

/* The sum of two tensors, then rms_norm: both get the gradient of the norm, plus what comes through the sum.
 */
TEST(rms_norm_residual)
{
    for (int s = 0; s < N_SIZES; s++) {
        const int r = SIZES[s][0];
        const int n = SIZES[s][1];
        struct call c;
        double y_want[MAX_SIZE];
        double sum_want[MAX_SIZE];
        double dx_want[MAX_SIZE];
        double dw_want[MAX_SIZE] = {0};
        open_call(&c, "rms_norm_residual");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *residual = rows(&c, "residual", GIVEN, r, n);
        const double *w = vector(&c, "weight", GIVEN, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *dsum = rows(&c, "dsum", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *sum = rows(&c, "sum", SAVED, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        const double *dresidual = rows(&c, "dresidual", GRADIENT, r, n);
        const double *dw = vector(&c, "dweight", GRADIENT, n);
        scalar(&c, "eps", 1e-2);
        for (int k = 0; k < r; k++) {
            double square = 0;
            double dot = 0;
            for (int at = k * n; at < (k + 1) * n; at++) {
                sum_want[at] = x[at] + residual[at];
                square += sum_want[at] * sum_want[at];
                dot += dy[at] * w[at % n] * sum_want[at];
            }
            const double rstd = 1 / sqrt(square / n + 1e-2);
            for (int at = k * n; at < (k + 1) * n; at++) {
                y_want[at] = w[at % n] * sum_want[at] * rstd;
                dx_want[at] =
                    rstd * dy[at] * w[at % n] - sum_want[at] * rstd * rstd * rstd * dot / n + dsum[at];
                dw_want[at % n] += dy[at] * sum_want[at] * rstd;
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, y_want, (int64_t)r * n);
        same(sum, sum_want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        same(dresidual, dx_want, (int64_t)r * n);
        same(dw, dw_want, n);
        close_call(&c);
    }
}

/* layer_norm of a sum is layer_norm of one tensor. */
TEST(layer_norm_residual)
{
    enum { R = 3, N = 33 };
    struct call c;
    struct call one;
    open_call(&c, "layer_norm_residual");
    open_call(&one, "layer_norm");
    const double *x = rows(&c, "x", GIVEN, R, N);
    const double *residual = rows(&c, "residual", GIVEN, R, N);
    double *total = rows(&one, "x", GIVEN, R, N);
    static const struct {
        const char *name;
        enum role role;
        bool row;
    } SHARED[] = {{"weight", GIVEN, false},     {"bias", GIVEN, false},    {"dy", SEED, true},
                  {"y", RESULT, true},          {"dx", GRADIENT, true},    {"mean", SAVED, false},
                  {"dweight", GRADIENT, false}, {"dbias", GRADIENT, false}};
    const double *result[2][8];
    for (int i = 0; i < 8; i++) {
        const int64_t wide = strcmp(SHARED[i].name, "mean") == 0 ? R : N;
        for (int which = 0; which < 2; which++) {
            struct call *to = which ? &c : &one;
            double *data = SHARED[i].row ? rows(to, SHARED[i].name, SHARED[i].role, R, N)
                                         : vector(to, SHARED[i].name, SHARED[i].role, wide);
            for (int64_t k = 0;
                 SHARED[i].role == GIVEN || SHARED[i].role == SEED ? k < (SHARED[i].row ? R * N : wide) : 0;
                 k++)
                data[k] = cos(0.3 * (double)k + i);
            result[which][i] = data;
        }
    }
    for (int i = 0; i < R * N; i++)
        total[i] = x[i] + residual[i];
    for (int pass = 0; pass < 2; pass++) {
        run(&c, pass ? LATHE_BACKWARD : LATHE_FORWARD);
        run(&one, pass ? LATHE_BACKWARD : LATHE_FORWARD);
    }
    for (int i = 0; i < 8; i++)
        same(result[1][i], result[0][i], SHARED[i].row ? R * N : strcmp(SHARED[i].name, "mean") == 0 ? R : N);
    close_call(&c);
    close_call(&one);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* A gate before the norm (u = x silu(g), y = w u rstd) or after it (y = w x rstd silu(g)). */
static void check_gate(const char *spec, bool before)
{
    enum { R = 3, N = 31 };
    struct call c;
    double want[R * N];
    double dx_want[R * N];
    double dg_want[R * N];
    double dw_want[N] = {0};
    open_call(&c, spec);
    const double *x = rows(&c, "x", GIVEN, R, N);
    const double *g = rows(&c, "gate", GIVEN, R, N);
    const double *w = vector(&c, "weight", GIVEN, N);
    const double *dy = rows(&c, "dy", SEED, R, N);
    const double *y = rows(&c, "y", RESULT, R, N);
    const double *dx = rows(&c, "dx", GRADIENT, R, N);
    const double *dg = rows(&c, "dgate", GRADIENT, R, N);
    const double *dw = vector(&c, "dweight", GRADIENT, N);
    scalar(&c, "eps", 1e-3);
    for (int k = 0; k < R * N; k += N) {
        double square = 0;
        double dot = 0;
        double u[N];
        double silu[N];
        for (int i = 0; i < N; i++) {
            silu[i] = g[k + i] * sigmoid(g[k + i]);
            u[i] = before ? x[k + i] * silu[i] : x[k + i];
            square += u[i] * u[i];
            dot += dy[k + i] * (before ? 1 : silu[i]) * w[i] * u[i];
        }
        const double rstd = 1 / sqrt(square / N + 1e-3);
        for (int i = 0; i < N; i++) {
            const int at = k + i;
            const double slope = sigmoid(g[at]) * (1 + g[at] * (1 - sigmoid(g[at])));
            const double m = dy[at] * w[i] * (before ? 1 : silu[i]);
            const double du = rstd * m - u[i] * rstd * rstd * rstd * dot / N;
            want[at] = w[i] * u[i] * rstd * (before ? 1 : silu[i]);
            dx_want[at] = before ? du * silu[i] : du;
            dg_want[at] = before ? du * x[at] * slope : dy[at] * w[i] * u[i] * rstd * slope;
            dw_want[i] += dy[at] * u[i] * rstd * (before ? 1 : silu[i]);
        }
    }
    run(&c, LATHE_FORWARD);
    run(&c, LATHE_BACKWARD);
    same(y, want, R * N);
    same(dx, dx_want, R * N);
    same(dg, dg_want, R * N);
    same(dw, dw_want, N);
    close_call(&c);
}

TEST(gates_before_and_after_a_norm)
{
    check_gate("gate_rms_norm", true);
    check_gate("rms_norm_gate", false);
}

/* y = x r with r = 1 / sqrt(scale sum x^2 + eps): dx = r dy - x r^3 scale sum(x dy) */
static void check_bare_norm(const char *spec, bool mean)
{
    for (int s = 0; s < N_SIZES; s++) {
        const int r = SIZES[s][0];
        const int n = SIZES[s][1];
        const double scale = mean ? 1.0 / n : 1.0;
        struct call c;
        double y_want[MAX_SIZE];
        double dx_want[MAX_SIZE];
        open_call(&c, spec);
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        scalar(&c, "eps", 1e-3);
        for (int k = 0; k < r * n; k += n) {
            double square = 0;
            double dot = 0;
            for (int i = k; i < k + n; i++) {
                square += x[i] * x[i];
                dot += x[i] * dy[i];
            }
            const double f = 1 / sqrt(scale * square + 1e-3);
            for (int i = k; i < k + n; i++) {
                y_want[i] = x[i] * f;
                dx_want[i] = f * dy[i] - x[i] * f * f * f * scale * dot;
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, y_want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        close_call(&c);
    }
}

TEST(norms_without_a_weight)
{
    check_bare_norm("srms_norm", true);
    check_bare_norm("l2_norm", false);
}

/* ---- results without a y ---------------------------------------------------------------------------------
 */

TEST(logsumexp)
{
    for (int s = 0; s < N_SIZES; s++) {
        const int r = SIZES[s][0];
        const int n = SIZES[s][1];
        struct call c;
        double want[16];
        double dx_want[MAX_SIZE];
        open_call(&c, "logsumexp");
        double *x = rows(&c, "x", GIVEN, r, n);
        const double *dlse = vector(&c, "dlse", SEED, r);
        const double *lse = vector(&c, "lse", SAVED, r);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int k = 0; k < r; k++) {
            want[k] = lse_of(x + k * n, n);
            for (int i = k * n; i < (k + 1) * n; i++)
                dx_want[i] = dlse[k] * exp(x[i] - want[k]);
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(lse, want, r);
        same(dx, dx_want, (int64_t)r * n);
        x[0] = -(double)INFINITY; /* weight 0; alone in its row, lse is -inf */
        run(&c, LATHE_FORWARD);
        CHECK(n > 1 ? isfinite(lse[0]) : isinf(lse[0]) && lse[0] < 0);
        x[0] = (double)INFINITY;
        run(&c, LATHE_FORWARD);
        CHECK(isinf(lse[0]) && lse[0] > 0);
        x[0] = (double)NAN;
        run(&c, LATHE_FORWARD);
        CHECK(isnan(lse[0]));
        CHECK(r < 2 || isfinite(lse[1]));
        close_call(&c);
    }
}

/* loss = lse - (1 - a) x_target - a / n sum x, dx = (p - (1 - a) onehot - a / n) dloss; rows of the ignored
 * index: 0 */
TEST(cross_entropy)
{
    enum { R = 6, N = 33 };
    static const int32_t TARGET[R] = {0, 32, -100, 7, 7, 31};
    static const int64_t SHAPE[] = {R};
    for (int smooth = 0; smooth < 2; smooth++) {
        const double a = 0.2 * smooth;
        struct call c;
        double want[R];
        double dx_want[R * N];
        open_call(&c, "cross_entropy");
        double *x = rows(&c, "x", GIVEN, R, N);
        int32_t *target = (int32_t *)(void *)add(&c, "target", GIVEN, SHAPE, 1);
        c.arg[c.n - 1].dtype = LATHE_I32;
        memcpy(target, TARGET, sizeof TARGET);
        const double *dloss = vector(&c, "dloss", SEED, R);
        const double *loss = vector(&c, "loss", SAVED, R);
        const double *sum = add(&c, "sum", RESULT, NULL, 0);
        const double *count = add(&c, "count", RESULT, NULL, 0);
        const double *dsum = add(&c, "dsum", SEED, NULL, 0);
        double sum_want = 0;
        const double *dx = rows(&c, "dx", GRADIENT, R, N);
        scalar(&c, "smoothing", a);
        whole(&c, "ignore", -100);
        x[1] = -(double)INFINITY; /* a class that cannot be: no NaN where nothing is smoothed */
        x[1] = smooth ? 0.3 : x[1];
        for (int k = 0; k < R; k++) {
            const bool live = TARGET[k] != -100;
            const double lse = lse_of(x + k * N, N);
            double all = 0;
            for (int i = 0; i < N; i++) {
                all += x[k * N + i];
                dx_want[k * N + i] = live ? (dloss[k] + *dsum) * (exp(x[k * N + i] - lse) -
                                                                  (i == TARGET[k] ? 1 - a : 0) - a / N)
                                          : 0;
            }
            sum_want += want[k] =
                live ? lse - (1 - a) * x[k * N + TARGET[k]] - (smooth ? a / N * all : 0) : 0;
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(loss, want, R);
        same(sum, &sum_want, 1);
        CHECK_CLOSE(*count, 5.0, 0.0);
        same(dx, dx_want, R * N);
        close_call(&c);
    }
}

/* ---- along an inner dim
 * ------------------------------------------------------------------------------------ */

enum { OUTER = 2, LONG = 7, INNER = 5 }; /* x is [OUTER, LONG, INNER], rows run along LONG */

static const int64_t INNER_SHAPE[] = {OUTER, LONG, INNER};
static const int64_t INNER_ROWS[] = {OUTER, INNER};

TEST(softmax_along_an_inner_dim)
{
    struct call c;
    double want[OUTER * LONG * INNER];
    double dx_want[OUTER * LONG * INNER];
    open_call(&c, "softmax_inner");
    const double *x = add(&c, "x", GIVEN, INNER_SHAPE, 3);
    const double *dy = add(&c, "dy", SEED, INNER_SHAPE, 3);
    const double *y = add(&c, "y", RESULT, INNER_SHAPE, 3);
    const double *dx = add(&c, "dx", GRADIENT, INNER_SHAPE, 3);
    for (int row = 0; row < OUTER * INNER; row++) {
        const int first = row / INNER * LONG * INNER + row % INNER;
        double sum = 0;
        double dot = 0;
        for (int i = 0; i < LONG; i++)
            sum += exp(x[first + i * INNER]);
        for (int i = first; i < first + LONG * INNER; i += INNER)
            dot += (want[i] = exp(x[i]) / sum) * dy[i];
        for (int i = first; i < first + LONG * INNER; i += INNER)
            dx_want[i] = want[i] * (dy[i] - dot);
    }
    run(&c, LATHE_FORWARD);
    run(&c, LATHE_BACKWARD);
    same(y, want, OUTER * LONG * INNER);
    same(dx, dx_want, OUTER * LONG * INNER);
    close_call(&c);
}

TEST(means_of_chunks)
{
    struct call c;
    double want[OUTER * INNER] = {0};
    double dx_want[OUTER * LONG * INNER];
    open_call(&c, "mean_pool");
    const double *x = add(&c, "x", GIVEN, INNER_SHAPE, 3);
    const double *dmean = add(&c, "dmean", SEED, INNER_ROWS, 2);
    const double *mean = add(&c, "mean", SAVED, INNER_ROWS, 2);
    const double *dx = add(&c, "dx", GRADIENT, INNER_SHAPE, 3);
    for (int i = 0; i < OUTER * LONG * INNER; i++) {
        const int row = i / (LONG * INNER) * INNER + i % INNER;
        want[row] += x[i] / LONG;
        dx_want[i] = dmean[row] / LONG;
    }
    run(&c, LATHE_FORWARD);
    run(&c, LATHE_BACKWARD);
    same(mean, want, OUTER * INNER);
    same(dx, dx_want, OUTER * LONG * INNER);
    close_call(&c);
}

/* ---- scans
 * -------------------------------------------------------------------------------------------------- */

TEST(sums_up_to_and_from_each_element)
{
    for (int s = 0; s < 2 * N_SIZES; s++) {
        const int r = SIZES[s / 2][0];
        const int n = SIZES[s / 2][1];
        const bool reverse = s % 2;
        struct call c;
        double want[MAX_SIZE];
        double dx_want[MAX_SIZE];
        open_call(&c, reverse ? "revcumsum" : "cumsum");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int k = 0; k < r; k++) {
            double up = 0;
            double down = 0;
            for (int i = 0; i < n; i++) {
                const int left = k * n + i;
                const int right = k * n + n - 1 - i;
                (reverse ? dx_want : want)[left] = up += (reverse ? dy : x)[left];
                (reverse ? want : dx_want)[right] = down += (reverse ? x : dy)[right];
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        close_call(&c);
    }
}

/* Sequences of 3, 1 and 4 steps, in chunks of 2: nothing crosses a boundary, in either direction. */
TEST(sums_in_chunks_of_packed_sequences)
{
    enum { T = 8, C = 3 };
    static const int32_t SINCE[T] = {0, 1, 2, 0, 0, 1, 2, 3};
    static const int BEGIN[2][T] = {{0, 0, 2, 3, 4, 4, 6, 6},
                                    {0, 0, 0, 3, 4, 4, 4, 4}}; /* of the segment of each step */
    static const int64_t SHAPE[] = {T, C};
    static const int64_t STEPS[] = {T};
    for (int whole_sequences = 0; whole_sequences < 2; whole_sequences++) {
        const double scale = whole_sequences ? 1.0 : 0.5;
        struct call c;
        double want[T * C] = {0};
        double dx_want[T * C] = {0};
        open_call(&c, whole_sequences ? "cumsum_packed" : "chunk_cumsum");
        const double *x = add(&c, "x", GIVEN, SHAPE, 2);
        const double *dy = add(&c, "dy", SEED, SHAPE, 2);
        const double *y = add(&c, "y", RESULT, SHAPE, 2);
        const double *dx = add(&c, "dx", GRADIENT, SHAPE, 2);
        memcpy(add(&c, "since", GIVEN, STEPS, 1), SINCE, sizeof SINCE);
        c.arg[c.n - 1].dtype = LATHE_I32;
        if (!whole_sequences) {
            whole(&c, "chunk", 2);
            scalar(&c, "scale", scale);
        }
        for (int t = 0; t < T; t++)
            for (int from = BEGIN[whole_sequences][t]; from <= t; from++)
                for (int k = 0; k < C; k++) {
                    want[t * C + k] += scale * x[from * C + k];
                    dx_want[from * C + k] += scale * dy[t * C + k];
                }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, T * C);
        same(dx, dx_want, T * C);
        close_call(&c);
    }
}

/* log of the sum of e^x from x[first] to x[last]. */
static double log_sum(const double *x, int first, int last)
{
    return lse_of(x + first, last - first + 1);
}

/* y_i = log sum_{j <= i} e^x_j, dx_j = sum_{i >= j} dy_i e^(x_j - y_i), and the same from the other end. x
   climbs by thousands: no e^x exists. */
TEST(logarithms_of_sums_up_to_and_from_each_element)
{
    for (int s = 0; s < 2 * N_SIZES; s++) {
        const int r = SIZES[s / 2][0];
        const int n = SIZES[s / 2][1];
        const bool reverse = s % 2;
        struct call c;
        double want[MAX_SIZE] = {0};
        double dx_want[MAX_SIZE] = {0};
        open_call(&c, reverse ? "revlogcumsumexp" : "logcumsumexp");
        double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int i = 0; i < r * n; i++)
            x[i] = 2.0 * x[i] + (i % 50 == 0 ? 3000.0 * sin(i) : 0.0);
        for (int k = 0; k < r; k++)
            for (int i = 0; i < n; i++) {
                const double all = log_sum(x + k * n, reverse ? i : 0, reverse ? n - 1 : i);
                want[k * n + i] = all;
                for (int j = reverse ? i : 0; j <= (reverse ? n - 1 : i); j++)
                    dx_want[k * n + j] += dy[k * n + i] * exp(x[k * n + j] - all);
            }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        close_call(&c);
    }
}

/* -inf adds nothing and has no gradient; before the first finite element the sum is empty. Infinity and NaN
 * stay, from where they are on. */
TEST(logarithms_of_sums_with_infinities)
{
    enum { N = 6 };
    static const double X[3][N] = {{-(double)INFINITY, -(double)INFINITY, 1.0, -(double)INFINITY, 2.0, 0.5},
                                   {1.0, 2.0, (double)INFINITY, 3.0, 0.0, 1.0},
                                   {1.0, 2.0, (double)NAN, 3.0, 0.0, 1.0}};
    struct call c;
    open_call(&c, "logcumsumexp");
    double *x = rows(&c, "x", GIVEN, 3, N);
    const double *dy = rows(&c, "dy", SEED, 3, N);
    const double *y = rows(&c, "y", RESULT, 3, N);
    const double *dx = rows(&c, "dx", GRADIENT, 3, N);
    memcpy(x, X, sizeof X);
    run(&c, LATHE_FORWARD);
    run(&c, LATHE_BACKWARD);
    for (int i = 0; i < 2; i++) {
        CHECK(y[i] == -(double)INFINITY);
        CHECK(dx[i] == 0.0);
    }
    for (int i = 2; i < N; i++)
        CHECK_CLOSE(y[i], log_sum(x, 2, i), 1e-12);
    CHECK(dx[3] == 0.0);
    CHECK_CLOSE(dx[5], dy[5] * exp(0.5 - y[5]), 1e-12);
    for (int i = 2; i < N; i++) {
        CHECK(y[N + i] == (double)INFINITY);
        CHECK(isnan(y[2 * N + i]));
    }
    CHECK_CLOSE(y[2 * N + 1], log_sum(X[2], 0, 1), 1e-12);
    close_call(&c);
}

/* Sequences of 3, 1, 0 and 4 steps, whole and in chunks of 2. */
TEST(logarithms_of_sums_in_packed_sequences)
{
    enum { T = 8, C = 3 };
    static const int32_t SINCE[T] = {0, 1, 2, 0, 0, 1, 2, 3};
    static const int BEGIN[2][T] = {{0, 0, 0, 3, 4, 4, 4, 4}, {0, 0, 2, 3, 4, 4, 6, 6}};
    static const int64_t SHAPE[] = {T, C};
    static const int64_t STEPS[] = {T};
    for (int chunked = 0; chunked < 2; chunked++) {
        struct call c;
        double dx_want[T * C] = {0};
        open_call(&c, "logcumsumexp_packed");
        const double *x = add(&c, "x", GIVEN, SHAPE, 2);
        const double *dy = add(&c, "dy", SEED, SHAPE, 2);
        const double *y = add(&c, "y", RESULT, SHAPE, 2);
        const double *dx = add(&c, "dx", GRADIENT, SHAPE, 2);
        memcpy(add(&c, "since", GIVEN, STEPS, 1), SINCE, sizeof SINCE);
        c.arg[c.n - 1].dtype = LATHE_I32;
        if (chunked)
            whole(&c, "chunk", 2);
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        for (int t = 0; t < T; t++)
            for (int k = 0; k < C; k++) {
                double sum = 0.0;
                for (int from = BEGIN[chunked][t]; from <= t; from++)
                    sum += exp(x[from * C + k]);
                CHECK_CLOSE(y[t * C + k], log(sum), 1e-12);
                for (int from = BEGIN[chunked][t]; from <= t; from++)
                    dx_want[from * C + k] += dy[t * C + k] * exp(x[from * C + k]) / sum;
            }
        same(dx, dx_want, T * C);
        close_call(&c);
    }
}

/* ---- group_norm: rows are groups, weights and biases of a channel of a group
 * ------------------------------------- */

/* x [b, groups, channels, width], the last two as one: the channel of an element, and its group, by their
 * places. */
TEST(group_norm_with_a_weight_of_each_channel)
{
    enum {
        B = 3,
        GROUPS = 4,
        CHANNELS = 3,
        WIDTH = 5,
        N = CHANNELS * WIDTH,
        ROWS = B * GROUPS,
        PARAMS = GROUPS * CHANNELS
    };
    static const int64_t SHAPE[] = {B, GROUPS, N};
    static const int64_t TABLE[] = {GROUPS, CHANNELS};
    for (int mean_kept = 0; mean_kept < 2; mean_kept++) { /* layer norm of a group, or rms norm */
        struct call c;
        double want[ROWS * N];
        double dx_want[ROWS * N];
        double dw_want[PARAMS] = {0};
        double db_want[PARAMS] = {0};
        open_call(&c, mean_kept ? "group_rms_norm" : "group_norm");
        const double *x = add(&c, "x", GIVEN, SHAPE, 3);
        const double *dy = add(&c, "dy", SEED, SHAPE, 3);
        const double *y = add(&c, "y", RESULT, SHAPE, 3);
        const double *dx = add(&c, "dx", GRADIENT, SHAPE, 3);
        const double *w = add(&c, "weight", GIVEN, TABLE, 2);
        const double *dw = add(&c, "dweight", GRADIENT, TABLE, 2);
        const double *b = mean_kept ? NULL : add(&c, "bias", GIVEN, TABLE, 2);
        const double *db = mean_kept ? NULL : add(&c, "dbias", GRADIENT, TABLE, 2);
        whole(&c, "groups", GROUPS);
        whole(&c, "channels", CHANNELS);
        scalar(&c, "eps", 1e-5);
        for (int k = 0; k < ROWS; k++) {
            double mean = 0;
            double square = 0;
            double u_sum = 0;
            double ux_sum = 0;
            for (int i = 0; i < N && !mean_kept; i++)
                mean += x[k * N + i] / N;
            for (int i = 0; i < N; i++)
                square += (x[k * N + i] - mean) * (x[k * N + i] - mean) / N;
            const double rstd = 1.0 / sqrt(square + 1e-5);
            for (int i = 0; i < N; i++) {
                const int at = k * N + i;
                const int param = k % GROUPS * CHANNELS + i / WIDTH;
                const double norm = (x[at] - mean) * rstd;
                want[at] = norm * w[param] + (b ? b[param] : 0.0);
                dw_want[param] += dy[at] * norm;
                db_want[param] += dy[at];
                u_sum += mean_kept ? 0.0 : dy[at] * w[param] / N;
                ux_sum += dy[at] * w[param] * norm / N;
            }
            for (int i = 0; i < N; i++) {
                const int at = k * N + i;
                const int param = k % GROUPS * CHANNELS + i / WIDTH;
                dx_want[at] = (dy[at] * w[param] - u_sum - (x[at] - mean) * rstd * ux_sum) * rstd;
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, ROWS * N);
        same(dx, dx_want, ROWS * N);
        same(dw, dw_want, PARAMS);
        if (db)
            same(db, db_want, PARAMS);
        close_call(&c);
    }
}
