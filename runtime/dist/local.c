/*
 * local.c: what a rank computes: a call of attention with some of the queries, keys and heads. In: what a
 * scheme brings (k and v of others, parts), where it lies among all. Out: a launch with the caller's other
 * arguments cut to the same rows, and with places.
 */
#include "runtime/dist/dist.h"

#include <string.h>

struct share { /* a gradient of an input that is added up */
    struct tensor to, from;
};

struct filling { /* the caller's arguments on their way into a call */
    struct walk *w;
    struct call *c;
    const struct local *l;
    lathe_pass pass;
    int n_shares;
    struct share share[MOST_IN_CALL];
};

static bool has(const struct call *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->t[i].name, name) == 0)
            return true;
    return false;
}

const char *const lathe__dist_keyed[KEYED] = {"k", "v", "k2"};
const char *const lathe__dist_keyed_back[KEYED] = {"dk", "dv", "dk2"};
const char *const lathe__dist_queried_back[BY_QUERY] = {"dq", "dq2"};

bool lathe__dist_is_share(const struct lathe_dist *d, const char *name)
{
    lathe_arg_info info;
    for (int i = 0; name[0] == 'd' && lathe_spec_arg(d->spec, LATHE_FORWARD, i, &info); i++)
        if (info.is_input && strcmp(info.name, name + 1) == 0)
            return true;
    return false;
}

/* The rows of the call out of a tensor of this rank's queries, or of an input of all. */
static lathe_status cut_rows(const struct filling *f, const lathe_arg_info *info, bool of_all,
                             struct tensor *t)
{
    for (int k = 0; k < info->ndim && f->l->cut_q; k++) {
        if (strcmp(info->dim[k].name, "q") != 0)
            continue;
        if (info->dim[k].times != 1 || info->dim[k].plus != 0)
            return lathe__fail(
                f->w->err, LATHE_UNSUPPORTED,
                "dist: the input '%s' has several or more places than queries, which cannot be cut "
                "between ranks; scheme heads gives every rank all queries",
                info->name);
        *t = lathe__dist_slice(*t, t->ndim - info->ndim + k, of_all ? f->l->q.first : f->l->q.local,
                               f->l->q.n);
    }
    return LATHE_OK;
}

static lathe_status add_argument(struct filling *f, const lathe_arg_info *info)
{
    struct tensor t = lathe__dist_arg(f->w, info->name);
    const bool gradient = info->role == LATHE_ROLE_RESULT && lathe__dist_is_share(f->w->d, info->name);
    if (!t.name || has(f->c, info->name) || strcmp(info->name, "q_start") == 0)
        return LATHE_OK;
    if (f->l->parts && info->role == LATHE_ROLE_RESULT)
        return LATHE_OK;
    TRY(cut_rows(f, info, info->is_input || gradient, &t));
    if (gradient && f->w->shares) {
        struct tensor share = lathe__dist_compact(f->w, t.dtype, t.ndim, t.shape);
        share.name = t.name;
        f->share[f->n_shares++] = (struct share){t, share};
        t = share;
    }
    lathe__dist_put(f->c, t);
    return LATHE_OK;
}

static lathe_status add_arguments(struct filling *f)
{
    lathe_arg_info info;
    for (int i = 0; lathe_spec_arg(f->w->d->spec, f->pass, i, &info); i++)
        TRY(add_argument(f, &info));
    return LATHE_OK;
}

lathe_status lathe__dist_add_rest(struct walk *w, struct call *c, lathe_pass pass, bool results)
{
    const struct local l = {.parts = !results};
    struct filling f = {.w = w, .c = c, .l = &l, .pass = pass};
    return add_arguments(&f);
}

static void add_places(const struct walk *w, struct call *c, struct local *l)
{
    l->q_start = (int32_t)(lathe__dist_q_start(w) + (l->cut_q ? l->q.first : 0));
    l->kv_start = (int32_t)l->kv_first;
    l->len_kv = (int32_t)w->d->kv_all;
    l->h_start = (int32_t)l->h_first;
    l->n_h = (int32_t)w->d->h;
    if (l->cut_q || l->cut_keys || lathe__dist_arg(w, "q_start").name)
        lathe__dist_put_i32(c, "q_start", &l->q_start);
    if (l->cut_keys) {
        lathe__dist_put_i32(c, "kv_start", &l->kv_start);
        lathe__dist_put_i32(c, "len_kv", &l->len_kv);
    }
    if (l->kv_chunk > 0) {
        lathe__dist_put_i32(c, "kv_chunk", &l->kv_chunk);
        lathe__dist_put_i32(c, "kv_step", &l->kv_step);
    }
    if (l->cut_heads) {
        lathe__dist_put_i32(c, "h_start", &l->h_start);
        lathe__dist_put_i32(c, "n_h", &l->n_h);
    }
}

