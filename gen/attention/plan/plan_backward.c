/*
 * plan_backward.c: tile sizes of attention's backward pass, and whether the forward kernel runs first. In: a
 * request. Out: a plan, or why there is none.
 */
#include "gen/attention/backward.h"
#include "gen/attention/kernel.h"
#include "gen/attention/plan/plan_back.h"
#include "gen/attention/planner.h"
#include "gen/attention/traits.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

struct back_tile {
    int max_d, max_dv;
    int bm, bn, warps, split, stages;
    int min_smem; /* that a block of the device may have */
};

/* First fit; why these is in attention/backward/sm80.cuh. */
enum { KB_99 = 101376, KB_163 = 166912 };
static const struct back_tile BACK_TILES[] = {
    {64, 64, 32, 128, 4, 1, 2, KB_163},   {64, 64, 32, 128, 4, 1, 1, KB_99},
    {96, 96, 64, 128, 8, 2, 2, KB_163},   {96, 96, 32, 64, 4, 1, 1, KB_99},
    {128, 128, 64, 128, 8, 2, 2, KB_163}, {128, 128, 64, 128, 8, 2, 1, KB_163},
    {128, 128, 64, 64, 8, 4, 1, KB_99},   {160, 160, 64, 64, 8, 2, 2, KB_163},
    {160, 160, 64, 64, 8, 2, 1, KB_99},   {256, 256, 64, 64, 8, 4, 2, KB_163},
    {256, 256, 64, 64, 8, 4, 1, KB_163},  {192, 192, 32, 64, 8, 2, 1, KB_99},
    {256, 256, 32, 32, 4, 2, 1, KB_99},   {256, 256, 32, 32, 4, 2, 1, 0},
};

/* Of f32: a warp has 16 keys, since hi and lo of w and ds take the registers of more. The last one is that of
 * 99 KB. */
static const struct back_tile F32_TILES[] = {
    {64, 64, 64, 128, 8, 1, 2, KB_163},  {64, 64, 64, 64, 4, 1, 1, KB_99},
    {128, 128, 64, 64, 8, 2, 2, KB_163}, {128, 128, 64, 64, 8, 2, 1, KB_163},
    {128, 128, 32, 32, 4, 2, 1, KB_99},  {256, 256, 32, 64, 8, 2, 1, KB_163},
    {256, 256, 32, 32, 4, 2, 1, KB_99},  {256, 256, 32, 16, 2, 2, 1, 0},
};

/* back::layout of attention/backward/sm80.cuh, of rows in shared memory of `both` columns, of dk and dv. */
static int back_smem(const struct kernel_request *r, const struct back_tile *t, int both, int rows, bool diag)
{
    return t->stages * (plan_tile_bytes(r, DTYPE_Q, t->bm, both) + rows * t->bm * 4) +
           plan_tile_bytes(r, DTYPE_Q, t->bn, both) +
           plan_tile_bytes(r, DTYPE_Q, t->bn, t->bm) * (t->split > 1 ? 2 : 1) +
           (diag ? 8 * (t->bm + t->bn) : 0) + 32;
}

void plan_take_tables(const struct pair_needs *pair, int spare, struct back_plan *out)
{
    int room[MAX_SITES];
    out->tables = spare > 0 ? spare / (4 * out->warps) : 0;
    out->smem_bytes += 4 * out->warps * site_tables_fit(&pair->tables, out->tables, room);
}

static bool tile_fits(const struct kernel_request *r, const struct back_tile *t,
                      const struct pair_needs *pair, struct back_plan *out)
{
    const int64_t d = r->problem->dim[SYM_D];
    const int64_t dv = r->problem->dim[SYM_D_V];
    const int down = 16 * t->warps / t->bm;
    out->bm = t->bm;
    out->bn = t->bn;
    out->stages = t->stages;
    out->warps = t->warps;
    out->split = t->split;
    out->dk = round_up(d, 16 * (t->split > down ? t->split : down));
    out->dv = round_up(dv, 16 * t->split);
    out->smem_bytes = back_smem(r, t, out->dk + out->dv, pair->rows + (pair->norm ? 1 : 0), pair->diag);
    plan_take_tables(pair, r->device->smem_bytes - out->smem_bytes, out);
    return d <= t->max_d && dv <= t->max_dv && r->device->smem_bytes >= t->min_smem &&
           out->smem_bytes <= r->device->smem_bytes;
}

