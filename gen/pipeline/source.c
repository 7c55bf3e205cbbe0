/*
 * source.c: from a lowered request and a plan to texts and a launch recipe. In: both, which stay. Out: a
 * struct source: text 0 is a list of includes, then the two generated headers, then every template they
 * need, in the order of inclusion. The same input gives the same bytes.
 */
#include "gen/pipeline/source.h"
#include "gen/lower/rewrite.h"
#include "gen/base/embedded.h"
#include "gen/base/text.h"
#include "gen/ir/kind.h"
#include "gen/emit/emit.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"
#include "gen/plan/template.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.gen.cuh -------------------------------------------------------------------------- */

/* Types of tensors in memory, and of what tensor cores multiply. */
static void emit_elements(struct text_buf *t, const struct kind_row *kind, const struct problem *problem)
{
    static const struct {
        const char *name;
        enum dtype_role role;
    } of[] = {{"operand", DTYPE_Q},   {"element_q", DTYPE_Q}, {"element_k", DTYPE_K},
              {"element_v", DTYPE_V}, {"element_o", DTYPE_O}, {"element_state", DTYPE_STATE}};
    const size_t n = sizeof of / sizeof *of - (kind->recurrent ? 0 : 1);
    const bool heads = kind->tiles || kind->recurrent;
    if (!heads)
        text_add(t, "using element = %s;\n", element_type(problem->dtype[DTYPE_USUAL]));
    for (size_t i = 0; heads && i < n; i++)
        text_add(t, "using %s = %s;\n", of[i].name, element_type(problem->dtype[of[i].role]));
}

static const struct {
    const char *name;
    enum dtype_role role;
} NARROW[] = {{"k", DTYPE_K}, {"v", DTYPE_V}}; /* tensors that may be of 8 bits in memory */
enum { N_NARROW = sizeof NARROW / sizeof *NARROW };

/* That in memory, where it is of 8 bits; a v without memory of its own is in k's. */
static lathe_dtype narrow_dtype(const struct kernel_request *r, int i)
{
    const bool own = lathe__arg_find(r->sig, NARROW[i].name, 0) >= 0;
    return lathe__narrow_dtype(r->sig, r->problem, NARROW[own ? i : 0].name);
}

static bool has_narrow(const struct kernel_request *r)
{
    bool any = false;
    for (int i = 0; i < r->sig->n_args; i++)
        any |= lathe__is_narrow((lathe_dtype)r->problem->arg_dtype[i]);
    return any;
}

/* The types in memory, where they may be others than those of the kernel: pages are copied from either. */
static void emit_narrow(struct text_buf *t, const struct kernel_request *r)
{
    const bool any = has_narrow(r) || (r->problem->paged && r->pass == LATHE_BACKWARD);
    for (int i = 0; i < N_NARROW && kinds[r->spec->kind].tiles && any; i++) {
        const lathe_dtype dtype = narrow_dtype(r, i);
        text_add(t, "using source_%s = %s;\n", NARROW[i].name,
                 element_type(dtype != LATHE_NONE ? dtype : r->problem->dtype[NARROW[i].role]));
    }
}

static void emit_config(struct text_buf *t, const struct kernel_request *r, const struct plan *plan)
{
    text_add(t,
             "// config.gen.cuh: written by lathe " LATHE_VERSION
             " from %s.lua for %s; do not edit\n#pragma once\n",
             r->spec->name, plan->row->name);
    text_add(t, "#include \"common/contract.cuh\"\n%s\n#define LATHE_ENTRY(role) %.24s_%s_##role\n",
             has_narrow(r) ? "#include \"common/narrow.cuh\"\n" : "", r->spec->name,
             lathe_dtype_text(r->problem->dtype[DTYPE_USUAL]));
    if (plan->row->define)
        plan->row->define(t, plan);
    text_add(t, "\nnamespace cfg {\n");
    emit_elements(t, &kinds[r->spec->kind], r->problem);
    emit_narrow(t, r);
    text_add(t, "constexpr bool FAST_MATH = %s;\n", yes(lower_is_fast(r->spec, r->sig, r->problem)));
    plan->row->config(t, r->problem, plan);
    text_add(t, "} // namespace cfg\n");
}

/* ---- variant.gen.cuh ------------------------------------------------------------------------- */

