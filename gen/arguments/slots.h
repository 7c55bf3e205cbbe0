/*
 * slots.h: operands of element-wise specs that say where the points of a result are written.
 */
#ifndef LATHE_ARGUMENTS_SLOTS_H
#define LATHE_ARGUMENTS_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe_types.h"

struct ir;

/* Do results find their slots by this operand? */
bool slots_are(const struct ir *ir, const char *operand);
/* Fill an operand by which results find their slots: each slot once, and -1 for about one in eight. False: it
   is no such operand, and nothing was written. */
bool slots_fill(const struct ir *ir, const int64_t *dim, const lathe_arg *t, double (*unit)(void *state),
                void *state);

#endif
