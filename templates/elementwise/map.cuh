// elementwise/map.cuh: kernels: maps of points, and the sums over them.
//
// A map has up to five dims and a point for every combination of indices; variant.gen.cuh says what a point reads,
// computes and writes. Maps that differ in nothing but tensors and sizes are one map here, and run ALIKE times. A
// thread takes an *item*: VECTOR points along the last dim, and `steps` of them along one other dim, the loop, so that
// what does not vary with the loop is computed once. Items are numbered with the vectors of a line first, so neighbours
// touch neighbouring memory. Blocks take tiles of THREADS items in turn, those of all maps one after the other.
//
// Launch of map: any number of blocks of THREADS threads; no shared memory to ask for. Launch of sum: any number too.
//
// Two ways through memory, each map's own. FLAT: every tensor is compact and has every dim, so all of them are one long
// line, whatever the sizes. Else lines along the last dim: in vectors, where every line of every tensor starts at 16
// bytes, and point by point where not, or where the last vector of a line is cut off.
//
// Sums: a thread adds up its own points in registers, where the loop is not one of the sum's dims. What it has it
// leaves in the workspace, as a matrix of parts (one that is all of its results' sums is written as they are): summed
// by the kernel `sum`, in an order that depends on sizes, strides and alignment alone: the same call gives the same
// bits. Of a sum without dims a block leaves one part. Scatters add to a zeroed workspace by atomics.
//
// Registers (sm_90a, two operands of 16 bits): 40 to 64. Nothing spills.
#include "common/concepts.cuh"
#include "elementwise/parts.cuh"

namespace elementwise
{

// ---- maps --------------------------------------------------------------------------------------------

// Operands of U steps, all of them at once: from step `first` on, of `left` steps.
template <class MAP, bool FLAT, int W, int U>
DEV void load_steps(typename MAP::template held<W> (&held)[U], const map_params &p, const typename MAP::bases &base,
                    const point &at, const typename MAP::head &head, int first, int left)
{
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (first + u < left) {
            MAP::template load<FLAT, W>(held[u], p, base, at, head, first + u);
        }
    }
}

// Steps of W lanes, V of them or one, U at a time. The first operands are on their way while the values of the columns
// are made.
template <class MAP, bool FLAT, int W>
DEV void run_steps(const map_params &p, const space &s, point at, int steps, const typename MAP::head &head,
                   const typename MAP::fixed (&fixed)[W], typename MAP::template sums<W> &sum,
                   typename MAP::totals &totals)
{
    // one at a time where the other way is the usual one
    constexpr int U = W > 1 && (FLAT || !MAP::FLAT) ? cfg::UNROLL : 1;
    typename MAP::bases base;
    MAP::template locate<FLAT>(base, p, s, at);
    constexpr bool AHEAD = W > 1 && cfg::AHEAD;
    constexpr bool EARLY = AHEAD && U == 1 && !MAP::LIST; // beside what is computed
    typename MAP::template held<W> held[U];
    typename MAP::col col[W];
    if constexpr (AHEAD) {
        load_steps<MAP, FLAT, W, U>(held, p, base, at, head, 0, steps);
    }
#pragma unroll 1
    for (int step = 0; step < steps; step += U) {
        if constexpr (!AHEAD) {
            load_steps<MAP, FLAT, W, U>(held, p, base, at, head, 0, steps - step);
        }
        if (step == 0) {
            MAP::template make_cols<W>(col, p, at, head, fixed);
        }
        typename MAP::template held<W> next[U];
        if constexpr (EARLY) {
            load_steps<MAP, FLAT, W, U>(next, p, base, at, head, U, steps - step);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (u == 0 || step + u < steps) {
                MAP::template compute<FLAT, W>(p, s, base, at, u, head, fixed, col, held[u], sum, totals);
            }
            if constexpr (FLAT) {
                at.first += LINE;
            } else if constexpr (MAP::LOOP >= 0) {
                at.at[max_of(MAP::LOOP, 0)]++;
            }
        }
        MAP::template advance<FLAT>(base, p, s, U);
        if constexpr (EARLY) {
            held[0] = next[0];
        } else if constexpr (AHEAD) { // beside the end of what was computed
            load_steps<MAP, FLAT, W, U>(held, p, base, at, head, 0, steps - step - U);
        }
    }
}

