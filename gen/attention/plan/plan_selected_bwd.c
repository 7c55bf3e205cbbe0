/*
 * plan_selected_bwd.c: tiles of attention_bwd_selected: gradients of attention whose rows have lists of
 * blocks of keys. In: a request and what selected.c has found out about its mask. Out: the plan, or why there
 * is none.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/backward.h"
#include "gen/attention/kernel.h"
#include "gen/attention/plan/plan_back.h"
#include "gen/attention/planner.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* First fit by dims, keys of a block and shared memory, of which `blocks` have room on a multiprocessor. */
static const struct listed_tile {
    int max_d, max_dv;
    int bm, bn, warps, split, stages, blocks;
    int min_smem; /* that a block of the device may have */
} TILES[] = {
    {64, 64, 64, 64, 4, 2, 1, 3, 166912}, {128, 128, 64, 64, 4, 2, 1, 2, 166912},
    {128, 128, 64, 64, 8, 4, 1, 1, 0},    {256, 256, 64, 64, 8, 4, 1, 1, 166912},
    {256, 256, 32, 32, 4, 2, 1, 1, 0},    {256, 256, 64, 16, 4, 4, 1, 1, 0},
};

/* selected_layout of attention/backward/selected.cuh. */
static int smem_bytes(const struct kernel_request *r, const struct listed_tile *t, int dk, int dv, int rows)
{
    const int pairs = plan_tile_bytes(r, DTYPE_Q, t->bn, t->bm) * (t->split > 1 ? 2 : 1);
    return t->stages * (plan_tile_bytes(r, DTYPE_Q, t->bm, dk + dv) + 16 * rows * t->bm) +
           plan_tile_bytes(r, DTYPE_Q, t->bn, dk + dv) + pairs + 24 * t->bm;
}

static bool tile_fits(const struct kernel_request *r, const struct listed_tile *t,
                      const struct pair_needs *pair, struct plan *plan)
{
    const int d = (int)r->problem->dim[SYM_D];
    const int dv = (int)r->problem->dim[SYM_D_V];
    const int down = 16 * t->warps / t->bm;
    struct back_plan *back = &plan->attention.back;
    *back = (struct back_plan){.bm = t->bm,
                               .bn = t->bn,
                               .warps = t->warps,
                               .stages = t->stages,
                               .split = t->split,
                               .selected = true,
                               .blocks = t->blocks};
    back->dk = round_up(d, 16 * (t->split > down ? t->split : down));
    back->dv = round_up(dv, 16 * t->split);
    back->smem_bytes = smem_bytes(r, t, back->dk, back->dv, pair->rows + (pair->norm ? 1 : 0));
    return d <= t->max_d && dv <= t->max_dv && r->attention->backward->lowered.selected.keys % t->bn == 0 &&
           r->device->smem_bytes >= t->min_smem && back->smem_bytes <= r->device->smem_bytes &&
           plan_back_tile_is_wanted(r, plan);
}

static bool take(const struct kernel_request *r, const struct pair_needs *pair, struct plan *plan)
{
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; i++)
        if (tile_fits(r, &TILES[i], pair, plan))
            return true;
    return false;
}

bool plan_attention_bwd_selected(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!plan_back_with(r, plan, why, take))
        return false;
    const struct selected_blocks *of = &r->attention->backward->lowered.selected;
    const size_t used = strlen(plan->reason);
    snprintf(
        plan->reason + used, sizeof plan->reason - used,
        "; rows of a tile are query heads of tokens whose lists of %d blocks of %d keys name the tile's; "
        "dk and dv are added up in memory",
        of->n, of->keys);
    return true;
}
