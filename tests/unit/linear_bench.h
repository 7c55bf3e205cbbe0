/*
 * linear_bench.h: a spec of linear attention with every argument of both passes in f64, filled at random. In:
 * its text, sizes. Out: a bench that is run on the host device; close_bench frees it.
 */
#ifndef LATHE_TEST_LINEAR_BENCH_H
#define LATHE_TEST_LINEAR_BENCH_H

#include "check.h"
#include "gen/gen.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ARGS = 48 };
struct size {
    int64_t b, h, h_k, t, d, d_v, seqs;
};
struct bench {
    struct ir *ir;
    struct signature sig[2]; /* forward, backward */
    struct size size;
    int n;
    lathe_arg arg[MOST_ARGS]; /* of either signature */
    int64_t shape[MOST_ARGS][MAX_DIMS];
    uint64_t noise;
    lathe_error err;
};

static double unit(void *bench)
{
    uint64_t *state = &((struct bench *)bench)->noise;
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

static int64_t dim_of(const struct bench *b, struct sig_dim dim)
{
    const struct size *s = &b->size;
    const int64_t packed = s->seqs > 0 ? s->seqs : s->b;
    const int64_t value = dim.literal > 0        ? dim.literal
                          : dim.sym == SYM_B     ? s->b
                          : dim.sym == SYM_H     ? s->h
                          : dim.sym == SYM_H_K   ? s->h_k
                          : dim.sym == SYM_T     ? s->t
                          : dim.sym == SYM_D     ? s->d
                          : dim.sym == SYM_D_V   ? s->d_v
                          : dim.sym == SYM_SEQS  ? packed
                          : dim.sym == SYM_SLOTS ? packed
                                                 : 2;
    return value * lathe__times(dim) + dim.plus;
}

static lathe_arg *find(struct bench *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->arg[i].name, name) == 0)
            return &b->arg[i];
    return NULL;
}

static double *data(struct bench *b, const char *name)
{
    lathe_arg *arg = find(b, name);
    CHECK(arg != NULL);
    return arg->data;
}

/* Without `seqs` there is no cu; slots of a pool and states behind tokens are tests of their own. */
static void add_arg(struct bench *b, const struct sig_arg *a)
{
    if (find(b, a->name) || strstr(a->name, "_index") || a->dim[0].sym == SYM_KEPT ||
        (strcmp(a->name, "cu") == 0 && b->size.seqs == 0))
        return;
    CHECK(b->n < MOST_ARGS);
    lathe_arg *t = &b->arg[b->n];
    *t = (lathe_arg){a->name, NULL,           a->dtype == LATHE_I32 ? LATHE_I32 : LATHE_F64,
                     a->ndim, b->shape[b->n], NULL};
    int64_t count = 1;
    for (int i = 0; i < a->ndim; i++)
        count *= b->shape[b->n][i] = dim_of(b, a->dim[i]);
    b->n++;
    t->data = calloc((size_t)count + 1, sizeof(double));
    CHECK(t->data != NULL);
    for (int i = 0; i < b->ir->n_inputs; i++)
        if (strcmp(b->ir->input[i].name, a->name) == 0 && input_fill(&b->ir->input[i], NULL, t, unit, b))
            return;
    if (t->dtype == LATHE_I32) {
        static const int32_t places[] = {0, 3, 3, 4, 9};
        memcpy(t->data, places, sizeof places);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        ((double *)t->data)[i] = 2 * unit(b) - 1;
}

static void open_bench(struct bench *b, const char *text, const struct size *size)
{
    struct diag diag = {0};
    memset(b, 0, sizeof *b);
    b->size = *size;
    b->noise = 7;
    b->ir = spec_load("t.lua", text, strlen(text), &diag);
    diag_to_error(&diag, LATHE_SPEC, &b->err);
    CHECK_STR(b->err.text, "");
    CHECK(b->ir != NULL);
    for (int pass = 0; pass < 2; pass++) {
        signature_make(b->ir, pass ? LATHE_BACKWARD : LATHE_FORWARD, &b->sig[pass]);
        for (int i = 0; i < b->sig[pass].n_args; i++)
            add_arg(b, &b->sig[pass].arg[i]);
    }
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->arg[i].data);
    ir_free(b->ir);
}

/* The arguments that a pass knows; `without` is left out, too. */
static int select_args(const struct bench *b, int pass, const char *without, lathe_arg *out)
{
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        bool known = strcmp(b->arg[i].name, without) != 0;
        bool taken = false;
        for (int k = 0; k < b->sig[pass].n_args; k++)
            taken |= strcmp(b->sig[pass].arg[k].name, b->arg[i].name) == 0;
        if (known && taken)
            out[n++] = b->arg[i];
    }
    return n;
}

static lathe_status run(struct bench *b, int pass)
{
    lathe_arg args[MOST_ARGS];
    const int n = select_args(b, pass, "", args);
    b->err = (lathe_error){0};
    return pass ? host_backward(b->ir, &b->sig[1], args, n, &b->err)
                : host_forward(b->ir, &b->sig[0], args, n, NULL, 0, &b->err);
}

#endif
