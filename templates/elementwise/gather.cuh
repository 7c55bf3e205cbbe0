// elementwise/gather.cuh: kernels: one gradient of an input whose rows are read by computed numbers, such as the table
// of an embedding.
//
// Adding to it by atomics would take zeros, sums in fp32 and a copy of them through memory. Instead the lines of points
// (all but the last dim) are sorted by the row of the input that they belong to, as numbers; then every row is added up
// in registers and written once.
//
//   count   how many lines each row has, and which of them a line is
//   start   where each row's lines stand in `list`; rows of more than LONG lines are noted
//   order   the lines of a row side by side, in the order in which atomics came
//   gather  a team of up to 32 threads a row (and 128 vectors of it): sums, or zeros where it has no line
//   longs   of rows with many lines: a block each 32 vectors, its warps share the lines
//
// Launch: any number of blocks of THREADS threads (LONG_THREADS for longs); no shared memory to ask for.
#include "common/concepts.cuh"
#include "elementwise/parts.cuh"

namespace elementwise
{

using gathered = variant_map<0>;
using word = unsigned long long;

constexpr word LONG = 64; // lines of a row that a team adds up one after the other
constexpr int LONG_THREADS = 1024;
constexpr int LONG_WARPS = LONG_THREADS / 32;
constexpr int TOGETHER = cfg::UNROLL; // vectors of a row, or lines, that are loaded together
constexpr int APART = 32 * V;         // columns between a thread's vectors of a row
constexpr int GATHER_BLOCKS = 3;      // on an SM: 80 registers, since what is spilled would be waited for

DEV i64 count_lines(const map_sizes &z)
{
    i64 lines = 1;
#pragma unroll
    for (int k = 0; k + 1 < gathered::DIMS; k++) {
        lines *= z.n[k];
    }
    return lines;
}

// The first point of a line.
DEV point point_of_line(const map_sizes &z, i64 line)
{
    point at = {};
    at.exists = true;
    if (line >> 32 == 0) { // in line: it stands between a row and its elements
        u32 rest = static_cast<u32>(line);
#pragma unroll
        for (int k = gathered::DIMS - 2; k > 0; k--) {
            const u32 others = rest / static_cast<u32>(z.n[k]);
            at.at[k] = static_cast<int>(rest - others * static_cast<u32>(z.n[k]));
            rest = others;
        }
        at.at[0] = static_cast<int>(rest);
        return at;
    }
#pragma unroll
    for (int k = gathered::DIMS - 2; k > 0; k--) {
        at.at[k] = static_cast<int>(take_index(line, z.n[k]));
    }
    at.at[0] = static_cast<int>(line);
    return at;
}

// Where the lines of a row stand in the list. One load, so that a row is known after one wait.
struct lines {
    word begin, count;
};
DEV lines lines_of(const map_params &p, i64 row)
{
    const uint4 x = *(reinterpret_cast<const uint4 *>(p.begins) + row);
    return {static_cast<word>(x.y) << 32 | x.x, static_cast<word>(x.w) << 32 | x.z};
}

// none beyond the rows
DEV lines lines_within(const map_params &p, i64 row, i64 rows) { return row < rows ? lines_of(p, row) : lines{0, 0}; }

// The same for a row that a team adds up: LONG + 1 stands for more.
struct few_lines {
    word begin;
    u32 count;
};
DEV few_lines few_of(const lines &all)
{
    return {all.begin, static_cast<u32>(all.count > LONG ? LONG + 1 : all.count)};
}

// What W points of a line, the first of them at.first, add to the sum of their columns.
template <int W> DEV void add_points(typename gathered::template sums<W> &sum, const map_params &p, const space &s,
                                     const point &at, const typename gathered::head &head,
                                     const typename gathered::bases &base,
                                     const typename gathered::template held<W> &held)
{
    typename gathered::totals totals;
    typename gathered::fixed fixed[W];
    typename gathered::col col[W];
    gathered::template make_fixed<W>(fixed, p, at, head);
    gathered::template make_cols<W>(col, p, at, head, fixed);
    gathered::template compute<false, W>(p, s, base, at, 0, head, fixed, col, held, sum, totals);
}

// A line that a team is at.
struct line_at {
    point first;
    typename gathered::head head;
    typename gathered::bases base;
};

DEV void find_line(line_at &to, const map_params &p, const space &s, word line, i64 first)
{
    to.first = point_of_line(gathered::sizes(p), static_cast<i64>(line));
    to.first.first = first;
    gathered::make_head(to.head, p, to.first);
    gathered::template locate<false>(to.base, p, s, to.first);
}

// Columns of one row, from its lines to memory: N vectors of W, APART from one another, the first of them at `column`.
// N > 1: elements of a line are adjacent. WHOLE: all of them are there, so that their places are known to be constants
// apart; else those beyond the end are the last ones, without a branch, so that all are loaded together. `line`: the
// row's first one, which is `from` where it is `found`.
template <int W, int N, bool WHOLE> DEV void gather_columns(const map_params &p, const space &s, i64 row,
                                                            const few_lines &own, word line, i64 column, line_at &from,
                                                            bool found)
{
    typename gathered::template sums<W> sum[N];
    i64 at_once[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        gathered::template clear<W>(sum[k]);
        at_once[k] = WHOLE ? column + k * APART : min(column + k * APART, s.last - W);
    }
    word at = line;
#pragma unroll 1
    for (u32 i = 1; i <= own.count; i++) {
        const word next = i < own.count ? p.list[own.begin + i] : 0;
        if (!found) {
            find_line(from, p, s, at, column);
        }
        at = next;
        typename gathered::bases base[N];
        typename gathered::template held<W> held[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            base[k] = from.base;
            gathered::shift(base[k], at_once[k] - column);
            from.first.first = at_once[k];
            gathered::template load<false, W>(held[k], p, base[k], from.first, from.head, 0);
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            from.first.first = at_once[k];
            add_points<W>(sum[k], p, s, from.first, from.head, base[k], held[k]);
        }
    }
    auto *const to = gathered::target_row(p, row);
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (WHOLE || column + k * APART + W <= s.last) {
            gathered::template put<W>(to, p, column + k * APART, sum[k]);
        }
    }
}

