/*
 * make.c: operators become nodes, which are folded where all operands are constants, and typed, spanned and
 * phased as they are made. In: an op, operands of a pool. Out: a node of it, or why the types do not fit.
 */
#include "gen/ir/kind.h"
#include "gen/ir/pool.h"
#include "gen/ir/scalar.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------------- */

static const char *reduction_error(const struct ir *ir, enum ir_op op, int arg)
{
    uint8_t axis = ir_op_axis((int)op);
    if (ir->node[arg].type == TYPE_BOOL)
        return "takes a number, got a bool; use where(c, 1.0, 0.0)";
    if (ir->node[arg].span & axis)
        return NULL;
    if (axis == SPAN_KV && kinds[ir->kind].points)
        return "belongs in rowwise { ... }; in elementwise a result that lacks a dim of `over` is the sum "
               "along it";
    if (axis == SPAN_KV && (ir->node[arg].span & SPAN_DIM))
        return "runs along a row of scores; along the head dim write dimsum or dimmax";
    if (axis == SPAN_KV)
        return "value does not vary along the row (it is already one per row)";
    if (axis == SPAN_DIM)
        return "value does not vary along the head dim; dimsum and dimmax belong in query_mod, key_mod, "
               "value_mod and "
               "output_mod";
    return "value does not vary along the splits; splitmax and splitsum belong in combine";
}

/* Bits are those of integers; & | ~ also take bools, and then all of them. */
static const char *bits_error(const struct ir *ir, const struct op_row *row, const int *arg)
{
    bool logic = row->in == IN_L;
    int n_bools = 0;
    for (int i = 0; i < row->arity; i++) {
        n_bools += ir->node[arg[i]].type == TYPE_BOOL;
        if (ir->node[arg[i]].type == TYPE_F32)
            return logic ? "takes bools, such as lt(a, b), or integers; got a float: write i32(a)"
                         : "takes integers, got a float: write i32(a)";
    }
    if (n_bools > 0 && !logic)
        return "takes integers, got a bool; use where(c, 1, 0)";
    return n_bools > 0 && n_bools < row->arity
               ? "takes two bools or two integers, got one of each; use ne(a, 0) or where(c, 1, 0)"
               : NULL;
}

const char *ir_type_error(const struct ir *ir, enum ir_op op, const int *arg)
{
    const struct op_row *row = ir_op_row((int)op);
    if (ir_op_is_reduction((int)op))
        return reduction_error(ir, op, arg[0]);
    if (op == OP_F32 || op == OP_I32)
        return NULL;
    if (row->in == IN_I || row->in == IN_L)
        return bits_error(ir, row, arg);
    if (row->in == IN_P && ir->node[arg[1]].op != OP_RANK)
        return "takes a rank second, as in placed(v, rank(s)): no two elements may have one place";
    for (int i = 0; i < row->arity; i++) {
        bool is_bool = ir->node[arg[i]].type == TYPE_BOOL;
        bool want_bool = row->in == IN_C && i == 0;
        if (want_bool && !is_bool)
            return "takes a condition first, such as lt(a, b); got a number";
        if (!want_bool && is_bool)
            return "takes numbers, got a bool; use where(c, 1.0, 0.0)";
    }
    return NULL;
}

static bool wants_float(const struct ir *ir, enum ir_op op, const int *arg)
{
    const struct op_row *row = ir_op_row((int)op);
    if (row->in == IN_F || row->in == IN_P)
        return row->in == IN_F;
    int first = row->in == IN_C ? 1 : 0;
    bool any_float = false;
    for (int i = first; i < row->arity; i++)
        any_float |= ir->node[arg[i]].type == TYPE_F32;
    return any_float && op != OP_F32 && op != OP_I32;
}

static int to_float(struct ir *ir, int arg)
{
    if (ir->node[arg].type != TYPE_I32)
        return arg;
    return ir1(ir, OP_F32, arg);
}

static enum ir_type result_type(const struct ir *ir, const struct op_row *row, const int *arg)
{
    switch (row->out) {
    case OUT_F:
        return TYPE_F32;
    case OUT_I:
        return TYPE_I32;
    case OUT_B:
        return TYPE_BOOL;
    default:
        return (enum ir_type)ir->node[arg[row->in == IN_C ? 1 : 0]].type;
    }
}

/* ---- folding --------------------------------------------------------------------------------- */

static bool is_const(const struct ir *ir, int n, double value)
{
    return ir->node[n].op == OP_CONST && ir->node[n].value == value;
}

bool ir_f32_holds(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    const double size = fabs(n->value);
    return n->op != OP_CONST || n->type != TYPE_F32 || !isfinite(size) || size == 0 ||
           (size <= (double)FLT_MAX && size >= (double)FLT_MIN);
}

/* What leaves the other operand as it is: all bits of &, none of the others; -1 where there is none. */
static int simplify_bits(const struct ir *ir, enum ir_op op, const int *arg)
{
    const bool shift = op == OP_SHL || op == OP_SHR;
    const double all = ir->node[arg[0]].type == TYPE_BOOL ? 1 : -1;
    const double neutral = op == OP_AND ? all : 0;
    if (is_const(ir, arg[1], neutral))
        return arg[0];
    return !shift && is_const(ir, arg[0], neutral) ? arg[1] : -1;
}

