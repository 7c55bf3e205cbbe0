/*
 * prove.h: what the files of the prover share, here and in the folder of each kind.
 *
 *  - struct prover: one run of `prove`: a copy of the spec (derived passes add nodes, and others read it),
 *    its signatures, a stream of random numbers.
 *  - struct data: random arguments for one set of sizes.
 *  - struct kind_proofs: what of the proofs is a kind's own; its row in the table of kinds names it.
 */
#ifndef LATHE_GEN_PROVE_H
#define LATHE_GEN_PROVE_H

#include <string.h>

#include "gen/base/text.h"
#include "gen/host/host.h"

struct proof;
struct prove_given;

/* ---- reach.c: sizes and numbers that a spec's own constants ask for -------------------------------- */

enum { CONSTANTS_MAX = 24 };
struct reach {
    int n;
    int n_compared;
    int n_nodes; /* of the spec's formulas */
    int turn;
    double constant[CONSTANTS_MAX]; /* of comparisons first; not 0 */
    int64_t keys;                   /* so many that comparisons of positions take both sides */
    int64_t heads;
    int64_t head_dim;
    bool by_index; /* a map compares its indices */
    int64_t
        table;   /* elements of dims that are no map's own, beyond what is compared; 0: as few as elsewhere */
    int64_t row; /* length of a long row, or of a long dim of a map */
};
struct prover;
/* False: out of memory. reach_close frees what it keeps. */
bool reach_open(struct prover *p);
void reach_close(struct prover *p);
/* How many elements a formula may have at once: memory and time of an evaluation. */
int64_t reach_affordable(const struct prover *p);
/* Of all tensors of a signature; dims that inputs name for themselves are 16. */
int64_t reach_elements(const struct signature *sig, const int64_t *dim);
/* Sizes of attention, from few keys to many. */
enum reach_size { SIZE_SMALL, SIZE_MIDDLE, SIZE_LARGE, SIZE_COUNT };
void reach_sizes(const struct prover *p, enum reach_size which, int64_t *dim);
/* A position below n: the first, the last, beside a constant, or any. */
int64_t reach_position(struct prover *p, int64_t n, int64_t start);
/* 0, a constant or a number beside one, or a power of ten, of either sign: at most 65504. */
double reach_number(struct prover *p);
/* Some elements of an input become such numbers. */
void reach_data(struct prover *p, const struct sig_arg *a, const lathe_arg *t);
/* One entry for each side that no comparison or choice of the spec's own file took. Returns how many. */
int reach_unseen(const struct prover *p, struct proof *out, int most);

/* ---- data.c ------------------------------------------------------------------------------------ */

struct prover {
    struct ir *ir; /* a copy; float inputs are of any dtype in it, so that f64 serves */
    struct signature forward;
    struct signature backward;
    void *own; /* what `open` of the kind has made, a block of its own; freed behind the proofs */
    uint64_t random;
    unsigned seed;
    const struct prove_given *given; /* NULL: nothing */
    char tried[320];                 /* sizes, and integers that are made up, of the last data_make */
    struct eval_mode mode;           /* of evaluations whose comparisons are watched */
    double start, seconds;           /* of all proofs, in processor time of this thread */
    double deadline;                 /* of the present one */
    bool quick;                      /* a few rounds of each proof */
    struct reach reach;
};
/* The present proof may take what is left of all time up to this share, so that none starves those behind it.
 */
void prover_allow(struct prover *p, double share);
/* Sizes of a proof: what is given takes the place of what it chose. data_make does so, too. */
void prover_sizes(const struct prover *p, int64_t *dim);

enum { DATA_MAX = 2 * MAX_ARGS };
struct data {
    int n;
    lathe_arg arg[DATA_MAX]; /* every argument of both passes (q_start where it is given); f64, i32 or u8 */
    char name[DATA_MAX][NAME_MAX_BYTES];
    int64_t shape[DATA_MAX][MAX_DIMS];
};
/* Random numbers: uniform in (0, 1), in 0 .. n - 1, and normal with deviation 1. */
double random_unit(struct prover *p);
int64_t random_below(struct prover *p, int64_t n);
double random_normal(struct prover *p);
/* dim: value of every symbol; free dims that are 0 become 16. False: out of memory; data_free either way. */
bool data_make(struct data *out, struct prover *p, const int64_t *dim);
/* Floats at an end of the range that their input has move inside by `part` of it, and at least of 1: what
   moves them further has room on both sides. */
