/*
 * host_backward.c: attention's backward pass on the host device, in double precision. In: a spec, and
 * arguments as for host_backward. Out: gradients, overwritten. The formulas are derived by diff() once per
 * call, in a copy of the spec's pool that dies with the call, so the spec itself stays as it was.
 */
#include "gen/attention/columns.h"
#include "gen/attention/host/host_given.h"
#include "gen/attention/sequences.h"
#include "gen/attention/whole_row.h"
#include "gen/base/diag.h"
#include "gen/host/rows.h"
#include "gen/host/vectors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attention_gradient {
    struct host_gradient g;
    int forward;                        /* node of the final weight */
    struct host_graph row;              /* from scores */
    struct host_graph score;            /* scores from <q', k'> */
    struct host_graph empty[MAX_STATE]; /* finals of a row without live pairs, from inputs */
    int empty_final[MAX_STATE];
    struct host_mod_graphs mods;
    struct host_given given;
    double *pool[MOD_COUNT]; /* of keys in pages: sums of what k, with k2 behind it, and v get, [pool, h_kv,
                                page, dim]; NULL: not wanted, or keys have places of their own */
};

/* The epilogue of the starting state: of a row without live pairs, too, a final may follow from inputs. */
static bool build_empty(struct attention_gradient *b, struct diag *diag)
{
    struct ir *ir = b->g.ir;
    int from[MAX_STATE];
    int to[MAX_STATE];
    bool ok = true;
    for (int i = 0; i < ir->n_states; i++) {
        from[i] = ir_param_of(ir, LEAF_STATE + i);
        to[i] = ir_const(ir, ir->state[i].init, TYPE_F32);
    }
    for (int i = 0; i < ir->n_finals && ok; i++) {
        const int seed = ir_param_of(ir, LEAF_DFINAL + i);
        b->empty_final[i] = ir_substitute(ir, ir->epilogue.root[1 + i], from, to, ir->n_states);
        ok = host_graph_make(&b->empty[i], ir, &b->empty_final[i], &seed, 1, -1, diag);
    }
    return ok;
}

static bool build_attention(struct attention_gradient *b, struct diag *diag)
{
    struct row_graph row;
    row_graph_of_scores(b->g.ir, &row);
    int root[1 + MAX_STATE] = {row.forward};
    int seed[1 + MAX_STATE] = {ir_param_of(b->g.ir, LEAF_DW)};
    for (int i = 0; i < b->g.ir->n_finals; i++) {
        root[1 + i] = row.final[i];
        seed[1 + i] = ir_param_of(b->g.ir, LEAF_DFINAL + i);
    }
    b->forward = row.forward;
    return host_graph_make(&b->row, b->g.ir, root, seed, 1 + b->g.ir->n_finals, row.forward, diag) &&
           host_graph_make(&b->score, b->g.ir, &row.score, seed, 1, -1, diag) && build_empty(b, diag);
}

/* ---- attention: vector mods -------------------------------------------------------------------- */

struct row_gradient { /* one call */
    struct attention_gradient *b;
    const struct host_call *call;
    struct host_head head;
    struct host_view dout, dq, dk, dv;
    struct host_view dq2, dk2;
    struct host_view dfinal[MAX_STATE];
    double dfinal_value[MAX_STATE]; /* of the row */
    int64_t d_max;
    double *dk_sum, *dv_sum;  /* [len_kv, d] and [len_kv, d_v] of one key head, after its mods */
    double *dw, *weight, *ds; /* [len_kv] */
    double *grad;             /* [d_max] of one vector */
};

/* Backward of a vector mod. head.vector.stage[0] holds the vector that entered the mod. */
static lathe_status mod_backward(struct row_gradient *a, enum mod which, int64_t tensor_head, int64_t token,
                                 int n, double *grad, lathe_error *err)
{
    const struct ir_mod *mod = &a->b->g.ir->mod[which];
    struct host_head *head = &a->head;
    if (mod->n_stages == 0)
        return LATHE_OK;
    host_mod_enter(head, which, head->b, tensor_head, token);
    lathe_status status = host_mod(&head->vector, which, n, err);
    if (status == LATHE_OK)
        status = host_mod_back(&head->vector, &a->b->g, &a->b->mods, which, n, grad, err);
    return status;
}

