/*
 * random.c: random(seed, b, h, q, kv) of specs, a number that is a function of its arguments alone: the same
 * on the host, in every kernel and in both passes, whatever the tiles. In: five integers. Out: a multiple of
 * 2^-24 in [0, 1). The generator is Philox4x32 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011), with seven rounds, the fewest of which they found that it passes BigCrush.
 * templates/common/math.cuh has the same function for kernels.
 */
#include "gen/ir/random.h"

void philox4x32(int rounds, const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int r = 0; r < rounds; r++) {
        const uint64_t x = UINT64_C(0xd2511f53) * c[0];
        const uint64_t y = UINT64_C(0xcd9e8d57) * c[2];
        c[0] = (uint32_t)(y >> 32) ^ c[1] ^ k[0];
        c[1] = (uint32_t)y;
        c[2] = (uint32_t)(x >> 32) ^ c[3] ^ k[1];
        c[3] = (uint32_t)x;
        k[0] += UINT32_C(0x9e3779b9);
        k[1] += UINT32_C(0xbb67ae85);
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

/* Bits 0 and 3 of kv choose one of four words: a thread of a kernel has columns that differ in just those. */
double random_uniform(int32_t seed, int32_t b, int32_t h, int32_t q, int32_t kv)
{
    const uint32_t key[2] = {(uint32_t)seed, 0};
    const uint32_t counter[4] = {(uint32_t)q, (uint32_t)kv & ~UINT32_C(9), (uint32_t)h, (uint32_t)b};
    uint32_t word[4];
    philox4x32(7, counter, key, word);
    return (double)(word[(kv & 1) + ((kv & 8) != 0 ? 2 : 0)] >> 8) * 0x1p-24;
}
