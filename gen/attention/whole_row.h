/*
 * whole_row.h: the formulas of attention composed into one graph from LEAF_QK, with a row of keys as one
 * tile.
 */
#ifndef LATHE_GEN_WHOLE_ROW_H
#define LATHE_GEN_WHOLE_ROW_H

#include "gen/ir/ir.h"

struct ir;

struct row_graph { /* node numbers */
    int score;     /* after score_mod */
    int weight;    /* of online, before the epilogue's factor */
    int state[MAX_STATE];
    int factor;
    int final[MAX_STATE];
    int forward; /* the final weight, from score and finals */
};
void row_graph_make(struct ir *ir, struct row_graph *out);
/* The same, but all from LEAF_S; only `score` is from LEAF_QK. */
void row_graph_of_scores(struct ir *ir, struct row_graph *out);

#endif
