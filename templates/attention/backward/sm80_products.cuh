// attention/backward/sm80_products.cuh: the products of attention/backward/sm80.cuh: s^T and dw^T of a tile, what w^T
// and ds^T add to dk' and dv', and ds^T to dq'. What warps with the same keys hand to each other.
//
// Of f32, every operand is hi and lo (common/mma_f32.cuh): tiles of Q, dO, K and V are split where they lie, once, by
// the threads that have loaded them; w^T and ds^T as they leave a warp's registers. From there on a product of f32 is
// three of bf16 with the addresses of one.
#pragma once
#include "attention/backward/pairs.cuh"
#include "common/mma_f32.cuh"

namespace back
{

constexpr bool IN_F32 = same_type<cfg::operand, float>;
constexpr int PARTS = IN_F32 ? 2 : 1; // of a value, of 16 bits each
constexpr int ELEMENT = 2 * PARTS;    // bytes

// Tiles of f32 lie as common/mma_f32.cuh splits them: twice as many chunks a row, of which the lo of 8 columns is
// beside the hi.
template <int COLUMNS> using tile_shape = swizzle<PARTS * COLUMNS>;
constexpr u32 LO = 16; // what its address differs by

// As lane_offset_a and its siblings of common/mma_sm80.cuh.
template <int COLUMNS> DEV u32 offset_a(int lane, int row0)
{
    return IN_F32 ? split_offset_a<COLUMNS>(lane, row0) : lane_offset_a<COLUMNS>(lane, row0);
}
template <int COLUMNS> DEV u32 offset_b(int lane)
{
    return IN_F32 ? split_offset_b<COLUMNS>(lane) : lane_offset_b<COLUMNS>(lane);
}
template <int COLUMNS> DEV u32 offset_b_transposed(int lane) { return offset_a<COLUMNS>(lane, 0); }

// ---- products through shared memory ------------------------------------------------------------------

// Columns of a tile in pieces of BLOCKS blocks of 8, a warp having one of them.
template <int COLUMNS, int BLOCKS> struct piece_of_columns {
    using shape = tile_shape<COLUMNS>;
    static constexpr int CHUNKS = PARTS * BLOCKS;
    // The start of the piece may be worked into the lane's address ahead: further steps touch other bits of it.
    static constexpr bool AHEAD = CHUNKS % shape::W == 0 || (CHUNKS < shape::W && (CHUNKS & (CHUNKS - 1)) == 0);
    u32 address;
    int chunk0;
    __device__ __forceinline__ piece_of_columns(u32 lane_address, int piece)
        : address(AHEAD ? shape::along(lane_address, piece * CHUNKS) : lane_address), chunk0(AHEAD ? 0 : piece * CHUNKS)
    {
    }
    __device__ __forceinline__ u32 at(int blocks) const { return shape::along(address, chunk0 + PARTS * blocks); }
};

// Four registers of operands of 16 bits; of f32, hi and lo of them.
using four = pick<IN_F32, u32[2][4], u32[4]>::type;

DEV void load_four(u32 (&x)[4], u32 address) { load_matrix4(x, address); }
DEV void load_four(u32 (&x)[2][4], u32 address)
{
    load_matrix4(x[0], address);
    load_matrix4(x[1], address ^ LO);
}
DEV void load_four_transposed(u32 (&x)[4], u32 address) { load_matrix4_transposed(x, address); }
DEV void load_four_transposed(u32 (&x)[2][4], u32 address)
{
    load_matrix4_transposed(x[0], address);
    load_matrix4_transposed(x[1], address ^ LO);
}
DEV void store_one(u32 address, const u32 (&x)[4], int i) { store_shared(address, x[i]); }
DEV void store_one(u32 address, const u32 (&x)[2][4], int i)
{
    store_shared(address, x[0][i]);
    store_shared(address ^ LO, x[1][i]);
}
// Two values as register i: rounded to 16 bits; of f32, split.
template <class T> DEV void pack_two(u32 (&to)[4], int i, float x, float y) { to[i] = pack<T>(x, y); }
template <class T> DEV void pack_two(u32 (&to)[2][4], int i, float x, float y) { split_f32(x, y, to[0][i], to[1][i]); }
DEV void copy_four(u32 (&to)[4], const u32 (&from)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = from[i];
    }
}
DEV void copy_four(u32 (&to)[2][4], const u32 (&from)[2][4])
{
    copy_four(to[0], from[0]);
    copy_four(to[1], from[1]);
}
// c += a b, for block n of the two blocks of 8 columns of b.
template <class T> DEV void multiply_add(float (&c)[4], const u32 (&a)[4], const u32 (&b)[4], int n)
{
    mma_16x8x16<T>(c, a, b[2 * n], b[2 * n + 1]);
}
template <class T> DEV void multiply_add(float (&c)[4], const u32 (&a)[2][4], const u32 (&b)[2][4], int n)
{
    mma_bf16(c, a[1], b[0][2 * n], b[0][2 * n + 1]);
    mma_bf16(c, a[0], b[1][2 * n], b[1][2 * n + 1]);
    mma_bf16(c, a[0], b[0][2 * n], b[0][2 * n + 1]);
}

