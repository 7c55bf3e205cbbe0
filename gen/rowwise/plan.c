/*
 * plan.c: what the templates of rows ask first. In: a request. Out: its pass, or why none of them serves.
 */
#include "gen/rowwise/planner.h"
#include "runtime/recipe/bind.h"
#include "gen/rowwise/kernel.h"

#include <stdio.h>

static bool is_served(const struct kernel_request *r, char *why)
{
    /* Kernels step through a row with 32 bits: the step beyond its end has to fit as well. */
    static const int64_t MOST = ((int64_t)1 << 31) - (1 << 20);
    lathe_dtype dtype = r->problem->dtype[DTYPE_X];
    if (dtype != LATHE_F16 && dtype != LATHE_BF16 && dtype != LATHE_F32)
        snprintf(why, REASON_BYTES, "dtype %s; it takes f32, f16 and bf16", lathe_dtype_text(dtype));
    else if (r->problem->dim[SYM_N] > MOST)
        snprintf(why, REASON_BYTES, "n = %lld; it takes rows of at most %lld elements",
                 (long long)r->problem->dim[SYM_N], (long long)MOST);
    else
        return true;
    return false;
}

const struct row_pass *plan_row_pass(const struct kernel_request *r, char *why)
{
    return is_served(r, why) ? &r->rows->pass : NULL;
}

bool plan_is_half(const struct kernel_request *r, const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    if (n->op != OP_LOAD || lathe_dtype_size(r->problem->dtype[DTYPE_X]) != 2)
        return false;
    const int arg = lathe__arg_find(r->sig, w->input[n->index].name, 0);
    return arg >= 0 && r->problem->arg_dtype[arg] == r->problem->dtype[DTYPE_X];
}
