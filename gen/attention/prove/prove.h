/*
 * prove.h: what the proofs of attention share.
 *
 *  - struct row_bench: a row of attention with scores of its own, evaluated whole and in tiles.
 */
#ifndef LATHE_ATTENTION_PROVE_H
#define LATHE_ATTENTION_PROVE_H

#include "gen/attention/whole_row.h"
#include "gen/host/call.h"
#include "gen/prove/prove.h"

/* The formulas of the prover's spec in one graph. */
static inline const struct row_graph *prover_row(const struct prover *p)
{
    return p->own;
}

/* ---- prove_row_bench.c: a row in tiles ---------------------------------------------------------------- */

enum { BENCH_VALUES = 3, CUTS = 6, MAX_PARTS = 5 };
struct part { /* keys j0 .. j0 + n - 1 of a row */
    int j0;
    int n;
};
struct cutting { /* of a row into tiles, in the order in which they are walked */
    int n;
    struct part *part;
    const char *order;
};
/* What a way of computing a row gives. o_size is the sum of |weight * v|: what rounding is relative to. */
struct row {
    double o[BENCH_VALUES];
    double o_size[BENCH_VALUES];
    double final[MAX_STATE];
    double state[MAX_STATE];
};
enum row_scores {               /* before score_mod */
                  SCORES_NEAR,  /* of deviation 1 */
                  SCORES_FAR,   /* of deviation 40 */
                  SCORES_LOW,   /* about -200 */
                  SCORES_HIGH,  /* about 200 */
                  SCORES_REACH, /* numbers that the spec's constants ask for */
                  SCORES_EQUAL, /* all 0, as where q is */
                  SCORES_HUGE,  /* of deviation 20000 */
                  SCORES_FLAT,  /* of deviation 0.1: sums grow with the keys */
                  SCORES_KINDS
};
struct row_bench {
    struct prover *p;
    struct data data;
    lathe_arg arg[DATA_MAX]; /* of the call */
    struct host_call call;
    struct host_head head;
    struct eval_env split; /* axis SPLIT: combine */
    int turn;              /* rows so far */
    int n;                 /* live keys of the present row */
    enum row_scores scores;
    double *v;      /* [n, BENCH_VALUES] */
    double *s;      /* scores after score_mod */
    double *weight; /* of the row as one tile, with the epilogue's factor */
    double *spare[2];
    struct cutting tiles;
    struct cutting parts;
    struct row whole;
};
/* size: of what inputs hold, DATA_NEAR or DATA_REACH. */
lathe_status bench_open(struct row_bench *b, struct prover *p, const int64_t *dim, enum data_size size,
                        lathe_error *err);
void bench_close(struct row_bench *b);
/* Some row of some head, with scores of that kind; n is 0 where the mask leaves no key. */
lathe_status bench_row(struct row_bench *b, enum row_scores scores, lathe_error *err);
lathe_status bench_scores(struct row_bench *b, double *out, lathe_error *err); /* score_mod once more */
/* Cut it anew: tiles in ascending order, from the last, or in any, by `turn`; and parts. */
void bench_cut(struct row_bench *b, int turn);
/* The row in tiles. weight: NULL, or the weights of a row in one tile, with the epilogue's factor. */
lathe_status bench_tiles(struct row_bench *b, const struct cutting *tiles, struct row *row, double *weight,
                         lathe_error *err);
lathe_status bench_whole(struct row_bench *b, struct row *row, double *weight, lathe_error *err);
/* Weights by `forward` from these finals. */
lathe_status bench_forward(struct row_bench *b, const double *final, double *weight, lathe_error *err);
/* The parts one by one, merged by `combine`, then the epilogue. none: as if no part had a key, and without
   the epilogue. */
lathe_status bench_merge(struct row_bench *b, const struct cutting *parts, bool none, struct row *out,
                         lathe_error *err);
/* The formulas of a row without a live pair, behind a bench_row: for the sides that only its guards take. */
lathe_status bench_empty(struct row_bench *b, lathe_error *err);
void bench_say(const struct cutting *c, char *out, size_t size);

/* ---- the proofs -------------------------------------------------------------------------------- */

/* prove_rows.c */
void prove_rows(struct prover *p, struct proof *online, struct proof *forward, struct proof *combine,
                struct proof *f32);
/* prove_row_f32.c: the present row of a bench. */
lathe_status prove_row_f32(struct row_bench *b, struct proof *out, lathe_error *err);
/* That its scores are numbers, whatever digits they have. */
lathe_status prove_scores_f32(struct row_bench *b, struct proof *out, lathe_error *err);
void prove_mask(struct prover *p, struct proof *out);         /* prove_mask.c */
void prove_backward(struct prover *p, struct proof *out);     /* prove_backward.c */
void prove_own_backward(struct prover *p, struct proof *out); /* prove_backward.c */
void prove_large(struct prover *p, struct proof *out);        /* prove_large.c */
/* prove_weights.c: L of derived gradients, by the weights of `forward`. */
lathe_status prove_weigh_rows(const struct prover *p, const struct data *d, const struct host_call *call,
                              double *out, lathe_error *err);

#endif
