/*
 * lower.c: attention's formulas as kernels compute them. In: a spec, the arguments of a pass, a problem. Out:
 * a rewritten clone, and for the backward pass the formulas that were derived in it.
 */
#include "gen/attention/lower.h"
#include "gen/attention/backward.h"
#include "gen/attention/mask_tiles.h"
#include "gen/attention/places.h"
#include "gen/attention/sign_parts.h"
#include "gen/ir/log.h"
#include "gen/ir/spec.h"
#include "gen/lower/rewrite.h"

#include <stdio.h>

/* The epilogue of the starting state. */
static void make_empty(struct ir *w)
{
    int from[MAX_STATE];
    int to[MAX_STATE];
    for (int k = 0; k < w->n_states; k++) {
        from[k] = ir_param(w, LEAF_STATE + k, (struct ir_at){0, 0});
        to[k] = ir_const(w, w->state[k].init, TYPE_F32);
    }
    w->lowered.empty.n_roots = w->n_finals;
    for (int i = 0; i < w->n_finals; i++)
        w->lowered.empty.root[i] = ir_substitute(w, w->epilogue.root[1 + i], from, to, w->n_states);
}

/* Ahead of the epilogue a row is its states, and o as it has been gathered; mods of o come later. */
static void end_as_part(struct ir *w)
{
    w->epilogue.n_roots = 1 + w->n_states;
    w->epilogue.root[0] = ir_const(w, 1.0, TYPE_F32);
    w->n_finals = w->n_states;
    for (int k = 0; k < w->n_states; k++) {
        w->final[k] = w->state[k];
        w->epilogue.root[1 + k] = ir_param(w, LEAF_STATE + k, (struct ir_at){0, 0});
    }
    w->mod[MOD_OUTPUT].n_stages = 0;
}

static void move_places(struct ir *w, const struct problem *problem)
{
    places_pass(w, problem);
    if (problem->cut_keys || problem->cut_heads)
        ir_passed(w, "places");
}

/* The clone that is rewritten, of a forward pass. */
static bool open_forward(struct rewriter *r, const char *what, const struct ir *ir,
                         const struct signature *sig, const struct problem *problem)
{
    if (!rewriter_open(r, ir, sig, problem))
        return false;
    ir_log_begin(r->w, what);
    if (makes_parts(sig, problem)) {
        end_as_part(r->w);
        ir_passed(r->w, "end_as_part");
    }
    move_places(r->w, problem);
    toeplitz_gather(r->w);
    ir_passed(r->w, "toeplitz");
    return true;
}

static void rewrite_mods(struct rewriter *r)
{
    struct ir *w = r->w;
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages; s++)
            rewrite_fn(r, &w->mod[m].stage[s].fn, -1);
}

static void rewrite_spec(struct rewriter *r)
{
    struct ir *w = r->w;
    rewrite_mods(r);
    rewrite_fn(r, &w->mask, -1);
    bounds_build(w);
    rewrite_fn(r, &w->scale, -1);
    rewrite_fn(r, &w->epilogue, -1);
    make_empty(w);
    int qk = ir_param(w, LEAF_QK, (struct ir_at){0, 0});
    int s = ir2(w, OP_MUL, qk, w->scale.root[0]);
    if (w->score.n_roots > 0)
        s = w->score.root[0] = rewrite_node(r, w->score.root[0], s);
    rewrite_fn(r, &w->online, s);
}

lathe_status attention_lower_forward(const struct ir *ir, const struct signature *sig,
                                     const struct problem *problem, struct ir **out)
{
    struct rewriter r;
    if (!open_forward(&r, "forward kernel", ir, sig, problem))
        return LATHE_MEMORY;
    rewrite_spec(&r);
    ir_passed(r.w, "rewrite");
    return rewriter_close(&r, out);
}

lathe_status attention_lower_parts(const struct ir *ir, const struct signature *sig,
                                   const struct problem *problem, struct ir **out)
{
    struct rewriter r;
    if (!open_forward(&r, "forward kernel of rows that are cut by keys", ir, sig, problem))
        return LATHE_MEMORY;
    rewrite_spec(&r);
    rewrite_fn(&r, &r.w->combine, -1);
    ir_passed(r.w, "rewrite");
    return rewriter_close(&r, out);
}

