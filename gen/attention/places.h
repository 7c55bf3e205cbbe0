/*
 * places.h: positions and heads of a call that has a part of all keys or heads.
 */
#ifndef LATHE_ATTENTION_PLACES_H
#define LATHE_ATTENTION_PLACES_H

#include <stdbool.h>

struct backward;
struct ir;
struct problem;
struct signature;

/* Ahead of every other pass over the clone of a spec: kernels go on counting the keys and heads that are
 * here, and formulas read places among all. Nothing changes where the call has all of them. */
void places_pass(struct ir *w, const struct problem *problem);
/* Of a backward pass over a part of the keys: what a row gives to inputs counts in the part with the first
 * key. */
void places_count_rows(struct ir *w, struct backward *back, const struct problem *problem);
/* Can it be computed without the other keys? False: why says what is missing. */
bool places_sums_fit(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                     const struct backward *back, char *why);
/* In a signature with all of its arguments: inputs that have a place for each head or key have one for each
 * of all, where a call has a part. */
void sign_whole_inputs(struct signature *s, const struct ir *ir);
/* May a call have some of the queries alone? Not where a formula reads at.row or at.len_q for their own sake,
   which count the rows of a call: at.row is what finds a row of an input over "q", and nothing else finds
   one. *line: of the spec, where it is otherwise. */
bool places_by_query(const struct ir *ir, int *line);
/* Does no formula read how many keys there are? False: *line does; 0: no memory. */
bool places_without_length(const struct ir *ir, int *line);
/* Does the mask, seen as it is written, leave no pair whose key is behind its query? */
bool places_are_causal(const struct ir *ir);

#endif
