/*
 * planner.h: the planners that rows of templates.c name, and what they share. Each fills the plan, or says
 * why not in `why` (REASON_BYTES).
 */
#ifndef LATHE_ROWWISE_PLANNER_H
#define LATHE_ROWWISE_PLANNER_H

#include "gen/plan/planner.h"

struct row_pass;

/* plan_registers.c: rowwise/registers.cuh. */
bool plan_registers(const struct kernel_request *r, struct plan *plan, char *why);
/* plan.c. Is a value what a tensor of the same 16 bits as x holds? */
bool plan_is_half(const struct kernel_request *r, const struct ir *w, int node);
/* plan.c. A forward pass of one tensor of rows in and one out, of elements of x's size, with nothing summed
   over rows or scanned? Backward passes like that have the shapes of several tensors. */
bool plan_is_single(const struct kernel_request *r);
/* plan_reread.c: rows that passes read again. */
struct plan_again {
    int each;      /* vectors of a row that a thread has; 0: rows are held */
    int registers; /* of a thread */
    bool beside;   /* elements read inputs beside the rows */
    bool variance; /* variance_take of the formulas: one pass instead of two */
};
void plan_reread(const struct kernel_request *r, const struct row_pass *pass, struct plan_again *again);
/* plan_staged.c: rowwise/staged.cuh, rowwise/inner.cuh. */
bool plan_inner(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_staged(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_scan.c: rowwise/inner_scan.cuh, and rowwise/inner_scan_lookback.cuh beside it. */
bool plan_inner_scan(const struct kernel_request *r, struct plan *plan, char *why);

#endif
