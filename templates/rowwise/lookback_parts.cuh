// rowwise/lookback_parts.cuh: for rowwise/inner_scan_lookback.cuh: parts of strips of rows, and what their blocks tell
// each other.
//
// Of each row of a part a word in memory, 0 before a launch, tells what the part adds: `TELLS_OWN`, or `TELLS_ALL`
// where a segment begins in it: what comes behind it needs nothing before it. GROUP parts have a word more of each row,
// by the last one of them: what the group adds, and as soon as it is known what all up to it do. So what is before a
// part is what is before its group, and on top of it what parts of the group
// add: the same additions in the same order whoever comes first, and so the same bits in every run. A number and what
// it is are one word: no fence waits for what else is on its way to memory. It is a decoupled look-back (D. Merrill, M.
// Garland: Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016), of groups. Nobody waits for ever: parts
// are taken in the order of the counter, a block tells and finishes its own in that order, and whatever is waited for,
// a part's word or its group's, depends on parts with smaller numbers alone.
#pragma once
#include "rowwise/lookback_words.cuh"
#include "rowwise/inner_scan_segments.cuh"

namespace many
{

constexpr int BUFFERS = 3; // parts that a block holds

DEV int warp_of_block() { return __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x) / 32, 0); }

// What one warp of a block finds out for the others about a part (look_ahead): a few parts ahead of them.
struct lookback_part {
    row_at first;        // row of its strip
    int strip;           // c.strips: there is no part any more
    int number;          // along the strip, in the order of the walk
    u32 starts[WORKERS]; // of each piece: bits of places where segments begin
};
// parts that may be known at the same time: three to come, and those that warps of the block still work on
constexpr int KNOWN = 8;
// of the block's part of that number
DEV int slot_of(int turn) { return static_cast<int>(static_cast<u32>(turn) % KNOWN); }

DEV bool is_part(const lookback &c, const lookback_part &at) { return at.strip < c.strips; }
DEV int first_of(const lookback &c, const lookback_part &at) // place
{
    return (in_reverse<0>() ? c.parts - 1 - at.number : at.number) * LOOKBACK_PART;
}
// the first place of the warp's piece
DEV int piece_of(const lookback &c, const lookback_part &at) { return first_of(c, at) + warp_of_block() * PIECE; }
DEV strip strip_of(const rows_params &p, const lookback_part &at) { return strip_from(p, at.first, 0); }

struct lookback_scratch {
    lookback_part part[KNOWN];
    // what pieces add; then what those of the part before them do, behind the last start
    float own[BUFFERS][WORKERS][V][32];
    bool begun[BUFFERS][WORKERS]; // does a segment begin before a piece, in the part?
    float sum[BUFFERS][V][32];    // what the part adds
    float before[BUFFERS][V][32]; // what is before it
};
static_assert(sizeof(lookback_scratch) <=
                  KNOWN * (24 + 4 * WORKERS) + BUFFERS * (WORKERS + 4 * STRIP * (WORKERS + 2)) + 64,
              "lookback_static_bytes of gen/rowwise/plan_scan.c");

// ---- what blocks tell each other ---------------------------------------------------------------------

constexpr u32 TELLS_OWN = 1, TELLS_ALL = 2;

DEV u64 told_word(u32 what, float sum) { return static_cast<u64>(what) << 32 | __float_as_uint(sum); }
struct observed { // of the rows of a lane
    u64 word[V];

    __device__ __forceinline__ u32 what(int j) const { return static_cast<u32>(word[j] >> 32); }
    __device__ __forceinline__ float sum(int j) const { return __uint_as_float(static_cast<u32>(word[j])); }
    __device__ __forceinline__ u32 least() const
    {
        u32 least = what(0);
#pragma unroll
        for (int j = 1; j < V; j++) {
            least = min(least, what(j));
        }
        return least;
    }
};

DEV void publish_group(u64 *words, u32 what, const float (&sum)[V])
{
#pragma unroll
    for (int j = 0; j < V; j += 2) {
        publish_both(words + GROUP * STRIP + j, told_word(what, sum[j]), told_word(what, sum[j + 1]));
    }
}

