// elementwise_gather.cuh: kernels: one gradient of an input whose rows are read by computed numbers, such as the table of an embedding.
//
// Adding to it by atomics would take zeros, sums in fp32 and a copy of them through memory. Instead the lines of points (all but the last
// dim) are sorted by the row of the input that they belong to, as numbers; then every row is added up in registers and written once.
//
//   count   how many lines each row has, and which of them a line is
//   start   where each row's lines stand in `list`; rows of more than LONG lines are noted
//   order   the lines of a row side by side, in the order in which atomics came
//   gather  a team of up to 32 threads a row (and 128 vectors of it): sums, or zeros where it has no line
//   longs   of rows with many lines: a block each 32 vectors, its warps share the lines
//
// Launch: any number of blocks of THREADS threads (LONG_THREADS for longs); no shared memory to ask for.
#include "slots.cuh"
#include "elementwise_parts.cuh"

namespace elementwise {

using gathered = variant_map<0>;
using word = unsigned long long;

constexpr word LONG = 64;         // lines of a row that a team adds up one after the other
constexpr int LONG_THREADS = 1024;
constexpr int LONG_WARPS = LONG_THREADS / 32;
constexpr int TOGETHER = cfg::UNROLL; // vectors of a row, or lines, that are loaded together
constexpr int APART = 32 * V;     // columns between a thread's vectors of a row

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

// The same for a row that a team adds up: LONG + 1 stands for more. None beyond the rows.
struct few_lines {
    word begin;
    u32 count;
};
DEV few_lines lines_within(const map_params &p, i64 row, i64 rows)
{
    if (row >= rows) {
        return {0, 0};
    }
    const lines all = lines_of(p, row);
    return {all.begin, static_cast<u32>(all.count > LONG ? LONG + 1 : all.count)};
}

// What W points of a line, the first of them at.first, add to the sum of their columns.
template <int W>
DEV void add_points(typename gathered::template sums<W> &sum, const map_params &p, const space &s, const point &at,
                    const typename gathered::head &head, const typename gathered::bases &base, const typename gathered::template held<W> &held)
{
    typename gathered::totals totals;
    typename gathered::fixed fixed[W];
    typename gathered::col col[W];
    gathered::template make_fixed<W>(fixed, p, at, head);
    gathered::template make_cols<W>(col, p, at, head, fixed);
    gathered::template compute<false, W>(p, s, base, at, 0, head, fixed, col, held, sum, totals);
}

// N vectors of W columns of one row, APART from one another: from its lines to memory. N > 1: elements of a line are adjacent.
// `line`: the first of them.
template <int W, int N> DEV void gather_row(const map_params &p, const space &s, i64 row, const few_lines &own, word line, i64 first)
{
    typename gathered::template sums<W> sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        gathered::template clear<W>(sum[k]);
    }
#pragma unroll 1
    for (u32 i = 1; i <= own.count; i++) {
        const word next = i < own.count ? p.list[own.begin + i] : 0;
        point at = point_of_line(gathered::sizes(p), static_cast<i64>(line));
        at.first = first;
        typename gathered::head head;
        typename gathered::bases base[N];
        typename gathered::template held<W> held[N];
        gathered::make_head(head, p, at);
        gathered::template locate<false>(base[0], p, s, at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            base[k] = base[0];
            gathered::shift(base[k], k * APART);
            at.first = first + k * APART;
            if (at.first + W <= s.last) {
                gathered::template load<false, W>(held[k], p, base[k], at, head, 0);
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            at.first = first + k * APART;
            if (at.first + W <= s.last) {
                add_points<W>(sum[k], p, s, at, head, base[k], held[k]);
            }
        }
        line = next;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (first + k * APART + W <= s.last) {
            gathered::template put<W>(p, row, first + k * APART, sum[k]);
        }
    }
}

DEV space space_of(const map_params &p)
{
    space s = {};
    s.last = gathered::sizes(p).n[gathered::DIMS - 1];
    return s;
}

// How a row is shared out: columns that threads take as vectors, the threads of a team, and parts of a row, each a team's.
struct share {
    i64 wide; // columns in vectors; the others one by one
    int team; // less than a warp for a row of fewer vectors, which is one part
    int parts;
};

constexpr i64 PART = APART * TOGETHER; // columns

DEV share make_share(const map_params &p, i64 columns)
{
    share h;
    h.wide = gathered::whole(p) && gathered::target_whole(p) ? columns / V * V : 0;
    h.team = 1;
    while (h.team < 32 && static_cast<i64>(h.team) * V < columns) {
        h.team *= 2;
    }
    h.parts = static_cast<int>((columns + PART - 1) / PART);
    return h;
}

// A part of a row.
struct piece {
    i64 row;
    int part;
};

// The one that lies `step` further: so far along the row, and so many rows.
DEV piece further(const piece &from, const piece &step, int parts)
{
    const int part = from.part + step.part;
    return part >= parts ? piece{from.row + step.row + 1, part - parts} : piece{from.row + step.row, part};
}

// Of a part of a row: columns in vectors, then one by one.
DEV void gather_piece(const map_params &p, const space &s, const share &h, const piece &here, const few_lines &own, word line)
{
    const int lane = static_cast<int>(threadIdx.x) % h.team;
    const i64 first = static_cast<i64>(here.part) * PART;
    space wide = s;
    wide.last = min(first + PART, h.wide);
    gather_row<V, TOGETHER>(p, wide, here.row, own, line, first + lane * V);
#pragma unroll 1
    for (i64 c = max(first, h.wide) + lane; c < min(first + PART, s.last); c += h.team) {
        gather_row<1, 1>(p, s, here.row, own, line, c);
    }
}

// A team takes pieces in turn. While it is at one, the place of the next piece's first line is on its way, and where the lines of the one
// after that stand: else three reads would follow one another for every row.
DEV void gather_rows(const map_params &p)
{
    const space s = space_of(p);
    const share h = make_share(p, s.last);
    const i64 rows = gathered::target_rows(p);
    const i64 teams = static_cast<i64>(gridDim.x) * (cfg::THREADS / h.team);
    const i64 item = static_cast<i64>(blockIdx.x) * (cfg::THREADS / h.team) + static_cast<int>(threadIdx.x) / h.team;
    const i64 step_rows = quotient(teams, h.parts); // items are the parts of a row, one row after the other
    const i64 item_row = quotient(item, h.parts);
    const piece step = {step_rows, static_cast<int>(teams - step_rows * h.parts)};
    piece here = {item_row, static_cast<int>(item - item_row * h.parts)};
    piece next = further(here, step, h.parts);
    few_lines own = lines_within(p, here.row, rows);
    few_lines after = lines_within(p, next.row, rows);
    word line = own.count > 0 ? p.list[own.begin] : 0;
#pragma unroll 1
    while (here.row < rows) {
        const piece last = further(next, step, h.parts);
        const few_lines later = lines_within(p, last.row, rows);
        const word following = after.count > 0 ? p.list[after.begin] : 0;
        if (own.count <= LONG) {
            gather_piece(p, s, h, here, own, line);
        }
        here = next;
        next = last;
        own = after;
        after = later;
        line = following;
    }
}

// ---- rows of many lines ------------------------------------------------------------------------------------------------

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
        gathered::template put<W>(p, row, first, sum);
    }
}

