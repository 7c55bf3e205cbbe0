/*
 * template_dplr.c: linear/dplr.cuh, a decay plus low rank in chunks of tokens: what a reader has read is
 * written under a writer, beside v under k. In: a request. Out: the plan, or why there is none; config and
 * launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit.h"
#include "gen/linear/linear.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, WARP_COLUMNS = 16, KEY_STEP = 64 };

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    linear_plan_walks(r, plan);
    linear_plan_four_warps(r, to);
    linear_plan_columns(r, to);
    const int pad = round_up(r->problem->dim[SYM_D], KEY_STEP);
    to->chunk_bytes = linear_low_rank_prepared(r, pad, KEYED_WHOLE);
    to->smem_bytes = to->chunk_bytes + linear_tile(r, CHUNK, WARP_COLUMNS * to->column_warps);
    to->inverse = linear_low_rank_layout(r, pad);
    if (!linear_has_room(r, to->smem_bytes > to->inverse ? to->smem_bytes : to->inverse, why))
        return false;
    to->chunk_threads = 32 * to->column_warps;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s, and what is read is written, too: %d tokens at a time, a block for each chunk, then %d "
        "blocks a head and sequence, each with %d value channels; up to 16 tokens one by one",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->chunk_slices,
        to->column_warps * WARP_COLUMNS);
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int COLUMN_WARPS = %d, PIECES = 1;\n", plan->linear.column_warps);
}

static void launches(struct forward *f)
{
    forward_place_ahead(f);
    forward_few(f);
    forward_ahead(f, "prepare_low_rank");
    forward_chunks(f);
}

const struct linear_template linear_dplr = {
    .sizes = sizes,
    .config = config,
    .launches = launches,
    .keeps_every = CHUNK,
    .takes_mods = true,
    .names_mods = true,
};
