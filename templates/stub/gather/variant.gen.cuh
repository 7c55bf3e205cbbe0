// stub of the generated header: the gradient of table, where y = table(id(b, t), d), over b, t, d
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"
#include "elementwise/parts.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const int *in_id;
    int s0_id;
    int n0_id;
    int s1_id;
    int n1_id;
};

struct map_params {
    map_sizes z0;
    map_tensor t0;
    map_tensor t1;
    unsigned long long *counts;
    unsigned long long *totals;
    unsigned long long *begins;
    unsigned long long *ranks;
    unsigned long long *list;
    unsigned long long *longs;
    map_counts h1;
    inputs x;
    long long which;
};
static_assert(sizeof(map_params) == 232, "host and device disagree about map_params");
using map_arguments = map_params;
DEV const map_params &params_of(const map_arguments &p, int) { return p; }

using namespace elementwise;

struct map0 {
    using self = map0;
    static constexpr int DIMS = 3, LOOP = 1, OUTER = -1;
    static constexpr bool FLAT = false, LIST = false;
    DEV const map_sizes &sizes(const map_params &p) { return p.z0; }
    DEV bool whole(const map_params &p)
    {
        return true &&
               has_vectors<V, bf16, 3>(p.t0, 0);
    }
    struct bases { // of lane 0 of a step, in elements
        i64 none;
        i64 t0; // dy
    };
    template <bool FLAT> DEV void locate(bases &b, const map_params &p, const space &s, const point &at)
    {
        b.none = 0;
        b.t0 = FLAT ? at.first : 0ll + at.at[0] * p.t0.s[0] + at.at[1] * p.t0.s[1] + at.first * p.t0.s[2];
    }
    template <bool FLAT> DEV void advance(bases &b, const map_params &p, const space &s, int steps)
    {
        b.t0 += FLAT ? static_cast<i64>(steps) * LINE : steps * p.t0.s[1];
    }
    DEV void shift(bases &b, i64 points)
    {
        b.t0 += points;
    }
    struct head {
    };
    DEV void make_head(head &h, const map_params &p, const point &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
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
        bytes_of<W, bf16> p0;
    };
    template <bool FLAT, int W> DEV void load(held<W> &m, const map_params &p, const bases &b, const point &from, const head &h, int u)
    {
        const bf16 *const q0 = static_cast<const bf16 *>(p.t0.data) + (b.t0 + (FLAT ? u * LINE : u * p.t0.s[1]));
        m.p0 = load_lanes<W, OWN>(q0);
    }
    template <int W> struct sums { // that a thread makes of a line
        float c0[W];
    };
    struct totals { // of its item
    };
    template <int W> DEV void clear(sums<W> &sum)
    {
#pragma unroll
        for (int k = 0; k < W; k++) {
            sum.c0[k] = 0.0f;
        }
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
#pragma unroll
        for (int k = 0; k < W; k++) {
            [[maybe_unused]] const int i = static_cast<int>(at.first) + k;
            [[maybe_unused]] const fixed &f = all[k];
            [[maybe_unused]] const col &c = cols[k];
            const float p0 = element_of<W, bf16>(m.p0, k);
            sum.c0[k] += p0;
        }
    }
    DEV i64 target_rows(const map_params &p) { return 1ll * p.h1.n[0]; }
    DEV i64 target(const map_params &p, const point &at)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const map_sizes &z = sizes(p);
        int t0 = m_load(x.in_id, (long long)m_clamp_index(at.at[0], x.n0_id) * x.s0_id + (long long)m_clamp_index(at.at[1], x.n1_id) * x.s1_id);
        return (0ll) * p.h1.n[0] + m_clamp_index(t0, static_cast<int>(p.h1.n[0]));
    }
    DEV bool target_whole(const map_params &p) { return has_vectors<V, float, 2>(p.t1, 0); }
    template <int W> DEV float *sum_of(sums<W> &sum) { return sum.c0; }
    DEV float *target_row(const map_params &p, i64 row)
    {
        i64 at = 0;
        at += row * p.t1.s[0];
        return static_cast<float *>(p.t1.data) + at;
    }
    template <int W> DEV void put(float *row, const map_params &p, i64 first, const sums<W> &sum)
    {
        store_lanes<W, true>(row + first * (W > 1 ? 1 : p.t1.s[1]), sum.c0);
    }
};

struct variant {
    static constexpr int MAPS = 1, ALIKE = 1, SUMS = 0;
};
template <int K> struct numbered_map;
template <> struct numbered_map<0> {
    using type = map0;
};
template <int K> using variant_map = typename numbered_map<K>::type;
template <int K> struct numbered_sum;
template <int K> using variant_sum = typename numbered_sum<K>::type;
