/*
 * prove_backward.c: the backward pass as kernels compute it (backward.c) against the derivative of the
 * whole row that the host device takes (host/gradient.c): per row of random scores and seeds, the weights,
 * dL/d<q', k'> of every pair, and the gradient of every input. In: a prover. Out: a verdict. A spec that
 * kernels refuse is no mistake: the verdict says why they do.
 */
#include "gen/attention/prove/prove.h"
#include "gen/attention/lower.h"
#include "gen/attention/backward.h"
#include "gen/base/diag.h"
#include "gen/derive/diff.h"
#include "gen/prove/proof.h"
#include "runtime/recipe/bind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 24, FAR_ROUNDS = 8, FAR_INPUTS = 12 };
static const int OWN_ROUNDS[SIZE_COUNT] = {24, 9, 12}; /* at a size */
static const double BOUND = 1e-9;
static const double TINY = 1e-25; /* a scale below it would have products that f32 does not hold */
static const double FLOOR = 1e-2; /* numbers smaller than this are compared absolutely, against it */

struct bench {
    struct prover *p;
    struct data data;
    lathe_arg arg[DATA_MAX]; /* of the call */
    struct host_call call;
    struct host_head head;
    struct ir *direct; /* a copy with the derivative of the whole row */
    struct row_graph row;
    struct diff_result whole;
    struct ir *kernel; /* a copy with the formulas of kernels, lowered */
    struct backward formulas;
    double *dw, *weight, *ds, *score, *site; /* [kv] */
    double input[MAX_INPUTS]; /* sum over its elements of gradient times a number of the element's own */
    double input_size[MAX_INPUTS];
    double dfinal[MAX_STATE];
    double final[MAX_STATE];
    double state[MAX_STATE];
    double delta;
    double rounding; /* what it may make of a weight */
    double sum[MAX_STATE];
    bool large; /* finals are taken apart, as kernels do where they are large */
    double high[MAX_STATE], norm[MAX_STATE];
};

/* ---- what each side evaluates ------------------------------------------------------------------ */

static bool open_direct(struct bench *b, struct diag *diag)
{
    int root[1 + MAX_STATE];
    int seed[1 + MAX_STATE];
    struct ir *ir = b->direct = ir_clone(b->p->ir);
    if (!ir)
        return false;
    row_graph_make(ir, &b->row);
    root[0] = b->row.forward;
    seed[0] = ir_param_of(ir, LEAF_DW);
    for (int k = 0; k < ir->n_finals; k++) {
        root[1 + k] = b->row.final[k];
        seed[1 + k] = ir_param_of(ir, LEAF_DFINAL + k);
    }
    return diff(ir, root, seed, 1 + ir->n_finals, &b->whole, diag);
}

/* f16: the rewrites of 16-bit kernels too. */
static bool open_kernel(struct bench *b, char *why)
{
    struct problem problem = b->call.problem;
    const struct signature *sig = &b->p->backward;
    lathe__problem_set_dtype(&problem, LATHE_F16);
    problem.present = ~UINT64_C(0);
    snprintf(why, WHY_BYTES, "memory ran out");
    return attention_lower_backward(b->p->ir, sig, &problem, &b->kernel, &b->formulas, why) == LATHE_OK;
}

static lathe_status run(struct bench *b, const struct ir *ir, const int *root, int n, lathe_error *err)
{
    b->head.pair.ir = ir;
    lathe_status status = host_eval(&b->head.pair, root, n, err);
    return status;
}

/* A number for every element of an input, by its index. */
static double element_weight(const struct bench *b, const struct ir_node *leaf, int64_t j)
{
    double sum = 1;
    for (int d = 0; d < leaf->n_args; d++)
        sum += (d + 1.7) * host_value(&b->head.pair, leaf->arg[d], j);
    return cos(sum);
}

/* Add `sign` times the gradient that arrives at a leaf. */
static void add_input(struct bench *b, const struct ir *ir, int leaf, int value, bool every_pair, double sign)
{
    const struct ir_node *n = &ir->node[leaf];
    const int64_t count = every_pair ? b->head.n_live : 1;
    for (int64_t j = 0; j < count; j++) {
        double part = host_value(&b->head.pair, value, j) * element_weight(b, n, j);
        b->input[n->index] += sign * part;
        b->input_size[n->index] += fabs(part);
    }
}

/* ---- one row -------------------------------------------------------------------------------------- */

