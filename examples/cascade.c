/*
 * cascade.c: many sequences that begin alike, as with one system prompt: a step of generation reads what they
 * share once for all of them, and not once for each.
 *
 * Three launches of one spec, `sinks`, take the place of one:
 *
 *   1. The queries of all sequences, as tokens of one batch, against the keys of the prefix. These are cut
 *      into pieces, each a batch with the same queries (a stride of 0), so that all of a GPU has work.
 *   2. Each query against its sequence's own keys, which lie in pages.
 *   3. What came out of both, `part_o` and `part_rows`, is put together. The sink counts here, once: parts
 *      that are weighed by their lse would have it as many times as there are parts.
 *
 * Parts lie as [pieces + 1][heads][sequences][...]. The first launch takes the sequences for its tokens, the
 * second one for its batches, the third one, too: that is a matter of strides, and nothing is copied. The
 * exit code is 1 where o is not that of one launch whose pages begin with the prefix.
 *
 *     build/cascade
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

struct sizes {
    int sequences, h, h_kv, d;
    int page;         /* tokens */
    int prefix, most; /* pages: of the prefix, and of a sequence at most */
    int pieces;       /* of the prefix */
    int repeat;       /* so many steps are timed */
    lathe_dtype dtype;
    double bound; /* of the largest difference */
};
static const struct sizes SMALL = {3, 4, 2, 16, 4, 6, 3, 2, 1, LATHE_F32, 1e-5};
static const struct sizes LARGE = {64, 32, 8, 128, 16, 512, 16, 8, 200, LATHE_BF16, 4e-3};

enum { STATES = 2 }; /* of softmax: the maximum, and the sum */
enum { Q, O, CACHE, SINK, OWN_PAGES, OWN_USED, ALL_PAGES, ALL_USED, PART_O, PART_ROWS, DATA_COUNT };

struct program {
    struct sizes s;
    struct memory memory;
    lathe_ctx *ctx;
    lathe_spec *spec;
    void *data[DATA_COUNT];
    int32_t start; /* of queries behind all keys of the prefix */
    struct call whole, prefix, own, join;
};

/* ---- tensors ----------------------------------------------------------------------------------------------
 */

static void *allocate(const struct program *p, size_t bytes)
{
    void *data = memory_allocate(&p->memory, bytes);
    if (!data)
        give_up("memory", "there is not enough of it");
    return data;
}

static void *upload(const struct program *p, void *host, size_t bytes)
{
    void *data = allocate(p, bytes);
    if (!host || !memory_upload(&p->memory, data, host, bytes))
        give_up("memory", "a tensor cannot be copied to the device");
    free(host);
    return data;
}

/* Numbers that bf16 holds. */
static void *numbers(const struct program *p, size_t n, int floats, unsigned seed)
{
    void *host = calloc(n, sizeof(float));
    for (size_t i = 0; host && i < n; i++) {
        const float value = (float)((int)(draw(&seed) % 255) - 127) / 64.0f;
        if (floats)
            ((float *)host)[i] = value;
        else
            element_put(p->s.dtype, host, i, value);
    }
    return upload(p, host, n * (floats ? sizeof(float) : lathe_dtype_size(p->s.dtype)));
}

/* Pages of sequences; with the prefix, it comes first, and is the same for all. */
static void *pages(const struct program *p, int with_prefix)
{
    const int most = p->s.most + (with_prefix ? p->s.prefix : 0);
    int32_t *host = calloc((size_t)(p->s.sequences * most), sizeof *host);
    for (int i = 0; host && i < p->s.sequences; i++)
        for (int m = 0; m < most; m++) {
            const int own = m - (with_prefix ? p->s.prefix : 0);
            host[i * most + m] = own < 0 ? m : p->s.prefix + i * p->s.most + own;
        }
    return upload(p, host, (size_t)(p->s.sequences * most) * sizeof *host);
}

/* Keys of each sequence: from one to all that its pages hold. */
static void *used(const struct program *p, int with_prefix)
{
    const int room = p->s.most * p->s.page;
    int32_t *host = calloc((size_t)p->s.sequences, sizeof *host);
    for (int i = 0; host && i < p->s.sequences; i++)
        host[i] = 1 + (i * 7 + 3) % room + (with_prefix ? p->s.prefix * p->s.page : 0);
    return upload(p, host, (size_t)p->s.sequences * sizeof *host);
}

