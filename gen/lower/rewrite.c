/*
 * rewrite.c: rewriting that every kind's lowering uses. In: immutable IR, a problem. Out: a clone, whose
 * formulas the kind rewrites one by one into what a kernel computes.
 *
 * Rewrites, each exact or a matter of the last bits of fp32 (what something decides by is left alone:
 * rounded, in ir.h):
 *  - constants of the problem, defaults of absent inputs, detach dropped;
 *  - f32(a + b) of positions becomes f32(a) + f32(b): both parts can be computed once per row or column, and
 *    the sum is rounded once either way, since positions stay below 2^24;
 *  - for 16-bit results, exp(x) becomes exp2(x log2 e), and in attention with x = a t + b (a, b constant
 *    along the row) exp2(t (a log2 e) + b log2 e): one multiply-add per element, unless mask values may come
 *    (has_mask_value);
 *  - scale qk + f t becomes scale (qk + (f / scale) t) under an exponential or a row maximum, which take the
 *    scale;
 *  - (qk scale) f becomes qk (f scale); a quotient by a constant is a product, for 16-bit results;
 *  - rowmax(a t + b) becomes a rowmax(t) + b where a > 0 for certain;
 *  - in rowwise rowsum(a t + u) becomes a rowsum(t) + rowsum(u), a constant along the row: sums need not wait
 * for other sums.
 */
#include "gen/lower/rewrite.h"
#include "gen/ir/kind.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/bind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LOG2_E = 1.4426950408889634;

/* ---- problem constants ----------------------------------------------------------------------- */

bool rewrite_leaves_out(const struct rewriter *r, const char *name)
{
    const int arg = lathe__arg_find(r->sig, name, 0);
    return arg >= 0 && !arg_in(r->problem->present, arg);
}

/* The constant that a leaf stands for, or -1. Scalars stay: their default is a launch parameter. */
static int constant_leaf(struct rewriter *r, const struct ir_node *n)
{
    if (n->op == OP_AT && (n->index == AT_D || n->index == AT_D_V))
        return ir_const(r->w, (double)r->problem->dim[n->index == AT_D ? SYM_D : SYM_D_V], TYPE_I32);
    if (n->op == OP_LOAD && rewrite_leaves_out(r, r->w->input[n->index].name))
        return ir_const(r->w, r->w->input[n->index].default_value, (enum ir_type)n->type);
    if (n->op == OP_PARAM && n->index >= LEAF_TENSOR && n->index < LEAF_READ) {
        const struct map_tensor *t = &r->w->maps.tensor[(n->index - LEAF_TENSOR) / 2];
        if (t->optional && rewrite_leaves_out(r, t->name))
            return ir_const(r->w, t->default_value, (enum ir_type)n->type);
    }
    return -1;
}

/* ---- indices as floats ----------------------------------------------------------------------- */

/* Sequences are no longer: launches refuse such positions. Rows, and dims that inputs name, may be more. */
static const double INDEX_MAX = 0x1p24;

/* A bound on |value| of an index expression; infinite where unknown. */
static double magnitude(const struct ir *w, int node, int depth)
{
    const struct ir_node *n = &w->node[node];
    double a = n->n_args > 0 && depth > 0 ? magnitude(w, n->arg[0], depth - 1) : 1e30;
    double b = n->n_args > 1 && depth > 0 ? magnitude(w, n->arg[1], depth - 1) : 1e30;
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return n->value < 0 ? -n->value : n->value;
    case OP_AT:
        return n->index < AT_FREE0 && (kinds[w->kind].tiles || kinds[w->kind].recurrent) ? INDEX_MAX : 1e30;
    case OP_NEG:
    case OP_ABS:
        return a;
    case OP_ADD:
    case OP_SUB:
        return a + b;
    case OP_MUL:
        return a * b;
    default:
        return 1e30;
    }
}

static int float_of_index(struct ir *w, int node)
{
    const struct ir_node n = w->node[node];
    bool sum = n.op == OP_ADD || n.op == OP_SUB;
    if (!sum || n.type != TYPE_I32 || magnitude(w, n.arg[0], 4) > INDEX_MAX ||
        magnitude(w, n.arg[1], 4) > INDEX_MAX)
        return ir1(w, OP_F32, node);
    return ir2(w, (enum ir_op)n.op, ir1(w, OP_F32, n.arg[0]), ir1(w, OP_F32, n.arg[1]));
}

/* ---- affine forms ---------------------------------------------------------------------------- */

