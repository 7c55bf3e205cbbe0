// attention/backward/query_lists.cuh: kernel: for a mask that is judged once a launch, the query tiles with which each
// key tile of attention backward has live pairs.
//
// Launch: b' * h' * ceil(len_kv / BACK_BN) blocks, an even number of key tiles where BACK_PAIRED, of BACK_MAP_THREADS
// threads, b' and h' as in attention/mask_tiles.cuh, no shared memory to ask for. Out: what
// attention/backward/scheduler.cuh reads. Each half of a tile that a warpgroup has for itself is classified for itself:
// 64 keys of attention/backward/sm90.cuh, 64 queries of attention/backward/wide_sm90.cuh. Pairs beyond the lengths do
// not count.
#pragma once
#include "attention/backward/scheduler.cuh"
#include "attention/mask_tiles.cuh"

constexpr int BACK_MAP_THREADS = 512;

namespace back_map
{

using namespace tilemap;
using back::BM;
using back::BN;

constexpr int WARPS = BACK_MAP_THREADS / 32;
constexpr int ROW_PARTS = cfg::BACK_WGMMA && back::SPLIT == 2 ? 2 : 1;
constexpr int KEY_PARTS = cfg::BACK_WGMMA && back::SPLIT == 1 ? 2 : 1;
constexpr int ROWS = BM / ROW_PARTS, KEYS = BN / KEY_PARTS; // of a part

// What the mask reads on a part: by column, and, as soon as a tile's class asks for it, by row.
template <class V, bool READS = (V::READS + V::BOXES > 0)> struct part_reads {
    __device__ __forceinline__ void take_keys(const map_params &, const variant::head &, const variant::col *, int) {}
    __device__ __forceinline__ void take_rows(const map_params &, const variant::head &, const tile_rows<ROWS> &) {}
    __device__ __forceinline__ int classify(const map_params &, const variant::head &, int, int, int, int) const
    {
        return TILE_SOME;
    }
};
template <class V> struct part_reads<V, true> {
    read_ranges<V> ranges;

    __device__ __forceinline__ void take_keys(const map_params &p, const variant::head &head, const variant::col *cols,
                                              int n)
    {
        int read[read_ranges<V>::READS];
        ranges.clear(false);
#pragma unroll 1
        for (int i = lane_id(); V::READS > 0 && i < n; i += 32) {
            V::col_reads(p.x, p.z, head, cols[i], read);
            ranges.take(read, false);
        }
        ranges.share(false);
    }
    __device__ __forceinline__ void take_rows(const map_params &p, const variant::head &head,
                                              const tile_rows<ROWS> &rows)
    {
        int read[read_ranges<V>::READS];
        ranges.clear(true);
#pragma unroll
        for (int i = 0; V::READS > 0 && i < tile_rows<ROWS>::ROWS; i++) {
            V::row_reads(p.x, p.z, head, rows.row[i], read);
            if (rows.exists[i]) {
                ranges.take(read, true);
            }
        }
        ranges.share(true);
    }
    __device__ __forceinline__ int classify(const map_params &p, const variant::head &head, int row0, int row1, int kv0,
                                            int kv1)
    {
        if constexpr (V::BOXES > 0) {
            V::box_reads(p.x, p.z, head, row0, row1, kv0, kv1, ranges.low, ranges.high, find_box{});
        }
        return V::classify_reads(p.x, p.z, head, row0, row1, kv0, kv1, ranges.low, ranges.high);
    }
};

struct rows_of_tile {
    tile_rows<ROWS> part[ROW_PARTS];

    __device__ __forceinline__ void load(const map_params &p, const variant::head &head, int tile)
    {
#pragma unroll
        for (int i = 0; i < ROW_PARTS; i++) {
            part[i] = make_rows<ROWS>(p, head, tile * BM + i * ROWS);
        }
    }
};

// Query tile number i in the order of the list; of those there are, the last one.
DEV int tile_at(int i, int start, int tiles)
{
    const int from = min(i, tiles - 1) + start;
    return from < tiles ? from : from - tiles;
}

struct key_tile { // of the block
    const map_params &p;
    const variant::head &head;
    const variant::col *cols; // in shared memory
    int kv0;
    part_reads<variant> reads[KEY_PARTS];

    // <= 0: none
    __device__ __forceinline__ int keys_of(int part) const { return min(KEYS, p.z.len_kv - kv0 - part * KEYS); }
    __device__ __forceinline__ void take_keys()
    {
#pragma unroll
        for (int k = 0; k < KEY_PARTS; k++) {
            reads[k].take_keys(p, head, cols + k * KEYS, keys_of(k));
        }
    }

