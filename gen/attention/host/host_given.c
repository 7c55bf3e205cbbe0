/*
 * host_given.c: rows of attention's backward pass on the host device from an o and finals that are given. In:
 * a row that was entered, what is given. Out: weights and dL/ds of its pairs; adjoints of inputs are added to
 * the sums of the call. The formulas are those of kernels (backward.c), in double precision, so that what is
 * given counts where it counts there; a call that gives nothing goes by the derivative of the whole row.
 */
#include "gen/attention/host/host_given.h"
#include "gen/attention/places.h"
#include "gen/arguments/problem.h"
#include "gen/arguments/signature.h"
#include "gen/ir/spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is given ------------------------------------------------------------------------------- */

static bool some_is_given(const struct host_call *call)
{
    bool any = host_arg(call, "o") != NULL;
    for (int k = 0; k < call->ir->n_finals; k++)
        any |= host_arg(call, call->ir->final[k].name) != NULL;
    return any;
}

static bool reads_o(const struct backward *f)
{
    return f->delta || f->row.n > 0;
}

/* The finals of a row without live pairs, where the spec knows them. */
static void find_empty(struct host_given *g)
{
    struct ir *ir = g->ir;
    int from[MAX_STATE];
    int to[MAX_STATE];
    for (int k = 0; k < ir->n_states; k++) {
        from[k] = ir_param_of(ir, LEAF_STATE + k);
        to[k] = ir_const(ir, ir->state[k].init, TYPE_F32);
    }
    for (int k = 0; k < ir->n_finals; k++) {
        const int node = ir_substitute(ir, ir->epilogue.root[1 + k], from, to, ir->n_states);
        g->empty[k] = !ir->failed && ir->node[node].op == OP_CONST ? ir->node[node].value : (double)NAN;
    }
}

/* Where kernels run the forward pass first, what is given counts for nothing there, nor does it here. */
static bool counts_here(const struct host_given *g, const struct host_call *call)
{
    const struct backward *f = &g->formulas;
    bool any = reads_o(f);
    for (int k = 0; k < MAX_STATE; k++)
        any |= f->final[k] || f->sum_final[k];
    return any && !backward_runs_forward(call->ir, call->sig, &call->problem, f);
}

static bool derive(struct host_given *g, const struct host_call *call, char *why)
{
    struct backward_wanted wanted;
    backward_wanted_make(call->ir, call->sig, &call->problem, &wanted);
    for (int m = 0; m < MOD_COUNT; m++)
        g->ir->mod[m].n_stages = 0; /* they are the host device's own matter */
    if (!backward_derive_online(g->ir, &wanted, &g->formulas, why) || !backward_split(g->ir, &g->formulas))
        return false;
    backward_finish(g->ir, &g->formulas);
    find_empty(g);
    return !g->ir->failed;
}

/* The first row state that the formulas read, since no final says it; -1: none. */
static int needed_state(const struct host_given *g)
{
    for (int k = 0; k < g->ir->n_states; k++)
        if (g->formulas.state[k])
            return k;
    return -1;
}

static const char *hint_of(const struct host_call *call, bool derived)
{
    if (call->ir->mod[MOD_OUTPUT].n_stages > 0)
        return "beside an output_mod the backward pass makes them anew";
    if (!derived)
        return "no kernel has this spec's backward pass, and the host device makes them anew";
    if (call->problem.dim[SYM_D_V] % ATTENTION_DIM_STEP != 0)
        return "where d_v is no multiple of 8 the backward pass makes them anew; pad v, o and do with zeros";
    return "finals of other keys count where 'o' and all finals are given together";
}

lathe_status host_given_open(struct host_given *g, const struct host_gradient *b, lathe_error *err)
{
    char why[WHY_BYTES] = "";
    *g = (struct host_given){.counts = false};
    const bool part = b->call.problem.cut_keys;
    if ((!some_is_given(&b->call) && !part) || b->ir->forward.n_roots == 0)
        return LATHE_OK;
    g->ir = ir_clone(b->ir);
    if (!g->ir)
        return host_out_of_memory(err);
    const bool derived = derive(g, &b->call, why);
    if (!derived && !why[0] && !(g->ir->failed && g->ir->n_nodes >= IR_MAX_NODES))
        return host_out_of_memory(err);
    if (derived && !places_sums_fit(b->ir, b->call.sig, &b->call.problem, &g->formulas, why))
        return lathe__fail(err, LATHE_UNSUPPORTED, "%s", why);
    g->counts = derived && counts_here(g, &b->call);
    const int state = derived ? needed_state(g) : -1;
    if (state >= 0)
        snprintf(g->hint, sizeof g->hint,
                 "gradients need the row state '%s', which is no final, so the backward pass makes them anew",
                 g->ir->state[state].name);
    else
        snprintf(g->hint, sizeof g->hint, "%s", hint_of(&b->call, derived));
    return LATHE_OK;
}

