/*
 * places.c: calls whose keys or heads are a part of all, as those of one GPU of several are: kv_start and
 * len_kv, kv_chunk and kv_step, h_start and n_h. In: a signature and what a call gives. Out: sizes and
 * whether tensors have the whole ones, or one sentence, status ARG. A size of the whole is that of the
 * argument of ROLE_TOTAL, and of every input that has a place for each key or head of all.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/recipe/bind.h"

int lathe__place_find(const struct signature *sig, enum arg_role role, enum sym sym)
{
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].role == role && sig->arg[i].dim[0].sym == sym)
            return i;
    return -1;
}

static bool is_named(const struct signature *sig, int arg, const lathe_arg *args, int n, bool need_data)
{
    for (int k = 0; k < n && arg >= 0; k++)
        if (args[k].name && strcmp(args[k].name, sig->arg[arg].name) == 0 && (args[k].data || !need_data))
            return true;
    return false;
}

void lathe__places_find(const struct signature *sig, const lathe_arg *args, int n, bool need_data,
                        struct problem *p)
{
    p->cut_keys = is_named(sig, lathe__place_find(sig, ROLE_TOTAL, SYM_ALL_KV), args, n, need_data);
    p->cut_heads = is_named(sig, lathe__place_find(sig, ROLE_TOTAL, SYM_ALL_H), args, n, need_data);
    p->chunked = is_named(sig, lathe__place_find(sig, ROLE_CHUNK, SYM_ALL_KV), args, n, need_data);
}

/* In a line of text the size brings both of its arguments. */
static bool bring(const struct signature *sig, struct problem *p, enum sym sym, bool usual)
{
    const int total = lathe__place_find(sig, ROLE_TOTAL, sym);
    const int start = lathe__place_find(sig, ROLE_START, sym);
    if (usual && arg_in(p->present, total) && start >= 0)
        p->present |= arg_bit(start);
    return arg_in(p->present, total);
}

/* As many query heads for each key head as the part has. */
static int64_t heads_of_key_head(const struct problem *p)
{
    return p->dim[SYM_H_KV] > 0 && p->dim[SYM_H] >= p->dim[SYM_H_KV] ? p->dim[SYM_H] / p->dim[SYM_H_KV] : 1;
}

/* Where nothing has said n_h, as in a call without data: an input by key head has those of all. */
static void take_heads_of_all(struct problem *p)
{
    if (p->cut_heads && p->dim[SYM_ALL_H] < 0 && p->dim[SYM_ALL_H_KV] >= 0 && p->dim[SYM_H_KV] > 0)
        p->dim[SYM_ALL_H] = p->dim[SYM_ALL_H_KV] * heads_of_key_head(p);
}

void lathe__places_bring(const struct signature *sig, struct problem *p, bool usual)
{
    p->cut_keys = bring(sig, p, SYM_ALL_KV, usual);
    p->cut_heads = bring(sig, p, SYM_ALL_H, usual);
    p->chunked = arg_in(p->present, lathe__place_find(sig, ROLE_CHUNK, SYM_ALL_KV));
    take_heads_of_all(p);
}

static int64_t value_of(const lathe_arg *t)
{
    int32_t value;
    memcpy(&value, t->data, sizeof value);
    return value;
}

lathe_status lathe__total_bind(const struct sig_arg *a, const lathe_arg *t, struct problem *p,
                               lathe_error *err)
{
    int64_t *const dim = &p->dim[a->dim[0].sym];
    if (!t->data || t->dtype != LATHE_I32)
        return LATHE_OK;
    const int64_t value = value_of(t);
    if (value < 0 || (*dim >= 0 && *dim != value))
        return lathe__fail(err, LATHE_ARG,
                           *dim >= 0
                               ? "argument '%s': expected %" PRId64 ", the size of an input, given %" PRId64
                               : "argument '%s': expected a size of %" PRId64 " or more, given %" PRId64,
                           a->name, *dim >= 0 ? *dim : 0, value);
    *dim = value;
    return LATHE_OK;
}

void lathe__dims_of_all(const struct problem *p, int64_t dim[SYM_COUNT])
{
    memcpy(dim, p->dim, sizeof p->dim);
    if (p->cut_keys)
        dim[SYM_KV] = dim[SYM_ALL_KV];
    if (p->cut_heads) {
        dim[SYM_H] = dim[SYM_ALL_H];
        dim[SYM_H_KV] = dim[SYM_ALL_H_KV];
    }
}

