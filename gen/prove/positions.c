/*
 * positions.c: the proof "positions in f32". A mask, branch, step or index that is made of positions, sizes
 * and constants is computed in f32, by kernels and the host device alike (ir.h), and f32 may lie on the other
 * side of a step than exact arithmetic. In: a spec; sizes of one call, or none. Out: a warning with the first
 * position where a decision differs from the one in double precision, and what to write instead; or that
 * there is none.
 *
 * One position, or one distance, is walked over from 0 on: up to the size that is given, else up to 131072,
 * and beyond at samples up to 2^24. Of several, small ones, numbers beside the spec's constants and powers of
 * two, and random ones are paired.
 */
#include "gen/prove/positions.h"
#include "gen/ir/spec.h"
#include "gen/prove/index_ranges.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DENSE = 131072, BEYOND = 16384, PAIRS = 65536, SMALL = 48, MOST_TRIED = 100000 };
static const double TIME_SHARE = 0.25; /* of the time of all proofs, beside theirs */

struct walk {
    struct prover *p;
    struct cones *cones;
    int node;
    int n_vars;
    int var[VARIABLES]; /* fields of `at`, or DISTANCE */
    int64_t looked_at;
    int64_t tried; /* differences of which nothing came */
    double at[VARIABLES];
};

/* ---- variables ----------------------------------------------------------------------------------------- */

/* False: too many for a walk. */
static bool find_variables(struct walk *w)
{
    uint64_t vars = w->cones->vars[w->node];
    const uint64_t positions = UINT64_C(1) << AT_Q | UINT64_C(1) << AT_KV;
    if ((vars >> DISTANCE & 1) && (vars & positions))
        vars = (vars | positions) & ~(UINT64_C(1) << DISTANCE);
    w->cones->vars[w->node] = vars;
    w->n_vars = 0;
    for (int bit = 0; bit <= DISTANCE; bit++) {
        if (!(vars >> bit & 1))
            continue;
        if (w->n_vars == VARIABLES)
            return false;
        w->var[w->n_vars++] = bit;
    }
    return true;
}

static double end_of(const struct walk *w, int var)
{
    return field_end(w->cones, var == DISTANCE ? AT_Q : var);
}

static bool is_given(const struct walk *w, int var)
{
    return field_given(w->cones, var == DISTANCE ? AT_Q : var) > 0;
}

static void set(struct walk *w, int lane, const double *value)
{
    struct cones *c = w->cones;
    for (int v = 0; v < w->n_vars; v++) {
        if (w->var[v] == DISTANCE)
            c->distance[lane] = value[v];
        else
            c->field[w->var[v]][lane] = value[v];
    }
    if (c->vars[w->node] >> AT_Q & 1 && c->vars[w->node] >> AT_KV & 1)
        c->distance[lane] = c->field[AT_Q][lane] - c->field[AT_KV][lane];
}

/* ---- one step: as many positions as there are lanes ---------------------------------------------------- */

static void keep(struct walk *w, int lane)
{
    const struct cones *c = w->cones;
    for (int v = 0; v < w->n_vars; v++)
        w->at[v] = w->var[v] == DISTANCE ? c->distance[lane] : c->field[w->var[v]][lane];
    for (int v = 0; v < w->n_vars; v++) /* this lane's values are what is reported */
        set(w, 0, w->at);
}

/* True: there is a difference, at w->at and in lane 0. */
static bool step(struct walk *w, int lanes, lathe_status *status)
{
    struct cones *c = w->cones;
    w->looked_at += lanes;
    if (!cone_values(c, w->node, lanes)) {
        *status = LATHE_MEMORY;
        return false;
    }
    for (int lane = 0; lane < lanes && w->tried < MOST_TRIED && *status == LATHE_OK; lane++) {
        if (!cone_differs(c, w->node, lane))
            continue;
        if (cone_matters(c, w->node, lane, status)) {
            keep(w, lane);
            return cone_values(c, w->node, 1); /* there is room for them already */
        }
        w->tried++;
    }
    return false;
}

/* ---- one variable -------------------------------------------------------------------------------------- */

