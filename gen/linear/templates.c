/*
 * templates.c: the templates of linear attention, in the order in which they are preferred, and what each
 * writes into the config. In: a plan. Out: constants, labels; which files have the kernels beside the main
 * one.
 */
#include "gen/linear/columns.h"
#include "gen/linear/emit.h"
#include "gen/linear/planner.h"
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/emit/emit.h"
#include "gen/plan/plan.h"

#include <stdio.h>

static void config_recurrent(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    text_add(t, "constexpr int D = %d, D_V = %d;\n", (int)problem->dim[SYM_D], (int)problem->dim[SYM_D_V]);
    text_add(t, "constexpr int WARPS = %d;\nconstexpr bool O_F32 = %s;\n", plan->linear.warps,
             yes(plan->linear.o_f32));
}

static void config_chunks(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent(t, problem, plan);
    text_add(t, "constexpr int CHUNK_STAGES = %d;\n", plan->linear.stages);
}

static void config_keyed(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent(t, problem, plan);
    text_add(t, "constexpr int COLUMN_WARPS = %d;\n", plan->linear.column_warps);
}

static void config_pieces(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int PIECES = %d, PIECES_FROM = %d, PIECE_BLOCKS = %d;\n", plan->linear.pieces,
             plan->linear.pieces_from, plan->linear.piece_blocks);
}

static void config_additive(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_chunks(t, problem, plan);
    text_add(t, "constexpr int CHUNK_STEPS = %d, COLUMN_WARPS = %d;\n", plan->linear.steps,
             plan->linear.column_warps);
    config_pieces(t, plan);
}

static void config_recurrent_bwd(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent(t, problem, plan);
    text_add(t, "constexpr int BACK_CHUNK = %d, KEY_PARTS = %d;\nconstexpr bool BY_CHUNK = %s;\n",
             plan->linear.chunk, plan->linear.key_parts > 1 ? plan->linear.key_parts : 1,
             yes(linear_back_by_chunk(plan)));
}

static void config_chunked_bwd(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent_bwd(t, problem, plan);
    text_add(t, "constexpr int STAGES = %d;\nconstexpr bool BOUND_WAITS = %s;\n", plan->linear.stages,
             yes(plan->bound_waits));
}

static void config_delta_sm90(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent(t, problem, plan);
    text_add(t, "constexpr int STAGES = %d, VALUE_GROUPS = %d;\nconstexpr bool BOUND_WAITS = %s;\n",
             plan->linear.stages, plan->linear.groups, yes(plan->bound_waits));
    config_pieces(t, plan);
}

static void config_delta_bwd(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent_bwd(t, problem, plan);
    text_add(t, "constexpr int CHUNK_STAGES = %d, CHUNK_BLOCKS = %d;\n", plan->linear.stages,
             plan->linear.chunk_blocks);
    text_add(t, "constexpr bool STATE_BY_COLUMN = false;\n");
}

static void config_delta_bwd_sm90(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_chunked_bwd(t, problem, plan);
    text_add(t, "constexpr int VALUE_GROUPS = %d, CHUNK_BLOCKS = %d;\n", plan->linear.groups,
             plan->linear.chunk_blocks);
    text_add(t, "constexpr bool STATE_BY_COLUMN = true;\n");
}

static void config_keyed_bwd(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent_bwd(t, problem, plan);
    text_add(t, "constexpr int CHUNK_STAGES = %d, COLUMN_WARPS = %d;\n", plan->linear.stages,
             plan->linear.column_warps);
}

static void config_additive_bwd(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_recurrent_bwd(t, problem, plan);
    text_add(t, "constexpr int CHUNK_STAGES = %d;\n", plan->linear.stages);
}

/* Products of scores, of a slice of a result, of a state. */
static void define_widths(struct text_buf *t, const struct plan *plan)
{
    (void)plan;
    text_add(t, "#define WGMMA_WIDTHS WGMMA_32 WGMMA_64 WGMMA_128\n");
}

