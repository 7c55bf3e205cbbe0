/*
 * makers.h: what a cache knows about the compilers that filled it.
 */
#ifndef LATHE_RT_MAKERS_H
#define LATHE_RT_MAKERS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/cache/cache.h"

/* note.c: what is known about the compiler (identity, archs) without opening it, which takes longer than all
   else of a warm start. *out has no entry points. False: nothing is noted, or not about this environment, or
   the library's file is another by now. */
bool lathe__compiler_note_read(struct cache *cache, const char *cuda_home, int driver_version,
                               struct compiler *out);
void lathe__compiler_note_write(struct cache *cache, const char *cuda_home, int driver_version,
                                const struct compiler *compiler);
#define COMPILER_NOTE "compiler"
#define MAKER_PREFIX  "nvrtc-"

/* Makers: for every compiler that made entries of a cache, a file with its identity and archs, so that the
   entries are found where that compiler is not installed. */
enum { MAKER_BYTES = 512 };
bool lathe__maker_is_name(const char *name);
bool lathe__maker_name(const char *identity, char out[MAKER_NAME_BYTES]); /* false: not an identity */
bool lathe__maker_parse(const char *name, const char *data, size_t size, struct compiler *out);
/* Returns an errno, 0 also where it was there. A cache that is not written returns 0 and does nothing. */
int lathe__maker_write(struct cache *cache, const struct compiler *compiler);
/* The newest first; *out is malloc'd, the caller's, and has no entry points. Returns how many. */
int lathe__makers_read(struct cache *cache, struct compiler **out);
/* The code of `source` for the device's arch, made by any of the cache's makers whose major version the
   driver takes (`driver_version` 0: any). `key` and `arch` are those of the entry that was found. */
bool lathe__cache_find_made(struct cache *cache, const struct source *source, const char *device_arch,
                            int driver_version, unsigned char key[KEY_BYTES], char arch[16],
                            struct cache_blob *out);

#endif
