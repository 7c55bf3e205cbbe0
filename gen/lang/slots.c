/*
 * slots.c: calls every function of a spec once with traced arguments and keeps what it returns as
 * the roots of a struct ir_fn. Each slot is traced on its own, so one run shows the mistakes of several.
 * In: the table a constructor was given. Out: ir->mask, ir->score, ir->online, ...
 */
#include "gen/lang/slots.h"
#include "gen/ir/kind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void enter(struct tracer *t, enum trace_slot slot)
{
    t->slot = slot;
    t->epoch++;
    t->watch_keys = false;
}

/* A row value that is not there; the names are upvalue 1. */
static int unknown_row_value(lua_State *lua)
{
    return luaL_error(lua, "there is no row value '%s' here (%s)",
                      lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "?",
                      lua_tostring(lua, lua_upvalueindex(1)));
}

/* The table on top of the stack answers unknown names with an error. */
static void close_row_values(lua_State *lua, const struct scale_name *name, int n)
{
    luaL_Buffer names;
    luaL_buffinit(lua, &names);
    for (int i = 0; i < n; i++) {
        luaL_addstring(&names, i > 0 ? " " : "");
        luaL_addstring(&names, name[i].name);
    }
    if (n == 0)
        luaL_addstring(&names, "it has none");
    luaL_pushresult(&names);
    lua_pushcclosure(lua, unknown_row_value, 1);
    lua_newtable(lua);
    lua_insert(lua, -2);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
}

static void push_params(lua_State *lua, const struct slot_call *c)
{
    struct tracer *t = tracer_of(lua);
    struct ir_at nowhere = {0, 0};
    for (int i = 0; i < c->n_leaves; i++)
        push_value(lua, ir_param(t->ir, c->leaf[i], nowhere));
    if (!c->in)
        return;
    lua_newtable(lua);
    for (int i = 0; i < c->n_in; i++) {
        push_value(lua, ir_param(t->ir, c->in_param + i, nowhere));
        lua_setfield(lua, -2, c->in[i].name);
    }
    close_row_values(lua, c->in, c->n_in);
}

static int compare_scales(const void *a, const void *b)
{
    return strcmp(((const struct scale_name *)a)->name, ((const struct scale_name *)b)->name);
}

/* Names of a table, sorted; a Lua error where there are too many or one is no word. */
static int collect_names(lua_State *lua, int table, const char *who, struct scale_name *out)
{
    int n = 0;
    for (lua_pushnil(lua); lua_next(lua, table); lua_pop(lua, 1)) {
        const char *name = lua_type(lua, -2) == LUA_TSTRING ? lua_tostring(lua, -2) : "";
        if (!is_identifier(name) || strlen(name) > 24 || strlen(name) != lua_rawlen(lua, -2))
            return luaL_error(
                lua,
                "%s: row values have names, as in { lse = value }: words of at most 24 letters, "
                "digits and _",
                who);
        if (n == MAX_STATE)
            return luaL_error(lua, "%s: more than %d row values", who, MAX_STATE);
        out[n] = (struct scale_name){0};
        snprintf(out[n++].name, NAME_MAX_BYTES, "%s", name);
    }
    qsort(out, (size_t)n, sizeof *out, compare_scales);
    return n;
}

static void require_same_names(lua_State *lua, const struct slot_call *c, const struct scale_name *given,
                               int n)
{
    for (int i = 0; i < n || i < *c->n_out; i++) {
        int order = i >= n ? 1 : i >= *c->n_out ? -1 : strcmp(given[i].name, c->out[i].name);
        if (order < 0)
            luaL_error(lua, "%s: returns '%s', which is not a row value declared before", c->who,
                       given[i].name);
        if (order > 0)
            luaL_error(lua, "%s: does not return '%s'", c->who, c->out[i].name);
    }
}

/* total(value) or first(value, k, fill) on top of the stack: its value stands there instead. */
static void open_result(lua_State *lua, struct scale_name *out)
{
    out->total = has_tag(lua, -1, TAG_TOTAL);
    if (has_tag(lua, -1, TAG_FIRST)) {
        lua_rawgeti(lua, -1, 2);
        lua_rawgeti(lua, -2, 3);
        out->first = (int)lua_tointeger(lua, -2);
        out->fill = lua_tonumber(lua, -1);
        require_constant(lua, "first(value, k, fill)", out->fill);
        lua_pop(lua, 2);
    }
    if (out->total || out->first > 0) {
        lua_rawgeti(lua, -1, 1);
        lua_remove(lua, -2);
    }
}

