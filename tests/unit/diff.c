/*
 * diff.c: every derivative against central differences of the evaluator, and the properties of the sweep
 * that single ops do not show: sharing, broadcasting, ties, places where a gradient stops.
 */
#include "check.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { N = 5, MAX_OPERANDS = IR_MAX_ARGS };
static const struct ir_at NOWHERE = {0, 0};

/* An IR whose leaves have values; arrays for those that vary along the axis. */
struct bench {
    struct ir *ir;
    struct eval_env env;
    double value[LEAF_COUNT][N];
    double index[N];
    uint32_t random;
};

static void bench_open(struct bench *b, uint8_t axis)
{
    memset(b, 0, sizeof *b);
    b->random = 12345;
    b->ir = ir_new();
    CHECK(b->ir != NULL);
    b->env.ir = b->ir;
    b->env.axis = axis;
    b->env.n = N;
    for (int i = 0; i < LEAF_COUNT; i++)
        b->env.param[i] = b->value[i];
    for (int i = 0; i < N; i++)
        b->index[i] = i;
    for (int i = 0; i < AT_COUNT; i++)
        b->env.at_axis[i] = b->index;
}

static void bench_close(struct bench *b)
{
    eval_free(&b->env);
    ir_free(b->ir);
}

static double uniform(struct bench *b, double lo, double hi)
{
    b->random = b->random * 1664525u + 1013904223u;
    return lo + (hi - lo) * ((double)(b->random >> 8) / 16777216.0);
}

static int param(struct bench *b, int leaf)
{
    return ir_param(b->ir, leaf, NOWHERE);
}

static double eval(struct bench *b, int node, int element)
{
    CHECK(eval_run(&b->env, &node, 1));
    return b->env.value[node][b->ir->node[node].span & b->env.axis ? element : 0];
}

/* <seed, root>, summed over the axis. */
static double objective(struct bench *b, int root, int seed)
{
    int both[2] = {root, seed};
    CHECK(eval_run(&b->env, both, 2));
    unsigned varies = (unsigned)(b->ir->node[root].span | b->ir->node[seed].span) & b->env.axis;
    double sum = 0;
    for (int j = 0; j < (varies ? N : 1); j++)
        sum += b->env.value[root][b->ir->node[root].span & b->env.axis ? j : 0] *
               b->env.value[seed][b->ir->node[seed].span & b->env.axis ? j : 0];
    return sum;
}

/* Node of the adjoint of a leaf, -1 where there is none. */
static int adjoint_of(struct bench *b, int root, int seed, int leaf)
{
    struct diff_result r;
    struct diag diag = {0};
    int found = -1;
    CHECK(diff(b->ir, &root, &seed, 1, &r, &diag));
    for (int i = 0; i < r.n; i++)
        if (r.item[i].leaf == leaf)
            found = r.item[i].adjoint;
    diff_free(&r);
    return found;
}

static double finite_difference(struct bench *b, int root, int seed, int leaf, int element)
{
    double *x = &b->value[b->ir->node[leaf].index][element];
    double at = *x;
    double h = 1e-6 * (1 + fabs(at));
    *x = at + h;
    double up = objective(b, root, seed);
    *x = at - h;
    double down = objective(b, root, seed);
    *x = at;
    return (up - down) / (2 * h);
}

/* The adjoint of a leaf, element by element, against central differences. */
static void check_gradient(struct bench *b, int root, int seed, int leaf)
{
    int adjoint = adjoint_of(b, root, seed, leaf);
    int n = b->ir->node[leaf].span & b->env.axis ? N : 1;
    for (int j = 0; j < n; j++) {
        double derived = adjoint >= 0 ? eval(b, adjoint, j) : 0;
        CHECK_CLOSE(derived, finite_difference(b, root, seed, leaf, j), 1e-7);
    }
}

/* ---- one op at a time -------------------------------------------------------------------------- */

static bool needs_positive(enum ir_op op)
{
    return op == OP_LOG || op == OP_LOG2 || op == OP_SQRT || op == OP_RSQRT || op == OP_POW;
}

