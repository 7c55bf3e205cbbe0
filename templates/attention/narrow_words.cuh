// attention/narrow_words.cuh: words of four numbers of 8 bits as operands of mma.sync, and the products of a warp's
// rows with tiles of such numbers.
//
// A row of a tile is its bytes, in chunks of 16 that lie as those of common/mma_sm80.cuh. ldmatrix moves pairs of bytes
// as if they were elements, so of one chunk of 8 keys a lane gets four adjacent numbers of k, where a product of 16
// deep asks for two and two others: a row of Q is loaded in that order (q_column), and no byte has to move. Of V the
// transposing load gives numbers 2 g and 2 g + 1 of keys 2 t and 2 t + 1 (g = lane / 4, t = lane % 4): column g of one
// block of o, and of the one behind it. So a thread has other columns of o (o_column), and again no byte moves.
#pragma once
#include "common/mma_sm80.cuh"
#include "common/narrow.cuh"

// Products are of f16. Where q has bf16, whose numbers may be larger and smaller, a row of Q is lifted by a power of
// two, and scores go back by it; rows of weights are lifted likewise, and o goes back in the end. What a row has below
// 2^-27 of its largest number keeps fewer than 11 digits, bf16 has 8 of each; what it has below 2^-38 is lost.

// Bytes 0 and 1, then 2 and 3, of a word; or 0 and 2, then 1 and 3.
enum narrow_order { NARROW_ADJACENT, NARROW_CROSSED };

// Places of byte_permute: two bytes of a word, each in front of, or behind, a byte of the other word.
template <narrow_order ORDER, int PAIR, bool BEHIND> DEV constexpr u32 narrow_places()
{
    const u32 first = ORDER == NARROW_CROSSED ? PAIR : 2 * PAIR;
    const u32 second = ORDER == NARROW_CROSSED ? PAIR + 2 : 2 * PAIR + 1;
    return BEHIND ? 0x0404u | first << 4 | second << 12 : 0x4040u | first | second << 8;
}

// Two numbers of e4m3 in the upper bytes of halves, before sm_89: where f16 has their bits they are 2^8 times too
// small, and NaN is a number.
DEV u32 f16x2_from_e4m3_bits(u32 x)
{
    const u32 size = x & 0x7f007f00u;
    const u32 nan = (size + 0x01000100u) & 0x80008000u;
    const u32 value = f16x2_fma((x & 0x80008000u) | size >> 1, 0x5c005c00u, 0x80008000u);
    return value | (nan - (nan >> 6));
}

// The numbers of a word as two registers of f16, which holds them exactly, in fewer instructions than bf16.
template <class T, narrow_order ORDER> DEV void widen_word(u32 word, u32 &first, u32 &second)
{
    if constexpr (same_type<T, i8>) { // 1024 + 128 + x is a number of f16
        const u32 lifted = word ^ 0x80808080u;
        first =
            f16x2_fma(byte_permute(lifted, 0x64646464u, narrow_places<ORDER, 0, false>()), 0x3c003c00u, 0xe480e480u);
        second =
            f16x2_fma(byte_permute(lifted, 0x64646464u, narrow_places<ORDER, 1, false>()), 0x3c003c00u, 0xe480e480u);
    } else if constexpr (same_type<T, f8_e5m2>) {
        first = byte_permute(word, 0u, narrow_places<ORDER, 0, true>());
        second = byte_permute(word, 0u, narrow_places<ORDER, 1, true>());
    } else if constexpr (HAS_E4M3) {
        f16x2_from_e4m3x4(ORDER == NARROW_CROSSED ? byte_permute(word, 0u, 0x3120u) : word, first, second);
    } else {
        first = f16x2_from_e4m3_bits(byte_permute(word, 0u, narrow_places<ORDER, 0, true>()));
        second = f16x2_from_e4m3_bits(byte_permute(word, 0u, narrow_places<ORDER, 1, true>()));
    }
}

// ---- rows of other sizes -------------------------------------------------------------------------------