static void fill_row(struct bench *b, double deviation)
{
    const double scale = b->head.scale != 0 && isfinite(b->head.scale) ? fmax(fabs(b->head.scale), TINY) : 1;
    for (int64_t j = 0; j < b->head.n_live; j++) {
        b->head.qk[j] = deviation / scale * random_normal(b->p);
        b->dw[j] = random_normal(b->p);
    }
    for (int k = 0; k < MAX_STATE; k++)
        b->dfinal[k] = random_normal(b->p);
}

static lathe_status run_direct(struct bench *b, lathe_error *err)
{
    const struct ir *ir = b->direct;
    int root[2 + 2 * MAX_STATE + LEAF_COUNT];
    int n = 0;
    root[n++] = b->row.forward;
    root[n++] = b->row.score;
    for (int k = 0; k < ir->n_finals; k++)
        root[n++] = b->row.final[k];
    for (int k = 0; k < ir->n_states; k++)
        root[n++] = b->row.state[k];
    lathe_status status = run(b, ir, root, n, err);
    if (status != LATHE_OK)
        return status;
    host_values(&b->head.pair, b->row.forward, b->head.n_live, b->weight);
    host_values(&b->head.pair, b->row.score, b->head.n_live, b->score);
    b->rounding = proof_rounding(proof_score_size(b->score, b->weight, b->head.n_live));
    for (int k = 0; k < ir->n_finals; k++)
        b->final[k] = host_value(&b->head.pair, b->row.final[k], 0);
    for (int k = 0; k < ir->n_states; k++)
        b->state[k] = host_value(&b->head.pair, b->row.state[k], 0);
    b->delta = 0;
    for (int64_t j = 0; j < b->head.n_live; j++)
        b->delta += b->dw[j] * b->weight[j];
    memset(b->ds, 0, (size_t)b->head.n_live * sizeof *b->ds);
    for (int i = 0; i < b->whole.n && status == LATHE_OK; i++) {
        const struct ir_node *leaf = &ir->node[b->whole.item[i].leaf];
        const int both[2] = {b->whole.item[i].adjoint, b->whole.item[i].leaf};
        bool input = leaf->op != OP_PARAM;
        status = run(b, ir, both, input ? 2 : 1, err);
        if (status == LATHE_OK && input)
            add_input(b, ir, both[1], both[0], (leaf->span & SPAN_KV) != 0, 1);
        else if (status == LATHE_OK && leaf->index == LEAF_QK)
            host_values(&b->head.pair, both[0], b->head.n_live, b->ds);
    }
    return status;
}

static lathe_status take_sites(struct bench *b, const struct site_list *list, bool pair, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int i = 0; i < list->n && status == LATHE_OK; i++) {
        const int root[2] = {list->item[i].value, list->item[i].leaf};
        status = run(b, b->kernel, root, 2, err);
        if (status == LATHE_OK)
            add_input(b, b->kernel, root[1], root[0], pair, -1);
    }
    return status;
}

static lathe_status run_splits(struct bench *b, lathe_error *err)
{
    const struct final_split *split = b->formulas.split;
    lathe_status status = LATHE_OK;
    for (int k = 0; k < b->p->ir->n_finals && status == LATHE_OK; k++) {
        const int root[2] = {split[k].high, split[k].norm};
        const bool apart = b->large && split[k].found;
        if (apart)
            status = run(b, b->kernel, root, 2, err);
        b->high[k] = apart && status == LATHE_OK ? host_value(&b->head.pair, root[0], 0) : b->final[k];
        b->norm[k] = apart && status == LATHE_OK ? host_value(&b->head.pair, root[1], 0) : 1;
    }
    return status;
}

/* The pass over the row that comes before the others. */
static lathe_status run_sums(struct bench *b, lathe_error *err)
{
    const struct backward *f = &b->formulas;
    lathe_status status = run(b, b->kernel, f->sum, f->n_sums, err);
    for (int k = 0; k < f->n_sums && status == LATHE_OK; k++) {
        b->sum[k] = 0;
        for (int64_t j = 0; j < b->head.n_live; j++)
            b->sum[k] += host_value(&b->head.pair, f->sum[k], j);
    }
    return status;
}

