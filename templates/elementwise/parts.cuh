// elementwise/parts.cuh: what the generated maps of elementwise/map.cuh are made of: how points are shared out, lines
// of tensors as vectors, rounding at random, and the parts of sums. Included by variant.gen.cuh.
#pragma once
#include "common/contract.cuh"
#include "config.gen.cuh"
#include "common/math.cuh"

namespace elementwise
{

static_assert(cfg::THREADS >= 32 && cfg::THREADS <= 1024 && cfg::THREADS % 32 == 0,
              "cfg::THREADS is a multiple of 32 up to 1024");
static_assert(cfg::VECTOR == 1 || cfg::VECTOR == 4 || cfg::VECTOR == 8, "cfg::VECTOR is 1, 4 or 8 points");
static_assert(cfg::UNROLL >= 1 && cfg::UNROLL <= 8, "cfg::UNROLL is 1 to 8 steps that are loaded together");
static_assert(cfg::STEPS >= cfg::UNROLL && cfg::STEPS % cfg::UNROLL == 0, "cfg::STEPS is a multiple of cfg::UNROLL");

constexpr int V = cfg::VECTOR;
constexpr int WARPS = cfg::THREADS / 32;
constexpr int LINE = cfg::THREADS * V; // points of a block's vectors

// ---- how points are shared out -----------------------------------------------------------------------

DEV int divide_up(int a, int b) { return a / b + (a % b != 0); }

// Sizes, and counts that follow from them: the kernels points and sum must agree about parts.
struct space {
    int n[MAP_DIMS]; // points along each dim
    i64 last;        // of a line: of all of them where they are one
    int vectors;     // of a line, each the points of one item
    int join;        // 2^join neighbours in a warp have vectors of one line, and leave one part of a sum over it
    bool alike;      // the items of a warp take the same steps and turns
    int steps;       // of an item, along the loop
    int chunks;      // of the loop, each the steps of one item
    int turns;       // of an item, along the outer dim: each is a walk along the loop
    int spans;       // of the outer dim, each the turns of one item
    u32 items;
    u32 tiles;
};

// FLAT: lines of THREADS vectors, along which the loop goes.
template <class MAP, bool FLAT> DEV space make_space(const map_sizes &z, bool whole)
{
    space s;
    i64 all = 1;
    u32 others = 1;
#pragma unroll
    for (int k = 0; k < MAP_DIMS; k++) {
        s.n[k] = k < MAP::DIMS ? z.n[k] : 1;
        all *= s.n[k];
        others *= k + 1 == MAP::DIMS || k == MAP::LOOP || k == MAP::OUTER ? 1u : static_cast<u32>(s.n[k]);
    }
    s.last = FLAT ? all : s.n[MAP::DIMS - 1];
    s.vectors = FLAT ? cfg::THREADS : divide_up(s.n[MAP::DIMS - 1], V);
    const int join = s.vectors % 32 == 0                                          ? 5
                     : s.vectors < 32 && __popc(static_cast<u32>(s.vectors)) == 1 ? 31 - __clz(s.vectors)
                                                                                  : 0;
    s.join = !FLAT && whole && s.n[MAP::DIMS - 1] % V == 0 ? join : 0;
    const i64 lines = (all + LINE - 1) / LINE;
    const int loop = FLAT ? static_cast<int>(lines) : MAP::LOOP >= 0 ? s.n[max_of(MAP::LOOP, 0)] : 1;
    if constexpr (FLAT) {
        others = 1;
    }
    others *= static_cast<u32>(s.vectors);
    s.steps = cfg::STEPS;
    s.turns = !FLAT && MAP::OUTER >= 0 ? cfg::TURNS : 1;
    s.spans = !FLAT && MAP::OUTER >= 0 ? divide_up(s.n[max_of(MAP::OUTER, 0)], s.turns) : 1;
    if constexpr (cfg::LONG_LOOPS) { // as few parts as keep the device busy
        int wanted = max(1, static_cast<int>(cfg::BUSY_THREADS / max(others, 1u)));
        if constexpr (!FLAT && MAP::OUTER >= 0) {
            const int outer = s.n[max_of(MAP::OUTER, 0)];
            s.turns = max(cfg::TURNS, divide_up(outer, wanted));
            s.spans = divide_up(outer, s.turns);
            wanted = max(1, wanted / max(s.spans, 1));
        }
        s.steps = max(cfg::STEPS, divide_up(divide_up(loop, wanted), cfg::UNROLL) * cfg::UNROLL);
    }
    s.chunks = divide_up(loop, s.steps);
    s.items = all == 0 ? 0u : others * static_cast<u32>(s.chunks) * static_cast<u32>(s.spans);
    s.tiles = s.items / cfg::THREADS + (s.items % cfg::THREADS != 0);
    s.alike = s.items % 32 == 0 && loop % s.steps == 0;
    if constexpr (!FLAT && MAP::OUTER >= 0) {
        s.alike = s.alike && s.n[max_of(MAP::OUTER, 0)] % s.spans == 0;
    }
    return s;
}

// The item: its indices (of the loop, of the first step), and its place along the last dim.
struct point {
    int at[MAP_DIMS];
    i64 first; // the point along the last dim, of lane 0
    int vector;
    int chunk;
    int span;
    int lane;   // which of its points it is at, where it takes them one by one
    int length; // of a list: elements of the tensor, which is at[0]
    bool exists;
};

template <class MAP, bool FLAT> DEV point make_point(const space &s, u32 item)
{
    point p;
    p.exists = item < s.items;
    p.lane = 0;
    p.length = 0;
    u32 rest = p.exists ? item : 0u;
    p.vector = static_cast<int>(rest % static_cast<u32>(s.vectors));
    rest /= static_cast<u32>(s.vectors);
    if constexpr (FLAT) {
        p.chunk = static_cast<int>(rest);
        rest = 0;
    } else {
        p.chunk = static_cast<int>(rest % static_cast<u32>(s.chunks));
        rest /= static_cast<u32>(s.chunks);
    }
    p.span = 0;
    if constexpr (!FLAT && MAP::OUTER >= 0) {
        p.span = static_cast<int>(rest % static_cast<u32>(s.spans));
        rest /= static_cast<u32>(s.spans);
    }
#pragma unroll
    for (int k = MAP_DIMS - 1; k >= 0; k--) {
        p.at[k] = 0;
        if (!FLAT && k < MAP::DIMS - 1 && k != MAP::LOOP && k != MAP::OUTER) {
            p.at[k] = static_cast<int>(rest % static_cast<u32>(s.n[k]));
            rest /= static_cast<u32>(s.n[k]);
        }
    }
    if constexpr (!FLAT && MAP::LOOP >= 0) {
        p.at[max_of(MAP::LOOP, 0)] = p.chunk * s.steps;
    }
    if constexpr (!FLAT && MAP::OUTER >= 0) {
        p.at[max_of(MAP::OUTER, 0)] = p.span;
    }
    p.first = static_cast<i64>(p.vector) * V;
    if constexpr (FLAT) {
        p.first += static_cast<i64>(p.chunk) * s.steps * LINE;
    }
    return p;
}

// ---- memory ------------------------------------------------------------------------------------------

// May this tensor's lines be read and written as vectors of N elements?
template <int N, class T, int DIMS> DEV bool has_vectors(const map_tensor &t, i64 half)
{
    constexpr u64 MASK = min_of(16, N * static_cast<int>(sizeof(T))) - 1;
    u64 starts = reinterpret_cast<u64>(t.data) | static_cast<u64>(half) * sizeof(T);
#pragma unroll
    for (int k = 0; k < DIMS - 1; k++) {
        starts |= static_cast<u64>(t.s[k]) * sizeof(T);
    }
    return t.data == nullptr || ((starts & MASK) == 0 && (t.s[DIMS - 1] == 1));
}

// And of an input? `strides`: all but the last one's, or'ed.
template <int N, class T> DEV bool has_lines(const T *data, i64 strides, i64 last)
{
    constexpr u64 MASK = min_of(16, N * static_cast<int>(sizeof(T))) - 1;
    return ((reinterpret_cast<u64>(data) | static_cast<u64>(strides) * sizeof(T)) & MASK) == 0 && last == 1;
}

template <int N, class T> using bytes_of = words<max_of(4, N *static_cast<int>(sizeof(T)))>;

// How lanes are loaded. SHARED: other points read them, too. OWN: in order, loads before it, loads behind it, so that
// several are in flight, and L2 gives up last what comes in 8 bytes or more: what is written in its place stays there,
// and others gain, too.
enum load_way { SHARED, OWN };

template <int BYTES, load_way WAY> DEV words<BYTES> load_whole(const void *p)
{
    if constexpr (BYTES >= 16) {
        words<BYTES> w;
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            const uint4 *s = static_cast<const uint4 *>(p) + i;
            const uint4 x = WAY == OWN ? load_first16(s) : *s;
            w.word[4 * i] = x.x;
            w.word[4 * i + 1] = x.y;
            w.word[4 * i + 2] = x.z;
            w.word[4 * i + 3] = x.w;
        }
        return w;
    } else if constexpr (BYTES == 8 && WAY == OWN) {
        const uint2 x = load_first8(p);
        words<BYTES> w;
        w.word[0] = x.x;
        w.word[1] = x.y;
        return w;
    } else {
        return load_words<BYTES>(p);
    }
}

