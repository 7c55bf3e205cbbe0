// rowwise/inner_scan.cuh: kernel: scans along the dim before the last, for the `variant` of rowwise/registers.cuh. Rows
// are neighbours in memory: a lane has VECTOR of them, a warp a strip of 32 VECTOR, and walks along it.
//
// LATHE_ENTRY(rows): BLOCKS blocks of THREADS threads. Where there are strips for half of WHOLE_WARPS of each block and
// more (LOOKBACK_STRIPS, where others are left to rowwise/inner_scan_lookback.cuh), each of these takes strips of its
// own in turn, and nothing passes between threads. Else the warps of a block share a strip, PLACES places each at a
// time, and meet at what they hand on; or, LOOKBACK_THREADS > 0, rows are left to rowwise/inner_scan_lookback.cuh.
// PART > 0: rows may be cut where all scans begin anew, one part or none for every PART places, each of which is an
// item by itself. They are where there are few strips, such as one tensor of packed sequences, and cuts enough; with
// powers always from strips for a quarter of the warps on: several walks along a short part find it in L2. STAGES
// batches of PLACES places of each warp wait in shared memory, where cp.async brings them; AGAIN_STAGES of what several
// walks read.
// Several walks: each but the last leaves where it was at each batch, and a later one takes the batch again from there:
// in shared memory where a strip of a warp's own has at most HELD_CARRIES batches, else in params.carries. No
// reductions, no sums over rows.
#include "rowwise/inner_scan_reference.cuh"
#include "rowwise/inner_scan_parts.cuh"

namespace many
{

static_assert((V == 2 || V == 4) && !INNER && WHOLE_BLOCK && !IN_REGISTERS && CLUSTER == 1,
              "a lane has two rows, or four");
static_assert(variant::SCANS > 0 && variant::PASSES == 0 && variant::COLUMNS == 0 && variant::SUMS == 0,
              "scans, and nothing else that is summed");
static_assert(cfg::PLACES > 0 && cfg::PLACES <= 32 && cfg::PLACES % 4 == 0,
              "cfg::PLACES is a multiple of 4 up to a warp");
static_assert(cfg::PLACES == variant::CHUNK, "cfg::PLACES is the same on the host");
static_assert(!CUT || all_cut(), "cfg::PART > 0 asks for scans whose segments begin where a column says so");
static_assert(cfg::STAGES >= 2, "one batch is worked on while others come");

// ---- plain sums --------------------------------------------------------------------------------------

// The scan at the places of the batch, behind `walked`, which becomes what they hand on.
template <int S> DEV void walk_places(batch &b, aggregate (&walked)[V], const rows_params &p, const variant::head &head,
                                      const strip_values &vals, int end)
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        taken<S> terms;
        float q[PLACES];
        take_terms<S, true>(terms, b, p, head, vals, end, j);
        walk_apart<S>(q, walked[j], terms);
#pragma unroll
        for (int k = 0; k < PLACES; k++) {
            b.q[k].of[S][j] = q[k];
        }
    }
}

DEV void finish_places(const batch &b, const rows_params &p, const variant::head &head, const strip_values &vals,
                       const strip &s)
{
    const int places = min(end_of(p, s) - b.base, PLACES); // of the row
    targets to;
    finished y[PLACES];
    packed out[PLACES];
    find_targets(to, p, s, b.base);
#pragma unroll
    for (int j = 0; j < V; j++) {
        finish_rows(out, y, b, p, head, vals, j);
    }
    if (s.rows % V == 0 && places == PLACES) { // of s.n == V, ptxas 13.0 makes a comparison that never holds
        if (s.n > 0) {
            store_places(to, out, p);
        }
    } else if (s.n > 0) {
        store_some_places(to, out, p, places, s.n);
    }
}

// The scans of walk W at the batch; what earlier walks made is made again. Of those at which warps meet one after the
// other, the one of this turn, and the one before, which is now known from where; b has the values of others from other
// turns.
template <int W> DEV void sum_places(batch &b, const carried &again, aggregate (&walked)[SCANS][V],
                                     const rows_params &p, const variant::head &head, const strip_values &vals,
                                     const strip &s, bool alone, int turn)
{
    if (alone || turn == 0) {
        repeat<0, W>([&]<int U>() {
            each_scan<U>([&]<int S>() {
                aggregate before[V];
#pragma unroll
                for (int j = 0; j < V; j++) {
                    before[j] = carried_aggregate<S>(again, j);
                }
                walk_places<S>(b, before, p, head, vals, end_of(p, s));
            });
        });
    }
    each_scan<W>([&]<int S>() {
        constexpr int NUMBER = number_in_walk(S);
        if (count_scans<W>() == 1 || alone || turn == NUMBER || turn == NUMBER + 1) {
            walk_places<S>(b, walked[S], p, head, vals, end_of(p, s));
        }
    });
}

// A batch of plain sums, which comes to registers anew in each turn. `carry`, come(): as `walked` and come() of
// walk_batch.
template <int W, class F> DEV void sum_batch(const batch_at_hand &at, const columns &known, const carried &again,
                                             aggregate (&carry)[SCANS][V], const rows_params &p,
                                             const variant::head &head, const strip_values &vals, const strip &s,
                                             const sharing &with, const unsigned char *shared_bytes,
                                             walk_scratch &shared, int &met, const F &come)
{
    constexpr int N = count_scans<W>();
    batch b;
    aggregate walked[SCANS][V];
    aggregate after[SCANS][V];
#pragma unroll 1
    for (int turn = with.warps == 1 ? N : 0; turn <= N; turn++) {
        each_scan<W>([&]<int S>() {
#pragma unroll
            for (int j = 0; j < V; j++) {
                walked[S][j] = number_in_walk(S) < turn ? carry[S][j] : nothing<S>();
            }
        });
        if (turn == N) {
            come(walked);
        }
        take_places<W>(b, at, known, shared_bytes);
        sum_places<W>(b, again, walked, p, head, vals, s, with.warps == 1, turn);
        if (W + 1 == WALKS && turn == N) {
            finish_places(b, p, head, vals, s);
        }
        each_scan<W>([&]<int S>() {
            if (turn == number_in_walk(S)) {
                exchange_warps<S>(carry[S], after[S], walked[S], with, shared.part[met % MEETINGS]);
                met++;
            }
        });
    }
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int j = 0; j < V; j++) {
            carry[S][j] = with.warps == 1 ? walked[S][j] : after[S][j];
        }
    });
}

