/*
 * emit_norms.c: what the struct `variant` of emit.c has for logarithms of sums that are given and large:
 * which rows must be added up once more, what of an element, and what becomes of the sum. In: a row emitter.
 * Out: text.
 */
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"
#include "gen/rowwise/pass.h"

static void emit_is_large(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    text_add(out, "    DEV bool has_large(const vals &v)\n    {\n        return ");
    for (int k = 0; k < r->pass->n_norms; k++)
        text_add(out, "%sfabsf(v.given[%d]) > 4096.0f", k ? " || " : "", r->pass->norm[k].given);
    text_add(out, ";\n    }\n");
}

static void emit_terms(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    int root[MAX_STATE];
    char text[128];
    text_add(out, "    DEV void add_to_norms(const float *e, int i, " ROW_ARGS
                  ", const vals &v, float *sum)\n    {\n");
    row_name_all(r, false, true);
    for (int k = 0; k < r->pass->n_norms; k++)
        root[k] = r->pass->norm[k].term;
    emit_values(r->e, root, r->pass->n_norms);
    for (int k = 0; k < r->pass->n_norms; k++)
        text_add(out, "        sum[%d] += %s;\n", k, node_text(r->e, root[k], text, sizeof text));
    text_add(out, "    }\n");
}

/* The norms, and what is known of a row before its reductions once more. */
static void emit_take(struct row_emitter *r)
{
    struct text_buf *out = r->e->out;
    text_add(out, "    DEV void take_norms(vals &v, const float *sum, const rows_params &p, const head &h, "
                  "const row_at &at)\n"
                  "    {\n        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] const "
                  "row_sizes &z = p.z;\n");
    for (int k = 0; k < r->pass->n_norms; k++) {
        char text[128];
        row_name_all(r, false, false);
        text_add(out, "        {\n");
        emit_values(r->e, &r->pass->norm[k].norm, 1);
        text_add(out, "        v.norm[%d] = %s;\n        }\n", k,
                 node_text(r->e, r->pass->norm[k].norm, text, sizeof text));
    }
    row_assign_pass(r, -1);
    text_add(out, "    }\n");
}

/* Is something made of a norm that the first pass reduces? */
static bool first_pass_divides(const struct row_emitter *r)
{
    const struct ir *w = r->e->w;
    bool any = false;
    for (int i = 0; i < r->phases.n; i++) {
        if (r->phases.pass[i] != 0)
            continue;
        ir_mark(w, &r->phases.node[i], 1, r->e->mark);
        for (int k = 0; k < w->n_nodes; k++)
            any |= r->e->mark[k] && w->node[k].op == OP_PARAM && w->node[k].index >= LEAF_NORM &&
                   w->node[k].index < LEAF_NORM + MAX_STATE;
    }
    return any;
}

void row_emit_norms(struct row_emitter *r)
{
    if (r->pass->n_norms == 0)
        return;
    text_add(r->e->out, "    static constexpr int NORMS = %d;\n    static constexpr bool NORMS_FIRST = %s;\n",
             r->pass->n_norms, yes(first_pass_divides(r)));
    emit_is_large(r);
    emit_terms(r);
    emit_take(r);
}