/* value = factor * atom + offset, where factor and offset do not vary along the row. atom -1: factor unused.
 */
struct affine {
    int atom;
    int factor;
    int offset;
};

static struct affine atom_of(struct ir *w, int node)
{
    return (struct affine){node, ir_const(w, 1.0, TYPE_F32), ir_const(w, 0.0, TYPE_F32)};
}

static int add(struct ir *w, int a, int b)
{
    if (w->node[a].op == OP_CONST && w->node[a].value == 0)
        return b;
    if (w->node[b].op == OP_CONST && w->node[b].value == 0)
        return a;
    return ir2(w, OP_ADD, a, b);
}

static int times(struct ir *w, int a, int b)
{
    bool zero = (w->node[a].op == OP_CONST && w->node[a].value == 0) ||
                (w->node[b].op == OP_CONST && w->node[b].value == 0);
    return zero ? ir_const(w, 0.0, TYPE_F32) : ir2(w, OP_MUL, a, b);
}

static struct affine scaled(struct ir *w, struct affine f, int by)
{
    int factor = f.atom < 0 ? -1 : times(w, f.factor, by);
    return (struct affine){f.atom, factor, times(w, f.offset, by)};
}

/* Are its constants numbers of f32? Step by step, the formula's own are. */
static bool holds(const struct ir *w, struct affine f)
{
    return (f.atom < 0 || ir_f32_holds(w, f.factor)) && ir_f32_holds(w, f.offset);
}

static struct affine decompose(struct ir *w, int node, int depth);

static const double SCALE_MIN = 0x1p-20; /* smaller: what is divided by it could overflow */

static bool is_scaled_product(const struct ir *w, struct affine f)
{
    return w->node[f.atom].op == OP_PARAM && w->node[f.atom].index == LEAF_QK &&
           w->node[f.factor].op == OP_CONST && w->node[f.factor].value > SCALE_MIN;
}

/* scale qk + f t = scale (qk + (f / scale) t): the scale leaves the element, as it does without the other
 * term. */
static struct affine pull_scale(struct ir *w, struct affine product, struct affine other)
{
    int ratio = times(w, other.factor, ir_const(w, 1.0 / w->node[product.factor].value, TYPE_F32));
    int atom = ir2(w, OP_ADD, product.atom, times(w, other.atom, ratio));
    return (struct affine){atom, product.factor, add(w, product.offset, other.offset)};
}

static struct affine sum_of(struct ir *w, int node, struct affine a, struct affine b)
{
    if (a.atom >= 0 && b.atom >= 0 && a.atom != b.atom) {
        if (is_scaled_product(w, a))
            return pull_scale(w, a, b);
        return is_scaled_product(w, b) ? pull_scale(w, b, a) : atom_of(w, node);
    }
    int offset = add(w, a.offset, b.offset);
    if (a.atom < 0)
        return (struct affine){b.atom, b.factor, offset};
    if (b.atom < 0)
        return (struct affine){a.atom, a.factor, offset};
    return (struct affine){a.atom, add(w, a.factor, b.factor), offset};
}

/* at.q - at.kv and its like stay whole: apart, large positions would cancel only after they were rounded. */
static bool is_index_sum(const struct ir *w, const struct ir_node *n)
{
    return (n->op == OP_ADD || n->op == OP_SUB) && w->node[n->arg[0]].op == OP_F32 &&
           w->node[n->arg[1]].op == OP_F32;
}

static struct affine decompose_inner(struct ir *w, int node, int depth)
{
    const struct ir_node n = w->node[node];
    bool left_fixed = n.n_args > 0 && !(w->node[n.arg[0]].span & SPAN_KV);
    bool right_fixed = n.n_args > 1 && !(w->node[n.arg[1]].span & SPAN_KV);
    int minus_one = ir_const(w, -1.0, TYPE_F32);
    if (is_index_sum(w, &n))
        return atom_of(w, node);
    switch ((enum ir_op)n.op) {
    case OP_ADD:
        return sum_of(w, node, decompose(w, n.arg[0], depth), decompose(w, n.arg[1], depth));
    case OP_SUB:
        return sum_of(w, node, decompose(w, n.arg[0], depth),
                      scaled(w, decompose(w, n.arg[1], depth), minus_one));
    case OP_NEG:
        return scaled(w, decompose(w, n.arg[0], depth), minus_one);
    case OP_MUL:
        if (left_fixed || right_fixed)
            return scaled(w, decompose(w, n.arg[left_fixed ? 1 : 0], depth), n.arg[left_fixed ? 0 : 1]);
        return atom_of(w, node);
    case OP_DIV:
        if (right_fixed)
            return scaled(w, decompose(w, n.arg[0], depth),
                          ir2(w, OP_DIV, ir_const(w, 1.0, TYPE_F32), n.arg[1]));
        return atom_of(w, node);
    default:
        return atom_of(w, node);
    }
}