bool plan_back_tile_is_wanted(const struct kernel_request *r, struct plan *plan)
{
    const struct back_plan *t = &plan->attention.back;
    snprintf(plan->tile, sizeof plan->tile, "%dx%dw%dp%ds%d%s", t->bm, t->bn, t->warps, t->split, t->stages,
             t->paired ? "c2" : "");
    if (r->device->tile[0] && strcmp(r->device->tile, plan->tile) != 0)
        return false;
    if (!r->skip || *r->skip == 0)
        return true;
    (*r->skip)--;
    return false;
}

static bool take_first(const struct kernel_request *r, const struct pair_needs *pair,
                       const struct back_tile *tiles, size_t n, struct plan *plan)
{
    for (size_t i = 0; i < n; i++)
        if (tile_fits(r, &tiles[i], pair, &plan->attention.back) && plan_back_tile_is_wanted(r, plan))
            return true;
    return false;
}

static bool take_back_tile(const struct kernel_request *r, const struct pair_needs *pair, struct plan *plan)
{
    return r->problem->dtype[DTYPE_Q] == LATHE_F32
               ? take_first(r, pair, F32_TILES, sizeof F32_TILES / sizeof *F32_TILES, plan)
               : take_first(r, pair, BACK_TILES, sizeof BACK_TILES / sizeof *BACK_TILES, plan);
}

/* ---- sm_90a ---------------------------------------------------------------------------------------- */

/* TILE_ROWS_BYTES of attention/backward/parts.cuh. */
static int tile_rows_bytes(const struct plan *plan, const struct pair_needs *pair)
{
    return 4 * pair->rows * plan->attention.back.bm + (pair->norm ? attention_record_bytes(plan) : 0);
}

/* back::layout of attention/backward/sm90_layout.cuh. */
static int narrow_smem_of(const struct kernel_request *r, const struct back_plan *t, int rows, bool diag,
                          int slabs, int keys)
{
    const int of_keys = plan_tile_bytes(r, DTYPE_K, t->bn, t->dk) + plan_tile_bytes(r, DTYPE_V, t->bn, t->dv);
    const int of_queries =
        plan_tile_bytes(r, DTYPE_Q, t->bm, t->dk) + plan_tile_bytes(r, DTYPE_O, t->bm, t->dv);
    return keys * of_keys + t->stages * of_queries + 2 * plan_tile_bytes(r, DTYPE_Q, t->bm, t->bn) +
           4 * slabs * t->bm * t->dk + 2 * rows + (diag ? 16 * (t->bm + 64) : 0) + 208;
}

enum { BACK_SMEM_LIMIT = 232448 }; /* of attention/backward/sm90_common.cuh */

/* What attention/backward/sm90_sequences.cuh declares, or a little more: parameters of two rounds. As the
 * compiler gives it out, in front of shared memory that starts at a multiple of as much. */
static int sequence_bytes(const struct kernel_request *r)
{
    enum { ROUND = 392, TENSOR = 32, DIM = 20, CURSOR = 16, STEP = 1024 };
    int bytes = ROUND;
    for (int i = 0; i < r->ir->n_inputs; i++)
        bytes += TENSOR + DIM * r->ir->input[i].n_dims;
    return attention_has_sequences(r) ? round_up(2 * bytes + CURSOR, STEP) : 0;
}

/* Places for dq' of a tile and for K and V, as many as there is room for: keys are worth more than a slab (at
   D 64 and 1024 tokens 2 to 7 %). */
static int choose_places(const struct kernel_request *r, struct back_plan *t, int rows, bool diag, int tables)
{
    static const int PLACES[][2] = {{2, 2}, {1, 2}, {2, 1}, {1, 1}};
    int bytes = 0;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        t->slabs = PLACES[i][0];
        t->key_places = PLACES[i][1];
        bytes = narrow_smem_of(r, t, rows, diag, t->slabs, t->key_places) + tables;
        if (bytes <= BACK_SMEM_LIMIT - t->sequence_bytes)
            break;
    }
    return bytes;
}

