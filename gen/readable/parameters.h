/*
 * parameters.h: what the parameters of a template are, where all that name the template agree.
 */
#ifndef LATHE_GEN_READABLE_PARAMETERS_H
#define LATHE_GEN_READABLE_PARAMETERS_H

#include "gen/readable/units.h"

enum { MOST_DEPTH = 24 };

struct value {
    bool known;
    int64_t number; /* of a type: the number of its word */
};
/* Evaluates tokens first .. last - 1 of that unit: a number, or a type. */
typedef struct value evaluate_fn(const struct units *u, int unit, bool is_type, int first, int last,
                                 int depth);

/* Which parameter of that unit has that name; -1: none. */
int parameter_named(const struct units *u, int unit, int word);
struct value parameter_value(const struct units *u, int unit, int parameter, int depth,
                             evaluate_fn *evaluate);

#endif
