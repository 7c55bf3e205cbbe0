/*
 * broken_order.c: small kernels of two blocks that hand each other ints through global memory, each with one
 * thing missing of what makes them visible, and sound ones. Most of the broken ones give the right values in
 * all orders in which they run here.
 */
#include "broken.h"

#include <stddef.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* The 32 ints behind 16 words, and what the block that comes last does with them: it finds the other's number
   in all. p.out is POISON at first: the first one who counts finds 0xffffffff. */
#define WORDS "const u32 t = threadIdx.x; u32 *const word = (u32 *)p.out; int *const sums = p.out + 16;\n"
#define LEAVE "sums[32 * blockIdx.x + t] = (int)t; "
#define TAKE                                                                                                 \
    "if (last) { const int x = sums[32 * (1 - blockIdx.x) + t]; __syncwarp(); p.out[t] = x == (int)t ? x : " \
    "-1;\n"                                                                                                  \
    "for (int i = (int)t + 32; i < 256; i += 32) { p.out[i] = i; } }"
#define JOIN "const bool last = __shfl_sync(0xffffffffu, before, 0) == 0; "

/* As the pieces of a block in attention/backward/sm90_split_tail.cuh. */
#define ONE_WARP WORDS "if (t >= 32) { return; } u32 before = 0;\n"
#define TURN     "if (t == 0) { before = take_turn(word); } "
#define TICKET   "if (t == 0) { before = take_ticket(word); } "

/* The block with the first ticket stores 128 floats and says so, the other one adds to them. */
#define FIRST_STORES                                                                                         \
    "__shared__ u32 mine; const u32 t = threadIdx.x; u32 *const word = (u32 *)p.out;\n"                      \
    "if (t == 0) { mine = take_ticket(word) + 1; } __syncthreads();\n"                                       \
    "float *const sum = (float *)(p.out + 4);\n"

#define STORES_AND_ADDS(TELL, HEAR)                                                                          \
    FIRST_STORES "if (mine == 0) { if (t < 128) { sum[t] = 1.0f; } " TELL " return; }\n" HEAR                \
                 "if (t < 128) { add_global(sum + t, 1.0f); }\n"                                             \
                 "__syncthreads(); const bool good = t >= 128 || sum[t] == 2.0f; __syncthreads();\n"         \
                 "p.out[t] = good ? (int)t : -1;"

#define TELL "__syncthreads(); if (t == 0) { end_turn(word + 1); } "
#define HEAR "if (t == 0) { wait_turn(word + 1, 0); } __syncthreads();\n"

/* The same with 32 floats of shared memory, by TMA. */
#define BULK(TELL, HEAR)                                                                                     \
    "extern __shared__ __align__(1024) unsigned char shared_bytes[]; const u32 s = "                         \
    "shared_address(shared_bytes);\n" FIRST_STORES                                                           \
    "if (t < 32) { store_shared(s + 4 * t, 1.0f); } fence_async_proxy(); __syncthreads();\n"                 \
    "if (mine == 0) { if (t == 0) { tma_store_line(sum, s, 128, L2_KEEP); tma_commit(); " TELL               \
    " } return; }\n"                                                                                         \
    "if (t == 0) { " HEAR " tma_add_line(sum, s, 128, L2_KEEP); tma_commit(); tma_wait<0>(); }\n"            \
    "__syncthreads(); const bool good = t >= 32 || sum[t] == 2.0f; __syncthreads();\n"                       \
    "p.out[t] = good ? (int)t : -1;"

/* What block 0 stores block 1 of its cluster reads. */
#define CLUSTER(STORE, BARRIER)                                                                              \
    "const int t = (int)threadIdx.x; const u32 rank = blockIdx.x;\n" STORE BARRIER                           \
    "if (rank == 1) { const int x = p.out[t ^ 64]; __syncthreads(); p.out[t] = x ^ 64; }"

