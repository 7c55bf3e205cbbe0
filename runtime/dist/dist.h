/*
 * dist.h: private to schemes over ranks. A scheme is one function that walks through its steps: buffers,
 * copies, launches, calls of the transport. It runs once without data when an object is made, which gets its
 * kernels, counts what is sent and measures the workspace; and once for each launch, which takes the same
 * kernels in the same order.
 */
#ifndef LATHE_RT_DIST_H
#define LATHE_RT_DIST_H

#include <stdbool.h>

#include "lathe_dist.h"
#include "lathe_inspect.h"
#include "runtime/base/base.h"

enum { MOST_IN_CALL = 64, MOST_KERNELS = 4096, MOST_PIECES = 2 };

struct tensor { /* what a lathe_arg says, with its shape and strides inside */
    const char *name;
    char *data;
    lathe_dtype dtype;
    int ndim;
    int64_t shape[LATHE_MAX_DIMS], stride[LATHE_MAX_DIMS];
};

struct call { /* the arguments of a launch */
    int n;
    struct tensor t[MOST_IN_CALL];
};

struct stretch { /* tokens of a rank that follow each other: from `local` among its own, from `first` among
                    all */
    int64_t local, first, n;
};

/* Maps of points that lie between launches. */
enum map { MAP_COPY, MAP_COPY_WORDS, MAP_ADD, MAP_ZERO, MAP_ONE, MAP_UNIT, MAP_SCALE_ADD, MAPS };

struct walk;
struct scheme {
    const char *name;
    lathe_status (*steps)(struct walk *w);
    bool overlaps_comm;  /* something is sent while a call computes */
    bool overlaps_calls; /* calls of a forward pass run at the same time */
};
extern const struct scheme lathe__dist_keys, lathe__dist_heads, lathe__dist_gather, lathe__dist_ring,
    lathe__dist_states;

/* What tests put in the place of the driver: streams that are not run at once. */
struct seam {
    void *user;
    lathe_status (*record)(void *user, int event, lathe_stream on, lathe_error *err);
    lathe_status (*wait)(void *user, int event, lathe_stream on, lathe_error *err);
    lathe_status (*launch)(void *user, const lathe_kernel *kernel, const lathe_arg *arg, int n,
                           void *workspace, lathe_stream on, lathe_error *err);
};

enum { EVENTS = 3 };

struct lathe_dist {
    lathe_ctx *ctx;
    const struct lathe_spec *spec; /* the caller's while the object is made; kernels keep it */
    lathe_pass pass;
    lathe_transport t;
    lathe_dist_options o; /* q_tokens and kv_tokens NULL */
    const struct scheme *scheme;
    int64_t *q_tokens, *kv_tokens; /* [ranks] */
    int64_t q_all, kv_all;         /* their sums */
    int64_t b, h, h_kv;
    int n_args; /* arguments of the pass, as the object was made with */
    struct tensor arg[MOST_IN_CALL];
    lathe_spec *map[MAPS];
    lathe_kernel **kernel;
    int n_kernels, n_sends;
    bool folds;                 /* ring, forward: parts are merged as they come */
    int n_own;                  /* launches of the caller's spec among them */
    size_t sent;                /* bytes of a launch to other ranks */
    size_t moved;               /* bytes that launches of maps read and write */
    size_t bytes, kernel_bytes; /* of the workspace: buffers, and behind them that of a kernel at a time, once
                                   for each stream with calls */
    struct CUevent_st *event[EVENTS]; /* of streams.c; NULL: there is one stream */
    const struct seam *seam;          /* NULL: the driver */
    lathe_spec *product;              /* states: a product of matrices */
    lathe_spec *sum;                  /* the same, added to rows */
    char info[2048];
};

struct walk { /* one way through a scheme's steps */
    struct lathe_dist *d;
    bool dry; /* no data: kernels are got, sizes measured */
    char *base;
    size_t used, most;
    int next;            /* kernel */
    lathe_stream stream; /* of what comes next */
    bool on_second;      /* it is that of every other call, which has a workspace of its own */
    lathe_stream first;  /* of the launch, meanwhile */
    lathe_error *err;
    const lathe_arg *args; /* the caller's */
    int n_args;
    bool shares; /* several launches have shares of a gradient of an input, or one has some rows of it: they
                    are added into what was set to 0 before */
};

/* ---- shapes.c ---------------------------------------------------------------------------------------------
 */

