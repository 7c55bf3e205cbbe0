// rowwise/scan.cuh: for rowwise/registers.cuh: scans along a row in segments, by the threads of a team, from piece to
// piece.
#pragma once
#include "rowwise/scan_reference.cuh"
#include "rowwise/scan_segment.cuh"

namespace many
{

template <int S, class SHUFFLE> DEV aggregate shuffled(const aggregate &x, const SHUFFLE &shuffle)
{
    aggregate other = x;
    other.sum = shuffle(x.sum);
    if constexpr (variant::SCAN_STARTS[S] != 0) {
        other.start = shuffle(x.start);
    }
    if constexpr (has_top<S>()) {
        set_top(other, shuffle(top_of(x)));
    }
    return other;
}

// From the thread that is `step` before this one in the walk.
template <int S, int LANES> DEV aggregate from_before(const aggregate &x, int step)
{
    return shuffled<S>(x, [&](auto v) {
        if constexpr (in_reverse<S>()) {
            return __shfl_down_sync(ALL_LANES, v, step, LANES);
        } else {
            return __shfl_up_sync(ALL_LANES, v, step, LANES);
        }
    });
}

// Of an aggregate of each thread of a team's part of a warp: `mine` becomes what comes before it in the walk, `all`
// what they hand on.
template <int S> DEV void scan_lanes(aggregate &mine, aggregate &all)
{
    constexpr int LANES = WHOLE_BLOCK ? 32 : TEAM;
    constexpr bool REVERSE = in_reverse<S>();
    const int lane = static_cast<int>(threadIdx.x) % LANES;
    const int place = REVERSE ? LANES - 1 - lane : lane; // in the walk
    aggregate sum = mine;
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) {
        const aggregate other = from_before<S, LANES>(sum, step);
        if (place >= step) {
            sum = join<S>(other, sum);
        }
    }
    mine = from_before<S, LANES>(sum, 1);
    if (place == 0) {
        mine = nothing<S>();
    }
    all = shuffled<S>(sum, [](auto v) { return __shfl_sync(ALL_LANES, v, REVERSE ? 0 : LANES - 1, LANES); });
}

// Of what each warp hands on: `before` becomes what comes before this one in the walk, `all` what all do.
template <int S> DEV void scan_warps(aggregate &before, aggregate &all, aggregate (&part)[SCAN_PARTS])
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) {
        part[warp] = all;
    }
    __syncthreads();
    aggregate walked = nothing<S>();
    before = walked;
    for (int k = 0; k < WARPS; k++) {
        const int w = in_reverse<S>() ? WARPS - 1 - k : k;
        if (w == warp) {
            before = walked;
        }
        walked = join<S>(walked, part[w]);
    }
    all = walked;
}

// Of an aggregate of each thread of the team: `mine` becomes what comes before it in the walk, `all` what the team
// hands on.
template <int S> DEV void scan_team(aggregate &mine, aggregate &all, aggregate (&part)[SCAN_PARTS])
{
    if constexpr (INNER) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        aggregate before = nothing<S>();
        part[threadIdx.x] = mine;
        __syncthreads();
        all = before;
        for (int k = 0; k < WARPS; k++) {
            const int w = in_reverse<S>() ? WARPS - 1 - k : k;
            if (w == warp) {
                before = all;
            }
            all = join<S>(all, part[w * 32 + lane]);
        }
        mine = before;
    } else {
        scan_lanes<S>(mine, all);
        if constexpr (WHOLE_BLOCK && WARPS > 1) {
            aggregate before;
            scan_warps<S>(before, all, part);
            mine = join<S>(before, mine);
        }
    }
}

