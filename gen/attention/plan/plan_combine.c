/*
 * plan_combine.c: attention_combine, which puts parts of rows together. In: a request of that pass. Out: the
 * plan, or why there is none.
 */
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/attention/sign_parts.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

enum { WARPS = 4 };

static bool is_aligned(const struct kernel_request *r, const char *name)
{
    return !arg_in(r->problem->unaligned, lathe__arg_find(r->sig, name, 0));
}

bool plan_attention_combine(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!plan_mods_fit(r, MOD_OUTPUT, why))
        return false;
    struct attention_plan *const a = &plan->attention;
    a->warps = WARPS;
    a->parts = true;
    a->part_end = makes_parts(r->sig, r->problem);
    a->o_f32 = a->part_end || r->ir->mod[MOD_OUTPUT].n_stages > 0;
    a->parts_aligned = is_aligned(r, "part_o");
    a->o_aligned = a->part_end ? is_aligned(r, "merged_o") : a->o_f32 || is_aligned(r, "o");
    snprintf(plan->reason, sizeof plan->reason, "a warp for each row, %d to a block, reads part_o once, %s",
             WARPS,
             a->parts_aligned ? "16 bytes a lane"
                              : "4 bytes a lane, since its rows do not start at multiples of 16 bytes");
    return true;
}