// The same at `first` and every `step` columns behind it. A row of one line finds it once for all of its columns.
template <int W, int N>
DEV void gather_row(const map_params &p, const space &s, i64 row, const few_lines &own, word line, i64 first, i64 step)
{
    line_at from = {};
    bool found = false;
#pragma unroll 1
    for (i64 column = first; column < s.last; column += step) {
        if (N == 1 || column + (N - 1) * APART + W <= s.last) {
            gather_columns<W, N, true>(p, s, row, own, line, column, from, found);
        } else {
            gather_columns<W, N, false>(p, s, row, own, line, column, from, found);
        }
        found = N > 1 && own.count == 1;
        gathered::shift(from.base, step);
    }
}

DEV space space_of(const map_params &p)
{
    space s = {};
    s.last = gathered::sizes(p).n[gathered::DIMS - 1];
    return s;
}

// How rows are shared out: columns that threads take as vectors, the threads of a team, parts of a row, each a team's,
// and rows beside each other of which a team has the same part.
struct share {
    i64 wide;  // columns in vectors; the others one by one
    i64 reach; // columns of a part
    int team;  // less than a warp for a row of fewer vectors, which is one part
    int parts;
    i64 beside; // a power of two
};

constexpr i64 PART = APART * TOGETHER; // columns that a team works on at once
// of them a part of a row has as many where every team has several parts all the same:
constexpr int MOST_PARTS = 2;
constexpr int ITEMS = 4; // what finds a line is then done once for all of them
// rows, where every team still has several times as many: neighbours often read the same points,
constexpr i64 MOST_BESIDE = 4;
constexpr int TURNS = 3; // which L1 has then

DEV share make_share(const map_params &p, i64 columns, i64 rows)
{
    share h;
    h.wide = gathered::whole(p) && gathered::target_whole(p) ? columns / V * V : 0;
    h.team = 1;
    while (h.team < 32 && static_cast<i64>(h.team) * V < columns) {
        h.team *= 2;
    }
    const i64 teams = static_cast<i64>(gridDim.x) * (cfg::THREADS / h.team);
    h.reach = PART;
#pragma unroll 1
    while (h.reach < MOST_PARTS * PART && h.reach < columns &&
           rows * ((columns - 1) / (2 * h.reach) + 1) >= ITEMS * teams) {
        h.reach *= 2;
    }
    h.parts = static_cast<int>((columns - 1) / h.reach + 1);
    h.beside = 1;
#pragma unroll 1
    while (h.beside < MOST_BESIDE && rows * h.parts >= 2 * TURNS * teams * h.beside) {
        h.beside *= 2;
    }
    return h;
}

// A part of a row.
struct piece {
    i64 row;
    int part;
};

