/*
 * phases.h: the reductions below some roots, by the pass over the elements in which they are made.
 */
#ifndef LATHE_GEN_PHASES_H
#define LATHE_GEN_PHASES_H

#include "gen/ir/ir.h"

struct phases {
    int passes; /* that reduce */
    int n;
    int node[MAX_REDUCTIONS]; /* ascending pass */
    int pass[MAX_REDUCTIONS];
};
/* Of the nodes that are marked. False: more than MAX_REDUCTIONS. */
bool phases_find(const struct ir *w, const bool *used, struct phases *out);

#endif
