/*
 * lathe.h: specs and kernels at run time. What a call is made of (statuses, dtypes, arguments and their
 * shapes) is in lathe_types.h. Beside it: lathe_inspect.h (what a spec takes, as data), lathe_packed.h
 * (packed sequences), lathe_nsa.h (native sparse attention as one call), lathe_dist.h (one problem over
 * several GPUs), lathe_aot.h (kernels compiled ahead of time).
 *
 * A spec (a short Lua file) says what an operator computes. The library turns it into a kernel for
 * the device at hand, keeps the compiled code in a cache on disk and launches it:
 *
 *     lathe_ctx_create      one device (a GPU, or the host) and its cache
 *     lathe_spec_load       a checked spec
 *     lathe_kernel_get      compile, or fetch from the cache: a second at first, microseconds later
 *     lathe_launch          enqueue on a stream
 *
 * The tensors are the problem: an argument is a name with data, dtype, shape and strides. Compiled in are
 * dtypes, head dims (rowwise: the length of a row), which optional inputs there are, and whether the rows
 * of q, k, v and o start at multiples of 16 bytes. Lengths, batch, strides and scalars are not. A kernel
 * serves all lengths, whichever it was asked for with, and a new length compiles another kernel only where
 * one is faster there:
 *
 *     few queries, many keys    q * h / h_kv <= 64, and kv at least 512 and 16 q
 *     many keys                 kv at least 8192
 *     few tiles                 on Hopper, q at least 256, and b * h * q / 256 at most 6 tiles for each
 *                               multiprocessor: tiles of 128 or 64 rows, where these are done sooner
 *     Hopper                    pages of a size that TMA does not read; the delta rule of linear attention
 *                               with many heads of sequences
 *
 * Rules that hold for every function:
 *  - The caller owns tensors, workspace, stream and error record. The library owns what it returned
 *    until the matching destroy or release. Strings passed in are copied. A kernel keeps its spec and its
 *    context: the three may be given back in any order.
 *  - A function that can fail returns a status; on failure it fills *err (which may be NULL) with one
 *    sentence, and sets its out-parameter to NULL.
 *  - A context may be used by any number of threads; a spec and a kernel are immutable. An error
 *    record belongs to one thread at a time.
 *  - In lathe_launch the context's CUDA context is current; behind it the one that was, is again.
 *  - Launches may still be under way where lathe_launch has returned: release a kernel, destroy a context and
 *    free tensors and workspace when they are done (or by a call that waits for them). Launches that write
 *    the same memory, such as one pool of states, are ordered by the caller, by one stream or by events.
 *  - A log function calls nothing of this library, and may be called from any thread that does.
 *  - Records that are filled have no size field: compile with the headers of the library that is linked.
 *  - The library never prints, never exits, never calls setlocale, and reads the environment
 *    (LATHE_CACHE_DIR, XDG_CACHE_HOME, HOME, LATHE_SYSTEM_CACHE_DIR, LATHE_OFFLINE, CUDA_HOME to find
 *    NVRTC, and, for measurements, LATHE_TEMPLATE, names of templates to plan with, and LATHE_TILE, a row
 *    of their tiles, as `lathe tune` names it) in lathe_ctx_create alone.
 *  - destroy(NULL) and release(NULL) do nothing; what describes an object says "" of NULL, and its device
 *    is LATHE_DEVICE_AUTO.
 *
 * Where kernels come from, in this order: this context's memory; the system cache, a folder that
 * packages and images fill (`lathe compile --cache DIR`, `lathe cache import FILE DIR`) and that the
 * library only reads; the user's cache; NVRTC. An entry of the system cache serves whichever NVRTC
 * made it, and needs none installed; so does the user's cache offline, or where there is no NVRTC.
 * Both folders must belong to the user or (the system cache) to root, writable by nobody else.
 *
 * Offline mode (options.offline, or LATHE_OFFLINE set to anything but "" and "0") forbids compiling:
 * lathe_kernel_get then fails with COMPILE for a kernel that is in no cache, and the text holds the
 * `lathe compile` and `lathe aot` lines that would provide it. The host device is not affected.
 */
#ifndef LATHE_H
#define LATHE_H

#include "lathe_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lathe_ctx lathe_ctx;       /* one device and its cache */
typedef struct lathe_spec lathe_spec;     /* a checked spec */
typedef struct lathe_kernel lathe_kernel; /* spec x head dims x dtypes x device */

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
    int offline;                  /* 1: never compile; 0: as LATHE_OFFLINE says */
    const char *system_cache_dir; /* NULL: $LATHE_SYSTEM_CACHE_DIR, /usr/share/lathe/cache; "": none */
    int deterministic;            /* 1: backward kernels give the same bits from run to run; on a GPU packed
                                     sequences (cu_q, used_kv) have no gradients of inputs then.
                                     LATHE_BATCH_INVARIANT: so do all kernels, and what a sequence or a row
                                     gets has the same bits whatever else is in the batch; what cannot promise
                                     that is refused (specs/reference/batch.md) */
} lathe_options;
#define LATHE_OPTIONS_INIT                                                                                   \
    {                                                                                                        \
        LATHE_DEVICE_AUTO, NULL, 0, 0, NULL, NULL, 0, NULL, 0                                                \
    }

