/*
 * cpu_time.h: what a call costs the host. The best of several rounds is taken, for a machine that does other
 * work at the same time makes single rounds slow.
 */
#ifndef LATHE_TESTS_CPU_TIME_H
#define LATHE_TESTS_CPU_TIME_H

#include <time.h>

#include "check.h"

static inline double cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Microseconds of processor time of one call. */
static inline double best_cpu_us(void (*call)(void *), void *data)
{
    enum { ROUNDS = 20, CALLS = 1000 };
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = cpu_us();
        for (int i = 0; i < CALLS; i++)
            call(data);
        const double us = (cpu_us() - begin) / CALLS;
        best = us < best ? us : best;
    }
    return best;
}

/* A sanitizer's own work, 20 times the product's without optimisation, says nothing of it. */
#define CHECK_CPU_US(us, limit) CHECK(LATHE_TEST_SLOWDOWN > 1 || (us) < (limit))

#endif
