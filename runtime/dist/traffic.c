/*
 * traffic.c: calls of the transport, and what they send. While an object is made they are counted and not
 * made.
 */
#include "runtime/dist/dist.h"

static bool count(struct walk *w, size_t bytes)
{
    if (w->dry) {
        w->d->sent += bytes;
        w->d->n_sends++;
    }
    return w->dry;
}

lathe_status lathe__dist_all_gather(struct walk *w, char *to, const size_t *place, const size_t *bytes,
                                    const char *from)
{
    const lathe_transport *t = &w->d->t;
    if (count(w, bytes[t->rank] * (size_t)(t->ranks - 1)))
        return LATHE_OK;
    return t->all_gather(t->user, to, place, bytes, from, w->stream, w->err);
}

lathe_status lathe__dist_all_to_all(struct walk *w, char *to, const size_t *to_place, const size_t *to_bytes,
                                    const char *from, const size_t *from_place, const size_t *from_bytes)
{
    const lathe_transport *t = &w->d->t;
    size_t sent = 0;
    for (int r = 0; r < t->ranks; r++)
        sent += r == t->rank ? 0 : from_bytes[r];
    if (count(w, sent))
        return LATHE_OK;
    return t->all_to_all(t->user, to, to_place, to_bytes, from, from_place, from_bytes, w->stream, w->err);
}

lathe_status lathe__dist_exchange(struct walk *w, char *to, size_t to_bytes, int from_rank, const char *from,
                                  size_t from_bytes, int to_rank, lathe_stream stream)
{
    const lathe_transport *t = &w->d->t;
    if (count(w, to_rank == t->rank ? 0 : from_bytes))
        return LATHE_OK;
    return t->exchange(t->user, to, to_bytes, from_rank, from, from_bytes, to_rank, stream, w->err);
}

lathe_status lathe__dist_reduce_scatter(struct walk *w, char *to, const char *from, const size_t *place,
                                        const size_t *n, lathe_dtype dtype)
{
    const lathe_transport *t = &w->d->t;
    size_t sent = 0;
    for (int r = 0; r < t->ranks; r++)
        sent += r == t->rank ? 0 : n[r] * lathe_dtype_size(dtype);
    if (count(w, sent))
        return LATHE_OK;
    return t->reduce_scatter(t->user, to, from, place, n, dtype, w->stream, w->err);
}

lathe_status lathe__dist_gather_tokens(struct walk *w, bool keys, int piece, struct tensor all,
                                       struct tensor from)
{
    size_t place[LATHE_MOST_RANKS];
    size_t bytes[LATHE_MOST_RANKS];
    const size_t token = lathe__dist_token_bytes(all);
    for (int r = 0; r < w->d->t.ranks; r++) {
        struct stretch p[MOST_PIECES];
        (void)lathe__dist_pieces(w->d, keys, r, p);
        place[r] = (size_t)p[piece].first * token;
        bytes[r] = (size_t)p[piece].n * token;
    }
    return lathe__dist_all_gather(w, all.data, place, bytes, from.data);
}

lathe_status lathe__dist_scatter_tokens(struct walk *w, int piece, struct tensor to, struct tensor all)
{
    size_t place[LATHE_MOST_RANKS];
    size_t n[LATHE_MOST_RANKS];
    const size_t token = (size_t)all.stride[2];
    for (int r = 0; r < w->d->t.ranks; r++) {
        struct stretch p[MOST_PIECES];
        (void)lathe__dist_pieces(w->d, true, r, p);
        place[r] = (size_t)p[piece].first * token;
        n[r] = (size_t)p[piece].n * token;
    }
    return lathe__dist_reduce_scatter(w, to.data, all.data, place, n, all.dtype);
}
