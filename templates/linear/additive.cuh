// linear/additive.cuh: kernel: linear attention without the delta rule in steps of 16 tokens by mma.sync: no decay, one
// number a token or one a key channel, a bonus, a normaliser, sums over all tokens; f16 and bf16, head dims up to 256.
//
// Launch: sequences * h * VALUE_SLICES blocks of BLOCK_THREADS threads, BLOCK_BYTES of shared memory; or up to
// cfg::PIECES times as many, of pieces of few long sequences, behind `states`. A block has VALUE_PAD columns of the
// state of one head. Its first warps prepare steps, each its own of every chunk (additive_pairs), while the others go
// with the state from step to step (additive_walk). Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/additive_pairs.cuh"
#include "linear/additive_walk.cuh"

namespace linear
{

constexpr int BLOCKS_ON_SM = KEY_PAD <= 128 && BLOCK_THREADS <= 256 ? 2 : 1;

struct additive_block {
    pieces all;
    piece own;
    int unit;
    work w;
    i64 slot;
    DEV additive_block of(const linear_params &p)
    {
        additive_block b;
        const int block = static_cast<int>(blockIdx.x);
        b.all = pieces::of<VALUE_SLICES, 3>(p);
        b.unit = block % max(b.all.units, 1);
        b.w = work::of_number<VALUE_SLICES, VALUE_PAD>(p, cfg::D_V, b.unit);
        b.slot = slot_of(p, b.w.s);
        b.own = piece::of(block / max(b.all.units, 1), b.all.most, b.w.s.length);
        return b;
    }
};

// Of a whole sequence, or of a piece, `cut`, which other pieces' parts are known for. A launch whose blocks are not as
// many as there are pieces is not meant.
DEV void additive(const linear_params &p, unsigned char *bytes)
{
    const additive_block b = additive_block::of(p);
    const bool cut = b.all.most > 1;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const walk_plan<false> walk = walk_plan<false>::of(b.own, cut);
    if (cut != (p.pieces > 1) || !b.own.exists() || goes_by_token(p, b.w.s)) {
        return;
    }
    if (b.slot < 0) {
        if (b.own.number == 0) {
            store_none<VALUE_PAD, BLOCK_THREADS>(p, b.w);
        }
    } else if (warp < STEPS) {
        pair_job<false>{p, b.w, walk, shared_address(bytes), warp}.run(nullptr);
    } else {
        const state_job<false> job{p, b.w, walk, shared_address(bytes), warp - STEPS};
        state_columns s = {};
        if (cut) {
            job.gather(s, part_layout::of(p, b.all, b.unit, 0), cfg::CAUSAL ? b.own.number : b.own.count);
        } else {
            job.load_state(s, b.slot);
        }
        job.run(s);
        if (b.own.is_last()) {
            job.store_state(s, b.slot);
        }
    }
}

// What a piece adds to the state; the first one also keeps the state that was given, for what comes out may lie where
// it was.
DEV void additive_states(const linear_params &p, unsigned char *bytes)
{
    const additive_block b = additive_block::of(p);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const walk_plan<true> walk = walk_plan<true>::of(b.own, true);
    const bool adds = !cfg::CAUSAL || !b.own.is_last(); // for somebody
    if (b.all.most == 1 || !b.own.exists() || b.slot < 0 || goes_by_token(p, b.w.s)) {
        return;
    }
    float *part = part_layout::of(p, b.all, b.unit, b.own.number + 1);
    if (warp < STEPS) {
        if (adds) {
            pair_job<true>{p, b.w, walk, shared_address(bytes), warp}.run(part);
        }
    } else {
        const state_job<true> job{p, b.w, walk, shared_address(bytes), warp - STEPS};
        state_columns s = {};
        if (b.own.number == 0 && job.has_first()) {
            job.load_state(s, b.slot);
            job.store_part(s, part_layout::of(p, b.all, b.unit, 0) + job.own * part_layout::WARP);
            s = {};
        }
        if (adds) {
            job.run(s);
            job.store_part(s, part + job.own * part_layout::WARP);
        }
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int states = linear::BLOCK_BYTES;
constexpr int chunks = linear::BLOCK_BYTES;
} // namespace smem_bytes

#if LATHE_COMPILED(states)
extern "C" __global__ void __launch_bounds__(linear::BLOCK_THREADS, linear::BLOCKS_ON_SM)
    LATHE_ENTRY(states)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::additive_states(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::BLOCK_THREADS, linear::BLOCKS_ON_SM)
    LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::additive(p, shared_bytes);
}
#endif
