// common/wgmma_sm90.cuh: tiles in shared memory as TMA writes and wgmma reads them, and the products of a
// warpgroup's 64 rows.
//
// A tile of ROWS rows of COLS 16-bit elements is cut into panels of SPAN bytes a row, one after the other: a
// panel is one TMA box. Within it row r starts at r SPAN; address bits 4.. are exclusive-ored with bits 7.. :
// three of them where SPAN is 128, two at 64, one at 32. The pattern repeats every 8 SPAN bytes, and every
// panel starts on a multiple of that.
#pragma once
#include "common/base.cuh"
#include "common/ptx_sm90.cuh"

template <int COLS> struct panels {
    static_assert(COLS > 0 && COLS % 16 == 0, "a row of a tile has a multiple of 16 elements");
    static constexpr int SPAN = COLS % 64 == 0 ? 128 : COLS % 32 == 0 ? 64 : 32; // bytes of a row in a panel
    static constexpr int COUNT = COLS * 2 / SPAN;
    static constexpr int STEPS = SPAN / 32; // of 16 elements, along a row of a panel
    static constexpr u64 SWIZZLE = SPAN == 128 ? 1 : SPAN == 64 ? 2 : 3;

    // Of 8 elements of a row, in a tile of ROWS rows.
    template <int ROWS> DEV u32 offset(int row, int chunk)
    {
        constexpr int PATTERN = SPAN / 16;
        const int exchanged = (row * SPAN >> 7) & (PATTERN - 1);
        return static_cast<u32>(chunk / PATTERN * ROWS * SPAN + row * SPAN + ((chunk % PATTERN) ^ exchanged) * 16);
    }

    // Matrix descriptor of a tile at `address`. `leading`: bytes from panel to panel where those lie along n
    // (or m); the hardware does not look at it where they lie along k.
    DEV u64 descriptor(u32 address, u32 leading)
    {
        return static_cast<u64>(address >> 4) | static_cast<u64>(leading >> 4) << 16 |
               static_cast<u64>(8 * SPAN >> 4) << 32 | SWIZZLE << 62;
    }
};

// An address that is the same in every lane, so that it goes to a uniform register once: the steps of a descriptor
// are then additions beside the warps' own work, and not three moves before every wgmma.
DEV u32 of_the_warp(u32 address) { return __shfl_sync(ALL_LANES, address, 0); }

DEV constexpr u64 descriptor_step(int bytes) { return static_cast<u64>(bytes >> 4); }

// s = A B^T, both tiles of COLS columns, of A_ROWS and B_ROWS rows. GROUPED, here and below: four products are one
// statement, the first one behind a fence. The compiler then orders instructions between them otherwise: for 64 columns
// on an H200, 2 % slower with ALiBi.
template <bool BF16, int N, int COLS, int A_ROWS, int B_ROWS, bool GROUPED>
DEV void start_steps(float (&s)[N / 8][4], u64 a, u64 b)
{
    using shape = panels<COLS>;
    constexpr u64 A_PANEL = descriptor_step(A_ROWS * shape::SPAN);
    constexpr u64 B_PANEL = descriptor_step(B_ROWS * shape::SPAN);
    if constexpr (GROUPED) {
        constexpr int STEP = 32 / 16; // bytes of a step, as descriptors count them
        wgmma<N>::template ss4<BF16, true, STEP, STEP>(s, a, b, 0);
#pragma unroll
        for (int panel = 1; panel < shape::COUNT; panel++) {
            wgmma<N>::template ss4<BF16, false, STEP, STEP>(s, a + panel * A_PANEL, b + panel * B_PANEL, 1);
        }
    } else {
#pragma unroll
        for (int i = 0; i < COLS / 16; i++) {
            const u64 along = descriptor_step(i % shape::STEPS * 32);
            wgmma<N>::template ss<BF16>(s, a + i / shape::STEPS * A_PANEL + along,
                                        b + i / shape::STEPS * B_PANEL + along, i != 0);
        }
    }
}

// Q's descriptor for start_qk: for a tile that serves several times.
template <int COLS> DEV u64 describe_q(u32 q) { return panels<COLS>::descriptor(of_the_warp(q), 16); }

// Starts s = Q K^T: 64 rows of Q, out of ROWS of its tile, and N rows of K, COLS deep, both as tiles of COLS columns.
template <class T, int N, int COLS, int ROWS = 64, bool GROUPED = false>
DEV void start_qk(float (&s)[N / 8][4], u64 a, u32 k)
{
    using shape = panels<COLS>;
    constexpr bool FOUR = GROUPED && shape::STEPS == 4;
    if constexpr (!FOUR) {
        wgmma<N>::fence(s);
    }
    const u64 b = shape::descriptor(of_the_warp(k), 16);
    start_steps<same_type<T, bf16>, N, COLS, ROWS, N, FOUR>(s, a, b);
    wgmma_commit();
}
template <class T, int N, int COLS, int ROWS = 64, bool GROUPED = false>
DEV void start_qk(float (&s)[N / 8][4], u32 q, u32 k)
{
    start_qk<T, N, COLS, ROWS, GROUPED>(s, describe_q<COLS>(q), k);
}

// 64 rows of weights as A operands: the scores' fragments, rounded to T, are just those. RELU: as pack() has it.
template <class T, int NB, bool RELU = false> DEV void pack_weights(u32 (&p)[NB / 2][4], const float (&s)[NB][4])
{
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p[k][i] = pack<T, RELU>(s[2 * k + i / 2][2 * (i % 2)], s[2 * k + i / 2][2 * (i % 2) + 1]);
        }
    }
}

// Starts o += P V, or o = P V where `sum` is 0: V is a tile of KEYS rows and N columns.
template <class T, int N, int KEYS, bool GROUPED = false>
DEV void start_pv(float (&o)[N / 8][4], const u32 (&p)[KEYS / 16][4], u32 v, int sum)
{
    using shape = panels<N>;
    constexpr bool BF16 = same_type<T, bf16>;
    constexpr int STEP = 16 * shape::SPAN >> 4; // of a descriptor
    constexpr int STEPS = KEYS / 16;
    constexpr int FOURS = GROUPED ? STEPS / 4 : 0;
    if constexpr (FOURS == 0) {
        wgmma<N>::fence(o);
    }
    const u64 b = shape::descriptor(of_the_warp(v), KEYS * shape::SPAN);
    if constexpr (FOURS > 0) {
        wgmma<N>::template rs4<BF16, true, STEP>(o, p, b, sum);
#pragma unroll
        for (int i = 1; i < FOURS; i++) {
            wgmma<N>::template rs4<BF16, false, STEP>(o, p + 4 * i, b + 4 * i * STEP, 1);
        }
    }
#pragma unroll
    for (int i = 4 * FOURS; i < STEPS; i++) {
        wgmma<N>::template rs<BF16>(o, p[i], b + i * STEP, i == 0 ? sum : 1);
    }
    wgmma_commit();
}
