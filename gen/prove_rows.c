/*
 * prove_rows.c: the online function against the row as one tile. A row of random scores is evaluated whole,
 * then in random tiles (online = whole row), from its finals (forward = whole row), and in random parts that
 * `combine` merges (combine = whole). In: a prover. Out: three verdicts with lines.
 * Scores have deviation 1 or 40, and parts may lie far apart, so that a wrong stabiliser shows.
 */
#include "prove.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEN_Q = 9, LEN_KV = 40, ROUNDS = 40, CUTS = 6, MAX_PARTS = 5, D_V = 3 };
static const double BOUND = 1e-9;
static const double FLOOR = 1e-2; /* numbers smaller than this are compared absolutely, against it */

struct part { /* keys j0 .. j0 + n - 1 of a row */
    int j0;
    int n;
};

/* What a way of computing a row gives. o_size is the sum of |weight * v|: what rounding is relative to. */
struct row {
    double o[D_V];
    double o_size[D_V];
    double final[MAX_STATE];
    double state[MAX_STATE];
};

struct bench {
    struct prover *p;
    struct data data;
    struct host_call call;
    struct host_head head;
    struct eval_env split; /* axis SPLIT: combine */
    double v[LEN_KV][D_V];
    double s[LEN_KV];      /* scores after score_mod, of the live keys */
    double weight[LEN_KV]; /* whole row, with the epilogue's factor */
    double rounding;       /* what it may make of a weight */
    struct row whole;
};

static const struct ir *ir_of(const struct bench *b)
{
    return b->p->ir;
}

static lathe_status eval_part(struct bench *b, struct part part, const double *s, const int *root, int n,
                              lathe_error *err)
{
    struct eval_env *env = &b->head.pair;
    env->n = part.n;
    env->at_axis[AT_KV] = b->head.kv + part.j0;
    env->param[PARAM_S] = s ? s + part.j0 : NULL;
    env->param[PARAM_QK] = b->head.qk + part.j0;
    return host_eval(env, root, n, err);
}

static void add_values(const struct bench *b, struct part part, const double *weight, double *o,
                       double *o_size)
{
    for (int j = 0; j < part.n; j++) {
        for (int e = 0; e < D_V; e++) {
            o[e] += weight[j] * b->v[part.j0 + j][e];
            o_size[e] += fabs(weight[j] * b->v[part.j0 + j][e]);
        }
    }
}

/* ---- a row, or a part of it, as one tile ------------------------------------------------------- */

/* weight: NULL, or the weights with the epilogue's factor. */
static lathe_status run_whole(struct bench *b, struct part part, struct row *out, double *weight,
                              lathe_error *err)
{
    const struct row_graph *g = &b->p->row;
    int root[3 + 2 * MAX_STATE] = {g->score, g->weight, g->factor};
    int n = 3;
    for (int i = 0; i < ir_of(b)->n_finals; i++)
        root[n++] = g->final[i];
    for (int i = 0; i < ir_of(b)->n_states; i++)
        root[n++] = g->state[i];
    lathe_status status = eval_part(b, part, NULL, root, n, err);
    if (status != LATHE_OK)
        return status;
    const struct eval_env *env = &b->head.pair;
    double w[LEN_KV];
    double factor = host_value(env, g->factor, 0);
    host_values(env, g->weight, part.n, w);
    for (int j = 0; j < part.n; j++)
        w[j] *= factor;
    memset(out, 0, sizeof *out);
    add_values(b, part, w, out->o, out->o_size);
    for (int i = 0; i < ir_of(b)->n_finals; i++)
        out->final[i] = host_value(env, g->final[i], 0);
    for (int i = 0; i < ir_of(b)->n_states; i++)
        out->state[i] = host_value(env, g->state[i], 0);
    if (!weight)
        return LATHE_OK;
    memcpy(weight, w, (size_t)part.n * sizeof *w);
    host_values(env, g->score, part.n, b->s + part.j0);
    return LATHE_OK;
}

/* ---- the same in tiles ------------------------------------------------------------------------- */

static lathe_status run_tile(struct bench *b, struct part tile, struct row *row, lathe_error *err)
{
    const struct ir_fn *online = &ir_of(b)->online;
    struct eval_env *env = &b->head.pair;
    for (int i = 0; i < ir_of(b)->n_states; i++)
        env->param[PARAM_STATE + i] = &row->state[i];
    lathe_status status = eval_part(b, tile, b->s, online->root, online->n_roots, err);
    if (status != LATHE_OK)
        return status;
    double weight[LEN_KV];
    host_values(env, online->root[0], tile.n, weight);
    double o_scale = host_value(env, online->root[1], 0);
    for (int e = 0; e < D_V; e++) {
        row->o[e] *= o_scale;
        row->o_size[e] *= fabs(o_scale);
    }
    add_values(b, tile, weight, row->o, row->o_size);
    for (int i = 0; i < ir_of(b)->n_states; i++)
        row->state[i] = host_value(env, online->root[2 + i], 0);
    return LATHE_OK;
}

