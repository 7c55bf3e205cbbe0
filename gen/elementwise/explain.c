/*
 * explain.c: the numbers of a plan for `lathe explain`. In: a plan. Out: facts.
 */
#include "gen/base/facts.h"
#include "gen/elementwise/columns.h"
#include "gen/elementwise/lower.h"
#include "gen/plan/plan.h"

void elementwise_explain(struct facts *f, const struct plan *plan)
{
    const struct map_plan *maps = &plan->maps;
    facts_open(f, "block", '{');
    facts_integer(f, "threads", maps->threads);
    facts_integer(f, "vector", maps->vector);
    facts_close(f);
    facts_integer(f, "shared_memory", 0);
    facts_line(
        f, "  block         %d threads, each %d points of the last dim and %d steps or more along another\n",
        maps->threads, maps->vector, maps->steps);
    facts_line(f, "  shared memory 0 bytes\n");
    plan_explain_reason(f, plan);
}
