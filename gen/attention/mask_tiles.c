/*
 * mask_tiles.c: what a mask does to a tile, by interval arithmetic on its IR: from the corners of a tile
 * to "certainly live everywhere" and "possibly live somewhere", as IR again, so that the host and the
 * emitted kernel compute the same thing. In: ir->mask. Out: ir->bounds. A value that cannot be bounded
 * (a read that varies with q or kv) makes a comparison undecided, never wrong.
 */
#include "gen/attention/lower.h"
#include "gen/attention/mask_tiles.h"
#include "gen/ir/eval.h"
#include "gen/ir/spec.h"

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
    double *most;        /* of every integer: its largest magnitude, where nothing wraps around */
    bool reads;          /* what the mask reads on a tile has bounds, too */
    const bool *same;    /* of every node: it has one value on the tile; NULL: nothing is known of that */
    int fits;            /* node: no integer can wrap around, no divisor be 0; -1: none can anyhow */
    int unbounded;       /* the first node without a range whose operands have one; -1: there is none */
    int open;            /* the one of which a comparison came out undecided; -1: none did */
};

/* What an integer can be: any number that is read, cast or given at the launch; a position or a length, which
   a launch on a GPU refuses beyond this. */
static const double ANY_INTEGER = 0x1p31;
static const double ANY_POSITION = 0x1p24;

static bool bounded(struct range r)
{
    return r.lo >= 0 && r.hi >= 0;
}

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
    if (!b->reads || n->op != OP_LOAD || n->type != TYPE_I32 || !one_axis ||
        ir->lowered.n_reads == MAX_MASK_READS)
        return UNKNOWN;
    int k = ir->lowered.n_reads++;
    ir->lowered.read[k] = node;
    return (struct range){corner(ir, LEAF_READ + 2 * k), corner(ir, LEAF_READ + 2 * k + 1)};
}

/* ---- integers that would wrap around --------------------------------------------------------------- */

/* The largest magnitude of an integer node, before it wraps around. */
static double most_of(const struct bounder *b, const struct ir_node *n)
{
    const double m0 = n->n_args > 0 ? b->most[n->arg[0]] : 0;
    const double m1 = n->n_args > 1 ? b->most[n->arg[1]] : 0;
    const double m2 = n->n_args > 2 ? b->most[n->arg[2]] : 0;
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return fabs(n->value);
    case OP_AT:
        return ANY_POSITION;
    case OP_ADD:
    case OP_SUB:
        return m0 + m1;
    case OP_MUL:
        return m0 * m1;
    case OP_NEG:
    case OP_ABS:
    case OP_IDIV:
        return m0;
    case OP_MOD:
        return m1;
    case OP_MIN:
    case OP_MAX:
        return fmax(m0, m1);
    case OP_CLAMP:
        return fmax(m0, fmax(m1, m2));
    case OP_WHERE:
        return fmax(m1, m2);
    default:
        return ANY_INTEGER;
    }
}

static void require(struct bounder *b, int condition)
{
    b->fits = b->fits < 0 ? condition : ir2(b->ir, OP_AND, b->fits, condition);
}

static int as_float(struct ir *ir, int integer)
{
    return ir1(ir, OP_F32, integer);
}

/* In f32 sums and products of integers are at most 384 off, just below 2^31. */
static int limit(struct ir *ir, double sign)
{
    return ir_const(ir, sign * (0x1p31 - 512), TYPE_F32);
}

static int magnitude(struct ir *ir, struct range r)
{
    const int low = ir1(ir, OP_ABS, as_float(ir, r.lo));
    return ir2(ir, OP_MAX, low, ir1(ir, OP_ABS, as_float(ir, r.hi)));
}

/* A number given at the launch may be anything, as the largest one for "no limit" or the least one for
   padding, and corners that wrap around would drop live tiles: such a tile is decided only where no pair of
   it can be beyond 2^31. */
