/*
 * lathe.h: the whole public interface of Lathe, a generator of GPU kernels.
 *
 * A spec (a short Lua file) says what an operator computes. The library turns it into a kernel for
 * the device at hand, keeps the compiled code in a cache on disk and launches it:
 *
 *     lathe_ctx_create      one device (a GPU, or the host) and its cache
 *     lathe_spec_load       a checked spec
 *     lathe_kernel_get      compile, or fetch from the cache: a second at first, microseconds later
 *     lathe_launch          enqueue on a stream
 *
 * The tensors are the problem: an argument is a name with data, dtype, shape and strides. Head dims
 * and dtypes are compiled in; lengths, batch, strides and scalars are not, so a new sequence length
 * never compiles anything.
 *
 * Rules that hold for every function:
 *  - The caller owns tensors, workspace, stream and error record. The library owns what it returned
 *    until the matching destroy or release. Strings passed in are copied.
 *  - A function that can fail returns a status; on failure it fills *err (which may be NULL) with one
 *    sentence, and sets its out-parameter to NULL.
 *  - A context may be used by any number of threads; a spec and a kernel are immutable. An error
 *    record belongs to one thread at a time.
 *  - The library never prints, never exits, never calls setlocale, and reads the environment
 *    (LATHE_CACHE_DIR, XDG_CACHE_HOME, HOME, and CUDA_HOME to find NVRTC) in lathe_ctx_create alone.
 *  - destroy(NULL) and release(NULL) do nothing.
 */
#ifndef LATHE_H
#define LATHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch: 0.1.0 */
#define LATHE_VERSION        "0.1.0"

#if defined(__GNUC__)
#define LATHE_API   __attribute__((visibility("default")))
#define LATHE_CHECK __attribute__((warn_unused_result))
#else
#define LATHE_API
#define LATHE_CHECK
#endif

/* Values never change; new ones are added at the end. */
#define LATHE_STATUS_MAP(X)                                                                                  \
    X(OK, 0, "success")                                                                                      \
    X(SPEC, 1, "the spec is wrong")                                                                          \
    X(ARG, 2, "an argument is wrong")                                                                        \
    X(UNSUPPORTED, 3, "no template covers this spec and problem")                                            \
    X(COMPILE, 4, "device code did not compile")                                                             \
    X(CACHE, 5, "the kernel cache cannot be read or written")                                                \
    X(CUDA, 6, "a CUDA call failed")                                                                         \
    X(MEMORY, 7, "out of host memory")

typedef enum lathe_status {
#define LATHE_STATUS_ENUM(name, value, text) LATHE_##name = (value),
    LATHE_STATUS_MAP(LATHE_STATUS_ENUM)
#undef LATHE_STATUS_ENUM
} lathe_status;

typedef struct lathe_error { /* filled on failure; the caller's */
    lathe_status status;
    int line;        /* 1-based line in file, 0 where there is none */
    char file[256];  /* the spec or the generated text, "" where there is none */
    char text[2048]; /* a sentence; several, a line each, where a spec has several mistakes */
} lathe_error;

/* X(name, number, spelling in specs and problems, bytes). DLPack's codes are in lathe_dtype's docs. */
#define LATHE_DTYPE_MAP(X)                                                                                   \
    X(NONE, 0, "none", 0)                                                                                    \
    X(F32, 1, "f32", 4)                                                                                      \
    X(F16, 2, "f16", 2)                                                                                      \
    X(BF16, 3, "bf16", 2)                                                                                    \
    X(I32, 4, "i32", 4)                                                                                      \
    X(U8, 5, "u8", 1)                                                                                        \
    X(F64, 6, "f64", 8) /* host device only */

typedef enum lathe_dtype {
#define LATHE_DTYPE_ENUM(name, value, text, bytes) LATHE_##name = (value),
    LATHE_DTYPE_MAP(LATHE_DTYPE_ENUM)
#undef LATHE_DTYPE_ENUM
} lathe_dtype;

typedef enum lathe_pass { LATHE_FORWARD = 0, LATHE_BACKWARD = 1 } lathe_pass;

typedef struct lathe_ctx lathe_ctx;       /* one device and its cache */
typedef struct lathe_spec lathe_spec;     /* a checked spec */
typedef struct lathe_kernel lathe_kernel; /* spec x head dims x dtypes x device */
typedef struct CUstream_st *lathe_stream; /* the type of CUstream and cudaStream_t; NULL: default stream */

/*
 * One named argument. `shape` and `strides` have ndim entries, strides in elements (NULL: compact,
 * row-major), as in DLPack's DLTensor, so its fields can be copied over one by one. The last stride
 * of q, k, v, o, x and y must be 1. `data` is a device pointer (a host pointer on the host device);
 * 16-byte aligned rows are fastest.
 * A scalar has ndim 0 and `data` points to its value in HOST memory, read during the call.
 *
 * Arguments of attention (b batch, h query heads, h_kv key heads, h % h_kv == 0):
 *     q [b,h,q,d]  k [b,h_kv,kv,d]  v [b,h_kv,kv,d_v]  ->  o [b,h,q,d_v], optional lse [b,h,q] f32
 *     (and every other final_rowscale of the spec, by its name), the spec's inputs by their names,
 *     and optionally q_start: an i32 scalar, the position of query row 0 among the keys (default
 *     kv - q: end-aligned).
 * Arguments of rowwise: x [..., n] -> y [..., n] with up to three leading dims, optional row
 *     statistics [...] f32 by their names, the spec's inputs.
 */
