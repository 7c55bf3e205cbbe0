// variant.gen.cuh: written by lathe 0.1.0 from group_rms_norm.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    int in_channels;
    int in_groups;
    const bf16 *in_weight;
    int s0_weight;
    int n0_weight;
    int s1_weight;
    int n1_weight;
};

struct rows_params {
    row_source in[2];
    row_target out[1];
    row_source given[1];
    row_target kept[1];
    float *columns;
    float *sums;
    void *values;
    void *carries;
    scatter_target scatter[1];
    row_sizes z;
    inputs x;
};
static_assert(sizeof(rows_params) == 320, "host and device disagree about rows_params");

struct rows_sum_params {
    const float *columns;
    const float *sums;
    const float *scattered[1];
    row_sizes z;
    row_gradient grad[1];
    inputs x;
};
static_assert(sizeof(rows_sum_params) == 144, "host and device disagree about rows_sum_params");

struct variant {
    static constexpr int IN = 2, OUT = 1, KEPT = 0;
    using in_types = type_list<bf16, bf16>;
    using out_types = type_list<bf16>;
    static constexpr int COLUMNS = 0, SUMS = 0, SITES = 1, GRADS = 1;
    static constexpr int SITE_GRAD[] = {0};
    static constexpr int SITE_SLOT[] = {0};
    static constexpr bool SITE_COLUMN[] = {0};
    static constexpr bool SITE_SCATTERED[] = {1};
    static constexpr int GRAD_DIMS = 2, SUM_SHARES = 1, SUM_ROUND = 1;
    struct head {
        int f0;
        float f1;
    };
    DEV head make_head(const inputs &x, const row_sizes &z)
    {
        head h;
        int t0 = m_floordiv(z.n, x.in_channels);  // group_rms_norm.lua:7
        h.f0 = t0;
        const float t1 = (float)(z.n);  // group_rms_norm.lua:6
        h.f1 = t1;
        return h;
    }
    struct col {
        float g0;
        int f0;
    };
    static constexpr bool COLS = true;
    static constexpr bool REDUCE_COLS = true;
    template <int V> DEV void make_cols(const inputs &x, const row_sizes &z, const head &h, int first, col (&cols)[V])
    {
        [[maybe_unused]] const int i = first;
        int u16[V];
        m_floordiv_columns<V>(i, h.f0, u16);
#pragma unroll
        for (int k = 0; k < V; k++) {
        [[maybe_unused]] const int i = first + k;
        col &c = cols[k];
        c.f0 = u16[k];
        }
    }
    struct vals {
        int row;
        float given[1];
        int f0;
        float f1;
        float f2;
        float f3;
    };
    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const row_sizes &z = p.z;
        v.row = at.row;
        v.given[0] = static_cast<const float *>(p.given[0].data)[at.row0 * p.given[0].stride[0] + at.row1 * p.given[0].stride[1] + at.row2 * p.given[0].stride[2]];
        int t0 = m_floormod(v.row, x.in_groups);  // group_rms_norm.lua:7
        v.f0 = t0;
        const float t1 = (v.given[0] * v.given[0]);  // group_rms_norm.lua:6
        const float t2 = (v.given[0] * t1);  // group_rms_norm.lua:6
        const float t3 = (-0x1.000000p-1f /* -0.5 */ * t2);  // group_rms_norm.lua:6
        v.f1 = t3;
    }
    static constexpr int PASSES = 1, REDUCTIONS = 1;
    static constexpr int REDUCE_PASS[] = {0};
    static constexpr int REDUCE_OP[] = {RED_SUM};
    static constexpr int CELLS = 1;
    template <int V> DEV void make_cells(const inputs &x, const row_sizes &z, const head &h, const vals &v, col (&cols)[V])
    {
        if ((h.f0 % V == 0 || cols[0].f0 == cols[V - 1].f0)) {
        col &c = cols[0];
        const float t0 = m_load(x.in_weight, (long long)m_clamp_index(v.f0, x.n0_weight) * x.s0_weight + (long long)m_clamp_index(c.f0, x.n1_weight) * x.s1_weight);  // group_rms_norm.lua:7
        c.g0 = t0;
#pragma unroll
        for (int k = 1; k < V; k++) {
            cols[k].g0 = c.g0;
        }
        } else {
#pragma unroll
        for (int k = 0; k < V; k++) {
        col &c = cols[k];
        const float t0 = m_load(x.in_weight, (long long)m_clamp_index(v.f0, x.n0_weight) * x.s0_weight + (long long)m_clamp_index(c.f0, x.n1_weight) * x.s1_weight);  // group_rms_norm.lua:7
        c.g0 = t0;
        }
        }
    }
    template <int R> DEV float operand(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        if constexpr (R == 0) {
        const float t0 = (c.g0 * e[1]);  // group_rms_norm.lua:7
        const float t1 = (e[0] * t0);  // group_rms_norm.lua:7
        return t1;
        }
        return e[0];
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
        if constexpr (P == 0) {
        const float t0 = (red[0] * v.f1);  // group_rms_norm.lua:7
        const float t1 = m_div(t0, h.f1);  // group_rms_norm.lua:7
        const float t2 = (2.0f * t1);  // group_rms_norm.lua:7
        v.f2 = t2;
        v.f3 = red[0];
        }
    }
    static constexpr int SCANS = 0, WALKS = 0, CHUNK = 4096;
    static constexpr int SCAN_FORM[] = {0};
    static constexpr int SCAN_WALK[] = {0};
    static constexpr int SCAN_STARTS[] = {0};
    static constexpr bool COLS_BESIDE_STARTS = true;
    static constexpr int SCAN_BESIDE[] = {0};
    static constexpr bool WALK_REVERSE[] = {0};
    template <int S> DEV void scan_term(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, scan_input &to)
    {
    }
    DEV void output(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, float *y, float *site)
    {
        const float t0 = (c.g0 * e[1]);  // group_rms_norm.lua:7
        const float t1 = (v.given[0] * t0);  // group_rms_norm.lua:7
        const float t2 = (e[0] * v.f2);  // group_rms_norm.lua:7
        const float t3 = (t1 + t2);  // group_rms_norm.lua:7
        y[0] = t3;
    }
    static constexpr int SCATTERS = 1;
    static constexpr bool SCATTER_EXACT = false;
    static constexpr int SCATTER_TO[] = {0};
    static constexpr bool SCATTER_STEADY[] = {1};
    template <int K> DEV bool scatter(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, const scatter_target &t, float &value, long long &place)
    {
        if constexpr (K == 0) { // dweight
        const float t0 = (e[0] * v.given[0]);  // group_rms_norm.lua:7
        const float t1 = (e[1] * t0);  // group_rms_norm.lua:7
        value = t1;
        place = 0;
        place = place * t.n[0] + m_clamp_index(v.f0, (int)t.n[0]);
        place = place * t.n[1] + m_clamp_index(c.f0, (int)t.n[1]);
        return true;
        }
        return false;
    }
    DEV void keep_row(const inputs &x, const row_sizes &z, const head &h, const vals &v, float *to)
    {
    }
    DEV void sums(const inputs &x, const row_sizes &z, const head &h, const vals &v, float *to)
    {
    }
    static constexpr int KEYS = 1;
    DEV void keys(const inputs &x, const row_sizes &z, const head &h, const vals &v, int *to)
    {
        to[0] = v.f0;
    }
    template <int S> DEV int column_of(const row_gradient &g, const inputs &x, const row_sizes &z, const head &h, long long outer, long long last)
    {
        return -1;
    }
    static_assert(sizeof(vals) <= 24, "host and device disagree about a row's values");
};
