/*
 * compile.c: texts -> machine code, through NVRTC and from memory: no file is read or written. In: a source,
 * whose text[0] is the main file and the others its headers, and arch names; out: one image and the
 * log, malloc'd, the caller's. Works without a GPU and without a driver. The options are the
 * same for every kernel: numerics are decided by the source, never by flags.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/compile/compile.h"

/* -default-device: lambdas and constexpr functions of the templates carry no annotation. */
static const char *const COMMON_OPTIONS[] = {"-std=c++20", "-default-device", "--ptxas-options=-v"};

/* Beside those: what does not change the code, and so is no part of a key. The declarations that --minimal
   leaves out, of textures and the like, take 5 ms, and no template uses them. Remark 177 of NVRTC 12 is of
   variables whose uses all stand in branches that a constant rules out. */
enum {
    UNKEYED_OPTIONS = 2 + MAX_COMPILED_PARTS,
    FIRST_MINIMAL_MAJOR = 13 /* measured with; older ones were not asked */
};

int lathe__compile_options(const char *arch, char options[MAX_OPTIONS][OPTION_BYTES])
{
    int n = 0;
    snprintf(options[n++], OPTION_BYTES, "-arch=%s", arch);
    for (size_t i = 0; i < sizeof COMMON_OPTIONS / sizeof COMMON_OPTIONS[0]; i++)
        snprintf(options[n++], OPTION_BYTES, "%s", COMMON_OPTIONS[i]);
    return n;
}

int lathe__part_options(const struct source *source, char options[MAX_COMPILED_PARTS][OPTION_BYTES])
{
    int n = 0;
    for (int i = 1; i < source->n_parts; i++)
        if (source->part_role[i][0])
            snprintf(options[n++], OPTION_BYTES, "-DLATHE_PART_%s=%d", source->part_role[i], i);
    return n;
}

static int arch_number(const char *arch)
{
    const char *digits = strchr(arch, '_');
    return digits ? (int)strtol(digits + 1, NULL, 10) : 0;
}

lathe_status lathe__compiler_arch(const struct compiler *compiler, const char *arch, char out[16],
                                  bool *substituted, lathe_error *err)
{
    const int wanted = arch_number(arch);
    int best = 0;
    for (int i = 0; i < compiler->n_archs; i++)
        if (compiler->arch[i] <= wanted && compiler->arch[i] > best)
            best = compiler->arch[i];
    if (best == 0)
        return lathe__fail(err, LATHE_UNSUPPORTED,
                           "NVRTC %d.%d does not compile for %s, nor for anything older; it begins at sm_%d",
                           compiler->major, compiler->minor, arch,
                           compiler->n_archs > 0 ? compiler->arch[0] : 0);
    *substituted = best != wanted;
    if (*substituted)
        snprintf(out, 16, "compute_%d", best % 10000);
    else
        snprintf(out, 16, "%s", arch);
    return LATHE_OK;
}

/* ---- one program ---------------------------------------------------------------------------------- */

/* What it took differs from run to run, and a log is part of an entry: equal kernels give equal entries. */
static void remove_times(char *log)
{
    char *to = log;
    for (const char *line = log; *line;) {
        const size_t size = strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n');
        const char *mark = strstr(line, "Compile time = ");
        if (!mark || mark >= line + size) {
            memmove(to, line, size);
            to += size;
        }
        line += size;
    }
    *to = '\0';
}

static char *program_log(const struct compiler *c, struct nvrtc_program *program)
{
    size_t size = 0;
    char *log;
    if (c->nvrtcGetProgramLogSize(program, &size) != 0)
        size = 0;
    log = calloc(1, size + 1);
    if (log && size > 0)
        c->nvrtcGetProgramLog(program, log);
    if (log)
        remove_times(log);
    return log;
}

