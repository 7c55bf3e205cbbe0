/*
 * emit_combine.c: the launches of attention's combine pass (attention/combine.cuh). In: a lowered spec, a
 * plan. Out: parameter structs as text, launches and the buffer of a mod of o.
 */
#include "gen/attention/emit/emit.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

static void add_part(struct params *p, const struct emitter *e, const char *name)
{
    static const char *const dim[] = {"p", "b", "h", "t"};
    const int arg = lathe__arg_find(e->sig, name, 0);
    params_pointer(p, "const float", name, PARAM_ARG_DATA, arg);
    params_strides(p, name, dim, arg, 4, 0);
}

static void add_combine(const struct launcher *a, const struct layout *l, const struct plan *plan,
                        struct source *out)
{
    struct launch *launch = add_launch(out, a->e, "combine", plan->attention.warps * 32);
    struct params p;
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, SYM_H, 1);
    product_times(&launch->grid, SYM_Q, 1);
    launch->grid_share = plan->attention.warps;
    params_open(&p, a->e->out, launch, "combine_params");
    add_part(&p, a->e, "part_o");
    add_part(&p, a->e, "part_rows");
    emit_place_pointer(&p, "void", "o", &l->inner[TENSOR_O]);
    emit_place_strides(&p, "o", &l->inner[TENSOR_O]);
    params_sizes(&p);
    params_sym(&p, "parts", SYM_PARTS);
    params_end(&p, a, l, plan);
    params_close(&p, "combine_params");
}

void emit_combine_launches(struct emitter *e, const struct plan *plan, struct source *out,
                           bool moved[MOD_COUNT])
{
    const struct launcher a = {.e = e};
    struct layout l = {.map_buffer = -1, .counter_buffer = -1};
    make_layout(&a, &l, TENSOR_COUNT, out);
    for (int t = 0; t < TENSOR_COUNT; t++)
        moved[t] = l.moved[t];
    add_combine(&a, &l, plan, out);
    if (l.moved[TENSOR_O])
        add_mod(&a, &l, TENSOR_O, out, e->out);
}
