/*
 * broken.c: the emulator's own test: small kernels that break one rule each, and sound ones. The report has
 * to name the mistake.
 */
#include "broken.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

#define SHARED                                                                                               \
    "extern __shared__ __align__(1024) unsigned char shared_bytes[]; const u32 s = "                         \
    "shared_address(shared_bytes); const u32 t = threadIdx.x;\n"

/* Each of two blocks has a word of the other. */
#define PUSHED(WHO)                                                                                          \
    SHARED "const u32 rank = blockIdx.x, exchange = s + 2048; if (t == 0) { exchange_init(exchange); }\n"    \
           "cluster_barrier<2>(); if (t == 0) { exchange_expect(exchange, 4); }\n"                           \
           "if (" WHO ") { exchange_push<2>(s, (float)(rank + 1), exchange, rank ^ 1); }\n"                  \
           "exchange_wait<2>(exchange, 0); p.out[t] = load_shared(s) == (float)(2 - rank) ? (int)t : -1;"

/* A block holds one word and asks for the other, which is no trouble as long as blocks do not meet. */
#define TWO_TURNS                                                                                            \
    "u32 *const words = (u32 *)p.out; const u32 t = threadIdx.x, first = blockIdx.x * 2, second = 2 - "      \
    "first;\n"                                                                                               \
    "if (t == 0) {\n"                                                                                        \
    "    wait_turn(words + first, take_ticket(words + first + 1)); const u32 n = take_ticket(words + "       \
    "second + 1);\n"                                                                                         \
    "    wait_turn(words + second, n); end_turn(words + second); end_turn(words + first);\n"                 \
    "    if (n == 0) { for (int i = 0; i < 4; i++) { words[i] = (u32)i; } }\n"                               \
    "} else if (t > 3) { p.out[t] = (int)t; }"