// N neighbours with powers, no start among them: their sum below one reference, so that each costs one exponential; e:
// what each adds to it. False: there are starts, or infinities that the difference of two would spoil.
template <int S, int N>
DEV bool add_together(aggregate &all, float (&e)[N], const scan_input (&x)[N], const aggregate (&one)[N])
{
    float top = -INF;
    bool starts = false;
#pragma unroll
    for (int j = 0; j < N; j++) {
        top = fmaxf(top, top_of(one[j]));
        starts |= x[j].start;
    }
    if (starts || top == INF) {
        return false;
    }
    const float reference = top == -INF ? 0.0f : top;
    all = nothing<S>();
#pragma unroll
    for (int j = 0; j < N; j++) {
        e[j] = one[j].sum * m_exp(top_of(one[j]) - reference);
        all.sum += e[j];
    }
    set_top(all, top);
    return true;
}

// The scan at those neighbours, behind `before`, with the largest reference for all of them. False: at the first one
// that would be too large a reference, and small sums would vanish.
template <int S, int N> DEV bool scan_together(float (&q)[N], const aggregate &before, const aggregate &all,
                                               const float (&e)[N], const scan_input (&x)[N], const aggregate (&one)[N])
{
    constexpr float FAR = 40.0f;
    const float top = fmaxf(top_of(before), top_of(all));
    const float first = fmaxf(top_of(before), top_of(one[in_reverse<S>() ? N - 1 : 0]));
    if (!(first >= top - FAR && top < INF)) {
        return false;
    }
    const float reference = top == -INF ? 0.0f : top;
    const float factor = m_exp(top_of(all) - reference);
    aggregate walked = nothing<S>();
    walked.sum = before.sum * m_exp(top_of(before) - reference);
    set_top(walked, top);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int j = in_reverse<S>() ? N - 1 - k : k;
        walked.sum += e[j] * factor;
        q[j] = scan_value<S>(walked, x[j]);
    }
    return true;
}

// N neighbours of a thread, in the order of memory.
template <int N> struct neighbours {
    aggregate own; // what they hand on
    float e[N];    // where `together`, what each adds
    bool together;
};

template <int S, int N> DEV void add_neighbours(neighbours<N> &to, const scan_input (&x)[N], const aggregate (&one)[N])
{
    to.own = nothing<S>();
    to.together = false;
    if constexpr (has_top<S>() && N > 1) {
        to.together = add_together<S>(to.own, to.e, x, one);
    }
    if (!to.together) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int j = in_reverse<S>() ? N - 1 - k : k;
            to.own = handed_on<S>(to.own, with_element<S>(to.own, one[j], x[j].start), x[j].start);
        }
    }
}

// The scan at each of them, behind `walked`.
template <int S, int N> DEV void walk_neighbours(float (&q)[N], aggregate walked, const neighbours<N> &at,
                                                 const scan_input (&x)[N], const aggregate (&one)[N])
{
    if constexpr (has_top<S>() && N > 1) {
        if (at.together && scan_together<S>(q, walked, at.own, at.e, x, one)) {
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int j = in_reverse<S>() ? N - 1 - k : k;
        const aggregate with = with_element<S>(walked, one[j], x[j].start);
        q[j] = scan_value<S>(with, x[j]);
        walked = handed_on<S>(walked, with, x[j].start);
    }
}

// The N neighbours of each thread; carry: what the elements before those of the team handed on.
template <int S, int N> DEV void scan_elements(float (&q)[N], const scan_input (&x)[N], const aggregate (&one)[N],
                                               aggregate &carry, aggregate (&part)[SCAN_PARTS])
{
    neighbours<N> at;
    aggregate all;
    add_neighbours<S>(at, x, one);
    aggregate before = at.own;
    scan_team<S>(before, all, part);
    const aggregate walked = join<S>(carry, before);
    carry = join<S>(carry, all);
    walk_neighbours<S>(q, walked, at, x, one);
}

// What scan S takes of element j of a piece; q: the scans that it may be made of.
template <int S> DEV void scan_takes(scan_input &x, aggregate &one, const float (&q)[SCANS][V], const piece &held,
                                     const rows_params &p, const variant::head &head, const variant::vals &vals,
                                     const variant::col &c, bool in_row, int i, int j)
{
    float e[max_of(variant::IN, 1)];
    float known[SCANS];
    unpack_piece(held, e, j);
#pragma unroll
    for (int s = 0; s < S; s++) {
        known[s] = q[s][j];
    }
    variant::scan_term<S>(e, i + j, p.x, p.z, head, c, vals, known, x);
    x.start &= in_row;
    x.value = in_row ? x.value : 0.0f;
    one = in_row ? element_aggregate<S>(x) : nothing<S>();
}

// The scans of walk W at a piece, into q, where those are that they are made of.
template <int W> DEV void scan_piece(float (&q)[SCANS][V], aggregate (&carry)[SCANS], const piece &held,
                                     const rows_params &p, const variant::head &head, const variant::vals &vals,
                                     const place &row, int i, scan_scratch &shared, int &turn)
{
    const bool in_row = is_in_row(row, i, p.z.n);
    variant::col c[V] = {};
    make_columns(p, head, in_row, i, c);
    repeat<0, variant::SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            scan_input x[V] = {};
            aggregate one[V];
#pragma unroll
            for (int j = 0; j < V; j++) {
                scan_takes<S>(x[j], one[j], q, held, p, head, vals, c[j], in_row, i, j);
            }
            scan_elements<S>(q[S], x, one, carry[S], shared.part[turn][S]);
        }
    });
    turn ^= 1;
}

