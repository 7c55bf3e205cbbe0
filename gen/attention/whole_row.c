/*
 * whole_row.c: the slots of attention composed into one graph from <q', k'>, with a whole row as one tile.
 * In: an IR. Out: node numbers in the same pool; callers that must not grow a spec take a copy first
 * (ir_clone).
 */
#include "gen/attention/split_final.h"
#include "gen/attention/whole_row.h"
#include "gen/ir/spec.h"

/* s = scale * <q', k'>, then score_mod. */
static int whole_score(struct ir *ir)
{
    int s = ir2(ir, OP_MUL, ir_param_of(ir, LEAF_QK), ir->scale.root[0]);
    int from = ir_param_of(ir, LEAF_S);
    return ir->score.n_roots ? ir_substitute(ir, ir->score.root[0], &from, &s, 1) : s;
}

/* The spec's forward with every exponential of a final in two steps: in doubles, too, m + log(l) loses log(l)
   beside an m of 1e16. */
static int split_forward(struct ir *ir)
{
    struct final_split split[MAX_STATE];
    int high[MAX_STATE];
    int norm[MAX_STATE];
    ir->failed |= !final_splits_find(ir, split);
    for (int k = 0; k < MAX_STATE; k++) {
        high[k] = split[k].high;
        norm[k] = split[k].norm;
    }
    return final_splits_apply(ir, ir->forward.root[0], split, high, norm);
}

static int whole_forward(struct ir *ir, const struct row_graph *row)
{
    int from[1 + 2 * MAX_STATE] = {ir_param_of(ir, LEAF_S)};
    int to[1 + 2 * MAX_STATE] = {row->score};
    int n = 1;
    if (ir->forward.n_roots == 0)
        return ir2(ir, OP_MUL, row->weight, row->factor);
    for (int i = 0; i < ir->n_states; i++) {
        from[n] = ir_param_of(ir, LEAF_STATE + i);
        to[n++] = row->state[i];
    }
    for (int i = 0; i < ir->n_finals; i++) {
        from[n] = ir_param_of(ir, LEAF_FINAL + i);
        to[n++] = row->final[i];
    }
    return ir_substitute(ir, split_forward(ir), from, to, n);
}

static void make_from(struct ir *ir, int score, struct row_graph *out)
{
    int from[1 + MAX_STATE] = {ir_param_of(ir, LEAF_S)};
    int to[1 + MAX_STATE] = {out->score = score};
    for (int i = 0; i < ir->n_states; i++) {
        from[1 + i] = ir_param_of(ir, LEAF_STATE + i);
        to[1 + i] = ir_const(ir, ir->state[i].init, TYPE_F32);
    }
    out->weight = ir_substitute(ir, ir->online.root[0], from, to, 1 + ir->n_states);
    for (int i = 0; i < ir->n_states; i++)
        out->state[i] = ir_substitute(ir, ir->online.root[2 + i], from, to, 1 + ir->n_states);
    out->factor = ir_substitute(ir, ir->epilogue.root[0], from + 1, out->state, ir->n_states);
    for (int i = 0; i < ir->n_finals; i++)
        out->final[i] = ir_substitute(ir, ir->epilogue.root[1 + i], from + 1, out->state, ir->n_states);
    out->forward = whole_forward(ir, out);
}

void row_graph_make(struct ir *ir, struct row_graph *out)
{
    make_from(ir, whole_score(ir), out);
}

void row_graph_of_scores(struct ir *ir, struct row_graph *out)
{
    out->score = whole_score(ir);
    const int score = out->score;
    make_from(ir, ir_param_of(ir, LEAF_S), out);
    out->score = score;
}
