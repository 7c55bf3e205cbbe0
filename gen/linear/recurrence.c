/*
 * recurrence.c: linear attention token by token, in double precision: the definition that every kernel and
 * every chunked form is compared with. In: tokens after their mods. Out: states and o. Nothing is allocated.
 */
#include "gen/host/rows.h"
#include "gen/linear/host.h"

#include <math.h>
#include <string.h>

/* D o S; z has the decay of the keys. */
static void decay(const struct linear_tokens *x, int64_t t, double *s, double *z)
{
    if (linear_decays(x) == 0)
        return;
    const double *g = x->decay + t * linear_decays(x);
    const bool columns = x->form == DECAY_VALUE;
    double kept = exp(g[0]);
    for (int j = 0; j < x->d_v && columns; j++)
        x->value[j] = exp(g[j]);
    for (int i = 0; i < x->d; i++) {
        kept = x->form == DECAY_KEY ? exp(g[i]) : kept;
        z[i] *= columns ? 1 : kept;
        for (int j = 0; j < x->d_v; j++)
            s[i * x->d_v + j] *= columns ? x->value[j] : kept;
    }
}

double linear_taken(const struct linear_tokens *x, int64_t t, int j)
{
    return x->v[t * x->d_v + j];
}

/* What the token reads before it writes, into x->seen. */
static void look(const struct linear_tokens *x, int64_t t, const double *s)
{
    const double *a = linear_reader(x, t);
    memset(x->seen, 0, (size_t)x->d_v * sizeof *x->seen);
    for (int i = 0; i < x->d && linear_looks(x); i++)
        row_add(x->seen, a[i], s + i * x->d_v, x->d_v);
}

void linear_prepare(const struct linear_tokens *x, int64_t t, double *s, double *z)
{
    if (x->read_first)
        look(x, t, s);
    decay(x, t, s, z);
    if (!x->read_first)
        look(x, t, s);
}

void linear_value(const struct linear_tokens *x, int64_t t)
{
    for (int j = 0; j < x->d_v; j++) {
        const double taken = linear_taken(x, t, j);
        x->value[j] = x->delta ? x->delta[t] * (taken - x->seen[j]) : taken;
    }
}

void linear_add(const struct linear_tokens *x, int64_t t, double *s, double *z)
{
    const double *k = linear_writer(x, t);
    const double *b = linear_adds_seen(x) ? x->writer + t * x->d : NULL;
    for (int i = 0; i < x->d; i++) {
        z[i] += k[i];
        row_add(s + i * x->d_v, k[i], x->value, x->d_v);
        if (b)
            row_add(s + i * x->d_v, b[i], x->seen, x->d_v);
    }
}

void linear_update(const struct linear_tokens *x, int64_t t, double *s, double *z)
{
    linear_prepare(x, t, s, z);
    linear_value(x, t);
    linear_add(x, t, s, z);
}

double linear_read(const struct linear_tokens *x, int64_t t, const double *s, const double *z, double *o)
{
    static const double LEAST = 1e-10; /* keeps a sum of no keys apart from 0 */
    const double *q = x->q + t * x->d;
    const double *k = x->k + t * x->d;
    double keys = 0; /* <q, z>, and <q, u k> of the token itself */
    double own = 0;
    memset(o, 0, (size_t)x->d_v * sizeof *o);
    for (int i = 0; i < x->d; i++) {
        keys += q[i] * z[i];
        own += x->bonus ? q[i] * x->bonus[i] * k[i] : 0;
        row_add(o, x->scale * q[i], s + i * x->d_v, x->d_v);
    }
    const double divisor = x->normalise ? x->scale * (keys + own) + LEAST : 1;
    for (int j = 0; j < x->d_v; j++)
        o[j] = (o[j] + x->scale * own * x->v[t * x->d_v + j]) / divisor;
    return divisor;
}

void linear_step(const struct linear_tokens *x, int64_t t, double *s, double *z, double *o)
{
    if (x->bonus)
        linear_read(x, t, s, z, o);
    linear_update(x, t, s, z);
    if (!x->bonus)
        linear_read(x, t, s, z, o);
}
