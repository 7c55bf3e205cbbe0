/*
 * emit.c: variant.gen.cuh of linear attention. In: a lowered spec, a plan. Out: the struct `variant` of
 * templates/common/concepts.cuh, in e->out; parameter structs and launches come from emit_launch.c.
 */
#include "gen/linear/columns.h"
#include "gen/linear/emit.h"
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"
#include "runtime/recipe/recipe.h"

static const char *const FUNCTION[LINEAR_FUNCTIONS] = {
#define LINEAR_SLOT(ID, name, ...) [OF_##ID] = #ID,
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
};

/* What the formulas say of the recurrence is compiled in, like the numbers of the plan. */
static void emit_config_of_spec(struct text_buf *t, const struct emitter *e)
{
    static const char *const decay[] = {"DECAY_NONE", "DECAY_HEAD", "DECAY_TOKEN", "DECAY_KEY",
                                        "DECAY_VALUE"};
    const struct ir_linear *l = &e->spec->linear;
    text_add(t, "\nnamespace cfg { // of the recurrence\nconstexpr int DECAY = %s;\nconstexpr bool ",
             decay[linear_decay_form(e->spec)]);
    for (int k = OF_DECAY + 1; k < LINEAR_FUNCTIONS; k++)
        if (!linear_slot_sees_key((enum linear_function)k))
            text_add(t, "%s = %s, ", FUNCTION[k], yes(linear_has(e->spec, (enum linear_function)k)));
    text_add(t, "NORMALISE = %s;\n", yes(l->normalise));
    text_add(t, "constexpr bool HAS_READER = %s, HAS_WRITER = %s, READS_BEFORE = %s;\n",
             yes(linear_has(e->spec, OF_READER)), yes(linear_has(e->spec, OF_WRITER)), yes(l->read_first));
    text_add(t, "constexpr bool CAUSAL = %s, REVERSE = %s, PACKED = %s;\n", yes(!l->all_tokens),
             yes(l->reverse), yes(problem_has(e->problem, lathe__arg_find(e->sig, "cu", 0))));
    if (ir_steps(e->spec) > 1)
        text_add(t, "constexpr int UPDATES = %d;\n", ir_steps(e->spec));
    if (ir_query_heads(e->spec) > 1)
        text_add(t, "constexpr bool CLEARS_KEYS = %s;\n",
                 yes(!linear_has(e->spec, OF_DELTA) && e->spec->mod[MOD_KEY].n_stages == 0));
    text_add(t, "} // namespace cfg\n");
}

static bool emit_forward(struct emitter *e, const struct plan *plan, struct source *out)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    struct functions f = {.e = e};
    bool moved[MOD_COUNT];
    linear_include_slots(e);
    emit_inputs_struct(e);
    emit_linear_launches(e, plan, out, moved);
    if (!linear_collect(&f, NULL, 0))
        return false;
    text_add(e->out, "struct variant {\n");
    for (int m = 0; m < MOD_COUNT; m++)
        emit_mod_struct(e, (enum mod)m, name[m], moved[m]);
    emit_linear_functions(&f);
    text_add(e->out, "};\n");
    return true;
}

bool emit_linear(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                 struct text_buf *variant, struct source *out)
{
    struct emitter e;
    bool ok = emitter_open(&e, r->linear->w, r->sig, r->problem, variant);
    e.spec = r->spec;
    if (ok)
        emit_config_of_spec(config, &e);
    if (r->pass == LATHE_BACKWARD)
        ok = ok && emit_linear_backward(&e, &r->linear->back, plan, config, out);
    else
        ok = ok && emit_forward(&e, plan, out);
    updates_count(&e, out);
    emitter_close(&e);
    return ok;
}
