/*
 * walk.c: launches on the way through a scheme's steps. In: a spec and its arguments. Out: at first a kernel,
 * the size of its workspace; later its launch. A call without elements is none.
 */
#include "runtime/dist/dist.h"

#include <stdlib.h>
#include <string.h>

void lathe__dist_put(struct call *c, struct tensor t)
{
    int i = 0;
    while (i < c->n && strcmp(c->t[i].name, t.name) != 0)
        i++;
    if (i == MOST_IN_CALL)
        return;
    c->t[i] = t;
    c->n += i == c->n;
}

void lathe__dist_put_i32(struct call *c, const char *name, int32_t *value)
{
    lathe__dist_put(c, (struct tensor){.name = name, .data = (char *)value, .dtype = LATHE_I32});
}

/* ---- kernels ----------------------------------------------------------------------------------------------
 */

static lathe_status get_kernel(struct walk *w, const lathe_spec *spec, lathe_pass pass, const lathe_arg *arg,
                               int n)
{
    struct lathe_dist *d = w->d;
    size_t bytes = 0;
    if (w->next == MOST_KERNELS)
        return lathe__fail(w->err, LATHE_UNSUPPORTED, "dist: expected at most %d launches of a scheme",
                           MOST_KERNELS);
    if (w->next % 64 == 0) {
        lathe_kernel **more = realloc(d->kernel, ((size_t)w->next + 64) * sizeof(lathe_kernel *));
        if (!more)
            return lathe__fail_memory(w->err);
        d->kernel = more;
    }
    TRY(lathe_kernel_get(&d->kernel[w->next], d->ctx, spec, pass, arg, n, w->err));
    d->n_kernels = ++w->next;
    TRY(lathe_workspace_size(&bytes, d->kernel[w->next - 1], arg, n, w->err));
    bytes = (bytes + 255) / 256 * 256;
    d->kernel_bytes = bytes > d->kernel_bytes ? bytes : d->kernel_bytes;
    return LATHE_OK;
}

/* Bytes that are read or written: a dim of stride 0 repeats the same ones. */
static size_t bytes_of(const struct tensor *t)
{
    size_t bytes = lathe_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        bytes *= t->stride[d] == 0 && t->shape[d] > 0 ? 1 : (size_t)t->shape[d];
    return bytes;
}

/* Launches of the caller's spec; bytes of the others, which move them. */
static void count(struct lathe_dist *d, const lathe_spec *spec, const struct call *c)
{
    d->n_own += spec == d->spec;
    for (int i = 0; i < c->n && spec != d->spec; i++) {
        const size_t bytes = bytes_of(&c->t[i]);
        d->moved += spec == d->map[MAP_ADD] && i == 0 ? 2 * bytes : bytes; /* what is added to */
    }
}

size_t lathe__dist_bytes(const struct lathe_dist *d)
{
    return d->bytes + d->kernel_bytes * (lathe__dist_has_second(d, d->scheme) ? 2 : 1);
}

lathe_status lathe__dist_launch_spec(struct walk *w, const lathe_spec *spec, lathe_pass pass,
                                     const struct call *c)
{
    lathe_arg arg[MOST_IN_CALL];
    for (int i = 0; i < c->n; i++) {
        const struct tensor *t = &c->t[i];
        arg[i] = (lathe_arg){t->name, t->data, t->dtype, t->ndim, t->shape, t->stride};
    }
    if (w->dry) {
        count(w->d, spec, c);
        return get_kernel(w, spec, pass, arg, c->n);
    }
    const struct seam *const seam = w->d->seam;
    const lathe_kernel *const kernel = w->d->kernel[w->next++];
    void *const workspace = w->base + w->d->bytes + (w->on_second ? w->d->kernel_bytes : 0);
    return seam ? seam->launch(seam->user, kernel, arg, c->n, workspace, w->stream, w->err)
                : lathe_launch(kernel, arg, c->n, workspace, w->stream, w->err);
}

/* ---- maps -------------------------------------------------------------------------------------------------
 */

