/*
 * lower.h: private to the emitters. A spec's IR specialised for a problem and rewritten into what a kernel
 * computes, and the schedule of an online function over the passes of a tile.
 */
#ifndef LATHE_LOWER_H
#define LATHE_LOWER_H

#include "gen.h"

/* Specialise a clone: head dims become constants, absent inputs their defaults, detach disappears, and
   attention's online function is composed with scale and score_mod so that it starts from PARAM_QK.
   NULL: out of memory. The caller frees it with ir_free. */
struct ir *lower(const struct ir *ir, const struct signature *sig, const struct problem *problem);

enum { MAX_REDUCTIONS = 8 };

/* How online_fwd runs over the elements of a tile; see schedule.c. */
struct schedule {
    int passes;
    int n_reductions;
    int reduction[MAX_REDUCTIONS]; /* nodes, ascending pass */
    int pass[MAX_REDUCTIONS];
    bool lazy[MAX_REDUCTIONS];
    bool state_lazy[MAX_STATE];
    int carry;      /* node that elements hold after pass 0 */
    int store_pass; /* pass that turns an element into its weight */
    int weight;     /* node */
    int diag;       /* node that depends on at.q - at.kv only and is worth sharing; -1: none */
};
/* False: more than MAX_REDUCTIONS reductions. */
bool schedule_online(struct ir *w, struct schedule *out);

/* reach[i]: node i is needed for the roots when the nodes in `stop` are given. */
void reach(const struct ir *w, const int *root, int n_roots, const int *stop, int n_stop, bool *out);

#endif
