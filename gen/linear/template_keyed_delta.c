/*
 * template_keyed_delta.c: linear/keyed_delta.cuh, the delta rule behind a decay by key channel in chunks of
 * tokens, or behind any other that is left to it. In: a request. Out: the plan, or why there is none; config
 * and launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, WARP_COLUMNS = 16, KEY_STEP = 64, STEPS = CHUNK / 16 };

/* Of struct prepared, keyed_walk and keyed_layout there. */
static void fill_bytes(struct linear_plan *to, int pad)
{
    const int matrices = 2 * CHUNK * (CHUNK + 8) * 4; /* in the place of tiles */
    const int tiles = 3 * CHUNK * pad * 2;
    to->chunk_bytes = 388 * pad + 15360;
    to->smem_bytes = to->chunk_bytes + CHUNK * 2 * WARP_COLUMNS * to->column_warps;
    to->inverse = (tiles > matrices ? tiles : matrices) + 4 * CHUNK + 14 * STEPS * pad;
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    linear_plan_walks(r, plan);
    linear_plan_four_warps(r, to);
    linear_plan_columns(r, to);
    fill_bytes(to, round_up(r->problem->dim[SYM_D], KEY_STEP));
    const int most = to->smem_bytes > to->inverse ? to->smem_bytes : to->inverse;
    if (!linear_has_room(r, most, why))
        return false;
    to->chunk_threads = 32 * to->column_warps;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s with the delta rule: %d tokens at a time, a block for each chunk, then %d blocks a head "
        "and sequence, each with %d value channels; up to 16 tokens one by one",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->chunk_slices,
        to->column_warps * WARP_COLUMNS);
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int COLUMN_WARPS = %d;\n", plan->linear.column_warps);
}

static void launches(struct forward *f)
{
    forward_place_ahead(f);
    forward_few(f);
    forward_ahead(f, "prepare");
    forward_chunks(f);
}

const struct linear_template linear_keyed_delta = {
    .sizes = sizes,
    .config = config,
    .launches = launches,
};
