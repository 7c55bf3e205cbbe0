/*
 * plan_selected.c: tiles of attention_selected, whose rows have lists of blocks of keys. In: a request and
 * what selected.c has found out about its mask. Out: the plan, or why there is none.
 */
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* First fit by dims, keys of a block and shared memory, of which two blocks and more have room on a
   multiprocessor. A row of a tile is a query head of one token. */
static const struct tile_row TILES[] = {
    {64, 64, 16, 32, 3, 4, true, 80, 999},   {64, 64, 16, 16, 4, 4, true, 80, 999},
    {128, 128, 16, 16, 3, 4, true, 90, 999}, {128, 128, 16, 16, 2, 4, true, 80, 999},
    {256, 256, 16, 16, 3, 4, true, 90, 999}, {256, 256, 16, 16, 2, 2, true, 80, 999},
};

/* decode::layout of attention/decode_warp.cuh, and the list behind it. */
static int smem_bytes(const struct kernel_request *r, const struct tile_row *t, int d_pad, int dv_pad,
                      const struct ir *w)
{
    const int ring = t->warps * t->stages * plan_tile_bytes(r, DTYPE_Q, t->bn, d_pad + dv_pad);
    return ring + t->warps * t->stages * 4 + 16 * t->warps * (w->n_states + 1) * 4 +
           w->lowered.selected.n * 4;
}

static void take(const struct kernel_request *r, const struct tile_row *t, int smem, struct plan *plan)
{
    const struct selected_blocks *of = &r->attention->parts->lowered.selected;
    plan_take_tile(plan, t, smem, false);
    plan->attention.selected = true;
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; a block for each token and key head, whose query heads are rows: its warps take turns in the "
             "tiles of %d listed blocks of %d keys, and no other keys are read",
             of->n, of->keys);
    rescale_say(r->attention->parts, false, plan->attention.rows, sizeof plan->attention.rows);
}

bool plan_attention_selected(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!plan_attention_begin(r, plan, why))
        return false;
    const struct ir *w = r->attention->parts;
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; i++) {
        const struct tile_row *t = &TILES[i];
        const int smem = smem_bytes(r, t, plan->attention.d_pad, plan->attention.dv_pad, w);
        if (plan->attention.d_pad > t->max_d || plan->attention.dv_pad > t->max_dv ||
            smem > r->device->smem_bytes || r->device->sm < t->min_sm || r->device->sm > t->max_sm ||
            w->lowered.selected.keys % t->bn != 0 || w->lowered.selected.n > 32 * t->warps ||
            !plan_tile_is_wanted(r, t))
            continue;
        take(r, t, smem, plan);
        return true;
    }
    snprintf(why, REASON_BYTES,
             "no tile of head dims %d, %d has %d blocks of %d keys in %d bytes of shared memory; blocks are "
             "of multiples of 16 keys",
             plan->attention.d_pad, plan->attention.dv_pad, w->lowered.selected.n, w->lowered.selected.keys,
             r->device->smem_bytes);
    return false;
}
