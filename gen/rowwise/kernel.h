/*
 * kernel.h: a pass of a row-wise spec, lowered once: what its planners ask and its emitters write out. Made
 * by kernel.c; read by everything behind it.
 */
#ifndef LATHE_ROWWISE_KERNEL_H
#define LATHE_ROWWISE_KERNEL_H

#include "gen/rowwise/pass.h"

struct facts;
struct kernel_request;
struct plan;

struct row_kernel {
    struct row_pass pass;
    struct ir
        *variance;     /* pass.ir with variances in the pass of their mean (variance.c); NULL: it has none */
    struct ir *single; /* one row to one row, as rowwise/single.cuh takes it; NULL: it is not like that */
    const char *why_several; /* why not */
};

/* Columns of kinds. A refusal is in the request; MEMORY is the one failure. */
lathe_status rowwise_lower(struct kernel_request *r);
void rowwise_release(struct kernel_request *r);
void rowwise_explain(struct facts *f, const struct plan *plan);

#endif
