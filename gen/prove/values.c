/*
 * values.c: every result of a forward pass in f32 against double precision, on data of several sizes:
 * rows of a row-wise spec, points of an element-wise one, and what vector mods make of q, k, v and o. In: a
 * prover. Out: a share of the verdict "f32 = double", judged as in f32.c.
 */
#include "gen/prove/prove.h"
#include "runtime/recipe/recipe.h"
#include "gen/arguments/input_ranges.h"
#include "gen/host/call.h"
#include "gen/ir/kind.h"
#include "gen/ir/tensor.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOVES = 6, REACH_ROUNDS = 10, POINTS = 12 };
static const double ROOM = 1e-6; /* for some roundings of f32, as part of a number */

/* Of long rows and dims. */
enum { N_LONG = 6, N_BY_INDEX = 2 };
static const enum data_size LONG[N_LONG] = {DATA_NEAR, DATA_LARGE, DATA_SHIFTED,
                                            DATA_HUGE, DATA_REACH, DATA_REACH};

struct bench {
    struct prover *p;
    struct proof *out;
    struct data data;
    lathe_arg arg[DATA_MAX];
    int n_args;
    struct host_call call;
    struct eval_tape tape;
    enum data_size size;
    int zero;                /* which tensor is 0, of zeros */
    const char *name;        /* its name */
    bool nan_usual;          /* some result is NaN on usual data: zeros say nothing more */
    double *exact[DATA_MAX]; /* of results: copies of what double precision gives */
    double *moved[DATA_MAX];
};

/* ---- data ------------------------------------------------------------------------------------------ */

static const struct sig_arg *sig_of(const struct bench *b, const char *name)
{
    const int i = lathe__arg_find(&b->p->forward, name, 0);
    return i >= 0 ? &b->p->forward.arg[i] : NULL;
}

static bool is_result(const struct bench *b, int i)
{
    const struct sig_arg *a = sig_of(b, b->data.arg[i].name);
    return a && (a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL) && b->data.arg[i].dtype == LATHE_F64;
}

static bool make_data(struct bench *b, const int64_t *dim)
{
    if (!data_make_forward(&b->data, b->p, dim))
        return false;
    bool ok = true;
    data_move_inside(&b->data, b->p->ir, ROOM);
    b->name = data_take_size(b->p, &b->data, b->size, b->zero);
    for (int i = 0; i < b->data.n; i++) {
        if (!is_result(b, i))
            continue;
        const size_t n = (size_t)tensor_count(&b->data.arg[i]) + 1;
        b->exact[i] = calloc(n, sizeof(double));
        b->moved[i] = calloc(n, sizeof(double));
        ok = ok && b->exact[i] && b->moved[i];
    }
    b->n_args = data_select(&b->data, &b->p->forward, b->arg);
    return ok;
}

static void drop_data(struct bench *b)
{
    for (int i = 0; i < b->data.n; i++) {
        free(b->exact[i]);
        free(b->moved[i]);
        b->exact[i] = b->moved[i] = NULL;
    }
    data_free(&b->data);
}

/* ---- runs ------------------------------------------------------------------------------------------ */

static lathe_status run(struct bench *b, enum eval_precision precision, lathe_error *err)
{
    const struct kind_row *kind = &kinds[b->p->ir->kind];
    f32_enter(b->p, precision, &b->tape);
    const lathe_status status = kind->host_forward(&b->call, NULL, kind->host_units(&b->call), err);
    f32_leave(b->p);
    return status;
}

static void take_moved(struct bench *b)
{
    for (int i = 0; i < b->data.n; i++) {
        const int64_t n = b->exact[i] ? tensor_count(&b->data.arg[i]) : 0;
        const double *value = b->data.arg[i].data;
        for (int64_t k = 0; k < n; k++)
            if (value[k] != b->exact[i][k])
                b->moved[i][k] = fmax(b->moved[i][k], fabs(value[k] - b->exact[i][k]));
    }
}

/* ---- verdicts -------------------------------------------------------------------------------------- */

