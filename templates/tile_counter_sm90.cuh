// tile_counter_sm90.cuh: how many query tiles have been taken: a word of workspace that nobody clears before a launch.
// Its upper bits are a seal, so that a word which a launch has left behind, sealed with a count of 0, is told from
// memory that holds anything else. Which is rare, and put right by whoever notices. The last of a launch's blocks to ask
// leaves the word as the next launch wants it: stream order is all that a replayed graph needs for it.
#pragma once
#include "tile_order_sm90.cuh"

struct tile_counter { // for one thread of a block
    static constexpr int COUNT_BITS = 24;
    static constexpr u64 SEALED = 0x9d3f5ac1b7ull << COUNT_BITS; // a word holds this by chance once in 2^40
    u64 *word;
    u32 tiles; // of all heads

    __device__ __forceinline__ static tile_counter find(const attention_params &p, const tile_order &o)
    {
        return {p.tile_counter, o.heads * o.tiles};
    }
    __device__ __forceinline__ static bool is_sealed(u64 x) { return x >> COUNT_BITS == SEALED >> COUNT_BITS; }
    // More tiles than can be counted are taken in turn.
    __device__ __forceinline__ bool counts() const { return cfg::DYNAMIC && tiles < 1u << COUNT_BITS; }

    // To be asked well before the number is needed, once for each that take() gives.
    __device__ __forceinline__ u64 ask() const { return counts() ? atomicAdd(word, 1ull) : 0; }
    // The number of the next query tile; no tile has it where there is none. asked: what ask() gave; number: of
    // the tile before.
    __device__ __forceinline__ u32 take(u64 asked, u32 number) const
    {
        if (!counts()) {
            return number + gridDim.x;
        }
#pragma unroll 1
        while (!is_sealed(asked)) {
            const u64 found = asked + 1; // unless another block has asked in between
            const u64 seen = atomicCAS(word, found, SEALED);
            asked = seen == found || is_sealed(seen) ? atomicAdd(word, 1ull) : seen - 1;
        }
        // Every block that has a tile asks until it gets none, so there are as many answers as tiles.
        const u32 count = static_cast<u32>(asked) & ((1u << COUNT_BITS) - 1);
        if (count == tiles - 1) {
            *word = SEALED;
        }
        return gridDim.x + count;
    }
};
