// linear/loader_sm90.cuh: how a warpgroup that loads hands chunks of 64 tokens to those that compute: a ring of stages
// in shared memory, its barriers, and rows on their way into panels.
#pragma once
#include "common/tma_sm90.cuh"
#include "linear/elements.cuh"
#include "linear/products_sm90.cuh"
#include "linear/walk.cuh"

namespace linear
{

constexpr int LOADERS = 128; // threads, the first of a block
constexpr int STAGES = cfg::STAGES;

// LAYOUT: of shared memory, where stages of STAGE bytes come first, and PANEL_ROWS floats of each stage at LOGS.
template <class LAYOUT> struct loader_ring {
    ring_barriers<STAGES> barriers;

    DEV loader_ring of(u32 shared) { return {{shared + LAYOUT::BARRIERS}}; }
    // By one thread: `warps` of those that compute are there.
    __device__ __forceinline__ void init(u32 warps) const
    {
#pragma unroll
        for (u32 i = 0; i < STAGES; i++) {
            mbarrier_init(barriers.full(i), LOADERS / 32);
            mbarrier_init(barriers.empty(i), warps);
        }
        mbarrier_init_fence();
    }
    DEV ring_place<STAGES> nth(int n) { return ring_place<STAGES>::nth(static_cast<u32>(n)); }
    DEV u32 tiles(u32 shared, int n) { return shared + nth(n).stage * LAYOUT::STAGE; }
    DEV u32 logs(u32 shared, int n) { return shared + LAYOUT::LOGS + nth(n).stage * (PANEL_ROWS * 4); }
    __device__ __forceinline__ void wait_full(int n) const { barriers.template wait_full<cfg::BOUND_WAITS>(nth(n)); }
    __device__ __forceinline__ void wait_empty(int n) const { barriers.template wait_empty<cfg::BOUND_WAITS>(nth(n)); }
    // A warp is done with the n-th chunk.
    __device__ __forceinline__ void leave(int n) const
    {
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(barriers.empty(nth(n).stage));
        }
    }
    // A loading warp's part of it is there.
    __device__ __forceinline__ void fill(int n) const
    {
        fence_async_proxy();
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(barriers.full(nth(n).stage));
        }
    }
};

// Tokens of a chunk from `place` on, in the order of places, PAD columns of them; zeros beyond the sequence and beyond
// `columns`.
template <int PAD, class T>
DEV void load_tokens(u32 tile, const T *from, i64 stride, const sequence &s, int place, int columns)
{
    constexpr int ACROSS = PAD / 8; // threads of a token
    constexpr int STEP = LOADERS / ACROSS;
    const int thread = static_cast<int>(fresh_thread());
    const int chunk = thread % ACROSS;
    const int row = thread / ACROSS;
    const int left = chunk * 8 < columns ? min(PANEL_ROWS, s.length - place) - row : 0;
    const i64 step = cfg::REVERSE ? -STEP * stride : STEP * stride;
    const T *source = from + (sequence::token(s, place + row) * stride + chunk * 8);
    const u32 to = tile + static_cast<u32>(chunk / 8 * PANEL) + panel::offset<PANEL_ROWS>(row, chunk % 8);
#pragma unroll
    for (int i = 0; i < PANEL_ROWS / STEP; i++) {
        copy16_async(to + static_cast<u32>(i * STEP * 128), i * STEP < left ? source : from, i * STEP < left ? 16 : 0);
        source += step;
    }
}

} // namespace linear
