/*
 * gen.h: the types that the rooms of the generator share, and their doors in pipeline order.
 *
 * One spec is one `struct ir`: inputs, row state, and per slot a traced function, all drawn from one
 * pool of hash-consed nodes. A node is named by its number; numbers grow upwards, so an operand
 * always stands before its user and a pass over the pool in order is a topological sweep.
 * No CUDA header may be included anywhere below gen/, and Lua is seen by spec.c and trace.c alone.
 */
#ifndef LATHE_GEN_H
#define LATHE_GEN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lathe.h"
#include "plan_beside.h"
#include "source.h"

/* ---- text.c: growing strings. A failure sticks; later calls do nothing. ------------------------ */

struct text_buf {
    char *data; /* zero-terminated once anything was added */
    size_t size;
    size_t capacity;
    bool failed;
    const char *too_many; /* of what there were more than `most`; NULL: memory ran out */
    int most;
};
void text_add(struct text_buf *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text_buf *t, const char *data, size_t size);
void text_free(struct text_buf *t);
/* What the text is about has more than `most` of those. The first failure counts. */
void text_exceed(struct text_buf *t, int most, const char *too_many);
void text_fail_with(struct text_buf *t, const struct text_buf *part); /* where the part has failed */

/* ---- diag.c: mistakes, collected. At most DIAG_MAX are kept; more are counted. ---------------- */

