/*
 * key_strides.c: what an element of a tile has to do for its score, made less. In: a lowered spec of
 * attention whose row states are settled (rescale.c). Out: the same, rewritten, and w->lowered.key_stride.
 *
 *  - Where one pass gives the weights, every value that is linear in the product <q, k> becomes factor *
 *    product + rest: one multiply-add where the rest is at hand. The rest is added up before it is scaled,
 *    so that mask values, such as -1e30 in a table, still cancel the row's maximum exactly.
 *  - A value with a key stride is one of a pair that grows by the same step from key to key, as slope *
 *    (at.q - at.kv) does, or as the rest above with it. A thread computes it at its first key of a tile; at
 *    the others it adds a multiple of the slope, known when the kernel is compiled, and no position is
 *    converted to float. They start anew in every tile: positions do not cancel after they were rounded.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"

#include <stdlib.h>

/* ---- lines in the product ---------------------------------------------------------------------- */

enum { NOTHING = -1 };

struct line { /* factor * product + rest */
    bool known;
    int factor; /* node; NOTHING: 0 */
    int rest;   /* node; NOTHING: 0 */
};

static int sum(struct ir *w, enum ir_op op, int a, int b)
{
    if (b == NOTHING)
        return a;
    if (a == NOTHING)
        return op == OP_ADD ? b : ir2(w, OP_MUL, b, ir_const(w, -1, TYPE_F32));
    return ir2(w, op, a, b);
}

static int scaled(struct ir *w, int a, int by)
{
    if (a == NOTHING || (w->node[by].op == OP_CONST && w->node[by].value == 1))
        return a;
    return w->node[a].op == OP_CONST && w->node[a].value == 1 ? by : ir2(w, OP_MUL, a, by);
}

static struct line line_of_product(struct ir *w, struct line a, struct line b)
{
    if (a.factor != NOTHING && b.factor != NOTHING)
        return (struct line){false, NOTHING, NOTHING};
    const struct line of = a.factor != NOTHING ? a : b;
    const int by = a.factor != NOTHING ? b.rest : a.rest;
    return (struct line){true, scaled(w, of.factor, by), scaled(w, of.rest, by)};
}

/* Of a node that depends on the product; those of its operands are known or not. */
static struct line line_of_op(struct ir *w, const struct ir_node *n, const struct line *line)
{
    const struct line none = {false, NOTHING, NOTHING};
    for (int k = 0; k < n->n_args; k++)
        if (!line[n->arg[k]].known)
            return none;
    const struct line a = line[n->arg[0]];
    const struct line b = n->n_args > 1 ? line[n->arg[1]] : none;
    switch ((enum ir_op)n->op) {
    case OP_ADD:
    case OP_SUB:
        return (struct line){true, sum(w, (enum ir_op)n->op, a.factor, b.factor),
                             sum(w, (enum ir_op)n->op, a.rest, b.rest)};
    case OP_MUL:
        return line_of_product(w, a, b);
    case OP_NEG:
        return line_of_product(w, a, (struct line){true, NOTHING, ir_const(w, -1, TYPE_F32)});
    default:
        return none;
    }
}

static bool is_product(const struct ir_node *n)
{
    return n->op == OP_PARAM && n->index == LEAF_QK;
}

/* Lines of the nodes that a pass over the elements computes; of all others that they are no multiple. */
static void find_lines(struct ir *w, int count, const bool *used, struct line *line)
{
    for (int i = 0; i < count; i++) {
        const struct ir_node n = w->node[i];
        bool depends = is_product(&n);
        for (int k = 0; k < n.n_args; k++)
            depends |= !ir_op_is_reduction(n.op) && line[n.arg[k]].factor != NOTHING;
        line[i] = (struct line){true, NOTHING, i};
        if (!used[i] || n.type != TYPE_F32)
            line[i].known = !depends;
        else if (is_product(&n))
            line[i] = (struct line){true, ir_const(w, 1, TYPE_F32), NOTHING};
        else if (depends)
            line[i] = line_of_op(w, &n, line);
        if (depends && !line[i].known)
            line[i].factor = i; /* so that those above depend on it, too */
    }
}