static void label(const struct problem *problem, const struct plan *plan, char *out, size_t size)
{
    snprintf(out, size, "d%d_v%d_w%d", (int)problem->dim[SYM_D], (int)problem->dim[SYM_D_V],
             plan->linear.warps);
}

#define MODS                                                                                                 \
    {"mod_q", "heads/vector_mod.cuh"}, {"mod_k", "heads/vector_mod.cuh"},                                    \
    {                                                                                                        \
        "mod_v", "heads/vector_mod.cuh"                                                                      \
    }

static const struct launch_file BESIDE[] = {MODS,
                                            {"mod_o", "heads/vector_mod.cuh"},
                                            {"inverse", "linear/delta_inverse.cuh"},
                                            {"prepare", "linear/delta_prepare.cuh"},
                                            {"fwd", "linear/recurrent.cuh"},
                                            {NULL, NULL}};
static const struct launch_file BESIDE_KEYED[] = {MODS,
                                                  {"mod_o", "heads/vector_mod.cuh"},
                                                  {"prepare", "linear/keyed_delta_prepare.cuh"},
                                                  {"fwd", "linear/recurrent.cuh"},
                                                  {NULL, NULL}};
static const struct launch_file BESIDE_FORWARD[] = {
    MODS, {"mod_o", "heads/vector_mod.cuh"}, {"fwd", "linear/recurrent.cuh"}, {NULL, NULL}};
static const struct launch_file BESIDE_BACK[] = {{"bwd_zero", "heads/zero_and_sum.cuh"},
                                                 {"bwd_sum", "heads/zero_and_sum.cuh"},
                                                 MODS,
                                                 {"bwd_columns", "linear/backward/columns.cuh"},
                                                 {"bwd_divisors", "linear/backward/tokens.cuh"},
                                                 {"bwd_tokens", "linear/backward/tokens.cuh"},
                                                 {"bwd_heads", "linear/backward/tokens.cuh"},
                                                 {"bwd_o", "linear/backward/adjoint.cuh"},
                                                 {"bwd_q", "linear/backward/adjoint.cuh"},
                                                 {"bwd_k", "linear/backward/adjoint.cuh"},
                                                 {"bwd_v", "linear/backward/adjoint.cuh"},
                                                 {NULL, NULL}};

static const struct launch_file BESIDE_CHUNKS[] = {{"bwd_zero", "heads/zero_and_sum.cuh"},
                                                   {"bwd_sum", "heads/zero_and_sum.cuh"},
                                                   MODS,
                                                   {"bwd_decay", "linear/backward/tokens.cuh"},
                                                   {"bwd_tokens", "linear/backward/tokens.cuh"},
                                                   {"bwd_heads", "linear/backward/tokens.cuh"},
                                                   {"bwd_o", "linear/backward/adjoint.cuh"},
                                                   {"bwd_q", "linear/backward/adjoint.cuh"},
                                                   {"bwd_k", "linear/backward/adjoint.cuh"},
                                                   {"bwd_v", "linear/backward/adjoint.cuh"},
                                                   {NULL, NULL}};

static const struct launch_file BESIDE_BLOCKS[] = {{"bwd_zero", "heads/zero_and_sum.cuh"},
                                                   {"bwd_sum", "heads/zero_and_sum.cuh"},
                                                   MODS,
                                                   {"bwd_again", "linear/backward/columns.cuh"},
                                                   {"bwd_divisors", "linear/backward/tokens.cuh"},
                                                   {"bwd_tokens", "linear/backward/tokens.cuh"},
                                                   {"bwd_values", "linear/backward/tokens.cuh"},
                                                   {"bwd_heads", "linear/backward/tokens.cuh"},
                                                   {"bwd_o", "linear/backward/adjoint.cuh"},
                                                   {"bwd_q", "linear/backward/adjoint.cuh"},
                                                   {"bwd_k", "linear/backward/adjoint.cuh"},
                                                   {"bwd_v", "linear/backward/adjoint.cuh"},
                                                   {NULL, NULL}};

