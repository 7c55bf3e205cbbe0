// linear/rule_parts.cuh: what linear/rule_prepare.cuh leaves of each chunk of 64 tokens of each head, where tokens read
// the state by vectors a and write under vectors b of their own (linear/rule.cuh).
//
// With G the sums of a channel's logarithms from the chunk's start on, and F what a reads behind: G, or with
// cfg::READS_BEFORE G of the token before. As tokens read, q e^G and a e^F; as they write, b e^(G_end - G); e^G_end;
// and of pairs of tokens A_ij = q_i (e^(G_i - G_j) b_j)', N_ij = a_i (e^(F_i - G_j) b_j)'. No exponent is above 0. With
// the delta rule T = (1 + diag(beta) N)^-1 diag(beta), and tokens write X = T (v - a S): places and sizes are those of
// struct prepared of linear/keyed_delta_parts.cuh, and so the walk is linear/keyed_delta.cuh. Without it what is read
// is written under b and v under k (WRITERS 2): T = (1 - N)^-1, X = T (a S + N_v v), where N_v and A_v have k in the
// place of b, and the walk is linear/dplr.cuh.
#pragma once
#include "linear/chunk.cuh"
#include "linear/steps.cuh"

namespace linear
{

static_assert(!DECAY_BY_VALUE, "a decay by key channel, or one that is the same for all of them, or none");
static_assert(BY_RULE && LOOKS && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "vectors that read or write");

constexpr int RULE_STEPS = CHUNK_TOKENS / STEP;
constexpr int WRITERS = ADDS_SEEN ? 2 : 1; // vectors under which a token writes

// In both memories the same bytes: tiles as swizzle has them, blocks of 16 x 16 pairs in the order in which lanes hold
// operands of mma.sync. T has two of them, as its elements are two numbers each (linear/inverse_tiles.cuh).
struct ruled {
    static constexpr int TILE = CHUNK_TOKENS * KEY_PAD * OPERAND, VALUE_TILE = WRITERS > 1 ? TILE : 0;
    // on the diagonal and below it
    static constexpr int BLOCK = 32 * 16, BLOCKS = RULE_STEPS * (RULE_STEPS + 1) / 2 * BLOCK;
    static constexpr int VALUE_BLOCKS = WRITERS > 1 ? BLOCKS : 0;
    // what the walk needs first: a e^F, T, N_v
    static constexpr int READ_A = 0, INVERSE = READ_A + TILE, SEEN_V = INVERSE + 2 * BLOCKS;
    static constexpr int FIRST = SEEN_V + VALUE_BLOCKS;
    // and then: q e^G; b and k as they write; A and A_v; e^G_end
    static constexpr int READ_Q = FIRST, WRITE_X = READ_Q + TILE, WRITE_V = WRITE_X + TILE;
    static constexpr int PAIRS_X = WRITE_V + VALUE_TILE, PAIRS_V = PAIRS_X + BLOCKS;
    static constexpr int FACTORS = PAIRS_V + VALUE_BLOCKS, END = FACTORS + 4 * KEY_PAD, SECOND = END - FIRST;
    // backward, of one writer, as linear/keyed_delta_parts.cuh has it: T where its rows are the depth, powers of two
    static constexpr int INVERSE_BACK = END, POWERS = INVERSE_BACK + 2 * BLOCKS, END_BACK = POWERS + 4 * CHUNK_TOKENS;
    DEV int block(int i, int j) { return (i * (i + 1) / 2 + j) * BLOCK; } // j <= i
    // BYTES: END or END_BACK.
    template <int BYTES, class P> DEV unsigned char *of(const P &p, const sequence &s, int h, int place)
    {
        return static_cast<unsigned char *>(p.inverse) + (chunk_number(p, s, place) * p.z.n_h + h) * BYTES;
    }
};
static_assert(ruled::END == 388 * KEY_PAD + 15360 + (WRITERS - 1) * (128 * KEY_PAD + 10240),
              "as much as the planner gives each chunk in memory");

} // namespace linear
