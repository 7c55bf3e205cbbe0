// back_load_sm90.cuh: the warps of attention backward for sm_90a that do not compute: one loads keys, values and the query
// tiles that the mask leaves, one adds what the others leave of dq to memory.
#pragma once
#include "back_layout_sm90.cuh"

namespace back {

struct loader { // of the warp that loads; one of its threads, the leader, writes and waits
    const hopper_back_params &params;
    const key_block &at;
    u32 shared;
    bool leader;

    __device__ __forceinline__ void load_keys() const
    {
        const u32 ready = shared + layout::KEYS_READY;
        mbarrier_arrive_expect(ready, layout::K_BYTES + layout::V_BYTES);
        load_tile<BN, DK>(shared + layout::K, &params.k, ready, at.kv0, at.h_kv, at.b, L2_STREAM);
        load_tile<BN, DV>(shared + layout::V, &params.v, ready, at.kv0, at.h_kv, at.b, L2_STREAM);
    }

    // What a tile has for the 64 keys of a warpgroup.
    __device__ __forceinline__ int part_class(const position &now, int h, int first_key) const
    {
        const sizes &z = params.p.z;
        const int last_key = min(first_key + 64, z.len_kv) - 1;
        int c = now.whole ? TILE_ALL : TILE_SOME;
        if (last_key < first_key) {
            return TILE_NONE;
        }
        if constexpr (variant::MASKED && !variant::MAP) {
            if (!now.whole) {
                const int row0 = now.tile * BM;
                c = static_cast<int>(variant::classify(params.p.x, z, variant::make_head(params.p.x, z, at.b, h), row0,
                                                       min(row0 + BM, z.len_q) - 1, first_key, last_key));
                c = c == TILE_ALL && (row0 + BM > z.len_q || first_key + 64 > z.len_kv) ? static_cast<int>(TILE_SOME) : c;
            }
        }
        return c;
    }

    __device__ __forceinline__ void load_queries(place_in_ring to, const position &now, bool last) const
    {
        const ring_barriers<STAGES> ring = ring_at(shared);
        const u32 full = ring.full(to.stage);
        const u32 tile = shared + layout::RING + to.stage * layout::STAGE;
        const int h = at.head(now.head);
        ring.wait_empty(to);
        put_position(position_place(shared, to.stage), now, class_bits(part_class(now, h, at.kv0), part_class(now, h, at.kv0 + 64)), last);
        mbarrier_arrive_expect(full, layout::STAGE + layout::ROWS_BYTES);
        load_tile<BM, DK>(tile, &params.q, full, now.tile * BM, h, at.b, L2_KEEP);
        load_rows(params.p, shared + layout::ROWS + to.stage * layout::ROWS_BYTES, full, at.b, h, now.tile);
        load_tile<BM, DV>(tile + layout::Q_BYTES, &params.dout, full, now.tile * BM, h, at.b, L2_KEEP);
    }
};

DEV void load_all(const hopper_back_params &params, u32 shared)
{
    const back_params &p = params.p;
    const key_block at = find_block(p, shared + layout::TICKET);
    const loader l{params, at, shared, elect_one()};
    walk tiles;
    place_in_ring to{0, 0};
    position now{0, -32, false};
#pragma unroll 1
    while (now.head < at.group) {
        const position next = tiles.next(now, p, at);
        if (l.leader) {
            if (now.tile >= 0) {
                l.load_queries(to, now, next.head >= at.group);
            } else if (next.head < at.group) {
                l.load_keys();
            } else {
                store_shared(position_place(shared, 0), NO_TILE);
                mbarrier_arrive(ring_at(shared).full(0));
            }
        }
        __syncwarp();
        to = now.tile >= 0 ? to.next() : to;
        now = next;
    }
}

// dq of a tile from the slab to memory, as soon as a warpgroup has filled it.
DEV void add_slab(const back_params &p, const key_block &at, u32 shared, const position &now)
{
    const int h = at.head(now.head);
    const i64 line = tile_line(p.z, at.b, h) + now.tile;
    u32 turn = 0;
    if constexpr (cfg::DETERMINISTIC) {
        turn = turn_of(p, at, variant::make_head(p.x, p.z, at.b, h), h, now.tile);
    }
    barrier_arrive(SLAB_EMPTY, SLAB_THREADS);
    barrier_sync(SLAB_FULL, SLAB_THREADS);
    if (elect_one()) {
        if constexpr (cfg::DETERMINISTIC) {
            wait_turn(p.order + line, turn);
            fence_async_global(); // what the blocks before have added, too
        }
        tma_add_line(p.dq + line * dq_shape::FLOATS, shared + layout::SLAB, layout::SLAB_BYTES, L2_KEEP);
        tma_commit();
        if constexpr (cfg::DETERMINISTIC) {
            tma_wait<0>();
            fence_async_global();
            end_turn(p.order + line);
        } else {
            tma_wait_read<0>();
        }
    }
    __syncwarp();
}

DEV void add_all(const hopper_back_params &params, u32 shared)
{
    const back_params &p = params.p;
    const key_block at = find_block(p, shared + layout::TICKET);
    walk tiles;
    position now{0, -32, false};
#pragma unroll 1
    while (true) {
        now = tiles.next(now, p, at);
        if (now.head >= at.group) {
            return;
        }
        add_slab(p, at, shared, now);
    }
}

} // namespace back
