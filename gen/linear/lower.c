/*
 * lower.c: formulas of linear attention as kernels compute them. In: a request. Out: a rewritten clone, and
 * in the backward pass what was derived in it.
 */
#include "gen/arguments/problem.h"
#include "gen/ir/log.h"
#include "gen/linear/columns.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/lower/rewrite.h"
#include "gen/plan/request.h"

#include <stdio.h>
#include <stdlib.h>

// NOLINTNEXTLINE(readability-non-const-parameter): the type of linear_back_each_root's function
static void rewrite_one(void *context, int *root)
{
    *root = rewrite_node(context, *root, -1);
}

static void rewrite_all(struct rewriter *r)
{
    struct ir *w = r->w;
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages; s++)
            rewrite_fn(r, &w->mod[m].stage[s].fn, -1);
    rewrite_fn(r, &w->scale, -1);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        rewrite_fn(r, &w->linear.slot[k], -1);
}

static bool derive(struct rewriter *r, const struct kernel_request *of, struct linear_back *back, char *why)
{
    linear_back_find_wanted(of->ir, of->sig, of->problem, back);
    return linear_back_derive(r->w, back, why);
}

/* r->refused says why packed sequences are. */
static bool refuses_packed(struct kernel_request *r)
{
    const int input = linear_reads_by_batch(r->ir);
    if (input < 0 || !problem_has_named(r->sig, r->problem, "cu"))
        return false;
    linear_say_unpacked(r->ir, input, r->refused, sizeof r->refused);
    return true;
}

/* Kernels know one step of the recurrence a token: what they compute is a spec of steps. */
static bool take_steps(struct kernel_request *r)
{
    if (ir_steps(r->ir) == 1)
        return true;
    r->linear->by_step = linear_by_step(r->ir);
    if (!r->linear->by_step)
        return false;
    r->ir = r->linear->by_step;
    r->spec = r->ir;
    return true;
}

lathe_status linear_lower(struct kernel_request *r)
{
    struct rewriter rewriter;
    char why[SITES_WHY_BYTES] = "";
    r->linear = calloc(1, sizeof *r->linear);
    if (r->linear && refuses_packed(r))
        return LATHE_OK;
    if (!r->linear || !take_steps(r) || !rewriter_open(&rewriter, r->ir, r->sig, r->problem))
        return LATHE_MEMORY;
    struct linear_back *back = &r->linear->back;
    const bool backward = r->pass == LATHE_BACKWARD;
    ir_log_begin(rewriter.w, backward ? "backward kernel" : "forward kernel");
    const bool derived = !backward || derive(&rewriter, r, back, why);
    if (derived && backward)
        ir_passed_with(rewriter.w, "derive", linear_back_print, back);
    if (derived)
        rewrite_all(&rewriter);
    if (derived && backward) {
        linear_back_each_root(back, rewriter.w, rewrite_one, &rewriter);
        if (!rewriter.w->failed)
            linear_back_settle(rewriter.w, back);
    }
    if (derived)
        ir_passed_with(rewriter.w, "rewrite", linear_back_print, back);
    const lathe_status status = rewriter_close(&rewriter, &r->linear->w);
    if (status != LATHE_OK || derived)
        return request_settle(r, status);
    ir_free(r->linear->w);
    r->linear->w = NULL;
    snprintf(r->refused, sizeof r->refused, "%s", why);
    return why[0] ? LATHE_OK : LATHE_MEMORY;
}

void linear_release(struct kernel_request *r)
{
    if (r->linear) {
        ir_free(r->linear->w);
        ir_free(r->linear->by_step);
    }
    free(r->linear);
}
