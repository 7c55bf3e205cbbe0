/*
 * prove_row_bench.c: one row of attention with scores of the prover's choice, evaluated as one tile, in tiles
 * in any order, and in parts that `combine` merges. In: a prover and sizes. Out: rows, in the precision that
 * p->mode asks for. Memory is the bench's: bench_close frees it.
 */
#include "gen/attention/prove/prove.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_WIDTH = 16, WIDTHS = 4 }; /* 16, 32, 64 or 128 keys */

/* ---- memory -------------------------------------------------------------------------------------- */

static bool allocate(struct row_bench *b, int64_t len_kv)
{
    const size_t n = (size_t)len_kv + CUTS + 1;
    b->v = calloc(n * BENCH_VALUES, sizeof(double));
    b->s = calloc(n, sizeof(double));
    b->weight = calloc(n, sizeof(double));
    b->spare[0] = calloc(n, sizeof(double));
    b->spare[1] = calloc(n, sizeof(double));
    b->tiles.part = calloc(n, sizeof(struct part));
    b->parts.part = calloc(n, sizeof(struct part));
    return b->v && b->s && b->weight && b->spare[0] && b->spare[1] && b->tiles.part && b->parts.part;
}

lathe_status bench_open(struct row_bench *b, struct prover *p, const int64_t *dim, enum data_size size,
                        lathe_error *err)
{
    memset(b, 0, sizeof *b);
    b->p = p;
    if (!allocate(b, dim[SYM_KV]) || !data_make_forward(&b->data, p, dim))
        return host_out_of_memory(err);
    if (size == DATA_REACH)
        data_take_size(p, &b->data, size, 0);
    int n = data_select(&b->data, &p->forward, b->arg);
    lathe_status status = host_bind(&b->call, p->ir, &p->forward, b->arg, n, err);
    b->call.mode = &p->mode;
    if (status == LATHE_OK)
        status = host_head_init(&b->head, &b->call, err);
    if (status == LATHE_OK)
        host_env_init(&b->split, &b->call, SPAN_SPLIT);
    return status;
}

void bench_close(struct row_bench *b)
{
    if (b->head.call)
        host_head_free(&b->head);
    eval_free(&b->split);
    data_free(&b->data);
    free(b->v);
    free(b->s);
    free(b->weight);
    free(b->spare[0]);
    free(b->spare[1]);
    free(b->tiles.part);
    free(b->parts.part);
}

/* ---- a row and its scores ------------------------------------------------------------------------ */

/* Into n parts at random places; some are empty. */
static void cut_at_random(struct prover *p, int n, int n_parts, struct cutting *out)
{
    int at = 0;
    for (int i = 0; i < n_parts; i++) {
        const int end = i == n_parts - 1 ? n : at + (int)random_below(p, n - at + 1);
        out->part[i] = (struct part){at, end - at};
        at = end;
    }
    out->n = n_parts;
}

static double pick_score(struct row_bench *b, double shift)
{
    struct prover *p = b->p;
    switch (b->scores) {
    case SCORES_NEAR:
        return random_normal(p) + shift;
    case SCORES_FAR:
        return 40 * (random_normal(p) + shift);
    case SCORES_LOW:
        return -200 + 10 * random_normal(p);
    case SCORES_HIGH:
        return 200 + 10 * random_normal(p);
    case SCORES_REACH:
        return reach_number(p);
    case SCORES_HUGE:
        return 20000 * random_normal(p);
    case SCORES_FLAT:
        return 0.1 * random_normal(p);
    case SCORES_EQUAL:
    case SCORES_KINDS:
        break;
    }
    return 0;
}

