/*
 * host_backward.c: the backward pass of rowwise on the host device, in double precision. In: a spec, and
 * arguments as for host_backward. Out: gradients, overwritten. The formulas are derived by diff() once per
 * call, in a copy of the spec's pool. What is given of the forward pass counts as in kernels: given.c.
 */
#include "gen/base/diag.h"
#include "gen/host/gradient.h"
#include "gen/rowwise/columns.h"
#include "gen/rowwise/pass.h"

#include <stdio.h>
#include <stdlib.h>

struct rowwise_gradient {
    struct host_gradient g;
    struct host_graph row;
    struct row_given given;
};

static bool build_rowwise(struct rowwise_gradient *b, struct diag *diag)
{
    int seed[1 + MAX_STATE] = {ir_param_of(b->g.ir, LEAF_DROWY)};
    for (int i = 0; i < b->g.ir->n_finals; i++)
        seed[1 + i] = ir_param_of(b->g.ir, (ir_result_is_row(b->g.ir, i) ? LEAF_DROW : LEAF_DSTAT) + i);
    const int skip = b->g.ir->no_y;
    return host_graph_make(&b->row, b->g.ir, b->g.ir->row.root + skip, seed + skip,
                           b->g.ir->row.n_roots - skip, -1, diag);
}

/* What LEAF_NORM of a logarithm that is given stands for, as kernels have it: pass.c. */
static int norm_of(struct ir *ir, const struct log_sum *log, lathe_dtype rows)
{
    const int sum = ir1(ir, OP_ROWSUM, log_sum_term(ir, log));
    return log_sum_norm(ir, log, sum, rows);
}

/* The adjoints with results that are given in place of their formulas, as kernels have them. */
static lathe_status use_given(struct rowwise_gradient *b, lathe_error *err)
{
    struct ir *ir = b->g.ir;
    struct row_given *given = &b->given;
    int from[MAX_STATE];
    int to[MAX_STATE];
    row_given_take(ir, b->g.call.sig, &b->g.call.problem, given);
    for (int k = 0; k < given->n_logs; k++) {
        from[k] = given->log[k].norm;
        to[k] = norm_of(ir, &given->log[k], (lathe_dtype)b->g.call.problem.dtype[DTYPE_X]);
    }
    for (int i = 0; i < b->row.adjoint.n && given->n > 0; i++) {
        const int node = row_given_use(ir, b->row.adjoint.item[i].adjoint, given);
        b->row.adjoint.item[i].adjoint = ir_substitute(ir, node, from, to, given->n_logs);
        b->row.eval[i] = b->row.adjoint.item[i].adjoint; /* adjoints are the first of them */
    }
    if (given->n > 0)
        row_given_drop_sums(ir, ir, given);
    return ir->failed ? host_out_of_memory(err) : LATHE_OK;
}

struct rows { /* one call */
    struct host_view x, dy, dx;
    struct host_view result[MAX_STATE];  /* that are given */
    double *given[MAX_STATE];            /* [n] of each */
    struct host_view dresult[MAX_STATE]; /* of the other results: rows, or one value per row */
    int64_t n;
    double *seeds[MAX_STATE]; /* [n] of each */
    double *column;           /* [n] 0, 1, 2, ... */
    double *in;               /* [n] */
    double *seed;             /* [n] */
    double *grad;             /* [n] */
    struct eval_env env;
};

