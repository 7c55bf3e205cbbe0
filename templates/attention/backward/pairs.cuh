// attention/backward/pairs.cuh: the pairs of a tile, in the fragments that products of keys and queries leave: who has
// which, what the variant makes of them, and the way of dk' and dv' to memory.
#pragma once
#include "attention/backward/scheduler.cuh"
#include "attention/backward/input_gradients.cuh"
#include "common/mma_sm80.cuh"

namespace back
{

constexpr int FIRST_THREAD = cfg::BACK_WGMMA ? 128 : 0; // of those that compute
constexpr int GROUPS = WARPS / SPLIT;                   // of warps with the same keys
constexpr int MT = BN / GROUPS / 16;                    // blocks of 16 keys of a warp
constexpr int NB = BM / SPLIT / 8;                      // blocks of 8 queries of a warp
constexpr int DBK = DK / SPLIT / 8;                     // blocks of 8 columns of dk' of a warp
constexpr int DBV = DV / SPLIT / 8;                     // of dv'
constexpr int COLS = 2 * MT;                            // keys of a thread, 8 apart
constexpr bool WANT_DS = cfg::WANT_DQ || cfg::WANT_DK;  // ds is an operand of a product
constexpr bool WANT_DW = WANT_DS || variant::SITES > 0;
constexpr bool SHARE_W = SPLIT > 1 && cfg::WANT_DV;

// Where a thread that computes works. Read anew at each construction, so that nothing of it stays in registers
// meanwhile.
struct place {
    int lane, warp;
    __device__ __forceinline__ place()
    {
        const u32 thread = fresh_thread() - FIRST_THREAD;
        lane = static_cast<int>(thread % 32);
        warp = static_cast<int>(thread / 32);
    }
    // Of wgmma, a warpgroup has one part.
    __device__ __forceinline__ int part() const { return cfg::BACK_WGMMA ? warp / GROUPS : warp % SPLIT; }
    __device__ __forceinline__ int key0() const // of the warp, in the tile
    {
        return (cfg::BACK_WGMMA ? warp % GROUPS : warp / SPLIT) * 16 * MT;
    }
    __device__ __forceinline__ int query0() const { return part() * 8 * NB; }
    __device__ __forceinline__ int key() const { return key0() + lane / 4; } // of the thread: the first
    __device__ __forceinline__ int query() const { return query0() + 2 * (lane % 4); }
};

template <int M, int N> DEV void clear(float (&x)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[m][n][i] = 0.0f;
            }
        }
    }
}

// ---- values along diagonals --------------------------------------------------------------------------

// make_back_diag of every at.q - at.kv of a tile: query i and key j read entry i - j + KEYS - 1. By COUNT
// threads, each with its number.
template <int KEYS, int COUNT>
DEV void fill_table(u32 table, const back_params &p, const variant::head &head, int row0, int kv0, int thread)
{
    for (int i = thread; i < BM + KEYS - 1; i += COUNT) {
        store_shared(table + static_cast<u32>(i * 4),
                     variant::make_back_diag(p.x, p.z, head, row0 + p.z.q_start - kv0 - (KEYS - 1) + i));
    }
}

// ---- one tile ----------------------------------------------------------------------------------------

// From s^T and dw^T to w^T and ds^T, in place. `table`: of the diagonals of the thread's first query and key. LARGE:
// weights are multiplied by the rows' norms.
template <bool WHOLE, bool LARGE = false>
DEV void pairs(float (&s)[MT][NB][4], float (&dw)[MT][NB][4], const back_params &p, const variant::head &head,
               const variant::col (&col)[COLS], const site_context<NB, COLS> &sites, int row0, int kv0, u32 rows,
               u32 table)
{
    float diag[COLS][2];
#pragma unroll
    for (int b = 0; b < NB; b++) {
        float back[2][max_of(ROW_VALUES, 1)];
#pragma unroll
        for (int k = 0; k < variant::BACK_ROWS; k++) {
            const float2 two = load_shared8(rows + static_cast<u32>((k * BM + 8 * b) * 4));
            back[0][k] = two.x;
            back[1][k] = two.y;
        }
        if constexpr (LARGE) {
            const float2 two = load_shared8(rows + static_cast<u32>((variant::BACK_ROWS * BM + 8 * b) * 4));
            back[0][ROW_VALUES - 1] = fabsf(two.x);
            back[1][ROW_VALUES - 1] = fabsf(two.y);
        } else if constexpr (variant::NORM) {
            back[0][ROW_VALUES - 1] = 1.0f;
            back[1][ROW_VALUES - 1] = 1.0f;
        }
        if constexpr (variant::BACK_DIAG) { // queries 8 on and keys 8 on lie on one diagonal
#pragma unroll
            for (int c = COLS - 1; c >= 0; c--) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (b > 0 && c > 0) {
                        diag[c][j] = diag[c - 1][j];
                    } else {
                        diag[c][j] = load_shared(table + static_cast<u32>((8 * (b - c) + j) * 4));
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int number = row0 + 8 * b + j;
            const variant::row row = variant::make_row(p.x, p.z, head, number);
            int first_key = 0; // live pairs lie from here to there
            int last_key = -1;
            if constexpr (!WHOLE) {
                if (number < p.z.len_q) {
                    first_key = variant::first_key(p.x, p.z, head, row);
                    last_key = min(variant::last_key(p.x, p.z, head, row), p.z.len_kv - 1);
                }
            }
            float row_sum[SLOTS] = {};
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                float &e = s[c / 2][b][2 * (c % 2) + j];
                float &d = dw[c / 2][b][2 * (c % 2) + j];
                bool live = true;
                if constexpr (!WHOLE) {
                    live = kv0 + 8 * c >= first_key && kv0 + 8 * c <= last_key;
                    if constexpr (variant::SCATTERED && !variant::MAP_BLOCKS) {
                        live = live & variant::among(p.x, p.z, head, row, col[c]);
                    }
                }
                float w = 0.0f;
                float ds = 0.0f;
                float site[SLOTS] = {};
                variant::pair(e, d, p.x, p.z, head, row, col[c], variant::BACK_DIAG ? diag[c][j] : 0.0f, back[j], w, ds,
                              site);
                e = live ? w : 0.0f;
                d = live ? ds : 0.0f;
                const int delta = number + p.z.q_start - (kv0 + 8 * c);
                sites.pair(site, live, b, c, j, delta, row, col[c], row_sum);
            }
            sites.end_row(row_sum, row, number < p.z.len_q);
        }
    }
}

