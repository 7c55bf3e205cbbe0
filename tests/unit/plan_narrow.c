/*
 * plan_narrow.c: plans of calls with k and v of 8 bits by few queries: how many blocks share a
 * multiprocessor, and which mods of k and v become factors of scores and of weights, so that kernels read
 * what is stored.
 */
#include "plan_pick.h"

static const char DECODED[] = "dtype=bf16,k=f8e4m3,v=f8e4m3,b=8,h=32,h_kv=8,q=1,kv=4096,d=128";
static const char SIXTEEN[] = "dtype=bf16,k=f8e4m3,v=f8e4m3,b=8,h=64,h_kv=4,q=1,kv=4096,d=128";

static void check_blocks(const char *spec, const char *problem, const struct device *device, int blocks,
                         const char *tile)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(spec, problem, device, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_decode_narrow");
    CHECK_EQ(plan.attention.resident, blocks);
    CHECK_EQ(plan.attention.part_blocks, blocks * device->sm_count);
    CHECK_STR(plan.tile, tile);
}

/* Of 16 rows, three leave 168 registers to a thread, in which scales of keys spill. */
TEST(narrow_elements_that_read_by_key_have_two_blocks)
{
    check_blocks("causal", SIXTEEN, &H100, 3, "64x32s2w4q");
    check_blocks("fp8_cache", SIXTEEN, &H100, 2, "64x32s3w4q");
    check_blocks("fp8_cache", "dtype=f16,k=i8,v=i8,h=32,h_kv=2,q=1,kv=4096,d=64", &H100, 2, "64x32s4w4q");
    check_blocks("causal", SIXTEEN, &A100, 2, "64x32s2w4q"); /* of shared memory there is not more */
    check_blocks("fp8_cache", SIXTEEN, &A100, 2, "64x32s2w4q");
    check_blocks("causal", SIXTEEN, &RTX4090, 1, "64x32s2w4q");
}

/* Up to eight rows of a key head, of k and v that both have 8 bits, have half the registers. */
TEST(narrow_rows_up_to_eight_have_more_blocks)
{
#define SHAPE ",b=8,h=32,h_kv=8,kv=4096,d=128"
    check_blocks("causal", DECODED, &H100, 4, "32x16s3w4q");
    check_blocks("causal", "dtype=bf16,k=f8e4m3,v=i8,q=2" SHAPE, &H100, 4, "32x16s3w4q");
    check_blocks("causal", "dtype=bf16,k=f8e4m3,v=i8,q=3" SHAPE, &H100, 3, "64x32s2w4q");
    check_blocks("causal", "dtype=bf16,k=f8e4m3,q=1" SHAPE, &H100, 2, "64x32s2w4q");
    check_blocks("fp8_cache", DECODED, &H100, 3, "32x32s2w4q");
    check_blocks("fp8_cache", "dtype=f16,k=i8,v=i8,h=32,h_kv=8,q=1,kv=4096,d=64", &H100, 3, "32x32s4w4q");
    check_blocks("causal", "dtype=bf16,k=i8,v=i8,seqs=9,h=32,h_kv=8,q=18,kv=9000,d=64", &H100, 3,
                 "32x32s4w4q");
    check_blocks("causal", DECODED, &A100, 3, "32x16s3w4q");
    check_blocks("causal", DECODED, &RTX4090, 2, "32x16s3w4q");
#undef SHAPE
}

/* By name it takes any rows; what its tiles follow from is what kernels are told apart by, and of packed
   sequences not the batch where sums may not depend on it. */