/* ---- attention: rows and heads ----------------------------------------------------------------- */

/* o before the output mod, into head.vector.stage[0]. */
static lathe_status output_again(struct row_gradient *a, lathe_error *err)
{
    struct host_head *head = &a->head;
    double factor;
    double finals[MAX_STATE];
    lathe_status status = host_row_online(head, a->weight, &factor, finals, err);
    double *o = head->vector.stage[0];
    memset(o, 0, (size_t)head->d_v * sizeof *o);
    for (int64_t j = 0; j < head->n_live && status == LATHE_OK; j++)
        row_add(o, a->weight[j] * factor, head->v + head->live[j] * head->d_v, head->d_v);
    return status;
}

/* dL/d weight of every live pair, from a->grad = dL/d o before the output mod. */
static void weight_seeds(const struct row_gradient *a)
{
    const struct host_head *head = &a->head;
    for (int64_t j = 0; j < head->n_live; j++)
        a->dw[j] = row_dot(a->grad, head->v + head->live[j] * head->d_v, head->d_v);
}

/* dv' += w do; dk' += ds q'; a->grad becomes dq' = sum ds k'. */
static void pair_products(const struct row_gradient *a)
{
    const struct host_head *head = &a->head;
    for (int64_t j = 0; j < head->n_live; j++)
        row_add(a->dv_sum + head->live[j] * head->d_v, a->weight[j], a->grad, head->d_v);
    memset(a->grad, 0, (size_t)head->d * sizeof *a->grad);
    for (int64_t j = 0; j < head->n_live; j++) {
        row_add(a->grad, a->ds[j], head->k + head->live[j] * head->d, head->d);
        row_add(a->dk_sum + head->live[j] * head->d, a->ds[j], head->q, head->d);
    }
}

/* a->ds: of scores on entry, of <q', k'> on return. */
static lathe_status scores_backward(struct row_gradient *a, lathe_error *err)
{
    struct eval_env *env = &a->head.pair;
    env->param[LEAF_DW] = a->ds;
    lathe_status status = host_eval(env, a->b->score.eval, a->b->score.n_eval, err);
    if (status == LATHE_OK)
        status = host_scatter(&a->b->g, &a->b->score, env, err);
    if (status != LATHE_OK)
        return status;
    host_graph_values(&a->b->score, env, LEAF_QK, a->head.n_live, a->dw);
    memcpy(a->ds, a->dw, (size_t)a->head.n_live * sizeof *a->ds);
    return LATHE_OK;
}

/* The gradients of the row's weights and finals, as its formulas read them. */
static void take_seeds(struct row_gradient *a, int64_t row)
{
    struct host_head *head = &a->head;
    head->pair.param[LEAF_DW] = a->dw;
    for (int i = 0; i < a->b->g.ir->n_finals; i++) {
        a->dfinal_value[i] = 0;
        if (a->dfinal[i].data)
            host_view_load(&a->dfinal[i], head->b, head->h, row, 1, &a->dfinal_value[i]);
        head->pair.param[LEAF_DFINAL + i] = &a->dfinal_value[i];
    }
}

/* From o and finals that are given. */
static lathe_status given_row(struct row_gradient *a, int64_t row, lathe_error *err)
{
    struct host_head *head = &a->head;
    take_seeds(a, row);
    const lathe_status status =
        host_given_row(&a->b->given, &a->b->g, head, a->grad, head->vector.stage[0], a->weight, a->ds, err);
    return status == LATHE_OK && head->n_live > 0 ? scores_backward(a, err) : status;
}

