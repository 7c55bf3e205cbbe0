/*
 * move.c: `lathe cache export` and `import`: a cache to one file and back. In: an open cache and a path; out:
 * counts. An export is written beside its name and renamed, so that it is there as a whole or not at all, and
 * leaves damaged entries out, and the readable texts unless they are asked for. An import reads all of the
 * file and verifies it before it writes the first entry, keeps what the cache has and evicts nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache/makers.h"
#include "runtime/cache/pack.h"
#include "runtime/cache/tuned.h"

static const off_t LARGEST_PACK = (off_t)1 << 36;

/* ---- export --------------------------------------------------------------------------------------- */

struct writer {
    FILE *file;
    bool texts; /* KEY.cu too */
    struct sha256 digests;
    uint32_t records;
    uint64_t bytes;
};

static bool put(struct writer *w, const void *data, size_t size)
{
    w->bytes += size;
    return fwrite(data, 1, size, w->file) == size;
}

static bool put_record(struct writer *w, const char *name, const void *data, size_t size)
{
    unsigned char head[PACK_HEAD_BYTES];
    lathe__pack_head(name, data, size, head);
    lathe__sha256_add(&w->digests, head + PACK_HEAD_BYTES - KEY_BYTES, KEY_BYTES);
    w->records++;
    return put(w, head, sizeof head) && (size == 0 || put(w, data, size));
}

/* In the order of names: the same choices give the same file. False: no memory, or the file cannot be
 * written. */
static bool put_makers(struct writer *w, struct cache *cache)
{
    char(*name)[MAKER_NAME_BYTES];
    char text[MAKER_BYTES + 1];
    struct compiler maker;
    const int n = lathe__cache_names(cache, lathe__maker_is_name, &name);
    bool good = n >= 0;
    for (int i = 0; i < n && good; i++) {
        const size_t size = lathe__cache_note_read(cache, name[i], text, sizeof text);
        if (lathe__maker_parse(name[i], text, size, &maker))
            good = put_record(w, name[i], text, size);
    }
    free(name);
    return good;
}

static bool put_tuned(struct writer *w, struct cache *cache)
{
    char(*name)[MAKER_NAME_BYTES];
    char text[TUNED_BYTES + 1];
    struct tuned tuned;
    const int n = lathe__cache_names(cache, lathe__tuned_is_name, &name);
    bool good = n >= 0;
    for (int i = 0; i < n && good; i++) {
        const size_t size = lathe__cache_note_read(cache, name[i], text, sizeof text);
        if (lathe__tuned_parse(text, size, &tuned))
            good = put_record(w, name[i], text, size);
    }
    free(name);
    return good;
}

/* An entry that is damaged, or was evicted since it was listed, is left out. */
static bool put_item(struct writer *w, const struct cache *cache, const struct cache_item *item,
                     struct move_report *out)
{
    char name[PACK_NAME_BYTES];
    unsigned char key[KEY_BYTES];
    struct entry_view view;
    size_t size;
    bool good = true;
    snprintf(name, sizeof name, "%s.bin", item->key);
    lathe__key_from_text(item->key, key);
    unsigned char *data = lathe__cache_file_read(cache, name, &size);
    if (!data || !lathe__entry_parse(data, size, key, &view)) {
        out->broken += item->has_entry;
        free(data);
        return true;
    }
    out->moved++;
    good = put_record(w, name, data, size);
    free(data);
    snprintf(name, sizeof name, "%s.cu", item->key);
    data = good && w->texts ? lathe__cache_file_read(cache, name, &size) : NULL;
    if (data)
        good = put_record(w, name, data, size);
    free(data);
    return good;
}

/* By key: the same entries give the same file. */
static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct cache_item *)a)->key, ((const struct cache_item *)b)->key);
}

static bool put_all(struct writer *w, struct cache *cache, struct cache_list *list, struct move_report *out)
{
    unsigned char header[PACK_HEADER_BYTES] = {0};
    bool good = put(w, header, sizeof header) && put_makers(w, cache) && put_tuned(w, cache);
    if (list->n > 0)
        qsort(list->item, (size_t)list->n, sizeof *list->item, by_key);
    for (int i = 0; i < list->n && good; i++)
        good = put_item(w, cache, &list->item[i], out);
    lathe__pack_header(w->records, w->bytes, &w->digests, header);
    out->bytes = w->bytes;
    return good && fseek(w->file, 0, SEEK_SET) == 0 &&
           fwrite(header, 1, sizeof header, w->file) == sizeof header && fflush(w->file) == 0 &&
           fsync(fileno(w->file)) == 0;
}

static lathe_status write_pack(const char *temporary, const char *path, bool texts, struct cache *cache,
                               struct cache_list *list, struct move_report *out, lathe_error *err)
{
    struct writer w = {.texts = texts};
    lathe__sha256_start(&w.digests);
    errno = 0;
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    w.file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    bool good = w.file && put_all(&w, cache, list, out);
    if (w.file)
        good = fclose(w.file) == 0 && good;
    else if (fd >= 0)
        close(fd);
    if (good && rename(temporary, path) == 0)
        return LATHE_OK;
    const int error = errno;
    if (fd >= 0)
        (void)unlink(temporary);
    return lathe__fail(err, LATHE_CACHE, "%s: the cache cannot be exported there: %s", path,
                       error ? strerror(error) : "it cannot be written");
}

