/*
 * lock.c: one builder for a key, among all processes that share a cache. In: an open cache and a key; out: a
 * descriptor that holds the lock, -1 without one. Locks save work and nothing rests on them. A lock belongs
 * to the open file, so threads exclude each other too. It should end with its holder, but a child that the
 * holder has forked shares the open file and keeps it: so the length of a lock says which process took it,
 * and a lock whose process is gone is passed by.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/cache/cache.h"

/* The file `lock` is never written; a lock covers 1 + WHERE * 2^PID_BITS + PID bytes behind the key's place.
   Two keys share a place once in 2^26 times, which costs a wait. */
enum { POLL_US = 2000, PID_BITS = 22, WHERE_BITS = 14, PLACE_BITS = 37, PLACES = KEY_BYTES / 4 };

struct self {
    uint64_t where; /* machine since its start, and space of process numbers; 0: not known */
    uint64_t pid;
};

static uint64_t find_where(void)
{
    unsigned char digest[KEY_BYTES];
    char boot[64];
    struct stat space;
    struct sha256 s;
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0 || stat("/proc/self/ns/pid", &space) != 0)
        return 0;
    const uint64_t number = (uint64_t)space.st_ino;
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, boot, (size_t)n);
    lathe__sha256_add(&s, &number, sizeof number);
    lathe__sha256_finish(&s, digest);
    return lathe__load_le(digest, 8) & ((UINT64_C(1) << WHERE_BITS) - 1);
}

/* Is the process that took a lock of this length still there? What cannot be known counts as there. */
static bool lives(const struct self *self, off_t length)
{
    const uint64_t code = (uint64_t)length - 1;
    const pid_t pid = (pid_t)(code & ((UINT64_C(1) << PID_BITS) - 1));
    if (pid == 0 || self->where == 0 || code >> PID_BITS != self->where)
        return true;
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return false;
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (ended.fd < 0)
        return true;
    const bool gone = poll(&ended, 1, 0) == 1; /* dead, and its parent has not asked yet */
    close(ended.fd);
    return !gone;
}

enum outcome { TAKEN, ABANDONED, GIVEN_UP };

static enum outcome take(int fd, off_t place, const struct self *self, long *left_us)
{
    const struct timespec pause = {0, POLL_US * 1000L};
    const struct flock wanted = {.l_type = F_WRLCK,
                                 .l_whence = SEEK_SET,
                                 .l_start = place,
                                 .l_len = (off_t)(1 + (self->where << PID_BITS) + self->pid)};
    for (;; *left_us -= POLL_US) {
        struct flock lock = wanted;
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
            return TAKEN;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return GIVEN_UP;
        lock = wanted;
        if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && !lives(self, lock.l_len))
            return ABANDONED;
        if (*left_us <= 0)
            return GIVEN_UP;
        nanosleep(&pause, NULL);
    }
}

/* Those who pass a lock by meet at the key's next place, so that one of them builds. */
int lathe__key_lock(const struct cache *cache, const unsigned char key[KEY_BYTES])
{
    const struct self self = {.where = find_where(),
                              .pid = (uint64_t)getpid() & ((UINT64_C(1) << PID_BITS) - 1)};
    long left_us = 1000L * cache->lock_wait_ms;
    enum outcome outcome = ABANDONED;
    const int fd = openat(cache->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    for (int i = 0; i < PLACES && outcome == ABANDONED; i++)
        outcome = take(fd, (off_t)(lathe__load_le(key + 4 * i, 4) >> 6) << PLACE_BITS, &self, &left_us);
    if (outcome == TAKEN)
        return fd;
    close(fd);
    return -1;
}

/* Explicitly: a child forked meanwhile shares the open file, and with it the lock. */
void lathe__key_unlock(int fd)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (fd < 0)
        return;
    (void)fcntl(fd, F_OFD_SETLK, &lock);
    close(fd);
}
