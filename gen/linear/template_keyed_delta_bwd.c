/*
 * template_keyed_delta_bwd.c: linear/backward/keyed_delta.cuh, the backward pass of the delta rule behind a
 * decay by key channel in chunks of tokens, by mma.sync; keyed_rule.cuh, where its tokens read and write by
 * vectors of their own; and dplr.cuh, where what they read is written beside v. In: a request. Out: the plan,
 * or why there is none; config, workspace and launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, SLICE = 64, PART = 128, COLUMN_WARPS = 4, OF_WARP = 16 };
enum { PREPARE_THREADS = 128 };

/* Of keyed_layout_back there. */
static int chunks_bytes(const struct kernel_request *r, int part, int d_v)
{
    enum { FLOAT = 4, BLOCKS = CHUNK / OF_WARP, OF_CHANNEL = (BLOCKS + 1) * FLOAT, STRONG = 64 };
    return 5 * linear_tile(r, CHUNK, part) + 3 * linear_tile(r, CHUNK, d_v) + 2 * linear_tile(r, part, d_v) +
           2 * linear_tile(r, CHUNK, CHUNK) + OF_CHANNEL * part + STRONG;
}

/* Of low_rank_layout_back of linear/backward/keyed_rule.cuh: readers beside what writes. */
static int bytes_with_readers(const struct kernel_request *r, int part, int d_v)
{
    enum { TILE = 128 };
    return round_up(chunks_bytes(r, part, d_v), TILE) + linear_tile(r, CHUNK, part);
}

/* Blocks of a chunk share the key channels where one has no room for all of them. */
static void choose_parts(const struct kernel_request *r, struct linear_plan *to, int d, int d_v)
{
    int (*const bytes)(const struct kernel_request *, int, int) =
        linear_has_vectors(r->ir) ? bytes_with_readers : chunks_bytes;
    int part = d % PART == 0 ? PART : SLICE;
    if (bytes(r, part, d_v) > r->device->smem_bytes)
        part = SLICE;
    to->key_parts = d / part;
    to->chunk_threads = 2 * 32 * part / OF_WARP;
    to->smem_bytes = bytes(r, part, d_v);
}

/* Of back_walk and keyed_layout there. */
static bool fits(const struct kernel_request *r, struct linear_plan *to, char *why)
{
    const int d = round_up(r->problem->dim[SYM_D], SLICE);
    const int d_v = linear_plan_bands((int)r->problem->dim[SYM_D_V], to);
    choose_parts(r, to, d, d_v);
    to->row_slices = d / SLICE;
    to->column_warps = COLUMN_WARPS;
    to->chunk_slices = to->bands * d_v / SLICE;
    const bool vectors = linear_has_vectors(r->ir);
    const bool adds =
        linear_more_writers(r) > 0; /* each way has what is for it in the place of the other's */
    to->chunk_bytes =
        vectors ? linear_low_rank_prepared(r, d, KEYED_BACK) : linear_keyed_prepared(r, d, KEYED_BACK);
    to->inverse = vectors ? linear_low_rank_layout(r, d) : linear_keyed_layout(r, d, KEYED_BACK);
    to->walk_bytes = (adds ? linear_low_rank_prepared(r, d, KEYED_WHOLE) : to->chunk_bytes) +
                     linear_tile(r, CHUNK, OF_WARP * COLUMN_WARPS) + 4 * COLUMN_WARPS;
    to->stages = 2;
    const int ahead = to->inverse > to->walk_bytes ? to->inverse : to->walk_bytes;
    return linear_has_room(r, ahead > to->smem_bytes ? ahead : to->smem_bytes, why);
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    if (!fits(r, to, why))
        return false;
    linear_plan_four_warps(r, to);
    to->chunk = CHUNK;
    snprintf(plan->reason, sizeof plan->reason,
             "decay %s%s: %d tokens at a time by mma.sync; walks along the chunks, forward and back, of %d "
             "blocks a head and sequence with %d value channels each, then %d for each chunk, with %d "
             "key channels each",
             linear_decay_text(linear_decay_form(r->ir)),
             linear_more_writers(r) > 0  ? ", and what is read is written, too"
             : linear_has_vectors(r->ir) ? " with the delta rule and vectors of its own"
                                         : " with the delta rule",
             CHUNK, to->chunk_slices, SLICE, to->key_parts * to->bands, to->chunk_threads / 64 * OF_WARP);
    linear_tell_bands(plan);
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int CHUNK_STAGES = %d, COLUMN_WARPS = %d, PIECES = 1;\n", plan->linear.stages,
             plan->linear.column_warps);
}

/* ---- workspace ------------------------------------------------------------------------------------------
 */

