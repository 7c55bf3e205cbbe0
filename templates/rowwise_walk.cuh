// rowwise_walk.cuh: kernel: scans along the dim before the last, for the `variant` of rowwise_many.cuh. Rows are neighbours in memory: a
// lane has VECTOR of them, a warp a strip of 32 VECTOR, and walks along it.
//
// LATHE_ENTRY(rows): BLOCKS blocks of THREADS threads. Where there are strips for half of the warps (with parts, a quarter) and more, each takes strips of its
// own in turn, and nothing passes between threads. Else the warps of a block share a strip, PLACES places each at a time, and meet at what
// they hand on.
// PART > 0: strips of their own are cut where all scans begin anew, one part or none for every PART places, each of which is an item by
// itself. More warps have work, and several walks along a short part find it in L2.
// STAGES batches of PLACES places of each warp wait in shared memory, where cp.async brings them.
// Several walks: each but the last leaves where it was at each batch, and a later one takes the batch again from there: in shared memory
// where a strip of a warp's own has at most HELD_CARRIES batches, else in params.carries.
// No reductions, no sums over rows.
#include "walk_columns.cuh"

namespace many {

static_assert((V == 2 || V == 4) && !INNER && WHOLE_BLOCK && !IN_REGISTERS && CLUSTER == 1, "a lane has two rows, or four");
static_assert(variant::SCANS > 0 && variant::PASSES == 0 && variant::COLUMNS == 0 && variant::SUMS == 0, "scans, and nothing else that is summed");
static_assert(cfg::PLACES > 0 && cfg::PLACES <= 32 && cfg::PLACES % 4 == 0 && cfg::PLACES == variant::CHUNK, "cfg::PLACES is a multiple of 4 up to a warp, the same on the host");
static_assert(!CUT || all_cut(), "cfg::PART > 0 asks for scans whose segments begin where a column says so");
static_assert(cfg::STAGES >= 2, "one batch is worked on while others come");

template <int S> struct taken { // by scan S, of one row of a batch
    scan_input x[PLACES];
    stretch one[PLACES];
};

// The element of a row at place k of a batch, which stands at `at`. PART: the row may end before it, where `end` says.
template <int S, bool PART>
DEV scan_input take_term(stretch &one, const batch &b, int at, int k, const many_params &p, const variant::head &head, const strip_values &vals, int end, int j)
{
    const int i = b.base + k;
    const bool here = !PART || i < end;
    float e[IN];
    float known[SCANS];
    scan_input x = {};
    unpack_piece(b.held[at], e, j);
#pragma unroll
    for (int s = 0; s < S; s++) {
        known[s] = b.q[at].of[s][j];
    }
    variant::scan_term<S>(e, i, p.x, p.z, head, b.col[at], vals.of[j], known, x);
    x.start = variant::SCAN_STARTS[S] == 2 ? here && x.start : (b.starts[S] >> k & 1) != 0;
    x.value = here ? x.value : 0.0f;
    one = here ? element_stretch<S>(x) : nothing<S>();
    return x;
}
template <int S, bool PART>
DEV void take_terms(taken<S> &to, const batch &b, const many_params &p, const variant::head &head, const strip_values &vals, int end, int j)
{
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        to.x[k] = take_term<S, PART>(to.one[k], b, k, k, p, head, vals, end, j);
    }
}

template <int S> DEV int place_in_walk(int step) { return in_reverse<S>() ? PLACES - 1 - step : step; }

// Of what each warp hands on: `carry` becomes what comes before this one, `after` what all of them hand on.
template <int S> DEV void meet_warps(stretch (&carry)[V], stretch (&after)[V], const stretch (&own)[V], const sharing &with, stretch (&part)[WARPS][V][32])
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        part[with.mine][j][lane_of_warp()] = own[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; j++) {
        stretch all = carry[j];
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
}

template <int S> DEV void walk_apart(float (&q)[PLACES], stretch &walked, const taken<S> &terms)
{
#pragma unroll
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
        const bool start = terms.x[k].start;
        const stretch with = with_element<S>(walked, terms.one[k], start);
        q[k] = scan_value<S>(with, terms.x[k]);
        walked = handed_on<S>(walked, with, start);
    }
}

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

// The same of one segment, below its largest power. Would that be exact?
template <int S> DEV bool is_near(near_row &known, const stretch &walked, const batch &b, const taken<S> &terms)
{
    const bool start = starts_first<S>(b, terms);
    const float before = !in_reverse<S>() && start ? -INF : top_of(walked);
    float top[PLACES]; // a tree: one maximum after the other takes longer
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        top[k] = top_of(terms.one[k]);
    }
    const float first = fmaxf(before, top[place_in_walk<S>(0)]);
