// rowwise/lookback_words.cuh: for rowwise/inner_scan.cuh and rowwise/inner_scan_lookback.cuh: the workspace between
// them. Whose rows they are is decided by the former, which leaves that in `left`, and clears what is the latter's.
#pragma once
#include "rowwise/inner_scan_tiles.cuh"

namespace many
{

// Warps that hold pieces of a part; beside them there is one that looks ahead, and two that look back.
constexpr int WORKERS = LOOKS_BACK ? cfg::LOOKBACK_THREADS / 32 - 3 : 1;
constexpr int PIECE = LOOKS_BACK ? cfg::LOOKBACK_BATCHES * PLACES : 1; // places of a warp
constexpr int LOOKBACK_PART = WORKERS * PIECE;                         // places of a part
constexpr int GROUP = cfg::LOOKBACK_GROUP;                             // parts of a group
constexpr int GROUP_WORDS = (GROUP + 1) * STRIP;

struct lookback {
    int across, strips; // strips side by side, and in all
    int parts, groups;  // of a strip
    u32 items;          // parts in all
    u32 *taken;         // how many have been taken
    u32 *left;          // 1: the rows are rowwise_chain's
    u64 *words;         // of rows: of a group's parts, then of the group, by strip and group

    __device__ __forceinline__ explicit lookback(const rows_params &p)
    {
        const bool empty = p.z.rows <= 0 || p.z.n <= 0;
        across = (p.z.rows - 1) / STRIP + 1;
        strips = empty ? 0 : p.z.rows0 * p.z.rows1 * across;
        parts = (p.z.n - 1) / LOOKBACK_PART + 1;
        groups = (parts - 1) / GROUP + 1;
        items = static_cast<u32>(strips) * static_cast<u32>(parts);
        taken = static_cast<u32 *>(p.values);
        left = taken + 1;
        words = static_cast<u64 *>(p.values) + 2;
    }
    __device__ __forceinline__ u64 *words_of(int strip, int group) const
    {
        return words + (static_cast<i64>(strip) * groups + group) * GROUP_WORDS;
    }
};

// By all threads of rowwise_inner_scan: are the rows left?
DEV void leave_rows(const rows_params &p, bool left)
{
    const lookback c(p);
    if (c.strips == 0) {
        return; // and there is no workspace
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *c.taken = 0;
        *c.left = left ? 1 : 0;
    }
    if (!left) {
        return;
    }
    const i64 units = static_cast<i64>(c.strips) * c.groups * (GROUP_WORDS / 2);
    uint4 *const to = reinterpret_cast<uint4 *>(c.words);
    for (i64 i = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; i < units;
         i += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        to[i] = make_uint4(0, 0, 0, 0);
    }
}

} // namespace many
