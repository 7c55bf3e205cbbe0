/*
 * emit_row_pass.c: variant.gen.cuh and the launch recipe of rowwise_many. In: a row pass, a plan. Out: the
 * struct `variant` of templates/README.md, up to three launches, and the workspace that the sums over rows go
 * through.
 */
#include "emit_rowwise.h"

#include <stdlib.h>
#include <string.h>

#include "row_pass.h"

enum {
    COLUMN_THREADS = 128,
    SUM_COLUMNS = 32,
    SUM_THREADS = 256,
    SCATTER_BLOCKS = 128
}; /* of rowwise_many.cuh */

static void name_elements(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    for (int k = 0; k < pass->n_in; k++)
        scope_set(r->e, pass->in[k].node, "e[%d]", k);
    for (int k = 0; k < pass->n_scans; k++)
        scope_set(r->e, pass->scan[k], "q[%d]", k);
    for (int k = 0; k < pass->n_given; k++)
        scope_set(r->e, pass->given[k].node, "v.given[%d]", k);
}

static int root_of(const struct row_emitter *r, int number)
{
    return r->e->w->row.root[number];
}

/* ---- types and counts ------------------------------------------------------------------------------ */

static void emit_types(struct row_emitter *r, const char *name, const struct row_stream *list, int n)
{
    text_add(r->e->out, "    using %s = type_list<", name);
    for (int k = 0; k < n; k++)
        text_add(r->e->out, "%s%s", k ? ", " : "",
                 element_type((lathe_dtype)r->e->problem->arg_dtype[list[k].arg]));
    text_add(r->e->out, "%s>;\n", n == 0 ? "float" : "");
}

static int row_sites(const struct row_pass *pass)
{
    return pass->n_sites - pass->n_columns - pass->n_scatters;
}

static void emit_list(struct text_buf *out, const char *type, const char *name, const int *value, int n)
{
    text_add(out, "    static constexpr %s %s[] = {", type, name);
    for (int i = 0; i < n; i++)
        text_add(out, "%s%d", i ? ", " : "", value[i]);
    text_add(out, "%s};\n", n == 0 ? "0" : "");
}

/* Gradients are numbered in the order of the sites. Returns how many there are. */
static int number_gradients(const struct row_pass *pass, int *grad)
{
    int n = 0;
    for (int i = 0; i < pass->n_sites; i++) {
        n += i == 0 || pass->site[i].arg != pass->site[i - 1].arg;
        grad[i] = n - 1;
    }
    return n;
}

/* Does an earlier site add to the same gradient by atomics? */
static bool scatter_is_shared(const struct row_pass *pass, int site)
{
    return site > 0 && pass->site[site - 1].form == SITE_SCATTER &&
           pass->site[site - 1].arg == pass->site[site].arg;
}

/* Gradients that are added up by atomics have a buffer each. A site's; or, of n_sites, how many there are. */
static int scatter_buffer(const struct row_pass *pass, int site)
{
    int n = -1;
    for (int i = 0; i <= site && i < pass->n_sites; i++)
        n += pass->site[i].form == SITE_SCATTER && !scatter_is_shared(pass, i);
    return site == pass->n_sites ? n + 1 : n;
}

static void emit_counts(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    int grad[ROW_SITES];
    int slot[ROW_SITES];
    int column[ROW_SITES];
    int scattered[ROW_SITES];
    int taken[2] = {0, 0};
    int n_grads = number_gradients(pass, grad);
    for (int i = 0; i < pass->n_sites; i++) {
        column[i] = pass->site[i].form == SITE_COLUMN;
        scattered[i] = pass->site[i].form == SITE_SCATTER;
        slot[i] = scattered[i] ? scatter_buffer(pass, i) : taken[column[i]]++;
        if (scattered[i] && scatter_is_shared(pass, i)) /* what is there was added by an earlier site */
            slot[i] = -1;
    }
    text_add(out, "    static constexpr int IN = %d, OUT = %d, KEPT = %d;\n", pass->n_in, pass->n_out,
             pass->n_kept);
    emit_types(r, "in_types", pass->in, pass->n_in);
    emit_types(r, "out_types", pass->out, pass->n_out);
    text_add(out, "    static constexpr int COLUMNS = %d, SUMS = %d, SITES = %d, GRADS = %d;\n",
             pass->n_columns, row_sites(pass), pass->n_sites, n_grads);
    emit_list(out, "int", "SITE_GRAD", grad, pass->n_sites);
    emit_list(out, "int", "SITE_SLOT", slot, pass->n_sites);
    emit_list(out, "bool", "SITE_COLUMN", column, pass->n_sites);
    emit_list(out, "bool", "SITE_SCATTERED", scattered, pass->n_sites);
}

