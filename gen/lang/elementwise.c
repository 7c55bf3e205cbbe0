/*
 * elementwise.c: the maps of an elementwise spec: their dims, operands and results, and the function of a
 * point, which is called once with traced arguments. In: the table a constructor was given. Out:
 * ir->maps.map, ir->maps.tensor.
 */
#include "gen/lang/slots.h"
#include "gen/ir/kind.h"
#include "runtime/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const MAP_FIELDS[] = {"over", "list", "operands", "results", "forward", NULL};
static const char *const HALVES[] = {"lo", "hi", NULL}; /* of a pair */

struct map_call { /* what the protected functions below are given */
    struct ir_map *map;
    const char *field; /* "operands", "results" */
};

/* ---- dims -------------------------------------------------------------------------------------- */

/* Stack: 1 the value of `over`, 2 struct map_call. */
static int declare_over(lua_State *lua)
{
    struct ir *ir = tracer_of(lua)->ir;
    struct ir_map *map = ((const struct map_call *)lua_touserdata(lua, 2))->map;
    const lua_Unsigned n = lua_istable(lua, 1) ? lua_rawlen(lua, 1) : 0;
    if (n < 1 || n > MAX_OVER)
        return luaL_error(lua, "'over' is a list of 1 to %d dims, such as over = { \"rows\", \"n\" }",
                          MAX_OVER);
    for (lua_Integer i = 1; i <= (lua_Integer)n; i++) {
        lua_rawgeti(lua, 1, i);
        const char *name = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "";
        if (!is_identifier(name))
            return luaL_error(lua, "over: dim %d must be a name such as \"rows\"", (int)i - 1);
        if (dim_is_taken(ir, name))
            return luaL_error(lua, "over: '%s' is a size or an argument of calls; use another name", name);
        const int sym = dim_sym(ir, name);
        if (sym < 0)
            return luaL_error(lua, "over: more than %d dims with names of their own", MAX_FREE_SYMS);
        if (map->n_over > 0 && memchr(map->over, sym, (size_t)map->n_over))
            return luaL_error(lua, "over: '%s' stands there twice", name);
        map->over[map->n_over++] = (uint8_t)sym;
        lua_pop(lua, 1);
    }
    return 0;
}

static int find_over(lua_State *lua, const struct ir_map *map, const char *name)
{
    const struct ir *ir = tracer_of(lua)->ir;
    for (int k = 0; k < map->n_over; k++)
        if (strcmp(ir->free_name[map->over[k] - SYM_FREE], name) == 0)
            return k;
    return -1;
}

/* The dim on top of the stack. */
static void declare_dim(lua_State *lua, const struct ir_map *map, struct map_tensor *t, bool is_last)
{
    const bool pairs = lua_istable(lua, -1) && has_tag(lua, -1, TAG_PAIRS);
    if (pairs) {
        lua_rawgeti(lua, -1, 1);
        t->form = (uint8_t)lua_tointeger(lua, -1);
        lua_rawgeti(lua, -2, 2);
        lua_replace(lua, -3);
        lua_pop(lua, 1);
    }
    const char *name = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "";
    const int k = find_over(lua, map, name);
    if (k < 0)
        luaL_error(lua, "'%s': dim %d must be one of 'over' by its name, or half(name) or interleaved(name)",
                   t->name, t->n_dims);
    if (pairs && (!is_last || k != map->n_over - 1))
        luaL_error(lua, "'%s': pairs are along the last dim of the tensor and of 'over'", t->name);
    if (t->n_dims > 0 && memchr(t->dim, k, (size_t)t->n_dims))
        luaL_error(lua, "'%s': the dim '%s' stands there twice", t->name, name);
    t->dim[t->n_dims++] = (uint8_t)k;
}

/* ---- options ------------------------------------------------------------------------------------- */

static bool read_bool(lua_State *lua, const struct map_tensor *t, int table, const char *option,
                      bool otherwise)
{
    const int type = lua_getfield(lua, table, option);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        luaL_error(lua, "'%s': option '%s' is true or false", t->name, option);
    const bool value = type == LUA_TNIL ? otherwise : lua_toboolean(lua, -1) != 0;
    lua_pop(lua, 1);
    return value;
}

