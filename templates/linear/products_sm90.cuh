// linear/products_sm90.cuh: the products of a warpgroup that walks along chunks of 64 tokens (wgmma).
//
// A tile has PANEL_ROWS tokens; its columns lie in panels of 64, one PANEL after the other, as common/wgmma_sm90.cuh
// has them. Results have 64 rows, those of the warpgroup.
// start_: the products go on until wait_ has come; wait_<N> leaves the newest N groups under way.
#pragma once
#include "common/wgmma_sm90.cuh"

namespace linear
{

constexpr int PANEL_ROWS = 64;
constexpr int PANEL = PANEL_ROWS * 128; // bytes

using panel = panels<64>;

// Between other uses of d, or of registers that a product takes, and the next product.
template <int NB> DEV void fence_products(float (&d)[NB][4]) { wgmma<8 * NB>::fence(d); }
DEV void commit_products() { wgmma_commit(); }
template <int PENDING, int NB> DEV void wait_products(float (&d)[NB][4]) { wgmma<8 * NB>::template wait<PENDING>(d); }
// What this thread has written to shared memory is seen by products after the next barrier.
DEV void fence_written() { fence_async_proxy(); }

// s = X Y', of N tokens of Y from `y` on.
template <class T, int DEPTH, int N> DEV void start_scores(float (&s)[N / 8][4], u32 x, u32 y)
{
    wgmma<N>::fence(s);
    start_steps<same_type<T, bf16>, N, DEPTH, PANEL_ROWS, PANEL_ROWS, false>(
        s, panels<DEPTH>::descriptor(of_the_warp(x), 16), panels<DEPTH>::descriptor(of_the_warp(y), 16));
    wgmma_commit();
}

// o = A X', or o += A X' where `sum` is 1. The caller fences and commits.
template <class T, int DEPTH> DEV void add_inter(float (&o)[8][4], const u32 (&a)[DEPTH / 16][4], u32 x, int sum)
{
    const u64 b = panel::descriptor(of_the_warp(x), 16);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        wgmma<64>::template rs<same_type<T, bf16>, false>(o, a[k], b + descriptor_step(k / 4 * PANEL + k % 4 * 32),
                                                          k == 0 ? sum : 1);
    }
}

// o += Z' P': Z is a panel, P has [row][token of Z].
template <class T> DEV void start_intra(float (&o)[8][4], u32 z, u32 scores)
{
    const u64 a = panel::descriptor(of_the_warp(z), 16);
    const u64 b = panel::descriptor(of_the_warp(scores), 16);
    wgmma<64>::fence(o);
#pragma unroll
    for (int k = 0; k < PANEL_ROWS / 16; k++) {
        wgmma<64>::template ss<same_type<T, bf16>, true, false>(o, a + descriptor_step(k * 16 * 128),
                                                                b + descriptor_step(k * 32), 1);
    }
    wgmma_commit();
}

// state += Z' Y: z are fragments of the transposed panel.
template <class T, int DEPTH>
DEV void start_update(float (&state)[DEPTH / 8][4], const u32 (&z)[PANEL_ROWS / 16][4], u32 y)
{
    start_pv<T, DEPTH, PANEL_ROWS>(state, z, y, 1);
}

// ---- tiles that products leave and take --------------------------------------------------------------

DEV int product_warp() { return static_cast<int>(threadIdx.x) / 32 % 4; } // of the warpgroup
// Where this lane reads or writes transposed fragments of a panel: of its warp's 16 columns and of 16 rows.
DEV u32 place_of_rows(int row)
{
    return panel::offset<PANEL_ROWS>(row + lane_id() % 8 + lane_id() / 16 * 8, product_warp() * 2 + lane_id() / 8 % 2);
}
// Rounded: this warp's 16 rows of scores, from a group of 8 columns on.
template <class T, int NB> DEV void leave_scores(u32 tile, const float (&s)[NB][4], int group)
{
#pragma unroll
    for (int b = 0; b < NB; b += 2) {
        const u32 four[4] = {pack<T>(s[b][0], s[b][1]), pack<T>(s[b][2], s[b][3]), pack<T>(s[b + 1][0], s[b + 1][1]),
                             pack<T>(s[b + 1][2], s[b + 1][3])};
        store_matrix4(
            tile + panel::offset<PANEL_ROWS>(product_warp() * 16 + lane_id() % 16, group + b + lane_id() / 16), four);
    }
}
// And a result, whose rows are the panel's columns.
template <class T> DEV void leave_transposed(u32 tile, const float (&o)[8][4])
{
#pragma unroll
    for (int b = 0; b < 8; b += 2) {
        const u32 four[4] = {pack<T>(o[b][0], o[b][1]), pack<T>(o[b][2], o[b][3]), pack<T>(o[b + 1][0], o[b + 1][1]),
                             pack<T>(o[b + 1][2], o[b + 1][3])};
        store_matrix4_transposed(tile + place_of_rows(8 * b), four);
    }
}

} // namespace linear
