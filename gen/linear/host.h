/*
 * host.h: what the two passes of linear attention share on the host device: a head of one sequence, its
 * tokens after their mods, and one step of the recurrence. Everything is in double precision, token by token:
 * never in chunks, which are judged by it.
 */
#ifndef LATHE_LINEAR_HOST_H
#define LATHE_LINEAR_HOST_H

#include "gen/host/vectors.h"
#include "gen/linear/linear.h"

/* What the recurrence calls a token is one step of it. Where a token of the spec is several (`steps`), each
   of them is one here: the decay is 1 but for the first of a token. Either they are its updates, and of their
   outputs only that of the last is o; or each is of one of the heads of q that read the state (`queries`),
   and those behind the first write nothing. */
struct linear_tokens { /* of one head of one sequence; numbers as the recurrence takes them */
    int64_t n;
    int steps, queries;
    int d, d_v;
    enum decay_form form;
    double scale;
    double *q, *k; /* [n, d] */
    double *v;     /* [n, d_v] */
    /* What the slots of linear_slots.def give: width[k] numbers of each token, [n, width[k]], or of the head
       where they do not vary by token; NULL: the spec has no such slot. decay: logarithms. delta: beta of the
       delta rule. bonus: without it the state is read after the update. reader, writer: a and b; with delta,
       the key stands for one that is absent. */
    union {
        double *slot[LINEAR_SLOTS];
        struct {
#define LINEAR_SLOT(ID, name, ...) double *name;
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
        };
    };
    int width[LINEAR_SLOTS]; /* 1, d or d_v; 0: no such slot, or a decay of 1 */
    double *value, *seen;    /* [d_v]: scratch of a step */
    bool normalise, all_tokens, reverse, read_first;
};
/* Without delta: is what a reads added under b, beside v under the key? */
static inline bool linear_adds_seen(const struct linear_tokens *x)
{
    return !x->delta && x->reader;
}
static inline bool linear_looks(const struct linear_tokens *x)
{
    return x->delta || x->reader;
}
/* What reads the state before the token writes, and under what x->value is written, [d]. */
static inline const double *linear_reader(const struct linear_tokens *x, int64_t t)
{
    return (x->reader ? x->reader : x->k) + t * x->d;
}
static inline const double *linear_writer(const struct linear_tokens *x, int64_t t)
{
    return (x->delta && x->writer ? x->writer : x->k) + t * x->d;
}
static inline bool linear_slot_by_token(int k)
{
    return (linear_slot_of((enum linear_function)(k + 1))->varies & BY_TOKENS) != 0;
}
static inline int linear_decays(const struct linear_tokens *x) /* numbers of the decay per token */
{
    return x->width[OF_DECAY - 1];
}
/* The token of step i: reverse goes from the last to the first. */
static inline int64_t linear_token(const struct linear_tokens *x, int64_t i)
{
    return x->reverse ? x->n - 1 - i : i;
}
/* Is step t of a sequence the first of its token? Is its output one of o's? */
static inline bool linear_begins(const struct linear_tokens *x, int64_t t)
{
    return t % x->steps == (x->reverse ? x->steps - 1 : 0);
}
static inline bool linear_ends(const struct linear_tokens *x, int64_t t)
{
    return x->queries > 1 || t % x->steps == (x->reverse ? 0 : x->steps - 1);
}
/* Channel j of v as the recurrence takes it up: what the delta rule corrects, or what is written. */
double linear_taken(const struct linear_tokens *x, int64_t t, int j);
/* The parts of an update of S [d, d_v] and of the sum of keys z [d], which the caller has: D o S, and what
   the token reads of S before or behind that, into x->seen; what it adds under its key, into x->value: v, or
   by the delta rule beta (v - seen); and that it is added, with what was seen under b. */
void linear_prepare(const struct linear_tokens *x, int64_t t, double *s, double *z);
void linear_value(const struct linear_tokens *x, int64_t t);
void linear_add(const struct linear_tokens *x, int64_t t, double *s, double *z);
void linear_update(const struct linear_tokens *x, int64_t t, double *s, double *z);
/* o [d_v] of a token, before output_mod, from the state that it reads: in a step with a bonus the one before
   the update, else the one after it. Returns what o was divided by; 1 without `normalise`. */
double linear_read(const struct linear_tokens *x, int64_t t, const double *s, const double *z, double *o);
/* Both, in their order; all_tokens: neither. */
void linear_step(const struct linear_tokens *x, int64_t t, double *s, double *z, double *o);

