// linear/backward/dplr.cuh: kernels: the backward pass of a decay plus low rank, S_t = D_t o S_(t-1) + b' (a S) + k' v:
// the two walks along the chunks of a sequence, and what is of a chunk of 64 tokens behind them.
//
// With the names of linear/chunk_parts.cuh, U = a S + N_v v and X = T U what tokens read,
//     S' = e^G_end S + b' X + k' v,     dU = T' (scale A' do + b dS'),     dv = scale A_v' do + k dS' + N_v' dU,
//     dS = e^G_end dS' + scale q' do + a' dU.
// The walks are those of linear/backward/keyed_states.cuh but for that: they leave S and X, dS' and dU, and dv goes to
// its place at once. Of a chunk, dA = scale do X', dN = dU X' give what linear/backward/keyed_rule.cuh says, with dU in
// the place of -dv. The same with k and v in the places of b and X is added: dA_v = scale do v', dN_v = dU v'.
//
// Launch of bwd_states_dplr: as of bwd_states, smem_bytes::bwd_states_dplr of shared memory; of bwd_chunks_dplr: as of
// bwd_chunks_low_rank, and as much shared memory.
#pragma once
#include "linear/backward/keyed_rule.cuh"

namespace linear
{

static_assert(WRITERS == 2, "what is read is written under a vector of its own, beside v under k");

// ---- along the chunks --------------------------------------------------------------------------------

struct low_rank_states : keyed_states {
    // What is at FROM of a chunk goes to TO.
    template <int FROM, int SIZE, int TO = FROM> __device__ __forceinline__ void fetch(int number) const
    {
        static_assert(FROM % 16 == 0 && SIZE % 16 == 0 && TO % 16 == 0, "pieces of 16 bytes");
        const unsigned char *from = prepared::of<prepared::END_BACK>(p, w.s, w.h, number * CHUNK_TOKENS) + FROM;
        for (int at = static_cast<int>(threadIdx.x) * 16; at < SIZE; at += KEYED_THREADS * 16) {
            copy16_async(shared + static_cast<u32>(TO + at), from + at, 16);
        }
    }

    // ---- forward -------------------------------------------------------------------------------------