lathe_status lathe__dist_local(struct walk *w, struct call *c, struct local *l)
{
    struct filling f = {.w = w, .c = c, .l = l, .pass = w->d->pass};
    const size_t mark = w->used;
    TRY(add_arguments(&f));
    add_places(w, c, l);
    TRY(lathe__dist_launch_spec(w, w->d->spec, w->d->pass, c));
    for (int i = 0; i < f.n_shares; i++)
        TRY(lathe__dist_add(w, f.share[i].to, f.share[i].from));
    w->used = mark;
    return LATHE_OK;
}

lathe_status lathe__dist_clear_shares(struct walk *w)
{
    lathe_arg_info info;
    for (int i = 0; lathe_spec_arg(w->d->spec, w->d->pass, i, &info); i++) {
        const struct tensor t = lathe__dist_arg(w, info.name);
        if (t.name && lathe__dist_is_share(w->d, info.name))
            TRY(lathe__dist_zero(w, t));
    }
    return LATHE_OK;
}

/* ---- parts ------------------------------------------------------------------------------------------------
 */

static struct tensor part(struct walk *w, const char *name, int64_t parts, int64_t q, int64_t n)
{
    const int64_t shape[] = {parts, w->d->b, w->d->h, q, n};
    const struct tensor like = lathe__dist_arg(w, "q");
    return lathe__dist_named(lathe__dist_compact(w, lathe__dist_wide(like.dtype), 5, shape), name);
}

struct tensor lathe__dist_part_o(struct walk *w, int64_t parts, int64_t q)
{
    return part(w, "part_o", parts, q, lathe__dist_arg(w, "o").shape[3]);
}

/* Row states and whether there was a live pair: as many as the signature says. */
struct tensor lathe__dist_part_rows(struct walk *w, int64_t parts, int64_t q)
{
    lathe_arg_info info;
    int64_t n = 1;
    for (int i = 0; lathe_spec_arg(w->d->spec, LATHE_FORWARD, i, &info); i++)
        if (strcmp(info.name, "part_rows") == 0)
            n = info.dim[3].plus;
    return part(w, "part_rows", parts, q, n);
}

static lathe_status combine(struct walk *w, const struct stretch *q, struct tensor os, struct tensor rows,
                            const struct tensor merged[2])
{
    struct call c = {0};
    struct local l = {.cut_q = true, .q = *q, .parts = merged != NULL};
    struct filling f = {.w = w, .c = &c, .l = &l, .pass = LATHE_COMBINE};
    lathe_arg_info info;
    lathe__dist_put(&c, lathe__dist_named(os, "part_o"));
    lathe__dist_put(&c, lathe__dist_named(rows, "part_rows"));
    if (merged) {
        lathe__dist_put(&c, lathe__dist_named(merged[0], "merged_o"));
        lathe__dist_put(&c, lathe__dist_named(merged[1], "merged_rows"));
    }
    TRY(add_arguments(&f));
    l.q_start = (int32_t)(lathe__dist_q_start(w) + q->first);
    for (int i = 0; lathe_spec_arg(w->d->spec, LATHE_COMBINE, i, &info); i++)
        if (strcmp(info.name, "q_start") == 0)
            lathe__dist_put_i32(&c, "q_start", &l.q_start);
    return lathe__dist_launch_spec(w, w->d->spec, LATHE_COMBINE, &c);
}

lathe_status lathe__dist_combine(struct walk *w, const struct stretch *q, struct tensor os,
                                 struct tensor rows)
{
    return combine(w, q, os, rows, NULL);
}

lathe_status lathe__dist_merge(struct walk *w, const struct stretch *q, struct tensor os, struct tensor rows,
                               struct tensor to_o, struct tensor to_rows)
{
    return combine(w, q, os, rows, (const struct tensor[]){to_o, to_rows});
}
