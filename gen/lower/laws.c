/*
 * laws.c: how values change when the reference of a row is moved. In: a lowered graph, and the laws of some
 * of its nodes. Out: the law of every node: which multiples of the moves are added to it, or with which
 * exponentials of them it is multiplied. A value whose law has no move in it does not depend on the
 * reference.
 *
 * Assumed is that what a move is added to is finite: a row whose reference is -inf is no affair of this room.
 * The maximum of two values with different laws is taken as a free value with a move of its own; where
 * that move cancels in the end, the maximum was a stabiliser, and what it was does not matter.
 */
#include "gen/lower/laws.h"
#include "gen/ir/spec.h"

#include <math.h>

// Arrays are of all nodes of the pool; the analyzer takes an allocation that failed, and was looked at, for a
// node. NOLINTBEGIN(clang-analyzer-core.NullDereference)

static const double NEAR = 1e-9;

static bool same_moves(const double *a, const double *b)
{
    for (int i = 0; i < SHIFT_MOVES; i++)
        if (fabs(a[i] - b[i]) > NEAR)
            return false;
    return true;
}

static bool no_moves(const double *a)
{
    static const double none[SHIFT_MOVES];
    return same_moves(a, none);
}

bool shift_is_free(const struct shift *s)
{
    return s->known && no_moves(s->add) && no_moves(s->times);
}

bool shift_has_law(const struct shift *s, const double *add, const double *times)
{
    return s->known && same_moves(s->add, add) && same_moves(s->times, times);
}

static bool is_scaling(const struct shift *s)
{
    return s->known && no_moves(s->add);
}

static bool same_law(const struct shift *a, const struct shift *b)
{
    return a->known && b->known && same_moves(a->add, b->add) && same_moves(a->times, b->times);
}

/* 0 may take the law of what it meets, if that only scales. */
static bool agree(const struct shift *a, const struct shift *b, struct shift *out)
{
    *out = a->zero ? *b : *a;
    out->zero = a->zero && b->zero;
    return same_law(a, b) || (a->zero && is_scaling(b)) || (b->zero && is_scaling(a));
}

static struct shift scaling(const struct shift *a, double by_a, const struct shift *b, double by_b)
{
    struct shift s = {.known = is_scaling(a) && is_scaling(b)};
    s.positive = a->positive && b->positive;
    s.zero = a->zero;
    for (int i = 0; i < SHIFT_MOVES; i++)
        s.times[i] = by_a * a->times[i] + by_b * b->times[i];
    return s;
}

/* ---- ops ------------------------------------------------------------------------------------- */

struct shifter {
    const struct ir *w;
    struct shift *law;
    int free_moves; /* taken by stabilisers */
};

static struct shift sum_law(const struct shift *a, const struct shift *b, double sign)
{
    struct shift s = {.known = a->known && b->known && no_moves(a->times) && no_moves(b->times)};
    if (s.known) {
        s.positive = sign > 0 && a->positive && b->positive;
        for (int i = 0; i < SHIFT_MOVES; i++)
            s.add[i] = a->add[i] + sign * b->add[i];
        return s;
    }
    s.known = agree(a, b, &s);
    s.positive = sign > 0 && (a->positive || a->zero) && (b->positive || b->zero);
    return s;
}

static struct shift product_law(const struct shifter *p, const struct ir_node *n, const struct shift *a,
                                const struct shift *b)
{
    for (int side = 0; side < 2; side++) {
        const struct ir_node *c = &p->w->node[n->arg[side]];
        struct shift s = side == 0 ? *b : *a;
        if (c->op != OP_CONST || no_moves(s.add))
            continue;
        for (int i = 0; i < SHIFT_MOVES; i++)
            s.add[i] *= c->value;
        s.positive = false;
        return s;
    }
    struct shift s = scaling(a, 1, b, 1);
    s.zero = a->zero || b->zero;
    return s;
}

static struct shift quotient_law(const struct shifter *p, const struct ir_node *n, const struct shift *a,
                                 const struct shift *b)
{
    const struct ir_node *c = &p->w->node[n->arg[1]];
    if (c->op != OP_CONST || no_moves(a->add))
        return scaling(a, 1, b, -1);
    struct shift s = *a;
    for (int i = 0; i < SHIFT_MOVES; i++)
        s.add[i] /= c->value;
    s.positive = false;
    return s;
}

static struct shift exponential_law(const struct shift *a, double log_base)
{
    struct shift s = {.known = a->known && no_moves(a->times), .positive = true};
    for (int i = 0; i < SHIFT_MOVES; i++)
        s.times[i] = a->add[i] * log_base;
    return s;
}

static struct shift logarithm_law(const struct shift *a, double log_base)
{
    struct shift s = {.known = is_scaling(a)};
    for (int i = 0; i < SHIFT_MOVES; i++)
        s.add[i] = a->times[i] / log_base;
    return s;
}

static struct shift negation_law(const struct shift *a)
{
    struct shift s = *a;
    s.positive = false;
    for (int i = 0; i < SHIFT_MOVES; i++)
        s.add[i] = -a->add[i];
    return s;
}

