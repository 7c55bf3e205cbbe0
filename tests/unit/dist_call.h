/*
 * dist_call.h: one problem of a spec over ranks that are threads, on the host device, beside the same on one
 * rank: of the whole problem every tensor, of a rank its part, as lathe_dist.h says.
 */
#ifndef LATHE_TESTS_DIST_CALL_H
#define LATHE_TESTS_DIST_CALL_H

#include "whole.h"
#include "gen/arguments/input_ranges.h"
#include "gen/gen.h"
#include "lathe_dist.h"
#include "shards.h"
#include "runtime/jit/jit.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24, RANKS = 8, PAGE = 4 };

struct part;
struct bench {
    lathe_ctx *ctx;
    lathe_spec *spec;
    lathe_pass pass;
    int64_t q; /* queries of all; keys and tokens are TOKENS */
    int64_t d_v, h_kv;
    int ranks;
    const int64_t *q_edge, *kv_edge; /* [ranks + 1] */
    lathe_dist_options options;
    int n;
    struct value value[MOST];
    uint64_t random;
    lathe_dtype dtype; /* of floats; those that are f32 beside f16 are so */
    pthread_mutex_t lock;
    lathe_threads *group;
    bool paged;       /* a rank's keys lie in pages of its own */
    bool nccl;        /* ranks are connected by tests/cli/fake_nccl.c */
    int failing;      /* a rank that launches with another shape; -1: none */
    bool fails_early; /* it cannot even make its object */
    /* In the place of lathe_dist_launch; NULL: none. */
    lathe_status (*launch)(struct part *p, lathe_dist *dist, void *workspace, lathe_error *err);
    lathe_status status[RANKS];
    lathe_error err[RANKS];
    char info[2048];
};

/* ---- the whole problem ------------------------------------------------------------------------------------
 */

static inline double unit(void *state)
{
    struct bench *b = state;
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(b->random >> 11) / 9007199254740992.0;
}

static inline int64_t size_of(const struct bench *b, struct sig_dim dim)
{
    const int64_t size[SYM_FREE] = {
        [SYM_B] = B,          [SYM_SEQS] = B,     [SYM_SLOTS] = B,   [SYM_H] = H,
        [SYM_H_KV] = b->h_kv, [SYM_H_K] = H_KV,   [SYM_KV] = TOKENS, [SYM_T] = TOKENS,
        [SYM_D] = D,          [SYM_D_V] = b->d_v, [SYM_D2] = D2,
    };
    const int64_t value = dim.literal > 0      ? dim.literal
                          : dim.sym == SYM_Q   ? b->q
                          : dim.sym < SYM_FREE ? size[dim.sym]
                                               : FREE;
    return value * lathe__times(dim) + dim.plus;
}

static const struct signature *sig_of(const struct bench *b, lathe_pass pass)
{
    return &b->spec->sig[pass];
}

static inline struct value *find(struct bench *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->value[i].name, name) == 0)
            return &b->value[i];
    return NULL;
}

static inline void fill(struct bench *b, struct value *v)
{
    const struct ir *ir = b->spec->ir;
    const bool gate = strcmp(v->name, "g") == 0 || strcmp(v->name, "w") == 0;
    int64_t dim[SYM_COUNT];
    for (int i = 0; i < SYM_COUNT; i++)
        dim[i] = size_of(b, (struct sig_dim){.sym = (uint8_t)i});
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, v->name) == 0 && input_fill(&ir->input[i], dim, &v->arg, unit, b))
            return;
    for (int64_t i = 0; i < v->count; i++) {
        const double drawn = unit(b);
        dtype_store(v->arg.dtype, v->arg.data, i,
                    v->arg.dtype == LATHE_I32 || v->arg.dtype == LATHE_U8 ? floor(drawn * 3)
                    : v->arg.ndim == 0                                    ? 0.25 + drawn
                    : gate                                                ? -drawn
                                                                          : drawn - 0.5);
    }
}

