/*
 * gradients.c: derived gradients against finite differences. L = the sum of <result, seed> for random seeds;
 * the backward pass of the host gives dL by q, k, v (or x) and every input with grad; central differences of
 * the forward pass at two steps, extrapolated, give the same numbers independently. What detach() gives is
 * held at its first value, as the derived gradients do. Tensors and tape are freed here.
 */
#include "gen/prove/prove.h"
#include "gen/host/call.h"
#include "gen/ir/kind.h"
#include "gen/ir/tensor.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "runtime/base/base.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 40, MOST_PAIRS = 1 << 21, TOO_MANY_KINKS = 10 /* percent */ };
static const double BOUND = 1e-6;
static const double STEP = 1e-4;
static const double KINK = 1e-6; /* the two steps disagree by more: the function has a corner between them */
static const double DETACH_MATTERS = 1e-3;
static const double FLOOR = 1e-2; /* gradients smaller than this are compared absolutely, against it */

struct bench {
    struct prover *p;
    struct proof *out;
    struct data data;
    lathe_arg forward[DATA_MAX];
    lathe_arg backward[DATA_MAX];
    int n_forward;
    int n_backward;
    struct eval_tape tape; /* what detach() gave at the start */
    int n_tried;
    int n_kinks;
    int n_lost;                  /* the rounding of L is larger than the bound */
    double start;                /* L, where nothing is moved */
    double detached;             /* how far the gradient is from the one without detach(), at most */
    double with_detach, without; /* there */
    char detached_by[NAME_MAX_BYTES];
};

struct variable { /* a tensor to differentiate by */
    const lathe_arg *x;
    const lathe_arg *dx;
    int64_t count;
    double *start;     /* its values */
    double *direction; /* a unit vector */
    double scale;      /* largest entry of dx */
};

/* ---- the objective ----------------------------------------------------------------------------- */

static double pair_with_seed(const struct bench *b, const char *name)
{
    const lathe_arg *value = data_find(&b->data, name);
    const lathe_arg *seed = data_find_seed(&b->data, name);
    if (!value || !seed)
        return 0;
    double sum = 0;
    int64_t count = tensor_count(value);
    for (int64_t i = 0; i < count; i++)
        if (((const double *)seed->data)[i] != 0)
            sum += ((const double *)value->data)[i] * ((const double *)seed->data)[i];
    return sum;
}

/* By the outputs in memory. */
static double pair_outputs(const struct bench *b)
{
    const struct ir *ir = b->p->ir;
    double sum = 0;
    for (const char *const *result = proofs_of(ir)->results; *result; result++)
        sum += pair_with_seed(b, *result);
    for (int i = 0; i < ir->maps.n_tensors; i++)
        sum += ir->maps.tensor[i].use == USE_READ ? 0 : pair_with_seed(b, ir->maps.tensor[i].name);
    for (int i = 0; i < ir->n_finals; i++)
        sum += pair_with_seed(b, ir->final[i].name);
    return sum;
}

/* The forward pass as it runs: online, and detach() follows its operand. */
static lathe_status plain_objective(const struct bench *b, double *out, lathe_error *err)
{
    lathe_status status = host_forward(b->p->ir, &b->p->forward, b->forward, b->n_forward, NULL, 0, err);
    *out = pair_outputs(b);
    return status;
}

/* The function that the derived gradients belong to. */
static lathe_status objective(struct bench *b, double *out, lathe_error *err)
{
    struct host_call call;
    lathe_status status = host_bind(&call, b->p->ir, &b->p->forward, b->forward, b->n_forward, err);
    if (status != LATHE_OK)
        return status;
    call.tape = &b->tape;
    b->tape.at = 0;
    *out = 0;
    if (proofs_of(b->p->ir)->objective)
        return proofs_of(b->p->ir)->objective(b->p, &b->data, &call, out, err);
    const struct kind_row *kind = &kinds[b->p->ir->kind];
    status = kind->host_forward(&call, NULL, kind->host_units(&call), err);
    *out = pair_outputs(b);
    return status;
}

static void drop_infinite(const struct bench *b, const char *name)
{
    const lathe_arg *value = data_find(&b->data, name);
    const lathe_arg *seed = data_find_seed(&b->data, name);
    for (int64_t i = 0; value && seed && i < tensor_count(value); i++)
        if (isinf(((const double *)value->data)[i]))
            ((double *)seed->data)[i] = 0;
}

/* A row without live pairs has lse = -inf, and what is masked may be -inf in y: nothing to differentiate
   there. */
