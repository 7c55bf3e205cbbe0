// linear/backward/additive.cuh: kernel: what of the additive family's backward pass is of a chunk of 64 tokens alone,
// from the states that the walks have left (additive_states.cuh). With A = scale (q k') and dA = do v' below the
// diagonal, each pair of tokens weighed in each channel by what the decays between them leave:
//     dv = e^(G_end - G) k dS' + A' do,    dk = e^(G_end - G) v dS' + scale dA' q,    dq = scale (e^G do S' + dA k) The
//     gradient of a decay's logarithm is the sum, over the tokens from it on to the chunk's end, of what reads times
//     its gradient less what is written times its gradient, and of all paths that cross the chunk's end: from the
//     state, e^G_end S dS', and from the keys, k times the first part of dk.
//
// Launch of bwd_chunks: KEY_PARTS blocks of OWN_THREADS threads for each chunk of each head, or each band of its value
// channels, smem_bytes::bwd_chunks of shared memory. A warp has 16 key channels of two blocks of 16 tokens; of A and dA
// it has blocks of 16 x 16, of dv 16 columns.
#pragma once
#include "linear/backward/additive_scores.cuh"

namespace linear
{

struct additive_chunk : chunk_pairs {
    // Of the sum of keys in front, or the gradient of that behind: of a channel.
    __device__ __forceinline__ float norm(const float *norms, int channel) const
    {
        const int i = first_channel() + channel;
        return cfg::NORMALISE && i < cfg::D ? norms[norm_place(p, w, place, i)] : 0.0f;
    }
    __device__ __forceinline__ float norm_product(int channel) const
    {
        return cfg::NORMALISE ? norm(p.norms, channel) * norm(p.dnorms, channel) : 0.0f;
    }
    // x += what a tile of values, whose tokens have value(token) beside them, gets from a state at `base`, in shared
    // memory at `which`, and from a sum of keys.
    template <class F> __device__ __forceinline__ void add_state(fragments &x, int which, const void *base, int values,
                                                                 const float *norms, const F &value) const
    {
        const auto state = right_rows<PAD_V>::of(tile(which), 16 * own);
        const auto left = [&](int block) { return left_rows<PAD_V>::of(tile(values), BLOCK * block); };
        each_scale<PAD_V>(
            x, [&](fragments &to, int first, int steps) { read_state(to, state, left, first, steps); },
            [&](int column) { return unscaled(base, 16 * own, column); });
        if constexpr (cfg::NORMALISE) {
            each_two([&](int m, int n, int r) {
                const float by = value(token(m, r));
                x[m][n][2 * r] += by * norm(norms, channel(n));
                x[m][n][2 * r + 1] += by * norm(norms, channel(n) + 1);
            });
        }
    }
    // Sums over each row of the state in front of the chunk times the gradient of that behind it; where there is room
    // for one alone, it becomes the first.
    __device__ __forceinline__ void change_state() const
    {
        constexpr int ACROSS = PAD_V / 8;
        const operand *from = state_of(p.states, p, w, place, part);
#pragma unroll 2
        for (int i = 0; i < STATE_ELEMENTS / 8 / OWN_THREADS; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * OWN_THREADS;
            const u32 at = swizzle<PAD_V>::offset(n / ACROSS, n % ACROSS);
            const uint4 x = cfg::CHUNK_STAGES > 1 ? load_shared16(tile(layout::FRONT) + at)
                                                  : *reinterpret_cast<const uint4 *>(from + n * 8);
            float own = product(x, load_shared16(tile(layout::BEHIND) + at));
            if constexpr (STATE_SCALED) {
                own *= unscaled(p.states, n / ACROSS, n % ACROSS * 8) * unscaled(p.dstates, n / ACROSS, n % ACROSS * 8);
            }
            const float sum = lanes_sum<ACROSS>(own);
            if (cfg::CHUNK_STAGES == 1) {
                const float word[4] = {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                                       __uint_as_float(x.w)};
                store_shared16(tile(layout::FRONT) + at, word);
            }
            if (lane_id() % ACROSS == 0) {
                store_shared(tile(layout::CROSS + 4 * (n / ACROSS)), sum + norm_product(n / ACROSS));
            }
        }
    }
    DEV float product(const uint4 &x, const uint4 &y)
    {
        const u32 mine[4] = {x.x, x.y, x.z, x.w};
        const u32 other[4] = {y.x, y.y, y.z, y.w};
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float a[2];
            float b[2];
            unpack<operand>(mine[e], a[0], a[1]);
            unpack<operand>(other[e], b[0], b[1]);
            sum += a[0] * b[0] + a[1] * b[1];
        }
        return sum;
    }
    __device__ __forceinline__ void give_values() const
    {
#pragma unroll 1
        for (int first = 16 * own; first < columns_of_band(w); first += 16 * OWN_WARPS) {
            fragments x = {};
            const auto state = right_columns<PAD_V>::of(tile(layout::BEHIND), first);
            const auto out = right_columns<PAD_V>::of(tile(layout::DO), first);
            const auto add = [&](fragments &to, int from, int steps) {
#pragma unroll 2
                for (int k = from; k < from + steps; k++) {
                    u32 b[4];
                    state.load(b, 0, k);
#pragma unroll
                    for (int m = 0; m < OWN_BLOCKS; m++) {
                        multiply(to[m], left_rows<PAD_D>::of(tile(layout::LASTS), BLOCK * block(m)), k, b);
                    }
                }
            };
            each_scale<PAD_D>(x, add, [&](int row) { return unscaled(p.dstates, row, first); });
#pragma unroll
            for (int r = 0; r < BLOCKS; r++) {
                u32 b[4];
                out.load(b, 0, r);
#pragma unroll
                for (int m = 0; m < OWN_BLOCKS; m++) {
                    if (block(m) <= r) {
                        multiply_back<true>(x[m], layout::PAIRS, block(m), r, b);
                    }
                    if (block(m) == r) {
                        multiply_rest<true>(x[m], layout::PAIRS, r, b);
                    }
                }
            }
            store_values(x, first);
        }
    }
    __device__ __forceinline__ void give_keys()
    {
        fragments x = {};
        add_state(x, layout::BEHIND, p.dstates, layout::V, p.dnorms, [&](int) { return 1.0f; });
        if constexpr (GRADIENT_BY_KEY) {
            leave_crossings(x);
        }
        const pair_sum queries[1] = {{layout::BACK, layout::READS, layout::Q, w.scale}};
        sum_readers(x, queries);
        add_own_pairs(x, layout::Q, w.scale);
        store_keys<dk_element>(x, 1.0f, p.dk_head, p.dk, p.dk_b, p.dk_h, p.dk_t);
    }

