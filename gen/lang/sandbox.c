/*
 * sandbox.c: the Lua state of a spec. It has the vocabulary and `ipairs`, no writes to globals, and limits,
 * so that any text ends within seconds: of instructions, of memory held and allocated, of processor time. In:
 * a tracer. Out: its state, whose hooks look at what is traced (untraced.c).
 */
#include "gen/lang/slots.h"
#include "gen/base/embedded.h"
#include "gen/ir/spec.h"
#include "runtime/base/base.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HELD_MAX = 64 << 20,     /* bytes at a time */
    ALLOCATED_MAX = 1 << 30, /* bytes in all: what is copied again and again is allocated again */
    STRING_MAX = 1025 << 10, /* bytes; a little more than a file has */
    INSTRUCTIONS_MAX = 20000000,
    SECONDS_MAX = 3,
    STEP = 1000, /* instructions between two looks at the budget */
};

/* ---- limits ---------------------------------------------------------------------------------------- */

/* The limit that an allocation breaks, or NULL. For a new block Lua says what it is for in the place of its
   old size. */
static const char *broken_limit(const struct tracer *t, bool is_string, size_t held, size_t size)
{
    if (is_string && size > STRING_MAX)
        return "the spec makes a string of more than 1 MiB";
    if (t->allocated + size > ALLOCATED_MAX)
        return "the spec allocates more than 1 GiB of memory in all; is there a loop that makes ever longer "
               "strings or tables?";
    if (size > held && t->memory - held + size > HELD_MAX)
        return "the spec uses more than 64 MiB of memory";
    return NULL;
}

static void *limited_alloc(void *user, void *block, size_t old_size, size_t new_size)
{
    struct tracer *t = user;
    const size_t held = block ? old_size : 0;
    if (new_size == 0) {
        free(block);
        t->memory -= held;
        return NULL;
    }
    const char *broken =
        new_size <= held ? NULL : broken_limit(t, !block && old_size == LUA_TSTRING, held, new_size);
    if (broken) {
        t->memory_reason = broken;
        return NULL;
    }
    void *moved = realloc(block, new_size);
    if (moved) {
        t->memory = t->memory - held + new_size;
        t->allocated += new_size;
    }
    return moved;
}

/* Of this thread: a program that is stopped, or waits for its turn, does not lose time. */
static double seconds_used(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void end_of_budget(lua_State *lua)
{
    struct tracer *t = tracer_of(lua);
    t->is_reported = t->is_over; /* once is enough: what is traced after it ends here, too */
    t->is_over = true;
    luaL_error(
        lua,
        "the spec runs too long (over %d million instructions, or %d seconds); is there an endless loop?",
        INSTRUCTIONS_MAX / 1000000, SECONDS_MAX);
}

static void on_hook(lua_State *lua, lua_Debug *event)
{
    struct tracer *t = tracer_of(lua);
    if (event->event != LUA_HOOKCOUNT) {
        untraced_call(lua, event);
    } else {
        t->budget -= t->step;
        t->until_clock -= t->step;
        if (t->step == 1)
            untraced_key(lua, event);
    }
    if (t->until_clock <= 0) {
        t->until_clock = STEP;
        if (seconds_used() > t->deadline)
            t->budget = -1;
    }
    if (t->budget < 0 || t->ir->failed)
        end_of_budget(lua);
    const int step = t->watch_keys ? 1 : STEP;
    if (step != t->step)
        sandbox_watch(t);
}

void sandbox_watch(struct tracer *t)
{
    t->step = t->watch_keys ? 1 : STEP;
    lua_sethook(t->lua, on_hook, LUA_MASKCALL | LUA_MASKCOUNT, t->step);
}

lua_State *sandbox_new(struct tracer *t)
{
    t->budget = INSTRUCTIONS_MAX;
    t->deadline = seconds_used() + SECONDS_MAX;
    t->step = STEP;
    t->until_clock = STEP;
    t->lua = lua_newstate(limited_alloc, t);
    if (t->lua)
        memcpy(lua_getextraspace(t->lua), &t, sizeof t);
    return t->lua;
}

/* ---- names ----------------------------------------------------------------------------------------- */

/* Names of other languages and libraries, and what is written here. */
static const char *other_word(const char *name)
{
    static const char *const WORDS[][2] = {{"True", "true"},
                                           {"False", "false"},
                                           {"None", "nil"},
                                           {"sum", "rowsum(v)"},
                                           {"pow", "a ^ b"},
                                           {"maximum", "max"},
                                           {"minimum", "min"},
                                           {"mean", "rowsum(v) / at.n"},
                                           {"INFINITY", "inf"},
                                           {"select", "where"},
                                           {"logical_and", "a & b"},
                                           {"logical_or", "a | b"},
                                           {"not_", "~a"},
                                           {"float", "f32(a)"},
                                           {"int", "i32(a)"},
                                           {"fabs", "abs"},
                                           {"log1p", "log(1.0 + a)"},
                                           {"expm1", "exp(a) - 1.0"},
                                           {"fmod", "a % b, which has the sign of b"},
                                           {"logsigmoid", "-softplus(-a)"},
                                           {"log_sigmoid", "-softplus(-a)"}};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strcmp(WORDS[i][0], name) == 0)
            return WORDS[i][1];
    return NULL;
}

