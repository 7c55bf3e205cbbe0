/*
 * cmd_tune.c: `lathe tune`: every plan that serves a problem is measured on the GPU, and the fastest is kept
 * beside the cache. In: parsed options. Out: a line for each on standard output, and the file that later
 * plans of the same spec, device and compiled-in facts find. Tensors are those of `lathe run`.
 */
#include "gen/tool/run.h"
#include "runtime/cache/tuned.h"
#include "runtime/jit/jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_REPEAT = 7, MAX_PLANS = 64 };

struct tuner {
    struct run run;
    struct options o; /* with more launches than one */
    lathe_ctx *ctx;
    double *seconds; /* of o.repeat launches */
    int n_measured;
    struct tuned best;
};

static double median(const double *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

/* A plan that fails is said and passed over. */
static void measure(struct tuner *t, const struct plan *plan)
{
    struct tuned now = {.template_name = ""};
    lathe_error err = {.status = LATHE_OK};
    if (run_measure(&t->run, plan, t->seconds, now.label, &err) != LATHE_OK) {
        printf("  %-20s %-14s %s\n", plan->row->name, plan->tile, err.text);
        return;
    }
    now.seconds = median(t->seconds, t->o.repeat);
    printf("  %-20s %-14s %.6g ms (fastest %.6g ms)\n", plan->row->name, plan->tile, now.seconds * 1e3,
           t->seconds[0] * 1e3);
    fflush(stdout);
    if (t->n_measured++ > 0 && t->best.seconds <= now.seconds)
        return;
    snprintf(now.template_name, sizeof now.template_name, "%s", plan->row->name);
    snprintf(now.tile, sizeof now.tile, "%s", plan->tile);
    snprintf(now.device, sizeof now.device, "%.90s", lathe_ctx_device_name(t->ctx));
    t->best = now;
}

static struct kernel_request request_of(const struct tuner *t, const struct device *device)
{
    return (struct kernel_request){
        .ir = t->run.ir, .pass = t->o.pass, .sig = &t->run.sig, .problem = &t->run.problem, .device = device};
}

static int keep(const struct tuner *t)
{
    struct text_buf holds = {0};
    struct text_buf built = {0};
    struct cache *cache = &t->ctx->cache;
    const struct device device = device_asked(&t->ctx->device, &t->o);
    const struct kernel_request request = request_of(t, &device);
    tuning_text(&request, &holds);
    problem_built_text(&t->run.sig, &t->run.problem, &built);
    const bool made = !holds.failed && !built.failed;
    const int error = made ? lathe__tuned_write(cache, holds.data, holds.size, &t->best) : 0;
    if (!made)
        tool_complain("out of memory");
    else if (error)
        tool_complain("tune: the choice cannot be kept in the kernel cache %s: %s",
                      cache->path[0] ? cache->path : "(none is open)", strerror(error));
    else
        printf("kept       %s %s, for %s with %s on devices like this one, in %s\n", t->best.template_name,
               t->best.tile, t->run.ir->name, built.data, cache->path);
    text_free(&holds);
    text_free(&built);
    return made && !error ? CODE_OK : CODE_ENVIRONMENT;
}

/* Rows of a table may differ in what they serve alone. */
static bool is_new(struct plan *seen, int n_seen, const struct plan *plan)
{
    for (int i = 0; i < n_seen; i++)
        if (strcmp(seen[i].row->name, plan->row->name) == 0 && strcmp(seen[i].tile, plan->tile) == 0)
            return false;
    return true;
}

static void measure_tiles(struct tuner *t, const struct kernel_request *request)
{
    struct plan *plan = calloc(MAX_PLANS, sizeof *plan);
    int n = 0;
    for (int i = 0; plan && n < MAX_PLANS; i++) {
        if (!plan_candidate(request, i, &plan[n]))
            break;
        if (is_new(plan, n, &plan[n]))
            measure(t, &plan[n++]);
    }
    free(plan);
}

static int measure_plans(struct tuner *t, const struct kernel_request *request)
{
    struct plan first;
    lathe_error err = {.status = LATHE_OK};
    struct text_buf text = {0};
    if (plan_pick(request, &first, &err) != LATHE_OK)
        return complain_error(&err);
    problem_text(&t->run.sig, &t->run.problem, &text);
    printf("device     %s\nproblem    %s\nplans, each by the median of %d launches\n",
           lathe_ctx_device_name(t->ctx), text.data ? text.data : "", t->o.repeat);
    text_free(&text);
    if (first.tile[0])
        measure_tiles(t, request);
    else /* a template that has one shape for a problem */
        measure(t, &first);
    if (t->n_measured > 0)
        return keep(t);
    tool_complain("tune: no plan could be measured");
    return CODE_FAILED;
}

static int measure_all(struct tuner *t)
{
    const struct device device = device_asked(&t->ctx->device, &t->o);
    struct kernel_request request;
    lathe_error err = {.status = LATHE_OK};
    if (kernel_open(&request, t->run.ir, t->o.pass, &t->run.sig, &t->run.problem, &device, &err) != LATHE_OK)
        return complain_error(&err);
    const int code = measure_plans(t, &request);
    kernel_close(&request);
    return code;
}

static int tune(struct tuner *t)
{
    lathe_error err = {.status = LATHE_OK};
    const lathe_options options = {.device = t->o.device, .cache_dir = t->o.cache_dir};
    if (lathe_ctx_create(&t->ctx, &options, &err) != LATHE_OK)
        return complain_error(&err);
    if (lathe_ctx_device(t->ctx) == LATHE_DEVICE_HOST) {
        tool_complain("tune: there is no GPU to measure on; the tables of tiles are used as they are");
        return CODE_ENVIRONMENT;
    }
    int code = run_prepare(&t->run, false);
    t->seconds = calloc((size_t)t->o.repeat, sizeof *t->seconds);
    if (code == CODE_OK && !t->seconds) {
        tool_complain("out of memory");
        code = CODE_ENVIRONMENT;
    }
    return code == CODE_OK ? measure_all(t) : code;
}

int cmd_tune(const struct options *o)
{
    int code = CODE_ENVIRONMENT;
    struct tuner *t = calloc(1, sizeof *t); /* large for a stack */
    if (!t) {
        tool_complain("out of memory");
        return code;
    }
    t->o = *o;
    t->o.repeat = o->repeat < LEAST_REPEAT ? LEAST_REPEAT : o->repeat;
    t->run.o = &t->o;
    t->run.ir = tool_spec(o->operand[0], o, &code);
    if (t->run.ir)
        code = tune(t);
    free(t->seconds);
    lathe_ctx_destroy(t->ctx);
    run_free(&t->run);
    ir_free(t->run.ir);
    free(t);
    return code;
}
