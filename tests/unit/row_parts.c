/*
 * row_parts.c: kernels of parts of rows of attention, and of the pass that puts them together: which
 * templates serve them, what becomes of the online function, and what every refusal says. Without a GPU.
 */
#include "plan_pick.h"
#include "loaded.h"

#define PARTS ",part_o=f32,part_rows=f32"
static const char MOD[] =
    "return attention { output_mod = function(o) return o * rsqrt(dimsum(o * o) + 1e-6) end }\n";
static const char BARE[] = "return attention { online_func = online_func { online_rowscales = {}, forward = "
                           "function(s) return s end,"
                           "  online_fwd = function(s) return s, {}, 1.0 end,"
                           "  online_fwd_epilogue = function() return 1.0, {} end } }\n";

static void check_plan(const char *spec, const char *problem, const struct device *device, const char *name,
                       const char *rows)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(spec, problem, device, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, name);
    CHECK_HAS(plan.attention.rows, rows);
    CHECK(plan.attention.o_f32 && plan.attention.part_end);
}

/* A maximum that is given away must be the row's, so it is not kept where a tile would raise it. */
TEST(every_template_leaves_the_states_of_the_spec)
{
    check_plan("causal", "dtype=bf16,h=8,q=4096,d=128" PARTS, &H100, "attention_fwd_sm90", "exact: ");
    check_plan("sinks", "dtype=f16,h=8,q=4096,d=64" PARTS, &A100, "attention_fwd_sm80", "exact: ");
    check_plan("causal", "dtype=f32,h=8,q=4096,d=64" PARTS, &H100, "attention_fwd_sm80", "exact: ");
    check_plan("retention", "dtype=bf16,h=8,q=4096,d=128" PARTS, &H100, "attention_fwd_sm90", "deferred: ");
    check_plan("sigmoid", "dtype=bf16,h=8,q=4096,d=128" PARTS, &H100, "attention_fwd_sm90", "stateless: ");
    check_plan("causal", "dtype=bf16,h=8,h_kv=2,q=1,kv=8192,d=128" PARTS, &H100, "attention_decode",
               "exact: ");
    check_plan("mla", "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512" PARTS, &H100, "attention_mla_sm90",
               "exact: ");
}

/* The mod of o comes in the pass that ends rows, as it stands behind whole rows. */
TEST(a_mod_of_o_waits_for_the_end)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    check_plan(MOD, "dtype=bf16,h=8,q=4096,d=128,used_kv=i32" PARTS, &A100, "attention_fwd_sm80", "exact: ");
    CHECK_EQ(pick(MOD, "dtype=bf16,h=8,q=4096,d=128,used_kv=i32", &A100, &plan, &err), LATHE_OK);
    CHECK_EQ(pick_pass(MOD, LATHE_COMBINE, "dtype=bf16,parts=3,q=64,d_v=128", &A100, &plan, &err), LATHE_OK);
    CHECK(plan.attention.o_f32 && plan.attention.parts_aligned);
    CHECK_EQ(pick_pass("sinks", LATHE_COMBINE, "dtype=bf16,parts=3,q=64,d_v=33,unaligned=part_o", &A100,
                       &plan, &err),
             LATHE_OK);
    CHECK(!plan.attention.o_f32 && !plan.attention.parts_aligned && plan.attention.o_aligned);
}

TEST(what_no_kernel_serves_says_what_would)
{
    static const struct {
        const char *spec;
        lathe_pass pass;
        const char *problem, *refused;
    } row[] = {
        {"causal", LATHE_FORWARD, "dtype=bf16,q=64,d=64,unaligned=part_o" PARTS,
         "attention_fwd_sm80: rows of part_o do not start at multiples of 16 bytes; align them"},
        {"causal", LATHE_FORWARD, "dtype=bf16,q=64,d=60" PARTS,
         "attention_fwd_sm80: a head dim is no multiple of 8, and there are parts of rows; pad it"},
        {"sinks", LATHE_COMBINE, "dtype=f64,parts=2,d_v=64",
         "attention_combine: dtype f64; it takes f32, f16 and bf16 (the host device takes that)"},
        {MOD, LATHE_COMBINE, "dtype=bf16,parts=2,d_v=60",
         "attention_combine: a head dim is no multiple of 8, and there are mods of q, k, v or o; pad it"},
        {"sinks", LATHE_COMBINE, "dtype=bf16,parts=2,d_v=520",
         "attention_combine: d_v = 520; it takes 1 to 512"},
    };
    struct plan plan;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(pick_pass(row[i].spec, row[i].pass, row[i].problem, &H100, &plan, &err), LATHE_UNSUPPORTED);
        CHECK_HAS(err.text, row[i].refused);
    }
}

TEST(what_has_no_combine_has_no_parts)
{
    struct signature sig;
    struct problem problem;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed(BARE, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,q=64,d=64" PARTS, &problem, &err), LATHE_ARG);
    CHECK_HAS(err.text, "this spec makes no parts of rows: its online_func has no combine");
    ir_free(ir);
}
