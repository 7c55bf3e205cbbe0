// attention/narrow_rows.cuh: the rows of queries of a warp of attention/decode_narrow.cuh, as operands of mma.sync
// m16n8k16 with keys and values of 8 bits (attention/narrow_words.cuh). With 16 rows, Q and weights are its first
// operand, and of four rows a quarter of each product counts. With 8, K and V transposed are: half the products, and
// half the scores and elements of o in a thread.
#pragma once
#include "attention/fragment.cuh"
#include "attention/narrow_words.cuh"
#include "common/ptx_transpose.cuh"

// ---- which elements are whose --------------------------------------------------------------------------

// Scores of 8 rows and keys, whose product has keys as its rows: two adjacent rows of a thread, and of each block of
// 16 keys two adjacent ones. Eight threads share a row. Element c of row r is [c / 2][2 (c % 2) + r] of its array.
// Key 2 i + j of a block is row i + 8 j of the operand (eight_rows::place), so that a thread's two are adjacent.
struct transposed_fragment {
    static constexpr int ROWS = 2;
    static constexpr int BLOCK = 2;
    static constexpr int BLOCK_COLUMNS = 16;

    DEV int first_row(int lane) { return ROWS * (lane & 3); }
    DEV int first_column(int lane) { return BLOCK * (lane / 4); }
    DEV int row(int r) { return r; }
    DEV int column(int c) { return c / BLOCK * BLOCK_COLUMNS + c % BLOCK; }
    DEV int columns_in(int ahead) { return BLOCK * (ahead >> 4) + min(ahead & 15, BLOCK); }

    template <int NB> DEV float &at(float (&s)[1][NB][4], int r, int c) { return s[0][c / 2][2 * (c % 2) + r]; }
    template <int NB> DEV const float &at(const float (&s)[1][NB][4], int r, int c)
    {
        return s[0][c / 2][2 * (c % 2) + r];
    }

    // Over the threads of a row, which are four lanes apart; one of them leads.
    static constexpr int SHARERS = 8;
    DEV bool leads(int lane) { return lane / 4 == 0; }
    template <int OP> DEV float reduce(float x)
    {
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) {
            x = red_combine<OP>(x, __shfl_xor_sync(ALL_LANES, x, lanes));
        }
        return x;
    }
    DEV bool any(bool of_thread) { return (__ballot_sync(ALL_LANES, of_thread) >> (lane_id() & 3) & 0x11111111u) != 0; }

    struct diagonals { // rows of several heads have none in common
        float value[ROWS][BLOCK];
    };
};

// ---- 16 rows -------------------------------------------------------------------------------------------

// K: of keys, V: of values; bf16 or f16, or 8 bits.
template <class K, class V, class OPERAND, int BN, int D, int D_V> struct sixteen_rows {
    using fragment = mma_fragment<1>;
    static constexpr int ROWS = 16;       // of a warp
    static constexpr int Q_ROWS = 2;      // of Q, that a thread has parts of
    static constexpr int BLOCKS = BN / 8; // of scores
    static constexpr int O_BLOCKS = D_V / 8;
    static constexpr int Q_STEPS = D / 16;
    static constexpr bool NARROW_K = IS_NARROW<K>, NARROW_V = IS_NARROW<V>;
    static constexpr int K_PAIRS = NARROW_K ? D / 2 : D, V_PAIRS = NARROW_V ? D_V / 2 : D_V;

    a_fragments<1, Q_STEPS> q;

    // Which of the warp's rows the r'th of Q is; its pair `half` of step k.
    DEV int q_row(int lane, int r) { return lane / 4 + 8 * r; }
    __device__ __forceinline__ u32 &pair(int k, int half, int r) { return q.r[k][0][2 * half + r]; }
    // Of a thread's rows of Q -> of its rows of scores.
    DEV float of_score_row(const float (&x)[2], int r) { return x[r]; }
    DEV int q_columns(int k, int half) { return q_column<NARROW_K>(k, half); }
    DEV int o_columns(int c) { return o_column<NARROW_V>(c / 2, c % 2); }
    DEV int place(int key) { return key; }

    __device__ __forceinline__ void multiply_qk(float (&s)[1][BLOCKS][4], u32 k_tile) const
    {
        const u32 at = k_tile + lane_offset_b<K_PAIRS>(lane_id());
        if constexpr (NARROW_K) {
            narrow_qk<K, BLOCKS, D>(s, q, at);
        } else {
            product_qk<OPERAND, 1, BLOCKS, D, true>(s, 0u, q, at);
        }
    }
    DEV void add_pv(float (&o)[1][O_BLOCKS][4], const float (&s)[1][BLOCKS][4], u32 v_tile)
    {
        const u32 at = v_tile + lane_offset_b_transposed<V_PAIRS>(lane_id());
        if constexpr (NARROW_V) {
            narrow_pv<V, BLOCKS, D_V>(o, s, at);
        } else {
            product_pv<OPERAND, 1, BLOCKS, O_BLOCKS, D_V>(o, s, at);
        }
    }
};

