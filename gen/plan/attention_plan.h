/*
 * attention_plan.h: the numbers of attention's kernels, a part of struct plan.
 */
#ifndef LATHE_GEN_ATTENTION_PLAN_H
#define LATHE_GEN_ATTENTION_PLAN_H

#include <stdbool.h>

struct back_plan { /* of the backward pass: its main kernel; what is beside it is of the forward kernel */
    int bm, bn, warps, stages, split;
    int dk, dv; /* columns of a tile in shared memory */
    bool wgmma; /* tensor maps in front of the parameters, and a warpgroup more, which loads */
    int smem_bytes;
    int tables;  /* floats that a warp may have for sums into inputs that are read at computed places */
    int v_steps; /* sm_90a: BACK_V_STEPS and BACK_EARLY_DV of templates/README.md */
    bool early_dv;
    bool dq_stored; /* BACK_DQ_STORED: dq' is not zeroed; thread blocks take blocks of keys from a counter */
    int thread_blocks;
    bool paired; /* BACK_PAIRED: thread blocks go in clusters of two */
    int pieces;  /* BACK_PIECES: places for dk', dv' of pieces of the last blocks of keys; 0: none is cut */
    int sequence_bytes; /* BACK_SEQUENCE_BYTES: declared by the kernel, beside smem_bytes */
    bool forward;       /* the forward kernel runs first: for o, finals or row states */
    bool slices;        /* of head dims: dk' and dv' are added up in memory, in floats; */
    bool selected;      /* so they are of keys that stand in lists of rows: attention_bwd_selected, */
    int blocks;         /* of which so many run on a multiprocessor */
};
/* Bytes of a tile behind its row values, which tell where its norms are, 16 for each 64 rows; sm_90 alone. */
static inline int back_record_bytes(const struct back_plan *t)
{
    return t->wgmma ? t->bm / 64 * 16 : 0;
}

enum second_pair { /* what a template does with q2 and k2: it has none, they are copied behind q and k, or
                      read */
                   PAIR_NONE,
                   PAIR_COPIED,
                   PAIR_READ
};

struct attention_plan { /* of the forward kernel, whether it is what is asked for or runs in front */
    int bm, bn, stages, warps;
    bool q_in_regs;
    int d_pad, dv_pad;
    int smem_bytes;
    bool o_f32;    /* o is written in f32: for what comes behind the kernel, or */
    bool part_end; /* as a part of its row, with row states in the place of the finals */
    bool copies;   /* the template takes head dims that are no multiple of 8: rows are copied to wider ones */
    bool short_rows;               /* as in struct attention_kernel */
    bool parts;                    /* attention_decode: rows are cut by keys, and merged by `combine`, */
    int part_blocks;               /* for so many blocks that run at once, */
    bool parts_even;               /* by lathe__even_key_parts */
    bool selected;                 /* attention_selected: a block of threads for each token and key head */
    bool v_is_k;                   /* attention_mla: V is columns of K's tile */
    bool parts_aligned, o_aligned; /* attention_combine: rows of part_o, of o start at 16 bytes */
    enum second_pair pair;
    int d2; /* columns of q2 and k2 where the kernel reads them; 0: there are none, or they are copied */
    bool optimistic; /* whole tiles try the running maximum at hand first, where the online function allows it
                      */
    /* sm_90a */
    bool tma;     /* a warpgroup that loads comes on top, and tensor maps in front of the parameters */
    int blocks;   /* so many take query tiles in turn; 0: a block for each */
    bool dynamic; /* they take them as they get done, from a counter in the workspace */
    int q_stages; /* tiles of Q that a warpgroup has room for */
    bool own_o;   /* o has a place in shared memory that is not Q's */
    bool pack;    /* query heads of a key head may take turns in the rows of a tile */
    struct back_plan back;
    char rows[320]; /* for `lathe explain`: what becomes of the online function */
};

#endif
