// common/mma_sm80.cuh: tiles in swizzled shared memory, and the products of a warp's rows with them (mma.sync
// m16n8k16).
//
// A tile has ROWS rows of COLS 16-bit elements, COLS a multiple of 16, in chunks of 16 bytes. ldmatrix reads
// one logical chunk of 8 adjacent rows at a time, so those 8 must lie in different banks: chunk c of row r is
// stored at place c ^ turn(r), where turn(r) is below the largest power of two W <= 8 that divides the chunks
// of a row. The bits of a chunk's address that turn() touches are zero in the address of the row, hence an
// address is one exclusive or away from its neighbours along the row.
#pragma once
#include "common/base.cuh"

template <int COLS> struct swizzle {
    static_assert(COLS > 0 && COLS % 16 == 0, "a row of a tile has a multiple of 16 elements");
    static constexpr int CHUNKS = COLS / 8;
    static constexpr int W = CHUNKS % 8 == 0 ? 8 : CHUNKS % 4 == 0 ? 4 : 2;
    static constexpr int ROW_BYTES = COLS * 2;

    DEV int turn(int row) { return (row & 7) / (8 / W); }
    DEV u32 offset(int row, int chunk) // bytes from the start of the tile
    {
        return static_cast<u32>(row * ROW_BYTES + (chunk ^ turn(row)) * 16);
    }
    // Steps of two chunks along a row, in an order in which those that share the exclusive or come together:
    // one address at a time is enough.
    DEV constexpr int step(int i)
    {
        constexpr int TURNS = W / 2;
        constexpr int REPEATS = CHUNKS / W;
        return i % REPEATS * TURNS + i / REPEATS;
    }
    // Address of the same row, `chunks` (even, a constant) further on; `address` lies in chunk 0 or 1.
    DEV u32 along(u32 address, int chunks)
    {
        return (address ^ static_cast<u32>((chunks & (W - 1)) * 16)) + static_cast<u32>((chunks & ~(W - 1)) * 16);
    }
};

// Copies rows of a [token][dim] tensor into a tile. Consecutive threads take consecutive 16-byte pieces of a
// row, and a thread's rows are a multiple of 8 apart: its places in the tile differ by constants. Rows from
// `left` on, and elements from DIM up to COLS, become zeros.
template <int ROWS, int DIM, int COLS, int THREADS> struct tile_loader {
    using shape = swizzle<COLS>;
    static constexpr int ACROSS = shape::CHUNKS % 16 == 0 && THREADS >= 128 ? 16 : shape::W; // threads of a row
    static constexpr int STEP = THREADS / ACROSS;                                            // rows at a time
    static_assert(THREADS % ACROSS == 0 && STEP % 8 == 0, "8, 16 .. rows at a time");

    const char *from; // row 0 of the tensor; the same for the whole block
    i64 row_bytes;

    template <class T> __device__ __forceinline__ tile_loader(const T *base, i64 row_stride)
        : from(reinterpret_cast<const char *>(base)), row_bytes(row_stride * static_cast<i64>(sizeof(T)))
    {
    }

    // Rows row0 .. row0 + ROWS - 1 to the tile at `tile`; `left` of them exist (more is the same as ROWS).
    __device__ __forceinline__ void load(u32 tile, int row0, int left) const
    {
        const u32 thread = fresh_thread(); // found again for each tile: registers less in between
        const int chunk = static_cast<int>(thread % ACROSS);
        const int row = static_cast<int>(thread / ACROSS);
        const u32 to = tile + shape::offset(row, chunk);
        const char *source = from + (row0 + row) * row_bytes + chunk * 16;
#pragma unroll
        for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++) {
            if (ROWS % STEP == 0 || row < ROWS - i * STEP) {
#pragma unroll
                for (int c = 0; c < shape::CHUNKS; c += ACROSS) {
                    const bool inside = row < left - i * STEP && (DIM == COLS || (chunk + c) * 8 < DIM);
                    copy16_async(to + static_cast<u32>(i * STEP * shape::ROW_BYTES + c * 16), source + c * 16,
                                 inside ? 16 : 0);
                }
            }
            source += STEP * row_bytes;
            keep(source); // one running address: else all of them would be kept in registers from tile to tile
        }
    }
};

// ---- operands of a warp ------------------------------------------------------------------------------

// Where this lane reads: rows of A (16 rows x 16 deep), of B stored [n][k] (16 n x 16 deep) and of B stored
// [k][n] (16 deep x 16 n, through the transposing load). The order of the four 8x8 matrices differs.
template <int COLS> DEV u32 lane_offset_a(int lane, int row0)
{
    return swizzle<COLS>::offset(row0 + (lane & 15), lane >> 4);
}
template <int COLS> DEV u32 lane_offset_b(int lane)
{
    return swizzle<COLS>::offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
}
template <int COLS> DEV u32 lane_offset_b_transposed(int lane) { return lane_offset_a<COLS>(lane, 0); }

