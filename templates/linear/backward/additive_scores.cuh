// linear/backward/additive_scores.cuh: pairs of the tokens of a chunk in the backward pass of the additive family, in
// blocks of 16 x 16: A, which dv is made of, and dA, which dq and dk are made of.
#pragma once
#include "linear/backward/additive_states.cuh"
#include "linear/backward/channel_chunk.cuh"

namespace linear
{

struct chunk_pairs : channel_chunk {
    DEV bool is_older(int row, int column) { return column < row || (!cfg::BONUS && column == row); }
    // As they read, as they write, to the chunk's end.
    __device__ __forceinline__ void weigh_blocks() const
    {
        const key_ends from = own_ends(share);
        const key_ends of = own_ends(1.0f - share);
        const key_ends left = ends_behind();
        weigh(layout::READS, layout::Q,
              [&](int m, int n, int i) { return w.scale * exp2_approx(logs.read(m, n, i) - from.x[m][n][i % 2]); });
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
    // What is left of a channel from where block c writes to where block r, which is behind it, reads.
    __device__ __forceinline__ float2 between(int r, int c, int channel) const
    {
        const float2 first = end(c, channel);
        const float2 last = end(r, channel);
        float2 sum = {share * first.x + share * last.x, share * first.y + share * last.y};
        for (int b = c + 1; b < r; b++) {
            const float2 two = end(b, channel);
            sum.x += two.x;
            sum.y += two.y;
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
                    unpack<operand>(a[2 * half + i], x, y);
                    a[2 * half + i] = pack<operand>(x * by.x, y * by.y);
                }
            }
            mma_16x8x16<operand>(s[0], a, b[0], b[1]);
            mma_16x8x16<operand>(s[1], a, b[2], b[3]);
        }
    }

    // ---- pairs within a block ------------------------------------------------------------------------
    // With decays they are most of A. Their operands and what they sum up to are two numbers of 16 bits each, the
    // second one what the first is off by: by one number each dv would be off by twice what its own rounding makes.
    // A warp sums over its channels, whose logarithms it has; what warps have is added up behind that.

    struct two_parts {
        u32 whole[4], rest[4];
        __device__ __forceinline__ void set(int i, float x, float y)
        {
            float kept[2];
            whole[i] = pack<operand>(x, y);
            unpack<operand>(whole[i], kept[0], kept[1]);
            rest[i] = pack<operand>(x - kept[0], y - kept[1]);
        }
    };
    // sum += what readers of this warp's block m get, weighed by reader(n, i), from writers, by writer(n, i), of the
    // pairs that keep(row, column) names.
    template <class READER, class WRITER, class KEEP> __device__ __forceinline__ void
    add_within(float (&sum)[2][4], int m, const READER &reader, const WRITER &writer, const KEEP &keep) const
    {
        two_parts a;
        two_parts b;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int n = e / 2;
            const int r = e % 2;
            float x[2];
            load_pair<PAD_D>(tile(layout::Q), token(m, r), channel(n), x[0], x[1]);
            a.set(e, x[0] * reader(n, 2 * r), x[1] * reader(n, 2 * r + 1));
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), x[0], x[1]);
            b.set(e, x[0] * writer(n, 2 * r), x[1] * writer(n, 2 * r + 1));
        }
        float s[2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_16x8x16<operand>(s[n], a.rest, b.whole[n], b.whole[2 + n]);
            mma_16x8x16<operand>(s[n], a.whole, b.rest[n], b.rest[2 + n]);
            mma_16x8x16<operand>(s[n], a.whole, b.whole[n], b.whole[2 + n]);
        }
        keep_pairs(s, keep);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            sum[e / 4][e % 4] += s[e / 4][e % 4];
        }
    }
    // A token's own pair, weighed by the bonus.
    __device__ __forceinline__ void add_bonus(float (&sum)[2][4], int m) const
    {
        float u[2][2] = {};
#pragma unroll
        for (int e = 0; cfg::BONUS && e < 4; e++) {
            const int i = first_channel() + channel(e / 2);
            u[e / 2][e % 2] = i < cfg::D ? variant::bonus(p.x, p.z, w.head, i + e % 2) : 0.0f;
        }
        add_within(
            sum, m, [&](int, int) { return w.scale; }, [&](int n, int i) { return u[n][i % 2]; },
            [](int row, int column) { return row == column; });
    }
    // A warp's sums over its channels, where readers and writers will be.
    __device__ __forceinline__ u32 part_of_pairs(int warp, int m, int n) const
    {
        return tile(layout::READS) + static_cast<u32>(16 * (((warp * OWN_BLOCKS + m) * 2 + n) * 32 + lane_id()));
    }
    __device__ __forceinline__ void leave_parts_of_pairs() const
    {
        const key_ends of = own_ends(0.5f);
        const bool strong = is_strong();
#pragma unroll
        for (int m = 0; m < OWN_BLOCKS; m++) {
            float sum[2][4] = {};
            if (cfg::BONUS) {
                add_bonus(sum, m);
            }
            if (!strong) {
                add_within(
                    sum, m, [&](int n, int i) { return w.scale * exp2_approx(logs.read(m, n, i) - of.x[m][n][i % 2]); },
                    [&](int n, int i) { return exp2_approx(of.x[m][n][i % 2] - logs.x[m][n][i]); }, is_older);
            }
#pragma unroll 1
            for (int k = 0; strong && k < (cfg::BONUS ? 4 : 5); k++) {
                const int half = 8 >> k;
                add_within(
                    sum, m, [&](int n, int i) { return w.scale * logs.reader(m, n, i, half); },
                    [&](int n, int i) { return logs.writer(m, n, i, half); },
                    [&](int row, int column) { return meets(row, column, half); });
            }
            store_shared16(part_of_pairs(number, m, 0), sum[0]);
            store_shared16(part_of_pairs(number, m, 1), sum[1]);
        }
    }
    __device__ __forceinline__ void sum_parts_of_pairs() const
    {
        if (number >= BLOCKS) {
            return;
        }
        const bool in = number == 1 || number == 2; // a block of the inner ones
        float s[2][4] = {};
#pragma unroll
        for (int k = 0; k < 2 * OWN_WARPS; k++) {
            const uint4 x =
                load_shared16(part_of_pairs(k / 2 + (in ? OWN_WARPS : 0), in ? number - 1 : number / 3, k % 2));
            s[k % 2][0] += __uint_as_float(x.x);
            s[k % 2][1] += __uint_as_float(x.y);
            s[k % 2][2] += __uint_as_float(x.z);
            s[k % 2][3] += __uint_as_float(x.w);
        }
        leave_pairs(s, layout::PAIRS, number, number);
        leave_rest(s, layout::PAIRS, number);
    }

    // ---- other pairs ---------------------------------------------------------------------------------

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
    // 6 blocks of A and 10 of dA; those who have had no block first.
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
                add_product<PAD_V>(s, left_rows<PAD_V>::of(tile(layout::DO), BLOCK * r),
                                   right_rows<PAD_V>::of(tile(layout::V), BLOCK * c));
                add_divisors(s, r);
                if (r == c) {
                    leave_own_pairs(s, r);
                }
                keep_pairs(s, [&](int row, int column) { return r > c || column < row; });
                leave_pairs(s, layout::BACK, r, c);
                if (HAS_RESTS && r == c) {
                    leave_rest(s, layout::BACK, r);
                }
            } else {
                add_pairs(s, r, c, DECAYS && (r > c + 1 || share > 0.0f));
                leave_pairs(s, layout::PAIRS, r, c);
            }
        }
    }
};

} // namespace linear
