// linear/keyed_delta_walk.cuh: what walks along the chunks share, forward and back, behind a decay by key channel: a
// warp has 16 columns of the state, with columns as rows, so that what one product leaves is an operand of the next as
// it stands.
#pragma once
#include "linear/chunk_parts.cuh"
#include "linear/state_columns.cuh"

namespace linear
{

constexpr int COLUMN_WARPS = cfg::COLUMN_WARPS; // 16 columns of the state each
constexpr int KEYED_THREADS = 32 * COLUMN_WARPS;
constexpr int VALUE_PAD = 16 * COLUMN_WARPS;
constexpr int VALUE_SLICES = (cfg::D_V + VALUE_PAD - 1) / VALUE_PAD;
constexpr int KEYED_BLOCKS = KEY_PAD <= 128 ? 2 : 1; // that a multiprocessor has registers for
static_assert(COLUMN_WARPS >= 1 && COLUMN_WARPS <= 4, "cfg::COLUMN_WARPS is 1 to 4");

// BYTES: of what is prepared of a chunk of a head, which lies in shared memory as in the other, and values behind it.
template <class P, int BYTES> struct keyed_walk {
    using operand = cfg::operand;
    static constexpr int VALUES = BYTES, END = VALUES + CHUNK_TOKENS * VALUE_PAD * OPERAND;
    static_assert(VALUES % 128 == 0, "a tile begins where swizzle wants it");
    const P &p;
    const work &w;
    u32 shared;

    DEV int first() { return static_cast<int>(threadIdx.x) / 32 * 16; } // column of the block
    __device__ __forceinline__ u32 tile(int which, int token) const
    {
        return shared + static_cast<u32>(which + token * swizzle<KEY_PAD>::ROW_BYTES);
    }
    __device__ __forceinline__ u32 block(int which, int i, int j) const
    {
        return shared + static_cast<u32>(which + prepared::block(i, j) + 16 * lane_id());
    }

    template <int FROM, int SIZE> __device__ __forceinline__ void copy(int number) const
    {
        static_assert(FROM % 16 == 0 && SIZE % 16 == 0, "pieces of 16 bytes");
        const unsigned char *from = prepared::of<BYTES>(p, w.s, w.h, number * CHUNK_TOKENS) + FROM;
        for (int at = static_cast<int>(threadIdx.x) * 16; at < SIZE; at += KEYED_THREADS * 16) {
            copy16_async(shared + static_cast<u32>(FROM + at), from + at, 16);
        }
    }
    // Rows of VALUE_PAD; tokens and channels that do not exist are zeros.
    template <class T>
    __device__ __forceinline__ void load_values(const void *base, i64 offset, i64 stride, int number) const
    {
        const int place = number * CHUNK_TOKENS;
        for (int row = static_cast<int>(threadIdx.x) / (2 * COLUMN_WARPS); row < CHUNK_TOKENS;
             row += KEYED_THREADS / (2 * COLUMN_WARPS)) {
            const int chunk = static_cast<int>(threadIdx.x) % (2 * COLUMN_WARPS);
            const bool some = w.has(place + row) && chunk * 8 < w.left;
            const i64 token = sequence::token(w.s, some ? place + row : place);
            const T *from = elements<T>(base, offset + token * stride + w.first + (some ? chunk * 8 : 0));
            copy16_async(shared + static_cast<u32>(VALUES) + swizzle<VALUE_PAD>::offset(row, chunk), from,
                         some ? 16 : 0);
        }
    }
    // This warp's columns of 16 tokens: tokens 0 .. 7 and 8 .. 15 of 8 columns, then of the other 8.
    __device__ __forceinline__ void load_own(u32 (&v)[4], int t) const
    {
        load_matrix4_transposed(
            v, shared + static_cast<u32>(VALUES) +
                   swizzle<VALUE_PAD>::offset(t * STEP + (lane_id() & 15), first() / 8 + (lane_id() >> 4)));
    }
    // Two blocks of 8 tokens as the first operand of a product over tokens.
    DEV void round(u32 (&to)[4], const float (&x)[4], const float (&y)[4])
    {
        to[0] = pack<operand>(x[0], x[1]);
        to[1] = pack<operand>(x[2], x[3]);
        to[2] = pack<operand>(y[0], y[1]);
        to[3] = pack<operand>(y[2], y[3]);
    }
    // x += the state, by a factor, times the keys of a tile, columns as rows, of each 16 tokens.
    __device__ __forceinline__ void multiply_state(float (&x)[2 * CHUNK_STEPS][4], const state_columns &s, float by,
                                                   int which) const
    {
        const u32 keys = tile(which, 0) + lane_offset_b<KEY_PAD>(lane_id());
#pragma unroll
        for (int k = 0; k < KEY_PAD / 16; k++) {
            u32 b[4];
            s.pack_rows(b, k, by);
            const u32 a[4] = {b[0], b[2], b[1], b[3]};
#pragma unroll
            for (int t = 0; t < CHUNK_STEPS; t++) {
                load_matrix4(b, swizzle<KEY_PAD>::along(keys, 2 * k) +
                                    static_cast<u32>(t * STEP * swizzle<KEY_PAD>::ROW_BYTES));
                mma_16x8x16<operand>(x[2 * t], a, b[0], b[1]);
                mma_16x8x16<operand>(x[2 * t + 1], a, b[2], b[3]);
            }
        }
    }
    // v - k S.
    __device__ __forceinline__ void correct(u32 (&r)[CHUNK_STEPS][4], const state_columns &s, float by) const
    {
        float x[2 * CHUNK_STEPS][4] = {};
        multiply_state(x, s, by, prepared::READ_K);
        const float back = state_columns::SCALED ? 1.0f / by : 1.0f;
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            u32 v[4];
            load_own(v, t);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float two[2];
                unpack<operand>(v[i], two[0], two[1]);
                float *of = &x[2 * t + i % 2][i / 2 * 2];
                of[0] = two[0] - back * of[0];
                of[1] = two[1] - back * of[1];
            }
            round(r[t], x[2 * t], x[2 * t + 1]);
        }
    }
    // As they are multiplied by what is of tokens: this warp's columns, 16 tokens each.
    using operands = u32[CHUNK_STEPS][4];
    __device__ __forceinline__ void load_operands(operands &v) const
    {
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            u32 x[4];
            load_own(x, t);
            v[t][0] = x[0];
            v[t][1] = x[2];
            v[t][2] = x[1];
            v[t][3] = x[3];
        }
    }
    // x and y += a times a block of 16 columns.
    DEV void multiply_block(float (&x)[4], float (&y)[4], const u32 (&a)[4], u32 at)
    {
        const uint4 b = load_shared16(at);
        mma_16x8x16<operand>(x, a, b.x, b.y);
        mma_16x8x16<operand>(y, a, b.z, b.w);
    }
    // r becomes T r.
    __device__ __forceinline__ void solve(u32 (&r)[CHUNK_STEPS][4]) const
    {
#pragma unroll
        for (int i = CHUNK_STEPS - 1; i >= 0; i--) { // the last ones are needed no more
            float x[2][4] = {};
#pragma unroll
            for (int j = 0; j <= i; j++) {
                multiply_block(x[0], x[1], r[j], block(prepared::INVERSE + prepared::BLOCKS, i, j));
                multiply_block(x[0], x[1], r[j], block(prepared::INVERSE, i, j));
            }
            round(r[i], x[0], x[1]);
        }
    }
    // Of two writers X = T (a S + N_v v).
    __device__ __forceinline__ void look(operands &x, const operands &v, const state_columns &s, float by) const
    {
        float sum[2 * CHUNK_STEPS][4] = {};
        multiply_state(sum, s, by, prepared::READ_K);
        const float back = state_columns::SCALED ? 1.0f / by : 1.0f;
#pragma unroll
        for (int e = 0; state_columns::SCALED && e < 8 * CHUNK_STEPS; e++) {
            sum[e / 4][e % 4] *= back;
        }
#pragma unroll
        for (int i = 0; i < CHUNK_STEPS; i++) {
#pragma unroll
            for (int j = 0; j <= i; j++) {
                multiply_block(sum[2 * i], sum[2 * i + 1], v[j], block(prepared::SEEN_V, i, j));
            }
            round(x[i], sum[2 * i], sum[2 * i + 1]);
        }
        solve(x);
    }
    // s += the keys of a tile times x.
    __device__ __forceinline__ void add(state_columns &s, const u32 (&x)[CHUNK_STEPS][4], int which) const
    {
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            const u32 k = tile(which, t * STEP) + lane_offset_b_transposed<KEY_PAD>(lane_id());
#pragma unroll
            for (int n = 0; n < state_columns::BLOCKS; n += 2) {
                u32 b[4];
                load_matrix4_transposed(b, swizzle<KEY_PAD>::along(k, n));
                mma_16x8x16<operand>(s.x[n], x[t], b[0], b[1]);
                mma_16x8x16<operand>(s.x[n + 1], x[t], b[2], b[3]);
            }
        }
    }
};

} // namespace linear