static void guard(struct bounder *b, const struct ir_node *n, const struct range *a)
{
    struct ir *ir = b->ir;
    switch ((enum ir_op)n->op) {
    case OP_ADD:
    case OP_SUB: {
        const bool sum = n->op == OP_ADD;
        const int low = as_float(ir, sum ? a[1].lo : a[1].hi);
        const int high = as_float(ir, sum ? a[1].hi : a[1].lo);
        const int least = ir2(ir, (enum ir_op)n->op, as_float(ir, a[0].lo), low);
        const int most = ir2(ir, (enum ir_op)n->op, as_float(ir, a[0].hi), high);
        require(b, ir2(ir, OP_GE, least, limit(ir, -1)));
        require(b, ir2(ir, OP_LE, most, limit(ir, 1)));
        break;
    }
    case OP_MUL: {
        const int first = magnitude(ir, a[0]);
        require(b, ir2(ir, OP_LE, ir2(ir, OP_MUL, first, magnitude(ir, a[1])), limit(ir, 1)));
        break;
    }
    case OP_NEG:
    case OP_ABS:
    case OP_IDIV: /* by -1 */
        require(b, ir2(ir, OP_GT, a[0].lo, ir_const(ir, INT32_MIN, TYPE_I32)));
        break;
    default:
        break;
    }
}

static bool may_wrap(const struct bounder *b, const struct ir_node *n)
{
    if (n->type != TYPE_I32)
        return false;
    const struct ir_node *by = &b->ir->node[n->arg[n->n_args - 1]];
    const double most = most_of(b, n);
    switch ((enum ir_op)n->op) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
        return most > INT32_MAX;
    case OP_NEG:
    case OP_ABS:
        return most >= ANY_INTEGER;
    case OP_IDIV:
        return most >= ANY_INTEGER && (by->op != OP_CONST || by->value == -1);
    default:
        return false;
    }
}

/* Of an integer that is read by row and column, from the ends of its indices. */
static struct range box_range(struct bounder *b, int node, const struct range *a)
{
    struct ir *ir = b->ir;
    const struct ir_node n = ir->node[node];
    const int one = ir_const(ir, 1, TYPE_I32);
    int index[BOX_DIMS];
    if (!b->reads || n.type != TYPE_I32 || ir->lowered.n_boxes == MAX_MASK_BOXES)
        return UNKNOWN;
    for (int d = 0; d < n.n_args && d < BOX_DIMS; d++)
        if (!bounded(a[d]))
            return UNKNOWN;
    const int k = ir->lowered.n_boxes++;
    for (int d = 0; d < BOX_DIMS; d++) {
        const bool varies = d < n.n_args && a[d].lo != a[d].hi;
        ir->lowered.box[k].count[d] = varies ? ir2(ir, OP_ADD, ir2(ir, OP_SUB, a[d].hi, a[d].lo), one) : one;
        if (d < n.n_args)
            index[d] = varies ? ir2(ir, OP_ADD, a[d].lo, corner(ir, LEAF_PLACE + d)) : a[d].lo;
    }
    ir->lowered.box[k].load = ir_load(ir, n.index, index, n.n_args, (struct ir_at){n.file, n.line});
    return (struct range){corner(ir, LEAF_BOX + 2 * k), corner(ir, LEAF_BOX + 2 * k + 1)};
}

