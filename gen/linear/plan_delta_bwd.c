/*
 * plan_delta_bwd.c: linear/backward/delta_walk.cuh and linear/backward/delta_sm90.cuh, the backward pass of
 * the delta rule in chunks of tokens. In: a request. Out: the plan, or why there is none.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/planner.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, SLICE = 64, MOST_DIM = 128, WARPS = 4 };

static const char *why_not_of_spec(const struct kernel_request *r)
{
    const struct ir_linear *l = &r->ir->linear;
    const enum decay_form form = linear_decay_form(r->ir);
    if (l->delta.n_roots == 0)
        return "serves the delta rule alone";
    if (form == DECAY_KEY || form == DECAY_VALUE)
        return "serves a decay per head or per token, not one per channel";
    if (l->bonus.n_roots > 0 || l->normalise)
        return "serves neither a bonus nor a normaliser";
    if (l->all_tokens)
        return "serves causal = true alone";
    if (r->linear->back.site[OF_SCALE].n > 0)
        return "gives no gradient of a scale; leave its inputs without grad = true";
    return r->problem->dtype[DTYPE_Q] != LATHE_BF16
               ? "keeps states in the dtype of q, and serves bf16, which has the range of f32"
               : NULL;
}

/* Of walk_layout and delta_chunk_layout there. */
static int walk_bytes(int stages, int d)
{
    return stages * 128 * (2 * d + 192) + 128 * d + 33280;
}
static int again_bytes(int stages, int d)
{
    return stages * 128 * (d + 192) + 128 * d + 25088;
}
static int chunks_bytes(int d, int d_v)
{
    const int scores = 4 * CHUNK * CHUNK;
    return 256 * (d + d_v) + (128 * d_v > scores ? 128 * d_v : scores) + 2 * d * d_v + 288;
}

/* A multiprocessor has as much shared memory as the largest block of it, and what it keeps for that. */
enum { OF_A_BLOCK = 1024 };

/* What both have: the inverse of each chunk, and the kernel behind the walks. */
static bool plan_chunks(const struct kernel_request *r, struct linear_plan *to, char *why)
{
    const int d = round_up(r->problem->dim[SYM_D], SLICE);
    const int d_v = round_up(r->problem->dim[SYM_D_V], SLICE);
    if (!linear_goes_back(r, why_not_of_spec(r), MOST_DIM, why))
        return false;
    to->way = LINEAR_DELTA;
    to->warps = WARPS;
    to->chunk = CHUNK;
    to->slices = d_v / SLICE;
    to->row_slices = d / SLICE;
    to->inverse = 2 * CHUNK * (CHUNK + 8) * 4 + 8 * CHUNK; /* linear/delta_inverse.cuh */
    to->smem_bytes = chunks_bytes(d, d_v);
    to->chunk_blocks = 2 * (to->smem_bytes + OF_A_BLOCK) <= r->device->smem_bytes + OF_A_BLOCK ? 2 : 1;
    return true;
}

static bool has_room(const struct kernel_request *r, const struct linear_plan *to, char *why)
{
    return linear_has_room(r, to->walk_bytes > to->smem_bytes ? to->walk_bytes : to->smem_bytes, why);
}

static void tell(const struct kernel_request *r, struct plan *plan, const char *how)
{
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s with the delta rule: %d tokens at a time; two walks along the chunks%s, of %d blocks a "
        "head and sequence with %d value channels each, then a block for each chunk by mma.sync",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, how, plan->linear.chunk_slices,
        SLICE * plan->linear.slices / plan->linear.chunk_slices);
}

bool plan_linear_delta_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { THREADS = 256 };
    struct linear_plan *to = &plan->linear;
    if (!plan_chunks(r, to, why))
        return false;
    const int d = SLICE * to->row_slices;
    to->stages = 2;
    if (walk_bytes(to->stages, d) > r->device->smem_bytes)
        to->stages = 1;
    to->walk_bytes = walk_bytes(to->stages, d);
    to->again_bytes = again_bytes(to->stages, d);
    to->chunk_threads = THREADS;
    to->chunk_slices = to->slices;
    tell(r, plan, "");
    return has_room(r, to, why);
}

/* The walks by wgmma. */
bool plan_linear_delta_bwd_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    if (!plan_chunks(r, to, why))
        return false;
    to->walks_at_once = true;
    to->walk_bytes = to->again_bytes = linear_plan_delta_walk(r, to, 1, true);
    tell(r, plan, " by wgmma");
    return has_room(r, to, why);
}
