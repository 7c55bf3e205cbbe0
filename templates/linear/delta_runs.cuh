// linear/delta_runs.cuh: few long sequences in runs (linear/runs.cuh), behind a decay of one number a token, by wgmma.
//
// `inverse` or `prepare` tells of each chunk by how much it shrinks a state, `cuts` (linear/delta_cuts.cuh) how pieces
// begin. A head's sequence whose gates are strong enough goes in runs; one that would be left with a run of more chunks
// than one and a half pieces have goes by transitions, as linear/delta_sm90.cuh has it, which take about as long.
#pragma once
#include "linear/delta_walk_sm90.cuh"
#include "linear/runs.cuh"

namespace linear
{

// May gates cut sequences?
template <class P> constexpr bool CUT_BY_GATES = requires(const P &p) { p.cuts; };

struct delta_runs : run_starts, run_rule {
    static constexpr int LEAST = 2, LEAST_OF_TRANSITIONS = 3, LONGEST_HALVES = 3; // pieces, and halves of one
    // What is told of a piece: chunks ahead of it; that the run in front goes on; or of all pieces of a head:
    static constexpr int GOES_ON = -1, BY_TRANSITIONS = -2;

    template <class P> DEV int *cuts(const P &p, int head) { return p.cuts + static_cast<i64>(head) * cfg::PIECES; }
    template <class P> DEV delta_runs of(const P &p, const pieces &all, int length, int head)
    {
        delta_runs r = {{all.most, length, piece::of(0, all.most, length).count, 1, 0}, {}};
        r.own_ahead = lane_id() < r.count ? cuts(p, head)[lane_id()] : GOES_ON;
        r.starts = __ballot_sync(ALL_LANES, r.own_ahead >= 0);
        return r;
    }
    __device__ __forceinline__ int ahead(int number) const { return __shfl_sync(ALL_LANES, own_ahead, number % 32); }
    // The piece that the run in front of a piece begins with.
    __device__ __forceinline__ int before(int number) const
    {
        return 31 - __clz(static_cast<int>(starts & ((1u << number) - 1u)));
    }
};

// Does a head of a sequence go in runs? Its blocks of `states` and `scan` have nothing to do then.
template <class P> DEV bool goes_in_runs(const P &p, int head)
{
    if constexpr (CUT_BY_GATES<P>) {
        return delta_runs::cuts(p, head)[0] != delta_runs::BY_TRANSITIONS;
    }
    return false;
}

} // namespace linear