static bool is_logic(enum ir_op op)
{
    return op == OP_AND || op == OP_OR || op == OP_NOT || op == OP_XOR;
}

/* An operand of the type that the op takes, made of a leaf. */
static int operand_of(struct ir *ir, enum ir_op op, int k, int leaf)
{
    if (is_logic(op) || (op == OP_WHERE && k == 0))
        return ir2(ir, OP_LT, leaf, ir_const(ir, 0.3, TYPE_F32));
    if ((op == OP_PLACED || op == OP_TAKEN) && k == 1)
        return ir1(ir, OP_RANK, leaf);
    return op == OP_SHL || op == OP_SHR || op == OP_RANDOM ? ir1(ir, OP_I32, leaf) : leaf;
}

static void check_scalar_op(enum ir_op op)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int leaf[MAX_OPERANDS];
    int arg[IR_MAX_ARGS] = {0};
    for (int k = 0; k < ir_op_arity((int)op); k++) {
        leaf[k] = param(&b, LEAF_STATE + k);
        arg[k] = operand_of(b.ir, op, k, leaf[k]);
    }
    int root = ir_make(b.ir, op, arg, NOWHERE);
    int seed = param(&b, LEAF_DFINAL);
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < ir_op_arity((int)op); k++)
            b.value[LEAF_STATE + k][0] = uniform(&b, needs_positive(op) ? 0.2 : -2.0, 2.0);
        if (op == OP_CLAMP) { /* lower bound below the upper one, most of the time */
            b.value[LEAF_STATE + 1][0] = uniform(&b, -1.5, 0.2);
            b.value[LEAF_STATE + 2][0] = uniform(&b, 0.1, 1.5);
        }
        b.value[LEAF_DFINAL][0] = uniform(&b, 0.5, 2.0);
        for (int k = 0; k < ir_op_arity((int)op); k++) {
            if (b.ir->node[root].type == TYPE_F32 && op != OP_DETACH && op != OP_RANDOM)
                check_gradient(&b, root, seed, leaf[k]);
            else
                CHECK_EQ(adjoint_of(&b, root, seed, leaf[k]), -1);
        }
    }
    bench_close(&b);
}

static void check_reduction(enum ir_op op)
{
    uint8_t axis = ir_op_axis((int)op);
    struct bench b;
    bench_open(&b, axis);
    int leaf = param(&b, axis == SPAN_KV ? LEAF_S : axis == SPAN_DIM ? LEAF_X : LEAF_SPLIT_STATE);
    int root = ir1(b.ir, op, leaf);
    for (int j = 0; j < N; j++)
        b.value[b.ir->node[leaf].index][j] = uniform(&b, -2, 2);
    b.value[LEAF_DFINAL][0] = 1.7;
    check_gradient(&b, root, param(&b, LEAF_DFINAL), leaf);
    bench_close(&b);
}

TEST(every_op_has_a_rule)
{
#define OP(id, spelling, arity, in, out, cuda, flags) CHECK(diff_has_rule(OP_##id));
#include "gen/ir/ops.def"
#undef OP
    CHECK(!diff_has_rule(OP_COUNT));
}

TEST(every_op_against_finite_differences)
{
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++) {
        if (ir_op_is_reduction(op))
            check_reduction((enum ir_op)op);
        else
            check_scalar_op((enum ir_op)op);
    }
}

TEST(constant_exponents)
{
    static const double exponent[] = {0, 1, 2, 3, -1, 0.5, 2.5};
    static const double x[] = {-1.5, 0.7, 0.0};
    for (size_t e = 0; e < sizeof exponent / sizeof exponent[0]; e++) {
        for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
            bool whole = exponent[e] == floor(exponent[e]);
            if ((x[i] < 0 && !whole) || (x[i] == 0 && (!whole || exponent[e] < 0)))
                continue;
            struct bench b;
            bench_open(&b, SPAN_KV);
            int leaf = param(&b, LEAF_STATE);
            int root = ir2(b.ir, OP_POW, leaf, ir_const(b.ir, exponent[e], TYPE_F32));
            b.value[LEAF_STATE][0] = x[i];
            b.value[LEAF_DFINAL][0] = 1;
            check_gradient(&b, root, param(&b, LEAF_DFINAL), leaf);
            bench_close(&b);
        }
    }
}

