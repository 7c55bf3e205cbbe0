/*
 * kernel.c: attention lowered for a request, and what the planners of all its templates ask of that. In: a
 * request. Out: struct attention_kernel, or why there is none; nothing of it depends on the device.
 */
#include "gen/attention/columns.h"
#include "gen/attention/kernel.h"
#include "gen/attention/mask_tiles.h"
#include "gen/attention/places.h"
#include "gen/attention/sign_parts.h"
#include "gen/attention/tile_map.h"
#include "gen/arguments/problem.h"
#include "gen/ir/log.h"
#include "gen/ir/spec.h"
#include "gen/lower/rewrite.h"
#include "gen/plan/request.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what the forward kernel is like ------------------------------------------------------------- */

/* NULL: rows of several query heads may be mixed in a tile; else why not. */
static const char *why_not_packed(const struct ir *w, bool diagonal)
{
    const struct ir_fn *const fn[] = {&w->mask, &w->online, &w->epilogue};
    if (diagonal)
        return "a value per distance is shared along diagonals";
    if (tile_map_wanted(w))
        return "tiles of the mask are judged once a launch";
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        for (int i = 0; i < fn[f]->n_roots; i++)
            if (ir_depends_on(w, fn[f]->root[i], OP_AT, AT_H))
                return "the spec reads at.h";
    return NULL;
}

/* Does a read of the roots' values go by rows or columns, or by both? What is read for the value along
   diagonals, if there is one, stands in shared memory. A random number takes as many registers as a read. */
static void find_reads(const struct ir *w, const struct ir_fn *fn, int diagonal, bool *by_one, bool *by_pair)
{
    bool needed[IR_MAX_NODES] = {false}; /* no memory to run out of: it would be another shape */
    ir_mark_until(w, fn->root, fn->n_roots, &diagonal, 1, needed);
    for (int i = 0; i < w->n_nodes; i++) {
        const bool q = (w->node[i].span & SPAN_Q) != 0;
        const bool kv = (w->node[i].span & SPAN_KV) != 0;
        const bool reads = w->node[i].op == OP_LOAD || w->node[i].op == OP_RANDOM;
        if (!reads || i == diagonal || !needed[i])
            continue;
        *by_pair |= q && kv;
        *by_one |= q != kv;
    }
}

/* Does a score or a weight read an input, or draw a random number, for each key? */
static bool reads_by_key(const struct ir *w)
{
    bool needed[IR_MAX_NODES] = {false};
    bool found = false;
    ir_mark(w, w->online.root, w->online.n_roots, needed);
    for (int i = 0; i < w->n_nodes; i++)
        found |= needed[i] && (w->node[i].op == OP_LOAD || w->node[i].op == OP_RANDOM) &&
                 (w->node[i].span & SPAN_KV) != 0;
    return found;
}

/* The keys that the mask leaves to a row end on one side, and all of those are left; or, in blocks, all that
   are left of a tile. */
static bool has_one_end(const struct ir *w, bool blocks)
{
    const bool first = w->node[w->lowered.key_interval.root[0]].op != OP_CONST;
    const bool last = w->node[w->lowered.key_interval.root[1]].op != OP_CONST;
    return (blocks || w->lowered.keys_left.n_roots == 0) && !(first && last);
}

/* Does the mask read by row and column, and nothing else? */
static bool has_table_mask(const struct ir *w, int diagonal)
{
    bool by_one = false;
    bool by_pair = false;
    find_reads(w, &w->online, diagonal, &by_one, &by_pair);
    find_reads(w, &w->epilogue, diagonal, &by_one, &by_pair);
    return !by_pair && w->mask.n_roots > 0 && tile_map_reads_pairs(w);
}

/* Scores that tanh caps need registers of their own (attention/capped.cuh): of 16 bits they need no maximum.
 */
