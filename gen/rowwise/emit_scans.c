/*
 * emit_scans.c: what scans along a row add to the struct `variant` of emit.c: how many there are
 * and which walks make them, and what they take of an element. In: a row emitter, a plan. Out: text.
 */
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/pass.h"

int row_chunk(const struct row_pass *pass, const struct plan *plan)
{
    if (plan->row->form == PLAN_ROW_SCAN)
        return plan->rows.scan.places;
    const bool tall = plan->rows.inner && pass->n_scans > 0 && pass->n_columns == 0;
    const int vectors = tall ? 8 : plan->rows.vector == 1 ? 4 : 1;
    return vectors * plan->rows.vector * (plan->rows.threads / plan->rows.rows_per_block);
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

/* The first scan whose segments begin where those of scan k do. */
static int scan_start_of(const struct row_emitter *r, int k)
{
    const struct ir_node *node = r->e->w->node;
    const struct ir_node *scan = &node[r->pass->scan[k]];
    for (int l = 0; l < k; l++) {
        const struct ir_node *other = &node[r->pass->scan[l]];
        if (ir_scan_start(other) == ir_scan_start(scan))
            return l;
    }
    return k;
}

/* Do formulas of elements, but for the places where segments begin, read values of columns? */
static bool reads_columns(const struct row_emitter *r)
{
    const struct ir *w = r->e->w;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another text */
    bool reads = false;
    ir_mark(w, w->row.root, w->row.n_roots, used);
    for (int i = 0; i < w->n_nodes; i++) {
        const struct ir_node *n = &w->node[i];
        const int n_args = n->n_args - (ir_op_is_scan(n->op) && ir_scan_start(n) >= 0 ? 1 : 0);
        for (int k = 0; used[i] && n->span != SPAN_KV && k < n_args; k++)
            reads |= w->node[n->arg[k]].span == SPAN_KV;
    }
    for (int k = 0; k < w->row.n_roots; k++)
        reads |= w->node[w->row.root[k]].span == SPAN_KV;
    return reads;
}

static void emit_walks(struct row_emitter *r, const struct plan *plan)
{
    const struct row_pass *pass = r->pass;
    struct text_buf *out = r->e->out;
    int form[ROW_SCANS];
    int reverse[ROW_WALKS];
    int reads[ROW_WALKS];
    int starts[ROW_SCANS];
    int start_of[ROW_SCANS];
    int beside[ROW_SCANS];
    for (int k = 0; k < pass->n_scans; k++) {
        beside[k] = scan_beside(r, k);
        const struct ir_node *scan = &r->e->w->node[pass->scan[k]];
        form[k] = (int)ir_scan_form(scan->op);
        starts[k] = (int)row_scan_starts(pass, k);
        start_of[k] = scan_start_of(r, k);
    }
    for (int k = 0; k < pass->n_walks; k++) {
        reverse[k] = pass->reverse[k];
        reads[k] = row_pass_reads(pass, k + 1);
    }
    text_add(out, "    static constexpr int SCANS = %d, WALKS = %d, CHUNK = %d;\n", pass->n_scans,
             pass->n_walks, row_chunk(pass, plan));
    row_emit_list(out, "int", "SCAN_FORM", form, pass->n_scans);
    row_emit_list(out, "int", "SCAN_WALK", pass->walk, pass->n_scans);
    row_emit_list(out, "int", "SCAN_STARTS", starts, pass->n_scans);
    if (pass->n_scans > 0)
        row_emit_list(out, "int", "SCAN_START_OF", start_of, pass->n_scans);
    text_add(out, "    static constexpr bool COLS_BESIDE_STARTS = %s;\n", yes(reads_columns(r)));
    row_emit_list(out, "int", "SCAN_BESIDE", beside, pass->n_scans);
    row_emit_list(out, "bool", "WALK_REVERSE", reverse, pass->n_walks);
    if (pass->n_walks > 1)
        row_emit_list(out, "int", "WALK_READS", reads, pass->n_walks);
}

/* What a scan takes of an element, in the order of its operands. */
void row_emit_scans(struct row_emitter *r, const struct plan *plan)
{
    static const char *const FIELD[][IR_MAX_ARGS] = {
        [SCAN_SUM] = {"value", "start"},
        [SCAN_LOG] = {"power", "start"},
        [SCAN_WEIGHTED] = {"value", "power", "shift", "start"},
        [SCAN_RANK] = {"value"},
        [SCAN_PLACED] = {"value", "shift"},
        [SCAN_TAKEN] = {"value", "shift"},
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
        for (int a = 0; a < n.n_args; a++) {
            const bool start = n.arg[a] == ir_scan_start(&n) && a + 1 == n.n_args;
            const bool bits = n.type == TYPE_I32 && n.op != OP_RANK && a == 0;
            text_add(out, "        to.%s = %s%s%s;\n", FIELD[ir_scan_form(n.op)][a],
                     bits ? "__int_as_float(" : "", node_text(r->e, n.arg[a], text, sizeof text),
                     bits    ? ")"
                     : start ? " != 0.0f"
                             : "");
        }
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}
