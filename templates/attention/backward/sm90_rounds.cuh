// attention/backward/sm90_rounds.cuh: what the kernels of attention backward for sm_90a have in common around their
// products: a thread block works on one block of keys after the other, a round each. Its loading warp tells the others
// which, and one warp knows in which order blocks add to a tile of dq.
#pragma once
#include "attention/backward/wide_sm90_peer.cuh"
#include "attention/backward/sm90_long_lists.cuh"
#include "attention/backward/sm90_sequences.cuh"

namespace back
{

using round_place = ring_place<2>;
using single_place = ring_place<1>;

// Where something of a round lies, if there are so many places for it.
template <int PLACES> DEV round_place place_of_round(u32 round)
{
    static_assert(PLACES == 1 || PLACES == 2, "barriers of two places");
    const ring_place<PLACES> at = ring_place<PLACES>::nth(round);
    return {at.stage, at.parity};
}

// BYTES of shared memory at a multiple of 16.
struct block_rounds {
    static constexpr int BYTES = 160;
    u32 address;

    // of K, in attention_bwd_sm90 of V too
    __device__ __forceinline__ ring_barriers<2> keys() const { return {address}; }
    __device__ __forceinline__ ring_barriers<2> values() const { return {address + 32}; } // of V
    __device__ __forceinline__ ring_barriers<2> told() const { return {address + 64}; }   // of the places of two rounds
    __device__ __forceinline__ u32 place(u32 round) const { return address + 96 + 32 * (round & 1); }
    __device__ __forceinline__ u32 part(u32 round) const { return place(round) + 16; } // walk_part, where CUTS
    __device__ __forceinline__ u32 joined(u32 round) const { return __float_as_uint(load_shared(part(round) + 12)); }
    __device__ __forceinline__ peer_places peer() const { return {address + BYTES}; } // where PAIRED
    // group 0: there is none any more
    __device__ __forceinline__ key_block block(u32 round) const { return find_block(place(round)); }

    __device__ __forceinline__ void init() const
    {
        keys().init(WARPS);
        values().init(WARPS);
        told().init(WARPS + (cfg::WANT_DQ ? 1 : 0));
    }
    // By a warp that reads K (and V) of this round no more; V; the place of this round.
    __device__ __forceinline__ void leave_keys(round_place at) const
    {
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(keys().empty(at.stage));
        }
    }
    __device__ __forceinline__ void leave_values(round_place at) const
    {
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(values().empty(at.stage));
        }
    }
    __device__ __forceinline__ void leave(u32 round) const
    {
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(told().empty(round & 1));
        }
    }
};

// ---- the warp that loads -----------------------------------------------------------------------------

// Which block a round works on: tell_round() by a warp, the others by its leader.
DEV u32 number_of_round(const back_params &p, u32 round)
{
    if (p.z.len_q > 0 && (cfg::DETERMINISTIC || round > 0)) {
        // under DETERMINISTIC in the order in which they are begun: none waits for one that has not
        return (cfg::DETERMINISTIC ? 0 : walkers()) + take_ticket(block_counter(p));
    }
    return fresh_block() / PAIR + round * walkers(); // without queries there is no counter
}
DEV u32 next_number(const back_params &p, const block_rounds &rounds, u32 round, u32 taken)
{
    if constexpr (PAIRED) {
        return rounds.peer().next().exchange(taken, [&] { return number_of_round(p, round); });
    } else {
        return number_of_round(p, round);
    }
}
DEV u32 number_of_blocks(const sizes &z)
{
    return static_cast<u32>(key_pairs(z)) * static_cast<u32>(z.n_b) * static_cast<u32>(z.n_h_kv);
}
DEV bool is_block(const sizes &z, u32 number) { return number < number_of_blocks(z); }
DEV void tell_block(const block_rounds &rounds, u32 round, bool exists, const key_block &block)
{
    const round_place at = round_place::nth(round);
    rounds.told().template wait_empty<cfg::BOUND_WAITS>(at, "place of a round");
    if (exists) {
        put_block(rounds.place(round), block);
    } else {
        put_no_block(rounds.place(round));
    }
    mbarrier_arrive(rounds.told().full(at.stage));
}
// By a warp: the block of the next round; false: there is none any more. found: what find_long_lists tells, once
// numbers are taken.
DEV bool next_by_length(const back_params &p, const block_rounds &rounds, u32 round, bool leader, u32 &found,
                        u32 &taken, key_block &block)
{
    if (round == 0) {
        found = find_long_lists(p);
    }
    const int lead = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, leader))) - 1;