TEST(narrow_tiles_by_name_follow_from_what_is_foretold)
{
#define SHAPE "dtype=bf16,k=i8,v=i8,seqs=4,h=8,h_kv=2,kv=400,d=64,q="
    static const struct {
        const char *problem, *tile;
        int lengths;
    } row[] = {{SHAPE "8", "32x32s4w4q", 0},
               {SHAPE "9", "64x32s4w4q", LENGTHS_NINE_ROWS},
               {SHAPE "8,deterministic=batch", "64x32s4w4q", LENGTHS_NINE_ROWS},
               {SHAPE "9,deterministic=batch", "64x32s4w4q", LENGTHS_NINE_ROWS}};
#undef SHAPE
    const struct device named = asking_for(&H100, "attention_decode_narrow");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct signature sig;
        struct problem problem;
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
        CHECK_EQ(problem_parse(&sig, row[i].problem, &problem, &err), LATHE_OK);
        CHECK_EQ(plan_lengths(ir->kind, LATHE_FORWARD, &problem, &named), row[i].lengths);
        CHECK_EQ(pick("causal", row[i].problem, &named, &plan, &err), LATHE_OK);
        CHECK_STR(plan.tile, row[i].tile);
        ir_free(ir);
    }
}

/* The same number cuts keys and is what the kernel is compiled for. */
TEST(narrow_kernels_are_compiled_for_the_blocks_of_their_plan)
{
    static const char *const SPEC[] = {"causal", "fp8_cache"};
    static const char *const SAYS[] = {"constexpr int BLOCKS = 4;", "constexpr int BLOCKS = 3;"};
    for (int i = 0; i < 2; i++) {
        struct signature sig;
        struct problem problem;
        static struct source source;
        lathe_error err = {.status = LATHE_OK};
        bool said = false;
        struct ir *ir = load_signed(SPEC[i], LATHE_FORWARD, &sig);
        CHECK_EQ(problem_parse(&sig, DECODED, &problem, &err), LATHE_OK);
        CHECK_EQ(kernel_make_source(ir, LATHE_FORWARD, &sig, &problem, &H100, &source, &err), LATHE_OK);
        for (int t = 0; t < source.n_texts; t++)
            said |= strstr(source.text[t].data, SAYS[i]) != NULL;
        CHECK(said);
        source_free(&source);
        ir_free(ir);
    }
}

#define SCALES   "inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv'), vs = tensor('f32', 'b', 'h_kv', 'kv') }, "
#define OF_KEY   "key_mod = function(k, at, x) return k * x.ks(at.b, at.h_kv, at.pos) end, "
#define OF_VALUE "value_mod = function(v, at, x) return v / x.vs(at.b, at.h_kv, at.pos) end "
static const char BOTH[] = "return attention { " SCALES OF_KEY OF_VALUE "}\n";

static void check_factors(const char *spec, const char *problem, const char *template_name,
                          const char *factors)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(spec, problem, &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, template_name);
    CHECK_EQ(plan.attention.factors != NULL, factors != NULL);
    if (factors)
        CHECK_HAS(plan.attention.factors, factors);
}

TEST(products_by_a_value_of_the_key_are_factors)
{
    static const char NARROW[] = "attention_decode_narrow";
    check_factors(BOTH, DECODED, NARROW, "of key_mod and value_mod are ones of scores and of weights");
    check_factors(BOTH, "dtype=bf16,k=f8e4m3,v=i8,b=8,h=32,h_kv=8,q=1,kv=4096,page=64,d=128", NARROW,
                  "of key_mod and value_mod");
    check_factors("return attention { " SCALES OF_KEY "}\n", "dtype=f16,k=f8e4m3,v=i8,h=8,q=1,kv=4096,d=64",
                  NARROW, "the factor of key_mod is one of scores");
    /* k of 16 bits keeps its mod, whose kernel is ahead; so do many queries */
    check_factors(BOTH, "dtype=bf16,v=f8e4m3,h=8,q=1,kv=4096,d=64", NARROW, "the factor of value_mod");
    check_factors(BOTH, "dtype=bf16,h=8,q=1,kv=4096,d=64", "attention_decode", NULL);
    check_factors(BOTH, "dtype=bf16,k=f8e4m3,v=f8e4m3,h=8,q=4096,kv=4096,d=64", "attention_fwd_sm90", NULL);
    check_factors("return attention { key_mod = half(function(lo, hi) return lo * 2, hi * 2 end) }\n",
                  "dtype=bf16,k=f8e4m3,v=f8e4m3,h=8,q=1,kv=4096,d=64", "attention_decode", NULL);
    check_factors("return attention { key_mod = function(k, at) return k * (at.i + 1) end }\n",
                  "dtype=bf16,k=f8e4m3,v=f8e4m3,h=8,q=1,kv=4096,d=64", "attention_decode", NULL);
    check_factors("return attention { key_mod = function(k) return k * rsqrt(dimsum(k * k) + 1.0) end }\n",
                  "dtype=bf16,k=f8e4m3,v=f8e4m3,h=8,q=1,kv=4096,d=64", "attention_decode", NULL);
    check_factors("return attention { key_mod = function(k) return k + 1.0 end }\n",
                  "dtype=bf16,k=f8e4m3,v=f8e4m3,h=8,q=1,kv=4096,d=64", "attention_decode", NULL);
}

