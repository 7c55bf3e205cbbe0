/*
 * kernel.h: one kernel from a loaded spec to texts: lower, plan, emit.
 */
#ifndef LATHE_GEN_PIPELINE_KERNEL_H
#define LATHE_GEN_PIPELINE_KERNEL_H

#include "gen/plan/request.h"

struct source;
struct text_buf;

/* A request that is lowered; plan_pick of pick.h and emit of source.h take it from there, as often as wanted.
   The caller frees it with kernel_close, which a request that was not opened may see, too. Errors: MEMORY.
   That no kernel computes it is said by plan_pick. */
lathe_status kernel_open(struct kernel_request *out, const struct ir *ir, lathe_pass pass,
                         const struct signature *sig, const struct problem *problem,
                         const struct device *device, lathe_error *err);
void kernel_close(struct kernel_request *r);

/* All of it at once: which template, which texts. Errors: UNSUPPORTED, with the reason of every template;
 * MEMORY. */
lathe_status kernel_make_source(const struct ir *ir, lathe_pass pass, const struct signature *sig,
                                const struct problem *problem, const struct device *device,
                                struct source *out, lathe_error *err);

/* The pool after each pass of lowering, as text; what no kernel computes is its last line. Errors: MEMORY. */
lathe_status kernel_print_passes(struct ir *ir, lathe_pass pass, const struct signature *sig,
                                 const struct problem *problem, const struct device *device,
                                 struct text_buf *out, lathe_error *err);

/* The line of the first formula that would come out otherwise in a call with a part of the tokens; -1: none;
   0: no memory. */
int kernel_counting_line(const struct ir *ir);

#endif
