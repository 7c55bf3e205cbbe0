/*
 * prove.h: what host_grad.c and the files of the prover share.
 *
 *  - ir_copy: the derived passes add nodes, and a spec that others read must not change under them.
 *  - struct row_graph: the formulas of attention composed into one graph from PARAM_QK, with a row of
 *    keys as one tile.
 *  - struct prover: one run of `prove`: sizes, random inputs, and where proofs go.
 */
#ifndef LATHE_GEN_PROVE_H
#define LATHE_GEN_PROVE_H

#include "gen.h"
#include "host.h"

/* A copy with a pool of its own; NULL: out of memory. ir_free. */
struct ir *ir_copy(const struct ir *ir);

struct row_graph { /* node numbers */
    int score;     /* after score_mod */
    int weight;    /* of online, before the epilogue's factor */
    int state[MAX_STATE];
    int factor;
    int final[MAX_STATE];
    int forward; /* the final weight, from score and finals */
};
void row_graph_make(struct ir *ir, struct row_graph *out);

/* Node of a parameter, made where the spec does not use it. */
int param_node(struct ir *ir, int param);

#endif
