/*
 * jit.c: the whole way from a spec to a launch, with NVRTC and the cache as they are and a driver that only
 * pretends: which calls compile, which come from memory, which from disk; what a kernel refuses; who frees
 * what. Needs NVRTC, no GPU.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu_time.h"
#include "pretended.h"

TEST(lengths_and_repeats_do_not_compile)
{
    struct messages m;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("softmax");
    lathe_kernel *first = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_EQ(m.compiled, 1);
    CHECK_EQ(seen.loads, 1);
    CHECK_HAS(lathe_kernel_info(first), "77 registers");
    CHECK_HAS(lathe_kernel_info(first), "from: compiler");
    lathe_kernel *again = get(ctx, spec, 7, 1024, LATHE_BF16);
    CHECK(again == first);
    lathe_kernel *other = get(ctx, spec, 100, 1024, LATHE_F32);
    CHECK(other != first);
    CHECK_EQ(m.compiled, 2);
    CHECK_EQ(m.warnings, 0);
    lathe_kernel_release(again);
    lathe_kernel_release(other);
    lathe_ctx_destroy(ctx); /* a kernel outlives its context and its spec */
    lathe_spec_destroy(spec);
    CHECK_EQ(seen.unloads, 0);
    CHECK_HAS(lathe_kernel_info(first), "key: ");
    lathe_kernel_release(first);
    CHECK_EQ(seen.unloads, 2);
}

/* How many keys there are in all is a value of the call: a kernel that is asked for does not know it yet. */
TEST(a_part_of_the_keys_is_launched)
{
    struct messages m;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("causal");
    _Alignas(256) static char data[1 << 20];
    int32_t q_start = 3072, kv_start = 2048, len_kv = 4096;
    const int64_t rows[] = {1, 2, 512, 64};
    const int64_t keys[] = {1, 2, 1024, 64};
    const lathe_arg arg[] = {
        {.name = "q", .data = data, .dtype = LATHE_F32, .ndim = 4, .shape = rows},
        {.name = "k", .data = data, .dtype = LATHE_F32, .ndim = 4, .shape = keys},
        {.name = "v", .data = data, .dtype = LATHE_F32, .ndim = 4, .shape = keys},
        {.name = "o", .data = data + (1 << 19), .dtype = LATHE_F32, .ndim = 4, .shape = rows},
        {.name = "q_start", .data = &q_start, .dtype = LATHE_I32},
        {.name = "kv_start", .data = &kv_start, .dtype = LATHE_I32},
        {.name = "len_kv", .data = &len_kv, .dtype = LATHE_I32}};
    const int n = (int)(sizeof arg / sizeof *arg);
    lathe_kernel *kernel = NULL;
    lathe_error err;
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, arg, n, &err), LATHE_OK);
    CHECK_EQ(lathe_launch(kernel, arg, n, data, NULL, &err), LATHE_OK);
    kv_start = 3073;
    CHECK_EQ(lathe_launch(kernel, arg, n, data, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "argument 'kv_start': expected from 0 to 3072, with kv=1024 of len_kv=4096 in this "
                        "call, given 3073");
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

TEST(the_same_texts_share_a_module)
{
    struct messages m;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *one = load("softmax");
    lathe_spec *two = load("softmax");
    lathe_kernel *a = get(ctx, one, 100, 1024, LATHE_BF16);
    lathe_kernel *b = get(ctx, two, 100, 1024, LATHE_BF16);
    CHECK(a != b);
    CHECK(a->module == b->module);
    CHECK_EQ(m.compiled, 1);
    lathe_kernel_release(a);
    lathe_kernel_release(b);
    lathe_spec_destroy(one);
    lathe_spec_destroy(two);
    lathe_ctx_destroy(ctx);
}

/* As a second process would find it: neither compiled nor even NVRTC opened. */
TEST(a_warm_disk_needs_no_compiler)
{
    struct messages m;
    lathe_spec *spec = load("softmax");
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_BF16));
    lathe_ctx_destroy(ctx);
    ctx = fake_ctx(&m);
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_EQ(m.compiled, 0);
    CHECK(ctx->compiler == NULL);
    CHECK_HAS(lathe_kernel_info(kernel), "from: disk cache");
    lathe_kernel_release(kernel);
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_F16)); /* that one is not there */
    CHECK_EQ(m.compiled, 1);
    CHECK(ctx->compiler != NULL);
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
}

static void rewrite_note(const lathe_ctx *ctx, const char *from, const char *to)
{
    char text[4096] = "";
    const int fd = openat(ctx->cache.dir_fd, COMPILER_NOTE, O_RDWR);
    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof text - 1) > 0);
    char *at = strstr(text, from);
    CHECK(at != NULL);
    memcpy(at, to, strlen(to));
    CHECK_EQ(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
    close(fd);
}

