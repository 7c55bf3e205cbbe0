/*
 * plan_recurrent.c: the kernels of linear/recurrent.cuh and linear/backward, which serve every spec token by
 * token. In: a request. Out: the plan, or why there is none.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/planner.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* shape of linear/tile.cuh: columns of a block's tile of so many rows. */
static int columns_of(int rows, int warps)
{
    enum { COLUMN_LANES = 4, MANY_ROWS = 128 };
    return warps * COLUMN_LANES * (round_up(rows, 32) > MANY_ROWS ? 2 : 4);
}

static int slices_of(int rows, int columns, int warps)
{
    const int each = columns_of(rows, warps);
    return (columns + each - 1) / each;
}

static bool dim_ok(const struct kernel_request *r, enum sym sym, const char *name, char *why)
{
    if (linear_takes_dim(r, sym, name, ATTENTION_MOST_DIM, why))
        return true;
    const size_t said = strlen(why);
    snprintf(why + said, REASON_BYTES - said, "; the host device takes any");
    return false;
}

bool linear_plan_walks(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { LEAST_SM = 80, MOST_WARPS = 4 };
    struct linear_plan *to = &plan->linear;
    if (!dim_ok(r, SYM_D, "d", why) || !dim_ok(r, SYM_D_V, "d_v", why))
        return false;
    if (r->device->sm < LEAST_SM) {
        snprintf(why, REASON_BYTES, "needs compute capability 8.0 or newer");
        return false;
    }
    const int d = (int)r->problem->dim[SYM_D];
    const int d_v = (int)r->problem->dim[SYM_D_V];
    const int values = d_v + (r->ir->linear.normalise ? 1 : 0);
    to->warps = MOST_WARPS;
    while (to->warps > 1 && columns_of(d, to->warps / 2) >= d_v && columns_of(values, to->warps / 2) >= d)
        to->warps /= 2;
    to->slices = slices_of(d, d_v, to->warps);
    to->row_slices = slices_of(values, d, to->warps);
    to->o_f32 = r->ir->mod[MOD_OUTPUT].n_stages > 0;
    snprintf(plan->reason, sizeof plan->reason,
             "decay %s%s: token by token, %d blocks a head and sequence, each with %d value channels of the "
             "state in registers",
             linear_decay_text(linear_decay_form(r->ir)),
             r->ir->linear.delta.n_roots > 0 ? " with the delta rule" : "", to->slices,
             columns_of(d, to->warps));
    return true;
}

void linear_plan_four_warps(const struct kernel_request *r, struct linear_plan *to)
{
    to->warps = 4;
    to->slices = slices_of((int)r->problem->dim[SYM_D], (int)r->problem->dim[SYM_D_V], to->warps);
}

/* What serves every spec costs something: of kda and gla in 16 bits, both passes, tests/bench/RESULTS.md has
 * it. */
static bool plan_walks(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!linear_plan_walks(r, plan, why))
        return false;
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; long sequences take 2 to 9 times as long as by a template that goes in chunks");
    return true;
}

bool plan_linear_recurrent(const struct kernel_request *r, struct plan *plan, char *why)
{
    return plan_walks(r, plan, why);
}

bool plan_linear_recurrent_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { CHUNK = 64 };
    const bool read_before = r->linear->back.site[OF_DECAY].n > 0 &&
                             linear_decay_form(r->ir) == DECAY_VALUE && r->ir->linear.bonus.n_roots > 0;
    plan->linear.chunk = CHUNK;
    if (read_before)
        snprintf(why, REASON_BYTES,
                 "has no gradient of a decay by value channel beside a bonus; leave the inputs of the decay "
                 "without grad = true, or let it vary with at.i");
    return !read_before && plan_gradients_exist(r, why) && plan_walks(r, plan, why);
}
