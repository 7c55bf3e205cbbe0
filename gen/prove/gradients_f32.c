/*
 * gradients_f32.c: the derived gradients of a spec in f32 against double precision, on data of every size:
 * near 0 and far out, where an exponential leaves f32 and what it stands beside becomes NaN. In: a prover.
 * Out: a share of the verdict "f32 = double": a gradient that double precision has is a number in f32, too.
 * Where a result is none, nothing is judged. Of attention these are the vector mods; its rows are
 * prove_backward.c's.
 */
#include "gen/host/call.h"
#include "gen/ir/kind.h"
#include "gen/ir/tensor.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REACH_ROUNDS = 6, POINTS = 24 };
static const double ROOM = 1e-6;

struct bench {
    struct prover *p;
    struct proof *out;
    struct data data;
    lathe_arg forward[DATA_MAX], backward[DATA_MAX];
    int n_forward, n_backward;
    struct eval_tape tape;
    enum data_size size;
    const char *name;         /* of what is 0 */
    bool finite;              /* every result is a number of f32 */
    double *exact[DATA_MAX];  /* of gradients; NULL: no gradient */
    bool nan_usual[DATA_MAX]; /* it is NaN on usual data: zeros say nothing more */
};

/* ---- data ------------------------------------------------------------------------------------------ */

static bool is_gradient(const struct bench *b, int i)
{
    const struct signature *sig = &b->p->backward;
    const lathe_arg *t = &b->data.arg[i];
    for (int k = 0; k < sig->n_args; k++)
        if (strcmp(sig->arg[k].name, t->name) == 0)
            return (sig->arg[k].role == ROLE_OUT || sig->arg[k].role == ROLE_OUT_OPTIONAL) &&
                   t->dtype == LATHE_F64;
    return false;
}

static bool make_data(struct bench *b, const int64_t *dim, int zero)
{
    if (!data_make(&b->data, b->p, dim))
        return false;
    bool ok = true;
    data_move_inside(&b->data, b->p->ir, ROOM);
    b->name = data_take_size(b->p, &b->data, b->size, zero);
    for (int i = 0; i < b->data.n; i++) {
        if (!is_gradient(b, i))
            continue;
        const size_t n = (size_t)tensor_count(&b->data.arg[i]) + 1;
        b->exact[i] = calloc(n, sizeof(double));
        ok = ok && b->exact[i];
    }
    b->n_forward = data_select(&b->data, &b->p->forward, b->forward);
    b->n_backward = data_select(&b->data, &b->p->backward, b->backward);
    return ok;
}

static void drop_data(struct bench *b)
{
    for (int i = 0; i < b->data.n; i++) {
        free(b->exact[i]);
        b->exact[i] = NULL;
    }
    data_free(&b->data);
}

static void look_at_results(struct bench *b)
{
    b->finite = true;
    for (int i = 0; i < b->data.n; i++) {
        const lathe_arg *t = &b->data.arg[i];
        const bool result = data_find_seed(&b->data, t->name) && t->dtype == LATHE_F64 && !is_gradient(b, i);
        const int64_t n = result ? tensor_count(t) : 0;
        for (int64_t k = 0; k < n; k++)
            b->finite = b->finite && fabs(((const double *)t->data)[k]) <= F32_LARGEST;
    }
}

/* ---- runs ------------------------------------------------------------------------------------------ */

static lathe_status run(struct bench *b, enum eval_precision precision, lathe_error *err)
{
    f32_enter(b->p, precision, &b->tape);
    const lathe_status status =
        host_backward_mode(b->p->ir, &b->p->backward, b->backward, b->n_backward, &b->p->mode, err);
    f32_leave(b->p);
    return status;
}

/* ---- verdicts -------------------------------------------------------------------------------------- */

static void judge_nan(struct bench *b, int i)
{
    char why[80];
    const char *name = b->data.arg[i].name;
    if (b->size == DATA_ZERO && !b->nan_usual[i])
        proof_warn(b->out, f32_line(b->p, -1), "%s is NaN where %s is 0%s", name, b->name,
                   f32_cause(b->p, why, sizeof why));
    else if (b->size != DATA_ZERO && proof_record(b->out, (double)INFINITY))
        proof_blame(b->out, f32_line(b->p, -1), "%s is NaN, in double precision, too (data %s)%s", name,
                    data_size_text(b->size), f32_cause(b->p, why, sizeof why));
    b->nan_usual[i] = b->nan_usual[i] || b->size != DATA_ZERO;
}

