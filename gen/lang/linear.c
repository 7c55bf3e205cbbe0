/*
 * linear.c: traces linear attention: the slots of its recurrence, its mods, and the flags.
 * In: the table that the constructor was given. Out: ir->linear, ir->mod, ir->scale.
 */
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/lang/slots.h"

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

/* A whole number from 1 on; 0: it is not said. */
static int read_number(struct tracer *t, int slots, const char *field, int most, const char *what)
{
    int whole = 0;
    const int kind = lua_getfield(t->lua, slots, field);
    const lua_Integer n = lua_tointegerx(t->lua, -1, &whole);
    if (kind != LUA_TNIL && (kind != LUA_TNUMBER || !whole || n < 1 || n > most))
        slot_mistake(t, "'%s' must be a whole number from 1 to %d, so many %s, got %s", field, most, what,
                     luaL_tolstring(t->lua, -1, NULL));
    lua_settop(t->lua, slots);
    return kind == LUA_TNUMBER && whole && n > 0 && n <= most ? (int)n : 0;
}

/* What says nothing, or two things, where a token makes several updates. */
static void check_updates(struct tracer *t)
{
    const struct ir_linear *linear = &t->ir->linear;
    if (ir_updates(t->ir) == 1)
        return;
    if (linear->all_tokens)
        slot_mistake(t, "'updates' goes with causal = true alone: a sum over all tokens has no steps");
    if (linear->normalise)
        slot_mistake(
            t, "'updates' does not go with normalise: the sum of keys would weigh a token by its updates; "
               "divide by what output_mod reads");
    if (linear->bonus.n_roots > 0)
        slot_mistake(t,
                     "'updates' does not go with bonus: a token has several pairs of its own, and one bonus");
}

/* The same of heads of q that read one state. */
static void check_query_heads(struct tracer *t)
{
    const struct ir_linear *linear = &t->ir->linear;
    if (ir_query_heads(t->ir) == 1)
        return;
    if (linear->all_tokens)
        slot_mistake(t, "'query_heads' goes with causal = true alone: repeat k and v for each head of q");
    if (ir_updates(t->ir) > 1)
        slot_mistake(t, "'query_heads' does not go with updates: repeat k and v for each head of q");
    if (t->ir->mod[MOD_KEY].n_stages == MAX_STAGES)
        slot_mistake(t, "'query_heads' takes a key_mod of up to %d stages; make two of them one function",
                     MAX_STAGES - 1);
    if (linear->bonus.n_roots > 0)
        slot_mistake(t,
                     "'query_heads' does not go with bonus, whose token is read ahead of its update: repeat "
                     "k and v for each head of q");
}

/* A number that the slot may not have, at the function that gives it: a constant has no line. */
static void check_constant(struct tracer *t, const struct linear_slot *slot, const struct ir_fn *fn)
{
    const struct ir_node *n = fn->n_roots > 0 ? &t->ir->node[fn->root[0]] : NULL;
    if (!n || !slot->range || n->op != OP_CONST || n->type == TYPE_BOOL ||
        (n->value >= slot->least && n->value <= slot->most))
        return;
    diag_add(t->diag, t->file[fn->at.line ? fn->at.file : FILE_SPEC].name, fn->at.line, "%s: %s, given %g",
             slot->name, slot->range, n->value);
}

static void trace_slot(struct tracer *t, int slots, enum linear_function which, enum trace_slot as)
{
    const struct linear_slot *slot = linear_slot_of(which);
    struct ir_fn *fn = &t->ir->linear.slot[which - 1];
    static const int key[] = {LEAF_X};
    trace_function(
        t, slots, slot->name, as,
        (struct slot_call){.fn = fn, .leaf = key, .n_leaves = linear_slot_sees_key(which), .n_values = 1});
    check_constant(t, slot, fn);
}

void trace_linear(struct tracer *t, int slots)
{
    struct ir_linear *linear = &t->ir->linear;
    if (!declare_inputs(t, slots))
        return;
    linear->updates = read_number(t, slots, "updates", MOST_UPDATES, "updates of the state by a token");
    linear->query_heads =
        read_number(t, slots, "query_heads", MOST_QUERY_HEADS, "heads of q that read each head of the state");
    trace_mod(t, slots, "query_mod", MOD_QUERY, SLOT_LINEAR_QUERY);
    trace_mod(t, slots, "key_mod", MOD_KEY, SLOT_LINEAR_KEY);
    trace_mod(t, slots, "value_mod", MOD_VALUE, SLOT_LINEAR_VALUE);
    trace_scale(t, slots, SLOT_LINEAR_SCALE);
#define LINEAR_SLOT(ID, name, ...) trace_slot(t, slots, OF_##ID, SLOT_##ID);
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    trace_mod(t, slots, "output_mod", MOD_OUTPUT, SLOT_LINEAR_OUTPUT);
    linear->normalise = read_flag_or(t, slots, "normalise", false);
    linear->all_tokens = !read_flag_or(t, slots, "causal", true);
    linear->reverse = read_flag_or(t, slots, "reverse", false);
    linear->read_first = read_flag_or(t, slots, "read_first", false);
    if (linear->read_first && linear->delta.n_roots == 0 && linear->reader.n_roots == 0)
        slot_mistake(
            t, "'read_first' needs delta or reader: nothing else reads the state before the token writes");
    if (linear->all_tokens && linear->reverse)
        slot_mistake(t, "'reverse' goes with causal = true alone: a sum over all tokens has no direction");
    check_updates(t);
    check_query_heads(t);
}