static void operand_options(lua_State *lua, struct map_tensor *t, int table)
{
    static const char *const options[] = {"grad", "optional", "default", NULL};
    const char *unknown = unlisted_field(lua, table, options);
    if (unknown)
        luaL_error(lua, "operand '%s': unknown option '%s' (grad optional default)", t->name, unknown);
    t->grad = read_bool(lua, t, table, "grad", t->grad);
    t->optional = read_bool(lua, t, table, "optional", false);
    const int type = lua_getfield(lua, table, "default");
    if (type != LUA_TNIL && type != LUA_TNUMBER)
        luaL_error(lua, "operand '%s': option 'default' is a number", t->name);
    if (type == LUA_TNUMBER) {
        t->default_value = lua_tonumber(lua, -1);
        if (t->dtype != LATHE_I32 && t->dtype != LATHE_U8) { /* what kernels compute with */
            require_constant(lua, t->name, t->default_value);
            t->default_value = (double)(float)t->default_value;
        }
        t->optional = true;
    }
    lua_pop(lua, 1);
    if (t->grad && (t->dtype == LATHE_I32 || t->dtype == LATHE_U8))
        luaL_error(lua, "operand '%s': integers have no gradient", t->name);
}

/* What is left out lies where its alias does: of two results with one alias, one would be lost. */
static void check_alias_is_free(lua_State *lua, const struct map_tensor *t, int alias)
{
    const struct ir *ir = tracer_of(lua)->ir;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        if (ir->maps.tensor[i].alias == alias)
            luaL_error(lua,
                       "result '%s': alias '%s' is taken by the result '%s'; name another operand, or leave "
                       "alias out",
                       t->name, ir->maps.tensor[alias].name, ir->maps.tensor[i].name);
}

/* The operand whose memory a result may share: the same elements for the same point. */
static int find_alias(lua_State *lua, const struct ir_map *map, const struct map_tensor *t, const char *name)
{
    const struct ir *ir = tracer_of(lua)->ir;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *o = &ir->maps.tensor[i];
        if (o->map != map - ir->maps.map || o->use != USE_READ || strcmp(o->name, name) != 0)
            continue;
        if (o->form != t->form || o->n_dims != t->n_dims || memcmp(o->dim, t->dim, (size_t)t->n_dims) != 0 ||
            o->dtype != t->dtype || o->optional)
            luaL_error(lua,
                       "result '%s': alias '%s' must have the same dtype, dims and pairs, and no default",
                       t->name, name);
        check_alias_is_free(lua, t, i);
        return i;
    }
    luaL_error(lua, "result '%s': alias '%s' is no operand of this map", t->name, name);
    return -1;
}

static int find_seed(lua_State *lua, const struct map_tensor *t, const char *name)
{
    const struct ir *ir = tracer_of(lua)->ir;
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, name) == 0 && ir->input[i].is_scalar && ir->input[i].dtype == LATHE_I32)
            return i;
    luaL_error(lua, "result '%s': dither names a seed, an input scalar(\"i32\"); '%s' is none", t->name,
               name);
    return -1;
}

/* Rounding at random is what a store to 16 bits does; "float" may be that, as the problem says. */
static void check_dither(lua_State *lua, const struct map_tensor *t)
{
    if (t->use == USE_SUM)
        luaL_error(
            lua,
            "result '%s': a sum over dims is not rounded by dither; give the result all dims of 'over', "
            "or leave dither out",
            t->name);
    if (t->dtype == LATHE_F32 || t->dtype == LATHE_I32)
        luaL_error(lua,
                   "result '%s': dither rounds to 16 bits, and the dtype is \"%s\"; declare it \"float\", "
                   "\"f16\" or \"bf16\", or leave dither out",
                   t->name, lathe_dtype_text(t->dtype));
}

static int find_slot(lua_State *lua, const struct ir_map *map, const struct map_tensor *t, const char *name)
{
    const struct ir *ir = tracer_of(lua)->ir;
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *o = &ir->maps.tensor[i];
        if (o->map != map - ir->maps.map || o->use != USE_READ || strcmp(o->name, name) != 0)
            continue;
        if (o->dtype != LATHE_I32 || o->optional || memchr(o->dim, map->n_over - 1, (size_t)o->n_dims))
            luaL_error(lua,
                       "result '%s': slot '%s' must be an i32 operand without a default and without the last "
                       "dim of 'over'",
                       t->name, name);
        return i;
    }
    luaL_error(lua, "result '%s': slot '%s' is no operand of this map", t->name, name);
    return -1;
}

