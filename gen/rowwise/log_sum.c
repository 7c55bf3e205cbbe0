/*
 * log_sum.c: the logarithm of a row's sum of exponentials, given by the caller of a backward pass. In:
 * formulas of a pass, and lse = m + log(l) where m is a stabiliser and l = sum exp(x - m), say. Out: the
 * formulas without m and l, so that the row is not reduced for them again.
 *
 * What does not change when m is moved to m + t, whereby l becomes l exp(-t), holds for any m, and so for lse
 * itself; l is then 1: exp(x - m) / l becomes exp(x - lse).
 *
 * But lse is given as f32. Of a row of -1e9 alone it is -1e9, log(l) is lost, and l is the row's length. So a
 * norm stands for l: sum exp(x - lse) where lse is large, else 1. A lse that is far from what these elements
 * add up to is that of more elements than these (a row that several devices share), and stands as it is.
 */
#include "gen/rowwise/pass.h"
#include "gen/lower/laws.h"

#include <stdlib.h>

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
    const int to[2] = {s->given, s->norm};
    return ir_substitute(w, node, from, to, 2);
}

/* The sum where the stabiliser is what is given, and in it the one sum over elements that it is made of: -1
   where there is no such one, or another reduction, or a scan. */
static int find_elements(struct ir *w, const struct log_sum *s, int *sum)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    int found = -1;
    *sum = ir_substitute(w, s->sum, &s->stabiliser, &s->given, 1);
    ir_mark(w, sum, 1, used);
    for (int i = 0; i <= *sum; i++) {
        if (!used[i] || !(ir_op_is_reduction(w->node[i].op) || ir_op_is_scan(w->node[i].op)))
            continue;
        if (w->node[i].op != OP_ROWSUM || found >= 0)
            return -1;
        found = i;
    }
    return found;
}

int log_sum_term(struct ir *w, const struct log_sum *s)
{
    int sum = -1;
    const int elements = find_elements(w, s, &sum);
    return elements < 0 || w->failed ? -1 : w->node[elements].arg[0];
}

int log_sum_norm(struct ir *w, const struct log_sum *s, int added, lathe_dtype rows)
{
    /* f32 has 2^-12 of a weight left at 4096: as much as f16 rounds. Beside f64 rows a sum is f64, too. */
    const double large = rows == LATHE_F64 ? 256 : 4096;
    /* Of what is given: what rounding may make of it on different ways. */
    const double same = rows == LATHE_F64 ? 0x1p-49 : 0x1p-20;
    int sum = -1;
    const int elements = find_elements(w, s, &sum);
    const int mine = ir_substitute(w, sum, &elements, &added, 1);
    const int one = ir_const(w, 1.0, TYPE_F32);
    const int size = ir1(w, OP_ABS, s->given);
    const int off = ir1(w, OP_ABS, ir1(w, OP_LOG, mine));
    const int is_mine = ir2(w, OP_LT, off, ir2(w, OP_MUL, size, ir_const(w, same, TYPE_F32)));
    const int norm = ir3(w, OP_WHERE, is_mine, mine, one);
    return ir3(w, OP_WHERE, ir2(w, OP_GT, size, ir_const(w, large, TYPE_F32)), norm, one);
}
