/*
 * plan_sm80.c: tiles of attention_fwd_sm80 and attention_fwd_narrow. In: a request and what plan.c has found
 * out about the spec. Out: the plan, or why there is none.
 */
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

/* First fit by dims, compute capability and shared memory. */
static const struct tile_row TILES[] = {
    {64, 64, 128, 64, 2, 4, true, 80, 999},    {64, 64, 64, 64, 2, 4, false, 80, 999},
    {96, 96, 128, 64, 2, 4, false, 80, 999},   {128, 128, 128, 64, 1, 4, false, 80, 999},
    {128, 128, 64, 64, 1, 4, false, 80, 999},  {192, 128, 128, 64, 1, 8, false, 80, 999},
    {192, 192, 128, 64, 1, 8, false, 80, 999}, {192, 256, 128, 32, 1, 8, false, 80, 999},
    {256, 256, 128, 64, 1, 8, false, 80, 999}, {256, 256, 64, 32, 1, 4, false, 80, 999},
    {256, 256, 64, 16, 1, 4, false, 80, 999},
};

/* Before those, where the mask may leave rows little: less of a tile is dead, and of four blocks an SM, which
   an H200 has room for, more are in the middle of their rows. Elsewhere twice the reads of K and V cost a
   tenth. */
static const struct tile_row SHORT_TILES[] = {
    {64, 64, 64, 64, 2, 2, true, 90, 999},
    {128, 128, 64, 64, 1, 2, false, 90, 999},
};

/* Of f32: one block of 16 rows a warp, since halves of operands take registers beside o and scores. */
static const struct tile_row F32_TILES[] = {
    {64, 64, 64, 64, 1, 4, false, 80, 999},   {128, 128, 128, 64, 1, 8, false, 80, 999},
    {128, 128, 64, 32, 1, 4, false, 80, 999}, {192, 256, 128, 32, 1, 8, false, 80, 999},
    {256, 256, 64, 32, 1, 4, false, 80, 999}, {256, 256, 32, 32, 1, 2, false, 80, 999},
    {256, 256, 32, 16, 1, 2, false, 80, 999},
};

/* shared_layout of attention/fwd_sm80.cuh. */
static int attention_smem(const struct kernel_request *r, const struct tile_row *t, int d_pad, int dv_pad,
                          bool stores_o, bool diag)
{
    int q = plan_tile_bytes(r, DTYPE_Q, t->bm, d_pad);
    int ring = t->stages * plan_tile_bytes(r, DTYPE_Q, t->bn, d_pad + dv_pad);
    int o = stores_o ? plan_tile_bytes(r, DTYPE_O, t->bm, dv_pad) : 0;
    int body = t->q_in_regs ? (q > ring ? q : ring) : q + ring;
    return (body > o ? body : o) + (diag ? 8 * (t->bm + t->bn) : 0);
}

static bool take_tile(const struct kernel_request *r, const struct tile_row *t, struct plan *plan)
{
    const bool diag = r->attention->diagonal >= 0;
    const int d_pad = plan->attention.d_pad;
    const int dv_pad = plan->attention.dv_pad;
    const bool stores_o = !plan->attention.o_f32 && lathe__element_bytes(r->problem, DTYPE_O) == 2;
    const int smem = attention_smem(r, t, d_pad, dv_pad, stores_o, diag);
    if (d_pad > t->max_d || dv_pad > t->max_dv || smem > r->device->smem_bytes || r->device->sm < t->min_sm ||
        r->device->sm > t->max_sm || !plan_tile_is_wanted(r, t))
        return false;
    plan_take_tile(plan, t, smem, diag);
    return true;
}

static bool take_f32_tile(const struct kernel_request *r, struct plan *plan)
{
    for (size_t i = 0; i < sizeof F32_TILES / sizeof *F32_TILES; i++)
        if (take_tile(r, &F32_TILES[i], plan)) {
            const size_t used = strlen(plan->reason);
            snprintf(plan->reason + used, sizeof plan->reason - used, "; %s", PLAN_F32_PRODUCTS);
            return true;
        }
    return false;
}

static bool take_half_tile(const struct kernel_request *r, struct plan *plan)
{
    const size_t n_short = sizeof SHORT_TILES / sizeof *SHORT_TILES;
    const bool wide = !plan->attention.short_rows && !r->device->tile[0];
    for (size_t i = wide ? n_short : 0; i < n_short + sizeof TILES / sizeof *TILES; i++)
        if (take_tile(r, i < n_short ? &SHORT_TILES[i] : &TILES[i - n_short], plan))
            return true;
    return false;
}

bool plan_attention_sm80(const struct kernel_request *r, struct plan *plan, char *why)
{
    plan->attention.pair = PAIR_COPIED;
    if ((r->pass == LATHE_FORWARD && !plan_serves_any_batch(r, why)) || !plan_attention_begin(r, plan, why))
        return false;
    if (r->problem->dtype[DTYPE_Q] == LATHE_F32 ? take_f32_tile(r, plan) : take_half_tile(r, plan)) {
        plan_say_copies(r, plan);
        plan_say_pair(r, plan);
        return true;
    }
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory",
             plan->attention.d_pad, plan->attention.dv_pad, r->device->smem_bytes);
    return false;
}

/* ---- k and v of 8 bits, as they lie in memory ------------------------------------------------------------
 */

/* In pages nothing else reads them. Elsewhere another kernel widens them ahead of one that is two to three
   times as fast on an H200, from 128 queries on. */
static bool narrow_is_wanted(const struct kernel_request *r, char *why)
{
    if (!plan_is_narrow(r, why))
        return false;
    if (r->problem->paged || strstr(r->device->template_name, "attention_fwd_narrow"))
        return true;
    snprintf(
        why, REASON_BYTES,
        "it is for keys in pages: others are read sooner by a kernel behind one that widens them; asked for "
        "by its name it takes them");
    return false;
}

bool plan_attention_fwd_narrow(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { STEP = 16 }; /* numbers of two chunks */
    plan->attention.reads_narrow = true;
    return narrow_is_wanted(r, why) && plan_narrow_rows_fit(r, STEP, why) &&
           plan_attention_sm80(r, plan, why);
}

bool plan_attention_before(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct device device = *r->device;
    struct kernel_request forward = *r;
    device.tile[0] = 0;
    forward.device = &device;
    forward.skip = NULL;
    return plan_attention_sm80(&forward, plan, why);
}
