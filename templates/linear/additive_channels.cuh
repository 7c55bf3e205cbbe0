// linear/additive_channels.cuh: a step of 16 tokens under a decay by key channel.
//
// With c the sum of a channel's logarithms from the step's start on and L its end, a token reads with e^(c_i) and writes with e^(L - c_j), and weighs a pair
// by e^(c_i - c_j). Where no channel of a group of 64 loses more than MILD over the step, both are taken from halfway, q e^(c - L/2) and k e^(L/2 - c): their
// products are the pairs' weights, too. Elsewhere q e^c and k e^(L - c), of which no exponent is above 0, and pairs are summed up one by one in f32, with keys
// that decay from token to token. Halves of MILD keep far from the largest number of cfg::element; what is above the diagonal may not, and is not looked at.
#pragma once
#include "linear/additive_tiles.cuh"

namespace linear {

constexpr float MILD = same_type<cfg::element, f16> ? -12.0f : -120.0f; // to the base 2
constexpr float LEAST_LOG = -100.0f;                                    // 2^-100 is as good as 0, and sums behind it keep their digits

struct channel_logs { // to the base 2: of tokens; after sum(g), from the step's start on
    float x[KEY_GROUPS][STEP][2];

    __device__ __forceinline__ void fetch(const linear_params &p, const work &w, int place)
    {
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            const typename variant::row row = w.row(p, place + i);
#pragma unroll
            for (int g = 0; g < KEY_GROUPS; g++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int channel = g * 64 + 2 * lane_id() + c;
                    const bool some = w.has(place + i) && channel < cfg::D;
                    x[g][i][c] = some ? fmaxf(variant::decay(p.x, p.z, w.head, row, channel) * 0x1.715476p0f, LEAST_LOG) : 0.0f;
                }
            }
        }
    }
    __device__ __forceinline__ void sum(int g)
    {
#pragma unroll
        for (int i = 1; i < STEP; i++) {
            x[g][i][0] += x[g][i - 1][0];
            x[g][i][1] += x[g][i - 1][1];
        }
    }
    __device__ __forceinline__ float end(int g, int c) const { return x[g][STEP - 1][c]; } // after sum(g)
    __device__ __forceinline__ bool is_mild(int g) const                                   // before
    {
        float all[2] = {};
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            all[0] += x[g][i][0];
            all[1] += x[g][i][1];
        }
        return __all_sync(ALL_LANES, fminf(all[0], all[1]) >= MILD) != 0;
    }
    // Up to a token's reading: with a bonus it reads before its own decay.
    __device__ __forceinline__ float read(int g, int i, int c) const { return !cfg::BONUS ? x[g][i][c] : i > 0 ? x[g][i - 1][c] : 0.0f; }
};

// sums[i][j] += q_i k_j e^(c_i - c_j) over the channels of a group, or =. The logarithms of tokens wait as what each leaves: there are no registers for both.
DEV void sum_pairs(u32 step, u32 sums, float (&left)[STEP][2], int group, bool first)
{
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        left[i][0] = exp2_approx(left[i][0]);
        left[i][1] = exp2_approx(left[i][1]);
    }
#pragma unroll 1
    for (int j = 0; j < STEP; j++) {
        float key[2];
        load_pair(pair_address(step + step_layout::K, j, group), key[0], key[1]);
#pragma unroll
        for (int half = 0; half < STEP; half += HALF) {
            float weight[HALF];
#pragma unroll
            for (int n = 0; n < HALF; n++) {
                const int i = half + n;
                float q[2];
                load_pair(pair_address(step + step_layout::Q, i, group), q[0], q[1]);
                const float by[2] = {i > j ? left[i][0] : 1.0f, i > j ? left[i][1] : 1.0f};
                if constexpr (!cfg::BONUS) {
                    key[0] *= by[0];
                    key[1] *= by[1];
                }
                weight[n] = i >= j ? q[0] * key[0] + q[1] * key[1] : 0.0f;
                if constexpr (cfg::BONUS) { // the next token reads what this one has left
                    key[0] *= by[0];
                    key[1] *= by[1];
                }
            }
            const float sum = sum_of_half(weight);
            const u32 at = sums + static_cast<u32>(4 * ((half + lane_id() % HALF) * STEP + j));
            if (lane_id() < HALF) {
                store_shared(at, first ? sum : sum + load_shared(at));
            }
        }
    }
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        left[i][0] = log2_approx(left[i][0]);
        left[i][1] = log2_approx(left[i][1]);
    }
}

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
        store_shared(k_at, pack<cfg::element>(k[0] * exp2_approx(writes_to[0] - logs.x[g][i][0]), k[1] * exp2_approx(writes_to[1] - logs.x[g][i][1])));
        if constexpr (!STATES) {
            float q[2];
            load_pair(q_at, q[0], q[1]);
            store_shared(q_at, pack<cfg::element>(q[0] * exp2_approx(logs.read(g, i, 0) - reads_from[0]), q[1] * exp2_approx(logs.read(g, i, 1) - reads_from[1])));
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