static inline bool is_of(const struct bench *b, const struct sig_arg *a)
{
    const bool seed = sig_of(b, LATHE_BACKWARD)->backward && strcmp(a->name, "dlse") == 0;
    const bool state = strcmp(a->name, "state") == 0 || strcmp(a->name, "state_out") == 0 ||
                       strcmp(a->name, "dstate") == 0 || strcmp(a->name, "dstate_out") == 0 ||
                       strcmp(a->name, "norm") == 0 || strcmp(a->name, "norm_out") == 0 ||
                       strcmp(a->name, "dnorm") == 0 || strcmp(a->name, "dnorm_out") == 0;
    return seed || state || !(a->role >= ROLE_Q_START || a->rare || (a->optional && a->role == ROLE_SCALAR));
}

static inline bool is_share(const struct bench *b, const char *name)
{
    const struct ir *ir = b->spec->ir;
    for (int i = 0; name[0] == 'd' && i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, name + 1) == 0)
            return true;
    return false;
}

static inline void add_value(struct bench *b, const struct sig_arg *a)
{
    struct value *v = &b->value[b->n];
    const bool whole = a->dtype == LATHE_I32 || a->dtype == LATHE_U8;
    if (find(b, a->name) || !is_of(b, a) || strcmp(a->name, "cu") == 0 || strcmp(a->name, "state_index") == 0)
        return;
    CHECK(b->n < MOST);
    *v = (struct value){.is = *a, .count = 1, .share = is_share(b, a->name)};
    memcpy(v->name, a->name, sizeof v->name);
    for (int d = 0; d < a->ndim; d++)
        v->count *= v->shape[d] = size_of(b, a->dim[d]);
    v->arg = (lathe_arg){v->name,
                         calloc((size_t)v->count + 1, 8),
                         whole                                            ? (lathe_dtype)a->dtype
                         : a->dtype == LATHE_F32 && b->dtype != LATHE_F64 ? LATHE_F32
                                                                          : b->dtype,
                         a->ndim,
                         v->shape,
                         NULL};
    CHECK(v->arg.data != NULL);
    b->n++;
    fill(b, v);
}

/* spec: a text, or the name of a shipped one. */
static inline void open_bench_sized(struct bench *b, const char *spec, int64_t q, int64_t h_kv, int64_t d_v,
                                    lathe_dtype dtype)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_error err = {0};
    options.device = LATHE_DEVICE_HOST;
    options.cache_dir = "";
    memset(b, 0, sizeof *b);
    b->random = 99;
    b->dtype = dtype;
    b->q = q;
    b->h_kv = h_kv;
    b->d_v = d_v;
    b->failing = -1;
    CHECK_EQ(lathe_ctx_create(&b->ctx, &options, &err), LATHE_OK);
    CHECK_EQ(strchr(spec, ' ') ? lathe_spec_parse(&b->spec, "t.lua", spec, strlen(spec), &err)
                               : lathe_spec_load(&b->spec, spec, &err),
             LATHE_OK);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < sig_of(b, (lathe_pass)pass)->n_args; i++)
            add_value(b, &sig_of(b, (lathe_pass)pass)->arg[i]);
    pthread_mutex_init(&b->lock, NULL);
}

static inline void open_bench_of(struct bench *b, const char *spec, int64_t q, lathe_dtype dtype)
{
    open_bench_sized(b, spec, q, H_KV, D, dtype);
}

static inline void open_bench_of_heads(struct bench *b, const char *spec, int64_t q, int64_t h_kv)
{
    open_bench_sized(b, spec, q, h_kv, D, LATHE_F64);
}

static inline void open_bench(struct bench *b, const char *spec, int64_t q)
{
    open_bench_of(b, spec, q, LATHE_F64);
}