static void take_table(lua_State *lua, const struct slot_call *c, int table)
{
    struct scale_name given[MAX_STATE];
    if (!lua_istable(lua, table))
        luaL_error(lua, "%s: must return a table of row values here, such as { lse = value } or {}; got %s",
                   c->who, luaL_typename(lua, table));
    int n = collect_names(lua, table, c->who, given);
    if (c->out_is_new) {
        memcpy(c->out, given, sizeof given);
        *c->n_out = n;
    }
    require_same_names(lua, c, given, n);
    for (int i = 0; i < n; i++) {
        lua_getfield(lua, table, given[i].name);
        if (tracer_of(lua)->slot == SLOT_ROW)
            open_result(lua, &c->out[i]);
        c->fn->root[c->fn->n_roots++] = lift(lua, -1, c->who);
        lua_pop(lua, 1);
    }
}

/* Stack: 1 the function, 2 struct call. Calls it and takes its results. */
static int call_slot(lua_State *lua)
{
    const struct slot_call *c = lua_touserdata(lua, 2);
    lua_settop(lua, 1);
    push_params(lua, c);
    push_at(lua);
    push_inputs(lua);
    for (int i = 0; i < c->n_last; i++)
        push_value(lua, ir_param(tracer_of(lua)->ir, c->last[i], (struct ir_at){0, 0}));
    int n_args = lua_gettop(lua) - 1;
    check_parameters(lua, 1, n_args, c->n_leaves == 2 && c->leaf[0] == LEAF_LO, c->who);
    lua_call(lua, n_args, LUA_MULTRET);
    int given = lua_gettop(lua);
    bool table_may_lack = c->n_out && c->out_is_new && !c->table_is_second && c->n_values == 1 &&
                          given == 1 && tracer_of(lua)->slot == SLOT_ROW;
    bool table_only = table_may_lack && lua_istable(lua, 1);
    if (table_only) { /* a rowwise function may return its results by name alone: there is no y */
        struct ir *ir = tracer_of(lua)->ir;
        ir->no_y = true;
        c->fn->root[0] = ir_const(ir, 0.0, TYPE_F32);
        c->fn->n_roots = 1;
        c->fn->at = tracer_of(lua)->function;
        take_table(lua, c, 1);
        return *c->n_out > 0 ? 0 : luaL_error(lua, "%s: must return a value or a table with results", c->who);
    }
    int want = c->n_values + (c->n_out != NULL && !table_may_lack);
    if (given != want)
        return luaL_error(lua, "%s: must return %d value%s, returns %d", c->who, want, want == 1 ? "" : "s",
                          given);
    c->fn->n_roots = 0;
    c->fn->at = tracer_of(lua)->function;
    for (int i = 0; i < c->n_values; i++)
        c->fn->root[c->fn->n_roots++] = lift(lua, 1 + i + (c->table_is_second && i > 0), c->who);
    if (c->n_out && !table_may_lack)
        take_table(lua, c, c->table_is_second ? 2 : 1 + c->n_values);
    return 0;
}

bool trace_body(struct tracer *t, enum trace_slot slot, lua_CFunction body, void *data)
{
    enter(t, slot);
    t->function = trace_defined_at(t->lua);
    lua_pushcfunction(t->lua, body);
    lua_insert(t->lua, -2);
    lua_pushlightuserdata(t->lua, data);
    bool ok = trace_pcall(t, 2, 0);
    t->slot = SLOT_NONE;
    t->function = (struct ir_at){0, 0};
    return ok;
}

/* The function is on top of the stack and popped. */
static bool trace_call(struct tracer *t, enum trace_slot slot, struct slot_call *c)
{
    bool ok = trace_body(t, slot, call_slot, c);
    if (!ok)
        c->fn->n_roots = 0;
    return ok;
}

void trace_function(struct tracer *t, int slots, const char *field, enum trace_slot slot, struct slot_call c)
{
    int kind = lua_getfield(t->lua, slots, field);
    c.who = field;
    if (kind == LUA_TFUNCTION) {
        trace_call(t, slot, &c);
        return;
    }
    if (kind != LUA_TNIL)
        slot_mistake(t, "'%s' must be a function, got %s", field, luaL_typename(t->lua, -1));
    lua_pop(t->lua, 1);
}

