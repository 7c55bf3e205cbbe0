/*
 * prove.h: what host_grad.c and the files of the prover share.
 *
 *  - struct row_graph: the formulas of attention composed into one graph from PARAM_QK, with a row of
 *    keys as one tile.
 *  - struct prover: one run of `prove`: a copy of the spec (derived passes add nodes, and others read it),
 *    its signatures, a stream of random numbers.
 *  - struct data: random arguments for one set of sizes.
 */
#ifndef LATHE_GEN_PROVE_H
#define LATHE_GEN_PROVE_H

#include "gen.h"
#include "host.h"

#include <math.h>

/* ---- row_graph.c ------------------------------------------------------------------------------- */

struct row_graph { /* node numbers */
    int score;     /* after score_mod */
    int weight;    /* of online, before the epilogue's factor */
    int state[MAX_STATE];
    int factor;
    int final[MAX_STATE];
    int forward; /* the final weight, from score and finals */
};
void row_graph_make(struct ir *ir, struct row_graph *out);

/* Node of a parameter, made where the spec does not use it. */
int param_node(struct ir *ir, int param);

/* ---- prove_data.c ------------------------------------------------------------------------------ */

struct prover {
    struct ir *ir; /* a copy; float inputs are of any dtype in it, so that f64 serves */
    struct signature forward;
    struct signature backward;
    struct row_graph row; /* attention */
    uint64_t random;
};

enum { DATA_MAX = 2 * MAX_ARGS };
struct data {
    int n;
    lathe_arg arg[DATA_MAX]; /* every argument of both passes but q_start; f64, i32 or u8 */
    char name[DATA_MAX][NAME_MAX_BYTES];
    int64_t shape[DATA_MAX][MAX_DIMS];
};
/* Random numbers: uniform in (0, 1), in 0 .. n - 1, and normal with deviation 1. */
double random_unit(struct prover *p);
int64_t random_below(struct prover *p, int64_t n);
double random_normal(struct prover *p);
/* dim: value of every symbol; free dims that are 0 become 16. False: out of memory; data_free either way. */
bool data_make(struct data *out, struct prover *p, const int64_t *dim);
void data_free(struct data *d);
const lathe_arg *data_find(const struct data *d, const char *name);
/* The arguments that a signature knows; returns how many. */
int data_select(const struct data *d, const struct signature *sig, lathe_arg *out);

/* ---- verdicts ---------------------------------------------------------------------------------- */

/* |a - b| over the larger of the two and `scale`; equal infinities are close, NaN is never. */
double proof_distance(double a, double b, double scale);
void proof_begin(struct proof *out, const char *what, double bound);
/* Record an error; true where it is the first one beyond the bound: the caller says where. */
bool proof_record(struct proof *out, double error);
/* The same beside what rounding alone may make of it: an error beyond the bound, but not beyond that, tells
   nothing. */
bool proof_compare(struct proof *out, double error, double rounding);
/* That rounding, of weights of scores of this size: a score is as wrong as its last digit. */
enum { TOO_MANY_LOST = 90 /* percent */, ROUNDINGS = 16 };
double proof_rounding(double largest_score);
/* The largest score of a row that counts: of keys with a weight. */
double proof_score_size(const double *score, const double *weight, int64_t n);
/* Say what was lost; a proof of which nearly all is has failed. */
void proof_say_lost(struct proof *out, int line);
/* As it is to be printed: printf writes a NaN's sign, which says nothing. */
static inline double proof_shown(double value)
{
    return isnan(value) ? (double)NAN : value;
}
void proof_blame(struct proof *out, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The evaluator refused: its sentence becomes the note. */
void proof_refused(struct proof *out, const lathe_error *err);
/* Line of a node in the spec's own file; where it has none, of what it is made of; else 0. */
int proof_line(const struct ir *ir, int node);

/* ---- the proofs -------------------------------------------------------------------------------- */

void prove_rows(struct prover *p, struct proof *online, struct proof *forward, struct proof *combine);
void prove_gradients(struct prover *p, struct proof *out);
void prove_mask(struct prover *p, struct proof *out);
void prove_backward(struct prover *p, struct proof *out);
void prove_own_backward(struct prover *p, struct proof *out);

#endif
