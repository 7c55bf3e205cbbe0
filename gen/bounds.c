/*
 * bounds.c: what a mask does to a tile, by interval arithmetic on its IR: from the corners of a tile
 * to "certainly live everywhere" and "possibly live somewhere", as IR again, so that the host and the
 * emitted kernel compute the same thing. In: ir->mask. Out: ir->bounds. A value that cannot be bounded
 * (a read that varies with q or kv) makes a comparison undecided, never wrong.
 */
#include "gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A node's range on the tile: numbers lo..hi, or for a bool lo = certain, hi = possible. -1: unbounded. */
struct range {
    int lo;
    int hi;
};

static const struct range UNKNOWN = {-1, -1};

struct bounder {
    struct ir *ir;
    struct range *range; /* of every node of the mask */
    bool *data;          /* of every node: is it an integer made of what is read on the tile? */
    bool reads;          /* what the mask reads on a tile has bounds, too */
    int fits;            /* node: no sum or product of such integers can be beyond 2^31; -1: there is none */
};

static int corner(struct ir *ir, int param)
{
    return ir_leaf(ir, OP_PARAM, param, TYPE_I32, 0, (struct ir_at){0, 0});
}

/* Of an integer that is read by row or by column. The largest and least of them are made on the device. */
static struct range read_range(struct bounder *b, int node)
{
    struct ir *ir = b->ir;
    const struct ir_node *n = &ir->node[node];
    bool one_axis = n->span == SPAN_Q || n->span == SPAN_KV;
    if (!b->reads || n->op != OP_LOAD || n->type != TYPE_I32 || !one_axis || ir->n_reads == MAX_MASK_READS)
        return UNKNOWN;
    int k = ir->n_reads++;
    ir->read[k] = node;
    b->data[node] = true;
    return (struct range){corner(ir, PARAM_READ + 2 * k), corner(ir, PARAM_READ + 2 * k + 1)};
}

/* Ids may be any number, such as the least one for padding, and corners that wrap around would drop live
   tiles: of them sums and products count only where no pair of the tile can be beyond 2^31. */
static void keep_within(struct bounder *b, struct range r, double limit)
{
    struct ir *ir = b->ir;
    const int above = ir2(ir, OP_GE, r.lo, ir_const(ir, -limit, TYPE_I32));
    const int below = ir2(ir, OP_LE, r.hi, ir_const(ir, limit, TYPE_I32));
    const int both = ir2(ir, OP_AND, above, below);
    b->fits = b->fits < 0 ? both : ir2(ir, OP_AND, b->fits, both);
}

/* What the operands of an integer may be so that it does not wrap: 2^30 each for a sum, a factor's share of
   2^31 for a product. */
static void guard(struct bounder *b, const struct ir_node *n, const struct range *a)
{
    static const double HALF = (1 << 30) - 1;
    static const double ROOT = 46340; /* of 2^31 */
    const bool product = n->op == OP_MUL;
    if (n->type != TYPE_I32 ||
        !(product || n->op == OP_ADD || n->op == OP_SUB || n->op == OP_NEG || n->op == OP_ABS))
        return;
    for (int i = 0; i < n->n_args; i++) {
        const struct ir_node *other = &b->ir->node[n->arg[n->n_args - 1 - i]];
        const bool scaled = product && other->op == OP_CONST && other->value != 0;
        const double share = floor((double)INT32_MAX / fabs(scaled ? other->value : 1.0));
        if (!product || b->ir->node[n->arg[i]].op != OP_CONST)
            keep_within(b, a[i], scaled ? share : product ? ROOT : HALF);
    }
}

static struct range leaf_range(struct bounder *b, int node)
{
    const struct ir_node *n = &b->ir->node[node];
    if (n->op != OP_AT)
        return read_range(b, node);
    switch (n->index) {
    case AT_Q:
        return (struct range){corner(b->ir, PARAM_Q0), corner(b->ir, PARAM_Q1)};
    case AT_ROW:
        return (struct range){corner(b->ir, PARAM_ROW0), corner(b->ir, PARAM_ROW1)};
    case AT_KV:
        return (struct range){corner(b->ir, PARAM_KV0), corner(b->ir, PARAM_KV1)};
    default:
        return UNKNOWN;
    }
}

