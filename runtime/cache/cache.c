/*
 * cache.c: compiled code on disk, shared by processes. In: a key and a function that builds what is missing;
 * out: a blob, the caller's (lathe__blob_free). Folder: KEY.bin entries, KEY.cu sources for people, .tmp-*
 * files of writers at work, and `lock`, of which each key locks a byte. Correctness rests on the digest of an
 * entry and on rename alone; locks only save work. Trouble with the disk costs one warning, never a kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache/cache.h"

enum { NAME_BYTES = KEY_TEXT_BYTES + 8, DEFAULT_LOCK_WAIT_MS = 60000 };
static const off_t LARGEST_ENTRY = (off_t)1 << 30;
static const uint64_t DEFAULT_BUDGET = (uint64_t)1 << 30;

static void warn_once(struct cache *cache, const char *what, int error)
{
    if (!atomic_flag_test_and_set(&cache->warned))
        lathe__report(&cache->report, 0, "kernel cache %s: %s%s%s%s", cache->path, what, error ? ": " : "",
                      error ? strerror(error) : "", cache->cost);
}

static void entry_name(const unsigned char key[KEY_BYTES], const char *suffix, char out[NAME_BYTES])
{
    char text[KEY_TEXT_BYTES];
    lathe__key_text(key, text);
    snprintf(out, NAME_BYTES, "%s.%s", text, suffix);
}

/* ---- the folder ----------------------------------------------------------------------------------- */

/* mkdir -p. What is missing above a user's cache is private too (~/.cache). */
static int make_path(const char *path, mode_t mode)
{
    char part[PATH_BYTES];
    const size_t length = strlen(path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST) {
            const int error = errno;
            struct stat status;
            if (stat(part, &status) != 0)
                return error;
        }
    }
    return 0;
}

/* NULL, or why this folder must not be trusted with code that will run. A read-only cache may be the
 * system's. */
static const char *distrust(const struct stat *status, bool read_only)
{
    const bool own = status->st_uid == geteuid();
    if (!own && !(read_only && status->st_uid == 0))
        return "it belongs to another user and is not used";
    if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return "group or others can write to it, so it is not used (chmod go-w would allow it)";
    return NULL;
}

static void open_folder(struct cache *cache, mode_t mode)
{
    struct stat status;
    const char *why = NULL;
    int error = cache->read_only ? 0 : make_path(cache->path, mode);
    if (error == 0) {
        cache->dir_fd = open(cache->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        error = cache->dir_fd < 0 ? errno : 0;
    }
    if (error == 0 && fstat(cache->dir_fd, &status) != 0)
        error = errno;
    if (error == 0)
        why = distrust(&status, cache->read_only);
    if (error == 0 && !why) {
        cache->file_mode = 0600 | (status.st_mode & (S_IRGRP | S_IROTH));
        return;
    }
    warn_once(cache, why ? why : "it cannot be opened", error);
    lathe__cache_close(cache);
}

static void cache_init(struct cache *cache, const char *path, const char *cost, struct reporter report)
{
    cache->dir_fd = -1;
    cache->budget = DEFAULT_BUDGET;
    cache->read_only = false;
    cache->file_mode = 0600;
    cache->lock_wait_ms = DEFAULT_LOCK_WAIT_MS;
    cache->report = report;
    cache->cost = cost;
    atomic_flag_clear(&cache->warned);
    snprintf(cache->path, sizeof cache->path, "%s", path);
}

static void cache_open(struct cache *cache, const char *path, mode_t mode)
{
    if (path[0] == '\0')
        return;
    if (strlen(path) >= sizeof cache->path)
        warn_once(cache,
                  "a path of at most " NUMBER_TEXT(LONGEST_PATH) " bytes is expected, and this one is longer",
                  0);
    else
        open_folder(cache, mode);
}

void lathe__cache_open(struct cache *cache, const char *path, uint64_t budget, bool read_only,
                       struct reporter report)
{
    cache_init(cache, path, "; kernels are compiled again in every process", report);
    cache->budget = budget ? budget : DEFAULT_BUDGET;
    cache->read_only = read_only;
    cache_open(cache, path, 0700);
}

void lathe__cache_open_tool(struct cache *cache, const char *path, bool read_only, struct reporter report)
{
    cache_init(cache, path, "", report);
    cache->read_only = read_only;
    cache_open(cache, path, 0700);
}

void lathe__cache_open_shared(struct cache *cache, const char *path, struct reporter report)
{
    cache_init(cache, path, "", report);
    cache->budget = UINT64_MAX;
    cache_open(cache, path, 0755);
}

void lathe__cache_open_system(struct cache *cache, const char *path, bool named, struct reporter report)
{
    struct stat status;
    cache_init(cache, path, "; it is not searched", report);
    cache->read_only = true;
    if (named || stat(path, &status) == 0 || errno != ENOENT)
        cache_open(cache, path, 0);
}

void lathe__cache_close(struct cache *cache)
{
    if (cache->dir_fd >= 0)
        close(cache->dir_fd);
    cache->dir_fd = -1;
}

/* ---- read ----------------------------------------------------------------------------------------- */

enum found { FOUND_NOTHING, FOUND_BROKEN, FOUND_ENTRY };

/* The whole file, malloc'd; NULL where it is not a plain file of ours of a sane size, or cannot be read. */
static unsigned char *read_whole(const struct cache *cache, int fd, size_t *size)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || distrust(&status, cache->read_only) ||
        status.st_size <= 0 || status.st_size > LARGEST_ENTRY)
        return NULL;
    *size = (size_t)status.st_size;
    unsigned char *data = malloc(*size);
    if (data && lathe__read_all(fd, data, *size) != 0) {
        free(data);
        return NULL;
    }
    return data;
}