static struct range leaf_range(struct bounder *b, int node, const struct range *a)
{
    const struct ir_node *n = &b->ir->node[node];
    if (n->op == OP_LOAD && n->span == (SPAN_Q | SPAN_KV))
        return box_range(b, node, a);
    if (n->op != OP_AT)
        return read_range(b, node);
    switch (n->index) {
    case AT_Q:
        return (struct range){corner(b->ir, LEAF_Q0), corner(b->ir, LEAF_Q1)};
    case AT_ROW:
        return (struct range){corner(b->ir, LEAF_ROW0), corner(b->ir, LEAF_ROW1)};
    case AT_KV:
        return (struct range){corner(b->ir, LEAF_KV0), corner(b->ir, LEAF_KV1)};
    default:
        return UNKNOWN;
    }
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

static struct range ordered(struct ir *ir, int a, int b)
{
    const int low = ir2(ir, OP_MIN, a, b);
    return (struct range){low, ir2(ir, OP_MAX, a, b)};
}

/* A divisor that is certainly not 0: where it may be, the tile is not decided. */
static struct range divisor_range(struct bounder *b, struct range d)
{
    struct ir *ir = b->ir;
    const enum ir_type type = (enum ir_type)ir->node[d.lo].type;
    const int zero = ir_const(ir, 0, type);
    const int one = ir_const(ir, 1, type);
    const int above = ir2(ir, OP_GT, d.lo, zero);
    const int sure = ir2(ir, OP_OR, above, ir2(ir, OP_LT, d.hi, zero));
    require(b, sure);
    return (struct range){ir3(ir, OP_WHERE, sure, d.lo, one), ir3(ir, OP_WHERE, sure, d.hi, one)};
}

/* a // d never falls with a where d > 0, never rises where d < 0, and likewise with d by the sign of a: its
   ends are at corners. */
static struct range quotient(struct bounder *b, struct range a, struct range d)
{
    struct ir *ir = b->ir;
    if (d.lo != d.hi) {
        d = divisor_range(b, d);
        const struct range low = ordered(ir, ir2(ir, OP_IDIV, a.lo, d.lo), ir2(ir, OP_IDIV, a.lo, d.hi));
        const struct range high = ordered(ir, ir2(ir, OP_IDIV, a.hi, d.lo), ir2(ir, OP_IDIV, a.hi, d.hi));
        return (struct range){ir2(ir, OP_MIN, low.lo, high.lo), ir2(ir, OP_MAX, low.hi, high.hi)};
    }
    const int low = ir2(ir, OP_IDIV, a.lo, d.lo);
    const int high = ir2(ir, OP_IDIV, a.hi, d.lo);
    return positive_constant(ir, d.lo) ? (struct range){low, high} : ordered(ir, low, high);
}

/* What a remainder can be at all: it has the sign of its divisor, and is less. */
static struct range remainders(struct ir *ir, struct range d)
{
    const enum ir_type type = (enum ir_type)ir->node[d.lo].type;
    const int zero = ir_const(ir, 0, type);
    if (type != TYPE_I32)
        return (struct range){ir2(ir, OP_MIN, d.lo, zero), ir2(ir, OP_MAX, d.hi, zero)};
    const int one = ir_const(ir, 1, TYPE_I32);
    const int low = ir2(ir, OP_MIN, d.lo, ir_const(ir, -1, TYPE_I32));
    const int high = ir2(ir, OP_MAX, d.hi, one);
    return (struct range){ir2(ir, OP_ADD, low, one), ir2(ir, OP_SUB, high, one)};
}

/* a % d, exact where the range stays within one period of a d that is the same on the whole tile. */
static struct range modulo(struct bounder *b, struct range a, struct range d)
{
    struct ir *ir = b->ir;
    if (d.lo != d.hi)
        return remainders(ir, divisor_range(b, d));
    const int c = d.lo;
    const int same = of_two(ir, OP_EQ, OP_IDIV, (int[4]){a.lo, c, a.hi, c});
    const struct range all = remainders(ir, d);
    const int low = ir3(ir, OP_WHERE, same, ir2(ir, OP_MOD, a.lo, c), all.lo);
    return (struct range){low, ir3(ir, OP_WHERE, same, ir2(ir, OP_MOD, a.hi, c), all.hi)};
}

/* a & (2^k - 1) is a % 2^k. */
static struct range low_bits(struct bounder *b, const struct ir_node *n, const struct range *a)
{
    struct ir *ir = b->ir;
    for (int i = 0; i < 2; i++) {
        const struct ir_node c = ir->node[n->arg[i]];
        const uint32_t mask = c.op == OP_CONST && c.value >= 0 ? (uint32_t)c.value : 0;
        if (mask != 0 && (mask & (mask + 1)) == 0 && mask < INT32_MAX) {
            const int period = ir_const(ir, (double)mask + 1.0, TYPE_I32);
            return modulo(b, a[1 - i], (struct range){period, period});
        }
    }
    return UNKNOWN;
}

/* a >> k of no negative number is a // 2^k; of the others that are on the tile, anything below 2^(32 - k). */
static struct range shifted_down(struct ir *ir, struct range a, int by)
{
    const struct ir_node k = ir->node[by];
    if (k.op != OP_CONST || k.value < 1 || k.value > 31)
        return UNKNOWN;
    const int zero = ir_const(ir, 0, TYPE_I32);
    const int most = ir_const(ir, (double)(UINT32_MAX >> (int)k.value), TYPE_I32);
    const int positive = ir2(ir, OP_GE, a.lo, zero);
    const int lo = ir2(ir, OP_SHR, a.lo, by);
    const int hi = ir2(ir, OP_SHR, a.hi, by);
    return (struct range){ir3(ir, OP_WHERE, positive, lo, zero), ir3(ir, OP_WHERE, positive, hi, most)};
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
        return quotient(b, a[0], a[1]);
    case OP_MOD:
        return modulo(b, a[0], a[1]);
    case OP_AND:
        return low_bits(b, n, a);
    case OP_SHR:
        return shifted_down(ir, a[0], n->arg[1]);
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
    case OP_XOR: { /* a & ~b | ~a & b */
        const struct range either = {ir1(ir, OP_NOT, a[0].hi), ir1(ir, OP_NOT, a[0].lo)};
        const struct range other = {ir1(ir, OP_NOT, a[1].hi), ir1(ir, OP_NOT, a[1].lo)};
        return (struct range){of_two(ir, OP_OR, OP_AND, (int[4]){a[0].lo, other.lo, either.lo, a[1].lo}),
                              of_two(ir, OP_OR, OP_AND, (int[4]){a[0].hi, other.hi, either.hi, a[1].hi})};
    }
    case OP_WHERE:
        return choice_range(ir, a);
    default:
        if (!bounded(a[0]) || !bounded(a[1])) {
            b->open = b->open < 0 ? b->unbounded : b->open;
            return (struct range){ir_const(ir, 0, TYPE_BOOL), ir_const(ir, 1, TYPE_BOOL)};
        }
        return comparison(ir, (enum ir_op)n->op, a[0], a[1]);
    }
}

