/*
 * spec.c: a spec file becomes a struct ir. In: the name and text of a Lua file. Out: the traced, checked
 * IR, or diagnostics with file and line. The Lua state lives inside spec_load only. It is a sandbox: text
 * chunks, the vocabulary and `ipairs`, no writes to globals, a budget of instructions and of memory.
 * Nothing that a Lua callback touches comes from bare malloc, since a Lua error jumps over C code.
 */
#include "kinds.h"
#include "trace.h"

#include <lualib.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_MAX = 64 << 20, BUDGET_STEP = 1000, BUDGET_STEPS = 20000, FILE_BYTES_MAX = 1 << 20 };

struct tracer *tracer_of(lua_State *lua)
{
    struct tracer *t;
    memcpy(&t, lua_getextraspace(lua), sizeof t);
    return t;
}

static void *limited_alloc(void *user, void *block, size_t old_size, size_t new_size)
{
    struct tracer *t = user;
    size_t held = block ? old_size : 0;
    if (new_size == 0) {
        free(block);
        t->memory -= held;
        return NULL;
    }
    if (new_size > held && t->memory - held + new_size > MEMORY_MAX)
        return NULL;
    void *moved = realloc(block, new_size);
    if (moved)
        t->memory = t->memory - held + new_size;
    return moved;
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* File number of a chunk, or -1. */
static int file_of(const struct tracer *t, const char *source)
{
    for (int f = 0; f < FILE_COUNT; f++)
        if (source[0] == '@' && t->file[f].data && strcmp(source + 1, t->file[f].name) == 0)
            return f;
    return -1;
}

/* The innermost frame of the spec, or of the prelude where the spec is not on the stack. */
struct ir_at trace_place(lua_State *lua)
{
    const struct tracer *t = tracer_of(lua);
    struct ir_at prelude = {0, 0};
    lua_Debug frame;
    for (int level = 0; lua_getstack(lua, level, &frame); level++) {
        lua_getinfo(lua, "Sl", &frame);
        int file = file_of(t, frame.source);
        if (file == FILE_SPEC)
            return (struct ir_at){FILE_SPEC, frame.currentline};
        if (file == FILE_PRELUDE && prelude.line == 0)
            prelude = (struct ir_at){FILE_PRELUDE, frame.currentline};
    }
    return prelude;
}

struct ir_at trace_defined_at(lua_State *lua)
{
    lua_Debug info;
    lua_pushvalue(lua, -1);
    lua_getinfo(lua, ">S", &info);
    int file = file_of(tracer_of(lua), info.source);
    return file < 0 ? (struct ir_at){0, 0} : (struct ir_at){(int16_t)file, info.linedefined};
}

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

int trace_message_handler(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    const char *message = lua_tostring(lua, 1);
    struct ir_at at = trace_place(lua);
    if (t->scan_failed) {
        t->scan_failed = false;
        return 1;
    }
    if (at.line == 0)
        at = t->function;
    const struct source_text *file = &t->file[at.line ? at.file : FILE_SPEC];
    diag_add(t->diag, file->name, at.line, "%s",
             message ? without_place(t, message) : "a Lua error without a text");
    return 1;
}

bool trace_pcall(struct tracer *t, int n_args, int n_results)
{
    int handler = lua_gettop(t->lua) - n_args;
    lua_pushcfunction(t->lua, trace_message_handler);
    lua_insert(t->lua, handler);
    int status = lua_pcall(t->lua, n_args, n_results, handler);
    if (status == LUA_ERRMEM)
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "the spec uses more than %d MiB of memory",
                 MEMORY_MAX >> 20);
    lua_remove(t->lua, handler);
    if (status != LUA_OK)
        lua_pop(t->lua, 1); /* the message, recorded above */
    return status == LUA_OK;
}

/* A syntax error: "name:line: text". */
static void report_syntax(struct tracer *t, const struct source_text *file)
{
    const char *message = lua_tostring(t->lua, -1);
    const char *text = without_place(t, message);
    int line =
        text > message + strlen(file->name) ? (int)strtol(message + strlen(file->name) + 1, NULL, 10) : 0;
    if (strstr(message, "attempt to load a binary chunk"))
        diag_add(t->diag, file->name, 0, "is Lua bytecode; a spec is a text file");
    else if (strstr(message, "C stack overflow")) /* of Lua's parser, which does not say where */
        diag_add(t->diag, file->name, 0,
                 "brackets, tables or functions lie more than 200 deep in one another; name the inner ones "
                 "with local");
    else
        diag_add(t->diag, file->name, line, "%s", text);
    lua_pop(t->lua, 1);
}

/* ---- the sandbox ------------------------------------------------------------------------------ */

