// rowwise/scan_segment.cuh: for scans along a row: what an aggregate of its elements hands on to those behind it.
//
// Scans that a pass of the variant does in one walk along the row have a direction in common; each may be made of those
// before it, of its own walk or of an earlier one.
#pragma once
#include "rowwise/vectors.cuh"

namespace many
{

constexpr int WALKS = max_of(variant::WALKS, 1);
__host__ __device__ constexpr bool is_with_powers(int form) { return form == SCAN_LOG || form == SCAN_WEIGHTED; }
constexpr bool any_tops()
{
    for (int s = 0; s < variant::SCANS; s++) {
        if (is_with_powers(variant::SCAN_FORM[s])) {
            return true;
        }
    }
    return false;
}
__host__ __device__ constexpr bool is_of_whole_row(int form)
{
    return form == SCAN_RANK || form == SCAN_PLACED || form == SCAN_TAKEN;
}
__host__ __device__ constexpr bool any_ranks()
{
    for (int s = 0; s < variant::SCANS; s++) {
        if (is_of_whole_row(variant::SCAN_FORM[s])) {
            return true;
        }
    }
    return false;
}

// What an aggregate of elements hands on: forward, the sum behind its last start (all of it where there is none); in
// reverse, the sum in front of its first start. start: there is one.
template <bool HAS_TOP> struct aggregate_of {
    float sum;
    int start;
};
template <> struct aggregate_of<true> { // sum e^top, where the form has powers: top is the largest of them
    float sum;
    int start;
    float top;
};
constexpr bool TOPS = any_tops();
using aggregate = aggregate_of<TOPS>;
template <class T> DEV float top_of(const T &x) // templates: where no form has powers there is no member
{
    if constexpr (TOPS) {
        return x.top;
    } else {
        return 0.0f;
    }
}
template <class T> DEV void set_top(T &x, float top)
{
    if constexpr (TOPS) {
        x.top = top;
    }
}
template <int S> __host__ __device__ constexpr bool has_top() { return is_with_powers(variant::SCAN_FORM[S]); }
// Are all scans that may be made of S beside it? Then its logarithms are for the output alone.
template <int S> __host__ __device__ constexpr bool is_lazy()
{
    bool lazy = false;
    for (int k = S + 1; k < variant::SCANS; k++) {
        if (variant::SCAN_BESIDE[k] != S) {
            return false;
        }
        lazy = true;
    }
    return lazy;
}
template <int S> __host__ __device__ constexpr bool in_reverse()
{
    return variant::WALK_REVERSE[variant::SCAN_WALK[S]];
}

template <int S> DEV aggregate nothing()
{
    aggregate none = {};
    if constexpr (has_top<S>()) {
        set_top(none, -INF);
    }
    return none;
}

// The sums of both, whatever starts there are. NaN stays: through the difference of the tops.
template <int S> DEV aggregate add(const aggregate &a, const aggregate &b)
{
    aggregate all = a;
    if constexpr (has_top<S>()) {
        const float less = top_of(a) - top_of(b);
        const float scale = top_of(a) == top_of(b) ? 1.0f : m_exp(-fabsf(less));
        const bool left = less >= 0.0f;
        set_top(all, left ? top_of(a) : top_of(b));
        all.sum = left ? a.sum + b.sum * scale : a.sum * scale + b.sum;
    } else {
        all.sum = a.sum + b.sum;
    }
    return all;
}

// first, then second, in the order of the walk. In reverse, second lies to the left: what it hands on ends at its first
// start.
template <int S> DEV aggregate join(const aggregate &first, const aggregate &second)
{
    aggregate both = add<S>(first, second);
    both.sum = second.start ? second.sum : both.sum;
    if constexpr (has_top<S>()) {
        set_top(both, second.start ? top_of(second) : top_of(both));
    }
    both.start = first.start | second.start;
    return both;
}

template <int S> DEV aggregate element_aggregate(const scan_input &x)
{
    aggregate one = nothing<S>();
    if constexpr (has_top<S>()) {
        const float value = variant::SCAN_FORM[S] == SCAN_LOG ? 1.0f : x.value;
        set_top(one, x.power);
        one.sum = x.power == -INF ? 0.0f * value : value;
    } else {
        one.sum = x.value;
    }
    return one;
}

// All up to an element and with it, and what it hands on: in reverse, one that begins a segment hands on nothing.
template <int S> DEV aggregate with_element(const aggregate &before, const aggregate &one, bool start)
{
    aggregate all = add<S>(before, one);
    if constexpr (!in_reverse<S>()) {
        all = start ? one : all;
    }
    return all;
}
template <int S> DEV aggregate handed_on(const aggregate &before, const aggregate &all, bool start)
{
    aggregate on = in_reverse<S>() && start ? nothing<S>() : all;
    on.start = before.start | (start ? 1 : 0);
    return on;
}

template <int S> DEV float scan_value(const aggregate &all, const scan_input &x)
{
    if constexpr (variant::SCAN_FORM[S] == SCAN_LOG) {
        return top_of(all) + m_log(all.sum);
    } else if constexpr (variant::SCAN_FORM[S] == SCAN_WEIGHTED) {
        const bool none = top_of(all) == -INF || x.shift == -INF;
        return all.sum * (none ? 0.0f : m_exp(top_of(all) + x.shift));
    } else {
        return all.sum;
    }
}

// ---- below one reference: elements whose sums are near it cost one exponential each ------------------

// of a sum: two of them have a product, and a power far from the reference has fewer digits
constexpr float MOST_BELOW = cfg::FAST_MATH ? 0x1p+58f : 0x1p+24f;
// fast, e^(power - itself) is far from 1 for masks of -1e31 (exp_below)
constexpr float MOST_REFERENCE = cfg::FAST_MATH ? 0x1p+14f : 0x1.fffffep+127f;
// e^(power - reference); fast: |reference| 2^-23 relative error more, the same for all powers
DEV float exp_below(float power, float reference)
{
    if constexpr (cfg::FAST_MATH) {
        constexpr float LOG2E = 0x1.715476p+0f;
        return m_exp2(fmaf(power, LOG2E, -reference * LOG2E));
    } else {
        return m_exp(power - reference);
    }
}

DEV float log_below(float sum, float reference) // the sum is a normal number
{
    return cfg::FAST_MATH ? fmaf(log2_normal(sum), 0x1.62e43p-1f, reference) : reference + m_log(sum); // ln(2)
}

// ---- the slow way, in loops that are not unrolled ----------------------------------------------------
//
// What is in registers has numbers at compile time. So each step works on the first place of the walk, and then all
// move on by one; in the end they are where they were. It is compiled once, and not for every place.

template <bool REVERSE, class T, int N> DEV void move_on(T (&x)[N])
{
    const T first = x[REVERSE ? N - 1 : 0];
#pragma unroll
    for (int k = 1; k < N; k++) {
        x[REVERSE ? N - k : k - 1] = x[REVERSE ? N - 1 - k : k];
    }
    x[REVERSE ? 0 : N - 1] = first;
}

constexpr int SCAN_PARTS = variant::SCANS > 0 ? (INNER ? cfg::THREADS : WARPS) : 1;
template <bool> struct ranked_elements {
};
template <> struct ranked_elements<true> { // what is ranked, of the rows of a block
    float ranked[cfg::ROWS_PER_BLOCK][max_of(VECTORS * TEAM * V, 1)];
};
struct scan_scratch : ranked_elements<any_ranks()> {
    aggregate part[2][SCANS][SCAN_PARTS];
};
// of this thread's row; a template: without ranks there is no member
template <class T> DEV float *ranked_of(T &scratch)
{
    if constexpr (any_ranks()) {
        return scratch.ranked[team_of_thread()];
    } else {
        return nullptr;
    }
}

} // namespace many