/* The first line of the log that says "error": its text, and the place where it has the form name(line). */
static lathe_status compile_failure(const struct source *source, const char *arch, const char *log,
                                    lathe_error *err)
{
    const char *mark = strstr(log, "error");
    const char *begin = mark ? mark : log;
    char file[256] = "";
    int line = 0;
    while (begin > log && begin[-1] != '\n')
        begin--;
    const char *bracket = memchr(begin, '(', strcspn(begin, "\n"));
    if (bracket && bracket < mark && strspn(bracket + 1, "0123456789") > 0) {
        snprintf(file, sizeof file, "%.*s", (int)(bracket - begin), begin);
        line = (int)strtol(bracket + 1, NULL, 10);
    }
    return lathe__fail_at(err, LATHE_COMPILE, file, line, "%s does not compile for %s: %.1600s",
                          source->label, arch, *begin ? begin : "NVRTC gave no reason");
}

/* Size and bytes of one product of a program; *data NULL where there is none (a virtual arch has no cubin).
 */
static bool program_output(int (*get_size)(struct nvrtc_program *, size_t *),
                           int (*get)(struct nvrtc_program *, char *), struct nvrtc_program *program,
                           struct piece *out)
{
    size_t size = 0;
    out->data = NULL;
    out->size = 0;
    if (get_size(program, &size) != 0 || size == 0)
        return true;
    out->data = malloc(size);
    if (!out->data)
        return false;
    out->size = size;
    return get(program, out->data) == 0;
}

/* Beside machine code, for devices to come; of a virtual arch it is all there is. */
static bool has_ptx(const char *arch)
{
    const char last = arch[strlen(arch) - 1];
    return (last >= '0' && last <= '9') || strncmp(arch, "compute_", 8) == 0;
}

static lathe_status collect(const struct compiler *c, struct nvrtc_program *program, const char *arch,
                            struct piece *pieces, int *n, lathe_error *err)
{
    const char *number = strchr(arch, '_') + 1;
    struct piece cubin = {0};
    struct piece ptx = {.ptx = true};
    snprintf(cubin.arch, sizeof cubin.arch, "%.15s", number);
    snprintf(ptx.arch, sizeof ptx.arch, "%.15s", number);
    const bool ok = program_output(c->nvrtcGetCUBINSize, c->nvrtcGetCUBIN, program, &cubin) &&
                    (!has_ptx(arch) || program_output(c->nvrtcGetPTXSize, c->nvrtcGetPTX, program, &ptx));
    if (cubin.data)
        pieces[(*n)++] = cubin;
    if (ptx.data)
        pieces[(*n)++] = ptx;
    if (!ok)
        return lathe__fail_memory(err);
    if (!cubin.data && !ptx.data)
        return lathe__fail(err, LATHE_COMPILE, "NVRTC gave neither a cubin nor PTX for %s", arch);
    return LATHE_OK;
}

static lathe_status run_program(const struct compiler *c, struct nvrtc_program *program,
                                const struct source *source, const char *arch, int part, struct piece *pieces,
                                int *n, char **log, lathe_error *err)
{
    char text[MAX_OPTIONS + UNKEYED_OPTIONS][OPTION_BYTES];
    const char *options[MAX_OPTIONS + UNKEYED_OPTIONS];
    int n_options = lathe__compile_options(arch, text);
    if (part != WHOLE_TEXT) {
        n_options += lathe__part_options(source, text + n_options);
        snprintf(text[n_options++], OPTION_BYTES, "-DLATHE_PART=%d", part);
    }
    snprintf(text[n_options++], OPTION_BYTES, "%s",
             c->major >= FIRST_MINIMAL_MAJOR ? "--minimal" : "-diag-suppress=177");
    for (int i = 0; i < n_options; i++)
        options[i] = text[i];
    const int result = c->nvrtcCompileProgram(program, n_options, options);
    *log = program_log(c, program);
    if (!*log)
        return lathe__fail_memory(err);
    if (result != 0)
        return compile_failure(source, arch, *log, err);
    return collect(c, program, arch, pieces, n, err);
}

