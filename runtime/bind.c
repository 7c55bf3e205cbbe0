/*
 * bind.c: the sizes and dtypes of one call, from its arguments. In: a signature and lathe_arg records. Out:
 * struct problem, the caller's; nothing is allocated. Every mistake is one sentence with the argument, what
 * was expected and what was given, status ARG. A problem that leaves here has every size bound and in range,
 * so that no later product of sizes can overflow 64 bits. Shared by launches and by the generator.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rt.h"

enum { MAX_ELEMENTS_LOG2 = 44 };

static const char *const SYM_TEXT[] = {
#define SYM_TEXT_ROW(id, text, what) text,
    SYM_MAP(SYM_TEXT_ROW)
#undef SYM_TEXT_ROW
};

const char *lathe__sym_text(const struct signature *sig, int sym)
{
    return sym < SYM_FREE ? SYM_TEXT[sym] : sig->free_name[sym - SYM_FREE];
}

bool lathe__is_attention(const struct signature *sig)
{
    return strcmp(sig->kind, "attention") == 0;
}

bool lathe__is_rowwise(const struct signature *sig)
{
    return strcmp(sig->kind, "rowwise") == 0;
}

static bool is_output(const struct sig_arg *a)
{
    return a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL;
}

static bool is_host_value(const struct sig_arg *a)
{
    return a->role == ROLE_SCALAR || a->role == ROLE_Q_START;
}

void lathe__problem_clear(struct problem *p)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < SYM_COUNT; i++)
        p->dim[i] = -1;
    p->dim[SYM_ONE] = 1;
}

uint64_t lathe__built_presence(const struct signature *sig)
{
    uint64_t set = 0;
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].presence_built)
            set |= arg_bit(i);
    return set;
}

bool lathe__same_build(const struct signature *sig, const struct problem *a, const struct problem *b)
{
    return a->dtype == b->dtype && a->dim[SYM_D] == b->dim[SYM_D] && a->dim[SYM_D_V] == b->dim[SYM_D_V] &&
           a->dim[SYM_N] == b->dim[SYM_N] && ((a->present ^ b->present) & lathe__built_presence(sig)) == 0 &&
           memcmp(a->arg_dtype, b->arg_dtype, sizeof a->arg_dtype) == 0;
}

/* ---- sizes ------------------------------------------------------------------------------------- */

/* A size that is not bound (of an absent optional argument) counts as 0: there is nothing of it. */
int64_t lathe__product_value(const struct product *p, const struct problem *problem)
{
    int64_t value = p->scale;
    for (int i = 0; i < p->n; i++) {
        const int64_t dim = problem->dim[p->factor[i].sym];
        const int64_t tile = p->factor[i].tile > 1 ? p->factor[i].tile : 1;
        const int64_t count = dim > 0 ? (dim - 1) / tile + 1 : 0;
        if (count == 0)
            return 0;
        if (__builtin_mul_overflow(value, count, &value))
            value = INT64_MAX;
    }
    return value;
}

int64_t lathe__buffer_bytes(const struct buffer *b, const struct problem *problem)
{
    const int64_t bytes = lathe__product_value(&b->bytes, problem);
    const int64_t most = b->most.scale > 0 ? lathe__product_value(&b->most, problem) : bytes;
    return bytes < most ? bytes : most;
}

int lathe__heads_packed(const struct problem *problem, int rows)
{
    enum { PART = 64 };
    const int64_t q = problem->dim[SYM_Q];
    const int64_t group = problem->dim[SYM_H_KV] > 0 ? problem->dim[SYM_H] / problem->dim[SYM_H_KV] : 0;
    if (group < 2 || group > PART)
        return 1;
    const int64_t tokens = PART / group * (rows / PART);
    const int64_t packed = (q + tokens - 1) / tokens;
    const int64_t apart = group * ((q + rows - 1) / rows);
    return 10 * packed <= 9 * apart ? (int)group : 1;
}

bool lathe__many_keys(const struct problem *problem)
{
    enum { MANY = 8192 };
    return problem->dim[SYM_KV] >= MANY;
}

int64_t lathe__tensor_stride(const lathe_arg *t, int dim)
{
    if (t->strides)
        return t->strides[dim];
    int64_t stride = 1;
    for (int i = dim + 1; i < t->ndim; i++)
        stride *= t->shape[i];
    return stride;
}

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
        const struct sig_dim d = a->dim[i];
        lathe__say(s, "%s%s", i ? "," : "", d.times == 2 ? "2*" : "");
        if (d.literal > 0)
            lathe__say(s, "%d", d.literal);
        else if (p->dim[d.sym] >= 0)
            lathe__say(s, "%s=%" PRId64, lathe__sym_text(sig, d.sym), p->dim[d.sym]);
        else
            lathe__say(s, "%s", lathe__sym_text(sig, d.sym));
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

