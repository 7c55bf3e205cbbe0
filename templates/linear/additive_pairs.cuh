// linear/additive_pairs.cuh: the first job of linear/additive.cuh: a warp for each step of a chunk has q, k and v come,
// weighs q and k where a decay goes by key channel, and leaves the weights of the pairs within the step.
#pragma once
#include "linear/additive_channels.cuh"

namespace linear
{

struct token_logs { // one number a token: lane l has token l % 16
    float x;

    __device__ __forceinline__ void fetch(const linear_params &p, const work &w, int place)
    {
        const int at = place + lane_id() % STEP;
        x = DECAYS && w.has(at) ? w.log2_decay(p, w.row(p, at), 0) : 0.0f;
    }
    __device__ __forceinline__ void sum()
    {
#pragma unroll
        for (int step = 1; DECAYS && step < STEP; step *= 2) {
            const float before = __shfl_up_sync(ALL_LANES, x, static_cast<u32>(step), STEP);
            x += lane_id() % STEP >= step ? before : 0.0f;
        }
    }
};

template <bool STATES> struct pair_job {
    using operand = cfg::operand;
    using logs_type = typename pick<DECAY_BY_KEY, channel_logs, token_logs>::type;
    const linear_params &p;
    const work &w;
    walk_plan<STATES> walk;
    u32 shared;
    int own; // the step of each chunk that this warp has

    __device__ __forceinline__ void load(int number) const
    {
        const int place = walk.place(number, own);
        const int rows = w.s.length - place;
        if (rows > 0) {
            const u32 step = step_address(shared, number, own);
            const i64 token = sequence::token(w.s, place);
            const i64 way = cfg::REVERSE ? -1 : 1;
            if (walk.reads(number)) {
                load_step<KEY_PAD>(step + step_layout::Q,
                                   elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h + token * p.q_t),
                                   way * p.q_t, rows, cfg::D);
            }
            if (walk.writes(number)) {
                load_step<KEY_PAD>(step + step_layout::K,
                                   elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + token * p.k_t),
                                   way * p.k_t, rows, cfg::D);
                load_step<VALUE_PAD>(
                    step + step_layout::V,
                    elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first),
                    way * p.v_t, rows, w.left);
            }
        }
    }
    // With a bonus u: q (u k)', the weight of a token's own pair; lane l gets that of token l % 16. Of q and k as they
    // came.
    __device__ __forceinline__ float own_weights(u32 step) const
    {
        float all = 0.0f;
#pragma unroll 1
        for (int first = 0; first < STEP; first += HALF_STEP) {
            float sum[HALF_STEP] = {};
#pragma unroll 1
            for (int g = 0; g < KEY_GROUPS; g++) {
                float u[2];
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int channel = g * 64 + 2 * lane_id() + c;
                    u[c] = channel < cfg::D ? variant::bonus(p.x, p.z, w.head, channel) : 0.0f;
                }
#pragma unroll
                for (int i = 0; i < HALF_STEP; i++) {
                    float q[2];
                    float k[2];
                    load_pair(pair_address(step + step_layout::Q, first + i, g), q[0], q[1]);
                    load_pair(pair_address(step + step_layout::K, first + i, g), k[0], k[1]);
                    sum[i] += q[0] * u[0] * k[0] + q[1] * u[1] * k[1];
                }
            }
            const float one = sum_of_half(sum);
            all = first == 0 || (lane_id() & HALF_STEP) != 0 ? one : all;
        }
        return all;
    }
    // s += q k' over the channels of a group.
    DEV void multiply(float (&s)[2][4], u32 step, int group)
    {
        const u32 q = step + step_layout::Q + lane_offset_a<KEY_PAD>(lane_id(), 0);
        const u32 k = step + step_layout::K + lane_offset_b<KEY_PAD>(lane_id());
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 a[4];
            u32 b[4];
            load_matrix4(a, swizzle<KEY_PAD>::along(q, 8 * group + 2 * i));
            load_matrix4(b, swizzle<KEY_PAD>::along(k, 8 * group + 2 * i));
            mma_16x8x16<operand>(s[0], a, b[0], b[1]);
            mma_16x8x16<operand>(s[1], a, b[2], b[3]);
        }
    }
    // f(sum, row, column), of all pairs of the step.
    template <class F> DEV void each_pair(float (&s)[2][4], const F &f)
    {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f(s[n][i], lane_id() / 4 + i / 2 * 8, n * 8 + lane_id() % 4 * 2 + i % 2);
            }
        }
    }
    // Of a step that is only taken up: keys and factors; `all` gets the logarithms of what it leaves.
    __device__ __forceinline__ void weigh_keys(u32 step, channel_logs &logs, float (&all)[KEY_GROUPS][2]) const
    {
        u32 mild = 0;
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            const bool some = logs.is_mild(g);
            mild |= some ? 1u << g : 0u;
            logs.sum(g);
            weigh_channels<STATES>(step, logs, g, some);
            all[g][0] += logs.end(g, 0);
            all[g][1] += logs.end(g, 1);
        }
        leave_factors(step, logs, mild);
    }
    __device__ __forceinline__ void weigh_keys(u32 step, token_logs &logs, float (&all)[KEY_GROUPS][2]) const
    {
        if constexpr (DECAYS) {
            logs.sum();
            const float end = leave_token_factors(step, logs, 0.0f);
#pragma unroll
            for (int g = 0; g < KEY_GROUPS; g++) {
                all[g][0] += end;
                all[g][1] += end;
            }
        }
    }
    // Returns the logarithm of what the step leaves.
    DEV float leave_token_factors(u32 step, const token_logs &logs, float reads)
    {
        const float all = __shfl_sync(ALL_LANES, logs.x, STEP - 1);
        if (lane_id() < STEP) {
            store_shared(factor_address(step, token_factors::READ + lane_id()), exp2_approx(reads));
            store_shared(factor_address(step, token_factors::WRITE + lane_id()), exp2_approx(all - logs.x));
        } else if (lane_id() == STEP) {
            store_shared(factor_address(step, token_factors::ALL), exp2_approx(all));
        }
        return all;
    }
    // Products of q and k, and what is left of keys when a query reads.
    __device__ __forceinline__ void pairs_of(float (&s)[2][4], u32 step, channel_logs &logs) const
    {
        const u32 sums = step + step_layout::PAIRS;
        u32 mild = 0;
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            const bool some = logs.is_mild(g);
            if (!some) {
                sum_pairs(step + step_layout::Q, step + step_layout::K, sums, logs.x[g], g, mild == (1u << g) - 1u);
            }
            mild |= some ? 1u << g : 0u;
            logs.sum(g);
            weigh_channels<STATES>(step, logs, g, some);
        }
        __syncwarp();
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            if ((mild >> g & 1u) != 0) {
                multiply(s, step, g);
            }
        }
        if (mild != (1u << KEY_GROUPS) - 1u) {
            each_pair(s, [&](float &x, int row, int column) {
                x = (mild != 0 ? x : 0.0f) + load_shared(sums + static_cast<u32>(4 * (row * STEP + column)));
            });
            __syncwarp();
        }
        leave_factors(step, logs, mild);
    }
    __device__ __forceinline__ void pairs_of(float (&s)[2][4], u32 step, token_logs &logs) const
    {
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            multiply(s, step, g);
        }
        if constexpr (DECAYS) {
            logs.sum();
            const float before = __shfl_up_sync(ALL_LANES, logs.x, 1, STEP);
            const float reads = !cfg::BONUS ? logs.x : lane_id() % STEP > 0 ? before : 0.0f;
            each_pair(s, [&](float &x, int row, int column) {
                const float log = __shfl_sync(ALL_LANES, reads, row) - __shfl_sync(ALL_LANES, logs.x, column);
                x *= exp2_approx(column < row || (column == row && !cfg::BONUS) ? log : 0.0f);
            });
            (void)leave_token_factors(step, logs, reads);
        }
    }
    // q, k and v of the step have come.
    __device__ __forceinline__ void prepare(int number, logs_type &logs) const
    {
        const u32 step = step_address(shared, number, own);
        float s[2][4] = {};
        float bonus = 0.0f;
        if constexpr (cfg::BONUS) {
            bonus = own_weights(step);
        }
        pairs_of(s, step, logs);
        each_pair(s, [&](float &x, int row, int column) {
            x = column < row || (column == row && !cfg::BONUS) ? w.scale * x : 0.0f;
            if constexpr (cfg::BONUS) {
                const float alone = __shfl_sync(ALL_LANES, bonus, row);
                x = column == row ? w.scale * alone : x;
            }
        });
        const u32 to = step + static_cast<u32>(step_layout::PAIRS + 16 * lane_id());
#pragma unroll
        for (int i = 0; i < 4; i++) {
            store_shared(to + static_cast<u32>(4 * i), pack<operand>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]));
        }
    }
    // By how much the piece decays what was there.
    DEV void store_logs(const float (&all)[KEY_GROUPS][2], float *to)
    {
#pragma unroll
        for (int g = 0; DECAYS && g < KEY_GROUPS; g++) {
            store_vec<2, float>(to + g * 64 + 2 * lane_id(), all[g]);
        }
    }
    // to: of what STATES leaves, this piece's part.
    __device__ __forceinline__ void run(float *to) const
    {
        float all[KEY_GROUPS][2] = {};
        const int count = walk.count();
#pragma unroll
        for (int number = 0; number < STAGES - 1; number++) {
            if (number < count) {
                load(number);
            }
            copy_commit();
        }
#pragma unroll 1
        for (int number = 0; number < count; number++) {
            const int place = walk.place(number, own);
            const bool some = cfg::CAUSAL && place < w.s.length;
            logs_type logs;
            if (some) {
                logs.fetch(p, w, place);
            }
            copy_wait<STAGES - 2>();
            __syncwarp();
            if constexpr (STATES) {
                if (some) {
                    weigh_keys(step_address(shared, number, own), logs, all);
                }
            } else if (some) {
                prepare(number, logs);
            }
            barrier_arrive(prepared(number), BLOCK_THREADS);
            const int next = number + STAGES - 1;
            if (next < count) {
                if (next >= STAGES) {
                    barrier_sync(free_again(next), BLOCK_THREADS);
                }
                load(next);
            }
            copy_commit();
        }
        if constexpr (STATES) {
            store_logs(all, to + part_layout::LOGS + own * KEY_PAD);
        }
    }
};

} // namespace linear
