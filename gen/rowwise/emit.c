/*
 * emit.c: variant.gen.cuh of rowwise and its siblings. In: a row pass, a plan. Out: the struct
 * `variant` of templates/README.md; emit_scans.c and emit_gradients.c have what scans and sums over rows
 * add to it, emit_launch.c the launch recipe.
 */
#include "gen/rowwise/columns.h"
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"
#include "gen/rowwise/kernel.h"

#include <stdio.h>
#include <string.h>

/* Ranks are numbers in f32; integers that go from place to place keep their bits. */
static void name_scan(struct row_emitter *r, int k)
{
    const int scan = r->pass->scan[k];
    const struct ir_node *n = &r->e->w->node[scan];
    if (n->type != TYPE_I32)
        scope_set(r->e, scan, "q[%d]", k);
    else if (n->op == OP_RANK)
        scope_set(r->e, scan, "static_cast<int>(q[%d])", k);
    else
        scope_set(r->e, scan, "__float_as_int(q[%d])", k);
}

static void name_elements(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    for (int k = 0; k < pass->n_in; k++)
        scope_set(r->e, pass->in[k].node, "e[%d]", k);
    for (int k = 0; k < pass->n_scans; k++)
        name_scan(r, k);
    for (int k = 0; k < pass->n_given; k++)
        scope_set(r->e, pass->given[k].node, "v.given[%d]", k);
    for (int k = 0; k < pass->n_norms; k++) {
        char name[2][24];
        snprintf(name[0], sizeof name[0], "v.norm[%d]", k);
        snprintf(name[1], sizeof name[1], "sum[%d]", k);
        scope_param(r->e, LEAF_NORM + pass->norm[k].final, name[0]);
        scope_param(r->e, LEAF_ROWSUM + pass->norm[k].final, name[1]);
    }
}

static void emit_types(struct row_emitter *r, const char *name, const struct row_stream *list, int n)
{
    text_add(r->e->out, "    using %s = type_list<", name);
    for (int k = 0; k < n; k++)
        text_add(r->e->out, "%s%s", k ? ", " : "",
                 element_type((lathe_dtype)r->e->problem->arg_dtype[list[k].arg]));
    text_add(r->e->out, "%s>;\n", n == 0 ? "float" : "");
}

