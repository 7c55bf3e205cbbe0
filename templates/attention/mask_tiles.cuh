// attention/mask_tiles.cuh: classes of the tiles of a mask that is judged once a launch, for the kernels that write a
// map of them.
//
// Launch: MAP_THREADS threads, no shared memory to ask for, and blocks = b' * h' * ceil(len_q / BM) * m for any m >= 1,
// where b' is n_b or, unless MAP_PER_BATCH, 1 and h' likewise; m blocks share the key tiles of a query tile. The result
// does not depend on m; with several tiles a warp, rows are looked at less often, and half of the tiles of a causal
// mask are told by their corners. Under MAP_BLOCKS a tile is one pair, and a thread's. Out: map[b'][h'][query tile][key
// tile], one tile_class in a byte each; lines are whole multiples of ALIGN bytes, whose last ones are not written.
// Pairs beyond the lengths do not count.
#pragma once
#include "common/concepts.cuh"

constexpr int MAP_THREADS = 256;
constexpr int MAP_WARPS = MAP_THREADS / 32;

namespace tilemap
{

[[maybe_unused]] constexpr int STEP = 16; // columns between two looks at whether the answer is known

template <int BM> struct tile_rows {            // a lane's rows of the query tile: made once, used with every key tile
    static constexpr int ROWS = (BM + 31) / 32; // of one lane
    variant::row row[ROWS];
    bool exists[ROWS];
};

template <int BM> DEV tile_rows<BM> make_rows(const map_params &p, const variant::head &head, int row0)
{
    tile_rows<BM> rows;
#pragma unroll
    for (int i = 0; i < tile_rows<BM>::ROWS; i++) {
        const int place = lane_id() + 32 * i;
        rows.exists[i] = place < BM && row0 + place < p.z.len_q;
        rows.row[i] = variant::make_row(p.x, p.z, head, min(row0 + place, p.z.len_q - 1));
    }
    return rows;
}

// So many heads have a line of the map in common that a look at pairs pays; where it does not, an undecided tile is
// TILE_SOME.
DEV bool looks(const sizes &z)
{
    const int heads = (variant::MAP_PER_BATCH ? 1 : z.n_b) * (variant::MAP_PER_HEAD ? 1 : z.n_h);
    return variant::MAP_LOOK_HEADS <= 1 || heads >= variant::MAP_LOOK_HEADS;
}

// By looking at every pair. `cols`: in shared memory, those of the tile.
template <int BM> DEV int look_at(const map_params &p, const variant::head &head, const tile_rows<BM> &rows, int n_cols,
                                  const variant::col *cols)
{
    bool any = false;
    bool all = true;
    for (int start = 0; start < n_cols; start += STEP) {
#pragma unroll 2
        for (int c = 0; c < STEP; c++) {
            const variant::col col = cols[min(start + c, n_cols - 1)]; // a column twice changes neither answer
#pragma unroll
            for (int i = 0; i < tile_rows<BM>::ROWS; i++) {
                const bool live = variant::live(p.x, p.z, head, rows.row[i], col);
                any |= live & rows.exists[i];
                all &= live | !rows.exists[i];
            }
        }
        if (__any_sync(ALL_LANES, any) && !__all_sync(ALL_LANES, all)) {
            return TILE_SOME;
        }
    }
    return __all_sync(ALL_LANES, all) ? TILE_ALL : __any_sync(ALL_LANES, any) ? TILE_SOME : TILE_NONE;
}

// The same where `cols` is this warp's place for them.
template <int BM> DEV int look(const map_params &p, const variant::head &head, const tile_rows<BM> &rows, int kv0,
                               int n_cols, variant::col *cols)
{
    __syncwarp(); // the tile before is read
    for (int i = lane_id(); i < n_cols; i += 32) {
        cols[i] = variant::make_col(p.x, p.z, head, kv0 + i);
    }
    __syncwarp();
    return look_at(p, head, rows, n_cols, cols);
}

// By looking at every pair, each lane at columns of its own: reads by row and column lie beside each other. row_at(i):
// the tile's, the same for all lanes; col_at(i), i < BN: where there are fewer, one of them.
template <int BN, class ROW_AT, class COL_AT> DEV int
look_by_column(const map_params &p, const variant::head &head, int n_rows, const ROW_AT &row_at, const COL_AT &col_at)
{
    constexpr int COLS = (BN + 31) / 32; // of one lane
    // between two looks at whether the answer is known: their reads are on their way together
    constexpr int ROWS = COLS <= 2 ? 8 : 4;
    variant::col col[COLS];
#pragma unroll
    for (int i = 0; i < COLS; i++) {
        col[i] = col_at(min(lane_id() + 32 * i, BN - 1)); // twice changes neither answer
    }
    bool any = false;
    bool all = true;
#pragma unroll 1
    for (int start = 0; start < n_rows; start += ROWS) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const variant::row row = row_at(min(start + r, n_rows - 1));
#pragma unroll
            for (int i = 0; i < COLS; i++) {
                const bool live = variant::live(p.x, p.z, head, row, col[i]);
                any |= live;
                all &= live;
            }
        }
        if (__any_sync(ALL_LANES, any) && !__all_sync(ALL_LANES, all)) {
            return TILE_SOME;
        }
    }
    return __all_sync(ALL_LANES, all) ? TILE_ALL : TILE_NONE;
}