const struct template_row linear_templates[] = {{.name = "linear_additive",
                                                 .pass = LATHE_FORWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/additive.cuh",
                                                 .ok = plan_linear_additive,
                                                 .config = config_additive,
                                                 .label = label,
                                                 .beside = BESIDE_FORWARD},
                                                {.name = "linear_delta_sm90",
                                                 .pass = LATHE_FORWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/delta_sm90.cuh",
                                                 .ok = plan_linear_delta_sm90,
                                                 .lengths = linear_delta_lengths,
                                                 .isa = ISA_SM90A,
                                                 .define = define_widths,
                                                 .config = config_delta_sm90,
                                                 .label = label,
                                                 .beside = BESIDE},
                                                {.name = "linear_delta",
                                                 .pass = LATHE_FORWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/delta_chunks.cuh",
                                                 .ok = plan_linear_delta,
                                                 .config = config_chunks,
                                                 .label = label,
                                                 .beside = BESIDE},
                                                {.name = "linear_keyed_delta",
                                                 .pass = LATHE_FORWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/keyed_delta.cuh",
                                                 .ok = plan_linear_keyed_delta,
                                                 .config = config_keyed,
                                                 .label = label,
                                                 .beside = BESIDE_KEYED},
                                                {.name = "linear_recurrent",
                                                 .pass = LATHE_FORWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/recurrent.cuh",
                                                 .ok = plan_linear_recurrent,
                                                 .config = config_recurrent,
                                                 .label = label,
                                                 .beside = BESIDE},
                                                {.name = "linear_chunked_bwd_sm90",
                                                 .pass = LATHE_BACKWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/backward/chunks_sm90.cuh",
                                                 .ok = plan_linear_chunked_bwd,
                                                 .isa = ISA_SM90A,
                                                 .define = define_widths,
                                                 .config = config_chunked_bwd,
                                                 .label = label,
                                                 .beside = BESIDE_CHUNKS},
                                                {.name = "linear_delta_bwd_sm90",
                                                 .pass = LATHE_BACKWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/backward/delta_sm90.cuh",
                                                 .ok = plan_linear_delta_bwd_sm90,
                                                 .isa = ISA_SM90A,
                                                 .define = define_widths,
                                                 .config = config_delta_bwd_sm90,
                                                 .label = label,
                                                 .beside = BESIDE_CHUNKS},
                                                {.name = "linear_delta_bwd",
                                                 .pass = LATHE_BACKWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/backward/delta_walk.cuh",
                                                 .ok = plan_linear_delta_bwd,
                                                 .config = config_delta_bwd,
                                                 .label = label,
                                                 .beside = BESIDE_CHUNKS},
                                                {.name = "linear_keyed_delta_bwd",
                                                 .pass = LATHE_BACKWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/backward/keyed_delta.cuh",
                                                 .ok = plan_linear_keyed_delta_bwd,
                                                 .config = config_keyed_bwd,
                                                 .label = label,
                                                 .beside = BESIDE_BLOCKS},
                                                {.name = "linear_additive_bwd",
                                                 .pass = LATHE_BACKWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/backward/additive.cuh",
                                                 .ok = plan_linear_additive_bwd,
                                                 .config = config_additive_bwd,
                                                 .label = label,
                                                 .beside = BESIDE_BLOCKS},
                                                {.name = "linear_recurrent_bwd",
                                                 .pass = LATHE_BACKWARD,
                                                 .form = PLAN_LINEAR,
                                                 .file = "linear/backward/rows.cuh",
                                                 .ok = plan_linear_recurrent_bwd,
                                                 .config = config_recurrent_bwd,
                                                 .label = label,
                                                 .beside = BESIDE_BACK},
                                                {.name = NULL}};