static void make_tensors(struct program *p)
{
    const struct sizes *s = &p->s;
    const size_t rows = (size_t)(s->sequences * s->h), parts = (size_t)s->pieces + 1;
    const size_t pool = (size_t)(s->prefix + s->sequences * s->most);
    p->data[Q] = numbers(p, rows * (size_t)s->d, 0, 1);
    p->data[O] = allocate(p, rows * (size_t)s->d * lathe_dtype_size(s->dtype));
    p->data[CACHE] = numbers(p, 2 * pool * (size_t)(s->page * s->h_kv * s->d), 0, 2);
    p->data[SINK] = numbers(p, (size_t)s->h, 1, 3);
    p->data[OWN_PAGES] = pages(p, 0);
    p->data[OWN_USED] = used(p, 0);
    p->data[ALL_PAGES] = pages(p, 1);
    p->data[ALL_USED] = used(p, 1);
    p->data[PART_O] = allocate(p, parts * rows * (size_t)s->d * sizeof(float));
    p->data[PART_ROWS] = allocate(p, parts * rows * (STATES + 1) * sizeof(float));
    p->start = s->prefix * s->page;
}

/* ---- calls ------------------------------------------------------------------------------------------------
 */

/* k and v of the pool, in which the tokens of a page come before its heads; keys first, then values. */
static void add_pool(struct program *p, struct call *c)
{
    const struct sizes *s = &p->s;
    const int64_t n = s->prefix + (int64_t)s->sequences * s->most, token = (int64_t)s->h_kv * s->d;
    const int64_t shape[] = {n, s->h_kv, s->page, s->d}, stride[] = {s->page * token, s->d, token, 1};
    char *const v = (char *)p->data[CACHE] + (size_t)(n * s->page * token) * lathe_dtype_size(s->dtype);
    call_add(c, "k", p->data[CACHE], s->dtype, 4, shape, stride);
    call_add(c, "v", v, s->dtype, 4, shape, stride);
}

static void add_sequences(struct program *p, struct call *c, int all)
{
    const int64_t most = p->s.most + (all ? p->s.prefix : 0);
    const int64_t shape[] = {p->s.sequences, most}, heads[] = {p->s.h};
    call_add(c, "pages", p->data[all ? ALL_PAGES : OWN_PAGES], LATHE_I32, 2, shape, NULL);
    call_add(c, "used_kv", p->data[all ? ALL_USED : OWN_USED], LATHE_I32, 1, shape, NULL);
    call_add(c, "sink", p->data[SINK], LATHE_F32, 1, heads, NULL);
}

/* Of a call whose batches are the sequences: [sequences, heads, 1 token, ...]. */
static void add_row(struct program *p, struct call *c, const char *name, void *data, lathe_dtype dtype, int n)
{
    const int64_t shape[] = {p->s.sequences, p->s.h, 1, n};
    call_add(c, name, data, dtype, 4, shape, NULL);
}

static void make_whole(struct program *p, struct call *c)
{
    add_row(p, c, "q", p->data[Q], p->s.dtype, p->s.d);
    add_pool(p, c);
    add_row(p, c, "o", p->data[O], p->s.dtype, p->s.d);
    add_sequences(p, c, 1);
    call_compile(c, p->ctx, &p->memory, p->spec, LATHE_FORWARD, "sinks");
}

/* 1. [pieces, heads, sequences as tokens, ...] */
static void make_prefix(struct program *p, struct call *c)
{
    const struct sizes *s = &p->s;
    const int64_t keys = (int64_t)s->prefix * s->page / s->pieces, token = (int64_t)s->h_kv * s->d;
    const int64_t pool = (s->prefix + (int64_t)s->sequences * s->most) * s->page * token;
    const int64_t q[] = {s->pieces, s->h, s->sequences, s->d},
                  q_stride[] = {0, s->d, (int64_t)s->h * s->d, 1};
    const int64_t k[] = {s->pieces, s->h_kv, keys, s->d}, k_stride[] = {keys * token, s->d, token, 1};
    const int64_t rows[] = {s->pieces, s->h, s->sequences, STATES + 1}, heads[] = {s->h};
    char *const v = (char *)p->data[CACHE] + (size_t)pool * lathe_dtype_size(s->dtype);
    call_add(c, "q", p->data[Q], s->dtype, 4, q, q_stride);
    call_add(c, "k", p->data[CACHE], s->dtype, 4, k, k_stride);
    call_add(c, "v", v, s->dtype, 4, k, k_stride);
    call_add(c, "q_start", &p->start, LATHE_I32, 0, NULL, NULL);
    call_add(c, "sink", p->data[SINK], LATHE_F32, 1, heads, NULL); /* which a part does not read */
    call_add(c, "part_o", p->data[PART_O], LATHE_F32, 4, q, NULL);
    call_add(c, "part_rows", p->data[PART_ROWS], LATHE_F32, 4, rows, NULL);
    call_compile(c, p->ctx, &p->memory, p->spec, LATHE_FORWARD, "sinks");
}

