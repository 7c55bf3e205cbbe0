/*
 * pack.h: a cache as one file: pack.c, which is pure, and move.c.
 */
#ifndef LATHE_RT_PACK_H
#define LATHE_RT_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/sha256.h"
#include "runtime/cache/cache.h"

enum { PACK_FORMAT = 1, PACK_HEADER_BYTES = 64, PACK_HEAD_BYTES = 128, PACK_NAME_BYTES = 80 };
enum pack_kind {
    PACK_ENTRY,
    PACK_READABLE,
    PACK_MAKER,
    PACK_TUNED
};                   /* KEY.bin, KEY.cu, nvrtc-..., tuned-... */
struct pack_record { /* points into the bytes of the pack */
    enum pack_kind kind;
    char name[PACK_NAME_BYTES];
    const unsigned char *data;
    size_t size;
};
struct pack { /* a reader: lathe__pack_open, then lathe__pack_next until it returns 0 */
    const unsigned char *data;
    size_t size;
    size_t at;
    uint32_t left;
    struct sha256 digests; /* of the records that were read */
};
/* False: *why says what is wrong, without a full stop. */
bool lathe__pack_open(struct pack *pack, const unsigned char *data, size_t size, const char **why);
/* 1: a record, sound in itself; 0: the end, and the whole is sound; -1: *why. */
int lathe__pack_next(struct pack *pack, struct pack_record *out, const char **why);
/* The head of a record, PACK_HEAD_BYTES, with the digest of all of it. */
void lathe__pack_head(const char *name, const void *data, size_t size, unsigned char head[PACK_HEAD_BYTES]);
/* The header of a pack of n records. `digests` has their digests added in order. */
void lathe__pack_header(uint32_t n, uint64_t file_bytes, const struct sha256 *digests,
                        unsigned char header[PACK_HEADER_BYTES]);

struct move_report {
    int moved;      /* kernels written: to the file, or into the cache */
    int there;      /* import: kernels that the cache had */
    int broken;     /* export: entries that are damaged and were left out */
    uint64_t bytes; /* of the file */
};
/* `texts`: the readable sources too. Errors: CACHE (a sentence with the file or the entry), MEMORY. The file
   is there as a whole or not at all. */
lathe_status lathe__cache_export(struct cache *cache, const char *path, bool texts, struct move_report *out,
                                 lathe_error *err);
/* The file is verified as a whole before anything is written. Errors: ARG (not a pack, damaged, cannot be
   read), CACHE (cannot be written), MEMORY. */
lathe_status lathe__cache_import(struct cache *cache, const char *path, struct move_report *out,
                                 lathe_error *err);

#endif
