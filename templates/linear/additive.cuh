// linear/additive.cuh: kernel: linear attention without the delta rule in steps of 16 tokens by mma.sync: no decay, one number a token or one a key channel,
// a bonus, a normaliser, sums over all tokens; f16 and bf16, head dims up to 256.
//
// Launch: sequences * h * VALUE_SLICES blocks of BLOCK_THREADS threads, additive_smem_bytes() of shared memory. A block has VALUE_PAD columns of the state of
// one head. Its first warps prepare steps, each its own of every chunk (additive_pairs), while the others go with the state from step to step
// (additive_walk). Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/additive_pairs.cuh"
#include "linear/additive_walk.cuh"

namespace linear {

constexpr int BLOCKS_ON_SM = KEY_PAD <= 128 && BLOCK_THREADS <= 256 ? 2 : 1;

DEV void additive(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<VALUE_SLICES, VALUE_PAD>(p, cfg::D_V);
    const i64 slot = p.state_index != nullptr ? p.state_index[w.s.number * p.state_index_step] : w.s.number;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const walk_plan walk = walk_plan::of(w.s.length);
    if (slot < 0) {
        store_none<VALUE_PAD, BLOCK_THREADS>(p, w);
    } else if (warp < STEPS) {
        pair_job{p, w, walk, shared_address(bytes), warp}.run();
    } else {
        state_job{p, w, walk, shared_address(bytes), warp - STEPS}.run(slot);
    }
}

} // namespace linear

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::BLOCK_THREADS, linear::BLOCKS_ON_SM) LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::additive(p, shared_bytes);
}
#endif
