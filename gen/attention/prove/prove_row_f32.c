/*
 * prove_row_f32.c: a row of attention in f32 against double precision: scores, the row in tiles, weights by
 * `forward`, parts that `combine` merges. In: a row of a bench. Out: a share of the verdict "f32 = double",
 * judged as in gen/prove/f32.c.
 */
#include "gen/attention/prove/prove.h"
#include "gen/prove/proof.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MOVES = 6 };

struct tapes { /* branches of each thing that is evaluated several times */
    struct eval_tape scores, whole, tiles, forward, parts;
};

struct run { /* of the present row */
    struct row_bench *b;
    struct proof *out;
    bool far; /* that it is a number is all that is asked */
    struct tapes tape;
    struct row exact;     /* as one tile */
    struct row moved;     /* how far it moves */
    double *moved_weight; /* the same of weights by `forward`; [n] */
    double *moved_score;  /* [n] */
    double *exact_score;
    double *exact_forward;
    double *s; /* the bench's own scores, in double */
};

static void set(struct run *r, enum eval_precision precision, struct eval_tape *tape)
{
    f32_enter(r->b->p, precision, tape);
}

static void unset(struct run *r)
{
    f32_leave(r->b->p);
}

static double shift(double a, double b)
{
    return a == b ? 0 : fabs(a - b);
}

static void take_moved(struct run *r, const struct row *row)
{
    for (int e = 0; e < BENCH_VALUES; e++)
        r->moved.o[e] = fmax(r->moved.o[e], shift(row->o[e], r->exact.o[e]));
    for (int i = 0; i < MAX_STATE; i++)
        r->moved.final[i] = fmax(r->moved.final[i], shift(row->final[i], r->exact.final[i]));
}

static void take_moved_values(double *moved, const double *value, const double *exact, int n)
{
    for (int j = 0; j < n; j++)
        moved[j] = fmax(moved[j], shift(value[j], exact[j]));
}

/* Scores first: what comes after takes them as they are in f32. */
static lathe_status exact_row(struct run *r, lathe_error *err)
{
    struct row_bench *b = r->b;
    set(r, EVAL_ROUNDED, &r->tape.whole);
    lathe_status status = bench_whole(b, &r->exact, NULL, err);
    if (status == LATHE_OK && b->p->ir->forward.n_roots > 0) {
        set(r, EVAL_ROUNDED, &r->tape.forward);
        status = bench_forward(b, r->exact.final, r->exact_forward, err);
    }
    return status;
}

static lathe_status move_row(struct run *r, lathe_error *err)
{
    struct row_bench *b = r->b;
    struct row row;
    lathe_status status = LATHE_OK;
    for (int i = 0; i < MOVES && status == LATHE_OK; i++) {
        b->p->mode.seed = (uint64_t)i;
        set(r, EVAL_MOVED, &r->tape.whole);
        status = bench_whole(b, &row, NULL, err);
        take_moved(r, &row);
        if (status == LATHE_OK && b->p->ir->forward.n_roots > 0) {
            set(r, EVAL_MOVED, &r->tape.forward);
            status = bench_forward(b, r->exact.final, b->spare[1], err);
            take_moved_values(r->moved_weight, b->spare[1], r->exact_forward, b->n);
        }
    }
    return status;
}

static const char *where_text(const struct row_bench *b)
{
    static const char *const text[SCORES_KINDS] = {"of deviation 1", "of deviation 40", "about -200",
                                                   "about 200",      "of any size",     "of 0",
                                                   "up to 65504",    "of deviation 0.1"};
    return text[b->scores];
}

