// attention/capped.cuh: scores factor tanh(scale s) of products s.
//
// A tangent beside an exponential for every weight would keep the special function unit as busy as the tensor cores.
// Where all of a warp's arguments are small, as those of products of unit deviation under a cap of 30 are, a polynomial
// takes its place: off by 6.2e-6 of the value at most, where tanh.approx is off by up to 5e-4. For results of 16 bits.
#pragma once
#include "common/base.cuh"

constexpr float SMALL_ARGUMENT = 0.4f;
// tanh(x) / x for |x| up to that, by powers of x^2: least squares, weighted towards the least maximum.
constexpr float TANH_0 = 0x1.ffff34p-1f, TANH_1 = -0x1.549deep-2f, TANH_2 = 0x1.f0f4f4p-4f;

// Of a warp's fragments.
template <int MT, int NB> DEV bool all_small(const float (&s)[MT][NB][4], float scale)
{
    float most[4] = {0.0f, 0.0f, 0.0f, 0.0f}; // apart, so that they need not wait for each other
#pragma unroll
    for (int i = 0; i < MT * NB * 4; i++) {
        // NaN does not count: it stays one either way
        most[i % 4] = fmaxf(most[i % 4], fabsf(s[i / 4 / NB][i / 4 % NB][i % 4]));
    }
    const float all = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
    return !__any_sync(ALL_LANES, all * fabsf(scale) > SMALL_ARGUMENT);
}

template <bool SMALL> DEV float capped(float s, float scale, float factor)
{
    if constexpr (SMALL) {
        const float square = s * s;
        const float by_4 = TANH_2 * scale * scale * scale * scale * scale * factor;
        const float by_2 = TANH_1 * scale * scale * scale * factor;
        return s * fmaf(square, fmaf(square, by_4, by_2), TANH_0 * scale * factor);
    } else {
        return factor * tanh_approx(scale * s);
    }
}
