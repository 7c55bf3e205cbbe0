/*
 * templates.c: the templates of attention, and what each writes into the config. In: a plan. Out: constants,
 * labels; which files have the kernels beside the main one. A new template is a row here.
 */
#include "gen/attention/columns.h"
#include "gen/attention/features.h"
#include "gen/attention/planner.h"
#include "gen/attention/traits.h"
#include "gen/base/text.h"
#include "gen/emit/emit.h"
#include "gen/plan/plan.h"
#include "gen/plan/template.h"

#include <stdio.h>

/* ---- constants --------------------------------------------------------------------------------- */

static void emit_tiles(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    text_add(t, "constexpr bool O_F32 = %s, O_MARKED = %s;\n", yes(plan->attention.o_f32),
             yes(plan->attention.o_f32 && !plan->attention.part_end));
    text_add(t, "constexpr int D = %d, D_V = %d;\n", attention_row(problem->dim[SYM_D]),
             attention_row(problem->dim[SYM_D_V]));
    text_add(t, "constexpr int D_PAD = %d, DV_PAD = %d;\n", plan->attention.d_pad, plan->attention.dv_pad);
    text_add(t, "constexpr int BM = %d, BN = %d, WARPS = %d, STAGES = %d;\n", plan->attention.bm,
             plan->attention.bn, plan->attention.warps, plan->attention.stages);
}

static void config_sm80(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    emit_tiles(t, problem, plan);
    text_add(t, "constexpr bool Q_IN_REGS = %s, SHORT_ROWS = %s;\n", yes(plan->attention.q_in_regs),
             yes(plan->attention.short_rows));
}

static void config_narrow(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    emit_tiles(t, problem, plan);
    text_add(t, "constexpr int BLOCKS = %d;\n", plan->attention.resident);
}

static void config_mla(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    emit_tiles(t, problem, plan);
    text_add(t, "constexpr bool V_IS_K = %s;\n", yes(plan->attention.v_is_k));
    text_add(t, "constexpr int D2 = %d;\n", plan->attention.d2);
    text_add(t, "constexpr bool NARROW_K = %s;\nusing stored_k = %s;\n", yes(plan->attention.reads_narrow),
             plan->attention.reads_narrow ? "source_k" : "element_k");
}

static void config_mla_sm90(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    config_mla(t, problem, plan);
    text_add(t, "constexpr bool BOUND_WAITS = %s;\n", yes(plan->bound_waits));
}

static void config_sm90(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    emit_tiles(t, problem, plan);
    text_add(t,
             "constexpr int Q_STAGES = %d, D2 = %d;\nconstexpr bool OWN_O = %s, DYNAMIC = %s, PACK = %s;\n"
             "constexpr bool BOUND_WAITS = %s;\n",
             plan->attention.q_stages, plan->attention.d2, yes(plan->attention.own_o),
             yes(plan->attention.dynamic), yes(plan->attention.pack), yes(plan->bound_waits));
}

static void config_combine(struct text_buf *t, const struct problem *problem, const struct plan *plan)
{
    const int dv = (int)problem->dim[SYM_D_V]; /* q and k are behind it: a mod of o names D, too */
    text_add(t, "constexpr int D = %d, D_V = %d, WARPS = %d;\n", dv, dv, plan->attention.warps);
    text_add(t, "constexpr bool PARTS_ALIGNED = %s, O_ALIGNED = %s;\n", yes(plan->attention.parts_aligned),
             yes(plan->attention.o_aligned));
    text_add(t, "constexpr bool O_F32 = %s, O_MARKED = %s;\n", yes(plan->attention.o_f32),
             yes(plan->attention.o_f32 && !plan->attention.part_end));
}

/* Kernels of wgmma have products of two widths: scores, and the columns of o of a warpgroup. */
static void add_widths(struct text_buf *t, const struct plan *plan, int columns)
{
    text_add(t, "#define WGMMA_WIDTHS WGMMA_%d", columns);
    if (plan->attention.bn != columns)
        text_add(t, " WGMMA_%d", plan->attention.bn);
    text_add(t, "\n");
}

