/*
 * jit.c: the whole way from a spec to a launch, with NVRTC and the cache as they are and a driver that only
 * pretends: which calls compile, which come from memory, which from disk; what a kernel refuses; who frees
 * what. Needs NVRTC, no GPU.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "rt.h"

/* ---- a driver that pretends ----------------------------------------------------------------------- */

static struct {
    atomic_int loads;
    atomic_int unloads;
    atomic_int launches;
    unsigned grid;
} seen;

static int handle; /* something to point at */

static int fake_load(struct CUmod_st **module, const void *image, unsigned n, int *option, void **value)
{
    (void)n;
    if (option[0] != CU_JIT_ERROR_LOG || !value[0])
        return 1;
    atomic_fetch_add(&seen.loads, 1);
    *module = (struct CUmod_st *)(void *)&handle;
    return strcmp(lathe__image_kind(image, 4), "unknown") == 0 ? 200 : CU_SUCCESS;
}

static int fake_unload(struct CUmod_st *module)
{
    atomic_fetch_add(&seen.unloads, 1);
    return module ? CU_SUCCESS : 1;
}

static int fake_function(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    *function = (struct CUfunc_st *)(void *)&handle;
    return module && name[0] ? CU_SUCCESS : 500;
}

static int fake_set(struct CUfunc_st *function, int attribute, int value)
{
    return function && attribute == CU_FUNC_MAX_DYNAMIC_SMEM && value > 0 ? CU_SUCCESS : 1;
}

static int fake_get(int *value, int attribute, struct CUfunc_st *function)
{
    *value = attribute == CU_FUNC_REGISTERS ? 77 : 0;
    return function ? CU_SUCCESS : 1;
}

static int fake_launch(const struct cu_launch_config *config, struct CUfunc_st *function, void **params,
                       void **extra)
{
    atomic_fetch_add(&seen.launches, 1);
    seen.grid = config->grid[0];
    return function && params[0] && !extra ? CU_SUCCESS : 1;
}

static int fake_current(struct CUctx_st **context)
{
    *context = (struct CUctx_st *)(void *)&handle;
    return CU_SUCCESS;
}

static int fake_release(int device)
{
    return device;
}

static int fake_mode(int *mode)
{
    *mode = 0;
    return CU_SUCCESS;
}

static struct driver *fake_driver(void)
{
    struct driver *d = calloc(1, sizeof *d);
    CHECK(d != NULL);
    d->version = 13000;
    d->cuModuleLoadDataEx = fake_load;
    d->cuModuleUnload = fake_unload;
    d->cuModuleGetFunction = fake_function;
    d->cuFuncSetAttribute = fake_set;
    d->cuFuncGetAttribute = fake_get;
    d->cuLaunchKernelEx = fake_launch;
    d->cuCtxGetCurrent = fake_current;
    d->cuDevicePrimaryCtxRelease = fake_release;
    d->cuThreadExchangeStreamCaptureMode = fake_mode;
    return d;
}

struct messages {
    atomic_int compiled;
    atomic_int warnings;
};

static void count(void *user, int level, const char *text)
{
    struct messages *m = user;
    atomic_fetch_add(&m->compiled, level == 1 && strncmp(text, "compiled ", 9) == 0);
    atomic_fetch_add(&m->warnings, level == 0);
}

