/*
 * plan_staged.h: what plan_staged.c and plan_staged_shapes.c share: a pass of rows in numbers, and the shapes
 * of rowwise/staged.cuh for it. Nothing here is owned.
 */
#ifndef LATHE_GEN_PLAN_STAGED_H
#define LATHE_GEN_PLAN_STAGED_H

#include <stdbool.h>
#include <stdint.h>

struct plan;
struct kernel_request;

enum {
    UNIT = 16,          /* bytes that a thread copies at once */
    HALVES = 8,         /* elements of 16 bits in them: some shapes were measured for those alone */
    SM_THREADS = 1024,  /* that share an SM where rows are blocks: 64 registers each */
    BLOCK_LIMIT = 1024, /* threads of a block */
    SM_REGISTERS = 65536,
    QUARTERS = 4,               /* of an SM: a warp has the registers of one, */
    QUARTER_REGISTERS = 512,    /* so many of a lane */
    MOST = 120,                 /* registers of a thread that may be planned with; */
    MOST_TAKEN = 128,           /* with a row in them; */
    MOST_TEAM = 112,            /* where several rows share a block; */
    MOST_THREE = 136,           /* as counted, of three vectors of a lane: has_three */
    STATIC_BYTES = 1024 + 1024, /* of a block: the device's own, and the reductions */
    MOST_CLUSTER = 8,           /* blocks, on any device that has clusters, */
    LARGE_CLUSTER = 16,         /* and where each part of it has so many SMs: */
    LARGE_DEVICE = 128,         /* with that many of them */
    WHOLE_BYTES =
        112 * 1024,          /* of a row that one block has without sums over rows: two of them share an SM */
    FEW_BYTES = 16 * 1024,   /* of a longer one that a block has where it reads values of its columns */
    SHARE_BYTES = 72 * 1024, /* of a longer one, and of an inner strip, that a block has: three share an SM */
    SUMS_VECTORS = 1024,     /* of a row that a block has beside sums over rows: */
    FEW_VECTORS = 768,       /* where registers hold those of two tensors, in a block to an SM; */
    PAIR_VECTORS = 512,      /* so few of each of two blocks, */
    THREE_VECTORS = 320,     /* of each of three: 5 warps, of which one more would leave two blocks */
    WIDE_VECTORS = 4096,     /* where values of columns are read from L1, */
    HELD_VECTORS = 2048,     /* where registers hold them; */
    FILLED_VECTORS = 1536,   /* of a block whose threads have four each: 12 warps or more */
};

struct staged {
    int vector;              /* elements */
    int units;               /* of 16 bytes, of a vector of every tensor */
    int columns;             /* sums per column, */
    int scatters;            /* those of them that go to a place of the row; */
    bool placed;             /* rows have places, shared_reads.c */
    bool sums;               /* over rows: each block leaves its parts */
    int results;             /* rows that are written */
    int values;              /* of a column that the formulas read, */
    bool halves;             /* each as it stands in a tensor of 16 bits, that of x */
    int64_t vectors;         /* of a row */
    int64_t own;             /* of a row, that a block has: all of them but in a cluster */
    bool even;               /* blocks of a cluster have equal parts, whose columns two passes read */
    int reductions, at_once; /* and those of the pass that has most of them */
    int sm_bytes;
};

/* ---- plan_staged_shapes.c */

int64_t staged_exchange_bytes(const struct plan *plan, const struct staged *s, int words);
int staged_pushing(const struct plan *plan, const struct staged *s);
bool staged_has_short_rows(const struct staged *s);
bool staged_has_odd_rows(const struct staged *s);
bool staged_has_long_placed_rows(const struct staged *s);
bool staged_reads_wide_columns(const struct staged *s);
int64_t staged_row_bytes(const struct staged *s, const struct plan *plan);
int64_t staged_column_bytes(const struct staged *s, const struct plan *plan);
int staged_blocks_of(int threads, int registers); /* that share an SM */
int staged_registers_of(const struct staged *s, const struct plan *plan, int each);
int staged_cluster_of(const struct kernel_request *r, int64_t row, int64_t share);
void staged_share_row(const struct kernel_request *r, struct staged *s, struct plan *plan);
void staged_choose_shape(const struct staged *s, struct plan *plan);
void staged_look_ahead(const struct staged *s, struct plan *plan); /* of a shape: `sure`, `given_ahead` */

#endif
