// linear/backward/adjoint.cuh: kernels: adjoints of the query, key, value and output mods, on every row of a [b, h, t,
// dim] tensor.
//
// Launch of each: n_b * n_h * ceil(len / MOD_TOKENS) blocks of MOD_THREADS threads (n_h and len of this tensor); no
// shared memory to ask for. A kernel exists where its mod has stages.
#pragma once
#include "heads/vector_adjoint.cuh"

namespace linear
{

// From one element of a row of `grad` to the next: told where some tensor's rows need not be aligned.
template <class P> DEV i64 step_of_gradient(const P &p)
{
    if constexpr (requires { p.grad_d; }) {
        return p.grad_d;
    } else {
        return 1;
    }
}

// A row on its way: V elements of each vector of a thread, from `from` on.
template <int DIM, class T>
DEV void load_row(mods::row_values<DIM> &x, const T *from, i64 step, bool aligned, int thread)
{
    using s = mods::shape<DIM>;
#pragma unroll
    for (int k = 0; k < s::PER_THREAD; k++) {
        const int vector = thread + k * s::TEAM;
        if (vector < s::VECTORS) {
            mods::load<s::V, T>(from + vector * s::V * step, aligned, step, x.low[k]);
            mods::load<s::V, T>(from + (vector * s::V + s::HALF) * step, aligned, step, x.high[k]);
        }
    }
}

// The gradient of v through an output mod, in f32: left by the adjoint of that, taken by whoever finishes dv.
enum skipping { SKIP_NONE, SKIP_LEFT, SKIP_TAKEN };
DEV i64 skip_line(const back_mod_params &p, int b, int h, int token)
{
    return (static_cast<i64>(b) * p.n_h + h) * p.len + token;
}

template <int DIM> DEV void store_row(float *to, mods::row_values<DIM> &x, bool exists, int thread)
{
    using s = mods::shape<DIM>;
#pragma unroll
    for (int k = 0; k < s::PER_THREAD; k++) {
        const int vector = thread + k * s::TEAM;
        if (exists && vector < s::VECTORS) {
            store_vec<s::V, float>(to + vector * s::V, x.low[k]);
            store_vec<s::V, float>(to + (vector * s::V + s::HALF), x.high[k]);
        }
    }
}
template <int DIM> DEV void add_rows(mods::row_values<DIM> &x, mods::row_values<DIM> &y)
{
#pragma unroll
    for (int n = 0; n < back::elements<DIM>::N; n++) {
        back::element_of<DIM>(x, n) += back::element_of<DIM>(y, n);
    }
}
// What run_adjoint calls on its way.
template <class BACK, int DIM, int STAGES> struct value_gradient {
    mods::row_values<DIM> &value, (&x)[STAGES], &d;
    const back_mod_params &p;
    const typename BACK::head &head;
    int thread;

    template <int S> __device__ __forceinline__ void take(const typename BACK::vals &vals) const
    {
        if constexpr (BACK::FORM[S] == FORM_ELEMENT) {
            back::each_number<FORM_ELEMENT, DIM, DIM>(thread, [&](int a, int, int i) {
                back::element_of<DIM>(value, a) += BACK::template value<S>(
                    back::element_of<DIM>(x[S], a), back::element_of<DIM>(d, a), i, p.x, p.z, head, vals);
            });
        }
    }
};

template <class BACK, class MOD, class SOURCE, class GRAD, class OUT, int DIM, skipping SKIP>
DEV void run_adjoints(const back_mod_params &p)
{
    using s = mods::shape<DIM>;
    const int tiles = (p.len + MOD_TOKENS - 1) / MOD_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    const int tile = block % tiles;
    const int h = block / tiles % p.n_h;
    const int b = block / tiles / p.n_h;
    const int thread = static_cast<int>(threadIdx.x) % s::TEAM;
    const SOURCE *src = static_cast<const SOURCE *>(p.src) + (b * p.src_b + h * p.src_h);
    const GRAD *grad = static_cast<const GRAD *>(p.grad) + (b * p.grad_b + h * p.grad_h);
    const i64 step = mods::src_step(p);
    const i64 grad_step = step_of_gradient(p);
    const bool src_aligned = step == 1 && back::rows_aligned(src, p.src_t, s::template MASK<SOURCE>);
    const bool grad_aligned = grad_step == 1 && back::rows_aligned(grad, p.grad_t, s::template MASK<GRAD>);
    constexpr int STAGES = BACK::STAGES;
    typename BACK::head head = {};
    typename MOD::head mod_head = {};
    if constexpr (STAGES > 0) {
        head = BACK::make_head(p.x, p.z, b, h);
        mod_head = MOD::make_head(p.x, p.z, b, h);
    }
    const mod_params forward{nullptr, nullptr, 0, 0, 0, 0, 0, 0, p.n_h, p.len, p.pos0, p.z, p.x};
    back::mod_sums<BACK, DIM> sums = {};

#pragma unroll 1
    for (int first = 0; first < MOD_TOKENS; first += s::AT_ONCE) {
        const int token = tile * MOD_TOKENS + first + static_cast<int>(threadIdx.x) / s::TEAM;
        if (tile * MOD_TOKENS + first >= p.len) {
            break;
        }
        const bool exists = token < p.len;
        const int at = min(token, p.len - 1);
        mods::row_values<DIM> x[max_of(STAGES, 1)] = {}; // what enters each stage
        mods::row_values<DIM> d = {};
        if (exists) {
            if constexpr (STAGES > 0) {
                load_row<DIM, SOURCE>(x[0], src + token * p.src_t, step, src_aligned, thread);
            }
            load_row<DIM, GRAD>(d, grad + token * p.grad_t, grad_step, grad_aligned, thread);
        }
        mods::row_values<DIM> value = {}; // of v, which stages of an output mod may read
        if constexpr (STAGES > 0) {
            typename MOD::vals vals = {};
            repeat<1, STAGES>([&]<int S>() {
                x[S] = x[S - 1];
                mods::run_stage<MOD, S - 1, DIM>(x[S], vals, forward, mod_head, thread, at);
            });
            repeat<0, STAGES>([&]<int R>() {
                constexpr int S = STAGES - 1 - R;
                if constexpr (SKIP == SKIP_LEFT) {
                    back::run_adjoint<BACK, S, DIM>(x[S], d, sums, p, head, thread, at, exists,
                                                    value_gradient<BACK, DIM, STAGES>{value, x, d, p, head, thread});
                } else {
                    back::run_adjoint<BACK, S, DIM>(x[S], d, sums, p, head, thread, at, exists);
                }
            });
        }
        if constexpr (SKIP == SKIP_LEFT) {
            store_row<DIM>(static_cast<float *>(p.skip) + skip_line(p, b, h, at) * DIM, value, exists, thread);
        } else if constexpr (SKIP == SKIP_TAKEN) {
            if (exists) {
                load_row<DIM, float>(value, static_cast<const float *>(p.skip) + skip_line(p, b, h, at) * DIM, 1, true,
                                     thread);
            }
            add_rows<DIM>(d, value);
        }
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (exists && vector < s::VECTORS && p.dst != nullptr) {
                OUT *to = static_cast<OUT *>(p.dst) + (b * p.dst_b + h * p.dst_h + token * p.dst_t + vector * s::V);
                const bool aligned = back::rows_aligned(static_cast<const OUT *>(p.dst) + (b * p.dst_b + h * p.dst_h),
                                                        p.dst_t, s::template MASK<OUT>);
                mods::store<s::V, OUT>(to, aligned, d.low[k]);
                mods::store<s::V, OUT>(to + s::HALF, aligned, d.high[k]);
            }
        }
    }
    if constexpr (STAGES > 0) {
        repeat<0, STAGES>([&]<int S>() {
            repeat<0, BACK::template sites<S>()>(
                [&]<int G>() { back::finish_site<BACK, S, G, DIM>(sums, p, head, thread); });
        });
    }
}

