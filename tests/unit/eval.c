/*
 * eval.c: scalar ops against formulas in long double, written another way than the evaluator where there
 * is one; evaluation over an axis against sums by hand; errors by their text. IR is built directly with
 * ir_make, without the spec loader. Each test frees what it makes.
 */
#include "check.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scalar ops ------------------------------------------------------------------------------ */

/* The op by another formula; false: no formula here for this op. */
static bool unary_formula(int op, long double x, long double *out)
{
    switch (op) {
    case OP_NEG:
        *out = 0.0L - x;
        return true;
    case OP_EXP:
        *out = expl(x);
        return true;
    case OP_EXP2:
        *out = powl(2.0L, x);
        return true;
    case OP_LOG:
        *out = logl(x);
        return true;
    case OP_LOG2:
        *out = logl(x) / logl(2.0L);
        return true;
    case OP_SQRT:
        *out = sqrtl(x);
        return true;
    case OP_RSQRT:
        *out = powl(x, -0.5L);
        return true;
    case OP_SIN:
        *out = sinl(x);
        return true;
    case OP_COS:
        *out = cosl(x);
        return true;
    case OP_TANH:
        *out = 1.0L - 2.0L / (expl(2.0L * x) + 1.0L);
        return true;
    case OP_SIGMOID:
        *out = 0.5L + 0.5L * tanhl(x / 2.0L);
        return true;
    case OP_SILU:
        *out = x / (1.0L + expl(-x));
        return true;
    case OP_RELU:
        *out = (x + fabsl(x)) / 2.0L;
        return true;
    case OP_ERF:
        *out = 1.0L - erfcl(x);
        return true;
    case OP_NORMAL:
        *out = (1.0L + erfl(x / sqrtl(2.0L))) / 2.0L;
        return true;
    case OP_GELU:
        *out = x * (1.0L + erfl(x / sqrtl(2.0L))) / 2.0L;
        return true;
    case OP_ABS:
        *out = sqrtl(x * x);
        return true;
    case OP_FLOOR:
        *out = x < truncl(x) ? truncl(x) - 1.0L : truncl(x);
        return true;
    case OP_CEIL:
        *out = x > truncl(x) ? truncl(x) + 1.0L : truncl(x);
        return true;
    case OP_F32:
        *out = x;
        return true;
    case OP_DETACH:
        *out = x;
        return true;
    case OP_I32:
        *out = (long double)(int)x;
        return true;
    case OP_NOT:
        *out = x == 0.0L ? 1.0L : 0.0L;
        return true;
    default:
        return false;
    }
}

static bool binary_formula(int op, long double a, long double b, long double *out)
{
    switch (op) {
    case OP_ADD:
        *out = b + a;
        return true;
    case OP_SUB:
        *out = a + -b;
        return true;
    case OP_MUL:
        *out = b * a;
        return true;
    case OP_DIV:
        *out = a / b;
        return true;
    case OP_IDIV:
        *out = floorl(a / b);
        return true;
    case OP_MOD:
        *out = a - b * floorl(a / b);
        return true;
    case OP_POW:
        *out = powl(a, b);
        return true;
    case OP_MIN:
        *out = a < b ? a : b;
        return true;
    case OP_MAX:
        *out = a < b ? b : a;
        return true;
    case OP_LT:
        *out = b > a ? 1.0L : 0.0L;
        return true;
    case OP_LE:
        *out = b >= a ? 1.0L : 0.0L;
        return true;
    case OP_GT:
        *out = b < a ? 1.0L : 0.0L;
        return true;
    case OP_GE:
        *out = b <= a ? 1.0L : 0.0L;
        return true;
    case OP_EQ:
        *out = a - b == 0.0L ? 1.0L : 0.0L;
        return true;
    case OP_NE:
        *out = a - b == 0.0L ? 0.0L : 1.0L;
        return true;
    case OP_AND:
        *out = (a != 0.0L) * (b != 0.0L);
        return true;
    case OP_OR:
        *out = (a != 0.0L) + (b != 0.0L) > 0 ? 1.0L : 0.0L;
        return true;
    case OP_XOR:
        *out = (a != 0.0L) + (b != 0.0L) == 1 ? 1.0L : 0.0L;
        return true;
    default:
        return false;
    }
}

