// Stub: what the generator writes for the combine pass of specs/causal.lua.
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct inputs {
};

struct combine_params {
    const float *part_o;
    long long part_o_p, part_o_b, part_o_h, part_o_t;
    const float *part_rows;
    long long part_rows_p, part_rows_b, part_rows_h, part_rows_t;
    void *o;
    long long o_b, o_h, o_t;
    sizes z;
    int parts;
    float *final0;
    long long final0_b, final0_h, final0_t;
    inputs x;
};
static_assert(sizeof(combine_params) == 184, "host and device disagree about combine_params");

struct variant {
    struct head {
        int b, h, h_kv;
    };
    DEV head make_head(const inputs &, const sizes &z, int b, int h) { return {b, h, z.key_head(h)}; }

    struct row {
        int row, q;
    };
    DEV row make_row(const inputs &, const sizes &z, const head &, int row) { return {row, row + z.q_start}; }

    struct state {
        float s0; // l
        float s1; // m
    };
    DEV state init(bool) { return {0.0f, -INF}; }
    static constexpr int FINALS = 1;
    DEV float finish(const state &s, float *finals, const inputs &, const sizes &, const head &, const row &)
    {
        finals[0] = s.s1 + m_log(s.s0); // lse
        return 1.0f / s.s0;
    }
    DEV void empty_finals(float *finals, const inputs &, const sizes &, const head &, const row &) { finals[0] = -INF; }
    DEV void store_finals(const combine_params &p, int b, int h, int row, const float *finals)
    {
        if (p.final0) {
            p.final0[b * p.final0_b + h * p.final0_h + row * p.final0_t] = finals[0];
        }
    }
    static constexpr int STATES = 2;
    struct merge { // states of the parts of a row
        static constexpr int PASSES = 2, REDUCTIONS = 2;
        static constexpr int REDUCE_PASS[] = {0, 1};
        static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM};
        float red[2];
        DEV float weight(const state &s, const merge &t) { return m_exp2((s.s1 - (t.red[0] == -INF ? 0.0f : t.red[0])) * 0x1.715476p0f); }
        template <int R> DEV float operand(const state &s, const merge &t, const inputs &, const sizes &)
        {
            return R == 0 ? s.s1 : s.s0 * weight(s, t);
        }
        DEV float factor(const state &s, const merge &t, const inputs &, const sizes &) { return weight(s, t); }
        DEV state merged(const merge &t, const inputs &, const sizes &) { return {t.red[1], t.red[0]}; }
        DEV void write(const state &s, float *to)
        {
            to[0] = s.s0;
            to[1] = s.s1;
        }
        DEV state read(const float *from) { return {from[0], from[1]}; }
    };
    using query_mod = no_mod;
    using key_mod = no_mod;
    using value_mod = no_mod;
    using output_mod = no_mod;
};
