// linear/tile.cuh: a piece of the state in the registers of a block, which every kernel of linear attention walks along
// the tokens.
//
// A tile has ROWS rows and shape::COLUMNS columns. A column lies in eight adjacent lanes: lane % 8 has rows 4 (lane % 8
// + 8 g) + {0 .. 3}, lane / 8 and the warp say which N adjacent columns. Sums over rows cross the eight lanes; columns
// never meet. Vectors along the rows are in shared memory, as float[PAD] from 16 bytes on, zero beyond ROWS; a thread
// has those of its columns in registers.
#pragma once
#include "common/concepts.cuh"

namespace linear
{

constexpr int WARPS = cfg::WARPS;
constexpr int THREADS = 32 * WARPS;
constexpr int ROW_LANES = 8, COLUMN_LANES = 4;
static_assert(WARPS == 1 || WARPS == 2 || WARPS == 4 || WARPS == 8, "cfg::WARPS is 1, 2, 4 or 8");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16> || same_type<cfg::operand, float>,
              "cfg::operand is f16, bf16 or float");

template <int ROWS> struct shape {
    static constexpr int PAD = round_up(ROWS, 4 * ROW_LANES);
    static constexpr int GROUPS = PAD / (4 * ROW_LANES); // of four rows of a thread
    static constexpr int N = PAD > 128 ? 2 : 4;          // columns of a thread
    static constexpr int COLUMNS = WARPS * COLUMN_LANES * N;
    static constexpr int TOKENS = PAD > 128 ? 4 : 8; // that are in shared memory at a time
    static_assert(ROWS >= 1 && PAD <= 288, "rows of a tile are in registers: 256, and the one of a normaliser");
    DEV int column() // the first of this thread
    {
        return (static_cast<int>(threadIdx.x) / 32 * COLUMN_LANES + lane_id() / ROW_LANES) * N;
    }
};

// What a decay does, as one number. Of a weak one, up to 0: what an element loses, as a part of it, e^log - 1, as over
// thousands of tokens factors near 1 would lose what their rounding loses. Of a strong one, above 0: what is left,
// e^log, as 1 less what is lost would have few digits. ALL_LOST: nothing.
constexpr float ALL_LOST = 2.0f;
struct decay_factors { // an element becomes `keeps` and `loses` times itself
    float keeps, loses;
    DEV decay_factors of(float by) { return {by <= 0.0f ? 1.0f : by >= ALL_LOST ? 0.0f : by, fminf(by, 0.0f)}; }
    DEV float apply(float x, const decay_factors &by) { return x * by.keeps + x * by.loses; }
};

// WIDE: columns of a thread.
template <int ROWS, int WIDE = shape<ROWS>::N> struct tile {
    using s = shape<ROWS>;
    float x[s::GROUPS][4][WIDE];

    // f(element, what `row` has for it, number of the column), of all elements.
    template <class F> __device__ __forceinline__ void each(const float *row, const F &f)
    {
#pragma unroll
        for (int g = 0; g < s::GROUPS; g++) {
            float r[4];
            load_vec<4, float>(row + 4 * (lane_id() % ROW_LANES + ROW_LANES * g), r);
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int n = 0; n < WIDE; n++) {
                    f(x[g][e][n], r[e], n);
                }
            }
        }
    }
    // f(element, number of its row, number of the column).
    template <class F> __device__ __forceinline__ void each_place(const F &f)
    {
#pragma unroll
        for (int g = 0; g < s::GROUPS; g++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int n = 0; n < WIDE; n++) {
                    f(x[g][e][n], 4 * (lane_id() % ROW_LANES + ROW_LANES * g) + e, n);
                }
            }
        }
    }
    // f(elements of adjacent columns, number of their row).
    template <class F> __device__ __forceinline__ void each_row(const F &f)
    {
#pragma unroll
        for (int g = 0; g < s::GROUPS; g++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                f(x[g][e], 4 * (lane_id() % ROW_LANES + ROW_LANES * g) + e);
            }
        }
    }
    __device__ __forceinline__ void clear()
    {
        each_place([](float &a, int, int) { a = 0.0f; });
    }
    // By decay_by of tokens.cuh.
    __device__ __forceinline__ void decay(float by)
    {
        if (by <= 0.0f) { // all threads
            each_place([&](float &a, int, int) { a += a * by; });
        } else {
            const float left = decay_factors::of(by).keeps;
            each_place([&](float &a, int, int) { a *= left; });
        }
    }
    __device__ __forceinline__ void decay_rows(const float *by)
    {
        each(by, [](float &a, float r, int) { a = decay_factors::apply(a, decay_factors::of(r)); });
    }
    __device__ __forceinline__ void decay_columns(const float (&by)[WIDE])
    {
        decay_factors own[WIDE];
#pragma unroll
        for (int n = 0; n < WIDE; n++) {
            own[n] = decay_factors::of(by[n]);
        }
        each_place([&](float &a, int, int n) { a = decay_factors::apply(a, own[n]); });
    }
    __device__ __forceinline__ void add(const float *row, const float (&column)[WIDE])
    {
        each(row, [&](float &a, float r, int n) { a += r * column[n]; });
    }
    // Of this thread's rows.
    __device__ __forceinline__ void read(const float *row, float (&sum)[WIDE])
    {
        each(row, [&](float &a, float r, int n) { sum[n] += r * a; });
    }
};

// Over the rows of a column; all its lanes get the sum.
template <int W> DEV void sum_rows(float (&part)[W])
{
#pragma unroll
    for (int n = 0; n < W; n++) {
        part[n] = lanes_sum<ROW_LANES>(part[n]);
    }
}

// The same of four tokens: a lane gets the sums of token lane % 4.
template <int W> DEV void sum_rows_of_four(const float (&part)[4][W], float (&sum)[W])
{
    const bool odd = (lane_id() & 1) != 0;
    const bool high = (lane_id() & 2) != 0;
#pragma unroll
    for (int n = 0; n < W; n++) {
        const float low =
            (odd ? part[1][n] : part[0][n]) + __shfl_xor_sync(ALL_LANES, odd ? part[0][n] : part[1][n], 1);
        const float up = (odd ? part[3][n] : part[2][n]) + __shfl_xor_sync(ALL_LANES, odd ? part[2][n] : part[3][n], 1);
        const float half = (high ? up : low) + __shfl_xor_sync(ALL_LANES, high ? low : up, 2);
        sum[n] = half + __shfl_xor_sync(ALL_LANES, half, 4);
    }
}

} // namespace linear