#pragma unroll
    for (int step = 1; step < PLACES; step *= 2) {
#pragma unroll
        for (int k = 0; k + step < PLACES; k += 2 * step) {
            top[k] = fmaxf(top[k], top[k + step]);
        }
    }
    known.reference = fmaxf(before, top[0]);
    const bool whole = !is_cut<S>(b, terms); // all are asked: a branch costs more
    const bool close = first >= known.reference - FAR;
    const bool finite = (known.reference < INF) & (!is_lazy<S>() | (known.reference > -INF));
    return whole & close & finite;
}
template <int S> DEV void walk_together(float (&q)[PLACES], near_row &known, stretch &walked, const batch &b, const taken<S> &terms)
{
    const bool start = starts_first<S>(b, terms);
    const stretch before = !in_reverse<S>() && start ? nothing<S>() : walked;
    const float reference = reference_of(known.reference);
    walked = before;
    walked.sum *= exp_below(top_of(before), reference);
    set_top(walked, known.reference);
#pragma unroll
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
        known.e[k] = exp_below(top_of(terms.one[k]), reference);
        walked.sum = fmaf(value_of<S>(terms.x[k]), known.e[k], walked.sum);
        known.sum[k] = walked.sum;
        q[k] = is_lazy<S>() ? walked.sum : value_below<S>(walked, terms.x[k]);
    }
    if (in_reverse<S>() && start) {
        walked = nothing<S>();
    }
}

// A scan beside one whose sums are near a reference: they and the powers are there.
template <int S> DEV void walk_beside(float (&q)[PLACES], stretch &walked, const batch &b, const taken<S> &terms, const near_row &other, int j)
{
    constexpr int OTHER = max_of(variant::SCAN_BESIDE[S], 0);
    const bool start = starts_first<S>(b, terms);
    const stretch before = !in_reverse<S>() && start ? nothing<S>() : walked;
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

// The scan at the places of the batch, behind `walked`, in the fast way, for all rows of the lane or for none.
template <int S> DEV bool walk_near(float (&q)[V][PLACES], batch &b, stretch (&walked)[V], const many_params &p, const variant::head &head, const strip_values &vals)
{
    constexpr bool BESIDE = variant::SCAN_BESIDE[S] >= 0;
    constexpr int OTHER = max_of(variant::SCAN_BESIDE[S], 0);
    taken<S> terms[V];
    bool near = true;
#pragma unroll
    for (int j = 0; j < V; j++) {
        take_terms<S, false>(terms[j], b, p, head, vals, p.z.n, j);
        if constexpr (BESIDE) {
            near &= b.known[OTHER][j].near;
        } else {
            near &= is_near<S>(b.known[S][j], walked[j], b, terms[j]);
        }
    }
    if (!near) {
        return false;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        const bool start = starts_first<S>(b, terms[j]);
        if constexpr (BESIDE) {
            walk_beside<S>(q[j], walked[j], b, terms[j], b.known[OTHER][j], j);
        } else {
            walk_together<S>(q[j], b.known[S][j], walked[j], b, terms[j]);
            b.known[S][j].near = true;
        }
        walked[j].start |= start ? 1 : 0;
    }
    return true;
}

// The slow way beside a fast one: a loop that is not unrolled, in which all places move on by one at each step, and in the end are
// where they were. So it is compiled once, and not for every place.
template <int S>
DEV void walk_slowly(float (&q)[V][PLACES], batch &b, stretch (&walked)[V], const many_params &p, const variant::head &head, const strip_values &vals, int end)
{
    constexpr int AT = in_reverse<S>() ? PLACES - 1 : 0;
#pragma unroll 1
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
#pragma unroll
        for (int j = 0; j < V; j++) {
            stretch one;
            const scan_input x = take_term<S, true>(one, b, AT, k, p, head, vals, end, j);
            const stretch with = with_element<S>(walked[j], one, x.start);
            q[j][AT] = scan_value<S>(with, x);
            walked[j] = handed_on<S>(walked[j], with, x.start);
            move_on<in_reverse<S>()>(q[j]);
        }
        move_on<in_reverse<S>()>(b.held);
        if constexpr (TOLD) {
            move_on<in_reverse<S>()>(b.col);
        }
        if constexpr (S > 0) {
            move_on<in_reverse<S>()>(b.q); // of earlier scans
        }
    }
}

