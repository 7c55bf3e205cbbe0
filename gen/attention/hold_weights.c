/*
 * hold_weights.c: weights that f16 has no room for. In: a lowered spec whose weights become f16. Out: the
 * same, or weights that are numbers of f16 whatever the size of their factors.
 *
 * Weights are rounded before they meet v. A softmax's are at most 1, and a row has some that are near it; but
 * a factor of them by key, as the scale of a value in a cache is, may be of any size: below 2^-14 digits are
 * lost, below 2^-25 the weight, and above 65504 it is infinite.
 *
 *  - A factor that is the same for all keys of a row is one of o, in f32, behind the sum (factors_to_end).
 *  - Where others are left, of a key or in the terms of a sum, a further row state h follows the size of a
 * row's largest weight so far, counted as o is: h' = max(h c, max |w_j| / 16), c the factor of o. Weights are
 * then w_j / h', o is multiplied by c h / h', and by the last h in the end. Parts of a row have h of their
 * own, and meet by the largest (weights_hold).
 *
 * Values of scores, as sigmoid(s) is one and exp(s - m), are left as they are: how large they are is the
 * spec's choice. A sigmoid or an exponential of the key alone is a factor as any other.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"
#include "gen/lower/rewrite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of h: rows of zeros divide by it, and by it the least normal number of f32 is that of f16. */
static const double LEAST_SIZE = 0x1p-112;
/* Weights are up to 16, so that h is below 2^126, from where on kernels' 1 / h is 0. */
static const double PART_OF_LARGEST = 0x1p-4;
/* Constants that a key chooses between are factors to be held where they are further from 1. */
static const double NEAR_ONE = 0x1p8;

static bool is_of_states(const struct ir *w, int node)
{
    bool moves = w->node[node].phase > 0;
    for (int k = 0; k < w->n_states; k++)
        moves = moves || ir_depends_on(w, node, OP_PARAM, LEAF_STATE + k);
    return moves;
}

/* ---- factors that all keys of a row have ------------------------------------------------------------ */

struct weight_factors {
    struct ir *w;
    int n;       /* nodes ahead of which it was made */
    bool *inner; /* is it a product, whose factors are looked at? */
    int *times;  /* to which power a node is a factor */
    int *made;   /* what an inner node, or a factor, has become */
    int qk;
    int score; /* a factor as it is: scale and score_mod bring it to the size that the spec wants */
};

static bool is_zero(const struct ir *w, int node)
{
    return w->node[node].op == OP_CONST && w->node[node].value == 0;
}

/* From the weight down: which nodes are factors, and to which power. */
static void find_product(struct weight_factors *p, int root)
{
    p->times[root] = 1;
    for (int i = root; i >= 0; i--) {
        const struct ir_node *n = &p->w->node[i];
        if (p->times[i] < 1 || !(n->span & SPAN_KV) || i == p->score)
            continue;
        p->inner[i] = true;
        if (n->op == OP_MUL) {
            p->times[n->arg[0]] += p->times[i];
            p->times[n->arg[1]] += p->times[i];
        } else if (n->op == OP_DIV) {
            p->times[n->arg[0]] += p->times[i];
            p->times[n->arg[1]] -= p->times[i];
        } else if (n->op == OP_NEG) {
            p->times[n->arg[0]] += p->times[i];
        } else if (n->op == OP_WHERE && is_zero(p->w, n->arg[2])) {
            p->times[n->arg[1]] += p->times[i];
        } else {
            p->inner[i] = false;
        }
    }
}

static int made_of(const struct weight_factors *p, int node)
{
    return p->made[node] >= 0 ? p->made[node] : node;
}

/* The weight with 1 in the place of the factors of a row, which are multiplied into `factor`. */
static int rest_of_product(struct weight_factors *p, int root, int *factor)
{
    struct ir *w = p->w;
    const int one = ir_const(w, 1, TYPE_F32);
    for (int i = 0; i <= root; i++) {
        const struct ir_node n = w->node[i];
        const int power = p->times[i];
        if (p->inner[i]) {
            int arg[IR_MAX_ARGS];
            for (int k = 0; k < n.n_args; k++)
                arg[k] = n.op == OP_WHERE && k != 1 ? n.arg[k] : made_of(p, n.arg[k]);
            p->made[i] = ir_again(w, &n, arg);
        } else if (power != 0 && !(n.span & SPAN_KV) && !is_of_states(w, i)) {
            for (int k = 0; k < abs(power); k++)
                *factor = ir2(w, power > 0 ? OP_MUL : OP_DIV, *factor, i);
            p->made[i] = one;
        }
    }
    return made_of(p, root);
}

static void move_factors(struct weight_factors *p)
{
    struct ir *w = p->w;
    const int root = w->online.root[0];
    int factor = ir_const(w, 1, TYPE_F32);
    const int one = factor;
    find_product(p, root);
    if (p->times[p->qk] != 0) /* the score is taken apart */
        return;
    const int rest = rest_of_product(p, root, &factor);
    if (factor == one || w->failed)
        return;
    w->online.root[0] = rest;
    w->epilogue.root[0] = ir2(w, OP_MUL, w->epilogue.root[0], factor);
}

static int score_of(struct ir *w)
{
    if (w->score.n_roots > 0)
        return w->score.root[0];
    return ir2(w, OP_MUL, ir_param_of(w, LEAF_QK), w->scale.root[0]);
}

