// linear/chunk_parts.cuh: what the kernel ahead of a walk along chunks leaves for it, of each chunk of 64 tokens of
// each head.
//
// A token reads the state by a vector a and writes under a vector b, which are its key where it has no vectors of its
// own (linear/rule.cuh). With G the sums of a channel's logarithms from the chunk's start on, and F what a reads
// behind: G, or with cfg::READS_BEFORE G of the token before. As tokens read, q e^G and a e^F; as they write,
// b e^(G_end - G); e^G_end; and of pairs of tokens A_ij = q_i (e^(G_i - G_j) b_j)', N_ij = a_i (e^(F_i - G_j) b_j)'.
// No exponent is above 0. With the delta rule T = (1 + diag(beta) N)^-1 diag(beta), tokens write X = T (v - a S), and
// the walk is linear/keyed_delta.cuh. Without it what is read is written under b and v under k (WRITERS 2): T = (1 -
// N)^-1, X = T (a S + N_v v), where N_v and A_v have k in the place of b, and the walk is linear/dplr.cuh.
#pragma once
#include "linear/chunk.cuh"
#include "linear/steps.cuh"

namespace linear
{

static_assert(!DECAY_BY_VALUE, "a decay by key channel, or one that is the same for all of them, or none");
static_assert(LOOKS && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the delta rule, or a reader and a writer");

constexpr int CHUNK_STEPS = CHUNK_TOKENS / STEP;
constexpr int WRITERS = ADDS_SEEN ? 2 : 1;                // vectors under which a token writes
constexpr bool IN_PIECES = cfg::PIECES > 1;               // few long sequences may be cut: linear/keyed_delta_runs.cuh
constexpr bool POWERS_APART = STATE_SCALED && cfg::DELTA; // backward: struct beta_power

// In both memories the same bytes: tiles as swizzle has them, blocks of 16 x 16 pairs in the order in which lanes hold
// operands of mma.sync. Of T there are two of them, as its elements are two numbers each (linear/inverse_tiles.cuh). In
// two parts, of which the walk needs the first one first.
struct prepared {
    static constexpr int TILE = CHUNK_TOKENS * KEY_PAD * OPERAND, VALUE_TILE = WRITERS > 1 ? TILE : 0;
    // on the diagonal and below it
    static constexpr int BLOCK = 32 * 16, BLOCKS = CHUNK_STEPS * (CHUNK_STEPS + 1) / 2 * BLOCK;
    static constexpr int VALUE_BLOCKS = WRITERS > 1 ? BLOCKS : 0;
    // a e^F, T, N_v
    static constexpr int READ_K = 0, INVERSE = READ_K + TILE, SEEN_V = INVERSE + 2 * BLOCKS;
    static constexpr int FIRST = SEEN_V + VALUE_BLOCKS;
    // q e^G; b and k as they write; A and A_v; e^G_end
    static constexpr int READ_Q = FIRST, WRITE_K = READ_Q + TILE, WRITE_V = WRITE_K + TILE;
    static constexpr int PAIRS = WRITE_V + VALUE_TILE, PAIRS_V = PAIRS + BLOCKS, FACTORS = PAIRS_V + VALUE_BLOCKS;
    static constexpr int END = FACTORS + 4 * KEY_PAD, SECOND = END - FIRST;
    // Where sequences may be cut in pieces: f32: by how much the chunk shrinks any state at least, less by how
    // much it may let one grow; and that growth alone. Both to the base 2.
    static constexpr int SHRINKS = END, END_AHEAD = SHRINKS + (IN_PIECES ? 128 : 0);
    // Backward, too: T and N_v as operands whose rows are the depth, and so A and A_v are there, with the scale in
    // them; a power of two of each token.
    static constexpr int INVERSE_BACK = END, SEEN_V_BACK = INVERSE_BACK + 2 * BLOCKS,
                         POWERS = SEEN_V_BACK + VALUE_BLOCKS, END_BACK = POWERS + 4 * CHUNK_TOKENS;
    DEV int block(int i, int j) { return (i * (i + 1) / 2 + j) * BLOCK; } // j <= i
    // BYTES: END_AHEAD or END_BACK.
    template <int BYTES, class P> DEV unsigned char *of(const P &p, const sequence &s, int h, int place)
    {
        return static_cast<unsigned char *>(p.inverse) + (chunk_number(p, s, place) * p.z.n_h + h) * BYTES;
    }
};
static_assert(prepared::END == 388 * KEY_PAD + 15360 + (WRITERS - 1) * (128 * KEY_PAD + 10240),
              "as much as the planner gives each chunk in memory");

// Backward, in f16: what a token writes and what flows back to its value are small where its beta is, and the gradient
// of beta is their product by beta^2. So they are kept without the power of two that is in beta, which T is divided by:
// by rows, and on the way back by columns.
struct beta_power {
    float of, inverse;
    DEV beta_power in(float beta)
    {
        const u32 exponent = __float_as_uint(beta) & 0x7f800000u;
        return {__uint_as_float(exponent), __uint_as_float(0x7f000000u - exponent)};
    }
};

} // namespace linear
