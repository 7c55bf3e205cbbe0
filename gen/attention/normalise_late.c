/*
 * normalise_late.c: may a row's normaliser wait until the end? In: a lowered spec whose row states follow
 * online_fwd as it is written. Out: the same, or weights without the normaliser, no rescaling of o, and an
 * epilogue that multiplies o by it.
 *
 * The algebra. Let r be the row states, r' those after the tile, and let
 *   - the weights be u_j F(r'), where u_j depends neither on states nor on reductions,
 *   - the factor of o be F(r') / F(r).
 * Then o after every tile is F(r') times the sum of u_j v_j so far, and it is enough to multiply that sum by
 * F of the last r'. Products are compared factor by factor, as nodes. The u_j must be numbers that 16 bits
 * hold: F(r') may be of any size, so in f16 a u_j that is small is lost though the weight is not.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"
#include "gen/lower/ranges.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_FACTORS = 16 };

struct factors { /* their product, to the powers of 1 and -1 */
    int n;
    int node[MOST_FACTORS];
    int power[MOST_FACTORS];
    double constant;
    bool overflow;
};

struct deferral {
    struct ir *w;
    int own;      /* u_j */
    int factor;   /* F(r') */
    int of_state; /* F(r), and so of the last states, too */
};

static void take_factor(struct factors *f, int node, int power)
{
    for (int i = 0; i < f->n; i++)
        if (f->node[i] == node) {
            f->power[i] += power;
            return;
        }
    if (f->n == MOST_FACTORS) {
        f->overflow = true;
        return;
    }
    f->node[f->n] = node;
    f->power[f->n++] = power;
}

/* Adds the factors of a node to the power. */
static void find_factors(const struct ir *w, int node, int power, struct factors *out)
{
    int stack[MOST_FACTORS + 1] = {node};
    int to[MOST_FACTORS + 1] = {power};
    int n = 1;
    while (n > 0) {
        const struct ir_node *at = &w->node[stack[--n]];
        const int by = to[n];
        if (at->op == OP_CONST && at->value != 0) {
            out->constant *= by > 0 ? at->value : 1 / at->value;
        } else if ((at->op == OP_MUL || at->op == OP_DIV) && n + 2 <= MOST_FACTORS) {
            const bool divides = at->op == OP_DIV;
            stack[n] = at->arg[0];
            to[n++] = by;
            stack[n] = at->arg[1];
            to[n++] = divides ? -by : by;
        } else {
            take_factor(out, stack[n], by);
        }
    }
}

/* Whether a value changes from tile to tile: it is of a row state or of a reduction over keys. */
static bool is_of_states(const struct ir *w, int node)
{
    bool moves = w->node[node].phase > 0;
    for (int k = 0; k < w->n_states; k++)
        moves = moves || ir_depends_on(w, node, OP_PARAM, LEAF_STATE + k);
    return moves;
}

/* What a product is made of, but for the factors that do not change from tile to tile. */
static int moving_product(struct ir *w, const struct factors *f)
{
    int above = ir_const(w, 1, TYPE_F32);
    int below = above;
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < abs(f->power[i]) && is_of_states(w, f->node[i]); k++) {
            int *const to = f->power[i] > 0 ? &above : &below;
            *to = ir2(w, OP_MUL, *to, f->node[i]);
        }
    return ir2(w, OP_DIV, above, below);
}

/* The same product with 1 in the place of those that do; they stand nowhere else below it. */
static int resting_product(struct ir *w, int node, const struct factors *f)
{
    int from[MOST_FACTORS];
    int to[MOST_FACTORS];
    int n = 0;
    for (int i = 0; i < f->n; i++)
        if (is_of_states(w, f->node[i])) {
            from[n] = f->node[i];
            to[n++] = ir_const(w, 1, TYPE_F32);
        }
    return ir_substitute(w, node, from, to, n);
}

/* The weight as u_j F(r'). False: it is no such product. */
static bool split_weight(struct deferral *d)
{
    struct ir *w = d->w;
    struct factors f = {.constant = 1};
    find_factors(w, w->online.root[0], 1, &f);
    bool some = false;
    for (int i = 0; i < f.n; i++) {
        const bool moves = is_of_states(w, f.node[i]);
        if (moves && (w->node[f.node[i]].span & SPAN_KV))
            return false;
        some = some || moves;
    }
    if (!some || f.overflow)
        return false;
    d->own = resting_product(w, w->online.root[0], &f);
    d->factor = moving_product(w, &f);
    return true;
}

/* F reads states by way of r' alone, so that it can be asked of other states. */
static bool find_of_state(struct deferral *d)
{
    struct ir *w = d->w;
    int now[MAX_STATE];
    int before[MAX_STATE];
    int number[MAX_STATE];
    for (int k = 0; k < w->n_states; k++) {
        now[k] = w->online.root[2 + k];
        before[k] = ir_param(w, LEAF_STATE + k, (struct ir_at){0, 0});
        number[k] = ir_const(w, 3 + k, TYPE_F32);
    }
    d->of_state = ir_substitute(w, d->factor, now, before, w->n_states);
    return !is_of_states(w, ir_substitute(w, d->factor, now, number, w->n_states));
}

/* The factor of o is F(r') / F(r). */
static bool scale_fits(const struct deferral *d)
{
    struct factors f = {.constant = 1};
    find_factors(d->w, d->w->online.root[1], 1, &f);
    find_factors(d->w, d->of_state, 1, &f);
    find_factors(d->w, d->factor, -1, &f);
    for (int i = 0; i < f.n; i++)
        if (f.power[i] != 0)
            return false;
    return !f.overflow && fabs(f.constant - 1) < 1e-9;
}

/* bf16 reaches as far as fp32, of which no more than before is asked. In f16 every u_j must be a normal
   number: neither beyond the largest nor, where digits are lost and then all, below the smallest. In e4m3 a
   row's factor stays where it is, since it may be what bounds the weights. */
static bool is_held(const struct deferral *d, lathe_dtype dtype)
{
    static const double MOST_F16 = 32768;
    static const double LEAST_F16 = 0x1p-14;
    if (dtype == LATHE_F8_E4M3)
        return false;
    struct range *range = dtype != LATHE_F16 ? NULL : calloc((size_t)d->w->n_nodes, sizeof *range);
    if (!range)
        return dtype != LATHE_F16;
    ranges_of_all(d->w, d->own, range);
    const struct range own = range[d->own];
    free(range);
    return own.low >= -MOST_F16 && own.high <= MOST_F16 && (own.low >= LEAST_F16 || own.high <= -LEAST_F16);
}

bool defer_normaliser(struct ir *w, lathe_dtype dtype)
{
    struct deferral d = {.w = w};
    if (!split_weight(&d) || !find_of_state(&d) || !scale_fits(&d) || !is_held(&d, dtype) || w->failed)
        return false;
    w->online.root[0] = d.own;
    w->online.root[1] = ir_const(w, 1, TYPE_F32);
    w->epilogue.root[0] = ir2(w, OP_MUL, w->epilogue.root[0], d.of_state);
    return !w->failed;
}
