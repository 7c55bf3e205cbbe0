/*
 * run_rate.c: what a launch achieved: TFLOP/s of attention over the pairs that the mask leaves, TB/s of
 * rowwise over the bytes in and out; and what times are written like. In: a prepared run and seconds. Out:
 * lines of the report.
 * Live pairs are counted tile by tile: the bounds of the mask decide most tiles, the host device the rest.
 */
#include "gen/ir/kind.h"
#include "gen/tool/run.h"

#include <stdio.h>
#include <stdlib.h>

enum { TILE = 128 };
static const int64_t MOST_EVALUATED = INT64_C(1) << 25; /* pairs: a second or two */

struct counter {
    const struct run *run;
    struct eval_env env;
    struct tile_at tile;
    double *kv; /* first, first + 1, ...: places of the keys that are here */
    int64_t first;
    int64_t evaluated;
    double live;
};

void run_set_sizes(double at[AT_COUNT], const struct problem *p)
{
    at[AT_N_B] = (double)p->dim[SYM_B];
    at[AT_N_H] = (double)p->dim[p->cut_heads ? SYM_ALL_H : SYM_H];
    at[AT_N_H_KV] = (double)p->dim[p->cut_heads ? SYM_ALL_H_KV : SYM_H_KV];
    at[AT_LEN_Q] = (double)p->dim[SYM_Q];
    at[AT_LEN_KV] = (double)p->dim[p->cut_keys ? SYM_ALL_KV : SYM_KV];
    at[AT_D] = (double)p->dim[SYM_D];
    at[AT_D_V] = (double)p->dim[SYM_D_V];
    for (int k = 0; k < MAX_FREE_SYMS; k++)
        at[AT_FREE0 + k] = p->dim[SYM_FREE + k] > 0 ? (double)p->dim[SYM_FREE + k] : 0;
}

void run_set_head(double at[AT_COUNT], const struct problem *p, int64_t b, int64_t h)
{
    at[AT_B] = (double)b;
    at[AT_H] = (double)h;
    at[AT_H_KV] = (double)(h / (p->dim[SYM_H] / p->dim[SYM_H_KV]));
}

