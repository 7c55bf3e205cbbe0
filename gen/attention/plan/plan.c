/*
 * plan.c: what the templates of attention ask first, and what a row of their tiles puts into a plan. In: a
 * request. Out: the part of a plan that does not depend on the template, or why no template serves. Tables of
 * tiles stand in plan_sm80.c, plan_sm90.c and plan_backward.c.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/features.h"
#include "gen/attention/columns.h"
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/attention/sign_parts.h"
#include "gen/ir/spec.h"
#include "gen/plan/isa.h"
#include "gen/plan/plan.h"
#include "gen/plan/serves.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

bool plan_mods_fit(const struct kernel_request *r, enum mod first, char *why)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    for (int m = (int)first; m < MOD_COUNT; m++)
        for (int s = 0; s < r->ir->mod[m].n_stages; s++) {
            int64_t dim = r->problem->dim[m < MOD_VALUE ? SYM_D : SYM_D_V];
            if (m == MOD_KEY && r->ir->qk2)
                dim -= r->problem->dim[SYM_D2];
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

bool plan_stage_is_of_elements(const struct ir *ir, const struct ir_stage *stage)
{
    bool used[IR_MAX_NODES] = {false};
    bool reduces = stage->form != STAGE_ELEMENT;
    ir_mark(ir, stage->fn.root, stage->fn.n_roots, used);
    for (int i = 0; i < ir->n_nodes; i++)
        reduces |= used[i] && (ir->node[i].op == OP_DIMSUM || ir->node[i].op == OP_DIMMAX);
    return !reduces;
}

bool plan_serves_any_batch(const struct kernel_request *r, char *why)
{
    char said[SAID_BYTES];
    if (r->problem->deterministic != DETERMINISTIC_BATCH || !isa_among(ISA_SM90A, isas_of(r->device)) ||
        r->problem->dtype[DTYPE_Q] == LATHE_F32 || (lathe__lengths(r->problem) & LENGTHS_ODD_PAGES) ||
        r->device->template_name[0] || !attention_features[HAS_FOLDED].has(r, said))
        return true;
    snprintf(
        why, REASON_BYTES,
        "%s, and deterministic=batch is asked for: such strides do not count in a batch of one, which would "
        "take a template of Hopper with other bits; copy the tensor, or ask for this template by its name",
        said);
    return false;
}

static bool is_odd(int64_t dim)
{
    return dim % ATTENTION_DIM_STEP != 0;
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

static void say_own_keys(const struct kernel_request *r, int least, struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    if (lathe__own_key_parts(r->problem, least) > 1)
        snprintf(
            plan->reason + used, sizeof plan->reason - used,
            "; the keys of a row are cut by how many it has, whatever else is in the batch: into 16 parts, "
            "but of no fewer than %d keys and, while there are no more than 128 parts, of no more than 1024; "
            "they are merged by combine",
            least);
    else
        snprintf(plan->reason + used, sizeof plan->reason - used,
                 "; no keys are cut into parts, so that results do not depend on the batch%s",
                 r->problem->packed ? ": a launch has one number of parts for all packed sequences" : "");
}

void plan_cut_keys(const struct kernel_request *r, int blocks, int least, struct plan *plan)
{
    plan->attention.parts = true;
    if (r->problem->deterministic == DETERMINISTIC_BATCH) {
        plan->attention.own_keys = least;
        say_own_keys(r, least, plan);
        return;
    }
    plan->attention.part_blocks = blocks;
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; the keys of a row are cut into parts for %d blocks at a time, and merged by combine", blocks);
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
    if (plan->attention.d2 == 0 && lathe__narrow_dtype(r->sig, r->problem, "k") != LATHE_NONE)
        snprintf(
            why, REASON_BYTES,
            "k is of 8 bits, and this template copies k2 behind it; attention_mla reads k2 apart, of f16 "
            "and bf16, where its rows are aligned, and the host device takes both");
    else if (plan->attention.d2 == 0 && r->problem->paged && r->pass == LATHE_BACKWARD)
        snprintf(
            why, REASON_BYTES,
            "q2 and k2 are copied behind q and k, and gradients back, which keys in pages do not go with; "
            "give k, k2 and v with a place for each key; the host device takes both");
    else if (plan->attention.d2 == 0 && r->problem->paged)
        snprintf(
            why, REASON_BYTES,
            "q2 and k2 would be copied behind q and k, which keys in pages do not go with; attention_mla "
            "reads them, of f16 and bf16, where their rows are aligned, and the host device takes both");
    else
        return true;
    return false;
}

static const char *what_is_narrow(const struct kernel_request *r)
{
    const bool k = lathe__narrow_dtype(r->sig, r->problem, "k") != LATHE_NONE;
    const bool v = lathe__narrow_dtype(r->sig, r->problem, "v") != LATHE_NONE;
    return k && v ? "k and v are" : k ? "k is" : v ? "v is" : NULL;
}

bool plan_is_narrow(const struct kernel_request *r, char *why)
{
    snprintf(why, REASON_BYTES, "it is for k or v of 8 bits");
    return what_is_narrow(r) != NULL;
}

static bool narrow_row_fits(const struct kernel_request *r, const char *name, enum mod mod, enum sym dim,
                            int step, char *why)
{
    const int64_t d = r->problem->dim[dim];
    if (lathe__narrow_dtype(r->sig, r->problem, name) == LATHE_NONE)
        return true;
    if (r->ir->mod[mod].n_stages > 0)
        snprintf(
            why, REASON_BYTES,
            "%s has a mod, which another kernel computes ahead; it takes products by a value of the key, in "
            "pages "
            "or of few queries against many keys, of v beside f16 in pages alone; a scale may be a factor of "
            "scores, of weights or of o",
            name);
    else if (d % step != 0)
        snprintf(why, REASON_BYTES, "rows of %s have %d numbers; of 8 bits it takes multiples of %d", name,
                 (int)d, step);
    else if (arg_in(r->problem->unaligned, lathe__arg_find(r->sig, name, 0)))
        snprintf(why, REASON_BYTES, "rows of %s do not start at multiples of 16 bytes", name);
    else
        return true;
    return false;
}

bool plan_narrow_rows_fit(const struct kernel_request *r, int step, char *why)
{
    return narrow_row_fits(r, "k", MOD_KEY, SYM_D, step, why) &&
           narrow_row_fits(r, r->ir->v_is_k ? "k" : "v", MOD_VALUE, SYM_D_V, step, why);
}

static const char *what_factors_are(const bool moved[MOD_COUNT])
{
    if (moved[MOD_KEY] && moved[MOD_VALUE])
        return "the factors of key_mod and value_mod are ones of scores and of weights";
    if (moved[MOD_KEY])
        return "the factor of key_mod is one of scores";
    return moved[MOD_VALUE] ? "the factor of value_mod is one of weights" : NULL;
}

static bool has_no_room_for_weights(const struct ir *w)
{
    return w && w->lowered.rescale.unheld;
}

/* Of f16. In e4m3 another planner asks. */
static bool weights_fit(const struct kernel_request *r, char *why)
{
    const struct attention_kernel *k = r->attention;
    if (r->problem->dtype[DTYPE_Q] != LATHE_F16 ||
        !(has_no_room_for_weights(k->forward) || has_no_room_for_weights(k->parts) ||
          has_no_room_for_weights(k->backward)))
        return true;
    snprintf(
        why, REASON_BYTES,
        "weights have factors by key, which f16 may have no room for: they are divided by the largest one of "
        "their row, which asks for a row state more than the %d that there may be; give q as bf16",
        MAX_STATE);
    return false;
}

bool plan_attention_begin(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (!plan_mods_fit(r, MOD_QUERY, why) || !pair_fits(r, plan, why) || !weights_fit(r, why))
        return false;
    plan->attention.short_rows = r->attention->short_rows;
    plan->attention.narrow = what_is_narrow(r);
    plan->attention.factors = what_factors_are(r->attention->moved);
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
