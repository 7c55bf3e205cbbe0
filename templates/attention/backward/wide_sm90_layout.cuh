// attention/backward/wide_sm90_layout.cuh: attention_bwd_wide_sm90: where everything lies in shared memory, its
// barriers, and the warp that loads.
//
// A tile of D (or D_V) columns lies as SPLIT tiles of D / SPLIT columns, one after the other: a warpgroup's part of
// them is one.
#pragma once
#include "attention/backward/sm90_rounds.cuh"

static_assert(cfg::BACK_SPLIT == 2 && cfg::BACK_BN == 64 && cfg::BACK_BM == 128,
              "cfg::BACK_SPLIT is 2, cfg::BACK_BN 64 and cfg::BACK_BM 128: two warpgroups share 64 keys and have 64 "
              "queries each");

namespace back
{

constexpr int PART_K = DK / SPLIT; // columns of a part of q, k, dq and dk
constexpr int PART_V = DV / SPLIT; // of v, do and dv
static_assert(PART_K % 16 == 0 && PART_V % 16 == 0 && PART_K <= 128 && PART_V <= 128,
              "cfg::D and cfg::D_V are at most 256: registers hold a half of dk' and of dv'");

constexpr int PEER_BYTES = PAIRED ? 192 : 0;
static_assert(!PAIRED || peer_places::BYTES <= PEER_BYTES, "the planner has room for what a pair tells each other");

struct layout { // offsets in bytes
    static constexpr int Q_BYTES = BM * DK * ELEMENT_BYTES<cfg::element_q>;
    static constexpr int DO_BYTES = BM * DV * ELEMENT_BYTES<cfg::element_o>;
    static constexpr int PANEL_BYTES = 64 * 128; // of weights or ds: [key][query], the 64 queries of a warpgroup
    static constexpr int ROWS_BYTES = TILE_ROWS_BYTES;
    static constexpr int TABLE_BYTES = variant::BACK_DIAG ? 4 * 128 : 0; // of a warpgroup
    static constexpr int K = 0;
    static constexpr int V = K + BN * DK * ELEMENT_BYTES<cfg::element_k>;
    static constexpr int Q = V + BN * DV * ELEMENT_BYTES<cfg::element_v>; // stages, one after the other
    static constexpr int DO = Q + STAGES * Q_BYTES;
    static constexpr int W = DO + DO_BYTES;        // two panels
    static constexpr int DS = W + 2 * PANEL_BYTES; // two panels
    static constexpr int ROWS = DS + 2 * PANEL_BYTES;
    static constexpr int TABLE = ROWS + STAGES * ROWS_BYTES;
    static constexpr int POSITION = TABLE + 2 * TABLE_BYTES; // of each stage: 8 bytes
    static constexpr int Q_RING = POSITION + 16;
    static constexpr int DO_RING = Q_RING + 32;
    static constexpr int DQ_RING = DO_RING + 16;
    static constexpr int FIRST = DQ_RING + 16; // whether dq of the tile is stored, not added
    static constexpr int ROUNDS = FIRST + 16;
    static constexpr int PEER = ROUNDS + block_rounds::BYTES;
    static constexpr int SUMS = PEER + PEER_BYTES;
    static constexpr int BYTES = SUMS + SUMS_BYTES;
    static_assert(BYTES <= BACK_SMEM_LIMIT - cfg::BACK_SEQUENCE_BYTES, "a block has at most 227 KiB of shared memory");
};

using q_place = ring_place<STAGES>;
using do_place = ring_place<1>;
DEV ring_barriers<STAGES> q_ring(u32 shared) { return {shared + layout::Q_RING}; }
DEV ring_barriers<1> do_ring(u32 shared) { return {shared + layout::DO_RING}; }
// full: it is the block's turn at dq of a tile; empty: it has added
DEV ring_barriers<1> dq_ring(u32 shared) { return {shared + layout::DQ_RING}; }
DEV block_rounds rounds_at(u32 shared) { return {shared + layout::ROUNDS}; }
DEV peer_places peer_at(u32 shared) { return {shared + layout::PEER}; }
DEV u32 position_place(u32 shared, u32 stage) { return shared + layout::POSITION + 8 * stage; }

// Named barriers: of both warpgroups; and by the number of a warpgroup: its panel of weights is there, its panel of ds
// is there, it reads the other's panels no more; its own.
enum named_barrier { ALL_WORKERS = 1, W_READY = 2, DS_READY = 4, PANELS_READ = 6, OF_GROUP = 8 };

template <int ROWS, int PART>
DEV void load_parts(u32 to, const tensor_map *map, u32 full, int token, int head, int batch, u64 l2)
{
    using shape = panels<PART>;
#pragma unroll
    for (int i = 0; i < SPLIT * shape::COUNT; i++) {
        tma_load(to + static_cast<u32>(i * ROWS * shape::SPAN), map, full, i * shape::SPAN / 2, token, head, batch, l2);
    }
}
// The same of a sequence.
template <int ROWS, int PART>
DEV void load_parts(u32 to, const tensor_map *map, u32 full, int token, int head, const sequence_rows &of, u64 l2)
{
    using shape = panels<PART>;
#pragma unroll
    for (int i = 0; i < SPLIT * shape::COUNT; i++) {
        tma_load5(to + static_cast<u32>(i * ROWS * shape::SPAN), map, full, i * shape::SPAN / 2,
                  RAGGED_ROWS - of.length + token, head, of.first + of.length, RAGGED_ROWS, l2);
    }
}

// What load_parts() takes of a round's keys and queries: the batch, or rows of its sequence.
DEV auto key_rows_of(u32 round, int b)
{
    if constexpr (SEQUENCES) {
        return sequence_rows{sequence_of(round).at.first_kv, sequence_of(round).at.len_kv};
    } else {
        return b;
    }
}
DEV auto query_rows_of(u32 round, int b)
{
    if constexpr (SEQUENCES) {
        return sequence_rows{sequence_of(round).at.first_q, sequence_of(round).at.len_q};
    } else {
        return b;
    }
}

// Panels of one part. COLUMNS: that part of the tensor; BOTH: for both blocks of a pair.
template <int ROWS, int PART, bool BOTH = false> DEV void
load_part(u32 to, u32 part, u32 columns, const tensor_map *map, u32 full, int token, int head, int batch, u64 l2)
{
    using shape = panels<PART>;
#pragma unroll
    for (u32 i = 0; i < shape::COUNT; i++) {
        const u32 place = to + (part * shape::COUNT + i) * (ROWS * shape::SPAN);
        const int column = static_cast<int>((columns * shape::COUNT + i) * (shape::SPAN / 2));
        if constexpr (BOTH) {
            tma_load_both(place, map, full, column, token, head, batch, l2);
        } else {
            tma_load(place, map, full, column, token, head, batch, l2);
        }
    }
}

struct loader { // of the warp that loads; one of its threads, the leader, writes and waits
    const hopper_back_params &params;
    u32 shared;
    block_rounds rounds;
    bool leader;
    u32 round = 0;
    q_place q{0, 0};
    do_place dout{0, 0};