// A scan of a row in registers: lanes of each vector by themselves, then the vectors of a warp. take(at, v, x, one):
// what the scan takes of vector v, which stands at `at`. before[v] becomes what those of the warp before this thread's
// vector v hand on. Returns what all of them do.
template <int S, class TAKE>
DEV aggregate add_vectors(aggregate (&before)[VECTORS], neighbours<V> (&at)[VECTORS], const TAKE &take)
{
    aggregate all[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        aggregate one[V];
        take(v, v, x, one);
        add_neighbours<S, V>(at[v], x, one);
        before[v] = at[v].own;
        scan_lanes<S>(before[v], all[v]);
    }
    aggregate walked = nothing<S>();
#pragma unroll
    for (int step = 0; step < VECTORS; step++) {
        const int v = in_reverse<S>() ? VECTORS - 1 - step : step;
        before[v] = join<S>(walked, before[v]);
        walked = join<S>(walked, all[v]);
    }
    return walked;
}

template <int S, class TAKE> DEV void walk_vectors(float (&q)[VECTORS][SCANS][V], const aggregate &warps,
                                                   const aggregate (&before)[VECTORS],
                                                   const neighbours<V> (&at)[VECTORS], const TAKE &take)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        scan_input x[V] = {};
        aggregate one[V];
        float done[V];
        take(v, v, x, one);
        walk_neighbours<S, V>(done, join<S>(warps, before[v]), at[v], x, one);
#pragma unroll
        for (int j = 0; j < V; j++) {
            q[v][S][j] = done[j];
        }
    }
}

