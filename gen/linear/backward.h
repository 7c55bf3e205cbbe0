/*
 * backward.h: linear attention's backward pass as formulas that kernels compute: adjoints of the mods, and
 * what inputs get from the functions of the recurrence.
 */
#ifndef LATHE_LINEAR_BACKWARD_H
#define LATHE_LINEAR_BACKWARD_H

#include "gen/heads/sites.h"
#include "gen/ir/spec.h"

struct linear_back {
    struct site_list site[LINEAR_FUNCTIONS]; /* values from LEAF_DX, of a token or of a channel */
    int key[LINEAR_FUNCTIONS];               /* of slots that see the key: its adjoint, from LEAF_DX */
    struct stage_back stage[MOD_COUNT][MAX_STAGES];
    bool wanted[MAX_INPUTS]; /* gradients of inputs */
};

struct problem;
struct signature;
struct text_buf;
void linear_back_find_wanted(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                             struct linear_back *out);
/* In ir's own pool, which grows. False: not expressible, and why (SITES_WHY_BYTES), or memory ran out. */
bool linear_back_derive(struct ir *ir, struct linear_back *out, char *why);
/* Which sites of mods store: see struct site. */
void linear_back_find_stores(const struct ir *ir, struct linear_back *b);
/* After rewriting: see sites_settle; and which store. */
void linear_back_settle(const struct ir *ir, struct linear_back *b);
/* f(root) for every formula of the derivatives. */
void linear_back_each_root(struct linear_back *b, const struct ir *ir, void (*f)(void *context, int *root),
                           void *context);
/* Does each kernel add to an element of the input's gradient at most once? Else it needs an exact sum. */
bool linear_back_has_one_adder(const struct ir *ir, const struct linear_back *b, int input);
/* Does a site add to what an earlier site, or the adjoint of the output mod, has written to its input? */
bool linear_back_adds(const struct ir *ir, const struct linear_back *b, enum linear_function of, int site);
/* Do functions store every element before any mod adds? Then the gradient is not zeroed first. */
bool linear_back_fills(const struct ir *ir, const struct linear_back *b, int input);
/* Do heads of v of one head of k add to one element, in order, without an exact sum? Of one site; of any. */
bool linear_back_is_grouped(const struct ir *ir, const struct linear_back *b, enum linear_function of,
                            int site);
bool linear_back_any_grouped(const struct ir *ir, const struct linear_back *b);
/* Has each channel of a token and head elements of its own of all that the decay is made of? */
bool linear_back_gives_decay(const struct ir *ir, const struct linear_back *b);
/* As ir_print has functions; of: a struct linear_back. */
void linear_back_print(const void *of, const struct ir *ir, struct text_buf *out);
bool linear_back_has_sites(const struct ir *ir, const struct linear_back *b, enum mod which);

#endif
