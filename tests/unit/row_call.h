/*
 * row_call.h: a call of a row-wise spec on the host device, for row_ops.c and row_scans.c: tensors of doubles
 * with some values, the two passes, comparison. What is opened is closed by close_call.
 */
#ifndef LATHE_TEST_ROW_CALL_H
#define LATHE_TEST_ROW_CALL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

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

static inline void open_call(struct call *c, const char *spec)
{
    memset(c, 0, sizeof *c);
    c->ir = load_spec(spec);
}

static inline void close_call(struct call *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->data[i]);
    ir_free(c->ir);
}

/* A tensor of doubles with some values; shape ends at 0. */
static inline double *add(struct call *c, const char *name, enum role role, const int64_t *shape, int ndim)
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

static inline double *vector(struct call *c, const char *name, enum role role, int64_t n)
{
    return add(c, name, role, &n, 1);
}

static inline double *rows(struct call *c, const char *name, enum role role, int64_t n_rows, int64_t n)
{
    const int64_t shape[] = {n_rows, n};
    return add(c, name, role, shape, 2);
}

static inline void scalar(struct call *c, const char *name, double value)
{
    *add(c, name, GIVEN, NULL, 0) = value;
}

static inline void run(const struct call *c, lathe_pass pass)
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

static inline void same(const double *given, const double *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_CLOSE(given[i], expected[i], 1e-11 * (1.0 + fabs(expected[i])));
}

static inline double *whole(struct call *c, const char *name, double value)
{
    double *data = add(c, name, GIVEN, NULL, 0);
    *(int32_t *)(void *)data = (int32_t)value;
    c->arg[c->n - 1].dtype = LATHE_I32;
    return data;
}

static const int SIZES[][2] = {{1, 1}, {3, 31}, {2, 33}, {7, 255}, {5, 257}, {2, 1025}}; /* rows, n */
enum { N_SIZES = (int)(sizeof SIZES / sizeof *SIZES) };

static inline double lse_of(const double *x, int n)
{
    double m = -(double)INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++)
        m = fmax(m, x[i]);
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - m);
    return m + log(sum);
}

#endif
