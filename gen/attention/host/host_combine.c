/*
 * host_combine.c: parts of rows of attention put together on the host device. In: a bound call of the combine
 * pass. Out: rows, of their parts by the spec's `combine`, which are ended as the forward pass ends them.
 */
#include "gen/attention/columns.h"
#include "gen/host/vectors.h"
#include "gen/ir/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts become a row ----------------------------------------------------------------------------- */

struct combiner {
    struct host_head head;
    struct eval_env parts; /* axis SPLIT: combine */
    const lathe_arg *part_o;
    const lathe_arg *part_rows;
    struct host_view o;
    struct host_view final[MAX_STATE];
    struct host_view merged_o, merged_rows; /* a part, in the place of both */
    int64_t n_parts;
    int64_t n;                /* parts of the present row with live pairs, */
    int64_t *number;          /* their numbers */
    double *state[MAX_STATE]; /* and states, n_parts numbers each */
};

static lathe_status combiner_open(struct combiner *c, const struct host_call *call, lathe_error *err)
{
    c->n_parts = host_dim(call, SYM_PARTS);
    c->part_o = host_arg(call, "part_o");
    c->part_rows = host_arg(call, "part_rows");
    host_env_init(&c->parts, call, SPAN_SPLIT);
    const lathe_status status = host_head_init(&c->head, call, err);
    host_view_make(&c->o, host_arg(call, "o"), 4);
    host_view_make(&c->merged_o, host_arg(call, "merged_o"), 4);
    host_view_make(&c->merged_rows, host_arg(call, "merged_rows"), 4);
    for (int i = 0; i < call->ir->n_finals; i++)
        host_view_make(&c->final[i], host_arg(call, call->ir->final[i].name), 3);
    c->number = malloc((size_t)c->n_parts * sizeof *c->number);
    bool ok = c->number != NULL;
    for (int i = 0; i < call->ir->n_states; i++) {
        c->state[i] = malloc((size_t)c->n_parts * sizeof(double));
        ok = ok && c->state[i];
    }
    return status == LATHE_OK && !ok ? host_out_of_memory(err) : status;
}

static void combiner_close(struct combiner *c)
{
    for (int i = 0; i < MAX_STATE; i++)
        free(c->state[i]);
    free(c->number);
    eval_free(&c->parts);
    host_head_free(&c->head);
}

static void enter(struct combiner *c, int64_t b, int64_t h, int64_t row)
{
    struct host_head *head = &c->head;
    double *at = head->pair.at;
    head->b = b;
    head->h = h;
    head->row = row;
    head->pair.n = 0;
    at[AT_B] = (double)b;
    host_at_head(at, head->call, h);
    at[AT_ROW] = (double)row;
    at[AT_Q] = (double)(row + head->call->q_start);
    memcpy(c->parts.at, at, sizeof c->parts.at);
}

static double part_value(const lathe_arg *t, int64_t part, const struct host_head *head, int64_t i)
{
    const int64_t at = part * tensor_stride(t, 0) + head->b * tensor_stride(t, 1) +
                       head->h * tensor_stride(t, 2) + head->row * tensor_stride(t, 3) +
                       i * tensor_stride(t, 4);
    return dtype_load(t->dtype, t->data, at);
}

/* Parts without a live pair have no share in a row, whatever else they say. */
static void take_parts(struct combiner *c)
{
    const int n_states = c->head.call->ir->n_states;
    c->n = 0;
    for (int64_t part = 0; part < c->n_parts; part++) {
        if (part_value(c->part_rows, part, &c->head, n_states) == 0.0)
            continue;
        for (int i = 0; i < n_states; i++)
            c->state[i][c->n] = part_value(c->part_rows, part, &c->head, i);
        c->number[c->n++] = part;
    }
}

/* Of parts that there are: o ahead of the epilogue, and the row's states. */
static lathe_status merge(struct combiner *c, double *state, lathe_error *err)
{
    const struct ir *ir = c->head.call->ir;
    double *o = c->head.vector.stage[0];
    c->parts.n = (int)c->n;
    for (int i = 0; i < ir->n_states; i++)
        c->parts.param[LEAF_SPLIT_STATE + i] = c->state[i];
    const lathe_status status = host_eval(&c->parts, ir->combine.root, ir->combine.n_roots, err);
    if (status != LATHE_OK)
        return status;
    for (int64_t k = 0; k < c->n; k++) {
        const double factor = host_value(&c->parts, ir->combine.root[0], k);
        for (int j = 0; j < c->head.d_v; j++)
            o[j] += factor * part_value(c->part_o, c->number[k], &c->head, j);
    }
    for (int i = 0; i < ir->n_states; i++)
        state[i] = host_value(&c->parts, ir->combine.root[1 + i], 0);
    return LATHE_OK;
}

/* A part of what its parts have, ahead of all that ends a row. */
static lathe_status merge_row(struct combiner *c, lathe_error *err)
{
    const struct host_head *head = &c->head;
    const struct ir *ir = head->call->ir;
    double rows[MAX_STATE + 1];
    lathe_status status = LATHE_OK;
    for (int i = 0; i < ir->n_states; i++)
        rows[i] = ir->state[i].init;
    rows[ir->n_states] = c->n > 0;
    if (c->n > 0)
        status = merge(c, rows, err);
    if (status != LATHE_OK)
        return status;
    host_view_store(&c->merged_o, head->b, head->h, head->row, head->d_v, head->vector.stage[0]);
    host_view_store(&c->merged_rows, head->b, head->h, head->row, ir->n_states + 1, rows);
    return LATHE_OK;
}

static lathe_status combine_row(struct combiner *c, lathe_error *err)
{
    struct host_head *head = &c->head;
    double state[MAX_STATE];
    double finals[MAX_STATE];
    double factor = 1.0;
    double *o = head->vector.stage[0];
    lathe_status status = LATHE_OK;
    memset(o, 0, (size_t)head->d_v * sizeof *o);
    take_parts(c);
    if (c->merged_o.data)
        return merge_row(c, err);
    if (c->n == 0) {
        status = host_row_empty(head, finals, err);
    } else {
        status = merge(c, state, err);
        if (status == LATHE_OK)
            status = host_row_end(head, state, &factor, finals, err);
        if (status == LATHE_OK)
            status = host_row_output(head, factor, &o, err);
    }
    if (status != LATHE_OK)
        return status;
    if (c->o.data)
        host_view_store(&c->o, head->b, head->h, head->row, head->d_v, o);
    for (int i = 0; i < head->call->ir->n_finals; i++)
        if (c->final[i].data)
            host_view_store(&c->final[i], head->b, head->h, head->row, 1, &finals[i]);
    return LATHE_OK;
}

lathe_status host_attention_combine(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                    lathe_error *err)
{
    const int64_t n_h = host_dim(call, SYM_H);
    const int64_t n_q = host_dim(call, SYM_Q);
    struct combiner *c = calloc(1, sizeof *c);
    if (!c)
        return host_out_of_memory(err);
    lathe_status status = combiner_open(c, call, err);
    for (int64_t i = 0; i < n_rows && status == LATHE_OK; i++) {
        const int64_t flat = rows ? rows[i] : i;
        enter(c, flat / n_q / n_h, flat / n_q % n_h, flat % n_q);
        status = combine_row(c, err);
    }
    combiner_close(c);
    free(c);
    return status;
}
