/*
 * compile_time.c: `lathe compile --time`: what the compiler takes for each part of a kernel's text, which is
 * what a thread of its own compiles where a program meets the kernel first. In: a spec and parsed options.
 * Out: a table on standard output. Seconds are of CPU, since other programs may run; wall time on a machine
 * with a core for each part is that of the longest.
 */
#include "gen/tool/tool.h"
#include "runtime/base/environ.h"
#include "runtime/compile/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct timing {
    double to_ptx, to_code;
};

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What is compiled is thrown away. */
static lathe_status time_one(const struct compiler *c, const struct source *source, const char *arch,
                             int part, double *seconds, lathe_error *err)
{
    struct piece piece[2] = {{.data = NULL}};
    char *log = NULL;
    int n = 0;
    const double begin = cpu_seconds();
    const lathe_status status = lathe__compile_arch(c, source, arch, part, piece, &n, &log, err);
    *seconds = cpu_seconds() - begin;
    for (int i = 0; i < n; i++)
        free(piece[i].data);
    free(log);
    return status;
}

/* PTX alone, then all: what code for the architecture takes beyond is the assembler's. */
static lathe_status time_part(const struct compiler *c, const struct source *source, const char *arch,
                              int part, struct timing *out, lathe_error *err)
{
    char ptx_arch[32];
    double all = 0.0;
    out->to_ptx = out->to_code = 0.0;
    snprintf(ptx_arch, sizeof ptx_arch, "compute%s", strchr(arch, '_'));
    TRY(time_one(c, source, ptx_arch, part, &out->to_ptx, err));
    if (strcmp(ptx_arch, arch) != 0)
        TRY(time_one(c, source, arch, part, &all, err));
    out->to_code = all > out->to_ptx ? all - out->to_ptx : 0.0;
    return LATHE_OK;
}

/* Kernels that are launched several times are named once. */
static void print_kernels(const struct source *source, int part)
{
    for (int i = 0; i < source->n_launches; i++) {
        bool named = false;
        for (int k = 0; k < i && !named; k++)
            named = strcmp(source->launch[k].entry, source->launch[i].entry) == 0;
        if (!named && (part == WHOLE_TEXT || source->launch[i].part == part))
            printf(" %s", source->launch[i].entry);
    }
    printf("\n");
}

static lathe_status time_source(const struct compiler *c, const struct source *source, const char *device,
                                lathe_error *err)
{
    char arch[16];
    bool substituted;
    struct timing whole;
    double longest = 0.0;
    double sum = 0.0;
    TRY(lathe__compiler_arch(c, device, arch, &substituted, err));
    TRY(time_part(c, source, arch, WHOLE_TEXT, &whole, err)); /* first, when NVRTC also sets itself up */
    TRY(time_part(c, source, arch, WHOLE_TEXT, &whole, err));
    printf("%s for %s: seconds of CPU to PTX, from there to code, and in all\n", source->label, arch);
    for (int part = 0; source->n_parts > 1 && part < source->n_parts; part++) {
        struct timing t;
        TRY(time_part(c, source, arch, part, &t, err));
        const double both = t.to_ptx + t.to_code;
        printf("  part %d  %6.2f %6.2f %6.2f ", part, t.to_ptx, t.to_code, both);
        print_kernels(source, part);
        longest = both > longest ? both : longest;
        sum += both;
    }
    printf("  whole   %6.2f %6.2f %6.2f ", whole.to_ptx, whole.to_code, whole.to_ptx + whole.to_code);
    print_kernels(source, WHOLE_TEXT);
    if (source->n_parts > 1)
        printf("  longest part %.2f, all parts %.2f\n", longest, sum);
    return LATHE_OK;
}

static int time_arch(const struct compiler *compiler, const struct ir *ir, const struct options *o,
                     const struct device *device)
{
    struct source source;
    lathe_error err = {0};
    int code = tool_source(ir, o, device, &source);
    if (code == CODE_OK && time_source(compiler, &source, device->arch, &err) != LATHE_OK)
        code = complain_error(&err);
    source_free(&source);
    return code;
}

int tool_compile_time(const struct ir *ir, const struct options *o, const struct device *standard)
{
    struct environment environment;
    struct compiler *compiler = NULL;
    lathe_error err = {0};
    int code = CODE_OK;
    lathe__environment_read(&environment);
    if (lathe__compiler_open(&compiler, environment.cuda_home, 0, &err) != LATHE_OK)
        return complain_error(&err);
    for (int i = 0; i < (o->n_archs ? o->n_archs : 1) && code == CODE_OK; i++)
        code = time_arch(compiler, ir, o, o->n_archs ? &o->arch[i] : standard);
    lathe__compiler_close(compiler);
    return code;
}
