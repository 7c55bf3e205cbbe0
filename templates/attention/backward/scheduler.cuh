// attention/backward/scheduler.cuh: the work of attention backward: which block has which keys, and the query tiles
// that it walks.
#pragma once
#include "attention/backward/parts.cuh"

namespace back
{

struct key_block {
    int b, h_kv, tile;
    int kv0;
    int group;         // query heads of the key head
    bool ends = false; // of the last section: no other work is left beside it
    __device__ __forceinline__ int head(int number) const { return h_kv * group + number; } // of the group
};

// Bytes of q, do and dq that heads at work at the same time may have together, or two of them twice as many: they are
// to stay in L2. On an H200 half as many are 1 to 2 % faster up to 4096 tokens, but not in the wide kernel under a
// causal mask (2 % slower); sm_80 was not asked.
constexpr i64 SECTION_BYTES = (cfg::BACK_WGMMA && !(variant::MASKED && SPLIT > 1) ? 16ll : 32ll) << 20;

// Of the pair of this number, this block's key tile.
DEV int tile_in_pair(u32 pair)
{
    if constexpr (PAIRED) {
        return static_cast<int>(2 * pair + cluster_rank());
    } else {
        return static_cast<int>(pair);
    }
}

// Heads in sections, and within a section one key tile of all heads after the other: those with the most query tiles
// under a causal mask first, or, where blocks take turns at dq, last: each then finds its turn when it gets there. A
// block waits for this, and division is slow: sections are of a power of two of heads, one that leaves no narrow last
// section if 4 or less do not either.
DEV key_block nth_block(const sizes &z, u32 n)
{
    const u32 tiles = static_cast<u32>(max(key_pairs(z), 1));
    const u32 heads = static_cast<u32>(z.n_b) * static_cast<u32>(z.n_h_kv);
    int group = z.group();
    if constexpr (cfg::BACK_WGMMA) {
        keep(group); // divided once: the warps that load have few registers
    }
    const i64 bytes = static_cast<i64>(group) * z.len_q * (4 * DK + 2 * DK + 2 * DV);
    u32 log = 0; // of the width
    while ((2ll << log) * bytes <= (log > 0 ? SECTION_BYTES : 32ll << 20) && (2u << log) <= heads) {
        log++;
    }
    while (log > 2 && (heads & ((1u << log) - 1)) != 0) {
        log--;
    }
    const u32 section = (n >> log) / tiles;
    const u32 rest = n - (section * tiles << log);
    const u32 here = heads - (section << log); // of heads
    const bool full = here >= 1u << log;
    const u32 turn = full ? rest >> log : rest / here;
    const u32 head = (section << log) + (full ? rest & ((1u << log) - 1) : rest - turn * here);
    key_block at;
    at.b = static_cast<int>(head / static_cast<u32>(z.n_h_kv));
    at.h_kv = static_cast<int>(head - static_cast<u32>(at.b) * static_cast<u32>(z.n_h_kv));
    at.tile = tile_in_pair(cfg::DETERMINISTIC ? tiles - 1 - turn : turn);
    at.kv0 = at.tile * BN;
    at.group = group;
    at.ends = (section + 1) << log >= heads;
    return at;
}

// The query tile at which a block begins with each head, to go round: where dq' is not 0 before, the first block that
// has some of a tile stores it and the others wait, so those of a head begin at different tiles; under a causal mask
// they do anyway.
DEV int first_tile(const sizes &z, int kv0)
{
    const int tile = kv0 / BM;
    return cfg::BACK_DQ_STORED && !cfg::DETERMINISTIC && tile < query_tiles(z) ? tile : 0;
}

// What LATHE_ENTRY(bwd_map) has found of a mask that reads data: a line for each batch and head that differ and each
// key tile, of as many words as there are query tiles: those that a block walks (where PAIRED, also those of which only
// its neighbour has live pairs), in its order, and then 0. A word is 16 times the tile, plus what it has for each
// warpgroup, a tile_class of two bits. Behind the lists, under DETERMINISTIC a byte for each tile: has it live pairs?
// Else a byte for each line: which share of the query tiles it has, up to 255.
DEV i64 list_line(const sizes &z, int b, int h, int key_tile)
{
    const i64 n_h = variant::MAP_PER_HEAD ? z.n_h : 1;
    return ((variant::MAP_PER_BATCH ? b : 0) * n_h + (variant::MAP_PER_HEAD ? h : 0)) * (key_pairs(z) * PAIR) +
           key_tile;
}
DEV i64 list_bytes(const sizes &z)
{
    return list_line(z, z.n_b - 1, z.n_h - 1, key_pairs(z) * PAIR) * query_tiles(z) * 4;
}

// Where a mask reads data, the key tiles of the last section go by their lists, the longest first: a thread block that
// begins a long one last would work on alone. By a warp; not of so many that it takes long.
constexpr bool BY_LENGTH = variant::MAP && !cfg::DETERMINISTIC;
constexpr int BY_LENGTH_TILES = 4 * 32;

DEV void order_by_length(const back_params &p, key_block &at)
{
    const int tiles = key_pairs(p.z);
    if (!at.ends || p.z.len_q == 0 || tiles > BY_LENGTH_TILES) {
        return;
    }
    const unsigned char *shares = p.map + list_bytes(p.z) + list_line(p.z, at.b, at.head(0), 0);
    int mine[4]; // of tiles 32 j + lane; those that do not exist come last
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int tile = 32 * j + lane_id();
        mine[j] = tile < tiles ? shares[PAIR * tile] : 0;
    }
    const auto count = [&](int least) {
        int n = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            n += __popc(__ballot_sync(ALL_LANES, mine[j] >= least));
        }
        return n;
    };
    int share = 0; // of the tile: the largest one that more tiles than those before it have
