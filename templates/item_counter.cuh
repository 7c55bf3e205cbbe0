// item_counter.cuh: how many of a launch's items have been taken: a word of workspace that nobody clears before a launch, the same word as
// that of tile_counter_sm90.cuh, where it is explained: it is left as IDLE, and whatever else it holds at first is noticed and put right.
#pragma once
#include "base.cuh"

struct item_counter {                       // for one thread of those that ask; all of them together ask `items` times
    static constexpr u32 LIMIT = 1u << 23;  // items: more cannot be counted
    static constexpr u64 IDLE = 0x5b8e319d3f5ac1b7ull;
    static constexpr u64 STEP = (1ull << 40) + 1;
    u64 *word;
    u32 items;

    __device__ __forceinline__ static u64 count_of(u64 x) { return (x - IDLE) - ((x - IDLE) << 40); }
    __device__ __forceinline__ bool is_count(u64 x) const { return count_of(x) < items; }
    // Well before the number is needed; fewer than LIMIT items.
    __device__ __forceinline__ u64 ask() const { return atomicAdd(word, STEP); }
    // 0 to items - 1, each for one that asked; each who asks gets more than it did before.
    __device__ __forceinline__ u32 take(u64 asked) const
    {
#pragma unroll 1
        while (!is_count(asked)) {
            const u64 found = asked + STEP; // unless somebody else has asked in between
            const u64 seen = atomicCAS(word, found, IDLE);
            asked = seen == found || is_count(seen) ? atomicAdd(word, STEP) : seen - STEP;
        }
        const u32 count = static_cast<u32>(count_of(asked));
        if (count == items - 1) {
            *word = IDLE; // nobody asks any more
        }
        return count;
    }
};