static struct range made_range(struct bounder *b, int node, const struct ir_node *n, const struct range *a)
{
    if (n->op <= OP_LOAD)
        return leaf_range(b, node, a);
    if (n->type == TYPE_BOOL)
        return bool_range(b, n, a);
    for (int i = 0; i < n->n_args; i++)
        if (!bounded(a[i]))
            return UNKNOWN;
    if (may_wrap(b, n)) {
        b->ir->estimates = true; /* with room for every rounding */
        guard(b, n, a);
        b->ir->estimates = false;
    }
    return n->op == OP_WHERE ? choice(b->ir, a) : number_range(b, n, a);
}

/* The value that a node has at the first row and key of the tile. */
static int at_corner(struct ir *ir, int node)
{
    const struct ir_at nowhere = {0, 0};
    const int from[3] = {ir_at_field(ir, AT_ROW, nowhere), ir_at_field(ir, AT_Q, nowhere),
                         ir_at_field(ir, AT_KV, nowhere)};
    const int to[3] = {corner(ir, LEAF_ROW0), corner(ir, LEAF_Q0), corner(ir, LEAF_KV0)};
    return ir_substitute(ir, node, from, to, 3);
}

static struct range node_range(struct bounder *b, int node)
{
    const struct ir_node n = b->ir->node[node]; /* a copy: the pool grows below */
    struct range a[IR_MAX_ARGS] = {{0, 0}};
    bool all = true;
    b->most[node] = fmin(most_of(b, &n), ANY_INTEGER);
    const bool known = n.op <= OP_LOAD || !mask_has_angle(b->ir, node);
    if (n.span == 0 && known)
        return (struct range){node, node};
    if (b->same && b->same[node] && known) {
        const int value = at_corner(b->ir, node);
        return (struct range){value, value};
    }
    for (int i = 0; i < n.n_args; i++) {
        a[i] = b->range[n.arg[i]];
        all &= bounded(a[i]);
    }
    const struct range r = made_range(b, node, &n, a);
    if (b->unbounded < 0 && !bounded(r) && (all || n.op == OP_LOAD))
        b->unbounded = node;
    return r;
}

