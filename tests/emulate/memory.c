/*
 * memory.c: memory of kernels: blocks of bytes whose end is guarded by pages that cannot be touched, all in
 * one range of addresses, of which the core keeps who has written what. The caller closes what it opened.
 */
#include "harness.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char *range; /* NULL: not yet */
static size_t used;          /* addresses come again when no block is open */
static int open_blocks;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool reserve(void)
{
    void *p = range ? range
                    : mmap(NULL, MEMORY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range = p == MAP_FAILED ? NULL : p;
    return range != NULL;
}

const unsigned char *memory_range(void)
{
    return reserve() ? range : NULL;
}

bool block_open(struct block *b, size_t bytes, size_t alignment)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inside = round_up(bytes + alignment, page);
    b->bytes = bytes;
    b->page_bytes = inside + 2 * page;
    b->pages = NULL;
    if (!reserve() || b->page_bytes > MEMORY_BYTES - used)
        return false;
    b->pages = range + used;
    used += b->page_bytes;
    open_blocks++;
    if (mprotect(b->pages + page, inside, PROT_READ | PROT_WRITE) != 0)
        return false;
    b->data = b->pages + page + inside - round_up(bytes, alignment);
    memset(b->pages + page, POISON, inside);
    return true;
}

void block_wipe(struct block *b)
{
    memset(b->data, POISON, b->bytes);
}

void block_close(struct block *b)
{
    if (b->pages) { /* as they were reserved */
        (void)mmap(b->pages, b->page_bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        used = --open_blocks > 0 ? used : 0;
    }
    memset(b, 0, sizeof *b);
}
