/*
 * folder.c: the folder that a library is made in: beside the final place, or inside where that is there
 * already. In: a library that names the final place; out: a folder with a folder `build`, which nobody is
 * left with. What a maker who was killed left behind is removed by the next one for the same place: a maker
 * holds a lock on its folder as long as it lives.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/aot/make.h"

#define MARK ".lathe-aot-"
enum { RANDOM_CHARS = 6, YOUNG_SECONDS = 60, TRIES = 200 };

/* "-o DIR: cannot be written: ...", by errno. */
static lathe_status folder_failure(const char *folder, lathe_error *err)
{
    return lathe__fail(err, LATHE_ARG, "-o %.900s: cannot be written: %s", folder, strerror(errno));
}

/* Another thread may abandon the library meanwhile. */
static void enter(const struct aot_library *library)
{
    if (library->at_lock)
        pthread_mutex_lock(library->at_lock);
}

static void leave(const struct aot_library *library)
{
    if (library->at_lock)
        pthread_mutex_unlock(library->at_lock);
}

/* A folder of plain files. False: it is still there. */
static bool remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)) != NULL)
        unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    return rmdir(path) == 0 || errno == ENOENT;
}

/* ---- what the dead left -------------------------------------------------------------------------- */

/* Nobody holds the lock of a folder whose maker is gone. One that was made a moment ago may have none yet. */
static void remove_if_dead(const char *path)
{
    char build[AOT_PLACE_BYTES + 32];
    struct stat status;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        time(NULL) - status.st_mtim.tv_sec > YOUNG_SECONDS && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        snprintf(build, sizeof build, "%s/build", path);
        (void)remove_folder(build);
        (void)remove_folder(path);
    }
    close(fd);
}

/* Folders of `parent` that are called `before`, the mark and six characters. */
static void sweep(const char *parent, const char *before)
{
    char path[AOT_PLACE_BYTES];
    const struct dirent *d;
    const size_t size = strlen(before);
    DIR *dir = opendir(parent);
    while (dir && (d = readdir(dir)) != NULL) {
        const char *rest = d->d_name + size;
        if (strncmp(d->d_name, before, size) != 0 || strncmp(rest, MARK, strlen(MARK)) != 0 ||
            strlen(rest) != strlen(MARK) + RANDOM_CHARS)
            continue;
        const int n = snprintf(path, sizeof path, "%s/%s", parent, d->d_name);
        if (n > 0 && (size_t)n < sizeof path)
            remove_if_dead(path);
    }
    if (dir)
        closedir(dir);
}

static void sweep_around(const struct aot_folder *at)
{
    char parent[PATH_BYTES];
    snprintf(parent, sizeof parent, "%s", at->target);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = '\0';
    sweep(!slash ? "." : slash == parent ? "/" : parent, slash ? slash + 1 : at->target);
    if (at->exists)
        sweep(at->target, "");
}

/* ---- the folder ---------------------------------------------------------------------------------- */

static lathe_status find_target(struct aot_library *library, lathe_error *err)
{
    struct aot_folder *at = &library->at;
    struct stat status;
    char *path = at->target;
    size_t n = (size_t)snprintf(path, sizeof at->target, "%s", library->folder);
    if (n == 0 || n >= sizeof at->target)
        return lathe__fail(err, LATHE_ARG, "-o: expected a path of 1 to %d bytes, given %zu", PATH_BYTES - 1,
                           n);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    at->exists = stat(path, &status) == 0;
    if (at->exists && !S_ISDIR(status.st_mode))
        return lathe__fail(err, LATHE_ARG, "-o %.900s: expected a folder, and it is a file", path);
    return LATHE_OK;
}

/* A folder that is there is filled; one that is not appears whole, by one rename. */
static lathe_status make_folder(struct aot_folder *at, lathe_error *err)
{
    snprintf(at->path, sizeof at->path, at->exists ? "%s/" MARK "XXXXXX" : "%s" MARK "XXXXXX", at->target);
    if (!mkdtemp(at->path)) {
        at->path[0] = '\0';
        return folder_failure(at->target, err);
    }
    at->lock = open(at->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at->lock >= 0)
        (void)flock(at->lock, LOCK_EX | LOCK_NB); /* without it somebody may sweep it */
    snprintf(at->build, sizeof at->build, "%s/build", at->path);
    if (chmod(at->path, 0755) != 0 || mkdir(at->build, 0755) != 0)
        return folder_failure(at->target, err);
    return LATHE_OK;
}

lathe_status lathe__aot_folder_open(struct aot_library *library, lathe_error *err)
{
    memset(&library->at, 0, sizeof library->at);
    library->at.lock = -1;
    TRY(find_target(library, err));
    sweep_around(&library->at);
    enter(library);
    const lathe_status status = make_folder(&library->at, err);
    leave(library);
    return status;
}

static lathe_status publish(struct aot_folder *at, const char (*name)[64], int n, lathe_error *err)
{
    char from[AOT_PLACE_BYTES + 64];
    char to[AOT_PLACE_BYTES + 64];
    (void)remove_folder(at->build);
    at->build[0] = '\0';
    if (!at->exists && rename(at->path, at->target) == 0) {
        at->path[0] = '\0';
        return LATHE_OK;
    }
    if (!at->exists && errno != ENOTEMPTY && errno != EEXIST) /* not another library that was faster */
        return folder_failure(at->target, err);
    for (int i = 0; i < n; i++) {
        snprintf(from, sizeof from, "%s/%s", at->path, name[i]);
        snprintf(to, sizeof to, "%s/%s", at->target, name[i]);
        if (rename(from, to) != 0)
            return folder_failure(to, err);
    }
    return LATHE_OK;
}

lathe_status lathe__aot_folder_publish(struct aot_library *library, const char (*name)[64], int n,
                                       lathe_error *err)
{
    enter(library);
    const lathe_status status = atomic_load(&library->abandoned)
                                    ? lathe__fail(err, LATHE_CACHE, "the library was abandoned")
                                    : publish(&library->at, name, n, err);
    leave(library);
    return status;
}

void lathe__aot_folder_close(struct aot_library *library)
{
    struct aot_folder *at = &library->at;
    enter(library);
    if (at->build[0])
        (void)remove_folder(at->build);
    if (at->path[0])
        (void)remove_folder(at->path);
    at->build[0] = at->path[0] = '\0';
    if (at->lock >= 0)
        close(at->lock);
    at->lock = -1;
    leave(library);
}

/* The maker may be about to write one more file, and the C compiler too, which is asked to stop: so more than
   once. */
void lathe__aot_abandon(struct aot_library *library)
{
    const struct timespec pause = {0, 5000000};
    atomic_store(&library->abandoned, true);
    const int child = atomic_load(&library->child);
    if (child > 0)
        (void)kill(child, SIGTERM);
    enter(library);
    bool gone = !library->at.path[0];
    for (int i = 0; i < TRIES && !gone; i++) {
        const bool built = !library->at.build[0] || remove_folder(library->at.build);
        gone = built && remove_folder(library->at.path);
        if (!gone)
            nanosleep(&pause, NULL);
    }
    leave(library);
}
