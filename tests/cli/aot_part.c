/*
 * aot_part.c: a call whose heads or keys are a part of all, for aot.sh: by a library made from alibi, called
 * `part`; with -DWITH_JIT through lathe.h. The fake libcuda records what arrives: both must be the same.
 *
 *     aot_part heads|keys
 */
#include <stdio.h>
#include <string.h>

#ifdef WITH_JIT
#include <lathe.h>
#endif
#include "part.h"

static const int64_t shape[] = {8, 4, 128, 64};

static lathe_tensor tensor(unsigned long long address)
{
    return (lathe_tensor){(void *)(uintptr_t)address, LATHE_BF16, 4, shape, NULL};
}

#ifdef WITH_JIT

static lathe_arg named(const char *name, lathe_tensor t)
{
    return (lathe_arg){name, t.data, t.dtype, t.ndim, t.shape, t.strides};
}

static lathe_status run(const part_alibi_args *a, lathe_error *err)
{
    int32_t start = a->h_start.given ? a->h_start.value : a->kv_start.value;
    int32_t total = a->h_start.given ? a->n_h.value : a->len_kv.value;
    const lathe_arg args[] = {named("q", a->q),
                              named("k", a->k),
                              named("v", a->v),
                              named("o", a->o),
                              {a->h_start.given ? "h_start" : "kv_start", &start, LATHE_I32, 0, NULL, NULL},
                              {a->h_start.given ? "n_h" : "len_kv", &total, LATHE_I32, 0, NULL, NULL}};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    lathe_spec *spec = NULL;
    lathe_kernel *kernel = NULL;
    options.device = 0;
    lathe_status status = lathe_ctx_create(&ctx, &options, err);
    if (!status)
        status = lathe_spec_load(&spec, "alibi", err);
    if (!status)
        status = lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, args, 6, err);
    if (!status)
        status = lathe_launch(kernel, args, 6, NULL, NULL, err);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
    return status;
}

#else

static lathe_status run(const part_alibi_args *a, lathe_error *err)
{
    return part_alibi_forward(a, NULL, NULL, err);
}

#endif

int main(int argc, char **argv)
{
    lathe_error err = {0};
    part_alibi_args a = {.q = tensor(0x710000000000),
                         .k = tensor(0x720000000000),
                         .v = tensor(0x730000000000),
                         .o = tensor(0x740000000000)};
    if (argc > 1 && strcmp(argv[1], "heads") == 0) {
        a.h_start = (lathe_optional_i32){1, 4};
        a.n_h = (lathe_optional_i32){1, 8};
    } else {
        a.kv_start = (lathe_optional_i32){1, 128};
        a.len_kv = (lathe_optional_i32){1, 300};
    }
    const lathe_status status = run(&a, &err);
    if (status)
        fprintf(stderr, "%s: %s\n", lathe_status_text(status), err.text);
    return (int)status;
}
