// common/exact.cuh: f32 arithmetic of what a spec decides by: masks, branches, steps and indices that are made of
// positions, sizes and constants. The host device computes the same numbers (`rounded` in gen/ir/ir.h), so both decide
// alike.
//
// Every operation is rounded to the nearest f32 number, ties to even, and none is fused with another: the intrinsics
// say so, whatever -fmad is. Functions are computed in double precision from their f32 operand and then rounded, by the
// formulas of gen/ir/scalar.c. Subnormal numbers stay, as they do by default: -ftz=true and -use_fast_math would lose
// them. Elsewhere than on a GPU a store keeps the compiler from fusing or shortening an operation.
#pragma once
#include "common/base.cuh"

#if defined(__CUDACC__) || defined(__CUDA__)
#define EXACT(name) name
DEV float exact_add(float a, float b) { return __fadd_rn(a, b); }
DEV float exact_sub(float a, float b) { return __fsub_rn(a, b); }
DEV float exact_mul(float a, float b) { return __fmul_rn(a, b); }
DEV float exact_div(float a, float b) { return __fdiv_rn(a, b); }
DEV float exact_sqrt(float x) { return __fsqrt_rn(x); }
DEV float exact_round(double x) { return __double2float_rn(x); }
#else
#define EXACT(name) __builtin_##name
DEV float exact_round(double x)
{
    volatile float y = static_cast<float>(x);
    return y;
}
DEV float exact_add(float a, float b) { return exact_round(static_cast<double>(a) + b); }
DEV float exact_sub(float a, float b) { return exact_round(static_cast<double>(a) - b); }
DEV float exact_mul(float a, float b) { return exact_round(static_cast<double>(a) * b); }
DEV float exact_div(float a, float b) { return exact_round(static_cast<double>(a) / b); }
DEV float exact_sqrt(float x) { return exact_round(EXACT(sqrt)(static_cast<double>(x))); }
#endif

// ---- functions of one operand, f(x) in double precision ----------------------------------------------

DEV float exact_exp(float x) { return exact_round(EXACT(exp)(static_cast<double>(x))); }
DEV float exact_exp2(float x) { return exact_round(EXACT(exp2)(static_cast<double>(x))); }
DEV float exact_log(float x) { return exact_round(EXACT(log)(static_cast<double>(x))); }
DEV float exact_log2(float x) { return exact_round(EXACT(log2)(static_cast<double>(x))); }
DEV float exact_rsqrt(float x) { return exact_round(1.0 / EXACT(sqrt)(static_cast<double>(x))); }
DEV float exact_sin(float x) { return exact_round(EXACT(sin)(static_cast<double>(x))); }
DEV float exact_cos(float x) { return exact_round(EXACT(cos)(static_cast<double>(x))); }
DEV float exact_tanh(float x) { return exact_round(EXACT(tanh)(static_cast<double>(x))); }
DEV float exact_erf(float x) { return exact_round(EXACT(erf)(static_cast<double>(x))); }
DEV float exact_pow(float a, float b)
{
    return exact_round(EXACT(pow)(static_cast<double>(a), static_cast<double>(b)));
}

// ---- Lua's // and % ----------------------------------------------------------------------------------

DEV float exact_floordiv(float a, float b) // exact also where a / b was rounded up to an integer
{
    const double wide = b;
    const double quotient = EXACT(floor)(a / wide);
    const double rest = EXACT(fma)(-quotient, wide, static_cast<double>(a));
    return exact_round((b > 0.0f ? rest < 0.0 : rest > 0.0) ? quotient - 1.0 : quotient);
}

DEV float exact_floormod(float a, float b)
{
    const double rest = EXACT(fmod)(static_cast<double>(a), static_cast<double>(b));
    return exact_round((b > 0.0f ? rest < 0.0 : rest > 0.0) ? rest + b : rest);
}

// ---- activations -------------------------------------------------------------------------------------

DEV double exact_wide_sigmoid(double x)
{
    const double e = EXACT(exp)(x >= 0.0 ? -x : x);
    return x >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}
DEV double exact_wide_normal(double x) { return 0.5 * EXACT(erfc)(-x * 0x1.6a09e667f3bcdp-1); }
// at -inf: -0
DEV float exact_gated(double x, double gate) { return exact_round(x < -0x1.fffffep+127 ? -0.0 : x * gate); }

DEV float exact_sigmoid(float x) { return exact_round(exact_wide_sigmoid(x)); }
DEV float exact_normal(float x) { return exact_round(exact_wide_normal(x)); }
DEV float exact_silu(float x) { return exact_gated(x, exact_wide_sigmoid(x)); }
DEV float exact_gelu(float x) { return exact_gated(x, exact_wide_normal(x)); }
#undef EXACT
