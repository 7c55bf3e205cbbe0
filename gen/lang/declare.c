/*
 * declare.c: what a spec says outside its functions. The constructors check field names and mark their
 * table; tensor(...) and scalar(...) describe inputs, which are declared in the order of their names so
 * that nothing depends on the order of a Lua table. In: Lua tables. Out: marked tables, ir->input.
 */
#include "gen/lang/slots.h"
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/ir/rules.h"
#include "runtime/base/base.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- constructors ---------------------------------------------------------------------------- */

static const char *const ONLINE_FIELDS[] = {
    "online_rowscales", "online_fwd", "online_fwd_epilogue", "forward", "combine", "backward", NULL};

static void list_words(const char *const *words, char *out, size_t size)
{
    size_t used = 0;
    for (; *words && used < size; words++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", *words);
}

/* Words of other libraries, the field that they stand for, and how it is written. */
static const char *other_field(const char *name, const char *const *fields)
{
    static const char *const WORDS[][3] = {{"causal", "mask_mod", "mask_mod = causal"},
                                           {"mask", "mask_mod", "mask_mod"},
                                           {"mask_fn", "mask_mod", "mask_mod"},
                                           {"score", "score_mod", "score_mod"},
                                           {"score_fn", "score_mod", "score_mod"},
                                           {"softmax_scale", "scale", "scale"},
                                           {"sm_scale", "scale", "scale"},
                                           {"gate", "decay", "decay, the logarithm of the gate"},
                                           {"beta", "delta", "delta"},
                                           {"normalize", "normalise", "normalise"}};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strcmp(WORDS[i][0], name) == 0 && is_listed(fields, WORDS[i][1]))
            return WORDS[i][2];
    return NULL;
}

/* What is wrong with a field that is not listed. */
static void say_unlisted(const char *who, const char *name, const char *const *fields, char text[512])
{
    char known[256];
    list_words(fields, known, sizeof known);
    if (!*name)
        snprintf(text, 512, "%s: a field without a name; write name = value", who);
    else if (strcmp(name, "backward") == 0)
        snprintf(
            text, 512,
            "%s: 'backward' is not read: gradients are derived from online_fwd and forward; leave it out",
            who);
    else {
        struct nearest nearest = {.word = name};
        for (const char *const *field = fields; *field; field++)
            lathe__nearest_try(&nearest, *field);
        const char *other = other_field(name, fields);
        snprintf(text, 512, "%s: unknown field '%.100s' (%s)%s%s", who, name, known,
                 other ? "; write " : lathe__nearest_text(&nearest), other ? other : "");
    }
}

/* name = ..., which no part of a longer name is. */
static bool sets_field(const char *line, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(line, name); n > 0 && at; at = strstr(at + 1, name)) {
        const char *behind = at + n + strspn(at + n, " \t");
        const bool begins = at == line || !(isalnum((unsigned char)at[-1]) || at[-1] == '_' || at[-1] == '.');
        if (begins && behind[0] == '=' && behind[1] != '=')
            return true;
    }
    return false;
}

/* The line in which a table gets that field: behind the place that runs, else ahead of it; 0: none is seen.
 */
static int line_of_field(const struct tracer *t, int from, const char *name)
{
    const struct source_text *file = &t->file[FILE_SPEC];
    char line[1024];
    int lines = 1;
    for (size_t i = 0; i < file->size; i++)
        lines += file->data[i] == '\n';
    for (int i = 0; i < lines; i++) {
        const int number = (from - 1 + i) % lines + 1;
        source_line(file, number, line, sizeof line);
        if (sets_field(line, name))
            return number;
    }
    return 0;
}

void check_fields(lua_State *lua, int table, const char *who, const char *const *fields)
{
    char text[512];
    const char *name = unlisted_field(lua, table, fields);
    if (!name)
        return;
    struct tracer *t = tracer_of(lua);
    const struct ir_at at = trace_place(lua);
    say_unlisted(who, name, fields, text);
    const int line = at.file == FILE_SPEC && at.line > 0 ? line_of_field(t, at.line, name) : 0;
    if (line > 0) {
        diag_add(t->diag, t->file[FILE_SPEC].name, line, "%s", text);
        t->is_reported = true;
    }
    luaL_error(lua, "%s", text);
}

