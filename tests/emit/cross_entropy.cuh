// variant.gen.cuh: written by lathe 0.1.0 from cross_entropy.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    int in_ignore;
    float in_smoothing;
    const int *in_target;
    long long s0_target;
    long long s1_target;
    long long s2_target;
};

struct rows_params {
    row_source in[1];
    row_target out[1];
    row_source given[1];
    row_target kept[2];
    float *columns;
    float *sums;
    void *values;
    void *carries;
    scatter_target scatter[1];
    row_sizes z;
    inputs x;
};
static_assert(sizeof(rows_params) == 328, "host and device disagree about rows_params");

struct rows_sum_params {
    const float *columns;
    const float *sums;
    const float *scattered[1];
    row_sizes z;
    row_gradient grad[2];
    inputs x;
};
static_assert(sizeof(rows_sum_params) == 224, "host and device disagree about rows_sum_params");

struct variant {
    static constexpr int IN = 1, OUT = 0, KEPT = 2;
    using in_types = type_list<bf16>;
    using out_types = type_list<float>;
    static constexpr int COLUMNS = 0, SUMS = 2, SITES = 2, GRADS = 2;
    static constexpr int SITE_GRAD[] = {0, 1};
    static constexpr int SITE_SLOT[] = {0, 1};
    static constexpr bool SITE_COLUMN[] = {0, 0};
    static constexpr bool SITE_SCATTERED[] = {0, 0};
    static constexpr int GRAD_DIMS = 0, SUM_SHARES = 8, SUM_ROUND = 7;
    struct head {
        float f0;
        bool f1;
        int f2;
        float f3;
    };
    DEV head make_head(const inputs &x, const row_sizes &z)
    {
        head h;
        const float t0 = (float)(z.n);  // cross_entropy.lua:10
        h.f0 = t0;
        bool t1 = (x.in_smoothing > 0.0f);  // cross_entropy.lua:10
        h.f1 = t1;
        int t2 = m_sub(z.n, 1);  // cross_entropy.lua:11
        h.f2 = t2;
        const float t3 = (1.0f - x.in_smoothing);  // cross_entropy.lua:12
        h.f3 = t3;
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
        int f0;
        float f1;
        bool f2;
        float f3;
        float f4;
        float f5;
        float f6;
        float f7;
        float f8;
        float f9;
        float f10;
    };
    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const row_sizes &z = p.z;
        v.row = at.row;
        int t0 = m_load(x.in_target, at.row0 * x.s0_target + at.row1 * x.s1_target + at.row2 * x.s2_target);  // cross_entropy.lua:8
        v.f0 = t0;
        bool t1 = (t0 != x.in_ignore);  // cross_entropy.lua:11
        int t2 = m_clamp(t0, 0, h.f2);  // cross_entropy.lua:11
        bool t3 = (t0 == t2);  // cross_entropy.lua:11
        bool t4 = (!t1);  // cross_entropy.lua:12
        bool t5 = (t3 | t4);  // cross_entropy.lua:12
        const float t6 = (t5 ? 1.0f : m_nan());  // cross_entropy.lua:12
        v.f1 = t6;
        v.f2 = t1;
        const float t7 = (t1 ? 1.0f : 0.0f);  // cross_entropy.lua:13
        v.f3 = t7;
    }
    static constexpr int PASSES = 2, REDUCTIONS = 4;
    static constexpr int REDUCE_PASS[] = {0, 0, 0, 1};
    static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM, RED_SUM, RED_SUM};
    static constexpr int REDUCE_RAW[] = {0, -1, -1, -1};
    static constexpr bool REDUCE_SOME[] = {0, 1, 1, 0};
    template <int R> DEV bool some(int i, int n, const inputs &x, const row_sizes &z, const head &h, const vals &v)
    {
        if constexpr (R == 1) {
        if (static_cast<unsigned>(v.f0) - static_cast<unsigned>(i) >= static_cast<unsigned>(n)) {
            return false;
        }
        }
        if constexpr (R == 2) {
        return h.f1;
        }
        return true;
    }
    template <int R> DEV float operand(const float *e, int i, const inputs &x, const row_sizes &z, const head &h, const col &c, const vals &v)
    {
        if constexpr (R == 0) {
        return e[0];
        }
        if constexpr (R == 1) {
        bool t0 = (v.f0 == i);  // cross_entropy.lua:9
        const float t1 = (t0 ? e[0] : 0.0f);  // cross_entropy.lua:9
        return t1;
        }
        if constexpr (R == 2) {
        return e[0];
        }
        if constexpr (R == 3) {
        const float t0 = (e[0] - v.f4);  // cross_entropy.lua:7
        const float t1 = (t0 * 0x1.715476p0f /* 1.442695 */);  // cross_entropy.lua:7
        const float t2 = m_exp2(t1);  // cross_entropy.lua:7
        return t2;
        }
        return e[0];
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &x, const row_sizes &z, const head &h)
    {
        if constexpr (P == 0) {
        const float t0 = m_clamp(red[0], -0x1.2ced32p126f /* -1e+38 */, 0x1.2ced32p126f /* 1e+38 */);  // cross_entropy.lua:6
        v.f4 = t0;
        v.f7 = red[0];
        v.f8 = red[1];
        v.f9 = red[2];
        }
        if constexpr (P == 1) {
        const float t0 = (x.in_smoothing * v.f9);  // cross_entropy.lua:10
        const float t1 = m_div(t0, h.f0);  // cross_entropy.lua:10
        const float t2 = (h.f1 ? t1 : 0.0f);  // cross_entropy.lua:10
        const float t3 = (v.f8 * h.f3);  // cross_entropy.lua:12
        const float t4 = m_log(red[3]);  // cross_entropy.lua:7
        const float t5 = (v.f4 + t4);  // cross_entropy.lua:7
        const float t6 = (t5 - t3);  // cross_entropy.lua:12
        const float t7 = (t6 - t2);  // cross_entropy.lua:12
        const float t8 = (v.f1 * t7);  // cross_entropy.lua:12
        const float t9 = (v.f2 ? t8 : 0.0f);  // cross_entropy.lua:12
        v.f5 = t9;
        v.f6 = t5;
        v.f10 = red[3];
        }
    }
    static constexpr int SCANS = 0, WALKS = 0, CHUNK = 2048;
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
        to[0] = v.f5;
        to[1] = v.f6;
    }
    DEV void sums(const inputs &x, const row_sizes &z, const head &h, const vals &v, float *to)
    {
        to[0] = v.f3;
        to[1] = v.f5;
    }
    template <int S> DEV int column_of(const row_gradient &g, const inputs &x, const row_sizes &z, const head &h, long long outer, long long last)
    {
        if constexpr (S == 0) { // count
        long long at = 0;
        return outer * g.size[3] + last == at ? 0 : -1;
        }
        if constexpr (S == 1) { // sum
        long long at = 0;
        return outer * g.size[3] + last == at ? 0 : -1;
        }
        return -1;
    }
    static_assert(sizeof(vals) <= 48, "host and device disagree about a row's values");
};
