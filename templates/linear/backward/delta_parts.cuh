// linear/backward/delta_parts.cuh: what the kernels of the delta rule's backward pass in chunks share: products of tiles by mma.sync, what they leave to each other.
//
// With X what the tokens of a chunk write (v as the rule corrects it), S the state in front of it, S' that behind it, G the sum of the decays' logarithms from
// the chunk's start on, A = (q k') Gamma and N = (k k') Gamma below the diagonal, Gamma_ij = e^(G_i - G_j), and T the inverse of linear/delta_inverse.cuh:
//     X = T (v - e^G k S),                       S' = e^(G_end) S + k' (e^(G_end - G) X)
//     dX = e^(G_end - G) k dS' + scale A' do,    dv = T' dX,    dS = e^(G_end) dS' + scale q' (e^G do) - k' (e^G dv)
// These two walk along the chunks (delta_walk.cuh), and leave S, dS', X and dv of each. What is left is of a chunk alone (delta_chunks.cuh).
#pragma once
#include "linear/backward/parts.cuh"
#include "linear/delta_inverse.cuh"

namespace linear {

static_assert(cfg::DECAY == DECAY_NONE || cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN, "a decay is one number a token");
static_assert(cfg::DELTA && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the delta rule");
static_assert(same_type<cfg::element, bf16>, "states in 16 bits have the range of f32");

constexpr int DELTA_THREADS = 256; // eight warps: a quarter of the tokens and half of the columns each
constexpr int PAD_D = CHUNK_PAD, PAD_V = round_up(cfg::D_V, 64), SLICES_V = PAD_V / 64;
static_assert(PAD_D <= 128 && PAD_V <= 128, "head dims up to 128");
constexpr int STATE_ELEMENTS = PAD_D * PAD_V; // of a state that is left for a chunk of a head
constexpr int HALF = 32;                      // columns of a warp, of 64
constexpr int MATRIX_BYTES = CHUNK_TOKENS * CHUNK_TOKENS * 2;

DEV int quarter() { return static_cast<int>(threadIdx.x) / 32 % 4; }
DEV int half_of() { return static_cast<int>(threadIdx.x) / 128; }

// ---- operands: where this lane reads in a tile of COLS columns ----------------------------------------------

template <int COLS> struct left_rows { // 16 rows from row0 on, stored as they are
    u32 at;
    DEV left_rows of(u32 tile, int row0) { return {tile + lane_offset_a<COLS>(lane_id(), row0)}; }
    __device__ __forceinline__ void load(u32 (&a)[4], int k) const { load_matrix4(a, swizzle<COLS>::along(at, 2 * k)); }
};
template <int COLS> struct left_columns { // 16 columns from column0 on are the rows
    u32 at;
    DEV left_columns of(u32 tile, int column0) { return {swizzle<COLS>::along(tile + lane_offset_b<COLS>(lane_id()), column0 / 8)}; }
    __device__ __forceinline__ void load(u32 (&a)[4], int k) const { load_matrix4_transposed(a, at + static_cast<u32>(k * 16 * swizzle<COLS>::ROW_BYTES)); }
};
template <int COLS> struct right_columns { // columns from column0 on, stored as they are
    u32 at;
    DEV right_columns of(u32 tile, int column0) { return {swizzle<COLS>::along(tile + lane_offset_b_transposed<COLS>(lane_id()), column0 / 8)}; }
    __device__ __forceinline__ void load(u32 (&b)[4], int n, int k) const
    {
        load_matrix4_transposed(b, swizzle<COLS>::along(at, 2 * n) + static_cast<u32>(k * 16 * swizzle<COLS>::ROW_BYTES));
    }
};
template <int COLS> struct right_rows { // rows from row0 on are the columns
    u32 at;
    DEV right_rows of(u32 tile, int row0) { return {tile + lane_offset_b<COLS>(lane_id()) + static_cast<u32>(row0 * swizzle<COLS>::ROW_BYTES)}; }
    __device__ __forceinline__ void load(u32 (&b)[4], int n, int k) const
    {
        load_matrix4(b, swizzle<COLS>::along(at, 2 * k) + static_cast<u32>(n * 16 * swizzle<COLS>::ROW_BYTES));
    }
};

// c += 16 rows of DEPTH times 8 NB columns.
template <int DEPTH, class LEFT, class RIGHT, int NB> DEV void add_product(float (&c)[NB][4], const LEFT &left, const RIGHT &right)
{
#pragma unroll 2 // more of them at once would take registers
    for (int k = 0; k < DEPTH / 16; k++) {
        u32 a[4];
        left.load(a, k);
#pragma unroll
        for (int n = 0; n < NB / 2; n++) {
            u32 b[4];
            right.load(b, n, k);
            mma_16x8x16<cfg::element>(c[2 * n], a, b[0], b[1]);
            mma_16x8x16<cfg::element>(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// ---- results of a warp: 16 rows from row0 on, 8 NB columns from column0 on ------------------------------------

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
template <int COLS> DEV u32 pair_at(u32 tile, int row, int column) { return tile + swizzle<COLS>::offset(row, column / 8) + static_cast<u32>(column % 8 * 2); }
template <int COLS> DEV void load_pair(u32 tile, int row, int column, float &x, float &y)
{
    unpack<cfg::element>(__float_as_uint(load_shared(pair_at<COLS>(tile, row, column))), x, y);
}
template <int COLS> DEV void store_pair(u32 tile, int row, int column, float x, float y) { store_shared(pair_at<COLS>(tile, row, column), pack<cfg::element>(x, y)); }

// ---- a chunk --------------------------------------------------------------------------------------------------

struct chunk_logs { // sums of logarithms from the chunk's start on, to the base 2, in shared memory
    u32 at;
    __device__ __forceinline__ float to(int token) const { return load_shared(at + static_cast<u32>(4 * token)); }
    __device__ __forceinline__ float end() const { return DECAYS ? to(CHUNK_TOKENS - 1) : 0.0f; }
    // What is left of the state at the chunk's start when it comes to a token; of a token at the chunk's end.
    __device__ __forceinline__ float from_start(int token) const { return DECAYS ? exp2_approx(to(token)) : 1.0f; }
    __device__ __forceinline__ float to_end(int token) const { return DECAYS ? exp2_approx(end() - to(token)) : 1.0f; }
    __device__ __forceinline__ row_pair rows_from_start(int row0, float by) const
    {
        return row_pair::of(row0, [&](int row) { return by * from_start(row); });
    }
    __device__ __forceinline__ row_pair rows_to_end(int row0) const
    {
        return row_pair::of(row0, [&](int row) { return to_end(row); });
    }
    // The sums of two tokens that follow each other.
    __device__ __forceinline__ float2 two(int token) const { return DECAYS ? load_shared8(at + static_cast<u32>(4 * token)) : float2{0.0f, 0.0f}; }
    __device__ __forceinline__ row_pair rows(int row0) const
    {
        return row_pair::of(row0, [&](int row) { return DECAYS ? to(row) : 0.0f; });
    }
    DEV float left_of(float from, float to) { return DECAYS ? exp2_approx(to - from) : 1.0f; } // the later one is `to`
};

// The number of a chunk of this head among all that are left.
DEV i64 chunk_of_head(const linear_back_params &p, const work &w, int place) { return chunk_number(p, w.s, place) * p.z.n_h + w.h; }
DEV const cfg::element *state_of(const void *base, const linear_back_params &p, const work &w, int place)
{
    return static_cast<const cfg::element *>(base) + chunk_of_head(p, w, place) * STATE_ELEMENTS;
}

// The sums of a chunk's logarithms, which bwd_inverse has left.
DEV void load_sums(u32 to, const linear_back_params &p, const work &w, int place)
{
    if (DECAYS && threadIdx.x < CHUNK_TOKENS / 4) {
        copy16_async(to + static_cast<u32>(16 * threadIdx.x), p.sums + (chunk_of_head(p, w, place) * CHUNK_TOKENS + 4 * threadIdx.x), 16);
    }
}

// 64 rows of COLS elements of a tensor [b, h, t, d] from `place` on.
template <int COLS> DEV void load_tokens(u32 tile, const work &w, int place, const void *base, i64 offset, i64 stride, int columns)
{
    constexpr i64 WAY = cfg::REVERSE ? -1 : 1;
    load_rows<COLS, DELTA_THREADS>(tile, elements(base, offset + sequence::token(w.s, place) * stride), WAY * stride, w.s.length - place, columns);
}

} // namespace linear
