/*
 * sequences.h: data for the integers that attention and linear attention take beside their tensors: where
 * packed sequences begin, how many keys of each are in use, and which pages or which state each has.
 */
#ifndef LATHE_SEQUENCES_H
#define LATHE_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe_types.h"

struct ir;
struct signature;

/* Fill `cu` [seqs + 1] with places that rise from 0 to t, among them equal ones, or `state_index` [seqs] with
   states of a pool, each once, and -1 for about one in eight; or `pages` with those of a pool, each once
   where it has so many, or `used_kv` where every sequence has room for the same number of keys; from uniform
   numbers in (0, 1). False: the argument is none of them, and nothing was written. */
bool sequences_fill(const struct signature *sig, const int64_t *dim, const lathe_arg *t,
                    double (*unit)(void *state), void *state);

/* Elementwise: has this result a slot, so that not all of its elements are written? */
bool slots_has(const struct ir *ir, const char *result);
/* Do results find their slots by this operand? */
bool slots_are(const struct ir *ir, const char *operand);
/* Fill an operand by which results find their slots: each slot once, and -1 for about one in eight. False: it
   is no such operand, and nothing was written. */
bool slots_fill(const struct ir *ir, const int64_t *dim, const lathe_arg *t, double (*unit)(void *state),
                void *state);

#endif