static struct shift extremum_law(struct shifter *p, const struct shift *a, const struct shift *b)
{
    struct shift s = {.known = false};
    if (a->known && b->known && agree(a, b, &s)) {
        s.positive = a->positive && b->positive;
        return s;
    }
    s = (struct shift){.known = a->known && b->known && no_moves(a->times) && no_moves(b->times) &&
                                p->free_moves < SHIFT_MOVES};
    if (s.known)
        s.add[p->free_moves++] = 1;
    return s;
}

/* -1, or the truth of a comparison that the assumptions decide: x > -inf, x > 0 of a positive x that moves
   with the row, as its sums do. exp() of positions is 0 in f32 far out, so it is compared. */
static int decided(enum ir_op op, const struct shift *x, const struct ir_node *c)
{
    bool above = (x->known && !no_moves(x->add) && c->value == -HUGE_VAL) ||
                 (x->known && x->positive && !no_moves(x->times) && c->value == 0);
    if (!above)
        return -1;
    return op == OP_GT || op == OP_GE || op == OP_NE;
}

static struct shift comparison_law(const struct shifter *p, const struct ir_node *n, const struct shift *a,
                                   const struct shift *b)
{
    static const enum ir_op mirrored[] = {
        [OP_LT] = OP_GT, [OP_LE] = OP_GE, [OP_GT] = OP_LT, [OP_GE] = OP_LE, [OP_EQ] = OP_EQ, [OP_NE] = OP_NE};
    const struct ir_node *left = &p->w->node[n->arg[0]];
    const struct ir_node *right = &p->w->node[n->arg[1]];
    struct shift s = {.known = false};
    int truth = -1;
    if (right->op == OP_CONST)
        truth = decided((enum ir_op)n->op, a, right);
    else if (left->op == OP_CONST)
        truth = decided(mirrored[n->op], b, left);
    bool known = a->known && b->known && (truth >= 0 || agree(a, b, &s));
    return (struct shift){.known = known, .truth = (int8_t)(truth < 0 ? 0 : truth ? 1 : -1)};
}

static struct shift choice_law(const struct shift *c, const struct shift *a, const struct shift *b)
{
    struct shift s = {.known = false};
    if (c->truth != 0)
        return c->truth > 0 ? *a : *b;
    s.known = false;
    bool known = c->known && a->known && b->known && agree(a, b, &s);
    s.known = known;
    s.positive = a->positive && b->positive;
    return s;
}

static struct shift logic_law(enum ir_op op, const struct shift *a, const struct shift *b)
{
    int dominant = op == OP_AND ? -1 : 1;
    struct shift s = {.known = a->known && b->known};
    if (a->truth == dominant || b->truth == dominant)
        s.truth = (int8_t)dominant;
    else if (a->truth != 0 && b->truth != 0)
        s.truth = (int8_t)-dominant;
    return s;
}

/* Ops that know nothing of moves: free where all operands are. */
static struct shift plain_law(const struct shifter *p, const struct ir_node *n)
{
    struct shift s = {.known = true};
    for (int k = 0; k < n->n_args; k++)
        s.known &= shift_is_free(&p->law[n->arg[k]]);
    if (n->op == OP_CONST) {
        s.zero = n->value == 0;
        s.positive = n->value > 0;
    }
    return s;
}

static struct shift node_law(struct shifter *p, const struct ir_node *n)
{
    static const double LN_2 = 0.69314718055994531;
    const struct shift *a = n->n_args > 0 ? &p->law[n->arg[0]] : NULL;
    const struct shift *b = n->n_args > 1 ? &p->law[n->arg[1]] : NULL;
    switch ((enum ir_op)n->op) {
    case OP_ADD:
        return sum_law(a, b, 1);
    case OP_SUB:
        return sum_law(a, b, -1);
    case OP_NEG:
        return negation_law(a);
    case OP_MUL:
        return product_law(p, n, a, b);
    case OP_DIV:
        return quotient_law(p, n, a, b);
    case OP_EXP:
        return exponential_law(a, 1);
    case OP_EXP2:
        return exponential_law(a, LN_2);
    case OP_LOG:
        return logarithm_law(a, 1);
    case OP_LOG2:
        return logarithm_law(a, LN_2);
    case OP_SQRT:
        return scaling(a, 0.5, a, 0);
    case OP_RSQRT:
        return scaling(a, -0.5, a, 0);
    case OP_ABS:
    case OP_RELU:
    case OP_ROWSUM:
        return scaling(a, 1, a, 0);
    case OP_ROWMAX:
    case OP_ROWMIN:
        return *a;
    case OP_MAX:
    case OP_MIN:
        return extremum_law(p, a, b);
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
    case OP_EQ:
    case OP_NE:
        return comparison_law(p, n, a, b);
    case OP_WHERE:
        return choice_law(a, b, &p->law[n->arg[2]]);
    case OP_AND:
    case OP_OR:
        return logic_law((enum ir_op)n->op, a, b);
    case OP_NOT:
        return (struct shift){.known = a->known, .truth = (int8_t)-a->truth};
    default:
        return plain_law(p, n);
    }
}

void shift_laws(const struct ir *w, const int *root, int n_roots, const bool *given, struct shift *law,
                bool *used)
{
    struct shifter p = {w, law, SHIFT_FREE};
    ir_mark(w, root, n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        if (used[i] && !given[i])
            law[i] = node_law(&p, &w->node[i]);
}
// NOLINTEND(clang-analyzer-core.NullDereference)
