/*
 * host_given.h: o and finals that a backward pass of attention is given on the host device. As in kernels,
 * they count where o and every final that the formulas read are there: weights are made of the finals, and
 * delta of o, also where they are of more keys than these.
 */
#ifndef LATHE_ATTENTION_HOST_GIVEN_H
#define LATHE_ATTENTION_HOST_GIVEN_H

#include "gen/attention/backward.h"
#include "gen/host/gradient.h"

struct host_given {
    bool counts;              /* else the row is computed anew, and a final of other keys is refused */
    struct ir *ir;            /* a copy of the spec, with */
    struct backward formulas; /* from LEAF_S; dL/ds is of LEAF_S */
    double empty[MAX_STATE];  /* finals of a row without live pairs; NaN: not the same for all rows */
    char hint[160];           /* what would make a final of other keys count */
    struct host_view o, final[MAX_STATE]; /* of the call, or of a sequence of it */
    bool is_given[MAX_STATE];
    /* of the row */
    double value[MAX_STATE]; /* of finals */
    double sum[MAX_STATE], high[MAX_STATE], norm[MAX_STATE], state[MAX_STATE];
    double delta;
};

/* Of a bound call; host_given_close in any case. Errors MEMORY. */
lathe_status host_given_open(struct host_given *g, const struct host_gradient *b, lathe_error *err);
void host_given_close(struct host_given *g);
/* Views of the call, or of a sequence of it. */
void host_given_enter(struct host_given *g, const struct host_call *call);
/* Where what is given counts: of the row that was entered, `weight` and dL/ds of its live pairs, from dout
   [d_v] and LEAF_DW and LEAF_DFINAL, which head->pair has; gradients of inputs are added up. `o`: scratch,
   d_v numbers. */
lathe_status host_given_row(struct host_given *g, struct host_gradient *b, struct host_head *head,
                            const double *dout, double *o, double *weight, double *ds, lathe_error *err);
/* Where it does not: are the finals that are given those of these keys? Errors ARG. `weight`: scratch. */
lathe_status host_given_check(const struct host_given *g, struct host_head *head, double *weight,
                              lathe_error *err);

#endif