static void drop_infinite_outputs(const struct bench *b)
{
    const struct ir *ir = b->p->ir;
    for (const char *const *result = proofs_of(ir)->results; *result; result++)
        drop_infinite(b, *result);
    for (int i = 0; i < ir->maps.n_tensors; i++)
        if (ir->maps.tensor[i].use != USE_READ)
            drop_infinite(b, ir->maps.tensor[i].name);
    for (int k = 0; k < ir->n_finals; k++)
        drop_infinite(b, ir->final[k].name);
}

/* ---- differences ------------------------------------------------------------------------------- */

static lathe_status at_step(struct bench *b, const struct variable *v, double t, bool plain, double *out,
                            lathe_error *err)
{
    double *x = v->x->data;
    for (int64_t i = 0; i < v->count; i++)
        x[i] = v->start[i] + t * v->direction[i];
    lathe_status status = plain ? plain_objective(b, out, err) : objective(b, out, err);
    memcpy(x, v->start, (size_t)v->count * sizeof *x);
    return status;
}

/* *noise: what rounding of L may make of it; L is a sum of many terms, of which none should be much larger.
 */
static lathe_status central(struct bench *b, const struct variable *v, double step, bool plain, double *out,
                            double *noise, lathe_error *err)
{
    double up;
    double down;
    lathe_status status = at_step(b, v, step, plain, &up, err);
    if (status == LATHE_OK)
        status = at_step(b, v, -step, plain, &down, err);
    if (status != LATHE_OK)
        return status;
    *out = (up - down) / (2 * step);
    *noise = ROUNDINGS * DBL_EPSILON * fmax(fabs(up), fabs(down)) / (2 * step);
    return LATHE_OK;
}

/* What rounding on the way makes of a difference: L is taken where nothing but rounding can change it. Only
   asked for where a difference is odd, as large numbers that cancel later make it. */
static double noise_around(struct bench *b, const struct variable *v, double known, lathe_error *err)
{
    double least = b->start;
    double most = b->start;
    for (int i = 1; i <= 4; i++) {
        double value;
        if (at_step(b, v, i * 1e-12, false, &value, err) != LATHE_OK)
            return known;
        least = fmin(least, value);
        most = fmax(most, value);
    }
    return fmax(known, 4 * (most - least) / (2 * STEP));
}

/* ---- verdicts ---------------------------------------------------------------------------------- */

/* The formula that a gradient by this tensor passes first, from the outside in. */
static int culprit(const struct ir *ir, const char *name)
{
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, name) == 0)
            return ir->input[i].line;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        if (strcmp(ir->maps.tensor[i].name, name) == 0)
            return ir->maps.tensor[i].line;
    return proofs_of(ir)->line_of(ir, name);
}

static void say_place(const struct variable *v, int64_t entry, char *out, size_t size)
{
    int64_t index[MAX_DIMS] = {0};
    tensor_index(v->x, entry, index);
    size_t used = (size_t)snprintf(out, size, "d%s", v->x->name);
    for (int d = 0; d < v->x->ndim && used + 24 < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%c%lld%s", d ? ',' : '[', (long long)index[d],
                                 d == v->x->ndim - 1 ? "]" : "");
}

static double derived_along(const struct variable *v)
{
    double sum = 0;
    for (int64_t i = 0; i < v->count; i++)
        sum += v->direction[i] != 0 ? v->direction[i] * ((const double *)v->dx->data)[i] : 0;
    return sum;
}

/* Along v->direction; entry: which one it is, -1: a mixture of all. */
static lathe_status compare(struct bench *b, const struct variable *v, int64_t entry, lathe_error *err)
{
    double wide;
    double narrow;
    double noise;
    lathe_status status = central(b, v, STEP, false, &wide, &noise, err);
    if (status == LATHE_OK)
        status = central(b, v, STEP / 2, false, &narrow, &noise, err);
    if (status != LATHE_OK)
        return status;
    double derived = derived_along(v);
    double measured = (4 * narrow - wide) / 3;
    b->n_tried++;
    if (isfinite(b->start) &&
        !isfinite(measured)) { /* what detach() gave does not hold an exponent any more */
        b->n_lost++;
        return LATHE_OK;
    }
    const bool bends = fabs(wide - narrow) > KINK * fmax(v->scale, fabs(narrow));
    const double distance = proof_distance(derived, measured, v->scale);
    if (bends || distance > BOUND)
        noise = noise_around(b, v, noise, err);
    if (bends) {
        *(fabs(wide - narrow) > noise ? &b->n_kinks : &b->n_lost) += 1;
        return LATHE_OK;
    }
    if (distance > BOUND && fabs(derived - measured) <= noise) {
        b->n_lost++;
        return LATHE_OK;
    }
    char place[128];
    if (entry >= 0)
        say_place(v, entry, place, sizeof place);
    else
        snprintf(place, sizeof place, "d%s along a random direction", v->x->name);
    if (proof_record(b->out, distance))
        proof_blame(b->out, culprit(b->p->ir, v->x->name), "%s is %.8g derived, %.8g by finite differences",
                    place, proof_shown(derived), proof_shown(measured));
    return LATHE_OK;
}

