/*
 * units.h: the declarations of a text, one in another: namespaces and structs have units of their own.
 */
#ifndef LATHE_GEN_READABLE_UNITS_H
#define LATHE_GEN_READABLE_UNITS_H

#include <stdbool.h>

#include "gen/readable/tokens.h"

enum unit_kind {
    UNIT_CODE,      /* a function, a variable, a type without units of its own */
    UNIT_SCOPE,     /* a namespace */
    UNIT_STRUCT,    /* a struct whose members are units */
    UNIT_DIRECTIVE, /* #define, #if, ... */
    UNIT_HEADING,   /* a comment that stands alone */
    UNIT_ASSERT     /* static_assert */
};
struct unit {
    enum unit_kind kind;
    int first, last; /* tokens, with the comments that belong to it; last is the one behind */
    int head;        /* the first that is no comment */
    int open;        /* the '{' that its own units stand behind; -1 */
    int parent;      /* -1: none */
    int name, n_names;
    bool always; /* it is part of its parent, whoever uses it */
    bool is_template;
    bool is_function;
};
struct units {
    const struct tokens *tokens;
    struct unit *unit; /* [n], a parent before its children, else as they stand */
    int n, capacity;
    int *name; /* words that units declare */
    int n_names, name_capacity;
    bool *defined; /* words that some #define names */
};

/* False: memory ran out. The caller closes it either way. */
bool units_open(struct units *u, const struct tokens *t);
void units_close(struct units *u);
/* The innermost unit that a token belongs to; -1. */
int unit_at(const struct units *u, int token);

#endif