// The same, which becomes what they hand on.
template <int S> DEV void walk_places(batch &b, stretch (&walked)[V], const many_params &p, const variant::head &head, const strip_values &vals, int end)
{
    float q[V][PLACES];
    bool done = false;
    if constexpr (has_top<S>()) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            b.known[S][j].near = false;
        }
        done = b.whole && walk_near<S>(q, b, walked, p, head, vals);
    }
    if (!done) {
        if constexpr (has_top<S>()) {
            walk_slowly<S>(q, b, walked, p, head, vals, end);
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) {
                taken<S> terms;
                take_terms<S, true>(terms, b, p, head, vals, end, j);
                walk_apart<S>(q[j], walked[j], terms);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
#pragma unroll
        for (int k = 0; k < PLACES; k++) {
            b.q[k].of[S][j] = q[j][k];
        }
    }
}

// The values of scans that only those beside them are made of, where something else is, too.
DEV void tell_values(batch &b)
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (is_lazy<S>()) {
#pragma unroll
            for (int j = 0; j < V; j++) {
#pragma unroll
                for (int k = 0; k < PLACES; k++) {
                    b.q[k].of[S][j] = b.known[S][j].near ? log_below(b.q[k].of[S][j], b.known[S][j].reference) : b.q[k].of[S][j];
                }
            }
        }
    });
}

template <int W>
DEV void scan_batch(batch &b, stretch (&carry)[SCANS][V], const many_params &p, const variant::head &head, const strip_values &vals, const strip &s,
                    const sharing &with, walk_scratch &shared)
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            stretch walked[V];
            stretch after[V];
            int end = end_of(p, s); // another one in each turn, or what the slow way takes would be made ahead of the loop, for nothing
#pragma unroll 1
            for (int turn = with.warps == 1 ? 1 : 0; turn < 2; turn++, end += with.zero, b.starts[S] += static_cast<u32>(with.zero)) { // first what each warp hands on by itself
#pragma unroll
                for (int j = 0; j < V; j++) {
                    walked[j] = turn == 0 ? nothing<S>() : carry[S][j];
                }
                walk_places<S>(b, walked, p, head, vals, end);
                if (turn == 0) {
                    meet_warps<S>(carry[S], after, walked, with, shared.part[b.turn][S]);
                }
            }
#pragma unroll
            for (int j = 0; j < V; j++) {
                carry[S][j] = with.warps == 1 ? walked[j] : after[j];
            }
        }
    });
}

struct targets {
    char *of[OUT];
};

struct finished { // a place of the rows that go out
    float of[OUT][V];
};

DEV void finish_place(finished &to, const batch &b, int k, const many_params &p, const variant::head &head, const strip_values &vals)
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        float e[IN];
        float y[OUT];
        float site[COLUMNS];
        float q[SCANS];
        unpack_piece(b.held[k], e, j);
#pragma unroll
        for (int m = 0; m < SCANS; m++) {
            q[m] = b.q[k].of[m][j];
        }
        variant::output(e, b.base + k, p.x, p.z, head, b.col[k], vals.of[j], q, y, site);
        repeat<0, variant::OUT>([&]<int K>() { to.of[K][j] = y[K]; });
    }
}

// Some rows of it, some of them of a lane; `to` is then behind the place.
template <bool WHOLE> DEV void store_place(targets &to, const finished &out, const many_params &p, int n)
{
    repeat<0, variant::OUT>([&]<int K>() {
        out_type<K> *row = reinterpret_cast<out_type<K> *>(to.of[K]);
        if constexpr (WHOLE) {
            store_piece<K>(row, out.of[K]);
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) {
                if (j < n) {
                    row[j] = from_float<out_type<K>>(out.of[K][j]);
                }
            }
        }
        to.of[K] += p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>));
    });
}

DEV void find_targets(targets &to, const many_params &p, const strip &s, int base)
{
    repeat<0, variant::OUT>([&]<int K>() { to.of[K] = reinterpret_cast<char *>(row_of<out_type<K>>(p.out[K], s.at) + base * p.out[K].stride[3]); });
}

// Plain sums have so little to do that what they wait for is memory, and whose warps get ahead of each other read what is no longer
// adjacent: each of their batches is found anew, and the end of a row is text of its own.
template <bool WHOLE> DEV void finish_places(const batch &b, const many_params &p, const variant::head &head, const strip_values &vals, const strip &s)
{
    targets to;
    find_targets(to, p, s, b.base);
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        finished out;
        finish_place(out, b, k, p, head, vals);
        store_place<WHOLE>(to, out, p, b.base + k < end_of(p, s) ? s.n : 0);
    }
}

