/*
 * kernel.h: for tests: a plan, and what is emitted by it, of requests that are opened and closed here.
 */
#ifndef LATHE_TEST_KERNEL_H
#define LATHE_TEST_KERNEL_H

#include "check.h"
#include "gen/gen.h"

static inline lathe_status plan_of(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                                   const struct device *device, struct plan *plan, lathe_error *err)
{
    struct signature sig;
    struct kernel_request request;
    signature_make(ir, pass, &sig);
    CHECK_EQ(kernel_open(&request, ir, pass, &sig, problem, device, err), LATHE_OK);
    const lathe_status status = plan_pick(&request, plan, err);
    kernel_close(&request);
    return status;
}

static inline lathe_status emit_by(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                                   const struct device *device, const struct plan *plan, struct source *out,
                                   lathe_error *err)
{
    struct signature sig;
    struct kernel_request request;
    signature_make(ir, pass, &sig);
    CHECK_EQ(kernel_open(&request, ir, pass, &sig, problem, device, err), LATHE_OK);
    const lathe_status status = emit(&request, plan, out, err);
    kernel_close(&request);
    return status;
}

/* Plan `number` of those that serve; false: there are not so many. */
static inline bool candidate_of(const struct ir *ir, lathe_pass pass, const struct problem *problem,
                                const struct device *device, int number, struct plan *plan)
{
    struct signature sig;
    struct kernel_request request;
    lathe_error err;
    signature_make(ir, pass, &sig);
    CHECK_EQ(kernel_open(&request, ir, pass, &sig, problem, device, &err), LATHE_OK);
    const bool found = plan_candidate(&request, number, plan);
    kernel_close(&request);
    return found;
}

#endif
