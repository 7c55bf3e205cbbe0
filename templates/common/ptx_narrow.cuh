// common/ptx_narrow.cuh: one-instruction wrappers for numbers of 8 bits. tests/emulate/common/ptx_narrow.cuh is the
// same list for the host: keep them alike.
#pragma once
#include "common/ptx.cuh"

// From sm_89 on one instruction makes two numbers of f16 of two of e4m3; before, the function below gives 0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define NARROW_E4M3 1
#else
#define NARROW_E4M3 0
#endif
[[maybe_unused]] constexpr bool HAS_E4M3 = NARROW_E4M3 != 0;

DEV u32 f16x2_from_e4m3x2(u16 codes)
{
    u32 pair = 0;
#if NARROW_E4M3
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
#else
    static_cast<void>(codes);
#endif
    return pair;
}

// The same of all four of a word.
DEV void f16x2_from_e4m3x4(u32 codes, u32 &low, u32 &high)
{
    low = 0;
    high = 0;
#if NARROW_E4M3
    asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
        : "=r"(low), "=r"(high)
        : "r"(codes));
#else
    static_cast<void>(codes);
#endif
}

// Byte i of the result is the one that bits 4 i .. 4 i + 2 of `places` number: 0 .. 3 of a, 4 .. 7 of b.
DEV u32 byte_permute(u32 a, u32 b, u32 places)
{
    u32 x;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(places));
    return x;
}

// a b + c of pairs.
DEV u32 f16x2_fma(u32 a, u32 b, u32 c)
{
    u32 x;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}