const struct broken broken_order[] = {
    {"the last block reads what the other has left",
     ONE_WARP LEAVE "__syncwarp(); " TURN JOIN "__syncwarp(); " TAKE, NULL, 0, 2},
    {"the same, one after the other", ONE_WARP LEAVE "__syncwarp(); " TURN JOIN "__syncwarp(); " TAKE, NULL,
     0, 0},
    {"the turn is taken ahead of what is left", ONE_WARP TURN LEAVE "__syncwarp(); " JOIN TAKE,
     "reads what thread", 0, 0},
    {"the turn is taken ahead of what is left, side by side", ONE_WARP TURN LEAVE "__syncwarp(); " JOIN TAKE,
     "reads what thread", 0, 2},
    {"a turn with no __syncwarp behind what other lanes leave",
     ONE_WARP LEAVE TURN JOIN "__syncwarp(); " TAKE, "with no release and acquire in between", 0, 0},
    {"a turn with no __syncwarp ahead of what other lanes take",
     ONE_WARP LEAVE "__syncwarp(); " TURN JOIN TAKE, "with no release and acquire in between", 0, 0},
    {"a ticket between fences",
     ONE_WARP LEAVE "__syncwarp(); fence_global(); " TICKET "fence_global(); __syncwarp(); " JOIN TAKE, NULL,
     0, 2},
    {"a ticket with no fence ahead of it",
     ONE_WARP LEAVE "__syncwarp(); " TICKET "fence_global(); __syncwarp(); " JOIN TAKE,
     "has acquired nothing of that one", 0, 0},
    {"a ticket with no fence behind it",
     ONE_WARP LEAVE "__syncwarp(); fence_global(); " TICKET "__syncwarp(); " JOIN TAKE,
     "has acquired nothing of that one", 0, 0},
    {"a ticket with a fence by another thread behind it",
     ONE_WARP LEAVE "__syncwarp(); fence_global(); " TICKET
                    "__syncwarp(); if (t == 1) { fence_global(); } __syncwarp(); " JOIN TAKE,
     "has acquired nothing of that one", 0, 0},
    {"the first block stores, the second one adds", STORES_AND_ADDS(TELL, HEAR), NULL, 0, 2},
    {"a turn with no barrier behind what others store",
     STORES_AND_ADDS("if (t == 0) { end_turn(word + 1); } ", HEAR), "adds to what thread", 0, 0},
    {"a turn that is over ahead of what is stored",
     FIRST_STORES
     "if (mine == 0) { if (t == 0) { end_turn(word + 1); } __syncthreads(); if (t < 128) { sum[t] = 1.0f; } "
     "return; }\n" HEAR "if (t < 128) { add_global(sum + t, 1.0f); } __syncthreads(); p.out[t] = "
     "(int)t;",
     "adds to what thread", 0, 0},
    {"a turn that only one thread has waited for",
     STORES_AND_ADDS(TELL, "if (t == 0) { wait_turn(word + 1, 0); }\n"), "adds to what thread", 0, 0},
    {"nobody waits for the turn", STORES_AND_ADDS(TELL, ""), "adds to what thread", 0, 0},
    {"a ticket in place of the end of a turn",
     STORES_AND_ADDS("__syncthreads(); if (t == 0) { take_ticket(word + 1); } ", HEAR),
     "has acquired nothing of that one", 0, 0},
    {"the same behind a fence",
     STORES_AND_ADDS("__syncthreads(); if (t == 0) { fence_global(); take_ticket(word + 1); } ", HEAR), NULL,
     0, 2},
    {"a fence ahead of the barrier",
     STORES_AND_ADDS(
         "if (t == 0) { fence_global(); } __syncthreads(); if (t == 0) { take_ticket(word + 1); } ", HEAR),
     "adds to what thread", 0, 0},
    {"sums that one block stores and the other adds to",
     "const u32 t = threadIdx.x; if (blockIdx.x == 0) { p.out[t] = (int)t; } else { add_global((float "
     "*)p.out "
     "+ t, 0.0f); }",
     "in this launch with no release", 0, 0},
    {"TMA stores, TMA adds",
     BULK("tma_wait<0>(); end_turn(word + 1);", "wait_turn(word + 1, 0); fence_async_global();"), NULL, 0, 2},
    {"a turn that is over before TMA's stores are",
     BULK("tma_wait_read<0>(); end_turn(word + 1);", "wait_turn(word + 1, 0); fence_async_global();"),
     "which nobody has waited for", 0, 0},
    {"TMA adds with no fence_async_global behind the turn",
     BULK("tma_wait<0>(); end_turn(word + 1);", "wait_turn(word + 1, 0);"), "adds to what thread", 0, 0},
    {"a turn that is over ahead of TMA's stores",
     BULK("tma_wait<0>(); ", "wait_turn(word + 1, 0xffffffffu); fence_async_global();"),
     "adds to what thread", 0, 0},
    {"what a thread of the same block has stored",
     "const int t = (int)threadIdx.x + 256 * (int)blockIdx.x; if (t < 256) {\n"
     "p.out[t] = t ^ 64; const int x = p.out[t ^ 64]; __syncthreads(); p.out[t] = x; }",
     "with no barrier in between", 0, 0},
    {"a cluster barrier between blocks",
     CLUSTER("if (rank == 0) { p.out[t] = t; }", "cluster_barrier<2>();\n"), NULL, 2, 0},
    {"a cluster barrier ahead of what is stored",
     CLUSTER("", "cluster_barrier<2>(); if (rank == 0) { p.out[t] = t; } else { fence_global(); }\n"),
     "reads what thread", 2, 0},
};
const int broken_order_count = COUNT(broken_order);

