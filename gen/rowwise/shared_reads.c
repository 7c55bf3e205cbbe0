/*
 * shared_reads.c: what a row-wise pass reads of inputs, and adds to their gradients, at a place that the row
 * and groups of neighbouring columns tell: weight(at.row % groups, at.i // 512). Rows of one place share
 * those values, so a kernel may hold them, and sums, over all of them. In: lowered formulas. Out: whether a
 * pass is of that kind, and what tells a row's place.
 */
#include "gen/rowwise/pass.h"

/* Is it at.i // u, u the same everywhere? It grows or falls along a vector, so equal ends are all equal. */
static bool is_group_of_columns(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    if (n->op != OP_IDIV || n->type != TYPE_I32)
        return false;
    const struct ir_node *column = &w->node[n->arg[0]];
    const struct ir_node *by = &w->node[n->arg[1]];
    return column->op == OP_AT && column->index == AT_COL && by->span == 0 && by->phase == 0;
}

static bool is_of_row(const struct ir *w, int node)
{
    return (w->node[node].span & ~SPAN_Q) == 0 && w->node[node].phase == 0;
}

bool row_is_cell(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    int groups = 0;
    if (n->op != OP_LOAD || n->phase > 0 || n->span != (SPAN_Q | SPAN_KV) ||
        w->input[n->index].rows != INPUT_TABLE)
        return false;
    for (int k = 0; k < n->n_args; k++) {
        const bool group = is_group_of_columns(w, n->arg[k]);
        groups += group;
        if (!group && !is_of_row(w, n->arg[k]))
            return false;
    }
    return groups > 0;
}

bool row_site_is_steady(const struct ir *w, const struct row_site *site)
{
    for (int k = 0; k < site->n_index; k++) {
        const int node = w->row.root[site->index[k]];
        const bool group = k + 1 == site->n_index && is_group_of_columns(w, node);
        if (!group && (w->node[node].span & SPAN_KV))
            return false;
    }
    return true;
}

static bool add_key(const struct ir *w, int node, struct row_places *places)
{
    if (!is_of_row(w, node)) /* a group of columns */
        return is_group_of_columns(w, node);
    if (w->node[node].span == 0 || w->node[node].type != TYPE_I32)
        return w->node[node].span == 0;
    for (int k = 0; k < places->n_keys; k++)
        if (places->key[k] == node)
            return true;
    if (places->n_keys == ROW_KEYS)
        return false;
    places->key[places->n_keys++] = node;
    return true;
}

bool row_pass_places(const struct row_pass *pass, struct row_places *places)
{
    const struct ir *w = pass->ir;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    bool ok = true;
    *places = (struct row_places){0};
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && ok; i++) {
        if (!used[i] || !row_is_cell(w, i))
            continue;
        places->n_cells++;
        for (int k = 0; k < w->node[i].n_args; k++)
            ok &= add_key(w, w->node[i].arg[k], places);
    }
    for (int i = 0; i < pass->n_sites && ok; i++) {
        const struct row_site *site = &pass->site[i];
        if (site->form != SITE_SCATTER)
            continue;
        ok = row_site_is_steady(w, site);
        for (int k = 0; k < site->n_index; k++)
            ok &= add_key(w, w->row.root[site->index[k]], places);
    }
    return ok && (places->n_cells > 0 || pass->n_scatters > 0);
}
