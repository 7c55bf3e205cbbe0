/*
 * guards.h: the operand of where() that counts almost everywhere, as that of a row without live keys does
 * not. Private to algebra.c.
 */
#ifndef LATHE_GUARDS_H
#define LATHE_GUARDS_H

#include <stdbool.h>

struct ir;

struct guards {
    const struct ir *ir;
    bool *positive; /* of every node: never negative, */
    bool *nonzero;  /* more than 0 almost everywhere, and */
    bool *above;    /* not -inf almost everywhere */
};

/* Of the nodes that the pool has now. False: out of memory; guards_close() is due in any case. */
bool guards_open(struct guards *g, const struct ir *ir);
void guards_close(struct guards *g);
/* 1 or 2: that operand of the node, a where(), counts almost everywhere; 0: both do, or it is another node.
 */
int guards_branch(const struct guards *g, int node);

#endif
