/*
 * plan_linear.c: which kernel of linear attention serves what, with numbers that fit the device.
 */
#include "plan_pick.h"
#include "loaded.h"
#include "gen/ir/kind.h"

#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

TEST(each_form_has_its_kernel)
{
    static const struct {
        const char *spec, *problem, *template_name;
    } row[] = {
        {"gla", "dtype=bf16,h=16,t=4096,d=128", "linear_additive"},
        {"gla", "dtype=f16,h=16,t=4096,d=256,d_v=64", "linear_additive"},
        {"gla", "dtype=f32,h=16,t=4096,d=128", "linear_recurrent"},
        {"retention_linear", "dtype=bf16,h=16,t=4096,d=256,d_v=512", "linear_additive"},
        {"kda", "dtype=bf16,h=16,t=4096,d=128,d_v=320", "linear_keyed_delta"},
        {"kda", "dtype=bf16,h=16,t=4096,d=128,states=bf16,states_index=i32,kept=64", "linear_keyed_delta"},
        {"hgrn2", "dtype=bf16,h=16,t=4096,d=64", "linear_additive"},
        {"rwkv6", "dtype=bf16,h=16,t=4096,d=64", "linear_additive"},
        {"linear_elu", "dtype=f16,h=16,t=4096,d=64", "linear_additive"},
        {"flao", "dtype=bf16,h=16,t=4096,d=128", "linear_additive"},
        {"simple_gla", "dtype=bf16,h=16,t=4096,d=128", "linear_additive"},
        {"simple_gla", "dtype=f16,h=16,t=4096,d=128", "linear_additive"},
        {"simple_gla", "dtype=bf16,h=16,t=4096,d=256", "linear_additive"},
        {"gated_delta", "dtype=bf16,h=16,t=4096,d=128", "linear_delta_runs_sm90"},
        {"delta_rule", "dtype=bf16,h=16,t=4096,d=128", "linear_delta_sm90"},
        {"gated_delta", "dtype=f16,h=16,t=4096,d=128", "linear_keyed_delta"},
        {"kda", "dtype=bf16,h=16,t=4096,d=128", "linear_keyed_delta"},
        {"rwkv7", "dtype=bf16,h=16,t=4096,d=64", "linear_dplr"},
        {"iplr", "dtype=f16,h=16,t=4096,d=256", "linear_dplr"},
        {"dplr", "dtype=f32,h=16,t=4096,d=128", "linear_recurrent"},
        {"comba", "dtype=bf16,h=16,t=4096,d=128", "linear_keyed_delta"},
        {"gdn2", "dtype=bf16,h=16,t=4096,d=256", "linear_keyed_delta"},
        {"precond_kda", "dtype=f16,h=16,t=4096,d=128", "linear_keyed_delta"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(pick_pass(row[i].spec, LATHE_FORWARD, row[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, row[i].template_name);
    }
}

TEST(chunks_leave_states_behind_tokens)
{
    static const struct {
        const char *spec, *template_name, *every;
    } row[] = {
        {"gla", "linear_additive", "every 16-th token"},
        {"linear_elu", "linear_additive", "every 16-th token"},
        {"gated_delta", "linear_delta_sm90", "every 64-th token"},
        {"gated_delta", "linear_delta", "every 64-th token"},
        {"kda", "linear_keyed_delta", "every 64-th token"},
        {"gdn2", "linear_keyed_delta", "every 64-th token"},
        {"rwkv7", "linear_dplr", "every 64-th token"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const bool norms = strcmp(row[i].spec, "linear_elu") == 0;
        const struct device wish = asking_for(&H100, row[i].template_name);
        char problem[128];
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        snprintf(problem, sizeof problem, "dtype=bf16,h=16,t=4096,d=64,states=f32,%sstates_index=i32,kept=64",
                 norms ? "norms=f32," : "");
        CHECK_EQ(pick_pass(row[i].spec, LATHE_FORWARD, problem, &wish, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, row[i].template_name);
        CHECK_HAS(plan.reason, row[i].every);
        CHECK_EQ(pick_pass(row[i].spec, LATHE_FORWARD, problem, &H100, &plan, &err), LATHE_OK);
        CHECK_HAS(plan.reason, row[i].every);
    }
}

TEST(the_delta_rule_has_many_value_channels_in_chunks)
{
    static const char problem[] = "dtype=bf16,h=16,t=4096,d=128,d_v=512";
    static const char *const name[][2] = {{"kda", "linear_keyed_delta"},
                                          {"gated_delta", "linear_delta_sm90"},
                                          {"delta_rule", "linear_delta"},
                                          {"rwkv7", "linear_dplr"}};
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    for (size_t n = 0; n < sizeof name / sizeof *name; n++) {
        const struct device named = asking_for(&H100, name[n][1]);
        CHECK_EQ(pick_pass(name[n][0], LATHE_FORWARD, problem, &named, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, name[n][1]);
        CHECK(plan.linear.smem_bytes <= H100.smem_bytes);
        CHECK_EQ(pick_pass(name[n][0], LATHE_FORWARD, problem, &H100, &plan, &err), LATHE_OK);
        CHECK(strcmp(plan.row->name, "linear_recurrent") != 0);
    }
}

/* Beyond 256 value channels chunks go back in bands of 128. */
TEST(many_value_channels_go_in_bands)
{
    static const struct {
        const char *spec, *problem, *template_name;
        int bands;
    } row[] = {
        {"kda", "dtype=bf16,h=16,t=4096,d=128,d_v=512", "linear_keyed_delta_bwd", 4},
        {"gated_delta", "dtype=f16,h=16,t=4096,d=256,d_v=264", "linear_keyed_delta_bwd", 3},
        {"gdn2", "dtype=bf16,h=16,t=4096,d=128,d_v=320", "linear_keyed_rule_bwd", 3},
        {"rwkv7", "dtype=bf16,h=16,t=4096,d=64,d_v=512", "linear_dplr_bwd", 4},
        {"retention_linear", "dtype=bf16,h=16,t=4096,d=256,d_v=512", "linear_additive_bwd", 4},
        {"gla", "dtype=f16,h=16,t=4096,d=128,d_v=256", "linear_additive_bwd", 1},
    };
    const struct device *const devices[] = {&A100, &H100};
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const size_t n = i / 2;
        if (row[n].bands == 1 && i % 2 == 0)
            continue; /* 256 at once do not fit there */
        CHECK_EQ(pick_pass(row[n].spec, LATHE_BACKWARD, row[n].problem, devices[i % 2], &plan, &err),
                 LATHE_OK);
        CHECK_STR(plan.row->name, row[n].template_name);
        CHECK_EQ(plan.linear.bands, row[n].bands);
        CHECK(plan.linear.smem_bytes <= devices[i % 2]->smem_bytes);
    }
    const struct device wish = asking_for(&H100, "linear_additive_bwd");
    CHECK_EQ(
        pick_pass("linear_elu", LATHE_BACKWARD, "dtype=bf16,h=16,t=4096,d=64,d_v=320", &wish, &plan, &err),
        LATHE_UNSUPPORTED);
    CHECK_HAS(
        err.text,
        "a normaliser beside d_v = 320; with d_v up to 256 kernels divide (the host device takes that)");
    CHECK_EQ(
        pick_pass("linear_elu", LATHE_BACKWARD, "dtype=bf16,h=16,t=4096,d=64,d_v=320", &H100, &plan, &err),
        LATHE_UNSUPPORTED);
    CHECK_HAS(err.text,
              "linear_recurrent_bwd: d_v = 320; it takes multiples of 8 from 16 to 256 (the host device");
    CHECK(!strstr(err.text, "linear_additive_bwd takes that"));
}

/* Pieces are no more blocks than run at once. */
TEST(few_long_sequences_are_cut_into_pieces)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick_pass("gla", LATHE_FORWARD, "dtype=bf16,h=2,t=32768,d=128", &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(plan.linear.piece_blocks, 264);
    CHECK_EQ(plan.linear.part_bytes, 4 * (64 * 128 + 4 * 128));
    CHECK_EQ(pick_pass("gla", LATHE_FORWARD, "dtype=bf16,h=2,t=32768,d=256", &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(plan.linear.piece_blocks, 132);
    CHECK_HAS(plan.reason, "in up to 16 pieces");
}

/* Slices cover the value channels, and none of them is empty. */
TEST(steps_fit_every_device)
{
    const struct device *const devices[] = {&A100, &RTX4090, &H100};
    for (int i = 0; i < 3; i++)
        for (int d = 16; d <= 256; d += 24)
            for (int d_v = 16; d_v <= 256; d_v += 40) {
                char text[96];
                struct plan plan;
                lathe_error err = {.status = LATHE_OK};
                snprintf(text, sizeof text, "dtype=f16,b=1,h=2,t=64,d=%d,d_v=%d", d, d_v);
                CHECK_EQ(
                    pick_pass(i == 1 ? "rwkv6" : "linear_elu", LATHE_FORWARD, text, devices[i], &plan, &err),
                    LATHE_OK);
                const struct linear_plan *to = &plan.linear;
                CHECK_STR(plan.row->name, "linear_additive");
                CHECK(to->smem_bytes <= devices[i]->smem_bytes);
                CHECK(to->column_warps >= 1 && to->column_warps <= 4);
                CHECK(to->chunk_slices * to->column_warps * 16 >= d_v);
                CHECK((to->chunk_slices - 1) * to->column_warps * 16 < d_v);
            }
}

static const char BY_VALUE[] =
    "return linear_attention { inputs = { r = tensor('float', 'b', 'h', 't'), g = tensor('float', 'b', 'h', "
    "'t', 'd_v') }, delta = function(at, x) return x.r(at.b, at.h, at.t) end, decay = function(at, x) return "
    "x.g(at.b, at.h, at.t, at.j) end }";

/* What a template answers: its refusal, or the numbers of its plan in the order of struct asked. */
enum { NUMBERS = 5 };
struct answer {
    const struct device *device;
    const char *spec, *problem, *refusal;
    int number[NUMBERS];
};
struct asked { /* a template, by its name */
    const char *name;
    lathe_pass pass;
    size_t number[NUMBERS]; /* where each stands in struct linear_plan; 0, where none of them does: no more */
};
#define NUMBER(member) offsetof(struct linear_plan, member)

static int number_at(const struct linear_plan *to, size_t place)
{
    int number = 0;
    memcpy(&number, (const char *)to + place, sizeof number);
    return number;
}

static void check_answer(const struct asked *t, const struct answer *row)
{
    const struct device wish = asking_for(row->device, t->name);
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    const lathe_status status = pick_pass(row->spec, t->pass, row->problem, &wish, &plan, &err);
    CHECK_EQ(status, row->refusal ? LATHE_UNSUPPORTED : LATHE_OK);
    if (row->refusal) {
        CHECK_HAS(err.text, row->refusal);
        return;
    }
    CHECK_STR(plan.row->name, t->name);
    for (int k = 0; k < NUMBERS && t->number[k]; k++)
        CHECK_EQ(number_at(&plan.linear, t->number[k]), row->number[k]);
    CHECK(plan.linear.smem_bytes <= row->device->smem_bytes);
    CHECK(plan.linear.walk_bytes <= row->device->smem_bytes);
    CHECK(plan.linear.inverse <= row->device->smem_bytes);
}

static void check_answers(const struct asked *t, const struct answer *row, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        check_answer(t, &row[i]);
}

/* Behind a decay by key channel the delta rule goes in chunks. */
TEST(the_delta_rule_by_key_channel_goes_in_chunks)
{
    static const struct asked asked = {"linear_keyed_delta",
                                       LATHE_FORWARD,
                                       {NUMBER(chunk_slices), NUMBER(column_warps), NUMBER(smem_bytes)}};
    static const struct answer row[] = {
        {&H100, "kda", "dtype=bf16,t=64,d=128", NULL, {2, 4, 388 * 128 + 15360 + 8192}},
        {&A100, "kda", "dtype=f16,t=64,d=256,d_v=40", NULL, {1, 3, 388 * 256 + 15360 + 6144}},
        {&RTX4090, "kda", "dtype=bf16,t=64,d=72,d_v=16", NULL, {1, 1, 388 * 128 + 15360 + 2048}},
        {&RTX4090, "kda", "dtype=bf16,t=64,d=256", "needs 122880 bytes of shared memory", {0}},
        {&H100, "kda", "dtype=f32,t=64,d=128", "it takes f16 and bf16", {0}},
        {&H100, "gla", "dtype=bf16,t=64,d=128", "no slot delta", {0}},
        {&H100, "gated_delta", "dtype=f16,t=64,d=128", NULL, {2, 4, 388 * 128 + 15360 + 8192}},
        {&H100, "delta_rule", "dtype=bf16,t=64,d=256,d_v=128", NULL, {2, 4, 388 * 256 + 15360 + 8192}},
        {&H100, BY_VALUE, "dtype=bf16,t=64,d=128", "a decay per value channel", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* So does what is written beside v: a tile and two triangles of a chunk more. */
TEST(a_decay_plus_low_rank_goes_in_chunks)
{
    static const struct asked asked = {
        "linear_dplr", LATHE_FORWARD, {NUMBER(chunk_slices), NUMBER(column_warps), NUMBER(smem_bytes)}};
    static const struct answer row[] = {
        {&H100, "rwkv7", "dtype=bf16,t=64,d=64", NULL, {1, 4, 516 * 64 + 25600 + 8192}},
        {&A100, "dplr", "dtype=f16,t=64,d=256,d_v=40", NULL, {1, 3, 516 * 256 + 25600 + 6144}},
        {&RTX4090, "iplr", "dtype=bf16,t=64,d=72,d_v=16", NULL, {1, 1, 516 * 128 + 25600 + 2048}},
        {&RTX4090, "rwkv7", "dtype=bf16,t=64,d=256", "bytes of shared memory", {0}},
        {&H100, "rwkv7", "dtype=f32,t=64,d=64", "it takes f16 and bf16", {0}},
        {&H100, "gdn2", "dtype=bf16,t=64,d=64", "slot delta (linear_recurrent and linear_keyed_delta", {0}},
        {&H100, "gla", "dtype=bf16,t=64,d=64", "no slot reader", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* Where tokens have vectors of their own nothing is known of how much one makes a state larger. */
TEST(a_rule_with_vectors_is_never_cut)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick_pass("kda", LATHE_FORWARD, "dtype=bf16,seqs=1,h=2,t=32768,d=128", &H100, &plan, &err),
             LATHE_OK);
    CHECK(plan.linear.pieces > 1);
    CHECK_EQ(pick_pass("gdn2", LATHE_FORWARD, "dtype=bf16,seqs=1,h=2,t=32768,d=128", &H100, &plan, &err),
             LATHE_OK);
    CHECK_EQ(plan.linear.pieces, 1);
    CHECK_HAS(plan.reason, "the delta rule and vectors of its own: 64 tokens at a time");
}

/* And on Hopper by wgmma, where it does not depend on the channel. */
TEST(the_delta_rule_goes_by_wgmma)
{
    static const struct asked asked = {
        "linear_delta_sm90",
        LATHE_FORWARD,
        {NUMBER(chunk_slices), NUMBER(stages), NUMBER(smem_bytes), NUMBER(part_bytes), NUMBER(piece_blocks)}};
    static const struct answer row[] = {
        {&H100, "gated_delta", "dtype=bf16,t=64,d=128", NULL, {2, 3, 182592, 4 * 128 * (64 + 128), 132}},
        {&H100,
         "delta_rule",
         "dtype=bf16,t=64,d=128,d_v=64",
         NULL,
         {1, 3, 182592, 4 * 128 * (64 + 128), 132}},
        {&H100, "delta_rule", "dtype=bf16,t=64,d=40,d_v=136", NULL, {3, 4, 175184, 4 * 64 * (64 + 64), 132}},
        {&A100, "gated_delta", "dtype=bf16,t=64,d=128", "it needs 9.0", {0}},
        {&H100, "gated_delta", "dtype=f16,t=64,d=128", "it takes bf16", {0}},
        {&H100,
         "delta_rule",
         "dtype=bf16,t=64,d=136",
         "d = 136; it takes multiples of 8 from 16 to 128",
         {0}},
        {&H100, "delta_rule", "dtype=bf16,t=64,d=60", "d = 60; it takes multiples of 8 from 16 to 128", {0}},
        {&H100, "kda", "dtype=bf16,t=64,d=128", "a decay per key channel", {0}},
        {&H100, "simple_gla", "dtype=bf16,t=64,d=128", "no slot delta", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

static struct problem gated_delta_problem(const char *text)
{
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = load_signed("gated_delta", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, text, &problem, &err), LATHE_OK);
    ir_free(ir);
    return problem;
}

/* A block has 64 value channels or 128, as blocks are many or few for the device; and what decides it is
 * foretold. */
TEST(blocks_of_the_delta_rule_fit_the_device)
{
    static const struct {
        const char *problem;
        int groups;
    } row[] = {
        {"dtype=bf16,b=8,h=16,t=2048,d=128", 2},  {"dtype=bf16,b=4,h=16,t=8192,d=128", 1},
        {"dtype=bf16,b=1,h=32,t=32768,d=128", 2}, {"dtype=bf16,b=1,h=4,t=32768,d=128", 1},
        {"dtype=bf16,b=1,h=32,t=2303,d=128", 1},  {"dtype=bf16,b=1,h=66,t=512,d=128", 1},
        {"dtype=bf16,b=1,h=67,t=512,d=128", 2},   {"dtype=bf16,b=8,h=16,t=2048,d=128,d_v=64", 1},
        {"dtype=bf16,b=0,h=16,t=2048,d=128", 1},  {"dtype=bf16,b=4,h=4,t=4096,d=128", 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        const struct problem problem = gated_delta_problem(row[i].problem);
        CHECK_EQ(pick_pass("gated_delta", LATHE_FORWARD, row[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.linear.groups, row[i].groups);
        CHECK_EQ(plan.linear.chunk_threads, 128 * (1 + row[i].groups));
        CHECK_EQ(plan_lengths(KIND_LINEAR, LATHE_FORWARD, &problem, &H100) & LENGTHS_MANY_BLOCKS,
                 row[i].groups == 2 ? LENGTHS_MANY_BLOCKS : 0);
        CHECK_EQ(plan_lengths(KIND_LINEAR, LATHE_BACKWARD, &problem, &H100), 0);
        CHECK_EQ(plan_lengths(KIND_LINEAR, LATHE_FORWARD, &problem, &A100) & LENGTHS_MANY_BLOCKS, 0);
    }
}

/* Few long sequences may be cut where the gates allow it, and calls that never are have kernels without. */
TEST(the_delta_rule_by_key_channel_is_cut_where_sequences_are_few_and_long)
{
    static const struct {
        const char *problem;
        int pieces;
    } row[] = {
        {"dtype=bf16,b=1,h=16,t=32768,d=128", 32},
        {"dtype=bf16,b=8,h=16,t=2048,d=128", 1},
        {"dtype=bf16,b=4,h=16,t=8192,d=128", 1},
        {"dtype=bf16,b=1,h=16,t=1023,d=128", 1},
        {"dtype=bf16,b=1,h=16,t=1024,d=128", 32},
        {"dtype=bf16,b=2,h=22,t=4096,d=128", 32},
        {"dtype=bf16,b=2,h=23,t=4096,d=128", 1},
        {"dtype=bf16,d=128", 32},
        {"dtype=bf16,b=1,h=16,t=32768,d=128,deterministic=batch", 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        struct signature sig;
        struct problem problem;
        lathe_error err = {.status = LATHE_OK};
        struct ir *ir = load_signed("kda", LATHE_FORWARD, &sig);
        CHECK_EQ(problem_parse(&sig, row[i].problem, &problem, &err), LATHE_OK);
        ir_free(ir);
        CHECK_EQ(pick_pass("kda", LATHE_FORWARD, row[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.linear.pieces, row[i].pieces);
        if (problem.deterministic != DETERMINISTIC_BATCH)
            CHECK_EQ(plan_lengths(KIND_LINEAR, LATHE_FORWARD, &problem, &H100) & LENGTHS_NOT_CUT,
                     row[i].pieces == 1 ? LENGTHS_NOT_CUT : 0);
    }
}

/* What is never cut is left to linear_delta_sm90, as is what has no gates. */
TEST(the_delta_rule_goes_in_runs_where_sequences_are_few_and_long)
{
    static const struct {
        const char *problem;
        int groups; /* 0: never cut */
    } row[] = {
        {"dtype=bf16,b=1,h=16,t=32768,d=128", 2},
        {"dtype=bf16,b=1,h=32,h_k=16,t=32768,d=128", 2},
        {"dtype=bf16,b=1,h=40,t=32768,d=128", 2},
        {"dtype=bf16,b=1,h=60,t=32768,d=128,d_v=64", 1},
        {"dtype=bf16,b=1,h=4,t=4096,d=128", 1},
        {"dtype=bf16,b=0,h=16,t=2048,d=128", 1},
        {"dtype=bf16,b=4,h=16,t=8192,d=128", 0},
        {"dtype=bf16,b=8,h=16,t=2048,d=128", 0},
        {"dtype=bf16,b=1,h=16,t=2303,d=128", 0},
        {"dtype=bf16,b=1,h=16,t=32768,d=128,deterministic=batch", 0},
    };
    struct device runs = H100;
    snprintf(runs.template_name, sizeof runs.template_name, "linear_delta_runs_sm90");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        struct plan taken;
        lathe_error err = {.status = LATHE_OK};
        const struct problem problem = gated_delta_problem(row[i].problem);
        const int lengths = !row[i].groups       ? 0
                            : row[i].groups == 2 ? LENGTHS_RUNS | LENGTHS_RUNS_OF_TWO
                                                 : LENGTHS_RUNS;
        CHECK_EQ(pick_pass("gated_delta", LATHE_FORWARD, row[i].problem, &runs, &plan, &err),
                 row[i].groups ? LATHE_OK : LATHE_UNSUPPORTED);
        CHECK_EQ(plan_lengths(KIND_LINEAR, LATHE_FORWARD, &problem, &H100) &
                     (LENGTHS_RUNS | LENGTHS_RUNS_OF_TWO),
                 lengths);
        CHECK_EQ(pick_pass("gated_delta", LATHE_FORWARD, row[i].problem, &H100, &taken, &err), LATHE_OK);
        CHECK_STR(taken.row->name, row[i].groups ? "linear_delta_runs_sm90" : "linear_delta_sm90");
        if (row[i].groups)
            CHECK_EQ(plan.linear.groups, row[i].groups);
        else
            CHECK_HAS(err.text, "are never cut in pieces");
    }
    lathe_error err = {.status = LATHE_OK};
    struct plan plan;
    CHECK_EQ(pick_pass("delta_rule", LATHE_FORWARD, row[0].problem, &runs, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "no slot decay");
}

/* The delta rule goes back in chunks on every device that has room for them. */
TEST(the_delta_rule_goes_back_in_chunks)
{
    static const struct asked asked = {
        "linear_delta_bwd", LATHE_BACKWARD, {NUMBER(stages), NUMBER(chunk_blocks)}};
    static const struct answer row[] = {
        {&H100, "gated_delta", "dtype=bf16,t=64,d=128", NULL, {2, 2}},
        {&A100, "delta_rule", "dtype=bf16,t=64,d=128,d_v=128", NULL, {2, 1}},
        {&RTX4090, "gated_delta", "dtype=bf16,t=64,d=64", NULL, {1, 1}},
        {&RTX4090, "gated_delta", "dtype=bf16,t=64,d=128", "needs 114976 bytes of shared memory", {0}},
        {&H100, "gated_delta", "dtype=f16,t=64,d=128", "it takes bf16", {0}},
        {&H100,
         "gated_delta",
         "dtype=bf16,t=64,d=128,d_v=136",
         "d_v = 136; it takes multiples of 8 from 16 to 128",
         {0}},
        {&H100, "kda", "dtype=bf16,t=64,d=128", "a decay per key channel", {0}},
        {&H100, "simple_gla", "dtype=bf16,t=64,d=128", "no slot delta", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* Its walks by wgmma on Hopper. */
TEST(the_delta_rule_goes_back_by_wgmma)
{
    static const struct asked asked = {
        "linear_delta_bwd_sm90",
        LATHE_BACKWARD,
        {NUMBER(chunk_slices), NUMBER(stages), NUMBER(walk_bytes), NUMBER(again_bytes)}};
    static const struct answer row[] = {
        {&H100, "gated_delta", "dtype=bf16,t=64,d=128", NULL, {2, 3, 199040, 199040}},
        {&H100, "delta_rule", "dtype=bf16,t=64,d=40,d_v=128", NULL, {2, 4, 183424, 183424}},
        {&A100, "gated_delta", "dtype=bf16,t=64,d=128", "it needs 9.0", {0}},
        {&H100, "gated_delta", "dtype=f16,t=64,d=128", "it takes bf16", {0}},
        {&H100, "kda", "dtype=bf16,t=64,d=128", "a decay per key channel", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* All but the delta rule go back in chunks, too, and a normaliser in bf16. */
TEST(a_decay_by_channel_goes_back_in_chunks)
{
    static const struct asked asked = {
        "linear_additive_bwd", LATHE_BACKWARD, {NUMBER(chunk_threads), NUMBER(stages), NUMBER(smem_bytes)}};
    static const struct answer row[] = {
        {&H100, "gla", "dtype=bf16,t=64,d=128", NULL, {512, 2, 199232}},
        {&A100, "rwkv6", "dtype=bf16,t=64,d=128,d_v=128", NULL, {512, 1, 166464}},
        {&RTX4090, "hgrn2", "dtype=bf16,t=64,d=64", NULL, {256, 1, 83264}},
        {&RTX4090, "gla", "dtype=bf16,t=64,d=128", "needs 166464 bytes of shared memory", {0}},
        {&H100, "simple_gla", "dtype=bf16,t=64,d=40,d_v=72", NULL, {256, 1, 107840}},
        {&H100, "rwkv6", "dtype=bf16,t=64,d=64", NULL, {256, 2, 91456}},
        {&H100, "gla", "dtype=f16,t=64,d=128", NULL, {512, 2, 199232}},
        {&H100, "gla", "dtype=bf16,t=64,d=256,d_v=64", NULL, {512, 2, 150080}},
        {&H100, "gla", "dtype=f16,t=64,d=256", NULL, {512, 1, 232000}},
        {&A100, "gla", "dtype=f16,t=64,d=256", "needs 232000 bytes of shared memory", {0}},
        {&H100, "gla", "dtype=f32,t=64,d=128", "it takes f16 and bf16", {0}},
        {&H100, "kda", "dtype=bf16,t=64,d=128", "slot delta (linear_recurrent_bwd", {0}},
        {&H100, "linear_elu", "dtype=bf16,t=64,d=64", NULL, {256, 2, 91456}},
        {&H100, "linear_elu", "dtype=f16,t=64,d=64", "a normaliser in f16", {0}},
        {&H100, "flao", "dtype=bf16,t=64,d=128", "causal = false", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* And where it goes with the delta rule. */
TEST(the_delta_rule_by_key_channel_goes_back_in_chunks)
{
    static const struct asked asked = {"linear_keyed_delta_bwd",
                                       LATHE_BACKWARD,
                                       {NUMBER(chunk_threads), NUMBER(chunk_slices), NUMBER(smem_bytes)}};
    static const struct answer row[] = {
        {&H100, "kda", "dtype=bf16,t=64,d=128", NULL, {512, 2, 215616}},
        {&H100, "kda", "dtype=bf16,t=64,d=40,d_v=72", NULL, {256, 2, 140608}},
        {&A100, "kda", "dtype=bf16,t=64,d=128,d_v=64", NULL, {512, 1, 158272}},
        {&RTX4090, "kda", "dtype=bf16,t=64,d=64", NULL, {256, 1, 99648}},
        {&A100, "kda", "dtype=bf16,t=64,d=128", NULL, {256, 2, 140608}},
        {&RTX4090, "kda", "dtype=bf16,t=64,d=128", "needs 140608 bytes of shared memory", {0}},
        {&H100, "kda", "dtype=f16,t=64,d=128", NULL, {512, 2, 215616}},
        {&H100, "kda", "dtype=f32,t=64,d=128", "it takes f16 and bf16", {0}},
        {&H100, "kda", "dtype=bf16,t=64,d=256,d_v=64", NULL, {512, 1, 158272}},
        {&H100, "gated_delta", "dtype=bf16,t=64,d=256,d_v=128", NULL, {512, 2, 215616}},
        {&H100, "kda", "dtype=f16,t=64,d=192,d_v=136", NULL, {256, 4, 222528}},
        {&H100, "kda", "dtype=bf16,t=64,d=256", NULL, {256, 4, 222528}},
        {&A100, "kda", "dtype=bf16,t=64,d=256", "needs 222528 bytes of shared memory", {0}},
        {&H100, "gla", "dtype=bf16,t=64,d=128", "no slot delta", {0}},
        {&H100, "gated_delta", "dtype=f16,t=64,d=128", NULL, {512, 2, 215616}},
        {&RTX4090, "delta_rule", "dtype=f16,t=64,d=64", NULL, {256, 1, 99648}},
        {&H100, BY_VALUE, "dtype=bf16,t=64,d=128", "a decay per value channel", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* And with vectors of its own, of one write. */
TEST(the_delta_rule_with_vectors_goes_back_in_chunks)
{
    static const struct asked asked = {"linear_keyed_rule_bwd",
                                       LATHE_BACKWARD,
                                       {NUMBER(chunk_threads), NUMBER(chunk_slices), NUMBER(smem_bytes)}};
    static const struct answer row[] = {
        {&H100, "gdn2", "dtype=bf16,t=64,d=128", NULL, {512, 2, 232064}},
        {&H100, "gdn2", "dtype=bf16,t=64,d=256,d_v=64", NULL, {512, 1, 174720}},
        {&H100, "precond_kda", "dtype=f16,t=64,d=256", NULL, {256, 4, 230784}},
        {&A100, "precond_gated_delta", "dtype=bf16,t=64,d=64", NULL, {256, 1, 107904}},
        {&A100, "gdn2", "dtype=bf16,t=64,d=256", "needs 230784 bytes of shared memory", {0}},
        {&H100, "gdn2", "dtype=f32,t=64,d=128", "it takes f16 and bf16", {0}},
        {&H100, "comba", "dtype=bf16,t=64,d=128", NULL, {512, 2, 232064}},
        {&H100, "rwkv7", "dtype=bf16,t=64,d=64", "no slot delta", {0}},
        {&H100, "kda", "dtype=bf16,t=64,d=64", "neither slot reader nor slot writer", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* What is read is written beside v. */
TEST(a_decay_plus_low_rank_goes_back_in_chunks)
{
    static const struct asked asked = {
        "linear_dplr_bwd", LATHE_BACKWARD, {NUMBER(chunk_threads), NUMBER(walk_bytes), NUMBER(smem_bytes)}};
    static const struct answer row[] = {
        {&H100, "rwkv7", "dtype=bf16,t=64,d=128", NULL, {512, 99856, 232064}},
        {&H100, "dplr", "dtype=f16,t=64,d=256,d_v=64", NULL, {512, 165904, 174720}},
        {&A100, "iplr", "dtype=bf16,t=64,d=64", NULL, {256, 66832, 107904}},
        {&A100, "rwkv7", "dtype=bf16,t=64,d=256", "bytes of shared memory", {0}},
        {&H100, "rwkv7", "dtype=f32,t=64,d=128", "it takes f16 and bf16", {0}},
        {&H100, "comba", "dtype=bf16,t=64,d=128", "delta", {0}},
    };
    check_answers(&asked, row, sizeof row / sizeof *row);
}

/* A gate that is left out is a constant once formulas are lowered. */
TEST(gradients_of_gates_that_are_left_out_are_refused)
{
    static const char GATE[] = "return linear_attention { inputs = { g = tensor('f32', 'b', 'h', 't', { grad "
                               "= true, optional = true }) }, "
                               "decay = function(at, x) return min(x.g(at.b, at.h, at.t), 0.0) end }";
    static const char *const problem[] = {"dtype=bf16,t=64,d=64,g=none", "dtype=f32,t=64,d=64,g=none"};
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pick_pass(GATE, LATHE_BACKWARD, problem[i], &H100, &plan, &err), LATHE_UNSUPPORTED);
        CHECK_HAS(err.text, "dg is asked for and g is left out");
    }
    CHECK_EQ(pick_pass(GATE, LATHE_BACKWARD, "dtype=bf16,t=64,d=64", &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(pick_pass(GATE, LATHE_BACKWARD, "dtype=bf16,t=64,d=64,g=none,dg=none", &H100, &plan, &err),
             LATHE_OK);
}

/* What no template in chunks serves goes token by token, and says what that costs. */
TEST(token_by_token_says_what_it_costs)
{
    static const struct {
        const struct device *device;
        const char *spec, *problem;
    } row[] = {
        {&H100, "kda", "dtype=f32,t=4096,d=128"},        {&A100, "kda", "dtype=bf16,t=4096,d=256"},
        {&H100, "linear_elu", "dtype=f16,t=4096,d=128"}, {&H100, "flao", "dtype=f16,t=4096,d=128"},
        {&A100, "gla", "dtype=bf16,t=4096,d=256"},       {&H100, "gla", "dtype=f32,t=4096,d=128"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(pick_pass(row[i].spec, LATHE_BACKWARD, row[i].problem, row[i].device, &plan, &err),
                 LATHE_OK);
        CHECK_STR(plan.row->name, "linear_recurrent_bwd");
        CHECK_HAS(plan.reason, "2 to 9 times as long as by a template that goes in chunks");
    }
}

/* What stands behind a word at `at`, of any case and behind any blanks; NULL: it is another one. */
static const char *behind(const char *at, const char *word)
{
    if (!at)
        return NULL;
    at += strspn(at, " \n");
    return strncasecmp(at, word, strlen(word)) == 0 ? at + strlen(word) : NULL;
}

static bool is_field(const char *name)
{
    const char *const *slot = kinds[KIND_LINEAR].slots;
    while (*slot && strcmp(*slot, name) != 0)
        slot++;
    return *slot != NULL;
}

/* A row of linear_slots.def is a field of the language, and a number of the templates, which serve it token
   by token. */
TEST(every_slot_is_known_to_the_language_and_served)
{
    static const char RULE[] = "enum linear_function {";
    FILE *file = fopen(check_source_path("templates/common/contract.cuh"), "rb");
    char *text = calloc(1, 1 << 16);
    CHECK(file && text && fread(text, 1, (1 << 16) - 1, file) > 0);
    (void)fclose(file);
    const char *at = strstr(text, RULE);
    CHECK(at != NULL);
    at = behind(at, RULE);
    for (int k = 0; k < LINEAR_FUNCTIONS; k++) {
        const char *name = linear_slot_of((enum linear_function)k)->name;
        if (!linear_slot_sees_key((enum linear_function)k)) /* else in linear/rule.cuh */
            at = behind(behind(behind(at, "OF_"), name), ",");
        CHECK(at && is_field(name));
        for (const struct template_row *t = kinds[KIND_LINEAR].templates; t->name && k > 0; t++)
            if (strncmp(t->name, "linear_recurrent", 16) == 0)
                CHECK(t->serves.takes >> (k - 1) & 1);
    }
    CHECK(behind(at, "FUNCTIONS"));
    free(text);
}
