/*
 * aot_program.c: a program with its kernels compiled in, for aot.sh. Launches the kernels of a library made
 * from rope and rms_norm, called `demo`; with -DWITH_JIT the same work through lathe.h, from the same
 * arguments. The fake libcuda records what arrives: both must be the same. Pointers are numbers that nothing
 * follows, but for the workspace, whose counters are set to zero.
 *
 *     aot_program attention|typed|norm|defaults|workspace|odd|wrong|unaligned|null|threads|list|log
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef WITH_JIT
#include <lathe.h>
#endif
#include "demo.h"

static void *at(unsigned long long address)
{
    return (void *)(uintptr_t)address;
}

static const int64_t q_shape[] = {2, 8, 100, 64};
static const int64_t k_shape[] = {2, 2, 333, 64};
static const int64_t q_strides[] = {51200, 64, 512, 1};
static const int64_t lse_shape[] = {2, 8, 100};
static const int64_t x_shape[] = {3, 70, 1024};
static const int64_t w_shape[] = {1024};
#define WORKSPACE       at(0x700000000000)
#define WORKSPACE_BYTES (1 << 20)
#define STREAM          ((lathe_stream)at(0x1230))

static demo_rope_args attention(void)
{
    demo_rope_args a = {0};
    a.q = (lathe_tensor){at(0x710000000000), LATHE_BF16, 4, q_shape, q_strides};
    a.k = (lathe_tensor){at(0x720000000000), LATHE_BF16, 4, k_shape, NULL};
    a.v = (lathe_tensor){at(0x730000000000), LATHE_BF16, 4, k_shape, NULL};
    a.o = (lathe_tensor){at(0x740000000000), LATHE_BF16, 4, q_shape, NULL};
    a.lse = (lathe_tensor){at(0x750000000000), LATHE_F32, 3, lse_shape, NULL};
    a.q_start = (lathe_optional_i32){1, 17};
    return a;
}

static demo_rms_norm_args norm(int defaults)
{
    demo_rms_norm_args a = {0};
    a.x = (lathe_tensor){at(0x710000000000), LATHE_BF16, 3, x_shape, NULL};
    a.y = (lathe_tensor){at(0x720000000000), LATHE_BF16, 3, x_shape, NULL};
    a.weight = (lathe_tensor){at(0x730000000000), LATHE_BF16, 1, w_shape, NULL};
    if (defaults)
        return a;
    a.eps = (lathe_optional_f32){1, 0.25f};
    a.offset = (lathe_optional_f32){1, 1.0f};
    return a;
}

static int done(lathe_status status, const lathe_error *err)
{
    if (status == LATHE_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", lathe_status_text(status), err->text);
    return 10 + (int)status;
}

#ifdef WITH_JIT

static lathe_arg named(const char *name, lathe_tensor t)
{
    return (lathe_arg){name, t.data, t.dtype, t.ndim, t.shape, t.strides};
}

static int launch(const char *name, const lathe_arg *args, int n)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    lathe_spec *spec = NULL;
    lathe_kernel *kernel = NULL;
    lathe_error err = {0};
    size_t bytes = 0;
    options.device = 0;
    lathe_status status = lathe_ctx_create(&ctx, &options, &err);
    if (!status)
        status = lathe_spec_load(&spec, name, &err);
    if (!status)
        status = lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, args, n, &err);
    if (!status)
        status = lathe_workspace_size(&bytes, kernel, args, n, &err);
    if (!status)
        printf("workspace %zu\n", bytes);
    if (!status)
        status = lathe_launch(kernel, args, n, WORKSPACE, STREAM, &err);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
    return done(status, &err);
}

static int run(const char *what)
{
    const demo_rope_args a = attention();
    demo_rms_norm_args r = norm(0);
    int32_t start = a.q_start.value;
    const lathe_arg rope[] = {named("q", a.q),     named("k", a.k),
                              named("v", a.v),     named("o", a.o),
                              named("lse", a.lse), {"q_start", &start, LATHE_I32, 0, NULL, NULL}};
    const lathe_arg rms[] = {named("x", r.x),
                             named("y", r.y),
                             named("weight", r.weight),
                             {"eps", &r.eps.value, LATHE_F32, 0, NULL, NULL},
                             {"offset", &r.offset.value, LATHE_F32, 0, NULL, NULL}};
    if (strcmp(what, "attention") == 0)
        return launch("rope", rope, 6);
    return launch("rms_norm", rms, strcmp(what, "defaults") == 0 ? 3 : 5);
}

#else

static void *call(void *status)
{
    const demo_rope_args a = attention();
    *(int *)status = (int)demo_rope_forward(&a, WORKSPACE, STREAM, NULL);
    return NULL;
}

/* Eight first calls at once. */
static int threads(void)
{
    enum { N = 8 };
    pthread_t thread[N];
    int status[N] = {0};
    int sum = 0;
    for (int i = 0; i < N; i++)
        if (pthread_create(&thread[i], NULL, call, &status[i]) != 0)
            return 1;
    for (int i = 0; i < N; i++) {
        pthread_join(thread[i], NULL);
        sum += status[i];
    }
    return sum;
}

static int run_attention(const char *what)
{
    static const int64_t odd_q[] = {2, 8, 100, 96};
    static const int64_t odd_k[] = {2, 2, 333, 96};
    lathe_error err = {0};
    demo_rope_args a = attention();
    size_t bytes = 0;
    if (strcmp(what, "odd") == 0) {
        a.q.shape = a.o.shape = odd_q;
        a.q.strides = NULL;
        a.k.shape = a.v.shape = odd_k;
    }
    if (strcmp(what, "unaligned") == 0)
        a.q.data = (char *)a.q.data + 2;
    if (strcmp(what, "wrong") == 0)
        a.k.dtype = LATHE_F16;
    if (strcmp(what, "null") == 0)
        a.v = (lathe_tensor){0};
    lathe_status status = demo_rope_forward_workspace(&bytes, &a, &err);
    if (status)
        return done(status, &err);
    printf("workspace %zu\n", bytes);
    if (strcmp(what, "typed") == 0)
        return done(demo_rope_bf16_d64_forward(&a, WORKSPACE, STREAM, &err), &err);
    return done(demo_rope_forward(&a, strcmp(what, "workspace") == 0 ? NULL : WORKSPACE, STREAM, &err), &err);
}

static int list(void)
{
    lathe_set_kernel k;
    for (int i = 0; lathe_set_kernel_at(demo_rope_forward_set(), i, &k); i++)
        printf("%s: %s (%s)\n", k.function, k.problem, k.archs);
    return 0;
}

static void hear(void *user, int level, const char *text)
{
    (void)user;
    fprintf(stderr, "log %d: %s\n", level, text);
}

static int run(const char *what)
{
    lathe_error err = {0};
    if (strcmp(what, "threads") == 0)
        return threads();
    if (strcmp(what, "list") == 0)
        return list();
    if (strcmp(what, "log") == 0) {
        const demo_rope_args a = attention();
        lathe_aot_log(hear, NULL);
        return done(demo_rope_forward(&a, WORKSPACE, STREAM, &err), &err);
    }
    if (strcmp(what, "norm") != 0 && strcmp(what, "defaults") != 0)
        return run_attention(what);
    const demo_rms_norm_args r = norm(strcmp(what, "defaults") == 0);
    printf("workspace 0\n");
    return done(demo_rms_norm_forward(&r, NULL, STREAM, &err), &err);
}

#endif

int main(int argc, char **argv)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(WORKSPACE, WORKSPACE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) != WORKSPACE)
        return 3;
    return argc == 2 ? run(argv[1]) : 2;
}
