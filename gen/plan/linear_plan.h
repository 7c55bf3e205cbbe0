/*
 * linear_plan.h: the numbers of a kernel of linear attention.
 */
#ifndef LATHE_GEN_LINEAR_PLAN_H
#define LATHE_GEN_LINEAR_PLAN_H

#include <stdbool.h>

enum { LINEAR_CHUNK = 64 }; /* tokens that are taken at a time, where they are not taken one by one */

/* Which of these are a template's, and what they are of, its file in gen/linear says. */
struct linear_plan {
    int warps;
    int slices;        /* blocks of a head and sequence: each has some of the value channels */
    int row_slices;    /* backward: some of the key channels */
    int chunk;         /* backward: tokens between states that are kept */
    int chunk_threads; /* in chunks: of a block, */
    int chunk_slices;  /* and blocks of a head and sequence */
    int steps;         /* linear/additive.cuh: steps of 16 tokens in a chunk, */
    int column_warps;  /* and warps that have 16 columns of the state each */
    int groups;        /* linear/delta_sm90.cuh: warpgroups of a block with 64 columns of the state each */
    int pieces;        /* of a sequence at most, where sequences are few and long; 1: always whole */
    int pieces_from;   /* tokens */
    int piece_blocks;  /* at most */
    int part_bytes;    /* of what a block's piece adds to the state */
    int inverse; /* shared memory of the kernel that inverts for the delta rule, a block a chunk; 0: none */
    int chunk_bytes; /* what it leaves of a chunk of a head */
    int key_parts; /* of linear/backward/{additive,keyed_delta}.cuh: blocks that share a chunk's key channels
                    */
    int bands;     /* the same: of 128 value channels, where there are more than 256: kernels of chunks leave
                      gradients of keys and gates for each; 0 or 1: there is one */
    int chunk_blocks;   /* of these chunks: blocks that a multiprocessor has room for, 1 or 2 */
    bool walks_at_once; /* backward: both ways along the chunks in one launch */
    int again_bytes;    /* what of shared memory its walks forward and back need, */
    int walk_bytes;     /* smem_bytes being its chunks' */
    int units;          /* of which: blocks of a head and sequence */
    int stages;         /* chunks that a block has room for */
    int smem_bytes;
    bool o_f32; /* o goes to a workspace in f32, for an output mod */
};

#endif
