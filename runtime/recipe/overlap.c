/*
 * overlap.c: whether tensors have elements in common. In: the arguments of a call. Out: LATHE_OK, or a
 * sentence about a result that lies in memory that the call also reads or writes elsewhere. Tensors that
 * interleave without a common element, such as the parts of a fused projection, are told apart by a stride
 * that both are repeated with.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/recipe/bind.h"

struct extent { /* of a tensor, in bytes */
    uintptr_t first;
    int64_t reach; /* from the first byte to behind the last one; 0: no elements */
    int n;
    int64_t size[MAX_DIMS]; /* dims of more than one element */
    int64_t stride[MAX_DIMS];
    int64_t element;
};

static struct extent extent_of(const lathe_arg *t)
{
    struct extent e = {.first = (uintptr_t)t->data, .element = (int64_t)lathe_dtype_size(t->dtype)};
    e.reach = e.element;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            e.reach = 0;
        if (t->shape[i] <= 1 || e.reach == 0)
            continue;
        e.size[e.n] = t->shape[i];
        e.stride[e.n] = lathe__tensor_stride(t, i) * e.element;
        e.reach += (e.size[e.n] - 1) * e.stride[e.n];
        e.n++;
    }
    return e;
}

/* Bytes that a tensor takes of every period, from its first one on; more than the period where the period is
 * none of its. */
static int64_t width_in(const struct extent *e, int64_t period)
{
    int64_t width = e->element;
    for (int i = 0; i < e->n; i++) {
        if (e->stride[i] % period == 0)
            continue;
        if (e->stride[i] > period)
            return period + 1;
        width += (e->size[i] - 1) * e->stride[i];
    }
    return width;
}

/* Are their places apart in every period? */
static bool apart_in(const struct extent *a, const struct extent *b, int64_t period)
{
    if (period <= 0)
        return false;
    const int64_t a_width = width_in(a, period);
    const int64_t b_width = width_in(b, period);
    const int64_t between = ((int64_t)(b->first - a->first) % period + period) % period;
    return a_width <= between && b_width <= period - between;
}

/* False for certain only: then they have no element in common. */
static bool may_overlap(const struct extent *a, const struct extent *b)
{
    if (a->reach == 0 || b->reach == 0 || a->first + (uintptr_t)a->reach <= b->first ||
        b->first + (uintptr_t)b->reach <= a->first)
        return false;
    for (int i = 0; i < a->n; i++)
        if (apart_in(a, b, a->stride[i]))
            return false;
    for (int i = 0; i < b->n; i++)
        if (apart_in(a, b, b->stride[i]))
            return false;
    return true;
}

static bool same_place(const struct extent *a, const struct extent *b)
{
    bool same = a->first == b->first && a->n == b->n && a->element == b->element;
    for (int i = 0; same && i < a->n; i++)
        same = a->size[i] == b->size[i] && a->stride[i] == b->stride[i];
    return same;
}

/* Does a point read or write the same place of both? */
static bool same_dims(const struct sig_arg *a, const struct sig_arg *b)
{
    bool same = a->ndim == b->ndim && a->points == b->points;
    for (int k = 0; same && k < a->ndim; k++)
        same = a->dim[k].sym == b->dim[k].sym && a->dim[k].times == b->dim[k].times &&
               a->dim[k].plus == b->dim[k].plus;
    return same;
}

static bool has_elements_of_rows(const struct sig_arg *a)
{
    bool has = false;
    for (int k = 0; k < a->ndim; k++)
        has |= a->dim[k].sym == SYM_N;
    return has;
}

/* ---- elements of one tensor that meet ------------------------------------------------------------ */

/* Of two elements at one place, the difference of their indices: a sum of 0 over dims, each within the dim's
   size. Dims of more than one element, the largest stride first; `rest`: how far the dims behind reach. */
struct difference {
    int n;
    int64_t size[MAX_DIMS];
    int64_t stride[MAX_DIMS];
    int64_t rest[MAX_DIMS];
    int64_t at[MAX_DIMS]; /* the difference that is looked at, and the last one that may be */
    int64_t last[MAX_DIMS];
    int64_t sum[MAX_DIMS]; /* of the dims before */
};

/* Looked at before a tensor is refused unproven; some tens of microseconds. */
enum { MOST_DIFFERENCES = 4096 };

