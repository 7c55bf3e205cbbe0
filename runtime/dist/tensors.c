/*
 * tensors.c: tensors as schemes take them apart: the caller's arguments, slices, buffers in the workspace.
 */
#include "runtime/dist/dist.h"

#include <string.h>

static struct tensor of_arg(const lathe_arg *a)
{
    struct tensor t = {.name = a->name, .data = a->data, .dtype = a->dtype, .ndim = a->ndim};
    int64_t stride = 1;
    for (int d = a->ndim - 1; d >= 0; d--) {
        t.shape[d] = a->shape[d];
        t.stride[d] = a->strides ? a->strides[d] : stride;
        stride *= a->shape[d];
    }
    return t;
}

struct tensor lathe__dist_arg(const struct walk *w, const char *name)
{
    for (int i = 0; i < w->n_args; i++)
        if (strcmp(w->args[i].name, name) == 0)
            return of_arg(&w->args[i]);
    return (struct tensor){.name = NULL};
}

struct tensor lathe__dist_slice(struct tensor t, int dim, int64_t first, int64_t n)
{
    if (t.data)
        t.data += first * t.stride[dim] * (int64_t)lathe_dtype_size(t.dtype);
    t.shape[dim] = n;
    return t;
}

struct tensor lathe__dist_named(struct tensor t, const char *name)
{
    t.name = name;
    return t;
}

int64_t lathe__dist_count(struct tensor t)
{
    int64_t n = 1;
    for (int d = 0; d < t.ndim; d++)
        n *= t.shape[d];
    return n;
}

lathe_dtype lathe__dist_wide(lathe_dtype dtype)
{
    return dtype == LATHE_F64 ? LATHE_F64 : LATHE_F32;
}

/* ---- buffers ----------------------------------------------------------------------------------------------
 */

char *lathe__dist_alloc(struct walk *w, size_t bytes)
{
    char *const at = w->base ? w->base + w->used : NULL;
    w->used += (bytes + 255) / 256 * 256;
    if (w->used > w->most)
        w->most = w->used;
    return at;
}

struct tensor lathe__dist_compact(struct walk *w, lathe_dtype dtype, int ndim, const int64_t *shape)
{
    struct tensor t = {.name = "", .dtype = dtype, .ndim = ndim};
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        t.shape[d] = shape[d];
        t.stride[d] = stride;
        stride *= shape[d];
    }
    t.data = lathe__dist_alloc(w, (size_t)stride * lathe_dtype_size(dtype));
    return t;
}

/* Strides of so many heads of a token, one behind the other. */
static void compact_token(struct tensor *t, int64_t heads, int64_t tokens)
{
    int64_t stride = 1;
    t->shape[1] = heads;
    t->shape[2] = tokens;
    for (int d = t->ndim - 1; d > 2; d--) {
        t->stride[d] = stride;
        stride *= t->shape[d];
    }
    t->stride[1] = stride;
    t->stride[0] = stride * heads;
    t->stride[2] = stride * heads * t->shape[0];
}

struct tensor lathe__dist_by_token(struct walk *w, struct tensor t, lathe_dtype dtype, int64_t heads,
                                   int64_t tokens)
{
    t.dtype = dtype;
    compact_token(&t, heads, tokens);
    t.data = lathe__dist_alloc(w, (size_t)(t.stride[2] * tokens) * lathe_dtype_size(dtype));
    return t;
}

void lathe__dist_by_token_together(struct walk *w, struct tensor *t, int n, int64_t heads, int64_t tokens)
{
    enum { UNIT = 16 }; /* of vectors and of tensor maps */
    int64_t place[MOST_IN_CALL];
    int64_t bytes = 0; /* of a token of all */
    for (int i = 0; i < n; i++) {
        int64_t each = t[i].name ? t[i].shape[0] * heads * (int64_t)lathe_dtype_size(t[i].dtype) : 0;
        for (int d = 3; d < t[i].ndim && t[i].name; d++)
            each *= t[i].shape[d];
        place[i] = bytes;
        bytes += (each + UNIT - 1) / UNIT * UNIT;
    }
    char *const base = lathe__dist_alloc(w, (size_t)(bytes * tokens));
    for (int i = 0; i < n; i++) {
        if (!t[i].name)
            continue;
        compact_token(&t[i], heads, tokens);
        t[i].stride[2] = bytes / (int64_t)lathe_dtype_size(t[i].dtype);
        t[i].data = base ? base + place[i] : NULL;
    }
}

const struct tensor *lathe__dist_first(const struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        if (t[i].name)
            return &t[i];
    return NULL;
}

size_t lathe__dist_token_bytes(struct tensor t)
{
    return (size_t)t.stride[2] * lathe_dtype_size(t.dtype);
}
