/*
 * templates.c: the templates of maps, and what each writes into the config. In: a plan. Out: constants,
 * labels. A new template is a row here.
 */
#include "gen/elementwise/columns.h"
#include "gen/elementwise/planner.h"
#include "gen/base/text.h"
#include "gen/emit/emit.h"
#include "gen/plan/plan.h"
#include "gen/plan/template.h"

#include <stdio.h>

static void config(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    (void)problem;
    text_add(t, "constexpr int THREADS = %d, VECTOR = %d, UNROLL = %d, STEPS = %d, TURNS = %d;\n",
             plan->maps.threads, plan->maps.vector, plan->maps.unroll, plan->maps.steps, plan->maps.turns);
    text_add(t, "constexpr int MIN_BLOCKS = %d;\n", plan->maps.min_blocks);
    text_add(t, "constexpr bool LONG_LOOPS = %s, AHEAD = %s;\nconstexpr unsigned BUSY_THREADS = %d;\n",
             yes(plan->maps.long_loops), yes(plan->maps.ahead), plan->maps.blocks * plan->maps.threads / 2);
}

static void label(const struct problem *problem, const struct plan *plan, char *out, size_t size)
{
    (void)problem;
    snprintf(out, size, "t%dv%du%ds%d", plan->maps.threads, plan->maps.vector, plan->maps.unroll,
             plan->maps.steps);
}

const struct template_row elementwise_templates[] = {
    {.name = "elementwise",
     .form = PLAN_MAPS,
     .file = "elementwise/map.cuh",
     .pass = LATHE_FORWARD,
     .ok = plan_elementwise,
     .config = config,
     .label = label,
     .any_batch = true},
    {.name = "elementwise_gather",
     .form = PLAN_MAPS,
     .file = "elementwise/gather.cuh",
     .pass = LATHE_BACKWARD,
     .ok = plan_elementwise_gather,
     .config = config,
     .label = label},
    {.name = "elementwise_bwd",
     .form = PLAN_MAPS,
     .file = "elementwise/map.cuh",
     .pass = LATHE_BACKWARD,
     .ok = plan_elementwise_bwd,
     .config = config,
     .label = label,
     .any_batch = true},
    {.name = NULL},
};
