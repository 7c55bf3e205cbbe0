/*
 * bind.c: the sizes and dtypes of one call, from its arguments. In: a signature and lathe_arg records. Out:
 * struct problem, the caller's; nothing is allocated. Every mistake is one sentence with the argument, what
 * was expected and what was given, status ARG. A problem that leaves here has every size bound and in range,
 * so that no later product of sizes can overflow 64 bits. Shared by launches and by the generator.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/recipe/bind.h"

/* ---- texts for messages ------------------------------------------------------------------------ */

static void say_ints(struct phrase *s, const int64_t *value, int n)
{
    lathe__say(s, "[");
    for (int i = 0; i < n; i++)
        lathe__say(s, "%s%" PRId64, i ? "," : "", value[i]);
    lathe__say(s, "]");
}

/* "[b,h,q,d]", with the sizes that are known: "[b=2,h,q=1000,d]". */
static void say_expected(struct phrase *s, const struct signature *sig, const struct sig_arg *a,
                         const struct problem *p)
{
    lathe__say(s, a->leading_optional ? "[(" : "[");
    const bool inner = a->ndim == 4 && a->dim[2].sym == SYM_N;
    const int lead = a->leading_optional ? a->ndim - 1 - inner : 0;
    for (int i = 0; i < a->ndim; i++) {
        const struct sig_dim d = lathe__dim_here(p, a->dim[i]);
        lathe__say(s, "%s", i ? "," : "");
        if (d.times > 1)
            lathe__say(s, "%d*", d.times);
        if (d.literal > 0)
            lathe__say(s, "%d", d.literal);
        else if (p->dim[d.sym] >= 0)
            lathe__say(s, "%s=%" PRId64, lathe__sym_text(sig, d.sym), p->dim[d.sym]);
        else
            lathe__say(s, "%s", lathe__sym_text(sig, d.sym));
        if (d.plus > 0)
            lathe__say(s, "+%d", d.plus);
        if (lead && i == lead - 1)
            lathe__say(s, ")");
    }
    lathe__say(s, "]%s", a->leading_optional ? " (dims in parentheses may be left out from the left)" : "");
}

static void say_known(struct phrase *s, const struct signature *sig)
{
    for (int i = 0; i < sig->n_args; i++)
        lathe__say(s, "%s%s", i ? ", " : "", sig->arg[i].name);
}

static const char *dtype_name(uint8_t dtype)
{
    return lathe_dtype_text((lathe_dtype)dtype);
}

/* ---- arguments --------------------------------------------------------------------------------- */

/* The dtype of the first role that has one so far. */
static lathe_dtype bound_dtype(const struct problem *p)
{
    for (int role = DTYPE_Q; role < DTYPE_STATE; role++)
        if (lathe__is_float(p->dtype[role]))
            return p->dtype[role];
    return LATHE_NONE;
}

/* f64 stands for f32 where the whole problem is f64: the host device's exact mode. */
static lathe_status bind_dtype(const struct signature *sig, int i, lathe_dtype given, struct problem *p,
                               lathe_error *err)
{
    const struct sig_arg *a = &sig->arg[i];
    p->arg_dtype[i] = (uint8_t)given;
    if (a->dtype_role != DTYPE_USUAL && p->dtype[a->dtype_role] == LATHE_NONE)
        p->dtype[a->dtype_role] = given;
    if (lathe__has_role_dtype(a)) {
        TRY(lathe__role_dtype_check(a, given, err));
        return lathe__dtype_check(sig, p, i, p->present, err);
    }
    if (a->halves && lathe__is_float(given) && given != LATHE_F64)
        return lathe__dtype_check(sig, p, i, p->present, err);
    if (lathe__has_own_dtype(a))
        return lathe__role_dtype_check(a, given, err);
    if (a->dtype == given)
        return LATHE_OK;
    const lathe_dtype others = bound_dtype(p);
    if (given == LATHE_F64 && a->dtype == LATHE_F32 && (others == LATHE_F64 || others == LATHE_NONE))
        return LATHE_OK; /* before the main tensors were seen: finish() looks again */
    return lathe__fail(err, LATHE_ARG, "argument '%s': expected dtype %s, given %s", a->name,
                       a->halves ? "f32, f16 or bf16" : dtype_name(a->dtype), lathe_dtype_text(given));
}

static lathe_status wrong_shape(const struct signature *sig, const struct sig_arg *a, const lathe_arg *t,
                                const struct problem *p, lathe_error *err)
{
    struct phrase expected = {{0}, 0};
    struct phrase given = {{0}, 0};
    say_expected(&expected, sig, a, p);
    say_ints(&given, t->shape, t->ndim);
    return lathe__fail(err, LATHE_ARG, "argument '%s': expected shape %s, given %s", a->name, expected.text,
                       given.text);
}

