/*
 * kernel.h: a pass of a row-wise spec, lowered once: what its planners ask and its emitters write out. Made
 * by kernel.c; read by everything behind it.
 */
#ifndef LATHE_ROWWISE_KERNEL_H
#define LATHE_ROWWISE_KERNEL_H

#include "gen/rowwise/pass.h"

struct kernel_request;

struct row_kernel {
    struct row_pass pass;
    struct ir
        *variance; /* pass.ir with variances in the pass of their mean (variance.c); NULL: it has none */
};

#endif
