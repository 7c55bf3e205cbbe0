/*
 * plan.c: what the templates of attention ask first, and what a row of their tiles puts into a plan. In: a
 * request. Out: the part of a plan that does not depend on the template, or why no template serves. Tables of
 * tiles stand in plan_sm80.c, plan_sm90.c and plan_backward.c.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/attention/sign_parts.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

bool plan_mods_fit(const struct kernel_request *r, enum mod first, char *why)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    for (int m = (int)first; m < MOD_COUNT; m++)
        for (int s = 0; s < r->ir->mod[m].n_stages; s++) {
            int64_t dim = r->problem->dim[m < MOD_VALUE ? SYM_D : SYM_D_V];
            const struct ir_stage *stage = &r->ir->mod[m].stage[s];
            if (stage->paired > dim)
                snprintf(why, REASON_BYTES,
                         "%s works on pairs of the first %d elements, which a head dim of %d "
                         "does not have",
                         name[m], stage->paired, (int)dim);
            else if (stage->form != STAGE_ELEMENT && stage->paired == 0 && dim % 2 != 0)
                snprintf(why, REASON_BYTES, "%s works on pairs, which an odd head dim (%d) does not have",
                         name[m], (int)dim);
            else
                continue;
            return false;
        }
    return true;
}

static bool is_odd(int64_t dim)
{
    return dim % ATTENTION_DIM_STEP != 0;
}

static bool in_range(int64_t dim, int most, int step)
{
    return dim >= ATTENTION_LEAST_DIM && dim <= most && dim % step == 0;
}

static void say_range(const char *name, int64_t dim, int most, int step, char *why)
{
    char multiples[24] = "";
    if (step > 1)
        snprintf(multiples, sizeof multiples, "multiples of %d from ", step);
    snprintf(why, REASON_BYTES, "%s = %lld; it takes %s%d to %d", name, (long long)dim, multiples,
             ATTENTION_LEAST_DIM, most);
}

void plan_say_copies(const struct kernel_request *r, struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    if (is_odd(r->problem->dim[SYM_D]) || is_odd(r->problem->dim[SYM_D_V]))
        snprintf(plan->reason + used, sizeof plan->reason - used,
                 "; a head dim is no multiple of %d, so its tensors are copied to rows that are, and results "
                 "from such rows, which costs their bytes twice",
                 ATTENTION_DIM_STEP);
}

void plan_say_pair(const struct kernel_request *r, struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    const int d2 = (int)r->problem->dim[SYM_D2];
    char *to = plan->reason + used;
    if (!r->ir->qk2)
        return;
    if (plan->attention.d2 > 0)
        snprintf(to, sizeof plan->reason - used, "; the last %d columns of q and k are read from q2 and k2",
                 d2);
    else
        snprintf(to, sizeof plan->reason - used,
                 "; the last %d columns of q and k are those of q2 and k2, copied behind them%s, which costs "
                 "the bytes of both twice",
                 d2, r->pass == LATHE_BACKWARD ? ", and their gradients back to dq, dq2, dk and dk2" : "");
}

/* Copies of rows with zeros behind them have no room for what else could become of them. */
static bool odd_dims_fit(const struct kernel_request *r, char *why)
{
    bool mods = false;
    bool sized = false;
    for (int m = 0; m < MOD_COUNT; m++)
        mods |= r->ir->mod[m].n_stages > 0;
    for (int i = 0; i < r->ir->n_inputs; i++)
        for (int d = 0; d < r->ir->input[i].n_dims; d++)
            sized |= r->ir->input[i].dim[d].sym == SYM_D || r->ir->input[i].dim[d].sym == SYM_D_V;
    if (mods || sized || makes_parts(r->sig, r->problem) || r->problem->paged)
        snprintf(why, REASON_BYTES,
                 "a head dim is no multiple of %d, and there are %s; pad it, or the host device",
                 ATTENTION_DIM_STEP,
                 mods                              ? "mods of q, k, v or o"
                 : sized                           ? "inputs with a head dim"
                 : makes_parts(r->sig, r->problem) ? "parts of rows"
                                                   : "keys in pages");
    else
        return true;
    return false;
}

