// rowwise/inner_scan_reference.cuh: for rowwise/inner_scan.cuh: scans with powers at the places of a batch: all of them
// in one segment below one reference for each row, row by row, from what is read to what goes out; or, where that would
// not be exact, in loops by pairs of sum and power (for rowwise/inner_scan_lookback.cuh, too).
#pragma once
#include "rowwise/inner_scan_batch.cuh"

namespace many
{

// ---- below a reference -------------------------------------------------------------------------------

// Is it seen from the elements of each row whether a segment begins? Else bits of the batch say so, of all rows.
template <int S> constexpr bool STARTS_SEEN = variant::SCAN_STARTS[S] == 2;

// Does a segment begin among the places but at the first?
template <int S> DEV bool is_cut(const batch &b, const taken<S> &terms)
{
    bool cut = b.starts[S] > 1;
#pragma unroll
    for (int k = 1; k < PLACES; k++) {
        cut |= variant::SCAN_STARTS[S] == 2 && terms.x[k].start;
    }
    return cut;
}
template <int S> DEV bool starts_first(const batch &b, const taken<S> &terms)
{
    return variant::SCAN_STARTS[S] == 2 ? terms.x[0].start : (b.starts[S] & 1) != 0;
}

// The same of one segment, below the reference that the scan has had so far, or the logarithm that it was carried as,
// or the first power: no largest one is looked for. Was that exact?
template <int S>
DEV bool walk_below(float (&q)[PLACES], near_row &known, aggregate &walked, const batch &b, const taken<S> &terms)
{
    static_assert(variant::SCAN_FORM[S] == SCAN_LOG, "what is added is positive, so that the last sum is the largest");
    const bool start = starts_first<S>(b, terms);
    const bool anew = !in_reverse<S>() && start;
    const bool none = anew || top_of(walked) == -INF;
    known.reference = none ? top_of(terms.one[place_in_walk<S>(0)]) : top_of(walked);
    walked.sum = anew ? 0.0f : walked.sum;
    set_top(walked, known.reference);
#pragma unroll
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
        known.e[k] = exp_below(top_of(terms.one[k]), known.reference); // NaN where both are infinite
        walked.sum += known.e[k];
        known.sum[k] = walked.sum;
        q[k] = is_lazy<S>() ? walked.sum : log_below(walked.sum, known.reference);
    }
    // All are asked: a branch costs more. Behind +inf all powers would be 0, and a scan beside would weigh what came
    // before with inf * 0.
    const bool near = (walked.sum <= MOST_BELOW) & (fabsf(known.reference) <= MOST_REFERENCE) & !is_cut<S>(b, terms);
    if (in_reverse<S>() && start) {
        walked = nothing<S>();
    }
    return near;
}

// A scan beside one whose sums are near a reference: they and the powers are there. Values are divided by sums of up to
// MOST_BELOW before they are added up: digits go where that is below the normal numbers, for values below 2^-126
// MOST_BELOW. A factor would move that, and values as far above 1 would overflow.
template <int S> DEV void walk_beside(float (&q)[PLACES], aggregate &walked, const batch &b, const taken<S> &terms,
                                      const near_row &other, int j)
{
    constexpr int OTHER = max_of(variant::SCAN_BESIDE[S], 0);
    const bool start = starts_first<S>(b, terms);
    const aggregate before = !in_reverse<S>() && start ? nothing<S>() : walked;
    walked = nothing<S>();
    walked.sum = before.sum * exp_below(top_of(before), -other.reference);
    set_top(walked, -other.reference);
#pragma unroll
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
        const float value = terms.x[k].value;
        const float sum = is_lazy<OTHER>() ? b.q[k].of[OTHER][j] : other.sum[k];
        walked.sum += cfg::FAST_MATH ? value * m_rcp(sum) : value / sum;
        q[k] = walked.sum * other.e[k];
    }
    if (in_reverse<S>() && start) {
        walked = nothing<S>();
    }
}

template <int W> __host__ __device__ constexpr bool all_near() // may all scans up to walk W be taken so?
{
    bool near = true;
    for (int s = 0; s < SCANS; s++) {
        near &= variant::SCAN_WALK[s] > W || variant::SCAN_FORM[s] != SCAN_WEIGHTED || variant::SCAN_BESIDE[s] >= 0;
    }
    return near;
}

