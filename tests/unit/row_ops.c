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