static struct ir_fn finish(struct bounder *b, const int *root, int n_roots)
{
    struct ir *ir = b->ir;
    struct ir_fn bounds = {.n_roots = 2, .root = {b->range[root[0]].lo, b->range[root[0]].hi}};
    if (n_roots > 1)
        bounds.root[bounds.n_roots++] = b->range[root[1]].lo;
    if (b->fits >= 0) {
        bounds.root[0] = ir2(ir, OP_AND, bounds.root[0], b->fits);
        bounds.root[1] = ir2(ir, OP_OR, bounds.root[1], ir1(ir, OP_NOT, b->fits));
        if (n_roots > 1)
            bounds.root[2] = ir2(ir, OP_AND, bounds.root[2], b->fits);
    }
    return bounds;
}

/* same: as of struct bounder. *open: what leaves a comparison undecided; -1: nothing does. */
static struct ir_fn build(struct ir *ir, bool reads, const bool *same, int *open)
{
    struct ir_fn bounds = {0};
    const bool has_rest = reads && ir->lowered.keys_left.n_roots > 0;
    const int root[2] = {ir->mask.root[0], has_rest ? ir->lowered.keys_left.root[0] : 0};
    const int last = root[0] > root[1] ? root[0] : root[1];
    struct bounder b = {.ir = ir, .reads = reads, .same = same, .fits = -1, .unbounded = -1, .open = -1};
    b.range = calloc((size_t)last + 1, sizeof *b.range);
    b.most = calloc((size_t)last + 1, sizeof *b.most);
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used);
    if (!b.range || !b.most || !used) {
        ir->failed = true;
    } else {
        ir_mark(ir, root, has_rest ? 2 : 1, used);
        for (int i = 0; i <= last; i++)
            if (used[i])
                b.range[i] = node_range(&b, i);
        bounds = finish(&b, root, has_rest ? 2 : 1);
    }
    *open = b.open;
    free(b.most);
    free(b.range);
    free(used);
    return bounds;
}

void bounds_build(struct ir *ir)
{
    ir->open = -1;
    ir->bounds = ir->mask.n_roots > 0 ? build(ir, false, NULL, &ir->open) : (struct ir_fn){0};
}

void bounds_build_reads(struct ir *ir)
{
    ir->lowered.n_reads = ir->lowered.n_boxes = 0;
    ir->lowered.read_open = -1;
    ir->lowered.read_bounds =
        ir->mask.n_roots > 0 ? build(ir, true, NULL, &ir->lowered.read_open) : (struct ir_fn){0};
    if (ir->lowered.n_reads + ir->lowered.n_boxes == 0)
        ir->lowered.read_bounds.n_roots = 0;
}

struct ir_fn bounds_of_block(struct ir *ir, const bool *same)
{
    int open = -1;
    struct ir_fn bounds = build(ir, false, same, &open);
    if (bounds.n_roots > 1) /* said apart: the tile is asked about no more, however the mask is made of it */
        bounds.root[1] = ir2(ir, OP_AND, bounds.root[1], at_corner(ir, ir->lowered.keys_left.root[0]));
    return bounds;
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
    double corner_value[LEAF_TENSOR - LEAF_ROW0] = {
        (double)t->row0, (double)t->row1, (double)(t->row0 + t->q_start), (double)(t->row1 + t->q_start),
        (double)t->kv0,  (double)t->kv1};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 0};
    memcpy(env.at, t->at, sizeof env.at);
    for (int p = LEAF_ROW0; p < LEAF_TENSOR; p++)
        env.param[p] = &corner_value[p - LEAF_ROW0];
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
