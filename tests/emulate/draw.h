/*
 * draw.h: random numbers of a case, the same ones of the same state on every machine.
 */
#ifndef LATHE_TESTS_EMULATE_DRAW_H
#define LATHE_TESTS_EMULATE_DRAW_H

#include <math.h>
#include <stdint.h>

static inline uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static inline int64_t between(uint64_t *state, int64_t low, int64_t high) /* both included */
{
    return low + (int64_t)(next_random(state) % (uint64_t)(high - low + 1));
}

static inline double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(1.0 - uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

#endif