/* ---- values with a key stride
 * ---------------------------------------------------------------------------------------- */

/* The same for every pair of a head, and at hand before the first tile. */
static void find_fixed(const struct ir *w, bool *fixed)
{
    for (int i = 0; i < w->n_nodes; i++) {
        const struct ir_node *n = &w->node[i];
        fixed[i] = n->op != OP_PARAM && n->span == 0 && n->phase == 0;
        for (int k = 0; k < n->n_args; k++)
            fixed[i] &= fixed[n->arg[k]];
    }
}

/* slope[i]: what node i grows by from key to key, a node; NOTHING: it has no stride. */
static int slope_of(struct ir *w, const struct ir_node *n, const bool *fixed, const int *slope)
{
    const int a = n->n_args > 0 ? n->arg[0] : NOTHING;
    const int b = n->n_args > 1 ? n->arg[1] : NOTHING;
    const bool a_varies = a != NOTHING && (w->node[a].span & SPAN_KV) != 0;
    const bool b_varies = b != NOTHING && (w->node[b].span & SPAN_KV) != 0;
    if (n->type != TYPE_F32 || n->rounded || (a_varies && slope[a] == NOTHING && n->op != OP_F32) ||
        (b_varies && slope[b] == NOTHING))
        return NOTHING;
    switch ((enum ir_op)n->op) {
    case OP_F32:
        return ir_is_at(w, a, AT_KV) ? ir_const(w, 1, TYPE_F32) : NOTHING;
    case OP_NEG:
        return ir2(w, OP_MUL, slope[a], ir_const(w, -1, TYPE_F32));
    case OP_ADD:
    case OP_SUB:
        return sum(w, (enum ir_op)n->op, a_varies ? slope[a] : NOTHING, b_varies ? slope[b] : NOTHING);
    case OP_MUL:
        if (a_varies && b_varies)
            return NOTHING;
        return fixed[a_varies ? b : a] ? scaled(w, slope[a_varies ? a : b], a_varies ? b : a) : NOTHING;
    default:
        return NOTHING;
    }
}

/* ---- rewriting ------------------------------------------------------------------------------------ */

enum { MOST_LINES = 16 };

struct replacement {
    int n;
    int from[MOST_LINES];
    int to[MOST_LINES];
    int rest[MOST_LINES];
};

/* slope[] of all nodes that stand; NULL: no memory. */
static int *find_slopes(struct ir *w)
{
    const int count = w->n_nodes; /* slopes that are made here stand behind, and are none themselves */
    bool *fixed = calloc((size_t)count, sizeof *fixed);
    int *slope = calloc((size_t)count, sizeof *slope);
    if (fixed && slope)
        find_fixed(w, fixed);
    for (int i = 0; fixed && slope && i < count; i++) {
        const struct ir_node n = w->node[i];
        const bool may = (n.span & SPAN_KV) != 0 && !ir_op_is_reduction(n.op);
        slope[i] = may ? slope_of(w, &n, fixed, slope) : NOTHING;
    }
    w->failed |= !fixed || !slope;
    free(fixed);
    return slope;
}

/* Lines with a rest that something else than a line takes. */
static void replace_line(struct ir *w, int node, const struct line *line, struct replacement *r)
{
    const struct ir_at at = {w->node[node].file, w->node[node].line};
    const struct line *l = &line[node];
    if (!l->known || l->factor == NOTHING || l->rest == NOTHING || r->n == MOST_LINES)
        return;
    for (int i = 0; i < r->n; i++)
        if (r->from[i] == node)
            return;
    r->from[r->n] = node;
    r->rest[r->n] = l->rest;
    const int product = scaled(w, ir_param(w, LEAF_QK, (struct ir_at){0, 0}), l->factor);
    r->to[r->n++] = ir_make(w, OP_ADD, (int[IR_MAX_ARGS]){product, l->rest}, at);
}

