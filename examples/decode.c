/*
 * decode.c: text is generated for many users at once, from a cache of keys and values that lies in pages.
 *
 * A batch has LANES; a sequence takes one, and pages for all of its tokens, as soon as both are free, and
 * gives them back when it has ended: continuous batching. Each step is two launches, `rope_append`, which
 * puts the newest token of every lane into the cache, and `causal` attention over the pages of the lane.
 * Lists say where: slot, pos, used_kv, pages. They lie in memory of the device, so on a GPU both launches are
 * captured as a CUDA graph once, and every step is a copy of the lists and one launch of the graph.
 *
 * The model around attention is a table, for this program is about the cache: q, k and v of a token follow
 * from its id, and the next id from o. The last token of every sequence is computed again on the host device,
 * from all keys in a row (the spec `rope`); the exit code is 1 where they differ.
 *
 *     build/decode [SEQUENCES]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"
#include "count.h"

struct sizes {
    int lanes, h, h_kv, d;            /* a batch; heads and head dim */
    int page, most, pool;             /* tokens of a page, pages of a sequence at most, pages of all */
    int sequences, prompt, generated; /* how many there are; tokens at most, of which at least a quarter */
    int checked;                      /* every so many sequences */
    lathe_dtype dtype;
    double bound; /* of the largest error of o */
};
static const struct sizes SMALL = {3, 4, 2, 16, 4, 8, 14, 7, 12, 16, 1, LATHE_F32, 1e-5};
static const struct sizes LARGE = {64, 32, 8, 128, 16, 128, 6000, 256, 1024, 512, 32, LATHE_BF16, 4e-3};

static void *zeros(size_t n, size_t size)
{
    void *data = calloc(n ? n : 1, size);
    if (!data)
        give_up("memory", "there is not enough of it");
    return data;
}

/* ---- a stream and a graph: nothing on the host device, which works at once ------------------------------
 */

struct graph {
    void *stream, *exec;
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream);
    int (*wait)(void *stream);
};

static void graph_open(struct graph *g, int ordinal)
{
    int (*create)(void **stream, unsigned flags) = NULL;
    memset(g, 0, sizeof *g);
    if (ordinal == LATHE_DEVICE_HOST)
        return;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || !memory_entry(library, "cuStreamCreate", &create) ||
        !memory_entry(library, "cuStreamBeginCapture_v2", &g->begin) ||
        !memory_entry(library, "cuStreamEndCapture", &g->end) ||
        !memory_entry(library, "cuGraphInstantiateWithFlags", &g->instantiate) ||
        !memory_entry(library, "cuGraphLaunch", &g->launch) ||
        !memory_entry(library, "cuStreamSynchronize", &g->wait) || create(&g->stream, 0) != 0)
        give_up("graph", "the CUDA driver lacks an entry"); /* copies and this stream wait for each other */
}

/* ---- the program ------------------------------------------------------------------------------------------
 */

enum { TABLE = 251 }; /* ids of tokens */

struct sequence {
    int prompt, length; /* tokens at first, and in the end */
    int *id;            /* [length] */
    int *page;          /* of the pool, while it runs */
};

struct lane {
    struct sequence *runs; /* NULL: idle */
    int tokens;            /* in the cache */
};

struct program {
    struct sizes s;
    struct memory memory;
    lathe_ctx *ctx;
    lathe_ctx *host; /* for comparison */
    struct graph graph;
    struct call append, prefill, attend; /* prefill: append of a prompt, a token each of b = 1 */
    struct lane *lane;
    struct sequence *sequence;
    int next, ended, wrong; /* sequences */
    int *free_page, n_free; /* a stack */
    long generated;         /* tokens */
    float *table;           /* [TABLE][h + 2 h_kv][d]: q, k and v */
    void *q, *k, *v, *o;    /* host, as the device has them; a prompt's, too */
    int32_t *slot, *pos, *used, *pages;
    int32_t *prompt_slot, *prompt_pos;
    void *device[16]; /* their memory there: see enum */
};
enum {
    Q,
    K,
    V,
    O,
    SLOT,
    POS,
    USED,
    PAGES,
    K_CACHE,
    V_CACHE,
    PROMPT_Q,
    PROMPT_K,
    PROMPT_V,
    PROMPT_SLOT,
    PROMPT_POS
};

static size_t element_bytes(const struct program *p)
{
    return lathe_dtype_size(p->s.dtype);
}

