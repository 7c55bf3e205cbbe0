/*
 * values.c: the vocabulary of specs, and traced values. A traced value is a userdata with a node number;
 * its metamethods and the vocabulary make IR nodes. Implemented in C, so that a node keeps the spec's line
 * also in `return ge(a, b)`. In: Lua values. Out: nodes in tracer->ir. Slots are in slots.c.
 */
#include "gen/lang/slots.h"
#include "gen/ir/spec.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VALUE_META  "lathe.value"
#define AT_META     "lathe.at"
#define INPUTS_META "lathe.inputs"
#define TENSOR_META "lathe.tensor"

/* ---- values ---------------------------------------------------------------------------------- */

struct value {
    int node;
    int epoch;
};

void push_value(lua_State *lua, int node)
{
    struct value *v = lua_newuserdatauv(lua, sizeof *v, 0);
    v->node = node;
    v->epoch = tracer_of(lua)->epoch;
    luaL_setmetatable(lua, VALUE_META);
}

bool is_traced(lua_State *lua, int index)
{
    return luaL_testudata(lua, index, VALUE_META) != NULL;
}

static int lift_number(lua_State *lua, int index)
{
    struct ir *ir = tracer_of(lua)->ir;
    if (!lua_isinteger(lua, index))
        return ir_const(ir, lua_tonumber(lua, index), TYPE_F32);
    lua_Integer i = lua_tointeger(lua, index);
    if (i > INT32_MAX && i <= UINT32_MAX)
        return luaL_error(lua,
                          "integer %I does not fit 32 bits with a sign; write it as a float (%I.0), or "
                          "i32(%I) for the integer of the same bits",
                          i, i, i);
    if (i < INT32_MIN || i > INT32_MAX)
        return luaL_error(lua, "integer %I does not fit 32 bits; write it as a float (%I.0)", i, i);
    return ir_const(ir, (double)i, TYPE_I32);
}

/* Of an integer constant from 2^31 to 2^32 - 1, such as 0x9e3779b9, the one of the same bits: what & | ~ <<
   >> and i32 take. Others stay. */
static void take_bits(lua_State *lua, int index)
{
    if (!lua_isinteger(lua, index))
        return;
    const lua_Integer i = lua_tointeger(lua, index);
    if (i <= INT32_MAX || i > UINT32_MAX)
        return;
    lua_pushinteger(lua, i - (lua_Integer)UINT32_MAX - 1);
    lua_replace(lua, index);
}