static bool rows_open(struct rows *r, const struct rowwise_gradient *b)
{
    const struct host_call *call = &b->g.call;
    host_rows_make(&r->x, call, "x");
    host_rows_make(&r->dy, call, "dy");
    host_rows_make(&r->dx, call, "dx");
    for (int i = 0; i < b->g.ir->n_finals; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", b->g.ir->final[i].name);
        if (ir_result_is_row(b->g.ir, i))
            host_rows_make(&r->dresult[i], call, name);
        else
            host_view_make(&r->dresult[i], host_arg(call, name), 3);
        if (ir_result_is_row(b->g.ir, i))
            host_rows_make(&r->result[i], call, name + 1);
        else
            host_view_make(&r->result[i], host_arg(call, name + 1), 3);
    }
    r->n = host_dim(call, SYM_N);
    const size_t n = 1 + (size_t)host_row_most(call);
    for (int i = 0; i < b->g.ir->n_finals; i++) {
        r->seeds[i] = calloc(n, sizeof(double));
        r->given[i] = calloc(n, sizeof(double));
        if (!r->seeds[i] || !r->given[i])
            return false;
        r->env.param[(ir_result_is_row(b->g.ir, i) ? LEAF_DROW : LEAF_DSTAT) + i] = r->seeds[i];
        r->env.param[(ir_result_is_row(b->g.ir, i) ? LEAF_SAVED : LEAF_FINAL) + i] = r->given[i];
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
    r->env.param[LEAF_ROWX] = r->in;
    r->env.param[LEAF_DROWY] = r->seed;
    return true;
}

static void rows_close(struct rows *r)
{
    for (int i = 0; i < MAX_STATE; i++) {
        free(r->seeds[i]);
        free(r->given[i]);
    }
    free(r->column);
    free(r->in);
    free(r->seed);
    free(r->grad);
    eval_free(&r->env);
}

/* Elements of a row of result k. What is beyond the first ones has no gradient. */
static int64_t count_of(const struct ir *ir, int k, int64_t n)
{
    return ir->final[k].first > 0 ? ir->final[k].first : ir_result_is_row(ir, k) ? n : 1;
}

static lathe_status one_row(struct rows *r, struct rowwise_gradient *b, int64_t flat, lathe_error *err)
{
    int64_t inner = host_dim(&b->g.call, SYM_ROWS);
    int64_t middle = host_dim(&b->g.call, SYM_ROWS1);
    const int64_t i[3] = {flat / inner / middle, flat / inner % middle, flat % inner};
    host_view_load(&r->x, i[0], i[1], i[2], r->n, r->in);
    if (r->dy.data)
        host_view_load(&r->dy, i[0], i[1], i[2], r->n, r->seed);
    for (int k = 0; k < b->g.ir->n_finals; k++) {
        if (r->dresult[k].data)
            host_view_load(&r->dresult[k], i[0], i[1], i[2], count_of(b->g.ir, k, r->n), r->seeds[k]);
        if (r->result[k].data)
            host_view_load(&r->result[k], i[0], i[1], i[2], count_of(b->g.ir, k, r->n), r->given[k]);
    }
    r->env.at[AT_ROW] = (double)flat;
    lathe_status status = host_eval(&r->env, b->row.eval, b->row.n_eval, err);
    if (status == LATHE_OK)
        status = host_scatter(&b->g, &b->row, &r->env, err);
    if (status == LATHE_OK && r->dx.data) {
        host_graph_values(&b->row, &r->env, LEAF_ROWX, r->n, r->grad);
        host_view_store(&r->dx, i[0], i[1], i[2], r->n, r->grad);
    }
    return status;
}

static lathe_status every_row(struct rowwise_gradient *b, lathe_error *err)
{
    struct rows r = {.n = 0};
    host_env_init(&r.env, &b->g.call, SPAN_KV);
    int64_t n_rows =
        host_dim(&b->g.call, SYM_ROWS0) * host_dim(&b->g.call, SYM_ROWS1) * host_dim(&b->g.call, SYM_ROWS);
    lathe_status status = rows_open(&r, b) ? LATHE_OK : host_out_of_memory(err);
    for (int64_t flat = host_next_row(&b->g.call, 0, n_rows); flat < n_rows && status == LATHE_OK;
         flat = host_next_row(&b->g.call, flat + 1, n_rows))
        status = one_row(&r, b, flat, err);
    rows_close(&r);
    return status;
}

lathe_status host_rowwise_backward(const struct host_request *r, lathe_error *err)
{
    struct rowwise_gradient b = {.row = {.n_eval = 0}};
    struct diag diag = {0};
    lathe_status status = host_gradient_open(&b.g, r, err);
    if (status == LATHE_OK && !build_rowwise(&b, &diag))
        status = host_refused(&diag, err);
    if (status == LATHE_OK)
        status = host_gradient_bind(&b.g, r, err);
    if (status == LATHE_OK)
        status = use_given(&b, err);
    if (status == LATHE_OK)
        status = every_row(&b, err);
    if (status == LATHE_OK)
        host_gradient_store(&b.g);
    host_graph_free(&b.row);
    host_gradient_close(&b.g);
    return status;
}
