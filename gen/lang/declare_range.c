/*
 * declare_range.c: the options `range` and `sorted` of an input. In: the options' Lua table, then,
 * once all dims of the spec have names, those dims. Out: struct input_range, or a Lua error or a mistake that
 * says what an end may be.
 */
#include "gen/lang/slots.h"
#include "gen/base/diag.h"
#include "gen/ir/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse_end(lua_State *lua, const struct input *in)
{
    return luaL_error(
        lua,
        "input '%s': option 'range' is { low, high }, low <= value < high; each is a whole number, "
        "a dim, or both: { 0, \"kv\" }, { -1, \"kv + 1\" }",
        in->name);
}

/* "kv", "kv + 1", "kv-1" */
static bool parse_end(const char *text, struct range_end *out)
{
    size_t size = 0;
    text += strspn(text, " ");
    while (text[size] && text[size] != ' ' && text[size] != '+' && text[size] != '-')
        size++;
    if (size == 0 || size >= sizeof out->dim)
        return false;
    memcpy(out->dim, text, size);
    out->dim[size] = 0;
    text += size + strspn(text + size, " ");
    const bool minus = *text == '-';
    if (*text && *text != '+' && !minus)
        return false;
    if (*text) {
        char *end = NULL;
        text += 1 + strspn(text + 1, " ");
        if (!(*text >= '0' && *text <= '9') || strspn(text, "0123456789") > 10)
            return false;
        out->number = strtoll(text, &end, 10) * (minus ? -1 : 1);
        text = end;
    }
    return text[strspn(text, " ")] == 0 && is_identifier(out->dim);
}

/* The end on top of the stack, which is popped. */
static void take_end(lua_State *lua, const struct input *in, struct range_end *out)
{
    *out = (struct range_end){.number = 0};
    if (lua_type(lua, -1) == LUA_TNUMBER) {
        int whole = 0;
        out->number = lua_tointegerx(lua, -1, &whole);
        if (!whole || out->number < INT32_MIN || out->number > (int64_t)INT32_MAX + 1)
            refuse_end(lua, in);
    } else if (lua_type(lua, -1) != LUA_TSTRING || !parse_end(lua_tostring(lua, -1), out)) {
        refuse_end(lua, in);
    }
    lua_pop(lua, 1);
}

/* What is certainly wrong, whatever the sizes. */
static void check_ends(lua_State *lua, const struct input *in)
{
    const struct input_range *r = &in->range;
    if (!r->low.dim[0] && !r->high.dim[0] && r->low.number >= r->high.number)
        luaL_error(lua, "input '%s': option 'range' has no value: %I <= value < %I", in->name,
                   (LUAI_UACINT)r->low.number, (LUAI_UACINT)r->high.number);
    if (in->dtype == LATHE_U8 && (r->low.number < 0 || (!r->high.dim[0] && r->high.number > UINT8_MAX + 1)))
        luaL_error(lua, "input '%s': option 'range' is within 0 <= value < 256 for a u8", in->name);
}

/* Of floats, from the value on top of the stack: both ends are values, too. */
static void take_real_range(lua_State *lua, struct input *in)
{
    double end[2] = {0, 0};
    if (lua_type(lua, -1) == LUA_TSTRING && strcmp(lua_tostring(lua, -1), "unit") == 0 && !in->is_scalar) {
        in->range = (struct input_range){.real = true, .least = -1, .most = 1, .unit = true};
        return;
    }
    bool numbers = lua_istable(lua, -1) && lua_rawlen(lua, -1) == 2;
    for (int i = 0; numbers && i < 2; i++) {
        lua_rawgeti(lua, -1, i + 1);
        numbers = lua_type(lua, -1) == LUA_TNUMBER;
        end[i] = lua_tonumber(lua, -1);
        lua_pop(lua, 1);
    }
    if (!numbers || !(end[0] < end[1]))
        luaL_error(
            lua,
            "input '%s': option 'range' of floats is { least, most }, two numbers of which the first is "
            "smaller: { -inf, 0.0 }, { 0.0, 2.0 }; of a tensor also \"unit\", vectors of length 1 at most",
            in->name);
    in->range.real = true;
    in->range.least = end[0];
    in->range.most = end[1];
}

