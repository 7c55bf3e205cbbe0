/*
 * driver.h: libcuda, opened at run time. No CUDA header is included anywhere: the types, constants and
 * prototypes of the driver that we use are declared here and in driver.def.
 */
#ifndef LATHE_RT_DRIVER_H
#define LATHE_RT_DRIVER_H

#include <stdbool.h>

#include "runtime/base/base.h"
#include "runtime/recipe/recipe.h"

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;

enum {
    CU_SUCCESS = 0,
    CU_ATTR_SM_COUNT = 16,
    CU_ATTR_CC_MAJOR = 75,
    CU_ATTR_CC_MINOR = 76,
    CU_ATTR_SMEM_OPTIN = 97,
    CU_FUNC_LOCAL_BYTES = 3,
    CU_FUNC_REGISTERS = 4,
    CU_FUNC_PTX_VERSION = 5,
    CU_FUNC_MAX_DYNAMIC_SMEM = 8,
    CU_FUNC_LARGE_CLUSTERS = 14, /* of more than 8 blocks, which not every device has */
    CU_CAPTURE_RELAXED = 2,
    CU_JIT_ERROR_LOG = 5,
    CU_JIT_ERROR_LOG_BYTES = 6
};

struct cu_launch_attribute { /* CUlaunchAttribute */
    int id;
    int unused;
    int value;
    int rest[15];
};

enum { CU_LAUNCH_EARLY = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

struct cu_launch_config { /* CUlaunchConfig */
    unsigned grid[3];
    unsigned block[3];
    unsigned smem_bytes;
    lathe_stream stream;
    struct cu_launch_attribute *attributes;
    unsigned n_attributes;
};

struct driver {
    void *library;
    int version; /* 12080 */
#define CUDA_ENTRY(name, version, required, params) int(*name) params;
#define NVRTC_ENTRY(name, params)
#define NVFATBIN_ENTRY(name, params)
#include "runtime/driver/driver.def"
#undef CUDA_ENTRY
#undef NVRTC_ENTRY
#undef NVFATBIN_ENTRY
};

/* Open libcuda and initialise it. Errors CUDA: what is missing and what still works. */
lathe_status lathe__driver_open(struct driver **out, lathe_error *err);
void lathe__driver_close(struct driver *driver);
/* CU_SUCCESS -> LATHE_OK; else "call: NAME (description)". */
lathe_status lathe__driver_check(const struct driver *driver, int result, const char *call, lathe_error *err);
/* Fill *out from the attributes of CUDA device `ordinal`. */
lathe_status lathe__driver_device(const struct driver *driver, int ordinal, struct device *out,
                                  lathe_error *err);

/* Make `context` current for calls of this thread; *pushed says whether leave has to pop it. */
lathe_status lathe__context_enter(const struct driver *driver, struct CUctx_st *context, bool *pushed,
                                  lathe_error *err);
void lathe__context_leave(const struct driver *driver, bool pushed);
/* What a device of compute capability sm (90) is compiled for: "sm_90a". */
void lathe__device_arch(int sm, char out[16]);

struct image { /* code that the driver loads: a view */
    const unsigned char *data;
    size_t size;
};

#endif
