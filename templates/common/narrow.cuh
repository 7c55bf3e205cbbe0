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

// ---- stores: to the nearest, of two the even one; what is too large becomes the largest number ---------------

// The code of |x| where a format has BITS of a mantissa, its smallest normal number 2^LEAST and MOST above all others.
template <int BITS, int LEAST> DEV u32 narrow_code(float x, float most)
{
    const float size = fminf(fabsf(x), most);
    const u32 word = __float_as_uint(size);
    constexpr int CUT = 23 - BITS;
    const u32 normal = (word + ((1u << (CUT - 1)) - 1u) + (word >> CUT & 1u)) >> CUT;
    // below: a multiple of 2^(LEAST - BITS), whose number stands in the last bits of this sum
    const float lifted = size + __uint_as_float(static_cast<u32>(127 + LEAST - BITS + 23) << 23);
    const bool small = word < static_cast<u32>(127 + LEAST) << 23;
    return small ? __float_as_uint(lifted) & 0x7fffffu : normal - (static_cast<u32>(126 + LEAST) << BITS);
}

// The bits of a number.
template <class T> DEV u8 narrow_bits(float x)
{
    const u32 sign = __float_as_uint(x) >> 24 & 0x80u;
    if constexpr (same_type<T, f8_e4m3>) {
        return static_cast<u8>(sign | (x != x ? 0x7fu : narrow_code<3, -6>(x, 448.0f)));
    } else if constexpr (same_type<T, f8_e5m2>) {
        return static_cast<u8>(sign | (x != x ? 0x7fu : narrow_code<2, -14>(x, 57344.0f)));
    } else { // 1.5 2^23 + a whole number: the nearest one stands in the last bits
        const float near = (x != x ? 0.0f : fminf(fmaxf(x, -128.0f), 127.0f)) + 12582912.0f;
        return static_cast<u8>(__float_as_uint(near));
    }
}

// What elementwise/parts.cuh finds by the type of its tensor: one number, or N adjacent ones at a multiple of N bytes.
template <class T, class X>
requires IS_NARROW<T> DEV void store_one(T *p, X x) { p->bits = narrow_bits<T>(x); }
template <int N, bool STREAMS, class T, class X>
requires IS_NARROW<T> DEV void store_whole(T *p, const X (&x)[N])
{
    words<max_of(N, 4)> w = {};
#pragma unroll
    for (int i = 0; i < N; i++) {
        w.word[i / 4] |= static_cast<u32>(narrow_bits<T>(x[i])) << (8 * (i % 4));
    }
    if constexpr (N < 4) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            p[i].bits = static_cast<u8>(w.word[0] >> (8 * i));
        }
    } else {
        store_words(p, w);
    }
}
