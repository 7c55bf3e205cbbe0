// linear/backward/chunks_sm90.cuh: kernels: linear attention's backward pass in chunks of 64 tokens by wgmma, with no
// decay or one number a token.
//
// Launch of bwd_chunks: sequences * h * CHUNK_UNITS blocks, of bwd_again: sequences * h, each of CHUNK_THREADS threads,
// with smem_bytes::bwd_chunks of shared memory. A block walks once along a sequence. Its first four warps load tiles
// and sum the logarithms of decays, and two warpgroups compute, each 64 columns of a result (chunk_walk.cuh): in the
// first block of a head dq, from the first token on; in the others dk and dv, from the last, in one where head dims are
// up to 64.
// bwd_again: o once more, in f32.
#pragma once
#include "linear/loader_sm90.cuh"
#include "linear/backward/chunk_walk.cuh"

namespace linear
{

constexpr int CHUNK_THREADS = 3 * LOADERS;
constexpr int CHUNK_UNITS = 1 + max_of(SLICES_D, SLICES_V);
static_assert(same_type<cfg::operand, bf16>, "S in 16 bits has the range of f32");

struct chunk_layout { // in shared memory, bytes
    static constexpr int STAGE = chunk_stage::BYTES;
    static constexpr int SCORES = STAGES * STAGE, RESULTS = SCORES + 2 * PANEL;
    static constexpr int LOGS = RESULTS + 2 * PANEL, PARTS = LOGS + STAGES * CHUNK_TOKENS * 4;
    static constexpr int BARRIERS = PARTS + 2 * 4 * CHUNK_TOKENS * 4, END = BARRIERS + ring_barriers<STAGES>::BYTES;
};

using chunk_ring = loader_ring<chunk_layout>;

// ---- the warps that load -----------------------------------------------------------------------------

// One warp sums the logarithms from the chunk's first token on, to the base 2.
DEV void sum_logs(const linear_back_params &p, const work &w, u32 to, int place)
{
    float log[2] = {};
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int at = place + 2 * lane_id() + k;
        log[k] = w.has(at) ? w.log2_decay(p, w.row(p, at), 0) : 0.0f;
    }
    float sum = log[0] + log[1];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float before = __shfl_up_sync(ALL_LANES, sum, static_cast<u32>(step));
        sum += lane_id() >= step ? before : 0.0f;
    }
    store_shared(to + static_cast<u32>(8 * lane_id()), sum - log[1]);
    store_shared(to + static_cast<u32>(8 * lane_id() + 4), sum);
}

struct chunk_tiles { // which of them a block reads
    bool q, k, v, dout;
};

template <bool BACK>
DEV void load_chunks(const linear_back_params &p, const work &w, u32 shared, const chunk_tiles &wants)
{
    const chunk_ring ring = chunk_ring::of(shared);
    const int chunks = chunks_of(w);
#pragma unroll 1
    for (int n = 0; n < chunks; n++) {
        const int place = (BACK ? chunks - 1 - n : n) * CHUNK_TOKENS;
        const u32 tiles = chunk_ring::tiles(shared, n);
        ring.wait_empty(n);
        if (wants.q) {
            load_tokens<PAD_D>(tiles + chunk_stage::Q,
                               elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h), p.q_t, w.s, place,
                               cfg::D);
        }
        if (wants.k) {
            load_tokens<PAD_D>(tiles + chunk_stage::K,
                               elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h), p.k_t, w.s, place,
                               cfg::D);
        }
        if (wants.v) {
            load_tokens<PAD_V>(tiles + chunk_stage::V, elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h),
                               p.v_t, w.s, place, cfg::D_V);
        }
        if (wants.dout) {
            load_tokens<PAD_V>(tiles + chunk_stage::DOUT,
                               elements<cfg::element_o>(p.dout, w.s.batch * p.dout_b + w.h * p.dout_h), p.dout_t, w.s,
                               place, cfg::D_V);
        }
        copy_commit();
        if (DECAYS && threadIdx.x < 32) {
            sum_logs(p, w, chunk_ring::logs(shared, n), place);
        }
        if (n > 0) {
            copy_wait<1>();
            ring.fill(n - 1);
        }
    }
    if (chunks > 0) {
        copy_wait<0>();
        ring.fill(chunks - 1);
    }
}

