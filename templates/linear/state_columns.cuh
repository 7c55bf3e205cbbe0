// linear/state_columns.cuh: 16 columns of the state, all rows of them, in f32 fragments of mma.sync of a warp.
//
// The columns are rows of the fragments: so what is rounded of the state is an operand of products as it stands, and
// never leaves the registers. In f16 it is scaled before (state_scale of walk.cuh).
#pragma once
#include "linear/steps.cuh"

namespace linear
{

struct state_columns {
    static constexpr bool SCALED = STATE_SCALED;
    static constexpr int BLOCKS = KEY_PAD / 8; // of 8 channels
    float x[BLOCKS][4];                        // (channel 8 n + lane % 4 * 2 + i % 2, column lane / 4 + i / 2 * 8)

    // f(element, channel, column of the warp).
    template <class F> __device__ __forceinline__ void each(const F &f)
    {
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f(x[n][i], n * 8 + lane_id() % 4 * 2 + i % 2, lane_id() / 4 + i / 2 * 8);
            }
        }
    }
    __device__ __forceinline__ void scale(float by)
    {
        each([&](float &a, int, int) { a *= by; });
    }
    // By a factor of each channel, float[KEY_PAD] at `factors`.
    __device__ __forceinline__ void scale_channels(u32 factors)
    {
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            const float2 by = load_shared8(factors + static_cast<u32>(4 * (n * 8 + lane_id() % 4 * 2)));
            x[n][0] *= by.x;
            x[n][1] *= by.y;
            x[n][2] *= by.x;
            x[n][3] *= by.y;
        }
    }
    __device__ __forceinline__ float largest() const
    {
        float most = 0.0f;
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                most = fmaxf(most, fabsf(x[n][i]));
            }
        }
        return __int_as_float(warp_max(__float_as_int(most)));
    }
    // What the state is multiplied by before it is rounded: 1, or in f16 a power of two.
    __device__ __forceinline__ float nearer() const
    {
        if constexpr (SCALED) {
            return state_scale::of(largest()).by;
        }
        return 1.0f;
    }
    // Channels 16 k .. 16 k + 15 times `by`, rounded: the other operand of a product with rows of channels, 16 columns
    // of it.
    __device__ __forceinline__ void pack_rows(u32 (&b)[4], int k, float by) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *two = &x[2 * k + i % 2][i / 2 * 2];
            b[i] = pack<cfg::operand>(SCALED ? by * two[0] : two[0], SCALED ? by * two[1] : two[1]);
        }
    }
    // f(element, its place in memory), of what exists: columns from `first` on, `left` of them.
    template <class F> __device__ __forceinline__ void each_of_memory(i64 s_i, i64 s_j, int first, int left, const F &f)
    {
        each([&](float &a, int channel, int column) {
            if (channel < cfg::D && column < left) {
                f(a, channel * s_i + (first + column) * s_j);
            }
        });
    }
};

} // namespace linear
