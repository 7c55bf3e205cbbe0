/*
 * nsa.h: private to native sparse attention: its steps, what lies between them, the arguments of each.
 */
#ifndef LATHE_RT_NSA_H
#define LATHE_RT_NSA_H

#include <stdbool.h>

#include "lathe_nsa.h"

enum { MOST_ARGUMENTS = 14 };

enum nsa_step {
    POOL_K,
    POOL_V,
    COMPRESSED,
    WEIGHTS, /* of blocks: the gradient of lse by what is added to their scores */
    SELECT,
    SELECTED,
    WINDOW,
    GATES,
    GATES_BACK, /* from here on: lathe_nsa_backward */
    COMPRESSED_BACK,
    SELECTED_BACK,
    WINDOW_BACK,
    POOL_K_BACK,
    POOL_V_BACK,
    SUM_Q,
    SUM_K,
    SUM_V,
    STEPS
};

/* What lies between the steps, in the workspace. */
enum nsa_buffer {
    CU,    /* [sequences + 1]: where they begin among tokens, */
    CHUNK, /* and among chunks */
    FIRST, /* [chunks]: first token, and how many */
    LENGTH,
    PLACE,     /* [block]: 0, 1, ... */
    OWN,       /* [tokens]: the chunk that a token is in, */
    OWN_FIRST, /* and the first one of its sequence */
    ZERO,      /* [d_v] */
    ONE,       /* [1] */
    K_MEAN,    /* [chunks, h_kv, d] */
    V_MEAN,    /* [chunks, h_kv, d_v] */
    WEIGHT,    /* [h_kv, tokens, chunks] */
    BLOCKS,    /* [h_kv, tokens, blocks] */
    O_CMP,     /* [tokens, h, d_v], of each branch; */
    O_SLC,
    O_SWA,
    LSE_CMP, /* [h, tokens]; */
    LSE_SLC,
    LSE_SWA,
    DO_CMP, /* and gradients of all of this, from here on: of lathe_nsa_backward alone */
    DO_SLC,
    DO_SWA,
    DQ_CMP,
    DQ_SLC,
    DQ_SWA,
    DK_MEAN,
    DK_CMP, /* f32 */
    DK_SLC,
    DK_SWA,
    DV_MEAN,
    DV_CMP, /* f32 */
    DV_SLC,
    DV_SWA,
    KERNELS, /* the workspace of a kernel at a time */
    BUFFERS
};
enum { LISTS = ONE + 1 }; /* the buffers that are copied from the host */

struct lathe_nsa {
    lathe_nsa_sizes s; /* lengths NULL */
    lathe_ctx *ctx;
    int64_t tokens, chunks;
    int64_t batch; /* sequences of one length are a batch, which kernels of every kind serve; else 1, and
                      lists say where each begins */
    lathe_kernel *kernel[STEPS];
    void *list[LISTS];      /* in host memory */
    size_t offset[BUFFERS]; /* in the workspace */
    size_t kernel_bytes;
    size_t bytes;
    unsigned char *workspace; /* NULL: none is attached */
};

struct nsa_call { /* the arguments of a step */
    lathe_arg arg[MOST_ARGUMENTS];
    int64_t shape[MOST_ARGUMENTS][4], stride[MOST_ARGUMENTS][4];
    int n;
};

/* Of gradients that are sums, of lse and of weights. */
lathe_dtype lathe__nsa_wide(const struct lathe_nsa *n);
void lathe__nsa_arguments(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t,
                          enum nsa_step step);

#endif
