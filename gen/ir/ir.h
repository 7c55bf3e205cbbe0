/*
 * ir.h: the node pool. A node is named by its number; numbers grow upwards, so an operand always stands
 * before its user and a pass over the pool in order is a topological sweep. Nodes are hash-consed: the same
 * formula is the same node. What else a spec is made of: spec.h.
 */
#ifndef LATHE_GEN_IR_H
#define LATHE_GEN_IR_H

#include <stdbool.h>
#include <stdint.h>

struct ir;
struct text_buf;

enum ir_type { TYPE_F32, TYPE_I32, TYPE_BOOL };

enum ir_op {
    OP_CONST,  /* value */
    OP_AT,     /* index: enum at_field */
    OP_PARAM,  /* index: enum param_leaf (+ k) */
    OP_SCALAR, /* index: input; a scalar input of the spec */
    OP_LOAD,   /* index: input; operands are the indices, i32 */
#define OP(id, spelling, arity, in, out, cuda, flags) OP_##id,
#include "gen/ir/ops.def"
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
    X(T, "t", SPAN_Q)      /* linear attention: the token, counted from the first of all that are packed */  \
    X(J, "j", SPAN_DIM)    /* the same: a channel of v, where at.i is one of k */                            \
    X(H_K, "h_k", 0)                                                                                         \
    X(N_H_K, "n_h_k", 0)                                                                                     \
    X(LEN_T, "len_t", 0)                                                                                     \
    X(UPDATE, "update", SPAN_Q) /* the same: which update of the token's n it is, from 0 on */               \
    X(INDEX0, "i0", 1)          /* elementwise: the index in dim k of its map; a span bit for each */        \
    X(INDEX1, "i1", 2)                                                                                       \
    X(INDEX2, "i2", 4)                                                                                       \
    X(INDEX3, "i3", 8)                                                                                       \
    X(INDEX4, "i4", 16)                                                                                      \
    X(SIZE0, "n0", 0) /* elementwise: points along it */                                                     \
    X(SIZE1, "n1", 0)                                                                                        \
    X(SIZE2, "n2", 0)                                                                                        \
    X(SIZE3, "n3", 0)                                                                                        \
    X(SIZE4, "n4", 0)                                                                                        \
    X(KV_START, "kv_start", 0) /* attention, in lowered formulas: the first key of all that is here */       \
    X(KV_CHUNK, "kv_chunk", 0) /* keys that follow each other */                                             \
    X(KV_STEP, "kv_step", 0)   /* from the first of them to the first of the next ones */                    \
    X(H_START, "h_start", 0)   /* the same of query heads */                                                 \
    X(ALL_KV, "len_kv", 0)     /* keys in all: at.len_kv of the spec, where len_kv is as many as are here */ \
    X(ALL_H, "n_h", 0)                                                                                       \
    X(FREE0, "free0", 0) /* the size of a dim that inputs name for themselves: ir->free_name[k] */           \
    X(FREE1, "free1", 0)                                                                                     \
    X(FREE2, "free2", 0)                                                                                     \
    X(FREE3, "free3", 0)                                                                                     \
    X(FREE4, "free4", 0)                                                                                     \
    X(FREE5, "free5", 0)                                                                                     \
    X(FREE6, "free6", 0)                                                                                     \
    X(FREE7, "free7", 0)
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
    MAX_MASK_BOXES = 2,
    BOX_DIMS = 4, /* of a tensor */
    MAX_ROOTS = 40,
    MAX_OVER = 5, /* elementwise: dims of a map */
    MAX_MAPS = 4,
    MAX_TENSORS = 24, /* of all its maps, in the backward pass */
    MAX_SCATTERS = 16,
    IR_MAX_ARGS = 5,    /* of an operation */
    MAX_REDUCTIONS = 8, /* in a function */
    INPUT_DIMS = 4,     /* of an input */
    IR_MAX_NODES = 20000
};
#define IR_TOO_LARGE "the formulas need more than %d nodes" /* IR_MAX_NODES */

