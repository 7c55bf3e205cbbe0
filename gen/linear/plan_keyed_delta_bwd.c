/*
 * plan_keyed_delta_bwd.c: linear/backward/keyed_delta.cuh, the backward pass of the delta rule behind a decay
 * by key channel in chunks of tokens, by mma.sync. In: a request. Out: the plan, or why there is none.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/planner.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, SLICE = 64, PART = 128, MOST_DIM = 256, COLUMN_WARPS = 4, OF_WARP = 16 };

static const char *why_not_of_spec(const struct kernel_request *r)
{
    const struct ir_linear *l = &r->ir->linear;
    if (l->delta.n_roots == 0)
        return "serves the delta rule alone";
    if (linear_decay_form(r->ir) == DECAY_VALUE)
        return "serves every decay but one per value channel";
    if (l->bonus.n_roots > 0 || l->normalise)
        return "serves neither a bonus nor a normaliser";
    if (l->all_tokens)
        return "serves causal = true alone";
    if (r->linear->back.site[OF_SCALE].n > 0)
        return "gives no gradient of a scale; leave its inputs without grad = true";
    return r->problem->dtype[DTYPE_Q] != LATHE_BF16 && r->problem->dtype[DTYPE_Q] != LATHE_F16
               ? "serves bf16 and f16"
               : NULL;
}

/* Of keyed_layout_back there. */
static int chunks_bytes(int part, int d_v)
{
    return 684 * part + 384 * d_v + 4 * part * d_v + 16448;
}

/* Blocks of a chunk share the key channels where one has no room for all of them. */
static void choose_parts(const struct kernel_request *r, struct linear_plan *to, int d, int d_v)
{
    int part = d % PART == 0 ? PART : SLICE;
    if (chunks_bytes(part, d_v) > r->device->smem_bytes)
        part = SLICE;
    to->key_parts = d / part;
    to->chunk_threads = 2 * 32 * part / OF_WARP;
    to->smem_bytes = chunks_bytes(part, d_v);
}

/* Of back_walk and keyed_layout there. */
static bool fits(const struct kernel_request *r, struct linear_plan *to, char *why)
{
    const int d = round_up(r->problem->dim[SYM_D], SLICE);
    const int values = (int)r->problem->dim[SYM_D_V];
    const int d_v = values > PART ? MOST_DIM : round_up(values, SLICE);
    const int matrices = 2 * CHUNK * (CHUNK + 8) * 4; /* in the place of tiles */
    const int tiles = 6 * CHUNK * d;
    choose_parts(r, to, d, d_v);
    to->row_slices = d / SLICE;
    to->column_warps = COLUMN_WARPS;
    to->chunk_slices = d_v / SLICE;
    to->chunk_bytes = 388 * d + 25856;
    to->inverse = (tiles > matrices ? tiles : matrices) + 56 * d + 2304;
    to->walk_bytes = 388 * d + 34064;
    to->stages = 2;
    const int ahead = to->inverse > to->walk_bytes ? to->inverse : to->walk_bytes;
    return linear_has_room(r, ahead > to->smem_bytes ? ahead : to->smem_bytes, why);
}

bool plan_linear_keyed_delta_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    if (!linear_goes_back(r, why_not_of_spec(r), MOST_DIM, why) || !fits(r, to, why))
        return false;
    to->way = LINEAR_KEYED_DELTA;
    linear_plan_four_warps(r, to);
    to->chunk = CHUNK;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s with the delta rule: %d tokens at a time by mma.sync; walks along the chunks, forward and "
        "back, of %d blocks a head and sequence with %d value channels each, then %d for each chunk, with %d "
        "key channels each",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->chunk_slices, SLICE, to->key_parts,
        to->chunk_threads / 64 * OF_WARP);
    return true;
}
