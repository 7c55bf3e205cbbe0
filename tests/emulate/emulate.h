/*
 * emulate.h: what the emulator's core offers, to the test program (C11) and to the emulated kernels (C++20).
 *
 * The core is a shared object of its own, compiled when the test runs; so is every kernel. The test program
 * finds `emulate_run` in the core, and `emulate_thread_<i>` and `emulate_bytes_<i>` in a kernel, by dlsym.
 */
#ifndef LATHE_TESTS_EMULATE_H
#define LATHE_TESTS_EMULATE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void emulate_thread_fn(const void *params); /* one thread, from the kernel's first line to its last */

struct emulate_launch {
    emulate_thread_fn *thread;
    const void *params;
    unsigned blocks;
    unsigned threads;            /* of a block: a multiple of 32 up to 1024 */
    unsigned smem_bytes;         /* dynamic shared memory: an address beyond it is an error */
    unsigned long long seed;     /* of the order of blocks, warps and lanes */
    unsigned cluster;            /* blocks of one, neighbours in the grid; 0 or 1: none */
    unsigned beside;             /* blocks that run at the same time; 0: one cluster after the other */
    unsigned early;              /* it may begin before the launch run last is over */
    unsigned deterministic;      /* floats are added to each sum in one order */
    const unsigned char *memory; /* what the parameters point to lies in this range, from a page on */
    unsigned long long memory_bytes;
};

#define EMULATE_TENSOR_MAP 0x70616d726f736e74ull
struct emulate_tensor_map { /* stands where the 128 bytes of a CUtensorMap do; the first dim comes first */
    unsigned long long magic;
    unsigned char *data;
    long long dim[5];    /* from the rank on: 1 */
    long long stride[5]; /* bytes; of the first dim: unused */
    unsigned box[3];     /* elements; 1 in the other dims */
    unsigned rank;       /* 4 or 5 */
    unsigned swizzle;    /* 1: 32 bytes, 2: 64, 3: 128 */
    unsigned element_bytes;
};

struct emulate_report {  /* filled where a launch fails */
    char text[4000];     /* a sentence: which block and thread did what */
    const void *address; /* of a memory fault; NULL: the failure is of another kind */
};

/* Every block of a launch, in a shuffled order. 0: done; else *report says why not. */
typedef int emulate_run_fn(const struct emulate_launch *launch, struct emulate_report *report);

#ifdef __cplusplus
}
#endif
#endif
