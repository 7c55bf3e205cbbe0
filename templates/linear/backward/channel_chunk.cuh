// linear/backward/channel_chunk.cuh: what the backward passes with a decay by key channel have in common of a chunk of
// 64 tokens: sums over its pairs of tokens, each weighed in each channel by what the decays between the two leave, from
// the state in front and behind, and the gradients of the logarithms.
//
// What reads, q and with the delta rule k, gets from what has been written ahead of it: e^G S do + dA k, and what
// writes from the readers behind it. The gradient of a decay's logarithm is the sum, over the tokens from it on to the
// chunk's end, of what reads times its gradient less what writes times its gradient, and of all paths that cross the
// chunk's end: from the state, e^G_end S dS', and from the keys, k times the part of their gradient that comes from
// dS'.
//
// In that difference most terms are there twice, above all where decays are strong: what reads and what writes enter it
// as the products have them, weighed and rounded, so that a term is the same number both times. A token's pair with
// itself is left out of the products and comes to dq and dk in f32.
//
// A warp has 16 key channels of two blocks of 16 tokens.
#pragma once
#include "heads/input_sums.cuh"
#include "linear/backward/additive_tiles.cuh"

namespace linear
{

// Gradients of pairs within 16 tokens are two numbers of 16 bits, the second one what the first is off by. Where some
// channel is strong the first alone is read.
constexpr bool HAS_RESTS = !LOOKS;

struct channel_chunk : chunk_tiles {
    // to the logarithms: of what reads, times its gradient, less the same of what writes; with a bonus queries come
    // later
    fragments flow;
    float share;   // of a block's end, where its tokens read and write: half of it, or none
    bool by_level; // pairs of a block
    __device__ __forceinline__ void choose_share()
    {
        by_level = is_stronger(1.0f);
        share = !by_level && (LOOKS || is_stronger(0.0f)) ? 0.5f : 0.0f;
    }
    __device__ __forceinline__ bool is_strong() const { return LOOKS ? share == 0.0f : by_level; }

