/*
 * kernel.h: a pass of attention, lowered once: what its planners ask and its emitters write out. Made by
 * kernel.c; read by everything behind it.
 */
#ifndef LATHE_ATTENTION_KERNEL_H
#define LATHE_ATTENTION_KERNEL_H

#include "gen/attention/backward.h"
#include "gen/attention/lower.h"
#include "gen/arguments/problem.h"

struct kernel_request;

/* Registers of a thread besides scores, weights and o. */
enum register_need {
    NEED_NONE,  /* no running maximum */
    NEED_LEAST, /* one */
    NEED_FEW,   /* and a mask with one end, as the causal one: two ways to weigh a tile */
    NEED_SOME,  /* another mask; values by distance, by row or by column; o as fp32; one row state of which
                   nothing is known */
    NEED_MANY   /* values by pair; more such row states */
};

struct attention_kernel {
    struct problem whole;  /* the request's, where d is that of both pairs together */
    struct ir *read;       /* the spec, where mods of k and v are factors of scores and weights instead, */
    bool moved[MOD_COUNT]; /* these; NULL: there is none */
    struct ir *forward;    /* the forward kernel, which may run in front of the backward one, too */
    struct ir *parts; /* the same for rows that are cut by keys: row states are the spec's, and its `combine`
                         is there; NULL: it gives none, or the request is for the backward pass. Of the
                         combine pass, which has no `forward`, what is left of a spec there */
    struct ir *backward;    /* the backward pass; NULL: the request is for the forward one */
    struct backward back;   /* its formulas, in that pool, */
    struct pair_needs pair; /* what they want for a pair, */
    bool runs_forward;      /* and whether the forward kernel must run: for o, finals or row states */
    int diagonal;           /* node that the forward kernel keeps for each diagonal of a tile; -1: none */
    enum register_need need;
    enum register_need block_need; /* the same of tiles within blocks for which the mask is the same */
    bool reads_keys;               /* scores or weights read inputs, or draw random numbers, for each key */
    bool table_mask;               /* pairs read for the mask alone, by row and column: often blocks of 64 */
    bool short_rows;       /* the mask may leave rows little, wherever they are: edges of tiles count */
    const char *why_apart; /* why query heads of a key head may not share a tile; NULL: they may */
};

/* Does the call have packed sequences, or batches of which not all keys are in use? */
bool attention_has_sequences(const struct kernel_request *r);

#endif
