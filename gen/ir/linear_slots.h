/*
 * linear_slots.h: the functions of linear attention's recurrence: the scale, and the rows of
 * linear_slots.def.
 */
#ifndef LATHE_GEN_LINEAR_SLOTS_H
#define LATHE_GEN_LINEAR_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

struct ir;
struct ir_fn;

enum linear_function { /* as in templates/common/contract.cuh */
                       OF_SCALE,
#define LINEAR_SLOT(ID, name, ...) OF_##ID,
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
                       LINEAR_FUNCTIONS,
                       LINEAR_SLOTS = LINEAR_FUNCTIONS - 1 /* all but the scale */
};
/* What a slot's value may vary with; each also with the head. OF_KEY: it sees the token's key at its channel.
   BY_UPDATES: it has a value for each update of the state by a token, where others have one for the token. */
enum { BY_TOKENS = 1, BY_KEYS = 2, BY_VALUES = 4, OF_KEY = 8, BY_UPDATES = 16 };

struct linear_slot {
    const char *name;
    int varies;        /* BY_... */
    const char *none;  /* C++: what variant's function gives where a spec has no such slot */
    const char *range; /* the rule of the numbers it may give, from `least` to `most`; NULL: any */
    double least, most;
    const char *shape; /* mistakes: it varies with more than `varies`; */
    const char *sums;  /* it sums over channels; */
    const char *order; /* it stands beside causal = false; NULL: it may */
};
const struct linear_slot *linear_slot_of(enum linear_function which);
const struct ir_fn *linear_function_of(const struct ir *ir, enum linear_function which);
bool linear_has(const struct ir *ir, enum linear_function which); /* does the spec have that slot? */
bool linear_slot_sees_key(enum linear_function which);
uint8_t linear_slot_span(enum linear_function which); /* BY_... as axes of gen/ir/ir.h */

#endif
