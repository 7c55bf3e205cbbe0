/*
 * launch.h: recipe x arguments -> blocks of parameters -> launches.
 */
#ifndef LATHE_RT_LAUNCH_H
#define LATHE_RT_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "lathe.h"
#include "runtime/launch/module.h"
#include "runtime/recipe/bind.h"

enum { PARAM_BLOCK_BYTES = 4096 };

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
/* Was the kernel built for such arguments? Errors ARG. */
lathe_status lathe__check_built(const struct callable *c, const struct problem *given, lathe_error *err);
/* Check that these arguments, which came to the problem `given`, fit the kernel, and enqueue it. Errors ARG,
   UNSUPPORTED, CUDA. */
lathe_status lathe__launch_checked(const struct callable *c, const struct problem *given,
                                   const lathe_arg *args, int n, const void *workspace, lathe_stream stream,
                                   lathe_error *err);

#endif
