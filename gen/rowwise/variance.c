/*
 * variance.c: a row's sum of squared distances from its mean, made in the pass that makes the mean. In: the
 * lowered formulas of rows. Out: the same pool, where rowsum((v - m) * (v - m)) with m = rowsum(v) / n is a
 * rowsum of v whose index is SUM_SPREAD: the kernel joins the spreads of parts of the row, each about a mean
 * of its own, so that nothing cancels and no second pass waits for the first.
 */
#include "gen/rowwise/pass.h"

#include <string.h>

static bool is_length(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    while (n->op == OP_F32)
        n = &w->node[n->arg[0]];
    return n->op == OP_AT && n->index == AT_N;
}

/* The sum of the row's v of which `node` is the mean; -1: of none. */
static int sum_of_mean(const struct ir *w, int node, int v)
{
    const struct ir_node *n = &w->node[node];
    if (n->op != OP_DIV || !is_length(w, n->arg[1]))
        return -1;
    const struct ir_node *sum = &w->node[n->arg[0]];
    return sum->op == OP_ROWSUM && sum->index == SUM_PLAIN && sum->arg[0] == v ? n->arg[0] : -1;
}

/* What a sum adds up the squared distances of from its mean, and the sum which that is made of; -1: another
 * sum. */
static int variance_of(const struct ir *w, int node, int *plain)
{
    const struct ir_node *sum = &w->node[node];
    if (sum->op != OP_ROWSUM || sum->index != SUM_PLAIN)
        return -1;
    const struct ir_node *square = &w->node[sum->arg[0]];
    if (square->op != OP_MUL || square->arg[0] != square->arg[1])
        return -1;
    const struct ir_node *apart = &w->node[square->arg[0]];
    if (apart->op != OP_SUB)
        return -1;
    *plain = sum_of_mean(w, apart->arg[1], apart->arg[0]);
    return *plain >= 0 ? apart->arg[0] : -1;
}

int variance_sum(const struct ir *w, int node)
{
    const struct ir_node *spread = &w->node[node];
    if (spread->op != OP_ROWSUM || spread->index != SUM_SPREAD)
        return -1;
    for (int i = 0; i < node; i++)
        if (w->node[i].op == OP_ROWSUM && w->node[i].index == SUM_PLAIN &&
            w->node[i].arg[0] == spread->arg[0])
            return i;
    return -1;
}

static void count_phases(struct ir *w)
{
    for (int i = 0; i < w->n_nodes; i++) {
        struct ir_node *n = &w->node[i];
        int phase = 0;
        for (int k = 0; k < n->n_args; k++)
            phase = w->node[n->arg[k]].phase > phase ? w->node[n->arg[k]].phase : phase;
        n->phase = (uint8_t)(phase + ir_op_is_reduction(n->op));
    }
}

/* What is needed if sums that serve are made of v itself. */
static void mark_others(const struct ir *w, bool *used)
{
    memset(used, 0, (size_t)w->n_nodes * sizeof *used);
    for (int k = 0; k < w->row.n_roots; k++)
        used[w->row.root[k]] = true;
    for (int i = w->n_nodes - 1; i >= 0; i--) {
        int plain;
        const int v = used[i] ? variance_of(w, i, &plain) : -1;
        for (int k = 0; used[i] && v < 0 && k < w->node[i].n_args; k++)
            used[w->node[i].arg[k]] = true;
        if (v >= 0)
            used[v] = true;
    }
}

/* What a node would add up the squared distances of, if its sum were taken; -1: it stays as it is. */
static int would_take(const struct ir *w, const bool *used, int node)
{
    int plain;
    const int v = used[node] ? variance_of(w, node, &plain) : -1;
    return v >= 0 && used[plain] ? v : -1;
}

int variance_passes(const struct ir *w)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of */
    uint8_t phase[IR_MAX_NODES];
    bool any = false;
    int passes = 0;
    mark_others(w, used);
    for (int i = 0; i < w->n_nodes; i++) {
        const struct ir_node *n = &w->node[i];
        const int v = would_take(w, used, i);
        phase[i] = v >= 0 ? phase[v] : 0;
        for (int k = 0; v < 0 && k < n->n_args; k++)
            phase[i] = phase[n->arg[k]] > phase[i] ? phase[n->arg[k]] : phase[i];
        phase[i] = (uint8_t)(phase[i] + ir_op_is_reduction(n->op));
        passes = used[i] && phase[i] > passes ? phase[i] : passes;
        any |= v >= 0;
    }
    return any ? passes : -1;
}

bool variance_take(struct ir *w)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of */
    bool any = false;
    mark_others(w, used);
    for (int i = 0; i < w->n_nodes; i++) {
        const int v = would_take(w, used, i);
        if (v < 0)
            continue;
        w->node[i].arg[0] = v; /* in its place: from here on no formula is made or looked for */
        w->node[i].index = SUM_SPREAD;
        any = true;
    }
    if (any)
        count_phases(w);
    return any;
}