/* An argument that is rarely there. */
static inline void give_i32(struct bench *b, const char *name, const int32_t *data)
{
    const int i = lathe__arg_find(sig_of(b, LATHE_FORWARD), name, 0);
    struct value *v = &b->value[b->n++];
    CHECK(i >= 0 && b->n < MOST);
    *v = (struct value){.is = sig_of(b, LATHE_FORWARD)->arg[i], .count = 1};
    memcpy(v->name, v->is.name, sizeof v->name);
    for (int d = 0; d < v->is.ndim; d++)
        v->count *= v->shape[d] = size_of(b, v->is.dim[d]);
    v->arg = (lathe_arg){v->name, calloc((size_t)v->count + 1, 8), LATHE_I32, v->is.ndim, v->shape, NULL};
    CHECK(v->arg.data != NULL);
    memcpy(v->arg.data, data, (size_t)v->count * sizeof *data);
}

static inline void close_bench(struct bench *b)
{
    for (int i = 0; i < b->n; i++) {
        free(b->value[i].arg.data);
        free(b->value[i].before);
    }
    pthread_mutex_destroy(&b->lock);
    lathe_spec_destroy(b->spec);
    lathe_ctx_destroy(b->ctx);
}

static const struct sig_arg *arg_of(const struct bench *b, const struct value *v)
{
    const int i = lathe__arg_find(sig_of(b, b->pass), v->name, 0);
    return i >= 0 ? &sig_of(b, b->pass)->arg[i] : NULL;
}

static inline bool is_result(const struct bench *b, const struct value *v)
{
    const struct sig_arg *a = arg_of(b, v);
    return a && lathe__is_result(a);
}

/* One rank has all of it: its results are kept. */
static inline void whole(struct bench *b, lathe_pass pass)
{
    lathe_arg arg[MOST];
    lathe_kernel *kernel;
    lathe_error err = {0};
    int n = 0;
    b->pass = pass;
    for (int i = 0; i < b->n; i++)
        if (arg_of(b, &b->value[i]))
            arg[n++] = b->value[i].arg;
    lathe_status status = lathe_kernel_get(&kernel, b->ctx, b->spec, pass, arg, n, &err);
    if (status == LATHE_OK)
        status = lathe_launch(kernel, arg, n, NULL, NULL, &err);
    CHECK_STR(status == LATHE_OK ? "" : err.text, "");
    lathe_kernel_release(kernel);
    for (int i = 0; i < b->n; i++) {
        struct value *v = &b->value[i];
        free(v->before);
        v->before = NULL;
        if (!is_result(b, v))
            continue;
        v->before = malloc((size_t)v->count * 8 + 1);
        CHECK(v->before != NULL);
        memcpy(v->before, v->arg.data, (size_t)v->count * 8);
    }
}

/* ---- a rank's part ----------------------------------------------------------------------------------------
 */

/* Where token i of a rank is among all. */
static inline int64_t place(const struct bench *b, bool keys, int rank, int64_t i)
{
    const lathe_shards shards =
        !keys && b->options.shards == LATHE_SHARDS_INTERLEAVED ? LATHE_SHARDS_CONTIGUOUS : b->options.shards;
    return shard_place(shards, b->ranks, keys ? b->kv_edge : b->q_edge, b->options.interleave, rank, i);
}

/* 0: all ranks have all of that dim; 1: a shard of queries; 2: of keys */
static inline int cut_of(const struct bench *b, const struct value *v, int d)
{
    const struct sig_dim dim = v->is.dim[d];
    if (dim.sym == SYM_T && dim.literal == 0)
        return 2;
    if (v->is.role == ROLE_INPUT || v->share)
        return 0;
    if (lathe__dim_is(dim, SYM_Q))
        return b->options.whole_q ? 0 : 1;
    return lathe__dim_is(dim, SYM_KV) ? 2 : 0;
}

/* Elements of a rank's tensor, to or from the whole's. */
static inline void move(const struct bench *b, const struct value *v, int rank, const int64_t *shape,
                        int64_t count, char *own, bool back)
{
    const size_t bytes = lathe_dtype_size(v->arg.dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i;
        int64_t at = 0;
        int64_t stride = 1;
        for (int d = v->arg.ndim - 1; d >= 0; d--) {
            const int cut = cut_of(b, v, d);
            const int64_t index = rest % shape[d];
            const int64_t each = lathe__times(v->is.dim[d]); /* rows of a token */
            at += stride * (cut ? place(b, cut == 2, rank, index / each) * each + index % each : index);
            stride *= v->shape[d];
            rest /= shape[d];
        }
        char *const all = (char *)v->arg.data + at * (int64_t)bytes;
        memcpy(back ? all : own + i * (int64_t)bytes, back ? own + i * (int64_t)bytes : all, bytes);
    }
}

