/*
 * data_sizes.c: of what size the data of f32 proofs are: from 0 to the largest of f16, near 0, far from it,
 * and numbers that the constants of the spec ask for. In: data of data.c, of deviation 1. Out: the same, made
 * so.
 */
#include "gen/arguments/input_ranges.h"
#include "gen/ir/tensor.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/prove.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TAIL_IN = 16 }; /* one of so many numbers lies far out, as some of many normal ones do */

const char *data_size_text(enum data_size size)
{
    static const char *const text[DATA_SIZES] = {
        "of deviation 1", "of deviation 100", "of deviation 1 about 3000", "up to 65504", "of deviation 0.1",
        "of zeros",       "of any size"};
    return text[size];
}

static const struct sig_arg *sig_of(const struct prover *p, const char *name)
{
    for (int i = 0; i < p->forward.n_args; i++)
        if (strcmp(p->forward.arg[i].name, name) == 0)
            return &p->forward.arg[i];
    return NULL;
}

static void resize(struct prover *p, enum data_size size, const lathe_arg *t)
{
    static const double factor[DATA_SIZES] = {1, 100, 1, 16000, 0.1, 1, 1};
    const int64_t n = t->dtype == LATHE_F64 ? tensor_count(t) : 0;
    double *x = t->data;
    for (int64_t i = 0; i < n; i++) {
        if (size == DATA_NEAR && random_below(p, TAIL_IN) == 0)
            x[i] = copysign(3 + random_unit(p), x[i]);
        x[i] = x[i] * factor[size] + (size == DATA_SHIFTED ? 3000 : 0);
        x[i] = fmax(fmin(x[i], 65504), -65504);
    }
}

int data_tensors(const struct prover *p, const struct data *d)
{
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        const struct sig_arg *a = sig_of(p, d->arg[i].name);
        n += a && a->role == ROLE_IN && d->arg[i].dtype == LATHE_F64;
    }
    return n;
}

/* A scalar that is learned, within any range. */
static bool is_learned(const struct prover *p, const struct sig_arg *a)
{
    bool learned = false;
    for (int i = 0; i < p->ir->n_inputs; i++) {
        const struct input *in = &p->ir->input[i];
        learned |= strcmp(in->name, a->name) == 0 && in->grad && !input_has_range(in);
    }
    return learned && a->role == ROLE_SCALAR && !given_arg(p, a->name);
}

static void resize_scalar(struct prover *p, enum data_size size, const lathe_arg *t)
{
    if (size == DATA_NEAR || size == DATA_ZERO || t->dtype != LATHE_F64)
        return;
    *(double *)t->data = random_normal(p);
    resize(p, size, t);
}

const char *data_take_size(struct prover *p, struct data *d, enum data_size size, int zero)
{
    const char *name = "";
    int number = 0;
    for (int i = 0; i < d->n; i++) {
        const struct sig_arg *a = sig_of(p, d->arg[i].name);
        const lathe_arg *t = &d->arg[i];
        if (!a)
            continue;
        if (a->role == ROLE_IN && t->dtype == LATHE_F64 && number++ == zero && size == DATA_ZERO) {
            memset(t->data, 0, (size_t)tensor_count(t) * sizeof(double));
            name = t->name;
        } else if (a->role == ROLE_IN) {
            resize(p, size, t);
        } else if (is_learned(p, a)) {
            resize_scalar(p, size, t);
        }
        const bool in = a->role == ROLE_IN && !proofs_of(p->ir)->sums;
        if (size == DATA_REACH && (in || a->role == ROLE_INPUT || a->role == ROLE_SCALAR))
            reach_data(p, a, t);
    }
    given_say_tried(p, d);
    return name;
}