// The one that a team has behind `from`: of the row beside it, or else `step` further along rows that are beside each
// other, and so many of those.
DEV piece further(const piece &from, const piece &step, const share &h, i64 rows)
{
    const i64 behind = from.row + 1;
    if ((behind & (h.beside - 1)) != 0 && behind < rows) {
        return {behind, from.part};
    }
    const i64 row = (from.row & -h.beside) + step.row;
    const int part = from.part + step.part;
    return part >= h.parts ? piece{row + h.beside, part - h.parts} : piece{row, part};
}

// Of a part of a row: columns in vectors, then one by one.
DEV void gather_piece(const map_params &p, const space &s, const share &h, const piece &here, const few_lines &own,
                      word line)
{
    const int lane = static_cast<int>(threadIdx.x) & (h.team - 1);
    const i64 first = here.part * h.reach;
    space wide = s;
    space rest = s;
    wide.last = min(first + h.reach, h.wide);
    rest.last = min(first + h.reach, s.last);
    gather_row<V, TOGETHER>(p, wide, here.row, own, line, first + lane * V, PART);
    gather_row<1, 1>(p, rest, here.row, own, line, max(first, h.wide) + lane, h.team);
}

// A team takes pieces in turn. While it is at one, the place of the next piece's first line is on its way, and where
// the lines of the one after that stand: else three reads would follow one another for every row.
DEV void gather_rows(const map_params &p)
{
    const space s = space_of(p);
    const i64 rows = gathered::target_rows(p);
    const share h = make_share(p, s.last, rows);
    const i64 teams = static_cast<i64>(gridDim.x) * (cfg::THREADS / h.team);
    const i64 item = static_cast<i64>(blockIdx.x) * (cfg::THREADS / h.team) + static_cast<int>(threadIdx.x) / h.team;
    const i64 across = quotient(teams, h.parts); // items are the parts of rows beside each other
    const i64 above = quotient(item, h.parts);
    const piece step = {across * h.beside, static_cast<int>(teams - across * h.parts)};
    piece here = {above * h.beside, static_cast<int>(item - above * h.parts)};
    piece next = further(here, step, h, rows);
    few_lines own = few_of(lines_within(p, here.row, rows));
    few_lines after = few_of(lines_within(p, next.row, rows));
    word line = own.count > 0 ? p.list[own.begin] : 0;
#pragma unroll 1
    while (here.row < rows) {
        const piece last = further(next, step, h, rows);
        const lines later = lines_within(p, last.row, rows);
        const word following = after.count > 0 ? p.list[after.begin] : 0;
        if (own.count <= LONG) {
            gather_piece(p, s, h, here, own, line);
        }
        here = next;
        next = last;
        own = after;
        after = few_of(later); // here, where it has come: else it would be waited for above
        line = following;
    }
}

// ---- rows of many lines ------------------------------------------------------------------------------

struct long_scratch {
    float sum[LONG_WARPS][32 * V];
};

// Of W adjacent columns of a lane: the lines of this warp, then of all warps together.
template <int W> DEV void gather_long(const map_params &p, const space &s, i64 row, i64 first, long_scratch &shared)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool exists = first + W <= s.last;
    const lines own = lines_of(p, row);
    const word end = own.begin + own.count;
    typename gathered::template sums<W> sum;
    gathered::template clear<W>(sum);
#pragma unroll 1
    for (word i = own.begin + static_cast<word>(warp); i < end && exists; i += TOGETHER * LONG_WARPS) {
        point at[TOGETHER];
        typename gathered::head head[TOGETHER];
        typename gathered::bases base[TOGETHER];
        typename gathered::template held<W> held[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const word which = i + static_cast<word>(k * LONG_WARPS);
            if (which < end) {
                at[k] = point_of_line(gathered::sizes(p), static_cast<i64>(p.list[which]));
                at[k].first = first;
                gathered::make_head(head[k], p, at[k]);
                gathered::template locate<false>(base[k], p, s, at[k]);
                gathered::template load<false, W>(held[k], p, base[k], at[k], head[k], 0);
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            if (i + static_cast<word>(k * LONG_WARPS) < end) {
                add_points<W>(sum, p, s, at[k], head[k], base[k], held[k]);
            }
        }
    }
    float *const columns = gathered::sum_of<W>(sum);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W; k++) {
        shared.sum[warp][k * 32 + lane] = columns[k];
    }
    __syncthreads();
    if (warp == 0 && exists) {
#pragma unroll 1
        for (int w = 1; w < LONG_WARPS; w++) {
#pragma unroll
            for (int k = 0; k < W; k++) {
                columns[k] += shared.sum[w][k * 32 + lane];
            }
        }
        gathered::template put<W>(gathered::target_row(p, row), p, first, sum);
    }
}

