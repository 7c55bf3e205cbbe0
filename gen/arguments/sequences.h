/*
 * sequences.h: data for the integers that linear attention takes beside its tensors: where packed sequences
 * begin, and which state each has.
 */
#ifndef LATHE_SEQUENCES_H
#define LATHE_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe_types.h"

struct signature;

/* Fill `cu` [seqs + 1] with places that rise from 0 to t, among them equal ones, or `state_index` [seqs] with
   states of a pool, each once, and -1 for about one in eight; from uniform numbers in (0, 1). False: the
   argument is neither, and nothing was written. */
bool sequences_fill(const struct signature *sig, const int64_t *dim, const lathe_arg *t,
                    double (*unit)(void *state), void *state);

#endif
