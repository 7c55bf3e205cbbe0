// stub of the generated header: specs/layer_norm.lua, backward
#pragma once
#include "common/contract.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const bf16 *in_weight;
    int s0_weight;
};

struct rows_params {
    row_source in[2];
    row_target out[1];
    row_source given[2];
    row_target kept[1];
    float *columns;
    float *sums;
    void *values;
    void *carries;
    scatter_target scatter[1];
    row_sizes z;
    inputs x;
};
static_assert(sizeof(rows_params) == 344, "host and device disagree about rows_params");

struct rows_sum_params {
    const float *columns;
    const float *sums;
    const float *scattered[1];
    row_sizes z;
    row_gradient grad[2];
    inputs x;
};
static_assert(sizeof(rows_sum_params) == 200, "host and device disagree about rows_sum_params");

struct variant {
    static constexpr int IN = 2, OUT = 1, KEPT = 0;
    using in_types = type_list<bf16, bf16>;
    using out_types = type_list<bf16>;
    static constexpr int COLUMNS = 2, SUMS = 0, SITES = 2, GRADS = 2;
    static constexpr int SITE_GRAD[] = {0, 1};
    static constexpr int SITE_SLOT[] = {0, 1};
    static constexpr bool SITE_COLUMN[] = {1, 1};
    static constexpr bool SITE_SCATTERED[] = {0, 0};
    static constexpr int GRAD_DIMS = 1, SUM_SHARES = 8, SUM_ROUND = 6;
    struct head {
        float f0;
    };
    DEV head make_head(const inputs &x, const row_sizes &z)
    {
        head h;
        const float t0 = (float)(z.n);
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
        float u14[V];
        m_load_columns<V>(x.in_weight, x.s0_weight, i, z.n, u14);
#pragma unroll
        for (int k = 0; k < V; k++) {
        [[maybe_unused]] const int i = first + k;
        col &c = cols[k];
        c.f0 = u14[k];
        }
    }
    struct vals {
        int row;
        float given[2];
        float f0;
        float f1;
        float f2;
        float f3;
        float f4;
        float f5;
    };
    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const row_sizes &z = p.z;
        v.row = at.row;
        v.given[0] = static_cast<const float *>(p.given[0].data)[at.row0 * p.given[0].stride[0] + at.row1 * p.given[0].stride[1] + at.row2 * p.given[0].stride[2]];
        v.given[1] = static_cast<const float *>(p.given[1].data)[at.row0 * p.given[1].stride[0] + at.row1 * p.given[1].stride[1] + at.row2 * p.given[1].stride[2]];
        const float t0 = (v.given[1] * v.given[1]);
        const float t1 = (v.given[1] * t0);
        const float t2 = (-0x1.000000p-1f /* -0.5 */ * t1);
        v.f0 = t2;
    }
    static constexpr int PASSES = 1, REDUCTIONS = 3;
    static constexpr int REDUCE_PASS[] = {0, 0, 0};
    static constexpr int REDUCE_OP[] = {RED_SUM, RED_SUM, RED_SUM};
    template <int R> DEV float operand(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        if constexpr (R == 0) {
        const float t0 = (c.f0 * e[1]);
        const float t1 = (e[0] - v.given[0]);
        const float t2 = (t0 * t1);
        return t2;
        }
        if constexpr (R == 1) {
        const float t0 = (e[0] - v.given[0]);
        return t0;
        }
        if constexpr (R == 2) {
        const float t0 = (c.f0 * e[1]);
        return t0;
        }
        return e[0];
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
        if constexpr (P == 0) {
        const float t0 = (red[0] * v.f0);
        const float t1 = m_div(t0, h.f0);
        v.f1 = t1;
        const float t2 = (t1 * red[1]);
        const float t3 = (v.given[1] * red[2]);
        const float t4 = (t2 + t3);
        const float t5 = (t2 + t4);
        const float t6 = (-1.0f * t5);
        const float t7 = m_div(t6, h.f0);
        v.f2 = t7;
        v.f3 = red[0];
        v.f4 = red[1];
        v.f5 = red[2];
        }
    }
    static constexpr int SCANS = 0, WALKS = 0, CHUNK = 1024;
    static constexpr int SCAN_FORM[] = {0};
    static constexpr int SCAN_WALK[] = {0};
    static constexpr int SCAN_STARTS[] = {0};
    static constexpr bool COLS_BESIDE_STARTS = false;
    static constexpr int SCAN_BESIDE[] = {0};
    static constexpr bool WALK_REVERSE[] = {0};
    template <int S> DEV void scan_term(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, scan_input &to)
    {
    }
    DEV void output(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, float *y, float *site)
    {
        const float t0 = (c.f0 * e[1]);
        const float t1 = (e[0] - v.given[0]);
        const float t2 = (v.given[1] * t0);
        const float t3 = (t1 * v.f1);
        const float t4 = (t2 + t3);
        const float t5 = (t3 + t4);
        const float t6 = (v.given[1] * t1);
        const float t7 = (e[1] * t6);
        const float t8 = (t5 + v.f2);
        y[0] = t8;
        site[0] = e[1];
        site[1] = t7;
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
        if constexpr (S == 0) { // dbias
        long long at = 0;
        return outer == at && last < z.n ? (int)last : -1;
        }
        if constexpr (S == 1) { // dweight
        long long at = 0;
        return outer == at && last < z.n ? (int)last : -1;
        }
        return -1;
    }
    static_assert(sizeof(vals) <= 36, "host and device disagree about a row's values");
};
