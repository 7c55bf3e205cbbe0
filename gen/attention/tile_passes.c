/*
 * tile_passes.c: how an online function runs over the elements of a tile. In: a lowered spec. Out: its
 * reductions by pass, what an element holds between passes, which row sums can stay per thread.
 *
 * An element is one register. Before pass 0 it is the product <q, k>, pass 0 turns it into `carry`, pass
 * `store_pass` turns it into the weight. The carry is the first of: the operand of the first reduction, the
 * whole score, the product itself, from which every later use can be computed. A row sum that only joins
 * a state linearly (l = l a + rowsum(p)) is not needed before the end of the row: each thread keeps its part.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"

#include <stdlib.h>
#include <string.h>

/* Can `root` be computed per element when `given` is what the element holds? Row values are always at
   hand, so the walk stops at them. */
static bool follows_from(const struct ir *w, int root, int given, bool *scratch)
{
    memset(scratch, 0, (size_t)w->n_nodes * sizeof *scratch);
    scratch[root] = true;
    for (int i = root; i >= 0; i--) {
        if (!scratch[i] || i == given || !(w->node[i].span & SPAN_KV))
            continue;
        if (w->node[i].op == OP_PARAM && w->node[i].index == LEAF_QK)
            return false;
        for (int k = 0; k < w->node[i].n_args; k++)
            scratch[w->node[i].arg[k]] = true;
    }
    return true;
}

static bool collect_reductions(const struct ir *w, struct schedule *s, bool *used)
{
    ir_mark(w, w->online.root, w->online.n_roots, used);
    if (!phases_find(w, used, &s->reductions))
        return false;
    if (s->reductions.passes == 0)
        s->reductions.passes = 1;
    return true;
}

/* Uses of a node among the online function's nodes and roots. */
static int count_uses(const struct ir *w, int node, const bool *used)
{
    int n = 0;
    for (int i = 0; i < w->n_nodes; i++)
        for (int k = 0; used[i] && k < w->node[i].n_args; k++)
            n += w->node[i].arg[k] == node;
    for (int i = 0; i < w->online.n_roots; i++)
        n += w->online.root[i] == node;
    return n;
}

static bool is_state(const struct ir *w, int node, int k)
{
    return w->node[node].op == OP_PARAM && w->node[node].index == LEAF_STATE + k;
}

/* root = state_k + rowsum or state_k * f + rowsum, with every part used once: the number of the reduction. */
static int lazy_reduction(const struct ir *w, const struct schedule *s, int k, const bool *used)
{
    int root = w->online.root[2 + k];
    const struct ir_node *sum = &w->node[root];
    for (int side = 0; sum->op == OP_ADD && side < 2; side++) {
        int rest = sum->arg[1 - side];
        const struct ir_node *product = &w->node[rest];
        int state = rest;
        if (product->op == OP_MUL)
            state = is_state(w, product->arg[0], k) ? product->arg[0] : product->arg[1];
        if (!is_state(w, state, k) || count_uses(w, state, used) != 1 ||
            count_uses(w, sum->arg[side], used) != 1 || count_uses(w, root, used) != 1)
            continue;
        for (int i = 0; i < s->reductions.n; i++)
            if (s->reductions.node[i] == sum->arg[side] && w->node[sum->arg[side]].op == OP_ROWSUM)
                return i;
    }
    return -1;
}

static void find_lazy(const struct ir *w, struct schedule *s, const bool *used)
{
    memset(s->lazy, 0, sizeof s->lazy);
    memset(s->state_lazy, 0, sizeof s->state_lazy);
    for (int k = 0; k < w->n_states; k++) {
        int i = lazy_reduction(w, s, k, used);
        if (i < 0)
            continue;
        s->lazy[i] = true;
        s->state_lazy[k] = true;
    }
}

/* Every element value that passes after pass 0 need follows from `carry`. */
static bool carry_serves(const struct ir *w, const struct schedule *s, int carry, bool *scratch)
{
    if (!follows_from(w, s->weight, carry, scratch))
        return false;
    for (int i = 0; i < s->reductions.n; i++)
        if (!follows_from(w, w->node[s->reductions.node[i]].arg[0], carry, scratch))
            return false;
    return true;
}

static int product_leaf(struct ir *w)
{
    return ir_param(w, LEAF_QK, (struct ir_at){0, 0});
}

static void choose_carry(struct ir *w, struct schedule *s, bool *scratch)
{
    int candidate[3];
    int n = 0;
    if (s->reductions.n > 0)
        candidate[n++] = w->node[s->reductions.node[0]].arg[0];
    if (w->score.n_roots > 0)
        candidate[n++] = w->score.root[0];
    candidate[n] = product_leaf(w);
    int i = 0;
    while (i < n && !carry_serves(w, s, candidate[i], scratch))
        i++;
    s->carry = candidate[i];
}

/* The weight replaces the carry as soon as it is known, if later reductions follow from it. */
static void choose_store_pass(const struct ir *w, struct schedule *s, bool *scratch)
{
    int phase = w->node[s->weight].phase;
    bool ok = true;
    for (int i = 0; i < s->reductions.n; i++)
        if (s->reductions.pass[i] >= phase)
            ok &= follows_from(w, w->node[s->reductions.node[i]].arg[0], s->weight, scratch);
    if (!ok) {
        s->reductions.passes++;
        s->store_pass = s->reductions.passes - 1;
        return;
    }
    s->store_pass = phase;
    if (phase >= s->reductions.passes)
        s->reductions.passes = phase + 1;
}

bool schedule_kept(struct ir *w, struct schedule *s)
{
    const struct ir_fn online = w->online;
    w->online = w->lowered.rescale.kept;
    bool ok = schedule_online(w, s);
    w->online = online;
    return ok;
}

bool schedule_online(struct ir *w, struct schedule *s)
{
    product_leaf(w); /* so that the pool does not grow below */
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool *scratch = calloc((size_t)w->n_nodes, sizeof *scratch);
    w->failed |= !used || !scratch;
    bool ok = used && scratch && collect_reductions(w, s, used);
    if (ok) {
        s->weight = w->online.root[0];
        find_lazy(w, s, used);
        choose_carry(w, s, scratch);
        choose_store_pass(w, s, scratch);
        s->diag = diagonal_of(w, w->online.root, w->online.n_roots);
    }
    free(used);
    free(scratch);
    return ok;
}
