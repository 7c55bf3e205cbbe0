// linear/delta_chunks.cuh: kernel: the delta rule with no decay or one number a token, in chunks of tokens by mma.sync.
//
// Launch: sequences * h * CHUNK_SLICES blocks of 256 threads, smem_bytes::chunks of shared memory. A block has 64
// columns of the state of one head, in f32 fragments of its warps, while the chunk that follows is on its way. In a
// chunk o = e^G q S + ((q k') Gamma) v, Gamma_ij = e^(G_i - G_j), with G the sum of the logarithms from the chunk's
// start on; then S = e^(G_end) S + k' (e^(G_end - G) v), where T (v - e^G k S) stands in the place of v
// (linear/delta_inverse.cuh has T). No exponent is above 0. Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/inverse_tiles.cuh"
#include "linear/kept.cuh"

namespace linear
{

static_assert(cfg::DECAY == DECAY_NONE || cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN,
              "a decay is one number a token");
static_assert(CHUNK_PAD <= 128, "head dims up to 128");
static_assert(cfg::DELTA && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the delta rule");

constexpr int CHUNK_WARPS = 8, CHUNK_THREADS = 32 * CHUNK_WARPS;
constexpr int OWN_COLUMNS = CHUNK_COLUMNS / 2; // of a warp, with a quarter of the tokens, and of the rows of the state
constexpr int CHUNK_SLICES = (cfg::D_V + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;

struct chunk_layout { // in shared memory, bytes; q, k and v of cfg::CHUNK_STAGES chunks
    static constexpr int Q = 0, K = Q + CHUNK_TOKENS * CHUNK_PAD * OPERAND, V = K + CHUNK_TOKENS * CHUNK_PAD * OPERAND;
    static constexpr int STAGE = V + CHUNK_TOKENS * CHUNK_COLUMNS * OPERAND;
    static constexpr int WRITTEN = STAGE * cfg::CHUNK_STAGES; // v as the state takes it up
    static constexpr int STATE = WRITTEN + CHUNK_TOKENS * CHUNK_COLUMNS * OPERAND;
    static constexpr int INVERSE = STATE + CHUNK_PAD * CHUNK_COLUMNS * OPERAND; // T
    static constexpr int SUMS = INVERSE + 2 * INVERSE_BYTES;                    // G, to the base 2, of two chunks
    static constexpr int WEIGHTS = SUMS + 2 * CHUNK_TOKENS * 4;                 // of v, as the state takes it up
    static constexpr int END = WEIGHTS + 2 * CHUNK_TOKENS * 4;
};

DEV int row_group() { return static_cast<int>(threadIdx.x) / 32 % 4; }
DEV int column_half() { return static_cast<int>(threadIdx.x) / 128; }

struct chunk_state {
    static constexpr int MT = CHUNK_PAD / 64; // 16 rows each, of a warp
    float x[MT][OWN_COLUMNS / 8][4];

    // f(element, row, column of the block).
    template <class F> __device__ __forceinline__ void each(const F &f)
    {
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int n = 0; n < OWN_COLUMNS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    f(x[m][n][i], (row_group() * MT + m) * 16 + lane_id() / 4 + i / 2 * 8,
                      column_half() * OWN_COLUMNS + n * 8 + lane_id() % 4 * 2 + i % 2);
                }
            }
        }
    }
    __device__ __forceinline__ void store(cfg::element_state *to, const work &w, i64 s_i, i64 s_j)
    {
        each([&](float &a, int row, int column) {
            if (row < cfg::D && column < w.left) {
                to[row * s_i + (w.first + column) * s_j] = from_float<cfg::element_state>(a);
            }
        });
    }
};

struct chunk_walk {
    using operand = cfg::operand;
    const linear_params &p;
    const work &w;
    u32 shared;
    float *all_sums;
    u32 stage;   // where q, k and v of the chunk are
    u32 logs_at; // where its sums are