DEV u32 bits_of(const float *p) { return __float_as_uint(*p); }
DEV u32 bits_of(const f16 *p) { return p->bits; }
DEV u32 bits_of(const bf16 *p) { return p->bits; }
DEV u32 bits_of(const int *p) { return static_cast<u32>(*p); }
DEV u32 bits_of(const u8 *p) { return *p; }

template <int N, class T> DEV void put_bits(bytes_of<N, T> &w, int i, u32 bits)
{
    constexpr int EACH = 4 / static_cast<int>(sizeof(T));
    w.word[i / EACH] |= bits << (8 * static_cast<int>(sizeof(T)) * (i % EACH));
}

// Element i as a number.
template <int N, class T>
DEV decltype(m_load(static_cast<const T *>(nullptr), 0)) element_of(const bytes_of<N, T> &w, int i)
{
    if constexpr (same_type<T, float>) {
        return __uint_as_float(w.word[i]);
    } else if constexpr (sizeof(T) == 4) {
        return static_cast<int>(w.word[i]);
    } else if constexpr (sizeof(T) == 2) {
        return to_float(T{static_cast<u16>(w.word[i / 2] >> (16 * (i % 2)))});
    } else {
        return static_cast<int>((w.word[i / 4] >> (8 * (i % 4))) & 0xffu);
    }
}

