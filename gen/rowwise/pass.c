/*
 * pass.c: a pass of a row-wise spec as one function of rows. In: a checked spec and a problem. Out:
 * struct row_pass, whose lowered pool the caller frees. Backward, diff() gives the adjoint of x and of every
 * read of an input; a read at at.i becomes a sum over the rows for each column, one at a fixed place a sum
 * over all elements, one at at.row a value kept per row, one at (at.row, at.i) a row. What the caller gives
 * stands for its formula: given.c.
 */
#include "gen/rowwise/pass.h"
#include "gen/arguments/problem.h"
#include "gen/base/diag.h"
#include "gen/derive/diff.h"
#include "gen/ir/log.h"
#include "gen/lower/rewrite.h"
#include "runtime/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct maker {
    struct ir *w; /* a clone of the spec, in which formulas are made */
    const struct signature *sig;
    const struct problem *problem;
    struct row_pass *pass;
    char *why;
    struct row_given given;
};

static const struct ir_at NOWHERE = {0, 0};

static int find_arg(const struct signature *sig, const char *prefix, const char *name)
{
    char full[NAME_MAX_BYTES + 2];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    for (int i = 0; i < sig->n_args; i++)
        if (strcmp(sig->arg[i].name, full) == 0)
            return i;
    return -1;
}

