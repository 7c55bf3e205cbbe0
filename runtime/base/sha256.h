/*
 * sha256.h: FIPS 180-4. A digest is also the key of a kernel.
 */
#ifndef LATHE_RT_SHA256_H
#define LATHE_RT_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_BYTES = 32, KEY_TEXT_BYTES = 2 * KEY_BYTES + 1 };

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};
void lathe__sha256_start(struct sha256 *s);
void lathe__sha256_add(struct sha256 *s, const void *data, size_t size);
void lathe__sha256_finish(struct sha256 *s, unsigned char digest[KEY_BYTES]);

/* sha256_blocks.c: the state behind whole blocks; in plain C; by the processor's own instructions, or false:
   there are none, and nothing was done. */
void lathe__sha256_blocks(uint32_t state[8], const unsigned char *data, size_t blocks);
void lathe__sha256_plainly(uint32_t state[8], const unsigned char *data, size_t blocks);
bool lathe__sha256_by_processor(uint32_t state[8], const unsigned char *data, size_t blocks);

#endif
