/*
 * cmd_explain.c: `lathe explain`: what would run for a spec and a problem, and why. In: parsed options.
 * Out: on standard output the arguments, the problem, and for each architecture the template with its sizes
 * or every template's refusal, as lines or as JSON. Exit code 1 where one of the architectures is not served.
 */
#include "gen/tool/explain.h"
#include "gen/tool/run.h"
#include "gen/base/facts.h"
#include "runtime/base/environ.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/tuned.h"

#include <stdio.h>
#include <string.h>

static void say_nothing(void *user, int level, const char *text)
{
    (void)user;
    (void)level;
    (void)text;
}

/* What `lathe tune` has measured for this. */
static bool find_tuned(const struct kernel_request *r, const struct options *o, struct tuned *out)
{
    struct environment environment;
    struct cache cache;
    struct text_buf holds = {0};
    lathe__environment_read(&environment);
    const char *folder = o->cache_dir ? o->cache_dir : environment.cache_dir;
    if (!*folder)
        return false;
    tuning_text(r, &holds);
    lathe__cache_open_tool(&cache, folder, true, (struct reporter){say_nothing, NULL});
    const bool found = !holds.failed && lathe__tuned_read(&cache, holds.data, holds.size, out);
    lathe__cache_close(&cache);
    text_free(&holds);
    return found;
}

static int explain_mask_line(struct facts *f, const struct kernel_request *r, const struct options *o,
                             const struct plan *plan, const struct source *source)
{
    struct text_buf text = {0};
    const int code = explain_mask(r->ir, r->problem, plan, source, &o->set, &text) ? CODE_OK : CODE_USAGE;
    if (text.data && code == CODE_OK) {
        facts_string(f, "mask", text.data);
        facts_line(f, "  mask          %s\n", text.data);
    }
    text_free(&text);
    return code;
}

/* Of a plan: its kernels, what its mask does to tiles, how busy the device is. */
static int explain_source(struct facts *f, const struct kernel_request *r, const struct options *o,
                          const struct plan *plan)
{
    struct source source;
    lathe_error err = {0};
    memset(&source, 0, sizeof source);
    const lathe_status status = emit(r, plan, &source, &err);
    int code = CODE_OK;
    if (status == LATHE_OK) {
        code = explain_mask_line(f, r, o, plan, &source);
        explain_kernels(f, r, plan, &source);
    }
    source_free(&source);
    return status == LATHE_OK ? code : complain_error(&err);
}

static void explain_tuned(struct facts *f, const struct tuned *tuned)
{
    facts_open(f, "tuned", '{');
    facts_string(f, "device", tuned->device);
    facts_number(f, "seconds", tuned->seconds);
    facts_close(f);
    facts_line(f, "  tuned         %s %s was the fastest of those measured on %s: %.6g ms a launch\n",
               tuned->template_name, tuned->tile, tuned->device, tuned->seconds * 1e3);
}

static void explain_batch(struct facts *f, const struct problem *p)
{
    if (p->deterministic != DETERMINISTIC_BATCH)
        return;
    const char *const packed =
        p->packed ? "; packed sequences are all taken as long ones: steps of generation are faster as batches"
                  : "";
    char text[256];
    snprintf(text, sizeof text,
             "the same bits whatever else is in the batch, which chooses no template, no tile and no parts%s",
             packed);
    facts_string(f, "batch", text);
    facts_line(f, "  batch         %s\n", text);
}

static int explain_choice(struct facts *f, const struct kernel_request *r, const struct options *o)
{
    struct plan plan;
    struct tuned tuned;
    lathe_error err = {0};
    const bool is_tuned =
        find_tuned(r, o, &tuned) && plan_measured(r, tuned.template_name, tuned.tile, &plan);
    const lathe_status status = is_tuned ? LATHE_OK : plan_pick(r, &plan, &err);
    if (status == LATHE_UNSUPPORTED) {
        explain_unserved(f, err.text);
        return CODE_FAILED;
    }
    if (status != LATHE_OK)
        return complain_error(&err);
    explain_plan(f, r, &plan);
    explain_batch(f, r->problem);
    if (is_tuned)
        explain_tuned(f, &tuned);
    explain_refusals(f, r);
    return explain_source(f, r, o, &plan);
}

static int explain(struct facts *f, const struct ir *ir, const struct options *o, const struct signature *sig,
                   const struct problem *p, const struct device *device)
{
    const struct device asked = device_asked(device, o);
    struct kernel_request request;
    lathe_error err = {0};
    if (kernel_open(&request, ir, o->pass, sig, p, &asked, &err) != LATHE_OK)
        return complain_error(&err);
    facts_line(f, "%s\n", device->arch);
    facts_open(f, NULL, '{');
    facts_string(f, "arch", device->arch);
    const int code = explain_choice(f, &request, o);
    facts_close(f);
    kernel_close(&request);
    return code;
}

static int explain_archs(struct facts *f, const struct ir *ir, const struct options *o,
                         const struct signature *sig, const struct problem *problem)
{
    struct device standard;
    int code = CODE_OK;
    if (!o->n_archs && !device_parse("sm_80", &standard))
        return CODE_USAGE;
    facts_open(f, "architectures", '[');
    for (int i = 0; i < (o->n_archs ? o->n_archs : 1); i++) {
        const int one = explain(f, ir, o, sig, problem, o->n_archs ? &o->arch[i] : &standard);
        code = one > code ? one : code;
    }
    facts_close(f);
    return code;
}

/* Of scalars: only those that a mask reads count here, but none is taken that a call would refuse. */
static bool scalars_are_good(const struct signature *sig, const struct options *o)
{
    bool good = run_set_known(sig, &o->set);
    for (int i = 0; i < sig->n_args && good; i++) {
        const char *text = tool_find_value(&o->set, sig->arg[i].name);
        double unused;
        good = !text || tool_scalar(sig->arg[i].name, text, sig->arg[i].dtype, &unused);
    }
    return good;
}

static int explain_all(const struct ir *ir, const struct options *o)
{
    struct signature sig;
    struct problem problem;
    struct facts facts;
    struct text_buf text = {0};
    lathe_error err = {0};
    signature_make(ir, o->pass, &sig);
    if (problem_parse_of(ir, &sig, o->problem, &problem, &err) != LATHE_OK)
        return complain_error(&err);
    if (!scalars_are_good(&sig, o))
        return CODE_USAGE;
    facts_begin(&facts, &text, o->json);
    explain_problem(&facts, ir, o->pass, &sig, &problem);
    int code = explain_archs(&facts, ir, o, &sig, &problem);
    if (o->ranks > 0 && code != CODE_USAGE) {
        const int ranks = explain_ranks(&facts, o, &sig, &problem);
        code = ranks > code ? ranks : code;
    }
    facts_end(&facts);
    return tool_print(&text) ? code : CODE_ENVIRONMENT;
}

int cmd_explain(const struct options *o)
{
    int code = CODE_OK;
    struct ir *ir = tool_spec(o->operand[0], o, &code);
    if (!ir)
        return code;
    code = explain_all(ir, o);
    ir_free(ir);
    return code;
}