/* Identities that hold for every operand, NaN and infinity included; -1 where none applies. */
static int simplify(const struct ir *ir, enum ir_op op, const int *arg)
{
    switch (op) {
    case OP_ADD:
        return ir->node[arg[0]].type == TYPE_I32 && is_const(ir, arg[1], 0)   ? arg[0]
               : ir->node[arg[0]].type == TYPE_I32 && is_const(ir, arg[0], 0) ? arg[1]
                                                                              : -1;
    case OP_SUB:
        return is_const(ir, arg[1], 0) ? arg[0] : -1;
    case OP_MUL:
        return is_const(ir, arg[1], 1) ? arg[0] : is_const(ir, arg[0], 1) ? arg[1] : -1;
    case OP_DIV:
        return is_const(ir, arg[1], 1) ? arg[0] : -1;
    case OP_F32:
        return ir->node[arg[0]].type == TYPE_F32 ? arg[0] : -1;
    case OP_I32:
        return ir->node[arg[0]].type == TYPE_I32 ? arg[0] : -1;
    case OP_WHERE:
        return ir->node[arg[0]].op == OP_CONST ? (ir->node[arg[0]].value != 0 ? arg[1] : arg[2])
               : arg[1] == arg[2]              ? arg[1]
                                               : -1;
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_SHL:
    case OP_SHR:
        return simplify_bits(ir, op, arg);
    default:
        return -1;
    }
}

static bool all_const(const struct ir *ir, const int *arg, int n)
{
    for (int i = 0; i < n; i++)
        if (ir->node[arg[i]].op != OP_CONST)
            return false;
    return true;
}

/* Constants fold where the result is a number of its type: a division of integers by zero is left to be
   reported with its line. */
static bool fold(const struct ir *ir, enum ir_op op, enum ir_type type, const int *arg, bool rounded,
                 double *out)
{
    if (ir_op_is_reduction((int)op) || ir_op_is_scan((int)op) ||
        !all_const(ir, arg, ir_op_row((int)op)->arity))
        return false;
    bool integers = ir->node[arg[0]].type == TYPE_I32;
    double v[IR_MAX_ARGS] = {0};
    for (int i = 0; i < ir_op_row((int)op)->arity; i++)
        v[i] = ir->node[arg[i]].rounded ? (double)(float)ir->node[arg[i]].value : ir->node[arg[i]].value;
    if (integers && (op == OP_IDIV || op == OP_MOD) && v[1] == 0)
        return false;
    *out = scalar_op(op, type, v);
    if (rounded && type == TYPE_F32)
        *out = (double)(float)*out;
    return true;
}

static int rounded_const(struct ir *ir, double value, enum ir_type type)
{
    struct ir_node n = ir_blank(OP_CONST, type, (struct ir_at){0, 0});
    n.value = isnan(value) ? (double)NAN : value;
    n.rounded = type == TYPE_F32;
    return ir_intern(ir, &n);
}

/* Of operands that have the operation's type. */
static int make(struct ir *ir, enum ir_op op, int *arg, struct ir_at at, bool rounded)
{
    const struct op_row *row = ir_op_row((int)op);
    int same = simplify(ir, op, arg);
    if (same >= 0)
        return same;
    enum ir_type type = result_type(ir, row, arg);
    double value;
    if (fold(ir, op, type, arg, rounded, &value))
        return rounded ? rounded_const(ir, value, type) : ir_const(ir, value, type);
    if ((row->flags & COMM) && arg[0] > arg[1]) {
        int swap = arg[0];
        arg[0] = arg[1];
        arg[1] = swap;
    }
    struct ir_node n = ir_blank(op, type, at);
    n.rounded = rounded && type == TYPE_F32;
    n.placed = !ir_op_is_reduction((int)op) && !ir_op_is_scan((int)op);
    for (int i = 0; i < row->arity; i++)
        ir_take_operand(ir, &n, arg[i]);
    if (ir_op_is_scan((int)op))
        n.span |= SPAN_Q | SPAN_KV; /* an element of its own, also of what is the same everywhere */
    if (ir_op_is_reduction((int)op)) {
        n.span &= (uint8_t)~ir_op_axis((int)op);
        n.phase++;
    }
    return ir_intern(ir, &n);
}

/* ---- what decides by positions ------------------------------------------------------------------ */

static bool steps(enum ir_op op)
{
    return op == OP_FLOOR || op == OP_CEIL || op == OP_IDIV || op == OP_MOD;
}

static bool decides(const struct ir *ir, enum ir_op op, const int *arg)
{
    const bool compares = op >= OP_LT && op <= OP_NE;
    return (compares || steps(op) || op == OP_I32) && ir->node[arg[0]].type == TYPE_F32;
}

bool ir_decides(const struct ir *ir, const struct ir_node *n)
{
    return n->n_args > 0 && decides(ir, (enum ir_op)n->op, n->arg);
}

