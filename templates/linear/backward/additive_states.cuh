// linear/backward/additive_states.cuh: kernel: the two walks of the additive family's backward pass along the chunks of
// a sequence, with 64 rows and 64 columns of the state, or of its gradient, in f32 fragments: S' = e^(G_end) S +
// (e^(G_end - G) k)' v, dS = e^(G_end) dS' + (scale e^G q)' do. They leave S in front of each chunk, and dS' behind it.
// With a normaliser the sum of keys z goes beside S as a column whose values are 1, and dz beside dS; do is divided by
// the divisors by then. In f16 what is left is scaled (state_scale of walk.cuh).
//
// Launch of bwd_states: 2 * sequences * h * BANDS * SLICES_V * ROW_BLOCKS blocks of WALK_THREADS threads, an odd one
// goes back; smem_bytes::bwd_states of shared memory.
#pragma once
#include "linear/backward/additive_logs.cuh"

namespace linear
{

static_assert(!cfg::DELTA && cfg::CAUSAL && !DECAY_BY_VALUE, "the additive family, with no decay by value channel");
static_assert(!cfg::NORMALISE || (!cfg::BONUS && !STATE_SCALED), "the sum of keys beside states that are not scaled");
static_assert(same_type<cfg::operand, bf16> || same_type<cfg::operand, f16>, "mma.sync takes f16 or bf16");

constexpr int WALK_ROWS = 64, ROW_BLOCKS = KEY_PARTS * PAD_D / WALK_ROWS; // blocks that share the rows
// which a warp weighs, all rows of them
constexpr int WALK_WARPS = WALK_THREADS / 32, WALK_TOKENS = CHUNK_TOKENS / WALK_WARPS;

struct states_layout { // in shared memory, bytes
    static constexpr int KEYS = 0, VALUES = KEYS + CHUNK_TOKENS * WALK_ROWS * OPERAND,
                         STAGE = VALUES + CHUNK_TOKENS * CHUNK_COLUMNS * OPERAND;
    // of a chunk's warps, of two chunks; of each warp
    static constexpr int ENDS = 2 * STAGE, LARGEST = ENDS + 2 * WALK_WARPS * WALK_ROWS * 4,
                         END = LARGEST + WALK_WARPS * 4;
};

struct walk_logs { // to the base 2, of the tokens of a warp, of two channels; after sum(), from the first of them on
    float x[WALK_TOKENS][2];

    __device__ __forceinline__ void fetch(const linear_back_params &p, const work &w, int place, int channel)
    {
#pragma unroll
        for (int i = 0; i < WALK_TOKENS; i++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                x[i][e] = log_of(p, w, place + i, channel + e);
            }
        }
    }
    __device__ __forceinline__ void sum()
    {
#pragma unroll
        for (int i = 1; i < WALK_TOKENS; i++) {
            x[i][0] += x[i - 1][0];
            x[i][1] += x[i - 1][1];
        }
    }
    __device__ __forceinline__ float read(int i, int e) const
    {
        return !cfg::BONUS ? x[i][e] : i > 0 ? x[i - 1][e] : 0.0f;
    }
};

// The gradient of a token's divisor.
DEV float divisor_gradient(const linear_back_params &p, const work &w, int place)
{
    return w.has(place) ? p.divided[2 * line_of(p, w, place) + 1] : 0.0f;
}
// The sum of keys in front of a chunk, or the gradient of that behind it: of a channel.
DEV i64 norm_place(const linear_back_params &p, const work &w, int place, int channel)
{
    return chunk_of_head(p, w, place) * cfg::D + channel;
}

