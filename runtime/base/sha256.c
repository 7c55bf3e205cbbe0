/*
 * sha256.c: SHA-256 after FIPS 180-4, for cache keys and digests of entries. In: bytes, in any number of
 * calls; out: 32 bytes. The state is the caller's struct; nothing is allocated. Not hardened
 * against timing: nothing that goes through here is secret.
 */
#include <string.h>

#include "runtime/base/sha256.h"

void lathe__sha256_start(struct sha256 *s)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, initial, sizeof initial);
    s->bytes = 0;
}

void lathe__sha256_add(struct sha256 *s, const void *data, size_t size)
{
    const unsigned char *p = data;
    while (size > 0) {
        const size_t used = (size_t)(s->bytes % 64);
        if (used == 0 && size >= 64) {
            const size_t whole = size / 64 * 64;
            lathe__sha256_blocks(s->state, p, size / 64);
            s->bytes += whole;
            p += whole;
            size -= whole;
            continue;
        }
        const size_t take = size < 64 - used ? size : 64 - used;
        memcpy(s->block + used, p, take);
        s->bytes += take;
        p += take;
        size -= take;
        if (s->bytes % 64 == 0)
            lathe__sha256_blocks(s->state, s->block, 1);
    }
}

void lathe__sha256_finish(struct sha256 *s, unsigned char digest[KEY_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    const uint64_t bits = s->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    const size_t used = (size_t)(s->bytes % 64);
    lathe__sha256_add(s, padding, used < 56 ? 56 - used : 120 - used);
    lathe__sha256_add(s, length, sizeof length);
    for (int i = 0; i < 32; i++)
        digest[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}
