/*
 * emit_mods.c: the structs query_mod, key_mod, value_mod and output_mod of variant.gen.cuh, and their
 * adjoints query_back and so on. In: the stages of a mod. Out: per stage its form, its reductions over the
 * head dim in passes, and the functions begin, operand, update and output; of an adjoint also those of its
 * sites. Row values of all stages share one struct `vals`.
 */
#include "gen/heads/mods.h"
#include "gen/base/text.h"
#include "gen/emit/emit.h"
#include "gen/ir/kind.h"

#define MOD_ARGS "const inputs &x, const sizes &z, const head &h"

struct mod_emitter {
    struct emitter *e;
    int row;     /* elements of a row of its tensor, */
    int first;   /* of which it has so many in memory of its own, the first; 0: all of them */
    bool by_row; /* at.row is read, which linear attention has as at.t */
    bool has_t;  /* struct vals has the token */
    const struct ir_mod *mod;
    const struct stage_back *back; /* per stage; NULL: the mod itself */
    int n_roots[MAX_STAGES];
    int root[MAX_STAGES]
            [3 + 2 * MAX_SITES]; /* what leaves a stage, or its adjoints; then values and reads of sites */
    struct phases phases[MAX_STAGES];
    struct field_set head;
    struct field_set vals; /* static and reduced values of a row */
};

static void name_all(struct mod_emitter *m, bool vals)
{
    scope_clear(m->e);
    fields_name(m->e, &m->head);
    if (vals)
        fields_name(m->e, &m->vals);
    scope_param(m->e, LEAF_V,
                "m_load(x.value, h.b * x.value_b + h.h * x.value_h + v.t * x.value_t + i * x.value_d)");
    scope_param(m->e, LEAF_X, "a");
    scope_param(m->e, LEAF_LO, "a");
    scope_param(m->e, LEAF_HI, "b");
    scope_param(m->e, LEAF_DX, "da");
    scope_param(m->e, LEAF_DLO, "da");
    scope_param(m->e, LEAF_DHI, "db");
    for (int i = 0; m->by_row && i < m->e->w->n_nodes; i++)
        if (ir_is_at(m->e->w, i, AT_ROW))
            scope_set(m->e, i, "v.t");
}

static void find_roots(struct mod_emitter *m)
{
    for (int s = 0; s < m->mod->n_stages; s++) {
        const struct ir_stage *stage = &m->mod->stage[s];
        const bool pair = stage->form != STAGE_ELEMENT;
        int n = 0;
        m->root[s][n++] = m->back ? m->back[s].root[0] : stage->fn.root[0];
        if (pair)
            m->root[s][n++] = m->back ? m->back[s].root[1] : stage->fn.root[1];
        if (m->back && m->back[s].has_value)
            m->root[s][n++] = m->back[s].value;
        for (int i = 0; m->back && i < m->back[s].site.n; i++) {
            m->root[s][n++] = m->back[s].site.item[i].value;
            m->root[s][n++] = m->back[s].site.item[i].leaf;
        }
        m->n_roots[s] = n;
    }
}

static bool reads_row(const struct mod_emitter *m)
{
    bool found = false;
    for (int s = 0; s < m->mod->n_stages; s++) {
        ir_mark(m->e->w, m->root[s], m->n_roots[s], m->e->mark);
        for (int i = 0; i < m->e->w->n_nodes; i++)
            found |= m->e->mark[i] && ir_is_at(m->e->w, i, AT_ROW);
    }
    return found;
}

static bool collect(struct mod_emitter *m)
{
    bool ok = true;
    m->head = (struct field_set){.type = "head", .object = "h"};
    m->vals = (struct field_set){.type = "vals", .object = "v"};
    for (int s = 0; s < m->mod->n_stages; s++) {
        const int *root = m->root[s];
        const int n = m->n_roots[s];
        ok &= phases_collect(m->e, root, n, &m->phases[s]);
        ok &= fields_collect(m->e, &m->head, CLASS_HEAD, root, n);
        ok &= fields_collect(m->e, &m->vals, CLASS_ROW, root, n);
        ok &= fields_collect(m->e, &m->vals, CLASS_DYNAMIC, root, n);
        for (int i = 0; i < m->phases[s].n; i++)
            ok &= field_add(m->e, &m->vals, m->phases[s].node[i]);
    }
    return ok;
}