static void judge_gradient(struct bench *b, int i)
{
    const lathe_arg *t = &b->data.arg[i];
    const double *single = t->data;
    const int64_t n = tensor_count(t);
    char why[80];
    for (int64_t k = 0; k < n; k++) {
        const double exact = b->exact[i][k];
        if (isnan(exact))
            judge_nan(b, i);
        else if (fabs(exact) <= F32_LARGEST && !isfinite(single[k]) && proof_record(b->out, (double)INFINITY))
            proof_blame(b->out, f32_line(b->p, -1), "%s is %.6g in f32, %.6g in double (data %s)%s", t->name,
                        proof_shown(single[k]), exact, data_size_text(b->size),
                        f32_cause(b->p, why, sizeof why));
    }
}

static lathe_status judge_all(struct bench *b, lathe_error *err)
{
    lathe_status status = host_forward(b->p->ir, &b->p->forward, b->forward, b->n_forward, NULL, 0, err);
    look_at_results(b);
    if (status != LATHE_OK || !b->finite)
        return status;
    status = run(b, EVAL_ROUNDED, err);
    data_copy(&b->data, b->exact);
    if (status == LATHE_OK)
        status = run(b, EVAL_F32, err);
    for (int i = 0; i < b->data.n && status == LATHE_OK; i++)
        if (b->exact[i])
            judge_gradient(b, i);
    return status;
}

/* ---- sizes ----------------------------------------------------------------------------------------- */

/* Of gradients.c, with a few points along the dims of maps. */
static void take_sizes(const struct prover *p, int64_t *dim)
{
    memcpy(dim, proofs_of(p->ir)->sizes[0].dim, SYM_COUNT * sizeof *dim);
    for (int m = 0; m < p->ir->maps.n_maps; m++)
        for (int k = 0; k < p->ir->maps.map[m].n_over; k++)
            dim[p->ir->maps.map[m].over[k]] = k + 1 < p->ir->maps.map[m].n_over ? 2 : POINTS;
}

/* What a size refuses is judged elsewhere. */
static lathe_status one_size(struct bench *b, enum data_size size, lathe_error *err)
{
    int64_t dim[SYM_COUNT];
    lathe_status status = LATHE_OK;
    int n = 1;
    take_sizes(b->p, dim);
    b->size = size;
    for (int zero = 0; zero < n && status == LATHE_OK; zero++) {
        status = make_data(b, dim, zero) ? LATHE_OK : host_out_of_memory(err);
        n = size == DATA_ZERO ? data_tensors(b->p, &b->data) : 1;
        if (status == LATHE_OK)
            status = judge_all(b, err);
        drop_data(b);
    }
    return status == LATHE_MEMORY ? status : LATHE_OK;
}

/* Has it gradients, and something between them and the seeds? */
static bool applies(const struct ir *ir)
{
    bool mods = false;
    for (int m = 0; m < MOD_COUNT; m++)
        mods |= ir->mod[m].n_stages > 0;
    if (kinds[ir->kind].points)
        return ir->maps.gradient != NULL;
    return !proofs_of(ir)->rows_apart || mods;
}

void prove_gradients_f32(struct prover *p, struct proof *out)
{
    lathe_error err = {.status = LATHE_OK};
    lathe_status status = LATHE_OK;
    if (!applies(p->ir))
        return;
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        host_out_of_memory(&err);
        proof_refused(out, &err);
        return;
    }
    for (int i = 0; i < DATA_REACH + REACH_ROUNDS && status == LATHE_OK; i++) {
        if (!proof_goes_on(p, out, "runs of the backward pass", i))
            break;
        b->p = p;
        b->out = out;
        status = one_size(b, i < DATA_REACH ? (enum data_size)i : DATA_REACH, &err);
    }
    if (status != LATHE_OK)
        proof_refused(out, &err);
    free(b->tape.value);
    free(b);
}
