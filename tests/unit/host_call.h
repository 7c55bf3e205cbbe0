/*
 * host_call.h: a call of the host device's forward pass with noise, and softmax attention written out, for
 * the rooms that compare them. teardown() frees what setup() made.
 */
#ifndef LATHE_TESTS_HOST_CALL_H
#define LATHE_TESTS_HOST_CALL_H

#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fixtures -------------------------------------------------------------------------------- */

struct fixture {
    int64_t b, h, h_kv, q, kv, d, dv;
    int64_t q_start;
    int64_t q_shape[4], k_shape[4], v_shape[4], o_shape[4];
    double *qs, *ks, *vs, *o, *lse;  /* compact; o and lse start as NaN */
    double *expected, *expected_lse; /* of naive */
    int n_args;
    lathe_arg arg[16];
};

static inline double *noise(int64_t n, unsigned seed)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    uint64_t state = seed * 2654435761u + 1u;
    CHECK(v != NULL);
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v[i] = (double)(state >> 11) / 4503599627370496.0 - 1.0; /* -1 .. 1 */
    }
    return v;
}

static inline double *blank(int64_t n)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    CHECK(v != NULL);
    for (int64_t i = 0; i < n; i++)
        v[i] = (double)NAN;
    return v;
}

static inline void add_arg(struct fixture *f, const char *name, void *data, lathe_dtype dtype, int ndim,
                           const int64_t *shape)
{
    CHECK(f->n_args < 16);
    f->arg[f->n_args++] = (lathe_arg){name, data, dtype, ndim, shape, NULL};
}

/* b h h_kv q kv d d_v */
static inline void setup(struct fixture *f, const int64_t size[7])
{
    memset(f, 0, sizeof *f);
    f->b = size[0];
    f->h = size[1];
    f->h_kv = size[2];
    f->q = size[3];
    f->kv = size[4];
    f->d = size[5];
    f->dv = size[6];
    f->q_start = f->kv - f->q;
    memcpy(f->q_shape, (int64_t[]){f->b, f->h, f->q, f->d}, sizeof f->q_shape);
    memcpy(f->k_shape, (int64_t[]){f->b, f->h_kv, f->kv, f->d}, sizeof f->k_shape);
    memcpy(f->v_shape, (int64_t[]){f->b, f->h_kv, f->kv, f->dv}, sizeof f->v_shape);
    memcpy(f->o_shape, (int64_t[]){f->b, f->h, f->q, f->dv}, sizeof f->o_shape);
    f->qs = noise(f->b * f->h * f->q * f->d, 1);
    f->ks = noise(f->b * f->h_kv * f->kv * f->d, 2);
    f->vs = noise(f->b * f->h_kv * f->kv * f->dv, 3);
    f->o = blank(f->b * f->h * f->q * f->dv);
    f->lse = blank(f->b * f->h * f->q);
    f->expected = blank(f->b * f->h * f->q * f->dv);
    f->expected_lse = blank(f->b * f->h * f->q);
    add_arg(f, "q", f->qs, LATHE_F64, 4, f->q_shape);
    add_arg(f, "k", f->ks, LATHE_F64, 4, f->k_shape);
    add_arg(f, "v", f->vs, LATHE_F64, 4, f->v_shape);
    add_arg(f, "o", f->o, LATHE_F64, 4, f->o_shape);
    add_arg(f, "lse", f->lse, LATHE_F64, 3, f->q_shape);
}

static inline void teardown(struct fixture *f)
{
    double *const block[] = {f->qs, f->ks, f->vs, f->o, f->lse, f->expected, f->expected_lse};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        free(block[i]);
}

static inline lathe_status forward_args(const char *text, const lathe_arg *args, int n, const int64_t *rows,
                                        int64_t n_rows, lathe_error *err)
{
    struct signature sig;
    struct ir *ir = load_spec(text);
    *err = (lathe_error){0};
    signature_make(ir, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, rows, n_rows, err);
    ir_free(ir);
    return status;
}

static inline void forward(const char *text, const struct fixture *f)
{
    lathe_error err;
    const lathe_status status = forward_args(text, f->arg, f->n_args, NULL, 0, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

/* ---- softmax attention, written out ---------------------------------------------------------- */

typedef bool live_fn(const struct fixture *f, int64_t b, int64_t h, int64_t q, int64_t kv);
typedef long double score_fn(const struct fixture *f, long double s, int64_t b, int64_t h, int64_t q,
                             int64_t kv);

static inline bool live_causal(const struct fixture *f, int64_t b, int64_t h, int64_t q, int64_t kv)
{
    (void)f, (void)b, (void)h;
    return kv <= q;
}

/* Over the compact tensors qs, ks, vs; q is the position: row + q_start. */
static inline void naive_row(const struct fixture *f, live_fn *live, score_fn *score, long double scale,
                             int64_t b, int64_t h, int64_t row)
{
    const int64_t h_kv = h * f->h_kv / f->h;
    const double *query = f->qs + ((b * f->h + h) * f->q + row) * f->d;
    const double *keys = f->ks + (b * f->h_kv + h_kv) * f->kv * f->d;
    const double *values = f->vs + (b * f->h_kv + h_kv) * f->kv * f->dv;
    double *o = f->expected + ((b * f->h + h) * f->q + row) * f->dv;
    long double sum = 0.0L;
    long double *weight = calloc((size_t)f->kv + 1, sizeof *weight);
    CHECK(weight != NULL);
    for (int64_t j = 0; j < f->kv; j++) {
        if (live && !live(f, b, h, row + f->q_start, j))
            continue;
        long double s = 0.0L;
        for (int64_t c = 0; c < f->d; c++)
            s += (long double)query[c] * (long double)keys[j * f->d + c];
        s *= scale;
        weight[j] = expl(score ? score(f, s, b, h, row + f->q_start, j) : s);
        sum += weight[j];
    }
    for (int64_t c = 0; c < f->dv; c++) {
        long double total = 0.0L;
        for (int64_t j = 0; j < f->kv; j++)
            total += weight[j] != 0.0L ? weight[j] * (long double)values[j * f->dv + c] : 0.0L;
        o[c] = sum != 0.0L ? (double)(total / sum) : 0.0;
    }
    f->expected_lse[(b * f->h + h) * f->q + row] = (double)logl(sum);
    free(weight);
}

static inline void naive(const struct fixture *f, live_fn *live, score_fn *score, long double scale)
{
    for (int64_t b = 0; b < f->b; b++)
        for (int64_t h = 0; h < f->h; h++)
            for (int64_t row = 0; row < f->q; row++)
                naive_row(f, live, score, scale, b, h, row);
}

static inline void compare(const struct fixture *f, double tol)
{
    for (int64_t i = 0; i < f->b * f->h * f->q * f->dv; i++)
        CHECK_CLOSE(f->o[i], f->expected[i], tol);
    for (int64_t i = 0; i < f->b * f->h * f->q; i++)
        CHECK_CLOSE(f->lse[i], f->expected_lse[i], tol);
}

static inline long double default_scale(const struct fixture *f)
{
    return 1.0L / sqrtl((long double)f->d);
}

#endif
