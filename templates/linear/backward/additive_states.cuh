// linear/backward/additive_states.cuh: kernel: the two walks of the additive family's backward pass along the chunks of a sequence, with 64 columns of the state,
// or of its gradient, in f32 fragments: S' = e^(G_end) S + (e^(G_end - G) k)' v, dS = e^(G_end) dS' + (scale e^G q)' do. They leave S in front of each chunk, and
// dS' behind it.
//
// Launch of bwd_states: 2 * sequences * h * SLICES_V blocks of WALK_THREADS threads, an odd one goes back; additive_states_smem_bytes() of shared memory.
#pragma once
#include "linear/backward/additive_logs.cuh"

namespace linear {

static_assert(!cfg::DELTA && !cfg::NORMALISE && cfg::CAUSAL && !DECAY_BY_VALUE, "the additive family, with no decay by value channel");
static_assert(same_type<cfg::element, bf16>, "states in 16 bits have the range of f32");

struct states_layout { // in shared memory, bytes
    static constexpr int KEYS = 0, VALUES = KEYS + CHUNK_TOKENS * PAD_D * 2, STAGE = VALUES + CHUNK_TOKENS * CHUNK_COLUMNS * 2;
    static constexpr int ENDS = 2 * STAGE, END = ENDS + 2 * BLOCKS * PAD_D * 4; // of a chunk's blocks, of two chunks
};
// As C, for the planner: 288 pad of d + 16384
constexpr int additive_states_smem_bytes() { return states_layout::END; }
static_assert(additive_states_smem_bytes() == 288 * PAD_D + 16384, "the planner says the same");

struct block_logs { // to the base 2, of the 16 tokens of a warp, of two channels; after sum(), from the first of them on
    float x[BLOCK][2];

    __device__ __forceinline__ void fetch(const linear_back_params &p, const work &w, int place, int channel)
    {
#pragma unroll
        for (int i = 0; i < BLOCK; i++) {
            const typename variant::row row = w.row(p, place + i);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const bool some = DECAYS && w.has(place + i) && channel + e < cfg::D;
                x[i][e] = some ? fmaxf(variant::decay(p.x, p.z, w.head, row, channel + e) * 0x1.715476p0f, LEAST_LOG) : 0.0f;
            }
        }
    }
    __device__ __forceinline__ void sum()
    {
#pragma unroll
        for (int i = 1; i < BLOCK; i++) {
            x[i][0] += x[i - 1][0];
            x[i][1] += x[i - 1][1];
        }
    }
    __device__ __forceinline__ float read(int i, int e) const { return !cfg::BONUS ? x[i][e] : i > 0 ? x[i - 1][e] : 0.0f; }
};

