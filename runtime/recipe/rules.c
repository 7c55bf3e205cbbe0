/*
 * rules.c: what a problem must be, from arguments or from a line of text. In: a signature and a problem whose
 * sizes are bound. Out: LATHE_OK, or one sentence with what was expected and what was given, status ARG. A
 * problem that leaves here has every size in range, so that no later product of sizes can overflow 64 bits.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/recipe/bind.h"

static const char *name_of(const struct signature *sig, int sym)
{
    return lathe__sym_text(sig, sym);
}

/* Of what is not given: it is not bound. */
static bool is_absent(const struct sig_size *s, const struct problem *p)
{
    return s->beside && !arg_in(p->present, s->beside - 1);
}

static lathe_status check_positive(const struct signature *sig, const struct sig_size *s,
                                   const struct problem *p, lathe_error *err)
{
    if (!s->positive || p->dim[s->sym] >= 1 || is_absent(s, p))
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "problem: expected %s >= 1, given %s=%" PRId64, name_of(sig, s->sym),
                       name_of(sig, s->sym), p->dim[s->sym]);
}

/* The first argument that is there with a dim of that size; NULL: a line of text has brought it. */
static const struct sig_arg *who_has(const struct signature *sig, const struct problem *p, int sym)
{
    for (int i = 0; i < sig->n_args; i++)
        for (int d = 0; d < sig->arg[i].ndim && arg_in(p->present, i); d++)
            if (lathe__dim_here(p, sig->arg[i].dim[d]).sym == sym)
                return &sig->arg[i];
    return NULL;
}

static lathe_status check_tied(const struct signature *sig, const struct sig_size *s, const struct problem *p,
                               lathe_error *err)
{
    const char *name = name_of(sig, s->sym);
    const struct sig_arg *has = who_has(sig, p, s->sym);
    if (!lathe__size_is_tied(s, p) || p->dim[s->sym] == p->dim[s->same_as])
        return LATHE_OK;
    return lathe__fail(
        err, LATHE_ARG, "%s%s%s: expected %s to be %s%s%s%s, given %s=%" PRId64 " and %s=%" PRId64,
        has ? "argument '" : "problem", has ? has->name : "", has ? "'" : "", name, name_of(sig, s->same_as),
        s->by ? " where there is no '" : "", s->by ? sig->arg[s->by - 1].name : "", s->by ? "'" : "", name,
        p->dim[s->sym], name_of(sig, s->same_as), p->dim[s->same_as]);
}

/* Sizes that go with others; all that must be positive are. */
static lathe_status check_relations(const struct signature *sig, const struct sig_size *s,
                                    const struct problem *p, lathe_error *err)
{
    const int64_t value = p->dim[s->sym];
    const char *name = name_of(sig, s->sym);
    if (s->multiple_of != SYM_ONE && value % p->dim[s->multiple_of])
        return lathe__fail(
            err, LATHE_ARG,
            "problem: expected %s to be a multiple of %s, given %s=%" PRId64 " and %s=%" PRId64, name,
            name_of(sig, s->multiple_of), name, value, name_of(sig, s->multiple_of), p->dim[s->multiple_of]);
    if (s->within != SYM_ONE && value > p->dim[s->within])
        return lathe__fail(
            err, LATHE_ARG,
            "problem: expected %s <= %s, of whose elements it takes the first, given %s=%" PRId64
            " and %s=%" PRId64,
            name, name_of(sig, s->within), name, value, name_of(sig, s->within), p->dim[s->within]);
    if (s->packed_by && arg_in(p->present, s->packed_by - 1) && value != 1)
        return lathe__fail(err, LATHE_ARG,
                           "argument '%s': expected %s=1, since packed sequences lie one behind the other in "
                           "one batch, given %s=%" PRId64,
                           sig->arg[s->packed_by - 1].name, name, name, value);
    return check_tied(sig, s, p, err);
}

static lathe_status check_sizes(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_sizes; i++)
        TRY(check_positive(sig, &sig->size[i], p, err));
    for (int i = 0; i < sig->n_sizes; i++)
        TRY(check_relations(sig, &sig->size[i], p, err));
    return LATHE_OK;
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

static lathe_status check_counted(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    struct phrase names = {{0}, 0};
    int64_t count = 0;
    if (sig->counts_points)
        return check_points(sig, p, err);
    if (lathe__count(sig, p, &count) && count <= INT32_MAX)
        return LATHE_OK;
    for (int i = 0; i < sig->n_sizes; i++)
        if (sig->size[i].counted)
            lathe__say(&names, "%s%s", names.size ? " * " : "", lathe__sym_text(sig, sig->size[i].sym));
    return lathe__fail(err, LATHE_ARG, "problem: expected %s below 2^31, given more", names.text);
}