/* ---- what goes together --------------------------------------------------------------------------- */

static lathe_status check_within(const struct signature *sig, const struct problem *p, int part, int all,
                                 lathe_error *err)
{
    if (p->dim[part] <= p->dim[all])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "argument '%s': expected %s=%" PRId64
                       " or more, as many as this call has, given %" PRId64,
                       lathe__sym_text(sig, all), lathe__sym_text(sig, part), p->dim[part], p->dim[all]);
}

void lathe__places_fill(struct problem *p)
{
    if (p->cut_heads && p->dim[SYM_ALL_H_KV] < 0 && p->dim[SYM_ALL_H] >= 0)
        p->dim[SYM_ALL_H_KV] = p->dim[SYM_ALL_H] / heads_of_key_head(p);
}

static lathe_status check_heads(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    const int64_t group = heads_of_key_head(p);
    TRY(check_within(sig, p, SYM_H, SYM_ALL_H, err));
    if (p->dim[SYM_ALL_H] % group != 0)
        return lathe__fail(err, LATHE_ARG,
                           "argument 'n_h': expected a multiple of h / h_kv = %" PRId64 ", given %" PRId64,
                           group, p->dim[SYM_ALL_H]);
    if (p->dim[SYM_ALL_H_KV] != p->dim[SYM_ALL_H] / group)
        return lathe__fail(err, LATHE_ARG,
                           "argument 'n_h': expected an input by key head to have those of all %" PRId64
                           " query heads, %" PRId64 ", given %" PRId64,
                           p->dim[SYM_ALL_H], p->dim[SYM_ALL_H] / group, p->dim[SYM_ALL_H_KV]);
    return LATHE_OK;
}

static bool is_given(const struct signature *sig, const struct problem *p, const char *name)
{
    return arg_in(p->present, lathe__arg_find(sig, name, 0));
}

/* The first input that is there and has a place for each key of all; NULL: none. */
static const char *input_by_key(const struct signature *sig, const struct problem *p)
{
    for (int i = 0; i < sig->n_args; i++)
        for (int d = 0; d < sig->arg[i].ndim && arg_in(p->present, i); d++)
            if (sig->arg[i].dim[d].whole == SYM_ALL_KV)
                return sig->arg[i].name;
    return NULL;
}

/* Do lists on the device say how many keys of each sequence are here? Then kv is what tensors have room for.
 */
static bool lists_keys(const struct signature *sig, const struct problem *p)
{
    return is_given(sig, p, "cu_q") || is_given(sig, p, "used_kv");
}

/* Lists say of each sequence how many of its keys are here, and not how many there are. */
static lathe_status check_keys(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    const bool packed = is_given(sig, p, "cu_q");
    const char *const list = packed                        ? "cu_q"
                             : p->paged                    ? "pages"
                             : is_given(sig, p, "used_kv") ? "used_kv"
                                                           : NULL;
    const char *const input = packed ? input_by_key(sig, p) : NULL;
    if (!lists_keys(sig, p))
        TRY(check_within(sig, p, SYM_KV, SYM_ALL_KV, err));
    if (list && !is_given(sig, p, "q_start"))
        return lathe__fail(
            err, LATHE_ARG,
            "argument 'kv_start': expected 'q_start' beside '%s', which does not say how many keys "
            "a sequence has in all",
            list);
    if (input)
        return lathe__fail(
            err, LATHE_ARG,
            "argument 'kv_start': the input '%s' has a place for each key of one sequence, and cu_q "
            "packs several; give each sequence a batch of its own",
            input);
    return LATHE_OK;
}

lathe_status lathe__places_check(const struct signature *sig, const struct problem *p, lathe_error *err)
{
    if (p->chunked && !p->cut_keys)
        return lathe__fail(err, LATHE_ARG,
                           "argument 'kv_chunk': expected 'kv_start' and 'len_kv' beside it: chunks are of a "
                           "part of all keys");
    if (p->cut_keys)
        TRY(check_keys(sig, p, err));
    return p->cut_heads ? check_heads(sig, p, err) : LATHE_OK;
}

/* ---- where parts begin ---------------------------------------------------------------------------- */