/* Products <q', k'> for these scores; parts may be shifted against each other. */
static void fill_row(struct row_bench *b)
{
    const double scale = b->head.scale != 0 && isfinite(b->head.scale) ? fabs(b->head.scale) : 1;
    for (int s = 0; s < b->parts.n; s++) {
        const struct part part = b->parts.part[s];
        const double shift = random_below(b->p, 2) ? random_normal(b->p) : 0;
        for (int j = part.j0; j < part.j0 + part.n; j++)
            b->head.qk[j] = pick_score(b, shift) / scale;
    }
    for (int64_t i = 0; i < (int64_t)b->n * BENCH_VALUES; i++)
        b->v[i] = random_normal(b->p);
}

static void set_keys(struct row_bench *b, struct part part)
{
    b->head.pair.n = part.n;
    b->head.pair.at_axis[AT_KV] = b->head.kv + part.j0;
}

lathe_status bench_scores(struct row_bench *b, double *out, lathe_error *err)
{
    const struct ir_fn *score = &b->p->ir->score;
    struct eval_env *env = &b->head.pair;
    set_keys(b, (struct part){0, b->n});
    env->param[LEAF_QK] = b->head.qk;
    for (int j = 0; j < b->n; j++)
        b->head.scaled[j] = b->head.scale * b->head.qk[j];
    memcpy(out, b->head.scaled, (size_t)b->n * sizeof *out);
    if (score->n_roots == 0)
        return LATHE_OK;
    env->param[LEAF_S] = b->head.scaled;
    const lathe_status status = host_eval(env, score->root, 1, err);
    if (status == LATHE_OK)
        host_values(env, score->root[0], b->n, out);
    return status;
}

/* Every third row is of the last head, every second the last one, which has most keys. */
static lathe_status enter_row(struct row_bench *b, bool most_keys, lathe_error *err)
{
    struct prover *p = b->p;
    const int64_t n_h = host_dim(&b->call, SYM_H);
    const int64_t len_q = b->head.len_q;
    const int64_t batch = random_below(p, host_dim(&b->call, SYM_B));
    const int64_t head = b->turn % 3 == 0 ? n_h - 1 : reach_position(p, n_h, 0);
    const bool last = most_keys || (b->turn % 2 == 0 && len_q > 100);
    const int64_t row = last ? len_q - 1 : reach_position(p, len_q, b->call.q_start);
    b->turn++;
    const lathe_status status = host_head_enter(&b->head, batch, head, err);
    return status == LATHE_OK ? host_row_enter(&b->head, row, err) : status;
}

lathe_status bench_row(struct row_bench *b, enum row_scores scores, lathe_error *err)
{
    const lathe_status status = enter_row(b, scores == SCORES_EQUAL || scores == SCORES_FLAT, err);
    b->n = (int)b->head.n_live;
    b->scores = scores;
    if (status != LATHE_OK || b->n == 0)
        return status;
    cut_at_random(b->p, b->n, 1 + (int)random_below(b->p, MAX_PARTS), &b->parts);
    fill_row(b);
    return bench_scores(b, b->s, err);
}

/* ---- cuts ---------------------------------------------------------------------------------------- */

static void cut_by_width(int n, int width, struct cutting *out)
{
    out->n = 0;
    for (int at = 0; at < n; at += width)
        out->part[out->n++] = (struct part){at, n - at < width ? n - at : width};
}

static void swap(struct part *a, struct part *b)
{
    const struct part c = *a;
    *a = *b;
    *b = c;
}

void bench_cut(struct row_bench *b, int turn)
{
    struct cutting *c = &b->tiles;
    const bool few = b->n <= 64;
    const bool many = b->n > 1000 && turn % 3 == 1;
    if (few && random_below(b->p, 3) == 0)
        cut_by_width(b->n, 1, c);
    else if (many)
        cut_by_width(b->n, LEAST_WIDTH, c);
    else if (few || random_below(b->p, 3) == 0)
        cut_at_random(b->p, b->n, 1 + (int)random_below(b->p, CUTS), c);
    else
        cut_by_width(b->n, LEAST_WIDTH << random_below(b->p, WIDTHS), c);
    c->order = "";
    if (turn % 3 == 1) { /* as kernels walk them */
        c->order = ", the last first";
        for (int i = 0; i < c->n / 2; i++)
            swap(&c->part[i], &c->part[c->n - 1 - i]);
    } else if (turn % 3 == 2) {
        c->order = ", in another order";
        for (int i = c->n - 1; i > 0; i--)
            swap(&c->part[i], &c->part[random_below(b->p, i + 1)]);
    }
}

