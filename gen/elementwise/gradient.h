/*
 * gradient.h: the backward pass of an elementwise spec, as an elementwise spec.
 */
#ifndef LATHE_GEN_GRADIENT_H
#define LATHE_GEN_GRADIENT_H

#include <stdbool.h>

struct ir;
struct diag;

/* ir->maps.gradient, made anew. Its operands are those of the spec and the gradients of its results, its
   results d<operand> and d<input>. False: diff.c has no rule, or memory ran out. */
bool gradient_make(struct ir *ir, struct diag *diag);

#endif
