/*
 * problem.c: the sizes and dtypes of one call, from its arguments or from one line of text.
 * In: a signature, and either lathe_arg records or "dtype=bf16,q=1000,...". Out: struct problem, the
 * caller's; nothing is allocated. Every mistake is one sentence with the argument, what was expected
 * and what was given, status ARG. A problem that leaves here has every size bound and in range, so
 * that no later product of sizes can overflow 64 bits.
 */
#include "gen.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS_LOG2 = 44, PROBLEM_TEXT_MAX = 4096 };

static const char *const SYM_TEXT[] = {
#define SYM_TEXT_ROW(id, text, what) text,
    SYM_MAP(SYM_TEXT_ROW)
#undef SYM_TEXT_ROW
};

__attribute__((format(printf, 2, 3))) static lathe_status fail(lathe_error *err, const char *fmt, ...)
{
    if (!err)
        return LATHE_ARG;
    err->status = LATHE_ARG;
    err->line = 0;
    err->file[0] = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return LATHE_ARG;
}

static const char *sym_text(const struct signature *sig, int sym)
{
    return sym < SYM_FREE ? SYM_TEXT[sym] : sig->free_name[sym - SYM_FREE];
}

static bool is_attention(const struct signature *sig)
{
    return strcmp(sig->kind, "attention") == 0;
}

static bool is_output(const struct sig_arg *a)
{
    return a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL;
}

static bool is_host_value(const struct sig_arg *a)
{
    return a->role == ROLE_SCALAR || a->role == ROLE_Q_START;
}

static void problem_clear(struct problem *p)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < SYM_COUNT; i++)
        p->dim[i] = -1;
    p->dim[SYM_ONE] = 1;
}

/* ---- texts for messages ------------------------------------------------------------------------ */

struct phrase {
    char text[512];
    size_t size;
};

__attribute__((format(printf, 2, 3))) static void say(struct phrase *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(s->text + s->size, sizeof s->text - s->size, fmt, ap);
    va_end(ap);
    if (n > 0)
        s->size += (size_t)n;
    if (s->size >= sizeof s->text)
        s->size = sizeof s->text - 1;
}

static void say_ints(struct phrase *s, const int64_t *value, int n)
{
    say(s, "[");
    for (int i = 0; i < n; i++)
        say(s, "%s%" PRId64, i ? "," : "", value[i]);
    say(s, "]");
}

/* "[b,h,q,d]", with the sizes that are known: "[b=2,h,q=1000,d]". */
static void say_expected(struct phrase *s, const struct signature *sig, const struct sig_arg *a,
                         const struct problem *p)
{
    say(s, a->leading_optional ? "[(" : "[");
    const int lead = a->leading_optional ? a->ndim - 1 : 0;
    for (int i = 0; i < a->ndim; i++) {
        const struct sig_dim d = a->dim[i];
        say(s, "%s", i ? "," : "");
        if (d.literal > 0)
            say(s, "%d", d.literal);
        else if (p->dim[d.sym] >= 0)
            say(s, "%s=%" PRId64, sym_text(sig, d.sym), p->dim[d.sym]);
        else
            say(s, "%s", sym_text(sig, d.sym));
        if (lead && i == lead - 1)
            say(s, ")");
    }
    say(s, "]%s", a->leading_optional ? " (dims in parentheses may be left out from the left)" : "");
}

static void say_known(struct phrase *s, const struct signature *sig)
{
    for (int i = 0; i < sig->n_args; i++)
        say(s, "%s%s", i ? ", " : "", sig->arg[i].name);
}

static const char *dtype_name(uint8_t dtype)
{
    return lathe_dtype_text((lathe_dtype)dtype);
}

/* ---- arguments --------------------------------------------------------------------------------- */

static int find_arg(const struct signature *sig, const char *name)
{
    for (int i = 0; i < sig->n_args; i++) {
        if (strcmp(sig->arg[i].name, name) == 0)
            return i;
    }
    return -1;
}

static bool is_float(lathe_dtype dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_F16 || dtype == LATHE_BF16 || dtype == LATHE_F64;
}

/* The name of the first given argument of the problem's dtype, for messages. */
static const char *dtype_owner(const struct signature *sig, const struct problem *p, int except)
{
    for (int i = 0; i < sig->n_args; i++) {
        if (i != except && sig->arg[i].problem_dtype && (p->present >> i & 1u))
            return sig->arg[i].name;
    }
    return "the other tensors";
}

