/*
 * plan_chunked_bwd.c: linear/backward/chunks_sm90.cuh, the backward pass of the additive family in chunks of
 * tokens. In: a request. Out: the plan, or why there is none.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/planner.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = 64, SLICE = 64, MOST_DIM = 128, WARPS = 4 };

static const char *why_not_of_spec(const struct kernel_request *r)
{
    const struct ir_linear *l = &r->ir->linear;
    const enum decay_form form = linear_decay_form(r->ir);
    if (form == DECAY_KEY || form == DECAY_VALUE)
        return "serves a decay per head or per token, not one per channel";
    if (l->delta.n_roots > 0 || l->bonus.n_roots > 0 || l->normalise)
        return "serves neither the delta rule, nor a bonus, nor a normaliser";
    if (l->all_tokens)
        return "serves causal = true alone";
    return r->linear->back.site[OF_SCALE].n > 0
               ? "gives no gradient of a scale; leave its inputs without grad = true"
               : NULL;
}

/* Of chunk_layout there. */
static int smem_bytes(int stages, int pads)
{
    return stages * (CHUNK * 4 * pads + 272) + 34816;
}

bool plan_linear_chunked_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { MOST_STAGES = 4, LEAST_STAGES = 2 };
    const char *not = why_not_of_spec(r);
    if (!not &&r->problem->dtype[DTYPE_Q] != LATHE_BF16)
        not = "keeps states in the dtype of q, and serves bf16, which has the range of f32";
    if (!linear_goes_back(r, not, MOST_DIM, why))
        return false;
    struct linear_plan *to = &plan->linear;
    const int d = round_up(r->problem->dim[SYM_D], SLICE);
    const int d_v = round_up(r->problem->dim[SYM_D_V], SLICE);
    to->way = LINEAR_CHUNKED;
    to->warps = WARPS;
    to->chunk = CHUNK;
    to->units = 1 + (d > d_v ? d : d_v) / SLICE;
    to->row_slices = d / SLICE;
    to->stages = MOST_STAGES;
    while (to->stages > LEAST_STAGES && smem_bytes(to->stages, d + d_v) > r->device->smem_bytes)
        to->stages--;
    to->smem_bytes = smem_bytes(to->stages, d + d_v);
    if (!linear_has_room(r, to->smem_bytes, why))
        return false;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s: %d tokens at a time by wgmma, %d blocks a head and sequence: one walks forward for dq, "
        "the others back for dk and dv, each with %d channels in a warpgroup; room for %d chunks",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->units, SLICE, to->stages);
    return true;
}
