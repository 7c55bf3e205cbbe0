// common/ptx_fp8_sm90.cuh: one-instruction wrappers of sm_90a for numbers of e4m3: wgmma m64nNk32, conversions. With
// common/ptx_sm90.cuh. tests/emulate/common/ptx_fp8_sm90.cuh is the same list for the host: keep them alike.
#pragma once
#include "common/ptx_sm90.cuh"

// Four floats, to the nearest, of two the even one; what is too large becomes 448. x0 is in the lowest byte.
DEV u32 e4m3x4_from_floats(float x0, float x1, float x2, float x3)
{
    u32 x;
    asm("{\n.reg .b16 a, b;\ncvt.rn.satfinite.e4m3x2.f32 a, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 b, %4, %3;\n"
        "mov.b32 %0, {a, b};\n}"
        : "=r"(x)
        : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
    return x;
}

// The products of one width: as wgmma<N>, whose fence and wait serve them, but 32 deep, and with both operands along
// k: rows of A and of B (which is stored [n][k]) are of 32 bytes a step. They turn nothing over.
template <int N> struct wgmma_e4m3;

#define WGMMA_E4M3_TEXT(N, A, B)                                                                                       \
    "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_D##N "}, " A ", " B ", p, 1, 1;\n}"
#define WGMMA_E4M3_OPEN(SUM) "{\n.reg .pred p;\nsetp.ne.b32 p, " SUM ", 0;\n"
#undef WGMMA
#define WGMMA(N, I0, I1, I2, I3, I4, I5, ...)                                                                          \
    template <> struct wgmma_e4m3<N> {                                                                                 \
        DEV void ss(float (&d)[N / 8][4], u64 a, u64 b, int sum)                                                       \
        {                                                                                                              \
            asm volatile(WGMMA_E4M3_OPEN("%" #I2) WGMMA_E4M3_TEXT(N, "%" #I0, "%" #I1)                                 \
                         : WGMMA_R##N                                                                                  \
                         : "l"(a), "l"(b), "r"(sum));                                                                  \
        }                                                                                                              \
        DEV void rs(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, int sum)                                           \
        {                                                                                                              \
            asm volatile(WGMMA_E4M3_OPEN("%" #I5)                                                                      \
                             WGMMA_E4M3_TEXT(N, WGMMA_A("%" #I0, "%" #I1, "%" #I2, "%" #I3), "%" #I4)                  \
                         : WGMMA_R##N                                                                                  \
                         : WGMMA_A_OF(a), "l"(b), "r"(sum));                                                           \
        }                                                                                                              \
    }
WGMMA_WIDTHS
