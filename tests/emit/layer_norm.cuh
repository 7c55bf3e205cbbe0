// variant.gen.cuh: written by lathe 0.1.0 from layer_norm.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const bf16 *in_bias;
    int s0_bias;
    float in_eps;
    const bf16 *in_weight;
    int s0_weight;
};

struct rowwise_params {
    const void *x;
    void *y;
    long long x_0;
    long long x_1;
    long long x_2;
    long long y_0;
    long long y_1;
    long long y_2;
    row_sizes z;
    float *stat0;
    long long stat0_0;
    long long stat0_1;
    long long stat0_2;
    float *stat1;
    long long stat1_0;
    long long stat1_1;
    long long stat1_2;
    inputs in;
};
static_assert(sizeof(rowwise_params) == 176, "host and device disagree about rowwise_params");

struct variant {
    struct head {
        float f0;
    };
    DEV head make_head(const inputs &x, const row_sizes &z)
    {
        head h;
        const float t0 = (float)(z.n);  // layer_norm.lua:5
        h.f0 = t0;
        return h;
    }
    struct col {
        float f0;
        float f1;
    };
    static constexpr bool COLS = true;
    static constexpr bool REDUCE_COLS = false;
    template <int V> DEV void make_cols(const inputs &x, const row_sizes &z, const head &h, int first, col (&cols)[V])
    {
        [[maybe_unused]] const int i = first;
        float u14[V];
        m_load_columns<V>(x.in_weight, x.s0_weight, i, z.n, u14);
        float u16[V];
        m_load_columns<V>(x.in_bias, x.s0_bias, i, z.n, u16);
#pragma unroll
        for (int k = 0; k < V; k++) {
        [[maybe_unused]] const int i = first + k;
        col &c = cols[k];
        c.f0 = u14[k];
        c.f1 = u16[k];
        }
    }
    struct vals {
        int row;
        float f0;
        float f1;
        float f2;
        float f3;
    };
    DEV void begin(vals &v, const inputs &x, const row_sizes &z, const head &h, int row)
    {
        v.row = row;
    }
    static constexpr int PASSES = 2, REDUCTIONS = 2;
    static constexpr int REDUCE_PASS[] = {0, 1};
    static constexpr int REDUCE_OP[] = {RED_SUM, RED_SUM};
    template <int R> DEV float operand(float e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        if constexpr (R == 0) {
        return e;
        }
        if constexpr (R == 1) {
        const float t0 = (e - v.f0);  // layer_norm.lua:6
        const float t1 = (t0 * t0);  // layer_norm.lua:6
        return t1;
        }
        return e;
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
        if constexpr (P == 0) {
        const float t0 = m_div(red[0], h.f0);  // layer_norm.lua:5
        v.f0 = t0;
        v.f2 = red[0];
        }
        if constexpr (P == 1) {
        const float t0 = m_div(red[1], h.f0);  // layer_norm.lua:6
        const float t1 = (t0 + x.in_eps);  // layer_norm.lua:6
        const float t2 = m_rsqrt(t1);  // layer_norm.lua:6
        v.f1 = t2;
        v.f3 = red[1];
        }
    }
    DEV float output(float e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        const float t0 = (e - v.f0);  // layer_norm.lua:6
        const float t1 = (t0 * v.f1);  // layer_norm.lua:7
        const float t2 = (t1 * c.f0);  // layer_norm.lua:7
        const float t3 = (t2 + c.f1);  // layer_norm.lua:7
        return t3;
    }
    static constexpr int STATS = 2;
    DEV void store_stats(const rowwise_params &p, int row0, int row1, int row, const vals &v)
    {
        const inputs &x = p.in;
        const row_sizes &z = p.z;
        const head h = make_head(x, z);
        if (p.stat0) {
            p.stat0[row0 * p.stat0_0 + row1 * p.stat0_1 + row * p.stat0_2] = v.f0; // mean
        }
        if (p.stat1) {
            p.stat1[row0 * p.stat1_0 + row1 * p.stat1_1 + row * p.stat1_2] = v.f1; // rstd
        }
    }
};
