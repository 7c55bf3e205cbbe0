/*
 * sequences.h: data for the integers that attention and linear attention take beside their tensors: where
 * packed sequences begin, how many keys of each are in use, and which pages or which state each has.
 */
#ifndef LATHE_SEQUENCES_H
#define LATHE_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe_types.h"

struct signature;

/* Fill `cu` [seqs + 1] with places that rise from 0 to t, among them equal ones, or `state_index` [seqs] with
   states of a pool, each once, and -1 for about one in eight; or `pages` with those of a pool, each once
   where it has so many, or `used_kv` with no more than there is room for; from uniform numbers in (0, 1).
   `keys`: where those of packed sequences begin, as filled before; NULL: every sequence has room for as many,
   or `used_kv` is not filled. False: the argument is none of them, and nothing was written. */
bool sequences_fill(const struct signature *sig, const int64_t *dim, const lathe_arg *t,
                    const lathe_arg *keys, double (*unit)(void *state), void *state);

/* Fill a list with slots of a pool in any order, each once, and -1 for about one in eight and for what is
 * left. */
void sequences_draw_slots(int32_t *index, int64_t n, int64_t slots, double (*unit)(void *state), void *state);

#endif
