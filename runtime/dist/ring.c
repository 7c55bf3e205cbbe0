/*
 * ring.c: keys go round. Every rank keeps its queries and has the keys of one rank at a time; while it
 * computes with them the next ones are under way on a stream of their own. Forward: a part of each row for
 * every piece of keys, merged at the end in the order of positions, so that it does not matter which keys
 * came first; or, for want of memory, one after the other. Backward: sums of dk and dv travel one step behind
 * their keys, while calls compute up to where something is added to them, and come home in the dtype of k and
 * v; dq is summed here.
 */
#include "runtime/dist/dist.h"
#include "runtime/jit/jit.h"

struct ring {
    int holder;                        /* whose keys are here */
    struct tensor key[2][KEYED];       /* here, and under way: by token, room for the most that a rank has */
    struct tensor sum[2][KEYED];       /* backward: of their gradients; name NULL: none is asked */
    struct tensor home[2][KEYED];      /* the sums on their last step: of this rank's own keys, at last */
    struct tensor dq[BY_QUERY];        /* sums of own rows; name NULL: none is asked */
    bool has_k[MOST_PIECES];           /* something has been added to the sums of a piece of keys, */
    bool has_q[MOST_PIECES];           /* of queries */
    bool arrived;                      /* calls wait for the sums that are here */
    int number;                        /* of calls */
    struct tensor part_o[MOST_PIECES]; /* forward: parts of the rows of each piece of queries */
    struct tensor part_rows[MOST_PIECES];
    bool folds;            /* room for three: what has been merged, a part, and the sum of both */
    int made[MOST_PIECES]; /* parts of each piece of queries */
};

static int before(const struct walk *w, int rank, int steps)
{
    return ((rank - steps) % w->d->t.ranks + w->d->t.ranks) % w->d->t.ranks;
}

/* ---- buffers ----------------------------------------------------------------------------------------------
 */

static int64_t most_keys(const struct lathe_dist *d)
{
    int64_t most = 0;
    for (int r = 0; r < d->t.ranks; r++)
        most = lathe__dist_tokens(d, true, r) > most ? lathe__dist_tokens(d, true, r) : most;
    return most;
}

static lathe_status make_keys(struct walk *w, struct ring *g)
{
    const int64_t most = most_keys(w->d);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < KEYED; k++)
            g->key[i][k] = lathe__dist_arg(w, lathe__dist_keyed[k]);
        lathe__dist_by_token_together(w, g->key[i], KEYED, w->d->h_kv, most);
    }
    for (int k = 0; k < KEYED; k++) {
        const struct tensor own = lathe__dist_arg(w, lathe__dist_keyed[k]);
        if (own.name)
            TRY(lathe__dist_copy(w, lathe__dist_slice(g->key[0][k], 2, 0, own.shape[2]), own));
    }
    return LATHE_OK;
}

static void make_sums(struct walk *w, struct ring *g)
{
    const int64_t most = most_keys(w->d);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < KEYED; k++) {
            g->home[i][k] = g->sum[i][k] = lathe__dist_arg(w, lathe__dist_keyed_back[k]);
            g->sum[i][k].dtype = lathe__dist_wide(g->sum[i][k].dtype);
        }
        lathe__dist_by_token_together(w, g->sum[i], KEYED, w->d->h_kv, most);
        lathe__dist_by_token_together(w, g->home[i], KEYED, w->d->h_kv, w->d->t.ranks > 1 ? most : 0);
    }
    for (int k = 0; k < BY_QUERY; k++) {
        const struct tensor to = lathe__dist_arg(w, lathe__dist_queried_back[k]);
        g->dq[k] = to;
        if (to.name)
            g->dq[k] =
                lathe__dist_named(lathe__dist_compact(w, lathe__dist_wide(to.dtype), 4, to.shape), to.name);
    }
}

enum { FOLDED = 3 }; /* places of parts that are merged as they come */

/* All parts, or three where all are more than the caller has room for. */
static void make_parts(struct walk *w, struct ring *g)
{
    struct stretch q[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, false, w->d->t.rank, q);
    const int64_t all = (int64_t)w->d->t.ranks * n;
    g->folds = w->d->folds && all > FOLDED;
    for (int i = 0; i < n; i++) {
        g->part_o[i] = lathe__dist_part_o(w, g->folds ? FOLDED : all, q[i].n);
        g->part_rows[i] = lathe__dist_part_rows(w, g->folds ? FOLDED : all, q[i].n);
    }
}