static void judge(struct run *r, const struct row *row, const char *way, const struct cutting *cutting,
                  const int *root)
{
    struct row_bench *b = r->b;
    double steps = sqrt(1.0 + cutting->n);
    for (int i = 0; *way && i < b->p->ir->n_finals; i++) /* a factor is the exponential of a rounded final */
        steps = fmax(steps, fmin(fabs(r->exact.final[i]), F32_LARGEST));
    char why[80];
    char parts[128];
    bench_say(cutting, parts, sizeof parts);
    for (int e = 0; e < BENCH_VALUES; e++)
        if (f32_compare(r->out, r->exact.o[e], row->o[e], r->moved.o[e], steps * r->exact.o_size[e]))
            proof_blame(r->out, f32_line(b->p, root[0]),
                        "o is %.6g in f32%s (%s; scores %s), %.6g in double%s", proof_shown(row->o[e]), way,
                        parts, where_text(b), r->exact.o[e], f32_cause(b->p, why, sizeof why));
    for (int i = 0; i < b->p->ir->n_finals; i++)
        if (f32_compare(r->out, r->exact.final[i], row->final[i], r->moved.final[i],
                        steps * fmax(1, fabs(r->exact.final[i]))))
            proof_blame(r->out, f32_line(b->p, root[1 + i]),
                        "%s is %.6g in f32%s (%s; scores %s), %.6g in double%s", b->p->ir->final[i].name,
                        proof_shown(row->final[i]), way, parts, where_text(b), r->exact.final[i],
                        f32_cause(b->p, why, sizeof why));
}

/* The same tiles in double first, for the branches they take. */
static lathe_status judge_tiles(struct run *r, lathe_error *err)
{
    struct row_bench *b = r->b;
    struct row row;
    bench_cut(b, 1 + (int)random_below(b->p, 2));
    set(r, EVAL_ROUNDED, &r->tape.tiles);
    lathe_status status = bench_tiles(b, &b->tiles, &row, NULL, err);
    set(r, EVAL_F32, &r->tape.tiles);
    if (status == LATHE_OK)
        status = bench_tiles(b, &b->tiles, &row, NULL, err);
    if (status == LATHE_OK)
        judge(r, &row, "", &b->tiles, b->p->ir->epilogue.root);
    return status;
}

static lathe_status judge_parts(struct run *r, lathe_error *err)
{
    struct row_bench *b = r->b;
    struct row row;
    set(r, EVAL_ROUNDED, &r->tape.parts);
    lathe_status status = bench_merge(b, &b->parts, false, &row, err);
    for (int i = 0; i < MOVES && status == LATHE_OK; i++) { /* finals of parts are read, too */
        b->p->mode.seed = (uint64_t)i;
        set(r, EVAL_MOVED, &r->tape.parts);
        status = bench_merge(b, &b->parts, false, &row, err);
        take_moved(r, &row);
    }
    set(r, EVAL_F32, &r->tape.parts);
    if (status == LATHE_OK)
        status = bench_merge(b, &b->parts, false, &row, err);
    if (status == LATHE_OK)
        judge(r, &row, " from parts that combine merges", &b->parts, b->p->ir->combine.root);
    return status;
}

static lathe_status judge_weights(struct run *r, lathe_error *err)
{
    struct row_bench *b = r->b;
    double largest = 0;
    char why[80];
    set(r, EVAL_F32, &r->tape.forward);
    const lathe_status status = bench_forward(b, r->exact.final, b->spare[1], err);
    for (int j = 0; j < b->n; j++)
        largest = fmax(largest, isfinite(r->exact_forward[j]) ? fabs(r->exact_forward[j]) : 0);
    for (int j = 0; j < b->n && status == LATHE_OK; j++)
        if (f32_compare(r->out, r->exact_forward[j], b->spare[1][j], r->moved_weight[j], largest))
            proof_blame(r->out, f32_line(b->p, b->p->ir->forward.root[0]),
                        "a weight by forward is %.6g in f32 (scores %s), %.6g in double%s",
                        proof_shown(b->spare[1][j]), where_text(b), r->exact_forward[j],
                        f32_cause(b->p, why, sizeof why));
    return status;
}

