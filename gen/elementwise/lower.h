/*
 * lower.h: maps as kernels compute them.
 */
#ifndef LATHE_ELEMENTWISE_LOWER_H
#define LATHE_ELEMENTWISE_LOWER_H

#include "lathe_types.h"

struct ir;
struct facts;
struct kernel_request;
struct plan;

struct map_kernel {
    struct ir *w; /* lowered maps; NULL: the spec has no gradient, which its templates refuse */
};
lathe_status elementwise_lower(struct kernel_request *r);
void elementwise_release(struct kernel_request *r);
void elementwise_explain(struct facts *f, const struct plan *plan);

#endif
