/*
 * fail_alloc.c: loaded in front of libc (LD_PRELOAD), makes one allocation of a process fail: the one with
 * the number FAIL_AT, from 1. At the end FAIL_COUNT, a file, has how many there were. glibc only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static long wanted = -1; /* -1: not yet read */
static long count;

static int fails(void)
{
    if (wanted < 0 || __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) != wanted)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *block, size_t size)
{
    return fails() ? NULL : __libc_realloc(block, size);
}

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_AT");
    wanted = at ? strtol(at, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAIL_COUNT");
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    char text[32];
    const int size = snprintf(text, sizeof text, "%ld\n", count);
    if (fd >= 0 && write(fd, text, (size_t)size) == size)
        close(fd);
}
