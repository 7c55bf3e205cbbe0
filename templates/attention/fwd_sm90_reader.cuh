// attention/fwd_sm90_reader.cuh: a computing warp's side of the rings: waits for tiles, starts their products,
// gives their places back.
#pragma once
#include "attention/fwd_sm90_layout.cuh"

// How tiles of T are multiplied: of 16 bits as common/wgmma_sm90.cuh has it; common/wgmma_fp8_sm90.cuh has the other.
template <class T> struct tile_products {
    template <int N, int COLS, bool GROUPED> DEV void start_scores(float (&s)[N / 8][4], u64 q, u32 k)
    {
        start_qk<T, N, COLS, 64, GROUPED>(s, q, k);
    }
    template <int NB, bool RELU> DEV void pack(u32 (&p)[NB / 2][4], const float (&s)[NB][4])
    {
        pack_weights<T, NB, RELU>(p, s);
    }
    template <int N, int KEYS, bool GROUPED>
    DEV void start_output(float (&o)[N / 8][4], const u32 (&p)[KEYS / 16][4], u32 v, int sum)
    {
        start_pv<T, N, KEYS, GROUPED>(o, p, v, sum);
    }
};
using products = tile_products<cfg::operand>;

struct warp_work {
    thread_rows<1> rows;
    float s[1][NB][4];
    float o[1][DB][4];
    u32 p[cfg::BN / DEPTH][4]; // weights of the tile whose P V is next
    float of_tile[DB][4];      // that product, where TILE_SUMS

    // What P V is added up in.
    __device__ __forceinline__ float (&sums())[DB][4]
    {
        if constexpr (TILE_SUMS) {
            return of_tile;
        } else {
            return o[0];
        }
    }
};

constexpr bool GROUPED = cfg::D_PAD >= 128; // common/wgmma_sm90.cuh

struct tile_reader { // of one warp: the same in all of its lanes, and in registers that they share
    u32 shared;
    u32 group; // the warpgroup, of those that compute
    int mine;  // its bits of a tile
    u32 lane;  // this one, alone, is not the same in all
    int share; // share_of_head
    place k, v;
    u32 round;
    int ahead; // the tile in the next stage of K; later, the one after
    u64 q;     // descriptor of the query tile's Q, where it is kept

    DEV tile_reader start(u32 shared, int share)
    {
        const u32 group = worker_group();
        const int mine = static_cast<int>(of_the_warp(3u << (2 * group)));
        u32 lane = static_cast<u32>(lane_id());
        if constexpr (!variant::LOGISTIC) { // whose weights need all registers
            keep(lane);                     // not found again for every use
        }
        return {shared, group, mine, lane, share, {0, 0}, {0, 0}, 0, NO_TILE, 0};
    }
    __device__ __forceinline__ u32 slab() const { return shared + group * shared_layout::SLAB; } // of the warpgroup
    __device__ __forceinline__ q_place q_at() const { return q_place::nth(round); }

    // The query tile at hand: not kept, for it is not needed between tiles.
    __device__ __forceinline__ query_tile query() const { return read_round(shared, round); }

    __device__ __forceinline__ void wait_k() const { rings::at(shared).k.wait_full<cfg::BOUND_WAITS>(k); }
    // Has the tile something for the rows of this warpgroup; all of it; of each row all between its first and last key?
    __device__ __forceinline__ bool lives(int tile) const { return (tile & mine) != 0; }
    __device__ __forceinline__ bool whole(int tile) const
    {
        return variant::SCATTERED ? (tile & mine) == (mine & WHOLE_BITS) : (tile & mine & WHOLE_BITS) != 0;
    }
    __device__ __forceinline__ bool cut(int tile) const { return variant::SCATTERED && (tile & mine) == mine; }

    // Once a tile is there: what comes after it in the query tile.
    __device__ __forceinline__ void look_ahead() { ahead = read_for_warp(tile_words(shared, k.stage) + 4); }
    // The first tile of a query tile, which nobody has told of before.
    __device__ __forceinline__ void find_first()
    {
        wait_k();
        ahead = read_for_warp(tile_words(shared, k.stage));
        if (ahead == NO_TILE) {
            leave_k();
        }
    }
    // More k-steps than these would take their steps along into registers.
    static constexpr bool KEEPS_Q = QK_WORDS <= 128;
    __device__ __forceinline__ u64 describe_q_now() const
    {
        return describe_q<QK_WORDS>(slab() + q_at().stage * shared_layout::Q_BYTES);
    }
    __device__ __forceinline__ void start_scores(warp_work &w) const
    {
        products::start_scores<cfg::BN, cfg::D_PAD, GROUPED>(
            w.s[0], KEEPS_Q ? q : describe_q_now(), shared + shared_layout::K + k.stage * shared_layout::K_BYTES);
    }
    // sum: 0 where o is to be that of this tile alone; then 1.
    __device__ __forceinline__ void start_output(warp_work &w, int &sum) const
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v);
        // whole panels
        const u32 part = SHARERS > 1 ? group % SHARERS * (cfg::BN * O_COLUMNS * ELEMENT_BYTES<cfg::element_v>) : 0;
        products::start_output<O_COLUMNS, cfg::BN, GROUPED>(
            w.sums(), w.p, shared + shared_layout::V + v.stage * shared_layout::V_BYTES + part, TILE_SUMS ? 0 : sum);
        sum = 1;
    }
    // Until it is there, and in o.
    __device__ __forceinline__ void finish_output(warp_work &w)
    {
        wgmma<O_COLUMNS>::wait<0>(w.sums());
        leave_v();
        if constexpr (TILE_SUMS) {
#pragma unroll
            for (int i = 0; i < 4 * DB; i++) {
                w.o[0][i / 4][i % 4] += w.of_tile[i / 4][i % 4];
            }
        }
    }
    __device__ __forceinline__ void wait_q()
    {
        q = KEEPS_Q ? describe_q_now() : 0;
        rings::q(shared, group).wait_full<cfg::BOUND_WAITS>(q_at());
    }
    // After the products that read it.
    __device__ __forceinline__ void leave(u32 empty) const
    {
        if (lane == 0) {
            mbarrier_arrive(empty);
        }
    }
    __device__ __forceinline__ void leave_q() const { leave(rings::q(shared, group).empty(q_at().stage)); }
    // The last one of a query tile takes Q along.
    __device__ __forceinline__ void leave_k()
    {
        leave(rings::at(shared).k.empty(k.stage));
        k = k.next();
        if (ahead == NO_TILE) {
            leave_q();
        }
    }
    // A tile of no use: its places are left once it is there, so that no phase is missed.
    __device__ __forceinline__ void skip_tile()
    {
        wait_k();
        look_ahead();
        leave_k();
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
