/*
 * prove_data.c: random arguments for the proofs, and how a verdict is kept. In: a spec's signatures and
 * sizes. Out: arguments in double precision, owned by struct data and freed by data_free.
 * Floats are normal, integers are small, not negative and non-decreasing along the last dim (ids of
 * documents, lengths of prefixes), bytes are 0 or 1, scalars have their default or lie in (0.1, 1).
 */
#include "prove.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FREE_DIM = 16, SHORT_DIM = 4, SHORT_STEP = 5 };
static const double WEIGHT_COUNTS = 1e-15; /* of the largest of a row; rounding of others is no matter */

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

const lathe_arg *data_find(const struct data *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->arg[i].name, name) == 0)
            return &d->arg[i];
    return NULL;
}

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

/* Steps of 0 or 1 along a long dim; larger ones where there are few numbers, or they would all be 0 or 1. */
static void fill_integers(struct prover *p, const lathe_arg *t, int64_t count)
{
    int64_t last = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    int64_t value = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i % last == 0)
            value = last <= SHORT_DIM ? random_below(p, SHORT_STEP) : 0;
        else if (last <= SHORT_DIM)
            value += random_below(p, SHORT_STEP);
        else
            value += random_unit(p) < 0.25;
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

static void fill(struct prover *p, const struct sig_arg *a, const lathe_arg *t)
{
    int64_t count = tensor_count(t);
    double deviation = a->role == ROLE_INPUT ? 0.3 : 1.0;
    if (a->role == ROLE_SCALAR) {
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

static bool add(struct data *d, struct prover *p, const struct sig_arg *a, const int64_t *dim)
{
    if (a->role == ROLE_Q_START || data_find(d, a->name) || d->n == DATA_MAX)
        return true;
    bool integers = a->dtype == LATHE_I32 || a->dtype == LATHE_U8;
    lathe_arg *t = &d->arg[d->n];
    memcpy(d->name[d->n], a->name, sizeof d->name[0]);
    *t = (lathe_arg){.name = d->name[d->n], .shape = d->shape[d->n], .ndim = a->ndim};
    t->dtype = integers ? (lathe_dtype)a->dtype : LATHE_F64;
    for (int i = 0; i < a->ndim; i++) {
        struct sig_dim size = a->dim[i];
        int64_t value = size.literal > 0 ? size.literal : dim[size.sym];
        value = size.sym >= SYM_FREE && value == 0 ? FREE_DIM : value;
        d->shape[d->n][i] = size.times == 2 ? 2 * value : value;
    }
    t->data = calloc((size_t)tensor_count(t) + 1, sizeof(double));
    d->n++;
    if (t->data)
        fill(p, a, t);
    return t->data != NULL;
}

bool data_make(struct data *out, struct prover *p, const int64_t *dim)
{
    out->n = 0;
    bool ok = true;
    for (int i = 0; i < p->forward.n_args && ok; i++)
        ok = add(out, p, &p->forward.arg[i], dim);
    for (int i = 0; i < p->backward.n_args && ok; i++)
        ok = add(out, p, &p->backward.arg[i], dim);
    return ok;
}

void data_free(struct data *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->arg[i].data);
    d->n = 0;
}

/* ---- verdicts ---------------------------------------------------------------------------------- */

double proof_distance(double a, double b, double scale)
{
    if (a == b)
        return 0;
    if (!isfinite(a) || !isfinite(b))
        return (double)INFINITY;
    return fabs(a - b) / fmax(fmax(fabs(a), fabs(b)), scale);
}

void proof_begin(struct proof *out, const char *what, double bound)
{
    *out = (struct proof){.what = what, .applies = true, .passed = true, .bound = bound};
}

bool proof_record(struct proof *out, double error)
{
    if (!(error <= out->error))
        out->error = error;
    return out->passed && !(error <= out->bound);
}

bool proof_compare(struct proof *out, double error, double rounding)
{
    out->n_tried++;
    if (error <= out->bound || (!(error <= rounding) && rounding < 1))
        return proof_record(out, error);
    out->n_lost++;
    return false;
}

double proof_rounding(double largest_score)
{
    return ROUNDINGS * DBL_EPSILON * largest_score;
}

double proof_score_size(const double *score, const double *weight, int64_t n)
{
    double most = 0;
    double size = 0;
    for (int64_t j = 0; j < n; j++)
        most = fmax(most, fabs(weight[j]));
    for (int64_t j = 0; j < n; j++)
        if (fabs(weight[j]) > WEIGHT_COUNTS * most && isfinite(score[j]))
            size = fmax(size, fabs(score[j]));
    return size;
}

void proof_say_lost(struct proof *out, int line)
{
    if (!out->passed || out->n_lost == 0)
        return;
    if (out->n_lost * 100 > out->n_tried * TOO_MANY_LOST)
        proof_blame(out, line,
                    "%d of %d comparisons are of scores so large that they tell nothing: in double precision "
                    "their rounding "
                    "alone is more than the bound",
                    out->n_lost, out->n_tried);
    else
        snprintf(out->note, sizeof out->note, "%d of %d comparisons left out: of scores too large",
                 out->n_lost, out->n_tried);
}

void proof_blame(struct proof *out, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(out->note, sizeof out->note, fmt, args);
    va_end(args);
    out->passed = false;
    out->line = line;
}

void proof_refused(struct proof *out, const lathe_error *err)
{
    out->error = (double)INFINITY;
    proof_blame(out, err->line, "%.250s", err->text);
}

int proof_line(const struct ir *ir, int node)
{
    int16_t spec_file = (int16_t)(ir->n_files - 1);
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    int line = 0;
    if (!used)
        return 0;
    ir_mark(ir, &node, 1, used);
    for (int i = node; i >= 0 && line == 0; i--)
        if (used[i] && ir->node[i].line > 0 && ir->node[i].file == spec_file)
            line = ir->node[i].line;
    free(used);
    return line;
}
