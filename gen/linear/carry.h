/*
 * carry.h: how the state ahead of some tokens is in the state behind them, for who computes tokens in parts.
 */
#ifndef LATHE_LINEAR_CARRY_H
#define LATHE_LINEAR_CARRY_H

#include <stdbool.h>
#include <stddef.h>

struct ir;

/* S behind = T S ahead + what the tokens write. */
enum carry {
    CARRY_NO,     /* parts cannot be put together: why says so */
    CARRY_WHOLE,  /* T = 1 */
    CARRY_SCALED, /* T has a number for each element of S: S behind where S ahead is 1 and v is 0 */
    CARRY_MIXED   /* T is a matrix over the key channels: S behind where S ahead is the unit matrix and v is 0
                   */
};
/* square: there are as many value channels as key channels. */
enum carry linear_carry(const struct ir *ir, bool square, char *why, size_t size);
bool linear_is_reverse(const struct ir *ir);
/* Is o of a token a row of d numbers times the state S ahead of all tokens, and besides what it is where S is
   0: o = r S + o0, where more value channels leave r and o0 as they are? Of a spec that can be carried. */
bool linear_reads_by_rows(const struct ir *ir, char *why, size_t size);

#endif
