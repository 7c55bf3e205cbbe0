// heads/pair_rows.cuh: kernels: rows of q (of k) with those of q2 (of k2) behind them, as one tensor of [b, h, token,
// D]; and gradients of such rows on their way back to the two tensors.
//
// Launch of each: n_b * n_h * ceil(len / PAIR_TOKENS) blocks of PAIR_THREADS threads (n_h and len of this tensor); no
// shared memory.
#pragma once
#include "common/concepts.cuh"

static_assert(cfg::D % 8 == 0, "cfg::D is a multiple of 8, and so are the lengths that make it up");

namespace pair_rows
{

constexpr int PAIR_THREADS = 256;
constexpr int PAIR_TOKENS = 64;
constexpr int V = 8; // elements of a vector, which are all of one tensor

// Of rows that may start anywhere, elements `step` apart.
template <class T> DEV bool in_vectors(const T *row, i64 step)
{
    return step == 1 && (reinterpret_cast<u64>(row) & 15) == 0;
}

template <class T> DEV void load(const T *from, i64 step, float (&x)[V])
{
    if (in_vectors(from, step)) {
        load_vec<V, T>(from, x);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[i] = to_float(from[i * step]);
        }
    }
}

template <class T> DEV void store(T *to, i64 step, const float (&x)[V])
{
    if (in_vectors(to, step)) {
        store_vec<V, T>(to, x);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            to[i * step] = from_float<T>(x[i]);
        }
    }
}

// Of tensors of T. BACK: from rows of both to the tensors that are there.
template <class T, bool BACK> DEV void copy(const pair_params &p)
{
    constexpr int VECTORS = cfg::D / V;
    const int tiles = (p.len + PAIR_TOKENS - 1) / PAIR_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    const int tile = block % tiles;
    const int h = block / tiles % p.n_h;
    const int b = block / tiles / p.n_h;
    T *first = static_cast<T *>(p.first) + (b * p.first_b + h * p.first_h);
    T *second = static_cast<T *>(p.second) + (b * p.second_b + h * p.second_h);
    T *both = static_cast<T *>(p.both) + (b * p.both_b + h * p.both_h);
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < PAIR_TOKENS * VECTORS; n += PAIR_THREADS) {
        const int token = tile * PAIR_TOKENS + n / VECTORS;
        const int column = n % VECTORS * V;
        if (token >= p.len) {
            break;
        }
        const bool in_first = column < p.d1;
        const i64 step = in_first ? p.first_d : p.second_d;
        T *apart = in_first ? first + (token * p.first_t + column * step)
                            : second + (token * p.second_t + (column - p.d1) * step);
        T *joined = both + (token * p.both_t + column);
        float x[V];
        if constexpr (BACK) {
            if ((in_first ? p.first : p.second) != nullptr) {
                load_vec<V, T>(joined, x);
                store(apart, step, x);
            }
        } else {
            load(apart, step, x);
            store_vec<V, T>(joined, x);
        }
    }
}

} // namespace pair_rows

#if LATHE_COMPILED(pair_q)
extern "C" __global__ void __launch_bounds__(pair_rows::PAIR_THREADS)
    LATHE_ENTRY(pair_q)(const __grid_constant__ pair_params p)
{
    pair_rows::copy<cfg::element_q, false>(p);
}
#endif

#if LATHE_COMPILED(pair_k)
extern "C" __global__ void __launch_bounds__(pair_rows::PAIR_THREADS)
    LATHE_ENTRY(pair_k)(const __grid_constant__ pair_params p)
{
    pair_rows::copy<cfg::element_k, false>(p);
}
#endif

#if LATHE_COMPILED(bwd_pair_q)
extern "C" __global__ void __launch_bounds__(pair_rows::PAIR_THREADS)
    LATHE_ENTRY(bwd_pair_q)(const __grid_constant__ pair_params p)
{
    pair_rows::copy<cfg::element_q, true>(p);
}
#endif

#if LATHE_COMPILED(bwd_pair_k)
extern "C" __global__ void __launch_bounds__(pair_rows::PAIR_THREADS)
    LATHE_ENTRY(bwd_pair_k)(const __grid_constant__ pair_params p)
{
    pair_rows::copy<cfg::element_k, true>(p);
}
#endif
