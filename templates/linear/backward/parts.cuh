// linear/backward/parts.cuh: what the kernels of linear attention's backward pass hand to each other: tensors of the
// workspace, states at the ends of chunks, sums of the logarithms' gradients along the tokens.
//
// The gradient of the logarithm of a decay is the sum, over all tokens from the decay's on to the end of its chunk, of
// what reads the state there times its gradient less what is written times its gradient, and of the state at the
// chunk's end times its gradient: no number is larger than a chunk's.
#pragma once
#include "linear/walk.cuh"

namespace linear
{

constexpr int CHUNK = cfg::BACK_CHUNK; // tokens
static_assert(CHUNK % 8 == 0, "a chunk has whole batches of tokens");
constexpr bool GRADIENT_BY_KEY =
    cfg::DECAY_GRADIENT && (cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN || cfg::DECAY == DECAY_KEY);
constexpr bool GRADIENT_BY_VALUE = cfg::DECAY_GRADIENT && cfg::DECAY == DECAY_VALUE;
// where the pass goes by chunks: of q and k, each with its part of a sum over channels
constexpr int KEY_SLICES = (cfg::D + 63) / 64;
// what flows back to o, and gradients of q, k and v: in f32 where an adjoint of a mod leaves or takes them
using dout_element = typename pick<cfg::DOUT_F32, float, cfg::element_o>::type;
using dq_element = typename pick<cfg::DQ_F32, float, cfg::element_q>::type;
using dk_element = typename pick<cfg::DK_F32, float, cfg::element_k>::type;
using dv_element = typename pick<cfg::DV_F32, float, cfg::element_v>::type;

// Where the pass goes by chunks, the gradient of beta is a sum divided by beta^2: what would be 0 / 0 is the limit of
// it.
DEV float kept_beta(float beta) { return fabsf(beta) < 0x1p-40f ? 0x1p-40f : beta; }

// ---- shared memory -----------------------------------------------------------------------------------

// rows.cuh has no kernel for more, and others that include this have use for none of it then
constexpr int VALUES = min_of(cfg::D_V, 256) + BESIDE;
using rows = shape<VALUES>;
using row_tile = tile<VALUES>;
constexpr int ROW_SLICES = (cfg::D + rows::COLUMNS - 1) / rows::COLUMNS;

// Of tokens, where what they read is added beside their values: that.
template <int TOKENS, int WIDE, bool THERE = ADDS_SEEN> struct seen_vectors {
};
template <int TOKENS, int WIDE> struct seen_vectors<TOKENS, WIDE, true> {
    alignas(16) float u[TOKENS][WIDE];
};

// With four vectors along the values two batches of more would not find room.
constexpr int ROW_TOKENS = ADDS_SEEN ? 4 : rows::TOKENS;

struct row_batch : rule_vectors<ROW_TOKENS, rows::COLUMNS>, seen_vectors<ROW_TOKENS, rows::PAD> {
    static constexpr int TOKENS = ROW_TOKENS;
    alignas(16) float x[TOKENS][rows::PAD];                         // what is written
    alignas(16) float out[TOKENS][rows::PAD];                       // what flows back to o
    alignas(16) float z[LOOKS ? TOKENS : 1][LOOKS ? rows::PAD : 4]; // and to v by the delta rule
    alignas(16) float q[TOKENS][rows::COLUMNS];
    alignas(16) float k[TOKENS][rows::COLUMNS];
    alignas(16) float keys[TOKENS][DECAY_BY_KEY ? rows::COLUMNS : 4];
    alignas(16) float values[TOKENS][DECAY_BY_VALUE ? rows::PAD : 4];
    float all[TOKENS];
    float beta[TOKENS];
    float divided[TOKENS];
};

// Two batches of either kind, in one place for all kernels of a text.
DEV unsigned char *back_room()
{
    __shared__ __align__(
        16) unsigned char bytes[2 * max_of(static_cast<int>(sizeof(batch)), static_cast<int>(sizeof(row_batch)))];
    return bytes;
}
template <class B> DEV B (*room_for())[2] { return reinterpret_cast<B(*)[2]>(back_room()); }

// ---- places ------------------------------------------------------------------------------------------

// The line of a token in a tensor [b, h, t, ..] of the workspace.
template <class P> DEV i64 line_of(const P &p, const work &w, int place)
{
    return (static_cast<i64>(w.s.batch) * p.z.n_h + w.h) * p.z.len_q + sequence::token(w.s, place);
}
template <class P> DEV i64 first_line(const P &p, const work &w)
{
    return (static_cast<i64>(w.s.batch) * p.z.n_h + w.h) * p.z.len_q;
}

DEV const dout_element *dout_of(const linear_back_params &p, const work &w, int column)
{
    return static_cast<const dout_element *>(p.dout) + (w.s.batch * p.dout_b + w.h * p.dout_h + column);
}

// A tile at the end of a chunk: inside of a sequence in p.chunks, where the chunk that follows begins (two ends are
// never in one piece of CHUNK tokens); at the end of one in p.ends, which is there where a gradient comes in.
template <int ROWS, int WIDE, int SLICES> struct saved_tile {
    using s = shape<ROWS>;
    static constexpr int FLOATS = s::GROUPS * 4 * s::N * THREADS;

    DEV float *place_of(const linear_back_params &p, const work &w, int end)
    {
        const i64 piece = static_cast<i64>(w.s.batch) * ((p.z.len_q + CHUNK - 1) / CHUNK) + (w.s.first + end) / CHUNK;
        const i64 which = end < w.s.length ? piece : w.s.number;
        float *base = end < w.s.length ? p.chunks : p.ends;
        return head_of(base, ((which * p.z.n_h + w.h) * SLICES + w.first / s::COLUMNS) * FLOATS +
                                 static_cast<int>(threadIdx.x) * s::N);
    }
    // f(place, four columns or two).
    template <class F> DEV void each(float *base, tile<ROWS, WIDE> &t, const F &f)
    {
        if (base == nullptr) {
            return;
        }
#pragma unroll
        for (int g = 0; g < s::GROUPS; g++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                f(base + (g * 4 + e) * THREADS * s::N, t.x[g][e]);
            }
        }
    }
    DEV void save(const linear_back_params &p, const work &w, int end, tile<ROWS, WIDE> &t)
    {
        each(place_of(p, w, end), t, [](float *to, const float(&x)[WIDE]) {
            float own[s::N];
#pragma unroll
            for (int n = 0; n < s::N; n++) {
                own[n] = x[n];
            }
            store_vec<s::N, float>(to, own);
        });
    }
    // Sums over the rows of the saved tile times this one.
    DEV void products(const linear_back_params &p, const work &w, int end, tile<ROWS, WIDE> &t, float (&sum)[s::N])
    {
#pragma unroll
        for (int n = 0; n < s::N; n++) {
            sum[n] = 0.0f;
        }
        each(place_of(p, w, end), t, [&](const float *from, const float(&x)[WIDE]) {
            float other[s::N];
            load_vec<s::N, float>(from, other);
#pragma unroll
            for (int n = 0; n < s::N; n++) {
                sum[n] += other[n] * x[n];
            }
        });
        sum_rows(sum);
    }
};

