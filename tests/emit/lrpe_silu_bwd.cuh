// variant.gen.cuh: written by lathe 0.1.0 from lrpe_silu.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"
#include "elementwise/parts.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    int in_offset;
    const float *in_theta;
    int s0_theta;
    int n0_theta;
    int s1_theta;
    int n1_theta;
};

struct map_params {
    map_sizes z0;
    map_tensor t0;
    map_tensor t1;
    map_tensor t2;
    map_tensor t3;
    float *g3;
    inputs x;
    long long which;
};
static_assert(sizeof(map_params) == 264, "host and device disagree about map_params");

using map_arguments = map_params;
DEV const map_params &params_of(const map_arguments &p, int) { return p; }

using namespace elementwise;

struct map0 {
    using self = map0;
    static constexpr int DIMS = 4, LOOP = 0, OUTER = 2;
    static constexpr bool FLAT = false, LIST = false;
    DEV const map_sizes &sizes(const map_params &p) { return p.z0; }
    DEV bool whole(const map_params &p)
    {
        return true &&
               has_vectors<V, f16, 4>(p.t0, 0) &&
               has_vectors<V, f16, 4>(p.t1, p.z0.n[3]) &&
               has_vectors<V, f16, 4>(p.t2, 0);
    }
    struct bases { // of lane 0 of a step, in elements
        i64 none;
        i64 t0; // x
        i64 t1; // dy
        i64 t2; // dx
    };
    template <bool FLAT> DEV void locate(bases &b, const map_params &p, const space &s, const point &at)
    {
        b.none = 0;
        b.t0 = FLAT ? at.first : 0ll + at.at[0] * p.t0.s[0] + at.at[1] * p.t0.s[1] + at.at[2] * p.t0.s[2] + at.first * p.t0.s[3];
        b.t1 = FLAT ? at.first : 0ll + at.at[0] * p.t1.s[0] + at.at[1] * p.t1.s[1] + at.at[2] * p.t1.s[2] + at.first * p.t1.s[3];
        b.t2 = FLAT ? at.first : 0ll + at.at[0] * p.t2.s[0] + at.at[1] * p.t2.s[1] + at.at[2] * p.t2.s[2] + at.first * p.t2.s[3];
    }
    template <bool FLAT> DEV void advance(bases &b, const map_params &p, const space &s, int steps)
    {
        b.t0 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t0.s[0];
        b.t1 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t1.s[0];
        b.t2 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t2.s[0];
    }
    struct head {
        float f0;
    };
    DEV void make_head(head &h, const map_params &p, const point &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
        int t0 = m_add(at.at[2], x.in_offset);  // prelude.lua:142
        const float t1 = (float)(t0);  // prelude.lua:142
        h.f0 = t1;
    }
    struct fixed {
        float f0;
    };
    template <int W> DEV void make_fixed(fixed (&all)[W], const map_params &p, const point &at, const head &h)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
        float u7[W];
        m_load_columns<W>(x.in_theta + (long long)m_clamp_index(at.at[1], x.n0_theta) * x.s0_theta, x.s1_theta, static_cast<int>(at.first), x.n1_theta, u7);
#pragma unroll
        for (int k = 0; k < W; k++) {
            [[maybe_unused]] const int i = static_cast<int>(at.first) + k;
            fixed &f = all[k];
        f.f0 = u7[k];
        }
    }
    struct col {
        float f0;
        float f1;
    };
    template <int W> DEV void make_cols(col (&cols)[W], const map_params &p, const point &at, const head &h, const fixed (&all)[W])
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
#pragma unroll
        for (int k = 0; k < W; k++) {
            [[maybe_unused]] const int i = static_cast<int>(at.first) + k;
            [[maybe_unused]] const fixed &f = all[k];
            col &c = cols[k];
        const float t0 = (f.f0 * h.f0);  // prelude.lua:142
        const float t1 = m_sin(t0);  // prelude.lua:135
        c.f0 = t1;
        const float t2 = m_cos(t0);  // prelude.lua:135
        c.f1 = t2;
        }
    }
    template <int W> struct held { // operands of one step, as they are in memory
        bytes_of<W, f16> p0;
        bytes_of<W, f16> p2, p3;
    };
    template <bool FLAT, int W> DEV void load(held<W> &m, const map_params &p, const bases &b, const point &from, const head &h, int u)
    {
        const f16 *const q0 = static_cast<const f16 *>(p.t0.data) + (b.t0 + (FLAT ? u * LINE : u * p.t0.s[0]));
        m.p0 = load_lanes<W, OWN>(q0);
        const f16 *const q1 = static_cast<const f16 *>(p.t1.data) + (b.t1 + (FLAT ? u * LINE : u * p.t1.s[0]));
        m.p2 = load_lanes<W, OWN>(q1);
        m.p3 = load_lanes<W, OWN>(q1 + p.z0.n[3] * p.t1.s[3]);
    }
    template <int W> struct sums { // that a thread makes of a line
        float s6[W]; // dtheta
    };
    struct totals { // of its item
    };
    template <int W> DEV void clear(sums<W> &sum)
    {
#pragma unroll
        for (int k = 0; k < W; k++) {
            sum.s6[k] = 0.0f;
        }
    }
    DEV void clear_totals(totals &t)
    {
    }
    template <int W> DEV void leave(const sums<W> &sum, const map_params &p, const space &s, const point &at)
    {
        {
            const matrix m = make_matrix<self, 10u>(s);
            if (m.parts == 1 && p.t3.data != nullptr) {
                leave_results(static_cast<float *>(p.t3.data) + (at.at[1] * p.t3.s[1] + at.first * p.t3.s[3]), p.t3.s[3], sum.s6);
            } else {
                leave_lanes(p.g3 + matrix_at<self, 10u>(s, m, at, static_cast<int>(at.first)), s, at, sum.s6);
            }
        }
    }
    DEV void leave_totals(const totals &t, const map_params &p, const space &s, const point &at, unsigned tile, scratch &shared)
    {
    }
    struct row {
    };
    template <bool FLAT, int W>
    DEV void compute(const map_params &p, const space &s, const bases &b, const point &at, int u, const head &h, const fixed (&all)[W], const col (&cols)[W], const held<W> &m, sums<W> &sum, totals &t)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
        float y4[W];
