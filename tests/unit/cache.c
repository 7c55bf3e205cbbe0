/*
 * cache.c: the cache on disk under everything that can happen to it: races of processes, writers killed
 * half-way, cut and flipped bytes, foreign owners, folders that cannot be trusted, written or filled, the
 * byte budget. The compiler is replaced by a function that counts its calls in a shared file.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "rt.h"

enum { IMAGE_BYTES = 5000, NOBODY = 65534 };

/* ---- a cache, a counting compiler ----------------------------------------------------------------- */

struct warnings {
    int n;
    char last[1024];
};

static void count_warning(void *user, int level, const char *text)
{
    struct warnings *w = user;
    if (level != 0)
        return;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", text);
}

static const char *path_in_temp(const char *name, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/%s", check_temp_dir(), name);
    return out;
}

static void open_named(struct cache *cache, const char *name, struct warnings *w)
{
    char path[PATH_BYTES];
    memset(w, 0, sizeof *w);
    lathe__cache_open(cache, path_in_temp(name, path), 0, false, (struct reporter){count_warning, w});
}

static void make_key(int number, unsigned char key[KEY_BYTES])
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

static void fill_blob(struct cache_blob *blob, int seed)
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

static lathe_status counting_build(void *user, struct cache_blob *out, lathe_error *err)
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

static struct build new_build(int seed)
{
    struct build b = {.seed = seed};
    path_in_temp("calls", b.log);
    return b;
}

static int calls(const struct build *b)
{
    struct stat status;
    return stat(b->log, &status) == 0 ? (int)status.st_size : 0;
}

static void check_blob(const struct cache_blob *blob, int seed)
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
static bool get(struct cache *cache, struct build *b)
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

static void entry_path(const struct cache *cache, int seed, const char *suffix, char out[2 * PATH_BYTES])
{
    unsigned char key[KEY_BYTES];
    char text[KEY_TEXT_BYTES];
    make_key(seed, key);
    lathe__key_text(key, text);
    snprintf(out, 2 * PATH_BYTES, "%s/%s.%s", cache->path, text, suffix);
}

static int temporaries(struct cache *cache)
{
    struct cache_list list;
    CHECK_EQ(lathe__cache_list(cache, &list, NULL), LATHE_OK);
    const int n = list.n_temporary;
    lathe__cache_list_free(&list);
    return n;
}

static void expect_exit(pid_t child, int code)
{
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), code);
}

/* ---- plain use ------------------------------------------------------------------------------------ */

TEST(second_time_is_a_hit)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(1);
    struct stat status;
    char path[2 * PATH_BYTES];
    open_named(&cache, "a/b/c", &w);
    CHECK(!get(&cache, &b));
    CHECK(get(&cache, &b));
    CHECK_EQ(calls(&b), 1);
    CHECK_EQ(stat(cache.path, &status), 0);
    CHECK_EQ(status.st_mode & 0777, 0700);
    entry_path(&cache, 1, "cu", path);
    CHECK_EQ(stat(path, &status), 0);
    CHECK_EQ(status.st_size, (off_t)strlen("// readable\n"));
    CHECK_EQ(temporaries(&cache), 0);
    lathe__cache_close(&cache);
    open_named(&cache, "a/b/c", &w); /* as another process would */
    CHECK(get(&cache, &b));
    CHECK_EQ(w.n, 0);
    lathe__cache_close(&cache);
}

static lathe_status failing_build(void *user, struct cache_blob *out, lathe_error *err)
{
    (void)user;
    (void)out;
    return lathe__fail(err, LATHE_COMPILE, "no");
}

TEST(a_failed_build_leaves_nothing)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(1);
    unsigned char key[KEY_BYTES];
    struct cache_blob blob;
    lathe_error err;
    open_named(&cache, "c", &w);
    make_key(1, key);
    CHECK_EQ(lathe__cache_get(&cache, key, failing_build, NULL, &blob, NULL, &err), LATHE_COMPILE);
    CHECK_STR(err.text, "no");
    CHECK_EQ(temporaries(&cache), 0);
    CHECK(!get(&cache, &b)); /* and the lock is free */
    lathe__cache_close(&cache);
}

TEST(memory_only)
{
    struct cache cache;
    struct build b = new_build(1);
    struct warnings w = {0};
    lathe__cache_open(&cache, "", 0, false, (struct reporter){count_warning, &w});
    CHECK_EQ(cache.dir_fd, -1);
    CHECK(!get(&cache, &b));
    CHECK(!get(&cache, &b));
    CHECK_EQ(calls(&b), 2);
    CHECK_EQ(w.n, 0);
}

