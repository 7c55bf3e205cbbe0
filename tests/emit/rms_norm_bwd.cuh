// variant.gen.cuh: written by lathe 0.1.0 from rms_norm.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    float in_offset;
    const bf16 *in_weight;
    int s0_weight;
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
static_assert(sizeof(rows_params) == 312, "host and device disagree about rows_params");

struct rows_sum_params {
    const float *columns;
    const float *sums;
    const float *scattered[1];
    row_sizes z;
    row_gradient grad[1];
    inputs x;
};
static_assert(sizeof(rows_sum_params) == 136, "host and device disagree about rows_sum_params");

struct variant {
    static constexpr int IN = 2, OUT = 1, KEPT = 0;
    using in_types = type_list<bf16, bf16>;
    using out_types = type_list<bf16>;
    static constexpr int COLUMNS = 1, SUMS = 0, SITES = 1, GRADS = 1;
    static constexpr int SITE_GRAD[] = {0};
    static constexpr int SITE_SLOT[] = {0};
    static constexpr bool SITE_COLUMN[] = {1};
    static constexpr bool SITE_SCATTERED[] = {0};
    static constexpr int GRAD_DIMS = 1, SUM_SHARES = 8, SUM_ROUND = 6;
    struct head {
        float f0;
    };
    DEV head make_head(const inputs &x, const row_sizes &z)
    {
        head h;
        const float t0 = (float)(z.n);  // rms_norm.lua:5
        h.f0 = t0;
        return h;
    }
    struct col {
        float f0;
    };
    static constexpr bool COLS = true;
    static constexpr bool REDUCE_COLS = true;
    template <int V> DEV void make_cols(const inputs &x, const row_sizes &z, const head &h, int first, col (&cols)[V])
    {
        [[maybe_unused]] const int i = first;
        float u12[V];
        m_load_columns<V, COLUMNS_APART>(x.in_weight, x.s0_weight, i, z.n, u12);
#pragma unroll
        for (int k = 0; k < V; k++) {
        [[maybe_unused]] const int i = first + k;
        col &c = cols[k];
        const float t0 = (x.in_offset + u12[k]);  // rms_norm.lua:6
        c.f0 = t0;
        }
    }
    struct vals {
        int row;
        float given[1];
        float f0;
        float f1;
        float f2;
    };
    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const row_sizes &z = p.z;
        v.row = at.row;
        v.given[0] = static_cast<const float *>(p.given[0].data)[at.row0 * p.given[0].stride[0] + at.row1 * p.given[0].stride[1] + at.row2 * p.given[0].stride[2]];
        const float t0 = (v.given[0] * v.given[0]);  // rms_norm.lua:5
        const float t1 = (v.given[0] * t0);  // rms_norm.lua:5
        const float t2 = (-0x1.000000p-1f /* -0.5 */ * t1);  // rms_norm.lua:5
        v.f0 = t2;
    }
    static constexpr int PASSES = 1, REDUCTIONS = 1;
    static constexpr int REDUCE_PASS[] = {0};
    static constexpr int REDUCE_OP[] = {RED_SUM};
    template <int R> DEV float operand(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        if constexpr (R == 0) {
        const float t0 = (c.f0 * e[1]);  // rms_norm.lua:6
        const float t1 = (e[0] * t0);  // rms_norm.lua:6
        return t1;
        }
        return e[0];
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
        if constexpr (P == 0) {
        const float t0 = (red[0] * v.f0);  // rms_norm.lua:6
        const float t1 = m_div(t0, h.f0);  // rms_norm.lua:6
        const float t2 = (2.0f * t1);  // rms_norm.lua:6
        v.f1 = t2;
        v.f2 = red[0];
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
        const float t0 = (c.f0 * e[1]);  // rms_norm.lua:6
        const float t1 = (v.given[0] * t0);  // rms_norm.lua:6
        const float t2 = (e[0] * v.f1);  // rms_norm.lua:6
        const float t3 = (t1 + t2);  // rms_norm.lua:6
        const float t4 = (e[0] * v.given[0]);  // rms_norm.lua:6
        const float t5 = (e[1] * t4);  // rms_norm.lua:6
        y[0] = t3;
        site[0] = t5;
    }
    static constexpr int SCATTERS = 0;
    static constexpr bool SCATTER_EXACT = false;
    static constexpr int SCATTER_TO[] = {0};
    template <int K> DEV bool scatter(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, const scatter_target &t, float &value, long long &place)
    {
        return false;
    }
    DEV void keep_row(const inputs &x, const row_sizes &z, const head &h, const vals &v, float *to)
    {
    }
    DEV void sums(const inputs &x, const row_sizes &z, const head &h, const vals &v, float *to)
    {
    }
    template <int S> DEV int column_of(const row_gradient &g, const inputs &x, const row_sizes &z, const head &h, long long outer, long long last)
    {
        if constexpr (S == 0) { // dweight
        long long at = 0;
        return outer == at && last < z.n ? (int)last : -1;
        }
        return -1;
    }
    static_assert(sizeof(vals) <= 20, "host and device disagree about a row's values");
};