enum { DIAG_MAX = 10 };
struct diag_entry {
    char file[256];
    int line;
    char text[512];
};
struct diag {
    int n; /* all mistakes, also those beyond DIAG_MAX */
    struct diag_entry entry[DIAG_MAX];
};
void diag_add(struct diag *d, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "file:line: ", "file: " or nothing. */
enum { DIAG_PLACE_BYTES = 300 };
void diag_place(const char *file, int line, char place[DIAG_PLACE_BYTES]);
/* "file:line: text" lines into err->text, the first place into err->file and err->line. */
void diag_to_error(const struct diag *d, lathe_status status, lathe_error *err);

/* ---- ir.c -------------------------------------------------------------------------------------- */

enum ir_type { TYPE_F32, TYPE_I32, TYPE_BOOL };

enum ir_op {
    OP_CONST,  /* value */
    OP_AT,     /* index: enum at_field */
    OP_PARAM,  /* index: enum param_leaf (+ k) */
    OP_SCALAR, /* index: input; a scalar input of the spec */
    OP_LOAD,   /* index: input; operands are the indices, i32 */
#define OP(id, spelling, arity, in, out, cuda, flags) OP_##id,
#include "ops.def"
#undef OP
    OP_COUNT
};

/* What a value varies with. A reduction removes a bit. SPAN 0: once per head. */
enum { SPAN_Q = 1, SPAN_KV = 2, SPAN_DIM = 4, SPAN_SPLIT = 8 };

/* X(id, name, span). Sizes have span 0. `pos` is span Q in every vector mod (a token's own row). */
#define AT_MAP(X)                                                                                            \
    X(B, "b", 0)                                                                                             \
    X(H, "h", 0)                                                                                             \
    X(H_KV, "h_kv", 0)                                                                                       \
    X(Q, "q", SPAN_Q)     /* position of the query among the keys: row + q_start */                          \
    X(KV, "kv", SPAN_KV)  /* position of the key */                                                          \
    X(ROW, "row", SPAN_Q) /* row of q (attention); flat row number (rowwise) */                              \
    X(I, "i",                                                                                                \
      SPAN_DIM) /* index in the head dim, or in the row (rowwise: span KV); in a pair mod, of the pair */    \
    X(POS, "pos", SPAN_Q) /* vector mods: the token's position, at.q or at.kv */                             \
    X(N_B, "n_b", 0)                                                                                         \
    X(N_H, "n_h", 0)                                                                                         \
    X(N_H_KV, "n_h_kv", 0)                                                                                   \
    X(LEN_Q, "len_q", 0)                                                                                     \
    X(LEN_KV, "len_kv", 0)                                                                                   \
    X(D, "d", 0)                                                                                             \
    X(D_V, "d_v", 0)                                                                                         \
    X(COL, "i", SPAN_KV)   /* rowwise: at.i */                                                               \
    X(N, "n", 0)           /* rowwise: row length */                                                         \
    X(N_ROWS, "n_rows", 0) /* rowwise */                                                                     \
    X(INDEX0, "i0", 1)     /* elementwise: the index in dim k of its map; a span bit for each */             \
    X(INDEX1, "i1", 2)                                                                                       \
    X(INDEX2, "i2", 4)                                                                                       \
    X(INDEX3, "i3", 8)                                                                                       \
    X(INDEX4, "i4", 16)                                                                                      \
    X(SIZE0, "n0", 0) /* elementwise: points along it */                                                     \
    X(SIZE1, "n1", 0)                                                                                        \
    X(SIZE2, "n2", 0)                                                                                        \
    X(SIZE3, "n3", 0)                                                                                        \
    X(SIZE4, "n4", 0)
enum at_field {
#define AT_ENUM(id, name, span) AT_##id,
    AT_MAP(AT_ENUM)
#undef AT_ENUM
        AT_COUNT
};

enum {
    MAX_STATE = 8,
    MAX_INPUTS = 16,
    MAX_STAGES = 4,
    MAX_MASK_READS = 4,
    MAX_ROOTS = 40,
    MAX_OVER = 5, /* elementwise: dims of a map */
    MAX_MAPS = 4,
    MAX_TENSORS = 24, /* of all its maps, in the backward pass */
    MAX_SCATTERS = 16,
    IR_MAX_ARGS = 4,
    IR_MAX_NODES = 20000
};

/* Leaves that a function is called with. */
enum param_leaf {
    PARAM_QK, /* <q', k'>, before scale; span Q|KV */
    PARAM_S,  /* score: before score_mod in `score`, after it in `online` and `forward`; span Q|KV */
    PARAM_X,  /* one element: of a vector (mods; span Q|DIM) */
    PARAM_LO, /* a rotary pair; span Q|DIM */
    PARAM_HI,
    PARAM_ROWX,                                  /* rowwise: x; span Q|KV */
    PARAM_W,                                     /* the weight, in a spec's own `backward`; span Q|KV */
    PARAM_STATE,                                 /* + k: online_rowscales before this tile; span Q */
    PARAM_FINAL = PARAM_STATE + MAX_STATE,       /* + k: final_rowscales; span Q */
    PARAM_SPLIT_FINAL = PARAM_FINAL + MAX_STATE, /* + k: the same of each split; span Q|SPLIT */
    /* seeds of the backward pass: dL/d(root) */
    PARAM_DW = PARAM_SPLIT_FINAL + MAX_STATE, /* of the weight; span Q|KV */
    PARAM_DFINAL,                             /* + k; span Q */
    PARAM_DX = PARAM_DFINAL + MAX_STATE,      /* of an element; span Q|DIM */
    PARAM_DLO,
    PARAM_DHI,
    PARAM_DROWY, /* rowwise: of y; span Q|KV */
    PARAM_DROW,  /* + k, rowwise: of result k where that is a row; span Q|KV */
    PARAM_SAVED =
        PARAM_DROW + MAX_STATE, /* + k, rowwise: such a result, given to the backward pass; span Q|KV */
    PARAM_DSTAT = PARAM_SAVED + MAX_STATE, /* + k, rowwise: of row statistic k; span Q */
    PARAM_DELTA = PARAM_DSTAT + MAX_STATE, /* attention: sum over d of o' do'; span Q */
    PARAM_ROWSUM, /* + k, attention: what a pass over the row adds up for the gradients of finals; span Q */
    /* corners of a tile, inclusive; i32, span 0; in the bounds of a mask only */
    PARAM_ROW0 = PARAM_ROWSUM + MAX_STATE,
    PARAM_ROW1,
    PARAM_Q0, /* row0 + q_start */
    PARAM_Q1,
    PARAM_KV0,
    PARAM_KV1,
    PARAM_TENSOR, /* + 2 k, elementwise: what a point reads of tensor k; + 1: the other half of a pair */
    PARAM_READ = PARAM_TENSOR + 2 * MAX_TENSORS, /* + 2 k: the least that read k of a mask gives on a tile; +
                                                    1: the largest. As corners: i32, span 0 */
    PARAM_COUNT = PARAM_READ + 2 * MAX_MASK_READS
};

struct ir_node {
    uint8_t op;   /* enum ir_op */
    uint8_t type; /* enum ir_type */
    uint8_t n_args;
    uint8_t span;
    uint8_t phase; /* reductions below it, along the longest path */
    int16_t index; /* AT, PARAM, SCALAR, LOAD */
    int16_t file;  /* number in ir->file */
    int32_t line;
    int32_t arg[IR_MAX_ARGS];
    double value; /* CONST; a bool is 0 or 1 */
};

struct input {
    char name[NAME_MAX_BYTES];
    bool is_scalar;
    bool grad;
    bool optional;
    double default_value;
    lathe_dtype dtype; /* NONE: "float", any of f32 f16 bf16 */
    int n_dims;
    struct sig_dim dim[IR_MAX_ARGS];
    uint8_t rows; /* enum input_rows */
    bool broken;  /* of a spec with mistakes: its dims or options are not known */
    int line;
};

/* rowwise: an input with a dim "rows" that every function reads at at.row. Like x it takes up to three
   leading dims, and at.row counts them all. */
enum input_rows {
    INPUT_TABLE, /* no such input */
    INPUT_VALUE, /* [rows], read at (at.row): one value per row */
    INPUT_ROW    /* [rows, n], of floats, read at (at.row, at.i): a tensor of x's shape */
};

/* What index says of a ROWSUM in lowered formulas of rows: spread.c. */
enum { SUM_PLAIN, SUM_SPREAD };

/* A traced function: its results. Empty where n_roots is 0. */
struct ir_fn {
    int n_roots;
    int root[MAX_ROOTS];
};

/* One stage of a vector mod. ELEMENT: x -> y (root 0). Pairs: lo, hi -> lo, hi (roots 0, 1). */
enum stage_form { STAGE_ELEMENT, STAGE_HALF, STAGE_INTERLEAVED };
struct ir_stage {
    uint8_t form; /* enum stage_form */
    struct ir_fn fn;
};
struct ir_mod {
    int n_stages; /* 0: identity */
    struct ir_stage stage[MAX_STAGES];
};

enum kind { KIND_ATTENTION, KIND_ROWWISE, KIND_ELEMENTWISE, KIND_COUNT };
enum mod { MOD_QUERY, MOD_KEY, MOD_VALUE, MOD_OUTPUT, MOD_COUNT };

struct scale_name { /* a row state or a final */
    char name[NAME_MAX_BYTES];
    double init; /* states only */
    bool total;  /* rowwise results: added up over all rows */
};

/* How the row state of a lowered online function goes from tile to tile: pivot.c. */
enum row_path {
    ROWS_EXACT,     /* every tile as online_fwd says */
    ROWS_DEFERRED,  /* but weights and o are normalised once, at the end: defer.c */
    ROWS_STATELESS, /* there is none: weights by element */
    ROWS_BOUNDED,   /* scores are bounded: a constant takes the place of the running maximum */
    ROWS_LAZY       /* the running maximum may stay where it is: raised only when it grew by much */
};
struct pivot {
    enum row_path path;
    int state;         /* LAZY: which row state is the maximum */
    struct ir_fn kept; /* LAZY: online_fwd for a tile in which the maximum stays; roots as there */
    int now;           /* LAZY: what the maximum becomes: a node of online_fwd */
    int watch;         /* LAZY: the row sum of the weights in `kept`: a node, or -1 */
    double low, high;  /* BOUNDED: of the scores */
    bool dead_once;    /* an element of a dead pair is set to `dead` in pass 0, and nothing else has to be
                          selected */
    double dead;
    char why[160]; /* EXACT: what speaks against the others; LAZY: against BOUNDED */
};

/* A value of pairs that grows by `slope`, which is fixed for a head, from one key to the next. Both are
 * nodes. */
enum { MAX_RAMPS = 8 };
struct ramp {
    int node;
    int slope;
};

/* What a map does with a tensor. STORE: every point has its own element. SUM: the tensor lacks dims of the
   map, over which the values of the points are added up. SCATTER: they are added at indices that the map
   computes. */
enum tensor_use { USE_READ, USE_STORE, USE_SUM, USE_SCATTER, USE_NONE /* lowered: nobody wants it */ };
struct map_tensor { /* of an elementwise map */
    char name[NAME_MAX_BYTES];
    uint8_t map;  /* whose it is */
    uint8_t use;  /* enum tensor_use */
    uint8_t form; /* enum stage_form: pairs are along its last dim, which is twice as long as the map's */
    lathe_dtype dtype; /* NONE: "float" */
    int n_dims;
    uint8_t dim[MAX_OVER]; /* dims of the map, in the tensor's order */
    bool grad;             /* an operand with a gradient */
    bool optional;
    bool unread;          /* no formula needs it: optional for that reason */
    double default_value; /* of an operand that is left out */
    int alias;            /* a result that may be written where this operand lies; -1: none */
    int dither; /* a result that is rounded at random, with this scalar input as the seed; -1: to nearest */
    int input;  /* SCATTER: the input whose shape it has */
    int line;
};
struct map_scatter { /* at tensor(index...) += value */
    int tensor;
    int value; /* nodes */
    int index[IR_MAX_ARGS];
};
/* A point for every combination of indices. The roots of fn belong to those of its tensors that are stored or
   summed, in the order of the spec's tensors, two for a pair. */
struct ir_map {
    bool list; /* one dim; every tensor is a list of tensors of any lengths */
    int n_over;
    uint8_t over[MAX_OVER]; /* enum sym; the last is innermost */
    struct ir_fn fn;
    int n_scatters;
    struct map_scatter scatter[MAX_SCATTERS];
};

struct ir {
    enum kind kind;
    char name[NAME_MAX_BYTES]; /* from the file name: "causal" */
    int n_files;
    char file[8][256];

    int n_inputs;
    struct input input[MAX_INPUTS];
    int n_free; /* names of free dims, in order of appearance: SYM_FREE + k */
    char free_name[MAX_FREE_SYMS][NAME_MAX_BYTES];

    /* attention */
    struct ir_mod mod[MOD_COUNT];
    struct ir_fn scale; /* root 0, span 0; always there: default rsqrt(at.d) */
    struct ir_fn mask;  /* root 0, bool; empty: no mask */
    struct ir_fn score; /* root 0 from PARAM_S; empty: identity */
    int n_states;
    struct scale_name state[MAX_STATE];
    int n_finals; /* attention: final_rowscales; rowwise: row statistics */
    struct scale_name final[MAX_STATE];
    struct ir_fn online;   /* roots: weight, o_scale, then the new states; from PARAM_S and PARAM_STATE */
    struct ir_fn epilogue; /* roots: factor of o, then the finals; from PARAM_STATE */
    struct ir_fn forward;  /* root 0: the final weight; from PARAM_S and PARAM_FINAL */
    struct ir_fn combine;  /* roots: factor of each split's o, then the merged finals; from PARAM_SPLIT_FINAL.
                              May be empty */
    struct ir_fn backward; /* root 0: dL/ds; from PARAM_DW, PARAM_W, PARAM_S, PARAM_DELTA and PARAM_FINAL. May
                              be empty; compared with the derived one, used nowhere else */

    struct ir_fn
        bounds; /* of the mask, from the corners of a tile: roots certain, possible (bools, span 0) */

    /* rowwise: root 0: y; then the other results, one per row (span Q) or rows (span Q|KV); from PARAM_ROWX
     */
    struct ir_fn row;
    bool inner; /* x is [..., n, rows]: rows run along the dim before the last */
    bool no_y;  /* root 0 is a constant that nobody takes */

    struct pivot pivot; /* of a lowered spec */
    int n_ramps;
    struct ramp ramp[MAX_RAMPS]; /* the same, see ramps.c */
    /* Of a lowered spec: the keys that the mask leaves to a row lie between the roots, first and last (i32,
       span Q); and it leaves those for which live_rest holds, where that is not empty. */
    struct ir_fn live_range;
    struct ir_fn live_rest;
    /* The same, of a mask that reads data: as `bounds`, but from what its reads give on a tile, too; a third
       root, where there is a live_rest: it certainly holds everywhere. */
    struct ir_fn read_bounds; /* empty: nothing is gained */
    int n_reads;
    int read[MAX_MASK_READS]; /* nodes: reads of integers by row or by column */

    /* elementwise */
    int n_maps;
    struct ir_map map[MAX_MAPS];
    int n_tensors;
    struct map_tensor tensor[MAX_TENSORS];
    struct ir *gradient; /* its backward pass, an elementwise operator itself; owned, NULL in copies */

    int n_nodes;
    int capacity;
    struct ir_node *node;
    int32_t *table; /* hash table of node numbers + 1 */
    int table_size;
    bool failed; /* out of memory or too many nodes: sticky */
};

struct ir_at { /* where a node comes from */
    int16_t file;
    int32_t line;
};

const char *ir_op_name(int op);     /* "exp", "+", "load" */
const char *ir_op_spelling(int op); /* "" for operators and leaves */
const char *ir_op_cuda(int op);     /* text with %0 %1 %2; NULL for leaves and reductions */
int ir_op_arity(int op);
bool ir_op_commutes(int op); /* its two operands may change places */
bool ir_op_is_reduction(int op);
bool ir_op_is_scan(int op); /* along a row; the last operand is not 0 where a segment begins */
/* What a scan gives for element i of (v, ...), from the elements j up to it, or from it on, of its segment.
   The same names are in templates/slots_base.cuh. */
enum scan_form {
    SCAN_SUM,     /* sum of v_j */
    SCAN_LOG,     /* log sum of e^v_j */
    SCAN_WEIGHTED /* (v, r, b): sum of v_j e^(r_j + b_i); 0 where an exponent is -inf */
};
enum scan_form ir_scan_form(int op);
bool ir_scan_is_reverse(int op);                          /* from each element on */
enum ir_op ir_scan_reversed(int op, enum scan_form form); /* of that form, in the other direction */
uint8_t ir_op_axis(int op);                               /* the span bit a reduction removes; 0 for others */
const char *ir_type_name(int type);

/* Make (or find) a node. Types are promoted, constants folded, spans and phases computed.
   ir_make cannot fail on types that ir_type_error accepts; out of memory sets ir->failed and
   returns 0. */
int ir_const(struct ir *ir, double value, enum ir_type type);
int ir_leaf(struct ir *ir, enum ir_op op, int index, enum ir_type type, uint8_t span, struct ir_at at);
int ir_load(struct ir *ir, int input, const int *index, int n, struct ir_at at);
int ir_param(struct ir *ir, int param, struct ir_at at); /* span and type from the parameter */
int ir_at_field(struct ir *ir, int field, struct ir_at at);
int ir_make(struct ir *ir, enum ir_op op, const int *arg, struct ir_at at);
/* NULL, or why these operands do not fit: one phrase without the place. */
const char *ir_type_error(const struct ir *ir, enum ir_op op, const int *arg);
/* Operators for passes that build IR: place and types as ir_make. */
int ir1(struct ir *ir, enum ir_op op, int a);
int ir2(struct ir *ir, enum ir_op op, int a, int b);
int ir3(struct ir *ir, enum ir_op op, int a, int b, int c);
/* A reduction over `axis` (one span bit) of a value that may not vary along it: then value * count.
   The evaluator multiplies by the number of elements on the axis. */
int ir_reduce_sum(struct ir *ir, uint8_t axis, int a);
/* elementwise: what a point reads of tensor `tensor`; half 1: the second of a pair. */
int ir_operand(struct ir *ir, int tensor, int half);
/* The same graph with node from[i] replaced by to[i]. */
int ir_substitute(struct ir *ir, int root, const int *from, const int *to, int n);
/* used[i] = true for every node below the roots; used has ir->n_nodes entries. */
void ir_mark(const struct ir *ir, const int *root, int n, bool *used);
bool ir_depends_on(const struct ir *ir, int root, enum ir_op leaf_op, int index);
void ir_print(const struct ir *ir, struct text_buf *out); /* the .ir text of the golden tests */
struct ir *ir_new(void);
void ir_free(struct ir *ir);
struct ir *ir_clone(const struct ir *ir); /* to rewrite; node numbers are kept */

/* ---- spec.c, trace.c, check.c ----------------------------------------------------------------- */

/* Load, trace and check a spec. `name` names the text in messages; `text` NULL: read the file
   `name`. NULL on failure, with diagnostics. Owned by the caller: ir_free. */
struct ir *spec_load(const char *name, const char *text, size_t size, struct diag *diag);
/* Rules of the model that hold for a whole spec. False with diagnostics. */
bool check(struct ir *ir, struct diag *diag);
/* The arguments of a pass of a spec. */
void signature_make(const struct ir *ir, lathe_pass pass, struct signature *out);
/* rowwise: is result k (ir->final[k]) a row? Else it is one value per row. */
static inline bool ir_result_is_row(const struct ir *ir, int k)
{
    return (ir->node[ir->row.root[1 + k]].span & SPAN_KV) != 0;
}
int signature_find(const struct signature *sig, const char *name); /* -1: none */

/* ---- problem.c: arguments, and the one-line syntax -------------------------------------------- */

/* lathe__problem_from_args of source.h. */
static inline lathe_status problem_from_args(const struct signature *sig, const lathe_arg *args, int n,
                                             bool need_data, struct problem *out, lathe_error *err)
{
    return lathe__problem_from_args(sig, args, n, need_data, out, err);
}
static inline int64_t product_value(const struct product *p, const struct problem *problem)
{
    return lathe__product_value(p, problem);
}
/* "dtype=bf16,b=2,h=16,h_kv=4,q=1000,kv=1000,d=128,d_v=128": unnamed sizes get their defaults (b=1, h_kv=h,
   kv=q, d_v=d, ...; free dims by their names, without a default). NAME=f16 is the dtype of an input declared
   "float" (default: the problem's), NAME=none leaves an optional tensor out. unaligned=q+k names tensors
   (of q, k, v, o) whose rows do not start at multiples of 16 bytes, folded=k+v those that TMA does not take
   for their strides. Errors ARG. */
lathe_status problem_parse(const struct signature *sig, const char *text, struct problem *out,
                           lathe_error *err);
/* Does a spec of this signature know every name in the text? A library of several specs gives each its own.
 */
bool problem_is_of(const struct signature *sig, const char *text);

/* ---- words.c: a problem as text that problem_parse reads ---------------------------------------- */

/* "h_kv", or the name of a free dim. */
const char *sym_name(const struct signature *sig, int sym);
/* "dtype=bf16,b=1,...": every bound size, in the order of the syntax. */
void problem_text(const struct signature *sig, const struct problem *p, struct text_buf *out);
/* "dtype=bf16,d=128": what is compiled in, and what problem_parse cannot do without. */
void problem_built_text(const struct signature *sig, const struct problem *p, struct text_buf *out);
/* "mine.lua --problem dtype=bf16,d=128": operand and problem of a command line, quoted for a shell. */
void spec_words(const char *spec, const struct signature *sig, const struct problem *p, struct text_buf *out);

/* ---- eval.c, host.c: the host device, in double precision -------------------------------------- */

/* What detach() gave, in order: recorded by one evaluation, given again by later ones (prove_grad.c). */
struct eval_tape {
    bool replay;
    size_t n;
    size_t at; /* of the next value in a replay */
    size_t capacity;
    double *value;
};
/* Values for one evaluation: a value without the axis bit is one double, with it `n` doubles. */
struct eval_env {
    const struct ir *ir;
    uint8_t axis;                       /* span bit that runs over the arrays: KV, DIM or SPLIT */
    int n;                              /* elements on the axis */
    double at[AT_COUNT];                /* fields without the axis */
    const double *at_axis[AT_COUNT];    /* fields with it: n values */
    const double *param[PARAM_COUNT];   /* n values, or 1 where the parameter has no axis bit */
    const lathe_arg *input[MAX_INPUTS]; /* NULL: absent, reads default_value */
    struct eval_tape *tape;             /* NULL: detach() gives what it is given */
    /* filled by eval_run */
    double **value;  /* value[node]: NULL if not evaluated */
    void *memory;    /* arena of value, kept between runs: eval_free */
    int error_node;  /* whose spec line is to blame; -1: none (out of memory) */
    char error[512]; /* "file:line: table: index 7 of dim 1 (h) is outside 0..6" */
};
/* Evaluate every node below the roots. False: env->error says which read was outside a tensor, or
   which integer was divided by 0. Branches of where() are both evaluated. */
bool eval_run(struct eval_env *env, const int *root, int n_roots);
void eval_free(struct eval_env *env);
/* env->error: the index of that dim of an input is outside of it, at the node's place. Returns false. */
bool eval_fail_index(struct eval_env *env, int node, int input, int dim, double index, int64_t size);
/* Scalar ops, reductions and leaves excepted; used by folding too. `type` is that of the result. An i32
   result that does not exist (division by 0, overflow) is NaN; a cast to i32 saturates, NaN gives 0, as on a
   GPU. */
double eval_op(enum ir_op op, enum ir_type type, const double *arg);

/* One element of a tensor as double, and back (rounded to nearest even for f16, bf16). */
double tensor_get(const lathe_arg *t, const int64_t *index);
void tensor_set(const lathe_arg *t, const int64_t *index, double value);
/* Its elements in the order of rows, the last dim fastest, whatever the strides: how many, where one is, and
   all of them at once. */
int64_t tensor_count(const lathe_arg *t);
void tensor_index(const lathe_arg *t, int64_t number, int64_t *index);
void tensor_set_all(const lathe_arg *t, const double *value);
static inline int64_t tensor_stride(const lathe_arg *t,
                                    int dim) /* in elements, also where strides are NULL */
{
    return lathe__tensor_stride(t, dim);
}
double dtype_load(lathe_dtype dtype, const void *data, int64_t element);
void dtype_store(lathe_dtype dtype, void *data, int64_t element, double value);

/* Forward on the host: args as for lathe_launch, host pointers. Outputs not given are not computed.
   rows: NULL, or a sorted list of flat row numbers ((b * h + head) * q + row, or the rowwise row) to
   evaluate; the others are left alone, and totals are of these. Errors: ARG, SPEC (a read outside a tensor).
 */
lathe_status host_forward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                          const int64_t *rows, int64_t n_rows, lathe_error *err);
/* The finals of a row without live pairs, n_finals doubles: a constant of the spec, so that kernels and host
   agree. What the epilogue gives on the initial state where that reads nothing else and is not NaN, else
   -inf. */