/* f64 stands for f32 where the whole problem is f64: the host device's exact mode. */
static lathe_status bind_dtype(const struct signature *sig, int i, lathe_dtype given, struct problem *p,
                               lathe_error *err)
{
    const struct sig_arg *a = &sig->arg[i];
    p->arg_dtype[i] = (uint8_t)given;
    if (a->problem_dtype) {
        if (!is_float(given))
            return fail(err, "argument '%s': expected dtype f32, f16 or bf16, given %s", a->name,
                        lathe_dtype_text(given));
        if (p->dtype != LATHE_NONE && p->dtype != given)
            return fail(err, "argument '%s': expected dtype %s as of '%s', given %s", a->name,
                        lathe_dtype_text(p->dtype), dtype_owner(sig, p, i), lathe_dtype_text(given));
        p->dtype = given;
        return LATHE_OK;
    }
    if (a->dtype == LATHE_NONE ? is_float(given) : a->dtype == given)
        return LATHE_OK;
    if (given == LATHE_F64 && a->dtype == LATHE_F32 && (p->dtype == LATHE_F64 || p->dtype == LATHE_NONE))
        return LATHE_OK; /* before the main tensors were seen: finish() looks again */
    return fail(err, "argument '%s': expected dtype %s, given %s", a->name,
                a->dtype == LATHE_NONE ? "f32, f16 or bf16" : dtype_name(a->dtype), lathe_dtype_text(given));
}

static lathe_status wrong_shape(const struct signature *sig, const struct sig_arg *a, const lathe_arg *t,
                                const struct problem *p, lathe_error *err)
{
    struct phrase expected = {{0}, 0};
    struct phrase given = {{0}, 0};
    say_expected(&expected, sig, a, p);
    say_ints(&given, t->shape, t->ndim);
    return fail(err, "argument '%s': expected shape %s, given %s", a->name, expected.text, given.text);
}

/* Leading dims that the caller left out are 1. */
static lathe_status bind_shape(const struct signature *sig, const struct sig_arg *a, const lathe_arg *t,
                               struct problem *p, lathe_error *err)
{
    const int skip = a->ndim - t->ndim;
    for (int i = 0; i < a->ndim; i++) {
        const int64_t given = i < skip ? 1 : t->shape[i - skip];
        const struct sig_dim d = a->dim[i];
        if (d.literal > 0 || d.sym == SYM_ONE) {
            if (given != (d.literal > 0 ? d.literal : 1))
                return wrong_shape(sig, a, t, p, err);
        } else if (p->dim[d.sym] < 0 && given >= 0 && given <= INT32_MAX) {
            p->dim[d.sym] = given;
        } else if (p->dim[d.sym] != given) {
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
            return fail(err, "argument '%s': expected strides >= 0, given %" PRId64 " in dim %d", a->name,
                        stride, i);
        if (stride == 0 && t->shape[i] > 1 && is_output(a))
            return fail(err, "argument '%s': an output cannot have stride 0 in dim %d of size %" PRId64,
                        a->name, i, t->shape[i]);
        if (i == t->ndim - 1 && a->unit_last && stride != 1 && t->shape[i] > 1)
            return fail(
                err, "argument '%s': expected last stride 1, given %" PRId64 "; make the last dim contiguous",
                a->name, stride);
        int64_t step = 0;
        if (__builtin_mul_overflow(t->shape[i] - 1, stride, &step) ||
            __builtin_add_overflow(reach, step, &reach) ||
            __builtin_mul_overflow(compact, t->shape[i], &compact) || reach >> MAX_ELEMENTS_LOG2)
            return fail(
                err,
                "argument '%s': expected at most 2^%d elements between the first and the last, given more",
                a->name, MAX_ELEMENTS_LOG2);
    }
    return LATHE_OK;
}

static lathe_status check_data(const struct sig_arg *a, const lathe_arg *t, bool need_data, lathe_error *err)
{
    if (!t->data) {
        const bool wanted = need_data && a->role != ROLE_OUT_OPTIONAL && !(a->optional && !is_host_value(a));
        if (wanted && (is_host_value(a) || !empty(t)))
            return fail(err, "argument '%s': expected a data pointer, given NULL", a->name);
        return LATHE_OK;
    }
    if (!is_host_value(a) && (uintptr_t)t->data % lathe_dtype_size(t->dtype))
        return fail(err, "argument '%s': expected data aligned to its element of %zu bytes, given %p",
                    a->name, lathe_dtype_size(t->dtype), t->data);
    return LATHE_OK;
}

static lathe_status check_form(const struct signature *sig, const struct sig_arg *a, const lathe_arg *t,
                               const struct problem *p, lathe_error *err)
{
    const int least = a->leading_optional ? (a->dim[a->ndim - 1].sym == SYM_N ? 1 : 0) : a->ndim;
    if (t->ndim < 0 || t->ndim > MAX_DIMS)
        return fail(err, "argument '%s': expected %d dims, given %d", a->name, a->ndim, t->ndim);
    if (t->ndim > 0 && !t->shape)
        return fail(err, "argument '%s': expected a shape of %d dims, given NULL", a->name, t->ndim);
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX)
            return fail(err, "argument '%s': expected sizes from 0 to 2^31 - 1, given %" PRId64 " in dim %d",
                        a->name, t->shape[i], i);
    }
    if (t->ndim < least || t->ndim > a->ndim)
        return wrong_shape(sig, a, t, p, err);
    return LATHE_OK;
}