template <bool BACK> struct states_walk {
    using operand = cfg::operand;
    using layout = states_layout;
    using state_type = walked_rows<WALK_ROWS>;
    const linear_back_params &p;
    const work &w;
    int rows; // which 64
    u32 shared;

    DEV int warp() { return static_cast<int>(threadIdx.x) / 32; }
    __device__ __forceinline__ int first_channel() const { return rows * WALK_ROWS; }
    __device__ __forceinline__ int part() const { return first_channel() / PAD_D; }
    __device__ __forceinline__ int first_row() const { return first_channel() % PAD_D; } // of the part's state
    __device__ __forceinline__ u32 stage(int n) const { return shared + static_cast<u32>(n % 2 * layout::STAGE); }
    __device__ __forceinline__ u32 end_at(int n, int of_warp, int channel) const
    {
        return shared + static_cast<u32>(layout::ENDS + 4 * ((n % 2 * WALK_WARPS + of_warp) * WALK_ROWS + channel));
    }
    DEV int own_channel() { return 2 * lane_id(); }
    static constexpr bool WEIGHS = DECAYS || BACK;

    __device__ __forceinline__ void fetch(int n, int place) const
    {
        const u32 to = stage(n);
        if constexpr (BACK) {
            load_tokens<WALK_ROWS, cfg::element_q>(to + layout::KEYS, w, place, p.q,
                                                   w.s.batch * p.q_b + w.h_kv * p.q_h + first_channel(), p.q_t,
                                                   cfg::D - first_channel());
            load_tokens<CHUNK_COLUMNS, cfg::element_o>(to + layout::VALUES, w, place, p.dout,
                                                       w.s.batch * p.dout_b + w.h * p.dout_h + w.first, p.dout_t,
                                                       w.left);
        } else {
            load_tokens<WALK_ROWS, cfg::element_k>(to + layout::KEYS, w, place, p.k,
                                                   w.s.batch * p.k_b + w.h_kv * p.k_h + first_channel(), p.k_t,
                                                   cfg::D - first_channel());
            load_tokens<CHUNK_COLUMNS, cfg::element_v>(to + layout::VALUES, w, place, p.v,
                                                       w.s.batch * p.v_b + w.h * p.v_h + w.first, p.v_t, w.left);
        }
        copy_commit();
    }
    __device__ __forceinline__ u32 largest_at(int of_warp) const
    {
        return shared + static_cast<u32>(layout::LARGEST + 4 * of_warp);
    }
    __device__ __forceinline__ void leave_largest(float x) const
    {
        if (lane_id() == 0) {
            store_shared(largest_at(warp()), x);
        }
    }
    // By the largest element that warps have left.
    __device__ __forceinline__ state_scale scale() const
    {
        if constexpr (!STATE_SCALED) {
            return {1.0f, 1.0f};
        }
        float most = 0.0f;
#pragma unroll
        for (int k = 0; k < WALK_WARPS; k++) {
            most = fmaxf(most, load_shared(largest_at(k)));
        }
        return state_scale::of(most);
    }
    // In 16 bits, 16 bytes a lane.
    __device__ __forceinline__ void leave(state_type &state, int place) const
    {
        const state_scale scaled = scale();
        operand *base = static_cast<operand *>(BACK ? p.dstates : p.states) + state_place(p, w, place, part());
        operand *to = base + (first_row() * PAD_V + column_of_band(w) + half_of() * HALF + lane_id() % 4 * 8);
        if (STATE_SCALED && threadIdx.x == 0) {
            *reinterpret_cast<float *>(base + scale_place(first_row(), column_of_band(w))) = scaled.back;
        }
#pragma unroll
        for (int m = 0; m < state_type::MT; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 word[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    word[n] = pack<operand>(scaled.by * state.x[m][n][2 * r], scaled.by * state.x[m][n][2 * r + 1]);
                }
                *reinterpret_cast<uint4 *>(to + row_of(state_type::row0(m), r) * PAD_V) =
                    transpose_four(word, lane_id());
            }
        }
    }
    __device__ __forceinline__ void leave_end(const walk_logs &logs, int n) const
    {
        store_shared(end_at(n, warp(), own_channel()), logs.x[WALK_TOKENS - 1][0]);
        store_shared(end_at(n, warp(), own_channel() + 1), logs.x[WALK_TOKENS - 1][1]);
    }
    // Keys as the state takes them up, or queries as its gradient does.
    __device__ __forceinline__ void weigh(const walk_logs &logs, int n) const
    {
        float before[2] = {};
        float end[2] = {};
#pragma unroll
        for (int k = 0; DECAYS && k < WALK_WARPS; k++) {
            const float2 of = load_shared8(end_at(n, k, own_channel()));
            before[0] += k < warp() ? of.x : 0.0f;
            before[1] += k < warp() ? of.y : 0.0f;
            end[0] += of.x;
            end[1] += of.y;
        }
#pragma unroll
        for (int i = 0; i < WALK_TOKENS; i++) {
            float x[2];
            const u32 at = pair_at<WALK_ROWS>(stage(n) + layout::KEYS, warp() * WALK_TOKENS + i, own_channel());
            unpack<operand>(__float_as_uint(load_shared(at)), x[0], x[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float log = BACK ? before[e] + logs.read(i, e) : end[e] - (before[e] + logs.x[i][e]);
                x[e] *= (BACK ? w.scale : 1.0f) * (DECAYS ? exp2_approx(log) : 1.0f);
            }
            store_shared(at, pack<operand>(x[0], x[1]));
        }
    }
    // What is left of a row's channel over a chunk.
    __device__ __forceinline__ float left(int row, int n) const
    {
        float log = 0.0f;
#pragma unroll
        for (int k = 0; DECAYS && k < WALK_WARPS; k++) {
            log += load_shared(end_at(n, k, row));
        }
        return exp2_approx(log);
    }
    // ---- the sum of keys: a channel a thread, in one block of those that share the value channels ----
    __device__ __forceinline__ int norm_channel() const { return first_channel() + static_cast<int>(threadIdx.x); }
    __device__ __forceinline__ bool has_norm() const
    {
        return cfg::NORMALISE && w.first == 0 && threadIdx.x < WALK_ROWS && norm_channel() < cfg::D;
    }
    __device__ __forceinline__ float first_norm() const
    {
        const cfg::element_state *from = BACK ? head_of(p.dnorm_out, w.s.number * p.dnorm_out_b + w.h * p.dnorm_out_h)
                                              : head_of(p.norm, w.s.number * p.norm_b + w.h * p.norm_h);
        return has_norm() && from != nullptr ? to_float(from[norm_channel() * (BACK ? p.dnorm_out_i : p.norm_i)])
                                             : 0.0f;
    }
    __device__ __forceinline__ void leave_norm(float sum, int place) const
    {
        if (has_norm()) {
            (BACK ? p.dnorms : p.norms)[norm_place(p, w, place, norm_channel())] = sum;
        }
    }
    __device__ __forceinline__ void leave_last_norm(float sum) const
    {
        cfg::element_state *to = head_of(p.dnorm, w.s.number * p.dnorm_b + w.h * p.dnorm_h);
        if (BACK && has_norm() && to != nullptr) {
            to[norm_channel() * p.dnorm_i] = from_float<cfg::element_state>(sum);
        }
    }
    // By whole warps: lanes have the tokens' values in turn.
    __device__ __forceinline__ float next_norm(float sum, int n, int place) const
    {
        const int channel = static_cast<int>(threadIdx.x) % WALK_ROWS;
        float value[2] = {1.0f, 1.0f};
        float next = 0.0f;
#pragma unroll
        for (int half = 0; BACK && half < 2; half++) {
            value[half] = divisor_gradient(p, w, place + 32 * half + lane_id());
        }
#pragma unroll 8
        for (int t = 0; t < CHUNK_TOKENS; t++) {
            float x[2];
            load_pair<WALK_ROWS>(stage(n) + layout::KEYS, t, channel & ~1, x[0], x[1]);
            next += x[channel & 1] * __shfl_sync(ALL_LANES, value[t / 32], t % 32);
        }
        return next + left(channel, n) * sum;
    }
    __device__ __forceinline__ void decay(state_type &state, int n) const
    {
#pragma unroll
        for (int m = 0; DECAYS && m < state_type::MT; m++) {
            scale_rows(state.x[m], row_pair::of(state_type::row0(m), [&](int row) { return left(row, n); }));
        }
    }
    __device__ __forceinline__ void run(state_type &state) const
    {
        const int chunks = chunks_of(w.s.length);
        const auto place_of = [&](int n) { return (BACK ? chunks - 1 - n : n) * CHUNK_TOKENS; };
        walk_logs logs;
        float norm = first_norm();
        if (chunks > 0) {
            fetch(0, place_of(0));
            logs.fetch(p, w, place_of(0) + warp() * WALK_TOKENS, first_channel() + own_channel());
        }
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const bool more = n + 1 < chunks;
            if constexpr (STATE_SCALED) {
                leave_largest(state.largest());
            } else {
                leave(state, place_of(n));
            }
            leave_norm(norm, place_of(n));
            if (WEIGHS) {
                logs.sum();
                leave_end(logs, n);
            }
            copy_wait<0>();
            __syncthreads();
            if constexpr (STATE_SCALED) {
                leave(state, place_of(n));
            }
            if (more) {
                fetch(n + 1, place_of(n + 1));
            }
            if (WEIGHS) {
                weigh(logs, n);
            }
            if (more) {
                logs.fetch(p, w, place_of(n + 1) + warp() * WALK_TOKENS, first_channel() + own_channel());
            }
            __syncthreads();
            decay(state, n);
            state.add(stage(n) + layout::KEYS, stage(n) + layout::VALUES);
            if (cfg::NORMALISE && w.first == 0) {
                norm = next_norm(norm, n, place_of(n));
            }
        }
        leave_last_norm(norm);
    }
};