// ---- 8 rows --------------------------------------------------------------------------------------------

template <class K, class V, int BN, int D, int D_V> struct eight_rows {
    using fragment = transposed_fragment;
    static constexpr int ROWS = 8;
    static constexpr int Q_ROWS = 1;
    static constexpr int BLOCKS = BN / 16;
    static constexpr int O_BLOCKS = D_V / 16;
    static constexpr int Q_STEPS = D / 16;
    static constexpr int K_PAIRS = D / 2, V_PAIRS = D_V / 2;
    static_assert(IS_NARROW<K> && IS_NARROW<V>, "k and v have 8 bits");

    u32 q[Q_STEPS][2];

    DEV int q_row(int lane, int) { return lane / 4; }
    __device__ __forceinline__ u32 &pair(int k, int half, int) { return q[k][half]; }
    DEV float of_score_row(const float (&x)[1], int r) // the two rows are of two quarters of a warp
    {
        return __shfl_sync(ALL_LANES, x[0], 4 * (fragment::first_row(lane_id()) + r));
    }
    DEV int q_columns(int k, int half) { return q_column<true>(k, half); }
    DEV int o_columns(int c) { return fragment::first_column(lane_id()) + fragment::column(c); }
    // Where a key of a tile lies: of each 16, those of even numbers first.
    DEV int place(int key) { return (key & ~15) + (key & 1) * 8 + (key >> 1 & 7); }

    // s = K Q^T
    __device__ __forceinline__ void multiply_qk(float (&s)[1][BLOCKS][4], u32 k_tile) const
    {
        using shape = swizzle<K_PAIRS>;
        constexpr int LOADS = D / 32 * BLOCKS; // ldmatrix gives 16 keys of 32 columns
        const u32 at = k_tile + lane_offset_b<K_PAIRS>(lane_id());
#pragma unroll
        for (int i = 0; i < BLOCKS * 4; i++) {
            s[0][i / 4][i % 4] = 0.0f;
        }
        u32 words[2][4];
        load_matrix4(words[0], at);
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int step = shape::step(i / BLOCKS);
            if (i + 1 < LOADS) {
                load_matrix4(words[(i + 1) & 1], shape::along(at, 2 * shape::step((i + 1) / BLOCKS)) +
                                                     static_cast<u32>((i + 1) % BLOCKS * 16 * shape::ROW_BYTES));
            }
#pragma unroll
            for (int chunk = 0; chunk < 2; chunk++) {
                u32 a[4]; // keys 0 .. 7, 8 .. 15 of the first columns, then of the second
                widen_word<K, NARROW_ADJACENT>(words[i & 1][chunk], a[0], a[2]);
                widen_word<K, NARROW_ADJACENT>(words[i & 1][2 + chunk], a[1], a[3]);
                mma_16x8x16<f16>(s[0][i % BLOCKS], a, q[2 * step + chunk][0], q[2 * step + chunk][1]);
            }
        }
    }

    // o += V^T P^T
    DEV void add_pv(float (&o)[1][O_BLOCKS][4], const float (&s)[1][BLOCKS][4], u32 v_tile)
    {
        using shape = swizzle<V_PAIRS>;
        constexpr int PAIRS = D_V / 32; // ldmatrix gives 32 columns of 16 keys
        constexpr int LOADS = BLOCKS * PAIRS;
        const u32 at = v_tile + lane_offset_b_transposed<V_PAIRS>(lane_id());
        u32 words[2][4];
        u32 weights[2] = {};
        load_matrix4_transposed(words[0], at);
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int block = i / PAIRS;
            const int d = i % PAIRS;
            if (i + 1 < LOADS) {
                load_matrix4_transposed(words[(i + 1) & 1],
                                        shape::along(at, 2 * ((i + 1) % PAIRS)) +
                                            static_cast<u32>((i + 1) / PAIRS * 16 * shape::ROW_BYTES));
            }
            if (d == 0) {
                weights[0] = transpose_8x8(pack<f16>(s[0][block][0], s[0][block][1]));
                weights[1] = transpose_8x8(pack<f16>(s[0][block][2], s[0][block][3]));
            }
#pragma unroll
            for (int chunk = 0; chunk < 2; chunk++) {
                u32 a[4]; // even columns, odd columns of keys 0 .. 7, then of the others
                widen_word<V, NARROW_CROSSED>(words[i & 1][2 * chunk], a[0], a[1]);
                widen_word<V, NARROW_CROSSED>(words[i & 1][2 * chunk + 1], a[2], a[3]);
                mma_16x8x16<f16>(o[0][2 * d + chunk], a, weights[0], weights[1]);
            }
        }
    }
};
