// back_order.cuh: the work of attention backward: which block has which keys, and the query tiles that it walks.
#pragma once
#include "back_parts.cuh"

namespace back {

struct key_block {
    int b, h_kv, tile;
    int kv0;
    int group; // query heads of the key head
    __device__ __forceinline__ int head(int number) const { return h_kv * group + number; } // of the group
};

// Bytes of q, do and dq that heads at work at the same time may have together: they are to stay in L2.
constexpr i64 SECTION_BYTES = 32ll << 20;

// Heads in sections, and within a section one key tile of all heads after the other: those with the most query tiles
// under a causal mask first, or, where blocks take turns at dq, last: each then finds its turn when it gets there.
DEV key_block nth_block(const sizes &z, u32 n)
{
    const u32 tiles = static_cast<u32>(max(key_tiles(z), 1));
    const u32 heads = static_cast<u32>(z.n_b) * static_cast<u32>(z.n_h_kv);
    int group = z.group();
    if constexpr (cfg::BACK_WGMMA) {
        keep(group); // divided once: the warps that load have few registers
    }
    const i64 bytes = static_cast<i64>(group) * z.len_q * (4 * DK + 2 * DK + 2 * DV);
    const u32 bytes_here = static_cast<u32>(max(1ll, min(bytes, SECTION_BYTES))); // no division of 64 bits
    const u32 most = max(1u, min(static_cast<u32>(SECTION_BYTES) / bytes_here, heads));
    const u32 sections = (heads + most - 1) / most;
    const u32 width = (heads + sections - 1) / sections;
    const u32 section = n / (width * tiles);
    const u32 rest = n - section * width * tiles;
    const u32 here = min(width, heads - section * width); // the last section may be narrower
    const u32 head = section * width + rest % here;
    const u32 tile = cfg::DETERMINISTIC ? tiles - 1 - rest / here : rest / here;
    key_block at;
    at.b = static_cast<int>(head / static_cast<u32>(z.n_h_kv));
    at.h_kv = static_cast<int>(head % static_cast<u32>(z.n_h_kv));
    at.tile = static_cast<int>(tile);
    at.kv0 = at.tile * BN;
    at.group = group;
    return at;
}

DEV int classify(const back_params &p, int b, int h, const variant::head &head, int query_tile, int key_tile)
{
    const sizes &z = p.z;
    const int row0 = query_tile * BM;
    const int kv0 = key_tile * BN;
    if (query_tile >= query_tiles(z) || kv0 >= z.len_kv) {
        return TILE_NONE;
    }
    int c = TILE_ALL;
    if constexpr (variant::MAP) {
        const i64 n_h = variant::MAP_PER_HEAD ? z.n_h : 1;
        const i64 line = ((variant::MAP_PER_BATCH ? b : 0) * n_h + (variant::MAP_PER_HEAD ? h : 0)) * query_tiles(z);
        c = p.map[(line + query_tile) * key_tiles(z) + key_tile];
    } else if constexpr (variant::MASKED) {
        c = static_cast<int>(variant::classify(p.x, z, head, row0, min(row0 + BM, z.len_q) - 1, kv0,
                                               min(kv0 + BN, z.len_kv) - 1));
    }
    const bool inside = row0 + BM <= z.len_q && kv0 + BN <= z.len_kv;
    return c == TILE_ALL && !inside ? static_cast<int>(TILE_SOME) : c;
}

struct position {
    int head; // of the group; the number of heads: the end
    int tile;
    bool whole; // every pair is live
};

// Walks the query tiles that have live pairs, head by head. 32 are classified at a time, one a lane; all warps
// of the block get the same answers.
struct walk {
    int mine = TILE_NONE; // class of this lane's tile of the current 32

    __device__ __forceinline__ position next(const position &last, const back_params &p, const key_block &at)
    {
        const int tiles = query_tiles(p.z);
        position to{last.head, 0, false};
        if (last.head >= at.group) {
            return to;
        }
        int first = last.tile & ~31; // -32 before the first tile
        u32 some = __ballot_sync(ALL_LANES, mine != TILE_NONE && lane_id() > (last.tile & 31));
#pragma unroll 1
        while (some == 0) {
            first += 32;
            if (first >= tiles) {
                first = 0;
                to.head++;
                if (to.head >= at.group) {
                    return to;
                }
            }
            const int h = at.head(to.head);
            mine = classify(p, at.b, h, variant::make_head(p.x, p.z, at.b, h), first + lane_id(), at.tile);
            some = __ballot_sync(ALL_LANES, mine != TILE_NONE);
        }
        const int bit = __ffs(static_cast<int>(some)) - 1;
        to.tile = first + bit;
        to.whole = ((__ballot_sync(ALL_LANES, mine == TILE_ALL) >> bit) & 1u) != 0;
        return to;
    }
};

// How many key tiles come before this one at a query tile: those after it that have live pairs with it.
DEV u32 turn_of(const back_params &p, const key_block &at, const variant::head &head, int h, int query_tile)
{
    u32 n = 0;
#pragma unroll 1
    for (int first = at.tile + 1; first < key_tiles(p.z); first += 32) {
        const int c = classify(p, at.b, h, head, query_tile, first + lane_id());
        n += static_cast<u32>(__popc(__ballot_sync(ALL_LANES, c != TILE_NONE)));
    }
    return n;
}

} // namespace back
