// linear/backward/additive_logs.cuh: logarithms of decays in the backward pass of the additive family: of a warp's 16
// channels, as mma.sync has results, and what is left of one token when another one reads.
//
// A chunk has four blocks of 16 tokens. With c the sum of a channel's logarithms from a block's start on and L its end,
// a token reads with e^(c - b) and writes with e^(L - b - c), and between two blocks e^(b + .. + b) is left to multiply
// by, over blocks in between with their e^L. Where no channel loses more than STEEP_BLOCK over a block, b is half of L:
// a pair within one block is the product of the two then, and neither exponent is far from 0. Elsewhere b is 0, no
// exponent is above 0, and pairs of a block are taken apart into levels: tokens of the upper half of 16, 8, 4 or 2 read
// what those of its lower half have written, both from the border in between. Without the delta rule b is 0, too, where
// no channel loses more than MILD_BLOCK: pairs of blocks side by side are products of what is rounded once then, and
// those of one block, which are e^L too small, are divided by that.
#pragma once
#include "linear/backward/products.cuh"
#include "linear/steps.cuh"

namespace linear
{

constexpr int BLOCK = 16, BLOCKS = CHUNK_TOKENS / BLOCK;
// 16 channels each, of two blocks of tokens: the outer or the inner ones, which have as many pairs
constexpr int OWN_WARPS = PAD_D / 16;
constexpr int OWN_BLOCKS = BLOCKS / 2;
// to the base 2: what f16 would lose the digits of, and halves of which keep far from the largest number
constexpr float MILD_BLOCK = STATE_SCALED ? -6.0f : -60.0f, STEEP_BLOCK = 2.0f * MILD_BLOCK;
constexpr float FORGETS = -25.0f; // what is left is beyond the digits of what was there: see forgets

// Of two blocks of tokens and 16 channels or columns, of a lane: token lane / 4 + i / 2 * 8 of block m, column 8 n +
// lane % 4 * 2 + i % 2 is x[m][n][i].
using fragments = float[OWN_BLOCKS][2][4];
struct own_blocks {
    bool inner;
    __device__ __forceinline__ int block(int m) const { return inner ? 1 + m : m == 0 ? 0 : BLOCKS - 1; }
    __device__ __forceinline__ int token(int m, int r) const { return BLOCK * block(m) + lane_id() / 4 + 8 * r; }
};
// f(m, n, r): of two adjacent columns of a token.
template <class F> DEV void each_two(const F &f)
{
#pragma unroll
    for (int m = 0; m < OWN_BLOCKS; m++) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                f(m, n, r);
            }
        }
    }
}

// Levels are named by half of the tokens that they join: 8, 4, 2, 1; 0: a token and itself. Of tokens of a block:
DEV bool meets(int reader, int writer, int half)
{
    return half == 0 ? reader == writer : (reader ^ writer) / half == 1 && (reader & half) != 0;
}
// Of an operand on the left, what is of a level; BACK: the rows are the tokens that write.
template <bool BACK> DEV void keep_level(u32 (&a)[4], int half)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = lane_id() / 4 + i % 2 * 8;
        const int column = lane_id() % 4 * 2 + i / 2 * 8;
        const bool low = BACK ? meets(column, row, half) : meets(row, column, half);
        const bool high = BACK ? meets(column + 1, row, half) : meets(row, column + 1, half);
        a[i] &= (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u);
    }
}

// The logarithm of a decay to the base 2; 0 where there is no such token or channel. It is read all the same, from the
// row of one that there is: behind a branch each load would be waited for ahead of the next one.
DEV float log_of(const linear_back_params &p, const work &w, int place, int channel)
{
    const float log = DECAYS ? w.log2_decay(p, w.row(p, place), channel) : 0.0f;
    return w.has(place) && channel < cfg::D ? log : 0.0f;
}

struct channel_sums {
    fragments x; // to the base 2: of tokens; after sum(), from the block's start on
    u32 forgets; // a bit for each

    // Of the spec's channels from `channel` on.
    __device__ __forceinline__ void fetch(const linear_back_params &p, const work &w, int place,
                                          const own_blocks &tokens, int channel)
    {
        forgets = 0;
#pragma unroll
        for (int m = 0; m < OWN_BLOCKS; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int at = place + tokens.token(m, r);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float log = log_of(p, w, at, channel + e / 2 * 8 + e % 2);
                    forgets |= log <= FORGETS ? 1u << (8 * m + 4 * r + e) : 0u;
                    x[m][e / 2][2 * r + e % 2] = log;
                }
            }
        }
    }
    __device__ __forceinline__ bool is_forgotten(int m, int n, int r, int e) const
    {
        return (forgets >> (8 * m + 4 * r + 2 * n + e) & 1u) != 0;
    }
    // Of eight tokens, which are eight lanes apart by four.
    DEV float sum_of_eight(float x)
    {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
            const float before = __shfl_up_sync(ALL_LANES, x, static_cast<u32>(step));
            x += lane_id() >= step ? before : 0.0f;
        }
        return x;
    }
    DEV float last_of_eight(float x) { return __shfl_sync(ALL_LANES, x, 28 + lane_id() % 4); }
    __device__ __forceinline__ void sum()
    {
#pragma unroll
        for (int n = 0; DECAYS && n < 4 * OWN_BLOCKS; n++) {
            float(&own)[4] = x[n / 4][n / 2 % 2];
            const int e = n % 2;
            own[e] = sum_of_eight(own[e]);
            own[2 + e] = sum_of_eight(own[2 + e]) + last_of_eight(own[e]);
        }
    }
    // Up to a token's reading; ahead: before its own decay, as with a bonus.
    __device__ __forceinline__ float read(int m, int n, int i, bool ahead = cfg::BONUS) const
    {
        if (!ahead || !DECAYS) {
            return x[m][n][i];
        }
        const float before = __shfl_up_sync(ALL_LANES, x[m][n][i], 4);
        const float half = i < 2 ? 0.0f : last_of_eight(x[m][n][i % 2]);
        return lane_id() >= 4 ? before : half;
    }
    DEV bool reads(int r, int half) { return half == 8 ? r == 1 : (lane_id() / 4 & half) != 0; }
    // Up to the border in the middle of a level's tokens.
    __device__ __forceinline__ float border(int m, int n, int i, int half) const
    {
        const int token = half == 8 ? 7 : (lane_id() / 4 & ~(2 * half - 1)) + half - 1;
        return __shfl_sync(ALL_LANES, half == 8 ? x[m][n][i % 2] : x[m][n][i], 4 * token + lane_id() % 4);
    }
    // What a token reads, or what is left of one, at a level's border; 0 where it does not.
    __device__ __forceinline__ float reader(int m, int n, int i, int half, bool ahead = cfg::BONUS) const
    {
        if (half == 0) {
            return 1.0f;
        }
        const float by = exp2_approx(read(m, n, i, ahead) - border(m, n, i, half));
        return reads(i / 2, half) ? by : 0.0f;
    }
    __device__ __forceinline__ float writer(int m, int n, int i, int half) const
    {
        if (half == 0) {
            return 1.0f;
        }
        const float by = exp2_approx(border(m, n, i, half) - x[m][n][i]);
        return reads(i / 2, half) ? 0.0f : by;
    }
};

} // namespace linear
