/*
 * sign_parts.h: parts of a row as results of the forward pass of attention.
 */
#ifndef LATHE_ATTENTION_SIGN_PARTS_H
#define LATHE_ATTENTION_SIGN_PARTS_H

#include <stdbool.h>

struct ir;
struct problem;
struct signature;

/* Behind o, the finals and all that the forward pass takes; or why there are none. */
void sign_parts(struct signature *s, const struct ir *ir);
/* Does a pass give parts of its rows, in the place of o and the finals? Forward: of some keys. Combine: of
   what its parts have. */
bool makes_parts(const struct signature *sig, const struct problem *problem);

#endif
