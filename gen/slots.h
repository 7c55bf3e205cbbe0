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
/* The `inputs` field of the slots table into ir->input; false where the name or dtype of one is wrong, so
   that what reads it cannot be traced. */
bool declare_inputs(struct tracer *t, int slots);
/* The first by name of the fields of a table that are not listed (a table has another order in each run);
   "" for one without a name, NULL where there is none. */
const char *unlisted_field(lua_State *lua, int table, const char *const *fields);
/* The table has known fields only; a Lua error otherwise. */
void check_fields(lua_State *lua, int table, const char *who, const char *const *fields);
/* The symbol of a named dim; a name of no known size becomes a free dim. -1: too many. */
int dim_sym(struct ir *ir, const char *name);
/* The dtype of tensor(...) or scalar(...), by the name on top of the stack. */
lathe_dtype declare_dtype(lua_State *lua, const char *who);
/* Is this the table of a constructor: TAG_ONLINE, ... */
bool has_tag(lua_State *lua, int index, const char *tag);
/* Call `body` protected with the function on top of the stack, which is popped, and `data` (light userdata).
 */
bool trace_body(struct tracer *t, enum trace_slot slot, lua_CFunction body, void *data);
/* Mistakes that have no Lua frame: the spec's file, and the line of its constructor call. */
void slot_mistake(struct tracer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define TAG_ONLINE "lathe.online"
#define TAG_STAGES "lathe.stages"
#define TAG_TOTAL  "lathe.total" /* total(value) */
#define TAG_INPUT  "lathe.input"
#define TAG_PAIRS  "lathe.pairs" /* half("i"), interleaved("i") */

#define PAIR_NAME "lathe.pair" /* field of the metatable of a pair operand: its name */

#endif
