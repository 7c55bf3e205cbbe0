/*
 * lists.h: what stands between '<' and '>': parameters of a template, or arguments.
 */
#ifndef LATHE_GEN_READABLE_LISTS_H
#define LATHE_GEN_READABLE_LISTS_H

#include <stdbool.h>

struct tokens;

enum { MOST_PARAMETERS = 8 };

struct list {
    int n;
    int first[MOST_PARAMETERS], last[MOST_PARAMETERS]; /* tokens; last is the one behind */
    int end;                                           /* behind its '>' */
    bool too_long;
};
/* The list that the '<' at `open` begins. */
struct list read_list(const struct tokens *t, int open);
/* The token that names a parameter: before its '=', or its last one. */
int parameter_name(const struct tokens *t, const struct list *l, int parameter);
/* Behind the '=' of its default; -1: it has none. */
int parameter_default(const struct tokens *t, const struct list *l, int parameter);

#endif
