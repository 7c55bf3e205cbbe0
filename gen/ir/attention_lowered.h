/*
 * attention_lowered.h: what lowering finds out about a spec of attention, beside the formulas that it
 * rewrites: each part is one pass's of gen/attention, which alone writes it; kernels and reports read it.
 */
#ifndef LATHE_IR_ATTENTION_LOWERED_H
#define LATHE_IR_ATTENTION_LOWERED_H

#include "gen/ir/ir.h"

/* How the row state of a lowered online function goes from tile to tile: attention/rescale.c. */
enum row_path {
    ROWS_EXACT,     /* every tile as online_fwd says */
    ROWS_DEFERRED,  /* but weights and o are normalised once, at the end: attention/normalise_late.c */
    ROWS_STATELESS, /* there is none: weights by element */
    ROWS_BOUNDED,   /* scores are bounded: a constant takes the place of the running maximum */
    ROWS_LAZY,      /* the running maximum may stay where it is: raised only when it grew by much */
    ROWS_BELOW      /* weights in e4m3: a number below the running maximum takes its place */
};
struct rescale {
    enum row_path path;
    int state;         /* LAZY: which row state is the maximum */
    struct ir_fn kept; /* LAZY: online_fwd for a tile in which the maximum stays; roots as there */
    int now;           /* LAZY, BELOW: what the maximum becomes: a node of online_fwd */
    int watch;         /* LAZY: the row sum of the weights in `kept`: a node, or -1 */
    double low, high;  /* BOUNDED: of the scores */
    bool masked_once;  /* an element of a dead pair is set to `dead` in pass 0, and nothing else has to be
                        selected */
    double dead;
    bool unheld;   /* weights in e4m3 or f16: they may be beyond its numbers, since nothing bounds them */
    bool held;     /* weights in f16: divided by the largest of their row so far (attention/hold_weights.c) */
    char why[160]; /* EXACT: what speaks against the others; LAZY: against BOUNDED */
};

/* A value of pairs that grows by `slope`, which is fixed for a head, from one key to the next. Both are
 * nodes. */
enum { MAX_KEY_STRIDES = 8 };
struct key_stride {
    int node;
    int slope;
};

/* What a mask reads on a tile lies in a box of indices: `count` of each dim, all 1 beyond those that vary;
   `load` reads at their LEAF_PLACE. All are nodes. */
struct mask_box {
    int count[BOX_DIMS];
    int load;
};

/* A mask's keys_left is the same on aligned blocks of so many rows and keys; 0: of any number. bounds: as
   `bounds`, of a tile within such a block; where some pair may be live, keys_left holds on all of it. */
struct mask_blocks {
    int rows, keys;
    struct ir_fn bounds; /* empty: there are no such blocks */
};

/* A mask that leaves a row, of its interval, the keys of n listed blocks of `keys` each, and nothing else.
   entry: node, the block at LEAF_PLACE of the list. */
struct selected_blocks {
    int n; /* 0: the mask is another one */
    int keys;
    int entry;
};

struct attention_lowered {
    struct ir_fn empty; /* the finals of a row without live pairs; where one is NaN, it is -inf */
    struct rescale rescale;
    int n_key_strides;
    struct key_stride key_stride[MAX_KEY_STRIDES];
    /* The keys that the mask leaves to a row lie between the roots, first and last (i32,
       span Q); and it leaves those for which keys_left holds, where that is not empty. */
    struct ir_fn key_interval;
    struct ir_fn keys_left;
    /* Of a mask that reads data: as `bounds` of the spec, but from what its reads give on a tile, too; a
       third root, where there is a keys_left: it certainly holds everywhere. */
    struct ir_fn read_bounds; /* empty: nothing is gained */
    int read_open;            /* as `open` */
    int n_reads;
    int read[MAX_MASK_READS]; /* nodes: reads of integers by row or by column */
    int n_boxes;
    struct mask_box
        box[MAX_MASK_BOXES]; /* reads of integers by both, of whose indices the tile tells the ends */

    struct mask_blocks blocks;
    struct selected_blocks selected;
};

#endif
