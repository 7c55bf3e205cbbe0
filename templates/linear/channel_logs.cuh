// linear/channel_logs.cuh: the logarithms of a decay by key channel over a step of 16 tokens, by a warp, and the pairs
// of tokens that cannot be products.
//
// A pair weighs e^(c_i - c_j), c the sums of a channel's logarithms from the step's start on. Where no channel of a
// group of 64 loses more than MILD over the step, that is a product of e^(c_i - half) and e^(half - c_j), half of all
// that the step loses; elsewhere the second factor may be too large a number, and pairs are summed up one by one in
// f32, with keys that decay from token to token. Halves of MILD keep far from the largest number of cfg::operand.
#pragma once
#include "linear/steps.cuh"

namespace linear
{

constexpr float MILD = same_type<cfg::operand, f16> ? -12.0f : -120.0f; // to the base 2

struct channel_logs { // to the base 2: of tokens; after sum(g), from the step's start on
    float x[KEY_GROUPS][STEP][2];

    // Places that do not exist have the row of one that does (work::row): no load waits for a condition, so all of them
    // are under way at once.
    template <class P> __device__ __forceinline__ void fetch(const P &p, const work &w, int place)
    {
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            const typename variant::row row = w.row(p, place + i);
#pragma unroll
            for (int g = 0; g < KEY_GROUPS; g++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int channel = g * 64 + 2 * lane_id() + c;
                    const float log = w.log2_decay(p, row, channel);
                    x[g][i][c] = w.has(place + i) && channel < cfg::D ? log : 0.0f;
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
        return __all_sync(ALL_LANES, all[0] >= MILD && all[1] >= MILD) != 0;
    }
    // Up to a token's reading: with a bonus it reads before its own decay.
    __device__ __forceinline__ float read(int g, int i, int c) const
    {
        return !cfg::BONUS ? x[g][i][c] : i > 0 ? x[g][i - 1][c] : 0.0f;
    }
};

// The logarithm of what a token leaves. NaN stays, which fmaxf drops.
DEV float again_log2(float left) { return left == 0.0f ? LEAST_LOG : log2_approx(left); }

// sums[i][j] += q_i k_j e^(c_i - c_j) over the channels of a group, or =, of tiles of readers q and of keys k. The
// logarithms of tokens wait as what each
// leaves: there are no registers for both.
DEV void sum_pairs(u32 readers, u32 keys, u32 sums, float (&left)[STEP][2], int group, bool first)
{
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        left[i][0] = exp2_approx(left[i][0]);
        left[i][1] = exp2_approx(left[i][1]);
    }
#pragma unroll 1
    for (int j = 0; j < STEP; j++) {
        float key[2];
        load_pair(pair_address(keys, j, group), key[0], key[1]);
#pragma unroll
        for (int half = 0; half < STEP; half += HALF_STEP) {
            float weight[HALF_STEP];
#pragma unroll
            for (int n = 0; n < HALF_STEP; n++) {
                const int i = half + n;
                float q[2];
                load_pair(pair_address(readers, i, group), q[0], q[1]);
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
            const u32 at = sums + static_cast<u32>(4 * ((half + lane_id() % HALF_STEP) * STEP + j));
            if (lane_id() < HALF_STEP) {
                store_shared(at, first ? sum : sum + load_shared(at));
            }
        }
    }
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        left[i][0] = again_log2(left[i][0]);
        left[i][1] = again_log2(left[i][1]);
    }
}

} // namespace linear
