/*
 * laws.h: what moving the reference of a row does to a value.
 */
#ifndef LATHE_LAWS_H
#define LATHE_LAWS_H

#include <stdbool.h>
#include <stdint.h>

struct ir;

enum { SHIFT_OLD, SHIFT_NEW, SHIFT_FREE, SHIFT_MOVES = 6 }; /* moves; from SHIFT_FREE on, of stabilisers */
struct shift {
    bool known;
    bool zero;                 /* 0, which follows any law that scales */
    bool positive;             /* for certain */
    int8_t truth;              /* of a bool: 1 true, -1 false, 0 open */
    double add[SHIFT_MOVES];   /* value + sum add[i] move[i] */
    double times[SHIFT_MOVES]; /* value * exp(sum times[i] move[i]) */
};
bool shift_is_free(const struct shift *s);
bool shift_has_law(const struct shift *s, const double *add, const double *times);
/* The laws of all nodes below the roots; those of nodes with given[i] are there already. law, given and
   used have w->n_nodes entries. */
void shift_laws(const struct ir *w, const int *root, int n_roots, const bool *given, struct shift *law,
                bool *used);

#endif