static bool ternary_formula(int op, long double a, long double b, long double c, long double *out)
{
    switch (op) {
    case OP_WHERE:
        *out = a == 0.0L ? c : b;
        return true;
    case OP_CLAMP:
        *out = a > c ? c : a < b ? b : a;
        return true; /* b <= c */
    default:
        return false;
    }
}

static const double VALUES[] = {0.0,
                                1.0,
                                -1.0,
                                0.5,
                                -0.5,
                                2.0,
                                -2.0,
                                0.1,
                                -0.1,
                                1.5,
                                -1.5,
                                2.5,
                                3.0,
                                -3.0,
                                0.75,
                                -0.75,
                                7.0,
                                -7.0,
                                10.0,
                                -10.0,
                                1e-3,
                                -1e-3,
                                1e-8,
                                -1e-8,
                                6.25,
                                -6.25,
                                20.0,
                                -20.0,
                                3.14159265358979,
                                0.693147180559945,
                                30.5,
                                -30.5,
                                100.0,
                                -100.0};
enum { N_VALUES = sizeof VALUES / sizeof VALUES[0] };

static enum ir_type result_type(int op)
{
    if (op == OP_I32)
        return TYPE_I32;
    return (op >= OP_LT && op <= OP_NE) || (op >= OP_AND && op <= OP_XOR) ? TYPE_BOOL : TYPE_F32;
}

static void compare(int op, const double *arg, long double expected)
{
    const double given = scalar_op((enum ir_op)op, result_type(op), arg);
    if (isnan(expected))
        CHECK(isnan(given));
    else
        CHECK_CLOSE(given, (double)expected, 2e-15);
}

static void check_op(int op)
{
    for (int i = 0; i < N_VALUES; i++) {
        long double expected = 0.0L;
        double arg[3] = {VALUES[i]};
        if (ir_op_arity(op) == 1) {
            CHECK(unary_formula(op, (long double)arg[0], &expected));
            compare(op, arg, expected);
        }
        for (int j = 0; j < N_VALUES && ir_op_arity(op) == 2; j++) {
            arg[1] = VALUES[j];
            if ((op == OP_IDIV || op == OP_MOD || op == OP_DIV) && arg[1] == 0.0)
                continue;
            if ((op == OP_IDIV || op == OP_MOD) && fabs(arg[0] / arg[1]) > 1e6)
                continue; /* the formula for % loses digits */
            CHECK(binary_formula(op, (long double)arg[0], (long double)arg[1], &expected));
            compare(op, arg, expected);
        }
        for (int j = 0; j < N_VALUES && ir_op_arity(op) == 3; j++) {
            arg[1] = -fabs(VALUES[j]);
            arg[2] = fabs(VALUES[(j + i) % N_VALUES]);
            CHECK(ternary_formula(op, (long double)arg[0], (long double)arg[1], (long double)arg[2],
                                  &expected));
            compare(op, arg, expected);
        }
    }
}

/* Walks the table: an op without a formula above fails. Those of bits are below, random() is in random.c. */
TEST(every_op_has_its_value)
{
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++)
        if (!ir_op_is_reduction(op) && !ir_op_is_scan(op) && op != OP_SHL && op != OP_SHR && op != OP_RANDOM)
            check_op(op);
}

static double one(enum ir_op op, double x)
{
    return scalar_op(op, TYPE_F32, &x);
}

static double two(enum ir_op op, enum ir_type type, double a, double b)
{
    const double arg[] = {a, b};
    return scalar_op(op, type, arg);
}