struct part {
    struct bench *b;
    int rank;
    int n;
    lathe_arg arg[MOST];
    const struct value *of[MOST];
    int64_t shape[MOST][MAX_DIMS], count[MOST];
};

/* Keys in use of each sequence: those that this rank has of them. */
static inline void cut_used(const struct part *p, int k)
{
    const int64_t *edge = p->b->kv_edge + p->rank;
    for (int64_t s = 0; s < p->count[k]; s++) {
        const int64_t all = ((const int32_t *)p->arg[k].data)[s];
        const int64_t most = edge[1] - edge[0];
        int64_t used = 0;
        for (int64_t i = 0; i < most; i++)
            used += place(p->b, true, p->rank, i) < all;
        ((int32_t *)p->arg[k].data)[s] = (int32_t)used;
    }
}

/* [b,h_kv,kv,d] -> [b * kv / PAGE,h_kv,PAGE,d], f64. */
static inline void put_in_pages(struct part *p, int k)
{
    const int64_t keys = p->shape[k][2];
    const int64_t d = p->shape[k][3];
    const double *from = p->arg[k].data;
    double *to = malloc((size_t)p->count[k] * 8 + 8);
    CHECK(to != NULL && keys % PAGE == 0);
    for (int64_t i = 0; i < p->count[k]; i++) {
        const int64_t key = i / d % keys;
        const int64_t head = i / d / keys % H_KV;
        const int64_t page = i / d / keys / H_KV * (keys / PAGE) + key / PAGE;
        to[((page * H_KV + head) * PAGE + key % PAGE) * d + i % d] = from[i];
    }
    free(p->arg[k].data);
    p->arg[k].data = to;
    p->shape[k][0] *= keys / PAGE;
    p->shape[k][2] = PAGE;
}

static inline void take_pages(struct part *p)
{
    const int k = p->n++;
    const int64_t most = (p->b->kv_edge[p->rank + 1] - p->b->kv_edge[p->rank]) / PAGE;
    int32_t *pages = malloc((size_t)(B * most) * sizeof *pages + 8);
    CHECK(pages != NULL);
    for (int i = 0; i < k; i++)
        if (strcmp(p->arg[i].name, "k") == 0 || strcmp(p->arg[i].name, "v") == 0)
            put_in_pages(p, i);
    for (int64_t i = 0; i < B * most; i++)
        pages[i] = (int32_t)i;
    p->shape[k][0] = B;
    p->shape[k][1] = most;
    p->of[k] = find(p->b, "q");
    p->arg[k] = (lathe_arg){"pages", pages, LATHE_I32, 2, p->shape[k], NULL};
}

static inline void take(struct part *p)
{
    struct bench *b = p->b;
    for (int i = 0; i < b->n; i++) {
        const struct value *v = &b->value[i];
        const int k = p->n;
        if (!arg_of(b, v))
            continue;
        p->count[k] = 1;
        for (int d = 0; d < v->arg.ndim; d++) {
            const int cut = cut_of(b, v, d);
            const int64_t *edge = cut == 2 ? b->kv_edge : b->q_edge;
            const int64_t each = lathe__times(v->is.dim[d]);
            p->shape[k][d] = cut ? (edge[p->rank + 1] - edge[p->rank]) * each : v->shape[d];
            p->count[k] *= p->shape[k][d];
        }
        char *own = malloc((size_t)p->count[k] * 8 + 8);
        CHECK(own != NULL);
        move(b, v, p->rank, p->shape[k], p->count[k], own, false);
        for (int64_t j = 0; is_result(b, v) && j < p->count[k]; j++)
            dtype_store(v->arg.dtype, own, j, (double)NAN);
        p->of[k] = v;
        p->arg[p->n++] = (lathe_arg){v->name, own, v->arg.dtype, v->arg.ndim, p->shape[k], NULL};
        if (strcmp(v->name, "used_kv") == 0 && b->options.whole_q) /* heads: of all */
            cut_used(p, k);
    }
    if (b->paged)
        take_pages(p);
}

