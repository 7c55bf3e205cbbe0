/*
 * cmd_explain.c: `lathe explain`: what would run for a spec and a problem, and why. In: parsed options.
 * Out: lines on standard output: the arguments, the problem, and for each architecture the template with
 * its sizes or every template's refusal. Exit code 1 where one of the architectures is not served.
 */
#include "tool.h"

#include <inttypes.h>
#include <string.h>

#include "../runtime/rt.h"

static const char *role_text(const struct sig_arg *a)
{
    switch ((enum arg_role)a->role) {
    case ROLE_IN:
        return "in";
    case ROLE_OUT:
    case ROLE_OUT_OPTIONAL:
        return "out";
    case ROLE_INPUT:
        return "input";
    case ROLE_SCALAR:
    case ROLE_Q_START:
        return "scalar";
    }
    return "";
}

static void add_shape(struct text_buf *t, const struct signature *sig, const struct sig_arg *a)
{
    text_add(t, "[");
    for (int i = 0; i < a->ndim; i++) {
        const struct sig_dim d = a->dim[i];
        const char *times = d.times == 2 ? "2*" : "";
        if (d.literal > 0)
            text_add(t, "%s%d", i ? "," : "", d.literal);
        else
            text_add(t, "%s%s%s", i ? "," : "", times, sym_name(sig, d.sym));
    }
    text_add(t, "]");
}

static void print_arg(const struct signature *sig, const struct problem *p, int i)
{
    const struct sig_arg *a = &sig->arg[i];
    struct text_buf shape = {0};
    add_shape(&shape, sig, a);
    printf("  %-12s %-7s %-5s %s%s%s%s\n", a->name, role_text(a),
           lathe_dtype_text((lathe_dtype)p->arg_dtype[i]), shape.data ? shape.data : "",
           a->optional ? " optional" : "", a->grad ? " grad" : "",
           arg_in(p->present, i) ? "" : " (left out)");
    text_free(&shape);
}

static int64_t workspace_bytes(const struct source *s, const struct problem *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->n_buffers; i++)
        bytes = (bytes + 255) / 256 * 256 + lathe__buffer_bytes(&s->buffer[i], p);
    return bytes;
}

#define TILES_LINE                                                                                           \
    "  tiles         %d query rows x %d keys, %d stages, %d warps; head dims padded to %d and %d\n"

static void print_plan(const struct ir *ir, const struct plan *plan)
{
    const struct back_plan *back = &plan->back;
    const bool backward = back->bm > 0;
    printf("  template      %s (%s)\n", plan->template_name, plan->file);
    if (backward)
        printf(TILES_LINE, back->bm, back->bn, back->stages, back->warps, back->dk, back->dv);
    else if (ir->kind == KIND_ATTENTION)
        printf(TILES_LINE, plan->bm, plan->bn, plan->stages, plan->warps, plan->d_pad, plan->dv_pad);
    else if (ir->kind == KIND_ELEMENTWISE)
        printf(
            "  block         %d threads, each %d points of the last dim and %d steps or more along another\n",
            plan->threads, plan->vector, plan->steps);
    else
        printf("  block         %d threads for %d rows, vectors of %d elements, %d elements of a row in "
               "registers\n",
               plan->threads, plan->rows_per_block, plan->vector, plan->per_thread);
    printf("  shared memory %d bytes\n  reason        %s\n", backward ? back->smem_bytes : plan->smem_bytes,
           plan->reason);
    if (plan->rows[0] && (!backward || back->forward))
        printf("  rows          %s\n", plan->rows);
}

static void print_source(const struct source *s, const struct problem *p)
{
    printf("  label         %s\n  workspace     %" PRId64 " bytes\n", s->label, workspace_bytes(s, p));
    for (int i = 0; i < s->n_launches; i++) {
        const struct launch *l = &s->launch[i];
        const int64_t share = l->grid_share > 1 ? l->grid_share : 1;
        const int64_t blocks = (product_value(&l->grid, p) + share - 1) / share;
        printf("  kernel        %s: %" PRId64 " blocks of %d threads, %d bytes of dynamic shared memory\n",
               l->entry, l->grid_limit > 0 && blocks > l->grid_limit ? l->grid_limit : blocks, l->threads,
               l->smem_bytes);
    }
}