/* ---- conventions where the derivative jumps ---------------------------------------------------- */

static double slope_at(enum ir_op op, double x)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int leaf = param(&b, LEAF_STATE);
    int arg[IR_MAX_ARGS] = {leaf, ir_const(b.ir, -1, TYPE_F32), ir_const(b.ir, 1, TYPE_F32)};
    int root = ir_make(b.ir, op, arg, NOWHERE);
    b.value[LEAF_STATE][0] = x;
    b.value[LEAF_DFINAL][0] = 1;
    double slope = eval(&b, adjoint_of(&b, root, param(&b, LEAF_DFINAL), leaf), 0);
    bench_close(&b);
    return slope;
}

TEST(kinks)
{
    CHECK_CLOSE(slope_at(OP_RELU, 0), 0, 0);
    CHECK_CLOSE(slope_at(OP_ABS, 0), 0, 0);
    CHECK_CLOSE(slope_at(OP_MAX, -1), 0.5, 0);
    CHECK_CLOSE(slope_at(OP_MIN, -1), 0.5, 0);
    CHECK_CLOSE(slope_at(OP_CLAMP, -1), 1, 0);
    CHECK_CLOSE(slope_at(OP_CLAMP, 1), 1, 0);
    CHECK_CLOSE(slope_at(OP_CLAMP, 1.5), 0, 0);
}

/* The slope at operand k of three, of which one is not a number. */
static double slope_beside_nan(enum ir_op op, double a, double b_, double c, int k)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    const double value[IR_MAX_ARGS] = {a, b_, c};
    int leaf[IR_MAX_ARGS] = {0};
    for (int i = 0; i < 3; i++) {
        leaf[i] = param(&b, LEAF_STATE + i);
        b.value[LEAF_STATE + i][0] = value[i];
    }
    b.value[LEAF_DFINAL][0] = 1;
    const int root = ir_make(b.ir, op, leaf, NOWHERE);
    const double slope = eval(&b, adjoint_of(&b, root, param(&b, LEAF_DFINAL), leaf[k]), 0);
    bench_close(&b);
    return slope;
}

/* The number that comes out has all of the gradient, NaN has none. */
TEST(dropped_nan_leaves_the_gradient_to_the_number)
{
    const double nan = (double)NAN;
    for (int op = OP_MIN; op <= OP_MAX; op++)
        for (int k = 0; k < 2; k++) {
            CHECK_CLOSE(slope_beside_nan((enum ir_op)op, k ? nan : 3, k ? 3 : nan, 0, k), 1, 0);
            CHECK_CLOSE(slope_beside_nan((enum ir_op)op, k ? 3 : nan, k ? nan : 3, 0, k), 0, 0);
        }
    for (int k = 0; k < 3; k++) {
        CHECK_CLOSE(slope_beside_nan(OP_CLAMP, nan, -1, 1, k), k == 1, 0);
        CHECK_CLOSE(slope_beside_nan(OP_CLAMP, 0.5, nan, 1, k), k == 0, 0);
        CHECK_CLOSE(slope_beside_nan(OP_CLAMP, 0.5, -1, nan, k), k == 0, 0);
        CHECK_CLOSE(slope_beside_nan(OP_CLAMP, 1, 1, 0, k), k == 2, 0);
        CHECK_CLOSE(slope_beside_nan(OP_CLAMP, 3, 1, 1, k), k == 2, 0);
        CHECK_CLOSE(slope_beside_nan(OP_CLAMP, 0, 1, 1, k), k == 1, 0);
    }
}

TEST(equal_extrema_share)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    static const double s[N] = {3, 1, 3, 0, 3};
    memcpy(b.value[LEAF_S], s, sizeof s);
    b.value[LEAF_DFINAL][0] = 6;
    int leaf = param(&b, LEAF_S);
    int adjoint = adjoint_of(&b, ir1(b.ir, OP_ROWMAX, leaf), param(&b, LEAF_DFINAL), leaf);
    for (int j = 0; j < N; j++)
        CHECK_CLOSE(eval(&b, adjoint, j), s[j] == 3 ? 2 : 0, 1e-15);
    bench_close(&b);
}

