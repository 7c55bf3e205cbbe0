// attention/backward/sm90_load.cuh: the warps of attention backward for sm_90a that do not compute: one loads keys,
// values and the query tiles that the mask leaves, one adds what the others leave of dq to memory.
#pragma once
#include "attention/backward/sm90_layout.cuh"

namespace back
{

struct loader { // of the warp that loads; one of its threads, the leader, writes and waits
    const hopper_back_params &params;
    u32 shared;
    block_rounds rounds;
    bool leader;
    u32 round = 0;
    place_in_ring to{0, 0};

    __device__ __forceinline__ void step() { to = to.next(); }
    __device__ __forceinline__ void skip() { to = to.next(); } // a round without a tile
    // Read again where it is needed: the warp has few registers.
    __device__ __forceinline__ key_block place() const { return rounds.block(round); }
    __device__ __forceinline__ const back_params &own() const { return params_of_round(params.p, round); }

    __device__ __forceinline__ void load_keys() const
    {
        const key_block at = place();
        const u32 full = rounds.keys().full(keys_of(round).stage);
        rounds.keys().wait_empty(keys_of(round));
        mbarrier_arrive_expect(full, layout::K_BYTES + layout::V_BYTES);
        load_keys_of<BN, DK>(key_rows(shared, round), &params.k, full, round, at, L2_STREAM);
        load_keys_of<BN, DV>(value_rows_of(shared, round), &params.v, full, round, at, L2_STREAM);
    }

    // No query tile is for these keys.
    __device__ __forceinline__ void load_nothing() const
    {
        ring_at(shared).wait_empty(to);
        store_shared(position_place(shared, to.stage), NO_TILE);
        mbarrier_arrive(ring_at(shared).full(to.stage));
        rounds.keys().wait_empty(keys_of(round));
        mbarrier_arrive(rounds.keys().full(keys_of(round).stage));
    }

    // What a tile has for the 64 keys of a warpgroup.
    __device__ __forceinline__ int part_class(const position &now, const key_block &at, int h, int first_key) const
    {
        const back_params &p = own();
        const sizes &z = p.z;
        const int last_key = min(first_key + 64, z.len_kv) - 1;
        if (last_key < first_key) {
            return TILE_NONE;
        }
        const int row0 = now.tile * BM;
        int c = TILE_ALL;
        if constexpr (variant::MASKED) {
            c = static_cast<int>(variant::classify(p.x, z, variant::make_head(p.x, z, at.b, h), row0,
                                                   min(row0 + BM, z.len_q) - 1, first_key, last_key));
        }
        return c == TILE_ALL && (row0 + BM > z.len_q || first_key + 64 > z.len_kv) ? static_cast<int>(TILE_SOME) : c;
    }
    __device__ __forceinline__ u32 classes_of(const position &now, const key_block &at, int h) const
    {
        if constexpr (variant::MAP) {
            return now.classes;
        } else {
            return class_bits(part_class(now, at, h, at.kv0), part_class(now, at, h, at.kv0 + 64));
        }
    }

    __device__ __forceinline__ void load_queries(const position &now, bool last) const
    {
        const ring_barriers<STAGES> ring = ring_at(shared);
        const u32 full = ring.full(to.stage);
        const u32 tile = shared + layout::RING + to.stage * layout::STAGE;
        ring.wait_empty(to);
        const key_block at = place();
        const int h = at.head(now.head);
        put_position(position_place(shared, to.stage), now, classes_of(now, at, h), last);
        mbarrier_arrive_expect(full, layout::STAGE + layout::ROWS_BYTES);
        load_queries_of<BM, DK>(tile, &params.q, full, round, now.tile * BM, h, at.b, L2_KEEP);
        load_rows(own(), shared + layout::ROWS + to.stage * layout::ROWS_BYTES, full, at.b, h, now.tile);
        load_queries_of<BM, DV>(tile + layout::Q_BYTES, &params.dout, full, round, now.tile * BM, h, at.b, L2_KEEP);
    }
    __device__ __forceinline__ void load_first(const position &now, bool last) const
    {
        load_queries(now, last);
        load_keys();
    }
};

DEV void load_all(const hopper_back_params &params, u32 shared)
{
    loader l{params, shared, rounds_at(shared), elect_one()};
    load_rounds(l);
}

// Adds dq' of tiles from a slab to memory, as soon as a warpgroup has filled it: the first block that has some of a
// tile stores it. That a tile is there is said when the next one has to be waited for anyway. By one warp; its leader
// writes and waits.
struct adder {
    const back_params &launched;
    u32 shared;
    block_rounds rounds;
    bool leader;
    u32 slab = 0;    // of the next tile: the warpgroups take turns
    int stored = -1; // line of the tile for which others may wait

    __device__ __forceinline__ void skip() { slab ^= 1u; } // a round without a tile
    __device__ __forceinline__ void finish_last(const back_params &p)
    {
        if (stored >= 0) {
            tma_wait<0>();
            fence_async_global();
            end_turn(order_word(p, stored));
            stored = -1;
        }
    }

    __device__ __forceinline__ void add(const back_params &p, const key_block &at, const position &now)
    {
        const int h = at.head(now.head);
        const int line = static_cast<int>(tile_line(p.z, own_batch(p, at.b), h)) + now.tile;
        const u32 turn = find_turn(p, at, h, now, line, leader);
        if (leader) {
            finish_last(p);
            wait_for_turn(p, line, turn);
        }
        __syncwarp();
        barrier_sync(SLAB_FULL + slab % SLABS, SLAB_THREADS);
        if (leader) {
            float *const to = p.dq + static_cast<i64>(line) * dq_shape::FLOATS;
            const u32 from = shared + layout::SLAB + slab % SLABS * layout::SLAB_BYTES;
            if (turn == 0) {
                tma_store_line(to, from, layout::SLAB_BYTES, L2_KEEP);
            } else {
                tma_add_line(to, from, layout::SLAB_BYTES, L2_KEEP);
            }
            tma_commit();
            tma_wait_read<0>();
            stored = cfg::DETERMINISTIC || turn == 0 ? line : -1;
        }
        __syncwarp();
        barrier_arrive(SLAB_EMPTY + slab % SLABS, SLAB_THREADS);
        slab ^= 1u;
    }
};

DEV void add_all(const hopper_back_params &params, u32 shared)
{
    adder a{params.p, shared, rounds_at(shared), elect_one()};
#pragma unroll
    for (u32 i = 0; i < SLABS; i++) {
        barrier_arrive(SLAB_EMPTY + i, SLAB_THREADS);
    }
    add_rounds(a);
}

} // namespace back