/* Leading dims that the caller left out are 1. */
static lathe_status bind_shape(const struct signature *sig, const struct sig_arg *a, const lathe_arg *t,
                               struct problem *p, lathe_error *err)
{
    const int skip = a->ndim - t->ndim;
    for (int i = 0; i < a->ndim; i++) {
        const int64_t given = i < skip ? 1 : t->shape[i - skip];
        const struct sig_dim d = lathe__dim_here(p, a->dim[i]);
        if (d.literal > 0 || d.sym == SYM_ONE) {
            if (given != (d.literal > 0 ? d.literal : 1))
                return wrong_shape(sig, a, t, p, err);
        } else if (p->dim[d.sym] < 0 && given >= d.plus && given <= INT32_MAX &&
                   (given - d.plus) % lathe__times(d) == 0) {
            p->dim[d.sym] = (given - d.plus) / lathe__times(d);
        } else if (lathe__dim_value(p, d) != given) {
            return wrong_shape(sig, a, t, p, err);
        }
    }
    return LATHE_OK;
}

static bool empty(const lathe_arg *t)
{
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return true;
    }
    return false;
}

/* |sum of (size - 1) * stride| must stay far below 2^63; that also bounds compact tensors. */
static lathe_status check_strides(const struct sig_arg *a, const lathe_arg *t, lathe_error *err)
{
    int64_t compact = 1;
    int64_t reach = 0;
    if (empty(t))
        return LATHE_OK;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int64_t stride = t->strides ? t->strides[i] : compact;
        if (stride < 0)
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected strides >= 0, given %" PRId64 " in dim %d", a->name,
                               stride, i);
        if (stride == 0 && t->shape[i] > 1 && lathe__is_result(a))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': an output cannot have stride 0 in dim %d of size %" PRId64,
                               a->name, i, t->shape[i]);
        if (i == t->ndim - 1 && ((a->unit_last && !a->any_last) || a->list) && stride != 1 && t->shape[i] > 1)
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected last stride 1, given %" PRId64
                               "; make the last dim contiguous",
                               a->name, stride);
        int64_t step = 0;
        if (__builtin_mul_overflow(t->shape[i] - 1, stride, &step) ||
            __builtin_add_overflow(reach, step, &reach) ||
            __builtin_mul_overflow(compact, t->shape[i], &compact) || reach >> MAX_ELEMENTS_LOG2)
            return lathe__fail(
                err, LATHE_ARG,
                "argument '%s': expected at most 2^%d elements between the first and the last, given more",
                a->name, MAX_ELEMENTS_LOG2);
    }
    const int meeting = lathe__is_result(a) ? lathe__meeting_dim(t) : -1;
    if (meeting >= 0)
        return lathe__fail(err, LATHE_ARG,
                           "argument '%s': expected an output whose elements lie apart, given stride %" PRId64
                           " in dim %d, within the reach of the other dims",
                           a->name, t->strides[meeting], meeting);
    return LATHE_OK;
}

static lathe_status check_data(const struct sig_arg *a, const lathe_arg *t, bool need_data, lathe_error *err)
{
    if (!t->data) {
        const bool wanted =
            need_data && a->role != ROLE_OUT_OPTIONAL && !(a->optional && !lathe__is_host_value(a));
        if (wanted && (lathe__is_host_value(a) || !empty(t)))
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected a data pointer, given NULL", a->name);
        return LATHE_OK;
    }
    const size_t size = a->list ? sizeof(void *) : lathe_dtype_size(t->dtype);
    if (!lathe__is_host_value(a) && (uintptr_t)t->data % size)
        return lathe__fail(err, LATHE_ARG,
                           "argument '%s': expected data aligned to its element of %zu bytes, given %p",
                           a->name, size, t->data);
    return LATHE_OK;
}

