/*
 * row_ops.c: the row-wise operators against formulas written out by hand in double precision, forward and
 * backward, on the host device. Nothing here goes through the evaluator: the formulas are those of the
 * literature, with the sums over rows of every parameter.
 */
#include "row_call.h"

/* ---- softmax ------------------------------------------------------------------------------------------ */

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

/* A target that is no class and is not ignored: NaN, and not a loss of some other class. */
TEST(cross_entropy_of_no_class_is_nan)
{
    enum { R = 6, N = 4 };
    static const int32_t TARGET[R] = {4, -1, -100, 3, INT32_MIN, 0};
    static const int64_t SHAPE[] = {R};
    for (int ignore = -100; ignore <= 0; ignore += 50) {
        struct call c;
        open_call(&c, "cross_entropy");
        (void)rows(&c, "x", GIVEN, R, N);
        int32_t *target = (int32_t *)(void *)add(&c, "target", GIVEN, SHAPE, 1);
        c.arg[c.n - 1].dtype = LATHE_I32;
        memcpy(target, TARGET, sizeof TARGET);
        (void)vector(&c, "dloss", SEED, R);
        const double *loss = vector(&c, "loss", SAVED, R);
        const double *lse = vector(&c, "lse", SAVED, R);
        const double *dx = rows(&c, "dx", GRADIENT, R, N);
        whole(&c, "ignore", ignore);
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        for (int k = 0; k < R; k++) {
            const bool wrong = TARGET[k] != ignore && (TARGET[k] < 0 || TARGET[k] >= N);
            CHECK(!isnan(lse[k]));
            CHECK_EQ(isnan(loss[k]) != 0, wrong);
            CHECK_EQ(loss[k] == 0, TARGET[k] == ignore);
            for (int i = 0; i < N; i++)
                CHECK_EQ(isnan(dx[k * N + i]) != 0, wrong);
        }
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