static lathe_status bind_arg(const struct signature *sig, const lathe_arg *t, bool need_data,
                             struct problem *p, lathe_error *err)
{
    const int i = t->name ? find_arg(sig, t->name) : -1;
    if (i < 0) {
        struct phrase known = {{0}, 0};
        say_known(&known, sig);
        return fail(err, "argument '%.*s': unknown name; this spec takes %s", NAME_MAX_BYTES,
                    t->name ? t->name : "(NULL)", known.text);
    }
    const struct sig_arg *a = &sig->arg[i];
    if (p->present >> i & 1u)
        return fail(err, "argument '%s': given twice", a->name);
    lathe_status status = check_form(sig, a, t, p, err);
    if (status == LATHE_OK)
        status = bind_dtype(sig, i, t->dtype, p, err);
    if (status == LATHE_OK)
        status = bind_shape(sig, a, t, p, err);
    if (status == LATHE_OK)
        status = check_strides(a, t, err);
    if (status == LATHE_OK)
        status = check_data(a, t, need_data, err);
    if (status == LATHE_OK && (t->data || !a->optional || !need_data))
        p->present |= 1u << i;
    return status;
}

/* ---- rules that both ways in share ------------------------------------------------------------- */

static lathe_status at_least_one(const struct problem *p, enum sym sym, lathe_error *err)
{
    if (p->dim[sym] >= 1)
        return LATHE_OK;
    return fail(err, "problem: expected %s >= 1, given %s=%" PRId64, SYM_TEXT[sym], SYM_TEXT[sym],
                p->dim[sym]);
}

static lathe_status check_sizes(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    static const enum sym POSITIVE[] = {SYM_H, SYM_H_KV, SYM_D, SYM_D_V};
    if (!is_attention(sig))
        return at_least_one(p, SYM_N, err);
    for (size_t i = 0; i < sizeof POSITIVE / sizeof POSITIVE[0]; i++) {
        const lathe_status status = at_least_one(p, POSITIVE[i], err);
        if (status != LATHE_OK)
            return status;
    }
    if (p->dim[SYM_H] % p->dim[SYM_H_KV])
        return fail(err,
                    "problem: expected h to be a multiple of h_kv, given h=%" PRId64 " and h_kv=%" PRId64,
                    p->dim[SYM_H], p->dim[SYM_H_KV]);
    return LATHE_OK;
}

static int64_t dim_value(const struct problem *p, struct sig_dim d)
{
    return d.literal > 0 ? d.literal : p->dim[d.sym];
}

static lathe_status check_elements(const struct problem *p, const struct sig_arg *a, lathe_error *err)
{
    int64_t count = 1;
    for (int i = 0; i < a->ndim; i++) {
        const int64_t size = dim_value(p, a->dim[i]);
        if (size < 0)
            continue; /* of an optional argument that is not there */
        if (__builtin_mul_overflow(count, size, &count) || count >> MAX_ELEMENTS_LOG2)
            return fail(err, "argument '%s': expected at most 2^%d elements, the problem makes it larger",
                        a->name, MAX_ELEMENTS_LOG2);
    }
    return LATHE_OK;
}