// The elements of W lanes, V adjacent ones or one, as they are in memory.
template <int W, load_way WAY, class T> DEV bytes_of<W, T> load_lanes(const T *p)
{
    if constexpr (W > 1) {
        return load_whole<W *static_cast<int>(sizeof(T)), WAY>(p);
    } else {
        bytes_of<W, T> w = {};
        put_bits<W, T>(w, 0, bits_of(p));
        return w;
    }
}

// Pairs that lie side by side: lanes' lo and hi in turn; hi: from one to the other.
template <int W, load_way WAY, class T> DEV bytes_of<2 * W, T> load_pairs(const T *p, i64 hi)
{
    if constexpr (W > 1) {
        return load_whole<2 * W *static_cast<int>(sizeof(T)), WAY>(p);
    } else {
        bytes_of<2, T> w = {};
        put_bits<2, T>(w, 0, bits_of(p));
        put_bits<2, T>(w, 1, bits_of(p + hi));
        return w;
    }
}

template <bool STREAMS, class T> DEV void store_once(T *p, T x)
{
    if constexpr (STREAMS) {
        __stcs(p, x);
    } else {
        *p = x;
    }
}

// X: int for int, else float. STREAMS: nothing reads it here, and L2 gives it up first.
template <int N, bool STREAMS, class T, class X> DEV void store_whole(T *p, const X (&x)[N])
{
    u32 w[N * sizeof(T) / 4];
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / 4); i++) {
        if constexpr (same_type<T, int>) {
            w[i] = static_cast<u32>(x[i]);
        } else if constexpr (sizeof(T) == 4) {
            w[i] = __float_as_uint(x[i]);
        } else {
            w[i] = pack<T>(x[2 * i], x[2 * i + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < static_cast<int>(N * sizeof(T) / 16); i++) {
        store_once<STREAMS>(reinterpret_cast<uint4 *>(p) + i,
                            make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]));
    }
    if constexpr (N * sizeof(T) % 16 != 0) {
        store_once<STREAMS>(reinterpret_cast<uint2 *>(p), make_uint2(w[0], w[1]));
    }
}

