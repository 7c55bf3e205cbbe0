/*
 * lower.h: private to attention: a spec as kernels compute it, the passes over it, and the schedule of an
 * online function over the passes of a tile.
 */
#ifndef LATHE_ATTENTION_LOWER_H
#define LATHE_ATTENTION_LOWER_H

#include "gen/ir/phases.h"
#include "gen/ir/spec.h"
#include "lathe_types.h"

struct backward;
struct rescale;
struct problem;
struct signature;

/* The online function is composed with scale and score_mod, so that it starts from LEAF_QK. The caller frees
 *out with ir_free. Else as rewriter_close of lower/rewrite.h. */
lathe_status attention_lower_forward(const struct ir *ir, const struct signature *sig,
                                     const struct problem *problem, struct ir **out);
/* The same, with `combine`, for kernels that cut rows by keys. */
lathe_status attention_lower_parts(const struct ir *ir, const struct signature *sig,
                                   const struct problem *problem, struct ir **out);
/* What puts parts of rows together and ends them: `combine`, the epilogue and the mod of o, and no more. */
lathe_status attention_lower_combine(const struct ir *ir, const struct signature *sig,
                                     const struct problem *problem, struct ir **out);
/* attention/mod_factors.c: the spec without mods of k and v that are products by a value of the key, of a
   call that reads 8 bits; moved: which have gone. NULL: it is as good as it is. The caller frees *out. Else
   as lower_done of lower/rewrite.h. */
lathe_status attention_move_factors(const struct ir *ir, const struct signature *sig,
                                    const struct problem *problem, bool moved[MOD_COUNT], struct ir **out);
/* A forward pass, and the formulas of the backward pass. UNSUPPORTED: refused, and why (WHY_BYTES). */
lathe_status attention_lower_backward(const struct ir *ir, const struct signature *sig,
                                      const struct problem *problem, struct ir **out, struct backward *back,
                                      char *why);

/* How online_fwd runs over the elements of a tile; see attention/tile_passes.c. */
struct schedule {
    struct phases reductions; /* at least one pass, if nothing is reduced in it */
    bool lazy[MAX_REDUCTIONS];
    bool state_lazy[MAX_STATE];
    int carry;      /* node that elements hold after pass 0 */
    int store_pass; /* pass that turns an element into its weight */
    int weight;     /* node */
    int diag;       /* node that depends on at.q - at.kv only and is worth sharing; -1: none */
};
/* False: more than MAX_REDUCTIONS reductions. */
bool schedule_online(struct ir *w, struct schedule *out);
/* The same of w->lowered.rescale.kept. */
bool schedule_kept(struct ir *w, struct schedule *out);

/* ---- attention/toeplitz.c: values of at.q - at.kv alone ------------------------------------------ */

/* The dearest f32 one that other values below the roots use, where it is worth keeping for a diagonal; -1:
 * none. */
int diagonal_of(const struct ir *w, const int *root, int n_roots);
/* The score's terms of the distance become one value, where one of them is worth keeping. */
void toeplitz_gather(struct ir *w);

/* ---- attention/key_interval.c ------------------------------------------------------------------- */

/* After every other pass over a lowered spec of attention: fills w->lowered.key_interval and
 * w->lowered.keys_left. */
void key_interval_pass(struct ir *w);
/* Is there a sine or a cosine in it? Warps that load do not ask for such: ptxas 13.0 crashes on some kernels
   in which they do. */
bool mask_has_angle(const struct ir *w, int node);

/* ---- attention/mask_blocks.c -------------------------------------------------------------------- */

/* After key_interval_pass: fills w->lowered.blocks. */
void mask_blocks_pass(struct ir *w);
/* Do aligned tiles of rows x keys lie within blocks for which keys_left is the same? */
bool mask_blocks_hold(const struct ir *w, int rows, int keys);

/* ---- attention/selected.c ----------------------------------------------------------------------- */

/* After key_interval_pass: fills w->lowered.selected. */
void selected_pass(struct ir *w);

/* ---- attention/rescale.c: how a row's state goes from tile to tile ------------------------------ */

/* Of the forward pass: find the path, rewrite the online function and the epilogue for it,
   and record it in w->lowered.rescale. */
void rescale_pass(struct ir *w, lathe_dtype dtype);
/* A sentence for `lathe explain`. optimistic: whole tiles try the maximum at hand first. */
void rescale_say(const struct ir *w, bool optimistic, char *out, size_t size);

/* ---- attention/normalise_late.c: normalising o at the end -------------------------------------- */

/* Of rescale_pass. False: it may not wait, and nothing has changed. */
bool defer_normaliser(struct ir *w, lathe_dtype dtype);

/* ---- attention/hold_weights.c: weights that become f16 -------------------------------------------- */

/* Before rescale_pass: factors of weights that all keys of a row have become factors of o. */
void factors_to_end(struct ir *w);
/* After it: where factors of keys are left, weights are divided by the largest of their row so far. */
void weights_hold(struct ir *w);

/* ---- attention/key_strides.c -------------------------------------------------------------------- */

/* After rescale_pass: makes the formulas of the elements short, and fills w->lowered.key_stride. */
void key_strides_pass(struct ir *w);

/* ---- attention/masked_once.c ----------------------------------------------------------------------- */

/* After rescale_pass: fills in w->lowered.rescale.masked_once and .dead. */
void masked_once_pass(struct ir *w);

#endif
