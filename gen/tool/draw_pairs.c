/*
 * draw_pairs.c: what a mask and a score_mod do to pairs, by the formulas of the spec in double precision. In:
 * a drawing with its inputs. Out: numbers by cell. Bounds of the mask decide most cells, the host device the
 * rest.
 */
#include "gen/host/host.h"
#include "gen/tool/draw.h"

#include <math.h>
#include <stdlib.h>

static const int64_t MOST_EVALUATED = INT64_C(1) << 27; /* pairs: some seconds */

struct looker { /* pairs of one head */
    const struct drawing *d;
    struct eval_env env;
    struct tile_at tile;
    lathe_arg arg[MAX_ARGS];
    double *key; /* 0, 1, 2, ... */
};

bool draw_by_head(const struct ir *ir, const struct ir_fn *fn)
{
    bool found = false;
    for (int i = 0; i < fn->n_roots; i++)
        found = found || ir_depends_on(ir, fn->root[i], OP_AT, AT_H) ||
                ir_depends_on(ir, fn->root[i], OP_AT, AT_H_KV);
    return found;
}

static int out_of_memory(void)
{
    tool_complain("out of memory");
    return CODE_ENVIRONMENT;
}

static bool looker_open(struct looker *l, const struct drawing *d, int head)
{
    const struct run *run = &d->run;
    *l = (struct looker){.d = d, .env = {.ir = run->ir, .axis = SPAN_KV}};
    l->key = calloc((size_t)d->len_kv + 1, sizeof *l->key);
    for (int64_t j = 0; l->key && j < d->len_kv; j++)
        l->key[j] = (double)j;
    run_args(run, l->arg);
    for (int i = 0; i < run->ir->n_inputs; i++) {
        const struct run_tensor *t = run_find(run, run->ir->input[i].name);
        l->env.input[i] = t ? &l->arg[t - run->tensor] : NULL;
    }
    run_set_sizes(l->env.at, &run->problem);
    run_set_head(l->env.at, &run->problem, 0, head);
    run_set_sizes(l->tile.at, &run->problem);
    run_set_head(l->tile.at, &run->problem, 0, head);
    l->tile.q_start = run_q_start(run);
    l->tile.input = l->env.input;
    return l->key != NULL;
}

static void looker_close(struct looker *l)
{
    eval_free(&l->env);
    free(l->key);
}

/* A formula for n keys of a row. */
static int evaluate(struct looker *l, int root, int64_t row, const double *key, int64_t n)
{
    l->env.n = (int)n;
    l->env.at_axis[AT_KV] = key;
    l->env.at[AT_ROW] = (double)row;
    l->env.at[AT_Q] = (double)(row + l->tile.q_start);
    if (eval_run(&l->env, &root, 1))
        return CODE_OK;
    tool_complain("draw: %s", l->env.error_node >= 0 ? l->env.error : "out of memory");
    return l->env.error_node >= 0 ? CODE_USAGE : CODE_ENVIRONMENT;
}

/* ---- live pairs ----------------------------------------------------------------------------------- */

/* What bounds say of each cell; NaN where they leave it open. Returns how many pairs are. */
static int64_t classify(struct looker *l, const struct grid *g, double *share)
{
    int64_t open = 0;
    for (int r = 0; r < g->rows; r++)
        for (int c = 0; c < g->cols; c++) {
            struct tile_at *t = &l->tile;
            t->row0 = grid_row(g, r);
            t->row1 = grid_row(g, r + 1) - 1;
            t->kv0 = grid_col(g, c);
            t->kv1 = grid_col(g, c + 1) - 1;
            const enum tile_class class = bounds_class(l->d->run.ir, t);
            share[(int64_t)r * g->cols + c] = class == TILE_SOME ? (double)NAN : class == TILE_ALL;
            open += class == TILE_SOME ? (t->row1 - t->row0 + 1) * (t->kv1 - t->kv0 + 1) : 0;
        }
    return open;
}

