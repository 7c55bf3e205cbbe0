/*
 * dist.c: a step of generation over caches that lie on several ranks: each has the keys of a stretch of
 * positions and all queries. A rank reads its own cache, parts of rows go round, and every rank has o: scheme
 * keys of lathe_dist.h.
 *
 * Ranks are threads here, with tensors in host memory and the host device, so the program runs anywhere. With
 * GPUs a rank is a process or a thread with its own context, its tensors are in device memory, and the
 * transport is NCCL's: rank 0 calls lathe_nccl_id and tells the others, each calls lathe_nccl_open and
 * lathe_nccl_rank. The rest is the same. The exit code is 1 where o is not that of one launch over all keys.
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
    lathe_ctx *ctx;
    lathe_spec *spec;
    lathe_transport transport;
    int first, keys; /* of all keys, those of this rank's cache */
    float o[H * Q * D];
};

static float q[H * Q * D], k[H_KV * KEYS * D], v[H_KV * KEYS * D], sink[H];
static int64_t kv_tokens[MOST_RANKS];

static const int64_t SHAPE_Q[] = {1, H, Q, D}, SHAPE_H[] = {H}, STRIDE_K[] = {H_KV * KEYS * D, KEYS *D, D, 1};

static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((int)(draw(&seed) % 255) - 127) / 64.0f;
}

/* Keys and values from `first` on: a cache of its own would be another pointer. */
static int arguments(lathe_arg *arg, int first, int64_t *shape_k, float *o)
{
    arg[0] = (lathe_arg){"q", q, LATHE_F32, 4, SHAPE_Q, NULL};
    arg[1] = (lathe_arg){"k", k + first * D, LATHE_F32, 4, shape_k, STRIDE_K};
    arg[2] = (lathe_arg){"v", v + first * D, LATHE_F32, 4, shape_k, STRIDE_K};
    arg[3] = (lathe_arg){"o", o, LATHE_F32, 4, SHAPE_Q, NULL};
    arg[4] = (lathe_arg){"sink", sink, LATHE_F32, 1, SHAPE_H, NULL};
    return 5;
}

/* What every rank does. */
static void *generate(void *user)
{
    struct rank *r = user;
    const lathe_dist_options options = {.whole_q = 1, .kv_tokens = kv_tokens};
    int64_t shape_k[] = {1, H_KV, r->keys, D};
    lathe_arg arg[5];
    lathe_dist *dist;
    lathe_error err;
    const int n = arguments(arg, r->first, shape_k, r->o);
    check(lathe_dist_create(&dist, r->ctx, r->spec, LATHE_FORWARD, &r->transport, &options, arg, n, &err),
          "sinks", &err);
    void *workspace = malloc(lathe_dist_workspace_size(dist));
    if (!workspace)
        give_up("memory", "there is not enough of it");
    if (r->transport.rank == 0)
        fputs(lathe_dist_info(dist), stdout);
    check(lathe_dist_launch(dist, arg, n, workspace, NULL, &err), "launch", &err);
    free(workspace);
    lathe_dist_destroy(dist);
    return NULL;
}

static void launch_whole(lathe_ctx *ctx, lathe_spec *spec, float *o)
{
    int64_t shape_k[] = {1, H_KV, KEYS, D};
    lathe_arg arg[5];
    lathe_kernel *kernel;
    lathe_error err;
    const int n = arguments(arg, 0, shape_k, o);
    check(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, arg, n, &err), "sinks", &err);
    check(lathe_launch(kernel, arg, n, NULL, NULL, &err), "launch", &err);
    lathe_kernel_release(kernel);
}

static double largest_difference(const struct rank *rank, int ranks, const float *whole)
{
    double largest = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < H * Q * D; i++)
            largest = fmax(largest, fabs((double)rank[r].o[i] - (double)whole[i]));
    return largest;
}

int main(int argc, char **argv)
{
    static struct rank rank[MOST_RANKS];
    static float whole[H * Q * D];
    const int ranks = argc > 1 ? atoi(argv[1]) : 2;
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_threads *threads;
    lathe_ctx *ctx;
    lathe_spec *spec;
    lathe_error err;
    if (ranks < 1 || ranks > MOST_RANKS)
        give_up("ranks", "expected 1 to 8 of them");
    fill(q, H * Q * D, 1);
    fill(k, H_KV * KEYS * D, 2);
    fill(v, H_KV * KEYS * D, 3);
    fill(sink, H, 4);
    options.device = LATHE_DEVICE_HOST;
    check(lathe_ctx_create(&ctx, &options, &err), "no device", &err);
    check(lathe_spec_load(&spec, "sinks", &err), "sinks", &err);
    check(lathe_threads_create(&threads, ranks, &err), "threads", &err);
    for (int r = 0; r < ranks; r++) {
        rank[r].ctx = ctx;
        rank[r].spec = spec;
        rank[r].first = KEYS * r / ranks;
        rank[r].keys = KEYS * (r + 1) / ranks - rank[r].first;
        kv_tokens[r] = rank[r].keys;
        check(lathe_threads_rank(threads, r, &rank[r].transport, &err), "threads", &err);
    }
    for (int r = 0; r < ranks; r++)
        if (pthread_create(&rank[r].thread, NULL, generate, &rank[r]) != 0)
            give_up("threads", "none can be started");
    for (int r = 0; r < ranks; r++)
        pthread_join(rank[r].thread, NULL);
    launch_whole(ctx, spec, whole);
    const double largest = largest_difference(rank, ranks, whole);
    const int wrong = !(largest <= 1e-5);
    printf("%d tokens over %d keys on %d ranks: o differs by %.1e%s\n", Q, KEYS, ranks, largest,
           wrong ? ": WRONG" : "");
    lathe_threads_destroy(threads);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
    return wrong;
}
