// common/wgmma_fp8_sm90.cuh: the products of common/wgmma_sm90.cuh for numbers of e4m3. The hardware multiplies those
// with both operands along k alone, so V lies turned over: columns of o are rows of its tile, and a row has the keys.
//
// Two bytes are one of the 16-bit elements that panels count: a step is 32 numbers deep, and of 32 bytes.
#pragma once
#include "common/narrow.cuh"
#include "common/ptx_fp8_sm90.cuh"
#include "common/wgmma_sm90.cuh"

// A row's keys have an order of their own in V's tiles: a step of 32 takes from lane l 4 adjacent numbers of each half,
// and the scores' fragment gives it 2 and 2, 8 keys apart. So place p of 16 has this key of those 16:
DEV constexpr int key_of_place(int p) { return 8 * (p % 4 / 2) + 2 * (p / 4) + p % 2; }

template <class T> struct tile_products; // attention/fwd_sm90_reader.cuh has those of 16 bits
template <> struct tile_products<f8_e4m3> {
    // Starts s = Q K^T as start_qk of common/wgmma_sm90.cuh; rows are of COLS numbers.
    template <int N, int COLS, bool GROUPED = false> DEV void start_scores(float (&s)[N / 8][4], u64 q, u32 k)
    {
        using shape = panels<COLS / 2>;
        constexpr u64 Q_PANEL = descriptor_step(64 * shape::SPAN);
        constexpr u64 K_PANEL = descriptor_step(N * shape::SPAN);
        wgmma<N>::fence(s);
        const u64 b = shape::descriptor(of_the_warp(k), 16);
#pragma unroll
        for (int i = 0; i < COLS / 32; i++) {
            const u64 along = descriptor_step(i % shape::STEPS * 32);
            wgmma_e4m3<N>::ss(s, q + i / shape::STEPS * Q_PANEL + along, b + i / shape::STEPS * K_PANEL + along,
                              i != 0);
        }
        wgmma_commit();
    }

    // 64 rows of weights as A operands, with the keys in that order: the scores' fragments, rounded.
    template <int NB, bool RELU = false> DEV void pack(u32 (&p)[NB / 4][4], const float (&s)[NB][4])
    {
        static_assert(!RELU, "the conversion to e4m3 takes no maximum with 0 along");
#pragma unroll
        for (int k = 0; k < NB / 4; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) { // rows i % 2 of the thread's two, keys 16 (i / 2) and on of the step
                const float(&low)[4] = s[4 * k + i / 2 * 2];
                const float(&high)[4] = s[4 * k + i / 2 * 2 + 1];
                p[k][i] = e4m3x4_from_floats(low[2 * (i % 2)], low[2 * (i % 2) + 1], high[2 * (i % 2)],
                                             high[2 * (i % 2) + 1]);
            }
        }
    }

    // Starts o += P V, or o = P V where `sum` is 0: V is a tile of N rows and KEYS columns.
    template <int N, int KEYS, bool GROUPED = false>
    DEV void start_output(float (&o)[N / 8][4], const u32 (&p)[KEYS / 32][4], u32 v, int sum)
    {
        using shape = panels<KEYS / 2>;
        constexpr u64 PANEL = descriptor_step(N * shape::SPAN);
        wgmma<N>::fence(o);
        const u64 b = shape::descriptor(of_the_warp(v), 16);
#pragma unroll
        for (int i = 0; i < KEYS / 32; i++) {
            wgmma_e4m3<N>::rs(o, p[i], b + i / shape::STEPS * PANEL + descriptor_step(i % shape::STEPS * 32),
                              i == 0 ? sum : 1);
        }
        wgmma_commit();
    }
};
