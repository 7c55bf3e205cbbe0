/*
 * template_additive_bwd.c: linear/backward/additive.cuh, the backward pass of the additive family in chunks
 * of tokens by mma.sync, a decay by key channel among it. In: a request. Out: the plan, or why there is none;
 * config, workspace and launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK = LINEAR_CHUNK, THREADS_OF_A_WALK = 256, SLICE = 64, PART = 128, MOST_DIM = 256, OF_WARP = 16 };
enum { FLOAT = 4 };

/* states_layout of linear/backward/additive_states.cuh: two chunks of keys and values, and of each warp the
   sums of its tokens' logarithms and its largest number. */
static int walk_bytes(const struct kernel_request *r)
{
    enum { WALK_WARPS = THREADS_OF_A_WALK / 32 };
    return 2 * 2 * linear_tile(r, CHUNK, SLICE) + 2 * WALK_WARPS * SLICE * FLOAT + WALK_WARPS * FLOAT;
}

/* Of additive_layout there. `states`: that there is room for. */
static int chunks_bytes(const struct kernel_request *r, int states, int d, int d_v)
{
    enum { OF_CHANNEL = (CHUNK / OF_WARP + 1) * FLOAT, STRONG = 64 };
    return 5 * linear_tile(r, CHUNK, d) + 2 * linear_tile(r, CHUNK, d_v) + states * linear_tile(r, d, d_v) +
           2 * linear_tile(r, CHUNK, CHUNK) + OF_CHANNEL * d + STRONG;
}

/* Both of a chunk where that leaves room for as many blocks on a multiprocessor as threads do. */
static int room_for_states(const struct kernel_request *r, int threads, int d, int d_v)
{
    enum { MOST_THREADS = 512, OF_A_BLOCK = 1024 };
    const int blocks = MOST_THREADS / threads;
    const int room = (r->device->smem_bytes + OF_A_BLOCK) / blocks - OF_A_BLOCK;
    return chunks_bytes(r, 2, d, d_v) <= room ? 2 : 1;
}

/* PAD_V and BANDS of linear/backward/products.cuh. */
int linear_plan_bands(int values, struct linear_plan *to)
{
    to->bands = values > MOST_DIM ? (values + PART - 1) / PART : 1;
    if (to->bands > 1)
        return PART;
    return values > PART ? MOST_DIM : round_up(values, SLICE);
}

void linear_tell_bands(struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    if (plan->linear.bands > 1)
        snprintf(
            plan->reason + used, sizeof plan->reason - used,
            "; value channels go in %d bands of %d, whose gradients of keys and gates are added up behind",
            plan->linear.bands, PART);
}

/* Beyond 128 key channels blocks share them. */
static bool fits(const struct kernel_request *r, struct linear_plan *to, char *why)
{
    const int channels = (int)r->problem->dim[SYM_D];
    const int d = channels > PART ? PART : round_up(channels, SLICE);
    const int d_v = linear_plan_bands((int)r->problem->dim[SYM_D_V], to);
    to->key_parts = channels > PART ? 2 : 1;
    to->chunk_slices = to->bands * d_v / SLICE;
    to->row_slices = to->key_parts * d / SLICE;
    to->chunk_threads = 2 * 32 * d / OF_WARP;
    to->walk_bytes = walk_bytes(r);
    to->stages = room_for_states(r, to->chunk_threads, d, d_v);
    to->smem_bytes = chunks_bytes(r, to->stages, d, d_v);
    const int most = to->walk_bytes > to->smem_bytes ? to->walk_bytes : to->smem_bytes;
    return linear_has_room(r, most, why);
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    if (!fits(r, to, why))
        return false;
    linear_plan_four_warps(r, to);
    to->chunk = CHUNK;
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s: %d tokens at a time by mma.sync; walks along the chunks, forward and back, of %d blocks "
        "a head and sequence with %d channels of both each, then %s for each chunk",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, to->row_slices * to->chunk_slices, SLICE,
        to->key_parts > 1 ? "two blocks that share the key channels" : "a block");
    linear_tell_bands(plan);
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int CHUNK_STAGES = %d;\n", plan->linear.stages);
}

/* ---- workspace ------------------------------------------------------------------------------------------
 */

/* With a normaliser: of each token 1 / divisor, what flows back to that, and do divided; of each chunk the
   sum of keys in front of it and the gradient of that behind it. */
static void place_divisors(struct recipe *r)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    r->divided = r->dout;
    linear_to_workspace(&r->divided, 2, r->e, r->out);
    r->buffer[DIVIDED_OUT] = r->divided.buffer;
    back_place_tokens(r, true, DIVIDED, 2);
    back_place_chunks(r, NORMS, 4ll * d);
    back_place_chunks(r, DNORMS, 4ll * d);
}

/* Of each token the gradient of each channel's logarithm, and dv of each part of the key channels. */
static void place(struct recipe *r, bool gradient)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    const struct linear_plan *plan = &r->plan->linear;
    back_place_heads(r, back_lines(4ll * d * plan->bands), !linear_back_keeps_heads(r));
    back_place_states(r, plan->chunk_slices * plan->row_slices);
    back_place_tokens(r, gradient && !linear_back_gives(r->e->w, r->plan, r->b), DLOG, plan->bands * d);
    back_place_tokens(r, r->e->spec->linear.bonus.n_roots > 0, OWN, 1);
    back_place_tokens(r, plan->key_parts > 1, DV_PARTS, plan->key_parts * (int)r->e->problem->dim[SYM_D_V]);
    if (r->e->spec->linear.normalise)
        place_divisors(r);
}

/* ---- launches -------------------------------------------------------------------------------------------
 */

/* Walks along the chunks both ways, with 64 rows of the state in a block, then a block for each chunk. */
static void back(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_divisors(r);
    if (r->buffer[DIVIDED] >= 0)
        r->dout = r->divided;
    back_of_heads(r, "bwd_states", 2 * plan->row_slices * plan->chunk_slices, THREADS_OF_A_WALK,
                  plan->walk_bytes);
    back_of_bands(r, "bwd_chunks");
    if (plan->key_parts > 1)
        back_of_tokens(r, "bwd_values", SYM_H, false);
}

const struct linear_template linear_additive_bwd = {
    .sizes = sizes,
    .config = config,
    .place = place,
    .again = back_again,
    .back = back,
    .gives_decay = true,
    .groups_dq = true,
};
