// attention/backward/parts.cuh: what the kernels of attention backward have in common: the order in which dq lies
// between them, sums into gradients of inputs, the walk over query tiles, and the order of blocks.
#pragma once
#include "attention/elements.cuh"
#include "attention/sequences.cuh"
#include "common/concepts.cuh"
#include "heads/input_sums.cuh"

namespace back
{

constexpr int BM = cfg::BACK_BM, BN = cfg::BACK_BN, WARPS = cfg::BACK_WARPS, SPLIT = cfg::BACK_SPLIT;
constexpr int STAGES = cfg::BACK_STAGES;
constexpr int THREADS = 32 * WARPS;
constexpr bool PAIRED = cfg::BACK_PAIRED;
constexpr int PAIR = PAIRED ? 2 : 1; // thread blocks that walk together: their key tiles are neighbours
// Columns of q, k and dq, and of v and do, in shared memory: every warp has a whole number of 16 of them.
constexpr int DK = round_up(cfg::D, 16 * (cfg::BACK_WGMMA ? SPLIT : max_of(SPLIT, 16 * WARPS / BM)));
constexpr int DV = round_up(cfg::D_V, 16 * SPLIT);

static_assert(WARPS == 1 || WARPS == 2 || WARPS == 4 || WARPS == 8, "cfg::BACK_WARPS is 1, 2, 4 or 8");
static_assert(SPLIT >= 1 && WARPS % SPLIT == 0 && (SPLIT & (SPLIT - 1)) == 0,
              "cfg::BACK_SPLIT is a power of two that divides cfg::BACK_WARPS");
static_assert(BM == 16 || BM == 32 || BM == 64 || BM == 128, "cfg::BACK_BM is 16, 32, 64 or 128");
static_assert(BM % (16 * SPLIT) == 0, "cfg::BACK_BM is a multiple of 16 cfg::BACK_SPLIT: queries of a warp");
static_assert(BN % (16 * WARPS / SPLIT) == 0 && BN <= 256,
              "cfg::BACK_BN is a multiple of 16 cfg::BACK_WARPS / cfg::BACK_SPLIT, up to 256: keys of a warp");
static_assert(STAGES == 1 || STAGES == 2, "cfg::BACK_STAGES is 1 or 2");

// ---- dq between the kernels --------------------------------------------------------------------------
//
// fp32, [b][h][query tile][BM DK]: within a tile, fragments as they are added, so that a warp adds whole lines: of one
// warp after the other, register by register (ADD_WIDTH at a time), lane by lane.

// Warps along the rows; the rest along the columns. The most square piece is the least to read.
__host__ __device__ constexpr int dq_warps_down()
{
    int best = 0;
    for (int m = 1; m <= WARPS; m *= 2) {
        const int n = WARPS / m;
        if (BM % (16 * m) == 0 && DK % (16 * n) == 0 &&
            (best == 0 || BM / m + DK / n < BM / best + DK * best / WARPS)) {
            best = m;
        }
    }
    return best;
}

struct dq_of_mma { // of attention/backward/sm80.cuh
    static constexpr int DOWN = max_of(dq_warps_down(), 1);
    static constexpr int ACROSS = WARPS / DOWN;
    static constexpr int MT = BM / DOWN / 16;
    static constexpr int DB = DK / ACROSS / 8; // blocks of 8 columns of a warp
    static constexpr int REGISTERS = MT * DB * 4;
    static constexpr int FLOATS = BM * DK; // of a tile
    static_assert(REGISTERS % ADD_WIDTH == 0, "whole vectors");

    // Of register i of a lane, from the start of the warp's piece.
    DEV constexpr int offset(int i, int lane) { return (i / ADD_WIDTH * 32 + lane) * ADD_WIDTH + i % ADD_WIDTH; }

    struct place {
        int row, column;
    };
    // Of float n of a tile.
    DEV place place_of(int n)
    {
        const int warp = n / (32 * REGISTERS);
        const int rest = n % (32 * REGISTERS);
        const int lane = rest / ADD_WIDTH % 32;
        const int i = rest / (32 * ADD_WIDTH) * ADD_WIDTH + rest % ADD_WIDTH;
        const int m = i / (4 * DB);
        const int d = i / 4 % DB;
        return {(warp / ACROSS * MT + m) * 16 + (i % 4) / 2 * 8 + lane / 4,
                (warp % ACROSS * DB + d) * 8 + lane % 4 * 2 + i % 2};
    }
};

// Of attention/backward/sm90.cuh: 64 rows after the other, block of 8 columns by block, four registers of each thread
// of the warpgroup.
struct dq_of_wgmma {
    static constexpr int DB = DK / 8;
    static constexpr int FLOATS = BM * DK;

