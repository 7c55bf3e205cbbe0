/*
 * scalar.h: operations on numbers in double precision (scalar.c), below the node pool, which folds constants.
 */
#ifndef LATHE_GEN_SCALAR_H
#define LATHE_GEN_SCALAR_H

#include "gen/ir/ir.h"

#include <stddef.h>

/* What an op makes of n sets of operands: operand k of set j is from[k][j * step[k]], so a step of 0 spreads
   one value. All of `from` can be read, also what the op does not have. Integers are not wrapped yet. */
typedef void scalar_fn(double *out, size_t n, const double *const *from, const size_t *step);
/* Of leaves and reductions, which have no scalar form, the function gives NaN. */
scalar_fn *scalar_function(enum ir_op op, enum ir_type type);
/* n integers wrap around to 32 bits; of those a double holds sums, differences and quotients of two before
   that. Returns the first that does not exist (division by 0), which is NaN then; n: all do. */
size_t scalar_wrap(double *v, size_t n);
/* Scalar ops, reductions and leaves excepted; used by folding too. `type` is that of the result. An i32
   result beyond 32 bits wraps around, one that does not exist (division by 0) is NaN; a cast to i32
   saturates, NaN gives 0, as on a GPU. */
double scalar_op(enum ir_op op, enum ir_type type, const double *arg);

#endif