    template <class LEFT> DEV void multiply(float (&x)[2][4], const LEFT &left, int k, const u32 (&b)[4])
    {
        u32 a[4];
        left.load(a, k);
        mma_16x8x16<operand>(x[0], a, b[0], b[1]);
        mma_16x8x16<operand>(x[1], a, b[2], b[3]);
    }
    // Tokens of a tile of values, left(block), times the transposed state, of this warp's channels; 16 value channels a
    // step.
    template <class STATE, class F> __device__ __forceinline__ void
    read_state(fragments &x, const STATE &state, const F &left, int first = 0, int steps = PAD_V / 16) const
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
    // What undoes the scale of a state's 64 rows and columns.
    __device__ __forceinline__ float unscaled(const void *base, int row, int column) const
    {
        return *reinterpret_cast<const float *>(state_of(base, p, w, place, part) + scale_place(row, column));
    }
    // x += products of DEPTH rows or columns of a state: add(to, the first step of 16, steps) makes some; scale(row or
    // column) is what undoes the state's.
    template <int DEPTH, class ADD, class SCALE> DEV void each_scale(fragments &x, const ADD &add, const SCALE &scale)
    {
        if constexpr (STATE_SCALED) {
#pragma unroll 1
            for (int n = 0; n < DEPTH / 64; n++) {
                fragments scaled = {};
                add(scaled, 4 * n, 4);
                const float by = scale(64 * n);
#pragma unroll
                for (int e = 0; e < 8 * OWN_BLOCKS; e++) {
                    x[e / 8][e / 4 % 2][e % 4] += by * scaled[e / 8][e / 4 % 2][e % 4];
                }
            }
        } else {
            add(x, 0, DEPTH / 16);
        }
    }
    struct end_factors { // of this warp's channels
        float x[2][2];
    };
    // What is left from where the tokens of one block write or read to where those of a block next to it, or the edge
    // of the chunk, are met: `own` of the block's end, and the share of the other's.
    __device__ __forceinline__ end_factors factors(int which, float own, int next) const
    {
        end_factors by = {};
#pragma unroll
        for (int n = 0; DECAYS && n < 2; n++) {
            float2 log = end(which, channel(n));
            log.x *= own;
            log.y *= own;
            if (next >= 0 && next < BLOCKS) {
                const float2 other = end(next, channel(n));
                log.x += share * other.x;
                log.y += share * other.y;
            }
            by.x[n][0] = exp2_approx(log.x);
            by.x[n][1] = exp2_approx(log.y);
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
    // gradients of pairs, a matrix; the tile of tokens on the other side of them, block by block, and what it is made
    // of
    struct pair_sum {
        int pairs, tokens, from;
        float by;
        bool ahead = cfg::BONUS; // of tokens that read: before their own decay
    };
    struct side { // which tokens get something, and by what beside their weights they are in the products
        int from;
        float by;
        bool ahead = cfg::BONUS;
    };
    // Pairs of one block where no channel is strong: readers and writers lie at the same half of its end, or e^end
    // apart.
    template <bool BACK> __device__ __forceinline__ void add_own_blocks(fragments &x, const pair_sum &of) const
    {
        const auto tokens = right_columns<PAD_D>::of(tile(of.tokens), 16 * own);
#pragma unroll
        for (int m = 0; m < OWN_BLOCKS; m++) {
            u32 b[4];
            tokens.load(b, 0, block(m));
            if constexpr (LOOKS) {
                multiply_back<BACK>(x[m], of.pairs, block(m), block(m), b);
            } else {
                float s[2][4] = {};
                multiply_back<BACK>(s, of.pairs, block(m), block(m), b);
                multiply_rest<BACK>(s, of.pairs, block(m), b);
                scale_by(s, factors(block(m), 2.0f * share - 1.0f, -1));
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    x[m][e / 4][e % 4] += s[e / 4][e % 4];
                }
            }
        }
    }
    // x, of all blocks ahead or behind, to where the tokens of this warp's own ones read or write.
    template <bool BACK> __device__ __forceinline__ void reach_own_blocks(fragments &x) const
    {
#pragma unroll
        for (int m = 0; m < OWN_BLOCKS && (LOOKS || share > 0.0f); m++) {
            scale_by(x[m], factors(block(m), share, block(m) + (BACK ? 1 : -1)));
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
    template <bool BACK> __device__ __forceinline__ void multiply_back(float (&x)[2][4], int pairs, int row, int depth,
                                                                       const u32 (&b)[4]) const
    {
        u32 a[4];
        load_back<BACK>(a, pairs, row, depth);
        mma_16x8x16<operand>(x[0], a, b[0], b[1]);
        mma_16x8x16<operand>(x[1], a, b[2], b[3]);
    }
    // The same of what block r is off by, where that is kept.
    template <bool BACK>
    __device__ __forceinline__ void multiply_rest(float (&x)[2][4], int pairs, int r, const u32 (&b)[4]) const
    {
        multiply_back<BACK>(x, pairs, BACK ? rest_column(r) : rest_row(r), BACK ? rest_row(r) : rest_column(r), b);
    }
    // Where some are: level by level.
    template <bool BACK>
    __device__ __forceinline__ void add_levels(fragments &x, fragments &to, const side &as, const pair_sum &of) const
    {
        const auto tokens = right_columns<PAD_D>::of(tile(of.tokens), 16 * own);
#pragma unroll 1
        for (int half = 8; half > 0; half /= 2) {
            __syncwarp();
            if constexpr (BACK) {
                weigh_readers(of.tokens, of.from, of.by, half, of.ahead);
            } else {
                weigh_writers(half);
            }
            __syncwarp();
            fragments s = {};
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                u32 a[4];
                u32 b[4];
                tokens.load(b, 0, block(m));
                load_back<BACK>(a, of.pairs, block(m), block(m));
                keep_level<BACK>(a, half);
                mma_16x8x16<operand>(s[m][0], a, b[0], b[1]);
                mma_16x8x16<operand>(s[m][1], a, b[2], b[3]);
            }
            add_weighed(x, to, BACK ? -1.0f : 1.0f, as, s, [&](int m, int n, int i) {
                return BACK ? logs.writer(m, n, i, half) : logs.reader(m, n, i, half, as.ahead);
            });
        }
    }
    // x += s by weight(m, n, i); to += sign times tokens, weighed as in the products, times s.
    template <class F> __device__ __forceinline__ void
    add_weighed(fragments &x, fragments &to, float sign, const side &as, const fragments &s, const F &weight) const
    {
        each_two([&](int m, int n, int r) {
            const float by[2] = {weight(m, n, 2 * r), weight(m, n, 2 * r + 1)};
            if constexpr (GRADIENT_BY_KEY) {
                float two[2];
                load_pair<PAD_D>(tile(as.from), token(m, r), channel(n), two[0], two[1]);
                unpack<operand>(pack<operand>(two[0] * (as.by * by[0]), two[1] * (as.by * by[1])), two[0], two[1]);
                to[m][n][2 * r] += sign * two[0] * s[m][n][2 * r];
                to[m][n][2 * r + 1] += sign * two[1] * s[m][n][2 * r + 1];
            }
            x[m][n][2 * r] += by[0] * s[m][n][2 * r];
            x[m][n][2 * r + 1] += by[1] * s[m][n][2 * r + 1];
        });
    }
    // What writers get from readers behind them, of one kind or more; how they write, which all but the levels are
    // multiplied by, comes last.
    template <int N> __device__ __forceinline__ void sum_readers(fragments &x, const pair_sum (&of)[N])
    {
#pragma unroll
        for (int r = BLOCKS - 1; r > 0; r--) {
            const end_factors by = factors(r, 1.0f - share, r + 1);
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
        if (!is_strong()) {
            reach_own_blocks<true>(x);
#pragma unroll
            for (int n = 0; n < N; n++) {
                add_own_blocks<true>(x, of[n]);
            }
        }
        weigh_all(x, flow, -1.0f, {layout::K, 1.0f}, key_weights());
        if (is_strong()) {
            __syncthreads(); // the other warp of these channels has read what levels take the place of
#pragma unroll
            for (int n = 0; n < N; n++) {
                add_levels<true>(x, flow, {layout::K, 1.0f}, of[n]);
            }
        }
    }
    // What readers get from writers ahead of them; what of it flows to the logarithms.
    __device__ __forceinline__ void sum_writers(fragments &x, fragments &to, const side &as, const pair_sum &of) const
    {
        const auto writers = right_columns<PAD_D>::of(tile(of.tokens), 16 * own);
#pragma unroll
        for (int c = 0; c < BLOCKS - 1; c++) {
            u32 b[4];
            writers.load(b, 0, c);
            const end_factors by = factors(c, 1.0f - share, c - 1);
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                if (block(m) > c) {
                    scale_by(x[m], by);
                    multiply_back<false>(x[m], of.pairs, block(m), c, b);
                }
            }
        }
        if (!is_strong()) {
            reach_own_blocks<false>(x);
            add_own_blocks<false>(x, of);
        }
        const key_ends from = own_ends(share);
        weigh_all(x, to, 1.0f, as,
                  [&](int m, int n, int i) { return exp2_approx(logs.read(m, n, i, as.ahead) - from.x[m][n][i % 2]); });
        if (is_strong()) {
            __syncthreads(); // as above
            add_levels<false>(x, to, as, of);
        }
    }
    // x, that of all products but the levels', by weight(m, n, i).
    template <class F> __device__ __forceinline__ void weigh_all(fragments &x, fragments &to, float sign,
                                                                 const side &as, const F &weight) const
    {
        if constexpr (DECAYS) {
            fragments all = {};
            add_weighed(all, to, sign, as, x, weight);
            each_two([&](int m, int n, int r) {
                x[m][n][2 * r] = all[m][n][2 * r];
                x[m][n][2 * r + 1] = all[m][n][2 * r + 1];
            });
        }
    }
    struct key_weight { // of keys as they write
        const channel_chunk &of;
        key_ends ends;
        __device__ __forceinline__ float operator()(int m, int n, int i) const
        {
            return exp2_approx(ends.x[m][n][i % 2] - of.logs.x[m][n][i]);
        }
    };
    __device__ __forceinline__ key_weight key_weights() const { return {*this, own_ends(1.0f - share)}; }
    // What tokens get from their pairs with themselves: of keys, or by the scale of queries.
    __device__ __forceinline__ void add_own_pairs(fragments &x, int from, float by) const
    {
        each_two([&](int m, int n, int r) {
            float two[2];
            const float own = cfg::BONUS ? 0.0f : by * load_shared(own_pair(token(m, r)));
            load_pair<PAD_D>(tile(from), token(m, r), channel(n), two[0], two[1]);
            x[m][n][2 * r] += own * two[0];
            x[m][n][2 * r + 1] += own * two[1];
        });
    }
    // Keys times what they get from the state behind the chunk, whose part is in x, over this warp's tokens.
    __device__ __forceinline__ void leave_crossings(const fragments &x) const
    {
        float sum[2][2] = {};
        const key_ends left = ends_behind();
        const key_weight weight = key_weights();
        each_two([&](int m, int n, int r) {
            float k[2];
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), k[0], k[1]);
            unpack<operand>(pack<operand>(k[0] * weight(m, n, 2 * r), k[1] * weight(m, n, 2 * r + 1)), k[0], k[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                sum[n][e] += k[e] * exp2_approx(left.x[m][n][e] - weight.ends.x[m][n][e]) * x[m][n][2 * r + e];
            }
        });
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float all = sum_of_eight(sum[e / 2][e % 2]);
            if (lane_id() < 4) {
                store_shared(keys_cross(inner, e / 2, e % 2), all);
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
    __device__ __forceinline__ void give_queries(fragments &x)
    {
        fragments read = {}; // with a bonus
        sum_writers(x, cfg::BONUS ? read : flow, {layout::Q, w.scale}, {layout::BACK, layout::WRITES, layout::K, 1.0f});
        if constexpr (GRADIENT_BY_KEY) {
            sum_blocks(read);
        }
        add_own_pairs(x, layout::K, 1.0f);
        store_keys<dq_element>(x, w.scale, p.dq_head, p.dq, p.dq_b, p.dq_h, p.dq_t);
    }

    // ---- gradients of pairs --------------------------------------------------------------------------

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
    // Pairs of tokens of block r with themselves; with a bonus bwd_heads has them.
    __device__ __forceinline__ void leave_own_pairs(const float (&s)[2][4], int r) const
    {
#pragma unroll
        for (int e = 0; !cfg::BONUS && e < 8; e++) {
            const int row = lane_id() / 4 + e % 4 / 2 * 8;
            if (row == e / 4 * 8 + lane_id() % 4 * 2 + e % 2) {
                store_shared(own_pair(BLOCK * r + row), s[e / 4][e % 4]);
            }
        }
    }
    __device__ __forceinline__ void leave_pairs(const float (&s)[2][4], int to, int r, int c) const
    {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            store_pair<CHUNK_TOKENS>(tile(to), BLOCK * r + lane_id() / 4 + 8 * (e % 2),
                                     BLOCK * c + 8 * (e / 2) + lane_id() % 4 * 2, s[e / 2][e % 2 * 2],
                                     s[e / 2][e % 2 * 2 + 1]);
        }
    }
    // What block r of pairs was off by when it was left as 16 bits lies above the diagonal, beside own_pair.
    DEV int rest_row(int r) { return r / 2; }
    DEV int rest_column(int r) { return (r + 3) / 2; }
    __device__ __forceinline__ void leave_rest(float (&s)[2][4], int to, int r) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float *two = &s[k / 2][k % 2 * 2];
            float kept[2];
            unpack<operand>(pack<operand>(two[0], two[1]), kept[0], kept[1]);
            two[0] -= kept[0];
            two[1] -= kept[1];
        }
        leave_pairs(s, to, rest_row(r), rest_column(r));
    }

