// ptx_narrow.cuh: templates/common/ptx_narrow.cuh for the host.
#pragma once
#include "common/ptx.cuh"

[[maybe_unused]] constexpr bool HAS_E4M3 = EMULATE_HOPPER;

DEV u16 emulate_f16_from_e4m3(u32 code)
{
    const u32 magnitude = code & 0x7fu;
    const float x = magnitude < 8 ? static_cast<float>(magnitude) / 512.0f
                                  : __builtin_ldexpf(static_cast<float>(8 + (magnitude & 7u)),
                                                     static_cast<int>(magnitude >> 3) - 10);
    const u16 bits = f16_from_float(x);
    return magnitude == 0x7fu ? u16{0x7fff} : static_cast<u16>((code & 0x80u) << 8 | bits);
}
DEV u32 f16x2_from_e4m3x2(u16 codes)
{
    return emulate_f16_from_e4m3(codes & 0xffu) | static_cast<u32>(emulate_f16_from_e4m3(codes >> 8)) << 16;
}
DEV void f16x2_from_e4m3x4(u32 codes, u32 &low, u32 &high)
{
    low = f16x2_from_e4m3x2(static_cast<u16>(codes));
    high = f16x2_from_e4m3x2(static_cast<u16>(codes >> 16));
}
DEV u32 byte_permute(u32 a, u32 b, u32 places)
{
    const u64 both = static_cast<u64>(b) << 32 | a;
    u32 x = 0;
    for (u32 i = 0; i < 4; i++) {
        x |= static_cast<u32>(both >> (8 * (places >> (4 * i) & 7u)) & 0xffu) << (8 * i);
    }
    return x;
}
DEV float emulate_f16(u32 bits) { return float_from_f16(static_cast<u16>(bits)); }
DEV u32 f16x2_fma(u32 a, u32 b, u32 c)
{
    return f16x2_from_floats(emulate_f16(a) * emulate_f16(b) + emulate_f16(c),
                             emulate_f16(a >> 16) * emulate_f16(b >> 16) + emulate_f16(c >> 16));
}
