// attention_weigh_sm90.cuh: scores become weights, in the registers of a warpgroup: by the steps of the variant,
// and where the variant has one, first by the step that keeps a row's maximum.
//
// `entry`: of the thread's first row and column in the table of diagonals. `tile`: as the cursor gives it.
#pragma once
#include "attention_reader_sm90.cuh"

template <bool WHOLE> DEV void weigh(warp_work &w, const at_head &a, int tile, u32 entry, float (&scale)[2])
{
    score_tile<WHOLE, 1, NB> scores{w.s, w.rows, a, (tile >> 1) * cfg::BN + 2 * (lane_id() & 3), entry,
                                    (tile & 1) != 0};
    scores.run(scale);
}

// A step that finds no maximum of its own and leaves o as it is. The sums of the weights, needed anyway, tell whether
// the maxima at hand were good enough, for all rows of the warpgroup, whose products start together. False: they
// were not, the rows are as before, and the scores are lost.
template <class V> DEV bool weigh_kept(warp_work &w, const at_head &a, int tile, u32 entry)
{
    float scale[2];
    score_tile<true, 1, NB, typename V::kept> scores{w.s, w.rows, a, (tile >> 1) * cfg::BN + 2 * (lane_id() & 3), entry};
    scores.weigh();
    if (barrier_any(1 + shared_layout::GROUPS + worker_group(), 128, !scores.serves())) {
        return false;
    }
    scores.accept(scale);
    return true;
}

// The first tile of a row, and of a run: no maximum is at hand yet.
template <class V>
DEV void weigh_first(warp_work &w, const at_head &a, tile_reader &reader, int tile, u32 entry, float (&scale)[2])
{
    reader.leave_k();
    if constexpr (V::KEEPS) { // a text less
        weigh<false>(w, a, tile, entry, scale);
    } else if ((tile & 1) != 0) {
        weigh<true>(w, a, tile, entry, scale);
    } else {
        weigh<false>(w, a, tile, entry, scale);
    }
}

// A later one. K of the tile is given back, unless the products have to be made anew as soon as they are weighed.
// True: o has to be scaled.
template <class V>
DEV bool weigh_next(warp_work &w, const at_head &a, tile_reader &reader, int tile, u32 entry, float (&scale)[2])
{
    if constexpr (V::KEEPS) {
        if ((tile & 1) != 0) {
            if (weigh_kept<V>(w, a, tile, entry)) {
                reader.leave_k();
                return false;
            }
            reader.start_scores(w);
            wgmma<cfg::BN>::wait<0>(w.s[0]);
        }
        reader.leave_k();
        weigh<false>(w, a, tile, entry, scale); // right for whole tiles, too
    } else {
        weigh_first<V>(w, a, reader, tile, entry, scale);
    }
    return V::RESCALE;
}
