// rowwise/inner_scan_parts.cuh: for rowwise/inner_scan.cuh: which strips of rows, or parts of them, a warp takes, and
// where rows are cut.
#pragma once
#include "common/work_counter.cuh"
#include "rowwise/lookback_words.cuh"
#include "rowwise/inner_scan_segments.cuh"

namespace many
{

// ---- where rows are cut ------------------------------------------------------------------------------

// Do all scans begin anew at a place?
DEV bool is_cut_at(const rows_params &p, const variant::head &head, const strip_values &vals, const variant::col &c,
                   int place)
{
    bool cut = true;
    repeat<0, SCANS>([&]<int S>() { cut &= starts_at<S>(p, head, vals, c, place); });
    return cut;
}

constexpr int LOOK = 4; // groups of 32 places that are looked at together, one by each lane

// Of each of them, in the lane of its number: where segments of each scan begin. Who asks has `cuts` of group g, where
// all of them do.
template <class F> DEV void look_at_groups(u32 (&starts)[SCANS], const rows_params &p, const variant::head &head,
                                           const strip_values &vals, int base, const F &cuts)
{
    col_words own[LOOK];
#pragma unroll
    for (int g = 0; g < LOOK; g++) {
        variant::make_cols<1>(p.x, p.z, head, min(base + g * 32 + lane_of_warp(), p.z.n - 1), own[g].c);
    }
#pragma unroll
    for (int g = LOOK - 1; g >= 0; g--) {
        const int place = base + g * 32 + lane_of_warp();
        u32 all = 0xffffffffu;
        repeat<0, SCANS>([&]<int S>() {
            if constexpr (HAS_STARTS<S>) {
                const u32 of_group =
                    __ballot_sync(ALL_LANES, place < p.z.n && starts_at<S>(p, head, vals, own[g].c[0], place));
                starts[S] = lane_of_warp() == g ? of_group : starts[S];
                all &= of_group;
            }
        });
        cuts(g, all);
    }
}

// The same from place `first` of those groups on, for as many places as a part has.
DEV void move_starts(u32 (&to)[SCANS], const u32 (&starts)[SCANS], int first, int places)
{
    const int here = places - lane_of_warp() * 32;
    const u32 mine = here >= 32 ? 0xffffffffu : (1u << max(here, 0)) - 1;
    repeat<0, SCANS>([&]<int S>() {
        if constexpr (HAS_STARTS<S>) {
            const int lane = lane_of_warp() + first / 32;
            const u32 low = __shfl_sync(ALL_LANES, starts[S], lane);
            const u32 high = __shfl_sync(ALL_LANES, starts[S], lane + 1);
            to[S] = static_cast<u32>((static_cast<u64>(high) << 32 | low) >> first % 32) & mine;
        }
    });
}

// Part `part` of a row: from the first cut among its PART places to the first one behind them. False: there is none
// among them, and they belong to a part before. `known`: where its segments begin, if it ends among the places that are
// looked at first.
DEV bool find_part(strip &s, columns &known, const rows_params &p, const variant::head &head, const strip_values &vals,
                   int part)
{
    static_assert(cfg::PART % 32 == 0 && cfg::PART <= 32 * LOOK,
                  "the first cut of a part is among those that are looked at together");
    const int from = part * cfg::PART;
    const int next = from + cfg::PART;
    int begin = part == 0 ? 0 : -1;
    int end = p.z.n;
#pragma unroll 1
    for (int base = from; base < p.z.n && end == p.z.n; base += 32 * LOOK) {
        u32 starts[SCANS] = {};
        look_at_groups(starts, p, head, vals, base, [&](int g, u32 cuts) {
            const int group = base + g * 32;
            const int first = group + __ffs(static_cast<int>(cuts)) - 1;
            begin = cuts != 0 && group < next && part > 0 ? first : begin;
            end = cuts != 0 && group >= next ? first : end;
        });
        if (begin < 0) {
            return false;
        }
        known.found = !TOLD && WALKS > 1 && base == from && end - from <= 32 * LOOK;
        if (known.found) {
            move_starts(known.starts, starts, begin - from, end - begin);
        }
    }
    s.begin = begin;
    s.end = end;
    s.slots += SLOTS_OF_WARPS ? 0 : begin / PLACES + part;
    return true;
}

// Groups of 32 places that are looked at to find out how often a row is cut: all of them, or so many all along it.
constexpr int SAMPLES = 128;

// The first place of a sample: in its share of the row not always at the same distance, since segments may be alike.
DEV int place_of_sample(int sample, int groups)
{
    const int all = max(groups, SAMPLES);
    const int share = all / SAMPLES;
    const int first = sample * share + sample * (all % SAMPLES) / SAMPLES;
    return min(first + sample * 7 % 16 * share / 16, groups) * 32;
}

// How many of a warp's samples have a cut.
DEV int count_cut_samples(const rows_params &p, const variant::head &head, int warp, int groups)
{
    constexpr int AT_ONCE = 4;
    const strip_values vals = {}; // columns alone say where scans begin
    int cuts = 0;
#pragma unroll 1
    for (int first = warp * AT_ONCE; first < min(groups, SAMPLES); first += WARPS * AT_ONCE) {
        col_words own[AT_ONCE];
        int place[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            place[k] = min(place_of_sample(first + k, groups), p.z.n) + lane_of_warp();
            variant::make_cols<1>(p.x, p.z, head, min(place[k], p.z.n - 1), own[k].c);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const bool inside = place[k] > 0 && place[k] < p.z.n; // where a row begins it is not cut
            cuts += __any_sync(ALL_LANES, inside && is_cut_at(p, head, vals, own[k].c[0], place[k])) ? 1 : 0;
        }
    }
    return cuts;
}

// Has a row two parts and more for each warp of a block, which would else share it? Where it would be left to
// rowwise/inner_scan_lookback.cuh there has to be a cut in one of twenty groups, too: with fewer, that is faster. All
// blocks find the same. `scratch`: a word for each warp.
DEV bool is_cut_often(const rows_params &p, const variant::head &head, int warp, unsigned char *scratch)
{
    const int groups = (p.z.n - 1) / 32 + 1;
    int *const of_warp = reinterpret_cast<int *>(scratch);
    const int own = count_cut_samples(p, head, warp, groups);
    if (lane_of_warp() == 0) {
        of_warp[warp] = own;
    }
    __syncthreads();
    int cuts = 0;
    for (int w = 0; w < WARPS; w++) {
        cuts += of_warp[w];
    }
    __syncthreads(); // read, before it is something else
    const bool often = !LOOKS_BACK || cuts * 20 >= min(groups, SAMPLES);
    return often && static_cast<i64>(cuts) * max(groups, SAMPLES) / SAMPLES >= 2 * WARPS;
}

// ---- what a warp takes -------------------------------------------------------------------------------

static_assert(cfg::WHOLE_WARPS > 0 && cfg::WHOLE_WARPS <= WARPS);

// Strips, or parts of them: `first`, and every `step`-th from there to `end`. Parts are not alike: a warp takes the
// next one from a counter.
struct allotment {
    int across, strips; // strips side by side, and in all
    bool cut;           // each warp takes parts of its own
    bool left;          // nobody takes anything: it is left to rowwise/inner_scan_lookback.cuh
    sharing with;       // of a strip
    int first, end, step;

