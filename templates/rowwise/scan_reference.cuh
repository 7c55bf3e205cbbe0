// rowwise/scan_reference.cuh: for rowwise/scan.cuh: logarithmic scans in one segment, of a row in registers: below one
// reference for all of the row, the power of its first element in the walk, so that an element costs one exponential,
// and lanes, vectors and warps add plain sums.
//
// Where an element is too far above the first one, or a sum is not finite, all warps of the row take pairs of sum and
// power.
//
// A scan beside another one (SCAN_BESIDE) has weights e^(x_j - log sum_i) of its elements and sums: those sums and the
// e^x_j are there, so that it costs a reciprocal for an element, and no exponential. What it adds up has been divided
// by such a sum: see rowwise/inner_scan_reference.cuh for very small values.
#pragma once
#include "rowwise/scan_segment.cuh"

namespace many
{

constexpr int WARP_LANES = min_of(TEAM, 32);

struct below {             // of a thread
    float e[VECTORS][V];   // e^(power - reference), or what a scan beside adds up
    float before[VECTORS]; // sums of what the warp has before them
    // for a scan beside: e^(value of the scan - reference); where the scan is lazy, its values have these sums' place
    float sum[VECTORS][V];
    float reference;
    bool near; // it serves all of the row
};

// The first element may be far below the largest one: so that its sum is still a normal number, and the last one, too,
// the reference is above it. In f32 it is not: a power far from the reference has fewer digits.
constexpr float RAISED = cfg::FAST_MATH ? 20.0f : 0.0f;

// Of a sum of each lane: `mine` becomes that of the lanes before it in the walk. Returns that of all.
template <bool REVERSE> DEV float add_lanes_before(float &mine)
{
    const int lane = static_cast<int>(threadIdx.x) % WARP_LANES;
    const int at = REVERSE ? WARP_LANES - 1 - lane : lane;
    const auto other = [](float x, int step) {
        return REVERSE ? __shfl_down_sync(ALL_LANES, x, step, WARP_LANES)
                       : __shfl_up_sync(ALL_LANES, x, step, WARP_LANES);
    };
    float sum = mine;
#pragma unroll
    for (int step = 1; step < WARP_LANES; step *= 2) {
        const float x = other(sum, step);
        if (at >= step) {
            sum += x;
        }
    }
    const float x = other(sum, 1);
    mine = at > 0 ? x : 0.0f;
    return __shfl_sync(ALL_LANES, sum, REVERSE ? 0 : WARP_LANES - 1, WARP_LANES);
}

// Sums of mine.e: `before` of the vectors. Returns that of the warp.
template <bool REVERSE> DEV float add_parts(below &mine)
{
    float all = 0.0f;
#pragma unroll
    for (int step = 0; step < VECTORS; step++) {
        const int v = REVERSE ? VECTORS - 1 - step : step;
        float sum = mine.e[v][REVERSE ? V - 1 : 0];
#pragma unroll
        for (int k = 1; k < V; k++) {
            sum += mine.e[v][REVERSE ? V - 1 - k : k];
        }
        const float vector = add_lanes_before<REVERSE>(sum);
        mine.before[v] = step == 0 ? sum : all + sum;
        all = step == 0 ? vector : all + vector;
    }
    return all;
}

// take(at, v, x, one): what the scan takes of vector v, which stands at `at`. Returns what the warp adds.
template <int S, class TAKE> DEV float add_below(below &mine, const TAKE &take)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        aggregate one[V];
        take(v, v, x, one);
#pragma unroll
        for (int j = 0; j < V; j++) {
            mine.e[v][j] = exp_below(top_of(one[j]), mine.reference); // NaN of the first one where it is not finite
        }
    }
    return add_parts<in_reverse<S>()>(mine);
}

// Of what each warp adds: what those before this one in the walk do; `all` becomes what all of them do.
template <int S> DEV float add_warps_before(float &all, aggregate (&part)[SCAN_PARTS])
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) {
        part[warp].sum = all;
    }
    __syncthreads();
    float x = lane < WARPS ? part[lane].sum : 0.0f;
    all = add_lanes_before<in_reverse<S>()>(x);
    return __shfl_sync(ALL_LANES, x, warp);
}

// The same of pairs.
template <int S> DEV aggregate join_warps_before(const aggregate &own, aggregate (&part)[SCAN_PARTS])
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    aggregate all = nothing<S>();
    __syncthreads(); // what the fast way has left there is read
    if (threadIdx.x % 32 == 0) {
        part[warp] = own;
    }
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < WARPS; k++) {
        const int w = in_reverse<S>() ? WARPS - 1 - k : k;
        if (w == warp) {
            break;
        }
        all = join<S>(all, part[w]);
    }
    return all;
}

// The scan, behind what the warps before add.
template <int S> DEV void walk_below(float (&q)[VECTORS][SCANS][V], below &mine, float warps)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        float sum = mine.before[v] + warps;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = in_reverse<S>() ? V - 1 - k : k;
            sum += mine.e[v][j];
            mine.sum[v][j] = sum;
            q[v][S][j] = is_lazy<S>() ? sum : log_below(sum, mine.reference);
        }
    }
}

// The values of scans that only those beside them are made of, where something else is, too.
DEV void publish_values(float (&q)[VECTORS][SCANS][V], const below (&known)[SCANS])
{
    repeat<0, variant::SCANS>([&]<int S>() {
        if constexpr (is_lazy<S>()) {
            if (known[S].near) {
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        q[v][S][j] = log_below(q[v][S][j], known[S].reference);
                    }
                }
            }
        }
    });
}

// ---- a scan beside another ---------------------------------------------------------------------------

template <int S, class TAKE>
DEV float add_beside(const float (&q)[VECTORS][SCANS][V], below &mine, const below &other, const TAKE &take)
{
    constexpr int OTHER = max_of(variant::SCAN_BESIDE[S], 0);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        aggregate one[V];
        take(v, v, x, one);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float(&sum)[V] = is_lazy<OTHER>() ? q[v][OTHER] : other.sum[v];
            if constexpr (cfg::FAST_MATH && V > 1) { // one reciprocal for two: sums are e^-RAISED to MOST_BELOW
                mine.e[v][j] = x[j].value * (m_rcp(sum[j] * sum[j ^ 1]) * sum[j ^ 1]);
            } else {
                mine.e[v][j] = x[j].value / sum[j];
            }
        }
    }
    return add_parts<in_reverse<S>()>(mine);
}

template <int S> DEV void walk_beside(float (&q)[VECTORS][SCANS][V], const below &mine, const below &other, float warps)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        float sum = mine.before[v] + warps;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = in_reverse<S>() ? V - 1 - k : k;
            sum += mine.e[v][j];
            q[v][S][j] = sum * other.e[v][j];
        }
    }
}

} // namespace many
