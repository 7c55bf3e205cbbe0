// linear/backward/channel_chunk.cuh: what the backward passes with a decay by key channel have in common of a chunk of 64 tokens: sums over its pairs of tokens,
// each weighed in each channel by what the decays between the two leave, from the state in front and behind, and the gradients of the logarithms.
//
// What reads, q and with the delta rule k, gets from what has been written ahead of it: e^G S do + dA k, and what writes from the readers behind it. The gradient
// of a decay's logarithm is the sum, over the tokens from it on to the chunk's end, of what reads times its gradient less what writes times its gradient, and of all
// paths that cross the chunk's end: from the state, e^G_end S dS', and from the keys, k times the part of their gradient that comes from dS'.
//
// A warp has 16 key channels of two blocks of 16 tokens.
#pragma once
#include "heads/input_sums.cuh"
#include "linear/backward/additive_tiles.cuh"

namespace linear {

struct channel_chunk : chunk_tiles {
    fragments flow; // to the logarithms: of what reads, times its gradient, less the same of what writes

    template <class LEFT> DEV void multiply(float (&x)[2][4], const LEFT &left, int k, const u32 (&b)[4])
    {
        u32 a[4];
        left.load(a, k);
        mma_16x8x16<element>(x[0], a, b[0], b[1]);
        mma_16x8x16<element>(x[1], a, b[2], b[3]);
    }
    // Tokens of a tile of values, left(block), times the transposed state, of this warp's channels; 16 value channels a step.
    template <class STATE, class F> __device__ __forceinline__ void read_state(fragments &x, const STATE &state, const F &left, int first = 0, int steps = PAD_V / 16) const
    {
#pragma unroll 2
        for (int k = first; k < first + steps; k++) {
            u32 b[4];
            state.load(b, 0, k);
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                multiply(x[m], left(block(m)), k, b);
            }
        }
    }
    struct end_factors { // of this warp's channels
        float x[2][2];
    };
    // e^end of a block, or its inverse.
    __device__ __forceinline__ end_factors of_end(int which, float sign) const
    {
        end_factors by = {};
#pragma unroll
        for (int n = 0; DECAYS && n < 2; n++) {
            const float2 log = end(which, channel(n));
            by.x[n][0] = exp2_approx(sign * log.x);
            by.x[n][1] = exp2_approx(sign * log.y);
        }
        return by;
    }
    DEV void scale_by(float (&x)[2][4], const end_factors &by)
    {
#pragma unroll
        for (int e = 0; DECAYS && e < 8; e++) {
            x[e / 4][e % 4] *= by.x[e / 4][e % 2];
        }
    }
    struct pair_sum { // gradients of pairs, a matrix; the tile of tokens on the other side of them, block by block, and what it is made of
        int pairs, tokens, from;
        float by;
    };
    // Pairs of one block where no channel is strong: readers and writers lie e^end apart.
    template <bool BACK> __device__ __forceinline__ void add_own_blocks(fragments &x, const pair_sum &of) const
    {
        const auto tokens = right_columns<PAD_D>::of(tile(of.tokens), 16 * own);
#pragma unroll
        for (int m = 0; m < OWN_BLOCKS; m++) {
            u32 b[4];
            float s[2][4] = {};
            tokens.load(b, 0, block(m));
            multiply_back<BACK>(s, of.pairs, block(m), block(m), b);
            scale_by(s, of_end(block(m), -1.0f));
#pragma unroll
            for (int e = 0; e < 8; e++) {
                x[m][e / 4][e % 4] += s[e / 4][e % 4];
            }
        }
    }
    // Block (row, depth) of gradients of pairs, or of their transpose, on the left.
    template <bool BACK> __device__ __forceinline__ void load_back(u32 (&a)[4], int pairs, int row, int depth) const
    {
        if constexpr (BACK) {
            left_columns<CHUNK_TOKENS>::of(tile(pairs), BLOCK * row).load(a, depth);
        } else {
            left_rows<CHUNK_TOKENS>::of(tile(pairs), BLOCK * row).load(a, depth);
        }
    }
    // x += that times 16 tokens.
    template <bool BACK> __device__ __forceinline__ void multiply_back(float (&x)[2][4], int pairs, int row, int depth, const u32 (&b)[4]) const
    {
        u32 a[4];
        load_back<BACK>(a, pairs, row, depth);
        mma_16x8x16<element>(x[0], a, b[0], b[1]);
        mma_16x8x16<element>(x[1], a, b[2], b[3]);
    }
    // Where some are: level by level.
    template <bool BACK> __device__ __forceinline__ void add_levels(fragments &x, const pair_sum &of) const
    {
        const auto tokens = right_columns<PAD_D>::of(tile(of.tokens), 16 * own);
#pragma unroll 1
        for (int level = 0; level < (cfg::BONUS ? 4 : 5); level++) {
            const int half = 8 >> level;
            __syncwarp();
            if constexpr (BACK) {
                weigh_readers(of.tokens, of.from, of.by, half);
            } else {
                weigh_writers(half);
            }
            __syncwarp();
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                u32 a[4];
                u32 b[4];
                float s[2][4] = {};
                tokens.load(b, 0, block(m));
                load_back<BACK>(a, of.pairs, block(m), block(m));
                keep_level<BACK>(a, half);
                mma_16x8x16<element>(s[0], a, b[0], b[1]);
                mma_16x8x16<element>(s[1], a, b[2], b[3]);
                add_weighed<BACK>(x, s, m, half);
            }
        }
    }
    template <bool BACK> __device__ __forceinline__ void add_weighed(fragments &x, const float (&s)[2][4], int m, int half) const
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int n = e / 4;
            const int i = e % 4;
            const float by = half == 0 ? 1.0f : BACK ? logs.writer(m, n, i, half) : logs.reader(m, n, i, half);
            x[m][n][i] += by * s[n][i];
        }
    }
    // What writers get from readers behind them, of one kind or more; e^(end - c), which all but the levels are multiplied by, comes last.
    template <int N> __device__ __forceinline__ void sum_readers(fragments &x, const pair_sum (&of)[N], bool strong) const
    {
#pragma unroll
        for (int r = BLOCKS - 1; r > 0; r--) {
            const end_factors by = of_end(r, 1.0f);
#pragma unroll
            for (int n = 0; n < N; n++) {
                u32 b[4];
                right_columns<PAD_D>::of(tile(of[n].tokens), 16 * own).load(b, 0, r);
#pragma unroll
                for (int m = 0; m < OWN_BLOCKS; m++) {
                    if (block(m) < r) {
                        if (n == 0) {
                            scale_by(x[m], by);
                        }
                        multiply_back<true>(x[m], of[n].pairs, block(m), r, b);
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < N && !strong; n++) {
            add_own_blocks<true>(x, of[n]);
        }
        weigh_keys(x);
        if (strong) {
            __syncthreads(); // the other warp of these channels has read what levels take the place of
#pragma unroll
            for (int n = 0; n < N; n++) {
                add_levels<true>(x, of[n]);
            }
        }
    }
    // What readers get from writers ahead of them.
    __device__ __forceinline__ void sum_writers(fragments &x, const pair_sum &of, bool strong) const
    {
        const auto writers = right_columns<PAD_D>::of(tile(of.tokens), 16 * own);
#pragma unroll
        for (int c = 0; c < BLOCKS - 1; c++) {
            u32 b[4];
            writers.load(b, 0, c);
            const end_factors by = of_end(c, 1.0f);
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                if (block(m) > c) {
                    scale_by(x[m], by);
                    multiply_back<false>(x[m], of.pairs, block(m), c, b);
                }
            }
        }
        if (!strong) {
            add_own_blocks<false>(x, of);
        }
#pragma unroll
        for (int e = 0; DECAYS && e < 8 * OWN_BLOCKS; e++) {
            x[e / 8][e / 4 % 2][e % 4] *= exp2_approx(logs.read(e / 8, e / 4 % 2, e % 4));
        }
        if (strong) {
            __syncthreads(); // as above
            add_levels<false>(x, of);
        }
    }
    // To the logarithms: keys times what they get, as readers or, with -1, as writers.
    __device__ __forceinline__ void add_flow(const fragments &x, float sign)
    {
        each_two([&](int m, int n, int r) {
            float k[2];
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), k[0], k[1]);
            flow[m][n][2 * r] += sign * k[0] * x[m][n][2 * r];
            flow[m][n][2 * r + 1] += sign * k[1] * x[m][n][2 * r + 1];
        });
    }
    __device__ __forceinline__ void weigh_keys(fragments &x) const
    {
        const key_ends of = own_ends();
#pragma unroll
        for (int e = 0; DECAYS && e < 8 * OWN_BLOCKS; e++) {
            x[e / 8][e / 4 % 2][e % 4] *= exp2_approx(of.x[e / 8][e / 4 % 2][e % 2] - logs.x[e / 8][e / 4 % 2][e % 4]);
        }
    }
    // Keys times what they get from the state behind the chunk, whose part is in x, over this warp's tokens.
    __device__ __forceinline__ void leave_crossings(const fragments &x) const
    {
        float sum[2][2] = {};
        const key_ends left = ends_behind();
        each_two([&](int m, int n, int r) {
            float k[2];
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), k[0], k[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                sum[n][e] += k[e] * exp2_approx(left.x[m][n][e] - logs.x[m][n][2 * r + e]) * x[m][n][2 * r + e];
            }
        });
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float all = sum_of_eight(sum[e / 2][e % 2]);
            if (lane_id() < 4) {
                store_shared(tile(layout::KEYS_CROSS + 4 * ((inner ? PAD_D : 0) + channel(e / 2) + e % 2)), all);
            }
        }
    }
    DEV float sum_of_eight(float x)
    {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
            x += __shfl_xor_sync(ALL_LANES, x, step);
        }
        return x;
    }
    // dq without its scale, from what the state in front gives.
    __device__ __forceinline__ void give_queries(fragments &x, bool strong)
    {
        sum_writers(x, {layout::BACK, layout::WRITES, layout::K, 1.0f}, strong);
        if constexpr (GRADIENT_BY_KEY) {
            sum_blocks(x);
        }
        store_keys<cfg::DQ_F32>(x, w.scale, p.dq_head, p.dq, p.dq_b, p.dq_h, p.dq_t);
    }

    // ---- gradients of pairs ---------------------------------------------------------------------------------------------

    // f(row, column) says which of a block stay.
    template <class F> DEV void keep_pairs(float (&s)[2][4], const F &f)
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int row = lane_id() / 4 + e % 4 / 2 * 8;
            const int column = e / 4 * 8 + lane_id() % 4 * 2 + e % 2;
            s[e / 4][e % 4] = f(row, column) ? s[e / 4][e % 4] : 0.0f;
        }
    }
    __device__ __forceinline__ void leave_pairs(const float (&s)[2][4], int to, int r, int c) const
    {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            store_pair<CHUNK_TOKENS>(tile(to), BLOCK * r + lane_id() / 4 + 8 * (e % 2), BLOCK * c + 8 * (e / 2) + lane_id() % 4 * 2, s[e / 2][e % 2 * 2], s[e / 2][e % 2 * 2 + 1]);
        }
    }

    // ---- logarithms -----------------------------------------------------------------------------------------------------

    // Of eight tokens, from each of them on.
    DEV float sum_behind(float x)
    {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
            const float behind = __shfl_down_sync(ALL_LANES, x, static_cast<u32>(step));
            x += lane_id() + step < 32 ? behind : 0.0f;
        }
        return x;
    }
    DEV float first_of_eight(float x) { return __shfl_sync(ALL_LANES, x, lane_id() % 4); }
    // What reads times its gradient, of a token.
    __device__ __forceinline__ float reads(const fragments &x, int m, int n, int i) const
    {
        float q[2];
        load_pair<PAD_D>(tile(layout::Q), token(m, i / 2), channel(n), q[0], q[1]);
        return w.scale * q[i % 2] * x[m][n][i];
    }
    // Sums over the tokens of a block from each on; what a block has in all to shared memory.
    __device__ __forceinline__ void sum_blocks(const fragments &x)
    {
#pragma unroll
        for (int k = 0; k < 4 * OWN_BLOCKS; k++) {
            const int m = k / 4;
            const int n = k / 2 % 2;
            const int e = k % 2;
            float read[2] = {reads(x, m, n, e), reads(x, m, n, 2 + e)};
            float first = 0.0f;
            if constexpr (cfg::BONUS) { // a token reads before its own decay
                first = first_of_eight(read[0]);
                const float half = first_of_eight(read[1]);
                const float low = __shfl_down_sync(ALL_LANES, read[0], 4);
                const float high = __shfl_down_sync(ALL_LANES, read[1], 4);
                read[0] = lane_id() < 28 ? low : half;
                read[1] = lane_id() < 28 ? high : 0.0f;
            }
            const float upper = sum_behind(flow[m][n][2 + e] + read[1]);
            const float lower = sum_behind(flow[m][n][e] + read[0]) + first_of_eight(upper);
            flow[m][n][2 + e] = upper;
            flow[m][n][e] = lower;
            if (lane_id() < 4) {
                store_shared(tile(layout::FLOWS + 4 * (block(m) * PAD_D + channel(n) + e)), lower + first);
            }
        }
    }
    // What crosses the chunk's end, and the blocks behind this warp's.
    __device__ __forceinline__ void give_decays()
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int at = channel(k / 2) + k % 2;
            float log = 0.0f;
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                log += load_shared(tile(layout::ENDS + 4 * (b * PAD_D + at)));
            }
            const float keys = load_shared(tile(layout::KEYS_CROSS + 4 * at)) + load_shared(tile(layout::KEYS_CROSS + 4 * (PAD_D + at)));
            float behind = keys + exp2_approx(log) * load_shared(tile(layout::CROSS + 4 * at));
