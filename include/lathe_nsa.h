/*
 * lathe_nsa.h: native sparse attention (Yuan et al. 2025) of packed sequences: kernels of the specs
 * mean_pool_packed, nsa_compressed, nsa_select, nsa_selected, sliding_window and nsa_gates, launched in
 * order by one call, forward and backward.
 *
 * With n(t) = (t + 1) / block complete blocks at token t of its sequence, and scores divided by sqrt(d):
 *     o_cmp = attention of q to the means of k and v over each of the first n(t) blocks; none: 0. In their
 *         place the caller may give a key and a value of each block
 *     the token's own block, the first one, the one before it, and those that weigh most in o_cmp, added up
 *         over the query heads of a key head, are chosen: `blocks` of them
 *     o_slc = attention to the keys up to t of the blocks that were chosen
 *     o_swa = attention to the last `window` keys up to t
 *     o = g_cmp o_cmp + g_slc o_slc + g_swa o_swa
 *
 * The choice is a constant of the backward pass. Blocks whose weights differ by less than rounding may change
 * places from run to run, for several heads add to a weight, in no order: who runs a forward pass twice, as
 * with checkpoints of activations, keeps the blocks and hands them to the second.
 *
 *     lathe_nsa_create           the kernels, for sequences of these lengths
 *     lathe_nsa_workspace_size   bytes of device memory that the caller gives
 *     lathe_nsa_attach           that memory, into which lists of the sequences are copied
 *     lathe_nsa_forward          enqueue all steps on a stream
 *     lathe_nsa_backward         the same, of the gradients
 *
 * The rules of lathe.h hold. The workspace keeps what lies between the steps for lathe_nsa_backward, so of
 * one object one call at a time is under way.
 */
#ifndef LATHE_NSA_H
#define LATHE_NSA_H

#include "lathe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lathe_nsa lathe_nsa;

typedef struct lathe_nsa_sizes {
    int32_t h, h_kv;        /* query heads, a multiple of the key heads */
    int32_t d, d_v;         /* head dims of q and k, and of v */
    int32_t block, blocks;  /* keys of a block (on GPUs a multiple of 16); how many are chosen */
    int32_t window;         /* keys */
    int32_t sequences;      /* they lie one behind the other */
    const int32_t *lengths; /* [sequences], in host memory: tokens of each, 0 among them; copied. Those of one
                               length are computed as a batch, for which there are faster kernels */
    lathe_dtype dtype;      /* f16, bf16 or f32; on the host device also f64 */
    int32_t backward;       /* 1: kernels and memory of lathe_nsa_backward, too */
    int32_t counts;         /* 1: tokens choose as many blocks as `counts` says, up to `blocks` */
    int32_t compressed;     /* 1: `k_cmp` and `v_cmp` are read in the place of means of k and v */
} lathe_nsa_sizes;

/* In memory of the device, compact, tokens first, at multiples of 16 bytes. */
typedef struct lathe_nsa_tensors {
    void *q, *k, *v;             /* [tokens, h, d] [tokens, h_kv, d] [tokens, h_kv, d_v] */
    void *g_cmp, *g_slc, *g_swa; /* [tokens, h], as they weigh: a sigmoid or a softmax is the caller's */
    void *o;                     /* [tokens, h, d_v] */
    void *blocks;                /* [h_kv, tokens, blocks] i32: the numbers of those that are chosen, within
                                    their sequence, -1 behind the last; NULL: kept in the workspace */
    int32_t blocks_given;        /* 1: `blocks` are read, and none are chosen */
    void *dout;                  /* dL/do; this and what follows: of lathe_nsa_backward alone */
    void *dq, *dk, *dv;          /* as q, k, v */
    void *dg_cmp, *dg_slc, *dg_swa; /* [tokens, h], f32 (f64 beside f64) */
    void *counts; /* [h_kv, tokens] i32, from 0 to `blocks`: the first so many of those that a token would
                     choose, its own one ahead of all; not read where blocks are given, which end by -1 */
    /* [chunks, h_kv, d] and [chunks, h_kv, d_v]: what the caller has made of each block of keys, by a spec of
       its own; a sequence has ceil(length / block) of them, one sequence behind the other */
    void *k_cmp, *v_cmp;
    void *dk_cmp, *dv_cmp; /* as these: of lathe_nsa_backward, whose dk and dv are then without what comes by
                              way of them */
} lathe_nsa_tensors;

/* Builds or fetches the kernels. Errors: ARG (a size: which, expected, given), and those of
   lathe_kernel_get: on GPUs UNSUPPORTED, too, of a context with deterministic = 1, for weights of blocks are
   sums over heads in no order. */
LATHE_API LATHE_CHECK lathe_status lathe_nsa_create(lathe_nsa **out, lathe_ctx *ctx,
                                                    const lathe_nsa_sizes *sizes, lathe_error *err);
LATHE_API void lathe_nsa_destroy(lathe_nsa *nsa);

/* Bytes of device memory that lathe_nsa_attach takes; 0 of NULL. The largest part are tokens * h_kv weights
   of blocks, one for each block of all sequences. */
LATHE_API size_t lathe_nsa_workspace_size(const lathe_nsa *nsa);

/* `workspace` (256-byte aligned) is used from here on until another one is attached or the object is
   destroyed. Copies, and waits for that. Errors: ARG (there is none), CUDA. */
LATHE_API LATHE_CHECK lathe_status lathe_nsa_attach(lathe_nsa *nsa, void *workspace, lathe_error *err);

/* Enqueue all steps, and wait for nothing: safe in CUDA-graph capture. lathe_nsa_backward comes behind a
   lathe_nsa_forward of the same tensors. Errors: ARG (a tensor is missing: which; nothing is attached; made
   without backward), and those of lathe_launch. */
LATHE_API LATHE_CHECK lathe_status lathe_nsa_forward(lathe_nsa *nsa, const lathe_nsa_tensors *tensors,
                                                     lathe_stream stream, lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_nsa_backward(lathe_nsa *nsa, const lathe_nsa_tensors *tensors,
                                                      lathe_stream stream, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
