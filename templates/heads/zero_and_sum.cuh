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

// f(place in the tensor, number of the element) for a block's elements, in rows along n3: divisions of 64 bits are of
// the block, not of each element.
template <class P, class F> DEV void each_element(const P &p, const F &f)
{
    const i64 parts = (p.n3 + INPUT_THREADS - 1) / INPUT_THREADS;
    const i64 tiles = (p.n2 + INPUT_ROWS - 1) / INPUT_ROWS;
    const i64 block = static_cast<i64>(blockIdx.x);
    const i64 column = block % parts * INPUT_THREADS;
    const i64 row = block / parts % tiles * INPUT_ROWS;
    const i64 outer = block / parts / tiles;
    const i64 place = outer / p.n1 * p.s0 + outer % p.n1 * p.s1 + row * p.s2 + column * p.s3;
    const i64 number = (outer * p.n2 + row) * p.n3 + column;
    const int width = static_cast<int>(min(static_cast<i64>(INPUT_THREADS), p.n3 - column));
    const int height = static_cast<int>(min(static_cast<i64>(INPUT_ROWS), p.n2 - row));
    for (int k = static_cast<int>(threadIdx.x); k < width * height; k += INPUT_THREADS) {
        const int i = k / width;
        const int j = k - i * width;
        f(place + i * p.s2 + j * p.s3, number + i * p.n3 + j);
    }
}

} // namespace back

#if LATHE_COMPILED(bwd_zero)
extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_zero)(const __grid_constant__ back_zero_params p)
{
    back::each_element(p, [&](i64 place, i64) { p.dst[place] = 0.0f; });
}
#endif

#if LATHE_COMPILED(bwd_sum)
extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_sum)(const __grid_constant__ back_sum_params p)
{
    back::each_element(p, [&](i64 place, i64 number) { p.dst[place] = exact_total(p.src[number]); });
}
#endif
