/*
 * explain.c: what would run for a problem, and why. In: a request, a plan, texts. Out: facts, for people or
 * for programs.
 */
#include "gen/pipeline/explain.h"
#include "gen/arguments/problem.h"
#include "gen/base/facts.h"
#include "gen/base/text.h"
#include "gen/ir/kind.h"
#include "gen/pipeline/pick.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"
#include "runtime/recipe/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the problem -------------------------------------------------------------------------------- */

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
    case ROLE_START:
    case ROLE_TOTAL:
    case ROLE_CHUNK:
    case ROLE_STEP:
    case ROLE_MASK_KEPT:
        return "scalar";
    }
    return "";
}

static void dim_text(const struct signature *sig, struct sig_dim d, char *out, size_t size)
{
    char plus[16] = "";
    char times[8] = "";
    if (d.times > 1)
        snprintf(times, sizeof times, "%d*", d.times);
    if (d.plus > 0)
        snprintf(plus, sizeof plus, "+%d", d.plus);
    if (d.literal > 0)
        snprintf(out, size, "%d%s", d.literal, plus);
    else
        snprintf(out, size, "%s%s%s", times, sym_name(sig, d.sym), plus);
}

static void explain_arg(struct facts *f, const struct signature *sig, const struct problem *p, int i)
{
    const struct sig_arg *a = &sig->arg[i];
    char dim[NAME_MAX_BYTES + 16];
    struct text_buf shape = {0};
    const char *dtype = lathe_dtype_text((lathe_dtype)p->arg_dtype[i]);
    facts_open(f, NULL, '{');
    facts_string(f, "name", a->name);
    facts_string(f, "role", role_text(a));
    facts_string(f, "dtype", dtype);
    facts_open(f, "shape", '[');
    for (int d = 0; d < a->ndim; d++) {
        dim_text(sig, lathe__dim_here(p, a->dim[d]), dim, sizeof dim);
        facts_string(f, NULL, dim);
        text_add(&shape, "%s%s", d ? "," : "", dim);
    }
    facts_close(f);
    facts_bool(f, "optional", a->optional);
    facts_bool(f, "grad", a->grad);
    facts_bool(f, "given", arg_in(p->present, i));
    facts_close(f);
    facts_line(f, "  %-12s %-7s %-5s [%s]%s%s%s\n", a->name, role_text(a), dtype,
               shape.data ? shape.data : "", a->optional ? " optional" : "", a->grad ? " grad" : "",
               arg_in(p->present, i) ? "" : " (left out)");
    text_free(&shape);
}

static void explain_params(struct facts *f, const struct ir *ir)
{
    facts_open(f, "parameters", '{');
    for (int i = 0; i < ir->n_params; i++) {
        facts_number(f, ir->param[i].name, ir->param[i].value);
        facts_line(f, "  %-12s param   %.9g (line %d; default %.9g)\n", ir->param[i].name, ir->param[i].value,
                   ir->param[i].line, ir->param[i].usual);
    }
    facts_close(f);
}

void explain_problem(struct facts *f, const struct ir *ir, lathe_pass pass, const struct signature *sig,
                     const struct problem *p)
{
    const char *name = lathe__pass_text(pass);
    struct text_buf text = {0};
    facts_string(f, "spec", ir->name);
    facts_string(f, "kind", sig->kind);
    facts_string(f, "pass", name);
    facts_line(f, "%s (%s, %s)\n", ir->name, sig->kind, name);
    explain_params(f, ir);
    facts_open(f, "arguments", '[');
    for (int i = 0; i < sig->n_args; i++)
        explain_arg(f, sig, p, i);
    facts_close(f);
    problem_text(sig, p, &text);
    facts_string(f, "problem", text.data ? text.data : "");
    facts_line(f, "problem\n  %s\n", text.data ? text.data : "");
    text_free(&text);
}

/* ---- what is served ---------------------------------------------------------------------------- */

static const char *pass_text(lathe_pass pass)
{
    return pass == LATHE_FORWARD ? "forward" : pass == LATHE_BACKWARD ? "backward" : "combine";
}

/* An item of a list, in lines of a page's width. */
static void add_item(const char *words, struct text_buf *out)
{
    enum { PAGE_COLUMNS = 120 };
    int column = 1;
    text_add(out, "-");
    for (const char *at = words; *at;) {
        const int size = (int)strcspn(at, " ");
        if (column + 1 + size > PAGE_COLUMNS) {
            text_add(out, "\n ");
            column = 1;
        }
        text_add(out, " %.*s", size, at);
        column += 1 + size;
        at += size + (at[size] == ' ');
    }
    text_add(out, "\n");
}