// Words one after the other: what they tell, and which of them, as bits, are silent, and which tell all.
template <int N> struct window {
    observed part[N];
    u32 silent, all;

    __device__ __forceinline__ void observe(int i, const u64 *words)
    {
#pragma unroll
        for (int j = 0; j < V; j += 2) {
            observe_both(words + j, part[i].word[j], part[i].word[j + 1]);
        }
    }
    // here: which of them are there; the others add 0.
    __device__ __forceinline__ void judge(u32 here)
    {
        silent = all = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u32 what = part[i].least();
            silent |= what == 0 ? 1u << i : 0;
            all |= what == TELLS_ALL ? 1u << i : 0;
        }
        silent = warp_or(silent) & here;
        all = warp_and(all) & here;
    }
    // From word `from` on.
    __device__ __forceinline__ void add(float (&sum)[V], int from, u32 here) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                const float next = part[i].what(j) == TELLS_ALL ? part[i].sum(j) : sum[j] + part[i].sum(j);
                sum[j] = i >= from && (here >> i & 1) != 0 ? next : sum[j];
            }
        }
    }
};
DEV int highest(u32 bits) { return 31 - __clz(static_cast<int>(bits)); } // -1: none

DEV bool any_start(const lookback_part &at)
{
    u32 any = 0;
    for (int w = 0; w < WORKERS; w++) {
        any |= at.starts[w];
    }
    return any != 0;
}

// Where a look back over groups is, a window of them at a time.
constexpr int GROUPS_AT_ONCE = 4;
struct look_back {
    const u64 *words; // of the lane's rows, of the part's group
    int group;        // groups that are before it
    int first;        // of the window
    // of the window: the nearest group that tells all, or none is before; behind that window, the first one. -1: still
    // to be found
    int from;

    __device__ __forceinline__ look_back(const u64 *words, int group)
        : words(words), group(group), first(group - GROUPS_AT_ONCE), from(-1)
    {
    }
    __device__ __forceinline__ const u64 *words_of(int other) const
    {
        return words + GROUP * STRIP - static_cast<i64>(group - other) * GROUP_WORDS;
    }
    __device__ __forceinline__ u32 here() const // groups of the window that there are
    {
        return first < 0 ? (1u << GROUPS_AT_ONCE) - (1u << min(-first, GROUPS_AT_ONCE)) : (1u << GROUPS_AT_ONCE) - 1;
    }
    __device__ __forceinline__ void observe(window<GROUPS_AT_ONCE> &far) const
    {
#pragma unroll
        for (int i = 0; i < GROUPS_AT_ONCE; i++) {
            far.observe(i, words_of(max(first + i, 0)));
        }
    }
    // Is this the window from which groups are added up? Else it is another one's turn, or this one's again.
    __device__ __forceinline__ bool begins_at(const window<GROUPS_AT_ONCE> &far)
    {
        if (far.silent > far.all) { // one that is nearer
            wait_told(words_of(first + highest(far.silent)));
            __syncwarp();
            return false;
        }
        if (far.all == 0 && first > 0) {
            first -= GROUPS_AT_ONCE;
            return false;
        }
        from = max(highest(far.all), 0);
        return true;
    }
    // The window's, and on to the next one.
    __device__ __forceinline__ void add(float (&before)[V], const window<GROUPS_AT_ONCE> &far, u32 groups)
    {
        far.add(before, from, groups);
        from = 0;
        first += GROUPS_AT_ONCE;
    }
};

// What parts of the group before the part add, all of which must have told it, and by the last part of a group what the
// group adds.
DEV void take_group(float (&local)[V], float (&own)[V], const window<GROUP - 1> &near, u32 here, const float (&sum)[V],
                    bool begins)
{
    near.add(local, 0, here);
#pragma unroll
    for (int j = 0; j < V; j++) {
        own[j] = begins ? sum[j] : local[j] + sum[j];
    }
}

