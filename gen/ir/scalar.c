/*
 * scalar.c: what an operation makes of numbers, in double precision. In: an op, the type of its result, its
 * operands. Out: the result. The pool folds constants by it and eval.c evaluates nodes by it, so both agree.
 */
#include "gen/ir/scalar.h"
#include "gen/ir/random.h"

#include <math.h>

/* The low 32 bits, as a number from -2^31 on. */
static double wrapped(uint64_t v)
{
    const uint32_t low = (uint32_t)v;
    return low < UINT32_C(0x80000000) ? (double)low : (double)low - 4294967296.0;
}

static uint32_t bits(double v)
{
    return (uint32_t)(int64_t)v;
}

/* As Lua's, of 32 bits: vacated bits are 0, and a negative count shifts the other way. */
static double shifted(double v, double left)
{
    if (left <= -32.0 || left >= 32.0)
        return 0.0;
    return wrapped(left >= 0.0 ? (uint64_t)bits(v) << (int)left : (uint64_t)bits(v) >> (int)-left);
}

/* Truncates towards zero and saturates; NaN is 0: what cvt.rzi.s32 does on the device. */
static double to_int32(double v)
{
    if (isnan(v))
        return 0.0;
    return v <= -2147483648.0 ? -2147483648.0 : v >= 2147483647.0 ? 2147483647.0 : trunc(v);
}

/* Towards -inf, exact also where a / b was rounded up to an integer. */
static double floor_divide(double a, double b)
{
    const double quotient = floor(a / b);
    const double rest = fma(-quotient, b, a);
    return (b > 0.0 ? rest < 0.0 : rest > 0.0) ? quotient - 1.0 : quotient;
}

/* Has the sign of b, as in Lua. */
static double floor_modulo(double a, double b)
{
    const double rest = fmod(a, b);
    return (b > 0.0 ? rest < 0.0 : rest > 0.0) ? rest + b : rest;
}

static double sigmoid(double x)
{
    if (x >= 0.0)
        return 1.0 / (1.0 + exp(-x));
    const double e = exp(x);
    return e / (1.0 + e);
}

