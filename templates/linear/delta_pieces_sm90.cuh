// linear/delta_pieces_sm90.cuh: what blocks of the delta rule by wgmma share that walk along whole sequences, or pieces
// of them.
#pragma once
#include "linear/delta_loader_sm90.cuh"
#include "linear/kept.cuh"
#include "linear/pieces.cuh"

namespace linear
{

// What pieces of a sequence hand on, floats, of a head: the state in front of each piece, as [column][channel], at
// first what the piece before it makes of none; and what each piece makes of the state in front of it, as
// [column][channel] of a matrix that it is multiplied by from the left.
struct delta_parts {
    static constexpr int COLUMNS = BLOCK_SLICES * BLOCK_COLUMNS;
    static constexpr int STATE = COLUMNS * CHUNK_PAD, MATRIX = CHUNK_PAD * CHUNK_PAD, EACH = STATE + MATRIX;
    DEV float *of(const linear_params &p, const pieces &all, int head, int piece)
    {
        return p.parts + (static_cast<i64>(head) * all.most + piece) * EACH;
    }
};

DEV delta_span span_of(const piece &own) { return {own.begin / CHUNK_TOKENS, chunks_of(own.length)}; }

// The state behind a chunk, where it is wanted.
template <class WALK, class STATE> DEV void leave_kept(const WALK &walk, STATE &state, int kept)
{
    keep_state(walk.p, walk.w, kept, [&](cfg::element_state *to, i64 s_i, i64 s_j, cfg::element_state *, i64) {
        WALK::each_in_memory(state, walk.w, s_i, s_j,
                             [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
    });
}

// Chunk for chunk, with states that are wanted behind them.
template <class WALK, class STATE>
DEV void walk_chunks(const WALK &walk, STATE &state, const delta_ring &ring, const delta_span &span)
{
#pragma unroll 1
    for (int n = 0; n < span.count; n++) {
        const int place = (span.first + n) * CHUNK_TOKENS;
        const int kept = kept_behind<CHUNK_TOKENS>(walk.p, walk.w, place);
        walk.step(state, ring, n, place, leave_nothing{});
        leave_kept(walk, state, kept);
    }
}

} // namespace linear