static void emit_tables(struct mod_emitter *m)
{
    enum { STEP = 8 }; /* of the elements of a row that kernels have */
    static const char *const form[] = {"FORM_ELEMENT", "FORM_HALF", "FORM_INTERLEAVED"};
    struct text_buf *out = m->e->out;
    int n = m->mod->n_stages;
    text_add(out, "        static constexpr bool PRESENT = true;\n");
    if (m->row % STEP != 0 && !m->back)
        text_add(out, "        static constexpr int ROW = %d;\n", m->row);
    if (m->first > 0)
        text_add(out, "        static constexpr int COLUMNS = %d;\n", m->first);
    text_add(out, "        static constexpr int STAGES = %d;\n        static constexpr int FORM[] = {", n);
    for (int s = 0; s < n; s++)
        text_add(out, "%s%s", s ? ", " : "", form[m->mod->stage[s].form]);
    text_add(out, "%s};\n", n ? "" : "FORM_ELEMENT");
    bool partial = false;
    for (int s = 0; s < n; s++)
        partial |= m->mod->stage[s].paired > 0;
    if (partial)
        text_add(out, "        static constexpr int PAIRED[] = {");
    for (int s = 0; partial && s < n; s++)
        text_add(out, "%s%d", s ? ", " : "", m->mod->stage[s].paired);
    text_add(out, "%s        static constexpr int PASSES[] = {", partial ? "};\n" : "");
    for (int s = 0; s < n; s++)
        text_add(out, "%s%d", s ? ", " : "", m->phases[s].passes);
    text_add(out, "%s};\n        static constexpr int REDUCTIONS[] = {", n ? "" : "0");
    for (int s = 0; s < n; s++)
        text_add(out, "%s%d", s ? ", " : "", m->phases[s].n);
    text_add(out, "%s};\n", n ? "" : "0");
}

/* A constant of reduction r of stage S, from a table per stage. */
static void emit_lookup(struct mod_emitter *m, const char *name, bool passes)
{
    struct text_buf *out = m->e->out;
    text_add(out, "        template <int S> DEV constexpr int %s(int r)\n        {\n", name);
    for (int s = 0; s < m->mod->n_stages; s++) {
        const struct phases *p = &m->phases[s];
        if (p->n == 0)
            continue;
        text_add(out, "            if constexpr (S == %d) {\n                constexpr int table[] = {", s);
        for (int i = 0; i < p->n; i++)
            if (passes)
                text_add(out, "%s%d", i ? ", " : "", p->pass[i]);
            else
                text_add(out, "%s%s", i ? ", " : "", reduction_name(m->e->w->node[p->node[i]].op));
        text_add(out, "};\n                return table[r];\n            }\n");
    }
    text_add(out, "            return 0;\n        }\n");
}

/* Fields that stage s needs and that are known after its pass `pass` (-1: at the start). */
static void assign_pass(struct mod_emitter *m, int s, int pass)
{
    bool only[MAX_FIELDS];
    name_all(m, false);
    ir_mark(m->e->w, m->root[s], m->n_roots[s], m->e->mark);
    for (int i = 0; i < m->vals.n; i++)
        only[i] = m->e->mark[m->vals.node[i]] && (int)m->e->w->node[m->vals.node[i]].phase - 1 == pass;
    for (int i = 0; i < m->vals.n; i++)
        if ((int)m->e->w->node[m->vals.node[i]].phase - 1 < pass)
            scope_set(m->e, m->vals.node[i], "v.f%d", i);
    phases_name(m->e, &m->phases[s], pass);
    fields_assign(m->e, &m->vals, only);
}

static void emit_begin(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    const bool linear = kinds[m->e->w->kind].recurrent; /* its tokens may be of several sequences */
    text_add(out,
             "        template <int S> DEV void begin(vals &v, " MOD_ARGS
             ", int token, int pos)\n        {\n            v.pos = %s;\n%s",
             linear ? "packed_position(x.cu, x.cu_step, x.seqs, token)" : "pos",
             m->has_t ? "            v.t = token;\n" : "");
    for (int s = 0; s < m->mod->n_stages; s++) {
        text_add(out, "        if constexpr (S == %d) {\n", s);
        assign_pass(m, s, -1);
        text_add(out, "        }\n");
    }
    text_add(out, "        }\n");
}

