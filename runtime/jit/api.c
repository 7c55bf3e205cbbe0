/*
 * api.c: contexts, and the thin functions of lathe.h whose work is done by jit.c. In: options; out: a
 * context, which the caller destroys and which lives on until its last kernel is released. A context retains
 * the device's primary CUDA context, opens the cache and nothing else: NVRTC is opened by the first
 * compilation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe_inspect.h"
#include "runtime/base/environ.h"
#include "runtime/jit/jit.h"

/* ---- devices -------------------------------------------------------------------------------------- */

static void use_host(struct lathe_ctx *ctx)
{
    ctx->ordinal = LATHE_DEVICE_HOST;
    snprintf(ctx->name, sizeof ctx->name, "host (double precision)");
}

static lathe_status check_ordinal(const struct driver *driver, int ordinal, lathe_error *err)
{
    int count = 0;
    TRY(lathe__driver_check(driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount", err));
    if (ordinal < count)
        return LATHE_OK;
    return lathe__fail(
        err, count > 0 ? LATHE_ARG : LATHE_CUDA,
        "options.device: expected an ordinal below %d, the number of CUDA devices, given %d; the host device "
        "(LATHE_DEVICE_HOST) always works",
        count, ordinal);
}

/* What is missing, and what this library still does: a program that has only its kernels is not told so. */
static lathe_status open_driver(struct driver **out, lathe_error *err)
{
    static const char still[] =
        "; the host device (--device host, LATHE_DEVICE_HOST) and offline compilation "
        "(lathe gen, lathe compile) still work";
    const lathe_status status = lathe__driver_open(out, err);
    if (status == LATHE_CUDA && err) {
        const size_t size = strlen(err->text);
        snprintf(err->text + size, sizeof err->text - size, "%s", still);
    }
    return status;
}

static lathe_status use_gpu(struct lathe_ctx *ctx, int ordinal, lathe_error *err)
{
    TRY(open_driver(&ctx->driver, err));
    const struct driver *d = ctx->driver;
    TRY(check_ordinal(d, ordinal, err));
    TRY(lathe__driver_check(d, d->cuDeviceGet(&ctx->cu_device, ordinal), "cuDeviceGet", err));
    TRY(lathe__driver_device(d, ordinal, &ctx->device, err));
    TRY(lathe__driver_check(d, d->cuDeviceGetName(ctx->name, (int)sizeof ctx->name, ctx->cu_device),
                            "cuDeviceGetName", err));
    TRY(lathe__driver_check(d, d->cuDevicePrimaryCtxRetain(&ctx->context, ctx->cu_device),
                            "cuDevicePrimaryCtxRetain", err));
    ctx->ordinal = ordinal;
    return LATHE_OK;
}

static void drop_gpu(struct lathe_ctx *ctx)
{
    if (ctx->context)
        ctx->driver->cuDevicePrimaryCtxRelease(ctx->cu_device);
    ctx->context = NULL;
    lathe__driver_close(ctx->driver);
    ctx->driver = NULL;
}

static lathe_status open_device(struct lathe_ctx *ctx, int wanted, lathe_error *err)
{
    lathe_error why = {0};
    if (wanted >= 0)
        return use_gpu(ctx, wanted, err);
    if (wanted == LATHE_DEVICE_AUTO && use_gpu(ctx, 0, &why) == LATHE_OK)
        return LATHE_OK;
    if (wanted == LATHE_DEVICE_AUTO) {
        drop_gpu(ctx);
        lathe__report(&ctx->report, 2, "no GPU is used: %s", why.text);
    }
    use_host(ctx);
    return LATHE_OK;
}

/* ---- contexts ------------------------------------------------------------------------------------- */

static lathe_status check_options(const lathe_options *o, lathe_error *err)
{
    if (!o)
        return lathe__fail(err, LATHE_ARG,
                           "options: expected a record (LATHE_OPTIONS_INIT has the defaults), given NULL");
    if (o->device < LATHE_DEVICE_AUTO)
        return lathe__fail(
            err, LATHE_ARG,
            "options.device: expected a CUDA ordinal, LATHE_DEVICE_AUTO or LATHE_DEVICE_HOST, given %d",
            o->device);
    if (o->cache_read_only != 0 && o->cache_read_only != 1)
        return lathe__fail(err, LATHE_ARG, "options.cache_read_only: expected 0 or 1, given %d",
                           o->cache_read_only);
    if (o->offline != 0 && o->offline != 1)
        return lathe__fail(err, LATHE_ARG, "options.offline: expected 0 or 1, given %d", o->offline);
    if (o->deterministic < 0 || o->deterministic > LATHE_BATCH_INVARIANT)
        return lathe__fail(err, LATHE_ARG,
                           "options.deterministic: expected 0, 1 or LATHE_BATCH_INVARIANT (2), given %d",
                           o->deterministic);
    return LATHE_OK;
}

static void open_caches(struct lathe_ctx *ctx, const lathe_options *o, const struct environment *environment)
{
    const char *path = o->cache_dir ? o->cache_dir : environment->cache_dir;
    const char *system = o->system_cache_dir ? o->system_cache_dir : environment->system_cache_dir;
    const bool named = o->system_cache_dir || environment->system_cache_named;
    if (ctx->ordinal == LATHE_DEVICE_HOST)
        path = system = ""; /* nothing is compiled for it */
    lathe__cache_open(&ctx->cache, path, o->cache_bytes, o->cache_read_only == 1, ctx->report);
    lathe__cache_open_system(&ctx->system_cache, system, named, ctx->report);
    ctx->deterministic = (uint8_t)o->deterministic;
    ctx->offline = o->offline == 1 || environment->offline;
}

static lathe_status make_context(lathe_ctx **out, const lathe_options *options, lathe_error *err)
{
    struct environment environment;
    TRY(check_options(options, err));
    struct lathe_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return lathe__fail_memory(err);
    ctx->report = (struct reporter){options->log, options->log_user};
    const lathe_status status = open_device(ctx, options->device, err);
    if (status != LATHE_OK) {
        drop_gpu(ctx);
        free(ctx);
        return status;
    }
    lathe__environment_read(&environment);
    snprintf(ctx->cuda_home, sizeof ctx->cuda_home, "%s", environment.cuda_home);
    snprintf(ctx->device.template_name, sizeof ctx->device.template_name, "%s", environment.template_name);
    snprintf(ctx->device.tile, sizeof ctx->device.tile, "%s", environment.tile);
    open_caches(ctx, options, &environment);
    atomic_init(&ctx->references, 1);
    pthread_mutex_init(&ctx->compiler_lock, NULL);
    lathe__flight_init(&ctx->kernels);
    lathe__flight_init(&ctx->modules);
    *out = ctx;
    return LATHE_OK;
}

/* What a caller has of the record; fields that it does not know are 0. */
static lathe_status take_options(lathe_options *out, const lathe_options *options, size_t size,
                                 lathe_error *err)
{
    const unsigned char *byte = (const unsigned char *)options;
    memset(out, 0, sizeof *out);
    if (!options)
        return check_options(options, err);
    if (size < sizeof out->device)
        return lathe__fail(err, LATHE_ARG, "size: expected sizeof(lathe_options), given %zu", size);
    for (size_t i = sizeof *out; i < size; i++)
        if (byte[i])
            return lathe__fail(
                err, LATHE_ARG,
                "options: a field at byte %zu is set, which liblathe %s does not know: it knows %zu "
                "bytes",
                i, LATHE_VERSION, sizeof *out);
    memcpy(out, options, size < sizeof *out ? size : sizeof *out);
    return LATHE_OK;
}

lathe_status lathe_ctx_open(lathe_ctx **out, const lathe_options *options, size_t size, lathe_error *err)
{
    lathe_options taken;
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_ctx pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    TRY(take_options(&taken, options, size, err));
    return make_context(out, &taken, err);
}

/* Up to the last field of 0.1, whatever is behind it now. */
lathe_status lathe_ctx_create(lathe_ctx **out, const lathe_options *options, lathe_error *err)
{
    return lathe_ctx_open(out, options,
                          offsetof(lathe_options, deterministic) + sizeof options->deterministic, err);
}

void lathe__ctx_release(struct lathe_ctx *ctx)
{
    bool pushed = false;
    if (atomic_fetch_sub(&ctx->references, 1) != 1)
        return;
    lathe__flight_destroy(&ctx->kernels, lathe__kernel_drop);
    if (ctx->driver)
        (void)lathe__context_enter(ctx->driver, ctx->context, &pushed, NULL);
    lathe__flight_destroy(&ctx->modules, lathe__module_drop);
    lathe__context_leave(ctx->driver, pushed);
    lathe__compiler_close(ctx->compiler);
    free(ctx->noted);
    lathe__cache_close(&ctx->cache);
    lathe__cache_close(&ctx->system_cache);
    drop_gpu(ctx);
    pthread_mutex_destroy(&ctx->compiler_lock);
    free(ctx);
}

void lathe_ctx_destroy(lathe_ctx *ctx)
{
    if (ctx)
        lathe__ctx_release(ctx);
}

int lathe_ctx_device(const lathe_ctx *ctx)
{
    return ctx ? ctx->ordinal : LATHE_DEVICE_AUTO;
}

const char *lathe_ctx_device_name(const lathe_ctx *ctx)
{
    return ctx ? ctx->name : "";
}

const char *lathe_ctx_arch(const lathe_ctx *ctx)
{
    return !ctx ? "" : ctx->ordinal == LATHE_DEVICE_HOST ? "host" : ctx->device.arch;
}