static int count_launches(const char *text, const char *problem_text, const struct device *device,
                          const char *role)
{
    struct signature sig;
    struct problem problem;
    static struct source source;
    struct diag diag = {0};
    lathe_error err = {.status = LATHE_OK};
    int n = 0;
    struct ir *ir = spec_load("mods.lua", text, strlen(text), &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    CHECK_EQ(kernel_make_source(ir, LATHE_FORWARD, &sig, &problem, device, &source, &err), LATHE_OK);
    for (int i = 0; i < source.n_launches; i++)
        n += strstr(source.launch[i].entry, role) != NULL;
    source_free(&source);
    ir_free(ir);
    return n;
}

/* A kernel that reads 8 bits of the other one leaves a mod of 16 bits to the kernel ahead. */
TEST(mods_of_16_bits_are_computed_ahead)
{
    static const char BENT[] = "return attention { key_mod = function(k) return tanh(k) end }\n";
    const struct device forward = asking_for(&H100, "attention_fwd_narrow");
    CHECK_EQ(count_launches(BENT, "dtype=bf16,v=i8,h=8,h_kv=2,q=1,kv=4096,d=128", &H100, "_mod_k"), 1);
    CHECK_EQ(count_launches(BENT, "dtype=bf16,v=i8,h=8,h_kv=2,q=300,kv=4096,d=128", &forward, "_mod_k"), 1);
    CHECK_EQ(count_launches(BOTH, "dtype=bf16,v=f8e4m3,h=8,q=1,kv=4096,d=64", &H100, "_mod_k"), 1);
}

/* V is turned over from rows that start anywhere, by one kernel. */
TEST(rows_of_v_of_e4m3_start_anywhere)
{
    static const char PROBLEM[] = "dtype=bf16,q=f8e4m3,k=f8e4m3,v=f8e4m3,h=2,q=90,kv=170,d=64,unaligned=v";
    const struct device named = asking_for(&H100, "attention_fwd_fp8_sm90");
    CHECK_EQ(count_launches("return attention {}\n", PROBLEM, &named, "_turn_v"), 1);
    CHECK_EQ(count_launches("return attention {}\n", PROBLEM, &named, "_mod_v"), 0);
}

/* Weights of f16 take factors where v lies in pages, and nothing else could read it. */
TEST(factors_of_values_are_of_f16_in_pages)
{
    check_factors(BOTH, "dtype=f16,k=f8e4m3,v=i8,h=8,q=1,kv=4096,d=64", "attention_decode",
                  "the factor of key_mod");
    check_factors(BOTH, "dtype=f16,k=f8e4m3,v=i8,h=8,q=1,kv=4096,page=64,d=64", "attention_decode_narrow",
                  "of key_mod and value_mod");
    check_factors(BOTH, "dtype=f16,k=f8e4m3,v=i8,h=8,q=100,kv=1024,page=64,d=64", "attention_fwd_narrow",
                  "of key_mod and value_mod");
}

static void check_rows(const char *spec, const char *problem, const char *says, bool held)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(spec, problem, &H100, &plan, &err), LATHE_OK);
    CHECK_HAS(plan.attention.rows, says);
    CHECK_EQ(strstr(plan.attention.rows, "divided by the largest of their row") != NULL, held);
}

