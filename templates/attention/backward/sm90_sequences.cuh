// attention/backward/sm90_sequences.cuh: attention backward for sm_90a of packed sequences: which block of keys of
// which sequence a number means, and the parameters of that sequence, as of a launch of it alone.
//
// The parameters of a round lie in shared memory: each role reads what it needs where it needs it, and the warps that
// compute have no registers to keep it in. Nothing on the host knows lengths, so numbers are counted out here: of the
// sequences with the most queries first, in classes of which each begins at 1.5 or 1.33 times the length of the one
// below. Numbers of a thread block grow, so it goes through the lists once.
#pragma once
#include "attention/backward/sm90_common.cuh"

namespace back
{

constexpr bool SEQUENCES = HAS_SEQUENCES<back_params>;
static_assert(
    !SEQUENCES || (cfg::BACK_DQ_STORED && cfg::BACK_PIECES == 0 && !cfg::DETERMINISTIC && !variant::MAP && !PAIRED),
    "sequences have no pieces, no turns at dq in a fixed order and no map; attention_bwd_wide_sm90 takes none");

struct block_in_sequence {
    int b; // below 0: there is no such number
    u32 number;
};

// Where a thread block has come to: before the sequences from `first` on of this class of lengths there are `base`
// blocks.
struct sequence_cursor {
    u32 base;
    int length_class, below; // the next one, as far as has been seen
    int first;
};
struct sequence_round {
    back_params p;
    sequences::extent at;
    int room; // keys, of which fewer may be in use
};
struct sequence_places {
    sequence_round of[2]; // rounds, by turns
    sequence_cursor cursor;
};
static_assert(!SEQUENCES || sizeof(sequence_places) <= cfg::BACK_SEQUENCE_BYTES,
              "cfg::BACK_SEQUENCE_BYTES is what sequence_places takes");

DEV sequence_places &places_of_sequences()
{
    __shared__ sequence_places places;
    return places;
}
DEV sequence_round &sequence_of(u32 round) { return places_of_sequences().of[round & 1]; }

// What a round works on: its sequence alone, or what was launched.
template <class PARAMS> DEV const PARAMS &params_of_round(const PARAMS &launched, u32 round)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return sequence_of(round).p;
    } else {
        return launched;
    }
}
// Keys that have gradients: also those that are not in use, of which they are 0.
template <class PARAMS> DEV int keys_of_round(const PARAMS &p, u32 round)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return sequence_of(round).room;
    } else {
        return p.z.len_kv;
    }
}

// ---- tiles by TMA: rows of a sequence that do not exist are 0, whatever lies behind it ---------------

template <int ROWS, int COLS>
DEV void load_keys_of(u32 to, const tensor_map *map, u32 full, u32 round, const key_block &at, u64 l2)
{
    if constexpr (SEQUENCES) {
        const sequences::extent &of = sequence_of(round).at;
        load_tile<ROWS, COLS>(to, map, full, at.kv0, at.h_kv, sequence_rows{of.first_kv, of.len_kv}, l2);
    } else {
        load_tile<ROWS, COLS>(to, map, full, at.kv0, at.h_kv, at.b, l2);
    }
}
template <int ROWS, int COLS>
DEV void load_queries_of(u32 to, const tensor_map *map, u32 full, u32 round, int row0, int h, int b, u64 l2)
{
    if constexpr (SEQUENCES) {
        const sequences::extent &of = sequence_of(round).at;
        load_tile<ROWS, COLS>(to, map, full, row0, h, sequence_rows{of.first_q, of.len_q}, l2);
    } else {
        load_tile<ROWS, COLS>(to, map, full, row0, h, b, l2);
    }
}

// ---- numbers -----------------------------------------------------------------------------------------

DEV int class_of_length(int tiles)
{
    const int log = 31 - __clz(tiles); // -1 of none
    return log < 0 ? 0 : 2 * log + 1 + (log > 0 ? tiles >> (log - 1) & 1 : 0);
}

constexpr int ABOVE_ALL = 64;

// By a warp: the block of this number, which is larger than that of the round before.
template <class PARAMS> DEV block_in_sequence nth_of_sequences(const PARAMS &p, u32 number, u32 round, bool leader)
{
    sequence_cursor &kept = places_of_sequences().cursor;
    sequence_cursor at{0, ABOVE_ALL, -1, 0};
    if (round > 0) {
        at = kept;
    }
    block_in_sequence found{-1, 0};
#pragma unroll 1
    while (at.first < p.z.n_b) {
        const int b = at.first + lane_id();
        u32 blocks = 0;
        int length_class = -1;
        if (b < p.z.n_b) {
            const sequences::places of_q = sequences::queries(p);
            length_class = class_of_length((max(of_q.at(b + 1) - of_q.at(b), 0) + BM - 1) / BM);
            blocks = length_class == at.length_class
                         ? static_cast<u32>((sequences::room(p, b) + BN - 1) / BN) * static_cast<u32>(p.z.n_h_kv)
                         : 0;
        }
        at.below = max(at.below, warp_max(length_class < at.length_class ? length_class : -1));
        u32 behind = blocks; // of this lane's sequence and those before
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            const u32 before = __shfl_up_sync(ALL_LANES, behind, i);
            behind += lane_id() >= i ? before : 0;
        }
        const u32 has = __ballot_sync(ALL_LANES, number < at.base + behind);
        if (has != 0) {
            const int lane = __ffs(static_cast<int>(has)) - 1;
            found = {at.first + lane, number - at.base - __shfl_sync(ALL_LANES, behind - blocks, lane)};
            break;
        }
        at.base += __shfl_sync(ALL_LANES, behind, 31);
        at.first += 32;
        if (at.first >= p.z.n_b && at.below >= 0) {
            at = {at.base, at.below, -1, 0};
        }
    }
    __syncwarp();
    if (leader) {
        kept = at;
    }
    __syncwarp();
    return found;
}

// By one thread: the parameters of the round are those of the sequence from here on; its block.
template <class PARAMS> DEV key_block enter_sequence(const PARAMS &p, u32 round, const block_in_sequence &found)
{
    sequence_round &to = sequence_of(round);
    const i64 tiles = sequences::tiles_before<BM>(p, found.b) * p.z.n_h;
    to.p = p;
    to.at = sequences::find_extent(p, found.b);
    to.room = sequences::room(p, found.b);
    to.p.rows += tiles * TILE_ROWS_FLOATS;
    to.p.dq += tiles * dq_shape::FLOATS;
    enter_order(to.p, tiles);
    sequences::enter(to.p, to.at);
    sizes of_all = to.p.z;
    of_all.n_b = 1;
    of_all.len_kv = to.room;
    key_block at = nth_block(of_all, found.number);
    at.b = found.b;
    return at;
}

} // namespace back
