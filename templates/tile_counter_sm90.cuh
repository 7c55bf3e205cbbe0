// tile_counter_sm90.cuh: how many query tiles have been taken: a word of workspace that nobody clears before a launch.
// A launch leaves it as IDLE; between launches it may be overwritten, as a whole or in part. So the word is IDLE + n * STEP
// after n tiles, which holds n twice, in its lower 24 bits and in its upper ones, with 16 bits in between that do not change:
// a word is a count where n is below the number of tiles, and anything else is put right by whoever notices.
// * Overwriting up to 5 neighbouring bytes of IDLE, wherever, gives IDLE again or no count: it would have to
//   change both copies of n alike. Of whole words, tiles - 1 of 2^64 would be taken for a count that is none.
// * A launch gets exactly `tiles` answers, 0 to tiles - 1: a block asks for each tile that it has. So no block that asks can
//   find more than tiles - 1, and the last answer, after which nobody asks, leaves the word as the next launch wants it:
//   stream order is all that a replayed graph needs for it.
// * STEP is odd, so adding to what is no count finds one only by passing 0, from where a launch counts anyhow; each block
//   adds to it once at most, then tries to swap it for IDLE. Once a swap or a 0 has made it a count it stays one.
#pragma once
#include "tile_order_sm90.cuh"

struct tile_counter { // for one thread of a block
    static constexpr u32 LIMIT = 1u << 23; // tiles: the difference of two words that are counts keeps its sign
    static constexpr u64 IDLE = 0x5b8e319d3f5ac1b7ull;
    static constexpr u64 STEP = (1ull << 40) + 1;
    u64 *word;
    u32 tiles; // of all heads

    __device__ __forceinline__ static tile_counter find(const attention_params &p, const tile_order &o)
    {
        return {p.tile_counter, o.heads * o.tiles};
    }
    // More tiles than can be counted are taken in turn.
    __device__ __forceinline__ bool counts() const { return cfg::DYNAMIC && tiles < LIMIT; }
    // Of any word: (x - IDLE) / STEP modulo 2^64, for STEP * (1 - 2^40) is 1 there.
    __device__ __forceinline__ static u64 count_of(u64 x) { return (x - IDLE) - ((x - IDLE) << 40); }
    __device__ __forceinline__ bool is_count(u64 x) const { return count_of(x) < tiles; }

    // To be asked well before the number is needed, once for each that take() gives.
    __device__ __forceinline__ u64 ask() const { return counts() ? atomicAdd(word, STEP) : 0; }
    // The number of the next query tile; no tile has it where there is none. asked: what ask() gave; number: of
    // the tile before.
    __device__ __forceinline__ u32 take(u64 asked, u32 number) const
    {
        if (!counts()) {
            return number + gridDim.x;
        }
#pragma unroll 1
        while (!is_count(asked)) {
            const u64 found = asked + STEP; // unless another block has asked in between
            const u64 seen = atomicCAS(word, found, IDLE);
            asked = seen == found || is_count(seen) ? atomicAdd(word, STEP) : seen - STEP;
        }
        const u32 count = static_cast<u32>(count_of(asked));
        if (count == tiles - 1) {
            *word = IDLE;
        }
        return gridDim.x + count;
    }
};
