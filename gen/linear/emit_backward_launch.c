/*
 * emit_backward_launch.c: parameter structs and launch recipe of linear attention's backward pass. In:
 * lowered formulas, a plan. Out: the structs as text, and the launches in the order of
 * templates/common/concepts.cuh, only those that the problem needs. What kernels hand to each other lives in
 * the workspace.
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/linear/backward.h"
#include "gen/linear/emit_recipe.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>

enum { /* of the templates that they are named after */
       BACK_MOD_THREADS = 256,
       BACK_MOD_TOKENS = 64,
       TOKEN_TOKENS = 64
};

static const char *const BUFFER_NAME[BUFFERS] = {
    "again_o",  "divided",     "errors", "dx",    "dq_head",  "dk_head", "dk_read", "dlog",    "chunks",
    "ends",     "own",         "skip",   "reads", "writes",   "inverse", "states",  "dstates", "written",
    "dwritten", "divided_out", "sums",   "dbeta", "dv_parts", "norms",   "dnorms"};

static const char *const GRADIENT[TENSOR_O] = {"dq", "dk", "dv"};

/* ---- gradients of inputs --------------------------------------------------------------------------- */

static int gradient_arg(const struct emitter *e, int input)
{
    char name[NAME_MAX_BYTES + 2];
    snprintf(name, sizeof name, "d%s", e->w->input[input].name);
    return lathe__arg_find(e->sig, name, 0);
}

void emit_linear_grads(struct emitter *e, const struct linear_back *b)
{
    bool any = false;
    text_add(e->out, "struct alignas(8) grads { // gradients of the spec's inputs\n");
    for (int i = 0; i < e->w->n_inputs; i++) {
        if (!b->wanted[i])
            continue;
        any = true;
        text_add(e->out, "    %s *d_%s;\n", linear_back_is_sum(e, b, i) ? "exact_sum" : "float",
                 e->w->input[i].name);
        for (int d = 0; d < e->w->input[i].n_dims; d++)
            text_add(e->out, "    long long s%d_%s;\n", d, e->w->input[i].name);
    }
    text_add(e->out, "%s};\n\n", any ? "" : "    long long none;\n");
}

/* Rows of struct grads, which `p` has declared as one member. */
static void grads_member(struct params *p, const struct recipe *r)
{
    static const char *const suffix[] = {""};
    const struct emitter *e = r->e;
    struct text_buf none = {0};
    struct text_buf *out = p->out;
    bool any = false;
    text_add(out, "    grads g;\n");
    p->out = &none;
    for (int i = 0; i < e->w->n_inputs; i++) {
        const struct input *in = &e->w->input[i];
        if (!r->b->wanted[i])
            continue;
        any = true;
        params_pointer(p, "float", in->name, r->sum[i] >= 0 ? PARAM_WORK_DATA : PARAM_ARG_DATA,
                       r->sum[i] >= 0 ? r->sum[i] : gradient_arg(e, i));
        for (int d = 0; d < in->n_dims; d++) {
            struct product compact = product_of(1);
            for (int k = d + 1; k < in->n_dims; k++)
                linear_back_times(&compact, &in->dim[k], 1);
            if (r->sum[i] >= 0)
                params_product(p, in->name, &compact);
            else
                params_strides(p, in->name, suffix, gradient_arg(e, i), 1, d);
        }
    }
    if (!any)
        params_null(p, "char", "none");
    text_fail_with(out, &none);
    text_free(&none);
    p->out = out;
}

/* heads/zero_and_sum.cuh: strides and sizes of a gradient, its dims the last of four. */
static void shape_members(struct params *p, const struct recipe *r, int input)
{
    static const char *const stride[] = {"0", "1", "2", "3"};
    const struct input *in = &r->e->w->input[input];
    const int first = INPUT_DIMS - in->n_dims;
    struct text_buf none = {0};
    struct text_buf *out = p->out;
    text_add(out, "    long long s0, s1, s2, s3, n0, n1, n2, n3;\n");
    p->out = &none;
    for (int k = 0; k < 2 * INPUT_DIMS; k++) {
        const int d = k % INPUT_DIMS - first;
        struct product size = product_of(k < INPUT_DIMS ? 0 : 1);
        if (d >= 0 && k >= INPUT_DIMS)
            linear_back_times(&size, &in->dim[d], 1);
        if (d >= 0 && k < INPUT_DIMS)
            params_strides(p, "s", &stride[k], gradient_arg(r->e, input), 1, d);
        else
            params_product(p, "n", &size);
    }
    text_fail_with(out, &none);
    text_free(&none);
    p->out = out;
}