static lathe_status check_form(const struct signature *sig, const struct sig_arg *a, const lathe_arg *t,
                               const struct problem *p, lathe_error *err)
{
    const int last = a->leading_optional ? a->dim[a->ndim - 1].sym : SYM_ONE;
    const int inner = a->ndim == 4 && last == SYM_ROWS ? 2 : 0; /* [..., n, rows] */
    const int least = !a->leading_optional ? a->ndim : last == SYM_N || last >= SYM_FREE ? 1 : inner;
    if (t->ndim < 0 || t->ndim > MAX_DIMS)
        return lathe__fail(err, LATHE_ARG, "argument '%s': expected %d dims, given %d", a->name, a->ndim,
                           t->ndim);
    if (t->ndim > 0 && !t->shape)
        return lathe__fail(err, LATHE_ARG, "argument '%s': expected a shape of %d dims, given NULL", a->name,
                           t->ndim);
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX)
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected sizes from 0 to 2^31 - 1, given %" PRId64
                               " in dim %d",
                               a->name, t->shape[i], i);
    }
    if (t->ndim < least || t->ndim > a->ndim)
        return wrong_shape(sig, a, t, p, err);
    return LATHE_OK;
}

const char *lathe__why_absent(const struct signature *sig, const char *name)
{
    for (const struct sig_absent *a = sig->absent; a && a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a->why;
    return NULL;
}

static lathe_status unknown_argument(const struct signature *sig, const char *name, lathe_error *err)
{
    struct phrase known = {{0}, 0};
    struct nearest nearest = {.word = name ? name : ""};
    if (sig->no_parts[0] && name && (strcmp(name, "part_o") == 0 || strcmp(name, "part_rows") == 0))
        return lathe__fail(err, LATHE_ARG, "argument '%s': this spec makes no parts of rows: %s", name,
                           sig->no_parts);
    const char *const why = lathe__why_absent(sig, name ? name : "");
    if (why)
        return lathe__fail(err, LATHE_ARG, "argument '%s': not taken: %s", name, why);
    if (sig->backward && name && name[0] == 'd' && lathe__arg_find(sig, name + 1, 0) >= 0)
        return lathe__fail(
            err, LATHE_ARG,
            "argument '%.*s': '%.*s' has no gradient in this spec; floats are declared with grad = "
            "true for one (the default of operands of elementwise, not of inputs)",
            NAME_MAX_BYTES, name, NAME_MAX_BYTES, name + 1);
    for (int k = 0; k < sig->n_args; k++)
        lathe__nearest_try(&nearest, sig->arg[k].name);
    say_known(&known, sig);
    return lathe__fail(err, LATHE_ARG, "argument '%.*s': unknown name; this spec takes %s%s", NAME_MAX_BYTES,
                       name ? name : "(NULL)", known.text, lathe__nearest_text(&nearest));
}

/* *number: where the search for its name begins; then the argument's. */
static lathe_status bind_arg(const struct signature *sig, const lathe_arg *t, bool need_data, int *number,
                             struct problem *p, lathe_error *err)
{
    const int i = t->name ? lathe__arg_find(sig, t->name, *number) : -1;
    *number = i;
    if (i < 0)
        return unknown_argument(sig, t->name, err);
    const struct sig_arg *a = &sig->arg[i];
    if (arg_in(p->present, i))
        return lathe__fail(err, LATHE_ARG, "argument '%s': given twice", a->name);
    lathe_status status = check_form(sig, a, t, p, err);
    if (status == LATHE_OK && need_data && a->role == ROLE_TOTAL)
        status = lathe__total_bind(a, t, p, err);
    if (status == LATHE_OK)
        status = bind_dtype(sig, i, t->dtype, p, err);
    if (status == LATHE_OK)
        status = bind_shape(sig, a, t, p, err);
    if (status == LATHE_OK)
        status = check_strides(a, t, err);
    if (status == LATHE_OK)
        status = check_data(a, t, need_data, err);
    if (status == LATHE_OK && (t->data || !a->optional || !need_data))
        p->present |= arg_bit(i);
    return status;
}

/* ---- the call ------------------------------------------------------------------------------------ */

/* The dtype of the first float among those whose dtype is the call's to choose, or the spec's. */
static lathe_dtype first_float(const struct signature *sig, const struct problem *p, bool chosen)
{
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].role <= ROLE_OUT_OPTIONAL && lathe__is_float((lathe_dtype)p->arg_dtype[i]) &&
            (sig->arg[i].dtype == LATHE_NONE) == chosen)
            return (lathe_dtype)p->arg_dtype[i];
    return LATHE_NONE;
}

/* Tensors of roles say it, else those of none. */
static void take_dtype(const struct signature *sig, struct problem *p)
{
    lathe_dtype *const usual = &p->dtype[DTYPE_USUAL];
    *usual = bound_dtype(p);
    for (int chosen = 1; chosen >= 0 && *usual == LATHE_NONE; chosen--)
        *usual = first_float(sig, p, chosen);
    if (*usual == LATHE_NONE)
        *usual = LATHE_F32;
}

