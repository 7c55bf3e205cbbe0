/*
 * input_ranges.c: declared values of inputs, for the sizes of one call: what they are, data that
 * keeps to them, and whether data does. In: a declared input, sizes, tensors in host memory. Out: numbers in
 * the caller's tensor, or a sentence. Nothing is kept.
 */
#include "gen/arguments/input_ranges.h"
#include "gen/ir/spec.h"
#include "gen/ir/tensor.h"

#include <math.h>
#include <stdlib.h>

enum { NONE_IN = 8, FEW = 16 };

/* ---- ends ---------------------------------------------------------------------------------------- */

static int64_t size_of(const int64_t *dim, int sym)
{
    int64_t size = dim[sym] > 0 ? dim[sym] : 0;
    if (sym == SYM_ROWS) /* at.row counts all leading dims */
        for (int outer = SYM_ROWS0; outer <= SYM_ROWS1; outer++)
            size *= dim[outer] > 0 ? dim[outer] : 1;
    return size;
}

static int64_t end_value(const struct range_end *end, const int64_t *dim)
{
    return end->number + (end->dim[0] ? size_of(dim, end->sym) : 0);
}

bool input_range(const struct input *in, const int64_t *dim, struct value_range *out)
{
    if (!in->range.declared)
        return false;
    *out = (struct value_range){end_value(&in->range.low, dim), end_value(&in->range.high, dim)};
    return true;
}

/* ---- data ---------------------------------------------------------------------------------------- */

static double between(double low, double high, double unit)
{
    const double value = low + floor(unit * (high - low));
    return value < high ? value : high - 1;
}

static double draw(const struct value_range *r, bool is_scalar, double (*unit)(void *), void *state)
{
    const double least = fmax((double)r->low, 0);
    if (r->high <= r->low)
        return (double)r->low;
    if (r->low < 0 && (r->high <= 0 || unit(state) * (double)NONE_IN < 1))
        return between((double)r->low, fmin((double)r->high, 0), unit(state));
    if (is_scalar && (double)r->high - least > FEW)
        return between(least, least + exp(unit(state) * log((double)r->high - least)), 0.999);
    return between(least, (double)r->high, unit(state));
}