// ---- positions ---------------------------------------------------------------------------------------

// What is not needed among the pairs waits in shared memory meanwhile: registers are scarce there. Two slots of 16
// bytes: positions of two tiles, and behind them whose keys the block has.
DEV void keep_position(u32 slot, const position &at)
{
    store_shared(slot, static_cast<u32>(at.head));
    store_shared(slot + 4, static_cast<u32>(2 * at.tile + (at.whole ? 1 : 0)));
}
DEV int kept(u32 place) { return __float_as_int(load_shared(place)); }
DEV int kept_head(u32 slot) { return kept(slot); }
DEV int kept_tile(u32 slot) { return kept(slot + 4) >> 1; }
DEV bool kept_whole(u32 slot) { return (kept(slot + 4) & 1) != 0; }

DEV void keep_block(u32 slots, const key_block &at)
{
    store_shared(slots + 8, static_cast<u32>(at.b));
    store_shared(slots + 12, static_cast<u32>(at.h_kv));
    store_shared(slots + 24, static_cast<u32>(at.tile));
}
DEV key_block kept_block(const sizes &z, u32 slots)
{
    const int tile = kept(slots + 24);
    return {kept(slots + 8), kept(slots + 12), tile, tile * BN, z.group()};
}

// ---- the end -----------------------------------------------------------------------------------------

// ANYWHERE: in a tensor of the caller's, whose rows may start at any float.
template <bool ANYWHERE> DEV void store_two(float *to, float x, float y)
{
    if (!ANYWHERE || (reinterpret_cast<u64>(to) & 7) == 0) {
        *reinterpret_cast<float2 *>(to) = make_float2(x, y);
    } else {
        to[0] = x;
        to[1] = y;
    }
}

// dk' or dv' of the block, times `factor`, as OUT. `staging`: BN rows of COLUMNS elements that no one reads any more;
// sync(): a barrier of the threads that compute.
template <class OUT, int DIM, int COLUMNS, int DB, class SYNC>
DEV void store_keys(const float (&x)[MT][DB][4], float factor, u32 staging, void *out, i64 row_stride, int left,
                    const SYNC &sync)
{
    const place at;
    if constexpr (same_type<OUT, float>) {
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            const int row = at.key() + 8 * c;
            float *to = static_cast<float *>(out) + row * row_stride;
#pragma unroll
            for (int d = 0; d < DB; d++) {
                const int column = at.part() * 8 * DB + 8 * d + 2 * (at.lane % 4);
                if (row < left && column < DIM) {
                    store_two<same_type<cfg::operand, float>>(to + column, x[c / 2][d][2 * (c % 2)] * factor,
                                                              x[c / 2][d][2 * (c % 2) + 1] * factor);
                }
            }
        }
    } else {
        using shape = swizzle<COLUMNS>;
        using half = typename pick<same_type<OUT, float>, bf16, OUT>::type; // OUT, where this is compiled
#pragma unroll
        for (int c = 0; c < COLS; c++) {
#pragma unroll
            for (int d = 0; d < DB; d++) {
                store_shared(staging + shape::offset(at.key() + 8 * c, at.part() * DB + d) +
                                 static_cast<u32>(4 * (at.lane % 4)),
                             pack<half>(x[c / 2][d][2 * (c % 2)] * factor, x[c / 2][d][2 * (c % 2) + 1] * factor));
            }
        }
        sync();
        constexpr int PIECES = DIM / 8;
        half *to = static_cast<half *>(out);
        const bool aligned = ((reinterpret_cast<u64>(to) | static_cast<u64>(row_stride) * 2) & 15) == 0;
        for (int i = static_cast<int>(fresh_thread()) - FIRST_THREAD; i < min(BN, left) * PIECES; i += THREADS) {
            const int row = i / PIECES;
            const uint4 piece = load_shared16(staging + shape::offset(row, i % PIECES));
            half *place = to + row * row_stride + i % PIECES * 8;
            if (aligned) {
                *reinterpret_cast<uint4 *>(place) = piece;
            } else {
                const u32 two[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    place[k].bits = static_cast<u16>(two[k / 2] >> (16 * (k % 2)));
                }
            }
        }
    }
}

} // namespace back