/* q, k and v of token `id`, as token number `to` of those tensors. */
static void look_up(const struct program *p, int id, size_t to)
{
    const struct sizes *s = &p->s;
    const float *from = p->table + (size_t)id * (size_t)((s->h + 2 * s->h_kv) * s->d);
    void *const tensor[3] = {p->q, p->k, p->v};
    const int heads[3] = {s->h, s->h_kv, s->h_kv};
    for (int t = 0; t < 3; t++) {
        const size_t n = (size_t)(heads[t] * s->d);
        for (size_t i = 0; i < n; i++)
            element_put(p->s.dtype, tensor[t], to * n + i, from[i]);
        from += n;
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------
 */

static void compile(struct program *p, struct call *c, const char *name)
{
    lathe_spec *spec = NULL;
    lathe_error err;
    check(lathe_spec_load(&spec, name, &err), name, &err);
    call_compile(c, p->ctx, &p->memory, spec, LATHE_FORWARD, name);
    lathe_spec_destroy(spec);
}

static void launch(struct program *p, const struct call *c)
{
    lathe_error err;
    check(lathe_launch(c->kernel, c->arg, c->n, c->workspace, p->graph.stream, &err), "launch", &err);
}

/* Tokens [b, t = 1, heads, d], and their slots. */
static void make_append(struct program *p, struct call *c, int n, const int which[5])
{
    const struct sizes *s = &p->s;
    const int64_t q[4] = {n, 1, s->h, s->d}, k[4] = {n, 1, s->h_kv, s->d}, list[2] = {n, 1};
    const int64_t cache[3] = {(int64_t)s->pool * s->page, s->h_kv, s->d};
    call_add(c, "q", p->device[which[0]], s->dtype, 4, q, NULL); /* rotated in place */
    call_add(c, "k", p->device[which[1]], s->dtype, 4, k, NULL);
    call_add(c, "v", p->device[which[2]], s->dtype, 4, k, NULL);
    call_add(c, "slot", p->device[which[3]], LATHE_I32, 2, list, NULL);
    call_add(c, "pos", p->device[which[4]], LATHE_I32, 2, list, NULL);
    call_add(c, "k_cache", p->device[K_CACHE], s->dtype, 3, cache, NULL);
    call_add(c, "v_cache", p->device[V_CACHE], s->dtype, 3, cache, NULL);
    compile(p, c, "rope_append");
}

/* The same memory as pools [pool, h_kv, page, d], in which tokens come before heads. */
static void make_attend(struct program *p, struct call *c)
{
    const struct sizes *s = &p->s;
    const int64_t q[4] = {s->lanes, s->h, 1, s->d}, list[2] = {s->lanes, s->most};
    const int64_t pool[4] = {s->pool, s->h_kv, s->page, s->d};
    const int64_t stride[4] = {(int64_t)s->page * s->h_kv * s->d, s->d, (int64_t)s->h_kv * s->d, 1};
    call_add(c, "q", p->device[Q], s->dtype, 4, q, NULL);
    call_add(c, "k", p->device[K_CACHE], s->dtype, 4, pool, stride);
    call_add(c, "v", p->device[V_CACHE], s->dtype, 4, pool, stride);
    call_add(c, "o", p->device[O], s->dtype, 4, q, NULL);
    call_add(c, "used_kv", p->device[USED], LATHE_I32, 1, list, NULL);
    call_add(c, "pages", p->device[PAGES], LATHE_I32, 2, list, NULL);
    compile(p, c, "causal");
}

/* ---- setting up -------------------------------------------------------------------------------------------
 */

static void make_sequences(struct program *p)
{
    unsigned state = 7;
    p->sequence = zeros((size_t)p->s.sequences, sizeof *p->sequence);
    for (int i = 0; i < p->s.sequences; i++) {
        struct sequence *one = &p->sequence[i];
        one->prompt = p->s.prompt / 4 + (int)(draw(&state) % (unsigned)(p->s.prompt * 3 / 4)) + 1;
        one->length =
            one->prompt + p->s.generated / 4 + (int)(draw(&state) % (unsigned)(p->s.generated * 3 / 4)) + 1;
        one->id = zeros((size_t)one->length + 1, sizeof *one->id);
        one->page = zeros((size_t)p->s.most, sizeof *one->page);
        for (int t = 0; t < one->prompt; t++)
            one->id[t] = (int)(draw(&state) % TABLE);
    }
    const size_t n = (size_t)TABLE * (size_t)((p->s.h + 2 * p->s.h_kv) * p->s.d);
    p->table = zeros(n, sizeof *p->table);
    for (size_t i = 0; i < n; i++)
        p->table[i] = (float)((int)(draw(&state) % 255) - 127) / 128.0f; /* exact in bf16 */
}

static void make_tensors(struct program *p)
{
    const struct sizes *s = &p->s;
    const size_t lanes = (size_t)s->lanes, prompt = (size_t)s->prompt, most = (size_t)s->most;
    const size_t tokens = lanes > prompt ? lanes : prompt;
    const size_t q = (size_t)(s->h * s->d) * element_bytes(p),
                 k = (size_t)(s->h_kv * s->d) * element_bytes(p);
    const size_t cache = (size_t)s->pool * (size_t)s->page * k;
    const size_t bytes[] = {lanes * q,  lanes * k,  lanes * k,        lanes * q,  4 * lanes,
                            4 * lanes,  4 * lanes,  4 * lanes * most, cache,      cache,
                            prompt * q, prompt * k, prompt * k,       4 * prompt, 4 * prompt};
    p->q = zeros(tokens, q), p->k = zeros(tokens, k), p->v = zeros(tokens, k), p->o = zeros(lanes, q);
    p->slot = zeros(lanes, 4), p->pos = zeros(lanes, 4), p->used = zeros(lanes, 4);
    p->pages = zeros(lanes * most, 4);
    p->prompt_slot = zeros(prompt, 4), p->prompt_pos = zeros(prompt, 4);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        if (!(p->device[i] = memory_allocate(&p->memory, bytes[i])))
            give_up("memory", "there is not enough of it");
}

static void make_pages(struct program *p)
{
    p->free_page = zeros((size_t)p->s.pool, sizeof *p->free_page);
    for (int i = 0; i < p->s.pool; i++)
        p->free_page[p->n_free++] = i;
    p->lane = zeros((size_t)p->s.lanes, sizeof *p->lane);
}

static void set_up(struct program *p, const char *sequences)
{
    static const int NEWEST[] = {Q, K, V, SLOT, POS},
                     PROMPT[] = {PROMPT_Q, PROMPT_K, PROMPT_V, PROMPT_SLOT, PROMPT_POS};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_error err;
    check(lathe_ctx_create(&p->ctx, &options, &err), "no device", &err);
    options.device = LATHE_DEVICE_HOST;
    check(lathe_ctx_create(&p->host, &options, &err), "no host device", &err);
    const int ordinal = lathe_ctx_device(p->ctx);
    p->s = ordinal == LATHE_DEVICE_HOST ? SMALL : LARGE;
    if (sequences)
        p->s.sequences = count_of(sequences, "sequences", 100000);
    if (!memory_open(&p->memory, ordinal))
        give_up("memory", "the CUDA driver lacks an entry");
    graph_open(&p->graph, ordinal);
    make_sequences(p);
    make_tensors(p);
    make_pages(p);
    make_append(p, &p->append, p->s.lanes, NEWEST);
    make_append(p, &p->prefill, p->s.prompt, PROMPT);
    make_attend(p, &p->attend);
}

static void upload(const struct program *p, int which, const void *from, size_t bytes)
{
    if (!memory_upload(&p->memory, p->device[which], from, bytes))
        give_up("memory", "a tensor cannot be copied to the device");
}

/* ---- a sequence comes -------------------------------------------------------------------------------------
 */

static int32_t slot_of(const struct program *p, const struct sequence *one, int token)
{
    return (int32_t)(one->page[token / p->s.page] * p->s.page + token % p->s.page);
}

/* Keys and values of all tokens of the prompt but the last, which is the first that a step takes. */
static void fill_cache(struct program *p, const struct sequence *one)
{
    const struct sizes *s = &p->s;
    const size_t n = (size_t)s->prompt, q = (size_t)(s->h * s->d) * element_bytes(p);
    const size_t k = (size_t)(s->h_kv * s->d) * element_bytes(p);
    for (int t = 0; t < s->prompt; t++) {
        const int inside = t + 1 < one->prompt;
        look_up(p, one->id[inside ? t : 0], (size_t)t);
        p->prompt_slot[t] = inside ? slot_of(p, one, t) : -1;
        p->prompt_pos[t] = t;
    }
    upload(p, PROMPT_Q, p->q, n * q);
    upload(p, PROMPT_K, p->k, n * k);
    upload(p, PROMPT_V, p->v, n * k);
    upload(p, PROMPT_SLOT, p->prompt_slot, n * sizeof *p->prompt_slot);
    upload(p, PROMPT_POS, p->prompt_pos, n * sizeof *p->prompt_pos);
    launch(p, &p->prefill);
}

static int pages_of(const struct program *p, const struct sequence *one)
{
    return (one->length + p->s.page - 1) / p->s.page;
}

/* Those that have waited longest, while there is room for them. */
static void admit(struct program *p)
{
    for (int i = 0; i < p->s.lanes && p->next < p->s.sequences; i++) {
        struct sequence *one = &p->sequence[p->next];
        const int n = pages_of(p, one);
        if (p->lane[i].runs)
            continue;
        if (n > p->n_free)
            return;
        for (int m = 0; m < n; m++)
            p->pages[i * p->s.most + m] = one->page[m] = p->free_page[--p->n_free];
        fill_cache(p, one);
        p->lane[i] = (struct lane){one, one->prompt - 1};
        p->next++;
    }
}

/* ---- and goes ---------------------------------------------------------------------------------------------
 */

/* o of its last token, from all keys in a row. */
static double error_of(const struct program *p, const struct sequence *one, int lane)
{
    const struct sizes *s = &p->s;
    const int64_t q[4] = {1, s->h, 1, s->d}, k[4] = {1, s->h_kv, one->length, s->d};
    const size_t of_q = (size_t)(s->h * s->d), of_k = (size_t)(s->h_kv * s->d), row = of_q + 2 * of_k;
    const size_t d = (size_t)s->d, n = (size_t)one->length;
    float *const keys = zeros(2 * n * of_k, sizeof *keys), *const o = zeros(of_q, sizeof *o);
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < (size_t)s->h_kv; h++)
            for (size_t v = 0; v < 2; v++)
                memcpy(keys + ((v * (size_t)s->h_kv + h) * n + t) * d,
                       p->table + (size_t)one->id[t] * row + of_q + v * of_k + h * d, d * sizeof *keys);
    const lathe_arg arg[4] = {{"q", p->table + (size_t)one->id[n - 1] * row, LATHE_F32, 4, q, NULL},
                              {"k", keys, LATHE_F32, 4, k, NULL},
                              {"v", keys + n * of_k, LATHE_F32, 4, k, NULL},
                              {"o", o, LATHE_F32, 4, q, NULL}};
    lathe_spec *spec = NULL;
    lathe_kernel *kernel = NULL;
    lathe_error err;
    double error = 0;
    check(lathe_spec_load(&spec, "rope", &err), "rope", &err);
    check(lathe_kernel_get(&kernel, p->host, spec, LATHE_FORWARD, arg, 4, &err), "rope", &err);
    check(lathe_launch(kernel, arg, 4, NULL, NULL, &err), "rope", &err);
    for (size_t i = 0; i < of_q; i++)
        error =
            fmax(error, fabs((double)o[i] - (double)element_get(p->s.dtype, p->o, (size_t)lane * of_q + i)));
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    free(keys);
    free(o);
    return error;
}

static void end(struct program *p, int lane)
{
    const struct sequence *one = p->lane[lane].runs;
    const long number = one - p->sequence;
    for (int m = 0; m < pages_of(p, one); m++)
        p->free_page[p->n_free++] = one->page[m];
    if (number % p->s.checked == 0) {
        const double error = error_of(p, one, lane);
        const int bad = !(error <= p->s.bound);
        printf("sequence %ld: %d tokens, of which %d were given; o of the last differs by %.1e%s\n", number,
               one->length, one->prompt, error, bad ? ": WRONG" : "");
        p->wrong += bad;
    }
    p->lane[lane].runs = NULL;
    p->ended++;
}

/* ---- steps ------------------------------------------------------------------------------------------------
 */

static void write_lists(struct program *p)
{
    const struct sizes *s = &p->s;
    const size_t n = (size_t)s->lanes, q = (size_t)(s->h * s->d) * element_bytes(p);
    const size_t k = (size_t)(s->h_kv * s->d) * element_bytes(p);
    for (int i = 0; i < s->lanes; i++) {
        const struct lane *l = &p->lane[i];
        look_up(p, l->runs ? l->runs->id[l->tokens] : 0, (size_t)i);
        p->slot[i] = l->runs ? slot_of(p, l->runs, l->tokens) : -1; /* nowhere */
        p->pos[i] = l->runs ? l->tokens : 0;
        p->used[i] = l->runs ? l->tokens + 1 : 0;
    }
    upload(p, Q, p->q, n * q);
    upload(p, K, p->k, n * k);
    upload(p, V, p->v, n * k);
    upload(p, SLOT, p->slot, n * sizeof *p->slot);
    upload(p, POS, p->pos, n * sizeof *p->pos);
    upload(p, USED, p->used, n * sizeof *p->used);
    upload(p, PAGES, p->pages, n * (size_t)s->most * sizeof *p->pages);
}

/* The first step is launched as it is, the second one captured; lengths are lists, so the graph serves all.
 */
static void run_step(struct program *p, int number)
{
    struct graph *g = &p->graph;
    void *captured = NULL;
    if (g->begin && number == 1 && g->begin(g->stream, 1) != 0)
        give_up("graph", "a stream cannot be captured");
    if (!g->exec) {
        launch(p, &p->append);
        launch(p, &p->attend);
    }
    if (g->begin && number == 1 &&
        (g->end(g->stream, &captured) != 0 || g->instantiate(&g->exec, captured, 0) != 0))
        give_up("graph", "it cannot be made");
    if (g->exec && g->launch(g->exec, g->stream) != 0)
        give_up("graph", "it cannot be launched");
    if (g->wait && g->wait(g->stream) != 0)
        give_up("stream", "a kernel has failed");
    if (!memory_download(&p->memory, p->o, p->device[O],
                         (size_t)(p->s.lanes * p->s.h * p->s.d) * element_bytes(p)))
        give_up("memory", "o cannot be copied from the device");
}

/* The number of the largest element of o stands for a sampler. */
static int choose(const struct program *p, int lane)
{
    const int n = p->s.h * p->s.d;
    int best = 0;
    for (int i = 1; i < n; i++)
        if (element_get(p->s.dtype, p->o, (size_t)(lane * n + i)) >
            element_get(p->s.dtype, p->o, (size_t)(lane * n + best)))
            best = i;
    return best % TABLE;
}

static void take_tokens(struct program *p)
{
    for (int i = 0; i < p->s.lanes; i++) {
        struct lane *l = &p->lane[i];
        if (!l->runs)
            continue;
        l->tokens++;
        if (l->tokens == l->runs->length) {
            end(p, i);
        } else if (l->tokens >= l->runs->prompt) {
            l->runs->id[l->tokens] = choose(p, i);
            p->generated++;
        }
    }
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tear_down(struct program *p)
{
    struct call *const call[] = {&p->append, &p->prefill, &p->attend};
    void *const block[] = {p->q,     p->k,     p->v,           p->o,          p->slot,      p->pos, p->used,
                           p->pages, p->table, p->prompt_slot, p->prompt_pos, p->free_page, p->lane};
    for (int i = 0; i < 3; i++) {
        lathe_kernel_release(call[i]->kernel);
        memory_release(&p->memory, call[i]->workspace);
    }
    for (int i = 0; i <= PROMPT_POS; i++)
        memory_release(&p->memory, p->device[i]);
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        free(block[i]);
    for (int i = 0; i < p->s.sequences; i++) {
        free(p->sequence[i].id);
        free(p->sequence[i].page);
    }
    free(p->sequence);
    lathe_ctx_destroy(p->host);
    lathe_ctx_destroy(p->ctx);
}

int main(int argc, char **argv)
{
    static struct program p;
    int steps = 0;
    double seconds = 0; /* in steps: what is compared does not count */
    set_up(&p, argc > 1 ? argv[1] : NULL);
    printf(
        "running on %s: %d lanes, %d sequences, %d pages of %d tokens, %d query heads, %d key heads of %d\n",
        lathe_ctx_device_name(p.ctx), p.s.lanes, p.s.sequences, p.s.pool, p.s.page, p.s.h, p.s.h_kv, p.s.d);
    for (; p.ended < p.s.sequences; steps++) {
        const double before = seconds_now();
        admit(&p);
        write_lists(&p);
        run_step(&p, steps);
        seconds += seconds_now() - before;
        take_tokens(&p);
    }
    printf("%ld tokens in %d steps, %.0f a second; %d of %d pages are free\n", p.generated, steps,
           (double)p.generated / seconds, p.n_free, p.s.pool);
    const int wrong = p.wrong > 0 || p.n_free != p.s.pool;
    tear_down(&p);
    return wrong;
}