/* back::layout of attention/backward/wide_sm90_layout.cuh. */
static int wide_smem(const struct kernel_request *r, const struct back_plan *t, int rows, bool diag)
{
    const int keys = plan_tile_bytes(r, DTYPE_K, t->bn, t->dk) + plan_tile_bytes(r, DTYPE_V, t->bn, t->dv);
    const int queries =
        t->stages * plan_tile_bytes(r, DTYPE_Q, t->bm, t->dk) + plan_tile_bytes(r, DTYPE_O, t->bm, t->dv);
    return keys + queries + 4 * plan_tile_bytes(r, DTYPE_Q, 64, 64) + t->stages * rows + (diag ? 1024 : 0) +
           256 + (t->paired ? 192 : 0);
}

/* Steps of 16 columns of v that a thread has registers for, beside dk', dv' and the scores of a tile. */
static int v_steps_of(const struct back_plan *t, const struct pair_needs *pair)
{
    const int room = (t->bm > 64 ? 200 : 208) - (t->dk + t->dv) / 2 - t->bm;
    const int steps = room / 4 < t->dv / 16 ? room / 4 : t->dv / 16;
    return pair->more || steps < 0 ? 0 : steps;
}

static bool take_narrow_tile(const struct kernel_request *r, const struct pair_needs *pair, struct plan *plan)
{
    const int64_t d = r->problem->dim[SYM_D];
    const int64_t dv = r->problem->dim[SYM_D_V];
    for (int bm = d <= 64 && dv <= 64 && !pair->more ? 128 : 64; bm >= 64; bm -= 64) {
        plan->attention.back = (struct back_plan){.bm = bm, .bn = 128, .warps = 8, .stages = 2, .split = 1};
        plan->attention.back.dk = round_up(d, 16);
        plan->attention.back.dv = round_up(dv, 16);
        plan->attention.back.v_steps = v_steps_of(&plan->attention.back, pair);
        plan->attention.back.early_dv = bm == 64; /* 128: no registers for it */
        plan->attention.back.dq_stored = true;
        plan->attention.back.thread_blocks = r->device->sm_count;
        plan->attention.back.sequence_bytes = sequence_bytes(r);
        /* K and V of two blocks of keys, and two slabs, are worth less than tables */
        const int rows = tile_rows_bytes(plan, pair);
        const int least = narrow_smem_of(r, &plan->attention.back, rows, pair->diag, 1, 1);
        plan->attention.back.smem_bytes = 0;
        const int limit = BACK_SMEM_LIMIT - plan->attention.back.sequence_bytes;
        plan_take_tables(pair, limit - least, &plan->attention.back);
        plan->attention.back.smem_bytes =
            choose_places(r, &plan->attention.back, rows, pair->diag, plan->attention.back.smem_bytes);
        if (d <= 128 && dv <= 128 && plan->attention.back.smem_bytes <= limit &&
            plan->attention.back.smem_bytes <= r->device->smem_bytes - BACK_SMEM_LIMIT + limit &&
            plan_back_tile_is_wanted(r, plan))
            return true;
    }
    return false;
}

/* In pairs, which add half as much to dq', first; not of sequences, whose blocks have no neighbours. */
static bool take_wide_tile(const struct kernel_request *r, const struct pair_needs *pair, struct plan *plan)
{
    for (int i = 0; i < 4; i++) {
        const int stages = 2 - i % 2;
        if (i < 2 && (!pair->dq || r->device->sm_count < 2 || attention_has_sequences(r)))
            continue;
        plan->attention.back =
            (struct back_plan){.bm = 128, .bn = 64, .warps = 8, .stages = stages, .split = 2};
        plan->attention.back.paired = i < 2;
        plan->attention.back.dk = round_up(r->problem->dim[SYM_D], 32);
        plan->attention.back.dv = round_up(r->problem->dim[SYM_D_V], 32);
        plan->attention.back.early_dv = true;
        plan->attention.back.dq_stored = true;
        plan->attention.back.thread_blocks =
            plan->attention.back.paired ? r->device->sm_count / 2 * 2 : r->device->sm_count;
        plan->attention.back.sequence_bytes = sequence_bytes(r);
        plan->attention.back.smem_bytes =
            wide_smem(r, &plan->attention.back, tile_rows_bytes(plan, pair), pair->diag);
        const int taken = plan->attention.back.smem_bytes + plan->attention.back.sequence_bytes;
        plan_take_tables(pair, BACK_SMEM_LIMIT - taken, &plan->attention.back);
        if (plan->attention.back.smem_bytes + plan->attention.back.sequence_bytes <= r->device->smem_bytes &&
            plan_back_tile_is_wanted(r, plan))
            return true;
    }
    return false;
}

