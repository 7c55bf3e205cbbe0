/*
 * cmd_gen.c: `lathe gen` and `lathe compile`: a spec and a problem become a CUDA file or a
 * fatbin. In: parsed options. Out: one file; a line about it on standard output.
 */
#include "gen/readable/readable.h"
#include "gen/tool/tool.h"
#include "runtime/base/environ.h"
#include "runtime/compile/compile.h"
#include "runtime/driver/driver.h"
#include "runtime/recipe/bind.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device *first_arch(const struct options *o, struct device *standard)
{
    if (o->n_archs)
        return &o->arch[0];
    return device_parse("sm_80", standard) ? standard : NULL;
}

/* Has code for this architecture alone another kernel than the request's? given: an architecture is, and
   others are not meant. */
static bool say_own(const struct kernel_request *request, const struct isa_row *isa, bool given)
{
    const struct device *device = request->device;
    struct device only = *device;
    struct kernel_request on_it = *request;
    struct plan own;
    struct plan portable;
    char where[128] = "no --arch is given: the code is for sm_80 and, through PTX, for later GPUs,";
    if ((given && (device->sm != isa->sm || isa_is_own(device))) || !device_parse(isa->arch, &only))
        return false;
    snprintf(only.template_name, sizeof only.template_name, "%s", device->template_name);
    only.template_only = device->template_only;
    on_it.device = &only;
    if (plan_pick(&on_it, &own, NULL) != LATHE_OK || plan_pick(request, &portable, NULL) != LATHE_OK ||
        strcmp(own.row->name, portable.row->name) == 0)
        return false;
    if (given)
        snprintf(where, sizeof where, "--arch %s: such code runs on later GPUs, too,", device->arch);
    tool_complain("%s and is the portable %s; --arch %s gives %s its own, %s", where, portable.row->name,
                  isa->arch, isa->gpu, own.row->name);
    return true;
}

bool tool_say_portable(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                       const struct device *device, bool given)
{
    struct signature sig;
    struct kernel_request request;
    bool said = false;
    signature_make(ir, pass, &sig);
    if (kernel_open(&request, ir, pass, &sig, problem, device, NULL) != LATHE_OK)
        return false;
    for (int i = 0; i < ISA_COUNT && !said; i++)
        said = isas[i].arch && say_own(&request, &isas[i], given);
    kernel_close(&request);
    return said;
}

/* For every architecture that was named, but for one beside which a GPU's own is named as well. A cache gets
   what devices ask for: there sm_90 stands for sm_90a. */
static void say_portable(const struct ir *ir, const struct options *o, const struct device *first)
{
    struct signature sig;
    struct problem problem;
    bool own = o->n_archs > 0 && !o->out;
    signature_make(ir, o->pass, &sig);
    if (problem_parse_of(ir, &sig, o->problem, &problem, NULL) != LATHE_OK)
        return; /* said when it is planned */
    for (int i = 0; i < o->n_archs; i++)
        own = own || isa_is_own(&o->arch[i]);
    for (int i = 0; i < (o->n_archs ? o->n_archs : 1) && !own; i++) {
        const struct device asked = device_asked(o->n_archs ? &o->arch[i] : first, o);
        (void)tool_say_portable(ir, o->pass, &problem, &asked, o->n_archs > 0);
    }
}

bool tool_may_compile(const char *command)
{
    struct environment environment;
    lathe__environment_read(&environment);
    if (environment.offline)
        tool_complain(
            "%s: LATHE_OFFLINE is set, which forbids compiling; `env -u LATHE_OFFLINE lathe %s ...` compiles",
            command, command);
    return !environment.offline;
}

static bool has_out(const struct options *o, const char *command)
{
    if (!o->out)
        tool_complain("%s: expected -o FILE%s", command,
                      strcmp(command, "compile") == 0 ? " or --cache DIR" : "");
    return o->out != NULL;
}

/* ---- gen: CUDA text ---------------------------------------------------------------------------- */

/* Less what the kernel does not use. */
static void shorten(struct text_buf *text)
{
    struct text_buf less = {0};
    if (text->failed)
        return;
    readable_text(text->data, text->size, &less);
    text_free(text);
    *text = less;
}

