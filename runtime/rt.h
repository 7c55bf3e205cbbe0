/*
 * rt.h: what the rooms of runtime/ share: the doors in the order a kernel passes them, and what the
 * tool `lathe` needs beside the public API. No CUDA header is included anywhere: types, constants
 * and prototypes of the driver and of NVRTC that we use are declared here and in driver.def.
 * Internal names end up in users' static libraries and are therefore prefixed lathe__.
 */
#ifndef LATHE_RT_H
#define LATHE_RT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lathe.h"
#include "../gen/source.h"

enum { PATH_BYTES = 1024, KEY_BYTES = 32, KEY_TEXT_BYTES = 2 * KEY_BYTES + 1, PARAM_BLOCK_BYTES = 4096 };

/* ---- error.c ----------------------------------------------------------------------------------- */

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        lathe_status try_status = (call);                                                                    \
        if (try_status != LATHE_OK)                                                                          \
            return try_status;                                                                               \
    } while (0)

/* lathe__fail and lathe__say are in source.h: the generator has them too. */
lathe_status lathe__fail_at(lathe_error *err, lathe_status status, const char *file, int line,
                            const char *fmt, ...) __attribute__((format(printf, 5, 6)));
lathe_status lathe__fail_memory(lathe_error *err);
void lathe__error_clear(lathe_error *err);

struct reporter { /* the log callback of a context; log NULL: silent */
    lathe_log_fn *log;
    void *user;
};
void lathe__report(const struct reporter *r, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- sha256.c: FIPS 180-4 ---------------------------------------------------------------------- */

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};
void lathe__sha256_start(struct sha256 *s);
void lathe__sha256_add(struct sha256 *s, const void *data, size_t size);
void lathe__sha256_finish(struct sha256 *s, unsigned char digest[KEY_BYTES]);

/* ---- environ.c: the one place that reads the environment --------------------------------------- */

struct environment {
    char cache_dir[PATH_BYTES];        /* "" where no home is known: memory only */
    char cuda_home[PATH_BYTES];        /* "" where not set */
    char system_cache_dir[PATH_BYTES]; /* "" where switched off */
    bool system_cache_named;           /* by the environment: that it is missing is worth a warning */
    bool offline;
    char template_name[256]; /* to plan with, where they serve; "": any */
};
/* For lathe_ctx_create and for the tool's main; nothing else calls it. */
void lathe__environment_read(struct environment *out);

/* ---- driver.c: libcuda -------------------------------------------------------------------------- */

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
#include "driver.def"
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

/* ---- memory.c: device memory and timing for the tool --------------------------------------------- */

/* The context must be current. Synchronous. bytes 0: *out is NULL. Errors CUDA. */
lathe_status lathe__device_alloc(const struct driver *driver, void **out, size_t bytes, lathe_error *err);
void lathe__device_free(const struct driver *driver, void *data);
lathe_status lathe__device_upload(const struct driver *driver, void *to, const void *from, size_t bytes,
                                  lathe_error *err);
lathe_status lathe__device_download(const struct driver *driver, void *to, const void *from, size_t bytes,
                                    lathe_error *err);
/* Wait for all work of the context: errors of earlier launches appear here. */
lathe_status lathe__device_wait(const struct driver *driver, lathe_error *err);

struct stopwatch { /* device time between two points of a stream */
    struct CUevent_st *from;
    struct CUevent_st *to;
};
lathe_status lathe__stopwatch_create(const struct driver *driver, struct stopwatch *out, lathe_error *err);
void lathe__stopwatch_destroy(const struct driver *driver, struct stopwatch *s);
lathe_status lathe__stopwatch_start(const struct driver *driver, const struct stopwatch *s,
                                    lathe_stream stream, lathe_error *err);
/* Waits for the work in between; *seconds is what it took. */
lathe_status lathe__stopwatch_stop(const struct driver *driver, const struct stopwatch *s,
                                   lathe_stream stream, double *seconds, lathe_error *err);

/* ---- compile.c: NVRTC and the bundlers ---------------------------------------------------------- */

struct nvrtc_program;
struct nvfatbin;
enum { MAX_KNOWN_ARCHS = 64 };