/* x times a distribution function that vanishes at -inf faster than x grows. */
static double gated(double x, double gate)
{
    return x == -(double)INFINITY ? -0.0 : x * gate;
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

/* What an op makes of its operands, integers not yet wrapped. */
// clang-format off
#define FUNCTIONS(ROW) \
    ROW(ADD,     a[0] + a[1]) \
    ROW(SUB,     a[0] - a[1]) \
    ROW(MUL,     a[0] * a[1]) \
    ROW(DIV,     a[0] / a[1]) \
    ROW(IDIV,    floor_divide(a[0], a[1])) \
    ROW(MOD,     floor_modulo(a[0], a[1])) \
    ROW(POW,     pow(a[0], a[1])) \
    ROW(NEG,     -a[0]) \
    ROW(EXP,     exp(a[0])) \
    ROW(EXP2,    exp2(a[0])) \
    ROW(LOG,     log(a[0])) \
    ROW(LOG2,    log2(a[0])) \
    ROW(SQRT,    sqrt(a[0])) \
    ROW(RSQRT,   1.0 / sqrt(a[0])) \
    ROW(SIN,     sin(a[0])) \
    ROW(COS,     cos(a[0])) \
    ROW(TANH,    tanh(a[0])) \
    ROW(SIGMOID, sigmoid(a[0])) \
    ROW(SILU,    gated(a[0], sigmoid(a[0]))) \
    ROW(RELU,    a[0] < 0.0 ? 0.0 : a[0]) /* NaN stays */ \
    ROW(ERF,     erf(a[0])) \
    ROW(NORMAL,  normal_cdf(a[0])) \
    ROW(GELU,    gated(a[0], normal_cdf(a[0]))) \
    ROW(ABS,     fabs(a[0])) \
    ROW(MIN,     fmin(a[0], a[1])) \
    ROW(MAX,     fmax(a[0], a[1])) \
    ROW(CLAMP,   fmin(fmax(a[0], a[1]), a[2])) \
    ROW(FLOOR,   floor(a[0])) \
    ROW(CEIL,    ceil(a[0])) \
    ROW(LT,      a[0] < a[1]) \
    ROW(LE,      a[0] <= a[1]) \
    ROW(GT,      a[0] > a[1]) \
    ROW(GE,      a[0] >= a[1]) \
    ROW(EQ,      a[0] == a[1]) \
    ROW(NE,      a[0] != a[1]) \
    ROW(WHERE,   a[0] != 0.0 ? a[1] : a[2]) \
    ROW(AND,     a[0] != 0.0 && a[1] != 0.0) \
    ROW(OR,      a[0] != 0.0 || a[1] != 0.0) \
    ROW(NOT,     a[0] == 0.0) \
    ROW(XOR,     (a[0] != 0.0) != (a[1] != 0.0)) \
    ROW(RANDOM,  random_uniform((int32_t)a[0], (int32_t)a[1], (int32_t)a[2], (int32_t)a[3], (int32_t)a[4])) \
    ROW(I32,     to_int32(a[0])) \
    ROW(F32,     a[0]) \
    ROW(DETACH,  a[0])

/* The same where the result is an integer and bits count, or a double would not hold it. */
#define INTEGER_FUNCTIONS(ROW) \
    ROW(MUL,     wrapped((uint64_t)bits(a[0]) * bits(a[1]))) \
    ROW(AND,     wrapped(bits(a[0]) & bits(a[1]))) \
    ROW(OR,      wrapped(bits(a[0]) | bits(a[1]))) \
    ROW(XOR,     wrapped(bits(a[0]) ^ bits(a[1]))) \
    ROW(NOT,     wrapped(~bits(a[0]))) \
    ROW(SHL,     shifted(a[0], a[1])) \
    ROW(SHR,     shifted(a[0], -a[1]))
// clang-format on

/* A loop of its own for each op: a call for every element of an array would take longer than the op. */
#define LOOP(name, value)                                                                                    \
    static void name(double *out, size_t n, const double *const *from, const size_t *step)                   \
    {                                                                                                        \
        for (size_t j = 0; j < n; j++) {                                                                     \
            double a[IR_MAX_ARGS];                                                                           \
            for (int k = 0; k < IR_MAX_ARGS; k++)                                                            \
                a[k] = from[k][j * step[k]];                                                                 \
            out[j] = value;                                                                                  \
        }                                                                                                    \
    }
#define DEFINE(op, value) LOOP(apply_##op, value)
FUNCTIONS(DEFINE)
#undef DEFINE
#define DEFINE(op, value) LOOP(integer_##op, value)
INTEGER_FUNCTIONS(DEFINE)
#undef DEFINE
#undef LOOP

static void apply_none(double *out, size_t n, const double *const *from, const size_t *step)
{
    (void)from;
    (void)step;
    for (size_t j = 0; j < n; j++)
        out[j] = (double)NAN;
}

scalar_fn *scalar_function(enum ir_op op, enum ir_type type)
{
#define ENTRY(op, value) [OP_##op] = apply_##op,
    static scalar_fn *const table[OP_COUNT] = {FUNCTIONS(ENTRY)};
#undef ENTRY
#define ENTRY(op, value) [OP_##op] = integer_##op,
    static scalar_fn *const integers[OP_COUNT] = {INTEGER_FUNCTIONS(ENTRY)};
#undef ENTRY
    if (type == TYPE_I32 && integers[op])
        return integers[op];
    return table[op] ? table[op] : apply_none;
}

size_t scalar_wrap(double *v, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        if (!isfinite(v[j])) {
            v[j] = (double)NAN;
            return j;
        }
        v[j] = wrapped((uint64_t)(int64_t)v[j]);
    }
    return n;
}

double scalar_op(enum ir_op op, enum ir_type type, const double *arg)
{
    static const size_t step[IR_MAX_ARGS]; /* zeros: one set */
    const double *from[IR_MAX_ARGS];
    double result = 0.0;
    for (int k = 0; k < IR_MAX_ARGS; k++)
        from[k] = k < ir_op_arity((int)op) ? &arg[k] : arg;
    scalar_function(op, type)(&result, 1, from, step);
    if (type == TYPE_I32)
        scalar_wrap(&result, 1);
    return result;
}
