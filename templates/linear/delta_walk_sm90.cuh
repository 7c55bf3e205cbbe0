// linear/delta_walk_sm90.cuh: the walk of a warpgroup along the chunks of a sequence, with 64 columns of the state of a
// head; backward/delta_sm90.cuh walks so, too.
//
// X = T (v - e^G k S), o = scale e^G q S + pairs X, S = e^G_end S + k' (e^(G_end - G) X). All of it is kept with
// columns as rows, in f32 fragments of wgmma: what one product leaves is, rounded, an operand of the next as it stands,
// and the state never leaves the registers. No exponent is above 0.
#pragma once
#include "linear/inverse_tiles.cuh"
#include "linear/loader_sm90.cuh"

namespace linear
{

static_assert(cfg::DECAY == DECAY_NONE || cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN,
              "a decay is one number a token");
static_assert(CHUNK_PAD <= 128, "head dims up to 128");
static_assert(cfg::DELTA && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the delta rule");
static_assert(same_type<cfg::operand, bf16>, "S in 16 bits has the range of f32");
static_assert(PANEL_ROWS == CHUNK_TOKENS && CHUNK_COLUMNS == 64 && STAGES >= 2, "a chunk has the rows of a product");

constexpr int GROUPS = cfg::VALUE_GROUPS; // warpgroups of a block with CHUNK_COLUMNS columns of the state each
constexpr int BLOCK_COLUMNS = GROUPS * CHUNK_COLUMNS;
constexpr int BLOCK_SLICES = (cfg::D_V + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
static_assert(GROUPS == 1 || GROUPS == 2, "cfg::VALUE_GROUPS is 1 or 2");

struct delta_stage { // of the tokens of a chunk, bytes; o takes the place of v
    static constexpr int K = 0, Q = K + CHUNK_PAD / 64 * PANEL, V = Q + CHUNK_PAD / 64 * PANEL,
                         INVERSE = V + GROUPS * PANEL, BYTES = INVERSE + 2 * PANEL;
};
// floats, of a stage: G, to the base 2, what is left of the state at a token, and of what a token writes at the chunk's
// end
struct delta_factors {
    static constexpr int SUMS = 0, READ = CHUNK_TOKENS, WRITE = 2 * CHUNK_TOKENS, COUNT = 3 * CHUNK_TOKENS;
};
struct delta_layout { // in shared memory, bytes
    static constexpr int STAGE = delta_stage::BYTES, PAIRS = STAGES * STAGE, FACTORS = PAIRS + PANEL;
    static constexpr int BARRIERS = FACTORS + STAGES * delta_factors::COUNT * 4,
                         MADE = BARRIERS + ring_barriers<STAGES>::BYTES;
    static constexpr int END = MADE + ring_barriers<1>::BYTES;
};
using delta_ring = loader_ring<delta_layout>;
DEV u32 factors_of(u32 shared, int n)
{
    return shared + delta_layout::FACTORS + delta_ring::nth(n).stage * (delta_factors::COUNT * 4);
}

// What a block is to find out: o, the state alone, or the gradient of the state, from the last chunk to the first.
enum delta_task { DELTA_OUTPUT, DELTA_STATE, DELTA_GRADIENT };
struct delta_span {
    int first, count; // chunks of the sequence
    // The n-th one of a walk.
    template <delta_task TASK> __device__ __forceinline__ int nth(int n) const
    {
        return TASK == DELTA_GRADIENT ? first + count - 1 - n : first + n;
    }
};

// Of the tile of pairs: there is one.
struct pairs_barriers {
    ring_barriers<1> barriers;
    DEV pairs_barriers of(u32 shared) { return {{shared + delta_layout::MADE}}; }
    __device__ __forceinline__ void init() const
    {
        mbarrier_init(barriers.full(0), 4);
        mbarrier_init(barriers.empty(0), 4 * GROUPS);
    }
    __device__ __forceinline__ void wait_made(int n) const
    {
        barriers.template wait_full<cfg::BOUND_WAITS>(ring_place<1>::nth(static_cast<u32>(n)));
    }
    __device__ __forceinline__ void wait_taken(int n) const
    {
        barriers.template wait_empty<cfg::BOUND_WAITS>(ring_place<1>::nth(static_cast<u32>(n)));
    }
    // By each lane of a warp.
    __device__ __forceinline__ void made() const
    {
        fence_async_proxy();
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(barriers.full(0));
        }
    }
    __device__ __forceinline__ void taken() const
    {
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(barriers.empty(0));
        }
    }
};

struct leave_nothing {
    template <int STEPS> __device__ __forceinline__ void state(const u32 (&)[STEPS][4], int) const {}
    template <int STEPS> __device__ __forceinline__ void written(const u32 (&)[STEPS][4], u32, int) const {}
};

template <class P, delta_task TASK> struct delta_walk {
    using operand = cfg::operand;
    static constexpr int DEPTH = CHUNK_PAD, STEPS = CHUNK_TOKENS / 16;
    const P &p;
    const work &w;
    u32 shared;

    DEV int group() { return GROUPS == 1 ? 0 : static_cast<int>(threadIdx.x) / 128 - 1; }
    // and 8 further on: columns of the block
    DEV int row() { return group() * CHUNK_COLUMNS + product_warp() * 16 + lane_id() / 4; }
    DEV int column() { return lane_id() % 4 * 2; }
    // f(element, place in memory), of what exists of the state.
    template <class F>
    DEV void each_in_memory(float (&state)[DEPTH / 8][4], const work &w, i64 s_i, i64 s_j, const F &f)
    {
#pragma unroll
        for (int b = 0; b < DEPTH / 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int channel = b * 8 + column() + i % 2;
                const int own = row() + i / 2 * 8;
                if (channel < cfg::D && own < w.left) {
                    f(state[b][i], channel * s_i + (w.first + own) * s_j);
                }
            }
        }
    }
    // Factors of two tokens, of 8 b + column() and the next.
    DEV float2 pair_of(u32 factors, int which, int b)
    {
        return load_shared8(factors + static_cast<u32>(4 * (which + 8 * b + column())));
    }