/* Gradients of one head of one sequence, as the recurrence takes its numbers: step_back.c. */
struct linear_back {
    double *ds, *dz;      /* [d, d_v], [d]: of the state behind a step; a step makes it that before it */
    double *dq, *dk, *dv; /* [d], [d], [d_v]: of one token; these three lines are overwritten */
    /* Of what the slots gave, width[k] numbers: of one token, or added up where they do not vary by token. */
    union {
        double *slot[LINEAR_SLOTS];
        struct {
#define LINEAR_SLOT(ID, name, ...) double *name;
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
        };
    };
    double scale;  /* added up */
    double *s, *z; /* [d, d_v], [d]: scratch, as those below */
    double *decayed, *z_decayed;
    double *dnum, *dvalue, *dseen; /* [d_v] */
};
/* One step backwards, from the state before it and the gradient dout [d_v] of what it gave. */
void linear_step_back(const struct linear_tokens *x, int64_t t, const double *s, const double *z,
                      const double *dout, struct linear_back *b);
/* all_tokens, in two sweeps: every token's read of the sum over all, s and z, adds to ds and dz; then every
   token's own part of that sum. The first gives dq, the second dk and dv. */
void linear_all_read_back(const struct linear_tokens *x, int64_t t, const double *s, const double *z,
                          const double *dout, struct linear_back *b);
void linear_all_add_back(const struct linear_tokens *x, int64_t t, struct linear_back *b);

struct linear_head { /* one call */
    const struct host_call *call;
    struct host_view q_in, k_in, v_in;
    struct host_view state, norm; /* as [slot, h, channel, d_v] and [0, slot, h, d] */
    struct host_vectors vector;
    int64_t *start;         /* [seqs + 1]: where sequences begin among all tokens of their batch */
    int64_t *slot;          /* [seqs]: the state that each reads; -1: none */
    int64_t *slot_out;      /* [seqs]: and that it writes; a sequence with neither is skipped */
    struct linear_tokens x; /* of the head that was entered last, with room for all tokens */
    int64_t *kept;          /* [b, t]: where the state behind each token goes, -1: nowhere; NULL: none do */
    /* the same: */
    int64_t sequence, b, h, h_k;
    int64_t first; /* its token 0 among those of the batch */
    double *s;     /* [d, d_v]: the state it begins with, and scratch of the pass */
    double *z;     /* [d] */
};
/* Errors ARG: sequences that fall or do not end at t, a state that there is not or that two have. */
lathe_status linear_head_init(struct linear_head *head, const struct host_call *call, lathe_error *err);
void linear_head_free(struct linear_head *head);
bool linear_is_skipped(const struct linear_head *head, int64_t sequence);
int64_t linear_head_tokens(const struct linear_head *head, int64_t sequence); /* how many steps it has */
/* Where step t of the sequence lies in k, v and what is of updates; where in q, o and what is of tokens, and
   in which of q's or o's heads, of which `h` of k's or v's has x.queries. */
static inline int64_t linear_token_row(const struct linear_head *head, int64_t t)
{
    return head->first + t / head->x.steps;
}
static inline int64_t linear_update_row(const struct linear_head *head, int64_t t)
{
    return head->x.queries > 1 ? linear_token_row(head, t) : head->first * head->x.steps + t;
}
static inline int64_t linear_query_head(const struct linear_head *head, int64_t h, int64_t t)
{
    return h * head->x.queries + t % head->x.queries;
}
/* Tokens after their mods, and what the slots give, and the state that the sequence begins with; none of them
   where the sequence is skipped. Errors SPEC: a positive decay, a beta outside 0..2, with the line. */
lathe_status linear_head_enter(struct linear_head *head, int64_t sequence, int64_t h, lathe_error *err);
/* One token of it alone, and what is of the head: x.n counts all, of which the others are as they were. */
lathe_status linear_head_token(struct linear_head *head, int64_t sequence, int64_t h, int64_t t,
                               lathe_error *err);
/* at[] of a token of the head for a mod, or for the decay; t counts from the sequence's first. */
void linear_at(struct linear_head *head, int64_t t);
/* stage[0] = o, LEAF_V = v as it was given (in v, d_v numbers of scratch), then output_mod. */
lathe_status linear_output(struct linear_head *head, int64_t t, const double *o, double *v, lathe_error *err);

#endif
