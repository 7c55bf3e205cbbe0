// many_below.cuh: for many_scan.cuh: scans with powers, in one segment, of a row in registers: what a warp has of it below one reference,
// the largest power, so that an element costs one exponential, and its lanes and vectors add plain sums.
//
// Sums far below the reference would vanish: where the first one of a warp is, the warp takes its elements by pairs of sum and power.
//
// A scan beside another one (SCAN_BESIDE) has weights e^(x_j - log sum_i) of its elements and sums: those sums and the e^x_j are there, so
// that it costs a reciprocal for an element, and no exponential.
#pragma once
#include "many_stretch.cuh"

namespace many {

constexpr int WARP_LANES = min_of(TEAM, 32);

struct below { // of a thread
    float e[VECTORS][V];    // value e^(power - top)
    float before[VECTORS];  // sums of what the warp has before them
    float power[VECTORS];   // of the first element of each vector in the walk
    float top;              // of the warp's part of the row
    // where `near`, for a scan beside this one:
    float sum[VECTORS][V];  // e^(value of the scan - reference); where the scan is lazy, its values have these sums' place
    float reference;
    float factor;           // e^(top - reference)
    bool near;              // a reference serves all
};

// As an integer of the same order, and back.
DEV int ordered(int bits) { return bits >= 0 ? bits : bits ^ 0x7fffffff; }

DEV float lanes_top(float x) // NaN is left out: the sums keep it
{
    if constexpr (WARP_LANES == 32) {
        return __int_as_float(ordered(warp_max(ordered(__float_as_int(fmaxf(x, -INF))))));
    } else {
#pragma unroll
        for (int step = 1; step < WARP_LANES; step *= 2) {
            x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
        }
        return x;
    }
}

// Of a sum of each lane: `mine` becomes that of the lanes before it in the walk. Returns that of all.
template <bool REVERSE> DEV float add_lanes_before(float &mine)
{
    const int lane = static_cast<int>(threadIdx.x) % WARP_LANES;
    const int at = REVERSE ? WARP_LANES - 1 - lane : lane;
    const auto other = [](float x, int step) {
        return REVERSE ? __shfl_down_sync(ALL_LANES, x, step, WARP_LANES) : __shfl_up_sync(ALL_LANES, x, step, WARP_LANES);
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
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < V; k++) {
            sum += mine.e[v][REVERSE ? V - 1 - k : k];
        }
        const float vector = add_lanes_before<REVERSE>(sum);
        mine.before[v] = all + sum;
        all += vector;
    }
    return all;
}

// take(at, v, x, one): what the scan takes of vector v, which stands at `at`. Returns what the warp hands on.
template <int S, class TAKE> DEV stretch add_below(below &mine, const TAKE &take)
{
    constexpr int FIRST = in_reverse<S>() ? V - 1 : 0;
    float power[VECTORS][V];
    float highest[VECTORS]; // not one after the other: a chain of all of them would be waited for
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        stretch one[V];
        take(v, v, x, one);
#pragma unroll
        for (int j = 0; j < V; j++) {
            power[v][j] = top_of(one[j]); // -INF beyond the row
            mine.e[v][j] = value_of<S>(x[j]);
            highest[v] = j == 0 ? power[v][j] : fmaxf(highest[v], power[v][j]);
        }
        mine.power[v] = power[v][FIRST];
    }
    float top = fmaxf(highest[0], -INF); // not NaN
#pragma unroll
    for (int v = 1; v < VECTORS; v++) {
        top = fmaxf(top, highest[v]);
    }
    top = lanes_top(top);
    mine.top = top;
    if (top == INF) { // the others vanish beside it, and NaN stays
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                power[v][j] = power[v][j] == top ? 0.0f : power[v][j] - top;
            }
        }
    }
    const float reference = top == INF ? 0.0f : reference_of(top);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            mine.e[v][j] *= exp_below(power[v][j], reference);
        }
    }
    stretch all = nothing<S>();
    all.sum = add_parts<in_reverse<S>()>(mine);
    set_top(all, top);
    return all;
}

