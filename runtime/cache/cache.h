/*
 * cache.h: compiled code on disk, shared by processes.
 */
#ifndef LATHE_RT_CACHE_H
#define LATHE_RT_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/base.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/folder.h"

/* Open or create the directory. Never fails: a directory that cannot be used is memory only, with one
   warning. `path` "" : memory only. `budget` 0: 1 GiB. */
void lathe__cache_open(struct cache *cache, const char *path, uint64_t budget, bool read_only,
                       struct reporter report);
/* The same for the tool, which looks after caches and makes no kernel of its own with them. */
void lathe__cache_open_tool(struct cache *cache, const char *path, bool read_only, struct reporter report);
/* The same for a folder that others are to read, of a package or an image: created with mode 0755, and never
   evicted from. */
void lathe__cache_open_shared(struct cache *cache, const char *path, struct reporter report);
/* One that is searched and never written. A folder that is not there is worth a warning only if `named`. */
void lathe__cache_open_system(struct cache *cache, const char *path, bool named, struct reporter report);
void lathe__cache_close(struct cache *cache);

/* Builds what is missing; called at most once by lathe__cache_get. */
typedef lathe_status lathe__build_fn(void *user, struct cache_blob *out, lathe_error *err);
/* Read the entry of `key`; where there is none (or a broken one), build it under the lock of that key and
   store it. Only `build` can fail: trouble with the disk costs a warning. *hit (may be NULL): it came from
   the disk. */
lathe_status lathe__cache_get(struct cache *cache, const unsigned char key[KEY_BYTES], lathe__build_fn *build,
                              void *user, struct cache_blob *out, bool *hit, lathe_error *err);
/* lock.c: may this thread build for `key`? A descriptor for lathe__key_unlock; -1: nobody knows, or the wait
   was over. */
int lathe__key_lock(const struct cache *cache, const unsigned char key[KEY_BYTES]);
void lathe__key_unlock(int fd);
/* A small file of another name, for notes; at most `size` bytes are read. Returns how many, 0 where there is
 * none. */
size_t lathe__cache_note_read(struct cache *cache, const char *name, char *data, size_t size);
void lathe__cache_note_write(struct cache *cache, const char *name, const char *data, size_t size);

/* A whole file of the cache, malloc'd; NULL: not there, not ours, not plain. */
unsigned char *lathe__cache_file_read(const struct cache *cache, const char *name, size_t *size);
/* Temporary sibling, fsync, rename. Returns an errno; EROFS where the cache is not written. */
int lathe__cache_file_write(const struct cache *cache, const char *name, const void *data, size_t size);

/* The two halves, for tests. */
bool lathe__cache_read(struct cache *cache, const unsigned char key[KEY_BYTES], struct cache_blob *out);
bool lathe__cache_store(struct cache *cache, const unsigned char key[KEY_BYTES],
                        const struct cache_blob *blob);
/* upkeep.c, for `lathe cache`. Errors: CACHE (cannot be read), MEMORY. A cache that is memory only lists
 * nothing. */
lathe_status lathe__cache_list(struct cache *cache, struct cache_list *out, lathe_error *err);
/* The same, with every entry read and its digest checked: broken ones are marked, and removed unless
 * read-only. */
lathe_status lathe__cache_verify(struct cache *cache, struct cache_list *out, lathe_error *err);
/* Remove everything. *removed counts entries. Errors: CACHE. */
lathe_status lathe__cache_clear(struct cache *cache, int *removed, lathe_error *err);

#endif
