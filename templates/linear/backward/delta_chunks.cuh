// linear/backward/delta_chunks.cuh: kernels: what of the delta rule's backward pass is of a chunk of 64 tokens alone,
// from what the walks have left.
//
// Launch: a block of WALK_THREADS threads for each chunk of each head, smem_bytes::bwd_chunks of shared memory; of
// bwd_inverse, ahead of the walks, as in linear/delta_inverse.cuh; it leaves the sums of logarithms, too. bwd_again: o
// once more, in f32. bwd_chunks, with the formulas and names of delta_parts.cuh, and dA = scale (do X') Gamma from the
// diagonal on, dN = -(dv X') Gamma below it:
//     dq = scale e^G do S' + dA k,    dk = -e^G dv S' + dN k + e^(G_end - G) X dS'' + dA' q + dN' k,    dbeta = dv X /
//     beta^2 The gradient of a decay's logarithm is a sum over all paths that cross it: from state to state, from state
//     to the outputs behind it, from the keys ahead of it to the state, and from keys to outputs, the sum of dA A + dN
//     N over the pairs on both sides of it. So nothing is added that is taken away again.
#pragma once
#include "linear/backward/chunk_adjoint.cuh"
#include "linear/backward/delta_parts.cuh"

namespace linear
{

constexpr bool SUMS_DECAY = cfg::DECAY_GRADIENT && DECAYS;
constexpr int OWN_D = PAD_D / 2; // key channels of a warp
// of what the walks have left
constexpr int STATE_ROWS = cfg::STATE_BY_COLUMN ? PAD_V : PAD_D;
constexpr int STATE_COLUMNS = cfg::STATE_BY_COLUMN ? PAD_D : PAD_V;

struct delta_chunk_layout { // in shared memory, bytes
    static constexpr int KEY_BYTES = CHUNK_TOKENS * PAD_D * OPERAND, VALUE_BYTES = CHUNK_TOKENS * PAD_V * OPERAND;
    // q, k, do, dv
    static constexpr int QUERIES = 0, KEYS = QUERIES + KEY_BYTES, OUTPUTS = KEYS + KEY_BYTES,
                         VALUES = OUTPUTS + VALUE_BYTES;
    static constexpr int WRITTEN = VALUES + VALUE_BYTES, SCORES = WRITTEN; // X, then dA and dN
    static constexpr int STATE = WRITTEN + max_of(VALUE_BYTES, 2 * MATRIX_BYTES);
    static constexpr int SUMS = STATE + STATE_ELEMENTS * OPERAND, ENDS = SUMS + CHUNK_TOKENS * 4, END = ENDS + 32;
};

struct delta_chunk {
    using operand = cfg::operand;
    using layout = delta_chunk_layout;
    const linear_back_params &p;
    const work &w;
    int place;
    unsigned char *bytes;
    u32 shared;

    __device__ __forceinline__ u32 tile(int which) const { return shared + static_cast<u32>(which); }
    __device__ __forceinline__ chunk_logs logs() const { return {tile(layout::SUMS)}; }
    __device__ __forceinline__ float *numbers(int which) const { return reinterpret_cast<float *>(bytes + which); }
    // Found again where they are asked for: kept over the turns of run_chunks, what is made of them takes registers.
    DEV int quarter() { return static_cast<int>(fresh_thread()) / 32 % 4; }
    DEV int half_of() { return static_cast<int>(fresh_thread()) / 128; }
    DEV int row0() { return quarter() * 16; }
    DEV int column0() { return half_of() * HALF; }
    DEV int channel0() { return half_of() * OWN_D; }

    // ---- memory --------------------------------------------------------------------------------------

