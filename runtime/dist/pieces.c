/*
 * pieces.c: which tokens, keys and heads a rank has. In: the options of an object. Out: pieces with their
 * places among all.
 */
#include "runtime/dist/dist.h"

#include <string.h>

int64_t lathe__dist_tokens(const struct lathe_dist *d, bool keys, int rank)
{
    return keys ? d->kv_tokens[rank] : d->q_tokens[rank];
}

int lathe__dist_pieces(const struct lathe_dist *d, bool keys, int rank, struct stretch piece[MOST_PIECES])
{
    const int64_t n = lathe__dist_tokens(d, keys, rank);
    if (d->o.shards == LATHE_SHARDS_ZIGZAG) {
        const int64_t half = n / 2;
        piece[0] = (struct stretch){0, rank * half, half};
        piece[1] = (struct stretch){half, (2 * (int64_t)d->t.ranks - 1 - rank) * half, half};
        return 2;
    }
    int64_t first = 0;
    for (int r = 0; r < rank; r++)
        first += lathe__dist_tokens(d, keys, r);
    piece[0] = (struct stretch){0, first, n};
    return 1;
}

int64_t lathe__dist_first_chunk(const struct lathe_dist *d, int rank)
{
    return (int64_t)rank * d->o.interleave;
}

int64_t lathe__dist_own_of(const struct lathe_dist *d, int rank, int64_t all)
{
    const int64_t chunk = d->o.interleave;
    const int64_t turn = chunk * d->t.ranks;
    const int64_t rest = all % turn - lathe__dist_first_chunk(d, rank);
    return all / turn * chunk + (rest < 0 ? 0 : rest < chunk ? rest : chunk);
}

int64_t lathe__dist_reach(const struct lathe_dist *d, int rank, int64_t n)
{
    const int64_t chunk = d->o.interleave;
    const int64_t last = n - 1;
    if (n == 0)
        return 0;
    return lathe__dist_first_chunk(d, rank) + last / chunk * chunk * d->t.ranks + last % chunk + 1;
}

void lathe__dist_heads_of(const struct lathe_dist *d, int rank, int64_t *first, int64_t *n)
{
    *first = d->h_kv * rank / d->t.ranks;
    *n = d->h_kv * (rank + 1) / d->t.ranks - *first;
}

int64_t lathe__dist_q_start(const struct walk *w)
{
    const struct tensor t = lathe__dist_arg(w, "q_start");
    int32_t value = 0;
    if (!t.name || !t.data)
        return w->d->kv_all - w->d->q_all;
    memcpy(&value, t.data, sizeof value);
    return value;
}
