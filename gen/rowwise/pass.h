/*
 * pass.h: a pass of a row-wise spec as rows in and rows out, private to plan and emit: which tensors of
 * row shape are read, what is made of an element, what is kept per row, and what is summed over the rows.
 * Backward is such a pass whose formulas come from diff().
 */
#ifndef LATHE_ROW_PASS_H
#define LATHE_ROW_PASS_H

#include "gen/ir/spec.h"
#include "runtime/recipe/recipe.h"

enum { ROW_STREAMS = 6, ROW_VALUES = 2 * MAX_STATE, ROW_SITES = 12, ROW_SCANS = 4, ROW_WALKS = 4 };

struct row_stream { /* a tensor of row shape */
    int node;       /* in: the leaf; out: the root, in ir->row */
    int arg;        /* of the signature */
};

struct row_value { /* one f32 per row */
    int node;      /* given: a PARAM; kept: the root, in ir->row */
    int arg;
};

enum site_form {
    SITE_ROW,    /* one sum over all rows: of a scalar, or of an element that every row reads */
    SITE_COLUMN, /* one sum for each column */
    SITE_SCATTER /* added by atomics, wherever the indices say */
};

/* What one read of an input adds to its gradient: its adjoint, summed over the rows. */
struct row_site {
    enum site_form form;
    int root;              /* in ir->row: the adjoint */
    int arg;               /* of the signature: the gradient, or a total */
    int n_index;           /* of the dims that are not the column's */
    int index[INPUT_DIMS]; /* roots in ir->row, span 0; SCATTER: any */
    bool once;             /* SCATTER: the same place for the whole row */
};

/* A logarithm of a row's sum that is given, as f32: where it is large it has lost the logarithm, and the row
   is added up once more. The formulas divide by LEAF_NORM + k, of given statistic k, which is 1 in most rows.
 */
struct row_norm {
    int final; /* k */
    int given; /* in row_pass.given */
    int term;  /* nodes, of no formula in ir->row: of an element, what is added up; */
    int norm;  /* and LEAF_NORM + k, from that sum as LEAF_ROWSUM + k */
};

struct row_pass {
    struct ir *ir; /* lowered; ir->row has a root for every formula below, in this order */
    int n_in, n_out, n_given, n_kept, n_sites;
    struct row_stream in[ROW_STREAMS];
    struct row_stream out[ROW_STREAMS];
    struct row_value given[ROW_VALUES];
    struct row_value kept[ROW_VALUES];
    struct row_site site[ROW_SITES]; /* those of one input are neighbours */
    int n_scans, n_walks;
    int scan[ROW_SCANS];     /* nodes, each behind those that it is made of */
    int walk[ROW_SCANS];     /* which walk along the row makes it */
    bool reverse[ROW_WALKS]; /* the direction of each walk */
    int n_columns;           /* sites of form COLUMN */
    int n_scatters;          /* of form SCATTER */
    int n_norms;
    struct row_norm norm[MAX_STATE]; /* of those that the formulas use */
};

/* Where segments of scan k begin; a start that is the same at all places is no column. */
enum scan_starts { STARTS_NEVER, STARTS_BY_COLUMN, STARTS_ANYWHERE };
static inline enum scan_starts row_scan_starts(const struct row_pass *pass, int k)
{
    const struct ir_node *scan = &pass->ir->node[pass->scan[k]];
    if (ir_scan_start(scan) < 0)
        return STARTS_NEVER;
    const struct ir_node *start = &pass->ir->node[ir_scan_start(scan)];
    if (start->op == OP_CONST && start->value == 0.0)
        return STARTS_NEVER;
    return (start->span & SPAN_Q) || !(start->span & SPAN_KV) ? STARTS_ANYWHERE : STARTS_BY_COLUMN;
}

/* How many elements of a row an argument has: 0: all. */
static inline int row_first(const struct signature *sig, int arg)
{
    int first = 0;
    for (int d = 0; d < sig->arg[arg].ndim; d++)
        first += sig->arg[arg].dim[d].literal;
    return first;
}
bool row_pass_has_first(const struct row_pass *pass, const struct signature *sig); /* of any tensor of rows */

/* ---- shared_reads.c */