struct compiler {
    void *nvrtc;
    void *nvfatbin; /* NULL: not found */
    int major;
    int minor;
    char identity[64];     /* "nvrtc 13.0 109338064": version and size of the library file, for the key */
    char path[PATH_BYTES]; /* of the library's file, "" where the loader does not say */
    char fatbinary[PATH_BYTES]; /* the toolkit's program, "" where not found */
    int n_archs;
    int arch[MAX_KNOWN_ARCHS]; /* 75, 80, ... ascending */
#define CUDA_ENTRY(name, version, required, params)
#define NVRTC_ENTRY(name, params)    int(*name) params;
#define NVFATBIN_ENTRY(name, params) int(*name) params;
#include "driver.def"
#undef CUDA_ENTRY
#undef NVRTC_ENTRY
#undef NVFATBIN_ENTRY
};

/* Find and open NVRTC, and nvFatbin or `fatbinary` where there is one. `driver_version` (12080; 0: unknown)
   puts a library of the driver's own major version first. Errors CUDA: what is missing, where it was looked
   for. */
lathe_status lathe__compiler_open(struct compiler **out, const char *cuda_home, int driver_version,
                                  lathe_error *err);
void lathe__compiler_close(struct compiler *compiler);

/* The arch to compile for: `arch` itself, or, where this NVRTC does not know it, "compute_NN" of the newest
   it knows below (PTX, finished by the driver; *substituted is set). Errors UNSUPPORTED: none is old enough.
 */
lathe_status lathe__compiler_arch(const struct compiler *compiler, const char *arch, char out[16],
                                  bool *substituted, lathe_error *err);

enum { MAX_OPTIONS = 8, OPTION_BYTES = 48 };
/* Options for one arch, in order. Returns how many. */
int lathe__compile_options(const char *arch, char options[MAX_OPTIONS][OPTION_BYTES]);

/* Compile for every arch ("sm_90a", "sm_80", "compute_90") and bundle: cubins, plus PTX for archs that run
   forward (no 'a' suffix). *image is a fatbin; one bare cubin where no bundler was found (*log says so).
   *log: what the compiler and the bundler said, never NULL on success. Both are malloc'd, the caller's. `log`
   may be NULL. Errors: COMPILE (file, line, text of the first error), MEMORY. */
lathe_status lathe__compile(const struct source *source, const char *const *archs, int n_archs,
                            unsigned char **image, size_t *size, char **log, const struct compiler *compiler,
                            lathe_error *err);

/* bundle.c: several pieces -> one image. */
struct piece {
    bool ptx;
    char arch[16]; /* "90a": without the prefix */
    char *data;
    size_t size; /* of PTX: with the final zero */
};
lathe_status lathe__bundle(const struct compiler *compiler, const struct piece *piece, int n,
                           unsigned char **image, size_t *size, const char **how, lathe_error *err);
enum { WHOLE_TEXT = -1 };
/* Compile one part of a source (or WHOLE_TEXT) for one arch: its cubin, and PTX where the arch runs forward,
   are appended to pieces[*n]; their data, and *log, are malloc'd, the caller's also on failure. May run on
   several threads at once. Errors: COMPILE, MEMORY. */
lathe_status lathe__compile_arch(const struct compiler *compiler, const struct source *source,
                                 const char *arch, int part, struct piece *pieces, int *n, char **log,
                                 lathe_error *err);
const char *lathe__image_kind(const unsigned char *image,
                              size_t size); /* "fatbin", "cubin", "PTX", "unknown" */

/* ---- parts.c, images.c: kernels of one text, compiled at the same time -------------------------------- */

struct image { /* a view */
    const unsigned char *data;
    size_t size;
};
/* Are there parts, more than one core, and a compiler that works in several threads at once? */
bool lathe__parts_pay(const struct compiler *compiler, const struct source *source);
/* Compile each part of a source on a thread of its own, as many as there are cores; *image is a set of their
   images. For a source with parts. Otherwise as lathe__compile for one arch; `log` may not be NULL. */
lathe_status lathe__compile_parts(const struct compiler *compiler, const struct source *source,
                                  const char *arch, unsigned char **image, size_t *size, char **log,
                                  lathe_error *err);
