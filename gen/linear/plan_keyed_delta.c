/*
 * plan_keyed_delta.c: linear/keyed_delta.cuh, the delta rule behind a decay by key channel in chunks of
 * tokens, or behind any other that is left to it. In: a request. Out: the plan, or why there is none.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/planner.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, WARP_COLUMNS = 16, KEY_STEP = 64, STEPS = CHUNK / 16 };

static const char *why_not_of_spec(const struct kernel_request *r)
{
    const struct ir_linear *l = &r->ir->linear;
    if (l->delta.n_roots == 0)
        return "serves the delta rule alone";
    if (linear_decay_form(r->ir) == DECAY_VALUE)
        return "serves a decay per key channel, not per value channel";
    if (r->problem->dtype[DTYPE_Q] != LATHE_BF16 && r->problem->dtype[DTYPE_Q] != LATHE_F16)
        return "serves bf16 and f16";
    if (l->bonus.n_roots > 0 || l->normalise)
        return "serves neither a bonus nor a normaliser";
    return l->all_tokens ? "serves causal = true alone" : NULL;
}

/* Of struct prepared, keyed_walk and keyed_layout there. */
static void fill_bytes(struct linear_plan *to, int pad)
{
    const int matrices = 2 * CHUNK * (CHUNK + 8) * 4; /* in the place of tiles */
    const int tiles = 3 * CHUNK * pad * 2;
    to->chunk_bytes = 388 * pad + 15360;
    to->smem_bytes = to->chunk_bytes + CHUNK * 2 * WARP_COLUMNS * to->column_warps;
    to->inverse = (tiles > matrices ? tiles : matrices) + 4 * CHUNK + 14 * STEPS * pad;
}

bool plan_linear_keyed_delta(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    if (!linear_serves(why_not_of_spec(r), why) || !linear_plan_walks(r, plan, why))
        return false;
    linear_plan_four_warps(r, to);
    linear_plan_columns(r, to);
    fill_bytes(to, round_up(r->problem->dim[SYM_D], KEY_STEP));
    const int most = to->smem_bytes > to->inverse ? to->smem_bytes : to->inverse;
    if (!linear_has_room(r, most, why))
        return false;
    to->way = LINEAR_KEYED_DELTA;
    to->chunk_threads = 32 * to->column_warps;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s with the delta rule: %d tokens at a time, a block for each chunk, then %d blocks a head "
        "and sequence, each with %d value channels; up to 16 tokens one by one",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->chunk_slices,
        to->column_warps * WARP_COLUMNS);
    return true;
}