#define TIMES(factor)                                                                                        \
    "return attention { inputs = { vs = tensor('f32', 'h_kv', 'kv'), hs = tensor('f32', 'h') },\n"           \
    "  online_func = softmax_times(function(at, x) return " factor " end) }\n"

#define SUMMED(weight)                                                                                       \
    "return attention { inputs = { hs = tensor('f32', 'h') }, online_func = online_func {\n"                 \
    "  online_rowscales = {}, online_fwd = function(s, r, at, x) return sigmoid(s) * " weight ", {}, 1.0 "   \
    "end,\n"                                                                                                 \
    "  online_fwd_epilogue = function() return 1.0, {} end,\n"                                               \
    "  forward = function(s, final, at, x) return sigmoid(s) * " weight " end,\n"                            \
    "  combine = function() return 1.0, {} end } }\n"

/* Factors by key divide weights of f16 by the largest of their row; what a row has at all its keys is one of
   o, and leaves a softmax what it is. */
TEST(factors_of_weights_of_f16_are_held)
{
    static const char F16[] = "dtype=f16,h=8,h_kv=2,q=512,kv=4096,d=64";
    static const char BF16[] = "dtype=bf16,h=8,h_kv=2,q=512,kv=4096,d=64";
    check_rows(TIMES("x.vs(at.h_kv, at.kv)"), F16, "exact", true);
    check_rows(TIMES("x.vs(at.h_kv, at.kv)"), BF16, "exact", false);
    check_rows(TIMES("1.0 / (1.0 + at.kv)"), F16, "exact", true);
    check_rows(TIMES("x.hs(at.h)"), F16, "lazy", false);
    check_rows(TIMES("x.hs(at.h) * 1e-9 / (1.0 + at.row)"), F16, "lazy", false);
    check_rows(TIMES("x.hs(at.h) * x.vs(at.h_kv, at.kv)"), F16, "exact", true);
    check_rows(TIMES("exp2(x.vs(at.h_kv, at.kv))"), F16, "exact", true);
    check_rows(TIMES("sigmoid(x.vs(at.h_kv, at.kv))"), F16, "exact", true);
    check_rows(TIMES("tanh(0.01 * (at.q - at.kv))"), F16, "exact", true);
    check_rows(TIMES("where(gt(x.vs(at.h_kv, at.kv), 0.0), 1e-6, 1.0)"), F16, "exact", true);
    check_rows(TIMES("where(gt(x.vs(at.h_kv, at.kv), 0.0), 2.0, 0.0)"), F16, "exact", false);
    check_rows(SUMMED("x.hs(at.h)"), F16, "stateless", false);
    check_rows(SUMMED("(x.hs(at.h) * sigmoid(s) + max(s, 0.0))"), F16, "exact", true);
    check_rows("return attention { online_func = elementwise_weights(function(s) return exp(s) end) }\n", F16,
               "stateless", false);
    check_rows("causal", F16, "lazy", false);
    check_rows("sigmoid", F16, "stateless", false);
    check_rows("relu", F16, "stateless", false);
    check_rows("hstu", F16, "stateless", false);
    check_rows("alibi", F16, "lazy", false);
    check_rows("dropout", F16, "lazy", false);
}