    // ---- logarithms ----------------------------------------------------------------------------------

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
    // Sums over the tokens of a block from each on; what a block has in all to shared memory. ahead: of what reads
    // before its own decay, with a bonus or cfg::READS_BEFORE.
    __device__ __forceinline__ void sum_blocks(const fragments &ahead)
    {
#pragma unroll
        for (int k = 0; k < 4 * OWN_BLOCKS; k++) {
            const int m = k / 4;
            const int n = k / 2 % 2;
            const int e = k % 2;
            float read[2] = {ahead[m][n][e], ahead[m][n][2 + e]};
            float first = 0.0f;
            if constexpr (cfg::BONUS || cfg::READS_BEFORE) {
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
                store_shared(flow_at(block(m), n, e), lower + first);
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
            const float keys =
                load_shared(keys_cross(false, k / 2, k % 2)) + load_shared(keys_cross(true, k / 2, k % 2));
            float behind = keys + exp2_approx(log) * load_shared(tile(layout::CROSS + 4 * at));
#pragma unroll
            for (int b = BLOCKS - 1; b >= 0; b--) {
#pragma unroll
                for (int m = 0; m < OWN_BLOCKS; m++) {
                    if (b == block(m)) {
                        end_block(behind, m, k / 2, k % 2);
                    }
                }
                behind += load_shared(flow_at(b, k / 2, k % 2));
            }
        }
        if constexpr (LOOKS && !DECAY_BY_KEY) {
            give_sums();
            return;
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
                store_vec<2, float>(of_band<cfg::D>(p, w, p.dlog) + (line_of(p, w, at) * cfg::D + i), two);
            }
        });
    }
    // Where all channels have one decay: sums over them, which stand in the place of what reads.
    __device__ __forceinline__ void give_sums() const
    {
        const u32 sums = tile(layout::READS);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 2 * OWN_BLOCKS; k++) {
            const auto &x = flow[k / 2];
            const int r = k % 2;
            const float sum = sum4((x[0][2 * r] + x[0][2 * r + 1]) + (x[1][2 * r] + x[1][2 * r + 1]));
            if (lane_id() % 4 == 0) {
                store_shared(sums + static_cast<u32>(4 * (own * CHUNK_TOKENS + token(k / 2, r))), sum);
            }
        }
        __syncthreads();
        const int at = place + static_cast<int>(threadIdx.x);
        if (threadIdx.x < CHUNK_TOKENS && w.has(at)) {
            float all = 0.0f;
#pragma unroll
            for (int k = 0; k < OWN_WARPS; k++) {
                all += load_shared(sums + 4 * (static_cast<u32>(k * CHUNK_TOKENS) + threadIdx.x));
            }
            of_band<KEY_PARTS>(
                p, w, p.dlog)[part * (static_cast<i64>(p.z.n_b) * p.z.n_h * p.z.len_q) + line_of(p, w, at)] = all;
        }
    }
    // To the inputs that the logarithms of two channels are made of.
    __device__ __forceinline__ void give_inputs(int at, int channel, const float (&x)[2]) const
    {
        const typename variant::row row = w.row(p, at);
        repeat<0, variant::SITES>([&]<int G>() {
            if constexpr (variant::SITE_OF[G] == OF_DECAY) {
                constexpr bool ADDS = variant::SITE_ADDS[G];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float value = variant::template site<G>(p.x, p.z, w.head, row, channel + e, x[e]);
                    back::store_or_add(variant::template site_address<G>(p.g, p.x, p.z, w.head, row, channel + e),
                                       value, ADDS);
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

// A block's part of a chunk, or of a band of it: CHUNK is a channel_chunk with nothing of its own to begin with.
template <class CHUNK> DEV void back_of_chunk(const linear_back_params &p, unsigned char *bytes)
{
    const int block = static_cast<int>(blockIdx.x);
    inverse_work at = find_chunk(p, block / (BANDS * KEY_PARTS));
    if constexpr (BANDS > 1) {
        at.w.first = block / KEY_PARTS % BANDS * PAD_V;
    }
    if (at.place >= at.w.s.length) {
        return;
    }
    at.w.scale = variant::scale(p.x, p.z, at.w.head);
    const int number = static_cast<int>(threadIdx.x) / 32;
    CHUNK chunk{channel_chunk{{{number >= OWN_WARPS},
                               p,
                               at.w,
                               at.place,
                               block % KEY_PARTS,
                               shared_address(bytes),
                               number,
                               number % OWN_WARPS,
                               {}},
                              {},
                              0.0f,
                              false}};
    chunk.run();
}

} // namespace linear