void bench_say(const struct cutting *c, char *out, size_t size)
{
    size_t used = 0;
    if (c->n > 8) {
        snprintf(out, size, "%d tiles, of %d keys and so on%s", c->n, c->part[0].n, c->order ? c->order : "");
        return;
    }
    for (int i = 0; i < c->n && used + 16 < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%d", i ? "+" : "", c->part[i].n);
    snprintf(out + used, size - used, " keys%s", c->order ? c->order : "");
}

/* ---- evaluation ---------------------------------------------------------------------------------- */

/* A value as this precision keeps it. */
static double keep(const struct row_bench *b, double value)
{
    return b->p->mode.precision == EVAL_F32 ? (double)(float)value : value;
}

static void add_values(const struct row_bench *b, struct part part, const double *weight, struct row *row)
{
    for (int j = 0; j < part.n; j++) {
        const double *v = b->v + (size_t)(part.j0 + j) * BENCH_VALUES;
        for (int e = 0; e < BENCH_VALUES; e++) {
            row->o[e] += weight[j] * v[e];
            row->o_size[e] += fabs(weight[j] * v[e]);
        }
    }
}

static void scale_values(const struct row_bench *b, struct row *row, double factor)
{
    for (int e = 0; e < BENCH_VALUES; e++) {
        row->o[e] = keep(b, row->o[e] * factor);
        row->o_size[e] *= fabs(factor);
    }
}

static lathe_status run_tile(struct row_bench *b, struct part tile, struct row *row, double *weight,
                             lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    struct eval_env *env = &b->head.pair;
    set_keys(b, tile);
    env->param[LEAF_S] = b->s + tile.j0;
    env->param[LEAF_QK] = b->head.qk + tile.j0;
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = &row->state[i];
    lathe_status status = host_eval(env, ir->online.root, ir->online.n_roots, err);
    if (status != LATHE_OK)
        return status;
    host_values(env, ir->online.root[0], tile.n, weight);
    scale_values(b, row, host_value(env, ir->online.root[1], 0));
    add_values(b, tile, weight, row);
    for (int i = 0; i < ir->n_states; i++)
        row->state[i] = host_value(env, ir->online.root[2 + i], 0);
    return LATHE_OK;
}

/* Row states and o as they are ahead of the epilogue. weight: room for a tile's. */
static lathe_status walk_tiles(struct row_bench *b, const struct cutting *tiles, struct row *row,
                               double *weight, lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    lathe_status status = LATHE_OK;
    memset(row, 0, sizeof *row);
    for (int i = 0; i < ir->n_states; i++)
        row->state[i] = ir->state[i].init;
    for (int t = 0; t < tiles->n && status == LATHE_OK; t++)
        if (tiles->part[t].n > 0) /* a tile without live pairs leaves the row as it is */
            status = run_tile(b, tiles->part[t], row, weight, err);
    return status;
}

static lathe_status end_row(struct row_bench *b, struct row *row, double *factor, lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    struct eval_env *env = &b->head.pair;
    for (int i = 0; i < ir->n_states; i++)
        env->param[LEAF_STATE + i] = &row->state[i];
    const lathe_status status = host_eval(env, ir->epilogue.root, ir->epilogue.n_roots, err);
    if (status != LATHE_OK)
        return status;
    *factor = host_value(env, ir->epilogue.root[0], 0);
    scale_values(b, row, *factor);
    for (int i = 0; i < ir->n_finals; i++)
        row->final[i] = host_value(env, ir->epilogue.root[1 + i], 0);
    return LATHE_OK;
}

lathe_status bench_tiles(struct row_bench *b, const struct cutting *tiles, struct row *row, double *weight,
                         lathe_error *err)
{
    double factor = 1;
    lathe_status status = walk_tiles(b, tiles, row, weight ? weight : b->spare[0], err);
    if (status == LATHE_OK)
        status = end_row(b, row, &factor, err);
    for (int j = 0; weight && j < tiles->part[0].n && status == LATHE_OK; j++)
        weight[j] *= factor;
    return status;
}

lathe_status bench_whole(struct row_bench *b, struct row *row, double *weight, lathe_error *err)
{
    struct part all = {0, b->n};
    const struct cutting one = {.n = 1, .part = &all};
    return bench_tiles(b, &one, row, weight, err);
}

lathe_status bench_forward(struct row_bench *b, const double *final, double *weight, lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    struct eval_env *env = &b->head.pair;
    set_keys(b, (struct part){0, b->n});
    env->param[LEAF_S] = b->s;
    for (int i = 0; i < ir->n_finals; i++)
        env->param[LEAF_FINAL + i] = &final[i];
    const lathe_status status = host_eval(env, ir->forward.root, 1, err);
    if (status == LATHE_OK)
        host_values(env, ir->forward.root[0], b->n, weight);
    return status;
}

lathe_status bench_empty(struct row_bench *b, lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    struct row row;
    double factor;
    memset(&row, 0, sizeof row);
    for (int i = 0; i < ir->n_states; i++)
        row.state[i] = ir->state[i].init;
    b->n = 0;
    lathe_status status = run_tile(b, (struct part){0, 0}, &row, b->spare[0], err);
    if (status == LATHE_OK)
        status = end_row(b, &row, &factor, err);
    if (status == LATHE_OK && ir->forward.n_roots > 0)
        status = bench_forward(b, row.final, b->spare[1], err);
    return status;
}

/* ---- parts --------------------------------------------------------------------------------------- */

/* Row states and o of all parts, ahead of the epilogue. */
static lathe_status merge(struct row_bench *b, const struct row *part, int n_parts, struct row *out,
                          lathe_error *err)
{
    const struct ir *ir = b->p->ir;
    struct eval_env *env = &b->split;
    double state[MAX_STATE][MAX_PARTS];
    for (int i = 0; i < ir->n_states; i++) {
        for (int s = 0; s < n_parts; s++)
            state[i][s] = part[s].state[i];
        env->param[LEAF_SPLIT_STATE + i] = state[i];
    }
    env->n = n_parts;
    memcpy(env->at, b->head.pair.at, sizeof env->at);
    const lathe_status status = host_eval(env, ir->combine.root, ir->combine.n_roots, err);
    if (status != LATHE_OK)
        return status;
    memset(out, 0, sizeof *out);
    for (int s = 0; s < n_parts; s++) {
        const double factor = host_value(env, ir->combine.root[0], s);
        for (int e = 0; e < BENCH_VALUES; e++) {
            out->o[e] += factor * part[s].o[e];
            out->o_size[e] += fabs(factor) * part[s].o_size[e];
        }
    }
    for (int i = 0; i < ir->n_states; i++)
        out->state[i] = host_value(env, ir->combine.root[1 + i], 0);
    return LATHE_OK;
}

lathe_status bench_merge(struct row_bench *b, const struct cutting *parts, bool none, struct row *out,
                         lathe_error *err)
{
    struct row row[MAX_PARTS];
    double factor;
    lathe_status status = LATHE_OK;
    for (int s = 0; s < parts->n && status == LATHE_OK; s++) {
        struct part part = none ? (struct part){0, 0} : parts->part[s];
        const struct cutting one = {.n = 1, .part = &part};
        status = walk_tiles(b, &one, &row[s], b->spare[0], err);
    }
    if (status == LATHE_OK)
        status = merge(b, row, parts->n, out, err);
    return status != LATHE_OK || none ? status : end_row(b, out, &factor, err);
}
