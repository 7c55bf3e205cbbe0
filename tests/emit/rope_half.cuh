// variant.gen.cuh: written by lathe 0.1.0 from rope_half.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"
#include "elementwise/parts.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    float in_base;
    int in_offset;
    const int *in_pos;
    int s0_pos;
    int n0_pos;
    int s1_pos;
    int n1_pos;
};

struct map_arguments {
    struct {
    map_sizes z0;
    map_tensor t0;
    map_tensor t1;
    } part[2];
    inputs x;
    long long which;
};
static_assert(sizeof(map_arguments) == 280, "host and device disagree about map_arguments");

struct map_params { // of one of the maps, which are alike
    const map_sizes &z0;
    const map_tensor &t0;
    const map_tensor &t1;
    const inputs &x;
};
DEV map_params params_of(const map_arguments &p, int k)
{
    return {p.part[k].z0, p.part[k].t0, p.part[k].t1, p.x};
}

using namespace elementwise;

struct map0 {
    using self = map0;
    static constexpr int DIMS = 4, LOOP = 2, OUTER = -1;
    static constexpr bool FLAT = false, LIST = false;
    DEV const map_sizes &sizes(const map_params &p) { return p.z0; }
    DEV bool whole(const map_params &p)
    {
        return true &&
               has_vectors<V, bf16, 4>(p.t0, p.z0.n[3]) &&
               has_vectors<V, bf16, 4>(p.t1, p.z0.n[3]);
    }
    struct bases { // of lane 0 of a step, in elements
        i64 none;
        i64 t0; // q
        i64 t1; // q_out
    };
    template <bool FLAT> DEV void locate(bases &b, const map_params &p, const space &s, const point &at)
    {
        b.none = 0;
        b.t0 = FLAT ? at.first : 0ll + at.at[0] * p.t0.s[0] + at.at[1] * p.t0.s[1] + at.at[2] * p.t0.s[2] + at.first * p.t0.s[3];
        b.t1 = FLAT ? at.first : 0ll + at.at[0] * p.t1.s[0] + at.at[1] * p.t1.s[1] + at.at[2] * p.t1.s[2] + at.first * p.t1.s[3];
    }
    template <bool FLAT> DEV void advance(bases &b, const map_params &p, const space &s, int steps)
    {
        b.t0 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t0.s[2];
        b.t1 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t1.s[2];
    }
    struct head {
        float f0;
        float f1;
        float f2;
    };
    DEV void make_head(head &h, const map_params &p, const point &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
        const float t0 = m_log2(x.in_base);  // prelude.lua:111
        const float t1 = (-t0);  // prelude.lua:111
        h.f0 = t1;
        const float t2 = (float)(z.n[3]);  // prelude.lua:111
        h.f1 = t2;
        int t3 = m_load(x.in_pos, (long long)m_clamp_index(at.at[0], x.n0_pos) * x.s0_pos + (long long)m_clamp_index(at.at[1], x.n1_pos) * x.s1_pos);  // prelude.lua:109
        bool t4 = (t3 == (-2147483647 - 1));  // prelude.lua:110
        int t5 = m_add(at.at[1], x.in_offset);  // prelude.lua:110
        int t6 = (t4 ? t5 : t3);  // prelude.lua:110
        const float t7 = (float)(t6);  // prelude.lua:110
        h.f2 = t7;
    }
    struct fixed {
    };
    template <int W> DEV void make_fixed(fixed (&all)[W], const map_params &p, const point &at, const head &h)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
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
        const float t0 = (float)(i);  // prelude.lua:111
        const float t1 = (h.f0 * t0);  // prelude.lua:111
        const float t2 = m_div(t1, h.f1);  // prelude.lua:111
        const float t3 = m_exp2(t2);  // prelude.lua:111
        const float t4 = (t3 * h.f2);  // prelude.lua:111
        const float t5 = m_cos(t4);  // prelude.lua:112
        c.f0 = t5;
        const float t6 = m_sin(t4);  // prelude.lua:112
        c.f1 = t6;
        }
    }
    template <int W> struct held { // operands of one step, as they are in memory
        bytes_of<W, bf16> p0, p1;
    };
    template <bool FLAT, int W> DEV void load(held<W> &m, const map_params &p, const bases &b, const point &from, const head &h, int u)
    {
        const bf16 *const q0 = static_cast<const bf16 *>(p.t0.data) + (b.t0 + (FLAT ? u * LINE : u * p.t0.s[2]));
        m.p0 = load_lanes<W, OWN>(q0);
        m.p1 = load_lanes<W, OWN>(q0 + p.z0.n[3] * p.t0.s[3]);
    }
    template <int W> struct sums { // that a thread makes of a line
    };
    struct totals { // of its item
    };
    template <int W> DEV void clear(sums<W> &sum)
    {
    }
    DEV void clear_totals(totals &t)
    {
    }
    template <int W> DEV void leave(const sums<W> &sum, const map_params &p, const space &s, const point &at)
    {
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
        float y2[W];
        float y3[W];
#pragma unroll
        for (int k = 0; k < W; k++) {
            [[maybe_unused]] const int i = static_cast<int>(at.first) + k;
            [[maybe_unused]] const fixed &f = all[k];
            [[maybe_unused]] const col &c = cols[k];
            const float p0 = element_of<W, bf16>(m.p0, k);
            const float p1 = element_of<W, bf16>(m.p1, k);
        const float t0 = (p0 * c.f0);  // prelude.lua:95
        const float t1 = (p1 * c.f1);  // prelude.lua:95
        const float t2 = (t0 - t1);  // prelude.lua:95
        const float t3 = (p1 * c.f0);  // prelude.lua:95
        const float t4 = (p0 * c.f1);  // prelude.lua:95
        const float t5 = (t3 + t4);  // prelude.lua:95
            y2[k] = t2;
            y3[k] = t5;
        }
        bf16 *const q1 = static_cast<bf16 *>(p.t1.data) + (b.t1 + (FLAT ? u * LINE : u * p.t1.s[2]));
        store_lanes<W, true>(q1, y2);
        store_lanes<W, true>(q1 + p.z0.n[3] * p.t1.s[3], y3);
    }
};

struct variant {
    static constexpr int MAPS = 1, ALIKE = 2, SUMS = 0;
};
template <int K> struct numbered_map;
template <> struct numbered_map<0> {
    using type = map0;
};
template <int K> using variant_map = typename numbered_map<K>::type;
template <int K> struct numbered_sum;
template <int K> using variant_sum = typename numbered_sum<K>::type;