static bool refuse(const struct maker *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(const struct maker *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    lathe__format(m->why, ROW_WHY_BYTES, fmt, args);
    va_end(args);
    return false;
}

static void place_of(const struct ir *ir, const struct ir_node *n, char place[DIAG_PLACE_BYTES])
{
    diag_place(n->line ? ir->file[n->file] : "", n->line, place);
}

/* ---- roots ------------------------------------------------------------------------------------- */

/* A formula of the pass, with the statistics that are given in place of theirs. -1: too many. */
static int add_root(struct maker *m, int node)
{
    struct ir_fn *fn = &m->w->row;
    if (fn->n_roots == MAX_ROOTS)
        return -1;
    fn->root[fn->n_roots] = row_given_use(m->w, node, &m->given);
    return fn->n_roots++;
}

static bool add_stream(struct row_stream *list, int *n, int node, int arg)
{
    if (*n == ROW_STREAMS)
        return false;
    list[(*n)++] = (struct row_stream){node, arg};
    return true;
}

static bool add_value(struct row_value *list, int *n, int node, int arg)
{
    if (*n == ROW_VALUES)
        return false;
    list[(*n)++] = (struct row_value){node, arg};
    return true;
}

/* Some list of the pass is full: says which. */
static bool too_large(const struct maker *m)
{
    const struct row_pass *pass = m->pass;
    const struct {
        bool full;
        int most;
        const char *what;
    } list[] = {{pass->n_in == ROW_STREAMS, ROW_STREAMS, "tensors of rows that are read"},
                {pass->n_out == ROW_STREAMS, ROW_STREAMS, "tensors of rows that are written"},
                {pass->n_given == ROW_VALUES, ROW_VALUES, "values per row that are read"},
                {pass->n_kept == ROW_VALUES, ROW_VALUES, "values per row that are written"},
                {pass->n_sites == ROW_SITES, ROW_SITES, "gradients of reads of inputs"},
                {m->w->row.n_roots == MAX_ROOTS, MAX_ROOTS, "formulas"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].full)
            return refuse(m, "the %s pass needs more than %d %s", m->sig->backward ? "backward" : "forward",
                          list[i].most, list[i].what);
    return refuse(m, IR_TOO_LARGE, IR_MAX_NODES);
}

/* ---- gradients of inputs ------------------------------------------------------------------------- */

/* Sites of one gradient stay together. */
static struct row_site *insert_site(struct row_pass *pass, int arg)
{
    if (pass->n_sites == ROW_SITES)
        return NULL;
    int at = pass->n_sites++;
    while (at > 0 && pass->site[at - 1].arg > arg) {
        pass->site[at] = pass->site[at - 1];
        at--;
    }
    pass->site[at] = (struct row_site){.arg = arg};
    return &pass->site[at];
}

/* Where a read is, as seen from all rows: a column of its own, one place for all, or wherever its indices
 * say. */
static enum site_form form_of(const struct ir *w, const struct ir_node *load)
{
    const bool column = load->n_args > 0 && ir_is_at(w, load->arg[load->n_args - 1], AT_COL);
    for (int k = 0; k < load->n_args - column; k++)
        if (w->node[load->arg[k]].span != 0)
            return SITE_SCATTER;
    return column ? SITE_COLUMN : SITE_ROW;
}

static bool add_site(struct maker *m, int leaf, int adjoint, int arg)
{
    const struct ir_node n = m->w->node[leaf]; /* the pool may move */
    const enum site_form form = form_of(m->w, &n);
    const int n_index = n.n_args - (form == SITE_COLUMN);
    struct row_site *site = insert_site(m->pass, arg);
    if (!site)
        return too_large(m);
    site->form = form;
    site->root = add_root(m, adjoint);
    site->n_index = n_index;
    site->once = (n.span & SPAN_KV) == 0;
    m->pass->n_columns += form == SITE_COLUMN;
    m->pass->n_scatters += form == SITE_SCATTER;
    bool ok = site->root >= 0;
    for (int k = 0; k < n_index; k++)
        ok &= (site->index[k] = add_root(m, n.arg[k])) >= 0;
    return ok || too_large(m);
}

/* Is a gradient there already: as rows, per row, or as a sum? */
static bool is_made(const struct row_pass *pass, int arg)
{
    bool made = false;
    for (int i = 0; i < pass->n_out; i++)
        made |= pass->out[i].arg == arg;
    for (int i = 0; i < pass->n_kept; i++)
        made |= pass->kept[i].arg == arg;
    for (int i = 0; i < pass->n_sites; i++)
        made |= pass->site[i].arg == arg;
    return made;
}

static bool add_gradient(struct maker *m, int leaf, int adjoint)
{
    const struct ir_node n = m->w->node[leaf];
    struct row_pass *pass = m->pass;
    int arg = -1;
    if (n.op == OP_PARAM)
        arg = n.index == LEAF_ROWX ? find_arg(m->sig, "", "dx") : -1;
    else
        arg = find_arg(m->sig, "d", m->w->input[n.index].name);
    if (!problem_has(m->problem, arg))
        return true;
    const int rows = n.op == OP_PARAM ? INPUT_ROW : m->w->input[n.index].rows;
    bool ok = true;
    if (rows == INPUT_ROW)
        ok = add_stream(pass->out, &pass->n_out, add_root(m, adjoint), arg) &&
             pass->out[pass->n_out - 1].node >= 0;
    else if (rows == INPUT_VALUE)
        ok = add_value(pass->kept, &pass->n_kept, add_root(m, adjoint), arg) &&
             pass->kept[pass->n_kept - 1].node >= 0;
    else
        return add_site(m, leaf, adjoint, arg);
    return ok || too_large(m);
}

/* A gradient that is a tensor of rows has the dtype of rows, one per row their shape; others are sums. */
static bool add_zero(struct maker *m, int rows, int arg)
{
    struct row_pass *pass = m->pass;
    int zero = ir_const(m->w, 0.0, TYPE_F32);
    int root = zero < 0 ? -1 : add_root(m, zero);
    if (root < 0)
        return false;
    if (rows == INPUT_ROW)
        return add_stream(pass->out, &pass->n_out, root, arg);
    if (rows == INPUT_VALUE)
        return add_value(pass->kept, &pass->n_kept, root, arg);
    struct row_site *site = insert_site(pass, arg); /* a sum that takes no element */
    if (site) {
        site->form = SITE_ROW;
        site->root = root;
    }
    return site != NULL;
}

/* Something that is wanted and that nothing depends on is zero. */
static bool add_zeros(struct maker *m)
{
    int dx = find_arg(m->sig, "", "dx");
    if (problem_has(m->problem, dx) && !is_made(m->pass, dx) && !add_zero(m, INPUT_ROW, dx))
        return too_large(m);
    for (int i = 0; i < m->w->n_inputs; i++) {
        const struct input *input = &m->w->input[i];
        int arg = input->grad ? find_arg(m->sig, "d", input->name) : -1;
        if (problem_has(m->problem, arg) && !is_made(m->pass, arg) && !add_zero(m, input->rows, arg))
            return too_large(m);
    }
    return true;
}

/* ---- the pass ------------------------------------------------------------------------------------ */

/* dL of what the spec returns: dy, and d<result> where it is given. */
static int take_seeds(struct maker *m, int *root, int *seed)
{
    const struct ir *w = m->w;
    int n = 0;
    if (!w->no_y) {
        root[n] = w->row.root[0];
        seed[n++] = ir_param(m->w, LEAF_DROWY, NOWHERE);
    }
    for (int i = 0; i < w->n_finals; i++) {
        if (!problem_has(m->problem, find_arg(m->sig, "d", w->final[i].name)))
            continue;
        root[n] = w->row.root[1 + i];
        seed[n++] = ir_param(m->w, (ir_result_is_row(w, i) ? LEAF_DROW : LEAF_DSTAT) + i, NOWHERE);
    }
    return n;
}

/* The norms of logarithms that are given, of those that the formulas read: behind all of these. */
static bool add_norms(struct maker *m)
{
    struct row_pass *pass = m->pass;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    ir_mark(m->w, m->w->row.root, m->w->row.n_roots, used);
    for (int i = 0; i < m->given.n_logs; i++) {
        const struct log_sum *log = &m->given.log[i];
        if (!used[log->norm])
            continue;
        const int added = ir_param(m->w, LEAF_ROWSUM + log->final, NOWHERE);
        struct row_norm *norm = &pass->norm[pass->n_norms++];
        *norm = (struct row_norm){.final = log->final};
        norm->term = add_root(m, log_sum_term(m->w, log));
        norm->norm = add_root(m, log_sum_norm(m->w, log, added, (lathe_dtype)m->problem->dtype[DTYPE_X]));
        if (norm->term < 0 || norm->norm < 0)
            return too_large(m);
    }
    return true;
}

static bool derive(struct maker *m)
{
    struct diag diag = {0};
    struct diff_result adjoint;
    int root[1 + MAX_STATE];
    int seed[1 + MAX_STATE];
    int n = take_seeds(m, root, seed);
    row_given_take(m->w, m->sig, m->problem, &m->given);
    if (!diff(m->w, root, seed, n, &adjoint, &diag) && diag.n == 0)
        return false; /* memory ran out */
    if (diag.n > 0) {
        char place[DIAG_PLACE_BYTES];
        diag_place(diag.entry[0].file, diag.entry[0].line, place);
        return refuse(m, "%.100s%.150s", place, diag.entry[0].text);
    }
    m->w->row.n_roots = 0;
    bool ok = true;
    for (int i = 0; i < adjoint.n && ok; i++)
        ok = add_gradient(m, adjoint.item[i].leaf, adjoint.item[i].adjoint);
    diff_free(&adjoint);
    return ok && add_zeros(m) && add_norms(m);
}

/* ---- leaves ---------------------------------------------------------------------------------------- */

static bool in_range(int index, int first)
{
    return index >= first && index < first + MAX_STATE;
}

/* The argument that a leaf reads by row, or -1; *row: a whole row of it. */
static int read_by_row(const struct maker *m, const struct ir_node *n, bool *row)
{
    const struct ir *w = m->pass->ir;
    *row = true;
    if (n->op == OP_LOAD)
        return w->input[n->index].rows == INPUT_ROW ? find_arg(m->sig, "", w->input[n->index].name) : -1;
    if (n->op != OP_PARAM)
        return -1;
    if (n->index == LEAF_ROWX || n->index == LEAF_DROWY)
        return find_arg(m->sig, "", n->index == LEAF_ROWX ? "x" : "dy");
    if (in_range(n->index, LEAF_DROW))
        return find_arg(m->sig, "d", w->final[n->index - LEAF_DROW].name);
    if (in_range(n->index, LEAF_SAVED))
        return find_arg(m->sig, "", w->final[n->index - LEAF_SAVED].name);
    *row = false;
    if (in_range(n->index, LEAF_FINAL))
        return find_arg(m->sig, "", w->final[n->index - LEAF_FINAL].name);
    return in_range(n->index, LEAF_DSTAT) ? find_arg(m->sig, "d", w->final[n->index - LEAF_DSTAT].name) : -1;
}

/* What the lowered formulas read by row. */
static bool find_reads(struct maker *m)
{
    struct row_pass *pass = m->pass;
    struct ir *w = pass->ir;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    bool ok = true;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && ok; i++) {
        bool row = false;
        int arg = used[i] ? read_by_row(m, &w->node[i], &row) : -1;
        if (arg >= 0)
            ok = row ? add_stream(pass->in, &pass->n_in, i, arg)
                     : add_value(pass->given, &pass->n_given, i, arg);
        for (int k = 0; k < pass->n_norms; k++)
            if (used[i] && w->node[i].op == OP_PARAM && w->node[i].index == LEAF_FINAL + pass->norm[k].final)
                pass->norm[k].given = pass->n_given - 1;
    }
    return ok || too_large(m);
}

