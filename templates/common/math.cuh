// common/math.cuh: the CUDA text of the op table (gen/ir/ops.def), as functions of int and float.
//
// Two grades, chosen by cfg::FAST_MATH, so config.gen.cuh is included first. Fast, for 16-bit results: the special
// function unit, relative error about 2^-21 (exp: |x| * 2^-24 more; tanh: 2^-11). Otherwise, for float results:
// 1 to 4 ulp, from the compiler's own library. pow, //, % and the integer functions are exact-grade in both.
// The instructions behind them are not volatile: equal values are computed once, unused ones not at all.
#pragma once
#include "config.gen.cuh"
#include "common/base.cuh"

// ---- exponentials and logarithms ---------------------------------------------------------------------

DEV float m_exp2(float x) // 2 ulp; exact at integers; results below 2^-126 are 0
{
    return exp2_approx(x);
}

DEV float m_exp(float x)
{
    if constexpr (cfg::FAST_MATH) {
        return m_exp2(x * 0x1.715476p+0f); // log2(e)
    } else {
        return expf(x);
    }
}

DEV float not_nan(float x, float otherwise) { return x == x ? x : otherwise; }

DEV float m_log2(float x) // fast: absolute error 2^-22 between 1/2 and 2, relative 2^-22 elsewhere
{
    if constexpr (cfg::FAST_MATH) {
        return log2_approx(x);
    } else {
        return log2f(x);
    }
}

DEV float m_log(float x)
{
    if constexpr (cfg::FAST_MATH) {
        return m_log2(x) * 0x1.62e43p-1f; // ln(2)
    } else {
        return logf(x);
    }
}

// ---- division, roots, powers -------------------------------------------------------------------------

DEV float m_rcp(float x) // 1 ulp
{
    return rcp_approx(x);
}

DEV float m_div(float a, float b) // fast: 2 ulp, and 0 where |b| > 2^126
{
    if constexpr (cfg::FAST_MATH) {
        return __fdividef(a, b);
    } else {
        return a / b;
    }
}

DEV float m_sqrt(float x) // 1 ulp
{
    return sqrt_approx(x);
}

DEV float m_rsqrt(float x) // 2 ulp
{
    return rsqrt_approx(x);
}

// C's pow: a negative base is fine where the exponent is an integer, and NaN elsewhere. Never through lg2.approx, whose
// error grows with the exponent: theta^(-2i/d) times a position must stay an angle. The tests fold for a constant b.
DEV float m_pow(float a, float b)
{
    if (b == 2.0f) {
        return a * a;
    }
    if (b == 3.0f) {
        return a * a * a;
    }
    if (b == -1.0f) {
        return 1.0f / a;
    }
    return powf(a, b);
}

// ---- integers: two's complement, which C++ leaves open where the sign has it -------------------------

DEV int m_add(int a, int b) { return static_cast<int>(static_cast<u32>(a) + static_cast<u32>(b)); }
DEV int m_sub(int a, int b) { return static_cast<int>(static_cast<u32>(a) - static_cast<u32>(b)); }
DEV int m_mul(int a, int b) { return static_cast<int>(static_cast<u32>(a) * static_cast<u32>(b)); }
DEV int m_neg(int a) { return m_sub(0, a); }

// As Lua's, of 32 bits: vacated bits are 0, and a negative count shifts the other way.
DEV int m_shl(int a, int by)
{
    const u32 bits = static_cast<u32>(a);
    const u32 down = 0u - static_cast<u32>(by);
    return static_cast<int>(by >= 0 ? (by < 32 ? bits << by : 0u) : (down < 32u ? bits >> down : 0u));
}
DEV int m_shr(int a, int by)
{
    const u32 bits = static_cast<u32>(a);
    const u32 up = 0u - static_cast<u32>(by);
    return static_cast<int>(by >= 0 ? (by < 32 ? bits >> by : 0u) : (up < 32u ? bits << up : 0u));
}

// ---- random numbers ----------------------------------------------------------------------------------

