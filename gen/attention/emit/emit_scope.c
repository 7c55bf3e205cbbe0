/*
 * emit_scope.c: names that values of attention have wherever generated text stands: members of head, row and
 * column, row states, the distance of a pair. In: the sets of values that emit.c made. Out: the
 * scope of the emitter.
 */
#include "gen/attention/emit/emit.h"

#include <stdio.h>

void name_static(struct attention *a, bool row, bool col)
{
    scope_clear(a->e);
    fields_name(a->e, &a->head);
    if (row)
        fields_name(a->e, &a->row);
    if (col)
        fields_name(a->e, &a->col);
}

void name_states(struct attention *a)
{
    for (int k = 0; k < a->e->w->n_states; k++) {
        char text[NODE_NAME_BYTES];
        snprintf(text, sizeof text, "s.s%d", k);
        scope_param(a->e, LEAF_STATE + k, text);
    }
}

void name_distances(struct emitter *e)
{
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (n->op != OP_SUB)
            continue;
        int left = n->arg[0];
        int right = n->arg[1];
        bool floats = e->w->node[left].op == OP_F32 && e->w->node[right].op == OP_F32;
        if (floats) {
            left = e->w->node[left].arg[0];
            right = e->w->node[right].arg[0];
        }
        if (ir_is_at(e->w, left, AT_Q) && ir_is_at(e->w, right, AT_KV))
            scope_set(e, i, floats ? "(float)delta" : "delta");
        else if (ir_is_at(e->w, left, AT_KV) && ir_is_at(e->w, right, AT_Q))
            scope_set(e, i, floats ? "(float)-delta" : "(-delta)");
    }
}