/* Templates that come before the chosen one. */
static void print_refusals(const struct ir *ir, const struct options *o, const struct problem *p,
                           const struct device *device)
{
    lathe_error why;
    plan_refusals(ir, o->pass, p, device, &why);
    for (const char *line = why.text; *line;) {
        const int size = (int)strcspn(line, "\n");
        printf("  not chosen    %.*s\n", size, line);
        line += size + (line[size] == '\n');
    }
}

static void say_nothing(void *user, int level, const char *text)
{
    (void)user;
    (void)level;
    (void)text;
}

/* What `lathe tune` has measured for this. */
static bool find_tuned(const struct ir *ir, const struct options *o, const struct signature *sig,
                       const struct problem *p, const struct device *wish, struct tuned *out)
{
    struct environment environment;
    struct cache cache;
    struct text_buf holds = {0};
    lathe__environment_read(&environment);
    const char *folder = o->cache_dir ? o->cache_dir : environment.cache_dir;
    if (!*folder)
        return false;
    tuning_text(ir, o->pass, sig, p, wish, &holds);
    lathe__cache_open(&cache, folder, 0, true, (struct reporter){say_nothing, NULL});
    const bool found = !holds.failed && lathe__tuned_read(&cache, holds.data, holds.size, out);
    lathe__cache_close(&cache);
    text_free(&holds);
    return found;
}

static int explain(const struct ir *ir, const struct options *o, const struct signature *sig,
                   const struct problem *p, const struct device *device)
{
    struct plan plan;
    struct source source;
    const struct device wish = device_wish(device, o);
    struct tuned tuned;
    lathe_error err = {0};
    printf("%s\n", device->arch);
    const bool is_tuned = find_tuned(ir, o, sig, p, &wish, &tuned) &&
                          plan_measured(ir, o->pass, p, &wish, tuned.template_name, tuned.tile, &plan);
    lathe_status status = is_tuned ? LATHE_OK : plan_pick(ir, o->pass, p, &wish, &plan, &err);
    if (status == LATHE_UNSUPPORTED) {
        printf("  not served\n%s\n", err.text);
        return CODE_FAILED;
    }
    if (status != LATHE_OK)
        return complain_error(&err);
    print_plan(ir, &plan);
    if (is_tuned)
        printf("  tuned         %s %s was the fastest of those measured on %s: %.6g ms a launch\n",
               tuned.template_name, tuned.tile, tuned.device, tuned.seconds * 1e3);
    print_refusals(ir, o, p, &wish);
    memset(&source, 0, sizeof source);
    status = emit(ir, o->pass, sig, p, device, &plan, &source, &err);
    if (status == LATHE_OK)
        print_source(&source, p);
    source_free(&source);
    return status == LATHE_OK ? CODE_OK : complain_error(&err);
}

static int explain_all(const struct ir *ir, const struct options *o)
{
    struct signature sig;
    struct problem problem;
    struct device standard;
    struct text_buf text = {0};
    lathe_error err = {0};
    int code = CODE_OK;
    signature_make(ir, o->pass, &sig);
    if (problem_parse(&sig, o->problem, &problem, &err) != LATHE_OK)
        return complain_error(&err);
    printf("%s (%s, %s)\n", ir->name, sig.kind, o->pass == LATHE_BACKWARD ? "backward" : "forward");
    for (int i = 0; i < sig.n_args; i++)
        print_arg(&sig, &problem, i);
    problem_text(&sig, &problem, &text);
    printf("problem\n  %s\n", text.data ? text.data : "");
    text_free(&text);
    if (!o->n_archs)
        return device_parse("sm_80", &standard) ? explain(ir, o, &sig, &problem, &standard) : CODE_USAGE;
    for (int i = 0; i < o->n_archs; i++) {
        const int one = explain(ir, o, &sig, &problem, &o->arch[i]);
        code = one > code ? one : code;
    }
    return code;
}

int cmd_explain(const struct options *o)
{
    int code = CODE_OK;
    struct ir *ir = tool_spec(o->operand[0], &code);
    if (!ir)
        return code;
    code = explain_all(ir, o);
    ir_free(ir);
    return code;
}
