/*
 * gradient.h: what the backward passes of the kinds share on the host device: functions that are
 * differentiated, and gradients of inputs, which are summed over all rows.
 */
#ifndef LATHE_GEN_HOST_GRADIENT_H
#define LATHE_GEN_HOST_GRADIENT_H

#include "gen/host/host.h"
#include "gen/derive/diff.h"

struct diag;

struct host_graph { /* a function and its adjoints */
    struct diff_result adjoint;
    int n_eval;
    int *eval; /* adjoints, then their leaves (a read outside a tensor shows), then one node more */
};
/* seed[i]: the node of dL/d root[i]; more: a node to be evaluated, too, or -1. False, and says why. */
bool host_graph_make(struct host_graph *g, struct ir *ir, const int *root, const int *seed, int n, int more,
                     struct diag *diag);
void host_graph_free(struct host_graph *g);
/* The adjoint of a parameter as n numbers; 0 where nothing depends on it. */
void host_graph_values(const struct host_graph *g, const struct eval_env *env, int param, int64_t n,
                       double *out);

struct host_input_gradient {
    const lathe_arg *out; /* NULL: not wanted */
    double *sum;          /* compact, row-major */
    lathe_arg part;       /* the part of `sum` that is added to; without data: all of it */
    int64_t part_shape[MAX_DIMS], part_stride[MAX_DIMS];
    struct host_turned turned;
};
struct host_gradient { /* one call */
    struct ir *ir;     /* a copy, which adjoints make grow */
    struct host_call call;
    struct host_input_gradient input[MAX_INPUTS];
};
/* A copy of the IR, in which graphs are made; then the arguments; at the end the sums go out.
   host_gradient_close in any case. */
lathe_status host_gradient_open(struct host_gradient *b, const struct host_request *r, lathe_error *err);
lathe_status host_gradient_bind(struct host_gradient *b, const struct host_request *r, lathe_error *err);
void host_gradient_store(const struct host_gradient *b);
void host_gradient_close(struct host_gradient *b);
/* Why a function has no adjoint: SPEC. */
lathe_status host_refused(const struct diag *diag, lathe_error *err);
/* Add `n` values of a node to the input that the node `read` reads, both just evaluated. */
lathe_status host_scatter_site(struct host_gradient *b, const struct eval_env *env, int read, int value,
                               int64_t n, lathe_error *err);
/* Add the adjoints of one evaluation to the inputs they belong to. */
lathe_status host_scatter(struct host_gradient *b, const struct host_graph *g, const struct eval_env *env,
                          lathe_error *err);
/* The first row from `from` on that counts; `end`: none before that does. */
int64_t host_next_row(const struct host_call *call, int64_t from, int64_t end);

#endif
