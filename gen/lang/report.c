/*
 * report.c: Lua errors become mistakes of the spec. In: a function to be called, or the message of Lua's
 * parser. Out: diagnostics with the file and line of the text, and what to write instead (advice.c).
 */
#include "gen/lang/trace.h"
#include "gen/base/diag.h"
#include "runtime/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lua puts "name:line: " in front; the place is recorded apart. */
static const char *without_place(const struct tracer *t, const char *message)
{
    for (int f = 0; f < FILE_COUNT; f++) {
        size_t n = strlen(t->file[f].name);
        if (n == 0 || strncmp(message, t->file[f].name, n) != 0 || message[n] != ':')
            continue;
        const char *p = message + n + 1;
        while (*p >= '0' && *p <= '9')
            p++;
        if (p[0] == ':' && p[1] == ' ')
            return p + 2;
    }
    return message;
}

/* Records the Lua error on top of the stack. */
static int message_handler(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    const char *message = lua_tostring(lua, 1);
    struct ir_at at = trace_place(lua);
    if (t->is_reported) {
        t->is_reported = false;
        return 1;
    }
    if (at.line == 0 || (at.file == FILE_PRELUDE && t->function.line > 0))
        at = t->function;
    if (at.file == FILE_PRELUDE && t->constructor_line > 0)
        at = (struct ir_at){FILE_SPEC, t->constructor_line};
    const struct source_text *file = &t->file[at.line ? at.file : FILE_SPEC];
    char text[512] = "a Lua error without a text";
    if (message)
        advice_running(lua, without_place(t, message), text, sizeof text);
    diag_add(t->diag, file->name, at.line, "%s", text);
    return 1;
}

bool trace_pcall(struct tracer *t, int n_args, int n_results)
{
    int handler = lua_gettop(t->lua) - n_args;
    lua_pushcfunction(t->lua, message_handler);
    lua_insert(t->lua, handler);
    int status = lua_pcall(t->lua, n_args, n_results, handler);
    if (status == LUA_ERRMEM)
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "%s", trace_memory_reason(t));
    lua_remove(t->lua, handler);
    if (status != LUA_OK)
        lua_pop(t->lua, 1); /* the message, recorded above */
    return status == LUA_OK;
}

void trace_report_syntax(struct tracer *t, const struct source_text *file, int status)
{
    const char *message = lua_tostring(t->lua, -1);
    const char *text = without_place(t, message);
    int line =
        text > message + strlen(file->name) ? (int)strtol(message + strlen(file->name) + 1, NULL, 10) : 0;
    if (status == LUA_ERRMEM)
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "%s", trace_memory_reason(t));
    else if (strstr(message, "attempt to load a binary chunk"))
        diag_add(t->diag, file->name, 0, "is Lua bytecode; a spec is a text file");
    else if (strstr(message, "C stack overflow")) /* of Lua's parser, which does not say where */
        diag_add(t->diag, file->name, 0,
                 "brackets, tables or functions lie more than 200 deep in one another; name the inner ones "
                 "with local");
    else {
        char advised[512];
        advice_syntax(file, line, text, advised, sizeof advised);
        diag_add(t->diag, file->name, line, "%s", advised);
    }
    lua_pop(t->lua, 1);
}

void slot_mistake(struct tracer *t, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    lathe__format(text, sizeof text, fmt, args);
    va_end(args);
    diag_add(t->diag, t->file[FILE_SPEC].name, t->constructor_line, "%s", text);
}
