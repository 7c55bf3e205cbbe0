/*
 * plan_beside.h: the part of struct plan (gen.h) that is about kernels with numbers of their own: attention
 * backward, and running sums that rowwise_walk leaves.
 */
#ifndef LATHE_GEN_PLAN_BESIDE_H
#define LATHE_GEN_PLAN_BESIDE_H

#include <stdbool.h>

struct back_plan { /* attention backward: of its main kernel; what is beside it is of the forward kernel */
    int bm, bn, warps, stages, split;
    int dk, dv; /* columns of a tile in shared memory */
    bool wgmma; /* tensor maps in front of the parameters, and a warpgroup more, which loads */
    int smem_bytes;
    int v_steps; /* sm_90a: BACK_V_STEPS and BACK_EARLY_DV of templates/README.md */
    bool early_dv;
    bool dq_stored; /* BACK_DQ_STORED: dq' is not zeroed; thread blocks take blocks of keys from a counter */
    int thread_blocks;
    bool paired;  /* BACK_PAIRED: thread blocks go in clusters of two */
    int pieces;   /* BACK_PIECES: places for dk', dv' of pieces of the last blocks of keys; 0: none is cut */
    bool forward; /* the forward kernel runs first: for o, finals or row states */
};

enum { CHAIN_GROUP = 8 }; /* parts of a group */
struct chain_plan {       /* rowwise_chain.cuh */
    int threads, blocks;
    int strips;  /* that are left to it: fewer than this */
    int batches; /* of a warp, of a part */
    int places;  /* of a part */
    int smem_bytes;
};

#endif
