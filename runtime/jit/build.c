/*
 * build.c: a source -> a module: from the table of modules, the cache on disk, or the compiler, in this
 * order. In: a context, a source, and the key of what would be compiled; out: a module, the context's. Here
 * the compiler is opened, when it is first needed and not before: a warm start knows it from a note.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gen/gen.h"
#include "runtime/compile/images.h"
#include "runtime/jit/jit.h"

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* NVRTC itself, opened once. */
lathe_status lathe__ctx_compiler(struct lathe_ctx *ctx, const struct compiler **out, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    pthread_mutex_lock(&ctx->compiler_lock);
    if (!ctx->compiler) {
        status = lathe__compiler_open(&ctx->compiler, ctx->cuda_home, ctx->driver->version, err);
        if (status == LATHE_OK) {
            lathe__compiler_note_write(&ctx->cache, ctx->cuda_home, ctx->driver->version, ctx->compiler);
            (void)lathe__maker_write(&ctx->cache, ctx->compiler); /* without it they are found here only */
        }
    }
    *out = ctx->compiler;
    pthread_mutex_unlock(&ctx->compiler_lock);
    return status;
}

/* Version and archs of NVRTC: from an earlier process's note where there is one, else by opening it. */
lathe_status lathe__ctx_compiler_known(struct lathe_ctx *ctx, const struct compiler **out, lathe_error *err)
{
    pthread_mutex_lock(&ctx->compiler_lock);
    if (!ctx->note_tried) {
        ctx->note_tried = true;
        ctx->noted = malloc(sizeof *ctx->noted);
        if (ctx->noted &&
            !lathe__compiler_note_read(&ctx->cache, ctx->cuda_home, ctx->driver->version, ctx->noted)) {
            free(ctx->noted);
            ctx->noted = NULL;
        }
    }
    *out = ctx->compiler ? ctx->compiler : ctx->noted;
    pthread_mutex_unlock(&ctx->compiler_lock);
    return *out ? LATHE_OK : lathe__ctx_compiler(ctx, out, err);
}

lathe_status lathe__build_blob(const struct compiler *compiler, const struct source *source, const char *arch,
                               struct cache_blob *out, lathe_error *err)
{
    struct text_buf readable = {0};
    if (lathe__parts_pay(compiler, source))
        TRY(lathe__compile_parts(compiler, source, arch, &out->image, &out->image_size, &out->log, err));
    else
        TRY(lathe__compile(source, &arch, 1, &out->image, &out->image_size, &out->log, compiler, err));
    out->log_size = strlen(out->log);
    snprintf(out->label, sizeof out->label, "%.110s for %s", source->label, arch);
    emit_inline(source, &readable);
    if (!readable.failed) {
        out->readable = readable.data;
        out->readable_size = readable.size;
    } else {
        text_free(&readable); /* only people miss it */
    }
    return LATHE_OK;
}

static lathe_status compile_blob(void *user, struct cache_blob *out, lathe_error *err)
{
    const struct module_work *w = user;
    const struct compiler *compiler;
    const double begin = seconds_now();
    TRY(lathe__ctx_compiler(w->ctx, &compiler, err));
    if (strcmp(compiler->identity, w->identity) != 0)
        return lathe__fail(err, LATHE_CACHE, "the compiler is another than the cache has noted");
    lathe__report(&w->ctx->report, 1, "compiling %s for %s", w->source->label, w->arch);
    TRY(lathe__build_blob(compiler, w->source, w->arch, out, err));
    lathe__report(&w->ctx->report, 1, "compiled %s in %.2f s", w->source->label, seconds_now() - begin);
    lathe__report(&w->ctx->report, 2, "%s", out->log);
    return LATHE_OK;
}

static lathe_status load_blob(const struct module_work *w, const struct cache_blob *blob, struct module **out,
                              lathe_error *err)
{
    const struct driver *driver = w->ctx->driver;
    struct image image[MAX_COMPILED_PARTS];
    bool pushed = false;
    const int n = lathe__images_split(blob->image, blob->image_size, image);
    if (n == 0)
        return lathe__fail(err, LATHE_CUDA, "the compiled code of %s is no set of images", w->source->label);
    TRY(lathe__context_enter(driver, w->ctx->context, &pushed, err));
    const lathe_status status = lathe__module_load(out, driver, image, n, w->source, err);
    lathe__context_leave(driver, pushed);
    return status;
}

static lathe_status build_module(struct module_work *w, const unsigned char *key, struct module **out,
                                 lathe_error *err)
{
    struct cache_blob blob;
    bool hit = true;
    if (w->found)
        blob = *w->found;
    else
        TRY(lathe__cache_get(&w->ctx->cache, key, compile_blob, w, &blob, &hit, err));
    const lathe_status status = load_blob(w, &blob, out, err);
    if (!w->found)
        lathe__blob_free(&blob);
    if (status == LATHE_OK && *out) {
        (*out)->from_disk = hit;
        (*out)->from_system = w->from_system;
    }
    return status;
}

/* Two specs that come to the same texts share a module. */
lathe_status lathe__module_get(struct module_work *w, const unsigned char key[KEY_BYTES],
                               const struct module **out, lathe_error *err)
{
    unsigned char table_key[FLIGHT_KEY_BYTES] = {0};
    struct flight_slot *slot;
    struct module *built = NULL;
    lathe_error failure = {0};
    void *value;
    memcpy(table_key, key, KEY_BYTES);
    TRY(lathe__flight_begin(&w->ctx->modules, table_key, &value, &slot, err));
    if (!value) {
        const lathe_status status = build_module(w, key, &built, &failure);
        lathe__flight_end(&w->ctx->modules, slot, built, status, &failure);
        if (status != LATHE_OK) {
            if (err)
                *err = failure;
            return status;
        }
        value = built;
    }
    *out = value;
    return LATHE_OK;
}