    __device__ __forceinline__ bool counts() const { return cut && static_cast<u32>(end) < item_counter::LIMIT; }
    // neighbours take the same one, of strips side by side
    __device__ __forceinline__ int part(int item) const { return cut ? item / strips : 0; }
};

// Whole strips: `warps` of each block go along neighbours, which share pages of memory, or all warps along the same
// one.
DEV allotment allot_whole(int across, int strips, int warp, int warps, bool apart)
{
    // or ptxas (13.0), where it sees that nobody shares (LOOKS_BACK), makes a text that walks 2.5 % slower
    const int one = static_cast<int>(gridDim.y);
    const int blocks = static_cast<int>(gridDim.x);
    const u32 each = static_cast<u32>(strips / blocks);
    // times a block's number they are below 2^32: no launch has more than 2^16 blocks
    const u32 rest = static_cast<u32>(strips % blocks);
    const auto first_of = [&](u32 block) {
        return static_cast<int>(block * each + block * rest / static_cast<u32>(blocks));
    };
    const int end = first_of(blockIdx.x + 1);
    const sharing with = {apart ? one : WARPS, apart ? 0 : warp, static_cast<int>(gridDim.y) - 1};
    const int first = !apart ? first_of(blockIdx.x) : warp < warps ? first_of(blockIdx.x) + warp : end;
    return {across, strips, false, false, with, first, end, apart ? warps : 1};
}

DEV allotment allot_strips(const rows_params &p, const variant::head &head, int warp, unsigned char *scratch)
{
    const int blocks = static_cast<int>(gridDim.x);
    const int across = (p.z.rows - 1) / STRIP + 1;
    const int strips = p.z.rows <= 0 || p.z.n <= 0 ? 0 : p.z.rows0 * p.z.rows1 * across;
    const int warps = blocks * cfg::WHOLE_WARPS;
    // parts are more
    const bool many = strips >= (ALWAYS_CUT ? warps / 4 : LOOKS_BACK ? cfg::LOOKBACK_STRIPS : warps / 2);
    bool cut = false;
    if constexpr (CUT) {
        cut = many ? ALWAYS_CUT : strips > 0 && is_cut_often(p, head, warp, scratch);
    }
    if (cut) {
        const int parts = (p.z.n - 1) / max(cfg::PART, 1) + 1;
        const sharing alone = {1, 0, static_cast<int>(gridDim.y) - 1};
        return {across,         strips,        cut, false, alone, static_cast<int>(blockIdx.x) * WARPS + warp,
                strips * parts, blocks * WARPS};
    }
    if (LOOKS_BACK && !many) {
        return {across, strips, false, true, {}, 0, 0, 1};
    }
    const int turns = (strips - 1) / warps + 1;
    const bool uneven = strips < static_cast<i64>(turns) * warps * 9 / 10; // in the last turn many would have none
    return allot_whole(across, strips, warp, uneven ? WARPS : cfg::WHOLE_WARPS, many);
}

// The item behind the one at hand. A lane asks for it when that begins, once for each; the answer comes beside what
// tells where that is cut.
struct coming_item {
    item_counter counter;
    u64 asked;

    __device__ __forceinline__ coming_item(const rows_params &p, const allotment &own)
        : counter{static_cast<u64 *>(p.carries), static_cast<u32>(own.end)}, asked(0)
    {
        if (CUT && own.counts() && lane_of_warp() == 0) {
            asked = counter.ask();
        }
    }
    __device__ __forceinline__ int number(int item, const allotment &own) const
    {
        if (!CUT || !own.counts()) {
            return item + own.step;
        }
        const int taken = lane_of_warp() == 0 ? static_cast<int>(counter.take(asked)) : 0;
        // in a uniform register, and so is all that follows from it: by a shuffle, 72 bytes spill
        return own.step + warp_max(taken);
    }
};

} // namespace many
