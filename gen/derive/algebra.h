/*
 * algebra.h: IR values as sums of products of powers and exponentials, so that formulas which differ in form
 * can be recognised as one: exp(s - m) / l and exp(s - lse) with lse = m + log l. Private to backward.c.
 */
#ifndef LATHE_ALGEBRA_H
#define LATHE_ALGEBRA_H

#include <stdbool.h>

struct ir;

enum { MONOMIAL_TERMS = 10, POLY_MONOMIALS = 8 };

/* by * log(node) or, linear, by * node: a summand of a monomial's logarithm. */
struct log_term {
    int node;  /* canonical: guards and detach() below it are gone. Equal values are mostly equal nodes */
    int shown; /* the spec's own node, to build formulas of */
    bool linear;
    double by;
};
struct monomial { /* coefficient * prod node^by * exp(sum by * node) */
    double coefficient;
    int n;
    struct log_term term[MONOMIAL_TERMS];
};
struct poly { /* a sum; n = 0: zero */
    int n;
    struct monomial item[POLY_MONOMIALS];
};

/* Fill out[i] with the form of root[i]. What does not fit is a single term, as is the node `opaque` (-1:
   none). False: out of memory. */
bool poly_expand(struct ir *ir, int opaque, const int *root, int n_roots, struct poly *out);
/* The logarithm's form: the monomial exp(value of root). False: out of memory. */
bool poly_expand_exponential(struct ir *ir, int root, struct monomial *out);
/* *a times b^power. False where it has too many terms: *a is as it was. */
bool monomial_times(struct monomial *a, const struct monomial *b, double power);
/* Node of its value; what stands below it has the same span and phase as in the formula. */
int monomial_build(struct ir *ir, const struct monomial *m);
int poly_build(struct ir *ir, const struct poly *p);

#endif