TEST(ops_at_infinity)
{
    const double inf = (double)INFINITY;
    CHECK(one(OP_EXP, -inf) == 0.0 && one(OP_EXP2, -inf) == 0.0 && isinf(one(OP_EXP, inf)));
    CHECK(one(OP_LOG, 0.0) == -inf && one(OP_LOG2, 0.0) == -inf && isnan(one(OP_LOG, -1.0)));
    CHECK(one(OP_SIGMOID, -inf) == 0.0 && one(OP_SIGMOID, inf) == 1.0);
    CHECK(one(OP_SIGMOID, -1000.0) == 0.0 && one(OP_SIGMOID, 1000.0) == 1.0);
    CHECK(one(OP_SILU, -inf) == 0.0 && one(OP_SILU, inf) == inf);
    CHECK(one(OP_GELU, -inf) == 0.0 && one(OP_GELU, inf) == inf);
    CHECK(one(OP_TANH, inf) == 1.0 && one(OP_ERF, -inf) == -1.0);
    CHECK(one(OP_RSQRT, 0.0) == inf && isnan(one(OP_SQRT, -1.0)));
    CHECK(two(OP_MAX, TYPE_F32, -inf, -3.0) == -3.0 && two(OP_MIN, TYPE_F32, inf, -3.0) == -3.0);
    CHECK(isnan(two(OP_SUB, TYPE_F32, -inf, -inf)) && isnan(one(OP_EXP, (double)NAN)));
    CHECK(two(OP_MAX, TYPE_F32, (double)NAN, 2.0) == 2.0); /* as fmaxf on the device */
    CHECK(two(OP_NE, TYPE_BOOL, (double)NAN, (double)NAN) == 1.0 && two(OP_EQ, TYPE_BOOL, inf, inf) == 1.0);
    CHECK(two(OP_DIV, TYPE_F32, 1.0, 0.0) == inf && isnan(two(OP_DIV, TYPE_F32, 0.0, 0.0)));
}

/* Tails where the direct formula loses every digit. */
TEST(small_tails_keep_their_digits)
{
    CHECK(fabs(one(OP_GELU, -10.0) / (double)(-10.0L * erfcl(10.0L / sqrtl(2.0L)) / 2.0L) - 1.0) < 1e-13);
    CHECK(fabs(one(OP_NORMAL, -10.0) / (double)(erfcl(10.0L / sqrtl(2.0L)) / 2.0L) - 1.0) < 1e-13);
    CHECK(fabs(one(OP_SIGMOID, -40.0) / (double)(1.0L / (1.0L + expl(40.0L))) - 1.0) < 1e-14);
}

TEST(integers_floor_as_in_lua)
{
    static const int table[][4] = {/* a, b, a // b, a % b */
                                   {7, 2, 3, 1},
                                   {-7, 2, -4, 1},
                                   {7, -2, -4, -1},
                                   {-7, -2, 3, -1},
                                   {6, 3, 2, 0},
                                   {-6, 3, -2, 0},
                                   {0, 5, 0, 0},
                                   {1, 10, 0, 1},
                                   {-1, 10, -1, 9},
                                   {1, -10, -1, -9},
                                   {INT32_MAX, -1, -INT32_MAX, 0},
                                   {INT32_MIN, 7, -306783379, 5}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CHECK(two(OP_IDIV, TYPE_I32, table[i][0], table[i][1]) == table[i][2]);
        CHECK(two(OP_MOD, TYPE_I32, table[i][0], table[i][1]) == table[i][3]);
    }
    CHECK(two(OP_IDIV, TYPE_F32, -7.5, 2.0) == -4.0 && two(OP_MOD, TYPE_F32, -7.5, 2.0) == 0.5);
    CHECK(!signbit(two(OP_MUL, TYPE_I32, 0.0, -3.0)));
}

/* The number from -2^31 to 2^31 - 1 that differs from v by a multiple of 2^32. */
static double modulo_2_32(int64_t v)
{
    const int64_t whole = INT64_C(1) << 32;
    const int64_t rest = ((v % whole) + whole) % whole;
    return (double)(rest >= whole / 2 ? rest - whole : rest);
}

/* Sums and products go on beyond 32 bits as they do in two's complement. */
TEST(integers_wrap_around)
{
    static const int32_t v[] = {
        0,      1,          -1,          2,         -2,  7,    -7,         46341,         65536,
        -32768, 123456,     INT32_MAX,   INT32_MIN, 31,  -365, 1640531527, INT32_MIN + 1, 99991,
        -65537, 1073741824, -1073741825, 16807,     255, -256};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const double a = v[i];
        CHECK(scalar_op(OP_NEG, TYPE_I32, &a) == modulo_2_32(-(int64_t)v[i]));
        CHECK(scalar_op(OP_ABS, TYPE_I32, &a) == modulo_2_32(llabs((int64_t)v[i])));
        for (size_t j = 0; j < sizeof v / sizeof *v; j++) {
            const int64_t x = v[i];
            const int64_t y = v[j];
            CHECK(two(OP_ADD, TYPE_I32, v[i], v[j]) == modulo_2_32(x + y));
            CHECK(two(OP_SUB, TYPE_I32, v[i], v[j]) == modulo_2_32(x - y));
            CHECK(two(OP_MUL, TYPE_I32, v[i], v[j]) == modulo_2_32(x * y));
        }
    }
    CHECK(two(OP_IDIV, TYPE_I32, INT32_MIN, -1) == INT32_MIN && two(OP_MOD, TYPE_I32, INT32_MIN, -1) == 0);
}

