// attention/pages.cuh: kernels: keys in pages, ahead of kernels that have keys of each sequence beside each other, and
// behind them: pages_in copies keys there, and widens those of 8 bits (cfg::source_k, source_v) on the way; in the
// backward pass pages_out adds their gradients, with a place for each key of each sequence, to where the keys lie.
//
// Sequences may share pages, so a page has a list of the entries of the table that name it, in the order of the table:
// pages_find makes these, and pages_out adds in that order, so that sums are the same from run to run.
//
// Launches: pages_in: n_b * ceil(room / PAGE_TOKENS) * n_h blocks of PAGE_THREADS threads; pages_find: ceil(n_pages /
// 32) blocks of a warp; pages_out: n_pages * n_h blocks of PAGE_THREADS threads. No shared memory.
//
// page_params: k, v, dk, dv are pools, with strides from page to page, head to head and row to row; dk and dv are
// nullptr unless they are wanted, v and dv where V is a part of K. k_rows, v_rows, dk_rows, dv_rows (fp32) are the same
// in rows beside each other, of which a sequence has `room`: batch by batch, or beside cu_q one sequence behind the
// other. first and next: by page and by entry of the table, the first or the next entry that names that page, or NONE;
// nullptr in the forward pass. starts: beside cu_q, where each sequence begins among all rows; else nullptr. n_b, n_h,
// room, page, most_pages, n_pages: sequences, heads of k, keys of a sequence at most, keys of a page, pages of a
// sequence, pages of a pool. fill: rows behind the keys in use become 0; else they stay what they are, for a kernel
// that reads none of them.
//
// What the table says is clamped into the pool here as in kernels that read pages themselves.
#pragma once
#include "common/concepts.cuh"
#include "common/narrow.cuh"

