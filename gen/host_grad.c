/*
 * host_grad.c: the backward pass on the host device, in double precision. In: a spec, and arguments as
 * for host_backward. Out: gradients, overwritten. The formulas are derived by diff() once per call, in a
 * copy of the spec's pool that dies with the call, so the spec itself stays as it was.
 * Gradients of inputs are summed in double over all rows and stored at the end.
 */
#include "kinds.h"
#include "prove.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- differentiated functions ------------------------------------------------------------------ */

struct graph {
    struct diff_result adjoint;
    int n_eval;
    int *eval; /* adjoints, then their leaves (a read outside a tensor shows), then one node more */
};

struct input_grad {
    const lathe_arg *out; /* NULL: not wanted */
    double *sum;          /* compact, row-major */
    struct host_turned turned;
};

struct backward {
    struct ir *ir; /* the copy */
    struct host_call call;
    int forward; /* attention: node of the final weight */
    struct graph row;
    struct graph stage[MOD_COUNT][MAX_STAGES];
    struct input_grad input[MAX_INPUTS];
};

static bool graph_make(struct graph *g, struct ir *ir, const int *root, const int *seed, int n, int more,
                       struct diag *diag)
{
    if (!diff(ir, root, seed, n, &g->adjoint, diag))
        return false;
    g->eval = calloc(2 * (size_t)g->adjoint.n + 1, sizeof *g->eval);
    if (!g->eval) {
        diag_add(diag, ir->file[0], 0, "out of memory");
        return false;
    }
    for (int i = 0; i < g->adjoint.n; i++)
        g->eval[g->n_eval++] = g->adjoint.item[i].adjoint;
    for (int i = 0; i < g->adjoint.n; i++)
        if (ir->node[g->adjoint.item[i].leaf].op != OP_PARAM)
            g->eval[g->n_eval++] = g->adjoint.item[i].leaf;
    if (more >= 0)
        g->eval[g->n_eval++] = more;
    return true;
}

/* The adjoint of a parameter as n numbers; 0 where nothing depends on it. */
static void graph_values(const struct graph *g, const struct eval_env *env, int param, int64_t n, double *out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < g->adjoint.n; i++) {
        const struct ir_node *leaf = &env->ir->node[g->adjoint.item[i].leaf];
        if (leaf->op == OP_PARAM && leaf->index == param)
            host_values(env, g->adjoint.item[i].adjoint, n, out);
    }
}

static bool build_attention(struct backward *b, struct diag *diag)
{
    struct row_graph row;
    row_graph_make(b->ir, &row);
    int root[1 + MAX_STATE] = {row.forward};
    int seed[1 + MAX_STATE] = {param_node(b->ir, PARAM_DW)};
    for (int i = 0; i < b->ir->n_finals; i++) {
        root[1 + i] = row.final[i];
        seed[1 + i] = param_node(b->ir, PARAM_DFINAL + i);
    }
    b->forward = row.forward;
    return graph_make(&b->row, b->ir, root, seed, 1 + b->ir->n_finals, row.forward, diag);
}

static bool build_rowwise(struct backward *b, struct diag *diag)
{
    int seed[1 + MAX_STATE] = {param_node(b->ir, PARAM_DROWY)};
    for (int i = 0; i < b->ir->n_finals; i++)
        seed[1 + i] = param_node(b->ir, (ir_result_is_row(b->ir, i) ? PARAM_DROW : PARAM_DSTAT) + i);
    const int skip = b->ir->no_y;
    return graph_make(&b->row, b->ir, b->ir->row.root + skip, seed + skip, b->ir->row.n_roots - skip, -1,
                      diag);
}

static bool build_stages(struct backward *b, struct diag *diag)
{
    bool ok = true;
    for (int m = 0; m < MOD_COUNT; m++) {
        for (int s = 0; s < b->ir->mod[m].n_stages; s++) {
            const struct ir_stage *stage = &b->ir->mod[m].stage[s];
            bool pair = stage->form != STAGE_ELEMENT;
            int seed[2] = {param_node(b->ir, pair ? PARAM_DLO : PARAM_DX), param_node(b->ir, PARAM_DHI)};
            ok &= graph_make(&b->stage[m][s], b->ir, stage->fn.root, seed, pair ? 2 : 1, -1, diag);
        }
    }
    return ok;
}

