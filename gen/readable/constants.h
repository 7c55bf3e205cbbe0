/*
 * constants.h: the values of constant expressions, as far as a text tells them.
 */
#ifndef LATHE_GEN_READABLE_CONSTANTS_H
#define LATHE_GEN_READABLE_CONSTANTS_H

#include "gen/readable/parameters.h"

/* Of tokens first .. last - 1, which stand in that unit. */
struct value constant_value(const struct units *u, int unit, int first, int last);

#endif
