/*
 * pages_call.h: calls of attention on the host device with keys in pages, of the rooms that compare them with
 * keys in rows: sizes, where a key lies, and the list of arguments.
 */
#ifndef LATHE_TESTS_PAGES_CALL_H
#define LATHE_TESTS_PAGES_CALL_H

#include "check.h"
#include "gen/gen.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SEQS = 3, H = 4, H_KV = 2, Q = 5, D = 8, MOST_ARGS = 24 };

struct paged {
    int64_t page, most, kv, pool; /* keys of a page, pages and places of a sequence, pages of the pool */
    bool by_token;                /* tokens before heads, in pools */
    int32_t used[SEQS];
    int64_t shape[MOST_ARGS][4], stride[MOST_ARGS][4];
    lathe_arg arg[MOST_ARGS];
    int n;
};

/* One sequence leaves a place of its last page, one has no key. */
static inline void paged_open(struct paged *p, int64_t keys, int64_t page, bool by_token)
{
    memset(p, 0, sizeof *p);
    p->page = page;
    p->most = (keys + page - 1) / page;
    p->kv = p->most * page;
    p->pool = SEQS * p->most + 2;
    p->by_token = by_token;
    p->used[0] = (int32_t)(p->kv - 1);
    p->used[2] = (int32_t)(p->kv / 2 + 1);
}

static inline lathe_arg *paged_add(struct paged *p, const char *name, void *data, lathe_dtype dtype, int ndim,
                                   const int64_t *shape)
{
    CHECK(p->n < MOST_ARGS);
    lathe_arg *a = &p->arg[p->n];
    memcpy(p->shape[p->n], shape, (size_t)ndim * sizeof *shape);
    *a = (lathe_arg){name, data, dtype, ndim, p->shape[p->n], NULL};
    p->n++;
    return a;
}

static inline void paged_add_strided(struct paged *p, const char *name, double *data, const int64_t *shape,
                                     const int64_t *stride)
{
    lathe_arg *a = paged_add(p, name, data, LATHE_F64, 4, shape);
    memcpy(p->stride[p->n - 1], stride, sizeof p->stride[0]);
    a->strides = p->stride[p->n - 1];
}

/* k, v or a gradient of theirs where they lie. */
static inline void paged_add_pool(struct paged *p, const char *name, double *data)
{
    const int64_t shape[4] = {p->pool, H_KV, p->page, D};
    const int64_t stride[4] = {H_KV * p->page * D, p->by_token ? D : p->page * D, p->by_token ? H_KV * D : D,
                               1};
    paged_add_strided(p, name, data, shape, stride);
}

static inline int64_t paged_place(const struct paged *p, int64_t page, int64_t h, int64_t row)
{
    return ((page * (p->by_token ? p->page : H_KV) + (p->by_token ? row : h)) *
                (p->by_token ? H_KV : p->page) +
            (p->by_token ? h : row)) *
           D;
}

#endif
