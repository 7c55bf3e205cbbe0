/*
 * cmd_gen.c: `lathe gen`, `lathe compile` and `lathe list`: a spec and a problem become a CUDA file or a
 * fatbin. In: parsed options. Out: one file; a line about it on standard output. The source that
 * tool_source fills is the caller's: source_free.
 */
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/rt.h"

static const struct device *first_arch(const struct options *o, struct device *standard)
{
    if (o->n_archs)
        return &o->arch[0];
    return device_parse("sm_80", standard) ? standard : NULL;
}

int tool_source(const struct ir *ir, const struct options *o, const struct device *device, struct source *out)
{
    struct signature sig;
    struct problem problem;
    struct plan plan;
    const struct device wish = device_wish(device, o);
    lathe_error err = {0};
    memset(out, 0, sizeof *out);
    signature_make(ir, o->pass, &sig);
    lathe_status status = problem_parse(&sig, o->problem, &problem, &err);
    if (status == LATHE_OK)
        status = plan_pick(ir, o->pass, &problem, &wish, &plan, &err);
    if (status == LATHE_OK)
        status = emit(ir, o->pass, &sig, &problem, device, &plan, out, &err);
    return status == LATHE_OK ? CODE_OK : complain_error(&err);
}

static bool has_out(const struct options *o, const char *command)
{
    if (!o->out)
        complain("%s: expected -o FILE%s", command, strcmp(command, "compile") == 0 ? " or --cache DIR" : "");
    return o->out != NULL;
}

/* ---- gen --------------------------------------------------------------------------------------- */

static void add_grid(struct text_buf *t, const struct signature *sig, const struct product *p)
{
    const char *times = "";
    if (p->scale != 1 || p->n == 0) {
        text_add(t, "%" PRId64, p->scale);
        times = " * ";
    }
    for (int i = 0; i < p->n; i++, times = " * ") {
        const int sym = p->factor[i].sym;
        if (p->factor[i].tile == 1)
            text_add(t, "%s%s", times, sym_name(sig, sym));
        else if (p->factor[i].tile == INT32_MAX)
            text_add(t, "%s(%s ? 1 : 0)", times, sym_name(sig, sym));
        else
            text_add(t, "%sceil(%s / %d)", times, sym_name(sig, sym), p->factor[i].tile);
    }
}

static void add_opening(struct text_buf *t, const struct source *s, const struct ir *ir,
                        const struct signature *sig, const struct device *device)
{
    text_add(t, "// %s\n// Made by lathe %s from the spec %s for %s.\n", s->label, lathe_version(), ir->name,
             device->arch);
    text_add(t, "// Compile: nvcc -cubin -std=c++20 -arch=%s FILE.cu\n// Launch, in order:\n", device->arch);
    for (int i = 0; i < s->n_launches; i++) {
        const struct launch *l = &s->launch[i];
        text_add(t, "//   %s: blocks ", l->entry);
        add_grid(t, sig, &l->grid);
        if (l->grid_share > 1)
            text_add(t, ", divided by %d and rounded up", l->grid_share);
        text_add(t, "; %d threads, %d bytes of dynamic shared memory; %u bytes of parameters\n", l->threads,
                 l->smem_bytes, l->param_bytes);
    }
    text_add(t, "#ifdef __NVCC__ // constants of the headers that this kernel leaves unused\n"
                "#pragma nv_diag_suppress 177\n#endif\n");
}