/* The row's function backwards: fills a->weight and a->ds. */
static lathe_status pairs_backward(struct row_gradient *a, int64_t row, lathe_error *err)
{
    struct host_head *head = &a->head;
    struct attention_gradient *b = a->b;
    weight_seeds(a);
    if (b->given.counts)
        return given_row(a, row, err);
    take_seeds(a, row);
    lathe_status status = host_given_check(&b->given, head, a->weight, err);
    if (status == LATHE_OK)
        status = host_eval(&head->pair, b->row.eval, b->row.n_eval, err);
    if (status == LATHE_OK)
        status = host_scatter(&b->g, &b->row, &head->pair, err);
    if (status != LATHE_OK)
        return status;
    host_values(&head->pair, b->forward, head->n_live, a->weight);
    host_graph_values(&b->row, &head->pair, LEAF_S, head->n_live, a->ds);
    return scores_backward(a, err);
}

/* What the gradient of one final of a row without live pairs gives to inputs: nothing where it is infinite.
 */
static lathe_status empty_final(struct row_gradient *a, int k, lathe_error *err)
{
    struct host_head *head = &a->head;
    const struct attention_gradient *b = a->b;
    if (b->empty[k].adjoint.n == 0)
        return LATHE_OK;
    lathe_status status = host_eval(&head->pair, &b->empty_final[k], 1, err);
    if (status != LATHE_OK || !isfinite(host_value(&head->pair, b->empty_final[k], 0)))
        return status;
    status = host_eval(&head->pair, b->empty[k].eval, b->empty[k].n_eval, err);
    return status == LATHE_OK ? host_scatter(&a->b->g, &b->empty[k], &head->pair, err) : status;
}

static lathe_status empty_row(struct row_gradient *a, int64_t row, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    take_seeds(a, row);
    for (int k = 0; k < a->b->g.ir->n_finals && status == LATHE_OK; k++)
        status = empty_final(a, k, err);
    return status;
}

static lathe_status live_row(struct row_gradient *a, int64_t row, lathe_error *err)
{
    struct host_head *head = &a->head;
    host_view_load(&a->dout, head->b, head->h, row, head->d_v, a->grad);
    lathe_status status = LATHE_OK;
    if (a->b->g.ir->mod[MOD_OUTPUT].n_stages > 0) {
        status = output_again(a, err);
        if (status == LATHE_OK)
            status = mod_backward(a, MOD_OUTPUT, head->h, row, head->d_v, a->grad, err);
    }
    if (status == LATHE_OK)
        status = pairs_backward(a, row, err);
    if (status != LATHE_OK)
        return status;
    pair_products(a);
    host_view_load(&head->q_in, head->b, head->h, row, head->d1, head->vector.stage[0]);
    return mod_backward(a, MOD_QUERY, head->h, row, head->d, a->grad, err);
}

/* What is given may be of keys that are elsewhere: the row then has its part in inputs that it reads. */
static lathe_status row_without_keys(struct row_gradient *a, int64_t row, lathe_error *err)
{
    host_view_load(&a->dout, a->head.b, a->head.h, row, a->head.d_v, a->grad);
    const lathe_status status = given_row(a, row, err);
    memset(a->grad, 0, (size_t)a->d_max * sizeof *a->grad);
    return status;
}

static lathe_status query_row(struct row_gradient *a, int64_t row, lathe_error *err)
{
    struct host_head *head = &a->head;
    lathe_status status = host_row_enter(head, row, err);
    if (status != LATHE_OK)
        return status;
    memset(a->grad, 0, (size_t)a->d_max * sizeof *a->grad);
    if (head->n_live > 0)
        status = live_row(a, row, err);
    else if (a->b->given.counts)
        status = row_without_keys(a, row, err);
    else
        status = empty_row(a, row, err);
    if (status == LATHE_OK && a->dq.data)
        host_view_store(&a->dq, head->b, head->h, row, head->d1, a->grad);
    if (status == LATHE_OK && a->dq2.data)
        host_view_store(&a->dq2, head->b, head->h, row, head->d - head->d1, a->grad + head->d1);
    return status;
}