// A power of two, so exact, times which x, not negative, is between 2^(TO - 1) and 2^TO; not above 2^100.
template <int TO> DEV float lift_of(float x)
{
    const int field = 253 + TO - static_cast<int>(__float_as_uint(x) >> 23);
    return __uint_as_float(static_cast<u32>(max(1, min(field, 227))) << 23);
}
DEV float inverse_of(float power_of_two) { return __uint_as_float((254u << 23) - __float_as_uint(power_of_two)); }

// ---- which columns are whose ---------------------------------------------------------------------------

// The first of the two adjacent columns of Q that are pair `half` of a thread's k'th step.
template <bool NARROW> DEV int q_column(int k, int half)
{
    const int t = lane_id() & 3;
    return NARROW ? 16 * k + 4 * t + 2 * half : 16 * k + 8 * half + 2 * t;
}

// Of element j of block d of a thread's rows of o.
template <bool NARROW> DEV int o_column(int d, int j)
{
    const int t = lane_id() & 3;
    return NARROW ? 16 * (d / 2) + 4 * t + 2 * j + d % 2 : 8 * d + 2 * t + j;
}

// ---- products --------------------------------------------------------------------------------------------

// s = Q K^T for 16 rows of Q and 8 NB rows of K, of COLS numbers of 8 bits.
template <class T, int NB, int COLS>
DEV void narrow_qk(float (&s)[1][NB][4], const a_fragments<1, COLS / 16> &q, u32 k_address)
{
    using shape = swizzle<COLS / 2>;
    constexpr int PAIRS = NB / 2; // ldmatrix gives 16 keys of 32 columns
    constexpr int LOADS = COLS / 32 * PAIRS;
#pragma unroll
    for (int i = 0; i < NB * 4; i++) {
        s[0][i / 4][i % 4] = 0.0f;
    }
    u32 b[2][4];
    load_matrix4(b[0], k_address);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int step = shape::step(i / PAIRS);
        if (i + 1 < LOADS) {
            load_matrix4(b[(i + 1) & 1], shape::along(k_address, 2 * shape::step((i + 1) / PAIRS)) +
                                             static_cast<u32>((i + 1) % PAIRS * 16 * shape::ROW_BYTES));
        }
#pragma unroll
        for (int m = 0; m < 4; m++) { // keys 8 (m / 2) .., chunk m % 2
            u32 low;
            u32 high;
            widen_word<T, NARROW_ADJACENT>(b[i & 1][m], low, high);
            mma_16x8x16<f16>(s[0][2 * (i % PAIRS) + m / 2], q.r[2 * step + m % 2][0], low, high);
        }
    }
}

// o += P V, of COLS columns of V.
template <class T, int NB, int COLS>
DEV void narrow_pv(float (&o)[1][COLS / 8][4], const float (&p)[1][NB][4], u32 v_address)
{
    using shape = swizzle<COLS / 2>;
    constexpr int PAIRS = COLS / 32; // ldmatrix gives 32 columns of 16 keys
    constexpr int LOADS = NB / 2 * PAIRS;
    u32 b[2][4];
    u32 a[4];
    load_matrix4_transposed(b[0], v_address);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int k = i / PAIRS;
        const int d = i % PAIRS;
        if (i + 1 < LOADS) {
            load_matrix4_transposed(b[(i + 1) & 1], shape::along(v_address, 2 * ((i + 1) % PAIRS)) +
                                                        static_cast<u32>((i + 1) / PAIRS * 16 * shape::ROW_BYTES));
        }
        if (d == 0) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                a[r] = pack<f16>(p[0][2 * k + r / 2][2 * (r % 2)], p[0][2 * k + r / 2][2 * (r % 2) + 1]);
            }
        }
#pragma unroll
        for (int chunk = 0; chunk < 2; chunk++) {
            u32 even[2];
            u32 odd[2];
            widen_word<T, NARROW_CROSSED>(b[i & 1][2 * chunk], even[0], odd[0]);
            widen_word<T, NARROW_CROSSED>(b[i & 1][2 * chunk + 1], even[1], odd[1]);
            mma_16x8x16<f16>(o[0][4 * d + 2 * chunk], a, even[0], even[1]);
            mma_16x8x16<f16>(o[0][4 * d + 2 * chunk + 1], a, odd[0], odd[1]);
        }
    }
}
