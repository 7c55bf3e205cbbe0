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
    struct ir *by_step;      /* of a spec whose tokens are several steps: the request's own; else NULL */
};

/* updates.c: the spec as kernels compute it, where each step of the recurrence is a token: at.t and at.pos
   are quotients, the decay is that of a token's first step, and steps that read alone write nothing. NULL:
   memory ran out. */
struct ir *linear_by_step(const struct ir *ir);

#endif
