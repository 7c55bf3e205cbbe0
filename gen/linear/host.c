/*
 * host.c: forward of linear attention on the host device. In: a bound call. Out: o, and the state behind the
 * last token of each sequence, written into the arguments. A state may be written where it was read from.
 */
#include "gen/linear/columns.h"
#include "gen/linear/host.h"

#include <stdlib.h>
#include <string.h>

struct outputs {
    struct host_view o, state, norm;
    struct host_view states, norms; /* behind tokens */
    double *row;                    /* [d_v] of a token */
    double *v;                      /* [d_v] */
};

int64_t host_linear_units(const struct host_call *call)
{
    return host_dim(call, SYM_SEQS) * host_dim(call, SYM_H);
}

/* Of all tokens: decay, update and read of a state. */
double linear_work(const struct problem *problem)
{
    const int64_t *dim = problem->dim;
    return 3.0 * (double)(dim[SYM_B] * dim[SYM_H] * dim[SYM_T]) * (double)(dim[SYM_D] * dim[SYM_D_V]) + 1.0;
}

static lathe_status store_token(struct linear_head *head, const struct outputs *out, int64_t t,
                                lathe_error *err)
{
    if (!linear_ends(&head->x, t))
        return LATHE_OK;
    const lathe_status status = linear_output(head, t, out->row, out->v, err);
    if (status == LATHE_OK && out->o.data)
        host_view_store(&out->o, head->b, linear_query_head(head, head->h, t), linear_token_row(head, t),
                        head->x.d_v, head->vector.stage[head->call->ir->mod[MOD_OUTPUT].n_stages]);
    return status;
}

/* As a state that has the place `slot`. */
static void store_as(const struct linear_head *head, const struct host_view *state,
                     const struct host_view *norm, int64_t slot)
{
    for (int i = 0; i < head->x.d && state->data && slot >= 0; i++)
        host_view_store(state, slot, head->h, i, head->x.d_v, head->s + i * head->x.d_v);
    if (norm->data && slot >= 0)
        host_view_store(norm, 0, slot, head->h, head->x.d, head->z);
}

static void keep_state(const struct linear_head *head, const struct outputs *out, int64_t t)
{
    if (head->kept)
        store_as(head, &out->states, &out->norms,
                 head->kept[head->b * host_dim(head->call, SYM_T) + head->first + t]);
}

/* Every token reads the sum over all. */
static lathe_status forward_all(struct linear_head *head, const struct outputs *out, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int64_t t = 0; t < head->x.n; t++)
        linear_update(&head->x, t, head->s, head->z);
    for (int64_t t = 0; t < head->x.n && status == LATHE_OK; t++) {
        linear_read(&head->x, t, head->s, head->z, out->row);
        status = store_token(head, out, t, err);
    }
    return status;
}

static lathe_status forward_in_order(struct linear_head *head, const struct outputs *out, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < head->x.n && status == LATHE_OK; i++) {
        const int64_t t = linear_token(&head->x, i);
        linear_step(&head->x, t, head->s, head->z, out->row);
        status = store_token(head, out, t, err);
        keep_state(head, out, t);
    }
    return status;
}

/* A sequence without a state in the pool is skipped: 0 for its o. */
static void skip(const struct linear_head *head, const struct outputs *out)
{
    memset(out->row, 0, (size_t)head->x.d_v * sizeof *out->row);
    for (int64_t t = 0; t < head->x.n && out->o.data; t++)
        host_view_store(&out->o, head->b, linear_query_head(head, head->h, t), linear_token_row(head, t),
                        head->x.d_v, out->row);
}

static lathe_status forward_unit(struct linear_head *head, const struct outputs *out, int64_t unit,
                                 lathe_error *err)
{
    const int64_t n_h = host_dim(head->call, SYM_H);
    lathe_status status = linear_head_enter(head, unit / n_h, unit % n_h, err);
    if (status != LATHE_OK)
        return status;
    if (linear_is_skipped(head, head->sequence)) {
        skip(head, out);
        return LATHE_OK;
    }
    status = head->x.all_tokens ? forward_all(head, out, err) : forward_in_order(head, out, err);
    if (status == LATHE_OK)
        store_as(head, &out->state, &out->norm, head->slot_out[head->sequence]);
    return status;
}

lathe_status host_linear_forward(const struct host_call *call, const int64_t *units, int64_t n_units,
                                 lathe_error *err)
{
    struct linear_head head;
    struct outputs out = {.row = NULL};
    lathe_status status = linear_head_init(&head, call, err);
    if (status != LATHE_OK)
        return status;
    host_view_make(&out.o, host_arg(call, "o"), 4);
    host_view_make(&out.state, host_arg(call, "state_out"), 4);
    host_view_make(&out.norm, host_arg(call, "norm_out"), 4);
    host_view_make(&out.states, host_arg(call, "states"), 4);
    host_view_make(&out.norms, host_arg(call, "norms"), 4);
    out.row = calloc((size_t)head.x.d_v, sizeof *out.row);
    out.v = calloc((size_t)head.x.d_v, sizeof *out.v);
    if (!out.row || !out.v)
        status = host_out_of_memory(err);
    for (int64_t i = 0; i < n_units && status == LATHE_OK; i++)
        status = forward_unit(&head, &out, units ? units[i] : i, err);
    free(out.row);
    free(out.v);
    linear_head_free(&head);
    return status;
}
