/*
 * linear.c: traces linear attention: its decay, delta rule, bonus and mods, and the flags of its recurrence.
 * In: the table that the constructor was given. Out: ir->linear, ir->mod, ir->scale.
 */
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/lang/slots.h"

#include <math.h>

/* A field that is true, false or absent. */
static bool read_flag_or(struct tracer *t, int slots, const char *field, bool absent)
{
    const int kind = lua_getfield(t->lua, slots, field);
    const bool value = kind == LUA_TNIL ? absent : lua_toboolean(t->lua, -1) != 0;
    if (kind != LUA_TNIL && kind != LUA_TBOOLEAN)
        slot_mistake(t, "'%s' must be true or false, got %s", field, luaL_typename(t->lua, -1));
    lua_pop(t->lua, 1);
    return value;
}

/* A number that the slot may not have, at the function that gives it: a constant has no line. */
static void check_constant(struct tracer *t, const char *field, const struct ir_fn *fn, double least,
                           double most, const char *rule)
{
    const struct ir_node *n = fn->n_roots > 0 ? &t->ir->node[fn->root[0]] : NULL;
    if (!n || n->op != OP_CONST || n->type == TYPE_BOOL || (n->value >= least && n->value <= most))
        return;
    diag_add(t->diag, t->file[fn->at.line ? fn->at.file : FILE_SPEC].name, fn->at.line, "%s: %s, given %g",
             field, rule, n->value);
}

void trace_linear(struct tracer *t, int slots)
{
    struct ir_linear *linear = &t->ir->linear;
    if (!declare_inputs(t, slots))
        return;
    trace_mod(t, slots, "query_mod", MOD_QUERY, SLOT_LINEAR_QUERY);
    trace_mod(t, slots, "key_mod", MOD_KEY, SLOT_LINEAR_KEY);
    trace_mod(t, slots, "value_mod", MOD_VALUE, SLOT_LINEAR_VALUE);
    trace_scale(t, slots, SLOT_LINEAR_SCALE);
    trace_function(t, slots, "decay", SLOT_DECAY, (struct slot_call){.fn = &linear->decay, .n_values = 1});
    check_constant(t, "decay", &linear->decay, -(double)INFINITY, 0,
                   "expected the logarithm of a factor of at most 1, a number of at most 0");
    trace_function(t, slots, "delta", SLOT_DELTA, (struct slot_call){.fn = &linear->delta, .n_values = 1});
    check_constant(t, "delta", &linear->delta, 0, 2,
                   "expected a number from 0 to 2, beyond which the state may grow without end");
    trace_function(t, slots, "bonus", SLOT_BONUS, (struct slot_call){.fn = &linear->bonus, .n_values = 1});
    trace_mod(t, slots, "output_mod", MOD_OUTPUT, SLOT_LINEAR_OUTPUT);
    linear->normalise = read_flag_or(t, slots, "normalise", false);
    linear->all_tokens = !read_flag_or(t, slots, "causal", true);
    linear->reverse = read_flag_or(t, slots, "reverse", false);
    if (linear->all_tokens && linear->reverse)
        slot_mistake(t, "'reverse' goes with causal = true alone: a sum over all tokens has no direction");
}