/* Every field that is not listed is a mistake, beside which there may be others: no Lua error. */
static void report_fields(lua_State *lua, int table, const char *who, const char *const *fields)
{
    struct tracer *t = tracer_of(lua);
    const struct ir_at at = trace_place(lua);
    for (const char *name = NULL; (name = unlisted_behind(lua, table, fields, name)) != NULL;) {
        char text[512];
        say_unlisted(who, name, fields, text);
        const int own = at.line && at.file == FILE_SPEC ? line_of_field(t, at.line, name) : 0;
        diag_add(t->diag, t->file[at.line ? at.file : FILE_SPEC].name, own ? own : at.line, "%s", text);
    }
}

static void take_table(lua_State *lua, const char *who)
{
    if (!lua_istable(lua, 1) || lua_gettop(lua) != 1)
        luaL_error(lua, "%s takes one table: %s { ... }", who, who);
}

/* The constructor of a kind, which is upvalue 1. */
static int construct(lua_State *lua)
{
    const lua_Integer kind = lua_tointeger(lua, lua_upvalueindex(1));
    const struct kind_row *row = &kinds[kind];
    take_table(lua, row->name);
    if (!row->many || lua_rawlen(lua, 1) == 0)
        report_fields(lua, 1, row->name, row->slots);
    lua_newtable(lua);
    lua_pushinteger(lua, kind);
    lua_setfield(lua, -2, "lathe.kind");
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "lathe.slots");
    lua_pushinteger(lua, trace_place(lua).line);
    lua_setfield(lua, -2, "lathe.line");
    return 1;
}

static void require_function(lua_State *lua, const char *field, const char *form)
{
    const int type = lua_getfield(lua, 1, field);
    if (type == LUA_TNIL)
        luaL_error(lua, "online_func: '%s' is missing: %s = %s", field, field, form);
    if (type != LUA_TFUNCTION)
        luaL_error(lua, "online_func: '%s' must be a function, got %s", field, luaL_typename(lua, -1));
    lua_pop(lua, 1);
}

static int construct_online(lua_State *lua)
{
    take_table(lua, "online_func");
    check_fields(lua, 1, "online_func", ONLINE_FIELDS);
    require_function(lua, "online_fwd",
                     "function(s, r, at, x) return w, { state }, o_scale end, the weights of a tile");
    require_function(
        lua, "online_fwd_epilogue",
        "function(r, at, x) return factor, { finals } end; where o needs no factor and nothing is kept: "
        "function() return 1.0, {} end");
    require_function(lua, "forward",
                     "function(s, final, at, x) return w end, the weight again from the finals");
    for (int i = 0; i < 2; i++) {
        static const char *const optional[] = {"combine", "backward"};
        int type = lua_getfield(lua, 1, optional[i]);
        if (type != LUA_TNIL && type != LUA_TFUNCTION)
            luaL_error(lua, "online_func: '%s' must be a function, got %s", optional[i],
                       luaL_typename(lua, -1));
    }
    int state = lua_getfield(lua, 1, "online_rowscales");
    if (state != LUA_TTABLE)
        luaL_error(
            lua,
            "online_func: 'online_rowscales' must be a table such as { m = -inf, l = 0.0 }; {} for none");
    lua_settop(lua, 1);
    luaL_setmetatable(lua, TAG_ONLINE);
    return 1;
}

