/*
 * heads.c: every rank has all tokens of some heads: what is cut by tokens is cut by heads instead, by one
 * all-to-all a tensor, and back. Between them is an ordinary call, which sees every position: every spec is
 * served. A rank of more ranks than key heads has none, and only sends.
 */
#include "runtime/dist/dist.h"

#include <string.h>

struct route {         /* a tensor [b, heads, tokens, ..] on its way */
    struct tensor own; /* the caller's, of all heads */
    struct tensor all; /* of all tokens */
    bool keys;
    int64_t each; /* heads of a key head */
};

static void heads_of(const struct walk *w, const struct route *r, int rank, int64_t *first, int64_t *n)
{
    lathe__dist_heads_of(w->d, rank, first, n);
    *first *= r->each;
    *n *= r->each;
}

/* Where the tokens of each rank's piece lie in `all`. */
static void token_places(const struct walk *w, const struct route *r, int piece, size_t *place, size_t *bytes)
{
    const size_t token = lathe__dist_token_bytes(r->all);
    for (int k = 0; k < w->d->t.ranks; k++) {
        struct stretch p[MOST_PIECES];
        (void)lathe__dist_pieces(w->d, r->keys, k, p);
        place[k] = (size_t)p[piece].first * token;
        bytes[k] = (size_t)p[piece].n * token;
    }
}

/* A buffer of this rank's piece for each other rank's heads; places from the first one. Its own share is
   copied from place to place, and not sent. */
static char *pack_places(struct walk *w, const struct route *r, const struct stretch *piece,
                         struct tensor *packed, size_t *place, size_t *bytes)
{
    const size_t begin = w->used;
    for (int k = 0; k < w->d->t.ranks; k++) {
        int64_t first;
        int64_t n;
        heads_of(w, r, k, &first, &n);
        place[k] = w->used - begin;
        bytes[k] = 0;
        packed[k] = lathe__dist_slice(r->all, 2, piece->first, piece->n);
        if (k == w->d->t.rank)
            continue;
        packed[k] = lathe__dist_by_token(w, r->own, r->own.dtype, n, piece->n);
        bytes[k] = (size_t)piece->n * lathe__dist_token_bytes(packed[k]);
    }
    return w->base ? w->base + begin : NULL;
}

static lathe_status copy_packed(struct walk *w, const struct route *r, const struct stretch *piece,
                                const struct tensor *packed, bool in)
{
    for (int k = 0; k < w->d->t.ranks; k++) {
        int64_t first;
        int64_t n;
        heads_of(w, r, k, &first, &n);
        const struct tensor own =
            lathe__dist_slice(lathe__dist_slice(r->own, 1, first, n), 2, piece->local, piece->n);
        TRY(lathe__dist_copy(w, in ? packed[k] : own, in ? own : packed[k]));
    }
    return LATHE_OK;
}

/* One piece of a tensor, to all tokens of own heads or back. */
static lathe_status move_piece(struct walk *w, const struct route *r, int number, const struct stretch *piece,
                               bool in)
{
    const size_t mark = w->used;
    struct tensor packed[LATHE_MOST_RANKS];
    size_t pack_place[LATHE_MOST_RANKS];
    size_t pack_bytes[LATHE_MOST_RANKS];
    size_t place[LATHE_MOST_RANKS];
    size_t bytes[LATHE_MOST_RANKS];
    char *const pack = pack_places(w, r, piece, packed, pack_place, pack_bytes);
    token_places(w, r, number, place, bytes);
    bytes[w->d->t.rank] = 0;
    if (in) {
        TRY(copy_packed(w, r, piece, packed, true));
        TRY(lathe__dist_all_to_all(w, r->all.data, place, bytes, pack, pack_place, pack_bytes));
    } else {
        TRY(lathe__dist_all_to_all(w, pack, pack_place, pack_bytes, r->all.data, place, bytes));
        TRY(copy_packed(w, r, piece, packed, false));
    }
    w->used = mark;
    return LATHE_OK;
}

static lathe_status move(struct walk *w, const struct route *r, bool in)
{
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, r->keys, w->d->t.rank, piece);
    for (int i = 0; i < n; i++)
        TRY(move_piece(w, r, i, &piece[i], in));
    return LATHE_OK;
}

/* Is it a tensor of heads and tokens, and not an input's? */
static bool has_route(const struct walk *w, const lathe_arg_info *info, struct route *out)
{
    const struct tensor own = lathe__dist_arg(w, info->name);
    if (!own.name || info->is_input || info->ndim < 3 || own.ndim != info->ndim ||
        lathe__dist_is_share(w->d, info->name))
        return false;
    const bool by_key = strcmp(info->dim[1].name, "h_kv") == 0;
    const bool keys = strcmp(info->dim[2].name, "kv") == 0;
    if ((!by_key && strcmp(info->dim[1].name, "h") != 0) || (!keys && strcmp(info->dim[2].name, "q") != 0))
        return false;
    *out = (struct route){.own = own, .keys = keys, .each = by_key ? 1 : w->d->h / w->d->h_kv};
    return true;
}

static lathe_status steps(struct walk *w)
{
    struct route back[MOST_IN_CALL];
    struct route r;
    struct call c = {0};
    struct local l = {.cut_heads = true};
    lathe_arg_info info;
    int64_t first;
    int64_t n;
    int n_back = 0;
    lathe__dist_heads_of(w->d, w->d->t.rank, &first, &n);
    l.h_first = first * (w->d->h / w->d->h_kv);
    for (int i = 0; lathe_spec_arg(w->d->spec, w->d->pass, i, &info); i++) {
        if (!has_route(w, &info, &r))
            continue;
        r.all = lathe__dist_by_token(w, r.own, r.own.dtype, n * r.each, r.keys ? w->d->kv_all : w->d->q_all);
        lathe__dist_put(&c, r.all);
        if (info.role != LATHE_ROLE_RESULT)
            TRY(move(w, &r, true));
        else
            back[n_back++] = r;
    }
    TRY(n > 0 ? lathe__dist_local(w, &c, &l) : lathe__dist_clear_shares(w));
    for (int i = 0; i < n_back; i++)
        TRY(move(w, &back[i], false));
    return LATHE_OK;
}

const struct scheme lathe__dist_heads = {"heads", steps, false};
