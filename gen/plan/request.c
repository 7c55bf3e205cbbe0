/*
 * request.c: what has come of lowering a request. In: a status. Out: that, or a refusal with its words.
 */
#include "gen/plan/request.h"
#include "gen/ir/ir.h"

#include <stdio.h>

lathe_status request_settle(struct kernel_request *r, lathe_status status)
{
    if (status != LATHE_UNSUPPORTED)
        return status;
    snprintf(r->refused, sizeof r->refused, IR_TOO_LARGE, IR_MAX_NODES);
    return LATHE_OK;
}