namespace pages
{

constexpr int PAGE_THREADS = 256;
constexpr int PAGE_TOKENS = 64;
constexpr int NONE = -1; // entry of a list

DEV i64 entries(const page_params &p) { return static_cast<i64>(p.n_b) * p.most_pages; }

DEV int page_at(const page_params &p, int b, int number)
{
    return min(max(p.pages[b * p.pages_b + number * p.pages_step], 0), p.n_pages - 1);
}

// Keys in use of sequence b.
DEV int length(const page_params &p, int b)
{
    return p.used_kv == nullptr ? p.room : min(max(p.used_kv[b * p.used_kv_step], 0), p.room);
}

// Where sequence b begins among rows of all of them.
DEV i64 first_row(const page_params &p, int b) { return p.starts == nullptr ? 0 : static_cast<i64>(b) * p.room; }

// Elements from one page, or batch, to the next, from head to head and from row to row.
struct steps {
    i64 b, h, t;
};

// ---- to rows beside each other

// Numbers of a pool as T. Of 8 bits they become numbers of T, which has all of them.
template <class SOURCE, class T, int V> DEV uint4 load_as(const SOURCE *from)
{
    if constexpr (IS_NARROW<SOURCE>) {
        uint4 words;
        float x[V];
        load_narrow<V>(from, x);
        store_vec<V, T>(reinterpret_cast<T *>(&words), x);
        return words;
    } else {
        static_assert(sizeof(SOURCE) == sizeof(T), "what is not of 8 bits is copied");
        return *reinterpret_cast<const uint4 *>(from);
    }
}

// Rows of k or v of head h, keys key0 .. key0 + PAGE_TOKENS - 1 of sequence b. What is not in use is 0 where p.fill.
template <class SOURCE, class T, int DIM> DEV void copy_rows(const page_params &p, const void *pool,
                                                             const steps &of_pool, void *rows, const steps &of_rows,
                                                             int b, int h, int key0)
{
    constexpr int V = 16 / static_cast<int>(sizeof(T));
    static_assert(DIM % V == 0, "whole vectors");
    constexpr int VECTORS = DIM / V;
    constexpr int AT_ONCE = 4; // vectors that a thread waits for together
    const int end = length(p, b);
    const int count = (min(p.fill != 0 ? p.room : end, key0 + PAGE_TOKENS) - key0) * VECTORS;
    const SOURCE *src = static_cast<const SOURCE *>(pool) + h * of_pool.h;
    T *dst = static_cast<T *>(rows) + (b * of_rows.b + h * of_rows.h + first_row(p, b) * of_rows.t);
#pragma unroll 1
    for (int from = static_cast<int>(threadIdx.x); from < count; from += AT_ONCE * PAGE_THREADS) {
        uint4 x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int n = from + i * PAGE_THREADS;
            const int key = key0 + n / VECTORS;
            x[i] = {0, 0, 0, 0};
            if (n < count && key < end) {
                const int number = key / p.page;
                const i64 row = page_at(p, b, number) * of_pool.b + (key - number * p.page) * of_pool.t;
                x[i] = load_as<SOURCE, T, V>(src + (row + n % VECTORS * V));
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int n = from + i * PAGE_THREADS;
            if (n < count) {
                *reinterpret_cast<uint4 *>(dst + ((key0 + n / VECTORS) * of_rows.t + n % VECTORS * V)) = x[i];
            }
        }
    }
}

DEV void copy_in(const page_params &p)
{
    const int tiles = (p.room + PAGE_TOKENS - 1) / PAGE_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    const int h = block % p.n_h;
    const int tile = block / p.n_h % tiles;
    const int b = block / p.n_h / tiles;
    if (p.starts != nullptr && h == 0 && tile == 0 && threadIdx.x == 0) { // where each begins among all keys
        p.starts[b] = b * p.room;
        if (b + 1 == p.n_b) {
            p.starts[p.n_b] = p.n_b * p.room;
        }
    }
    copy_rows<cfg::source_k, cfg::element_k, cfg::D>(p, p.k, {p.k_b, p.k_h, p.k_t}, p.k_rows,
                                                     {p.k_rows_b, p.k_rows_h, p.k_rows_t}, b, h, tile * PAGE_TOKENS);
    if (p.v != nullptr) { // else it is a part of k
        copy_rows<cfg::source_v, cfg::element_v, cfg::D_V>(
            p, p.v, {p.v_b, p.v_h, p.v_t}, p.v_rows, {p.v_rows_b, p.v_rows_h, p.v_rows_t}, b, h, tile * PAGE_TOKENS);
    }
}

// ---- lists of the table's entries

// Of 32 pages by a warp, which looks at the whole table; a lane makes the list of one of them.
DEV void find_entries(const page_params &p)
{
    constexpr int AT_ONCE = 8;
    const int lane = static_cast<int>(threadIdx.x);
    const int own = static_cast<int>(blockIdx.x) * 32 + lane;
    const i64 n = entries(p);
    i64 last = NONE;
    i64 first = NONE;
#pragma unroll 1
    for (i64 from = 0; from < n; from += 32 * AT_ONCE) {
        int page[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const i64 entry = from + 32 * i + lane;
            const int b = static_cast<int>(entry / p.most_pages);
            const int number = static_cast<int>(entry % p.most_pages);
            const bool used = entry < n && number * p.page < length(p, b);
            page[i] = used ? page_at(p, b, number) : NONE;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            u32 rest = __ballot_sync(ALL_LANES, page[i] != NONE && page[i] / 32 == static_cast<int>(blockIdx.x));
            while (rest != 0) {
                const int bit = __ffs(static_cast<int>(rest)) - 1;
                rest &= rest - 1;
                const i64 entry = from + 32 * i + bit;
                if (__shfl_sync(ALL_LANES, page[i], bit) == own) {
                    if (last == NONE) {
                        first = entry;
                    } else {
                        p.next[last] = static_cast<int>(entry);
                    }
                    last = entry;
                }
            }
        }
    }
    if (own < p.n_pages) {
        p.first[own] = static_cast<int>(first);
        if (last != NONE) {
            p.next[last] = NONE;
        }
    }
}

// ---- gradients to pages

// Rows of dk or dv of one page and head, from floats of each sequence.
template <class T, int DIM> DEV void sum_rows(const page_params &p, const float *rows, const steps &of_rows, void *pool,
                                              const steps &of_pool, int page, int h)
{
    constexpr int V = 4;
    constexpr int VECTORS = DIM / V;
    constexpr u64 BYTES = V * sizeof(T);
    T *dst = static_cast<T *>(pool) + (page * of_pool.b + h * of_pool.h);
    const bool aligned = ((reinterpret_cast<u64>(dst) | static_cast<u64>(of_pool.t) * sizeof(T)) & (BYTES - 1)) == 0;
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < p.page * VECTORS; n += PAGE_THREADS) {
        const int row = n / VECTORS;
        const int column = n % VECTORS * V;
        float sum[V] = {};
#pragma unroll 1
        for (int entry = p.first[page]; entry != NONE; entry = p.next[entry]) {
            const int b = entry / p.most_pages;
            const int key = entry % p.most_pages * p.page + row;
            if (key < length(p, b)) {
                float x[V];
                load_vec<V, float>(
                    rows + (b * of_rows.b + h * of_rows.h + (first_row(p, b) + key) * of_rows.t + column), x);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    sum[i] += x[i];
                }
            }
        }
        if (aligned) {
            store_vec<V, T>(dst + (row * of_pool.t + column), sum);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++) {
                dst[row * of_pool.t + column + i] = from_float<T>(sum[i]);
            }
        }
    }
}

DEV void copy_out(const page_params &p)
{
    const int page = static_cast<int>(blockIdx.x) / p.n_h;
    const int h = static_cast<int>(blockIdx.x) % p.n_h;
    if (p.dk != nullptr) {
        sum_rows<cfg::element_k, cfg::D>(p, p.dk_rows, {p.dk_rows_b, p.dk_rows_h, p.dk_rows_t}, p.dk,
                                         {p.dk_b, p.dk_h, p.dk_t}, page, h);
    }
    if (p.dv != nullptr) {
        sum_rows<cfg::element_v, cfg::D_V>(p, p.dv_rows, {p.dv_rows_b, p.dv_rows_h, p.dv_rows_t}, p.dv,
                                           {p.dv_b, p.dv_h, p.dv_t}, page, h);
    }
}

} // namespace pages

#if LATHE_COMPILED(pages_in)
extern "C" __global__ void __launch_bounds__(pages::PAGE_THREADS)
    LATHE_ENTRY(pages_in)(const __grid_constant__ page_params p)
{
    pages::copy_in(p);
}
#endif

#if LATHE_COMPILED(pages_find)
extern "C" __global__ void __launch_bounds__(32) LATHE_ENTRY(pages_find)(const __grid_constant__ page_params p)
{
    pages::find_entries(p);
}
#endif

#if LATHE_COMPILED(pages_out)
extern "C" __global__ void __launch_bounds__(pages::PAGE_THREADS)
    LATHE_ENTRY(pages_out)(const __grid_constant__ page_params p)
{
    pages::copy_out(p);
}
#endif