    struct place {
        int row, column;
    };
    DEV place place_of(int n)
    {
        const int thread = n / 4 % 128;
        const int block = n / 512;
        return {block / DB * 64 + thread / 32 * 16 + n % 4 / 2 * 8 + thread % 32 / 4,
                block % DB * 8 + thread % 4 * 2 + n % 2};
    }
};

// Of attention/backward/selected.cuh, whose tiles have rows of several heads and tokens: each row for itself, and in it
// what a lane has of two blocks of 8 columns together.
struct dq_of_rows : dq_of_mma {
    // Of a lane's four floats of blocks `block` and block + 1, from the start of the row.
    DEV constexpr int offset(int block, int lane) { return block * 8 + lane % 4 * 4; }

    struct place {
        int row, column;
    };
    DEV place place_of(int n)
    {
        const int i = n % DK;
        return {n / DK, i / 16 * 16 + i % 4 / 2 * 8 + i % 16 / 4 * 2 + i % 2};
    }
};

using dq_shape = pick<cfg::BACK_WGMMA, dq_of_wgmma, pick<cfg::BACK_BY_ROWS, dq_of_rows, dq_of_mma>::type>::type;

DEV int query_tiles(const sizes &z) { return (z.len_q + BM - 1) / BM; }
DEV int key_tiles(const sizes &z) { return (z.len_kv + BN - 1) / BN; }
DEV int key_pairs(const sizes &z) { return (z.len_kv + PAIR * BN - 1) / (PAIR * BN); }
// Where the values of a row lie among those of its head: for attention/backward/sm90.cuh the four queries of 16 that a
// thread has are together. 16 bytes are read as fast as 8, beside products that read shared memory, too: 0.8 % at D
// 128; in its wide sibling 0.5 % less.
constexpr bool ROWS_BY_FOUR = cfg::BACK_WGMMA && SPLIT == 1;
DEV int row_place(int row) { return ROWS_BY_FOUR ? (row & ~15) | (row & 6) << 1 | (row & 8) >> 2 | (row & 1) : row; }
DEV i64 tile_line(const sizes &z, int b, int h) // number of query tile 0 of a head
{
    return (static_cast<i64>(b) * z.n_h + h) * query_tiles(z);
}

// ---- sequences ---------------------------------------------------------------------------------------
//
// What kernels hand to each other of a sequence's query tiles lies together, as of a launch of one batch: own_batch is
// its number there, of own_batches.
template <class PARAMS> DEV int own_batch(const PARAMS &, int b) { return HAS_SEQUENCES<PARAMS> ? 0 : b; }
template <class PARAMS> DEV int own_batches(const PARAMS &p) { return HAS_SEQUENCES<PARAMS> ? 1 : p.z.n_b; }

struct query_work {
    int b, h, tile;
};
// The tile of ROWS queries of a block: what dense() says; or one of a sequence, which p is of from here on, with
// move(p, query tiles of all heads that lie ahead of the sequence's) called before. False: the block has none.
template <int ROWS, class PARAMS, class MOVE, class DENSE>
DEV bool find_queries(PARAMS &p, query_work &at, const MOVE &move, const DENSE &dense)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        sequences::tile found;
        const int block = static_cast<int>(blockIdx.x);
        if (!sequences::tile_of<ROWS>(sequences::queries(p), p.z.n_b, block / p.z.n_h, found)) {
            return false;
        }
        at = {found.b, block % p.z.n_h, found.number};
        move(p, sequences::tiles_before<BM>(p, at.b) * p.z.n_h);
        sequences::enter(p, at.b);
        return at.tile * ROWS < p.z.len_q;
    } else {
        at = dense();
        return true;
    }
}

// ---- what weights are multiplied by in rows with large finals ----------------------------------------
//
// Where variant::NORM a row brings one value more than pairs read: attention/backward/split.cuh's norm, 1 but in rows
// with large finals. Those of 64 rows among which there is such a row are negative, so that a word tells whether a tile
// has to look at the others.
//
// The kernels of sm_90 have no room for it in shared memory (at D 64 it would cost the second place of K and V, 8 % at
// 1024 tokens). There a tile brings a record of 16 bytes for each 64 rows instead, behind the values in p.rows: whether
// there is such a row, and where the norms are.
constexpr int ROW_VALUES = variant::BACK_ROWS + (variant::NORM ? 1 : 0);
constexpr int NORM_ROWS = 64;
constexpr bool NORM_RECORDS = variant::NORM && cfg::BACK_WGMMA;
constexpr int RECORD_BYTES = 16;
// Of a tile in shared memory, on sm_90.
constexpr int TILE_ROWS_BYTES = variant::BACK_ROWS * BM * 4 + (NORM_RECORDS ? BM / NORM_ROWS * RECORD_BYTES : 0);
// Of a tile in p.rows.
constexpr int TILE_ROWS_FLOATS = ROW_VALUES * BM + (NORM_RECORDS ? BM / NORM_ROWS * (RECORD_BYTES / 4) : 0);