static void define_widths(struct text_buf *t, const struct plan *plan)
{
    enum { WIDEST = 256 };
    add_widths(t, plan,
               plan->attention.dv_pad > WIDEST ? plan->attention.dv_pad / 2 : plan->attention.dv_pad);
}

static void define_fp8(struct text_buf *t, const struct plan *plan)
{
    define_widths(t, plan);
    text_add(t, "#include \"common/wgmma_fp8_sm90.cuh\"\n");
}

static void define_halves(struct text_buf *t, const struct plan *plan)
{
    add_widths(t, plan, plan->attention.dv_pad / 2);
}

static void define_pair(struct text_buf *t, const struct plan *plan)
{
    if (plan->attention.back.paired)
        text_add(t, "#define LATHE_CLUSTER __cluster_dims__(2, 1, 1)\n");
}

/* ---- labels ------------------------------------------------------------------------------------ */

static void label_forward(const struct problem *problem, const struct plan *plan, char *out, size_t size)
{
    snprintf(out, size, "d%d_v%d_m%dn%ds%dw%d", (int)problem->dim[SYM_D], (int)problem->dim[SYM_D_V],
             plan->attention.bm, plan->attention.bn, plan->attention.stages, plan->attention.warps);
}

static void label_backward(const struct problem *problem, const struct plan *plan, char *out, size_t size)
{
    const struct back_plan *back = &plan->attention.back;
    snprintf(out, size, "d%d_v%d_m%dn%ds%dw%d", (int)problem->dim[SYM_D], (int)problem->dim[SYM_D_V],
             back->bm, back->bn, back->stages, back->warps);
}

static void label_combine(const struct problem *problem, const struct plan *plan, char *out, size_t size)
{
    snprintf(out, size, "v%dw%d", (int)problem->dim[SYM_D_V], plan->attention.warps);
}

/* ---- kernels beside --------------------------------------------------------------------------- */

#define BESIDE_BOTH                                                                                          \
    {"map", "attention/mask_tiles_kernel.cuh"}, {"mod_q", "attention/vector_mods.cuh"},                      \
        {"mod_k", "attention/vector_mods.cuh"}, {"mod_v", "attention/vector_mods.cuh"},                      \
        {"pair_q", "heads/pair_rows.cuh"}, {"pair_k", "heads/pair_rows.cuh"},                                \
    {                                                                                                        \
        "mod_o", "attention/vector_mods.cuh"                                                                 \
    }
static const struct launch_file BESIDE_FORWARD[] = {BESIDE_BOTH,
                                                    {"narrow_k", "attention/narrow_mods.cuh"},
                                                    {"narrow_v", "attention/narrow_mods.cuh"},
                                                    {"turn_v", "attention/turned_values.cuh"},
                                                    {"pages_in", "attention/pages.cuh"},
                                                    {NULL, NULL}};
static const struct launch_file BESIDE_BACKWARD[] = {
    BESIDE_BOTH,
    {"narrow_k", "attention/narrow_mods.cuh"},
    {"narrow_v", "attention/narrow_mods.cuh"},
    {"mod_do", "attention/vector_mods.cuh"},
    {"fwd", "attention/fwd_sm80.cuh"},
    {"bwd_pre", "attention/backward/preprocess.cuh"},
    {"bwd_map", "attention/backward/query_lists.cuh"},
    {"bwd_lists", "attention/backward/selected_lists.cuh"},
    {"bwd_q", "attention/backward/mods.cuh"},
    {"bwd_k", "attention/backward/mods.cuh"},
    {"bwd_v", "attention/backward/mods.cuh"},
    {"bwd_o", "attention/backward/mods.cuh"},
    {"bwd_zero", "heads/zero_and_sum.cuh"},
    {"bwd_sum", "heads/zero_and_sum.cuh"},
    {"bwd_rows", "attention/backward/row_sums.cuh"},
    {"bwd_pair_q", "heads/pair_rows.cuh"},
    {"bwd_pair_k", "heads/pair_rows.cuh"},
    {"pages_in", "attention/pages.cuh"},
    {"pages_find", "attention/pages.cuh"},
    {"pages_out", "attention/pages.cuh"},
    {NULL, NULL},
};

