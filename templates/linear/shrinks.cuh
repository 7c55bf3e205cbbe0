// linear/shrinks.cuh: what is known of how much tokens shrink any state, to the base 2.
#pragma once
#include "common/base.cuh"

namespace linear
{

// Under a logarithm above 0 no state is known to shrink, but for what rounding leaves of log(sigmoid), which is no more
// than 2^-4 in 2048 tokens.
constexpr float NO_LOSS_FROM = 1.0f / 32768.0f;

// What a token's writing may add: I - beta k' k grows a state by |1 - beta |k|^2| at most, where that is above 1. Of
// operands that are rounded |k|^2 is up to 2^-7 of it more.
constexpr float ROUNDED_KEYS = 1.0078125f;
DEV float growth_of(float beta_k2)
{
    const float by = fmaxf(beta_k2 - 1.0f, 1.0f - beta_k2);
    return by > 1.0f ? log2_approx(by) : 0.0f;
}

} // namespace linear