    // x becomes v - e^G x, rounded.
    DEV void correct(u32 (&z)[STEPS][4], const float (&x)[8][4], u32 values, u32 factors)
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            load_matrix4_transposed(z[k], values + place_of_rows(16 * k));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int b = 2 * k + half;
                const float2 by = DECAYS ? pair_of(factors, delta_factors::READ, b) : float2{1.0f, 1.0f};
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    u32 &word = z[k][2 * half + r];
                    float low;
                    float high;
                    unpack<operand>(word, low, high);
                    word = pack<operand>(low - by.x * x[b][2 * r], high - by.y * x[b][2 * r + 1]);
                }
            }
        }
    }
    // By a factor of each token.
    DEV void weigh(float (&x)[8][4], u32 factors, int which, float scale)
    {
#pragma unroll
        for (int b = 0; b < 8; b++) {
            const float2 by = DECAYS ? pair_of(factors, which, b) : float2{1.0f, 1.0f};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[b][i] *= (i % 2 ? by.y : by.x) * scale;
            }
        }
    }
    // f(element, place of its token, column of the block), of what exists of a result.
    template <class F>
    __device__ __forceinline__ void each_of_tokens(const float (&o)[8][4], int place, const F &f) const
    {
#pragma unroll
        for (int b = 0; b < 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = place + 8 * b + column() + i % 2;
                const int own = row() + i / 2 * 8;
                if (w.has(at) && own < w.left) {
                    f(o[b][i], at, own);
                }
            }
        }
    }
    // A result, rounded, as this lane stores it: eight columns of STEPS tokens, by way of where this warp's values
    // were.
    DEV void by_token(uint4 (&line)[STEPS], const u32 (&o)[STEPS][4], u32 values)
    {
        __syncwarp(); // values have been read
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            store_matrix4_transposed(values + place_of_rows(16 * k), o[k]);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            line[i] = load_shared16(
                values + panel::offset<PANEL_ROWS>(lane_id() / 2 + 16 * i, product_warp() * 2 + lane_id() % 2));
        }
    }
    // To lines of `base`, one a token. Places are counted in 16 bytes: of elements, the compiler would make four stores
    // of one.
    template <class T>
    __device__ __forceinline__ void store_lines(const uint4 (&line)[STEPS], int place, T *base, i64 stride) const
    {
        const int own = group() * CHUNK_COLUMNS + product_warp() * 16 + lane_id() % 2 * 8;
        const bool aligned = is_aligned<16>(base) && stride % 8 == 0;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const int at = place + lane_id() / 2 + 16 * i;
            if (!w.has(at) || own >= w.left) {
                continue;
            }
            if (aligned) {
                reinterpret_cast<uint4 *>(base)[sequence::token(w.s, at) * (stride / 8) + own / 8] = line[i];
            } else {
                T *to = base + (sequence::token(w.s, at) * stride + own);
                const u32 word[4] = {line[i].x, line[i].y, line[i].z, line[i].w};
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    to[e].bits = static_cast<u16>(word[e / 2] >> (16 * (e % 2)));
                }
            }
        }
    }
    template <class T> __device__ __forceinline__ void store_tokens(const u32 (&o)[STEPS][4], int place, u32 values,
                                                                    T *base, i64 stride) const
    {
        uint4 line[STEPS];
        by_token(line, o, values);
        store_lines(line, place, base, stride);
    }
    DEV u32 values_of(u32 tiles) { return tiles + delta_stage::V + static_cast<u32>(group() * PANEL); }
    // Chunk n of this walk, whose first token is at `place`; leave.state(S in front of it, rounded), leave.written(X).
    template <class LEAVE> __device__ __forceinline__ void step(float (&state)[DEPTH / 8][4], const delta_ring &ring,
                                                                int n, int place, const LEAVE &leave) const
    {
        const u32 tiles = delta_ring::tiles(shared, n);
        const u32 factors = factors_of(shared, n);
        u32 a[DEPTH / 16][4];
        u32 x[STEPS][4];
        u32 written[STEPS][4];
        float y[8][4];
        pack_weights<operand, DEPTH / 8>(a, state);
        ring.wait_full(n);
        fence_products(y);
        add_inter<operand, DEPTH>(y, a, tiles + delta_stage::K, 0);
        commit_products();
        leave.state(a, place);
        wait_products<0>(y);
        correct(x, y, values_of(tiles), factors);
        fence_products(y);
        add_inter<operand, CHUNK_TOKENS>(y, x, tiles + delta_stage::INVERSE + PANEL, 0);
        add_inter<operand, CHUNK_TOKENS>(y, x, tiles + delta_stage::INVERSE, 1);
        commit_products();
        wait_products<0>(y);
        pack_weights<operand, 8>(x, y);
        if constexpr (DECAYS) {
            weigh(y, factors, delta_factors::WRITE, 1.0f);
            decay(state, factors);
        }
        pack_weights<operand, 8>(written, y);
        if constexpr (TASK == DELTA_STATE) {
            start_update<operand, DEPTH>(state, written, tiles + delta_stage::K);
            leave.written(x, values_of(tiles), place);
            wait_products<0>(state);
        } else {
            read(state, a, x, written, n, place);
        }
        ring.leave(n);
    }
    DEV void decay(float (&state)[DEPTH / 8][4], u32 factors)
    {
        const float end = load_shared(factors + static_cast<u32>(4 * (delta_factors::READ + CHUNK_TOKENS - 1)));
#pragma unroll
        for (int b = 0; b < DEPTH / 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                state[b][i] *= end;
            }
        }
    }
    // o, and beside it what the state takes up.
    __device__ __forceinline__ void read(float (&state)[DEPTH / 8][4], const u32 (&a)[DEPTH / 16][4],
                                         const u32 (&x)[STEPS][4], const u32 (&written)[STEPS][4], int n,
                                         int place) const
    {
        const u32 tiles = delta_ring::tiles(shared, n);
        const pairs_barriers pairs = pairs_barriers::of(shared);
        float o[8][4];
        fence_products(o);
        add_inter<operand, DEPTH>(o, a, tiles + delta_stage::Q, 0);
        commit_products();
        wait_products<0>(o); // both results under way would take more registers than there are
        weigh(o, factors_of(shared, n), delta_factors::READ, w.scale);
        pairs.wait_made(n);
        start_update<operand, DEPTH>(state, written, tiles + delta_stage::K);
        fence_products(o);
        add_inter<operand, CHUNK_TOKENS>(o, x, shared + delta_layout::PAIRS, 1);
        commit_products();
        wait_products<0>(state);
        wait_products<0>(o);
        pairs.taken();
        const i64 first = w.s.batch * p.o_b + w.h * p.o_h + w.first;
        if constexpr (cfg::O_F32) {
            each_of_tokens(o, place, [&](float x, int at, int own) {
                static_cast<float *>(p.o)[first + sequence::token(w.s, at) * p.o_t + own] = x;
            });
        } else {
            u32 rounded[STEPS][4];
            pack_weights<operand, 8>(rounded, o);
            store_tokens(rounded, place, values_of(tiles), static_cast<cfg::element_o *>(p.o) + first, p.o_t);
        }
    }
    // f(element, place in a part).
    template <class F> DEV void each_of_part(float (&state)[DEPTH / 8][4], const F &f)
    {
#pragma unroll
        for (int b = 0; b < DEPTH / 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f(state[b][i], (row() + i / 2 * 8) * DEPTH + b * 8 + column() + i % 2);
            }
        }
    }
    DEV void store_part(float (&state)[DEPTH / 8][4], float *to)
    {
        each_of_part(state, [&](float &a, int at) { to[at] = a; });
    }
    template <class LEAVE = leave_nothing> __device__ __forceinline__ void
    walk(float (&state)[DEPTH / 8][4], const delta_ring &ring, const delta_span &span, const LEAVE &leave = {}) const
    {
#pragma unroll 1
        for (int n = 0; n < span.count; n++) {
            step(state, ring, n, span.nth<TASK>(n) * CHUNK_TOKENS, leave);
        }
    }
    __device__ __forceinline__ void load_state(float (&state)[DEPTH / 8][4], i64 slot) const
    {
        const cfg::element_state *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
        if (from != nullptr) {
            each_in_memory(state, w, p.state_i, p.state_j, [&](float &a, i64 at) { a = to_float(from[at]); });
        }
    }
    __device__ __forceinline__ void store_state(float (&state)[DEPTH / 8][4], i64 slot) const
    {
        cfg::element_state *to = head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h);
        if (to != nullptr) {
            each_in_memory(state, w, p.state_out_i, p.state_out_j,
                           [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
        }
    }
};

} // namespace linear
