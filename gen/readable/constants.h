/*
 * constants.h: the values of constant expressions, as far as a text tells them.
 */
#ifndef LATHE_GEN_READABLE_CONSTANTS_H
#define LATHE_GEN_READABLE_CONSTANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/readable/units.h"

struct value {
    bool known;
    int64_t number;
};
/* Of tokens first .. last - 1, which stand in that unit. What depends on a template's parameters is not
 * known. */
struct value constant_value(const struct units *u, int unit, int first, int last);

#endif