    __device__ __forceinline__ void load_queries() const
    {
        load_tokens<PAD_D, cfg::element_q>(tile(layout::QUERIES), w, place, p.q, w.s.batch * p.q_b + w.h_kv * p.q_h,
                                           p.q_t, cfg::D);
    }
    __device__ __forceinline__ void load_keys() const
    {
        load_tokens<PAD_D, cfg::element_k>(tile(layout::KEYS), w, place, p.k, w.s.batch * p.k_b + w.h_kv * p.k_h, p.k_t,
                                           cfg::D);
    }
    // X or dv.
    __device__ __forceinline__ void load_left(int to, const void *base) const
    {
        load_tokens<PAD_V, operand>(tile(to), w, place, base, first_line(p, w) * cfg::D_V, cfg::D_V, cfg::D_V);
    }
    __device__ __forceinline__ void load_state(const void *base) const
    {
        const operand *from = state_of(base, p, w, place);
        if constexpr (cfg::STATE_BY_COLUMN) { // turned already
#pragma unroll
            for (int i = 0; i < STATE_ELEMENTS / 8 / WALK_THREADS; i++) {
                const int n = static_cast<int>(threadIdx.x) + i * WALK_THREADS;
                copy16_async(tile(layout::STATE) + static_cast<u32>(16 * n), from + 8 * n, 16);
            }
        } else {
#pragma unroll
            for (int i = 0; i < STATE_ROWS / CHUNK_TOKENS; i++) {
                load_rows<STATE_COLUMNS, WALK_THREADS>(
                    tile(layout::STATE) + static_cast<u32>(i * CHUNK_TOKENS * swizzle<STATE_COLUMNS>::ROW_BYTES),
                    from + i * CHUNK_TOKENS * STATE_COLUMNS, STATE_COLUMNS, CHUNK_TOKENS, STATE_COLUMNS);
            }
        }
    }
    // The state in front of the chunk in the place of the gradient of that behind it; returns the sum of their
    // products, of this thread's elements.
    __device__ __forceinline__ float change_state() const
    {
        const operand *from = state_of(p.states, p, w, place);
        float sum = 0.0f;
#pragma unroll 4
        for (int i = 0; i < STATE_ELEMENTS / 8 / WALK_THREADS; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * WALK_THREADS;
            const u32 at = tile(layout::STATE) +
                           (cfg::STATE_BY_COLUMN
                                ? static_cast<u32>(16 * n)
                                : swizzle<STATE_COLUMNS>::offset(n / (STATE_COLUMNS / 8), n % (STATE_COLUMNS / 8)));
            const uint4 x = *reinterpret_cast<const uint4 *>(from + n * 8);
            const uint4 y = load_shared16(at);
            const u32 own[4] = {x.x, x.y, x.z, x.w};
            const u32 other[4] = {y.x, y.y, y.z, y.w};
            float word[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float a[2];
                float b[2];
                unpack<operand>(own[e], a[0], a[1]);
                unpack<operand>(other[e], b[0], b[1]);
                sum += a[0] * b[0] + a[1] * b[1];
                word[e] = __uint_as_float(own[e]);
            }
            store_shared16(at, word);
        }
        return sum;
    }
    // Of 16 rows and OWN_D channels, four blocks of eight at a time; T is f32 or the element.
    template <class T>
    __device__ __forceinline__ void store_gradient(float (&x)[OWN_D / 8][4], T *base, i64 stride) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = place + row_of(row0(), r);
            T *row = base + sequence::token(w.s, w.has(at) ? at : place) * stride;
#pragma unroll
            for (int n = 0; n < OWN_D / 8; n += 4) {
                if constexpr (same_type<T, float>) {
                    store_floats(x, row, n, r, w.has(at));
                } else {
                    store_elements(x, row, n, r, w.has(at));
                }
            }
        }
    }
    DEV void store_floats(float (&x)[OWN_D / 8][4], float *row, int n, int r, bool exists)
    {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int channel = channel0() + 8 * (n + e) + lane_id() % 4 * 2;
            const float two[2] = {x[n + e][2 * r], x[n + e][2 * r + 1]};
            if (exists && channel < cfg::D) {
                store_any<2, float>(row + channel, two);
            }
        }
    }
    template <class T> DEV void store_elements(float (&x)[OWN_D / 8][4], T *row, int n, int r, bool exists)
    {
        u32 word[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            word[e] = pack<operand>(x[n + e][2 * r], x[n + e][2 * r + 1]);
        }
        const uint4 four = transpose_four(word, lane_id());
        const int channel = channel0() + 8 * (n + lane_id() % 4);
        if (!exists || channel >= cfg::D) {
            return;
        }
        if (is_aligned<16>(row + channel)) {
            *reinterpret_cast<uint4 *>(row + channel) = four;
            return;
        }
        const u32 mine[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 8; e++) {
            row[channel + e].bits = static_cast<u16>(mine[e / 2] >> (16 * (e % 2)));
        }
    }
    struct adjoint_of_queries {
        static constexpr bool RUNS = cfg::ADJOINT_Q;
        template <class CHUNK> DEV void run(const CHUNK &own, float (&x)[OWN_D / 8][4])
        {
            if constexpr (RUNS) {
                own.template adjoin<variant::query_back, variant::query_mod>(
                    x,
                    own.template head<cfg::element_q>(own.p.given_q, own.p.given_q_b, own.p.given_q_h, own.p.given_q_t),
                    own.template head<cfg::element_q>(own.p.dq, own.p.dq_b, own.p.dq_h, own.p.dq_t));
            }
        }
    };
    struct adjoint_of_keys {
        static constexpr bool RUNS = cfg::ADJOINT_K;
        template <class CHUNK> DEV void run(const CHUNK &own, float (&x)[OWN_D / 8][4])
        {
            if constexpr (RUNS) {
                own.template adjoin<variant::key_back, variant::key_mod>(
                    x,
                    own.template head<cfg::element_k>(own.p.given_k, own.p.given_k_b, own.p.given_k_h, own.p.given_k_t),
                    own.template head<cfg::element_k>(own.p.dk, own.p.dk_b, own.p.dk_h, own.p.dk_t));
            }
        }
    };
    template <class T>
    __device__ __forceinline__ adjoint_tensor<T> head(const void *base, i64 s_b, i64 s_h, i64 s_t) const
    {
        return {static_cast<T *>(const_cast<void *>(base)) + (w.s.batch * s_b + w.h_kv * s_h), s_t};
    }
    // Where dv was, which nobody reads any more.
    template <class BACK, class MOD, class T> __device__ __forceinline__ void
    adjoin(float (&x)[OWN_D / 8][4], const adjoint_tensor<T> &given, const adjoint_tensor<T> &result) const
    {
        static_assert(!BACK::PRESENT || ADJOINT_BYTES <= layout::VALUE_BYTES, "adjoints fit where values were");
        chunk_adjoint<BACK, MOD, T>{p, w, place, tile(layout::VALUES)}.run(x, channel0(), given, result);
    }
    // What the heads of v up to this one make of a gradient, of those that share one of q and k: each thread takes what
    // it left itself.
    DEV void add_left(float (&x)[OWN_D / 8][4], const uint4 *left)
    {
#pragma unroll
        for (int n = 0; n < OWN_D / 8; n++) {
            const uint4 own = left[n * WALK_THREADS];
            x[n][0] += __uint_as_float(own.x);
            x[n][1] += __uint_as_float(own.y);
            x[n][2] += __uint_as_float(own.z);
            x[n][3] += __uint_as_float(own.w);
        }
    }
    DEV void leave(const float (&x)[OWN_D / 8][4], uint4 *left)
    {
#pragma unroll
        for (int n = 0; n < OWN_D / 8; n++) {
            left[n * WALK_THREADS] = make_uint4(__float_as_uint(x[n][0]), __float_as_uint(x[n][1]),
                                                __float_as_uint(x[n][2]), __float_as_uint(x[n][3]));
        }
    }
    // ADJOINT finishes the gradient, or another kernel.
    template <class T, class ADJOINT> __device__ __forceinline__ void
    store_keys(float (&x)[OWN_D / 8][4], float *part, void *whole, i64 s_b, i64 s_h, i64 s_t) const
    {
        const int turn = w.h % p.z.group();
        uint4 *left = reinterpret_cast<uint4 *>(part) +
                      ((chunk_number(p, w.s, place) * p.z.n_h_kv + w.h_kv) * (OWN_D / 8 * WALK_THREADS) +
                       static_cast<int>(threadIdx.x));
        if (turn > 0) {
            add_left(x, left);
        }
        if (turn + 1 < p.z.group()) {
            leave(x, left);
        } else if constexpr (ADJOINT::RUNS) {
            ADJOINT::run(*this, x);
        } else if (whole != nullptr) {
            store_gradient<T>(x, static_cast<T *>(whole) + (w.s.batch * s_b + w.h_kv * s_h), s_t);
        }
    }

    // ---- pairs of tokens -----------------------------------------------------------------------------

    struct pair_gradients {
        u32 a[HALF / 8][2], n[HALF / 8][2]; // dA and dN, two elements each, of rows 8 apart
    };
    struct decay_sums { // of this lane's rows: what reads (of rows), what is written; of one column
        float reads[2], writes[2], column;
    };

    // dv X of a token is the gradient of beta times beta^2. On the diagonal are lanes with both of their rows or with
    // none.
    __device__ __forceinline__ void store_betas(const float (&x)[2]) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = place + row_of(row0(), r);
            if (half_of() == quarter() / 2 && lane_id() / 8 == lane_id() % 4 && w.has(at)) {
                p.dbeta[line_of(p, w, at)] = x[r];
            }
        }
    }
    // dA and dN of a pair from do X and dv X, `log` the decays between the two; returns what flows through it.
    __device__ __forceinline__ float weigh(float &a, float &n, float score, float product, int row, int column,
                                           float log) const
    {
        const float by = DECAYS ? exp2_approx(column <= row ? log : 0.0f) : 1.0f;
        a = column <= row ? a * w.scale * by : 0.0f;
        n = column < row ? -n * by : 0.0f;
        return column < row ? a * score + n * product : 0.0f;
    }
    __device__ __forceinline__ void make_pairs(pair_gradients &pairs, decay_sums &sums) const
    {
        constexpr int NB = HALF / 8;
        float a[NB][4] = {};
        float n[NB][4] = {};
        float score[NB][4] = {};
        float product[NB][4] = {};
        float diagonal[2] = {};
        float columns[2 * NB] = {};                 // two of each block
        const bool below = column0() < row0() + 16; // or there is no such pair
        if (below) {
            add_two_products<PAD_V>(a, n, left_rows<PAD_V>::of(tile(layout::OUTPUTS), row0()),
                                    left_rows<PAD_V>::of(tile(layout::VALUES), row0()),
                                    right_rows<PAD_V>::of(tile(layout::WRITTEN), column0()));
        }
        if (SUMS_DECAY && below) {
            add_two_products<PAD_D>(score, product, left_rows<PAD_D>::of(tile(layout::QUERIES), row0()),
                                    left_rows<PAD_D>::of(tile(layout::KEYS), row0()),
                                    right_rows<PAD_D>::of(tile(layout::KEYS), column0()));
        }
        const row_pair to = logs().rows(row0());
#pragma unroll
        for (int b = 0; b < NB; b++) {
            const float2 from = logs().two(column0() + 8 * b + lane_id() % 4 * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = row_of(row0(), i / 2);
                const int column = column0() + 8 * b + lane_id() % 4 * 2 + i % 2;
                diagonal[i / 2] = row == column ? n[b][i] : diagonal[i / 2];
                const float log = to.x[i / 2] - (i % 2 == 0 ? from.x : from.y);
                const float through = weigh(a[b][i], n[b][i], score[b][i], product[b][i], row, column, log);
                sums.reads[i / 2] += through;
                columns[2 * b + i % 2] += through;
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                pairs.a[b][r] = pack<operand>(a[b][2 * r], a[b][2 * r + 1]);
                pairs.n[b][r] = pack<operand>(n[b][2 * r], n[b][2 * r + 1]);
            }
        }
        store_betas(diagonal);
        if constexpr (SUMS_DECAY) {
            sums.column = sum_of_column(columns);
        }
    }
    // Over the eight lanes that have rows of the same columns; each of them gets one column's.
    DEV float sum_of_column(const float (&columns)[8])
    {
        float own = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float x = columns[i];
            x += __shfl_xor_sync(ALL_LANES, x, 4);
            x += __shfl_xor_sync(ALL_LANES, x, 8);
            x += __shfl_xor_sync(ALL_LANES, x, 16);
            own = lane_id() / 4 == i ? x : own;
        }
        return own;
    }
    DEV int own_column() { return column0() + lane_id() / 8 * 8 + lane_id() % 4 * 2 + lane_id() / 4 % 2; }

    __device__ __forceinline__ void leave_pairs(const pair_gradients &pairs) const
    {
#pragma unroll
        for (int b = 0; b < HALF / 8; b++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const u32 at = pair_at<CHUNK_TOKENS>(tile(layout::SCORES), row_of(row0(), r),
                                                     column0() + 8 * b + lane_id() % 4 * 2);
                store_shared(at, pairs.a[b][r]);
                store_shared(at + MATRIX_BYTES, pairs.n[b][r]);
            }
        }
    }

    // ---- states --------------------------------------------------------------------------------------

    // 16 tokens of a tile of values times the transposed state, channels from `first` on, each token by a factor; to
    // `sum` goes what of it the tile of keys or queries takes.
    template <int NB> __device__ __forceinline__ void add_state(float (&x)[NB][4], float (&sum)[2], int first,
                                                                int values, int keys, const row_pair &by) const
    {
        const auto tokens = left_rows<PAD_V>::of(tile(values), row0());
        if constexpr (cfg::STATE_BY_COLUMN) {
            add_product<PAD_V>(x, tokens, right_columns<PAD_D>::of(tile(layout::STATE), first));
        } else {
            add_product<PAD_V>(x, tokens, right_rows<PAD_V>::of(tile(layout::STATE), first));
        }
        scale_rows(x, by);
        if constexpr (SUMS_DECAY) {
            each_pair(x, row0(), first, [&](int r, int row, int channel, float a, float b) {
                float own[2];
                load_pair<PAD_D>(tile(keys), row, channel, own[0], own[1]);
                sum[r] += own[0] * a + own[1] * b;
            });
        }
    }
    // What the keys get as readers of the state: half of the channels at a time, for want of registers.
    __device__ __forceinline__ void add_readers(float (&dk)[OWN_D / 8][4], float (&sum)[2]) const
    {
        const row_pair by = logs().rows_from_start(row0(), -1.0f);
#pragma unroll
        for (int n = 0; n < OWN_D / 8; n += 4) {
            float x[4][4] = {};
            add_state(x, sum, channel0() + 8 * n, layout::VALUES, layout::KEYS, by);
#pragma unroll
            for (int e = 0; e < 16; e++) {
                dk[n + e / 4][e % 4] += x[e / 4][e % 4];
            }
        }
    }
    // A token's pairs as a key are with itself and those behind it, as one that reads with those ahead of it.
    __device__ __forceinline__ void add_pairs_of_keys(float (&x)[OWN_D / 8][4]) const
    {
        constexpr int STEPS = CHUNK_TOKENS / 16;
        const auto queries = right_columns<PAD_D>::of(tile(layout::QUERIES), channel0());
        const auto keys = right_columns<PAD_D>::of(tile(layout::KEYS), channel0());
        add_steps(x, left_columns<CHUNK_TOKENS>::of(tile(layout::SCORES), row0()), queries, quarter(), STEPS);
        add_steps(x, left_columns<CHUNK_TOKENS>::of(tile(layout::SCORES + MATRIX_BYTES), row0()), keys, quarter(),
                  STEPS);
        add_steps(x, left_rows<CHUNK_TOKENS>::of(tile(layout::SCORES + MATRIX_BYTES), row0()), keys, 0, quarter() + 1);
    }

    // ---- gradients of decays -------------------------------------------------------------------------

    struct parts { // in the place of the queries
        float reads[2][CHUNK_TOKENS], writes[2][CHUNK_TOKENS], columns[4][CHUNK_TOKENS];
    };
    __device__ __forceinline__ void leave_sums(const decay_sums &sums) const
    {
        parts &to = *reinterpret_cast<parts *>(bytes + layout::QUERIES);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float reads = sum4(sums.reads[r]);
            const float writes = sum4(sums.writes[r]);
            if (lane_id() % 4 == 0) {
                to.reads[half_of()][row_of(row0(), r)] = reads;
                to.writes[half_of()][row_of(row0(), r)] = writes;
            }
        }
        to.columns[quarter()][own_column()] = sums.column;
    }
    // By one warp, two tokens a lane.
    __device__ __forceinline__ void store_decays() const
    {
        const parts &from = *reinterpret_cast<const parts *>(bytes + layout::QUERIES);
        float state = 0.0f;
#pragma unroll
        for (int k = 0; k < WALK_THREADS / 32; k++) {
            state += numbers(layout::ENDS)[k];
        }
        state *= logs().from_start(CHUNK_TOKENS - 1);
        float reads[2];
        float writes[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int token = 2 * lane_id() + k;
            const float columns =
                (from.columns[0][token] + from.columns[1][token]) + (from.columns[2][token] + from.columns[3][token]);
            reads[k] = from.reads[0][token] + from.reads[1][token] - columns;
            writes[k] = from.writes[0][token] + from.writes[1][token];
        }
        float behind = reads[0] + reads[1];  // from this lane's first token on
        float ahead = writes[0] + writes[1]; // to its second
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float later = __shfl_down_sync(ALL_LANES, behind, static_cast<u32>(step));
            const float before = __shfl_up_sync(ALL_LANES, ahead, static_cast<u32>(step));
            behind += lane_id() + step < 32 ? later : 0.0f;
            ahead += lane_id() >= step ? before : 0.0f;
        }
        float later = __shfl_down_sync(ALL_LANES, behind, 1); // behind this lane's tokens
        // and ahead of them: added up, as a difference would have the digits of larger numbers
        float before = __shfl_up_sync(ALL_LANES, ahead, 1);
        later = lane_id() < 31 ? later : 0.0f;
        before = lane_id() > 0 ? before : 0.0f;
        store_decay(2 * lane_id(), state + (reads[0] + reads[1] + later) + before);
        store_decay(2 * lane_id() + 1, state + (reads[1] + later) + (before + writes[0]));
    }
    // Where a decay leaves nothing (see forgets) nothing flows back to its logarithm.
    __device__ __forceinline__ void store_decay(int token, float x) const
    {
        const float log = logs().to(token) - (token > 0 ? logs().to(token - 1) : 0.0f);
        if (w.has(place + token)) {
            p.dlog[line_of(p, w, place + token)] = log <= -126.0f ? 0.0f : x;
        }
    }

    // ---- the chunk -----------------------------------------------------------------------------------

    // What is read one by one later is in L2 by then: the state in front, and q and k as they were given.
    __device__ __forceinline__ void ask_ahead() const
    {
        constexpr int LINE = 64; // elements
        const int n = static_cast<int>(threadIdx.x);
        if (n < STATE_ELEMENTS / LINE) {
            prefetch_line(state_of(p.states, p, w, place) + n * LINE);
        }
        if constexpr (cfg::ADJOINT_Q) {
            ask_for_rows(head<cfg::element_q>(p.given_q, p.given_q_b, p.given_q_h, p.given_q_t), n);
        }
        if constexpr (cfg::ADJOINT_K) {
            ask_for_rows(head<cfg::element_k>(p.given_k, p.given_k_b, p.given_k_h, p.given_k_t), n - WALK_THREADS / 2);
        }
    }
    template <class T> __device__ __forceinline__ void ask_for_rows(const adjoint_tensor<T> &given, int n) const
    {
        constexpr int LINES = PAD_D / 64;
        const int at = place + n / LINES;
        if (n >= 0 && n < CHUNK_TOKENS * LINES && w.has(at) && n % LINES * 64 < cfg::D) {
            prefetch_line(static_cast<const T *>(given.head) +
                          (sequence::token(w.s, at) * given.stride + n % LINES * 64));
        }
    }
    __device__ __forceinline__ void fetch() const
    {
        load_queries();
        load_keys();
        load_tokens<PAD_V, cfg::element_o>(tile(layout::OUTPUTS), w, place, p.dout,
                                           w.s.batch * p.dout_b + w.h * p.dout_h, p.dout_t, cfg::D_V);
        load_left(layout::VALUES, p.dwritten);
        load_left(layout::WRITTEN, p.written);
        load_state(p.dstates);
        load_sums(tile(layout::SUMS), p, w, place);
        copy_commit();
        ask_ahead();
        copy_wait<0>();
        __syncthreads();
    }
    __device__ __forceinline__ void run() const
    {
        fetch();
        pair_gradients pairs;
        decay_sums sums = {};
        make_pairs(pairs, sums);
        float dk[OWN_D / 8][4] = {};
        add_state(dk, sums.writes, channel0(), layout::WRITTEN, layout::KEYS, logs().rows_to_end(row0()));
        __syncthreads();
        leave_pairs(pairs);
        const float both = lanes_sum<32>(change_state());
        if (lane_id() == 0) {
            numbers(layout::ENDS)[threadIdx.x / 32] = both;
        }
        __syncthreads();
        add_pairs_of_keys(dk);
        add_readers(dk, sums.reads);
        store_keys<dk_element, adjoint_of_keys>(dk, p.dk_head, p.dk, p.dk_b, p.dk_h, p.dk_t);
        float dq[OWN_D / 8][4] = {};
        add_state(dq, sums.reads, channel0(), layout::OUTPUTS, layout::QUERIES,
                  logs().rows_from_start(row0(), w.scale));
        add_steps(dq, left_rows<CHUNK_TOKENS>::of(tile(layout::SCORES), row0()),
                  right_columns<PAD_D>::of(tile(layout::KEYS), channel0()), 0, quarter() + 1);
        store_keys<dq_element, adjoint_of_queries>(dq, p.dq_head, p.dq, p.dq_b, p.dq_h, p.dq_t);
        if constexpr (SUMS_DECAY) {
            __syncthreads();
            leave_sums(sums);
            __syncthreads();
            if (threadIdx.x < 32) {
                store_decays();
            }
        }
    }

    // o = scale (e^G q S + A X), half of the value channels of 16 tokens a warp.
    __device__ __forceinline__ void run_again() const
    {
        constexpr int OWN_V = PAD_V / 2;
        load_queries();
        load_keys();
        load_left(layout::WRITTEN, p.written);
        load_state(p.states);
        load_sums(tile(layout::SUMS), p, w, place);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        const int first = half_of() * OWN_V;
        float s[HALF / 8][4] = {};
        add_product<PAD_D>(s, left_rows<PAD_D>::of(tile(layout::QUERIES), row0()),
                           right_rows<PAD_D>::of(tile(layout::KEYS), column0()));
        const row_pair to = logs().rows(row0());
        each_pair(s, row0(), column0(), [&](int r, int row, int column, float a, float b) {
            const float2 from = logs().two(column);
            const float x = column <= row ? a * chunk_logs::left_of(fmaxf(from.x, to.x[r]), to.x[r]) : 0.0f;
            const float y = column + 1 <= row ? b * chunk_logs::left_of(fmaxf(from.y, to.x[r]), to.x[r]) : 0.0f;
            store_pair<CHUNK_TOKENS>(tile(layout::OUTPUTS), row, column, x, y); // which nothing else is in
        });
        float o[OWN_V / 8][4] = {};
        const auto queries = left_rows<PAD_D>::of(tile(layout::QUERIES), row0());
        if constexpr (cfg::STATE_BY_COLUMN) {
            add_product<PAD_D>(o, queries, right_rows<PAD_D>::of(tile(layout::STATE), first));
        } else {
            add_product<PAD_D>(o, queries, right_columns<PAD_V>::of(tile(layout::STATE), first));
        }
        scale_rows(o, logs().rows_from_start(row0(), 1.0f));
        __syncthreads();
        add_product<CHUNK_TOKENS>(o, left_rows<CHUNK_TOKENS>::of(tile(layout::OUTPUTS), row0()),
                                  right_columns<PAD_V>::of(tile(layout::WRITTEN), first));
        each_pair(o, row0(), first, [&](int, int row, int column, float a, float b) {
            if (w.has(place + row) && column < cfg::D_V) {
                const float two[2] = {w.scale * a, w.scale * b};
                store_vec<2, float>(p.again_o + (line_of(p, w, place + row) * cfg::D_V + column), two);
            }
        });
    }
};

