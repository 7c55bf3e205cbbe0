/*
 * draw_weights.c: what each query takes from each key, by the host device. v has a column for each cell of
 * keys, which is 1 / n in the rows of its n keys: so o is the mean weight of that cell. What the Python
 * package draws is the same with a cell for each key. In: a drawing with its inputs. Out: numbers by cell.
 */
#include "gen/tool/draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_WORK = 3e10; /* multiplications: some ten seconds */

struct call {
    const struct drawing *d;
    struct ir ir; /* without output_mod, which mixes channels or weighs them; its nodes are the run's */
    struct problem problem;
    int n;
    lathe_arg arg[MAX_ARGS];
    int64_t shape[MAX_ARGS][MAX_DIMS], stride[MAX_ARGS][MAX_DIMS];
    double *vector; /* [2 d]: q, k */
    double *v;      /* [tokens, cols] */
    double *o;      /* [b, h, tokens, cols]; untouched pages are none */
    int64_t *unit;  /* rows of attention, heads of linear attention */
    int64_t n_units;
};

static bool is_of_keys(int sym)
{
    return sym == SYM_KV || sym == SYM_T;
}

static void add_tensor(struct call *c, const char *name, void *data)
{
    const int sig = lathe__arg_find(&c->d->run.sig, name, 0);
    if (sig < 0)
        return;
    const struct sig_arg *a = &c->d->run.sig.arg[sig];
    const int n = c->n++;
    int64_t compact = 1;
    for (int i = a->ndim - 1; i >= 0; i--) {
        const bool channel = i == a->ndim - 1;
        c->shape[n][i] = lathe__dim_value(&c->problem, a->dim[i]);
        c->stride[n][i] = data == c->o                                ? compact
                          : channel                                   ? 1
                          : data == c->v && is_of_keys(a->dim[i].sym) ? c->d->grid.cols
                                                                      : 0;
        compact *= c->shape[n][i];
    }
    c->arg[n] = (lathe_arg){name, data, LATHE_F64, a->ndim, c->shape[n], c->stride[n]};
}

/* Of an input with a dim of v's channels, the first of them for all. */
static void add_input(struct call *c, const struct run_tensor *t, const lathe_arg *arg)
{
    const struct sig_arg *a = &c->d->run.sig.arg[t->sig];
    const int n = c->n++;
    int64_t compact = 1;
    for (int i = arg->ndim - 1; i >= 0; i--) {
        const bool channel = a->dim[i + a->ndim - arg->ndim].sym == SYM_D_V;
        c->shape[n][i] = channel ? c->d->grid.cols : arg->shape[i];
        c->stride[n][i] = channel ? 0 : compact;
        compact *= arg->shape[i];
    }
    c->arg[n] = *arg;
    c->arg[n].shape = c->shape[n];
    c->arg[n].strides = c->stride[n];
}

static bool fill(struct call *c, int n_heads)
{
    const struct drawing *d = c->d;
    const struct grid *g = &d->grid;
    const int64_t *dim = c->problem.dim;
    const int64_t width = dim[SYM_D];
    const int64_t rows = dim[SYM_B] * dim[SYM_H] * d->len_q;
    c->vector = calloc((size_t)width * 2, sizeof *c->vector);
    c->v = calloc((size_t)(d->len_kv * g->cols), sizeof *c->v);
    c->o = calloc((size_t)(rows * g->cols), sizeof *c->o);
    c->n_units = d->linear ? n_heads : (int64_t)n_heads * g->rows;
    c->unit = calloc((size_t)c->n_units, sizeof *c->unit);
    if (!c->vector || !c->v || !c->o || !c->unit)
        return false;
    if (c->ir.mod[MOD_QUERY].n_stages + c->ir.mod[MOD_KEY].n_stages > 0) {
        for (int64_t i = 0; i < width; i++) { /* all elements alike: mods see all of them */
            c->vector[i] = (d->linear ? 1 : d->score) / sqrt((double)width);
            c->vector[width + i] = 1;
        }
    } else {
        c->vector[0] = sqrt((double)width) * (d->linear ? 1 : d->score);
        c->vector[width] = 1;
    }
    for (int i = 0; i < g->cols; i++)
        for (int64_t j = grid_col(g, i); j < grid_col(g, i + 1); j++)
            c->v[j * g->cols + i] = 1.0 / (double)(grid_col(g, i + 1) - grid_col(g, i));
    for (int64_t i = 0; i < c->n_units; i++) {
        const int r = (int)(i % g->rows);
        c->unit[i] = d->linear ? d->head[i]
                               : d->head[i / g->rows] * d->len_q + (grid_row(g, r) + grid_row(g, r + 1)) / 2;
    }
    return true;
}

static void add_arguments(struct call *c)
{
    lathe_arg given[MAX_ARGS];
    const struct run *run = &c->d->run;
    add_tensor(c, "q", c->vector);
    add_tensor(c, "k", c->vector + c->problem.dim[SYM_D]);
    add_tensor(c, "v", c->v);
    add_tensor(c, "o", c->o);
    run_args(run, given);
    for (int i = 0; i < run->n; i++)
        add_input(c, &run->tensor[i], &given[i]);
}

static void take(const struct call *c, int n_heads, double *const value[DRAW_HEADS])
{
    const struct drawing *d = c->d;
    const struct grid *g = &d->grid;
    for (int h = 0; h < n_heads; h++)
        for (int r = 0; r < g->rows; r++) {
            const int64_t row = d->head[h] * d->len_q + (grid_row(g, r) + grid_row(g, r + 1)) / 2;
            for (int i = 0; i < g->cols; i++)
                value[h][(int64_t)r * g->cols + i] = fabs(c->o[row * g->cols + i]);
        }
}

static int weigh(struct call *c, int n_heads, double *const value[DRAW_HEADS])
{
    lathe_error err = {0};
    if (!fill(c, n_heads)) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    add_arguments(c);
    if (host_forward(&c->ir, &c->d->run.sig, c->arg, c->n, c->unit, c->n_units, &err) != LATHE_OK)
        return complain_error(&err);
    take(c, n_heads, value);
    return CODE_OK;
}

int draw_weights(const struct drawing *d, int n_heads, double *const value[DRAW_HEADS])
{
    const double wide = (double)d->run.problem.dim[SYM_D] + d->grid.cols;
    const double rows = d->linear ? (double)d->run.problem.dim[SYM_D] : d->grid.rows;
    if (rows * (double)d->len_kv * wide * n_heads > MOST_WORK) {
        tool_complain(
            "draw: weights of so many keys would take the host device minutes: fewer keys or heads can be "
            "drawn");
        return CODE_USAGE;
    }
    struct call *c = calloc(1, sizeof *c); /* large for a stack */
    if (!c) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    c->d = d;
    c->ir = *d->run.ir;
    c->ir.mod[MOD_OUTPUT].n_stages = 0;
    c->problem = d->run.problem;
    c->problem.dim[SYM_D_V] = d->grid.cols;
    const int code = weigh(c, n_heads, value);
    free(c->vector);
    free(c->v);
    free(c->o);
    free(c->unit);
    free(c);
    return code;
}
