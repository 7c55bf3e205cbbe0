/*
 * cmd_warm.c: `lathe compile --cache DIR`: kernels into a cache, for machines that have neither a compiler
 * nor a warm cache of their own: packages, images. In: a spec and parsed options. Out: one entry per
 * architecture, under the key that a device of that architecture asks for, and a line about each. Needs no
 * GPU.
 */
#include "gen/tool/tool.h"
#include "runtime/base/environ.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/makers.h"
#include "runtime/driver/driver.h"
#include "runtime/jit/jit.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

struct warm {
    const struct compiler *compiler;
    const struct source *source;
    const char *arch;
};

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    if (level == 0)
        tool_complain("%s", text);
}

static lathe_status build(void *user, struct cache_blob *out, lathe_error *err)
{
    const struct warm *w = user;
    return lathe__build_blob(w->compiler, w->source, w->arch, out, err);
}

/* Stored, not merely built: that a cache cannot be written is no warning here. */
static lathe_status store(struct cache *cache, struct warm *w, const unsigned char key[KEY_BYTES], bool *hit,
                          lathe_error *err)
{
    struct cache_blob blob;
    TRY(lathe__cache_get(cache, key, build, w, &blob, hit, err));
    lathe__blob_free(&blob);
    const bool there = lathe__cache_read(cache, key, &blob);
    if (there)
        lathe__blob_free(&blob);
    return there ? LATHE_OK
                 : lathe__fail(err, LATHE_CACHE, "kernel cache %s cannot be written: %s is not in it",
                               cache->path, w->source->label);
}

static lathe_status warm_source(struct cache *cache, struct warm *w, const char *device_arch,
                                lathe_error *err)
{
    char options[MAX_OPTIONS][OPTION_BYTES];
    char arch[16];
    char text[KEY_TEXT_BYTES];
    unsigned char key[KEY_BYTES];
    bool substituted = false;
    bool hit = false;
    TRY(lathe__compiler_arch(w->compiler, device_arch, arch, &substituted, err));
    w->arch = arch;
    const int n = lathe__compile_options(arch, options);
    lathe__key_make(w->source, (const char(*)[OPTION_BYTES])options, n, w->compiler->identity, key);
    TRY(store(cache, w, key, &hit, err));
    lathe__key_text(key, text);
    printf("%s: %s for %s%s%s, %.16s, %s\n", cache->path, w->source->label, device_arch,
           substituted ? ", as " : "", substituted ? arch : "", text, hit ? "was there" : "compiled");
    return LATHE_OK;
}

/* A device of this architecture is compiled for with all its instructions: sm_90 stands for sm_90a. */
static int warm_arch(struct cache *cache, const struct compiler *compiler, const struct ir *ir,
                     const struct options *o, const struct device *given)
{
    struct device device = *given;
    struct source source;
    struct warm w = {compiler, &source, NULL};
    struct progress progress;
    lathe_error err = {0};
    lathe__device_arch(device.sm, device.arch);
    int code = tool_source(ir, o, &device, &source);
    if (code == CODE_OK) {
        progress_start(&progress, "compiling");
        progress_text(&progress, "compiling %.100s for %s", source.label, device.arch);
        const lathe_status status = warm_source(cache, &w, device.arch, &err);
        progress_stop(&progress);
        code = status == LATHE_OK ? CODE_OK : complain_error(&err);
    }
    source_free(&source);
    return code;
}

static int warm_all(struct cache *cache, const struct compiler *compiler, const struct ir *ir,
                    const struct options *o, const struct device *standard)
{
    int code = CODE_OK;
    for (int i = 0; i < (o->n_archs ? o->n_archs : 1) && code == CODE_OK; i++)
        code = warm_arch(cache, compiler, ir, o, o->n_archs ? &o->arch[i] : standard);
    if (code == CODE_OK && lathe__maker_write(cache, compiler) != 0) {
        tool_complain("kernel cache %s cannot be written", cache->path);
        code = CODE_ENVIRONMENT;
    }
    return code;
}

int tool_warm(const struct ir *ir, const struct options *o, const struct device *standard)
{
    struct environment environment;
    struct compiler *compiler = NULL;
    struct cache cache;
    lathe_error err = {0};
    int code = CODE_ENVIRONMENT;
    if (!*o->cache) {
        tool_complain("--cache: expected a folder, given ''");
        return CODE_USAGE;
    }
    lathe__environment_read(&environment);
    if (lathe__compiler_open(&compiler, environment.cuda_home, 0, &err) != LATHE_OK)
        return complain_error(&err);
    lathe__cache_open_shared(&cache, o->cache, (struct reporter){log_line, NULL});
    if (cache.dir_fd >= 0)
        code = warm_all(&cache, compiler, ir, o, standard);
    lathe__cache_close(&cache);
    lathe__compiler_close(compiler);
    return code;
}
