/*
 * kind_proofs.h: what of the proofs is a kind's own. Its row in the table of kinds (gen/ir/kind.h) names one,
 * which stands in prove.c of its folder. All else of this folder asks that row.
 */
#ifndef LATHE_GEN_KIND_PROOFS_H
#define LATHE_GEN_KIND_PROOFS_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/ir/kind.h"

struct data;
struct host_call;
struct proof;
struct prover;

/* Functions that are evaluated under one condition: index_ranges.c. */
struct index_context {
    const struct ir_fn *fn[4];
    int n_fns;
    bool masked; /* for pairs that the mask leaves */
    bool pairs;  /* at.i counts pairs */
    int dim_sym; /* at.i is below it */
    const struct ir_map *map;
};
enum { INDEX_CONTEXTS = 8 + MOD_COUNT * MAX_STAGES };
/* Those of vector mods; returns how many. */
int index_contexts_of_mods(const struct ir *ir, struct index_context *out);

struct gradient_sizes { /* on which gradients are compared; those of the dims of maps are gradients.c's */
    int64_t dim[SYM_COUNT];
    bool may_refuse; /* what the host device refuses there is no mistake of the spec */
};

struct kind_proofs {
    /* What is made of the prover's copy of the spec: its backward pass, where signatures need that; and
       p->own, when reach.c has seen the spec as it is. False: memory ran out. NULL: nothing. */
    bool (*derive)(struct prover *p);
    bool (*open)(struct prover *p);
    /* The proofs in their order, each with its share of the time (prover_allow); returns how many. */
    int (*run)(struct prover *p, struct proof *out);

    /* Integers, and sizes; SYM_ONE, and NULL: there is no such thing. */
    int row;          /* at.row is below it */
    int position;     /* at.pos is below it */
    int shared_heads; /* whose multiple the heads are */
    int length[2];    /* sizes that grow together, as those of what is trained and generated do */
    bool (*never_packed)(const struct ir *ir); /* this spec takes no packed sequences; NULL: all do */
    bool unpacked; /* packed sequences are calls of their own, in which nothing else is to prove */
    int (*contexts)(const struct ir *ir, struct index_context *out);

    /* Results in f32: values.c. */
    bool sums;  /* they are sums over keys or tokens: numbers of any size beside each other lose digits there
                   in every formula */
    bool mixes; /* the largest of what moves a result counts for all of it */
    int (*root_of)(const struct ir *ir, const char *result); /* its formula; NULL: tensors of maps alone */
    const char *terms; /* the tensor that results are sums of; NULL: all that is read */
    /* What rounding of a result is a part of, from the largest of those terms and of the result; NULL: the
       smaller of the two. */
    double (*size)(double read, double result);
    /* Of a result that is not finite in f32: is it judged elsewhere, or by chance? NULL: no. */
    bool (*says_nothing)(const struct prover *p, double exact);

    /* Gradients: gradients.c. */
    const char *const *tensors; /* by which there is one beside those of inputs, up to a NULL */
    const char *const *results; /* that every spec of the kind gives, the same */
    const struct gradient_sizes *sizes;
    int n_sizes;
    /* The line of the formula that a gradient by this tensor passes first, from the outside in. */
    int (*line_of)(const struct ir *ir, const char *tensor);
    bool rows_apart; /* f32 of gradients by a row is judged elsewhere, of vector mods here: gradients_f32.c */
    /* The function that derived gradients belong to; NULL: the forward pass. */
    lathe_status (*objective)(const struct prover *p, const struct data *d, const struct host_call *call,
                              double *out, lathe_error *err);
};

/* Of the kind of a spec. */
static inline const struct kind_proofs *proofs_of(const struct ir *ir)
{
    return kinds[ir->kind].proofs;
}

#endif
