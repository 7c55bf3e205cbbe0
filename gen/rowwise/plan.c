/*
 * plan.c: what the templates of rows ask first. In: a request. Out: its pass, or why none of them serves.
 */
#include "gen/rowwise/planner.h"
#include "runtime/recipe/bind.h"
#include "gen/rowwise/kernel.h"

#include <stdio.h>

bool plan_is_half(const struct kernel_request *r, const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    if (n->op != OP_LOAD || lathe_dtype_size(r->problem->dtype[DTYPE_X]) != 2)
        return false;
    const int arg = lathe__arg_find(r->sig, w->input[n->index].name, 0);
    return arg >= 0 && r->problem->arg_dtype[arg] == r->problem->dtype[DTYPE_X];
}
