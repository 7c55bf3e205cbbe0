/*
 * template_delta_bwd.c: linear/backward/delta_walk.cuh and linear/backward/delta_sm90.cuh, the backward pass
 * of the delta rule in chunks of tokens. In: a request. Out: the plan, or why there is none; config,
 * workspace and launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, SLICE = 64, WARPS = 4 };
enum { THREADS = 256, INVERSE_THREADS = 128 };

/* Of walk_layout and delta_chunk_layout there. */
static int walk_bytes(const struct kernel_request *r, int stages, int d, bool back)
{
    const int keys = linear_tile(r, CHUNK, d);
    const int values = linear_tile(r, CHUNK, SLICE);
    const int matrix = linear_tile(r, CHUNK, CHUNK);
    const int stage = (back ? 2 : 1) * keys + values + 2 * matrix;
    return stages * stage + linear_tile(r, d, SLICE) + 3 * values + (back ? matrix : 0) + 2 * CHUNK * 4;
}
static int chunks_bytes(const struct kernel_request *r, int d, int d_v)
{
    const int values = linear_tile(r, CHUNK, d_v);
    const int scores = 2 * linear_tile(r, CHUNK, CHUNK);
    const int sums = 4 * CHUNK + 32;
    return 2 * linear_tile(r, CHUNK, d) + 2 * values + (values > scores ? values : scores) +
           linear_tile(r, d, d_v) + sums;
}

/* A multiprocessor has as much shared memory as the largest block of it, and what it keeps for that. */
enum { OF_A_BLOCK = 1024 };

/* What both have: the inverse of each chunk, and the kernel behind the walks. */
static void plan_chunks(const struct kernel_request *r, struct linear_plan *to)
{
    const int d = round_up(r->problem->dim[SYM_D], SLICE);
    const int d_v = round_up(r->problem->dim[SYM_D_V], SLICE);
    to->warps = WARPS;
    to->chunk = CHUNK;
    to->slices = d_v / SLICE;
    to->row_slices = d / SLICE;
    to->inverse = 2 * CHUNK * (CHUNK + 8) * 4 + 8 * CHUNK; /* linear/delta_inverse.cuh */
    to->chunk_bytes = linear_inverse_bytes(r);
    to->smem_bytes = chunks_bytes(r, d, d_v);
    to->chunk_blocks = 2 * (to->smem_bytes + OF_A_BLOCK) <= r->device->smem_bytes + OF_A_BLOCK ? 2 : 1;
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

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    plan_chunks(r, to);
    const int d = SLICE * to->row_slices;
    to->stages = 2;
    if (walk_bytes(r, to->stages, d, true) > r->device->smem_bytes)
        to->stages = 1;
    to->walk_bytes = walk_bytes(r, to->stages, d, true);
    to->again_bytes = walk_bytes(r, to->stages, d, false);
    to->chunk_threads = THREADS;
    to->chunk_slices = to->slices;
    tell(r, plan, "");
    return has_room(r, to, why);
}

/* The walks by wgmma. */
static bool sizes_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    plan_chunks(r, to);
    to->walks_at_once = true;
    to->walk_bytes = to->again_bytes = linear_plan_delta_walk(r, to, 1, true);
    tell(r, plan, " by wgmma");
    return has_room(r, to, why);
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int CHUNK_STAGES = %d, CHUNK_BLOCKS = %d;\n", plan->linear.stages,
             plan->linear.chunk_blocks);
    text_add(t, "constexpr bool STATE_BY_COLUMN = false;\n");
}

static void config_sm90(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int STAGES = %d;\nconstexpr bool BOUND_WAITS = %s;\n", plan->linear.stages,
             yes(plan->bound_waits));
    text_add(t, "constexpr int VALUE_GROUPS = %d, CHUNK_BLOCKS = %d;\n", plan->linear.groups,
             plan->linear.chunk_blocks);
    text_add(t, "constexpr bool STATE_BY_COLUMN = true;\n");
}

/* ---- workspace ------------------------------------------------------------------------------------------
 */

/* Of each chunk of each head the inverse; what its tokens write, and the gradient of that; of each token that
   of beta. */
static void place(struct recipe *r, bool gradient)
{
    const struct linear_plan *plan = &r->plan->linear;
    const int d_v = (int)r->e->problem->dim[SYM_D_V];
    const bool gives = linear_back_gives(r->e->w, r->plan, r->b);
    const int bytes = lathe__element_bytes(r->e->problem, DTYPE_Q); /* of what the walks leave */
    back_place_heads(r, linear_chunks(r->e, 4ll * CHUNK * SLICE * plan->row_slices, SYM_H_K), true);
    back_place_chunks(r, INVERSE, r->plan->linear.chunk_bytes);
    back_place_states(r, plan->slices * plan->row_slices);
    r->buffer[WRITTEN] = add_buffer(r->out, r->e, back_lines((int64_t)d_v * bytes));
    r->buffer[DWRITTEN] = add_buffer(r->out, r->e, back_lines((int64_t)d_v * bytes));
    if (linear_decay_form(r->e->spec) != DECAY_NONE)
        back_place_chunks(r, SUMS, 4ll * CHUNK);
    back_place_tokens(r, true, DBETA, 1);
    back_place_tokens(r, gradient && !gives, DLOG, 1);
}

/* ---- launches -------------------------------------------------------------------------------------------
 */

/* For some value channels of each head and sequence, `ways` of going along its chunks. */
static void add_walk(struct recipe *r, const char *role, int ways, int smem_bytes)
{
    back_of_heads(r, role, ways * r->plan->linear.chunk_slices, r->plan->linear.chunk_threads, smem_bytes);
}

/* Both walks in one launch, which fills the device with half as many heads: if nothing in between makes what
   the way back reads of what the other leaves. */
static bool walks_at_once(const struct recipe *r)
{
    return r->plan->linear.walks_at_once && r->buffer[AGAIN_O] < 0;
}

/* The inverse of each chunk, the states in front of them, and o. */
static void again(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_of_chunks(r, "bwd_inverse", 1, INVERSE_THREADS, plan->inverse);
    if (!walks_at_once(r))
        add_walk(r, "bwd_states", 1, plan->again_bytes);
    if (back_wants_again(r))
        back_of_chunks(r, "bwd_again", 1, THREADS, plan->smem_bytes);
}

static void back(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    if (walks_at_once(r))
        add_walk(r, "bwd_states", 2, plan->walk_bytes);
    else
        add_walk(r, "bwd_back", 1, plan->walk_bytes);
    back_of_chunks(r, "bwd_chunks", 1, THREADS, plan->smem_bytes);
}

#define BACKWARD                                                                                             \
    .place = place, .again = again, .back = back, .by_chunk = true, .sums_logs = true, .no_heads = true,     \
    .names_adjoints = true, .takes_mods = true

const struct linear_template linear_delta_bwd = {BACKWARD, .sizes = sizes, .config = config};
const struct linear_template linear_delta_bwd_sm90 = {BACKWARD, .sizes = sizes_sm90, .config = config_sm90};
