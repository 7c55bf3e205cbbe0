// attention/backward/sm90_split_tail.cuh: attention backward for sm_90a: the last blocks of keys, cut into pieces so
// that all thread blocks end together.
//
// Where every block of keys has as many query tiles, blocks are worked on in waves, and the last wave is rarely full.
// Its blocks are laid in a line, one walk over query tiles behind the other, and the line is cut into shares, a ticket
// each: a piece of one block, or the end of one and the beginning of the next. A piece leaves its dk', dv' in fp32 in a
// place of its own; who of a block's pieces comes last adds the others' to its own, warp by warp.
#pragma once
#include "attention/backward/sm90_common.cuh"

namespace back
{

constexpr bool CUTS = cfg::BACK_PIECES > 0;
static_assert(!CUTS || (cfg::BACK_DQ_STORED && !variant::MASKED && !cfg::DETERMINISTIC),
              "cfg::BACK_PIECES is 0 where walks differ in length, or blocks take turns at dq in a fixed order");

constexpr u32 MOST_PIECES = 16; // of a block, where shares do not cross its ends
// In steps of a walk: the shortest such piece, and what it has to save at least; the same where shares cross: most
// blocks then leave sums twice. A share that crosses may be so much shorter.
constexpr u32 LEAST_PIECE = 4, LEAST_CROSSING = 10, WORTH_CROSSING = 3;

// The part of a block's walk that a round has, in shared memory behind the block's place.
struct walk_part {
    int head, tile; // where it begins
    u32 steps;
    // 0: all of the walk. Else the first place of the block's pieces, their number and this one's: 16, 8 and 8 bits
    u32 joined;
};
DEV void put_part(u32 place, const walk_part &x)
{
    store_shared(place, static_cast<u32>(x.head));
    store_shared(place + 4, static_cast<u32>(x.tile));
    store_shared(place + 8, x.steps);
    store_shared(place + 12, x.joined);
}

// How the blocks of a launch are cut: those behind the first `whole`, laid in a line.
struct block_cuts {
    u32 steps; // of a block
    u32 whole;
    u32 shares;     // 0: none is cut
    u32 even;       // steps of a share, and in 65536th
    u32 more, less; // how many more the first one has; each has twice `less` less than the one before
    // Where a share begins in the line, for `shares` the end: up to 250 of them, rounding does not matter there.
    __device__ __forceinline__ u32 from(u32 share) const
    {
        return share * even + ((share * (more - share * less) + 32768) >> 16);
    }
};
DEV u32 walkers() { return gridDim.x / PAIR; } // thread blocks, or pairs of them

// Thread blocks are not done with their last whole block at the same time, one in a hundred earlier or later: who comes
// first has most.
DEV u32 unevenness(u32 whole, u32 steps, u32 even)
{
    return min(min(whole / walkers() * steps / 64, 24u), min(even / 3, steps - min(even + 1, steps)));
}
DEV block_cuts find_cuts(const sizes &z, u32 blocks)
{
    const u32 steps = static_cast<u32>(z.group()) * static_cast<u32>(query_tiles(z));
    const u32 rest = blocks % walkers();
    const u32 most = min(MOST_PIECES, steps / LEAST_PIECE);
    const u32 pieces = rest > 0 ? min(walkers() / rest, most) : 0; // of a block
    block_cuts cuts{steps, blocks, 0, 0, 0, 0};
    if (pieces == 0) {
        return cuts;
    }
    const u32 line = rest * steps;
    const u32 crossing = line / walkers();
    const bool crosses = pieces < most && crossing + WORTH_CROSSING < steps / pieces;
    const u32 shares = crosses ? walkers() : rest * pieces;
    const u32 even = line / shares;
    if (even + (crosses ? LEAST_CROSSING : LEAST_PIECE) > steps) {
        return cuts;
    }
    const u32 uneven = crosses ? unevenness(blocks - rest, steps, even) : 0;
    return {steps,
            blocks - rest,
            shares,
            even,
            (uneven << 16) + ((line - shares * even) << 16) / shares,
            ((uneven << 16) + shares / 2) / shares};
}

// Which block a round has of the ticket `number`, and which part of its walk; no block: of no heads. left: 0, or one
// more than the share that goes on from the round before; and whether this one's goes on.
DEV key_block find_part(const sizes &z, u32 blocks, u32 number, u32 &left, walk_part &part)
{
    const u32 tiles = static_cast<u32>(query_tiles(z));
    block_cuts cuts{0, blocks, 0, 0, 0, 0};
    if (left > 0 || number + walkers() > blocks) {
        cuts = find_cuts(z, blocks);
    }
    u32 step = 0;
    part = {0, 0, static_cast<u32>(z.group()) * tiles, 0};
    if (left > 0 || number >= cuts.whole) {
        const u32 share = left > 0 ? left - 1 : number - cuts.whole;
        if (share >= cuts.shares) {
            left = 0;
            return {};
        }
        const u32 share_end = cuts.from(share + 1);
        u32 from = cuts.from(share);
        u32 nth = from / cuts.steps; // of the blocks that are cut
        if (left > 0) {
            nth++;
            from = nth * cuts.steps;
        }
        const u32 begin = nth * cuts.steps;
        const u32 end = begin + cuts.steps;
        u32 first = share; // that has some of the block
#pragma unroll 1
        while (cuts.from(first) > begin) {
            first--;
        }
        u32 behind = share + 1; // the last one
#pragma unroll 1
        while (cuts.from(behind) < end) {
            behind++;
        }
        left = share_end > end ? share + 1 : 0;
        number = cuts.whole + nth;
        step = from - begin;
        part.steps = min(share_end, end) - from;
        part.joined = (first + nth) << 16 | (behind - first) << 8 | (share - first);
    }
    const key_block at = nth_block(z, number);
    const u32 head = step > 0 ? step / tiles : 0;
    const u32 tile = step - head * tiles + static_cast<u32>(first_tile(z, at.kv0));
    part.head = static_cast<int>(head);
    part.tile = static_cast<int>(tile < tiles ? tile : tile - tiles);
    return at;
}

// Walks the part of a round whose walk_part is at `place`: every query tile has live pairs.
struct part_walk {
    u32 place;
    u32 left = 0;

