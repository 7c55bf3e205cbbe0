// attention/backward/sm90_store.cuh: dk' or dv' of a warp's 16 keys from registers to memory.
#pragma once
#include "attention/backward/sm90_common.cuh"
#include "attention/backward/dq_layout.cuh"

namespace back
{

template <int DB>
DEV void store_floats(const float (&x)[DB][4], float factor, float *out, i64 row_stride, int left, int columns)
{
    const int lane = lane_id();
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        const int row = lane / 4 + 8 * c;
#pragma unroll
        for (int d = 0; d < DB; d++) {
            const int column = 8 * d + 2 * (lane % 4);
            if (row < left && column < columns) {
                *reinterpret_cast<float2 *>(out + row * row_stride + column) =
                    make_float2(x[d][2 * c] * factor, x[d][2 * c + 1] * factor);
            }
        }
    }
}

// Four lanes exchange what they have of a row: 16 bytes each, 64 in a line.
template <class OUT, int DB>
DEV void store_elements(const float (&x)[DB][4], float factor, OUT *out, i64 row_stride, int left, int columns)
{
    const int lane = lane_id();
    const bool aligned = ((reinterpret_cast<u64>(out) | static_cast<u64>(row_stride) * sizeof(OUT)) & 15) == 0;
#pragma unroll
    for (int d = 0; d < DB; d += 4) {
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            u32 word[4] = {};
#pragma unroll
            for (int j = 0; j < min_of(4, DB - d); j++) {
                word[j] = pack<OUT>(x[d + j][2 * c] * factor, x[d + j][2 * c + 1] * factor);
            }
            const uint4 eight = transpose_four(word, lane);
            const int row = lane / 4 + 8 * c;
            const int column = (d + lane % 4) * 8;
            OUT *const to = out + row * row_stride + column;
            if (row < left && column < columns) {
                if (aligned) {
                    *reinterpret_cast<uint4 *>(to) = eight;
                } else {
                    store_one_by_one(to, eight);
                }
            }
        }
    }
}

// row0: of the warp, in the block; left: rows of the tensor from there on; columns: those that exist.
template <class OUT, int DB> DEV void store_warp_keys(const float (&x)[DB][4], float factor, int row0, void *out,
                                                      i64 head, i64 row_stride, int first, int left, int columns)
{
    const i64 at = head + (first + row0) * row_stride;
    if constexpr (same_type<OUT, float>) {
        store_floats(x, factor, static_cast<float *>(out) + at, row_stride, left, columns);
    } else {
        store_elements(x, factor, static_cast<OUT *>(out) + at, row_stride, left, columns);
    }
}

} // namespace back