/* ---- processes ------------------------------------------------------------------------------------ */

static void race(int processes, bool locks, struct build *b)
{
    pid_t child[16];
    int gate[2];
    char byte;
    CHECK_EQ(pipe(gate), 0);
    for (int i = 0; i < processes; i++) {
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i] > 0)
            continue;
        struct cache cache;
        struct warnings w;
        close(gate[1]);
        open_named(&cache, "race", &w);
        if (!locks)
            cache.lock_wait_ms = 0;
        CHECK_EQ(read(gate[0], &byte, 1), 0); /* all start when the parent closes its end */
        get(&cache, b);
        CHECK_EQ(w.n, 0);
        _exit(0);
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < processes; i++)
        expect_exit(child[i], 0);
}

TEST(eight_processes_compile_once)
{
    struct build b = new_build(7);
    b.pause_ms = 300;
    race(8, true, &b);
    CHECK_EQ(calls(&b), 1);
}

TEST(without_waiting_for_locks_the_result_is_the_same)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(7);
    b.pause_ms = 50;
    race(8, false, &b);
    CHECK(calls(&b) >= 1);
    open_named(&cache, "race", &w);
    CHECK(get(&cache, &b));
    CHECK_EQ(temporaries(&cache), 0);
    lathe__cache_close(&cache);
}

TEST(a_lock_dies_with_its_holder)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(3);
    struct build slow = b;
    slow.pause_ms = 60000;
    const pid_t child = fork();
    if (child == 0) {
        open_named(&cache, "c", &w);
        get(&cache, &slow);
        _exit(0);
    }
    while (calls(&b) == 0)
        usleep(1000); /* until it holds the lock and builds */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    open_named(&cache, "c", &w);
    cache.lock_wait_ms = 60000; /* waiting that long would be a time-out of this test */
    CHECK(!get(&cache, &b));
    CHECK_EQ(calls(&b), 2);
    lathe__cache_close(&cache);
}

TEST(the_wait_for_a_lock_is_bounded)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(3);
    struct build slow = b;
    slow.pause_ms = 60000;
    const pid_t child = fork();
    if (child == 0) {
        open_named(&cache, "c", &w);
        get(&cache, &slow);
        _exit(0);
    }
    while (calls(&b) == 0)
        usleep(1000);
    open_named(&cache, "c", &w);
    cache.lock_wait_ms = 100;
    CHECK(!get(&cache, &b));
    CHECK_EQ(calls(&b), 2);
    CHECK(get(&cache, &b));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    lathe__cache_close(&cache);
}

/* A writer in a loop, killed at random moments: a reader sees a whole entry or none. */
TEST(kill_9_while_writing)
{
    struct cache cache;
    struct warnings w;
    unsigned char key[KEY_BYTES];
    open_named(&cache, "c", &w);
    make_key(5, key);
    for (int round = 0; round < 40; round++) {
        struct cache_blob blob;
        const pid_t child = fork();
        if (child == 0) {
            fill_blob(&blob, 5);
            for (;;)
                lathe__cache_store(&cache, key, &blob);
        }
        usleep((useconds_t)(500 + 997 * (round % 20)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (!lathe__cache_read(&cache, key, &blob))
            continue;
        check_blob(&blob, 5);
        lathe__blob_free(&blob);
    }
    struct cache_list list;
    CHECK_EQ(lathe__cache_verify(&cache, &list, NULL), LATHE_OK);
    for (int i = 0; i < list.n; i++)
        CHECK(!list.item[i].broken);
    lathe__cache_list_free(&list);
    lathe__cache_close(&cache);
}

TEST(temporaries_of_the_dead_are_swept)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(1);
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    open_named(&cache, "c", &w);
    int fd = openat(cache.dir_fd, ".tmp-1-0123456789abcdef", O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(futimens(fd, old), 0);
    close(fd);
    fd = openat(cache.dir_fd, ".tmp-2-0123456789abcdef", O_WRONLY | O_CREAT, 0600); /* of one at work */
    CHECK(fd >= 0);
    close(fd);
    CHECK_EQ(temporaries(&cache), 2);
    get(&cache, &b);
    CHECK_EQ(temporaries(&cache), 1);
    lathe__cache_close(&cache);
}

/* ---- damage --------------------------------------------------------------------------------------- */

TEST(truncated_entries_are_rebuilt)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(2);
    struct stat status;
    char path[2 * PATH_BYTES];
    open_named(&cache, "c", &w);
    get(&cache, &b);
    entry_path(&cache, 2, "bin", path);
    CHECK_EQ(stat(path, &status), 0);
    const off_t whole = status.st_size;
    const off_t cut[] = {
        0, 1, 7, 100, CACHE_HEADER_BYTES - 1, CACHE_HEADER_BYTES, CACHE_HEADER_BYTES + 1, whole - 1};
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
        CHECK_EQ(truncate(path, cut[i]), 0);
        CHECK(!get(&cache, &b));
        CHECK_EQ(stat(path, &status), 0);
        CHECK_EQ(status.st_size, whole);
    }
    CHECK_EQ(truncate(path, whole + 1), 0); /* too long is wrong too */
    CHECK(!get(&cache, &b));
    CHECK(get(&cache, &b));
    CHECK_EQ(w.n, 0);
    lathe__cache_close(&cache);
}

