/*
 * explain.h: what would run for a problem, and why, as facts.
 */
#ifndef LATHE_GEN_EXPLAIN_H
#define LATHE_GEN_EXPLAIN_H

#include "lathe_types.h"

struct facts;
struct ir;
struct kernel_request;
struct plan;
struct problem;
struct signature;
struct source;
struct text_buf;

/* The spec, its arguments and the problem. */
void explain_problem(struct facts *f, const struct ir *ir, lathe_pass pass, const struct signature *sig,
                     const struct problem *p);
/* A plan: its template, tiles and reason; then, where there are any, the templates before it that refused. */
void explain_plan(struct facts *f, const struct kernel_request *r, const struct plan *plan);
void explain_refusals(struct facts *f, const struct kernel_request *r);
/* Every template with columns of what it serves, as items of a list in Markdown:
 * specs/reference/templates.md. */
void explain_templates(struct text_buf *out);
/* No template serves: `why` has a line for each. */
void explain_unserved(struct facts *f, const char *why);
/* Its kernels, their workspace, and how busy they keep the device. */
void explain_kernels(struct facts *f, const struct kernel_request *r, const struct plan *plan,
                     const struct source *source);

#endif
