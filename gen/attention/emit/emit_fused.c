/*
 * emit_fused.c: what a step leaves to the kernel, which does it for all elements of a tile together or on the
 * way: weights 1 / (1 + exp2(x)), the maximum of weights max(x, 0), scores a tanh(b <q, k>). In: a step with
 * its schedule. Out: the nodes that its formulas take or give in place of those, and the constants of struct
 * variant that say so.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/traits.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdlib.h>

static bool is_one(const struct ir *w, int node)
{
    return w->node[node].op == OP_CONST && w->node[node].value == 1;
}

/* x of a weight 1 / (1 + exp2(x)), which the pass that gives it leaves to all elements together; -1: it is
 * another one. */
static int logistic_of(const struct ir *w, const struct step *step)
{
    const struct ir_node *n = &w->node[step->s.weight];
    /* A pass behind the one that gives the weight would take x for it. */
    if (n->op != OP_DIV || !is_one(w, n->arg[0]) || step->s.weight == step->s.carry ||
        step->s.store_pass != step->s.reductions.passes - 1)
        return -1;
    const struct ir_node *sum = &w->node[n->arg[1]];
    for (int k = 0; k < 2 && sum->op == OP_ADD; k++)
        if (is_one(w, sum->arg[k]) && w->node[sum->arg[1 - k]].op == OP_EXP2)
            return w->node[sum->arg[1 - k]].arg[0];
    return -1;
}

/* x of a weight max(x, 0) that nothing but the product with v takes: the conversion to 16 bits has that
 * maximum for nothing. -1: it is another one. */
static int relu_of(const struct ir *w, const struct step *step)
{
    const struct schedule *s = &step->s;
    if (w->node[s->weight].op != OP_RELU || s->weight == s->carry ||
        s->store_pass != s->reductions.passes - 1)
        return -1;
    for (int i = 0; i < s->reductions.n; i++)
        if (s->reductions.pass[i] >= s->store_pass)
            return -1;
    return w->node[s->weight].arg[0];
}

/* The constant by which a product of two nodes multiplies `node`, which is one of them; 0: it is none. */
static double constant_beside(const struct ir *w, const struct ir_node *n, int node)
{
    if (n->op != OP_MUL || (n->arg[0] != node && n->arg[1] != node))
        return 0;
    const struct ir_node *other = &w->node[n->arg[n->arg[0] == node ? 1 : 0]];
    return other->op == OP_CONST ? other->value : 0;
}

/* The only node among those used that takes `node`; -1: there are several, or none. */
static int only_user(const struct ir *w, const bool *used, int node)
{
    int user = -1;
    for (int i = 0; i < w->n_nodes; i++)
        for (int k = 0; used[i] && k < w->node[i].n_args; k++)
            if (w->node[i].arg[k] == node) {
                if (user >= 0 && user != i)
                    return -1;
                user = i;
            }
    return user;
}

/* The node a tanh(b <q, k>), where nothing else takes the product or what is made of it on the way; -1: there
 * is none. Its a and b go into the step. */
static int find_cap(const struct ir *w, struct step *step, const bool *used, int product)
{
    const int scaled = only_user(w, used, product);
    step->cap_scale = scaled >= 0 ? constant_beside(w, &w->node[scaled], product) : 0;
    const int tanh = step->cap_scale != 0 ? only_user(w, used, scaled) : -1;
    if (tanh < 0 || w->node[tanh].op != OP_TANH)
        return -1;
    const int times = only_user(w, used, tanh);
    step->cap_factor = times >= 0 ? constant_beside(w, &w->node[times], tanh) : 0;
    const int node = step->cap_factor != 0 ? times : tanh;
    step->cap_factor = step->cap_factor != 0 ? step->cap_factor : 1;
    const struct schedule *s = &step->s;
    const bool between = s->carry == product || s->carry == scaled || s->weight == scaled ||
                         (node != tanh && (s->carry == tanh || s->weight == tanh));
    return between ? -1 : node;
}

static int capped_of(struct ir *w, struct step *step)
{
    const int product = ir_param(w, LEAF_QK, (struct ir_at){0, 0});
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    int node = -1;
    if (used) {
        ir_mark(w, step->fn.root, step->fn.n_roots, used);
        node = find_cap(w, step, used, product);
    }
    free(used);
    return node;
}

/* The portable kernel, and those of the backward pass, have formulas of elements alone but for the logistic
 * ones, which are exact enough for 16 bits. Which form capped scores and logistic weights have is decided by
 * all elements of a warp, and those behind the end of a sequence may be the next one's: not where results may
 * not depend on the batch.
 */
void find_fused(struct attention *a, const struct plan *plan, struct step *step)
{
    const bool fuses = attention_forward_traits(plan)->fuses;
    const bool alone = a->e->problem->deterministic == DETERMINISTIC_BATCH;
    const bool exact = alone || a->e->problem->dtype[DTYPE_Q] == LATHE_F32;
    step->logistic = exact ? -1 : logistic_of(a->e->w, step);
    step->relu = fuses ? relu_of(a->e->w, step) : -1;
    step->capped = fuses && !alone ? capped_of(a->e->w, step) : -1;
}

void emit_fused(struct attention *a, const struct step *step)
{
    char scale[64];
    char factor[64];
    text_add(a->e->out, "    static constexpr bool LOGISTIC = %s, RELU_WAITS = %s, CAPPED = %s;\n",
             yes(step->logistic >= 0), yes(step->relu >= 0), yes(step->capped >= 0));
    if (step->capped < 0)
        return;
    float_text(step->cap_scale, scale, sizeof scale);
    float_text(step->cap_factor, factor, sizeof factor);
    text_add(a->e->out, "    static constexpr float CAP_SCALE = %s, CAP_FACTOR = %s;\n", scale, factor);
}