int lathe__arg_find(const struct signature *sig, const char *name, int from)
{
    for (int k = 0; k < sig->n_args; k++) {
        const int i = from + k < sig->n_args ? from + k : from + k - sig->n_args;
        if (strcmp(sig->arg[i].name, name) == 0)
            return i;
    }
    return -1;
}

bool lathe__is_float(lathe_dtype dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_F16 || dtype == LATHE_BF16 || dtype == LATHE_F64;
}

/* The name of the first given argument of the problem's dtype, for messages. */
static const char *dtype_owner(const struct signature *sig, const struct problem *p, int except)
{
    for (int i = 0; i < sig->n_args; i++) {
        if (i != except && sig->arg[i].problem_dtype && arg_in(p->present, i))
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
        if (!lathe__is_float(given))
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected dtype f32, f16 or bf16, given %s",
                               a->name, lathe_dtype_text(given));
        if (p->dtype != LATHE_NONE && p->dtype != given)
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected dtype %s as of '%s', given %s",
                               a->name, lathe_dtype_text(p->dtype), dtype_owner(sig, p, i),
                               lathe_dtype_text(given));
        p->dtype = given;
        return LATHE_OK;
    }
    if (a->dtype == LATHE_NONE ? lathe__is_float(given) : a->dtype == given)
        return LATHE_OK;
    if (given == LATHE_F64 && a->dtype == LATHE_F32 && (p->dtype == LATHE_F64 || p->dtype == LATHE_NONE))
        return LATHE_OK; /* before the main tensors were seen: finish() looks again */
    return lathe__fail(err, LATHE_ARG, "argument '%s': expected dtype %s, given %s", a->name,
                       a->dtype == LATHE_NONE ? "f32, f16 or bf16" : dtype_name(a->dtype),
                       lathe_dtype_text(given));
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
        const struct sig_dim d = a->dim[i];
        if (d.literal > 0 || d.sym == SYM_ONE) {
            if (given != (d.literal > 0 ? d.literal : 1))
                return wrong_shape(sig, a, t, p, err);
        } else if (p->dim[d.sym] < 0 && given >= 0 && given <= INT32_MAX &&
                   given % (d.times == 2 ? 2 : 1) == 0) {
            p->dim[d.sym] = d.times == 2 ? given / 2 : given;
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
        if (stride == 0 && t->shape[i] > 1 && is_output(a))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': an output cannot have stride 0 in dim %d of size %" PRId64,
                               a->name, i, t->shape[i]);
        if (i == t->ndim - 1 && (a->unit_last || a->list) && stride != 1 && t->shape[i] > 1)
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
    const int meeting = is_output(a) ? lathe__meeting_dim(t) : -1;
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
        const bool wanted = need_data && a->role != ROLE_OUT_OPTIONAL && !(a->optional && !is_host_value(a));
        if (wanted && (is_host_value(a) || !empty(t)))
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected a data pointer, given NULL", a->name);
        return LATHE_OK;
    }
    const size_t size = a->list ? sizeof(void *) : lathe_dtype_size(t->dtype);
    if (!is_host_value(a) && (uintptr_t)t->data % size)
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

/* *number: where the search for its name begins; then the argument's. */
static lathe_status bind_arg(const struct signature *sig, const lathe_arg *t, bool need_data, int *number,
                             struct problem *p, lathe_error *err)
{
    const int i = t->name ? lathe__arg_find(sig, t->name, *number) : -1;
    *number = i;
    if (i < 0) {
        struct phrase known = {{0}, 0};
        say_known(&known, sig);
        return lathe__fail(err, LATHE_ARG, "argument '%.*s': unknown name; this spec takes %s",
                           NAME_MAX_BYTES, t->name ? t->name : "(NULL)", known.text);
    }
    const struct sig_arg *a = &sig->arg[i];
    if (arg_in(p->present, i))
        return lathe__fail(err, LATHE_ARG, "argument '%s': given twice", a->name);
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
        p->present |= arg_bit(i);
    return status;
}

/* ---- rules that both ways in share ------------------------------------------------------------- */

static lathe_status at_least_one(const struct problem *p, enum sym sym, lathe_error *err)
{
    if (p->dim[sym] >= 1)
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "problem: expected %s >= 1, given %s=%" PRId64, SYM_TEXT[sym],
                       SYM_TEXT[sym], p->dim[sym]);
}