void factors_to_end(struct ir *w)
{
    struct weight_factors p = {.w = w, .score = score_of(w), .qk = ir_param_of(w, LEAF_QK)};
    p.n = w->n_nodes;
    p.inner = calloc((size_t)p.n, sizeof *p.inner);
    p.times = calloc((size_t)p.n, sizeof *p.times);
    p.made = malloc((size_t)p.n * sizeof *p.made);
    w->failed |= !p.inner || !p.times || !p.made;
    for (int i = 0; i < p.n && p.made; i++)
        p.made[i] = -1;
    if (!w->failed)
        move_factors(&p);
    free(p.inner);
    free(p.times);
    free(p.made);
}

/* ---- factors of keys --------------------------------------------------------------------------------- */

/* A value within -1 .. 1, or an exponential. */
static bool is_bounded(const struct ir_node *n)
{
    static const uint8_t op[] = {OP_EXP, OP_EXP2, OP_TANH, OP_SIGMOID, OP_ERF, OP_NORMAL};
    return memchr(op, n->op, sizeof op) != NULL;
}

static bool is_far(const struct ir_node *n)
{
    const double size = fabs(n->value);
    return n->op == OP_CONST && size > 0 && (size > NEAR_ONE || size < 1 / NEAR_ONE);
}

/* Is a value multiplied by what a launch gives a row? In a sum or a maximum, from which it cannot go to the
   end. */
static bool is_scaled(const struct ir *w, const struct ir_node *n)
{
    bool found = false;
    for (int k = 0; (n->op == OP_MUL || n->op == OP_DIV) && k < n->n_args; k++)
        found |= !(w->node[n->arg[k]].span & SPAN_KV) && !is_of_states(w, n->arg[k]) &&
                 (ir_depends_on(w, n->arg[k], OP_LOAD, -1) || ir_depends_on(w, n->arg[k], OP_SCALAR, -1));
    return found;
}

/* Of a node below a weight: is it a value of its key or pair, or one times a factor that any may be? */
static bool is_of_key(const struct ir *w, const struct ir_node *n)
{
    bool found = n->op == OP_LOAD || n->op == OP_AT || is_scaled(w, n);
    for (int k = 1; n->op == OP_WHERE && k < n->n_args; k++)
        found |= is_far(&w->node[n->arg[k]]);
    return found;
}

/* The score, the product that it is made of, and what is bounded and made of them: sizes are the spec's. */
static bool is_of_score(const struct ir *w, int node, int score)
{
    const struct ir_node *n = &w->node[node];
    return node == score || n->type == TYPE_BOOL ||
           (is_bounded(n) && (ir_depends_on(w, node, OP_PARAM, LEAF_QK) || is_of_states(w, node)));
}

/* Does a weight have, beside its score, a value of its key or pair? */
static bool has_factor_of_key(struct ir *w)
{
    bool found = false;
    const int score = score_of(w);
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    w->failed |= !used;
    if (!used)
        return false;
    used[w->online.root[0]] = true;
    for (int i = w->online.root[0]; i >= 0 && !found; i--) {
        const struct ir_node *n = &w->node[i];
        if (!used[i] || !(n->span & SPAN_KV) || is_of_score(w, i, score))
            continue;
        found = is_of_key(w, n);
        for (int k = n->op == OP_WHERE; k < n->n_args; k++)
            used[n->arg[k]] = true;
    }
    free(used);
    return found;
}

static int at_least(struct ir *w, int size)
{
    return ir2(w, OP_MAX, size, ir_const(w, LEAST_SIZE, TYPE_F32));
}

/* Of parts: each one's o by its own h, over the largest of them. */
static void hold_parts(struct ir *w, int state)
{
    const int own = ir2(w, OP_MUL, w->combine.root[0], ir_param_of(w, LEAF_SPLIT_STATE + state));
    const int size = at_least(w, ir1(w, OP_SPLITMAX, own));
    w->combine.root[0] = ir2(w, OP_DIV, own, size);
    w->combine.root[w->combine.n_roots++] = size;
}

static void hold(struct ir *w, int state)
{
    const int h = ir_param_of(w, LEAF_STATE + state);
    const int weight = w->online.root[0];
    const int before = ir2(w, OP_MUL, h, w->online.root[1]);
    const int largest = ir1(w, OP_ROWMAX, ir1(w, OP_ABS, weight));
    const int here = ir2(w, OP_MUL, largest, ir_const(w, PART_OF_LARGEST, TYPE_F32));
    const int now = at_least(w, ir2(w, OP_MAX, before, here));
    const int inverse = ir2(w, OP_DIV, ir_const(w, 1, TYPE_F32), now);
    w->online.root[0] = ir2(w, OP_MUL, weight, inverse);
    w->online.root[1] = ir2(w, OP_MUL, before, inverse);
    w->online.root[w->online.n_roots++] = now;
    w->epilogue.root[0] = ir2(w, OP_MUL, w->epilogue.root[0], h);
    w->state[w->n_states] = (struct scale_name){.init = LEAST_SIZE};
    snprintf(w->state[w->n_states].name, sizeof w->state[w->n_states].name, "largest_weight");
    w->n_states++;
    if (w->combine.n_roots > 0)
        hold_parts(w, state);
}

void weights_hold(struct ir *w)
{
    if (w->failed || !has_factor_of_key(w))
        return;
    if (w->n_states == MAX_STATE) {
        w->lowered.rescale.unheld = true;
        return;
    }
    hold(w, w->n_states);
    w->lowered.rescale.path = ROWS_EXACT;
    w->lowered.rescale.held = true;
}