// The slow way of scan S, where a fast one has been tried: vector after vector, element after element. Returns what the
// warp hands on.
template <int S, class TAKE> DEV aggregate walk_slowly(float (&q)[VECTORS][SCANS][V], piece (&held)[VECTORS],
                                                       const aggregate &warps, const TAKE &take)
{
    constexpr bool REVERSE = in_reverse<S>();
    constexpr int AT = REVERSE ? VECTORS - 1 : 0; // where the next vector of the walk stands
    constexpr int FIRST = REVERSE ? V - 1 : 0;
    aggregate walked = nothing<S>();
#pragma unroll 1
    for (int step = 0; step < VECTORS; step++) {
        scan_input x[V] = {};
        aggregate one[V];
        float done[V];
        aggregate own = nothing<S>();
        take(AT, REVERSE ? VECTORS - 1 - step : step, x, one);
#pragma unroll 1
        for (int turn = 0; turn < 2; turn++) { // what the vector hands on, then the scan behind what comes before it
#pragma unroll 1
            for (int k = 0; k < V; k++) {
                const aggregate with = with_element<S>(own, one[FIRST], x[FIRST].start);
                done[FIRST] = scan_value<S>(with, x[FIRST]);
                own = handed_on<S>(own, with, x[FIRST].start);
                move_on<REVERSE>(x);
                move_on<REVERSE>(one);
                move_on<REVERSE>(done);
            }
            if (turn == 0) {
                aggregate all;
                scan_lanes<S>(own, all);
                own = join<S>(warps, join<S>(walked, own));
                walked = join<S>(walked, all);
            }
        }
#pragma unroll
        for (int j = 0; j < V; j++) {
            q[AT][S][j] = done[j];
#pragma unroll
            for (int s = 0; s <= S; s++) {
                float of_vectors[VECTORS];
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    of_vectors[v] = q[v][s][j];
                }
                move_on<REVERSE>(of_vectors);
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    q[v][s][j] = of_vectors[v];
                }
            }
        }
        move_on<REVERSE>(held);
    }
    return walked;
}

// The same of all warps: first what each of them hands on.
template <int S, class TAKE> DEV void scan_slowly(float (&q)[VECTORS][SCANS][V], piece (&held)[VECTORS],
                                                  const place &row, aggregate (&part)[SCAN_PARTS], const TAKE &take)
{
    constexpr bool MEET = WHOLE_BLOCK && WARPS > 1;
    aggregate warps = nothing<S>();
#pragma unroll 1
    for (int turn = MEET ? 0 : 1; turn < 2; turn++) {
        if constexpr (SHARED_NEXT) {
            recall(held, row);
        }
        const aggregate own = walk_slowly<S>(q, held, warps, take);
        if (MEET && turn == 0) {
            warps = join_warps_before<S>(own, part);
        }
    }
}

// The power of the row's first element in the walk.
template <int S>
DEV float lead_power(const rows_params &p, const variant::head &head, const variant::vals &vals, const place &row)
{
    const int i = in_reverse<S>() ? p.z.n - 1 : 0;
    const float none[SCANS] = {};
    float e[max_of(variant::IN, 1)];
    variant::col c[1] = {};
    scan_input x = {};
    unpack_piece(row.lead, e, 0);
    if constexpr (variant::COLS) {
        variant::make_cols<1>(p.x, p.z, head, i, c);
    }
    variant::scan_term<S>(e, i, p.x, p.z, head, c[0], vals, none, x);
    return x.power;
}

// The fast way, where a reference serves all of the row: true.
template <int S, class TAKE> DEV bool scan_near(float (&q)[VECTORS][SCANS][V], below (&known)[SCANS],
                                                const rows_params &p, const variant::head &head,
                                                const variant::vals &vals, const place &row,
                                                aggregate (&part)[SCAN_PARTS], const TAKE &take)
{
    constexpr bool BESIDE = variant::SCAN_BESIDE[S] >= 0;
    below &mine = known[S];
    below &other = known[max_of(variant::SCAN_BESIDE[S], 0)];
    float all;
    float before = 0.0f;
    if constexpr (BESIDE) {
        if (!other.near) {
            return false;
        }
        all = add_beside<S>(q, mine, other, take);
    } else {
        mine.reference = lead_power<S>(p, head, vals, row) + RAISED;
        all = add_below<S>(mine, take);
    }
    if constexpr (WHOLE_BLOCK && WARPS > 1) {
        before = add_warps_before<S>(all, part);
    }
    if constexpr (BESIDE) {
        walk_beside<S>(q, mine, other, before);
        return true;
    } else {
        mine.near = __all_sync(ALL_LANES, all <= MOST_BELOW && fabsf(mine.reference) <= MOST_REFERENCE);
        if (mine.near) {
            walk_below<S>(q, mine, before);
        }
        return mine.near;
    }
}