/* Results go to the whole's: shares are added, what all ranks have is the same. */
static inline void give(struct part *p)
{
    struct bench *b = p->b;
    pthread_mutex_lock(&b->lock);
    for (int k = 0; k < p->n; k++) {
        const struct value *v = p->of[k];
        void *const own = p->arg[k].data;
        const lathe_dtype dtype = v->arg.dtype;
        bool cut = false;
        for (int d = 0; d < v->arg.ndim; d++)
            cut |= cut_of(b, v, d) != 0;
        for (int64_t j = 0; is_result(b, v) && v->share && !cut && j < p->count[k]; j++)
            dtype_store(dtype, own, j, dtype_load(dtype, own, j) + dtype_load(dtype, v->arg.data, j));
        for (int64_t j = 0; is_result(b, v) && !v->share && !cut && j < p->count[k]; j++)
            if (!isnan(dtype_load(dtype, v->arg.data, j)) &&
                dtype_load(dtype, own, j) != dtype_load(dtype, v->arg.data, j)) {
                fprintf(stderr, "rank %d: %s[%lld] is not as elsewhere\n", p->rank, v->name, (long long)j);
                CHECK(false);
            }
        if (is_result(b, v))
            move(b, v, p->rank, p->shape[k], p->count[k], own, true);
    }
    pthread_mutex_unlock(&b->lock);
}

static inline lathe_status launch_rank(struct part *p, const lathe_transport *transport, lathe_error *err)
{
    struct bench *b = p->b;
    lathe_dist *dist;
    const int n = b->failing == p->rank && b->fails_early ? 1 : p->n;
    lathe_status status =
        lathe_dist_create(&dist, b->ctx, b->spec, b->pass, transport, &b->options, p->arg, n, err);
    if (status != LATHE_OK)
        return status;
    if (p->rank == 0)
        snprintf(b->info, sizeof b->info, "%s", lathe_dist_info(dist));
    const size_t bytes = lathe_dist_workspace_size(dist) / 256 * 256 + 256;
    void *workspace = aligned_alloc(256, bytes);
    CHECK(workspace != NULL);
    memset(workspace, 0xff, bytes);
    if (b->failing == p->rank)
        p->shape[0][0]++;
    status = b->launch ? b->launch(p, dist, workspace, err)
                       : lathe_dist_launch(dist, p->arg, p->n, workspace, NULL, err);
    free(workspace);
    lathe_dist_destroy(dist);
    return status;
}

static inline lathe_status compute(struct part *p, lathe_error *err)
{
    lathe_transport transport;
    lathe_nccl *nccl = NULL;
    char id[LATHE_NCCL_ID_BYTES];
    if (!p->b->nccl) {
        CHECK_EQ(lathe_threads_rank(p->b->group, p->rank, &transport, err), LATHE_OK);
        return launch_rank(p, &transport, err);
    }
    CHECK_EQ(lathe_nccl_id(id, err), LATHE_OK);
    CHECK_EQ(lathe_nccl_open(&nccl, id, NULL, p->rank, p->b->ranks, err), LATHE_OK);
    CHECK_EQ(lathe_nccl_rank(nccl, &transport, err), LATHE_OK);
    const lathe_status status = launch_rank(p, &transport, err);
    lathe_nccl_close(nccl);
    return status;
}

static inline void *run_rank(void *arg)
{
    struct part *p = arg;
    struct bench *b = p->b;
    take(p);
    b->status[p->rank] = compute(p, &b->err[p->rank]);
    if (b->status[p->rank] == LATHE_OK)
        give(p);
    for (int k = 0; k < p->n; k++)
        free(p->arg[k].data);
    return NULL;
}

