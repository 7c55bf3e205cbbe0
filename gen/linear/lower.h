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
    struct ir *by_update;    /* of a spec whose tokens make several updates: the request's own; else NULL */
};

/* updates.c: the spec as kernels compute it, where each update of the state is a token: at.t and at.pos are
   quotients, the decay is that of a token's first update. NULL: memory ran out. */
struct ir *linear_by_update(const struct ir *ir);

#endif