/* A detach() that stops a gradient is allowed, but worth a word: a stabiliser should cancel. */
static lathe_status try_without_detach(struct bench *b, const struct variable *v, lathe_error *err)
{
    double plain = 0;
    double noise;
    if (b->tape.n == 0)
        return LATHE_OK;
    const double derived = derived_along(v);
    lathe_status status = central(b, v, STEP, true, &plain, &noise, err);
    const double distance = proof_distance(derived, plain, v->scale);
    if (status != LATHE_OK || !(distance > fmax(b->detached, DETACH_MATTERS)) || !isfinite(distance))
        return status;
    b->detached = distance;
    b->with_detach = derived;
    b->without = plain;
    snprintf(b->detached_by, sizeof b->detached_by, "%s", v->x->name);
    return status;
}

/* ---- one tensor -------------------------------------------------------------------------------- */

static void random_direction(struct prover *p, struct variable *v)
{
    double square = 0;
    for (int64_t i = 0; i < v->count; i++) {
        v->direction[i] = random_normal(p);
        square += v->direction[i] * v->direction[i];
    }
    for (int64_t i = 0; i < v->count; i++)
        v->direction[i] /= sqrt(square);
}

/* Each entry takes four passes: fewer where the sizes are large, which only a caller asks for. */
static int64_t entries_of(const struct bench *b)
{
    const lathe_arg *q = data_find(&b->data, "q");
    const lathe_arg *k = data_find(&b->data, "k");
    const int64_t pairs = q && k ? q->shape[0] * q->shape[1] * q->shape[2] * k->shape[2] : 1;
    return pairs * ENTRIES <= MOST_PAIRS ? ENTRIES : MOST_PAIRS / pairs + 1;
}

static lathe_status sample(struct bench *b, struct variable *v, lathe_error *err)
{
    if (!proof_goes_on(b->p, b->out, "differences", b->n_tried))
        return LATHE_OK;
    random_direction(b->p, v);
    lathe_status status = compare(b, v, -1, err);
    if (status == LATHE_OK)
        status = try_without_detach(b, v, err);
    const int64_t most = entries_of(b);
    int64_t n = v->count < most ? v->count : most;
    for (int64_t i = 0; i < n && status == LATHE_OK && proof_goes_on(b->p, b->out, "differences", b->n_tried);
         i++) {
        int64_t entry = n == v->count ? i : random_below(b->p, v->count);
        memset(v->direction, 0, (size_t)v->count * sizeof *v->direction);
        v->direction[entry] = 1;
        status = compare(b, v, entry, err);
    }
    return status;
}

static lathe_status check_variable(struct bench *b, const char *name, lathe_error *err)
{
    char gradient_name[NAME_MAX_BYTES + 2];
    snprintf(gradient_name, sizeof gradient_name, "d%s", name);
    struct variable v = {.x = data_find(&b->data, name), .dx = data_find(&b->data, gradient_name)};
    if (!v.x || !v.dx || v.x->dtype != LATHE_F64)
        return LATHE_OK;
    v.count = tensor_count(v.x);
    v.start = calloc((size_t)v.count + 1, sizeof(double));
    v.direction = calloc((size_t)v.count + 1, sizeof(double));
    lathe_status status = LATHE_OK;
    if (!v.start || !v.direction)
        status = host_out_of_memory(err);
    v.scale = FLOOR;
    for (int64_t i = 0; i < v.count; i++)
        v.scale = fmax(v.scale, fabs(((const double *)v.dx->data)[i]));
    if (status == LATHE_OK && v.count > 0) {
        memcpy(v.start, v.x->data, (size_t)v.count * sizeof(double));
        status = sample(b, &v, err);
    }
    free(v.start);
    free(v.direction);
    return status;
}

/* ---- one set of sizes -------------------------------------------------------------------------- */

static lathe_status check_all(struct bench *b, lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    lathe_status status = plain_objective(b, &b->start, err);
    drop_infinite_outputs(b);
    b->tape.replay = false;
    b->tape.n = 0;
    if (status == LATHE_OK)
        status = objective(b, &b->start, err);
    b->tape.replay = true;
    if (status == LATHE_OK)
        status = host_backward(ir, &b->p->backward, b->backward, b->n_backward, err);
    for (const char *const *t = proofs_of(ir)->tensors; *t && status == LATHE_OK; t++)
        if (lathe__arg_find(&b->p->forward, *t, 0) >= 0)
            status = check_variable(b, *t, err);
    for (int i = 0; i < ir->maps.n_tensors && status == LATHE_OK; i++)
        if (ir->maps.tensor[i].grad)
            status = check_variable(b, ir->maps.tensor[i].name, err);
    for (int i = 0; i < ir->n_inputs && status == LATHE_OK; i++)
        if (ir->input[i].grad)
            status = check_variable(b, ir->input[i].name, err);
    return status;
}

