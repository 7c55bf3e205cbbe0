/*
 * cmd_explain.c: `lathe explain`: what would run for a spec and a problem, and why. In: parsed options.
 * Out: lines on standard output: the arguments, the problem, and for each architecture the template with
 * its sizes or every template's refusal. Exit code 1 where one of the architectures is not served.
 */
#include "gen/tool/explain.h"
#include "runtime/base/environ.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/tuned.h"
#include "runtime/recipe/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
    case ROLE_MASK_KEPT:
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
        if (d.plus > 0)
            text_add(t, "+%d", d.plus);
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

static void print_tiles(const struct plan *plan)
{
    const struct attention_plan *a = &plan->attention;
    const struct back_plan *back = &a->back;
    const bool backward = plan->row->form == PLAN_ATTENTION_BACK;
    if (backward)
        printf(TILES_LINE, back->bm, back->bn, back->stages, back->warps, back->dk, back->dv);
    else
        printf(TILES_LINE, a->bm, a->bn, a->stages, a->warps, a->d_pad, a->dv_pad);
    printf("  shared memory %d bytes\n  reason        %s\n", backward ? back->smem_bytes : a->smem_bytes,
           plan->reason);
    if (a->rows[0] && (!backward || back->forward))
        printf("  rows          %s\n", a->rows);
}

static void print_block(const struct plan *plan)
{
    const struct row_plan *rows = &plan->rows;
    const struct map_plan *maps = &plan->maps;
    const bool of_maps = plan->row->form == PLAN_MAPS;
    if (of_maps)
        printf(
            "  block         %d threads, each %d points of the last dim and %d steps or more along another\n",
            maps->threads, maps->vector, maps->steps);
    else
        printf("  block         %d threads for %d rows, vectors of %d elements, %d elements of a row in "
               "registers\n",
               rows->threads, rows->rows_per_block, rows->vector, rows->per_thread);
    printf("  shared memory %d bytes\n  reason        %s\n", of_maps ? 0 : rows->smem_bytes, plan->reason);
}

static void print_state(const struct plan *plan)
{
    const struct linear_plan *linear = &plan->linear;
    printf("  state         cut into %d slices of value channels", linear->slices);
    if (linear->chunk > 0)
        printf(" and %d of key channels, kept every %d tokens", linear->row_slices, linear->chunk);
    printf("; a block of %d warps for a slice of a head of a sequence\n  reason        %s\n", linear->warps,
           plan->reason);
}

static bool is_attention(const struct plan *plan)
{
    return plan->row->form == PLAN_ATTENTION || plan->row->form == PLAN_ATTENTION_BACK;
}

static void print_plan(const struct plan *plan)
{
    printf("  template      %s (%s)\n", plan->row->name, plan->row->file);
    if (is_attention(plan))
        print_tiles(plan);
    else if (plan->row->form == PLAN_LINEAR)
        print_state(plan);
    else
        print_block(plan);
}

static int64_t blocks_of(const struct launch *l, const struct problem *p)
{
    const int64_t share = l->grid_share > 1 ? l->grid_share : 1;
    if (l->when != SYM_ONE && (p->dim[l->when] < l->least || p->dim[l->when] > l->most))
        return 0;
    const int64_t blocks = (product_value(&l->grid, p) + share - 1) / share;
    return l->grid_limit > 0 && blocks > l->grid_limit ? l->grid_limit : blocks;
}

static void print_source(const struct source *s, const struct problem *p)
{
    printf("  label         %s\n  workspace     %" PRId64 " bytes\n", s->label, workspace_bytes(s, p));
    for (int i = 0; i < s->n_launches; i++)
        if (s->launch[i].when != SYM_ONE && blocks_of(&s->launch[i], p) == 0)
            printf("  kernel        %s: for other lengths\n", s->launch[i].entry);
        else
            printf("  kernel        %s: %" PRId64
                   " blocks of %d threads, %d bytes of dynamic shared memory\n",
                   s->launch[i].entry, blocks_of(&s->launch[i], p), s->launch[i].threads,
                   s->launch[i].smem_bytes);
}