/* score_mod: a score is as wrong as its own last digit, whatever it was made of. */
static lathe_status judge_scores(struct run *r, lathe_error *err)
{
    struct row_bench *b = r->b;
    char why[80];
    set(r, EVAL_ROUNDED, &r->tape.scores);
    lathe_status status = bench_scores(b, r->exact_score, err);
    for (int i = 0; i < MOVES && status == LATHE_OK; i++) {
        b->p->mode.seed = (uint64_t)i;
        set(r, EVAL_MOVED, &r->tape.scores);
        status = bench_scores(b, b->spare[1], err);
        take_moved_values(r->moved_score, b->spare[1], r->exact_score, b->n);
    }
    set(r, EVAL_F32, &r->tape.scores);
    if (status == LATHE_OK)
        status = bench_scores(b, b->spare[1], err);
    for (int j = 0; j < b->n && status == LATHE_OK; j++)
        if (!(r->far && isfinite(b->spare[1][j])) &&
            f32_compare(r->out, r->exact_score[j], b->spare[1][j], r->moved_score[j],
                        fmax(1, fabs(r->exact_score[j]))))
            proof_blame(r->out, f32_line(b->p, b->p->ir->score.root[0]),
                        "a score of %.6g becomes %.6g in f32, %.6g in double%s", b->head.scaled[j],
                        proof_shown(b->spare[1][j]), r->exact_score[j], f32_cause(b->p, why, sizeof why));
    return status;
}

/* ---- the row's door ------------------------------------------------------------------------------- */

static bool open_run(struct run *r, struct row_bench *b, struct proof *out)
{
    const size_t n = (size_t)b->n + 1;
    *r = (struct run){.b = b, .out = out, .s = b->s};
    r->moved_weight = calloc(n, sizeof(double));
    r->moved_score = calloc(n, sizeof(double));
    r->exact_score = calloc(n, sizeof(double));
    r->exact_forward = calloc(n, sizeof(double));
    return r->moved_weight && r->moved_score && r->exact_score && r->exact_forward;
}

static void close_run(struct run *r)
{
    struct eval_tape *tape[] = {&r->tape.scores, &r->tape.whole, &r->tape.tiles, &r->tape.forward,
                                &r->tape.parts};
    for (size_t i = 0; i < sizeof tape / sizeof tape[0]; i++)
        free(tape[i]->value);
    r->b->s = r->s;
    free(r->moved_weight);
    free(r->moved_score);
    free(r->exact_score);
    free(r->exact_forward);
    unset(r);
}

static bool holds(const double *value, int n)
{
    for (int j = 0; j < n; j++)
        if (isnan(value[j]) || value[j] > (double)FLT_MAX)
            return false;
    return true;
}

lathe_status prove_scores_f32(struct row_bench *b, struct proof *out, lathe_error *err)
{
    struct run r;
    lathe_status status = open_run(&r, b, out) ? LATHE_OK : host_out_of_memory(err);
    r.far = true;
    if (status == LATHE_OK)
        status = judge_scores(&r, err);
    close_run(&r);
    return status;
}

lathe_status prove_row_f32(struct row_bench *b, struct proof *out, lathe_error *err)
{
    struct run r;
    lathe_status status = open_run(&r, b, out) ? LATHE_OK : host_out_of_memory(err);
    if (status == LATHE_OK && b->p->ir->score.n_roots > 0)
        status = judge_scores(&r, err);
    for (int j = 0; j < b->n && status == LATHE_OK; j++)
        r.exact_score[j] = (double)(float)r.s[j];
    if (status == LATHE_OK && holds(r.exact_score, b->n)) {
        b->s = r.exact_score;
        status = exact_row(&r, err);
        if (status == LATHE_OK)
            status = move_row(&r, err);
        if (status == LATHE_OK)
            status = judge_tiles(&r, err);
        if (status == LATHE_OK && b->p->ir->forward.n_roots > 0)
            status = judge_weights(&r, err);
        if (status == LATHE_OK && b->p->ir->combine.n_roots > 0)
            status = judge_parts(&r, err);
    }
    close_run(&r);
    return status;
}