/* Keys of interleaved shards, counted on from rank to rank. */
static inline void interleave(const struct bench *b, int ranks, int64_t edge[RANKS + 1])
{
    shard_interleave(ranks, b->options.interleave ? b->options.interleave : TOKENS, TOKENS, edge);
}

/* Over ranks that begin at these edges; what each says is kept. */
static inline void run(struct bench *b, int ranks, const int64_t *q_edge, const int64_t *kv_edge)
{
    pthread_t thread[RANKS];
    int64_t q_tokens[RANKS];
    int64_t kv_tokens[RANKS];
    struct part *part = calloc(RANKS, sizeof *part);
    lathe_error err;
    CHECK(part != NULL);
    b->ranks = ranks;
    b->q_edge = q_edge;
    b->kv_edge = kv_edge;
    b->options.q_tokens = q_tokens;
    b->options.kv_tokens = kv_tokens;
    for (int i = 0; i < b->n; i++)
        for (int64_t k = 0; is_result(b, &b->value[i]) && k < b->value[i].count; k++)
            dtype_store(b->value[i].arg.dtype, b->value[i].arg.data, k, b->value[i].share ? 0 : (double)NAN);
    CHECK_EQ(lathe_threads_create(&b->group, ranks, &err), LATHE_OK);
    for (int r = 0; r < ranks; r++) {
        q_tokens[r] = b->options.whole_q ? b->q : q_edge[r + 1] - q_edge[r];
        kv_tokens[r] = kv_edge[r + 1] - kv_edge[r];
        part[r].b = b;
        part[r].rank = r;
        b->err[r] = (lathe_error){0};
    }
    for (int r = 0; r < ranks; r++)
        CHECK_EQ(pthread_create(&thread[r], NULL, run_rank, &part[r]), 0);
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    lathe_threads_destroy(b->group);
    free(part);
}

static inline void expect(const struct bench *b, const char *spec)
{
    for (int r = 0; r < b->ranks; r++) {
        if (b->status[r] != LATHE_OK)
            fprintf(stderr, "%s: rank %d of %d: %s\n", spec, r, b->ranks, b->err[r].text);
        CHECK_EQ(b->status[r], LATHE_OK);
    }
}

/* bound 0: the same bits */
static inline void compare(struct bench *b, const char *spec, double bound)
{
    expect(b, spec);
    for (int i = 0; i < b->n; i++) {
        const struct value *v = &b->value[i];
        for (int64_t k = 0; v->before && k < v->count; k++) {
            const double now = dtype_load(v->arg.dtype, v->arg.data, k);
            const double was = dtype_load(v->arg.dtype, v->before, k);
            if (now != was && !(isnan(now) && isnan(was)) && !(fabs(now - was) <= bound * (1 + fabs(was)))) {
                fprintf(stderr, "%s over %d ranks: %s[%lld] is %.17g, of one rank %.17g\n%s", spec, b->ranks,
                        v->name, (long long)k, now, was, b->info);
                CHECK(false);
            }
        }
    }
}

/* What an object is refused for that only tells what it would do, or what it tells. */
static inline lathe_status refuse_of(struct bench *b, int ranks, const lathe_dist_options *o,
                                     const char *text)
{
    struct part *p = calloc(1, sizeof *p);
    lathe_transport t = {.rank = 0, .ranks = ranks};
    lathe_dist *dist;
    lathe_error err = {0};
    CHECK(p != NULL);
    p->b = b;
    b->q_edge = b->kv_edge = (const int64_t[]){0, TOKENS};
    take(p);
    const lathe_status status = lathe_dist_create(&dist, b->ctx, b->spec, b->pass, &t, o, p->arg, p->n, &err);
    CHECK_HAS(status == LATHE_OK ? lathe_dist_info(dist) : err.text, text);
    lathe_dist_destroy(dist);
    for (int k = 0; k < p->n; k++)
        free(p->arg[k].data);
    free(p);
    return status;
}

static inline lathe_status refuse(struct bench *b, const lathe_dist_options *o, const char *text)
{
    return refuse_of(b, 3, o, text);
}

#endif
