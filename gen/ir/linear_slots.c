/*
 * linear_slots.c: the table of linear_slots.def. In: the number of a function of the recurrence. Out: its
 * row.
 */
#include "gen/ir/linear_slots.h"
#include "gen/ir/spec.h"

#include <math.h>

static const struct linear_slot SLOTS[LINEAR_FUNCTIONS] = {
    [OF_SCALE] = {.name = "scale",
                  .none = "1.0f",
                  .shape = "must be one value per head; it may use inputs indexed by at.b and at.h"},
#define LINEAR_SLOT(ID, slot, by, at, ...) [OF_##ID] = {.name = #slot, .varies = by, __VA_ARGS__},
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
};

const struct linear_slot *linear_slot_of(enum linear_function which)
{
    return &SLOTS[which];
}

const struct ir_fn *linear_function_of(const struct ir *ir, enum linear_function which)
{
    return which == OF_SCALE ? &ir->scale : &ir->linear.slot[which - 1];
}

bool linear_has(const struct ir *ir, enum linear_function which)
{
    return linear_function_of(ir, which)->n_roots > 0;
}

bool linear_slot_sees_key(enum linear_function which)
{
    return (SLOTS[which].varies & OF_KEY) != 0;
}

uint8_t linear_slot_span(enum linear_function which)
{
    const int varies = SLOTS[which].varies;
    return (uint8_t)(((varies & BY_TOKENS) != 0 ? SPAN_Q : 0) |
                     ((varies & (BY_KEYS | BY_VALUES)) != 0 ? SPAN_DIM : 0));
}
