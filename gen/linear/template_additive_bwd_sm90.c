/*
 * template_additive_bwd_sm90.c: linear/backward/chunks_sm90.cuh, the backward pass of the additive family in
 * chunks of tokens by wgmma. In: a request. Out: the plan, or why there is none; config, workspace and
 * launches.
 */
#include "gen/base/text.h"
#include "gen/arguments/problem.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = 64, SLICE = 64, WARPS = 4, THREADS = 384 };

/* Of chunk_layout there. */
static int smem_bytes(const struct kernel_request *r, int stages, int pads)
{
    enum { FLOAT = 4, BARRIERS = 16, OF_WARPS = 2 * 4 * CHUNK * FLOAT };
    const int panel = linear_tile(r, CHUNK, SLICE); /* of scores, and of results, two each */
    return stages * (2 * linear_tile(r, CHUNK, pads) + CHUNK * FLOAT + BARRIERS) + 4 * panel + OF_WARPS;
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { MOST_STAGES = 4, LEAST_STAGES = 2 };
    struct linear_plan *to = &plan->linear;
    const int d = round_up(r->problem->dim[SYM_D], SLICE);
    const int d_v = round_up(r->problem->dim[SYM_D_V], SLICE);
    to->warps = WARPS;
    to->chunk = CHUNK;
    to->units = 1 + (d > d_v ? d : d_v) / SLICE;
    to->row_slices = d / SLICE;
    to->stages = MOST_STAGES;
    while (to->stages > LEAST_STAGES && smem_bytes(r, to->stages, d + d_v) > r->device->smem_bytes)
        to->stages--;
    to->smem_bytes = smem_bytes(r, to->stages, d + d_v);
    if (!linear_has_room(r, to->smem_bytes, why))
        return false;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s: %d tokens at a time by wgmma, %d blocks a head and sequence: one walks forward for dq, "
        "the others back for dk and dv, each with %d channels in a warpgroup; room for %d chunks",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->units, SLICE, to->stages);
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int STAGES = %d;\nconstexpr bool BOUND_WAITS = %s;\n", plan->linear.stages,
             yes(plan->bound_waits));
}

/* Sums of a token's slices of channels, q dq and k dk, and the last states' part of them; heads that share a
   head of k leave dq and dk each. */
static void place(struct recipe *r, bool gradient)
{
    const struct emitter *e = r->e;
    const int slices = r->plan->linear.row_slices;
    back_place_heads(r, back_lines(4ll * (int)e->problem->dim[SYM_D]), true);
    back_place_tokens(r, gradient, DLOG, 1);
    back_place_tokens(r, gradient, READS, slices);
    back_place_tokens(r, gradient, WRITES, slices);
    if (gradient && problem_has(e->problem, lathe__arg_find(e->sig, "dstate_out", 0))) {
        back_place_sequences(r, ENDS, 4ll * slices);
        /* of a sequence that has no slot nothing is written */
        r->out->buffer[r->buffer[ENDS]].zero = problem_has_named(e->sig, e->problem, "state_index");
    }
}

static void again(struct recipe *r)
{
    if (back_wants_again(r))
        back_of_heads(r, "bwd_again", 1, THREADS, r->plan->linear.smem_bytes);
}

static void back(struct recipe *r)
{
    back_of_heads(r, "bwd_chunks", r->plan->linear.units, THREADS, r->plan->linear.smem_bytes);
    if (r->buffer[DLOG] >= 0)
        back_of_heads(r, "bwd_decay", 1, BACK_TOKEN_THREADS, 0);
}

const struct linear_template linear_additive_bwd_sm90 = {
    .sizes = sizes,
    .config = config,
    .place = place,
    .again = again,
    .back = back,
    .by_chunk = true,
    .sums_logs = true,
    .few_buffers = true,
};
