// heads/pair_rows.cuh: kernels: rows of q (of k) with those of q2 (of k2) behind them, as one tensor of [b, h, token, D].
//
// Launch of each: n_b * n_h * ceil(len / PAIR_TOKENS) blocks of PAIR_THREADS threads (n_h and len of this tensor); no shared memory.
#pragma once
#include "common/concepts.cuh"

static_assert(cfg::D % 8 == 0, "cfg::D is a multiple of 8, and so are the lengths that make it up");

namespace pair_rows {

constexpr int PAIR_THREADS = 256;
constexpr int PAIR_TOKENS = 64;
constexpr int V = 8; // elements of a vector, which are all of one tensor

// Elements of rows that may start anywhere, `step` apart.
DEV void load(const cfg::element *from, i64 step, float (&x)[V])
{
    if (step == 1 && (reinterpret_cast<u64>(from) & 15) == 0) {
        load_vec<V, cfg::element>(from, x);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[i] = to_float(from[i * step]);
        }
    }
}

DEV void copy(const pair_params &p)
{
    constexpr int VECTORS = cfg::D / V;
    const int tiles = (p.len + PAIR_TOKENS - 1) / PAIR_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    const int tile = block % tiles;
    const int h = block / tiles % p.n_h;
    const int b = block / tiles / p.n_h;
    const cfg::element *src = static_cast<const cfg::element *>(p.src) + (b * p.src_b + h * p.src_h);
    const cfg::element *second = static_cast<const cfg::element *>(p.second) + (b * p.second_b + h * p.second_h);
    cfg::element *dst = static_cast<cfg::element *>(p.dst) + (b * p.dst_b + h * p.dst_h);
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < PAIR_TOKENS * VECTORS; n += PAIR_THREADS) {
        const int token = tile * PAIR_TOKENS + n / VECTORS;
        const int column = n % VECTORS * V;
        if (token >= p.len) {
            break;
        }
        float x[V];
        if (column < p.d1) {
            load(src + (token * p.src_t + column * p.src_d), p.src_d, x);
        } else {
            load(second + (token * p.second_t + (column - p.d1) * p.second_d), p.second_d, x);
        }
        store_vec<V, cfg::element>(dst + token * p.dst_t + column, x);
    }
}

} // namespace pair_rows

#if LATHE_COMPILED(pair_q)
extern "C" __global__ void __launch_bounds__(pair_rows::PAIR_THREADS) LATHE_ENTRY(pair_q)(const __grid_constant__ pair_params p)
{
    pair_rows::copy(p);
}
#endif

#if LATHE_COMPILED(pair_k)
extern "C" __global__ void __launch_bounds__(pair_rows::PAIR_THREADS) LATHE_ENTRY(pair_k)(const __grid_constant__ pair_params p)
{
    pair_rows::copy(p);
}
#endif
