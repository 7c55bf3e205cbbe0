/*
 * pretended.h: a driver that pretends, a context on it, and calls of row-wise specs, for jit.c and offline.c.
 * What was opened is closed by lathe_ctx_destroy, lathe_spec_destroy and lathe_kernel_release.
 */
#ifndef LATHE_TEST_PRETENDED_H
#define LATHE_TEST_PRETENDED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "nvrtc.h"
#include "runtime/rt.h"

/* ---- a driver that pretends ----------------------------------------------------------------------- */

static struct {
    atomic_int loads;
    atomic_int unloads;
    atomic_int launches;
    unsigned grid;
    bool refuses_large_clusters;
} seen;

static int handle; /* something to point at */

static inline int fake_load(struct CUmod_st **module, const void *image, unsigned n, int *option,
                            void **value)
{
    (void)n;
    if (option[0] != CU_JIT_ERROR_LOG || !value[0])
        return 1;
    atomic_fetch_add(&seen.loads, 1);
    *module = (struct CUmod_st *)(void *)&handle;
    return strcmp(lathe__image_kind(image, 4), "unknown") == 0 ? 200 : CU_SUCCESS;
}

static inline int fake_unload(struct CUmod_st *module)
{
    atomic_fetch_add(&seen.unloads, 1);
    return module ? CU_SUCCESS : 1;
}

static inline int fake_function(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    *function = (struct CUfunc_st *)(void *)&handle;
    return module && name[0] ? CU_SUCCESS : 500;
}

static inline int fake_set(struct CUfunc_st *function, int attribute, int value)
{
    const bool known = attribute == CU_FUNC_MAX_DYNAMIC_SMEM ||
                       (attribute == CU_FUNC_LARGE_CLUSTERS && !seen.refuses_large_clusters);
    return function && known && value > 0 ? CU_SUCCESS : 1;
}

static inline int fake_get(int *value, int attribute, struct CUfunc_st *function)
{
    *value = attribute == CU_FUNC_REGISTERS ? 77 : 0;
    return function ? CU_SUCCESS : 1;
}

static inline int fake_launch(const struct cu_launch_config *config, struct CUfunc_st *function,
                              void **params, void **extra)
{
    atomic_fetch_add(&seen.launches, 1);
    seen.grid = config->grid[0];
    return function && params[0] && !extra ? CU_SUCCESS : 1;
}

static inline int fake_clusters(int *clusters, struct CUfunc_st *function,
                                const struct cu_launch_config *config)
{
    *clusters = 5;
    return function && config->grid[0] > 1 && config->block[0] > 0 ? CU_SUCCESS : 1;
}

static inline int fake_current(struct CUctx_st **context)
{
    *context = (struct CUctx_st *)(void *)&handle;
    return CU_SUCCESS;
}

static inline int fake_release(int device)
{
    return device;
}

static inline int fake_mode(int *mode)
{
    *mode = 0;
    return CU_SUCCESS;
}

static inline struct driver *fake_driver(void)
{
    struct driver *d = calloc(1, sizeof *d);
    CHECK(d != NULL);
    d->version = 13000;
    d->cuModuleLoadDataEx = fake_load;
    d->cuModuleUnload = fake_unload;
    d->cuModuleGetFunction = fake_function;
    d->cuFuncSetAttribute = fake_set;
    d->cuFuncGetAttribute = fake_get;
    d->cuLaunchKernelEx = fake_launch;
    d->cuOccupancyMaxActiveClusters = fake_clusters;
    d->cuCtxGetCurrent = fake_current;
    d->cuDevicePrimaryCtxRelease = fake_release;
    d->cuThreadExchangeStreamCaptureMode = fake_mode;
    return d;
}

struct messages {
    atomic_int compiled;
    atomic_int warnings;
};

static inline void count(void *user, int level, const char *text)
{
    struct messages *m = user;
    atomic_fetch_add(&m->compiled, level == 1 && strncmp(text, "compiled ", 9) == 0);
    atomic_fetch_add(&m->warnings, level == 0);
}

/* As lathe_ctx_create leaves it on a machine with a Hopper GPU. */
static inline lathe_ctx *fake_ctx(struct messages *m)
{
    char path[PATH_BYTES];
    struct environment environment;
    lathe__compiler_close(open_compiler());
    lathe__environment_read(&environment);
    struct lathe_ctx *ctx = calloc(1, sizeof *ctx);
    CHECK(ctx != NULL);
    memset(m, 0, sizeof *m);
    ctx->device = (struct device){.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};
    ctx->report = (struct reporter){count, m};
    snprintf(ctx->cuda_home, sizeof ctx->cuda_home, "%s", environment.cuda_home);
    ctx->driver = fake_driver();
    ctx->context = (struct CUctx_st *)(void *)&handle;
    snprintf(path, sizeof path, "%s/cache", check_temp_dir());
    lathe__cache_open(&ctx->cache, path, 0, false, ctx->report);
    lathe__cache_open_system(&ctx->system_cache, "", false, ctx->report);
    atomic_init(&ctx->references, 1);
    pthread_mutex_init(&ctx->compiler_lock, NULL);
    lathe__flight_init(&ctx->kernels);
    lathe__flight_init(&ctx->modules);
    return ctx;
}

/* ---- calls ---------------------------------------------------------------------------------------- */

static _Alignas(256) char memory[64];

struct call {
    int64_t shape[2];
    lathe_arg arg[2];
};

static inline void make_call(struct call *c, int64_t rows, int64_t n, lathe_dtype dtype)
{
    c->shape[0] = rows;
    c->shape[1] = n;
    c->arg[0] = (lathe_arg){"x", memory, dtype, 2, c->shape, NULL};
    c->arg[1] = (lathe_arg){"y", memory, dtype, 2, c->shape, NULL};
}

static inline lathe_spec *load(const char *name)
{
    lathe_spec *spec;
    lathe_error err = {0};
    if (lathe_spec_load(&spec, name, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return spec;
}

static inline lathe_kernel *get(lathe_ctx *ctx, const lathe_spec *spec, int64_t rows, int64_t n,
                                lathe_dtype dtype)
{
    struct call c;
    lathe_kernel *kernel;
    lathe_error err = {0};
    make_call(&c, rows, n, dtype);
    if (lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return kernel;
}

#endif