static const struct broken BROKEN[] = {
    {"sound",
     SHARED "copy16_async(s + t * 16, p.in + t * 16, 16); copy_commit(); copy_wait<0>(); __syncthreads();\n"
            "const float x = load_shared(s + (255 - t) * 16);\n"
            "const int sum = __shfl_xor_sync(0xffffffffu, (int)t, 31); __syncwarp();\n"
            "p.out[t] = (int)x == (int)(255 - t) && sum == (int)(t ^ 31u) ? (int)t : -1;",
     NULL, 0, 0},
    {"a missing barrier",
     SHARED
     "store_shared(s + t * 4, t); p.out[t] = (int)__float_as_uint(load_shared(s + (t ^ 64) * 4)) ^ 64;",
     "with no barrier in between", 0, 0},
    {"a missing barrier before a write",
     SHARED "store_shared(s + t * 4, t); __syncthreads(); p.out[t] = (int)__float_as_uint(load_shared(s + (t "
            "^ 64) * 4)); store_shared(s + t * 4, t);",
     "with no barrier in between", 0, 0},
    {"a missing __syncwarp",
     SHARED "store_shared(s + t * 4, t); p.out[t] = (int)__float_as_uint(load_shared(s + (t ^ 1) * 4)) ^ 1;",
     "with no __syncwarp in between", 0, 0},
    {"a missing barrier on a __shared__ variable",
     "__shared__ int held[256]; const int t = (int)threadIdx.x; held[t] = t ^ 64; p.out[t] = held[t ^ 64];",
     "with no barrier in between", 0, 0},
    {"a missing __syncwarp on a __shared__ variable",
     "__shared__ int held[256]; const int t = (int)threadIdx.x; held[t] = t ^ 1; p.out[t] = held[t ^ 1];",
     "with no __syncwarp in between", 0, 0},
    {"a __shared__ variable that is not set",
     "__shared__ int held[256]; const int t = (int)threadIdx.x; if (p.in[0] != 0) { held[t] = 0; }\n"
     "p.out[t] = held[t] == -1 ? t : 0;",
     NULL, 0, 0},
    {"a missing copy_wait",
     SHARED "copy16_async(s + t * 16, p.in + t * 16, 16); copy_commit(); __syncthreads(); p.out[t] = "
            "(int)load_shared(s + t * 16);",
     "is still under way", 0, 0},
    {"a copy_wait for one group too few",
     SHARED "copy16_async(s + t * 16, p.in + t * 16, 16); copy_commit(); copy16_async(s + 4096 + t * 16, "
            "p.in, 16); copy_commit();\n"
            "copy_wait<1>(); __syncthreads(); p.out[t] = (int)load_shared(s + t * 16) + (int)load_shared(s + "
            "4096 + t * 16);",
     "is still under way", 0, 0},
    {"turns by tickets",
     "const u32 t = threadIdx.x; u32 *ticket = (u32 *)p.out; if (t > 1) { p.out[t] = (int)t; return; }\n"
     "if (t == 0) { const u32 n = take_ticket(ticket); wait_turn(ticket + 1, n); end_turn(ticket + 1);\n"
     "if (n == 0) { p.out[0] = 0; } }",
     NULL, 0, 0},
    {"turns by the number of the block",
     "if (threadIdx.x == 0) { u32 *turn = (u32 *)p.out; wait_turn(turn, blockIdx.x - 1u); end_turn(turn); }",
     "no block before it is left to change that", 0, 0},
    {"turns by tickets, side by side",
     "const u32 t = threadIdx.x; u32 *ticket = (u32 *)p.out; if (t > 1) { p.out[t] = (int)t; return; }\n"
     "if (t == 0) { const u32 n = take_ticket(ticket); wait_turn(ticket + 1, n); end_turn(ticket + 1);\n"
     "if (n == 0) { p.out[0] = 0; } }",
     NULL, 0, 2},
    {"turns at two words in either order, one block after the other", TWO_TURNS, NULL, 0, 0},
    {"turns at two words in either order, side by side", TWO_TURNS, "waits for turn 0 where it is turn", 0,
     2},
    {"shared variables side by side",
     "__shared__ int held[256]; const int t = (int)threadIdx.x; held[t] = t + (int)blockIdx.x; "
     "__syncthreads();\n"
     "const int x = held[t ^ 64]; fence_global(); __syncthreads();\n"
     "p.out[t] = x == (t ^ 64) + (int)blockIdx.x && held[t] == t + (int)blockIdx.x ? t : -1;",
     NULL, 0, 2},
    {"dynamic shared memory by a pointer, side by side",
     SHARED
     "int *const moved = (int *)shared_bytes; moved[t] = (int)(t + blockIdx.x + s - s); __syncthreads();\n"
     "const u32 x = (u32)moved[t ^ 64]; fence_global(); __syncthreads();\n"
     "p.out[t] = x == (t ^ 64) + blockIdx.x && (u32)moved[t] == t + blockIdx.x ? (int)t : -1;",
     NULL, 0, 2},
    {"a number that nobody tells",
     "if (threadIdx.x == 0) { publish_one((u64 *)p.out, 5); wait_told((u64 *)p.out); }",
     "waits for what nobody is left to tell", 0, 0},
    {"a copy without a barrier",
     SHARED "copy16_async(s + t * 16, p.in + t * 16, 16); copy_commit(); copy_wait<0>(); p.out[t] = "
            "(int)load_shared(s + (t ^ 64) * 16);",
     "shared memory", 0, 0},
    {"a copy into what is read",
     SHARED "store_shared(s + t * 16, t); __syncthreads(); p.out[t] = (int)__float_as_uint(load_shared(s + "
            "(t ^ 64) * 16));\n"
            "copy16_async(s + t * 16, p.in + t * 16, 16); copy_commit(); copy_wait<0>();",
     "shared memory", 0, 0},
    {"a divergent shuffle",
     "int x = (int)threadIdx.x; if (x % 32 < 16) { x = __shfl_xor_sync(0xffffffffu, x, 1); }\n "
     "p.out[threadIdx.x] = x;",
     "deadlock", 0, 0},
    {"a pair that lacks a lane, beside others",
     "int x = (int)threadIdx.x;\nconst unsigned pair = 3u << (x % 32 / 2 * 2);\n"
     "if (x % 32 != 5) { for (int i = 0; i < 3; i++) { x += __shfl_xor_sync(pair, x, 1); } }\n "
     "p.out[threadIdx.x] = x;",
     "deadlock", 0, 0},
    {"two collectives at once",
     "int x = (int)threadIdx.x;\nif (x % 32 < 16) {\n x = __shfl_xor_sync(0xffffffffu, x, 1);\n} else {\n x "
     "= __any_sync(0xffffffffu, x > 3);\n}\n p.out[threadIdx.x] = x;",
     "diverged", 0, 0},
    {"a mask without the lane", "p.out[threadIdx.x] = __any_sync(0xffffu, true);", "does not name the lane",
     0, 0},
    {"a barrier that some miss",
     "if (threadIdx.x < 128) { __syncthreads(); } p.out[threadIdx.x] = (int)threadIdx.x;", "__syncthreads", 0,
     0},
    {"two barriers at once",
     "if (threadIdx.x < 128) {\n __syncthreads();\n} else {\n __syncthreads();\n}\n p.out[threadIdx.x] = "
     "(int)threadIdx.x;",
     "two barriers at once", 0, 0},
    {"a shared address out of range", SHARED "store_shared(s + 8192 - 1024 + t * 4 + 4, t); p.out[t] = 0;",
     "the block has 8192", 0, 0},
    {"a misaligned cp.async", SHARED "copy16_async(s + t * 16 + 8, p.in, 16); p.out[t] = 0;",
     "not a multiple of 16", 0, 0},
    {"a cp.async from a misaligned address", SHARED "copy16_async(s + t * 16, p.in + 4, 16); p.out[t] = 0;",
     "which is no multiple", 0, 0},
    {"a read past the end", "p.out[threadIdx.x] = p.in[4096 + threadIdx.x];", "no argument's", 0, 0},
    {"an index outside of its array",
     "int x[4] = {1, 2, 3, 4}; p.out[threadIdx.x] = x[p.in[0] + (threadIdx.x & 7u)];", "outside of its array",
     0, 0},
    {"words pushed in a cluster", PUSHED("t == 0"), NULL, 2, 0},
    {"a block of a cluster that does not push", PUSHED("t == 0 && rank == 0"),
     "0 of 1 arrivals and 4 bytes are missing", 2, 0},
    {"a cluster barrier that half of a block does not come to",
     "if (threadIdx.x < 128) { cluster_barrier<2>(); } p.out[threadIdx.x] = (int)threadIdx.x;",
     "not all threads of the block come to", 2, 0},
    {"a division by zero", "p.out[threadIdx.x] = (int)blockDim.x / (int)p.in[0];", "division by zero", 0, 0},
    {"a vector that is not aligned",
     "p.out[threadIdx.x] = (int)__ldg(reinterpret_cast<const uint4 *>(p.in + 4)).x;", "which is no multiple",
     0, 0},
};
static const struct list {
    const struct broken *item;
    const int *n;
    bool early, deterministic; /* launches */
} LISTS[] = {
    {BROKEN, &(const int){COUNT(BROKEN)}, false, false},
    {broken_order, &broken_order_count, false, false},
    {broken_early, &broken_early_count, true, false},
    {broken_sums, &broken_sums_count, false, true},
};

