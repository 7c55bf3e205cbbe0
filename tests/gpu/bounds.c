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
    double grad;   /* relative L2 error of a gradient as a whole, beside what roundings may move */
};

static const struct bound BOUNDS[] = {
    {LATHE_BF16, 5e-3, 1e-4, 1e-4, 4e-3},
    {LATHE_F16, 6e-4, 1e-4, 1e-4, 5e-4},
    {LATHE_F32, 1e-5, 1e-4, 1e-5, 1e-5},
};
/* Of f32, made of products of bf16 that are off by less than 2^-16 (templates/common/mma_f32.cuh). */
static const struct bound F32_PRODUCTS = {LATHE_F32, 4e-5, 1e-4, 1e-5, 4e-5};

/* One row may be worse than the whole by this much; a row that is nearly 0 is measured against a
   quarter of the typical row. */
static const double ROW_FACTOR = 8.0;
static const double ROW_FLOOR = 0.25;

/* What roundings move (noise.c) is allowed so many times: of the whole, of one row. */
static const double WHOLE_SPREAD = 3.0;
static const double ROW_SPREAD = 10.0;
/* Gradients along the tokens of linear attention: of inputs, which add up all of them, and of q, k, v. */
static const double SUMS_GRADIENT = 7.0;
static const double SUMS_GRADIENT_F16 = 9.0; /* weights behind a decay are subnormal below 2^-14 */
static const double SUMS_RESULT = 1.2;
enum { NEIGHBOURS = 8 }; /* on each side, with which a row's sample is averaged: it is of few draws */

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

static const char *say_relative(const struct tensor *t, double error, double allowed, char *why,
                                size_t why_size)
{
    (void)snprintf(why, why_size, "%s: relative error %.3g, allowed are %.3g", t->row.name, error, allowed);
    return why;
}

/* ---- sums -------------------------------------------------------------------------------------------- */

struct sums { /* squared */
    double error;
    double expected;
    double spread; /* that roundings move */
};

static double spread_of(const struct spread *spread, const double *expected, int64_t i)
{
    double sum = spread->least * spread->least;
    for (int s = 0; s < SAMPLES && spread->sample[s] && isfinite(expected[i]); s++) {
        const double moved = spread->size * (spread->sample[s][i] - expected[i]);
        sum += moved * moved / SAMPLES;
    }
    return sum;
}

/* ---- beyond a dtype's range ---------------------------------------------------------------------------- */

/* The least magnitude that rounds to an infinity: half a unit in the last place above the largest number. */
static double overflow_of(lathe_dtype dtype)
{
    switch (dtype) {
    case LATHE_F16:
        return 65520.0;
    case LATHE_BF16:
        return 0x1.FFp127;
    case LATHE_F32:
        return 0x1.FFFFFFp127;
    default:
        return (double)INFINITY;
    }
}

enum range {
    IN_RANGE,   /* the result is a number */
    AT_THE_END, /* an infinity is right, and a number that is near */
    BEYOND      /* only an infinity is right */
};

/* Where the value that is expected lies, which a correct kernel may miss by `bound` of itself and by what
 * roundings move. */
static enum range range_of(const struct tensor *t, const double *expected, const struct spread *spread,
                           double bound, int64_t i)
{
    const double overflow = overflow_of(t->dtype);
    const double size = fabs(expected[i]);
    if (isinf(size)) {
        return BEYOND;
    }
    const double missed = bound * size + ROW_SPREAD * sqrt(spread_of(spread, expected, i));
    return size + missed < overflow ? IN_RANGE : size - missed < overflow ? AT_THE_END : BEYOND;
}

/* Is the element an infinity as it should be? */
static bool overflows_rightly(const struct tensor *t, const double *expected, const struct spread *spread,
                              double bound, int64_t i)
{
    const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, i));
    return isinf(got) && (got > 0) == (expected[i] > 0) &&
           range_of(t, expected, spread, bound, i) != IN_RANGE;
}

/* ---- sums of a row ---------------------------------------------------------------------------------------
 */

/* Of n elements, less infinities that are right; *bad is one that is not a number, or not exactly 0 where all
 * are and no rounding moves them. */
static struct sums sum_up(const struct tensor *t, const double *expected, const struct spread *spread,
                          double bound, int64_t first, int64_t n, int64_t *bad)
{
    struct sums sums = {0.0, 0.0, 0.0};
    int64_t nonzero = -1;
    for (int64_t i = first; i < first + n; i++) {
        if (overflows_rightly(t, expected, spread, bound, i)) {
            continue;
        }
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, i));
        const double error = got - expected[i];
        sums.error += error * error;
        sums.expected += expected[i] * expected[i];
        sums.spread += spread_of(spread, expected, i);
        const bool wrong = !isfinite(error) || range_of(t, expected, spread, bound, i) == BEYOND;
        if (wrong && *bad < 0) {
            *bad = i;
        }
        if (got != 0.0 && nonzero < 0) {
            nonzero = i;
        }
    }
    if (sums.expected <= 0.0 && sums.spread <= 0.0 && *bad < 0) {
        *bad = nonzero;
    }
    return sums;
}

/* What roundings move in a row of n elements: in itself, or in it and its neighbours on average. */
static double spread_around(const struct tensor *t, const double *expected, const struct spread *spread,
                            int64_t row, int64_t n)
{
    const int64_t rows = t->count / n;
    const int64_t first = row > NEIGHBOURS ? row - NEIGHBOURS : 0;
    const int64_t end = row + NEIGHBOURS + 1 < rows ? row + NEIGHBOURS + 1 : rows;
    double own = 0.0;
    double sum = 0.0;
    int moved = 0;
    for (int64_t i = first; i < end && spread->sample[0]; i++) {
        double one = 0.0;
        for (int64_t k = i * n; k < (i + 1) * n; k++) {
            one += fabs(expected[k]) < overflow_of(t->dtype) ? spread_of(spread, expected, k) : 0.0;
        }
        own = i == row ? one : own;
        sum += one;
        moved += one > 0.0;
    }
    const double average = moved > 0 && own > 0.0 ? sum / moved : 0.0;
    return sqrt(own > average ? own : average);
}