    __device__ __forceinline__ void enter(int number)
    {
        stage = shared + static_cast<u32>(number % cfg::CHUNK_STAGES * chunk_layout::STAGE);
        logs_at = shared + static_cast<u32>(chunk_layout::SUMS + number % 2 * CHUNK_TOKENS * 4);
    }
    __device__ __forceinline__ float sum_to(int token) const
    {
        return load_shared(logs_at + static_cast<u32>(4 * token));
    }
    __device__ __forceinline__ void load_chunk(int number) const
    {
        const u32 to = shared + static_cast<u32>(number % cfg::CHUNK_STAGES * chunk_layout::STAGE);
        const int place = number * CHUNK_TOKENS;
        const int rows = min(CHUNK_TOKENS, w.s.length - place);
        const i64 token = sequence::token(w.s, place);
        const i64 way = cfg::REVERSE ? -1 : 1;
        load_rows<CHUNK_PAD, CHUNK_THREADS>(
            to + chunk_layout::Q, elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h + token * p.q_t),
            way * p.q_t, rows, cfg::D);
        load_rows<CHUNK_PAD, CHUNK_THREADS>(
            to + chunk_layout::K, elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + token * p.k_t),
            way * p.k_t, rows, cfg::D);
        load_rows<CHUNK_COLUMNS, CHUNK_THREADS>(
            to + chunk_layout::V,
            elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first), way * p.v_t, rows,
            w.left);
        copy_commit();
    }
    __device__ __forceinline__ u32 inverse_at(int row, int part) const
    {
        return shared + chunk_layout::INVERSE + swizzle<CHUNK_TOKENS>::offset(row, part);
    }
    __device__ __forceinline__ void load_inverse(int number) const
    {
        const i64 which = (chunk_number(p, w.s, 0) + number) * p.z.n_h + w.h;
        load_inverse_tiles<CHUNK_THREADS>(static_cast<const operand *>(p.inverse) + which * INVERSE_STORED,
                                          [&](int row, int part) { return inverse_at(row, part); });
        copy_commit();
    }
    __device__ __forceinline__ void leave_state(chunk_state &state) const
    {
        state.each([&](float &a, int row, int column) {
            if (column % 2 == 0) {
                store_shared(shared + chunk_layout::STATE + swizzle<CHUNK_COLUMNS>::offset(row, column / 8) +
                                 static_cast<u32>(column % 8 * 2),
                             pack<operand>(a, *(&a + 1)));
            }
        });
    }
    // By the first warp: sums, and e^(base - G).
    __device__ __forceinline__ void put_logs(const logs &own, int number) const
    {
        float *at = all_sums + number % 2 * CHUNK_TOKENS;
        const float last = own.sum(at);
        const float base = base_of(__shfl_sync(ALL_LANES, last, 31));
        float *weights = at + (chunk_layout::WEIGHTS - chunk_layout::SUMS) / 4;
        weights[2 * lane_id()] = exp2_approx(base - (last - own.x[1]));
        weights[2 * lane_id() + 1] = exp2_approx(base - last);
    }
    // A decay that is mild over the chunk is a product of a token's own factors, e^(G_i - base) e^(base - G_j) with the
    // base halfway: no exponent for a pair.
    DEV bool is_mild(float end) { return end > -80.0f; }
    DEV float base_of(float end) { return is_mild(end) ? 0.5f * end : end; }
    __device__ __forceinline__ float end() const { return DECAYS ? sum_to(CHUNK_TOKENS - 1) : 0.0f; }
    __device__ __forceinline__ float weight_of(int token) const
    {
        return load_shared(logs_at + static_cast<u32>(chunk_layout::WEIGHTS - chunk_layout::SUMS + 4 * token));
    }
    // e^(base - G) v
    __device__ __forceinline__ void weigh_values() const
    {
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS * CHUNK_COLUMNS / 8 / CHUNK_THREADS; i++) {
            const int n = static_cast<int>(fresh_thread()) + i * CHUNK_THREADS;
            const u32 at = swizzle<CHUNK_COLUMNS>::offset(n / (CHUNK_COLUMNS / 8), n % (CHUNK_COLUMNS / 8));
            const float by = weight_of(n / (CHUNK_COLUMNS / 8));
            const uint4 four = load_shared16(stage + chunk_layout::V + at);
            const u32 word[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float low;
                float high;
                unpack<operand>(word[k], low, high);
                store_shared(shared + chunk_layout::WRITTEN + at + static_cast<u32>(4 * k),
                             pack<operand>(low * by, high * by));
            }
        }
    }
    // Where this lane reads its warp's columns of a tile of CHUNK_COLUMNS.
    DEV u32 own_columns(u32 tile)
    {
        return swizzle<CHUNK_COLUMNS>::along(tile + lane_offset_b_transposed<CHUNK_COLUMNS>(lane_id()),
                                             column_half() * OWN_COLUMNS / 8);
    }
    // c += 16 rows of a tile of COLS, where this lane reads them, times a tile of COLS rows.
    template <int COLS> DEV void multiply_rows(float (&c)[OWN_COLUMNS / 8][4], u32 rows, u32 tile)
    {
        const u32 other = own_columns(tile);
#pragma unroll 2 // more of them at once would take the registers of the state
        for (int k = 0; k < COLS / 16; k++) {
            u32 a[1][4];
            load_a<1, COLS>(a, rows, k);
            multiply(c, a[0], other + static_cast<u32>(k * 16 * swizzle<CHUNK_COLUMNS>::ROW_BYTES));
        }
    }
    // f(address in a tile of CHUNK_COLUMNS, two values), of this warp's 16 tokens.
    template <class F> DEV void each_pair(float (&x)[OWN_COLUMNS / 8][4], const F &f)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = row_group() * 16 + lane_id() / 4 + 8 * r;