/* ---- functions --------------------------------------------------------------------------------------- */

static void emit_begin(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    char members[64] = "int row;";
    if (pass->n_given > 0)
        snprintf(members, sizeof members, "int row;\n        float given[%d];", pass->n_given);
    fields_declare(r->e, &r->vals, members);
    text_add(out,
             "    DEV void begin(vals &v, const many_params &p, const head &h, const row_at &at)\n    {\n"
             "        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] const row_sizes &z = "
             "p.z;\n        v.row = at.row;\n");
    for (int k = 0; k < pass->n_given; k++)
        text_add(out,
                 "        v.given[%d] = static_cast<const float *>(p.given[%d].data)[at.row0 * "
                 "p.given[%d].stride[0] + "
                 "at.row1 * p.given[%d].stride[1] + at.row2 * p.given[%d].stride[2]];\n",
                 k, k, k, k, k);
    row_assign_pass(r, -1);
    text_add(out, "    }\n");
    row_emit_reductions(r);
}

/* Elements that a block has at once where a row does not fit registers: CHUNK of rowwise_many.cuh; a warp,
 * PLACES of rowwise_walk.cuh. */
static int chunk_of(const struct row_pass *pass, const struct plan *plan)
{
    if (plan->places > 0)
        return plan->places;
    const bool tall = plan->inner && pass->n_scans > 0 && pass->n_columns == 0;
    const int vectors = tall ? 8 : plan->vector == 1 ? 4 : 1;
    return vectors * plan->vector * (plan->threads / plan->rows_per_block);
}

/* A scan in the other direction of what each element has beside the sum of a logarithmic one: weights
   e^(x_j - log sum) of elements x. Which one that is; -1: none. */
static int scan_beside(const struct row_emitter *r, int k)
{
    const struct ir_node *node = r->e->w->node;
    const struct ir_node *scan = &node[r->pass->scan[k]];
    if (ir_scan_form(scan->op) != SCAN_WEIGHTED || node[scan->arg[1]].op != OP_NEG)
        return -1;
    for (int l = 0; l < k; l++) {
        const struct ir_node *log = &node[r->pass->scan[l]];
        if (node[scan->arg[1]].arg[0] == r->pass->scan[l] && ir_scan_form(log->op) == SCAN_LOG &&
            log->arg[0] == scan->arg[2] && log->arg[1] == scan->arg[3] &&
            ir_scan_is_reverse(log->op) != ir_scan_is_reverse(scan->op))
            return l;
    }
    return -1;
}

/* Do formulas of elements, but for the places where segments begin, read values of columns? */
static bool reads_columns(const struct row_emitter *r)
{
    const struct ir *w = r->e->w;
    bool *used = calloc((size_t)w->n_nodes + 1, sizeof *used);
    bool reads = used == NULL;
    if (used)
        ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && used; i++) {
        const struct ir_node *n = &w->node[i];
        const int n_args = n->n_args - (ir_op_is_scan(n->op) ? 1 : 0);
        for (int k = 0; used[i] && n->span != SPAN_KV && k < n_args; k++)
            reads |= w->node[n->arg[k]].span == SPAN_KV;
    }
    for (int k = 0; k < w->row.n_roots; k++)
        reads |= w->node[w->row.root[k]].span == SPAN_KV;
    free(used);
    return reads;
}