// What is not whole is seldom: a loop that is not unrolled, in which all places move on. `to` is then behind the batch.
DEV void finish_batch(targets &to, const batch &b, const many_params &p, const variant::head &head, const strip_values &vals, const strip &s)
{
    if constexpr (!TOPS) {
        if (s.rows == STRIP && b.whole) {
            finish_places<true>(b, p, head, vals, s);
        } else {
            finish_places<false>(b, p, head, vals, s);
        }
        return;
    }
    finished out[PLACES];
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        finish_place(out[k], b, k, p, head, vals);
    }
    if (s.rows == STRIP && b.whole) {
#pragma unroll
        for (int k = 0; k < PLACES; k++) {
            store_place<true>(to, out[k], p, V);
        }
    } else {
#pragma unroll 1
        for (int k = 0; k < PLACES; k++) {
            store_place<false>(to, out[0], p, b.base + k < end_of(p, s) ? s.n : 0);
            move_on<false>(out);
        }
    }
}

// ---- a walk ---------------------------------------------------------------------------------------------------------

template <int W> DEV void carry_nothing(stretch (&carry)[SCANS][V])
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                carry[S][j] = nothing<S>();
            }
        }
    });
}

template <int W>
DEV void walk_strip(const many_params &p, const variant::head &head, const strip_values &vals, const strip &s, const sharing &with, unsigned char *ring,
                    unsigned char *meeting, int &turn)
{
    constexpr bool LAST = W + 1 == WALKS;
    constexpr int AHEAD = cfg::STAGES - 1;
    const int end = end_of(p, s);
    const int all = (end - first_place(s) - 1) / PLACES + 1;
    const int batches = (all - 1) / with.warps + 1; // of each warp
    const int most = (p.z.n - 1) / PLACES + 1;      // of a warp in any strip
    const auto number_of = [&](int k) { return variant::WALK_REVERSE[W] ? batches - 1 - k : k; };
    const auto base_of = [&](int k) { return first_place(s) + (number_of(k) * with.warps + with.mine) * PLACES; };
    const int advance = variant::WALK_REVERSE[W] ? -with.warps * PLACES : with.warps * PLACES; // from batch to batch
    sources from;
    targets to;
    find_sources<W>(from, p, s, base_of(0));
    if constexpr (LAST && TOPS) {
        find_targets(to, p, s, base_of(0));
    }
    const auto fetch = [&](int k) {
        if (k < batches) {
            if constexpr (!TOPS) {
                find_sources<W>(from, p, s, base_of(k));
            }
            fetch_batch<W>(ring + k % cfg::STAGES * BATCH_BYTES, from, p, s, base_of(k), advance);
        } else {
            copy_commit();
        }
    };
    stretch carry[SCANS][V];
    carry_nothing<W>(carry);
#pragma unroll 1
    for (int k = 0; k < AHEAD; k++) {
        fetch(k);
    }
    columns known = {};
    stretch later[SCANS][V]; // where the walks before this one were at the next batch: nothing waits for memory
    constexpr int CARRY_ADVANCE = variant::WALK_REVERSE[W] ? -CARRY_STEP : CARRY_STEP;
    float *carried = nullptr;
    if constexpr (CARRIED > 0) {
        const bool held = with.warps == 1 && batches <= cfg::HELD_CARRIES; // else `meeting` has warps of a strip that meet
        carried = held ? held_carries(meeting, number_of(0)) : carries_of(p, number_of(0), most);
    }
    repeat<0, W>([&]<int U>() { take_carries<U>(later, carried); });
    repeat<0, W>([&]<int U>() { await_carries<U>(later); });
#pragma unroll 1
    for (int k = 0; k < batches; k++) {
        __syncwarp(); // nobody reads the batch any more whose place the next one takes
        fetch(k + AHEAD);
        copy_wait<AHEAD>();
        __syncwarp();
        batch b;
        b.base = base_of(k);
#pragma unroll
        for (int i = 0; i < PLACES; i++) {
            take(b.held[i], ring + k % cfg::STAGES * BATCH_BYTES, i);
        }
        b.whole = b.base + PLACES <= end;
        if (k % REFILL == 0) {
            find_columns(known, p, head, vals, base_of, k, batches, end);
        }
        tell_columns(b, known, k % REFILL);
        repeat<0, W>([&]<int U>() {
            stretch again[SCANS][V];
            repeat<0, SCANS>([&]<int S>() {
                if constexpr (variant::SCAN_WALK[S] == U) {
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        again[S][j] = later[S][j];
                    }
                }
            });
            take_carries<U>(later, k + 1 < batches ? carried + CARRY_ADVANCE : carried);
            b.turn = turn ^= 1;
            scan_batch<U>(b, again, p, head, vals, s, with, scratch_of(meeting));
        });
        if constexpr (!LAST) {
            leave_carries<W>(carry, carried);
        }
        b.turn = turn ^= 1;
        scan_batch<W>(b, carry, p, head, vals, s, with, scratch_of(meeting));
        if constexpr (LAST) {
            tell_values(b);
            finish_batch(to, b, p, head, vals, s);
            repeat<0, variant::OUT>([&]<int K>() { to.of[K] += (advance - PLACES) * p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>)); });
        }
        carried += CARRY_ADVANCE;
    }
    copy_wait<0>();
    __syncwarp();
}

} // namespace many