// Row j of the lane. `at`: where its scans are. Was that exact?
template <int W> DEV bool walk_row_near(batch &b, aggregate (&at)[SCANS], const rows_params &p,
                                        const variant::head &head, const strip_values &vals, int j)
{
    bool near = true;
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] <= W) {
            taken<S> terms;
            float q[PLACES];
            const int start = at[S].start; // a batch that is near has others at its first place alone
            take_terms<S, false>(terms, b, p, head, vals, p.z.n, j);
            if constexpr (variant::SCAN_BESIDE[S] >= 0) {
                walk_beside<S>(q, at[S], b, terms, b.known[variant::SCAN_BESIDE[S]][j], j);
            } else if constexpr (has_top<S>()) {
                near &= walk_below<S>(q, b.known[S][j], at[S], b, terms);
            } else {
                walk_apart<S>(q, at[S], terms);
            }
            if constexpr (!STARTS_SEEN<S>) {
                at[S].start = 0;
            } else if constexpr (has_top<S>()) {
                at[S].start = start | (starts_first<S>(b, terms) ? 1 : 0);
            }
#pragma unroll
            for (int k = 0; k < PLACES; k++) {
                b.q[k].of[S][j] = q[k];
            }
        }
    });
    return near;
}

// The values of scans that only those beside them are made of, where something else is, too.
DEV void publish_values(batch &b, int j)
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (is_lazy<S>()) {
#pragma unroll
            for (int k = 0; k < PLACES; k++) {
                b.q[k].of[S][j] = log_below(b.q[k].of[S][j], b.known[S][j].reference);
            }
        }
    });
}

// The batch, for all rows of the lane or for none; the rows of the last walk go out.
template <int W> DEV bool walk_batch_near(const targets &to, batch &b, const carried &again,
                                          aggregate (&walked)[SCANS][V], const rows_params &p,
                                          const variant::head &head, const strip_values &vals, const strip &s,
                                          bool store)
{
    constexpr bool LAST = W + 1 == WALKS;
    aggregate on[V][SCANS];
    finished y[PLACES];
    packed out[PLACES];
    bool near = true;
#pragma unroll
    for (int j = 0; j < V; j++) {
        repeat<0, SCANS>([&]<int S>() {
            if constexpr (variant::SCAN_WALK[S] <= W) {
                if constexpr (variant::SCAN_WALK[S] < W) {
                    on[j][S] = carried_aggregate<S>(again, j);
                } else {
                    on[j][S] = walked[S][j];
                }
            }
        });
        near &= walk_row_near<W>(b, on[j], p, head, vals, j);
        if constexpr (LAST) {
            publish_values(b, j);
            finish_rows(out, y, b, p, head, vals, j);
        }
    }
    if (!(near || s.n == 0)) {
        return false;
    }
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int j = 0; j < V; j++) {
            walked[S][j] = on[j][S];
        }
    });
    if (LAST && store && s.n > 0) {
        store_places(to, out, p);
    }
    return true;
}

// ---- by pairs ----------------------------------------------------------------------------------------

// A loop that is not unrolled, in which all places move on by one at each step, and in the end are where they were. So
// it is compiled once, and not for every place. FINISH: the last scan of all: each place then goes out.
template <int S, bool FINISH> DEV void walk_slowly(const targets &to, batch &b, aggregate (&walked)[V],
                                                   const rows_params &p, const variant::head &head,
                                                   const strip_values &vals, const strip &s, int end, bool store)
{
    constexpr bool REVERSE = in_reverse<S>();
    constexpr int AT = REVERSE ? PLACES - 1 : 0;
#pragma unroll 1
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
        finished out;
#pragma unroll
        for (int j = 0; j < V; j++) {
            aggregate one;
            const scan_input x = take_term<S, true>(one, b, AT, k, p, head, vals, end, j);
            const aggregate with = with_element<S>(walked[j], one, x.start);
            b.q[AT].of[S][j] = scan_value<S>(with, x);
            walked[j] = handed_on<S>(walked[j], with, x.start);
            if constexpr (FINISH) {
                finish_row(out, b, AT, b.base + k, p, head, vals, j);
            }
        }
        if (FINISH && store) {
            store_some_rows(to, out, p, k, b.base + k < end ? s.n : 0);
        }
        move_on<REVERSE>(b.held);
        move_on<REVERSE>(b.q);
        if constexpr (TOLD) {
            move_on<REVERSE>(b.col);
        }
    }
}

