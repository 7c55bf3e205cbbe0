// rowwise/inner_scan_carries.cuh: for rowwise/inner_scan.cuh: where walks were when they came to a batch, and what
// warps that share a strip leave for each other.
#pragma once
#include "rowwise/inner_scan_rings.cuh"

namespace many
{

// ---- by batch ----------------------------------------------------------------------------------------

// Where a walk was when it came to a batch, in words of each row: a sum and its power, or the sum alone; of positive
// terms the logarithm of both, which is as exact as the powers themselves are.
__host__ __device__ constexpr int words_of_scan(int form) { return form == SCAN_WEIGHTED ? 2 : 1; }
// of the scans before it that are taken again: those of all walks but the last
__host__ __device__ constexpr int words_before(int scan)
{
    int words = 0;
    for (int k = 0; k < scan; k++) {
        words += variant::SCAN_WALK[k] + 1 < WALKS ? words_of_scan(variant::SCAN_FORM[k]) : 0;
    }
    return words;
}
constexpr int CARRIED = words_before(variant::SCANS);

// Each lane reads what it wrote: in memory, or in shared memory behind the rings, in the place of walk_scratch: no warp
// that has strips of its own meets others.
constexpr int CARRY_STEP = CARRIED * STRIP; // from one batch to the next
struct carry_place {                        // of the warp's batches in a strip
    bool held;
    u32 at;   // from the beginning of shared memory on
    i64 slot; // in params.carries
};
DEV carry_place find_carries(const strip &s, const sharing &with, int batches)
{
    const int warp = __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x) / 32, 0);
    const int at = WARPS * RING_BYTES + warp * (cfg::HELD_CARRIES * CARRY_STEP * 4);
    return {with.warps == 1 && batches <= cfg::HELD_CARRIES, static_cast<u32>(at),
            s.slots + (SLOTS_OF_WARPS ? 0 : with.mine * batches)};
}
// F(where the lane's words of batch `number` are).
template <class F>
DEV void at_carries(const rows_params &p, const carry_place &place, unsigned char *shared_bytes, int number, const F &f)
{
    if (cfg::HELD_CARRIES > 0 && place.held) {
        // of the warp: it takes no register of the thread
        u32 at = place.at + static_cast<u32>(number * (CARRY_STEP * 4));
        keep(at);
        f(reinterpret_cast<float *>(shared_bytes + at + lane_of_warp() * (V * 4)));
    } else {
        f(static_cast<float *>(p.carries) + (place.slot + number) * CARRY_STEP + lane_of_warp() * V);
    }
}

template <int W> DEV void leave_carries(const aggregate (&carry)[SCANS][V], float *at)
{
    each_scan<W>([&]<int S>() {
        float *const to = at + words_before(S) * STRIP;
        float sum[V];
        float top[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            sum[j] = carry[S][j].sum;
            top[j] = top_of(carry[S][j]);
            if constexpr (variant::SCAN_FORM[S] == SCAN_LOG) {
                sum[j] = log_below(sum[j], top[j]);
            }
        }
        store_vec<V>(to, sum);
        if constexpr (variant::SCAN_FORM[S] == SCAN_WEIGHTED) {
            store_vec<V>(to + STRIP, top);
        }
    });
}

struct carried { // of the rows of a lane, as it lies there
    float word[max_of(CARRIED, 1)][V];
};
template <int W> DEV void take_carries(carried &to, const float *at)
{
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int k = words_before(S); k < words_before(S + 1); k++) {
            load_vec<V>(at + k * STRIP, to.word[k]);
        }
    });
}
template <int S> DEV aggregate carried_aggregate(const carried &from, int j)
{
    constexpr int FIRST = words_before(S);
    const float word = from.word[FIRST][j];
    aggregate x = nothing<S>();
    x.sum = variant::SCAN_FORM[S] != SCAN_LOG ? word : word == -INF ? 0.0f : 1.0f;
    if constexpr (has_top<S>()) {
        set_top(x, from.word[words_before(S + 1) - 1][j]);
    }
    return x;
}

template <int W> DEV void carry_nothing(aggregate (&carry)[SCANS][V])
{
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int j = 0; j < V; j++) {
            carry[S][j] = nothing<S>();
        }
    });
}

// ---- of warps that share a strip ---------------------------------------------------------------------

// Plain sums: what each warp hands on, of one meeting and of the next in turn. Scans with powers have a barrier more
// instead, and where a walk is waits here, too: their registers are for warps that have a strip of their own.
constexpr int MEETINGS = TOPS ? 1 : 2;
struct passed_on { // by lane
    volatile float sum[WARPS][V][32];
    volatile float top[WARPS][V][32];
};
template <bool POWERS> struct walk_scratch_of {
    aggregate part[MEETINGS][WARPS][V][32];
};
template <> struct walk_scratch_of<true> {
    aggregate part[MEETINGS][WARPS][V][32];
    passed_on before[most_in_walk()], after[most_in_walk()]; // by number in the walk
};
using walk_scratch = walk_scratch_of<TOPS>;

DEV void leave_aggregate(passed_on &to, const aggregate &x, int warp, int j)
{
    to.sum[warp][j][lane_of_warp()] = x.sum;
    to.top[warp][j][lane_of_warp()] = top_of(x);
}
template <int S> DEV aggregate take_aggregate(const passed_on &from, int warp, int j)
{
    aggregate x = nothing<S>();
    x.sum = from.sum[warp][j][lane_of_warp()];
    if constexpr (has_top<S>()) {
        set_top(x, from.top[warp][j][lane_of_warp()]);
    }
    return x;
}

// Of what each warp hands on: `carry` becomes what comes before this one, `after` what all of them hand on.
template <int S> DEV void exchange_warps(aggregate (&carry)[V], aggregate (&after)[V], const aggregate (&own)[V],
                                         const sharing &with, aggregate (&part)[WARPS][V][32])
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        part[with.mine][j][lane_of_warp()] = own[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; j++) {
        aggregate all = carry[j];
#pragma unroll 1
        for (int k = 0; k < WARPS; k++) {
            const int w = in_reverse<S>() ? WARPS - 1 - k : k;
            if (w == with.mine) {
                carry[j] = all;
            }
            all = join<S>(all, part[w][j][lane_of_warp()]);
        }
        after[j] = all;
    }
    if constexpr (MEETINGS == 1) { // else what is read here is overwritten behind the next meeting's barrier
        __syncthreads();
    }
}

} // namespace many