template <int S> DEV void scan_by_warp(float (&q)[VECTORS][SCANS][V], below (&known)[SCANS], piece (&held)[VECTORS],
                                       const rows_params &p, const variant::head &head, const variant::vals &vals,
                                       const place &row, int first, aggregate (&part)[SCAN_PARTS])
{
    const auto take = [&](int at, int v, scan_input(&x)[V], aggregate(&one)[V]) {
        const int i = first + v * STEP;
        const bool in_row = is_in_row(row, i, p.z.n);
        variant::col c[V] = {};
        make_columns(p, head, in_row, i, c);
#pragma unroll
        for (int j = 0; j < V; j++) {
            scan_takes<S>(x[j], one[j], q[at], held[at], p, head, vals, c[j], in_row, i, j);
        }
    };
    if constexpr (SHARED_NEXT) {
        recall(held, row);
    }
    if constexpr (has_top<S>() && variant::SCAN_STARTS[S] == 0) {
        known[S].near = false;
        if constexpr ((S == 0 && HAS_LEAD) || variant::SCAN_BESIDE[S] >= 0) {
            if (scan_near<S>(q, known, p, head, vals, row, part, take)) {
                return;
            }
        }
        scan_slowly<S>(q, held, row, part, take);
    } else {
        neighbours<V> at[VECTORS];
        aggregate before[VECTORS];
        aggregate warps = nothing<S>();
        aggregate walked = add_vectors<S>(before, at, take);
        if constexpr (WHOLE_BLOCK && WARPS > 1) {
            scan_warps<S>(warps, walked, part);
        }
        walk_vectors<S>(q, warps, before, at, take);
    }
}

// Ranks of a row in registers: what is ranked stands in shared memory, and each element is compared with all of them.
template <int S> DEV void rank_row(float (&q)[VECTORS][SCANS][V], piece (&held)[VECTORS], const rows_params &p,
                                   const variant::head &head, const variant::vals &vals, const place &row, int first,
                                   float *ranked)
{
    float own[VECTORS][V];
    recall(held, row);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int i = first + v * STEP;
        const bool in_row = is_in_row(row, i, p.z.n);
        variant::col c[V] = {};
        make_columns(p, head, in_row, i, c);
#pragma unroll
        for (int j = 0; j < V; j++) {
            scan_input x = {};
            aggregate one;
            scan_takes<S>(x, one, q[v], held[v], p, head, vals, c[j], in_row, i, j);
            own[v][j] = x.value == x.value ? x.value : -INF;
            q[v][S][j] = 0.0f;
            if (in_row && i + j < p.z.n) {
                ranked[i + j] = own[v][j];
            }
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < p.z.n; k++) {
        const float other = ranked[k];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                q[v][S][j] += other > own[v][j] || (other == own[v][j] && k < first + v * STEP + j) ? 1.0f : 0.0f;
            }
        }
    }
    __syncthreads(); // it is read, before others are written
}

