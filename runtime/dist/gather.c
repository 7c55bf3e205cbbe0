/*
 * gather.c: every rank has all keys of some key heads at a time, and its own queries: any mask is then that
 * of an ordinary call. Forward: k and v are gathered, o is final. Backward: the same, dq is final, and dk and
 * dv are shares of all keys, which go to their owners as sums.
 */
#include "runtime/dist/dist.h"
#include "runtime/jit/jit.h"

#include <string.h>

struct group {        /* of heads that are gathered together */
    int64_t first, n; /* key heads */
    int64_t each;     /* query heads of a key head */
};

struct turn { /* buffers of a group; where keys are sent while others are computed, two take turns */
    size_t at;
    struct tensor all[KEYED];               /* keys of all ranks; name NULL: there is none */
    struct tensor sum[KEYED];               /* of their gradients; name NULL: none is asked */
    struct tensor home[MOST_PIECES][KEYED]; /* what comes home of them */
};

/* All keys come first: those of a smaller group lie where larger ones did, and not where sums are still sent.
 */
static void make_turn(struct walk *w, const struct group *g, struct turn *t)
{
    const struct lathe_dist *d = w->d;
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(d, true, d->t.rank, piece);
    t->at = w->used;
    for (int s = 0; s < KEYED; s++)
        t->all[s] = lathe__dist_arg(w, lathe__dist_keyed[s]);
    lathe__dist_by_token_together(w, t->all, KEYED, g->n, d->kv_all);
    for (int s = 0; s < KEYED; s++) {
        t->sum[s] = lathe__dist_arg(w, lathe__dist_keyed_back[s]);
        t->sum[s].dtype = lathe__dist_wide(t->sum[s].dtype);
    }
    lathe__dist_by_token_together(w, t->sum, KEYED, g->n, d->kv_all);
    for (int i = 0; i < n; i++) {
        memcpy(t->home[i], t->sum, sizeof t->sum);
        lathe__dist_by_token_together(w, t->home[i], KEYED, g->n, piece[i].n);
    }
}

/* The rank's own keys are copied to their place among all: nothing is sent to itself. */
static lathe_status travel(struct walk *w, const struct group *g, const struct turn *t)
{
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, true, w->d->t.rank, piece);
    for (int i = 0; i < n; i++) {
        struct tensor place[KEYED];
        for (int s = 0; s < KEYED; s++) {
            place[s] = t->all[s];
            if (!t->all[s].name)
                continue;
            const struct tensor own =
                lathe__dist_slice(lathe__dist_arg(w, lathe__dist_keyed[s]), 1, g->first, g->n);
            place[s] = lathe__dist_slice(t->all[s], 2, piece[i].first, piece[i].n);
            TRY(lathe__dist_copy(w, place[s], lathe__dist_slice(own, 2, piece[i].local, piece[i].n)));
        }
        TRY(lathe__dist_gather_tokens(w, true, i, *lathe__dist_first(t->all, KEYED),
                                      *lathe__dist_first(place, KEYED)));
    }
    return LATHE_OK;
}

/* k, v and k2 of all ranks, of a group of heads: they are sent on their own stream, up to the mark. */
static lathe_status fetch(struct walk *w, const struct group *g, struct turn *t)
{
    const lathe_stream stream = w->stream;
    const size_t used = w->used;
    w->used = t->at;
    make_turn(w, g, t);
    w->used = used;
    TRY(lathe__dist_comm_waits(w));
    w->stream = lathe__dist_comm_stream(w);
    const lathe_status status = travel(w, g, t);
    w->stream = stream;
    return status != LATHE_OK ? status : lathe__dist_mark_comm(w);
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

/* Keys behind the queries of a piece have no share of gradients where the mask is known to be causal: a
   number of keys from the first one. */
static int64_t live_keys(const struct walk *w, const struct stretch *piece)
{
    const int64_t all = w->d->kv_all;
    const int64_t end = lathe__dist_q_start(w) + piece->first + piece->n;
    if (lathe__dist_arg(w, "q_start").name || !lathe__spec_is_causal(w->d->spec))
        return all;
    return end < 0 ? 0 : end < all ? end : all;
}

/* The gradients of one launch, with the dtype of dk and dv, go into sums. */
static lathe_status launch_piece(struct walk *w, const struct group *g, const struct stretch *piece,
                                 const struct tensor all[KEYED], const struct tensor sum[KEYED], bool first)
{
    const int64_t live = live_keys(w, piece);
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
        const lathe_dtype dtype = lathe__dist_arg(w, lathe__dist_keyed_back[s]).dtype;
        share[s] = lathe__dist_by_token(w, all[s], dtype, g->n, w->d->kv_all);
        lathe__dist_put(&c, lathe__dist_named(share[s], lathe__dist_keyed_back[s]));
    }
    if (piece->n > 0)
        TRY(lathe__dist_local(w, &c, &l));
    for (int s = 0; s < KEYED; s++)
        if (sum[s].name && piece->n > 0)
            TRY(first ? lathe__dist_copy(w, sum[s], share[s])
                      : lathe__dist_add(w, lathe__dist_slice(sum[s], 2, 0, live),
                                        lathe__dist_slice(share[s], 2, 0, live)));
        else if (sum[s].name && first)
            TRY(lathe__dist_zero(w, sum[s]));
    w->used = mark;
    return LATHE_OK;
}