    static constexpr int PARTS = ROW_PARTS * KEY_PARTS;
    DEV int row_part(int part) { return ROW_PARTS > 1 ? part : 0; }
    DEV int key_part(int part) { return KEY_PARTS > 1 ? part : 0; }

    // By a warp, without a look at the pairs.
    __device__ __forceinline__ int guess(const tile_rows<ROWS> &rows, int row0, int part)
    {
        const sizes &z = p.z;
        const int n = keys_of(part);
        if (row0 >= z.len_q || n <= 0) {
            return TILE_NONE;
        }
        const int row1 = min(row0 + ROWS, z.len_q) - 1;
        const int first = kv0 + part * KEYS;
        int c = static_cast<int>(variant::classify(p.x, z, head, row0, row1, first, first + n - 1));
        if (c == TILE_SOME) {
            reads[part].take_rows(p, head, rows);
            c = reads[part].classify(p, head, row0, row1, first, first + n - 1);
        }
        return c == TILE_CUT && !cfg::BACK_WGMMA ? static_cast<int>(TILE_SOME) : c;
    }

    // 16 times the tile, plus the classes of both parts; without live pairs 0.
    __device__ __forceinline__ u32 word_of(const rows_of_tile &rows, int tile)
    {
        int c[2];
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            c[i] = guess(rows.part[row_part(i)], tile * BM + row_part(i) * ROWS, key_part(i));
        }
#pragma unroll ROW_PARTS
        for (int i = 0; i < PARTS; i++) { // one text for both where the rows are the same
            const int n = keys_of(key_part(i));
            int x = i == 0 ? c[0] : c[PARTS - 1];
            if (x == TILE_SOME && looks(p.z)) {
                const variant::col *of_part = cols + key_part(i) * KEYS;
                if constexpr (variant::MAP_LOOK_COLS) {
                    const int row0 = tile * BM + row_part(i) * ROWS;
                    x = look_by_column<KEYS>(
                        p, head, min(ROWS, p.z.len_q - row0),
                        [&](int r) { return variant::make_row(p.x, p.z, head, row0 + r); },
                        [&](int c) { return of_part[min(c, n - 1)]; });
                } else {
                    x = look_at(p, head, rows.part[row_part(i)], n, of_part);
                }
            }
            x = x == TILE_ALL && (tile * BM + (row_part(i) + 1) * ROWS > p.z.len_q || n < KEYS)
                    ? static_cast<int>(TILE_SOME)
                    : x;
            c[0] = i == 0 ? x : c[0];
            c[PARTS - 1] = i == PARTS - 1 ? x : c[PARTS - 1];
        }
        const u32 both = static_cast<u32>(c[0] | c[PARTS - 1] << 2);
        return both == 0 ? 0 : static_cast<u32>(tile) << 4 | both;
    }
};

// The same of a mask that is the same on blocks which parts lie within: by a thread. No part is TILE_CUT, but of a tile
// with live pairs in the neighbour of a pair alone.
template <class V, bool BLOCKS = V::MAP_BLOCKS> struct block_words {
    DEV u32 word_of(const map_params &, const variant::head &, int, int) { return 0; }
};
template <class V> struct block_words<V, true> {
    DEV u32 word_of(const map_params &p, const variant::head &head, int kv0, int tile)
    {
        const sizes &z = p.z;
        u32 both = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int part = min(i, key_tile::PARTS - 1); // both halves are the one part's
            const int row0 = tile * BM + key_tile::row_part(part) * ROWS;
            const int first = kv0 + key_tile::key_part(part) * KEYS;
            int c = TILE_NONE;
            if (row0 < z.len_q && first < z.len_kv) {
                c = static_cast<int>(V::classify_block(p.x, z, head, row0, min(row0 + ROWS, z.len_q) - 1, first,
                                                       min(first + KEYS, z.len_kv) - 1));
                c = c == TILE_ALL && (row0 + ROWS > z.len_q || first + KEYS > z.len_kv) ? static_cast<int>(TILE_SOME)
                                                                                        : c;
            }
            both |= static_cast<u32>(c) << (2 * i);
        }
        return both == 0 ? 0 : static_cast<u32>(tile) << 4 | both;
    }
};

// Words of this round that are not 0, one a thread, to the list behind the n that are there. Returns how many there are
// then.
DEV int append(u32 word, u32 *list, int n, int *counts)
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const u32 some = __ballot_sync(ALL_LANES, word != 0);
    if (lane_id() == 0) {
        counts[warp] = __popc(some);
    }
    __syncthreads();
    int before = n;
#pragma unroll 1
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? counts[i] : 0;
        n += counts[i];
    }
    if (word != 0) {
        list[before + __popc(some & ((1u << lane_id()) - 1))] = word;
    }
    return n;
}

} // namespace back_map