static lathe_status query_head(struct row_gradient *a, int64_t batch, int64_t h, lathe_error *err)
{
    const struct host_call *call = a->call;
    const int64_t first = call->head_rows > 0 ? call->first_row + h * call->head_rows
                                              : (batch * host_dim(call, SYM_H) + h) * a->head.len_q;
    const int64_t end = first + a->head.len_q;
    lathe_status status = host_head_enter(&a->head, batch, h, err);
    for (int64_t row = host_next_row(call, first, end); row < end && status == LATHE_OK;
         row = host_next_row(call, row + 1, end))
        status = query_row(a, row - first, err);
    return status;
}

/* Sequences that share a page add to it. */
static void add_to_page(const struct row_gradient *a, enum mod which, int64_t token, int n,
                        const double *grad)
{
    const struct host_head *head = &a->head;
    const int64_t line = a->call->page[token / head->page] * host_dim(a->call, SYM_H_KV) + head->h_kv;
    double *sum = a->b->pool[which];
    for (int e = 0; e < n && sum; e++)
        sum[(line * head->page + token % head->page) * n + e] += grad[e];
}

/* Through the key or value mod, and out. */
static lathe_status keys_out(struct row_gradient *a, enum mod which, const struct host_view *in,
                             const struct host_view *out, int n, double *sum, lathe_error *err)
{
    struct host_head *head = &a->head;
    const int columns = which == MOD_KEY ? head->d1 : n; /* of this tensor */
    lathe_status status = LATHE_OK;
    for (int64_t token = 0; token < head->len_kv && status == LATHE_OK; token++) {
        double *grad = sum + token * n;
        host_token(head, which, in, head->b, head->h_kv, token, columns, head->vector.stage[0]);
        status = mod_backward(a, which, head->h_kv, token, columns, grad, err);
        if (status == LATHE_OK && head->page > 0)
            add_to_page(a, which, token, n, grad);
        else if (status == LATHE_OK && out->data)
            host_view_store(out, head->b, head->h_kv, token, columns, grad);
    }
    return status;
}

/* What k2 gets, behind what k does. */
static void second_keys_out(const struct row_gradient *a)
{
    const struct host_head *head = &a->head;
    for (int64_t token = 0; token < head->len_kv && a->dk2.data && head->page == 0; token++)
        host_view_store(&a->dk2, head->b, head->h_kv, token, head->d - head->d1,
                        a->dk_sum + token * head->d + head->d1);
}

/* Values that are the first elements of keys give their gradient to them. */
static void values_to_keys(const struct row_gradient *a)
{
    const struct host_head *head = &a->head;
    for (int64_t token = 0; token < head->len_kv; token++)
        row_add(a->dk_sum + token * head->d, 1, a->dv_sum + token * head->d_v, head->d_v);
}

static lathe_status key_head(struct row_gradient *a, int64_t batch, int64_t h_kv, int64_t group,
                             lathe_error *err)
{
    struct host_head *head = &a->head;
    memset(a->dk_sum, 0, (size_t)(head->len_kv * head->d) * sizeof *a->dk_sum);
    memset(a->dv_sum, 0, (size_t)(head->len_kv * head->d_v) * sizeof *a->dv_sum);
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < group && status == LATHE_OK; i++)
        status = query_head(a, batch, h_kv * group + i, err);
    if (a->call->ir->v_is_k)
        values_to_keys(a);
    if (status == LATHE_OK)
        status = keys_out(a, MOD_KEY, &head->k_in, &a->dk, head->d, a->dk_sum, err);
    if (status == LATHE_OK)
        second_keys_out(a);
    if (status == LATHE_OK)
        status = keys_out(a, MOD_VALUE, &head->v_in, &a->dv, head->d_v, a->dv_sum, err);
    return status;
}