static lathe_status check_missing(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        if (a->optional || arg_in(p->present, i) || (a->unless && arg_in(p->present, a->unless - 1)))
            continue;
        struct phrase expected = {{0}, 0};
        say_expected(&expected, sig, a, p);
        if (a->ndim == 0 && lathe__is_host_value(a))
            return lathe__fail(err, LATHE_ARG, "argument '%s': missing; it is a scalar of dtype %s", a->name,
                               dtype_name(a->dtype));
        return lathe__fail(err, LATHE_ARG, "argument '%s': missing; expected shape %s", a->name,
                           expected.text);
    }
    return LATHE_OK;
}

/* Does every row of t start at a multiple of 16 bytes, and are its elements neighbours? Data that is not
 * there yet does. */
static bool rows_aligned(const lathe_arg *t)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    const int last = t->ndim - 1;
    bool aligned = ((uintptr_t)t->data & 15) == 0 &&
                   (last < 0 || t->shape[last] <= 1 || lathe__tensor_stride(t, last) == 1);
    for (int i = 0; i < t->ndim - 1; i++)
        aligned &= t->shape[i] <= 1 || lathe__tensor_stride(t, i) * size % 16 == 0;
    return aligned;
}

/* sequences: of batches, or pages, which TMA then reads as if their tokens were of one tensor. */
static bool is_folded(const lathe_arg *t, bool sequences)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    bool folded = false;
    for (int i = 0; i < t->ndim - 1; i++)
        folded |= t->shape[i] > 1 && !lathe__tma_takes(lathe__tensor_stride(t, i) * size);
    if (folded || !sequences || t->ndim != 4 || t->shape[0] <= 1 || t->shape[2] <= 0)
        return folded;
    const int64_t token = lathe__token_stride(t->shape[2] > 1 ? lathe__tensor_stride(t, 2) : 0);
    const int64_t batch = lathe__tensor_stride(t, 0);
    return (t->shape[2] > 1 && batch % token != 0) ||
           !lathe__tma_counts(t->shape[2], batch / token, t->shape[0]);
}

static void find_layout(const struct signature *sig, int i, const lathe_arg *t, bool sequences,
                        struct problem *out)
{
    if (!sig->arg[i].unit_last)
        return;
    if (!rows_aligned(t))
        out->unaligned |= arg_bit(i);
    if (sig->builds_folded && is_folded(t, sequences))
        out->folded |= arg_bit(i);
}

/* Are shapes those of pools? It has to be known before the first of them is looked at. */
static bool has_named(const char *name, const lathe_arg *args, int n, bool need_data)
{
    bool found = false;
    for (int k = 0; k < n && name[0] && !found; k++)
        found = args[k].name && strcmp(args[k].name, name) == 0 && (args[k].data || !need_data);
    return found;
}

/* Callers mostly keep the order of the signature: each search begins where the last one ended. */
static lathe_status bind_args(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                              struct problem *out, lathe_error *err)
{
    int number = -1;
    out->paged = sig->paged_by && has_named(sig->arg[sig->paged_by - 1].name, args, n, need_data);
    lathe__places_find(sig, args, n, need_data, out);
    const bool sequences = out->paged || has_named("used_kv", args, n, need_data);
    for (int k = 0; k < n; k++) {
        number = number + 1 < sig->n_args ? number + 1 : 0;
        TRY(bind_arg(sig, &args[k], need_data, &number, out, err));
        if (sig->builds_alignment)
            find_layout(sig, number, &args[k], sequences, out);
    }
    return LATHE_OK;
}

lathe_status lathe__problem_from_args(const struct signature *sig, const lathe_arg *args, int n,
                                      bool need_data, struct problem *out, lathe_error *err)
{
    lathe__problem_clear(out);
    if (n < 0 || (n > 0 && !args))
        return lathe__fail(err, LATHE_ARG, "arguments: expected a list of n >= 0 records, given n=%d at %p",
                           n, (const void *)args);
    TRY(lathe__pass_check(sig, err));
    TRY(bind_args(sig, args, n, need_data, out, err));
    take_dtype(sig, out);
    lathe_status status = check_missing(sig, out, err);
    lathe__sizes_fill(sig, out, false);
    if (status == LATHE_OK)
        status = lathe__problem_check(sig, out, err);
    /* Where nothing may be shared a kernel is the same wherever tensors lie, and may be asked for with any
       addresses. */
    if (status == LATHE_OK && (need_data || sig->sharing != SHARING_NONE))
        status = lathe__check_sharing(sig, args, n, need_data, err);
    if (status == LATHE_OK)
        lathe__problem_fill_dtypes(sig, out);
    return status;
}