/* w (dw - delta): what rounding makes of w and delta, where they cancel. */
static double rounding_of_ds(const struct bench *b, int64_t j)
{
    const double difference = fabs(b->dw[j] - b->delta);
    const double size = fabs(b->dw[j]) + fabs(b->delta);
    return difference > 0 ? b->rounding * fmax(1, size / difference) : b->rounding;
}

static lathe_status run_kernel(struct bench *b, struct proof *out, lathe_error *err)
{
    const struct backward *f = &b->formulas;
    const int root[3] = {f->weight, f->ds, f->factor};
    struct eval_env *env = &b->head.pair;
    lathe_status status = run_splits(b, err);
    if (status == LATHE_OK && f->n_sums > 0)
        status = run_sums(b, err);
    if (status == LATHE_OK)
        status = run(b, b->kernel, root, 3, err);
    for (int64_t j = 0; j < b->head.n_live && status == LATHE_OK; j++) {
        double ds = host_value(env, f->ds, j) * host_value(env, f->factor, 0);
        if (proof_compare(out, proof_distance(b->weight[j], host_value(env, f->weight, j), FLOOR),
                          b->rounding))
            proof_blame(out, proof_line(b->p->ir, b->p->ir->forward.root[0]),
                        "a weight is %.8g, %.8g in kernels", proof_shown(b->weight[j]),
                        proof_shown(host_value(env, f->weight, j)));
        if (proof_compare(out, proof_distance(b->ds[j], ds, FLOOR), rounding_of_ds(b, j)))
            proof_blame(out, proof_line(b->p->ir, b->p->ir->forward.root[0]),
                        "the gradient of a score is %.8g derived, %.8g in kernels", proof_shown(b->ds[j]),
                        proof_shown(ds));
    }
    if (status == LATHE_OK)
        status = take_sites(b, &f->pair, true, err);
    if (status == LATHE_OK)
        status = take_sites(b, &f->row, false, err);
    return status;
}

/* Of unusual scores those are compared whose weights and gradients f32 can hold. */
static bool is_in_range(const struct bench *b)
{
    bool held = true;
    for (int64_t j = 0; j < b->head.n_live; j++)
        held = held && fabs(b->weight[j]) <= F32_LARGEST && fabs(b->ds[j]) <= F32_LARGEST;
    return held;
}

/* Far out, where an exponential leaves f32: a gradient that double precision has is a number in f32, too.
   Judged are rows whose weights are numbers in both. */
static lathe_status judge_f32(struct bench *b, double deviation, struct proof *out, bool *finite,
                              lathe_error *err)
{
    const struct backward *f = &b->formulas;
    const int root[3] = {f->weight, f->ds, f->factor};
    const struct eval_env *env = &b->head.pair;
    const int line = b->p->ir->score.n_roots ? b->p->ir->score.root[0] : b->p->ir->forward.root[0];
    *finite = is_in_range(b);
    b->p->mode.precision = EVAL_F32;
    const lathe_status status = *finite ? run(b, b->kernel, root, 3, err) : LATHE_OK;
    b->p->mode.precision = EVAL_DOUBLE;
    for (int64_t j = 0; j < b->head.n_live && status == LATHE_OK && *finite; j++)
        *finite = isfinite(host_value(env, f->weight, j)) && isfinite(host_value(env, f->factor, 0));
    for (int64_t j = 0; j < b->head.n_live && status == LATHE_OK && *finite; j++) {
        const double ds = host_value(env, f->ds, j);
        if (!isfinite(ds) && proof_record(out, (double)INFINITY))
            proof_blame(out, proof_line(b->p->ir, line),
                        "the gradient of a score is %.6g in f32, %.6g in double (scores of deviation %g)",
                        proof_shown(ds), b->ds[j], deviation);
    }
    return status;
}

static void judge_number(const struct bench *b, const char *input, double exact, double single,
                         double deviation, struct proof *out)
{
    const int line = proof_line(b->p->ir, b->p->ir->score.root[0]);
    if (isnan(exact) && proof_record(out, (double)INFINITY))
        proof_blame(out, line,
                    "the gradient of '%s' is NaN, in double precision, too (scores of deviation %g)", input,
                    deviation);
    else if (fabs(exact) <= F32_LARGEST && !isfinite(single) && proof_record(out, (double)INFINITY))
        proof_blame(out, line, "the gradient of '%s' is %.6g in f32, %.6g in double (scores of deviation %g)",
                    input, proof_shown(single), exact, deviation);
}