/* ---- gradients of inputs ----------------------------------------------------------------------- */

static bool inputs_open(struct backward *b)
{
    for (int i = 0; i < b->ir->n_inputs; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", b->ir->input[i].name);
        const lathe_arg *out = b->ir->input[i].grad ? host_arg(&b->call, name) : NULL;
        if (!out || !out->data)
            continue;
        const bool turn = b->ir->inner && b->ir->input[i].rows == INPUT_ROW;
        b->input[i].out = turn ? host_turn(&b->input[i].turned, out) : out;
        b->input[i].sum = calloc((size_t)tensor_count(out) + 1, sizeof(double));
        if (!b->input[i].sum)
            return false;
    }
    return true;
}

/* Number of the element that element j of a load reads, or -1 where the gradient has no such element. An
   index by row counts all leading dims, which are one here. */
static int64_t element_of(const struct eval_env *env, const struct ir_node *leaf, const lathe_arg *out,
                          int64_t j)
{
    int64_t element = 0;
    const int leading = out->ndim - leaf->n_args + 1;
    for (int d = 0; d < leaf->n_args; d++) {
        double index = host_value(env, leaf->arg[d], j);
        int64_t size = d > 0 ? out->shape[d + leading - 1] : 1;
        for (int k = 0; d == 0 && k < leading; k++)
            size *= out->shape[k];
        if (!(index >= 0 && index < (double)size))
            return -1;
        element = element * size + (int64_t)index;
    }
    return element;
}

static lathe_status outside(const struct backward *b, const struct ir_node *leaf, lathe_error *err)
{
    if (!err)
        return LATHE_SPEC;
    const char *name = b->ir->input[leaf->index].name;
    *err = (lathe_error){.status = LATHE_SPEC, .line = leaf->line};
    snprintf(err->file, sizeof err->file, "%s", b->ir->file[leaf->file]);
    snprintf(err->text, sizeof err->text, "%.200s:%d: %s: an index is outside argument 'd%s'", err->file,
             err->line, name, name);
    return LATHE_SPEC;
}

/* Add the adjoints of one evaluation to the inputs they belong to. */
static lathe_status scatter(struct backward *b, const struct graph *g, const struct eval_env *env,
                            lathe_error *err)
{
    for (int i = 0; i < g->adjoint.n; i++) {
        const struct ir_node *leaf = &b->ir->node[g->adjoint.item[i].leaf];
        const struct input_grad *to = leaf->op == OP_PARAM ? NULL : &b->input[leaf->index];
        int64_t n = leaf->span & env->axis ? env->n : 1;
        for (int64_t j = 0; to && to->sum && j < n; j++) {
            int64_t element = element_of(env, leaf, to->out, j);
            if (element < 0)
                return outside(b, leaf, err);
            to->sum[element] += host_value(env, g->adjoint.item[i].adjoint, j);
        }
    }
    return LATHE_OK;
}

/* ---- attention: vector mods -------------------------------------------------------------------- */

struct attention { /* one call */
    struct backward *b;
    struct host_head head;
    struct host_view dout, dq, dk, dv;
    struct host_view dfinal[MAX_STATE];
    int64_t d_max;
    double *dk_sum, *dv_sum;   /* [len_kv, d] and [len_kv, d_v] of one key head, after its mods */
    double *dw, *weight, *ds;  /* [len_kv] */
    double *grad;              /* [d_max] of one vector */
    double *seed_lo, *seed_hi; /* [d_max] */
};

static void take_pairs(const struct attention *a, int form, int n, const double *grad)
{
    for (int i = 0; i < n / 2; i++) {
        a->seed_lo[i] = grad[host_pair_index(form, n, i, 0)];
        a->seed_hi[i] = grad[host_pair_index(form, n, i, 1)];
    }
}

