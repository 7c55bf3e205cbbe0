// linear/recurrent.cuh: kernel: linear attention token by token, with the state in registers: every decay, the delta
// rule, a bonus, a normaliser.
//
// Launch: sequences * h * COLUMN_SLICES blocks of 32 cfg::WARPS threads; no shared memory to ask for. A block has some
// columns of the state of one head, which it reads and writes once: so it is also the step from one token to the next.
#pragma once
#include "linear/walk.cuh"

namespace linear
{

struct outputs {
    const linear_params &p;
    const work &w;

    __device__ __forceinline__ void store(int place, const float (&o)[WIDE]) const
    {
        using target = typename pick<cfg::O_F32, float, cfg::element_o>::type;
        const float factor = cfg::NORMALISE ? 1.0f / normaliser(o[WIDE - 1]) : 1.0f;
        float out[columns::N];
#pragma unroll
        for (int n = 0; n < columns::N; n++) {
            out[n] = o[n] * factor;
        }
        if (w.has(place) && columns::column() < w.left) {
            target *to =
                static_cast<target *>(p.o) +
                (w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, place) * p.o_t + w.first + columns::column());
            store_any<columns::N, target>(to, out);
        }
    }
    DEV void error(int, const float (&)[WIDE]) {}
    DEV void after(int, const state_tile &) {}
};

DEV void forward_by_token(const linear_params &p, const work &w, i64 slot, batch (&shared)[2])
{
    column_loader<linear_params, cfg::element_v> loader(
        p, w, elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first), p.v_t);
    state_tile state;
    state.clear();
    load_state(state, w, head_of(p.state, slot * p.state_b + w.h * p.state_h), p.state_i, p.state_j);
    load_norm(state, head_of(p.norm, slot * p.norm_b + w.h * p.norm_h), p.norm_i);
    outputs out{p, w};
    if constexpr (cfg::CAUSAL) {
        walk<true, true>(shared, loader, state, out);
    } else {
        walk<false, true>(shared, loader, state, out);
        walk<true, false>(shared, loader, state, out);
    }
    store_state(state, w, head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h), p.state_out_i,
                p.state_out_j);
    store_norm(state, w, head_of(p.norm_out, slot * p.norm_out_b + w.h * p.norm_out_h), p.norm_out_i);
}

DEV void forward(const linear_params &p)
{
    __shared__ batch shared[2];
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<columns::COLUMNS, THREADS>(p, w);
    } else {
        forward_by_token(p, w, slot, shared);
    }
}

} // namespace linear

#if LATHE_COMPILED(fwd)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS) LATHE_ENTRY(fwd)(const __grid_constant__ linear_params p)
{
    linear::forward(p);
}
#endif