/* A spec that has all row states that there may be has no room for one more. */
TEST(weights_of_f16_that_no_state_can_hold_are_refused)
{
    static const char SPEC[] =
        "return attention { inputs = { vs = tensor('f32', 'kv') }, online_func = online_func {\n"
        "  online_rowscales = { a = 0.0, b = 0.0, c = 0.0, d = 0.0, e = 0.0, f = 0.0, g = 0.0, h = 0.0 },\n"
        "  online_fwd = function(s, r, at, x) local t = rowsum(s) return s * x.vs(at.kv),\n"
        "    { a = r.a + t, b = r.b + t, c = r.c + t, d = r.d + t, e = r.e + t, f = r.f + t, g = r.g + t,\n"
        "      h = r.h + t }, 1.0 end,\n"
        "  online_fwd_epilogue = function(r) return 1.0, {} end,\n"
        "  forward = function(s, final, at, x) return s * x.vs(at.kv) end } }\n";
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(SPEC, "dtype=bf16,h=2,q=512,kv=512,d=64", &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(pick(SPEC, "dtype=f16,h=2,q=512,kv=512,d=64", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "weights have factors by key, which f16 may have no room for");
    CHECK_HAS(err.text, "give q as bf16");
}

#define TOKENS                                                                                               \
    "return attention { qk2 = true, v = 'k', inputs = { s = tensor('f32', 'b', 'kv', 4) },\n"                \
    "  key_mod = function(k, at, x) return k * x.s(at.b, at.kv, clamp(at.i // 128, 0, 3)) end }\n"

/* Latents of 8 bits are widened by their scales ahead of the kernel; what that does not go with is said. */
TEST(key_mod_is_of_latents_and_not_of_k2)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    check_factors(TOKENS, "dtype=bf16,k=f8e4m3,h=16,h_kv=1,q=1,kv=4096,d=512,d2=64",
                  "attention_mla_narrow_sm90", NULL);
    CHECK_EQ(pick(TOKENS, "dtype=bf16,h=16,h_kv=1,q=1,kv=4096,d=512,d2=64", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "key_mod is given beside k2, and k is not of 8 bits; give k as the mod has made it");
    CHECK_EQ(pick_pass(TOKENS, LATHE_BACKWARD, "dtype=bf16,h=16,h_kv=1,q=64,kv=64,d=512,d2=64", &H100, &plan,
                       &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "key_mod of a k beside k2 has gradients on the host device alone");
    CHECK_EQ(pick_pass("return attention { v = 'k', key_mod = function(k) return 2 * k end }\n",
                       LATHE_BACKWARD, "dtype=bf16,h=4,q=64,kv=64,d=64,d_v=64", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "key_mod of keys that are values has gradients on the host device alone");
    check_factors("return attention { v = 'k', key_mod = function(k) return 2 * k end }\n",
                  "dtype=bf16,h=4,q=64,kv=64,d=64,d_v=64", "attention_fwd_sm90", NULL);
}

TEST(latents_of_8_bits_are_read_as_they_lie)
{
    static const char text[] = "dtype=bf16,k=f8e4m3,h=16,h_kv=1,q=1,kv=4096,page=64,d=512,d2=64";
    const struct device wish = asking_for(&H100, "attention_mla_narrow");
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(TOKENS, text, &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla_narrow");
    CHECK(plan.attention.reads_narrow && plan.attention.v_is_k && plan.attention.d2 == 64);
    CHECK_EQ(pick(TOKENS, text, &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla_narrow_sm90");
    CHECK_EQ(pick(TOKENS, text, &A100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla_narrow");
    CHECK_EQ(pick("mla_decoupled", "dtype=bf16,h=16,h_kv=1,q=1,kv=4096,d=512,d2=64", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_mla_narrow: it is for k of 8 bits");
    CHECK_EQ(pick("return attention { v = 'k', key_mod = function(k) return k * dimmax(k) end }\n",
                  "dtype=bf16,k=i8,h=4,q=1,kv=640,d=64", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "key_mod makes elements from others");
    CHECK_EQ(pick("mla", "dtype=bf16,k=i8,h=4,h_kv=1,q=1,kv=640,d=72,d_v=64", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "rows of k of 8 bits are no multiples of 16 numbers");
    CHECK_EQ(pick("mla", "dtype=bf16,k=i8,h=4,h_kv=1,q=1,kv=640,d=64,unaligned=k", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "rows of k do not start at multiples of 16 bytes");
}

/* The same by wgmma, from the same tile as of 16 bits: 64 rows and 64 keys. */
TEST(latents_of_8_bits_are_read_for_wgmma)
{
    static const char text[] = "dtype=bf16,k=f8e4m3,h=16,h_kv=1,q=1,kv=4096,page=64,d=512,d2=64";
    const struct device wish = asking_for(&H100, "attention_mla_narrow_sm90");
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick(TOKENS, text, &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla_narrow_sm90");
    CHECK(plan.attention.reads_narrow && plan.attention.applies_key_mod && plan.attention.d2 == 64);
    CHECK_EQ(plan.attention.bm, 64);
    CHECK_EQ(plan.attention.bn, 64);
    CHECK(!plan.bound_waits);
    CHECK_EQ(pick("mla_decoupled", "dtype=bf16,h=16,h_kv=1,q=1,kv=4096,d=512,d2=64", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_mla_narrow_sm90: it is for k of 8 bits");
    CHECK_EQ(pick("return attention { v = 'k', key_mod = function(k) return k * dimmax(k) end }\n",
                  "dtype=bf16,k=i8,h=4,q=1,kv=640,d=128", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "key_mod makes elements from others");
    CHECK_EQ(pick("mla", "dtype=bf16,k=i8,h=4,h_kv=1,q=1,kv=640,d=64,d_v=64", &wish, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "d_v, rounded up to 128 columns, is beyond the columns of k");
}

static void check_plan(const char *problem, lathe_pass pass, bool reads, const char *name)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    struct signature sig;
    struct problem p;
    static struct source source;
    struct ir *ir = load_signed("causal", pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem, &p, &err), LATHE_OK);
    CHECK_EQ(kernel_make_source(ir, pass, &sig, &p, &H100, &source, &err), LATHE_OK);
    CHECK(strstr(source.launch[0].entry, "narrow") != NULL || reads);
    source_free(&source);
    ir_free(ir);
    if (pass != LATHE_FORWARD)
        return;
    CHECK_EQ(pick("causal", problem, &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, name);
    CHECK_EQ(plan.attention.reads_narrow, reads);
}

/* Queries that are neither few nor many read 8 bits themselves where keys lie in pages. */
TEST(more_queries_read_8_bits_in_pages)
{
    check_plan("dtype=bf16,k=f8e4m3,v=i8,h=8,h_kv=2,q=31,d=128,page=64,most=4,used_kv=i32", LATHE_FORWARD,
               true, "attention_fwd_narrow");
    check_plan("dtype=bf16,k=f8e4m3,v=i8,h=8,h_kv=2,q=512,d=128", LATHE_FORWARD, false, "attention_fwd_sm90");
    check_plan("dtype=bf16,k=f8e4m3,v=i8,h=8,h_kv=2,q=512,d=128", LATHE_BACKWARD, false, "");
}

static void check_backward(const char *text, const char *problem, const char *refusal)
{
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    const lathe_status status = pick_pass(text, LATHE_BACKWARD, problem, &H100, &plan, &err);
    CHECK_EQ(status, refusal ? LATHE_UNSUPPORTED : LATHE_OK);
    if (refusal)
        CHECK_HAS(err.text, refusal);
}

/* They are widened as they are copied out of their pages; what no kernel of pages takes is said. */
TEST(pages_of_8_bits_have_gradients)
{
    check_backward("causal", "dtype=bf16,k=f8e4m3,v=i8,h=8,h_kv=2,q=512,d=128,page=64,most=8", NULL);
    check_backward("causal", "dtype=f32,v=f8e5m2,h=8,h_kv=2,q=512,d=64,page=16,most=8,used_kv=i32", NULL);
    check_backward("fp8_cache", "dtype=f16,k=f8e4m3,v=i8,h=8,q=512,d=192,d_v=128,page=3,most=80", NULL);
    check_backward("mla", "dtype=bf16,k=f8e4m3,h=8,h_kv=1,q=512,d=576,d_v=512,page=64,most=8", NULL);
    check_backward(BOTH, "dtype=bf16,k=f8e4m3,v=i8,h=8,q=512,d=64,page=64,most=8",
                   "pages are given beside a mod of k");
    check_backward("causal", "dtype=bf16,k=f8e4m3,v=i8,h=8,q=512,d=64,page=64,most=8,unaligned=v",
                   "rows of v do not start at multiples of 16 bytes");
    check_backward("causal", "dtype=bf16,k=f8e4m3,v=i8,h=8,q=512,d=60,page=64,most=8",
                   "a head dim is no multiple of 8, and there are keys in pages");
}
