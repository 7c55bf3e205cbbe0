/*
 * back_pair.c: what a pair of attention's backward pass reads of its row, and what its kernel is handed. In:
 * lowered formulas (backward.h). Out: roots, nodes and numbers; the plan asks for them before there is a
 * text, the emitters name the values by them.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/backward.h"

int back_value_roots(const struct backward *b, int *root)
{
    int n = 0;
    root[n++] = b->weight;
    root[n++] = b->ds;
    for (int i = 0; i < b->pair.n; i++)
        root[n++] = b->pair.item[i].value;
    return n;
}

bool back_collect_values(struct emitter *e, struct field_set *set, const int *root, int n)
{
    *set = (struct field_set){.type = "back_row", .object = "b"};
    bool ok = fields_collect(e, set, CLASS_DYNAMIC, root, n);
    ir_mark(e->w, root, n, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        for (int k = 0; e->mark[i] && e->class_of[i] == CLASS_ELEMENT && k < e->w->node[i].n_args; k++) {
            const int a = e->w->node[i].arg[k];
            if (e->w->node[a].op == OP_PARAM && e->class_of[a] == CLASS_DYNAMIC)
                ok &= field_add(e, set, a);
        }
    return ok;
}

int back_handed_weight(const struct emitter *e, const int *root, int n)
{
    const int weight = e->back->weight;
    if (e->w->node[weight].op < OP_LOAD)
        return -1;
    if (e->back->pair.n > 0)
        return weight;
    ir_mark(e->w, root, n, e->mark);
    for (int i = weight + 1; i < e->w->n_nodes; i++)
        for (int k = 0; e->mark[i] && k < e->w->node[i].n_args; k++)
            if (e->w->node[i].arg[k] == weight && e->w->node[i].op != OP_MUL)
                return -1;
    return weight;
}

static bool is_norm(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    return n->op == OP_PARAM && n->index >= LEAF_NORM && n->index < LEAF_ROW0;
}

int back_seldom_norm(const struct emitter *e, int *rest)
{
    const struct ir_node *n = &e->w->node[e->back->weight];
    int root[BACKWARD_ROOTS_MAX];
    const int n_roots = back_value_roots(e->back, root);
    const int side = n->op == OP_MUL && is_norm(e->w, n->arg[1]);
    if (n->op != OP_MUL || !is_norm(e->w, n->arg[side]) || back_handed_weight(e, root + 1, n_roots - 1) < 0)
        return -1;
    *rest = n->arg[1 - side];
    const int more[] = {*rest}; /* does it look at norms, too? */
    ir_mark(e->w, more, 1, e->mark);
    bool again = e->mark[n->arg[side]];
    ir_mark_until(e->w, root + 1, n_roots - 1, &e->back->weight, 1, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        again |= e->mark[i] && i != e->back->weight && is_norm(e->w, i);
    return again ? -1 : n->arg[side];
}

bool back_has_norm(const struct emitter *e)
{
    int rest;
    return back_seldom_norm(e, &rest) >= 0;
}

bool back_collect_row(struct emitter *e, struct field_set *set)
{
    int root[BACKWARD_ROOTS_MAX];
    int rest;
    const bool ok = back_collect_values(e, set, root, back_value_roots(e->back, root));
    const int norm = back_seldom_norm(e, &rest);
    int n = 0;
    for (int i = 0; i < set->n; i++)
        if (set->node[i] != norm)
            set->node[n++] = set->node[i];
    set->n = n;
    return ok;
}

int back_find_diagonal(const struct emitter *e)
{
    int root[BACKWARD_ROOTS_MAX];
    int n = back_value_roots(e->back, root);
    return diagonal_of(e->w, root, n);
}

int back_row_count(struct emitter *e)
{
    struct field_set set;
    return back_collect_row(e, &set) ? set.n : -1;
}

static bool slope_wants_score(const struct emitter *e)
{
    int root[BACKWARD_ROOTS_MAX];
    const int n = back_value_roots(e->back, root);
    int stop = back_handed_weight(e, root + 1, n - 1);
    ir_mark_until(e->w, root + 1, n - 1, &stop, stop >= 0 ? 1 : 0, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && e->w->node[i].op == OP_PARAM && e->w->node[i].index == LEAF_QK)
            return true;
    return false;
}

static bool mask_reads_data(const struct emitter *e)
{
    ir_mark(e->w, e->w->mask.root, e->w->mask.n_roots, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && e->w->node[i].op == OP_LOAD)
            return true;
    return false;
}

lathe_status backward_measure(const struct ir *w, const struct signature *sig, const struct problem *problem,
                              const struct backward *b, struct pair_needs *out)
{
    struct emitter e;
    struct field_set set = {0};
    *out = (struct pair_needs){0};
    const bool open = emitter_open(&e, w, sig, problem, NULL);
    e.back = b;
    const bool ok = open && back_collect_row(&e, &set);
    if (ok) {
        out->rows = set.n;
        out->norm = back_has_norm(&e);
        out->diag = back_find_diagonal(&e) >= 0;
        out->more = b->pair.n > 0 || slope_wants_score(&e) || mask_reads_data(&e);
        site_tables_make(w, problem, &b->pair, &out->tables);
    }
    emitter_close(&e);
    return ok ? LATHE_OK : open ? LATHE_UNSUPPORTED : LATHE_MEMORY;
}