static lathe_status check_sizes(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    static const enum sym POSITIVE[] = {SYM_H, SYM_H_KV, SYM_D, SYM_D_V};
    if (lathe__is_rowwise(sig))
        return at_least_one(p, SYM_N, err);
    if (!lathe__is_attention(sig))
        return LATHE_OK;
    for (size_t i = 0; i < sizeof POSITIVE / sizeof POSITIVE[0]; i++) {
        const lathe_status status = at_least_one(p, POSITIVE[i], err);
        if (status != LATHE_OK)
            return status;
    }
    if (p->dim[SYM_H] % p->dim[SYM_H_KV])
        return lathe__fail(err, LATHE_ARG,
                           "problem: expected h to be a multiple of h_kv, given h=%" PRId64
                           " and h_kv=%" PRId64,
                           p->dim[SYM_H], p->dim[SYM_H_KV]);
    return LATHE_OK;
}

int64_t lathe__dim_value(const struct problem *p, struct sig_dim d)
{
    return (d.literal > 0 ? d.literal : p->dim[d.sym]) * (d.times == 2 ? 2 : 1);
}

static lathe_status check_elements(const struct problem *p, const struct sig_arg *a, lathe_error *err)
{
    int64_t count = 1;
    for (int i = 0; i < a->ndim; i++) {
        const int64_t size = lathe__dim_value(p, a->dim[i]);
        if (size < 0)
            continue; /* of an optional argument that is not there */
        if (__builtin_mul_overflow(count, size, &count) || count >> MAX_ELEMENTS_LOG2)
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected at most 2^%d elements, the problem makes it larger",
                               a->name, MAX_ELEMENTS_LOG2);
    }
    return LATHE_OK;
}

/* Kernels number groups of at least four points along the last dim. */
static lathe_status check_points(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        int64_t groups = a->ndim > 0 ? (lathe__dim_value(p, a->dim[a->ndim - 1]) + 3) / 4 : 0;
        bool too_many = false;
        for (int d = 0; d + 1 < a->ndim && groups > 0; d++)
            too_many |= __builtin_mul_overflow(groups, lathe__dim_value(p, a->dim[d]), &groups);
        if (a->role <= ROLE_OUT_OPTIONAL && (too_many || groups > INT32_MAX))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected fewer than 2^31 groups of four elements along its "
                               "last dim, given more",
                               a->name);
    }
    return LATHE_OK;
}

static lathe_status check_flat(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    if (!lathe__is_attention(sig) && !lathe__is_rowwise(sig))
        return check_points(sig, p, err);
    const int64_t rows = lathe__is_attention(sig) ? p->dim[SYM_B] * p->dim[SYM_H] /* below 2^62 */
                                                  : p->dim[SYM_ROWS0] * p->dim[SYM_ROWS1];
    int64_t all = 0;
    if (__builtin_mul_overflow(rows, lathe__is_attention(sig) ? 1 : p->dim[SYM_ROWS], &all) ||
        all > INT32_MAX)
        return lathe__fail(err, LATHE_ARG, "problem: expected %s below 2^31, given more",
                           lathe__is_attention(sig) ? "b * h" : "rows0 * rows1 * rows");
    return LATHE_OK;
}

/* at.row counts all rows; an input with one value a row has one dim for them. */
static lathe_status check_row_inputs(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    if (!lathe__is_rowwise(sig) || p->dim[SYM_ROWS0] * p->dim[SYM_ROWS1] == 1)
        return LATHE_OK;
    for (int i = 0; i < sig->n_args; i++)
        for (int d = 0;
             sig->arg[i].role == ROLE_INPUT && !sig->arg[i].leading_optional && d < sig->arg[i].ndim; d++)
            if (sig->arg[i].dim[d].sym == SYM_ROWS && sig->arg[i].dim[d].literal == 0)
                return lathe__fail(err, LATHE_ARG,
                                   "problem: expected one leading dim beside the input '%s', whose dim "
                                   "'rows' counts all rows, given rows0=%" PRId64 " and rows1=%" PRId64
                                   "; give x as [rows, n]",
                                   sig->arg[i].name, p->dim[SYM_ROWS0], p->dim[SYM_ROWS1]);
    return LATHE_OK;
}

lathe_status lathe__problem_check(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    lathe_status status = check_sizes(sig, p, err);
    if (status == LATHE_OK)
        status = check_flat(sig, p, err);
    if (status == LATHE_OK)
        status = check_row_inputs(sig, p, err);
    for (int i = 0; i < sig->n_args && status == LATHE_OK; i++) {
        const struct sig_arg *a = &sig->arg[i];
        status = check_elements(p, a, err);
        if (status == LATHE_OK && p->arg_dtype[i] == LATHE_F64 && a->dtype == LATHE_F32 &&
            p->dtype != LATHE_F64)
            status = lathe__fail(
                err, LATHE_ARG,
                "argument '%s': expected dtype f32, given f64; f64 goes with f64 tensors only", a->name);
    }
    return status;
}

