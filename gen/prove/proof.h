/*
 * proof.h: the door of the prover, which is `lathe check`: everything about a spec that can be proved without
 * a GPU.
 */
#ifndef LATHE_GEN_PROOF_H
#define LATHE_GEN_PROOF_H

#include <stdbool.h>

#include "runtime/recipe/recipe.h"

struct ir;

/* What a caller says about the data of the proofs. */
struct prove_given {
    int64_t dim[SYM_COUNT]; /* sizes; -1: the proofs choose */
    int n;
    lathe_arg arg[MAX_ARGS]; /* inputs, scalars and q_start: compact host memory, in place of random data */
    int n_absent;
    char absent[MAX_ARGS][NAME_MAX_BYTES]; /* optional arguments that are left out */
    bool positions_alone; /* sizes are too large for proofs on data: what is decided by positions, and nothing
                             else */
    int seconds;          /* of processor time for all proofs of the spec; 0: PROVE_SECONDS */
};
/* Does a spec decide by positions in f32? */
bool prove_has_positions(const struct ir *ir);
/* Nothing is given. */
void prove_given_init(struct prove_given *given);
/* False: a proof would take too long; `most` pairs of a query and a key are looked at, so much is asked for.
 */
enum { PROVE_KEYS_MAX = 4096, PROVE_SECONDS = 6 };
bool prove_given_fits(const struct prove_given *given, double *pairs, double *most);

struct proof {
    const char *what; /* "online = whole row", "forward = whole row", "combine = whole", "gradients",
                         "backward = derived", "backward in kernels", "mask bounds", "ranges of integers",
                         "large scores", "f32 = double", "chunks = recurrence", "steps = whole", "positions in
                         f32", "not seen" */
    bool applies;     /* false: nothing to prove (no combine given, say) */
    bool passed;
    bool warned;  /* it has passed, and its note is worth a line of its own */
    double error; /* largest, relative */
    double bound;
    bool unseen;         /* no proof: a side of a comparison that was never taken */
    bool cut_short;      /* time ran out: a part of it was left out */
    int n_tried;         /* of what proof_compare was given: */
    int n_lost;          /* rounding alone may be more than the bound */
    int line;            /* spec line, where one is to blame */
    char note[256];      /* which input, which split; a remark, or empty, where it passed */
    lathe_status status; /* MEMORY: it is neither proved nor refuted */
    const char *trying;  /* sizes and data of now; kept by the prover */
    char tried[320];     /* the same, where it failed */
};
enum { PROOF_MAX = 20 };
/* All that can be proved without a GPU. given: NULL, nothing. Returns how many were filled. */
int prove(const struct ir *ir, unsigned seed, struct proof *out);
int prove_with(const struct ir *ir, unsigned seed, const struct prove_given *given, struct proof *out);
/* The same with a few rounds of each proof, without gradients: some hundredths of a second. */
int prove_quickly(const struct ir *ir, unsigned seed, struct proof *out);

#endif