// What an item does in W lanes. What it adds up it carries through all its turns along the outer dim, which are far
// from one another: so the items of all spans are side by side at any time.
template <class MAP, bool FLAT, int W> DEV void run_turns(const map_params &p, const space &s, point at, int steps,
                                                          const typename MAP::head &head, typename MAP::totals &totals)
{
    typename MAP::template sums<W> sum;
    MAP::template clear<W>(sum);
    typename MAP::fixed fixed[W];
    MAP::template make_fixed<W>(fixed, p, at, head);
    if constexpr (!FLAT && MAP::OUTER >= 0) {
        constexpr int OUTER = max_of(MAP::OUTER, 0);
#pragma unroll 1
        for (int left = s.n[OUTER] - at.at[OUTER]; left > 0; left -= s.spans) {
            point turn = at;
            turn.at[OUTER] = s.n[OUTER] - left;
            typename MAP::head here;
            MAP::make_head(here, p, turn);
            run_steps<MAP, FLAT, W>(p, s, turn, steps, here, fixed, sum, totals);
        }
    } else {
        run_steps<MAP, FLAT, W>(p, s, at, steps, head, fixed, sum, totals);
    }
    MAP::template leave<W>(sum, p, s, at);
}

// Of an item of one long line: the steps whose vectors are whole.
DEV int whole_steps(const space &s, const point &at)
{
    const i64 left = s.last - at.first;
    const i64 fit = left >= V ? (left - V) / LINE + 1 : 0;
    return static_cast<int>(min(fit, static_cast<i64>(s.steps)));
}

// Of one long line: the steps whose vectors are whole, then what is left of the last one.
template <class MAP> DEV void run_flat(const map_params &p, const space &s, point at, const typename MAP::head &head,
                                       typename MAP::totals &totals)
{
    const int whole = whole_steps(s, at);
    run_turns<MAP, true, V>(p, s, at, whole, head, totals);
    at.first += static_cast<i64>(whole) * LINE;
    if (V > 1 && whole < s.steps) {
#pragma unroll 1
        for (int k = 0; k < V && at.first < s.last; k++, at.first++) {
            run_turns<MAP, true, 1>(p, s, at, 1, head, totals);
        }
    }
}

// A vector of a line where it is whole and may be loaded as one; else its points one by one. Where no line has vectors,
// the points of an item are far from one another, so that neighbours in a warp are neighbours in memory.
template <class MAP> DEV void run_line(const map_params &p, const space &s, point at, bool vectors,
                                       const typename MAP::head &head, typename MAP::totals &totals)
{
    int steps = 1;
    if constexpr (MAP::LOOP >= 0) {
        steps = min(s.steps, s.n[max_of(MAP::LOOP, 0)] - at.at[max_of(MAP::LOOP, 0)]);
    }
    if (V == 1 || (vectors && at.first + V <= s.last)) {
        run_turns<MAP, false, V>(p, s, at, steps, head, totals);
        return;
    }
    const int stride = vectors ? 1 : s.vectors;
    at.first = vectors ? at.first : at.vector;
#pragma unroll 1
    for (; at.lane < V && at.first < s.last; at.lane++, at.first += stride) {
        run_turns<MAP, false, 1>(p, s, at, steps, head, totals);
    }
}

template <class MAP, bool FLAT> DEV void run_map(const map_params &p, bool vectors, u32 &skipped, scratch &shared)
{
    const space s = make_space<MAP, FLAT>(MAP::sizes(p), vectors);
    const u32 before = skipped % gridDim.x;
    skipped += s.tiles;
#pragma unroll 1
    for (u32 tile = blockIdx.x >= before ? blockIdx.x - before : blockIdx.x + gridDim.x - before; tile < s.tiles;
         tile += gridDim.x) {
        const point at = make_point<MAP, FLAT>(s, tile * cfg::THREADS + threadIdx.x);
        typename MAP::head head;
        typename MAP::totals totals;
        MAP::make_head(head, p, at);
        MAP::clear_totals(totals);
        if (at.exists) {
            if constexpr (FLAT) {
                run_flat<MAP>(p, s, at, head, totals);
            } else {
                run_line<MAP>(p, s, at, vectors, head, totals);
            }
        }
        MAP::leave_totals(totals, p, s, at, tile, shared);
    }
}

// One long line? The kernel sum asks the same.
template <class MAP> DEV bool is_flat(const map_params &p)
{
    if constexpr (MAP::FLAT) {
        return MAP::sizes(p).n[MAP_DIMS] != 0;
    } else {
        return false;
    }
}

// ---- lists -------------------------------------------------------------------------------------------

[[maybe_unused]] constexpr int TILE = LINE * cfg::STEPS; // elements of one tensor that a block takes

// The running sum of x over the threads of the block: of this one and all before it.
DEV u32 block_scan(u32 x, scratch &shared)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const u32 before = __shfl_up_sync(ALL_LANES, x, step);
        x += lane >= step ? before : 0u;
    }
    __syncthreads();
    if (lane == 31) {
        shared.ends[warp] = x;
    }
    __syncthreads();
    u32 before = 0;
    for (int w = 0; w < warp; w++) {
        before += shared.ends[w];
    }
    __syncthreads();
    return x + before;
}

