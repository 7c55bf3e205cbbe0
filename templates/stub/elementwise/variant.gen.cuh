// stub of the generated header: the backward pass of y = x * table(id(rows)) + bias(n), over b, rows, n
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"
#include "elementwise/parts.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const int *in_id;
    int s0_id;
    int n0_id;
    const float *in_table;
    int s0_table;
    int n0_table;
};

struct map_params {
    map_sizes z0;
    map_tensor t1;
    map_tensor t2;
    map_tensor t3;
    map_tensor t4;
    map_tensor t5;
    float *g3;
    float *g5;
    map_counts h5;
    inputs x;
    long long which;
};
static_assert(sizeof(map_params) == 352, "host and device disagree about map_params");
using map_arguments = map_params;
DEV const map_params &params_of(const map_arguments &p, int) { return p; }

using namespace elementwise;

struct map0 {
    using self = map0;
    static constexpr int DIMS = 3, LOOP = 0, OUTER = 1;
    static constexpr bool FLAT = false, LIST = false;
    DEV const map_sizes &sizes(const map_params &p) { return p.z0; }
    DEV bool whole(const map_params &p)
    {
        return true &&
               has_vectors<V, bf16, 3>(p.t1, 0) &&
               has_vectors<V, bf16, 3>(p.t2, 0) &&
               has_vectors<V, bf16, 3>(p.t4, 0);
    }
    struct bases { // of lane 0 of a step, in elements
        i64 none;
        i64 t1; // x
        i64 t2; // dy
        i64 t4; // dx
    };
    template <bool FLAT> DEV void locate(bases &b, const map_params &p, const space &s, const point &at)
    {
        b.none = 0;
        b.t1 = FLAT ? at.first : 0ll + at.at[0] * p.t1.s[0] + at.at[1] * p.t1.s[1] + at.first * p.t1.s[2];
        b.t2 = FLAT ? at.first : 0ll + at.at[0] * p.t2.s[0] + at.at[1] * p.t2.s[1] + at.first * p.t2.s[2];
        b.t4 = FLAT ? at.first : 0ll + at.at[0] * p.t4.s[0] + at.at[1] * p.t4.s[1] + at.first * p.t4.s[2];
    }
    template <bool FLAT> DEV void advance(bases &b, const map_params &p, const space &s, int steps)
    {
        b.t1 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t1.s[0];
        b.t2 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t2.s[0];
        b.t4 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t4.s[0];
    }
    struct head {
        float f0;
        int f1;
    };
    DEV void make_head(head &h, const map_params &p, const point &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
        int t0 = m_load(x.in_id, (long long)m_clamp_index(at.at[1], x.n0_id) * x.s0_id);
        const float t1 = m_load(x.in_table, (long long)m_clamp_index(t0, x.n0_table) * x.s0_table);
        h.f0 = t1;
        h.f1 = t0;
    }
    struct fixed {
    };
    template <int W> DEV void make_fixed(fixed (&all)[W], const map_params &p, const point &at, const head &h)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
    }
    struct col {
    };
    template <int W> DEV void make_cols(col (&cols)[W], const map_params &p, const point &at, const head &h, const fixed (&all)[W])
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
    }
    template <int W> struct held { // operands of one step, as they are in memory
        bytes_of<W, bf16> p2;
        bytes_of<W, bf16> p4;
    };
    template <bool FLAT, int W> DEV void load(held<W> &m, const map_params &p, const bases &b, const point &from, const head &h, int u)
    {
        const bf16 *const q1 = static_cast<const bf16 *>(p.t1.data) + (b.t1 + (FLAT ? u * LINE : u * p.t1.s[0]));
        m.p2 = load_lanes<W, OWN>(q1);
        const bf16 *const q2 = static_cast<const bf16 *>(p.t2.data) + (b.t2 + (FLAT ? u * LINE : u * p.t2.s[0]));
        m.p4 = load_lanes<W, OWN>(q2);
    }
    template <int W> struct sums { // that a thread makes of a line
        float s6[W]; // dbias
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
            const matrix m = make_matrix<self, 4u>(s);
            leave_lanes(p.g3 + matrix_at<self, 4u>(s, m, at, static_cast<int>(at.first)), s, at, sum.s6);
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
        float y8[W];
#pragma unroll
        for (int k = 0; k < W; k++) {
            [[maybe_unused]] const int i = static_cast<int>(at.first) + k;
            [[maybe_unused]] const fixed &f = all[k];
            [[maybe_unused]] const col &c = cols[k];
            const float p2 = element_of<W, bf16>(m.p2, k);
            const float p4 = element_of<W, bf16>(m.p4, k);
        const float t0 = (h.f0 * p4);
        const float t1 = (p2 * p4);
            sum.s6[k] += p4;
            y8[k] = t0;
            if (p.h5.n[0] > 0) add_global(p.g5 + (0ll) * p.h5.n[0] + m_clamp_index(h.f1, static_cast<int>(p.h5.n[0])), t1);
        }
        bf16 *const q4 = static_cast<bf16 *>(p.t4.data) + (b.t4 + (FLAT ? u * LINE : u * p.t4.s[0]));
        store_lanes<W, true>(q4, y8);
    }
};

struct total0 { // dbias
    using map = map0;
    static constexpr bool SCATTERED = false;
    static constexpr u32 KEPT = 4u;
    static constexpr int PLANES = 1;
    DEV const float *parts(const map_params &p) { return p.g3; }
    DEV i64 place(const map_params &p, [[maybe_unused]] const space &s, [[maybe_unused]] i64 kept)
    {
        i64 at = 0;
        at += kept * p.t3.s[2];
        return at;
    }
    DEV void store(const map_params &p, const space &s, i64 kept, [[maybe_unused]] int plane, float sum)
    {
        i64 at = place(p, s, kept);
        static_cast<float *>(p.t3.data)[at] = from_sum<float>(sum);
    }
};

struct total1 { // dtable
    using map = map0;
    static constexpr bool SCATTERED = true;
    static constexpr u32 KEPT = 0u;
    static constexpr int PLANES = 1;
    DEV i64 count(const map_params &p) { return 1ll * p.h5.n[0]; }
    DEV const float *parts(const map_params &p) { return p.g5; }
    DEV i64 place(const map_params &p, [[maybe_unused]] const space &s, [[maybe_unused]] i64 kept)
    {
        i64 at = 0;
        at += kept * p.t5.s[0];
        return at;
    }
    DEV void store(const map_params &p, const space &s, i64 kept, [[maybe_unused]] int plane, float sum)
    {
        i64 at = place(p, s, kept);
        static_cast<float *>(p.t5.data)[at] = from_sum<float>(sum);
    }
};

struct variant {
    static constexpr int MAPS = 1, ALIKE = 1, SUMS = 2;
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
template <> struct numbered_sum<1> {
    using type = total1;
};
template <int K> using variant_sum = typename numbered_sum<K>::type;
