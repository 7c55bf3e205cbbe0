/*
 * upkeep.c: the cache folder as a whole: list, verify, clear, and the byte budget. In: an open cache; out: a
 * list of items, the caller's (lathe__cache_list_free). Each item is an entry with its source text, the pair
 * KEY.bin and KEY.cu. Files with other names are left alone, except temporaries whose writer must be dead.
 * Runs beside readers and writers: what disappears meanwhile is skipped.
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

#include "rt.h"

enum { STALE_SECONDS = 3600, HEX_BYTES = KEY_TEXT_BYTES - 1 };

static bool is_temporary(const char *name)
{
    return strncmp(name, ".tmp-", 5) == 0;
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

int lathe__cache_names(const struct cache *cache, const char *prefix, char (*out)[MAKER_NAME_BYTES], int most)
{
    struct dirent *d;
    int n = 0;
    DIR *dir = cache->dir_fd >= 0 ? open_listing(cache) : NULL;
    if (!dir)
        return 0;
    while (n < most && (d = readdir(dir)) != NULL) {
        const size_t size = strlen(d->d_name);
        if (strncmp(d->d_name, prefix, strlen(prefix)) == 0 && size < MAKER_NAME_BYTES)
            memcpy(out[n++], d->d_name, size + 1);
    }
    closedir(dir);
    return n;
}

static lathe_status list_files(const struct cache *cache, struct cache_list *out, lathe_error *err)
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

/* The label alone, from the header: a listing does not read whole entries. */
static void read_label(const struct cache *cache, struct cache_item *item)
{
    char name[KEY_TEXT_BYTES + 8];
    snprintf(name, sizeof name, "%s.bin", item->key);
    const int fd = openat(cache->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (pread(fd, item->label, sizeof item->label, CACHE_LABEL_AT) != (ssize_t)sizeof item->label)
        item->label[0] = '\0';
    close(fd);
    item->label[sizeof item->label - 1] = '\0';
    for (char *c = item->label; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?'; /* damaged: still fit for a terminal */
}

lathe_status lathe__cache_list(struct cache *cache, struct cache_list *out, lathe_error *err)
{
    TRY(list_files(cache, out, err));
    for (int i = 0; i < out->n; i++)
        read_label(cache, &out->item[i]);
    return LATHE_OK;
}

void lathe__cache_list_free(struct cache_list *list)
{
    free(list->item);
    memset(list, 0, sizeof *list);
}

/* ---- remove --------------------------------------------------------------------------------------- */

/* The entry before its source: a source alone is harmless. True: nothing of it is left. */
static bool remove_item(const struct cache *cache, const struct cache_item *item)
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

/* Temporaries older than any writer can be (all: of any age). */
static void remove_temporaries(const struct cache *cache, bool all)
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
    if (cache->dir_fd < 0 || cache->read_only || list_files(cache, &list, NULL) != LATHE_OK)
        return 0;
    for (int i = list.n - 1; i >= 0 && list.bytes > cache->budget; i--) {
        if (!remove_item(cache, &list.item[i]))
            continue;
        list.bytes -= list.item[i].bytes;
        removed++;
    }
    if (list.n_temporary > 0)
        remove_temporaries(cache, false);
    lathe__cache_list_free(&list);
    return removed;
}

/* Returns how many. */
static int remove_some_tuned(const struct cache *cache)
{
    char name[MAX_MAKERS][MAKER_NAME_BYTES];
    int removed = 0;
    const int n = lathe__cache_names(cache, TUNED_PREFIX, name, MAX_MAKERS);
    for (int i = 0; i < n; i++)
        removed += unlinkat(cache->dir_fd, name[i], 0) == 0;
    return removed;
}

/* What is known about compilers is worth nothing without what they made. */
static void remove_notes(const struct cache *cache)
{
    char name[MAX_MAKERS][MAKER_NAME_BYTES];
    const int n = lathe__cache_names(cache, MAKER_PREFIX, name, MAX_MAKERS);
    for (int i = 0; i < n; i++)
        (void)unlinkat(cache->dir_fd, name[i], 0);
    (void)unlinkat(cache->dir_fd, COMPILER_NOTE, 0);
    while (remove_some_tuned(cache) > 0)
        ;
}

lathe_status lathe__cache_clear(struct cache *cache, int *removed, lathe_error *err)
{
    struct cache_list list;
    int stuck = 0;
    *removed = 0;
    if (cache->dir_fd >= 0 && cache->read_only)
        return lathe__fail(err, LATHE_CACHE, "kernel cache %s is opened read-only and cannot be cleared",
                           cache->path);
    TRY(list_files(cache, &list, err));
    for (int i = 0; i < list.n; i++) {
        if (!remove_item(cache, &list.item[i]))
            stuck++;
        else if (list.item[i].has_entry)
            (*removed)++;
    }
    lathe__cache_list_free(&list);
    if (cache->dir_fd >= 0) {
        remove_temporaries(cache, true);
        remove_notes(cache);
    }
    if (stuck > 0)
        return lathe__fail(err, LATHE_CACHE, "kernel cache %s: %d files cannot be removed", cache->path,
                           stuck);
    return LATHE_OK;
}

/* ---- verify --------------------------------------------------------------------------------------- */

void lathe__key_from_text(const char *text, unsigned char key[KEY_BYTES])
{
    for (int i = 0; i < KEY_BYTES; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        key[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

/* Reading counts as use; an inspection must not, so the times are put back. */
static void restore_time(const struct cache *cache, const struct cache_item *item)
{
    char name[KEY_TEXT_BYTES + 8];
    const struct timespec times[2] = {{0, UTIME_OMIT}, {(time_t)item->used, (long)item->used_ns}};
    snprintf(name, sizeof name, "%s.bin", item->key);
    if (!cache->read_only)
        (void)utimensat(cache->dir_fd, name, times, AT_SYMLINK_NOFOLLOW);
}

lathe_status lathe__cache_verify(struct cache *cache, struct cache_list *out, lathe_error *err)
{
    struct cache_blob blob;
    unsigned char key[KEY_BYTES];
    TRY(list_files(cache, out, err));
    for (int i = 0; i < out->n; i++) {
        struct cache_item *item = &out->item[i];
        lathe__key_from_text(item->key, key);
        item->broken = item->has_entry && !lathe__cache_read(cache, key, &blob);
        if (item->broken && !cache->read_only)
            (void)remove_item(cache, item);
        if (item->broken || !item->has_entry)
            continue;
        memcpy(item->label, blob.label, sizeof item->label);
        restore_time(cache, item);
        lathe__blob_free(&blob);
    }
    return LATHE_OK;
}
