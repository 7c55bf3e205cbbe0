/*
 * host.h: what the files of the host device share. Seen by host files alone.
 *
 *  - struct host_call: the arguments of one call, bound by the signature.
 *  - struct host_view: a tensor as rows of numbers.
 *  - struct host_head: one (b, h) of attention: keys and values after their mods, and the state of
 *    the row that was entered last. The way of a row:
 *
 *        host_head_init                     once per call
 *          host_head_enter(b, h)            k', v' (kept while h_kv stays the same) and the scale
 *            host_row_enter(row)            q', the live keys, <q', k'>, scores
 *              host_row_online(...)         weights, factor of o and finals; row as one tile
 *        host_head_free
 *
 * Everything is double precision. Functions that evaluate a spec return LATHE_OK, LATHE_SPEC (a read
 * outside a tensor, an integer division by zero: *err names file and line) or LATHE_MEMORY.
 */
#ifndef LATHE_GEN_HOST_H
#define LATHE_GEN_HOST_H

#include "gen/ir/eval.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/bind.h"

/* An argument with its last two dims swapped. */
struct host_turned {
    lathe_arg arg;
    int64_t shape[INPUT_DIMS];
    int64_t stride[INPUT_DIMS];
};
const lathe_arg *host_turn(struct host_turned *out, const lathe_arg *arg);

struct host_request { /* of a backward pass, as it was called */
    const struct ir *ir;
    const struct signature *sig;
    const lathe_arg *args;
    int n;
    const int64_t *rows; /* whose seeds count; NULL: all */
    int64_t n_rows;
    struct eval_mode *mode; /* of `lathe check`; NULL: double precision */
};

struct host_call { /* stays where it was bound: inputs may point into it */
    const struct ir *ir;
    const struct signature *sig;
    struct problem problem;                /* dim[] of every symbol that the arguments bind */
    const lathe_arg *arg[MAX_ARGS];        /* by place in the signature; NULL: not given */
    const lathe_arg *input[MAX_INPUTS];    /* by number in ir->input; NULL: not given */
    struct host_turned turned[MAX_INPUTS]; /* rows along an inner dim: of inputs that are such rows */
    int64_t q_start;                       /* attention: position of query row 0 among the keys */
    struct key_places keys;                /* attention: where its keys are among all */
    int64_t h_start;                       /* attention: the first query head among all */
    int64_t sequence;                      /* attention: at.b of batch 0 */
    const int64_t *page;                   /* attention: the pages of that sequence, all of the pool */
    int64_t first_row;   /* where head_rows is not 0, the call is a part of another one: its number of this */
    int64_t head_rows;   /* one's row 0 of head 0, and how many rows of that are between heads */
    const int64_t *rows; /* backward: the rows whose seeds count; NULL: all */
    int64_t n_rows;
    struct eval_tape *tape; /* of every evaluation of this call; NULL: none */
    struct eval_mode *mode; /* the same */
};

/* Check and bind. The arguments must outlive the call. Errors ARG. */
lathe_status host_bind(struct host_call *out, const struct ir *ir, const struct signature *sig,
                       const lathe_arg *args, int n, lathe_error *err);
/* Are these ascending numbers of rows below `count`? Errors ARG. */
lathe_status host_check_rows(const int64_t *rows, int64_t n_rows, int64_t count, lathe_error *err);
/* The argument of that name, NULL where it was not given. */
const lathe_arg *host_arg(const struct host_call *call, const char *name);
/* Size of a symbol; 0 where it is not bound. */
int64_t host_dim(const struct host_call *call, enum sym sym);
/* An evaluation over `axis` for this call: sizes in at[], inputs bound. The caller frees it with eval_free.
 */
void host_env_init(struct eval_env *env, const struct host_call *call, uint8_t axis);
/* eval_run, with its message in *err. */
lathe_status host_eval(struct eval_env *env, const int *root, int n_roots, lathe_error *err);
lathe_status host_eval_error(const struct eval_env *env, lathe_error *err); /* what has failed in it */
/* Element j of an evaluated node, whether it varies along the axis or not. */
double host_value(const struct eval_env *env, int node, int64_t j);
/* Copy an evaluated node to n doubles, spread where it does not vary along the axis. */
void host_values(const struct eval_env *env, int node, int64_t n, double *out);
lathe_status host_out_of_memory(lathe_error *err);