static bool attention_open(struct row_gradient *a)
{
    const struct host_head *head = &a->head;
    const struct host_call *call = a->call;
    host_view_make(&a->dout, host_arg(call, "do"), 4);
    host_view_make(&a->dq, host_arg(call, "dq"), 4);
    host_view_make(&a->dk, host_arg(call, "dk"), 4);
    host_view_make(&a->dv, host_arg(call, "dv"), 4);
    host_view_make(&a->dq2, host_arg(call, "dq2"), 4);
    host_view_make(&a->dk2, host_arg(call, "dk2"), 4);
    for (int i = 0; i < call->ir->n_finals; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", call->ir->final[i].name);
        host_view_make(&a->dfinal[i], host_arg(call, name), 3);
    }
    a->d_max = head->d > head->d_v ? head->d : head->d_v;
    size_t keys = (size_t)head->len_kv + 1;
    a->dk_sum = calloc(keys * (size_t)head->d, sizeof(double));
    a->dv_sum = calloc(keys * (size_t)head->d_v, sizeof(double));
    a->dw = calloc(keys, sizeof(double));
    a->weight = calloc(keys, sizeof(double));
    a->ds = calloc(keys, sizeof(double));
    a->grad = calloc((size_t)a->d_max, sizeof(double));
    return a->dk_sum && a->dv_sum && a->dw && a->weight && a->ds && a->grad;
}

static void attention_close(struct row_gradient *a)
{
    free(a->dk_sum);
    free(a->dv_sum);
    free(a->dw);
    free(a->weight);
    free(a->ds);
    free(a->grad);
    host_head_free(&a->head);
}

/* Of the call, or of a sequence of it. */
static lathe_status every_head(struct attention_gradient *b, const struct host_call *call, int64_t n_b,
                               lathe_error *err)
{
    struct row_gradient a = {.b = b, .call = call};
    int64_t h_kv = host_dim(call, SYM_H_KV);
    int64_t group = h_kv > 0 ? host_dim(call, SYM_H) / h_kv : 0;
    lathe_status status = host_head_init(&a.head, call, err);
    a.head.pair.mode = NULL; /* of rows kernels have formulas of their own: prove_backward.c */
    host_given_enter(&b->given, call);
    if (status == LATHE_OK && !attention_open(&a))
        status = host_out_of_memory(err);
    for (int64_t i = 0; i < n_b * h_kv && status == LATHE_OK; i++)
        status = key_head(&a, i / h_kv, i % h_kv, group, err);
    attention_close(&a);
    return status;
}

/* Keys that are not in use have no gradient: 0. */
static void clear_unused(const struct host_call *call, const char *name, int64_t n)
{
    struct host_view view;
    host_view_make(&view, host_arg(call, name), 4);
    double *zeros = view.data ? calloc((size_t)n + 1, sizeof *zeros) : NULL;
    for (int64_t b = 0; zeros && b < host_dim(call, SYM_B); b++)
        for (int64_t h = 0; h < host_dim(call, SYM_H_KV); h++)
            for (int64_t t = 0; t < host_dim(call, SYM_KV); t++)
                host_view_store(&view, b, h, t, n, zeros);
    free(zeros);
}

/* ---- attention: keys in pages ------------------------------------------------------------------ */

/* Elements of a row of such sums. */
static int64_t pool_row(const struct host_call *call, enum mod which)
{
    const int64_t second = which == MOD_KEY && call->ir->qk2 ? host_dim(call, SYM_D2) : 0;
    return which == MOD_KEY ? host_dim(call, SYM_D) + second : host_dim(call, SYM_D_V);
}

static int64_t pool_rows(const struct host_call *call)
{
    return host_dim(call, SYM_POOL) * host_dim(call, SYM_H_KV) * host_dim(call, SYM_PAGE);
}

static lathe_status pools_open(struct attention_gradient *b, lathe_error *err)
{
    const struct host_call *call = &b->g.call;
    const bool wanted[MOD_COUNT] = {[MOD_KEY] = host_arg(call, "dk") || host_arg(call, "dk2"),
                                    [MOD_VALUE] = host_arg(call, "dv") != NULL};
    for (int which = MOD_KEY; which <= MOD_VALUE; which++) {
        if (!wanted[which] || !call->problem.paged)
            continue;
        b->pool[which] =
            calloc((size_t)(pool_rows(call) * pool_row(call, (enum mod)which)) + 1, sizeof(double));
        if (!b->pool[which])
            return host_out_of_memory(err);
    }
    return LATHE_OK;
}