#pragma unroll
            for (int b = BLOCKS - 1; b >= 0; b--) {
#pragma unroll
                for (int m = 0; m < OWN_BLOCKS; m++) {
                    if (b == block(m)) {
                        end_block(behind, m, k / 2, k % 2);
                    }
                }
                behind += load_shared(tile(layout::FLOWS + 4 * (b * PAD_D + at)));
            }
        }
        each_two([&](int m, int n, int r) {
            const int at = place + token(m, r);
            const int i = first_channel() + channel(n);
            if (!w.has(at) || i >= cfg::D) {
                return;
            }
            const float two[2] = {flow[m][n][2 * r], flow[m][n][2 * r + 1]};
            if constexpr (cfg::GIVES_DECAY) {
                give_inputs(at, i, two);
            } else {
                store_vec<2, float>(p.dlog + (line_of(p, w, at) * cfg::D + i), two);
            }
        });
    }
    // To the inputs that the logarithms of two channels are made of.
    __device__ __forceinline__ void give_inputs(int at, int channel, const float (&x)[2]) const
    {
        const typename variant::row row = w.row(p, at);
        repeat<0, variant::SITES>([&]<int G>() {
            if constexpr (variant::SITE_OF[G] == OF_DECAY) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float value = variant::template site<G>(p.x, p.z, w.head, row, channel + e, x[e]);
                    back::give_sum(variant::template site_address<G>(p.g, p.x, p.z, w.head, row, channel + e), value);
                }
            }
        });
    }
    __device__ __forceinline__ void end_block(float behind, int m, int n, int e)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float &x = flow[m][n][2 * r + e];
            x = logs.is_forgotten(m, n, r, e) ? 0.0f : x + behind;
        }
    }
};

} // namespace linear