// What is before a part that the block holds, by one warp; the last part of a group tells what the group adds. Words of
// the group's parts and of the groups before it are asked for together, whether they are there or not: all of them are
// on their way at once. `sum`: what the part adds.
DEV void find_before(float (&before)[V], const lookback &c, const lookback_part &at, const float (&sum)[V])
{
    const bool last = at.number % GROUP == GROUP - 1;
    const bool begins = last && any_start(at);
    u64 *const words = c.words_of(at.strip, at.number / GROUP) + lane_of_warp() * V;
    look_back look(words, at.number / GROUP);
    u32 here = (1u << at.number % GROUP) - 1; // of the group's parts: none any more, once they have told
    float local[V] = {};                      // what they add
    float own[V];                             // and the whole group
    bool observed_parts = false;
#pragma unroll
    for (int j = 0; j < V; j++) {
        before[j] = 0.0f;
    }
#pragma unroll 1
    while (look.first < look.group) {
        window<GROUP - 1> near;
        window<GROUPS_AT_ONCE> far;
        const u32 groups = look.here();
#pragma unroll
        for (int i = 0; i < GROUP - 1; i++) {
            near.observe(i, words + i * STRIP);
        }
        look.observe(far);
        near.judge(here);
        far.judge(groups);
        if (near.silent != 0) {
            wait_told(words + highest(near.silent) * STRIP);
            __syncwarp();
            continue;
        }
        if (!observed_parts) {
            observed_parts = true;
            take_group(local, own, near, here, sum, begins);
            here = 0;
            if (last) {
                publish_group(words, near.all != 0 || begins ? TELLS_ALL : TELLS_OWN, own);
            }
            if (near.all != 0) {
                break;
            }
        }
        if (look.from < 0 && !look.begins_at(far)) {
            continue;
        }
        look.add(before, far, groups);
        if (look.first >= look.group && last && !begins) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                own[j] = before[j] + own[j];
            }
            publish_group(words, TELLS_ALL, own);
        }
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        before[j] += local[j];
    }
}

// ---- in a block --------------------------------------------------------------------------------------

// The warps of a block meet in every turn, where what is before the part of that number is there, and what the next one
// adds; ahead of turn 0, where what the first one adds is, and ahead of that, where the first parts are known. Two
// barriers in turn: who is not waited for arrives at one and may wait at the other before the first is over.
DEV void exchange_at(int turn) { barrier_sync(2 + static_cast<u32>(turn & 1), cfg::LOOKBACK_THREADS); }
DEV void pass_by(int turn) { barrier_arrive(2 + static_cast<u32>(turn & 1), cfg::LOOKBACK_THREADS); }

