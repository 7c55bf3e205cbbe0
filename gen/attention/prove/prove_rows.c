/*
 * prove_rows.c: the online function against the row as one tile. A row of random scores is evaluated whole,
 * then in random tiles in any order (online = whole row), from its finals (forward = whole row), in random
 * parts that `combine` merges (combine = whole), and all of it in f32 (prove_row_f32.c). In: a prover. Out:
 * four verdicts with lines. Scores have deviation 1 or 40, and parts may lie far apart, so that a wrong
 * stabiliser shows; then come scores that f32 or a constant of the spec makes interesting, and rows of many
 * keys.
 */
#include "gen/attention/prove/prove.h"
#include "gen/prove/proof.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { FAR_INPUTS = 12, FAR_ROUNDS = 4 };
static const double BOUND = 1e-9;
static const double FLOOR = 1e-2; /* numbers smaller than this are compared absolutely, against it */

struct verdicts {
    struct proof *online, *forward, *combine, *f32;
};

static const struct ir *ir_of(const struct row_bench *b)
{
    return b->p->ir;
}

/* Only usual scores are counted: among others many tell nothing. */
static bool is_usual(const struct row_bench *b)
{
    return b->scores == SCORES_NEAR || b->scores == SCORES_FAR;
}

static double rounding_of(const struct row_bench *b)
{
    return proof_rounding(proof_score_size(b->s, b->weight, b->n));
}

static bool compare(const struct row_bench *b, struct proof *out, double error)
{
    const int tried = out->n_tried;
    const int lost = out->n_lost;
    const bool first = proof_compare(out, error, rounding_of(b));
    if (!is_usual(b)) {
        out->n_tried = tried;
        out->n_lost = lost;
    }
    return first;
}

/* ---- differences --------------------------------------------------------------------------------- */

/* The state that went astray is the likely culprit: finals are made of states. */
static int online_culprit(const struct row_bench *b, const struct row *row, const char **what,
                          const char **name)
{
    const struct ir *ir = ir_of(b);
    for (int i = 0; i < ir->n_states; i++) {
        if (proof_distance(row->state[i], b->whole.state[i], FLOOR) > BOUND) {
            *what = "row value ";
            *name = ir->state[i].name;
            return ir->online.root[2 + i];
        }
    }
    *what = "o_scale";
    *name = "";
    return ir->online.root[1];
}

static double distance_o(const struct row *row, const struct row *whole)
{
    double worst = 0;
    for (int e = 0; e < BENCH_VALUES; e++)
        worst = fmax(worst, proof_distance(row->o[e], whole->o[e],
                                           fmax(fmax(row->o_size[e], whole->o_size[e]), FLOOR * FLOOR)));
    return worst;
}

/* The final that differs most, -1 where there is none. */
static double distance_finals(const struct row_bench *b, const struct row *row, int *which)
{
    double worst = 0;
    *which = -1;
    for (int i = 0; i < ir_of(b)->n_finals; i++) {
        double distance = proof_distance(row->final[i], b->whole.final[i], FLOOR);
        if (distance > worst) {
            worst = distance;
            *which = i;
        }
    }
    return worst;
}

struct difference { /* of a row from the whole */
    double o, finals;
    int which;       /* the final that differs most; -1: there is none */
    char parts[128]; /* what the row was made of */
};

/* False: there is nothing to say about it. */
static bool find_difference(const struct row_bench *b, const struct cutting *cutting, const struct row *row,
                            struct proof *out, struct difference *d)
{
    *d = (struct difference){.o = distance_o(row, &b->whole)};
    d->finals = distance_finals(b, row, &d->which);
    if (!compare(b, out, fmax(d->o, d->finals)))
        return false;
    bench_say(cutting, d->parts, sizeof d->parts);
    return true;
}

struct shown { /* one value of both; final: -1 for o */
    const char *name;
    double part, whole;
};

static struct shown show(const struct row_bench *b, const struct row *row, int final)
{
    return final < 0 ? (struct shown){"o", proof_shown(row->o[0]), proof_shown(b->whole.o[0])}
                     : (struct shown){ir_of(b)->final[final].name, proof_shown(row->final[final]),
                                      proof_shown(b->whole.final[final])};
}

