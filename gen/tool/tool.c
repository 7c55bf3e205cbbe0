/*
 * tool.c: the helpers of the tool's commands: messages, specs by path or name, architectures by name, the
 * text of a problem, files. In: command-line words. Out: structs, or a sentence on standard error and false
 * (or NULL). What is returned as a pointer is the caller's to free.
 */
#include "gen/tool/tool.h"
#include "gen/prove/index_ranges.h"
#include "gen/tool/output.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

void tool_complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("lathe: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

static int code_of(lathe_status status)
{
    switch (status) {
    case LATHE_OK:
        return CODE_OK;
    case LATHE_UNSUPPORTED:
    case LATHE_COMPILE:
        return CODE_FAILED;
    case LATHE_SPEC:
    case LATHE_ARG:
        return CODE_USAGE;
    case LATHE_CACHE:
    case LATHE_CUDA:
    case LATHE_MEMORY:
        break;
    }
    return CODE_ENVIRONMENT;
}

/* The text of a spec's mistakes already starts with its place. */
int complain_error(const lathe_error *err)
{
    if (err->status == LATHE_SPEC)
        fprintf(stderr, "%s\n", err->text);
    else
        tool_complain("%s", err->text);
    return code_of(err->status);
}

static bool is_shipped(const char *name)
{
    char path[128];
    if (strchr(name, '/') || strlen(name) > 80)
        return false;
    snprintf(path, sizeof path, "specs/%s.lua", name);
    return embedded_find(path) != NULL;
}

void tool_warn_ranges(const struct ir *ir, const struct problem *problem)
{
    char text[512];
    int line = 0;
    if (!index_trouble(ir, problem->dim, text, sizeof text, &line))
        return;
    tool_complain("warning: %s:%d: at these sizes %s; `lathe check` says up to which sizes it holds",
                  ir->file[ir->n_files - 1], line, text);
}

void tool_warn_proofs(const struct ir *ir)
{
    struct proof proof[PROOF_MAX];
    const int n = prove_quickly(ir, 1, proof);
    for (int i = 0; i < n; i++) {
        const struct proof *p = &proof[i];
        char place[DIAG_PLACE_BYTES];
        if (p->passed || p->status != LATHE_OK) /* what was made up may not fit its tables */
            continue;
        diag_place(ir->file[ir->n_files - 1], p->line, place);
        tool_complain("warning: %s%s does not hold: %s; `lathe check` says more", place, p->what, p->note);
        return;
    }
}

bool tool_spec_readable(const char *name)
{
    struct stat status;
    if (is_shipped(name))
        return true;
    if (stat(name, &status) == 0 && !S_ISREG(status.st_mode)) {
        tool_complain("spec '%s': is %s; a spec is a regular file of text", name,
                      S_ISDIR(status.st_mode) ? "a folder" : "a pipe or a device");
        return false;
    }
    if (access(name, R_OK) == 0)
        return true;
    const int reason = errno;
    struct nearest nearest = {.word = name};
    embedded_nearest(&nearest);
    tool_complain(
        "spec '%s': neither a shipped spec (`lathe list` names them) nor a file that can be read: %s%s", name,
        strerror(reason), lathe__nearest_text(&nearest));
    return false;
}

static struct ir *load(const char *name, struct spec_params *params, struct diag *diag)
{
    char path[128];
    if (!is_shipped(name))
        return spec_load_with(name, NULL, 0, params, diag);
    snprintf(path, sizeof path, "specs/%s.lua", name);
    const struct embedded *file = embedded_find(path);
    return spec_load_with(path, file->data, file->size, params, diag);
}

bool tool_params(const struct options *o, struct spec_params *out)
{
    *out = (struct spec_params){.may_be_unknown = o->n_operands > 1};
    for (int i = 0; i < o->param.n; i++) {
        const struct name_value *p = &o->param.item[i];
        char *end = NULL;
        const double value = strtod(p->value, &end);
        if (end == p->value || *end || !isfinite(value)) {
            tool_complain("--param %s: expected a number, given '%s'", p->name, p->value);
            return false;
        }
        out->item[out->n++] = (struct spec_param){.name = p->name, .value = value};
    }
    return true;
}

static bool scalar_fits(double value, lathe_dtype dtype)
{
    const double least = dtype == LATHE_U8 ? 0 : INT32_MIN;
    const double most = dtype == LATHE_U8 ? UINT8_MAX : INT32_MAX;
    const double size = fabs(value);
    if (dtype == LATHE_I32 || dtype == LATHE_U8)
        return value >= least && value <= most && value == floor(value);
    return dtype == LATHE_F64 || !isfinite(value) || size == 0 ||
           (size >= (double)FLT_MIN && size <= (double)FLT_MAX);
}

bool tool_scalar(const char *name, const char *text, lathe_dtype dtype, double *out)
{
    char *end = NULL;
    const bool whole = dtype == LATHE_I32 || dtype == LATHE_U8;
    errno = 0;
    *out = strtod(text, &end);
    const bool number = end != text && !*end;
    if (number && !(errno && (isinf(*out) || *out == 0)) && scalar_fits(*out, dtype))
        return true;
    tool_complain("--set %s: expected %s, given '%s'", name,
                  whole ? "a whole number in the range of its dtype"
                  : number && dtype != LATHE_F64
                      ? "a number that f32 holds (0, or from 1.2e-38 to 3.4e38 in size)"
                      : "a number",
                  text);
    return false;
}

int tool_params_known(const struct options *o)
{
    for (int i = 0; i < o->param.n; i++) {
        if (o->param_known[i])
            continue;
        tool_complain("--param %s: none of the specs has a parameter of that name", o->param.item[i].name);
        return CODE_USAGE;
    }
    return CODE_OK;
}

struct ir *tool_spec(const char *name, const struct options *o, int *code)
{
    struct diag diag = {0};
    struct spec_params params;
    lathe_error err = {0};
    if (!tool_spec_readable(name) || !tool_params(o, &params)) {
        *code = CODE_USAGE;
        return NULL;
    }
    struct ir *ir = load(name, &params, &diag);
    for (int i = 0; ir && i < params.n; i++)
        o->param_known[i] |= params.item[i].used;
    if (ir)
        return ir;
    const bool memory =
        diag.n > 0 && strcmp(diag.entry[diag.n < DIAG_MAX ? diag.n - 1 : 0].text, "out of memory") == 0;
    diag_to_error(&diag, LATHE_SPEC, &err);
    *code = complain_error(&err);
    if (memory)
        *code = CODE_ENVIRONMENT;
    return NULL;
}

bool device_parse(const char *text, struct device *out)
{
    struct text_buf known = {0};
    const bool found = device_find(text, out, &known);
    if (!found)
        tool_complain("--arch: expected one of%s; given '%s'", known.data ? known.data : "", text);
    text_free(&known);
    return found;
}

struct device device_asked(const struct device *device, const struct options *o)
{
    struct device d = *device;
    if (o->template_name)
        snprintf(d.template_name, sizeof d.template_name, "%s", o->template_name);
    d.template_only = o->template_name != NULL;
    return d;
}

bool file_is_writable(const char *path)
{
    struct output out;
    bool good = strcmp(path, "-") == 0;
    if (!good && output_open(&out, path)) {
        errno = ECANCELED; /* nothing of it is left */
        (void)output_close(&out, false);
        good = true;
    }
    if (!good)
        tool_complain("%s: cannot be written: %s", path, strerror(errno));
    return good;
}

bool write_file(const char *path, const void *data, size_t size)
{
    struct output out = {.file = stdout};
    const bool to_stdout = strcmp(path, "-") == 0;
    bool good = to_stdout || output_open(&out, path);
    if (good) {
        good = fwrite(data, 1, size, out.file) == size;
        good = to_stdout ? fflush(stdout) == 0 && good : output_close(&out, good);
    }
    if (!good)
        tool_complain("%s: cannot be written: %s", path, strerror(errno));
    return good;
}

bool tool_print(struct text_buf *text)
{
    const bool good = !text->failed;
    if (!good)
        tool_complain("out of memory");
    else if (text->data)
        fputs(text->data, stdout);
    text_free(text);
    return good;
}

bool tool_names_size(const char *text, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = text; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, size) == 0 && at[size] == '=')
            return true;
    }
    return false;
}

double tool_seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *tool_find_value(const struct name_values *list, const char *name)
{
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->item[i].name, name) == 0)
            return list->item[i].value;
    }
    return NULL;
}

int tool_source(const struct ir *ir, const struct options *o, const struct device *device, struct source *out)
{
    struct signature sig;
    struct problem problem;
    const struct device asked = device_asked(device, o);
    lathe_error err = {0};
    memset(out, 0, sizeof *out);
    signature_make(ir, o->pass, &sig);
    lathe_status status = problem_parse_of(ir, &sig, o->problem, &problem, &err);
    if (status == LATHE_OK)
        status = kernel_make_source(ir, o->pass, &sig, &problem, &asked, out, &err);
    return status == LATHE_OK ? CODE_OK : complain_error(&err);
}