/* What a pair or the row adds to an input's gradient, likewise. */
static lathe_status judge_site_f32(struct bench *b, const struct site *site, int64_t n, double deviation,
                                   struct proof *out, lathe_error *err)
{
    const struct input *in = &b->p->ir->input[b->kernel->node[site->leaf].index];
    lathe_status status = run(b, b->kernel, &site->value, 1, err);
    for (int64_t j = 0; j < n && status == LATHE_OK; j++)
        b->site[j] = host_value(&b->head.pair, site->value, j);
    b->p->mode.precision = EVAL_F32;
    if (status == LATHE_OK)
        status = run(b, b->kernel, &site->value, 1, err);
    b->p->mode.precision = EVAL_DOUBLE;
    for (int64_t j = 0; j < n && status == LATHE_OK; j++)
        judge_number(b, in->name, b->site[j], host_value(&b->head.pair, site->value, j), deviation, out);
    return status;
}

static lathe_status judge_sites_f32(struct bench *b, double deviation, struct proof *out, lathe_error *err)
{
    const struct backward *f = &b->formulas;
    lathe_status status = LATHE_OK;
    for (int i = 0; i < f->pair.n && status == LATHE_OK; i++)
        status = judge_site_f32(b, &f->pair.item[i], b->head.n_live, deviation, out, err);
    for (int i = 0; i < f->row.n && status == LATHE_OK; i++)
        status = judge_site_f32(b, &f->row.item[i], 1, deviation, out, err);
    return status;
}

static void judge_inputs(struct bench *b, struct proof *out)
{
    for (int i = 0; i < b->p->ir->n_inputs; i++) {
        const double error = fabs(b->input[i]) / fmax(b->input_size[i], FLOOR);
        if (b->p->ir->input[i].grad && proof_compare(out, error, b->rounding))
            proof_blame(out, b->p->ir->input[i].line,
                        "the gradient of input '%s' is another one in kernels, by %.3g of its size",
                        b->p->ir->input[i].name, proof_shown(error));
    }
}

static lathe_status enter_row(struct bench *b, int64_t head, int64_t row, lathe_error *err)
{
    struct eval_env *env = &b->head.pair;
    env->ir = b->p->ir;
    lathe_status status = host_head_enter(&b->head, random_below(b->p, host_dim(&b->call, SYM_B)), head, err);
    if (status == LATHE_OK)
        status = host_row_enter(&b->head, row, err);
    env->param[LEAF_DW] = b->dw;
    env->param[LEAF_DELTA] = &b->delta;
    for (int k = 0; k < MAX_STATE; k++) {
        env->param[LEAF_DFINAL + k] = &b->dfinal[k];
        env->param[LEAF_FINAL + k] = &b->final[k];
        env->param[LEAF_STATE + k] = &b->state[k];
        env->param[LEAF_ROWSUM + k] = &b->sum[k];
        env->param[LEAF_HIGH + k] = &b->high[k];
        env->param[LEAF_NORM + k] = &b->norm[k];
    }
    return status;
}

static lathe_status one_round(struct bench *b, int round, struct proof *out, lathe_error *err)
{
    memset(b->input, 0, sizeof b->input);
    memset(b->input_size, 0, sizeof b->input_size);
    const int64_t head = random_below(b->p, host_dim(&b->call, SYM_H));
    lathe_status status = enter_row(b, head, random_below(b->p, b->head.len_q), err);
    if (status != LATHE_OK || b->head.n_live == 0)
        return status;
    fill_row(b, round % 2 ? 8.0 : 1.0);
    b->large = round / 2 % 2 != 0;
    status = run_direct(b, err);
    if (status == LATHE_OK)
        status = run_kernel(b, out, err);
    if (status == LATHE_OK)
        judge_inputs(b, out);
    return status;
}

/* Scores as large as products and biases of usual data may be, and larger. */
static lathe_status one_far_round(struct bench *b, int round, struct proof *out, lathe_error *err)
{
    static const double DEVIATION[] = {40, 100, 300, 1000};
    const double deviation = DEVIATION[round % 4];
    const int64_t head = random_below(b->p, host_dim(&b->call, SYM_H));
    lathe_status status = enter_row(b, head, random_below(b->p, b->head.len_q), err);
    if (status != LATHE_OK || b->head.n_live == 0)
        return status;
    fill_row(b, deviation);
    b->large = false;
    memset(b->input, 0, sizeof b->input);
    status = run_direct(b, err);
    if (status == LATHE_OK)
        status = run_splits(b, err);
    if (status == LATHE_OK && b->formulas.n_sums > 0)
        status = run_sums(b, err);
    bool finite = false;
    if (status == LATHE_OK)
        status = judge_f32(b, deviation, out, &finite, err);
    return status == LATHE_OK && finite ? judge_sites_f32(b, deviation, out, err) : status;
}