/* DLOG: the gradients of logarithms, unless bwd_chunks hands them to the decay's inputs at once. */
static void place_dlog(struct recipe *r, bool gradient)
{
    const struct linear_plan *plan = &r->plan->linear;
    const bool by_key = linear_decay_form(r->e->spec) == DECAY_KEY;
    back_place_tokens(r, gradient && !linear_back_gives(r->e->w, r->plan, r->b), DLOG,
                      plan->bands * (by_key ? (int)r->e->problem->dim[SYM_D] : plan->key_parts));
}

/* Of each chunk of each head all that linear/keyed_delta_prepare.cuh has made of it; what its tokens write,
   and the gradient of that; of each token that of beta. */
static void place(struct recipe *r, bool gradient)
{
    const struct linear_plan *plan = &r->plan->linear;
    const int d = (int)r->e->problem->dim[SYM_D];
    const int bands = plan->bands;
    const int64_t values = 2ll * CHUNK * SLICE * plan->chunk_slices;
    back_place_heads(r, back_lines(4ll * d * bands), bands == 1);
    back_place_chunks(r, INVERSE, plan->chunk_bytes);
    back_place_states(r, plan->chunk_slices * plan->row_slices);
    back_place_chunks(r, WRITTEN, values);
    back_place_chunks(r, DWRITTEN, values);
    back_place_tokens(r, true, DBETA, bands);
    place_dlog(r, gradient);
}

/* With vectors of its own: what comes to readers and writers, in f32; and what the rule corrects by and its
   gradient, where beta wants its own. */
static void place_rule(struct recipe *r, bool gradient)
{
    const struct linear_plan *plan = &r->plan->linear;
    const int each = plan->bands * (int)r->e->problem->dim[SYM_D];
    const int d_v = (int)r->e->problem->dim[SYM_D_V];
    const bool corrects = r->b->site[OF_DELTA].n > 0;
    const bool adds = r->e->spec->linear.delta.n_roots == 0; /* of b and of k */
    const int64_t values = 2ll * CHUNK * SLICE * plan->chunk_slices;
    back_place_tokens(r, corrects, ERRORS, d_v);
    back_place_tokens(r, corrects, DX, d_v);
    back_place_tokens(r, true, DQ_HEAD, each);
    back_place_tokens(r, true, DK_HEAD, each);
    back_place_tokens(r, true, DK_READ, each);
    back_place_tokens(r, adds, OWN, each);
    place_dlog(r, gradient);
    back_place_chunks(r, INVERSE, plan->chunk_bytes);
    back_place_states(r, plan->chunk_slices * plan->row_slices);
    back_place_chunks(r, WRITTEN, values);
    back_place_chunks(r, DWRITTEN, values);
    back_place_tokens(r, !adds, DBETA, plan->bands);
}

/* ---- launches -------------------------------------------------------------------------------------------
 */

static void again(struct recipe *r)
{
    back_of_chunks(r, "bwd_prepare", 1, PREPARE_THREADS, r->plan->linear.inverse);
    back_again(r);
}

/* Walks along the chunks both ways, then blocks for each chunk. */
static void back(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_of_heads(r, "bwd_states", 2 * plan->chunk_slices, 32 * plan->column_warps, plan->walk_bytes);
    back_of_bands(r, "bwd_chunks");
}

static void again_rule(struct recipe *r)
{
    back_of_chunks(r, "bwd_prepare_low_rank", 1, PREPARE_THREADS, r->plan->linear.inverse);
    if (r->buffer[AGAIN_O] >= 0)
        back_by_token(r, "bwd_again", r->plan->linear.slices);
}

static void back_rule(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_of_heads(r, "bwd_states", 2 * plan->chunk_slices, 32 * plan->column_warps, plan->walk_bytes);
    back_of_bands(r, "bwd_chunks_low_rank");
}

static void back_dplr(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_of_heads(r, "bwd_states_dplr", 2 * plan->chunk_slices, 32 * plan->column_warps, plan->walk_bytes);
    back_of_bands(r, "bwd_chunks_dplr");
}

static bool sizes_of_rule(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (linear_has_vectors(r->ir))
        return sizes(r, plan, why);
    snprintf(why, REASON_BYTES, "neither slot reader nor slot writer (linear_keyed_delta_bwd takes that)");
    return false;
}

const struct linear_template linear_keyed_rule_bwd = {
    .sizes = sizes_of_rule,
    .config = config,
    .place = place_rule,
    .again = again_rule,
    .back = back_rule,
    .sums_logs = true,
    .gives_decay = true,
    .names_adjoints = true,
};
const struct linear_template linear_dplr_bwd = {
    .sizes = sizes,
    .config = config,
    .place = place_rule,
    .again = again_rule,
    .back = back_dplr,
    .sums_logs = true,
    .gives_decay = true,
    .names_adjoints = true,
};
const struct linear_template linear_keyed_delta_bwd = {
    .sizes = sizes,
    .config = config,
    .place = place,
    .again = again,
    .back = back,
    .by_chunk = true,
    .sums_logs = true,
    .gives_decay = true,
    .names_adjoints = true,
};
