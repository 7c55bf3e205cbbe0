/*
 * cache.c: the cache on disk under what can happen to it: races of processes, writers killed half-way, cut
 * and flipped bytes, the byte budget.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "cache_call.h"

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

/* A process that takes a minute for a build; it holds the lock when this returns. */
static pid_t start_slow_build(const struct build *b)
{
    struct cache cache;
    struct warnings w;
    struct build slow = *b;
    slow.pause_ms = 60000;
    const pid_t child = fork();
    if (child == 0) {
        open_named(&cache, "c", &w);
        get(&cache, &slow);
        _exit(0);
    }
    while (calls(b) == 0)
        usleep(1000);
    return child;
}

TEST(a_lock_dies_with_its_holder)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(3);
    const pid_t child = start_slow_build(&b);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    open_named(&cache, "c", &w);
    cache.lock_wait_ms = 60000; /* waiting that long would be a time-out of this test */
    CHECK(!get(&cache, &b));
    CHECK_EQ(calls(&b), 2);
    lathe__cache_close(&cache);
}

/* A build that forks a child, which goes on for a minute, and takes as long itself. */
static lathe_status forking_build(void *user, struct cache_blob *out, lathe_error *err)
{
    struct build slow = *(const struct build *)user;
    if (fork() == 0) {
        sleep(60); /* or until the test ends, whose processes end with it */
        _exit(0);
    }
    slow.pause_ms = 60000;
    return counting_build(&slow, out, err);
}

/* In a process that dies while a child of its own, which shares its open files, lives on. */
static pid_t start_forking_build(const struct build *b)
{
    struct cache cache;
    struct warnings w;
    struct cache_blob blob;
    unsigned char key[KEY_BYTES];
    const pid_t child = fork();
    if (child == 0) {
        open_named(&cache, "race", &w);
        make_key(b->seed, key);
        (void)lathe__cache_get(&cache, key, forking_build, (void *)(uintptr_t)b, &blob, NULL, NULL);
        _exit(0);
    }
    while (calls(b) == 0)
        usleep(1000);
    kill(child, SIGKILL);
    return child;
}

static void race_behind_a_dead_holder(bool reaped)
{
    struct build b = new_build(7);
    struct timespec begin;
    struct timespec end;
    const pid_t holder = start_forking_build(&b);
    if (reaped)
        waitpid(holder, NULL, 0);
    b.pause_ms = 300;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    race(4, true, &b);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(end.tv_sec - begin.tv_sec < 20); /* and not the minute that a lock is waited for */
    CHECK_EQ(calls(&b), 2);                /* those who wait meet again: one of them builds */
    if (!reaped)
        waitpid(holder, NULL, 0);
}

TEST(a_lock_dies_with_its_holder_though_a_child_lives)
{
    race_behind_a_dead_holder(true);
}

TEST(a_lock_dies_with_its_holder_though_nobody_asked_how_it_ended)
{
    race_behind_a_dead_holder(false);
}

TEST(the_wait_for_a_lock_is_bounded)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(3);
    const pid_t child = start_slow_build(&b);
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

/* The text for people is worth nothing to the entry: where it cannot be written, the entry is there. */
TEST(an_entry_does_without_its_text)
{
    struct cache cache;
    struct warnings w;
    struct build b = new_build(1);
    char path[2 * PATH_BYTES];
    open_named(&cache, "c", &w);
    entry_path(&cache, 1, "cu", path);
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK(!get(&cache, &b));
    CHECK(get(&cache, &b));
    CHECK_EQ(calls(&b), 1);
    CHECK_EQ(temporaries(&cache), 0);
    CHECK_EQ(w.n, 0);
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

static void put_file(const struct cache *cache, const char *name, const char *text)
{
    const int fd = openat(cache->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

TEST(clear_removes_ours_alone)
{
    static const char *const ours[] = {"compiler", "nvrtc-13.0-1234", ".tmp-2-0123456789abcdef",
                                       "tuned-0123456789abcdef0123456789abcdef01234567"};
    static const char *const foreign[] = {"notes.txt",
                                          "nvrtc-",
                                          "nvrtc-13.0.tar.gz",
                                          "tuned-piano.txt",
                                          "tuned-0123456789abcdef0123456789abcdef012345678",
                                          ".tmp-mine",
                                          ".tmp-2-0123456789abcde",
                                          ".tmp-2-0123456789abcdef.txt",
                                          "compiler.txt",
                                          "lock.txt"};
    struct cache cache;
    struct warnings w;
    struct build b = new_build(0);
    struct cache_list list;
    int removed = 0;
    open_named(&cache, "c", &w);
    for (b.seed = 0; b.seed < 4; b.seed++)
        get(&cache, &b);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        put_file(&cache, ours[i], "lathe 1");
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        put_file(&cache, foreign[i], "gcc 12");
    CHECK_EQ(lathe__cache_clear(&cache, &removed, NULL), LATHE_OK);
    CHECK_EQ(removed, 4);
    CHECK_EQ(lathe__cache_list(&cache, &list, NULL), LATHE_OK);
    CHECK_EQ(list.n, 0);
    CHECK_EQ(list.n_temporary, 0);
    lathe__cache_list_free(&list);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        CHECK(faccessat(cache.dir_fd, ours[i], F_OK, 0) != 0);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        CHECK_EQ(faccessat(cache.dir_fd, foreign[i], F_OK, 0), 0);
    put_file(&cache, "compiler", "gcc 12"); /* ours by its name, not by what it says */
    CHECK_EQ(lathe__cache_clear(&cache, &removed, NULL), LATHE_OK);
    CHECK_EQ(faccessat(cache.dir_fd, "compiler", F_OK, 0), 0);
    b.seed = 0;
    CHECK(!get(&cache, &b));
    CHECK(get(&cache, &b));
    lathe__cache_close(&cache);
}