static int write_text(const struct options *o, const struct source *source, const struct text_buf *text)
{
    if (text->failed) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    if (!write_file(o->out, text->data, text->size))
        return CODE_USAGE;
    if (strcmp(o->out, "-") != 0)
        printf("%s: %s, %zu bytes\n", o->out, source->label, text->size);
    return CODE_OK;
}

/* The texts that this kernel alone has, each as a file; the others are those of templates/. */
static int write_split(const struct options *o, const struct source *source)
{
    char path[PATH_MAX];
    for (int i = 0; i < source->n_texts; i++) {
        const struct text *t = &source->text[i];
        if (strchr(t->name, '/'))
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", o->split, t->name) >= sizeof path) {
            tool_complain("--split: the path %s is too long", o->split);
            return CODE_USAGE;
        }
        if (!write_file(path, t->data, t->size))
            return CODE_USAGE;
    }
    printf("%s: %s\n", o->split, source->label);
    return CODE_OK;
}

static int write_whole(const struct options *o, const struct source *source, const struct ir *ir,
                       const struct signature *sig, const struct device *device)
{
    struct text_buf text = {0};
    emit_file(source, ir, sig, device, &text);
    if (!o->all)
        shorten(&text);
    const int code = write_text(o, source, &text);
    text_free(&text);
    return code;
}

/* Of a problem that has been taken. */
static void warn_ranges(const struct ir *ir, const struct options *o)
{
    struct signature sig;
    struct problem problem;
    signature_make(ir, o->pass, &sig);
    if (problem_parse_of(ir, &sig, o->problem, &problem, NULL) == LATHE_OK)
        tool_warn_ranges(ir, &problem);
}

/* ---- gen --ir ---------------------------------------------------------------------------------- */

static int add_passes(struct ir *ir, const struct options *o, const struct device *device,
                      struct text_buf *text)
{
    struct signature sig;
    struct problem problem;
    lathe_error err = {0};
    signature_make(ir, o->pass, &sig);
    lathe_status status = problem_parse_of(ir, &sig, o->problem, &problem, &err);
    if (status == LATHE_OK)
        status = kernel_print_passes(ir, o->pass, &sig, &problem, device, text, &err);
    return status == LATHE_OK ? CODE_OK : complain_error(&err);
}

static int write_ir(struct ir *ir, const struct options *o, const struct device *device)
{
    struct text_buf text = {0};
    int code = CODE_OK;
    text_add(&text, "# traced\n");
    ir_print(ir, &text);
    if (o->ir == IR_LOWERED)
        code = add_passes(ir, o, device, &text);
    if (code == CODE_OK && text.failed) {
        tool_complain("out of memory");
        code = CODE_ENVIRONMENT;
    }
    if (code == CODE_OK && !write_file(o->out ? o->out : "-", text.data, text.size))
        code = CODE_USAGE;
    text_free(&text);
    return code;
}

/* Do the options that say what is written go together? */
static bool knows_what(const struct options *o)
{
    if (o->split && (o->out || o->all))
        tool_complain("gen: --split DIR stands alone, without -o and --all");
    else if (o->ir && (o->split || o->all))
        tool_complain("gen: --ir writes no CUDA text, which --split and --all are about");
    else if (o->n_archs > 1)
        tool_complain("gen: expected one --arch, given %d; `lathe compile` takes several", o->n_archs);
    else
        return o->split || o->ir || has_out(o, "gen");
    return false;
}

/* ---- gen --------------------------------------------------------------------------------------- */

static int write_text_of(struct ir *ir, const struct options *o, const struct device *device)
{
    struct source source;
    struct signature sig;
    signature_make(ir, o->pass, &sig);
    say_portable(ir, o, device);
    int code = tool_source(ir, o, device, &source);
    if (code == CODE_OK) {
        warn_ranges(ir, o);
        tool_warn_proofs(ir);
        code = o->split ? write_split(o, &source) : write_whole(o, &source, ir, &sig, device);
    }
    source_free(&source);
    return code;
}

int cmd_gen(const struct options *o)
{
    struct device standard;
    const struct device *device = first_arch(o, &standard);
    int code = CODE_USAGE;
    if (!device || !knows_what(o))
        return code;
    struct ir *ir = tool_spec(o->operand[0], o, &code);
    if (!ir)
        return code;
    code = o->ir ? write_ir(ir, o, device) : write_text_of(ir, o, device);
    ir_free(ir);
    return code;
}

