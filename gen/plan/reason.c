/*
 * reason.c: why a plan is as it is, for `lathe explain`. In: a plan. Out: facts.
 */
#include "gen/base/facts.h"
#include "gen/plan/plan.h"

void plan_explain_reason(struct facts *f, const struct plan *plan)
{
    facts_string(f, "reason", plan->reason);
    facts_line(f, "  reason        %s\n", plan->reason);
}
