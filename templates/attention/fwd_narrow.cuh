// attention/fwd_narrow.cuh: attention/fwd_sm80.cuh where k or v has 8 bits in memory (cfg::source_k, source_v): rows
// of such numbers become rows of cfg::operand on their way into a tile, by way of registers, so a block reads half the
// bytes and needs no workspace. All else is as there.
//
// Launch: as there.
#pragma once
#include "attention/key_rows.cuh"
#include "attention/key_tiles.cuh"
#include "attention/narrow_words.cuh"

static_assert(IS_NARROW<cfg::source_k> || IS_NARROW<cfg::source_v>, "k or v has 8 bits");

namespace cfg
{
struct stored_k { // what loaders of k and of v are told apart by
    source_k x;
};
struct stored_v {
    source_v x;
};
} // namespace cfg

// Numbers of 8 bits as one of the chunks of a tile's row.
constexpr int CHUNK_NUMBERS = 16 / ELEMENT_BYTES<cfg::operand>;

template <class T> DEV void store_widened(u32 chunk, const u32 *raw)
{
    u32 half[CHUNK_NUMBERS / 2];
    float out[4];
#pragma unroll
    for (int i = 0; i < CHUNK_NUMBERS / 4; i++) {
        widen_word<T, NARROW_ADJACENT>(raw[i], half[2 * i], half[2 * i + 1]);
    }
#pragma unroll
    for (int i = 0; i < CHUNK_NUMBERS / 2; i++) {
        float low;
        float high;
        unpack<f16>(half[i], low, high);
        if constexpr (same_type<cfg::operand, float>) {
            out[2 * i] = low;
            out[2 * i + 1] = high;
        } else if constexpr (same_type<cfg::operand, f16>) {
            out[i] = __uint_as_float(half[i]);
        } else {
            out[i] = __uint_as_float(pack<cfg::operand>(low, high));
        }
    }
    store_shared16(chunk, out);
}

// Takes the place of the loaders of attention/key_rows.cuh: places of keys are found as there.
template <int DIM, int COLS> struct block_rows<cfg::BN, DIM, COLS, cfg::WARPS * 32, attention_params> {
    static constexpr int THREADS = cfg::WARPS * 32;
    static constexpr int PIECE = 2 * CHUNK_NUMBERS; // numbers that are loaded at once: two chunks
    using shape = swizzle<COLS>;
    static constexpr int PIECES = shape::CHUNKS / 2;                                                   // of a row
    static constexpr int ACROSS = PIECES % 8 == 0 ? 8 : PIECES % 4 == 0 ? 4 : PIECES % 2 == 0 ? 2 : 1; // threads of it
    static constexpr int STEP = THREADS / ACROSS;                                                      // rows at a time
    static constexpr int TURNS = (cfg::BN + STEP - 1) / STEP;
    static constexpr int EACH = PIECES / ACROSS; // pieces of a row that a thread has
    static_assert(DIM == COLS, "rows are whole pieces");

    const attention_params &p;
    const char *from; // the head's first row, of page or batch 0
    int b;
    i64 page_bytes, row_bytes;
    bool of_k;

    template <class T> __device__ __forceinline__ block_rows(const attention_params &params, const T *all, int batch,
                                                             i64 of_page, int h, i64 of_head, i64 of_row)
        : p(params), from(reinterpret_cast<const char *>(all + h * of_head)), b(batch),
          page_bytes(of_page * static_cast<i64>(sizeof(T))), row_bytes(of_row * static_cast<i64>(sizeof(T))),
          of_k(same_type<T, cfg::stored_k>)
    {
    }

    // Rows row0 .. row0 + BN - 1 of the sequence to the tile at `tile`, those from `left` on as zeros.
    __device__ __forceinline__ void load(u32 tile, int row0, int left) const
    {
        if (same_type<cfg::source_k, cfg::source_v> || of_k) {
            load_as<cfg::source_k>(tile, row0, left);
        } else {
            load_as<cfg::source_v>(tile, row0, left);
        }
    }

    template <class T> __device__ __forceinline__ void load_as(u32 tile, int row0, int left) const
    {
        if constexpr (IS_NARROW<T>) {
            widen<T>(tile, row0, left);
        } else {
            const T *const rows = reinterpret_cast<const T *>(from);
            const i64 of_page = page_bytes / static_cast<i64>(sizeof(T));
            const i64 of_row = row_bytes / static_cast<i64>(sizeof(T));
            if constexpr (HAS_PAGES<attention_params>) {
                page_loader<cfg::BN, DIM, COLS, THREADS, attention_params>(p, rows, b, of_page, of_row)
                    .load(tile, row0, left);
            } else {
                tile_loader<cfg::BN, DIM, COLS, THREADS>(rows + b * of_page, of_row).load(tile, row0, left);
            }
        }
    }

    // All loads go out before the first of them is waited for. Eight threads that store at the same time have four
    // pieces of two rows, whose chunks lie in different banks.
    template <class T> __device__ __forceinline__ void widen(u32 tile, int row0, int left) const
    {
        const int thread = static_cast<int>(fresh_thread()); // found again for each tile: registers less in between
        const int piece = ACROSS == 8 ? thread % 4 + thread / 8 % 2 * 4 : thread % ACROSS;
        const int row = ACROSS == 8 ? thread / 4 % 2 + thread / 16 * 2 : thread / ACROSS;
        words<PIECE> raw[TURNS][EACH];
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            const int own = row + i * STEP;
            const bool exists = own < min(left, cfg::BN);
            const page_place at = find_page(p, b, row0 + min(own, left - 1));
            const char *source = from + (at.page * page_bytes + at.row * row_bytes + piece * PIECE);
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                raw[i][c] = exists ? load_words<PIECE>(source + c * ACROSS * PIECE) : words<PIECE>{};
            }
        }
#pragma unroll
        for (int i = 0; i < TURNS * EACH; i++) {
            const int own = row + i / EACH * STEP;
            const int chunk = 2 * (piece + i % EACH * ACROSS);
            if (cfg::BN % STEP == 0 || own < cfg::BN) {
                const u32 *const words = raw[i / EACH][i % EACH].word;
                store_widened<T>(tile + shape::offset(own, chunk), words);
                store_widened<T>(tile + shape::offset(own, chunk + 1), words + CHUNK_NUMBERS / 4);
            }
        }
    }
};

#define element_k stored_k
#define element_v stored_v
#include "attention/fwd_sm80.cuh"
#undef element_k
#undef element_v
