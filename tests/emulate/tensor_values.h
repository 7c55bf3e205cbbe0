/*
 * tensor_values.h: what values the inputs of a case have.
 */
#ifndef LATHE_TESTS_EMULATE_TENSOR_VALUES_H
#define LATHE_TESTS_EMULATE_TENSOR_VALUES_H

#include "harness.h"

#include <string.h>

/* Asked for every element of every tensor: the first letter mostly tells. */
static inline bool tensor_is(const struct tensor *t, const char *name)
{
    return t->name[0] == name[0] && strcmp(t->name, name) == 0;
}
/* Elements of tensor i of a list: empty ones, parts of a vector, of a tile, several tiles. */
int64_t tensor_list_length(int64_t i);
/* Of an input by its name, wherever it lies; `flat` counts elements of the compact tensor. */
double tensor_input(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state);
/* Of any tensor's element that is not unused. */
double tensor_element(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *state);
/* Elements that are NaN, since no kernel may read them, or nothing may come of them: whole rows, along the
   last dim. Whether the case leaves any of this tensor unused is found in texts, so it is asked once. */
bool tensor_may_be_unused(const struct tensor *t, const struct test_case *c);
bool tensor_is_unused(const struct tensor *t, const struct test_case *c, int64_t flat);
/* Of linear attention: how many tokens in front of this one have a state kept behind them. */
int64_t kept_before(const struct test_case *c, int64_t token);

#endif