static bool caps_scores(const struct ir *w)
{
    bool needed[IR_MAX_NODES] = {false};
    bool caps = false;
    ir_mark(w, w->online.root, w->online.n_roots, needed);
    for (int i = 0; i < w->n_nodes; i++)
        caps |= needed[i] && w->node[i].op == OP_TANH;
    return caps;
}

/* How many registers a thread needs besides scores, weights and o. blocks: where no pair's mask is asked for.
 */
static enum register_need need_of(const struct ir *w, int diagonal, bool o_f32, bool blocks)
{
    const struct ir_fn *const fn[] = {blocks ? &w->lowered.key_interval : &w->mask, &w->online, &w->epilogue};
    const bool own_rows = w->lowered.rescale.path == ROWS_EXACT && w->n_states > 0;
    const bool capped = w->lowered.rescale.path == ROWS_BELOW && caps_scores(w);
    bool by_one = diagonal >= 0 || o_f32 || own_rows || capped;
    bool by_pair = own_rows && w->n_states > 1;
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        find_reads(w, fn[f], diagonal, &by_one, &by_pair);
    if (by_pair)
        return NEED_MANY;
    if (by_one)
        return NEED_SOME;
    if (w->lowered.rescale.path != ROWS_LAZY && w->lowered.rescale.path != ROWS_BELOW)
        return NEED_NONE;
    if (w->mask.n_roots == 0)
        return NEED_LEAST;
    return has_one_end(w, blocks) ? NEED_FEW : NEED_SOME;
}

/* ---- the two passes ------------------------------------------------------------------------------- */

/* Passes over a lowered pool, in their order. Row states that are saved must be those of the spec, so rows
   are then carried as it says. */
static lathe_status run_passes(struct ir **w, lathe_dtype dtype, bool saves_states)
{
    static const struct {
        const char *name;
        void (*run)(struct ir *w);
    } pass[] = {{"key_strides", key_strides_pass},   {"masked_once", masked_once_pass},
                {"key_interval", key_interval_pass}, {"mask_blocks", mask_blocks_pass},
                {"selected", selected_pass},         {"mask_reads", bounds_build_reads}};
    if (dtype == LATHE_F16) {
        factors_to_end(*w);
        ir_passed(*w, "factors_to_end");
    }
    if (!saves_states) {
        rescale_pass(*w, dtype);
        ir_passed(*w, "rescale");
    }
    if (dtype == LATHE_F16) {
        weights_hold(*w);
        ir_passed(*w, "hold_weights");
    }
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++) {
        pass[i].run(*w);
        ir_passed(*w, pass[i].name);
    }
    return lower_done(w);
}

static lathe_status lower_forward(struct kernel_request *r, struct attention_kernel *k)
{
    struct schedule s;
    lathe_status status = attention_lower_forward(r->ir, r->sig, r->problem, &k->forward);
    if (status == LATHE_OK)
        status = run_passes(&k->forward, r->problem->dtype[DTYPE_Q], false);
    if (status != LATHE_OK)
        return request_settle(r, status);
    if (!schedule_online(k->forward, &s)) {
        status = lower_done(&k->forward);
        if (status == LATHE_OK)
            snprintf(r->refused, sizeof r->refused, "online_fwd has more than %d row reductions",
                     MAX_REDUCTIONS);
        return request_settle(r, status);
    }
    k->diagonal = s.diag;
    k->why_apart = attention_has_sequences(r) ? "sequences have lengths of their own"
                                              : why_not_packed(k->forward, s.diag >= 0);
    const bool o_f32 = k->forward->mod[MOD_OUTPUT].n_stages > 0 || makes_parts(r->sig, r->problem);
    k->need = need_of(k->forward, s.diag, o_f32, false);
    k->block_need = need_of(k->forward, s.diag, o_f32, true);
    k->reads_keys = reads_by_key(k->forward);
    k->table_mask = has_table_mask(k->forward, s.diag);
    k->short_rows = k->forward->mask.n_roots > 0 && !has_one_end(k->forward, false);
    return request_settle(r, lower_done(&k->forward));
}

