/*
 * aot.c: a library compiled ahead of time, on a GPU: its first call against the later ones, and its results
 * against the JIT's, bit by bit. run.sh makes the library (`gpu_aot`: causal, bf16, d 128) and compiles this
 * file against it, so it belongs to no CMake target. Exit code 77: no GPU; 1: a result differs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "gpu_aot.h"

enum { HEADS = 4, TOKENS = 500, DIM = 128, COUNT = HEADS * TOKENS * DIM, BYTES = 2 * COUNT };

static const int64_t SHAPE[] = {1, HEADS, TOKENS, DIM};

struct memory { /* q, k, v, and o of either way */
    void *at[5];
    void *workspace;
};
enum { WORKSPACE = 1 << 20 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool fill(const struct device *device, struct memory *m)
{
    static uint16_t random[COUNT];
    for (int t = 0; t < 5; t++) {
        m->at[t] = device_alloc(device, BYTES);
        for (int i = 0; i < COUNT; i++) /* bf16 between 1/4 and 2, either sign */
            random[i] = (uint16_t)((rand() & 1) << 15 | (0x3e80 + rand() % 0x180));
        if (!m->at[t] || !device_upload(device, m->at[t], random, BYTES))
            return false;
    }
    m->workspace = device_alloc(device, WORKSPACE);
    return m->workspace != NULL;
}

/* The size is asked for as a program does it: in the time of the call. */
static bool call_library(const struct device *device, const struct memory *m, double *took, lathe_error *err)
{
    gpu_aot_causal_args args = {0};
    args.q = (lathe_tensor){m->at[0], LATHE_BF16, 4, SHAPE, NULL};
    args.k = (lathe_tensor){m->at[1], LATHE_BF16, 4, SHAPE, NULL};
    args.v = (lathe_tensor){m->at[2], LATHE_BF16, 4, SHAPE, NULL};
    args.o = (lathe_tensor){m->at[3], LATHE_BF16, 4, SHAPE, NULL};
    const double start = seconds();
    size_t bytes = 0;
    const bool good =
        gpu_aot_causal_forward_workspace(&bytes, &args, err) == LATHE_OK && bytes <= WORKSPACE &&
        gpu_aot_causal_forward(&args, m->workspace, NULL, err) == LATHE_OK && device_sync(device, NULL);
    *took = seconds() - start;
    return good;
}

static bool call_jit(const struct device *device, const struct memory *m, lathe_error *err)
{
    const lathe_arg args[] = {{"q", m->at[0], LATHE_BF16, 4, SHAPE, NULL},
                              {"k", m->at[1], LATHE_BF16, 4, SHAPE, NULL},
                              {"v", m->at[2], LATHE_BF16, 4, SHAPE, NULL},
                              {"o", m->at[4], LATHE_BF16, 4, SHAPE, NULL}};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    lathe_spec *spec = NULL;
    lathe_kernel *kernel = NULL;
    options.device = device_ordinal(device);
    const bool good = lathe_ctx_create(&ctx, &options, err) == LATHE_OK &&
                      lathe_spec_load(&spec, "causal", err) == LATHE_OK &&
                      lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, args, 4, err) == LATHE_OK &&
                      lathe_launch(kernel, args, 4, m->workspace, NULL, err) == LATHE_OK &&
                      device_sync(device, NULL);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
    return good;
}

static bool same(const struct device *device, const struct memory *m)
{
    static unsigned char library[BYTES];
    static unsigned char jit[BYTES];
    return device_download(device, library, m->at[3], BYTES) &&
           device_download(device, jit, m->at[4], BYTES) && memcmp(library, jit, BYTES) == 0;
}

int main(void)
{
    char why[256];
    struct memory m;
    lathe_error err = {.status = LATHE_OK};
    double first;
    double later;
    struct device *device = device_open(false, why, sizeof why);
    if (!device) {
        printf("skipped: %s\n", why);
        return 77;
    }
    if (!fill(device, &m) || !call_library(device, &m, &first, &err) ||
        !call_library(device, &m, &later, &err) || !call_jit(device, &m, &err)) {
        printf("FAILED: %s\n", err.status == LATHE_OK ? device_error() : err.text);
        return 1;
    }
    const bool equal = same(device, &m);
    printf("first call %.2f ms beyond the second (bar: 2 ms%s); results %s\n", 1e3 * (first - later),
           first - later <= 2e-3 ? "" : ", MISS",
           equal ? "equal the JIT's bit by bit" : "DIFFER from the JIT's");
    for (int t = 0; t < 5; t++)
        device_free(device, m.at[t]);
    device_free(device, m.workspace);
    device_close(device);
    return equal ? 0 : 1;
}