/* As lathe_ctx_create leaves it on a machine with a Hopper GPU. */
static lathe_ctx *fake_ctx(struct messages *m)
{
    char path[PATH_BYTES];
    struct environment environment;
    struct compiler *compiler;
    lathe_error err;
    lathe__environment_read(&environment);
    if (lathe__compiler_open(&compiler, environment.cuda_home, 0, &err) != LATHE_OK)
        SKIP(err.text);
    lathe__compiler_close(compiler);
    struct lathe_ctx *ctx = calloc(1, sizeof *ctx);
    CHECK(ctx != NULL);
    memset(m, 0, sizeof *m);
    ctx->device = (struct device){.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};
    ctx->report = (struct reporter){count, m};
    snprintf(ctx->cuda_home, sizeof ctx->cuda_home, "%s", environment.cuda_home);
    ctx->driver = fake_driver();
    ctx->context = (struct CUctx_st *)(void *)&handle;
    snprintf(path, sizeof path, "%s/cache", check_temp_dir());
    lathe__cache_open(&ctx->cache, path, 0, false, ctx->report);
    lathe__cache_open_system(&ctx->system_cache, "", false, ctx->report);
    atomic_init(&ctx->references, 1);
    pthread_mutex_init(&ctx->compiler_lock, NULL);
    lathe__flight_init(&ctx->kernels);
    lathe__flight_init(&ctx->modules);
    return ctx;
}

/* ---- calls ---------------------------------------------------------------------------------------- */

static _Alignas(256) char memory[64];

struct call {
    int64_t shape[2];
    lathe_arg arg[2];
};

static void make_call(struct call *c, int64_t rows, int64_t n, lathe_dtype dtype)
{
    c->shape[0] = rows;
    c->shape[1] = n;
    c->arg[0] = (lathe_arg){"x", memory, dtype, 2, c->shape, NULL};
    c->arg[1] = (lathe_arg){"y", memory, dtype, 2, c->shape, NULL};
}

static lathe_spec *load(const char *name)
{
    lathe_spec *spec;
    lathe_error err = {0};
    if (lathe_spec_load(&spec, name, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return spec;
}

static lathe_kernel *get(lathe_ctx *ctx, const lathe_spec *spec, int64_t rows, int64_t n, lathe_dtype dtype)
{
    struct call c;
    lathe_kernel *kernel;
    lathe_error err = {0};
    make_call(&c, rows, n, dtype);
    if (lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return kernel;
}

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

/* ---- offline, and the system cache ---------------------------------------------------------------- */

/* A context whose own cache is another folder, and whose system cache is the one that fake_ctx fills. */
static lathe_ctx *ctx_with_system(struct messages *m)
{
    char path[PATH_BYTES];
    lathe_ctx *ctx = fake_ctx(m);
    lathe__cache_close(&ctx->cache);
    snprintf(path, sizeof path, "%s/cache", check_temp_dir());
    lathe__cache_open_system(&ctx->system_cache, path, true, ctx->report);
    snprintf(path, sizeof path, "%s/own", check_temp_dir());
    lathe__cache_open(&ctx->cache, path, 0, false, ctx->report);
    return ctx;
}

static void fill_cache(const lathe_spec *spec)
{
    struct messages m;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_BF16));
    CHECK_EQ(m.compiled, 1);
    lathe_ctx_destroy(ctx);
}

static void refused_offline(lathe_ctx *ctx, const lathe_spec *spec, const char *part)
{
    struct call c;
    lathe_kernel *kernel;
    lathe_error err;
    make_call(&c, 100, 1024, LATHE_F16);
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_COMPILE);
    CHECK(kernel == NULL);
    CHECK_HAS(err.text, "softmax_rowwise_f16");
    CHECK_HAS(err.text, "sm_90a");
    CHECK_HAS(err.text, part);
}

TEST(offline_serves_what_is_there_and_compiles_nothing)
{
    struct messages m;
    char line[2 * PATH_BYTES];
    lathe_spec *spec = load("softmax");
    fill_cache(spec);
    lathe_ctx *ctx = fake_ctx(&m);
    ctx->offline = true;
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_HAS(lathe_kernel_info(kernel), "from: disk cache");
    snprintf(line, sizeof line,
             "`lathe compile softmax --problem dtype=f16,n=1024 --pass forward --arch sm_90a --cache %s`",
             ctx->cache.path);
    refused_offline(ctx, spec, line);
    refused_offline(ctx, spec,
                    "`lathe aot softmax --problem dtype=f16,n=1024 --pass forward --arch sm_90a -o DIR`");
    refused_offline(ctx, spec, "LATHE_OFFLINE");
    CHECK(ctx->compiler == NULL && ctx->noted == NULL);
    CHECK_EQ(m.compiled, 0);
    CHECK_EQ(m.warnings, 0);
    lathe_kernel_release(kernel);
    lathe_ctx_destroy(ctx);
    ctx = fake_ctx(&m); /* without a cache at all */
    lathe__cache_close(&ctx->cache);
    ctx->offline = true;
    refused_offline(ctx, spec, "none is open");
    refused_offline(ctx, spec, "--cache DIR`");
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
}