/* Norms are behind all other roots. Few rows need them, so no plan is made for them. */
static void set_norms_apart(struct row_pass *pass)
{
    struct ir_fn *fn = &pass->ir->row;
    for (int k = 0; k < pass->n_norms; k++) {
        pass->norm[k].term = fn->root[pass->norm[k].term];
        pass->norm[k].norm = fn->root[pass->norm[k].norm];
    }
    fn->n_roots -= 2 * pass->n_norms;
}

/* walk[i]: the last walk along the row whose scans node i is made of; -1: none. */
static void operands_walk(const struct ir *w, int node, int *walk)
{
    walk[node] = -1;
    for (int k = 0; k < w->node[node].n_args; k++)
        if (walk[w->node[node].arg[k]] > walk[node])
            walk[node] = walk[w->node[node].arg[k]];
}

/* Scans run when the reductions of a row are done, in the first walk of their direction that is not before
   those of their operands. */
static bool take_scan(struct maker *m, int node, int *walk)
{
    struct row_pass *pass = m->pass;
    const struct ir_node *n = &pass->ir->node[node];
    const bool reverse = ir_scan_is_reverse(n->op);
    int at = walk[node] < 0 ? 0 : walk[node];
    while (at < pass->n_walks && pass->reverse[at] != reverse)
        at++;
    if (pass->n_scans == ROW_SCANS || at == ROW_WALKS) {
        char place[DIAG_PLACE_BYTES];
        place_of(pass->ir, n, place);
        return refuse(m,
                      "%.100smore than %d scans, or more than %d changes of direction from one to the next "
                      "(the host device computes it)",
                      place, ROW_SCANS, ROW_WALKS - 1);
    }
    if (at == pass->n_walks)
        pass->reverse[pass->n_walks++] = reverse;
    pass->walk[pass->n_scans] = at;
    pass->scan[pass->n_scans++] = node;
    walk[node] = at;
    return true;
}