static bool bounded(struct range r)
{
    return r.lo >= 0 && r.hi >= 0;
}

/* op(inner(a, b), inner(c, d)): in this order, which the calls as arguments would leave to the compiler. */
static int of_two(struct ir *ir, enum ir_op op, enum ir_op inner, const int *pair)
{
    int first = ir2(ir, inner, pair[0], pair[1]);
    int second = ir2(ir, inner, pair[2], pair[3]);
    return ir2(ir, op, first, second);
}

static struct range make_range(struct ir *ir, enum ir_op op, int lo_a, int lo_b, int hi_a, int hi_b)
{
    return (struct range){ir2(ir, op, lo_a, lo_b), ir2(ir, op, hi_a, hi_b)};
}

static struct range product(struct ir *ir, struct range a, struct range b)
{
    int p[4] = {ir2(ir, OP_MUL, a.lo, b.lo), ir2(ir, OP_MUL, a.lo, b.hi), ir2(ir, OP_MUL, a.hi, b.lo),
                ir2(ir, OP_MUL, a.hi, b.hi)};
    int lo = of_two(ir, OP_MIN, OP_MIN, p);
    int hi = of_two(ir, OP_MAX, OP_MAX, p);
    return (struct range){lo, hi};
}

static bool positive_constant(const struct ir *ir, int node)
{
    return ir->node[node].op == OP_CONST && ir->node[node].value > 0;
}

/* a % c for a constant c > 0: exact where the range stays within one period. */
static struct range modulo(struct ir *ir, struct range a, int c)
{
    int same = of_two(ir, OP_EQ, OP_IDIV, (int[4]){a.lo, c, a.hi, c});
    int zero = ir_const(ir, 0, (enum ir_type)ir->node[c].type);
    bool integer = ir->node[c].type == TYPE_I32;
    int top = integer ? ir2(ir, OP_SUB, c, ir_const(ir, 1, TYPE_I32)) : c;
    return (struct range){ir3(ir, OP_WHERE, same, ir2(ir, OP_MOD, a.lo, c), zero),
                          ir3(ir, OP_WHERE, same, ir2(ir, OP_MOD, a.hi, c), top)};
}

static struct range absolute(struct ir *ir, struct range a)
{
    int zero = ir_const(ir, 0, (enum ir_type)ir->node[a.lo].type);
    int lo = ir2(ir, OP_MAX, ir2(ir, OP_MAX, a.lo, ir1(ir, OP_NEG, a.hi)), zero);
    return (struct range){lo, ir2(ir, OP_MAX, ir1(ir, OP_NEG, a.lo), a.hi)};
}

static struct range number_range(struct bounder *b, const struct ir_node *n, const struct range *a)
{
    struct ir *ir = b->ir;
    switch ((enum ir_op)n->op) {
    case OP_ADD:
    case OP_MIN:
    case OP_MAX:
        return make_range(ir, (enum ir_op)n->op, a[0].lo, a[1].lo, a[0].hi, a[1].hi);
    case OP_SUB:
        return make_range(ir, OP_SUB, a[0].lo, a[1].hi, a[0].hi, a[1].lo);
    case OP_NEG:
        return (struct range){ir1(ir, OP_NEG, a[0].hi), ir1(ir, OP_NEG, a[0].lo)};
    case OP_MUL:
        return product(ir, a[0], a[1]);
    case OP_IDIV:
        return positive_constant(ir, n->arg[1])
                   ? make_range(ir, OP_IDIV, a[0].lo, n->arg[1], a[0].hi, n->arg[1])
                   : UNKNOWN;
    case OP_MOD:
        return positive_constant(ir, n->arg[1]) ? modulo(ir, a[0], n->arg[1]) : UNKNOWN;
    case OP_ABS:
        return absolute(ir, a[0]);
    case OP_CLAMP:
        return (struct range){ir3(ir, OP_CLAMP, a[0].lo, a[1].lo, a[2].lo),
                              ir3(ir, OP_CLAMP, a[0].hi, a[1].hi, a[2].hi)};
    case OP_F32:
    case OP_I32:
    case OP_FLOOR:
    case OP_CEIL:
    case OP_RELU: /* monotone, and exact in the kernel */
        return (struct range){ir1(ir, (enum ir_op)n->op, a[0].lo), ir1(ir, (enum ir_op)n->op, a[0].hi)};
    default:
        return UNKNOWN;
    }
}

