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

static bool is_of_size(const struct kernel_request *r, const struct row_stream *rows, lathe_dtype dtype)
{
    return lathe_dtype_size((lathe_dtype)r->problem->arg_dtype[rows->arg]) == lathe_dtype_size(dtype);
}

bool plan_is_single(const struct kernel_request *r)
{
    const struct row_pass *pass = &r->rows->pass;
    const lathe_dtype dtype = (lathe_dtype)r->problem->dtype[DTYPE_X];
    return r->pass == LATHE_FORWARD && pass->n_in == 1 && pass->n_out == 1 && pass->n_sites == 0 &&
           pass->n_scans == 0 && !r->ir->inner && is_of_size(r, &pass->in[0], dtype) &&
           is_of_size(r, &pass->out[0], dtype);
}
