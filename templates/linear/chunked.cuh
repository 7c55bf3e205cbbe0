// linear/chunked.cuh: kernel: linear attention with no decay or one number a token, with the delta rule or without, in chunks of tokens by mma.sync.
//
// Launch: sequences * h * COLUMN_SLICES blocks of 128 threads, chunked_smem_bytes() of shared memory. A block has 64 columns of the state of one head, in
// f32 fragments. In a chunk o = e^G q S + ((q k') Gamma) v, Gamma_ij = e^(G_i - G_j), with G the sum of the logarithms from the chunk's start on; then
// S = e^(G_end) S + k' (e^(G_end - G) v). With the delta rule T (v - e^G k S) stands in the place of v (linear/delta_inverse.cuh has T). No exponent is
// above 0. Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/chunk.cuh"

namespace linear {

static_assert(columns::COLUMNS == CHUNK_COLUMNS, "a block has the columns that a walk token by token would have");
static_assert(cfg::DECAY == DECAY_NONE || cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN, "a decay is one number a token");
static_assert(!cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the additive family and the delta rule");

struct chunk_layout { // in shared memory, bytes
    static constexpr int Q = 0, K = Q + CHUNK_TOKENS * CHUNK_PAD * 2, V = K + CHUNK_TOKENS * CHUNK_PAD * 2;
    static constexpr int WRITTEN = V + CHUNK_TOKENS * CHUNK_COLUMNS * 2; // v as the state takes it up
    static constexpr int STATE = WRITTEN + CHUNK_TOKENS * CHUNK_COLUMNS * 2;
    static constexpr int INVERSE = STATE + CHUNK_PAD * CHUNK_COLUMNS * 2; // T, with the delta rule
    static constexpr int SUMS = INVERSE + (cfg::DELTA ? CHUNK_TOKENS * CHUNK_TOKENS * 2 : 0); // G, to the base 2
    static constexpr int END = SUMS + CHUNK_TOKENS * 4;
};
// As C, for the planner: 64 * (6 * pad + 256) + 256, and 8192 with the delta rule
constexpr int chunked_smem_bytes() { return chunk_layout::END; }

struct chunk_state {
    static constexpr int MT = CHUNK_PAD / 64; // 16 rows each, of a warp
    float x[MT][CHUNK_COLUMNS / 8][4];

    // f(element, row, column of the block).
    template <class F> __device__ __forceinline__ void each(const F &f)
    {
        const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int n = 0; n < CHUNK_COLUMNS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    f(x[m][n][i], (warp * MT + m) * 16 + lane_id() / 4 + i / 2 * 8, n * 8 + lane_id() % 4 * 2 + i % 2);
                }
            }
        }
    }
};

struct chunk_walk {
    using element = cfg::element;
    const linear_params &p;
    const work &w;
    u32 shared;
    float *sums;

    __device__ __forceinline__ void load_chunk(int place) const
    {
        const int rows = min(CHUNK_TOKENS, w.s.length - place);
        const i64 token = sequence::token(w.s, place);
        const i64 way = cfg::REVERSE ? -1 : 1;
        load_rows<CHUNK_PAD>(shared + chunk_layout::Q, elements(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h + token * p.q_t), way * p.q_t, rows, cfg::D);
        load_rows<CHUNK_PAD>(shared + chunk_layout::K, elements(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + token * p.k_t), way * p.k_t, rows, cfg::D);
        load_rows<CHUNK_COLUMNS>(shared + chunk_layout::V, elements(p.v, w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first), way * p.v_t, rows, w.left);
        if constexpr (cfg::DELTA) {
            const i64 which = chunk_number(p, w.s, place) * p.z.n_h + w.h;
            load_rows<CHUNK_TOKENS>(shared + chunk_layout::INVERSE, static_cast<const element *>(p.inverse) + which * INVERSE_ELEMENTS, CHUNK_TOKENS, CHUNK_TOKENS, CHUNK_TOKENS);
        }
        copy_commit();
    }
    __device__ __forceinline__ void leave_state(chunk_state &state) const
    {
        state.each([&](float &a, int row, int column) {
            if (column % 2 == 0) {
                store_shared(shared + chunk_layout::STATE + swizzle<CHUNK_COLUMNS>::offset(row, column / 8) + static_cast<u32>(column % 8 * 2), pack<element>(a, *(&a + 1)));
            }
        });
    }
    // e^(G_end - G) v
    __device__ __forceinline__ void weigh_values() const
    {
        const float end = sums[CHUNK_TOKENS - 1];
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS * CHUNK_COLUMNS / 8 / THREADS; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * THREADS;
            const u32 at = swizzle<CHUNK_COLUMNS>::offset(n / (CHUNK_COLUMNS / 8), n % (CHUNK_COLUMNS / 8));
            const float by = exp2_approx(end - sums[n / (CHUNK_COLUMNS / 8)]);
            const uint4 four = load_shared16(shared + chunk_layout::V + at);
            const u32 word[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float low;
                float high;
                unpack<element>(word[k], low, high);
                store_shared(shared + chunk_layout::WRITTEN + at + static_cast<u32>(4 * k), pack<element>(low * by, high * by));
            }
        }
    }
    // c += 16 rows of a tile of COLS, where this lane reads them, times a tile of COLS rows.
    template <int COLS> DEV void multiply_rows(float (&c)[CHUNK_COLUMNS / 8][4], u32 rows, u32 tile)
    {
        const u32 other = tile + lane_offset_b_transposed<CHUNK_COLUMNS>(lane_id());
#pragma unroll 2 // all of them at once would take the registers of the state
        for (int k = 0; k < COLS / 16; k++) {
            u32 a[1][4];
            load_a<1, COLS>(a, rows, k);
            multiply(c, a[0], other + static_cast<u32>(k * 16 * swizzle<CHUNK_COLUMNS>::ROW_BYTES));
        }
    }
    // f(address in a tile of CHUNK_COLUMNS, two values), of this warp's 16 tokens.
    template <class F> DEV void each_pair(float (&x)[CHUNK_COLUMNS / 8][4], const F &f)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane_id() / 4 + 8 * r;