/* Tensors that the scans of the first `walks` walks are made of, as bits. */
static int reads_of_walks(const struct row_emitter *r, int walks)
{
    const struct row_pass *pass = r->pass;
    bool *used = calloc((size_t)r->e->w->n_nodes + 1, sizeof *used);
    int n = 0;
    int bits = used ? 0 : -1;
    while (n < pass->n_scans && pass->walk[n] < walks)
        n++;
    if (used)
        ir_mark(r->e->w, pass->scan, n, used);
    for (int k = 0; k < pass->n_in && used; k++)
        bits |= used[pass->in[k].node] ? 1 << k : 0;
    free(used);
    return bits;
}

static void emit_walks(struct row_emitter *r, const struct plan *plan)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    int form[ROW_SCANS];
    int reverse[ROW_WALKS];
    int reads[ROW_WALKS];
    int starts[ROW_SCANS];
    int beside[ROW_SCANS];
    for (int k = 0; k < pass->n_scans; k++) {
        beside[k] = scan_beside(r, k);
        const struct ir_node *scan = &r->e->w->node[pass->scan[k]];
        form[k] = (int)ir_scan_form(scan->op);
        starts[k] = (int)row_scan_starts(pass, k);
    }
    for (int k = 0; k < pass->n_walks; k++) {
        reverse[k] = pass->reverse[k];
        reads[k] = reads_of_walks(r, k + 1);
    }
    text_add(out, "    static constexpr int SCANS = %d, WALKS = %d, CHUNK = %d;\n", pass->n_scans,
             pass->n_walks, chunk_of(pass, plan));
    emit_list(out, "int", "SCAN_FORM", form, pass->n_scans);
    emit_list(out, "int", "SCAN_WALK", pass->walk, pass->n_scans);
    emit_list(out, "int", "SCAN_STARTS", starts, pass->n_scans);
    text_add(out, "    static constexpr bool COLS_BESIDE_STARTS = %s;\n",
             reads_columns(r) ? "true" : "false");
    emit_list(out, "int", "SCAN_BESIDE", beside, pass->n_scans);
    emit_list(out, "bool", "WALK_REVERSE", reverse, pass->n_walks);
    if (pass->n_walks > 1)
        emit_list(out, "int", "WALK_READS", reads, pass->n_walks);
}

/* What a scan takes of an element, in the order of its operands. */
static void emit_terms(struct row_emitter *r, const struct plan *plan)
{
    static const char *const FIELD[][IR_MAX_ARGS] = {
        [SCAN_SUM] = {"value", "start"},
        [SCAN_LOG] = {"power", "start"},
        [SCAN_WEIGHTED] = {"value", "power", "shift", "start"},
    };
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    char text[128];
    emit_walks(r, plan);
    text_add(out, "    template <int S> DEV void scan_term(const float *e, int i, " ROW_ARGS
                  ", const col &c, const vals &v, const float *q, scan_input &to)\n    {\n");
    for (int k = 0; k < pass->n_scans; k++) {
        const struct ir_node n = r->e->w->node[pass->scan[k]];
        text_add(out, "        if constexpr (S == %d) {\n", k);
        row_name_all(r, true, true);
        emit_values(r->e, n.arg, n.n_args);
        for (int a = 0; a < n.n_args; a++)
            text_add(out, "        to.%s = %s%s;\n", FIELD[ir_scan_form(n.op)][a],
                     node_text(r->e, n.arg[a], text, sizeof text), a + 1 == n.n_args ? " != 0.0f" : "");
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
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
        root[n++] = root_of(r, pass->out[k].node);
    }
    for (int i = 0; i < pass->n_sites; i++) {
        if (pass->site[i].form != SITE_COLUMN)
            continue;
        snprintf(to[n], sizeof to[n], "site[%d]", column++);
        root[n++] = root_of(r, pass->site[i].root);
    }
    text_add(r->e->out, "    DEV void output(const float *e, int i, " ROW_ARGS
                        ", const col &c, const vals &v, const float *q, float *y, float *site)\n    {\n");
    row_name_all(r, true, true);
    emit_values(r->e, root, n);
    for (int k = 0; k < n; k++)
        text_add(r->e->out, "        %s = %s;\n", to[k], node_text(r->e, root[k], text, sizeof text));
    text_add(r->e->out, "    }\n");
}