template <class T, class X> DEV void store_one(T *p, X x)
{
    if constexpr (same_type<T, int>) {
        *p = x;
    } else {
        *p = from_float<T>(x);
    }
}

template <int W, bool STREAMS, class T, class X> DEV void store_lanes(T *p, const X (&x)[W])
{
    if constexpr (W > 1) {
        store_whole<W, STREAMS>(p, x);
    } else {
        store_one(p, x[0]);
    }
}

template <int W, bool STREAMS, class T, class X> DEV void store_pairs(T *p, i64 hi, const X (&x)[W], const X (&y)[W])
{
    if constexpr (W > 1) {
        X both[2 * W];
#pragma unroll
        for (int k = 0; k < W; k++) {
            both[2 * k] = x[k];
            both[2 * k + 1] = y[k];
        }
        store_whole<2 * W, STREAMS>(p, both);
    } else {
        store_one(p, x[0]);
        store_one(p + hi, y[0]);
    }
}

// A sum is one of floats, exact for integers below 2^24.
template <class T> DEV T from_sum(float x)
{
    if constexpr (same_type<T, int>) {
        return static_cast<int>(x);
    } else {
        return from_float<T>(x);
    }
}

// ---- rounding at random ------------------------------------------------------------------------------

// Of a result's value, a line of points and a point: the same in every launch with this seed, and on the host device.
DEV u32 draw(u32 seed, u32 value, u32 line, u32 point)
{
    u32 x = point * 0x9e3779b1u + seed;
    x = (x ^ (x >> 16)) * 0x85ebca6bu + line;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u + value * 0x27d4eb2fu;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    return x ^ (x >> 15);
}

// To a neighbour in T, the nearer the likelier: what is cut off, plus as many random bits, carries over.
template <class T> DEV float dither(float x, u32 bits)
{
    if constexpr (sizeof(T) == 4) {
        return x;
    } else {
        constexpr u32 CUT = (1u << (same_type<T, bf16> ? 16 : 13)) - 1u;
        const u32 word = __float_as_uint(x);
        if ((word & 0x7f800000u) == 0x7f800000u) {
            return x; // infinite or NaN
        }
        if (same_type<T, f16> && (word & 0x7fffffffu) < 0x38800000u) { // a subnormal f16: a multiple of 2^-24
            const float whole = floorf(fabsf(x) * 0x1p24f + static_cast<float>(bits & CUT) * 0x1p-13f) * 0x1p-24f;
            return word >> 31 ? -whole : whole;
        }
        return __uint_as_float((word + (bits & CUT)) & ~CUT);
    }
}

// Lanes of a result: points first, first + 1, ... A loop, since it is as long as all the rest, and seldom asked for.
template <class T, int W> DEV void dither_lanes(float (&y)[W], int seed, u32 value, u32 line, int first)
{
    float lane[W];
#pragma unroll
    for (int k = 0; k < W; k++) {
        lane[k] = y[k];
    }
#pragma unroll 1
    for (int k = 0; k < W; k++) {
        lane[k] = dither<T>(lane[k], draw(static_cast<u32>(seed), value, line, static_cast<u32>(first + k)));
    }
#pragma unroll
    for (int k = 0; k < W; k++) {
        y[k] = lane[k];
    }
}

// ---- parts of sums -----------------------------------------------------------------------------------

// A sum's matrix: `kept` elements of the result, `parts` of each. Side by side are elements where the sum keeps the
// last dim (KEPT has its bit), parts otherwise.
struct matrix {
    i64 kept;
    i64 parts;
};

template <class MAP, u32 KEPT> DEV matrix make_matrix(const space &s)
{
    matrix m = {1, KEPT == 0 ? s.tiles : 1};
#pragma unroll
    for (int k = 0; k < MAP::DIMS; k++) {
        const int reduced = k + 1 == MAP::DIMS ? s.vectors >> s.join
                            : k == MAP::LOOP   ? s.chunks
                            : k == MAP::OUTER  ? s.spans
                                               : s.n[k];
        m.kept *= KEPT >> k & 1u ? s.n[k] : 1;
        m.parts *= KEPT == 0 || (KEPT >> k & 1u) ? 1 : reduced;
    }
    return m;
}