#pragma unroll
            for (int n = 0; n < CHUNK_COLUMNS / 8; n++) {
                f(swizzle<CHUNK_COLUMNS>::offset(row, n) + static_cast<u32>(lane_id() % 4 * 4), row, x[n][2 * r], x[n][2 * r + 1]);
            }
        }
    }
    // v becomes T (v - e^G k S): what the delta rule writes.
    __device__ __forceinline__ void correct() const
    {
        const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
        float x[CHUNK_COLUMNS / 8][4] = {};
        multiply_rows<CHUNK_PAD>(x, shared + chunk_layout::K + lane_offset_a<CHUNK_PAD>(lane_id(), row0), shared + chunk_layout::STATE);
        each_pair(x, [&](u32 at, int row, float low, float high) {
            const float by = DECAYS ? exp2_approx(sums[row]) : 1.0f;
            float v_low;
            float v_high;
            unpack<element>(__float_as_uint(load_shared(shared + chunk_layout::V + at)), v_low, v_high);
            store_shared(shared + chunk_layout::WRITTEN + at, pack<element>(v_low - by * low, v_high - by * high));
        });
        __syncthreads();
        float y[CHUNK_COLUMNS / 8][4] = {};
        multiply_rows<CHUNK_TOKENS>(y, shared + chunk_layout::INVERSE + lane_offset_a<CHUNK_TOKENS>(lane_id(), row0), shared + chunk_layout::WRITTEN);
        each_pair(y, [&](u32 at, int, float low, float high) { store_shared(shared + chunk_layout::V + at, pack<element>(low, high)); });
        __syncthreads();
    }
    // o of this warp's 16 tokens.
    __device__ __forceinline__ void read(float (&o)[1][CHUNK_COLUMNS / 8][4]) const
    {
        const int lane = lane_id();
        const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
        const u32 q = shared + chunk_layout::Q + lane_offset_a<CHUNK_PAD>(lane, row0);
        multiply_rows<CHUNK_PAD>(o[0], q, shared + chunk_layout::STATE);
        float from[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            from[r] = sums[row0 + lane / 4 + 8 * r];
            const float by = DECAYS ? w.scale * exp2_approx(from[r]) : w.scale;
#pragma unroll
            for (int n = 0; n < CHUNK_COLUMNS / 8; n++) {
                o[0][n][2 * r] *= by;
                o[0][n][2 * r + 1] *= by;
            }
        }
        float s[1][CHUNK_TOKENS / 8][4];
        const a_fragments<1, 1> none = {};
        product_qk<element, 1, CHUNK_TOKENS / 8, CHUNK_PAD, false>(s, q, none, shared + chunk_layout::K + lane_offset_b<CHUNK_PAD>(lane));
#pragma unroll
        for (int n = 0; n < CHUNK_TOKENS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int to = n * 8 + lane % 4 * 2 + i % 2;
                const bool live = to <= row0 + lane / 4 + i / 2 * 8;
                const float by = DECAYS ? exp2_approx(live ? from[i / 2] - sums[to] : 0.0f) : 1.0f;
                s[0][n][i] = live ? s[0][n][i] * w.scale * by : 0.0f;
            }
        }
        product_pv<element, 1, CHUNK_TOKENS / 8, CHUNK_COLUMNS / 8, CHUNK_COLUMNS>(o, s, shared + chunk_layout::V + lane_offset_b_transposed<CHUNK_COLUMNS>(lane));
    }
    // c += a times 16 rows of a tile of CHUNK_COLUMNS.
    DEV void multiply(float (&c)[CHUNK_COLUMNS / 8][4], const u32 (&a)[4], u32 rows)
    {
#pragma unroll
        for (int n = 0; n < CHUNK_COLUMNS / 16; n++) {
            u32 b[4];
            load_matrix4_transposed(b, swizzle<CHUNK_COLUMNS>::along(rows, 2 * n));
            mma_16x8x16<element>(c[2 * n], a, b[0], b[1]);
            mma_16x8x16<element>(c[2 * n + 1], a, b[2], b[3]);
        }
    }
    __device__ __forceinline__ void store(int place, const float (&o)[1][CHUNK_COLUMNS / 8][4]) const
    {
        using target = typename pick<cfg::O_F32, float, element>::type;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = place + static_cast<int>(threadIdx.x) / 32 * 16 + lane_id() / 4 + 8 * r;
            target *to = static_cast<target *>(p.o) + (w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, w.has(at) ? at : 0) * p.o_t + w.first);
