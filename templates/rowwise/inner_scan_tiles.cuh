// rowwise/inner_scan_tiles.cuh: for rowwise/inner_scan.cuh and rowwise/inner_scan_lookback.cuh: their numbers, and the
// strips of rows: which rows a lane has, and in which batches a walk takes their places.
#pragma once
#include "rowwise/vectors.cuh"
#include "rowwise/scan_segment.cuh"

namespace many
{

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
    i64 slots; // where the carries of its batches begin, and those of a part of it
};

constexpr bool CUT = cfg::PART > 0;
// rows that would be shared by the warps of a block are left to rowwise/inner_scan_lookback.cuh
constexpr bool LOOKS_BACK = cfg::LOOKBACK_THREADS > 0;
static_assert(!LOOKS_BACK || (variant::SCANS == 1 && variant::SCAN_FORM[0] == SCAN_SUM && variant::SCAN_STARTS[0] != 2),
              "one plain sum, anew where a column says so");
// as far as rows are cut at all; plain sums walk along whole rows where there are enough of them
constexpr bool ALWAYS_CUT = CUT && TOPS;
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
DEV int end_of(const rows_params &p, const strip &s) { return CUT ? s.end : p.z.n; }

struct strip_values { // of the rows
    variant::vals of[V];
};

struct sharing { // of a strip, by warps that take batches in turn
    int warps, mine;
    int zero; // of which the compiler does not know it
};

// F<S>() for every scan of walk W.
template <int W, class F> DEV void each_scan(const F &f)
{
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (variant::SCAN_WALK[S] == W) {
            f.template operator()<S>();
        }
    });
}
__host__ __device__ constexpr int number_in_walk(int scan) // of those that it makes
{
    int n = 0;
    for (int s = 0; s < scan; s++) {
        n += variant::SCAN_WALK[s] == variant::SCAN_WALK[scan] ? 1 : 0;
    }
    return n;
}
template <int W> __host__ __device__ constexpr int count_scans()
{
    int n = 0;
    for (int s = 0; s < variant::SCANS; s++) {
        n += variant::SCAN_WALK[s] == W ? 1 : 0;
    }
    return n;
}
__host__ __device__ constexpr int most_in_walk() // scans
{
    int most = 0;
    for (int s = 0; s < variant::SCANS; s++) {
        most = max_of(most, number_in_walk(s) + 1);
    }
    return most;
}

DEV int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }

// ---- a strip -----------------------------------------------------------------------------------------

// Where walks were at the batches of a row, in slots. Of each warp of the grid: as many as batches, behind one that has
// the counter of parts. Or of each strip, where rows are so long that this is less: one more for each part, since parts
// begin anywhere, and for each warp that shares it. As the launch counts them.
constexpr bool SLOTS_OF_WARPS = cfg::CARRIES_BY_WARP;
constexpr int CARRY_PLACES = 512;
// of so many places of a strip
constexpr int CARRY_SLOTS = CARRY_PLACES / PLACES + (CUT ? CARRY_PLACES / cfg::PART : 0) + 8;
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

// The first row of the strip of that number, `across` of them side by side.
DEV row_at first_row_of(const rows_params &p, int across, int number)
{
    const int outer = number / across;
    const int row0 = outer / p.z.rows1;
    const int row2 = (number - outer * across) * STRIP;
    return {outer * p.z.rows + row2, row0, outer - row0 * p.z.rows1, row2};
}

// The strip that begins there.
DEV strip strip_from(const rows_params &p, const row_at &first, i64 slot)
{
    strip s = {first, first, min(STRIP, p.z.rows - first.row2), 0, 0, p.z.n, slot};
    const int lane = lane_of_warp() * V;
    s.n = max(min(V, s.rows - lane), 0);
    s.at.row += s.n > 0 ? lane : 0; // of rows that exist
    s.at.row2 += s.n > 0 ? lane : 0;
    return s;
}

DEV strip strip_at(const rows_params &p, int across, int number)
{
    return strip_from(p, first_row_of(p, across, number), first_slot(number, p.z.n));
}

DEV void begin_rows(strip_values &vals, const rows_params &p, const variant::head &head, const strip &s)
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
template <int W> DEV route<W> find_route(const rows_params &p, const strip &s, const sharing &with)
{
    const int end = end_of(p, s);
    const int all = (end - first_place(s) - 1) / PLACES + 1;
    const int batches = (all - 1) / with.warps + 1;
    const int step = with.warps * PLACES;
    return {first_place(s), end, batches, with.warps, with.mine, variant::WALK_REVERSE[W] ? -step : step};
}

} // namespace many