/* Bit by bit. */
TEST(bits_of_integers)
{
    static const int32_t v[] = {0,   1,          -1,          5,         -6,        255,
                                256, 0x12345678, -0x12345678, INT32_MAX, INT32_MIN, 1 << 30};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (size_t j = 0; j < sizeof v / sizeof *v; j++) {
            int64_t both = 0;
            int64_t any = 0;
            int64_t one_of = 0;
            int64_t none = 0;
            for (int k = 0; k < 32; k++) {
                const int64_t x = ((int64_t)v[i] >> k) & 1;
                const int64_t y = ((int64_t)v[j] >> k) & 1;
                both += (x + y == 2) * (INT64_C(1) << k);
                any += (x + y > 0) * (INT64_C(1) << k);
                one_of += (x + y == 1) * (INT64_C(1) << k);
                none += (1 - x) * (INT64_C(1) << k);
            }
            const double a = v[i];
            CHECK(two(OP_AND, TYPE_I32, v[i], v[j]) == modulo_2_32(both));
            CHECK(two(OP_OR, TYPE_I32, v[i], v[j]) == modulo_2_32(any));
            CHECK(two(OP_XOR, TYPE_I32, v[i], v[j]) == modulo_2_32(one_of));
            CHECK(scalar_op(OP_NOT, TYPE_I32, &a) == modulo_2_32(none));
        }
}

/* As products and quotients of the number without a sign by powers of two; a negative count is the other way.
 */
TEST(shifts_of_integers)
{
    static const int32_t v[] = {0, 1, -1, 5, -6, 255, 0x12345678, -0x12345678, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (int by = -40; by <= 40; by++) {
            const uint64_t whole = UINT64_C(1) << 32;
            uint64_t up = (uint64_t)((int64_t)v[i] + (v[i] < 0 ? (int64_t)whole : 0));
            uint64_t down = up;
            for (int k = 0; k < abs(by); k++) {
                up = up * 2 % whole;
                down /= 2;
            }
            CHECK(two(OP_SHL, TYPE_I32, v[i], by) == modulo_2_32((int64_t)(by >= 0 ? up : down)));
            CHECK(two(OP_SHR, TYPE_I32, v[i], by) == modulo_2_32((int64_t)(by >= 0 ? down : up)));
        }
    CHECK(two(OP_SHL, TYPE_I32, 1, INT32_MIN) == 0 && two(OP_SHR, TYPE_I32, 1, INT32_MIN) == 0);
}

TEST(integers_that_do_not_exist)
{
    CHECK(isnan(two(OP_IDIV, TYPE_I32, 7, 0)) && isnan(two(OP_MOD, TYPE_I32, 7, 0)));
    static const double cast[][2] = {{2.9, 2},          {-2.9, -2},         {-0.5, 0},
                                     {1e20, INT32_MAX}, {-1e20, INT32_MIN}, {2147483647.5, INT32_MAX}};
    for (size_t i = 0; i < sizeof cast / sizeof cast[0]; i++)
        CHECK(scalar_op(OP_I32, TYPE_I32, &cast[i][0]) == cast[i][1]);
    const double nan = (double)NAN;
    CHECK(scalar_op(OP_I32, TYPE_I32, &nan) == 0.0);
}

/* ---- evaluation over an axis ----------------------------------------------------------------- */

static const struct ir_at HERE = {0, 12};

static struct ir *new_ir(void)
{
    struct ir *ir = ir_new();
    CHECK(ir != NULL);
    ir->n_files = 1;
    strcpy(ir->file[0], "t.lua");
    return ir;
}

static int make(struct ir *ir, enum ir_op op, int a, int b, int c)
{
    const int arg[IR_MAX_ARGS] = {a, b, c};
    return ir_make(ir, op, arg, HERE);
}

static double at(const struct eval_env *env, int node, int j)
{
    return env->value[node][env->ir->node[node].span & env->axis ? j : 0];
}

TEST(values_spread_and_reduce)
{
    struct ir *ir = new_ir();
    const int s = ir_param(ir, LEAF_S, HERE);
    const int m = ir_param(ir, LEAF_STATE, HERE);
    const int kv = ir_at_field(ir, AT_KV, HERE);
    const int h = ir_at_field(ir, AT_H, HERE);
    const int e = make(ir, OP_MUL, make(ir, OP_SUB, s, m, 0), make(ir, OP_ADD, kv, h, 0), 0);
    const int root[] = {e, make(ir, OP_ROWSUM, e, 0, 0), make(ir, OP_ROWMAX, e, 0, 0),
                        make(ir, OP_ROWMIN, e, 0, 0), ir_reduce_sum(ir, SPAN_KV, m)};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV};
    double scores[300];
    double kvs[300];
    const double state = 0.25;
    env.at[AT_H] = 3.0;
    env.at_axis[AT_KV] = kvs;
    env.param[LEAF_S] = scores;
    env.param[LEAF_STATE] = &state;
    static const int sizes[] = {5, 300, 1, 0, 299}; /* the arena grows and is used again */
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        double sum = 0.0;
        double most = -(double)INFINITY;
        double least = (double)INFINITY;
        env.n = sizes[k];
        for (int j = 0; j < env.n; j++) {
            scores[j] = sin(j + (double)k);
            kvs[j] = j * 2.0;
        }
        CHECK(eval_run(&env, root, 5));
        for (int j = 0; j < env.n; j++) {
            const double expected = (scores[j] - 0.25) * (2.0 * j + 3.0);
            CHECK_CLOSE(at(&env, e, j), expected, 1e-15);
            sum += expected;
            most = expected > most ? expected : most;
            least = expected < least ? expected : least;
        }
        CHECK_CLOSE(at(&env, root[1], 0), sum, 1e-13);
        CHECK(at(&env, root[2], 0) == most && at(&env, root[3], 0) == least);
        CHECK_CLOSE(at(&env, root[4], 0), 0.25 * env.n, 1e-15);
    }
    eval_free(&env);
    CHECK(env.memory == NULL);
    ir_free(ir);
}

