/*
 * templates.c: the templates of row-wise operators, and what each writes into the config. In: a plan. Out:
 * constants, labels; which files have the kernels beside the main one. A new template is a row here.
 */
#include "gen/rowwise/columns.h"
#include "gen/rowwise/planner.h"
#include "gen/base/text.h"
#include "gen/emit/emit.h"
#include "gen/plan/plan.h"
#include "gen/plan/template.h"

#include <stdio.h>

/* ---- constants --------------------------------------------------------------------------------- */

static void config_rows(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    (void)problem;
    text_add(t, "constexpr int THREADS = %d, VECTOR = %d;\n", plan->rows.threads, plan->rows.vector);
    text_add(t,
             "constexpr int PER_THREAD = %d, ROWS_PER_BLOCK = %d;\nconstexpr bool FULL = %s, "
             "REREAD = %s, KEPT = %s;\n",
             plan->rows.per_thread, plan->rows.rows_per_block, yes(plan->rows.full), yes(plan->rows.reread),
             yes(plan->rows.kept));
    text_add(t, "constexpr bool PREFETCH = %s, SHARED_NEXT = %s, INNER = %s;\n", yes(plan->rows.prefetch),
             yes(plan->rows.shared_next), yes(plan->rows.inner));
    text_add(t, "constexpr int BLOCKS = %d, COLUMN_PARTS = %d, REGISTERS = %d, AT_ONCE = %d, CLUSTER = %d;\n",
             plan->rows.blocks, plan->rows.column_parts, plan->rows.registers, plan->rows.at_once,
             plan->rows.cluster > 1 ? plan->rows.cluster : 1);
    text_add(t, "constexpr bool AHEAD = %s, ONCE = %s;\n", yes(plan->rows.ahead), yes(plan->rows.once));
}

static void config_inner(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_rows(t, problem, plan);
    text_add(t, "constexpr int UNITS_WIDE = %d;\nconstexpr bool MORE = %s, TAKEN = %s;\n",
             plan->rows.units_wide, yes(plan->rows.more), yes(plan->rows.taken));
}

static void config_scan(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_rows(t, problem, plan);
    text_add(t,
             "constexpr int PLACES = %d, STAGES = %d, AGAIN_STAGES = %d, PART = %d, HELD_CARRIES = %d, "
             "WHOLE_WARPS = %d;\n"
             "constexpr bool CARRIES_BY_WARP = %s;\n"
             "constexpr int LOOKBACK_THREADS = %d, LOOKBACK_BATCHES = %d, LOOKBACK_GROUP = %d, "
             "LOOKBACK_STRIPS = %d;\n",
             plan->rows.scan.places, plan->rows.stages, plan->rows.scan.again_stages,
             plan->rows.scan.part_places, plan->rows.scan.held_carries, plan->rows.scan.whole_warps,
             yes(plan->rows.scan.carries_by_warp), plan->rows.scan.lookback.threads,
             plan->rows.scan.lookback.batches, LOOKBACK_GROUP, plan->rows.scan.lookback.strips);
}

static void config_staged(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_rows(t, problem, plan);
    text_add(t,
             "constexpr int STAGES = %d, SURE = %d;\nconstexpr bool TAKEN = %s, COLS_HELD = %s, "
             "COLS_PACKED = %s, MORE = %s, COLUMNS_SHARED = %s, LATE = %s, GIVEN_AHEAD = %s;\n",
             plan->rows.stages, plan->rows.staged.sure, yes(plan->rows.taken),
             yes(plan->rows.staged.cols_held), yes(plan->rows.staged.cols_packed), yes(plan->rows.more),
             yes(plan->rows.staged.columns_shared), yes(plan->rows.staged.late),
             yes(plan->rows.staged.given_ahead));
}

static void define_cluster(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "#define LATHE_CLUSTER");
    if (plan->rows.cluster > 1)
        text_add(t, " __cluster_dims__(%d, 1, 1)", plan->rows.cluster);
    text_add(t, "\n");
}

static void label(const struct problem *problem, const struct plan *plan, char *out, size_t size)
{
    (void)problem;
    snprintf(out, size, "t%dv%dp%dr%d", plan->rows.threads, plan->rows.vector, plan->rows.per_thread,
             plan->rows.rows_per_block);
}

/* ---- the table --------------------------------------------------------------------------------- */

static const struct launch_file BESIDE_SCAN[] = {{"lookback", "rowwise/inner_scan_lookback.cuh"},
                                                 {NULL, NULL}};

/* Kernels step through a row with 32 bits: the step beyond its end has to fit as well. */
#define MOST_ELEMENTS ((INT64_C(1) << 31) - (1 << 20))
#define ANY_ROW       .serves = {.dtypes = SERVES_FLOATS, .dim = {{"n", SYM_N, 0, MOST_ELEMENTS, 1}}}
#define SCAN                                                                                                 \
    ANY_ROW, .form = PLAN_ROW_SCAN, .file = "rowwise/inner_scan.cuh", .ok = plan_inner_scan,                 \
             .define = define_cluster, .config = config_scan, .label = label, .beside = BESIDE_SCAN
#define INNER                                                                                                \
    ANY_ROW, .form = PLAN_ROW_INNER, .file = "rowwise/inner.cuh", .ok = plan_inner,                          \
             .define = define_cluster, .config = config_inner, .label = label, .any_batch = true
#define STAGED                                                                                               \
    ANY_ROW, .form = PLAN_ROW_STAGED, .file = "rowwise/staged.cuh", .ok = plan_staged,                       \
             .define = define_cluster, .config = config_staged, .label = label, .any_batch = true
#define REGISTERS                                                                                            \
    ANY_ROW, .form = PLAN_ROW_REGISTERS, .file = "rowwise/registers.cuh", .ok = plan_registers,              \
             .define = define_cluster, .config = config_rows, .label = label, .any_batch = true
const struct template_row rowwise_templates[] = {
    {.name = "rowwise_inner_scan", .pass = LATHE_FORWARD, SCAN},
    {.name = "rowwise_inner_scan_bwd", .pass = LATHE_BACKWARD, SCAN},
    {.name = "rowwise_inner", .pass = LATHE_FORWARD, INNER},
    {.name = "rowwise_inner_bwd", .pass = LATHE_BACKWARD, INNER},
    {.name = "rowwise_staged", .pass = LATHE_FORWARD, STAGED},
    {.name = "rowwise_staged_bwd", .pass = LATHE_BACKWARD, STAGED},
    {.name = "rowwise", .pass = LATHE_FORWARD, REGISTERS},
    {.name = "rowwise_bwd", .pass = LATHE_BACKWARD, REGISTERS},
    {.name = NULL},
};
