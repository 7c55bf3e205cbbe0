/*
 * plan.c: which problems are taken, with tiles that fit the device, and what every refusal says. Without a
 * GPU: a device is a struct of numbers.
 */
#include "plan_pick.h"
#include "loaded.h"

static void refusals_of(const char *spec, lathe_pass pass, const char *problem_text,
                        const struct device *device, lathe_error *err)
{
    struct signature sig;
    struct problem problem;
    struct ir *ir = load_signed(spec, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, err), LATHE_OK);
    struct kernel_request request;
    CHECK_EQ(kernel_open(&request, ir, pass, &sig, &problem, device, err), LATHE_OK);
    plan_refusals(&request, err);
    kernel_close(&request);
    ir_free(ir);
}

TEST(every_head_dim_fits_every_device)
{
    const struct device *const devices[] = {&A100, &RTX4090, &H100};
    for (int i = 0; i < 3; i++)
        for (int d = 16; d <= 256; d += 8)
            for (int dv = 16; dv <= 256; dv += 48) {
                char text[96];
                struct plan plan;
                lathe_error err = {.status = LATHE_OK};
                snprintf(text, sizeof text, "dtype=bf16,b=1,h=2,q=64,d=%d,d_v=%d", d, dv);
                lathe_status status = pick("relative_bias", text, devices[i], &plan, &err);
                if (status != LATHE_OK)
                    fprintf(stderr, "%s on %s: %s\n", text, devices[i]->arch, err.text);
                CHECK_EQ(status, LATHE_OK);
                CHECK(plan.attention.smem_bytes <= devices[i]->smem_bytes);
                CHECK_EQ(plan.attention.d_pad % 16, 0);
                CHECK(plan.attention.d_pad >= d && plan.attention.dv_pad >= dv);
                CHECK_EQ(plan.attention.bm % (16 * plan.attention.warps), 0);
            }
}

/* Instructions of one architecture alone are in code for that one, and in no other. */
TEST(code_has_the_instructions_of_its_architecture)
{
    static const struct {
        const char *arch;
        bool portable, hopper;
    } row[] = {{"sm_80", true, false}, {"sm_89", true, false},   {"sm_90", true, false},
               {"sm_90a", true, true}, {"sm_110a", true, false}, {"sm_121", true, false}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct device device;
        char why[REASON_BYTES] = "";
        CHECK(device_find(row[i].arch, &device, NULL));
        CHECK_EQ(isa_among(ISA_SM80, isas_of(&device)), row[i].portable);
        CHECK_EQ(isa_among(ISA_SM90A, isas_of(&device)), row[i].hopper);
        CHECK_EQ(isa_is_own(&device), row[i].hopper);
        CHECK_EQ(isa_serves(ISA_SM90A, &device, why), row[i].hopper);
        CHECK_EQ(why[0] == '\0', row[i].hopper);
    }
}

