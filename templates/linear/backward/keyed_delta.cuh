// linear/backward/keyed_delta.cuh: kernel: what of the delta rule's backward pass behind a decay by key channel is of a
// chunk of 64 tokens alone, from what the walks have left (keyed_states.cuh, which has the names). With dA = do X' from
// the diagonal on and dN = -(dv X') below it, each pair of tokens weighed in each channel by what the decays between
// them leave:
//     dq = scale (e^G do S' + dA k),    dk = -e^G dv S' + dN k + e^(G_end - G) X dS'' + scale dA' q + dN' k,    dbeta =
//     dv X / beta^2 Gradients of logarithms are those of channel_chunk.cuh.
//
// Launch of bwd_chunks: KEY_PARTS blocks of OWN_THREADS threads for each chunk of each head, or each band of its
// value channels, which share its key channels, smem_bytes::bwd_chunks of shared memory. A warp has 16 key channels of
// two blocks of 16 tokens; of dA and dN, which each block makes, it has blocks of 16 x 16, of dv, which the first one
// gives, 16 columns.
#pragma once
#include "linear/backward/channel_chunk.cuh"
#include "linear/backward/keyed_states.cuh"

namespace linear
{

struct keyed_gradients : channel_chunk {
    // X or dv, PAD_V rows of 64 tokens.
    __device__ __forceinline__ void load_values(int to, const void *base) const
    {
        const operand *from = static_cast<const operand *>(base) + chunk_of_head(p, w, place) * PAD_V * CHUNK_TOKENS;
#pragma unroll
        for (int i = 0; i < PAD_V; i += CHUNK_TOKENS) {
            load_rows<CHUNK_TOKENS, OWN_THREADS>(tile(to) + static_cast<u32>(i * swizzle<CHUNK_TOKENS>::ROW_BYTES),
                                                 from + i * CHUNK_TOKENS, CHUNK_TOKENS, CHUNK_TOKENS, CHUNK_TOKENS);
        }
    }
    __device__ __forceinline__ void fetch()
    {
        load<PAD_D, cfg::element_q>(layout::Q, p.q, w.s.batch * p.q_b + w.h_kv * p.q_h + first_channel(), p.q_t,
                                    cfg::D - first_channel());
        load<PAD_D, cfg::element_k>(layout::K, p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + first_channel(), p.k_t,
                                    cfg::D - first_channel());
        load<PAD_V, cfg::element_o>(layout::DO, p.dout, w.s.batch * p.dout_b + w.h * p.dout_h + first_of_band(w),
                                    p.dout_t, columns_of_band(w));
        load_values(layout::V, p.written);
        load_values(layout::Z, p.dwritten);
        if (POWERS_APART && threadIdx.x < CHUNK_TOKENS / 4) {
            const unsigned char *from = prepared::of<prepared::END_BACK>(p, w.s, w.h, place) + prepared::POWERS;
            copy16_async(power_at(4 * static_cast<int>(threadIdx.x)), from + 16 * threadIdx.x, 16);
        }
        copy_commit();
        load_state<PAD_V, PAD_D>(layout::BEHIND, p.dstates);
        load_state<PAD_V, PAD_D>(layout::FRONT, p.states);
        copy_commit();
        logs.fetch(p, w, place, *this, first_channel() + channel(0));
        logs.sum();
    }
    // Of a token: what is kept apart from X and dv.
    __device__ __forceinline__ u32 power_at(int token) const { return above_pairs(layout::KEYS_BACK, token); }
    __device__ __forceinline__ float power(int token) const
    {
        return POWERS_APART ? load_shared(power_at(token)) : 1.0f;
    }
    __device__ __forceinline__ void weigh_blocks() const
    {
        const key_ends from = own_ends(share);
        const key_ends to = own_ends(1.0f - share);
        each_two([&](int m, int n, int r) {
            float q[2];
            float k[2];
            float x[2];
            load_pair<PAD_D>(tile(layout::Q), token(m, r), channel(n), q[0], q[1]);
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), k[0], k[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float log = logs.x[m][n][2 * r + e];
                const float reads = exp2_approx(log - from.x[m][n][e]);
                x[e] = k[e] * exp2_approx(to.x[m][n][e] - log);
                q[e] *= w.scale * reads;
                k[e] *= reads;
            }
            store_pair<PAD_D>(tile(layout::READS), token(m, r), channel(n), q[0], q[1]);
            store_pair<PAD_D>(tile(layout::KEYS_READ), token(m, r), channel(n), k[0], k[1]);
            store_pair<PAD_D>(tile(layout::WRITES), token(m, r), channel(n), x[0], x[1]);
        });
    }
    // Where levels have taken their place.
    __device__ __forceinline__ void weigh_writers_again() const
    {
        const key_weight weight = key_weights();
        __syncwarp();
        weigh(layout::WRITES, layout::K, weight);
    }