template <bool BACK> struct states_walk {
    using element = cfg::element;
    using layout = states_layout;
    const linear_back_params &p;
    const work &w;
    u32 shared;

    __device__ __forceinline__ u32 stage(int n) const { return shared + static_cast<u32>(n % 2 * layout::STAGE); }
    __device__ __forceinline__ u32 end_at(int n, int block, int channel) const
    {
        return shared + static_cast<u32>(layout::ENDS + 4 * ((n % 2 * BLOCKS + block) * PAD_D + channel));
    }
    // A warp weighs a block of 16 tokens, of 64 channels.
    DEV int own_channel() { return half_of() * 64 + 2 * lane_id(); }
    DEV bool weighs() { return half_of() * 64 < PAD_D && (DECAYS || BACK); }

    __device__ __forceinline__ void fetch(int n, int place) const
    {
        const u32 to = stage(n);
        if constexpr (BACK) {
            load_tokens<PAD_D>(to + layout::KEYS, w, place, p.q, w.s.batch * p.q_b + w.h_kv * p.q_h, p.q_t, cfg::D);
            load_tokens<CHUNK_COLUMNS>(to + layout::VALUES, w, place, p.dout, w.s.batch * p.dout_b + w.h * p.dout_h + w.first, p.dout_t, w.left);
        } else {
            load_tokens<PAD_D>(to + layout::KEYS, w, place, p.k, w.s.batch * p.k_b + w.h_kv * p.k_h, p.k_t, cfg::D);
            load_tokens<CHUNK_COLUMNS>(to + layout::VALUES, w, place, p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first, p.v_t, w.left);
        }
        copy_commit();
    }
    // In 16 bits, 16 bytes a lane.
    __device__ __forceinline__ void leave(walked_state &state, int place) const
    {
        element *to = static_cast<element *>(BACK ? p.dstates : p.states) + chunk_of_head(p, w, place) * STATE_ELEMENTS + w.first + half_of() * HALF + lane_id() % 4 * 8;
#pragma unroll
        for (int m = 0; m < walked_state::MT; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 word[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    word[n] = pack<element>(state.x[m][n][2 * r], state.x[m][n][2 * r + 1]);
                }
                *reinterpret_cast<uint4 *>(to + row_of(walked_state::row0(m), r) * PAD_V) = transpose_four(word, lane_id());
            }
        }
    }
    __device__ __forceinline__ void leave_end(const block_logs &logs, int n) const
    {
        store_shared(end_at(n, quarter(), own_channel()), logs.x[BLOCK - 1][0]);
        store_shared(end_at(n, quarter(), own_channel() + 1), logs.x[BLOCK - 1][1]);
    }
    // Keys as the state takes them up, or queries as its gradient does.
    __device__ __forceinline__ void weigh(const block_logs &logs, int n) const
    {
        float before[2] = {};
        float end[2] = {};
#pragma unroll
        for (int b = 0; DECAYS && b < BLOCKS; b++) {
            const float2 of = load_shared8(end_at(n, b, own_channel()));
            before[0] += b < quarter() ? of.x : 0.0f;
            before[1] += b < quarter() ? of.y : 0.0f;
            end[0] += of.x;
            end[1] += of.y;
        }
#pragma unroll
        for (int i = 0; i < BLOCK; i++) {
            float x[2];
            const u32 at = pair_at<PAD_D>(stage(n) + layout::KEYS, quarter() * BLOCK + i, own_channel());
            unpack<element>(__float_as_uint(load_shared(at)), x[0], x[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float log = BACK ? before[e] + logs.read(i, e) : end[e] - (before[e] + logs.x[i][e]);
                x[e] *= (BACK ? w.scale : 1.0f) * (DECAYS ? exp2_approx(log) : 1.0f);
            }
            store_shared(at, pack<element>(x[0], x[1]));
        }
    }
    __device__ __forceinline__ void decay(walked_state &state, int n) const
    {
#pragma unroll
        for (int m = 0; DECAYS && m < walked_state::MT; m++) {
            const row_pair by = row_pair::of(walked_state::row0(m), [&](int row) {
                float log = 0.0f;
#pragma unroll
                for (int b = 0; b < BLOCKS; b++) {
                    log += load_shared(end_at(n, b, row));
                }
                return exp2_approx(log);
            });
            scale_rows(state.x[m], by);
        }
    }
    __device__ __forceinline__ void run(walked_state &state) const
    {
        const int chunks = chunks_of(w.s.length);
        const auto place_of = [&](int n) { return (BACK ? chunks - 1 - n : n) * CHUNK_TOKENS; };
        block_logs logs;
        if (chunks > 0) {
            fetch(0, place_of(0));
            logs.fetch(p, w, place_of(0) + quarter() * BLOCK, own_channel());
        }
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const bool more = n + 1 < chunks;
            leave(state, place_of(n));
            if (weighs()) {
                logs.sum();
                leave_end(logs, n);
            }
            copy_wait<0>();
            __syncthreads();
            if (more) {
                fetch(n + 1, place_of(n + 1));
            }
            if (weighs()) {
                weigh(logs, n);
            }
            if (more) {
                logs.fetch(p, w, place_of(n + 1) + quarter() * BLOCK, own_channel());
            }
            __syncthreads();
            decay(state, n);
            state.add(stage(n) + layout::KEYS, stage(n) + layout::VALUES);
        }
    }
};

template <bool BACK> DEV void walk_states(const linear_back_params &p, const work &w, unsigned char *bytes)
{
    walked_state state;
    if constexpr (BACK) {
        state.load(w, head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h), p.dstate_out_i, p.dstate_out_j);
    } else {
        state.load(w, head_of(p.state, w.s.number * p.state_b + w.h * p.state_h), p.state_i, p.state_j);
    }
    states_walk<BACK>{p, w, shared_address(bytes)}.run(state);
    float *to = head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h);
    if (BACK && to != nullptr) {
        state.store(w, to, p.dstate_i, p.dstate_j);
    }
}

DEV void additive_states(const linear_back_params &p, unsigned char *bytes)
{
    const int block = static_cast<int>(blockIdx.x);
    const work w = work::of_number<SLICES_V, CHUNK_COLUMNS>(p, cfg::D_V, block / 2);
    if (block % 2 == 0) {
        walk_states<false>(p, w, bytes);
    } else {
        walk_states<true>(p, w, bytes);
    }
}

} // namespace linear

#if LATHE_COMPILED(bwd_states)
extern "C" __global__ void __launch_bounds__(linear::WALK_THREADS, 2) LATHE_ENTRY(bwd_states)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::additive_states(p, shared_bytes);
}
#endif