void explain_templates(struct text_buf *out)
{
    for (int k = 0; k < KIND_COUNT; k++)
        for (const struct template_row *t = kinds[k].templates; t->name; t++) {
            if (t->serves.dtypes == 0)
                continue;
            const struct isa_row *isa = &isas[t->isa];
            struct text_buf words = {0};
            text_add(&words, "`%s`, %s, from %s%.0d: ", t->name, pass_text(t->pass),
                     isa->arch ? isa->arch : "sm_", isa->arch ? 0 : isa->sm);
            serves_text(&t->serves, kinds[k].features, &words);
            add_item(words.data ? words.data : "", out);
            out->failed |= words.failed;
            text_free(&words);
        }
}

static void explain_serves(struct facts *f, const struct kernel_request *r, const struct template_row *row)
{
    struct text_buf text = {0};
    if (row->serves.dtypes == 0)
        return;
    serves_text(&row->serves, r->features, &text);
    facts_string(f, "serves", text.data ? text.data : "");
    facts_line(f, "  serves        %s\n", text.data ? text.data : "");
    text_free(&text);
}

/* ---- the plan ------------------------------------------------------------------------------------ */

void explain_plan(struct facts *f, const struct kernel_request *r, const struct plan *plan)
{
    facts_bool(f, "served", true);
    facts_string(f, "template", plan->row->name);
    facts_string(f, "file", plan->row->file);
    facts_string(f, "tile", plan->tile);
    facts_line(f, "  template      %s (%s)\n", plan->row->name, plan->row->file);
    explain_serves(f, r, plan->row);
    kinds[r->ir->kind].explain(f, plan);
}

/* Templates that come before the chosen one. */
void explain_refusals(struct facts *f, const struct kernel_request *r)
{
    lathe_error why;
    plan_refusals(r, &why);
    facts_strings(f, "not_chosen", why.text);
    for (const char *line = why.text; *line;) {
        const int size = (int)strcspn(line, "\n");
        facts_line(f, "  not chosen    %.*s\n", size, line);
        line += size + (line[size] == '\n');
    }
}

void explain_unserved(struct facts *f, const char *why)
{
    facts_bool(f, "served", false);
    facts_strings(f, "not_chosen", why);
    facts_line(f, "  not served\n%s\n", why);
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

static int64_t workspace_bytes(const struct source *s, const struct problem *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->n_buffers; i++)
        bytes = (bytes + 255) / 256 * 256 + lathe__buffer_bytes(&s->buffer[i], p);
    return bytes;
}

static int64_t blocks_of(const struct launch *l, const struct problem *p)
{
    const int64_t share = l->grid_share > 1 ? l->grid_share : 1;
    if (l->when != SYM_ONE && (p->dim[l->when] < l->least || p->dim[l->when] > l->most))
        return 0;
    const int64_t blocks = (product_value(&l->grid, p) + share - 1) / share;
    return l->grid_limit > 0 && blocks > l->grid_limit ? l->grid_limit : blocks;
}

static void explain_kernel(struct facts *f, const struct launch *l, const struct problem *p)
{
    facts_open(f, NULL, '{');
    facts_string(f, "entry", l->entry);
    facts_integer(f, "blocks", blocks_of(l, p));
    facts_integer(f, "threads", l->threads);
    facts_integer(f, "shared_memory", l->smem_bytes);
    facts_close(f);
    if (l->when != SYM_ONE && blocks_of(l, p) == 0)
        facts_line(f, "  kernel        %s: for other lengths\n", l->entry);
    else
        facts_line(
            f, "  kernel        %s: %" PRId64 " blocks of %d threads, %d bytes of dynamic shared memory\n",
            l->entry, blocks_of(l, p), l->threads, l->smem_bytes);
}

/* A part of the work keeps one multiprocessor busy, at the least. */
static void explain_busy(struct facts *f, const struct kernel_request *r, const struct plan *plan)
{
    const struct kind_row *kind = &kinds[r->ir->kind];
    const char *what = NULL;
    const int64_t parts = kind->parts ? kind->parts(plan, r->problem, &what) : 0;
    const int64_t sms = r->device->sm_count;
    if (!what || sms <= 0)
        return;
    const int64_t busy = parts < sms ? parts : sms;
    facts_integer(f, "busy_multiprocessors", busy);
    facts_integer(f, "multiprocessors", sms);
    facts_line(
        f, "  busy          %" PRId64 " of %" PRId64 " multiprocessors (%.0f %%): there %s %" PRId64 " %s\n",
        busy, sms, 100.0 * (double)busy / (double)sms, parts == 1 ? "is" : "are", parts, what);
}

void explain_kernels(struct facts *f, const struct kernel_request *r, const struct plan *plan,
                     const struct source *source)
{
    facts_string(f, "label", source->label);
    facts_integer(f, "workspace", workspace_bytes(source, r->problem));
    facts_line(f, "  label         %s\n  workspace     %" PRId64 " bytes\n", source->label,
               workspace_bytes(source, r->problem));
    facts_open(f, "kernels", '[');
    for (int i = 0; i < source->n_launches; i++)
        explain_kernel(f, &source->launch[i], r->problem);
    facts_close(f);
    explain_busy(f, r, plan);
}