static const char *scores_text(enum row_scores scores)
{
    static const char *const text[SCORES_KINDS] = {
        "have deviation 1", "have deviation 40",       "lie about -200",  "lie about 200",
        "are of any size",  "are 0 (as where q is 0)", "are up to 65504", "have deviation 0.1"};
    return text[scores];
}

/* Does an operation make NaN of finite numbers there, as sqrt and log of negative ones do? */
static bool makes_nan(const struct eval_env *env, int node, int j)
{
    const struct ir_node *n = &env->ir->node[node];
    const bool is_formula = n->n_args > 0 && n->op != OP_LOAD && !ir_op_is_reduction((int)n->op);
    if (!env->value[node] || !is_formula || !isnan(host_value(env, node, j)))
        return false;
    for (int k = 0; k < n->n_args; k++)
        if (!isfinite(host_value(env, n->arg[k], j)))
            return false;
    return true;
}

/* The first such operation of what was evaluated last, over n keys. */
static bool blame_nan(const struct row_bench *b, struct proof *out)
{
    const struct eval_env *env = &b->head.pair;
    for (int i = 0; env->value && i < env->ir->n_nodes; i++)
        for (int j = 0; j < b->n; j++) {
            if (!makes_nan(env, i, j))
                continue;
            proof_blame(
                out, proof_line(env->ir, i),
                "%s of %.3g is NaN, where scores %s: they have both signs, so keep what it is given in its "
                "range, as in max(s, 0.0)",
                ir_op_name((int)env->ir->node[i].op),
                proof_shown(host_value(env, env->ir->node[i].arg[0], j)), scores_text(b->scores));
            return true;
        }
    return false;
}

/* Scores of deviation 40 are more than the weights can take: then nothing is compared. */
static bool blame_overflow(struct row_bench *b, struct shown s, struct proof *out)
{
    if (isfinite(s.part) || isfinite(s.whole))
        return false;
    if (bench_scores(b, b->spare[0], NULL) == LATHE_OK && blame_nan(b, out))
        return true;
    proof_blame(out, proof_line(ir_of(b), ir_of(b)->online.root[0]),
                "%s is infinite or NaN however the row is cut: a weight or a sum overflows where scores %s",
                s.name, scores_text(b->scores));
    return true;
}

/* ---- verdicts ------------------------------------------------------------------------------------ */

static void judge_online(struct row_bench *b, const struct row *row, struct proof *out)
{
    struct difference d;
    const char *what;
    const char *name;
    if (!find_difference(b, &b->tiles, row, out, &d))
        return;
    const struct shown s = show(b, row, d.finals > d.o ? d.which : -1);
    if (blame_overflow(b, s, out))
        return;
    int culprit = online_culprit(b, row, &what, &name);
    proof_blame(out, proof_line(ir_of(b), culprit),
                "%s is %.6g in tiles of %s, %.6g as one tile; look at %s%s of online_fwd", s.name, s.part,
                d.parts, s.whole, what, name);
}

static lathe_status judge_forward(struct row_bench *b, struct proof *out, lathe_error *err)
{
    double *weight = b->spare[1];
    const lathe_status status = bench_forward(b, b->whole.final, weight, err);
    if (status != LATHE_OK)
        return status;
    double largest = FLOOR * FLOOR;
    double worst = 0;
    int key = 0;
    for (int j = 0; j < b->n; j++)
        largest = fmax(largest, fabs(b->weight[j]));
    for (int j = 0; j < b->n; j++) {
        const double distance = proof_distance(weight[j], b->weight[j], largest);
        key = distance > worst ? j : key;
        worst = fmax(worst, distance);
    }
    if (compare(b, out, worst))
        proof_blame(out, proof_line(ir_of(b), ir_of(b)->forward.root[0]),
                    "weight of key %d of %d is %.6g by forward, %.6g by online_fwd and its epilogue", key,
                    b->n, proof_shown(weight[key]), proof_shown(b->weight[key]));
    return LATHE_OK;
}

