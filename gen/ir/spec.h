/*
 * spec.h: what a spec says. One spec is one struct ir: inputs, row state, and per slot a traced function, all
 * drawn from one pool of nodes (ir.h).
 */
#ifndef LATHE_GEN_SPEC_H
#define LATHE_GEN_SPEC_H

#include "gen/ir/attention_lowered.h"
#include "gen/ir/ir.h"
#include "gen/ir/linear_slots.h"
#include "runtime/recipe/recipe.h"

struct ir_log;

/* What an input says about its values. Of integers an end is a number, or the size of a dim and a number. */
struct range_end {
    char dim[NAME_MAX_BYTES]; /* "": the number alone */
    uint8_t sym;              /* enum sym of that dim */
    int64_t number;
};
struct input_range {
    bool declared;
    bool sorted;                    /* values along the last dim do not fall */
    char sorted_by[NAME_MAX_BYTES]; /* of a line only so many as this input says; "": all of them */
    struct range_end low, high;     /* low <= value < high */
    bool real;                      /* floats: least <= value <= most, either of which may be infinite */
    double least, most;
    bool unit; /* and vectors along the last dim are no longer than 1 */
};

struct input {
    char name[NAME_MAX_BYTES];
    bool is_scalar;
    bool grad;
    bool optional;
    double default_value;
    lathe_dtype dtype; /* NONE: "float", any of f32 f16 bf16 */
    int n_dims;
    struct sig_dim dim[INPUT_DIMS];
    struct input_range range;
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

/* One stage of a vector mod. ELEMENT: x -> y (root 0). Pairs: lo, hi -> lo, hi (roots 0, 1). */
enum stage_form { STAGE_ELEMENT, STAGE_HALF, STAGE_INTERLEAVED };
struct ir_stage {
    uint8_t form; /* enum stage_form */
    int paired;   /* pairs are made of so many elements, the first; 0: of all */
    struct ir_fn fn;
};
struct ir_mod {
    int n_stages; /* 0: identity */
    struct ir_stage stage[MAX_STAGES];
};

enum kind { KIND_ATTENTION, KIND_ROWWISE, KIND_ELEMENTWISE, KIND_LINEAR, KIND_COUNT };
enum mod { MOD_QUERY, MOD_KEY, MOD_VALUE, MOD_OUTPUT, MOD_COUNT };

struct scale_name { /* a row state or a final */
    char name[NAME_MAX_BYTES];
    double init; /* states only */
    bool total;  /* rowwise results: added up over all rows */
    int first;   /* so many elements of the row, and */
    double fill; /* this for those that it lacks; 0: all of them */
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
    uint8_t
        slot; /* a result: 1 + the i32 operand that says where along its first dim; 0: points have places */
    uint8_t slots; /* enum sym: that dim, which stands in the place of the operand's dims and not in dim[] */
    int line;
};
/* The dim of the map in whose place the parameters have the stride of a result's slots. */
static inline int map_slot_dim(const struct map_tensor *all, const struct map_tensor *t)
{
    return t->slot ? all[t->slot - 1].dim[0] : -1;
}
struct map_scatter { /* at tensor(index...) += value */
    int tensor;
    int value; /* nodes */
    int index[INPUT_DIMS];
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

struct ir_maps {
    int n_maps;
    struct ir_map map[MAX_MAPS];
    int n_tensors;
    struct map_tensor tensor[MAX_TENSORS];
    struct ir *gradient; /* the backward pass, an elementwise operator itself; owned, NULL in copies */
};

/* Linear attention: S_t = D_t o S_(t-1) + k_t' v_t, o_t = scale q_t S_t, token by token of a sequence. */
struct ir_linear {
    /* The slots of linear_slots.def. decay, root 0: the natural logarithm of D_t, <= 0; empty: there is none.
       delta, root 0: beta of the delta rule: v_t becomes beta (v_t - k_t (D_t o S_(t-1))); empty: the
       additive family. bonus, root 0: u of o_t = scale q_t (S_(t-1) + (u k_t)' v_t); empty: S_t is read.
       reader, writer, root 0: elements of a and b, from LEAF_X, the key's. With delta they stand for the two
       keys of b' beta (v - a S); without it there are both, and b' (a S) is added beside k' v. */
    union {
        struct ir_fn slot[LINEAR_SLOTS]; /* of enum linear_function - 1 */
        struct {
#define LINEAR_SLOT(ID, name, ...) struct ir_fn name;
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
        };
    };
    bool normalise;  /* o_t is divided by scale q_t z_t + 1e-10, z_t the sum of k as S_t is that of k' v */
    bool all_tokens; /* causal = false: every token reads the sum over all of its sequence */
    bool reverse;    /* from the last token of a sequence to its first */
    bool read_first; /* a, or the key of the delta rule, reads the state before it is decayed */
    int updates;     /* of the state by a token, each with a k and a v of its own; 0: not said, one */
    int query_heads; /* that read each head of the state, each with a q and an o of its own; 0: one */
};
enum { MOST_UPDATES = 16, MOST_QUERY_HEADS = 32 };

/* A number that was given when the spec was loaded, or its default: folded, and kept for people. */
enum { MAX_PARAMETERS = 16 };
struct ir_param {
    char name[NAME_MAX_BYTES];
    int line;
    bool is_integer;
    double usual;
    double value;
};

struct ir {
    enum kind kind;
    char name[NAME_MAX_BYTES]; /* from the file name: "causal" */
    int n_files;
    char file[8][256];