/* The cells [c0, c1) of a line, which are open: one row in `every`. */
static int count_run(struct looker *l, const struct grid *g, int r, int c0, int c1, int64_t every,
                     double *share)
{
    const int root = l->d->run.ir->mask.root[0];
    const int64_t first = grid_col(g, c0);
    int64_t taken = 0;
    int code = CODE_OK;
    for (int c = c0; c < c1; c++)
        share[c] = 0;
    for (int64_t row = grid_row(g, r); row < grid_row(g, r + 1) && code == CODE_OK; row += every, taken++) {
        code = evaluate(l, root, row, l->key + first, grid_col(g, c1) - first);
        for (int c = c0; c < c1 && code == CODE_OK; c++)
            for (int64_t j = grid_col(g, c); j < grid_col(g, c + 1); j++)
                share[c] += host_value(&l->env, root, j - first) != 0;
    }
    for (int c = c0; c < c1; c++)
        share[c] /= (double)(taken * (grid_col(g, c + 1) - grid_col(g, c)));
    return code;
}

static int count_line(struct looker *l, const struct grid *g, int r, int64_t every, double *share)
{
    int code = CODE_OK;
    for (int c = 0; c < g->cols && code == CODE_OK; c++) {
        int end = c;
        while (end < g->cols && isnan(share[end]))
            end++;
        if (end > c)
            code = count_run(l, g, r, c, end, every, share);
        c = end > c ? end - 1 : c;
    }
    return code;
}

int draw_live(const struct drawing *d, int head, const struct grid *g, double *share, int64_t *every)
{
    struct looker l;
    int code = CODE_OK;
    *every = 1;
    for (int64_t i = 0; i < (int64_t)g->rows * g->cols; i++)
        share[i] = 1;
    if (d->run.ir->mask.n_roots == 0)
        return CODE_OK;
    if (!looker_open(&l, d, head))
        return out_of_memory();
    const int64_t open = classify(&l, g, share);
    *every = (open + MOST_EVALUATED - 1) / MOST_EVALUATED;
    *every = *every < 1 ? 1 : *every;
    for (int r = 0; r < g->rows && code == CODE_OK; r++)
        code = count_line(&l, g, r, *every, share + (int64_t)r * g->cols);
    looker_close(&l);
    return code;
}

/* ---- scores --------------------------------------------------------------------------------------- */

static int64_t middle(int64_t first, int64_t end)
{
    return (first + end) / 2;
}

static int score_rows(struct looker *l, double *score, double *key, double *value)
{
    const struct drawing *d = l->d;
    const struct grid *g = &d->grid;
    const int root = d->run.ir->score.root[0];
    int code = CODE_OK;
    for (int c = 0; c < g->cols; c++) {
        score[c] = d->score;
        key[c] = (double)middle(grid_col(g, c), grid_col(g, c + 1));
    }
    l->env.param[LEAF_S] = score;
    for (int r = 0; r < g->rows && code == CODE_OK; r++) {
        code = evaluate(l, root, middle(grid_row(g, r), grid_row(g, r + 1)), key, g->cols);
        for (int c = 0; c < g->cols && code == CODE_OK; c++) {
            const int64_t i = (int64_t)r * g->cols + c;
            value[i] = d->live[i] > 0 ? host_value(&l->env, root, c) - d->score : (double)NAN;
        }
    }
    return code;
}

int draw_scores(const struct drawing *d, int head, double *value)
{
    struct looker l;
    const size_t n = (size_t)d->grid.cols;
    double *score = calloc(n, sizeof *score);
    double *key = calloc(n, sizeof *key);
    int code = looker_open(&l, d, head) && score && key ? CODE_OK : out_of_memory();
    if (code == CODE_OK)
        code = score_rows(&l, score, key, value);
    looker_close(&l);
    free(score);
    free(key);
    return code;
}

int draw_score_curve(const struct drawing *d, int head, const double *s, int n, double *value)
{
    struct looker l;
    const int root = d->run.ir->score.root[0];
    double *key = calloc((size_t)n, sizeof *key);
    int code = looker_open(&l, d, head) && key ? CODE_OK : out_of_memory();
    l.env.param[LEAF_S] = s;
    if (code == CODE_OK)
        code = evaluate(&l, root, 0, key, n);
    for (int i = 0; i < n && code == CODE_OK; i++)
        value[i] = host_value(&l.env, root, i);
    looker_close(&l);
    free(key);
    return code;
}