/* Do the arguments that the object is made with fit each other? */
lathe_status lathe__dist_check_shapes(const struct lathe_dist *d, lathe_error *err);

/* ---- tensors.c --------------------------------------------------------------------------------------------
 */

/* The caller's argument as it is now; name NULL: it has none of that name. */
struct tensor lathe__dist_arg(const struct walk *w, const char *name);
/* n places from `first` along a dim. */
struct tensor lathe__dist_slice(struct tensor t, int dim, int64_t first, int64_t n);
/* A buffer in the workspace until w->used is put back to what it was. */
char *lathe__dist_alloc(struct walk *w, size_t bytes);
struct tensor lathe__dist_compact(struct walk *w, lathe_dtype dtype, int ndim, const int64_t *shape);
/* Shaped as t, whose dims are b, heads, tokens, ..., but with so many heads and tokens, and the tokens
   outermost in memory: what ranks have of it then lies one behind the other. */
struct tensor lathe__dist_by_token(struct walk *w, struct tensor t, lathe_dtype dtype, int64_t heads,
                                   int64_t tokens);
/* The same of n tensors, with their own dtypes, of which those without a name are none: a token of each lies
   beside one of the next, so all of them travel in one call. */
void lathe__dist_by_token_together(struct walk *w, struct tensor *t, int n, int64_t heads, int64_t tokens);
/* The first one that is there: where their tokens begin; NULL: none is. */
const struct tensor *lathe__dist_first(const struct tensor *t, int n);
size_t lathe__dist_token_bytes(struct tensor t); /* of a token of such tensors */
int64_t lathe__dist_count(struct tensor t);
/* The dtype of parts, of sums and of shares beside t. */
lathe_dtype lathe__dist_wide(lathe_dtype dtype);
struct tensor lathe__dist_named(struct tensor t, const char *name);

/* ---- walk.c ---------------------------------------------------------------------------------------------
 */

void lathe__dist_put(struct call *c, struct tensor t); /* in the place of one of its name */
void lathe__dist_put_i32(struct call *c, const char *name, int32_t *value);
/* A launch of a spec; map < MAPS: of the map, else of the object's spec. */
lathe_status lathe__dist_launch_spec(struct walk *w, const lathe_spec *spec, lathe_pass pass,
                                     const struct call *c);
/* Of the whole workspace. */
size_t lathe__dist_bytes(const struct lathe_dist *d);
/* to = from; to += from; to = 0: elements of any strides and dtypes */
lathe_status lathe__dist_copy(struct walk *w, struct tensor to, struct tensor from);
lathe_status lathe__dist_add(struct walk *w, struct tensor to, struct tensor from);
lathe_status lathe__dist_zero(struct walk *w, struct tensor to);
/* MAP_ZERO, MAP_ONE, or MAP_UNIT: a unit matrix of the last two dims. */
lathe_status lathe__dist_set(struct walk *w, struct tensor to, enum map map);
/* to = from * factor + more */
lathe_status lathe__dist_scale_add(struct walk *w, struct tensor to, struct tensor from, struct tensor factor,
                                   struct tensor more);

/* ---- pieces.c: where the ranks' tokens are ------------------------------------------------------------- */

int64_t lathe__dist_tokens(const struct lathe_dist *d, bool keys, int rank);
int lathe__dist_pieces(const struct lathe_dist *d, bool keys, int rank, struct stretch piece[MOST_PIECES]);
/* Interleaved shards: the first key of a rank among all, keys of it among so many of all, and the other way
   round, how many there are at least where it has n. */
int64_t lathe__dist_first_chunk(const struct lathe_dist *d, int rank);
int64_t lathe__dist_own_of(const struct lathe_dist *d, int rank, int64_t all);
int64_t lathe__dist_reach(const struct lathe_dist *d, int rank, int64_t n);
/* Key heads of a rank of scheme heads: from *first, *n of them. */
void lathe__dist_heads_of(const struct lathe_dist *d, int rank, int64_t *first, int64_t *n);
/* Position of query row 0 of all among all keys. */
int64_t lathe__dist_q_start(const struct walk *w);

/* ---- traffic.c: calls of the transport, counted ----------------------------------------------------------
 */

/* Tokens of all ranks, of a tensor whose tokens are outermost in memory: number `piece` of each rank's
   pieces, from `from` to their places in `all`. */
lathe_status lathe__dist_gather_tokens(struct walk *w, bool keys, int piece, struct tensor all,
                                       struct tensor from);