/* The calls of a group: one for each piece of the rank's queries, the last one first, which takes longest
   under a causal mask. Every other call, `*number` counts them, is on the second stream. sum: of gradients,
   name NULL where none is asked. */
static lathe_status launch_pieces(struct walk *w, const struct group *g, const struct tensor all[KEYED],
                                  const struct tensor sum[KEYED], int *number)
{
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, false, w->d->t.rank, piece);
    for (int i = n - 1; i >= 0; i--) {
        if ((*number)++ % 2 == 1)
            lathe__dist_take_second(w);
        const lathe_status status = launch_piece(w, g, &piece[i], all, sum, i == n - 1);
        lathe__dist_take_first(w);
        TRY(status);
    }
    return LATHE_OK;
}

static lathe_status send_home(struct walk *w, const struct group *g, const struct turn *t)
{
    struct stretch piece[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, true, w->d->t.rank, piece);
    const struct tensor *const sum = lathe__dist_first(t->sum, KEYED);
    for (int i = 0; i < n && sum; i++) {
        TRY(lathe__dist_scatter_tokens(w, i, *lathe__dist_first(t->home[i], KEYED), *sum));
        for (int s = 0; s < KEYED; s++) {
            if (!t->sum[s].name)
                continue;
            const struct tensor to =
                lathe__dist_slice(lathe__dist_arg(w, lathe__dist_keyed_back[s]), 1, g->first, g->n);
            TRY(lathe__dist_copy(w, lathe__dist_slice(to, 2, piece[i].local, piece[i].n), t->home[i][s]));
        }
    }
    return LATHE_OK;
}

/* Sums of all keys -> the caller's dk and dv of its own, on the stream of what is sent. */
static lathe_status scatter(struct walk *w, const struct group *g, const struct turn *t)
{
    const lathe_stream stream = w->stream;
    if (w->d->pass != LATHE_BACKWARD)
        return LATHE_OK;
    TRY(lathe__dist_comm_waits(w));
    w->stream = lathe__dist_comm_stream(w);
    const lathe_status status = send_home(w, g, t);
    w->stream = stream;
    return status;
}

static int64_t heads_at_once(const struct lathe_dist *d)
{
    if (d->o.heads_at_once > 0)
        return d->o.heads_at_once < d->h_kv ? d->o.heads_at_once : d->h_kv;
    return d->o.comm_stream && d->h_kv % 2 == 0 ? d->h_kv / 2 : d->h_kv;
}

static struct group group_of(const struct lathe_dist *d, int64_t number)
{
    const int64_t at_once = heads_at_once(d);
    const int64_t first = number * at_once;
    return (struct group){first, d->h_kv - first < at_once ? d->h_kv - first : at_once, d->h / d->h_kv};
}

/* With a stream for them the keys of the next group are sent, and the sums of the last one, while this one
   computes. Its buffers are those of the group before the last, whose sums went home ahead of the keys that
   are marked. */
static lathe_status steps(struct walk *w)
{
    const int64_t groups = (w->d->h_kv + heads_at_once(w->d) - 1) / heads_at_once(w->d);
    const int turns = w->d->o.comm_stream && groups > 1 ? 2 : 1;
    struct turn turn[2];
    struct group g = group_of(w->d, 0);
    int number = 0;
    w->shares = true;
    TRY(lathe__dist_clear_shares(w));
    for (int i = 0; i < turns; i++)
        make_turn(w, &g, &turn[i]);
    TRY(fetch(w, &g, &turn[0]));
    for (int64_t i = 0; i < groups; i++) {
        const struct group next = group_of(w->d, i + 1);
        struct turn *const here = &turn[i % turns];
        TRY(lathe__dist_wait_for_mark(w));
        if (turns > 1 && i + 1 < groups)
            TRY(fetch(w, &next, &turn[(i + 1) % turns]));
        TRY(launch_pieces(w, &g, here->all, here->sum, &number));
        TRY(scatter(w, &g, here));
        if (turns == 1 && i + 1 < groups)
            TRY(fetch(w, &next, here));
        g = next;
    }
    TRY(lathe__dist_wait_for_second(w));
    return lathe__dist_wait_for_comm(w);
}

const struct scheme lathe__dist_gather = {"gather", steps, true, true};