DEV void gather_longs(const map_params &p, long_scratch &shared)
{
    const space s = space_of(p);
    const share h = make_share(p, s.last);
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
    for (i64 line = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; line < lines; line += static_cast<i64>(gridDim.x) * cfg::THREADS) {
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
    for (i64 first = static_cast<i64>(blockIdx.x) * cfg::THREADS; first < rows; first += static_cast<i64>(gridDim.x) * cfg::THREADS) {
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
            *(reinterpret_cast<uint4 *>(p.begins) + row) = make_uint4(static_cast<u32>(begin), static_cast<u32>(begin >> 32),
                                                                      static_cast<u32>(own), static_cast<u32>(own >> 32));
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
    for (i64 line = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; line < lines; line += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        p.list[lines_of(p, gathered::target(p, point_of_line(gathered::sizes(p), line))).begin + p.ranks[line]] = static_cast<word>(line);
    }
}
#endif

#if LATHE_COMPILED(gather)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, cfg::MIN_BLOCKS) LATHE_ENTRY(gather)(const __grid_constant__ map_params p)
{
    elementwise::gather_rows(p);
}
#endif

#if LATHE_COMPILED(longs)
extern "C" __global__ void __launch_bounds__(elementwise::LONG_THREADS) LATHE_ENTRY(longs)(const __grid_constant__ map_params p)
{
    __shared__ elementwise::long_scratch shared;
    elementwise::gather_longs(p, shared);
}
#endif
