/*
 * sha256_blocks.c: the blocks of SHA-256, in plain C, and by the instructions that x86 processors have for
 * it, some six times as fast. In: a state and whole blocks. Out: the state behind them.
 */
#include "runtime/base/sha256.h"

#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
    return (x >> n) | (x << (32 - n));
}

static uint32_t load_be32(const unsigned char *p)
{
    return ((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | (uint32_t)p[3];
}

static void schedule(uint32_t w[64], const unsigned char *block)
{
    for (int i = 0; i < 16; i++)
        w[i] = load_be32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void compress(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64];
    uint32_t v[8]; /* a to h of the standard */
    schedule(w, block);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t t1 = v[7] + s1 + choice + ROUND[i] + w[i];
        const uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        v[7] = v[6];
        v[6] = v[5];
        v[5] = v[4];
        v[4] = v[3] + t1;
        v[3] = v[2];
        v[2] = v[1];
        v[1] = v[0];
        v[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void lathe__sha256_plainly(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        compress(state, data + 64 * i);
}

#if defined(__x86_64__) && defined(__GNUC__)

/* Of leaf 7, ebx: SHA; of leaf 1, ecx: SSSE3 and SSE4.1, whose shuffles and blends go with it. */
static bool has_instructions(void)
{
    static atomic_int known; /* 0: nobody has asked yet */
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        const bool shuffles = __get_cpuid(1, &a, &b, &c, &d) && (c >> 9 & 1u) && (c >> 19 & 1u);
        answer = shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1u) ? 1 : -1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer > 0;
}

/* Four words of the schedule from the sixteen before them: w[i-16], w[i-12], w[i-8], w[i-4]. */
__attribute__((target("sha,sse4.1"))) static __m128i next_words(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4));
    return _mm_sha256msg2_epu32(sum, d);
}

__attribute__((target("sha,sse4.1"))) static void compress_fast(uint32_t state[8], const unsigned char *data,
                                                                size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
    const __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8);
    __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; blocks > 0; blocks--, data += 64) {
        const __m128i abef_before = abef;
        const __m128i cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 16; i++) {
            if (i < 4) {
                const void *words = data + (size_t)16 * (size_t)i;
                w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)words), swap);
            } else {
                w[i % 4] = next_words(w[i % 4], w[(i + 1) % 4], w[(i + 2) % 4], w[(i + 3) % 4]);
            }
            const void *constants = ROUND + (size_t)4 * (size_t)i;
            const __m128i sum = _mm_add_epi32(w[i % 4], _mm_loadu_si128((const __m128i *)constants));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool lathe__sha256_by_processor(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    if (!has_instructions())
        return false;
    compress_fast(state, data, blocks);
    return true;
}

#else
bool lathe__sha256_by_processor(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    (void)state;
    (void)data;
    (void)blocks;
    return false;
}
#endif

void lathe__sha256_blocks(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    if (!lathe__sha256_by_processor(state, data, blocks))
        lathe__sha256_plainly(state, data, blocks);
}
