/*
 * planner.h: the planners that rows of templates.c name. Each fills the plan, or says why not in `why`
 * (REASON_BYTES).
 */
#ifndef LATHE_ELEMENTWISE_PLANNER_H
#define LATHE_ELEMENTWISE_PLANNER_H

#include "gen/plan/planner.h"

/* plan.c: elementwise/map.cuh, for a spec and for its gradient. */
bool plan_elementwise(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_elementwise_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_elementwise_gather(const struct kernel_request *r, struct plan *plan, char *why);

#endif
