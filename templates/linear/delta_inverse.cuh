// linear/delta_inverse.cuh: kernel: what the delta rule's tokens of a chunk take from each other: T = (1 + diag(beta) N)^-1 diag(beta), N the products of
// keys below the diagonal, and T times e^(G_i - G_j) where there is a decay: with one number a token the decay commutes with the inverse.
//
// Launch: a block of 128 threads for each chunk of each head, inverse_smem_bytes() of shared memory. Diagonal blocks of 16 by forward substitution in f32,
// which holds for keys that resemble each other, where powers of the matrix would cancel; blocks of 32 and 64 by T21 = -T22 M21 T11, of three products in
// bf16 each.
#pragma once
#include "common/mma_f32.cuh"
#include "linear/chunk.cuh"

namespace linear {

constexpr int MATRIX_PAD = CHUNK_TOKENS + 8; // four rows side by side are in different banks
using matrix = float[CHUNK_TOKENS][MATRIX_PAD];

struct inverse_layout { // in shared memory; keys lie where their products will
    matrix products, inverse;
    float beta[CHUNK_TOKENS], sums[CHUNK_TOKENS];
};
// As C, for the planner: 2 * 64 * 72 * 4 + 512
constexpr int inverse_smem_bytes() { return static_cast<int>(sizeof(inverse_layout)); }
static_assert(sizeof(matrix) >= static_cast<u64>(CHUNK_TOKENS * CHUNK_PAD * 2), "there is room for the keys");

struct inverse_work {
    work w;
    int place; // the chunk's first token in its sequence; beyond the end: there is no such chunk
};

// The last sequence whose chunks begin at `number` or before.
template <class P> DEV int sequence_of_chunk(const P &p, int number)
{
    int low = 0;
    int high = p.x.seqs - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        const int begins = max(0, min(p.cu[middle * p.cu_step], p.z.len_q)) / CHUNK_TOKENS + middle;
        low = begins <= number ? middle : low;
        high = begins <= number ? high : middle - 1;
    }
    return low;
}

template <class P> DEV inverse_work find_chunk(const P &p)
{
    inverse_work at;
    const int number = static_cast<int>(blockIdx.x) / p.z.n_h;
    at.w.h = static_cast<int>(blockIdx.x) % p.z.n_h;
    at.w.h_kv = p.z.key_head(at.w.h);
    at.w.s = sequence_of(p.cu, p.cu_step, p.z, cfg::PACKED ? sequence_of_chunk(p, number) : number / chunks_of(p.z.len_q));
    at.w.head = variant::make_head(p.x, p.z, at.w.s.batch, at.w.h);
    at.place = (number - static_cast<int>(chunk_number(p, at.w.s, 0))) * CHUNK_TOKENS;
    return at;
}

// m = diag(beta) N, in the place of the keys.
DEV void multiply_keys(u32 keys, const float *beta, matrix &m)
{
    const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
    float s[1][CHUNK_TOKENS / 8][4];
    const a_fragments<1, 1> none = {};
    product_qk<cfg::element, 1, CHUNK_TOKENS / 8, CHUNK_PAD, false>(s, keys + lane_offset_a<CHUNK_PAD>(lane_id(), row0), none, keys + lane_offset_b<CHUNK_PAD>(lane_id()));
    __syncthreads();
#pragma unroll
    for (int n = 0; n < CHUNK_TOKENS / 8; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = row0 + lane_id() / 4 + r * 8;
            const int column = n * 8 + lane_id() % 4 * 2;
            const float two[2] = {column < row ? beta[row] * s[0][n][2 * r] : 0.0f, column + 1 < row ? beta[row] * s[0][n][2 * r + 1] : 0.0f};
            store_vec<2, float>(&m[row][column], two);
        }
    }
}

// A diagonal block of 16 of each warp, a column of each of its first lanes: row by row, t_i = 1_i - sum over l < i of m_il t_l.
DEV void substitute(const matrix &m, matrix &t)
{
    constexpr int SIZE = 16;
    const int first = static_cast<int>(threadIdx.x) / 32 * SIZE;
    const int column = lane_id() % SIZE;
    float x[SIZE] = {};
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
        for (int l = 0; l < i; l += 4) {
            float by[4]; // zeros from the diagonal on
            load_vec<4, float>(&m[first + i][first + l], by);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                sum -= by[k] * x[l + k];
            }
        }
        x[i] = sum;
    }
    if (lane_id() < SIZE) {
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            t[first + i][first + column] = x[i];
        }
    }
}

// c += a times b: 16 rows of 16 from a[row][k] on, 16 rows of 8 NB from b[k_b][column] on.
template <int NB> DEV void multiply_split(float (&c)[NB][4], const matrix &a, int row, int k, const matrix &b, int k_b, int column)
{
    u32 high[4];
    u32 low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float two[2];
        load_vec<2, float>(&a[row + lane_id() / 4 + i % 2 * 8][k + lane_id() % 4 * 2 + i / 2 * 8], two);
        const split_two s = split_two::of(two[0], two[1]);
        high[i] = s.hi;
        low[i] = s.lo;
    }
