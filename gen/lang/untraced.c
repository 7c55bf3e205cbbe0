/*
 * untraced.c: finds Lua that cannot be traced. Lua decides `if`, `and`, `or`, `not`, `==` on traced values by
 * itself and silently takes them for true, so a Lua function that runs while tracing must have no instruction
 * that does so. A table, too, silently finds nothing under a traced value: such keys are seen as they are
 * used. In: what a hook is told, and the instructions of bytecode.c. Out: mistakes, and a Lua error. The text
 * serves the words of a message alone.
 */
#include "gen/lang/trace.h"
#include "gen/base/diag.h"

#include <ctype.h>
#include <string.h>

static const struct untraced_word {
    const char *word;
    const char *advice;
} WORDS[] = {
    {"if", "write where(c, a, b)"},
    {"and", "write a & b"},
    {"or", "write a | b"},
    {"not", "write ~a"},
    {"==", "write eq(a, b)"},
    {"~=", "write ne(a, b)"},
    {"while", "decide it outside of it"},
    {"until", "decide it outside of it"},
};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

/* ---- words of a line ----------------------------------------------------------------------------- */

/* Where a line of the text begins; a line ends as Lua counts: with CR, LF, or both in any order. */
static const char *line_start(const struct source_text *file, int line)
{
    const char *at = file->data;
    const char *end = at + file->size;
    while (line > 1 && at < end) {
        const char c = *at++;
        if (c != '\n' && c != '\r')
            continue;
        if (at < end && (*at == '\n' || *at == '\r') && *at != c)
            at++;
        line--;
    }
    return at;
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

void source_line(const struct source_text *file, int line, char *out, size_t size)
{
    const char *from = line_start(file, line);
    const char *to = line_start(file, line + 1);
    char quote = 0;
    size_t n = 0;
    for (const char *at = from; at < to && n + 1 < size; at++) {
        const bool in_string = quote != 0;
        if (!in_string && at + 1 < to && at[0] == '-' && at[1] == '-')
            break;
        if (in_string && *at == '\\' && at + 1 < to)
            at++;
        else if (in_string ? *at == quote : *at == '"' || *at == '\'')
            quote = in_string ? 0 : *at;
        out[n++] = in_string || quote ? ' ' : *at;
    }
    out[n] = 0;
}

/* Does the word stand in the text, as a whole? */
static bool has_word(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if (!is_letter(word[0]) || ((at == text || !is_letter(at[-1])) && !is_letter(at[strlen(word)])))
            return true;
    return false;
}

static void say_untraced(struct tracer *t, const struct source_text *file, int line,
                         const struct untraced_word *w)
{
    static const char rest[] = "cannot be traced: a traced function is a straight-line formula and Lua would "
                               "silently take a traced value as true";
    if (w)
        diag_add(t->diag, file->name, line, "'%s' %s; %s", w->word, rest, w->advice);
    else
        diag_add(
            t->diag, file->name, line,
            "a test (if, and, or, not, ==, ~=, while, until) %s; write where(c, a, b), a & b, a | b, ~a, "
            "eq(a, b), ne(a, b)",
            rest);
}

/* One mistake for each word of the line, or one for the instruction where the line has none. */
static void report_test(struct tracer *t, const struct source_text *file, int line)
{
    char text[1024];
    bool found = false;
    source_line(file, line, text, sizeof text);
    for (int w = 0; w < N_WORDS; w++) {
        if (!has_word(text, WORDS[w].word))
            continue;
        say_untraced(t, file, line, &WORDS[w]);
        found = true;
    }
    if (!found)
        say_untraced(t, file, line, NULL);
}

/* ---- functions ----------------------------------------------------------------------------------- */

enum { DEPTH_MAX = 1000 };

void untraced_call(lua_State *lua, lua_Debug *call)
{
    struct tracer *t = tracer_of(lua);
    lua_Debug deepest;
    if (lua_getstack(lua, DEPTH_MAX, &deepest))
        luaL_error(lua, "functions call each other more than %d deep; combine fewer of them", DEPTH_MAX);
    lua_getinfo(lua, "S", call);
    if (call->what[0] == 'C')
        return;
    const int file = trace_file(t, call->linedefined);
    if (file < 0)
        luaL_error(lua, "this function's instructions are not known, so it cannot be traced");
    struct instruction *entry = &t->chunk[file].slot[call->linedefined - t->chunk[file].first];
    const int n = (int)entry->code;
    bool bad = false;
    bool keys = false;
    int table;
    int key;
    for (int i = 1; i <= n && !entry->is_plain; i++) {
        keys = keys || bytecode_keyed(entry[i].code, &table, &key);
        if (!bytecode_is_test(entry[i].code))
            continue;
        report_test(t, &t->file[file], entry[i].line);
        bad = true;
    }
    entry->is_plain = !bad && !keys;
    t->watch_keys = t->watch_keys || keys;
    if (!bad)
        return;
    t->is_reported = true; /* the message handler adds nothing */
    luaL_error(lua, "cannot be traced");
}

void untraced_key(lua_State *lua, lua_Debug *running)
{
    const struct tracer *t = tracer_of(lua);
    int table;
    int key;
    lua_getinfo(lua, "l", running);
    const int file = trace_file(t, running->currentline);
    if (file < 0)
        return;
    const struct chunk *chunk = &t->chunk[file];
    if (!bytecode_keyed(chunk->slot[running->currentline - chunk->first].code, &table, &key))
        return;
    const int top = lua_gettop(lua);
    if (lua_getlocal(lua, running, table + 1) && lua_getlocal(lua, running, key + 1) &&
        lua_istable(lua, -2) && is_traced(lua, -1))
        luaL_error(lua,
                   "a traced value cannot be the key of a table, which would find nothing there; choose with "
                   "where(c, a, b), or read an input: x.name(i)");
    lua_settop(lua, top);
}