// o += A B, 16 KSTEPS deep. load_a(k, a) gives the operands of a step; `b_piece`: 16 KSTEPS rows of B, stored [k][n],
// and the warp's columns of it.
template <int KSTEPS, int B_COLS, int M, int N, class LOAD>
DEV void multiply(float (&o)[M][N][4], const LOAD &load_a, const piece_of_columns<B_COLS, N> &b_piece)
{
    constexpr int B_ROW = tile_shape<B_COLS>::ROW_BYTES;
    constexpr int PAIRS = N / 2; // ldmatrix gives 16 columns of B
    constexpr int LOADS = KSTEPS * PAIRS;
    four a[2][M];
    four b[2];
    load_a(0, a[0]);
    load_four_transposed(b[0], b_piece.at(0));
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int k = i / PAIRS;
        const int d = i % PAIRS;
        if (i + 1 < LOADS) {
            load_four_transposed(b[(i + 1) & 1],
                                 b_piece.at(2 * ((i + 1) % PAIRS)) + static_cast<u32>((i + 1) / PAIRS * 16 * B_ROW));
        }
        if (d == 0 && k + 1 < KSTEPS) {
            load_a(k + 1, a[(k + 1) & 1]);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<cfg::operand>(o[m][2 * d + n], a[k & 1][m], b[i & 1], n);
            }
        }
    }
}

// ---- one tile ----------------------------------------------------------------------------------------

struct warp_sums {
    float dk[MT][DBK][4];
    float dv[MT][DBV][4];
};

// A warp's part of w^T or ds^T, as the A operand: 16 queries a step.
struct turned {
    static constexpr int STEPS = NB / 2;
    four step[STEPS][MT];

    __device__ __forceinline__ explicit turned(const float (&x)[MT][NB][4])
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float(&two)[4] = x[m][2 * k + i / 2];
                    pack_two<cfg::operand>(step[k][m], i, two[2 * (i % 2)], two[2 * (i % 2) + 1]);
                }
            }
        }
    }
    // To the tile [key][query] at `tile`.
    __device__ __forceinline__ void store(u32 tile) const
    {
        using shape = tile_shape<BM>;
        const place at;
        const u32 to = tile + static_cast<u32>(4 * (at.lane % 4));
#pragma unroll
        for (int c = 0; c < COLS; c++) {
#pragma unroll
            for (int b = 0; b < NB; b++) {
                store_one(to + shape::offset(at.key() + 8 * c, PARTS * (at.part() * NB + b)), step[b / 2][c / 2],
                          c % 2 + b % 2 * 2);
            }
        }
    }
};