/* Stack: 1 the vocabulary, 2 the name. */
static int unknown_name(lua_State *lua)
{
    static const char *const no_library[] = {"os",       "io",      "require", "math",   "string",
                                             "table",    "package", "debug",   "dofile", "load",
                                             "loadfile", "print",   "pairs",   NULL};
    const struct ir *ir = tracer_of(lua)->ir;
    const char *name = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "?";
    for (int i = 0; no_library[i]; i++)
        if (strcmp(name, no_library[i]) == 0)
            return luaL_error(lua,
                              "unknown name '%s': a spec has no Lua libraries, only the names in "
                              "specs/reference/operations.md%s",
                              name, strcmp(name, "math") == 0 ? " (exp, log, tanh, inf, pi, ...)" : "");
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(name, ir->input[i].name) == 0)
            return luaL_error(lua, "unknown name '%s': inputs are read through the last parameter: x.%s%s",
                              name, name, ir->input[i].is_scalar ? "" : "(i, ...)");
    if (strcmp(name, "at") == 0 || strcmp(name, "x") == 0)
        return luaL_error(
            lua,
            "unknown name '%s': a slot's function gets it as a parameter and has to name it, as "
            "score_mod = function(s, at, x) and mask_mod = function(at, x) do",
            name);
    if (other_word(name))
        return luaL_error(lua, "unknown name '%s'; write %s", name, other_word(name));
    struct nearest nearest = {.word = name};
    for (lua_pushnil(lua); lua_next(lua, 1); lua_pop(lua, 1))
        lathe__nearest_try(&nearest, lua_type(lua, -2) == LUA_TSTRING ? lua_tostring(lua, -2) : "");
    const char *meant = lathe__nearest_text(&nearest);
    char shipped[96];
    snprintf(shipped, sizeof shipped, "specs/%.80s.lua", name);
    if (embedded_find(shipped))
        return luaL_error(lua,
                          "unknown name '%s': it is a shipped spec, not a function; `lathe show %s` prints "
                          "the functions that it "
                          "is made of, to be copied",
                          name, name);
    return luaL_error(lua, "unknown name '%s'%s", name,
                      *meant ? meant : "; specs/reference/operations.md lists the names a spec may use");
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
    slots_vocabulary(lua, lua_gettop(lua));
    lua_pushcfunction(lua, vocabulary_ipairs);
    lua_setfield(lua, -2, "ipairs");
    lua_newtable(lua);
    lua_pushcfunction(lua, unknown_name);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
}

void sandbox_close(lua_State *lua)
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

void sandbox_open(lua_State *lua)
{
    lua_sethook(lua, on_hook, LUA_MASKCOUNT, STEP);
    bytecode_probe(lua);
    trace_open(lua);
    push_vocabulary(lua);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, LUA_REGISTRYINDEX, "lathe.vocabulary");
}