/* The dtype that an argument has where nothing says otherwise. */
static lathe_dtype default_dtype(const struct sig_arg *a, lathe_dtype problem_dtype)
{
    return a->problem_dtype || a->dtype == LATHE_NONE ? problem_dtype : (lathe_dtype)a->dtype;
}

/* Absent optional arguments still have a dtype: the plan may name it. */
void lathe__problem_fill_dtypes(const struct signature *sig, struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        if (p->arg_dtype[i] == LATHE_NONE)
            p->arg_dtype[i] = a->alias ? p->arg_dtype[a->alias - 1] : (uint8_t)default_dtype(a, p->dtype);
    }
}

/* The dtype of the first float among those whose dtype is the call's to choose, or the spec's. */
static lathe_dtype first_float(const struct signature *sig, const struct problem *p, bool chosen)
{
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].role <= ROLE_OUT_OPTIONAL && lathe__is_float((lathe_dtype)p->arg_dtype[i]) &&
            (sig->arg[i].dtype == LATHE_NONE) == chosen)
            return (lathe_dtype)p->arg_dtype[i];
    return LATHE_NONE;
}

/* Where no argument has to have it. */
static void take_dtype(const struct signature *sig, struct problem *p)
{
    for (int chosen = 1; chosen >= 0 && p->dtype == LATHE_NONE; chosen--)
        p->dtype = first_float(sig, p, chosen);
    if (p->dtype == LATHE_NONE)
        p->dtype = LATHE_F32;
}

static lathe_status check_missing(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        if (a->optional || arg_in(p->present, i))
            continue;
        struct phrase expected = {{0}, 0};
        say_expected(&expected, sig, a, p);
        if (a->ndim == 0 && is_host_value(a))
            return lathe__fail(err, LATHE_ARG, "argument '%s': missing; it is a scalar of dtype %s", a->name,
                               dtype_name(a->dtype));
        return lathe__fail(err, LATHE_ARG, "argument '%s': missing; expected shape %s", a->name,
                           expected.text);
    }
    return LATHE_OK;
}

/* Does every row of t start at a multiple of 16 bytes? Data that is not there yet does. */
static bool rows_aligned(const lathe_arg *t)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    bool aligned = ((uintptr_t)t->data & 15) == 0;
    for (int i = 0; i < t->ndim - 1; i++)
        aligned &= t->shape[i] <= 1 || lathe__tensor_stride(t, i) * size % 16 == 0;
    return aligned;
}

bool lathe__tma_takes(int64_t stride_bytes)
{
    return stride_bytes > 0 && stride_bytes < (int64_t)1 << 40;
}

static bool is_folded(const lathe_arg *t)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    bool folded = false;
    for (int i = 0; i < t->ndim - 1; i++)
        folded |= t->shape[i] > 1 && !lathe__tma_takes(lathe__tensor_stride(t, i) * size);
    return folded;
}

static void find_layout(const struct signature *sig, int i, const lathe_arg *t, struct problem *out)
{
    if (!sig->arg[i].unit_last)
        return;
    if (!rows_aligned(t))
        out->unaligned |= arg_bit(i);
    if (lathe__is_attention(sig) && is_folded(t))
        out->folded |= arg_bit(i);
}

/* Callers mostly keep the order of the signature: each search begins where the last one ended. */
static lathe_status bind_args(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                              struct problem *out, lathe_error *err)
{
    int number = -1;
    for (int k = 0; k < n; k++) {
        number = number + 1 < sig->n_args ? number + 1 : 0;
        TRY(bind_arg(sig, &args[k], need_data, &number, out, err));
        if (sig->builds_alignment)
            find_layout(sig, number, &args[k], out);
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
    TRY(bind_args(sig, args, n, need_data, out, err));
    take_dtype(sig, out);
    lathe_status status = check_missing(sig, out, err);
    if (status == LATHE_OK)
        status = lathe__problem_check(sig, out, err);
    /* A kernel of attention is the same wherever its tensors lie, and may be asked for with any addresses. */
    if (status == LATHE_OK && (need_data || !lathe__is_attention(sig)))
        status = lathe__check_sharing(sig, args, n, err);
    if (status == LATHE_OK)
        lathe__problem_fill_dtypes(sig, out);
    return status;
}