/* 0, 1, 2, ... or, of a distance, 0, 1, -1, 2, -2, ...; from `dense` on at samples. */
static double nth(struct walk *w, int64_t i, int64_t dense, double end)
{
    const bool both = w->var[0] == DISTANCE;
    if (i < dense)
        return !both ? (double)i : i % 2 ? (double)((i + 1) / 2) : -(double)(i / 2);
    const double power = exp2((double)(17 + random_below(w->p, 7)));
    const double sample = floor(power * (1 + random_unit(w->p)));
    const double value = i % 4 == 0 ? power + (double)random_below(w->p, 3) - 1 : fmin(sample, end - 1);
    return both && i % 8 >= 4 ? -value : value;
}

/* Positions `from` to `to` of that order. */
static bool walk_range(struct walk *w, int64_t from, int64_t to, int64_t dense, struct proof *out)
{
    const double end = end_of(w, w->var[0]);
    for (int64_t i = from; i < to; i += LANES) {
        const int lanes = (int)(to - i < LANES ? to - i : LANES);
        if (!proof_goes_on(w->p, out, "positions", (int)w->looked_at))
            return false;
        for (int lane = 0; lane < lanes; lane++) {
            const double value = nth(w, i + lane, dense, end);
            set(w, lane, &value);
        }
        if (step(w, lanes, &out->status))
            return true;
        if (out->status != LATHE_OK)
            return false;
    }
    return false;
}

static bool walk_one(struct walk *w, struct proof *out)
{
    const bool both = w->var[0] == DISTANCE;
    const int64_t all = (int64_t)end_of(w, w->var[0]) * (both ? 2 : 1);
    const int64_t dense = is_given(w, w->var[0]) || all < DENSE ? all : DENSE;
    if (walk_range(w, field_is_size(w->var[0]), dense, dense, out))
        return true;
    if (dense == all || !walk_range(w, dense, dense + BEYOND, dense, out))
        return false;
    const double found = w->at[0]; /* by a sample: is there one before it? */
    if (walk_range(w, dense, (int64_t)fabs(found) * (both ? 2 : 1) + 1, INT64_MAX, out) ||
        out->status != LATHE_OK)
        return out->status == LATHE_OK;
    out->cut_short = false;
    set(w, 0, &found);
    return step(w, 1, &out->status);
}

/* ---- several ------------------------------------------------------------------------------------------- */

static double sample(struct walk *w, int var)
{
    const struct reach *r = &w->p->reach;
    const double end = end_of(w, var);
    double value = (double)random_below(w->p, SMALL);
    switch (random_below(w->p, 6)) {
    case 0:
        value = floor(random_unit(w->p) * fmin(end, 4096));
        break;
    case 1:
        value = floor(exp2(random_unit(w->p) * log2(end)));
        break;
    case 2:
        value = exp2((double)random_below(w->p, 25)) + (double)random_below(w->p, 3) - 1;
        break;
    case 3:
        value = r->n > 0
                    ? floor(fabs(r->constant[random_below(w->p, r->n)])) + (double)random_below(w->p, 3) - 1
                    : value;
        break;
    default:
        break;
    }
    value = fmax(fmin(value, end - !field_is_size(var)), field_is_size(var));
    return var == DISTANCE && random_below(w->p, 2) ? -value : value;
}

/* No pair has at.row above at.q, nor an index beyond its size. */
static bool fits(const struct walk *w, const double *value)
{
    static const int INSIDE[][2] = {{AT_ROW, AT_Q},       {AT_B, AT_N_B},     {AT_H, AT_N_H},
                                    {AT_H_KV, AT_N_H_KV}, {AT_KV, AT_LEN_KV}, {AT_Q, AT_LEN_KV},
                                    {AT_COL, AT_N},       {AT_T, AT_LEN_T},   {AT_I, AT_D},
                                    {AT_H_K, AT_N_H_K},   {AT_ROW, AT_LEN_Q}, {AT_INDEX0, AT_SIZE0},
                                    {AT_INDEX1, AT_SIZE1}};
    bool ok = true;
    for (size_t i = 0; i < sizeof INSIDE / sizeof *INSIDE; i++)
        for (int a = 0; a < w->n_vars; a++)
            for (int b = 0; b < w->n_vars; b++)
                if (w->var[a] == INSIDE[i][0] && w->var[b] == INSIDE[i][1])
                    ok &= value[a] <= value[b] - field_is_size(w->var[b]);
    return ok;
}

