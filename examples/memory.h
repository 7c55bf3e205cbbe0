/*
 * memory.h: memory where the kernels of a context can see it: of the GPU through its driver, or the host's.
 * For the examples alone: programs that use the CUDA runtime or torch have all this already.
 */
#ifndef LATHE_EXAMPLES_MEMORY_H
#define LATHE_EXAMPLES_MEMORY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <lathe.h>

struct memory { /* NULL functions: host memory */
    int (*alloc)(uint64_t *pointer, size_t bytes);
    int (*free)(uint64_t pointer);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
};

static inline int memory_entry(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* For a context's lathe_ctx_device. 0: the driver lacks something. */
static inline int memory_open(struct memory *m, int ordinal)
{
    void *context = NULL;
    int (*retain)(void **context, int device) = NULL;
    int (*set_current)(void *context) = NULL;
    memset(m, 0, sizeof *m);
    if (ordinal == LATHE_DEVICE_HOST)
        return 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library && memory_entry(library, "cuMemAlloc_v2", &m->alloc) &&
           memory_entry(library, "cuMemFree_v2", &m->free) &&
           memory_entry(library, "cuMemcpyHtoD_v2", &m->to_device) &&
           memory_entry(library, "cuMemcpyDtoH_v2", &m->to_host) &&
           memory_entry(library, "cuDevicePrimaryCtxRetain", &retain) &&
           memory_entry(library, "cuCtxSetCurrent", &set_current) && retain(&context, ordinal) == 0 &&
           set_current(context) == 0;
}

static inline void *memory_allocate(const struct memory *m, size_t bytes)
{
    uint64_t device = 0;
    if (!m->alloc)
        return malloc(bytes ? bytes : 1);
    return m->alloc(&device, bytes) == 0 ? (void *)(uintptr_t)device : NULL;
}

static inline void memory_release(const struct memory *m, void *data)
{
    if (!m->free)
        free(data);
    else if (data)
        m->free((uint64_t)(uintptr_t)data);
}

static inline int memory_upload(const struct memory *m, void *to, const void *from, size_t bytes)
{
    if (m->to_device)
        return m->to_device((uint64_t)(uintptr_t)to, from, bytes) == 0;
    memcpy(to, from, bytes);
    return 1;
}

/* Waits for the kernels that were launched before. */
static inline int memory_download(const struct memory *m, void *to, const void *from, size_t bytes)
{
    if (m->to_host)
        return m->to_host(to, (uint64_t)(uintptr_t)from, bytes) == 0;
    memcpy(to, from, bytes);
    return 1;
}

#endif
