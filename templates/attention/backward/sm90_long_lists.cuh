// attention/backward/sm90_long_lists.cuh: attention backward for sm_90a: blocks of keys that many more queries see than
// others, as the first keys of a sparse mask are, come before all others.
//
// Heads come in sections, which keeps their tensors in L2, and within the last one the longest come first. A block of
// an earlier section that is as long ends in time, too; but one of the last section that is longer than this section
// takes does not. So the few long ones of all sections have the first numbers, and are left out where their turn would
// be. A list is long if it has more than half of the query tiles of the longest; where more than one in eight is, or
// more than there are thread blocks, none is.
#pragma once
#include "attention/backward/sm90_split_tail.cuh"

namespace back
{

constexpr u32 LONG_ONE_IN = 8;
constexpr u32 MOST_LISTS = 8192; // more are not looked at, and there the end counts for little
constexpr u32 LONG_SHARE = 16;   // from this bit on, the least share of a list that is long; below, how many are

DEV u32 lists_of(const sizes &z) { return static_cast<u32>(list_line(z, z.n_b - 1, z.n_h - 1, key_pairs(z) * PAIR)); }

// By a warp: f(list, its share) of four neighbours after the other in each lane; behind the last four, share 0. Lists
// of other heads of a group than the first, and of the second of a pair, are left out.
template <class F> DEV void for_lists(const back_params &p, const F &f)
{
    const sizes &z = p.z;
    const u32 lists = lists_of(z) & ~3u;
    const u32 *words = reinterpret_cast<const u32 *>(p.map + list_bytes(z));
    const u32 of_group = static_cast<u32>(key_pairs(z) * PAIR * z.group());
    const u32 of_head = static_cast<u32>(key_pairs(z) * PAIR);
#pragma unroll 4
    for (u32 first = 0; first < lists; first += 128) {
        const u32 list = first + 4 * static_cast<u32>(lane_id());
        const u32 word = list < lists ? words[list / 4] : 0;
#pragma unroll
        for (u32 k = 0; k < 4; k += PAIR) {
            const bool leads = z.group() == 1 || (list + k) % of_group < of_head;
            f(list + k, leads ? static_cast<int>(word >> (8 * k) & 0xffu) : 0);
        }
    }
}

// How many lists are long, and the least share of these. By a warp, once a launch.
DEV u32 find_long_lists(const back_params &p)
{
    const sizes &z = p.z;
    const u32 lists = z.len_q > 0 && z.len_kv > 0 ? lists_of(z) : 0;
    // each block has one of its own
    const bool apart = (variant::MAP_PER_BATCH || z.n_b == 1) && (variant::MAP_PER_HEAD || z.n_h == 1);
    if (!apart || lists == 0 || lists > MOST_LISTS || (nth_block(z, 0).ends && key_pairs(z) <= BY_LENGTH_TILES)) {
        return 0;
    }
    int most = 0;
    for_lists(p, [&](u32, int share) { most = max(most, share); });
    const int least = warp_max(most) / 2 + 1;
    u32 n = 0;
    for_lists(p, [&](u32, int share) { n += static_cast<u32>(__popc(__ballot_sync(ALL_LANES, share >= least))); });
    const u32 blocks = lists / static_cast<u32>(PAIR * z.group());
    return n <= walkers() && n * LONG_ONE_IN <= blocks ? n | static_cast<u32>(least) << LONG_SHARE : 0;
}
DEV u32 long_ones(u32 found) { return found & ((1u << LONG_SHARE) - 1u); }

// Is the block's list one of those?
DEV bool is_long(const back_params &p, u32 found, const key_block &at)
{
    const i64 list = list_line(p.z, at.b, at.head(0), at.tile / PAIR * PAIR);
    return long_ones(found) > 0 && list < (lists_of(p.z) & ~3u) && p.map[list_bytes(p.z) + list] >= found >> LONG_SHARE;
}

// The n'th of them, by a warp.
DEV key_block nth_long_block(const back_params &p, u32 found, u32 n)
{
    const int least = static_cast<int>(found >> LONG_SHARE);
    u32 list = 0;
    u32 before = 0;
    for_lists(p, [&](u32 here, int share) {
        const bool mine = share >= least;
        const u32 some = __ballot_sync(ALL_LANES, mine);
        const u32 number = before + static_cast<u32>(__popc(some & ((1u << lane_id()) - 1u)));
        const u32 it = __ballot_sync(ALL_LANES, mine && number == n);
        list = it != 0 ? __shfl_sync(ALL_LANES, here, __ffs(static_cast<int>(it)) - 1) : list;
        before += static_cast<u32>(__popc(some));
    });
    const u32 tiles = static_cast<u32>(key_pairs(p.z) * PAIR);
    const u32 head = list / tiles;
    const u32 n_h = variant::MAP_PER_HEAD ? static_cast<u32>(p.z.n_h) : 1;
    key_block at{};
    at.group = p.z.group();
    at.b = static_cast<int>(head / n_h);
    at.h_kv = static_cast<int>(head % n_h) / at.group;
    at.tile = tile_in_pair((list - head * tiles) / PAIR);
    at.kv0 = at.tile * BN;
    return at;
}

} // namespace back
