/*
 * spec.c: Lua runs the prelude, then a spec, and traces its functions. In: the text. Out: struct ir with what
 * the spec says, or diagnostics. The Lua state, a sandbox (sandbox.c), lives inside trace_spec only.
 * Nothing that a Lua callback touches comes from bare malloc, since a Lua error jumps over C code.
 */
#include "gen/lang/trace.h"
#include "gen/base/diag.h"
#include "gen/base/embedded.h"
#include "gen/ir/kind.h"
#include "gen/lang/load.h"

#include <stdio.h>
#include <string.h>

/* Run a chunk with the table on top of the stack as its globals; pops it. */
static bool run_chunk(struct tracer *t, int which, int n_results)
{
    const struct source_text *file = &t->file[which];
    char chunk_name[sizeof file->name + 2];
    size_t mark = file->size >= 3 && memcmp(file->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of UTF-8 */
    snprintf(chunk_name, sizeof chunk_name, "@%s", file->name);
    const int status = luaL_loadbufferx(t->lua, file->data + mark, file->size - mark, chunk_name, "t");
    if (status != LUA_OK) {
        trace_report_syntax(t, file, status);
        lua_pop(t->lua, 1);
        return false;
    }
    const struct chunk *before = which > 0 ? &t->chunk[which - 1] : NULL;
    bytecode_number(t->lua, &t->chunk[which], before ? before->first + before->n : 1, chunk_name);
    lua_insert(t->lua, -2);
    lua_setupvalue(t->lua, -2, 1);
    return trace_pcall(t, 0, n_results);
}

/* The constructor's table is on top of the stack: {kind = ..., slots = table}, made by values.c. */
static void trace_result(struct tracer *t)
{
    lua_State *lua = t->lua;
    const char *file = t->file[FILE_SPEC].name;
    if (!lua_istable(lua, -1) || lua_getfield(lua, -1, "lathe.kind") != LUA_TNUMBER) {
        diag_add(
            t->diag, file, 0,
            "a spec returns one constructor call: return attention { ... }, return linear_attention { ... }, "
            "return rowwise { ... } or return elementwise { ... }");
        return;
    }
    lua_Integer kind = lua_tointeger(lua, -1);
    t->ir->kind = kind >= 0 && kind < KIND_COUNT ? (enum kind)kind : KIND_ATTENTION;
    lua_pop(lua, 1);
    lua_getfield(lua, -1, "lathe.line");
    t->constructor_line = (int)lua_tointeger(lua, -1);
    lua_pop(lua, 1);
    lua_getfield(lua, -1, "lathe.slots");
    sandbox_watch(t);
    kinds[t->ir->kind].trace(t, lua_gettop(lua));
    lang_check_params(t);
    if (t->diag->n == 0) /* else dims may be missing for another reason */
        resolve_ranges(t);
}

static int protected_load(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    sandbox_open(lua);
    lua_pushvalue(lua, -1);
    if (!run_chunk(t, FILE_PRELUDE, 0))
        return 0;
    lua_getfield(lua, -1, "softmax");
    lua_setfield(lua, LUA_REGISTRYINDEX, "lathe.softmax");
    sandbox_close(lua);
    if (run_chunk(t, FILE_SPEC, 1))
        trace_result(t);
    return 0;
}

static void run_tracer(struct tracer *t)
{
    lua_State *lua = sandbox_new(t);
    if (!lua) {
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "out of memory");
        return;
    }
    lua_pushcfunction(lua, protected_load);
    int status = lua_pcall(lua, 0, 0, 0);
    if (status == LUA_ERRMEM && t->diag->n == 0)
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "%s", trace_memory_reason(t));
    else if (status != LUA_OK && t->diag->n == 0)
        diag_add(t->diag, t->file[FILE_SPEC].name, 0, "%s", lua_tostring(lua, -1));
    lua_close(lua);
}

void trace_spec(struct ir *ir, const char *name, const char *text, size_t size, struct spec_params *params,
                struct diag *diag)
{
    const struct embedded *prelude = embedded_find("specs/prelude.lua");
    struct tracer t = {.ir = ir, .diag = diag, .params = params};
    if (!prelude) {
        diag_add(diag, name, 0, "the prelude is missing from this build");
        return;
    }
    t.file[FILE_PRELUDE] = (struct source_text){"prelude.lua", prelude->data, prelude->size};
    t.file[FILE_SPEC] = (struct source_text){"", text, size};
    snprintf(t.file[FILE_SPEC].name, sizeof t.file[FILE_SPEC].name, "%s", name);
    ir->n_files = FILE_COUNT;
    for (int f = 0; f < FILE_COUNT; f++)
        memcpy(ir->file[f], t.file[f].name, sizeof ir->file[f]);
    run_tracer(&t);
}