#pragma unroll
        for (int k = 0; k < W; k++) {
            [[maybe_unused]] const int i = static_cast<int>(at.first) + k;
            [[maybe_unused]] const fixed &f = all[k];
            [[maybe_unused]] const col &c = cols[k];
            const float p0 = element_of<W, f16>(m.p0, k);
            const float p2 = element_of<W, f16>(m.p2, k);
            const float p3 = element_of<W, f16>(m.p3, k);
        const float t0 = m_silu(p0);  // prelude.lua:126
        const float t1 = (c.f0 * p3);  // prelude.lua:135
        const float t2 = (t0 * p3);  // prelude.lua:126
        const float t3 = (c.f1 * t2);  // prelude.lua:126
        const float t4 = (c.f1 * p2);  // prelude.lua:135
        const float t5 = (t1 + t4);  // prelude.lua:135
        const float t6 = (t0 * p2);  // prelude.lua:126
        const float t7 = (c.f0 * t6);  // prelude.lua:126
        const float t8 = (-t7);  // prelude.lua:126
        const float t9 = (t3 + t8);  // prelude.lua:126
        const float t10 = (h.f0 * t9);  // prelude.lua:126
        const float t11 = m_sigmoid(p0);  // prelude.lua:126
        const float t12 = (1.0f - t11);  // prelude.lua:126
        const float t13 = (t0 * t12);  // prelude.lua:126
        const float t14 = (t11 + t13);  // prelude.lua:126
        const float t15 = (t5 * t14);  // prelude.lua:135
            y4[k] = t15;
            sum.s6[k] += t10;
        }
        f16 *const q2 = static_cast<f16 *>(p.t2.data) + (b.t2 + (FLAT ? u * LINE : u * p.t2.s[0]));
        store_lanes<W, true>(q2, y4);
    }
};

struct total0 { // dtheta
    using map = map0;
    static constexpr bool SCATTERED = false;
    static constexpr u32 KEPT = 10u;
    static constexpr int PLANES = 1;
    DEV const float *parts(const map_params &p) { return p.g3; }
    DEV bool written(const map_params &, const space &) { return false; }
    DEV i64 place(const map_params &p, [[maybe_unused]] const space &s, [[maybe_unused]] i64 kept)
    {
        i64 at = 0;
        at += take_index(kept, s.n[3]) * p.t3.s[3];
        at += kept * p.t3.s[1];
        return at;
    }
    DEV void store(const map_params &p, const space &s, i64 kept, [[maybe_unused]] int plane, float sum)
    {
        i64 at = place(p, s, kept);
        static_cast<float *>(p.t3.data)[at] = from_sum<float>(sum);
    }
};

struct variant {
    static constexpr int MAPS = 1, ALIKE = 1, SUMS = 1;
};
template <int K> struct numbered_map;
template <> struct numbered_map<0> {
    using type = map0;
};
template <int K> using variant_map = typename numbered_map<K>::type;
template <int K> struct numbered_sum;
template <> struct numbered_sum<0> {
    using type = total0;
};
template <int K> using variant_sum = typename numbered_sum<K>::type;
