// attention_reader_sm90.cuh: a computing warp's side of the rings: waits for tiles, starts their products,
// gives their places back.
#pragma once
#include "attention_layout_sm90.cuh"

struct warp_work {
    thread_rows<1> rows;
    float s[1][NB][4];
    float o[1][DB][4];
    u32 p[NB / 2][4]; // weights of the tile whose P V is next
};

struct tile_reader { // of one warp: the same in all of its lanes
    u32 shared;
    place k, v;
    u32 round;
    bool last; // the tile at hand is the last one of its query tile

    DEV tile_reader start(u32 shared) { return {shared, {0, 0}, {0, 0}, 0, false}; }
    // Of its warpgroup. Found anew for each tile: a register less in between.
    __device__ __forceinline__ u32 slab() const { return shared + worker_group() * shared_layout::SLAB; }
    __device__ __forceinline__ q_place q_at() const { return q_place::nth(round); }

    // Of the query tile at hand: not kept, for it is not needed between tiles.
    __device__ __forceinline__ u32 number() const
    {
        return __shfl_sync(ALL_LANES, __float_as_uint(load_shared(number_place(shared, round))), 0);
    }
    __device__ __forceinline__ void next_round()
    {
        last = false;
        round++;
    }

    // The tile in the next stage of K, once it is there: twice its number, plus 1 where it is whole for the rows of
    // this warpgroup; IDLE where it has nothing for them; END after the last one.
    __device__ __forceinline__ int next_tile()
    {
        if (last) {
            return tile_cursor::END;
        }
        rings::at(shared).k.wait_full<cfg::BOUND_WAITS>(k);
        u32 tile = __float_as_uint(load_shared(shared + shared_layout::TILES + 4 * k.stage));
        tile = __shfl_sync(ALL_LANES, tile, 0); // one register for the warp
        last = (tile & LAST) != 0;
        if (tile == NO_TILE) {
            leave_k();
            return tile_cursor::END;
        }
        const u32 part = tile >> (2 * worker_group()) & 3u;
        tile = (tile & ~LAST) / KEY_TILE * 2 + (part == TILE_ALL ? 1u : 0u);
        return part == TILE_NONE ? static_cast<int>(tile_cursor::IDLE) : static_cast<int>(tile);
    }
    __device__ __forceinline__ void start_scores(warp_work &w) const
    {
        start_qk<cfg::element, cfg::BN, cfg::D_PAD>(w.s[0], slab() + q_at().stage * shared_layout::Q_BYTES,
                                                    shared + shared_layout::K +
                                                        k.stage * shared_layout::K_BYTES);
    }
    __device__ __forceinline__ void start_output(warp_work &w) const
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v);
        const u32 part = SHARERS > 1 ? worker_group() % SHARERS * (cfg::BN * O_COLUMNS * 2) : 0; // whole panels
        start_pv<cfg::element, O_COLUMNS, cfg::BN>(
            w.o[0], w.p, shared + shared_layout::V + v.stage * shared_layout::V_BYTES + part, 1);
    }
    __device__ __forceinline__ void wait_q() const
    {
        rings::q(shared, worker_group()).wait_full<cfg::BOUND_WAITS>(q_at());
    }
    // After the products that read it.
    __device__ __forceinline__ void leave(u32 empty) const
    {
        if (lane_id() == 0) {
            mbarrier_arrive(empty);
        }
    }
    __device__ __forceinline__ void leave_q() const
    {
        leave(rings::q(shared, worker_group()).empty(q_at().stage));
    }
    // The last one of a query tile takes Q along.
    __device__ __forceinline__ void leave_k()
    {
        leave(rings::at(shared).k.empty(k.stage));
        k = k.next();
        if (last) {
            leave_q();
        }
    }
    // A tile whose V is of no use: its place is left once it is there, so that no phase is missed.
    __device__ __forceinline__ void skip_v()
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v);
        __syncwarp();
        leave_v();
    }
    __device__ __forceinline__ void leave_v()
    {
        leave(rings::at(shared).v.empty(v.stage));
        v = v.next();
    }
};