template <class BACK, class MOD, class SOURCE, class GRAD, class OUT, int DIM, skipping SKIP = SKIP_NONE>
DEV void run_adjoints_if_present(const back_mod_params &p)
{
    if constexpr (BACK::PRESENT) {
        run_adjoints<BACK, MOD, SOURCE, GRAD, OUT, DIM, SKIP>(p);
    }
}

} // namespace linear

#if LATHE_COMPILED(bwd_q)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_q)(const __grid_constant__ back_mod_params p)
{
    linear::run_adjoints_if_present<variant::query_back, variant::query_mod, cfg::element_q, float, cfg::element_q,
                                    cfg::D>(p);
}
#endif

#if LATHE_COMPILED(bwd_k)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_k)(const __grid_constant__ back_mod_params p)
{
    linear::run_adjoints_if_present<variant::key_back, variant::key_mod, cfg::element_k, float, cfg::element_k, cfg::D>(
        p);
}
#endif

#if LATHE_COMPILED(bwd_v)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_v)(const __grid_constant__ back_mod_params p)
{
    linear::run_adjoints_if_present<variant::value_back, variant::value_mod, cfg::element_v, float, cfg::element_v,
                                    cfg::D_V, cfg::SKIP ? linear::SKIP_TAKEN : linear::SKIP_NONE>(p);
}
#endif

#if LATHE_COMPILED(bwd_o)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_o)(const __grid_constant__ back_mod_params p)
{
    using source = pick<cfg::READS_O, float, cfg::element_o>::type;  // o made again, or what nobody looks at
    using result = pick<cfg::DOUT_F32, float, cfg::element_o>::type; // what flows back to o is read as it comes
    linear::run_adjoints_if_present<variant::output_back, variant::output_mod, source, cfg::element_o, result, cfg::D_V,
                                    cfg::SKIP ? linear::SKIP_LEFT : linear::SKIP_NONE>(p);
}
#endif
