/*
 * tracer.c: what every file that sees Lua asks of the tracer. In: a Lua state, or the number of an
 * instruction. Out: the tracer, the file and line of what runs, why Lua had no memory.
 */
#include "gen/lang/trace.h"

#include <string.h>

struct tracer *tracer_of(lua_State *lua)
{
    struct tracer *t;
    memcpy(&t, lua_getextraspace(lua), sizeof t);
    return t;
}

const char *trace_memory_reason(const struct tracer *t)
{
    return t->memory_reason ? t->memory_reason : "out of memory";
}

int trace_file(const struct tracer *t, int number)
{
    for (int f = 0; f < FILE_COUNT; f++)
        if (number >= t->chunk[f].first && number - t->chunk[f].first < t->chunk[f].n)
            return f;
    return -1;
}

/* File and line of an instruction or function by its number; line 0 where there is none. */
static struct ir_at place_of(const struct tracer *t, int number)
{
    const int file = trace_file(t, number);
    if (file < 0)
        return (struct ir_at){0, 0};
    return (struct ir_at){(int16_t)file, t->chunk[file].slot[number - t->chunk[file].first].line};
}

/* The innermost frame of the spec, or of the prelude where the spec is not on the stack. */
struct ir_at trace_place(lua_State *lua)
{
    enum { LEVELS_FREE = 16 };
    struct tracer *t = tracer_of(lua);
    struct ir_at place = {0, 0};
    lua_Debug frame;
    int level = 0;
    for (; place.file != FILE_SPEC && lua_getstack(lua, level, &frame); level++) {
        lua_getinfo(lua, "l", &frame);
        const struct ir_at at = place_of(t, frame.currentline);
        if (at.line > 0 && (place.line == 0 || at.file == FILE_SPEC))
            place = at;
    }
    if (level > LEVELS_FREE) /* Lua counts levels from the innermost one each time: that is paid for */
        t->budget -= level * level / 256;
    return place;
}

struct ir_at trace_defined_at(lua_State *lua)
{
    lua_Debug info;
    lua_pushvalue(lua, -1);
    lua_getinfo(lua, ">S", &info);
    return place_of(tracer_of(lua), info.linedefined);
}
