/*
 * planner.h: the planners that rows of templates.c name, and what they share. Each fills the plan, or says
 * why not in `why` (REASON_BYTES).
 */
#ifndef LATHE_LINEAR_PLANNER_H
#define LATHE_LINEAR_PLANNER_H

#include "gen/plan/planner.h"

struct linear_plan;

bool plan_linear_recurrent(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_additive(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_delta(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_delta_sm90(const struct kernel_request *r, struct plan *plan, char *why);
int linear_delta_lengths(const struct problem *p, const struct device *device); /* its lengths */
bool plan_linear_keyed_delta(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_chunked_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_delta_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_delta_bwd_sm90(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_keyed_delta_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_additive_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_linear_recurrent_bwd(const struct kernel_request *r, struct plan *plan, char *why);
/* Is the spec served? why_not: why it is not; NULL: it is. */
bool linear_serves(const char *why_not, char *why);
/* What gradients by chunks ask of all: that the spec is served (why_not NULL), the device, that every
   gradient exists, dims up to `most`. */
bool linear_goes_back(const struct kernel_request *r, const char *why_not, int most, char *why);
/* Of linear/delta_walk_sm90.cuh, for either pass: blocks of 1 or 2 walking warpgroups, and as many chunks in
   shared memory as there is room for, up to four, beside states that are left; the bytes of that. */
int linear_plan_delta_walk(const struct kernel_request *r, struct linear_plan *to, int groups, bool leaves);
/* Is the size a multiple of 8 from 16 to `most`? `name`: in the sentence. */
bool linear_takes_dim(const struct kernel_request *r, enum sym sym, const char *name, int most, char *why);
/* Has a block of the device so many bytes of shared memory? */
bool linear_has_room(const struct kernel_request *r, int bytes, char *why);
/* Of all: what they ask of dims and device, and the numbers of kernels that go token by token. */
bool linear_plan_walks(const struct kernel_request *r, struct plan *plan, char *why);
/* Then: of those whose blocks have four warps for a chunk of tokens. */
void linear_plan_four_warps(const struct kernel_request *r, struct linear_plan *to);
/* And of those whose warps have 16 value channels each: how many a block has. */
void linear_plan_columns(const struct kernel_request *r, struct linear_plan *to);

#endif
