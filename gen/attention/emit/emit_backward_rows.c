/*
 * emit_backward_rows.c: what attention's backward pass makes of each row ahead of its main kernel: bwd_rows
 * and bwd_pre. In: lowered formulas, a plan, where everything lives. Out: their parameter structs and
 * launches.
 */
#include "gen/attention/emit/emit_back_recipe.h"
#include "gen/arguments/problem.h"
#include "runtime/recipe/recipe.h"
#include "gen/attention/backward.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

enum { /* of the templates that they are named after */
       BACK_PRE_THREADS = 256,
       BACK_PRE_ROWS = 64,
       SUMS_THREADS = 128,
       SUMS_ROWS = 64,
       SUMS_KEYS = 32,
       SPLIT_TABLE_BYTES = 4 * 4 * (16 + 32)
};

void back_optional_pointer(struct params *p, const char *type, const char *name, int buffer)
{
    if (buffer >= 0)
        params_pointer(p, type, name, PARAM_WORK_DATA, buffer);
    else
        params_null(p, type, name);
}

/* Row values that back_row loads: the members that emit_backward.c names. */
static void add_row_values(struct params *p, const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    const int n_spec = e->spec->n_finals;
    int saved = n_spec;
    for (int k = 0; k < MAX_STATE; k++) {
        char name[NAME_MAX_BYTES + 2];
        struct place at = r->forward.final[k];
        if (e->back->final[k]) {
            snprintf(name, sizeof name, "final%d", k);
            emit_place_pointer(p, "const float", name, &at);
            emit_place_strides(p, name, &at);
        }
        if (e->back->seed[k]) {
            snprintf(name, sizeof name, "d%s", e->spec->final[k].name);
            at = (struct place){lathe__arg_find(e->sig, name, 0), -1, SYM_H, SYM_Q, 1, false, 0};
            snprintf(name, sizeof name, "dfinal%d", k);
            emit_place_pointer(p, "const float", name, &at);
            emit_place_strides(p, name, &at);
        }
        if (e->back->state[k]) {
            at = r->forward.final[saved++];
            snprintf(name, sizeof name, "state%d", k);
            emit_place_pointer(p, "const float", name, &at);
            emit_place_strides(p, name, &at);
        }
        if (k < e->back->n_sums) {
            snprintf(name, sizeof name, "rowsum%d", k);
            emit_place_pointer(p, "const float", name, &r->sums[k]);
            emit_place_strides(p, name, &r->sums[k]);
        }
    }
}

bool back_pre_copies(const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    return r->dout.arg < 0 && e->w->mod[MOD_OUTPUT].n_stages == 0 && !is_odd_row(e, TENSOR_O);
}

/* do' as it is before bwd_pre copies it. */
static struct place first_dout(const struct recipe *r, bool *copies)
{
    const struct emitter *e = r->a.e;
    *copies = back_pre_copies(r);
    struct place from = *copies ? r->forward.outer[TENSOR_O] : r->dout;
    if (*copies)
        from.arg = lathe__arg_find(e->sig, "do", 0);
    return from;
}

bool back_has_unaligned_do(const struct recipe *r)
{
    return arg_in(r->a.e->problem->unaligned, lathe__arg_find(r->a.e->sig, "do", 0));
}

void back_add_row_sums(struct recipe *r)
{
    static const char *const name[] = {"q", "k", "v", "dout"};
    struct emitter *e = r->a.e;
    bool copies;
    const struct place dout = first_dout(r, &copies);
    struct params p;
    const int columns =
        ((int)e->problem->dim[SYM_D] + 15) / 16 * 16 + ((int)e->problem->dim[SYM_D_V] + 15) / 16 * 16;
    struct launch *launch = add_launch(r->out, e, "bwd_rows", SUMS_THREADS);
    launch->smem_bytes =
        (SUMS_ROWS + SUMS_KEYS) * columns *
        lathe__element_bytes(e->problem, DTYPE_Q); /* row_sums::layout of attention/backward/row_sums.cuh */
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, e, SYM_H, SYM_Q, SUMS_ROWS);
    params_open(&p, e->out, launch, "row_sums_params");
    for (int t = 0; t < TENSOR_COUNT; t++)
        emit_place_pointer(&p, "const void", name[t], t == TENSOR_O ? &dout : &r->forward.inner[t]);
    for (int t = 0; t < TENSOR_COUNT; t++)
        emit_place_strides(&p, name[t], t == TENSOR_O ? &dout : &r->forward.inner[t]);
    if (back_has_unaligned_do(r))
        emit_place_step(&p, "dout", &dout);
    emit_call_sizes(&p, e);
    for (int k = 0; k < MAX_STATE; k++) {
        char member[NAME_MAX_BYTES];
        snprintf(member, sizeof member, "final%d", k);
        if (e->back->sum_final[k]) {
            emit_place_pointer(&p, "const float", member, &r->forward.final[k]);
            emit_place_strides(&p, member, &r->forward.final[k]);
        }
        snprintf(member, sizeof member, "rowsum%d", k);
        if (k < e->back->n_sums) {
            emit_place_pointer(&p, "float", member, &r->sums[k]);
            emit_place_strides(&p, member, &r->sums[k]);
        }
    }
    params_inputs(&p, e, "x");
    if (has_sequences(e)) {
        emit_enter(&p, e);
        emit_enter_operands(e, name, TENSOR_COUNT);
        for (int k = 0; k < MAX_STATE; k++) {
            emit_enter_numbered(e, "final", k, e->back->sum_final[k]);
            emit_enter_numbered(e, "rowsum", k, k < e->back->n_sums);
        }
        emit_enter_end(e);
    }
    params_close(&p, "row_sums_params");
}

