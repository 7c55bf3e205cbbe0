// linear/keyed_delta_parts.cuh: what one kernel of linear/keyed_delta.cuh leaves for the other, of each chunk of 64
// tokens of each head.
//
// With G the sums of a channel's logarithms from the chunk's start on: q and k as they read, q e^G and k e^G, k as it
// writes, k e^(G_end - G), e^G_end; and of the pairs of tokens A_ij = q_i (e^(G_i - G_j) k_j)', T = (1 + diag(beta)
// N)^-1 diag(beta) with N of keys in the place of q. No exponent is above 0.
#pragma once
#include "linear/chunk.cuh"
#include "linear/steps.cuh"

namespace linear
{

static_assert(!DECAY_BY_VALUE, "a decay by key channel, or one that is the same for all of them, or none");
static_assert(cfg::DELTA && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the delta rule");

constexpr int CHUNK_STEPS = CHUNK_TOKENS / STEP;
constexpr bool IN_PIECES = cfg::PIECES > 1; // few long sequences may be cut: linear/keyed_delta_runs.cuh

// In both memories the same bytes: tiles as swizzle has them, blocks of 16 x 16 pairs in the order in which lanes hold
// operands of mma.sync. Of T there are two of them, as its elements are two numbers each (linear/inverse_tiles.cuh). In
// two parts, of which the walk needs the first one first.
struct prepared {
    static constexpr int TILE = CHUNK_TOKENS * KEY_PAD * OPERAND;
    // on the diagonal and below it
    static constexpr int BLOCK = 32 * 16, BLOCKS = CHUNK_STEPS * (CHUNK_STEPS + 1) / 2 * BLOCK;
    static constexpr int READ_K = 0, INVERSE = READ_K + TILE, FIRST = INVERSE + 2 * BLOCKS; // k e^G, T
    static constexpr int READ_Q = FIRST, WRITE_K = READ_Q + TILE, PAIRS = WRITE_K + TILE, FACTORS = PAIRS + BLOCKS;
    static constexpr int END = FACTORS + 4 * KEY_PAD, SECOND = END - FIRST;
    // Where sequences may be cut in pieces: f32: by how much the chunk shrinks any state at least, less by how
    // much it may let one grow; and that growth alone. Both to the base 2.
    static constexpr int SHRINKS = END, END_AHEAD = SHRINKS + (IN_PIECES ? 128 : 0);
    // Backward, too: T as an operand whose rows are the depth, and so A is there, with the scale in it; a power of two
    // of each token.
    static constexpr int INVERSE_BACK = END, POWERS = INVERSE_BACK + 2 * BLOCKS, END_BACK = POWERS + 4 * CHUNK_TOKENS;
    DEV int block(int i, int j) { return (i * (i + 1) / 2 + j) * BLOCK; } // j <= i
    // BYTES: END_AHEAD or END_BACK.
    template <int BYTES, class P> DEV unsigned char *of(const P &p, const sequence &s, int h, int place)
    {
        return static_cast<unsigned char *>(p.inverse) + (chunk_number(p, s, place) * p.z.n_h + h) * BYTES;
    }
};
// Backward, in f16: what a token writes and what flows back to its value are small where its beta is, and the gradient
// of beta is their product by beta^2. So they are kept without the power of two that is in beta, which T is divided by:
// by rows, and on the way back by columns.
constexpr bool POWERS_APART = STATE_SCALED;
struct beta_power {
    float of, inverse;
    DEV beta_power in(float beta)
    {
        const u32 exponent = __float_as_uint(beta) & 0x7f800000u;
        return {__uint_as_float(exponent), __uint_as_float(0x7f000000u - exponent)};
    }
};
static_assert(prepared::END == 388 * KEY_PAD + 15360, "as much as the planner gives each chunk in memory");

} // namespace linear
