/*
 * log_sum.c: the logarithm of a row's sum of exponentials, given by the caller of a backward pass. In:
 * formulas of a pass, and lse = m + log(l) where m is a stabiliser and l = sum exp(x - m), say. Out: the
 * formulas without m and l, so that the row is not reduced for them again.
 *
 * What does not change when m is moved to m + t, whereby l becomes l exp(-t), holds for any m, and so for lse
 * itself; l is then 1: exp(x - m) / l becomes exp(x - lse).
 */
#include "lower.h"

#include <stdlib.h>

#include "row_pass.h"

bool log_sum_find(const struct ir *w, int formula, struct log_sum *out)
{
    const struct ir_node *n = &w->node[formula];
    for (int k = 0; n->op == OP_ADD && k < 2; k++) {
        const struct ir_node *log = &w->node[n->arg[k]];
        if (log->op != OP_LOG || w->node[n->arg[1 - k]].op != OP_DETACH)
            continue;
        *out = (struct log_sum){.stabiliser = n->arg[1 - k], .sum = log->arg[0]};
        return true;
    }
    return false;
}

static bool is_invariant(const struct ir *w, int node, const struct log_sum *s)
{
    static const double none[SHIFT_MOVES];
    static const double back[SHIFT_MOVES] = {-1};
    const int root[2] = {node, s->sum};
    struct shift *law = calloc((size_t)w->n_nodes, sizeof *law);
    bool *given = calloc((size_t)w->n_nodes, sizeof *given);
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool ok = false;
    if (law && given && used) {
        given[s->stabiliser] = true;
        law[s->stabiliser] = (struct shift){.known = true, .add = {1}};
        shift_laws(w, root, 2, given, law, used);
        ok = shift_is_free(&law[node]) && shift_has_law(&law[s->sum], none, back);
    }
    free(law);
    free(given);
    free(used);
    return ok;
}

int log_sum_use(struct ir *w, int node, const struct log_sum *s)
{
    if (w->failed || !is_invariant(w, node, s))
        return node;
    const int from[2] = {s->stabiliser, s->sum};
    const int to[2] = {s->given, ir_const(w, 1.0, TYPE_F32)};
    return ir_substitute(w, node, from, to, 2);
}