static void check_sizes(struct bench *b, const int64_t *dim, bool may_refuse)
{
    lathe_error err = {.status = LATHE_OK};
    lathe_status status = LATHE_OK;
    if (!proof_goes_on(b->p, b->out, "differences", b->n_tried))
        return;
    if (data_make(&b->data, b->p, dim)) {
        data_move_inside(&b->data, b->p->ir, 2 * STEP);
        b->n_forward = data_select(&b->data, &b->p->forward, b->forward);
        b->n_backward = data_select_backward(&b->data, b->p, b->backward);
        status = check_all(b, &err);
    } else {
        status = host_out_of_memory(&err);
    }
    if (status != LATHE_OK && b->out->passed && !(may_refuse && status == LATHE_SPEC))
        proof_refused(b->out, &err);
    data_free(&b->data);
}

static void conclude(const struct bench *b)
{
    struct proof *out = b->out;
    const char *operand = kinds[b->p->ir->kind].operand;
    if (!out->passed || out->cut_short)
        return;
    if (b->n_kinks * 100 > b->n_tried * TOO_MANY_KINKS)
        proof_blame(out, culprit(b->p->ir, operand ? operand : ""),
                    "%d of %d differences meet a corner of the function, or it bends too much within a "
                    "step of 1e-4: it has no derivative to compare",
                    b->n_kinks, b->n_tried);
    else if (b->n_lost * 100 > b->n_tried * TOO_MANY_LOST)
        proof_blame(out, culprit(b->p->ir, operand ? operand : ""),
                    "%d of %d differences are of numbers so large that they tell nothing", b->n_lost,
                    b->n_tried);
    else if (b->detached > 0)
        lathe__print(
            out->note, sizeof out->note,
            "detach() changes the gradient by %s: along a random direction it is %.4g, without detach() "
            "%.4g, %.2g of it apart",
            b->detached_by, b->with_detach, b->without, b->detached);
    else if (b->n_kinks > 0)
        snprintf(out->note, sizeof out->note,
                 "%d of %d differences left out: a corner of the function is near", b->n_kinks, b->n_tried);
    else if (b->n_lost > 0)
        snprintf(out->note, sizeof out->note, "%d of %d differences left out: of numbers too large",
                 b->n_lost, b->n_tried);
}

/* A few points along the dims of maps; dims of inputs alone are longer, as what is found in tables by data.
 */
static void add_points(const struct ir *ir, int64_t *dim)
{
    static const int64_t few[MAX_FREE_SYMS] = {2, 3, 4, 5, 2, 3, 2, 4};
    for (int m = 0; m < ir->maps.n_maps; m++)
        for (int k = 0; k < ir->maps.map[m].n_over; k++)
            dim[ir->maps.map[m].over[k]] = few[ir->maps.map[m].over[k] - SYM_FREE];
}

/* Is there anything that a gradient is taken by? */
static bool has_variables(const struct prover *p)
{
    const struct ir *ir = p->ir;
    bool found = false;
    for (const char *const *t = proofs_of(ir)->tensors; *t; t++)
        found |= lathe__arg_find(&p->forward, *t, 0) >= 0;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        found |= ir->maps.tensor[i].grad;
    for (int i = 0; i < ir->n_inputs; i++)
        found |= ir->input[i].grad;
    return found;
}

void prove_gradients(struct prover *p, struct proof *out)
{
    const struct kind_proofs *proofs = proofs_of(p->ir);
    proof_begin(out, "gradients", BOUND);
    if ((kinds[p->ir->kind].points && !p->ir->maps.gradient) || !has_variables(p)) {
        out->applies = false; /* lists have none */
        return;
    }
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        lathe_error err;
        host_out_of_memory(&err);
        proof_refused(out, &err);
        return;
    }
    b->p = p;
    b->out = out;
    for (int i = 0; i < proofs->n_sizes; i++) {
        int64_t dim[SYM_COUNT];
        memcpy(dim, proofs->sizes[i].dim, sizeof dim);
        add_points(p->ir, dim);
        check_sizes(b, dim, proofs->sizes[i].may_refuse);
    }
    conclude(b);
    free(b->tape.value);
    free(b);
}
