// linear/backward/additive_scores.cuh: pairs of the tokens of a chunk in the backward pass of the additive family, in blocks of 16 x 16: A, which dv is made of, and
// dA, which dq and dk are made of.
#pragma once
#include "linear/backward/additive_states.cuh"
#include "linear/backward/channel_chunk.cuh"

namespace linear {

struct chunk_pairs : channel_chunk {
    DEV bool is_older(int row, int column) { return column < row || (!cfg::BONUS && column == row); }
    // From a block's start, to its end, to the chunk's end.
    __device__ __forceinline__ void weigh_blocks() const
    {
        const key_ends of = own_ends();
        const key_ends left = ends_behind();
        weigh(layout::READS, layout::Q, [&](int m, int n, int i) { return w.scale * exp2_approx(logs.read(m, n, i)); });
        each_two([&](int m, int n, int r) {
            float k[2];
            float last[2];
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), k[0], k[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = logs.x[m][n][2 * r + e];
                last[e] = k[e] * exp2_approx(left.x[m][n][e] - x);
                k[e] *= exp2_approx(of.x[m][n][e] - x);
            }
            store_pair<PAD_D>(tile(layout::WRITES), token(m, r), channel(n), k[0], k[1]);
            store_pair<PAD_D>(tile(layout::LASTS), token(m, r), channel(n), last[0], last[1]);
        });
    }
    // A token's own pair is weighed by the bonus.
    __device__ __forceinline__ void weigh_bonus() const
    {
        float u[2][2] = {};
#pragma unroll
        for (int e = 0; cfg::BONUS && e < 4; e++) {
            const int i = first_channel() + channel(e / 2);
            u[e / 2][e % 2] = i < cfg::D ? variant::bonus(p.x, p.z, w.head, i + e % 2) : 0.0f;
        }
        weigh(layout::WRITES, layout::K, [&](int, int n, int i) { return u[n][i % 2]; });
    }
    // What is left of a channel from the end of block c to the start of block r; of one block, the other way.
    __device__ __forceinline__ float2 between(int r, int c, int channel) const
    {
        float2 sum = {0.0f, 0.0f};
        for (int b = c + 1; b < r; b++) {
            const float2 two = end(b, channel);
            sum.x += two.x;
            sum.y += two.y;
        }
        if (r == c) {
            const float2 two = end(r, channel);
            sum.x = -two.x;
            sum.y = -two.y;
        }
        return {exp2_approx(sum.x), exp2_approx(sum.y)};
    }
    // s += readers of block r times writers of block c.
    __device__ __forceinline__ void add_pairs(float (&s)[2][4], int r, int c, bool weighed) const
    {
        const auto left = left_rows<PAD_D>::of(tile(layout::READS), BLOCK * r);
        const auto right = right_rows<PAD_D>::of(tile(layout::WRITES), BLOCK * c);
#pragma unroll 2
        for (int k = 0; k < PAD_D / 16; k++) {
            u32 a[4];
            u32 b[4];
            left.load(a, k);
            right.load(b, 0, k);
#pragma unroll
            for (int half = 0; weighed && half < 2; half++) {
                const float2 by = between(r, c, 16 * k + 8 * half + lane_id() % 4 * 2);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float x;
                    float y;
                    unpack<element>(a[2 * half + i], x, y);
                    a[2 * half + i] = pack<element>(x * by.x, y * by.y);
                }
            }
            mma_16x8x16<element>(s[0], a, b[0], b[1]);
            mma_16x8x16<element>(s[1], a, b[2], b[3]);
        }
    }
    // To the pairs of block `number`, of which readers and writers are there.
    __device__ __forceinline__ void add_level(float (&diagonal)[2][4], int half) const
    {
        if (number < BLOCKS) {
            float s[2][4] = {};
            add_pairs(s, number, number, false);
            keep_pairs(s, [&](int row, int column) { return meets(row, column, half); });
#pragma unroll
            for (int e = 0; e < 8; e++) {
                diagonal[e / 4][e % 4] += s[e / 4][e % 4];
            }
        }
    }
    // Pairs within blocks, as far as they are not taken from products over the whole block.
    __device__ __forceinline__ void make_levels(float (&diagonal)[2][4], bool strong) const
    {
#pragma unroll 1
        for (int half = 8; strong && half > 0; half /= 2) {
            weigh_readers(layout::READS, layout::Q, w.scale, half);
            weigh_writers(half);
            __syncthreads();
            add_level(diagonal, half);
            __syncthreads();
        }
        if (strong || cfg::BONUS) {
            weigh_readers(layout::READS, layout::Q, w.scale, 0);
            if constexpr (cfg::BONUS) {
                weigh_bonus();
            } else {
                weigh_writers(0);
            }
            __syncthreads();
            add_level(diagonal, 0);
            __syncthreads();
        }
    }
    __device__ __forceinline__ void make_block_of_pairs(float (&diagonal)[2][4], bool strong) const
    {
        if (number < BLOCKS) {
            float s[2][4] = {};
            if (!strong) {
                add_pairs(s, number, number, DECAYS);
                keep_pairs(s, is_older);
            }
#pragma unroll
            for (int e = 0; e < 8; e++) {
                s[e / 4][e % 4] += diagonal[e / 4][e % 4];
            }
            leave_pairs(s, layout::PAIRS, number, number);
        }
    }
    // What flows back to the divisors of block r's tokens comes to each of their pairs.
    __device__ __forceinline__ void add_divisors(float (&s)[2][4], int r) const
    {
#pragma unroll
        for (int half = 0; cfg::NORMALISE && half < 2; half++) {
            const float x = divisor_gradient(p, w, place + BLOCK * r + lane_id() / 4 + 8 * half);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[e / 2][2 * half + e % 2] += x;
            }
        }
    }
    // The others, 6 of A and 10 of dA; those who have had no block first.
    __device__ __forceinline__ void make_pairs() const
    {
        constexpr int BELOW = BLOCKS * (BLOCKS - 1) / 2;
        constexpr int ALL = BELOW + BELOW + BLOCKS;
#pragma unroll 1
        for (int item = OWN_THREADS / 32 - 1 - number; item < ALL; item += OWN_THREADS / 32) {
            const bool back = item >= BELOW;
            const int n = back ? item - BELOW : item; // (1, 0), (2, 0), (2, 1), ..; behind them (0, 0), (1, 1), ..
            const int r = n >= BELOW ? n - BELOW : n < 1 ? 1 : n < 3 ? 2 : 3;
            const int c = n >= BELOW ? r : n - r * (r - 1) / 2;
            float s[2][4] = {};
            if (back) {
                add_product<PAD_V>(s, left_rows<PAD_V>::of(tile(layout::DO), BLOCK * r), right_rows<PAD_V>::of(tile(layout::V), BLOCK * c));
                add_divisors(s, r);
                if (r == c) {
                    leave_own_pairs(s, r);
                }
                keep_pairs(s, [&](int row, int column) { return r > c || column < row; });
                leave_pairs(s, layout::BACK, r, c);
            } else {
                add_pairs(s, r, c, DECAYS && r > c + 1);
                leave_pairs(s, layout::PAIRS, r, c);
            }
        }
    }
};

} // namespace linear
