/*
 * output.c: a file is written under another name beside it, and takes its own once it is whole: a full disk
 * or an error halfway leaves what was there. See output.h.
 */
#include "gen/tool/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

enum { SUFFIX_BYTES = 40 };

/* A file beside `path`, of the mode `like` has where that is given. NULL: none can be made there. */
static FILE *open_beside(struct output *out, const struct stat *like)
{
    const size_t size = strlen(out->path) + SUFFIX_BYTES;
    out->partial = malloc(size);
    if (!out->partial)
        return NULL;
    snprintf(out->partial, size, "%s.%ld.partial", out->path, (long)getpid());
    (void)unlink(out->partial); /* of a process that had this number, and died */
    const int fd = open(out->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 && (!like || fchmod(fd, like->st_mode & 0777) == 0) ? fdopen(fd, "wb") : NULL;
    if (file)
        return file;
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(out->partial);
    }
    free(out->partial);
    out->partial = NULL;
    return NULL;
}

bool output_open(struct output *out, const char *path)
{
    struct stat info;
    const bool there = stat(path, &info) == 0;
    const bool link = !there && lstat(path, &info) == 0; /* to nothing yet */
    *out = (struct output){.path = there ? realpath(path, NULL) : strdup(path), .is_new = !there};
    if (!out->path)
        return false;
    if (!link && (!there || (S_ISREG(info.st_mode) && access(path, W_OK) == 0)))
        out->file = open_beside(out, there ? &info : NULL);
    if (!out->file)
        out->file = fopen(path, "wbe");
    if (out->file)
        return true;
    const int reason = errno;
    free(out->path);
    errno = reason;
    return false;
}

bool output_close(struct output *out, bool good)
{
    int reason = good ? 0 : errno;
    if (fclose(out->file) != 0 && good)
        reason = errno;
    if (!reason && out->partial && rename(out->partial, out->path) != 0)
        reason = errno;
    if (reason && out->partial)
        (void)unlink(out->partial);
    else if (reason && out->is_new)
        (void)unlink(out->path);
    free(out->partial);
    free(out->path);
    *out = (struct output){0};
    errno = reason;
    return reason == 0;
}
