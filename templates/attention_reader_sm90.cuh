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

struct tile_reader { // of one warp, in one register
    u32 shared;
    u32 state; // places in the rings: of K, and 256 times that of V; whether LAST has been; the round from bit 20 on

    static constexpr u32 LAST_SEEN = 1u << 16;
    static constexpr u32 ROUND = 1u << 20;

    // Of its warpgroup. Found anew for each tile: a register less in between.
    __device__ __forceinline__ u32 slab() const { return shared + worker_group() * shared_layout::SLAB; }
    __device__ __forceinline__ place k_place() const { return {state & 255u}; }
    __device__ __forceinline__ place v_place() const { return {state >> 8 & 255u}; }
    __device__ __forceinline__ q_place q_at() const { return {state / ROUND % (2 * cfg::Q_STAGES)}; }

    // Of the query tile at hand: not kept, for it is not needed between tiles.
    __device__ __forceinline__ u32 number() const
    {
        return __shfl_sync(ALL_LANES, __float_as_uint(load_shared(number_place(shared, state / ROUND))), 0);
    }
    __device__ __forceinline__ void next_round() { state = (state & ~LAST_SEEN) + ROUND; }

    // The tile in the next stage of K, once it is there: as the cursor gives it.
    __device__ __forceinline__ int next_tile()
    {
        if ((state & LAST_SEEN) != 0) {
            return tile_cursor::END;
        }
        rings::at(shared).k.wait_full<cfg::BOUND_WAITS>(k_place());
        u32 tile = __float_as_uint(load_shared(shared + shared_layout::TILES + 4 * k_place().stage()));
        tile = __shfl_sync(ALL_LANES, tile, 0); // one register for the warp
        if ((tile & LAST) != 0) {
            state |= LAST_SEEN;
        }
        if (tile == NO_TILE) {
            leave_k();
            return tile_cursor::END;
        }
        return static_cast<int>(tile & ~LAST);
    }
    __device__ __forceinline__ void start_scores(warp_work &w) const
    {
        start_qk<cfg::element, cfg::BN, cfg::D_PAD>(w.s[0], slab() + q_at().stage() * shared_layout::Q_BYTES,
                                                    shared + shared_layout::K +
                                                        k_place().stage() * shared_layout::K_BYTES);
    }
    __device__ __forceinline__ void start_output(warp_work &w) const
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v_place());
        start_pv<cfg::element, cfg::DV_PAD, cfg::BN>(
            w.o[0], w.p, shared + shared_layout::V + v_place().stage() * shared_layout::V_BYTES, 1);
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
        leave(rings::q(shared, worker_group()).empty(q_at().stage()));
    }
    // The last one of a query tile takes Q along, unless o is to come into its place.
    __device__ __forceinline__ void leave_k()
    {
        leave(rings::at(shared).k.empty(k_place().stage()));
        state = (state & ~255u) | k_place().next().index;
        if (cfg::OWN_O && (state & LAST_SEEN) != 0) {
            leave_q();
        }
    }
    // A tile whose V is of no use: its place is left once it is there, so that no phase is missed.
    __device__ __forceinline__ void skip_v()
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v_place());
        __syncwarp();
        leave_v();
    }
    __device__ __forceinline__ void leave_v()
    {
        leave(rings::at(shared).v.empty(v_place().stage()));
        state = (state & ~(255u << 8)) | v_place().next().index << 8;
    }
};
