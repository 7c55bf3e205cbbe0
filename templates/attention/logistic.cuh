// attention/logistic.cuh: weights 1 / (1 + exp2(x)) of a fragment of scores, in its registers.
//
// Two results of the special function unit an element would keep it as busy as the tensor cores. Where all of a warp's
// weights are small, as under the bias that such attention has (-log of the length), e = exp2(-x) alone tells them:
// e / (1 + e) is e - e e up to e^2. Else two elements share a reciprocal. Tiny weights keep their relative error.
#pragma once
#include "common/base.cuh"

// e^2, always the same way, is 2^-13: half of what rounding to f16 may do, or less
constexpr float SMALL_WEIGHT = 0x1.6ap-7f;
constexpr float MOST_WEIGHT = 0x1p60f; // e / (1 + e) is 1, and a product of two 1 + e is finite

// ALL: no pair is dead. A dead one may be NaN, and must not meet its neighbour.
template <bool ALL, int MT, int NB> DEV void logistic_weights(float (&s)[MT][NB][4])
{
    float most = 0.0f; // NaN does not count: it stays one either way
#pragma unroll
    for (int i = 0; i < MT * NB * 4; i++) {
        float &e = s[i / 4 / NB][i / 4 % NB][i % 4];
        e = exp2_approx(-e);
        most = fmaxf(most, e);
    }
    if (!__any_sync(ALL_LANES, most > SMALL_WEIGHT)) {
#pragma unroll
        for (int i = 0; i < MT * NB * 4; i++) {
            float &e = s[i / 4 / NB][i / 4 % NB][i % 4];
            e -= e * e;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < MT * NB * 4; i += 2) {
        float &e = s[i / 4 / NB][i / 4 % NB][i % 4];
        float &f = s[i / 4 / NB][i / 4 % NB][i % 4 + 1];
        e = min_nan(e, MOST_WEIGHT);
        f = min_nan(f, MOST_WEIGHT);
        const float x = 1.0f + e;
        const float y = 1.0f + f;
        if constexpr (ALL) {
            const float both = rcp_approx(x * y);
            e *= both * y;
            f *= both * x;
        } else {
            e *= rcp_approx(x);
            f *= rcp_approx(y);
        }
    }
}