static void give_pairs(const struct attention *a, int form, int n, double *grad)
{
    for (int i = 0; i < n / 2; i++) {
        grad[host_pair_index(form, n, i, 0)] = a->seed_lo[i];
        grad[host_pair_index(form, n, i, 1)] = a->seed_hi[i];
    }
}

/* grad: of what the stage gives on entry, of what it took on return. */
static lathe_status stage_backward(struct attention *a, const struct ir_stage *stage, const struct graph *g,
                                   int n, const double *in, double *grad, lathe_error *err)
{
    struct eval_env *env = &a->head.dim;
    bool pair = stage->form != STAGE_ELEMENT;
    host_stage_enter(&a->head, stage, n, in);
    if (pair)
        take_pairs(a, stage->form, n, grad);
    env->param[PARAM_DX] = grad;
    env->param[PARAM_DLO] = a->seed_lo;
    env->param[PARAM_DHI] = a->seed_hi;
    lathe_status status = host_eval(env, g->eval, g->n_eval, err);
    if (status == LATHE_OK)
        status = scatter(a->b, g, env, err);
    if (status != LATHE_OK)
        return status;
    if (!pair) {
        graph_values(g, env, PARAM_X, n, grad);
        return LATHE_OK;
    }
    graph_values(g, env, PARAM_LO, n / 2, a->seed_lo);
    graph_values(g, env, PARAM_HI, n / 2, a->seed_hi);
    give_pairs(a, stage->form, n, grad);
    return LATHE_OK;
}

/* Backward of a vector mod. head.stage[0] holds the vector that entered the mod. */
static lathe_status mod_backward(struct attention *a, enum mod which, int64_t tensor_head, int64_t token,
                                 int n, double *grad, lathe_error *err)
{
    const struct ir_mod *mod = &a->b->ir->mod[which];
    struct host_head *head = &a->head;
    if (mod->n_stages == 0)
        return LATHE_OK;
    lathe_status status = host_mod(head, which, head->b, tensor_head, token, n, head->stage, err);
    if (status == LATHE_OK)
        host_mod_enter(head, which, head->b, tensor_head, token);
    for (int s = mod->n_stages - 1; s >= 0 && status == LATHE_OK; s--)
        status = stage_backward(a, &mod->stage[s], &a->b->stage[which][s], n, head->stage[s], grad, err);
    return status;
}

/* ---- attention: rows and heads ----------------------------------------------------------------- */

/* o before the output mod, into head.stage[0]. */
static lathe_status output_again(struct attention *a, lathe_error *err)
{
    struct host_head *head = &a->head;
    double factor;
    double finals[MAX_STATE];
    lathe_status status = host_row_online(head, a->weight, &factor, finals, err);
    double *o = head->stage[0];
    memset(o, 0, (size_t)head->d_v * sizeof *o);
    for (int64_t j = 0; j < head->n_live && status == LATHE_OK; j++)
        for (int e = 0; e < head->d_v; e++)
            o[e] += a->weight[j] * factor * head->v[head->live[j] * head->d_v + e];
    return status;
}

/* dL/d weight of every live pair, from a->grad = dL/d o before the output mod. */
static void weight_seeds(const struct attention *a)
{
    const struct host_head *head = &a->head;
    for (int64_t j = 0; j < head->n_live; j++) {
        a->dw[j] = 0;
        for (int e = 0; e < head->d_v; e++)
            a->dw[j] += a->grad[e] * head->v[head->live[j] * head->d_v + e];
    }
}

/* dv' += w do; dk' += ds q'; a->grad becomes dq' = sum ds k'. */
static void pair_products(const struct attention *a)
{
    const struct host_head *head = &a->head;
    for (int64_t j = 0; j < head->n_live; j++)
        for (int e = 0; e < head->d_v; e++)
            a->dv_sum[head->live[j] * head->d_v + e] += a->weight[j] * a->grad[e];
    memset(a->grad, 0, (size_t)head->d * sizeof *a->grad);
    for (int64_t j = 0; j < head->n_live; j++) {
        for (int e = 0; e < head->d; e++) {
            a->grad[e] += a->ds[j] * head->k[head->live[j] * head->d + e];
            a->dk_sum[head->live[j] * head->d + e] += a->ds[j] * head->q[e];
        }
    }
}

