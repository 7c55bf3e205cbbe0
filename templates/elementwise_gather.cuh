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
constexpr int TOGETHER = 4;       // vectors of a row, or lines, that are loaded together

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
#pragma unroll
    for (int k = gathered::DIMS - 2; k > 0; k--) {
        at.at[k] = static_cast<int>(take_index(line, z.n[k]));
    }
    at.at[0] = static_cast<int>(line);
    return at;
}

// Points first .. first + W - 1 and their like, `apart` from one another, of a line: on their way, then added up.
template <int W, int N> struct lanes {
    typename gathered::template held<W> held[N];
    typename gathered::bases base[N];
    point at[N];
};

template <int W, int N> DEV void load_lanes_of(lanes<W, N> &l, const map_params &p, int k, const point &line, i64 first)
{
    l.at[k] = line;
    l.at[k].first = first;
    gathered::locate(l.base[k], p, l.at[k]);
    gathered::template load<W>(l.held[k], p, l.base[k], 0);
}

template <int W, int N>
DEV void add_lanes_of(typename gathered::template sums<W> &sum, const lanes<W, N> &l, const map_params &p, const space &s, int k)
{
    typename gathered::head head;
    typename gathered::totals totals;
    typename gathered::fixed fixed[W];
    typename gathered::col col[W];
    gathered::make_head(head, p, l.at[k]);
    gathered::template make_fixed<W>(fixed, p, l.at[k], head);
    gathered::template make_cols<W>(col, p, l.at[k], head, fixed);
    gathered::template compute<W>(p, s, l.base[k], l.at[k], 0, head, fixed, col, l.held[k], sum, totals);
}

// N vectors of W columns of one row: from its lines to memory.
template <int W, int N> DEV void gather_row(const map_params &p, const space &s, i64 row, i64 first, i64 apart)
{
    typename gathered::template sums<W> sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        gathered::template clear<W>(sum[k]);
    }
    const word begin = p.begins[row];
    const word end = begin + p.counts[row];
#pragma unroll 1
    for (word i = begin; i < end; i++) {
        const point line = point_of_line(gathered::sizes(p), static_cast<i64>(p.list[i]));
        lanes<W, N> l;
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (first + k * apart + W <= s.last) {
                load_lanes_of<W, N>(l, p, k, line, first + k * apart);
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (first + k * apart + W <= s.last) {
                add_lanes_of<W, N>(sum[k], l, p, s, k);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (first + k * apart + W <= s.last) {
            gathered::template put<W>(p, row, first + k * apart, sum[k]);
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
    int team;
    i64 part; // columns
    i64 parts;
};

DEV share make_share(const map_params &p, i64 columns)
{
    share h;
    h.wide = gathered::whole(p) && gathered::target_whole(p) ? columns / V * V : 0;
    h.team = 1;
    while (h.team < 32 && static_cast<i64>(h.team) * V < columns) {
        h.team *= 2;
    }
    h.part = static_cast<i64>(h.team) * V * TOGETHER;
    h.parts = (columns + h.part - 1) / h.part;
    return h;
}

DEV void gather_rows(const map_params &p)
{
    const space s = space_of(p);
    const share h = make_share(p, s.last);
    const i64 rows = gathered::target_rows(p);
    const int lane = static_cast<int>(threadIdx.x) % h.team;
    const i64 teams = static_cast<i64>(gridDim.x) * (cfg::THREADS / h.team);
#pragma unroll 1
    for (i64 item = static_cast<i64>(blockIdx.x) * (cfg::THREADS / h.team) + static_cast<int>(threadIdx.x) / h.team; item < rows * h.parts;
         item += teams) {
        const i64 row = quotient(item, h.parts);
        const i64 first = (item - row * h.parts) * h.part;
        if (p.counts[row] > LONG) {
            continue;
        }
        space wide = s;
        wide.last = min(first + h.part, h.wide);
        gather_row<V, TOGETHER>(p, wide, row, first + lane * V, static_cast<i64>(h.team) * V);
#pragma unroll 1
        for (i64 c = max(first, h.wide) + lane; c < min(first + h.part, s.last); c += h.team) {
            gather_row<1, 1>(p, s, row, c, 0);
        }
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
    const word end = p.begins[row] + p.counts[row];
    typename gathered::template sums<W> sum;
    gathered::template clear<W>(sum);
#pragma unroll 1
    for (word i = p.begins[row] + static_cast<word>(warp); i < end && exists; i += TOGETHER * LONG_WARPS) {
        lanes<W, TOGETHER> l;
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const word at = i + static_cast<word>(k * LONG_WARPS);
            if (at < end) {
                load_lanes_of<W, TOGETHER>(l, p, k, point_of_line(gathered::sizes(p), static_cast<i64>(p.list[at])), first);
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            if (i + static_cast<word>(k * LONG_WARPS) < end) {
                add_lanes_of<W, TOGETHER>(sum, l, p, s, k);
            }
        }
    }
    float *const own = gathered::sum_of<W>(sum);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W; k++) {
        shared.sum[warp][k * 32 + lane] = own[k];
    }
    __syncthreads();
    if (warp == 0 && exists) {
#pragma unroll 1
        for (int w = 1; w < LONG_WARPS; w++) {
#pragma unroll
            for (int k = 0; k < W; k++) {
                own[k] += shared.sum[w][k * 32 + lane];
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

extern "C" __global__ void __launch_bounds__(cfg::THREADS) LATHE_ENTRY(count)(const __grid_constant__ map_params p)
{
    using namespace elementwise;
    const i64 lines = gathered::target_rows(p) > 0 ? count_lines(gathered::sizes(p)) : 0;
#pragma unroll 1
    for (i64 line = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; line < lines; line += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        p.ranks[line] = atomicAdd(p.counts + gathered::target(p, point_of_line(gathered::sizes(p), line)), word{1});
    }
}

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
            p.begins[row] = base + upto - own;
            if (own > LONG) {
                p.longs[atomicAdd(p.totals + 1, word{1})] = static_cast<word>(row);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(cfg::THREADS) LATHE_ENTRY(order)(const __grid_constant__ map_params p)
{
    using namespace elementwise;
    const i64 lines = gathered::target_rows(p) > 0 ? count_lines(gathered::sizes(p)) : 0;
#pragma unroll 1
    for (i64 line = static_cast<i64>(blockIdx.x) * cfg::THREADS + threadIdx.x; line < lines; line += static_cast<i64>(gridDim.x) * cfg::THREADS) {
        p.list[p.begins[gathered::target(p, point_of_line(gathered::sizes(p), line))] + p.ranks[line]] = static_cast<word>(line);
    }
}

extern "C" __global__ void __launch_bounds__(cfg::THREADS, cfg::MIN_BLOCKS) LATHE_ENTRY(gather)(const __grid_constant__ map_params p)
{
    elementwise::gather_rows(p);
}

extern "C" __global__ void __launch_bounds__(elementwise::LONG_THREADS) LATHE_ENTRY(longs)(const __grid_constant__ map_params p)
{
    __shared__ elementwise::long_scratch shared;
    elementwise::gather_longs(p, shared);
}
