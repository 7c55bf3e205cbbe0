/*
 * slots.h: private to trace.c (values), slots.c (slots) and declare.c (inputs, constructors).
 */
#ifndef LATHE_SLOTS_H
#define LATHE_SLOTS_H

#include "trace.h"

void push_value(lua_State *lua, int node);
void push_at(lua_State *lua);
void push_inputs(lua_State *lua);
/* The node of a Lua value; raises an error that starts with `who`. */
int lift(lua_State *lua, int index, const char *who);
/* A word of letters, digits and _ that does not start with a digit, short enough for a name. */
bool is_identifier(const char *s);
/* "h", "32": written into out, which is returned. */
const char *dim_name(const struct ir *ir, const struct sig_dim *dim, char *out, size_t size);

/* Constructors: attention, rowwise, online_func, half, interleaved, chain, tensor, scalar. */
void slots_vocabulary(lua_State *lua, int table);
/* The `inputs` field of the slots table into ir->input; false where a declaration is wrong. */
bool declare_inputs(struct tracer *t, int slots);
/* Is this the table of a constructor: TAG_ONLINE, ... */
bool has_tag(lua_State *lua, int index, const char *tag);
/* Mistakes that have no Lua frame: the spec's file, and the line of its constructor call. */
void slot_mistake(struct tracer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define TAG_ONLINE "lathe.online"
#define TAG_STAGES "lathe.stages"
#define TAG_INPUT  "lathe.input"

#endif