/* ---- all of them --------------------------------------------------------------------------------- */

static bool take_memory(struct bench *b, int64_t len_kv)
{
    double **const block[] = {&b->dw, &b->weight, &b->ds, &b->score, &b->site};
    bool ok = true;
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
        *block[i] = calloc((size_t)len_kv + 1, sizeof(double));
        ok = ok && *block[i];
    }
    return ok;
}

static lathe_status open_rows(struct bench *b, enum reach_size size, enum data_size data, lathe_error *err)
{
    int64_t dim[SYM_COUNT];
    reach_sizes(b->p, size, dim);
    if (!data_make(&b->data, b->p, dim) || !take_memory(b, dim[SYM_KV]))
        return host_out_of_memory(err);
    if (data == DATA_REACH)
        data_take_size(b->p, &b->data, data, 0);
    int n = data_select(&b->data, &b->p->forward, b->arg);
    lathe_status status = host_bind(&b->call, b->p->ir, &b->p->forward, b->arg, n, err);
    b->call.mode = &b->p->mode;
    if (status == LATHE_OK)
        status = host_head_init(&b->head, &b->call, err);
    return status;
}

static void close_rows(struct bench *b)
{
    if (b->head.call)
        host_head_free(&b->head);
    b->head.call = NULL;
    data_free(&b->data);
    free(b->dw);
    free(b->weight);
    free(b->ds);
    free(b->score);
    free(b->site);
    b->dw = b->weight = b->ds = b->score = b->site = NULL;
}

static lathe_status far_rounds(struct bench *b, struct proof *out, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int round = 0; round < FAR_ROUNDS && status == LATHE_OK; round++)
        if (proof_goes_on(b->p, out, "rows of large scores", round))
            status = one_far_round(b, round, out, err);
    return status;
}

static bool has_gradients(const struct ir *ir)
{
    bool some = false;
    for (int i = 0; i < ir->n_inputs; i++)
        some |= ir->input[i].grad;
    return some;
}

static lathe_status all_rounds(struct bench *b, struct proof *out, lathe_error *err)
{
    struct diag diag = {0};
    lathe_status status = open_rows(b, SIZE_SMALL, DATA_NEAR, err);
    if (status == LATHE_OK && !open_kernel(b, out->note)) {
        out->applies = false;
        return status;
    }
    out->note[0] = 0;
    if (status == LATHE_OK && !open_direct(b, &diag))
        return host_out_of_memory(err);
    for (int round = 0; round < ROUNDS && status == LATHE_OK; round++)
        if (proof_goes_on(b->p, out, "rows", round))
            status = one_round(b, round, out, err);
    status = status == LATHE_OK ? far_rounds(b, out, err) : status;
    /* And with other numbers in inputs: those that the spec's constants ask for, ends of ranges. */
    const int openings = has_gradients(b->p->ir) ? FAR_INPUTS : 0;
    for (int i = 0; i < openings && status == LATHE_OK; i++) {
        close_rows(b);
        status = open_rows(b, SIZE_SMALL, DATA_REACH, err);
        status = status == LATHE_OK ? far_rounds(b, out, err) : status;
    }
    return status;
}

/* ---- a spec's own backward --------------------------------------------------------------------------- */

/* The online function alone: <q', k'> is the score. */
static bool open_online(struct bench *b, struct diag *diag)
{
    struct ir *ir = b->direct = ir_clone(b->p->ir);
    if (!ir)
        return false;
    ir->score.n_roots = 0;
    ir->scale.root[0] = ir_const(ir, 1, TYPE_F32);
    row_graph_make(ir, &b->row);
    const int seed = ir_param_of(ir, LEAF_DW);
    return diff(ir, &b->row.forward, &seed, 1, &b->whole, diag);
}