    __device__ __forceinline__ position next(const position &last, const back_params &p, const key_block &at)
    {
        position to{last.head, last.tile + 1, false};
        if (last.tile < 0) {
            const uint4 part = load_shared16(place);
            to.head = static_cast<int>(part.x);
            to.tile = static_cast<int>(part.y);
            left = part.z;
        } else {
            to.tile = to.tile == query_tiles(p.z) ? 0 : to.tile;
            to.head += to.tile == first_tile(p.z, at.kv0) ? 1 : 0;
            left--;
        }
        to.head = left == 0 ? at.group : to.head;
        to.whole = (to.tile + 1) * BM <= p.z.len_q && at.kv0 + BN <= p.z.len_kv;
        return to;
    }
};

// ---- dk', dv' of pieces ------------------------------------------------------------------------------

// Floats of a warp in a place, in the order of registers: four of each lane.
template <class SUMS> constexpr int PIECE_FLOATS = static_cast<int>(sizeof(SUMS) / sizeof(float)) * 32;

template <int DB> DEV void leave_floats(const float (&x)[DB][4], float *to)
{
#pragma unroll
    for (int d = 0; d < DB; d++) {
        store_vec<4, float>(to + d * 128, x[d]);
    }
}
template <int DB> DEV void add_floats(float (&x)[DB][4], const float *from)
{
#pragma unroll
    for (int d = 0; d < DB; d++) {
        float y[4];
        load_vec<4, float>(from + d * 128, y);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[d][i] += y[i];
        }
    }
}

// By each warp on its own: leaves the sums of a piece, or, if the other pieces have, adds theirs: then they are the
// block's.
template <class SUMS> DEV bool join_pieces(const back_params &p, SUMS &sums, u32 joined)
{
    constexpr int VALUES = sizeof(sums.dk) / 16 * 128; // dv' is behind dk'
    const u32 warp = fresh_thread() / 32 % WARPS;
    const u32 first = joined >> 16, n = joined >> 8 & 255, mine = joined & 255;
    const u32 place = (PAIRED ? 2 * first + cluster_rank() : first) * WARPS + warp;
    u32 *const count = reinterpret_cast<u32 *>(p.pieces) + place;
    float *const places =
        p.pieces + cfg::BACK_PIECES * WARPS + static_cast<i64>(place) * PIECE_FLOATS<SUMS> + lane_id() * 4;
    constexpr i64 APART = static_cast<i64>(PAIR * WARPS) * PIECE_FLOATS<SUMS>;
    if constexpr (cfg::WANT_DK) {
        leave_floats(sums.dk, places + mine * APART);
    }
    if constexpr (cfg::WANT_DV) {
        leave_floats(sums.dv, places + mine * APART + VALUES);
    }
    __syncwarp();
    u32 before = 0;
    if (lane_id() == 0) {
        before = take_turn(count);
    }
    if (__shfl_sync(ALL_LANES, before, 0) + 1 < n) {
        return false;
    }
    __syncwarp();
#pragma unroll 1
    for (u32 k = 0; k < n; k++) {
        if (k != mine) {
            if constexpr (cfg::WANT_DK) {
                add_floats(sums.dk, places + k * APART);
            }
            if constexpr (cfg::WANT_DV) {
                add_floats(sums.dv, places + k * APART + VALUES);
            }
        }
    }
    return true;
}

} // namespace back
