/*
 * dist.c: a step of generation over caches that lie on several ranks: each has the keys of a stretch of
 * positions and all queries. A rank reads its own cache, parts of rows go round, and every rank has o: scheme
 * keys of lathe_dist.h.
 *
 * Ranks are threads of this program. Where there are as many GPUs, and NCCL, each has one of them; else they
 * are all on the host device, which needs neither. Ranks that are processes do the same: rank 0 tells the
 * others the id. The exit code is 1 where o is not that of one launch over all keys.
 *
 *     build/dist [RANKS]
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <lathe_dist.h>

#include "call.h"

enum { H = 8, H_KV = 2, Q = 2, KEYS = 96, D = 32, MOST_RANKS = 8 }; /* the last Q tokens are asked about */

struct rank {
    pthread_t thread;
    int number, ranks, gpu; /* gpu: it has the GPU of its number, and NCCL connects it */
    lathe_threads *threads;
    const char *id;  /* of NCCL */
    int first, keys; /* of all keys, those of this rank's cache */
    float o[H * Q * D];
};

static float q[H * Q * D], k[H_KV * KEYS * D], v[H_KV * KEYS * D], sink[H];
static int64_t kv_tokens[MOST_RANKS];

static const int64_t SHAPE_Q[] = {1, H, Q, D}, SHAPE_H[] = {H};

static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((int)(draw(&seed) % 255) - 127) / 64.0f;
}

/* Tensors in memory of their rank. */
static int arguments(lathe_arg *arg, void *const data[5], const int64_t *shape_k)
{
    arg[0] = (lathe_arg){"q", data[0], LATHE_F32, 4, SHAPE_Q, NULL};
    arg[1] = (lathe_arg){"k", data[1], LATHE_F32, 4, shape_k, NULL};
    arg[2] = (lathe_arg){"v", data[2], LATHE_F32, 4, shape_k, NULL};
    arg[3] = (lathe_arg){"o", data[3], LATHE_F32, 4, SHAPE_Q, NULL};
    arg[4] = (lathe_arg){"sink", data[4], LATHE_F32, 1, SHAPE_H, NULL};
    return 5;
}

static void *upload(const struct memory *m, const void *host, size_t bytes)
{
    void *data = memory_allocate(m, bytes);
    if (!data || !memory_upload(m, data, host, bytes))
        give_up("memory", "there is not enough of it");
    return data;
}

/* A rank's cache, as it would have been filled token by token: its own keys one behind the other. */
static void *upload_keys(const struct memory *m, const float *all, int first, int keys)
{
    const size_t row = (size_t)(keys * D);
    float *own = calloc(H_KV * row + 1, sizeof *own);
    if (!own)
        give_up("memory", "there is not enough of it");
    for (int h = 0; h < H_KV; h++)
        memcpy(own + (size_t)h * row, all + (h * KEYS + first) * D, row * sizeof *own);
    void *data = upload(m, own, (H_KV * row + 1) * sizeof *own);
    free(own);
    return data;
}

/* The only part that asks what connects the ranks. */
static lathe_nccl *connect_ranks(const struct rank *r, lathe_transport *transport)
{
    lathe_error err;
    lathe_nccl *nccl = NULL;
    if (!r->gpu) {
        check(lathe_threads_rank(r->threads, r->number, transport, &err), "threads", &err);
        return NULL;
    }
    check(lathe_nccl_open(&nccl, r->id, NULL, r->number, r->ranks, &err), "NCCL", &err);
    check(lathe_nccl_rank(nccl, transport, &err), "NCCL", &err);
    return nccl;
}

/* One step. A program that goes on generating keeps the object, and launches it for every token. */
static void step(struct rank *r, lathe_ctx *ctx, const struct memory *m, const lathe_transport *transport,
                 const lathe_arg *arg, int n)
{
    const lathe_dist_options options = {.whole_q = 1, .kv_tokens = kv_tokens};
    lathe_dist *dist;
    lathe_spec *spec;
    lathe_error err;
    check(lathe_spec_load(&spec, "sinks", &err), "sinks", &err);
    check(lathe_dist_create(&dist, ctx, spec, LATHE_FORWARD, transport, &options, arg, n, &err), "sinks",
          &err);
    void *workspace = memory_allocate(m, lathe_dist_workspace_size(dist));
    if (!workspace)
        give_up("memory", "there is not enough of it");
    if (r->number == 0)
        fputs(lathe_dist_info(dist), stdout);
    check(lathe_dist_launch(dist, arg, n, workspace, NULL, &err), "launch", &err);
    if (!memory_download(m, r->o, arg[3].data, sizeof r->o)) /* waits */
        give_up("memory", "o cannot be copied from the device");
    memory_release(m, workspace);
    lathe_dist_destroy(dist);
    lathe_spec_destroy(spec);
}

