/*
 * spec.c: specs as a program holds them. In: the text of a spec, or the name of a shipped one; out: a spec
 * with its signatures, which lives until its last kernel is released.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"
#include "runtime/jit/jit.h"

void lathe__spec_release(struct lathe_spec *spec)
{
    if (!spec || atomic_fetch_sub(&spec->references, 1) != 1)
        return;
    ir_free(spec->ir);
    free(spec);
}

static void describe_pass(struct lathe_spec *spec, lathe_pass pass)
{
    struct signature *sig = &spec->sig[pass];
    signature_make(spec->ir, pass, sig);
    spec->presence[pass] = lathe__built_presence(sig);
}

static lathe_status load(lathe_spec **out, const char *name, const char *text, size_t size, struct diag *diag,
                         lathe_error *err)
{
    struct lathe_spec *spec = calloc(1, sizeof *spec);
    if (!spec)
        return lathe__fail_memory(err);
    atomic_init(&spec->references, 1);
    spec->ir = spec_load(name, text, size, diag);
    if (!spec->ir) {
        free(spec);
        if (diag->n == 0)
            return lathe__fail_memory(err);
        diag_to_error(diag, LATHE_SPEC, err);
        return LATHE_SPEC;
    }
    describe_pass(spec, LATHE_FORWARD);
    describe_pass(spec, LATHE_BACKWARD);
    *out = spec;
    return LATHE_OK;
}

static lathe_status load_with_diag(lathe_spec **out, const char *name, const char *text, size_t size,
                                   lathe_error *err)
{
    struct diag *diag = calloc(1, sizeof *diag);
    if (!diag)
        return lathe__fail_memory(err);
    const lathe_status status = load(out, name, text, size, diag, err);
    free(diag);
    return status;
}

lathe_status lathe_spec_load(lathe_spec **out, const char *path, lathe_error *err)
{
    char shipped[128];
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_spec pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    if (!path)
        return lathe__fail(err, LATHE_ARG, "path: expected a file or the name of a shipped spec, given NULL");
    if (!strchr(path, '/') && strlen(path) < NAME_MAX_BYTES) {
        snprintf(shipped, sizeof shipped, "specs/%s.lua", path);
        const struct embedded *file = embedded_find(shipped);
        if (file) {
            const lathe_status status = load_with_diag(out, shipped, file->data, file->size, err);
            if (*out)
                (*out)->shipped = true;
            return status;
        }
    }
    return load_with_diag(out, path, NULL, 0, err);
}

lathe_status lathe_spec_parse(lathe_spec **out, const char *name, const char *text, size_t size,
                              lathe_error *err)
{
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_spec pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    if (!name || !text)
        return lathe__fail(err, LATHE_ARG, "%s: expected a string, given NULL", name ? "text" : "name");
    return load_with_diag(out, name, text, size, err);
}

void lathe_spec_destroy(lathe_spec *spec)
{
    lathe__spec_release(spec);
}
