// back_load_sm90.cuh: the warps of attention backward for sm_90a that do not compute: one loads keys, values and the query
// tiles that the mask leaves, one adds what the others leave of dq to memory.
#pragma once
#include "back_layout_sm90.cuh"

namespace back {

struct loader { // of the warp that loads; one of its threads, the leader, writes and waits
    const hopper_back_params &params;
    u32 shared;
    bool leader;

    // Read again where it is needed: the warp has few registers.
    __device__ __forceinline__ key_block place() const { return find_block(shared + layout::PLACE); }

    __device__ __forceinline__ void load_keys() const
    {
        const key_block at = place();
        const u32 ready = shared + layout::KEYS_READY;
        mbarrier_arrive_expect(ready, layout::K_BYTES + layout::V_BYTES);
        load_tile<BN, DK>(shared + layout::K, &params.k, ready, at.kv0, at.h_kv, at.b, L2_STREAM);
        load_tile<BN, DV>(shared + layout::V, &params.v, ready, at.kv0, at.h_kv, at.b, L2_STREAM);
    }

    // What a tile has for the 64 keys of a warpgroup.
    __device__ __forceinline__ int part_class(const position &now, const key_block &at, int h, int first_key) const
    {
        const sizes &z = params.p.z;
        const int last_key = min(first_key + 64, z.len_kv) - 1;
        if (last_key < first_key) {
            return TILE_NONE;
        }
        if constexpr (variant::MAP) {
            return now.whole ? TILE_ALL : TILE_SOME;
        } else {
            const int row0 = now.tile * BM;
            int c = TILE_ALL;
            if constexpr (variant::MASKED) {
                c = static_cast<int>(variant::classify(params.p.x, z, variant::make_head(params.p.x, z, at.b, h), row0,
                                                       min(row0 + BM, z.len_q) - 1, first_key, last_key));
            }
            return c == TILE_ALL && (row0 + BM > z.len_q || first_key + 64 > z.len_kv) ? static_cast<int>(TILE_SOME) : c;
        }
    }

    __device__ __forceinline__ void load_queries(place_in_ring to, const position &now, bool last) const
    {
        const ring_barriers<STAGES> ring = ring_at(shared);
        const u32 full = ring.full(to.stage);
        const u32 tile = shared + layout::RING + to.stage * layout::STAGE;
        ring.wait_empty(to);
        const key_block at = place();
        const int h = at.head(now.head);
        put_position(position_place(shared, to.stage), now, class_bits(part_class(now, at, h, at.kv0), part_class(now, at, h, at.kv0 + 64)), last);
        mbarrier_arrive_expect(full, layout::STAGE + layout::ROWS_BYTES);
        load_tile<BM, DK>(tile, &params.q, full, now.tile * BM, h, at.b, L2_KEEP);
        load_rows(params.p, shared + layout::ROWS + to.stage * layout::ROWS_BYTES, full, at.b, h, now.tile);
        load_tile<BM, DV>(tile + layout::Q_BYTES, &params.dout, full, now.tile * BM, h, at.b, L2_KEEP);
    }
};

DEV void load_all(const hopper_back_params &params, u32 shared)
{
    const back_params &p = params.p;
    const loader l{params, shared, elect_one()};
    walk tiles;
    place_in_ring to{0, 0};
    if (l.leader) {
        l.load_keys(); // while query tiles are looked for
    }
    __syncwarp();
    position now = tiles.next({0, -32, false}, p, l.place());
    const int group = l.place().group;
    if (now.head >= group && l.leader) {
        store_shared(position_place(shared, 0), NO_TILE);
        mbarrier_arrive(ring_at(shared).full(0));
    }
#pragma unroll 1
    while (now.head < group) {
        const position next = tiles.next(now, p, l.place());
        if (l.leader) {
            l.load_queries(to, now, next.head >= group);
        }
        __syncwarp();
        to = to.next();
        now = next;
    }
}

// Adds dq' of tiles from the slab to memory, as soon as a warpgroup has filled it: the first block that has some of a tile stores it.
// That a tile is there is said when the next one has to be waited for anyway. By one warp; its leader writes and waits.
struct adder {
    const back_params &p;
    const key_block &at;
    u32 shared;
    bool leader;
    int done = -1; // line of the tile that the leader is to announce as soon as it is in memory

    __device__ __forceinline__ void finish_last()
    {
        if (done >= 0) {
            tma_wait<0>();
            fence_async_global();
            end_turn(order_word(p, done));
            done = -1;
        }
    }

    __device__ __forceinline__ void add(const position &now)
    {
        const int h = at.head(now.head);
        const int line = static_cast<int>(tile_line(p.z, at.b, h)) + now.tile;
        u32 turn = 0;
        if constexpr (cfg::DETERMINISTIC) {
            turn = turn_of(p, at, variant::make_head(p.x, p.z, at.b, h), h, now.tile);
        } else if (leader) {
            turn = take_ticket(p.order + line);
        }
        barrier_arrive(SLAB_EMPTY, SLAB_THREADS);
        if (leader) {
            finish_last();
            if (turn > 0) {
                wait_turn(order_word(p, line), cfg::DETERMINISTIC ? turn : 1);
                fence_async_global(); // what the blocks before have added, too
            }
        }
        __syncwarp();
        barrier_sync(SLAB_FULL, SLAB_THREADS);
        if (leader) {
            float *const to = p.dq + static_cast<i64>(line) * dq_shape::FLOATS;
            if (turn == 0) {
                tma_store_line(to, shared + layout::SLAB, layout::SLAB_BYTES, L2_KEEP);
            } else {
                tma_add_line(to, shared + layout::SLAB, layout::SLAB_BYTES, L2_KEEP);
            }
            tma_commit();
            tma_wait_read<0>();
            done = cfg::DETERMINISTIC || turn == 0 ? line : -1;
        }
        __syncwarp();
    }
};

DEV void add_all(const hopper_back_params &params, u32 shared)
{
    const back_params &p = params.p;
    const key_block at = find_block(shared + layout::PLACE);
    adder a{p, at, shared, elect_one()};
    walk tiles;
    position now = tiles.next({0, -32, false}, p, at);
#pragma unroll 1
    while (now.head < at.group) {
        a.add(now);
        now = tiles.next(now, p, at);
    }
    if (a.leader) {
        a.finish_last();
    }
}

} // namespace back
