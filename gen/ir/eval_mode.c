/*
 * eval_mode.c: what `lathe check` asks of an evaluation beside values in double precision. In: a node that
 * was just evaluated. Out: its values, rounded to f32, moved by a rounding, or held at the branch that
 * another evaluation took; and a note of the sides that comparisons took. env->mode owns nothing but its
 * tape's values.
 *
 * A result in f32 is judged by how far the double result moves when what is read moves by one rounding of
 * f32: so much is nobody's mistake. The angle of a sine and an exponent are rounded before they are used, in
 * any formula, so they move as well. Branches by data are held: where f32 and double decide otherwise, both
 * values are right. Branches by positions alone are the same in every evaluation (rounded, in ir.h).
 */
#include "gen/ir/eval.h"
#include "gen/ir/spec.h"

#include <math.h>
#include <stdlib.h>

static const double HALF_DIGIT = 0x1p-24; /* the largest error of a rounding to f32, as a part of the value */

bool eval_tape_run(struct eval_tape *tape, double *value, size_t n)
{
    if (tape->replay) {
        const size_t left = tape->n - tape->at;
        for (size_t j = 0; j < n && j < left; j++)
            value[j] = tape->value[tape->at++];
        return true;
    }
    if (tape->n + n > tape->capacity) {
        const size_t capacity = 2 * (tape->n + n);
        double *grown = realloc(tape->value, capacity * sizeof *grown);
        if (!grown)
            return false;
        tape->value = grown;
        tape->capacity = capacity;
    }
    for (size_t j = 0; j < n; j++)
        tape->value[tape->n++] = value[j];
    return true;
}

/* Between a half and one and a half, of either sign, by seed, node and element. No two elements move alike:
   what only their difference counts for would seem to stay. An odd seed takes the steps of the one before it
   back, as exponentials move further up than down. */
static double step_of(const struct eval_mode *mode, int node, size_t j)
{
    uint64_t x = mode->seed / 2 + (uint64_t)node * 0x9e3779b97f4a7c15u + (uint64_t)j * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    const double step = 0.5 + (double)(x >> 12) / 4503599627370496.0;
    return (x ^ mode->seed) & 1 ? step : -step;
}

static bool is_read(enum ir_op op)
{
    return op == OP_PARAM || op == OP_SCALAR || op == OP_LOAD;
}

/* Given from outside, or a constant: not a row state or a final, which another evaluation has computed. */
static bool is_given(const struct ir_node *n)
{
    const bool computed = n->op == OP_PARAM && n->index >= LEAF_STATE && n->index < LEAF_DW;
    return (is_read((enum ir_op)n->op) && !computed) || n->op == OP_CONST;
}

static bool is_branch(const struct ir_node *n)
{
    const bool steps = n->op == OP_FLOOR || n->op == OP_CEIL || n->op == OP_IDIV || n->op == OP_MOD;
    const bool compares = n->op >= OP_LT && n->op <= OP_NE;
    return compares || n->op == OP_I32 || (steps && n->type == TYPE_F32);
}

/* What a value of this op becomes where its operand moves by `part` of itself. */
static double moved_result(enum ir_op op, double value, const double *arg, double part)
{
    switch (op) {
    case OP_SIN:
        return value + part * arg[0] * cos(arg[0]);
    case OP_COS:
        return value - part * arg[0] * sin(arg[0]);
    case OP_EXP:
        return isfinite(arg[0]) ? value * (1.0 + part * arg[0]) : value;
    case OP_EXP2:
        return isfinite(arg[0]) ? value * (1.0 + part * arg[0] * log(2.0)) : value;
    case OP_POW:
        return arg[0] > 0.0 && isfinite(arg[1]) ? value * (1.0 + part * arg[1] * log(arg[0])) : value;
    default:
        return is_read(op) ? value * (1.0 + part) : value;
    }
}

