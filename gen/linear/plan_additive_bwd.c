/*
 * plan_additive_bwd.c: linear/backward/additive.cuh, the backward pass of the additive family in chunks of
 * tokens by mma.sync, a decay by key channel among it. In: a request. Out: the plan, or why there is none.
 */
#include "gen/ir/spec.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/planner.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, SLICE = 64, PART = 128, MOST_DIM = 256, OF_WARP = 16 };
enum { WALK_BYTES = 36896 }; /* states_layout of linear/backward/additive_states.cuh */

static const char *why_not_of_spec(const struct kernel_request *r)
{
    const struct ir_linear *l = &r->ir->linear;
    if (linear_decay_form(r->ir) == DECAY_VALUE)
        return "serves a decay per key channel, not per value channel";
    if (l->delta.n_roots > 0)
        return "serves no delta rule";
    if (l->normalise && r->problem->dtype[DTYPE_Q] == LATHE_F16)
        return "has a normaliser in bf16, whose range is that of f32: o's gradient is divided by sums of "
               "keys";
    if (l->normalise && l->bonus.n_roots > 0)
        return "serves no bonus beside a normaliser";
    if (l->all_tokens)
        return "serves causal = true alone";
    return r->problem->dtype[DTYPE_Q] != LATHE_BF16 && r->problem->dtype[DTYPE_Q] != LATHE_F16
               ? "serves bf16 and f16"
               : NULL;
}

/* Of additive_layout there. `states`: that there is room for. */
static int chunks_bytes(int states, int d, int d_v)
{
    return 660 * d + 256 * d_v + states * 2 * d * d_v + 16448;
}

/* Both of a chunk where that leaves room for as many blocks on a multiprocessor as threads do. */
static int room_for_states(const struct kernel_request *r, int threads, int d, int d_v)
{
    enum { MOST_THREADS = 512, OF_A_BLOCK = 1024 };
    const int blocks = MOST_THREADS / threads;
    const int room = (r->device->smem_bytes + OF_A_BLOCK) / blocks - OF_A_BLOCK;
    return chunks_bytes(2, d, d_v) <= room ? 2 : 1;
}

/* Beyond 128 key channels blocks share them. */
static bool fits(const struct kernel_request *r, struct linear_plan *to, char *why)
{
    const int channels = (int)r->problem->dim[SYM_D];
    const int values = (int)r->problem->dim[SYM_D_V];
    const int d = channels > PART ? PART : round_up(channels, SLICE);
    const int d_v = values > PART ? MOST_DIM : round_up(values, SLICE);
    to->key_parts = channels > PART ? 2 : 1;
    to->chunk_slices = d_v / SLICE;
    to->row_slices = to->key_parts * d / SLICE;
    to->chunk_threads = 2 * 32 * d / OF_WARP;
    to->walk_bytes = WALK_BYTES;
    to->stages = room_for_states(r, to->chunk_threads, d, d_v);
    to->smem_bytes = chunks_bytes(to->stages, d, d_v);
    const int most = to->walk_bytes > to->smem_bytes ? to->walk_bytes : to->smem_bytes;
    return linear_has_room(r, most, why);
}

bool plan_linear_additive_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    if (!linear_goes_back(r, why_not_of_spec(r), MOST_DIM, why) || !fits(r, to, why))
        return false;
    to->way = LINEAR_ADDITIVE;
    linear_plan_four_warps(r, to);
    to->chunk = CHUNK;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s: %d tokens at a time by mma.sync; walks along the chunks, forward and back, of %d blocks "
        "a head and sequence with %d channels of both each, then %s for each chunk",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->row_slices * to->chunk_slices, SLICE,
        to->key_parts > 1 ? "two blocks that share the key channels" : "a block");
    return true;
}