/* A tensor as [.., .., .., n]: strides in elements; dims that the argument lacks in front have stride 0. */
struct host_view {
    void *data;
    lathe_dtype dtype;
    int64_t stride[4];
};
/* Its last dims become the last `ndim` of the view's first `ndim` places. arg NULL: data is NULL. */
void host_view_make(struct host_view *out, const lathe_arg *arg, int ndim);
/* rowwise: of x and its like, so that rows are along the view's last place. */
void host_rows_make(struct host_view *out, const struct host_call *call, const char *name);
void host_view_load(const struct host_view *view, int64_t i0, int64_t i1, int64_t i2, int64_t n, double *out);
void host_view_store(const struct host_view *view, int64_t i0, int64_t i1, int64_t i2, int64_t n,
                     const double *in);

struct host_vectors {              /* vectors of one call and their mods: vectors.h */
    struct eval_env env;           /* axis DIM; at[] of the token */
    double *index;                 /* 0, 1, 2, ...: at.i; all of the widest vector's size */
    double *lo;                    /* scratch: one half of a vector's pairs */
    double *hi;                    /* the other */
    double *dlo, *dhi;             /* the same of gradients */
    double *stage[MAX_STAGES + 1]; /* scratch: what enters and leaves each stage */
};

struct host_head {
    const struct host_call *call;
    struct host_view q_in, k_in, v_in;
    struct host_view q2_in, k2_in; /* what q and k go on with, from element d1 on */
    int64_t len_q, len_kv;
    int64_t page; /* keys of a page, which the views have in the place of a batch; 0: keys lie in batches */
    int d, d_v;
    int d1;               /* elements of q and k themselves: d, but beside q2 and k2 */
    struct eval_env pair; /* axis KV: mask, scale, score, online, epilogue. at[] holds b, h, h_kv, q, row of
                             the present row */
    struct host_vectors vector;

    /* of the head that was entered last */
    int64_t b, h, h_kv; /* -1: none yet */
    double scale;
    double *k; /* [len_kv, d] after key_mod */
    double *v; /* [len_kv, d_v] after value_mod */

    /* of the row that was entered last */
    int64_t row;
    double *q;      /* [d] after query_mod */
    int64_t n_live; /* keys that the mask keeps */
    int64_t *live;  /* [n_live] their numbers, ascending */
    double *kv;     /* [n_live] the same as doubles: at.kv of the pairs */
    double *qk;     /* [n_live] <q', k'> */
    double *scaled; /* [n_live] scale * qk: LEAF_S of score_mod */
    double *s;      /* [n_live] after score_mod: LEAF_S of online and forward */

    double *every_kv; /* [len_kv] at.kv of each */
};

lathe_status host_head_init(struct host_head *head, const struct host_call *call, lathe_error *err);
void host_head_free(struct host_head *head);
lathe_status host_head_enter(struct host_head *head, int64_t b, int64_t h, lathe_error *err);
/* Sets head->pair for the live pairs: n = n_live, at_axis[AT_KV] = kv, param[LEAF_QK] = qk, param[LEAF_S] =
 * s. */
lathe_status host_row_enter(struct host_head *head, int64_t row, lathe_error *err);
/* The online function over the whole row and its epilogue. weight: n_live values. A row without live pairs
   (n_live == 0) must not come here: its o is 0 and its finals are those of host_row_empty. */
lathe_status host_row_online(struct host_head *head, double *weight, double *factor, double *finals,
                             lathe_error *err);
/* Its first half: weights and row states. */
lathe_status host_row_states(struct host_head *head, double *weight, double *state, lathe_error *err);
/* Its second half, for row states that are at hand: factor and finals. */
lathe_status host_row_end(struct host_head *head, const double *state, double *factor, double *finals,
                          lathe_error *err);
/* o += sum of weight * value over the live keys; and o in head->vector.stage[0], times factor, through its
   mod: *o is where that leaves it. */
void host_row_values(double *o, const struct host_head *head, const double *weight);
lathe_status host_row_output(struct host_head *head, double factor, double **o, lathe_error *err);
/* The finals of the row that was entered, had it no live pair: the epilogue of the starting state, -inf where
   that is NaN. */
lathe_status host_row_empty(struct host_head *head, double *finals, lathe_error *err);

/* at.h and at.h_kv of query head h of the call's. */
void host_at_head(double *at, const struct host_call *call, int64_t h);
/* at[] of a token of head->vector, for its mods. `tensor_head`: h for query and output, h_kv for key and
   value. `token`: row of q, or key. */
void host_mod_enter(struct host_head *head, enum mod which, int64_t b, int64_t tensor_head, int64_t token);
/* n elements of a token as the tensor has it; of k and v also where that lies in a page. */
void host_token(const struct host_head *head, enum mod which, const struct host_view *view, int64_t b,
                int64_t tensor_head, int64_t token, int n, double *out);

#endif