#pragma unroll
    for (int n = 0; n < NB; n++) {
        const int at = column + 8 * n + lane_id() / 4;
        const int from = k_b + lane_id() % 4 * 2;
        const split_two b0 = split_two::of(b[from][at], b[from + 1][at]);
        const split_two b1 = split_two::of(b[from + 8][at], b[from + 9][at]);
        mma_bf16(c[n], low, b0.hi, b1.hi);
        mma_bf16(c[n], high, b0.lo, b1.lo);
        mma_bf16(c[n], high, b0.hi, b1.hi);
    }
}
template <int NB> DEV void store_block(matrix &to, int row, int column, const float (&c)[NB][4], float sign)
{
#pragma unroll
    for (int n = 0; n < NB; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float two[2] = {sign * c[n][2 * r], sign * c[n][2 * r + 1]};
            store_vec<2, float>(&to[row + lane_id() / 4 + 8 * r][column + 8 * n + lane_id() % 4 * 2], two);
        }
    }
}

// Below a pair of inverted blocks of SIZE on the diagonal: -T22 (M21 T11). What is in brackets lies above the diagonal of t for a while, so blocks of 16
// above the diagonal, which would be zero, are left out.
template <int SIZE> DEV void merge(const matrix &m, matrix &t)
{
    constexpr int EACH = WARPS * 2 * SIZE / CHUNK_TOKENS; // warps of a pair
    constexpr int NB = SIZE * SIZE / EACH / 128;
    constexpr int ACROSS = SIZE / (8 * NB);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int first = warp / EACH * 2 * SIZE;
    const int row = warp % EACH / ACROSS * 16;
    const int column = warp % EACH % ACROSS * 8 * NB;
    float inner[NB][4] = {};
    for (int k = column / 16 * 16; k < SIZE; k += 16) {
        multiply_split(inner, m, first + SIZE + row, first + k, t, first + k, first + column);
    }
    store_block(t, first + row, first + SIZE + column, inner, 1.0f);
    __syncthreads();
    float outer[NB][4] = {};
    for (int k = 0; k <= row; k += 16) {
        multiply_split(outer, t, first + SIZE + row, first + SIZE + k, t, first + k, first + SIZE + column);
    }
    store_block(t, first + SIZE + row, first + column, outer, -1.0f);
    __syncthreads();
}

DEV void store_inverse(cfg::element *to, const inverse_layout &s)
{
    constexpr int ACROSS = CHUNK_TOKENS / 8;
#pragma unroll
    for (int i = 0; i < CHUNK_TOKENS * ACROSS / THREADS; i++) {
        const int n = static_cast<int>(threadIdx.x) + i * THREADS;
        const int row = n / ACROSS;
        const int column = n % ACROSS * 8;
        float x[8];
        load_vec<4, float>(&s.inverse[row][column], reinterpret_cast<float(&)[4]>(x[0]));
        load_vec<4, float>(&s.inverse[row][column + 4], reinterpret_cast<float(&)[4]>(x[4]));
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const bool below = column + k <= row;
            const float by = s.beta[column + k] * (DECAYS ? exp2_approx(below ? s.sums[row] - s.sums[column + k] : 0.0f) : 1.0f);
            x[k] = below ? by * x[k] : 0.0f;
        }
        store_vec<8, cfg::element>(to + row * CHUNK_TOKENS + column, x);
    }
}

// weight(beta): what stands in the place of a token's beta; leave(number of the chunk of the head, layout) comes last.
template <class P, class F, class G> DEV void invert(const P &p, unsigned char *bytes, const F &weight, const G &leave)
{
    inverse_layout &s = *reinterpret_cast<inverse_layout *>(bytes);
    const u32 keys = shared_address(bytes);
    const inverse_work at = find_chunk(p);
    if (at.place >= at.w.s.length) {
        return;
    }
    const i64 way = cfg::REVERSE ? -1 : 1;
    const i64 token = sequence::token(at.w.s, at.place);
    load_rows<CHUNK_PAD, THREADS>(keys, elements(p.k, at.w.s.batch * p.k_b + at.w.h_kv * p.k_h + token * p.k_t), way * p.k_t, at.w.s.length - at.place, cfg::D);
    copy_commit();
    if (threadIdx.x < CHUNK_TOKENS) {
        s.beta[threadIdx.x] = weight(at.w.beta(p, at.place + static_cast<int>(threadIdx.x)));
    } else if (DECAYS && threadIdx.x >= THREADS - 32) {
        sum_logs(p, at.w, at.place, s.sums);
    }
    copy_wait<0>();
    __syncthreads();
    multiply_keys(keys, s.beta, s.products);
    __syncthreads();
    substitute(s.products, s.inverse);
    __syncthreads();
    merge<16>(s.products, s.inverse);
    merge<32>(s.products, s.inverse);
    const i64 which = chunk_number(p, at.w.s, at.place) * p.z.n_h + at.w.h;
    store_inverse(static_cast<cfg::element *>(p.inverse) + which * INVERSE_ELEMENTS, s);
    leave(which, s);
}

} // namespace linear

#if LATHE_COMPILED(inverse)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS) LATHE_ENTRY(inverse)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::invert(p, shared_bytes, [](float beta) { return beta; }, [](i64, const linear::inverse_layout &) {});
}
#endif