/* ---- attention ------------------------------------------------------------------------------- */

void trace_scale(struct tracer *t, int slots, enum trace_slot slot)
{
    struct ir *ir = t->ir;
    struct ir_at nowhere = {0, 0};
    char why[320];
    int kind = lua_getfield(t->lua, slots, "scale");
    ir->scale.n_roots = 1;
    if (kind == LUA_TFUNCTION) {
        struct slot_call c = {.who = "scale", .fn = &ir->scale, .n_values = 1};
        trace_call(t, slot, &c);
        return;
    }
    if (kind == LUA_TNUMBER && constant_trouble(ir, lua_tonumber(t->lua, -1), why, sizeof why))
        slot_mistake(t, "scale: %s", why);
    if (kind == LUA_TNUMBER)
        ir->scale.root[0] = ir_const(ir, lua_tonumber(t->lua, -1), TYPE_F32);
    else
        ir->scale.root[0] = ir1(ir, OP_RSQRT, ir_at_field(ir, AT_D, nowhere));
    if (kind != LUA_TNUMBER && kind != LUA_TNIL)
        slot_mistake(t, "'scale' must be a number or a function (at, x), got %s", luaL_typename(t->lua, -1));
    lua_pop(t->lua, 1);
}

static void trace_stage(struct tracer *t, struct ir_mod *mod, enum stage_form form, int paired,
                        const char *who, enum trace_slot slot)
{
    static const int element[] = {LEAF_X};
    static const int pair[] = {LEAF_LO, LEAF_HI};
    static const int value[] = {LEAF_V};
    struct ir_stage *stage = &mod->stage[mod->n_stages];
    stage->form = (uint8_t)form;
    stage->paired = paired;
    int width = form == STAGE_ELEMENT ? 1 : 2;
    struct slot_call c = {.who = who,
                          .fn = &stage->fn,
                          .leaf = form == STAGE_ELEMENT ? element : pair,
                          .n_leaves = width,
                          .n_values = width,
                          .last = value,
                          .n_last = slot == SLOT_LINEAR_OUTPUT && form == STAGE_ELEMENT};
    if (trace_call(t, slot, &c))
        mod->n_stages++;
}

void trace_mod(struct tracer *t, int slots, const char *field, enum mod which, enum trace_slot slot)
{
    lua_State *lua = t->lua;
    struct ir_mod *mod = &t->ir->mod[which];
    int kind = lua_getfield(lua, slots, field);
    if (kind == LUA_TFUNCTION) {
        trace_stage(t, mod, STAGE_ELEMENT, 0, field, slot);
        return;
    }
    if (kind == LUA_TTABLE && has_tag(lua, -1, TAG_STAGES)) {
        int stages = lua_gettop(lua);
        for (int i = 1; i <= (int)lua_rawlen(lua, stages); i += 2) {
            lua_rawgeti(lua, stages, i);
            const lua_Integer packed = lua_tointeger(lua, -1);
            const lua_Integer form = packed % STAGE_FORMS;
            const lua_Integer paired = packed / STAGE_FORMS;
            lua_rawgeti(lua, stages, i + 1);
            lua_remove(lua, -2);
            if (lua_isfunction(lua, -1) && form >= STAGE_ELEMENT && form <= STAGE_INTERLEAVED &&
                paired >= 0 && paired <= STAGE_PAIRED_MAX && paired % 2 == 0 &&
                (form != STAGE_ELEMENT || paired == 0) && i < 2 * MAX_STAGES) {
                trace_stage(t, mod, (enum stage_form)form, (int)paired, field, slot);
                continue;
            }
            slot_mistake(t, "'%s': what chain, half or interleaved returned was changed afterwards", field);
            lua_settop(lua, stages);
            break;
        }
    } else if (kind != LUA_TNIL) {
        slot_mistake(t, "'%s' must be a function, half(f), interleaved(f) or chain(...), got %s", field,
                     luaL_typename(lua, -1));
    }
    lua_pop(lua, 1);
}