static lathe_status run_tiles(struct bench *b, const struct part *tile, int n_tiles, struct row *row,
                              lathe_error *err)
{
    const struct ir_fn *epilogue = &ir_of(b)->epilogue;
    struct eval_env *env = &b->head.pair;
    lathe_status status = LATHE_OK;
    memset(row, 0, sizeof *row);
    for (int i = 0; i < ir_of(b)->n_states; i++)
        row->state[i] = ir_of(b)->state[i].init;
    for (int t = 0; t < n_tiles && status == LATHE_OK; t++)
        if (tile[t].n > 0) /* a tile without live pairs leaves the row as it is */
            status = run_tile(b, tile[t], row, err);
    for (int i = 0; i < ir_of(b)->n_states; i++)
        env->param[PARAM_STATE + i] = &row->state[i];
    if (status == LATHE_OK)
        status = host_eval(env, epilogue->root, epilogue->n_roots, err);
    if (status != LATHE_OK)
        return status;
    double factor = host_value(env, epilogue->root[0], 0);
    for (int e = 0; e < D_V; e++) {
        row->o[e] *= factor;
        row->o_size[e] *= fabs(factor);
    }
    for (int i = 0; i < ir_of(b)->n_finals; i++)
        row->final[i] = host_value(env, epilogue->root[1 + i], 0);
    return LATHE_OK;
}

/* Cut n keys into at most `most` parts; some are empty, and one way in three is a key a tile. */
static int cut(struct prover *p, int n, int most, struct part *out)
{
    if (most >= n && random_below(p, 3) == 0) {
        for (int j = 0; j < n; j++)
            out[j] = (struct part){j, 1};
        return n;
    }
    int at = 0;
    int n_parts = 1 + (int)random_below(p, most < CUTS ? most : CUTS);
    for (int i = 0; i < n_parts; i++) {
        int end = i == n_parts - 1 ? n : at + (int)random_below(p, n - at + 1);
        out[i] = (struct part){at, end - at};
        at = end;
    }
    return n_parts;
}

static void say_parts(const struct part *part, int n, char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < n && used + 16 < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%d", i ? "+" : "", part[i].n);
}

/* ---- verdicts ---------------------------------------------------------------------------------- */

/* The state that went astray is the likely culprit: finals are made of states. */
static int online_culprit(const struct bench *b, const struct row *row, const char **what, const char **name)
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
    for (int e = 0; e < D_V; e++)
        worst = fmax(worst, proof_distance(row->o[e], whole->o[e],
                                           fmax(fmax(row->o_size[e], whole->o_size[e]), FLOOR * FLOOR)));
    return worst;
}

/* The final that differs most, -1 where there is none. */
static double distance_finals(const struct bench *b, const struct row *row, int *which)
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
    int which;      /* the final that differs most; -1: there is none */
    char parts[96]; /* what the row was made of */
};

/* False: there is nothing to say about it. */
static bool find_difference(const struct bench *b, const struct part *part, int n_parts,
                            const struct row *row, struct proof *out, struct difference *d)
{
    *d = (struct difference){.o = distance_o(row, &b->whole)};
    d->finals = distance_finals(b, row, &d->which);
    if (!proof_compare(out, fmax(d->o, d->finals), b->rounding))
        return false;
    say_parts(part, n_parts, d->parts, sizeof d->parts);
    return true;
}

struct shown { /* one value of both; final: -1 for o */
    const char *name;
    double part, whole;
};

static struct shown show(const struct bench *b, const struct row *row, int final)
{
    return final < 0 ? (struct shown){"o", proof_shown(row->o[0]), proof_shown(b->whole.o[0])}
                     : (struct shown){ir_of(b)->final[final].name, proof_shown(row->final[final]),
                                      proof_shown(b->whole.final[final])};
}

/* Scores of deviation 40 are more than the weights can take: then nothing is compared. */
static bool blame_overflow(struct bench *b, struct shown s, struct proof *out)
{
    if (isfinite(s.part) || isfinite(s.whole))
        return false;
    proof_blame(out, proof_line(ir_of(b), ir_of(b)->online.root[0]),
                "%s is infinite or NaN however the row is cut: a weight or a sum overflows where scores have "
                "deviation 40",
                s.name);
    return true;
}