// ---- a block -----------------------------------------------------------------------------------------

template <chunk_result WHAT, bool SHARES>
DEV void walk_chunks(const linear_back_params &p, const work &w, u32 shared, int slice)
{
    struct place {
        u32 tiles, sums;
    };
    const int group = static_cast<int>(threadIdx.x - LOADERS) / 128;
    const chunk_ring ring = chunk_ring::of(shared);
    const chunk_walk<WHAT, SHARES> walk{p,
                                        w,
                                        group,
                                        slice,
                                        shared + chunk_layout::SCORES + (SHARES ? 0u : static_cast<u32>(group * PANEL)),
                                        shared + chunk_layout::RESULTS + static_cast<u32>(group * PANEL),
                                        shared + chunk_layout::PARTS + static_cast<u32>(group * 4 * CHUNK_TOKENS * 4)};
    walk.run(
        [&](int n) {
            ring.wait_full(n);
            return place{chunk_ring::tiles(shared, n), chunk_ring::logs(shared, n)};
        },
        [&](int n) { ring.leave(n); });
}

// Both warpgroups walk with a slice of the same result each, or only one of them: they share scores and run one code.
template <chunk_result WHAT, int SLICES>
DEV void walk_slices(const linear_back_params &p, const work &w, u32 shared, const chunk_tiles &wants)
{
    const int group = static_cast<int>(threadIdx.x) / 128 - 1;
    if (threadIdx.x == 0) {
        chunk_ring::of(shared).init(4 * SLICES);
    }
    __syncthreads();
    if (group < 0) {
        registers_down<40>();
        load_chunks<chunk_operands<WHAT>::BACK>(p, w, shared, wants);
    } else {
        registers_up<232>();
        if (group < SLICES) {
            walk_chunks<WHAT, SLICES == 2>(p, w, shared, group);
        }
    }
}
// Of head dims up to 64 the first one has dk, the other dv.
DEV void walk_back(const linear_back_params &p, const work &w, u32 shared)
{
    const int group = static_cast<int>(threadIdx.x) / 128 - 1;
    if (threadIdx.x == 0) {
        chunk_ring::of(shared).init(8);
    }
    __syncthreads();
    if (group < 0) {
        registers_down<40>();
        load_chunks<true>(p, w, shared, {true, true, true, true});
    } else {
        registers_up<232>();
        if (group == 0) {
            walk_chunks<RESULT_KEY, false>(p, w, shared, 0);
        } else {
            walk_chunks<RESULT_VALUE, false>(p, w, shared, 0);
        }
    }
}

DEV void back_chunks(const linear_back_params &p, u32 shared)
{
    // Blocks that read the same at the same time are neighbours; walks of the other direction come last.
    const int block = static_cast<int>(blockIdx.x);
    const int heads = static_cast<int>(gridDim.x) / CHUNK_UNITS;
    const bool back = block < heads * (CHUNK_UNITS - 1);
    const work w = work::of_number<1, 1>(p, 1, back ? block / (CHUNK_UNITS - 1) : block - heads * (CHUNK_UNITS - 1));
    if (!back) {
        walk_slices<RESULT_QUERY, SLICES_D>(p, w, shared, {SUMS_DECAY, true, true, true});
    } else if constexpr (CHUNK_UNITS == 2) {
        walk_back(p, w, shared);
    } else if (block % 2 == 0) {
        walk_slices<RESULT_KEY, SLICES_D>(p, w, shared, {true, SUMS_DECAY, true, true});
    } else {
        walk_slices<RESULT_VALUE, SLICES_V>(p, w, shared, {true, true, false, true});
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_chunks = linear::chunk_layout::END;
constexpr int bwd_again = linear::chunk_layout::END;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_chunks)
extern "C" __global__ void __launch_bounds__(linear::CHUNK_THREADS, 1)
    LATHE_ENTRY(bwd_chunks)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::back_chunks(p, shared_address(shared_bytes));
}
#endif

#if LATHE_COMPILED(bwd_again)
extern "C" __global__ void __launch_bounds__(linear::CHUNK_THREADS, 1)
    LATHE_ENTRY(bwd_again)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_slices<linear::RESULT_OUTPUT, linear::SLICES_V>(
        p, linear::work::of_block<1, 1>(p, 1), shared_address(shared_bytes), {true, true, true, false});
}
#endif
