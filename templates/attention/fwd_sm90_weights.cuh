// attention/fwd_sm90_weights.cuh: scores become weights, in the registers of a warpgroup: by the steps of the variant,
// and where the variant has one, first by the step that keeps a row's maximum.
//
// `entry`: of the thread's first row and column in the table of diagonals. `tile`: as the loading warp tells it.
#pragma once
#include "attention/fwd_sm90_reader.cuh"

template <bool WHOLE>
DEV void weigh(warp_work &w, const at_head &a, int tile, bool whole, bool cut, u32 entry, float (&scale)[2])
{
    score_tile<WHOLE, 1, NB> scores{
        w.s, w.rows, a, tile / KEY_TILE * cfg::BN + mma_fragment<1>::first_column(lane_id()), entry, whole, cut};
    scores.run(scale);
}

// A step that finds no maximum of its own and leaves o as it is. The sums of the weights, needed anyway, tell whether
// the maxima at hand were good enough, for all rows of the warpgroup, whose products start together. False: they
// were not, the rows are as before, and the scores are lost.
template <class V> DEV bool weigh_kept(warp_work &w, const at_head &a, const tile_reader &reader, int tile, u32 entry)
{
    float scale[2];
    score_tile<true, 1, NB, typename V::kept> scores{
        w.s, w.rows, a, tile / KEY_TILE * cfg::BN + mma_fragment<1>::first_column(lane_id()), entry};
    scores.weigh();
    if (barrier_any(1 + shared_layout::GROUPS + reader.group, 128, !scores.serves())) {
        return false;
    }
    scores.accept(scale);
    return true;
}

// The first tile of a row, and of a run: no maximum is at hand yet.
template <class V>
DEV void weigh_first(warp_work &w, const at_head &a, tile_reader &reader, int tile, u32 entry, float (&scale)[2])
{
    const bool whole = reader.whole(tile);
    const bool cut = reader.cut(tile);
    reader.leave_k();
    if constexpr (V::KEEPS) { // a text less
        weigh<false>(w, a, tile, whole, cut, entry, scale);
    } else if (whole) {
        weigh<true>(w, a, tile, whole, cut, entry, scale);
    } else {
        weigh<false>(w, a, tile, whole, cut, entry, scale);
    }
}

// A later one, with o's factor where the variant keeps maxima: there it is rarely another than 1. K of the tile is
// given back, unless the products have to be made anew as soon as they are weighed. What the barrier's vote decides is
// done in branches that change nothing of the reader: the compiler takes the vote for one that may differ between
// lanes, and would keep all places in registers of every lane from there on.
template <class V>
DEV void weigh_next(warp_work &w, const at_head &a, tile_reader &reader, int tile, u32 entry, float (&scale)[2])
{
    if constexpr (V::KEEPS) {
        const bool whole = reader.whole(tile);
        bool exact = true;
        if (whole) {
            exact = !weigh_kept<V>(w, a, reader, tile, entry);
            if (exact) {
                reader.start_scores(w);
                wgmma<cfg::BN>::wait<0>(w.s[0]);
            }
        }
        if (exact) {
            weigh<false>(w, a, tile, whole, reader.cut(tile), entry, scale); // right for whole tiles, too
            wgmma<O_COLUMNS>::wait<0>(w.o[0]);
            rescale(w.o, scale);
        }
        __syncwarp(); // together again, and the compiler knows it
        reader.leave_k();
    } else {
        weigh_first<V>(w, a, reader, tile, entry, scale);
    }
}