static bool attention_dims_fit(const struct kernel_request *r, int most_d, int most_dv, bool odd, char *why)
{
    const int step = odd ? 1 : ATTENTION_DIM_STEP;
    int64_t d = r->problem->dim[SYM_D];
    int64_t dv = r->problem->dim[SYM_D_V];
    if (r->problem->dtype[DTYPE_Q] == LATHE_F64)
        snprintf(why, REASON_BYTES, "dtype f64; it takes f16, bf16 and f32 (f64 runs on the host device)");
    else if (!in_range(d, most_d, step))
        say_range("d", d, most_d, step, why);
    else if (!in_range(dv, most_dv, step))
        say_range("d_v", dv, most_dv, step, why);
    else if (is_odd(d) || is_odd(dv))
        return odd_dims_fit(r, why);
    else
        return plan_mods_fit(r, MOD_QUERY, why);
    return false;
}

bool plan_halves_alone(const struct kernel_request *r, const char *instead, char *why)
{
    if (r->problem->dtype[DTYPE_Q] == LATHE_F16 || r->problem->dtype[DTYPE_Q] == LATHE_BF16)
        return true;
    snprintf(why, REASON_BYTES, "dtype %s; it takes f16 and bf16 (%s)",
             lathe_dtype_text(r->problem->dtype[DTYPE_Q]), instead);
    return false;
}

/* "128x64s2w4", with a q where Q stays in registers. */
static void name_tile(const struct tile_row *t, char *out, size_t size)
{
    snprintf(out, size, "%dx%ds%dw%d%s", t->bm, t->bn, t->stages, t->warps, t->q_in_regs ? "q" : "");
}

/* Of a row that serves: is it the one to take? */
bool plan_tile_is_wanted(const struct kernel_request *r, const struct tile_row *t)
{
    char name[sizeof r->device->tile];
    name_tile(t, name, sizeof name);
    if (r->device->tile[0] && strcmp(r->device->tile, name) != 0)
        return false;
    if (!r->skip || *r->skip == 0)
        return true;
    (*r->skip)--;
    return false;
}

void plan_take_tile(struct plan *plan, const struct tile_row *t, int smem, bool diag)
{
    plan->attention.bm = t->bm;
    plan->attention.bn = t->bn;
    plan->attention.stages = t->stages;
    plan->attention.warps = t->warps;
    plan->attention.q_in_regs = t->q_in_regs;
    plan->attention.smem_bytes = smem;
    name_tile(t, plan->tile, sizeof plan->tile);
    snprintf(plan->reason, sizeof plan->reason,
             "head dims padded to %d and %d: tiles of %d queries x %d keys, %d warps, %d stage%s, %d bytes "
             "of shared memory%s",
             plan->attention.d_pad, plan->attention.dv_pad, t->bm, t->bn, t->warps, t->stages,
             t->stages == 1 ? "" : "s", smem, diag ? "; a value per distance is shared along diagonals" : "");
}

bool plan_tma_takes(const struct kernel_request *r, char *why)
{
    static const char *const name[] = {"q", "k", "v", "o", "do"};
    for (size_t t = 0; t < sizeof name / sizeof *name; t++) {
        const int arg = lathe__arg_find(r->sig, name[t], 0);
        const bool moved = /* tensors are in the order of mods */
            (t < MOD_COUNT && r->ir->mod[t].n_stages > 0) || (r->ir->qk2 && t <= MOD_KEY);
        if (arg < 0 || moved || !arg_in(r->problem->folded & ~r->problem->unaligned, arg))
            continue;
        snprintf(
            why, REASON_BYTES,
            "%s is folded: a dim of several elements has a stride of 0, below it, or of 2^40 bytes and more, "
            "or sequences do not lie whole tokens apart, which TMA does not take",
            name[t]);
        return false;
    }
    return true;
}

bool attention_has_sequences(const struct kernel_request *r)
{
    return r->problem->paged || problem_has_named(r->sig, r->problem, "cu_q") ||
           problem_has_named(r->sig, r->problem, "used_kv");
}

/* Which of them a sentence names. */
static const char *given_lists(const struct kernel_request *r)
{
    return r->problem->paged                               ? "pages are given"
           : problem_has_named(r->sig, r->problem, "cu_q") ? "cu_q is given"
                                                           : "used_kv is given";
}

bool plan_no_sequences(const struct kernel_request *r, char *why)
{
    if (!attention_has_sequences(r))
        return true;
    snprintf(why, REASON_BYTES, "%s, which %s", given_lists(r),
             r->pass == LATHE_FORWARD ? "attention_fwd_sm80, attention_decode and the host device take"
                                      : "attention_bwd_sm80 and the host device take");
    return false;
}