/* 2. and 3.: parts as the first launch has left them, and one more behind; n floats of each row. */
static void add_part(struct program *p, struct call *c, const char *name, int which, int n, int all)
{
    const struct sizes *s = &p->s;
    const int64_t row = n, head = s->sequences * row, part = s->h * head;
    const int64_t shape[] = {s->pieces + 1, s->sequences, s->h, 1, n}, stride[] = {part, row, head, row, 1};
    float *const first = (float *)p->data[which] + (all ? 0 : s->pieces * part);
    call_add(c, name, first, LATHE_F32, all ? 5 : 4, all ? shape : shape + 1, all ? stride : stride + 1);
}

static void make_own(struct program *p, struct call *c)
{
    add_row(p, c, "q", p->data[Q], p->s.dtype, p->s.d);
    add_pool(p, c);
    add_sequences(p, c, 0);
    add_part(p, c, "part_o", PART_O, p->s.d, 0);
    add_part(p, c, "part_rows", PART_ROWS, STATES + 1, 0);
    call_compile(c, p->ctx, &p->memory, p->spec, LATHE_FORWARD, "sinks");
}

static void make_join(struct program *p, struct call *c)
{
    const int64_t heads[] = {p->s.h};
    add_part(p, c, "part_o", PART_O, p->s.d, 1);
    add_part(p, c, "part_rows", PART_ROWS, STATES + 1, 1);
    add_row(p, c, "o", p->data[O], p->s.dtype, p->s.d);
    call_add(c, "sink", p->data[SINK], LATHE_F32, 1, heads, NULL);
    call_compile(c, p->ctx, &p->memory, p->spec, LATHE_COMBINE, "sinks");
}

/* ---- both ways --------------------------------------------------------------------------------------------
 */

static void launch(const struct call *c)
{
    lathe_error err;
    check(lathe_launch(c->kernel, c->arg, c->n, c->workspace, NULL, &err), "launch", &err);
}

static void step(const struct program *p, int cascade)
{
    if (!cascade) {
        launch(&p->whole);
        return;
    }
    launch(&p->prefix);
    launch(&p->own);
    launch(&p->join);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of a step; o: what it leaves. */
static double run(const struct program *p, int cascade, void *o)
{
    const size_t bytes = (size_t)(p->s.sequences * p->s.h * p->s.d) * lathe_dtype_size(p->s.dtype);
    step(p, cascade);
    if (!memory_download(&p->memory, o, p->data[O], bytes))
        give_up("memory", "o cannot be copied from the device");
    const double before = seconds_now();
    for (int i = 0; i < p->s.repeat; i++)
        step(p, cascade);
    if (!memory_download(&p->memory, o, p->data[O], bytes)) /* waits */
        give_up("memory", "o cannot be copied from the device");
    return (seconds_now() - before) / p->s.repeat;
}

static void set_up(struct program *p)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_error err;
    check(lathe_ctx_create(&p->ctx, &options, &err), "no device", &err);
    check(lathe_spec_load(&p->spec, "sinks", &err), "sinks", &err);
    const int ordinal = lathe_ctx_device(p->ctx);
    p->s = ordinal == LATHE_DEVICE_HOST ? SMALL : LARGE;
    if (!memory_open(&p->memory, ordinal))
        give_up("memory", "the CUDA driver lacks an entry");
    make_tensors(p);
    make_whole(p, &p->whole);
    make_prefix(p, &p->prefix);
    make_own(p, &p->own);
    make_join(p, &p->join);
}

static void tear_down(struct program *p)
{
    struct call *const call[] = {&p->whole, &p->prefix, &p->own, &p->join};
    for (int i = 0; i < 4; i++) {
        lathe_kernel_release(call[i]->kernel);
        memory_release(&p->memory, call[i]->workspace);
    }
    for (int i = 0; i < DATA_COUNT; i++)
        memory_release(&p->memory, p->data[i]);
    lathe_spec_destroy(p->spec);
    lathe_ctx_destroy(p->ctx);
}

int main(void)
{
    static struct program p;
    double largest = 0;
    set_up(&p);
    const size_t n = (size_t)(p.s.sequences * p.s.h * p.s.d);
    void *const whole = calloc(n, sizeof(float)), *const cascade = calloc(n, sizeof(float));
    if (!whole || !cascade)
        give_up("memory", "there is not enough of it");
    printf("running on %s: %d sequences share %d tokens in %d pieces, and have up to %d of their own\n",
           lathe_ctx_device_name(p.ctx), p.s.sequences, p.s.prefix * p.s.page, p.s.pieces,
           p.s.most * p.s.page);
    const double one = run(&p, 0, whole), three = run(&p, 1, cascade);
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)element_get(p.s.dtype, whole, i) -
                                     (double)element_get(p.s.dtype, cascade, i)));
    const int wrong = !(largest <= p.s.bound);
    printf("a step: %.1f us in one launch, %.1f us in three; o differs by %.1e%s\n", 1e6 * one, 1e6 * three,
           largest, wrong ? ": WRONG" : "");
    free(whole);
    free(cascade);
    tear_down(&p);
    return wrong;
}