/* One run of bytes for n images, malloc'd; NULL: no memory. Of one image: its own bytes. */
unsigned char *lathe__images_join(const struct image *image, int n, size_t *size);
bool lathe__images_is_set(const unsigned char *bytes, size_t size);
/* Views of the images in it; returns how many, 0: it is damaged. What is no set is one image. */
int lathe__images_split(const unsigned char *bytes, size_t size, struct image out[MAX_COMPILED_PARTS]);

/* ---- cache.c, entry.c: compiled code on disk ---------------------------------------------------- */

enum { CACHE_FORMAT = 1, CACHE_LABEL_BYTES = 128, CACHE_HEADER_BYTES = 224, CACHE_LABEL_AT = 64 };

struct cache_blob { /* image, log and readable are malloc'd: lathe__blob_free */
    unsigned char *image;
    size_t image_size;
    char *log;
    size_t log_size;
    char label[CACHE_LABEL_BYTES];
    char *readable; /* source text for people, stored beside the entry; NULL after a read */
    size_t readable_size;
};
void lathe__blob_free(struct cache_blob *blob);

/* Key of what would be compiled: format number, compiler identity, options in order, and the length-prefixed
   names and bytes of every text. */
void lathe__key_make(const struct source *source, const char (*options)[OPTION_BYTES], int n_options,
                     const char *compiler_identity, unsigned char key[KEY_BYTES]);
/* Numbers in files: little-endian whatever the host. */
void lathe__store_le(unsigned char *p, uint64_t value, int bytes);
uint64_t lathe__load_le(const unsigned char *p, int bytes);
void lathe__key_text(const unsigned char key[KEY_BYTES], char out[KEY_TEXT_BYTES]);

/* Parse one entry. False: short, long, foreign, corrupt, or of another key (key NULL: any). Pointers of *out
   point into `data`; nothing is allocated. */
struct entry_view {
    const unsigned char *key;
    const unsigned char *image;
    size_t image_size;
    const char *log;
    size_t log_size;
    char label[CACHE_LABEL_BYTES];
};
bool lathe__entry_parse(const unsigned char *data, size_t size, const unsigned char *key,
                        struct entry_view *out);
/* Header and digest of an entry for this blob. */
void lathe__entry_header(const struct cache_blob *blob, const unsigned char key[KEY_BYTES],
                         unsigned char header[CACHE_HEADER_BYTES]);

struct cache {
    int dir_fd; /* -1: memory only */
    char path[PATH_BYTES];
    uint64_t budget; /* bytes */
    bool read_only;
    unsigned file_mode; /* of new files: 0600, readable by whom the folder is */
    int lock_wait_ms;   /* after that long, compile although another process may be at it */
    atomic_flag warned; /* one warning for a cache, not one for a kernel */
    struct reporter report;
};
/* Open or create the directory. Never fails: a directory that cannot be used is memory only, with one
   warning. `path` "" : memory only. `budget` 0: 1 GiB. */
void lathe__cache_open(struct cache *cache, const char *path, uint64_t budget, bool read_only,
                       struct reporter report);
/* The same for a folder that others are to read, of a package or an image: created with mode 0755, and never
   evicted from. */
void lathe__cache_open_shared(struct cache *cache, const char *path, struct reporter report);
/* One that is searched and never written. A folder that is not there is worth a warning only if `named`. */
void lathe__cache_open_system(struct cache *cache, const char *path, bool named, struct reporter report);
void lathe__cache_close(struct cache *cache);

/* Builds what is missing; called at most once by lathe__cache_get. */
typedef lathe_status lathe__build_fn(void *user, struct cache_blob *out, lathe_error *err);
/* Read the entry of `key`; where there is none (or a broken one), build it under the lock of that key and
   store it. Only `build` can fail: trouble with the disk costs a warning. *hit (may be NULL): it came from
   the disk. */
lathe_status lathe__cache_get(struct cache *cache, const unsigned char key[KEY_BYTES], lathe__build_fn *build,
                              void *user, struct cache_blob *out, bool *hit, lathe_error *err);
/* A small file of another name, for notes; at most `size` bytes are read. Returns how many, 0 where there is
 * none. */
size_t lathe__cache_note_read(struct cache *cache, const char *name, char *data, size_t size);
void lathe__cache_note_write(struct cache *cache, const char *name, const char *data, size_t size);

/* note.c: what is known about the compiler (identity, archs) without opening it, which takes longer than all
   else of a warm start. *out has no entry points. False: nothing is noted, or not about this environment, or
   the library's file is another by now. */