void data_move_inside(struct data *d, const struct ir *ir, double part);
/* What arguments hold, of those with a copy: NULL is none. */
void data_copy(const struct data *d, double *const *copy);
void data_free(struct data *d);
static inline const lathe_arg *data_find(const struct data *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->arg[i].name, name) == 0)
            return &d->arg[i];
    return NULL;
}
/* "dNAME": what results are weighed by. */
const lathe_arg *data_find_seed(const struct data *d, const char *name);
/* given.c: what the caller says of an argument; a copy in another dtype; p->tried for this data. */
bool given_absent(const struct prover *p, const char *name);
const lathe_arg *given_arg(const struct prover *p, const char *name);
void given_copy(const lathe_arg *from, const lathe_arg *to);
void given_say_tried(struct prover *p, const struct data *d);
/* Those of the forward pass alone: reach.c. */
bool data_make_forward(struct data *out, struct prover *p, const int64_t *dim);
/* The arguments that a signature knows; returns how many. */
int data_select(const struct data *d, const struct signature *sig, lathe_arg *out);
/* Of the backward pass, which makes results of the forward pass itself: they would count if they were given.
 */
int data_select_backward(const struct data *d, const struct prover *p, lathe_arg *out);

/* ---- data_sizes.c -------------------------------------------------------------------------------- */

enum data_size {
    DATA_NEAR,
    DATA_LARGE,
    DATA_SHIFTED,
    DATA_HUGE,
    DATA_SMALL,
    DATA_ZERO,
    DATA_REACH,
    DATA_SIZES
};
const char *data_size_text(enum data_size size); /* "of deviation 1" */
/* How many float tensors are read, beside inputs. */
int data_tensors(const struct prover *p, const struct data *d);
/* Make data of that size; of ZERO the tensor of that number is, whose name comes back. */
const char *data_take_size(struct prover *p, struct data *d, enum data_size size, int zero);

/* ---- verdict.c ---------------------------------------------------------------------------------- */

/* |a - b| over the larger of the two and `scale`; equal infinities are close, NaN is never. */
double proof_distance(double a, double b, double scale);
void proof_begin(struct proof *out, const char *what, double bound);
/* Record an error; true where it is the first one beyond the bound: the caller says where. */
bool proof_record(struct proof *out, double error);
/* The same beside what rounding alone may make of it: an error beyond the bound, but not beyond that, tells
   nothing. */
bool proof_compare(struct proof *out, double error, double rounding);
/* That rounding, of weights of scores of this size: a score is as wrong as its last digit. */
enum { TOO_MANY_LOST = 90 /* percent */, ROUNDINGS = 16 };
double proof_rounding(double largest_score);
/* The largest score of a row that counts: of keys with a weight. */
double proof_score_size(const double *score, const double *weight, int64_t n);
/* Say what was lost; a proof of which nearly all is has failed. */
void proof_say_lost(struct proof *out, int line);
/* It has passed, but that is worth a word; the first one stays. */
void proof_warn(struct proof *out, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As it is to be printed. */
static inline double proof_shown(double value)
{
    return number_shown(value);
}
void proof_blame(struct proof *out, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The evaluator refused: its sentence becomes the note. */
void proof_refused(struct proof *out, const lathe_error *err);
/* Line of a node in the spec's own file; where it has none, of what it is made of; else 0. */
int proof_line(const struct ir *ir, int node);

/* Processor time of this thread, in seconds. */
double proof_clock(void);
/* False: the proof has used up its time; *out says that something was left out, the first time after what. */
bool proof_goes_on(const struct prover *p, struct proof *out, const char *what, int done);

/* ---- f32.c: in f32 as in double ------------------------------------------------------------------- */

/* What comes near the end of the range of f32 may leave it on the way. */
static const double F32_LARGEST = 1e30;
void f32_begin(const struct prover *p, struct proof *out);
/* exact: in double; single: in f32; moved: how far rounding what is read moves it; size: what one rounding is
   a part of. True where it is the first that is too far. */
bool f32_compare(struct proof *out, double exact, double single, double moved, double size);
void f32_conclude(struct proof *out);
/* Evaluations from now on are of that precision, and take the branches of the tape, which ROUNDED makes anew;
   at the end in double precision again. */
void f32_enter(struct prover *p, enum eval_precision precision, struct eval_tape *tape);
void f32_leave(struct prover *p);
/* Line of what left the range of f32 in the last evaluation, or of the root; and why f32 is wrong, in words.
 */
int f32_line(const struct prover *p, int root);
const char *f32_cause(const struct prover *p, char *out, size_t size);
/* Every result of the forward pass: values.c. */
void prove_values(struct prover *p, struct proof *out);

/* ---- the proofs of every kind -------------------------------------------------------------------- */

/* Decisions by positions, in f32 and in double precision: positions.c. Returns 0 where a spec has none, and
   nothing is told. */
int prove_positions(struct prover *p, struct proof *out);
/* Derived gradients against finite differences: gradients.c. */
void prove_gradients(struct prover *p, struct proof *out);
/* The same in f32 against double precision; a share of the verdict "f32 = double": gradients_f32.c. */
void prove_gradients_f32(struct prover *p, struct proof *out);
/* Both, for kinds that have no others; returns how many: prove.c. */
int prove_results(struct prover *p, struct proof *out);

#endif