#pragma unroll
            for (int n = 0; n < OWN_COLUMNS / 8; n++) {
                f(swizzle<CHUNK_COLUMNS>::offset(row, column_half() * OWN_COLUMNS / 8 + n) +
                      static_cast<u32>(lane_id() % 4 * 4),
                  row, x[n][2 * r], x[n][2 * r + 1]);
            }
        }
    }
    // v becomes T (v - e^G k S): what the delta rule writes.
    __device__ __forceinline__ void correct() const
    {
        const int row0 = row_group() * 16;
        float x[OWN_COLUMNS / 8][4] = {};
        multiply_rows<CHUNK_PAD>(x, stage + chunk_layout::K + lane_offset_a<CHUNK_PAD>(lane_id(), row0),
                                 shared + chunk_layout::STATE);
        each_pair(x, [&](u32 at, int row, float low, float high) {
            const float by = DECAYS ? exp2_approx(sum_to(row)) : 1.0f;
            float v_low;
            float v_high;
            unpack<operand>(__float_as_uint(load_shared(stage + chunk_layout::V + at)), v_low, v_high);
            store_shared(shared + chunk_layout::WRITTEN + at, pack<operand>(v_low - by * low, v_high - by * high));
        });
        __syncthreads();
        float y[OWN_COLUMNS / 8][4] = {};
        const u32 inverse = shared + chunk_layout::INVERSE + lane_offset_a<CHUNK_TOKENS>(lane_id(), row0);
        multiply_rows<CHUNK_TOKENS>(y, inverse + INVERSE_BYTES, shared + chunk_layout::WRITTEN);
        multiply_rows<CHUNK_TOKENS>(y, inverse, shared + chunk_layout::WRITTEN);
        each_pair(y, [&](u32 at, int, float low, float high) {
            store_shared(stage + chunk_layout::V + at, pack<operand>(low, high));
        });
        __syncthreads();
    }
    // o of this warp's 16 tokens.
    __device__ __forceinline__ void read(float (&o)[1][OWN_COLUMNS / 8][4]) const
    {
        const int lane = lane_id();
        const int row0 = row_group() * 16;
        const u32 q = stage + chunk_layout::Q + lane_offset_a<CHUNK_PAD>(lane, row0);
        multiply_rows<CHUNK_PAD>(o[0], q, shared + chunk_layout::STATE);
        const bool mild = is_mild(end());
        float from[2] = {};
#pragma unroll
        for (int r = 0; DECAYS && r < 2; r++) {
            from[r] = sum_to(row0 + lane / 4 + 8 * r);
            scale_row(o[0], r, exp2_approx(mild ? base_of(end()) : from[r]));
        }
        constexpr int HALF = CHUNK_TOKENS / 2; // of the keys at a time: registers
#pragma unroll 1
        for (int first = 0; first <= row0; first += HALF) {
            float s[1][HALF / 8][4];
            const a_fragments<1, 1> none = {};
            product_qk<operand, 1, HALF / 8, CHUNK_PAD, false>(
                s, q, none,
                stage + chunk_layout::K + lane_offset_b<CHUNK_PAD>(lane) +
                    static_cast<u32>(first * swizzle<CHUNK_PAD>::ROW_BYTES));
            if (!DECAYS || mild) {
                weigh<true>(s[0], from, first, row0);
            } else {
                weigh<false>(s[0], from, first, row0);
            }
            product_pv<operand, 1, HALF / 8, OWN_COLUMNS / 8, CHUNK_COLUMNS>(
                o, s,
                own_columns(stage + chunk_layout::V) + static_cast<u32>(first * swizzle<CHUNK_COLUMNS>::ROW_BYTES));
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            scale_row(o[0], r, DECAYS && mild ? w.scale * exp2_approx(from[r] - base_of(end())) : w.scale);
        }
    }
    DEV void scale_row(float (&o)[OWN_COLUMNS / 8][4], int r, float by)
    {
#pragma unroll
        for (int n = 0; n < OWN_COLUMNS / 8; n++) {
            o[n][2 * r] *= by;
            o[n][2 * r + 1] *= by;
        }
    }
    // Products of q and k, of keys from `first` on, times what is left of the keys.
    template <bool MILD, int NB>
    __device__ __forceinline__ void weigh(float (&s)[NB][4], const float (&from)[2], int first, int row0) const
    {
#pragma unroll
        for (int n = 0; n < NB; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int to = first + n * 8 + lane_id() % 4 * 2 + c;
                const float key = !DECAYS ? 1.0f : MILD ? weight_of(to) : sum_to(to);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const bool live = to <= row0 + lane_id() / 4 + r * 8;
                    const float by = MILD ? key : exp2_approx(live ? from[r] - key : 0.0f);
                    s[n][2 * r + c] = live ? s[n][2 * r + c] * by : 0.0f;
                }
            }
        }
    }
    // c += a times 16 rows of a tile of CHUNK_COLUMNS.
    DEV void multiply(float (&c)[OWN_COLUMNS / 8][4], const u32 (&a)[4], u32 rows)
    {
#pragma unroll
        for (int n = 0; n < OWN_COLUMNS / 16; n++) {
            u32 b[4];
            load_matrix4_transposed(b, swizzle<CHUNK_COLUMNS>::along(rows, 2 * n));
            mma_16x8x16<operand>(c[2 * n], a, b[0], b[1]);
            mma_16x8x16<operand>(c[2 * n + 1], a, b[2], b[3]);
        }
    }
    __device__ __forceinline__ void store(int place, const float (&o)[1][OWN_COLUMNS / 8][4]) const
    {
        using target = typename pick<cfg::O_F32, float, cfg::element_o>::type;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = place + row_group() * 16 + lane_id() / 4 + 8 * r;
            target *to = static_cast<target *>(p.o) +
                         (w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, w.has(at) ? at : 0) * p.o_t + w.first);
