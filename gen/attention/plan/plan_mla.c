/*
 * plan_mla.c: tiles of attention_mla and attention_mla_sm90: wide head dims, and V that is a part of K. In: a
 * request and what plan.c has found out about the spec. Out: the plan, or why there is none.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/attention/traits.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

enum { WARP_ROWS = 16, MOST_COLUMNS = 256 }; /* of o, that a warp has registers for */
enum { DEAR_KEYS = 1024 };                   /* of a part, whose o is as long as those of some hundred keys */

/* First fit by shared memory. Two or four warps share 16 rows; the more rows a block has, the less often keys
   are read again, and the more keys a tile has, the less often Q is. */
static const struct tile_row TILES[] = {
    {576, 512, 64, 32, 3, 8, false, 80, 999}, {576, 512, 64, 32, 2, 8, false, 80, 999},
    {576, 512, 64, 16, 2, 8, false, 80, 999}, {576, 512, 32, 32, 2, 8, false, 80, 999},
    {576, 512, 32, 16, 2, 4, false, 80, 999}, {576, 512, 16, 32, 2, 4, false, 80, 999},
    {576, 512, 16, 16, 2, 4, false, 80, 999},
};

static int slices_of(const struct tile_row *t)
{
    return t->warps / (t->bm / WARP_ROWS);
}

/* mla::layout of attention/mla.cuh. */
static int smem_bytes(const struct kernel_request *r, const struct tile_row *t, const struct plan *plan)
{
    const int d_pad = plan->attention.d_pad;
    const int columns = d_pad + (plan->attention.v_is_k ? 0 : plan->attention.dv_pad);
    const int stage = plan_tile_bytes(r, DTYPE_Q, t->bn, columns);
    return plan_tile_bytes(r, DTYPE_Q, t->bm, d_pad) + t->stages * stage +
           (slices_of(t) > 1 ? t->warps * t->bn * 64 : 0);
}

static bool is_needed(const struct kernel_request *r, char *why)
{
    const bool wide =
        !attention_whole_rows(r) || (r->problem->dim[SYM_D_V] > MAX_DIM && attention_has_sequences(r));
    const bool asked = strstr(r->device->template_name, "attention_mla") != NULL;
    const bool decodes = r->ir->qk2 && (lathe__lengths(r->problem) & LENGTHS_FEW_QUERIES) != 0;
    const bool cached = r->ir->qk2 && (r->problem->paged || problem_has_named(r->sig, r->problem, "used_kv"));
    if (wide || r->ir->v_is_k || decodes || cached || asked)
        return true;
    snprintf(why, REASON_BYTES,
             "it is for head dims beyond %d, for specs whose v is \"k\", and beside q2 and k2 for few "
             "queries and "
             "for keys of a cache; other templates are for narrower ones",
             MAX_DIM);
    return false;
}

/* Blocks of a multiprocessor: registers are for 8 warps. */
static int resident(const struct device *device, const struct tile_row *t, int smem)
{
    enum { RESERVED = 1024, WARPS = 8 };
    const int by_memory = (device->smem_bytes + RESERVED) / (smem + RESERVED);
    return by_memory < WARPS / t->warps ? by_memory : WARPS / t->warps;
}

/* blocks: of a multiprocessor; how: which warps share rows, for `lathe explain`. */
static void take(const struct kernel_request *r, const struct tile_row *t, int smem, int blocks,
                 const char *how, struct plan *plan)
{
    plan_take_tile(plan, t, smem, false);
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used, "; %s%s", how,
             plan->attention.v_is_k ? "; v is read with k" : "");
    plan_cut_keys(r, blocks * r->device->sm_count, DEAR_KEYS, plan);
    plan_say_pair(r, plan);
    rescale_say(r->attention->parts, false, plan->attention.rows, sizeof plan->attention.rows);
}

static bool take_tile(const struct kernel_request *r, const struct tile_row *t, struct plan *plan)
{
    const int step = WARP_ROWS * slices_of(t);
    plan->attention.d_pad = round_up(r->problem->dim[SYM_D], step);
    plan->attention.dv_pad = round_up(r->problem->dim[SYM_D_V], step);
    const int smem = smem_bytes(r, t, plan);
    if (plan->attention.dv_pad / slices_of(t) > MOST_COLUMNS || smem > r->device->smem_bytes ||
        !plan_tile_is_wanted(r, t))
        return false;
    char how[128];
    snprintf(how, sizeof how,
             "%d warps share 16 rows: each has every %d'th 16 of the head dim and of the columns of o",
             slices_of(t), slices_of(t));
    take(r, t, smem, resident(r->device, t, smem), how, plan);
    plan_say_copies(r, plan);
    return true;
}