// ---- a walk ------------------------------------------------------------------------------------------

// `rings`: where the warp's batches are, from the beginning of shared memory on.
template <int W> DEV void walk_strip(const rows_params &p, const variant::head &head, const strip_values &vals,
                                     const strip &s, const sharing &with, unsigned char *shared_bytes, u32 rings,
                                     walk_scratch &shared, columns &known, int &met)
{
    constexpr bool LAST = W + 1 == WALKS;
    const route<W> way = find_route<W>(p, s, with);
    ring_place now = find_in_ring(way, 0); // the batch at hand
    coming_batch coming = {shared_address(shared_bytes) + rings, {}, now};
    targets to;
    const int first = way.base(0); // once, or the compiler adds it up twice
    find_sources<W>(coming.from, p, s, first, way.advance);
    if constexpr (LAST && TOPS) {
        find_targets(to, p, s, first);
    }
    aggregate carry[SCANS][V];
    carry_nothing<W>(carry);
    const carry_place carries = find_carries(s, with, way.batches);
#pragma unroll 1
    for (int k = -AHEAD<W>; k < way.batches; k++) { // the first ones are fetched by the same copy of the text
        carried again;                              // on its way beside what is fetched
        if constexpr (W > 0) {
            if (k >= 0) {
                at_carries(p, carries, shared_bytes, way.number(k),
                           [&](const float *at) { repeat<0, W>([&]<int U>() { take_carries<U>(again, at); }); });
            }
        }
        __syncwarp(); // nobody reads the batch any more whose place the next one takes
        fetch_next(coming, p, s, with, way, k + AHEAD<W>);
        if (k < 0) {
            continue;
        }
        copy_wait<AHEAD<W>>();
        __syncwarp();
        batch_at_hand at = {way.base(k), get_columns(known, p, head, vals, way, k), {}};
        find_own(at.own, rings, now);
        now = move_on_in_ring<W>(now);
        const auto come = [&](const aggregate(&here)[SCANS][V]) {
            if constexpr (!LAST) {
                at_carries(p, carries, shared_bytes, way.number(k), [&](float *to) { leave_carries<W>(here, to); });
            }
        };
        if constexpr (TOPS) {
            batch b;
            take_places<W>(b, at, known, shared_bytes);
            walk_batch<W>(to, b, again, carry, p, head, vals, s, with, shared, come);
        } else {
            sum_batch<W>(at, known, again, carry, p, head, vals, s, with, shared_bytes, shared, met, come);
        }
        if constexpr (LAST && TOPS) {
            move_targets(to, p, way.advance);
        }
    }
    if constexpr (EARLY<W + 1> == 0) { // else the next walk's batches are on their way
        copy_wait<0>();
    }
    __syncwarp();
}

} // namespace many

namespace smem_bytes
{
constexpr int rows = many::WARPS * many::RING_BYTES +
                     (cfg::HELD_CARRIES > 0 ? max_of(static_cast<int>(sizeof(many::walk_scratch)),
                                                     many::WARPS *cfg::HELD_CARRIES *many::CARRY_STEP * 4)
                                            : 0);
}

#if LATHE_COMPILED(rows)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, many::MIN_BLOCKS)
    LATHE_ENTRY(rows)(const __grid_constant__ rows_params p)
{
    using namespace many;
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ __align__(16) unsigned char own_scratch[cfg::HELD_CARRIES > 0 ? 16 : sizeof(walk_scratch)];
    unsigned char *const meeting = cfg::HELD_CARRIES > 0 ? shared_bytes + WARPS * RING_BYTES : own_scratch;
    const variant::head head = variant::make_head(p.x, p.z);
    const int warp = __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x) / 32, 0);
    const allotment own = allot_strips(p, head, warp, meeting);
    if constexpr (LOOKS_BACK) {
        leave_rows(p, own.left);
    }
    const u32 rings = static_cast<u32>(warp * RING_BYTES);
    walk_scratch &shared = *reinterpret_cast<walk_scratch *>(meeting);
    int met = 0; // how often warps have
#pragma unroll 1
    for (int item = own.first, next = 0; item < own.end; item = next) {
        const coming_item coming(p, own);
        const int part = own.part(item);
        strip s = strip_at(p, own.across, item - part * own.strips);
        strip_values vals;
        begin_rows(vals, p, head, s);
        columns known = {};
        bool there = true;
        if constexpr (CUT) {
            there = !own.cut || find_part(s, known, p, head, vals, part);
        }
        next = coming.number(item, own);
        if (there) {
            repeat<0, WALKS>(
                [&]<int W>() { walk_strip<W>(p, head, vals, s, own.with, shared_bytes, rings, shared, known, met); });
            if constexpr (variant::KEPT > 0) {
                if (own.with.mine == 0 && part == 0) {
                    keep_rows(p, head, vals, s);
                }
            }
        }
    }
}
#endif