/* online_rowscales: names and initial values. */
static int read_states(lua_State *lua)
{
    struct ir *ir = tracer_of(lua)->ir;
    if (!lua_istable(lua, 1))
        return luaL_error(lua, "online_rowscales: must be a table, got %s", luaL_typename(lua, 1));
    ir->n_states = collect_names(lua, 1, "online_rowscales", ir->state);
    for (int i = 0; i < ir->n_states; i++) {
        lua_getfield(lua, 1, ir->state[i].name);
        if (lua_type(lua, -1) != LUA_TNUMBER)
            return luaL_error(lua, "online_rowscales: '%s' starts as a number such as 0.0 or -inf, got %s",
                              ir->state[i].name, luaL_typename(lua, -1));
        ir->state[i].init = lua_tonumber(lua, -1);
        require_constant(lua, "online_rowscales", ir->state[i].init);
        lua_pop(lua, 1);
    }
    return 0;
}

static void trace_online_field(struct tracer *t, int online, const char *field, enum trace_slot slot,
                               struct slot_call c)
{
    c.who = field;
    int kind = lua_getfield(t->lua, online, field);
    if (kind == LUA_TFUNCTION) {
        trace_call(t, slot, &c);
        return;
    }
    if (kind != LUA_TNIL ||
        (slot != SLOT_COMBINE && slot != SLOT_BACKWARD)) /* checked by online_func, and changed since */
        slot_mistake(t, "online_func: '%s' must be a function, got %s", field, luaL_typename(t->lua, -1));
    lua_pop(t->lua, 1);
}

static void trace_online(struct tracer *t, int online)
{
    static const int score[] = {LEAF_S};
    static const int pair[] = {LEAF_DW, LEAF_W, LEAF_S, LEAF_DELTA};
    struct ir *ir = t->ir;
    t->function = (struct ir_at){FILE_SPEC, t->constructor_line};
    lua_pushcfunction(t->lua, read_states);
    lua_getfield(t->lua, online, "online_rowscales");
    if (!trace_pcall(t, 1, 0))
        return;
    trace_online_field(t, online, "online_fwd", SLOT_ONLINE,
                       (struct slot_call){.fn = &ir->online,
                                          .leaf = score,
                                          .n_leaves = 1,
                                          .n_values = 2,
                                          .in = ir->state,
                                          .n_in = ir->n_states,
                                          .in_param = LEAF_STATE,
                                          .out = ir->state,
                                          .n_out = &ir->n_states,
                                          .table_is_second = true});
    trace_online_field(t, online, "online_fwd_epilogue", SLOT_EPILOGUE,
                       (struct slot_call){.fn = &ir->epilogue,
                                          .n_values = 1,
                                          .in = ir->state,
                                          .n_in = ir->n_states,
                                          .in_param = LEAF_STATE,
                                          .out = ir->final,
                                          .n_out = &ir->n_finals,
                                          .out_is_new = true});
    if (ir->epilogue.n_roots == 0)
        return;
    trace_online_field(t, online, "forward", SLOT_FORWARD,
                       (struct slot_call){.fn = &ir->forward,
                                          .leaf = score,
                                          .n_leaves = 1,
                                          .n_values = 1,
                                          .in = ir->final,
                                          .n_in = ir->n_finals,
                                          .in_param = LEAF_FINAL});
    trace_online_field(t, online, "combine", SLOT_COMBINE,
                       (struct slot_call){.fn = &ir->combine,
                                          .n_values = 1,
                                          .in = ir->state,
                                          .n_in = ir->n_states,
                                          .in_param = LEAF_SPLIT_STATE,
                                          .out = ir->state,
                                          .n_out = &ir->n_states});
    trace_online_field(t, online, "backward", SLOT_BACKWARD,
                       (struct slot_call){.fn = &ir->backward,
                                          .leaf = pair,
                                          .n_leaves = 4,
                                          .n_values = 1,
                                          .in = ir->final,
                                          .n_in = ir->n_finals,
                                          .in_param = LEAF_FINAL});
}

/* The online function of the spec, or the prelude's softmax. */
static void trace_online_slot(struct tracer *t, int slots)
{
    lua_State *lua = t->lua;
    int kind = lua_getfield(lua, slots, "online_func");
    if (kind == LUA_TNIL) {
        lua_pop(lua, 1);
        lua_getfield(lua, LUA_REGISTRYINDEX, "lathe.softmax");
    }
    if (lua_istable(lua, -1) && has_tag(lua, -1, TAG_ONLINE))
        trace_online(t, lua_gettop(lua));
    else
        slot_mistake(t,
                     "'online_func' must be online_func { ... }, softmax or elementwise_weights(f), got %s",
                     luaL_typename(lua, -1));
    lua_pop(lua, 1);
}

