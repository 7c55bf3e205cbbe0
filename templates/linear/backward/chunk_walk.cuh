// linear/backward/chunk_walk.cuh: the walk of one warpgroup along the chunks of a sequence, with 64 columns of a
// result: o or one of its three gradients.
//
// All four are one sum with its operands renamed. With G the sum of the decays' logarithms from the chunk's start on,
// to the base 2, and P_ij = scale x_i y_j 2^(the decays between i and j), of the pairs in which j is not behind i on
// the walk:
//     result_i = r_i S x_i + sum_j P_ij z_j,     then S = 2^(G_end) S + sum_j w_j z_j y_j'
//         o: q, k, v forward       dq: do, v, k forward       dk: v, do, q backward       dv: k, q, do backward
//         (x, y, z) with r_i = scale 2^G_i and w_j = 2^(G_end - G_j) on the way forward, and the other way round on the
//         way back. No exponent is above 0. S is kept transposed, in f32 fragments of 64 columns of z by all of y,
//         which rounded are the A operand as they stand.
//
// The gradient of a decay's logarithm is the sum of q dq - k dk over the tokens from it on. Of a long sequence such
// sums cancel to what is far below them, so what is cancelled must be the same numbers: each path from a key to an
// output counts in q dq and in k dk by the same rounded factors. Hence S as two numbers of 16 bits, and beside S q and
// k as the other walk has rounded them.
#pragma once
#include "common/mma_sm80.cuh"
#include "linear/backward/parts.cuh"

