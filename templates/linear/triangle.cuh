// linear/triangle.cuh: (1 + M)^-1 of 64 x 64 numbers in shared memory, M below the diagonal, by four warps.
//
// Diagonal blocks of 16 by forward substitution in f32, which holds for keys that resemble each other, where powers of
// the matrix would cancel; blocks of 32 and 64 by T21 = -T22 M21 T11, of three products in bf16 each.
#pragma once
#include "common/mma_f32.cuh"
#include "linear/chunk.cuh"

namespace linear
{

constexpr int MATRIX_PAD = CHUNK_TOKENS + 8; // four rows side by side are in different banks
using matrix = float[CHUNK_TOKENS][MATRIX_PAD];

// A diagonal block of 16 of each warp, a column of each of its first lanes: row by row, t_i = 1_i - sum over l < i of
// m_il t_l.
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
template <int NB>
DEV void multiply_split(float (&c)[NB][4], const matrix &a, int row, int k, const matrix &b, int k_b, int column)
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

// Below a pair of inverted blocks of SIZE on the diagonal: -T22 (M21 T11). What is in brackets lies above the diagonal
// of t for a while, so blocks of 16 above the diagonal, which would be zero, are left out.
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

// t becomes (1 + m)^-1, but for what is above its diagonal, which says nothing.
DEV void invert_triangle(const matrix &m, matrix &t)
{
    substitute(m, t);
    __syncthreads();
    merge<16>(m, t);
    merge<32>(m, t);
}

} // namespace linear