static bool emit_variant(struct text_buf *config, struct text_buf *t, const struct kernel_request *r,
                         const struct plan *plan, struct source *out)
{
    const struct kind_row *kind = &kinds[r->spec->kind];
    struct text_buf body = {0};
    const bool ok = kind->emit(r, plan, config, &body, out);
    const bool exact = body.data && strstr(body.data, " = exact_"); /* gen/emit/expr.c */
    const bool negates =
        body.data && (strstr(body.data, "negate(") || strstr(body.data, "settled(")); /* the same */
    text_add(
        t, "// variant.gen.cuh: written by lathe " LATHE_VERSION " from %s.lua; do not edit\n#pragma once\n",
        r->spec->name);
    text_add(t, "#include \"config.gen.cuh\"\n#include \"common/math.cuh\"\n%s%s%s\n",
             exact ? "#include \"common/exact.cuh\"\n" : "",
             negates ? "#include \"common/ptx_negate.cuh\"\n" : "", kind->variant_includes);
    text_add_bytes(t, body.data, body.size);
    text_fail_with(t, &body);
    text_free(&body);
    return ok;
}

/* ---- the list of texts ----------------------------------------------------------------------- */

static bool add_text(struct source *out, const char *name, const char *data, size_t size)
{
    if (out->n_texts == MAX_TEXTS)
        return false;
    char *copy = malloc(size + 1);
    if (!copy)
        return false;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = 0;
    struct text *t = &out->text[out->n_texts++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->data = copy;
    t->size = size;
    return true;
}

static const struct text *find_text(const struct source *s, const char *name)
{
    for (int i = 0; i < s->n_texts; i++)
        if (strcmp(s->text[i].name, name) == 0)
            return &s->text[i];
    return NULL;
}

/* The next #include "name" at or after *at; false at the end. *at moves behind its line. */
static bool next_include(const char **at, char *name, size_t size)
{
    for (const char *line = *at; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "#include \"", 10) != 0)
            continue;
        const char *from = line + 10;
        size_t n = strcspn(from, "\"\n");
        if (from[n] != '"' || n >= size)
            continue;
        memcpy(name, from, n);
        name[n] = 0;
        const char *end = strchr(line, '\n');
        *at = end ? end + 1 : line + strlen(line);
        return true;
    }
    return false;
}

/* Templates named by texts that are already in the list, until none is missing. */
static bool add_templates(struct source *out)
{
    for (int i = 0; i < out->n_texts; i++) {
        const char *at = out->text[i].data;
        char name[64];
        while (next_include(&at, name, sizeof name)) {
            char path[80];
            snprintf(path, sizeof path, "templates/%s", name);
            const struct embedded *file = embedded_find(path);
            if (find_text(out, name))
                continue;
            if (!file || !add_text(out, name, file->data, file->size))
                return false;
        }
    }
    return true;
}

static bool is_role(const struct launch *launch, const struct kernel_request *r, const char *role)
{
    char entry[NAME_MAX_BYTES];
    recipe_entry_name(r->spec, r->problem->dtype[DTYPE_USUAL], role, entry, sizeof entry);
    return strcmp(launch->entry, entry) == 0;
}

static void emit_main(struct text_buf *t, const struct source *out, const struct kernel_request *r,
                      const struct plan *plan)
{
    text_add(t, "// %s\n// written by lathe " LATHE_VERSION " from %s.lua; kernels:", out->label,
             r->spec->name);
    for (int i = 0; i < out->n_launches; i++)
        text_add(t, " %s", out->launch[i].entry);
    text_add(t, "\n#include \"config.gen.cuh\"\n#include \"variant.gen.cuh\"\n#include \"%s\"\n",
             plan->row->file);
    const char *before = plan->row->file;
    for (const struct launch_file *more = plan->row->beside; more && more->role; more++) {
        bool here = false;
        for (int i = 0; i < out->n_launches; i++)
            here |= is_role(&out->launch[i], r, more->role);
        if (!here || strcmp(before, more->file) == 0)
            continue;
        text_add(t, "#include \"%s\"\n", more->file);
        before = more->file;
    }
    emit_smem_asserts(t, r->spec, r->problem->dtype[DTYPE_USUAL], out);
}

static void make_label(struct source *out, const struct kernel_request *r, const struct plan *plan)
{
    char numbers[sizeof out->label];
    plan->row->label(r->problem, plan, numbers, sizeof numbers);
    snprintf(out->label, sizeof out->label, "%s_%s_%s_%s", r->spec->name, plan->row->name,
             lathe_dtype_text(r->problem->dtype[DTYPE_USUAL]), numbers);
}

