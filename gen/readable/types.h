/*
 * types.h: which type a name means.
 */
#ifndef LATHE_GEN_READABLE_TYPES_H
#define LATHE_GEN_READABLE_TYPES_H

#include "gen/readable/parameters.h"

/* Of the tokens first .. last - 1, which stand in that unit: the word of the type, whatever alias writes it.
 */
struct value type_value(const struct units *u, int unit, int first, int last, int depth,
                        evaluate_fn *evaluate);
/* The same of a word. */
struct value type_of_word(const struct units *u, int unit, int word, int depth, evaluate_fn *evaluate);
/* Its bytes. */
struct value size_of_type(const struct units *u, struct value type);

#endif