// The part of that item: what all warps of the block need to know.
DEV void find_part(lookback_part &to, const rows_params &p, const lookback &c, u32 item)
{
    const int number = static_cast<int>(item / static_cast<u32>(c.strips));
    const int strip = static_cast<int>(item - static_cast<u32>(number) * static_cast<u32>(c.strips));
    if (lane_of_warp() == 0) {
        to.first = first_row_of(p, c.across, strip);
        to.strip = item < c.items ? strip : c.strips;
        to.number = number;
    }
    __syncwarp();
}
DEV void find_starts(lookback_part &to, const rows_params &p, const variant::head &head, const lookback &c)
{
    constexpr int AT_ONCE = 4;    // pieces
    const strip_values vals = {}; // columns alone say where segments begin
#pragma unroll 1
    for (int first = 0; first < WORKERS; first += AT_ONCE) {
        col_words columns[AT_ONCE];
        int place[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            place[k] = min(first_of(c, to) + (first + k) * PIECE + lane_of_warp(), p.z.n);
            if constexpr (HAS_STARTS<0>) {
                variant::make_cols<1>(p.x, p.z, head, min(place[k], p.z.n - 1), columns[k].c);
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            bool start = false;
            if constexpr (HAS_STARTS<0>) {
                start = lane_of_warp() < PIECE && place[k] < p.z.n &&
                        starts_at<0>(p, head, vals, columns[k].c[0], place[k]);
            }
            const u32 starts = __ballot_sync(ALL_LANES, start);
            if (lane_of_warp() == 0 && first + k < WORKERS) {
                to.starts[first + k] = starts;
            }
        }
    }
}

// By one warp: takes parts, and finds out about each what the others need to know.
DEV void look_ahead(const rows_params &p, const lookback &c, lookback_scratch &shared)
{
    const variant::head head = variant::make_head(p.x, p.z);
    u32 asked = 0; // in one lane
#pragma unroll 1
    for (int turn = -BUFFERS - 1; turn < 0 || is_part(c, shared.part[slot_of(turn)]); turn++) {
        const u32 item = __shfl_sync(ALL_LANES, asked, 0);
        if (lane_of_warp() == 0) {
            asked = take_ticket(c.taken);
        }
        if (turn >= -BUFFERS) {
            lookback_part &coming = shared.part[slot_of(turn + BUFFERS)];
            find_part(coming, p, c, item);
            if (is_part(c, coming)) {
                find_starts(coming, p, head, c);
            }
            __syncwarp();
        }
        if (turn == -1) {
            exchange_at(-2);
        }
        if (turn >= -1) {
            exchange_at(turn);
        }
    }
}

// By two warps, of every second part each: what is before it, for which a warp so has two turns. Of the last part of a
// group it has to know what that adds, and waits for it.
DEV void look_back(const lookback &c, lookback_scratch &shared, int which)
{
    for (int turn = -2; turn < which - 1; turn++) {
        exchange_at(turn);
    }
#pragma unroll 1
    for (int turn = which; turn == 0 || is_part(c, shared.part[slot_of(turn - 1)]); turn += 2) {
        const lookback_part &at = shared.part[slot_of(turn)];
        const int buffer = turn % BUFFERS;
        if (!is_part(c, at)) {
            pass_by(turn - 1);
            break;
        }
        float sum[V] = {};
        float before[V];
        if (at.number % GROUP == GROUP - 1) {
            exchange_at(turn - 1);
#pragma unroll
            for (int j = 0; j < V; j++) {
                sum[j] = shared.sum[buffer][j][lane_of_warp()];
            }
        } else {
            pass_by(turn - 1);
        }
        find_before(before, c, at, sum);
#pragma unroll
        for (int j = 0; j < V; j++) {
            shared.before[buffer][j][lane_of_warp()] = before[j];
        }
        exchange_at(turn);
    }
}

// By the warps that hold pieces: what each adds. Some of them add these up, one row of each lane, and tell it.
DEV void leave_piece(const float (&sum)[V], const lookback &c, const lookback_part &at, lookback_scratch &shared,
                     int buffer)
{
    const int warp = warp_of_block();
    const int lane = lane_of_warp();
#pragma unroll
    for (int j = 0; j < V; j++) {
        shared.own[buffer][warp][j][lane] = sum[j];
    }
    barrier_sync(1, 32 * WORKERS);
    if (warp >= V) {
        return;
    }
    float all = 0.0f;
    bool begun = false;
#pragma unroll 4
    for (int k = 0; k < WORKERS; k++) {
        const int w = in_reverse<0>() ? WORKERS - 1 - k : k;
        const bool begins = at.starts[w] != 0;
        const float own = shared.own[buffer][w][warp][lane];
        shared.own[buffer][w][warp][lane] = all;
        if (threadIdx.x == 0) {
            shared.begun[buffer][w] = begun;
        }
        all = begins ? own : all + own;
        begun |= begins;
    }
    shared.sum[buffer][warp][lane] = all;
    publish_one(c.words_of(at.strip, at.number / GROUP) + at.number % GROUP * STRIP + lane * V + warp,
                told_word(begun ? TELLS_ALL : TELLS_OWN, all));
}

// What is before the warp's piece.
DEV void take_before(float (&before)[V], const lookback_scratch &shared, int buffer)
{
    const int warp = warp_of_block();
    const bool begun = shared.begun[buffer][warp];
#pragma unroll
    for (int j = 0; j < V; j++) {
        const float ahead = shared.own[buffer][warp][j][lane_of_warp()];
        before[j] = begun ? ahead : shared.before[buffer][j][lane_of_warp()] + ahead;
    }
}

} // namespace many
