/*
 * explain.c: the numbers of a plan for `lathe explain`. In: a plan. Out: facts.
 */
#include "gen/base/facts.h"
#include "gen/linear/columns.h"
#include "gen/linear/lower.h"
#include "gen/plan/plan.h"

void linear_explain(struct facts *f, const struct plan *plan)
{
    const struct linear_plan *linear = &plan->linear;
    facts_open(f, "state", '{');
    facts_integer(f, "value_slices", linear->slices);
    facts_integer(f, "warps", linear->warps);
    facts_close(f);
    facts_line(f, "  state         cut into %d slices of value channels", linear->slices);
    if (linear->chunk > 0)
        facts_line(f, " and %d of key channels, kept every %d tokens", linear->row_slices, linear->chunk);
    facts_line(f, "; a block of %d warps for a slice of a head of a sequence\n", linear->warps);
    plan_explain_reason(f, plan);
}
