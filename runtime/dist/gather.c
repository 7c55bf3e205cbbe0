/*
 * gather.c: every rank has all keys of some key heads at a time, and its own queries: any mask is then that
 * of an ordinary call. Forward: k and v are gathered, o is final. Backward: the same, dq is final, and dk and
 * dv are shares of all keys, which go to their owners as sums.
 */
#include "runtime/dist/dist.h"

#include <string.h>

struct group {        /* of heads that are gathered together */
    int64_t first, n; /* key heads */
    int64_t each;     /* query heads of a key head */
};

/* k, v or k2 of all ranks, of a group of heads: shaped like `own`, with all keys. */
static lathe_status gather(struct walk *w, const struct group *g, struct tensor own, struct tensor *all)
{
    const struct lathe_dist *d = w->d;
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(d, true, d->t.rank, piece);
    own = lathe__dist_slice(own, 1, g->first, g->n);
    *all = lathe__dist_by_token(w, own, own.dtype, g->n, d->kv_all);
    for (int i = 0; i < n; i++) {
        const size_t mark = w->used;
        const struct tensor packed = lathe__dist_by_token(w, own, own.dtype, g->n, piece[i].n);
        TRY(lathe__dist_copy(w, packed, lathe__dist_slice(own, 2, piece[i].local, piece[i].n)));
        TRY(lathe__dist_gather_tokens(w, true, i, *all, packed));
        w->used = mark;
    }
    return LATHE_OK;
}

/* Of the caller's tensors those with query heads: the group's. */
static void put_heads(struct walk *w, struct call *c, const struct group *g, const struct stretch *q)
{
    lathe_arg_info info;
    for (int i = 0; lathe_spec_arg(w->d->spec, w->d->pass, i, &info); i++) {
        struct tensor t = lathe__dist_arg(w, info.name);
        if (!t.name || info.is_input || info.ndim < 3 || t.ndim != info.ndim ||
            strcmp(info.dim[1].name, "h") != 0 || strcmp(info.dim[2].name, "q") != 0 ||
            lathe__dist_is_share(w->d, info.name))
            continue;
        t = lathe__dist_slice(t, 1, g->first * g->each, g->n * g->each);
        lathe__dist_put(c, lathe__dist_slice(t, 2, q->local, q->n));
    }
}

/* The gradients of one launch, with the dtype of k and v, go into sums. */
static lathe_status launch_piece(struct walk *w, const struct group *g, const struct stretch *piece,
                                 const struct tensor all[KEYED], const struct tensor sum[KEYED], bool first)
{
    const size_t mark = w->used;
    struct call c = {0};
    struct local l = {
        .cut_q = true, .q = *piece, .cut_heads = g->n != w->d->h_kv, .h_first = g->first * g->each};
    struct tensor share[KEYED];
    put_heads(w, &c, g, piece);
    for (int s = 0; s < KEYED; s++) {
        if (all[s].name)
            lathe__dist_put(&c, all[s]);
        if (!sum[s].name)
            continue;
        share[s] = lathe__dist_by_token(w, all[s], all[s].dtype, g->n, w->d->kv_all);
        lathe__dist_put(&c, lathe__dist_named(share[s], lathe__dist_keyed_back[s]));
    }
    if (piece->n > 0)
        TRY(lathe__dist_local(w, &c, &l));
    for (int s = 0; s < KEYED; s++)
        if (sum[s].name && piece->n > 0)
            TRY((first ? lathe__dist_copy : lathe__dist_add)(w, sum[s], share[s]));
        else if (sum[s].name && first)
            TRY(lathe__dist_zero(w, sum[s]));
    w->used = mark;
    return LATHE_OK;
}

/* The calls of a group: one for each piece of the rank's queries. sum: of gradients, name NULL where none is
 * asked. */
static lathe_status launch_pieces(struct walk *w, const struct group *g, const struct tensor all[KEYED],
                                  const struct tensor sum[KEYED])
{
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, false, w->d->t.rank, piece);
    for (int i = 0; i < n; i++)
        TRY(launch_piece(w, g, &piece[i], all, sum, i == 0));
    return LATHE_OK;
}

/* Sums of all keys -> the caller's dk or dv of its own. */
static lathe_status scatter(struct walk *w, const struct group *g, struct tensor all, struct tensor to)
{
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, true, w->d->t.rank, piece);
    to = lathe__dist_slice(to, 1, g->first, g->n);
    for (int i = 0; i < n; i++) {
        const size_t mark = w->used;
        const struct tensor own = lathe__dist_by_token(w, all, all.dtype, g->n, piece[i].n);
        TRY(lathe__dist_scatter_tokens(w, i, own, all));
        TRY(lathe__dist_copy(w, lathe__dist_slice(to, 2, piece[i].local, piece[i].n), own));
        w->used = mark;
    }
    return LATHE_OK;
}

static lathe_status group_steps(struct walk *w, const struct group *g)
{
    struct tensor all[KEYED];
    struct tensor sum[KEYED];
    for (int s = 0; s < KEYED; s++) {
        const struct tensor own = lathe__dist_arg(w, lathe__dist_keyed[s]);
        all[s] = own;
        if (own.name)
            TRY(gather(w, g, own, &all[s]));
    }
    for (int s = 0; s < KEYED; s++) {
        const struct tensor to = lathe__dist_arg(w, lathe__dist_keyed_back[s]);
        sum[s] = to;
        if (to.name)
            sum[s] = lathe__dist_by_token(w, all[s], lathe__dist_wide(to.dtype), g->n, w->d->kv_all);
    }
    TRY(launch_pieces(w, g, all, sum));
    for (int s = 0; s < KEYED; s++)
        if (sum[s].name)
            TRY(scatter(w, g, sum[s], lathe__dist_arg(w, lathe__dist_keyed_back[s])));
    return LATHE_OK;
}

static lathe_status steps(struct walk *w)
{
    const struct lathe_dist *d = w->d;
    const int64_t at_once = d->o.heads_at_once > 0 ? d->o.heads_at_once : d->h_kv;
    w->shares = true;
    TRY(lathe__dist_clear_shares(w));
    for (int64_t h = 0; h < d->h_kv; h += at_once) {
        const struct group g = {h, d->h_kv - h < at_once ? d->h_kv - h : at_once, d->h / d->h_kv};
        const size_t mark = w->used;
        TRY(group_steps(w, &g));
        w->used = mark;
    }
    return LATHE_OK;
}

const struct scheme lathe__dist_gather = {"gather", steps, false};