/* Only what the roots need is evaluated; nodes made later are seen too. */
TEST(unused_nodes_stay_out)
{
    struct ir *ir = new_ir();
    const int x = ir_param(ir, LEAF_X, HERE);
    const int y = make(ir, OP_EXP, x, 0, 0);
    const int z = make(ir, OP_LOG, x, 0, 0);
    const double values[] = {1.0, 2.0, 4.0};
    struct eval_env env = {.ir = ir, .axis = SPAN_DIM, .n = 3};
    env.param[LEAF_X] = values;
    CHECK(eval_run(&env, &y, 1));
    CHECK(env.value[z] == NULL);
    const int sum = make(ir, OP_DIMSUM, z, 0, 0);
    const int max = make(ir, OP_DIMMAX, z, 0, 0);
    const int both[] = {sum, max};
    CHECK(eval_run(&env, both, 2));
    CHECK_CLOSE(env.value[sum][0], log(8.0), 1e-15);
    CHECK_CLOSE(env.value[max][0], log(4.0), 1e-15);
    CHECK(env.value[y] == NULL);
    eval_free(&env);
    ir_free(ir);
}

TEST(splits_reduce)
{
    struct ir *ir = new_ir();
    const int lse = ir_param(ir, LEAF_SPLIT_STATE, HERE);
    const int max = make(ir, OP_SPLITMAX, lse, 0, 0);
    const int sum = make(ir, OP_SPLITSUM, make(ir, OP_EXP, make(ir, OP_SUB, lse, max, 0), 0, 0), 0, 0);
    const double values[] = {0.5, -(double)INFINITY, 2.0};
    struct eval_env env = {.ir = ir, .axis = SPAN_SPLIT, .n = 3};
    env.param[LEAF_SPLIT_STATE] = values;
    CHECK(eval_run(&env, &sum, 1));
    CHECK_CLOSE(env.value[sum][0], 1.0 + exp(-1.5), 1e-15);
    eval_free(&env);
    ir_free(ir);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static int add_input(struct ir *ir, const char *name, lathe_dtype dtype, int n_dims)
{
    struct input *in = &ir->input[ir->n_inputs];
    snprintf(in->name, sizeof in->name, "%s", name);
    in->dtype = dtype;
    in->n_dims = n_dims;
    in->is_scalar = n_dims == 0;
    in->default_value = -1.5;
    return ir->n_inputs++;
}

TEST(loads_check_their_bounds)
{
    struct ir *ir = new_ir();
    const int table = add_input(ir, "table", LATHE_F16, 2);
    ir->input[table].dim[0].sym = SYM_H;
    ir->input[table].dim[1].literal = 4;
    const int index[] = {ir_at_field(ir, AT_H, HERE),
                         make(ir, OP_SUB, ir_at_field(ir, AT_KV, HERE), ir_const(ir, 1, TYPE_I32), 0)};
    const int load = ir_load(ir, table, index, 2, HERE);
    uint16_t data[16] = {0};
    for (int i = 0; i < 16; i++)
        dtype_store(LATHE_F16, data, i, i * 0.5);
    int64_t shape[] = {2, 4};
    const int64_t strides[] = {1, 4};
    const lathe_arg arg = {"table", data, LATHE_F16, 2, shape, strides};
    double kv[] = {1.0, 4.0, 2.0};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 3};
    env.at[AT_H] = 1.0;
    env.at_axis[AT_KV] = kv;
    CHECK(eval_run(&env, &load, 1)); /* absent */
    CHECK(env.value[load][2] == -1.5);
    env.input[table] = &arg;
    CHECK(eval_run(&env, &load, 1));
    CHECK(env.value[load][0] == 0.5 && env.value[load][1] == 0.5 * 13 && env.value[load][2] == 0.5 * 5);
    kv[1] = 5.0;
    CHECK(!eval_run(&env, &load, 1));
    CHECK_STR(env.error, "t.lua:12: table: index 4 of dim 1 (4) is outside 0..3");
    CHECK_EQ(env.error_node, load);
    kv[1] = 0.0;
    CHECK(!eval_run(&env, &load, 1));
    CHECK_HAS(env.error, "table: index -1 of dim 1");
    kv[1] = 1.0;
    env.at[AT_H] = 2.0;
    CHECK(!eval_run(&env, &load, 1));
    CHECK_STR(env.error, "t.lua:12: table: index 2 of dim 0 (h) is outside 0..1");
    shape[0] = 0;
    CHECK(!eval_run(&env, &load, 1));
    CHECK_HAS(env.error, "index 2 of dim 0 (h): that dim has no elements");
    eval_free(&env);
    ir_free(ir);
}