    int n_params;
    struct ir_param param[MAX_PARAMETERS];
    int n_inputs;
    struct input input[MAX_INPUTS];
    int n_free; /* names of free dims, in order of appearance: SYM_FREE + k */
    char free_name[MAX_FREE_SYMS][NAME_MAX_BYTES];

    /* attention */
    struct ir_mod mod[MOD_COUNT];
    struct ir_fn scale; /* root 0, span 0; always there: default rsqrt(at.d) */
    struct ir_fn mask;  /* root 0, bool; empty: no mask */
    struct ir_fn score; /* root 0 from LEAF_S; empty: identity */
    int n_states;
    struct scale_name state[MAX_STATE];
    int n_finals; /* attention: final_rowscales; rowwise: row statistics */
    struct scale_name final[MAX_STATE];
    struct ir_fn online;   /* roots: weight, o_scale, then the new states; from LEAF_S and LEAF_STATE */
    struct ir_fn epilogue; /* roots: factor of o, then the finals; from LEAF_STATE */
    struct ir_fn forward;  /* root 0: the final weight; from LEAF_S and LEAF_FINAL */
    struct ir_fn combine;  /* roots: factor of each part's o, then the merged row state, both before the
                              epilogue; from LEAF_SPLIT_STATE. May be empty */
    struct ir_fn backward; /* root 0: dL/ds; from LEAF_DW, LEAF_W, LEAF_S, LEAF_DELTA and LEAF_FINAL. May
                              be empty; compared with the derived one, used nowhere else */

    struct ir_fn
        bounds; /* of the mask, from the corners of a tile: roots certain, possible (bools, span 0) */
    int open; /* the first node without bounds by which these leave a comparison undecided; -1: there is none
               */

    /* rowwise: root 0: y; then the other results, one per row (span Q) or rows (span Q|KV); from LEAF_ROWX
     */
    struct ir_fn row;
    bool inner; /* x is [..., n, rows]: rows run along the dim before the last */
    bool no_y;  /* root 0 is a constant that nobody takes */

    bool qk2;    /* attention: q2 and k2 are what q and k go on with, in memory of their own */
    bool v_is_k; /* attention: v is the first d_v elements of k, and no argument */

    /* linear attention, with mod[] and scale as attention has them; what kernels and reports ask about it:
       gen/linear/linear.h */
    struct ir_linear linear;

    struct ir_maps maps;              /* elementwise */
    struct attention_lowered lowered; /* of attention, as lowering fills it: nothing of it in a spec */
    struct ir_log *log; /* who is shown what each pass of lowering changes; NULL: nobody (ir/log.h) */

    int n_nodes;
    int capacity;
    struct ir_node *node;
    int32_t *table; /* hash table of node numbers + 1 */
    int table_size;
    bool failed;    /* out of memory or too many nodes: sticky */
    bool estimates; /* what is made now only estimates: it is not rounded, whatever it decides */
};

static inline bool ir_is_at(const struct ir *ir, int node, int field)
{
    return ir->node[node].op == OP_AT && ir->node[node].index == field;
}
static inline int ir_updates(const struct ir *ir)
{
    return ir->linear.updates > 1 ? ir->linear.updates : 1;
}
static inline int ir_query_heads(const struct ir *ir)
{
    return ir->linear.query_heads > 1 ? ir->linear.query_heads : 1;
}
/* Steps of the recurrence that a token is: its updates, or its first query's and those of the others, which
   read alone. */
static inline int ir_steps(const struct ir *ir)
{
    return ir_updates(ir) * ir_query_heads(ir);
}
/* Root 1 + k is what ir->final[k] becomes: of a row, or of an online function's epilogue. */
static inline const struct ir_fn *ir_results(const struct ir *ir)
{
    return ir->row.n_roots > 0 ? &ir->row : &ir->epilogue;
}
/* rowwise: is result k (ir->final[k]) a row? Else it is one value per row. */
static inline bool ir_result_is_row(const struct ir *ir, int k)
{
    return (ir->node[ir->row.root[1 + k]].span & SPAN_KV) != 0;
}
/* rowwise: is it the first elements of a row of integers? */
static inline bool ir_result_is_whole(const struct ir *ir, int k)
{
    return ir->final[k].first > 0 && ir->node[ir->row.root[1 + k]].type == TYPE_I32;
}
/* How many of n elements the pairs of a stage are made of. */
int ir_stage_paired(const struct ir_stage *stage, int n);
/* The least head dim, from `dim` on, that has the pairs of all mods. */
int ir_dim_for_pairs(const struct ir *ir, int dim);

#endif
