/*
 * signs.c: values that are never negative, whatever the data. In: an IR. Out: a bool for every node. A row
 * state is one where it begins at 0 or more and every step leaves it there, given that the others are.
 */
#include "gen/derive/signs.h"
#include "gen/ir/spec.h"

static bool is_state(const struct ir *ir, const struct ir_node *n)
{
    return n->op == OP_PARAM && n->index >= LEAF_STATE && n->index < LEAF_STATE + ir->n_states;
}

/* state[k]: what is supposed of the row states. */
static bool sign_of(const struct ir *ir, const struct ir_node *n, const bool *state, const bool *positive)
{
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return n->value >= 0;
    case OP_PARAM:
        return is_state(ir, n) && state[n->index - LEAF_STATE];
    case OP_EXP:
    case OP_EXP2:
    case OP_SIGMOID:
    case OP_RELU:
    case OP_ABS:
    case OP_SQRT:
    case OP_RSQRT:
        return true;
    case OP_MUL:
        return n->arg[0] == n->arg[1] || (positive[n->arg[0]] && positive[n->arg[1]]);
    case OP_ADD:
    case OP_DIV:
    case OP_MIN:
        return positive[n->arg[0]] && positive[n->arg[1]];
    case OP_MAX:
        return positive[n->arg[0]] || positive[n->arg[1]];
    case OP_WHERE:
        return positive[n->arg[1]] && positive[n->arg[2]];
    case OP_POW:
    case OP_DETACH:
    case OP_F32:
    case OP_ROWMAX:
    case OP_ROWMIN:
    case OP_ROWSUM:
        return positive[n->arg[0]];
    default:
        return false;
    }
}

static void sweep(const struct ir *ir, int n, const bool *state, bool *positive)
{
    for (int i = 0; i < n; i++)
        positive[i] = ir->node[i].type != TYPE_BOOL && sign_of(ir, &ir->node[i], state, positive);
}

void signs_of(const struct ir *ir, int n, bool *positive)
{
    bool state[MAX_STATE] = {false};
    bool changed = true;
    const bool steps = ir->online.n_roots >= 2 + ir->n_states;
    for (int k = 0; k < ir->n_states && steps; k++)
        state[k] = ir->state[k].init >= 0;
    while (changed) { /* every round takes a state away, or is the last */
        changed = false;
        sweep(ir, n, state, positive);
        for (int k = 0; k < ir->n_states && steps; k++) {
            const int next = ir->online.root[2 + k];
            const bool stays = next < n && positive[next];
            changed |= state[k] && !stays;
            state[k] &= stays;
        }
    }
}