/* What every rank does. */
static void *generate(void *user)
{
    struct rank *r = user;
    const int64_t shape_k[] = {1, H_KV, r->keys, D};
    lathe_options options = LATHE_OPTIONS_INIT;
    struct memory m;
    lathe_transport transport;
    lathe_ctx *ctx;
    lathe_arg arg[5];
    lathe_error err;
    options.device = r->gpu ? r->number : LATHE_DEVICE_HOST;
    check(lathe_ctx_create(&ctx, &options, &err), "no device", &err);
    if (!memory_open(&m, lathe_ctx_device(ctx)))
        give_up("memory", "the CUDA driver lacks an entry");
    void *const data[5] = {upload(&m, q, sizeof q), upload_keys(&m, k, r->first, r->keys),
                           upload_keys(&m, v, r->first, r->keys), upload(&m, r->o, sizeof r->o),
                           upload(&m, sink, sizeof sink)};
    const int n = arguments(arg, data, shape_k);
    lathe_nccl *nccl = connect_ranks(r, &transport);
    step(r, ctx, &m, &transport, arg, n);
    lathe_nccl_close(nccl);
    for (int i = 0; i < 5; i++)
        memory_release(&m, data[i]);
    lathe_ctx_destroy(ctx);
    return NULL;
}

/* One launch over all keys, on the host device. */
static void launch_whole(float *o)
{
    static const int64_t shape_k[] = {1, H_KV, KEYS, D};
    void *const data[5] = {q, k, v, o, sink};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx;
    lathe_spec *spec;
    lathe_kernel *kernel;
    lathe_arg arg[5];
    lathe_error err;
    const int n = arguments(arg, data, shape_k);
    options.device = LATHE_DEVICE_HOST;
    check(lathe_ctx_create(&ctx, &options, &err), "no device", &err);
    check(lathe_spec_load(&spec, "sinks", &err), "sinks", &err);
    check(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, arg, n, &err), "sinks", &err);
    check(lathe_launch(kernel, arg, n, NULL, NULL, &err), "launch", &err);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

/* Is there a GPU for each rank, and NCCL? id: what its ranks find each other by. */
static int find_gpus(int ranks, char *id)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx;
    options.device = ranks - 1;
    if (lathe_ctx_create(&ctx, &options, NULL) != LATHE_OK)
        return 0;
    lathe_ctx_destroy(ctx);
    return lathe_nccl_id(id, NULL) == LATHE_OK;
}

static double largest_difference(const struct rank *rank, int ranks, const float *whole)
{
    double largest = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < H * Q * D; i++)
            largest = fmax(largest, fabs((double)rank[r].o[i] - (double)whole[i]));
    return largest;
}

static void make_ranks(struct rank *rank, int ranks, const char *id, int gpu, lathe_threads *threads)
{
    for (int r = 0; r < ranks; r++) {
        const int first = KEYS * r / ranks;
        const int end = KEYS * (r + 1) / ranks;
        rank[r] = (struct rank){.number = r,
                                .ranks = ranks,
                                .gpu = gpu,
                                .threads = threads,
                                .id = id,
                                .first = first,
                                .keys = end - first};
        kv_tokens[r] = end - first;
    }
}

int main(int argc, char **argv)
{
    static struct rank rank[MOST_RANKS];
    static float whole[H * Q * D];
    static char id[LATHE_NCCL_ID_BYTES];
    const int ranks = argc > 1 ? atoi(argv[1]) : 2;
    lathe_threads *threads;
    lathe_error err;
    if (ranks < 1 || ranks > MOST_RANKS)
        give_up("ranks", "expected 1 to 8 of them");
    fill(q, H * Q * D, 1);
    fill(k, H_KV * KEYS * D, 2);
    fill(v, H_KV * KEYS * D, 3);
    fill(sink, H, 4);
    const int gpu = find_gpus(ranks, id);
    check(lathe_threads_create(&threads, ranks, &err), "threads", &err);
    make_ranks(rank, ranks, id, gpu, threads);
    for (int r = 0; r < ranks; r++)
        if (pthread_create(&rank[r].thread, NULL, generate, &rank[r]) != 0)
            give_up("threads", "none can be started");
    for (int r = 0; r < ranks; r++)
        pthread_join(rank[r].thread, NULL);
    lathe_threads_destroy(threads);
    launch_whole(whole);
    const double largest = largest_difference(rank, ranks, whole);
    const int wrong = !(largest <= (gpu ? 1e-4 : 1e-5));
    printf("%d tokens over %d keys on %d ranks (%s): o differs by %.1e%s\n", Q, KEYS, ranks,
           gpu ? "GPUs, by NCCL" : "threads, on the host device", largest, wrong ? ": WRONG" : "");
    return wrong;
}
