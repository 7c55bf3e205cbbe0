/*
 * folder.h: the folder of a cache as files. Reading an entry is cache.h's.
 */
#ifndef LATHE_RT_FOLDER_H
#define LATHE_RT_FOLDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/base.h"
#include "runtime/base/sha256.h"
#include "runtime/cache/entry.h"

struct cache {
    int dir_fd; /* -1: memory only */
    char path[PATH_BYTES];
    uint64_t budget; /* bytes */
    bool read_only;
    unsigned file_mode; /* of new files: 0600, readable by whom the folder is */
    int lock_wait_ms;   /* after that long, compile although another process may be at it */
    const char *cost;   /* what it means that the folder cannot be used: ends the warning */
    atomic_flag warned; /* one warning for a cache, not one for a kernel */
    struct reporter report;
};

/* Items are sorted, most recently used first. */
struct cache_item {
    char key[KEY_TEXT_BYTES];
    char label[CACHE_LABEL_BYTES]; /* "" where the entry is broken or was not read */
    uint64_t bytes;                /* entry and source */
    int64_t used;                  /* seconds since 1970 */
    int64_t used_ns;
    bool has_entry; /* false: only a source text is left */
    bool broken;    /* after lathe__cache_verify */
};
struct cache_list {
    int n;
    struct cache_item *item; /* lathe__cache_list_free */
    uint64_t bytes;
    int n_temporary; /* files of writers that are at work, or died */
};
/* Labels are empty and nothing is marked as broken. Errors: CACHE (cannot be listed), MEMORY. A cache that is
   memory only has nothing in it. */
lathe_status lathe__cache_scan(const struct cache *cache, struct cache_list *out, lathe_error *err);
void lathe__cache_list_free(struct cache_list *list);
enum { MAKER_NAME_BYTES = 72 };
/* Names of files that `is_name` takes, in order; *out is malloc'd, the caller's. Returns how many; -1: no
   memory. */
int lathe__cache_names(const struct cache *cache, bool (*is_name)(const char *name),
                       char (**out)[MAKER_NAME_BYTES]);

/* True: nothing of the item is left. */
bool lathe__cache_remove(const struct cache *cache, const struct cache_item *item);
/* Removes temporaries that are older than any writer can be, or all of them. */
void lathe__cache_sweep(const struct cache *cache, bool all);
/* Remove least recently used entries until the budget holds; stale temporaries too. Returns entries removed.
 */
int lathe__cache_evict(struct cache *cache);

#endif