    __device__ __forceinline__ void load_forward(int number) const
    {
        fetch<0, prepared::FIRST>(number);
        load_values<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h, p.v_t, number);
        copy_commit();
    }
    __device__ __forceinline__ void load_writers(int number) const
    {
        fetch<prepared::WRITE_K, 2 * prepared::TILE>(number);
        fetch<prepared::FACTORS, 4 * KEY_PAD>(number);
        copy_commit();
    }
    __device__ __forceinline__ void go_forward(state_columns &s) const
    {
        const int chunks = chunks_of(w.s.length);
        if (chunks == 0) {
            return;
        }
        load_forward(0);
        load_writers(0);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = 0; number < chunks; number++) {
            const bool more = number + 1 < chunks;
            operands v;
            operands x;
            if constexpr (!STATE_SCALED) {
                leave_state(s, p.states, number);
            }
            load_operands(v);
            look(x, v, s, tell_scale(s));
            leave_values(x, p.written, number);
            copy_wait<0>();
            __syncthreads();
            if constexpr (STATE_SCALED) {
                leave_state(s, p.states, number);
            }
            if (more) {
                load_forward(number + 1);
            }
            s.scale_channels(tile(prepared::FACTORS, 0));
            add(s, x, prepared::WRITE_K);
            add(s, v, prepared::WRITE_V);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_writers(number + 1);
            }
        }
    }

    // ---- back ----------------------------------------------------------------------------------------

    // T and N_v as the way back has them come to where the way there has them.
    static constexpr int INVERSE_BACK = prepared::INVERSE, SEEN_V_BACK = prepared::SEEN_V;
    static_assert(SEEN_V_BACK - INVERSE_BACK == prepared::SEEN_V_BACK - prepared::INVERSE_BACK, "side by side");

    __device__ __forceinline__ void load_back(int number) const
    {
        fetch<prepared::WRITE_K, prepared::FACTORS - prepared::WRITE_K>(number);
        fetch<prepared::INVERSE_BACK, 3 * prepared::BLOCKS, INVERSE_BACK>(number);
        load_values<cfg::element_o>(p.dout, w.s.batch * p.dout_b + w.h * p.dout_h, p.dout_t, number);
        copy_commit();
    }
    // dU.
    __device__ __forceinline__ void solve_back(operands &z, const operands &out, const state_columns &s, float by) const
    {
        float x[2 * CHUNK_STEPS][4] = {};
        multiply_state(x, s, by, prepared::WRITE_K);
        const float back = 1.0f / by;
#pragma unroll
        for (int e = 0; STATE_SCALED && e < 8 * CHUNK_STEPS; e++) {
            x[e / 4][e % 4] *= back;
        }
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            add_column(x[2 * t], x[2 * t + 1], out, prepared::PAIRS, t);
            round(z[t], x[2 * t], x[2 * t + 1]);
        }
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) { // the first ones are needed no more
            float y[2][4] = {};
            add_column(y[0], y[1], z, INVERSE_BACK + prepared::BLOCKS, t);
            add_column(y[0], y[1], z, INVERSE_BACK, t);
            round(z[t], y[0], y[1]);
        }
    }
    // x, 16 tokens as rows, += blocks (i, t)' of a triangle, i from t on, times y.
    __device__ __forceinline__ void add_rows(float (&x)[2][4], const operands &y, int which, int t) const
    {
#pragma unroll
        for (int i = t; i < CHUNK_STEPS; i++) {
            const uint4 b = load_shared16(block(which, i, t));
            const u32 a[4] = {b.x, b.z, b.y, b.w};
            mma_16x8x16<operand>(x[0], a, y[i][0], y[i][2]);
            mma_16x8x16<operand>(x[1], a, y[i][1], y[i][3]);
        }
    }
    // dv, with what comes to v through the output mod.
    __device__ __forceinline__ void store_tokens(const float (&x)[2][4], int first_place) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int at = first_place + lane_id() / 4 + 8 * (k % 2);
            const int column = first() + 8 * (k / 2) + lane_id() % 4 * 2;
            if (!w.has(at) || column >= w.left) {
                continue;
            }
            float two[2] = {x[k / 2][k % 2 * 2], x[k / 2][k % 2 * 2 + 1]};
            if constexpr (cfg::SKIP && !cfg::DV_F32) {
                const float *skip = p.skip + (line_of(p, w, at) * cfg::D_V + w.first + column);
                two[0] += skip[0];
                two[1] += skip[1];
            }
            store_any<2, dv_element>(static_cast<dv_element *>(p.dv) + (w.s.batch * p.dv_b + w.h * p.dv_h) +
                                         (sequence::token(w.s, at) * p.dv_t + w.first + column),
                                     two);
        }
    }
    __device__ __forceinline__ void give_values(const operands &z, const operands &out, const state_columns &s,
                                                float by, int number) const
    {
        const float back = STATE_SCALED ? 1.0f / by : 1.0f;
#pragma unroll 1
        for (int t = 0; t < CHUNK_STEPS; t++) {
            float x[2][4] = {};
            const u32 keys = tile(prepared::WRITE_V, t * STEP) + lane_offset_a<KEY_PAD>(lane_id(), 0);
#pragma unroll
            for (int k = 0; k < KEY_PAD / 16; k++) {
                u32 a[4];
                u32 b[4];
                load_matrix4(a, swizzle<KEY_PAD>::along(keys, 2 * k));
                s.pack_rows(b, k, by);
                mma_16x8x16<operand>(x[0], a, b[0], b[1]);
                mma_16x8x16<operand>(x[1], a, b[2], b[3]);
            }
#pragma unroll
            for (int e = 0; STATE_SCALED && e < 8; e++) {
                x[e / 4][e % 4] *= back;
            }
            add_rows(x, out, prepared::PAIRS_V, t);
            add_rows(x, z, SEEN_V_BACK, t);
            store_tokens(x, number * CHUNK_TOKENS + t * STEP);
        }
    }
    __device__ __forceinline__ void load_readers(int number) const
    {
        fetch<prepared::READ_K, prepared::TILE>(number);
        fetch<prepared::READ_Q, prepared::TILE>(number);
        fetch<prepared::FACTORS, 4 * KEY_PAD>(number);
        copy_commit();
    }
    __device__ __forceinline__ void go_back(state_columns &s) const
    {
        const int chunks = chunks_of(w.s.length);
        if (chunks == 0) {
            return;
        }
        load_back(chunks - 1);
        load_readers(chunks - 1);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = chunks - 1; number >= 0; number--) {
            operands out;
            operands z;
            if constexpr (!STATE_SCALED) {
                leave_state(s, p.dstates, number);
            }
            load_operands(out);
            const float by = tell_scale(s);
            solve_back(z, out, s, by);
            leave_values(z, p.dwritten, number);
            if (p.dv != nullptr) {
                give_values(z, out, s, by, number);
            }
            copy_wait<0>();
            __syncthreads();
            if constexpr (STATE_SCALED) {
                leave_state(s, p.dstates, number);
            }
            if (number > 0) {
                load_back(number - 1);
            }
            s.scale_channels(tile(prepared::FACTORS, 0));
            add(s, out, prepared::READ_Q);
            add(s, z, prepared::READ_K);
            copy_wait<0>();
            __syncthreads();
            if (number > 0) {
                load_readers(number - 1);
            }
        }
    }
};