/* where() of numbers: one branch where the condition is decided, both otherwise. */
static struct range choice(struct ir *ir, const struct range *a)
{
    int lo = ir3(ir, OP_WHERE, a[0].hi, ir2(ir, OP_MIN, a[1].lo, a[2].lo), a[2].lo);
    int hi = ir3(ir, OP_WHERE, a[0].hi, ir2(ir, OP_MAX, a[1].hi, a[2].hi), a[2].hi);
    return (struct range){ir3(ir, OP_WHERE, a[0].lo, a[1].lo, lo), ir3(ir, OP_WHERE, a[0].lo, a[1].hi, hi)};
}

static struct range comparison(struct ir *ir, enum ir_op op, struct range a, struct range b)
{
    switch (op) {
    case OP_LT:
    case OP_LE:
        return make_range(ir, op, a.hi, b.lo, a.lo, b.hi);
    case OP_GT:
    case OP_GE:
        return make_range(ir, op, a.lo, b.hi, a.hi, b.lo);
    default: { /* EQ; NE is its opposite */
        int certain = of_two(ir, OP_AND, OP_EQ, (int[4]){a.lo, b.hi, a.hi, b.lo});
        int possible = of_two(ir, OP_AND, OP_LE, (int[4]){a.lo, b.hi, b.lo, a.hi});
        if (op == OP_EQ)
            return (struct range){certain, possible};
        return (struct range){ir1(ir, OP_NOT, possible), ir1(ir, OP_NOT, certain)};
    }
    }
}

/* c & x | ~c & y */
static struct range choice_range(struct ir *ir, const struct range *a)
{
    int never = ir1(ir, OP_NOT, a[0].hi);
    int not_always = ir1(ir, OP_NOT, a[0].lo);
    int lo = of_two(ir, OP_OR, OP_AND, (int[4]){a[0].lo, a[1].lo, never, a[2].lo});
    int hi = of_two(ir, OP_OR, OP_AND, (int[4]){a[0].hi, a[1].hi, not_always, a[2].hi});
    return (struct range){lo, hi};
}

static struct range bool_range(struct bounder *b, const struct ir_node *n, const struct range *a)
{
    struct ir *ir = b->ir;
    switch ((enum ir_op)n->op) {
    case OP_AND:
    case OP_OR:
        return make_range(ir, (enum ir_op)n->op, a[0].lo, a[1].lo, a[0].hi, a[1].hi);
    case OP_NOT:
        return (struct range){ir1(ir, OP_NOT, a[0].hi), ir1(ir, OP_NOT, a[0].lo)};
    case OP_WHERE:
        return choice_range(ir, a);
    default:
        if (!bounded(a[0]) || !bounded(a[1]))
            return (struct range){ir_const(ir, 0, TYPE_BOOL), ir_const(ir, 1, TYPE_BOOL)};
        return comparison(ir, (enum ir_op)n->op, a[0], a[1]);
    }
}

static struct range node_range(struct bounder *b, int node)
{
    const struct ir_node n = b->ir->node[node]; /* a copy: the pool grows below */
    if (n.span == 0)
        return (struct range){node, node};
    struct range a[IR_MAX_ARGS] = {{0, 0}};
    bool all = true;
    for (int i = 0; i < n.n_args; i++) {
        a[i] = b->range[n.arg[i]];
        all &= bounded(a[i]);
        b->data[node] |= b->data[n.arg[i]];
    }
    if (n.op <= OP_LOAD)
        return leaf_range(b, node);
    if (n.type == TYPE_BOOL)
        return bool_range(b, &n, a);
    if (!all)
        return UNKNOWN;
    if (b->data[node])
        guard(b, &n, a);
    return n.op == OP_WHERE ? choice(b->ir, a) : number_range(b, &n, a);
}

