/*
 * cache_folders.c: folders that a cache cannot trust, write or fill: foreign owners, missing permissions,
 * read-only mode, a full disk, a limit on files. Nothing of that may fail a call.
 */
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "cache_call.h"

enum { NOBODY = 65534 };

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

/* A write that stops half-way, as on a full disk: the signal that goes with it does not end the process, and
   is gone afterwards. One that was waiting before stays. */
TEST(a_file_size_limit)
{
    const struct rlimit limit = {2000, 2000};
    struct cache cache;
    struct warnings w;
    sigset_t waiting;
    open_named(&cache, "c", &w);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fill_until_full(&cache, &w);
    CHECK_EQ(sigpending(&waiting), 0);
    CHECK_EQ(sigismember(&waiting, SIGXFSZ), 0);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &waiting), 0);
    CHECK_EQ(sigismember(&waiting, SIGXFSZ), 0);
    lathe__cache_close(&cache);
}

/* ---- what a warning says --------------------------------------------------------------------------- */

static void long_path(char out[2 * PATH_BYTES], size_t size)
{
    const int n = snprintf(out, 2 * PATH_BYTES, "%s", check_temp_dir());
    for (size_t i = (size_t)n; i < size; i++)
        out[i] = i % 200 == (size_t)n % 200 ? '/' : 'x';
    out[size] = '\0';
}

TEST(a_path_that_is_too_long_is_refused_and_none_is_made_of_it)
{
    static const char *const names[] = {"LATHE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    static struct environment e;
    char path[2 * PATH_BYTES];
    struct cache cache;
    struct warnings w = {0};
    long_path(path, PATH_BYTES + 300);
    for (int i = 0; i < 3; i++) {
        w.n = 0;
        CHECK_EQ(setenv(names[i], path, 1), 0);
        lathe__environment_read(&e);
        lathe__cache_open(&cache, e.cache_dir, 0, false, (struct reporter){count_warning, &w});
        CHECK_EQ(cache.dir_fd, -1);
        CHECK_EQ(w.n, 1);
        CHECK_HAS(w.last, "at most 1023 bytes");
        CHECK_EQ(unsetenv(names[i]), 0);
    }
    path[check_temp_dir() ? strlen(check_temp_dir()) + 200 : 0] = '\0';
    CHECK(access(path, F_OK) != 0);
    long_path(path, PATH_BYTES - 1); /* the longest there may be */
    CHECK_EQ(setenv("LATHE_CACHE_DIR", path, 1), 0);
    lathe__environment_read(&e);
    CHECK_STR(e.cache_dir, path);
    lathe__cache_open(&cache, e.cache_dir, 0, false, (struct reporter){count_warning, &w});
    CHECK(cache.dir_fd >= 0);
    lathe__cache_close(&cache);
    long_path(path, PATH_BYTES);
    CHECK_EQ(setenv("LATHE_SYSTEM_CACHE_DIR", path, 1), 0);
    lathe__environment_read(&e);
    lathe__cache_open_system(&cache, e.system_cache_dir, true, (struct reporter){count_warning, &w});
    CHECK_EQ(cache.dir_fd, -1);
    CHECK_HAS(w.last, "at most 1023 bytes");
}

/* Only who makes kernels is told what it costs. */
TEST(a_warning_says_what_it_costs)
{
    struct cache cache;
    struct warnings w = {0};
    const struct reporter report = {count_warning, &w};
    lathe__cache_open(&cache, "/proc/nowhere", 0, false, report);
    CHECK_HAS(w.last, "kernels are compiled again in every process");
    lathe__cache_open_tool(&cache, "/proc/nowhere", false, report);
    CHECK_STR(w.last, "kernel cache /proc/nowhere: it cannot be opened: No such file or directory");
    lathe__cache_open_shared(&cache, "/proc/nowhere", report);
    CHECK_STR(w.last, "kernel cache /proc/nowhere: it cannot be opened: No such file or directory");
    lathe__cache_open_system(&cache, "/proc/nowhere", true, report);
    CHECK_STR(
        w.last,
        "kernel cache /proc/nowhere: it cannot be opened: No such file or directory; it is not searched");
    CHECK_EQ(w.n, 4);
}
