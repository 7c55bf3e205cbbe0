// linear/additive_walk.cuh: the second job of linear/additive.cuh: a warp has 16 columns of the state, all rows of
// them, in f32 fragments of mma.sync, and goes with them from step to step: o = q S + pairs v, S += k' v.
#pragma once
#include "linear/additive_tiles.cuh"
#include "linear/kept.cuh"
#include "linear/state_columns.cuh"

namespace linear
{

template <bool STATES> struct state_job {
    using operand = cfg::operand;
    const linear_params &p;
    const work &w;
    walk_plan<STATES> walk;
    u32 shared;
    int own; // this warp's number; COLUMN_WARPS: of the sum of keys, whose values are 1

    __device__ __forceinline__ bool is_sum() const { return cfg::NORMALISE && own == COLUMN_WARPS; }
    __device__ __forceinline__ int first() const { return 16 * own; } // column of the block

    // o = q S of a step
    __device__ __forceinline__ void read(float (&o)[2][4], const state_columns &s, u32 step) const
    {
        const float by = s.nearer();
        const u32 q = step + step_layout::Q + lane_offset_a<KEY_PAD>(lane_id(), 0);
        float part[2][2][4] = {}; // of even and odd channels, 16 of them: chains of sums half as long
#pragma unroll
        for (int k = 0; k < KEY_PAD / 16; k++) {
            u32 a[4];
            u32 b[4];
            load_matrix4(a, swizzle<KEY_PAD>::along(q, 2 * k));
            s.pack_rows(b, k, by);
            mma_16x8x16<operand>(part[k % 2][0], a, b[0], b[1]);
            mma_16x8x16<operand>(part[k % 2][1], a, b[2], b[3]);
        }
        const float back = state_columns::SCALED ? w.scale / by : w.scale;
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[n][i] = back * (part[0][n][i] + part[1][n][i]);
            }
        }
    }
    DEV void scale_tokens(float (&o)[2][4], u32 factors)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float by = load_shared(factors + static_cast<u32>(4 * (lane_id() / 4 + 8 * r)));
#pragma unroll
            for (int n = 0; n < 2; n++) {
                o[n][2 * r] *= by;
                o[n][2 * r + 1] *= by;
            }
        }
    }
    // Values of the step: matrices of tokens 0 .. 7 and 8 .. 15 of 8 columns, then of the other 8.
    __device__ __forceinline__ void load_values(u32 (&v)[4], u32 step) const
    {
        if (is_sum()) {
            v[0] = v[1] = lane_id() < 4 ? pack<operand>(1.0f, 1.0f) : 0u;
            v[2] = v[3] = 0u;
        } else {
            load_matrix4_transposed(v, step + step_layout::V +
                                           swizzle<VALUE_PAD>::offset(lane_id() & 15, first() / 8 + (lane_id() >> 4)));
        }
    }
    DEV void add_pairs(float (&o)[2][4], const u32 (&v)[4], u32 step)
    {
        const uint4 four = load_shared16(step + static_cast<u32>(step_layout::PAIRS + 16 * lane_id()));
        const u32 a[4] = {four.x, four.y, four.z, four.w};
        mma_16x8x16<operand>(o[0], a, v[0], v[1]);
        mma_16x8x16<operand>(o[1], a, v[2], v[3]);
    }
    // Values as the state takes them up: by what is left of them at the step's end.
    DEV void weigh_values(u32 (&v)[4], u32 step)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 by = load_shared8(factor_address(step, token_factors::WRITE + 8 * half + lane_id() % 4 * 2));