/* The formula of a result. */
static int root_of(const struct ir *ir, const char *name)
{
    int root[MAX_MAPS] = {0};
    for (int i = 0; i < ir->maps.n_tensors; i++) {
        const struct map_tensor *t = &ir->maps.tensor[i];
        if (t->use != USE_STORE && t->use != USE_SUM)
            continue;
        if (strcmp(t->name, name) == 0)
            return ir->maps.map[t->map].fn.root[root[t->map]];
        root[t->map] += t->form == STAGE_ELEMENT ? 1 : 2;
    }
    return proofs_of(ir)->root_of ? proofs_of(ir)->root_of(ir, name) : ir->maps.map[0].fn.root[0];
}

static double largest_of(const double *value, int64_t n)
{
    double largest = 0;
    for (int64_t k = 0; k < n; k++)
        if (fabs(value[k]) <= (double)FLT_MAX)
            largest = fmax(largest, fabs(value[k]));
    return largest;
}

/* What the rounding of a result is a part of, beside itself. */
static double size_of_terms(const struct bench *b, int result)
{
    const struct kind_proofs *proofs = proofs_of(b->p->ir);
    const double made = largest_of(b->exact[result], tensor_count(&b->data.arg[result]));
    double read = 0;
    for (int i = 0; i < b->data.n; i++) {
        const lathe_arg *t = &b->data.arg[i];
        const bool term = !proofs->terms || strcmp(t->name, proofs->terms) == 0;
        if (term && t->dtype == LATHE_F64 && !is_result(b, i))
            read = fmax(read, largest_of(t->data, tensor_count(t)));
    }
    return proofs->size ? proofs->size(read, made) : fmin(made, read);
}

static bool says_nothing(const struct bench *b, double exact, double single)
{
    const struct kind_proofs *proofs = proofs_of(b->p->ir);
    return !isfinite(single) && proofs->says_nothing && proofs->says_nothing(b->p, exact);
}

/* Zeros, as of padding, and usual numbers are what everybody has: that they give no number is worth a word,
   where the formula says so in double precision, too. */
static void warn_of_usual(struct bench *b, const char *name, double exact, double single)
{
    const bool nan = b->size == DATA_ZERO && isnan(exact) && !b->nan_usual;
    b->nan_usual = b->nan_usual || (b->size != DATA_ZERO && isnan(exact));
    const bool beyond = b->size == DATA_NEAR && fabs(exact) > F32_LARGEST && !isfinite(single) &&
                        b->p->mode.bad_op >= 0 && b->p->mode.bad_op != OP_LOG && b->p->mode.bad_op != OP_DIV;
    char why[80];
    if (nan)
        proof_warn(b->out, f32_line(b->p, root_of(b->p->ir, name)), "%s is NaN where %s is 0%s", name,
                   b->name, f32_cause(b->p, why, sizeof why));
    else if (beyond)
        proof_warn(b->out, f32_line(b->p, root_of(b->p->ir, name)),
                   "%s is %.3g, more than f32 holds, on data %s%s", name, proof_shown(exact),
                   data_size_text(b->size), f32_cause(b->p, why, sizeof why));
}

static void judge_result(struct bench *b, int i)
{
    const lathe_arg *t = &b->data.arg[i];
    const double *single = t->data;
    const int64_t n = tensor_count(t);
    const double size = size_of_terms(b, i);
    const double moved = proofs_of(b->p->ir)->mixes ? largest_of(b->moved[i], n) : 0;
    char why[80];
    for (int64_t k = 0; k < n; k++) {
        if (says_nothing(b, b->exact[i][k], single[k]))
            continue;
        warn_of_usual(b, t->name, b->exact[i][k], single[k]);
        if (f32_compare(b->out, b->exact[i][k], single[k], fmax(moved, b->moved[i][k]), size))
            proof_blame(b->out, f32_line(b->p, root_of(b->p->ir, t->name)),
                        "%s is %.6g in f32, %.6g in double (data %s)%s", t->name, proof_shown(single[k]),
                        b->exact[i][k], data_size_text(b->size), f32_cause(b->p, why, sizeof why));
    }
}

