// common/work_counter.cuh: how many of a launch's items have been taken: a word of workspace that nobody clears before
// a launch. A launch leaves it as IDLE; between launches it may be overwritten, as a whole or in part. So the word is
// IDLE + n * STEP after n items, which holds n twice, in its lower 24 bits and in its upper ones, with 16 bits in
// between that do not change: a word is a count where n is below the number of items, and anything else is put right by
// whoever notices.
// * Overwriting up to 5 neighbouring bytes of IDLE, wherever, gives IDLE again or no count: it would have to
//   change both copies of n alike. Of whole words, items - 1 of 2^64 would be taken for a count that is none.
// * A launch gets exactly `items` answers, 0 to items - 1: one for each that asks. So nobody who asks can find more
// than
//   items - 1, and the last answer, after which nobody asks, leaves the word as the next launch wants it: stream order
//   is
//   all that a replayed graph needs for it.
// * STEP is odd, so adding to what is no count finds one only by passing 0, from where a launch counts anyhow; who asks
//   adds to it once at most, then tries to swap it for IDLE. Once a swap or a 0 has made it a count it stays one.
#pragma once
#include "common/base.cuh"

struct item_counter {                      // for one thread of those that ask; all of them together ask `items` times
    static constexpr u32 LIMIT = 1u << 23; // items: the difference of two words that are counts keeps its sign
    static constexpr u64 IDLE = 0x5b8e319d3f5ac1b7ull;
    static constexpr u64 STEP = (1ull << 40) + 1;
    u64 *word;
    u32 items; // fewer than LIMIT

    // Of any word: (x - IDLE) / STEP modulo 2^64, for STEP * (1 - 2^40) is 1 there.
    __device__ __forceinline__ static u64 count_of(u64 x) { return (x - IDLE) - ((x - IDLE) << 40); }
    __device__ __forceinline__ bool is_count(u64 x) const { return count_of(x) < items; }
    // Well before the number is needed, once for each that is taken.
    __device__ __forceinline__ u64 ask() const { return atomicAdd(word, STEP); }
    // What ask() gave, or would have given had the word been a count.
    __device__ __forceinline__ u64 counted(u64 asked) const
    {
#pragma unroll 1
        while (!is_count(asked)) {
            const u64 found = asked + STEP; // unless somebody else has asked in between
            const u64 seen = atomicCAS(word, found, IDLE);
            asked = seen == found || is_count(seen) ? atomicAdd(word, STEP) : seen - STEP;
        }
        return asked;
    }
    // After the last answer nobody asks any more.
    __device__ __forceinline__ void leave(u32 count) const
    {
        if (count == items - 1) {
            *word = IDLE;
        }
    }
    // 0 to items - 1, each for one that asked; each who asks gets more than it did before.
    __device__ __forceinline__ u32 take(u64 asked) const
    {
        const u32 count = static_cast<u32>(count_of(counted(asked)));
        leave(count);
        return count;
    }
};
