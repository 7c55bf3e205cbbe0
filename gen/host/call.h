/*
 * call.h: the door of the host device, which computes in double precision.
 */
#ifndef LATHE_GEN_HOST_CALL_H
#define LATHE_GEN_HOST_CALL_H

#include "lathe_types.h"

struct signature;
struct ir;
struct eval_mode;

/* Forward, or the combine pass by its signature, on the host: args as for lathe_launch, host pointers.
   Outputs not given are not computed. rows: NULL, or a sorted list of flat row numbers ((b * h + head) * q +
   row, or the rowwise row) to evaluate; the others are left alone, and totals are of these. Errors: ARG, SPEC
   (a read outside a tensor).
 */
lathe_status host_forward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                          const int64_t *rows, int64_t n_rows, lathe_error *err);
/* Backward: args also hold "do" (or "dy") and "d" + final for seeds, "dq" "dk" "dv" ("dx") and "d" + input as
   outputs, which are overwritten. */
lathe_status host_backward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                           lathe_error *err);
/* The same as `lathe check` evaluates: in f32, say. Of attention the vector mods alone: its rows are double.
 */
lathe_status host_backward_mode(const struct ir *ir, const struct signature *sig, const lathe_arg *args,
                                int n, struct eval_mode *mode, lathe_error *err);
/* The same as if all seeds were zero but those of `rows`, numbered as for host_forward: the gradients of
   other rows are left alone, and sums are of these. Not for element-wise specs, which have no rows. */
lathe_status host_backward_rows(const struct ir *ir, const struct signature *sig, const lathe_arg *args,
                                int n, const int64_t *rows, int64_t n_rows, lathe_error *err);

#endif
