/*
 * slots.h: private to this folder: values.c (values), slots.c (slots), declare.c (inputs, constructors).
 */
#ifndef LATHE_SLOTS_H
#define LATHE_SLOTS_H

#include <stdbool.h>

#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/lang/trace.h"
#include "lathe_types.h"

/* ---- names.c ---- */

/* A word of letters, digits and _ that does not start with a digit, short enough for a name. */
bool is_identifier(const char *s);
/* The first by name of the fields of a table that are not listed (a table has another order in each run);
   "" for one without a name, NULL where there is none. */
const char *unlisted_field(lua_State *lua, int table, const char *const *fields);
/* The same, of those behind `after` by name, where that is not NULL. */
const char *unlisted_behind(lua_State *lua, int table, const char *const *fields, const char *after);
/* Is this the table of a constructor: TAG_ONLINE, ... */
bool has_tag(lua_State *lua, int index, const char *tag);
/* "h", "32": written into out, which is returned. */
const char *lang_dim_name(const struct ir *ir, const struct sig_dim *dim, char *out, size_t size);
/* The symbol of a named dim; a name of no known size becomes a free dim. -1: too many. */
int dim_sym(struct ir *ir, const char *name);
/* The same of a dim that there is; -1: there is none. */
int dim_find(const struct ir *ir, const char *name);
/* Is it a size or an argument of this kind's calls, which no dim of an input is? */
bool dim_is_taken(const struct ir *ir, const char *name);

/* ---- constants.c ---- */

/* Why f32 does not hold a number, in a sentence; NULL where it does. */
const char *constant_trouble(const struct ir *ir, double value, char *out, size_t size);
/* Raises it as an error that starts with `who`. */
void require_constant(lua_State *lua, const char *who, double value);

/* ---- values.c, slots.c, declare.c --- */

void push_value(lua_State *lua, int node);
void push_at(lua_State *lua);
void push_inputs(lua_State *lua);
/* The function at this index has no more parameters than the traced slot's is given; raises an error. */
void check_parameters(lua_State *lua, int function, int given, bool pairs, const char *who);
/* The node of a Lua value; raises an error that starts with `who`. */
int lift(lua_State *lua, int index, const char *who);

/* Constructors: attention, rowwise, online_func, half, interleaved, chain, tensor, scalar. */
void slots_vocabulary(lua_State *lua, int table);
/* The `inputs` field of the slots table into ir->input; false where the name or dtype of one is wrong, so
   that what reads it cannot be traced. */
bool declare_inputs(struct tracer *t, int slots);
/* The table has known fields only; a Lua error otherwise. */
void check_fields(lua_State *lua, int table, const char *who, const char *const *fields);
/* declare_range.c: the options `range` and `sorted`; what their ends name is found later (resolve_ranges). */
void declare_range(lua_State *lua, struct input *in, int table);
/* The dtype of tensor(...) or scalar(...), by the name on top of the stack. */
lathe_dtype declare_dtype(lua_State *lua, const char *who);
/* Call `body` protected with the function on top of the stack, which is popped, and `data` (light userdata).
 */
bool trace_body(struct tracer *t, enum trace_slot slot, lua_CFunction body, void *data);

/* ---- slots.c: what the kinds trace their slots with ---- */

/* Functions that are called protected get the tracer from the state and their target as upvalue-free
   arguments; `struct slot_call` carries the rest. */
struct slot_call {
    const char *who;
    struct ir_fn *fn;
    const int *leaf; /* PARAM leaves passed first */
    int n_leaves;
    int n_values;                /* values returned first */
    const struct scale_name *in; /* a table of row values, passed after the leaves */
    int n_in;
    int in_param;           /* LEAF_STATE, LEAF_FINAL, LEAF_SPLIT_STATE */
    struct scale_name *out; /* a table of row values returned after the first value */
    int *n_out;             /* NULL: no table is returned */
    bool out_is_new;        /* names are taken from the table; else they must match */
    bool table_is_second;   /* the table stands between the first and the second value */
    const int *last;        /* PARAM leaves passed behind the inputs */
    int n_last;
};
/* A slot that is a function or absent: leaves nothing on the stack. */
void trace_function(struct tracer *t, int slots, const char *field, enum trace_slot slot, struct slot_call c);
void trace_mod(struct tracer *t, int slots, const char *field, enum mod which, enum trace_slot slot);
/* A number, a function or absent. */
void trace_scale(struct tracer *t, int slots, enum trace_slot slot);

/* How a list of stages holds the form of one: stage_form + STAGE_FORMS * ir_stage.paired. */
enum { STAGE_FORMS = 4, STAGE_PAIRED_MAX = 4096 };

#define TAG_ONLINE "lathe.online"
#define TAG_STAGES "lathe.stages"
#define TAG_TOTAL  "lathe.total" /* total(value) */
#define TAG_FIRST  "lathe.first" /* first(value, k, fill) */
#define TAG_INPUT  "lathe.input"
#define TAG_PAIRS  "lathe.pairs" /* half("i"), interleaved("i") */

#define PAIR_NAME "lathe.pair" /* field of the metatable of a pair operand: its name */

#endif
