/*
 * broken.h: a small kernel that breaks one rule, or a sound one.
 */
#ifndef LATHE_TESTS_EMULATE_BROKEN_H
#define LATHE_TESTS_EMULATE_BROKEN_H

struct broken {
    const char *name;
    const char *body;   /* of the kernel; p.out has 256 ints, p.in 4096 bytes */
    const char *report; /* part of the sentence; NULL: it must run, and out[i] must be i */
    unsigned cluster;   /* blocks of one; 0: none */
    unsigned beside;    /* blocks at the same time; 0: one after the other */
};

/* broken_order.c: what blocks tell each other through global memory; kernels that may begin before the
   launch run last is over, which is of the same kernel; and some whose sums have to be in order. */
extern const struct broken broken_order[];
extern const int broken_order_count;
extern const struct broken broken_early[];
extern const int broken_early_count;
extern const struct broken broken_sums[];
extern const int broken_sums_count;

#endif
