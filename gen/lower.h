/*
 * lower.h: private to the emitters. A spec's IR specialised for a problem and rewritten into what a kernel
 * computes, and the schedule of an online function over the passes of a tile.
 */
#ifndef LATHE_LOWER_H
#define LATHE_LOWER_H

#include "gen.h"

/* Specialise a clone: head dims become constants, absent inputs their defaults, detach disappears, and
   attention's online function is composed with scale and score_mod so that it starts from PARAM_QK.
   NULL: LOWER_FAILED. The caller frees it with ir_free. */
#define LOWER_FAILED "the formulas need more than %d nodes, or memory ran out" /* IR_MAX_NODES */
struct ir *lower(const struct ir *ir, const struct signature *sig, const struct problem *problem);
/* Fast functions serve: some result is in 16 bits, and every one that a point has of its own: a
   spec that only sums into f32 is as exact as one that stores f32. */
bool lower_is_fast(const struct ir *ir, const struct signature *sig, const struct problem *problem);

enum { MAX_REDUCTIONS = 8 };

/* How online_fwd runs over the elements of a tile; see schedule.c. */
struct schedule {
    int passes;
    int n_reductions;
    int reduction[MAX_REDUCTIONS]; /* nodes, ascending pass */
    int pass[MAX_REDUCTIONS];
    bool lazy[MAX_REDUCTIONS];
    bool state_lazy[MAX_STATE];
    int carry;      /* node that elements hold after pass 0 */
    int store_pass; /* pass that turns an element into its weight */
    int weight;     /* node */
    int diag;       /* node that depends on at.q - at.kv only and is worth sharing; -1: none */
};
/* False: more than MAX_REDUCTIONS reductions. */
bool schedule_online(struct ir *w, struct schedule *out);
/* The same of w->pivot.kept. */
bool schedule_kept(struct ir *w, struct schedule *out);

/* ---- distances.c: values of at.q - at.kv alone --------------------------------------------------- */

/* The dearest f32 one that other values below the roots use, where it is worth keeping for a diagonal; -1:
 * none. */
int diagonal_of(const struct ir *w, const int *root, int n_roots);
/* The score's terms of the distance become one value, where one of them is worth keeping. */
void distances_gather(struct ir *w);

/* ---- shift.c: what moving the reference of a row does to a value ------------------------------- */

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

/* ---- terms.c: a value as a sum of products ------------------------------------------------------ */

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

/* ---- live_range.c ------------------------------------------------------------------------------- */

/* After every other pass over a lowered spec of attention: fills w->live_range and w->live_rest. */
void live_range_pass(struct ir *w);

/* ---- pivot.c: how a row's state goes from tile to tile ------------------------------------------ */

/* After lower(), of attention forward: find the path, rewrite the online function and the epilogue for it,
   and record it in w->pivot. */
void pivot_pass(struct ir *w, lathe_dtype dtype);
const char *pivot_path_text(const struct pivot *p); /* "lazy" */
/* A sentence for `lathe explain`. optimistic: whole tiles try the maximum at hand first. */
void pivot_say(const struct ir *w, bool optimistic, char *out, size_t size);

/* ---- defer.c: normalising o at the end --------------------------------------------------------- */

/* Of pivot_pass. False: it may not wait, and nothing has changed. */
bool defer_normaliser(struct ir *w, lathe_dtype dtype);

/* ---- ramps.c ------------------------------------------------------------------------------------ */

/* After pivot_pass: makes the formulas of the elements short, and fills w->ramp. */
void ramps_pass(struct ir *w);

/* ---- ranges.c ------------------------------------------------------------------------------------ */

struct range {
    double low, high;
};
/* Of all nodes up to root: what a value may be, whatever the data; infinite where nothing is known. */
void ranges_of_all(const struct ir *w, int root, struct range *out);

/* ---- dead.c ---------------------------------------------------------------------------------------- */

/* After pivot_pass: fills in w->pivot.dead_once and .dead. */
void dead_pass(struct ir *w);

/* reach[i]: node i is needed for the roots when the nodes in `stop` are given. */
void reach(const struct ir *w, const int *root, int n_roots, const int *stop, int n_stop, bool *out);

#endif
