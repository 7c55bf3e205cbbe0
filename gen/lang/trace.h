/*
 * trace.h: private to the files that see Lua.
 */
#ifndef LATHE_TRACE_H
#define LATHE_TRACE_H

#include <lauxlib.h>
#include <lua.h>
#include <stddef.h>

#include "gen/ir/ir.h"

struct diag;
struct ir;
struct ir_map;
struct spec_params;

enum { FILE_PRELUDE, FILE_SPEC, FILE_COUNT };

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
    SLOT_LINEAR_SCALE, /* linear attention, whose tokens and heads have other names */
    SLOT_LINEAR_QUERY,
    SLOT_LINEAR_KEY,
    SLOT_LINEAR_VALUE,
    SLOT_LINEAR_OUTPUT,
#define LINEAR_SLOT(ID, name, ...) SLOT_##ID,
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    SLOT_ROW,
    SLOT_MAP,
    SLOT_COUNT
};

struct source_text {
    char name[256];
    const char *data;
    size_t size;
};

/* An instruction of Lua, or the entry of a function in front of its instructions. */
struct instruction {
    uint32_t code; /* of an entry: how many instructions follow */
    int32_t line;  /* in the text */
    bool is_plain; /* of an entry: there is nothing to watch in them */
};

/* The instructions of a file by their numbers, which Lua takes for lines: first .. first + n - 1. */
struct chunk {
    int first;
    int n;
    struct instruction *slot;
};

struct tracer {
    struct ir *ir;
    struct diag *diag;
    struct spec_params *params; /* given by the caller; NULL: none */
    lua_State *lua;
    struct source_text file[FILE_COUNT];
    struct chunk chunk[FILE_COUNT];
    size_t memory;             /* bytes that Lua holds now */
    size_t allocated;          /* bytes in all */
    const char *memory_reason; /* why an allocation failed: a limit; NULL: no memory */
    long budget;               /* instructions left */
    int step;                  /* instructions between two counts */
    int until_clock;           /* instructions before the next look at the clock */
    double deadline;           /* in seconds of the thread's processor time */
    enum trace_slot slot;
    const struct ir_map *map; /* SLOT_MAP: whose function it is */
    int epoch;                /* counts traced functions: a value belongs to one */
    bool watch_keys;          /* a function that was called here has keys of tables to look at */
    bool is_over;             /* the budget is spent */
    bool is_reported;         /* the error on its way was recorded before it was raised */
    int constructor_line;     /* of attention { ... } */
    struct ir_at function;    /* the traced function's first line: for mistakes after it returned */
};

/* ---- tracer.c ---- */

struct tracer *tracer_of(lua_State *lua);
/* The file of an instruction's number, or -1. */
int trace_file(const struct tracer *t, int number);
/* Where the running spec function is: file number and line. */
struct ir_at trace_place(lua_State *lua);
/* First line of the function on top of the stack, which stays there. */
struct ir_at trace_defined_at(lua_State *lua);
/* Why Lua had no memory. */
const char *trace_memory_reason(const struct tracer *t);

/* ---- report.c ---- */

/* pcall with the handler; false: the mistake was recorded. */
bool trace_pcall(struct tracer *t, int n_args, int n_results);
/* Mistakes that have no Lua frame: the spec's file, and the line of its constructor call. */
void slot_mistake(struct tracer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What luaL_loadbuffer left on the stack, "name:line: text", which is popped. */
void trace_report_syntax(struct tracer *t, const struct source_text *file, int status);

/* The state of a tracer, which it gets too; NULL: no memory. */
lua_State *sandbox_new(struct tracer *t);
/* The vocabulary on the stack: a table, in which reading a name it lacks is an error. */
void sandbox_open(lua_State *lua);
/* On the stack: an empty table over the vocabulary at the top, closed for writing. */
void sandbox_close(lua_State *lua);
/* From here on functions are looked at when they are called (untraced.c). */
void sandbox_watch(struct tracer *t);

void trace_open(lua_State *lua);                  /* metatables of traced values */
void trace_vocabulary(lua_State *lua, int table); /* ops and constants into the table at this index */

/* Is it a traced value? */
bool is_traced(lua_State *lua, int index);

/* The function on top of the stack, which was loaded as `name`, with numbers from `first` on for lines;
   raises an error where its bytecode is not known. The instructions live as long as the state. */
void bytecode_number(lua_State *lua, struct chunk *chunk, int first, const char *name);
/* Raises an error where the bytecode of this Lua has other numbers. */
void bytecode_probe(lua_State *lua);
/* Does the instruction see whether a value is true, or equal to another? */
bool bytecode_is_test(uint32_t code);
/* Does it read or write a table under a key that is no constant? Their registers. */
bool bytecode_keyed(uint32_t code, int *table, int *key);

/* A line without its comment and with blanks for its strings; what does not fit is cut. */
void source_line(const struct source_text *file, int line, char *out, size_t size);
/* Lua's message with what to write instead: of a text that it cannot read, of functions that run. */
void advice_syntax(const struct source_text *file, int line, const char *message, char *out, size_t size);
void advice_running(lua_State *lua, const char *message, char *out, size_t size);

/* Look at the function that was just called: what tests values in it is a mistake. Raises a Lua error after
   recording them. */
void untraced_call(lua_State *lua, lua_Debug *call);
/* Look at the instruction that comes next: a traced value as the key of a table is an error. */
void untraced_key(lua_State *lua, lua_Debug *running);

/* param.c: param(name, default) of the vocabulary; and what was given that the spec lacks is a mistake. */
int construct_param(lua_State *lua);
void lang_check_params(const struct tracer *t);

/* declare_range.c: when all dims are known, what the ranges of inputs name. */
void resolve_ranges(struct tracer *t);

#endif
