/*
 * plan_pick.h: for the tests of plans: devices, as structs of numbers, and which plan a problem gets there.
 */
#ifndef LATHE_TEST_PLAN_PICK_H
#define LATHE_TEST_PLAN_PICK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "kernel.h"
#include "loaded.h"
#include "gen/gen.h"

static const struct device A100 = {.sm = 80, .sm_count = 108, .smem_bytes = 166912, .arch = "sm_80"};
static const struct device RTX4090 = {.sm = 89, .sm_count = 128, .smem_bytes = 101376, .arch = "sm_89"};
static const struct device H100 = {.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};

/* spec: the name of a shipped one, or a text. */
static inline lathe_status pick_pass(const char *spec, lathe_pass pass, const char *problem_text,
                                     const struct device *device, struct plan *plan, lathe_error *err)
{
    struct signature sig;
    struct problem problem;
    struct ir *ir = load_signed(spec, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, err), LATHE_OK);
    lathe_status status = plan_of(ir, pass, &problem, device, plan, err);
    ir_free(ir);
    return status;
}

static inline lathe_status pick(const char *spec, const char *problem_text, const struct device *device,
                                struct plan *plan, lathe_error *err)
{
    return pick_pass(spec, LATHE_FORWARD, problem_text, device, plan, err);
}

static inline struct device asking_for(const struct device *device, const char *name)
{
    struct device d = *device;
    snprintf(d.template_name, sizeof d.template_name, "%s", name);
    d.template_only = true;
    return d;
}

#endif