/* Which row state is not that of the whole row; the factor of o, where all are. */
static int merge_culprit(const struct row_bench *b, const struct row *row, const char **what,
                         const char **name)
{
    const struct ir *ir = ir_of(b);
    for (int i = 0; i < ir->n_states; i++) {
        if (proof_distance(row->state[i], b->whole.state[i], FLOOR) > BOUND) {
            *what = "row value ";
            *name = ir->state[i].name;
            return ir->combine.root[1 + i];
        }
    }
    return ir->combine.root[0];
}

static lathe_status judge_combine(struct row_bench *b, struct proof *out, lathe_error *err)
{
    struct difference d;
    struct row row;
    const lathe_status status = bench_merge(b, &b->parts, false, &row, err);
    if (status != LATHE_OK || !find_difference(b, &b->parts, &row, out, &d))
        return status;
    const int final = d.finals > BOUND ? d.which : -1;
    const struct shown s = show(b, &row, final);
    if (blame_overflow(b, s, out))
        return LATHE_OK;
    const char *what = "";
    const char *name = "the factor of o";
    const int root = merge_culprit(b, &row, &what, &name);
    proof_blame(out, proof_line(ir_of(b), root),
                "%s is %.6g from parts of %s, %.6g as a whole; look at %s%s of combine", s.name, s.part,
                d.parts, s.whole, what, name);
    return LATHE_OK;
}

/* Parts that all have no live key: o is 0, and the row state is what it starts as. */
static lathe_status judge_empty(struct row_bench *b, struct proof *out, lathe_error *err)
{
    struct row row;
    const lathe_status status = bench_merge(b, &b->parts, true, &row, err);
    if (status != LATHE_OK)
        return status;
    if (proof_record(out, proof_distance(row.o[0], 0, 1)))
        proof_blame(
            out, proof_line(ir_of(b), ir_of(b)->combine.root[0]),
            "where no part has a live key, the factor of o is infinite or NaN, and o = 0 becomes NaN");
    for (int i = 0; i < ir_of(b)->n_states; i++) {
        const struct scale_name *state = &ir_of(b)->state[i];
        if (proof_record(out, proof_distance(row.state[i], state->init, FLOOR)))
            proof_blame(out, proof_line(ir_of(b), ir_of(b)->combine.root[1 + i]),
                        "where no part has a live key, row value %s is %.6g; it starts as %.6g", state->name,
                        proof_shown(row.state[i]), proof_shown(state->init));
    }
    return LATHE_OK;
}

/* ---- rounds -------------------------------------------------------------------------------------- */

/* Is what the row gives a number that f32 can hold? Of unusual scores only those are compared. */
static bool is_in_range(const struct row_bench *b)
{
    for (int j = 0; j < b->n; j++)
        if (fabs(b->weight[j]) > (double)FLT_MAX || b->s[j] > (double)FLT_MAX)
            return false;
    return true;
}

static lathe_status judge_row(struct row_bench *b, const struct verdicts *v, int turns, lathe_error *err)
{
    struct row row;
    lathe_status status = bench_whole(b, &b->whole, b->weight, err);
    if (status == LATHE_OK && !is_usual(b) && !is_in_range(b))
        return status;
    for (int i = 0; i < turns && status == LATHE_OK; i++) {
        bench_cut(b, i + (turns < 3 ? 1 : 0));
        status = bench_tiles(b, &b->tiles, &row, NULL, err);
        if (status == LATHE_OK)
            judge_online(b, &row, v->online);
    }
    if (status == LATHE_OK && v->forward->applies)
        status = judge_forward(b, v->forward, err);
    if (status == LATHE_OK && v->combine->applies)
        status = judge_combine(b, v->combine, err);
    if (status == LATHE_OK && v->combine->applies)
        status = judge_empty(b, v->combine, err);
    if (status == LATHE_OK)
        status = prove_row_f32(b, v->f32, err);
    return status;
}

static const struct effort { /* at a size */
    int rounds, quick, turns;
} EFFORT[SIZE_COUNT] = {{56, 16, 3}, {16, 8, 2}, {8, 0, 2}};

static const char *const SIZE_NAME[SIZE_COUNT] = {"rows of 40 keys", "rows of some hundred keys",
                                                  "rows of many keys"};