static void add_input_kernel(struct recipe *r, int input, bool exact)
{
    const char *type = exact ? "back_sum_params" : "back_zero_params";
    const struct input *in = &r->e->w->input[input];
    struct launch *launch = add_launch(r->out, r->e, exact ? "bwd_sum" : "bwd_zero", INPUT_THREADS);
    struct params p;
    launch->grid = product_of(1);
    for (int d = 0; d < in->n_dims; d++)
        linear_back_times(&launch->grid, &in->dim[d], input_tile(in->n_dims - d));
    params_open_once(&p, r->e, launch, type);
    if (exact)
        params_pointer(&p, "const exact_sum", "src", PARAM_WORK_DATA, r->sum[input]);
    params_pointer(&p, "float", "dst", PARAM_ARG_DATA, gradient_arg(r->e, input));
    shape_members(&p, r, input);
    params_close(&p, type);
    r->declared_input[exact] = true;
}

static void add_input_kernels(struct recipe *r, bool exact)
{
    for (int i = 0; i < r->e->w->n_inputs; i++)
        if (r->b->wanted[i] && linear_back_is_sum(r->e, r->b, i) == exact &&
            !linear_back_fills(r->e->w, r->b, i))
            add_input_kernel(r, i, exact);
}

/* heads/zero_and_sum.cuh names both structs, whichever of its kernels is launched. */
static void declare_input_params(const struct recipe *r)
{
    static const char members[] = "float *dst;\n    long long s0, s1, s2, s3, n0, n1, n2, n3;\n};\n\n";
    if (!r->declared_input[false])
        text_add(r->e->out, "struct back_zero_params {\n    %s", members);
    if (!r->declared_input[true])
        text_add(r->e->out, "struct back_sum_params {\n    const exact_sum *src;\n    %s", members);
}

/* ---- launches ---------------------------------------------------------------------------------------- */

/* dq where nobody takes it, dk that there may not be. */
static void optional_place(struct params *p, const char *name, const struct place *t)
{
    if (t->arg < 0 && t->buffer < 0) {
        static const char *const suffix[] = {"b", "h", "t"};
        const struct product none = product_of(0);
        params_null(p, "void", name);
        for (int d = 0; d < 3; d++) {
            char member[NAME_MAX_BYTES];
            snprintf(member, sizeof member, "%s_%s", name, suffix[d]);
            params_product(p, member, &none);
        }
        return;
    }
    linear_pointer(p, "void", name, t);
    linear_strides(p, name, t);
}

static void add_back_params(struct recipe *r, struct launch *launch)
{
    static const char *const name[] = {"q", "k", "v"};
    struct params p;
    params_open_once(&p, r->e, launch, "linear_back_params");
    for (int t = 0; t < TENSOR_O; t++) {
        linear_pointer(&p, "const void", name[t], &r->l.inner[t]);
        linear_strides(&p, name[t], &r->l.inner[t]);
    }
    linear_pointer(&p, "const void", "dout", &r->dout);
    linear_strides(&p, "dout", &r->dout);
    for (int t = 0; t < TENSOR_O; t++)
        optional_place(&p, GRADIENT[t], &r->grad[t]);
    linear_state_of_slot(&p, r->e, "const ", "state", 4);
    linear_state_of_slot(&p, r->e, "const ", "norm", 3);
    linear_state_of_slot(&p, r->e, "const ", "dstate_out", 4);
    linear_state_of_slot(&p, r->e, "const ", "dnorm_out", 3);
    linear_state_of_slot(&p, r->e, "", "dstate", 4);
    linear_state_of_slot(&p, r->e, "", "dnorm", 3);
    const struct linear_template *template = r->plan->row->linear;
    for (int k = 0; k < (template->few_buffers ? BUFFERS_OF_ALL : BUFFERS); k++) {
        const char *type = k >= BUFFERS_OF_ALL && k < SUMS ? "void" : "float";
        if (r->buffer[k] >= 0)
            params_pointer(&p, type, BUFFER_NAME[k], PARAM_WORK_DATA, r->buffer[k]);
        else
            params_null(&p, type, BUFFER_NAME[k]);
    }
    for (int t = 0; t < TENSOR_V && template->takes_mods; t++)
        linear_given(&p, &r->l, t);
    linear_index(&p, r->e, "cu");
    params_token_sizes(&p);
    params_inputs(&p, r->e, "x");
    grads_member(&p, r);
    params_close(&p, "linear_back_params");
}