/* A note about another compiler: its key is not used for what this compiler makes. */
TEST(a_wrong_note_is_found_out)
{
    struct messages m;
    struct cache_list list;
    lathe_spec *spec = load("softmax");
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_kernel *right = get(ctx, spec, 100, 1024, LATHE_BF16);
    rewrite_note(ctx, "\nnvrtc ", "\nnVrtc ");
    lathe_ctx *other = fake_ctx(&m);
    lathe_kernel *kernel = get(other, spec, 100, 1024, LATHE_BF16);
    CHECK(memcmp(kernel->key, right->key, KEY_BYTES) == 0);
    CHECK_EQ(m.compiled, 0); /* the right entry was found in the end */
    CHECK_EQ(lathe__cache_list(&other->cache, &list, NULL), LATHE_OK);
    CHECK_EQ(list.n, 1);
    CHECK_HAS(list.item[0].label, "softmax");
    lathe__cache_list_free(&list);
    lathe_kernel_release(kernel);
    lathe_kernel_release(right);
    lathe_ctx_destroy(other);
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
}

struct asker {
    lathe_ctx *ctx;
    const lathe_spec *spec;
};

static void *ask(void *user)
{
    const struct asker *a = user;
    return get(a->ctx, a->spec, 100, 4096, LATHE_BF16);
}

TEST(eight_threads_compile_once)
{
    struct messages m;
    struct asker asker = {fake_ctx(&m), load("softmax")};
    pthread_t thread[8];
    void *kernel[8];
    for (int i = 0; i < 8; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, ask, &asker), 0);
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(pthread_join(thread[i], &kernel[i]), 0);
        CHECK(kernel[i] == kernel[0]);
    }
    CHECK_EQ(m.compiled, 1);
    CHECK_EQ(seen.loads, 1);
    for (int i = 0; i < 8; i++)
        lathe_kernel_release(kernel[i]);
    lathe_spec_destroy((lathe_spec *)(uintptr_t)asker.spec);
    lathe_ctx_destroy(asker.ctx);
}

static void refused(const lathe_kernel *kernel, const struct call *c, int n, const char *part)
{
    lathe_error err;
    CHECK_EQ(lathe_launch(kernel, c->arg, n, NULL, NULL, &err), LATHE_ARG);
    CHECK_HAS(err.text, part);
    CHECK_EQ(seen.launches, 0);
}

