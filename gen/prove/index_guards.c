/*
 * index_guards.c: comparisons that ask whether an index lies in the tensor that it reads. In: a spec. Out: is
 * it one? On the host device such a read is an error where the answer is no, so that no data of a proof can
 * show that side; kernels, whose index is clamped, take it.
 */
#include "gen/ir/spec.h"
#include "gen/prove/index_ranges.h"

/* A size of the problem, or a number; -1: neither. */
static int size_sym(const struct ir_node *n)
{
    static const struct {
        int field, sym;
    } SIZES[] = {{AT_N, SYM_N},     {AT_LEN_Q, SYM_Q}, {AT_LEN_KV, SYM_KV},
                 {AT_LEN_T, SYM_T}, {AT_N_B, SYM_B},   {AT_N_H, SYM_H}};
    if (n->op != OP_AT)
        return -1;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (n->index == SIZES[i].field)
            return SIZES[i].sym;
    return n->index >= AT_FREE0 ? SYM_FREE + n->index - AT_FREE0 : -1;
}

static bool is_number(const struct ir *ir, int node, double value)
{
    return ir->node[node].op == OP_CONST && ir->node[node].value == value;
}

/* Is it the size of that dim, less `less`? */
static bool is_size(const struct ir *ir, int node, const struct sig_dim *dim, double less)
{
    const struct ir_node *n = &ir->node[node];
    if (dim->literal > 0)
        return is_number(ir, node, dim->literal - less);
    if (less == 0)
        return size_sym(n) == dim->sym;
    const bool below = (n->op == OP_SUB && is_number(ir, n->arg[1], less)) ||
                       (n->op == OP_ADD && is_number(ir, n->arg[1], -less));
    return below && size_sym(&ir->node[n->arg[0]]) == dim->sym;
}

/* eq(clamp(i, 0, size - 1), i), ge(i, 0), lt(i, size), or what is true where one of these is not. */
static bool compares(const struct ir *ir, const struct ir_node *n, int index, const struct sig_dim *dim)
{
    const int other = n->arg[n->arg[0] == index];
    const struct ir_node *clamp = &ir->node[other];
    if (n->arg[0] != index && n->arg[1] != index)
        return false;
    if (n->op == OP_EQ || n->op == OP_NE)
        return clamp->op == OP_CLAMP && clamp->arg[0] == index && is_number(ir, clamp->arg[1], 0) &&
               is_size(ir, clamp->arg[2], dim, 1);
    const bool first = n->arg[0] == index;
    if (n->op == OP_LT || n->op == OP_GE)
        return first && (is_number(ir, other, 0) || is_size(ir, other, dim, 0));
    return (n->op == OP_GT || n->op == OP_LE) && !first &&
           (is_number(ir, other, 0) || is_size(ir, other, dim, 0));
}

static bool compares_index(const struct ir *ir, const struct ir_node *n)
{
    for (int i = 0; i < ir->n_nodes; i++)
        for (int d = 0; ir->node[i].op == OP_LOAD && d < ir->node[i].n_args; d++)
            if (compares(ir, n, ir->node[i].arg[d], &ir->input[ir->node[i].index].dim[d]))
                return true;
    return false;
}

bool index_guard(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    if (n->op == OP_AND)
        return index_guard(ir, n->arg[0]) && index_guard(ir, n->arg[1]);
    return n->op >= OP_LT && n->op <= OP_NE && compares_index(ir, n);
}