void host_empty_finals(const struct ir *ir, double *finals);
/* Backward: args also hold "do" (or "dy") and "d" + final for seeds, "dq" "dk" "dv" ("dx") and "d" + input as
   outputs, which are overwritten. */
lathe_status host_backward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                           lathe_error *err);

/* ---- diff.c: reverse mode ---------------------------------------------------------------------- */

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
/* L = sum over roots of <seed, root>. False: an op without a derivative, with its line. */
bool diff(struct ir *ir, const int *root, const int *seed, int n_roots, struct diff_result *out,
          struct diag *diag);
void diff_free(struct diff_result *r);
bool diff_has_rule(enum ir_op op);

/* ---- gradient.c: the backward pass of an elementwise spec, as an elementwise spec ---------------- */

/* ir->gradient, made anew. Its operands are those of the spec and the gradients of its results, its results
   d<operand> and d<input>. False: diff.c has no rule, or memory ran out. */
bool gradient_make(struct ir *ir, struct diag *diag);

/* ---- prove.c: `lathe check` -------------------------------------------------------------------- */

struct proof {
    const char *what; /* "online = whole row", "forward = whole row", "combine = whole", "gradients",
                         "backward = derived", "backward in kernels", "mask bounds" */
    bool applies;     /* false: nothing to prove (no combine given, say) */
    bool passed;
    double error; /* largest, relative */
    double bound;
    int n_tried;    /* of what proof_compare was given: */
    int n_lost;     /* rounding alone may be more than the bound */
    int line;       /* spec line, where one is to blame */
    char note[256]; /* which input, which split; a remark, or empty, where it passed */
};
enum { PROOF_MAX = 8 };
/* All that can be proved without a GPU. Returns how many were filled. */
int prove(struct ir *ir, unsigned seed, struct proof *out);