/* What a slot's function is given, and where the rest is. */
static const char *const PARAMETERS[SLOT_COUNT][2] = {
    [SLOT_SCALE] = {"at, x", "at.h, at.d"},
    [SLOT_MASK] = {"at, x", "at.b, at.h, at.q, at.kv"},
    [SLOT_SCORE] = {"s, at, x", "at.b, at.h, at.q, at.kv"},
    [SLOT_ONLINE] = {"s, r, at, x", "at.q, at.kv"},
    [SLOT_EPILOGUE] = {"r, at, x", "at.h, at.q"},
    [SLOT_FORWARD] = {"s, final, at, x", "at.q, at.kv"},
    [SLOT_COMBINE] = {"part", ""},
    [SLOT_BACKWARD] = {"dw, w, s, delta, final, at, x", "at.q, at.kv"},
    [SLOT_QUERY] = {"v, at, x", "at.i, at.pos"},
    [SLOT_KEY] = {"v, at, x", "at.i, at.pos"},
    [SLOT_VALUE] = {"v, at, x", "at.i, at.pos"},
    [SLOT_OUTPUT] = {"v, at, x", "at.i, at.pos"},
    [SLOT_LINEAR_SCALE] = {"at, x", "at.h, at.d"},
    [SLOT_LINEAR_QUERY] = {"v, at, x", "at.i, at.pos"},
    [SLOT_LINEAR_KEY] = {"v, at, x", "at.i, at.pos"},
    [SLOT_LINEAR_VALUE] = {"v, at, x", "at.i, at.pos"},
    [SLOT_LINEAR_OUTPUT] = {"o, at, x, v", "at.i, at.pos"},
#define LINEAR_SLOT(ID, name, varies, fields, ...)                                                           \
    [SLOT_##ID] = {((varies)&OF_KEY) != 0 ? "k, at, x" : "at, x", fields},
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    [SLOT_ROW] = {"v, at, x", "at.i, at.row, at.n"},
    [SLOT_MAP] = {"v, at, x", "at.NAME of a dim of over"},
};

static const char *lua_kind(lua_State *lua, int index)
{
    const char *fields = PARAMETERS[tracer_of(lua)->slot][1];
    if (luaL_testudata(lua, index, TENSOR_META))
        return "a tensor input that was not indexed (write x.name(i, ...))";
    if (luaL_testudata(lua, index, AT_META))
        return fields && *fields ? lua_pushfstring(lua, "at (write %s, ...)", fields) : "at";
    if (luaL_testudata(lua, index, INPUTS_META))
        return "the inputs (write x.name)";
    if (has_tag(lua, index, TAG_TOTAL))
        return "total(value), which stands in the table of results of rowwise: { sum = total(value) }";
    if (has_tag(lua, index, TAG_FIRST))
        return "first(value, k, fill), which stands in the table of results of rowwise: { values = "
               "first(...) }";
    if (luaL_getmetafield(lua, index, PAIR_NAME) != LUA_TNIL) {
        const char *name = lua_tostring(lua, -1);
        return lua_pushfstring(lua, "the pair v.%s (write v.%s.lo or v.%s.hi)", name, name, name);
    }
    return luaL_typename(lua, index);
}

/* Numbers of any size: what is computed of them alone is a number again. */
static int lift_plain(lua_State *lua, int index, const char *who)
{
    const struct value *v = luaL_testudata(lua, index, VALUE_META);
    if (v && v->epoch != tracer_of(lua)->epoch)
        return luaL_error(
            lua, "%s: this value belongs to another function of the spec; compute it here again", who);
    if (v)
        return v->node;
    if (lua_type(lua, index) == LUA_TNUMBER)
        return lift_number(lua, index);
    if (lua_isboolean(lua, index))
        return ir_const(tracer_of(lua)->ir, lua_toboolean(lua, index), TYPE_BOOL);
    return luaL_error(lua, "%s takes numbers and traced values, got %s", who, lua_kind(lua, index));
}

static void check_node(lua_State *lua, const char *who, int node)
{
    const struct ir_node *n = &tracer_of(lua)->ir->node[node];
    if (n->op == OP_CONST && n->type == TYPE_F32)
        require_constant(lua, who, n->value);
}

int lift(lua_State *lua, int index, const char *who)
{
    const int node = lift_plain(lua, index, who);
    check_node(lua, who, node);
    return node;
}

/* An integer divided by 0, or by a parameter below: what whoever loads the spec gave, and no spec means. */
static void check_divisor(lua_State *lua, enum ir_op op, const int *arg)
{
    const struct ir *ir = tracer_of(lua)->ir;
    const struct ir_node *n = &ir->node[arg[1]];
    const bool integers = n->type == TYPE_I32 && ir->node[arg[0]].type == TYPE_I32;
    if ((op != OP_IDIV && op != OP_MOD) || n->op != OP_CONST || !integers || n->value > 0)
        return;
    for (int i = 0; i < ir->n_params; i++)
        if (ir->param[i].is_integer && ir->param[i].value == n->value)
            luaL_error(lua, "%s by parameter '%s', which is %d: give it a number of at least 1",
                       ir_op_name((int)op), ir->param[i].name, (int)n->value);
    if (n->value == 0)
        luaL_error(lua, "%s by 0 has no value: divide by another number", ir_op_name((int)op));
}

static int make(lua_State *lua, enum ir_op op, const int *arg)
{
    struct ir *ir = tracer_of(lua)->ir;
    const char *why = ir_type_error(ir, op, arg);
    if (why)
        return luaL_error(lua, "%s: %s", ir_op_name((int)op), why);
    if (ir_op_arity((int)op) == 2)
        check_divisor(lua, op, arg);
    for (int i = 0; i < ir_op_arity((int)op); i++)
        check_node(lua, ir_op_name((int)op), arg[i]);
    const int node = ir_make(ir, op, arg, trace_place(lua));
    check_node(lua, ir_op_name((int)op), node);
    push_value(lua, node);
    return 1;
}

/* Arithmetic metamethods: the op is upvalue 1. Lua passes a unary operand twice. */
static int value_arithmetic(lua_State *lua)
{
    enum ir_op op = (enum ir_op)lua_tointeger(lua, lua_upvalueindex(1));
    const bool bits = op == OP_AND || op == OP_OR || op == OP_XOR || op == OP_SHL || op == OP_SHR;
    int arg[IR_MAX_ARGS] = {0};
    for (int i = 0; i < ir_op_arity((int)op); i++) {
        if (bits)
            take_bits(lua, i + 1);
        arg[i] = lift(lua, i + 1, ir_op_name((int)op));
    }
    return make(lua, op, arg);
}

/* What Lua would decide silently or cannot do; the advice is upvalue 1. */
static int value_refuse(lua_State *lua)
{
    return luaL_error(lua, "%s", lua_tostring(lua, lua_upvalueindex(1)));
}

static int value_index(lua_State *lua)
{
    if (lua_type(lua, 2) == LUA_TSTRING)
        return luaL_error(lua, "a traced value has no field '%s'", lua_tostring(lua, 2));
    return luaL_error(lua,
                      "a traced value has no elements; a tensor of the inputs is read as x.name(i, ...)");
}

/* x.bias[at.h], x.bias.h */
static int tensor_field(lua_State *lua)
{
    const int input = *(const int *)luaL_checkudata(lua, 1, TENSOR_META);
    const char *name = tracer_of(lua)->ir->input[input].name;
    return luaL_error(lua, "input '%s' is read with parentheses: x.%s(i, ...)", name, name);
}

/* The name of a field; raises an error for another key. */
static const char *field_name(lua_State *lua, const char *who, const char *example)
{
    if (lua_type(lua, 2) != LUA_TSTRING)
        luaL_error(lua, "%s has fields with names: write %s", who, example);
    return lua_tostring(lua, 2);
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static bool all_plain(lua_State *lua, int n)
{
    for (int i = 1; i <= n; i++)
        if (lua_type(lua, i) != LUA_TNUMBER && !lua_isboolean(lua, i))
            return false;
    return true;
}

/* An op of plain numbers is a plain number: constants may be computed anywhere in a spec. */
static int plain_result(lua_State *lua, int node)
{
    const struct ir_node *n = &tracer_of(lua)->ir->node[node];
    if (n->op != OP_CONST)
        return luaL_error(lua, "%s: division by zero", ir_op_name(n->op));
    if (n->type == TYPE_BOOL)
        lua_pushboolean(lua, n->value != 0);
    else if (n->type == TYPE_I32)
        lua_pushinteger(lua, (lua_Integer)n->value);
    else
        lua_pushnumber(lua, n->value);
    return 1;
}

static int vocabulary_op(lua_State *lua)
{
    enum ir_op op = (enum ir_op)lua_tointeger(lua, lua_upvalueindex(1));
    const char *name = ir_op_name((int)op);
    int arity = ir_op_arity((int)op);
    int given = lua_gettop(lua);
    if (given != arity)
        return luaL_error(lua, "%s takes %d argument%s, got %d", name, arity, arity == 1 ? "" : "s", given);
    int arg[IR_MAX_ARGS] = {0};
    if (op == OP_I32)
        take_bits(lua, 1);
    for (int i = 0; i < arity; i++)
        arg[i] = lift_plain(lua, i + 1, name);
    if (!all_plain(lua, arity) || ir_op_is_reduction((int)op) || ir_op_is_scan((int)op))
        return make(lua, op, arg);
    const char *why = ir_type_error(tracer_of(lua)->ir, op, arg);
    if (why)
        return luaL_error(lua, "%s: %s", name, why);
    return plain_result(lua, ir_make(tracer_of(lua)->ir, op, arg, trace_place(lua)));
}

void trace_vocabulary(lua_State *lua, int table)
{
    for (int op = 0; op < OP_COUNT; op++) {
        if (!ir_op_spelling(op)[0])
            continue;
        lua_pushinteger(lua, op);
        lua_pushcclosure(lua, vocabulary_op, 1);
        lua_setfield(lua, table, ir_op_spelling(op));
    }
    lua_pushnumber(lua, (lua_Number)INFINITY);
    lua_setfield(lua, table, "inf");
    lua_pushnumber(lua, 3.14159265358979323846);
    lua_setfield(lua, table, "pi");
}

/* ---- at -------------------------------------------------------------------------------------- */

#define BIT(field) (UINT64_C(1) << AT_##field)
#define SIZES      (BIT(N_B) | BIT(N_H) | BIT(N_H_KV) | BIT(LEN_Q) | BIT(LEN_KV) | BIT(D) | BIT(D_V))
#define HEAD       (BIT(B) | BIT(H) | BIT(H_KV) | SIZES)
#define PAIR       (HEAD | BIT(Q) | BIT(KV) | BIT(ROW))

#define L_SIZES (BIT(N_B) | BIT(N_H) | BIT(N_H_K) | BIT(LEN_T) | BIT(D) | BIT(D_V))
#define L_HEAD  (BIT(B) | BIT(H) | BIT(H_K) | L_SIZES)
#define L_TOKEN (BIT(POS) | BIT(T))

static const uint64_t FIELDS[SLOT_COUNT] = {
    [SLOT_SCALE] = HEAD,
    [SLOT_MASK] = PAIR,
    [SLOT_SCORE] = PAIR,
    [SLOT_ONLINE] = PAIR,
    [SLOT_EPILOGUE] = HEAD | BIT(Q) | BIT(ROW),
    [SLOT_FORWARD] = PAIR,
    [SLOT_COMBINE] = 0,
    [SLOT_BACKWARD] = PAIR,
    [SLOT_QUERY] = HEAD | BIT(I) | BIT(POS) | BIT(Q) | BIT(ROW),
    [SLOT_KEY] = BIT(B) | BIT(H_KV) | SIZES | BIT(I) | BIT(POS) | BIT(KV),
    [SLOT_VALUE] = BIT(B) | BIT(H_KV) | SIZES | BIT(I) | BIT(POS) | BIT(KV),
    [SLOT_OUTPUT] = HEAD | BIT(I) | BIT(POS) | BIT(Q) | BIT(ROW),
    [SLOT_LINEAR_SCALE] = L_HEAD,
    [SLOT_LINEAR_QUERY] = BIT(B) | BIT(H_K) | L_SIZES | L_TOKEN | BIT(I),
    [SLOT_LINEAR_KEY] = BIT(B) | BIT(H_K) | L_SIZES | L_TOKEN | BIT(UPDATE) | BIT(I),
    [SLOT_LINEAR_VALUE] = L_HEAD | L_TOKEN | BIT(UPDATE) | BIT(I),
    [SLOT_LINEAR_OUTPUT] = L_HEAD | L_TOKEN | BIT(I),
#define LINEAR_SLOT(ID, name, varies, ...)                                                                   \
    [SLOT_##ID] = L_HEAD | (((varies)&BY_TOKENS) != 0 ? L_TOKEN : 0) |                                       \
                  (((varies)&BY_UPDATES) != 0 ? BIT(UPDATE) : 0) | (((varies)&BY_KEYS) != 0 ? BIT(I) : 0) |  \
                  (((varies)&BY_VALUES) != 0 ? BIT(J) : 0),
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    [SLOT_ROW] = BIT(ROW) | BIT(COL) | BIT(N) | BIT(N_ROWS),
};

static const char *const AT_NAMES[AT_COUNT] = {
#define AT_NAME(id, name, span) name,
    AT_MAP(AT_NAME)
#undef AT_NAME
};

static void list_fields(const struct tracer *t, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int f = 0; f < AT_COUNT; f++)
        if ((FIELDS[t->slot] >> f & 1) && used < size && (f != AT_UPDATE || t->ir->linear.updates > 0))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", AT_NAMES[f]);
}

void check_parameters(lua_State *lua, int function, int given, bool pairs, const char *who)
{
    lua_Debug info;
    const char *const *known = PARAMETERS[tracer_of(lua)->slot];
    lua_pushvalue(lua, function);
    lua_getinfo(lua, ">u", &info);
    if (info.nparams > given)
        luaL_error(lua, "%s: its function has %d parameters and gets %d: (%s)%s%s", who, info.nparams, given,
                   pairs ? "lo, hi, at, x" : known[0],
                   *known[1] ? "; indices and sizes are fields of at: " : "", known[1]);
}

/* No such field: the fields that there are, with blanks between them. */
static int unknown_field(lua_State *lua, const char *name, const char *fields)
{
    struct nearest nearest = {.word = name};
    char field[NAME_MAX_BYTES];
    for (const char *at = fields; sscanf(at, " %47s", field) == 1; at += strcspn(at, " ")) {
        lathe__nearest_try(&nearest, field);
        at += strspn(at, " ");
    }
    return luaL_error(lua, "'at' has no field '%s' here (%s)%s", name, fields, lathe__nearest_text(&nearest));
}

/* at.n_pages: the size of a dim that an input names for itself. False: no such dim, and nothing is pushed. */
static bool push_free_size(lua_State *lua, const char *name)
{
    struct tracer *t = tracer_of(lua);
    for (int k = 0; k < t->ir->n_free && strncmp(name, "n_", 2) == 0; k++) {
        if (strcmp(name + 2, t->ir->free_name[k]) != 0)
            continue;
        push_value(lua, ir_at_field(t->ir, AT_FREE0 + k, trace_place(lua)));
        return true;
    }
    return false;
}

/* The same of all of them, for a message: " n_pages n_slots". */
static void list_free_sizes(const struct ir *ir, char *out, size_t size)
{
    size_t used = strlen(out);
    for (int k = 0; k < ir->n_free && used < size; k++)
        used += (size_t)snprintf(out + used, size - used, "%sn_%s", used ? " " : "", ir->free_name[k]);
}

/* A dim of a map: at.h is the index, at.n_h how many there are. */
static int map_index(lua_State *lua, const char *name)
{
    struct tracer *t = tracer_of(lua);
    char fields[256] = "";
    size_t used = 0;
    for (int k = 0; k < t->map->n_over; k++) {
        const char *dim = t->ir->free_name[t->map->over[k] - SYM_FREE];
        const bool size = strncmp(name, "n_", 2) == 0 && strcmp(name + 2, dim) == 0;
        if (size || strcmp(name, dim) == 0) {
            push_value(lua, ir_at_field(t->ir, (size ? AT_SIZE0 : AT_INDEX0) + k, trace_place(lua)));
            return 1;
        }
        used += (size_t)snprintf(fields + used, sizeof fields - used, "%s%s n_%s", used ? " " : "", dim, dim);
        used = used < sizeof fields ? used : sizeof fields - 1;
    }
    if (push_free_size(lua, name))
        return 1;
    return unknown_field(lua, name, fields);
}

/* In a vector mod at.q, or at.kv, is the token's position under the name that pairs know it by. */
static int field_of(enum trace_slot slot, int field)
{
    const bool vector = (FIELDS[slot] & BIT(POS)) != 0;
    return vector && (field == AT_Q || field == AT_KV) ? AT_POS : field;
}

/* Of one update it is the first. */
static int push_update(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    if (t->ir->linear.updates == 0)
        return luaL_error(lua,
                          "at.update goes with 'updates = n': each token makes one update of the state here");
    push_value(lua, t->ir->linear.updates > 1 ? ir_at_field(t->ir, AT_UPDATE, trace_place(lua))
                                              : ir_const(t->ir, 0, TYPE_I32));
    return 1;
}

static int at_index(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    const char *name = field_name(lua, "'at'", "at.q, at.kv, ...");
    if (t->slot == SLOT_MAP)
        return map_index(lua, name);
    for (int f = 0; f < AT_COUNT; f++)
        if ((FIELDS[t->slot] >> f & 1) && strcmp(AT_NAMES[f], name) == 0) {
            if (f == AT_UPDATE)
                return push_update(lua);
            push_value(lua, ir_at_field(t->ir, field_of(t->slot, f), trace_place(lua)));
            return 1;
        }
    char fields[512];
    if (t->slot != SLOT_COMBINE && push_free_size(lua, name))
        return 1;
    list_fields(t, fields, sizeof fields);
    if (t->slot != SLOT_COMBINE)
        list_free_sizes(t->ir, fields, sizeof fields);
    return unknown_field(lua, name, fields[0] ? fields : "it has none in combine");
}

void push_at(lua_State *lua)
{
    lua_newuserdatauv(lua, 0, 0);
    luaL_setmetatable(lua, AT_META);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Tensors that every call of the kind has: they are no inputs, and cannot be declared as such. */
static void refuse_operand(lua_State *lua, const char *name)
{
    const struct tracer *t = tracer_of(lua);
    const struct ir *ir = t->ir;
    const bool one = name[0] && !name[1];
    if (ir->kind == KIND_ATTENTION && one && strchr("qkvo", *name))
        luaL_error(
            lua,
            "'%s' is an argument of attention and no input: a function sees the score of a pair, or an "
            "element "
            "of a row in query_mod, key_mod, value_mod and output_mod; what else depends on %s comes as an "
            "input of another name",
            name, name);
    if (ir->kind == KIND_LINEAR && one && strchr("qkvo", *name))
        luaL_error(lua,
                   "'%s' is an argument of linear_attention and no input: an element of it is the first "
                   "parameter of query_mod, key_mod, value_mod and output_mod, and one of v the last of "
                   "output_mod; what else depends on %s comes as an input of another name",
                   name, name);
    if (ir->kind == KIND_ROWWISE && one && strchr("xy", *name))
        luaL_error(lua,
                   "'%s' is an argument of rowwise and no input: an element of x is the first parameter, v",
                   name);
    for (int i = 0; ir->kind == KIND_ELEMENTWISE && i < ir->maps.n_tensors; i++)
        if (&ir->maps.map[ir->maps.tensor[i].map] == t->map && strcmp(ir->maps.tensor[i].name, name) == 0)
            luaL_error(lua, "'%s' is an operand and no input: write v.%s", name, name);
}

static int inputs_index(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    struct nearest nearest = {.word = ""};
    const char *name = field_name(lua, "the parameter of inputs", "x.name, or x.name(i, ...) of a tensor");
    nearest.word = name;
    for (int i = 0; i < t->ir->n_inputs; i++) {
        const struct input *in = &t->ir->input[i];
        lathe__nearest_try(&nearest, in->name);
        if (strcmp(in->name, name) != 0)
            continue;
        if (in->is_scalar) {
            enum ir_type type = in->dtype == LATHE_I32 ? TYPE_I32 : TYPE_F32;
            push_value(lua, ir_leaf(t->ir, OP_SCALAR, i, type, 0, trace_place(lua)));
        } else {
            *(int *)lua_newuserdatauv(lua, sizeof(int), 0) = i;
            luaL_setmetatable(lua, TENSOR_META);
        }
        return 1;
    }
    refuse_operand(lua, name);
    const char *meant = lathe__nearest_text(&nearest);
    if (*meant)
        return luaL_error(lua, "there is no input '%s'%s", name, meant);
    for (int i = 0; i < t->ir->n_params; i++)
        if (strcmp(name, t->ir->param[i].name) == 0)
            return luaL_error(lua,
                              "there is no input '%s'; it is a parameter of this spec, a number: write its "
                              "name without x",
                              name);
    return luaL_error(lua, "there is no input '%s'; declare it: inputs = { %s = tensor(\"f32\", \"h\") }",
                      name, name);
}

void push_inputs(lua_State *lua)
{
    lua_newuserdatauv(lua, 0, 0);
    luaL_setmetatable(lua, INPUTS_META);
}

static int dims_text(const struct tracer *t, const struct input *in, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int d = 0; d < in->n_dims && used < size; d++) {
        char name[NAME_MAX_BYTES];
        used += (size_t)snprintf(out + used, size - used, "%s%s", d ? ", " : "",
                                 lang_dim_name(t->ir, &in->dim[d], name, sizeof name));
    }
    return in->n_dims;
}

/* x.table(i, j): a read. */
static int tensor_call(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    int input = *(const int *)luaL_checkudata(lua, 1, TENSOR_META);
    const struct input *in = &t->ir->input[input];
    int n = lua_gettop(lua) - 1;
    if (in->broken)
        n = n < INPUT_DIMS ? n : INPUT_DIMS;
    else if (n != in->n_dims) {
        char dims[160];
        int want = dims_text(t, in, dims, sizeof dims);
        return luaL_error(lua, "input '%s' has %d dimension%s (%s), got %d ind%s", in->name, want,
                          want == 1 ? "" : "s", dims, n, n == 1 ? "ex" : "ices");
    }
    int index[IR_MAX_ARGS] = {0};
    for (int i = 0; i < n; i++) {
        index[i] = lift(lua, i + 2, in->name);
        if (t->ir->node[index[i]].type != TYPE_I32)
            return luaL_error(lua, "input '%s': index %d is %s; indices are integers: write i32(...)",
                              in->name, i, ir_type_name(t->ir->node[index[i]].type));
    }
    push_value(lua, ir_load(t->ir, input, index, n, trace_place(lua)));
    return 1;
}

/* ---- metatables ------------------------------------------------------------------------------ */

static void set_op(lua_State *lua, const char *event, enum ir_op op)
{
    lua_pushinteger(lua, (lua_Integer)op);
    lua_pushcclosure(lua, value_arithmetic, 1);
    lua_setfield(lua, -2, event);
}

static void set_refusal(lua_State *lua, const char *event, const char *advice)
{
    lua_pushstring(lua, advice);
    lua_pushcclosure(lua, value_refuse, 1);
    lua_setfield(lua, -2, event);
}

static void open_value(lua_State *lua)
{
    static const struct {
        const char *event;
        enum ir_op op;
    } OPS[] = {{"__add", OP_ADD},   {"__sub", OP_SUB}, {"__mul", OP_MUL},  {"__div", OP_DIV},
               {"__idiv", OP_IDIV}, {"__mod", OP_MOD}, {"__pow", OP_POW},  {"__unm", OP_NEG},
               {"__band", OP_AND},  {"__bor", OP_OR},  {"__bnot", OP_NOT}, {"__bxor", OP_XOR},
               {"__shl", OP_SHL},   {"__shr", OP_SHR}};
    static const char *const REFUSALS[][2] = {
        {"__lt", "'<' or '>' cannot be traced (Lua turns it into true/false); write lt(a, b) or gt(a, b)"},
        {"__le", "'<=' or '>=' cannot be traced (Lua turns it into true/false); write le(a, b) or ge(a, b)"},
        {"__eq", "'==' or '~=' cannot be traced (Lua turns it into true/false); write eq(a, b) or ne(a, b)"},
        {"__concat", "'..' cannot be traced: a traced value is a number, not a string"},
        {"__len", "'#' cannot be traced; sizes are at.len_q, at.len_kv, at.d, ..."},
        {"__call",
         "a traced value is not a function; an input is read as x.name(i, ...) and must be declared with "
         "tensor(...)"},
        {"__newindex", "a traced value has no fields to set"},
    };
    luaL_newmetatable(lua, VALUE_META);
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        set_op(lua, OPS[i].event, OPS[i].op);
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++)
        set_refusal(lua, REFUSALS[i][0], REFUSALS[i][1]);
    lua_pop(lua, 1);
}

/* `what` stands in Lua's own messages. */
static void open_meta(lua_State *lua, const char *name, const char *what, const char *event,
                      lua_CFunction function)
{
    luaL_newmetatable(lua, name);
    lua_pushstring(lua, what);
    lua_setfield(lua, -2, "__name");
    lua_pushcfunction(lua, function);
    lua_setfield(lua, -2, event);
    lua_pop(lua, 1);
}

void trace_open(lua_State *lua)
{
    open_value(lua);
    open_meta(lua, VALUE_META, "traced value", "__index", value_index);
    open_meta(lua, AT_META, "'at'", "__index", at_index);
    open_meta(lua, INPUTS_META, "input", "__index", inputs_index);
    open_meta(lua, TENSOR_META, "tensor", "__call", tensor_call);
    open_meta(lua, TENSOR_META, "tensor", "__index", tensor_field);
}