void host_given_close(struct host_given *g)
{
    ir_free(g->ir);
    g->ir = NULL;
}

void host_given_enter(struct host_given *g, const struct host_call *call)
{
    host_view_make(&g->o, host_arg(call, "o"), 4);
    for (int k = 0; k < call->ir->n_finals; k++) {
        host_view_make(&g->final[k], host_arg(call, call->ir->final[k].name), 3);
        g->is_given[k] = g->ir && g->final[k].data;
    }
}

/* ---- large finals -------------------------------------------------------------------------------- */

/* Where a final is larger than this, its dtype has lost digits of the logarithm in it; within that part of
   it, it is the one that these keys have. The template's own numbers (attention/backward/split.cuh); doubles
   have 29 digits more. */
static double large_from(const struct host_call *call)
{
    return call->problem.dtype[DTYPE_Q] == LATHE_F16 || call->problem.dtype[DTYPE_Q] == LATHE_BF16 ? 4096
                                                                                                   : 256;
}

static double same_within(const struct host_call *call)
{
    return call->problem.dtype[DTYPE_Q] == LATHE_F64 ? 0x1p-49 : 0x1p-20;
}

static bool is_large(const struct host_call *call, double final)
{
    return fabs(final) > large_from(call) && isfinite(final);
}

/* High and norm of finals that are large and of these keys; `weight`: scratch. */
static lathe_status take_apart(struct host_given *g, struct host_head *head, double *weight, lathe_error *err)
{
    const struct final_split *split = g->formulas.split;
    struct eval_env *env = &head->pair;
    bool any = false;
    for (int k = 0; k < g->ir->n_finals; k++) {
        g->high[k] = g->value[k];
        g->norm[k] = 1;
        any |= split[k].found && is_large(head->call, g->value[k]);
    }
    if (!any || head->n_live == 0)
        return LATHE_OK;
    lathe_status status = host_row_states(head, weight, g->state, err);
    env->ir = g->ir;
    for (int k = 0; k < g->ir->n_states; k++)
        env->param[LEAF_STATE + k] = &g->state[k];
    for (int k = 0; k < g->ir->n_finals && status == LATHE_OK; k++) {
        const int root[2] = {split[k].high, split[k].norm};
        if (!split[k].found || !is_large(head->call, g->value[k]))
            continue;
        status = host_eval(env, root, 2, err);
        if (status != LATHE_OK)
            break;
        const double high = host_value(env, root[0], 0);
        const double norm = host_value(env, root[1], 0);
        const double off = g->value[k] - high - log(norm) / split[k].power;
        if (fabs(off) <= same_within(head->call) * fabs(g->value[k])) {
            g->high[k] = high;
            g->norm[k] = norm;
        }
    }
    env->ir = head->call->ir;
    return status;
}

/* ---- a row --------------------------------------------------------------------------------------- */

/* What is given of the row, and delta = sum o do. Returns whether o is 0. */
static bool take_row(struct host_given *g, const struct host_head *head, const double *dout, double *o)
{
    bool zero = true;
    g->delta = 0;
    for (int k = 0; k < g->ir->n_finals; k++) {
        g->value[k] = 0;
        if (g->final[k].data)
            host_view_load(&g->final[k], head->b, head->h, head->row, 1, &g->value[k]);
    }
    if (!g->o.data)
        return false;
    host_view_load(&g->o, head->b, head->h, head->row, head->d_v, o);
    for (int e = 0; e < head->d_v; e++) {
        g->delta += o[e] * dout[e];
        zero = zero && o[e] == 0;
    }
    return zero;
}

/* As kernels tell a row without live pairs: its o is 0, and its finals are what the spec makes of none. */
static bool is_dead(const struct host_given *g, bool zero)
{
    bool dead = zero;
    for (int k = 0; k < g->ir->n_finals; k++)
        if (g->formulas.final[k] && (g->formulas.empty.n == 0 || !isnan(g->empty[k])))
            dead = dead && (g->value[k] == g->empty[k] || !isfinite(g->value[k]));
    return dead;
}

