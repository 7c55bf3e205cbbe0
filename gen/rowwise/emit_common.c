/*
 * emit_common.c: variant.gen.cuh and the launch recipe of rowwise. In: a lowered spec, a plan. Out: the
 * struct `variant` of templates/README.md. Every function starts from x, so a kernel may hold a row in
 * registers or read it again in each pass.
 */
#include "gen/rowwise/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/pass.h"

#include <stdio.h>

bool row_collect(struct row_emitter *r)
{
    const struct ir_fn *fn = &r->e->w->row;
    r->head = (struct field_set){.type = "head", .object = "h"};
    r->col = (struct field_set){.type = "col", .object = "c"};
    r->vals = (struct field_set){.type = "vals", .object = "v"};
    bool ok = phases_collect(r->e, fn->root, fn->n_roots, &r->phases);
    ok &= fields_collect(r->e, &r->head, CLASS_HEAD, fn->root, fn->n_roots);
    ok &= fields_collect(r->e, &r->col, CLASS_COL, fn->root, fn->n_roots);
    ok &= fields_collect(r->e, &r->vals, CLASS_ROW, fn->root, fn->n_roots);
    ok &= fields_collect(r->e, &r->vals, CLASS_DYNAMIC, fn->root, fn->n_roots);
    for (int i = 0; i < r->phases.n; i++)
        ok &= field_add(r->e, &r->vals, r->phases.node[i]);
    return ok && row_collect_cells(r);
}

/* ---- columns --------------------------------------------------------------------------------- */

/* A read whose last index is the column itself comes in vectors, where that dim is as long as a row. */
static bool is_vector_load(const struct emitter *e, int node)
{
    const struct ir_node *n = &e->w->node[node];
    if (n->op != OP_LOAD)
        return false;
    const struct sig_dim *dim = &e->w->input[n->index].dim[n->n_args - 1];
    const struct ir_node *last = &e->w->node[n->arg[n->n_args - 1]];
    if (dim->sym != SYM_N || dim->literal > 0)
        return false;
    for (int i = 0; i + 1 < n->n_args; i++)
        if (e->w->node[n->arg[i]].span != 0)
            return false;
    return last->op == OP_AT && last->index == AT_COL;
}

/* at.i divided by what is the same everywhere: columns side by side need one division. */
static bool is_column_division(const struct emitter *e, int node)
{
    const struct ir_node *n = &e->w->node[node];
    if ((n->op != OP_IDIV && n->op != OP_MOD) || n->type != TYPE_I32)
        return false;
    const struct ir_node *column = &e->w->node[n->arg[0]];
    return column->op == OP_AT && column->index == AT_COL && e->w->node[n->arg[1]].span == 0;
}

static void emit_column_division(struct emitter *e, int node)
{
    const struct ir_node *n = &e->w->node[node];
    char by[128];
    text_add(e->out, "        int u%d[V];\n        %s<V>(i, %s, u%d);\n", node,
             n->op == OP_IDIV ? "m_floordiv_columns" : "m_floormod_columns",
             node_text(e, n->arg[1], by, sizeof by), node);
    scope_set(e, node, "u%d[k]", node);
}

/* Vector loads and divisions below the columns, one array each; they stay named in the scope as array[k]. */
static void emit_vector_loads(struct row_emitter *r)
{
    struct emitter *e = r->e;
    ir_mark(e->w, r->col.node, r->col.n, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (e->mark[i] && is_column_division(e, i))
            emit_column_division(e, i);
        if (!e->mark[i] || !is_vector_load(e, i))
            continue;
        const char *name = e->w->input[n->index].name;
        int last = n->n_args - 1;
        text_add(e->out, "        %s u%d[V];\n        m_load_columns<V%s>(x.in_%s",
                 n->type == TYPE_F32 ? "float" : "int", i, r->manner ? r->manner : "", name);
        for (int d = 0; d < last; d++) {
            char index[128];
            char bound[64];
            input_size_text(e, n->index, d, bound, sizeof bound);
            text_add(e->out, " + (long long)m_clamp_index(%s, %s) * x.s%d_%s",
                     node_text(e, n->arg[d], index, sizeof index), bound, d, name);
        }
        text_add(e->out, ", x.s%d_%s, i, z.n, u%d);\n", last, name, i);
        scope_set(e, i, "u%d[k]", i);
    }
}