/* What an element adds to a gradient at computed indices, and to which of its elements. */
static void emit_scatters(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    int to[ROW_SITES] = {0};
    int steady[ROW_SITES] = {0};
    bool any = false;
    int n = 0;
    char text[128];
    for (int i = 0; i < pass->n_sites; i++)
        if (pass->site[i].form == SITE_SCATTER) {
            steady[n] = row_site_is_steady(r->e->w, &pass->site[i]);
            any |= steady[n];
            to[n++] = scatter_buffer(pass, i);
        }
    text_add(out, "    static constexpr int SCATTERS = %d;\n    static constexpr bool SCATTER_EXACT = %s;\n",
             n, n > 0 && r->e->problem->deterministic ? "true" : "false");
    emit_list(out, "int", "SCATTER_TO", to, n);
    if (any)
        emit_list(out, "bool", "SCATTER_STEADY", steady, n);
    text_add(
        out,
        "    template <int K> DEV bool scatter(const float *e, int i, " ROW_ARGS
        ", const col &c, const vals &v, const float *q, const scatter_target &t, float &value, long long "
        "&place)\n    {\n");
    n = 0;
    for (int i = 0; i < pass->n_sites; i++) {
        const struct row_site *site = &pass->site[i];
        int root[1 + IR_MAX_ARGS] = {root_of(r, site->root)};
        if (site->form != SITE_SCATTER)
            continue;
        for (int k = 0; k < site->n_index; k++)
            root[1 + k] = root_of(r, site->index[k]);
        text_add(out, "        if constexpr (K == %d) { // %s\n", n++, r->e->sig->arg[site->arg].name);
        row_name_all(r, true, true);
        emit_values(r->e, root, 1 + site->n_index);
        text_add(out, "        value = %s;\n        place = 0;\n",
                 node_text(r->e, root[0], text, sizeof text));
        for (int k = 0; k < site->n_index; k++)
            text_add(out, "        place = place * t.n[%d] + m_clamp_index(%s, (int)t.n[%d]);\n", k,
                     node_text(r->e, root[1 + k], text, sizeof text), k);
        text_add(out, "        return %s;\n        }\n", site->once ? "i == 0" : "true");
    }
    text_add(out, "        return false;\n    }\n");
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
        root[n++] = root_of(r, pass->kept[k].node);
    emit_row_values(r, "keep_row", "float", root, n);
    n = 0;
    for (int i = 0; i < pass->n_sites; i++)
        if (pass->site[i].form == SITE_ROW)
            root[n++] = root_of(r, pass->site[i].root);
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

/* Which column's sum goes to element e of a gradient; -1: none, 0 for a sum over all. */
static void emit_column_of(struct row_emitter *r)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    text_add(out, "    template <int S> DEV int column_of(const row_gradient &g, " ROW_ARGS
                  ", long long e)\n    {\n");
    for (int i = 0; i < pass->n_sites; i++) {
        const struct row_site *site = &pass->site[i];
        const bool column = site->form == SITE_COLUMN;
        if (site->form == SITE_SCATTER)
            continue;
        const int skip = 4 - site->n_index - column; /* dims that the gradient lacks */
        char text[128];
        int root[IR_MAX_ARGS];
        text_add(out, "        if constexpr (S == %d) { // %s\n", i, r->e->sig->arg[site->arg].name);
        row_name_all(r, false, false);
        for (int k = 0; k < site->n_index; k++)
            root[k] = root_of(r, site->index[k]);
        emit_values(r->e, root, site->n_index);
        text_add(out, "        long long at = 0;\n");
        for (int k = 0; k < site->n_index; k++)
            text_add(out, "        at = at * g.size[%d] + m_clamp_index(%s, (int)g.size[%d]);\n", skip + k,
                     node_text(r->e, root[k], text, sizeof text), skip + k);
        if (column)
            text_add(out,
                     "        const long long outer = quotient(e, g.size[3]);\n        const int column = "
                     "(int)(e - "
                     "outer * "
                     "g.size[3]);\n        return outer == at && column < z.n ? column : -1;\n        }\n");
        else
            text_add(out, "        return e == at ? 0 : -1;\n        }\n");
    }
    text_add(out, "        return -1;\n    }\n");
}

