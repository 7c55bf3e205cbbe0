/*
 * nsa.h: native sparse attention (Yuan et al. 2025) of packed sequences, as one call: nsa_forward, and
 * nsa_backward. nsa.c runs the specs mean_pool_packed, nsa_compressed, nsa_select, nsa_selected,
 * sliding_window and nsa_gates in order; take both files into a program of your own.
 *
 * With n(t) = (t + 1) / block complete blocks at token t of its sequence, and sigma = 1 / sqrt(d):
 *     o_cmp = attention of q to the means of k and v over the first n(t) blocks; none: 0
 *     the token's own block, the first one, the one before it, and those that weigh most in o_cmp, added up
 *     over the query heads of a key head, are chosen: `blocks` of them
 *     o_slc = attention to the keys up to t of the blocks that were chosen
 *     o_swa = attention to the last `window` keys up to t
 *     o = g_cmp o_cmp + g_slc o_slc + g_swa o_swa
 * The choice is a constant of the backward pass. Blocks whose weights differ by less than rounding may change
 * places from run to run: several heads add to a weight, in no order.
 */
#ifndef LATHE_EXAMPLES_NSA_H
#define LATHE_EXAMPLES_NSA_H

#include <stdint.h>

#include <lathe.h>

#include "memory.h"

struct nsa_sizes {
    int h, h_kv, d, d_v;   /* h is a multiple of h_kv; head dims of q and k, and of v */
    int block, blocks;     /* keys of a block, a multiple of 16 for attention_selected; how many are chosen */
    int window;            /* keys */
    int sequences;         /* they lie one behind the other, */
    const int32_t *length; /* [sequences], in host memory, of so many tokens each; 0 is one, too */
    lathe_dtype dtype;     /* f16, bf16 or f32; on the host device also f64 */
};

/* In memory of the device, compact, tokens first. */
struct nsa_tensors {
    void *q, *k, *v;                /* [tokens, h, d] [tokens, h_kv, d] [tokens, h_kv, d_v] */
    void *g_cmp, *g_slc, *g_swa;    /* [tokens, h], as they weigh: a sigmoid or a softmax is the caller's */
    void *o;                        /* [tokens, h, d_v] */
    void *dout;                     /* dL/do; this and what follows: of nsa_backward alone */
    void *dq, *dk, *dv;             /* as q, k, v */
    void *dg_cmp, *dg_slc, *dg_swa; /* [tokens, h], f32 (f64 beside f64) */
};

struct nsa;

/* Kernels and memory for these sizes: what lies between the steps is kept for nsa_backward, so a call at a
   time. The memory of o, of `tokens * h_kv * blocks` chosen blocks and of `tokens * h_kv * chunks` weights is
   the largest part. The caller closes it, also where this has failed. */
lathe_status nsa_open(struct nsa **out, lathe_ctx *ctx, const struct memory *memory,
                      const struct nsa_sizes *sizes, lathe_error *err);
void nsa_close(struct nsa *n);

/* Enqueues all steps, and waits for nothing. */
lathe_status nsa_forward(struct nsa *n, const struct nsa_tensors *t, lathe_stream stream, lathe_error *err);
/* Of the same tensors, behind nsa_forward. */
lathe_status nsa_backward(struct nsa *n, const struct nsa_tensors *t, lathe_stream stream, lathe_error *err);

#endif