template <class T> DEV void mma_16x8x16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    static_assert(same_type<T, f16> || same_type<T, bf16>, "mma.sync takes f16 or bf16");
    if constexpr (same_type<T, f16>) {
        mma_f16(c, a, b0, b1);
    } else {
        mma_bf16(c, a, b0, b1);
    }
}

template <int MT, int KSTEPS> struct a_fragments {
    u32 r[KSTEPS][MT][4];
};

template <int MT, int COLS> DEV void load_a(u32 (&a)[MT][4], u32 lane_address, int k)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        load_matrix4(a[m],
                     swizzle<COLS>::along(lane_address, 2 * k) + static_cast<u32>(m * 16 * swizzle<COLS>::ROW_BYTES));
    }
}

// s = Q K^T for 16 MT rows of Q and 8 NB rows of K. Fragments are loaded one step ahead of their products. Q
// comes from shared memory (q_address) or, where Q_IN_REGS, from q_regs.
template <class T, int MT, int NB, int COLS, bool Q_IN_REGS, int QK>
DEV void product_qk(float (&s)[MT][NB][4], u32 q_address, const a_fragments<MT, QK> &q_regs, u32 k_address)
{
    constexpr int KSTEPS = COLS / 16;
    static_assert(NB % 2 == 0 && (!Q_IN_REGS || QK == KSTEPS), "keys in multiples of 16");
    using shape = swizzle<COLS>;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int b = 0; b < NB; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[m][b][i] = 0.0f;
            }
        }
    }
    constexpr int PAIRS = NB / 2; // ldmatrix gives 16 keys
    constexpr int LOADS = KSTEPS * PAIRS;
    u32 a[2][MT][4];
    u32 b[2][4];
    if constexpr (!Q_IN_REGS) {
        load_a<MT, COLS>(a[0], q_address, shape::step(0));
    }
    load_matrix4(b[0], k_address); // step(0) is 0
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int k = i / PAIRS; // the how manieth 16 deep; which, says shape::step
        const int n = i % PAIRS;
        if (i + 1 < LOADS) {
            load_matrix4(b[(i + 1) & 1], shape::along(k_address, 2 * shape::step((i + 1) / PAIRS)) +
                                             static_cast<u32>((i + 1) % PAIRS * 16 * shape::ROW_BYTES));
        }
        if constexpr (!Q_IN_REGS) {
            if (n == 0 && k + 1 < KSTEPS) {
                load_a<MT, COLS>(a[(k + 1) & 1], q_address, shape::step(k + 1));
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
                if constexpr (Q_IN_REGS) {
                    mma_16x8x16<T>(s[m][2 * n + half], q_regs.r[shape::step(k)][m], b[i & 1][2 * half],
                                   b[i & 1][2 * half + 1]);
                } else {
                    mma_16x8x16<T>(s[m][2 * n + half], a[k & 1][m], b[i & 1][2 * half], b[i & 1][2 * half + 1]);
                }
            }
        }
    }
}

// o += P V: the scores' fragments, rounded to T, are the A operand as they stand. DB: blocks of 8 columns of
// V.
template <class T, int MT, int NB, int DB, int COLS>
DEV void product_pv(float (&o)[MT][DB][4], const float (&p)[MT][NB][4], u32 v_address)
{
    using shape = swizzle<COLS>;
    constexpr int PAIRS = DB / 2; // ldmatrix gives 16 columns of V
    constexpr int LOADS = NB / 2 * PAIRS;
    u32 b[2][4];
    u32 a[MT][4];
    load_matrix4_transposed(b[0], v_address);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int k = i / PAIRS;
        const int d = i % PAIRS;
        if (i + 1 < LOADS) {
            load_matrix4_transposed(b[(i + 1) & 1], shape::along(v_address, 2 * ((i + 1) % PAIRS)) +
                                                        static_cast<u32>((i + 1) / PAIRS * 16 * shape::ROW_BYTES));
        }
        if (d == 0) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
                a[m][0] = pack<T>(p[m][2 * k][0], p[m][2 * k][1]);
                a[m][1] = pack<T>(p[m][2 * k][2], p[m][2 * k][3]);
                a[m][2] = pack<T>(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
                a[m][3] = pack<T>(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_16x8x16<T>(o[m][2 * d + n], a[m], b[i & 1][2 * n], b[i & 1][2 * n + 1]);
            }
        }
    }
}