// out += X^T Y for this warp's keys and columns. Y: the BM rows at `tile`. First with the warp's own queries, then,
// after a barrier, with those whose X^T other warps have brought to the tile at `x`.
template <int COLUMNS, int DB> DEV void add_own(float (&out)[MT][DB][4], const turned &x, u32 tile)
{
    const place at;
    const u32 rows = tile + static_cast<u32>(at.query0() * tile_shape<COLUMNS>::ROW_BYTES);
    const piece_of_columns<COLUMNS, DB> b(rows + offset_b_transposed<COLUMNS>(at.lane), at.part());
    multiply<turned::STEPS>(
        out,
        [&](int k, four(&a)[MT]) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
                copy_four(a[m], x.step[k][m]);
            }
        },
        b);
}
template <int COLUMNS, int DB> DEV void add_others(float (&out)[MT][DB][4], u32 x, u32 tile)
{
    const place at;
#pragma unroll
    for (int other = 1; other < SPLIT; other++) {
        const int part = at.part() ^ other;
        const u32 rows = tile + static_cast<u32>(part * 8 * NB * tile_shape<COLUMNS>::ROW_BYTES);
        const piece_of_columns<COLUMNS, DB> b(rows + offset_b_transposed<COLUMNS>(at.lane), at.part());
        const piece_of_columns<BM, NB> keys(x + offset_a<BM>(at.lane, at.key0()), part);
        multiply<turned::STEPS>(
            out,
            [&](int k, four(&a)[MT]) {
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    load_four(a[m], keys.at(2 * k) + static_cast<u32>(m * 16 * tile_shape<BM>::ROW_BYTES));
                }
            },
            b);
    }
}

// s = X Y^T of tiles of COLUMNS columns, for the warp's keys and queries: their rows at those addresses, of lanes.
template <class T, int COLUMNS> DEV void multiply_rows(float (&s)[MT][NB][4], u32 x, u32 y)
{
    if constexpr (same_type<T, float>) {
        product_qk_split<MT, NB, COLUMNS>(s, x, y);
    } else {
        const a_fragments<MT, 1> none{};
        product_qk<T, MT, NB, COLUMNS, false>(s, x, none, y);
    }
}

// Row values of a query tile, which lie padded to whole tiles.
DEV void load_rows(u32 to, const back_params &p, int b, int h, int tile)
{
    constexpr int PIECES = BM / 4; // of 16 bytes
    const i64 rows = static_cast<i64>(query_tiles(p.z)) * BM;
    const i64 stride = rows * own_batches(p) * p.z.n_h;
    const float *from = p.rows + tile_line(p.z, own_batch(p, b), h) * BM + tile * BM;
#pragma unroll
    for (int first = 0; first < ROW_VALUES * PIECES; first += THREADS) {
        const int i = first + static_cast<int>(fresh_thread());
        if (i < ROW_VALUES * PIECES) {
            copy16_async(to + static_cast<u32>(i * 16), from + i / PIECES * stride + i % PIECES * 4, 16);
        }
    }
}

// Of a lane, to where dq_shape::offset has the first one.
DEV void add_fragment(float *place, const float (&x)[4])
{
    if constexpr (ADD_WIDTH == 4) {
        add_global4(place, x);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            add_global(place + 32 * i, x[i]);
        }
    }
}

// dq' of the tile: this warp's piece of ds K.
DEV void multiply_dq(float (&dq)[dq_shape::MT][dq_shape::DB][4], u32 turned, u32 keys)
{
    using shape = dq_shape;
    const place at;
    clear(dq);
    const piece_of_columns<BM, 2 * shape::MT> a(turned + offset_b<BM>(at.lane), at.warp / shape::ACROSS);
    const piece_of_columns<DK, shape::DB> b(keys + offset_b_transposed<DK>(at.lane), at.warp % shape::ACROSS);
    multiply<BN / 16>(
        dq,
        [&](int k, four(&to)[shape::MT]) {
#pragma unroll
            for (int m = 0; m < shape::MT; m++) {
                load_four_transposed(to[m], a.at(2 * m) + static_cast<u32>(k * 16 * tile_shape<BM>::ROW_BYTES));
            }
        },
        b);
}

// The same, added to global memory.
DEV void add_dq(u32 turned, u32 keys, float *tile)
{
    using shape = dq_shape;
    const place at;
    float dq[shape::MT][shape::DB][4];
    multiply_dq(dq, turned, keys);
    float *to = tile + at.warp * 32 * shape::REGISTERS;
#pragma unroll
    for (int m = 0; m < shape::MT; m++) {
#pragma unroll
        for (int d = 0; d < shape::DB; d++) {
            add_fragment(to + shape::offset((m * shape::DB + d) * 4, at.lane), dq[m][d]);
        }
    }
}

} // namespace back
