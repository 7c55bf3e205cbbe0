// linear/query_heads.cuh: kernels: several heads of q that read a head of the state, around kernels that take each of
// them for a token: of cfg::UPDATES tokens of the recurrence for one of the spec the first is the update, and those
// behind it read alone. join_q, join_do: heads of q and of do become rows. spread_k, spread_v: a row for each; of k
// zeros behind the first where nothing else keeps it from being written. split_o, split_dq: rows become heads.
// gather_dk, gather_dv: the rows that were written.
//
// Launch: n_b * n_h * ceil(tokens / COPY_TOKENS) blocks of COPY_THREADS threads, n_h heads of k or v; no shared memory.
#pragma once
#include "linear/updates.cuh"

namespace query_heads
{

constexpr int HEADS = cfg::UPDATES;
constexpr int WRITTEN = cfg::REVERSE ? HEADS - 1 : 0; // the row of a token that is its update

enum copy { JOIN, SPREAD, SPREAD_CLEAR, SPLIT, GATHER };
constexpr copy OF_KEYS = cfg::CLEARS_KEYS ? SPREAD_CLEAR : SPREAD;

// Tokens behind the last of packed sequences are nobody's: their o is not written.
template <copy COPY> DEV int end_of(const updates_params &p, int len)
{
    if constexpr (cfg::PACKED && COPY == SPLIT) {
        return p.seqs > 0 ? min(len, p.starts[p.seqs] / HEADS) : 0;
    } else {
        return len;
    }
}

// Rows first .. first + COPY_TOKENS - 1 of tokens, of one head of the state.
template <copy COPY, int DIM, class T> DEV void copy_rows(const updates_params &p)
{
    const int len = static_cast<int>(p.len);
    const int tiles = (len + updates::COPY_TOKENS - 1) / updates::COPY_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    const i64 h = block / tiles % p.n_h;
    const i64 b = block / tiles / p.n_h;
    const int first = block % tiles * updates::COPY_TOKENS;
    const int rows = min(updates::COPY_TOKENS, end_of<COPY>(p, len) - first) * (COPY == GATHER ? 1 : HEADS);
    const T *src = static_cast<const T *>(p.src) + b * p.src_b;
    T *dst = static_cast<T *>(p.dst) + b * p.dst_b;
    for (int n = static_cast<int>(threadIdx.x); n < rows * DIM; n += updates::COPY_THREADS) {
        const int row = n / DIM;
        const int i = n % DIM;
        const int query = COPY == GATHER ? WRITTEN : row % HEADS;
        const i64 token = first + (COPY == GATHER ? row : row / HEADS);
        const i64 step = token * HEADS + query;
        const i64 from_head = COPY == JOIN ? h * HEADS + query : h;
        const i64 to_head = COPY == SPLIT ? h * HEADS + query : h;
        const i64 from = COPY == SPLIT || COPY == GATHER ? step : token;
        const i64 to = COPY == SPLIT || COPY == GATHER ? token : step;
        const bool zero = COPY == SPREAD_CLEAR && query != WRITTEN;
        dst[to_head * p.dst_h + to * p.dst_t + i] =
            zero ? from_float<T>(0.0f) : src[from_head * p.src_h + from * p.src_t + i * p.src_d];
    }
}

} // namespace query_heads

#if LATHE_COMPILED(join_q)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(join_q)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::JOIN, cfg::D, cfg::element_q>(p);
}
#endif

#if LATHE_COMPILED(spread_k)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(spread_k)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::OF_KEYS, cfg::D, cfg::element_k>(p);
}
#endif

#if LATHE_COMPILED(spread_v)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(spread_v)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::SPREAD, cfg::D_V, cfg::element_v>(p);
}
#endif

#if LATHE_COMPILED(join_do)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(join_do)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::JOIN, cfg::D_V, cfg::element_o>(p);
}
#endif

#if LATHE_COMPILED(split_o)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(split_o)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::SPLIT, cfg::D_V, cfg::element_o>(p);
}
#endif

#if LATHE_COMPILED(split_dq)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(split_dq)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::SPLIT, cfg::D, cfg::element_q>(p);
}
#endif

#if LATHE_COMPILED(gather_dk)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(gather_dk)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::GATHER, cfg::D, cfg::element_k>(p);
}
#endif

#if LATHE_COMPILED(gather_dv)
extern "C" __global__ void __launch_bounds__(updates::COPY_THREADS)
    LATHE_ENTRY(gather_dv)(const __grid_constant__ updates_params p)
{
    query_heads::copy_rows<query_heads::GATHER, cfg::D_V, cfg::element_v>(p);
}
#endif
