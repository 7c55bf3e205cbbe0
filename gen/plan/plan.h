/*
 * plan.h: the numbers of a kernel, of whichever template: what all have, and those of its kind.
 */
#ifndef LATHE_GEN_PLAN_H
#define LATHE_GEN_PLAN_H

#include "gen/plan/attention_plan.h"
#include "gen/plan/linear_plan.h"
#include "gen/plan/map_plan.h"
#include "gen/plan/row_plan.h"
#include "gen/plan/template.h"

struct plan {
    const struct template_row *row; /* the template; its `form` says which of the union is there */
    bool bound_waits;  /* a wait on a barrier that lasts seconds stops the kernel: for templates new to
                          hardware */
    char tile[24];     /* its row of tiles, as in struct device; "": it has one shape for a problem */
    char reason[1024]; /* for `lathe explain` */
    union {
        struct attention_plan attention;
        struct row_plan rows;
        struct map_plan maps;
        struct linear_plan linear;
    };
};

struct facts;
/* What every kind says of a plan, behind its numbers. */
void plan_explain_reason(struct facts *f, const struct plan *plan);

#endif