/* Of half(f, n): pairs are made of the first n elements. 0: of all. */
static int take_paired(lua_State *lua, const char *who)
{
    if (lua_gettop(lua) < 2)
        return 0;
    const lua_Integer n = lua_isinteger(lua, 2) ? lua_tointeger(lua, 2) : 0;
    if (n < 2 || n % 2 != 0 || n > STAGE_PAIRED_MAX)
        return luaL_error(
            lua, "%s(f, n) makes pairs of the first n elements: n is an even integer from 2 to %d, got %s",
            who, STAGE_PAIRED_MAX, luaL_tolstring(lua, 2, NULL));
    return (int)n;
}

/* A list of stages: {form, function, form, function, ...}; a form is stage_form + STAGE_FORMS * paired. */
static int construct_pair(lua_State *lua, const char *who, enum stage_form form)
{
    const bool is_dim = lua_type(lua, 1) == LUA_TSTRING;
    if ((!is_dim && !lua_isfunction(lua, 1)) || lua_gettop(lua) > (is_dim ? 1 : 2))
        return luaL_error(lua,
                          "%s takes a function (lo, hi, at, x) -> lo, hi, and how many elements have pairs "
                          "where not all do; or "
                          "the name of a dim of elementwise",
                          who);
    const int paired = take_paired(lua, who);
    lua_newtable(lua);
    lua_pushinteger(lua, (lua_Integer)form + STAGE_FORMS * paired);
    lua_rawseti(lua, -2, 1);
    lua_pushvalue(lua, 1);
    lua_rawseti(lua, -2, 2);
    luaL_setmetatable(lua, is_dim ? TAG_PAIRS : TAG_STAGES);
    return 1;
}

static int construct_half(lua_State *lua)
{
    return construct_pair(lua, "half", STAGE_HALF);
}

static int construct_interleaved(lua_State *lua)
{
    return construct_pair(lua, "interleaved", STAGE_INTERLEAVED);
}

