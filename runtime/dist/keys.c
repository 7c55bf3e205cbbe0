/*
 * keys.c: every rank has all queries and its own keys, as in decoding over sharded caches. Forward: parts of
 * rows of the own keys, gathered, merged in the order of the ranks by everybody: all ranks have the same
 * bits. Backward: dk and dv are exact, dq is a share, which is summed.
 */
#include "runtime/dist/dist.h"

static struct local own_keys(const struct walk *w)
{
    struct stretch p[MOST_PIECES];
    const int32_t chunk = w->d->o.interleave;
    if (chunk > 0)
        return (struct local){.cut_keys = true,
                              .kv_first = lathe__dist_first_chunk(w->d, w->d->t.rank),
                              .kv_chunk = chunk,
                              .kv_step = chunk * w->d->t.ranks};
    (void)lathe__dist_pieces(w->d, true, w->d->t.rank, p);
    return (struct local){.cut_keys = true, .kv_first = p[0].first};
}

/* Of parts [ranks,...] this rank's own one. */
static struct tensor own_part(const struct walk *w, struct tensor t)
{
    t = lathe__dist_slice(t, 0, w->d->t.rank, 1);
    for (int k = 0; k < 4; k++) {
        t.shape[k] = t.shape[k + 1];
        t.stride[k] = t.stride[k + 1];
    }
    t.ndim = 4;
    return t;
}

/* Parts of all ranks, [ranks,b,h,q,..]: a rank's o and rows lie one behind the other, and travel together. */
static void make_parts(struct walk *w, struct tensor *os, struct tensor *rows)
{
    const size_t begin = w->used;
    *os = lathe__dist_part_o(w, 1, w->d->q_all);
    *rows = lathe__dist_part_rows(w, 1, w->d->q_all);
    const size_t each = w->used - begin;
    (void)lathe__dist_alloc(w, (size_t)(w->d->t.ranks - 1) * each);
    os->shape[0] = rows->shape[0] = w->d->t.ranks;
    os->stride[0] = rows->stride[0] = (int64_t)(each / lathe_dtype_size(os->dtype));
}

static lathe_status gather_parts(struct walk *w, struct tensor os)
{
    size_t place[LATHE_MOST_RANKS];
    size_t bytes[LATHE_MOST_RANKS];
    const size_t each = (size_t)os.stride[0] * lathe_dtype_size(os.dtype);
    for (int r = 0; r < w->d->t.ranks; r++) {
        place[r] = (size_t)r * each;
        bytes[r] = each;
    }
    return lathe__dist_all_gather(w, os.data, place, bytes, own_part(w, os).data);
}

static lathe_status forward(struct walk *w)
{
    struct tensor os;
    struct tensor rows;
    const struct stretch all = {0, 0, w->d->q_all};
    make_parts(w, &os, &rows);
    struct call c = {0};
    struct local l = own_keys(w);
    l.parts = true;
    lathe__dist_put(&c, own_part(w, os));
    lathe__dist_put(&c, own_part(w, rows));
    TRY(lathe__dist_local(w, &c, &l));
    TRY(gather_parts(w, os));
    return lathe__dist_combine(w, &all, os, rows);
}

/* The sum over ranks of a compact tensor, to all of them: each sums a part of it. */
static lathe_status sum_over_ranks(struct walk *w, struct tensor t)
{
    size_t place[LATHE_MOST_RANKS];
    size_t n[LATHE_MOST_RANKS];
    const size_t all = (size_t)lathe__dist_count(t);
    const size_t element = lathe_dtype_size(t.dtype);
    const size_t each = (all + (size_t)w->d->t.ranks - 1) / (size_t)w->d->t.ranks;
    for (int r = 0; r < w->d->t.ranks; r++) {
        place[r] = (size_t)r * each < all ? (size_t)r * each : all;
        n[r] = all - place[r] < each ? all - place[r] : each;
    }
    char *const own = lathe__dist_alloc(w, each * element);
    TRY(lathe__dist_reduce_scatter(w, own, t.data, place, n, t.dtype));
    for (int r = 0; r < w->d->t.ranks; r++) {
        place[r] *= element;
        n[r] *= element;
    }
    return lathe__dist_all_gather(w, t.data, place, n, own);
}

static lathe_status backward(struct walk *w)
{
    struct tensor share[BY_QUERY];
    struct tensor to[BY_QUERY];
    struct call c = {0};
    struct local l = own_keys(w);
    for (int i = 0; i < BY_QUERY; i++) {
        to[i] = lathe__dist_arg(w, lathe__dist_queried_back[i]);
        share[i] = to[i];
        if (!to[i].name)
            continue;
        share[i] = lathe__dist_named(lathe__dist_compact(w, to[i].dtype, 4, to[i].shape),
                                     lathe__dist_queried_back[i]);
        lathe__dist_put(&c, share[i]);
    }
    TRY(lathe__dist_local(w, &c, &l));
    for (int i = 0; i < BY_QUERY; i++) {
        if (!to[i].name)
            continue;
        const struct tensor sum = lathe__dist_compact(w, lathe__dist_wide(to[i].dtype), 4, to[i].shape);
        TRY(lathe__dist_copy(w, sum, share[i]));
        TRY(sum_over_ranks(w, sum));
        TRY(lathe__dist_copy(w, to[i], sum));
    }
    return LATHE_OK;
}

static lathe_status steps(struct walk *w)
{
    return w->d->pass == LATHE_BACKWARD ? backward(w) : forward(w);
}

const struct scheme lathe__dist_keys = {"keys", steps, false, false};
