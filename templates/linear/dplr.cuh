// linear/dplr.cuh: kernel: a decay plus low rank, S_t = D_t o S_(t-1) + b' (a S) + k' v, in chunks of 64 tokens by
// mma.sync: f16 and bf16, head dims up to 256.
//
// Launch: sequences * h * VALUE_SLICES blocks of KEYED_THREADS threads, smem_bytes::chunks of shared memory, behind
// `prepare_low_rank` (linear/low_rank_prepare.cuh). As in linear/keyed_delta.cuh a warp has 16 columns of the state and
// goes with them from chunk to chunk, with columns as rows: X = T (a S + N_v v), o = scale (q S + A X + A_v v), S =
// e^G_end S + b' X + k' v. Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/forward_walk.cuh"

namespace linear
{

static_assert(WRITERS == 2, "what is read is written under a vector of its own, beside v under k");

struct low_rank_walk : forward_walk {
    __device__ __forceinline__ void load_values(int number) const
    {
        constexpr int ACROSS = 2 * COLUMN_WARPS; // 16 bytes each
        const int chunk = static_cast<int>(threadIdx.x) % ACROSS;
        for (int row = static_cast<int>(threadIdx.x) / ACROSS; row < CHUNK_TOKENS; row += KEYED_THREADS / ACROSS) {
            const int place = number * CHUNK_TOKENS + row;
            const bool some = w.has(place) && chunk * 8 < w.left;
            const i64 token = sequence::token(w.s, some ? place : number * CHUNK_TOKENS);
            const i64 at = w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first + (some ? chunk * 8 : 0);
            copy16_async(shared + static_cast<u32>(VALUES) + swizzle<VALUE_PAD>::offset(row, chunk),
                         elements<cfg::element_v>(p.v, at), some ? 16 : 0);
        }
    }
    __device__ __forceinline__ void load_first(int number) const
    {
        copy<0, prepared::FIRST>(number);
        load_values(number);
        copy_commit();
    }
    // o of 16 tokens.
    __device__ __forceinline__ void read(float (&o)[2][4], const state_columns &s, float by, const operands &x,
                                         const operands &v, int t) const
    {
        read_state(o, s, by, t);
        add_pairs(o, x, prepared::PAIRS, t);
        add_pairs(o, v, prepared::PAIRS_V, t);
        scale_outputs(o);
    }
    // What the first half of a chunk needs comes while the second half of the one before is worked on, and the other
    // way round; so values wait in registers.
    __device__ __forceinline__ void run(state_columns &s) const
    {
        const int chunks = chunks_of(w.s.length);
        if (chunks == 0) {
            return;
        }
        load_first(0);
        load_second(0);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = 0; number < chunks; number++) {
            const bool more = number + 1 < chunks;
            const int kept = kept_behind<CHUNK_TOKENS>(p, w, number * CHUNK_TOKENS);
            const float by = s.nearer();
            operands v;
            operands x;
            load_operands(v);
            look(x, v, s, by);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_first(number + 1);
            }
            operands written;
            operands values;
            copy_apart(written, x);
            copy_apart(values, v);
#pragma unroll
            for (int t = 0; t < CHUNK_STEPS; t++) {
                float o[2][4];
                read(o, s, again(by), written, values, t);
                store(o, number * CHUNK_TOKENS + t * STEP);
            }
            s.scale_channels(tile(prepared::FACTORS, 0));
            add(s, x, prepared::WRITE_K);
            add(s, v, prepared::WRITE_V);
            leave_kept(s, kept);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_second(number + 1);
            }
        }
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int chunks = linear::low_rank_walk::END;
}

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::KEYED_THREADS, linear::KEYED_BLOCKS)
    LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_sequence<linear::low_rank_walk>(p, shared_bytes);
}
#endif
