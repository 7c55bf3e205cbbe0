/*
 * sequences.h: sequences of a call of attention on the host device: where each lies in packed tensors, and
 * how many of its keys are in use. A sequence is a call of its own, with one batch.
 */
#ifndef LATHE_ATTENTION_SEQUENCES_H
#define LATHE_ATTENTION_SEQUENCES_H

#include "gen/host/gradient.h"

struct sequences {
    const struct host_call *call;
    bool packed;     /* one behind the other; else one in each batch */
    bool pages;      /* keys lie in pages of a pool, and their places among all keys are 0 */
    int64_t n;       /* sequences */
    int64_t *first;  /* [2][n + 1]: of queries, of keys; the last is behind the last */
    int64_t *length; /* [n] keys in use */
    int64_t *page;   /* [n][most] of the keys in use; NULL: without pages */
};

struct sequence { /* stays where it was entered: the call points into it */
    struct host_call call;
    lathe_arg arg[MAX_ARGS];
    int64_t shape[MAX_ARGS][MAX_DIMS];
    int64_t stride[MAX_ARGS][MAX_DIMS];
};

/* Has the call a list of places or of lengths? Else all of its batches are alike. */
bool sequences_given(const struct host_call *call);
/* Reads and checks the lists; sequences_close in any case. Errors ARG: a list that is wrong; MEMORY. */
lathe_status sequences_open(struct sequences *s, const struct host_call *call, lathe_error *err);
void sequences_close(struct sequences *s);
/* The one that row `flat` of host_attention_rows belongs to. */
int64_t sequence_of_row(const struct sequences *s, int64_t flat);
/* Sequence i as a call: tensors begin with it, at.b is i. */
void sequence_enter(struct sequence *out, const struct sequences *s, int64_t i);
/* Gradients of inputs are added up in that sequence's part of their sums. */
void sequence_gradients(struct host_gradient *g, const struct sequences *s, int64_t i);

#endif