// Sums from a token on to the end of its chunk; lanes with lane % 4 = 0 .. 3 have four tokens that follow each other,
// and eight lanes the same columns.
template <int N> struct sums_to_end {
    float behind[N]; // of the tokens of the chunk behind the four

    // x: a token's own, then its sum.
    __device__ __forceinline__ void take_four(float (&x)[N])
    {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int token = lane_id() % 4;
            const float next = __shfl_down_sync(ALL_LANES, x[n], 1);
            x[n] += token < 3 ? next : 0.0f;
            const float later = __shfl_down_sync(ALL_LANES, x[n], 2);
            x[n] += token < 2 ? later : 0.0f;
            x[n] += behind[n];
            behind[n] = __shfl_sync(ALL_LANES, x[n], lane_id() & ~3);
        }
    }
};

// Does a decay leave nothing? Then nothing flows back to its logarithm, which may be large: what is left of sums that
// cancel would be multiplied by it.
DEV bool forgets(float by) { return by >= ALL_LOST; }

// Does a chunk end before `place`, a multiple of the tokens of a batch, or the sequence?
DEV bool is_end(const work &w, int place) { return place % CHUNK == 0 || place >= w.s.length; }

// The places of batches from the last to the first.
DEV int last_batch(const work &w, int tokens) { return max(0, w.s.length - 1) / tokens * tokens; }

} // namespace linear
