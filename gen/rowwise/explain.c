/*
 * explain.c: the numbers of a plan for `lathe explain`. In: a plan. Out: facts.
 */
#include "gen/base/facts.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/columns.h"
#include "gen/rowwise/kernel.h"

void rowwise_explain(struct facts *f, const struct plan *plan)
{
    const struct row_plan *rows = &plan->rows;
    facts_open(f, "block", '{');
    facts_integer(f, "threads", rows->threads);
    facts_integer(f, "vector", rows->vector);
    facts_close(f);
    facts_integer(f, "shared_memory", rows->smem_bytes);
    facts_line(f,
               "  block         %d threads for %d rows, vectors of %d elements, %d elements of a row in "
               "registers\n",
               rows->threads, rows->rows_per_block, rows->vector, rows->per_thread);
    facts_line(f, "  shared memory %d bytes\n", rows->smem_bytes);
    plan_explain_reason(f, plan);
}
