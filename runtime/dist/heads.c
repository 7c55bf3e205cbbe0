/*
 * heads.c: every rank has all tokens of some heads: what is cut by tokens is cut by heads instead, by one
 * all-to-all a tensor, and back. Between them is an ordinary call, which sees every position: every spec is
 * served. A rank of more ranks than key heads has none, and only sends. With a stream for what
 * is sent a rank's heads are computed in two halves: what the second one needs arrives, and what the first
 * one gave leaves, while the other is computed.
 */
#include "runtime/dist/dist.h"

#include <string.h>

enum { MOST_TURNS = 2 };

struct share { /* number `number` of `of` equal shares of a rank's heads */
    int number, of;
};

struct route {         /* a tensor [b, heads, tokens, ..] on its way */
    struct tensor own; /* the caller's, of all heads */
    struct tensor all; /* of all tokens */
    bool keys, back;
    int64_t each; /* heads of a key head */
};

struct turn { /* what is computed at once */
    struct share share;
    int64_t first, n; /* key heads */
    int n_routes;
    struct route route[MOST_IN_CALL];
};

/* Key heads of a share. */
static void share_of(const struct walk *w, struct share share, int rank, int64_t *first, int64_t *n)
{
    lathe__dist_heads_of(w->d, rank, first, n);
    const int64_t begin = *n * share.number / share.of;
    const int64_t end = *n * (share.number + 1) / share.of;
    *first += begin;
    *n = end - begin;
}