#pragma unroll 1
    for (u32 from = round;; from++) { // the first number is the thread block's own, all others are taken from a counter
        const u32 number = __shfl_sync(ALL_LANES, leader ? next_number(p, rounds, from, taken++) : 0, lead);
        if (number < long_ones(found)) {
            block = nth_long_block(p, found, number);
            return true;
        }
        if (!is_block(p.z, number - long_ones(found))) {
            return false;
        }
        block = nth_block(p.z, number - long_ones(found));
        order_by_length(p, block);
        if (!is_long(p, found, block)) {
            return true;
        }
    }
}
// left: what of a share is left for the round, or what find_long_lists tells; taken: numbers so far.
DEV void tell_round(const back_params &p, const block_rounds &rounds, u32 round, bool leader, u32 &left, u32 &taken)
{
    if constexpr (HAS_SEQUENCES<back_params>) {
        const int lead = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, leader))) - 1;
        const u32 number = __shfl_sync(ALL_LANES, leader ? next_number(p, rounds, round, taken++) : 0, lead);
        const block_in_sequence found = nth_of_sequences(p, number, round, leader);
        if (leader) {
            rounds.told().template wait_empty<cfg::BOUND_WAITS>(round_place::nth(round), "place of a round");
            tell_block(rounds, round, found.b >= 0, found.b >= 0 ? enter_sequence(p, round, found) : key_block{});
        }
    } else if constexpr (BY_LENGTH) {
        key_block block{};
        const bool exists = next_by_length(p, rounds, round, leader, left, taken, block);
        if (leader) {
            tell_block(rounds, round, exists, block);
        }
    } else if (leader) {
        const u32 number = left == 0 ? next_number(p, rounds, round, taken++) : 0;
        if constexpr (CUTS) {
            walk_part part{};
            const key_block block = find_part(p.z, number_of_blocks(p.z), number, left, part);
            rounds.told().template wait_empty<cfg::BOUND_WAITS>(round_place::nth(round), "place of a round");
            put_part(rounds.part(round), part);
            tell_block(rounds, round, block.group > 0, block);
        } else {
            const bool exists = is_block(p.z, number);
            tell_block(rounds, round, exists, exists ? nth_block(p.z, number) : key_block{});
        }
    }
    __syncwarp();
}

using walk_of_round = pick<CUTS, part_walk, walk>::type;
DEV auto begin_walk(const block_rounds &rounds, u32 round)
{
    if constexpr (CUTS) {
        return part_walk{rounds.part(round)};
    } else {
        return walk{};
    }
}

// All blocks of the thread block. The first query tile of a block comes while the block before is still worked on, and
// its keys as soon as no one reads those before. LOADER: params, rounds, whether this thread is the leader, the number
// of the round; and for the leader load_queries, load_first (with keys), load_nothing (no query tile is for these keys)
// and, for all, to the next place.
template <class LOADER> DEV void load_rounds(LOADER &l)
{
    u32 left = 0, taken = 0;
#pragma unroll 1
    while (true) {
        tell_round(l.params.p, l.rounds, l.round, l.leader, left, taken);
        l.rounds.told().template wait_full<cfg::BOUND_WAITS>(round_place::nth(l.round), "round, loader");
        const back_params &p = params_of_round(l.params.p, l.round);
        const int group = l.rounds.block(l.round).group;
        if (group == 0) {
            break;
        }
        walk_of_round tiles = begin_walk(l.rounds, l.round);
        position now = tiles.next({0, -32, false}, p, l.rounds.block(l.round));
        if (now.head >= group) {
            if (l.leader) {
                l.load_nothing();
            }
            __syncwarp();
            l.skip();
        }
        bool first = true;
#pragma unroll 1
        while (now.head < group) {
            const position next = tiles.next(now, p, l.rounds.block(l.round));
            if (l.leader) {
                const bool last = next.head >= group;
                if (first) {
                    l.load_first(now, last);
                } else {
                    l.load_queries(now, last);
                }
            }
            __syncwarp();
            l.step();
            now = next;
            first = false;
        }
        l.round++;
    }
}

// By a warp that computes: are these the block's dk' and dv'? Else they are left to another piece.
template <class SUMS> DEV bool is_whole(const back_params &p, SUMS &sums, const block_rounds &rounds, u32 round)
{
    if constexpr (CUTS) {
        const u32 joined = rounds.joined(round);
        return joined == 0 || join_pieces(p, sums, joined);
    } else {
        return true;
    }
}

// ---- the warp that knows about tiles of dq -----------------------------------------------------------

// When it is this block's turn at a tile: by a warp. Then, for its leader, that it has come: 0: the first turn of all.
DEV u32 find_turn(const back_params &p, const key_block &at, int h, const position &now, int line, bool leader)
{
    if constexpr (cfg::DETERMINISTIC) {
        return turn_of(p, at, variant::make_head(p.x, p.z, at.b, h), h, now.tile);
    } else {
        return leader ? take_ticket(ticket_word(p, line)) : 0;
    }
}
// The word that tells about a tile of dq, or this block's columns of it.
DEV u32 *turn_word(const back_params &p, int line)
{
    if constexpr (PAIRED) {
        return order_word(p, line, cluster_rank());
    } else {
        return order_word(p, line);
    }
}
DEV void wait_for_turn(const back_params &p, int line, u32 turn)
{
    if (turn > 0) {
        if constexpr (cfg::BOUND_WAITS) {
            wait_turn_bounded(turn_word(p, line), cfg::DETERMINISTIC ? turn : 1, "turn at dq");
        } else {
            wait_turn(turn_word(p, line), cfg::DETERMINISTIC ? turn : 1);
        }
        fence_async_global(); // what the blocks before have added, too
    }
}

// ADDER: launched, rounds, leader; add one tile, or skip a round without one; and finish_last, of what has not been
// told yet: no block may have to wait for it until this one has another tile.
template <class ADDER> DEV void add_rounds(ADDER &a)
{
    const block_rounds rounds = a.rounds;
#pragma unroll 1
    for (u32 round = 0;; round++) {
        rounds.told().template wait_full<cfg::BOUND_WAITS>(round_place::nth(round), "round, adder");
        const key_block at = rounds.block(round);
        if (at.group == 0) {
            break;
        }
        const back_params &p = params_of_round(a.launched, round);
        walk_of_round tiles = begin_walk(rounds, round);
        position now = tiles.next({0, -32, false}, p, at);
        if (now.head >= at.group) {
            a.skip();
        }
#pragma unroll 1
        while (now.head < at.group) {
            a.add(p, at, now);
            now = tiles.next(now, p, at);
        }
        if (a.leader) {
            a.finish_last(p);
        }
        rounds.leave(round);
    }
}

} // namespace back
