// many_scan.cuh: for rowwise_many.cuh: sums along a row in segments, by the threads of a team, from piece to piece.
#pragma once
#include "many_rows.cuh"

namespace many {

// ---- scans -----------------------------------------------------------------------------------------------------

// What a stretch of elements hands on: forward, the sum behind its last start (all of it where there is none); in reverse,
// the sum in front of its first start. start: there is one.
struct stretch {
    float sum;
    int start;
};

// first, then second, in the order of the walk.
DEV stretch join(const stretch &first, const stretch &second)
{
    if constexpr (variant::REVERSE) { // second lies to the left: what it hands on ends at its first start
        return {second.start ? second.sum : second.sum + first.sum, first.start | second.start};
    } else {
        return {second.start ? second.sum : first.sum + second.sum, first.start | second.start};
    }
}

// One element. In reverse, one that begins a segment hands on nothing.
DEV stretch element_stretch(float term, bool start)
{
    return {variant::REVERSE && start ? 0.0f : term, start ? 1 : 0};
}

constexpr int SCANS = max_of(variant::SCANS, 1);
struct scan_scratch {
    stretch part[2][SCANS][variant::SCANS > 0 ? (INNER ? cfg::THREADS : WARPS) : 1];
};

// Of a stretch of each thread of the team: `mine` becomes what comes before it in the walk, `all` what the team hands on.
DEV void scan_team(stretch &mine, stretch &all, stretch (&part)[variant::SCANS > 0 ? (INNER ? cfg::THREADS : WARPS) : 1])
{
    constexpr int LANES = WHOLE_BLOCK ? 32 : TEAM;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    stretch before = {0.0f, 0};
    if constexpr (INNER) {
        part[threadIdx.x] = mine;
        __syncthreads();
        all = before;
        for (int k = 0; k < WARPS; k++) {
            const int w = variant::REVERSE ? WARPS - 1 - k : k;
            if (w == warp) {
                before = all;
            }
            all = join(all, part[w * 32 + lane]);
        }
    } else {
        const int place = variant::REVERSE ? LANES - 1 - lane % LANES : lane % LANES; // in the walk
        stretch sum = mine;
#pragma unroll
        for (int step = 1; step < LANES; step *= 2) {
            stretch other;
            if constexpr (variant::REVERSE) {
                other = {__shfl_down_sync(ALL_LANES, sum.sum, step, LANES), __shfl_down_sync(ALL_LANES, sum.start, step, LANES)};
            } else {
                other = {__shfl_up_sync(ALL_LANES, sum.sum, step, LANES), __shfl_up_sync(ALL_LANES, sum.start, step, LANES)};
            }
            if (place >= step) {
                sum = join(other, sum);
            }
        }
        const int last = variant::REVERSE ? 0 : LANES - 1;
        if constexpr (variant::REVERSE) {
            before = {__shfl_down_sync(ALL_LANES, sum.sum, 1, LANES), __shfl_down_sync(ALL_LANES, sum.start, 1, LANES)};
        } else {
            before = {__shfl_up_sync(ALL_LANES, sum.sum, 1, LANES), __shfl_up_sync(ALL_LANES, sum.start, 1, LANES)};
        }
        if (place == 0) {
            before = {0.0f, 0};
        }
        all = {__shfl_sync(ALL_LANES, sum.sum, last, LANES), __shfl_sync(ALL_LANES, sum.start, last, LANES)};
        if constexpr (WHOLE_BLOCK && WARPS > 1) {
            if (lane == 0) {
                part[warp] = all;
            }
            __syncthreads();
            stretch walked = {0.0f, 0};
            for (int k = 0; k < WARPS; k++) {
                const int w = variant::REVERSE ? WARPS - 1 - k : k;
                if (w == warp) {
                    before = join(walked, before);
                }
                walked = join(walked, part[w]);
            }
            all = walked;
        }
    }
    mine = before;
}

// The scans at the V elements of a piece; carry: what the pieces before it handed on.
DEV void scan_piece(float (&q)[SCANS][V], stretch (&carry)[SCANS], const piece &held, const many_params &p, const variant::head &head,
                    const variant::vals &vals, const place &row, int i, scan_scratch &shared, int &turn)
{
    const bool in_row = row.here && i < p.z.n;
    variant::col c[V] = {};
    make_columns(p, head, in_row, i, c);
    float term[SCANS][V];
    bool start[SCANS][V];
    repeat<0, V>([&]<int J>() {
        float e[max_of(variant::IN, 1)];
        unpack_piece<J>(held, e);
        repeat<0, variant::SCANS>([&]<int S>() {
            const float t = variant::scan_term<S>(e, i + J, p.x, p.z, head, c[J], vals, start[S][J]);
            term[S][J] = in_row ? t : 0.0f;
            start[S][J] &= in_row;
        });
    });
    repeat<0, variant::SCANS>([&]<int S>() {
        stretch mine = {0.0f, 0};
        stretch all;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = variant::REVERSE ? V - 1 - k : k;
            mine = join(mine, element_stretch(term[S][j], start[S][j]));
        }
        scan_team(mine, all, shared.part[turn][S]);
        stretch walked = join(carry[S], mine);
        carry[S] = join(carry[S], all);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = variant::REVERSE ? V - 1 - k : k;
            q[S][j] = variant::REVERSE || !start[S][j] ? walked.sum + term[S][j] : term[S][j];
            walked = join(walked, element_stretch(term[S][j], start[S][j]));
        }
    });
    turn ^= 1;
}

} // namespace many