/* ---- compile ----------------------------------------------------------------------------------- */

/* Each architecture gets the kernel that is best for it; those whose texts are the same share one source. */
struct kernels {
    int n;
    struct source source[MAX_ARCHS];
    int n_jobs; /* one for each architecture */
    struct compile_job job[MAX_ARCHS];
};

static int plan_kernels(const struct ir *ir, const struct options *o, const struct device *standard,
                        struct kernels *out)
{
    const int n = o->n_archs ? o->n_archs : 1;
    for (int i = 0; i < n; i++) {
        const struct device *device = o->n_archs ? &o->arch[i] : standard;
        int same = 0;
        const int code = tool_source(ir, o, device, &out->source[out->n]);
        if (code != CODE_OK)
            return code;
        while (same < out->n && !source_same(&out->source[same], &out->source[out->n]))
            same++;
        if (same < out->n)
            source_free(&out->source[out->n]);
        else
            out->n++;
        out->job[out->n_jobs++] = (struct compile_job){&out->source[same], device->arch};
    }
    warn_ranges(ir, o);
    tool_warn_proofs(ir);
    return CODE_OK;
}

static int write_image(const struct options *o, const struct kernels *k, const unsigned char *image,
                       size_t size)
{
    if (!write_file(o->out, image, size))
        return CODE_USAGE;
    if (strcmp(o->out, "-") == 0)
        return CODE_OK;
    printf("%s: ", o->out);
    if (k->n == 1)
        printf("%s, ", k->source[0].label);
    printf("%s for", lathe__image_kind(image, size));
    for (int i = 0; i < k->n_jobs; i++)
        printf(" %s", k->job[i].arch);
    printf(", %zu bytes\n", size);
    for (int i = 0; k->n > 1 && i < k->n_jobs; i++)
        printf("  %-8s %s\n", k->job[i].arch, k->job[i].source->label);
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
            tool_complain("%.*s", size, line);
        line += size + (line[size] == '\n');
    }
}

static int compile_kernels(const struct options *o, const struct kernels *k)
{
    struct environment environment;
    struct compiler *compiler = NULL;
    struct progress progress;
    unsigned char *image = NULL;
    char *log = NULL;
    size_t size = 0;
    lathe_error err = {0};
    lathe__environment_read(&environment);
    lathe_status status = lathe__compiler_open(&compiler, environment.cuda_home, 0, &err);
    if (status == LATHE_OK) {
        progress_start(&progress, "compiling");
        progress_text(&progress, "compiling %.100s", k->source[0].label);
        status = lathe__compile_jobs(k->job, k->n_jobs, &image, &size, &log, compiler, &err);
        progress_stop(&progress);
    }
    complain_log(log);
    const int code = status == LATHE_OK ? write_image(o, k, image, size) : complain_error(&err);
    free(image);
    free(log);
    lathe__compiler_close(compiler);
    return code;
}

static int compile_to_file(const struct ir *ir, const struct options *o, const struct device *standard)
{
    struct kernels *k = calloc(1, sizeof *k); /* large for a stack */
    if (!k) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    int code = plan_kernels(ir, o, standard, k);
    if (code == CODE_OK)
        code = compile_kernels(o, k);
    for (int i = 0; i < k->n; i++)
        source_free(&k->source[i]);
    free(k);
    return code;
}

int cmd_compile(const struct options *o)
{
    struct device standard;
    int code = CODE_USAGE;
    const struct device *first = first_arch(o, &standard);
    if (!first || (!o->cache && !o->time && !has_out(o, "compile")))
        return code;
    if (!tool_may_compile("compile"))
        return CODE_ENVIRONMENT;
    struct ir *ir = tool_spec(o->operand[0], o, &code);
    if (!ir)
        return code;
    say_portable(ir, o, first);
    code = o->out ? compile_to_file(ir, o, first) : CODE_OK;
    if (o->time && code == CODE_OK)
        code = tool_compile_time(ir, o, first);
    if (o->cache && code == CODE_OK)
        code = tool_warm(ir, o, first);
    ir_free(ir);
    return code;
}
