/*
 * row_pass.c: the backward pass of a row-wise spec as one function of rows. In: a checked spec and a problem.
 * Out: struct row_pass, whose lowered pool the caller frees. diff() gives the adjoint of x and of every read
 * of an input; a read at at.i becomes a sum over the rows for each column, one at a fixed place a sum over
 * all elements, one at at.row a value kept per row, one at (at.row, at.i) a row. A statistic that the caller
 * gives stands for its formula, so that what it is made of is not reduced again.
 */
#include "row_pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lower.h"

struct maker {
    struct ir *w; /* a clone of the spec, in which formulas are made */
    const struct signature *sig;
    const struct problem *problem;
    struct row_pass *pass;
    char *why;
    int n_known; /* statistics that are given: from formula to parameter */
    int from[MAX_STATE];
    int to[MAX_STATE];
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

static bool is_present(const struct maker *m, int arg)
{
    return arg >= 0 && arg_in(m->problem->present, arg);
}

static bool refuse(const struct maker *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(const struct maker *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(m->why, ROW_WHY_BYTES, fmt, args);
    va_end(args);
    return false;
}

/* ---- roots ------------------------------------------------------------------------------------- */

/* A formula of the pass, with the statistics that are given in place of theirs. -1: too many. */
static int add_root(struct maker *m, int node)
{
    struct ir_fn *fn = &m->w->row;
    if (fn->n_roots == MAX_ROOTS)
        return -1;
    fn->root[fn->n_roots] = ir_substitute(m->w, node, m->from, m->to, m->n_known);
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

static bool too_large(const struct maker *m)
{
    return refuse(m,
                  "the backward pass has more than %d tensors of rows, %d values per row, %d gradients or "
                  "%d formulas",
                  ROW_STREAMS, ROW_VALUES, ROW_SITES, MAX_ROOTS);
}

/* ---- gradients of inputs ------------------------------------------------------------------------- */

static bool is_field(const struct ir *w, int node, int field)
{
    return w->node[node].op == OP_AT && w->node[node].index == field;
}

/* What the reads of an input of row shape, or of one value per row, look like. */
static bool reads_row(const struct ir *w, const struct ir_node *n, int n_dims)
{
    const struct input *in = &w->input[n->index];
    bool row = n->op == OP_LOAD && n->n_args == n_dims && in->dim[0].sym == SYM_ROWS &&
               in->dim[0].literal == 0 && is_field(w, n->arg[0], AT_ROW);
    if (row && n_dims == 2)
        row = in->dim[1].sym == SYM_N && in->dim[1].literal == 0 && is_field(w, n->arg[1], AT_COL);
    return row;
}

/* Sites of one input stay together. */
static struct row_site *insert_site(struct row_pass *pass, int input)
{
    if (pass->n_sites == ROW_SITES)
        return NULL;
    int at = pass->n_sites++;
    while (at > 0 && pass->site[at - 1].input > input) {
        pass->site[at] = pass->site[at - 1];
        at--;
    }
    pass->site[at] = (struct row_site){.input = input};
    return &pass->site[at];
}

static bool add_site(struct maker *m, int leaf, int adjoint)
{
    const struct ir_node n = m->w->node[leaf]; /* the pool may move */
    bool column = n.n_args > 0 && is_field(m->w, n.arg[n.n_args - 1], AT_COL);
    int n_index = n.n_args - column;
    for (int k = 0; k < n_index; k++)
        if (m->w->node[n.arg[k]].span != 0)
            return refuse(
                m,
                "the gradient of input '%s' is summed by at.i, at.row or a place that is the same for "
                "all rows; line %d reads it by something else (the host device computes it)",
                m->w->input[n.index].name, (int)n.line);
    struct row_site *site = insert_site(m->pass, n.index);
    if (!site)
        return too_large(m);
    site->form = column ? SITE_COLUMN : SITE_ROW;
    site->root = add_root(m, adjoint);
    site->n_index = n_index;
    m->pass->n_columns += column;
    bool ok = site->root >= 0;
    for (int k = 0; k < n_index; k++)
        ok &= (site->index[k] = add_root(m, n.arg[k])) >= 0;
    return ok || too_large(m);
}

/* Is a gradient there already: as rows, per row, or (input >= 0) as a sum? */
static bool is_made(const struct row_pass *pass, int arg, int input)
{
    bool made = false;
    for (int i = 0; i < pass->n_out; i++)
        made |= pass->out[i].arg == arg;
    for (int i = 0; i < pass->n_kept; i++)
        made |= pass->kept[i].arg == arg;
    for (int i = 0; i < pass->n_sites && input >= 0; i++)
        made |= pass->site[i].input == input;
    return made;
}

static bool add_gradient(struct maker *m, int leaf, int adjoint)
{
    const struct ir_node n = m->w->node[leaf];
    struct row_pass *pass = m->pass;
    int arg = -1;
    if (n.op == OP_PARAM)
        arg = n.index == PARAM_ROWX ? find_arg(m->sig, "", "dx") : -1;
    else
        arg = find_arg(m->sig, "d", m->w->input[n.index].name);
    if (!is_present(m, arg))
        return true;
    bool row = n.op == OP_PARAM || reads_row(m->w, &n, 2) || reads_row(m->w, &n, 1);
    if (is_made(pass, arg, row ? n.index : -1))
        return refuse(m, "input '%s' is read both by row and otherwise: its gradient runs on the host device",
                      m->w->input[n.index].name);
    bool ok = true;
    if (n.op == OP_PARAM || reads_row(m->w, &n, 2))
        ok = add_stream(pass->out, &pass->n_out, add_root(m, adjoint), arg) &&
             pass->out[pass->n_out - 1].node >= 0;
    else if (reads_row(m->w, &n, 1))
        ok = add_value(pass->kept, &pass->n_kept, add_root(m, adjoint), arg) &&
             pass->kept[pass->n_kept - 1].node >= 0;
    else
        return add_site(m, leaf, adjoint);
    return ok || too_large(m);
}

/* Something that is wanted and that nothing depends on is zero. */
static bool add_zeros(struct maker *m)
{
    struct row_pass *pass = m->pass;
    int zero = ir_const(m->w, 0.0, TYPE_F32);
    int dx = find_arg(m->sig, "", "dx");
    if (is_present(m, dx) && !is_made(pass, dx, -1) &&
        !add_stream(pass->out, &pass->n_out, add_root(m, zero), dx))
        return too_large(m);
    for (int i = 0; i < m->w->n_inputs; i++) {
        int arg = m->w->input[i].grad ? find_arg(m->sig, "d", m->w->input[i].name) : -1;
        if (!is_present(m, arg) || is_made(pass, arg, i))
            continue;
        struct row_site *site = insert_site(pass, i); /* a sum that takes no element */
        if (!site)
            return too_large(m);
        site->form = SITE_ROW;
        site->root = add_root(m, zero);
        if (site->root < 0)
            return too_large(m);
    }
    return true;
}

/* ---- the pass ------------------------------------------------------------------------------------ */

/* dL of what the spec returns: dy, and d<statistic> where it is given. */
static int take_seeds(struct maker *m, int *root, int *seed)
{
    const struct ir *w = m->w;
    int n = 0;
    root[n] = w->row.root[0];
    seed[n++] = ir_param(m->w, PARAM_DROWY, NOWHERE);
    for (int i = 0; i < w->n_finals; i++) {
        if (!is_present(m, find_arg(m->sig, "d", w->final[i].name)))
            continue;
        root[n] = w->row.root[1 + i];
        seed[n++] = ir_param(m->w, PARAM_DSTAT + i, NOWHERE);
    }
    return n;
}

/* A statistic that varies with nothing needs no reading. */
static void take_statistics(struct maker *m)
{
    for (int i = 0; i < m->w->n_finals; i++) {
        int formula = m->w->row.root[1 + i];
        if (!is_present(m, find_arg(m->sig, "", m->w->final[i].name)) || m->w->node[formula].phase == 0)
            continue;
        m->from[m->n_known] = formula;
        m->to[m->n_known++] = ir_param(m->w, PARAM_FINAL + i, NOWHERE);
    }
}

static bool derive(struct maker *m)
{
    struct diag diag = {0};
    struct diff_result adjoint;
    int root[1 + MAX_STATE];
    int seed[1 + MAX_STATE];
    int n = take_seeds(m, root, seed);
    take_statistics(m);
    if (!diff(m->w, root, seed, n, &adjoint, &diag))
        return refuse(m, "%.100s:%d: %.120s", diag.entry[0].file, diag.entry[0].line, diag.entry[0].text);
    m->w->row.n_roots = 0;
    bool ok = true;
    for (int i = 0; i < adjoint.n && ok; i++)
        ok = add_gradient(m, adjoint.item[i].leaf, adjoint.item[i].adjoint);
    diff_free(&adjoint);
    return ok && add_zeros(m);
}

/* The leaves that the lowered formulas read by row. */
static bool find_reads(struct maker *m)
{
    struct row_pass *pass = m->pass;
    struct ir *w = pass->ir;
    bool *used = calloc((size_t)w->n_nodes + 1, sizeof *used);
    bool ok = used != NULL;
    if (used)
        ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes && ok; i++) {
        const struct ir_node *n = &w->node[i];
        if (!used[i])
            continue;
        if (n->op == OP_PARAM && (n->index == PARAM_ROWX || n->index == PARAM_DROWY))
            ok = add_stream(pass->in, &pass->n_in, i,
                            find_arg(m->sig, "", n->index == PARAM_ROWX ? "x" : "dy"));
        else if (n->op == OP_PARAM && n->index >= PARAM_FINAL && n->index < PARAM_FINAL + MAX_STATE)
            ok = add_value(pass->given, &pass->n_given, i,
                           find_arg(m->sig, "", w->final[n->index - PARAM_FINAL].name));
        else if (n->op == OP_PARAM && n->index >= PARAM_DSTAT && n->index < PARAM_DSTAT + MAX_STATE)
            ok = add_value(pass->given, &pass->n_given, i,
                           find_arg(m->sig, "d", w->final[n->index - PARAM_DSTAT].name));
    }
    free(used);
    return ok || too_large(m);
}

bool row_pass_backward(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                       struct row_pass *out, char *why)
{
    *out = (struct row_pass){0};
    struct maker m = {.w = ir_clone(ir), .sig = sig, .problem = problem, .pass = out, .why = why};
    if (!m.w)
        return refuse(&m, "out of memory");
    bool ok = derive(&m);
    if (ok && m.w->row.n_roots == 0)
        ok = refuse(&m, "no gradient is asked for: give dx or the d<input> of an input with grad = true");
    if (ok) {
        out->ir = m.w->failed ? NULL : lower(m.w, sig, problem);
        ok = out->ir ? find_reads(&m)
                     : refuse(&m, "the formulas need more than %d nodes, or memory ran out", IR_MAX_NODES);
    }
    ir_free(m.w);
    return ok;
}

void row_pass_free(struct row_pass *pass)
{
    ir_free(pass->ir);
    pass->ir = NULL;
}
