/*
 * eval.h: the value of IR nodes in double precision: eval.c, and what `lathe check` asks beside
 * (eval_mode.c).
 */
#ifndef LATHE_GEN_EVAL_H
#define LATHE_GEN_EVAL_H

#include "gen/ir/ir.h"
#include "lathe_types.h"

struct ir;

/* Values in order, recorded by one evaluation and given again by later ones: what detach() gave
   (prove/gradients.c), or the branches that were taken (eval_mode.c). */
struct eval_tape {
    bool replay;
    size_t n;
    size_t at; /* of the next value in a replay */
    size_t capacity;
    double *value;
};
/* How `lathe check` evaluates beside plain double precision: eval_mode.c. */
enum eval_precision {
    EVAL_DOUBLE,
    EVAL_ROUNDED, /* what is read, and constants, are f32 numbers */
    EVAL_MOVED,   /* so, but what is read is moved by one rounding of f32, up or down at random */
    EVAL_F32      /* so, and every value is rounded to f32 */
};
enum { SEEN_FALSE = 1, SEEN_TRUE = 2 };
struct eval_mode {
    enum eval_precision precision;
    uint64_t seed;              /* of MOVED */
    struct eval_tape *branches; /* what comparisons, floors and casts to i32 gave; NULL: they give it anew */
    const struct ir *ir;        /* whose comparisons are watched */
    int n_seen;
    uint8_t *seen; /* [n_seen] by node of that ir: the sides that were taken; NULL: nobody watches */
    int bad_node;  /* of that ir: the first that made an infinity or NaN of numbers, in F32; -1: none yet */
    int bad_op;    /* the same of any graph, as those of gradients: its op; -1: none yet */
    int bad_line;  /* and its line in the spec's own file, or that of what it is made of; 0: none */
    bool refused;  /* a kind has refused what a formula gave, as a decay above 0 */
};
/* Values for one evaluation: a value without the axis bit is one double, with it `n` doubles. */
struct eval_env {
    const struct ir *ir;
    uint8_t axis;                       /* span bit that runs over the arrays: KV, DIM or SPLIT */
    int n;                              /* elements on the axis */
    double at[AT_COUNT];                /* fields without the axis */
    const double *at_axis[AT_COUNT];    /* fields with it: n values */
    const double *param[LEAF_COUNT];    /* n values, or 1 where the parameter has no axis bit */
    const lathe_arg *input[MAX_INPUTS]; /* NULL: absent, reads default_value */
    struct eval_tape *tape;             /* NULL: detach() gives what it is given */
    struct eval_mode *mode;             /* NULL: double precision */
    /* filled by eval_run */
    double **value;  /* value[node]: NULL if not evaluated */
    void *memory;    /* arena of value, kept between runs: eval_free */
    int error_node;  /* whose spec line is to blame; -1: none (out of memory) */
    char error[512]; /* "file:line: table: index 7 of dim 1 (h) is outside 0..6" */
};
/* Evaluate every node below the roots. False: env->error says which read was outside a tensor, or
   which integer was divided by 0. Branches of where() are both evaluated. */
bool eval_run(struct eval_env *env, const int *root, int n_roots);
/* What env->mode makes of a node that was evaluated, of n values. False: memory ran out. */
bool eval_mode_apply(struct eval_env *env, int node, size_t n);
/* Record values, or give again what was recorded. False: memory ran out. */
bool eval_tape_run(struct eval_tape *tape, double *value, size_t n);
void eval_free(struct eval_env *env);
/* env->error: the index of that dim of an input is outside of it, at the node's place. Returns false. */
bool eval_fail_index(struct eval_env *env, int node, int input, int dim, double index, int64_t size);

#endif