// Uniform in [0, 1), a multiple of 2^-24: a word of Philox4x32-7 (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011; with seven rounds it passes BigCrush) for the counter (q, kv less its bits 0
// and 3, h, b) and the key (seed, 0). Those two bits of kv choose the word, so that the four numbers of a thread's
// neighbouring columns of a fragment (c, c + 1, c + 8, c + 9) come of one call; kv enters last, so that what precedes
// it is computed once a row.
DEV float m_random(int seed, int b, int h, int q, int kv)
{
    u32 c0 = static_cast<u32>(q);
    u32 c1 = static_cast<u32>(kv) & ~9u;
    u32 c2 = static_cast<u32>(h);
    u32 c3 = static_cast<u32>(b);
    u32 key0 = static_cast<u32>(seed);
    u32 key1 = 0;
#pragma unroll
    for (int round = 0; round < 7; round++) {
        const u64 x = static_cast<u64>(c0) * 0xd2511f53u;
        const u64 y = static_cast<u64>(c2) * 0xcd9e8d57u;
        c0 = static_cast<u32>(y >> 32) ^ c1 ^ key0;
        c1 = static_cast<u32>(y);
        c2 = static_cast<u32>(x >> 32) ^ c3 ^ key1;
        c3 = static_cast<u32>(x);
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    const u32 low = (kv & 8) != 0 ? c2 : c0;
    const u32 high = (kv & 8) != 0 ? c3 : c1;
    return static_cast<float>(((kv & 1) != 0 ? high : low) >> 8) * 0x1p-24f;
}

// ---- Lua's // and %: the quotient is rounded down, the remainder has the sign of the divisor ---------

DEV int m_floordiv(int a, int b) // b == 0: some number, no trap
{
    const int q = a / b;
    const int r = a - q * b;
    return q - ((r != 0) & ((r ^ b) < 0));
}

DEV int m_floormod(int a, int b)
{
    const int r = a % b;
    return r + ((r != 0) & ((r ^ b) < 0) ? b : 0);
}

// a / b of a not negative and b positive. Below 2^21 the float quotient is less than 1 off.
DEV int m_quotient(int a, int b)
{
    if (a >= 1 << 21) {
        return a / b;
    }
    const int q = static_cast<int>(static_cast<float>(a) * m_rcp(static_cast<float>(b)));
    const int r = a - q * b;
    return q + (r >= b ? 1 : 0) - (r < 0 ? 1 : 0);
}

// Of i .. i + V - 1, i not negative: one division for all.
template <int V> DEV void m_floordiv_columns(int i, int b, int (&q)[V])
{
    if (b >= V) {
        const int first = m_quotient(i, b);
        const int left = b - (i - first * b); // to the next multiple
#pragma unroll
        for (int k = 0; k < V; k++) {
            q[k] = first + (k >= left ? 1 : 0);
        }
    } else if (b > 0) {
        int at = m_quotient(i, b);
        int left = b - (i - at * b);
#pragma unroll
        for (int k = 0; k < V; k++) {
            q[k] = at;
            at += left == 1 ? 1 : 0;
            left = left == 1 ? b : left - 1;
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) {
            q[k] = m_floordiv(i + k, b);
        }
    }
}
template <int V> DEV void m_floormod_columns(int i, int b, int (&r)[V])
{
    int q[V];
    m_floordiv_columns<V>(i, b, q);
#pragma unroll
    for (int k = 0; k < V; k++) {
        r[k] = b == 0 ? m_floormod(i + k, b) : i + k - q[k] * b;
    }
}

DEV float m_floordiv(float a, float b)
{
    const float q = floorf(a / b);
    const float r = fmaf(-q, b, a); // of the other sign than b where a / b was rounded up to an integer
    return (b > 0.0f) ? (r < 0.0f ? q - 1.0f : q) : (r > 0.0f ? q - 1.0f : q);
}

DEV float m_floormod(float a, float b)
{
    const float r = fmodf(a, b);
    return ((b > 0.0f) ? r < 0.0f : r > 0.0f) ? r + b : r;
}

// ---- angles ------------------------------------------------------------------------------------------

// x less the nearest multiple of 2 pi. Exact but for the last step while the multiple has 18 bits, |x| < 1.6e6: n * HI
// and x are multiples of 2^-22 or coarser that differ by less than 4. No slow path, hence no local memory.
DEV float m_reduce_angle(float x)
{
    constexpr float HI = 0x1.921fb6p+2f; // 2 pi = HI + LO
    constexpr float LO = -0x1.777a5cp-23f;
    constexpr u32 WHOLE = 0x4b400000u; // 1.5 * 2^23: beside it, and away from 0 however far, floats are integers
    const float whole = __uint_as_float((__float_as_uint(x) & 0x80000000u) | WHOLE);
    // rounding to an integer proper takes the special function unit
    const float n = fmaf(x, 0x1.45f306p-3f, whole) - whole;
    return fmaf(-n, LO, fmaf(-n, HI, x));
}

DEV float m_sin(float x) // absolute error 1e-6 for |x| < 1.6e6
{
    return sin_approx(m_reduce_angle(x));
}

DEV float m_cos(float x) { return cos_approx(m_reduce_angle(x)); }

// ---- activations -------------------------------------------------------------------------------------

DEV float m_tanh(float x)
{
    if constexpr (cfg::FAST_MATH) {
        return tanh_approx(x);
    } else {
        return tanhf(x);
    }
}

DEV float m_sigmoid(float x) // the relative error of m_exp, also where it is tiny: not through tanh.approx
{
    return m_rcp(1.0f + m_exp(-x));
}

// x times a distribution function of x, which vanishes at -inf faster than x grows; NaN stays, through the function.
DEV float m_gated(float x, float gate) { return fmaxf(x, -0x1.fffffep+127f) * gate; }

DEV float m_silu(float x) { return m_gated(x, m_sigmoid(x)); }

DEV float m_relu(float x) { return max_nan(x, 0.0f); } // NaN stays

// log2 of the normal distribution function at -a, a not negative: off by less than 8.3e-6 up to 6; beyond, where the
// function is below 1e-9, it falls a little faster than the function. Of degree 7, found by weighted least squares
// towards the least maximum.
DEV float m_log2_normal(float a)
{
    float p = fmaf(a, -0x1.ec8748p-20f, 0x1.025caap-14f);
    p = fmaf(a, p, -0x1.e7dcf0p-11f);
    p = fmaf(a, p, 0x1.16c95cp-7f);
    p = fmaf(a, p, -0x1.ba0a78p-5f);
    p = fmaf(a, p, -0x1.d577b0p-2f);
    p = fmaf(a, p, -0x1.26b864p+0f);
    return fmaf(a, p, -0x1.ffff62p-1f);
}

// The normal distribution function. Fast: relative error 2^-17 where x > -6, absolute error 1e-9 below.
DEV float m_normal(float x)
{
    constexpr float ROOT_HALF = 0x1.6a09e6p-1f;
    if constexpr (cfg::FAST_MATH) {
        const float tail = m_exp2(m_log2_normal(fabsf(x)));
        return x < 0.0f ? tail : 1.0f - tail;
    } else {
        return 0.5f * erfcf(-x * ROOT_HALF); // without the cancellation at negative x
    }
}

DEV float m_erf(float x)
{
    // Abramowitz and Stegun 7.1.26, absolute error 2e-7; near 0 its series, for the relative one
    if constexpr (cfg::FAST_MATH) {
        const float z = x * x;
        const float series =
            fmaf(z, fmaf(z, fmaf(z, -0x1.b82ce4p-6f, 0x1.ce2f22p-4f), -0x1.812746p-2f), 0x1.20dd76p+0f);
        const float t = m_rcp(fmaf(0x1.4f740ap-2f, fabsf(x), 1.0f));
        float tail = fmaf(t, 1.061405429f, -1.453152027f);
        tail = fmaf(t, tail, 1.421413741f);
        tail = fmaf(t, tail, -0.284496736f);
        tail = fmaf(t, tail, 0.254829592f) * t * m_exp(-z);
        const float far = 1.0f - tail;
        return fabsf(x) < 0.25f ? x * series : x < 0.0f ? -far : far;
    } else {
        return erff(x); // 2 ulp
    }
}

DEV float m_gelu(float x) // x times the normal distribution function, not the tanh form
{
    if constexpr (cfg::FAST_MATH) { // relu(x) less what both sides have in common; at infinity that is 0, and NaN stays
        const float a = fminf(fabsf(x), 0x1p+13f);
        return fmaf(-a, m_exp2(m_log2_normal(a)), m_relu(x));
    } else {
        return m_gated(x, m_normal(x));
    }
}

// ---- the rest: fmaxf and fminf give the other operand where one is NaN -------------------------------

DEV float m_abs(float x) { return fabsf(x); }
DEV int m_abs(int x) { return x < 0 ? m_neg(x) : x; }

DEV float m_nan() { return __int_as_float(0x7fffffff); } // a constant of the spec

DEV float m_min(float a, float b) { return fminf(a, b); }
DEV int m_min(int a, int b) { return a < b ? a : b; }

DEV float m_max(float a, float b) { return fmaxf(a, b); }
DEV int m_max(int a, int b) { return a > b ? a : b; }

DEV float m_clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
DEV int m_clamp(int x, int low, int high) { return m_min(m_max(x, low), high); }

DEV float m_floor(float x) { return floorf(x); }

// Towards 0; beyond the ints the nearest of them, and 0 of no number: C++ leaves that open, the instruction does not.
DEV int m_i32(float x) { return __float2int_rz(x); }
DEV int m_i32(int x) { return x; }
DEV int m_i32(bool x) { return x ? 1 : 0; }
DEV float m_ceil(float x) { return ceilf(x); }
