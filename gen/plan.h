/*
 * plan.h: what the files of the planner share. Seen by plan*.c alone.
 */
#ifndef LATHE_GEN_PLAN_H
#define LATHE_GEN_PLAN_H

#include "gen.h"

enum { REASON_BYTES = 256 };

struct request {
    const struct ir *ir;
    lathe_pass pass;
    const struct problem *problem;
    const struct device *device;
    int *skip; /* so many rows of tiles that serve are passed over, for `lathe tune`; NULL: none */
};

static inline int round_up(int64_t n, int to)
{
    return (int)((n + to - 1) / to * to);
}

/* plan_rows.c: rowwise.cuh and rowwise_many.cuh. Fill the plan, or say why not in `why` (REASON_BYTES). */
bool plan_rowwise(const struct request *r, struct plan *plan, char *why);
bool plan_rowwise_many(const struct request *r, struct plan *plan, char *why);
bool plan_rowwise_bwd(const struct request *r, struct plan *plan, char *why);

/* plan_map.c: elementwise.cuh, for a spec and for its gradient. */
bool plan_elementwise(const struct request *r, struct plan *plan, char *why);
bool plan_elementwise_bwd(const struct request *r, struct plan *plan, char *why);
/* plan.c, plan_backward.c: attention, likewise. */
bool plan_attention_sm80(const struct request *r, struct plan *plan, char *why);
bool plan_attention_bwd(const struct request *r, struct plan *plan, char *why);
bool plan_attention_bwd_sm90(const struct request *r, struct plan *plan, char *why);
bool plan_attention_bwd_wide(const struct request *r, struct plan *plan, char *why);

#endif
