/*
 * kernel.c: how long a kernel lives. In: what it is of; out: a kernel that holds its spec, until the last
 * reference is dropped. Its code is the context's.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/jit/jit.h"

struct lathe_kernel *lathe__kernel_new(struct lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                                       const struct problem *problem)
{
    struct lathe_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return NULL;
    atomic_init(&kernel->references, 1);
    kernel->ctx = ctx;
    kernel->spec = (struct lathe_spec *)(uintptr_t)spec; /* immutable but for its count */
    atomic_fetch_add(&kernel->spec->references, 1);
    kernel->pass = pass;
    kernel->sig = &spec->sig[pass];
    kernel->built = *problem;
    return kernel;
}

void lathe__kernel_drop(void *value)
{
    struct lathe_kernel *kernel = value;
    if (!kernel || atomic_fetch_sub(&kernel->references, 1) != 1)
        return;
    source_free(kernel->source);
    free(kernel->source);
    free(kernel->plan);
    free(kernel->info);
    lathe__spec_release(kernel->spec);
    free(kernel);
}

const char *lathe_kernel_info(const lathe_kernel *kernel)
{
    return kernel ? kernel->info : "";
}

const struct source *lathe__kernel_source(const lathe_kernel *kernel)
{
    return kernel->source;
}
