/*
 * templates.c: the templates of linear attention, a row each, in the order in which they are preferred: its
 * kernels, and its file here (template_NAME.c), which says all else. In: a plan. Out: the config, labels.
 */
#include "gen/linear/columns.h"
#include "gen/linear/template.h"
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdio.h>
#include <string.h>

static void tell_kept(struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    const int every = plan->row->linear->keeps_every;
    if (every > 0)
        snprintf(
            plan->reason + used, sizeof plan->reason - used,
            "; states behind every %d-th token of a sequence and behind its last one are left on the way, "
            "a sequence that has others goes token by token",
            every);
    else
        snprintf(
            plan->reason + used, sizeof plan->reason - used,
            "; it leaves states behind any tokens, templates by chunks those behind the last ones of chunks");
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    const bool keeps = problem_has_named(r->sig, r->problem, "states_index");
    if (r->pass == LATHE_BACKWARD && !plan_gradients_exist(r, why))
        return false;
    if (!plan->row->linear->sizes(r, plan, why))
        return false;
    if (keeps)
        tell_kept(plan);
    return true;
}

static void config(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    const struct linear_plan *to = &plan->linear;
    text_add(t, "constexpr int D = %d, D_V = %d;\n", (int)problem->dim[SYM_D], (int)problem->dim[SYM_D_V]);
    text_add(t, "constexpr int WARPS = %d;\nconstexpr bool O_F32 = %s;\n", to->warps, yes(to->o_f32));
    if (plan->row->pass == LATHE_BACKWARD)
        text_add(
            t,
            "constexpr int BACK_CHUNK = %d, KEY_PARTS = %d;\nconstexpr bool BY_CHUNK = %s, SUMS_LOGS = %s;\n",
            to->chunk, to->key_parts > 1 ? to->key_parts : 1, yes(plan->row->linear->by_chunk),
            yes(plan->row->linear->sums_logs));
    if (plan->row->linear->config)
        plan->row->linear->config(t, plan);
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

/* Kernels beside the main ones, by role: of which a launch has one is included. */
#define MODS                                                                                                 \
    {"mod_q", "heads/vector_mod.cuh"}, {"mod_k", "heads/vector_mod.cuh"}, {"mod_v", "heads/vector_mod.cuh"}, \
        {"starts", "linear/updates.cuh"}, {"spread_q", "linear/updates.cuh"},                                \
        {"spread_do", "linear/updates.cuh"}, {"join_q", "linear/query_heads.cuh"},                           \
        {"spread_k", "linear/query_heads.cuh"}, {"spread_v", "linear/query_heads.cuh"},                      \
    {                                                                                                        \
        "join_do", "linear/query_heads.cuh"                                                                  \
    }
#define MOD_O                                                                                                \
    {"mod_o", "heads/vector_mod.cuh"},                                                                       \
    {                                                                                                        \
        "mod_o_packed", "linear/output_mod.cuh"                                                              \
    }
#define BEGIN {"bwd_zero", "heads/zero_and_sum.cuh"}, {"bwd_sum", "heads/zero_and_sum.cuh"}, MODS
#define END                                                                                                  \
    {"bwd_bands", "linear/backward/bands.cuh"}, {"bwd_tokens", "linear/backward/tokens.cuh"},                \
        {"bwd_values", "linear/backward/tokens.cuh"}, {"bwd_heads", "linear/backward/tokens.cuh"},           \
        {"bwd_o", "linear/backward/adjoint.cuh"}, {"bwd_q", "linear/backward/adjoint.cuh"},                  \
        {"bwd_k", "linear/backward/adjoint.cuh"}, {"bwd_v", "linear/backward/adjoint.cuh"},                  \
        {"gather_dq", "linear/updates.cuh"}, {"split_dq", "linear/query_heads.cuh"},                         \
        {"gather_dk", "linear/query_heads.cuh"}, {"gather_dv", "linear/query_heads.cuh"},                    \
    {                                                                                                        \
        NULL, NULL                                                                                           \
    }

#define KEPT                                                                                                 \
    {"kept", "linear/recurrent_kept.cuh"},                                                                   \
    {                                                                                                        \
        "kept_inside", "linear/recurrent_kept.cuh"                                                           \
    }

static const struct launch_file BESIDE[] = {MODS,
                                            MOD_O,
                                            {"gather_o", "linear/updates.cuh"},
                                            {"split_o", "linear/query_heads.cuh"},
                                            {"inverse", "linear/delta_inverse.cuh"},
                                            {"prepare", "linear/delta_prepare.cuh"},
                                            {"fwd", "linear/recurrent.cuh"},
                                            KEPT,
                                            {NULL, NULL}};
static const struct launch_file BESIDE_RUNS[] = {MODS,
                                                 MOD_O,
                                                 {"gather_o", "linear/updates.cuh"},
                                                 {"split_o", "linear/query_heads.cuh"},
                                                 {"inverse", "linear/delta_inverse.cuh"},
                                                 {"prepare", "linear/delta_prepare.cuh"},
                                                 {"cuts", "linear/delta_cuts.cuh"},
                                                 {"fwd", "linear/recurrent.cuh"},
                                                 KEPT,
                                                 {NULL, NULL}};
static const struct launch_file BESIDE_KEPT[] = {MODS, MOD_O, {NULL, NULL}};
static const struct launch_file BESIDE_KEYED[] = {MODS,
                                                  MOD_O,
                                                  {"gather_o", "linear/updates.cuh"},
                                                  {"split_o", "linear/query_heads.cuh"},
                                                  {"prepare", "linear/keyed_delta_prepare.cuh"},
                                                  {"prepare_low_rank", "linear/low_rank_prepare.cuh"},
                                                  {"fwd", "linear/recurrent.cuh"},
                                                  KEPT,
                                                  KEPT,
                                                  {NULL, NULL}};
static const struct launch_file BACK_BY_TOKEN[] = {BEGIN,
                                                   {"bwd_columns", "linear/backward/columns.cuh"},
                                                   {"bwd_divisors", "linear/backward/tokens.cuh"},
                                                   END};
/* o of the forward pass is made again by the kernels of chunks, or token by token. */
static const struct launch_file BACK_IN_CHUNKS[] = {BEGIN, {"bwd_decay", "linear/backward/tokens.cuh"}, END};
static const struct launch_file BACK_AGAIN_BY_TOKEN[] = {
    BEGIN, {"bwd_again", "linear/backward/columns.cuh"}, {"bwd_divisors", "linear/backward/tokens.cuh"}, END};

/* What a row takes: see serves.c. */
#define DIMS(most, most_v)                                                                                   \
    .dim = {{"d", SYM_D, ATTENTION_LEAST_DIM, most, ATTENTION_DIM_STEP},                                     \
            {"d_v", SYM_D_V, ATTENTION_LEAST_DIM, most_v, ATTENTION_DIM_STEP}}
#define SERVES(of, dims, more) .serves = {.dtypes = (of), dims, .takes = LINEAR_TAKES(DECAY) | (more)}
#define DELTA_RULE(of, dims, more)                                                                           \
    .serves = {.dtypes = (of), dims, .takes = LINEAR_TAKES(DECAY) | (more), .only = LINEAR_TAKES(DELTA)}
#define BF16        1u << LATHE_BF16
#define NORMALISERS LINEAR_TAKES(NORMALISER) | LINEAR_TAKES(F16_NORMALISER) | LINEAR_TAKES(BONUS_NORMALISED)
#define VECTORS     LINEAR_TAKES(READER) | LINEAR_TAKES(WRITER) | LINEAR_TAKES(READ_FIRST)
#define EVERYTHING                                                                                           \
    LINEAR_SLOTS_ALL | NORMALISERS | LINEAR_TAKES(READ_FIRST) | LINEAR_TAKES(KEY_DECAY) |                    \
        LINEAR_TAKES(VALUE_DECAY) | LINEAR_TAKES(ALL_TOKENS)

#define ROW .form = PLAN_LINEAR, .ok = sizes, .config = config, .label = label, .any_batch = true
#define FORWARD(of, kernels, more)                                                                           \
    ROW, .name = #of, .pass = LATHE_FORWARD, .linear = &(of), .file = "linear/" kernels, .beside = (more)
#define BACKWARD(of, kernels, more)                                                                          \
    ROW, .name = #of, .pass = LATHE_BACKWARD, .linear = &(of), .file = "linear/backward/" kernels,           \
         .beside = (more)
#define WGMMA .isa = ISA_SM90A, .define = define_widths

const struct template_row linear_templates[] = {
    {FORWARD(linear_additive, "additive.cuh", BESIDE),
     SERVES(SERVES_HALVES, DIMS(256, 512),
            LINEAR_TAKES(BONUS) | NORMALISERS | LINEAR_TAKES(KEY_DECAY) | LINEAR_TAKES(ALL_TOKENS) |
                LINEAR_TAKES(STATES))},
    {FORWARD(linear_delta_runs_sm90, "delta_sm90.cuh", BESIDE_RUNS), WGMMA,
     .serves = {.dtypes = BF16,
                DIMS(128, 512),
                .takes = LINEAR_TAKES(DECAY) | LINEAR_TAKES(STATES),
                .only = LINEAR_TAKES(DELTA) | LINEAR_TAKES(DECAY)},
     .lengths = linear_run_lengths},
    {FORWARD(linear_delta_sm90, "delta_sm90.cuh", BESIDE), WGMMA,
     DELTA_RULE(BF16, DIMS(128, 512), LINEAR_TAKES(STATES)), .lengths = linear_delta_lengths},
    {FORWARD(linear_delta, "delta_chunks.cuh", BESIDE),
     DELTA_RULE(BF16, DIMS(128, 512), LINEAR_TAKES(STATES))},
    {FORWARD(linear_keyed_delta, "keyed_delta.cuh", BESIDE_KEYED),
     DELTA_RULE(SERVES_HALVES, DIMS(256, 512), LINEAR_TAKES(KEY_DECAY) | VECTORS | LINEAR_TAKES(STATES)),
     .lengths = linear_keyed_lengths},
    {FORWARD(linear_dplr, "dplr.cuh", BESIDE_KEYED),
     .serves = {.dtypes = SERVES_HALVES,
                DIMS(256, 512),
                .takes = LINEAR_TAKES(DECAY) | LINEAR_TAKES(KEY_DECAY) | LINEAR_TAKES(READ_FIRST) |
                         LINEAR_TAKES(STATES),
                .only = LINEAR_TAKES(READER) | LINEAR_TAKES(WRITER)}},
    {FORWARD(linear_recurrent, "recurrent.cuh", BESIDE), SERVES(SERVES_FLOATS, DIMS(256, 512), EVERYTHING)},
    {FORWARD(linear_recurrent_kept, "recurrent_kept.cuh", BESIDE_KEPT),
     .serves = {.dtypes = SERVES_FLOATS,
                DIMS(256, 512),
                .takes = (EVERYTHING | LINEAR_TAKES(STATES)) & ~LINEAR_TAKES(ALL_TOKENS),
                .only = LINEAR_TAKES(STATES)}},
    {BACKWARD(linear_additive_bwd_sm90, "chunks_sm90.cuh", BACK_IN_CHUNKS), WGMMA,
     SERVES(BF16, DIMS(128, 128), 0)},
    {BACKWARD(linear_delta_bwd_sm90, "delta_sm90.cuh", BACK_IN_CHUNKS), WGMMA,
     DELTA_RULE(BF16, DIMS(128, 128), 0)},
    {BACKWARD(linear_delta_bwd, "delta_walk.cuh", BACK_IN_CHUNKS), DELTA_RULE(BF16, DIMS(128, 128), 0)},
    {BACKWARD(linear_keyed_delta_bwd, "keyed_delta.cuh", BACK_AGAIN_BY_TOKEN),
     DELTA_RULE(SERVES_HALVES, DIMS(256, 512), LINEAR_TAKES(KEY_DECAY))},
    {BACKWARD(linear_keyed_rule_bwd, "keyed_rule.cuh", BACK_AGAIN_BY_TOKEN),
     DELTA_RULE(SERVES_HALVES, DIMS(256, 512), LINEAR_TAKES(KEY_DECAY) | VECTORS)},
    {BACKWARD(linear_dplr_bwd, "dplr.cuh", BACK_AGAIN_BY_TOKEN),
     .serves = {.dtypes = SERVES_HALVES,
                DIMS(256, 512),
                .takes = LINEAR_TAKES(DECAY) | LINEAR_TAKES(KEY_DECAY) | LINEAR_TAKES(READ_FIRST),
                .only = LINEAR_TAKES(READER) | LINEAR_TAKES(WRITER)}},
    {BACKWARD(linear_additive_bwd, "additive.cuh", BACK_AGAIN_BY_TOKEN),
     SERVES(SERVES_HALVES, DIMS(256, 512),
            LINEAR_TAKES(BONUS) | LINEAR_TAKES(NORMALISER) | LINEAR_TAKES(KEY_DECAY) |
                LINEAR_TAKES(SCALE_GRADIENT))},
    {BACKWARD(linear_recurrent_bwd, "rows.cuh", BACK_BY_TOKEN),
     SERVES(SERVES_FLOATS, DIMS(256, 256), EVERYTHING | LINEAR_TAKES(SCALE_GRADIENT))},
    {.name = NULL}};
