// common/narrow.cuh: numbers of 8 bits, as caches of keys and values keep them. All of them are numbers of f16 and of
// bf16, too, so that nothing is rounded where they are read.
#pragma once
#include "common/base.cuh"
#include "common/ptx_narrow.cuh"

struct f8_e4m3 { // no infinities; 0x7f is NaN
    u8 bits;
};
struct f8_e5m2 { // the upper half of f16
    u8 bits;
};
struct i8 {
    u8 bits;
};
template <class T> inline constexpr bool IS_NARROW = same_type<T, f8_e4m3> || same_type<T, f8_e5m2> || same_type<T, i8>;

// Bits of e4m3 where f16 has them are 2^8 times too small, and NaN is a number.
DEV float e4m3_to_float(u32 code)
{
    const float x = float_from_f16(static_cast<u16>((code & 0x80u) << 8 | (code & 0x7fu) << 7)) * 256.0f;
    return (code & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : x;
}

// The two numbers in the lower half of a word.
template <class T> DEV void narrow_pair(u32 codes, float &low, float &high)
{
    static_assert(IS_NARROW<T>, "numbers of 8 bits are f8_e4m3, f8_e5m2 or i8");
    if constexpr (same_type<T, f8_e4m3>) {
        if constexpr (HAS_E4M3) {
            const u32 pair = f16x2_from_e4m3x2(static_cast<u16>(codes));
            low = float_from_f16(static_cast<u16>(pair));
            high = float_from_f16(static_cast<u16>(pair >> 16));
        } else {
            low = e4m3_to_float(codes & 0xffu);
            high = e4m3_to_float(codes >> 8 & 0xffu);
        }
    } else if constexpr (same_type<T, f8_e5m2>) {
        low = float_from_f16(static_cast<u16>(codes << 8));
        high = float_from_f16(static_cast<u16>(codes & 0xff00u));
    } else {
        low = static_cast<float>(static_cast<signed char>(codes & 0xffu));
        high = static_cast<float>(static_cast<signed char>(codes >> 8 & 0xffu));
    }
}

DEV float to_float(f8_e4m3 x) { return e4m3_to_float(x.bits); }
DEV float to_float(f8_e5m2 x) { return float_from_f16(static_cast<u16>(x.bits << 8)); }
DEV float to_float(i8 x) { return static_cast<float>(static_cast<signed char>(x.bits)); }

// V adjacent ones, from an address that is a multiple of V: 4, 8 or 16.
template <int V, class T> DEV void load_narrow(const T *p, float (&out)[V])
{
    const words<V> w = load_words<V>(p);
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        narrow_pair<T>(w.word[i / 4] >> (8 * (i % 4)), out[i], out[i + 1]);
    }
}