static void flip(const char *path, off_t at, unsigned char bits)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQ(pread(fd, &byte, 1, at), 1);
    byte ^= bits;
    CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

TEST(flipped_bits_are_misses)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(2);
    struct cache_blob blob;
    unsigned char key[KEY_BYTES];
    struct stat status;
    char path[2 * PATH_BYTES];
    open_named(&cache, "c", &w);
    get(&cache, &b);
    make_key(2, key);
    entry_path(&cache, 2, "bin", path);
    CHECK_EQ(stat(path, &status), 0);
    for (off_t at = 0; at < status.st_size; at += at < CACHE_HEADER_BYTES ? 1 : 251) {
        const unsigned char bits = (unsigned char)(1u << (at % 8));
        flip(path, at, bits);
        CHECK(!lathe__cache_read(&cache, key, &blob));
        flip(path, at, bits);
    }
    CHECK(lathe__cache_read(&cache, key, &blob));
    lathe__blob_free(&blob);
    flip(path, 300, 4);
    CHECK(!get(&cache, &b));
    CHECK(get(&cache, &b));
    lathe__cache_close(&cache);
}

TEST(entries_of_another_key_or_kind_are_misses)
{
    struct cache cache;
    struct warnings w;
    struct build one = new_build(1);
    struct build two = new_build(2);
    char path[2 * PATH_BYTES];
    char other[2 * PATH_BYTES];
    open_named(&cache, "c", &w);
    get(&cache, &one);
    entry_path(&cache, 1, "bin", path);
    entry_path(&cache, 2, "bin", other);
    CHECK_EQ(rename(path, other), 0); /* whole, but it holds key 1 */
    CHECK(!get(&cache, &two));
    CHECK(get(&cache, &two));
    CHECK_EQ(symlink(other, path), 0); /* links are not followed */
    CHECK(!get(&cache, &one));
    CHECK(get(&cache, &one));
    unlink(path);
    CHECK_EQ(mkfifo(path, 0600), 0); /* must not block */
    CHECK(!get(&cache, &one));
    CHECK(get(&cache, &one));
    CHECK_EQ(w.n, 0);
    lathe__cache_close(&cache);
}

/* ---- trust ---------------------------------------------------------------------------------------- */

TEST(folders_that_others_can_write_are_refused)
{
    static const mode_t mode[] = {0720, 0702, 0777};
    char path[PATH_BYTES];
    CHECK_EQ(mkdir(path_in_temp("open", path), 0700), 0);
    for (size_t i = 0; i < sizeof mode / sizeof mode[0]; i++) {
        struct cache cache;
        struct warnings w;
        struct build b = new_build(1);
        CHECK_EQ(chmod(path, mode[i]), 0);
        open_named(&cache, "open", &w);
        CHECK_EQ(cache.dir_fd, -1);
        get(&cache, &b);
        get(&cache, &b);
        CHECK_EQ(w.n, 1); /* one, not one for a kernel */
        CHECK_HAS(w.last, "can write");
    }
}

TEST(foreign_folders_and_entries_are_refused)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(1);
    char path[PATH_BYTES];
    char entry[2 * PATH_BYTES];
    if (geteuid() != 0)
        SKIP("needs root, to give files away");
    open_named(&cache, "c", &w);
    get(&cache, &b);
    entry_path(&cache, 1, "bin", entry);
    CHECK_EQ(chown(entry, NOBODY, NOBODY), 0);
    CHECK(!get(&cache, &b)); /* somebody else's code */
    CHECK(get(&cache, &b));
    CHECK_EQ(chmod(entry, 0666), 0);
    CHECK(!get(&cache, &b)); /* or code that anyone could have changed */
    lathe__cache_close(&cache);
    CHECK_EQ(chown(path_in_temp("c", path), NOBODY, NOBODY), 0);
    open_named(&cache, "c", &w);
    CHECK_EQ(cache.dir_fd, -1);
    CHECK_EQ(w.n, 1);
    CHECK_HAS(w.last, "another user");
    get(&cache, &b);
    CHECK_EQ(w.n, 1);
}

