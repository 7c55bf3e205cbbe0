/*
 * shards.h: formulas of a call that has a part of the tokens.
 */
#ifndef LATHE_GEN_SHARDS_H
#define LATHE_GEN_SHARDS_H

#include "gen/ir/spec.h"

struct shard_axis { /* what counts tokens in formulas */
    int index;      /* AT_ROW: a token's number in its call, */
    int length;     /* how many there are, */
    int position; /* and its position, where that counts from the call's first token, too; -1: it does not */
    int sym;      /* the dim of inputs that has a place for each of them */
};

/* The line of the first of these formulas that does anything else with a token's number than to find its
   place in an input over `sym`, or finds such a place by anything else: it would come out otherwise in a part
   of the tokens. -1: none does; 0: no memory. */
int shards_line(const struct ir *ir, const struct ir_fn *const *fn, int n, const struct shard_axis *axis);
/* The same of the element-wise formulas of q, k, v and o. */
int shards_mods_line(const struct ir *ir, const struct shard_axis *axis);

#endif
