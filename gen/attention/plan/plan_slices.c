/*
 * plan_slices.c: tiles of attention_bwd_slices and attention_bwd_latent_sm90: gradients of wide head dims,
 * and of V that is a part of K. In: a request. Out: the plan, or why there is none.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/backward.h"
#include "gen/attention/kernel.h"
#include "gen/attention/plan/plan_back.h"
#include "gen/attention/planner.h"
#include "gen/attention/tile_map.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

enum { WARPS = 4, KEYS = 64, SLICE = 64 };           /* of attention/backward/slices.cuh */
static const int QUERIES[] = {64, 32};               /* of a tile: the first that fits */
enum { SUM_ROWS = 64, SUM_KEYS = 32, COLUMNS = 16 }; /* of attention/backward/row_sums.cuh */

static bool is_wide(const struct problem *problem)
{
    return problem->dim[SYM_D] > MAX_DIM || problem->dim[SYM_D_V] > MAX_DIM;
}

static bool is_needed(const struct kernel_request *r, char *why)
{
    if (is_wide(r->problem) || r->ir->v_is_k || strstr(r->device->template_name, "attention_bwd_slices"))
        return true;
    snprintf(
        why, REASON_BYTES,
        "it is for head dims beyond %d, and for specs whose v is \"k\"; other templates are for narrower "
        "ones",
        MAX_DIM);
    return false;
}

/* Where no forward kernel has to run first, its numbers are any. */
static bool plan_before(const struct kernel_request *r, struct plan *plan, char *why)
{
    static const struct tile_row NONE = {576, 512, 64, 16, 1, 4, false, 80, 999};
    if (!plan_gradients_exist(r, why))
        return false;
    if (r->attention->runs_forward && !is_wide(r->problem))
        return plan_attention_before(r, plan, why);
    plan->attention.pair = PAIR_COPIED;
    if (!plan_attention_begin(r, plan, why))
        return false;
    plan_take_tile(plan, &NONE, 0, false);
    if (!r->attention->runs_forward)
        return true;
    if (r->problem->dim[SYM_D_V] % ATTENTION_DIM_STEP != 0) {
        snprintf(
            why, REASON_BYTES,
            "d_v = %d is no multiple of %d, so the forward kernel would run first, and none for head dims "
            "beyond %d does; pad v, o and do, or the host device",
            (int)r->problem->dim[SYM_D_V], ATTENTION_DIM_STEP, MAX_DIM);
        return false;
    }
    snprintf(
        why, REASON_BYTES,
        "no forward kernel for head dims beyond %d runs in front of it: give o and the finals of the forward "
        "pass, to a spec without an output_mod whose gradients need no row state that is no final",
        MAX_DIM);
    return false;
}

static bool tile_fits(const struct kernel_request *r, int queries, struct plan *plan)
{
    const struct pair_needs *pair = &r->attention->pair;
    const int rows = pair->rows + (pair->norm ? 1 : 0);
    struct back_plan *back = &plan->attention.back;
    *back = (struct back_plan){
        .bm = queries, .bn = KEYS, .warps = WARPS, .stages = 2, .split = 1, .slices = true};
    back->dk = round_up(r->problem->dim[SYM_D], 16 * (16 * WARPS / queries));
    back->dv = round_up(r->problem->dim[SYM_D_V], 16);
    back->smem_bytes = 2 * plan_tile_bytes(r, DTYPE_Q, queries + KEYS, SLICE) +
                       plan_tile_bytes(r, DTYPE_Q, queries, KEYS) + 4 * rows * queries +
                       (pair->diag ? 4 * (queries + KEYS) : 0);
    const int rows_of_dq =
        queries * (back->dk + 8) * 4; /* smem_bytes::bwd_q of attention/backward/mods.cuh */
    const bool fits = back->smem_bytes <= r->device->smem_bytes && rows_of_dq <= r->device->smem_bytes;
    plan_take_tables(pair, r->device->smem_bytes - back->smem_bytes, back);
    snprintf(plan->tile, sizeof plan->tile, "%dx%dw%dp1s2", queries, KEYS, WARPS);
    return fits && (!r->device->tile[0] || strcmp(r->device->tile, plan->tile) == 0);
}

