/*
 * prove.h: the proofs of linear attention (prove_chunks.c).
 */
#ifndef LATHE_LINEAR_PROVE_H
#define LATHE_LINEAR_PROVE_H

struct proof;
struct prover;

void prove_chunks(struct prover *p, struct proof *out);
void prove_parts(struct prover *p, struct proof *out);
void prove_tokens(struct prover *p, struct proof *out); /* prove_tokens.c */
void prove_gates(struct prover *p, struct proof *out);  /* prove_gates.c */

#endif
