/*
 * signs.h: row states of attention that are never negative, as sums of exponentials are. Private to
 * guards.c.
 */
#ifndef LATHE_SIGNS_H
#define LATHE_SIGNS_H

#include <stdbool.h>

struct ir;

/* Fill positive[i] for the nodes up to and without n: is the value 0 or more, whatever the data? States count
   as such where they begin and stay so. */
void signs_of(const struct ir *ir, int n, bool *positive);

#endif