/* The row's function backwards: fills a->weight and a->ds. */
static lathe_status pairs_backward(struct attention *a, int64_t row, lathe_error *err)
{
    struct host_head *head = &a->head;
    struct backward *b = a->b;
    double dfinal[MAX_STATE] = {0};
    weight_seeds(a);
    head->pair.param[PARAM_DW] = a->dw;
    for (int i = 0; i < b->ir->n_finals; i++) {
        if (a->dfinal[i].data)
            host_view_load(&a->dfinal[i], head->b, head->h, row, 1, &dfinal[i]);
        head->pair.param[PARAM_DFINAL + i] = &dfinal[i];
    }
    lathe_status status = host_eval(&head->pair, b->row.eval, b->row.n_eval, err);
    if (status == LATHE_OK)
        status = scatter(b, &b->row, &head->pair, err);
    if (status == LATHE_OK) {
        host_values(&head->pair, b->forward, head->n_live, a->weight);
        graph_values(&b->row, &head->pair, PARAM_QK, head->n_live, a->ds);
    }
    return status;
}

static lathe_status live_row(struct attention *a, int64_t row, lathe_error *err)
{
    struct host_head *head = &a->head;
    host_view_load(&a->dout, head->b, head->h, row, head->d_v, a->grad);
    lathe_status status = LATHE_OK;
    if (a->b->ir->mod[MOD_OUTPUT].n_stages > 0) {
        status = output_again(a, err);
        if (status == LATHE_OK)
            status = mod_backward(a, MOD_OUTPUT, head->h, row, head->d_v, a->grad, err);
    }
    if (status == LATHE_OK)
        status = pairs_backward(a, row, err);
    if (status != LATHE_OK)
        return status;
    pair_products(a);
    host_view_load(&head->q_in, head->b, head->h, row, head->d, head->stage[0]);
    return mod_backward(a, MOD_QUERY, head->h, row, head->d, a->grad, err);
}

static lathe_status query_head(struct attention *a, int64_t batch, int64_t h, lathe_error *err)
{
    struct host_head *head = &a->head;
    lathe_status status = host_head_enter(head, batch, h, err);
    for (int64_t row = 0; row < head->len_q && status == LATHE_OK; row++) {
        status = host_row_enter(head, row, err);
        if (status != LATHE_OK)
            break;
        memset(a->grad, 0, (size_t)a->d_max * sizeof *a->grad);
        if (head->n_live > 0)
            status = live_row(a, row, err);
        if (status == LATHE_OK && a->dq.data)
            host_view_store(&a->dq, batch, h, row, head->d, a->grad);
    }
    return status;
}

/* Through the key or value mod, and out. */
static lathe_status keys_out(struct attention *a, enum mod which, const struct host_view *in,
                             const struct host_view *out, int n, double *sum, lathe_error *err)
{
    struct host_head *head = &a->head;
    lathe_status status = LATHE_OK;
    for (int64_t token = 0; token < head->len_kv && status == LATHE_OK; token++) {
        double *grad = sum + token * n;
        host_view_load(in, head->b, head->h_kv, token, n, head->stage[0]);
        status = mod_backward(a, which, head->h_kv, token, n, grad, err);
        if (status == LATHE_OK && out->data)
            host_view_store(out, head->b, head->h_kv, token, n, grad);
    }
    return status;
}

static lathe_status key_head(struct attention *a, int64_t batch, int64_t h_kv, int64_t group,
                             lathe_error *err)
{
    struct host_head *head = &a->head;
    memset(a->dk_sum, 0, (size_t)(head->len_kv * head->d) * sizeof *a->dk_sum);
    memset(a->dv_sum, 0, (size_t)(head->len_kv * head->d_v) * sizeof *a->dv_sum);
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < group && status == LATHE_OK; i++)
        status = query_head(a, batch, h_kv * group + i, err);
    if (status == LATHE_OK)
        status = keys_out(a, MOD_KEY, &head->k_in, &a->dk, head->d, a->dk_sum, err);
    if (status == LATHE_OK)
        status = keys_out(a, MOD_VALUE, &head->v_in, &a->dv, head->d_v, a->dv_sum, err);
    return status;
}