/* ---- stages of a template --------------------------------------------------------------------------------
 */

static void finish(struct recipe *r, struct launch *launch, struct product grid, int smem_bytes)
{
    launch->grid = grid;
    launch->smem_bytes = smem_bytes;
    add_back_params(r, launch);
}

void back_of_heads(struct recipe *r, const char *role, int blocks, int threads, int smem_bytes)
{
    struct product grid = product_of(blocks);
    product_times(&grid, SYM_SEQS, 1);
    product_times(&grid, SYM_H, 1);
    finish(r, add_launch(r->out, r->e, role, threads), grid, smem_bytes);
}

void back_of_chunks(struct recipe *r, const char *role, int blocks, int threads, int smem_bytes)
{
    finish(r, add_launch(r->out, r->e, role, threads), linear_chunks(r->e, blocks, SYM_H), smem_bytes);
}

void back_of_tokens(struct recipe *r, const char *role, enum sym heads, bool grouped)
{
    struct product grid = product_of(1);
    grid.grouped = grouped;
    product_times(&grid, SYM_B, 1);
    product_times(&grid, heads, 1);
    product_times(&grid, SYM_T, TOKEN_TOKENS);
    finish(r, add_launch(r->out, r->e, role, BACK_TOKEN_THREADS), grid, 0);
}

void back_of_bands(struct recipe *r, const char *role)
{
    const struct linear_plan *plan = &r->plan->linear;
    back_of_chunks(r, role, plan->bands * plan->key_parts, plan->chunk_threads, plan->smem_bytes);
    if (plan->bands > 1)
        back_of_tokens(r, "bwd_bands", SYM_H, false);
}

void back_by_token(struct recipe *r, const char *role, int slices)
{
    back_of_heads(r, role, slices, 32 * r->plan->linear.warps, 0);
}

void back_divisors(struct recipe *r)
{
    if (r->buffer[DIVIDED] >= 0)
        back_of_tokens(r, "bwd_divisors", SYM_H, false);
}

bool back_wants_again(const struct recipe *r)
{
    return r->buffer[AGAIN_O] >= 0 || r->buffer[ERRORS] >= 0;
}

void back_again(struct recipe *r)
{
    if (back_wants_again(r))
        back_by_token(r, "bwd_again", r->plan->linear.slices);
}

/* ---- mods, and what is of tokens by themselves
 * ------------------------------------------------------------- */

/* `launch` NULL: the struct is declared. */
static void adjoint_params(struct recipe *r, struct launch *launch, const struct place *src,
                           const struct place *grad, const struct place *dst)
{
    struct params p;
    params_open_once(&p, r->e, launch, "back_mod_params");
    linear_pointer(&p, "const void", "src", src);
    linear_pointer(&p, "const void", "grad", grad);
    linear_strides(&p, "src", src);
    linear_strides(&p, "grad", grad);
    optional_place(&p, "dst", dst);
    if (r->buffer[SKIP] >= 0)
        params_pointer(&p, "float", "skip", PARAM_WORK_DATA, r->buffer[SKIP]);
    else
        params_null(&p, "float", "skip");
    params_sym(&p, "n_h", grad->heads);
    params_sym(&p, "len", SYM_T);
    params_start(&p, "pos0", false);
    params_token_sizes(&p);
    params_inputs(&p, r->e, "x");
    grads_member(&p, r);
    linear_element_step(&p, "src", src);
    linear_element_step(&p, "grad", grad);
    params_close(&p, "back_mod_params");
}