/* ---- the recipe ---------------------------------------------------------------------------------------- */

static void params_streams(const struct row_emitter *r, struct params *p, const char *type, const char *name,
                           const struct row_stream *list, int n)
{
    int arg[ROW_VALUES];
    for (int k = 0; k < n; k++)
        arg[k] = list[k].arg;
    params_rows(p, r->e->sig, type, name, arg, n, true);
}

static void params_values(const struct row_emitter *r, struct params *p, const char *type, const char *name,
                          const struct row_value *list, int n)
{
    int arg[ROW_VALUES];
    for (int k = 0; k < n; k++)
        arg[k] = list[k].arg;
    params_rows(p, r->e->sig, type, name, arg, n, false);
}

static int add_buffer(struct source *out, struct product bytes)
{
    out->buffer[out->n_buffers] = (struct buffer){.bytes = bytes};
    return out->n_buffers++;
}

struct work { /* buffers of the workspace; -1: none */
    int columns, sums, values, carries;
    int scatter[ROW_SITES]; /* zeroed: of each gradient that is added up by atomics */
};

/* Must a walk along a row that does not fit registers be taken again from its chunks' beginnings? */
static bool keeps_carries(const struct row_pass *pass, const struct plan *plan)
{
    return pass->n_walks > 1 && plan->per_thread == 0;
}

/* Of a sum for each element of an argument: of a float, or without rounding (exact_sum of slots_base.cuh). */
static struct product bytes_of(const struct row_emitter *r, int arg)
{
    const struct sig_arg *a = &r->e->sig->arg[arg];
    struct product bytes = product_of(r->e->problem->deterministic ? 48 : 4);
    for (int d = 0; d < a->ndim; d++)
        if (a->dim[d].literal > 0)
            bytes.scale *= a->dim[d].literal;
        else
            product_times(&bytes, (enum sym)a->dim[d].sym, 1);
    return bytes;
}

static void add_scatter_buffers(const struct row_emitter *r, struct work *work, struct source *out)
{
    for (int i = 0; i < r->pass->n_sites; i++) {
        if (r->pass->site[i].form != SITE_SCATTER || scatter_is_shared(r->pass, i))
            continue;
        const int buffer = add_buffer(out, bytes_of(r, r->pass->site[i].arg));
        out->buffer[buffer].zero = true;
        work->scatter[scatter_buffer(r->pass, i)] = buffer;
    }
}

/* Of a block, for each of its chunks. A scan of rowwise_walk has two words of each row, where its walk is not
 * the last one; else three. */
static int64_t carry_bytes(const struct row_pass *pass, const struct plan *plan)
{
    int carried = 0;
    for (int k = 0; k < pass->n_scans; k++)
        carried += pass->walk[k] + 1 < pass->n_walks;
    return plan->places > 0 ? (int64_t)8 * carried * plan->vector * plan->threads
                            : (int64_t)12 * pass->n_scans * plan->rows_per_block;
}