static bool attention_open(struct attention *a)
{
    const struct host_head *head = &a->head;
    const struct host_call *call = &a->b->call;
    host_view_make(&a->dout, host_arg(call, "do"), 4);
    host_view_make(&a->dq, host_arg(call, "dq"), 4);
    host_view_make(&a->dk, host_arg(call, "dk"), 4);
    host_view_make(&a->dv, host_arg(call, "dv"), 4);
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
    a->seed_lo = calloc((size_t)a->d_max, sizeof(double));
    a->seed_hi = calloc((size_t)a->d_max, sizeof(double));
    return a->dk_sum && a->dv_sum && a->dw && a->weight && a->ds && a->grad && a->seed_lo && a->seed_hi;
}

static void attention_close(struct attention *a)
{
    free(a->dk_sum);
    free(a->dv_sum);
    free(a->dw);
    free(a->weight);
    free(a->ds);
    free(a->grad);
    free(a->seed_lo);
    free(a->seed_hi);
    host_head_free(&a->head);
}

static lathe_status attention_backward(struct backward *b, lathe_error *err)
{
    struct attention a = {.b = b};
    int64_t n_b = host_dim(&b->call, SYM_B);
    int64_t h_kv = host_dim(&b->call, SYM_H_KV);
    int64_t group = h_kv > 0 ? host_dim(&b->call, SYM_H) / h_kv : 0;
    lathe_status status = host_head_init(&a.head, &b->call, err);
    if (status == LATHE_OK && !attention_open(&a))
        status = host_out_of_memory(err);
    for (int64_t i = 0; i < n_b * h_kv && status == LATHE_OK; i++)
        status = key_head(&a, i / h_kv, i % h_kv, group, err);
    attention_close(&a);
    return status;
}

/* ---- rowwise ----------------------------------------------------------------------------------- */

struct rows { /* one call */
    struct host_view x, dy, dx;
    struct host_view dresult[MAX_STATE]; /* of the other results: rows, or one value per row */
    int64_t n;
    double *seeds[MAX_STATE]; /* [n] of each */
    double *column;           /* [n] 0, 1, 2, ... */
    double *in;               /* [n] */
    double *seed;             /* [n] */
    double *grad;             /* [n] */
    struct eval_env env;
};

static bool rows_open(struct rows *r, const struct backward *b)
{
    const struct host_call *call = &b->call;
    host_rows_make(&r->x, call, "x");
    host_rows_make(&r->dy, call, "dy");
    host_rows_make(&r->dx, call, "dx");
    for (int i = 0; i < b->ir->n_finals; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", b->ir->final[i].name);
        if (ir_result_is_row(b->ir, i))
            host_rows_make(&r->dresult[i], call, name);
        else
            host_view_make(&r->dresult[i], host_arg(call, name), 3);
    }
    r->n = host_dim(call, SYM_N);
    size_t n = (size_t)r->n + 1;
    for (int i = 0; i < b->ir->n_finals; i++) {
        r->seeds[i] = calloc(n, sizeof(double));
        if (!r->seeds[i])
            return false;
        r->env.param[(ir_result_is_row(b->ir, i) ? PARAM_DROW : PARAM_DSTAT) + i] = r->seeds[i];
    }
    r->column = calloc(n, sizeof(double));
    r->in = calloc(n, sizeof(double));
    r->seed = calloc(n, sizeof(double));
    r->grad = calloc(n, sizeof(double));
    if (!r->column || !r->in || !r->seed || !r->grad)
        return false;
    for (int64_t i = 0; i < r->n; i++)
        r->column[i] = (double)i;
    r->env.n = (int)r->n;
    r->env.at_axis[AT_COL] = r->column;
    r->env.param[PARAM_ROWX] = r->in;
    r->env.param[PARAM_DROWY] = r->seed;
    return true;
}

