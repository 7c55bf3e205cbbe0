// walk_strips.cuh: for rowwise_walk.cuh: its numbers, and the strips of rows: which rows a lane has, how batches of their places come to shared
// memory and to registers, and where walks were when they came to them.
#pragma once
#include "many_pieces.cuh"
#include "many_stretch.cuh"

namespace many {

constexpr int PLACES = cfg::PLACES;
constexpr int STRIP = 32 * V; // rows
constexpr int IN = max_of(variant::IN, 1);

struct strip {
    row_at first; // row of the warp
    row_at at;    // row of the lane
    int rows;     // of the warp
    int n;        // of the lane: V, fewer at the end, 0
    int begin;    // the places that are walked along, where CUT: all of them else
    int end;
    i64 slots;    // where the carries of its batches begin, and those of a part of it
};

constexpr bool CUT = cfg::PART > 0;
constexpr bool ALWAYS_CUT = CUT && TOPS; // as far as rows are cut at all; plain sums walk along whole rows where there are enough of them
constexpr bool all_cut()
{
    for (int k = 0; k < variant::SCANS; k++) {
        if (variant::SCAN_STARTS[k] != 1) {
            return false;
        }
    }
    return true;
}

DEV int first_place(const strip &s) { return CUT ? s.begin : 0; }
DEV int end_of(const many_params &p, const strip &s) { return CUT ? s.end : p.z.n; }

struct strip_values { // of the rows
    variant::vals of[V];
};

struct sharing { // of a strip, by warps that take batches in turn
    int warps, mine;
    int zero; // of which the compiler does not know it
};

struct walk_scratch { // two sets in turn
    stretch part[2][SCANS][WARPS][V][32];
};

DEV int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }

// F<S>() for every scan of walk W.
template <int W, class F> DEV void each_scan(const F &f)
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            f.template operator()<S>();
        }
    });
}

// ---- a strip ---------------------------------------------------------------------------------------------------------

// Where walks were at the batches of a row, in slots. Of each warp of the grid: as many as batches, behind one that has the counter of parts. Or of each
// strip, where rows are so long that this is less: one more for each part, since parts begin anywhere, and for each warp that shares it. As the
// launch counts them.
constexpr bool SLOTS_OF_WARPS = cfg::CARRIES_BY_WARP;
constexpr int CARRY_PLACES = 512;
constexpr int CARRY_SLOTS = CARRY_PLACES / PLACES + (CUT ? CARRY_PLACES / cfg::PART : 0) + 8; // of so many places of a strip
static_assert(!CUT || CARRY_PLACES % cfg::PART == 0);
static_assert(WARPS <= 8);
DEV i64 first_slot(int strip, int n)
{
    if constexpr (SLOTS_OF_WARPS) {
        const int warp = static_cast<int>(blockIdx.x) * WARPS + static_cast<int>(threadIdx.x) / 32;
        return static_cast<i64>(warp) * ((n - 1) / PLACES + 1) + 1;
    } else {
        return static_cast<i64>(strip) * ((n - 1) / CARRY_PLACES + 1) * CARRY_SLOTS + 1;
    }
}

// The strip of that number, `across` of them side by side.
DEV strip strip_at(const many_params &p, int across, int number)
{
    const int outer = number / across;
    const int row0 = outer / p.z.rows1;
    const int row2 = (number - outer * across) * STRIP;
    strip s = {{outer * p.z.rows + row2, row0, outer - row0 * p.z.rows1, row2}, {}, min(STRIP, p.z.rows - row2), 0, 0, p.z.n, first_slot(number, p.z.n)};
    const int lane = lane_of_warp() * V;
    s.n = max(min(V, s.rows - lane), 0);
    s.at = s.first;
    s.at.row += s.n > 0 ? lane : 0; // of rows that exist
    s.at.row2 += s.n > 0 ? lane : 0;
    return s;
}

DEV void begin_rows(strip_values &vals, const many_params &p, const variant::head &head, const strip &s)
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        row_at at = s.at;
        at.row += j < s.n ? j : 0;
        at.row2 += j < s.n ? j : 0;
        variant::begin(vals.of[j], p, head, at);
    }
}