static void judge_online(struct bench *b, const struct part *tile, int n_tiles, const struct row *row,
                         struct proof *out)
{
    struct difference d;
    const char *what;
    const char *name;
    if (!find_difference(b, tile, n_tiles, row, out, &d))
        return;
    const struct shown s = show(b, row, d.finals > d.o ? d.which : -1);
    if (blame_overflow(b, s, out))
        return;
    int culprit = online_culprit(b, row, &what, &name);
    proof_blame(out, proof_line(ir_of(b), culprit),
                "%s is %.6g in tiles of %s, %.6g as one tile; look at %s%s of online_fwd", s.name, s.part,
                d.parts, s.whole, what, name);
}

static lathe_status judge_forward(struct bench *b, struct proof *out, lathe_error *err)
{
    const struct ir_fn *forward = &ir_of(b)->forward;
    struct eval_env *env = &b->head.pair;
    struct part all = {0, (int)b->head.n_live};
    for (int i = 0; i < ir_of(b)->n_finals; i++)
        env->param[PARAM_FINAL + i] = &b->whole.final[i];
    lathe_status status = eval_part(b, all, b->s, forward->root, 1, err);
    if (status != LATHE_OK)
        return status;
    double largest = FLOOR * FLOOR;
    for (int j = 0; j < all.n; j++)
        largest = fmax(largest, fabs(b->weight[j]));
    for (int j = 0; j < all.n; j++) {
        double w = host_value(env, forward->root[0], j);
        if (proof_compare(out, proof_distance(w, b->weight[j], largest), b->rounding))
            proof_blame(out, proof_line(ir_of(b), forward->root[0]),
                        "weight of key %d of %d is %.6g by forward, %.6g by online_fwd and its epilogue", j,
                        all.n, proof_shown(w), proof_shown(b->weight[j]));
    }
    return LATHE_OK;
}

static void judge_combine(struct bench *b, const struct part *part, int n_parts, const struct row *row,
                          struct proof *out)
{
    struct difference d;
    if (!find_difference(b, part, n_parts, row, out, &d))
        return;
    const int final = d.finals > BOUND ? d.which : -1;
    const struct shown s = show(b, row, final);
    if (blame_overflow(b, s, out))
        return;
    const int root = ir_of(b)->combine.root[final < 0 ? 0 : 1 + final];
    proof_blame(out, proof_line(ir_of(b), root), "%s is %.6g from splits of %s keys, %.6g as a whole", s.name,
                s.part, d.parts, s.whole);
}

/* Merge the rows of the parts by combine. */
static lathe_status merge(struct bench *b, const struct row *part, int n_parts, struct row *out,
                          lathe_error *err)
{
    const struct ir_fn *combine = &ir_of(b)->combine;
    struct eval_env *env = &b->split;
    double final[MAX_STATE][MAX_PARTS];
    for (int i = 0; i < ir_of(b)->n_finals; i++) {
        for (int s = 0; s < n_parts; s++)
            final[i][s] = part[s].final[i];
        env->param[PARAM_SPLIT_FINAL + i] = final[i];
    }
    env->n = n_parts;
    memcpy(env->at, b->head.pair.at, sizeof env->at);
    lathe_status status = host_eval(env, combine->root, combine->n_roots, err);
    if (status != LATHE_OK)
        return status;
    memset(out, 0, sizeof *out);
    for (int s = 0; s < n_parts; s++) {
        double factor = host_value(env, combine->root[0], s);
        for (int e = 0; e < D_V; e++) {
            out->o[e] += factor * part[s].o[e];
            out->o_size[e] += fabs(factor) * part[s].o_size[e];
        }
    }
    for (int i = 0; i < ir_of(b)->n_finals; i++)
        out->final[i] = host_value(env, combine->root[1 + i], 0);
    return LATHE_OK;
}

static lathe_status split_and_merge(struct bench *b, const struct part *part, int n_parts, struct proof *out,
                                    lathe_error *err)
{
    struct row row[MAX_PARTS];
    struct row merged;
    lathe_status status = LATHE_OK;
    for (int s = 0; s < n_parts && status == LATHE_OK; s++) {
        memset(&row[s], 0, sizeof row[s]);
        if (part[s].n == 0)
            host_empty_finals(ir_of(b), row[s].final);
        else
            status = run_whole(b, part[s], &row[s], NULL, err);
    }
    if (status == LATHE_OK)
        status = merge(b, row, n_parts, &merged, err);
    if (status == LATHE_OK)
        judge_combine(b, part, n_parts, &merged, out);
    return status;
}

