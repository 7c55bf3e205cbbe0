/*
 * plan_reread.c: which rows the passes of a row-wise kernel read again, from L1 and L2, and do not hold in
 * registers. In: a request and its pass. Out: how many vectors of a row a thread has, or none.
 *
 * A thread then needs 32 to 48 registers, so that an SM is full of threads, and what the last pass has read
 * is the first that L2 gives up. As measured on an H200, rows of 8192 in bf16, share of a device copy:
 * l2_norm and srms_norm backward 1.04 to 1.055 (held in shared memory 1.00), srms_norm 1.02 (held in
 * registers 0.99), rms_norm_residual 1.017 (0.99), rms_norm 1.021 (1.017), rms_norm_gate 1.013 (0.975), whose
 * first pass reads x alone. Three reads lose: layer_norm 0.956 (0.987). Two of them where one pass makes sum
 * and spread lose, too (0.925), but not where rows of x and of their sum go out: layer_norm_residual of 4096,
 * 6144 and 8192 elements 1.01, 1.013, 1.018 (0.933, 0.979, 0.996).
 */
#include "gen/rowwise/pass.h"
#include "gen/rowwise/planner.h"

enum { FEWEST = 512, MOST = 1024 }; /* vectors of a row */

/* Passes over the row in front of the last one. One that makes spreads counts as the two that it stands for:
 * the plan without them says which kernel has the rows. */
static int count_passes(const struct row_pass *pass, const bool *used)
{
    const struct ir *w = pass->ir;
    int passes = row_pass_count(pass);
    for (int i = 0; i < w->n_nodes; i++)
        passes += used[i] && variance_sum(w, i) >= 0;
    return passes;
}

/* What do elements read beside the rows: 0: nothing, 1: inputs by column, 2: by row and column. */
static int reads_beside(const struct ir *w, const bool *used)
{
    int most = 0;
    for (int i = 0; i < w->n_nodes; i++) {
        const struct ir_node *n = &w->node[i];
        if (!used[i] || n->op != OP_LOAD || (n->span & SPAN_KV) == 0)
            continue;
        most = n->span != SPAN_KV ? 2 : most > 1 ? most : 1;
    }
    return most;
}

/* Are the reductions made of every tensor of rows? */
static bool reduces_all(const struct row_pass *pass)
{
    const struct ir *w = pass->ir;
    bool used[IR_MAX_NODES];
    int tensors = 0; /* bits */
    for (int i = 0; i < w->n_nodes; i++) {
        if (!ir_op_is_reduction(w->node[i].op))
            continue;
        ir_mark(w, &i, 1, used);
        for (int k = 0; k < pass->n_in; k++)
            tensors |= used[pass->in[k].node] ? 1 << k : 0;
    }
    return tensors == (1 << pass->n_in) - 1;
}

/* Is one pass made of two? Where two rows go out, all that elements read is of 16 bits, and threads have all
   of their vectors, `each` of them: what else was tried spills. */
static bool may_take_variance(const struct kernel_request *r, const struct row_pass *pass, const bool *used,
                              int64_t vectors, int each)
{
    const struct ir *w = pass->ir;
    bool plain =
        r->pass == LATHE_FORWARD && pass->n_out == 2 && reduces_all(pass) && vectors % (32 * each) == 0;
    for (int i = 0; plain && i < w->n_nodes; i++)
        if (used[i] && w->node[i].op == OP_LOAD && (w->node[i].span & SPAN_KV))
            plain = !row_is_cell(w, i) && plan_is_half(r, w, i);
    return plain && lathe_dtype_size(r->problem->dtype[DTYPE_X]) == 2 && variance_passes(w) == 1;
}

void plan_reread(const struct kernel_request *r, const struct row_pass *pass, struct plan_again *again)
{
    const struct ir *w = pass->ir;
    const int vector = 16 / (int)lathe_dtype_size(r->problem->dtype[DTYPE_X]);
    const int64_t n = r->problem->dim[SYM_N];
    const int64_t vectors = n / vector;
    bool used[IR_MAX_NODES]; /* no memory to run out of: it would be another shape */
    *again = (struct plan_again){0};
    ir_mark(w, w->row.root, w->row.n_roots, used);
    const bool whole = r->problem->unaligned == 0 && n % vector == 0 && !r->ir->inner;
    const bool rows = pass->n_in >= 1 && pass->n_in <= 2 && pass->n_out >= 1 && pass->n_sites == 0;
    if (!whole || !rows || pass->n_scans > 0 || vectors < FEWEST || vectors > MOST)
        return;
    const int beside = reads_beside(w, used);
    const bool one = pass->n_in == 1 && pass->n_out == 1;
    /* the first pass reads some tensors alone, and no thread has half of its vectors: what that asks for
       is spilled */
    const bool apart = !reduces_all(pass) && vectors % 64 == 0;
    const int each = one && beside == 2 ? 4 : 2;
    const int passes = count_passes(pass, used);
    again->beside = beside > 0;
    again->registers = (plan_is_single(r) ? beside == 2 : again->beside && !apart) ? 40 : 32;
    again->variance = passes == 2 && may_take_variance(r, pass, used, vectors, each);
    const bool fits = !again->beside || one || pass->n_out > 1 || apart; /* else they wait in shared memory */
    again->each = fits && (passes == 1 || again->variance) ? each : 0;
}