    // ---- the chunk -----------------------------------------------------------------------------------

    // What is needed first is asked for first: q, k and gates, then v and do, then the states.
    __device__ __forceinline__ void fetch()
    {
        load<PAD_D, cfg::element_q>(layout::Q, p.q, w.s.batch * p.q_b + w.h_kv * p.q_h + first_channel(), p.q_t,
                                    cfg::D - first_channel());
        load<PAD_D, cfg::element_k>(layout::K, p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + first_channel(), p.k_t,
                                    cfg::D - first_channel());
        copy_commit();
        logs.fetch(p, w, place, *this, first_channel() + channel(0));
        load<PAD_V, cfg::element_v>(layout::V, p.v, w.s.batch * p.v_b + w.h * p.v_h + first_of_band(w), p.v_t,
                                    columns_of_band(w));
        load<PAD_V, cfg::element_o>(layout::DO, p.dout, w.s.batch * p.dout_b + w.h * p.dout_h + first_of_band(w),
                                    p.dout_t, columns_of_band(w));
        copy_commit();
        load_state<PAD_D, PAD_V>(layout::BEHIND, p.dstates);
        if (cfg::CHUNK_STAGES > 1) {
            load_state<PAD_D, PAD_V>(layout::FRONT, p.states);
        }
        copy_commit();
        logs.sum();
    }
    __device__ __forceinline__ void run()
    {
        fetch();
        leave_ends();
        copy_wait<2>(); // q and k
        __syncthreads();
        choose_share();
        leave_parts_of_pairs();
        __syncthreads();
        sum_parts_of_pairs();
        __syncthreads();
        weigh_blocks();
        copy_wait<1>(); // v and do
        __syncthreads();
        make_pairs();
        copy_wait<0>(); // states
        __syncthreads();
        give_values();
        if constexpr (GRADIENT_BY_KEY) { // whose sums take the place of a tile of it
            __syncthreads();
        }
        give_keys();
        if (cfg::CHUNK_STAGES == 1) {
            __syncthreads();
        }
        if (cfg::CHUNK_STAGES == 1 || GRADIENT_BY_KEY) {
            change_state();
        }
        if (cfg::CHUNK_STAGES == 1) {
            __syncthreads();
        }
        fragments x = {};
        add_state(x, layout::FRONT, p.states, layout::DO, p.norms,
                  [&](int token) { return divisor_gradient(p, w, place + token); });
        give_queries(x);
        if constexpr (GRADIENT_BY_KEY) {
            __syncthreads();
            give_decays();
        }
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_chunks = linear::additive_layout::END;
}

#if LATHE_COMPILED(bwd_chunks)
extern "C" __global__ void __launch_bounds__(linear::OWN_THREADS, 512 / linear::OWN_THREADS)
    LATHE_ENTRY(bwd_chunks)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::back_of_chunk<linear::additive_chunk>(p, shared_bytes);
}
#endif
