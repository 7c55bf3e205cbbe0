/*
 * lathe_aot.h: what the header of a library made by `lathe aot` builds on. Programs include that header; it
 * includes this one. Nothing here needs Lua, NVRTC or a file: link with liblathe_rt (or with liblathe).
 *
 * What holds for every generated function:
 *  - It enqueues work on `stream` and returns. The first call of a kernel in a CUDA context loads its code
 *    into that context; later calls load, allocate and synchronise nothing, and are safe in stream capture.
 *  - It works in the CUDA context that is current to the calling thread; where none is, in the primary
 *    context of device 0. Code that was loaded stays for the life of the process.
 *  - Any number of threads may call it at once.
 *  - It picks code by the device: of exactly its architecture, else of an older one of its generation, else
 *    PTX, which the driver compiles at the first call.
 *  - `err` may be NULL. Errors: ARG (the argument, expected, given), UNSUPPORTED (nothing in the library
 *    fits: what is there, and the `lathe aot` line that would add it), CUDA, MEMORY.
 */
#ifndef LATHE_AOT_H
#define LATHE_AOT_H

#include "lathe_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor, as lathe_arg has it: `data` in device memory, strides in elements (NULL: compact, row-major).
   All zero (dtype LATHE_NONE): left out. */
typedef struct lathe_tensor {
    void *data;
    lathe_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
} lathe_tensor;

/* A scalar that has a default: {0, 0} takes it, {1, value} does not. */
typedef struct lathe_optional_f32 {
    int given;
    float value;
} lathe_optional_f32;
typedef struct lathe_optional_i32 {
    int given;
    int32_t value;
} lathe_optional_i32;

/* The kernels of one spec, inside a generated library. */
typedef struct lathe_kernel_set lathe_kernel_set;

/* One kernel of a set, for lists and reports: strings are the library's, or in the record. */
typedef struct lathe_set_kernel {
    const char *library;  /* NAME */
    const char *function; /* "NAME_alibi_bf16_d128_forward" */
    lathe_pass pass;
    char problem[512]; /* what is compiled in, as a line of --problem: "dtype=bf16,d=128" */
    char archs[256];   /* what there is code for: "sm_80, PTX for sm_80, sm_90a" */
} lathe_set_kernel;
/* Fill *out with kernel `number` of a set, from 0; a generated header has a function FUNCTION_set beside each
   dispatcher. 1: filled; 0: there are not so many, or the set is of another format. */
LATHE_API int lathe_set_kernel_at(const lathe_kernel_set *set, int number, lathe_set_kernel *out);

/* From now on, say when code is loaded into a context (level 1), and when it is PTX, which the driver
   compiles for seconds (level 0, with the `lathe aot` line that would add code of its own). For the whole
   process, and every library in it; NULL: silent, as it is at first. Called under the lock of loading, so
   `log` launches nothing. */
LATHE_API void lathe_aot_log(lathe_log_fn *log, void *user);

#define LATHE_ANY_KERNEL (-1) /* the first whose dtypes, head dims and inputs are those of the arguments */

/* What the generated functions call. `args` is the generated struct of arguments. */
LATHE_API LATHE_CHECK lathe_status lathe_set_launch(const lathe_kernel_set *set, int kernel, const void *args,
                                                    void *workspace, lathe_stream stream, lathe_error *err);
/* Bytes of device memory that a launch with these arguments needs, whichever device it runs on. Needs no
   device; data pointers may be NULL. */
LATHE_API LATHE_CHECK lathe_status lathe_set_workspace(size_t *out, const lathe_kernel_set *set, int kernel,
                                                       const void *args, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
