// linear/additive_tiles.cuh: what the two jobs of linear/additive.cuh hand to each other: steps of 16 tokens in shared
// memory, in a ring of chunks of
// cfg::CHUNK_STEPS of them, and the named barriers in between.
#pragma once
#include "linear/pieces.cuh"
#include "linear/steps.cuh"

namespace linear
{

constexpr int STEPS = cfg::CHUNK_STEPS, STAGES = cfg::CHUNK_STAGES;
constexpr int COLUMN_WARPS = cfg::COLUMN_WARPS;    // 16 columns of the state each
constexpr int STATE_WARPS = COLUMN_WARPS + BESIDE; // the last one has the sum of keys
constexpr int PAIR_THREADS = 32 * STEPS, STATE_THREADS = 32 * STATE_WARPS;
constexpr int BLOCK_THREADS = PAIR_THREADS + STATE_THREADS;
constexpr int VALUE_PAD = 16 * COLUMN_WARPS;
constexpr int VALUE_SLICES = (cfg::D_V + VALUE_PAD - 1) / VALUE_PAD;
static_assert(!cfg::DELTA && !DECAY_BY_VALUE, "the additive family, with no decay by value channel");
static_assert(cfg::CAUSAL || (!DECAYS && !cfg::BONUS), "over all tokens nothing is older");
static_assert(STEPS == 2 || STEPS == 4, "cfg::CHUNK_STEPS is 2 or 4");
static_assert(STAGES >= 2 && STAGES <= 4,
              "cfg::CHUNK_STAGES is 2 to 4: a named barrier for what is prepared and one for what is read, each");
static_assert(COLUMN_WARPS >= 1 && COLUMN_WARPS <= 8, "cfg::COLUMN_WARPS is 1 to 8");

struct step_layout { // bytes; tiles have 16 rows
    static constexpr int Q = 0, K = Q + STEP * KEY_PAD * OPERAND, V = K + STEP * KEY_PAD * OPERAND;
    // A's fragments of the pairs within the step, 16 bytes a lane
    static constexpr int PAIRS = V + STEP * VALUE_PAD * OPERAND;
    static constexpr int FACTORS = PAIRS + 512; // floats: of channels or of tokens, see below
    static constexpr int COUNT = DECAY_BY_KEY ? 2 * KEY_PAD + 4 : DECAYS ? 2 * STEP + 4 : 4;
    static constexpr int END = round_up(FACTORS + 4 * COUNT, 128);
};
// Where pairs are summed up one by one, before pairs and factors are there: 16 rows of 16 floats.
static_assert(!DECAY_BY_KEY || step_layout::END - step_layout::PAIRS >= 4 * STEP * STEP,
              "pairs and factors have room for sums");
// of a decay by key channel: the state is multiplied by HALF, read, by MIDDLE, added to, and by HALF again
struct channel_factors {
    static constexpr int HALF = 0, MIDDLE = KEY_PAD, HAS_MIDDLE = 2 * KEY_PAD;
};
struct token_factors { // of one number a token: of what a token reads, of what it writes, of the state
    static constexpr int READ = 0, WRITE = STEP, ALL = 2 * STEP;
};
constexpr int CHUNK_BYTES = STEPS * step_layout::END;
constexpr int DIVISORS = STAGES * CHUNK_BYTES; // of the tokens of two steps, with a normaliser
constexpr int BLOCK_BYTES = DIVISORS + (cfg::NORMALISE ? 2 * STEP * 4 : 0);

// Named barriers of a stage.
DEV u32 prepared(int number) { return static_cast<u32>(1 + number % STAGES); }
DEV u32 free_again(int number) { return static_cast<u32>(1 + STAGES + number % STAGES); }
constexpr u32 DIVISORS_KNOWN = 1 + 2 * STAGES;

// A block walks the chunks of its piece once; twice where all tokens read the sum over all: then it writes first.
template <bool STATES> struct walk_plan {
    int begin, chunks, writing; // places; chunks, and how many of them are walked to write alone, in front
    DEV walk_plan of(const piece &of, bool cut)
    {
        const int chunks = (of.length + STEP * STEPS - 1) / (STEP * STEPS);
        return {of.begin, chunks, cfg::CAUSAL || cut ? 0 : chunks};
    }
    __device__ __forceinline__ int count() const { return cfg::CAUSAL || STATES ? chunks : writing + chunks; }
    __device__ __forceinline__ bool reads(int number) const { return !STATES && (cfg::CAUSAL || number >= writing); }
    __device__ __forceinline__ bool writes(int number) const { return STATES || cfg::CAUSAL || number < writing; }
    // The first token of a step.
    __device__ __forceinline__ int place(int number, int step) const
    {
        const int chunk = cfg::CAUSAL || STATES || number < writing ? number : number - writing;
        return begin + (chunk * STEPS + step) * STEP;
    }
};

// What a piece adds to the state, in the order of its fragments, and by how much it decays what was there: logarithms
// of the steps of each warp.
struct part_layout { // floats
    static constexpr int WARP = 16 * KEY_PAD, LOGS = STATE_WARPS * WARP, END = LOGS + (DECAYS ? STEPS * KEY_PAD : 0);
    // The state that was given, 0, or what piece `part` - 1 has added.
    DEV float *of(const linear_params &p, const pieces &all, int unit, int part)
    {
        return p.parts + (static_cast<i64>(unit) * (all.most + 1) + part) * END;
    }
};
DEV u32 step_address(u32 shared, int number, int step)
{
    return shared + static_cast<u32>(number % STAGES * CHUNK_BYTES + step * step_layout::END);
}
DEV u32 factor_address(u32 step, int factor) { return step + static_cast<u32>(step_layout::FACTORS + 4 * factor); }

} // namespace linear
