/*
 * upkeep.c: a cache as `lathe cache` looks after it: list, verify, clear. In: an open cache; out: a list of
 * items, the caller's (lathe__cache_list_free). Runs beside readers and writers: what disappears meanwhile is
 * skipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache/folder.h"
#include "runtime/cache/makers.h"
#include "runtime/cache/tuned.h"

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
    TRY(lathe__cache_scan(cache, out, err));
    for (int i = 0; i < out->n; i++)
        read_label(cache, &out->item[i]);
    return LATHE_OK;
}

/* ---- clear ---------------------------------------------------------------------------------------- */

static void remove_named(const struct cache *cache, bool (*is_name)(const char *name))
{
    char(*name)[MAKER_NAME_BYTES];
    const int n = lathe__cache_names(cache, is_name, &name);
    for (int i = 0; i < n; i++)
        (void)unlinkat(cache->dir_fd, name[i], 0);
    free(name);
}

/* What is known about compilers is worth nothing without what they made. A file that somebody else called
   `compiler` does not begin like ours. */
static void remove_notes(struct cache *cache)
{
    static const char head[] = "lathe ";
    char text[sizeof head - 1];
    remove_named(cache, lathe__maker_is_name);
    remove_named(cache, lathe__tuned_is_name);
    if (lathe__cache_note_read(cache, COMPILER_NOTE, text, sizeof text) == sizeof text &&
        memcmp(text, head, sizeof text) == 0)
        (void)unlinkat(cache->dir_fd, COMPILER_NOTE, 0);
}

lathe_status lathe__cache_clear(struct cache *cache, int *removed, lathe_error *err)
{
    struct cache_list list;
    int stuck = 0;
    *removed = 0;
    if (cache->dir_fd >= 0 && cache->read_only)
        return lathe__fail(err, LATHE_CACHE, "kernel cache %s is opened read-only and cannot be cleared",
                           cache->path);
    TRY(lathe__cache_scan(cache, &list, err));
    for (int i = 0; i < list.n; i++) {
        if (!lathe__cache_remove(cache, &list.item[i]))
            stuck++;
        else if (list.item[i].has_entry)
            (*removed)++;
    }
    lathe__cache_list_free(&list);
    if (cache->dir_fd >= 0) {
        lathe__cache_sweep(cache, true);
        remove_notes(cache);
    }
    if (stuck > 0)
        return lathe__fail(err, LATHE_CACHE, "kernel cache %s: %d files cannot be removed", cache->path,
                           stuck);
    return LATHE_OK;
}

/* ---- verify --------------------------------------------------------------------------------------- */

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
    TRY(lathe__cache_scan(cache, out, err));
    for (int i = 0; i < out->n; i++) {
        struct cache_item *item = &out->item[i];
        lathe__key_from_text(item->key, key);
        item->broken = item->has_entry && !lathe__cache_read(cache, key, &blob);
        if (item->broken && !cache->read_only)
            (void)lathe__cache_remove(cache, item);
        if (item->broken || !item->has_entry)
            continue;
        memcpy(item->label, blob.label, sizeof item->label);
        restore_time(cache, item);
        lathe__blob_free(&blob);
    }
    return LATHE_OK;
}
