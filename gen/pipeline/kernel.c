/*
 * kernel.c: a spec and a problem through every stage that is left. In: a loaded spec, its arguments, sizes
 * and types, numbers of a device. Out: texts, entries and the launch recipe.
 */
#include "gen/pipeline/kernel.h"
#include "gen/ir/kind.h"
#include "gen/ir/log.h"
#include "gen/pipeline/pick.h"
#include "gen/pipeline/source.h"
#include "gen/plan/plan.h"

#include <stdio.h>

lathe_status kernel_open(struct kernel_request *out, const struct ir *ir, lathe_pass pass,
                         const struct signature *sig, const struct problem *problem,
                         const struct device *device, lathe_error *err)
{
    const struct kind_row *kind = &kinds[ir->kind];
    *out = (struct kernel_request){.ir = ir,
                                   .pass = pass,
                                   .sig = sig,
                                   .problem = problem,
                                   .device = device,
                                   .templates = kind->templates,
                                   .features = kind->features,
                                   .spec = ir};
    const lathe_status status =
        kind->lower ? kind->lower(out) : LATHE_OK; /* without templates: none is needed */
    if (status == LATHE_OK)
        return LATHE_OK;
    if (err) {
        *err = (lathe_error){.status = status};
        snprintf(err->text, sizeof err->text, "%s: memory ran out while its formulas were lowered", ir->name);
    }
    kernel_close(out);
    return status;
}

void kernel_close(struct kernel_request *r)
{
    if (r->ir && kinds[r->ir->kind].release)
        kinds[r->ir->kind].release(r);
    *r = (struct kernel_request){0};
}

lathe_status kernel_make_source(const struct ir *ir, lathe_pass pass, const struct signature *sig,
                                const struct problem *problem, const struct device *device,
                                struct source *out, lathe_error *err)
{
    struct kernel_request request;
    struct plan plan;
    lathe_status status = kernel_open(&request, ir, pass, sig, problem, device, err);
    if (status == LATHE_OK)
        status = plan_pick(&request, &plan, err);
    if (status == LATHE_OK)
        status = emit(&request, &plan, out, err);
    kernel_close(&request);
    return status;
}

lathe_status kernel_print_passes(struct ir *ir, lathe_pass pass, const struct signature *sig,
                                 const struct problem *problem, const struct device *device,
                                 struct text_buf *out, lathe_error *err)
{
    struct ir *const pool[] = {ir, ir->maps.gradient};
    struct kernel_request request;
    struct ir_log log = {.out = out};
    for (int i = 0; i < 2; i++)
        if (pool[i])
            pool[i]->log = &log;
    const lathe_status status = kernel_open(&request, ir, pass, sig, problem, device, err);
    if (status == LATHE_OK && request.refused[0])
        text_add(out, "\n# no kernel: %s\n", request.refused);
    if (status == LATHE_OK)
        kernel_close(&request);
    for (int i = 0; i < 2; i++)
        if (pool[i])
            pool[i]->log = NULL;
    ir_log_close(&log);
    return status;
}

int kernel_counting_line(const struct ir *ir)
{
    return kinds[ir->kind].counting_line ? kinds[ir->kind].counting_line(ir) : -1;
}