static lathe_status judge_all(struct bench *b, lathe_error *err)
{
    lathe_status status = host_bind(&b->call, b->p->ir, &b->p->forward, b->arg, b->n_args, err);
    b->call.mode = &b->p->mode;
    if (status == LATHE_OK)
        status = run(b, EVAL_ROUNDED, err);
    if (status != LATHE_OK)
        return status;
    data_copy(&b->data, b->exact);
    for (int i = 0; i < MOVES && status == LATHE_OK; i++) {
        b->p->mode.seed = (uint64_t)i;
        status = run(b, EVAL_MOVED, err);
        if (status == LATHE_OK)
            take_moved(b);
    }
    if (status == LATHE_OK)
        status = run(b, EVAL_F32, err);
    for (int i = 0; i < b->data.n && status == LATHE_OK; i++)
        if (b->exact[i])
            judge_result(b, i);
    return status;
}

/* ---- sizes ----------------------------------------------------------------------------------------- */

/* One dim of every map is longer than the others, as far as there is time for it. */
static void lengthen(const struct prover *p, int which, int64_t length, int64_t *dim)
{
    for (int m = 0; m < p->ir->maps.n_maps; m++) {
        const struct ir_map *map = &p->ir->maps.map[m];
        const int k = which < 0 ? map->n_over - 1 : which % map->n_over;
        int64_t points = 1;
        for (int i = 0; i < map->n_over; i++)
            points *= i == k ? 1 : dim[map->over[i]];
        const int64_t most = reach_affordable(p) / points;
        if (dim[map->over[k]] < length)
            dim[map->over[k]] = length < most ? length : most > 1 ? most : 1;
    }
}

static bool is_over(const struct ir *ir, int sym)
{
    bool found = false;
    for (int m = 0; m < ir->maps.n_maps; m++)
        for (int k = 0; k < ir->maps.map[m].n_over; k++)
            found |= ir->maps.map[m].over[k] == sym;
    return found;
}

/* Dims of tables alone cost memory, and no time: a search in 2^20 places looks at 20 of them. */
static void lengthen_tables(const struct prover *p, int64_t *dim)
{
    for (int k = 0; k < p->ir->n_free; k++)
        if (!is_over(p->ir, SYM_FREE + k))
            dim[SYM_FREE + k] = p->reach.table;
}

static void sizes(const struct prover *p, int layout, enum data_size size, int64_t *dim)
{
    static const int64_t few[MAX_FREE_SYMS] = {2, 3, 4, 5, 2, 3, 2, 4};
    memset(dim, 0, SYM_COUNT * sizeof *dim);
    dim[SYM_ONE] = dim[SYM_ROWS0] = dim[SYM_ROWS1] = dim[SYM_B] = 1;
    dim[SYM_H] = 4;
    dim[SYM_H_KV] = 2;
    dim[SYM_Q] = 5;
    dim[SYM_KV] = 9;
    dim[SYM_H_K] = 2;
    dim[SYM_T] = 9;
    dim[SYM_SEQS] = dim[SYM_SLOTS] = 1;
    dim[SYM_D] = dim[SYM_D2] = dim[SYM_D_V] = layout == 0 ? 8 : p->reach.head_dim;
    dim[SYM_ROWS] = layout == 0 ? 6 : 2;
    dim[SYM_N] = layout == 0 ? 13 : p->reach.row;
    for (int m = 0; m < p->ir->maps.n_maps; m++)
        for (int k = 0; k < p->ir->maps.map[m].n_over; k++)
            dim[p->ir->maps.map[m].over[k]] = few[p->ir->maps.map[m].over[k] - SYM_FREE];
    for (int m = 0; m < p->ir->maps.n_maps && size != DATA_REACH && !p->reach.by_index;
         m++) /* of both signs, nearly always */
        dim[p->ir->maps.map[m].over[p->ir->maps.map[m].n_over - 1]] = POINTS;
    if (layout > 0)
        lengthen(p, layout - 2, layout == 1 ? 40 : p->reach.row, dim);
    if (layout > 1 && p->reach.table > 0)
        lengthen_tables(p, dim);
    prover_sizes(p, dim);
}

