/*
 * terms.h: a value as a sum of products.
 */
#ifndef LATHE_TERMS_H
#define LATHE_TERMS_H

#include <stdbool.h>

struct ir;
struct shift;

enum { TERMS_MAX = 12, TERM_ATOMS = 4 };
struct term {
    double by;
    int n;
    int atom[TERM_ATOMS]; /* nodes, ascending */
};
struct terms {
    int n; /* 0: the value is 0 */
    struct term term[TERMS_MAX];
};
/* Of all nodes up to root; `whole` is taken as an atom. Choices whose condition has a truth are what they
   choose. */
void terms_of_all(const struct ir *w, int root, int whole, const struct shift *law, struct terms *out);
bool terms_add(struct terms *to, const struct terms *from, double by); /* false: no room */
bool terms_multiply(const struct terms *a, const struct terms *b, struct terms *out);

#endif