#pragma unroll 1
    for (int bit = 128; bit > 0; bit >>= 1) {
        share += count(share + bit) > at.tile / PAIR ? bit : 0;
    }
    int left = at.tile / PAIR - count(share + 1); // of those with this share
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 same = __ballot_sync(ALL_LANES, mine[j] == share);
        const int here = __popc(same);
        const u32 before = same & ((1u << lane_id()) - 1);
        const u32 found = __ballot_sync(ALL_LANES, mine[j] == share && __popc(before) == left);
        if (left >= 0 && left < here) {
            at.tile = tile_in_pair(static_cast<u32>(32 * j + __ffs(static_cast<int>(found)) - 1));
        }
        left -= here;
    }
    at.kv0 = at.tile * BN;
}
constexpr u32 ALL_OF_BOTH = TILE_ALL | TILE_ALL << 2;

template <class PARAMS>
DEV int classify(const PARAMS &p, int b, int h, const variant::head &head, int query_tile, int key_tile)
{
    const sizes &z = p.z;
    const int row0 = query_tile * BM;
    const int kv0 = key_tile * BN;
    if (query_tile >= query_tiles(z) || kv0 >= z.len_kv) {
        return TILE_NONE;
    }
    int c = TILE_ALL;
    if constexpr (variant::MAP) {
        c = p.map[list_bytes(z) + list_line(z, b, h, key_tile) * query_tiles(z) + query_tile];
    } else if constexpr (variant::MASKED) {
        c = static_cast<int>(
            variant::classify(p.x, z, head, row0, min(row0 + BM, z.len_q) - 1, kv0, min(kv0 + BN, z.len_kv) - 1));
    }
    const bool inside = row0 + BM <= z.len_q && kv0 + BN <= z.len_kv;
    return c == TILE_ALL && !inside ? static_cast<int>(TILE_SOME) : c;
}

// The same as a walk has it: a tile of the other block of a pair is walked, too.
template <class PARAMS>
DEV int classify_walked(const PARAMS &p, int b, int h, const variant::head &head, int query_tile, int key_tile)
{
    int c = classify(p, b, h, head, query_tile, key_tile);
    if constexpr (PAIRED) {
        if (c == TILE_NONE && classify(p, b, h, head, query_tile, key_tile ^ 1) != TILE_NONE) {
            c = TILE_SOME;
        }
    }
    return c;
}

