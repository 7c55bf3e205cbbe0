/*
 * scalar.h: operations on numbers in double precision (scalar.c), below the node pool, which folds constants.
 *
 */
#ifndef LATHE_GEN_SCALAR_H
#define LATHE_GEN_SCALAR_H

#include "gen/ir/ir.h"

/* What the op makes of its operands, before scalar_as_type. NaN for leaves and reductions, which are none. */
typedef double scalar_fn(const double *arg);
scalar_fn *scalar_function(enum ir_op op, enum ir_type type);
/* Of integers a double holds sums, differences and quotients of two before they wrap around. */
double scalar_as_type(enum ir_type type, double v);
/* Scalar ops, reductions and leaves excepted; used by folding too. `type` is that of the result. An i32
   result beyond 32 bits wraps around, one that does not exist (division by 0) is NaN; a cast to i32
   saturates, NaN gives 0, as on a GPU. */
double scalar_op(enum ir_op op, enum ir_type type, const double *arg);

#endif