static void on_hook(lua_State *lua, lua_Debug *event)
{
    struct tracer *t = tracer_of(lua);
    if (event->event != LUA_HOOKCOUNT) {
        scan_call(lua, event);
        return;
    }
    if (--t->budget < 0)
        luaL_error(lua, "the spec runs too long (over %d million instructions); is there an endless loop?",
                   BUDGET_STEP * BUDGET_STEPS / 1000000);
}

static int unknown_name(lua_State *lua)
{
    static const char *const no_library[] = {"os",       "io",      "require", "math",   "string",
                                             "table",    "package", "debug",   "dofile", "load",
                                             "loadfile", "print",   "pairs",   NULL};
    const char *name = lua_tostring(lua, 2);
    for (int i = 0; name && no_library[i]; i++)
        if (strcmp(name, no_library[i]) == 0)
            return luaL_error(
                lua, "unknown name '%s': a spec has no Lua libraries, only the names in specs/README.md%s",
                name, strcmp(name, "math") == 0 ? " (exp, log, tanh, inf, pi, ...)" : "");
    return luaL_error(lua, "unknown name '%s'; specs/README.md lists the names a spec may use",
                      name ? name : "?");
}

static int global_write(lua_State *lua)
{
    const char *name = lua_tostring(lua, 2);
    return luaL_error(lua, "'%s' would be a global; write local %s", name ? name : "?", name ? name : "name");
}

static int vocabulary_ipairs_step(lua_State *lua)
{
    lua_Integer i = luaL_checkinteger(lua, 2) + 1;
    lua_pushinteger(lua, i);
    return lua_geti(lua, 1, i) == LUA_TNIL ? 1 : 2;
}

static int vocabulary_ipairs(lua_State *lua)
{
    luaL_checktype(lua, 1, LUA_TTABLE);
    lua_pushcfunction(lua, vocabulary_ipairs_step);
    lua_pushvalue(lua, 1);
    lua_pushinteger(lua, 0);
    return 3;
}

/* Leaves the vocabulary table on the stack. Reading a name it lacks is an error. */
static void push_vocabulary(lua_State *lua)
{
    lua_newtable(lua);
    trace_vocabulary(lua, lua_gettop(lua));
    lua_pushcfunction(lua, vocabulary_ipairs);
    lua_setfield(lua, -2, "ipairs");
    lua_newtable(lua);
    lua_pushcfunction(lua, unknown_name);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
}

/* An empty table over the vocabulary at the top of the stack, closed for writing. */
static void push_closed_environment(lua_State *lua)
{
    lua_newtable(lua);
    lua_newtable(lua);
    lua_pushvalue(lua, -3);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, global_write);
    lua_setfield(lua, -2, "__newindex");
    lua_pushliteral(lua, "locked");
    lua_setfield(lua, -2, "__metatable");
    lua_setmetatable(lua, -2);
}

/* Run a chunk with the table on top of the stack as its globals; pops it. */
static bool run_chunk(struct tracer *t, const struct source_text *file, int n_results)
{
    char chunk_name[300];
    size_t mark = file->size >= 3 && memcmp(file->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of UTF-8 */
    snprintf(chunk_name, sizeof chunk_name, "@%s", file->name);
    if (luaL_loadbufferx(t->lua, file->data + mark, file->size - mark, chunk_name, "t") != LUA_OK) {
        report_syntax(t, file);
        lua_pop(t->lua, 1);
        return false;
    }
    lua_insert(t->lua, -2);
    lua_setupvalue(t->lua, -2, 1);
    return trace_pcall(t, 0, n_results);
}

/* ---- load, trace, check ----------------------------------------------------------------------- */

/* The constructor's table is on top of the stack: {kind = ..., slots = table}, made by trace.c. */
static void trace_result(struct tracer *t)
{
    lua_State *lua = t->lua;
    const char *file = t->file[FILE_SPEC].name;
    if (!lua_istable(lua, -1) || lua_getfield(lua, -1, "lathe.kind") != LUA_TNUMBER) {
        diag_add(
            t->diag, file, 0,
            "a spec returns one constructor call: return attention { ... }, return rowwise { ... } or return "
            "elementwise { ... }");
        return;
    }
    lua_Integer kind = lua_tointeger(lua, -1);
    t->ir->kind = kind >= 0 && kind < KIND_COUNT ? (enum kind)kind : KIND_ATTENTION;
    lua_pop(lua, 1);
    lua_getfield(lua, -1, "lathe.line");
    t->constructor_line = (int)lua_tointeger(lua, -1);
    lua_pop(lua, 1);
    lua_getfield(lua, -1, "lathe.slots");
    lua_sethook(lua, on_hook, LUA_MASKCALL | LUA_MASKCOUNT, BUDGET_STEP);
    kinds[t->ir->kind].trace(t, lua_gettop(lua));
}

static int protected_load(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    lua_sethook(lua, on_hook, LUA_MASKCOUNT, BUDGET_STEP);
    trace_open(lua);
    push_vocabulary(lua);
    lua_pushvalue(lua, -1);
    if (!run_chunk(t, &t->file[FILE_PRELUDE], 0))
        return 0;
    lua_getfield(lua, -1, "softmax");
    lua_setfield(lua, LUA_REGISTRYINDEX, "lathe.softmax");
    push_closed_environment(lua);
    if (run_chunk(t, &t->file[FILE_SPEC], 1))
        trace_result(t);
    return 0;
}

static void run_tracer(struct tracer *t)
{
    lua_State *lua = lua_newstate(limited_alloc, t);
    if (!lua) {
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "out of memory");
        return;
    }
    t->lua = lua;
    memcpy(lua_getextraspace(lua), &t, sizeof t);
    lua_pushcfunction(lua, protected_load);
    int status = lua_pcall(lua, 0, 0, 0);
    if (status != LUA_OK && t->diag->n == 0) {
        const char *message = lua_tostring(lua, -1);
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "%s", message ? message : "out of memory");
    }
    lua_close(lua);
}

