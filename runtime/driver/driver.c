/*
 * driver.c: libcuda, opened at run time. In: nothing but what the system's loader finds; out: a table of
 * entry points, owned by the caller until lathe__driver_close, and devices as plain numbers. Every
 * entry is resolved through cuGetProcAddress_v2 with the version of the prototype that driver.def
 * declares, so a newer driver cannot hand out a newer signature under an old name.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/driver/driver.h"

typedef int get_proc_fn(const char *name, void **address, int version, uint64_t flags, int *status);

/* ISO C has no cast from object to function pointer; the bytes are the same on every POSIX system. */
static bool resolve(get_proc_fn *get_proc, const char *name, int version, void *entry)
{
    void *address = NULL;
    int status = 0;
    if (get_proc(name, &address, version, 0, &status) != CU_SUCCESS || !address)
        return false;
    memcpy(entry, &address, sizeof address);
    return true;
}

static lathe_status resolve_all(struct driver *d, get_proc_fn *get_proc, lathe_error *err)
{
#define CUDA_ENTRY(name, version, required, params)                                                          \
    if (!resolve(get_proc, #name, version, &d->name) && (required))                                          \
        return lathe__fail(err, LATHE_CUDA,                                                                  \
                           "the CUDA driver has no %s; a driver for CUDA 12.0 or newer is needed", #name);
#define NVRTC_ENTRY(name, params)
#define NVFATBIN_ENTRY(name, params)
#include "runtime/driver/driver.def"
#undef CUDA_ENTRY
#undef NVRTC_ENTRY
#undef NVFATBIN_ENTRY
    return LATHE_OK;
}

static lathe_status open_library(struct driver *d, lathe_error *err)
{
    get_proc_fn *get_proc = NULL;
    void *address;
    TRY(lathe__need_loader("libcuda.so.1, the library of the NVIDIA driver,", err));
    d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!d->library)
        return lathe__fail(err, LATHE_CUDA,
                           "libcuda.so.1, the library of the NVIDIA driver, cannot be opened (%s)",
                           dlerror());
    address = dlsym(d->library, "cuGetProcAddress_v2");
    if (!address)
        return lathe__fail(
            err, LATHE_CUDA,
            "the NVIDIA driver is too old: libcuda.so.1 has no cuGetProcAddress_v2; a driver for CUDA "
            "12.0 or newer is needed");
    memcpy(&get_proc, &address, sizeof address);
    TRY(resolve_all(d, get_proc, err));
    TRY(lathe__driver_check(d, d->cuInit(0), "cuInit", err));
    return lathe__driver_check(d, d->cuDriverGetVersion(&d->version), "cuDriverGetVersion", err);
}

lathe_status lathe__driver_open(struct driver **out, lathe_error *err)
{
    struct driver *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return lathe__fail_memory(err);
    const lathe_status status = open_library(d, err);
    if (status != LATHE_OK) {
        lathe__driver_close(d);
        return status;
    }
    *out = d;
    return LATHE_OK;
}

void lathe__driver_close(struct driver *driver)
{
    if (!driver)
        return;
    if (driver->library)
        dlclose(driver->library);
    free(driver);
}

lathe_status lathe__driver_check(const struct driver *driver, int result, const char *call, lathe_error *err)
{
    const char *name = NULL;
    const char *text = NULL;
    if (result == CU_SUCCESS)
        return LATHE_OK;
    if (driver->cuGetErrorName(result, &name) != CU_SUCCESS || !name)
        name = "unknown error";
    if (driver->cuGetErrorString(result, &text) != CU_SUCCESS || !text)
        text = "no description";
    return lathe__fail(err, LATHE_CUDA, "%s: %s, error %d (%s)", call, name, result, text);
}

/* Family-specific instructions ('a') exist from Hopper on; such code runs on that very architecture only. */
void lathe__device_arch(int sm, char out[16])
{
    snprintf(out, 16, "sm_%d%s", sm, sm >= 90 ? "a" : "");
}

lathe_status lathe__driver_device(const struct driver *driver, int ordinal, struct device *out,
                                  lathe_error *err)
{
    static const int attribute[4] = {CU_ATTR_CC_MAJOR, CU_ATTR_CC_MINOR, CU_ATTR_SM_COUNT,
                                     CU_ATTR_SMEM_OPTIN};
    int value[4] = {0};
    int device = 0;
    TRY(lathe__driver_check(driver, driver->cuDeviceGet(&device, ordinal), "cuDeviceGet", err));
    for (int i = 0; i < 4; i++)
        TRY(lathe__driver_check(driver, driver->cuDeviceGetAttribute(&value[i], attribute[i], device),
                                "cuDeviceGetAttribute", err));
    out->sm = value[0] * 10 + value[1];
    out->sm_count = value[2];
    out->smem_bytes = value[3];
    lathe__device_arch(out->sm, out->arch);
    return LATHE_OK;
}

lathe_status lathe__context_enter(const struct driver *driver, struct CUctx_st *context, bool *pushed,
                                  lathe_error *err)
{
    struct CUctx_st *current = NULL;
    *pushed = false;
    if (driver->cuCtxGetCurrent(&current) == CU_SUCCESS && current == context)
        return LATHE_OK;
    TRY(lathe__driver_check(driver, driver->cuCtxPushCurrent(context), "cuCtxPushCurrent", err));
    *pushed = true;
    return LATHE_OK;
}

void lathe__context_leave(const struct driver *driver, bool pushed)
{
    struct CUctx_st *popped;
    if (pushed)
        driver->cuCtxPopCurrent(&popped);
}