TEST(maximum_of_a_value_with_itself)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int x = param(&b, LEAF_STATE);
    b.value[LEAF_STATE][0] = 0.4;
    b.value[LEAF_DFINAL][0] = 1;
    check_gradient(&b, ir2(b.ir, OP_MAX, x, x), param(&b, LEAF_DFINAL), x);
    bench_close(&b);
}

/* ---- sharing ----------------------------------------------------------------------------------- */

TEST(square_of_a_shared_double)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int x = param(&b, LEAF_STATE);
    int twice = ir2(b.ir, OP_MUL, ir_const(b.ir, 2, TYPE_F32), x);
    int adjoint = adjoint_of(&b, ir2(b.ir, OP_MUL, twice, twice), param(&b, LEAF_DFINAL), x);
    b.value[LEAF_STATE][0] = 3;
    b.value[LEAF_DFINAL][0] = 1;
    CHECK_CLOSE(eval(&b, adjoint, 0), 24, 1e-15); /* (2x)^2 = 4 x^2, slope 8x */
    bench_close(&b);
}

/* x -> x + sin(x), 40 times: 2^40 paths, but every node is visited once. */
TEST(deep_sharing_stays_small)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int x = param(&b, LEAF_STATE);
    int y = x;
    double value = 0.3;
    double slope = 1;
    for (int i = 0; i < 40; i++) {
        y = ir2(b.ir, OP_ADD, y, ir1(b.ir, OP_SIN, y));
        slope *= 1 + cos(value);
        value += sin(value);
    }
    b.value[LEAF_STATE][0] = 0.3;
    b.value[LEAF_DFINAL][0] = 1;
    int adjoint = adjoint_of(&b, y, param(&b, LEAF_DFINAL), x);
    CHECK_CLOSE(eval(&b, adjoint, 0), slope, 1e-12);
    CHECK(b.ir->n_nodes < 400);
    bench_close(&b);
}

/* ---- spans ------------------------------------------------------------------------------------- */

TEST(row_value_used_by_every_element)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int s = param(&b, LEAF_S);
    int c = param(&b, LEAF_STATE);
    for (int j = 0; j < N; j++) {
        b.value[LEAF_S][j] = uniform(&b, -1, 1);
        b.value[LEAF_DW][j] = uniform(&b, -1, 1);
    }
    b.value[LEAF_STATE][0] = 0.8;
    int root = ir2(b.ir, OP_ADD, ir2(b.ir, OP_MUL, c, s), ir1(b.ir, OP_EXP, c));
    check_gradient(&b, root, param(&b, LEAF_DW), c);
    check_gradient(&b, root, param(&b, LEAF_DW), s);
    bench_close(&b);
}

/* The contribution of s + c to c is the seed; where that is one per row, it counts once per element. */
TEST(constant_contribution_counts_the_elements)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int c = param(&b, LEAF_STATE);
    int root = ir2(b.ir, OP_ADD, param(&b, LEAF_S), c);
    b.value[LEAF_DFINAL][0] = 1.5;
    int adjoint = adjoint_of(&b, root, param(&b, LEAF_DFINAL), c);
    CHECK_CLOSE(eval(&b, adjoint, 0), N * 1.5, 1e-15);
    bench_close(&b);
}

/* Reductions of a value that does not vary, as passes make them: the sum is N times the value. */
TEST(reductions_of_a_row_value)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int c = param(&b, LEAF_STATE);
    int e = ir1(b.ir, OP_EXP, c);
    int root = ir2(b.ir, OP_MUL, ir_reduce_sum(b.ir, SPAN_KV, e), ir1(b.ir, OP_ROWMAX, e));
    b.value[LEAF_STATE][0] = 0.3;
    b.value[LEAF_DFINAL][0] = 1.5;
    CHECK_CLOSE(eval(&b, root, 0), N * exp(0.6), 1e-14);
    check_gradient(&b, root, param(&b, LEAF_DFINAL), c);
    bench_close(&b);
}

