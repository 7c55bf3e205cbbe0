// heads/zero_and_sum.cuh: kernels: before and after the sums into the gradient of an input, a tensor of up to four
// dims.
//
// Launch of both: ceil(n0 n1 n2 n3 / INPUT_THREADS) blocks of INPUT_THREADS threads; no shared memory.
#pragma once
#include "common/concepts.cuh"

constexpr int INPUT_THREADS = 256;

namespace back
{

// Place of element `n` in the tensor: in elements, or -1 beyond the last.
template <class P> DEV i64 element_place(const P &p, i64 n)
{
    const i64 i3 = n % p.n3;
    const i64 i2 = n / p.n3 % p.n2;
    const i64 i1 = n / p.n3 / p.n2 % p.n1;
    const i64 i0 = n / p.n3 / p.n2 / p.n1;
    return i0 < p.n0 ? i0 * p.s0 + i1 * p.s1 + i2 * p.s2 + i3 * p.s3 : -1;
}

} // namespace back

#if LATHE_COMPILED(bwd_zero)
extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_zero)(const __grid_constant__ back_zero_params p)
{
    const i64 at = back::element_place(p, static_cast<i64>(blockIdx.x) * INPUT_THREADS + static_cast<int>(threadIdx.x));
    if (at >= 0) {
        p.dst[at] = 0.0f;
    }
}
#endif

#if LATHE_COMPILED(bwd_sum)
extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_sum)(const __grid_constant__ back_sum_params p)
{
    const i64 n = static_cast<i64>(blockIdx.x) * INPUT_THREADS + static_cast<int>(threadIdx.x);
    const i64 at = back::element_place(p, n);
    if (at >= 0) {
        p.dst[at] = exact_total(p.src[n]);
    }
}
#endif
