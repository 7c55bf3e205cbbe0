/*
 * template_additive.c: linear/additive.cuh, the forward pass without the delta rule in steps of 16 tokens.
 * In: a request. Out: the plan, or why there is none; config and launches.
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

enum { STEP = 16, WARP_COLUMNS = 16, MOST_COLUMN_WARPS = 4, KEY_STEP = 64 };

/* Of step_layout and BLOCK_BYTES there. */
static int smem_bytes(const struct kernel_request *r, const struct linear_plan *plan)
{
    const int pad = round_up(r->problem->dim[SYM_D], KEY_STEP);
    const enum decay_form form = linear_decay_form(r->ir);
    const int factors = form == DECAY_KEY ? 2 * pad + 4 : form == DECAY_NONE ? 4 : 2 * STEP + 4;
    const int values = plan->column_warps * WARP_COLUMNS;
    const int pairs = linear_tile(r, STEP, STEP);
    const int step = round_up(linear_tile(r, STEP, 2 * pad + values) + pairs + 4 * factors, 128);
    const int divisors = r->ir->linear.normalise ? 2 * STEP * 4 : 0;
    return plan->stages * plan->steps * step + divisors;
}

/* As many chunks as leave room for a second block on an SM, at least two; of fewer tokens where memory is
 * small. */
static bool choose_stages(const struct kernel_request *r, struct linear_plan *to)
{
    enum { MOST_STAGES = 3, LEAST_STAGES = 2, RESERVED = 1024 };
    const int half = r->device->smem_bytes / 2 - RESERVED;
    for (to->steps = 4; to->steps >= 2; to->steps /= 2) {
        to->stages = MOST_STAGES;
        while (to->stages > LEAST_STAGES && smem_bytes(r, to) > half)
            to->stages--;
        to->smem_bytes = smem_bytes(r, to);
        if (to->smem_bytes <= r->device->smem_bytes)
            return true;
    }
    return false;
}

/* A ninth warp, of the sum of keys, would leave a thread too few registers for the rows of a wide state. */
void linear_plan_columns(const struct kernel_request *r, struct linear_plan *to)
{
    enum { WIDE = 128 };
    const int warps = ((int)r->problem->dim[SYM_D_V] + WARP_COLUMNS - 1) / WARP_COLUMNS;
    const bool few = r->ir->linear.normalise && r->problem->dim[SYM_D] > WIDE;
    const int most = few ? MOST_COLUMN_WARPS - 1 : MOST_COLUMN_WARPS;
    const int slices = (warps + most - 1) / most;
    to->column_warps = (warps + slices - 1) / slices;
    to->chunk_slices = (warps + to->column_warps - 1) / to->column_warps;
}

/* As many blocks as run at once. */
static void choose_pieces(const struct kernel_request *r, struct linear_plan *to)
{
    enum { MOST_PIECES = 16, FROM = 2304, NARROW = 128, TWO = 256 };
    const int pad = round_up(r->problem->dim[SYM_D], KEY_STEP);
    const int warps = to->column_warps + (r->ir->linear.normalise ? 1 : 0);
    const int logs = linear_decay_form(r->ir) == DECAY_NONE ? 0 : to->steps * pad;
    const bool two = pad <= NARROW && to->chunk_threads <= TWO && 2 * to->smem_bytes < r->device->smem_bytes;
    linear_plan_pieces(r, to, MOST_PIECES, FROM, r->device->sm_count * (two ? 2 : 1));
    to->part_bytes = 4 * (warps * WARP_COLUMNS * pad + logs);
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    linear_plan_walks(r, plan);
    linear_plan_columns(r, to);
    if (!choose_stages(r, to))
        return linear_has_room(r, to->smem_bytes, why);
    to->chunk_threads = 32 * (to->steps + to->column_warps + (r->ir->linear.normalise ? 1 : 0));
    choose_pieces(r, to);
    snprintf(plan->reason, sizeof plan->reason,
             "decay %s: steps of %d tokens, %d at a time in room for %d times as many, %d blocks a head and "
             "sequence, each with %d value channels; ",
             linear_decay_text(linear_decay_form(r->ir)), STEP, to->steps, to->stages, to->chunk_slices,
             to->column_warps * WARP_COLUMNS);
    const size_t used = strlen(plan->reason);
    if (linear_has_pieces(to))
        snprintf(plan->reason + used, sizeof plan->reason - used,
                 "few sequences of %d tokens and more in up to %d pieces; up to 16 tokens one by one",
                 to->pieces_from, to->pieces);
    else
        snprintf(plan->reason + used, sizeof plan->reason - used, "up to 16 tokens one by one");
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    const struct linear_plan *to = &plan->linear;
    text_add(t, "constexpr int CHUNK_STAGES = %d;\n", to->stages);
    text_add(t, "constexpr int CHUNK_STEPS = %d, COLUMN_WARPS = %d;\n", to->steps, to->column_warps);
    linear_config_pieces(t, to);
}

static void launches(struct forward *f)
{
    forward_place_parts(f);
    forward_few(f);
    if (linear_has_pieces(&f->plan->linear)) {
        f->pieces = f->plan->linear.pieces;
        (void)forward_of_pieces(f, "states", f->plan->linear.chunk_slices);
        (void)forward_of_pieces(f, "chunks", f->plan->linear.chunk_slices);
        f->pieces = 1;
    }
    forward_chunks(f);
}

const struct linear_template linear_additive = {
    .sizes = sizes,
    .config = config,
    .launches = launches,
    .keeps_every = STEP,
};
