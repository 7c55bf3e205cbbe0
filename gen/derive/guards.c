/*
 * guards.c: tests that have one answer almost everywhere: is a sum of exponentials 0, is a row's maximum
 * -inf? In: an IR. Out: which operand of such a where() counts. A row of scores without a live key answers
 * otherwise, and has no gradients. Every other test counts on both sides: relu(s) is 0 in half of all pairs,
 * and what is read from inputs, or counted, may be anything anywhere.
 *
 * A row state is more than 0, or not -inf, where its step makes it so, whatever it was; a final, where the
 * epilogue does. So states and finals are looked at until no more of them are found.
 */
#include "gen/derive/guards.h"
#include "gen/derive/signs.h"
#include "gen/ir/spec.h"

#include <math.h>
#include <stdlib.h>

/* What a state's step or the epilogue makes; -1: the leaf is neither state nor final. */
static int formula_of(const struct ir *ir, int leaf)
{
    const int state = leaf - LEAF_STATE;
    const int final = leaf - LEAF_FINAL;
    if (state >= 0 && state < ir->n_states && ir->online.n_roots >= 2 + ir->n_states)
        return ir->online.root[2 + state];
    if (final >= 0 && final < ir->n_finals && ir->epilogue.n_roots >= 1 + ir->n_finals)
        return ir->epilogue.root[1 + final];
    return -1;
}

static bool of_leaf(const struct guards *g, const struct ir_node *n, const bool *found)
{
    const int formula = formula_of(g->ir, n->index);
    return formula >= 0 && formula < g->ir->n_nodes && found[formula];
}

/* What an operation hands on from its operands, of either property; false: others may still have it. */
static bool is_handed_on(const struct guards *g, int i, const bool *found)
{
    const struct ir_node *n = &g->ir->node[i];
    const int a = n->arg[0];
    const int b = n->arg[1];
    const int branch = guards_branch(g, i);
    switch ((enum ir_op)n->op) {
    case OP_PARAM:
        return of_leaf(g, n, found);
    case OP_DETACH:
    case OP_ROWMAX:
    case OP_ROWMIN:
    case OP_ROWSUM:
        return found[a];
    case OP_MUL:
    case OP_MIN:
        return found[a] && found[b];
    case OP_MAX:
        return found[a] || found[b];
    case OP_WHERE:
        return branch > 0 ? found[n->arg[branch]] : found[b] && found[n->arg[2]];
    default:
        return false;
    }
}

static bool find_nonzero(const struct guards *g, int i)
{
    const struct ir_node *n = &g->ir->node[i];
    const int a = n->arg[0];
    const int b = n->arg[1];
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return n->value > 0;
    case OP_EXP:
    case OP_EXP2:
    case OP_SIGMOID:
    case OP_RSQRT:
        return true;
    case OP_SQRT:
    case OP_POW:
        return g->nonzero[a];
    case OP_DIV:
        return g->nonzero[a] && g->nonzero[b];
    case OP_ADD:
        return (g->nonzero[a] && g->positive[b]) || (g->positive[a] && g->nonzero[b]);
    default:
        return is_handed_on(g, i, g->nonzero);
    }
}

static bool find_above(const struct guards *g, int i)
{
    const struct ir_node *n = &g->ir->node[i];
    const int a = n->arg[0];
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return n->value > -HUGE_VAL;
    case OP_LOG:
    case OP_LOG2:
        return g->nonzero[a];
    case OP_ADD:
    case OP_SUB:
        return g->above[a] && g->above[n->arg[1]];
    case OP_PARAM: /* the score of a pair that is not masked is a number almost everywhere */
        return n->index == LEAF_S || is_handed_on(g, i, g->above) || g->positive[i];
    default: /* what is never negative is not -inf */
        return is_handed_on(g, i, g->above) || g->positive[i];
    }
}

/* Is x > c almost everywhere? Of a pair even an exponential is 0 far out. */
static bool is_above(const struct guards *g, int x, const struct ir_node *c)
{
    const struct ir_node *n = &g->ir->node[x];
    if (n->type != TYPE_F32 || c->op != OP_CONST)
        return false;
    return (c->value == -HUGE_VAL && g->above[x]) || (c->value == 0 && g->nonzero[x] && !(n->span & SPAN_KV));
}

/* Is x a final, compared with -inf? Where it is -inf no gradient goes through it, so beside a constant, as in
   finite(final.lse), it does not matter how often that is. */
static bool is_final_at_end(const struct guards *g, int x, const struct ir_node *c)
{
    const struct ir_node *n = &g->ir->node[x];
    const bool final = n->op == OP_PARAM && n->index >= LEAF_FINAL && n->index < LEAF_FINAL + g->ir->n_finals;
    return final && c->op == OP_CONST && c->value == -HUGE_VAL;
}

int guards_branch(const struct guards *g, int node)
{
    static const enum ir_op mirrored[] = {
        [OP_LT] = OP_GT, [OP_LE] = OP_GE, [OP_GT] = OP_LT, [OP_GE] = OP_LE, [OP_EQ] = OP_EQ, [OP_NE] = OP_NE};
    const struct ir_node *all = g->ir->node;
    if (all[node].op != OP_WHERE)
        return 0;
    const struct ir_node *test = &all[all[node].arg[0]];
    const bool inverted = test->op == OP_NOT;
    if (inverted)
        test = &all[test->arg[0]];
    if (test->op < OP_LT || test->op > OP_NE)
        return 0;
    const bool left = all[test->arg[0]].op == OP_CONST;
    const enum ir_op op = left ? mirrored[test->op] : (enum ir_op)test->op;
    const int tested = test->arg[left ? 1 : 0];
    const struct ir_node *limit = &all[test->arg[left ? 0 : 1]];
    const int branch = (op == OP_NE || op == OP_GT) != inverted ? 1 : 2;
    const bool constant = all[all[node].arg[3 - branch]].op == OP_CONST;
    if (op == OP_LT || op == OP_GE)
        return 0;
    return is_above(g, tested, limit) || (constant && is_final_at_end(g, tested, limit)) ? branch : 0;
}

/* Another look at every node; false: it found nothing new. */
static bool look(struct guards *g)
{
    bool changed = false;
    for (int i = 0; i < g->ir->n_nodes; i++) {
        const bool number = g->ir->node[i].type == TYPE_F32;
        const bool nonzero = number && find_nonzero(g, i);
        const bool above = number && find_above(g, i);
        changed |= (nonzero && !g->nonzero[i]) || (above && !g->above[i]);
        g->nonzero[i] |= nonzero;
        g->above[i] |= above;
    }
    return changed;
}

bool guards_open(struct guards *g, const struct ir *ir)
{
    const size_t n = (size_t)ir->n_nodes + 1;
    *g = (struct guards){.ir = ir,
                         .positive = calloc(n, sizeof *g->positive),
                         .nonzero = calloc(n, sizeof *g->nonzero),
                         .above = calloc(n, sizeof *g->above)};
    if (!g->positive || !g->nonzero || !g->above)
        return false;
    signs_of(ir, ir->n_nodes, g->positive);
    while (look(g))
        continue;
    return true;
}

void guards_close(struct guards *g)
{
    free(g->positive);
    free(g->nonzero);
    free(g->above);
}