/* ---- what travels -----------------------------------------------------------------------------------------
 */

/* Buffer `here` to the next rank, buffer `there` from the one before: all of its tensors in one call. */
static lathe_status pass_on(struct walk *w, struct tensor t[2][KEYED], int here, int holder,
                            lathe_stream stream)
{
    const struct lathe_dist *d = w->d;
    const int from = before(w, d->t.rank, 1);
    const int to = before(w, d->t.rank, -1);
    const struct tensor *const out = lathe__dist_first(t[here], KEYED);
    const struct tensor *const in = lathe__dist_first(t[1 - here], KEYED);
    if (!out || !in)
        return LATHE_OK;
    const size_t token = lathe__dist_token_bytes(*out);
    const size_t sent = (size_t)lathe__dist_tokens(d, true, holder) * token;
    const size_t taken = (size_t)lathe__dist_tokens(d, true, before(w, holder, 1)) * token;
    return lathe__dist_exchange(w, in->data, taken, from, out->data, sent, to, stream);
}

/* ---- what is computed -------------------------------------------------------------------------------------
 */

/* The sums of the keys that are here are on their way until something is added to them. */
static lathe_status await_sums(struct walk *w, struct ring *g)
{
    if (g->arrived)
        return LATHE_OK;
    g->arrived = true;
    return lathe__dist_wait_for_mark(w);
}

static void put_keys(struct call *c, const struct tensor key[KEYED], const struct stretch *kv)
{
    for (int k = 0; k < KEYED; k++)
        if (key[k].name)
            lathe__dist_put(c, lathe__dist_slice(key[k], 2, kv->local, kv->n));
}

/* Part number `part` of [parts,..]. */
static struct tensor one_part(struct tensor t, int64_t part)
{
    t = lathe__dist_slice(t, 0, part, 1);
    for (int k = 0; k < 4; k++) {
        t.shape[k] = t.shape[k + 1];
        t.stride[k] = t.stride[k + 1];
    }
    t.ndim = 4;
    return t;
}

/* Is nothing alive, whatever is launched? Not said where q_start is told at each launch alone, nor of the
   first keys of all, beside which stands what counts once in a row. */
static bool is_dead(const struct walk *w, const struct stretch *q, const struct stretch *kv)
{
    return kv->first > 0 && !lathe__dist_arg(w, "q_start").name && lathe__spec_is_causal(w->d->spec) &&
           kv->first > lathe__dist_q_start(w) + q->first + q->n - 1;
}

/* Where what has been merged is, if `made` parts are: places 0 and 2 take turns, each beside place 1. */
static int64_t merged_place(int made)
{
    return made % 2 == 1 ? 0 : FOLDED - 1;
}

/* What has been merged and the part in place 1, which lie side by side: the place of the first. */
static int64_t pair_place(int made)
{
    return merged_place(made) == 0 ? 0 : 1;
}

static lathe_status fold(struct walk *w, const struct ring *g, int i, const struct stretch *q)
{
    const int made = g->made[i];
    const int64_t pair = pair_place(made);
    const int64_t to = merged_place(made + 1);
    return lathe__dist_merge(w, q, lathe__dist_slice(g->part_o[i], 0, pair, 2),
                             lathe__dist_slice(g->part_rows[i], 0, pair, 2), one_part(g->part_o[i], to),
                             one_part(g->part_rows[i], to));
}

/* A call whose results are a part, and its merging. */
static lathe_status launch_part(struct walk *w, struct ring *g, int i, struct call *c, struct local *l)
{
    TRY(lathe__dist_local(w, c, l));
    if (g->folds && g->made[i] > 0)
        TRY(fold(w, g, i, &l->q));
    g->made[i]++;
    return LATHE_OK;
}

/* i, j: piece of own queries, of the holder's keys. Parts are numbered by position; where they are merged as
   they come, those of a piece are on one stream. */