// The batches of a warp along a strip, numbered in the order of walk W.
template <int W> struct route {
    int first, end; // places that are walked along
    int batches;    // of each warp
    int warps, mine;
    int advance; // from batch to batch, in places

    // In the order of memory.
    __device__ __forceinline__ int number(int k) const { return variant::WALK_REVERSE[W] ? batches - 1 - k : k; }
    __device__ __forceinline__ int place(int number) const { return first + (number * warps + mine) * PLACES; }
    // The first place of batch k; beyond `end` where there is none.
    __device__ __forceinline__ int base(int k) const { return place(number(k)); }
};
template <int W> DEV route<W> find_route(const many_params &p, const strip &s, const sharing &with)
{
    const int end = end_of(p, s);
    const int all = (end - first_place(s) - 1) / PLACES + 1;
    const int batches = (all - 1) / with.warps + 1;
    const int step = with.warps * PLACES;
    return {first_place(s), end, batches, with.warps, with.mine, variant::WALK_REVERSE[W] ? -step : step};
}

// ---- memory --------------------------------------------------------------------------------------------------------

template <int K> __host__ __device__ constexpr int first_byte() // of tensor K in a batch
{
    if constexpr (K == 0) {
        return 0;
    } else {
        return first_byte<K - 1>() + PLACES * STRIP * static_cast<int>(sizeof(in_type<K - 1>));
    }
}
constexpr int BATCH_BYTES = first_byte<variant::IN>();

// Does walk W read tensor K? Scans of walks up to it are all that is made but in the last one.
template <int W, int K, class X = variant> __host__ __device__ constexpr bool walk_reads()
{
    if constexpr (W + 1 < WALKS) {
        return (X::WALK_READS[W] >> K & 1) != 0;
    } else {
        return true;
    }
}

// Where a walk's next batch lies, for what a lane copies of it: it moves on from batch to batch, since finding it takes as long as
// a scan of it.
template <int K> struct copies { // of tensor K
    static constexpr int SIZE = static_cast<int>(sizeof(in_type<K>));
    static constexpr int UNITS = STRIP * SIZE / 16; // of 16 bytes, of a place
    static constexpr int STEP = 32 / UNITS;         // places that the warp copies at once
    static_assert(32 % UNITS == 0);
};
struct sources {
    const char *of[IN];
};
template <int W> DEV void find_sources(sources &to, const many_params &p, const strip &s, int base)
{
    repeat<0, variant::IN>([&]<int K>() {
        if constexpr (walk_reads<W, K>()) {
            using c = copies<K>;
            const i64 step = p.in[K].stride[3] * c::SIZE;
            to.of[K] = reinterpret_cast<const char *>(row_of<in_type<K>>(p.in[K], s.first)) + lane_of_warp() % c::UNITS * 16 +
                       (base + lane_of_warp() / c::UNITS) * step;
        }
    });
}

// cfg::KEPT: L2 gives up last what is read; of several walks, what the first ones read.
template <int W> DEV void copy_places(u32 to, const char *from, int bytes)
{
    if constexpr (cfg::KEPT && (WALKS == 1 || W + 1 < WALKS)) {
        copy16_kept_async(to, from, bytes);
    } else {
        copy16_async(to, from, bytes);
    }
}

// The places from `base` on of tensor K go on their way into shared memory.
template <int W, int K> DEV void fetch_places(u32 to, const char *from, const many_params &p, const strip &s, int base)
{
    using c = copies<K>;
    const i64 step = p.in[K].stride[3] * c::SIZE;
    const u32 at = to + static_cast<u32>(lane_of_warp() * 16);
    if (s.rows == STRIP && base + PLACES <= end_of(p, s)) {
#pragma unroll
        for (int k = 0; k < PLACES / c::STEP; k++) {
            copy_places<W>(at + static_cast<u32>(k * 512), from, 16);
            from += c::STEP * step;
        }
    } else {
        const int here = min(s.rows * c::SIZE - lane_of_warp() % c::UNITS * 16, 16); // bytes of rows that there are
        const int first = base + lane_of_warp() / c::UNITS;
#pragma unroll 1
        for (int k = 0; k < PLACES / c::STEP; k++) {
            if (here > 0 && first + k * c::STEP < end_of(p, s)) {
                copy_places<W>(at + static_cast<u32>(k * 512), from, here);
            }
            from += c::STEP * step;
        }
    }
}

