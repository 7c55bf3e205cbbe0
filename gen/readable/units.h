/*
 * units.h: the declarations of a text, one in another: namespaces and structs have units of their own.
 */
#ifndef LATHE_GEN_READABLE_UNITS_H
#define LATHE_GEN_READABLE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

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
struct parameter_value {
    signed char state; /* 0: nobody has asked; else one of enum parameter_state (parameters.c) */
    int level;         /* of how many trials it stands on */
    int64_t number;    /* a type is the number of its word */
};
struct units {
    const struct tokens *tokens;
    struct unit *unit; /* [n], a parent before its children, else as they stand */
    int n, capacity;
    int *name; /* words that units declare */
    int n_names, name_capacity;
    bool *defined;                     /* words that some #define names */
    struct parameter_value *parameter; /* [n][MOST_PARAMETERS] what parameters.c has found out, and how many
                                          values it tries */
};

/* False: memory ran out. The caller closes it either way. */
bool units_open(struct units *u, const struct tokens *t);
void units_close(struct units *u);
/* The innermost unit that a token belongs to; -1. */
int unit_at(const struct units *u, int token);
/* Does the unit declare that name? */
bool declares(const struct units *u, const struct unit *unit, int word);
/* The name of a scope; -1: of no unit, or of one without a name. */
int scope_word(const struct units *u, int unit);
/* The one unit that declares a name in scopes of that name; -1: none. *many: several do. */
int find_in_scope(const struct units *u, int scope, int word, bool *many);
/* The ',' or ';' behind what a variable begins with. */
int end_of_initialiser(const struct units *u, int i, int last);

#endif