/* n elements of each row of the sums, from number `first` on, as the gradient of that name. */
static void store_pool(const struct attention_gradient *b, enum mod which, const char *name, int64_t first,
                       int64_t n)
{
    const struct host_call *call = &b->g.call;
    const int64_t page = host_dim(call, SYM_PAGE);
    const int64_t heads = host_dim(call, SYM_H_KV);
    struct host_view view;
    host_view_make(&view, host_arg(call, name), 4);
    for (int64_t row = 0; row < pool_rows(call) && view.data; row++)
        host_view_store(&view, row / page / heads, row / page % heads, row % page, n,
                        b->pool[which] + row * pool_row(call, which) + first);
}

/* Pages that no key in use lies in get 0. */
static void pools_store(const struct attention_gradient *b)
{
    const int64_t d = host_dim(&b->g.call, SYM_D);
    store_pool(b, MOD_KEY, "dk", 0, d);
    store_pool(b, MOD_KEY, "dk2", d, b->g.call.ir->qk2 ? host_dim(&b->g.call, SYM_D2) : 0);
    store_pool(b, MOD_VALUE, "dv", 0, host_dim(&b->g.call, SYM_D_V));
}

static lathe_status every_sequence(struct attention_gradient *b, lathe_error *err)
{
    struct sequences s;
    lathe_status status = sequences_open(&s, &b->g.call, err);
    struct sequence *one = status == LATHE_OK ? malloc(sizeof *one) : NULL;
    if (status == LATHE_OK && !one)
        status = host_out_of_memory(err);
    if (status == LATHE_OK)
        status = pools_open(b, err);
    if (status == LATHE_OK && host_arg(&b->g.call, "used_kv") && !b->g.call.problem.paged) {
        clear_unused(&b->g.call, "dk", host_dim(&b->g.call, SYM_D));
        clear_unused(&b->g.call, "dv", host_dim(&b->g.call, SYM_D_V));
        clear_unused(&b->g.call, "dk2", b->g.call.ir->qk2 ? host_dim(&b->g.call, SYM_D2) : 0);
    }
    for (int64_t i = 0; i < s.n && status == LATHE_OK; i++) {
        sequence_enter(one, &s, i);
        sequence_gradients(&b->g, &s, i);
        status = every_head(b, &one->call, 1, err);
    }
    if (status == LATHE_OK && b->g.call.problem.paged)
        pools_store(b);
    free(one);
    sequences_close(&s);
    return status;
}

static void graphs_free(struct attention_gradient *b)
{
    host_graph_free(&b->row);
    host_graph_free(&b->score);
    for (int k = 0; k < MAX_STATE; k++)
        host_graph_free(&b->empty[k]);
    host_mod_graphs_free(&b->mods);
    host_given_close(&b->given);
    free(b->pool[MOD_KEY]);
    free(b->pool[MOD_VALUE]);
}

lathe_status host_attention_backward(const struct host_request *r, lathe_error *err)
{
    struct attention_gradient b = {.forward = 0};
    struct diag diag = {0};
    lathe_status status = host_gradient_open(&b.g, r, err);
    if (status == LATHE_OK && !(build_attention(&b, &diag) && host_mod_graphs_make(&b.mods, b.g.ir, &diag)))
        status = host_refused(&diag, err);
    if (status == LATHE_OK)
        status = host_gradient_bind(&b.g, r, err);
    if (status == LATHE_OK)
        status = host_given_open(&b.given, &b.g, err);
    if (status == LATHE_OK)
        status = sequences_given(&b.g.call) ? every_sequence(&b, err)
                                            : every_head(&b, &b.g.call, host_dim(&b.g.call, SYM_B), err);
    if (status == LATHE_OK)
        host_gradient_store(&b.g);
    graphs_free(&b);
    host_gradient_close(&b.g);
    return status;
}
