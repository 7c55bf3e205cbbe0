// linear/pieces.cuh: few long sequences in pieces, a block's each.
#pragma once
#include "linear/walk.cuh"

namespace linear
{

static_assert(cfg::PIECES >= 1 && cfg::PIECES_FROM >= 256,
              "cfg::PIECES of sequences of at least cfg::PIECES_FROM tokens");

// Few long sequences are cut into pieces, of which each is a block's: a first launch (STATES) has what each adds to the
// state, a second one begins with what those before have added. How many pieces there are is the same for all blocks of
// a launch.
struct pieces {
    int units, most; // heads of sequences, slices of them apart; pieces of a sequence, at most
    // LEAST: fewer would not gain what the first launch costs.
    template <int SLICES, int LEAST> DEV pieces of(const linear_params &p)
    {
        const int units = p.x.seqs * p.z.n_h * SLICES;
        const int room = cfg::PIECE_BLOCKS / max(units, 1);
        return {units, p.z.len_q < cfg::PIECES_FROM || room < LEAST ? 1 : min(room, cfg::PIECES)};
    }
};
struct piece {
    static constexpr int LEAST_TOKENS = 256;
    int number, count, begin, length; // of a sequence, `count` pieces; tokens
    DEV piece of(int number, int most, int tokens)
    {
        const int each = max(LEAST_TOKENS, (tokens + 64 * most - 1) / (64 * most) * 64); // whole chunks
        const int begin = min(number * each, tokens);
        return {number, most == 1 ? 1 : max(1, (tokens + each - 1) / each), begin,
                most == 1 ? tokens : min(each, tokens - begin)};
    }
    __device__ __forceinline__ bool exists() const { return number < count; }
    __device__ __forceinline__ bool is_last() const { return number == count - 1; }
};

} // namespace linear