/* Code for sm_90 runs on later devices, too, and has no wgmma. */
TEST(what_runs_on_more_than_hopper_is_portable)
{
    struct device sm_90 = H100;
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    strcpy(sm_90.arch, "sm_90");
    for (lathe_pass pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++) {
        CHECK_EQ(pick_pass("causal", pass, "dtype=bf16,b=1,h=1,q=64,d=64", &sm_90, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, pass == LATHE_FORWARD ? "attention_fwd_sm80" : "attention_bwd_sm80");
        refusals_of("causal", pass, "dtype=bf16,b=1,h=1,q=64,d=64", &sm_90, &err);
        CHECK_HAS(err.text, "code for sm_90, which runs on later devices, too; it needs sm_90a (wgmma, TMA)");
        CHECK_EQ(pick_pass("causal", pass, "dtype=bf16,b=1,h=1,q=64,d=64", &H100, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, pass == LATHE_FORWARD ? "attention_fwd_sm90" : "attention_bwd_sm90");
    }
}

/* Of every dim and device, by the portable kernel, in tiles that fit. */
TEST(attention_of_f32_has_a_plan)
{
    static const int DIMS[][2] = {{16, 16}, {64, 64}, {128, 128}, {192, 256}, {256, 256}};
    const struct device *const device[] = {&A100, &RTX4090, &H100};
    struct plan plan;
    lathe_error err;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 5; i++) {
            char problem[80];
            snprintf(problem, sizeof problem, "dtype=f32,b=1,h=1,q=8,kv=600,d=%d,d_v=%d", DIMS[i][0],
                     DIMS[i][1]);
            CHECK_EQ(pick("causal", problem, device[d], &plan, &err), LATHE_OK);
            CHECK_STR(plan.row->name, "attention_fwd_sm80");
            CHECK(plan.attention.smem_bytes <= device[d]->smem_bytes);
            CHECK_EQ(plan.attention.smem_bytes,
                     4 * (plan.attention.bm * plan.attention.d_pad +
                          plan.attention.bn * (plan.attention.d_pad + plan.attention.dv_pad)));
            CHECK_EQ(plan.attention.bm, 16 * plan.attention.warps);
            CHECK_HAS(plan.reason, "products of f32 are three of bf16 each");
        }
    refusals_of("causal", LATHE_FORWARD, "dtype=f32,b=1,h=1,q=8,kv=600,d=64", &H100, &err);
    CHECK_HAS(err.text,
              "attention_fwd_sm90: dtype f32; it takes f16 and bf16 (attention_fwd_sm80 takes that)");
    CHECK_HAS(err.text, "attention_decode: dtype f32; it takes f16 and bf16 (attention_fwd_sm80 takes that)");
}

/* back::layout of attention/backward/sm80.cuh, for lse, delta and a norm a row, and no diagonals. */
static int f32_back_bytes(const struct back_plan *b)
{
    return b->stages * (4 * b->bm * (b->dk + b->dv) + 12 * b->bm) + 4 * b->bn * (b->dk + b->dv) +
           4 * b->bn * b->bm * (b->split > 1 ? 2 : 1) + 32;
}

/* Back, as far as shared memory goes. */
TEST(gradients_of_f32_attention_have_a_plan)
{
    static const int DIMS[][2] = {{16, 16},   {64, 64},   {96, 80},  {128, 128},
                                  {192, 192}, {224, 224}, {256, 256}};
    const struct device *const device[] = {&A100, &RTX4090, &H100};
    struct plan plan;
    lathe_error err;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 7; i++) {
            char problem[80];
            snprintf(problem, sizeof problem, "dtype=f32,b=1,h=1,q=80,kv=600,d=%d,d_v=%d", DIMS[i][0],
                     DIMS[i][1]);
            const lathe_status status = pick_pass("causal", LATHE_BACKWARD, problem, device[d], &plan, &err);
            if (DIMS[i][0] == 256 && device[d] == &RTX4090) {
                CHECK_EQ(status, LATHE_UNSUPPORTED);
                CHECK_HAS(err.text, "attention_bwd_sm80: no tile of head dims 256, 256 fits 101376 bytes of "
                                    "shared memory in f32; f16 and bf16 take half of it");
                continue;
            }
            CHECK_EQ(status, LATHE_OK);
            CHECK_STR(plan.row->name, "attention_bwd_sm80");
            const struct back_plan *b = &plan.attention.back;
            CHECK_EQ(b->smem_bytes, f32_back_bytes(b));
            CHECK(b->smem_bytes <= device[d]->smem_bytes);
            CHECK_EQ(b->bn * b->split, 16 * b->warps); /* of a warp 16 keys */
            CHECK_HAS(plan.reason, "products of f32 are three of bf16 each");
        }
    refusals_of("causal", LATHE_BACKWARD, "dtype=f32,b=1,h=1,q=8,kv=600,d=64", &H100, &err);
    CHECK_HAS(err.text,
              "attention_bwd_sm90: dtype f32; it takes f16 and bf16 (attention_bwd_sm80 takes that)");
    refusals_of("causal", LATHE_BACKWARD, "dtype=f32,b=1,h=1,q=8,kv=600,d=256", &H100, &err);
    CHECK_HAS(err.text,
              "attention_bwd_wide_sm90: dtype f32; it takes f16 and bf16 (attention_bwd_sm80 takes that)");
}