// A tile of one tensor. Element by element, neighbours in adjacent threads: what is left of its last vector, or all of
// it where not every tensor starts at 16 bytes.
template <class MAP> DEV void run_tile(const map_params &p, int tensor, int length, i64 first)
{
    space s = {};
    s.last = length;
    s.steps = cfg::STEPS;
    point at = {};
    at.exists = true;
    at.at[0] = tensor;
    at.length = length;
    at.first = first + static_cast<i64>(threadIdx.x) * V;
    typename MAP::head head;
    typename MAP::totals totals;
    typename MAP::bases base;
    MAP::make_head(head, p, at);
    MAP::template locate<true>(base, p, s, at);
    i64 rest = first;
    if (MAP::aligned(base)) {
        run_turns<MAP, true, V>(p, s, at, whole_steps(s, at), head, totals);
        rest = max(first, s.last / V * V);
    }
#pragma unroll 1
    for (at.first = rest + threadIdx.x; at.first < min(first + TILE, s.last); at.first += cfg::THREADS) {
        run_turns<MAP, true, 1>(p, s, at, 1, head, totals);
    }
}

// Tiles are numbered tensor after tensor. A block counts them itself, a page of THREADS tensors at a time. Who is done
// takes the next
// tile: shares that are settled before leave SMs idle at the end. The answer arrives while a tile is worked on.
template <class MAP> DEV void run_list(const map_params &p, u32 *taken, scratch &shared)
{
    const int count = MAP::sizes(p).n[0];
    u32 base = 0;
    u32 tile = blockIdx.x;
    int slot = 0;
#pragma unroll 1
    for (int page = 0; page < count; page += cfg::THREADS) {
        const int own = page + static_cast<int>(threadIdx.x);
        const int length = own < count ? MAP::lengths(p)[own] : 0;
        const u32 end = block_scan(length > 0 ? static_cast<u32>((length - 1) / TILE + 1) : 0u, shared);
        shared.ends[threadIdx.x] = end;
        __syncthreads();
        const u32 all = shared.ends[cfg::THREADS - 1];
#pragma unroll 1
        while (tile - base < all) {
            const u32 next = threadIdx.x == 0 ? gridDim.x + atomicAdd(taken, 1u) : 0u;
            int low = 0; // the first tensor of the page whose tiles end behind this one
            for (int half = cfg::THREADS / 2; half > 0; half /= 2) {
                low += low + half <= cfg::THREADS - 1 && shared.ends[low + half - 1] <= tile - base ? half : 0;
            }
            const u32 start = low > 0 ? shared.ends[low - 1] : 0u;
            run_tile<MAP>(p, page + low, MAP::lengths(p)[page + low], static_cast<i64>(tile - base - start) * TILE);
            if (threadIdx.x == 0) {
                shared.next[slot] = next;
            }
            __syncthreads();
            tile = shared.next[slot];
            slot ^= 1; // a slow thread still reads the other one
        }
        base += all;
        __syncthreads();
    }
}

// ---- sums --------------------------------------------------------------------------------------------

// Adjacent elements: 32 columns a block, each warp every WARPS-th part.
template <class SUM> DEV void sum_columns(const map_params &p, const space &s, const matrix &m, scratch &shared)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
    for (i64 first = static_cast<i64>(blockIdx.x) * 32; first < SUM::PLANES * m.kept;
         first += static_cast<i64>(gridDim.x) * 32) {
        const i64 column = first + lane;
        const i64 plane = SUM::PLANES == 1 ? 0 : quotient(column, m.kept);
        const float *from = SUM::parts(p) + (plane * m.kept * m.parts + (column - plane * m.kept));
        float sum = 0.0f;
        if (column < SUM::PLANES * m.kept) {
#pragma unroll 4
            for (i64 r = warp; r < m.parts; r += WARPS) {
                sum += from[r * m.kept];
            }
        }
        __syncthreads();
        shared.column[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && column < SUM::PLANES * m.kept) {
#pragma unroll
            for (int w = 1; w < WARPS; w++) {
                sum += shared.column[w][lane];
            }
            SUM::store(p, s, column - plane * m.kept, static_cast<int>(plane), sum);
        }
    }
}