static lathe_status check_flat(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    const int64_t rows = is_attention(sig) ? p->dim[SYM_B] * p->dim[SYM_H] /* below 2^62 */
                                           : p->dim[SYM_ROWS0] * p->dim[SYM_ROWS1];
    int64_t all = 0;
    if (__builtin_mul_overflow(rows, is_attention(sig) ? 1 : p->dim[SYM_ROWS], &all) || all > INT32_MAX)
        return fail(err, "problem: expected %s below 2^31, given more",
                    is_attention(sig) ? "b * h" : "rows0 * rows1 * rows");
    return LATHE_OK;
}

static lathe_status finish(const struct signature *sig, struct problem *p, lathe_error *err)
{
    lathe_status status = check_sizes(sig, p, err);
    if (status == LATHE_OK)
        status = check_flat(sig, p, err);
    for (int i = 0; i < sig->n_args && status == LATHE_OK; i++) {
        const struct sig_arg *a = &sig->arg[i];
        status = check_elements(p, a, err);
        if (status == LATHE_OK && p->arg_dtype[i] == LATHE_F64 && a->dtype == LATHE_F32 &&
            p->dtype != LATHE_F64)
            status = fail(err, "argument '%s': expected dtype f32, given f64; f64 goes with f64 tensors only",
                          a->name);
    }
    return status;
}

/* The dtype that an argument has where nothing says otherwise. */
static lathe_dtype default_dtype(const struct sig_arg *a, lathe_dtype problem_dtype)
{
    return a->problem_dtype || a->dtype == LATHE_NONE ? problem_dtype : (lathe_dtype)a->dtype;
}

/* Absent optional arguments still have a dtype: the plan may name it. */
static void fill_dtypes(const struct signature *sig, struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++) {
        if (p->arg_dtype[i] == LATHE_NONE)
            p->arg_dtype[i] = (uint8_t)default_dtype(&sig->arg[i], p->dtype);
    }
}

static lathe_status check_missing(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        if (a->optional || (p->present >> i & 1u))
            continue;
        struct phrase expected = {{0}, 0};
        say_expected(&expected, sig, a, p);
        if (a->ndim == 0 && is_host_value(a))
            return fail(err, "argument '%s': missing; it is a scalar of dtype %s", a->name,
                        dtype_name(a->dtype));
        return fail(err, "argument '%s': missing; expected shape %s", a->name, expected.text);
    }
    return LATHE_OK;
}

/* Does every row of t start at a multiple of 16 bytes? Data that is not there yet does. */
static bool rows_aligned(const lathe_arg *t)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    bool aligned = ((uintptr_t)t->data & 15) == 0;
    for (int i = 0; i < t->ndim - 1; i++)
        aligned &= t->shape[i] <= 1 || tensor_stride(t, i) * size % 16 == 0;
    return aligned;
}

static void find_unaligned(const struct signature *sig, const lathe_arg *args, int n, struct problem *out)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < sig->n_args; i++)
            if (sig->arg[i].problem_dtype && strcmp(sig->arg[i].name, args[k].name) == 0 &&
                !rows_aligned(&args[k]))
                out->unaligned |= 1u << i;
}

lathe_status problem_from_args(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                               struct problem *out, lathe_error *err)
{
    problem_clear(out);
    if (n < 0 || (n > 0 && !args))
        return fail(err, "arguments: expected a list of n >= 0 records, given n=%d at %p", n,
                    (const void *)args);
    for (int i = 0; i < n; i++) {
        const lathe_status status = bind_arg(sig, &args[i], need_data, out, err);
        if (status != LATHE_OK)
            return status;
    }
    lathe_status status = check_missing(sig, out, err);
    if (status == LATHE_OK)
        status = finish(sig, out, err);
    if (status == LATHE_OK)
        fill_dtypes(sig, out);
    if (status == LATHE_OK && strcmp(sig->kind, "attention") == 0)
        find_unaligned(sig, args, n, out);
    return status;
}

/* ---- the one-line syntax ----------------------------------------------------------------------- */

struct item { /* one NAME=VALUE, not terminated */
    const char *name;
    int name_size;
    const char *value;
    int value_size;
};