bool lathe__compiler_note_read(struct cache *cache, const char *cuda_home, int driver_version,
                               struct compiler *out);
void lathe__compiler_note_write(struct cache *cache, const char *cuda_home, int driver_version,
                                const struct compiler *compiler);
#define COMPILER_NOTE "compiler"
#define MAKER_PREFIX  "nvrtc-"

/* Makers: for every compiler that made entries of a cache, a file with its identity and archs, so that the
   entries are found where that compiler is not installed. */
enum { MAX_MAKERS = 16, MAKER_NAME_BYTES = 72, MAKER_BYTES = 512 };
bool lathe__maker_name(const char *identity, char out[MAKER_NAME_BYTES]); /* false: not an identity */
bool lathe__maker_parse(const char *name, const char *data, size_t size, struct compiler *out);
/* Returns an errno, 0 also where it was there. A cache that is not written returns 0 and does nothing. */
int lathe__maker_write(struct cache *cache, const struct compiler *compiler);
/* The newest first; *out is malloc'd, the caller's, and has no entry points. Returns how many. */
int lathe__makers_read(struct cache *cache, struct compiler **out);
/* The code of `source` for the device's arch, made by any of the cache's makers whose major version the
   driver takes (`driver_version` 0: any). `key` and `arch` are those of the entry that was found. */
bool lathe__cache_find_made(struct cache *cache, const struct source *source, const char *device_arch,
                            int driver_version, unsigned char key[KEY_BYTES], char arch[16],
                            struct cache_blob *out);

/* A whole file of the cache, malloc'd; NULL: not there, not ours, not plain. */
unsigned char *lathe__cache_file_read(const struct cache *cache, const char *name, size_t *size);
/* Temporary sibling, fsync, rename. Returns an errno; EROFS where the cache is not written. */
int lathe__cache_file_write(const struct cache *cache, const char *name, const void *data, size_t size);

/* The two halves, for tests. */
bool lathe__cache_read(struct cache *cache, const unsigned char key[KEY_BYTES], struct cache_blob *out);
bool lathe__cache_store(struct cache *cache, const unsigned char key[KEY_BYTES],
                        const struct cache_blob *blob);
/* Remove least recently used entries until the budget holds; stale temporaries too. Returns entries removed.
 */
int lathe__cache_evict(struct cache *cache);

/* For `lathe cache`. Items are sorted, most recently used first. */
struct cache_item {
    char key[KEY_TEXT_BYTES];
    char label[CACHE_LABEL_BYTES]; /* "" where the entry is broken or was not read */
    uint64_t bytes;                /* entry and source */
    int64_t used;                  /* seconds since 1970 */
    int64_t used_ns;
    bool has_entry; /* false: only a source text is left */
    bool broken;    /* after lathe__cache_verify */
};
struct cache_list {
    int n;
    struct cache_item *item; /* lathe__cache_list_free */
    uint64_t bytes;
    int n_temporary; /* files of writers that are at work, or died */
};
/* Errors: CACHE (cannot be read), MEMORY. A cache that is memory only lists nothing. */
lathe_status lathe__cache_list(struct cache *cache, struct cache_list *out, lathe_error *err);
/* The same, with every entry read and its digest checked: broken ones are marked, and removed unless
 * read-only. */
lathe_status lathe__cache_verify(struct cache *cache, struct cache_list *out, lathe_error *err);
void lathe__cache_list_free(struct cache_list *list);
/* Remove everything. *removed counts entries. Errors: CACHE. */
lathe_status lathe__cache_clear(struct cache *cache, int *removed, lathe_error *err);
/* Names of files that begin with `prefix`, at most `most`, in no order. Returns how many. */
int lathe__cache_names(const struct cache *cache, const char *prefix, char (*out)[MAKER_NAME_BYTES],
                       int most);
void lathe__key_from_text(const char *text, unsigned char key[KEY_BYTES]);

/* ---- tuned.c: choices that `lathe tune` measured, a file each in the cache ------------------------ */

