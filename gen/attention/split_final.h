/*
 * split_final.h: finals that are a large value plus the logarithm of another, as m + log(l) is. Where m is
 * large, f32 has no digits left for log(l), and exp(s - final) is wrong by a factor: exp(s - m) / l is not.
 * Private to the derivation of backward passes.
 */
#ifndef LATHE_SPLIT_FINAL_H
#define LATHE_SPLIT_FINAL_H

#include "gen/ir/ir.h"

struct ir;

/* final = high + rest, and norm = exp(power rest). */
struct final_split {
    bool found;
    double power; /* of the weights' exponentials: -1 of exp(s - final) */
    int high;     /* nodes, from LEAF_STATE and inputs */
    int norm;
};

/* Of the finals that the exponentials of ir->forward subtract or add; others have found = false. False: out
   of memory. */
bool final_splits_find(struct ir *ir, struct final_split out[MAX_STATE]);

/* The same value, where exponentials no longer hold finals: exp(x - final) becomes exp(x - high) norm, of the
   nodes high[k] and norm[k]. Other uses of finals stay. */
int final_splits_apply(struct ir *ir, int root, const struct final_split *split, const int *high,
                       const int *norm);

#endif