/* Leaves that a function is called with. */
enum param_leaf {
    LEAF_QK, /* <q', k'>, before scale; span Q|KV */
    LEAF_S,  /* score: before score_mod in `score`, after it in `online` and `forward`; span Q|KV */
    LEAF_X,  /* one element: of a vector (mods; span Q|DIM) */
    LEAF_LO, /* a rotary pair; span Q|DIM */
    LEAF_HI,
    LEAF_ROWX,                                 /* rowwise: x; span Q|KV */
    LEAF_W,                                    /* the weight, in a spec's own `backward`; span Q|KV */
    LEAF_STATE,                                /* + k: online_rowscales before this tile; span Q */
    LEAF_FINAL = LEAF_STATE + MAX_STATE,       /* + k: final_rowscales; span Q */
    LEAF_SPLIT_STATE = LEAF_FINAL + MAX_STATE, /* + k: the row state of each part; span Q|SPLIT */
    /* seeds of the backward pass: dL/d(root) */
    LEAF_DW = LEAF_SPLIT_STATE + MAX_STATE, /* of the weight; span Q|KV */
    LEAF_DFINAL,                            /* + k; span Q */
    LEAF_DX = LEAF_DFINAL + MAX_STATE,      /* of an element; span Q|DIM */
    LEAF_DLO,
    LEAF_DHI,
    LEAF_DROWY, /* rowwise: of y; span Q|KV */
    LEAF_DROW,  /* + k, rowwise: of result k where that is a row; span Q|KV */
    LEAF_SAVED =
        LEAF_DROW + MAX_STATE, /* + k, rowwise: such a result, given to the backward pass; span Q|KV */
    LEAF_DSTAT = LEAF_SAVED + MAX_STATE, /* + k, rowwise: of row statistic k; span Q */
    LEAF_DELTA = LEAF_DSTAT + MAX_STATE, /* attention: sum over d of o' do'; span Q */
    LEAF_ROWSUM, /* + k, attention: what a pass over the row adds up for the gradients of finals; span Q */
    LEAF_HIGH =
        LEAF_ROWSUM + MAX_STATE,       /* + k, attention: the large part of final k (split_final.h); span Q */
    LEAF_NORM = LEAF_HIGH + MAX_STATE, /* + k: what weights are multiplied by for the rest; span Q */
    /* corners of a tile, inclusive; i32, span 0; in the bounds of a mask only */
    LEAF_ROW0 = LEAF_NORM + MAX_STATE,
    LEAF_ROW1,
    LEAF_Q0, /* row0 + q_start */
    LEAF_Q1,
    LEAF_KV0,
    LEAF_KV1,
    LEAF_TENSOR, /* + 2 k, elementwise: what a point reads of tensor k; + 1: the other half of a pair */
    LEAF_READ = LEAF_TENSOR + 2 * MAX_TENSORS,  /* + 2 k: the least that read k of a mask gives on a tile; +
                                                     1: the largest. As corners: i32, span 0 */
    LEAF_BOX = LEAF_READ + 2 * MAX_MASK_READS,  /* + 2 k, the same of box k */
    LEAF_PLACE = LEAF_BOX + 2 * MAX_MASK_BOXES, /* + d: an index in a box, from 0 on */
    LEAF_V = LEAF_PLACE + BOX_DIMS, /* linear attention, in output_mod: the token's element of v as it was
                                       given; span Q|DIM */
    LEAF_DTOKEN,                    /* the same: seed of a value per token; span Q */
    LEAF_COUNT
};

struct ir_node {
    uint8_t op;   /* enum ir_op */
    uint8_t type; /* enum ir_type */
    uint8_t n_args;
    uint8_t span;
    uint8_t phase;    /* reductions below it, along the longest path */
    bool placed : 1;  /* made of positions, sizes, numbers given at the launch and constants alone */
    bool rounded : 1; /* so, and something decides by it: in f32, each operation rounded, everywhere */
    int16_t index;    /* AT, PARAM, SCALAR, LOAD */
    int16_t file;     /* number in ir->file */
    int32_t line;
    int32_t arg[IR_MAX_ARGS];
    double value; /* CONST; a bool is 0 or 1 */
};

/* What index says of a ROWSUM in lowered formulas of rows: rowwise/variance.c. */
enum { SUM_PLAIN, SUM_SPREAD };

struct ir_at { /* where a node comes from */
    int16_t file;
    int32_t line;
};

/* A traced function: its results. Empty where n_roots is 0. */
struct ir_fn {
    int n_roots;
    int root[MAX_ROOTS];
    struct ir_at at; /* of the function's first line: constants have no place of their own */
};

