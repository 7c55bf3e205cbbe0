/*
 * template_recurrent.c: linear/recurrent.cuh, which serves every spec token by token, and what its sizes are
 * in the kernels beside others. In: a request. Out: the plan, or why there is none; launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
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

void linear_plan_walks(const struct kernel_request *r, struct plan *plan)
{
    enum { MOST_WARPS = 4 };
    struct linear_plan *to = &plan->linear;
    const int d = (int)r->problem->dim[SYM_D];
    const int d_v = (int)r->problem->dim[SYM_D_V];
    const int values = d_v + (r->ir->linear.normalise ? 1 : 0);
    to->warps = MOST_WARPS;
    while (to->warps > 1 && columns_of(d, to->warps / 2) >= d_v && columns_of(values, to->warps / 2) >= d)
        to->warps /= 2;
    to->slices = slices_of(d, d_v, to->warps);
    to->row_slices = slices_of(values, d, to->warps);
    to->o_f32 = r->ir->mod[MOD_OUTPUT].n_stages > 0;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s%s%s: token by token, %d blocks a head and sequence, each with %d value channels of the "
        "state in registers",
        linear_decay_text(linear_decay_form(r->ir)),
        r->ir->linear.delta.n_roots > 0 ? " with the delta rule" : "",
        r->ir->linear.reader.n_roots + r->ir->linear.writer.n_roots > 0 ? " and vectors of its own" : "",
        to->slices, columns_of(d, to->warps));
}

void linear_plan_pieces(const struct kernel_request *r, struct linear_plan *to, int most, int from,
                        int blocks)
{
    const bool whole = r->problem->deterministic == DETERMINISTIC_BATCH;
    to->pieces = whole ? 1 : most;
    to->pieces_from = from;
    to->piece_blocks = whole ? 0 : blocks;
}

void linear_plan_four_warps(const struct kernel_request *r, struct linear_plan *to)
{
    to->warps = 4;
    to->slices = slices_of((int)r->problem->dim[SYM_D], (int)r->problem->dim[SYM_D_V], to->warps);
}

/* What serves every spec costs something: of kda and gla in 16 bits, both passes,
 * tests/bench/log/2026-11-27.md has it. */
// NOLINTNEXTLINE(readability-non-const-parameter): the type of struct linear_template's function
bool linear_plan_one_by_one(const struct kernel_request *r, struct plan *plan, char *why)
{
    (void)why;
    linear_plan_walks(r, plan);
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; long sequences take 2 to 9 times as long as by a template that goes in chunks");
    return true;
}

static void launches(struct forward *f)
{
    (void)forward_kernel(f, "fwd", f->plan->linear.slices);
}

const struct linear_template linear_recurrent = {
    .sizes = linear_plan_one_by_one,
    .launches = launches,
    .one_by_one = true,
};

/* linear/recurrent_kept.cuh: the same, which leaves states behind tokens. */
static void launches_kept(struct forward *f)
{
    (void)forward_kernel(f, "kept", f->plan->linear.slices);
}

const struct linear_template linear_recurrent_kept = {
    .sizes = linear_plan_one_by_one,
    .launches = launches_kept,
    .one_by_one = true,
};