/* ---- folders that cannot be written --------------------------------------------------------------- */

/* As root permissions are no obstacle: do this part as somebody else. */
static void become_nobody(void)
{
    if (geteuid() != 0)
        return;
    CHECK_EQ(chown(check_temp_dir(), NOBODY, NOBODY), 0);
    CHECK_EQ(setegid(NOBODY), 0);
    CHECK_EQ(seteuid(NOBODY), 0);
}

/* At the end: the leak checker cannot look at a process that gave its rights away. */
static void become_root(void)
{
    if (getuid() != 0)
        return;
    CHECK_EQ(seteuid(0), 0);
    CHECK_EQ(setegid(0), 0);
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
}

TEST(a_folder_without_write_permission)
{
    struct cache cache;
    struct warnings w;
    struct build one = new_build(1);
    struct build two = new_build(2);
    become_nobody();
    open_named(&cache, "c", &w);
    get(&cache, &one);
    CHECK_EQ(fchmod(cache.dir_fd, 0500), 0);
    CHECK(get(&cache, &one)); /* what is there is used */
    CHECK_EQ(w.n, 0);
    CHECK(!get(&cache, &two));
    CHECK(!get(&cache, &two));
    CHECK_EQ(w.n, 1);
    CHECK_HAS(w.last, "cannot be written");
    CHECK_EQ(fchmod(cache.dir_fd, 0700), 0);
    lathe__cache_close(&cache);
    become_root();
}

TEST(a_folder_that_cannot_be_made)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(1);
    char path[PATH_BYTES];
    become_nobody();
    CHECK_EQ(mkdir(path_in_temp("locked", path), 0500), 0);
    open_named(&cache, "locked/c", &w);
    CHECK_EQ(cache.dir_fd, -1);
    CHECK(!get(&cache, &b));
    CHECK_EQ(w.n, 1);
    const int fd = open(path_in_temp("file", path), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
    open_named(&cache, "file/c", &w); /* a file where a folder should be */
    CHECK_EQ(cache.dir_fd, -1);
    CHECK(!get(&cache, &b));
    CHECK_EQ(w.n, 1);
    become_root();
}

TEST(read_only_mode_writes_nothing)
{
    struct cache cache;
    struct warnings w;
    struct build one = new_build(1);
    struct build two = new_build(2);
    struct stat before;
    struct stat after;
    char path[PATH_BYTES];
    char entry[2 * PATH_BYTES];
    int removed;
    open_named(&cache, "c", &w);
    get(&cache, &one);
    lathe__cache_close(&cache);
    CHECK_EQ(stat(path_in_temp("c", path), &before), 0);
    lathe__cache_open(&cache, path, 1, true, (struct reporter){count_warning, &w});
    CHECK(get(&cache, &one));
    CHECK(!get(&cache, &two));
    CHECK(!get(&cache, &two));
    CHECK_EQ(lathe__cache_evict(&cache), 0);
    CHECK_EQ(lathe__cache_clear(&cache, &removed, NULL), LATHE_CACHE);
    entry_path(&cache, 1, "bin", entry);
    flip(entry, 300, 1);
    CHECK(!get(&cache, &one));
    CHECK_EQ(stat(path, &after), 0);
    CHECK_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec); /* no file came or went */
    CHECK_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    CHECK_EQ(access(entry, F_OK), 0);
    CHECK_EQ(w.n, 0);
    lathe__cache_close(&cache);
    lathe__cache_open(&cache, path_in_temp("missing", path), 0, true, (struct reporter){count_warning, &w});
    CHECK_EQ(cache.dir_fd, -1);
    CHECK(access(path, F_OK) != 0); /* and no folder is made */
}

static void fill_until_full(struct cache *cache, struct warnings *w)
{
    struct build b = new_build(0);
    for (b.seed = 0; b.seed < 40; b.seed++)
        CHECK(!get(cache, &b));
    CHECK_EQ(w->n, 1);
    CHECK_HAS(w->last, "cannot be written");
    CHECK_EQ(temporaries(cache), 0);
    struct cache_list list;
    CHECK_EQ(lathe__cache_verify(cache, &list, NULL), LATHE_OK);
    for (int i = 0; i < list.n; i++)
        CHECK(!list.item[i].broken);
    lathe__cache_list_free(&list);
}

