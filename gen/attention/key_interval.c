/*
 * key_interval.c: which keys of a row a mask can leave, as an interval. In: a lowered spec of attention,
 * after every other pass. Out: w->lowered.key_interval (first and last key, i32, per row) and
 * w->lowered.keys_left, what must still be asked about a key between them; both of the same pool. Comparisons
 * of integers that are linear in at.kv become half-lines; `and` cuts them, `or` joins two that open the same
 * way. Conditions on sines and cosines are left to keys_left.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { NOWHERE = -1, NOT_LINEAR = 99, SMALL = 1 << 24 };

struct line { /* slope * at.kv + rest */
    int slope;
    int rest; /* node */
};

struct half_lines { /* keys first .. last; NOWHERE: no end on that side */
    bool known;
    int first;
    int last;
};

static const struct half_lines UNKNOWN_KEYS = {false, NOWHERE, NOWHERE};
static const int EVERY_KEY = INT_MAX - 1; /* as a last key; one more is still a number */

struct finder {
    bool *used;  /* below the mask */
    bool *angle; /* a sine or a cosine is below */
    struct ir *w;
    struct line *line;       /* of i32 nodes */
    struct half_lines *keys; /* of bools */
};

bool mask_has_angle(const struct ir *w, int node)
{
    bool used[IR_MAX_NODES] = {false};
    bool found = false;
    ir_mark(w, &node, 1, used);
    for (int i = 0; i <= node; i++)
        found |= used[i] && (w->node[i].op == OP_SIN || w->node[i].op == OP_COS);
    return found;
}

/* ---- integers as lines --------------------------------------------------------------------------- */

static struct line combine(struct ir *w, enum ir_op op, struct line a, struct line b)
{
    if (a.slope == NOT_LINEAR || b.slope == NOT_LINEAR)
        return (struct line){NOT_LINEAR, NOWHERE};
    const int slope = op == OP_ADD ? a.slope + b.slope : a.slope - b.slope;
    return (struct line){slope, ir2(w, op, a.rest, b.rest)};
}

static struct line line_of(const struct finder *f, int i)
{
    struct ir *w = f->w;
    const struct ir_node n = w->node[i];
    if (n.type != TYPE_I32 || f->angle[i])
        return (struct line){NOT_LINEAR, NOWHERE};
    if (!(n.span & SPAN_KV))
        return (struct line){0, i};
    if (n.op == OP_AT && n.index == AT_KV)
        return (struct line){1, ir_const(w, 0, TYPE_I32)};
    if (n.op == OP_ADD || n.op == OP_SUB)
        return combine(w, (enum ir_op)n.op, f->line[n.arg[0]], f->line[n.arg[1]]);
    if (n.op == OP_NEG)
        return combine(w, OP_SUB, (struct line){0, ir_const(w, 0, TYPE_I32)}, f->line[n.arg[0]]);
    return (struct line){NOT_LINEAR, NOWHERE};
}

/* ---- comparisons --------------------------------------------------------------------------------- */

/* Moving a term to the other side must not overflow where the mask does not: the largest number is a usual
   way to say "no limit". */

/* A position, a length or a small constant, or sums of a few: far from the ends of i32. */
static bool is_small(const struct ir *w, int i, int depth)
{
    const struct ir_node *n = &w->node[i];
    if (n->op == OP_AT)
        return true;
    if (n->op == OP_CONST)
        return fabs(n->value) <= (double)SMALL;
    if ((n->op != OP_ADD && n->op != OP_SUB && n->op != OP_NEG) || depth == 0)
        return false;
    return is_small(w, n->arg[0], depth - 1) && (n->op == OP_NEG || is_small(w, n->arg[1], depth - 1));
}

/* a - b, as near to it as i32 has. */
static int minus(struct ir *w, int a, int b)
{
    const int zero = ir_const(w, 0, TYPE_I32);
    if (!is_small(w, a, 1) || !is_small(w, b, 1)) {
        const int above = ir2(w, OP_MAX, b, zero);
        const int below = ir2(w, OP_MIN, b, zero);
        const int least = ir2(w, OP_ADD, above, ir_const(w, INT_MIN, TYPE_I32));
        const int most = ir2(w, OP_ADD, below, ir_const(w, INT_MAX, TYPE_I32));
        a = ir3(w, OP_CLAMP, a, least, most);
    }
    return ir2(w, OP_SUB, a, b);
}

static int plus(struct ir *w, int a, int by)
{
    return by == 0 ? a : minus(w, a, ir_const(w, -by, TYPE_I32));
}

/* a <= b - strict */
static struct half_lines at_most(struct ir *w, struct line a, struct line b, int strict)
{
    const struct line d = combine(w, OP_SUB, a, b);
    struct half_lines k = UNKNOWN_KEYS;
    if (d.slope == 1) {
        k.known = true;
        k.last = plus(w, minus(w, b.rest, a.rest), -strict);
    } else if (d.slope == -1) {
        k.known = true;
        k.first = plus(w, minus(w, a.rest, b.rest), strict);
    }
    return k;
}

static struct half_lines both(struct ir *w, struct half_lines a, struct half_lines b)
{
    if (!a.known || !b.known)
        return UNKNOWN_KEYS;
    a.first = a.first == NOWHERE ? b.first : b.first == NOWHERE ? a.first : ir2(w, OP_MAX, a.first, b.first);
    a.last = a.last == NOWHERE ? b.last : b.last == NOWHERE ? a.last : ir2(w, OP_MIN, a.last, b.last);
    return a;
}

