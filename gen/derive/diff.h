/*
 * diff.h: reverse mode, on the pool.
 */
#ifndef LATHE_GEN_DIFF_H
#define LATHE_GEN_DIFF_H

#include "gen/ir/ir.h"

struct ir;
struct diag;

/* Adjoints of leaves, as nodes of the same pool. Reductions over axes that a leaf lacks are inserted;
   a LOAD or SCALAR of an input with grad has one adjoint node per load site, to be added to the
   input's gradient at its indices (summed over the rows and elements of its span by the caller). */
struct adjoint {
    int leaf;    /* node number: PARAM, LOAD or SCALAR */
    int adjoint; /* node number */
};
struct diff_result {
    int n;
    struct adjoint *item; /* diff_free */
};
/* L = sum over roots of <seed, root>. False: an op without a derivative, with its line; with no words in
 * diag: memory ran out. */
bool diff(struct ir *ir, const int *root, const int *seed, int n_roots, struct diff_result *out,
          struct diag *diag);
void diff_free(struct diff_result *r);
bool diff_has_rule(enum ir_op op);

#endif