bool plan_sequences_fit(const struct kernel_request *r, char *why)
{
    static const char *const name[MOD_COUNT] = {"q", "k", "v", "o"};
    if (!attention_has_sequences(r))
        return true;
    for (int m = MOD_KEY; m <= MOD_VALUE && r->problem->paged; m++) { /* the others' rows are moved */
        const int arg = lathe__arg_find(r->sig, name[m], 0);
        if (r->ir->mod[m].n_stages > 0)
            snprintf(
                why, REASON_BYTES,
                "pages are given beside a mod of %s, which is not made anew of a whole pool; keep them in "
                "pages as the mod has made them, or the host device takes both",
                name[m]);
        else if (arg >= 0 && arg_in(r->problem->unaligned, arg))
            snprintf(why, REASON_BYTES,
                     "pages are given, and rows of %s do not start at multiples of 16 bytes; align them",
                     name[m]);
        else
            continue;
        return false;
    }
    if (!problem_has_named(r->sig, r->problem, "mask_kept"))
        return true;
    snprintf(why, REASON_BYTES, "%s, and such a launch has no map for mask_kept to keep", given_lists(r));
    return false;
}

/* Parts are written where they are to lie, two floats at a time. */
static bool parts_fit(const struct kernel_request *r, char *why)
{
    if (!makes_parts(r->sig, r->problem) ||
        !arg_in(r->problem->unaligned, lathe__arg_find(r->sig, "part_o", 0)))
        return true;
    snprintf(why, REASON_BYTES, "rows of part_o do not start at multiples of 16 bytes; align them");
    return false;
}

/* Is a tensor of q and k to be copied because its rows are not aligned? */
static bool pair_is_unaligned(const struct kernel_request *r)
{
    static const char *const name[] = {"q", "k", "q2", "k2"};
    bool any = false;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        any |= arg_in(r->problem->unaligned, lathe__arg_find(r->sig, name[i], 0));
    return any;
}

static bool pair_fits(const struct kernel_request *r, struct plan *plan, char *why)
{
    plan->attention.d2 = 0;
    if (!r->ir->qk2)
        return true;
    const int d2 = (int)r->problem->dim[SYM_D2];
    if (plan->attention.pair == PAIR_READ && !pair_is_unaligned(r))
        plan->attention.d2 = d2;
    if (plan->attention.pair == PAIR_NONE)
        snprintf(why, REASON_BYTES,
                 "qk2 = true: q2 and k2 are read by attention_mla, and copied behind q and k for templates "
                 "of whole rows");
    else if (is_odd(d2) || is_odd(r->problem->dim[SYM_D] - d2) || is_odd(r->problem->dim[SYM_D_V]))
        snprintf(why, REASON_BYTES,
                 "a head dim is no multiple of %d, beside q2 and k2; the host device takes it",
                 ATTENTION_DIM_STEP);
    else if (plan->attention.d2 == 0 && r->problem->paged)
        snprintf(
            why, REASON_BYTES,
            "q2 and k2 would be copied behind q and k, which keys in pages do not go with; attention_mla "
            "reads them, of f16 and bf16, where their rows are aligned, and the host device takes both");
    else
        return true;
    return false;
}

bool plan_attention_begin(const struct kernel_request *r, int most_d, int most_dv, struct plan *plan,
                          char *why)
{
    if (!attention_dims_fit(r, most_d, most_dv, plan->attention.copies, why) || !parts_fit(r, why) ||
        !pair_fits(r, plan, why))
        return false;
    plan->attention.short_rows = r->attention->short_rows;
    rescale_say(r->attention->forward, plan->attention.optimistic, plan->attention.rows,
                sizeof plan->attention.rows);
    plan->attention.d_pad = round_up(r->problem->dim[SYM_D], 16);
    plan->attention.dv_pad =
        round_up(r->problem->dim[SYM_D_V], r->problem->dim[SYM_D_V] > MAX_DIM ? 128 : 16);
    plan->attention.part_end = makes_parts(r->sig, r->problem);
    plan->attention.o_f32 =
        plan->attention.part_end || r->ir->mod[MOD_OUTPUT].n_stages > 0 || is_odd(r->problem->dim[SYM_D_V]);
    return true;
}