// A batch of walk W; the places of the next one begin `advance` further.
template <int W> DEV void fetch_batch(u32 to, sources &sources, const many_params &p, const strip &s, int base, int advance)
{
    repeat<0, variant::IN>([&]<int K>() {
        if constexpr (walk_reads<W, K>()) {
            fetch_places<W, K>(to + first_byte<K>(), sources.of[K], p, s, base);
            sources.of[K] += advance * (p.in[K].stride[3] * copies<K>::SIZE);
        }
    });
}

// Where batch k lies in the ring of a warp: with powers that moves on from batch to batch, as all that says where does; plain sums find it anew
// (finish_places).
DEV u32 place_in_ring(u32 moved_on, int k) { return TOPS ? moved_on : static_cast<u32>(k % cfg::STAGES * BATCH_BYTES); }
DEV u32 move_on_in_ring(u32 at) { return !TOPS ? at : at == (cfg::STAGES - 1) * BATCH_BYTES ? 0 : at + BATCH_BYTES; }

struct coming_batch { // which goes on its way next
    u32 ring;
    sources from;
    u32 next; // in the ring
};

// Batch k goes on its way. Behind the last one there is none, but a group of copies all the same: they are counted.
template <int W> DEV void fetch_next(coming_batch &coming, const many_params &p, const strip &s, const route<W> &way, int k)
{
    coming.next = place_in_ring(coming.next, k);
    if (k < way.batches) {
        if constexpr (!TOPS) {
            find_sources<W>(coming.from, p, s, way.base(k));
        }
        fetch_batch<W>(coming.ring + coming.next, coming.from, p, s, way.base(k), way.advance);
    }
    copy_commit();
    coming.next = move_on_in_ring(coming.next);
}

// own[]: what tensor K's places of a batch have of the lane, from the beginning of shared memory on. The compiler knows nothing of it, or it
// would add it up anew for each place.
DEV void find_own(u32 (&own)[IN], u32 batch)
{
    repeat<0, variant::IN>([&]<int K>() {
        own[K] = batch + static_cast<u32>(first_byte<K>() + lane_of_warp() * (words_of<K>() * 4));
        if constexpr (TOPS) {
            keep(own[K]);
        }
    });
}
DEV void take(piece &to, const unsigned char *shared_bytes, const u32 (&own)[IN], int place)
{
    repeat<0, variant::IN>([&]<int K>() {
        constexpr int COUNT = words_of<K>();
        const unsigned char *from = shared_bytes + own[K] + place * (32 * COUNT * 4);
        if constexpr (COUNT == 4) {
            const uint4 x = *reinterpret_cast<const uint4 *>(from);
            to.word[first_word<K>()] = x.x;
            to.word[first_word<K>() + 1] = x.y;
            to.word[first_word<K>() + 2] = x.z;
            to.word[first_word<K>() + 3] = x.w;
        } else if constexpr (COUNT == 2) {
            const uint2 x = *reinterpret_cast<const uint2 *>(from);
            to.word[first_word<K>()] = x.x;
            to.word[first_word<K>() + 1] = x.y;
        } else {
            to.word[first_word<K>()] = *reinterpret_cast<const u32 *>(from);
        }
    });
}

constexpr int count_carried() // scans that are taken again: those of all walks but the last
{
    int n = 0;
    for (int k = 0; k < variant::SCANS; k++) {
        n += variant::SCAN_WALK[k] + 1 < WALKS ? 1 : 0;
    }
    return n;
}
constexpr int CARRIED = count_carried();

// Where a walk was when it came to a batch, from one batch to the next: each lane reads what it wrote.
constexpr int CARRY_STEP = CARRIED * 2 * STRIP;
DEV float *carries_of(const many_params &p, i64 slot) { return static_cast<float *>(p.carries) + slot * CARRY_STEP + lane_of_warp() * V; }

