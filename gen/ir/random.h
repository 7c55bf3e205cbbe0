/*
 * random.h: Philox4x32 with so many rounds, and the uniform number in [0, 1) that random() of specs is.
 */
#ifndef LATHE_GEN_RANDOM_H
#define LATHE_GEN_RANDOM_H

#include <stdint.h>

void philox4x32(int rounds, const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
double random_uniform(int32_t seed, int32_t b, int32_t h, int32_t q, int32_t kv);

#endif
