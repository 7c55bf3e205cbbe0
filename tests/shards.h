/*
 * shards.h: where the tokens of ranks are among all, as lathe_dist.h says, for tests that cut a whole
 * problem.
 */
#ifndef LATHE_TESTS_SHARDS_H
#define LATHE_TESTS_SHARDS_H

#include "lathe_dist.h"

/* Token i of a rank; edge [ranks + 1]: tokens of the ranks before each; chunk: of interleaved shards. */
static inline int64_t shard_place(lathe_shards shards, int ranks, const int64_t *edge, int64_t chunk,
                                  int rank, int64_t i)
{
    const int64_t n = edge[rank + 1] - edge[rank];
    if (shards == LATHE_SHARDS_INTERLEAVED)
        return (i / chunk * ranks + rank) * chunk + i % chunk;
    if (shards != LATHE_SHARDS_ZIGZAG)
        return edge[rank] + i;
    return i < n / 2 ? rank * (n / 2) + i : (2 * ranks - 1 - rank) * (n / 2) + i - n / 2;
}

/* The edges of interleaved shards of so many tokens. */
static inline void shard_interleave(int ranks, int64_t chunk, int64_t tokens, int64_t *edge)
{
    edge[0] = 0;
    for (int r = 0; r < ranks; r++) {
        edge[r + 1] = edge[r];
        for (int64_t i = 0; i < tokens; i++)
            edge[r + 1] += i / chunk % ranks == r;
    }
}

#endif