    __device__ __forceinline__ void step()
    {
        q = q.next();
        dout = dout.next();
    }
    __device__ __forceinline__ void skip() { q = q.next(); } // a round without a tile
    // Read again where it is needed: the warp has few registers.
    __device__ __forceinline__ key_block place() const { return rounds.block(round); }
    __device__ __forceinline__ const back_params &own() const { return params_of_round(params.p, round); }

    __device__ __forceinline__ void load_k() const
    {
        const key_block at = place();
        const u32 full = rounds.keys().full(0);
        rounds.keys().template wait_empty<cfg::BOUND_WAITS>(place_of_round<1>(round), "place of K");
        if constexpr (PAIRED) {
            mbarrier_arrive_expect(full, BN * PART_K * ELEMENT_BYTES<cfg::element_k>);
            load_part<BN, PART_K>(shared + layout::K, cluster_rank(), cluster_rank(), &params.k, full, at.kv0, at.h_kv,
                                  at.b, L2_STREAM);
            return;
        }
        mbarrier_arrive_expect(full, BN * DK * ELEMENT_BYTES<cfg::element_k>);
        load_parts<BN, PART_K>(shared + layout::K, &params.k, full, at.kv0, at.h_kv, key_rows_of(round, at.b),
                               L2_STREAM);
    }
    __device__ __forceinline__ void load_v() const
    {
        const key_block at = place();
        const u32 full = rounds.values().full(0);
        rounds.values().template wait_empty<cfg::BOUND_WAITS>(place_of_round<1>(round), "place of V");
        mbarrier_arrive_expect(full, BN * DV * ELEMENT_BYTES<cfg::element_v>);
        load_parts<BN, PART_V>(shared + layout::V, &params.v, full, at.kv0, at.h_kv, key_rows_of(round, at.b),
                               L2_STREAM);
    }
    // No query tile is for these keys.
    __device__ __forceinline__ void load_nothing() const
    {
        q_ring(shared).template wait_empty<cfg::BOUND_WAITS>(q, "place of Q");
        store_shared(position_place(shared, q.stage), NO_TILE);
        mbarrier_arrive(q_ring(shared).full(q.stage));
        if constexpr (PAIRED) {
            peer_at(shared).meet(peer_at(shared).q(q.stage), q.parity); // its phases are those of the ring
        }
        rounds.keys().template wait_empty<cfg::BOUND_WAITS>(place_of_round<1>(round), "place of K");
        mbarrier_arrive(rounds.keys().full(0));
        rounds.values().template wait_empty<cfg::BOUND_WAITS>(place_of_round<1>(round), "place of V");
        mbarrier_arrive(rounds.values().full(0));
    }
    __device__ __forceinline__ void load_q(const position &now, bool last) const
    {
        const key_block at = place();
        const int h = at.head(now.head);
        const u32 full = q_ring(shared).full(q.stage);
        q_ring(shared).template wait_empty<cfg::BOUND_WAITS>(q, "place of Q");
        const int c = now.whole ? TILE_ALL : TILE_SOME;
        put_position(position_place(shared, q.stage), now, variant::MAP ? now.classes : class_bits(c, c), last);
        mbarrier_arrive_expect(full, layout::Q_BYTES + layout::ROWS_BYTES);
        if constexpr (PAIRED) {
            peer_at(shared).meet(peer_at(shared).q(q.stage), q.parity);
            load_part<BM, PART_K, true>(shared + layout::Q + q.stage * layout::Q_BYTES, cluster_rank(), cluster_rank(),
                                        &params.q, full, now.tile * BM, h, at.b, L2_KEEP);
            load_rows(params.p, shared + layout::ROWS + q.stage * layout::ROWS_BYTES, full, at.b, h, now.tile);
            return;
        }
        load_parts<BM, PART_K>(shared + layout::Q + q.stage * layout::Q_BYTES, &params.q, full, now.tile * BM, h,
                               query_rows_of(round, at.b), L2_KEEP);
        load_rows(own(), shared + layout::ROWS + q.stage * layout::ROWS_BYTES, full, at.b, h, now.tile);
    }
    __device__ __forceinline__ void load_do(const position &now) const
    {
        const key_block at = place();
        const u32 full = do_ring(shared).full(dout.stage);
        do_ring(shared).template wait_empty<cfg::BOUND_WAITS>(dout, "place of dO");
        mbarrier_arrive_expect(full, layout::DO_BYTES);
        if constexpr (PAIRED) {
            peer_at(shared).meet(peer_at(shared).dout(), dout.parity);
            load_part<BM, PART_V, true>(shared + layout::DO, cluster_rank(), cluster_rank(), &params.dout, full,
                                        now.tile * BM, at.head(now.head), at.b, L2_KEEP);
            return;
        }
        load_parts<BM, PART_V>(shared + layout::DO, &params.dout, full, now.tile * BM, at.head(now.head),
                               query_rows_of(round, at.b), L2_KEEP);
    }
    // Where PAIRED: of a tile, the half of K that only scores read; then of the other's K the half that dq' reads.
    __device__ __forceinline__ void load_x(bool other) const
    {
        const key_block at = place();
        const ring_barriers<1> x = peer_at(shared).x();
        const u32 rank = cluster_rank();
        x.template wait_empty<cfg::BOUND_WAITS>({0, other ? 1u : 0u}, "place of half of K");
        mbarrier_arrive_expect(x.full(0), BN * PART_K * ELEMENT_BYTES<cfg::element_k>);
        load_part<BN, PART_K>(shared + layout::K, rank ^ 1u, other ? rank : rank ^ 1u, &params.k, x.full(0),
                              other ? at.kv0 ^ BN : at.kv0, at.h_kv, at.b, L2_KEEP);
    }
    __device__ __forceinline__ void load_halves() const
    {
        if constexpr (PAIRED) {
            load_x(false);
            load_x(true);
        }
    }
    // In the order in which places are free: Q early where it has two, else after dO.
    __device__ __forceinline__ void load_queries(const position &now, bool last, bool begins = false) const
    {
        if constexpr (STAGES == 1) {
            load_do(now);
            load_q(now, last);
        } else {
            load_q(now, last);
            load_do(now);
        }
        if (!begins) {
            load_halves();
        }
    }
    __device__ __forceinline__ void load_first(const position &now, bool last) const
    {
        if constexpr (STAGES == 1) {
            load_v();
            load_queries(now, last, true);
        } else {
            load_q(now, last);
            load_v();
            load_do(now);
        }
        load_k();
        load_halves();
    }
};

DEV void load_all(const hopper_back_params &params, u32 shared)
{
    loader l{params, shared, rounds_at(shared), elect_one()};
    load_rounds(l);
}

// Tells the others when it is the block's turn at dq of a tile, and whether it is the first of all: then they store it.
// By one warp; its leader writes and waits.
struct adder {
    const back_params &launched;
    u32 shared;
    block_rounds rounds;
    bool leader;
    u32 count = 0;   // tiles so far
    int stored = -1; // line of the tile for which others may wait