/* chain(f, half(g), ...): one after the other. */
static int construct_chain(lua_State *lua)
{
    int n = lua_gettop(lua);
    lua_newtable(lua);
    int out = 0;
    for (int i = 1; i <= n; i++) {
        bool stages = has_tag(lua, i, TAG_STAGES);
        if (!stages && !lua_isfunction(lua, i))
            return luaL_error(lua,
                              "chain: argument %d is %s; chain takes functions, half(f) and interleaved(f)",
                              i, luaL_typename(lua, i));
        int count = stages ? (int)lua_rawlen(lua, i) : 1;
        if (!stages) {
            lua_pushinteger(lua, STAGE_ELEMENT);
            lua_rawseti(lua, n + 1, ++out);
            lua_pushvalue(lua, i);
            lua_rawseti(lua, n + 1, ++out);
        }
        for (int k = 1; stages && k <= count; k++) {
            lua_rawgeti(lua, i, k);
            lua_rawseti(lua, n + 1, ++out);
        }
    }
    if (out == 0 || out > 2 * MAX_STAGES)
        return luaL_error(lua, "chain takes 1 to %d stages, got %d", MAX_STAGES, out / 2);
    luaL_setmetatable(lua, TAG_STAGES);
    return 1;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* tensor(dtype, dim, ..., { options }) and scalar(dtype, { options }) become a tagged table of their
 * arguments. */
static int construct_input(lua_State *lua, bool is_scalar)
{
    int n = lua_gettop(lua);
    lua_newtable(lua);
    for (int i = 1; i <= n; i++) {
        lua_pushvalue(lua, i);
        lua_rawseti(lua, -2, i);
    }
    lua_pushboolean(lua, is_scalar);
    lua_setfield(lua, -2, "scalar");
    lua_pushinteger(lua, trace_place(lua).line);
    lua_setfield(lua, -2, "line");
    luaL_setmetatable(lua, TAG_INPUT);
    return 1;
}

static int construct_tensor(lua_State *lua)
{
    return construct_input(lua, false);
}

static int construct_scalar(lua_State *lua)
{
    return construct_input(lua, true);
}

/* total(value): a result that is added up over all rows. */
static int construct_total(lua_State *lua)
{
    if (lua_gettop(lua) != 1)
        return luaL_error(lua, "total takes one value per row: { sum = total(loss) }");
    lua_newtable(lua);
    lua_pushvalue(lua, 1);
    lua_rawseti(lua, -2, 1);
    luaL_setmetatable(lua, TAG_TOTAL);
    return 1;
}

/* first(value, k, fill): a result that is the first k elements of a row. */
static int construct_first(lua_State *lua)
{
    enum { MOST = 8192 };
    const lua_Integer k = lua_isinteger(lua, 2) ? lua_tointeger(lua, 2) : 0;
    if (lua_gettop(lua) != 3 || lua_type(lua, 3) != LUA_TNUMBER || k < 1 || k > MOST)
        return luaL_error(lua,
                          "first takes what is placed, how many elements of it, 1 to %d, and what stands in "
                          "the place of those that a shorter row lacks: first(placed(v, rank(s)), 8, -inf)",
                          MOST);
    lua_newtable(lua);
    for (int i = 1; i <= 3; i++) {
        lua_pushvalue(lua, i);
        lua_rawseti(lua, -2, i);
    }
    luaL_setmetatable(lua, TAG_FIRST);
    return 1;
}

/* softmax(s), softmax - softmax: what an online function is taken for. */
static int refuse_online(lua_State *lua)
{
    return luaL_error(
        lua,
        tracer_of(lua)->ir->kind == KIND_ATTENTION
            ? "softmax and other online functions are no functions of a value: online_func = softmax makes "
              "the "
              "weights of whole rows of scores. Two of them in one formula are two calls, whose results an "
              "elementwise spec combines"
            : "softmax is for attention; of a row write: local p = exp(v - rowmax(v)) return p / rowsum(p)");
}

static void close_online(lua_State *lua)
{
    static const char *const events[] = {"__call", "__add", "__sub", "__mul", "__div", "__unm", NULL};
    luaL_newmetatable(lua, TAG_ONLINE);
    for (int i = 0; events[i]; i++) {
        lua_pushcfunction(lua, refuse_online);
        lua_setfield(lua, -2, events[i]);
    }
    lua_pop(lua, 1);
}

void slots_vocabulary(lua_State *lua, int table)
{
    close_online(lua);
    static const luaL_Reg CONSTRUCTORS[] = {
        {"online_func", construct_online},
        {"half", construct_half},
        {"interleaved", construct_interleaved},
        {"chain", construct_chain},
        {"tensor", construct_tensor},
        {"scalar", construct_scalar},
        {"total", construct_total},
        {"first", construct_first},
        {"param", construct_param},
        {NULL, NULL},
    };
    static const char *const tags[] = {TAG_ONLINE, TAG_STAGES, TAG_INPUT, TAG_PAIRS, TAG_TOTAL, TAG_FIRST};
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        lua_pushinteger(lua, kind);
        lua_pushcclosure(lua, construct, 1);
        lua_setfield(lua, table, kinds[kind].name);
    }
    for (const luaL_Reg *r = CONSTRUCTORS; r->name; r++) {
        lua_pushcfunction(lua, r->func);
        lua_setfield(lua, table, r->name);
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        luaL_newmetatable(lua, tags[i]);
        lua_pop(lua, 1);
    }
}

static void declare_dim(lua_State *lua, struct input *in, int index)
{
    struct ir *ir = tracer_of(lua)->ir;
    if (in->n_dims == INPUT_DIMS)
        luaL_error(lua, "input '%s': at most %d dims", in->name, INPUT_DIMS);
    struct sig_dim *dim = &in->dim[in->n_dims++]; /* messages count from 0, as those of calls */
    if (lua_isinteger(lua, index)) {
        lua_Integer size = lua_tointeger(lua, index);
        if (size < 1 || size > INT32_MAX)
            luaL_error(lua, "input '%s': dim %d is %I; a size is 1 to %d", in->name, in->n_dims - 1, size,
                       INT32_MAX);
        *dim = (struct sig_dim){.sym = SYM_ONE, .literal = (int32_t)size};
        return;
    }
    const char *name = lua_type(lua, index) == LUA_TSTRING ? lua_tostring(lua, index) : "";
    if (!is_identifier(name))
        luaL_error(lua, "input '%s': dim %d must be a name such as \"h\" or a size such as 32", in->name,
                   in->n_dims - 1);
    if (dim_is_taken(ir, name))
        luaL_error(lua,
                   "input '%s': '%s' is a size or an argument of some calls of %s; give dim %d another name",
                   in->name, name, kinds[ir->kind].name, in->n_dims - 1);
    int sym = dim_sym(ir, name);
    if (sym < 0)
        luaL_error(lua, "input '%s': more than %d dims with names of their own", in->name, MAX_FREE_SYMS);
    *dim = (struct sig_dim){.sym = (uint8_t)sym};
}

