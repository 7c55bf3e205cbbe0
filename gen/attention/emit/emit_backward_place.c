/*
 * emit_backward_place.c: which gradients attention's backward pass makes, and where its tensors live. In:
 * lowered formulas, a plan. Out: gradients as arguments or on their way to the adjoint of a mod; buffers of
 * the workspace, which kernels hand to each other.
 */
#include "gen/attention/emit/emit_back_recipe.h"
#include "gen/attention/traits.h"
#include "gen/arguments/problem.h"
#include "gen/attention/backward.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

enum { EXACT_SUM_BYTES = 48 }; /* of exact_sum, templates/common/contract.cuh */

static const char *const GRADIENT[] = {"dq", "dk", "dv", "do"};

/* ---- what is wanted ---------------------------------------------------------------------------------- */

static int n_mod_sites(const struct emitter *e, enum mod which)
{
    int n = 0;
    for (int s = 0; s < e->w->mod[which].n_stages; s++)
        n += e->back->stage[which][s].site.n;
    return n;
}

bool gradient_wanted(const struct emitter *e, enum mod which)
{
    if (which == MOD_VALUE && e->w->v_is_k)
        return gradient_wanted(e, MOD_KEY); /* it is a part of it */
    const int arg = lathe__arg_find(e->sig, GRADIENT[which], 0);
    const int second =
        e->w->qk2 && which < MOD_VALUE ? lathe__arg_find(e->sig, which == MOD_QUERY ? "dq2" : "dk2", 0) : -1;
    return arg_in(e->problem->present, arg) || arg_in(e->problem->present, second) ||
           n_mod_sites(e, which) > 0;
}

bool gradient_in_floats(const struct emitter *e, const struct plan *plan, enum mod which)
{
    const struct back_plan *back = &plan->attention.back;
    return e->w->mod[which].n_stages > 0 || back->slices || back->selected || is_odd_row(e, (int)which) ||
           keys_are_gathered(e);
}

bool back_mod_runs(const struct emitter *e, const struct plan *plan, enum mod which)
{
    if (which == MOD_OUTPUT)
        return e->w->mod[which].n_stages > 0;
    if (which == MOD_VALUE && e->w->v_is_k)
        return false;
    return gradient_wanted(e, which) &&
           (which == MOD_QUERY || (gradient_in_floats(e, plan, which) && !keys_are_gathered(e)));
}

/* ---- where everything lives ---------------------------------------------------------------------------- */

static int add_zeroed(struct recipe *r, struct product bytes)
{
    const int buffer = add_buffer(r->out, r->a.e, bytes);
    r->out->buffer[buffer].zero = true;
    return buffer;
}

static struct product query_tiles(const struct recipe *r, int64_t scale)
{
    struct product p = product_of(scale);
    emit_times_tiles(&p, r->a.e, SYM_H, SYM_Q, r->plan->attention.back.bm);
    return p;
}

static void place_gradients(struct recipe *r)
{
    const struct emitter *e = r->a.e;
    const struct back_plan *plan = &r->plan->attention.back;
    for (int t = 0; t < TENSOR_O; t++) {
        r->result[t] = r->forward.outer[t];
        r->result[t].arg = lathe__arg_find(e->sig, GRADIENT[t], 0);
        if (gradient_wanted(e, (enum mod)t) && is_copied_pair(&r->a, t))
            emit_place_in_workspace(&r->result[t], lathe__element_bytes(e->problem, tensor_role(t)), e,
                                    r->out);
        r->grad[t] = r->result[t];
        if (!gradient_wanted(e, (enum mod)t))
            continue;
        if (t == TENSOR_Q) {
            r->grad[t].arg = -1;
            const struct product bytes = query_tiles(r, 4ll * plan->bm * plan->dk);
            r->grad[t].buffer =
                plan->dq_stored || plan->walks_keys ? add_buffer(r->out, e, bytes) : add_zeroed(r, bytes);
        } else if (t == TENSOR_V && e->w->v_is_k) {
            r->grad[t] = r->grad[TENSOR_K];
        } else if (gradient_in_floats(e, r->plan, (enum mod)t)) {
            r->grad[t].dim = r->forward.inner[t].dim;
            r->grad[t].len = r->forward.inner[t].len;
            emit_place_in_workspace(&r->grad[t], 4, e, r->out);
            r->out->buffer[r->grad[t].buffer].zero = plan->slices || plan->selected;
        }
    }
}

void back_place_everything(struct recipe *r)
{
    struct emitter *e = r->a.e;
    struct layout *l = &r->forward;
    const struct back_plan *plan = &r->plan->attention.back;
    const bool mod = e->w->mod[MOD_OUTPUT].n_stages > 0;
    r->dout = l->outer[TENSOR_O];
    r->dout.arg = lathe__arg_find(e->sig, "do", 0);
    r->dout.dim = l->inner[TENSOR_O].dim;
    if (mod || is_odd_row(e, TENSOR_O) || arg_in(e->problem->unaligned, r->dout.arg))
        emit_place_in_workspace(&r->dout, lathe__element_bytes(e->problem, DTYPE_O), e, r->out);
    if (r->plan->attention.back.forward) {
        emit_place_in_workspace(&l->inner[TENSOR_O], 4, e, r->out);
        for (int k = 0; k < e->w->n_finals; k++)
            emit_place_in_workspace(&l->final[k], 4, e, r->out);
    }
    const int64_t bm = r->plan->attention.back.bm;
    const int64_t norms = back_has_norm(e) ? 4 * bm + attention_record_bytes(r->plan) : 0;
    if (r->rows_floats > 0 || norms > 0)
        r->rows = add_buffer(r->out, e, query_tiles(r, 4 * r->rows_floats * bm + norms));
    for (int k = 0; k < e->back->n_sums; k++) {
        r->sums[k] = (struct place){-1, -1, SYM_H, SYM_Q, 1, false, 0};
        emit_place_in_workspace(&r->sums[k], 4, e, r->out);
    }
    place_gradients(r);
    if (plan->dq_stored && has_sequences(e))
        r->order = add_zeroed(r, query_tiles(r, 3 * 4));
    else if (plan->dq_stored)
        r->order = add_buffer(r->out, e, query_tiles(r, (plan->paired ? 4 : 3) * 4)); /* bwd_pre sets it */
    else if (e->problem->deterministic)
        r->order = add_zeroed(r, query_tiles(r, 2 * 4));
    if (plan->pieces > 0) /* a count for each warp, sums of dk', dv' */
        r->pieces = add_buffer(
            r->out, e,
            product_of((int64_t)plan->pieces * 4 * (plan->warps + plan->bn * (plan->dk + plan->dv))));
    for (int i = 0; i < e->w->n_inputs; i++) {
        struct product bytes = product_of(EXACT_SUM_BYTES);
        r->sum[i] = -1;
        if (!grad_wanted(e, i) || !input_is_exact(e, i))
            continue;
        for (int d = 0; d < e->w->input[i].n_dims; d++)
            product_times_dim(&bytes, &e->w->input[i].dim[d], 1);
        r->sum[i] = add_zeroed(r, bytes);
    }
}
