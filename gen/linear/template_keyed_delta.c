/*
 * template_keyed_delta.c: linear/keyed_delta.cuh, the delta rule behind a decay by key channel in chunks of
 * tokens, or behind any other that is left to it. In: a request. Out: the plan, or why there is none; config
 * and launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, WARP_COLUMNS = 16, KEY_STEP = 64, STEPS = CHUNK / 16 };

enum { MOST_PIECES = 32, LEAST_PIECES = 3, PIECES_FROM = 1024, NARROW = 128 }; /* keyed_runs there */

/* What tells how much chunks shrink a state costs 2 to 3 % of a call (tests/bench/log/2026-11-29.md), so
   calls whose sequences are too many or too short to be cut go without. A size that is not known may be any.
 */
static bool is_never_cut(const struct problem *p, const struct device *device)
{
    enum { COLUMNS = 64 };
    const int64_t slices = (p->dim[SYM_D_V] + COLUMNS - 1) / COLUMNS;
    const int64_t units = p->dim[SYM_SEQS] * p->dim[SYM_H] * slices;
    const bool known = p->dim[SYM_T] > 0 && p->dim[SYM_SEQS] > 0 && p->dim[SYM_H] > 0;
    return known && (p->dim[SYM_T] < PIECES_FROM || units * LEAST_PIECES > 2 * (int64_t)device->sm_count);
}

int linear_keyed_lengths(const struct problem *p, const struct device *device)
{
    return is_never_cut(p, device) ? LENGTHS_NOT_CUT : 0;
}

/* As many blocks as run at once; keyed_runs there. */
static void choose_pieces(const struct kernel_request *r, struct linear_plan *to, int pad)
{
    const bool two = pad <= NARROW && 2 * to->smem_bytes < r->device->smem_bytes;
    linear_plan_pieces(r, to, MOST_PIECES, PIECES_FROM, r->device->sm_count * (two ? 2 : 1));
    to->part_bytes = 4 * to->column_warps * (WARP_COLUMNS * pad + 4 * 32);
    if (is_never_cut(r->problem, r->device))
        to->pieces = 1;
}

/* Of keyed_walk there. */
static void fill_bytes(const struct kernel_request *r, struct linear_plan *to, int pad, enum keyed_use use)
{
    to->chunk_bytes = linear_keyed_prepared(r, pad, use);
    to->smem_bytes = to->chunk_bytes + linear_tile(r, CHUNK, WARP_COLUMNS * to->column_warps);
    to->inverse = linear_keyed_layout(r, pad, use);
}

static void tell(const struct kernel_request *r, struct plan *plan)
{
    const struct linear_plan *to = &plan->linear;
    int n = snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s with the delta rule%s: %d tokens at a time, a block for each chunk, then %d blocks a head "
        "and sequence, each with %d value channels; ",
        linear_decay_text(linear_decay_form(r->ir)),
        linear_has_vectors(r->ir) ? " and vectors of its own" : "", CHUNK, to->chunk_slices,
        to->column_warps * WARP_COLUMNS);
    if (linear_has_pieces(to))
        n += snprintf(plan->reason + n, sizeof plan->reason - (size_t)n,
                      "few sequences of %d tokens and more in up to %d pieces where the decays allow; ",
                      to->pieces_from, to->pieces);
    snprintf(plan->reason + n, sizeof plan->reason - (size_t)n, "up to 16 tokens one by one");
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    linear_plan_walks(r, plan);
    linear_plan_four_warps(r, to);
    linear_plan_columns(r, to);
    const int pad = round_up(r->problem->dim[SYM_D], KEY_STEP);
    fill_bytes(r, to, pad, KEYED_PIECES);
    choose_pieces(r, to, pad);
    if (linear_has_vectors(r->ir)) /* by how much a token may make a state larger is known of its key alone */
        to->pieces = 1;
    if (!linear_has_pieces(to))
        fill_bytes(r, to, pad, KEYED_WHOLE);
    if (linear_has_vectors(r->ir))
        to->inverse = linear_low_rank_layout(r, pad);
    const int most = to->smem_bytes > to->inverse ? to->smem_bytes : to->inverse;
    if (!linear_has_room(r, most, why))
        return false;
    to->chunk_threads = 32 * to->column_warps;
    tell(r, plan);
    return true;
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int COLUMN_WARPS = %d;\n", plan->linear.column_warps);
    linear_config_pieces(t, &plan->linear);
}

static void launches(struct forward *f)
{
    const struct linear_plan *to = &f->plan->linear;
    forward_place_ahead(f);
    if (linear_has_pieces(to))
        forward_place_parts(f);
    forward_few(f);
    forward_ahead(f, linear_has_vectors(f->e->spec) ? "prepare_low_rank" : "prepare");
    if (linear_has_pieces(to)) {
        f->pieces = to->pieces;
        (void)forward_of_pieces(f, "chunks", to->chunk_slices);
        f->pieces = 1;
    }
    forward_chunks(f);
}

const struct linear_template linear_keyed_delta = {
    .sizes = sizes,
    .config = config,
    .launches = launches,
    .keeps_every = CHUNK,
    .takes_mods = true,
    .names_mods = true,
};