/* "specs/causal.lua" -> "causal", fit for an identifier. */
static void set_name(struct ir *ir, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *from = slash ? slash + 1 : path;
    size_t n = 0;
    for (; from[n] && from[n] != '.' && n + 1 < sizeof ir->name; n++) {
        char c = from[n];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        ir->name[n] = ok ? c : '_';
    }
    if (n == 0 || (ir->name[0] >= '0' && ir->name[0] <= '9'))
        snprintf(ir->name, sizeof ir->name, "spec");
}

static char *read_file(const char *path, size_t *size, struct diag *diag)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        diag_add(diag, path, 0, "cannot be opened");
        return NULL;
    }
    char *data = malloc(FILE_BYTES_MAX + 1);
    *size = data ? fread(data, 1, FILE_BYTES_MAX + 1, f) : 0;
    bool bad = !data || ferror(f) != 0;
    bool large = *size > FILE_BYTES_MAX;
    fclose(f);
    if (bad || large) {
        diag_add(diag, path, 0, large ? "is larger than 1 MiB, which no spec is" : "cannot be read");
        free(data);
        return NULL;
    }
    return data;
}

static struct ir *load_text(const char *name, const char *text, size_t size, struct diag *diag)
{
    const struct embedded *prelude = embedded_find("specs/prelude.lua");
    struct tracer t = {.ir = ir_new(), .diag = diag, .budget = BUDGET_STEPS};
    if (!t.ir || !prelude) {
        diag_add(diag, name, 0, prelude ? "out of memory" : "the prelude is missing from this build");
        ir_free(t.ir);
        return NULL;
    }
    t.file[FILE_PRELUDE] = (struct source_text){"prelude.lua", prelude->data, prelude->size};
    t.file[FILE_SPEC] = (struct source_text){"", text, size};
    snprintf(t.file[FILE_SPEC].name, sizeof t.file[FILE_SPEC].name, "%s", name);
    t.ir->n_files = FILE_COUNT;
    for (int f = 0; f < FILE_COUNT; f++)
        memcpy(t.ir->file[f], t.file[f].name, sizeof t.ir->file[f]);
    set_name(t.ir, name);
    int before = diag->n;
    run_tracer(&t);
    const bool good = !t.ir->failed && diag->n == before && check(t.ir, diag);
    if (t.ir->failed) { /* what came after the last operation is no mistake of the spec */
        diag->n = before;
        if (t.ir->n_nodes < IR_MAX_NODES)
            diag_add(diag, name, 0, "out of memory");
        else
            diag_add(diag, name, 0, "has more than %d operations", IR_MAX_NODES);
    }
    if (good)
        return t.ir;
    ir_free(t.ir);
    return NULL;
}

struct ir *spec_load(const char *name, const char *text, size_t size, struct diag *diag)
{
    if (text)
        return load_text(name, text, size, diag);
    char shipped[300];
    snprintf(shipped, sizeof shipped, "specs/%s.lua", name);
    const struct embedded *e = strchr(name, '/') || strchr(name, '.') ? NULL : embedded_find(shipped);
    if (e)
        return load_text(shipped, e->data, e->size, diag);
    char *data = read_file(name, &size, diag);
    struct ir *ir = data ? load_text(name, data, size, diag) : NULL;
    free(data);
    return ir;
}
