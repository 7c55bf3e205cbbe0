/*
 * hopper.c: is code made for Hopper alone? In: a device or a request. Out: yes, or a sentence.
 */
#include "gen/plan/planner.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>
#include <string.h>

bool plan_for_hopper(const struct device *device)
{
    return strcmp(device->arch, "sm_90a") == 0;
}

bool plan_needs_hopper(const struct kernel_request *r, char *why)
{
    const int sm = r->device->sm;
    if (plan_for_hopper(r->device))
        return true;
    if (sm == 90)
        snprintf(why, REASON_BYTES, "code for %s, which runs on later devices, too; it needs sm_90a (wgmma)",
                 r->device->arch);
    else
        snprintf(why, REASON_BYTES, "compute capability %d.%d; it needs 9.0 (wgmma, TMA)", sm / 10, sm % 10);
    return false;
}