#pragma unroll
            for (int n = 0; n < OWN_COLUMNS / 8; n++) {
                const int column = column_half() * OWN_COLUMNS + n * 8 + lane_id() % 4 * 2;
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
        const float before = DECAYS ? exp2_approx(base_of(end())) : 1.0f;
        if constexpr (DECAYS) {
            state.each([&](float &a, int, int) { a *= before; });
        }
        const u32 keys = stage + chunk_layout::K + lane_offset_b<CHUNK_PAD>(lane);
        const u32 values = own_columns(DECAYS ? shared + chunk_layout::WRITTEN : stage + chunk_layout::V);
#pragma unroll
        for (int k = 0; k < CHUNK_TOKENS / 16; k++) {
#pragma unroll
            for (int m = 0; m < chunk_state::MT; m++) {
                u32 a[4]; // k', 16 channels and 16 tokens
                load_matrix4_transposed(a, swizzle<CHUNK_PAD>::along(keys, 2 * (row_group() * chunk_state::MT + m)) +
                                               static_cast<u32>(k * 16 * swizzle<CHUNK_PAD>::ROW_BYTES));
                multiply(state.x[m], a, values + static_cast<u32>(k * 16 * swizzle<CHUNK_COLUMNS>::ROW_BYTES));
            }
        }
        if (DECAYS && is_mild(end())) {
            state.each([&](float &a, int, int) { a *= before; });
        }
    }
    // The chunk that the walk is in; its q, k and v have come.
    __device__ __forceinline__ void take(chunk_state &state, int number, bool more) const
    {
        correct();
        if (cfg::CHUNK_STAGES > 1 && more) {
            load_inverse(number + 1); // in the place of what has just been used
        }
        if constexpr (DECAYS) {
            weigh_values();
        }
        float o[1][OWN_COLUMNS / 8][4] = {};
        read(o);
        store(number * CHUNK_TOKENS, o);
        __syncthreads();
        write(state);
    }
    __device__ __forceinline__ void fetch(int number) const
    {
        load_chunk(number);
        load_inverse(number);
    }
    __device__ __forceinline__ void run(chunk_state &state)
    {
        const int chunks = chunks_of(w.s.length);
        clear_inverse_tiles<CHUNK_THREADS>([&](int row, int part) { return inverse_at(row, part); });
        if (chunks > 0) {
            fetch(0);
        }
        if (DECAYS && threadIdx.x < 32) {
            logs own;
            own.fetch(p, w, 0);
            put_logs(own, 0);
        }
        leave_state(state);
#pragma unroll 1
        for (int number = 0; number < chunks; number++) {
            const bool more = number + 1 < chunks;
            const int kept = kept_behind<CHUNK_TOKENS>(p, w, number * CHUNK_TOKENS);
            enter(number);
            copy_wait<0>();
            __syncthreads();
            if (cfg::CHUNK_STAGES > 1 && more) {
                load_chunk(number + 1);
            }
            logs next = {};
            if (DECAYS && threadIdx.x < 32 && more) {
                next.fetch(p, w, (number + 1) * CHUNK_TOKENS);
            }
            take(state, number, more);
            keep_state(p, w, kept, [&](cfg::element_state *to, i64 s_i, i64 s_j, cfg::element_state *, i64) {
                state.store(to, w, s_i, s_j);
            });
            if (DECAYS && threadIdx.x < 32 && more) {
                put_logs(next, number + 1);
            }
            leave_state(state);
            if (cfg::CHUNK_STAGES == 1 && more) {
                __syncthreads();
                fetch(number + 1);
            }
        }
    }
};

DEV void forward_by_chunk(const linear_params &p, const work &w, i64 slot, unsigned char *bytes)
{
    chunk_state state = {};
    const cfg::element_state *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
    cfg::element_state *to = head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h);
    if (from != nullptr) {
        state.each([&](float &a, int row, int column) {
            if (row < cfg::D && column < w.left) {
                a = to_float(from[row * p.state_i + (w.first + column) * p.state_j]);
            }
        });
    }
    chunk_walk walk{p, w, shared_address(bytes), reinterpret_cast<float *>(bytes + chunk_layout::SUMS), 0, 0};
    walk.run(state);
    if (to != nullptr) {
        state.store(to, w, p.state_out_i, p.state_out_j);
    }
}

DEV void chunked(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<CHUNK_SLICES, CHUNK_COLUMNS>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<CHUNK_COLUMNS, CHUNK_THREADS>(p, w);
    } else if (!goes_by_token(p, w.s)) {
        forward_by_chunk(p, w, slot, bytes);
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int chunks = linear::chunk_layout::END;
}

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::CHUNK_THREADS, 2)
    LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::chunked(p, shared_bytes);
}
#endif