/* Is something added to the row's state there that is the same for all keys? */
static bool has_offset(struct ir *w, int rest)
{
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool found = !used;
    w->failed |= !used;
    if (used)
        ir_mark(w, &rest, 1, used);
    for (int i = 0; used && i <= rest; i++)
        found |= used[i] && (w->node[i].op == OP_ADD || w->node[i].op == OP_SUB);
    free(used);
    return found && !(w->node[rest].span & SPAN_KV);
}

/* Keeps those whose rest is at hand: of a row, of a column, or one with a key stride. Others would only be
 * computed in another order. Where steps that keep the maximum take turns with others, a row's own offset
 * (such as -1e30) has to swallow the same part of the score in both, so it is added to the score first, as
 * written. */
static void keep_short(struct ir *w, struct replacement *r, bool takes_turns)
{
    int *slope = find_slopes(w);
    int n = 0;
    for (int i = 0; slope && i < r->n; i++) {
        const uint8_t span = w->node[r->rest[i]].span;
        if ((span & SPAN_Q) && (span & SPAN_KV) && slope[r->rest[i]] == NOTHING)
            continue;
        if (takes_turns && has_offset(w, r->rest[i]))
            continue;
        r->from[n] = r->from[i];
        r->to[n++] = r->to[i];
    }
    r->n = n;
    free(slope);
}

static void straighten(struct ir *w, struct ir_fn *fn, int *watch)
{
    const int count = w->n_nodes; /* nodes made here stand behind */
    const int weight = fn->root[0];
    bool *used = calloc((size_t)count, sizeof *used);
    struct line *line = calloc((size_t)count, sizeof *line);
    struct replacement r = {0};
    if (used && line) {
        ir_mark(w, &weight, 1, used);
        find_lines(w, count, used, line);
        for (int i = 0; i < count; i++)
            for (int k = 0; used[i] && !(line[i].known && line[i].factor != NOTHING) && k < w->node[i].n_args;
                 k++)
                replace_line(w, w->node[i].arg[k], line, &r);
        keep_short(w, &r, watch != NULL);
    } else {
        w->failed = true;
    }
    for (int i = 0; i < fn->n_roots && r.n > 0; i++)
        fn->root[i] = ir_substitute(w, fn->root[i], r.from, r.to, r.n);
    if (watch && *watch >= 0 && r.n > 0)
        *watch = ir_substitute(w, *watch, r.from, r.to, r.n);
    free(used);
    free(line);
}

/* Of the values that elements compute for fn: those that something else than one with a key stride takes. */
static void add_key_strides(struct ir *w, const struct ir_fn *fn, int count, const int *slope)
{
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    w->failed |= !used;
    if (used)
        ir_mark(w, fn->root, fn->n_roots, used);
    for (int i = 0; used && i < count; i++)
        for (int k = 0; used[i] && slope[i] == NOTHING && k < w->node[i].n_args; k++) {
            const int a = w->node[i].arg[k];
            bool there = slope[a] == NOTHING || w->lowered.n_key_strides == MAX_KEY_STRIDES;
            for (int m = 0; m < w->lowered.n_key_strides; m++)
                there |= w->lowered.key_stride[m].node == a;
            if (!there)
                w->lowered.key_stride[w->lowered.n_key_strides++] = (struct key_stride){a, slope[a]};
        }
    free(used);
}

void key_strides_pass(struct ir *w)
{
    w->lowered.n_key_strides = 0;
    if (w->lowered.rescale.path == ROWS_LAZY)
        straighten(w, &w->lowered.rescale.kept, &w->lowered.rescale.watch);
    else if (w->lowered.rescale.path == ROWS_STATELESS || w->lowered.rescale.path == ROWS_BOUNDED)
        straighten(w, &w->online, NULL);
    const int count = w->n_nodes;
    int *slope = find_slopes(w);
    if (slope)
        add_key_strides(w, &w->online, count, slope);
    if (slope && w->lowered.rescale.path == ROWS_LAZY)
        add_key_strides(w, &w->lowered.rescale.kept, count, slope);
    free(slope);
}