/* Of few keys half of the rows have usual scores. */
static enum row_scores scores_of(enum reach_size size, int round)
{
    static const enum row_scores large[] = {SCORES_FLAT, SCORES_REACH, SCORES_NEAR, SCORES_FLAT,
                                            SCORES_HUGE, SCORES_EQUAL, SCORES_FLAT, SCORES_FAR};
    if (size == SIZE_LARGE)
        return large[round % (int)(sizeof large / sizeof large[0])];
    if (size == SIZE_MIDDLE)
        return (enum row_scores)((round + 4) % SCORES_KINDS);
    return (enum row_scores)(round % 4 < 2 ? round % 2 : (round / 4 * 2 + round % 2 + 2) % SCORES_KINDS);
}

static lathe_status rounds_of(struct prover *p, enum reach_size size, const struct verdicts *v,
                              lathe_error *err)
{
    const int rounds = p->quick ? EFFORT[size].quick : EFFORT[size].rounds;
    int64_t dim[SYM_COUNT];
    struct row_bench b;
    if (rounds == 0) /* tables of so many keys are not even made */
        return LATHE_OK;
    reach_sizes(p, size, dim);
    lathe_status status = bench_open(&b, p, dim, DATA_NEAR, err);
    for (int round = 0; round < rounds && status == LATHE_OK; round++) {
        if (!proof_goes_on(p, v->online, SIZE_NAME[size], round))
            break;
        status = bench_row(&b, scores_of(size, round), err);
        if (status == LATHE_OK && b.n > 0)
            status = judge_row(&b, v, EFFORT[size].turns, err);
        if (status == LATHE_SPEC && size != SIZE_SMALL) { /* its tables are not made for so many keys */
            snprintf(v->online->note, sizeof v->online->note, "a row of %lld keys was left out: %.160s",
                     (long long)dim[SYM_KV], err->text);
            status = LATHE_OK;
        }
    }
    if (status == LATHE_OK && size == SIZE_SMALL && b.turn > 0)
        status = bench_empty(&b, err);
    bench_close(&b);
    return status;
}

/* Scores are numbers, too, where inputs hold what the spec's constants ask for. What such inputs refuse is no
   mistake. */
static lathe_status far_inputs(struct prover *p, const struct verdicts *v, lathe_error *err)
{
    int64_t dim[SYM_COUNT];
    lathe_status status = LATHE_OK;
    const int openings = p->ir->n_inputs > 0 && p->ir->score.n_roots > 0 ? FAR_INPUTS : 0;
    reach_sizes(p, SIZE_SMALL, dim);
    for (int i = 0; i < openings && status != LATHE_MEMORY; i++) {
        struct row_bench b;
        status = bench_open(&b, p, dim, DATA_REACH, err);
        for (int round = 0; round < FAR_ROUNDS && status == LATHE_OK; round++) {
            if (!proof_goes_on(p, v->online, "rows", round))
                break;
            status = bench_row(&b, round % 2 ? SCORES_FAR : SCORES_NEAR, err);
            if (status == LATHE_OK && b.n > 0)
                status = prove_scores_f32(&b, v->f32, err);
        }
        bench_close(&b);
    }
    return status == LATHE_MEMORY ? status : LATHE_OK;
}

void prove_rows(struct prover *p, struct proof *online, struct proof *forward, struct proof *combine,
                struct proof *f32)
{
    const struct verdicts v = {online, forward, combine, f32};
    lathe_error err = {.status = LATHE_OK};
    lathe_status status = LATHE_OK;
    proof_begin(online, "online = whole row", BOUND);
    proof_begin(forward, "forward = whole row", BOUND);
    proof_begin(combine, "combine = whole", BOUND);
    f32_begin(p, f32);
    forward->applies = p->ir->forward.n_roots > 0;
    combine->applies = p->ir->combine.n_roots > 0;
    for (int size = 0; size < SIZE_COUNT && status == LATHE_OK; size++)
        status = rounds_of(p, (enum reach_size)size, &v, &err);
    if (status == LATHE_OK && !p->quick)
        status = far_inputs(p, &v, &err);
    if (status != LATHE_OK)
        proof_refused(online, &err);
    const int line = proof_line(p->ir, prover_row(p)->score);
    proof_say_lost(online, line);
    proof_say_lost(forward, line);
    proof_say_lost(combine, line);
    forward->cut_short = combine->cut_short = f32->cut_short = online->cut_short;
}