static void emit_operand(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    text_add(out,
             "        template <int S, int R> DEV float operand(float a, float b, %sint i, " MOD_ARGS
             ", const vals &v)\n        {\n",
             m->back ? "float da, float db, " : "");
    for (int s = 0; s < m->mod->n_stages; s++)
        for (int i = 0; i < m->phases[s].n; i++) {
            int operand = m->e->w->node[m->phases[s].node[i]].arg[0];
            text_add(out, "        if constexpr (S == %d && R == %d) {\n", s, i);
            name_all(m, true);
            emit_return(m->e, operand, NULL);
            text_add(out, "        }\n");
        }
    text_add(out, "            return a;\n        }\n");
}

static void emit_update(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    text_add(out, "        template <int S, int P> DEV void update(vals &v, const float *red, " MOD_ARGS
                  ")\n        {\n");
    for (int s = 0; s < m->mod->n_stages; s++)
        for (int p = 0; p < m->phases[s].passes; p++) {
            text_add(out, "        if constexpr (S == %d && P == %d) {\n", s, p);
            assign_pass(m, s, p);
            text_add(out, "        }\n");
        }
    text_add(out, "        }\n");
}

static void emit_output(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    const char *a = m->back ? "da" : "a";
    const char *b = m->back ? "db" : "b";
    char lo[128];
    char hi[128];
    text_add(out,
             "        template <int S> DEV void output(%s, int i, " MOD_ARGS ", const vals &v)\n        {\n",
             m->back ? "float a, float b, float &da, float &db" : "float &a, float &b");
    for (int s = 0; s < m->mod->n_stages; s++) {
        const bool pair = m->mod->stage[s].form != STAGE_ELEMENT;
        text_add(out, "        if constexpr (S == %d) {\n", s);
        name_all(m, true);
        emit_values(m->e, m->root[s], pair ? 2 : 1);
        text_add(out, "        const float first = %s;\n", node_text(m->e, m->root[s][0], lo, sizeof lo));
        if (pair)
            text_add(out, "        %s = %s;\n", b, node_text(m->e, m->root[s][1], hi, sizeof hi));
        text_add(out, "        %s = first;\n        }\n", a);
    }
    text_add(out, "        }\n");
}

/* Of a stage of linear attention's output mod: what flows back to v. */
static void emit_value_gradient(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    text_add(out, "        template <int S> DEV float value(float a, float da, int i, " MOD_ARGS
                  ", const vals &v)\n        {\n");
    for (int s = 0; s < m->mod->n_stages; s++) {
        if (!m->back[s].has_value)
            continue;
        text_add(out, "        if constexpr (S == %d) {\n", s);
        name_all(m, true);
        emit_return(m->e, m->back[s].value, NULL);
        text_add(out, "        }\n");
    }
    text_add(out, "            return 0.0f;\n        }\n");
}

/* ---- sites of an adjoint ----------------------------------------------------------------------- */

static void emit_site_tables(struct mod_emitter *m)
{
    static const char *const form[] = {"SITE_HEAD",     "SITE_ROW",     "SITE_COLUMN",
                                       "SITE_DIAGONAL", "SITE_ELEMENT", "SITE_DIM"};
    struct text_buf *out = m->e->out;
    text_add(out, "        template <int S> DEV constexpr int sites()\n        {\n");
    for (int s = 0; s < m->mod->n_stages; s++)
        text_add(out, "            if constexpr (S == %d) {\n                return %d;\n            }\n", s,
                 m->back[s].site.n);
    text_add(
        out,
        "            return 0;\n        }\n        template <int S> DEV constexpr int site_form(int site)\n"
        "        {\n");
    for (int s = 0; s < m->mod->n_stages; s++)
        for (int i = 0; i < m->back[s].site.n; i++)
            text_add(out,
                     "            if (S == %d && site == %d) {\n                return %s;\n            }\n",
                     s, i, form[m->back[s].site.item[i].form]);
    text_add(out, "            return SITE_HEAD;\n        }\n"
                  "        template <int S> DEV constexpr bool site_stores(int site)\n        {\n");
    for (int s = 0; s < m->mod->n_stages; s++)
        for (int i = 0; i < m->back[s].site.n; i++)
            if (m->back[s].site.item[i].stores)
                text_add(
                    out,
                    "            if (S == %d && site == %d) {\n                return true;\n            }\n",
                    s, i);
    text_add(out, "            return false;\n        }\n");
}