template <int W> DEV void walk_batch_slowly(const targets &to, batch &b, const carried &again,
                                            aggregate (&walked)[SCANS][V], const rows_params &p,
                                            const variant::head &head, const strip_values &vals, const strip &s,
                                            int end, bool store)
{
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        // the compiler does not see that all of them are written, and would make what the near way leaves, for nothing
        b.q[k] = {};
    }
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] <= W) {
            aggregate at[V];
#pragma unroll
            for (int j = 0; j < V; j++) {
                if constexpr (variant::SCAN_WALK[S] < W) {
                    at[j] = carried_aggregate<S>(again, j);
                } else {
                    at[j] = walked[S][j];
                }
            }
            walk_slowly<S, S + 1 == variant::SCANS>(to, b, at, p, head, vals, s, end, store);
            if constexpr (variant::SCAN_WALK[S] == W) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    walked[S][j] = at[j];
                    walked[S][j].start = STARTS_SEEN<S> ? at[j].start : 0;
                }
            }
        }
    });
}

// ---- a batch of walk W -------------------------------------------------------------------------------

// Warps of a strip meet at scan S: shared.before becomes where it comes to this warp's batch, shared.after where it
// leaves all of them.
template <int S, class SCRATCH>
DEV void exchange_in_memory(const aggregate (&walked)[V], batch &b, const sharing &with, SCRATCH &shared)
{
    constexpr int N = number_in_walk(S);
    aggregate own[V];
    aggregate carry[V];
    aggregate all[V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        own[j] = walked[j];
        own[j].start = STARTS_SEEN<S> ? walked[j].start : b.starts[S] != 0;
        carry[j] = take_aggregate<S>(shared.before[N], with.mine, j);
    }
    exchange_warps<S>(carry, all, own, with, shared.part[0]);
#pragma unroll
    for (int j = 0; j < V; j++) {
        leave_aggregate(shared.before[N], carry[j], with.mine, j);
        leave_aggregate(shared.after[N], all[j], with.mine, j);
    }
}

// `walked`: where its scans come to the batches that the warps of the strip have at once, then where they leave all of
// them. Warps of one strip find out scan by scan what each hands on. come(where they come to this warp's batch).
template <int W, class SCRATCH, class F>
DEV void walk_batch(const targets &to, batch &b, const carried &again, aggregate (&walked)[SCANS][V],
                    const rows_params &p, const variant::head &head, const strip_values &vals, const strip &s,
                    const sharing &with, SCRATCH &shared, const F &come)
{
    constexpr int N = count_scans<W>();
    if (with.warps != 1) {
        each_scan<W>([&]<int S>() {
#pragma unroll
            for (int j = 0; j < V; j++) {
                leave_aggregate(shared.before[number_in_walk(S)], walked[S][j], with.mine, j);
            }
        });
    }
    const bool whole = b.base + PLACES <= end_of(p, s); // all places are in the row
    // another one in each turn, or what the slow way takes would be made ahead of the loop, for nothing
    int end = end_of(p, s);
#pragma unroll 1
    for (int turn = with.warps == 1 ? N : 0; turn <= N; turn++, end += with.zero) {
        each_scan<W>([&]<int S>() { b.starts[S] += static_cast<u32>(with.zero); });
        if (with.warps != 1) {
            each_scan<W>([&]<int S>() {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    walked[S][j] = number_in_walk(S) < turn
                                       ? take_aggregate<S>(shared.before[number_in_walk(S)], with.mine, j)
                                       : nothing<S>();
                }
            });
        }
        if (turn == N) {
            come(walked);
        }
        bool near = false;
        if constexpr (all_near<W>()) {
            near = whole && s.rows % V == 0 && walk_batch_near<W>(to, b, again, walked, p, head, vals, s, turn == N);
        }
        if (!near) {
            walk_batch_slowly<W>(to, b, again, walked, p, head, vals, s, end, turn == N);
        }
        each_scan<W>([&]<int S>() {
            if (turn == number_in_walk(S)) {
                exchange_in_memory<S>(walked[S], b, with, shared);
            }
        });
    }
    if (with.warps != 1) {
        each_scan<W>([&]<int S>() {
#pragma unroll
            for (int j = 0; j < V; j++) {
                walked[S][j] = take_aggregate<S>(shared.after[number_in_walk(S)], with.mine, j);
            }
        });
    }
}

} // namespace many