/* Open a device. Retains the device's primary CUDA context, shared with the CUDA runtime and torch.
   Errors: ARG (an option, no such device), CUDA (a library is missing: says which and what still
   works), MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_ctx_create(lathe_ctx **out, const lathe_options *options,
                                                    lathe_error *err);
/* The same for programs that may meet a later library: pass sizeof(lathe_options) as `size`. A shorter record
   than the library's: missing fields are 0. A longer one: the extra bytes must be 0. lathe_ctx_create reads
   the fields of version 0.1 alone. Errors: also ARG (a size that holds no device, extra bytes that are set).
 */
LATHE_API LATHE_CHECK lathe_status lathe_ctx_open(lathe_ctx **out, const lathe_options *options, size_t size,
                                                  lathe_error *err);
LATHE_API void lathe_ctx_destroy(lathe_ctx *ctx);
/* The device, and its name: "NVIDIA H100 80GB HBM3", "host (double precision)". The name lives as long as the
   context. */
LATHE_API int lathe_ctx_device(const lathe_ctx *ctx); /* CUDA ordinal or LATHE_DEVICE_HOST */
LATHE_API const char *lathe_ctx_device_name(const lathe_ctx *ctx);

/* Load and check a spec: from a file, or from text with a name, which messages and the comments of
   generated text show (no control characters). `size`: bytes of the text, which need not end with a 0. A path
   without a slash that names a shipped spec ("causal") loads that one. Errors: SPEC (file, line and what to
   write instead, up to ten mistakes), MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_spec_load(lathe_spec **out, const char *path, lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_spec_parse(lathe_spec **out, const char *name, const char *text,
                                                    size_t size, lathe_error *err);
LATHE_API void lathe_spec_destroy(lathe_spec *spec);

/* A number in the place of the default of a spec's parameter: local W = param("W", 256). It is folded like
   any constant. */
typedef struct lathe_param {
    const char *name;
    double value;
} lathe_param;

/* Either of both with parameters. text NULL: a path or the name of a shipped spec, as lathe_spec_load takes
   it. Errors: also SPEC, where the spec has no parameter of a name, or wants a whole number. */
LATHE_API LATHE_CHECK lathe_status lathe_spec_open(lathe_spec **out, const char *name, const char *text,
                                                   size_t size, const lathe_param *params, int n,
                                                   lathe_error *err);

/* Can these arguments be served? Data pointers may be NULL. Errors: ARG (name, expected, given),
   UNSUPPORTED (the reason of every template, a line each). Compiles nothing. */
LATHE_API LATHE_CHECK lathe_status lathe_supported(lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                                                   const lathe_arg *args, int n, lathe_error *err);

/* Build or fetch the kernel for arguments of these dtypes and head dims (data pointers may be NULL, and then
   count as aligned to 16 bytes).
   The first time compiles, about a second; later ones are a hash lookup. Threads and processes that
   ask for one kernel at the same time compile it once. Kernels of one pass are compiled at the same time by
   threads of the library's own, no more than the process has cores, which are gone when this returns, take no
   signals and call nothing of the caller's. Not for use during stream capture.
   A process that forks while another thread is in here gives its child locks that nobody will ever open, as
   of any library with threads: until it calls exec or _exit, such a child may hang in this library, in NVRTC,
   in the CUDA driver or in malloc. A child forked while no thread is in here may use host contexts of its
   own; CUDA contexts do not survive a fork at all.
   Errors: ARG, UNSUPPORTED, COMPILE (also: compiling is forbidden and no cache has it), CUDA, MEMORY. */
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
   Where the tiles of a mask are decided once a launch, by a kernel of their own (`lathe explain` says so),
   the spec takes an optional i32 argument "mask_kept". mask_kept = 1 reuses the tile map that an earlier
   launch of this kernel left in the workspace. Valid only if sizes, q_start and all that the mask reads are
   unchanged; nothing checks that, and a stale map gives wrong results or reads out of bounds. The host device
   takes the argument and has no map.
   Results are overwritten, never added to. Errors: ARG (names the argument, expected and given), CUDA. */
LATHE_API LATHE_CHECK lathe_status lathe_launch(const lathe_kernel *kernel, const lathe_arg *args, int n,
                                                void *workspace, lathe_stream stream, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
