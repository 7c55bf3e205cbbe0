/*
 * file.c: bytes to a descriptor, and from one. In: an open file; out: an errno, 0 where all of it was written
 * or read. A limit on the size of files is an error like a full disk, not the signal that ends a process.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/base.h"

static int write_plain(int fd, const void *data, size_t size)
{
    const char *p = data;
    while (size > 0) {
        const ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

/* The system sends SIGXFSZ to the thread that writes. It is held back here, and taken away unless another one
   was waiting before, so that the program's own way with this signal stays what it was. */
int lathe__write_all(int fd, const void *data, size_t size)
{
    const struct timespec no_time = {0, 0};
    sigset_t limit;
    sigset_t before;
    sigset_t waiting;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigemptyset(&waiting);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    (void)sigpending(&waiting);
    const int error = write_plain(fd, data, size);
    if (error == EFBIG && sigismember(&waiting, SIGXFSZ) == 0)
        (void)sigtimedwait(&limit, NULL, &no_time);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int lathe__read_all(int fd, void *data, size_t size)
{
    char *p = data;
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(fd, p + done, size - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENODATA;
        done += (size_t)n;
    }
    return 0;
}
