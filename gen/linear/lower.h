/*
 * lower.h: linear attention as its kernels compute it.
 */
#ifndef LATHE_LINEAR_LOWER_H
#define LATHE_LINEAR_LOWER_H

#include "gen/linear/backward.h"
#include "lathe_types.h"

struct facts;
struct kernel_request;
struct plan;

struct linear_kernel {
    struct ir *w;            /* NULL: r->refused says why there is none */
    struct linear_back back; /* of a backward pass: what it computes beside */
};
lathe_status linear_lower(struct kernel_request *r);
void linear_release(struct kernel_request *r);
void linear_explain(struct facts *f, const struct plan *plan);

#endif