typedef struct lathe_arg {
    const char *name;
    void *data;
    lathe_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
} lathe_arg;

/* A message of the library: level 0 is a warning, 1 progress ("compiling ..."), 2 detail. */
typedef void lathe_log_fn(void *user, int level, const char *text);

#define LATHE_DEVICE_AUTO (-2) /* the first GPU, or the host where there is none */
#define LATHE_DEVICE_HOST (-1) /* evaluates in double precision; slow and exact */

/* Zero is the default of every field except device: use LATHE_OPTIONS_INIT. */
typedef struct lathe_options {
    int device; /* CUDA ordinal, LATHE_DEVICE_AUTO or LATHE_DEVICE_HOST */
    const char
        *cache_dir; /* NULL: $LATHE_CACHE_DIR, $XDG_CACHE_HOME/lathe, ~/.cache/lathe; "": no disk cache */
    uint64_t cache_bytes; /* budget of the disk cache, least recently used go first; 0: 1 GiB */
    int cache_read_only;  /* 1: never write to the cache */
    lathe_log_fn *log;    /* NULL: silent */
    void *log_user;
} lathe_options;
#define LATHE_OPTIONS_INIT                                                                                   \
    {                                                                                                        \
        LATHE_DEVICE_AUTO, NULL, 0, 0, NULL, NULL                                                            \
    }

LATHE_API const char *lathe_version(void);               /* "0.1.0" */
LATHE_API const char *lathe_status_text(lathe_status s); /* never NULL */
LATHE_API const char *lathe_dtype_text(lathe_dtype d);   /* "bf16"; never NULL */
LATHE_API size_t lathe_dtype_size(lathe_dtype d);        /* bytes of one element */

/* Open a device. Retains the device's primary CUDA context, shared with the CUDA runtime and torch.
   Errors: ARG (an option, no such device), CUDA (a library is missing: says which and what still
   works), MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_ctx_create(lathe_ctx **out, const lathe_options *options,
                                                    lathe_error *err);
LATHE_API void lathe_ctx_destroy(lathe_ctx *ctx);
LATHE_API int lathe_ctx_device(const lathe_ctx *ctx); /* CUDA ordinal or LATHE_DEVICE_HOST */
LATHE_API const char *lathe_ctx_device_name(const lathe_ctx *ctx);

/* Load and check a spec: from a file, or from text with a name for messages. A path without a slash
   that names a shipped spec ("causal") loads that one. Errors: SPEC (file, line and what to write
   instead, up to ten mistakes), MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_spec_load(lathe_spec **out, const char *path, lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_spec_parse(lathe_spec **out, const char *name, const char *text,
                                                    size_t size, lathe_error *err);
LATHE_API void lathe_spec_destroy(lathe_spec *spec);

/* Can these arguments be served? Data pointers may be NULL. Errors: ARG (name, expected, given),
   UNSUPPORTED (the reason of every template, a line each). Compiles nothing. */
LATHE_API LATHE_CHECK lathe_status lathe_supported(lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                                                   const lathe_arg *args, int n, lathe_error *err);

/* Build or fetch the kernel for arguments of these dtypes and head dims (data pointers may be NULL).
   The first time compiles, about a second; later ones are a hash lookup. Threads and processes that
   ask for one kernel at the same time compile it once. Not for use during stream capture.
   Errors: ARG, UNSUPPORTED, COMPILE, CUDA, MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_kernel_get(lathe_kernel **out, lathe_ctx *ctx,
                                                    const lathe_spec *spec, lathe_pass pass,
                                                    const lathe_arg *args, int n, lathe_error *err);
LATHE_API void lathe_kernel_release(lathe_kernel *kernel);
/* Name, template, tile sizes, registers, cache key: lines for people. Lives as long as the kernel. */
LATHE_API const char *lathe_kernel_info(const lathe_kernel *kernel);

/* Bytes of device memory that a launch with these arguments needs as workspace; often 0.
   Errors: ARG. */
LATHE_API LATHE_CHECK lathe_status lathe_workspace_size(size_t *out, const lathe_kernel *kernel,
                                                        const lathe_arg *args, int n, lathe_error *err);

/* Enqueue the kernel. Returns before the work is done (the host device works at once). Allocates
   nothing, synchronises nothing, compiles nothing: safe in CUDA-graph capture. `workspace` has at
   least lathe_workspace_size bytes, 256-byte aligned, and is not shared by launches that overlap.
   Errors: ARG (names the argument, expected and given), CUDA. */
LATHE_API LATHE_CHECK lathe_status lathe_launch(const lathe_kernel *kernel, const lathe_arg *args, int n,
                                                void *workspace, lathe_stream stream, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
