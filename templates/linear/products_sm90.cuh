// linear/products_sm90.cuh: the products of a warpgroup that walks along chunks of 64 tokens (wgmma).
//
// A tile has 64 tokens; its columns lie in panels of 64, one PANEL after the other, as common/wgmma_sm90.cuh has them. Results have 64 rows, those of the warpgroup.
// start_: the products go on until wait_ has come; wait_<N> leaves the newest N groups under way.
#pragma once
#include "common/wgmma_sm90.cuh"

namespace linear {

constexpr int CHUNK_TOKENS = 64;
constexpr int PANEL = CHUNK_TOKENS * 128; // bytes

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
    start_steps<same_type<T, bf16>, N, DEPTH, CHUNK_TOKENS, CHUNK_TOKENS, false>(s, panels<DEPTH>::descriptor(of_the_warp(x), 16),
                                                                                panels<DEPTH>::descriptor(of_the_warp(y), 16));
    wgmma_commit();
}

// o = A X', or o += A X' where `sum` is 1. The caller fences and commits.
template <class T, int DEPTH> DEV void add_inter(float (&o)[8][4], const u32 (&a)[DEPTH / 16][4], u32 x, int sum)
{
    const u64 b = panel::descriptor(of_the_warp(x), 16);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        wgmma<64>::template rs<same_type<T, bf16>, false>(o, a[k], b + descriptor_step(k / 4 * PANEL + k % 4 * 32), k == 0 ? sum : 1);
    }
}

// o += Z' P': Z is a panel, P has [row][token of Z].
template <class T> DEV void start_intra(float (&o)[8][4], u32 z, u32 scores)
{
    const u64 a = panel::descriptor(of_the_warp(z), 16);
    const u64 b = panel::descriptor(of_the_warp(scores), 16);
    wgmma<64>::fence(o);
#pragma unroll
    for (int k = 0; k < CHUNK_TOKENS / 16; k++) {
        wgmma<64>::template ss<same_type<T, bf16>, true, false>(o, a + descriptor_step(k * 16 * 128), b + descriptor_step(k * 32), 1);
    }
    wgmma_commit();
}

// state += Z' Y: z are fragments of the transposed panel.
template <class T, int DEPTH> DEV void start_update(float (&state)[DEPTH / 8][4], const u32 (&z)[CHUNK_TOKENS / 16][4], u32 y)
{
    start_pv<T, DEPTH, CHUNK_TOKENS>(state, z, y, 1);
}

} // namespace linear
