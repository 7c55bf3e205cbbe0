/*
 * fold.h: branches that a text's own constants decide, and declarations that nothing uses.
 */
#ifndef LATHE_GEN_READABLE_FOLD_H
#define LATHE_GEN_READABLE_FOLD_H

#include <stdbool.h>

struct text_buf;
struct units;

/* Tokens of what is not compiled: between #if and #endif (conditions.c), and of forms of templates that no
   number of the text chooses (specialise.c). */
void drop_conditions(const struct units *u, bool *dropped);
void drop_forms(const struct units *u, bool *dropped);
/* Without these, nor the branches of an `if` that are not taken: fold.c. False: memory ran out. */
bool fold_branches(const struct units *u, struct text_buf *out);
/* Without braces that folding has left for nothing: blocks.c. The same. */
bool unwrap_blocks(const struct units *u, struct text_buf *out);
/* Without declarations that no kernel reaches by name: prune.c. The same. */
bool prune(const struct units *u, struct text_buf *out);

#endif
