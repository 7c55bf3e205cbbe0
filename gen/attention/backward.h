/*
 * backward.h: private to the planner and the emitters. The backward pass of attention as formulas that
 * kernels compute: per pair, per row, per element of a vector mod.
 */
#ifndef LATHE_BACKWARD_H
#define LATHE_BACKWARD_H

#include "gen/attention/split_final.h"
#include "gen/heads/mods.h"
#include "gen/ir/spec.h"

struct backward {
    /* from LEAF_QK, LEAF_DW, LEAF_FINAL, LEAF_STATE (of a finished row), LEAF_DFINAL and LEAF_DELTA */
    int weight;         /* of the pair */
    int ds;             /* dL/d<q', k'> / factor */
    int factor;         /* span 0, and the same for all query heads of a key head */
    int n_sums;         /* of a pass over each row before the others: */
    int sum[MAX_STATE]; /* per pair, from LEAF_QK, LEAF_DW and LEAF_FINAL: what adds up to LEAF_ROWSUM + k
                         */
    struct site_list pair;
    struct site_list row; /* once per row; */
    struct site_list
        empty; /* in place of these, by leaf, in rows without live pairs: from LEAF_DFINAL alone */
    struct stage_back stage[MOD_COUNT][MAX_STAGES];
    bool delta; /* sum over d of o' do' is used; so are */
    bool final[MAX_STATE], seed[MAX_STATE], state[MAX_STATE];
    bool sum_final[MAX_STATE]; /* the same of sum[] */
    /* Finals that are taken apart in rows where they are large: formulas name LEAF_HIGH and LEAF_NORM,
       which are the final and 1 in other rows. */
    struct final_split split[MAX_STATE];
};
bool backward_splits(const struct backward *b); /* some final is */
/* As ir_print has functions; of: a struct backward. */
void backward_print(const void *of, const struct ir *w, struct text_buf *out);

struct backward_wanted {    /* what is compiled in */
    bool seed[MAX_STATE];   /* dlse and its like are given */
    bool input[MAX_INPUTS]; /* the gradient of an input is wanted */
};
void backward_wanted_make(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                          struct backward_wanted *out);

enum { WHY_BYTES = 256 };
/* Derive in ir's own pool, which grows. False: not expressible, and why: one sentence. */
bool backward_derive(struct ir *ir, const struct backward_wanted *wanted, struct backward *out, char *why);
/* The same of the online function alone: everything is from LEAF_S, ds is dL/ds of it, factor is 1. */
bool backward_derive_online(struct ir *ir, const struct backward_wanted *wanted, struct backward *out,
                            char *why);
/* backward_split.c: after backward_derive, before lowering. False: memory ran out. */
bool backward_split(struct ir *ir, struct backward *b);
/* Call `f` with every root of the formulas; it may replace it. Those of `split` are no formulas. */
void backward_each_root(struct backward *b, const struct ir *ir, void (*f)(void *context, int *root),
                        void *context);

int site_find(const struct site_list *list, int leaf); /* -1: there is none */

/* After deriving and after lowering: forms of the sites, and what is used. */
void backward_finish(const struct ir *ir, struct backward *b);

enum { BACKWARD_ROOTS_MAX = 3 + 5 * MAX_SITES + MAX_STATE };
/* What is computed per pair or row, and the reads of sites; returns how many. Without vector mods. */
int backward_pair_roots(const struct backward *b, int *root);
/* Must the forward kernel run, for o, finals or row states that the call does not give? */
bool backward_runs_forward(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                           const struct backward *b);

/* backward_tables.c: tables in shared memory, in which a warp adds up what its pairs bring to an input that
   is read at computed places. */
struct site_tables {
    int n;
    int64_t entries[MAX_SITES]; /* elements that pairs of one head may add to; 0: known at the launch; -1: the
                                   site has no table */
};
/* May lanes of a warp add to one element of this site at once? */
bool site_meets(const struct ir *ir, const struct site *site);
/* Does index d of this read vary between pairs of a head? */
bool site_varies(const struct ir *ir, int leaf, int d);
void site_tables_make(const struct ir *ir, const struct problem *problem, const struct site_list *list,
                      struct site_tables *out);
/* Floats of a warp for each site, where it may have `budget` for all of them; returns how many it takes. */
int site_tables_fit(const struct site_tables *t, int budget, int room[MAX_SITES]);

/* back_pair.c: what pairs want of a kernel. */
struct pair_needs {
    int rows;  /* floats of a row that a pair reads */
    bool norm; /* and one more, that weights of rows with large finals are multiplied by */
    bool diag; /* a value is shared along diagonals */
    bool dq;   /* dq is wanted: plan_backward.c says */
    bool more; /* sites, ds wants the score beside the weight, or the mask reads data: registers beside those
                  of the products */
    struct site_tables tables;
};
/* UNSUPPORTED: a pair reads too many values of its row. Else MEMORY. */
lathe_status backward_measure(const struct ir *w, const struct signature *sig, const struct problem *problem,
                              const struct backward *b, struct pair_needs *out);

/* Is an element of an input's gradient a sum? Not where every pair, by its batch, head, row and key, has its
 * own. */
bool backward_shares_elements(const struct ir *ir, const struct backward *b, int input);
/* False: why sums that do not depend on their order would not fit. `wanted`: whose gradients are. */
bool backward_sums_fit(const struct ir *ir, const struct backward *b, const struct backward_wanted *wanted,
                       char *why);

#endif
