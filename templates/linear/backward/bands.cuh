// linear/backward/bands.cuh: kernel: sums over bands of value channels (BANDS of products.cuh). Kernels of chunks have
// left dq, dk and what flows to vectors, logarithms and beta once for each band; the sums, in f32 and always in the
// same order, take the place of the first band's, where kernels of each token read them.
//
// Launch of bwd_bands: ceil(t / TOKEN_TOKENS) blocks of TOKEN_THREADS threads for each batch and head of v.
#pragma once
#include "linear/backward/products.cuh"
#include "linear/backward/tokens.cuh"

namespace linear
{

// EACH floats of each token; `pitch`: floats from band to band.
template <int EACH> DEV void join_bands(const linear_back_params &p, float *base, const token_block &k, i64 pitch)
{
    constexpr int N = EACH % 4 == 0 ? 4 : 1; // at once
    float *of = base + token_line(p.z, k.b, k.h, k.first) * EACH;
    for (int n = static_cast<int>(threadIdx.x) * N; n < k.left * EACH; n += TOKEN_THREADS * N) {
        float sum[N];
        load_vec<N, float>(of + n, sum);
#pragma unroll
        for (int band = 1; band < BANDS; band++) {
            float more[N];
            load_vec<N, float>(of + (band * pitch + n), more);
#pragma unroll
            for (int e = 0; e < N; e++) {
                sum[e] += more[e];
            }
        }
        store_vec<N, float>(of + n, sum);
    }
}

DEV void back_bands(const linear_back_params &p)
{
    const token_block k = token_block::of_block(p.z, p.z.n_h);
    const i64 lines = static_cast<i64>(p.z.n_b) * p.z.n_h * p.z.len_q;
    const auto join = [&](float *base) {
        if (base != nullptr) {
            join_bands<cfg::D>(p, base, k, lines * cfg::D);
        }
    };
    join(p.dq_head);
    join(p.dk_head);
    join(p.dk_read);
    if constexpr (ADDS_SEEN) {
        join(p.own);
    }
    if constexpr (GRADIENT_BY_KEY && (DECAY_BY_KEY || !cfg::SUMS_LOGS)) {
        join(p.dlog);
    } else if constexpr (GRADIENT_BY_KEY) {
        for (int part = 0; part < KEY_PARTS; part++) {
            join_bands<1>(p, p.dlog + part * lines, k, lines * KEY_PARTS);
        }
    }
    if (cfg::BY_CHUNK && LOOKS) {
        join_bands<1>(p, p.dbeta, k, lines);
    }
}

} // namespace linear

#if LATHE_COMPILED(bwd_bands)
extern "C" __global__ void __launch_bounds__(linear::TOKEN_THREADS)
    LATHE_ENTRY(bwd_bands)(const __grid_constant__ linear_back_params p)
{
    linear::back_bands(p);
}
#endif
