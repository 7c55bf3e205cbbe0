// rowwise/scatter.cuh: for rowwise/registers.cuh: gradients of inputs that are read at computed indices: what the
// elements of a piece add, by atomics, to zeroed memory.
//
// Elements that belong together are added up first: those of a thread that have one place, those of a warp that have
// one place; neighbours in memory leave as vectors. Only the order of the atomics differs from run to run, and where
// that may not count they add to exact sums.
#pragma once
#include "rowwise/vectors.cuh"

namespace many
{

// A gradient's sum: without rounding where its bits may not depend on the order of the additions.
using scatter_sum = pick<variant::SCATTER_EXACT, exact_sum, float>::type;

// The V values of each thread of a warp, all of which call; value 0 adds nothing.
template <bool STEADY> DEV void scatter_warp(scatter_sum *to, const float (&value)[V], const i64 (&place)[V], bool here)
{
    float sum = here ? value[0] : 0.0f;
    bool one = true;
    bool line = true;
#pragma unroll
    for (int j = 1; j < V; j++) {
        sum += here ? value[j] : 0.0f;
        // steady: what is between equal ends is equal, and what is between ends that far apart is a line
        if (!STEADY || j == V - 1) {
            one = one && place[j] == place[0];
            line = line && place[j] == place[0] + j;
        }
    }
    const u32 present = __ballot_sync(ALL_LANES, here);
    if (present == 0) {
        return;
    }
    const int leader = __ffs(static_cast<int>(present)) - 1;
    const int low = __shfl_sync(ALL_LANES, static_cast<int>(place[0]), leader);
    const int high = __shfl_sync(ALL_LANES, static_cast<int>(place[0] >> 32), leader);
    const bool same = !here || (one && static_cast<int>(place[0]) == low && static_cast<int>(place[0] >> 32) == high);
    if (__all_sync(ALL_LANES, same)) {
        sum = lanes_sum<32>(sum);
        if (lane_id() == leader && sum != 0.0f) {
            add_global(to + place[0], sum);
        }
    } else if (here && one) {
        if (sum != 0.0f) {
            add_global(to + place[0], sum);
        }
    } else if (here && line) {
        add_lanes<V>(to + place[0], value);
    } else if (here) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            add_global(to + place[j], value[j]);
        }
    }
}

// Has it elements? Indices are clamped into what is there, so where nothing is nothing may be added.
DEV bool has_elements(const scatter_target &t) { return t.n[0] > 0 && t.n[1] > 0 && t.n[2] > 0 && t.n[3] > 0; }

// One vector of columns. Every thread of a warp calls.
DEV void scatter_piece(const piece &held, const float (&scanned)[SCANS][V], const rows_params &p,
                       const variant::head &head, const variant::vals &vals, const variant::col (&c)[V],
                       const place &row, int i)
{
    const bool in_row = is_in_row(row, i, p.z.n);
    repeat<0, variant::SCATTERS>([&]<int K>() {
        constexpr int TO = variant::SCATTER_TO[K];
        float value[V];
        i64 place[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            float e[max_of(variant::IN, 1)];
            float q[SCANS];
            unpack_piece(held, e, j);
#pragma unroll
            for (int s = 0; s < SCANS; s++) {
                q[s] = scanned[s][j];
            }
            const bool adds =
                variant::scatter<K>(e, i + j, p.x, p.z, head, c[j], vals, q, p.scatter[TO], value[j], place[j]);
            value[j] = adds && in_row ? value[j] : 0.0f;
        }
        scatter_warp<is_steady<variant, K>()>(reinterpret_cast<scatter_sum *>(p.scatter[TO].to), value, place,
                                              in_row && has_elements(p.scatter[TO]));
    });
}

} // namespace many
