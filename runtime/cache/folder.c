/*
 * folder.c: the cache folder as files: what lies in it, how an item is taken away, and the byte budget. In:
 * an open cache; out: a list of items, the caller's (lathe__cache_list_free). Each item is an entry with its
 * source text, the pair KEY.bin and KEY.cu. Files with other names are left alone, except temporaries whose
 * writer must be dead. Runs beside readers and writers: what disappears meanwhile is skipped. Nothing here
 * reads an entry.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/cache/folder.h"

enum { STALE_SECONDS = 3600, HEX_BYTES = KEY_TEXT_BYTES - 1 };

/* .tmp-PID-RANDOM, as cache.c names them. */
static bool is_temporary(const char *name)
{
    if (strncmp(name, ".tmp-", 5) != 0)
        return false;
    const size_t digits = strspn(name + 5, "0123456789");
    const char *rest = name + 5 + digits;
    return digits > 0 && *rest == '-' && strspn(rest + 1, "0123456789abcdef") == 16 && rest[17] == '\0';
}

/* KEY.bin or KEY.cu. */
static bool is_ours(const char *name, bool *entry)
{
    if (strspn(name, "0123456789abcdef") != HEX_BYTES)
        return false;
    *entry = strcmp(name + HEX_BYTES, ".bin") == 0;
    return *entry || strcmp(name + HEX_BYTES, ".cu") == 0;
}

/* One file of the folder, raw: pairs are joined after sorting. */
static bool add_file(struct cache_list *list, int *capacity, const char *name, bool entry,
                     const struct stat *status)
{
    if (list->n == *capacity) {
        const int larger = *capacity ? 2 * *capacity : 64;
        struct cache_item *grown = realloc(list->item, (size_t)larger * sizeof *grown);
        if (!grown)
            return false;
        list->item = grown;
        *capacity = larger;
    }
    struct cache_item *item = &list->item[list->n++];
    memset(item, 0, sizeof *item);
    memcpy(item->key, name, HEX_BYTES);
    item->bytes = (uint64_t)status->st_size;
    item->has_entry = entry;
    item->used = (int64_t)status->st_mtim.tv_sec;
    item->used_ns = (int64_t)status->st_mtim.tv_nsec;
    return true;
}

/* By key, the entry before its source. */
static int by_key(const void *a, const void *b)
{
    const struct cache_item *x = a;
    const struct cache_item *y = b;
    const int order = strcmp(x->key, y->key);
    return order ? order : (int)y->has_entry - (int)x->has_entry;
}

static int newest_first(const void *a, const void *b)
{
    const struct cache_item *x = a;
    const struct cache_item *y = b;
    if (x->used != y->used)
        return x->used < y->used ? 1 : -1;
    if (x->used_ns != y->used_ns)
        return x->used_ns < y->used_ns ? 1 : -1;
    return strcmp(x->key, y->key);
}

static void join_pairs(struct cache_list *list)
{
    int n = 0;
    if (list->n == 0)
        return;
    qsort(list->item, (size_t)list->n, sizeof *list->item, by_key);
    for (int i = 0; i < list->n; i++) {
        list->bytes += list->item[i].bytes;
        if (n > 0 && strcmp(list->item[n - 1].key, list->item[i].key) == 0)
            list->item[n - 1].bytes += list->item[i].bytes;
        else
            list->item[n++] = list->item[i];
    }
    list->n = n;
    qsort(list->item, (size_t)n, sizeof *list->item, newest_first);
}

/* A folder of its own for reading: positions in dir_fd are shared by threads. */
static DIR *open_listing(const struct cache *cache)
{
    const int fd = openat(cache->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

static bool scan(const struct cache *cache, DIR *dir, struct cache_list *out)
{
    struct dirent *d;
    struct stat status;
    int capacity = 0;
    while ((d = readdir(dir)) != NULL) {
        bool entry = false;
        const bool temporary = is_temporary(d->d_name);
        if ((!temporary && !is_ours(d->d_name, &entry)) ||
            fstatat(cache->dir_fd, d->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (temporary)
            out->n_temporary++;
        else if (!add_file(out, &capacity, d->d_name, entry, &status))
            return false;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int lathe__cache_names(const struct cache *cache, bool (*is_name)(const char *name),
                       char (**out)[MAKER_NAME_BYTES])
{
    struct dirent *d;
    char(*name)[MAKER_NAME_BYTES] = NULL;
    int n = 0;
    DIR *dir = cache->dir_fd >= 0 ? open_listing(cache) : NULL;
    *out = NULL;
    while (dir && n >= 0 && (d = readdir(dir)) != NULL) {
        if (!is_name(d->d_name))
            continue;
        char(*grown)[MAKER_NAME_BYTES] = n % 64 == 0 ? realloc(name, (size_t)(n + 64) * sizeof *name) : name;
        if (grown) {
            name = grown;
            snprintf(name[n++], sizeof name[0], "%s", d->d_name);
        } else {
            n = -1;
        }
    }
    if (dir)
        closedir(dir);
    if (n > 0)
        qsort(name, (size_t)n, sizeof name[0], by_name);
    if (n > 0)
        *out = name;
    else
        free(name);
    return n;
}

lathe_status lathe__cache_scan(const struct cache *cache, struct cache_list *out, lathe_error *err)
{
    memset(out, 0, sizeof *out);
    if (cache->dir_fd < 0)
        return LATHE_OK;
    DIR *dir = open_listing(cache);
    if (!dir)
        return lathe__fail(err, LATHE_CACHE, "kernel cache %s cannot be listed: %s", cache->path,
                           strerror(errno));
    const bool ok = scan(cache, dir, out);
    closedir(dir);
    if (!ok) {
        lathe__cache_list_free(out);
        return lathe__fail_memory(err);
    }
    join_pairs(out);
    return LATHE_OK;
}

void lathe__cache_list_free(struct cache_list *list)
{
    free(list->item);
    memset(list, 0, sizeof *list);
}

/* ---- remove --------------------------------------------------------------------------------------- */

/* The entry goes before its source: a source alone is harmless. */
bool lathe__cache_remove(const struct cache *cache, const struct cache_item *item)
{
    static const char *const suffix[2] = {"bin", "cu"};
    char name[KEY_TEXT_BYTES + 8];
    bool gone = true;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.%s", item->key, suffix[i]);
        if (unlinkat(cache->dir_fd, name, 0) != 0 && errno != ENOENT)
            gone = false;
    }
    return gone;
}

void lathe__cache_sweep(const struct cache *cache, bool all)
{
    struct stat status;
    struct dirent *d;
    const time_t now = time(NULL);
    DIR *dir = open_listing(cache);
    if (!dir)
        return;
    while ((d = readdir(dir)) != NULL)
        if (is_temporary(d->d_name) && fstatat(cache->dir_fd, d->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            (all || now - status.st_mtim.tv_sec > STALE_SECONDS))
            (void)unlinkat(cache->dir_fd, d->d_name, 0);
    closedir(dir);
}

int lathe__cache_evict(struct cache *cache)
{
    struct cache_list list;
    int removed = 0;
    if (cache->dir_fd < 0 || cache->read_only || lathe__cache_scan(cache, &list, NULL) != LATHE_OK)
        return 0;
    for (int i = list.n - 1; i >= 0 && list.bytes > cache->budget; i--) {
        if (!lathe__cache_remove(cache, &list.item[i]))
            continue;
        list.bytes -= list.item[i].bytes;
        removed++;
    }
    if (list.n_temporary > 0)
        lathe__cache_sweep(cache, false);
    lathe__cache_list_free(&list);
    return removed;
}
