/*
 * bounds.c: compare an output with its reference; every error bound of the GPU tests is in one table.
 *
 * In: a tensor as it came from the device, the reference in double precision. Out: NULL or a sentence in
 * the caller's buffer. Nothing is allocated but one row's worth of sums.
 */
#include "cases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct bound {
    lathe_dtype dtype;
    double result; /* relative L2 error of o or y as a whole */
    double final;  /* |error| <= final * (1 + |expected|), element by element; attention */
    double row;    /* the same for the statistics of a rowwise spec */
    double grad;   /* relative L2 error of a gradient as a whole */
};

static const struct bound BOUNDS[] = {
    {LATHE_BF16, 1e-2, 1e-3, 1e-4, 2e-2},
    {LATHE_F16, 2e-3, 1e-3, 1e-4, 4e-3},
    {LATHE_F32, 1e-5, 1e-3, 1e-5, 1e-5},
};

/* One row may be worse than the whole by this much; a row that is nearly 0 is measured against a
   quarter of the typical row. */
static const double ROW_FACTOR = 8.0;
static const double ROW_FLOOR = 0.25;

static struct bound bound_of(lathe_dtype dtype)
{
    for (size_t i = 0; i < sizeof BOUNDS / sizeof BOUNDS[0]; i++) {
        if (BOUNDS[i].dtype == dtype) {
            return BOUNDS[i];
        }
    }
    return BOUNDS[sizeof BOUNDS / sizeof BOUNDS[0] - 1];
}

static void say_place(const struct tensor *t, int64_t flat, char *out, size_t size)
{
    int64_t index[CASE_DIMS] = {0};
    for (int i = t->ndim - 1; i >= 0; i--) {
        index[i] = flat % t->shape[i];
        flat /= t->shape[i];
    }
    size_t used = 0;
    for (int i = 0; i < t->ndim && used < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, i ? "," : "", index[i]);
    }
}

static const char *say_element(const struct tensor *t, int64_t flat, double got, double expected, char *why,
                               size_t why_size)
{
    char place[96] = "";
    say_place(t, flat, place, sizeof place);
    (void)snprintf(why, why_size, "%s[%s] is %.7g, expected %.7g", t->row.name, place, got, expected);
    return why;
}

static void raise_to(double *worst, double value)
{
    if (value > *worst) {
        *worst = value;
    }
}

static const char *compare_final(const struct tensor *t, const double *expected, double bound, double *worst,
                                 char *why, size_t why_size)
{
    for (int64_t i = 0; i < t->count; i++) {
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, i));
        if (isinf(expected[i]) && isinf(got) && (got > 0) == (expected[i] > 0)) {
            continue;
        }
        const double error = fabs(got - expected[i]) / (1.0 + fabs(expected[i]));
        if (!(error <= bound)) {
            return say_element(t, i, got, expected[i], why, why_size);
        }
        raise_to(worst, error / bound);
    }
    return NULL;
}

struct sums {
    double error;    /* squared */
    double expected; /* squared */
};

/* The squares of one row; *bad is an element that is not a number, or not exactly 0 in a row of zeros. */
static struct sums sum_row(const struct tensor *t, const double *expected, int64_t first, int64_t n,
                           int64_t *bad)
{
    struct sums sums = {0.0, 0.0};
    int64_t nonzero = -1;
    for (int64_t i = first; i < first + n; i++) {
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, i));
        const double error = got - expected[i];
        sums.error += error * error;
        sums.expected += expected[i] * expected[i];
        if (!isfinite(error) && *bad < 0) {
            *bad = i;
        }
        if (got != 0.0 && nonzero < 0) {
            nonzero = i;
        }
    }
    if (sums.expected <= 0.0 && *bad < 0) {
        *bad = nonzero;
    }
    return sums;
}

static double typical_row(const double *expected, int64_t count, int64_t rows)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += expected[i] * expected[i];
    }
    return sqrt(sum / (double)rows);
}

static const char *compare_result(const struct tensor *t, const double *expected, double bound, double *worst,
                                  char *why, size_t why_size)
{
    const int64_t n = t->shape[t->ndim - 1];
    const int64_t rows = n > 0 ? t->count / n : 0;
    const double typical = rows > 0 ? typical_row(expected, t->count, rows) : 0.0;
    struct sums all = {0.0, 0.0};
    for (int64_t row = 0; row < rows; row++) {
        int64_t bad = -1;
        const struct sums sums = sum_row(t, expected, row * n, n, &bad);
        if (bad >= 0) {
            const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, bad));
            return say_element(t, bad, got, expected[bad], why, why_size);
        }
        const double limit = ROW_FACTOR * bound * (sqrt(sums.expected) + ROW_FLOOR * typical);
        if (!(sqrt(sums.error) <= limit)) {
            char place[96] = "";
            say_place(t, row * n, place, sizeof place);
            (void)snprintf(why, why_size, "%s: the row of [%s] is off by %.3g (norm %.3g), allowed are %.3g",
                           t->row.name, place, sqrt(sums.error), sqrt(sums.expected), limit);
            return why;
        }
        all.error += sums.error;
        all.expected += sums.expected;
    }
    const double relative = all.expected > 0.0 ? sqrt(all.error / all.expected) : 0.0;
    raise_to(worst, relative / bound);
    if (relative <= bound) {
        return NULL;
    }
    (void)snprintf(why, why_size, "%s: relative error %.3g, allowed are %.3g", t->row.name, relative, bound);
    return why;
}

/* The gradient of an input: sums over many pairs that cancel in some elements, so it counts as a whole. */
static const char *compare_gradient(const struct tensor *t, const double *expected, double bound,
                                    double *worst, char *why, size_t why_size)
{
    int64_t bad = -1;
    const struct sums sums = sum_row(t, expected, 0, t->count, &bad);
    if (bad >= 0) {
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, bad));
        return say_element(t, bad, got, expected[bad], why, why_size);
    }
    const double relative = sums.expected > 0.0 ? sqrt(sums.error / sums.expected) : 0.0;
    raise_to(worst, relative / bound);
    if (relative <= bound) {
        return NULL;
    }
    (void)snprintf(why, why_size, "%s: relative error %.3g, allowed are %.3g", t->row.name, relative, bound);
    return why;
}

const char *result_compare(const struct tensor *t, const double *expected, const struct test_case *c,
                           double *worst, char *why, size_t why_size)
{
    for (int64_t i = 0; i < t->count; i++) {
        if (isnan(expected[i])) {
            (void)snprintf(why, why_size, "%s: the reference itself is not a number at element %" PRId64,
                           t->row.name, i);
            return why;
        }
    }
    const struct bound bound = bound_of(t->row.role == ROLE_RESULT ? t->dtype : c->run[0].dtype);
    if (t->row.role == ROLE_GRADIENT) {
        return compare_gradient(t, expected, bound_of(c->run[0].dtype).grad, worst, why, why_size);
    }
    if (c->pass == LATHE_BACKWARD) {
        return compare_result(t, expected, bound.grad, worst, why, why_size);
    }
    const double loose = c->skewed ? c->spec->loose : 1.0;
    if (t->row.role == ROLE_RESULT) {
        return compare_result(t, expected, loose * bound.result, worst, why, why_size);
    }
    return compare_final(t, expected, loose * (c->spec->rowwise ? bound.row : bound.final), worst, why,
                         why_size);
}