#pragma unroll
            for (int n = 0; n < CHUNK_COLUMNS / 8; n++) {
                const int column = n * 8 + lane_id() % 4 * 2;
                if (w.has(at) && column < w.left) {
                    const float two[2] = {o[0][n][2 * r], o[0][n][2 * r + 1]};
                    store_any<2, target>(to + column, two);
                }
            }
        }
    }
    __device__ __forceinline__ void write(chunk_state &state) const
    {
        const int lane = lane_id();
        const int warp = static_cast<int>(threadIdx.x) / 32;
        if constexpr (DECAYS) {
            const float by = exp2_approx(sums[CHUNK_TOKENS - 1]);
            state.each([&](float &a, int, int) { a *= by; });
        }
        const u32 keys = shared + chunk_layout::K + lane_offset_b<CHUNK_PAD>(lane);
        const u32 values = shared + (DECAYS ? chunk_layout::WRITTEN : chunk_layout::V) + lane_offset_b_transposed<CHUNK_COLUMNS>(lane);
#pragma unroll
        for (int k = 0; k < CHUNK_TOKENS / 16; k++) {
#pragma unroll
            for (int m = 0; m < chunk_state::MT; m++) {
                u32 a[4]; // k', 16 channels and 16 tokens
                load_matrix4_transposed(a, swizzle<CHUNK_PAD>::along(keys, 2 * (warp * chunk_state::MT + m)) + static_cast<u32>(k * 16 * swizzle<CHUNK_PAD>::ROW_BYTES));
                multiply(state.x[m], a, values + static_cast<u32>(k * 16 * swizzle<CHUNK_COLUMNS>::ROW_BYTES));
            }
        }
    }
    __device__ __forceinline__ void run(chunk_state &state) const
    {
#pragma unroll 1
        for (int place = 0; place < w.s.length; place += CHUNK_TOKENS) {
            load_chunk(place);
            if (DECAYS && threadIdx.x < 32) {
                sum_logs(p, w, place, sums);
            }
            leave_state(state);
            copy_wait<0>();
            __syncthreads();
            if constexpr (cfg::DELTA) {
                correct();
            }
            if constexpr (DECAYS) {
                weigh_values();
            }
            float o[1][CHUNK_COLUMNS / 8][4] = {};
            read(o);
            store(place, o);
            __syncthreads();
            write(state);
            __syncthreads();
        }
    }
};

DEV void forward_by_chunk(const linear_params &p, const work &w, i64 slot, unsigned char *bytes)
{
    chunk_state state = {};
    const float *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
    float *to = head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h);
    if (from != nullptr) {
        state.each([&](float &a, int row, int column) {
            if (row < cfg::D && column < w.left) {
                a = from[row * p.state_i + (w.first + column) * p.state_j];
            }
        });
    }
    const chunk_walk walk{p, w, shared_address(bytes), reinterpret_cast<float *>(bytes + chunk_layout::SUMS)};
    walk.run(state);
    if (to != nullptr) {
        state.each([&](float &a, int row, int column) {
            if (row < cfg::D && column < w.left) {
                to[row * p.state_out_i + (w.first + column) * p.state_out_j] = a;
            }
        });
    }
}

DEV void chunked(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    const i64 slot = p.state_index != nullptr ? p.state_index[w.s.number * p.state_index_step] : w.s.number;
    if (slot < 0) {
        store_none<CHUNK_COLUMNS, THREADS>(p, w);
    } else {
        forward_by_chunk(p, w, slot, bytes);
    }
}

} // namespace linear

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS) LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::chunked(p, shared_bytes);
}
#endif
