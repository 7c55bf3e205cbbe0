/*
 * jit.h: contexts, kernels, and the way of a source to a module.
 */
#ifndef LATHE_RT_JIT_H
#define LATHE_RT_JIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/cache/makers.h"
#include "runtime/cache/tuned.h"
#include "runtime/jit/flight.h"
#include "runtime/launch/launch.h"

struct ir;
struct plan;

struct lathe_ctx {
    atomic_int references; /* the user's, and one of every kernel */
    int ordinal;           /* or LATHE_DEVICE_HOST */
    char name[128];
    struct device device;
    struct reporter report;
    char cuda_home[PATH_BYTES + 1];
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
    uint8_t deterministic;     /* enum determinism */
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
/* Compile for one arch into a blob with log, label and readable text: what a miss of the cache builds. */
lathe_status lathe__build_blob(const struct compiler *compiler, const struct source *source, const char *arch,
                               struct cache_blob *out, lathe_error *err);
/* api.c: one reference less; the last one frees all. */
void lathe__ctx_release(struct lathe_ctx *ctx);

struct lathe_spec {        /* spec.c */
    atomic_int references; /* the user's, and one of every kernel */
    struct ir *ir;
    struct signature sig[LATHE_COMBINE + 1]; /* by pass */
    uint64_t presence[LATHE_COMBINE + 1];    /* by pass: lathe__built_presence */
    bool shipped;
};
void lathe__spec_release(struct lathe_spec *spec);
/* One reference more. */
void lathe__spec_keep(const lathe_spec *spec);
/* May a call have some of the queries alone? False: *line of the spec reads places that such a call counts
   anew; 0: no memory. */
bool lathe__spec_by_query(const lathe_spec *spec, int *line);
/* Does it not read how many keys there are? False: *line of it does; 0: no memory. */
bool lathe__spec_without_length(const lathe_spec *spec, int *line);
/* Does no query of attention see a key behind it, whatever else the mask says? */
bool lathe__spec_is_causal(const lathe_spec *spec);
/* How a state of linear attention is carried over some tokens: enum carry of gen/linear/carry.h; -1: there is
 * none. square: there are as many value channels as key channels. */
int lathe__spec_carry(const lathe_spec *spec, bool square, bool *reverse, char *why, size_t size);
/* linear_reads_by_rows of gen/linear/carry.h. */
bool lathe__spec_reads_by_rows(const lathe_spec *spec, char *why, size_t size);

struct lathe_kernel { /* kernel.c */
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
/* What it was built for is `problem`; the rest is still empty. NULL: no memory. */
struct lathe_kernel *lathe__kernel_new(struct lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                                       const struct problem *problem);
void lathe__kernel_drop(void *kernel); /* one reference less, as a table of kernels drops it */
/* For the tool: what a kernel was made of; NULL on the host device. Lives as long as the kernel. */
const struct source *lathe__kernel_source(const lathe_kernel *kernel);

#endif
