/*
 * emit_back_inputs.c: gradients of a spec's inputs in the recipe of attention's backward pass. In: the recipe
 * as far as it is. Out: struct grads, the launches that zero such a gradient or write it from exact sums.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/backward.h"
#include "gen/attention/emit/emit_back_recipe.h"
#include "gen/base/text.h"
#include "gen/heads/sites.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>

bool input_is_exact(const struct emitter *e, int input)
{
    return e->problem->deterministic && backward_shares_elements(e->w, e->back, input);
}

/* "float", "exact_sum" */
static const char *grad_type(const struct emitter *e, int input)
{
    return input_is_exact(e, input) ? "exact_sum" : "float";
}

void product_times_dim(struct product *p, const struct sig_dim *dim, int tile)
{
    if (dim->literal > 0)
        p->scale *= (dim->literal + tile - 1) / tile;
    else
        product_times(p, (enum sym)dim->sym, tile);
}

static struct product compact_stride_of(const struct input *in, int d)
{
    struct product p = product_of(1);
    for (int k = d + 1; k < in->n_dims; k++)
        product_times_dim(&p, &in->dim[k], 1);
    return p;
}

void emit_grads_struct(struct emitter *e)
{
    bool any = false;
    text_add(e->out, "struct alignas(8) grads { // gradients of the spec's inputs\n");
    for (int i = 0; i < e->w->n_inputs; i++) {
        if (!grad_wanted(e, i))
            continue;
        any = true;
        text_add(e->out, "    %s *d_%s;\n", grad_type(e, i), e->w->input[i].name);
        for (int d = 0; d < e->w->input[i].n_dims; d++)
            text_add(e->out, "    long long s%d_%s;\n", d, e->w->input[i].name);
    }
    text_add(e->out, "%s};\n\n", any ? "" : "    long long none;\n");
}

/* Rows of struct grads, which `p` has declared as one member. */
void back_add_grads(struct params *p, const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    struct text_buf none = {0};
    struct text_buf *out = p->out;
    const uint32_t start = p->offset;
    text_add(out, "    grads g;\n");
    p->out = &none;
    for (int i = 0; i < e->w->n_inputs; i++) {
        const struct input *in = &e->w->input[i];
        if (!grad_wanted(e, i))
            continue;
        const int arg = gradient_of_input(e, i);
        params_pointer(p, "float", in->name, r->sum[i] >= 0 ? PARAM_WORK_DATA : PARAM_ARG_DATA,
                       r->sum[i] >= 0 ? r->sum[i] : arg);
        for (int d = 0; d < in->n_dims; d++) {
            static const char *const suffix[] = {""};
            const struct product compact = compact_stride_of(in, d);
            if (r->sum[i] >= 0)
                params_product(p, in->name, &compact);
            else
                params_strides(p, in->name, suffix, arg, 1, d);
        }
    }
    if (p->offset == start)
        params_null(p, "char", "none");
    text_fail_with(out, &none);
    text_free(&none);
    p->out = out;
}

/* bwd_zero and bwd_sum: strides and sizes of a gradient, its dims the last of four. */
static void add_shape(struct params *p, const struct recipe *r, int input)
{
    static const char *const suffix[] = {""};
    const struct input *in = &r->a.e->w->input[input];
    const int first = INPUT_DIMS - in->n_dims;
    for (int k = 0; k < 2 * INPUT_DIMS; k++) {
        const int d = k % INPUT_DIMS - first;
        char name[8];
        struct product size = product_of(k < INPUT_DIMS ? 0 : 1);
        snprintf(name, sizeof name, "%c%d", k < INPUT_DIMS ? 's' : 'n', k % INPUT_DIMS);
        if (d >= 0 && k >= INPUT_DIMS) {
            const struct sig_dim dim = gradient_dim(r->a.e, input, d);
            product_times_dim(&size, &dim, 1);
        }
        if (d >= 0 && k < INPUT_DIMS) {
            struct params *q = p;
            struct text_buf none = {0};
            struct text_buf *out = p->out;
            text_add(out, "    long long %s;\n", name);
            q->out = &none;
            params_strides(q, name, suffix, gradient_of_input(r->a.e, input), 1, d);
            q->out = out;
            text_free(&none);
        } else {
            params_product(p, name, &size);
        }
    }
}

static void add_input_kernel(struct recipe *r, int input, bool exact)
{
    const char *type = exact ? "back_sum_params" : "back_zero_params";
    const struct emitter *e = r->a.e;
    const struct input *in = &e->w->input[input];
    struct launch *launch = add_launch(r->out, e, exact ? "bwd_sum" : "bwd_zero", INPUT_THREADS);
    struct params p;
    launch->grid = product_of(1);
    for (int d = 0; d < in->n_dims; d++) {
        const struct sig_dim dim = gradient_dim(e, input, d);
        product_times_dim(&launch->grid, &dim, input_tile(in->n_dims - d));
    }
    params_open(&p, r->declared_input[exact] ? &r->none : e->out, launch, type);
    if (exact)
        params_pointer(&p, "const exact_sum", "src", PARAM_WORK_DATA, r->sum[input]);
    params_pointer(&p, "float", "dst", PARAM_ARG_DATA, gradient_of_input(e, input));
    add_shape(&p, r, input);
    params_close(&p, type);
    r->declared_input[exact] = true;
}

void back_add_input_kernels(struct recipe *r, bool exact)
{
    for (int i = 0; i < r->a.e->w->n_inputs; i++)
        if (grad_wanted(r->a.e, i) && input_is_exact(r->a.e, i) == exact)
            add_input_kernel(r, i, exact);
}

/* heads/zero_and_sum.cuh names both structs, whichever of its kernels is launched. */
void back_declare_input_params(const struct recipe *r)
{
    static const char members[] = "float *dst;\n    long long s0, s1, s2, s3, n0, n1, n2, n3;\n};\n\n";
    struct text_buf *out = r->a.e->out;
    if (!r->declared_input[false])
        text_add(out, "struct back_zero_params {\n    %s", members);
    if (!r->declared_input[true])
        text_add(out, "struct back_sum_params {\n    const exact_sum *src;\n    %s", members);
}
