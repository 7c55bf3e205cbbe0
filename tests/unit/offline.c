/*
 * offline.c: kernels without a compiler: what a cache holds offline, what a refusal says, the system cache
 * that comes first and is never written, entries of another compiler or that do not load. With NVRTC and the
 * caches as they are, and a libcuda that needs no GPU.
 */

#include "pretended.h"

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

/* Of 64 heads that share a key head, each with 8 keys of 512: as many queries would have too few keys. */
TEST(offline_says_how_many_rows_a_key_head_has)
{
    static const char *const part[] = {",q=1,kv=512 --pass", ",h=64,h_kv=1,q=1,kv=512 --pass"};
    struct messages m;
    lathe_spec *spec = load("causal");
    lathe_ctx *ctx = fake_ctx(&m);
    ctx->offline = true;
    for (int i = 0; i < 2; i++) {
        const int64_t queries[4] = {1, i == 0 ? 8 : 64, 1, 128};
        const int64_t keys[4] = {1, 1, 512, 128};
        const lathe_arg arg[4] = {{"q", &handle, LATHE_BF16, 4, queries, NULL},
                                  {"k", &handle, LATHE_I8, 4, keys, NULL},
                                  {"v", &handle, LATHE_I8, 4, keys, NULL},
                                  {"o", &handle, LATHE_BF16, 4, queries, NULL}};
        lathe_kernel *kernel;
        lathe_error err;
        CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, arg, 4, &err), LATHE_COMPILE);
        CHECK_HAS(err.text, "attention_decode_narrow");
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