#if LATHE_COMPILED(bwd_map)
extern "C" __global__ void __launch_bounds__(BACK_MAP_THREADS)
    LATHE_ENTRY(bwd_map)(const __grid_constant__ map_params p)
{
    using namespace back_map;
    __shared__ variant::col cols[back::PAIR * BN];
    __shared__ u32 found[BACK_MAP_THREADS];
    __shared__ int counts[WARPS];
    const sizes &z = p.z;
    const int tiles = back::query_tiles(z);
    const int key_tiles = back::key_pairs(z) * back::PAIR;
    const int n_heads = variant::MAP_PER_HEAD ? z.n_h : 1;
    const int line = static_cast<int>(blockIdx.x) / key_tiles;
    const int b = line / n_heads;
    const int h = line % n_heads;
    const int kv0 = (static_cast<int>(blockIdx.x) - line * key_tiles) * BN;
    const i64 words = static_cast<i64>(blockIdx.x) * tiles;
    const int thread = static_cast<int>(threadIdx.x);
    const variant::head head = variant::make_head(p.x, z, b, h);
    constexpr bool BLOCKS = variant::MAP_BLOCKS; // no pair is looked at
    for (int i = thread; !BLOCKS && i < min(BN, z.len_kv - kv0); i += BACK_MAP_THREADS) {
        cols[i] = variant::make_col(p.x, z, head, kv0 + i);
    }
    for (int i = thread; !BLOCKS && back::PAIRED && i < min(BN, z.len_kv - (kv0 ^ BN)); i += BACK_MAP_THREADS) {
        cols[(back::PAIR - 1) * BN + i] = variant::make_col(p.x, z, head, (kv0 ^ BN) + i);
    }
    __syncthreads();
    key_tile keys{p, head, cols, kv0, {}};
    if constexpr (!BLOCKS) {
        keys.take_keys();
    }
    // of the other block of a pair, which walks the same tiles
    key_tile others{p, head, cols + (back::PAIR - 1) * BN, kv0 ^ BN, {}};
    if constexpr (!BLOCKS && back::PAIRED) {
        others.take_keys();
    }

    u32 *list = reinterpret_cast<u32 *>(p.map) + words;
    unsigned char *classes = p.map + back::list_bytes(z) + words;
    const int start = back::first_tile(z, kv0);
    rows_of_tile ahead;
    if (!BLOCKS && tiles > 0) {
        ahead.load(p, head, tile_at(thread / 32, start, tiles));
    }
    int n = 0;
#pragma unroll 1
    for (int first = 0; first < tiles; first += BACK_MAP_THREADS) {
        const int end = min(first + BACK_MAP_THREADS, tiles);
        found[thread] = 0;
        if (BLOCKS && first + thread < end) {
            const int tile = tile_at(first + thread, start, tiles);
            u32 word = block_words<variant>::word_of(p, head, kv0, tile);
            if (back::PAIRED && word == 0 && block_words<variant>::word_of(p, head, kv0 ^ BN, tile) != 0) {
                word = static_cast<u32>(tile) << 4 | TILE_CUT | TILE_CUT << 2;
            }
            found[thread] = word;
            if constexpr (cfg::DETERMINISTIC) {
                classes[tile] = word != 0 ? TILE_SOME : TILE_NONE;
            }
        }
        __syncthreads(); // and what the round before has left is read
#pragma unroll 1
        for (int i = first + thread / 32; !BLOCKS && i < end; i += WARPS) {
            const int tile = tile_at(i, start, tiles);
            const rows_of_tile rows = ahead;
            ahead.load(p, head, tile_at(i + WARPS, start, tiles)); // memory is slow to answer
            u32 word = keys.word_of(rows, tile);
            if constexpr (back::PAIRED) {
                if (word == 0 && others.word_of(rows, tile) != 0) {
                    word = static_cast<u32>(tile) << 4 | TILE_SOME | TILE_SOME << 2;
                }
            }
            if (lane_id() == 0) {
                found[i - first] = word;
                if constexpr (cfg::DETERMINISTIC) {
                    classes[tile] = word != 0 ? TILE_SOME : TILE_NONE;
                }
            }
        }
        __syncthreads();
        n = append(found[thread], list, n, counts);
    }
    for (int i = n + thread; i < tiles; i += BACK_MAP_THREADS) {
        list[i] = 0;
    }
    if (!cfg::DETERMINISTIC && thread == 0 && tiles > 0) {
        p.map[back::list_bytes(z) + blockIdx.x] = static_cast<unsigned char>((n * 255 + tiles - 1) / tiles);
    }
}
#endif