static int compare_i32(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int compare_u8(const void *a, const void *b)
{
    return *(const uint8_t *)a - *(const uint8_t *)b;
}

/* Fill a tensor of i32 or u8 that has that range, from uniform numbers in (0, 1). A negative number stands
   for "none": it comes once in eight, where the range has both. A scalar is rather small than large. */
static void fill_range(const struct input *in, const struct value_range *range, const lathe_arg *t,
                       double (*unit)(void *state), void *state)
{
    const int64_t count = tensor_count(t);
    const int64_t line = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    const size_t size = lathe_dtype_size(t->dtype);
    for (int64_t i = 0; i < count; i++)
        dtype_store(t->dtype, t->data, i, draw(range, in->is_scalar, unit, state));
    for (int64_t i = 0; in->range.sorted && i < count; i += line)
        qsort((char *)t->data + (size_t)i * size, (size_t)line, size,
              t->dtype == LATHE_I32 ? compare_i32 : compare_u8);
}

/* A number of that range, not beside its ends: a difference quotient may step to either side. */
static double draw_real(const struct input_range *r, double (*unit)(void *), void *state)
{
    static const double MARGIN = 0.01;
    const double u = MARGIN + (1 - 2 * MARGIN) * unit(state);
    if (isfinite(r->least) && isfinite(r->most))
        return r->least + u * (r->most - r->least);
    return isfinite(r->most) ? r->most + log(u) : isfinite(r->least) ? r->least - log(u) : log(u / (1 - u));
}

/* Vectors along the last dim become a little shorter than 1: a difference quotient may make them longer. */
static void make_unit(const lathe_arg *t)
{
    static const double LENGTH = 0.99;
    const int64_t n = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    const int64_t count = tensor_count(t);
    for (int64_t first = 0; n > 0 && first < count; first += n) {
        double square = 1e-30;
        for (int64_t i = first; i < first + n; i++) {
            const double x = dtype_load(t->dtype, t->data, i);
            square += x * x;
        }
        for (int64_t i = first; i < first + n; i++)
            dtype_store(t->dtype, t->data, i, LENGTH / sqrt(square) * dtype_load(t->dtype, t->data, i));
    }
}

bool input_has_range(const struct input *in)
{
    return in->range.declared || in->range.real;
}

bool input_fill(const struct input *in, const int64_t *dim, const lathe_arg *t, double (*unit)(void *state),
                void *state)
{
    struct value_range range;
    const int64_t count = in->range.real ? tensor_count(t) : 0;
    if (input_range(in, dim, &range))
        fill_range(in, &range, t, unit, state);
    for (int64_t i = 0; i < count; i++)
        dtype_store(t->dtype, t->data, i, draw_real(&in->range, unit, state));
    if (in->range.unit)
        make_unit(t);
    return input_has_range(in);
}

/* ---- given data ---------------------------------------------------------------------------------- */

static void say_place(struct phrase *to, const lathe_arg *t, const int64_t *index)
{
    for (int d = 0; d < t->ndim; d++)
        lathe__say(to, "%s%lld%s", d ? "," : " at [", (long long)index[d], d == t->ndim - 1 ? "]" : "");
}

static lathe_status fail_range(const struct ir *ir, const struct input *in, const lathe_arg *t, double value,
                               const struct value_range *r, const int64_t *index, lathe_error *err)
{
    struct phrase place = {{0}, 0};
    say_place(&place, t, index);
    if (r->high <= r->low)
        return lathe__fail(
            err, LATHE_ARG,
            "argument '%s': expected no value, since its range (%.100s:%d) goes from %lld to below "
            "%lld for these sizes, given %.0f%s",
            in->name, ir->file[ir->n_files - 1], in->line, (long long)r->low, (long long)r->high, value,
            place.text);
    return lathe__fail(
        err, LATHE_ARG,
        "argument '%s': expected values from %lld to %lld (its range, %.100s:%d), given %.0f%s", in->name,
        (long long)r->low, (long long)r->high - 1, ir->file[ir->n_files - 1], in->line, value, place.text);
}

static lathe_status fail_sorted(const struct ir *ir, const struct input *in, const lathe_arg *t,
                                double before, double value, const int64_t *index, lathe_error *err)
{
    struct phrase place = {{0}, 0};
    say_place(&place, t, index);
    return lathe__fail(
        err, LATHE_ARG,
        "argument '%s': expected values that do not fall along the last dim (sorted%s%s, %.100s:%d), "
        "given %.0f behind %.0f%s",
        in->name, in->range.sorted_by[0] ? " by " : "", in->range.sorted_by, ir->file[ir->n_files - 1],
        in->line, value, before, place.text);
}

static lathe_status check_real(const struct ir *ir, const struct input *in, const lathe_arg *t,
                               lathe_error *err)
{
    const int64_t count = tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        struct phrase place = {{0}, 0};
        int64_t index[MAX_DIMS] = {0};
        const double value = tensor_nth(t, i);
        if (!(value < in->range.least || value > in->range.most))
            continue;
        tensor_index(t, i, index);
        say_place(&place, t, index);
        return lathe__fail(err, LATHE_ARG,
                           "argument '%s': expected values from %g to %g (its range, %.100s:%d), given %g%s",
                           in->name, in->range.least, in->range.most, ir->file[ir->n_files - 1], in->line,
                           value, place.text);
    }
    return LATHE_OK;
}

/* How many values of a line are sorted. */
static int64_t sorted_of(const lathe_arg *many, int64_t number, int64_t line)
{
    return many && number < tensor_count(many) ? (int64_t)tensor_nth(many, number) : line;
}

lathe_status input_range_check(const struct ir *ir, int input, const lathe_arg *t, const lathe_arg *many,
                               const int64_t *dim, lathe_error *err)
{
    const struct input *in = &ir->input[input];
    struct value_range r;
    if (in->range.real)
        return check_real(ir, in, t, err);
    const bool ranged = input_range(in, dim, &r);
    const int64_t count = ranged || in->range.sorted ? tensor_count(t) : 0;
    const int64_t line = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    double before = 0;
    for (int64_t i = 0; i < count; i++) {
        const double value = tensor_nth(t, i);
        const bool outside = ranged && !(value >= (double)r.low && value < (double)r.high);
        const bool falls =
            in->range.sorted && i % line > 0 && value < before && i % line < sorted_of(many, i / line, line);
        int64_t index[MAX_DIMS] = {0};
        if (outside || falls)
            tensor_index(t, i, index);
        if (outside)
            return fail_range(ir, in, t, value, &r, index, err);
        if (falls)
            return fail_sorted(ir, in, t, before, value, index, err);
        before = value;
    }
    return LATHE_OK;
}
