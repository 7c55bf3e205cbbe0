// attention/backward/dq_layout.cuh: dq' of a tile, as attention backward for sm_90a adds it in memory, to rows of dq:
// four lanes exchange what they have of a row.
#pragma once
#include "attention/backward/parts.cuh"

namespace back
{

// Eight elements that are not aligned: a short text, for there are many of them.
template <class T> DEV void store_one_by_one(T *to, uint4 eight)
{
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        to[k].bits = static_cast<u16>(eight.x);
        eight.x = eight.x >> 16 | eight.y << 16;
        eight.y = eight.y >> 16 | eight.z << 16;
        eight.z = eight.z >> 16 | eight.w << 16;
        eight.w >>= 16;
    }
}

template <class T> struct dq_rows { // of a tile, in 16 bits
    T *first;
    i64 stride;
    int left;     // of them
    bool aligned; // 16 bytes at a time
    __device__ __forceinline__ dq_rows(T *to, i64 row_stride, int rows)
        : first(to), stride(row_stride), left(rows),
          aligned(((reinterpret_cast<u64>(to) | static_cast<u64>(row_stride) * 2) & 15) == 0)
    {
    }
    // Eight elements of a row, if it has them.
    __device__ __forceinline__ void put_eight(int row, int column, uint4 eight) const
    {
        if (row >= left || column >= cfg::D) {
            return;
        }
        T *const to = first + row * stride + column;
        if (aligned) {
            *reinterpret_cast<uint4 *>(to) = eight;
        } else {
            store_one_by_one(to, eight);
        }
    }
};

// 16 rows by 32 columns of a tile: what a warp takes at a time.
struct dq_piece {
    static constexpr int ACROSS = (DK / 8 + 3) / 4;
    static constexpr int COUNT = BM / 16 * ACROSS;
    float x[4][4]; // of four blocks of 8 columns

    __device__ __forceinline__ void load(const float *tile, int number)
    {
        const int strip = number / ACROSS;
        const float *from = tile + (strip / 4 * (DK / 8) * 128 + strip % 4 * 32 + lane_id()) * 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int d = number % ACROSS * 4 + j;
            if (DK % 32 == 0 || d < DK / 8) {
                load_vec<4, float>(from + d * 512, x[j]);
            }
        }
    }

    template <class T> __device__ __forceinline__ void store(const dq_rows<T> &rows, int number, float factor) const
    {
        const int lane = lane_id();
        const int column = (number % ACROSS * 4 + lane % 4) * 8;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 word[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                word[j] = pack<T>(x[j][2 * half] * factor, x[j][2 * half + 1] * factor);
            }
            rows.put_eight(number / ACROSS * 16 + 8 * half + lane / 4, column, transpose_four(word, lane));
        }
    }
};

} // namespace back