static struct difference difference_of(const lathe_arg *t)
{
    struct difference d = {.n = 0};
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] <= 1)
            continue;
        int at = d.n++;
        for (; at > 0 && d.stride[at - 1] < t->strides[i]; at--) {
            d.size[at] = d.size[at - 1];
            d.stride[at] = d.stride[at - 1];
        }
        d.size[at] = t->shape[i];
        d.stride[at] = t->strides[i];
    }
    for (int k = d.n - 2; k >= 0; k--)
        d.rest[k] = d.rest[k + 1] + (d.size[k + 1] - 1) * d.stride[k + 1];
    return d;
}

static int64_t floor_of(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* The differences in dim k that those behind can still bring back to 0. */
static void begin_dim(struct difference *d, int k, int64_t sum)
{
    const int64_t most = d->size[k] - 1;
    const int64_t first = -floor_of(d->rest[k] + sum, d->stride[k]);
    const int64_t last = floor_of(d->rest[k] - sum, d->stride[k]);
    d->sum[k] = sum;
    d->at[k] = first < -most ? -most : first;
    d->last[k] = last > most ? most : last;
}

static bool is_nothing(const struct difference *d)
{
    int64_t any = 0;
    for (int k = 0; k < d->n; k++)
        any |= d->at[k];
    return any == 0;
}

static bool has_difference(struct difference *d)
{
    int steps = 0;
    int k = 0;
    begin_dim(d, 0, 0);
    while (k >= 0) {
        if (d->at[k] > d->last[k]) {
            if (--k >= 0)
                d->at[k]++;
            continue;
        }
        if (steps++ == MOST_DIFFERENCES || (k == d->n - 1 && !is_nothing(d)))
            return true;
        if (k == d->n - 1) {
            d->at[k]++;
        } else {
            begin_dim(d, k + 1, d->sum[k] + d->at[k] * d->stride[k]);
            k++;
        }
    }
    return false;
}

/* A dim in whose steps those with smaller ones do not fit; -1: none. */
static int interleaved_dim(const lathe_arg *t)
{
    for (int i = 0; t->strides && i < t->ndim; i++) {
        int64_t inner = 0;
        for (int k = 0; k < t->ndim; k++)
            if (k != i && t->shape[k] > 1 && t->strides[k] <= t->strides[i])
                inner += (t->shape[k] - 1) * t->strides[k];
        if (t->shape[i] > 1 && inner >= t->strides[i])
            return i;
    }
    return -1;
}

int lathe__meeting_dim(const lathe_arg *t)
{
    const int dim = interleaved_dim(t);
    if (dim < 0)
        return -1;
    struct difference d = difference_of(t);
    const bool steps = d.n > 0 && d.stride[d.n - 1] > 0;
    return !steps || has_difference(&d) ? dim : -1;
}

/* ---- tensors of a call ------------------------------------------------------------------------------ */

static int find(const struct signature *sig, const char *name)
{
    int i = 0;
    while (i < sig->n_args && strcmp(sig->arg[i].name, name) != 0)
        i++;
    return i;
}

static bool is_tensor(const struct sig_arg *a)
{
    return !lathe__is_host_value(a);
}

/* A result, or an operand whose result is left out and goes there. */
static bool is_written(const struct signature *sig, const lathe_arg *args, int n, int arg)
{
    const struct sig_arg *a = &sig->arg[arg];
    bool in_place = false;
    for (int i = 0; i < sig->n_args; i++) {
        if (sig->arg[i].alias != arg + 1)
            continue;
        in_place = true;
        for (int k = 0; k < n; k++)
            in_place &= !args[k].data || find(sig, args[k].name) != i;
    }
    return in_place || lathe__is_result(a);
}

/* Argument k of the call against result i. */
static bool collide(const struct signature *sig, const lathe_arg *args, int i, int k)
{
    const int result = find(sig, args[i].name);
    const int other = find(sig, args[k].name);
    const struct sig_arg *a = &sig->arg[result];
    const struct sig_arg *b = &sig->arg[other];
    if (!args[i].data || !args[k].data || !is_tensor(b))
        return false;
    if (a->list || b->list) /* of their tensors nothing is known here */
        return args[i].data == args[k].data && extent_of(&args[i]).reach > 0 && a->role != ROLE_IN &&
               a->alias != other + 1 && b->alias != result + 1;
    const struct extent x = extent_of(&args[i]);
    const struct extent y = extent_of(&args[k]);
    const bool declared = a->alias == other + 1 || b->alias == result + 1;
    /* The same points read both, then write one. */
    const bool both_read = a->role == ROLE_IN && b->role == ROLE_IN && same_dims(a, b);
    /* Row-wise, an element is written after it was read for the last time, by the thread that read it. */
    const bool row = sig->sharing == SHARING_ROWS &&
                     (b->role == ROLE_IN || (b->role == ROLE_INPUT && b->leading_optional)) &&
                     has_elements_of_rows(a) && same_dims(a, b);
    if ((declared || both_read || row) && same_place(&x, &y))
        return false;
    return may_overlap(&x, &y);
}

static bool lies_beside(const lathe_arg *t, const struct extent *e, uintptr_t first, uintptr_t end)
{
    return !t->data || e->first + (uintptr_t)e->reach <= first || end <= e->first;
}

struct results { /* the arguments of a call, and where they lie */
    int number[MAX_ARGS];
    bool is_result[MAX_ARGS];
    struct extent extent[MAX_ARGS];
};

static void look_at(const struct signature *sig, const lathe_arg *args, int n, struct results *out)
{
    for (int i = 0, at = 0; i < n; i++, at++) {
        if (at >= sig->n_args || strcmp(sig->arg[at].name, args[i].name) != 0)
            at = find(sig, args[i].name);
        const struct sig_arg *a = &sig->arg[at];
        out->number[i] = at;
        out->is_result[i] = args[i].data && lathe__is_result(a);
        out->extent[i].first = 0;
        out->extent[i].reach = 0;
        if (is_tensor(a) && args[i].data)
            out->extent[i] = extent_of(&args[i]);
    }
}

/* Is argument k of the call the one in whose place result i may be? */
static bool lies_over(const struct signature *sig, const struct results *r, int i, int k)
{
    return sig->arg[r->number[i]].over == r->number[k] + 1 && same_place(&r->extent[i], &r->extent[k]);
}

/* SHARING_NONE: blocks read what others write, so that nothing may lie where a result does. Part of every
   launch: the extents are made once, arguments are looked for in the signature's order, and most pairs are
   told apart by their ends. */
static lathe_status check_results(const struct signature *sig, const lathe_arg *args, int n, lathe_error *err)
{
    struct results r;
    if (n > MAX_ARGS)
        return LATHE_OK; /* each argument is given once: refused elsewhere */
    look_at(sig, args, n, &r);
    for (int i = 0; i < n; i++) {
        const uintptr_t first = r.extent[i].first;
        const uintptr_t end = first + (uintptr_t)r.extent[i].reach;
        for (int k = 0; r.is_result[i] && k < n; k++)
            if (k != i && !lies_beside(&args[k], &r.extent[k], first, end) &&
                may_overlap(&r.extent[i], &r.extent[k]) && !lies_over(sig, &r, i, k))
                return lathe__fail(err, LATHE_ARG,
                                   "argument '%s': expected memory of its own, given some of that of '%s'",
                                   args[i].name, args[k].name);
    }
    return LATHE_OK;
}

/* An operand that a result is written over; results themselves are looked at where they are bound. */
static lathe_status check_in_place(const struct signature *sig, const lathe_arg *t, lathe_error *err)
{
    const int number = find(sig, t->name);
    const int dim = lathe__is_result(&sig->arg[number]) ? -1 : lathe__meeting_dim(t);
    if (dim < 0)
        return LATHE_OK;
    const char *result = "";
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].alias == number + 1)
            result = sig->arg[i].name;
    return lathe__fail(
        err, LATHE_ARG,
        "argument '%s': '%s' is left out and would be written over it: expected elements that lie "
        "apart, given stride %" PRId64 " in dim %d, within the reach of the other dims",
        t->name, result, t->strides[dim], dim);
}

lathe_status lathe__check_sharing(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                                  lathe_error *err)
{
    const bool rows = sig->sharing == SHARING_ROWS;
    if (sig->sharing == SHARING_NONE)
        return check_results(sig, args, n, err);
    for (int i = 0; i < n; i++) {
        const bool written = is_written(sig, args, n, find(sig, args[i].name));
        if (written && need_data) /* without data yet, results seem to be left out */
            TRY(check_in_place(sig, &args[i], err));
        for (int k = 0; written && k < n; k++)
            if (k != i && collide(sig, args, i, k))
                return lathe__fail(
                    err, LATHE_ARG,
                    "argument '%s': expected memory of its own, given some of that of '%s'; only a result "
                    "%s%s%s may lie there, with the same strides",
                    args[i].name, args[k].name,
                    rows ? "whose elements belong to those of '" : "with alias = \"", args[k].name,
                    rows ? "'" : "\"");
    }
    return LATHE_OK;
}