DEV uint4 norm_record(bool large, const float *norms)
{
    const u64 at = reinterpret_cast<u64>(norms);
    return make_uint4(large ? 1u : 0u, 0u, static_cast<u32>(at), static_cast<u32>(at >> 32));
}
DEV const float *norms_of(const uint4 &record)
{
    return reinterpret_cast<const float *>(static_cast<u64>(record.w) << 32 | record.z);
}
DEV u32 record_place(u32 rows, int row)
{
    return rows + static_cast<u32>(variant::BACK_ROWS * BM * 4 + row / NORM_ROWS * RECORD_BYTES);
}

// Has one of the tile's rows large finals, or one beside them? rows: shared address of the tile's row values. Without
// records, rows behind the last may say so for nothing.
DEV bool tile_is_large(u32 rows)
{
    if constexpr (variant::NORM) {
        u32 bits = 0;
#pragma unroll
        for (int row = 0; row < BM; row += NORM_ROWS) {
            if constexpr (NORM_RECORDS) {
                bits |= __float_as_uint(load_shared(record_place(rows, row)));
            } else {
                bits |=
                    __float_as_uint(load_shared(rows + static_cast<u32>((variant::BACK_ROWS * BM + row) * 4))) >> 31;
            }
        }
        return bits != 0;
    } else {
        return false;
    }
}

// Words of each tile, of all tiles one after the other. Where cfg::BACK_DQ_STORED, dq' is not 0 before: the first block
// that has some of a tile stores it, the others add. bwd_pre sets the words to 0: under DETERMINISTIC how many blocks
// have added, else how many have come; then whether the first has stored, unless DETERMINISTIC; behind them all, how
// many blocks of keys have been begun. Without BACK_DQ_STORED only under DETERMINISTIC, 0 at first: how many blocks
// have added, and behind them a ticket.
//
// Of sequences, whose tiles together nobody counts here, that number comes first, of the parameters as they were
// launched, and then both words of each tile; p.order of a sequence begins with those of its own tiles. All are 0
// before: lists may leave out tiles that bwd_pre would have to set. Without BACK_DQ_STORED a tile has one word there.
template <class PARAMS> DEV u32 *block_counter(const PARAMS &p)
{
    return HAS_SEQUENCES<PARAMS> ? p.order : p.order + (cfg::BACK_DQ_STORED ? 2 : 1) * tile_line(p.z, p.z.n_b, 0);
}
// before a sequence: query tiles of all heads
template <class PARAMS> DEV void enter_order(PARAMS &p, i64 tiles) { p.order += 1 + 2 * tiles; }
// The word of a tile that counts who has come.
template <class PARAMS> DEV auto ticket_word(const PARAMS &p, i64 line)
{
    return p.order + (HAS_SEQUENCES<PARAMS> ? 2 * line : line);
}
// The word of a tile that is 0 until it has been stored; where PAIRED, half of its columns: rank 1's words lie behind
// block_counter.
template <class PARAMS> DEV auto order_word(const PARAMS &p, i64 line)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return ticket_word(p, line) + 1;
    } else {
        return p.order + (cfg::DETERMINISTIC ? line : line + tile_line(p.z, p.z.n_b, 0));
    }
}
template <class PARAMS> DEV auto order_word(const PARAMS &p, i64 line, u32 rank)
{
    return PAIRED && rank == 1 ? block_counter(p) + 1 + line : order_word(p, line);
}

// ---- rows of do --------------------------------------------------------------------------------------

// From one element of a row to the next: told where rows of do need not be aligned.
template <class PARAMS> DEV i64 dout_step(const PARAMS &p)
{
    if constexpr (requires { p.dout_d; }) {
        return p.dout_d;
    } else {
        return 1;
    }
}
template <class PARAMS> DEV i64 grad_step(const PARAMS &p)
{
    if constexpr (requires { p.grad_d; }) {
        return p.grad_d;
    } else {
        return 1;
    }
}

} // namespace back