/* Of attention's main kernel: query tiles, or blocks of keys in the backward pass, of all heads. */
static int64_t parts_of_work(const struct plan *plan, const struct problem *p)
{
    const bool backward = plan->row->form == PLAN_ATTENTION_BACK;
    const int packed = !backward && plan->attention.pack ? lathe__heads_packed(p, plan->attention.bm) : 1;
    const int64_t heads = p->dim[SYM_B] * p->dim[backward ? SYM_H_KV : SYM_H] / packed;
    const int64_t step = backward ? (int64_t)plan->attention.back.bn * (plan->attention.back.paired ? 2 : 1)
                         : packed > 1 ? (int64_t)(64 / packed) * (plan->attention.bm / 64)
                                      : plan->attention.bm;
    const int64_t tiles = (p->dim[backward ? SYM_KV : SYM_Q] + step - 1) / step;
    return heads * tiles * (backward && plan->attention.back.paired ? 2 : 1);
}

/* A part of the work keeps one multiprocessor busy, at the least. */
static void print_busy(const struct plan *plan, const struct problem *p, const struct device *device)
{
    if (!is_attention(plan) || device->sm_count <= 0)
        return;
    const int64_t parts = parts_of_work(plan, p);
    const int64_t sms = device->sm_count;
    const int64_t busy = parts < sms ? parts : sms;
    printf("  busy          %" PRId64 " of %" PRId64 " multiprocessors (%.0f %%): there %s %" PRId64 " %s\n",
           busy, sms, 100.0 * (double)busy / (double)sms, parts == 1 ? "is" : "are", parts,
           plan->row->form == PLAN_ATTENTION_BACK ? "blocks of keys" : "query tiles");
}

/* Templates that come before the chosen one. */
static void print_refusals(const struct kernel_request *r)
{
    lathe_error why;
    plan_refusals(r, &why);
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

/* Of a plan: its kernels, what its mask does to tiles, how busy the device is. */
static int explain_source(const struct kernel_request *r, const struct options *o, const struct plan *plan)
{
    struct source source;
    lathe_error err = {0};
    memset(&source, 0, sizeof source);
    const lathe_status status = emit(r, plan, &source, &err);
    int code = CODE_OK;
    if (status == LATHE_OK) {
        code = explain_mask(r->ir, r->problem, plan, &source, &o->set) ? CODE_OK : CODE_USAGE;
        print_source(&source, r->problem);
        print_busy(plan, r->problem, r->device);
    }
    source_free(&source);
    return status == LATHE_OK ? code : complain_error(&err);
}

static int explain_plan(const struct kernel_request *r, const struct options *o)
{
    struct plan plan;
    struct tuned tuned;
    lathe_error err = {0};
    const bool is_tuned =
        find_tuned(r, o, &tuned) && plan_measured(r, tuned.template_name, tuned.tile, &plan);
    const lathe_status status = is_tuned ? LATHE_OK : plan_pick(r, &plan, &err);
    if (status == LATHE_UNSUPPORTED) {
        printf("  not served\n%s\n", err.text);
        return CODE_FAILED;
    }
    if (status != LATHE_OK)
        return complain_error(&err);
    print_plan(&plan);
    if (is_tuned)
        printf("  tuned         %s %s was the fastest of those measured on %s: %.6g ms a launch\n",
               tuned.template_name, tuned.tile, tuned.device, tuned.seconds * 1e3);
    print_refusals(r);
    return explain_source(r, o, &plan);
}

static int explain(const struct ir *ir, const struct options *o, const struct signature *sig,
                   const struct problem *p, const struct device *device)
{
    const struct device wish = device_asked(device, o);
    struct kernel_request request;
    lathe_error err = {0};
    printf("%s\n", device->arch);
    if (kernel_open(&request, ir, o->pass, sig, p, &wish, &err) != LATHE_OK)
        return complain_error(&err);
    const int code = explain_plan(&request, o);
    kernel_close(&request);
    return code;
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
    if (problem_parse_of(ir, &sig, o->problem, &problem, &err) != LATHE_OK)
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