/* Of the first two, every pair of small ones, by the larger of them. */
static void small_pair(struct walk *w, int64_t i, double *value)
{
    const double edge = floor(sqrt((double)i));
    const double rest = (double)i - edge * edge;
    for (int v = 0; v < w->n_vars; v++)
        value[v] = sample(w, w->var[v]);
    if (w->n_vars < 2)
        return;
    value[0] = rest < edge ? rest : edge;
    value[1] = rest < edge ? edge : rest - edge;
    for (int v = 0; v < 2; v++)
        value[v] = fmax(fmin(value[v], end_of(w, w->var[v]) - 1), field_is_size(w->var[v]));
}

static bool walk_several(struct walk *w, struct proof *out)
{
    for (int64_t i = 0; i < 2 * PAIRS;) {
        int lanes = 0;
        if (!proof_goes_on(w->p, out, "positions", (int)w->looked_at))
            return false;
        for (int k = 0; k < 8 * LANES && lanes < LANES && i < 2 * PAIRS; k++, i++) {
            double value[VARIABLES];
            if (i < PAIRS)
                small_pair(w, i, value);
            else
                for (int v = 0; v < w->n_vars; v++)
                    value[v] = sample(w, w->var[v]);
            if (fits(w, value))
                set(w, lanes++, value);
        }
        if (lanes > 0 && step(w, lanes, &out->status))
            return true;
        if (out->status != LATHE_OK)
            return false;
    }
    return false;
}

/* ---- sentences ----------------------------------------------------------------------------------------- */

static void say_where(struct phrase *to, const struct walk *w)
{
    char name[64];
    for (int v = 0; v < w->n_vars; v++) {
        snprintf(name, sizeof name, "at.q - at.kv");
        for (int i = 0; w->var[v] != DISTANCE && i < w->cones->ir->n_nodes; i++)
            if (ir_is_at(w->cones->ir, i, w->var[v]))
                expression_text(w->cones->ir, w->cones->context->map, i, name, sizeof name);
        lathe__say(to, "%s%s = %.0f", v ? ", " : "", name, w->at[v]);
    }
}

static void say_value(struct phrase *to, const struct ir_node *n, double value)
{
    if (n->type == TYPE_BOOL)
        lathe__say(to, "%s", yes(value != 0));
    else
        lathe__say(to, "%.9g", value == 0 ? 0 : number_shown(value)); /* without a sign */
}

/* The least q for which factor * q is an integer p, as factor was written; 0: none is small. */
static int64_t denominator(double factor, int64_t *p)
{
    for (int64_t q = 1; q <= 1000000; q *= 10)
        for (int64_t times = 1; times <= 8; times *= 2) {
            const double whole = round(factor * (double)(q * times));
            if (whole >= 1 && whole < 100000 && fabs(factor * (double)(q * times) - whole) < 1e-12 * whole) {
                int64_t a = (int64_t)whole;
                int64_t b = q * times;
                while (b) {
                    const int64_t rest = a % b;
                    a = b;
                    b = rest;
                }
                *p = (int64_t)whole / a;
                return q * times / a;
            }
        }
    return 0;
}

/* The integer that is multiplied or divided by a constant, and by what; -1: it is made otherwise. */
static int scaled_integer(const struct ir *ir, int node, double *factor)
{
    const struct ir_node *n = &ir->node[node];
    for (int k = 0; k < 2 && (n->op == OP_MUL || n->op == OP_DIV); k++) {
        const struct ir_node *by = &ir->node[n->arg[1 - k]];
        const struct ir_node *of = &ir->node[n->arg[k]];
        if (by->op != OP_CONST || of->op != OP_F32 || ir->node[of->arg[0]].type != TYPE_I32 ||
            (n->op == OP_DIV && k))
            continue;
        *factor = n->op == OP_DIV ? 1 / by->value : by->value;
        return of->arg[0];
    }
    return -1;
}

/* The integer whose multiple by p / q is rounded to a whole number; -1: it is made otherwise, or the product
   would leave 32 bits below 2^24. i32() rounds towards 0. */
static int whole_multiple(const struct ir *ir, const struct ir_node *n, int64_t *p, int64_t *q)
{
    double factor = 0;
    const bool steps = n->op == OP_FLOOR || n->op == OP_CEIL || n->op == OP_I32;
    const int of = steps ? scaled_integer(ir, n->arg[0], &factor) : -1;
    if (of < 0 || !(factor > 0))
        return -1;
    const bool positive = ir->node[of].op == OP_AT || ir->node[of].op == OP_ABS;
    *q = denominator(factor, p);
    return *q > 0 && *p < 128 && (n->op != OP_I32 || positive) ? of : -1;
}

