/*
 * main.c: calls two kernels that were compiled ahead of time, and compares their results with plain C. On a
 * machine without a GPU it prints the library's sentence about that and exits with 2.
 *
 * Memory comes from the CUDA driver, opened here: no toolkit is needed. Programs that use the CUDA runtime
 * have it.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"

enum { ROWS = 100, N = 256, COUNT = ROWS * N };

/* ---- memory ------------------------------------------------------------------------------------- */

struct gpu {
    int (*alloc)(uint64_t *pointer, size_t bytes);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
};

static int entry(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static int gpu_open(struct gpu *g)
{
    void *context = NULL;
    int (*init)(unsigned flags) = NULL;
    int (*retain)(void **context, int device) = NULL;
    int (*set_current)(void *context) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library && entry(library, "cuInit", &init) && entry(library, "cuMemAlloc_v2", &g->alloc) &&
           entry(library, "cuMemcpyHtoD_v2", &g->to_device) &&
           entry(library, "cuMemcpyDtoH_v2", &g->to_host) &&
           entry(library, "cuDevicePrimaryCtxRetain", &retain) &&
           entry(library, "cuCtxSetCurrent", &set_current) && init(0) == 0 && retain(&context, 0) == 0 &&
           set_current(context) == 0;
}

/* ---- kernels ------------------------------------------------------------------------------------ */

static const int64_t shape[2] = {ROWS, N};

static lathe_status softmax(void *x, void *y, lathe_error *err)
{
    kernels_softmax_args args = {0};
    args.x = (lathe_tensor){x, LATHE_F32, 2, shape, NULL};
    args.y = (lathe_tensor){y, LATHE_F32, 2, shape, NULL};
    return kernels_softmax_forward(&args, NULL, NULL, err); /* picks by dtype, n and device */
}

static lathe_status soft_sign(void *x, void *y, lathe_error *err)
{
    kernels_soft_sign_args args = {0};
    args.x = (lathe_tensor){x, LATHE_F32, 2, shape, NULL};
    args.y = (lathe_tensor){y, LATHE_F32, 2, shape, NULL};
    return kernels_soft_sign_f32_n256_forward(&args, NULL, NULL, err); /* this very kernel */
}

/* ---- the same in plain C ------------------------------------------------------------------------ */

static double largest_error(const float *x, const float *soft, const float *sign)
{
    double largest = 0.0;
    for (int row = 0; row < ROWS; row++) {
        double total = 0.0;
        for (int i = 0; i < N; i++)
            total += exp((double)x[row * N + i]);
        for (int i = row * N; i < row * N + N; i++) {
            const double off = fmax(fabs((double)soft[i] - exp((double)x[i]) / total),
                                    fabs((double)sign[i] - (double)x[i] / (1.0 + fabs((double)x[i]))));
            largest = off <= largest ? largest : off; /* a NaN stays */
        }
    }
    return largest;
}

static float x[COUNT];
static float soft[COUNT];
static float sign[COUNT];

int main(void)
{
    struct gpu gpu;
    uint64_t memory[3] = {0};
    lathe_error err;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i * 37 % 101) / 25.0f - 2.0f;
    if (!gpu_open(&gpu)) {
        if (softmax(x, soft, &err) == LATHE_OK)
            snprintf(err.text, sizeof err.text, "the CUDA driver cannot be used for memory");
        printf("no GPU: %s\n", err.text);
        return 2;
    }
    for (int i = 0; i < 3; i++)
        if (gpu.alloc(&memory[i], sizeof x) != 0)
            return fprintf(stderr, "no device memory\n"), 1;
    if (gpu.to_device(memory[0], x, sizeof x) != 0)
        return fprintf(stderr, "x cannot be copied to the device\n"), 1;
    if (softmax((void *)(uintptr_t)memory[0], (void *)(uintptr_t)memory[1], &err) != LATHE_OK ||
        soft_sign((void *)(uintptr_t)memory[0], (void *)(uintptr_t)memory[2], &err) != LATHE_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    if (gpu.to_host(soft, memory[1], sizeof x) != 0 || gpu.to_host(sign, memory[2], sizeof x) != 0)
        return fprintf(stderr, "the results cannot be copied from the device\n"), 1;
    const double error = largest_error(x, soft, sign);
    printf("softmax and soft sign of %d x %d: largest error %.2e\n", ROWS, N, error);
    return error < 1e-5 ? 0 : 1;
}
