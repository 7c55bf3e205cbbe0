/*
 * emit_shared_reads.c: how the elements of a row-wise kernel share work. In: a collected
 * row_emitter. Out: parts of struct `variant`.
 *
 * Cells: reads by row and by a group of neighbouring columns, weight(at.row % groups, at.i // 512). They
 * stand in struct col as g0, g1, ..., and make_cells reads them once for all columns of a vector that are in
 * one group.
 *
 * Guards: reductions to which few vectors add, where(eq(at.i, target), x, 0), or which only a choice reads
 * that the launch makes, where(gt(p.smoothing, 0), rowsum(x), 0). some<R>() says whether a vector may add
 * anything.
 *
 * Maxima and minima of elements as they were loaded, rowmax(x), are named: they are compared in pairs.
 */
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"
#include "gen/ir/ir.h"
#include "gen/rowwise/pass.h"

#include <stdio.h>
#include <stdlib.h>

static int arg_node(const struct emitter *e, int node, int k)
{
    return e->w->node[node].arg[k];
}

/* ---- cells -------------------------------------------------------------------------------------- */

bool row_collect_cells(struct row_emitter *r)
{
    struct emitter *e = r->e;
    bool ok = true;
    r->cells = (struct field_set){.type = "col", .object = "c"};
    if (e->w->inner || (r->pass && r->pass->n_scans > 0)) /* the rows of a vector differ; rowwise/scan.cuh */
        return true;
    ir_mark(e->w, e->w->row.root, e->w->row.n_roots, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && row_is_cell(e->w, i))
            ok &= field_add(e, &r->cells, i);
    return ok;
}

void row_declare_cells(const struct row_emitter *r, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < r->cells.n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s g%d;", i ? " " : "",
                               c_type(r->e->w->node[r->cells.node[i]].type), i);
}

/* The values of column `c`, whose number is i. */
static void emit_cell_values(struct row_emitter *r)
{
    struct emitter *e = r->e;
    char text[128];
    row_name_all(r, true, true);
    for (int i = 0; i < r->cells.n; i++)
        scope_set(e, r->cells.node[i], "%s", "");
    emit_values(e, r->cells.node, r->cells.n);
    for (int i = 0; i < r->cells.n; i++)
        text_add(e->out, "        c.g%d = %s;\n", i, node_text(e, r->cells.node[i], text, sizeof text));
}

/* Are the first column of a vector and its last in the same groups? Whether groups are whole vectors is the
   same everywhere, and told first. */
static void emit_same_groups(struct row_emitter *r)
{
    struct emitter *e = r->e;
    const char *join = "";
    char by[128];
    text_add(e->out, "        if (");
    row_name_all(r, true, true);
    for (int i = 0; i < r->col.n; i++) {
        bool used = false;
        for (int k = 0; k < r->cells.n; k++)
            for (int a = 0; a < e->w->node[r->cells.node[k]].n_args; a++)
                used |= arg_node(e, r->cells.node[k], a) == r->col.node[i];
        if (!used)
            continue;
        text_add(e->out, "%s(%s %% V == 0 || cols[0].f%d == cols[V - 1].f%d)", join,
                 node_text(e, arg_node(e, r->col.node[i], 1), by, sizeof by), i, i);
        join = " && ";
    }
    text_add(e->out, ") {\n");
}

void row_emit_cells(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    if (r->cells.n == 0)
        return;
    text_add(out,
             "    static constexpr int CELLS = %d;\n    template <int V> DEV void make_cells(" ROW_ARGS
             ", const vals &v, col (&cols)[V])\n    {\n",
             r->cells.n);
    emit_same_groups(r);
    text_add(out, "        col &c = cols[0];\n");
    emit_cell_values(r);
    text_add(out, "#pragma unroll\n        for (int k = 1; k < V; k++) {\n");
    for (int i = 0; i < r->cells.n; i++)
        text_add(out, "            cols[k].g%d = c.g%d;\n", i, i);
    text_add(
        out,
        "        }\n        } else {\n#pragma unroll\n        for (int k = 0; k < V; k++) {\n        col &c "
        "= cols[k];\n");
    emit_cell_values(r);
    text_add(out, "        }\n        }\n    }\n");
}

/* ---- guards ------------------------------------------------------------------------------------- */

/* where(eq(at.i, t), a, 0), where t is of the row: t; else -1. */
static int only_column(const struct emitter *e, int reduction)
{
    const struct ir_node *sum = &e->w->node[reduction];
    const struct ir_node *n = &e->w->node[sum->arg[0]];
    if (sum->op != OP_ROWSUM || sum->index == SUM_SPREAD || n->op != OP_WHERE ||
        e->w->node[n->arg[2]].op != OP_CONST || e->w->node[n->arg[2]].value != 0)
        return -1;
    const struct ir_node *test = &e->w->node[n->arg[0]];
    if (test->op != OP_EQ || e->w->node[test->arg[0]].type != TYPE_I32)
        return -1;
    for (int k = 0; k < 2; k++) {
        const struct ir_node *column = &e->w->node[test->arg[k]];
        const int other = test->arg[1 - k];
        if (column->op == OP_AT && column->index == AT_COL && !(e->w->node[other].span & SPAN_KV))
            return other;
    }
    return -1;
}