/* Rows with large finals go through the online function again. */
static void add_split_operands(struct params *p, const struct recipe *r)
{
    static const char *const name[] = {"q", "k"};
    for (int t = TENSOR_Q; backward_splits(r->a.e->back) && t <= TENSOR_K; t++) {
        emit_place_pointer(p, "const void", name[t], &r->forward.inner[t]);
        emit_place_strides(p, name[t], &r->forward.inner[t]);
    }
}

/* Moves what add_pre() has declared to a sequence. */
static void enter_pre(struct params *p, const struct recipe *r, bool reads_o)
{
    static const char *const name[] = {"q", "k"};
    const struct emitter *e = r->a.e;
    emit_enter(p, e);
    if (reads_o)
        emit_enter_rows(e, r->plan->attention.back.forward ? "const float" : "const cfg::element_o", "o",
                        false);
    emit_enter_rows(e, "const cfg::element_o", "dout", false);
    if (backward_splits(e->back))
        emit_enter_operands(e, name, 2);
    for (int k = 0; k < MAX_STATE; k++) {
        emit_enter_numbered(e, "final", k, e->back->final[k]);
        emit_enter_numbered(e, "dfinal", k, e->back->seed[k]);
        emit_enter_numbered(e, "state", k, e->back->state[k]);
        emit_enter_numbered(e, "rowsum", k, k < e->back->n_sums);
    }
    emit_enter_gradients(e);
    emit_enter_end(e);
}

void back_add_pre(struct recipe *r, bool runs)
{
    struct source unused = {0};
    struct emitter *e = r->a.e;
    const bool reads_o = e->back->delta || e->back->row.n > 0;
    bool copies;
    const struct place from = first_dout(r, &copies);
    struct params p;
    struct launch *launch = add_launch(runs ? r->out : &unused, e, "bwd_pre", BACK_PRE_THREADS);
    launch->smem_bytes = backward_splits(e->back) ? SPLIT_TABLE_BYTES : 0;
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, e, SYM_H, SYM_Q, BACK_PRE_ROWS);
    params_open(&p, e->out, launch, "back_pre_params");
    if (reads_o)
        emit_place_pointer(&p, "const void", "o", &r->forward.inner[TENSOR_O]);
    else
        params_null(&p, "const void", "o");
    emit_place_pointer(&p, "const void", "dout", &from);
    add_split_operands(&p, r);
    if (copies)
        emit_place_pointer(&p, "void", "dout_copy", &r->dout);
    else
        params_null(&p, "void", "dout_copy");
    emit_place_strides(&p, "o", &r->forward.inner[TENSOR_O]);
    emit_place_strides(&p, "dout", &from);
    if (back_has_unaligned_do(r))
        emit_place_step(&p, "dout", &from);
    back_optional_pointer(&p, "float", "rows", r->rows);
    emit_call_sizes(&p, e);
    if (r->plan->attention.back.dq_stored)
        back_optional_pointer(&p, "unsigned", "order", r->order);
    if (r->plan->attention.back.pieces > 0)
        back_optional_pointer(&p, "float", "pieces", r->pieces);
    add_row_values(&p, r);
    params_inputs(&p, e, "x");
    back_add_grads(&p, r);
    if (has_sequences(e))
        enter_pre(&p, r, reads_o);
    params_close(&p, "back_pre_params");
    source_free(&unused);
}