static int bits_of(double value, bool whole)
{
    if (whole)
        return (int)value;
    const float number = (float)value;
    int bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Of what has the first elements of a row alone: how many, and the bits of what those are that a row lacks.
 */
static void emit_first(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    const struct signature *sig = r->e->sig;
    int in[ROW_STREAMS];
    int out[ROW_STREAMS];
    int fill[ROW_STREAMS] = {0};
    if (!row_pass_has_first(pass, sig))
        return;
    for (int k = 0; k < pass->n_in; k++)
        in[k] = row_first(sig, pass->in[k].arg);
    for (int k = 0; k < pass->n_out; k++) {
        const struct sig_arg *arg = &sig->arg[pass->out[k].arg];
        out[k] = row_first(sig, pass->out[k].arg);
        for (int i = 0; out[k] > 0 && i < r->e->w->n_finals; i++)
            if (strcmp(r->e->w->final[i].name, arg->name) == 0)
                fill[k] = bits_of(r->e->w->final[i].fill, arg->dtype == LATHE_I32);
    }
    if (pass->n_in > 0)
        row_emit_list(r->e->out, "int", "IN_FIRST", in, pass->n_in);
    row_emit_list(r->e->out, "int", "OUT_FIRST", out, pass->n_out);
    row_emit_list(r->e->out, "int", "OUT_FILL", fill, pass->n_out);
}

static void emit_streams(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    text_add(out, "    static constexpr int IN = %d, OUT = %d, KEPT = %d;\n", pass->n_in, pass->n_out,
             pass->n_kept);
    emit_types(r, "in_types", pass->in, pass->n_in);
    emit_types(r, "out_types", pass->out, pass->n_out);
    emit_first(r);
}

/* Tensors that the reductions of a pass, and of those before, are made of, as bits. */
static int reads_of_pass(const struct row_emitter *r, int pass)
{
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another text */
    int root[MAX_REDUCTIONS];
    int n = 0;
    int bits = 0;
    for (int i = 0; i < r->phases.n; i++)
        if (r->phases.pass[i] == pass)
            root[n++] = r->phases.node[i];
    ir_mark(r->e->w, root, n, used);
    for (int k = 0; k < r->pass->n_in; k++)
        bits |= used[r->pass->in[k].node] ? 1 << k : 0;
    return bits;
}

static void emit_pass_reads(struct row_emitter *r)
{
    int reads[MAX_REDUCTIONS];
    bool some = false;
    for (int p = 0; p < r->phases.passes; p++) {
        reads[p] = reads_of_pass(r, p);
        some |= reads[p] != (1 << r->pass->n_in) - 1;
    }
    if (some)
        row_emit_list(r->e->out, "int", "PASS_READS", reads, r->phases.passes);
}

static void emit_begin(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    char members[96] = "int row;";
    if (pass->n_norms > 0)
        snprintf(members, sizeof members, "int row;\n        float given[%d];\n        float norm[%d];",
                 pass->n_given, pass->n_norms);
    else if (pass->n_given > 0)
        snprintf(members, sizeof members, "int row;\n        float given[%d];", pass->n_given);
    fields_declare(r->e, &r->vals, members);
    text_add(out,
             "    DEV void begin(vals &v, const rows_params &p, const head &h, const row_at &at)\n    {\n"
             "        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] const row_sizes &z = "
             "p.z;\n        v.row = at.row;\n");
    for (int k = 0; k < pass->n_given; k++)
        text_add(out,
                 "        v.given[%d] = static_cast<const float *>(p.given[%d].data)[at.row0 * "
                 "p.given[%d].stride[0] + "
                 "at.row1 * p.given[%d].stride[1] + at.row2 * p.given[%d].stride[2]];\n",
                 k, k, k, k, k);
    for (int k = 0; k < pass->n_norms; k++)
        text_add(out, "        v.norm[%d] = 1.0f;\n", k);
    row_assign_pass(r, -1);
    text_add(out, "    }\n");
    row_emit_norms(r);
    row_emit_reductions(r);
}

static void emit_output(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    int root[ROW_STREAMS + ROW_SITES];
    char to[ROW_STREAMS + ROW_SITES][16];
    char text[128];
    int n = 0;
    int column = 0;
    for (int k = 0; k < pass->n_out; k++) {
        snprintf(to[n], sizeof to[n], "y[%d]", k);
        root[n++] = row_root(r, pass->out[k].node);
    }
    for (int i = 0; i < pass->n_sites; i++) {
        if (pass->site[i].form != SITE_COLUMN)
            continue;
        snprintf(to[n], sizeof to[n], "site[%d]", column++);
        root[n++] = row_root(r, pass->site[i].root);
    }
    text_add(r->e->out, "    DEV void output(const float *e, int i, " ROW_ARGS
                        ", const col &c, const vals &v, const float *q, float *y, float *site)\n    {\n");
    row_name_all(r, true, true);
    emit_values(r->e, root, n);
    for (int k = 0; k < n; k++) {
        const bool bits = k < pass->n_out && r->e->sig->arg[pass->out[k].arg].dtype == LATHE_I32;
        text_add(r->e->out, "        %s = %s%s%s;\n", to[k], bits ? "__int_as_float(" : "",
                 node_text(r->e, root[k], text, sizeof text), bits ? ")" : "");
    }
    text_add(r->e->out, "    }\n");
}

/* Values of the row, one after the other: to[0], to[1], ... */
static void emit_row_values(struct row_emitter *r, const char *name, const char *type, const int *root, int n)
{
    char text[128];
    text_add(r->e->out, "    DEV void %s(" ROW_ARGS ", const vals &v, %s *to)\n    {\n", name, type);
    row_name_all(r, false, true);
    emit_values(r->e, root, n);
    for (int k = 0; k < n; k++)
        text_add(r->e->out, "        to[%d] = %s;\n", k, node_text(r->e, root[k], text, sizeof text));
    text_add(r->e->out, "    }\n");
}

static void emit_kept(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    int root[ROW_VALUES + ROW_SITES];
    int n = 0;
    for (int k = 0; k < pass->n_kept; k++)
        root[n++] = row_root(r, pass->kept[k].node);
    emit_row_values(r, "keep_row", "float", root, n);
    n = 0;
    for (int i = 0; i < pass->n_sites; i++)
        if (pass->site[i].form == SITE_ROW)
            root[n++] = row_root(r, pass->site[i].root);
    emit_row_values(r, "sums", "float", root, n);
}

/* What tells a row's place. */
static void emit_keys(struct row_emitter *r)
{
    struct row_places places;
    (void)row_pass_places(r->pass, &places);
    text_add(r->e->out, "    static constexpr int KEYS = %d;\n", places.n_keys);
    emit_row_values(r, "keys", "int", places.key, places.n_keys);
}

static bool emit_pass(struct emitter *e, const struct row_pass *pass, const struct plan *plan,
                      struct source *out)
{
    struct row_emitter r = {
        .e = e, .pass = pass, .packs = plan->rows.staged.cols_packed, .name_elements = name_elements};
    if (plan->row->form == PLAN_ROW_STAGED && (plan->rows.staged.late || pass->n_columns > 0))
        r.manner = ", COLUMNS_APART";
    if (!row_collect(&r))
        return false;
    emit_inputs_struct(e);
    row_add_launches(&r, plan, out);
    text_add(e->out, "struct variant {\n");
    emit_streams(&r);
    row_emit_sites(&r, plan);
    row_emit_head(&r);
    row_emit_columns(&r);
    emit_begin(&r);
    if (plan->rows.reread)
        emit_pass_reads(&r);
    row_emit_operands(&r, "const float *e", "e[0]");
    row_emit_update(&r);
    row_emit_scans(&r, plan);
    emit_output(&r);
    row_emit_scatters(&r);
    emit_kept(&r);
    if (plan->rows.staged.placed)
        emit_keys(&r);
    row_emit_column_of(&r);
    text_add(
        e->out,
        "    static_assert(sizeof(vals) <= %d, \"host and device disagree about a row's values\");\n};\n",
        4 * (1 + pass->n_given + pass->n_norms + r.vals.n));
    return true;
}

bool emit_rowwise(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                  struct text_buf *variant, struct source *out)
{
    const struct row_kernel *k = r->rows;
    struct row_pass pass = k->pass;
    struct emitter e;
    (void)config;
    bool ok = emitter_open(&e, plan->rows.variance ? k->variance : k->pass.ir, r->sig, r->problem, variant);
    e.spec = r->spec;
    pass.ir = e.w;
    ok = ok && emit_pass(&e, &pass, plan, out);
    emitter_close(&e);
    return ok;
}