/* Sums of tokens of all ranks, f32 or f64: number `piece` of this rank's pieces. */
lathe_status lathe__dist_scatter_tokens(struct walk *w, int piece, struct tensor to, struct tensor all);
lathe_status lathe__dist_all_gather(struct walk *w, char *to, const size_t *place, const size_t *bytes,
                                    const char *from);
lathe_status lathe__dist_all_to_all(struct walk *w, char *to, const size_t *to_place, const size_t *to_bytes,
                                    const char *from, const size_t *from_place, const size_t *from_bytes);
lathe_status lathe__dist_exchange(struct walk *w, char *to, size_t to_bytes, int from_rank, const char *from,
                                  size_t from_bytes, int to_rank, lathe_stream stream);
lathe_status lathe__dist_reduce_scatter(struct walk *w, char *to, const char *from, const size_t *place,
                                        const size_t *count, lathe_dtype dtype);

/* ---- streams.c: a stream for what is sent while calls compute, and one for every other call -------------
 */

lathe_status lathe__dist_streams_open(struct lathe_dist *d, lathe_error *err);
void lathe__dist_streams_close(struct lathe_dist *d);
/* The stream on which that is sent; the launch's where there is no other. */
lathe_stream lathe__dist_comm_stream(const struct walk *w);
/* What is sent from here on waits for all calls so far, or the other way round. */
lathe_status lathe__dist_comm_waits(struct walk *w);
lathe_status lathe__dist_wait_for_comm(struct walk *w);
/* The same in two: what calls do from the wait on waits for what was sent up to the mark. */
lathe_status lathe__dist_mark_comm(struct walk *w);
lathe_status lathe__dist_wait_for_mark(struct walk *w);
/* Calls from here on are on the second stream, or on the first one again. */
void lathe__dist_take_second(struct walk *w);
void lathe__dist_take_first(struct walk *w);
/* What the second stream does from here on waits for the first one, or the other way round. */
lathe_status lathe__dist_second_waits(struct walk *w);
lathe_status lathe__dist_wait_for_second(struct walk *w);
/* Does the pass have calls on the second stream? */
bool lathe__dist_has_second(const struct lathe_dist *d, const struct scheme *scheme);

/* ---- local.c: what a rank computes
 * --------------------------------------------------------------------------- */

struct local { /* a call of attention with some of the queries, keys and heads */
    bool cut_q, cut_keys, cut_heads;
    struct stretch q; /* own rows from q.local, of all from q.first; cut_q */
    int64_t kv_first;
    int32_t kv_chunk, kv_step; /* keys that follow each other, from those to the next; 0: all do */
    int64_t h_first, h;        /* query heads */
    int32_t q_start, kv_start, len_kv, h_start, n_h;
    bool parts; /* part_o and part_rows are in the call, and no other result but gradients */
};

/* Tensors by key, [b,h_kv,kv,..], and their gradients, by the same numbers. */
enum { KEYED = 3, BY_QUERY = 2 };
extern const char *const lathe__dist_keyed[KEYED], *const lathe__dist_keyed_back[KEYED];
extern const char *const lathe__dist_queried_back[BY_QUERY]; /* dq, and dq2 */

/* The caller's arguments of a pass that the call has not; results: those too. */
lathe_status lathe__dist_add_rest(struct walk *w, struct call *c, lathe_pass pass, bool results);
/* Add the caller's other arguments to a call that has what the scheme brings, launch it, add up shares. */
lathe_status lathe__dist_local(struct walk *w, struct call *c, struct local *l);
/* Is it the gradient of an input of the spec? */
bool lathe__dist_is_share(const struct lathe_dist *d, const char *name);
/* Zeros where shares of gradients of inputs are added up. */
lathe_status lathe__dist_clear_shares(struct walk *w);
/* Parts of rows [parts,b,h,q,..] of queries in that piece -> the caller's o and finals. */
lathe_status lathe__dist_combine(struct walk *w, const struct stretch *q, struct tensor os,
                                 struct tensor rows);
/* The same -> a part [b,h,q,..], which is none of them. */
lathe_status lathe__dist_merge(struct walk *w, const struct stretch *q, struct tensor os, struct tensor rows,
                               struct tensor to_o, struct tensor to_rows);
struct tensor lathe__dist_part_o(struct walk *w, int64_t parts, int64_t q);
struct tensor lathe__dist_part_rows(struct walk *w, int64_t parts, int64_t q);

#endif
