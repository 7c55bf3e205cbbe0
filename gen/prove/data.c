/*
 * data.c: random arguments for the proofs. In: a spec's signatures and
 * sizes. Out: arguments in double precision, owned by struct data and freed by data_free.
 * Floats are normal, integers are small, not negative and non-decreasing along the last dim (ids of
 * documents, lengths of prefixes), bytes are 0 or 1, scalars have their default or lie in (0.1, 1).
 */
#include "gen/prove/index_ranges.h"
#include "gen/arguments/input_ranges.h"
#include "gen/arguments/sequences.h"
#include "gen/arguments/slots.h"
#include "gen/ir/tensor.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FREE_DIM = 16, SHORT_DIM = 4, SHORT_STEP = 5, LONG_DIM = 1 << 17, MOST_STEPS = 4096 };
/* ---- random numbers ---------------------------------------------------------------------------- */

static uint64_t random_bits(struct prover *p) /* xorshift64* */
{
    p->random ^= p->random >> 12;
    p->random ^= p->random << 25;
    p->random ^= p->random >> 27;
    return p->random * 0x2545f4914f6cdd1du;
}

double random_unit(struct prover *p)
{
    return ((double)(random_bits(p) >> 12) + 0.5) / 4503599627370496.0;
}

int64_t random_below(struct prover *p, int64_t n)
{
    return (int64_t)(random_unit(p) * (double)n);
}

double random_normal(struct prover *p)
{
    double radius = sqrt(-2.0 * log(random_unit(p)));
    return radius * cos(6.283185307179586 * random_unit(p));
}

/* ---- arguments --------------------------------------------------------------------------------- */

static bool in_signature(const struct signature *sig, const char *name)
{
    for (int i = 0; i < sig->n_args; i++)
        if (strcmp(sig->arg[i].name, name) == 0)
            return true;
    return false;
}

int data_select(const struct data *d, const struct signature *sig, lathe_arg *out)
{
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (in_signature(sig, d->arg[i].name))
            out[n++] = d->arg[i];
    return n;
}

int data_select_backward(const struct data *d, const struct prover *p, lathe_arg *out)
{
    const int n_all = data_select(d, &p->backward, out);
    int n = 0;
    for (int i = 0; i < n_all; i++) {
        const int result = lathe__arg_find(&p->forward, out[i].name, 0);
        if (result < 0 || !lathe__is_result(&p->forward.arg[result]))
            out[n++] = out[i];
    }
    return n;
}

/* Steps of 0 or 1 along a long dim; larger ones where there are few numbers, or they would all be 0 or 1. */
static void fill_integers(struct prover *p, const lathe_arg *t, int64_t count)
{
    int64_t last = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    int64_t value = 0;
    /* so that places far down a long table hold what indices reach */
    const double step = last > LONG_DIM ? (double)MOST_STEPS / (double)last : 0.25;
    for (int64_t i = 0; i < count; i++) {
        if (i % last == 0)
            value = last <= SHORT_DIM ? random_below(p, SHORT_STEP) : 0;
        else if (last <= SHORT_DIM)
            value += random_below(p, SHORT_STEP);
        else
            value += random_unit(p) < step;
        ((int32_t *)t->data)[i] = (int32_t)value;
    }
}

static void fill_scalar(struct prover *p, const struct sig_arg *a, const lathe_arg *t)
{
    double value = a->optional ? a->default_value : 0.1 + 0.9 * random_unit(p);
    if (t->dtype == LATHE_F64)
        ((double *)t->data)[0] = value;
    else
        dtype_store(t->dtype, t->data, 0, a->optional ? value : 1.0);
}

static double unit_of(void *prover)
{
    return random_unit(prover);
}

/* False: it declares no range; of a scalar with a default, that is its data. */
static bool fill_range(struct prover *p, const struct sig_arg *a, const lathe_arg *t, const int64_t *dim)
{
    for (int i = 0; i < p->ir->n_inputs; i++) {
        const struct input *in = &p->ir->input[i];
        if (strcmp(in->name, a->name) == 0 && !(a->role == ROLE_SCALAR && a->optional) &&
            input_fill(in, dim, t, unit_of, p))
            return true;
    }
    return false;
}

static void fill(struct prover *p, const struct sig_arg *a, const lathe_arg *t, const int64_t *dim)
{
    const lathe_arg *given = given_arg(p, a->name);
    int64_t count = tensor_count(t);
    double deviation = a->role == ROLE_INPUT ? 0.3 : 1.0;
    if (given) {
        given_copy(given, t);
    } else if (fill_range(p, a, t, dim) || sequences_fill(&p->forward, dim, t, NULL, unit_of, p) ||
               slots_fill(p->ir, dim, t, unit_of, p)) {
        return;
    } else if (a->role == ROLE_SCALAR) {
        fill_scalar(p, a, t);
    } else if (t->dtype == LATHE_I32) {
        fill_integers(p, t, count);
    } else {
        for (int64_t i = 0; i < count; i++) {
            if (t->dtype == LATHE_U8)
                ((uint8_t *)t->data)[i] = random_unit(p) < 0.5;
            else
                ((double *)t->data)[i] = deviation * random_normal(p);
        }
    }
}