lathe_status lathe__cache_export(struct cache *cache, const char *path, bool texts, struct move_report *out,
                                 lathe_error *err)
{
    struct cache_list list;
    struct stat there;
    char temporary[PATH_BYTES + 32];
    memset(out, 0, sizeof *out);
    if (strlen(path) >= PATH_BYTES)
        return lathe__fail(err, LATHE_CACHE, "%.100s...: the path is too long", path);
    /* What stands there is replaced: a pipe or a device (/dev/stdout) would be gone. */
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
        return lathe__fail(err, LATHE_CACHE,
                           "%s: the cache cannot be exported there: it is not a regular file", path);
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
    TRY(lathe__cache_list(cache, &list, err));
    const lathe_status status = write_pack(temporary, path, texts, cache, &list, out, err);
    lathe__cache_list_free(&list);
    return status;
}

/* ---- import --------------------------------------------------------------------------------------- */

static lathe_status read_file(const char *path, unsigned char **out, size_t *size, lathe_error *err)
{
    struct stat status;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return lathe__fail(err, LATHE_ARG, "%s: cannot be opened: %s", path, strerror(error));
    }
    if (!S_ISREG(status.st_mode) || status.st_size > LARGEST_PACK) {
        close(fd);
        return lathe__fail(err, LATHE_ARG, "%s: expected a file of `lathe cache export`, given %s", path,
                           S_ISDIR(status.st_mode)   ? "a folder"
                           : S_ISREG(status.st_mode) ? "one that is too large"
                                                     : "something that is not a file");
    }
    *size = (size_t)status.st_size;
    *out = malloc(*size + 1);
    const bool is_read = *out && lathe__read_all(fd, *out, *size) == 0;
    close(fd);
    if (!*out)
        return lathe__fail_memory(err);
    if (is_read)
        return LATHE_OK;
    free(*out);
    *out = NULL;
    return lathe__fail(err, LATHE_ARG, "%s: cannot be read to its end", path);
}

static lathe_status verify(const unsigned char *data, size_t size, const char *path, lathe_error *err)
{
    struct pack pack;
    struct pack_record record;
    const char *why;
    int more = lathe__pack_open(&pack, data, size, &why) ? 1 : -1;
    while (more > 0)
        more = lathe__pack_next(&pack, &record, &why);
    if (more == 0)
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "%s: cannot be imported: %s; nothing was changed", path, why);
}

/* Is a sound file of this name in the cache? A damaged entry is replaced. */
static bool is_there(const struct cache *cache, const struct pack_record *r)
{
    unsigned char key[KEY_BYTES];
    struct entry_view view;
    struct compiler maker;
    struct tuned tuned;
    size_t size;
    bool good = false;
    unsigned char *data = lathe__cache_file_read(cache, r->name, &size);
    if (data && r->kind == PACK_ENTRY) {
        lathe__key_from_text(r->name, key);
        good = lathe__entry_parse(data, size, key, &view);
    } else if (data) {
        good = (r->kind != PACK_MAKER || lathe__maker_parse(r->name, (const char *)data, size, &maker)) &&
               (r->kind != PACK_TUNED || lathe__tuned_parse((const char *)data, size, &tuned));
    }
    free(data);
    return good;
}

static lathe_status put_in(struct cache *cache, const struct pack_record *r, struct move_report *out,
                           lathe_error *err)
{
    const bool entry = r->kind == PACK_ENTRY;
    if (is_there(cache, r)) {
        out->there += entry;
        return LATHE_OK;
    }
    const int error = lathe__cache_file_write(cache, r->name, r->data, r->size);
    if (error != 0)
        return lathe__fail(err, LATHE_CACHE,
                           "kernel cache %s cannot be written: %s; %d kernels were imported before that",
                           cache->path, strerror(error), out->moved);
    out->moved += entry;
    return LATHE_OK;
}

lathe_status lathe__cache_import(struct cache *cache, const char *path, struct move_report *out,
                                 lathe_error *err)
{
    unsigned char *data = NULL;
    size_t size = 0;
    struct pack pack;
    struct pack_record record;
    const char *why;
    memset(out, 0, sizeof *out);
    TRY(read_file(path, &data, &size, err));
    lathe_status status = verify(data, size, path, err);
    out->bytes = size;
    if (status == LATHE_OK && lathe__pack_open(&pack, data, size, &why))
        while (status == LATHE_OK && lathe__pack_next(&pack, &record, &why) > 0)
            status = put_in(cache, &record, out, err);
    free(data);
    if (status == LATHE_OK && cache->dir_fd >= 0)
        (void)fsync(cache->dir_fd); /* the names; losing one in a crash is a miss */
    return status;
}
