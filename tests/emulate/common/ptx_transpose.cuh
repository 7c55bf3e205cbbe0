// ptx_transpose.cuh: templates/common/ptx_transpose.cuh for the host.
#pragma once
#include "common/ptx.cuh"

DEV u32 transpose_8x8(u32 pair, EMULATE_PLACE)
{
    const int row = lane_id() / 4;
    const int column = 2 * (lane_id() & 3);
    const u32 first = __shfl_sync(0xffffffffu, pair, 4 * column + row / 2, 32, file, line);
    const u32 second = __shfl_sync(0xffffffffu, pair, 4 * (column + 1) + row / 2, 32, file, line);
    const int shift = 16 * (row % 2);
    return (first >> shift & 0xffffu) | (second >> shift & 0xffffu) << 16;
}