// What each read of the mask gives on a tile: as far as this lane has looked, after share() all of them.
template <class V> struct read_ranges {
    static constexpr int READS = V::READS > 0 ? V::READS : 1;
    int low[V::READS + V::BOXES], high[V::READS + V::BOXES]; // of boxes behind the others

    __device__ __forceinline__ void clear(bool rows)
    {
#pragma unroll
        for (int k = 0; k < V::READS; k++) {
            if (((V::READS_BY_ROW >> k & 1u) != 0) == rows) {
                low[k] = 0x7fffffff;
                high[k] = -0x7fffffff - 1;
            }
        }
    }
    __device__ __forceinline__ void take(const int (&read)[READS], bool rows)
    {
#pragma unroll
        for (int k = 0; k < V::READS; k++) {
            if (((V::READS_BY_ROW >> k & 1u) != 0) == rows) {
                low[k] = min(low[k], read[k]);
                high[k] = max(high[k], read[k]);
            }
        }
    }
    __device__ __forceinline__ void share(bool rows)
    {
#pragma unroll
        for (int k = 0; k < V::READS; k++) {
            if (((V::READS_BY_ROW >> k & 1u) != 0) == rows) {
                low[k] = warp_min(low[k]);
                high[k] = warp_max(high[k]);
            }
        }
    }
};

// The least and the largest of what is read in a box of n0 x n1 x n2 x n3 places, by a warp; of a box with more places
// than some a look at pairs costs no more, and nothing is told.
struct find_box {
    static constexpr int MOST = 1024;
    template <class LOAD> __device__ __forceinline__ void operator()(int &low, int &high, int n0, int n1, int n2,
                                                                     int n3, const LOAD &load) const
    {
        const auto fits = [](int a, int n) { return a > 0 && n > 0 && n <= MOST && a * n <= MOST ? a * n : 0; };
        const int n = fits(fits(fits(fits(1, n0), n1), n2), n3);
        low = n > 0 ? 0x7fffffff : -0x7fffffff - 1;
        high = -1 - low;
        if (n == 0) {
            return;
        }
#pragma unroll 1
        for (int i = lane_id(); i < n; i += 32) {
            const int rest = i / n3;
            const int more = rest / n2;
            const int value = load(more / n1, more % n1, rest % n2, i % n3);
            low = min(low, value);
            high = max(high, value);
        }
        low = warp_min(low);
        high = warp_max(high);
    }
};

