/*
 * nsa.c: native sparse attention of two packed sequences by lathe_nsa.h, forward and backward: what a program
 * of its own has to do. Random numbers in bf16 on a GPU; on the host device, without one, in f64 and shorter.
 *
 *     build/nsa
 */
#include <stdio.h>

#include <lathe_nsa.h>

#include "memory.h"

enum { MOST_TENSORS = 16 };

static int give_up(const char *why)
{
    fprintf(stderr, "nsa: %s\n", why);
    return 1;
}

/* n numbers from -1 to 1, in memory of the device. */
static void *numbers(const struct memory *memory, size_t n, lathe_dtype dtype)
{
    static unsigned state = 1;
    const size_t bytes = n * lathe_dtype_size(dtype);
    char *host = malloc(bytes);
    void *device = memory_allocate(memory, bytes);
    for (size_t i = 0; host && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const double value = (double)(state >> 8) / (1 << 23) - 1;
        const float narrow = (float)value;
        if (dtype == LATHE_F64)
            memcpy(host + i * 8, &value, 8);
        else /* the upper half of a float, little-endian */
            memcpy(host + i * 2, (const char *)&narrow + 2, 2);
    }
    if (!host || !device || !memory_upload(memory, device, host, bytes))
        exit(give_up("there is not enough memory"));
    free(host);
    return device;
}

int main(void)
{
    static const int32_t longer[] = {3000, 1096};
    static const int32_t shorter[] = {150, 42};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    lathe_nsa *nsa = NULL;
    struct memory memory;
    lathe_error err;
    if (lathe_ctx_create(&ctx, &options, &err))
        return give_up(err.text);
    const int host = lathe_ctx_device(ctx) == LATHE_DEVICE_HOST;
    const lathe_dtype dtype = host ? LATHE_F64 : LATHE_BF16;
    const lathe_nsa_sizes s = {.h = host ? 4 : 64,
                               .h_kv = host ? 2 : 4,
                               .d = host ? 16 : 128,
                               .d_v = host ? 16 : 128,
                               .block = host ? 16 : 64,
                               .blocks = host ? 4 : 16,
                               .window = host ? 32 : 512,
                               .sequences = 2,
                               .lengths = host ? shorter : longer,
                               .dtype = dtype,
                               .backward = 1};
    const size_t tokens = (size_t)s.lengths[0] + (size_t)s.lengths[1];
    const size_t q = tokens * (size_t)(s.h * s.d);
    const size_t k = tokens * (size_t)(s.h_kv * s.d);
    const size_t v = tokens * (size_t)(s.h_kv * s.d_v);
    const size_t o = tokens * (size_t)(s.h * s.d_v);
    const size_t gate = tokens * (size_t)s.h;
    const size_t length[MOST_TENSORS] = {q, k, v, gate, gate,     gate,     o,
                                         o, q, k, v,    2 * gate, 2 * gate, 2 * gate};
    void *data[MOST_TENSORS] = {NULL};
    if (!memory_open(&memory, lathe_ctx_device(ctx)))
        return give_up("the driver lacks an entry");
    for (int i = 0; length[i]; i++)
        data[i] = numbers(&memory, length[i], dtype); /* gates' gradients are f32 beside bf16 */
    const lathe_nsa_tensors t = {.q = data[0],
                                 .k = data[1],
                                 .v = data[2],
                                 .g_cmp = data[3],
                                 .g_slc = data[4],
                                 .g_swa = data[5],
                                 .o = data[6],
                                 .dout = data[7],
                                 .dq = data[8],
                                 .dk = data[9],
                                 .dv = data[10],
                                 .dg_cmp = data[11],
                                 .dg_slc = data[12],
                                 .dg_swa = data[13]};
    if (lathe_nsa_create(&nsa, ctx, &s, &err))
        return give_up(err.text);
    void *workspace = memory_allocate(&memory, lathe_nsa_workspace_size(nsa));
    if (lathe_nsa_attach(nsa, workspace, &err) || lathe_nsa_forward(nsa, &t, NULL, &err) ||
        lathe_nsa_backward(nsa, &t, NULL, &err))
        return give_up(err.text);
    unsigned char last[8] = {0}; /* waits for all of it */
    memory_download(&memory, last, data[9], lathe_dtype_size(dtype));
    printf("%s: %zu tokens in 2 sequences, both passes; %zu bytes of workspace\n", lathe_ctx_device_name(ctx),
           tokens, lathe_nsa_workspace_size(nsa));
    for (int i = 0; length[i]; i++)
        memory_release(&memory, data[i]);
    memory_release(&memory, workspace);
    lathe_nsa_destroy(nsa);
    lathe_ctx_destroy(ctx);
    return 0;
}
