/*
 * trace.h: private to spec.c, trace.c and scan.c, the only files that see Lua.
 */
#ifndef LATHE_TRACE_H
#define LATHE_TRACE_H

#include <lauxlib.h>
#include <lua.h>

#include "gen.h"

enum { FILE_PRELUDE, FILE_SPEC, FILE_COUNT, SCANNED_MAX = 256 };

/* The slot whose function is being traced: decides which fields `at` has. */
enum trace_slot {
    SLOT_NONE,
    SLOT_SCALE,
    SLOT_MASK,
    SLOT_SCORE,
    SLOT_ONLINE,
    SLOT_EPILOGUE,
    SLOT_FORWARD,
    SLOT_COMBINE,
    SLOT_BACKWARD,
    SLOT_QUERY,
    SLOT_KEY,
    SLOT_VALUE,
    SLOT_OUTPUT,
    SLOT_ROW,
    SLOT_MAP,
    SLOT_COUNT
};

struct source_text {
    char name[256];
    const char *data;
    size_t size;
};

struct tracer {
    struct ir *ir;
    struct diag *diag;
    lua_State *lua;
    struct source_text file[FILE_COUNT];
    size_t memory; /* bytes that Lua holds now */
    long budget;   /* instructions left, in thousands */
    enum trace_slot slot;
    const struct ir_map *map; /* SLOT_MAP: whose function it is */
    int epoch;                /* counts traced functions: a value belongs to one */
    int n_scanned; /* functions already looked at, as file * 2^20 + first line; negative: one with mistakes */
    int scanned[SCANNED_MAX];
    bool scan_failed;      /* the error on its way was recorded by scan_call */
    int constructor_line;  /* of attention { ... } */
    struct ir_at function; /* the traced function's first line: for mistakes after it returned */
};

struct tracer *tracer_of(lua_State *lua);
/* Record the Lua error on top of the stack's message handler; see spec.c. */
int trace_message_handler(lua_State *lua);
/* pcall with the handler; false: the mistake was recorded. */
bool trace_pcall(struct tracer *t, int n_args, int n_results);
/* Where the running spec function is: file number and line. */
struct ir_at trace_place(lua_State *lua);

/* First line of the function on top of the stack, which stays there. */
struct ir_at trace_defined_at(lua_State *lua);

void trace_open(lua_State *lua);                  /* metatables of traced values */
void trace_vocabulary(lua_State *lua, int table); /* ops and constants into the table at this index */

/* Look at the source of the function that was just called: if, and, or, not, ==, ~=, while, repeat
   in it are mistakes. Raises a Lua error after recording them. */
void scan_call(lua_State *lua, lua_Debug *call);
/* The first forbidden word of the function text at `line`..`last_line`; see scan.c. */
struct scan_hit {
    int line;
    char word[8];
};
int scan_function(const char *text, size_t size, int line, int last_line, struct scan_hit *hit, int max_hits);

#endif