static struct work add_work(const struct row_emitter *r, const struct plan *plan, struct source *out)
{
    const struct row_pass *pass = r->pass;
    const bool held = plan->per_thread > 0;
    const int clusters = plan->cluster > 1 ? plan->cluster : 1; /* blocks of each */
    struct work work = {-1, -1, -1, -1, {0}};
    if (pass->n_columns > 0) {
        struct product bytes =
            product_of((int64_t)(held ? plan->blocks / clusters : plan->column_parts) * pass->n_columns * 4);
        product_times(&bytes, SYM_N, 1);
        work.columns = add_buffer(out, bytes);
    }
    if (row_sites(pass) > 0)
        work.sums = add_buffer(out, product_of((int64_t)(plan->blocks / clusters) * row_sites(pass) * 4));
    if (pass->n_columns > 0 && !held) {
        struct product bytes = product_of(4 * (int64_t)(1 + pass->n_given + r->vals.n));
        product_times(&bytes, SYM_ROWS0, 1);
        product_times(&bytes, SYM_ROWS1, 1);
        product_times(&bytes, SYM_ROWS, 1);
        work.values = add_buffer(out, bytes);
    }
    if (keeps_carries(pass, plan)) {
        struct product bytes = product_of(carry_bytes(pass, plan) * plan->blocks);
        product_times(&bytes, SYM_N, chunk_of(pass, plan));
        work.carries = add_buffer(out, bytes);
    }
    if (plan->units_wide > 0 &&
        plan->cluster > 1) /* strips that have been taken: a word that nobody clears */
        work.carries = add_buffer(out, product_of(8));
    add_scatter_buffers(r, &work, out);
    return work;
}

static void params_work(struct params *p, const char *type, const char *name, int buffer)
{
    if (buffer >= 0)
        params_pointer(p, type, name, PARAM_WORK_DATA, buffer);
    else
        params_null(p, type, name);
}

static struct launch *add_launch(struct row_emitter *r, struct source *out, const char *role, int threads)
{
    struct launch *l = &out->launch[out->n_launches++];
    *l = (struct launch){.threads = threads};
    snprintf(l->entry, sizeof l->entry, "%.24s_%s_%s", r->e->w->name, lathe_dtype_text(r->e->problem->dtype),
             role);
    return l;
}

/* The buffers with the sizes of their gradients. */
static void params_scatters(const struct row_emitter *r, struct params *p, const struct work *work)
{
    int arg[ROW_SITES];
    const int n = scatter_buffer(r->pass, r->pass->n_sites);
    for (int i = 0; i < r->pass->n_sites; i++)
        if (r->pass->site[i].form == SITE_SCATTER)
            arg[scatter_buffer(r->pass, i)] = r->pass->site[i].arg;
    params_scatter_targets(p, r->e->sig, "scatter", work->scatter, arg, n);
}

static void many_params(struct row_emitter *r, struct params *p, const struct work *work)
{
    const struct row_pass *pass = r->pass;
    params_streams(r, p, "row_source", "in", pass->in, pass->n_in);
    params_streams(r, p, "row_target", "out", pass->out, pass->n_out);
    params_values(r, p, "row_source", "given", pass->given, pass->n_given);
    params_values(r, p, "row_target", "kept", pass->kept, pass->n_kept);
    params_work(p, "float", "columns", work->columns);
    params_work(p, "float", "sums", work->sums);
    params_work(p, "void", "values", work->values);
    params_work(p, "void", "carries", work->carries);
    params_scatters(r, p, work);
    params_row_sizes(p);
    params_inputs(p, r->e, "x");
}

static void sum_params(struct row_emitter *r, struct params *p, const struct work *work)
{
    const struct row_pass *pass = r->pass;
    int grad[ROW_SITES];
    int arg[ROW_SITES];
    int n = number_gradients(pass, grad);
    for (int i = 0; i < pass->n_sites; i++)
        arg[grad[i]] = pass->site[i].arg;
    params_work(p, "const float", "columns", work->columns);
    params_work(p, "const float", "sums", work->sums);
    params_buffers(p, "const float", "scattered", work->scatter, scatter_buffer(pass, pass->n_sites));
    params_row_sizes(p);
    params_gradients(p, r->e->sig, "grad", arg, n);
    params_inputs(p, r->e, "x");
}

