/*
 * plan_room.c: what several planners of linear attention ask alike. In: a request. Out: yes, or a sentence.
 */
#include "gen/linear/planner.h"

#include <inttypes.h>
#include <stdio.h>

bool linear_takes_dim(const struct kernel_request *r, enum sym sym, const char *name, int most, char *why)
{
    const int64_t dim = r->problem->dim[sym];
    if (dim >= ATTENTION_LEAST_DIM && dim <= most && dim % ATTENTION_DIM_STEP == 0)
        return true;
    snprintf(why, REASON_BYTES, "%s must be a multiple of %d from %d to %d, given %" PRId64, name,
             ATTENTION_DIM_STEP, ATTENTION_LEAST_DIM, most, dim);
    return false;
}

/* Are d and d_v what kernels of whole vectors take, up to `most`? */
static bool takes_dims(const struct kernel_request *r, int most, char *why)
{
    return linear_takes_dim(r, SYM_D, "d", most, why) && linear_takes_dim(r, SYM_D_V, "d_v", most, why);
}

bool linear_serves(const char *why_not, char *why)
{
    if (why_not)
        snprintf(why, REASON_BYTES, "%s", why_not);
    return !why_not;
}

bool linear_goes_back(const struct kernel_request *r, const char *why_not, int most, char *why)
{
    enum { LEAST_SM = 80 };
    if (!why_not && r->device->sm < LEAST_SM)
        why_not = "needs compute capability 8.0 or newer";
    return linear_serves(why_not, why) && plan_gradients_exist(r, why) && takes_dims(r, most, why);
}

bool linear_has_room(const struct kernel_request *r, int bytes, char *why)
{
    if (bytes <= r->device->smem_bytes)
        return true;
    snprintf(why, REASON_BYTES, "needs %d bytes of shared memory, and there are %d", bytes,
             r->device->smem_bytes);
    return false;
}
