// linear/recurrent_kept.cuh: kernels: linear attention token by token, as of linear/recurrent.cuh, which leave the
// states behind tokens that have a place in `states`: what a prefix cache goes on with, and what tokens that are taken
// back go back to.
//
// Launch: as of linear/recurrent.cuh; kept_inside ahead of kernels that go by chunks, which leave the states behind the
// last tokens of chunks: it takes the sequences that have other such tokens, and tells of each sequence whether it has.
#pragma once
#include "linear/kept.cuh"
#include "linear/recurrent.cuh"

namespace linear
{

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
            const work &w = loader.w;
            keep_state(loader.p, w, __shfl_sync(ALL_LANES, kept, n),
                       [&](cfg::element_state *to, i64 s_i, i64 s_j, cfg::element_state *norm, i64 norm_i) {
                           store_state(state, w, to, s_i, s_j);
                           store_norm(state, w, norm, norm_i);
                       });
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

// Two batches, in one place for all kernels of a text.
using kept_batches = batch[2];
DEV kept_batches &kept_room()
{
    __shared__ kept_batches shared;
    return shared;
}

DEV void forward_kept(const linear_params &p)
{
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<columns::COLUMNS, THREADS>(p, w);
    } else {
        kept_by_token(p, w, slot, kept_room());
    }
}

// Has a sequence a token with a place that is not the last one, nor the last one of some p.kept_each? Told to all
// threads.
template <class P> DEV bool keeps_inside(const P &p, const work &w)
{
    __shared__ bool of_warp[WARPS];
    const int each = static_cast<int>(p.kept_each);
    bool inside = false; // of this thread's tokens
#pragma unroll 4
    for (int place = static_cast<int>(threadIdx.x); place < w.s.length - 1; place += THREADS) {
        inside |= kept_place(p, w, place) >= 0 && (place + 1) % each != 0;
    }
    const bool any_lane = __any_sync(ALL_LANES, inside) != 0;
    if (lane_id() == 0) {
        of_warp[threadIdx.x / 32] = any_lane;
    }
    __syncthreads();
    bool any = false;
#pragma unroll
    for (int n = 0; n < WARPS; n++) {
        any |= of_warp[n];
    }
    return any;
}

template <class P> DEV void forward_kept_inside(const P &p)
{
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    const bool inside = slot >= 0 && keeps_inside(p, w);
    if (w.h == 0 && w.first == 0 && threadIdx.x == 0) {
        p.kept_inside[w.s.number] = inside ? 1 : 0;
    }
    if (inside) {
        kept_by_token(p, w, slot, kept_room());
    }
}

} // namespace linear

#if LATHE_COMPILED(kept)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS) LATHE_ENTRY(kept)(const __grid_constant__ linear_params p)
{
    linear::forward_kept(p);
}
#endif

#if LATHE_COMPILED(kept_inside)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(kept_inside)(const __grid_constant__ linear_params p)
{
    linear::forward_kept_inside(p);
}
#endif
