/*
 * call.h: what the examples of generation share: a kernel with its arguments, made once and launched often,
 * and elements of tensors on the host.
 */
#ifndef LATHE_EXAMPLES_CALL_H
#define LATHE_EXAMPLES_CALL_H

#include <stdio.h>

#include "memory.h"

enum { CALL_ARGUMENTS = 12, CALL_DIMS = 5 };

struct call {
    lathe_kernel *kernel;
    lathe_arg arg[CALL_ARGUMENTS];
    int64_t shape[CALL_ARGUMENTS][CALL_DIMS], stride[CALL_ARGUMENTS][CALL_DIMS];
    int n;
    void *workspace;
};

static inline void give_up(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static inline void check(lathe_status status, const char *what, const lathe_error *err)
{
    if (status != LATHE_OK)
        give_up(what, err->text);
}

static inline unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Number i of a tensor on the host, f32 or bf16, which is the upper half of a float. */
static inline void element_put(lathe_dtype dtype, void *tensor, size_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == LATHE_F32)
        ((float *)tensor)[i] = value;
    else
        ((uint16_t *)tensor)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float element_get(lathe_dtype dtype, const void *tensor, size_t i)
{
    if (dtype == LATHE_F32)
        return ((const float *)tensor)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)tensor)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One more argument. stride NULL: compact. */
static inline void call_add(struct call *c, const char *name, void *data, lathe_dtype dtype, int ndim,
                            const int64_t *shape, const int64_t *stride)
{
    memcpy(c->shape[c->n], shape, (size_t)ndim * sizeof *shape);
    if (stride)
        memcpy(c->stride[c->n], stride, (size_t)ndim * sizeof *stride);
    c->arg[c->n] = (lathe_arg){name, data, dtype, ndim, c->shape[c->n], stride ? c->stride[c->n] : NULL};
    c->n++;
}

/* Its kernel and its workspace, when all arguments are there. */
static inline void call_compile(struct call *c, lathe_ctx *ctx, const struct memory *memory,
                                const lathe_spec *spec, lathe_pass pass, const char *what)
{
    lathe_error err;
    size_t size = 0;
    check(lathe_kernel_get(&c->kernel, ctx, spec, pass, c->arg, c->n, &err), what, &err);
    check(lathe_workspace_size(&size, c->kernel, c->arg, c->n, &err), what, &err);
    c->workspace = size ? memory_allocate(memory, size) : NULL;
    if (size && !c->workspace)
        give_up(what, "there is no memory for its workspace");
}

#endif