/* Of a pass whose rows have been through the online function: what comes before is gone. */
static void drop_scores(struct ir *w)
{
    for (int m = 0; m < MOD_COUNT; m++)
        w->mod[m].n_stages = m == MOD_OUTPUT ? w->mod[m].n_stages : 0;
    w->scale.n_roots = w->mask.n_roots = w->bounds.n_roots = w->score.n_roots = w->online.n_roots = 0;
}

lathe_status attention_lower_combine(const struct ir *ir, const struct signature *sig,
                                     const struct problem *problem, struct ir **out)
{
    struct rewriter r;
    if (!rewriter_open(&r, ir, sig, problem))
        return LATHE_MEMORY;
    ir_log_begin(r.w, "combine kernel");
    drop_scores(r.w);
    if (makes_parts(sig, problem)) {
        end_as_part(r.w);
        ir_passed(r.w, "end_as_part");
    }
    move_places(r.w, problem);
    rewrite_mods(&r);
    rewrite_fn(&r, &r.w->epilogue, -1);
    make_empty(r.w);
    rewrite_fn(&r, &r.w->combine, -1);
    ir_passed(r.w, "rewrite");
    return rewriter_close(&r, out);
}

/* ---- the backward pass ------------------------------------------------------------------------- */

static void rewrite_root(void *context, int *root)
{
    *root = rewrite_node(context, *root, -1);
}

static void rewrite_formulas(struct rewriter *r, struct backward *b)
{
    backward_each_root(b, r->w, rewrite_root, r);
    for (int k = 0; k < MAX_STATE; k++)
        if (b->split[k].found) {
            rewrite_root(r, &b->split[k].high);
            rewrite_root(r, &b->split[k].norm);
        }
}

/* The forward kernel stores row states that the formulas need as further finals. */
static bool save_states(struct ir *w, const struct backward *b, char *why)
{
    for (int k = 0; k < w->n_states; k++) {
        if (!b->state[k])
            continue;
        if (w->n_finals == MAX_STATE) {
            snprintf(why, WHY_BYTES, "more than %d finals and row states are needed", MAX_STATE);
            return false;
        }
        w->final[w->n_finals++] = w->state[k];
        w->epilogue.root[w->epilogue.n_roots++] = ir_param(w, LEAF_STATE + k, (struct ir_at){0, 0});
    }
    return true;
}

/* Derived, taken apart, rewritten. False: why says why, or the pool has failed. */
static bool derive_and_rewrite(struct rewriter *r, const struct backward_wanted *wanted,
                               struct backward *back, char *why)
{
    ir_log_begin(r->w, "backward kernel");
    move_places(r->w, r->problem);
    toeplitz_gather(r->w);
    ir_passed(r->w, "toeplitz");
    if (!backward_derive(r->w, wanted, back, why))
        return false;
    places_count_rows(r->w, back, r->problem);
    backward_finish(r->w, back);
    ir_passed_with(r->w, "derive", backward_print, back);
    if (!backward_split(r->w, back))
        return false;
    ir_passed_with(r->w, "split", backward_print, back);
    rewrite_spec(r);
    rewrite_formulas(r, back);
    backward_finish(r->w, back);
    ir_passed_with(r->w, "rewrite", backward_print, back);
    return !r->w->failed && save_states(r->w, back, why);
}

lathe_status attention_lower_backward(const struct ir *ir, const struct signature *sig,
                                      const struct problem *problem, struct ir **out, struct backward *back,
                                      char *why)
{
    struct rewriter r;
    struct backward_wanted wanted;
    backward_wanted_make(ir, sig, problem, &wanted);
    if (!rewriter_open(&r, ir, sig, problem))
        return LATHE_MEMORY;
    *why = '\0';
    const bool ok = derive_and_rewrite(&r, &wanted, back, why);
    const lathe_status status = rewriter_close(&r, out);
    if (status == LATHE_UNSUPPORTED)
        snprintf(why, WHY_BYTES, IR_TOO_LARGE, IR_MAX_NODES);
    if (ok || status != LATHE_OK)
        return status;
    ir_free(*out);
    *out = NULL;
    return why[0] ? LATHE_UNSUPPORTED : LATHE_MEMORY;
}
