/*
 * entry.h: keys, and the bytes of a cache entry. Pure.
 */
#ifndef LATHE_RT_ENTRY_H
#define LATHE_RT_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/sha256.h"
#include "runtime/compile/compile.h"

enum { CACHE_FORMAT = 1, CACHE_LABEL_BYTES = 128, CACHE_HEADER_BYTES = 224, CACHE_LABEL_AT = 64 };

struct cache_blob { /* image, log and readable are malloc'd: lathe__blob_free */
    unsigned char *image;
    size_t image_size;
    char *log;
    size_t log_size;
    char label[CACHE_LABEL_BYTES];
    char *readable; /* source text for people, stored beside the entry; NULL after a read */
    size_t readable_size;
};
void lathe__blob_free(struct cache_blob *blob);

/* Key of what would be compiled: format number, compiler identity, options in order, and the length-prefixed
   names and bytes of every text. */
void lathe__key_make(const struct source *source, const char (*options)[OPTION_BYTES], int n_options,
                     const char *compiler_identity, unsigned char key[KEY_BYTES]);
void lathe__key_text(const unsigned char key[KEY_BYTES], char out[KEY_TEXT_BYTES]);
void lathe__key_from_text(const char *text, unsigned char key[KEY_BYTES]);

/* Parse one entry. False: short, long, foreign, corrupt, or of another key (key NULL: any). Pointers of *out
   point into `data`; nothing is allocated. */
struct entry_view {
    const unsigned char *key;
    const unsigned char *image;
    size_t image_size;
    const char *log;
    size_t log_size;
    char label[CACHE_LABEL_BYTES];
};
bool lathe__entry_parse(const unsigned char *data, size_t size, const unsigned char *key,
                        struct entry_view *out);
/* Header and digest of an entry for this blob. */
void lathe__entry_header(const struct cache_blob *blob, const unsigned char key[KEY_BYTES],
                         unsigned char header[CACHE_HEADER_BYTES]);

#endif
