/*
 * advice.c: what to write instead, behind messages that are Lua's own. In: a message, the line of the text or
 * the functions that run. Out: the message with its advice.
 */
#include "gen/lang/trace.h"

#include <stdio.h>
#include <string.h>

/* What other languages write on a line that Lua cannot read. */
static const char *other_language(const char *line)
{
    static const char *const SIGNS[][2] = {
        {"&&", "logic is a & b"},
        {"||", "logic is a | b"},
        {"!=", "write ne(a, b)"},
        {"**", "a power is a ^ b"},
        {"+=", "write s = s + a"},
        {"-=", "write s = s - a"},
        {"*=", "write s = s * a"},
        {"/=", "write s = s / a"},
        {"=>", "a function is function(s, at) return ... end"},
        {"lambda ", "a function is function(s, at) return ... end"},
        {"?", "a choice is where(c, a, b)"},
        {"!", "logic is ~a"},
    };
    for (size_t i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++)
        if (strstr(line, SIGNS[i][0]))
            return SIGNS[i][1];
    return NULL;
}

/* What Lua's parser met tells what was forgotten; NULL: it does not. */
static const char *forgotten(const char *message)
{
    if (strstr(message, "near '#'"))
        return "a comment begins with --";
    if (strstr(message, "'}' expected"))
        return "fields of a table have commas between them: is one missing ahead of it?";
    if (strstr(message, "near '}'"))
        return "is the 'end' of a function missing ahead of it?";
    return NULL;
}

void advice_syntax(const struct source_text *file, int line, const char *message, char *out, size_t size)
{
    char text[1024];
    source_line(file, line, text, sizeof text);
    const char *advice = other_language(text);
    if (!advice)
        advice = forgotten(message);
    snprintf(out, size, "%s%s%s", message, advice ? "; " : "", advice ? advice : "");
}

/* The function of the prelude at that line, which is left on the stack; NULL, and nothing: none that has a
 * name. */
static const char *find_prelude_function(lua_State *lua, int line)
{
    const struct tracer *t = tracer_of(lua);
    const struct chunk *chunk = &t->chunk[FILE_PRELUDE];
    lua_getfield(lua, LUA_REGISTRYINDEX, "lathe.vocabulary");
    for (lua_pushnil(lua); lua_next(lua, -2); lua_pop(lua, 1)) {
        if (!lua_isfunction(lua, -1) || lua_iscfunction(lua, -1))
            continue;
        lua_Debug info;
        lua_pushvalue(lua, -1);
        lua_getinfo(lua, ">S", &info);
        if (chunk->slot[info.linedefined - chunk->first].line > line || info.lastlinedefined < line)
            continue;
        const char *name = lua_tostring(lua, -2);
        lua_insert(lua, -3);
        lua_pop(lua, 2); /* the name stays in the vocabulary */
        return name;
    }
    lua_pop(lua, 1);
    return NULL;
}

/* A function of the prelude that met a nil: an argument that it was not given. */
static bool advise_call(lua_State *lua, int line, const char *message, char *out, size_t size)
{
    const char *name = find_prelude_function(lua, line);
    if (!name)
        return false;
    struct {
        char text[120];
        size_t n;
    } takes = {"", 0};
    const char *first = lua_getlocal(lua, NULL, 1);
    const char *parameter = first;
    for (int i = 2; parameter && takes.n < sizeof takes.text; parameter = lua_getlocal(lua, NULL, i++))
        takes.n += (size_t)snprintf(takes.text + takes.n, sizeof takes.text - takes.n, "%s%s",
                                    takes.n ? ", " : "", parameter);
    lua_pop(lua, 1);
    const bool is_slot = first && (strcmp(first, "at") == 0 || strcmp(first, "s") == 0);
    snprintf(out, size, "%s takes (%s): is one of them missing? (%s)%s%s%s", name, takes.text, message,
             is_slot ? " A slot takes the function itself: " : "", is_slot ? name : "",
             is_slot ? ", without parentheses" : "");
    return true;
}

/* The line of the prelude that runs, or 0. */
static int prelude_line(lua_State *lua)
{
    const struct tracer *t = tracer_of(lua);
    lua_Debug frame;
    for (int level = 0; lua_getstack(lua, level, &frame); level++) {
        lua_getinfo(lua, "l", &frame);
        const int file = trace_file(t, frame.currentline);
        if (file >= 0)
            return file == FILE_PRELUDE ? t->chunk[file].slot[frame.currentline - t->chunk[file].first].line
                                        : 0;
    }
    return 0;
}

enum { RUNNING = 1 }; /* the level of the function that met a mistake: 0 is the handler */

/* Does the message name a parameter of the function that runs? */
static bool names_parameter(lua_State *lua, const char *message)
{
    lua_Debug own;
    bool found = false;
    if (!lua_getstack(lua, RUNNING, &own) || !lua_getinfo(lua, "fu", &own))
        return false;
    for (int i = 1; i <= own.nparams && !found; i++) {
        char quoted[80];
        snprintf(quoted, sizeof quoted, "(local '%s')", lua_getlocal(lua, NULL, i));
        found = strstr(message, quoted) != NULL;
    }
    lua_pop(lua, 1);
    return found;
}

/* Is it another function of the spec that called this one? Of a tail call nobody knows. */
static bool called_by_spec(lua_State *lua)
{
    lua_Debug own;
    lua_Debug caller;
    return lua_getstack(lua, RUNNING, &own) && lua_getinfo(lua, "t", &own) && !own.istailcall &&
           lua_getstack(lua, RUNNING + 1, &caller) && lua_getinfo(lua, "l", &caller) &&
           trace_file(tracer_of(lua), caller.currentline) == FILE_SPEC;
}

void advice_running(lua_State *lua, const char *message, char *out, size_t size)
{
    const int line = prelude_line(lua);
    const bool is_nil = strncmp(message, "attempt to ", 11) == 0 && strstr(message, " nil value");
    if (is_nil && line > 0 && advise_call(lua, line, message, out, size))
        return;
    const char *advice = "";
    if (is_nil && names_parameter(lua, message))
        advice =
            called_by_spec(lua)
                ? ": this function is called without it"
                : ": this function is called without it; elementwise_weights, activation and gated give "
                  "their function values alone: what depends on at or on inputs belongs to a slot that is "
                  "called with them, as score_mod";
    if (strncmp(message, "bad 'for'", 9) == 0 || strncmp(message, "'for' ", 6) == 0)
        advice = "; a loop runs over plain numbers, which are known while the function is traced";
    snprintf(out, size, "%s%s", message, advice);
}