/* ---- what all of them ask -------------------------------------------------------------------------- */

void plan_say_backward(const struct kernel_request *r, const struct backward *b, int rows, struct plan *plan)
{
    const struct back_plan *t = &plan->attention.back;
    const bool single = r->problem->dtype[DTYPE_Q] == LATHE_F32;
    char gradients[96] = "";
    if (b->pair.n + b->row.n > 0)
        snprintf(gradients, sizeof gradients,
                 "; each pair adds to %d place%s of inputs' gradients, each row to %d", b->pair.n,
                 b->pair.n == 1 ? "" : "s", b->row.n);
    snprintf(
        plan->reason, sizeof plan->reason,
        "%s%stiles of %d queries x %d keys, %d warps, %d stage%s, %d bytes of shared memory; a row brings "
        "%d float%s%s%s%s%s%s%s; %s",
        single ? PLAN_F32_PRODUCTS : "", single ? "; " : "", t->bm, t->bn, t->warps, t->stages,
        t->stages == 1 ? "" : "s", t->smem_bytes, rows, rows == 1 ? "" : "s",
        b->delta ? ", made of delta = sum o do" : "", t->forward ? "; the forward kernel runs first" : "",
        t->paired ? "; thread blocks go in pairs, which share dq" : "",
        t->pieces > 0 ? "; the last blocks of keys go in pieces" : "",
        t->sequence_bytes > 0 ? "; sequences with the most queries come first" : "", gradients,
        r->problem->deterministic ? "sums keep one order: the same bits from run to run"
        : t->walks_keys           ? "dk, to which what v gives is added, is summed by fp32 atomics"
                                  : "dq and gradients of inputs are summed by fp32 atomics");
}

void plan_say_pages(const struct kernel_request *r, struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    if (r->problem->paged)
        snprintf(
            plan->reason + used, sizeof plan->reason - used,
            "; keys are copied out of their pages, which costs their bytes twice, and gradients, in f32, "
            "are added to pages in the order of the table");
}

bool plan_back_with(const struct kernel_request *r, struct plan *plan, char *why,
                    bool (*take)(const struct kernel_request *r, const struct pair_needs *pair,
                                 struct plan *plan))
{
    const struct attention_kernel *k = r->attention;
    if (!plan_gradients_exist(r, why) || !plan_attention_before(r, plan, why))
        return false;
    plan->attention.o_f32 = true;
    if (!take(r, &k->pair, plan)) {
        snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory%s",
                 plan->attention.d_pad, plan->attention.dv_pad, r->device->smem_bytes,
                 r->problem->dtype[DTYPE_Q] == LATHE_F32 ? " in f32; f16 and bf16 take half of it" : "");
        return false;
    }
    plan->attention.back.forward = k->runs_forward;
    if (plan->attention.back.dq_stored && k->backward->mask.n_roots == 0 && !r->problem->deterministic &&
        !attention_has_sequences(r))
        plan->attention.back.pieces = 2 * plan->attention.back.thread_blocks;
    plan_say_backward(r, &k->back, k->pair.rows + (k->pair.norm ? 1 : 0), plan);
    plan_say_copies(r, plan);
    plan_say_pages(r, plan);
    plan_say_pair(r, plan);
    return true;
}

bool plan_attention_bwd(const struct kernel_request *r, struct plan *plan, char *why)
{
    return plan_serves_any_batch(r, why) && plan_back_with(r, plan, why, take_back_tile);
}

bool plan_attention_bwd_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    return plan_back_with(r, plan, why, take_narrow_tile);
}

bool plan_attention_bwd_wide(const struct kernel_request *r, struct plan *plan, char *why)
{
    return plan_back_with(r, plan, why, take_wide_tile);
}