/* ---- rounds ------------------------------------------------------------------------------------ */

/* Products <q', k'> so that scores have this deviation; parts may be shifted against each other. */
static void fill_row(struct bench *b, const struct part *part, int n_parts, double deviation)
{
    double size = b->head.scale != 0 && isfinite(b->head.scale) ? deviation / fabs(b->head.scale) : deviation;
    for (int s = 0; s < n_parts; s++) {
        double shift = random_below(b->p, 2) ? size * random_normal(b->p) : 0;
        for (int j = part[s].j0; j < part[s].j0 + part[s].n; j++)
            b->head.qk[j] = size * random_normal(b->p) + shift;
    }
    for (int64_t j = 0; j < b->head.n_live; j++)
        for (int e = 0; e < D_V; e++)
            b->v[j][e] = random_normal(b->p);
}

static lathe_status one_round(struct bench *b, int round, struct proof *online, struct proof *forward,
                              struct proof *combine, lathe_error *err)
{
    struct prover *p = b->p;
    lathe_status status = host_head_enter(&b->head, random_below(p, 2), random_below(p, 4), err);
    if (status == LATHE_OK)
        status = host_row_enter(&b->head, random_below(p, LEN_Q), err);
    int n = (int)b->head.n_live;
    if (status != LATHE_OK || n == 0)
        return status;
    struct part part[MAX_PARTS];
    struct part tile[LEN_KV + CUTS];
    struct row row;
    int n_parts = cut(p, n, MAX_PARTS, part);
    fill_row(b, part, n_parts, round % 2 ? 40.0 : 1.0);
    status = run_whole(b, (struct part){0, n}, &b->whole, b->weight, err);
    b->rounding = proof_rounding(proof_score_size(b->s, b->weight, n));
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        int n_tiles = cut(p, n, LEN_KV, tile);
        status = run_tiles(b, tile, n_tiles, &row, err);
        if (status == LATHE_OK)
            judge_online(b, tile, n_tiles, &row, online);
    }
    if (status == LATHE_OK && forward->applies)
        status = judge_forward(b, forward, err);
    if (status == LATHE_OK && combine->applies)
        status = split_and_merge(b, part, n_parts, combine, err);
    return status;
}

static lathe_status all_rounds(struct bench *b, struct proof *online, struct proof *forward,
                               struct proof *combine, lathe_error *err)
{
    static const int64_t dim[SYM_COUNT] = {[SYM_ONE] = 1,   [SYM_B] = 2,       [SYM_H] = 4, [SYM_H_KV] = 2,
                                           [SYM_Q] = LEN_Q, [SYM_KV] = LEN_KV, [SYM_D] = 8, [SYM_D_V] = 8};
    lathe_arg arg[DATA_MAX];
    if (!data_make(&b->data, b->p, dim))
        return host_out_of_memory(err);
    int n = data_select(&b->data, &b->p->forward, arg);
    lathe_status status = host_bind(&b->call, b->p->ir, &b->p->forward, arg, n, err);
    if (status == LATHE_OK)
        status = host_head_init(&b->head, &b->call, err);
    if (status != LATHE_OK)
        return status;
    host_env_init(&b->split, &b->call, SPAN_SPLIT);
    for (int round = 0; round < ROUNDS && status == LATHE_OK; round++)
        status = one_round(b, round, online, forward, combine, err);
    host_head_free(&b->head);
    eval_free(&b->split);
    return status;
}

void prove_rows(struct prover *p, struct proof *online, struct proof *forward, struct proof *combine)
{
    lathe_error err = {.status = LATHE_OK};
    proof_begin(online, "online = whole row", BOUND);
    proof_begin(forward, "forward = whole row", BOUND);
    proof_begin(combine, "combine = whole", BOUND);
    forward->applies = p->ir->forward.n_roots > 0;
    combine->applies = p->ir->combine.n_roots > 0;
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        host_out_of_memory(&err);
        proof_refused(online, &err);
        return;
    }
    b->p = p;
    if (all_rounds(b, online, forward, combine, &err) != LATHE_OK)
        proof_refused(online, &err);
    const int line = proof_line(p->ir, p->row.score);
    proof_say_lost(online, line);
    proof_say_lost(forward, line);
    proof_say_lost(combine, line);
    data_free(&b->data);
    free(b);
}