/* In the order of their walks: those of one walk, and what each is made of, stay in order. */
static void sort_scans(struct row_pass *pass)
{
    for (int i = 1; i < pass->n_scans; i++)
        for (int k = i; k > 0 && pass->walk[k - 1] > pass->walk[k]; k--) {
            const int walk = pass->walk[k];
            const int scan = pass->scan[k];
            pass->walk[k] = pass->walk[k - 1];
            pass->scan[k] = pass->scan[k - 1];
            pass->walk[k - 1] = walk;
            pass->scan[k - 1] = scan;
        }
}

static bool find_scans(struct maker *m)
{
    const struct ir *w = m->pass->ir;
    bool *used = calloc((size_t)w->n_nodes + 1, sizeof *used);
    int *walk = calloc((size_t)w->n_nodes + 1, sizeof *walk);
    bool ok = used && walk;
    if (ok)
        ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && ok; i++) {
        operands_walk(w, i, walk);
        if (used[i] && ir_op_is_scan(w->node[i].op))
            ok = take_scan(m, i, walk);
        else if (used[i] && ir_op_is_reduction(w->node[i].op) && walk[i] >= 0) {
            char place[DIAG_PLACE_BYTES];
            place_of(w, &w->node[i], place);
            ok = refuse(m, "%.100sa reduction of a scan (the host device computes it)", place);
        }
    }
    sort_scans(m->pass);
    free(used);
    free(walk);
    return ok;
}

/* ---- the doors --------------------------------------------------------------------------------------- */

/* The formulas of an element as kernels compute them; the caller frees *out with ir_free. Else as
   rewriter_close of lower/rewrite.h. */
static lathe_status row_lower(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                              struct ir **out)
{
    struct rewriter r;
    if (!rewriter_open(&r, ir, sig, problem))
        return LATHE_MEMORY;
    rewrite_fn(&r, &r.w->row, -1);
    ir_passed(r.w, "rewrite");
    return rewriter_close(&r, out);
}

/* Formulas are there: lower them, and find what they read. Where there are no words why not, memory ran out.
 */
static lathe_status finish(struct maker *m)
{
    lathe_status status = lower_done(&m->w);
    if (status == LATHE_OK)
        status = row_lower(m->w, m->sig, m->problem, &m->pass->ir);
    if (status == LATHE_OK) {
        row_given_drop_sums(m->w, m->pass->ir, &m->given);
        if (find_reads(m) && find_scans(m))
            set_norms_apart(m->pass);
        else
            status = m->why[0] ? LATHE_UNSUPPORTED : LATHE_MEMORY;
    } else if (status == LATHE_UNSUPPORTED) {
        (void)refuse(m, IR_TOO_LARGE, IR_MAX_NODES);
    }
    return status;
}

