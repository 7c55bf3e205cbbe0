/*
 * least.c: which integers go into a minimum or a maximum of three. ptxas makes one instruction of two such
 * operations for sm_90 and sm_100, and may lose the minus of an operand (templates/common/ptx_negate.cuh),
 * whoever has made the negation: of 3 - x - 3, x // -1 or y - (x + y) it is the compiler.
 *
 * In: lowered formulas. Out: a mark for each node whose operands are to be settled, and which of them are.
 */
#include "gen/emit/emit.h"

/* What an operation is, or takes, of these. */
enum { LEAST = 1, LARGEST = 2, EITHER = LEAST | LARGEST };

static bool is_comparison(int op)
{
    return op == OP_LT || op == OP_LE || op == OP_GT || op == OP_GE;
}

/* where(lt(a, b), a, b), of which the compiler makes a minimum; so it may where a is beside a constant. */
static bool chooses_least(const struct ir *w, const struct ir_node *n)
{
    const struct ir_node *test = &w->node[n->arg[0]];
    bool shares = false;
    for (int k = 0; k < 2 && is_comparison(test->op); k++)
        shares |= test->arg[k] == n->arg[1] || test->arg[k] == n->arg[2];
    return shares;
}

/* A clamp is the least of the largest; between constants the compiler may turn that around. */
static int clamps(const struct ir *w, const struct ir_node *n, int operand)
{
    const bool turns = w->node[n->arg[1]].op == OP_CONST && w->node[n->arg[2]].op == OP_CONST;
    return operand == 1 ? LARGEST : operand == 2 ? LEAST : turns ? EITHER : LARGEST;
}

static int gives(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    if (n->type != TYPE_I32)
        return 0;
    switch ((enum ir_op)n->op) {
    case OP_MIN:
        return LEAST;
    case OP_MAX:
        return LARGEST;
    case OP_CLAMP:
        return clamps(w, n, 0) == EITHER ? EITHER : LEAST;
    case OP_WHERE:
        return chooses_least(w, n) ? EITHER : 0;
    default:
        return 0;
    }
}

/* Reads, whose indices are clamped, take the largest of it and 0: by an instruction that keeps the minus. */
static int takes(const struct ir *w, int node, int operand)
{
    const struct ir_node *n = &w->node[node];
    if (n->op == OP_CLAMP && n->type == TYPE_I32)
        return clamps(w, n, operand);
    return n->op == OP_WHERE && operand == 0 ? 0 : gives(w, node);
}

static int settled_through(const struct ir *w, int node)
{
    while (w->node[node].op == OP_DETACH)
        node = w->node[node].arg[0];
    return node;
}

void least_mark(const struct ir *w, bool *of_three)
{
    for (int i = 0; i < w->n_nodes; i++)
        for (int k = 0; k < w->node[i].n_args; k++) {
            const int a = settled_through(w, w->node[i].arg[k]);
            if ((takes(w, i, k) & gives(w, a)) != 0)
                of_three[i] = of_three[a] = true;
        }
    for (int k = 0; k < w->lowered.key_interval.n_roots; k++) { /* templates take the least and largest */
        const int root = w->lowered.key_interval.root[k];
        of_three[root] = of_three[root] || gives(w, root) != 0;
    }
}

/* Of a leaf and a constant. The compiler knows what sums and differences of other leaves have in common. */
static bool is_no_negation(const struct ir *w, const struct ir_node *n)
{
    const struct ir_node *a = &w->node[n->arg[0]];
    const struct ir_node *b = &w->node[n->arg[1]];
    if (a->op > OP_LOAD || b->op > OP_LOAD)
        return false;
    if (n->op == OP_ADD)
        return (a->op == OP_CONST) != (b->op == OP_CONST);
    return a->op != OP_CONST && b->op == OP_CONST && (n->op == OP_SUB || b->value > 0);
}

bool least_may_negate(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[settled_through(w, node)];
    switch ((enum ir_op)n->op) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_IDIV:
    case OP_MOD:
        return !is_no_negation(w, n);
    case OP_ABS:
    case OP_WHERE:
    case OP_NOT:
    case OP_XOR:
    case OP_SHL:
        return true;
    default:
        return false;
    }
}
