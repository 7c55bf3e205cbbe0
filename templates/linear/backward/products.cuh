// linear/backward/products.cuh: what backward kernels share that take chunks of 64 tokens by mma.sync: products of
// tiles in shared memory, and a state in registers.
#pragma once
#include "linear/backward/parts.cuh"
#include "linear/chunk.cuh"

namespace linear
{

// of a block that walks, eight warps: a quarter of the tokens and half of the columns each
constexpr int WALK_THREADS = 256;
constexpr int KEY_PARTS = cfg::KEY_PARTS; // blocks that share the key channels
constexpr int PAD_D = round_up(CHUNK_PAD / KEY_PARTS, 64),
              PAD_V = cfg::D_V > 256   ? 128
                      : cfg::D_V > 128 ? 256
                                       : round_up(cfg::D_V, 64),
              SLICES_V = PAD_V / 64;
// Value channels are independent of each other in the state, and what comes to keys and gates is a sum over them.
// Beyond 256 of them each PAD_V are a band, which is a head of its own in what kernels of chunks hand to each other;
// bands.cuh adds up what is of all.
constexpr int BANDS = (cfg::D_V + PAD_V - 1) / PAD_V;
static_assert(cfg::D <= 256 && BANDS <= 4 && PAD_D <= 128,
              "key channels up to 256 and of a part up to 128, value channels up to 512");
static_assert(BANDS == 1 || (!cfg::NORMALISE && !cfg::GIVES_DECAY),
              "what flows to divisors and inputs is of all value channels");
constexpr int STATE_ELEMENTS = PAD_D * PAD_V; // of a state that is left for a chunk of a head, or of its part
// Behind them, where they are scaled: what undoes it, an f32 in 16 bytes for each 64 rows of 64 columns.
constexpr int STATE_PITCH = STATE_ELEMENTS + (STATE_SCALED ? 8 * PAD_D / 64 * SLICES_V : 0);
constexpr int HALF = 32; // columns of a warp, of 64
constexpr int MATRIX_BYTES = CHUNK_TOKENS * CHUNK_TOKENS * OPERAND;

DEV int quarter() { return static_cast<int>(threadIdx.x) / 32 % 4; }
DEV int half_of() { return static_cast<int>(threadIdx.x) / 128; }

// ---- operands: where this lane reads in a tile of COLS columns ---------------------------------------

template <int COLS> struct left_rows { // 16 rows from row0 on, stored as they are
    u32 at;
    DEV left_rows of(u32 tile, int row0) { return {tile + lane_offset_a<COLS>(lane_id(), row0)}; }
    __device__ __forceinline__ void load(u32 (&a)[4], int k) const { load_matrix4(a, swizzle<COLS>::along(at, 2 * k)); }
};
template <int COLS> struct left_columns { // 16 columns from column0 on are the rows
    u32 at;
    DEV left_columns of(u32 tile, int column0)
    {
        return {swizzle<COLS>::along(tile + lane_offset_b<COLS>(lane_id()), column0 / 8)};
    }
    __device__ __forceinline__ void load(u32 (&a)[4], int k) const
    {
        load_matrix4_transposed(a, at + static_cast<u32>(k * 16 * swizzle<COLS>::ROW_BYTES));
    }
};
template <int COLS> struct right_columns { // columns from column0 on, stored as they are
    u32 at;
    DEV right_columns of(u32 tile, int column0)
    {
        return {swizzle<COLS>::along(tile + lane_offset_b_transposed<COLS>(lane_id()), column0 / 8)};
    }
    __device__ __forceinline__ void load(u32 (&b)[4], int n, int k) const
    {
        load_matrix4_transposed(b,
                                swizzle<COLS>::along(at, 2 * n) + static_cast<u32>(k * 16 * swizzle<COLS>::ROW_BYTES));
    }
};
template <int COLS> struct right_rows { // rows from row0 on are the columns
    u32 at;
    DEV right_rows of(u32 tile, int row0)
    {
        return {tile + lane_offset_b<COLS>(lane_id()) + static_cast<u32>(row0 * swizzle<COLS>::ROW_BYTES)};
    }
    __device__ __forceinline__ void load(u32 (&b)[4], int n, int k) const
    {
        load_matrix4(b, swizzle<COLS>::along(at, 2 * k) + static_cast<u32>(n * 16 * swizzle<COLS>::ROW_BYTES));
    }
};

// c += 16 rows of DEPTH times 8 NB columns.
template <int DEPTH, class LEFT, class RIGHT, int NB>
DEV void add_product(float (&c)[NB][4], const LEFT &left, const RIGHT &right)
{
#pragma unroll 2 // more of them at once would take registers
    for (int k = 0; k < DEPTH / 16; k++) {
        u32 a[4];
        left.load(a, k);
#pragma unroll
        for (int n = 0; n < NB / 2; n++) {
            u32 b[4];
            right.load(b, n, k);
            mma_16x8x16<cfg::operand>(c[2 * n], a, b[0], b[1]);
            mma_16x8x16<cfg::operand>(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// ---- results of a warp: 16 rows from row0 on, 8 NB columns from column0 on ---------------------------

// The two rows of this lane; numbers of them.
DEV int row_of(int row0, int r) { return row0 + lane_id() / 4 + 8 * r; }
struct row_pair {
    float x[2];
    // by(row)
    template <class F> DEV row_pair of(int row0, const F &by) { return {{by(row_of(row0, 0)), by(row_of(row0, 1))}}; }
};
// f(which of the two rows, row, column, two adjacent elements).
template <int NB, class F> DEV void each_pair(float (&c)[NB][4], int row0, int column0, const F &f)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int n = 0; n < NB; n++) {
            f(r, row_of(row0, r), column0 + 8 * n + lane_id() % 4 * 2, c[n][2 * r], c[n][2 * r + 1]);
        }
    }
}
template <int NB> DEV void scale_rows(float (&c)[NB][4], const row_pair &by)
{
#pragma unroll
    for (int n = 0; n < NB; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            c[n][i] *= by.x[i / 2];
        }
    }
}
template <int COLS> DEV u32 pair_at(u32 tile, int row, int column)
{
    return tile + swizzle<COLS>::offset(row, column / 8) + static_cast<u32>(column % 8 * 2);
}
template <int COLS> DEV void load_pair(u32 tile, int row, int column, float &x, float &y)
{
    unpack<cfg::operand>(__float_as_uint(load_shared(pair_at<COLS>(tile, row, column))), x, y);
}
template <int COLS> DEV void store_pair(u32 tile, int row, int column, float x, float y)
{
    store_shared(pair_at<COLS>(tile, row, column), pack<cfg::operand>(x, y));
}

// ---- chunks ------------------------------------------------------------------------------------------

// The number of a chunk of this head among all that are left.
DEV i64 chunk_of_head(const linear_back_params &p, const work &w, int place)
{
    const i64 head = chunk_number(p, w.s, place) * p.z.n_h + w.h;
    return BANDS > 1 ? head * BANDS + w.first / PAD_V : head;
}
// A block's first column, in its band; the band's first one, and how many columns it has.
DEV int column_of_band(const work &w) { return BANDS > 1 ? w.first % PAD_V : w.first; }
DEV int first_of_band(const work &w) { return BANDS > 1 ? w.first - w.first % PAD_V : 0; }
DEV int columns_of_band(const work &w) { return BANDS > 1 ? min(PAD_V, cfg::D_V - first_of_band(w)) : cfg::D_V; }
// Where what a band leaves begins, of EACH floats a token.
template <int EACH> DEV float *of_band(const linear_back_params &p, const work &w, float *base)
{
    const i64 lines = static_cast<i64>(p.z.n_b) * p.z.n_h * p.z.len_q;
    return BANDS > 1 ? base + w.first / PAD_V * lines * EACH : base;
}
DEV i64 state_place(const linear_back_params &p, const work &w, int place, int part = 0)
{
    return (chunk_of_head(p, w, place) * KEY_PARTS + part) * STATE_PITCH;
}
DEV const cfg::operand *state_of(const void *base, const linear_back_params &p, const work &w, int place, int part = 0)
{
    return static_cast<const cfg::operand *>(base) + state_place(p, w, place, part);
}

// Where a state of 16 bits has the scale of the 64 rows and columns from these on.
DEV int scale_place(int row, int column) { return STATE_ELEMENTS + (row / 64 * SLICES_V + column / 64) * 8; }

// 64 rows of COLS elements of a tensor [b, h, t, d] from `place` on.
template <int COLS, class T, int OF_BLOCK = WALK_THREADS>
DEV void load_tokens(u32 tile, const work &w, int place, const void *base, i64 offset, i64 stride, int columns)
{
    constexpr i64 WAY = cfg::REVERSE ? -1 : 1;
    load_rows<COLS, OF_BLOCK>(tile, elements<T>(base, offset + sequence::token(w.s, place) * stride), WAY * stride,
                              w.s.length - place, columns);
}

template <int ROWS> struct walked_rows { // of 64 columns, in the registers of a block
    static constexpr int MT = ROWS / 64; // 16 rows each, of a warp
    float x[MT][HALF / 8][4];

    DEV int row0(int m) { return (quarter() * MT + m) * 16; }
    // f(row, column of the block, two adjacent elements).
    template <class F> __device__ __forceinline__ void each(const F &f)
    {
#pragma unroll
        for (int m = 0; m < MT; m++) {
            each_pair(x[m], row0(m), half_of() * HALF, f);
        }
    }
    __device__ __forceinline__ void decay(float by)
    {
        each([&](int, int, int, float &a, float &b) {
            a *= by;
            b *= by;
        });
    }
    // += left' right, of 64 tokens: a tile of keys or queries, a tile of 64 columns.
    __device__ __forceinline__ void add(u32 keys, u32 values)
    {
#pragma unroll
        for (int m = 0; m < MT; m++) {
            add_product<CHUNK_TOKENS>(x[m], left_columns<ROWS>::of(keys, row0(m)),
                                      right_columns<CHUNK_COLUMNS>::of(values, half_of() * HALF));
        }
    }
    // Of a tensor's rows from `first_row` on.
    __device__ __forceinline__ void load(const work &w, const cfg::element_state *from, i64 s_i, i64 s_j,
                                         int first_row = 0)
    {
        each([&](int, int row, int column, float &a, float &b) {
            const int i = first_row + row;
            const bool some = from != nullptr && i < cfg::D;
            a = some && column < w.left ? to_float(from[i * s_i + (w.first + column) * s_j]) : 0.0f;
            b = some && column + 1 < w.left ? to_float(from[i * s_i + (w.first + column + 1) * s_j]) : 0.0f;
        });
    }
    __device__ __forceinline__ void store(const work &w, cfg::element_state *to, i64 s_i, i64 s_j, int first_row = 0)
    {
        each([&](int, int row, int column, float &a, float &b) {
            const int i = first_row + row;
            if (i < cfg::D && column < w.left) {
                to[i * s_i + (w.first + column) * s_j] = from_float<cfg::element_state>(a);
            }
            if (i < cfg::D && column + 1 < w.left) {
                to[i * s_i + (w.first + column + 1) * s_j] = from_float<cfg::element_state>(b);
            }
        });
    }
    // The largest element that this warp has.
    __device__ __forceinline__ float largest()
    {
        float most = 0.0f;
        each([&](int, int, int, float &a, float &b) { most = fmaxf(most, fmaxf(fabsf(a), fabsf(b))); });
        return __int_as_float(warp_max(__float_as_int(most)));
    }
};
using walked_state = walked_rows<PAD_D>;

} // namespace linear