/* Scalars of a declared range that is a table's take its end. */
static void take_ends(struct bench *b, const int64_t *dim)
{
    const struct ir *ir = b->p->ir;
    for (int i = 0; i < ir->n_inputs; i++) {
        struct value_range range;
        const struct input *in = &ir->input[i];
        for (int k = 0; k < b->data.n && in->is_scalar && in->dtype == LATHE_I32; k++)
            if (strcmp(b->data.arg[k].name, in->name) == 0 && !given_arg(b->p, in->name) &&
                input_range(in, dim, &range) && range.high > range.low && range.high <= b->p->reach.table)
                *(int32_t *)b->data.arg[k].data = (int32_t)(range.high - 1);
    }
}

/* How many: of maps that compare indices, one long dim after the other. */
static int layouts(const struct prover *p)
{
    int n = 0;
    for (int m = 0; m < p->ir->maps.n_maps && p->reach.by_index; m++)
        n = p->ir->maps.map[m].n_over > n ? p->ir->maps.map[m].n_over : n;
    return p->quick ? 1 : 2 + n;
}

static lathe_status one_round(struct bench *b, int layout, enum data_size size, lathe_error *err)
{
    int64_t dim[SYM_COUNT];
    lathe_status status = LATHE_OK;
    int n_zero = 1;
    sizes(b->p, layout, size, dim);
    b->size = size;
    for (b->zero = 0; b->zero < n_zero && status == LATHE_OK; b->zero++) {
        status = make_data(b, dim) ? LATHE_OK : host_out_of_memory(err);
        n_zero = size == DATA_ZERO ? data_tensors(b->p, &b->data) : 1;
        if (status == LATHE_OK && layout > 1 && size == DATA_REACH)
            take_ends(b, dim);
        if (status == LATHE_OK)
            status = judge_all(b, err);
        drop_data(b);
    }
    return status;
}

/* What usual data refuses is the spec's mistake; of other sizes and integers a read need not be, but a number
   that its kind refuses is. */
static bool is_mistake(const struct prover *p, lathe_status status, int layout, enum data_size size)
{
    const bool refused = p->mode.refused && size != DATA_REACH;
    return status != LATHE_OK && (status != LATHE_SPEC || refused || (layout == 0 && size == DATA_NEAR));
}

void prove_values(struct prover *p, struct proof *out)
{
    struct bench *b = calloc(1, sizeof *b);
    lathe_error err = {.status = LATHE_OK};
    const int rounds = DATA_REACH + (p->quick ? 0 : REACH_ROUNDS);
    const int n_layouts = layouts(p);
    const int wide = n_layouts > 1 ? N_LONG : 0;
    const int all = rounds + wide + (n_layouts > 2 ? (n_layouts - 2) * N_BY_INDEX : 0);
    bool ok = b != NULL;
    if (!b)
        host_out_of_memory(&err);
    for (int i = 0; i < all && ok; i++) {
        const int more = i - rounds - wide; /* of long dims of maps */
        const int layout = i < rounds ? 0 : more < 0 ? 1 : 2 + more / N_BY_INDEX;
        const enum data_size size = i < rounds          ? (i < DATA_REACH ? (enum data_size)i : DATA_REACH)
                                    : more < 0          ? LONG[i - rounds]
                                    : more % N_BY_INDEX ? DATA_REACH
                                                        : DATA_NEAR;
        if (!proof_goes_on(p, out, "runs of the forward pass", i))
            break;
        b->p = p;
        b->out = out;
        p->mode.refused = false;
        const lathe_status status = one_round(b, layout, size, &err);
        ok = !is_mistake(p, status, layout, size);
    }
    if (!ok)
        proof_refused(out, &err);
    if (b)
        free(b->tape.value);
    free(b);
}
