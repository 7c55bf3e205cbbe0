// attention/fwd_sm90_keys.cuh: where the keys of a query tile lie, and how a tile of BN of them is loaded.
#pragma once
#include "attention/fwd_sm90_layout.cuh"

// Of a batch, or of packed sequences: rows beside each other, by one thread.
template <class PARAMS, bool APART = HAS_APART<PARAMS>, bool PAGED = HAS_PAGES<PARAMS>> struct key_source {
    static constexpr bool BY_WARP = false;
    int h;
    tokens_at::rows rows;

    DEV key_source start(const tokens_at &of, int b, u32 shared, u32 round)
    {
        return {read_for_warp(round_place(shared, round) + 12), of.keys(b)};
    }
    __device__ __forceinline__ void look_up(const PARAMS &, int, int, int) {}
    template <map_of, int COLS> __device__ __forceinline__ void load(u32 to, const tensor_map *map, u32 barrier,
                                                                     int key, const PARAMS &, u64 l2) const
    {
        load_tile<cfg::BN, COLS>(to, map, barrier, key, h, rows, l2);
    }
    // A tile of V that attention/turned_values.cuh has made.
    __device__ __forceinline__ void load_turned(u32 to, u32 barrier, int key, const PARAMS &p) const
    {
        const i64 tile = static_cast<i64>(key / cfg::BN) * shared_layout::V_BYTES;
        tma_load_line(to, static_cast<const u8 *>(p.v) + (rows * p.v_b + h * p.v_h + tile), shared_layout::V_BYTES,
                      barrier);
    }
};

// What stands beside a query tile is read there, for want of registers.
struct told_keys {
    u32 place; // round_place
    DEV int read(u32 address) { return static_cast<int>(__float_as_uint(load_shared(address))); }
    __device__ __forceinline__ int batch() const { return read(place + 8); }
    __device__ __forceinline__ int head() const { return read(place + 12); }
    __device__ __forceinline__ int length() const
    {
        return read(place + (shared_layout::TOKENS - shared_layout::ROUND) + 12);
    }
};

// Of batches of which not all keys are in use.
template <class PARAMS> struct key_source<PARAMS, true, false> {
    static constexpr bool BY_WARP = false;
    told_keys told;

    DEV key_source start(const tokens_at &, int, u32 shared, u32 round) { return {{round_place(shared, round)}}; }
    __device__ __forceinline__ void look_up(const PARAMS &, int, int, int) {}
    template <map_of TENSOR, int COLS> __device__ __forceinline__ void load(u32 to, const tensor_map *map, u32 barrier,
                                                                            int key, const PARAMS &p, u64 l2) const
    {
        const sequence_rows rows = {told.batch() * find_apart<TENSOR>(p), told.length()};
        load_tile<cfg::BN, COLS>(to, map, barrier, key, told.head(), rows, l2);
    }
};

// Of pages, by the whole warp: a tile is several boxes, each within a page, and a lane looks up the page of its box and
// loads it. What the list says is clamped into the pool, and keys that are not in use are 0.
template <class PARAMS> struct key_source<PARAMS, true, true> {
    static constexpr bool BY_WARP = true;
    static constexpr int MOST_ROWS = cfg::BN & -cfg::BN; // of a box
    told_keys told;
    int page; // of this lane's box

    DEV key_source start(const tokens_at &, int, u32 shared, u32 round) { return {{round_place(shared, round)}, 0}; }
    DEV int rows_of_box(const PARAMS &p) { return min(p.page, MOST_ROWS); }

    // Ahead of the loads, for the list lies in global memory. key: the tile's first; len: keys in use.
    __device__ __forceinline__ void look_up(const PARAMS &p, int b, int key, int len)
    {
        const int shift = 31 - __clz(p.page); // a power of two: gen/attention/plan_sm90.c
        key += lane_id() * rows_of_box(p);
        page = 0;
        if (key < len) {
            page = min(max(p.pages[b * p.pages_b + (key >> shift) * p.pages_step], 0), p.n_pages - 1);
        }
    }
    template <map_of TENSOR, int COLS> __device__ __forceinline__ void load(u32 to, const tensor_map *map, u32 barrier,
                                                                            int key, const PARAMS &p, u64 l2) const
    {
        using shape = panels<COLS>;
        const int first = lane_id() * rows_of_box(p); // of the tile
        const int row = (key + first) & (p.page - 1);
        const int used = min(max(told.length() - (key + first - row), 0), p.page);
        const int h = told.head();
        const int end = page * find_apart<TENSOR>(p) + used;
        if (first < cfg::BN) {
#pragma unroll
            for (int i = 0; i < shape::COUNT; i++) {
                tma_load5(to + static_cast<u32>((i * cfg::BN + first) * shape::SPAN), map, barrier, i * shape::SPAN / 2,
                          RAGGED_ROWS - used + row, h, end, RAGGED_ROWS, l2);
            }
        }
    }
};
using keys_at = key_source<attention_params>;
