// linear/updates.cuh: kernels: tokens that make several updates of the state (cfg::UPDATES), around kernels that take
// each update for a token. spread_q, spread_do: rows of tokens become rows of updates: of q the token's row for each,
// of do zeros but for the update that o is read behind. gather_o, gather_dq: of rows of updates the token's. starts:
// where sequences begin among all updates.
//
// Launch of the copies: n_b * n_h * ceil(tokens / COPY_TOKENS) blocks of COPY_THREADS threads; of starts: ceil(seqs /
// COPY_THREADS) blocks of COPY_THREADS threads; no shared memory.
#pragma once
#include "common/concepts.cuh"

static_assert(cfg::UPDATES > 1 && cfg::UPDATES <= 16, "cfg::UPDATES is from 2 to 16");

namespace updates
{

constexpr int COPY_THREADS = 256;
constexpr int COPY_TOKENS = 32;
constexpr int READ = cfg::REVERSE ? 0 : cfg::UPDATES - 1; // the update of a token behind which o is read

enum copy { SPREAD, SPREAD_LAST, GATHER };

// Tokens behind the last of packed sequences are nobody's: their o is not written.
template <copy COPY> DEV int end_of(const updates_params &p, int len)
{
    if constexpr (cfg::PACKED && COPY == GATHER) {
        return p.seqs > 0 ? min(len, p.starts[p.seqs] / cfg::UPDATES) : 0;
    } else {
        return len;
    }
}

// Rows first .. first + COPY_TOKENS - 1 of tokens, of one head.
template <copy COPY, int DIM, class T> DEV void copy_rows(const updates_params &p)
{
    const int len = static_cast<int>(p.len);
    const int tiles = (len + COPY_TOKENS - 1) / COPY_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    const int h = block / tiles % p.n_h;
    const int b = block / tiles / p.n_h;
    const int first = block % tiles * COPY_TOKENS;
    const int rows = min(COPY_TOKENS, end_of<COPY>(p, len) - first) * (COPY == GATHER ? 1 : cfg::UPDATES);
    const T *src = static_cast<const T *>(p.src) + (b * p.src_b + h * p.src_h);
    T *dst = static_cast<T *>(p.dst) + (b * p.dst_b + h * p.dst_h);
    for (int n = static_cast<int>(threadIdx.x); n < rows * DIM; n += COPY_THREADS) {
        const int row = n / DIM;
        const int i = n % DIM;
        const i64 token = first + (COPY == GATHER ? row : row / cfg::UPDATES);
        const i64 from = COPY == GATHER ? token * cfg::UPDATES + READ : token;
        const i64 to = COPY == GATHER ? token : static_cast<i64>(first) * cfg::UPDATES + row;
        const bool zero = COPY == SPREAD_LAST && row % cfg::UPDATES != READ;
        dst[to * p.dst_t + i] = zero ? from_float<T>(0.0f) : src[from * p.src_t + i * p.src_d];
    }
}

} // namespace updates

#if LATHE_COMPILED(starts)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(starts)(const __grid_constant__ starts_params p)
{
    // unsigned: the number behind the last one may be beyond 2^31
    const u32 first = blockIdx.x * updates::COPY_THREADS + threadIdx.x;
    for (u32 n = first; n <= static_cast<u32>(p.seqs); n += gridDim.x * updates::COPY_THREADS) {
        p.dst[n] = p.cu[n * p.cu_step] * cfg::UPDATES;
    }
}
#endif

#if LATHE_COMPILED(spread_q)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(spread_q)(const __grid_constant__ updates_params p)
{
    updates::copy_rows<updates::SPREAD, cfg::D, cfg::element_q>(p);
}
#endif

#if LATHE_COMPILED(spread_do)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(spread_do)(const __grid_constant__ updates_params p)
{
    updates::copy_rows<updates::SPREAD_LAST, cfg::D_V, cfg::element_o>(p);
}
#endif

#if LATHE_COMPILED(gather_o)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(gather_o)(const __grid_constant__ updates_params p)
{
    updates::copy_rows<updates::GATHER, cfg::D_V, cfg::element_o>(p);
}
#endif

#if LATHE_COMPILED(gather_dq)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(gather_dq)(const __grid_constant__ updates_params p)
{
    updates::copy_rows<updates::GATHER, cfg::D, cfg::element_q>(p);
}
#endif