static lathe_status forward_pair(struct walk *w, struct ring *g, int here, int i, int j,
                                 const struct stretch *q, const struct stretch *kv)
{
    const int64_t number = j == 0 ? g->holder : 2 * w->d->t.ranks - 1 - g->holder;
    const int64_t part = !g->folds ? number : g->made[i] > 0 ? 1 : 0;
    const bool on_second = g->folds ? i == 0 : g->number++ % 2 == 1;
    struct call c = {0};
    struct local l = {.cut_q = true, .q = *q, .cut_keys = true, .kv_first = kv->first, .parts = true};
    put_keys(&c, g->key[here], kv);
    lathe__dist_put(&c, one_part(g->part_o[i], part));
    lathe__dist_put(&c, one_part(g->part_rows[i], part));
    if (on_second)
        lathe__dist_take_second(w);
    const lathe_status status = launch_part(w, g, i, &c, &l);
    lathe__dist_take_first(w);
    return status;
}

/* Shares of gradients of one launch, of piece i of queries and j of keys, into sums. */
static lathe_status backward_pair(struct walk *w, struct ring *g, int here, int i, int j,
                                  const struct stretch *q, const struct stretch *kv)
{
    const size_t mark = w->used;
    struct call c = {0};
    struct local l = {.cut_q = true, .q = *q, .cut_keys = true, .kv_first = kv->first};
    struct tensor to[KEYED + BY_QUERY];
    struct tensor share[KEYED + BY_QUERY];
    int n = 0;
    int n_keyed = 0;
    put_keys(&c, g->key[here], kv);
    for (int k = 0; k < KEYED; k++)
        if (g->sum[here][k].name)
            to[n++] = lathe__dist_slice(g->sum[here][k], 2, kv->local, kv->n);
    n_keyed = n;
    for (int k = 0; k < BY_QUERY; k++)
        if (g->dq[k].name)
            to[n++] = lathe__dist_slice(g->dq[k], 2, q->local, q->n);
    for (int k = 0; k < n; k++) {
        const lathe_dtype dtype = lathe__dist_arg(w, to[k].name).dtype;
        share[k] = lathe__dist_named(lathe__dist_compact(w, dtype, 4, to[k].shape), to[k].name);
        lathe__dist_put(&c, share[k]);
    }
    TRY(lathe__dist_local(w, &c, &l));
    TRY(await_sums(w, g));
    for (int k = 0; k < n; k++) {
        const bool more = k < n_keyed ? g->has_k[j] : g->has_q[i];
        TRY((more ? lathe__dist_add : lathe__dist_copy)(w, to[k], share[k]));
    }
    g->has_k[j] = g->has_q[i] = true;
    w->used = mark;
    return LATHE_OK;
}

/* Nothing was alive for these keys where their sums begin, or for these queries anywhere. */
static lathe_status clear_rest(struct walk *w, const struct tensor *sum, int n_sums, bool keys,
                               const bool has[MOST_PIECES])
{
    struct stretch p[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, keys, w->d->t.rank, p);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_sums && !has[i]; k++)
            if (sum[k].name)
                TRY(lathe__dist_zero(w, lathe__dist_slice(sum[k], 2, p[i].local, p[i].n)));
    return LATHE_OK;
}

/* Every piece of own queries with every piece of the keys that are here: later ones first, whose calls take
   longest. */
static lathe_status compute(struct walk *w, struct ring *g, int here)
{
    struct stretch q[MOST_PIECES];
    struct stretch kv[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, false, w->d->t.rank, q);
    (void)lathe__dist_pieces(w->d, true, g->holder, kv);
    for (int i = n - 1; i >= 0; i--)
        for (int j = 0; j < n && q[i].n > 0; j++) {
            if (is_dead(w, &q[i], &kv[j]))
                continue;
            if (w->d->pass == LATHE_FORWARD)
                TRY(forward_pair(w, g, here, i, j, &q[i], &kv[j]));
            else if (kv[j].n > 0)
                TRY(backward_pair(w, g, here, i, j, &q[i], &kv[j]));
        }
    return LATHE_OK;
}

/* ---- the ends ---------------------------------------------------------------------------------------------
 */

/* Parts of keys that are behind all of the queries come last, and were not made. */
static int64_t live_parts(const struct walk *w, const struct stretch *q)
{
    struct stretch kv[MOST_PIECES];
    int64_t live = 0;
    for (int r = 0; r < w->d->t.ranks; r++) {
        const int n = lathe__dist_pieces(w->d, true, r, kv);
        for (int j = 0; j < n; j++)
            live += !is_dead(w, q, &kv[j]);
    }
    return live;
}