TEST(a_kernel_refuses_what_it_was_not_built_for)
{
    struct messages m;
    struct call c;
    lathe_error err;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("softmax");
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    make_call(&c, 100, 2048, LATHE_BF16);
    refused(kernel, &c, 2, "built for n=1024, given 2048");
    make_call(&c, 100, 1024, LATHE_F16);
    refused(kernel, &c, 2, "'x': this kernel was built for bf16, given f16");
    make_call(&c, 100, 1024, LATHE_BF16);
    refused(kernel, &c, 1, "'y'");
    c.arg[1].data = NULL;
    refused(kernel, &c, 2, "'y'");
    make_call(&c, 0, 1024, LATHE_BF16); /* no rows: nothing to do, and no error */
    CHECK_EQ(lathe_launch(kernel, c.arg, 2, NULL, NULL, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 0);
    make_call(&c, 333, 1024, LATHE_BF16);
    CHECK_EQ(lathe_launch(kernel, c.arg, 2, NULL, NULL, &err), LATHE_OK);
    CHECK(seen.launches >= 1 && seen.grid > 0 && seen.grid <= 333);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

/* Of clusters that take rows in turn, as many are started as run at once: 5 here, not the 14 of the plan. */
TEST(clusters_are_started_that_run_at_once)
{
    struct messages m;
    struct call c;
    lathe_error err;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("softmax");
    lathe_kernel *kernel = get(ctx, spec, 100, 262144, LATHE_BF16);
    make_call(&c, 100, 262144, LATHE_BF16);
    CHECK_EQ(lathe_launch(kernel, c.arg, 2, NULL, NULL, &err), LATHE_OK);
    CHECK_EQ(seen.grid, 5 * 8);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

/* Clusters of 16 blocks are asked for, and a device that does not have them is named. */
TEST(large_clusters_are_asked_for)
{
    struct messages m;
    struct call c;
    lathe_error err;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("softmax");
    make_call(&c, 100, 400000, LATHE_BF16);
    seen.refuses_large_clusters = true;
    lathe_kernel *kernel = NULL;
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_CUDA);
    CHECK_HAS(err.text, "clusters of 16 blocks, which this device refuses");
    seen.refuses_large_clusters = false;
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_OK);
    CHECK_EQ(lathe_launch(kernel, c.arg, 2, NULL, NULL, &err), LATHE_OK);
    CHECK_EQ(seen.grid, 5 * 16);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

TEST(what_gpus_do_not_serve)
{
    struct messages m;
    struct call c;
    lathe_error err;
    lathe_kernel *kernel;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("softmax");
    make_call(&c, 100, 1024, LATHE_F64);
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "host device");
    make_call(&c, 100, 1024, LATHE_BF16);
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, (lathe_pass)7, c.arg, 2, &err), LATHE_ARG);
    CHECK_HAS(err.text, "pass");
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, NULL, LATHE_FORWARD, c.arg, 2, &err), LATHE_ARG);
    CHECK_EQ(lathe_supported(ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_OK);
    make_call(&c, 100, 1 << 24, LATHE_BF16);
    CHECK_EQ(lathe_supported(ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_ARG);
    CHECK_HAS(err.text, "2^24");
    CHECK_EQ(seen.loads, 0);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

/* Which outputs are wanted is not compiled in; which tensors of the spec are there is. */
TEST(optional_arguments)
{
    static const char text[] =
        "return rowwise { inputs = { w = tensor(\"f32\", \"n\", { optional = true, default = 1.0 }) },\n"
        "  forward = function(x, at, i) local m = rowmax(x); return (x - m) * i.w(at.i), { m = m } end }\n";
    const int64_t shape[1] = {1024};
    const int64_t rows[1] = {100};
    struct messages m;
    struct call c;
    lathe_arg arg[3];
    lathe_error err = {0};
    lathe_spec *spec;
    lathe_ctx *ctx = fake_ctx(&m);
    if (lathe_spec_parse(&spec, "optional.lua", text, sizeof text - 1, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_F32);
    make_call(&c, 100, 1024, LATHE_F32);
    memcpy(arg, c.arg, sizeof c.arg);
    void *apart = (void *)((uintptr_t)memory + (1u << 20)); /* never read */
    arg[2] = (lathe_arg){"m", apart, LATHE_F32, 1, rows, NULL};
    CHECK_EQ(lathe_launch(kernel, arg, 3, NULL, NULL, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 1);
    arg[2] = (lathe_arg){"w", apart, LATHE_F32, 1, shape, NULL};
    CHECK_EQ(lathe_launch(kernel, arg, 3, NULL, NULL, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'w': this kernel was built without it");
    lathe_kernel *with;
    CHECK_EQ(lathe_kernel_get(&with, ctx, spec, LATHE_FORWARD, arg, 3, &err), LATHE_OK);
    CHECK(with != kernel);
    CHECK_EQ(m.compiled, 2);
    CHECK_EQ(lathe_launch(with, arg, 3, NULL, NULL, &err), LATHE_OK);
    lathe_kernel_release(with);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

struct repeated {
    lathe_ctx *ctx;
    lathe_spec *spec;
    lathe_kernel *kernel;
    struct call call;
};

static void get_again(void *data)
{
    struct repeated *r = data;
    lathe_kernel *again;
    lathe_error err;
    CHECK_EQ(lathe_kernel_get(&again, r->ctx, r->spec, LATHE_FORWARD, r->call.arg, 2, &err), LATHE_OK);
    lathe_kernel_release(again);
}

static void launch_again(void *data)
{
    struct repeated *r = data;
    lathe_error err;
    CHECK_EQ(lathe_launch(r->kernel, r->call.arg, 2, NULL, NULL, &err), LATHE_OK);
}

/* The host's share of a repeated get and of a launch, without the driver's. */
TEST(host_cost)
{
    struct messages m;
    struct repeated r = {.ctx = fake_ctx(&m), .spec = load("softmax")};
    r.kernel = get(r.ctx, r.spec, 100, 1024, LATHE_BF16);
    make_call(&r.call, 100, 1024, LATHE_BF16);
    const double get_us = best_cpu_us(get_again, &r);
    const double launch_us = best_cpu_us(launch_again, &r);
    printf("  get %.3f us, launch %.3f us\n", get_us, launch_us);
    CHECK_CPU_US(get_us, 10.0);
    CHECK_CPU_US(launch_us, 10.0);
    lathe_kernel_release(r.kernel);
    lathe_spec_destroy(r.spec);
    lathe_ctx_destroy(r.ctx);
}

/* ---- the host device, through the public API ------------------------------------------------------ */

TEST(the_host_device_computes)
{
    const lathe_options options = {.device = LATHE_DEVICE_HOST};
    float x[2][3] = {{0.0f, 0.0f, 0.0f}, {0.0f, 0.6931472f, 0.0f}};
    float y[2][3];
    struct call c;
    lathe_ctx *ctx;
    lathe_kernel *kernel;
    lathe_error err;
    lathe_spec *spec = load("softmax");
    size_t bytes = 1;
    make_call(&c, 2, 3, LATHE_F32);
    c.arg[0].data = x;
    c.arg[1].data = y;
    CHECK_EQ(lathe_ctx_create(&ctx, &options, &err), LATHE_OK);
    CHECK_EQ(lathe_ctx_device(ctx), LATHE_DEVICE_HOST);
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_OK);
    CHECK_EQ(lathe_workspace_size(&bytes, kernel, c.arg, 2, &err), LATHE_OK);
    CHECK_EQ(bytes, 0);
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
    CHECK_EQ(lathe_launch(kernel, c.arg, 2, NULL, NULL, &err), LATHE_OK);
    CHECK_CLOSE(y[0][2], 1.0 / 3.0, 1e-6);
    CHECK_CLOSE(y[1][0], 0.25, 1e-6);
    CHECK_CLOSE(y[1][1], 0.5, 1e-6);
    CHECK_HAS(lathe_kernel_info(kernel), "host");
    lathe_kernel_release(kernel);
}

TEST(options_are_checked)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = (lathe_ctx *)(void *)&handle;
    lathe_error err;
    options.device = -7;
    CHECK_EQ(lathe_ctx_create(&ctx, &options, &err), LATHE_ARG);
    CHECK(ctx == NULL);
    CHECK_HAS(err.text, "options.device");
    CHECK_HAS(err.text, "-7");
    CHECK_EQ(lathe_ctx_create(&ctx, NULL, &err), LATHE_ARG);
    CHECK_EQ(lathe_ctx_create(NULL, &options, &err), LATHE_ARG);
    options.device = LATHE_DEVICE_AUTO;
    options.offline = 2;
    CHECK_EQ(lathe_ctx_create(&ctx, &options, &err), LATHE_ARG);
    CHECK_HAS(err.text, "options.offline: expected 0 or 1, given 2");
    options.offline = 1;
    options.system_cache_dir = "";
    CHECK_EQ(lathe_ctx_create(&ctx, &options, NULL), LATHE_OK); /* always something */
    lathe_ctx_destroy(ctx);
    options = (lathe_options)LATHE_OPTIONS_INIT;
    CHECK_EQ(options.offline, 0);
    CHECK_EQ(lathe_ctx_create(&ctx, &options, NULL), LATHE_OK);
    lathe_ctx_destroy(ctx);
    lathe_ctx_destroy(NULL);
    lathe_spec_destroy(NULL);
    lathe_kernel_release(NULL);
}

TEST(without_a_gpu_the_error_says_what_works)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx;
    lathe_error err;
    options.device = 0;
    if (lathe_ctx_create(&ctx, &options, &err) == LATHE_OK) {
        lathe_ctx_destroy(ctx);
        SKIP("there is a GPU");
    }
    CHECK_EQ(err.status, LATHE_CUDA);
    CHECK_HAS(err.text, "host device");
}

TEST(what_the_environment_says)
{
    struct environment e;
    CHECK_EQ(unsetenv("LATHE_OFFLINE") | unsetenv("LATHE_SYSTEM_CACHE_DIR"), 0);
    lathe__environment_read(&e);
    CHECK(!e.offline && !e.system_cache_named);
    CHECK(e.system_cache_dir[0] == '/');
    CHECK_EQ(setenv("LATHE_OFFLINE", "", 1), 0);
    lathe__environment_read(&e);
    CHECK(!e.offline);
    CHECK_EQ(setenv("LATHE_OFFLINE", "0", 1), 0);
    lathe__environment_read(&e);
    CHECK(!e.offline);
    CHECK_EQ(setenv("LATHE_OFFLINE", "1", 1) | setenv("LATHE_SYSTEM_CACHE_DIR", "/a/b", 1), 0);
    lathe__environment_read(&e);
    CHECK(e.offline && e.system_cache_named);
    CHECK_STR(e.system_cache_dir, "/a/b");
    CHECK_EQ(setenv("LATHE_SYSTEM_CACHE_DIR", "", 1), 0);
    lathe__environment_read(&e);
    CHECK_STR(e.system_cache_dir, "");
}

TEST(a_wrong_spec_names_its_line)
{
    static const char text[] = "local a = 1\nreturn attention { score_mod = 3 }\n";
    lathe_spec *spec = (lathe_spec *)(void *)&handle;
    lathe_error err;
    CHECK_EQ(lathe_spec_parse(&spec, "wrong.lua", text, sizeof text - 1, &err), LATHE_SPEC);
    CHECK(spec == NULL);
    CHECK_HAS(err.file, "wrong.lua");
    CHECK_EQ(err.line, 2);
    CHECK_EQ(lathe_spec_load(&spec, "no_such_spec", &err), LATHE_SPEC);
    CHECK_HAS(err.text, "no_such_spec");
    CHECK_EQ(lathe_spec_load(&spec, NULL, &err), LATHE_ARG);
}
