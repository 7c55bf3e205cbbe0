/*
 * kernel.c: a row-wise pass lowered for a request. In: a request. Out: struct row_kernel, or why there is
 * none; nothing of it depends on the device.
 */
#include "gen/rowwise/columns.h"
#include "gen/rowwise/kernel.h"
#include "gen/ir/log.h"
#include "gen/plan/request.h"

#include <stdlib.h>

/* Not every spec has variances. */
static lathe_status lower_variance(struct row_kernel *k)
{
    k->variance = ir_clone(k->pass.ir);
    if (!k->variance)
        return LATHE_MEMORY;
    if (variance_take(k->variance) && !k->variance->failed) {
        ir_passed(k->variance, "variance");
        return LATHE_OK;
    }
    ir_free(k->variance);
    k->variance = NULL;
    return LATHE_OK;
}

static lathe_status lower(struct kernel_request *r, struct row_kernel *k)
{
    const lathe_status status = row_pass_make(r->ir, r->pass, r->sig, r->problem, &k->pass, r->refused);
    if (status != LATHE_OK)
        return status == LATHE_UNSUPPORTED ? LATHE_OK : status;
    return lower_variance(k);
}

lathe_status rowwise_lower(struct kernel_request *r)
{
    r->rows = calloc(1, sizeof *r->rows);
    return r->rows ? lower(r, r->rows) : LATHE_MEMORY;
}

void rowwise_release(struct kernel_request *r)
{
    if (r->rows) {
        row_pass_free(&r->rows->pass);
        ir_free(r->rows->variance);
    }
    free(r->rows);
}