/* Every dim of 'over' is the slot's or the result's own. */
static void check_slot(lua_State *lua, const struct ir_map *map, const struct map_tensor *t)
{
    const struct map_tensor *o = &tracer_of(lua)->ir->maps.tensor[t->slot - 1];
    bool apart = o->n_dims + t->n_dims == map->n_over;
    for (int d = 0; d < o->n_dims; d++)
        apart = apart && !memchr(t->dim, o->dim[d], (size_t)t->n_dims);
    if (!apart || map->list || t->alias >= 0)
        luaL_error(lua,
                   "result '%s': with a slot its dims are a name for the slots, then all of 'over' that '%s' "
                   "lacks; no alias, and no list",
                   t->name, o->name);
}

static void result_options(lua_State *lua, const struct ir_map *map, struct map_tensor *t, int table)
{
    static const char *const options[] = {"alias", "dither", "slot", NULL};
    const char *unknown = unlisted_field(lua, table, options);
    if (unknown)
        luaL_error(lua, "result '%s': unknown option '%s' (alias dither slot)", t->name, unknown);
    for (int i = 2; i >= 0; i--) { /* what has a slot is no sum */
        const int type = lua_getfield(lua, table, options[i]);
        if (type != LUA_TNIL && type != LUA_TSTRING)
            luaL_error(lua, "result '%s': option '%s' is a name", t->name, options[i]);
        if (type == LUA_TSTRING && i == 2) {
            t->slot = (uint8_t)(1 + find_slot(lua, map, t, lua_tostring(lua, -1)));
            t->use = USE_STORE;
        }
        if (type == LUA_TSTRING && i == 0)
            t->alias = find_alias(lua, map, t, lua_tostring(lua, -1));
        if (type == LUA_TSTRING && i == 1) {
            check_dither(lua, t);
            t->dither = find_seed(lua, t, lua_tostring(lua, -1));
        }
        lua_pop(lua, 1);
    }
    if (t->slot)
        check_slot(lua, map, t);
}

/* ---- tensors ------------------------------------------------------------------------------------- */

/* The first dim of a result with a slot has a name of its own. */
static void declare_slots(lua_State *lua, const struct ir_map *map, struct map_tensor *t, int table)
{
    lua_rawgeti(lua, table, 2);
    const char *name = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "";
    const int sym =
        is_identifier(name) && find_over(lua, map, name) < 0 ? dim_sym(tracer_of(lua)->ir, name) : -1;
    if (sym < 0)
        luaL_error(lua, "result '%s': with a slot its first dim is a name that 'over' has not", t->name);
    if (dim_is_taken(tracer_of(lua)->ir, name))
        luaL_error(lua, "result '%s': '%s' is a size or an argument of calls; use another name", t->name,
                   name);
    t->slots = (uint8_t)sym;
    lua_pop(lua, 1);
}