int64_t lathe__place_start(const struct signature *sig, const lathe_arg *const *arg, enum sym sym)
{
    const int i = lathe__place_find(sig, ROLE_START, sym);
    return i >= 0 && arg[i] && arg[i]->data ? value_of(arg[i]) : 0;
}

struct key_places lathe__key_places(const struct signature *sig, const lathe_arg *const *arg)
{
    const int chunk = lathe__place_find(sig, ROLE_CHUNK, SYM_ALL_KV);
    const int step = lathe__place_find(sig, ROLE_STEP, SYM_ALL_KV);
    struct key_places p = {lathe__place_start(sig, arg, SYM_ALL_KV), 0, 0};
    if (chunk >= 0 && arg[chunk] && arg[chunk]->data && arg[step] && arg[step]->data) {
        p.chunk = value_of(arg[chunk]);
        p.step = value_of(arg[step]);
    }
    return p;
}

/* Where each sequence ends, lists say. */
static lathe_status check_begin(int64_t start, const struct problem *p, lathe_error *err)
{
    if (start >= 0 && start <= p->dim[SYM_ALL_KV])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "argument 'kv_start': expected from 0 to len_kv=%" PRId64 ", given %" PRId64,
                       p->dim[SYM_ALL_KV], start);
}

static lathe_status check_chunks(const struct signature *sig, const struct problem *p,
                                 const lathe_arg *const *arg, lathe_error *err)
{
    const struct key_places k = lathe__key_places(sig, arg);
    const int64_t n = p->dim[SYM_KV];
    if (k.chunk < 1 || k.step < k.chunk)
        return lathe__fail(
            err, LATHE_ARG,
            "argument 'kv_step': expected 'kv_chunk', 1 or more, keys or more, given kv_step=%" PRId64
            " and kv_chunk=%" PRId64,
            k.step, k.chunk);
    if (k.start < 0)
        return lathe__fail(err, LATHE_ARG, "argument 'kv_start': expected 0 or more, given %" PRId64,
                           k.start);
    if (lists_keys(sig, p))
        return check_begin(k.start, p, err);
    if (n == 0 || lathe__place_of_key(&k, n - 1) < p->dim[SYM_ALL_KV])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "argument 'kv_start': expected that the last of %" PRId64
                       " keys, in chunks of %" PRId64 " every %" PRId64 ", is one of len_kv=%" PRId64
                       ", given kv_start=%" PRId64 ", where it is key %" PRId64,
                       n, k.chunk, k.step, p->dim[SYM_ALL_KV], k.start, lathe__place_of_key(&k, n - 1));
}

static lathe_status check_start(const struct signature *sig, const struct problem *p,
                                const lathe_arg *const *arg, int part, int all, lathe_error *err)
{
    const int64_t start = lathe__place_start(sig, arg, (enum sym)all);
    if (start >= 0 && start + p->dim[part] <= p->dim[all])
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "argument '%s': expected from 0 to %" PRId64 ", with %s=%" PRId64 " of %s=%" PRId64
                       " in this call, given %" PRId64,
                       sig->arg[lathe__place_find(sig, ROLE_START, (enum sym)all)].name,
                       p->dim[all] - p->dim[part], lathe__sym_text(sig, part), p->dim[part],
                       lathe__sym_text(sig, all), p->dim[all], start);
}

lathe_status lathe__starts_check(const struct signature *sig, const struct problem *p,
                                 const lathe_arg *const *arg, lathe_error *err)
{
    if (p->chunked)
        TRY(check_chunks(sig, p, arg, err));
    else if (p->cut_keys && lists_keys(sig, p))
        TRY(check_begin(lathe__place_start(sig, arg, SYM_ALL_KV), p, err));
    else if (p->cut_keys)
        TRY(check_start(sig, p, arg, SYM_KV, SYM_ALL_KV, err));
    if (!p->cut_heads)
        return LATHE_OK;
    TRY(check_start(sig, p, arg, SYM_H, SYM_ALL_H, err));
    const int64_t start = lathe__place_start(sig, arg, SYM_ALL_H);
    const int64_t group = heads_of_key_head(p);
    if (start % group == 0)
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "argument 'h_start': expected a multiple of the %" PRId64
                       " query heads of a key head, given %" PRId64,
                       group, start);
}