// The same in shared memory, which is that of walk_scratch, too: no warp that has strips of its own meets others.
DEV float *held_carries(unsigned char *meeting, int batch)
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return reinterpret_cast<float *>(meeting) + (warp * cfg::HELD_CARRIES + batch) * CARRY_STEP + lane_of_warp() * V;
}
DEV walk_scratch &scratch_of(unsigned char *meeting) { return *reinterpret_cast<walk_scratch *>(meeting); }

// Of the warp's batches in the strip, where the first one's is.
template <int W> DEV float *first_carries(const many_params &p, const strip &s, const sharing &with, const route<W> &way, unsigned char *meeting)
{
    if constexpr (CARRIED > 0) {
        const bool held = with.warps == 1 && way.batches <= cfg::HELD_CARRIES; // else `meeting` has warps of a strip that meet
        return held ? held_carries(meeting, way.number(0)) : carries_of(p, s.slots + (SLOTS_OF_WARPS ? 0 : with.mine * way.batches) + way.number(0));
    } else {
        return nullptr;
    }
}
template <int W> __host__ __device__ constexpr int carry_advance() // from batch to batch
{
    return variant::WALK_REVERSE[W] ? -CARRY_STEP : CARRY_STEP;
}

template <int W> DEV void leave_carries(const stretch (&carry)[SCANS][V], float *at)
{
    each_scan<W>([&]<int S>() {
        float sum[V];
        float top[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            sum[j] = carry[S][j].sum;
            top[j] = top_of(carry[S][j]);
        }
        store_vec<V>(at + S * 2 * STRIP, sum);
        if constexpr (has_top<S>()) {
            store_vec<V>(at + S * 2 * STRIP + STRIP, top);
        }
    });
}

// What is loaded ahead of a loop that loads more of it is waited for ahead of the loop, too: the wait in there would be one for both.
DEV float arrived(float x) { return x + 0.0f; } // -0 becomes 0
template <int W> DEV void await_carries(stretch (&carry)[SCANS][V])
{
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int j = 0; j < V; j++) {
            carry[S][j].sum = arrived(carry[S][j].sum);
            if constexpr (has_top<S>()) {
                set_top(carry[S][j], arrived(top_of(carry[S][j])));
            }
        }
    });
}

template <int W> DEV void take_carries(stretch (&carry)[SCANS][V], const float *at)
{
    each_scan<W>([&]<int S>() {
        float sum[V];
        float top[V] = {};
        load_vec<V>(at + S * 2 * STRIP, sum);
        if constexpr (has_top<S>()) {
            load_vec<V>(at + S * 2 * STRIP + STRIP, top);
        }
#pragma unroll
        for (int j = 0; j < V; j++) {
            carry[S][j] = nothing<S>();
            carry[S][j].sum = sum[j];
            if constexpr (has_top<S>()) {
                set_top(carry[S][j], top[j]);
            }
        }
    });
}

template <int W> DEV void carry_nothing(stretch (&carry)[SCANS][V])
{
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int j = 0; j < V; j++) {
            carry[S][j] = nothing<S>();
        }
    });
}

// The scans of walk W, for all rows of the lane.
template <int W> DEV void hand_over(stretch (&to)[SCANS][V], const stretch (&from)[SCANS][V])
{
    each_scan<W>([&]<int S>() {
#pragma unroll
        for (int j = 0; j < V; j++) {
            to[S][j] = from[S][j];
        }
    });
}

// Where the walks before walk W were at its first batch.
template <int W> DEV void take_first_carries(stretch (&later)[SCANS][V], const float *at)
{
    repeat<0, W>([&]<int U>() { take_carries<U>(later, at); });
    repeat<0, W>([&]<int U>() { await_carries<U>(later); });
}

// `now`: where they were at the batch that was the next one; `later` comes from `at`.
template <int W> DEV void take_next_carries(stretch (&now)[SCANS][V], stretch (&later)[SCANS][V], const float *at)
{
    repeat<0, W>([&]<int U>() { hand_over<U>(now, later); });
    repeat<0, W>([&]<int U>() { take_carries<U>(later, at); });
}

} // namespace many