lathe_dtype declare_dtype(lua_State *lua, const char *who)
{
    static const struct {
        const char *name;
        lathe_dtype dtype;
    } DTYPES[] = {{"f32", LATHE_F32}, {"f16", LATHE_F16}, {"bf16", LATHE_BF16},
                  {"i32", LATHE_I32}, {"u8", LATHE_U8},   {"float", LATHE_NONE}};
    const char *name = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "nothing";
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (strcmp(DTYPES[i].name, name) == 0)
            return DTYPES[i].dtype;
    luaL_error(lua,
               "%s: the dtype is \"f32\", \"f16\", \"bf16\", \"i32\", \"u8\" or \"float\" (any of "
               "the first three), got %s",
               who, name);
    return LATHE_NONE;
}

static void declare_input_dtype(lua_State *lua, struct input *in)
{
    char who[NAME_MAX_BYTES + 16];
    snprintf(who, sizeof who, "input '%s'", in->name);
    in->dtype = declare_dtype(lua, who);
    if (in->is_scalar && in->dtype != LATHE_F32 && in->dtype != LATHE_I32)
        luaL_error(lua, "%s: a scalar is \"f32\" or \"i32\", got \"%s\"", who, lua_tostring(lua, -1));
}

static bool read_flag(lua_State *lua, const struct input *in, int table, const char *option)
{
    const int type = lua_getfield(lua, table, option);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        luaL_error(lua, "input '%s': option '%s' is true or false", in->name, option);
    const bool value = lua_toboolean(lua, -1) != 0;
    lua_pop(lua, 1);
    return value;
}

static void declare_options(lua_State *lua, struct input *in, int table)
{
    static const char *const options[] = {"grad", "optional", "default", "range", "sorted", NULL};
    const char *unknown = unlisted_field(lua, table, options);
    if (unknown)
        luaL_error(lua, "input '%s': unknown option '%s' (grad optional default range sorted)", in->name,
                   unknown);
    in->grad = read_flag(lua, in, table, "grad");
    in->optional = read_flag(lua, in, table, "optional");
    declare_range(lua, in, table);
    const int type = lua_getfield(lua, table, "default");
    if (type != LUA_TNIL && type != LUA_TNUMBER)
        luaL_error(lua, "input '%s': option 'default' is a number", in->name);
    if (type == LUA_TNUMBER) {
        in->default_value = lua_tonumber(lua, -1);
        if (in->dtype != LATHE_I32 && in->dtype != LATHE_U8)
            require_constant(lua, in->name, in->default_value);
        if (in->dtype == LATHE_F32) /* as a value that is given */
            in->default_value = (double)(float)in->default_value;
        in->optional = true; /* whatever `optional` says: a default is for what is left out */
    }
    lua_pop(lua, 1);
    double least = in->dtype == LATHE_U8 ? 0.0 : INT32_MIN;
    double most = in->dtype == LATHE_U8 ? 255.0 : INT32_MAX;
    bool integer = in->dtype == LATHE_I32 || in->dtype == LATHE_U8;
    if (integer && !(in->default_value >= least && in->default_value <= most &&
                     in->default_value == (double)(int64_t)in->default_value))
        luaL_error(lua, "input '%s': option 'default' is a whole number that %s can hold", in->name,
                   lathe_dtype_text(in->dtype));
    if (in->grad && integer)
        luaL_error(lua, "input '%s': integers have no gradient; leave grad out or declare it \"f32\"",
                   in->name);
}

