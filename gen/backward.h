/*
 * backward.h: private to the planner and the emitters. The backward pass of attention as formulas that
 * kernels compute: per pair, per row, per element of a vector mod.
 */
#ifndef LATHE_BACKWARD_H
#define LATHE_BACKWARD_H

#include "gen.h"

/* What the address of a site depends on, as in templates/slots_base.cuh. In vector mods ROW is the token, and
   DIM the index in the head dim. */
enum address_form {
    ADDRESS_HEAD,
    ADDRESS_ROW,
    ADDRESS_COLUMN,
    ADDRESS_DIAGONAL,
    ADDRESS_ELEMENT,
    ADDRESS_DIM
};

enum { MAX_SITES = 12 };
struct site {  /* a read of an input whose gradient is wanted */
    int leaf;  /* LOAD or SCALAR node */
    int value; /* dL/d(what it reads): per pair, row or element */
    int form;  /* enum address_form */
};
struct site_list {
    int n;
    struct site item[MAX_SITES];
};

struct stage_back { /* of a stage of a vector mod */
    int root[2]; /* adjoints of PARAM_X, or of PARAM_LO and PARAM_HI, from PARAM_DX or PARAM_DLO, PARAM_DHI */
    struct site_list site;
};

struct backward {
    /* from PARAM_QK, PARAM_DW, PARAM_FINAL, PARAM_STATE (of a finished row), PARAM_DFINAL and PARAM_DELTA */
    int weight;         /* of the pair */
    int ds;             /* dL/d<q', k'> / factor */
    int factor;         /* span 0, and the same for all query heads of a key head */
    int n_sums;         /* of a pass over each row before the others: */
    int sum[MAX_STATE]; /* per pair, from PARAM_QK, PARAM_DW and PARAM_FINAL: what adds up to PARAM_ROWSUM + k
                         */
    struct site_list pair;
    struct site_list row; /* once per row */
    struct stage_back stage[MOD_COUNT][MAX_STAGES];
    bool delta; /* sum over d of o' do' is used; so are */
    bool final[MAX_STATE], seed[MAX_STATE], state[MAX_STATE];
    bool sum_final[MAX_STATE]; /* the same of sum[] */
};

struct backward_wish {      /* what is compiled in */
    bool seed[MAX_STATE];   /* dlse and its like are given */
    bool input[MAX_INPUTS]; /* the gradient of an input is wanted */
};
void backward_wish_make(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                        struct backward_wish *out);

enum { WHY_BYTES = 256 };
/* Derive in ir's own pool, which grows. False: not expressible, and why: one sentence. */
bool backward_derive(struct ir *ir, const struct backward_wish *wish, struct backward *out, char *why);
/* Call `f` with every root of the formulas; it may replace it. */
void backward_each_root(struct backward *b, const struct ir *ir, void (*f)(void *context, int *root),
                        void *context);

/* After lowering: forms of the sites, and what is used. */
void backward_finish(const struct ir *ir, struct backward *b);

enum { BACKWARD_ROOTS_MAX = 3 + 4 * MAX_SITES + MAX_STATE };
/* What is computed per pair or row, and the reads of sites; returns how many. Without vector mods. */
int backward_pair_roots(const struct backward *b, int *root);
/* Must the forward kernel run, for o, finals or row states that the call does not give? */
bool backward_runs_forward(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                           const struct backward *b);

/* emit_backward.c: what pairs want of a kernel. */
struct pair_needs {
    int rows;  /* floats of a row that a pair reads */
    bool diag; /* a value is shared along diagonals */
    bool dq;   /* dq is wanted: plan_backward.c says */
    bool more; /* sites, ds wants the score beside the weight, or the mask reads data: registers beside those
                  of the products */
};
bool backward_measure(struct ir *w, const struct signature *sig, const struct problem *problem,
                      const struct backward *b, struct pair_needs *out);

/* Is an element of an input's gradient a sum? Not where every pair, by its batch, head, row and key, has its
 * own. */
bool backward_shares_elements(const struct ir *ir, const struct backward *b, int input);
/* False: why sums that do not depend on their order would not fit. `wish`: the gradients that are wanted. */
bool backward_sums_fit(const struct ir *ir, const struct backward *b, const struct backward_wish *wish,
                       char *why);

/* lower() of lower.h, and the formulas likewise. NULL: refused, and why. ir_free. */
struct ir *lower_backward(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                          struct backward *out, char *why);

#endif