static void add_rows_launch(struct row_emitter *r, const struct plan *plan, const struct work *work,
                            struct source *out)
{
    struct params p;
    struct launch *l = add_launch(r, out, "rows", plan->threads);
    const bool in_turn = r->pass->n_sites > 0 || plan->prefetch || plan->stages > 0 || plan->units_wide > 0 ||
                         keeps_carries(r->pass, plan);
    l->grid = product_of(in_turn ? plan->blocks : 1);
    l->smem_bytes = plan->smem_bytes;
    if (in_turn && plan->cluster > 1)
        l->cluster = plan->cluster;
    if (!in_turn) {
        product_times(&l->grid, SYM_ROWS0, 1);
        product_times(&l->grid, SYM_ROWS1, 1);
        product_times(&l->grid, SYM_ROWS, plan->rows_per_block);
    }
    params_open(&p, r->e->out, l, "many_params");
    many_params(r, &p, work);
    params_close(&p, "many_params");
}

/* The struct is written once; a second kernel that takes it has the same rows. */
static void add_columns_launch(struct row_emitter *r, const struct plan *plan, const struct work *work,
                               struct source *out)
{
    struct params p;
    struct text_buf nowhere = {0};
    struct launch *l = add_launch(r, out, "columns", COLUMN_THREADS);
    l->grid = product_of(plan->column_parts);
    product_times(&l->grid, SYM_N, COLUMN_THREADS * plan->vector);
    params_open(&p, &nowhere, l, "many_params");
    many_params(r, &p, work);
    params_close(&p, "many_params");
    r->e->out->failed |= nowhere.failed;
    text_free(&nowhere);
}

static void add_sum_launch(struct row_emitter *r, const struct work *work, struct source *out)
{
    struct params p;
    struct launch *l = add_launch(r, out, "sum", SUM_THREADS);
    l->grid = product_of(r->pass->n_scatters > 0 && r->pass->n_columns == 0 ? SCATTER_BLOCKS : 1);
    if (r->pass->n_columns > 0)
        product_times(&l->grid, SYM_N, SUM_COLUMNS);
    params_open(&p, r->e->out, l, "many_sum_params");
    sum_params(r, &p, work);
    params_close(&p, "many_sum_params");
}

static void add_launches(struct row_emitter *r, const struct plan *plan, struct source *out)
{
    const struct row_pass *pass = r->pass;
    const struct work work = add_work(r, plan, out);
    add_rows_launch(r, plan, &work, out);
    if (work.values >= 0)
        add_columns_launch(r, plan, &work, out);
    if (pass->n_sites > 0) {
        add_sum_launch(r, &work, out);
        return;
    }
    struct params p = {.out = r->e->out}; /* a type for the kernel that is not launched */
    text_add(p.out, "struct many_sum_params {\n    const float *columns, *sums, *scattered[1];\n    "
                    "row_sizes z;\n    row_gradient "
                    "grad[1];\n    inputs x;\n};\n\n");
}

bool emit_row_pass(struct emitter *e, const struct row_pass *pass, const struct plan *plan,
                   struct source *out)
{
    struct row_emitter r = {.e = e, .pass = pass, .name_elements = name_elements};
    if (plan->stages > 0 && plan->places == 0 && (plan->late || pass->n_columns > 0))
        r.manner = ", COLUMNS_APART";
    if (!row_collect(&r))
        return false;
    emit_inputs_struct(e);
    add_launches(&r, plan, out);
    text_add(e->out, "struct variant {\n");
    emit_counts(&r);
    row_emit_head(&r);
    row_emit_columns(&r);
    emit_begin(&r);
    row_emit_operands(&r, "const float *e", "e[0]");
    row_emit_update(&r);
    emit_terms(&r, plan);
    emit_output(&r);
    emit_scatters(&r);
    emit_kept(&r);
    if (plan->placed)
        emit_keys(&r);
    emit_column_of(&r);
    text_add(
        e->out,
        "    static_assert(sizeof(vals) <= %d, \"host and device disagree about a row's values\");\n};\n",
        4 * (1 + pass->n_given + r.vals.n));
    return true;
}