enum { ROW_KEYS = 4 };
struct row_places { /* of rows: rows with the same keys have the same */
    int n_cells;    /* reads of inputs by row and by a group of columns */
    int n_keys;
    int key[ROW_KEYS]; /* nodes: values of a row that are known before its reductions */
};
bool row_is_cell(const struct ir *w, int node);
bool row_site_is_steady(const struct ir *w,
                        const struct row_site *site); /* the place steps by 1 along a row, if at all */
/* Cells or scatters, and the places of all of them are told by keys and groups of columns? */
bool row_pass_places(const struct row_pass *pass, struct row_places *places);

/* ---- variance.c */

/* Sums of squared distances from the mean that the kernel joins in the pass of the mean; false: there are
   none, and nothing was changed. Nothing may be made of the formulas behind it. */
bool variance_take(struct ir *w);
/* Passes over a row in front of the last one, if those sums were taken; -1: there are none. */
int variance_passes(const struct ir *w);
int variance_sum(const struct ir *w, int node); /* the plain sum beside such a one; -1: it is another node */

/* ---- log_sum.c */

struct log_sum { /* given = stabiliser + log(sum), for any stabiliser */
    int stabiliser, sum, given;
    int final; /* which statistic is given */
    int norm;  /* what stands for the sum where the stabiliser is what is given: 1, but for rounding */
};
bool log_sum_find(const struct ir *w, int formula, struct log_sum *out); /* all but `given` */
/* The same value without stabiliser and sum, or the node where it is not known to need neither. */
int log_sum_use(struct ir *w, int node, const struct log_sum *s);
/* What adds up to the sum where the stabiliser is what is given, of an element; and the norm, from what they
   add up to, `added`: 1 where no digits are lost. -1: the sum is no sum of elements. */
int log_sum_term(struct ir *w, const struct log_sum *s);
int log_sum_norm(struct ir *w, const struct log_sum *s, int added, lathe_dtype rows);

/* ---- given.c */

struct row_given { /* results that the backward pass is given */
    int n;
    int from[MAX_STATE]; /* formulas, */
    int to[MAX_STATE];   /* and the parameters that stand for them: LEAF_FINAL + k, LEAF_SAVED + k */
    int n_logs;          /* of them, logarithms of sums of exponentials */
    struct log_sum log[MAX_STATE];
};
/* Which results count. One per row that needs no reduction is rather computed. w: the spec, whose pool grows.
 */
void row_given_take(struct ir *w, const struct signature *sig, const struct problem *problem,
                    struct row_given *out);
/* A formula with what is given in place of its own; it may name LEAF_NORM. */
int row_given_use(struct ir *w, int node, const struct row_given *g);
/* The sum of a row's distances from its mean is zero, but for the mean's rounding. The derivative of a
   variance asks for it: in w, where the mean is given, it becomes zero. spec: the pool of row_given_take. */
void row_given_drop_sums(const struct ir *spec, struct ir *w, const struct row_given *g);

enum { ROW_WHY_BYTES = 256 };
/* The pass of a problem: what is absent is not read, what is not wanted is not made. UNSUPPORTED: *why says
   why not (ROW_WHY_BYTES). The caller frees it with row_pass_free; where it fails, there is nothing to free.
 */
lathe_status row_pass_make(const struct ir *ir, lathe_pass which, const struct signature *sig,
                           const struct problem *problem, struct row_pass *out, char *why);
void row_pass_free(struct row_pass *pass);
bool row_pass_reduces(const struct row_pass *pass);    /* is there a reduction of the row? */
int row_pass_count(const struct row_pass *pass);       /* passes over the row that reduce */
bool row_pass_has_powers(const struct row_pass *pass); /* among its scans: weights with a reference */
bool row_pass_has_ranks(const struct row_pass *pass);  /* among its scans: places in falling order */
/* Tensors that the scans of the first `walks` walks are made of: a bit for each of pass->in. */
int row_pass_reads(const struct row_pass *pass, int walks);
/* rowwise_inner_scan: words of a row that say where the walks but the last were. */
int row_pass_carried_words(const struct row_pass *pass);

/* ---- host.c ---- */

struct host_call;
int64_t host_row_most(const struct host_call *call); /* elements: of a row, or of a result that is longer */

#endif
