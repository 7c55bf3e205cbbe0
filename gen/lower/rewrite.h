/*
 * rewrite.h: what every kind's lowering uses: a spec's IR specialised for a problem and rewritten into what a
 * kernel computes. Head dims become constants, absent inputs their defaults, detach disappears.
 */
#ifndef LATHE_REWRITE_H
#define LATHE_REWRITE_H

#include <stdbool.h>

#include "lathe_types.h"

struct ir;
struct ir_fn;
struct problem;
struct signature;

struct rewriter {
    struct ir *w; /* a clone */
    const struct signature *sig;
    const struct problem *problem;
    bool exact; /* results in f32: apart, large terms would cancel only after they were rounded */
};
bool rewriter_open(struct rewriter *r, const struct ir *ir, const struct signature *sig,
                   const struct problem *problem);
/* What has become of the clone: the caller frees it with ir_free. Else UNSUPPORTED (IR_TOO_LARGE) or MEMORY.
 */
lathe_status rewriter_close(struct rewriter *r, struct ir **out);
/* Did the passes over a pool find room for their nodes? Else UNSUPPORTED (IR_TOO_LARGE) or MEMORY, and it is
   freed. */
lathe_status lower_done(struct ir **w);
/* The value of node `root` after rewriting; `s` replaces LEAF_S, -1: it stays. */
int rewrite_node(struct rewriter *r, int root, int s);
void rewrite_fn(struct rewriter *r, struct ir_fn *fn, int s);
/* Is there an argument of that name that the call does not give? */
bool rewrite_leaves_out(const struct rewriter *r, const char *name);
/* Fast functions serve: some result is in 16 bits, and every one that a point has of its own: a spec that
   only sums into f32 is as exact as one that stores f32. */
bool lower_is_fast(const struct ir *ir, const struct signature *sig, const struct problem *problem);

#endif