static void emit_sites(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    text_add(out, "        template <int S, int G> DEV float site(float a, float b, float da, float db, int "
                  "i, " MOD_ARGS ", const vals &v)\n        {\n");
    for (int s = 0; s < m->mod->n_stages; s++)
        for (int i = 0; i < m->back[s].site.n; i++) {
            const int value = m->back[s].site.item[i].value;
            text_add(out, "        if constexpr (S == %d && G == %d) {\n", s, i);
            name_all(m, true);
            emit_return(m->e, value, NULL);
            text_add(out, "        }\n");
        }
    text_add(out, "            return 0.0f;\n        }\n");
}

static void emit_site_addresses(struct mod_emitter *m)
{
    struct text_buf *out = m->e->out;
    bool any = false;
    text_add(out, "        template <int S, int G> DEV auto site_address(const grads &g, " MOD_ARGS
                  ", const vals &v, int i)\n        {\n");
    for (int s = 0; s < m->mod->n_stages; s++)
        for (int i = 0; i < m->back[s].site.n; i++) {
            text_add(out, "        %sif constexpr (S == %d && G == %d) {\n", any ? "} else " : "", s, i);
            any = true;
            name_all(m, true);
            emit_address(m->e, m->back[s].site.item[i].leaf);
        }
    text_add(out, "%s        }\n", any ? "        }\n" : "");
}

static void emit_head(struct mod_emitter *m, bool key_side)
{
    struct text_buf *out = m->e->out;
    fields_declare(m->e, &m->head, "int b, h, h_kv;");
    text_add(out,
             "        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)\n        {\n        "
             "    head h;\n"
             "            h.b = b;\n            h.h = h_;\n            h.h_kv = %s;\n",
             key_side ? "h_" : "z.key_head(h_)");
    scope_clear(m->e);
    fields_assign(m->e, &m->head, NULL);
    text_add(out, "            return h;\n        }\n");
    fields_declare(m->e, &m->vals, m->has_t ? "int pos, t;" : "int pos;");
}

static void emit_parts(struct mod_emitter *m, const char *type, bool key_side)
{
    text_add(m->e->out, "    struct %s {\n", type);
    emit_tables(m);
    emit_lookup(m, "reduce_pass", true);
    emit_lookup(m, "reduce_op", false);
    emit_head(m, key_side);
    emit_begin(m);
    emit_operand(m);
    emit_update(m);
    emit_output(m);
    if (m->back && kinds[m->e->w->kind].recurrent)
        emit_value_gradient(m);
    if (m->back) {
        emit_site_tables(m);
        emit_sites(m);
        emit_site_addresses(m);
    }
    text_add(m->e->out, "    };\n");
}

static void emit_either(struct emitter *e, enum mod which, const char *type, const struct stage_back *back)
{
    struct mod_emitter m = {.e = e, .mod = &e->w->mod[which], .back = back};
    m.row = (int)e->problem->dim[which < MOD_VALUE ? SYM_D : SYM_D_V];
    if (which == MOD_KEY && e->w->qk2)
        m.first = m.row - (int)e->problem->dim[SYM_D2];
    find_roots(&m);
    m.by_row = reads_row(&m);
    m.has_t = m.by_row || kinds[e->w->kind].recurrent;
    if (collect(&m))
        emit_parts(&m, type,
                   which == MOD_KEY || which == (kinds[e->w->kind].recurrent ? MOD_QUERY : MOD_VALUE));
}

void emit_mod_struct(struct emitter *e, enum mod which, const char *type, bool present)
{
    if (present)
        emit_either(e, which, type, NULL);
    else
        text_add(e->out, "    using %s = no_mod;\n", type);
}

void emit_mod_back(struct emitter *e, enum mod which, const char *type, const struct stage_back *stage)
{
    if (stage)
        emit_either(e, which, type, stage);
    else
        text_add(e->out, "    using %s = no_back;\n", type);
}
