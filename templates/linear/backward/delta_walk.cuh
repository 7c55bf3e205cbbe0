// linear/backward/delta_walk.cuh: kernels: the two walks of the delta rule's backward pass along the chunks of a
// sequence, with 64 columns of the state, or of its gradient, in f32 fragments (delta_parts.cuh has the formulas).
//
// Launch of bwd_states and bwd_back: sequences * h * SLICES_V blocks of WALK_THREADS threads, smem_bytes::bwd_states
// and ::bwd_back of shared memory. bwd_states leaves the state in front of each chunk, and X; bwd_back the gradient of
// the state behind each chunk, and dv.
#pragma once
#include "linear/backward/delta_chunks.cuh"

namespace linear
{

static_assert(!cfg::STATE_BY_COLUMN, "these leave states as [key channel][value channel]");

template <bool BACK> struct walk_layout { // in shared memory, bytes
    static constexpr int KEY_BYTES = CHUNK_TOKENS * PAD_D * OPERAND,
                         VALUE_BYTES = CHUNK_TOKENS * CHUNK_COLUMNS * OPERAND;
    // v, or what flows back to o
    static constexpr int KEYS = 0, QUERIES = KEYS + KEY_BYTES, VALUES = QUERIES + (BACK ? KEY_BYTES : 0);
    static constexpr int INVERSE = VALUES + VALUE_BYTES, STAGE = INVERSE + 2 * INVERSE_BYTES;
    // what T or its transpose is multiplied by
    static constexpr int STATE = STAGE * cfg::CHUNK_STAGES, FIRST = STATE + PAD_D * CHUNK_COLUMNS * OPERAND;
    // X or dv, as it is, and as the state takes it up
    static constexpr int RESULT = FIRST + VALUE_BYTES, WEIGHED = RESULT + VALUE_BYTES;
    static constexpr int SCORES = WEIGHED + VALUE_BYTES, SUMS = SCORES + (BACK ? MATRIX_BYTES : 0);
    static constexpr int END = SUMS + 2 * CHUNK_TOKENS * 4; // of a chunk's logarithms, of two chunks
};

template <bool BACK> struct delta_walk {
    using operand = cfg::operand;
    using layout = walk_layout<BACK>;
    const linear_back_params &p;
    const work &w;
    u32 shared;
    u32 stage;       // where the chunk's tiles are
    chunk_logs logs; // and its sums

    __device__ __forceinline__ u32 stage_of(int n) const
    {
        return shared + static_cast<u32>(n % cfg::CHUNK_STAGES * layout::STAGE);
    }
    __device__ __forceinline__ u32 sums_of(int n) const
    {
        return shared + static_cast<u32>(layout::SUMS + n % 2 * CHUNK_TOKENS * 4);
    }
    __device__ __forceinline__ u32 tile(int which) const { return shared + static_cast<u32>(which); }
    DEV int row0() { return quarter() * 16; }
    DEV int column0() { return half_of() * HALF; }

    // ---- memory --------------------------------------------------------------------------------------

    struct inverse_tile {
        u32 of_stage;
        __device__ __forceinline__ u32 operator()(int row, int part) const
        {
            return of_stage + layout::INVERSE + swizzle<CHUNK_TOKENS>::offset(row, part);
        }
    };
    __device__ __forceinline__ void fetch(int n, int place) const
    {
        const u32 to = stage_of(n);
        load_tokens<PAD_D, cfg::element_k>(to + layout::KEYS, w, place, p.k, w.s.batch * p.k_b + w.h_kv * p.k_h, p.k_t,
                                           cfg::D);
        if constexpr (BACK) {
            load_tokens<PAD_D, cfg::element_q>(to + layout::QUERIES, w, place, p.q, w.s.batch * p.q_b + w.h_kv * p.q_h,
                                               p.q_t, cfg::D);
            load_tokens<CHUNK_COLUMNS, cfg::element_o>(to + layout::VALUES, w, place, p.dout,
                                                       w.s.batch * p.dout_b + w.h * p.dout_h + w.first, p.dout_t,
                                                       w.left);
        } else {
            load_tokens<CHUNK_COLUMNS, cfg::element_v>(to + layout::VALUES, w, place, p.v,
                                                       w.s.batch * p.v_b + w.h * p.v_h + w.first, p.v_t, w.left);
        }
        load_inverse_tiles<WALK_THREADS>(
            static_cast<const operand *>(p.inverse) + chunk_of_head(p, w, place) * INVERSE_STORED, inverse_tile{to});
        load_sums(sums_of(n), p, w, place);
        copy_commit();
    }
    // The state in 16 bits: to shared memory, from there to where the chunk's is left.
    __device__ __forceinline__ void leave_state(walked_state &state) const
    {
        state.each([&](int, int row, int column, float &a, float &b) {
            store_pair<CHUNK_COLUMNS>(tile(layout::STATE), row, column, a, b);
        });
    }
    __device__ __forceinline__ void store_state(int place) const
    {
        operand *to =
            static_cast<operand *>(BACK ? p.dstates : p.states) + chunk_of_head(p, w, place) * STATE_ELEMENTS + w.first;
#pragma unroll
        for (int i = 0; i < PAD_D * 8 / WALK_THREADS; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * WALK_THREADS;
            *reinterpret_cast<uint4 *>(to + n / 8 * PAD_V + n % 8 * 8) =
                load_shared16(tile(layout::STATE) + swizzle<CHUNK_COLUMNS>::offset(n / 8, n % 8));
        }
    }
    // A tile of tokens to a tensor, rows of which need not be aligned.
    template <class T> __device__ __forceinline__ void store_tokens(u32 from, int place, T *base, i64 stride) const
    {
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS * 8 / WALK_THREADS; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * WALK_THREADS;
            if (w.has(place + n / 8) && n % 8 * 8 < w.left) {
                const uint4 x = load_shared16(from + swizzle<CHUNK_COLUMNS>::offset(n / 8, n % 8));
                T *at = base + (sequence::token(w.s, place + n / 8) * stride + n % 8 * 8);
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
    // X or dv as the kernel behind the walks reads it.
    __device__ __forceinline__ void store_result(int place) const
    {
        operand *base = static_cast<operand *>(BACK ? p.dwritten : p.written) + (first_line(p, w) * cfg::D_V + w.first);
        store_tokens(tile(layout::RESULT), place, base, cfg::D_V);
    }
    static constexpr bool FROM_REGISTERS = cfg::DV_F32 || cfg::SKIP; // dv: more than is in the tile
    __device__ __forceinline__ void store_values(float (&x)[HALF / 8][4], int place) const
    {
        using target = dv_element;
        if (p.dv == nullptr) {
            return;
        }
        target *base = static_cast<target *>(p.dv) + (w.s.batch * p.dv_b + w.h * p.dv_h + w.first);
        if constexpr (FROM_REGISTERS) {
            each_pair(x, row0(), column0(), [&](int, int row, int column, float a, float b) {
                if (w.has(place + row) && column < w.left) {
                    float two[2] = {a, b};
                    if constexpr (!cfg::DV_F32) { // what comes to v through the output mod
                        const float *skip = p.skip + (line_of(p, w, place + row) * cfg::D_V + w.first + column);
                        two[0] += skip[0];
                        two[1] += skip[1];
                    }
                    store_any<2, target>(base + (sequence::token(w.s, place + row) * p.dv_t + column), two);
                }
            });
        } else {
            store_tokens(tile(layout::RESULT), place, base, p.dv_t);
        }
    }

    // ---- forward -------------------------------------------------------------------------------------

    __device__ __forceinline__ void take_forward(walked_state &state, int place) const
    {
        float x[HALF / 8][4] = {};
        add_product<PAD_D>(x, left_rows<PAD_D>::of(stage + layout::KEYS, row0()),
                           right_columns<CHUNK_COLUMNS>::of(tile(layout::STATE), column0()));
        scale_rows(x, logs.rows_from_start(row0(), 1.0f));
        each_pair(x, row0(), column0(), [&](int, int row, int column, float a, float b) {
            float v[2];
            load_pair<CHUNK_COLUMNS>(stage + layout::VALUES, row, column, v[0], v[1]);
            store_pair<CHUNK_COLUMNS>(tile(layout::FIRST), row, column, v[0] - a, v[1] - b);
        });
        __syncthreads();
        float y[HALF / 8][4] = {};
        const auto first = right_columns<CHUNK_COLUMNS>::of(tile(layout::FIRST), column0());
        add_product<CHUNK_TOKENS>(y, left_rows<CHUNK_TOKENS>::of(stage + layout::INVERSE + INVERSE_BYTES, row0()),
                                  first);
        add_product<CHUNK_TOKENS>(y, left_rows<CHUNK_TOKENS>::of(stage + layout::INVERSE, row0()), first);
        const row_pair by = logs.rows_to_end(row0());
        each_pair(y, row0(), column0(), [&](int r, int row, int column, float a, float b) {
            store_pair<CHUNK_COLUMNS>(tile(layout::RESULT), row, column, a, b);
            store_pair<CHUNK_COLUMNS>(tile(layout::WEIGHED), row, column, by.x[r] * a, by.x[r] * b);
        });
        __syncthreads();
        store_result(place);
        state.decay(logs.from_start(CHUNK_TOKENS - 1));
        state.add(stage + layout::KEYS, tile(layout::WEIGHED));
    }

    // ---- back ----------------------------------------------------------------------------------------

    // A', of 16 keys and half of the queries.
    __device__ __forceinline__ void leave_scores() const
    {
        float s[HALF / 8][4] = {};
        add_product<PAD_D>(s, left_rows<PAD_D>::of(stage + layout::KEYS, row0()),
                           right_rows<PAD_D>::of(stage + layout::QUERIES, column0()));
        const row_pair from = logs.rows(row0());
        each_pair(s, row0(), column0(), [&](int r, int row, int column, float a, float b) {
            const float2 to = logs.two(column);
            const float x = column >= row ? a * w.scale * chunk_logs::left_of(from.x[r], fminf(to.x, from.x[r])) : 0.0f;
            const float y =
                column + 1 >= row ? b * w.scale * chunk_logs::left_of(from.x[r], fminf(to.y, from.x[r])) : 0.0f;
            store_pair<CHUNK_TOKENS>(tile(layout::SCORES), row, column, x, y);
        });
    }
    // What flows back to o, as the state's gradient takes it up.
    __device__ __forceinline__ void weigh_outputs() const
    {
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS * 8 / WALK_THREADS; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * WALK_THREADS;
            const u32 at = stage + layout::VALUES + swizzle<CHUNK_COLUMNS>::offset(n / 8, n % 8);
            const float by = w.scale * logs.from_start(n / 8);
            const uint4 four = load_shared16(at);
            const u32 word[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float x;
                float y;
                unpack<operand>(word[k], x, y);
                store_shared(at + static_cast<u32>(4 * k), pack<operand>(by * x, by * y));
            }
        }
    }
    __device__ __forceinline__ void take_back(walked_state &state, int place) const
    {
        leave_scores();
        float x[HALF / 8][4] = {};
        add_product<PAD_D>(x, left_rows<PAD_D>::of(stage + layout::KEYS, row0()),
                           right_columns<CHUNK_COLUMNS>::of(tile(layout::STATE), column0()));
        scale_rows(x, logs.rows_to_end(row0()));
        __syncthreads();
        add_product<CHUNK_TOKENS>(x, left_rows<CHUNK_TOKENS>::of(tile(layout::SCORES), row0()),
                                  right_columns<CHUNK_COLUMNS>::of(stage + layout::VALUES, column0()));
        each_pair(x, row0(), column0(), [&](int, int row, int column, float a, float b) {
            store_pair<CHUNK_COLUMNS>(tile(layout::FIRST), row, column, a, b);
        });
        __syncthreads();
        float y[HALF / 8][4] = {};
        const auto first = right_columns<CHUNK_COLUMNS>::of(tile(layout::FIRST), column0());
        add_product<CHUNK_TOKENS>(y, left_columns<CHUNK_TOKENS>::of(stage + layout::INVERSE + INVERSE_BYTES, row0()),
                                  first);
        add_product<CHUNK_TOKENS>(y, left_columns<CHUNK_TOKENS>::of(stage + layout::INVERSE, row0()), first);
        const row_pair by = logs.rows_from_start(row0(), -1.0f);
        each_pair(y, row0(), column0(), [&](int r, int row, int column, float a, float b) {
            store_pair<CHUNK_COLUMNS>(tile(layout::RESULT), row, column, a, b);
            store_pair<CHUNK_COLUMNS>(tile(layout::WEIGHED), row, column, by.x[r] * a, by.x[r] * b);
        });
        weigh_outputs();
        __syncthreads();
        store_result(place);
        store_values(y, place);
        state.decay(logs.from_start(CHUNK_TOKENS - 1));
        state.add(stage + layout::QUERIES, stage + layout::VALUES);
        state.add(stage + layout::KEYS, tile(layout::WEIGHED));
    }

    // ---- the way -------------------------------------------------------------------------------------

    __device__ __forceinline__ void take(walked_state &state, int place) const
    {
        store_state(place);
        if constexpr (BACK) {
            take_back(state, place);
        } else {
            take_forward(state, place);
        }
    }
    __device__ __forceinline__ void run(walked_state &state)
    {
        const int chunks = chunks_of(w.s.length);
        const auto place_of = [&](int n) { return (BACK ? chunks - 1 - n : n) * CHUNK_TOKENS; };
        for (int n = 0; n < cfg::CHUNK_STAGES; n++) {
            clear_inverse_tiles<WALK_THREADS>(inverse_tile{stage_of(n)});
        }
        if (chunks > 0) {
            fetch(0, place_of(0));
        }
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const bool more = n + 1 < chunks;
            stage = stage_of(n);
            logs.at = sums_of(n);
            leave_state(state);
            copy_wait<0>();
            __syncthreads();
            if (cfg::CHUNK_STAGES > 1 && more) {
                fetch(n + 1, place_of(n + 1));
            }
            take(state, place_of(n));
            if (cfg::CHUNK_STAGES == 1 && more) {
                __syncthreads();
                fetch(n + 1, place_of(n + 1));
            }
        }
    }
};

template <bool BACK> DEV void walk_delta(const linear_back_params &p, unsigned char *bytes)
{
    const work w = work::of_block<SLICES_V, CHUNK_COLUMNS>(p, cfg::D_V);
    walked_state state;
    if constexpr (BACK) {
        state.load(w, head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h), p.dstate_out_i,
                   p.dstate_out_j);
    } else {
        state.load(w, head_of(p.state, w.s.number * p.state_b + w.h * p.state_h), p.state_i, p.state_j);
    }
    delta_walk<BACK> walk{p, w, shared_address(bytes), 0, {0}};
    walk.run(state);
    if constexpr (BACK) {
        cfg::element_state *to = head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h);
        if (to != nullptr) {
            state.store(w, to, p.dstate_i, p.dstate_j);
        }
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_states = linear::walk_layout<false>::END;
constexpr int bwd_back = linear::walk_layout<true>::END;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_states)
extern "C" __global__ void __launch_bounds__(linear::WALK_THREADS, 2)
    LATHE_ENTRY(bwd_states)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_delta<false>(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(bwd_back)
extern "C" __global__ void __launch_bounds__(linear::WALK_THREADS, 1)
    LATHE_ENTRY(bwd_back)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_delta<true>(p, shared_bytes);
}
#endif
