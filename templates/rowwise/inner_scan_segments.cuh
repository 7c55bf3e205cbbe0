// rowwise/inner_scan_segments.cuh: for rowwise/inner_scan.cuh and rowwise/inner_scan_lookback.cuh: a batch of places,
// what its formulas read by place, and where segments begin among its places.
#pragma once
#include "rowwise/inner_scan_rings.cuh"

namespace many
{

// ---- a batch -----------------------------------------------------------------------------------------

struct alignas(4) col_words { // what the formulas read by place
    variant::col c[1];
};

struct near_row {      // of a batch, for a scan beside one with powers
    float sum[PLACES]; // e^(value of the scan - reference); where the scan is lazy, its values have these sums' place
    float e[PLACES];   // e^(power - reference)
    float reference;
};

struct batch {
    near_row known[SCANS][V];
    piece held[PLACES];
    variant::col col[PLACES];
    u32 starts[SCANS]; // of scans whose segments begin where a column says so: a bit a place
    struct values {
        float of[SCANS][V];
    } q[PLACES];
    int base; // its first place
};

// Of batches to come, each lane has found it out for a place, or for one of each group. Where segments begin is known
// to all: no lane waits for memory in a batch of them.
constexpr bool TOLD = variant::COLS && variant::COLS_BESIDE_STARTS;
constexpr int GROUPS = TOLD ? 1 : ALWAYS_CUT ? 4 : 8;
constexpr int REFILL = GROUPS * 32 / PLACES; // batches
struct columns {
    bool found; // with the part of a row: where segments begin, which is all that is asked of them
    col_words own;
    u32 starts[SCANS]; // of group g in lane g: a bit a place
};
// Scans whose segments begin where a column says so, and where no scan's before it do.
template <int S> constexpr bool HAS_STARTS = variant::SCAN_STARTS[S] == 1 && variant::SCAN_START_OF[S] == S;

// Where a column says so.
template <int S> DEV bool starts_at(const rows_params &p, const variant::head &head, const strip_values &vals,
                                    const variant::col &c, int place)
{
    const float none[max_of(IN, SCANS)] = {};
    scan_input x = {};
    variant::scan_term<S>(none, place, p.x, p.z, head, c, vals.of[0], none, x);
    return x.start;
}

// What is known serves all walks along a strip, where it has all of their batches: in the order of memory then.
template <int W> DEV bool known_once(const route<W> &way) { return WALKS > 1 && way.batches <= REFILL; }

// Of batch `batch` and those behind it.
template <int W> DEV void find_columns(columns &to, const rows_params &p, const variant::head &head,
                                       const strip_values &vals, const route<W> &way, int batch)
{
    if constexpr (variant::COLS) {
        col_words own[GROUPS];
        int place[GROUPS];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const int which = batch + (g * 32 + lane_of_warp()) / PLACES;
            place[g] = way.place(known_once(way) ? which : way.number(which)) + lane_of_warp() % PLACES;
            if (!ALWAYS_CUT || batch + g * (32 / PLACES) < way.batches) {
                variant::make_cols<1>(p.x, p.z, head, max(min(place[g], p.z.n - 1), 0), own[g].c);
            }
        }
        repeat<0, SCANS>([&]<int S>() {
            if constexpr (HAS_STARTS<S>) {
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
                    if (ALWAYS_CUT && batch + g * (32 / PLACES) >= way.batches) {
                        break; // parts are short
                    }
                    const bool start = starts_at<S>(p, head, vals, own[g].c[0], place[g]);
                    const u32 starts = __ballot_sync(ALL_LANES, place[g] >= 0 && place[g] < way.end && start);
                    to.starts[S] = g == 0 || lane_of_warp() == g ? starts : to.starts[S];
                }
            }
        });
        to.own = own[0];
    }
}

// `first`: of the places that are known.
DEV void publish_columns(batch &b, const columns &known, int first)
{
    repeat<0, SCANS>([&]<int S>() {
        b.starts[S] = 0;
        if constexpr (variant::SCAN_STARTS[S] == 1 && !HAS_STARTS<S>) {
            b.starts[S] = b.starts[variant::SCAN_START_OF[S]];
        } else if constexpr (HAS_STARTS<S>) {
            b.starts[S] =
                __shfl_sync(ALL_LANES, known.starts[S], first / 32) >> first % 32 & (0xffffffffu >> (32 - PLACES));
        }
    });
    if constexpr (TOLD) {
        constexpr int COUNT = static_cast<int>(sizeof(col_words)) / 4;
        u32 word[COUNT];
        memcpy(word, &known.own, sizeof known.own);
#pragma unroll
        for (int k = 0; k < PLACES; k++) {
            col_words other;
            u32 told[COUNT];
#pragma unroll
            for (int w = 0; w < COUNT; w++) {
                told[w] = __shfl_sync(ALL_LANES, word[w], first + k);
            }
            memcpy(&other, told, sizeof other);
            b.col[k] = other.c[0];
        }
    }
}

// Of batch k. Which of the places that are known is its first one?
template <int W> DEV int get_columns(columns &known, const rows_params &p, const variant::head &head,
                                     const strip_values &vals, const route<W> &way, int k)
{
    const bool once = known_once(way);
    if (once ? W == 0 && k == 0 && !known.found : k % REFILL == 0) {
        find_columns(known, p, head, vals, way, k);
    }
    return (once ? way.number(k) : k % REFILL) * PLACES;
}

// ---- a batch that is there ---------------------------------------------------------------------------

struct batch_at_hand {
    int base;        // its first place
    int first_known; // of `columns`
    u32 own[IN];     // where the lane's part of each tensor is, from the beginning of shared memory on
};

template <int W>
DEV void take_places(batch &b, const batch_at_hand &from, const columns &known, const unsigned char *shared_bytes)
{
    b.base = from.base;
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
        take<W>(b.held[i], shared_bytes, from.own, i);
    }
    publish_columns(b, known, from.first_known);
}

} // namespace many
