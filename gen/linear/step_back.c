/*
 * step_back.c: one step of linear attention backwards, in double precision: reverse mode of recurrence.c,
 * written out. In: the state before the step, the gradient of the state behind it and of o. Out: gradients of
 * the token's q, k, v and slots as the recurrence takes them, and of the state before it. Nothing is
 * allocated.
 */
#include "gen/host/rows.h"
#include "gen/linear/host.h"

#include <math.h>
#include <string.h>

/* Of q and of the state that was read. `own`: <q, u k>, which the bonus reads beside it. */
static void read_state_back(const struct linear_tokens *x, int64_t t, const double *s, const double *z,
                            const double *dnum, double ddivisor, struct linear_back *b)
{
    const double *q = x->q + t * x->d;
    for (int i = 0; i < x->d; i++) {
        const double sum = ddivisor * z[i] + row_dot(s + i * x->d_v, dnum, x->d_v);
        row_add(b->ds + i * x->d_v, x->scale * q[i], dnum, x->d_v);
        b->dz[i] += x->scale * q[i] * ddivisor;
        b->dq[i] += x->scale * sum;
        b->scale += q[i] * sum;
    }
}

static void read_own_back(const struct linear_tokens *x, int64_t t, const double *dnum, double ddivisor,
                          struct linear_back *b)
{
    const double *q = x->q + t * x->d;
    const double *k = x->k + t * x->d;
    const double *v = x->v + t * x->d_v;
    double own = 0;
    double down = ddivisor; /* of own, over scale */
    for (int i = 0; i < x->d; i++)
        own += q[i] * x->bonus[i] * k[i];
    for (int j = 0; j < x->d_v; j++) {
        down += dnum[j] * v[j];
        b->dv[j] += x->scale * own * dnum[j];
    }
    b->scale += own * down;
    for (int i = 0; i < x->d; i++) {
        b->dq[i] += x->scale * down * x->bonus[i] * k[i];
        b->dk[i] += x->scale * down * x->bonus[i] * q[i];
        b->bonus[i] += x->scale * down * q[i] * k[i];
    }
}

/* Of a read of s and z, to ds and dz, q, and with a bonus k and v. */
static void read_back(const struct linear_tokens *x, int64_t t, const double *s, const double *z,
                      const double *dout, struct linear_back *b)
{
    const double divisor = linear_read(x, t, s, z, b->dnum); /* o for now */
    double ddivisor = 0;
    for (int j = 0; j < x->d_v; j++) {
        ddivisor -= x->normalise ? dout[j] * b->dnum[j] / divisor : 0;
        b->dnum[j] = dout[j] / divisor;
    }
    read_state_back(x, t, s, z, b->dnum, ddivisor, b);
    if (x->bonus)
        read_own_back(x, t, b->dnum, ddivisor, b);
}

/* Of the addition of what[d_v] under the vector `under`: to dwhat, and to that of the vector. */
static void added_back(const struct linear_tokens *x, const double *under, const double *what, double *dwhat,
                       double *dunder, const struct linear_back *b)
{
    memset(dwhat, 0, (size_t)x->d_v * sizeof *dwhat);
    for (int i = 0; i < x->d; i++) {
        dunder[i] += row_dot(b->ds + i * x->d_v, what, x->d_v);
        row_add(dwhat, under[i], b->ds + i * x->d_v, x->d_v);
    }
}

/* Of the addition of x->value under the key or b, and of x->seen under b: to dvalue, dseen, k and b. */
static void add_back(const struct linear_tokens *x, int64_t t, struct linear_back *b)
{
    for (int i = 0; i < x->d; i++)
        b->dk[i] += b->dz[i];
    added_back(x, linear_writer(x, t), x->value, b->dvalue, x->delta && x->writer ? b->writer : b->dk, b);
    if (linear_adds_seen(x))
        added_back(x, x->writer + t * x->d, x->seen, b->dseen, b->writer, b);
}

/* The delta rule: value = beta (v - seen). */
static void delta_back(const struct linear_tokens *x, int64_t t, struct linear_back *b)
{
    for (int j = 0; j < x->d_v; j++) {
        b->delta[0] += (linear_taken(x, t, j) - x->seen[j]) * b->dvalue[j];
        b->dvalue[j] *= x->delta[t];
        b->dseen[j] = -b->dvalue[j];
    }
}