/* Node i in its rounded form, from those of its operands. Integers and bools have been decided already. */
static int round_node(struct ir *ir, int i, const int *map)
{
    const struct ir_node n = ir->node[i];
    int arg[IR_MAX_ARGS] = {0};
    if (n.type != TYPE_F32 || n.rounded || n.op == OP_RANDOM) /* a multiple of 2^-24 below 1 */
        return i;
    if (n.n_args == 0) {
        struct ir_node leaf = n;
        leaf.rounded = true;
        return ir_intern(ir, &leaf);
    }
    for (int k = 0; k < n.n_args; k++)
        arg[k] = map[n.arg[k]];
    return n.op == OP_DETACH ? arg[0] : make(ir, (enum ir_op)n.op, arg, (struct ir_at){n.file, n.line}, true);
}

/* A placed value in f32, each of its operations rounded. */
static int rounded_form(struct ir *ir, int node)
{
    if (ir->node[node].rounded || ir->node[node].type != TYPE_F32)
        return node;
    int *map = malloc(((size_t)node + 1) * sizeof *map);
    bool *used = calloc((size_t)node + 1, sizeof *used);
    int result = node;
    if (map && used) {
        used[node] = true;
        for (int i = node; i >= 0; i--)
            for (int k = 0; used[i] && k < ir->node[i].n_args; k++)
                used[ir->node[i].arg[k]] = true;
        for (int i = 0; i <= node; i++)
            map[i] = used[i] ? round_node(ir, i, map) : i;
        result = map[node];
    } else {
        ir->failed = true;
    }
    free(map);
    free(used);
    return result;
}

/* A constant that f32 holds inexactly, so that a comparison with it depends on who rounds. */
static bool is_inexact(const struct ir_node *n)
{
    return n->op == OP_CONST && n->type == TYPE_F32 && (double)(float)n->value != n->value;
}

/* A constant or a number given at the launch is no position: beside data they stay what they are, and so do
   constants alone, which are folded. Between a given number and a constant f32 decides, as kernels have both
   in f32. */
static bool round_operands(struct ir *ir, int *arg, int n)
{
    bool position = false;
    bool given = false;
    bool inexact = false;
    bool all = true;
    for (int i = 0; i < n; i++) {
        const struct ir_node *operand = &ir->node[arg[i]];
        position |= operand->placed && operand->op != OP_CONST && operand->op != OP_SCALAR;
        given |= operand->op == OP_SCALAR;
        inexact |= is_inexact(operand);
        all &= operand->placed;
    }
    const bool any = position || (all && given && inexact);
    for (int i = 0; i < n && any; i++)
        arg[i] = ir->node[arg[i]].placed ? rounded_form(ir, arg[i]) : arg[i];
    return any && all;
}

int ir_make(struct ir *ir, enum ir_op op, const int *given, struct ir_at at)
{
    const struct op_row *row = ir_op_row((int)op);
    int arg[IR_MAX_ARGS] = {0};
    bool floats = wants_float(ir, op, given);
    for (int i = 0; i < row->arity; i++)
        arg[i] = floats && !(row->in == IN_C && i == 0) ? to_float(ir, given[i]) : given[i];
    const bool rounded =
        row->arity > 0 && !ir->estimates && decides(ir, op, arg) && round_operands(ir, arg, row->arity);
    return make(ir, op, arg, at, rounded);
}

int ir_again(struct ir *ir, const struct ir_node *n, const int *arg)
{
    const struct ir_at at = {n->file, n->line};
    int operand[IR_MAX_ARGS] = {0};
    bool placed = n->rounded;
    if (n->op == OP_LOAD)
        return ir_load(ir, n->index, arg, n->n_args, at);
    for (int k = 0; k < n->n_args; k++)
        placed &= ir->node[arg[k]].placed;
    if (!placed)
        return ir_make(ir, (enum ir_op)n->op, arg, at);
    for (int k = 0; k < n->n_args; k++)
        operand[k] = rounded_form(ir, arg[k]);
    return make(ir, (enum ir_op)n->op, operand, at, true);
}

static struct ir_at place_of(const struct ir *ir, int node)
{
    return (struct ir_at){ir->node[node].file, ir->node[node].line};
}

int ir1(struct ir *ir, enum ir_op op, int a)
{
    int arg[IR_MAX_ARGS] = {a};
    return ir_make(ir, op, arg, place_of(ir, a));
}

int ir2(struct ir *ir, enum ir_op op, int a, int b)
{
    int arg[IR_MAX_ARGS] = {a, b};
    return ir_make(ir, op, arg, place_of(ir, ir->node[a].line ? a : b));
}

int ir3(struct ir *ir, enum ir_op op, int a, int b, int c)
{
    int arg[IR_MAX_ARGS] = {a, b, c};
    return ir_make(ir, op, arg, place_of(ir, ir->node[a].line ? a : ir->node[b].line ? b : c));
}

int ir_reduce_sum(struct ir *ir, uint8_t axis, int a)
{
    enum ir_op op = axis == SPAN_KV ? OP_ROWSUM : axis == SPAN_DIM ? OP_DIMSUM : OP_SPLITSUM;
    return ir1(ir, op, a);
}