// Adjacent parts: a block an element where there are few elements, else so many lanes of a warp that each has 4 parts
// or more.
template <class SUM> DEV void sum_rows(const map_params &p, const space &s, const matrix &m, scratch &shared)
{
    const i64 rows = SUM::PLANES * m.kept;
    const bool block = rows < 2 * static_cast<i64>(gridDim.x);
    int team = block ? cfg::THREADS : 32;
    while (team > 1 && team <= 32 && 4 * team > m.parts) {
        team /= 2;
    }
    const int teams = cfg::THREADS / team;
#pragma unroll 1
    for (i64 row = static_cast<i64>(blockIdx.x) * teams + static_cast<int>(threadIdx.x) / team;
         row - static_cast<int>(threadIdx.x) / team < rows; row += static_cast<i64>(gridDim.x) * teams) {
        const float *from = SUM::parts(p) + row * m.parts;
        float sum = 0.0f;
        if (row < rows) {
#pragma unroll 2
            for (i64 r = static_cast<int>(threadIdx.x) % team; r < m.parts; r += team) {
                sum += from[r];
            }
        }
        if (block && team > 32) {
            sum = block_sum(sum, shared);
        } else {
            for (int other = team / 2; other > 0; other /= 2) {
                sum += __shfl_xor_sync(ALL_LANES, sum, other);
            }
        }
        if (row < rows && static_cast<int>(threadIdx.x) % team == 0) {
            const i64 plane = SUM::PLANES == 1 ? 0 : quotient(row, m.kept);
            SUM::store(p, s, row - plane * m.kept, static_cast<int>(plane), sum);
        }
    }
}

DEV float sum_of(float sum) { return sum; }
DEV float sum_of(const exact_sum &sum) { return exact_total(sum); }

// What has one part, or was scattered, to its tensor: `count` elements in the order of the workspace, of each plane.
template <class SUM> DEV void move_sums(const map_params &p, const space &s, i64 count, int plane)
{
    constexpr int EACH = 4; // of a thread, loaded together
    constexpr i64 BLOCK = EACH * cfg::THREADS;
#pragma unroll 1
    for (i64 first = blockIdx.x * BLOCK; first < count; first += gridDim.x * BLOCK) {
        float x[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const i64 i = first + k * cfg::THREADS + threadIdx.x;
            x[k] = i < count ? sum_of(SUM::parts(p)[plane * count + i]) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const i64 i = first + k * cfg::THREADS + threadIdx.x;
            if (i < count) {
                SUM::store(p, s, i, plane, x[k]);
            }
        }
    }
}

template <class SUM, bool FLAT> DEV void run_sum(const map_params &p, scratch &shared)
{
    const space s = make_space<typename SUM::map, FLAT>(SUM::map::sizes(p), FLAT || SUM::map::whole(p));
    if constexpr (SUM::SCATTERED) {
        move_sums<SUM>(p, s, SUM::count(p), 0);
    } else {
        using map = typename SUM::map;
        const matrix m = make_matrix<map, SUM::KEPT>(s);
        if constexpr ((SUM::KEPT >> (map::DIMS - 1) & 1u) != 0) {
            constexpr bool LOOP_KEPT = map::LOOP >= 0 && (SUM::KEPT >> max_of(map::LOOP, 0) & 1u) != 0;
            if (LOOP_KEPT || SUM::PLANES > 1 || m.parts != 1) { // else the threads that added them up have written them
                sum_columns<SUM>(p, s, m, shared);
            }
        } else if (m.parts == 1) {
#pragma unroll 1
            for (int plane = 0; plane < SUM::PLANES && !SUM::written(p, s); plane++) {
                move_sums<SUM>(p, s, m.kept, plane);
            }
        } else {
            sum_rows<SUM>(p, s, m, shared);
        }
    }
}

template <class MAP> DEV void run_all(const map_params &p, u32 &skipped, scratch &shared)
{
    if constexpr (MAP::LIST) {
        run_list<MAP>(p, MAP::taken(p), shared);
    } else {
        if constexpr (MAP::FLAT) {
            if (is_flat<MAP>(p)) {
                run_map<MAP, true>(p, true, skipped, shared);
                return;
            }
        }
        run_map<MAP, false>(p, MAP::whole(p), skipped, shared);
    }
}

} // namespace elementwise

#if LATHE_COMPILED(points)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, cfg::MIN_BLOCKS)
    LATHE_ENTRY(points)(const __grid_constant__ map_arguments p)
{
    using namespace elementwise;
    __shared__ scratch shared;
    u32 skipped = 0; // tiles of the maps before: a map begins with the block behind the last one
    repeat<0, variant::MAPS>([&]<int M>() {
#pragma unroll 1
        for (int k = 0; k < variant::ALIKE; k++) {
            run_all<variant_map<M>>(params_of(p, k), skipped, shared);
        }
    });
}
#endif

#if LATHE_COMPILED(sum)
extern "C" __global__ void __launch_bounds__(cfg::THREADS) LATHE_ENTRY(sum)(const __grid_constant__ map_arguments given)
{
    using namespace elementwise;
    __shared__ scratch shared;
    const map_params &p = params_of(given, 0);
    repeat<0, variant::SUMS>([&]<int K>() {
        if (given.which == K) {
            using sum = variant_sum<K>;
            if constexpr (sum::map::FLAT) {
                if (is_flat<typename sum::map>(p)) {
                    run_sum<sum, true>(p, shared);
                    return;
                }
            }
            run_sum<sum, false>(p, shared);
        }
    });
}
#endif
