/*
 * judge.c: are a kernel's results what is expected?
 *
 * In: an output with the expected values, its results and bounds. Out: a sentence where they differ.
 */
#include "harness.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is(const struct tensor *t, const char *name)
{
    return strcmp(t->name, name) == 0;
}

static void place_of(const struct tensor *t, int64_t flat, char *out, size_t size)
{
    int64_t index[MAX_DIMS] = {0};
    for (int d = t->ndim - 1; d >= 0; d--) {
        index[d] = flat % t->shape[d];
        flat /= t->shape[d];
    }
    size_t used = (size_t)snprintf(out, size, "%s[", t->name);
    for (int d = 0; d < t->ndim && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, d > 0 ? ", " : "", index[d]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

/* Both are not a number, or both the same infinity: no difference tells that. */
static bool same_end(double result, double expected)
{
    return isnan(expected) ? isnan(result)
                           : isinf(expected) && isinf(result) && (result > 0) == (expected > 0);
}

/* One value that stands for itself: a final, a statistic. */
static bool close_enough(double given, double expected, double bound)
{
    return same_end(given, expected) ||
           (isfinite(expected) && fabs(given - expected) <= bound * (1.0 + fabs(expected)));
}

static const char *judge_values(const struct tensor *t, double bound, const double *result, char *why,
                                size_t size)
{
    char place[96];
    for (int64_t i = 0; i < t->count; i++) {
        if (close_enough(result[i], t->value[i], bound))
            continue;
        place_of(t, i, place, sizeof place);
        snprintf(why, size, "%s is %.9g, expected %.9g", place, result[i], t->value[i]);
        return why;
    }
    return NULL;
}

/* Of 8 bits, whose steps are larger than what a kernel may be off: what is near becomes the same number. */
static const char *judge_narrow(const struct tensor *t, double bound, const double *result, char *why,
                                size_t size)
{
    char place[96];
    for (int64_t i = 0; i < t->count; i++) {
        const double off = bound * (1e-3 + fabs(t->value[i]));
        if (same_end(result[i], t->value[i]) || dtype_is_rounded(t->dtype, result[i], t->value[i], off))
            continue;
        place_of(t, i, place, sizeof place);
        snprintf(why, size, "%s is %.9g, expected %.9g", place, result[i], t->value[i]);
        return why;
    }
    return NULL;
}

struct norms {
    double error;
    double size;
};

/* Ends that are right count nothing; where only one of the two is an end, the error is infinite or NaN. */
static struct norms row_norms(const double *result, const double *expected, int64_t n)
{
    struct norms sum = {0.0, 0.0};
    for (int64_t i = 0; i < n; i++) {
        if (same_end(result[i], expected[i]))
            continue;
        const double e = result[i] - expected[i];
        sum.error += e * e;
        sum.size += isfinite(expected[i]) ? expected[i] * expected[i] : 0.0;
    }
    return sum;
}

/* Rows of the problem's tensors: each by itself, and all of them. NaN fails every comparison. */
static const char *judge_rows(const struct tensor *t, double bound, const struct bounds *b,
                              const double *result, char *why, size_t size)
{
    const double least = b->least;
    const int64_t n = t->list ? t->count : t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    const struct norms all = row_norms(result, t->value, t->count);
    const double rows = n > 0 && t->count > 0 ? (double)t->count / (double)n : 1.0;
    const double tiny =
        least * sqrt((double)n) +
        /* sums along other rows that cancel in this one */ b->mean * bound * sqrt(all.size / rows) +
        (t->dtype == LATHE_F16 ? 6e-8 * (double)n : 1e-30); /* subnormal results have fewer digits */
    for (int64_t row = 0; n > 0 && row < t->count / n; row++) {
        const struct norms sum = row_norms(result + row * n, t->value + row * n, n);
        const bool exact = sum.size <= 0.0 && least <= 0.0;
        if (exact ? sum.error <= 0.0 : sqrt(sum.error) <= bound * sqrt(sum.size) + tiny)
            continue;
        char place[96];
        place_of(t, row * n, place, sizeof place);
        snprintf(why, size,
                 "the row of %s is off by %.3g of its norm %.3g: %.6g %.6g .., expected %.6g %.6g ..", place,
                 sqrt(sum.error / (sum.size > 0.0 ? sum.size : 1.0)), sqrt(sum.size), result[row * n],
                 n > 1 ? result[row * n + 1] : 0.0, t->value[row * n], n > 1 ? t->value[row * n + 1] : 0.0);
        return why;
    }
    if (sqrt(all.error) <= 0.5 * bound * sqrt(all.size) + tiny)
        return NULL;
    snprintf(why, size, "%s is off by %.3g of its norm", t->name, sqrt(all.error / all.size));
    return why;
}

/* Gradients cancel: that of a row may be much smaller than what it is a sum of, so it is measured against the
   mean row too, and against a number that rounding of o alone explains: it moves delta, and so the gradient
   of every score of a query by as much as the score's weight, however small that gradient is. Of dq and dk
   that is times a row of k or q: up to 0.03 of |q| / 8 in bf16 at 64 columns, four deviations. */
static const char *judge_gradient(const struct tensor *t, double bound, double spread, const double *result,
                                  char *why, size_t size)
{
    const double rounding = 0.1 * (is(t, "dq") || is(t, "dk") ? spread : 1.0);
    const int64_t n = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    const struct norms all = row_norms(result, t->value, t->count);
    const double rows = n > 0 ? (double)t->count / (double)n : 0.0;
    for (int64_t row = 0; n > 0 && row < t->count / n; row++) {
        const struct norms sum = row_norms(result + row * n, t->value + row * n, n);
        const double mean = sqrt(all.size / rows) + rounding * sqrt((double)n);
        if (sqrt(sum.error) <= 2.0 * bound * (sqrt(sum.size) + mean))
            continue;
        char place[96];
        place_of(t, row * n, place, sizeof place);
        snprintf(why, size,
                 "the row of %s is off by %.3g, its norm is %.3g: %.6g %.6g .., expected %.6g %.6g ..", place,
                 sqrt(sum.error), sqrt(sum.size), result[row * n], n > 1 ? result[row * n + 1] : 0.0,
                 t->value[row * n], n > 1 ? t->value[row * n + 1] : 0.0);
        return why;
    }
    if (rows <= 1.0 || sqrt(all.error) <= bound * (sqrt(all.size) + rounding * sqrt((double)t->count)))
        return NULL; /* of several rows errors differ; one alone has been judged */
    snprintf(why, size, "%s is off by %.3g of its norm", t->name, sqrt(all.error / all.size));
    return why;
}

const char *judge_results(const struct tensor *t, const struct bounds *b, const double *result, char *why,
                          size_t size)
{
    if (lathe__is_narrow(t->dtype))
        return judge_narrow(t, b->row, result, why, size);
    const bool rows = t->role == ROLE_OUT || t->by_rows || b->least > 0.0 || t->dtype != LATHE_F32;
    if (b->gradient > 0.0)
        return judge_gradient(t, b->gradient, b->spread, result, why, size);
    if (rows)
        return judge_rows(t, t->dtype == LATHE_F32 && b->least > 0.0 ? b->final : b->row, b, result, why,
                          size);
    return judge_values(t, b->final, result, why, size);
}
