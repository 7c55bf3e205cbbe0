// common/tma_sm90.cuh: rings of tiles between one thread that loads and warps that read: barriers, places, loads.
//
// Of each stage a full barrier (the loading thread and TMA's bytes) and an empty one (every reading warp,
// when it is done with the tile). Loads and reads go through the same sequence of tiles.
#pragma once
#include "common/wgmma_sm90.cuh"

// Where a stream of tiles has come to in a ring.
template <int STAGES> struct ring_place {
    u32 stage;
    u32 parity; // of the phase
    DEV ring_place nth(u32 n) { return {n % STAGES, n / STAGES & 1u}; }
    __device__ __forceinline__ ring_place next() const
    {
        return stage + 1 == STAGES ? ring_place{0, parity ^ 1u} : ring_place{stage + 1, parity};
    }
    __device__ __forceinline__ u32 turn() const { return (stage + STAGES * parity) & 1u; } // 0, 1, 0, 1, ...
};

// A ring's barriers: full of every stage, then empty of every stage.
template <int STAGES> struct ring_barriers {
    static constexpr int BYTES = 2 * STAGES * 8;
    u32 address;

    __device__ __forceinline__ u32 full(u32 stage) const { return address + 8 * stage; }
    __device__ __forceinline__ u32 empty(u32 stage) const { return address + 8 * (STAGES + stage); }
    __device__ __forceinline__ void init(u32 readers) const
    {
#pragma unroll
        for (u32 i = 0; i < STAGES; i++) {
            mbarrier_init(full(i), 1);
            mbarrier_init(empty(i), readers);
        }
    }
    // Until the readers of the tile before have left the stage; at once in the first round.
    template <bool BOUNDED = false>
    __device__ __forceinline__ void wait_empty(ring_place<STAGES> at, const char *what = "a place") const
    {
        if constexpr (BOUNDED) {
            mbarrier_wait_bounded(empty(at.stage), at.parity ^ 1u, what);
        } else {
            mbarrier_wait(empty(at.stage), at.parity ^ 1u);
        }
    }
    // BOUNDED: a tile that never comes stops the kernel. The loading warp waits for those who wait here.
    template <bool BOUNDED = false>
    __device__ __forceinline__ void wait_full(ring_place<STAGES> at, const char *what = "a tile") const
    {
        if constexpr (BOUNDED) {
            mbarrier_wait_bounded(full(at.stage), at.parity, what);
        } else {
            mbarrier_wait(full(at.stage), at.parity);
        }
    }
};

// ROWS rows from `token` on of one head, as a tile of COLS columns. The map's box is a panel of it.
template <int ROWS, int COLS>
DEV void load_tile(u32 to, const tensor_map *map, u32 barrier, int token, int head, int batch, u64 l2)
{
    using shape = panels<COLS>;
#pragma unroll
    for (int i = 0; i < shape::COUNT; i++) {
        tma_load(to + static_cast<u32>(i * ROWS * shape::SPAN), map, barrier, i * shape::SPAN / 2, token, head, batch,
                 l2);
    }
}

// The same for rows that `heads` heads take in turns, through a map with a dim for them: as many tokens as have room.
template <int ROWS, int COLS>
DEV void load_packed_tile(u32 to, const tensor_map *map, u32 barrier, int token, int group, int batch, u64 l2)
{
    using shape = panels<COLS>;
#pragma unroll
    for (int i = 0; i < shape::COUNT; i++) {
        tma_load5(to + static_cast<u32>(i * ROWS * shape::SPAN), map, barrier, i * shape::SPAN / 2, 0, token, group,
                  batch, l2);
    }
}

// Rows of one of many sequences that lie one behind the other: those from `token` on, of `length` behind the first
// `first` of all. The map is `packed` (runtime/recipe/recipe.h): rows beyond the sequence's end are 0, whatever lies
// there.
struct sequence_rows {
    int first, length;
};
constexpr int RAGGED_ROWS = 1 << 30;
template <int ROWS, int COLS>
DEV void load_tile(u32 to, const tensor_map *map, u32 barrier, int token, int head, const sequence_rows &of, u64 l2)
{
    using shape = panels<COLS>;
#pragma unroll
    for (int i = 0; i < shape::COUNT; i++) {
        tma_load5(to + static_cast<u32>(i * ROWS * shape::SPAN), map, barrier, i * shape::SPAN / 2,
                  RAGGED_ROWS - of.length + token, head, of.first + of.length, RAGGED_ROWS, l2);
    }
}
// And back: rows beyond the end are left out.
template <int ROWS, int COLS>
DEV void store_tile(const tensor_map *map, u32 from, int column, int token, int head, const sequence_rows &of)
{
    using shape = panels<COLS>;
#pragma unroll
    for (int i = 0; i < shape::COUNT; i++) {
        tma_store5(map, from + static_cast<u32>(i * ROWS * shape::SPAN), column + i * shape::SPAN / 2,
                   RAGGED_ROWS - of.length + token, head, of.first + of.length, RAGGED_ROWS);
    }
    tma_commit();
}

// Both ways back, by one thread; rows and columns outside of the tensor are left out.
template <int ROWS, int COLS>
DEV void store_tile(const tensor_map *map, u32 from, int column, int token, int head, int batch)
{
    using shape = panels<COLS>;
#pragma unroll
    for (int i = 0; i < shape::COUNT; i++) {
        tma_store(map, from + static_cast<u32>(i * ROWS * shape::SPAN), column + i * shape::SPAN / 2, token, head,
                  batch);
    }
    tma_commit();
}
template <int ROWS, int COLS>
DEV void store_packed_tile(const tensor_map *map, u32 from, int column, int token, int group, int batch)
{
    using shape = panels<COLS>;
#pragma unroll
    for (int i = 0; i < shape::COUNT; i++) {
        tma_store5(map, from + static_cast<u32>(i * ROWS * shape::SPAN), column + i * shape::SPAN / 2, 0, token, group,
                   batch);
    }
    tma_commit();
}