DEV void make_again(const linear_back_params &p, unsigned char *bytes)
{
    inverse_work at = find_chunk(p);
    if (at.place < at.w.s.length) {
        at.w.scale = variant::scale(p.x, p.z, at.w.head);
        delta_chunk{p, at.w, at.place, bytes, shared_address(bytes)}.run_again();
    }
}

// The heads of v that share one of q and k one after the other, by the block of the first; each is found anew, for want
// of registers.
DEV void run_chunks(const linear_back_params &p, unsigned char *bytes)
{
    if (static_cast<int>(blockIdx.x) % p.z.n_h % p.z.group() != 0) {
        return;
    }
#pragma unroll 1
    for (int turn = 0; turn < p.z.group(); turn++) {
        inverse_work at = find_chunk(p, static_cast<int>(blockIdx.x) + turn);
        if (at.place >= at.w.s.length) {
            return;
        }
        at.w.scale = variant::scale(p.x, p.z, at.w.head);
        if (turn > 0) {
            __syncthreads();
        }
        delta_chunk{p, at.w, at.place, bytes, shared_address(bytes)}.run();
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_inverse = static_cast<int>(sizeof(linear::inverse_layout));
constexpr int bwd_chunks = linear::delta_chunk_layout::END;
constexpr int bwd_again = linear::delta_chunk_layout::END;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_inverse)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS, 6)
    LATHE_ENTRY(bwd_inverse)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::invert<linear::prepared_keys>(
        p, shared_bytes, [](float beta) { return linear::kept_beta(beta); },
        [&](i64 which, const linear::inverse_layout &s) {
            if (linear::DECAYS && threadIdx.x < linear::CHUNK_TOKENS) {
                p.sums[which * linear::CHUNK_TOKENS + threadIdx.x] = s.sums[threadIdx.x];
            }
        });
}
#endif

#if LATHE_COMPILED(bwd_chunks)
extern "C" __global__ void __launch_bounds__(linear::WALK_THREADS, cfg::CHUNK_BLOCKS)
    LATHE_ENTRY(bwd_chunks)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::run_chunks(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(bwd_again)
extern "C" __global__ void __launch_bounds__(linear::WALK_THREADS, cfg::CHUNK_BLOCKS)
    LATHE_ENTRY(bwd_again)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::make_again(p, shared_bytes);
}
#endif