#define OVER "return elementwise { over = { 'a', 'b', 'c', 'e', 'f' }, operands = { "
static const char *const TEXT[MAPS] = {
    [MAP_COPY] = OVER "x = tensor('float') },\n"
                      "  results = { y = tensor('float') }, forward = function(v) return v.x end }\n",
    [MAP_COPY_WORDS] = OVER "x = tensor('i32') },\n"
                            "  results = { y = tensor('i32') }, forward = function(v) return v.x end }\n",
    [MAP_ADD] = OVER "x = tensor('float'), z = tensor('float') },\n"
                     "  results = { y = tensor('float', { alias = 'z' }) },\n"
                     "  forward = function(v) return v.x + v.z end }\n",
    [MAP_ZERO] = OVER "}, results = { y = tensor('float') }, forward = function() return 0.0 end }\n",
    [MAP_ONE] = OVER "}, results = { y = tensor('float') }, forward = function() return 1.0 end }\n",
    [MAP_UNIT] = OVER "}, results = { y = tensor('float') },\n"
                      "  forward = function(v, at) return where(eq(at.e, at.f), 1.0, 0.0) end }\n",
    [MAP_SCALE_ADD] =
        OVER "x = tensor('float'), f = tensor('float'), z = tensor('float') },\n"
             "  results = { y = tensor('float') }, forward = function(v) return v.x * v.f + v.z end }\n",
};
static const char *const NAME[MAPS] = {"dist_copy", "dist_copy_words", "dist_add",      "dist_zero",
                                       "dist_one",  "dist_unit",       "dist_scale_add"};

static lathe_status launch_map(struct walk *w, enum map map, const struct call *c)
{
    lathe_spec **const spec = &w->d->map[map];
    struct call one = *c;
    if (lathe__dist_count(c->t[0]) == 0)
        return LATHE_OK;
    for (int i = 0; i < one.n; i++)
        if (one.t[i].ndim == 0) { /* a number is a row of one */
            one.t[i].ndim = 1;
            one.t[i].shape[0] = one.t[i].stride[0] = 1;
        }
    if (!*spec)
        TRY(lathe_spec_parse(spec, NAME[map], TEXT[map], strlen(TEXT[map]), w->err));
    return lathe__dist_launch_spec(w, *spec, LATHE_FORWARD, &one);
}

/* Elements of 8 bits as words of four. */
static lathe_status as_words(struct walk *w, struct tensor *t)
{
    const int last = t->ndim - 1;
    bool whole = last >= 0 && t->shape[last] % 4 == 0 && (t->shape[last] == 0 || t->stride[last] == 1);
    for (int k = 0; k < last; k++) {
        whole = whole && t->stride[k] % 4 == 0;
        t->stride[k] /= 4;
    }
    if (!whole)
        return lathe__fail(
            w->err, LATHE_UNSUPPORTED,
            "elements of 8 bits are sent by four: expected a head dim and strides that are multiples of "
            "4, and a last stride of 1");
    t->shape[last] /= 4;
    t->dtype = LATHE_I32;
    return LATHE_OK;
}

lathe_status lathe__dist_copy(struct walk *w, struct tensor to, struct tensor from)
{
    struct call c = {0};
    const bool bytes = lathe_dtype_size(to.dtype) == 1 && to.dtype == from.dtype;
    if (bytes) {
        TRY(as_words(w, &to));
        TRY(as_words(w, &from));
    }
    lathe__dist_put(&c, lathe__dist_named(to, "y"));
    lathe__dist_put(&c, lathe__dist_named(from, "x"));
    return launch_map(w, bytes ? MAP_COPY_WORDS : MAP_COPY, &c);
}

lathe_status lathe__dist_add(struct walk *w, struct tensor to, struct tensor from)
{
    struct call c = {0};
    lathe__dist_put(&c, lathe__dist_named(to, "z"));
    lathe__dist_put(&c, lathe__dist_named(from, "x"));
    return launch_map(w, MAP_ADD, &c);
}

lathe_status lathe__dist_set(struct walk *w, struct tensor to, enum map map)
{
    struct call c = {0};
    lathe__dist_put(&c, lathe__dist_named(to, "y"));
    return launch_map(w, map, &c);
}

lathe_status lathe__dist_zero(struct walk *w, struct tensor to)
{
    return lathe__dist_set(w, to, MAP_ZERO);
}

lathe_status lathe__dist_scale_add(struct walk *w, struct tensor to, struct tensor from, struct tensor factor,
                                   struct tensor more)
{
    struct call c = {0};
    lathe__dist_put(&c, lathe__dist_named(to, "y"));
    lathe__dist_put(&c, lathe__dist_named(from, "x"));
    lathe__dist_put(&c, lathe__dist_named(factor, "f"));
    lathe__dist_put(&c, lathe__dist_named(more, "z"));
    return launch_map(w, MAP_SCALE_ADD, &c);
}