static int write_text(const struct options *o, const struct source *source, const struct text_buf *text)
{
    if (text->failed) {
        complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    if (!write_file(o->out, text->data, text->size))
        return CODE_USAGE;
    if (strcmp(o->out, "-") != 0)
        printf("%s: %s, %zu bytes\n", o->out, source->label, text->size);
    return CODE_OK;
}

int cmd_gen(const struct options *o)
{
    struct source source;
    struct device standard;
    struct signature sig;
    struct text_buf text = {0};
    const struct device *device = first_arch(o, &standard);
    int code = CODE_USAGE;
    if (!has_out(o, "gen") || !device)
        return code;
    if (o->n_archs > 1) {
        complain("gen: expected one --arch, given %d; `lathe compile` takes several", o->n_archs);
        return code;
    }
    struct ir *ir = tool_spec(o->operand[0], &code);
    if (!ir)
        return code;
    signature_make(ir, o->pass, &sig);
    code = tool_source(ir, o, device, &source);
    if (code == CODE_OK) {
        add_opening(&text, &source, ir, &sig, device);
        emit_inline(&source, &text);
        code = write_text(o, &source, &text);
    }
    text_free(&text);
    source_free(&source);
    ir_free(ir);
    return code;
}

/* ---- compile ----------------------------------------------------------------------------------- */

/* One source serves all archs of a fatbin: it is planned for the least of them, and where there are others,
   without what only that one has (sm_90a: sm_90). */
static struct device common_device(const struct options *o, const struct device *first)
{
    struct device d = *first;
    for (int i = 1; i < o->n_archs; i++) {
        const struct device *a = &o->arch[i];
        const int smem = a->smem_bytes < d.smem_bytes ? a->smem_bytes : d.smem_bytes;
        const bool others = strcmp(a->arch, d.arch) != 0;
        if (a->sm < d.sm)
            d = *a;
        d.smem_bytes = smem;
        if (others)
            snprintf(d.arch, sizeof d.arch, "sm_%d", d.sm);
    }
    return d;
}

static int write_image(const struct options *o, const struct source *source, const char *const *archs, int n,
                       const unsigned char *image, size_t size)
{
    if (!write_file(o->out, image, size))
        return CODE_USAGE;
    if (strcmp(o->out, "-") == 0)
        return CODE_OK;
    printf("%s: %s, %s for", o->out, source->label, lathe__image_kind(image, size));
    for (int i = 0; i < n; i++)
        printf(" %s", archs[i]);
    printf(", %zu bytes\n", size);
    return CODE_OK;
}

/* What registers and time it took is for `explain` and the cache; what is odd is for everybody. */
static void complain_log(const char *log)
{
    for (const char *line = log; line && *line;) {
        const int size = (int)strcspn(line, "\n");
        const char *warning = strstr(line, "warning");
        const char *bare = strstr(line, "neither nvFatbin");
        if ((warning && warning < line + size) || (bare && bare < line + size))
            complain("%.*s", size, line);
        line += size + (line[size] == '\n');
    }
}

static int compile_source(const struct options *o, const struct source *source, const char *first)
{
    struct environment environment;
    struct compiler *compiler = NULL;
    struct progress progress;
    const char *archs[MAX_ARCHS] = {first};
    unsigned char *image = NULL;
    char *log = NULL;
    size_t size = 0;
    lathe_error err = {0};
    const int n = o->n_archs ? o->n_archs : 1;
    for (int i = 0; i < o->n_archs; i++)
        archs[i] = o->arch[i].arch;
    lathe__environment_read(&environment);
    lathe_status status = lathe__compiler_open(&compiler, environment.cuda_home, 0, &err);
    if (status == LATHE_OK) {
        progress_start(&progress, "compiling");
        progress_text(&progress, "compiling %.100s", source->label);
        status = lathe__compile(source, archs, n, &image, &size, &log, compiler, &err);
        progress_stop(&progress);
    }
    complain_log(log);
    const int code =
        status == LATHE_OK ? write_image(o, source, archs, n, image, size) : complain_error(&err);
    free(image);
    free(log);
    lathe__compiler_close(compiler);
    return code;
}

int cmd_compile(const struct options *o)
{
    struct source source;
    struct device standard;
    int code = CODE_USAGE;
    const struct device *first = first_arch(o, &standard);
    if (!first || (!o->cache && !has_out(o, "compile")))
        return code;
    struct ir *ir = tool_spec(o->operand[0], &code);
    if (!ir)
        return code;
    code = CODE_OK;
    if (o->out) {
        const struct device device = common_device(o, first);
        code = tool_source(ir, o, &device, &source);
        if (code == CODE_OK)
            code = compile_source(o, &source, first->arch);
        source_free(&source);
    }
    if (o->cache && code == CODE_OK)
        code = tool_warm(ir, o, first);
    ir_free(ir);
    return code;
}

/* ---- list -------------------------------------------------------------------------------------- */

int cmd_list(const struct options *o)
{
    (void)o;
    for (const struct embedded *e = embedded_files; e->name; e++) {
        const size_t size = strlen(e->name);
        const bool spec =
            strncmp(e->name, "specs/", 6) == 0 && size > 10 && strcmp(e->name + size - 4, ".lua") == 0;
        if (spec && strcmp(e->name, "specs/prelude.lua") != 0)
            printf("%.*s\n", (int)(size - 10), e->name + 6);
    }
    return CODE_OK;
}