/* Stack: 1 name, 2 the tagged table. Run under trace_pcall. */
static int declare_input(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    struct ir *ir = t->ir;
    const char *name = lua_tostring(lua, 1);
    bool tagged = has_tag(lua, 2, TAG_INPUT);
    int line = t->constructor_line;
    if (tagged) {
        lua_getfield(lua, 2, "line");
        line = (int)lua_tointeger(lua, -1);
    }
    t->function = (struct ir_at){FILE_SPEC, line};
    if (!is_identifier(name) || is_argument_of_some_kind(name))
        return luaL_error(lua,
                          "inputs: '%s' cannot be the name of an input (a word of letters, digits and _, not "
                          "q k v o x y, a gradient of them, q_start or mask_kept)",
                          name);
    if (is_argument_of_kind(ir, name))
        return luaL_error(lua,
                          "inputs: '%s' cannot be the name of an input: it is an argument that %s takes "
                          "where it is given",
                          name, kinds[ir->kind].name);
    if (!tagged)
        return luaL_error(lua, "input '%s' must be tensor(dtype, dims...) or scalar(dtype)", name);
    struct input *in = &ir->input[ir->n_inputs];
    *in = (struct input){0};
    snprintf(in->name, sizeof in->name, "%s", name);
    lua_getfield(lua, 2, "scalar");
    in->is_scalar = lua_toboolean(lua, -1) != 0;
    in->line = line;
    lua_rawgeti(lua, 2, 1);
    declare_input_dtype(lua, in);
    ir->n_inputs++; /* known by name and dtype: what reads it can be traced, whatever else is wrong */
    in->broken = true;
    int n = (int)lua_rawlen(lua, 2);
    for (int i = 2; i <= n; i++) {
        lua_rawgeti(lua, 2, i);
        if (lua_istable(lua, -1) && i == n)
            declare_options(lua, in, lua_gettop(lua));
        else if (in->is_scalar)
            return luaL_error(lua, "input '%s': a scalar has no dims; use tensor(...)", name);
        else
            declare_dim(lua, in, lua_gettop(lua));
    }
    if (!in->is_scalar && in->n_dims == 0)
        return luaL_error(lua, "input '%s': a tensor has at least one dim, such as tensor(\"f32\", \"h\")",
                          name);
    in->broken = false;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool declare_inputs(struct tracer *t, int slots)
{
    lua_State *lua = t->lua;
    int kind = lua_getfield(lua, slots, "inputs");
    if (kind == LUA_TNIL)
        return true;
    if (kind != LUA_TTABLE || has_tag(lua, lua_gettop(lua), TAG_INPUT)) {
        slot_mistake(t, "'inputs' must be a table: inputs = { name = tensor(\"f32\", \"h\") }");
        return false;
    }
    int table = lua_gettop(lua);
    const char *name[MAX_INPUTS];
    int n = 0;
    for (lua_pushnil(lua); lua_next(lua, table); lua_pop(lua, 1)) {
        if (n == MAX_INPUTS) {
            lua_pop(lua, 2);
            slot_mistake(t, "inputs: more than %d", MAX_INPUTS);
            return false;
        }
        name[n++] = lua_type(lua, -2) == LUA_TSTRING ? lua_tostring(lua, -2) : "";
    }
    qsort(name, (size_t)n, sizeof *name, compare_names);
    for (int i = 0; i < n; i++) {
        lua_pushcfunction(lua, declare_input);
        lua_pushstring(lua, name[i]);
        lua_getfield(lua, table, name[i]);
        trace_pcall(t, 2, 0);
    }
    t->function = (struct ir_at){0, 0};
    return t->ir->n_inputs == n;
}
