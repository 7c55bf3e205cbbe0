// common/mma_f32.cuh: products of tiles of f32 by mma.sync, each as three products of bf16.
//
// x is hi + lo: hi is x rounded to bf16, lo what is left of x, rounded to bf16 too. x y becomes hi hi + hi lo + lo hi
// in f32 sums. What is lost, lo lo and the rounding of each lo, is less than 2^-16 of |x y|. An infinite x makes NaN,
// and so does one that rounds to an infinite bf16, from 0x1.ffp127 on.
//
// A row of COLS f32 lies in shared memory as one of 2 COLS 16-bit elements does (common/mma_sm80.cuh), so the same
// loaders fill a tile. ldmatrix gives a lane one f32 where it gives two 16-bit elements: of a chunk of 4, the one at
// lane % 4. So a lane has columns t, t + 4, t + 8 and t + 12 of 16 where mma.sync means 2 t, 2 t + 1, 2 t + 8 and 2 t +
// 9: an order of the depth that both operands share, and that no sum sees.
#pragma once
#include "common/mma_sm80.cuh"

// Two f32 as two registers, each of two bf16.
struct split_two {
    u32 hi, lo;
    DEV split_two of(float x, float y)
    {
        split_two s;
        float kept[2];
        s.hi = pack<bf16>(x, y);
        unpack<bf16>(s.hi, kept[0], kept[1]);
        s.lo = pack<bf16>(x - kept[0], y - kept[1]);
        return s;
    }
};
DEV void split_f32(float x, float y, u32 &hi, u32 &lo)
{
    const split_two s = split_two::of(x, y);
    hi = s.hi;
    lo = s.lo;
}
DEV void split_f32(u32 x, u32 y, u32 &hi, u32 &lo) { split_f32(__uint_as_float(x), __uint_as_float(y), hi, lo); }

template <int MT> struct split_a { // 16 MT rows, 16 deep
    u32 hi[MT][4], lo[MT][4];
};
struct split_b { // 16 deep, of two blocks of 8 columns
    u32 hi[2][2], lo[2][2];
};

// c += a b.
template <int MT> DEV void mma_split(float (&c)[4], const split_a<MT> &a, int m, const split_b &b, int n)
{
    mma_bf16(c, a.lo[m], b.hi[n][0], b.hi[n][1]);
    mma_bf16(c, a.hi[m], b.lo[n][0], b.lo[n][1]);
    mma_bf16(c, a.hi[m], b.hi[n][0], b.hi[n][1]);
}

// Columns 16 k .. 16 k + 15. lane_address: lane_offset_a<2 * COLS> from the tile on.
template <int MT, int COLS> DEV void load_split_a(split_a<MT> &a, u32 lane_address, int k)
{
    using shape = swizzle<2 * COLS>;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 x[4];
            load_matrix4(x, shape::along(lane_address, 4 * k + 2 * half) + static_cast<u32>(m * 16 * shape::ROW_BYTES));
            split_f32(x[0], x[2], a.hi[m][2 * half], a.lo[m][2 * half]);
            split_f32(x[1], x[3], a.hi[m][2 * half + 1], a.lo[m][2 * half + 1]);
        }
    }
}

// The same of B stored [n][k]: 16 rows of the tile from row 16 n on. lane_address: lane_offset_b<2 * COLS> from the
// tile on.
template <int COLS> DEV void load_split_b(split_b &b, u32 lane_address, int k, int n)
{
    using shape = swizzle<2 * COLS>;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 x[4];
        load_matrix4(x, shape::along(lane_address, 4 * k + 2 * half) + static_cast<u32>(n * 16 * shape::ROW_BYTES));
        split_f32(x[0], x[1], b.hi[0][half], b.lo[0][half]);
        split_f32(x[2], x[3], b.hi[1][half], b.lo[1][half]);
    }
}

// B stored [k][n], in the order of mma.sync: a lane reads single elements, of rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of
// 16. Rows two apart lie in different banks, and so do the chunks of 8 columns.
template <int COLS> struct columns_f32 {
    using shape = swizzle<2 * COLS>;
    u32 even, odd; // of the lane's rows 2 t and 2 t + 1

    __device__ __forceinline__ columns_f32(u32 tile, int lane)
    {
        const int row = 2 * (lane & 3);
        const u32 inside = static_cast<u32>(lane >> 2 & 3) * 4;
        even = tile + shape::offset(row, lane >> 4) + inside;
        odd = tile + shape::offset(row + 1, lane >> 4) + inside;
    }
    // Rows 16 k .. 16 k + 15, and the 16 columns from 16 n on.
    __device__ __forceinline__ void load(split_b &b, int k, int n) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 down = static_cast<u32>((16 * k + 8 * half) * shape::ROW_BYTES);
                split_f32(load_shared(shape::along(even, 4 * n + 2 * i) + down),
                          load_shared(shape::along(odd, 4 * n + 2 * i) + down), b.hi[i][half], b.lo[i][half]);
            }
        }
    }
};

// s = Q K^T for 16 MT rows of Q and 8 NB rows of K, as product_qk of common/mma_sm80.cuh.
template <int MT, int NB, int COLS> DEV void product_qk_f32(float (&s)[MT][NB][4], u32 q_address, u32 k_address)
{
    static_assert(NB % 2 == 0, "keys in multiples of 16");
#pragma unroll
    for (int i = 0; i < MT * NB * 4; i++) {
        s[i / 4 / NB][i / 4 % NB][i % 4] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        split_a<MT> a;
        load_split_a<MT, COLS>(a, q_address, k);
#pragma unroll
        for (int n = 0; n < NB / 2; n++) {
            split_b b;
            load_split_b<COLS>(b, k_address, k, n);
#pragma unroll
            for (int i = 0; i < 2 * MT; i++) {
                mma_split(s[i % MT][2 * n + i / MT], a, i % MT, b, i / MT);
            }
        }
    }
}

