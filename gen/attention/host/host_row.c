/*
 * host_row.c: what becomes of a row of attention on the host device whose scores are known. In: a head whose
 * row was entered (host.c). Out: weights, row states, factor and finals; or its part, ahead of the epilogue.
 */
#include "gen/attention/host/host_parts.h"
#include "gen/host/rows.h"

#include <math.h>
#include <string.h>

/* ---- the online function ------------------------------------------------------------------------- */

lathe_status host_row_states(struct host_head *head, double *weight, double *state, lathe_error *err)
{
    const struct ir *ir = head->call->ir;
    struct eval_env *env = &head->pair;
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = &ir->state[i].init;
    const lathe_status status = host_eval(env, ir->online.root, ir->online.n_roots, err);
    if (status != LATHE_OK)
        return status;
    host_values(env, ir->online.root[0], head->n_live, weight);
    for (int i = 0; i < ir->n_states; i++)
        state[i] = host_value(env, ir->online.root[2 + i], 0);
    return LATHE_OK;
}

lathe_status host_row_end(struct host_head *head, const double *state, double *factor, double *finals,
                          lathe_error *err)
{
    const struct ir *ir = head->call->ir;
    struct eval_env *env = &head->pair;
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = &state[i];
    const lathe_status status = host_eval(env, ir->epilogue.root, ir->epilogue.n_roots, err);
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = NULL; /* not beyond the life of `state` */
    if (status != LATHE_OK)
        return status;
    *factor = host_value(env, ir->epilogue.root[0], 0);
    for (int i = 0; i < ir->n_finals; i++)
        finals[i] = host_value(env, ir->epilogue.root[1 + i], 0);
    return LATHE_OK;
}

lathe_status host_row_online(struct host_head *head, double *weight, double *factor, double *finals,
                             lathe_error *err)
{
    double state[MAX_STATE];
    const lathe_status status = host_row_states(head, weight, state, err);
    return status == LATHE_OK ? host_row_end(head, state, factor, finals, err) : status;
}

lathe_status host_row_empty(struct host_head *head, double *finals, lathe_error *err)
{
    const struct ir *ir = head->call->ir;
    struct eval_env *env = &head->pair;
    if (ir->n_finals == 0)
        return LATHE_OK;
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = &ir->state[i].init;
    const lathe_status status = host_eval(env, ir->epilogue.root + 1, ir->n_finals, err);
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = NULL;
    for (int i = 0; i < ir->n_finals && status == LATHE_OK; i++) {
        finals[i] = host_value(env, ir->epilogue.root[1 + i], 0);
        finals[i] = isnan(finals[i]) ? -HUGE_VAL : finals[i];
    }
    return status;
}

/* ---- values -------------------------------------------------------------------------------------- */

/* o += sum of weight * value over the live keys, four keys a sweep. */
void host_row_values(double *o, const struct host_head *head, const double *weight)
{
    const int n = head->d_v;
    int64_t j = 0;
    for (; j + 4 <= head->n_live; j += 4) {
        const double *v[4];
        for (int k = 0; k < 4; k++)
            v[k] = head->v + head->live[j + k] * n;
        for (int c = 0; c < n; c++)
            o[c] += weight[j] * v[0][c] + weight[j + 1] * v[1][c] + weight[j + 2] * v[2][c] +
                    weight[j + 3] * v[3][c];
    }
    for (; j < head->n_live; j++)
        row_add(o, weight[j], head->v + head->live[j] * n, n);
}

/* ---- a part --------------------------------------------------------------------------------------- */

lathe_status host_part_row(struct host_head *head, const struct host_part_views *out, double *weight,
                           lathe_error *err)
{
    const struct ir *ir = head->call->ir;
    double state[MAX_STATE + 1];
    double *o = head->vector.stage[0];
    lathe_status status = LATHE_OK;
    memset(o, 0, (size_t)head->d_v * sizeof *o);
    for (int i = 0; i < ir->n_states; i++)
        state[i] = ir->state[i].init;
    if (head->n_live > 0)
        status = host_row_states(head, weight, state, err);
    if (status != LATHE_OK)
        return status;
    if (head->n_live > 0)
        host_row_values(o, head, weight);
    state[ir->n_states] = head->n_live > 0;
    host_view_store(&out->o, head->b, head->h, head->row, head->d_v, o);
    host_view_store(&out->rows, head->b, head->h, head->row, ir->n_states + 1, state);
    return LATHE_OK;
}
