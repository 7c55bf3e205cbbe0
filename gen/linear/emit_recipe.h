/*
 * emit_recipe.h: private to the recipe of linear attention's backward pass: what its launches and its
 * workspace know of each other.
 */
#ifndef LATHE_EMIT_LINEAR_RECIPE_H
#define LATHE_EMIT_LINEAR_RECIPE_H

#include "gen/base/text.h"
#include "gen/linear/backward.h"
#include "gen/linear/emit.h"

enum buffer_of { /* of the workspace; -1: there is none */
                 AGAIN_O,
                 DIVIDED,
                 ERRORS,
                 DX,
                 DQ_HEAD,
                 DK_HEAD,
                 DK_READ,
                 DLOG,
                 CHUNKS,
                 ENDS,
                 OWN,
                 SKIP,
                 READS,
                 WRITES,
                 BUFFERS_OF_ALL, /* the others are of kernels in chunks by mma.sync alone */
                 INVERSE = BUFFERS_OF_ALL,
                 STATES,
                 DSTATES,
                 WRITTEN,
                 DWRITTEN,
                 DIVIDED_OUT,
                 SUMS,
                 DBETA,
                 DV_PARTS,
                 NORMS,
                 DNORMS,
                 BUFFERS
};
struct recipe {
    struct emitter *e;
    const struct linear_back *b;
    const struct plan *plan;
    struct source *out;
    struct text_buf none; /* of structs that are declared once */
    struct layout l;
    struct place dout;             /* what flows back to o: as given, or what an adjoint left */
    struct place divided;          /* that by the divisors of a normaliser */
    struct place result[TENSOR_O]; /* dq, dk, dv */
    struct place grad[TENSOR_O];   /* the same ahead of the adjoints of mods */
    int buffer[BUFFERS];
    int sum[MAX_INPUTS]; /* exact sums of gradients of inputs */
    bool declared_params, declared_mod, declared_back, declared_input[2];
};

/* ---- emit_backward_place.c: where everything lives */

/* Does an input's gradient have an exact sum for each element? */
bool linear_back_is_sum(const struct emitter *e, const struct linear_back *b, int input);
/* *p by a dim of an input, in tiles. */
void linear_back_times(struct product *p, const struct sig_dim *dim, int tile);
/* Do bwd_tokens or bwd_heads read dq and dk of a head of v once more? Else they go by a workspace only where
   heads share one of k. */
bool linear_back_keeps_heads(const struct recipe *r);
/* Does bwd_chunks write what inputs of the decay get? */
bool linear_back_gives(const struct plan *plan, const struct linear_back *b);
/* Does the adjoint of the output mod read what enters it, which has to be made again then? */
bool linear_back_reads_output(const struct ir *w, const struct linear_back *b);
/* Of gradients as they are given and ahead of adjoints; buffers; exact sums. */
void linear_back_place(struct recipe *r, struct back_runs *runs);

#endif