static void rows_close(struct rows *r)
{
    for (int i = 0; i < MAX_STATE; i++)
        free(r->seeds[i]);
    free(r->column);
    free(r->in);
    free(r->seed);
    free(r->grad);
    eval_free(&r->env);
}

static lathe_status one_row(struct rows *r, struct backward *b, int64_t flat, lathe_error *err)
{
    int64_t inner = host_dim(&b->call, SYM_ROWS);
    int64_t middle = host_dim(&b->call, SYM_ROWS1);
    const int64_t i[3] = {flat / inner / middle, flat / inner % middle, flat % inner};
    host_view_load(&r->x, i[0], i[1], i[2], r->n, r->in);
    if (r->dy.data)
        host_view_load(&r->dy, i[0], i[1], i[2], r->n, r->seed);
    for (int k = 0; k < b->ir->n_finals; k++)
        if (r->dresult[k].data)
            host_view_load(&r->dresult[k], i[0], i[1], i[2], ir_result_is_row(b->ir, k) ? r->n : 1,
                           r->seeds[k]);
    r->env.at[AT_ROW] = (double)flat;
    lathe_status status = host_eval(&r->env, b->row.eval, b->row.n_eval, err);
    if (status == LATHE_OK)
        status = scatter(b, &b->row, &r->env, err);
    if (status == LATHE_OK && r->dx.data) {
        graph_values(&b->row, &r->env, PARAM_ROWX, r->n, r->grad);
        host_view_store(&r->dx, i[0], i[1], i[2], r->n, r->grad);
    }
    return status;
}

static lathe_status rowwise_backward(struct backward *b, lathe_error *err)
{
    struct rows r = {.n = 0};
    host_env_init(&r.env, &b->call, SPAN_KV);
    int64_t n_rows =
        host_dim(&b->call, SYM_ROWS0) * host_dim(&b->call, SYM_ROWS1) * host_dim(&b->call, SYM_ROWS);
    lathe_status status = rows_open(&r, b) ? LATHE_OK : host_out_of_memory(err);
    for (int64_t flat = 0; flat < n_rows && status == LATHE_OK; flat++)
        status = one_row(&r, b, flat, err);
    rows_close(&r);
    return status;
}

/* ---- the door ---------------------------------------------------------------------------------- */

static lathe_status run(struct backward *b, const struct signature *sig, const lathe_arg *args, int n,
                        lathe_error *err)
{
    struct diag diag = {0};
    bool attention = b->ir->kind == KIND_ATTENTION;
    bool built = attention ? build_attention(b, &diag) && build_stages(b, &diag) : build_rowwise(b, &diag);
    if (!built) {
        if (err)
            diag_to_error(&diag, LATHE_SPEC, err);
        return LATHE_SPEC;
    }
    lathe_status status = host_bind(&b->call, b->ir, sig, args, n, err);
    if (status == LATHE_OK && !inputs_open(b))
        status = host_out_of_memory(err);
    if (status == LATHE_OK)
        status = attention ? attention_backward(b, err) : rowwise_backward(b, err);
    for (int i = 0; i < b->ir->n_inputs; i++)
        if (status == LATHE_OK && b->input[i].out)
            tensor_set_all(b->input[i].out, b->input[i].sum);
    return status;
}

static void graph_free(struct graph *g)
{
    diff_free(&g->adjoint);
    free(g->eval);
}

lathe_status host_backward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                           lathe_error *err)
{
    struct backward b = {.ir = NULL};
    lathe_status status = LATHE_OK;
    if (kinds[ir->kind].host_backward) {
        status = host_bind(&b.call, ir, sig, args, n, err);
        return status == LATHE_OK ? kinds[ir->kind].host_backward(&b.call, err) : status;
    }
    b.ir = ir_clone(ir);
    if (!b.ir)
        return host_out_of_memory(err);
    status = run(&b, sig, args, n, err);
    graph_free(&b.row);
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < MAX_STAGES; s++)
            graph_free(&b.stage[m][s]);
    for (int i = 0; i < MAX_INPUTS; i++)
        free(b.input[i].sum);
    ir_free(b.ir);
    return status;
}
