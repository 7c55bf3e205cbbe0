// heads/vector_adjoint.cuh: adjoints of the stages of vector mods, and the sites at which inputs get gradients.
//
// Each row's way through the mod is computed again and what enters each stage kept in registers; then the stages'
// adjoints run in reverse order, on the same vectors of the same threads as in heads/vector_mod.cuh.
#pragma once
#include "heads/input_sums.cuh"
#include "heads/vector_mod.cuh"

namespace back
{

// A thread's elements of a row by number: `low` of its first vector, `high` of it, and so on.
template <int DIM> struct elements {
    using s = mods::shape<DIM>;
    static constexpr int N = s::PER_THREAD * 2 * s::V;
    float x[N];
};
template <int DIM> DEV float &element_of(mods::row_values<DIM> &x, int n)
{
    constexpr int V = mods::shape<DIM>::V;
    return n / V % 2 == 0 ? x.low[n / (2 * V)][n % V] : x.high[n / (2 * V)][n % V];
}

// f(number of a, number of b, at.i) for every element or pair of form FORM that this thread holds, of the first PAIRED
// elements; a lone element is its own b.
template <int FORM, int DIM, int PAIRED, class F> DEV void each_number(int thread, const F &f)
{
    using s = mods::shape<DIM>;
    constexpr bool ALL = PAIRED == DIM;
#pragma unroll
    for (int k = 0; k < s::PER_THREAD; k++) {
        const int vector = thread + k * s::TEAM;
        if (s::VECTORS % s::TEAM != 0 && vector >= s::VECTORS) {
            continue;
        }
        const int low = k * 2 * s::V;
        const int high = low + s::V;
        const int i = vector * s::V;
        if constexpr (FORM == FORM_HALF) {
#pragma unroll
            for (int j = 0; j < s::V; j++) {
                if (ALL || i + j < PAIRED / 2) {
                    f(low + j, high + j, i + j);
                }
            }
        } else if constexpr (FORM == FORM_INTERLEAVED) {
#pragma unroll
            for (int j = 0; j < s::V; j += 2) {
                if (ALL || i + j < PAIRED) {
                    f(low + j, low + j + 1, (i + j) / 2);
                }
                if (ALL || i + j + s::HALF < PAIRED) {
                    f(high + j, high + j + 1, (i + j + s::HALF) / 2);
                }
            }
        } else {
            static_assert(FORM == FORM_ELEMENT, "a form is FORM_ELEMENT, FORM_HALF or FORM_INTERLEAVED");
#pragma unroll
            for (int j = 0; j < s::V; j++) {
                f(low + j, low + j, i + j);
                f(high + j, high + j, i + j + s::HALF);
            }
        }
    }
}

// of stages ahead of S: a site's number counts through all stages
template <class BACK, int S> DEV constexpr int sites_before()
{
    if constexpr (S == 0) {
        return 0;
    } else {
        return sites_before<BACK, S - 1>() + BACK::template sites<S - 1>();
    }
}
template <class BACK> inline constexpr int ALL_SITES = max_of(sites_before<BACK, BACK::STAGES>(), 1);

// Sums of the sites of a mod over the tokens of a block, as far as the address allows.
template <class BACK, int DIM> struct mod_sums {
    float head[ALL_SITES<BACK>];
    elements<DIM> dim[ALL_SITES<BACK>]; // only of SITE_DIM
};

template <class BACK, int S, int G, int DIM>
DEV void gather_site(mod_sums<BACK, DIM> &sums, mods::row_values<DIM> &x, mods::row_values<DIM> &d,
                     const typename BACK::vals &vals, const back_mod_params &p, const typename BACK::head &head,
                     int thread)
{
    constexpr int SITE = sites_before<BACK, S>() + G;
    constexpr int FORM = BACK::template site_form<S>(G);
    constexpr bool PAIRS = BACK::FORM[S] != FORM_ELEMENT;
    bool first = thread == 0; // HEAD and ROW: by one element of the token
    each_number<BACK::FORM[S], DIM, mods::paired_of<BACK, S, DIM>()>(thread, [&](int a, int b, int i) {
        if (FORM != SITE_DIM && FORM != SITE_ELEMENT && !first) {
            return;
        }
        first = false;
        const float value = BACK::template site<S, G>(element_of<DIM>(x, a), PAIRS ? element_of<DIM>(x, b) : 0.0f,
                                                      element_of<DIM>(d, a), PAIRS ? element_of<DIM>(d, b) : 0.0f, i,
                                                      p.x, p.z, head, vals);
        if constexpr (FORM == SITE_DIM) {
            sums.dim[SITE].x[a] += value;
        } else if constexpr (FORM == SITE_HEAD) {
            sums.head[SITE] += value;
        } else {
            static_assert(FORM == SITE_ROW || FORM == SITE_ELEMENT,
                          "a mod's site is SITE_HEAD, _ROW, _DIM or _ELEMENT");
            const auto to = BACK::template site_address<S, G>(p.g, p.x, p.z, head, vals, i);
            if constexpr (BACK::template site_stores<S>(G)) {
                store_or_add(to, value, false);
            } else {
                add_sum(to, value);
            }
        }
    });
}

struct no_more {
    template <int S, class VALS> __device__ __forceinline__ void take(const VALS &) const {}
};

// x: what entered stage S; d: dL/d(what left it) -> dL/dx. `exists`: the row does. more.take<S>(vals) sees x and d as
// they are, with the row's values.
template <class BACK, int S, int DIM, class MORE = no_more>
DEV void run_adjoint(mods::row_values<DIM> &x, mods::row_values<DIM> &d, mod_sums<BACK, DIM> &sums,
                     const back_mod_params &p, const typename BACK::head &head, int thread, int token, bool exists,
                     const MORE &more = {})
{
    constexpr int FORM = BACK::FORM[S];
    constexpr int PAIRED = mods::paired_of<BACK, S, DIM>();
    constexpr int REDUCTIONS = BACK::REDUCTIONS[S];
    constexpr bool PAIRS = FORM != FORM_ELEMENT;
    if constexpr (mods::MOVES<BACK, S, DIM>) {
        mods::change_places<DIM, DIM, PAIRED>(x, thread);
        mods::change_places<DIM, DIM, PAIRED>(d, thread);
    }
    typename BACK::vals vals = {};
    BACK::template begin<S>(vals, p.x, p.z, head, token, p.pos0 + token);
    repeat<0, BACK::PASSES[S]>([&]<int P>() {
        float red[max_of(REDUCTIONS, 1)] = {};
        repeat<0, REDUCTIONS>([&]<int R>() {
            if constexpr (BACK::template reduce_pass<S>(R) == P) {
                constexpr int OP = BACK::template reduce_op<S>(R);
                float sum = red_identity<OP>();
                each_number<FORM, DIM, PAIRED>(thread, [&](int a, int b, int i) {
                    sum = red_combine<OP>(
                        sum, BACK::template operand<S, R>(element_of<DIM>(x, a), PAIRS ? element_of<DIM>(x, b) : 0.0f,
                                                          element_of<DIM>(d, a), PAIRS ? element_of<DIM>(d, b) : 0.0f,
                                                          i, p.x, p.z, head, vals));
                });
                red[R] = red_lanes<OP, mods::shape<DIM>::TEAM>(sum);
            }
        });
        BACK::template update<S, P>(vals, red, p.x, p.z, head);
    });
    if (exists) {
        repeat<0, BACK::template sites<S>()>(
            [&]<int G>() { gather_site<BACK, S, G, DIM>(sums, x, d, vals, p, head, thread); });
    }
    more.template take<S>(vals);
    each_number<FORM, DIM, PAIRED>(thread, [&](int a, int b, int i) {
        float none = 0.0f;
        BACK::template output<S>(element_of<DIM>(x, a), PAIRS ? element_of<DIM>(x, b) : 0.0f, element_of<DIM>(d, a),
                                 PAIRS ? element_of<DIM>(d, b) : none, i, p.x, p.z, head, vals);
    });
    if constexpr (mods::MOVES<BACK, S, DIM>) {
        mods::change_places<DIM, PAIRED, DIM>(d, thread);
    }
}

// A place in shared memory for the sums of a site by at.i, one for all sites: a pair's sums are at that of its first
// element.
template <int DIM> DEV float *sums_of_warp(int warp)
{
    __shared__ float table[MOD_THREADS / 32][DIM];
    return table[warp];
}

// Sums over the block's tokens to the gradients. Every thread of the block comes here.
template <class BACK, int S, int G, int DIM>
DEV void finish_site(mod_sums<BACK, DIM> &sums, const back_mod_params &p, const typename BACK::head &head, int thread)
{
    using s = mods::shape<DIM>;
    constexpr int SITE = sites_before<BACK, S>() + G;
    constexpr int FORM = BACK::template site_form<S>(G);
    if constexpr (FORM == SITE_HEAD) {
        const float sum = lanes_sum<32>(sums.head[SITE]);
        if (lane_id() == 0) {
            add_sum(BACK::template site_address<S, G>(p.g, p.x, p.z, head, typename BACK::vals{}, 0), sum);
        }
    } else if constexpr (FORM == SITE_DIM) {
        float *mine = sums_of_warp<DIM>(static_cast<int>(threadIdx.x) / 32);
        __syncthreads();
        elements<DIM> total = sums.dim[SITE];
#pragma unroll
        for (int n = 0; n < elements<DIM>::N; n++) { // also lanes beyond the last vector, for the warp's sake
#pragma unroll
            for (int lanes = s::TEAM; lanes < 32; lanes *= 2) { // the rows of a warp
                total.x[n] += __shfl_xor_sync(ALL_LANES, total.x[n], lanes);
            }
        }
        constexpr int PAIRED = mods::paired_of<BACK, S, DIM>();
        each_number<BACK::FORM[S], DIM, PAIRED>(thread, [&](int a, int, int i) {
            if (lane_id() < s::TEAM) {
                mine[i] = total.x[a];
            }
        });
        __syncthreads();
        constexpr int COUNT = BACK::FORM[S] == FORM_ELEMENT ? DIM : PAIRED / 2;
        for (int i = static_cast<int>(threadIdx.x); i < COUNT; i += MOD_THREADS) {
            float x = 0.0f;
#pragma unroll
            for (int w = 0; w < MOD_THREADS / 32; w++) {
                x += sums_of_warp<DIM>(w)[i];
            }
            add_sum(BACK::template site_address<S, G>(p.g, p.x, p.z, head, typename BACK::vals{}, i), x);
        }
    }
}

template <class SOURCE> DEV bool rows_aligned(const SOURCE *base, i64 stride, u64 mask)
{
    return ((reinterpret_cast<u64>(base) | static_cast<u64>(stride) * sizeof(SOURCE)) & mask) == 0;
}

} // namespace back
