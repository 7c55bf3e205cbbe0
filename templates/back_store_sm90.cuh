// back_store_sm90.cuh: dk' or dv' of a warp's 16 keys from registers to memory.
#pragma once
#include "back_common_sm90.cuh"

namespace back {

template <int DB> DEV void store_floats(const float (&x)[DB][4], float factor, float *out, i64 row_stride, int left, int columns)
{
    const int lane = lane_id();
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        const int row = lane / 4 + 8 * c;
#pragma unroll
        for (int d = 0; d < DB; d++) {
            const int column = 8 * d + 2 * (lane % 4);
            if (row < left && column < columns) {
                *reinterpret_cast<float2 *>(out + row * row_stride + column) = make_float2(x[d][2 * c] * factor, x[d][2 * c + 1] * factor);
            }
        }
    }
}

// Through a tile of ROWS rows that no one reads any more, of which row0 is the warp's first.
template <int ROWS, int DB>
DEV void store_elements(const float (&x)[DB][4], float factor, u32 tile, int row0, element *out, i64 row_stride, int left, int columns)
{
    constexpr int COLUMNS = 8 * DB;
    const int lane = lane_id();
#pragma unroll
    for (int d = 0; d < DB; d += 2) {
        u32 r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            r[i] = pack<element>(x[d + i / 2][2 * (i % 2)] * factor, x[d + i / 2][2 * (i % 2) + 1] * factor);
        }
        store_matrix4(tile + panels<COLUMNS>::template offset<ROWS>(row0 + lane % 16, d + lane / 16), r);
    }
    __syncwarp();
    const int pieces = columns / 8;
    const bool aligned = ((reinterpret_cast<u64>(out) | static_cast<u64>(row_stride) * 2) & 15) == 0;
#pragma unroll 4
    for (int i = lane; i < min(16, left) * pieces; i += 32) {
        const int row = i / pieces;
        const uint4 piece = load_shared16(tile + panels<COLUMNS>::template offset<ROWS>(row0 + row, i % pieces));
        element *to = out + row * row_stride + i % pieces * 8;
        if (aligned) {
            *reinterpret_cast<uint4 *>(to) = piece;
        } else {
            const u32 two[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
            for (int k = 0; k < 8; k++) {
                to[k].bits = static_cast<u16>(two[k / 2] >> (16 * (k % 2)));
            }
        }
    }
}

// row0: of the warp, in the block; left: rows of the tensor from there on; columns: those that exist.
template <bool F32, int ROWS, int DB>
DEV void store_warp_keys(const float (&x)[DB][4], float factor, u32 tile, int row0, void *out, i64 head, i64 row_stride, int first, int left,
                         int columns)
{
    const i64 at = head + (first + row0) * row_stride;
    if constexpr (F32) {
        store_floats(x, factor, static_cast<float *>(out) + at, row_stride, left, columns);
    } else {
        store_elements<ROWS>(x, factor, tile, row0, static_cast<element *>(out) + at, row_stride, left, columns);
    }
}

} // namespace back