namespace linear
{

enum chunk_result { RESULT_OUTPUT, RESULT_QUERY, RESULT_KEY, RESULT_VALUE };

constexpr int PAD_D = round_up(cfg::D, 64), PAD_V = round_up(cfg::D_V, 64);
constexpr int SLICES_D = KEY_SLICES, SLICES_V = PAD_V / 64;
constexpr int CHUNK_TOKENS = PANEL_ROWS;
static_assert(PAD_D <= 128 && PAD_V <= 128, "head dims up to 128");
static_assert(!DECAY_BY_KEY && !DECAY_BY_VALUE, "a decay is one number a token");
static_assert(!cfg::DELTA && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the additive family");

// Is the gradient of the decay wanted, as sums of q dq and k dk?
constexpr bool SUMS_DECAY = cfg::DECAY_GRADIENT && DECAYS;

struct chunk_stage { // of the tokens of a chunk, bytes
    static constexpr int Q = 0, K = Q + SLICES_D * PANEL, V = K + SLICES_D * PANEL, DOUT = V + SLICES_V * PANEL;
    static constexpr int BYTES = DOUT + SLICES_V * PANEL;
};

template <chunk_result WHAT> struct chunk_operands {
    static constexpr bool BACK = WHAT == RESULT_KEY || WHAT == RESULT_VALUE; // from the last token to the first
    static constexpr bool OF_KEYS = WHAT == RESULT_QUERY || WHAT == RESULT_KEY;
    static constexpr int DIM = OF_KEYS ? cfg::D : cfg::D_V;   // of the result
    static constexpr int DEPTH = OF_KEYS ? PAD_V : PAD_D;     // of x and y
    static constexpr int OTHER = OF_KEYS ? cfg::D_V : cfg::D; // of which so many exist
    static constexpr int X = WHAT == RESULT_OUTPUT  ? chunk_stage::Q
                             : WHAT == RESULT_QUERY ? chunk_stage::DOUT
                             : WHAT == RESULT_KEY   ? chunk_stage::V
                                                    : chunk_stage::K;
    static constexpr int Y = WHAT == RESULT_OUTPUT  ? chunk_stage::K
                             : WHAT == RESULT_QUERY ? chunk_stage::V
                             : WHAT == RESULT_KEY   ? chunk_stage::DOUT
                                                    : chunk_stage::Q;
    static constexpr int Z = WHAT == RESULT_OUTPUT  ? chunk_stage::V
                             : WHAT == RESULT_QUERY ? chunk_stage::K
                             : WHAT == RESULT_KEY   ? chunk_stage::Q
                                                    : chunk_stage::DOUT;
    // what the result is the gradient of
    static constexpr int OWN = WHAT == RESULT_QUERY ? chunk_stage::Q : chunk_stage::K;
};

DEV int chunks_of(const work &w) { return (w.s.length + CHUNK_TOKENS - 1) / CHUNK_TOKENS; }

// A warpgroup of 128 threads. SHARES: its scores are made by it and the next one together, of which each needs all.
template <chunk_result WHAT, bool SHARES> struct chunk_walk {
    using operand = cfg::operand;
    using operands = chunk_operands<WHAT>;
    // of the tensor that the result is the gradient of
    using result_element = typename pick<WHAT == RESULT_QUERY, cfg::element_q,
                                         typename pick<WHAT == RESULT_KEY, cfg::element_k, cfg::element_v>::type>::type;
    static constexpr bool BACK = operands::BACK;
    static constexpr int DEPTH = operands::DEPTH;
    static constexpr int SCORES = SHARES ? CHUNK_TOKENS / 2 : CHUNK_TOKENS; // columns
    static constexpr bool SUMS = SUMS_DECAY && operands::OF_KEYS;

    const linear_back_params &p;
    const work &w;
    int group;  // the warpgroup's number among those that compute
    int slice;  // 64 columns of the result
    u32 scores; // tiles in shared memory: of the scores, where SHARES two in turn,
    u32 result; // and of the result, PANEL bytes each;
    u32 parts;  // a float for each warp and token

    DEV int warp() { return product_warp(); }
    __device__ __forceinline__ int row() const { return warp() * 16 + lane_id() / 4; } // and 8 further on
    __device__ __forceinline__ int column() const { return lane_id() % 4 * 2; }
    __device__ __forceinline__ void meet() const { barrier_sync(static_cast<u32>(1 + group), 128); }
    __device__ __forceinline__ void meet_for_scores() const
    {
        if constexpr (SHARES) {
            barrier_sync(3, 256);
        } else {
            meet();
        }
    }
    // Of token pairs: 8 tokens further on for each.
    DEV void load_logs(float (&log)[2], u32 sums, int token)
    {
        const float2 two = load_shared8(sums + static_cast<u32>(4 * token));
        log[0] = two.x;
        log[1] = two.y;
    }
    // 2^G, and what is left from there to the chunk's end.
    __device__ __forceinline__ float by_query(float log) const { return DECAYS ? w.scale * exp2_approx(log) : w.scale; }
    DEV float by_key(float log, float end) { return DECAYS ? exp2_approx(end - log) : 1.0f; }
    __device__ __forceinline__ float read_by(float log, float end) const
    {
        return BACK ? by_key(log, end) : by_query(log);
    }
    __device__ __forceinline__ float write_by(float log, float end) const
    {
        return BACK ? by_query(log) : by_key(log, end);
    }

    // f(element, channel of the slice, column of the other side).
    template <class F> __device__ __forceinline__ void each_of_state(float (&state)[DEPTH / 8][4], const F &f) const
    {
#pragma unroll
        for (int b = 0; b < DEPTH / 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f(state[b][i], row() + i / 2 * 8, b * 8 + column() + i % 2);
            }
        }
    }
    // f(element, place in memory), of what exists of a state [d, d_v] or its gradient.
    template <class F>
    __device__ __forceinline__ void each_in_memory(float (&state)[DEPTH / 8][4], i64 s_i, i64 s_j, const F &f) const
    {
        each_of_state(state, [&](float &a, int own, int other) {
            const int channel = slice * 64 + own;
            if (channel < operands::DIM && other < operands::OTHER) {
                f(a, operands::OF_KEYS ? channel * s_i + other * s_j : other * s_i + channel * s_j);
            }
        });
    }

    // ---- one chunk -----------------------------------------------------------------------------------

    // What is left of S when its 16 bits are taken away, as 16 bits.
    DEV void pack_rest(u32 (&rest)[DEPTH / 16][4], const float (&state)[DEPTH / 8][4], const u32 (&a)[DEPTH / 16][4])
    {
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float low;
                float high;
                unpack<operand>(a[k][i], low, high);
                rest[k][i] = pack<operand>(state[2 * k + i / 2][2 * (i % 2)] - low,
                                           state[2 * k + i / 2][2 * (i % 2) + 1] - high);
            }
        }
    }
    __device__ __forceinline__ void weigh_scores(float (&s)[SCORES / 8][4], u32 sums) const
    {
        float from[2] = {};
        if constexpr (DECAYS) {
            from[0] = load_shared(sums + static_cast<u32>(4 * row()));
            from[1] = load_shared(sums + static_cast<u32>(4 * row() + 32));
        }
#pragma unroll
        for (int b = 0; b < SCORES / 8; b++) {
            const int to = (SHARES ? group * SCORES : 0) + b * 8 + column();
            float log[2] = {};
            if constexpr (DECAYS) {
                load_logs(log, sums, to);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row() + i / 2 * 8;
                const bool live = BACK ? to + i % 2 >= r : to + i % 2 <= r;
                const float apart = BACK ? log[i % 2] - from[i / 2] : from[i / 2] - log[i % 2];
                const float by = DECAYS ? w.scale * exp2_approx(live ? apart : 0.0f) : w.scale;
                s[b][i] = live ? s[b][i] * by : 0.0f;
            }
        }
    }
    // z as the state takes it up.
    __device__ __forceinline__ void load_written(u32 (&z)[CHUNK_TOKENS / 16][4], u32 tile, u32 sums, float end) const
    {
#pragma unroll
        for (int k = 0; k < CHUNK_TOKENS / 16; k++) {
            load_matrix4_transposed(z[k], tile + place_of_rows(16 * k));
            if constexpr (DECAYS || BACK) {
                float by[4] = {};
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float log[2] = {};
                    if constexpr (DECAYS) {
                        load_logs(log, sums, 16 * k + 8 * e + column());
                    }
                    by[2 * e] = write_by(log[0], end);
                    by[2 * e + 1] = write_by(log[1], end);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float low;
                    float high;
                    unpack<operand>(z[k][i], low, high);
                    z[k][i] = pack<operand>(low * by[i / 2 * 2], high * by[i / 2 * 2 + 1]);
                }
            }
        }
    }
    // The result of S: f(element, number of the pair of tokens, factor it is to have) comes first.
    template <class F>
    __device__ __forceinline__ void weigh_result(float (&o)[8][4], u32 sums, float end, const F &f) const
    {
#pragma unroll
        for (int b = 0; b < 8; b++) {
            float by[2];
            float log[2] = {};
            if constexpr (DECAYS) {
                load_logs(log, sums, 8 * b + column());
            }
            by[0] = read_by(log[0], end);
            by[1] = read_by(log[1], end);
            f(b, by);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[b][i] *= by[i % 2];
            }
        }
    }
    // q or k of the result's channels, as fragments like those of o: tokens 8 b .. 8 b + 15, b even.
    __device__ __forceinline__ void load_own(u32 (&own)[4], u32 tiles, int b) const
    {
        load_matrix4_transposed(own, tiles + operands::OWN + static_cast<u32>(slice * PANEL) + place_of_rows(8 * b));
    }
    DEV void own_pair(const u32 (&own)[4], int b, int r, float (&x)[2])
    {
        unpack<operand>(own[b % 2 * 2 + r], x[0], x[1]);
    }

    // Of the lanes whose numbers differ in bit 2 HALF one has the sums of the first HALF, the other those of the
    // others.
    template <int HALF> DEV void halve(float (&sum)[16], int lane)
    {
        const bool high = (lane & 2 * HALF) != 0;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const float kept = high ? sum[i + HALF] : sum[i];
            sum[i] = kept + __shfl_xor_sync(ALL_LANES, high ? sum[i] : sum[i + HALF], 2 * HALF);
        }
    }
    // Over this warp's channels, of all tokens: to memory that the warpgroup shares.
    __device__ __forceinline__ void leave_sums(float (&sum)[16]) const
    {
        const int lane = lane_id();
        halve<8>(sum, lane);
        halve<4>(sum, lane);
        halve<2>(sum, lane);
        const int b = (lane >> 4 & 1) * 4 + (lane >> 3 & 1) * 2 + (lane >> 2 & 1);
        const u32 to = parts + static_cast<u32>(4 * (warp() * CHUNK_TOKENS + 8 * b + column()));
        store_shared(to, sum[0]);
        store_shared(to + 4, sum[1]);
    }
    __device__ __forceinline__ void store_sums(int place) const
    {
        const int token = static_cast<int>(threadIdx.x) % 128;
        if (token < CHUNK_TOKENS && w.has(place + token)) {
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                sum += load_shared(parts + static_cast<u32>(4 * (k * CHUNK_TOKENS + token)));
            }
            float *to = WHAT == RESULT_QUERY ? p.reads : p.writes;
            to[line_of(p, w, place + token) * SLICES_D + slice] = sum;
        }
    }

    // ---- the result ----------------------------------------------------------------------------------

    static constexpr bool IN_FLOATS = WHAT == RESULT_OUTPUT || (WHAT == RESULT_QUERY ? cfg::DQ_F32
                                                                : WHAT == RESULT_KEY ? cfg::DK_F32
                                                                                     : cfg::DV_F32);

    static constexpr bool ADDS_SKIP = WHAT == RESULT_VALUE && cfg::SKIP && !cfg::DV_F32;

    struct target { // of the sequence's head
        void *base;
        i64 token; // elements from token to token
    };
    // Heads of v that share one of q and k leave their parts apart.
    __device__ __forceinline__ bool is_part() const { return operands::OF_KEYS && p.z.n_h != p.z.n_h_kv; }
    __device__ __forceinline__ target part_target() const
    {
        constexpr int DIM = operands::DIM;
        return {(WHAT == RESULT_OUTPUT  ? p.again_o
                 : WHAT == RESULT_QUERY ? p.dq_head
                                        : p.dk_head) +
                    first_line(p, w) * DIM,
                DIM};
    }
    __device__ __forceinline__ target target_of() const
    {
        if constexpr (WHAT == RESULT_OUTPUT) {
            return part_target();
        } else {
            constexpr int BYTES = IN_FLOATS ? 4 : static_cast<int>(sizeof(result_element));
            void *base = WHAT == RESULT_QUERY ? p.dq : WHAT == RESULT_KEY ? p.dk : p.dv;
            const i64 b = WHAT == RESULT_QUERY ? p.dq_b : WHAT == RESULT_KEY ? p.dk_b : p.dv_b;
            const i64 h = WHAT == RESULT_QUERY ? p.dq_h : WHAT == RESULT_KEY ? p.dk_h : p.dv_h;
            const i64 t = WHAT == RESULT_QUERY ? p.dq_t : WHAT == RESULT_KEY ? p.dk_t : p.dv_t;
            return {base == nullptr ? base : static_cast<char *>(base) + (w.s.batch * b + w.h * h) * BYTES, t};
        }
    }
    __device__ __forceinline__ void store_floats(const target &to, const float (&o)[8][4], int place) const
    {
        if (to.base == nullptr) {
            return;
        }
#pragma unroll
        for (int b = 0; b < 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = place + 8 * b + column() + i % 2;
                const int channel = slice * 64 + row() + i / 2 * 8;
                if (w.has(at) && channel < operands::DIM) {
                    static_cast<float *>(to.base)[sequence::token(w.s, at) * to.token + channel] = o[b][i];
                }
            }
        }
    }
    // What comes to v through the output mod.
    __device__ __forceinline__ void add_skip(float (&o)[8][4], int place) const
    {
#pragma unroll
        for (int b = 0; b < 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = place + 8 * b + column() + i % 2;
                const int channel = slice * 64 + row() + i / 2 * 8;
                if (w.has(at) && channel < cfg::D_V) {
                    o[b][i] += p.skip[line_of(p, w, at) * cfg::D_V + channel];
                }
            }
        }
    }
    __device__ __forceinline__ void store_result(int place) const
    {
        const target to = target_of();
        const int chunk = static_cast<int>(threadIdx.x) % 8;
        const int channel = slice * 64 + chunk * 8;
        if (to.base == nullptr || channel >= operands::DIM) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int token = static_cast<int>(threadIdx.x) % 128 / 8 + 16 * i;
            if (w.has(place + token)) {
                const uint4 x = load_shared16(result + panel::offset<CHUNK_TOKENS>(token, chunk));
                result_element *at =
                    static_cast<result_element *>(to.base) + (sequence::token(w.s, place + token) * to.token + channel);
                if (is_aligned<16>(at)) {
                    *reinterpret_cast<uint4 *>(at) = x;
                } else {
                    const u32 word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        at[e].bits = static_cast<u16>(word[e / 2] >> (16 * (e % 2)));
                    }
                }
            }
        }
    }

    // ---- the way -------------------------------------------------------------------------------------

    // Tokens of a chunk at `tiles`, the sums of their logarithms at `sums`. release() is called when nothing of them is
    // read any more.
    template <class RELEASE> __device__ __forceinline__ void step(float (&state)[DEPTH / 8][4], u32 tiles, u32 sums,
                                                                  int n, int place, const RELEASE &release) const
    {
        const u32 x = tiles + operands::X;
        const u32 y = tiles + operands::Y;
        const u32 z = tiles + operands::Z + static_cast<u32>(slice * PANEL);
        const u32 tile = scores + (SHARES ? static_cast<u32>(n % 2 * PANEL) : 0u);
        const float end = DECAYS ? load_shared(sums + 4 * (CHUNK_TOKENS - 1)) : 0.0f;
        float s[SCORES / 8][4];
        float o[8][4];
        u32 a[DEPTH / 16][4];
        u32 rest[SUMS ? DEPTH / 16 : 1][4];
        pack_weights<operand, DEPTH / 8>(a, state); // ahead of all products: else the compiler waits for them
        if constexpr (SUMS) {
            pack_rest(rest, state, a);
        }
        start_scores<operand, DEPTH, SCORES>(s, x, y + (SHARES ? static_cast<u32>(group * SCORES * 128) : 0u));
        fence_products(o);
        add_inter<operand, DEPTH>(o, a, x, 0);
        if constexpr (SUMS) {
            add_inter<operand, DEPTH>(o, rest, x, 1);
        }
        commit_products();
        wait_products<1>(s);
        weigh_scores(s, sums);
        leave_scores<operand>(tile, s, SHARES ? group * SCORES / 8 : 0);
        fence_written();
        u32 written[CHUNK_TOKENS / 16][4];
        load_written(written, z, sums, end);
        wait_products<0>(o);
        float sum[SUMS ? 16 : 1] = {};
        u32 own[4];
        weigh_result(o, sums, end, [&](int b, const float(&by)[2]) {
            if constexpr (SUMS) { // beside S as the other walk writes it: that less what the sum below has
                if (b % 2 == 0) {
                    load_own(own, tiles, b);
                }
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float pair[2];
                    float rounded[2];
                    own_pair(own, b, r, pair);
                    unpack<operand>(pack<operand>(pair[0] * by[0], pair[1] * by[1]), rounded[0], rounded[1]);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        sum[2 * b + j] += (rounded[j] - pair[j] * by[j]) * o[b][2 * r + j];
                    }
                }
            }
        });
        if constexpr (DECAYS) {
            const float by = exp2_approx(end);
            each_of_state(state, [&](float &e, int, int) { e *= by; });
        }
        meet_for_scores();
        start_intra<operand>(o, z, tile);
        start_update<operand, DEPTH>(state, written, y);
        wait_products<1>(o);
        if constexpr (SUMS) {
#pragma unroll
            for (int b = 0; b < 8; b++) {
                if (b % 2 == 0) {
                    load_own(own, tiles, b);
                }
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float pair[2];
                    own_pair(own, b, r, pair);
                    sum[2 * b] += pair[0] * o[b][2 * r];
                    sum[2 * b + 1] += pair[1] * o[b][2 * r + 1];
                }
            }
            leave_sums(sum);
        }
        if constexpr (!IN_FLOATS && !ADDS_SKIP) {
            leave_transposed<operand>(result, o);
        }
        wait_products<0>(state); // what branches comes behind it
        release();
        if constexpr (ADDS_SKIP) {
            add_skip(o, place);
            leave_transposed<operand>(result, o);
        }
        meet(); // for what was left, and for the tile of scores, which is the next chunk's, too
        if constexpr (SUMS) {
            store_sums(place);
        }
        if (IN_FLOATS || is_part()) {
            store_floats(is_part() ? part_target() : target_of(), o, place);
        } else {
            store_result(place);
        }
    }
    __device__ __forceinline__ void begin(float (&state)[DEPTH / 8][4]) const
    {
        each_of_state(state, [](float &a, int, int) { a = 0.0f; });
        const cfg::element_state *from = BACK
                                             ? head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h)
                                             : head_of(p.state, w.s.number * p.state_b + w.h * p.state_h);
        if (from != nullptr) {
            each_in_memory(state, BACK ? p.dstate_out_i : p.state_i, BACK ? p.dstate_out_j : p.state_j,
                           [&](float &a, i64 at) { a = to_float(from[at]); });
        }
    }
    // The last state times its gradient: what the decays of all tokens get beside sums of tokens.
    __device__ __forceinline__ void store_end(float (&state)[DEPTH / 8][4]) const
    {
        const cfg::element_state *from = head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h);
        if (from == nullptr) {
            return;
        }
        float sum = 0.0f;
        each_in_memory(state, p.dstate_out_i, p.dstate_out_j, [&](float &a, i64 at) { sum += a * to_float(from[at]); });
        sum = lanes_sum<32>(sum);
        meet();
        if (lane_id() == 0) {
            store_shared(parts + static_cast<u32>(4 * warp()), sum);
        }
        meet();
        if (threadIdx.x % 128 == 0) {
            sum = 0.0f;
            for (int k = 0; k < 4; k++) {
                sum += load_shared(parts + static_cast<u32>(4 * k));
            }
            p.ends[(static_cast<i64>(w.s.number) * p.z.n_h + w.h) * SLICES_D + slice] = sum;
        }
    }
    __device__ __forceinline__ void finish(float (&state)[DEPTH / 8][4]) const
    {
        if constexpr (WHAT == RESULT_KEY) {
            cfg::element_state *to = head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h);
            if (to != nullptr) {
                each_in_memory(state, p.dstate_i, p.dstate_j,
                               [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
            }
        } else if constexpr (WHAT == RESULT_QUERY && SUMS) {
            store_end(state);
        }
    }
    // wait(n): until the n-th chunk on the way is there; it gives struct {u32 tiles, sums}. leave(n): the warp is done
    // with it.
    template <class WAIT, class LEAVE> __device__ __forceinline__ void run(const WAIT &wait, const LEAVE &leave) const
    {
        float state[DEPTH / 8][4];
        begin(state);
        const int chunks = chunks_of(w);
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const auto at = wait(n);
            step(state, at.tiles, at.sums, n, (BACK ? chunks - 1 - n : n) * CHUNK_TOKENS, [&] { leave(n); });
        }
        finish(state);
    }
};

} // namespace linear