/* ---- bounds.c: what a mask does to a tile ------------------------------------------------------ */

enum tile_class { TILE_NONE, TILE_SOME, TILE_ALL };
/* Class of the tile of query rows [row0, row1] and keys [kv0, kv1], inclusive, by interval arithmetic; the
   emitted device function computes exactly this. Reads of tensors are unknown. */
struct tile_at {
    double at[AT_COUNT]; /* fields of span 0 */
    int64_t q_start;
    int64_t row0, row1, kv0, kv1;
    const lathe_arg *const *input; /* [MAX_INPUTS], for reads indexed by head or batch alone; NULL: unknown */
};
/* Fill ir->bounds from ir->mask: two bools over the corners of a tile, "every pair is live" and "some pair
   may be". Called once, by check. */
void bounds_build(struct ir *ir);
/* Of a lowered spec: ir->read_bounds from ir->mask, and from ir->live_rest where that is there already. */
void bounds_build_reads(struct ir *ir);
enum tile_class bounds_class(const struct ir *ir, const struct tile_at *t);
bool bounds_mask_reads_data(const struct ir *ir);

/* ---- plan.c, emit.c ---------------------------------------------------------------------------- */

struct plan {
    const char *template_name;                       /* "attention_fwd_sm80" */
    const char *file;                                /* text[0] */
    int bm, bn, stages, warps;                       /* attention */
    int threads, vector, per_thread, rows_per_block; /* rowwise: see rowwise.cuh */
    bool prefetch, shared_next, inner;               /* rowwise_many: see there, and `blocks` */
    int column_parts, registers, at_once;
    bool full;    /* of rows: every thread has per_thread elements of each */
    bool aligned; /* rowwise: vectors are read and written */
    bool kept;    /* rowwise: L2 gives up last what is read */
    bool reread;  /* rowwise, rowwise_many: passes read rows of per_thread elements again, from L1 and L2 */
    bool more, columns_shared, taken, cols_held, cols_packed, given_ahead,
        late;                /* rowwise_staged: see there, and `stages`, `smem_bytes` */
    int sure;                /* rowwise_staged: vectors of a thread that no row ends before */
    bool placed;             /* rowwise_staged: rows of one place follow each other */
    bool spreads;            /* spread_take of the formulas: rowwise_staged, rowwise_many with reread */
    int units_wide;          /* rowwise_inner: see there; else 0 */
    int places, part_places; /* rowwise_walk: of a batch; see there PART; else 0 */
    struct chain_plan chain; /* rowwise_walk: of what is left to rowwise_chain; threads 0: nothing is */
    int whole_warps;         /* of a block, that take strips of their own where those are not cut */
    bool carries_by_warp;    /* of the grid, and not by strip */
    int held_carries;        /* see there HELD_CARRIES */
    int again_stages;        /* see there AGAIN_STAGES */
    int cluster;             /* blocks that share a row of rowwise_staged, a strip of rowwise_inner */
    int unroll, steps;       /* elementwise, with threads and vector: see elementwise.cuh */
    bool long_loops, ahead;
    int min_blocks;      /* on an SM: bounds registers */
    int loop[MAX_MAPS];  /* dim of the map that a thread goes along; -1: none */
    int outer[MAX_MAPS]; /* dim around it, whose turns a thread adds up; -1: none */
    int most_blocks; /* elementwise: of a map by itself; `blocks` of several maps, and of what is added up */
    int turns;       /* at least, of a thread, along outer */
    bool gather;     /* elementwise_gather: of the only map, whose one result is a gradient of rows */
    bool o_f32, q_in_regs; /* attention */
    bool tma; /* attention: a warpgroup that loads comes on top, and tensor maps in front of the parameters */
    int blocks;            /* attention: so many take query tiles in turn; 0: a block for each */
    bool dynamic;          /* they take them as they get done, from a counter in the workspace */
    int q_stages;          /* with tma: tiles of Q that a warpgroup has room for */
    int need;              /* enum register_need of plan.h */
    bool short_rows;       /* the mask may leave rows little, wherever they are: edges of tiles count */
    bool pack;             /* with tma: query heads of a key head may take turns in the rows of a tile; */
    const char *why_apart; /* or why they may not */
    bool own_o;            /* with tma: o has a place in shared memory that is not Q's */
    bool optimistic;       /* attention: whole tiles try the running maximum at hand first, where the online
                              function allows it */
    bool bound_waits;      /* a wait on a barrier that lasts seconds stops the kernel: for templates new to
                              hardware */
    int d_pad, dv_pad;
    int smem_bytes;
    char tile[24]; /* attention: its row of tiles, as in struct device */
    struct back_plan back;
    char reason[768]; /* for `lathe explain` */
    char rows[320];   /* attention, the same: what becomes of the online function */
};
/* The first template that takes the problem, or the one that device->template_name asks for. UNSUPPORTED
   lists every refusal, a line each. */