static bool item_is(const struct item *item, const char *name)
{
    return (int)strlen(name) == item->name_size && memcmp(name, item->name, (size_t)item->name_size) == 0;
}

static bool value_is(const struct item *item, const char *value)
{
    return (int)strlen(value) == item->value_size &&
           memcmp(value, item->value, (size_t)item->value_size) == 0;
}

/* Symbols that a problem of this kind may set: the range of SYM_MAP, then the free dims. */
static bool sym_is_settable(const struct signature *sig, int sym)
{
    if (sym >= SYM_FREE)
        return sym < SYM_FREE + sig->n_free;
    return is_attention(sig) ? sym >= SYM_B && sym <= SYM_D_V : sym >= SYM_ROWS0 && sym <= SYM_N;
}

static int find_sym(const struct signature *sig, const struct item *item)
{
    for (int sym = 0; sym < SYM_COUNT; sym++) {
        if (sym_is_settable(sig, sym) && item_is(item, sym_text(sig, sym)))
            return sym;
    }
    return -1;
}

static bool has_choice(const struct sig_arg *a) /* of its dtype, or to be left out */
{
    return a->role == ROLE_INPUT && (a->optional || a->dtype == LATHE_NONE);
}

static lathe_status unknown_item(const struct signature *sig, const struct item *item, lathe_error *err)
{
    struct phrase known = {{0}, 0};
    say(&known, "dtype");
    for (int sym = 0; sym < SYM_COUNT; sym++) {
        if (sym_is_settable(sig, sym))
            say(&known, ", %s", sym_text(sig, sym));
    }
    for (int i = 0; i < sig->n_args; i++) {
        if (has_choice(&sig->arg[i]))
            say(&known, ", %s (a dtype or none)", sig->arg[i].name);
    }
    return fail(err, "problem: unknown name '%.*s'; this spec knows %s",
                item->name_size > 64 ? 64 : item->name_size, item->name, known.text);
}

static lathe_status parse_size(const struct signature *sig, int sym, const struct item *item,
                               struct problem *p, lathe_error *err)
{
    int64_t value = 0;
    bool good = item->value_size > 0 && item->value_size <= 10;
    for (int i = 0; i < item->value_size && good; i++) {
        good = item->value[i] >= '0' && item->value[i] <= '9';
        value = value * 10 + (item->value[i] - '0');
    }
    if (!good || value > INT32_MAX)
        return fail(err, "problem: expected %s to be a whole number from 0 to 2^31 - 1, given '%.*s'",
                    sym_text(sig, sym), item->value_size > 64 ? 64 : item->value_size, item->value);
    if (p->dim[sym] >= 0)
        return fail(err, "problem: '%s' is given twice", sym_text(sig, sym));
    p->dim[sym] = value;
    return LATHE_OK;
}

static lathe_dtype parse_dtype(const struct item *item)
{
    for (int d = LATHE_F32; d <= LATHE_F64; d++) {
        if (is_float((lathe_dtype)d) && value_is(item, lathe_dtype_text((lathe_dtype)d)))
            return (lathe_dtype)d;
    }
    return LATHE_NONE;
}

static lathe_status parse_problem_dtype(const struct item *item, struct problem *p, lathe_error *err)
{
    if (p->dtype != LATHE_NONE)
        return fail(err, "problem: 'dtype' is given twice");
    p->dtype = parse_dtype(item);
    if (p->dtype != LATHE_NONE)
        return LATHE_OK;
    return fail(err,
                "problem: expected dtype to be f32, f16 or bf16 (or f64, on the host device), given '%.*s'",
                item->value_size > 64 ? 64 : item->value_size, item->value);
}

/* NAME=f16 chooses the dtype of an input declared "float"; NAME=none leaves an optional one out. */
static lathe_status parse_choice(const struct signature *sig, int i, const struct item *item,
                                 struct problem *p, lathe_error *err)
{
    const struct sig_arg *a = &sig->arg[i];
    if (a->optional && value_is(item, "none")) {
        p->present &= ~(1u << i);
        return LATHE_OK;
    }
    const lathe_dtype dtype = a->dtype == LATHE_NONE ? parse_dtype(item) : LATHE_NONE;
    if (dtype == LATHE_NONE)
        return fail(err, "problem: expected %s to be %s%s%s, given '%.*s'", a->name,
                    a->dtype == LATHE_NONE ? "f32, f16 or bf16" : "",
                    a->dtype == LATHE_NONE && a->optional ? " or " : "", a->optional ? "none" : "",
                    item->value_size > 64 ? 64 : item->value_size, item->value);
    p->arg_dtype[i] = (uint8_t)dtype;
    return LATHE_OK;
}