template <bool BACK> DEV void walk_states(const linear_back_params &p, const work &w, int rows, unsigned char *bytes)
{
    typename states_walk<BACK>::state_type state;
    const int first = rows * WALK_ROWS;
    if constexpr (BACK) {
        state.load(w, head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h), p.dstate_out_i,
                   p.dstate_out_j, first);
    } else {
        state.load(w, head_of(p.state, w.s.number * p.state_b + w.h * p.state_h), p.state_i, p.state_j, first);
    }
    states_walk<BACK>{p, w, rows, shared_address(bytes)}.run(state);
    cfg::element_state *to = head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h);
    if (BACK && to != nullptr) {
        state.store(w, to, p.dstate_i, p.dstate_j, first);
    }
}

DEV void additive_states(const linear_back_params &p, unsigned char *bytes)
{
    const int block = static_cast<int>(blockIdx.x);
    const int rows = block / 2 % ROW_BLOCKS;
    const work w = work::of_number<BANDS * SLICES_V, CHUNK_COLUMNS>(p, cfg::D_V, block / 2 / ROW_BLOCKS);
    if (block % 2 == 0) {
        walk_states<false>(p, w, rows, bytes);
    } else {
        walk_states<true>(p, w, rows, bytes);
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_states = linear::states_layout::END;
}

#if LATHE_COMPILED(bwd_states)
extern "C" __global__ void __launch_bounds__(linear::WALK_THREADS, 4)
    LATHE_ENTRY(bwd_states)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::additive_states(p, shared_bytes);
}
#endif