/* `failure` gets what has failed. */
static bool assemble(struct source *out, const struct kernel_request *r, const struct plan *plan,
                     struct text_buf *failure)
{
    struct text_buf config = {0};
    struct text_buf variant = {0};
    struct text_buf body = {0};
    make_label(out, r, plan);
    emit_config(&config, r, plan);
    bool ok = emit_variant(&config, &variant, r, plan, out);
    emit_compiled_parts(&config, r->spec, r->problem->dtype[DTYPE_USUAL], out);
    emit_smem_bytes(&config, r->spec, r->problem->dtype[DTYPE_USUAL], out);
    emit_main(&body, out, r, plan);
    ok = ok && !config.failed && !variant.failed && !body.failed;
    ok = ok && add_text(out, "kernel.cu", body.data, body.size) &&
         add_text(out, "config.gen.cuh", config.data, config.size) &&
         add_text(out, "variant.gen.cuh", variant.data, variant.size) && add_templates(out);
    text_fail_with(failure, &config);
    text_fail_with(failure, &variant);
    text_free(&config);
    text_free(&variant);
    text_free(&body);
    return ok;
}

static void say_why(lathe_error *err, const struct ir *ir, const struct text_buf *failure)
{
    if (!err)
        return;
    *err = (lathe_error){.status = failure->too_many ? LATHE_UNSUPPORTED : LATHE_MEMORY};
    if (failure->too_many)
        snprintf(err->text, sizeof err->text,
                 "%s: too large for one kernel, which has at most %d %s; make it several specs", ir->name,
                 failure->most, failure->too_many);
    else
        snprintf(err->text, sizeof err->text, "%s: memory ran out while the kernel was written", ir->name);
}

lathe_status emit(const struct kernel_request *r, const struct plan *plan, struct source *out,
                  lathe_error *err)
{
    struct text_buf failure = {0};
    memset(out, 0, sizeof *out);
    if (assemble(out, r, plan, &failure))
        return LATHE_OK;
    source_free(out);
    say_why(err, r->spec, &failure);
    return failure.too_many ? LATHE_UNSUPPORTED : LATHE_MEMORY;
}

/* ---- one file -------------------------------------------------------------------------------- */

struct inliner {
    const struct source *source;
    struct text_buf *out;
    bool done[MAX_TEXTS];
};

enum { MAX_NESTING = 16 };

static void inline_text(struct inliner *in, int number, int depth);

/* A line of a text. Includes are replaced where they stand, but for those that head the text: these come
 * before it. */
static const char *inline_line(struct inliner *in, const char *line, int depth)
{
    const size_t n = strcspn(line, "\n");
    const char *at = line;
    char name[64];
    const bool include = strncmp(line, "#include \"", 10) == 0 && next_include(&at, name, sizeof name);
    const struct text *other = include ? find_text(in->source, name) : NULL;
    if (other)
        inline_text(in, (int)(other - in->source->text), depth + 1);
    else if (strncmp(line, "#pragma once", 12) != 0)
        text_add(in->out, "%.*s\n", (int)n, line);
    return line + n + (line[n] == '\n');
}

/* The first line of a text that is code. */
static const char *first_code(const char *line)
{
    while (*line && (*line == '\n' || strncmp(line, "//", 2) == 0 || strncmp(line, "#include", 8) == 0 ||
                     strncmp(line, "#pragma once", 12) == 0)) {
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return line;
}

static void inline_heading_includes(struct inliner *in, const char *line, const char *end, int depth)
{
    while (line < end) {
        if (strncmp(line, "#include", 8) == 0)
            (void)inline_line(in, line, depth);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}

/* A text behind those that it includes, each once; depth is bounded by the number of texts. */
static void inline_text(struct inliner *in, int number, int depth)
{
    if (in->done[number] || depth > MAX_NESTING)
        return;
    in->done[number] = true;
    const struct text *t = &in->source->text[number];
    const char *code = first_code(t->data);
    inline_heading_includes(in, t->data, code, depth);
    text_add(in->out, "\n// ==== %s\n", t->name);
    const char *line = t->data;
    while (*line)
        if (line < code && strncmp(line, "#include", 8) == 0)
            line += strcspn(line, "\n") + 1;
        else
            line = inline_line(in, line, depth);
}

void emit_inline(const struct source *source, struct text_buf *out)
{
    struct inliner in = {.source = source, .out = out};
    inline_text(&in, 0, 0);
}