/* For rows that are cut by keys; many specs are never asked to. */
static lathe_status lower_parts(struct kernel_request *r, struct attention_kernel *k)
{
    if (r->ir->combine.n_roots == 0)
        return LATHE_OK;
    lathe_status status = attention_lower_parts(r->ir, r->sig, r->problem, &k->parts);
    if (status == LATHE_OK)
        status = run_passes(&k->parts, r->problem->dtype[DTYPE_Q], true);
    if (status == LATHE_OK)
        snprintf(k->parts->lowered.rescale.why, sizeof k->parts->lowered.rescale.why,
                 "combine merges the states that the spec has");
    return request_settle(r, status);
}

static lathe_status measure_pairs(struct kernel_request *r, struct attention_kernel *k)
{
    const lathe_status status = backward_measure(k->backward, r->sig, r->problem, &k->back, &k->pair);
    k->pair.dq = problem_has_named(r->sig, r->problem, "dq") || problem_has_named(r->sig, r->problem, "dq2");
    if (status != LATHE_UNSUPPORTED)
        return status;
    snprintf(r->refused, sizeof r->refused, "a pair reads too many values of its row");
    return LATHE_OK;
}

static lathe_status lower_backward(struct kernel_request *r, struct attention_kernel *k)
{
    struct backward_wanted wanted;
    bool saves_states = false;
    lathe_status status =
        attention_lower_backward(r->ir, r->sig, r->problem, &k->backward, &k->back, r->refused);
    if (status != LATHE_OK)
        return status == LATHE_UNSUPPORTED ? LATHE_OK : status;
    k->runs_forward = backward_runs_forward(r->ir, r->sig, r->problem, &k->back);
    if (!places_sums_fit(r->ir, r->sig, r->problem, &k->back, r->refused))
        return LATHE_OK;
    backward_wanted_make(r->ir, r->sig, r->problem, &wanted);
    if (r->problem->deterministic && !backward_sums_fit(k->backward, &k->back, &wanted, r->refused))
        return LATHE_OK;
    status = measure_pairs(r, k);
    if (status != LATHE_OK)
        return status;
    for (int s = 0; s < MAX_STATE; s++)
        saves_states |= k->back.state[s];
    return request_settle(r, run_passes(&k->backward, r->problem->dtype[DTYPE_Q], saves_states));
}

lathe_status attention_lower(struct kernel_request *r)
{
    r->attention = calloc(1, sizeof *r->attention);
    if (!r->attention)
        return LATHE_MEMORY;
    if (r->pass == LATHE_COMBINE)
        return request_settle(r, attention_lower_combine(r->ir, r->sig, r->problem, &r->attention->parts));
    if (r->ir->qk2) { /* what follows knows one head dim, of which q and k have the first part */
        r->attention->whole = *r->problem;
        r->attention->whole.dim[SYM_D] += r->problem->dim[SYM_D2];
        r->problem = &r->attention->whole;
    }
    lathe_status status = LATHE_OK;
    if (r->pass == LATHE_FORWARD)
        status = request_settle(
            r, attention_move_factors(r->ir, r->sig, r->problem, r->attention->moved, &r->attention->read));
    if (status != LATHE_OK || r->refused[0])
        return status;
    if (r->attention->read)
        r->ir = r->attention->read;
    status = lower_forward(r, r->attention);
    if (status != LATHE_OK || r->refused[0])
        return status;
    if (r->pass == LATHE_FORWARD)
        return lower_parts(r, r->attention);
    return lower_backward(r, r->attention);
}

void attention_release(struct kernel_request *r)
{
    if (r->attention) {
        ir_free(r->attention->read);
        ir_free(r->attention->forward);
        ir_free(r->attention->parts);
        ir_free(r->attention->backward);
    }
    free(r->attention);
}