static void heads_of(const struct walk *w, struct share share, const struct route *r, int rank,
                     int64_t *first, int64_t *n)
{
    share_of(w, share, rank, first, n);
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
static char *pack_places(struct walk *w, struct share share, const struct route *r,
                         const struct stretch *piece, struct tensor *packed, size_t *place, size_t *bytes)
{
    const size_t begin = w->used;
    for (int k = 0; k < w->d->t.ranks; k++) {
        int64_t first;
        int64_t n;
        heads_of(w, share, r, k, &first, &n);
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

static lathe_status copy_packed(struct walk *w, struct share share, const struct route *r,
                                const struct stretch *piece, const struct tensor *packed)
{
    for (int k = 0; k < w->d->t.ranks; k++) {
        int64_t first;
        int64_t n;
        heads_of(w, share, r, k, &first, &n);
        const struct tensor own =
            lathe__dist_slice(lathe__dist_slice(r->own, 1, first, n), 2, piece->local, piece->n);
        TRY(lathe__dist_copy(w, r->back ? own : packed[k], r->back ? packed[k] : own));
    }
    return LATHE_OK;
}

/* One piece of a tensor, to all tokens of own heads or back. */
static lathe_status move_piece(struct walk *w, struct share share, const struct route *r, int number,
                               const struct stretch *piece)
{
    const size_t mark = w->used;
    struct tensor packed[LATHE_MOST_RANKS];
    size_t pack_place[LATHE_MOST_RANKS];
    size_t pack_bytes[LATHE_MOST_RANKS];
    size_t place[LATHE_MOST_RANKS];
    size_t bytes[LATHE_MOST_RANKS];
    char *const pack = pack_places(w, share, r, piece, packed, pack_place, pack_bytes);
    token_places(w, r, number, place, bytes);
    bytes[w->d->t.rank] = 0;
    if (r->back)
        TRY(lathe__dist_all_to_all(w, pack, pack_place, pack_bytes, r->all.data, place, bytes));
    TRY(copy_packed(w, share, r, piece, packed));
    if (!r->back)
        TRY(lathe__dist_all_to_all(w, r->all.data, place, bytes, pack, pack_place, pack_bytes));
    w->used = mark;
    return LATHE_OK;
}

/* What is packed for all of a turn's tensors, one after the other, lies from `at` on. */
static lathe_status move(struct walk *w, const struct turn *t, bool back, size_t at)
{
    const size_t used = w->used;
    w->used = at;
    for (int k = 0; k < t->n_routes; k++) {
        struct stretch piece[MOST_PIECES];
        const int n = lathe__dist_pieces(w->d, t->route[k].keys, w->d->t.rank, piece);
        for (int i = 0; i < n && t->route[k].back == back; i++)
            TRY(move_piece(w, t->share, &t->route[k], i, &piece[i]));
    }
    w->used = used;
    return LATHE_OK;
}

/* The same on the stream of what is sent. */
static lathe_status move_on_comm_stream(struct walk *w, const struct turn *t, bool back, size_t at)
{
    const lathe_stream stream = w->stream;
    w->stream = lathe__dist_comm_stream(w);
    const lathe_status status = move(w, t, back, at);
    w->stream = stream;
    return status;
}

/* A place for what is packed at a time, behind all else: w->used is then its end. */
static size_t make_pack(struct walk *w, const struct turn *turn, int turns)
{
    const size_t at = w->used;
    size_t end = at;
    for (int t = 0; t < turns; t++)
        for (int k = 0; k < turn[t].n_routes; k++) {
            struct tensor packed[LATHE_MOST_RANKS];
            size_t place[LATHE_MOST_RANKS];
            size_t bytes[LATHE_MOST_RANKS];
            struct stretch piece[MOST_PIECES];
            const int n = lathe__dist_pieces(w->d, turn[t].route[k].keys, w->d->t.rank, piece);
            for (int i = 0; i < n; i++) {
                (void)pack_places(w, turn[t].share, &turn[t].route[k], &piece[i], packed, place, bytes);
                end = w->used > end ? w->used : end;
                w->used = at;
            }
        }
    w->used = end;
    return at;
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
    *out = (struct route){.own = own,
                          .keys = keys,
                          .back = info->role == LATHE_ROLE_RESULT,
                          .each = by_key ? 1 : w->d->h / w->d->h_kv};
    return true;
}

static void make_turn(struct walk *w, struct share share, struct turn *t)
{
    lathe_arg_info info;
    t->share = share;
    t->n_routes = 0;
    share_of(w, share, w->d->t.rank, &t->first, &t->n);
    for (int i = 0; lathe_spec_arg(w->d->spec, w->d->pass, i, &info); i++) {
        struct route *const r = &t->route[t->n_routes];
        if (t->n_routes == MOST_IN_CALL || !has_route(w, &info, r))
            continue;
        r->all = lathe__dist_by_token(w, r->own, r->own.dtype, t->n * r->each,
                                      r->keys ? w->d->kv_all : w->d->q_all);
        t->n_routes++;
    }
}

static lathe_status launch(struct walk *w, const struct turn *t)
{
    struct call c = {0};
    struct local l = {.cut_heads = true, .h_first = t->first * (w->d->h / w->d->h_kv)};
    for (int k = 0; k < t->n_routes; k++)
        lathe__dist_put(&c, t->route[k].all);
    return t->n > 0 ? lathe__dist_local(w, &c, &l) : LATHE_OK;
}

/* Two where every rank has two heads to compute apart: all of them come to the same. */
static int turns_of(const struct lathe_dist *d)
{
    return d->o.comm_stream && d->h_kv / d->t.ranks >= MOST_TURNS ? MOST_TURNS : 1;
}

/* Buffers of all turns lie beside each other: together they are as large as one turn's of all heads. */
static lathe_status steps(struct walk *w)
{
    struct turn turn[MOST_TURNS];
    const int turns = turns_of(w->d);
    for (int i = 0; i < turns; i++)
        make_turn(w, (struct share){i, turns}, &turn[i]);
    const size_t pack = make_pack(w, turn, turns);
    w->shares = turns > 1;
    if (w->shares || turn[0].n == 0)
        TRY(lathe__dist_clear_shares(w));
    TRY(lathe__dist_comm_waits(w));
    TRY(move_on_comm_stream(w, &turn[0], false, pack));
    TRY(lathe__dist_mark_comm(w));
    for (int i = 0; i < turns; i++) {
        TRY(lathe__dist_wait_for_mark(w));
        if (i + 1 < turns)
            TRY(move_on_comm_stream(w, &turn[i + 1], false, pack));
        TRY(lathe__dist_mark_comm(w));
        TRY(launch(w, &turn[i]));
        TRY(lathe__dist_comm_waits(w));
        TRY(move_on_comm_stream(w, &turn[i], true, pack));
    }
    return lathe__dist_wait_for_comm(w);
}

const struct scheme lathe__dist_heads = {"heads", steps, true, false};
