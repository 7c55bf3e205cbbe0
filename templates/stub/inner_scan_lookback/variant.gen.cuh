// stub of the generated header: specs/cumsum_packed.lua, forward
#pragma once
#include "common/contract.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const int *in_since;
    int s0_since;
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
static_assert(sizeof(rows_params) == 264, "host and device disagree about rows_params");

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
        float f0;
    };
    static constexpr bool COLS = true;
    static constexpr bool REDUCE_COLS = false;
    template <int V> DEV void make_cols(const inputs &x, const row_sizes &z, const head &h, int first, col (&cols)[V])
    {
        [[maybe_unused]] const int i = first;
        int u2[V];
        m_load_columns<V>(x.in_since, x.s0_since, i, z.n, u2);
#pragma unroll
        for (int k = 0; k < V; k++) {
        [[maybe_unused]] const int i = first + k;
        col &c = cols[k];
        bool t0 = (u2[k] == 0);  // cumsum_packed.lua:5
        const float t1 = (t0 ? 1.0f : 0.0f);  // cumsum_packed.lua:5
        c.f0 = t1;
        }
    }
    struct vals {
        int row;
    };
    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const row_sizes &z = p.z;
        v.row = at.row;
    }
    static constexpr int PASSES = 0, REDUCTIONS = 0;
    static constexpr int REDUCE_PASS[] = {-1};
    static constexpr int REDUCE_OP[] = {RED_SUM};
    template <int R> DEV float operand(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        return e[0];
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
    }
    static constexpr int SCANS = 1, WALKS = 1, CHUNK = 16;
    static constexpr int SCAN_FORM[] = {0};
    static constexpr int SCAN_WALK[] = {0};
    static constexpr int SCAN_STARTS[] = {1};
    static constexpr int SCAN_START_OF[] = {0};
    static constexpr bool COLS_BESIDE_STARTS = false;
    static constexpr int SCAN_BESIDE[] = {-1};
    static constexpr bool WALK_REVERSE[] = {0};
    template <int S> DEV void scan_term(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, scan_input &to)
    {
        if constexpr (S == 0) {
        to.value = e[0];
        to.start = c.f0 != 0.0f;
        }
    }
    DEV void output(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v, const float *q, float *y, float *site)
    {
        y[0] = q[0];
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
    static_assert(sizeof(vals) <= 4, "host and device disagree about a row's values");
};