/* v = "k": one memory, of which value_mod would make two. */
static void read_values(struct tracer *t, int slots)
{
    struct ir *ir = t->ir;
    const int kind = lua_getfield(t->lua, slots, "v");
    ir->v_is_k = kind == LUA_TSTRING && strcmp(lua_tostring(t->lua, -1), "k") == 0;
    if (kind != LUA_TNIL && !ir->v_is_k)
        slot_mistake(t, "'v' may be \"k\", whose first d_v elements are then the values; else leave it out");
    if (ir->v_is_k && ir->mod[MOD_VALUE].n_stages > 0)
        slot_mistake(t,
                     "v = \"k\" goes without value_mod, which would make two tensors of one memory: values "
                     "are what key_mod makes of keys; or leave v out and pass it");
    lua_pop(t->lua, 1);
}

static bool is_by_element(const struct input *in)
{
    bool found = false;
    for (int d = 0; d < in->n_dims; d++)
        found |= in->dim[d].sym == SYM_D;
    return found;
}

/* qk2 = true: q2 and k2, of which query_mod and inputs by element would have to say whose elements they mean;
   key_mod is of k, which may have other numbers in memory than k2. */
static void read_pair(struct tracer *t, int slots)
{
    struct ir *ir = t->ir;
    const int kind = lua_getfield(t->lua, slots, "qk2");
    ir->qk2 = kind == LUA_TBOOLEAN && lua_toboolean(t->lua, -1);
    if (kind != LUA_TNIL && !ir->qk2)
        slot_mistake(t, "'qk2' may be true, for a second pair of arguments, q2 and k2; else leave it out");
    if (ir->qk2 && ir->mod[MOD_QUERY].n_stages > 0)
        slot_mistake(t, "qk2 = true goes without query_mod; modify q and q2 before the call (key_mod is of k "
                        "alone, and not of k2)");
    for (int i = 0; ir->qk2 && i < ir->n_inputs; i++)
        if (is_by_element(&ir->input[i]))
            slot_mistake(t,
                         "qk2 = true goes without the input '%s', whose dim 'd' may be that of either pair",
                         ir->input[i].name);
    lua_pop(t->lua, 1);
}

void trace_attention(struct tracer *t, int slots)
{
    static const int score[] = {LEAF_S};
    struct ir *ir = t->ir;
    if (!declare_inputs(t, slots))
        return;
    trace_mod(t, slots, "query_mod", MOD_QUERY, SLOT_QUERY);
    trace_mod(t, slots, "key_mod", MOD_KEY, SLOT_KEY);
    trace_mod(t, slots, "value_mod", MOD_VALUE, SLOT_VALUE);
    read_values(t, slots);
    read_pair(t, slots);
    trace_scale(t, slots, SLOT_SCALE);
    trace_function(t, slots, "score_mod", SLOT_SCORE,
                   (struct slot_call){.fn = &ir->score, .leaf = score, .n_leaves = 1, .n_values = 1});
    trace_function(t, slots, "mask_mod", SLOT_MASK, (struct slot_call){.fn = &ir->mask, .n_values = 1});
    trace_online_slot(t, slots);
    trace_mod(t, slots, "output_mod", MOD_OUTPUT, SLOT_OUTPUT);
}

/* ---- rowwise --------------------------------------------------------------------------------- */

void trace_rowwise(struct tracer *t, int slots)
{
    static const int element[] = {LEAF_ROWX};
    struct ir *ir = t->ir;
    if (!declare_inputs(t, slots))
        return;
    const int along = lua_getfield(t->lua, slots, "along");
    ir->inner = along == LUA_TNUMBER && lua_tonumber(t->lua, -1) == -2.0;
    if (along != LUA_TNIL && !ir->inner && !(along == LUA_TNUMBER && lua_tonumber(t->lua, -1) == -1.0))
        slot_mistake(t, "rowwise: 'along' is the dim that rows run along: -1, the last, or -2");
    lua_pop(t->lua, 1);
    if (lua_getfield(t->lua, slots, "forward") == LUA_TNIL)
        slot_mistake(t, "rowwise: 'forward' is missing: forward = function(x, at, inputs) return y end");
    lua_pop(t->lua, 1);
    trace_function(t, slots, "forward", SLOT_ROW,
                   (struct slot_call){.fn = &ir->row,
                                      .leaf = element,
                                      .n_leaves = 1,
                                      .n_values = 1,
                                      .out = ir->final,
                                      .n_out = &ir->n_finals,
                                      .out_is_new = true});
}
