// heads/zero_and_sum.cuh: kernels: before and after the sums into the gradient of an input, a tensor of up to four
// dims.
//
// Launch of both: n0 n1 ceil(n2 / INPUT_ROWS) ceil(n3 / INPUT_THREADS) blocks of INPUT_THREADS threads; no shared
// memory.
#pragma once
#include "common/concepts.cuh"

constexpr int INPUT_THREADS = 256, INPUT_ROWS = 16;

namespace back
{

// Calls f(offset in the tensor, row-major index) for the elements of this block's tile of INPUT_ROWS x INPUT_THREADS. A
// 64-bit division is slow: the block does it once, not each element.
template <class P, class F> DEV void each_element(const P &p, const F &f)
{
    const i64 parts = (p.n3 + INPUT_THREADS - 1) / INPUT_THREADS;
    const i64 tiles = (p.n2 + INPUT_ROWS - 1) / INPUT_ROWS;
    const i64 block = static_cast<i64>(blockIdx.x);
    const i64 column = block % parts * INPUT_THREADS;
    const i64 row = block / parts % tiles * INPUT_ROWS;
    const i64 outer = block / parts / tiles;
    const i64 offset = outer / p.n1 * p.s0 + outer % p.n1 * p.s1 + row * p.s2 + column * p.s3;
    const i64 index = (outer * p.n2 + row) * p.n3 + column;
    const int width = static_cast<int>(min(static_cast<i64>(INPUT_THREADS), p.n3 - column));
    const int height = static_cast<int>(min(static_cast<i64>(INPUT_ROWS), p.n2 - row));
    for (int k = static_cast<int>(threadIdx.x); k < width * height; k += INPUT_THREADS) {
        const int i = k / width;
        const int j = k - i * width;
        f(offset + i * p.s2 + j * p.s3, index + i * p.n3 + j);
    }
}

} // namespace back

#if LATHE_COMPILED(bwd_zero)
extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_zero)(const __grid_constant__ back_zero_params p)
{
    back::each_element(p, [&](i64 offset, i64) { p.dst[offset] = 0.0f; });
}
#endif

#if LATHE_COMPILED(bwd_sum)
extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_sum)(const __grid_constant__ back_sum_params p)
{
    back::each_element(p, [&](i64 offset, i64 index) { p.dst[offset] = exact_total(p.src[index]); });
}
#endif
