// attention/backward/sm90_layout.cuh: attention_bwd_sm90: where everything lies in shared memory, and its barriers.
#pragma once
#include "attention/backward/sm90_rounds.cuh"

static_assert(cfg::BACK_SPLIT == 1 && cfg::BACK_BN == 128,
              "cfg::BACK_SPLIT is 1, and cfg::BACK_BN 128: a warp owns 16 keys");
static_assert(cfg::BACK_BM == 64 || cfg::BACK_BM == 128, "cfg::BACK_BM is 64 or 128");
static_assert(cfg::BACK_STAGES == 2, "cfg::BACK_STAGES is 2");
static_assert(cfg::BACK_V_STEPS >= 0 && 16 * cfg::BACK_V_STEPS <= round_up(cfg::D_V, 16),
              "cfg::BACK_V_STEPS counts steps of 16 along a row of v");

namespace back
{

constexpr int WARPGROUPS = WARPS / 4; // that compute: 64 keys each

// Places in shared memory: for dq' of a tile on its way to memory, one for each warpgroup or one that they share; for K
// and V of two blocks of keys, so that the next one's come in time, or of one.
constexpr u32 SLABS = cfg::BACK_SLABS;
constexpr int KEY_PLACES = cfg::BACK_KEY_PLACES;

struct layout { // offsets in bytes
    static constexpr int K_BYTES = BN * DK * ELEMENT_BYTES<cfg::element_k>;
    static constexpr int V_BYTES = BN * DV * ELEMENT_BYTES<cfg::element_v>;
    static constexpr int Q_BYTES = BM * DK * ELEMENT_BYTES<cfg::element_q>;
    static constexpr int DO_BYTES = BM * DV * ELEMENT_BYTES<cfg::element_o>;
    // [query][key], as two panels of 64 keys: one of each warpgroup
    static constexpr int DS_BYTES = BM * BN * ELEMENT_BYTES<cfg::operand>;
    static constexpr int SLAB_BYTES = BM * DK * 4;
    static constexpr int ROWS_BYTES = TILE_ROWS_BYTES;
    static constexpr int TABLE_BYTES = variant::BACK_DIAG ? 4 * (BM + 64) : 0; // of one table; a warpgroup has two
    static constexpr int K = 0;
    static constexpr int V = K + KEY_PLACES * K_BYTES;
    static constexpr int RING = V + KEY_PLACES * V_BYTES; // stages of Q, then dO
    static constexpr int STAGE = Q_BYTES + DO_BYTES;
    static constexpr int DS = RING + STAGES * STAGE; // two of them, by turns
    static constexpr int SLAB = DS + 2 * DS_BYTES;   // dq of a tile, fp32, as it lies in memory
    static constexpr int ROWS = SLAB + static_cast<int>(SLABS) * SLAB_BYTES;
    static constexpr int TABLE = ROWS + STAGES * ROWS_BYTES;
    static constexpr int POSITION = TABLE + WARPGROUPS * 2 * TABLE_BYTES; // of each stage: 8 bytes
    static constexpr int BARRIERS = POSITION + 16;
    static constexpr int ROUNDS = BARRIERS + ring_barriers<STAGES>::BYTES;
    static constexpr int SUMS = ROUNDS + block_rounds::BYTES;
    static constexpr int BYTES = SUMS + SUMS_BYTES;
    static_assert(BYTES <= BACK_SMEM_LIMIT - cfg::BACK_SEQUENCE_BYTES, "a block has at most 227 KiB of shared memory");
    static_assert(Q_BYTES % 1024 == 0 && DO_BYTES % 1024 == 0, "tiles start on multiples of their pattern");
};

using place_in_ring = ring_place<STAGES>;

DEV u32 position_place(u32 shared, u32 stage) { return shared + layout::POSITION + 8 * stage; }
DEV ring_barriers<STAGES> ring_at(u32 shared) { return {shared + layout::BARRIERS}; }
DEV block_rounds rounds_at(u32 shared) { return {shared + layout::ROUNDS}; }
DEV round_place keys_of(u32 round) { return place_of_round<KEY_PLACES>(round); }
DEV u32 key_rows(u32 shared, u32 round) { return shared + layout::K + keys_of(round).stage * layout::K_BYTES; }
DEV u32 value_rows_of(u32 shared, u32 round) { return shared + layout::V + keys_of(round).stage * layout::V_BYTES; }

// Named barriers. SLAB_..: of each slab; DS_READY: of ds in the places 0 and 1; of a warpgroup: OF_GROUP + its number.
enum named_barrier { ALL_WORKERS = 1, SLAB_EMPTY = 2, SLAB_FULL = 4, DS_READY = 6, OF_GROUP = 8 };
constexpr u32 SLAB_THREADS = 128 + 32; // a warpgroup and the warp that adds

} // namespace back
