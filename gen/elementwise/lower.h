/*
 * lower.h: maps as kernels compute them.
 */
#ifndef LATHE_ELEMENTWISE_LOWER_H
#define LATHE_ELEMENTWISE_LOWER_H

#include "lathe_types.h"

struct ir;
struct kernel_request;

struct map_kernel {
    struct ir *w; /* lowered maps; NULL: the spec has no gradient, which its templates refuse */
};

#endif