/* Packed sequences and a pool of states come only where there are more of them than batches. */
static bool is_of_packed(const struct sig_arg *a, const int64_t *dim)
{
    const bool index = a->rare && a->dtype == LATHE_I32 && a->role == ROLE_IN;
    const int by = index ? a->dim[0].sym : SYM_ONE;
    return by == SYM_SEQS && (a->dim[0].plus == 0 || dim[SYM_SEQS] == dim[SYM_B]);
}

/* States behind tokens, and their places: one by one they are what a part of the tokens leaves, which is
 * proved. */
static bool is_kept(const struct signature *sig, const struct sig_arg *a)
{
    return a->ndim > 0 && (a->dim[0].sym == SYM_KEPT || (a->beside > 0 && a->dtype == LATHE_I32 &&
                                                         sig->arg[a->beside - 1].dim[0].sym == SYM_KEPT));
}

/* It comes in the place of other results, which are proved. */
static bool is_instead(const struct signature *sig, int arg)
{
    bool found = false;
    for (int i = 0; i < sig->n_args; i++)
        found |= sig->arg[i].unless == 1 + arg ||
                 (sig->arg[i].unless > 0 && sig->arg[arg].beside == sig->arg[i].unless);
    return found;
}

/* Where tokens and heads of this call stand among all. */
static bool is_place(const struct sig_arg *a)
{
    return a->role >= ROLE_Q_START && a->role <= ROLE_STEP;
}

static bool add(struct data *d, struct prover *p, const struct sig_arg *a, const int64_t *dim)
{
    if (is_of_packed(a, dim) || is_kept(&p->forward, a) || a->role == ROLE_MASK_KEPT ||
        (is_place(a) && !given_arg(p, a->name)) || (a->optional && given_absent(p, a->name)) ||
        data_find(d, a->name) || d->n == DATA_MAX)
        return true;
    bool integers = a->dtype == LATHE_I32 || a->dtype == LATHE_U8;
    lathe_arg *t = &d->arg[d->n];
    memcpy(d->name[d->n], a->name, sizeof d->name[0]);
    *t = (lathe_arg){.name = d->name[d->n], .shape = d->shape[d->n], .ndim = a->ndim};
    t->dtype = integers ? (lathe_dtype)a->dtype : LATHE_F64;
    for (int i = 0; i < a->ndim; i++) {
        struct sig_dim size = a->dim[i];
        int64_t value = size.literal > 0 ? size.literal : dim[size.sym];
        d->shape[d->n][i] = lathe__times(size) * value + size.plus;
    }
    t->data = calloc((size_t)tensor_count(t) + 1, sizeof(double));
    d->n++;
    if (t->data)
        fill(p, a, t, dim);
    return t->data != NULL;
}

bool data_make(struct data *out, struct prover *p, const int64_t *sizes)
{
    int64_t dim[SYM_COUNT];
    memcpy(dim, sizes, sizeof dim);
    prover_sizes(p, dim);
    for (int k = SYM_FREE; k < SYM_COUNT; k++) {
        const bool given = p->given && p->given->dim[k] >= 0;
        dim[k] = dim[k] == 0 && !given ? FREE_DIM : dim[k];
    }
    index_fit_sizes(p->ir, dim, p->given ? p->given->dim : NULL);
    const struct kind_proofs *kind = proofs_of(p->ir);
    const bool says = p->given && p->given->dim[SYM_SEQS] >= 0;
    if (kind->unpacked || (!says && kind->never_packed && kind->never_packed(p->ir)))
        dim[SYM_SEQS] = dim[SYM_SLOTS] = dim[SYM_B];
    out->n = 0;
    bool ok = true;
    for (int i = 0; i < p->forward.n_args && ok; i++)
        ok = is_instead(&p->forward, i) || add(out, p, &p->forward.arg[i], dim);
    for (int i = 0; i < p->backward.n_args && ok; i++)
        ok = add(out, p, &p->backward.arg[i], dim);
    given_say_tried(p, out);
    return ok;
}

const lathe_arg *data_find_seed(const struct data *d, const char *name)
{
    char seed[NAME_MAX_BYTES + 2];
    snprintf(seed, sizeof seed, "d%s", name);
    return data_find(d, seed);
}

static double room(double end, double part)
{
    return isfinite(end) ? part * fmax(fabs(end), 1) : 0;
}

static void move_inside(const lathe_arg *t, double least, double most)
{
    double *x = t->data;
    const int64_t n = least <= most ? tensor_count(t) : 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] < least ? least : x[i] > most ? most : x[i]; /* NaN stays */
}

void data_move_inside(struct data *d, const struct ir *ir, double part)
{
    for (int i = 0; i < ir->n_inputs; i++) {
        const struct input_range *range = &ir->input[i].range;
        const lathe_arg *t = range->real ? data_find(d, ir->input[i].name) : NULL;
        if (t && t->data && t->dtype == LATHE_F64)
            move_inside(t, range->least + room(range->least, part), range->most - room(range->most, part));
    }
}

void data_copy(const struct data *d, double *const *copy)
{
    for (int i = 0; i < d->n; i++)
        if (copy[i])
            memcpy(copy[i], d->arg[i].data, (size_t)tensor_count(&d->arg[i]) * sizeof(double));
}

void data_free(struct data *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->arg[i].data);
    d->n = 0;
}
