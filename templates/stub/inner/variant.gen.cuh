// stub of the generated header: specs/softmax_inner.lua, forward
#pragma once
#include "common/contract.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    long long none; // an empty struct would have a size of its own
};

struct rows_params {
    row_source in[1];
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
static_assert(sizeof(rows_params) == 256, "host and device disagree about rows_params");

struct rows_sum_params {
    const float *columns, *sums, *scattered[1];
    row_sizes z;
    row_gradient grad[1];
    inputs x;
};

struct variant {
    static constexpr int IN = 1, OUT = 1, KEPT = 0;
    using in_types = type_list<bf16>;
    using out_types = type_list<bf16>;
    static constexpr int COLUMNS = 0, SUMS = 0, SITES = 0, GRADS = 0;
    static constexpr int SITE_GRAD[] = {0};
    static constexpr int SITE_SLOT[] = {0};
    static constexpr bool SITE_COLUMN[] = {0};
    static constexpr bool SITE_SCATTERED[] = {0};
    static constexpr int GRAD_DIMS = 0, SUM_SHARES = 1, SUM_ROUND = 1;
    struct head {
        int none;
    };
    DEV head make_head(const inputs &x, const row_sizes &z)
    {
        head h;
        h.none = 0;
        return h;
    }
    struct col {
    };
    static constexpr bool COLS = false;
    static constexpr bool REDUCE_COLS = false;
    template <int V> DEV void make_cols(const inputs &x, const row_sizes &z, const head &h, int first, col (&cols)[V])
    {
    }
    struct vals {
        int row;
        float f0;
        float f1;
    };
    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const row_sizes &z = p.z;
        v.row = at.row;
    }
    static constexpr int PASSES = 2, REDUCTIONS = 2;
    static constexpr int REDUCE_PASS[] = {0, 1};
    static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM};
    template <int R> DEV float operand(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        if constexpr (R == 0) {
        return e[0];
        }
        if constexpr (R == 1) {
        const float t0 = (e[0] - v.f0);  // softmax_inner.lua:5
        const float t1 = (t0 * 0x1.715476p0f /* 1.442695 */);  // softmax_inner.lua:5
        const float t2 = m_exp2(t1);  // softmax_inner.lua:5
        return t2;
        }
        return e[0];
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
        if constexpr (P == 0) {
        v.f0 = red[0];
        }
        if constexpr (P == 1) {
        v.f1 = red[1];
        }
    }
    static constexpr int SCANS = 0, WALKS = 0, CHUNK = 4096;
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
        const float t0 = (e[0] - v.f0);  // softmax_inner.lua:5
        const float t1 = (t0 * 0x1.715476p0f /* 1.442695 */);  // softmax_inner.lua:5
        const float t2 = m_exp2(t1);  // softmax_inner.lua:5
        const float t3 = m_div(t2, v.f1);  // softmax_inner.lua:5
        y[0] = t3;
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
        return -1;
    }
    static_assert(sizeof(vals) <= 12, "host and device disagree about a row's values");
};
