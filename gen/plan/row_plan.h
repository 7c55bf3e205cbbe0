/*
 * row_plan.h: the numbers of row-wise kernels, a part of struct plan.
 */
#ifndef LATHE_GEN_ROW_PLAN_H
#define LATHE_GEN_ROW_PLAN_H

#include <stdbool.h>

enum { LOOKBACK_GROUP = 8 }; /* parts of a group */
struct lookback_plan {       /* rowwise/inner_scan_lookback.cuh */
    int threads, blocks;
    int strips;  /* that are left to it: fewer than this */
    int batches; /* of a warp, of a part */
    int places;  /* of a part */
    int smem_bytes;
};

struct scan_plan {           /* rowwise/inner_scan.cuh */
    int places, part_places; /* of a batch; see there PART */
    struct lookback_plan
        lookback;         /* of what is left to rowwise/inner_scan_lookback.cuh; threads 0: nothing is */
    int whole_warps;      /* of a block, that take strips of their own where those are not cut */
    bool carries_by_warp; /* of the grid, and not by strip */
    int held_carries;     /* see there HELD_CARRIES */
    int again_stages;     /* see there AGAIN_STAGES */
};

struct staged_plan { /* rowwise/staged.cuh: see there */
    bool columns_shared, cols_held, cols_packed, given_ahead, late;
    int sure;    /* vectors of a thread that no row ends before */
    bool placed; /* rows of one place follow each other */
};

struct row_plan {
    int threads, vector, per_thread, rows_per_block; /* see rowwise/registers.cuh */
    int blocks, min_blocks;                          /* of the grid; on an SM, which bounds registers */
    int smem_bytes;
    bool full;     /* every thread has per_thread elements of each row */
    bool kept;     /* L2 gives up last what is read */
    bool reread;   /* passes read rows of per_thread elements again, from L1 and L2 */
    bool variance; /* variance_take of the formulas: passes of the staged kernel, and of registers that are
                     read again */
    bool prefetch, shared_next, inner, ahead, once; /* see rowwise/registers.cuh */
    int column_parts, registers, at_once;
    int stages;       /* rows, or batches, that are on their way */
    int cluster;      /* blocks that share a row of rowwise/staged.cuh, a strip of rowwise/inner.cuh */
    bool more, taken; /* of both */
    int units_wide;   /* rowwise/inner.cuh: see there */
    struct staged_plan staged;
    struct scan_plan scan;
};

#endif