/* at.row counts all rows; an input with one value a row has one dim for them. */
static lathe_status check_row_inputs(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    if (p->dim[SYM_ROWS0] < 0 || p->dim[SYM_ROWS0] * p->dim[SYM_ROWS1] == 1)
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

/* A pass that computes nothing is a mistake of who calls it. */
static lathe_status check_wanted(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    struct phrase known = {{0}, 0};
    for (int i = 0; i < sig->n_args; i++) {
        if (!lathe__is_result(&sig->arg[i]))
            continue;
        if (arg_in(p->present, i) ||
            (sig->arg[i].alias > 0 && !sig->backward)) /* else written over its alias */
            return LATHE_OK;
        lathe__say(&known, "%s%s", known.text[0] ? ", " : "", sig->arg[i].name);
    }
    if (!sig->backward && !known.text[0])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "problem: expected a %s to compute, given none; this pass gives %s",
                       sig->backward ? "gradient" : "result", known.text[0] ? known.text : "none");
}

/* Arguments that say nothing without another. */
static lathe_status check_beside(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const int other = sig->arg[i].beside - 1;
        if (other >= 0 && arg_in(p->present, i) && !arg_in(p->present, other))
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected '%s' beside it, which is not given",
                               sig->arg[i].name, sig->arg[other].name);
    }
    return LATHE_OK;
}

lathe_status lathe__pass_check(const struct signature *sig, lathe_error *err)
{
    if (!sig->combine || !sig->no_parts[0])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "pass: this spec has no combine pass: %s", sig->no_parts);
}

static bool is_given(const struct signature *sig, const struct problem *p, const char *name)
{
    const int i = lathe__arg_find(sig, name, 0);
    return i >= 0 && arg_in(p->present, i);
}

/* Parts of rows are results of their own, and what ends a row must find its place again. */
static lathe_status check_parts(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++) {
        const int part = sig->arg[i].unless - 1;
        if (part >= 0 && arg_in(p->present, i) && arg_in(p->present, part))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected it to be left out beside '%s', of which the combine "
                               "pass makes it",
                               sig->arg[i].name, sig->arg[part].name);
    }
    const bool packed = is_given(sig, p, "cu_q");
    const bool listed = packed || p->paged || is_given(sig, p, "used_kv");
    const bool by_key = sig->parts_by_key && listed && !is_given(sig, p, "q_start");
    if (sig->combine || !is_given(sig, p, "part_o") ||
        !(by_key || (packed && (sig->parts_by_token || sig->parts_by_key))))
        return LATHE_OK;
    return lathe__fail(
        err, LATHE_ARG,
        "argument 'part_o': what ends a row of this spec reads %s, which the combine pass does "
        "not find again beside '%s'; give %s",
        packed ? "its sequence or its place in it" : "its position among the keys",
        packed     ? "cu_q"
        : p->paged ? "pages"
                   : "used_kv",
        packed ? "each sequence a batch of its own" : "q_start");
}

/* Keys and values in pages. */
static lathe_status check_pages(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    enum { MOST_KEYS = 256 };
    const int cu_kv = lathe__arg_find(sig, "cu_kv", 0);
    const int64_t *const dim = p->dim;
    if (!p->paged)
        return LATHE_OK;
    const char *const name = sig->arg[sig->paged_by - 1].name;
    if (cu_kv >= 0 && arg_in(p->present, cu_kv))
        return lathe__fail(err, LATHE_ARG,
                           "argument 'cu_kv': keys in pages have no places among all keys; leave it out and "
                           "say lengths by 'used_kv'");
    if (dim[SYM_PAGE] > MOST_KEYS)
        return lathe__fail(err, LATHE_ARG,
                           "argument '%s': expected pages of 1 to %d keys, given page=%" PRId64, name,
                           MOST_KEYS, dim[SYM_PAGE]);
    if (dim[SYM_MOST] * dim[SYM_PAGE] > INT32_MAX)
        return lathe__fail(err, LATHE_ARG,
                           "argument '%s': expected most * page below 2^31, given most=%" PRId64
                           " and page=%" PRId64,
                           name, dim[SYM_MOST], dim[SYM_PAGE]);
    if (sig->backward && dim[SYM_GATHERED] > INT32_MAX)
        return lathe__fail(
            err, LATHE_ARG,
            "argument '%s': expected seqs * kv below 2^31 in a backward pass, which copies the "
            "keys of all sequences beside each other, given seqs=%" PRId64 " and kv=%" PRId64,
            name, dim[SYM_SEQS], dim[SYM_KV]);
    if (dim[SYM_KV] == dim[SYM_MOST] * dim[SYM_PAGE])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "problem: expected kv to be most * page where there are '%s', given kv=%" PRId64
                       ", most=%" PRId64 " and page=%" PRId64,
                       name, dim[SYM_KV], dim[SYM_MOST], dim[SYM_PAGE]);
}

