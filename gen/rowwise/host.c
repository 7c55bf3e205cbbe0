/*
 * host.c: forward of a row-wise operator on the host, a row at a time. In: a bound call. Out: y
 * and the row statistics, written into the arguments. A row is read before it is written, so y may be x.
 * Scratch is a row of doubles each for x, y and the column numbers, freed before the return.
 */
#include "gen/host/host.h"
#include "gen/rowwise/columns.h"
#include "gen/rowwise/pass.h"

#include <stdlib.h>

struct scratch {
    struct eval_env env; /* axis KV: the row */
    struct host_view x;
    struct host_view y;
    struct host_view other[MAX_STATE]; /* beside y: rows, or one value per row */
    double total[MAX_STATE];           /* of results that are added up over the rows */
    double *row;
    double *result;
    double *column; /* 0, 1, 2, ...: at.i */
};

int64_t host_row_most(const struct host_call *call)
{
    int64_t n = host_dim(call, SYM_N);
    for (int i = 0; i < call->ir->n_finals; i++)
        if (call->ir->final[i].first > n)
            n = call->ir->final[i].first;
    return n;
}

static lathe_status scratch_init(struct scratch *s, const struct host_call *call, lathe_error *err)
{
    const size_t n = 1 + (size_t)host_row_most(call);
    *s = (struct scratch){.row = malloc(n * sizeof(double)),
                          .result = malloc(n * sizeof(double)),
                          .column = malloc(n * sizeof(double))};
    host_env_init(&s->env, call, SPAN_KV);
    if (!s->row || !s->result || !s->column)
        return host_out_of_memory(err);
    for (size_t i = 0; i < n; i++)
        s->column[i] = (double)i;
    host_rows_make(&s->x, call, "x");
    host_rows_make(&s->y, call, "y");
    for (int i = 0; i < call->ir->n_finals; i++)
        if (ir_result_is_row(call->ir, i))
            host_rows_make(&s->other[i], call, call->ir->final[i].name);
        else
            host_view_make(&s->other[i], host_arg(call, call->ir->final[i].name), 3);
    s->env.n = (int)host_dim(call, SYM_N);
    s->env.at_axis[AT_COL] = s->column;
    s->env.param[LEAF_ROWX] = s->row;
    return LATHE_OK;
}

static void scratch_free(struct scratch *s)
{
    eval_free(&s->env);
    free(s->row);
    free(s->result);
    free(s->column);
}

static lathe_status forward_row(struct scratch *s, const struct host_call *call, int64_t flat,
                                lathe_error *err)
{
    const int64_t rows = host_dim(call, SYM_ROWS);
    const int64_t rows1 = host_dim(call, SYM_ROWS1);
    const int64_t i0 = flat / rows / rows1;
    const int64_t i1 = flat / rows % rows1;
    const int64_t i2 = flat % rows;
    const struct ir_fn *fn = &call->ir->row;
    const int n = s->env.n;
    s->env.at[AT_ROW] = (double)flat;
    host_view_load(&s->x, i0, i1, i2, n, s->row);
    const lathe_status status = host_eval(&s->env, fn->root, fn->n_roots, err);
    if (status != LATHE_OK)
        return status;
    if (s->y.data) {
        host_values(&s->env, fn->root[0], n, s->result);
        host_view_store(&s->y, i0, i1, i2, n, s->result);
    }
    for (int i = 0; i < call->ir->n_finals; i++) {
        if (!s->other[i].data)
            continue;
        if (call->ir->final[i].total) {
            s->total[i] += host_value(&s->env, fn->root[1 + i], 0);
            continue;
        }
        const int first = call->ir->final[i].first;
        const int count = ir_result_is_row(call->ir, i) ? n : 1;
        host_values(&s->env, fn->root[1 + i], count, s->result);
        for (int k = count; k < first; k++)
            s->result[k] = call->ir->final[i].fill;
        host_view_store(&s->other[i], i0, i1, i2, first > 0 ? first : count, s->result);
    }
    return LATHE_OK;
}

int64_t host_rowwise_rows(const struct host_call *call)
{
    return host_dim(call, SYM_ROWS0) * host_dim(call, SYM_ROWS1) * host_dim(call, SYM_ROWS);
}

int64_t rowwise_count_rows(const struct problem *problem)
{
    return problem->dim[SYM_ROWS0] * problem->dim[SYM_ROWS1] * problem->dim[SYM_ROWS];
}

double rowwise_row_work(const struct problem *problem)
{
    return (double)problem->dim[SYM_N] * 8.0;
}

lathe_status host_rowwise_forward(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                  lathe_error *err)
{
    struct scratch s;
    lathe_status status = scratch_init(&s, call, err);
    for (int64_t i = 0; i < n_rows && status == LATHE_OK; i++)
        status = forward_row(&s, call, rows ? rows[i] : i, err);
    for (int i = 0; i < call->ir->n_finals; i++)
        if (call->ir->final[i].total && s.other[i].data && status == LATHE_OK)
            host_view_store(&s.other[i], 0, 0, 0, 1, &s.total[i]);
    scratch_free(&s);
    return status;
}
