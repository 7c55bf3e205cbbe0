// linear/recurrent_kept.cuh: kernel: linear attention token by token, as of linear/recurrent.cuh, which leaves the
// states behind tokens that have a place in `states`: what a prefix cache goes on with, and what tokens that are taken
// back go back to.
//
// Launch: as of linear/recurrent.cuh.
#pragma once
#include "linear/recurrent.cuh"

namespace linear
{

// Where the state behind the token of a place goes; -1: nowhere. What is beyond the places is none of them.
DEV int kept_place(const linear_params &p, const work &w, int place)
{
    if (!w.has(place)) {
        return -1;
    }
    const int to = p.states_index[w.s.batch * p.states_index_b + sequence::token(w.s, place) * p.states_index_t];
    return to < p.kept ? to : -1;
}

DEV void keep_state(const linear_params &p, const work &w, state_tile &state, i64 to)
{
    if (to >= 0) { // all threads
        store_state(state, w, head_of(p.states, to * p.states_b + w.h * p.states_h), p.states_i, p.states_j);
        store_norm(state, w, head_of(p.norms, to * p.norms_b + w.h * p.norms_h), p.norms_i);
    }
}

// walk of linear/walk.cuh, with a look at the state behind each token. A lane has the place of a token of the batch,
// which is under way while the batch before is walked.
template <class LOADER> DEV void walk_kept(batch (&shared)[2], LOADER &loader, state_tile &state, outputs &out)
{
    constexpr int TOKENS = batch::TOKENS;
    const int length = loader.w.s.length;
    const int lane = lane_id() % TOKENS;
    __syncthreads();
    loader.get(0);
    int kept = kept_place(loader.p, loader.w, lane);
    loader.put(shared[0], 0);
    loader.put_bonus(shared[0]);
    loader.put_bonus(shared[1]);
    __syncthreads();
#pragma unroll 1
    for (int place = 0, now = 0; place < length; place += TOKENS, now ^= 1) {
        const bool more = place + TOKENS < length;
        const int next = kept_place(loader.p, loader.w, place + TOKENS + lane);
        if (more) {
            loader.get(place + TOKENS);
        }
#pragma unroll 1
        for (int n = 0; n < min(TOKENS, length - place); n++) {
            float o[WIDE] = {};
            step<true, true>(state, shared[now], n, o, [&](const float(&error)[WIDE]) { out.error(place + n, error); });
            sum_rows(o);
            if (lane_id() % ROW_LANES == 0) {
                out.store(place + n, o);
            }
            keep_state(loader.p, loader.w, state, __shfl_sync(ALL_LANES, kept, n));
        }
        if (more) {
            loader.put(shared[now ^ 1], place + TOKENS);
        }
        kept = next;
        __syncthreads();
    }
}

DEV void kept_by_token(const linear_params &p, const work &w, i64 slot, batch (&shared)[2])
{
    column_loader<linear_params, cfg::element_v> loader(
        p, w, elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first), p.v_t);
    state_tile state;
    state.clear();
    load_state(state, w, head_of(p.state, slot * p.state_b + w.h * p.state_h), p.state_i, p.state_j);
    load_norm(state, head_of(p.norm, slot * p.norm_b + w.h * p.norm_h), p.norm_i);
    outputs out{p, w};
    walk_kept(shared, loader, state, out);
    store_state(state, w, head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h), p.state_out_i,
                p.state_out_j);
    store_norm(state, w, head_of(p.norm_out, slot * p.norm_out_b + w.h * p.norm_out_h), p.norm_out_i);
}

DEV void forward_kept(const linear_params &p)
{
    __shared__ batch shared[2];
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<columns::COLUMNS, THREADS>(p, w);
    } else {
        kept_by_token(p, w, slot, shared);
    }
}

} // namespace linear

#if LATHE_COMPILED(kept)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS) LATHE_ENTRY(kept)(const __grid_constant__ linear_params p)
{
    linear::forward_kept(p);
}
#endif