DEV void gather_longs(const map_params &p, long_scratch &shared)
{
    if (p.totals[1] == 0) {
        return;
    }
    const space s = space_of(p);
    const share h = make_share(p, s.last, 0);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const i64 vectors = (h.wide + 32 * V - 1) / (32 * V); // parts of the row in vectors, then those of single columns
    const i64 parts = vectors + (s.last - h.wide + 31) / 32;
    const i64 items = static_cast<i64>(p.totals[1]) * parts;
#pragma unroll 1
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const i64 which = quotient(item, parts);
        const i64 part = item - which * parts;
        const i64 row = static_cast<i64>(p.longs[which]);
        space some = s;
        if (part < vectors) {
            some.last = h.wide;
            gather_long<V>(p, some, row, (part * 32 + lane) * V, shared);
        } else {
            gather_long<1>(p, some, row, h.wide + (part - vectors) * 32 + lane, shared);
        }
    }
}

} // namespace elementwise

#if LATHE_COMPILED(count)
extern "C" __global__ void __launch_bounds__(cfg::THREADS) LATHE_ENTRY(count)(const __grid_constant__ map_params p)
{
    using namespace elementwise;
    const i64 lines = gathered::target_rows(p) > 0 ? count_lines(gathered::sizes(p)) : 0;
#pragma unroll 1
    for (i64 line = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; line < lines;
         line += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        p.ranks[line] = atomicAdd(p.counts + gathered::target(p, point_of_line(gathered::sizes(p), line)), word{1});
    }
}
#endif

#if LATHE_COMPILED(start)
extern "C" __global__ void __launch_bounds__(cfg::THREADS) LATHE_ENTRY(start)(const __grid_constant__ map_params p)
{
    using namespace elementwise;
    __shared__ word base;
    __shared__ word ends[WARPS];
    const i64 rows = gathered::target_rows(p);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
    for (i64 first = static_cast<i64>(blockIdx.x) * cfg::THREADS; first < rows;
         first += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        const i64 row = first + threadIdx.x;
        const word own = row < rows ? p.counts[row] : 0;
        word upto = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const word low = __shfl_up_sync(ALL_LANES, static_cast<u32>(upto), step);
            const word high = __shfl_up_sync(ALL_LANES, static_cast<u32>(upto >> 32), step);
            upto += lane >= step ? high << 32 | low : 0;
        }
        __syncthreads();
        if (lane == 31) {
            ends[warp] = upto;
        }
        __syncthreads();
        word all = 0;
        for (int w = 0; w < WARPS; w++) {
            upto += w < warp ? ends[w] : 0;
            all += ends[w];
        }
        if (threadIdx.x == 0) {
            base = atomicAdd(p.totals, all); // rows may stand in any order
        }
        __syncthreads();
        if (row < rows) {
            const word begin = base + upto - own;
            *(reinterpret_cast<uint4 *>(p.begins) + row) =
                make_uint4(static_cast<u32>(begin), static_cast<u32>(begin >> 32), static_cast<u32>(own),
                           static_cast<u32>(own >> 32));
            if (own > LONG) {
                p.longs[atomicAdd(p.totals + 1, word{1})] = static_cast<word>(row);
            }
        }
    }
}
#endif

#if LATHE_COMPILED(order)
extern "C" __global__ void __launch_bounds__(cfg::THREADS) LATHE_ENTRY(order)(const __grid_constant__ map_params p)
{
    using namespace elementwise;
    const i64 lines = gathered::target_rows(p) > 0 ? count_lines(gathered::sizes(p)) : 0;
#pragma unroll 1
    for (i64 line = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; line < lines;
         line += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        p.list[lines_of(p, gathered::target(p, point_of_line(gathered::sizes(p), line))).begin + p.ranks[line]] =
            static_cast<word>(line);
    }
}
#endif

#if LATHE_COMPILED(gather)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, GATHER_BLOCKS)
    LATHE_ENTRY(gather)(const __grid_constant__ map_params p)
{
    elementwise::gather_rows(p);
}
#endif

#if LATHE_COMPILED(longs)
extern "C" __global__ void __launch_bounds__(elementwise::LONG_THREADS)
    LATHE_ENTRY(longs)(const __grid_constant__ map_params p)
{
    __shared__ elementwise::long_scratch shared;
    elementwise::gather_longs(p, shared);
}
#endif