static bool begin(const struct kernel_request *r, struct plan *plan, char *why)
{
    plan->attention.pair = PAIR_READ;
    plan->attention.v_is_k = r->ir->v_is_k;
    return is_needed(r, why) && plan_attention_begin(r, plan, why);
}

static bool take_first(const struct kernel_request *r, struct plan *plan, char *why)
{
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; i++)
        if (take_tile(r, &TILES[i], plan))
            return true;
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory",
             (int)r->problem->dim[SYM_D], (int)r->problem->dim[SYM_D_V], r->device->smem_bytes);
    return false;
}

bool plan_attention_mla(const struct kernel_request *r, struct plan *plan, char *why)
{
    return begin(r, plan, why) && take_first(r, plan, why);
}

/* Keys of 8 bits as the kernel reads them: 16 numbers at a time, each of which a mod makes alone. */
static bool reads_keys(const struct kernel_request *r, char *why)
{
    enum { STEP = 16 };
    const int64_t d = r->problem->dim[SYM_D] - (r->ir->qk2 ? r->problem->dim[SYM_D2] : 0);
    const char *reason = NULL;
    if (lathe__narrow_dtype(r->sig, r->problem, "k") == LATHE_NONE)
        reason = "it is for k of 8 bits";
    else if (d % STEP != 0)
        reason = "rows of k of 8 bits are no multiples of 16 numbers";
    else if (arg_in(r->problem->unaligned, lathe__arg_find(r->sig, "k", 0)))
        reason = "rows of k do not start at multiples of 16 bytes";
    for (int s = 0; s < r->ir->mod[MOD_KEY].n_stages && !reason; s++)
        if (!plan_stage_is_of_elements(r->ir, &r->ir->mod[MOD_KEY].stage[s]))
            reason = "key_mod makes elements from others, which another kernel does ahead";
    if (reason)
        snprintf(why, REASON_BYTES, "%s", reason);
    return !reason;
}

static bool begin_narrow(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!reads_keys(r, why) || !begin(r, plan, why))
        return false;
    plan->attention.reads_narrow = true;
    plan->attention.applies_key_mod = true;
    return true;
}

bool plan_attention_mla_narrow(const struct kernel_request *r, struct plan *plan, char *why)
{
    return begin_narrow(r, plan, why) && take_first(r, plan, why);
}

/* ---- sm_90a ---------------------------------------------------------------------------------------------
 */

/* mla::layout of attention/mla_sm90.cuh. */
static int wgmma_smem_bytes(const struct kernel_request *r, const struct tile_row *t, const struct plan *plan)
{
    return plan_tile_bytes(r, DTYPE_Q, t->bm + t->stages * t->bn, plan->attention.d_pad) +
           plan_tile_bytes(r, DTYPE_Q, 64, 64) + 512;
}

static bool take_wgmma(const struct kernel_request *r, struct plan *plan, char *why)
{
    static const struct tile_row TILE = {576, 512, 64, 64, 2, 12, false, 90, 90};
    plan->attention.d_pad = round_up(r->problem->dim[SYM_D], 64);
    plan->attention.dv_pad = round_up(r->problem->dim[SYM_D_V], 128);
    const int smem = wgmma_smem_bytes(r, &TILE, plan);
    if (plan->attention.dv_pad > plan->attention.d_pad)
        snprintf(
            why, REASON_BYTES,
            "d = %d, d_v = %d: d_v, rounded up to 128 columns, is beyond the columns of k; attention_mla "
            "takes them",
            (int)r->problem->dim[SYM_D], (int)r->problem->dim[SYM_D_V]);
    else if (smem > r->device->smem_bytes || !plan_tile_is_wanted(r, &TILE))
        snprintf(why, REASON_BYTES, "its one tile asks for %d bytes of shared memory", smem);
    else {
        plan->attention.parts_even = true;
        take(r, &TILE, smem, 1,
             "a warpgroup brings tiles of keys, one weighs scores and has the left half of o, one the right "
             "half",
             plan);
        return true;
    }
    return false;
}

bool plan_attention_mla_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    return begin(r, plan, why) && take_wgmma(r, plan, why);
}

bool plan_attention_mla_narrow_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    return begin_narrow(r, plan, why) && take_wgmma(r, plan, why);
}