const char *ir_op_name(int op);     /* "exp", "+", "load" */
const char *ir_op_spelling(int op); /* "" for operators and leaves */
const char *ir_op_cuda(int op);     /* text with %0 %1 ...; NULL for leaves and reductions */
int ir_op_arity(int op);
bool ir_op_commutes(int op); /* its two operands may change places */
bool ir_op_is_reduction(int op);
bool ir_op_is_scan(int op); /* along a row; in segments, or of the whole row at once */
/* What a scan gives for element i of (v, ...), from the elements j up to it, or from it on, of its segment.
   The same names are in templates/common/contract.cuh. */
enum scan_form {
    SCAN_SUM,      /* sum of v_j */
    SCAN_LOG,      /* log sum of e^v_j */
    SCAN_WEIGHTED, /* (v, r, b): sum of v_j e^(r_j + b_i); 0 where an exponent is -inf */
    SCAN_RANK,     /* how many of the row are in front of v_i in falling order, equal ones as they lie; i32 */
    SCAN_PLACED,   /* (v, r), r the rank of some value: v_j of the element whose r_j is i */
    SCAN_TAKEN     /* the same: v_j of element j = r_i. Each undoes the other */
};
enum scan_form ir_scan_form(int op);
int ir_scan_start(
    const struct ir_node *scan); /* the operand that says where segments begin; -1: it has none */
bool ir_scan_is_reverse(int op); /* from each element on */
enum ir_op ir_scan_reversed(int op, enum scan_form form); /* of that form, in the other direction */
uint8_t ir_op_axis(int op);                               /* the span bit a reduction removes; 0 for others */
const char *ir_type_name(int type);

/* Make (or find) a node. Types are promoted, constants folded, spans and phases computed.
   ir_make cannot fail on types that ir_type_error accepts; out of memory sets ir->failed and
   returns 0. */
int ir_const(struct ir *ir, double value, enum ir_type type);
/* False: a constant that f32 does not hold, as no formula of a spec has one (lang/constants.c): rewriting
   that would make it leaves the steps as they are. */
bool ir_f32_holds(const struct ir *ir, int node);
int ir_leaf(struct ir *ir, enum ir_op op, int index, enum ir_type type, uint8_t span, struct ir_at at);
int ir_load(struct ir *ir, int input, const int *index, int n, struct ir_at at);
int ir_param(struct ir *ir, int param, struct ir_at at); /* span and type from the parameter */
/* The same where nothing of the text is to blame for it. */
static inline int ir_param_of(struct ir *ir, int param)
{
    return ir_param(ir, param, (struct ir_at){0, 0});
}
int ir_at_field(struct ir *ir, int field, struct ir_at at);
int ir_make(struct ir *ir, enum ir_op op, const int *arg, struct ir_at at);
/* The same operation with other operands: for passes that rewrite a graph. What is rounded stays so. */
int ir_again(struct ir *ir, const struct ir_node *n, const int *arg);
/* Does it decide: a comparison, a step or a cast to i32 of floats? Of such ones ir_make takes placed operands
   in their rounded form, so that host, proofs and kernels decide alike. */
bool ir_decides(const struct ir *ir, const struct ir_node *n);
/* The free dim whose size a node is; -1: it is something else. */
static inline int ir_free_size(const struct ir_node *n)
{
    return n->op == OP_AT && n->index >= AT_FREE0 ? n->index - AT_FREE0 : -1;
}
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
/* out[i]: node i is needed for the roots when the nodes in `stop` are given; negative ones are none. */
void ir_mark_until(const struct ir *w, const int *root, int n_roots, const int *stop, int n_stop, bool *out);
bool ir_depends_on(const struct ir *ir, int root, enum ir_op leaf_op, int index);
void ir_print(const struct ir *ir, struct text_buf *out); /* the .ir text of the golden tests */
/* The same of some formulas, which lowering has beside the functions of a spec. */
void ir_print_roots(const struct ir *ir, const char *name, const int *root, int n, struct text_buf *out);
struct ir *ir_new(void);
void ir_free(struct ir *ir);
struct ir *ir_clone(const struct ir *ir); /* to rewrite; node numbers are kept */

#endif