/* Where many keys have a kernel of their own, the lines that would provide it name them. */
TEST(offline_says_how_many_keys)
{
    static const char *const part[] = {"causal --problem dtype=bf16,d=64 --pass",
                                       "causal --problem dtype=bf16,d=64,kv=16384 --pass",
                                       "causal --problem dtype=bf16,d=128 --pass"};
    struct messages m;
    lathe_spec *spec = load("causal");
    lathe_ctx *ctx = fake_ctx(&m);
    ctx->offline = true;
    for (int i = 0; i < 3; i++) {
        const int64_t d = i == 2 ? 128 : 64;
        const int64_t few[4] = {1, 2, 128, d};
        const int64_t keys[4] = {1, 2, i == 0 ? 128 : 16384, d};
        const lathe_arg arg[4] = {{"q", &handle, LATHE_BF16, 4, few, NULL},
                                  {"k", &handle, LATHE_BF16, 4, keys, NULL},
                                  {"v", &handle, LATHE_BF16, 4, keys, NULL},
                                  {"o", &handle, LATHE_BF16, 4, few, NULL}};
        lathe_kernel *kernel;
        lathe_error err;
        CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, arg, 4, &err), LATHE_COMPILE);
        CHECK_HAS(err.text, part[i]);
    }
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
}

static int entries(struct cache *cache)
{
    struct cache_list list;
    CHECK_EQ(lathe__cache_list(cache, &list, NULL), LATHE_OK);
    const int n = list.n;
    lathe__cache_list_free(&list);
    return n;
}

TEST(the_system_cache_comes_first_and_is_never_written)
{
    struct messages m;
    lathe_spec *spec = load("softmax");
    fill_cache(spec);
    lathe_ctx *ctx = ctx_with_system(&m);
    ctx->device.sm_count = 78; /* a smaller device of the same architecture asks for the same code */
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_HAS(lathe_kernel_info(kernel), "from: system cache");
    CHECK(ctx->compiler == NULL);
    CHECK_EQ(m.compiled, 0);
    CHECK_EQ(entries(&ctx->cache), 0);
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_F16));
    CHECK_EQ(m.compiled, 1);
    CHECK_EQ(entries(&ctx->cache), 1);
    CHECK_EQ(entries(&ctx->system_cache), 1);
    ctx->offline = true;
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_BF16));
    lathe_kernel_release(kernel);
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
}

/* The code under the key of a compiler that is not here. */
static void move_to(lathe_ctx *ctx, const lathe_spec *spec, const char *identity, int major)
{
    char options[MAX_OPTIONS][OPTION_BYTES];
    unsigned char key[KEY_BYTES];
    struct cache_blob blob;
    int removed;
    const struct compiler maker = {.major = major, .minor = 1, .n_archs = 2, .arch = {80, 90}};
    struct compiler named = maker;
    snprintf(named.identity, sizeof named.identity, "%s", identity);
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK(lathe__cache_read(&ctx->cache, kernel->key, &blob));
    CHECK_EQ(lathe__cache_clear(&ctx->cache, &removed, NULL), LATHE_OK);
    const int n = lathe__compile_options("sm_90a", options);
    lathe__key_make(kernel->source, (const char(*)[OPTION_BYTES])options, n, identity, key);
    CHECK(lathe__cache_store(&ctx->cache, key, &blob));
    CHECK_EQ(lathe__maker_write(&ctx->cache, &named), 0);
    lathe__blob_free(&blob);
    lathe_kernel_release(kernel);
}

