// back_inputs.cuh: kernels: before and after the sums into the gradient of an input, a tensor of up to four dims.
//
// Launch of both: ceil(n0 n1 n2 n3 / INPUT_THREADS) blocks of INPUT_THREADS threads; no shared memory.
#pragma once
#include "back_parts.cuh"

constexpr int INPUT_THREADS = 256;

namespace back {

// Place of element `n` in the tensor: in elements, or -1 beyond the last.
template <class P> DEV i64 element_place(const P &p, i64 n)
{
    const i64 i3 = n % p.n3;
    const i64 i2 = n / p.n3 % p.n2;
    const i64 i1 = n / p.n3 / p.n2 % p.n1;
    const i64 i0 = n / p.n3 / p.n2 / p.n1;
    return i0 < p.n0 ? i0 * p.s0 + i1 * p.s1 + i2 * p.s2 + i3 * p.s3 : -1;
}

DEV float total(const exact_sum &sum)
{
    if (sum.word[5] != 0) {
        return __uint_as_float(0x7fffffffu);
    }
    i64 word[5];
    i64 carry = 0;
#pragma unroll
    for (int k = 0; k < 5; k++) { // below the last, words become digits from 0 to 2^32 - 1
        word[k] = static_cast<i64>(sum.word[k]) + carry;
        carry = k < 4 ? word[k] >> 32 : 0;
        word[k] = k < 4 ? word[k] & 0xffffffffll : word[k];
    }
    double x = 0.0;
#pragma unroll
    for (int k = 4; k >= 0; k--) { // each is exact, and from the top so are sums that cancel
        x = x * 0x1p32 + static_cast<double>(word[k]);
    }
    return static_cast<float>(x * 0x1p-96);
}

} // namespace back

extern "C" __global__ void __launch_bounds__(INPUT_THREADS)
    LATHE_ENTRY(bwd_zero)(const __grid_constant__ back_zero_params p)
{
    const i64 at = back::element_place(p, static_cast<i64>(blockIdx.x) * INPUT_THREADS + static_cast<int>(threadIdx.x));
    if (at >= 0) {
        p.dst[at] = 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(INPUT_THREADS) LATHE_ENTRY(bwd_sum)(const __grid_constant__ back_sum_params p)
{
    const i64 n = static_cast<i64>(blockIdx.x) * INPUT_THREADS + static_cast<int>(threadIdx.x);
    const i64 at = back::element_place(p, n);
    if (at >= 0) {
        p.dst[at] = back::total(p.src[n]);
    }
}
