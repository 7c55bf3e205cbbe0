/*
 * cache.c: what was compiled for a library before: one entry of a cache for each piece (the cubin and the
 * PTX of a source for an arch), so that a library whose specs have changed in part is compiled in part. In:
 * an open cache and what would be compiled; out: pieces as lathe__compile_arch gives them, the caller's. Keys
 * differ from those of the JIT, whose images are bundles.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/aot/make.h"

static void piece_key(const struct compiler *compiler, const struct source *source, const char *arch,
                      bool ptx, unsigned char key[KEY_BYTES])
{
    char options[MAX_OPTIONS + 1][OPTION_BYTES];
    const int n = lathe__compile_options(arch, options);
    snprintf(options[n], OPTION_BYTES, "piece=%s", ptx ? "ptx" : "cubin");
    lathe__key_make(source, (const char(*)[OPTION_BYTES])options, n + 1, compiler->identity, key);
}

/* Code for an arch with a letter runs nowhere else, so there is no PTX of it. */
static bool has_ptx(const char *arch)
{
    const char last = arch[strlen(arch) - 1];
    return last >= '0' && last <= '9';
}

static bool read_piece(struct cache *cache, const struct compiler *compiler, const struct source *source,
                       const char *arch, bool ptx, struct piece *out)
{
    unsigned char key[KEY_BYTES];
    struct cache_blob blob;
    piece_key(compiler, source, arch, ptx, key);
    if (!lathe__cache_read(cache, key, &blob))
        return false;
    *out = (struct piece){.ptx = ptx, .data = (char *)blob.image, .size = blob.image_size};
    snprintf(out->arch, sizeof out->arch, "%.15s", strchr(arch, '_') + 1);
    blob.image = NULL; /* the piece's now */
    lathe__blob_free(&blob);
    return true;
}

static void store_piece(struct cache *cache, const struct compiler *compiler, const struct source *source,
                        const char *arch, const struct piece *piece)
{
    unsigned char key[KEY_BYTES];
    char no_log[1] = "";
    struct cache_blob blob = {
        .image = (unsigned char *)piece->data, .image_size = piece->size, .log = no_log};
    snprintf(blob.label, sizeof blob.label, "%.100s, %s %s", source->label, piece->ptx ? "PTX" : "cubin",
             piece->arch);
    piece_key(compiler, source, arch, piece->ptx, key);
    (void)lathe__cache_store(cache, key, &blob); /* a warning, and it is compiled again next time */
}

lathe_status lathe__aot_pieces(struct cache *cache, const struct compiler *compiler,
                               const struct source *source, const char *arch, struct piece piece[2], int *n,
                               lathe_error *err)
{
    char *log = NULL;
    *n = 0;
    if (cache && read_piece(cache, compiler, source, arch, false, &piece[0])) {
        if (!has_ptx(arch) || read_piece(cache, compiler, source, arch, true, &piece[1])) {
            *n = has_ptx(arch) ? 2 : 1;
            return LATHE_OK;
        }
        free(piece[0].data);
    }
    const lathe_status status = lathe__compile_arch(compiler, source, arch, WHOLE_TEXT, piece, n, &log, err);
    free(log);
    for (int i = 0; cache && status == LATHE_OK && i < *n; i++)
        store_piece(cache, compiler, source, arch, &piece[i]);
    return status;
}