TEST(refusals_name_the_reason)
{
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=1,q=8,d=584", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm80: d = 584; it takes 16 to 256");
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=1,q=8,d=12", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm90: d = 12; it takes multiples of 8 from 16 to 256");
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=1,q=8,d=64,d_v=520", &A100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "d_v = 520");
    CHECK_EQ(pick("causal", "dtype=f64,b=1,h=1,q=8,d=64", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "dtype f64; it takes f32, f16 and bf16 (the host device takes that)");
    const struct device turing = {.sm = 75, .sm_count = 68, .smem_bytes = 65536, .arch = "sm_75"};
    CHECK_EQ(pick("causal", "dtype=f16,b=1,h=1,q=8,d=64", &turing, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "compute capability 7.5");
    const struct device tiny = {.sm = 80, .sm_count = 1, .smem_bytes = 1024, .arch = "sm_80"};
    CHECK_EQ(pick("causal", "dtype=f16,b=1,h=1,q=8,d=64", &tiny, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "1024 bytes of shared memory");
}

static void check_sequences_refused(const char *spec, const char *problem_text, const char *words)
{
    lathe_error err = {.status = LATHE_OK};
    refusals_of(spec, LATHE_BACKWARD, problem_text, &H100, &err);
    CHECK_HAS(err.text, words);
}

/* Hopper's kernel reads sequences that lie one behind the other, parts of a batch, and pages. */
TEST(sequences_have_a_kernel_of_hopper)
{
    static const struct {
        const char *problem, *name;
    } CASE[] = {{"dtype=bf16,h=4,h_kv=1,q=100,kv=100,d=64,seqs=3", "attention_fwd_sm90"},
                {"dtype=bf16,h=4,h_kv=1,q=9,kv=100,d=64,seqs=3,cu_kv=i32,used_kv=i32", "attention_fwd_sm90"},
                {"dtype=f32,h=2,q=100,kv=100,d=64,seqs=3", "attention_fwd_sm80"},
                {"dtype=bf16,b=3,h=2,q=100,kv=100,d=64,used_kv=i32", "attention_fwd_sm90"},
                {"dtype=bf16,h=2,q=100,kv=128,d=64,seqs=3,page=16", "attention_fwd_sm90"},
                {"dtype=bf16,b=3,h=2,q=100,kv=128,d=64,page=16", "attention_fwd_sm90"},
                {"dtype=bf16,b=3,h=2,q=100,kv=128,d=64,page=16,folded=k", "attention_fwd_sm80"},
                {"dtype=bf16,b=3,h=2,q=100,kv=120,d=64,page=12", "attention_fwd_sm80"}};
    const struct device asked = asking_for(&H100, "attention_fwd_sm90");
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        CHECK_EQ(pick_pass("causal", LATHE_FORWARD, CASE[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, CASE[i].name);
    }
    CHECK_EQ(pick_pass("full", LATHE_FORWARD, CASE[0].problem, &H100, &plan, &err), LATHE_OK);
    CHECK(plan.attention.dynamic && !plan.attention.pack);
    CHECK_HAS(plan.reason, "a tile has rows of one query head, since sequences have lengths of their own");
    refusals_of("causal", LATHE_FORWARD, CASE[sizeof CASE / sizeof *CASE - 1].problem, &H100, &err);
    CHECK_HAS(err.text, "attention_fwd_sm90: pages of 12 keys; TMA reads those of 16, 32, 64, 128 and 256");
    CHECK_EQ(pick_pass("causal", LATHE_FORWARD, "dtype=bf16,h=2,q=900,kv=960,d=128,seqs=3,page=64", &asked,
                       &plan, &err),
             LATHE_OK);
    CHECK_EQ(plan.attention.bn, 64); /* whole pages, where packed ones have 80 keys */
}

/* Kernels of the backward pass read the lists; what it has no way for is said. */
TEST(packed_sequences_have_gradients)
{
    static const char text[] = "dtype=bf16,h=2,q=100,kv=100,d=64,seqs=3";
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, text, &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_sm90");
    CHECK_HAS(plan.reason, "sequences with the most queries come first");
    check_sequences_refused("causal", "dtype=bf16,b=2,h=2,q=100,kv=100,d=64,used_kv=i32",
                            "used_kv is given without cu_q (attention_bwd_sm80 takes that)");
    check_sequences_refused(
        "causal", "dtype=bf16,h=2,q=100,kv=100,d=64,seqs=3,deterministic=1",
        "attention_bwd_sm90: cu_q is given, and deterministic is asked for: its blocks take no "
        "turns by sequence (attention_bwd_sm80 takes that)");
    check_sequences_refused("sinks", "dtype=bf16,h=2,q=100,kv=100,d=64,seqs=3,deterministic=1",
                            "leave out deterministic");
    check_sequences_refused("causal", "dtype=bf16,h=2,q=100,kv=100,d=64,seqs=3,unaligned=do",
                            "rows of do do not start at multiples of 16 bytes; align them");
    for (int pass = 0; pass < 2; pass++) { /* mods know of sequences, and rows that are copied do */
        static const enum lathe_pass PASS[] = {LATHE_FORWARD, LATHE_BACKWARD};
        const char *const own = pass ? "attention_bwd_sm80" : "attention_fwd_sm80";
        CHECK_EQ(pick_pass("qk_norm", PASS[pass], text, &H100, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, pass ? "attention_bwd_sm90" : "attention_fwd_sm90");
        CHECK_EQ(
            pick_pass("causal", PASS[pass], "dtype=f16,h=2,q=100,kv=100,d=100,seqs=3", &H100, &plan, &err),
            LATHE_OK);
        CHECK_STR(plan.row->name, own);
    }
    CHECK_EQ(pick_pass("causal", LATHE_FORWARD, "dtype=f16,h=2,q=100,kv=100,d=64,seqs=3,unaligned=q+k+v",
                       &H100, &plan, &err),
             LATHE_OK);
}

/* A pool of pages is not made anew: what is refused of it is said. */
TEST(pages_are_read_as_they_are)
{
    static const char text[] = "dtype=bf16,b=2,h=2,q=100,kv=96,d=64,page=16";
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    CHECK_EQ(pick("qk_norm", text, &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm80: pages are given beside a mod of k, which is not made anew");
    CHECK_EQ(pick("causal", "dtype=bf16,b=2,h=2,q=100,kv=96,d=64,page=16,unaligned=v", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "pages are given, and rows of v do not start at multiples of 16 bytes; align them");
    CHECK_EQ(pick("causal", "dtype=bf16,b=2,h=2,q=100,kv=96,d=64,page=16,unaligned=q", &H100, &plan, &err),
             LATHE_OK);
    CHECK_EQ(pick("causal", "dtype=bf16,b=2,h=2,q=100,kv=96,d=100,page=16", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "a head dim is no multiple of 8, and there are keys in pages; pad it");
}

/* Hopper's own comes first there; the portable one is for others, and for who asks for it. */
TEST(a_device_has_its_own_template_and_others_by_name)
{
    static const char text[] = "dtype=bf16,b=1,h=2,q=64,d=128";
    const struct device wish = asking_for(&H100, "attention_fwd_sm80");
    const struct device wrong = asking_for(&A100, "attention_fwd_sm90");
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("causal", text, &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    CHECK(plan.row->isa == ISA_SM90A && !plan.bound_waits);
    CHECK_EQ(pick("causal", text, &A100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm80");
    CHECK_EQ(pick("causal", text, &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm80");
    CHECK_EQ(plan.row->isa, ISA_SM80);
    CHECK_EQ(pick("causal", text, &wrong, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm90: compute capability 8.0; it needs 9.0");
    CHECK_HAS(err.text, "attention_fwd_sm80: attention_fwd_sm90 was asked for");
}

/* Masks that may leave rows little take small tiles of the portable kernel, where four blocks fit an SM. */
TEST(short_rows_take_small_tiles)
{
    static const char text[] = "dtype=bf16,b=1,h=2,q=4096,kv=4096,d=128";
    const struct device wish = asking_for(&H100, "attention_fwd_sm80");
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("sliding_window", text, &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "64x64s1w2");
    CHECK_EQ(pick("document", "dtype=bf16,b=1,h=2,q=4096,kv=4096,d=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "64x64s2w2q");
    CHECK_EQ(pick("causal", text, &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "128x64s1w4");
    CHECK_EQ(pick("sliding_window", text, &A100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "128x64s1w4");
}

TEST(a_wish_of_the_environment_counts_where_it_concerns)
{
    struct device wish = asking_for(&H100, "attention_fwd_sm90,rowwise");
    struct plan plan;
    lathe_error err;
    wish.template_only = false;
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=2,q=64,d=128", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    CHECK_EQ(pick("softmax", "dtype=bf16,rows=4,n=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "rowwise");
    wish = asking_for(&H100, "attention_fwd_sm90"); /* of another kind, and nothing else will do */
    CHECK_EQ(pick("softmax", "dtype=bf16,rows=4,n=64", &wish, &plan, &err), LATHE_UNSUPPORTED);
    wish.template_only = false;
    CHECK_EQ(pick("softmax", "dtype=bf16,rows=4,n=64", &wish, &plan, &err), LATHE_OK);
    wish = asking_for(&H100, "attention_fwd_sm90,atention_bwd_sm90");
    wish.template_only = false;
    CHECK_EQ(pick("softmax", "dtype=bf16,rows=4,n=64", &wish, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "rowwise: attention_fwd_sm90,atention_bwd_sm90 was asked for");
}

TEST(heads_share_tiles_where_nothing_tells_them_apart)
{
    static const struct {
        const char *spec;
        const char *why; /* NULL: they do */
    } row[] = {{"causal", NULL},
               {"full", NULL},
               {"sigmoid", NULL},
               {"alibi", "the spec reads at.h"},
               {"sinks", "the spec reads at.h"},
               {"document", "tiles of the mask are judged once a launch"}};
    const struct device wish = asking_for(&H100, "attention_fwd_sm90");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err;
        CHECK_EQ(pick(row[i].spec, "dtype=bf16,h=8,h_kv=2,q=1,kv=1000,d=64", &wish, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.attention.pack, !row[i].why);
        CHECK_HAS(plan.reason, row[i].why ? row[i].why : "share a tile");
    }
}

TEST(every_head_dim_fits_hopper)
{
    const struct device wish = asking_for(&H100, "attention_fwd_sm90");
    for (int d = 16; d <= 256; d += 8)
        for (int dv = 16; dv <= 256; dv += 24) {
            char text[96];
            struct plan plan;
            lathe_error err;
            snprintf(text, sizeof text, "dtype=bf16,b=1,h=2,q=64,d=%d,d_v=%d", d, dv);
            CHECK_EQ(pick("relative_bias", text, &wish, &plan, &err), LATHE_OK);
            CHECK(plan.attention.smem_bytes <= H100.smem_bytes);
            CHECK_EQ(plan.attention.bm, 16 * plan.attention.warps);
        }
}

/* The portable template serves them; a tensor that a mod makes is never folded. */
TEST(folded_tensors_are_not_for_tma)
{
    static const char mod[] = "return attention { key_mod = function(k) return k * 2.0 end }\n";
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,folded=k+v", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm80");
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,folded=k+v,unaligned=k+v", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    CHECK_EQ(pick(mod, "dtype=bf16,d=64,folded=k", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    const struct device only = asking_for(&H100, "attention_fwd_sm90");
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,folded=o", &only, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm90: o is folded");
}

TEST(two_warpgroups_share_many_columns)
{
    const struct device wish = asking_for(&H100, "attention_fwd_sm90");
    struct plan plan;
    lathe_error err;
    for (int dv = 264; dv <= 512; dv += 8) {
        char text[96];
        snprintf(text, sizeof text, "dtype=bf16,b=1,h=2,q=64,d=%d,d_v=%d", dv % 3 ? 64 : 256, dv);
        CHECK_EQ(pick("relative_bias", text, &wish, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.attention.bm, 8 * plan.attention.warps);
        CHECK_EQ(plan.attention.dv_pad % 128, 0);
        CHECK(plan.attention.smem_bytes <= H100.smem_bytes);
    }
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,d_v=520", &wish, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm90: d_v = 520; it takes multiples of 8 from 16 to 512");
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,d_v=512", &A100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla");
}

/* A row of tiles is taken where it has registers for the spec, and by its name in any case. */
TEST(tiles_of_hopper_follow_the_registers_that_a_spec_needs)
{
    static const char pair[] = "return attention { inputs = { bias = tensor('float', 'q', 'kv') },\n"
                               "  score_mod = function(s, at, x) return s + x.bias(at.row, at.kv) end }\n";
    struct device wish = asking_for(&H100, "attention_fwd_sm90");
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("full", "dtype=bf16,d=128", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "192x80s3w12");
    CHECK(plan.attention.dynamic);
    CHECK_EQ(pick("causal", "dtype=bf16,d=128", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "192x80s3w12");
    CHECK_EQ(pick("sliding_window", "dtype=bf16,d=128", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "192x64s4w12");
    CHECK_EQ(pick("full", "dtype=bf16,q=1,kv=8192,d=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "192x128s3w12");
    CHECK_HAS(plan.reason, "longer steps than for fewer than 8192 keys");
    CHECK_EQ(pick("causal", "dtype=bf16,q=8192,kv=8191,d=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "256x64s4w16");
    CHECK_EQ(pick("sliding_window", "dtype=bf16,kv=8192,d=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "192x96s3w12");
    CHECK_EQ(pick("sigmoid", "dtype=bf16,d=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "256x64s4w16");
    CHECK_EQ(pick(pair, "dtype=bf16,d=128", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "128x96s2w8");
    snprintf(wish.tile, sizeof wish.tile, "192x80s3w12");
    CHECK_EQ(pick("sliding_window", "dtype=bf16,d=128", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.tile, "192x80s3w12");
}

TEST(backward_has_a_template)
{
    const struct {
        const struct device *device;
        const char *problem;
        const char *template_name;
    } row[] = {{&A100, "dtype=bf16,b=1,h=1,q=8,d=64", "attention_bwd_sm80"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=64", "attention_bwd_sm90"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=64,d_v=136", "attention_bwd_wide_sm90"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=256", "attention_bwd_wide_sm90"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=64,folded=k", "attention_bwd_sm80"},
               {&H100, "dtype=bf16,h=1,q=80,d=64,seqs=3", "attention_bwd_sm90"},
               {&H100, "dtype=bf16,h=1,q=80,d=128,seqs=3,cu_kv=i32,used_kv=i32", "attention_bwd_sm90"},
               {&H100, "dtype=bf16,b=2,h=1,q=80,d=128,used_kv=i32", "attention_bwd_sm80"},
               {&H100, "dtype=bf16,h=1,q=80,d=192,d_v=128,seqs=3", "attention_bwd_wide_sm90"},
               {&H100, "dtype=bf16,h=1,q=80,d=256,seqs=3", "attention_bwd_wide_sm90"}};
    struct signature sig;
    struct problem problem;
    struct plan plan;
    lathe_error err;
    struct ir *ir = load_signed("causal", LATHE_BACKWARD, &sig);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK_EQ(problem_parse(&sig, row[i].problem, &problem, &err), LATHE_OK);
        CHECK_EQ(plan_of(ir, LATHE_BACKWARD, &problem, row[i].device, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, row[i].template_name);
        CHECK(!plan.attention.back.forward); /* o and lse are given */
        CHECK(plan.attention.back.smem_bytes + plan.attention.back.sequence_bytes <=
              row[i].device->smem_bytes);
        CHECK_EQ(plan.attention.back.sequence_bytes > 0,
                 strstr(row[i].problem, "seqs") && strstr(row[i].template_name, "sm90"));
    }
    ir_free(ir);
}

/* For wide heads thread blocks go in pairs, which share what they add to dq: so not where dq is not wanted.
 */
TEST(wide_heads_go_in_pairs)
{
    static const struct {
        const char *problem;
        bool paired;
        int thread_blocks;
        const char *tile;
    } row[] = {{"dtype=bf16,d=256", true, 132, "128x64w8p2s1c2"},
               {"dtype=f16,d=192,d_v=128,deterministic=1", true, 132, "128x64w8p2s2c2"},
               {"dtype=bf16,d=256,dq=none", false, 132, "128x64w8p2s1"},
               {"dtype=bf16,d=128", false, 132, "64x128w8p1s2"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, row[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.attention.back.paired, row[i].paired);
        CHECK_EQ(plan.attention.back.thread_blocks, row[i].thread_blocks);
        CHECK_STR(plan.tile, row[i].tile);
        CHECK_EQ(strstr(plan.reason, "go in pairs") != NULL, row[i].paired);
    }
    struct device odd = H100;
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    odd.sm_count = 131; /* no half of a pair */
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, row[0].problem, &odd, &plan, &err), LATHE_OK);
    CHECK_EQ(plan.attention.back.thread_blocks, 130);
}

/* Sums into a table that is read at computed places stay in shared memory: 32 floats an entry for each of the
 * warps, or one, of what the tile leaves; none for pairs that have an element each. */
TEST(sums_into_tables_stay_in_shared_memory)
{
    static const struct {
        const char *dims, *indices, *problem;
        const struct device *device;
        const char *room; /* NULL: no lanes meet */
        int bytes;        /* beside what the tile takes without the gradient, where the tile is the same */
    } row[] = {
        {"'h', 5, 5", "at.h, x.kind(at.q), x.kind(at.kv)", "dtype=bf16,d=128", &H100,
         "{25}, SITE_ROOM[] = {800}", 0},
        {"'h', 5, 5", "at.h, x.kind(at.q), x.kind(at.kv)", "dtype=bf16,d=256", &H100,
         "{25}, SITE_ROOM[] = {25}", 8 * 25 * 4},
        {"'h', 5, 5", "at.h, x.kind(at.q), x.kind(at.kv)", "dtype=bf16,d=64", &A100,
         "{25}, SITE_ROOM[] = {800}", 4 * 800 * 4},
        {"'h', 30, 30", "at.h, x.kind(at.q), x.kind(at.kv)", "dtype=bf16,d=64", &A100,
         "{900}, SITE_ROOM[] = {900}", 4 * 900 * 4},
        {"300, 300", "x.kind(at.q), x.kind(at.kv)", "dtype=bf16,d=64", &H100, "{90000}, SITE_ROOM[] = {0}",
         0},
        {"'many', 'many'", "x.kind(at.q), x.kind(at.kv)", "dtype=bf16,d=64,many=9", &A100,
         "{0}, SITE_ROOM[] = {1024}", 4 * 1024 * 4},
        {"'h', 64", "at.h, x.kind(at.q)", "dtype=bf16,d=64", &A100, "{64}, SITE_ROOM[] = {2048}",
         4 * 2048 * 4},
        {"'q', 5", "at.row, x.kind(at.kv)", "dtype=bf16,d=64", &A100, "{0}, SITE_ROOM[] = {0}", 0},
        {"'q', 'kv'", "at.row, at.kv", "dtype=bf16,d=64", &A100, NULL, 0},
        {"'h', 64", "at.h, x.kind(at.kv)", "dtype=bf16,d=64", &A100, NULL, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[512];
        char without[128];
        struct signature sig;
        struct problem problem[2];
        struct source source;
        struct plan plan[2];
        lathe_error err = {.status = LATHE_OK};
        snprintf(text, sizeof text,
                 "return attention { inputs = { table = tensor('f32', %s, { grad = true }), kind = "
                 "tensor('i32', 'kv') }, "
                 "score_mod = function(s, at, x) return s + x.table(%s) end }",
                 row[i].dims, row[i].indices);
        struct ir *ir = load_signed(text, LATHE_BACKWARD, &sig);
        snprintf(without, sizeof without, "%s,dtable=none", row[i].problem);
        for (int k = 0; k < 2; k++) {
            CHECK_EQ(problem_parse(&sig, k ? without : row[i].problem, &problem[k], &err), LATHE_OK);
            CHECK_EQ(plan_of(ir, LATHE_BACKWARD, &problem[k], row[i].device, &plan[k], &err), LATHE_OK);
        }
        CHECK(plan[0].attention.back.smem_bytes <= row[i].device->smem_bytes);
        if (strcmp(plan[0].tile, plan[1].tile) == 0 && row[i].bytes > 0)
            CHECK_EQ(plan[0].attention.back.smem_bytes - plan[1].attention.back.smem_bytes, row[i].bytes);
        CHECK_EQ(emit_by(ir, LATHE_BACKWARD, &problem[0], row[i].device, &plan[0], &source, &err), LATHE_OK);
        bool found = false;
        bool meets = false;
        for (int k = 0; k < source.n_texts; k++) {
            meets |= strstr(source.text[k].data, "SITE_MEETS[] = ") != NULL;
            found |= row[i].room && strstr(source.text[k].data, row[i].room) != NULL;
        }
        CHECK_EQ(meets, row[i].room != NULL);
        CHECK_EQ(found, row[i].room != NULL);
        source_free(&source);
        ir_free(ir);
    }
}

/* Without a mask all blocks of keys have as many query tiles: the last ones are cut into pieces, two for each
 * multiprocessor at most. */
TEST(last_blocks_of_keys_are_cut)
{
    static const struct {
        const char *spec, *problem;
        const struct device *device;
        int pieces;
    } row[] = {{"full", "dtype=bf16,d=128", &H100, 264},
               {"full", "dtype=bf16,d=256", &H100, 264},
               {"relative_bias", "dtype=f16,d=64", &H100, 264},
               {"full", "dtype=bf16,d=128,deterministic=1", &H100, 0},
               {"causal", "dtype=bf16,d=128", &H100, 0},
               {"document", "dtype=bf16,d=128", &H100, 0},
               {"full", "dtype=bf16,d=128,folded=k", &H100, 0},
               {"full", "dtype=bf16,d=128", &A100, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        CHECK_EQ(pick_pass(row[i].spec, LATHE_BACKWARD, row[i].problem, row[i].device, &plan, &err),
                 LATHE_OK);
        CHECK_EQ(plan.attention.back.pieces, row[i].pieces);
    }
}

/* One gradient of rows that are read at places that data says is gathered; what adds up otherwise is not. */
TEST(rows_read_by_number_are_gathered)
{
    static const char SCALED[] =
        "return elementwise { over = { 'b', 't', 'd' },\n"
        "  inputs = { table = tensor('float', 'words', 'd', { grad = true }), id = tensor('i32', 'b', 't') "
        "},\n"
        "  operands = { x = tensor('float') }, results = { y = tensor('float') },\n"
        "  forward = function(v, at, x) return v.x * x.table(x.id(at.b, at.t), at.d) end }\n";
    static const char PLACES[] = "return elementwise { over = { 'b', 't', 'd' },\n"
                                 "  inputs = { table = tensor('float', 't', 'd', { grad = true }) },\n"
                                 "  operands = { x = tensor('float') }, results = { y = tensor('float') },\n"
                                 "  forward = function(v, at, x) return v.x * x.table(at.t, at.d) end }\n";
    static const struct {
        const char *spec, *problem, *template_name;
        int vector;
    } row[] = {{"embedding", "dtype=bf16", "elementwise_gather", 4},
               {"embedding", "dtype=bf16,table=bf16", "elementwise_gather", 4},
               {"embedding", "dtype=bf16,deterministic=1", "elementwise_bwd", 8},
               {SCALED, "dtype=bf16", "elementwise_bwd", 0}, /* dx, too */
               {SCALED, "dtype=bf16,dx=none", "elementwise_gather", 4},
               {PLACES, "dtype=bf16,dx=none", "elementwise_bwd", 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err = {.status = LATHE_OK};
        const lathe_status status =
            pick_pass(row[i].spec, LATHE_BACKWARD, row[i].problem, &H100, &plan, &err);
        if (status != LATHE_OK)
            fprintf(stderr, "%zu: %s\n", i, err.text);
        CHECK_EQ(status, LATHE_OK);
        CHECK_STR(plan.row->name, row[i].template_name);
        CHECK(row[i].vector == 0 || plan.maps.vector == row[i].vector);
        CHECK_EQ(plan.maps.gather, strcmp(row[i].template_name, "elementwise_gather") == 0);
    }
}

/* Where a list has tensors of 32 bits, all of them or some, its tiles have half as many steps. */
TEST(lists_with_tensors_of_32_bits_have_shorter_tiles)
{
    static const struct {
        const char *spec, *problem;
        int vector, steps;
    } row[] = {{"lion", "dtype=bf16", 8, 4},
               {"lion", "dtype=bf16,m=f32,m_new=f32", 8, 2},
               {"lion", "dtype=f32", 4, 2},
               {"adamw", "dtype=bf16", 8, 4},
               {"adamw_master", "dtype=bf16", 8, 2}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err;
        CHECK_EQ(pick(row[i].spec, row[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.maps.vector, row[i].vector);
        CHECK_EQ(plan.maps.steps, row[i].steps);
        CHECK_EQ(plan.maps.ahead, row[i].steps == 4);
    }
}

/* Those of the device's own template first, then the portable one's. */
TEST(candidates_are_of_every_template_that_serves)
{
    struct signature sig;
    struct problem problem;
    struct plan plan;
    lathe_error err;
    int of_sm90 = 0;
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,b=1,h=2,q=64,d=64", &problem, &err), LATHE_OK);
    for (int i = 0; candidate_of(ir, LATHE_FORWARD, &problem, &H100, i, &plan); i++)
        of_sm90 += strcmp(plan.row->name, "attention_fwd_sm90") == 0;
    CHECK(of_sm90 >= 2);
    CHECK_STR(plan.row->name, "attention_fwd_sm80"); /* the last one asked */
    ir_free(ir);
}

/* What lowering refuses no template of the kind plans for: there is nothing to plan from. */
TEST(what_cannot_be_lowered_is_refused_by_every_template)
{
    static const char text[] =
        "return linear_attention { inputs = { a = tensor('f32', 'h', 90, { grad = true }) },\n"
        "  decay = function(at, x)\n"
        "    local sum = 0.0\n"
        "    for i = 0, 80 do sum = sum + x.a(at.h, i) end\n"
        "    return -exp(sum)\n"
        "  end }\n";
    struct signature sig;
    struct problem problem;
    struct plan plan;
    struct kernel_request request;
    lathe_error err;
    struct ir *ir = load_signed(text, LATHE_BACKWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,t=64,d=64", &problem, &err), LATHE_OK);
    CHECK_EQ(kernel_open(&request, ir, LATHE_BACKWARD, &sig, &problem, &H100, &err), LATHE_OK);
    CHECK_EQ(plan_pick(&request, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "inputs that want gradients are read in more than 12 places");
    kernel_close(&request);
    ir_free(ir);
}