void declare_range(lua_State *lua, struct input *in, int table)
{
    const int type = lua_getfield(lua, table, "range");
    const int sorted = lua_getfield(lua, table, "sorted");
    if (sorted == LUA_TSTRING && lua_rawlen(lua, -1) > 0 && lua_rawlen(lua, -1) < NAME_MAX_BYTES)
        snprintf(in->range.sorted_by, sizeof in->range.sorted_by, "%s", lua_tostring(lua, -1));
    else if (sorted != LUA_TNIL && sorted != LUA_TBOOLEAN)
        luaL_error(lua,
                   "input '%s': option 'sorted' is true, false, or the name of the input that says how many "
                   "values of a line are",
                   in->name);
    in->range.sorted = lua_toboolean(lua, -1) != 0;
    lua_pop(lua, 1);
    const bool integer = in->dtype == LATHE_I32 || in->dtype == LATHE_U8;
    if (in->range.sorted && !integer)
        luaL_error(lua, "input '%s': option 'sorted' is of integers, \"i32\" and \"u8\"", in->name);
    if (in->range.sorted && in->is_scalar)
        luaL_error(lua, "input '%s': option 'sorted' is of tensors", in->name);
    if (type != LUA_TNIL && !integer) {
        take_real_range(lua, in);
    } else if (type != LUA_TNIL) {
        if (type != LUA_TTABLE || lua_rawlen(lua, -1) != 2)
            refuse_end(lua, in);
        lua_rawgeti(lua, -1, 1);
        take_end(lua, in, &in->range.low);
        lua_rawgeti(lua, -1, 2);
        take_end(lua, in, &in->range.high);
        in->range.declared = true;
        check_ends(lua, in);
    }
    lua_pop(lua, 1);
}

static void list_dims(const struct ir *ir, char *out, size_t size)
{
    static const char *const own[KIND_COUNT] = {"b h h_kv q kv d d_v", "rows n", "", "b h h_k t d d_v seqs"};
    size_t used = (size_t)snprintf(out, size, "%s", own[ir->kind]);
    for (int k = 0; k < ir->n_free && used < size; k++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", ir->free_name[k]);
}

static void resolve_end(struct tracer *t, const struct input *in, struct range_end *end)
{
    const int sym = end->dim[0] ? dim_find(t->ir, end->dim) : SYM_ONE;
    char known[512];
    end->sym = (uint8_t)(sym < 0 ? SYM_ONE : sym);
    if (sym >= 0)
        return;
    list_dims(t->ir, known, sizeof known);
    diag_add(t->diag, t->file[FILE_SPEC].name, in->line,
             "input '%s': its range names '%s', which is no dim here (%s)", in->name, end->dim, known);
}

/* The input that says how many values of a line are sorted has all dims but the last. */
static void resolve_sorted(struct tracer *t, const struct input *in)
{
    const struct ir *ir = t->ir;
    const struct input *many = NULL;
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, in->range.sorted_by) == 0)
            many = &ir->input[i];
    bool fits = many && many->dtype == LATHE_I32 && !many->is_scalar && many->n_dims == in->n_dims - 1;
    for (int d = 0; fits && d < many->n_dims; d++)
        fits = many->dim[d].sym == in->dim[d].sym && many->dim[d].literal == in->dim[d].literal;
    if (!fits)
        diag_add(t->diag, t->file[FILE_SPEC].name, in->line,
                 "input '%s': sorted by '%s', which is no i32 input of its dims without the last", in->name,
                 in->range.sorted_by);
}

void resolve_ranges(struct tracer *t)
{
    for (int i = 0; i < t->ir->n_inputs; i++) {
        struct input *in = &t->ir->input[i];
        if (in->range.sorted_by[0])
            resolve_sorted(t, in);
        if (!in->range.declared)
            continue;
        resolve_end(t, in, &in->range.low);
        resolve_end(t, in, &in->range.high);
    }
}