/* Element by element. False: too many pairs, or a read outside a tensor. */
static bool count_tile(struct counter *c)
{
    const struct ir *ir = c->run->ir;
    const int root = ir->mask.root[0];
    const struct tile_at *t = &c->tile;
    c->env.n = (int)(t->kv1 - t->kv0 + 1);
    c->env.at_axis[AT_KV] = c->kv + (t->kv0 - c->first);
    c->evaluated += (t->row1 - t->row0 + 1) * c->env.n;
    for (int64_t row = t->row0; row <= t->row1; row++) {
        c->env.at[AT_ROW] = (double)row;
        c->env.at[AT_Q] = (double)(row + t->q_start);
        if (c->evaluated > MOST_EVALUATED || !eval_run(&c->env, &root, 1))
            return false;
        const bool varies = ir->node[root].span & SPAN_KV;
        for (int j = 0; j < c->env.n; j++)
            c->live += c->env.value[root][varies ? j : 0] != 0.0;
    }
    return true;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool count_head(struct counter *c)
{
    const struct problem *p = &c->run->problem;
    struct tile_at *t = &c->tile;
    for (t->row0 = 0; t->row0 < p->dim[SYM_Q]; t->row0 += TILE) {
        t->row1 = least(t->row0 + TILE, p->dim[SYM_Q]) - 1;
        const int64_t end = c->first + p->dim[SYM_KV];
        for (t->kv0 = c->first; t->kv0 < end; t->kv0 += TILE) {
            t->kv1 = least(t->kv0 + TILE, end) - 1;
            const enum tile_class class = bounds_class(c->run->ir, t);
            if (class == TILE_ALL)
                c->live += (double)((t->row1 - t->row0 + 1) * (t->kv1 - t->kv0 + 1));
            if (class == TILE_SOME && !count_tile(c))
                return false;
        }
    }
    return true;
}

static int64_t place_of(const struct run *run, const char *name)
{
    const struct run_tensor *t = run_find(run, name);
    return t ? *(const int32_t *)t->host : 0;
}

static bool count_heads(struct counter *c)
{
    const struct run *run = c->run;
    const struct problem *p = &run->problem;
    const int root = run->ir->mask.root[0];
    const bool by_head =
        ir_depends_on(run->ir, root, OP_AT, AT_H) || ir_depends_on(run->ir, root, OP_AT, AT_H_KV);
    const int64_t batches =
        ir_depends_on(run->ir, root, OP_AT, AT_B) ? p->dim[SYM_B] : least(p->dim[SYM_B], 1);
    const int64_t heads = by_head ? p->dim[SYM_H] : 1;
    for (int64_t b = 0; b < batches; b++) {
        for (int64_t h = 0; h < heads; h++) {
            run_set_head(c->env.at, p, b, h + place_of(run, "h_start"));
            run_set_head(c->tile.at, p, b, h + place_of(run, "h_start"));
            if (!count_head(c))
                return false;
        }
    }
    if (batches > 0)
        c->live *= (double)(p->dim[SYM_B] / batches * (p->dim[SYM_H] / heads));
    return true;
}

int64_t run_q_start(const struct run *run)
{
    const struct run_tensor *t = run_find(run, "q_start");
    const int64_t *const dim = run->problem.dim;
    return t ? *(const int32_t *)t->host : dim[run->problem.cut_keys ? SYM_ALL_KV : SYM_KV] - dim[SYM_Q];
}

/* Pairs that the mask leaves, over all heads and batches. False: too many to look at; *out is all pairs. */
static bool live_pairs(const struct run *run, double *out)
{
    const struct problem *p = &run->problem;
    const double all =
        (double)p->dim[SYM_B] * (double)p->dim[SYM_H] * (double)p->dim[SYM_Q] * (double)p->dim[SYM_KV];
    struct counter c = {.run = run, .env = {.ir = run->ir, .axis = SPAN_KV}};
    lathe_arg args[MAX_ARGS];
    c.first = place_of(run, "kv_start");
    *out = all;
    if (run->ir->mask.n_roots == 0 || all == 0.0)
        return true;
    c.kv = calloc((size_t)p->dim[SYM_KV], sizeof *c.kv);
    if (!c.kv)
        return false;
    for (int64_t j = 0; j < p->dim[SYM_KV]; j++)
        c.kv[j] = (double)(c.first + j);
    run_args(run, args);
    for (int i = 0; i < run->ir->n_inputs; i++) {
        const struct run_tensor *t = run_find(run, run->ir->input[i].name);
        c.env.input[i] = t ? &args[t - run->tensor] : NULL;
    }
    run_set_sizes(c.env.at, p);
    run_set_sizes(c.tile.at, p);
    c.tile.q_start = run_q_start(run);
    c.tile.input = c.env.input;
    const bool counted = count_heads(&c);
    if (counted)
        *out = c.live;
    eval_free(&c.env);
    free(c.kv);
    return counted;
}

static void count_attention(const struct run *run, struct run_work *out)
{
    struct progress progress;
    progress_start(&progress, "counting the pairs that the mask leaves");
    out->counted = live_pairs(run, &out->pairs);
    progress_stop(&progress);
    const double d = (double)(run->problem.dim[SYM_D] + (run->ir->qk2 ? run->problem.dim[SYM_D2] : 0));
    const double d_v = (double)run->problem.dim[SYM_D_V];
    out->is_flop = true;
    out->amount = 2.0 * out->pairs * (run_is_backward(run) ? 3.0 * d + 2.0 * d_v : d + d_v);
}

void run_count_work(const struct run *run, struct run_work *out)
{
    *out = (struct run_work){.counted = true};
    if (kinds[run->ir->kind].tiles && !run->sig.combine)
        count_attention(run, out);
    for (int i = 0; i < run->n && !out->is_flop; i++)
        out->amount += (double)run->tensor[i].bytes;
}

void run_report_rate(const struct run *run, double seconds)
{
    struct run_work work;
    run_count_work(run, &work);
    const double rate = work.amount / seconds * 1e-12;
    const char *how = run->ir->mask.n_roots == 0 ? "all: there is no mask"
                      : work.counted             ? "that the mask leaves"
                                                 : "all, dead ones too: too many to count under the mask";
    facts_number(run->facts, work.is_flop ? "flop" : "bytes", work.amount);
    facts_number(run->facts, work.is_flop ? "tflop_per_second" : "tb_per_second", rate);
    if (work.is_flop)
        facts_line(run->facts, "rate       %.4g TFLOP/s (%.4g flop: 2 * (%s) for each of %.4g pairs, %s)\n",
                   rate, work.amount, run_is_backward(run) ? "3 d + 2 d_v" : "d + d_v", work.pairs, how);
    else
        facts_line(run->facts, "rate       %.4g TB/s (%.4g bytes, in and out)\n", rate, work.amount);
}

/* ---- times ------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

void run_sort_seconds(double *seconds, int n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
}

void run_time_text(double seconds, char *out, size_t size)
{
    if (seconds < 1e-3)
        snprintf(out, size, "%.2f us", seconds * 1e6);
    else if (seconds < 1.0)
        snprintf(out, size, "%.3f ms", seconds * 1e3);
    else
        snprintf(out, size, "%.3f s", seconds);
}

double run_report_time(struct facts *f, double *seconds, int n)
{
    run_sort_seconds(seconds, n);
    const double median = n % 2 ? seconds[n / 2] : 0.5 * (seconds[n / 2 - 1] + seconds[n / 2]);
    char time[32];
    char fastest[32];
    char slowest[32];
    run_time_text(median, time, sizeof time);
    run_time_text(seconds[0], fastest, sizeof fastest);
    run_time_text(seconds[n - 1], slowest, sizeof slowest);
    facts_integer(f, "launches", n);
    facts_number(f, "seconds", median);
    facts_number(f, "fastest", seconds[0]);
    facts_number(f, "slowest", seconds[n - 1]);
    if (n > 1)
        facts_line(f, "time       %s (median of %d launches, fastest %s, slowest %s)\n", time, n, fastest,
                   slowest);
    else
        facts_line(f, "time       %s (one launch)\n", time);
    return median;
}