/* Is a reduction needed where `test` is false? */
static bool needed_without(struct row_emitter *r, int reduction, int test)
{
    const struct ir *w = r->e->w;
    int *root = calloc((size_t)w->row.n_roots + (size_t)w->n_nodes, sizeof *root);
    int *stop = calloc((size_t)w->n_nodes, sizeof *stop);
    int n_roots = 0;
    int n_stop = 0;
    bool needed = true;
    r->e->out->failed |= !root || !stop;
    if (root && stop) {
        for (int i = 0; i < w->row.n_roots; i++)
            root[n_roots++] = w->row.root[i];
        ir_mark(w, w->row.root, w->row.n_roots, r->e->mark);
        for (int i = 0; i < w->n_nodes; i++)
            if (r->e->mark[i] && w->node[i].op == OP_WHERE && w->node[i].arg[0] == test) {
                stop[n_stop++] = i;
                root[n_roots++] = w->node[i].arg[2];
            }
        ir_mark_until(w, root, n_roots, stop, n_stop, r->e->mark);
        needed = r->e->mark[reduction];
    }
    free(root);
    free(stop);
    return needed;
}

/* A condition of the launch without which nothing reads the reduction, or -1. */
static int only_when(struct row_emitter *r, int reduction)
{
    const struct ir *w = r->e->w;
    for (int i = 0; i < w->n_nodes; i++) {
        const struct ir_node *n = &w->node[i];
        if (n->op == OP_WHERE && r->e->class_of[n->arg[0]] == CLASS_HEAD &&
            w->node[n->arg[0]].op != OP_CONST && !needed_without(r, reduction, n->arg[0]))
            return n->arg[0];
    }
    return -1;
}

/* The kernel makes a spread of the sum beside it, which no formula says. */
static bool has_variance(const struct ir *w, int sum)
{
    bool has = false;
    for (int i = 0; i < w->n_nodes; i++)
        has |= variance_sum(w, i) == sum;
    return has;
}

static void emit_guard(struct row_emitter *r, int number, int column, int when)
{
    struct emitter *e = r->e;
    char text[128];
    text_add(e->out, "        if constexpr (R == %d) {\n", number);
    row_name_all(r, false, true);
    if (column >= 0) {
        emit_values(e, &column, 1);
        text_add(e->out,
                 "        if (static_cast<unsigned>(%s) - static_cast<unsigned>(i) >= "
                 "static_cast<unsigned>(n)) {\n"
                 "            return false;\n        }\n",
                 node_text(e, column, text, sizeof text));
    }
    if (when >= 0)
        emit_return(e, when, NULL);
    text_add(e->out, "        }\n");
}

/* The tensor whose elements a reduction compares as they are, or -1. */
static int compared(const struct row_emitter *r, int reduction)
{
    const struct ir_node *n = &r->e->w->node[reduction];
    const struct ir_node *x = &r->e->w->node[n->arg[0]];
    if (n->op != OP_ROWMAX && n->op != OP_ROWMIN)
        return -1;
    for (int k = 0; r->pass && k < r->pass->n_in; k++)
        if (r->pass->in[k].node == n->arg[0])
            return k;
    return !r->pass && x->op == OP_PARAM && x->index == LEAF_ROWX ? 0 : -1;
}

static void emit_compared(struct row_emitter *r)
{
    bool any = false;
    for (int k = 0; k < r->phases.n; k++)
        any |= compared(r, r->phases.node[k]) >= 0;
    if (!any || r->e->problem->dtype[DTYPE_X] == LATHE_F32)
        return;
    text_add(r->e->out, "    static constexpr int REDUCE_RAW[] = {");
    for (int k = 0; k < r->phases.n; k++)
        text_add(r->e->out, "%s%d", k ? ", " : "", compared(r, r->phases.node[k]));
    text_add(r->e->out, "};\n");
}

void row_emit_guards(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    int column[MAX_REDUCTIONS];
    int when[MAX_REDUCTIONS];
    bool any = false;
    emit_compared(r);
    for (int k = 0; k < r->phases.n; k++) {
        column[k] = only_column(r->e, r->phases.node[k]);
        when[k] = has_variance(r->e->w, r->phases.node[k]) ? -1 : only_when(r, r->phases.node[k]);
        any |= column[k] >= 0 || when[k] >= 0;
    }
    if (!any)
        return;
    text_add(out, "    static constexpr bool REDUCE_SOME[] = {");
    for (int k = 0; k < r->phases.n; k++)
        text_add(out, "%s%d", k ? ", " : "", column[k] >= 0 || when[k] >= 0);
    text_add(out,
             "};\n    template <int R> DEV bool some(int i, int n, " ROW_ARGS ", const vals &v)\n    {\n");
    for (int k = 0; k < r->phases.n; k++)
        if (column[k] >= 0 || when[k] >= 0)
            emit_guard(r, k, column[k], when[k]);
    text_add(out, "        return true;\n    }\n");
}
