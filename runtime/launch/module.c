/*
 * module.c: images -> functions on the device whose context is current. In: fatbins, cubins or PTX, and the
 * recipe that names their kernels; out: a module, which the caller unloads when no launch can need it. The
 * code is loaded here and not at the first launch, so that a launch never loads during stream capture.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/module.h"

static lathe_status load_image(const struct driver *d, struct CUmod_st **handle, const unsigned char *image,
                               lathe_error *err)
{
    char log[1024] = "";
    int option[2] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
    void *value[2] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    int mode = CU_CAPTURE_RELAXED;
    /* a capture in another stream of this thread must not fail because of a load */
    const bool exchanged = d->cuThreadExchangeStreamCaptureMode(&mode) == CU_SUCCESS;
    const int result = d->cuModuleLoadDataEx(handle, image, 2, option, value);
    if (exchanged)
        d->cuThreadExchangeStreamCaptureMode(&mode);
    if (result == CU_SUCCESS)
        return LATHE_OK;
    const char *name = NULL;
    if (d->cuGetErrorName(result, &name) != CU_SUCCESS || !name)
        name = "unknown error";
    return lathe__fail(
        err, LATHE_CUDA,
        "the driver (for CUDA %d.%d) does not load the compiled code: %s, error %d%s%s; NVRTC of a newer "
        "major version than the driver's is the usual cause",
        d->version / 1000, d->version % 1000 / 10, name, result, log[0] ? ": " : "", log);
}

/* The recipe and the struct that the compiler saw must agree on the size of the parameters. */
static lathe_status check_params(const struct driver *d, struct CUfunc_st *function,
                                 const struct launch *launch, lathe_error *err)
{
    size_t offset = 0;
    size_t size = 0;
    if (!d->cuFuncGetParamInfo || d->cuFuncGetParamInfo(function, 0, &offset, &size) != CU_SUCCESS)
        return LATHE_OK; /* a driver before 12.4 does not say */
    if (size == launch->param_bytes)
        return LATHE_OK;
    return lathe__fail(err, LATHE_COMPILE, "kernel %s takes %zu bytes of parameters, its recipe fills %u",
                       launch->entry, size, launch->param_bytes);
}

/* In the image of its part; a text that was compiled in one go has one image. */
static lathe_status find_function(struct module *module, int i, const struct launch *launch, lathe_error *err)
{
    const struct driver *d = module->driver;
    struct CUmod_st *image = module->handle[launch->part < module->n_handles ? launch->part : 0];
    return lathe__driver_check(d, d->cuModuleGetFunction(&module->function[i], image, launch->entry),
                               launch->entry, err);
}

/* How many clusters run at once is a matter of how many SMs each part of the device has: two of a kind
 * differ. */
static void find_resident(struct module *module, int i, const struct launch *launch)
{
    const struct driver *d = module->driver;
    const struct cu_launch_config config = {.grid = {(unsigned)launch->cluster, 1, 1},
                                            .block = {(unsigned)launch->threads, 1, 1},
                                            .smem_bytes = (unsigned)launch->smem_bytes};
    int clusters = 0;
    if (launch->cluster > 0 && d->cuOccupancyMaxActiveClusters &&
        d->cuOccupancyMaxActiveClusters(&clusters, module->function[i], &config) == CU_SUCCESS)
        module->resident[i] = clusters * launch->cluster;
}

/* Blocks begin early on compute capability 9.0 and up; drivers before 12.3 do not capture such launches. The
 * text must have been compiled for it, too: what a driver makes of PTX for an older one does not wait. */
static lathe_status find_early(struct module *module, int i, const struct launch *launch, lathe_error *err)
{
    const struct driver *d = module->driver;
    int version = 0; /* 90: what the text was compiled for */
    if (!launch->early || d->version < 12030)
        return LATHE_OK;
    TRY(lathe__driver_check(d, d->cuFuncGetAttribute(&version, CU_FUNC_PTX_VERSION, module->function[i]),
                            "cuFuncGetAttribute", err));
    module->early[i] = version >= 90;
    return LATHE_OK;
}

/* More than 8 blocks of a cluster are asked for, and there must be a part of the device that has them. */
static lathe_status check_cluster(struct module *module, int i, const struct launch *launch, lathe_error *err)
{
    enum { PORTABLE = 8 };
    if (launch->cluster > PORTABLE &&
        module->driver->cuFuncSetAttribute(module->function[i], CU_FUNC_LARGE_CLUSTERS, 1) != CU_SUCCESS)
        return lathe__fail(err, LATHE_CUDA,
                           "kernel %s asks for clusters of %d blocks, which this device refuses",
                           launch->entry, launch->cluster);
    find_resident(module, i, launch);
    if (launch->cluster > PORTABLE && module->resident[i] == 0)
        return lathe__fail(err, LATHE_CUDA,
                           "kernel %s asks for clusters of %d blocks, for which no part of this device is "
                           "large enough",
                           launch->entry, launch->cluster);
    return LATHE_OK;
}

static lathe_status load_function(struct module *module, int i, const struct launch *launch, lathe_error *err)
{
    const struct driver *d = module->driver;
    int result = CU_SUCCESS;
    TRY(find_function(module, i, launch, err));
    TRY(lathe__map_slots(&module->slot[i], launch->n_maps, err));
    struct CUfunc_st *function = module->function[i];
    TRY(check_params(d, function, launch, err));
    if (launch->smem_bytes > 0) {
        result = d->cuFuncSetAttribute(function, CU_FUNC_MAX_DYNAMIC_SMEM, launch->smem_bytes);
        if (result != CU_SUCCESS)
            return lathe__fail(err, LATHE_CUDA,
                               "kernel %s asks for %d bytes of shared memory, which this device refuses",
                               launch->entry, launch->smem_bytes);
    }
    TRY(check_cluster(module, i, launch, err));
    TRY(find_early(module, i, launch, err));
    /* asking loads the code, where the driver does so lazily */
    TRY(lathe__driver_check(d, d->cuFuncGetAttribute(&module->registers[i], CU_FUNC_REGISTERS, function),
                            "cuFuncGetAttribute", err));
    return lathe__driver_check(d,
                               d->cuFuncGetAttribute(&module->local_bytes[i], CU_FUNC_LOCAL_BYTES, function),
                               "cuFuncGetAttribute", err);
}

lathe_status lathe__module_load(struct module **out, const struct driver *driver, const struct image *image,
                                int n_images, const struct source *source, lathe_error *err)
{
    struct module *module = calloc(1, sizeof *module);
    *out = NULL;
    if (!module)
        return lathe__fail_memory(err);
    module->driver = driver;
    lathe_status status = LATHE_OK;
    for (int i = 0; i < n_images && status == LATHE_OK; i++) {
        status = load_image(driver, &module->handle[i], image[i].data, err);
        module->n_handles += status == LATHE_OK;
    }
    for (int i = 0; i < source->n_launches && status == LATHE_OK; i++)
        status = load_function(module, i, &source->launch[i], err);
    if (status != LATHE_OK) {
        lathe__module_unload(module);
        return status;
    }
    *out = module;
    return LATHE_OK;
}

void lathe__module_unload(struct module *module)
{
    if (!module)
        return;
    for (int i = 0; i < module->n_handles; i++)
        module->driver->cuModuleUnload(module->handle[i]);
    for (int i = 0; i < MAX_LAUNCHES; i++)
        free(module->slot[i]);
    free(module);
}

void lathe__module_drop(void *module)
{
    lathe__module_unload(module);
}