static bool take_forward(struct maker *m)
{
    struct row_pass *pass = m->pass;
    const struct ir_fn formula = m->w->row;
    bool ok = true;
    m->w->row.n_roots = 0;
    if (!m->w->no_y)
        ok = add_stream(pass->out, &pass->n_out, add_root(m, formula.root[0]), find_arg(m->sig, "", "y"));
    for (int i = 0; i < m->w->n_finals && ok; i++) {
        int arg = find_arg(m->sig, "", m->w->final[i].name);
        bool row = (m->w->node[formula.root[1 + i]].span & SPAN_KV) != 0;
        if (m->sig->arg[arg].presence_built && !problem_has(m->problem, arg))
            continue; /* else a null pointer says it at launch */
        int root = add_root(m, formula.root[1 + i]);
        if (m->w->final[i].total) {
            struct row_site *site = root >= 0 ? insert_site(pass, arg) : NULL;
            ok = site != NULL;
            if (ok)
                *site = (struct row_site){.form = SITE_ROW, .root = root, .arg = arg};
            continue;
        }
        ok = root >= 0 && (row ? add_stream(pass->out, &pass->n_out, root, arg)
                               : add_value(pass->kept, &pass->n_kept, root, arg));
    }
    return ok || too_large(m);
}

lathe_status row_pass_make(const struct ir *ir, lathe_pass which, const struct signature *sig,
                           const struct problem *problem, struct row_pass *out, char *why)
{
    const bool backward = which == LATHE_BACKWARD;
    *out = (struct row_pass){0};
    *why = '\0';
    struct maker m = {.w = ir_clone(ir), .sig = sig, .problem = problem, .pass = out, .why = why};
    if (!m.w)
        return LATHE_MEMORY;
    ir_log_begin(m.w, backward ? "backward kernel" : "forward kernel");
    bool ok = backward ? derive(&m) : take_forward(&m);
    if (ok && m.w->row.n_roots == 0)
        ok = refuse(&m, backward
                            ? "no gradient is asked for: give dx or the d<input> of an input with grad = true"
                            : "no result is asked for: give a tensor for one of them");
    if (ok)
        ir_passed(m.w, backward ? "derive" : "results that are asked for");
    const bool full = m.w->failed && m.w->n_nodes >= IR_MAX_NODES;
    const bool lost = !full && (m.w->failed || !why[0]);
    lathe_status status = ok ? finish(&m) : lost ? LATHE_MEMORY : LATHE_UNSUPPORTED;
    ir_free(m.w);
    if (status != LATHE_OK)
        row_pass_free(out);
    return status;
}

void row_pass_free(struct row_pass *pass)
{
    ir_free(pass->ir);
    pass->ir = NULL;
}

bool row_pass_reduces(const struct row_pass *pass)
{
    const struct ir *w = pass->ir;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    bool any = false;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        any |= used[i] && ir_op_is_reduction(w->node[i].op);
    return any;
}

int row_pass_count(const struct row_pass *pass)
{
    const struct ir *w = pass->ir;
    bool used[IR_MAX_NODES];            /* no memory to run out of: it would be another shape */
    bool seen[UINT8_MAX + 1] = {false}; /* by phase */
    int passes = 0;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        if (used[i] && ir_op_is_reduction(w->node[i].op) && !seen[w->node[i].phase]) {
            seen[w->node[i].phase] = true;
            passes++;
        }
    return passes;
}

static bool has_form(const struct row_pass *pass, enum scan_form form)
{
    bool any = false;
    for (int i = 0; i < pass->n_scans; i++)
        any |= ir_scan_form(pass->ir->node[pass->scan[i]].op) == form;
    return any;
}

bool row_pass_has_powers(const struct row_pass *pass)
{
    return has_form(pass, SCAN_LOG) || has_form(pass, SCAN_WEIGHTED);
}

bool row_pass_has_ranks(const struct row_pass *pass)
{
    return has_form(pass, SCAN_RANK);
}

bool row_pass_has_first(const struct row_pass *pass, const struct signature *sig)
{
    bool any = false;
    for (int k = 0; k < pass->n_in; k++)
        any |= row_first(sig, pass->in[k].arg) > 0;
    for (int k = 0; k < pass->n_out; k++)
        any |= row_first(sig, pass->out[k].arg) > 0;
    return any;
}

int row_pass_reads(const struct row_pass *pass, int walks)
{
    bool used[IR_MAX_NODES];
    int n = 0;
    int bits = 0;
    while (n < pass->n_scans && pass->walk[n] < walks)
        n++;
    ir_mark(pass->ir, pass->scan, n, used);
    for (int k = 0; k < pass->n_in; k++)
        bits |= used[pass->in[k].node] ? 1 << k : 0;
    return bits;
}

int row_pass_carried_words(const struct row_pass *pass)
{
    int words = 0;
    for (int k = 0; k < pass->n_scans; k++)
        if (pass->walk[k] + 1 < pass->n_walks)
            words += ir_scan_form(pass->ir->node[pass->scan[k]].op) == SCAN_WEIGHTED ? 2 : 1;
    return words;
}