// Of the element and part of this item; i: the point along the last dim.
template <class MAP, u32 KEPT> DEV i64 matrix_at(const space &s, const matrix &m, const point &p, int i)
{
    i64 kept = 0;
    i64 part = 0;
#pragma unroll
    for (int k = 0; k < MAP::DIMS; k++) {
        const bool last = k + 1 == MAP::DIMS;
        if (KEPT >> k & 1u) {
            kept = kept * s.n[k] + (last ? i : p.at[k]);
        } else {
            part = part * (last              ? s.vectors >> s.join
                           : k == MAP::LOOP  ? s.chunks
                           : k == MAP::OUTER ? s.spans
                                             : s.n[k]) +
                   (last              ? p.vector >> s.join
                    : k == MAP::LOOP  ? p.chunk
                    : k == MAP::OUTER ? p.span
                                      : p.at[k]);
        }
    }
    return KEPT >> (MAP::DIMS - 1) & 1u ? part * m.kept + kept : kept * m.parts + part;
}

// From one step to the next, of a sum that keeps the loop.
template <class MAP, u32 KEPT> DEV i64 matrix_step(const space &s)
{
    constexpr bool LAST = (KEPT >> (MAP::DIMS - 1) & 1u) != 0;
    i64 step = LAST ? 1 : make_matrix<MAP, KEPT>(s).parts;
#pragma unroll
    for (int k = MAP::LOOP + 1; k < MAP::DIMS; k++) {
        step *= KEPT >> k & 1u ? s.n[k] : 1;
    }
    return step;
}

// Is the sum's result, of floats, as the matrix of one part would be? Then the threads that add it up write it.
template <class MAP, u32 KEPT> DEV bool is_whole_sum(const map_tensor &t, const space &s)
{
    bool whole = t.data != nullptr && (MAP::LOOP >= 0 && (KEPT >> max_of(MAP::LOOP, 0) & 1u) != 0) &&
                 make_matrix<MAP, KEPT>(s).parts == 1;
    i64 stride = 1;
#pragma unroll
    for (int k = MAP::DIMS - 1; k >= 0; k--) {
        if (KEPT >> k & 1u) {
            whole = whole && (t.s[k] == stride || s.n[k] == 1);
            stride *= s.n[k];
        }
    }
    return whole;
}

// W lanes' sums of a result that keeps the last dim.
template <int W> DEV void leave_lanes(float *to, const space &, const point &, const float (&sum)[W])
{
#pragma unroll
    for (int k = 0; k < W; k++) {
        to[k] = sum[k];
    }
}

// The same where they are all there is of each: the results themselves.
template <int W, class T> DEV void leave_results(T *to, i64 step, const float (&sum)[W])
{
#pragma unroll
    for (int k = 0; k < W; k++) {
        to[k * step] = from_sum<T>(sum[k]);
    }
}

// Over 2^join neighbours of a warp, as one where all its lanes are there: for a mask that is not known before, the
// lanes that have the same one are searched for.
DEV float join_lanes(float sum, const space &s, u32 first)
{
    if (s.alike) {
#pragma unroll
        for (int k = 4; k >= 0; k--) {
            const float other = __shfl_xor_sync(ALL_LANES, sum, 1 << k);
            sum += k < s.join ? other : 0.0f;
        }
        return sum;
    }
    const u32 mates = (~0u >> (32 - (1 << s.join))) << first;
#pragma unroll 1
    for (int k = s.join - 1; k >= 0; k--) {
        sum += __shfl_xor_sync(mates, sum, 1 << k);
    }
    return sum;
}

DEV void leave_one(float *to, const space &s, const point &p, float sum)
{
    if (p.exists) {
        const u32 lane = threadIdx.x % 32;
        const u32 first = lane >> s.join << s.join;
        sum = join_lanes(sum, s, first);
        if (lane == first) {
            *to = p.lane > 0 ? *to + sum : sum; // the thread's own
        }
    }
}

struct scratch {
    float part[WARPS];
    float column[WARPS][32];
    u32 ends[cfg::THREADS]; // of a list: tiles of the tensors so far
    u32 next[2];            // its tile after this one
};

// The sum of a whole block; valid in thread 0.
DEV float block_sum(float x, scratch &shared)
{
    x = lanes_sum<32>(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        shared.part[threadIdx.x / 32] = x;
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        sum += shared.part[w];
    }
    return sum;
}

} // namespace elementwise