/* Does a reduction read a value of its column? Else passes that only reduce need not make them. */
static bool reductions_use_columns(const struct row_emitter *r)
{
    for (int i = 0; i < r->phases.n; i++) {
        ir_mark(r->e->w, &r->phases.node[i], 1, r->e->mark);
        for (int k = 0; k < r->col.n; k++)
            if (r->e->mark[r->col.node[k]])
                return true;
    }
    return false;
}

/* What finds the fields of a column by number, where they are held packed. */
static void emit_fields(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    text_add(out,
             "    static constexpr int FIELDS = %d;\n    template <int K> DEV float &field(col &c)\n    {\n",
             r->col.n);
    for (int i = 0; i < r->col.n; i++)
        text_add(out, "        if constexpr (K == %d) {\n            return c.f%d;\n        }\n", i, i);
    text_add(out, "    }\n");
}

void row_emit_columns(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    char cells[512];
    row_declare_cells(r, cells, sizeof cells);
    fields_declare(r->e, &r->col, cells);
    text_add(out, "    static constexpr bool COLS = %s;\n", yes(r->col.n > 0));
    text_add(out, "    static constexpr bool REDUCE_COLS = %s;\n", yes(reductions_use_columns(r)));
    if (r->packs)
        emit_fields(r);
    text_add(out,
             "    template <int V> DEV void make_cols(" ROW_ARGS ", int first, col (&cols)[V])\n    {\n");
    if (r->col.n > 0) {
        row_name_all(r, false, false);
        text_add(out, "        [[maybe_unused]] const int i = first;\n");
        emit_vector_loads(r);
        text_add(out, "#pragma unroll\n        for (int k = 0; k < V; k++) {\n        [[maybe_unused]] const "
                      "int i = first + k;\n        col &c = cols[k];\n");
        fields_assign(r->e, &r->col, NULL);
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}

/* ---- rows ------------------------------------------------------------------------------------ */

void row_emit_head(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    fields_declare(r->e, &r->head, r->head.n ? "" : "int none;");
    text_add(out, "    DEV head make_head(const inputs &x, const row_sizes &z)\n    {\n        head h;\n%s",
             r->head.n ? "" : "        h.none = 0;\n");
    scope_clear(r->e);
    fields_assign(r->e, &r->head, NULL);
    text_add(out, "        return h;\n    }\n");
}

/* Sums of squared distances from the mean, and which reduction that mean is made of. */
static void emit_variances(struct row_emitter *r)
{
    int of[MAX_REDUCTIONS];
    bool any = false;
    for (int i = 0; i < r->phases.n; i++) {
        const int sum = variance_sum(r->e->w, r->phases.node[i]);
        of[i] = -1;
        for (int k = 0; sum >= 0 && k < i; k++)
            of[i] = r->phases.node[k] == sum ? k : of[i];
        any |= of[i] >= 0;
    }
    if (any)
        row_emit_list(r->e->out, "int", "REDUCE_VARIANCE", of, r->phases.n);
}

void row_emit_reductions(struct row_emitter *r)
{
    phases_declare(r->e, &r->phases);
    emit_variances(r);
    row_emit_cells(r);
    row_emit_guards(r);
}

void row_emit_update(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    text_add(out, "    template <int P> DEV void update(vals &v, const float *red, " ROW_ARGS ")\n    {\n");
    for (int p = 0; p < r->phases.passes; p++) {
        text_add(out, "        if constexpr (P == %d) {\n", p);
        row_assign_pass(r, p);
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}

void row_emit_operands(struct row_emitter *r, const char *element, const char *otherwise)
{
    struct text_buf *out = r->e->out;
    text_add(out,
             "    template <int R> DEV float operand(%s, int i, " ROW_ARGS
             ", const col &c, const vals &v)\n    {\n",
             element);
    for (int k = 0; k < r->phases.n; k++) {
        int operand = r->e->w->node[r->phases.node[k]].arg[0];
        text_add(out, "        if constexpr (R == %d) {\n", k);
        row_name_all(r, true, true);
        emit_return(r->e, operand, NULL);
        text_add(out, "        }\n");
    }
    text_add(out, "        return %s;\n    }\n", otherwise);
}