/* Depth-limited: specs are shallow, and an atom is always a correct answer. */
static struct affine decompose(struct ir *w, int node, int depth)
{
    if (!(w->node[node].span & SPAN_KV))
        return (struct affine){-1, -1, node};
    if (depth == 0 || w->node[node].type != TYPE_F32)
        return atom_of(w, node);
    const struct affine f = decompose_inner(w, node, depth - 1);
    return holds(w, f) ? f : atom_of(w, node);
}

/* Mask values such as -1e30 may stand below the exponential and the row maximum: as constants, or in inputs.
   A multiply-add of the two parts would leave the rounding error of their products, far beyond 1, where s - m
   is 0. */
static bool has_mask_value(const struct ir *w, int root)
{
    static const double LARGE = 4096.0; /* from here on the error moves a weight by more than f16 rounds it */
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool found = !used;
    if (used)
        ir_mark(w, &root, 1, used);
    for (int i = 0; i <= root && !found; i++) {
        const struct ir_node *n = &w->node[i];
        bool constant = n->op == OP_CONST && isfinite(n->value) && fabs(n->value) > LARGE;
        bool data = n->op == OP_LOAD || n->op == OP_SCALAR;
        found = used[i] && n->type == TYPE_F32 && (constant || data);
    }
    free(used);
    return found;
}

static bool surely_positive(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    return (n->op == OP_CONST && n->value > 0) || n->op == OP_EXP || n->op == OP_EXP2 || n->op == OP_RSQRT;
}

static int exponential(struct ir *w, int arg, double to_base2)
{
    int factor = ir_const(w, to_base2, TYPE_F32);
    const bool rows_wait_for_memory = !kinds[w->kind].tiles; /* and may hold mask values */
    if (!(w->node[arg].span & SPAN_KV) || rows_wait_for_memory || has_mask_value(w, arg))
        return ir1(w, OP_EXP2, times(w, arg, factor));
    struct affine f = scaled(w, decompose(w, arg, 8), factor);
    if (!holds(w, f))
        return ir1(w, OP_EXP2, times(w, arg, factor));
    return ir1(w, OP_EXP2, add(w, times(w, f.atom, f.factor), f.offset));
}

static int row_maximum(struct ir *w, int arg)
{
    if (has_mask_value(w, arg))
        return ir1(w, OP_ROWMAX, arg);
    struct affine f = decompose(w, arg, 8);
    if (f.atom < 0 || !surely_positive(w, f.factor))
        return ir1(w, OP_ROWMAX, arg);
    return add(w, times(w, ir1(w, OP_ROWMAX, f.atom), f.factor), f.offset);
}

/* (qk c) f = qk (f c) for a constant c: f may be shared by many pairs, qk is not. */
static int product(struct ir *w, int a, int b)
{
    for (int side = 0; side < 2; side++) {
        int left = side ? b : a;
        int right = side ? a : b;
        const struct ir_node n = w->node[left];
        bool scaled_qk = n.op == OP_MUL && w->node[n.arg[0]].op == OP_PARAM &&
                         w->node[n.arg[0]].index == LEAF_QK && w->node[n.arg[1]].op == OP_CONST;
        bool scaled_too = n.op == OP_MUL && w->node[n.arg[1]].op == OP_PARAM &&
                          w->node[n.arg[1]].index == LEAF_QK && w->node[n.arg[0]].op == OP_CONST;
        if (!scaled_qk && !scaled_too)
            continue;
        const int factor = ir2(w, OP_MUL, right, n.arg[scaled_qk ? 1 : 0]);
        if (ir_f32_holds(w, factor))
            return ir2(w, OP_MUL, n.arg[scaled_qk ? 0 : 1], factor);
    }
    return ir2(w, OP_MUL, a, b);
}

/* value = row * element, where row does not vary along the row; -1: 1. */
struct parts {
    int row;
    int element;
};

static int join(struct ir *w, int a, int b)
{
    return a < 0 ? b : b < 0 ? a : ir2(w, OP_MUL, a, b);
}