const struct broken broken_early[] = {
    {"an early launch that waits",
     "if (threadIdx.x == 0) { wait_for_launch_before(); } __syncthreads(); p.out[threadIdx.x] = "
     "(int)threadIdx.x;",
     NULL, 0, 0},
    {"an early launch that does not wait", "p.out[threadIdx.x] = (int)threadIdx.x;",
     "stores over what the launch before has written", 0, 0},
    {"an early launch that waits in one thread alone",
     "if (threadIdx.x == 0) { wait_for_launch_before(); } p.out[threadIdx.x] = (int)threadIdx.x;",
     "stores over what the launch before has written", 0, 0},
};
const int broken_early_count = COUNT(broken_early);

/* Both blocks add, by turns: as attention/backward/sm80.cuh where it is deterministic. */
#define ADDS(WAIT, END)                                                                                      \
    "__shared__ u32 mine; const u32 t = threadIdx.x; u32 *const word = (u32 *)p.out;\n"                      \
    "if (t == 0) { mine = take_ticket(word); wait_turn(word + 1, mine); } " WAIT                             \
    " if (t > 3) { add_global((float *)p.out + t, 0.0f); } " END " if (t == 0) { end_turn(word + 1); }\n"    \
    "__syncthreads(); if (mine == 0) { p.out[t] = (int)t; }"

const struct broken broken_sums[] = {
    {"sums in the order of turns", ADDS("__syncthreads();", "__syncthreads();"), NULL, 0, 2},
    {"sums with no barrier behind the turn", ADDS("", "__syncthreads();"), "adds to what thread", 0, 0},
    {"sums with no barrier ahead of the end of the turn", ADDS("__syncthreads();", ""), "adds to what thread",
     0, 0},
    {"sums in any order", "add_global((float *)p.out + threadIdx.x, 0.0f);", "adds to what thread", 0, 0},
    {"whole numbers in any order",
     "const int t = (int)threadIdx.x; if (t < 128) { add_global((u64 *)p.out + t, ((2ull * t + 1) << 31) + t "
     "+ "
     "(blockIdx.x == 0)); }",
     NULL, 0, 2},
};
const int broken_sums_count = COUNT(broken_sums);
