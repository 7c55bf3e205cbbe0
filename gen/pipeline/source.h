/*
 * source.h: texts and the launch recipe of a kernel.
 */
#ifndef LATHE_GEN_PIPELINE_SOURCE_H
#define LATHE_GEN_PIPELINE_SOURCE_H

#include "lathe_types.h"

struct device;
struct ir;
struct kernel_request;
struct plan;
struct signature;
struct source;
struct text_buf;

/* Texts, entries and the launch recipe of a request that was lowered. Deterministic. Errors: UNSUPPORTED
   where it is too large for one kernel, MEMORY. */
lathe_status emit(const struct kernel_request *r, const struct plan *plan, struct source *out,
                  lathe_error *err);
/* One self-contained file that nvcc compiles: every text inlined once, in order. */
void emit_inline(const struct source *source, struct text_buf *out);
/* The same behind an opening comment for people: what it is, how it is compiled and launched. */
void emit_file(const struct source *source, const struct ir *ir, const struct signature *sig,
               const struct device *device, struct text_buf *out);

#endif