    __device__ __forceinline__ void skip() {}
    __device__ __forceinline__ void finish_last(const back_params &p)
    {
        if (stored >= 0) {
            dq_ring(shared).template wait_empty<cfg::BOUND_WAITS>(single_place::nth(count), "additions, to tell");
            fence_global();
            end_turn(turn_word(p, stored));
            stored = -1;
        }
    }

    __device__ __forceinline__ void add(const back_params &p, const key_block &at, const position &now)
    {
        const int h = at.head(now.head);
        const int line = static_cast<int>(tile_line(p.z, own_batch(p, at.b), h)) + now.tile;
        const bool asked = PAIRED && !cfg::DETERMINISTIC; // of rank 0, by both
        u32 turn = asked ? 0 : find_turn(p, at, h, now, line, leader);
        if (leader) {
            finish_last(p);
            if constexpr (asked) {
                turn = peer_at(shared).turn().exchange(count, [&] { return take_ticket(p.order + line); });
            }
            wait_for_turn(p, line, turn);
            dq_ring(shared).template wait_empty<cfg::BOUND_WAITS>(single_place::nth(count), "additions before");
            store_shared(shared + layout::FIRST, turn == 0 ? 1u : 0u);
            mbarrier_arrive(dq_ring(shared).full(0));
            stored = cfg::DETERMINISTIC || turn == 0 ? line : -1;
            count++;
        }
        __syncwarp();
    }
};

DEV void add_all(const hopper_back_params &params, u32 shared)
{
    adder a{params.p, shared, rounds_at(shared), elect_one()};
    add_rounds(a);
}

} // namespace back