// The class of a tile as far as it can be told without looking at pairs: from its corners, and from what the mask
// reads by row and by column.
template <class V, int BM, int BN, bool READS = (V::READS + V::BOXES > 0)> struct guess {
    __device__ __forceinline__ guess(const map_params &, const variant::head &, const tile_rows<BM> &) {}
    __device__ __forceinline__ int classify(const map_params &p, const variant::head &head, int row0, int row1, int kv0,
                                            int kv1)
    {
        return V::classify(p.x, p.z, head, row0, row1, kv0, kv1);
    }
};
template <class V, int BM, int BN> struct guess<V, BM, BN, true> {
    read_ranges<V> ranges;

    __device__ __forceinline__ guess(const map_params &p, const variant::head &head, const tile_rows<BM> &rows)
    {
        int read[read_ranges<V>::READS];
        ranges.clear(true);
#pragma unroll
        for (int i = 0; V::READS > 0 && i < tile_rows<BM>::ROWS; i++) {
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
        const int c = V::classify(p.x, p.z, head, row0, row1, kv0, kv1);
        if (c != TILE_SOME) {
            return c;
        }
        int read[read_ranges<V>::READS];
        ranges.clear(false);
        constexpr int AT_ONCE = BN <= 128 ? (BN + 31) / 32 : 1; // loads on their way
#pragma unroll(AT_ONCE)
        for (int i = 0; V::READS > 0 && i < (BN + 31) / 32; i++) {
            V::col_reads(p.x, p.z, head, V::make_col(p.x, p.z, head, min(kv0 + min(lane_id() + 32 * i, BN - 1), kv1)),
                         read);
            ranges.take(read, false);
        }
        ranges.share(false);
        if constexpr (V::BOXES > 0) {
            V::box_reads(p.x, p.z, head, row0, row1, kv0, kv1, ranges.low, ranges.high, find_box{});
        }
        return V::classify_reads(p.x, p.z, head, row0, row1, kv0, kv1, ranges.low, ranges.high);
    }
};

// For a kernel that classifies tiles itself: what each read by column gives on the keys of each key tile.
// Launch: blocks = b' * h' * m, for m as above without the query tiles. Out: uint2 map[b'][h'][key tile][READS], low
// and high; those by row are not written.
template <class V, int BN> DEV void write_ranges(const map_params &p)
{
    const sizes &z = p.z;
    const int n_heads = V::MAP_PER_HEAD ? z.n_h : 1;
    const int lines = (V::MAP_PER_BATCH ? z.n_b : 1) * n_heads;
    const int key_tiles = (z.len_kv + BN - 1) / BN;
    const int sharing = max(static_cast<int>(gridDim.x) / max(lines, 1), 1);
    const int line = static_cast<int>(blockIdx.x) / sharing;
    if (line >= lines) {
        return;
    }
    const variant::head head = V::make_head(p.x, z, line / n_heads, line % n_heads);
    uint2 *out = reinterpret_cast<uint2 *>(p.map) + static_cast<i64>(line) * key_tiles * V::READS;
    const int first = static_cast<int>(blockIdx.x) % sharing * MAP_WARPS + static_cast<int>(threadIdx.x) / 32;
    for (int tile = first; tile < key_tiles; tile += sharing * MAP_WARPS) {
        read_ranges<V> ranges;
        int read[read_ranges<V>::READS];
        ranges.clear(false);
#pragma unroll
        for (int i = 0; i < (BN + 31) / 32; i++) {
            const int kv = min(tile * BN + min(lane_id() + 32 * i, BN - 1), z.len_kv - 1); // one twice changes nothing
            V::col_reads(p.x, z, head, V::make_col(p.x, z, head, kv), read);
            ranges.take(read, false);
        }
        ranges.share(false);
        if (lane_id() == 0) {
#pragma unroll
            for (int k = 0; k < V::READS; k++) {
                if ((V::READS_BY_ROW >> k & 1u) == 0) {
                    out[static_cast<i64>(tile) * V::READS + k] =
                        make_uint2(static_cast<u32>(ranges.low[k]), static_cast<u32>(ranges.high[k]));
                }
            }
        }
    }
}

// A line of the map, and which of its tiles are the block's: a share of those that `sharing` blocks have.
struct map_line {
    u32 number, share, sharing;
    int b, h;
    int row0, row1; // inclusive
    bool exists;
};
template <int BM> DEV map_line find_line(const sizes &z)
{
    const u32 n_heads = variant::MAP_PER_HEAD ? static_cast<u32>(z.n_h) : 1;
    const u32 n_batches = variant::MAP_PER_BATCH ? static_cast<u32>(z.n_b) : 1;
    const u32 query_tiles = (static_cast<u32>(z.len_q) + BM - 1) / BM; // unsigned: divided sooner
    const u32 lines = n_batches * n_heads * query_tiles;               // of the map, each of all key tiles
    map_line line{};
    line.sharing = max(gridDim.x / lines, 1u);
    line.number = blockIdx.x / line.sharing;
    line.share = blockIdx.x - line.number * line.sharing;
    line.exists = line.number < lines;
    const u32 above = line.number / query_tiles;
    line.row0 = static_cast<int>(line.number - above * query_tiles) * BM;
    line.row1 = min(line.row0 + BM, z.len_q) - 1;
    line.h = static_cast<int>(above % n_heads);
    line.b = static_cast<int>(above / n_heads);
    return line;
}

// Of a mask that is the same on blocks which tiles lie within: a tile a thread.
template <class V, int BM, int BN, int ALIGN, bool BLOCKS = V::MAP_BLOCKS> struct block_classes {
    DEV void write(const map_params &) {}
};
template <class V, int BM, int BN, int ALIGN> struct block_classes<V, BM, BN, ALIGN, true> {
    DEV void write(const map_params &p)
    {
        const sizes &z = p.z;
        const int key_tiles = static_cast<int>((static_cast<u32>(z.len_kv) + BN - 1) / BN);
        const map_line line = find_line<BM>(z);
        if (!line.exists) {
            return;
        }
        const variant::head head = V::make_head(p.x, z, line.b, line.h);
        unsigned char *out = p.map + static_cast<i64>(line.number) * round_up(key_tiles, ALIGN);
        for (int tile = static_cast<int>(line.share * MAP_THREADS + threadIdx.x); tile < key_tiles;
             tile += static_cast<int>(line.sharing) * MAP_THREADS) {
            const int kv0 = tile * BN;
            out[tile] = static_cast<unsigned char>(
                V::classify_block(p.x, z, head, line.row0, line.row1, kv0, min(kv0 + BN, z.len_kv) - 1));
        }
    }
};

// CUT: tiles may be TILE_CUT.
template <int BM, int BN, int ALIGN = 1, bool CUT = false> DEV void write_classes(const map_params &p)
{
    static_assert(BM >= 16 && BM <= 256 && BM % 16 == 0, "a tile has a multiple of 16 query rows, up to 256");
    static_assert(BN >= 16 && BN <= 256 && BN % 16 == 0, "a tile has a multiple of 16 keys, up to 256");
    constexpr bool BY_COLUMN = variant::MAP_LOOK_COLS;
    __shared__ variant::col cols[BY_COLUMN ? 1 : MAP_WARPS][BN];
    __shared__ variant::row row_table[BY_COLUMN ? BM : 1];
    const sizes &z = p.z;
    const int key_tiles = static_cast<int>((static_cast<u32>(z.len_kv) + BN - 1) / BN);
    const map_line line = find_line<BM>(z);
    if (!line.exists) {
        return;
    }
    const int row0 = line.row0;
    const int row1 = line.row1;
    const int warp = static_cast<int>(threadIdx.x) / 32;

    const variant::head head = variant::make_head(p.x, z, line.b, line.h);
    const tile_rows<BM> rows = make_rows<BM>(p, head, row0);
    if constexpr (BY_COLUMN) {
        for (int i = static_cast<int>(threadIdx.x); i <= row1 - row0; i += MAP_THREADS) {
            row_table[i] = variant::make_row(p.x, z, head, row0 + i);
        }
        __syncthreads();
    }
    guess<variant, BM, BN> known(p, head, rows);
    unsigned char *out = p.map + static_cast<i64>(line.number) * round_up(key_tiles, ALIGN);
    for (int tile = static_cast<int>(line.share) * MAP_WARPS + warp; tile < key_tiles;
         tile += static_cast<int>(line.sharing) * MAP_WARPS) {
        const int kv0 = tile * BN;
        const int kv1 = min(kv0 + BN, z.len_kv) - 1;
        int answer = known.classify(p, head, row0, row1, kv0, kv1);
        if (answer == TILE_SOME || (answer == TILE_CUT && !CUT)) {
            answer = TILE_SOME;
            if (looks(z)) {
                if constexpr (BY_COLUMN) {
                    answer = look_by_column<BN>(
                        p, head, row1 - row0 + 1, [&](int i) { return row_table[i]; },
                        [&](int i) { return variant::make_col(p.x, z, head, min(kv0 + i, kv1)); });
                } else {
                    answer = look(p, head, rows, kv0, kv1 - kv0 + 1, cols[warp]);
                }
            }
        }
        if (lane_id() == 0) {
            out[tile] = static_cast<unsigned char>(answer);
        }
    }
}

} // namespace tilemap
