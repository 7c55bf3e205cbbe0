/*
 * template_recurrent_bwd.c: linear/backward/rows.cuh and columns.cuh, the backward pass of every spec token
 * by token. In: a request. Out: the plan, or why there is none; workspace and launches.
 */
#include "gen/arguments/problem.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { CHUNK = 64, TILE_STEP = 32 };

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    plan->linear.chunk = CHUNK;
    return linear_plan_one_by_one(r, plan, why);
}

/* ---- workspace ------------------------------------------------------------------------------------------
 */

/* Of saved tiles: columns of the state where its decay varies by value channel, else rows. */
static int64_t saved_bytes(const struct recipe *r, bool by_value)
{
    const int d = (int)r->e->problem->dim[SYM_D];
    const int values = (int)r->e->problem->dim[SYM_D_V] + (r->e->spec->linear.normalise ? 1 : 0);
    const int pad = ((by_value ? d : values) + TILE_STEP - 1) / TILE_STEP * TILE_STEP;
    const int columns = pad > 128 ? 2 : 4;
    const int slices = by_value ? r->plan->linear.slices : r->plan->linear.row_slices;
    return 4ll * slices * (pad / TILE_STEP) * 4 * columns * 32 * r->plan->linear.warps;
}

static void place_saved(struct recipe *r, bool by_value)
{
    struct product chunks = product_of(saved_bytes(r, by_value));
    const struct emitter *e = r->e;
    product_times(&chunks, SYM_B, 1);
    product_times(&chunks, SYM_H, 1);
    product_times(&chunks, SYM_T, r->plan->linear.chunk);
    r->buffer[CHUNKS] = add_buffer(r->out, e, chunks);
    if (problem_has(e->problem, lathe__arg_find(e->sig, "dstate_out", 0)) ||
        problem_has(e->problem, lathe__arg_find(e->sig, "dnorm_out", 0)))
        back_place_sequences(r, ENDS, saved_bytes(r, by_value));
}

static void place(struct recipe *r, bool gradient)
{
    const struct ir_linear *l = &r->e->spec->linear;
    const int d = (int)r->e->problem->dim[SYM_D];
    const int d_v = (int)r->e->problem->dim[SYM_D_V];
    const bool delta = l->delta.n_roots > 0;
    const bool looks = delta || l->reader.n_roots > 0;
    const bool by_value = linear_decay_form(r->e->spec) == DECAY_VALUE;
    back_place_tokens(r, l->normalise, DIVIDED, 2);
    back_place_tokens(r, looks, ERRORS, d_v);
    back_place_tokens(r, looks, DX, d_v);
    back_place_tokens(r, true, DQ_HEAD, d);
    back_place_tokens(r, true, DK_HEAD, d);
    back_place_tokens(r, looks, DK_READ, d);
    back_place_tokens(r, gradient, DLOG, by_value ? d_v : d);
    back_place_tokens(r, l->bonus.n_roots > 0 || looks != delta, OWN, looks != delta ? d : 1);
    if (gradient)
        place_saved(r, by_value);
}

/* ---- launches -------------------------------------------------------------------------------------------
 */

static void back(struct recipe *r)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_divisors(r);
    back_by_token(r, "bwd_columns", plan->slices);
    back_by_token(r, "bwd_queries", plan->row_slices);
    back_by_token(r, "bwd_keys", plan->row_slices);
}

const struct linear_template linear_recurrent_bwd = {
    .sizes = sizes,
    .place = place,
    .again = back_again,
    .back = back,
    .wide_dout = true,
    .few_buffers = true,
};
