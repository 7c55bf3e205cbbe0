/*
 * lower.h: linear attention as its kernels compute it.
 */
#ifndef LATHE_LINEAR_LOWER_H
#define LATHE_LINEAR_LOWER_H

#include "gen/linear/backward.h"
#include "lathe_types.h"

struct kernel_request;

struct linear_kernel {
    struct ir *w;            /* NULL: r->refused says why there is none */
    struct linear_back back; /* of a backward pass: what it computes beside */
};

#endif
