/*
 * planner.h: what the planners of several kinds ask.
 */
#ifndef LATHE_GEN_PLANNER_H
#define LATHE_GEN_PLANNER_H

#include "gen/arguments/problem.h"
#include "gen/arguments/signature.h"
#include "gen/ir/spec.h"
#include "gen/plan/request.h"

struct plan;

/* Bytes of a tile in shared memory, of elements of a role's tensors. */
static inline int plan_tile_bytes(const struct kernel_request *r, enum dtype_role role, int rows, int columns)
{
    return rows * columns * lathe__element_bytes(r->problem, role);
}

static inline int round_up(int64_t n, int to)
{
    return (int)((n + to - 1) / to * to);
}

/* gradients.c: of attention and linear attention, where an input that is left out is a constant once formulas
   are lowered: is each there whose gradient is asked for? */
bool plan_gradients_exist(const struct kernel_request *r, char *why);

#endif