#pragma unroll
            for (int i = half; i < 4; i += 2) {
                float low;
                float high;
                unpack<operand>(v[i], low, high);
                v[i] = pack<operand>(low * by.x, high * by.y);
            }
        }
    }
    // S += k' v
    DEV void write(state_columns &s, const u32 (&v)[4], u32 step)
    {
        const u32 a[4] = {v[0], v[2], v[1], v[3]};
        const u32 k = step + step_layout::K + lane_offset_b_transposed<KEY_PAD>(lane_id());
#pragma unroll
        for (int n = 0; n < state_columns::BLOCKS; n += 2) {
            u32 b[4];
            load_matrix4_transposed(b, swizzle<KEY_PAD>::along(k, n));
            mma_16x8x16<operand>(s.x[n], a, b[0], b[1]);
            mma_16x8x16<operand>(s.x[n + 1], a, b[2], b[3]);
        }
    }
    // With a normaliser: the warp of the sum of keys tells the others.
    __device__ __forceinline__ void divide(float (&o)[2][4], int turn) const
    {
        const u32 divisors = shared + static_cast<u32>(DIVISORS + turn % 2 * STEP * 4);
        if (is_sum() && lane_id() % 4 == 0) {
            store_shared(divisors + static_cast<u32>(4 * (lane_id() / 4)), 1.0f / normaliser(o[0][0]));
            store_shared(divisors + static_cast<u32>(4 * (lane_id() / 4 + 8)), 1.0f / normaliser(o[0][2]));
        }
        barrier_sync(DIVISORS_KNOWN, STATE_THREADS);
        scale_tokens(o, divisors);
    }
    __device__ __forceinline__ i64 output_at(int place) const
    {
        return w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, place) * p.o_t + w.first;
    }
    // o of a step: by way of where this warp's values were, or in f32 as it is.
    __device__ __forceinline__ void store(const float (&o)[2][4], int place, u32 step) const
    {
        if constexpr (cfg::O_F32) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = lane_id() / 4 + i % 2 * 8;
                const int column = first() + i / 2 * 8 + lane_id() % 4 * 2;
                if (w.has(place + row) && column < w.left) {
                    const float two[2] = {o[i / 2][i % 2 * 2], o[i / 2][i % 2 * 2 + 1]};
                    store_any<2, float>(static_cast<float *>(p.o) + output_at(place + row) + column, two);
                }
            }
        } else {
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const u32 at = swizzle<VALUE_PAD>::offset(lane_id() / 4 + i % 2 * 8, first() / 8 + i / 2) +
                               static_cast<u32>(lane_id() % 4 * 4);
                store_shared(step + step_layout::V + at, pack<operand>(o[i / 2][i % 2 * 2], o[i / 2][i % 2 * 2 + 1]));
            }
            __syncwarp();
            const int row = lane_id() / 2;
            const int column = first() + lane_id() % 2 * 8;
            const uint4 four = load_shared16(step + step_layout::V + swizzle<VALUE_PAD>::offset(row, column / 8));
            if (w.has(place + row) && column < w.left) {
                store_row(static_cast<cfg::element_o *>(p.o) + output_at(place + row) + column, four);
            }
        }
    }
    // One step; `turn` counts them.
    __device__ __forceinline__ void take(state_columns &s, int number, int place, u32 step, int turn) const
    {
        u32 v[4];
        if constexpr (DECAY_BY_KEY) {
            s.scale_channels(factor_address(step, channel_factors::HALF));
        }
        if (walk.writes(number)) {
            load_values(v, step);
        }
        if (walk.reads(number)) {
            float o[2][4];
            read(o, s, step);
            if constexpr (DECAYS && !DECAY_BY_KEY) {
                scale_tokens(o, factor_address(step, token_factors::READ));
            }
            if constexpr (cfg::CAUSAL) {
                add_pairs(o, v, step);
            }
            if constexpr (cfg::NORMALISE) {
                divide(o, turn);
            }
            if (!is_sum()) {
                store(o, place, step);
            }
        }
        if (walk.writes(number)) {
            if constexpr (DECAY_BY_KEY) {
                if (load_shared(factor_address(step, channel_factors::HAS_MIDDLE)) > 0.0f) {
                    s.scale_channels(factor_address(step, channel_factors::MIDDLE));
                }
            } else if constexpr (DECAYS) {
                weigh_values(v, step);
                s.scale(load_shared(factor_address(step, token_factors::ALL)));
            }
            write(s, v, step);
            if constexpr (DECAY_BY_KEY) {
                s.scale_channels(factor_address(step, channel_factors::HALF));
            }
        }
    }
    // f(element, its place in memory), of the sum of keys.
    template <class F> DEV void each_of_sum(state_columns &s, i64 s_i, const F &f)
    {
        s.each([&](float &a, int channel, int column) {
            if (channel < cfg::D && column == 0) {
                f(a, channel * s_i);
            }
        });
    }
    __device__ __forceinline__ void load_state(state_columns &s, i64 slot) const
    {
        const cfg::element_state *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
        const cfg::element_state *norm = head_of(p.norm, slot * p.norm_b + w.h * p.norm_h);
        if (is_sum() && norm != nullptr) {
            each_of_sum(s, p.norm_i, [&](float &a, i64 at) { a = to_float(norm[at]); });
        } else if (!is_sum() && from != nullptr) {
            s.each_of_memory(p.state_i, p.state_j, w.first + first(), w.left - first(),
                             [&](float &a, i64 at) { a = to_float(from[at]); });
        }
    }
    __device__ __forceinline__ void store_in(state_columns &s, cfg::element_state *to, i64 s_i, i64 s_j,
                                             cfg::element_state *norm, i64 norm_i) const
    {
        if (is_sum() && norm != nullptr && w.first == 0) {
            each_of_sum(s, norm_i, [&](float &a, i64 at) { norm[at] = from_float<cfg::element_state>(a); });
        } else if (!is_sum() && to != nullptr) {
            s.each_of_memory(s_i, s_j, w.first + first(), w.left - first(),
                             [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
        }
    }
    __device__ __forceinline__ void store_state(state_columns &s, i64 slot) const
    {
        store_in(s, head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h), p.state_out_i, p.state_out_j,
                 head_of(p.norm_out, slot * p.norm_out_b + w.h * p.norm_out_h), p.norm_out_i);
    }
    // f(element of the state, what this lane has of a part).
    template <class F> DEV void each_of_part(state_columns &s, const float *part, const F &f)
    {
#pragma unroll
        for (int n = 0; n < state_columns::BLOCKS; n++) {
            float four[4];
            load_vec<4, float>(part + (n * 32 + lane_id()) * 4, four);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f(s.x[n][i], four[i]);
            }
        }
    }
    DEV void store_part(const state_columns &s, float *part)
    {
#pragma unroll
        for (int n = 0; n < state_columns::BLOCKS; n++) {
            store_vec<4, float>(part + (n * 32 + lane_id()) * 4, s.x[n]);
        }
    }
    // What a piece leaves of the state.
    DEV void decay(state_columns &s, const float *logs)
    {
#pragma unroll
        for (int n = 0; DECAYS && n < state_columns::BLOCKS; n++) {
            float sum[2] = {};
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                float two[2];
                load_vec<2, float>(logs + i * KEY_PAD + n * 8 + lane_id() % 4 * 2, two);
                sum[0] += two[0];
                sum[1] += two[1];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s.x[n][i] *= exp2_approx(sum[i % 2]);
            }
        }
    }
    __device__ __forceinline__ bool has_first() const { return is_sum() ? p.norm != nullptr : p.state != nullptr; }
    // The state ahead of a piece, of the parts of `before` pieces, END floats each, behind the state that was given.
    __device__ __forceinline__ void gather(state_columns &s, const float *parts, int before) const
    {
        if (has_first()) {
            each_of_part(s, parts + own * part_layout::WARP, [](float &a, float x) { a = x; });
        }
#pragma unroll 1
        for (int i = 1; i <= before; i++) {
            const float *part = parts + static_cast<i64>(i) * part_layout::END;
            decay(s, part + part_layout::LOGS);
            each_of_part(s, part + own * part_layout::WARP, [](float &a, float x) { a += x; });
        }
    }
    __device__ __forceinline__ void run(state_columns &s) const
    {
        const int count = walk.count();
#pragma unroll 1
        for (int number = 0, turn = 0; number < count; number++) {
            barrier_sync(prepared(number), BLOCK_THREADS);
#pragma unroll 1
            for (int step = 0; step < STEPS; step++, turn++) {
                const int place = walk.place(number, step);
                if (place < w.s.length) {
                    const int kept = STATES ? -1 : kept_behind<STEP>(p, w, place); // on its way meanwhile
                    take(s, number, place, step_address(shared, number, step), turn);
                    keep_state(p, w, kept,
                               [&](cfg::element_state *to, i64 s_i, i64 s_j, cfg::element_state *norm, i64 norm_i) {
                                   store_in(s, to, s_i, s_j, norm, norm_i);
                               });
                }
            }
            if (number + STAGES < count) {
                barrier_arrive(free_again(number), BLOCK_THREADS);
            }
        }
    }
};

} // namespace linear