/* Those of rows are of whole head dims. */
static bool sums_fit(const struct kernel_request *r, char *why)
{
    const int columns =
        round_up(r->problem->dim[SYM_D], COLUMNS) + round_up(r->problem->dim[SYM_D_V], COLUMNS);
    if (r->attention->back.n_sums == 0 ||
        plan_tile_bytes(r, DTYPE_Q, SUM_ROWS + SUM_KEYS, columns) <= r->device->smem_bytes)
        return true;
    snprintf(why, REASON_BYTES,
             "the online function's gradient sums over rows, whose tiles do not fit %d bytes of shared "
             "memory; the "
             "host device takes it",
             r->device->smem_bytes);
    return false;
}

static bool take(const struct kernel_request *r, int queries, struct plan *plan)
{
    if (!tile_fits(r, queries, plan))
        return false;
    if (!r->skip || *r->skip == 0)
        return true;
    (*r->skip)--;
    return false;
}

static void say(const struct kernel_request *r, struct plan *plan)
{
    const struct pair_needs *pair = &r->attention->pair;
    plan_say_backward(r, &r->attention->back, pair->rows + (pair->norm ? 1 : 0), plan);
    const size_t used = strlen(plan->reason);
    snprintf(
        plan->reason + used, sizeof plan->reason - used,
        "; head dims go in slices of %d columns, which are read twice for each tile, and dk and dv are added "
        "up in memory: right at any width, and no fast kernel%s",
        SLICE, r->ir->v_is_k ? "; what v gives is added to dk" : "");
    plan_say_copies(r, plan);
    plan_say_pages(r, plan);
    plan_say_pair(r, plan);
}

bool plan_attention_bwd_slices(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!is_needed(r, why) || !plan_before(r, plan, why) || !sums_fit(r, why))
        return false;
    plan->attention.v_is_k = r->ir->v_is_k;
    plan->attention.o_f32 = true;
    for (size_t i = 0; i < sizeof QUERIES / sizeof *QUERIES; i++)
        if (take(r, QUERIES[i], plan)) {
            plan->attention.back.forward = r->attention->runs_forward;
            say(r, plan);
            return true;
        }
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory",
             (int)r->problem->dim[SYM_D], (int)r->problem->dim[SYM_D_V], r->device->smem_bytes);
    return false;
}

/* ---- sm_90a ---------------------------------------------------------------------------------------------
 */

/* back::layout of attention/backward/latent_sm90.cuh. K, Q and dO of 64 rows, weights and ds leave less than
   3 KB of the 227 that a block has: so there is one tile, and K has one place. */
static int latent_smem(const struct kernel_request *r, const struct back_plan *back, int values)
{
    const struct pair_needs *pair = &r->attention->pair;
    return plan_tile_bytes(r, DTYPE_K, back->bn, back->dk) + plan_tile_bytes(r, DTYPE_Q, back->bm, back->dk) +
           plan_tile_bytes(r, DTYPE_O, back->bm, values) +
           2 * plan_tile_bytes(r, DTYPE_Q, back->bn, back->bm) +
           4 * back->bm * (pair->rows + (pair->norm ? 1 : 0)) + (pair->diag ? 4 * (back->bm + back->bn) : 0) +
           32;
}

bool plan_attention_bwd_latent(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { TILE = 64, LATENTS = 576, VALUES = 512 };
    if (tile_map_wanted(r->attention->backward)) {
        snprintf(why, REASON_BYTES,
                 "the mask reads data or is no interval of keys, and it has no map; attention_bwd_slices "
                 "takes it");
        return false;
    }
    if (!plan_before(r, plan, why) || !sums_fit(r, why))
        return false;
    struct back_plan *back = &plan->attention.back;
    *back = (struct back_plan){.bm = TILE,
                               .bn = TILE,
                               .warps = 2 * WARPS,
                               .stages = 1,
                               .split = 2,
                               .dk = LATENTS,
                               .dv = LATENTS, /* whose panels are those of k */
                               .slices = true,
                               .walks_keys = true};
    back->smem_bytes = latent_smem(r, back, VALUES);
    plan->attention.v_is_k = true;
    plan->attention.o_f32 = true;
    if (back->smem_bytes > r->device->smem_bytes || !plan_back_tile_is_wanted(r, plan)) {
        snprintf(why, REASON_BYTES, "its one tile asks for %d bytes of shared memory", back->smem_bytes);
        return false;
    }
    back->forward = r->attention->runs_forward;
    plan_say_backward(r, &r->attention->back, r->attention->pair.rows + (r->attention->pair.norm ? 1 : 0),
                      plan);
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; a block has rows of queries, whose dq stays in registers, and walks keys");
    plan_say_pair(r, plan);
    return true;
}
