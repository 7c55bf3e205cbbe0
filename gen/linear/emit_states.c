/*
 * emit_states.c: states in parameter structs of linear attention, and which state a sequence has. In: a
 * problem. Out: members as text, and the rows that fill them.
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/linear/emit.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

/* A state, or a gradient of one: [seqs or slots, h, d, d_v], and the sum of keys, without d_v. prefix: "const
   " of what is read. */
static void linear_state(struct params *p, const struct emitter *e, const char *prefix, const char *name,
                         int dims)
{
    char type[32];
    static const char *const suffix[] = {"b", "h", "i", "j"};
    const int arg = lathe__arg_find(e->sig, name, 0);
    snprintf(type, sizeof type, "%s%s", prefix, element_type(e->problem->dtype[DTYPE_STATE]));
    if (arg >= 0) {
        params_pointer(p, type, name, PARAM_ARG_DATA, arg);
        params_strides(p, name, suffix, arg, dims, 0);
        return;
    }
    params_null(p, type, name);
    for (int d = 0; d < dims; d++) {
        char member[NAME_MAX_BYTES];
        const struct product none = product_of(0);
        snprintf(member, sizeof member, "%s_%s", name, suffix[d]);
        params_product(p, member, &none);
    }
}

void linear_index(struct params *p, const struct emitter *e, const char *name)
{
    static const char *const suffix = "step";
    const bool starts = e->starts > 0 && strcmp(name, "cu") == 0;
    const struct product step = product_of(starts ? 1 : 0);
    char member[NAME_MAX_BYTES];
    const int arg = lathe__arg_find(e->sig, name, 0);
    if (starts)
        params_pointer(p, "const int", name, PARAM_WORK_DATA, e->starts - 1);
    else if (arg >= 0)
        params_pointer(p, "const int", name, PARAM_ARG_DATA, arg);
    else
        params_null(p, "const int", name);
    snprintf(member, sizeof member, "%s_step", name);
    if (arg >= 0 && !starts)
        params_strides(p, name, &suffix, arg, 1, 0);
    else
        params_product(p, member, &step);
}

/* ---- read from one slot of a pool, and written to another -------------------------------------------- */

/* Is a state read from one slot of a pool and written to another? A backward pass finds states of any pool
 * so. */
static bool has_two_slots(const struct emitter *e)
{
    const bool written = problem_has_named(e->sig, e->problem, "state_out_index");
    return written || (e->sig->backward && problem_has_named(e->sig, e->problem, "state_index"));
}

void linear_include_slots(struct emitter *e)
{
    if (has_two_slots(e))
        text_add(e->out, "#include \"linear/slots.cuh\"\n");
}

/* A slot_list of linear/slots.cuh. */
static void slot_list_rows(struct params *p, const struct emitter *e, const char *list)
{
    const int arg = lathe__arg_find(e->sig, list, 0);
    const struct product slots = {.scale = 1, .n = 1, .factor = {{.sym = SYM_SLOTS, .tile = 1}}};
    params_row(p, PARAM_ARG_DATA, arg, 0, 8);
    params_row(p, PARAM_ARG_STRIDE, arg, 0, 8);
    params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = slots;
}

/* In the place of the stride between states. */
static void slot_stride(struct params *p, const struct emitter *e, const char *list, const char *name)
{
    slot_list_rows(p, e, list);
    params_row(p, PARAM_ARG_STRIDE, lathe__arg_find(e->sig, name, 0), 0, 8);
    text_add(p->out, "    linear::slot_stride %s_b;\n", name);
}

/* Backward, what is written is the gradient of what was read, and the other way round. */
static const char *slots_of(const struct emitter *e, const char *name)
{
    const bool out = strstr(name, "_out") != NULL;
    return out && problem_has_named(e->sig, e->problem, "state_out_index") ? "state_out_index"
                                                                           : "state_index";
}

void linear_state_of_slot(struct params *p, const struct emitter *e, const char *prefix, const char *name,
                          int dims)
{
    static const char *const suffix[] = {"h", "i", "j"};
    char type[32];
    const int arg = lathe__arg_find(e->sig, name, 0);
    if (arg < 0 || !has_two_slots(e)) {
        linear_state(p, e, prefix, name, dims);
        return;
    }
    snprintf(type, sizeof type, "%s%s", prefix, element_type(e->problem->dtype[DTYPE_STATE]));
    params_pointer(p, type, name, PARAM_ARG_DATA, arg);
    slot_stride(p, e, slots_of(e, name), name);
    params_strides(p, name, suffix, arg, dims - 1, 1);
}

/* Which slot a sequence has; kernels number states by sequence where it has two. */
void linear_slots(struct params *p, const struct emitter *e)
{
    const struct product one = product_of(1);
    if (!has_two_slots(e)) {
        linear_index(p, e, "state_index");
        params_sym(p, "slots", SYM_SLOTS);
        return;
    }
    slot_list_rows(p, e, "state_index");
    slot_list_rows(p, e, "state_out_index");
    text_add(p->out, "    linear::read_and_written state_index;\n");
    params_product(p, "state_index_step", &one);
    params_sym(p, "slots", SYM_SEQS);
}

/* ---- behind tokens ------------------------------------------------------------------------------------- */

void linear_kept(struct params *p, const struct emitter *e)
{
    static const char *const suffix[] = {"b", "t"};
    const int index = lathe__arg_find(e->sig, "states_index", 0);
    if (!problem_has(e->problem, index))
        return;
    linear_state(p, e, "", "states", 4);
    linear_state(p, e, "", "norms", 3);
    params_pointer(p, "const int", "states_index", PARAM_ARG_DATA, index);
    params_strides(p, "states_index", suffix, index, 2, 0);
    params_sym(p, "kept", SYM_KEPT);
}
