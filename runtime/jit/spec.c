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

void lathe__spec_keep(const lathe_spec *spec)
{
    atomic_fetch_add(&((lathe_spec *)spec)->references, 1);
}

bool lathe__spec_by_query(const lathe_spec *spec, int *line)
{
    return places_by_query(spec->ir, line);
}

bool lathe__spec_without_length(const lathe_spec *spec, int *line)
{
    return places_without_length(spec->ir, line);
}

bool lathe__spec_is_causal(const lathe_spec *spec)
{
    return places_are_causal(spec->ir);
}

int lathe__spec_carry(const lathe_spec *spec, bool square, bool *reverse, char *why, size_t size)
{
    if (lathe__arg_find(&spec->sig[LATHE_FORWARD], "state_out", 0) < 0)
        return -1;
    *reverse = linear_is_reverse(spec->ir);
    return (int)linear_carry(spec->ir, square, why, size);
}

bool lathe__spec_reads_by_rows(const lathe_spec *spec, char *why, size_t size)
{
    return linear_reads_by_rows(spec->ir, why, size);
}

static void describe_pass(struct lathe_spec *spec, lathe_pass pass)
{
    struct signature *sig = &spec->sig[pass];
    signature_make(spec->ir, pass, sig);
    spec->presence[pass] = lathe__built_presence(sig);
}

static lathe_status load(lathe_spec **out, const char *name, const char *text, size_t size,
                         struct spec_params *params, struct diag *diag, lathe_error *err)
{
    struct lathe_spec *spec = calloc(1, sizeof *spec);
    if (!spec)
        return lathe__fail_memory(err);
    atomic_init(&spec->references, 1);
    spec->ir = spec_load_with(name, text, size, params, diag);
    if (!spec->ir) {
        free(spec);
        if (diag->n == 0)
            return lathe__fail_memory(err);
        diag_to_error(diag, LATHE_SPEC, err);
        return LATHE_SPEC;
    }
    describe_pass(spec, LATHE_FORWARD);
    describe_pass(spec, LATHE_BACKWARD);
    describe_pass(spec, LATHE_COMBINE);
    *out = spec;
    return LATHE_OK;
}

static lathe_status load_with_diag(lathe_spec **out, const char *name, const char *text, size_t size,
                                   struct spec_params *params, lathe_error *err)
{
    struct diag *diag = calloc(1, sizeof *diag);
    if (!diag)
        return lathe__fail_memory(err);
    const lathe_status status = load(out, name, text, size, params, diag, err);
    free(diag);
    return status;
}

static lathe_status load_path(lathe_spec **out, const char *path, struct spec_params *params,
                              lathe_error *err)
{
    char shipped[128];
    if (!strchr(path, '/') && strlen(path) < NAME_MAX_BYTES) {
        snprintf(shipped, sizeof shipped, "specs/%s.lua", path);
        const struct embedded *file = embedded_find(shipped);
        if (file) {
            const lathe_status status = load_with_diag(out, shipped, file->data, file->size, params, err);
            if (*out)
                (*out)->shipped = true;
            return status;
        }
    }
    return load_with_diag(out, path, NULL, 0, params, err);
}

lathe_status lathe_spec_load(lathe_spec **out, const char *path, lathe_error *err)
{
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_spec pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    if (!path)
        return lathe__fail(err, LATHE_ARG, "path: expected a file or the name of a shipped spec, given NULL");
    return load_path(out, path, NULL, err);
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
    return load_with_diag(out, name, text, size, NULL, err);
}

static lathe_status take_params(struct spec_params *out, const lathe_param *params, int n, lathe_error *err)
{
    *out = (struct spec_params){.n = n};
    if (n < 0 || n > MAX_GIVEN_PARAMS || (n > 0 && !params))
        return lathe__fail(err, LATHE_ARG, "params: expected a list of 0 to %d records, given n=%d at %p",
                           MAX_GIVEN_PARAMS, n, (const void *)params);
    for (int i = 0; i < n; i++) {
        if (!params[i].name)
            return lathe__fail(err, LATHE_ARG, "params: expected a name for each, given NULL");
        for (int k = 0; k < i; k++)
            if (strcmp(params[k].name, params[i].name) == 0)
                return lathe__fail(err, LATHE_ARG, "parameter '%s': given twice", params[i].name);
        out->item[i] = (struct spec_param){.name = params[i].name, .value = params[i].value};
    }
    return LATHE_OK;
}

lathe_status lathe_spec_open(lathe_spec **out, const char *name, const char *text, size_t size,
                             const lathe_param *params, int n, lathe_error *err)
{
    struct spec_params given;
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_spec pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    if (!name)
        return lathe__fail(err, LATHE_ARG, "name: expected a string, given NULL");
    TRY(take_params(&given, params, n, err));
    return text ? load_with_diag(out, name, text, size, &given, err) : load_path(out, name, &given, err);
}

void lathe_spec_destroy(lathe_spec *spec)
{
    lathe__spec_release(spec);
}