int broken_count(void)
{
    int n = 0;
    for (int i = 0; i < COUNT(LISTS); i++)
        n += *LISTS[i].n;
    return n;
}

static const struct list *list_of(int *i) /* where it is number *i */
{
    const struct list *list = LISTS;
    for (; *i >= *list->n; list++)
        *i -= *list->n;
    return list;
}

static const struct broken *nth(int i)
{
    const struct list *list = list_of(&i);
    return &list->item[i];
}

const char *broken_name(int i)
{
    return nth(i)->name;
}

static bool make_source(struct source *s, const struct broken *b)
{
    struct text_buf t = {0};
    memset(s, 0, sizeof *s);
    text_add(&t,
             "#include \"common/ptx_pair_sm90.cuh\"\nstruct params { int *out; const unsigned char *in; };\n"
             "extern \"C\" __global__ void __launch_bounds__(256) broken(const __grid_constant__ params "
             "p)\n{\n%s\n}\n",
             b->body);
    s->n_texts = 1;
    snprintf(s->text[0].name, sizeof s->text[0].name, "broken.cuh");
    s->text[0].data = t.data;
    s->text[0].size = t.size;
    s->n_launches = 1;
    snprintf(s->launch[0].entry, sizeof s->launch[0].entry, "broken");
    s->launch[0].param_bytes = 2 * sizeof(void *);
    return !t.failed;
}