TEST(scalars_and_defaults)
{
    struct ir *ir = new_ir();
    const int bias = add_input(ir, "bias", LATHE_F32, 0);
    const int node = ir_leaf(ir, OP_SCALAR, bias, TYPE_F32, 0, HERE);
    const float value = 2.5f;
    float stored = value;
    const lathe_arg arg = {"bias", &stored, LATHE_F32, 0, NULL, NULL};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV};
    CHECK(eval_run(&env, &node, 1) && env.value[node][0] == -1.5);
    env.input[bias] = &arg;
    CHECK(eval_run(&env, &node, 1) && env.value[node][0] == 2.5);
    eval_free(&env);
    ir_free(ir);
}

TEST(integer_mistakes_name_their_line)
{
    struct ir *ir = new_ir();
    const int q = ir_at_field(ir, AT_Q, HERE);
    const int kv = ir_at_field(ir, AT_KV, HERE);
    const int quotient = make(ir, OP_IDIV, q, kv, 0);
    const int of_itself = make(ir, OP_IDIV, kv, kv, 0);
    const int product = make(ir, OP_MUL, q, kv, 0);
    const double kvs[] = {3.0, 0.0, 200000.0};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 1};
    env.at[AT_Q] = 100000.0;
    env.at_axis[AT_KV] = kvs;
    CHECK(eval_run(&env, &quotient, 1) && env.value[quotient][0] == 33333.0);
    env.n = 3;
    CHECK(!eval_run(&env, &quotient, 1));
    CHECK_STR(env.error, "t.lua:12: integer division by zero: 100000 // 0");
    CHECK(!eval_run(&env, &of_itself, 1));
    CHECK_STR(env.error, "t.lua:12: integer division by zero: 0 // 0");
    CHECK(eval_run(&env, &product, 1) && env.value[product][1] == 0.0);
    CHECK(env.value[product][2] == -1474836480.0); /* 2e10 - 5 * 2^32 */
    eval_free(&env);
    ir_free(ir);
}