// A fragment of scores, 16 of its columns from 16 k on, as the A operand.
template <int MT, int NB> DEV void split_scores(split_a<MT> &a, const float (&p)[MT][NB][4], int k)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float(&two)[4] = p[m][2 * k + i / 2];
            split_f32(two[2 * (i % 2)], two[2 * (i % 2) + 1], a.hi[m][i], a.lo[m][i]);
        }
    }
}

// o += P V. DB: blocks of 8 columns of V; v: the tile.
template <int MT, int NB, int DB, int COLS>
DEV void product_pv_f32(float (&o)[MT][DB][4], const float (&p)[MT][NB][4], u32 v, int lane)
{
    const columns_f32<COLS> columns(v, lane);
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
        split_a<MT> a;
        split_scores(a, p, k);
#pragma unroll
        for (int n = 0; n < DB / 2; n++) {
            split_b b;
            columns.load(b, k, n);
#pragma unroll
            for (int i = 0; i < 2 * MT; i++) {
                mma_split(o[i % MT][2 * n + i / MT], a, i % MT, b, i / MT);
            }
        }
    }
}

// ---- tiles that are split once -----------------------------------------------------------------------
//
// A tile that many products read is split where it lies: of 8 columns first 16 bytes of hi, then 16 of lo. From there
// on hi and lo come by ldmatrix as tiles of bf16 do, and lo is one bit of the address away from hi.

template <int COLS> DEV u32 split_offset_a(int lane, int row0)
{
    return swizzle<2 * COLS>::offset(row0 + (lane & 15), lane >> 4 << 1);
}
template <int COLS> DEV u32 split_offset_b(int lane)
{
    return swizzle<2 * COLS>::offset((lane & 7) + (lane >> 4) * 8, (lane >> 3 & 1) * 2);
}

// Splits what this thread has copied with tile_loader<ROWS, .., 2 * COLS, THREADS>, behind its wait: neighbours have
// the two halves of 8 columns. By whole warps.
template <int ROWS, int COLS, int THREADS> DEV void split_tile(u32 tile)
{
    using loader = tile_loader<ROWS, 2 * COLS, 2 * COLS, THREADS>;
    using shape = typename loader::shape;
    const u32 thread = fresh_thread();
    const int row = static_cast<int>(thread / loader::ACROSS);
    const bool low = thread % 2 != 0;
    const u32 first = tile + shape::offset(row, static_cast<int>(thread % loader::ACROSS));
#pragma unroll
    for (int i = 0; i < (ROWS + loader::STEP - 1) / loader::STEP; i++) {
        if (ROWS % loader::STEP == 0 || row < ROWS - i * loader::STEP) {
#pragma unroll
            for (int c = 0; c < shape::CHUNKS; c += loader::ACROSS) {
                const u32 place = first + static_cast<u32>(i * loader::STEP * shape::ROW_BYTES + c * 16);
                const uint4 x = load_shared16(place);
                u32 hi[2], lo[2];
                split_f32(x.x, x.y, hi[0], lo[0]);
                split_f32(x.z, x.w, hi[1], lo[1]);
                const u32 other0 = __shfl_xor_sync(ALL_LANES, low ? hi[0] : lo[0], 1);
                const u32 other1 = __shfl_xor_sync(ALL_LANES, low ? hi[1] : lo[1], 1);
                const float four[4] = {__uint_as_float(low ? other0 : hi[0]), __uint_as_float(low ? other1 : hi[1]),
                                       __uint_as_float(low ? lo[0] : other0), __uint_as_float(low ? lo[1] : other1)};
                store_shared16(place, four);
            }
        }
    }
}

// s = Q K^T as product_qk_f32, of tiles that are split.
template <int MT, int NB, int COLS> DEV void product_qk_split(float (&s)[MT][NB][4], u32 q_address, u32 k_address)
{
    static_assert(NB % 2 == 0, "keys in multiples of 16");
    using shape = swizzle<2 * COLS>;
#pragma unroll
    for (int i = 0; i < MT * NB * 4; i++) {
        s[i / 4 / NB][i / 4 % NB][i % 4] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        split_a<MT> a;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            const u32 at = shape::along(q_address, 4 * k) + static_cast<u32>(m * 16 * shape::ROW_BYTES);
            load_matrix4(a.hi[m], at);
            load_matrix4(a.lo[m], at ^ 16);
        }
#pragma unroll
        for (int n = 0; n < NB / 2; n++) {
            const u32 at = shape::along(k_address, 4 * k) + static_cast<u32>(n * 16 * shape::ROW_BYTES);
            u32 hi[4], lo[4];
            load_matrix4(hi, at);
            load_matrix4(lo, at ^ 16);
            const split_b b = {{{hi[0], hi[1]}, {hi[2], hi[3]}}, {{lo[0], lo[1]}, {lo[2], lo[3]}}};
#pragma unroll
            for (int i = 0; i < 2 * MT; i++) {
                mma_split(s[i % MT][2 * n + i / MT], a, i % MT, b, i / MT);
            }
        }
    }
}