lathe_status plan_pick(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                       const struct device *device, struct plan *out, lathe_error *err);
/* May plan_pick answer otherwise where lathe__many_keys? Cheap: asked at every call; true where only a whole
   plan would tell. */
bool plan_asks_keys(lathe_pass pass, const struct problem *problem, const struct device *device);
/* The plans that serve, numbered from 0 on in the order in which plan_pick prefers them: every row of tiles
   that fits, of every template that takes the problem. False: there are not so many. */
bool plan_candidate(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                    const struct device *device, int number, struct plan *out);
/* The plan of a choice that `lathe tune` measured. It does not make a template eligible: one that is taken by
   its name alone has to be asked for by name, as ever. False: it does not serve, or is not eligible. */
bool plan_measured(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                   const struct device *device, const char *template_name, const char *tile,
                   struct plan *out);
/* False: a name of the list (with commas) is of no template; then `known` gets the names of all. */
bool plan_knows(const char *list, struct text_buf *known);
/* The templates of this kind and pass that device->template_name asks for. */
void plan_names(const struct ir *ir, lathe_pass pass, const struct device *device, struct text_buf *out);
/* tuning.c: what a measured choice holds for: the device, the spec, what is compiled in; not the lengths. */
void tuning_text(const struct ir *ir, lathe_pass pass, const struct signature *sig,
                 const struct problem *problem, const struct device *device, struct text_buf *out);
/* Why the templates before the picked one do not serve: a line each, as in plan_pick's error. */
void plan_refusals(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                   const struct device *device, lathe_error *out);
/* Texts, entries and the launch recipe. Deterministic. Errors: MEMORY. */
lathe_status emit(const struct ir *ir, lathe_pass pass, const struct signature *sig,
                  const struct problem *problem, const struct device *device, const struct plan *plan,
                  struct source *out, lathe_error *err);
/* One self-contained file that nvcc compiles: every text inlined once, in order. */
void emit_inline(const struct source *source, struct text_buf *out);

/* Embedded files (templates, prelude, shipped specs): NULL where there is none. From the build. */
struct embedded {
    const char *name; /* "templates/math.cuh", "specs/causal.lua" */
    const char *data;
    size_t size;
};
const struct embedded *embedded_find(const char *name);
extern const struct embedded embedded_files[]; /* ends with a NULL name */

#endif