#if LATHE_COMPILED(rows)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, many::MIN_BLOCKS)
    LATHE_ENTRY(rows)(const __grid_constant__ many_params p)
{
    using namespace many;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    __shared__ __align__(16) unsigned char own_scratch[cfg::HELD_CARRIES > 0 ? 16 : sizeof(walk_scratch)];
    unsigned char *const meeting = cfg::HELD_CARRIES > 0 ? shared_bytes + WARPS * cfg::STAGES * BATCH_BYTES : own_scratch;
    const variant::head head = variant::make_head(p.x, p.z);
    const int warp = __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x) / 32, 0);
    const int blocks = static_cast<int>(gridDim.x);
    const int across = (p.z.rows - 1) / STRIP + 1; // strips side by side
    const int strips = p.z.rows <= 0 || p.z.n <= 0 ? 0 : p.z.rows0 * p.z.rows1 * across;
    const bool apart = strips >= blocks * WARPS / (CUT ? 4 : 2); // parts are more
    const sharing with = {apart ? 1 : WARPS, apart ? 0 : warp, static_cast<int>(gridDim.y) - 1};
    const auto first_of = [&](u32 block) { return static_cast<int>(static_cast<i64>(block) * strips / blocks); }; // neighbours share pages of memory
    const int groups = (strips - 1) / WARPS + 1; // of strips, a warp each
    const int parts = CUT && apart ? (p.z.n - 1) / cfg::PART + 1 : 1;
    const int first = CUT && apart ? static_cast<int>(blockIdx.x) : first_of(blockIdx.x) + (apart ? warp : 0);
    const int end = CUT && apart ? groups * parts : first_of(blockIdx.x + 1);
    const int step = CUT && apart ? blocks : apart ? WARPS : 1;
    unsigned char *ring = shared_bytes + warp * (cfg::STAGES * BATCH_BYTES);
    int turn = 0;
#pragma unroll 1
    for (int item = first; item < end; item += step) {
        const int part = CUT && apart ? item / groups : 0; // where rows are one, all blocks have work at first
        const int number = CUT && apart ? (item - part * groups) * WARPS + warp : item;
        if (number >= strips) {
            continue;
        }
        const int outer = number / across;
        const int row0 = outer / p.z.rows1;
        const int row2 = (number - outer * across) * STRIP;
        strip s = {{outer * p.z.rows + row2, row0, outer - row0 * p.z.rows1, row2}, {}, min(STRIP, p.z.rows - row2), 0, 0, p.z.n};
        const int lane = lane_of_warp() * V;
        s.n = max(min(V, s.rows - lane), 0);
        s.at = s.first;
        s.at.row += s.n > 0 ? lane : 0; // of rows that exist
        s.at.row2 += s.n > 0 ? lane : 0;
        strip_values vals;
#pragma unroll
        for (int j = 0; j < V; j++) {
            row_at at = s.at;
            at.row += j < s.n ? j : 0;
            at.row2 += j < s.n ? j : 0;
            variant::begin(vals.of[j], p, head, at);
        }
        if (CUT && apart && !find_part(s, p, head, vals, part)) {
            continue;
        }
        repeat<0, WALKS>([&]<int W>() { walk_strip<W>(p, head, vals, s, with, ring, meeting, turn); });
        if constexpr (variant::KEPT > 0) {
            if (with.mine == 0 && part == 0) {
                keep_rows(p, head, vals, s);
            }
        }
    }
}
#endif
