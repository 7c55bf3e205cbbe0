/*
 * fail_alloc.c: loaded in front of libc (LD_PRELOAD), makes one allocation of a process fail: the one with
 * the number FAIL_AT, from 1. At the end FAIL_COUNT, a file, has how many there were and how many blocks have
 * not been freed. glibc only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static long wanted = -1; /* -1: not yet read */
static long count;
static long held; /* blocks */

static int fails(void)
{
    if (wanted < 0 || __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) != wanted)
        return 0;
    errno = ENOMEM;
    return 1;
}

static void *taken(void *block)
{
    if (block)
        __atomic_add_fetch(&held, 1, __ATOMIC_RELAXED);
    return block;
}

void *malloc(size_t size)
{
    return fails() ? NULL : taken(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : taken(__libc_calloc(n, size));
}

void *realloc(void *block, size_t size)
{
    if (fails())
        return NULL;
    void *moved = __libc_realloc(block, size);
    if (block && size == 0)
        __atomic_sub_fetch(&held, 1, __ATOMIC_RELAXED);
    return block ? moved : taken(moved);
}

void free(void *block)
{
    if (block)
        __atomic_sub_fetch(&held, 1, __ATOMIC_RELAXED);
    __libc_free(block);
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
    char text[64];
    fclose(stdout); /* its buffer is nobody's leak */
    const int size = snprintf(text, sizeof text, "%ld %ld\n", count, held);
    if (fd >= 0 && write(fd, text, (size_t)size) == size)
        close(fd);
}