#define TUNED_PREFIX "tuned-"
enum { TUNED_BYTES = 512, MAX_TUNED = 4096 };
struct tuned {
    char template_name[24];
    char tile[24];   /* "": the template has one */
    double seconds;  /* of a launch */
    char device[96]; /* where that was measured */
    char label[128]; /* of the kernel, for people */
};
/* `holds`: the text of what it holds for (tuning_text). False: nothing is known, or it is damaged. */
bool lathe__tuned_read(struct cache *cache, const char *holds, size_t size, struct tuned *out);
/* 0, or an errno. */
int lathe__tuned_write(struct cache *cache, const char *holds, size_t size, const struct tuned *tuned);
bool lathe__tuned_parse(const char *data, size_t size, struct tuned *out);
bool lathe__tuned_is_name(const char *name);

/* ---- pack.c, move.c: a cache as one file --------------------------------------------------------- */

enum { PACK_FORMAT = 1, PACK_HEADER_BYTES = 64, PACK_HEAD_BYTES = 128, PACK_NAME_BYTES = 80 };
enum pack_kind {
    PACK_ENTRY,
    PACK_READABLE,
    PACK_MAKER,
    PACK_TUNED
};                   /* KEY.bin, KEY.cu, nvrtc-..., tuned-... */
struct pack_record { /* points into the bytes of the pack */
    enum pack_kind kind;
    char name[PACK_NAME_BYTES];
    const unsigned char *data;
    size_t size;
};
struct pack { /* a reader: lathe__pack_open, then lathe__pack_next until it returns 0 */
    const unsigned char *data;
    size_t size;
    size_t at;
    uint32_t left;
    struct sha256 digests; /* of the records that were read */
};
/* False: *why says what is wrong, without a full stop. */
bool lathe__pack_open(struct pack *pack, const unsigned char *data, size_t size, const char **why);
/* 1: a record, sound in itself; 0: the end, and the whole is sound; -1: *why. */
int lathe__pack_next(struct pack *pack, struct pack_record *out, const char **why);
/* The head of a record, PACK_HEAD_BYTES, with the digest of all of it. */
void lathe__pack_head(const char *name, const void *data, size_t size, unsigned char head[PACK_HEAD_BYTES]);
/* The header of a pack of n records. `digests` has their digests added in order. */
void lathe__pack_header(uint32_t n, uint64_t file_bytes, const struct sha256 *digests,
                        unsigned char header[PACK_HEADER_BYTES]);

struct move_report {
    int moved;      /* kernels written: to the file, or into the cache */
    int there;      /* import: kernels that the cache had */
    int broken;     /* export: entries that are damaged and were left out */
    uint64_t bytes; /* of the file */
};
/* Errors: CACHE (a sentence with the file or the entry), MEMORY. The file is there as a whole or not at
   all. */
lathe_status lathe__cache_export(struct cache *cache, const char *path, struct move_report *out,
                                 lathe_error *err);
/* The file is verified as a whole before anything is written. Errors: ARG (not a pack, damaged, cannot be
   read), CACHE (cannot be written), MEMORY. */
lathe_status lathe__cache_import(struct cache *cache, const char *path, struct move_report *out,
                                 lathe_error *err);

/* ---- module.c: image -> functions --------------------------------------------------------------- */

struct map_slot;
struct module { /* immutable once loaded, but for the slots */
    const struct driver *driver;
    int n_handles;
    struct CUmod_st *handle[MAX_COMPILED_PARTS]; /* one for each image */
    struct CUfunc_st *function[MAX_LAUNCHES];
    int registers[MAX_LAUNCHES];
    int local_bytes[MAX_LAUNCHES]; /* stack and spills of one thread */
    int resident[MAX_LAUNCHES]; /* of kernels whose clusters take their work in turn: blocks that run at once;
                                   0: not known */
    bool early[MAX_LAUNCHES];   /* kernels that may begin before the launch before them is done, here */
    bool from_disk;
    bool from_system;                    /* from the system cache */
    struct map_slot *slot[MAX_LAUNCHES]; /* of each kernel's tensor maps; NULL: none */
};
/* The driver's context must be current; 1 to MAX_COMPILED_PARTS images, whose sizes are not looked at. Errors
   CUDA, MEMORY. */
lathe_status lathe__module_load(struct module **out, const struct driver *driver, const struct image *image,
                                int n_images, const struct source *source, lathe_error *err);
void lathe__module_unload(struct module *module);
void lathe__module_drop(void *module); /* the same, for a table of modules */

