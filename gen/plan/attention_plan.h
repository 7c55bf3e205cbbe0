/*
 * attention_plan.h: the numbers of attention's kernels, a part of struct plan.
 */
#ifndef LATHE_GEN_ATTENTION_PLAN_H
#define LATHE_GEN_ATTENTION_PLAN_H

#include <stdbool.h>

struct plan;
struct text_buf;

/* What emitters ask of a template, beside the numbers of a plan: a part of its row. All zero is a kernel
   whose warps all compute, and whose tensors are read by their strides. */
struct attention_traits {
    int loader_warps; /* on top of those that compute */
    bool tensor_maps; /* of q, k, v and o or do, in front of the parameters */
    int map_rows;     /* of a query tile, judged by the mask as one; 0: all of them */
    bool map_ranges;  /* it takes a mask's map as ranges of keys */
    bool shares;      /* lanes hand each other what a mask makes of rows or columns alone */
    bool fuses;       /* a tile's scores may be capped, or cut at 0, by passes of their own */
    /* of the backward pass */
    int row_parts, key_parts; /* of a tile, judged by the mask one by one; 0: it is judged as one */
    bool pair_steps;          /* it asks for pair() in two steps, with products in between */
    bool cuts_blocks;         /* the last blocks of keys may go in pieces: BACK_PIECES */
    bool dq_unstaged;         /* dq' becomes dq without a tile in shared memory, where no mod is in between */
    bool queries_apart;       /* each query head may have thread blocks of its own */
    int record_rows;          /* 16 bytes behind a tile's row values for so many rows say where norms are */
    void (*constants)(struct text_buf *t, const struct plan *plan); /* of the config, beside BACK_BM ... */
};

struct back_plan { /* of the backward pass: its main kernel; what is beside it is of the forward kernel */
    int bm, bn, warps, stages, split;
    int dk, dv; /* columns of a tile in shared memory */
    int smem_bytes;
    int tables;  /* floats that a warp may have for sums into inputs that are read at computed places */
    int v_steps; /* sm_90a: BACK_V_STEPS and BACK_EARLY_DV of templates/README.md */
    bool early_dv;
    bool dq_stored; /* BACK_DQ_STORED: dq' is not zeroed; thread blocks take blocks of keys from a counter */
    int thread_blocks;
    bool paired; /* BACK_PAIRED: thread blocks go in clusters of two */
    int pieces;  /* BACK_PIECES: places for dk', dv' of pieces of the last blocks of keys; 0: none is cut */
    int slabs, key_places; /* BACK_SLABS, BACK_KEY_PLACES of attention_bwd_sm90 */
    int sequence_bytes;    /* BACK_SEQUENCE_BYTES: declared by the kernel, beside smem_bytes */
    bool forward;          /* the forward kernel runs first: for o, finals or row states */
    bool slices;           /* of head dims: dk' and dv' are added up in memory, in floats; */
    bool walks_keys;       /* blocks have rows of queries, whose dq' is whole, and meet one tile of keys after
                              the other */
    bool selected;         /* so they are of keys that stand in lists of rows: attention_bwd_selected, */
    int blocks;            /* of which so many run on a multiprocessor */
};

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
    bool o_f32;      /* o is written in f32: for what comes behind the kernel, or */
    bool part_end;   /* as a part of its row, with row states in the place of the finals */
    bool short_rows; /* as in struct attention_kernel */
    bool parts;      /* attention_decode: rows are cut by keys, and merged by `combine`, */
    int resident;    /* attention_decode, attention_decode_narrow: blocks of a multiprocessor, */
    int part_blocks; /* for so many blocks that run at once, */
    bool parts_even; /* by lathe__even_key_parts, */
    int own_keys;    /* or by a row's own keys alone, into parts of so many or more; 0: not so */
    bool selected;   /* attention_selected: a block of threads for each token and key head */
    bool v_is_k;     /* attention_mla: V is columns of K's tile */
    bool parts_aligned, o_aligned; /* attention_combine: rows of part_o, of o start at 16 bytes */
    enum second_pair pair;
    int d2; /* columns of q2 and k2 where the kernel reads them; 0: there are none, or they are copied */
    const char *narrow;   /* "k is", "v is", "k and v are" of 8 bits; NULL: neither. A kernel ahead
                             widens it to the dtype of q, or */
    bool gathers;         /* attention_fwd_gathered_sm90: k and v are copied out of pages ahead of it */
    bool reads_narrow;    /* attention_*_narrow: the kernel reads such bytes itself */
    bool applies_key_mod; /* attention_mla_narrow: it applies key_mod to them, too */
    const char *factors;  /* what became of mods of k and v, for `lathe explain`; NULL: nothing */
    bool turned; /* attention_fwd_fp8_sm90: V is turned over in the workspace, and what is multiplied is e4m3
                  */
    bool optimistic; /* whole tiles try the running maximum at hand first, where the online function allows it
                      */
    /* sm_90a */
    int blocks;   /* so many take query tiles in turn; 0: a block for each */
    bool dynamic; /* they take them as they get done, from a counter in the workspace */
    int q_stages; /* tiles of Q that a warpgroup has room for */
    bool own_o;   /* o has a place in shared memory that is not Q's */
    bool pack;    /* query heads of a key head may take turns in the rows of a tile */
    struct back_plan back;
    char rows[320]; /* for `lathe explain`: what becomes of the online function */
};

#endif