static void add_adjoint(struct recipe *r, int t, const struct place *src, const struct place *grad,
                        const struct place *dst)
{
    static const char *const role[] = {"bwd_q", "bwd_k", "bwd_v", "bwd_o"};
    struct launch *launch = add_launch(r->out, r->e, role[t], BACK_MOD_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, grad->heads, 1);
    product_times(&launch->grid, SYM_T, BACK_MOD_TOKENS);
    adjoint_params(r, launch, src, grad, dst);
}

/* Files of the template name structs, whether or not a mod or an adjoint is launched. */
static void declare_adjoints(struct recipe *r)
{
    const struct place *any = &r->l.outer[TENSOR_O];
    if (r->plan->row->linear->names_adjoints)
        adjoint_params(r, NULL, any, any, &r->dout);
}

static void add_mods(struct recipe *r)
{
    for (int t = 0; t < TENSOR_O; t++)
        if (r->l.moved[t] && !r->l.prepared[t])
            linear_add_mod(r->e, &r->l, t, r->out);
    linear_declare_mod(r->e, &r->l);
}

/* What flows back to o: through the output mod, whose o was made again if a formula reads it, or to rows that
   are aligned. */
static void add_output_adjoint(struct recipe *r)
{
    struct place again = r->l.outer[TENSOR_O];
    const struct place *given = &r->given_dout;
    again.arg = -1;
    again.buffer = r->buffer[AGAIN_O];
    add_adjoint(r, TENSOR_O, linear_back_reads_output(r->e->w, r->b) ? &again : given, given, &r->dout);
}

/* That bwd_tokens is for. */
static bool any_site(const struct recipe *r)
{
    const bool given = linear_back_gives(r->e->w, r->plan, r->b);
    bool any = false;
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        any |= r->b->site[k].n > 0 && !(given && k == OF_DECAY);
    return any;
}

static void add_kernels(struct recipe *r, const struct back_runs *runs)
{
    const struct linear_template *template = r->plan->row->linear;
    const bool bonus = r->e->spec->linear.bonus.n_roots > 0;
    template->again(r);
    if (runs->mod[MOD_OUTPUT])
        add_output_adjoint(r);
    template->back(r);
    if (any_site(r) || bonus)
        back_of_tokens(r, "bwd_tokens", linear_back_any_grouped(r->e->w, r->b) ? SYM_H_K : SYM_H, false);
    if (!template->no_heads)
        back_of_tokens(r, "bwd_heads", SYM_H_K,
                       r->plan->linear.bands <= 1 && (template->by_chunk || !linear_back_keeps_heads(r)));
    for (int t = 0; t < TENSOR_O; t++)
        if (runs->mod[t] && !runs->in_chunks[t])
            add_adjoint(r, t, &r->l.outer[t], &r->grad[t], &r->result[t]);
    declare_adjoints(r);
}

/* Of tokens that are several steps: of what is left for each step. */
static void add_gradients(struct recipe *r)
{
    for (int t = 0; t < TENSOR_O; t++) {
        struct place to = r->l.outer[t];
        to.arg = lathe__arg_find(r->e->sig, GRADIENT[t], 0);
        if (problem_has(r->e->problem, to.arg))
            updates_gather(r->e, t, &r->result[t], &to, r->out);
    }
}

void emit_linear_back_launches(struct emitter *e, const struct linear_back *b, const struct plan *plan,
                               struct source *out, struct back_runs *runs)
{
    struct recipe r = {.e = e, .b = b, .plan = plan, .out = out};
    linear_layout(e, &r.l, TENSOR_O, out);
    linear_choose_prepared(e, plan, &r.l);
    for (int t = 0; t < TENSOR_COUNT; t++)
        runs->moved[t] = r.l.moved[t];
    linear_back_place(&r, runs);
    add_input_kernels(&r, false);
    add_mods(&r);
    add_kernels(&r, runs);
    add_gradients(&r);
    add_input_kernels(&r, true);
    declare_input_params(&r);
}