/* A weight that is the same for all keys: L = sum_j dw_j w. */
TEST(seed_varies_where_the_root_does_not)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int c = param(&b, LEAF_FINAL);
    b.value[LEAF_FINAL][0] = 0.6;
    for (int j = 0; j < N; j++)
        b.value[LEAF_DW][j] = uniform(&b, -1, 1);
    check_gradient(&b, ir2(b.ir, OP_MUL, c, c), param(&b, LEAF_DW), c);
    bench_close(&b);
}

TEST(softmax_of_a_row)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int s = param(&b, LEAF_S);
    int m = ir1(b.ir, OP_ROWMAX, s);
    int stop = ir1(b.ir, OP_DETACH, m);
    for (int j = 0; j < N; j++) {
        b.value[LEAF_S][j] = uniform(&b, -3, 3);
        b.value[LEAF_DW][j] = uniform(&b, -1, 1);
    }
    for (int detached = 0; detached < 2; detached++) { /* the maximum cancels: with and without a stop */
        int p = ir1(b.ir, OP_EXP, ir2(b.ir, OP_SUB, s, detached ? stop : m));
        check_gradient(&b, ir2(b.ir, OP_DIV, p, ir1(b.ir, OP_ROWSUM, p)), param(&b, LEAF_DW), s);
    }
    bench_close(&b);
}

/* ---- where gradients stop ---------------------------------------------------------------------- */

TEST(detach_stops)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    int x = param(&b, LEAF_STATE);
    b.value[LEAF_STATE][0] = 3;
    b.value[LEAF_DFINAL][0] = 1;
    int half = adjoint_of(&b, ir2(b.ir, OP_MUL, x, ir1(b.ir, OP_DETACH, x)), param(&b, LEAF_DFINAL), x);
    CHECK_CLOSE(eval(&b, half, 0), 3, 0);
    CHECK_EQ(adjoint_of(&b, ir1(b.ir, OP_DETACH, x), param(&b, LEAF_DFINAL), x), -1);
    bench_close(&b);
}

TEST(inputs_with_and_without_gradient)
{
    struct bench b;
    bench_open(&b, SPAN_KV);
    b.ir->n_inputs = 3;
    b.ir->input[0] = (struct input){.name = "table", .grad = true, .dtype = LATHE_F32, .n_dims = 1};
    b.ir->input[1] = (struct input){.name = "plain", .dtype = LATHE_F32, .n_dims = 1};
    b.ir->input[2] = (struct input){.name = "bias", .is_scalar = true, .grad = true, .dtype = LATHE_F32};
    int kv = ir_at_field(b.ir, AT_KV, NOWHERE);
    int h = ir_at_field(b.ir, AT_H, NOWHERE);
    int per_key = ir_load(b.ir, 0, &kv, 1, NOWHERE);
    int per_head = ir_load(b.ir, 0, &h, 1, NOWHERE);
    int plain = ir_load(b.ir, 1, &kv, 1, NOWHERE);
    int bias = ir_leaf(b.ir, OP_SCALAR, 2, TYPE_F32, 0, NOWHERE);
    int root = ir2(b.ir, OP_ADD, ir2(b.ir, OP_MUL, per_key, plain), ir2(b.ir, OP_MUL, per_head, bias));
    int seed = param(&b, LEAF_DW);
    CHECK_EQ(adjoint_of(&b, root, seed, plain), -1);
    int to_key = adjoint_of(&b, root, seed, per_key);
    int to_head = adjoint_of(&b, root, seed, per_head);
    int to_bias = adjoint_of(&b, root, seed, bias);
    CHECK(to_key >= 0 && to_head >= 0 && to_bias >= 0);
    CHECK_EQ(b.ir->node[to_key].span & SPAN_KV, SPAN_KV);
    CHECK_EQ(b.ir->node[to_head].span & SPAN_KV, 0); /* summed over the keys */
    CHECK_EQ(b.ir->node[to_bias].span & SPAN_KV, 0);
    bench_close(&b);
}