/* Depth-limited, as decompose. */
static struct parts split_product(struct ir *w, int node, int depth)
{
    const struct ir_node n = w->node[node];
    if (!(n.span & SPAN_KV))
        return (struct parts){node, -1};
    struct parts p = {-1, node};
    if (depth == 0 || (n.op != OP_MUL && n.op != OP_NEG && n.op != OP_DIV))
        return p;
    struct parts a = split_product(w, n.arg[0], depth - 1);
    if (n.op == OP_NEG)
        return (struct parts){join(w, a.row, ir_const(w, -1.0, TYPE_F32)), a.element};
    if (n.op == OP_MUL) {
        struct parts b = split_product(w, n.arg[1], depth - 1);
        const int row = join(w, a.row, b.row);
        return row < 0 || !ir_f32_holds(w, row) ? p : (struct parts){row, join(w, a.element, b.element)};
    }
    if (w->node[n.arg[1]].span & SPAN_KV)
        return p;
    int inverse = ir2(w, OP_DIV, ir_const(w, 1.0, TYPE_F32), n.arg[1]);
    const int row = join(w, a.row, inverse);
    return ir_f32_holds(w, row) ? (struct parts){row, a.element} : p;
}

/* Has a row factor that waits for another sum. */
static bool waits(const struct ir *w, struct parts p)
{
    return p.row >= 0 && p.element >= 0 && w->node[p.row].phase > 0;
}

/* The sum of a product or, where a term waits for another sum, of the terms. x - mean stays whole: its terms
   would cancel only after they were summed. */
static int row_sum(struct ir *w, int arg, int depth)
{
    struct parts p = split_product(w, arg, 8);
    if (p.row >= 0 && p.element >= 0)
        return ir2(w, OP_MUL, p.row,
                   depth > 0 ? row_sum(w, p.element, depth - 1) : ir1(w, OP_ROWSUM, p.element));
    const struct ir_node n = w->node[arg];
    if (depth == 0 || (n.op != OP_ADD && n.op != OP_SUB))
        return ir1(w, OP_ROWSUM, arg);
    struct parts a = split_product(w, n.arg[0], 8);
    struct parts b = split_product(w, n.arg[1], 8);
    if (a.element < 0 || b.element < 0 || !(waits(w, a) || waits(w, b)))
        return ir1(w, OP_ROWSUM, arg);
    int left = row_sum(w, n.arg[0], depth - 1);
    return ir2(w, (enum ir_op)n.op, left, row_sum(w, n.arg[1], depth - 1));
}

/* By a constant, or by what all pairs or elements of a row share: times its inverse, which is no worse than
   the hardware's division. */
static int quotient(struct ir *w, int a, int b)
{
    const struct ir_node *n = &w->node[b];
    const double inverse = n->op == OP_CONST ? 1.0 / n->value : 0;
    const bool shared = !kinds[w->kind].points && n->op != OP_CONST && !(n->span & SPAN_KV);
    if (shared && (w->node[a].span & SPAN_KV))
        return product(w, a, ir2(w, OP_DIV, ir_const(w, 1, TYPE_F32), b));
    const bool normal = fabs(inverse) > 1e-30 && fabs(inverse) < 1e30;
    return normal ? product(w, a, ir_const(w, inverse, TYPE_F32)) : ir2(w, OP_DIV, a, b);
}

