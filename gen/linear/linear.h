/*
 * linear.h: what a spec of linear attention says, read off its formulas: for kernels, the host device and
 * reports.
 */
#ifndef LATHE_LINEAR_H
#define LATHE_LINEAR_H

#include "gen/ir/spec.h"

/* What the decay varies with; each also with the head. */
enum decay_form {
    DECAY_NONE,  /* D_t = 1 */
    DECAY_HEAD,  /* the same for all tokens */
    DECAY_TOKEN, /* one number a token */
    DECAY_KEY,   /* per key channel at.i: D_t scales the rows of S; maybe the same for all tokens */
    DECAY_VALUE  /* per value channel at.j: the columns */
};
enum decay_form linear_decay_form(const struct ir *ir);
const char *linear_decay_text(enum decay_form form); /* "per token" */
/* Do tokens read or write by vectors other than their keys, or ahead of the decay? */
bool linear_has_vectors(const struct ir *ir);
/* Does key_mod read k as it is given? Else there is no such argument: keys are made of inputs alone. */
bool linear_reads_key(const struct ir *ir);
/* The input over "seqs" that is read at at.b, or -1. In packed sequences b is 1 and at.b is 0 for all of
   them, so that every sequence would have entry 0. */
int linear_reads_by_batch(const struct ir *ir);
/* Why such a spec takes no `cu`. */
void linear_say_unpacked(const struct ir *ir, int input, char *why, size_t size);
/* Does the backward pass gain by o of the forward pass? Only before an output_mod, which o has behind it. */
bool linear_wants_output(const struct ir *ir);

#endif