/* The tagged table is on top of the stack. */
static void declare_tensor(lua_State *lua, struct ir_map *map, const char *name, bool is_result)
{
    struct tracer *tracer = tracer_of(lua);
    struct ir *ir = tracer->ir;
    const int table = lua_gettop(lua);
    char who[NAME_MAX_BYTES + 16];
    if (!is_identifier(name))
        luaL_error(lua, "'%s' cannot be the name of a tensor: a word of letters, digits and _", name);
    bool scalar = true;
    if (has_tag(lua, table, TAG_INPUT)) {
        lua_getfield(lua, table, "scalar");
        scalar = lua_toboolean(lua, -1) != 0;
    }
    if (scalar)
        luaL_error(lua, "'%s' must be tensor(dtype, dims...); no dims: all of 'over'", name);
    if (ir->maps.n_tensors == MAX_TENSORS)
        luaL_error(lua, "more than %d operands and results", MAX_TENSORS);
    struct map_tensor *t = &ir->maps.tensor[ir->maps.n_tensors];
    *t = (struct map_tensor){.map = (uint8_t)(map - ir->maps.map),
                             .use = is_result ? USE_STORE : USE_READ,
                             .alias = -1,
                             .dither = -1,
                             .input = -1};
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(who, sizeof who, "'%s'", name);
    lua_getfield(lua, table, "line");
    t->line = (int)lua_tointeger(lua, -1);
    const struct ir_at field = tracer->function;
    tracer->function = (struct ir_at){FILE_SPEC, t->line}; /* mistakes name the tensor's own line */
    lua_rawgeti(lua, table, 1);
    t->dtype = declare_dtype(lua, who);
    const bool integer = t->dtype == LATHE_I32 || t->dtype == LATHE_U8;
    t->grad = !is_result && !integer;
    if (is_result && t->dtype == LATHE_U8)
        luaL_error(lua, "result '%s': results are \"f32\", \"f16\", \"bf16\", \"float\" or \"i32\"", name);
    int n = (int)lua_rawlen(lua, table);
    lua_rawgeti(lua, table, n);
    const int last = lua_gettop(lua);
    const bool options = n > 1 && lua_istable(lua, last) && !has_tag(lua, last, TAG_PAIRS);
    n -= options;
    const bool slots = options && is_result && lua_getfield(lua, last, "slot") == LUA_TSTRING;
    if (slots)
        declare_slots(lua, map, t, table);
    for (int i = slots ? 3 : 2; i <= n; i++) {
        lua_rawgeti(lua, table, i);
        declare_dim(lua, map, t, i == n);
        lua_pop(lua, 1);
    }
    for (int k = 0; n == 1 && !slots && k < map->n_over; k++)
        t->dim[t->n_dims++] = (uint8_t)k;
    if (is_result && t->n_dims < map->n_over)
        t->use = USE_SUM;
    if (options && is_result)
        result_options(lua, map, t, last);
    else if (options)
        operand_options(lua, t, last);
    if (map->list && t->n_dims != 1)
        luaL_error(lua, "'%s': in a map with list = true every tensor has the one dim of 'over'", name);
    lua_settop(lua, table);
    tracer->function = field;
    ir->maps.n_tensors++;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Stack: 1 the field's table, 2 struct map_call. In the order of their names. */
static int declare_tensors(lua_State *lua)
{
    struct map_call *c = lua_touserdata(lua, 2);
    const bool is_result = strcmp(c->field, "results") == 0;
    const char *name[MAX_TENSORS];
    int n = 0;
    if (!lua_istable(lua, 1))
        return luaL_error(lua, "'%s' is a table: %s = { name = tensor(\"float\") }", c->field, c->field);
    for (lua_pushnil(lua); lua_next(lua, 1); lua_pop(lua, 1)) {
        if (n == MAX_TENSORS)
            return luaL_error(lua, "%s: more than %d", c->field, MAX_TENSORS);
        name[n++] = lua_type(lua, -2) == LUA_TSTRING ? lua_tostring(lua, -2) : "";
    }
    if (n == 0 && is_result)
        return luaL_error(lua, "'results' has none");
    qsort(name, (size_t)n, sizeof *name, compare_names);
    for (int i = 0; i < n; i++) {
        lua_getfield(lua, 1, name[i]);
        declare_tensor(lua, c->map, name[i], is_result);
        lua_pop(lua, 1);
    }
    return 0;
}

/* ---- the function -------------------------------------------------------------------------------- */

static int unknown_operand(lua_State *lua)
{
    const struct tracer *t = tracer_of(lua);
    struct nearest nearest = {.word = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "?"};
    for (int i = 0; i < t->ir->maps.n_tensors; i++)
        if (&t->ir->maps.map[t->ir->maps.tensor[i].map] == t->map && t->ir->maps.tensor[i].use == USE_READ)
            lathe__nearest_try(&nearest, t->ir->maps.tensor[i].name);
    return luaL_error(lua, "there is no operand '%s' here%s", nearest.word, lathe__nearest_text(&nearest));
}

/* What is written with a pair as if it were one value, or another field of it; its name is upvalue 1. */
static int refuse_pair(lua_State *lua)
{
    const char *name = lua_tostring(lua, lua_upvalueindex(1));
    return luaL_error(lua, "v.%s is a pair: write v.%s.lo or v.%s.hi", name, name, name);
}

/* The table of a pair is on top of the stack. */
static void close_pair(lua_State *lua, const char *name)
{
    static const char *const events[] = {"__index", "__add", "__sub", "__mul", "__div",
                                         "__idiv",  "__mod", "__pow", "__unm", NULL};
    lua_newtable(lua);
    for (int i = 0; events[i]; i++) {
        lua_pushstring(lua, name);
        lua_pushcclosure(lua, refuse_pair, 1);
        lua_setfield(lua, -2, events[i]);
    }
    lua_pushstring(lua, name);
    lua_setfield(lua, -2, PAIR_NAME);
    lua_setmetatable(lua, -2);
}

/* v.name, or v.name.lo and v.name.hi */
static void push_operands(lua_State *lua, const struct ir_map *map)
{
    struct ir *ir = tracer_of(lua)->ir;
    lua_newtable(lua);
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        if (t->map != map - ir->maps.map || t->use != USE_READ)
            continue;
        if (t->form == STAGE_ELEMENT) {
            push_value(lua, ir_operand(ir, i, 0));
        } else {
            lua_newtable(lua);
            push_value(lua, ir_operand(ir, i, 0));
            lua_setfield(lua, -2, "lo");
            push_value(lua, ir_operand(ir, i, 1));
            lua_setfield(lua, -2, "hi");
            close_pair(lua, t->name);
        }
        lua_setfield(lua, -2, t->name);
    }
    lua_newtable(lua);
    lua_pushcfunction(lua, unknown_operand);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
}

