/*
 * cache_call.h: a cache in the test's folder, and a compiler that is replaced by a function which counts its
 * calls in a shared file, for cache.c and cache_folders.c.
 */
#ifndef LATHE_TEST_CACHE_CALL_H
#define LATHE_TEST_CACHE_CALL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "runtime/rt.h"

enum { IMAGE_BYTES = 5000 };

struct warnings {
    int n;
    char last[2048];
};

static inline void count_warning(void *user, int level, const char *text)
{
    struct warnings *w = user;
    if (level != 0)
        return;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", text);
}

static inline const char *path_in_temp(const char *name, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/%s", check_temp_dir(), name);
    return out;
}

static inline void open_named(struct cache *cache, const char *name, struct warnings *w)
{
    char path[PATH_BYTES];
    memset(w, 0, sizeof *w);
    lathe__cache_open(cache, path_in_temp(name, path), 0, false, (struct reporter){count_warning, w});
}

static inline void make_key(int number, unsigned char key[KEY_BYTES])
{
    struct sha256 s;
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, &number, sizeof number);
    lathe__sha256_finish(&s, key);
}

struct build {
    char log[PATH_BYTES]; /* one byte is appended for each call */
    int seed;
    int pause_ms;
};

static inline void fill_blob(struct cache_blob *blob, int seed)
{
    memset(blob, 0, sizeof *blob);
    blob->image = malloc(IMAGE_BYTES);
    blob->log = strdup("ptxas info: Used 32 registers");
    blob->readable = strdup("// readable\n");
    CHECK(blob->image && blob->log && blob->readable);
    for (int i = 0; i < IMAGE_BYTES; i++)
        blob->image[i] = (unsigned char)(i * 31 + seed);
    blob->image_size = IMAGE_BYTES;
    blob->log_size = strlen(blob->log);
    blob->readable_size = strlen(blob->readable);
    snprintf(blob->label, sizeof blob->label, "kernel_%d", seed);
}

static inline lathe_status counting_build(void *user, struct cache_blob *out, lathe_error *err)
{
    const struct build *b = user;
    const struct timespec pause = {b->pause_ms / 1000, b->pause_ms % 1000 * 1000000L};
    const int fd = open(b->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)err;
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    nanosleep(&pause, NULL);
    fill_blob(out, b->seed);
    return LATHE_OK;
}

static inline struct build new_build(int seed)
{
    struct build b = {.seed = seed};
    path_in_temp("calls", b.log);
    return b;
}

static inline int calls(const struct build *b)
{
    struct stat status;
    return stat(b->log, &status) == 0 ? (int)status.st_size : 0;
}

static inline void check_blob(const struct cache_blob *blob, int seed)
{
    struct cache_blob good;
    fill_blob(&good, seed);
    CHECK_EQ(blob->image_size, good.image_size);
    CHECK(memcmp(blob->image, good.image, good.image_size) == 0);
    CHECK_STR(blob->log, good.log);
    CHECK_STR(blob->label, good.label);
    lathe__blob_free(&good);
}

/* Get `seed`'s blob, check it, say whether it came from the disk. */
static inline bool get(struct cache *cache, struct build *b)
{
    unsigned char key[KEY_BYTES];
    struct cache_blob blob;
    lathe_error err;
    bool hit = false;
    make_key(b->seed, key);
    CHECK_EQ(lathe__cache_get(cache, key, counting_build, b, &blob, &hit, &err), LATHE_OK);
    check_blob(&blob, b->seed);
    lathe__blob_free(&blob);
    return hit;
}

static inline void entry_path(const struct cache *cache, int seed, const char *suffix,
                              char out[2 * PATH_BYTES])
{
    unsigned char key[KEY_BYTES];
    char text[KEY_TEXT_BYTES];
    make_key(seed, key);
    lathe__key_text(key, text);
    snprintf(out, 2 * PATH_BYTES, "%s/%s.%s", cache->path, text, suffix);
}

static inline int temporaries(struct cache *cache)
{
    struct cache_list list;
    CHECK_EQ(lathe__cache_list(cache, &list, NULL), LATHE_OK);
    const int n = list.n_temporary;
    lathe__cache_list_free(&list);
    return n;
}

static inline void expect_exit(pid_t child, int code)
{
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), code);
}

static inline void flip(const char *path, off_t at, unsigned char bits)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQ(pread(fd, &byte, 1, at), 1);
    byte ^= bits;
    CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

#endif
