// linear/additive_channels.cuh: a step of 16 tokens under a decay by key channel.
//
// With c the sum of a channel's logarithms from the step's start on and L its end, a token reads with e^(c_i) and
// writes with e^(L - c_j), and weighs a pair by e^(c_i - c_j). In a group of 64 channels that is mild
// (linear/channel_logs.cuh) both are taken from halfway, q e^(c - L/2) and k e^(L/2 - c): their products are the pairs'
// weights, too. Elsewhere q e^c and k e^(L - c), of which no exponent is above 0, and pairs are summed up one by one.
// What is above the diagonal may be too large a number, and is not looked at.
#pragma once
#include "linear/additive_tiles.cuh"
#include "linear/channel_logs.cuh"

namespace linear
{

// q and k in their places become what reads and what writes.
template <bool STATES> DEV void weigh_channels(u32 step, const channel_logs &logs, int g, bool mild)
{
    float reads_from[2];
    float writes_to[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        reads_from[c] = mild ? 0.5f * logs.end(g, c) : 0.0f;
        writes_to[c] = mild ? reads_from[c] : logs.end(g, c);
    }
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        const u32 q_at = pair_address(step + step_layout::Q, i, g);
        const u32 k_at = pair_address(step + step_layout::K, i, g);
        float k[2];
        load_pair(k_at, k[0], k[1]);
        store_shared(k_at, pack<cfg::operand>(k[0] * exp2_approx(writes_to[0] - logs.x[g][i][0]),
                                              k[1] * exp2_approx(writes_to[1] - logs.x[g][i][1])));
        if constexpr (!STATES) {
            float q[2];
            load_pair(q_at, q[0], q[1]);
            store_shared(q_at, pack<cfg::operand>(q[0] * exp2_approx(logs.read(g, i, 0) - reads_from[0]),
                                                  q[1] * exp2_approx(logs.read(g, i, 1) - reads_from[1])));
        }
    }
}

DEV void store_two(u32 at, float low, float high)
{
    store_shared(at, low);
    store_shared(at + 4, high);
}
// What becomes of the state at this step: struct channel_factors.
DEV void leave_factors(u32 step, const channel_logs &logs, u32 mild)
{
#pragma unroll
    for (int g = 0; g < KEY_GROUPS; g++) {
        float half[2];
        float all[2];
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const bool some = (mild >> g & 1u) != 0;
            half[c] = some ? exp2_approx(0.5f * logs.end(g, c)) : 1.0f;
            all[c] = some ? 1.0f : exp2_approx(logs.end(g, c));
        }
        const int channel = g * 64 + 2 * lane_id();
        store_two(factor_address(step, channel_factors::HALF + channel), half[0], half[1]);
        store_two(factor_address(step, channel_factors::MIDDLE + channel), all[0], all[1]);
    }
    if (lane_id() == 0) {
        store_shared(factor_address(step, channel_factors::HAS_MIDDLE), mild == (1u << KEY_GROUPS) - 1u ? 0.0f : 1.0f);
    }
}

} // namespace linear
