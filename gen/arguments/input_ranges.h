/*
 * input_ranges.h: what an input says about its values: `range = { low, high }` and, of integers, `sorted`.
 * Declared by declare_range.c. Data of `lathe run` and of the proofs is drawn from it (input_ranges.c), the
 * host device holds what it is given against it, and `lathe check` takes it for what reads may find
 * (index_ranges.c).
 */
#ifndef LATHE_INPUT_RANGES_H
#define LATHE_INPUT_RANGES_H

#include <stdbool.h>

#include "lathe_types.h"

struct input;
struct ir;

/* What an input's range is for the sizes of one call. */
struct value_range {
    int64_t low, high; /* low <= value < high; no value where high <= low */
};
/* False: none is declared. `dim` has the size of every symbol; what is not bound is negative, and counts as
 * 0. */
bool input_range(const struct input *in, const int64_t *dim, struct value_range *out);

/* Of an input of any dtype that has a range. False: it has none, and nothing was written. */
bool input_fill(const struct input *in, const int64_t *dim, const lathe_arg *t, double (*unit)(void *state),
                void *state);
bool input_has_range(const struct input *in);

/* Does the data keep to what is declared? many: of an input that is sorted by another, that one; NULL: it is
   not given, and lines are sorted whole. Errors ARG: the argument, its range, the element. */
lathe_status input_range_check(const struct ir *ir, int input, const lathe_arg *t, const lathe_arg *many,
                               const int64_t *dim, lathe_error *err);

#endif