/* A pair operand as a table of results, or as the value of a result that is no pair. */
static void refuse_pair_operand(lua_State *lua)
{
    if (luaL_getmetafield(lua, -1, PAIR_NAME) == LUA_TNIL)
        return;
    const char *name = lua_tostring(lua, -1);
    luaL_error(lua, "forward: v.%s is a pair: write v.%s.lo or v.%s.hi", name, name, name);
}

/* A pair result that is returned as one value, or without its name. */
static void refuse_whole(lua_State *lua, const struct map_tensor *t)
{
    luaL_error(lua, "forward: '%s' is a pair: return { %s = { lo = value, hi = value } }", t->name, t->name);
}

/* The value on top of the stack: a sum is said by the dims of its result here. */
static void refuse_total(lua_State *lua)
{
    if (has_tag(lua, -1, TAG_TOTAL))
        luaL_error(lua, "forward: total is for rowwise; in elementwise a result whose tensor(...) lacks a "
                        "dim of 'over' is summed over it");
}

/* The value on top of the stack, which is popped. */
static void take_result(lua_State *lua, struct ir_map *map, const struct map_tensor *t)
{
    struct ir_fn *fn = &map->fn;
    const int n = t->form == STAGE_ELEMENT ? 1 : 2;
    refuse_total(lua);
    if (fn->n_roots + n > MAX_ROOTS)
        luaL_error(lua, "forward: more than %d values of a point", MAX_ROOTS);
    if (lua_isnil(lua, -1))
        luaL_error(lua, "forward: does not return '%s'", t->name);
    if (n == 2 && (!lua_istable(lua, -1) || unlisted_field(lua, lua_gettop(lua), HALVES)))
        refuse_whole(lua, t);
    if (n == 1)
        refuse_pair_operand(lua);
    for (int i = 0; i < n; i++) {
        if (n == 2)
            lua_getfield(lua, -1, HALVES[i]);
        fn->root[fn->n_roots++] = lift(lua, -1, "forward");
        lua_pop(lua, n == 2);
    }
    lua_pop(lua, 1);
}

static void take_results(lua_State *lua, struct ir_map *map)
{
    const struct ir *ir = tracer_of(lua)->ir;
    const char *names[MAX_TENSORS + 1] = {NULL};
    int n = 0;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        if (ir->maps.tensor[i].map == map - ir->maps.map && ir->maps.tensor[i].use != USE_READ)
            names[n++] = ir->maps.tensor[i].name;
    const struct map_tensor *last = &ir->maps.tensor[ir->maps.n_tensors - 1];
    if (n == 1 && last->form == STAGE_ELEMENT && !lua_istable(lua, -1)) {
        take_result(lua, map, last); /* one result may be returned as it is */
        return;
    }
    const int table = lua_gettop(lua);
    const bool pair = n == 1 && last->form != STAGE_ELEMENT;
    const bool is_table = lua_istable(lua, table);
    const char *unknown = is_table ? unlisted_field(lua, table, names) : NULL;
    if (pair && (!is_table || (unknown && !unlisted_field(lua, table, HALVES))))
        refuse_whole(lua, last);
    if (!is_table)
        luaL_error(lua, "forward: must return a table of results, { %s = value }, got %s", names[0],
                   luaL_typename(lua, table));
    if (unknown) {
        refuse_total(lua);
        refuse_pair_operand(lua);
        luaL_error(lua, "forward: returns '%s', which is no result of this map", unknown);
    }
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        if (ir->maps.tensor[i].map != map - ir->maps.map || ir->maps.tensor[i].use == USE_READ)
            continue;
        lua_getfield(lua, table, ir->maps.tensor[i].name);
        take_result(lua, map, &ir->maps.tensor[i]);
    }
}