// ---- of a chunk --------------------------------------------------------------------------------------

struct two_writers : low_rank_gradients {
    // Loads k and v over b and X. V is transposed through FRONT, whose state the second writer does not read: its rows
    // become value channels.
    __device__ __forceinline__ void load_second_writer() const
    {
        load<PAD_D, cfg::element_k>(layout::K, p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + first_channel(), p.k_t,
                                    cfg::D - first_channel());
        load<PAD_V, cfg::element_v>(layout::FRONT, p.v, w.s.batch * p.v_b + w.h * p.v_h + first_of_band(w), p.v_t,
                                    columns_of_band(w));
        copy_commit();
        copy_wait<0>();
        __syncthreads();
#pragma unroll 1
        for (int item = number; item < BLOCKS * (PAD_V / BLOCK); item += OWN_THREADS / 32) {
            const int tokens = item % BLOCKS * BLOCK;
            const int values = item / BLOCKS * BLOCK;
            u32 x[4];
            left_columns<PAD_V>::of(tile(layout::FRONT), values).load(x, tokens / BLOCK);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                store_shared(pair_at<CHUNK_TOKENS>(tile(layout::V), values + lane_id() / 4 + 8 * (i % 2),
                                                   tokens + 8 * (i / 2) + lane_id() % 4 * 2),
                             x[i]);
            }
        }
        __syncthreads();
    }
    __device__ __forceinline__ u32 crossing(int k) const { return keys_cross(inner, k / 2, k % 2); }
    // Leaves db, or dk of the second writer, and adds up what both carry across the chunk's end.
    __device__ __forceinline__ void give_writers_of(bool second)
    {
        float crosses[4] = {};
#pragma unroll
        for (int k = 0; GRADIENT_BY_KEY && k < 4; k++) {
            crosses[k] = second && lane_id() < 4 ? load_shared(crossing(k)) : 0.0f;
        }
        give_writers(second ? p.dk_head : p.own);
#pragma unroll
        for (int k = 0; GRADIENT_BY_KEY && k < 4; k++) {
            if (lane_id() < 4) {
                store_shared(crossing(k), crosses[k] + load_shared(crossing(k)));
            }
        }
    }
    // One loop body serves b and X, then k and v: code for both exceeds the instruction cache.
    __device__ __forceinline__ void run()
    {
        fragments ahead = {};
        begin();
#pragma unroll 1
        for (int writer = 0; writer < WRITERS; writer++) {
            const bool second = writer > 0;
            if (second) {
                __syncthreads(); // nobody reads b, X or what comes of them any more
                load_second_writer();
            }
            weigh_vectors();
            make_pairs();
            copy_wait<0>();
            __syncthreads();
            give_writers_of(second);
            if (GRADIENT_BY_KEY && !second) {
                cross_states();
            }
            give_readers(cfg::READS_BEFORE ? ahead : flow, second);
            renew_writers();
            give_queries(second);
        }
        give_logs(ahead);
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_states_dplr = linear::back_walk::END + 4 * linear::COLUMN_WARPS;
constexpr int bwd_chunks_dplr = linear::low_rank_layout_back::END;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_states_dplr)
extern "C" __global__ void __launch_bounds__(linear::KEYED_THREADS, linear::KEYED_BLOCKS)
    LATHE_ENTRY(bwd_states_dplr)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_both_ways<linear::low_rank_states>(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(bwd_chunks_dplr)
extern "C" __global__ void __launch_bounds__(linear::OWN_THREADS, 512 / linear::OWN_THREADS)
    LATHE_ENTRY(bwd_chunks_dplr)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::back_of_chunk<linear::two_writers>(p, shared_bytes);
}
#endif