    // ---- pairs of tokens -----------------------------------------------------------------------------

    // dv X of a token is the gradient of beta times beta^2.
    __device__ __forceinline__ void store_betas(const float (&s)[2][4], int r) const
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int row = lane_id() / 4 + e % 4 / 2 * 8;
            const int at = place + BLOCK * r + row;
            if (row == e / 4 * 8 + lane_id() % 4 * 2 + e % 2 && w.has(at) && part == 0) {
                of_band<1>(p, w, p.dbeta)[line_of(p, w, at)] = s[e / 4][e % 4];
            }
        }
    }
    // With the powers of writers, and of readers where those are tokens' values, too.
    __device__ __forceinline__ void join_powers(float (&s)[2][4], int r, int c, bool readers) const
    {
#pragma unroll
        for (int e = 0; POWERS_APART && e < 8; e++) {
            const float by = power(BLOCK * c + e / 4 * 8 + lane_id() % 4 * 2 + e % 2);
            s[e / 4][e % 4] *= readers ? by * power(BLOCK * r + lane_id() / 4 + e % 4 / 2 * 8) : by;
        }
    }
    // 10 blocks of dA and as many of dN, which is dv X' where what is read is added.
    __device__ __forceinline__ void make_pairs() const
    {
        constexpr int EACH = BLOCKS * (BLOCKS + 1) / 2;
#pragma unroll 1
        for (int item = number; item < 2 * EACH; item += OWN_THREADS / 32) {
            const int n = item % EACH; // (0, 0), (1, 0), (1, 1), ..
            const int r = n < 1 ? 0 : n < 3 ? 1 : n < 6 ? 2 : 3;
            const int c = n - r * (r + 1) / 2;
            const auto written = right_columns<CHUNK_TOKENS>::of(tile(layout::V), BLOCK * c);
            float s[2][4] = {};
            if (item < EACH) {
                add_product<PAD_V>(s, left_rows<PAD_V>::of(tile(layout::DO), BLOCK * r), written);
                join_powers(s, r, c, false);
                if (r == c) {
                    leave_own_pairs(s, r);
                }
                keep_pairs(s, [&](int row, int column) { return r > c || column < row; });
                leave_pairs(s, layout::BACK, r, c);
            } else {
                add_product<PAD_V>(s, left_columns<CHUNK_TOKENS>::of(tile(layout::Z), BLOCK * r), written);
                join_powers(s, r, c, true);
                if (cfg::DELTA && r == c) {
                    store_betas(s, r);
                }
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    s[e / 4][e % 4] = cfg::DELTA ? -s[e / 4][e % 4] : s[e / 4][e % 4];
                }
                keep_pairs(s, [&](int row, int column) { return r > c || column < row; });
                leave_pairs(s, layout::KEYS_BACK, r, c);
            }
        }
    }

    // ---- gradients -----------------------------------------------------------------------------------

    // dv as it lies in shared memory.
    __device__ __forceinline__ void give_values() const
    {
#pragma unroll 1
        for (int first = 16 * own; first < columns_of_band(w); first += 16 * OWN_WARPS) {
            fragments x;
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                u32 a[4];
                left_columns<CHUNK_TOKENS>::of(tile(layout::Z), BLOCK * block(m)).load(a, first / 16);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float *two = &x[m][i / 2][i % 2 * 2];
                    unpack<operand>(a[i], two[0], two[1]);
                    if constexpr (POWERS_APART) {
                        two[0] *= power(token(m, i % 2));
                        two[1] *= power(token(m, i % 2));
                    }
                }
            }
            store_values(x, first);
        }
    }
    // Tokens of a tile, left(block), times a state at `base`, which is in shared memory at `which`.
    template <class F>
    __device__ __forceinline__ void read_columns(fragments &x, int which, const void *base, const F &left) const
    {
        const auto state = right_columns<PAD_D>::of(tile(which), 16 * own);
        each_scale<PAD_V>(
            x, [&](fragments &to, int first, int steps) { read_state(to, state, left, first, steps); },
            [&](int column) { return unscaled(base, 0, column); });
    }
    // X or dv.
    __device__ __forceinline__ void read_values(fragments &x, int which, const void *base, int values) const
    {
        read_columns(x, which, base,
                     [&](int block) { return left_columns<CHUNK_TOKENS>::of(tile(values), BLOCK * block); });
        if constexpr (POWERS_APART) {
            each_two([&](int m, int n, int r) {
                x[m][n][2 * r] *= power(token(m, r));
                x[m][n][2 * r + 1] *= power(token(m, r));
            });
        }
    }
    // Of keys as they write.
    __device__ __forceinline__ void make_writers(fragments &x)
    {
        read_values(x, layout::BEHIND, p.dstates, layout::V);
        if constexpr (GRADIENT_BY_KEY) {
            leave_crossings(x);
        }
        const pair_sum readers[2] = {{layout::BACK, layout::READS, layout::Q, w.scale},
                                     {layout::KEYS_BACK, layout::KEYS_READ, layout::K, 1.0f}};
        sum_readers(x, readers);
        add_own_pairs(x, layout::Q, w.scale);
    }
    // And with what they get as they read.
    __device__ __forceinline__ void give_keys(fragments &dk)
    {
        fragments x = {};
        read_values(x, layout::FRONT, p.states, layout::Z);
#pragma unroll
        for (int e = 0; e < 8 * OWN_BLOCKS; e++) {
            x[e / 8][e / 4 % 2][e % 4] = -x[e / 8][e / 4 % 2][e % 4];
        }
        sum_writers(x, flow, {layout::K, 1.0f}, {layout::KEYS_BACK, layout::WRITES, layout::K, 1.0f});
#pragma unroll
        for (int e = 0; e < 8 * OWN_BLOCKS; e++) {
            dk[e / 8][e / 4 % 2][e % 4] += x[e / 8][e / 4 % 2][e % 4];
        }
        store_keys<dk_element>(dk, 1.0f, p.dk_head, p.dk, p.dk_b, p.dk_h, p.dk_t);
    }
    // Sums over the columns of each channel of the state in front of the chunk times the gradient of that behind it, of
    // eight channels a warp.
    __device__ __forceinline__ void cross_states() const
    {
        float sum[8] = {};
#pragma unroll 2
        for (int row = lane_id(); row < PAD_V; row += 32) {
            const u32 at = swizzle<PAD_D>::offset(row, number);
            const uint4 x = load_shared16(tile(layout::FRONT) + at);
            const uint4 y = load_shared16(tile(layout::BEHIND) + at);
            const u32 mine[4] = {x.x, x.y, x.z, x.w};
            const u32 other[4] = {y.x, y.y, y.z, y.w};
            const float by = STATE_SCALED ? unscaled(p.states, 0, row) * unscaled(p.dstates, 0, row) : 1.0f;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float a[2];
                float b[2];
                unpack<operand>(mine[e], a[0], a[1]);
                unpack<operand>(other[e], b[0], b[1]);
                sum[2 * e] += STATE_SCALED ? by * (a[0] * b[0]) : a[0] * b[0];
                sum[2 * e + 1] += STATE_SCALED ? by * (a[1] * b[1]) : a[1] * b[1];
            }
        }
        const float all = sum_of_half(sum);
        if (lane_id() < 8) {
            store_shared(tile(layout::CROSS + 4 * (8 * number + lane_id())), all);
        }
    }

    // ---- the chunk -----------------------------------------------------------------------------------

    __device__ __forceinline__ void run()
    {
        fetch();
        leave_ends();
        copy_wait<1>();
        __syncthreads();
        choose_share();
        weigh_blocks();
        make_pairs();
        if (part == 0) {
            give_values();
        }
        copy_wait<0>();
        __syncthreads();
        fragments dk = {};
        make_writers(dk);
        if constexpr (GRADIENT_BY_KEY) {
            cross_states();
        }
        give_keys(dk);
        if (is_strong()) {
            weigh_writers_again();
            __syncthreads();
        }
        fragments dq = {};
        read_columns(dq, layout::FRONT, p.states,
                     [&](int block) { return left_rows<PAD_V>::of(tile(layout::DO), BLOCK * block); });
        give_queries(dq);
        if constexpr (GRADIENT_BY_KEY) {
            __syncthreads();
            give_decays();
        }
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_chunks = linear::keyed_layout_back::END;
}

#if LATHE_COMPILED(bwd_chunks)
extern "C" __global__ void __launch_bounds__(linear::OWN_THREADS, 512 / linear::OWN_THREADS)
    LATHE_ENTRY(bwd_chunks)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::back_of_chunk<linear::keyed_gradients>(p, shared_bytes);
}
#endif
