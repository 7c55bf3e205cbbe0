/*
 * prove_weights.c: the function that derived gradients of attention belong to: L = <o, do> + the sum of
 * <final, dfinal>, where o is made of the weights of `forward`, which prove_rows.c compares with the online
 * form. In: a prover, data. Out: L.
 */
#include "gen/attention/prove/prove.h"
#include "gen/host/vectors.h"

#include <string.h>

struct weighing {
    const struct prover *p;
    const struct data *data;
};

/* One row by the weights of `forward`: its share of L is added to *out. */
static lathe_status weigh_row(const struct weighing *w, struct host_head *head, double *out, lathe_error *err)
{
    const struct ir *ir = w->p->ir;
    const struct row_graph *g = prover_row(w->p);
    int root[1 + MAX_STATE] = {g->forward};
    memcpy(root + 1, g->final, sizeof g->final);
    lathe_status status = host_eval(&head->pair, root, 1 + ir->n_finals, err);
    if (status != LATHE_OK)
        return status;
    int64_t row = (head->b * host_dim(head->call, SYM_H) + head->h) * head->len_q + head->row;
    for (int i = 0; i < ir->n_finals; i++) {
        const lathe_arg *seed = data_find_seed(w->data, ir->final[i].name);
        double weight = seed ? ((const double *)seed->data)[row] : 0;
        *out += weight != 0 ? weight * host_value(&head->pair, g->final[i], 0) : 0;
    }
    double *o = head->vector.stage[0];
    memset(o, 0, (size_t)head->d_v * sizeof *o);
    for (int64_t j = 0; j < head->n_live; j++)
        for (int e = 0; e < head->d_v; e++)
            o[e] += host_value(&head->pair, g->forward, j) * head->v[head->live[j] * head->d_v + e];
    host_mod_enter(head, MOD_OUTPUT, head->b, head->h, head->row);
    status = host_mod(&head->vector, MOD_OUTPUT, head->d_v, err);
    o = head->vector.stage[ir->mod[MOD_OUTPUT].n_stages];
    const double *seed = (const double *)data_find_seed(w->data, "o")->data + row * head->d_v;
    for (int e = 0; e < head->d_v; e++)
        *out += seed[e] * o[e];
    return status;
}

/* A row without live pairs: its finals alone. */
static lathe_status weigh_empty_row(const struct weighing *w, struct host_head *head, double *out,
                                    lathe_error *err)
{
    double final[MAX_STATE] = {0};
    const int64_t row = (head->b * host_dim(head->call, SYM_H) + head->h) * head->len_q + head->row;
    const lathe_status status = host_row_empty(head, final, err);
    for (int i = 0; i < w->p->ir->n_finals && status == LATHE_OK; i++) {
        const lathe_arg *seed = data_find_seed(w->data, w->p->ir->final[i].name);
        const double weight = seed ? ((const double *)seed->data)[row] : 0;
        *out += weight != 0 ? weight * final[i] : 0; /* of what is infinite it is 0 */
    }
    return status;
}

lathe_status prove_weigh_rows(const struct prover *p, const struct data *d, const struct host_call *call,
                              double *out, lathe_error *err)
{
    const struct weighing w = {p, d};
    struct host_head head;
    int64_t n_h = host_dim(call, SYM_H);
    int64_t n_heads = host_dim(call, SYM_B) * n_h;
    lathe_status status = host_head_init(&head, call, err);
    if (status != LATHE_OK)
        return status;
    for (int64_t i = 0; i < n_heads && status == LATHE_OK; i++) {
        status = host_head_enter(&head, i / n_h, i % n_h, err);
        for (int64_t row = 0; row < head.len_q && status == LATHE_OK; row++) {
            status = host_row_enter(&head, row, err);
            if (status == LATHE_OK)
                status =
                    head.n_live > 0 ? weigh_row(&w, &head, out, err) : weigh_empty_row(&w, &head, out, err);
        }
    }
    host_head_free(&head);
    return status;
}