static bool copy_out(const struct entry_view *view, struct cache_blob *out)
{
    memset(out, 0, sizeof *out);
    out->image = malloc(view->image_size);
    out->log = malloc(view->log_size + 1);
    if (!out->image || !out->log) {
        lathe__blob_free(out);
        return false;
    }
    memcpy(out->image, view->image, view->image_size);
    out->image_size = view->image_size;
    memcpy(out->log, view->log, view->log_size);
    out->log[view->log_size] = '\0';
    out->log_size = view->log_size;
    memcpy(out->label, view->label, sizeof out->label);
    return true;
}

static enum found read_entry(struct cache *cache, const unsigned char key[KEY_BYTES], struct cache_blob *out)
{
    char name[NAME_BYTES];
    struct entry_view view;
    size_t size = 0;
    enum found found = FOUND_BROKEN;
    entry_name(key, "bin", name);
    const int fd = openat(cache->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? FOUND_NOTHING : FOUND_BROKEN;
    unsigned char *data = read_whole(cache, fd, &size);
    if (data && lathe__entry_parse(data, size, key, &view) && copy_out(&view, out)) {
        found = FOUND_ENTRY;
        if (!cache->read_only)
            (void)futimens(fd, NULL); /* the time of use, for eviction; failing costs a wrong order only */
    }
    free(data);
    close(fd);
    return found;
}

bool lathe__cache_read(struct cache *cache, const unsigned char key[KEY_BYTES], struct cache_blob *out)
{
    memset(out, 0, sizeof *out);
    return cache->dir_fd >= 0 && read_entry(cache, key, out) == FOUND_ENTRY;
}

/* ---- write ---------------------------------------------------------------------------------------- */

struct chunk {
    const void *data;
    size_t size;
};

static int write_chunks(int fd, const struct chunk *chunk, int n, bool durable)
{
    int error = 0;
    for (int i = 0; i < n && error == 0; i++)
        error = lathe__write_all(fd, chunk[i].data, chunk[i].size);
    if (error == 0 && durable && fsync(fd) != 0)
        error = errno;
    if (close(fd) != 0 && error == 0)
        error = errno;
    return error;
}

/* Temporary sibling, fsync if it is durable, rename: a reader sees the old file, the new one or none. Returns
   an errno. */
static int publish(const struct cache *cache, const char *name, const struct chunk *chunk, int n,
                   bool durable)
{
    char temporary[64];
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return errno;
    snprintf(temporary, sizeof temporary, ".tmp-%ld-%016llx", (long)getpid(), (unsigned long long)number);
    const int fd =
        openat(cache->dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    if (cache->file_mode != 0600)
        (void)fchmod(fd, cache->file_mode); /* not decided by the umask; failing leaves it private */
    int error = write_chunks(fd, chunk, n, durable);
    if (error == 0 && renameat(cache->dir_fd, temporary, cache->dir_fd, name) != 0)
        error = errno;
    if (error != 0)
        unlinkat(cache->dir_fd, temporary, 0);
    return error;
}

/* Only people miss it: the entry stays without, and nobody waits for the disk. */
static void store_text(struct cache *cache, const unsigned char key[KEY_BYTES], const struct cache_blob *blob)
{
    const struct chunk text = {blob->readable, blob->readable_size};
    char name[NAME_BYTES];
    entry_name(key, "cu", name);
    const int error = publish(cache, name, &text, 1, false);
    if (error != 0)
        lathe__report(&cache->report, 2, "kernel cache %s: %s cannot be written: %s", cache->path, name,
                      strerror(error));
}

bool lathe__cache_store(struct cache *cache, const unsigned char key[KEY_BYTES],
                        const struct cache_blob *blob)
{
    unsigned char header[CACHE_HEADER_BYTES];
    char name[NAME_BYTES];
    if (cache->dir_fd < 0 || cache->read_only)
        return false;
    lathe__entry_header(blob, key, header);
    const struct chunk entry[3] = {
        {header, sizeof header}, {blob->image, blob->image_size}, {blob->log, blob->log_size}};
    entry_name(key, "bin", name);
    const int error = publish(cache, name, entry, 3, true);
    if (error != 0) {
        warn_once(cache, "it cannot be written", error);
        return false;
    }
    if (blob->readable)
        store_text(cache, key, blob);
    /* The folder is not synced: a name that a crash takes is a miss. */
    lathe__cache_evict(cache);
    return true;
}

unsigned char *lathe__cache_file_read(const struct cache *cache, const char *name, size_t *size)
{
    *size = 0;
    const int fd =
        cache->dir_fd < 0 ? -1 : openat(cache->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    unsigned char *data = read_whole(cache, fd, size);
    close(fd);
    return data;
}

int lathe__cache_file_write(const struct cache *cache, const char *name, const void *data, size_t size)
{
    const struct chunk file = {data, size};
    return cache->dir_fd < 0 || cache->read_only ? EROFS : publish(cache, name, &file, 1, true);
}

size_t lathe__cache_note_read(struct cache *cache, const char *name, char *data, size_t size)
{
    struct stat status;
    ssize_t n = 0;
    if (cache->dir_fd < 0)
        return 0;
    const int fd = openat(cache->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && !distrust(&status, cache->read_only))
        n = read(fd, data, size);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

void lathe__cache_note_write(struct cache *cache, const char *name, const char *data, size_t size)
{
    const struct chunk text = {data, size};
    if (cache->dir_fd >= 0 && !cache->read_only)
        (void)publish(cache, name, &text, 1, false); /* without it the next start is slower */
}

/* ---- one builder for a key ------------------------------------------------------------------------ */

static void remove_broken(struct cache *cache, const unsigned char key[KEY_BYTES])
{
    char name[NAME_BYTES];
    entry_name(key, "bin", name);
    lathe__report(&cache->report, 2, "kernel cache %s: %s is damaged or foreign and is built again",
                  cache->path, name);
    (void)unlinkat(cache->dir_fd, name, 0); /* else the rename replaces it, or the store warns */
}

lathe_status lathe__cache_get(struct cache *cache, const unsigned char key[KEY_BYTES], lathe__build_fn *build,
                              void *user, struct cache_blob *out, bool *hit, lathe_error *err)
{
    enum found found = FOUND_NOTHING;
    int lock = -1;
    memset(out, 0, sizeof *out);
    if (cache->dir_fd >= 0)
        found = read_entry(cache, key, out);
    const bool writable = cache->dir_fd >= 0 && !cache->read_only;
    if (found != FOUND_ENTRY && writable) {
        lock = lathe__key_lock(cache, key);
        found = read_entry(cache, key, out); /* another process may have built it while we waited */
        if (found == FOUND_BROKEN)
            remove_broken(cache, key);
    }
    if (hit)
        *hit = found == FOUND_ENTRY;
    lathe_status status = LATHE_OK;
    if (found != FOUND_ENTRY) {
        status = build(user, out, err);
        if (status == LATHE_OK && writable)
            (void)lathe__cache_store(cache, key, out);
    }
    lathe__key_unlock(lock);
    return status;
}
