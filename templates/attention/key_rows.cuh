// attention/key_rows.cuh: rows of K and V that one warp copies into a tile, of a tensor with a place for each key, or
// of
// pages: key j then lies in page pages[b][j / page], at j % page of it. What the list says is clamped into the tensor.
#pragma once
#include "attention/sequences.cuh"
#include "common/mma_sm80.cuh"

// Where a lane finds row `lane` of a tile: in which page, and where in it. Looked up ahead of the copies, for the list
// lies in global memory.
struct page_place {
    int page, row;
};

template <class PARAMS> DEV page_place find_page(const PARAMS &p, int b, int key)
{
    if constexpr (HAS_PAGES<PARAMS>) {
        const int number = static_cast<int>(static_cast<u32>(key) / static_cast<u32>(p.page));
        const int most = static_cast<int>(p.most_pages) - 1;
        const int page = p.pages[b * p.pages_b + min(number, most) * p.pages_step];
        return {min(max(page, 0), p.n_pages - 1), key - number * p.page};
    } else {
        return {b, key};
    }
}

template <int ROWS, int DIM, int COLS> struct warp_loader {
    using shape = swizzle<COLS>;
    static constexpr int ACROSS = shape::CHUNKS % 16 == 0 ? 16 : shape::W; // lanes of a row
    static constexpr int STEP = 32 / ACROSS;                               // rows at a time
    static_assert(ROWS % STEP == 0, "whole steps of rows");

    // The first `left` rows, and zeros behind them. from: the head's first row; of pages, of page 0. first: the place
    // of row 0, of pages the lane's own row's. Strides are in elements.
    template <bool PAGED, class T>
    DEV void load(u32 tile, const T *from, i64 of_page, i64 of_row, const page_place &first, int left)
    {
        const int lane = lane_id();
        const int chunk = lane % ACROSS;
        const int row = lane / ACROSS;
        const T *source = from + (first.page * of_page + (first.row + row) * of_row + chunk * 8);
#pragma unroll
        for (int i = 0; i < ROWS / STEP; i++) {
            const int own = row + i * STEP;
            if constexpr (PAGED) {
                const i64 page = __shfl_sync(ALL_LANES, first.page, own);
                source = from + (page * of_page + __shfl_sync(ALL_LANES, first.row, own) * of_row + chunk * 8);
            }
#pragma unroll
            for (int c = 0; c < shape::CHUNKS; c += ACROSS) {
                const bool inside = own < left && (DIM == COLS || (chunk + c) * 8 < DIM);
                copy16_async(tile + shape::offset(own, chunk + c), source + c * 8, inside ? 16 : 0);
            }
            if constexpr (!PAGED) {
                source += STEP * of_row;
            }
        }
    }
};

// A tile of pages that the warps of a block copy together: each has ROWS / WARPS rows that lie beside each other.
template <int ROWS, int DIM, int COLS, int THREADS, class PARAMS> struct page_loader {
    using shape = swizzle<COLS>;
    static constexpr int OWN = ROWS / (THREADS / 32);
    static constexpr int ACROSS = shape::CHUNKS % 16 == 0 ? 16 : shape::W; // lanes of a row
    static constexpr int STEP = 32 / ACROSS;                               // rows at a time
    static_assert(ROWS % (THREADS / 32) == 0 && OWN <= 32, "a lane looks up a row");

    const PARAMS &p;
    const char *from; // the head's first row of page 0
    int b;
    i64 page_bytes, row_bytes;

    template <class T>
    __device__ __forceinline__ page_loader(const PARAMS &params, const T *head, int sequence, i64 of_page, i64 of_row)
        : p(params), from(reinterpret_cast<const char *>(head)), b(sequence),
          page_bytes(of_page * static_cast<i64>(sizeof(T))), row_bytes(of_row * static_cast<i64>(sizeof(T)))
    {
    }

    // Rows row0 .. row0 + ROWS - 1 of the sequence to the tile at `tile`; `left` of them exist.
    __device__ __forceinline__ void load(u32 tile, int row0, int left) const
    {
        const u32 thread = fresh_thread();
        const int lane = static_cast<int>(thread % 32);
        const int first = static_cast<int>(thread / 32) * OWN;
        const page_place place = find_page(p, b, row0 + first + lane % OWN);
        const int chunk = lane % ACROSS;
#pragma unroll
        for (int i = 0; i < (OWN + STEP - 1) / STEP; i++) {
            const int own = lane / ACROSS + i * STEP; // beyond OWN: some row, which is not copied
            const i64 page = __shfl_sync(ALL_LANES, place.page, own % OWN);
            const i64 row = __shfl_sync(ALL_LANES, place.row, own % OWN);
            const char *source = from + (page * page_bytes + row * row_bytes + chunk * 16);
            const u32 to = tile + shape::offset(first + own, chunk);
#pragma unroll
            for (int c = 0; c < shape::CHUNKS; c += ACROSS) {
                const bool inside = first + own < left && (DIM == COLS || (chunk + c) * 8 < DIM);
                if (OWN % STEP == 0 || own < OWN) {
                    copy16_async(to + static_cast<u32>(c * 16), source + c * 16, inside ? 16 : 0);
                }
            }
        }
    }
};

// Rows of a key head of batch b, or of sequence b in its pages.
template <int ROWS, int DIM, int COLS, int THREADS, class PARAMS> struct block_rows
    : tile_loader<ROWS, DIM, COLS, THREADS> {
    template <class T> __device__ __forceinline__ block_rows(const PARAMS &, const T *all, int b, i64 of_batch, int h,
                                                             i64 of_head, i64 of_row)
        : tile_loader<ROWS, DIM, COLS, THREADS>(all + b * of_batch + h * of_head, of_row)
    {
    }
};
template <int ROWS, int DIM, int COLS, int THREADS, class PARAMS>
requires HAS_PAGES<PARAMS>
struct block_rows<ROWS, DIM, COLS, THREADS, PARAMS> : page_loader<ROWS, DIM, COLS, THREADS, PARAMS> {
    template <class T> __device__ __forceinline__ block_rows(const PARAMS &p, const T *all, int b, i64 of_page, int h,
                                                             i64 of_head, i64 of_row)
        : page_loader<ROWS, DIM, COLS, THREADS, PARAMS>(p, all + h * of_head, b, of_page, of_row)
    {
    }
};