static void say_advice(struct phrase *to, const struct walk *w)
{
    const struct ir *ir = w->cones->ir;
    const struct ir_node *n = &ir->node[w->node];
    char inner[60];
    char product[100];
    int64_t p = 1;
    int64_t q = 1;
    const int of = whole_multiple(ir, n, &p, &q);
    if (of < 0) {
        lathe__say(to, "; decide by integers, or away from the step");
        return;
    }
    expression_text(ir, w->cones->context->map, of, inner, sizeof inner);
    snprintf(product, sizeof product, ir->node[of].n_args == 2 ? "%s(%s)" : "%s%s",
             n->op == OP_CEIL ? "-" : "", inner);
    lathe__say(to, n->op == OP_CEIL ? "; write -(" : "; write ");
    if (p > 1)
        lathe__say(to, "(%s * %lld)", product, (long long)p);
    else
        lathe__say(to, "%s", product);
    lathe__say(to, " // %lld%s", (long long)q, n->op == OP_CEIL ? ")" : "");
}

static void warn(struct walk *w, struct proof *out)
{
    struct phrase to = {{0}, 0};
    char text[100];
    const struct cones *c = w->cones;
    const struct ir_node *n = &c->ir->node[w->node];
    expression_text(c->ir, c->context->map, w->node, text, sizeof text);
    lathe__say(&to, "%s: ", text);
    say_where(&to, w);
    lathe__say(&to, w->n_vars ? " gives " : "it is ");
    say_value(&to, n, c->value[IN_F32][w->node][0]);
    lathe__say(&to, " in f32, ");
    say_value(&to, n, c->value[IN_DOUBLE][w->node][0]);
    lathe__say(&to, " in double precision");
    say_advice(&to, w);
    snprintf(out->note, sizeof out->note, "%.*s", (int)sizeof out->note - 1, to.text);
    out->warned = true;
    out->line = proof_line(c->ir, w->node);
}

/* ---- the proof ----------------------------------------------------------------------------------------- */

/* True: the decision differs somewhere, and *out says so. */
static bool look_at(struct walk *w, struct proof *out)
{
    if (!find_variables(w))
        return false;
    const bool differs = w->n_vars == 1 ? walk_one(w, out) : walk_several(w, out);
    if (differs)
        warn(w, out);
    return differs;
}

/* -1: out of memory; else how many decisions there are. */
static int look_at_context(struct prover *p, const struct index_context *context, struct proof *out)
{
    struct cones *c = calloc(1, sizeof *c);
    int n = c && cones_open(c, p, context) ? 0 : -1;
    for (int i = 0; n >= 0 && i < p->ir->n_nodes && !out->warned; i++) {
        struct walk w = {.p = p, .cones = c, .node = i};
        if (!cone_decides(c, i))
            continue;
        n++;
        (void)look_at(&w, out);
    }
    if (c)
        cones_close(c);
    free(c);
    return out->status == LATHE_MEMORY ? -1 : n;
}

bool prove_has_positions(const struct ir *ir)
{
    bool any = false;
    for (int i = 0; i < ir->n_nodes && !any; i++)
        for (int k = 0; k < ir->node[i].n_args; k++) {
            const struct ir_node *a = &ir->node[ir->node[i].arg[k]];
            any |= ir_decides(ir, &ir->node[i]) && a->rounded && a->n_args > 0;
        }
    return any;
}

int prove_positions(struct prover *p, struct proof *out)
{
    struct index_context context[INDEX_CONTEXTS];
    if (!prove_has_positions(p->ir))
        return 0;
    proof_begin(out, "positions in f32", 0);
    p->deadline = proof_clock() + TIME_SHARE * p->seconds;
    const int n = proofs_of(p->ir)->contexts(p->ir, context);
    int decisions = 0;
    for (int i = 0; i < n && decisions >= 0 && !out->warned; i++) {
        const int found = look_at_context(p, &context[i], out);
        decisions = found < 0 ? -1 : decisions + found;
    }
    if (decisions < 0) {
        lathe_error err;
        host_out_of_memory(&err);
        proof_refused(out, &err);
    } else if (!out->warned && !out->cut_short) {
        snprintf(out->note, sizeof out->note, "decided as in double precision, wherever it was looked at");
    }
    return decisions != 0;
}