static int logistic(struct ir *w, int x)
{
    const int one = ir_const(w, 1, TYPE_F32);
    return ir2(w, OP_DIV, one, ir2(w, OP_ADD, one, exponential(w, x, -LOG2_E)));
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Of a map, x / f32(k), x made of operands that vary with a dim that k does not vary with: one reciprocal
 * serves many x. Of an integer it neither overflows nor vanishes. */
static bool shares_divisor(const struct ir *w, int dividend, int divisor)
{
    return kinds[w->kind].points && w->node[divisor].op == OP_F32 &&
           ir_depends_on(w, dividend, OP_PARAM, -1) && (w->node[dividend].span & ~w->node[divisor].span) != 0;
}

static int rewrite_op(struct rewriter *r, const struct ir_node *n, const int *arg)
{
    struct ir *w = r->w;
    const bool tiles = kinds[w->kind].tiles;
    if (n->rounded)
        return ir_again(w, n, arg);
    switch ((enum ir_op)n->op) {
    case OP_DETACH:
        return arg[0];
    case OP_F32: /* dims of a map may be longer than 2^24 */
        return kinds[w->kind].points ? ir1(w, OP_F32, arg[0]) : float_of_index(w, arg[0]);
    case OP_EXP:
        return r->exact ? ir1(w, OP_EXP, arg[0]) : exponential(w, arg[0], LOG2_E);
    case OP_EXP2:
        return r->exact ? ir1(w, OP_EXP2, arg[0]) : exponential(w, arg[0], 1.0);
    case OP_DIV:
        return shares_divisor(w, arg[0], arg[1])
                   ? ir2(w, OP_MUL, arg[0], ir2(w, OP_DIV, ir_const(w, 1.0, TYPE_F32), arg[1]))
               : r->exact ? ir2(w, OP_DIV, arg[0], arg[1])
                          : quotient(w, arg[0], arg[1]);
    case OP_SIGMOID: /* 1 / (1 + exp(-x)) */
        return r->exact || !tiles ? ir1(w, OP_SIGMOID, arg[0]) : logistic(w, arg[0]);
    case OP_MUL:
        return n->type == TYPE_F32 ? product(w, arg[0], arg[1]) : ir2(w, OP_MUL, arg[0], arg[1]);
    case OP_ROWMAX:
        return tiles ? row_maximum(w, arg[0]) : ir1(w, OP_ROWMAX, arg[0]);
    case OP_ROWSUM:
        return tiles ? ir1(w, OP_ROWSUM, arg[0]) : row_sum(w, arg[0], 8);
    default:
        return ir_again(w, n, arg);
    }
}

int rewrite_node(struct rewriter *r, int root, int s)
{
    bool *used = calloc((size_t)r->w->n_nodes, sizeof *used);
    int *map = calloc((size_t)root + 1, sizeof *map);
    int result = root;
    if (!used || !map) {
        r->w->failed = true;
    } else {
        ir_mark(r->w, &root, 1, used);
        for (int i = 0; i <= root; i++) {
            const struct ir_node n = r->w->node[i];
            int arg[IR_MAX_ARGS] = {0};
            for (int k = 0; k < n.n_args; k++)
                arg[k] = map[n.arg[k]];
            int leaf = used[i] ? constant_leaf(r, &n) : i;
            if (leaf >= 0)
                map[i] = leaf;
            else if (n.op == OP_PARAM && n.index == LEAF_S && s >= 0)
                map[i] = s;
            else
                map[i] = n.n_args == 0 ? i : rewrite_op(r, &n, arg);
        }
        result = map[root];
    }
    free(used);
    free(map);
    return result;
}

void rewrite_fn(struct rewriter *r, struct ir_fn *fn, int s)
{
    for (int i = 0; i < fn->n_roots; i++)
        fn->root[i] = rewrite_node(r, fn->root[i], s);
}

/* ---- the doors ------------------------------------------------------------------------------- */

bool lower_is_fast(const struct ir *ir, const struct signature *sig, const struct problem *problem)
{
    if (!kinds[ir->kind].points)
        return problem->dtype[DTYPE_USUAL] != LATHE_F32;
    bool narrow = false;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        const int arg = lathe__arg_find(sig, t->name, 0);
        if (t->use == USE_READ || arg < 0 || (t->alias < 0 && !arg_in(problem->present, arg)))
            continue;
        const lathe_dtype dtype = (lathe_dtype)problem->arg_dtype[arg];
        if (t->use == USE_STORE && dtype == LATHE_F32)
            return false;
        narrow |= dtype == LATHE_F16 || dtype == LATHE_BF16;
    }
    return narrow;
}

bool rewriter_open(struct rewriter *r, const struct ir *ir, const struct signature *sig,
                   const struct problem *problem)
{
    *r = (struct rewriter){.w = ir_clone(ir), .sig = sig, .problem = problem};
    r->exact = !lower_is_fast(ir, sig, problem);
    return r->w != NULL;
}

lathe_status lower_done(struct ir **w)
{
    if (!*w || !(*w)->failed)
        return *w ? LATHE_OK : LATHE_MEMORY;
    const bool full = (*w)->n_nodes >= IR_MAX_NODES;
    ir_free(*w);
    *w = NULL;
    return full ? LATHE_UNSUPPORTED : LATHE_MEMORY;
}

lathe_status rewriter_close(struct rewriter *r, struct ir **out)
{
    *out = r->w;
    r->w = NULL;
    return lower_done(out);
}