static const char *check_whole(const struct tensor *t, const struct sums *all, double bound, double *worst,
                               char *why, size_t why_size)
{
    const double size = sqrt(all->expected);
    const double error = sqrt(all->error);
    const double limit = bound * size + WHOLE_SPREAD * sqrt(all->spread);
    if (error > 0.0) {
        raise_to(worst, error / limit);
    }
    return error <= limit ? NULL : say_relative(t, error / size, limit / size, why, why_size);
}

/* ---- kinds of outputs ------------------------------------------------------------------------------ */

static const char *compare_final(const struct tensor *t, const double *expected, const struct spread *spread,
                                 double bound, double *worst, char *why, size_t why_size)
{
    for (int64_t i = 0; i < t->count; i++) {
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, i));
        if (overflows_rightly(t, expected, spread, bound, i)) {
            continue;
        }
        const double error = fabs(got - expected[i]);
        const double limit =
            bound * (1.0 + fabs(expected[i])) + ROW_SPREAD * spread_around(t, expected, spread, i, 1);
        if (!(error <= limit)) {
            return say_element(t, i, got, expected[i], why, why_size);
        }
        raise_to(worst, error / limit);
    }
    return NULL;
}

static double typical_row(const struct tensor *t, const double *expected, int64_t rows)
{
    double sum = 0.0;
    for (int64_t i = 0; i < t->count; i++) {
        sum += fabs(expected[i]) < overflow_of(t->dtype) ? expected[i] * expected[i] : 0.0;
    }
    return sqrt(sum / (double)rows);
}

static const char *compare_result(const struct tensor *t, const double *expected, const struct spread *spread,
                                  double bound, double *worst, char *why, size_t why_size)
{
    const int64_t n = t->shape[t->ndim - 1];
    const int64_t rows = n > 0 ? t->count / n : 0;
    const double typical = rows > 0 ? typical_row(t, expected, rows) : 0.0;
    struct sums all = {0.0, 0.0, 0.0};
    for (int64_t row = 0; row < rows; row++) {
        int64_t bad = -1;
        const struct sums sums = sum_up(t, expected, spread, bound, row * n, n, &bad);
        if (bad >= 0) {
            const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, bad));
            return say_element(t, bad, got, expected[bad], why, why_size);
        }
        const double limit =
            ROW_FACTOR * bound * (sqrt(sums.expected) + ROW_FLOOR * typical) +
            ROW_SPREAD * (spread_around(t, expected, spread, row, n) + spread->least * sqrt((double)n));
        if (!(sqrt(sums.error) <= limit)) {
            char place[96] = "";
            say_place(t, row * n, place, sizeof place);
            (void)snprintf(why, why_size, "%s: the row of [%s] is off by %.3g (norm %.3g), allowed are %.3g",
                           t->row.name, place, sqrt(sums.error), sqrt(sums.expected), limit);
            return why;
        }
        if (sums.error > 0.0) {
            raise_to(worst, sqrt(sums.error) / limit);
        }
        all.error += sums.error;
        all.expected += sums.expected;
        all.spread += sums.spread;
    }
    return check_whole(t, &all, bound, worst, why, why_size);
}

/* The gradient of an input: sums over many pairs that cancel in some elements, so it counts as a whole. */
static const char *compare_gradient(const struct tensor *t, const double *expected,
                                    const struct spread *spread, double bound, double *worst, char *why,
                                    size_t why_size)
{
    int64_t bad = -1;
    const struct sums sums = sum_up(t, expected, spread, bound, 0, t->count, &bad);
    if (bad >= 0) {
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, bad));
        return say_element(t, bad, got, expected[bad], why, why_size);
    }
    return check_whole(t, &sums, bound, worst, why, why_size);
}

const char *result_compare(const struct tensor *t, const double *expected, const struct spread *spread,
                           const struct test_case *c, double *worst, char *why, size_t why_size)
{
    for (int64_t i = 0; i < t->count; i++) {
        if (isnan(expected[i])) {
            (void)snprintf(why, why_size, "%s: the reference itself is not a number at element %" PRId64,
                           t->row.name, i);
            return why;
        }
    }
    const bool products = c->spec && !c->spec->rowwise && !c->sums && c->run[0].dtype == LATHE_F32;
    struct bound bound = products
                             ? F32_PRODUCTS
                             : bound_of(t->row.role == ROLE_RESULT && !c->sums ? t->dtype : c->run[0].dtype);
    if (c->sums) { /* also of states, which are f32 beside q and k of 16 bits */
        const double gradient = c->run[0].dtype == LATHE_F16 ? SUMS_GRADIENT_F16 : SUMS_GRADIENT;
        bound.grad *= t->row.role == ROLE_GRADIENT ? gradient : SUMS_RESULT;
        bound.result *= SUMS_RESULT;
    }
    if (t->row.role == ROLE_GRADIENT) {
        return compare_gradient(t, expected, spread, bound.grad, worst, why, why_size);
    }
    if (t->row.role == ROLE_RESULT) {
        return compare_result(t, expected, spread, c->pass == LATHE_BACKWARD ? bound.grad : bound.result,
                              worst, why, why_size);
    }
    return compare_final(t, expected, spread, !c->spec || c->spec->rowwise ? bound.row : bound.final, worst,
                         why, why_size);
}