/* |a| <= b is a <= b and -a <= b. */
static struct half_lines at_most_of(const struct finder *f, int a, int b, int strict)
{
    const struct ir_node n = f->w->node[a];
    if (n.op != OP_ABS || n.type != TYPE_I32 || !(n.span & SPAN_KV))
        return at_most(f->w, f->line[a], f->line[b], strict);
    const struct line inner = f->line[n.arg[0]];
    const struct line zero = {0, ir_const(f->w, 0, TYPE_I32)};
    return both(f->w, at_most(f->w, inner, f->line[b], strict),
                at_most(f->w, combine(f->w, OP_SUB, zero, inner), f->line[b], strict));
}

static struct half_lines compared(const struct finder *f, const struct ir_node *n)
{
    const int a = n->arg[0];
    const int b = n->arg[1];
    switch ((enum ir_op)n->op) {
    case OP_LE:
        return at_most_of(f, a, b, 0);
    case OP_LT:
        return at_most_of(f, a, b, 1);
    case OP_GE:
        return at_most_of(f, b, a, 0);
    case OP_GT:
        return at_most_of(f, b, a, 1);
    case OP_EQ:
        return both(f->w, at_most_of(f, a, b, 0), at_most_of(f, b, a, 0));
    default:
        return UNKNOWN_KEYS;
    }
}

/* ---- bools ---------------------------------------------------------------------------------------- */

static struct half_lines either(struct ir *w, struct half_lines a, struct half_lines b)
{
    struct half_lines k = {a.known && b.known, NOWHERE, NOWHERE};
    if (!k.known)
        return k;
    if (a.first == NOWHERE && b.first == NOWHERE)
        k.last = a.last == NOWHERE || b.last == NOWHERE ? NOWHERE : ir2(w, OP_MAX, a.last, b.last);
    else if (a.last == NOWHERE && b.last == NOWHERE)
        k.first = a.first == NOWHERE || b.first == NOWHERE ? NOWHERE : ir2(w, OP_MIN, a.first, b.first);
    else
        k.known = false;
    return k;
}

static struct half_lines opposite(struct ir *w, struct half_lines a)
{
    struct half_lines k = {a.known && (a.first == NOWHERE) != (a.last == NOWHERE), NOWHERE, NOWHERE};
    if (k.known && a.first == NOWHERE)
        k.first = plus(w, a.last, 1);
    else if (k.known)
        k.last = plus(w, a.first, -1);
    return k;
}

static struct half_lines keys_of(const struct finder *f, int i)
{
    struct ir *w = f->w;
    const struct ir_node n = w->node[i];
    if (n.type != TYPE_BOOL || f->angle[i])
        return UNKNOWN_KEYS;
    if (!(n.span & SPAN_KV)) /* the row decides */
        return (struct half_lines){
            true, NOWHERE, ir3(w, OP_WHERE, i, ir_const(w, EVERY_KEY, TYPE_I32), ir_const(w, -1, TYPE_I32))};
    switch ((enum ir_op)n.op) {
    case OP_AND:
        return both(w, f->keys[n.arg[0]], f->keys[n.arg[1]]);
    case OP_OR:
        return either(w, f->keys[n.arg[0]], f->keys[n.arg[1]]);
    case OP_NOT:
        return opposite(w, f->keys[n.arg[0]]);
    default:
        return compared(f, &n);
    }
}

/* ---- the mask ------------------------------------------------------------------------------------- */

struct split { /* a mask as `range and rest` */
    struct half_lines range;
    int rest; /* NOWHERE: nothing */
};

/* Conjuncts that are no interval join the rest. */
static struct split cut(const struct finder *f, int mask)
{
    struct split s = {{true, NOWHERE, NOWHERE}, NOWHERE};
    int stack[64];
    int n = 0;
    stack[n++] = mask;
    while (n > 0) {
        const int i = stack[--n];
        const struct ir_node node = f->w->node[i];
        if (f->keys[i].known)
            s.range = both(f->w, s.range, f->keys[i]);
        else if (node.op == OP_AND && n + 2 <= (int)(sizeof stack / sizeof *stack)) {
            stack[n++] = node.arg[1];
            stack[n++] = node.arg[0];
        } else
            s.rest = s.rest == NOWHERE ? i : ir2(f->w, OP_AND, s.rest, i);
    }
    return s;
}

static void find(struct finder *f, int mask, struct split *out)
{
    for (int i = 0; i <= mask; i++) {
        if (!f->used[i])
            continue;
        f->angle[i] = mask_has_angle(f->w, i);
        f->line[i] = line_of(f, i);
        f->keys[i] = keys_of(f, i);
    }
    *out = cut(f, mask);
}

void key_interval_pass(struct ir *w)
{
    struct split s = {{true, NOWHERE, NOWHERE}, NOWHERE};
    if (w->mask.n_roots) {
        const int mask = w->mask.root[0];
        struct finder f = {.w = w,
                           .used = calloc((size_t)w->n_nodes, sizeof *f.used),
                           .angle = calloc((size_t)mask + 1, sizeof *f.angle),
                           .line = calloc((size_t)mask + 1, sizeof *f.line),
                           .keys = calloc((size_t)mask + 1, sizeof *f.keys)};
        if (f.used && f.angle && f.line && f.keys) {
            ir_mark(w, &mask, 1, f.used);
            find(&f, mask, &s);
        } else {
            w->failed = true;
        }
        free(f.used);
        free(f.angle);
        free(f.line);
        free(f.keys);
    }
    w->lowered.key_interval.n_roots = 2;
    w->lowered.key_interval.root[0] = s.range.first == NOWHERE ? ir_const(w, 0, TYPE_I32) : s.range.first;
    w->lowered.key_interval.root[1] =
        s.range.last == NOWHERE ? ir_const(w, EVERY_KEY, TYPE_I32) : s.range.last;
    w->lowered.keys_left.n_roots = s.rest != NOWHERE;
    w->lowered.keys_left.root[0] = s.rest;
}