static const struct launch_file BESIDE_COMBINE[] = {{"mod_o", "heads/vector_mod.cuh"}, {NULL, NULL}};

/* ---- the table --------------------------------------------------------------------------------- */

#define DIMS(most_d, most_dv, by)                                                                            \
    {                                                                                                        \
        {"d", SYM_D, ATTENTION_LEAST_DIM, most_d, by},                                                       \
        {                                                                                                    \
            "d_v", SYM_D_V, ATTENTION_LEAST_DIM, most_dv, by                                                 \
        }                                                                                                    \
    }
#define NARROW(by) DIMS(ATTENTION_MOST_DIM, ATTENTION_MOST_DIM, by)
#define WIDE(by)   DIMS(ATTENTION_WIDEST_DIM, ATTENTION_MOST_DV, by)
enum { BY_8 = ATTENTION_DIM_STEP, BY_16 = 16, NARROWEST = 128, LATENT_LEAST = 552 };
#define ANY_MASK (FEATURE(LISTS) | FEATURE(ODD_LISTS))
#define ANY_CALL (FEATURES_OF_SEQUENCES | FEATURE(ODD_PAGES) | FEATURE(FOLDED))
#define ANY_GRADIENT                                                                                         \
    (ANY_MASK | FEATURE(ONE_ORDER) | FEATURE(PAIR_SUMS) | FEATURE(PAGES) | FEATURE(ODD_PAGES))

#define FORWARD                                                                                              \
    .form = PLAN_ATTENTION, .pass = LATHE_FORWARD, .label = label_forward, .beside = BESIDE_FORWARD,         \
    .any_batch = true
#define BACKWARD                                                                                             \
    .form = PLAN_ATTENTION_BACK, .pass = LATHE_BACKWARD, .config = config_sm80, .label = label_backward,     \
    .beside = BESIDE_BACKWARD, .any_batch = true
