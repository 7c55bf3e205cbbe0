/*
 * row_graph.c: the slots of attention composed into one graph from <q', k'>, with a whole row as one tile.
 * In: an IR. Out: node numbers in the same pool; callers that must not grow a spec take a copy first
 * (ir_clone).
 */
#include "prove.h"

#include <stdlib.h>
#include <string.h>

int param_node(struct ir *ir, int param)
{
    return ir_param(ir, param, (struct ir_at){0, 0});
}

/* s = scale * <q', k'>, then score_mod. */
static int whole_score(struct ir *ir)
{
    int s = ir2(ir, OP_MUL, param_node(ir, PARAM_QK), ir->scale.root[0]);
    int from = param_node(ir, PARAM_S);
    return ir->score.n_roots ? ir_substitute(ir, ir->score.root[0], &from, &s, 1) : s;
}

void row_graph_make(struct ir *ir, struct row_graph *out)
{
    int from[1 + MAX_STATE] = {param_node(ir, PARAM_S)};
    int to[1 + MAX_STATE] = {out->score = whole_score(ir)};
    for (int i = 0; i < ir->n_states; i++) {
        from[1 + i] = param_node(ir, PARAM_STATE + i);
        to[1 + i] = ir_const(ir, ir->state[i].init, TYPE_F32);
    }
    out->weight = ir_substitute(ir, ir->online.root[0], from, to, 1 + ir->n_states);
    for (int i = 0; i < ir->n_states; i++)
        out->state[i] = ir_substitute(ir, ir->online.root[2 + i], from, to, 1 + ir->n_states);
    out->factor = ir_substitute(ir, ir->epilogue.root[0], from + 1, out->state, ir->n_states);
    for (int i = 0; i < ir->n_finals; i++)
        out->final[i] = ir_substitute(ir, ir->epilogue.root[1 + i], from + 1, out->state, ir->n_states);
    for (int i = 0; i < ir->n_finals; i++) {
        from[1 + i] = param_node(ir, PARAM_FINAL + i);
        to[1 + i] = out->final[i];
    }
    out->forward = ir->forward.n_roots ? ir_substitute(ir, ir->forward.root[0], from, to, 1 + ir->n_finals)
                                       : ir2(ir, OP_MUL, out->weight, out->factor);
}
