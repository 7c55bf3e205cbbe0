/*
 * param.c: `param(name, default)`: a number that whoever loads a spec may set. In: what the caller gives.
 * Out: a plain number of Lua, folded like any constant; ir->param remembers it, for people and for messages.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gen/base/diag.h"
#include "gen/ir/spec.h"
#include "gen/lang/load.h"
#include "gen/lang/slots.h"
#include "runtime/base/base.h"

static struct spec_param *given_param(const struct tracer *t, const char *name)
{
    for (int i = 0; t->params && i < t->params->n; i++)
        if (strcmp(t->params->item[i].name, name) == 0)
            return &t->params->item[i];
    return NULL;
}

static const struct ir_param *known_param(const struct ir *ir, const char *name)
{
    for (int i = 0; i < ir->n_params; i++)
        if (strcmp(ir->param[i].name, name) == 0)
            return &ir->param[i];
    return NULL;
}

static void check_call(lua_State *lua, const struct tracer *t, const char *name)
{
    if (t->slot != SLOT_NONE)
        luaL_error(lua,
                   "param stands outside of traced functions: local %s = param(\"%s\", ...) in front of "
                   "the constructor",
                   name, name);
    if (!is_identifier(name))
        luaL_error(lua, "param(name, default): the name is a word of letters, digits and _, got '%s'", name);
    if (lua_type(lua, 2) != LUA_TNUMBER || !isfinite(lua_tonumber(lua, 2)))
        luaL_error(lua, "param(\"%s\", default): the default is a finite number, got %s", name,
                   luaL_tolstring(lua, 2, NULL));
    if (known_param(t->ir, name))
        luaL_error(lua, "parameter '%s' is declared twice; keep it in a local", name);
    if (t->ir->n_params == MAX_PARAMETERS)
        luaL_error(lua, "a spec has at most %d parameters", MAX_PARAMETERS);
}

/* What was given, in the type of the default: an integer stays one. */
static double chosen_value(lua_State *lua, struct spec_param *given, const char *name, bool is_integer)
{
    if (!given)
        return lua_tonumber(lua, 2);
    given->used = true;
    char shown[40];
    lathe__print(shown, sizeof shown, "%.14g", given->value);
    if (!isfinite(given->value))
        luaL_error(lua, "parameter '%s' is a finite number, given %s", name, shown);
    if (is_integer && (given->value != floor(given->value) || fabs(given->value) > 9007199254740992.0))
        luaL_error(lua, "parameter '%s' is a whole number, given %s", name, shown);
    return given->value;
}

int construct_param(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    const char *name = lua_type(lua, 1) == LUA_TSTRING ? lua_tostring(lua, 1) : "";
    check_call(lua, t, name);
    const bool is_integer = lua_isinteger(lua, 2) != 0;
    struct ir_param *out = &t->ir->param[t->ir->n_params];
    *out = (struct ir_param){.is_integer = is_integer,
                             .line = trace_place(lua).line,
                             .usual = lua_tonumber(lua, 2),
                             .value = chosen_value(lua, given_param(t, name), name, is_integer)};
    snprintf(out->name, sizeof out->name, "%s", name);
    t->ir->n_params++;
    if (is_integer)
        lua_pushinteger(lua, (lua_Integer)out->value);
    else
        lua_pushnumber(lua, out->value);
    return 1;
}

void lang_check_params(const struct tracer *t)
{
    const struct ir *ir = t->ir;
    for (int i = 0; t->params && !t->params->may_be_unknown && i < t->params->n; i++) {
        const struct spec_param *p = &t->params->item[i];
        struct nearest nearest = {.word = p->name};
        struct phrase known = {{0}, 0};
        if (p->used)
            continue;
        for (int k = 0; k < ir->n_params; k++) {
            lathe__nearest_try(&nearest, ir->param[k].name);
            lathe__say(&known, "%s%s", k ? ", " : "it has ", ir->param[k].name);
        }
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "parameter '%s': this spec has %s%s%s", p->name,
                 ir->n_params ? "none of that name; "
                              : "no parameters; local W = param(\"W\", 256) makes one",
                 ir->n_params ? known.text : "", lathe__nearest_text(&nearest));
    }
}