const struct template_row attention_templates[] = {
    {.name = "attention_selected",
     .file = "attention/selected.cuh",
     .ok = plan_attention_selected,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = NARROW(BY_8),
                .takes = ANY_CALL | FEATURE(V_IS_K),
                .only = FEATURE(COMBINE) | FEATURE(LISTS)},
     .attention = &attention_portable,
     .config = config_sm80,
     FORWARD},
    {.name = "attention_decode_narrow",
     .file = "attention/decode_narrow.cuh",
     .ok = plan_attention_decode_narrow,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = NARROW(BY_16),
                .takes = ANY_CALL | ANY_MASK | FEATURE(V_IS_K) | FEATURE(NARROW_PAGES),
                .only = FEATURE(COMBINE),
                .chosen_for = "few queries against many keys of 8 bits"},
     .attention = &attention_portable,
     .lengths = attention_decode_narrow_lengths,
     .config = config_narrow,
     FORWARD},
    {.name = "attention_decode",
     .file = "attention/decode.cuh",
     .ok = plan_attention_decode,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = NARROW(BY_8),
                .takes = ANY_CALL | ANY_MASK | FEATURE(V_IS_K),
                .only = FEATURE(COMBINE),
                .chosen_for = "few queries against many keys"},
     .attention = &attention_portable,
     .lengths = attention_decode_lengths,
     .config = config_sm80,
     FORWARD},
    {.name = "attention_fwd_sm90",
     .file = "attention/fwd_sm90.cuh",
     .ok = plan_attention_sm90,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = DIMS(ATTENTION_MOST_DIM, ATTENTION_MOST_DV, BY_8),
                .takes =
                    FEATURES_OF_SEQUENCES | ANY_MASK | FEATURE(COMBINE) | FEATURE(PAIR) | FEATURE(V_IS_K)},
     .isa = ISA_SM90A,
     .attention = &attention_forward_sm90,
     .lengths = attention_sm90_lengths,
     .define = define_widths,
     .config = config_sm90,
     FORWARD},
    {.name = "attention_fwd_fp8_sm90",
     .file = "attention/fwd_sm90.cuh",
     .ok = plan_attention_fp8_sm90,
     .serves = {.dtypes = SERVES_HALVES | 1u << LATHE_F8_E4M3,
                .dim = NARROW(BY_16),
                .takes = ANY_MASK | FEATURE(COMBINE),
                .only = FEATURE(NARROW_QUERY)},
     .isa = ISA_SM90A,
     .attention = &attention_forward_sm90,
     .define = define_fp8,
     .config = config_sm90,
     FORWARD},
    {.name = "attention_fwd_gathered_sm90",
     .file = "attention/fwd_sm90.cuh",
     .ok = plan_attention_gathered,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = DIMS(ATTENTION_MOST_DIM, ATTENTION_MOST_DV, BY_8),
                .takes = FEATURES_OF_SEQUENCES | FEATURE(ODD_PAGES) | ANY_MASK | FEATURE(COMBINE) |
                         FEATURE(V_IS_K),
                .only = FEATURE(NARROW_PAGES),
                .chosen_for = "many queries against keys of 8 bits in pages"},
     .isa = ISA_SM90A,
     .attention = &attention_forward_sm90,
     .lengths = attention_gathered_lengths,
     .define = define_widths,
     .config = config_sm90,
     FORWARD},
    {.name = "attention_fwd_narrow",
     .file = "attention/fwd_narrow.cuh",
     .ok = plan_attention_fwd_narrow,
     .serves = {.dtypes = SERVES_FLOATS,
                .dim = NARROW(BY_16),
                .takes = ANY_CALL | ANY_MASK | FEATURE(COMBINE) | FEATURE(PAIR) | FEATURE(V_IS_K) |
                         FEATURE(NARROW_PAGES),
                .chosen_for = "keys of 8 bits in pages"},
     .attention = &attention_portable,
     .config = config_sm80,
     FORWARD},
    {.name = "attention_mla_narrow_sm90",
     .file = "attention/mla_sm90.cuh",
     .ok = plan_attention_mla_narrow_sm90,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = WIDE(BY_8),
                .takes = ANY_CALL | ANY_MASK | FEATURE(PAIR) | FEATURE(NARROW_PAGES) | FEATURE(MODS_OF_PAGES),
                .only = FEATURE(COMBINE) | FEATURE(V_IS_K),
                .chosen_for = "keys of 8 bits"},
     .isa = ISA_SM90A,
     .attention = &attention_portable,
     .define = define_halves,
     .config = config_mla_sm90,
     FORWARD},
    {.name = "attention_mla_sm90",
     .file = "attention/mla_sm90.cuh",
     .ok = plan_attention_mla_sm90,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = WIDE(BY_8),
                .takes = ANY_CALL | ANY_MASK | FEATURE(PAIR),
                .only = FEATURE(COMBINE) | FEATURE(V_IS_K),
                .chosen_for = "wide head dims, values in keys, q2 and k2"},
     .isa = ISA_SM90A,
     .attention = &attention_portable,
     .define = define_halves,
     .config = config_mla_sm90,
     FORWARD},
    {.name = "attention_mla",
     .file = "attention/mla.cuh",
     .ok = plan_attention_mla,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = WIDE(1),
                .takes = ANY_CALL | ANY_MASK | FEATURE(PAIR) | FEATURE(V_IS_K),
                .only = FEATURE(COMBINE),
                .chosen_for = "wide head dims, values in keys, q2 and k2"},
     .attention = &attention_portable,
     .config = config_mla,
     FORWARD},
    {.name = "attention_mla_narrow",
     .file = "attention/mla.cuh",
     .ok = plan_attention_mla_narrow,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = WIDE(BY_8),
                .takes = ANY_CALL | ANY_MASK | FEATURE(PAIR) | FEATURE(NARROW_PAGES) | FEATURE(MODS_OF_PAGES),
                .only = FEATURE(COMBINE) | FEATURE(V_IS_K),
                .chosen_for = "keys of 8 bits"},
     .attention = &attention_portable,
     .config = config_mla,
     FORWARD},
    {.name = "attention_fwd_sm80",
     .file = "attention/fwd_sm80.cuh",
     .ok = plan_attention_sm80,
     .serves = {.dtypes = SERVES_FLOATS,
                .dim = NARROW(1),
                .takes = ANY_CALL | ANY_MASK | FEATURE(COMBINE) | FEATURE(PAIR) | FEATURE(V_IS_K) |
                         FEATURE(ODD_V_IS_K)},
     .attention = &attention_portable,
     .config = config_sm80,
     FORWARD},
    {.name = "attention_bwd_selected",
     .file = "attention/backward/selected.cuh",
     .ok = plan_attention_bwd_selected,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = NARROW(1),
                .takes = ANY_CALL | FEATURE(PAIR),
                .only = FEATURE(LISTS)},
     .attention = &attention_portable,
     BACKWARD},
    {.name = "attention_bwd_sm90",
     .file = "attention/backward/sm90.cuh",
     .ok = plan_attention_bwd_sm90,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = DIMS(NARROWEST, NARROWEST, BY_8),
                .takes = ANY_GRADIENT | FEATURE(PACKED) | FEATURE(PAIR)},
     .isa = ISA_SM90A,
     .attention = &attention_narrow_sm90,
     BACKWARD},
    {.name = "attention_bwd_wide_sm90",
     .file = "attention/backward/wide_sm90.cuh",
     .ok = plan_attention_bwd_wide,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = NARROW(BY_8),
                .takes = ANY_GRADIENT | FEATURE(PACKED) | FEATURE(PAIR)},
     .isa = ISA_SM90A,
     .attention = &attention_wide_sm90,
     .define = define_pair,
     BACKWARD},
    {.name = "attention_bwd_sm80",
     .file = "attention/backward/sm80.cuh",
     .ok = plan_attention_bwd,
     .serves = {.dtypes = SERVES_FLOATS,
                .dim = NARROW(1),
                .takes = ANY_GRADIENT | ANY_CALL | FEATURE(PAIR) | FEATURE(ORDERED_SEQUENCES)},
     .attention = &attention_portable_back,
     BACKWARD},
    {.name = "attention_bwd_latent_sm90",
     .file = "attention/backward/latent_sm90.cuh",
     .ok = plan_attention_bwd_latent,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = {{"d", SYM_D, LATENT_LEAST, ATTENTION_WIDEST_DIM, BY_8},
                        {"d_v", SYM_D_V, ATTENTION_LEAST_DIM, ATTENTION_MOST_DV, BY_8}},
                .takes = FEATURE(PAIR) | FEATURE(V_IS_K),
                .only = FEATURE(V_IS_K)},
     .isa = ISA_SM90A,
     .attention = &attention_latent_sm90,
     BACKWARD},
    {.name = "attention_bwd_slices",
     .file = "attention/backward/slices.cuh",
     .ok = plan_attention_bwd_slices,
     .serves = {.dtypes = SERVES_HALVES,
                .dim = WIDE(1),
                .takes = ANY_GRADIENT | FEATURE(FOLDED) | FEATURE(PAIR) | FEATURE(V_IS_K),
                .chosen_for = "wide head dims, values in keys"},
     .attention = &attention_portable,
     BACKWARD},
    {.name = "attention_combine",
     .file = "attention/combine.cuh",
     .form = PLAN_COMBINE,
     .pass = LATHE_COMBINE,
     .ok = plan_attention_combine,
     .serves = {.dtypes = SERVES_FLOATS,
                .dim = {{"d_v", SYM_D_V, 1, ATTENTION_MOST_DV, 1}},
                .takes = FEATURE(COMBINE) | FEATURE(LISTS) | FEATURE(PAIR) | FEATURE(V_IS_K)},
     .attention = &attention_portable,
     .config = config_combine,
     .label = label_combine,
     .any_batch = true,
     .beside = BESIDE_COMBINE},
    {.name = NULL},
};