/* Stack: 1 the function, 2 struct map_call. */
static int call_map(lua_State *lua)
{
    struct ir_map *map = ((const struct map_call *)lua_touserdata(lua, 2))->map;
    lua_settop(lua, 1);
    push_operands(lua, map);
    push_at(lua);
    push_inputs(lua);
    check_parameters(lua, 1, 3, false, "forward");
    lua_call(lua, 3, LUA_MULTRET);
    if (lua_gettop(lua) != 1)
        return luaL_error(lua, "forward: must return one value or one table of results, returns %d",
                          lua_gettop(lua));
    map->fn.n_roots = 0;
    map->fn.at = tracer_of(lua)->function;
    take_results(lua, map);
    return 0;
}

/* ---- maps ---------------------------------------------------------------------------------------- */

static bool declare_field(struct tracer *t, int table, struct ir_map *map, const char *field,
                          lua_CFunction body)
{
    struct map_call c = {map, field};
    t->function = (struct ir_at){FILE_SPEC, t->constructor_line};
    lua_pushcfunction(t->lua, body);
    lua_getfield(t->lua, table, field);
    lua_pushlightuserdata(t->lua, &c);
    const bool ok = trace_pcall(t, 2, 0);
    t->function = (struct ir_at){0, 0};
    return ok;
}

static void trace_map(struct tracer *t, int table)
{
    lua_State *lua = t->lua;
    struct ir *ir = t->ir;
    if (ir->maps.n_maps == MAX_MAPS) {
        slot_mistake(t, "elementwise: more than %d maps", MAX_MAPS);
        return;
    }
    struct ir_map *map = &ir->maps.map[ir->maps.n_maps++];
    const int list = lua_getfield(lua, table, "list");
    if (list != LUA_TNIL && list != LUA_TBOOLEAN)
        slot_mistake(t, "elementwise: 'list' is true or false");
    map->list = lua_toboolean(lua, -1) != 0;
    lua_pop(lua, 1);
    if (!declare_field(t, table, map, "over", declare_over))
        return;
    if (map->list && map->n_over != 1)
        slot_mistake(t, "elementwise: with list = true 'over' has one dim, the elements of each tensor");
    lua_getfield(lua, table, "operands");
    const bool none = lua_isnil(lua, -1);
    lua_pop(lua, 1);
    if (!(none || declare_field(t, table, map, "operands", declare_tensors)) ||
        !declare_field(t, table, map, "results", declare_tensors))
        return;
    struct map_call c = {map, "forward"};
    if (lua_getfield(lua, table, "forward") != LUA_TFUNCTION) {
        slot_mistake(t, "elementwise: 'forward' must be a function (v, at, x) -> results, got %s",
                     luaL_typename(lua, -1));
        lua_pop(lua, 1);
        return;
    }
    t->map = map;
    if (!trace_body(t, SLOT_MAP, call_map, &c))
        map->fn.n_roots = 0;
    t->map = NULL;
}

/* Stack: 1 the table of one map. */
static int check_map_fields(lua_State *lua)
{
    if (!lua_istable(lua, 1))
        return luaL_error(lua, "elementwise: a list of maps has tables: { over = ..., results = ..., ... }");
    check_fields(lua, 1, "elementwise", MAP_FIELDS);
    return 0;
}

/* Stack: 1 the table. */
static int check_list_fields(lua_State *lua)
{
    for (lua_pushnil(lua); lua_next(lua, 1); lua_pop(lua, 1)) {
        const bool named = lua_type(lua, -2) == LUA_TSTRING;
        if (named && strcmp(lua_tostring(lua, -2), "inputs") != 0)
            return luaL_error(lua, "elementwise: beside a list of maps there is 'inputs' alone, not '%s'",
                              lua_tostring(lua, -2));
    }
    return 0;
}

static void trace_maps(struct tracer *t, int slots)
{
    lua_State *lua = t->lua;
    t->function = (struct ir_at){FILE_SPEC, t->constructor_line};
    lua_pushcfunction(lua, check_list_fields);
    lua_pushvalue(lua, slots);
    if (!trace_pcall(t, 1, 0))
        return;
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(lua, slots); i++) {
        t->function = (struct ir_at){FILE_SPEC, t->constructor_line};
        lua_pushcfunction(lua, check_map_fields);
        lua_rawgeti(lua, slots, i);
        if (!trace_pcall(t, 1, 0))
            continue;
        lua_rawgeti(lua, slots, i);
        trace_map(t, lua_gettop(lua));
        lua_pop(lua, 1);
    }
    t->function = (struct ir_at){0, 0};
}

void trace_elementwise(struct tracer *t, int slots)
{
    if (!declare_inputs(t, slots))
        return;
    if (lua_rawlen(t->lua, slots) > 0)
        trace_maps(t, slots);
    else
        trace_map(t, slots);
}