static void move(const struct eval_env *env, int node, size_t count)
{
    const struct ir_node *n = &env->ir->node[node];
    double *out = env->value[node];
    for (size_t j = 0; j < count; j++) {
        double arg[2] = {0.0};
        for (int k = 0; k < n->n_args && k < 2 && !is_read((enum ir_op)n->op); k++)
            arg[k] = env->value[n->arg[k]][env->ir->node[n->arg[k]].span & env->axis ? j : 0];
        out[j] = moved_result((enum ir_op)n->op, out[j], arg, HALF_DIGIT * step_of(env->mode, node, j));
    }
}

static void watch(struct eval_mode *mode, int node, const double *value, size_t n)
{
    for (size_t j = 0; j < n; j++)
        mode->seen[node] |= value[j] != 0.0 ? SEEN_TRUE : SEEN_FALSE;
}

/* Element j of an operand, or all of them where the node reduces it: are they numbers, is one NaN? */
static void look_at(const struct eval_env *env, int node, int arg, size_t j, bool *numbers, bool *nan)
{
    const struct ir *ir = env->ir;
    const bool along = (ir->node[arg].span & env->axis) != 0;
    const bool all = along && (ir_op_is_reduction(ir->node[node].op) || ir_op_is_scan(ir->node[node].op));
    const size_t first = all || !along ? 0 : j;
    const size_t last = all ? (size_t)env->n : first + 1;
    for (size_t i = first; i < last; i++) {
        *numbers &= isfinite(env->value[arg][i]) != 0;
        *nan |= isnan(env->value[arg][i]) != 0;
    }
}

/* Does the node itself make an infinity or NaN? */
static bool is_cause(const struct eval_env *env, int node, size_t count)
{
    const struct ir_node *n = &env->ir->node[node];
    for (size_t j = 0; j < count && n->n_args > 0; j++) {
        const double value = env->value[node][j];
        bool numbers = true;
        bool nan = false;
        if (isfinite(value))
            continue;
        for (int k = 0; k < n->n_args; k++)
            look_at(env, node, n->arg[k], j, &numbers, &nan);
        if (isnan(value) ? !nan : numbers)
            return true;
    }
    return false;
}

static int own_line(const struct ir *ir, int node)
{
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    int line = 0;
    if (used)
        ir_mark(ir, &node, 1, used);
    for (int i = node; used && i >= 0 && line == 0; i--)
        if (used[i] && ir->node[i].line > 0 && ir->node[i].file == ir->n_files - 1)
            line = ir->node[i].line;
    free(used);
    return line;
}

static void note_cause(struct eval_env *env, int node)
{
    struct eval_mode *mode = env->mode;
    if (mode->bad_op < 0) {
        mode->bad_op = env->ir->node[node].op;
        mode->bad_line = own_line(env->ir, node);
    }
    if (mode->bad_node < 0 && mode->ir == env->ir)
        mode->bad_node = node;
}

bool eval_mode_apply(struct eval_env *env, int node, size_t count)
{
    struct eval_mode *mode = env->mode;
    const struct ir_node *n = &env->ir->node[node];
    double *out = env->value[node];
    if (n->type == TYPE_F32 && mode->precision != EVAL_DOUBLE && (is_given(n) || mode->precision == EVAL_F32))
        for (size_t j = 0; j < count; j++)
            out[j] = (double)(float)out[j];
    if (n->type == TYPE_F32 && !n->rounded && mode->precision == EVAL_MOVED)
        move(env, node, count);
    if (mode->precision == EVAL_F32 && n->type == TYPE_F32 && n->op != OP_LOAD &&
        (mode->bad_op < 0 || (mode->bad_node < 0 && mode->ir == env->ir)) && is_cause(env, node, count))
        note_cause(env, node);
    if (mode->branches && is_branch(n) && !eval_tape_run(mode->branches, out, count))
        return false;
    if (mode->seen && n->type == TYPE_BOOL && mode->ir == env->ir && node < mode->n_seen)
        watch(mode, node, out, count);
    return true;
}