lathe_status lathe__compile_arch(const struct compiler *c, const struct source *source, const char *arch,
                                 int part, struct piece *pieces, int *n, char **log, lathe_error *err)
{
    const char *headers[MAX_TEXTS];
    const char *names[MAX_TEXTS];
    struct nvrtc_program *program = NULL;
    if (strncmp(arch, "sm_", 3) != 0 && strncmp(arch, "compute_", 8) != 0)
        return lathe__fail(err, LATHE_ARG, "arch: '%s' is neither sm_NN nor compute_NN", arch);
    for (int i = 1; i < source->n_texts; i++) {
        headers[i - 1] = source->text[i].data;
        names[i - 1] = source->text[i].name;
    }
    if (c->nvrtcCreateProgram(&program, source->text[0].data, source->text[0].name, source->n_texts - 1,
                              headers, names) != 0)
        return lathe__fail(err, LATHE_COMPILE, "NVRTC cannot take the texts of %s", source->label);
    const lathe_status status = run_program(c, program, source, arch, part, pieces, n, log, err);
    c->nvrtcDestroyProgram(&program);
    return status;
}

/* ---- all archs ------------------------------------------------------------------------------------ */

static bool append(char **text, const char *more)
{
    const size_t old = *text ? strlen(*text) : 0;
    char *grown = realloc(*text, old + strlen(more) + 1);
    if (!grown)
        return false;
    memcpy(grown + old, more, strlen(more) + 1);
    *text = grown;
    return true;
}

static lathe_status compile_all(const struct compiler *c, const struct compile_job *job, int n_jobs,
                                struct piece *pieces, int *n, char **log, lathe_error *err)
{
    for (int i = 0; i < n_jobs; i++) {
        char *one = NULL;
        lathe_status status =
            lathe__compile_arch(c, job[i].source, job[i].arch, WHOLE_TEXT, pieces, n, &one, err);
        if (status == LATHE_OK && (!one || !append(log, one)))
            status = lathe__fail_memory(err);
        free(one);
        TRY(status);
    }
    return LATHE_OK;
}

/* Without a bundler the first cubin is all that fits into one image (first piece: PTX alone where the arch is
 * virtual). */
static lathe_status finish(const struct compiler *c, struct piece *pieces, int n, bool fatbin,
                           unsigned char **image, size_t *size, char **log, lathe_error *err)
{
    const char *how = "";
    char note[160];
    TRY(fatbin ? lathe__bundle(c, pieces, n, image, size, &how, err)
               : lathe__image_make(c, pieces, n, image, size, &how, err));
    snprintf(note, sizeof note, "bundle: %d piece%s, %s\n", n, n == 1 ? "" : "s", how);
    if (append(log, note))
        return LATHE_OK;
    free(*image);
    *image = NULL;
    return lathe__fail_memory(err);
}

/* fatbin: also of machine code alone. */
static lathe_status compile_image(const struct compile_job *job, int n_jobs, bool fatbin,
                                  unsigned char **image, size_t *size, char **log,
                                  const struct compiler *compiler, lathe_error *err)
{
    struct piece pieces[2 * MAX_COMPILE_JOBS];
    char *text = NULL;
    int n = 0;
    *image = NULL;
    *size = 0;
    if (log)
        *log = NULL;
    if (n_jobs < 1 || n_jobs > MAX_COMPILE_JOBS)
        return lathe__fail(err, LATHE_ARG, "arch: %d given, 1 to %d can be compiled into one image", n_jobs,
                           MAX_COMPILE_JOBS);
    lathe_status status = compile_all(compiler, job, n_jobs, pieces, &n, &text, err);
    if (status == LATHE_OK)
        status = finish(compiler, pieces, n, fatbin, image, size, &text, err);
    for (int i = 0; i < n; i++)
        free(pieces[i].data);
    if (status != LATHE_OK || !log)
        free(text);
    else
        *log = text;
    return status;
}

lathe_status lathe__compile_jobs(const struct compile_job *job, int n_jobs, unsigned char **image,
                                 size_t *size, char **log, const struct compiler *compiler, lathe_error *err)
{
    return compile_image(job, n_jobs, true, image, size, log, compiler, err);
}

lathe_status lathe__compile(const struct source *source, const char *const *archs, int n_archs,
                            unsigned char **image, size_t *size, char **log, const struct compiler *compiler,
                            lathe_error *err)
{
    struct compile_job job[MAX_COMPILE_JOBS];
    for (int i = 0; i < n_archs && i < MAX_COMPILE_JOBS; i++)
        job[i] = (struct compile_job){source, archs[i]};
    return compile_image(job, n_archs, false, image, size, log, compiler, err);
}
