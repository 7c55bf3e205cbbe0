/*
 * hello.c: the first program: causal attention on a GPU, or on the host where there is none.
 *
 *     cc hello.c -llathe -lm -ldl && ./a.out        (memory.h lies beside it)
 *
 * It makes random q, k and v, runs the shipped spec `causal`, and compares the result with attention
 * written out in plain C. Everything that has to do with Lathe is in attend().
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lathe.h>

#include "memory.h"

enum { HEADS = 4, LENGTH = 256, DIM = 64, COUNT = HEADS * LENGTH * DIM };

/* ---- bf16: the upper half of a float ----------------------------------------------------------- */

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The tensor where the kernel can see it. */
static void *place(const struct memory *m, void *host, size_t bytes)
{
    void *device = memory_allocate(m, bytes);
    if (device && !memory_upload(m, device, host, bytes))
        fprintf(stderr, "a tensor cannot be copied to the device\n");
    return device;
}

/* ---- Lathe -------------------------------------------------------------------------------------- */

static lathe_status attend(lathe_ctx *ctx, const struct memory *m, uint16_t *const host[4], lathe_error *err)
{
    static const char *const names[4] = {"q", "k", "v", "o"};
    const int64_t shape[4] = {1, HEADS, LENGTH, DIM};
    lathe_spec *spec = NULL;
    lathe_kernel *kernel = NULL;
    lathe_arg args[4];
    size_t size = 0;
    void *workspace = NULL;

    for (int i = 0; i < 4; i++)
        args[i] =
            (lathe_arg){names[i], place(m, host[i], COUNT * sizeof *host[i]), LATHE_BF16, 4, shape, NULL};
    lathe_status status = lathe_spec_load(&spec, "causal", err);
    if (status == LATHE_OK)
        status =
            lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, args, 4, err); /* compiles the first time */
    if (status == LATHE_OK)
        status = lathe_workspace_size(&size, kernel, args, 4, err);
    if (status == LATHE_OK && size > 0)
        workspace = memory_allocate(m, size);
    if (status == LATHE_OK)
        status = lathe_launch(kernel, args, 4, workspace, NULL, err);
    if (status == LATHE_OK && !memory_download(m, host[3], args[3].data, COUNT * sizeof *host[3])) {
        status = err->status = LATHE_CUDA;
        snprintf(err->text, sizeof err->text, "the result cannot be copied from the device");
    }
    if (status == LATHE_OK)
        printf("%s", lathe_kernel_info(kernel));
    for (int i = 0; i < 4; i++)
        memory_release(m, args[i].data);
    memory_release(m, workspace);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    return status;
}

/* ---- the same in plain C ------------------------------------------------------------------------- */

/* Row `row` of one head: softmax over the keys 0..row, then the weighted sum of their values. */
static void attend_row(double out[DIM], const uint16_t *q, const uint16_t *k, const uint16_t *v, int row)
{
    double total = 0.0;
    memset(out, 0, DIM * sizeof *out);
    for (int key = 0; key <= row; key++) {
        double score = 0.0;
        for (int i = 0; i < DIM; i++)
            score += (double)from_bf16(q[row * DIM + i]) * (double)from_bf16(k[key * DIM + i]);
        const double weight = exp(score / sqrt((double)DIM));
        total += weight;
        for (int i = 0; i < DIM; i++)
            out[i] += weight * (double)from_bf16(v[key * DIM + i]);
    }
    for (int i = 0; i < DIM; i++)
        out[i] /= total;
}

static double largest_error(uint16_t *const host[4])
{
    double largest = 0.0;
    for (int head = 0; head < HEADS; head++) {
        const int first = head * LENGTH * DIM;
        for (int row = 0; row < LENGTH; row++) {
            double wanted[DIM];
            attend_row(wanted, host[0] + first, host[1] + first, host[2] + first, row);
            for (int i = 0; i < DIM; i++) {
                const double off = fabs(wanted[i] - (double)from_bf16(host[3][first + row * DIM + i]));
                largest = off > largest || isnan(off) ? off : largest;
            }
        }
    }
    return largest;
}

int main(void)
{
    static uint16_t q[COUNT];
    static uint16_t k[COUNT];
    static uint16_t v[COUNT];
    static uint16_t o[COUNT];
    uint16_t *const host[4] = {q, k, v, o};
    const lathe_options options = LATHE_OPTIONS_INIT; /* the first GPU, or the host */
    struct memory memory;
    lathe_ctx *ctx = NULL;
    lathe_error err;

    for (int i = 0; i < 3 * COUNT; i++)
        host[i / COUNT][i % COUNT] = to_bf16((float)rand() / (float)RAND_MAX * 4.0f - 2.0f);
    if (lathe_ctx_create(&ctx, &options, &err) != LATHE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("running on %s\n", lathe_ctx_device_name(ctx));
    if (!memory_open(&memory, lathe_ctx_device(ctx))) {
        fprintf(stderr, "the CUDA driver cannot be used for memory\n");
        return 1;
    }
    const lathe_status status = attend(ctx, &memory, host, &err);
    lathe_ctx_destroy(ctx);
    if (status != LATHE_OK) {
        fprintf(stderr, "%s: %s\n", lathe_status_text(status), err.text);
        return 1;
    }
    const double error = largest_error(host);
    printf("largest difference from plain C: %.2g\n", error);
    return error < 0.02 ? 0 : 1;
}