static lathe_status compare_online(struct bench *b, bool usual, struct proof *out, lathe_error *err)
{
    const int root = b->p->ir->backward.root[0];
    lathe_status status = run_direct(b, err);
    if (status == LATHE_OK)
        status = run(b, b->p->ir, &root, 1, err);
    if (status != LATHE_OK || (!usual && !is_in_range(b)))
        return status;
    for (int64_t j = 0; j < b->head.n_live; j++) {
        const double given = host_value(&b->head.pair, root, j);
        if (proof_compare(out, proof_distance(b->ds[j], given, FLOOR), rounding_of_ds(b, j)))
            proof_blame(out, proof_line(b->p->ir, root),
                        "dL/ds is %.8g at head %lld, query %.0f, key %.0f, derived %.8g", proof_shown(given),
                        (long long)b->head.h, b->head.pair.at[AT_Q], b->head.kv[j], proof_shown(b->ds[j]));
    }
    return status;
}

/* The last head and the last row, which has most keys, or one beside a constant of the spec. */
static lathe_status enter_own(struct bench *b, int round, lathe_error *err)
{
    const int64_t n_h = host_dim(&b->call, SYM_H);
    const int64_t len_q = b->head.len_q;
    const int64_t head = round % 3 == 0 ? n_h - 1 : reach_position(b->p, n_h, 0);
    const int64_t row = round % 4 == 0 ? len_q - 1 : reach_position(b->p, len_q, b->call.q_start);
    return enter_row(b, head, row, err);
}

/* Numbers that the spec's constants ask for. */
static void fill_reach(struct bench *b)
{
    fill_row(b, 1);
    const double scale = b->head.scale != 0 && isfinite(b->head.scale) ? fabs(b->head.scale) : 1;
    for (int64_t j = 0; j < b->head.n_live; j++)
        if (random_below(b->p, 2))
            b->head.qk[j] = reach_number(b->p) / scale;
        else if (random_below(b->p, 2))
            b->dw[j] = reach_number(b->p);
}

static lathe_status own_rows(struct bench *b, enum reach_size size, struct proof *out, lathe_error *err)
{
    lathe_status status = open_rows(b, size, DATA_NEAR, err);
    for (int round = 0; round < OWN_ROUNDS[size] && status == LATHE_OK; round++) {
        const bool usual = round % 3 < 2;
        if (!proof_goes_on(b->p, out, "rows", round))
            break;
        status = enter_own(b, round, err);
        if (status != LATHE_OK || b->head.n_live == 0)
            continue;
        if (usual)
            fill_row(b, round % 3 ? 8.0 : 1.0);
        else
            fill_reach(b);
        for (int64_t j = 0; j < b->head.n_live; j++)
            b->head.s[j] = b->head.qk[j];
        b->head.pair.param[LEAF_W] = b->weight;
        status = compare_online(b, usual, out, err);
    }
    close_rows(b);
    return status;
}

static lathe_status own_rounds(struct bench *b, struct proof *out, lathe_error *err)
{
    struct diag diag = {0};
    lathe_status status = open_online(b, &diag) ? LATHE_OK : host_out_of_memory(err);
    for (int size = 0; size < SIZE_COUNT && status == LATHE_OK; size++) {
        status = own_rows(b, (enum reach_size)size, out, err);
        if (status == LATHE_SPEC && size != SIZE_SMALL) /* its tables are not made for so many keys */
            status = LATHE_OK;
    }
    return status;
}

/* ---- doors ------------------------------------------------------------------------------------------------
 */

static void conclude(struct prover *p, struct proof *out,
                     lathe_status (*rounds)(struct bench *b, struct proof *out, lathe_error *err))
{
    lathe_error err = {.status = LATHE_OK};
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        host_out_of_memory(&err);
        proof_refused(out, &err);
        return;
    }
    b->p = p;
    if (rounds(b, out, &err) != LATHE_OK)
        proof_refused(out, &err);
    proof_say_lost(out, proof_line(p->ir, prover_row(p)->score));
    close_rows(b);
    diff_free(&b->whole);
    if (b->direct)
        ir_free(b->direct);
    if (b->kernel)
        ir_free(b->kernel);
    free(b);
}

void prove_backward(struct prover *p, struct proof *out)
{
    proof_begin(out, "backward in kernels", BOUND);
    conclude(p, out, all_rounds);
}

void prove_own_backward(struct prover *p, struct proof *out)
{
    proof_begin(out, "backward = derived", BOUND);
    out->applies = p->ir->backward.n_roots > 0;
    if (out->applies)
        conclude(p, out, own_rounds);
}
