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
#include "walk_near.cuh"

namespace many {

static_assert((V == 2 || V == 4) && !INNER && WHOLE_BLOCK && !IN_REGISTERS && CLUSTER == 1, "a lane has two rows, or four");
static_assert(variant::SCANS > 0 && variant::PASSES == 0 && variant::COLUMNS == 0 && variant::SUMS == 0, "scans, and nothing else that is summed");
static_assert(cfg::PLACES > 0 && cfg::PLACES <= 32 && cfg::PLACES % 4 == 0 && cfg::PLACES == variant::CHUNK, "cfg::PLACES is a multiple of 4 up to a warp, the same on the host");
static_assert(!CUT || all_cut(), "cfg::PART > 0 asks for scans whose segments begin where a column says so");
static_assert(cfg::STAGES >= 2, "one batch is worked on while others come");

// ---- plain sums ------------------------------------------------------------------------------------------------------

// The scan at the places of the batch, behind `walked`, which becomes what they hand on.
template <int S> DEV void walk_places(batch &b, stretch (&walked)[V], const many_params &p, const variant::head &head, const strip_values &vals, int end)
{
    float q[V][PLACES];
#pragma unroll
    for (int j = 0; j < V; j++) {
        taken<S> terms;
        take_terms<S, true>(terms, b, p, head, vals, end, j);
        walk_apart<S>(q[j], walked[j], terms);
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
#pragma unroll
        for (int k = 0; k < PLACES; k++) {
            b.q[k].of[S][j] = q[j][k];
        }
    }
}

template <int W>
DEV void scan_batch(batch &b, stretch (&carry)[SCANS][V], const many_params &p, const variant::head &head, const strip_values &vals, const strip &s,
                    const sharing &with, walk_scratch &shared)
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            stretch walked[V];
            stretch after[V];
            int end = end_of(p, s);
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

// Plain sums have so little to do that what they wait for is memory, and whose warps get ahead of each other read what is no longer
// adjacent: each of their batches is found anew, and the end of a row is text of its own.
template <bool WHOLE> DEV void finish_places(const batch &b, const many_params &p, const variant::head &head, const strip_values &vals, const strip &s)
{
    targets to;
    find_targets(to, p, s, b.base);
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        finished out;
#pragma unroll
        for (int j = 0; j < V; j++) {
            finish_row(out, b, k, b.base + k, p, head, vals, j);
        }
        store_place<WHOLE>(to, out, p, b.base + k < end_of(p, s) ? s.n : 0);
    }
}

DEV void finish_batch(const batch &b, const many_params &p, const variant::head &head, const strip_values &vals, const strip &s)
{
    if (s.rows == STRIP && b.whole) {
        finish_places<true>(b, p, head, vals, s);
    } else {
        finish_places<false>(b, p, head, vals, s);
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
DEV void walk_strip(const many_params &p, const variant::head &head, const strip_values &vals, const strip &s, const sharing &with, unsigned char *shared_bytes, u32 ring,
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
    const u32 ring_at = shared_address(shared_bytes) + ring;
    sources from;
    targets to;
    find_sources<W>(from, p, s, base_of(0));
    if constexpr (LAST && TOPS) {
        find_targets(to, p, s, base_of(0));
    }
    u32 now = 0; // where in the ring a batch is, and the next one comes
    u32 next = 0;
    const auto fetch = [&](int k) {
        if constexpr (!TOPS) {
            next = static_cast<u32>(k % cfg::STAGES * BATCH_BYTES);
        }
        if (k < batches) {
            if constexpr (!TOPS) {
                find_sources<W>(from, p, s, base_of(k));
            }
            fetch_batch<W>(ring_at + next, from, p, s, base_of(k), advance);
        }
        copy_commit();
        next = TOPS ? next_batch(next) : next;
    };
    stretch carry[SCANS][V];
    carry_nothing<W>(carry);
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
    if constexpr (!TOPS) {
#pragma unroll 1
        for (int k = 0; k < AHEAD; k++) {
            fetch(k);
        }
    }
#pragma unroll 1
    for (int k = TOPS ? -AHEAD : 0; k < batches; k++) { // the first ones are fetched by the same copy of the text
        __syncwarp(); // nobody reads the batch any more whose place the next one takes
        fetch(k + AHEAD);
        if (TOPS && k < 0) {
            continue;
        }
        copy_wait<AHEAD>();
        __syncwarp();
        batch b;
        b.base = base_of(k);
        u32 own[IN];
        if constexpr (!TOPS) {
            now = static_cast<u32>(k % cfg::STAGES * BATCH_BYTES);
        }
        find_own(own, ring + now);
#pragma unroll
        for (int i = 0; i < PLACES; i++) {
            take(b.held[i], shared_bytes, own, i);
        }
        now = TOPS ? next_batch(now) : now;
        b.whole = b.base + PLACES <= end;
        if (k % REFILL == 0) {
            find_columns(known, p, head, vals, base_of, k, batches, end);
        }
        tell_columns(b, known, k % REFILL);
        stretch again[SCANS][V];
        repeat<0, SCANS>([&]<int S>() {
            if constexpr (variant::SCAN_WALK[S] < W) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    again[S][j] = later[S][j];
                }
            }
        });
        repeat<0, W>([&]<int U>() { take_carries<U>(later, k + 1 < batches ? carried + CARRY_ADVANCE : carried); });
        b.turn = turn ^= 1;
        if constexpr (TOPS) {
            stretch after[SCANS][V];
            walk_batch<W>(to, b, again, carry, after, p, head, vals, s, with, scratch_of(meeting));
            if constexpr (!LAST) {
                leave_carries<W>(carry, carried);
            }
            repeat<0, SCANS>([&]<int S>() {
                if constexpr (variant::SCAN_WALK[S] == W) {
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        carry[S][j] = after[S][j];
                    }
                }
            });
            if constexpr (LAST) {
                repeat<0, variant::OUT>([&]<int K>() { to.of[K] += advance * (p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>))); });
            }
        } else {
            repeat<0, W>([&]<int U>() { scan_batch<U>(b, again, p, head, vals, s, with, scratch_of(meeting)); });
            if constexpr (!LAST) {
                leave_carries<W>(carry, carried);
            }
            scan_batch<W>(b, carry, p, head, vals, s, with, scratch_of(meeting));
            if constexpr (LAST) {
                finish_batch(b, p, head, vals, s);
            }
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
    const u32 ring = static_cast<u32>(warp * (cfg::STAGES * BATCH_BYTES)); // from the beginning of shared memory on
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
        repeat<0, WALKS>([&]<int W>() { walk_strip<W>(p, head, vals, s, with, shared_bytes, ring, meeting, turn); });
        if constexpr (variant::KEPT > 0) {
            if (with.mine == 0 && part == 0) {
                keep_rows(p, head, vals, s);
            }
        }
    }
}
#endif