struct position {
    int head; // of the group; the number of heads: the end
    int tile;
    bool whole;      // every pair is live
    u32 classes = 0; // where the mask reads data: of the parts of both warpgroups, two bits each
};

// Walks the query tiles that have live pairs, head by head. 32 are classified, or looked up, at a time, one a lane; all
// warps of the block get the same answers.
struct walk {
    int mine = TILE_NONE; // class of this lane's tile of the current 32, or its word in the list
    int first_word = 0;   // of the list's current 32

    __device__ __forceinline__ position next(const position &last, const back_params &p, const key_block &at)
    {
        if constexpr (variant::MAP) {
            return next_listed(last, p, at);
        } else {
            return next_classified(last, p, at);
        }
    }

    __device__ __forceinline__ position next_listed(const position &last, const back_params &p, const key_block &at)
    {
        const bool begins = last.tile < 0;
        position to{begins ? last.head - 1 : last.head, 0, false};
        u32 some = begins ? 0 : __ballot_sync(ALL_LANES, mine != 0);
        u32 rest = 0; // those after the last one
        if (!begins) {
            const u32 here = __ballot_sync(ALL_LANES, mine != 0 && mine >> 4 == last.tile);
            rest = ~(here | (here - 1));
        }
#pragma unroll 1
        while ((some & rest) == 0) {
            if (some == ALL_LANES) {
                first_word += 32;
            } else {
                first_word = 0;
                to.head++;
                if (to.head >= at.group) {
                    return to;
                }
            }
            const int tiles = query_tiles(p.z);
            const u32 *list =
                reinterpret_cast<const u32 *>(p.map) + list_line(p.z, at.b, at.head(to.head), at.tile) * tiles;
            const int word = first_word + lane_id();
            mine = word < tiles ? static_cast<int>(list[word]) : 0;
            some = __ballot_sync(ALL_LANES, mine != 0);
            rest = ~0u;
        }
        const u32 found = static_cast<u32>(__shfl_sync(ALL_LANES, mine, __ffs(static_cast<int>(some & rest)) - 1));
        to.tile = static_cast<int>(found >> 4);
        to.classes = found & 15u;
        to.whole = to.classes == ALL_OF_BOTH;
        return to;
    }

    __device__ __forceinline__ position next_classified(const position &last, const back_params &p, const key_block &at)
    {
        const int tiles = query_tiles(p.z);
        position to{last.head, 0, false};
        if (last.head >= at.group) {
            return to;
        }
        const int start = first_tile(p.z, at.kv0);
        const int step =
            last.tile < start && last.tile >= 0 ? last.tile + tiles - start : last.tile - (last.tile < 0 ? 0 : start);
        int first = step & ~31; // -32 before the first tile
        u32 some = __ballot_sync(ALL_LANES, mine != TILE_NONE && lane_id() > (step & 31));
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
            const int tile = first + lane_id() + start;
            mine = first + lane_id() >= tiles ? static_cast<int>(TILE_NONE)
                                              : classify_walked(p, at.b, h, variant::make_head(p.x, p.z, at.b, h),
                                                                tile < tiles ? tile : tile - tiles, at.tile);
            some = __ballot_sync(ALL_LANES, mine != TILE_NONE);
        }
        const int bit = __ffs(static_cast<int>(some)) - 1;
        to.tile = first + bit + start < tiles ? first + bit + start : first + bit + start - tiles;
        to.whole = ((__ballot_sync(ALL_LANES, mine == TILE_ALL) >> bit) & 1u) != 0;
        return to;
    }
};

// How many key tiles (pairs of them) come before this one at a query tile: those after it that have live pairs with it.
DEV u32 turn_of(const back_params &p, const key_block &at, const variant::head &head, int h, int query_tile)
{
    u32 n = 0;
#pragma unroll 1
    for (int first = at.tile / PAIR + 1; first < key_pairs(p.z); first += 32) {
        const int c = classify_walked(p, at.b, h, head, query_tile, PAIR * (first + lane_id()));
        n += static_cast<u32>(__popc(__ballot_sync(ALL_LANES, c != TILE_NONE)));
    }
    return n;
}

} // namespace back
