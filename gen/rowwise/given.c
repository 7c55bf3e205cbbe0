/*
 * given.c: results of the forward pass that a row-wise backward pass is given: each stands for its formula,
 * so that what it is made of is not reduced again. In: a pool in which formulas are made, a problem. Out:
 * formulas of parameters. Kernels (pass.c) and the host device (host_backward.c) take the same.
 */
#include "gen/arguments/problem.h"
#include "gen/rowwise/pass.h"

#include <stdio.h>
#include <stdlib.h>

static const struct ir_at NOWHERE = {0, 0};

/* ---- what is taken ------------------------------------------------------------------------------- */

/* The largest of values that are computed, such as rowmax(0.25 * x + b): its gradient goes to the elements
   that equal it, and computed once more, or elsewhere, none need equal what was rounded on the way. Elements
   that are read are exact. */
static bool is_compared(const struct ir *w, const struct ir_node *n)
{
    const bool extremum = n->op == OP_ROWMAX || n->op == OP_ROWMIN;
    return extremum && w->node[n->arg[0]].op != OP_PARAM && w->node[n->arg[0]].op != OP_LOAD;
}

/* A row of integers, which the dtype of rows may round: it is made once more. */
static bool is_whole(const struct ir *w, const struct ir_node *n)
{
    return n->type != TYPE_F32 || (n->op == OP_F32 && w->node[n->arg[0]].type != TYPE_F32);
}

static bool has_scans(const struct ir *w)
{
    bool any = false;
    for (int i = 0; i < w->n_nodes; i++)
        any |= ir_op_is_scan(w->node[i].op);
    return any;
}

/* Statistic k, if it is the logarithm of a sum. Kernels that scan along a row do not add it up once more
   where that is needed: there it is as if it were not given. */
static void take_log(struct ir *w, int k, int formula, struct row_given *g)
{
    struct log_sum *log = &g->log[g->n_logs];
    if (has_scans(w) || !log_sum_find(w, formula, log))
        return;
    log->given = ir_param(w, LEAF_FINAL + k, NOWHERE);
    log->norm = ir_param(w, LEAF_NORM + k, NOWHERE);
    log->final = k;
    g->n_logs += log_sum_term(w, log) >= 0;
}

/* Results that are given. One per row that needs no reduction is rather computed. */
void row_given_take(struct ir *w, const struct signature *sig, const struct problem *problem,
                    struct row_given *out)
{
    *out = (struct row_given){0};
    for (int i = 0; i < w->n_finals; i++) {
        const bool row = ir_result_is_row(w, i);
        const int formula = w->row.root[1 + i];
        const struct ir_node n = w->node[formula]; /* the pool may move */
        const int arg = lathe__arg_find(sig, w->final[i].name, 0);
        if (!problem_has(problem, arg) || w->final[i].total ||
            (row ? n.n_args == 0 || is_whole(w, &n) : n.phase == 0) || is_compared(w, &n))
            continue;
        if (problem->dtype[DTYPE_X] != LATHE_F32 && !row) /* f32 would be less exact */
            take_log(w, i, formula, out);
        out->from[out->n] = formula;
        out->to[out->n++] = ir_param(w, (row ? LEAF_SAVED : LEAF_FINAL) + i, NOWHERE);
    }
}

int row_given_use(struct ir *w, int node, const struct row_given *g)
{
    int root = ir_substitute(w, node, g->from, g->to, g->n);
    for (int i = 0; i < g->n_logs; i++)
        root = log_sum_use(w, root, &g->log[i]);
    return root;
}

/* ---- sums that are zero ---------------------------------------------------------------------------- */

/* The formulas as the spec has them, and as they are with what is given. */
struct formulas {
    const struct ir *spec;
    const struct ir *w;
    const struct row_given *given;
};

/* The formula that a parameter stands for: that of a result which is given. -1: of none. */
static int formula_of(const struct formulas *f, const struct ir_node *given)
{
    for (int k = 0; k < f->given->n && given->op == OP_PARAM; k++)
        if (f->spec->node[f->given->to[k]].index == given->index)
            return f->given->from[k];
    return -1;
}

/* Is node `b` of the formulas what node `a` of the spec is? */
static bool is_same(const struct formulas *f, int a, int b)
{
    enum { MOST = 32 };
    int left[MOST] = {a};
    int right[MOST] = {b};
    int n = 1;
    while (n > 0) {
        n--;
        const int at = left[n];
        const struct ir_node *x = &f->spec->node[at];
        const struct ir_node *y = &f->w->node[right[n]];
        if (formula_of(f, y) >= 0 && formula_of(f, y) == at)
            continue;
        if (x->op != y->op || x->index != y->index || x->n_args != y->n_args || x->type != y->type ||
            x->value < y->value || x->value > y->value || n + x->n_args > MOST)
            return false;
        for (int k = 0; k < x->n_args; k++) {
            left[n] = x->arg[k];
            right[n++] = y->arg[k];
        }
    }
    return true;
}

/* Does a node hold the mean of the row whose element is `element`, as the caller gave it? */
static bool is_given_mean(const struct formulas *f, int node, int element)
{
    const struct ir *spec = f->spec;
    const int formula = formula_of(f, &f->w->node[node]);
    if (formula < 0 || spec->node[formula].op != OP_DIV)
        return false;
    const struct ir_node *sum = &spec->node[spec->node[formula].arg[0]];
    const struct ir_node *n = &spec->node[spec->node[formula].arg[1]];
    while (n->op == OP_F32)
        n = &spec->node[n->arg[0]];
    return sum->op == OP_ROWSUM && n->op == OP_AT && n->index == AT_N && is_same(f, sum->arg[0], element);
}

void row_given_drop_sums(const struct ir *spec, struct ir *w, const struct row_given *g)
{
    const struct formulas f = {spec, w, g};
    const int n = w->n_nodes;
    for (int i = 0; i < n; i++) {
        const struct ir_node sum = w->node[i];
        const struct ir_node *of = sum.op == OP_ROWSUM ? &w->node[sum.arg[0]] : NULL;
        if (!of || of->op != OP_SUB || !is_given_mean(&f, of->arg[1], of->arg[0]))
            continue;
        int zero = ir_const(w, 0.0, TYPE_F32);
        if (zero >= 0 && !w->failed)
            w->node[i] = w->node[zero];
    }
}
