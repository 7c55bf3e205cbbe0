/*
 * budget.c: seconds that the processes of one run share for cases that have not passed before.
 *
 * In: how many there are. Out: whether another case runs. A case that has begun is never cut short, so a run
 * takes longer than its budget by one case of each process.
 */
#define _DEFAULT_SOURCE
#include "budget.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

static _Atomic int64_t *left; /* nanoseconds; NULL: no limit */
static int64_t started;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool budget_open(double seconds)
{
    void *shared = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    left = shared;
    atomic_store(left, (int64_t)(seconds * 1e9));
    return true;
}

bool budget_is_limited(void)
{
    return left != NULL;
}

bool budget_begin(void)
{
    started = now();
    return !left || atomic_load(left) > 0;
}

void budget_end(void)
{
    if (left)
        atomic_fetch_sub(left, now() - started);
}