struct params {
    int *out;
    const unsigned char *in;
};

/* One run: 0 right, 1 wrong, 2 reported. */
static int try_seed(const struct workshop *w, const struct kernel *k, int i, const struct params *p,
                    uint64_t seed, struct emulate_report *report)
{
    const struct list *list = list_of(&i);
    const struct broken *b = &list->item[i];
    const struct emulate_launch order = {
        k->thread[0],   p,           2,         256,         8192,
        seed,           b->cluster,  b->beside, list->early, list->deterministic,
        memory_range(), MEMORY_BYTES};
    memset(p->out, POISON, 256 * sizeof *p->out);
    if (w->run(&order, report) != 0)
        return 2;
    for (int n = 0; n < 256; n++)
        if (p->out[n] != n)
            return 1;
    return 0;
}

static enum verdict judge(const struct broken *b, const int seen[3], const struct emulate_report *report,
                          char *why, size_t size)
{
    const bool reported = seen[2] > 0 && b->report && strstr(report->text, b->report);
    const bool good = b->report ? reported : seen[1] + seen[2] == 0;
    snprintf(why, size, "%d runs were right, %d wrong, %d reported%s%s; expected %s", seen[0], seen[1],
             seen[2], seen[2] > 0 ? ", the last as: " : "", seen[2] > 0 ? report->text : "",
             b->report ? b->report : "right results");
    return good ? VERDICT_PASSED : VERDICT_FAILED;
}

enum verdict broken_run(struct workshop *w, int i, uint64_t seed, char *why, size_t size)
{
    struct source *source = calloc(1, sizeof *source);
    struct block out;
    struct block in;
    int seen[3] = {0, 0, 0};
    struct emulate_report report = {.address = NULL};
    struct emulate_report last = {.address = NULL};
    memset(&out, 0, sizeof out);
    memset(&in, 0, sizeof in);
    const bool made = source && make_source(source, nth(i));
    const struct kernel *k = made ? workshop_kernel(w, source, why, size) : NULL;
    free(source);
    if (!k || !block_open(&out, 256 * sizeof(int), 16) || !block_open(&in, 4096, 16))
        return VERDICT_FAILED;
    const struct params p = {(int *)(void *)out.data, in.data};
    for (int n = 0; n < 256; n++) { /* a float in the first four bytes of every sixteen: its number */
        const float number[4] = {(float)n, 0.0F, 0.0F, 0.0F};
        memcpy(in.data + 16 * n, number, sizeof number);
    }
    for (uint64_t s = 0; s < 8; s++) {
        const int result = try_seed(w, k, i, &p, seed * 8 + s, &report);
        seen[result]++;
        last = result == 2 ? report : last;
    }
    block_close(&out);
    block_close(&in);
    return judge(nth(i), seen, &last, why, size);
}