// Of what each warp hands on: what those before this one in the walk do.
template <int S> DEV stretch join_warps_before(const stretch &own, stretch (&part)[SCAN_PARTS])
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) {
        part[warp] = own;
    }
    __syncthreads();
    stretch x = nothing<S>();
    if (in_reverse<S>() ? lane > warp && lane < WARPS : lane < warp) {
        x = part[lane];
    }
    stretch all = nothing<S>();
    const float top = lanes_top(top_of(x));
    set_top(all, top);
    all.sum = lanes_sum<32>(x.sum * m_exp(top_of(x) == top ? 0.0f : top_of(x) - top));
    return all;
}

// The power of the warp's first element in the walk.
template <int S> DEV float reference_power(const below &mine, int first, int n)
{
    if constexpr (!in_reverse<S>()) {
        return __shfl_sync(ALL_LANES, mine.power[0], 0, WARP_LANES);
    } else if constexpr (FULL) {
        return __shfl_sync(ALL_LANES, mine.power[VECTORS - 1], WARP_LANES - 1, WARP_LANES);
    } else { // the last one that is in the row
        const int lane = static_cast<int>(threadIdx.x) % WARP_LANES;
        const int vector = max(min((n - 1 - (first - lane * V)) / V, VECTORS * WARP_LANES - 1), 0);
        float power = mine.power[0];
#pragma unroll
        for (int v = 1; v < VECTORS; v++) {
            power = vector / WARP_LANES == v ? mine.power[v] : power;
        }
        return __shfl_sync(ALL_LANES, power, vector % WARP_LANES, WARP_LANES);
    }
}

// The scan, behind what the warps before hand on. False: it would not be exact.
template <int S, class TAKE>
DEV bool walk_below(float (&q)[VECTORS][SCANS][V], below &mine, const stretch &warps, float first, const TAKE &take)
{
    const float top = fmaxf(top_of(warps), mine.top);
    const bool near = fmaxf(top_of(warps), first) >= top - FAR && top < INF && (!is_lazy<S>() || top > -INF);
    if (!__all_sync(ALL_LANES, near)) {
        return false;
    }
    const float reference = reference_of(top);
    const float factor = exp_below(mine.top, reference);
    const float begin = warps.sum * exp_below(top_of(warps), reference);
    stretch walked = nothing<S>();
    set_top(walked, top);
    mine.factor = factor;
    mine.reference = top;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        stretch one[V];
        take(v, v, x, one);
        walked.sum = fmaf(mine.before[v], factor, begin);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = in_reverse<S>() ? V - 1 - k : k;
            walked.sum = fmaf(mine.e[v][j], factor, walked.sum);
            if constexpr (is_lazy<S>()) {
                q[v][S][j] = walked.sum;
            } else {
                mine.sum[v][j] = walked.sum;
                q[v][S][j] = value_below<S>(walked, x[j]);
            }
        }
    }
    return true;
}

// The values of scans that only those beside them are made of, where something else is, too.
DEV void tell_values(float (&q)[VECTORS][SCANS][V], const below (&known)[SCANS])
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

// ---- a scan beside another ------------------------------------------------------------------------------------------------

template <int S, class TAKE> DEV stretch add_beside(const float (&q)[VECTORS][SCANS][V], below &mine, const below &other, const TAKE &take)
{
    constexpr int OTHER = max_of(variant::SCAN_BESIDE[S], 0);
    stretch all = nothing<S>();
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        stretch one[V];
        take(v, v, x, one);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float(&sum)[V] = is_lazy<OTHER>() ? q[v][OTHER] : other.sum[v];
            if constexpr (cfg::FAST_MATH && V > 1) { // one reciprocal for two: sums are e^-FAR to 2^31
                mine.e[v][j] = x[j].value * (m_rcp(sum[j] * sum[j ^ 1]) * sum[j ^ 1]);
            } else {
                mine.e[v][j] = x[j].value / sum[j];
            }
        }
    }
    all.sum = add_parts<in_reverse<S>()>(mine);
    set_top(all, -other.reference);
    return all;
}

template <int S> DEV void walk_beside(float (&q)[VECTORS][SCANS][V], const below &mine, const below &other, const stretch &warps)
{
    const float begin = warps.sum * exp_below(top_of(warps), -other.reference);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        float sum = mine.before[v] + begin;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = in_reverse<S>() ? V - 1 - k : k;
            sum += mine.e[v][j];
            q[v][S][j] = sum * (other.e[v][j] * other.factor);
        }
    }
}

} // namespace many
