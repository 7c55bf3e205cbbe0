// ptx_fp8_sm90.cuh: templates/common/ptx_fp8_sm90.cuh for the host.
#pragma once
#include "common/ptx_sm90.cuh"

// The code of the nearest number, of two the even one: found among all of them, so by another way than in narrow.cuh.
DEV u32 emulate_e4m3(float x)
{
    const float size = fminf(fabsf(x), 448.0f);
    u32 code = 0;
    float off = size; // of number 0
    for (u32 i = 1; i < 0x7f; i++) {
        const float number = i < 8 ? static_cast<float>(i) / 512.0f
                                   : __builtin_ldexpf(static_cast<float>(8 + (i & 7u)), static_cast<int>(i >> 3) - 10);
        const float here = fabsf(number - size);
        if (here < off || (here == off && i % 2 == 0)) {
            code = i;
            off = here;
        }
    }
    return x != x ? 0x7fu : code | (__float_as_uint(x) >> 24 & 0x80u);
}
DEV u32 e4m3x4_from_floats(float x0, float x1, float x2, float x3)
{
    return emulate_e4m3(x0) | emulate_e4m3(x1) << 8 | emulate_e4m3(x2) << 16 | emulate_e4m3(x3) << 24;
}

template <int N> struct wgmma_e4m3 {
    static_assert(N % 16 == 0 && N >= 16 && N <= 256, "a width of templates/common/ptx_sm90.cuh");
    DEV void ss(float (&d)[N / 8][4], u64 a, u64 b, int sum, EMULATE_PLACE)
    {
        emulate_wgmma_call call = {d[0], N, a, b, nullptr, {}, sum, EMULATE_E4M3, false, false};
        emulate_wgmma(&call, EMULATE_HERE);
    }
    DEV void rs(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, int sum, EMULATE_PLACE)
    {
        emulate_wgmma_call call = {d[0], N, 0, b, a, {}, sum, EMULATE_E4M3, false, false};
        emulate_wgmma(&call, EMULATE_HERE);
    }
};
