// linear/steps.cuh: what kernels share that take steps of 16 tokens: rows of a step in shared memory, of which a lane
// has two adjacent channels of each group of 64, and sums over lanes.
#pragma once
#include "common/mma_sm80.cuh"
#include "linear/elements.cuh"
#include "linear/walk.cuh"

namespace linear
{

constexpr int STEP = 16; // tokens
// a lane has two adjacent channels of each group
constexpr int KEY_PAD = round_up(cfg::D, 64), KEY_GROUPS = KEY_PAD / 64;
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "mma.sync takes f16 or bf16");

// Rows of a step, 16 of COLS, by a warp; zeros beyond `rows`, of which there is one, and `columns`.
template <int COLS, class T> DEV void load_step(u32 tile, const T *from, i64 stride, int rows, int columns)
{
    constexpr int ACROSS = COLS / 8;
#pragma unroll
    for (int i = 0; i < STEP * ACROSS / 32; i++) {
        const int n = lane_id() + 32 * i;
        const int row = n / ACROSS;
        const int chunk = n % ACROSS;
        const bool some = row < rows && chunk * 8 < columns;
        copy16_async(tile + swizzle<COLS>::offset(row, chunk), some ? from + (row * stride + chunk * 8) : from,
                     some ? 16 : 0);
    }
}

// Eight elements of a row that need not be aligned.
template <class T> DEV void store_row(T *to, const uint4 &four)
{
    const u32 word[4] = {four.x, four.y, four.z, four.w};
    float x[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        unpack<cfg::operand>(word[i], x[2 * i], x[2 * i + 1]);
    }
    store_any<8, T>(to, x);
}

// What lanes have of 8 numbers, of as many tokens, a sum over all lanes: lane l gets number l % 8.
constexpr int HALF_STEP = STEP / 2; // more at a time would take registers of the logarithms
template <int N> DEV float sum_of_half(const float (&x)[N])
{
    if constexpr (N == 1) {
        const float sum = x[0] + __shfl_xor_sync(ALL_LANES, x[0], HALF_STEP);
        return sum + __shfl_xor_sync(ALL_LANES, sum, 2 * HALF_STEP);
    } else {
        const bool upper = (lane_id() & (N / 2)) != 0;
        float half[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            half[i] = (upper ? x[i + N / 2] : x[i]) + __shfl_xor_sync(ALL_LANES, upper ? x[i] : x[i + N / 2], N / 2);
        }
        return sum_of_half(half);
    }
}

// Of a tile of keys: this lane's two channels of a group, of a row. The row counts, and may be a variable.
DEV u32 pair_address(u32 tile, int row, int group)
{
    return tile + swizzle<KEY_PAD>::offset(row, group * 8 + lane_id() / 4) + static_cast<u32>(lane_id() % 4 * 4);
}
DEV void load_pair(u32 address, float &low, float &high)
{
    unpack<cfg::operand>(__float_as_uint(load_shared(address)), low, high);
}

} // namespace linear