/* Of seen = a S: to a, and to the state that it was read of. */
static void look_back(const struct linear_tokens *x, int64_t t, const double *s, struct linear_back *b)
{
    const double *a = linear_reader(x, t);
    double *da = x->reader ? b->reader : b->dk;
    for (int i = 0; i < x->d && linear_looks(x); i++) {
        da[i] += row_dot(s + i * x->d_v, b->dseen, x->d_v);
        row_add(b->ds + i * x->d_v, a[i], b->dseen, x->d_v);
    }
}

/* x->value is scratch by now. */
static void decay_of_columns_back(const struct linear_tokens *x, const double *g, struct linear_back *b)
{
    for (int j = 0; j < x->d_v; j++)
        x->value[j] = exp(g[j]);
    for (int i = 0; i < x->d; i++)
        for (int j = 0; j < x->d_v; j++) {
            b->decay[j] += b->ds[i * x->d_v + j] * b->decayed[i * x->d_v + j];
            b->ds[i * x->d_v + j] *= x->value[j];
        }
}

static void decay_of_rows_back(const struct linear_tokens *x, const double *g, struct linear_back *b)
{
    double kept = exp(g[0]);
    for (int i = 0; i < x->d; i++) {
        const int at = x->form == DECAY_KEY ? i : 0;
        double *ds = b->ds + i * x->d_v;
        kept = x->form == DECAY_KEY ? exp(g[i]) : kept;
        b->decay[at] += row_dot(ds, b->decayed + i * x->d_v, x->d_v) + b->dz[i] * b->z_decayed[i];
        b->dz[i] *= kept;
        for (int j = 0; j < x->d_v; j++)
            ds[j] *= kept;
    }
}

static void decay_back(const struct linear_tokens *x, int64_t t, struct linear_back *b)
{
    if (linear_decays(x) == 0)
        return;
    const double *g = x->decay + t * linear_decays(x);
    if (x->form == DECAY_VALUE)
        decay_of_columns_back(x, g, b);
    else
        decay_of_rows_back(x, g, b);
}

/* Of linear_taken: from dvalue to v. */
static void taken_back(const struct linear_tokens *x, struct linear_back *b)
{
    for (int j = 0; j < x->d_v; j++)
        b->dv[j] += b->dvalue[j];
}

/* ds and dz become those of the state s before the update, whose decayed one is in b. */
static void update_back(const struct linear_tokens *x, int64_t t, const double *s, struct linear_back *b)
{
    add_back(x, t, b);
    if (x->delta)
        delta_back(x, t, b);
    taken_back(x, b);
    if (!x->read_first)
        look_back(x, t, b->decayed, b);
    decay_back(x, t, b);
    if (x->read_first)
        look_back(x, t, s, b);
}

static void begin_token(const struct linear_tokens *x, struct linear_back *b)
{
    memset(b->dq, 0, (size_t)x->d * sizeof *b->dq);
    memset(b->dk, 0, (size_t)x->d * sizeof *b->dk);
    memset(b->dv, 0, (size_t)x->d_v * sizeof *b->dv);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        if (linear_slot_by_token(k))
            memset(b->slot[k], 0, (size_t)x->width[k] * sizeof *b->slot[k]);
}

static void copy_state(const struct linear_tokens *x, const double *s, const double *z, double *to_s,
                       double *to_z)
{
    memcpy(to_s, s, (size_t)x->d * (size_t)x->d_v * sizeof *to_s);
    memcpy(to_z, z, (size_t)x->d * sizeof *to_z);
}

void linear_step_back(const struct linear_tokens *x, int64_t t, const double *s, const double *z,
                      const double *dout, struct linear_back *b)
{
    begin_token(x, b);
    copy_state(x, s, z, b->decayed, b->z_decayed);
    linear_prepare(x, t, b->decayed, b->z_decayed);
    linear_value(x, t);
    if (!x->bonus) { /* the read is of the state behind the update */
        copy_state(x, b->decayed, b->z_decayed, b->s, b->z);
        linear_add(x, t, b->s, b->z);
        read_back(x, t, b->s, b->z, dout, b);
    }
    update_back(x, t, s, b);
    if (x->bonus)
        read_back(x, t, s, z, dout, b);
}

void linear_all_read_back(const struct linear_tokens *x, int64_t t, const double *s, const double *z,
                          const double *dout, struct linear_back *b)
{
    begin_token(x, b);
    read_back(x, t, s, z, dout, b);
}

void linear_all_add_back(const struct linear_tokens *x, int64_t t, struct linear_back *b)
{
    begin_token(x, b);
    linear_value(x, t); /* v: nothing corrects it */
    add_back(x, t, b);
    taken_back(x, b);
}
