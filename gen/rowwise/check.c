/*
 * check.c: rules of rowwise for a whole spec: results by element or by row. In: traced IR. Out: the same, and
 * which inputs are rows, or diagnostics.
 */
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/ir/rules.h"
#include "gen/rowwise/columns.h"

#include <math.h>

static bool is_dim(struct sig_dim dim, int sym)
{
    return dim.literal == 0 && dim.sym == sym;
}

/* By its dims, and by all of its reads. */
static enum input_rows rows_of(const struct ir *ir, int input)
{
    const struct input *in = &ir->input[input];
    const bool integers = in->dtype == LATHE_I32 || in->dtype == LATHE_U8;
    const bool row = in->n_dims == 2 && !integers && is_dim(in->dim[1], SYM_N);
    if (in->is_scalar || !is_dim(in->dim[0], SYM_ROWS) || (in->n_dims != 1 && !row))
        return INPUT_TABLE;
    for (int i = 0; i < ir->n_nodes; i++) {
        const struct ir_node *n = &ir->node[i];
        if (n->op == OP_LOAD && n->index == input &&
            !(ir_is_at(ir, n->arg[0], AT_ROW) && (!row || ir_is_at(ir, n->arg[1], AT_COL))))
            return INPUT_TABLE;
    }
    return row ? INPUT_ROW : INPUT_VALUE;
}

static bool is_int32(double value)
{
    return value >= (double)INT32_MIN && value <= (double)INT32_MAX && value == floor(value);
}

/* Is result i the first elements of a row? They are of a row that is in order; integers stay what they are,
 * so that what stands for those that a row lacks is one, too. */
static bool check_first(struct rule *r, int i)
{
    const struct ir *ir = r->ir;
    const int root = ir->row.root[1 + i];
    if (ir->final[i].first == 0)
        return false;
    if (ir->node[root].op != OP_PLACED)
        rule_broken(r, &ir->row, 1 + i,
                    "first takes what is placed in an order: first(placed(v, rank(s)), 8, -inf)",
                    "forward (results)");
    else if (ir->node[root].type == TYPE_I32 && !is_int32(ir->final[i].fill))
        rule_broken(
            r, &ir->row, 1 + i,
            "first fills a row of integers with an integer, such as -1: first(placed(at.i, r), 8, -1)",
            "forward (results)");
    return true;
}

static void check_row(struct rule *r)
{
    struct ir *ir = r->ir;
    if (ir->row.n_roots == 0)
        return;
    rule_number(r, &ir->row, 0, SPAN_Q | SPAN_KV, "forward", "must be one value per element");
    for (int i = 0; i < ir->n_finals; i++) {
        if (check_first(r, i))
            continue;
        rule_number(r, &ir->row, 1 + i, ir->final[i].total ? SPAN_Q : SPAN_Q | SPAN_KV, "forward (results)",
                    "total adds up one value per row; reduce with rowsum first");
    }
    for (int i = 0; i < ir->n_inputs; i++)
        ir->input[i].rows = (uint8_t)rows_of(ir, i);
}

bool check_rowwise(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    check_row(&r);
    rule_names(&r);
    return r.ok;
}