/* ---- launch.c: recipe x arguments -> blocks of parameters --------------------------------------- */

struct bound_args { /* by number of the signature's argument; NULL: absent */
    const lathe_arg *arg[MAX_ARGS];
};
/* Errors ARG: unknown name, named twice. */
lathe_status lathe__args_bind(const struct signature *sig, const lathe_arg *args, int n,
                              struct bound_args *out, lathe_error *err);
/* Elements between neighbours in dim `dim` of argument `arg`; 0 where absent or of size 1. */
int64_t lathe__arg_stride(const struct signature *sig, const struct bound_args *bound, int arg, int dim);
/* What kernels take beyond what a signature says: lengths below 2^24, no f64. Errors ARG,
   UNSUPPORTED. */
lathe_status lathe__args_fit_gpu(const struct signature *sig, const struct problem *problem,
                                 const struct bound_args *bound, lathe_error *err);
/* Offset of each buffer of the workspace; returns its bytes. */
size_t lathe__workspace_layout(const struct source *source, const struct problem *problem,
                               size_t offset[MAX_BUFFERS]);
/* Fill the parameter block of one kernel (PARAM_BLOCK_BYTES, 16-byte aligned). Pure: no driver. Errors ARG.
 */
lathe_status lathe__params_fill(const struct launch *launch, const struct signature *sig,
                                const struct problem *problem, const struct bound_args *bound,
                                const char *workspace, const size_t *work_offset, unsigned char *block,
                                lathe_error *err);
/* tensor_map.c: the tensor maps of a block whose other fields are filled; it is aligned to 64 bytes. `slots`:
   of this kernel, where maps are kept for other launches, on other threads as well; NULL: nothing is. Errors:
   ARG, CUDA. */
lathe_status lathe__maps_fill(const struct driver *driver, const struct launch *launch,
                              const struct problem *problem, struct map_slot *slots, unsigned char *block,
                              lathe_error *err);
/* Slots for n maps, malloc'd; *out is NULL where n is 0. Errors: MEMORY. */
lathe_status lathe__map_slots(struct map_slot **out, int n, lathe_error *err);
/* Blocks of one kernel; 0: nothing to do. Errors ARG: more than a grid can hold. */
lathe_status lathe__grid_size(const struct launch *launch, const struct problem *problem, unsigned *out,
                              lathe_error *err);
/* Enqueue every kernel of the recipe. Errors ARG, CUDA. */
lathe_status lathe__launch_all(const struct module *module, struct CUctx_st *context,
                               const struct source *source, const struct signature *sig,
                               const struct problem *problem, const struct bound_args *bound,
                               const void *workspace, lathe_stream stream, lathe_error *err);

/* A kernel as a launch sees it, wherever it came from. */
struct callable {
    const struct signature *sig;
    uint64_t presence;           /* lathe__built_presence */
    const struct problem *built; /* what it was compiled for */
    const struct source *source;
    const struct module *module;
    struct CUctx_st *context;
};
/* Check that these arguments, which came to the problem `given`, fit the kernel, and enqueue it. Errors ARG,
   UNSUPPORTED, CUDA. */
lathe_status lathe__launch_checked(const struct callable *c, const struct problem *given,
                                   const lathe_arg *args, int n, const void *workspace, lathe_stream stream,
                                   lathe_error *err);

/* ---- aot.c: libraries made by `lathe aot` (their data: aot.h) ------------------------------------- */

struct aot_kernel;
struct aot_variant;
/* What of a problem is compiled in: "dtype=bf16,d=64,d_v=128,bias=none". Appended. */
void lathe__aot_problem_text(const struct signature *sig, const struct problem *p, struct phrase *out);
/* NULL: none runs on the device. */
const struct aot_variant *lathe__aot_pick_variant(const struct aot_kernel *kernel,
                                                  const struct device *device);
struct lathe_kernel_set;
/* Members of the generated struct that are given, in the order of the signature. Returns how many. */
int lathe__aot_args(const struct lathe_kernel_set *set, const void *args, lathe_arg out[MAX_ARGS]);
/* lathe_set_launch with a driver of the caller's; NULL: the process's own. */
lathe_status lathe__set_launch_on(const struct driver *driver, const struct lathe_kernel_set *set, int kernel,
                                  const void *args, void *workspace, lathe_stream stream, lathe_error *err);