static lathe_status finish_forward(struct walk *w, struct ring *g)
{
    struct stretch q[MOST_PIECES];
    const int n = lathe__dist_pieces(w->d, false, w->d->t.rank, q);
    for (int i = 0; i < n; i++) {
        const int64_t first = g->folds ? merged_place(g->made[i]) : 0;
        const int64_t live = g->folds ? 1 : live_parts(w, &q[i]);
        if (q[i].n > 0)
            TRY(lathe__dist_combine(w, &q[i], lathe__dist_slice(g->part_o[i], 0, first, live),
                                    lathe__dist_slice(g->part_rows[i], 0, first, live)));
    }
    return LATHE_OK;
}

/* The sums of the last step go home as they are asked for: nothing is added to them any more. */
static lathe_status send_home(struct walk *w, struct ring *g, int here)
{
    const int64_t tokens = lathe__dist_tokens(w->d, true, g->holder);
    for (int k = 0; k < KEYED; k++)
        if (g->home[0][k].name)
            TRY(lathe__dist_copy(w, lathe__dist_slice(g->home[0][k], 2, 0, tokens),
                                 lathe__dist_slice(g->sum[here][k], 2, 0, tokens)));
    return pass_on(w, g->home, 0, g->holder, w->stream);
}

/* From: tensors with the sums of own keys. */
static lathe_status finish_backward(struct walk *w, struct ring *g, const struct tensor from[KEYED])
{
    for (int k = 0; k < KEYED; k++) {
        const struct tensor to = lathe__dist_arg(w, lathe__dist_keyed_back[k]);
        if (to.name)
            TRY(lathe__dist_copy(w, to, lathe__dist_slice(from[k], 2, 0, to.shape[2])));
    }
    TRY(clear_rest(w, g->dq, BY_QUERY, false, g->has_q));
    for (int k = 0; k < BY_QUERY; k++)
        if (g->dq[k].name)
            TRY(lathe__dist_copy(w, lathe__dist_arg(w, lathe__dist_queried_back[k]), g->dq[k]));
    return LATHE_OK;
}

/* Behind step s of a backward pass: its sums follow their keys, on the stream of what is sent, up to the
 * mark. */
static lathe_status pass_sums(struct walk *w, struct ring *g, int s)
{
    const int here = s % 2;
    TRY(await_sums(w, g));
    if (s == 0)
        TRY(clear_rest(w, g->sum[here], KEYED, true, g->has_k));
    for (int i = 0; i < MOST_PIECES; i++)
        g->has_k[i] = true;
    if (s + 1 == w->d->t.ranks)
        return s > 0 ? send_home(w, g, here) : LATHE_OK;
    TRY(lathe__dist_comm_waits(w));
    TRY(pass_on(w, g->sum, here, g->holder, lathe__dist_comm_stream(w)));
    g->arrived = false;
    return lathe__dist_mark_comm(w);
}

static lathe_status step(struct walk *w, struct ring *g, int s)
{
    const int here = s % 2;
    const bool last = s + 1 == w->d->t.ranks;
    if (!last) { /* behind what was computed with the keys that are overwritten */
        TRY(lathe__dist_comm_waits(w));
        TRY(pass_on(w, g->key, here, g->holder, lathe__dist_comm_stream(w)));
    }
    TRY(compute(w, g, here));
    TRY(await_sums(w, g)); /* of which there is a mark, ahead of that of the keys */
    if (!last)
        TRY(lathe__dist_wait_for_comm(w));
    return w->d->pass == LATHE_BACKWARD ? pass_sums(w, g, s) : LATHE_OK;
}

static lathe_status steps(struct walk *w)
{
    const bool backward = w->d->pass == LATHE_BACKWARD;
    const int ranks = w->d->t.ranks;
    struct ring g = {.holder = w->d->t.rank, .arrived = true};
    w->shares = true;
    TRY(lathe__dist_clear_shares(w));
    TRY(make_keys(w, &g));
    TRY(lathe__dist_second_waits(w));
    if (backward)
        make_sums(w, &g);
    else
        make_parts(w, &g);
    for (int s = 0; s < ranks; s++) {
        TRY(step(w, &g, s));
        g.holder = before(w, g.holder, 1);
    }
    if (backward)
        return finish_backward(w, &g, ranks > 1 ? g.home[1] : g.sum[0]);
    TRY(lathe__dist_wait_for_second(w));
    return finish_forward(w, &g);
}

const struct scheme lathe__dist_ring = {"ring", steps, true, true};