/* What another NVRTC made serves from the system cache, and offline from any; a newer major version than the
   driver's does not. */
TEST(entries_of_another_compiler)
{
    struct messages m;
    lathe_spec *spec = load("softmax");
    lathe_ctx *ctx = fake_ctx(&m);
    move_to(ctx, spec, "nvrtc 12.1 4711", 12);
    lathe_ctx_destroy(ctx);
    ctx = ctx_with_system(&m);
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_HAS(lathe_kernel_info(kernel), "from: system cache");
    CHECK_EQ(m.compiled, 0);
    lathe_kernel_release(kernel);
    lathe_ctx_destroy(ctx);
    ctx = fake_ctx(&m);
    ctx->offline = true;
    kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_HAS(lathe_kernel_info(kernel), "from: disk cache");
    lathe_kernel_release(kernel);
    lathe_ctx_destroy(ctx);
    ctx = fake_ctx(&m); /* a user's cache, where there is a compiler: what it makes is another key */
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_BF16));
    CHECK_EQ(m.compiled, 1);
    move_to(ctx, spec, "nvrtc 14.1 4711", 14);
    lathe_ctx_destroy(ctx);
    ctx = ctx_with_system(&m);
    lathe_kernel_release(get(ctx, spec, 100, 1024, LATHE_BF16));
    CHECK_EQ(m.compiled, 1);
    lathe_ctx_destroy(ctx);
    lathe_spec_destroy(spec);
}

static int refuse_load(struct CUmod_st **module, const void *image, unsigned n, int *option, void **value)
{
    static atomic_int calls;
    if (atomic_fetch_add(&calls, 1) > 0)
        return fake_load(module, image, n, option, value);
    *module = NULL;
    return 218;
}

static int no_name(int result, const char **name)
{
    (void)result;
    *name = NULL;
    return 1;
}

/* Code of the system cache that the driver does not take is compiled anew, with a warning. */
TEST(system_entries_that_do_not_load)
{
    struct messages m;
    lathe_spec *spec = load("softmax");
    fill_cache(spec);
    lathe_ctx *ctx = ctx_with_system(&m);
    ctx->driver->cuModuleLoadDataEx = refuse_load;
    ctx->driver->cuGetErrorName = no_name;
    ctx->driver->cuGetErrorString = no_name;
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    CHECK_EQ(m.warnings, 1);
    CHECK_HAS(lathe_kernel_info(kernel), "from: compiler");
    lathe_kernel_release(kernel);
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

static double cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* The host's share of a repeated get and of a launch, without the driver's. */
TEST(host_cost)
{
    enum { ROUNDS = 20000, SLOW = 10 }; /* sanitizers and loaded machines */
    struct messages m;
    struct call c;
    lathe_error err;
    lathe_ctx *ctx = fake_ctx(&m);
    lathe_spec *spec = load("softmax");
    lathe_kernel *kernel = get(ctx, spec, 100, 1024, LATHE_BF16);
    make_call(&c, 100, 1024, LATHE_BF16);
    const double begin = cpu_us();
    for (int i = 0; i < ROUNDS; i++) {
        lathe_kernel *again;
        CHECK_EQ(lathe_kernel_get(&again, ctx, spec, LATHE_FORWARD, c.arg, 2, &err), LATHE_OK);
        lathe_kernel_release(again);
    }
    const double middle = cpu_us();
    for (int i = 0; i < ROUNDS; i++)
        CHECK_EQ(lathe_launch(kernel, c.arg, 2, NULL, NULL, &err), LATHE_OK);
    const double end = cpu_us();
    printf("  get %.3f us, launch %.3f us\n", (middle - begin) / ROUNDS, (end - middle) / ROUNDS);
    CHECK((middle - begin) / ROUNDS < 2.0 * SLOW);
    CHECK((end - middle) / ROUNDS < 5.0 * SLOW);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
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
