/*
 * given.c: what the caller of the proofs says about their data: sizes, tensors, what is left out; and
 * what a failure says of them. In: struct prove_given, the caller's. Out: sizes that are complete, tensors in
 * the dtypes of the proofs, a line of text.
 */
#include "gen/prove/prove.h"
#include "gen/arguments/problem.h"
#include "gen/ir/tensor.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double MOST_PAIRS = 0x1p20; /* each is looked at some hundred times */

void prove_given_init(struct prove_given *given)
{
    memset(given, 0, sizeof *given);
    for (int i = 0; i < SYM_COUNT; i++)
        given->dim[i] = -1;
}

bool prove_given_fits(const struct prove_given *given, double *pairs, double *most)
{
    static const int syms[] = {SYM_B, SYM_H, SYM_Q, SYM_KV};
    *pairs = 1;
    *most = MOST_PAIRS;
    for (size_t i = 0; i < sizeof syms / sizeof *syms; i++)
        *pairs *= given->dim[syms[i]] > 1 ? (double)given->dim[syms[i]] : 1;
    return *pairs <= *most && given->dim[SYM_KV] <= PROVE_KEYS_MAX;
}

/* ---- sizes --------------------------------------------------------------------------------------- */

/* Heads are a multiple of those that are shared: one that is given alone decides about the other. */
static void fit_heads(const int64_t *given, int shared, int64_t *dim)
{
    if (shared == SYM_ONE)
        return;
    if (given[SYM_H] >= 0 && given[shared] < 0)
        dim[shared] = dim[shared] > 0 && dim[SYM_H] % dim[shared] == 0 ? dim[shared] : dim[SYM_H];
    else if (given[SYM_H] < 0 && given[shared] >= 0)
        dim[SYM_H] = 2 * dim[shared];
}

/* Packed sequences lie in one batch, else each batch is one; and each has a state. */
static void fit_sequences(const int64_t *given, bool packed, int64_t *dim)
{
    if (given[SYM_SEQS] >= 0 && given[SYM_B] < 0)
        dim[SYM_B] = 1;
    else if (given[SYM_B] >= 0 && given[SYM_SEQS] < 0 && (given[SYM_B] > 1 || !packed))
        dim[SYM_SEQS] = dim[SYM_B];
    dim[SYM_SLOTS] = dim[SYM_SEQS];
}

void prover_sizes(const struct prover *p, int64_t *dim)
{
    dim[SYM_D] = ir_dim_for_pairs(p->ir, (int)dim[SYM_D]);
    dim[SYM_D_V] = ir_dim_for_pairs(p->ir, (int)dim[SYM_D_V]);
    const bool packed = dim[SYM_SEQS] != dim[SYM_B];
    if (!p->given)
        return;
    for (int i = 0; i < SYM_COUNT; i++)
        if (p->given->dim[i] >= 0)
            dim[i] = p->given->dim[i];
    fit_heads(p->given->dim, proofs_of(p->ir)->shared_heads, dim);
    fit_sequences(p->given->dim, packed, dim);
}

/* ---- tensors ------------------------------------------------------------------------------------- */

bool given_absent(const struct prover *p, const char *name)
{
    for (int i = 0; p->given && i < p->given->n_absent; i++)
        if (strcmp(p->given->absent[i], name) == 0)
            return true;
    return false;
}

const lathe_arg *given_arg(const struct prover *p, const char *name)
{
    for (int i = 0; p->given && i < p->given->n; i++)
        if (strcmp(p->given->arg[i].name, name) == 0)
            return &p->given->arg[i];
    return NULL;
}

void given_copy(const lathe_arg *from, const lathe_arg *to)
{
    const int64_t count = tensor_count(to) < tensor_count(from) ? tensor_count(to) : tensor_count(from);
    for (int64_t i = 0; i < count; i++)
        dtype_store(to->dtype, to->data, i, dtype_load(from->dtype, from->data, i));
}

/* ---- what was tried ------------------------------------------------------------------------------ */

static void say(struct prover *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct prover *p, const char *fmt, ...)
{
    const size_t used = strlen(p->tried);
    va_list args;
    va_start(args, fmt);
    lathe__format(p->tried + used, sizeof p->tried - used, fmt, args);
    va_end(args);
}

/* Sizes that are what they are without a word. */
static bool is_implied(const int64_t *dim, int sym)
{
    const int64_t seqs = dim[SYM_SEQS] >= 0 ? dim[SYM_SEQS] : dim[SYM_B];
    return ((sym == SYM_ROWS0 || sym == SYM_ROWS1) && dim[sym] == 1) ||
           (sym == SYM_SEQS && seqs == dim[SYM_B]) || (sym == SYM_SLOTS && dim[sym] == seqs);
}

static void say_sizes(struct prover *p, const struct data *d)
{
    int64_t dim[SYM_COUNT];
    for (int i = 0; i < SYM_COUNT; i++)
        dim[i] = -1;
    for (int i = 0; i < p->forward.n_args; i++) {
        const struct sig_arg *a = &p->forward.arg[i];
        const lathe_arg *t = data_find(d, a->name);
        for (int k = 0; t && k < a->ndim; k++)
            if (a->dim[k].literal == 0)
                dim[a->dim[k].sym] = (t->shape[k] - a->dim[k].plus) / lathe__times(a->dim[k]);
    }
    for (int sym = SYM_B; sym < SYM_COUNT; sym++)
        if (dim[sym] >= 0 && !is_implied(dim, sym))
            say(p, "%s%s=%lld", p->tried[0] ? "," : "", sym_name(&p->forward, sym), (long long)dim[sym]);
}

/* Of integers: where they come from, and how large they are. */
static void say_input(struct prover *p, const struct input *in, const lathe_arg *t)
{
    const int64_t count = tensor_count(t);
    double low = (double)INFINITY;
    double high = -(double)INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const double value = dtype_load(t->dtype, t->data, i);
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    if (in->is_scalar)
        say(p, "; %s = %g", in->name, low);
    else if (count > 0 && (t->dtype == LATHE_I32 || t->dtype == LATHE_U8))
        say(p, "; %s from %.0f to %.0f (%s)", in->name, low, high,
            given_arg(p, in->name) ? "given"
            : in->range.declared   ? "its range"
                                   : "made up");
}

void given_say_tried(struct prover *p, const struct data *d)
{
    p->tried[0] = 0;
    say_sizes(p, d);
    for (int i = 0; i < p->ir->n_inputs; i++) {
        const lathe_arg *t = data_find(d, p->ir->input[i].name);
        if (t && t->data) /* else memory ran out there */
            say_input(p, &p->ir->input[i], t);
    }
    say(p, "; seed %u", p->seed);
}