TEST(a_full_disk)
{
    struct cache cache;
    struct warnings w;
    char path[PATH_BYTES];
    CHECK_EQ(mkdir(path_in_temp("disk", path), 0700), 0);
    if (mount("none", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0700") != 0)
        SKIP("cannot mount a small tmpfs (a_file_size_limit covers failing writes)");
    open_named(&cache, "disk", &w);
    CHECK(cache.dir_fd >= 0);
    fill_until_full(&cache, &w);
    lathe__cache_close(&cache);
    CHECK_EQ(umount(path), 0);
}

/* A write that stops half-way, as on a full disk. */
TEST(a_file_size_limit)
{
    const struct rlimit limit = {2000, 2000};
    struct cache cache;
    struct warnings w;
    signal(SIGXFSZ, SIG_IGN);
    open_named(&cache, "c", &w);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fill_until_full(&cache, &w);
    lathe__cache_close(&cache);
}

/* ---- upkeep --------------------------------------------------------------------------------------- */

static void set_age(const struct cache *cache, int seed, time_t seconds)
{
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    char path[2 * PATH_BYTES];
    entry_path(cache, seed, "bin", path);
    CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool stored(const struct cache *cache, int seed)
{
    char path[2 * PATH_BYTES];
    entry_path(cache, seed, "bin", path);
    return access(path, F_OK) == 0;
}

TEST(least_recently_used_go_first)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(0);
    struct cache_list list;
    open_named(&cache, "c", &w);
    for (b.seed = 0; b.seed < 6; b.seed++) {
        get(&cache, &b);
        set_age(&cache, b.seed, 1000 + b.seed);
    }
    b.seed = 1;
    CHECK(get(&cache, &b)); /* used: now the youngest */
    CHECK_EQ(lathe__cache_list(&cache, &list, NULL), LATHE_OK);
    CHECK_EQ(list.n, 6);
    CHECK_STR(list.item[0].label, "kernel_1");
    CHECK_STR(list.item[5].label, "kernel_0");
    const uint64_t one = list.item[0].bytes;
    CHECK_EQ(list.bytes, 6 * one);
    lathe__cache_list_free(&list);
    cache.budget = 3 * one;
    CHECK_EQ(lathe__cache_evict(&cache), 3);
    CHECK(stored(&cache, 1) && stored(&cache, 5) && stored(&cache, 4));
    CHECK(!stored(&cache, 0) && !stored(&cache, 2) && !stored(&cache, 3));
    b.seed = 9;
    get(&cache, &b); /* a store keeps to the budget by itself */
    CHECK(stored(&cache, 9) && stored(&cache, 1) && stored(&cache, 5) && !stored(&cache, 4));
    lathe__cache_close(&cache);
}

TEST(verify_finds_and_removes_the_broken)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(0);
    struct cache_list list;
    char path[2 * PATH_BYTES];
    int broken = 0;
    open_named(&cache, "c", &w);
    for (b.seed = 0; b.seed < 4; b.seed++)
        get(&cache, &b);
    set_age(&cache, 0, 1234);
    entry_path(&cache, 2, "bin", path);
    flip(path, 1000, 1);
    CHECK_EQ(lathe__cache_verify(&cache, &list, NULL), LATHE_OK);
    CHECK_EQ(list.n, 4);
    for (int i = 0; i < list.n; i++)
        broken += list.item[i].broken;
    CHECK_EQ(broken, 1);
    CHECK_STR(list.item[3].label, "kernel_0");
    lathe__cache_list_free(&list);
    CHECK(!stored(&cache, 2));
    CHECK_EQ(lathe__cache_verify(&cache, &list, NULL), LATHE_OK);
    CHECK_EQ(list.n, 3);
    CHECK_EQ(list.item[2].used, 1234); /* looking is not using */
    lathe__cache_list_free(&list);
    lathe__cache_close(&cache);
}

TEST(clear_removes_ours_alone)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(0);
    struct cache_list list;
    int removed = 0;
    open_named(&cache, "c", &w);
    for (b.seed = 0; b.seed < 4; b.seed++)
        get(&cache, &b);
    int fd = openat(cache.dir_fd, "notes.txt", O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
    fd = openat(cache.dir_fd, ".tmp-2-0123456789abcdef", O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
    CHECK_EQ(lathe__cache_clear(&cache, &removed, NULL), LATHE_OK);
    CHECK_EQ(removed, 4);
    CHECK_EQ(lathe__cache_list(&cache, &list, NULL), LATHE_OK);
    CHECK_EQ(list.n, 0);
    CHECK_EQ(list.n_temporary, 0);
    lathe__cache_list_free(&list);
    CHECK_EQ(faccessat(cache.dir_fd, "notes.txt", F_OK, 0), 0);
    b.seed = 0;
    CHECK(!get(&cache, &b));
    CHECK(get(&cache, &b));
    lathe__cache_close(&cache);
}