// Elements go to their ranks, or come from there, through shared memory.
template <int S> DEV void move_row(float (&q)[VECTORS][SCANS][V], piece (&held)[VECTORS], const rows_params &p,
                                   const variant::head &head, const variant::vals &vals, const place &row, int first,
                                   float *shared_row)
{
    constexpr bool PLACED = variant::SCAN_FORM[S] == SCAN_PLACED;
    int from[VECTORS][V];
    recall(held, row);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int i = first + v * STEP;
        const bool in_row = is_in_row(row, i, p.z.n);
        variant::col c[V] = {};
        make_columns(p, head, in_row, i, c);
#pragma unroll
        for (int j = 0; j < V; j++) {
            scan_input x = {};
            aggregate one;
            scan_takes<S>(x, one, q[v], held[v], p, head, vals, c[j], in_row, i, j);
            const int rank = static_cast<int>(x.shift);
            from[v][j] = PLACED ? i + j : rank;
            if (in_row && i + j < p.z.n) {
                shared_row[PLACED ? rank : i + j] = x.value;
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const bool in_row = is_in_row(row, first + v * STEP, p.z.n);
#pragma unroll
        for (int j = 0; j < V; j++) {
            q[v][S][j] = in_row && from[v][j] < p.z.n ? shared_row[from[v][j]] : 0.0f;
        }
    }
    __syncthreads(); // it is read, before others are written
}

// The same of a chunk; with TALL at once.
template <int W> DEV void scan_chunk(float (&q)[VECTORS][SCANS][V], below (&known)[SCANS], aggregate (&carry)[SCANS],
                                     piece (&held)[VECTORS], const rows_params &p, const variant::head &head,
                                     const variant::vals &vals, const place &row, int base, scan_scratch &shared,
                                     int &turn)
{
    const int first = base + own_first();
    if constexpr (BY_WARP) {
        repeat<0, variant::SCANS>([&]<int S>() {
            if constexpr (variant::SCAN_WALK[S] == W && variant::SCAN_FORM[S] == SCAN_RANK) {
                rank_row<S>(q, held, p, head, vals, row, first, ranked_of(shared));
            } else if constexpr (variant::SCAN_WALK[S] == W && is_of_whole_row(variant::SCAN_FORM[S])) {
                move_row<S>(q, held, p, head, vals, row, first, ranked_of(shared));
            } else if constexpr (variant::SCAN_WALK[S] == W) {
                scan_by_warp<S>(q, known, held, p, head, vals, row, first, shared.part[turn][S]);
            }
        });
        turn ^= 1;
    } else if constexpr (TALL) {
        repeat<0, variant::SCANS>([&]<int S>() {
            if constexpr (variant::SCAN_WALK[S] == W) {
                scan_input x[VECTORS] = {};
                aggregate one[VECTORS];
                float done[VECTORS];
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    const bool in_row = row.here && first + v < p.z.n;
                    variant::col c[V] = {};
                    make_columns(p, head, in_row, first + v, c);
                    scan_takes<S>(x[v], one[v], q[v], held[v], p, head, vals, c[0], in_row, first + v, 0);
                }
                scan_elements<S>(done, x, one, carry[S], shared.part[turn][S]);
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    q[v][S][0] = done[v];
                }
            }
        });
        turn ^= 1;
    } else {
#pragma unroll
        for (int step = 0; step < VECTORS; step++) {
            const int v = variant::WALK_REVERSE[W] ? VECTORS - 1 - step : step;
            scan_piece<W>(q[v], carry, held[v], p, head, vals, row, first + v * STEP, shared, turn);
        }
    }
}

template <int W> DEV void carry_nothing(aggregate (&carry)[SCANS])
{
    repeat<0, variant::SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            carry[S] = nothing<S>();
        }
    });
}

// ---- rows that do not fit registers: where a walk was when it came to each chunk, for a later walk ----

DEV aggregate *carries_of(const rows_params &p, int chunk, int chunks)
{
    constexpr int ROWS = cfg::ROWS_PER_BLOCK;
    return static_cast<aggregate *>(p.carries) + ((static_cast<i64>(blockIdx.x) * chunks + chunk) * SCANS * ROWS +
                                                  (INNER ? static_cast<int>(threadIdx.x) % 32 : 0));
}

template <int W> DEV void leave_carries(const aggregate (&carry)[SCANS], const rows_params &p, int chunk, int chunks)
{
    if (lane_in_team() == 0) { // the barriers of the scans that follow come before anybody reads them
        repeat<0, variant::SCANS>([&]<int S>() {
            if constexpr (variant::SCAN_WALK[S] == W) {
                carries_of(p, chunk, chunks)[S * cfg::ROWS_PER_BLOCK] = carry[S];
            }
        });
    }
}

template <int W> DEV void take_carries(aggregate (&carry)[SCANS], const rows_params &p, int chunk, int chunks)
{
    repeat<0, variant::SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            carry[S] = carries_of(p, chunk, chunks)[S * cfg::ROWS_PER_BLOCK];
        }
    });
}

} // namespace many