/* ---- flight.c: a table in which each value is built once ---------------------------------------- */

enum { FLIGHT_KEY_BYTES = 144, FLIGHT_BUCKETS = 256 };
struct flight_slot;
struct flight {
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct flight_slot *bucket[FLIGHT_BUCKETS];
};
void lathe__flight_init(struct flight *f);
/* Free all slots; `drop` is called for each value. No thread may be inside. */
void lathe__flight_destroy(struct flight *f, void (*drop)(void *value));
/* LATHE_OK and *value: it is there (built now by another thread, perhaps). LATHE_OK and *value NULL: the
   caller has to build it and to call lathe__flight_end with *slot. Other: the builder failed, with its error.
   `key` is FLIGHT_KEY_BYTES long, zero-padded. */
lathe_status lathe__flight_begin(struct flight *f, const unsigned char *key, void **value,
                                 struct flight_slot **slot, lathe_error *err);
/* value NULL: failed with `status` and *err; the slot is removed, so that a later call tries again. */
void lathe__flight_end(struct flight *f, struct flight_slot *slot, void *value, lathe_status status,
                       const lathe_error *err);

/* ---- jit.c: the driver of it all, one of two files that see gen/ -------------------------------- */

struct plan;

struct lathe_ctx {
    atomic_int references; /* the user's, and one of every kernel */
    int ordinal;           /* or LATHE_DEVICE_HOST */
    char name[128];
    struct device device;
    struct reporter report;
    char cuda_home[PATH_BYTES];
    struct driver *driver; /* NULL: host */
    struct CUctx_st *context;
    int cu_device;
    pthread_mutex_t compiler_lock;
    struct compiler *compiler; /* opened when first needed, by compiler_lock */
    bool note_tried;
    struct compiler *noted; /* what is known about it before; NULL: nothing */
    struct cache cache;
    struct cache system_cache; /* searched before it, never written */
    bool offline;              /* nothing is compiled */
    bool deterministic;        /* of backward kernels */
    struct flight kernels;     /* by what is compiled in */
    struct flight modules;     /* by content key */
};
/* build.c: what one kernel is compiled from, on its way to a module. */
struct module_work {
    struct lathe_ctx *ctx;
    const struct source *source;
    const char *arch;
    const char *identity;     /* of the compiler that the key names */
    struct cache_blob *found; /* the code, where a cache had it: no other is looked for */
    bool from_system;
};
/* NVRTC itself, opened once. Errors CUDA: what is missing. */
lathe_status lathe__ctx_compiler(struct lathe_ctx *ctx, const struct compiler **out, lathe_error *err);
/* Its version and archs, without opening it where an earlier process has noted them; no entry points. */
lathe_status lathe__ctx_compiler_known(struct lathe_ctx *ctx, const struct compiler **out, lathe_error *err);
/* The module of a key: two specs that come to the same texts share it. Errors: CACHE (the compiler is not the
   one that was noted), COMPILE, CUDA, MEMORY. */
lathe_status lathe__module_get(struct module_work *w, const unsigned char key[KEY_BYTES],
                               const struct module **out, lathe_error *err);
/* One reference less; the last one frees all. */
void lathe__ctx_release(struct lathe_ctx *ctx);
void lathe__kernel_drop(void *kernel); /* the same for a kernel, as a table holds it */

struct lathe_kernel {
    atomic_int references;
    struct lathe_ctx *ctx;
    struct lathe_spec *spec;
    lathe_pass pass;
    const struct signature *sig; /* the spec's */
    struct source *source;       /* NULL on the host device */
    struct plan *plan;
    const struct module *module; /* the context's */
    struct problem built; /* what it was built for: dtypes, compiled-in dims, inputs that are present */
    bool is_tuned;        /* the plan is one that was measured */
    struct tuned tuned;
    unsigned char key[KEY_BYTES];
    char *info;
};
/* Compile for one arch into a blob with log, label and readable text: what a miss of the cache builds. */
lathe_status lathe__build_blob(const struct compiler *compiler, const struct source *source, const char *arch,
                               struct cache_blob *out, lathe_error *err);
/* For the tool: what a kernel was made of; NULL on the host device. Lives as long as the kernel. */
const struct source *lathe__kernel_source(const lathe_kernel *kernel);

#endif