static void set_params(struct host_given *g, struct eval_env *env)
{
    env->param[LEAF_DELTA] = &g->delta;
    for (int k = 0; k < MAX_STATE; k++) {
        env->param[LEAF_FINAL + k] = &g->value[k];
        env->param[LEAF_ROWSUM + k] = &g->sum[k];
        env->param[LEAF_HIGH + k] = &g->high[k];
        env->param[LEAF_NORM + k] = &g->norm[k];
    }
}

static lathe_status add_row_sums(struct host_given *g, const struct host_head *head, struct eval_env *env,
                                 lathe_error *err)
{
    const struct backward *f = &g->formulas;
    memset(g->sum, 0, sizeof g->sum);
    if (f->n_sums == 0 || head->n_live == 0)
        return LATHE_OK;
    const lathe_status status = host_eval(env, f->sum, f->n_sums, err);
    for (int k = 0; k < f->n_sums && status == LATHE_OK; k++)
        for (int64_t j = 0; j < head->n_live; j++)
            g->sum[k] += host_value(env, f->sum[k], j);
    return status;
}

/* Gradients of inputs: of every pair, or once. */
static lathe_status add_sites(struct host_gradient *b, const struct site_list *list, struct eval_env *env,
                              int64_t n, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int i = 0; i < list->n && status == LATHE_OK && n > 0; i++) {
        const int root[2] = {list->item[i].value, list->item[i].leaf};
        status = host_eval(env, root, 2, err);
        if (status == LATHE_OK)
            status = host_scatter_site(b, env, list->item[i].leaf, list->item[i].value, n, err);
    }
    return status;
}

static lathe_status pairs(const struct host_given *g, const struct host_head *head, struct eval_env *env,
                          double *weight, double *ds, lathe_error *err)
{
    const int root[2] = {g->formulas.weight, g->formulas.ds};
    if (head->n_live == 0)
        return LATHE_OK;
    const lathe_status status = host_eval(env, root, 2, err);
    if (status != LATHE_OK)
        return status;
    host_values(env, root[0], head->n_live, weight);
    host_values(env, root[1], head->n_live, ds);
    return LATHE_OK;
}

lathe_status host_given_row(struct host_given *g, struct host_gradient *b, struct host_head *head,
                            const double *dout, double *o, double *weight, double *ds, lathe_error *err)
{
    struct eval_env *env = &head->pair;
    const bool dead = is_dead(g, take_row(g, head, dout, o));
    lathe_status status = take_apart(g, head, weight, err);
    if (status != LATHE_OK)
        return status;
    env->ir = g->ir;
    set_params(g, env);
    status = add_row_sums(g, head, env, err);
    if (status == LATHE_OK)
        status = pairs(g, head, env, weight, ds, err);
    if (status == LATHE_OK)
        status = add_sites(b, &g->formulas.pair, env, head->n_live, err);
    const bool elsewhere = head->call->problem.cut_keys && (head->call->keys.start > 0 || head->len_kv == 0);
    if (status == LATHE_OK && !elsewhere) /* what a row gives counts once, beside the first key */
        status = add_sites(b, dead ? &g->formulas.empty : &g->formulas.row, env, 1, err);
    env->ir = head->call->ir;
    return status;
}

/* ---- what does not count ------------------------------------------------------------------------- */

/* As much as kernels of 16 bits may make of one. */
static bool is_same(double given, double own)
{
    return given == own || fabs(given - own) <= 0.05 + 0x1p-7 * fabs(own) || !isfinite(own);
}

lathe_status host_given_check(const struct host_given *g, struct host_head *head, double *weight,
                              lathe_error *err)
{
    const struct ir *ir = head->call->ir;
    double factor;
    double own[MAX_STATE];
    bool any = false;
    for (int k = 0; k < ir->n_finals; k++)
        any |= g->is_given[k];
    if (!any)
        return LATHE_OK;
    const lathe_status status = host_row_online(head, weight, &factor, own, err);
    for (int k = 0; k < ir->n_finals && status == LATHE_OK; k++) {
        double given = 0;
        if (!g->is_given[k])
            continue;
        host_view_load(&g->final[k], head->b, head->h, head->row, 1, &given);
        if (!is_same(given, own[k]))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected that of these keys, %g for query %lld of head %lld, "
                               "given %g: %s",
                               ir->final[k].name, own[k], (long long)head->row, (long long)head->h, given,
                               g->hint);
    }
    return status;
}