static lathe_status parse_item(const struct signature *sig, const struct item *item, struct problem *p,
                               lathe_error *err)
{
    if (item_is(item, "dtype"))
        return parse_problem_dtype(item, p, err);
    const int sym = find_sym(sig, item);
    if (sym >= 0)
        return parse_size(sig, sym, item, p, err);
    for (int i = 0; i < sig->n_args; i++) {
        if (has_choice(&sig->arg[i]) && item_is(item, sig->arg[i].name))
            return parse_choice(sig, i, item, p, err);
    }
    return unknown_item(sig, item, err);
}

static lathe_status split_items(const struct signature *sig, const char *text, struct problem *p,
                                lathe_error *err)
{
    if (strlen(text) > PROBLEM_TEXT_MAX)
        return fail(err, "problem: expected at most %d characters, given %zu", PROBLEM_TEXT_MAX,
                    strlen(text));
    for (const char *at = text; *text;) {
        const int size = (int)strcspn(at, ",");
        const char *equals = memchr(at, '=', (size_t)size);
        if (!equals || equals == at)
            return fail(err, "problem: expected NAME=VALUE separated by commas, given '%.*s'",
                        size > 64 ? 64 : size, at);
        const struct item item = {at, (int)(equals - at), equals + 1, size - (int)(equals - at) - 1};
        const lathe_status status = parse_item(sig, &item, p, err);
        if (status != LATHE_OK || !at[size])
            return status;
        at += size + 1;
    }
    return LATHE_OK;
}

static void fill(struct problem *p, enum sym sym, int64_t value)
{
    if (p->dim[sym] < 0)
        p->dim[sym] = value;
}

static void fill_sizes(const struct signature *sig, struct problem *p)
{
    if (p->dtype == LATHE_NONE)
        p->dtype = LATHE_BF16;
    if (!is_attention(sig)) {
        fill(p, SYM_ROWS0, 1);
        fill(p, SYM_ROWS1, 1);
        fill(p, SYM_ROWS, 1024);
        fill(p, SYM_N, 1024);
        return;
    }
    fill(p, SYM_B, 1);
    fill(p, SYM_H, p->dim[SYM_H_KV] >= 0 ? p->dim[SYM_H_KV] : 8);
    fill(p, SYM_H_KV, p->dim[SYM_H]);
    fill(p, SYM_Q, p->dim[SYM_KV] >= 0 ? p->dim[SYM_KV] : 1024);
    fill(p, SYM_KV, p->dim[SYM_Q]);
    fill(p, SYM_D, p->dim[SYM_D_V] >= 0 ? p->dim[SYM_D_V] : 128);
    fill(p, SYM_D_V, p->dim[SYM_D]);
}

/* A free dim has no default: an optional input that lacks one is absent, others are refused. */
static lathe_status check_free_dims(const struct signature *sig, struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        for (int k = 0; k < a->ndim; k++) {
            if (!(p->present >> i & 1u) || dim_value(p, a->dim[k]) >= 0)
                continue;
            if (!a->optional)
                return fail(err, "problem: the size of dim '%s' of input '%s' has no default; add %s=SIZE",
                            sym_text(sig, a->dim[k].sym), a->name, sym_text(sig, a->dim[k].sym));
            p->present &= ~(1u << i);
        }
    }
    return LATHE_OK;
}

lathe_status problem_parse(const struct signature *sig, const char *text, struct problem *out,
                           lathe_error *err)
{
    problem_clear(out);
    out->present = sig->n_args >= 32 ? UINT32_MAX : (1u << sig->n_args) - 1u;
    lathe_status status = split_items(sig, text ? text : "", out, err);
    if (status != LATHE_OK)
        return status;
    fill_sizes(sig, out);
    fill_dtypes(sig, out);
    status = check_free_dims(sig, out, err);
    if (status == LATHE_OK)
        status = finish(sig, out, err);
    return status;
}