static bool may_be(const struct sig_arg *a, lathe_dtype dtype)
{
    return a->narrow == NARROW_TAKEN  ? lathe__is_narrow(dtype)
           : a->narrow == NARROW_E4M3 ? dtype == LATHE_F8_E4M3
                                      : false;
}

const char *lathe__role_dtypes(const struct sig_arg *a)
{
    return a->narrow == NARROW_TAKEN  ? "f32, f16, bf16, f8e4m3, f8e5m2 or i8"
           : a->narrow == NARROW_E4M3 ? "f32, f16, bf16 or f8e4m3"
                                      : "f32, f16 or bf16";
}

lathe_status lathe__role_dtype_check(const struct sig_arg *a, lathe_dtype dtype, lathe_error *err)
{
    if (lathe__is_float(dtype) || may_be(a, dtype))
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "argument '%s': expected dtype %s, given %s", a->name,
                       lathe__role_dtypes(a), lathe_dtype_text(dtype));
}

/* Is it of 8 bits, where it may be? Then it is no other tensor's. */
static bool has_narrow(const struct signature *sig, const struct problem *p, int i)
{
    return may_be(&sig->arg[i], (lathe_dtype)p->arg_dtype[i]);
}

static bool share_dtype(const struct sig_arg *a, const struct sig_arg *b)
{
    return (a->halves && b->halves) || (lathe__has_role_dtype(a) && lathe__has_role_dtype(b));
}

lathe_status lathe__dtype_check(const struct signature *sig, const struct problem *p, int i, uint64_t others,
                                lathe_error *err)
{
    if (has_narrow(sig, p, i))
        return LATHE_OK;
    for (int k = 0; k < sig->n_args; k++)
        if (k != i && arg_in(others, k) && share_dtype(&sig->arg[i], &sig->arg[k]) &&
            !has_narrow(sig, p, k) && p->arg_dtype[k] != p->arg_dtype[i])
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected dtype %s as of '%s', given %s",
                               sig->arg[i].name, lathe_dtype_text((lathe_dtype)p->arg_dtype[k]),
                               sig->arg[k].name, lathe_dtype_text((lathe_dtype)p->arg_dtype[i]));
    return LATHE_OK;
}

/* Queries of 8 bits are multiplied by keys and values of 8 bits. */
static lathe_status check_narrow_query(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    int query = -1;
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].narrow == NARROW_E4M3 && p->arg_dtype[i] == LATHE_F8_E4M3)
            query = i;
    for (int i = 0; i < sig->n_args && query >= 0; i++)
        if (sig->arg[i].narrow == NARROW_TAKEN && arg_in(p->present, i) && p->arg_dtype[i] != LATHE_F8_E4M3)
            return lathe__fail(
                err, LATHE_ARG,
                "argument '%s': expected dtype f8e4m3 beside '%s' of f8e4m3, given %s; where %s is a "
                "cache beside other queries, give '%s' as bf16 or f16",
                sig->arg[i].name, sig->arg[query].name, lathe_dtype_text((lathe_dtype)p->arg_dtype[i]),
                sig->arg[i].name, sig->arg[query].name);
    return LATHE_OK;
}

/* Each with those before it. */
static lathe_status check_dtypes(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    for (int i = 0; i < sig->n_args; i++)
        if (arg_in(p->present, i))
            TRY(lathe__dtype_check(sig, p, i, p->present & (arg_bit(i) - 1), err));
    return check_narrow_query(sig, p, err);
}

lathe_status lathe__problem_check(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    lathe_status status = check_dtypes(sig, p, err);
    if (status == LATHE_OK)
        status = check_sizes(sig, p, err);
    if (status == LATHE_OK)
        status = check_pages(sig, p, err);
    if (status == LATHE_OK)
        status = check_wanted(sig, p, err);
    if (status == LATHE_OK)
        status = check_beside(sig, p, err);
    if (status == LATHE_OK)
        status = check_parts(sig, p, err);
    if (status == LATHE_OK)
        status = lathe__places_check(sig, p, err);
    if (status == LATHE_OK)
        status = check_counted(sig, p, err);
    if (status == LATHE_OK)
        status = check_row_inputs(sig, p, err);
    for (int i = 0; i < sig->n_args && status == LATHE_OK; i++) {
        const struct sig_arg *a = &sig->arg[i];
        status = check_elements(p, a, err);
        if (status == LATHE_OK && p->arg_dtype[i] == LATHE_F64 && a->dtype == LATHE_F32 &&
            p->dtype[DTYPE_USUAL] != LATHE_F64)
            status = lathe__fail(
                err, LATHE_ARG,
                "argument '%s': expected dtype f32, given f64; f64 goes with f64 tensors only", a->name);
    }
    return status;
}