static struct ir_fn build(struct ir *ir, bool reads)
{
    struct ir_fn bounds = {0};
    const bool has_rest = reads && ir->live_rest.n_roots > 0;
    const int root[2] = {ir->mask.root[0], has_rest ? ir->live_rest.root[0] : 0};
    const int last = root[0] > root[1] ? root[0] : root[1];
    struct bounder b = {.ir = ir, .reads = reads, .fits = -1};
    b.range = calloc((size_t)last + 1, sizeof *b.range);
    b.data = calloc((size_t)last + 1, sizeof *b.data);
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used);
    if (!b.range || !b.data || !used) {
        ir->failed = true;
    } else {
        ir_mark(ir, root, has_rest ? 2 : 1, used);
        for (int i = 0; i <= last; i++)
            if (used[i])
                b.range[i] = node_range(&b, i);
        bounds = (struct ir_fn){2, {b.range[root[0]].lo, b.range[root[0]].hi}};
        if (has_rest)
            bounds.root[bounds.n_roots++] = b.range[root[1]].lo;
        if (b.fits >= 0) {
            bounds.root[0] = ir2(ir, OP_AND, bounds.root[0], b.fits);
            bounds.root[1] = ir2(ir, OP_OR, bounds.root[1], ir1(ir, OP_NOT, b.fits));
            if (has_rest)
                bounds.root[2] = ir2(ir, OP_AND, bounds.root[2], b.fits);
        }
    }
    free(b.data);
    free(b.range);
    free(used);
    return bounds;
}

void bounds_build(struct ir *ir)
{
    ir->bounds = ir->mask.n_roots > 0 ? build(ir, false) : (struct ir_fn){0};
}

void bounds_build_reads(struct ir *ir)
{
    ir->n_reads = 0;
    ir->read_bounds = ir->mask.n_roots > 0 ? build(ir, true) : (struct ir_fn){0};
    if (ir->n_reads == 0)
        ir->read_bounds.n_roots = 0;
}

bool bounds_mask_reads_data(const struct ir *ir)
{
    if (ir->mask.n_roots == 0)
        return false;
    bool found = false;
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used);
    if (!used)
        return true;
    ir_mark(ir, ir->mask.root, 1, used);
    for (int i = 0; i < ir->n_nodes && !found; i++)
        found = used[i] && ir->node[i].op == OP_LOAD && ir->node[i].span != 0;
    free(used);
    return found;
}

enum tile_class bounds_class(const struct ir *ir, const struct tile_at *t)
{
    if (ir->mask.n_roots == 0)
        return TILE_ALL;
    if (!t->input && (ir_depends_on(ir, ir->bounds.root[0], OP_LOAD, -1) ||
                      ir_depends_on(ir, ir->bounds.root[1], OP_LOAD, -1) ||
                      ir_depends_on(ir, ir->bounds.root[0], OP_SCALAR, -1) ||
                      ir_depends_on(ir, ir->bounds.root[1], OP_SCALAR, -1)))
        return TILE_SOME;
    double corner_value[PARAM_TENSOR - PARAM_ROW0] = {
        (double)t->row0, (double)t->row1, (double)(t->row0 + t->q_start), (double)(t->row1 + t->q_start),
        (double)t->kv0,  (double)t->kv1};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 0};
    memcpy(env.at, t->at, sizeof env.at);
    for (int p = PARAM_ROW0; p < PARAM_TENSOR; p++)
        env.param[p] = &corner_value[p - PARAM_ROW0];
    for (int i = 0; t->input && i < MAX_INPUTS; i++)
        env.input[i] = t->input[i];
    enum tile_class result = TILE_SOME;
    if (eval_run(&env, ir->bounds.root, 2)) {
        if (env.value[ir->bounds.root[0]][0] != 0)
            result = TILE_ALL;
        else if (env.value[ir->bounds.root[1]][0] == 0)
            result = TILE_NONE;
    }
    eval_free(&env);
    return result;
}
