/*
 * plan.c: which problems are taken, with tiles that fit the device, and what every refusal says. Without a
 * GPU: a device is a struct of numbers.
 */
#include "check.h"
#include "gen.h"

#include <string.h>

static const struct device A100 = {.sm = 80, .sm_count = 108, .smem_bytes = 166912, .arch = "sm_80"};
static const struct device RTX4090 = {.sm = 89, .sm_count = 128, .smem_bytes = 101376, .arch = "sm_89"};
static const struct device H100 = {.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};

/* spec: the name of a shipped one, or a text. */
static lathe_status pick_pass(const char *spec, lathe_pass pass, const char *problem_text,
                              const struct device *device, struct plan *plan, lathe_error *err)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    const bool text = strchr(spec, ' ') != NULL;
    struct ir *ir = text ? spec_load("text", spec, strlen(spec), &diag) : spec_load(spec, NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, err), LATHE_OK);
    lathe_status status = plan_pick(ir, pass, &problem, device, plan, err);
    ir_free(ir);
    return status;
}

static void refusals_of(const char *spec, lathe_pass pass, const char *problem_text,
                        const struct device *device, lathe_error *err)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    struct ir *ir = spec_load(spec, NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, err), LATHE_OK);
    plan_refusals(ir, pass, &problem, device, err);
    ir_free(ir);
}

static lathe_status pick(const char *spec, const char *problem_text, const struct device *device,
                         struct plan *plan, lathe_error *err)
{
    return pick_pass(spec, LATHE_FORWARD, problem_text, device, plan, err);
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
                CHECK(plan.smem_bytes <= devices[i]->smem_bytes);
                CHECK_EQ(plan.d_pad % 16, 0);
                CHECK(plan.d_pad >= d && plan.dv_pad >= dv);
                CHECK_EQ(plan.bm % (16 * plan.warps), 0);
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
        CHECK_STR(plan.template_name, pass == LATHE_FORWARD ? "attention_fwd_sm80" : "attention_bwd_sm80");
        refusals_of("causal", pass, "dtype=bf16,b=1,h=1,q=64,d=64", &sm_90, &err);
        CHECK_HAS(err.text, "code for sm_90, which runs on later devices, too; it needs sm_90a (wgmma)");
        CHECK_EQ(pick_pass("causal", pass, "dtype=bf16,b=1,h=1,q=64,d=64", &H100, &plan, &err), LATHE_OK);
        CHECK_STR(plan.template_name, pass == LATHE_FORWARD ? "attention_fwd_sm90" : "attention_bwd_sm90");
    }
}

TEST(refusals_name_the_reason)
{
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=1,q=8,d=264", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm80: d = 264; it takes multiples of 8 from 16 to 256");
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=1,q=8,d=20", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "d = 20");
    CHECK_EQ(pick("causal", "dtype=bf16,b=1,h=1,q=8,d=64,d_v=512", &A100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "d_v = 512");
    CHECK_EQ(pick("causal", "dtype=f32,b=1,h=1,q=8,d=64", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "dtype f32");
    const struct device turing = {.sm = 75, .sm_count = 68, .smem_bytes = 65536, .arch = "sm_75"};
    CHECK_EQ(pick("causal", "dtype=f16,b=1,h=1,q=8,d=64", &turing, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "compute capability 7.5");
    const struct device tiny = {.sm = 80, .sm_count = 1, .smem_bytes = 1024, .arch = "sm_80"};
    CHECK_EQ(pick("causal", "dtype=f16,b=1,h=1,q=8,d=64", &tiny, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "1024 bytes of shared memory");
}

static struct device asking_for(const struct device *device, const char *name)
{
    struct device d = *device;
    snprintf(d.template_name, sizeof d.template_name, "%s", name);
    d.template_only = true;
    return d;
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
    CHECK_STR(plan.template_name, "attention_fwd_sm90");
    CHECK(plan.tma && !plan.bound_waits);
    CHECK_EQ(pick("causal", text, &A100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.template_name, "attention_fwd_sm80");
    CHECK_EQ(pick("causal", text, &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.template_name, "attention_fwd_sm80");
    CHECK(!plan.tma);
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
    CHECK_STR(plan.template_name, "attention_fwd_sm90");
    CHECK_EQ(pick("softmax", "dtype=bf16,rows=4,n=64", &wish, &plan, &err), LATHE_OK);
    CHECK_STR(plan.template_name, "rowwise");
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
               {"document", "the mask reads data"}};
    const struct device wish = asking_for(&H100, "attention_fwd_sm90");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan plan;
        lathe_error err;
        CHECK_EQ(pick(row[i].spec, "dtype=bf16,h=8,h_kv=2,q=1,kv=1000,d=64", &wish, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.pack, !row[i].why);
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
            CHECK(plan.smem_bytes <= H100.smem_bytes);
            CHECK_EQ(plan.bm, 16 * plan.warps);
        }
}

/* The portable template serves them; a tensor that a mod makes is never folded. */
TEST(folded_tensors_are_not_for_tma)
{
    static const char mod[] = "return attention { key_mod = function(k) return k * 2.0 end }\n";
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,folded=k+v", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.template_name, "attention_fwd_sm80");
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,folded=k+v,unaligned=k+v", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.template_name, "attention_fwd_sm90");
    CHECK_EQ(pick(mod, "dtype=bf16,d=64,folded=k", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.template_name, "attention_fwd_sm90");
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
        CHECK_EQ(plan.bm, 8 * plan.warps);
        CHECK_EQ(plan.dv_pad % 128, 0);
        CHECK(plan.smem_bytes <= H100.smem_bytes);
    }
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,d_v=520", &wish, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm90: d_v = 520; it takes multiples of 8 from 16 to 512");
    CHECK_EQ(pick("causal", "dtype=bf16,d=64,d_v=512", &A100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "from 16 to 256");
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
    CHECK(plan.dynamic);
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
    static const struct {
        const struct device *device;
        const char *problem;
        const char *template_name;
    } row[] = {{&A100, "dtype=bf16,b=1,h=1,q=8,d=64", "attention_bwd_sm80"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=64", "attention_bwd_sm90"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=64,d_v=136", "attention_bwd_wide_sm90"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=256", "attention_bwd_wide_sm90"},
               {&H100, "dtype=bf16,b=1,h=1,q=8,d=64,folded=k", "attention_bwd_sm80"}};
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    struct plan plan;
    lathe_error err;
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_BACKWARD, &sig);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK_EQ(problem_parse(&sig, row[i].problem, &problem, &err), LATHE_OK);
        CHECK_EQ(plan_pick(ir, LATHE_BACKWARD, &problem, row[i].device, &plan, &err), LATHE_OK);
        CHECK_STR(plan.template_name, row[i].template_name);
        CHECK(!plan.back.forward); /* o and lse are given */
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
        CHECK_EQ(plan.back.paired, row[i].paired);
        CHECK_EQ(plan.back.thread_blocks, row[i].thread_blocks);
        CHECK_STR(plan.tile, row[i].tile);
        CHECK_EQ(strstr(plan.reason, "go in pairs") != NULL, row[i].paired);
    }
    struct device odd = H100;
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    odd.sm_count = 131; /* no half of a pair */
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, row[0].problem, &odd, &plan, &err), LATHE_OK);
    CHECK_EQ(plan.back.thread_blocks, 130);
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
        CHECK_EQ(plan.back.pieces, row[i].pieces);
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
        CHECK_STR(plan.template_name, row[i].template_name);
        CHECK(row[i].vector == 0 || plan.vector == row[i].vector);
        CHECK_EQ(plan.gather, strcmp(row[i].template_name, "elementwise_gather") == 0);
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
        CHECK_EQ(plan.vector, row[i].vector);
        CHECK_EQ(plan.steps, row[i].steps);
        CHECK_EQ(plan.ahead, row[i].steps == 4);
    }
}

TEST(rows_of_any_length_have_a_shape)
{
    static const int lengths[] = {1,    7,    8,    9,    31,    255,   256,    257,
                                  1000, 1024, 1025, 8192, 32768, 65536, 262144, 1000003};
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int k = 0; k < 3; k++) {
            char text[96];
            struct plan plan;
            lathe_error err;
            snprintf(text, sizeof text, "dtype=%s,rows=10,n=%d", dtypes[k], lengths[i]);
            CHECK_EQ(pick("softmax", text, &H100, &plan, &err), LATHE_OK);
            int team = plan.threads / plan.rows_per_block;
            CHECK(plan.threads % 32 == 0 && plan.threads <= 1024);
            CHECK(plan.rows_per_block == 1 || (team <= 32 && (team & (team - 1)) == 0));
            CHECK_EQ(plan.per_thread % plan.vector, 0);
            if (plan.stages > 0) /* in shared memory, and what is beyond */
                CHECK(plan.more == (team * plan.per_thread * plan.cluster < lengths[i]) &&
                      plan.smem_bytes <= H100.smem_bytes &&
                      plan.smem_bytes >= plan.stages * team * plan.per_thread * (k == 0 ? 4 : 2));
            else if (plan.per_thread > 0)
                CHECK(team * plan.per_thread >= lengths[i]);
            else
                CHECK(lengths[i] > 16384);
        }
}

TEST(the_longest_rows_have_a_shape)
{
    static const char *const SPEC[] = {"softmax", "layer_norm",   "cross_entropy",
                                       "cumsum",  "logcumsumexp", "softmax_inner"};
    static const char *const N[] = {"2146435071", "2146435072", "2146435073", "2147483647"};
    for (int i = 0; i < 2 * (int)(sizeof SPEC / sizeof *SPEC); i++)
        for (int k = 0; k < 4; k++) {
            char text[64];
            struct plan plan;
            lathe_error err = {0};
            snprintf(text, sizeof text, "dtype=bf16,rows=1,n=%s", N[k]);
            const lathe_status status =
                pick_pass(SPEC[i / 2], i % 2 ? LATHE_BACKWARD : LATHE_FORWARD, text, &H100, &plan, &err);
            CHECK_HAS(err.text, k < 2 ? "" : "it takes rows of at most 2146435072 elements");
            CHECK_EQ(status, k < 2 ? LATHE_OK : LATHE_UNSUPPORTED);
            CHECK(k >= 2 || (plan.per_thread >= 0 && plan.per_thread < 256 && plan.rows_per_block <= 32));
        }
}

/* Rows that are long for one block are shared by a cluster, on devices that have clusters; its blocks divide
 * the grid. */
TEST(long_rows_are_shared_by_clusters)
{
    static const struct {
        const char *spec, *sizes;
        int cluster;
    } CASES[] = {
        {"softmax", "dtype=bf16,rows=10,n=32768", 1},     {"softmax", "dtype=bf16,rows=10,n=65536", 2},
        {"softmax", "dtype=bf16,rows=10,n=131072", 4},    {"softmax", "dtype=bf16,rows=10,n=262144", 8},
        {"layer_norm", "dtype=f32,rows=10,n=65536", 8},   {"softmax_inner", "dtype=bf16,rows=512,n=4096", 4},
        {"layer_norm", "dtype=bf16,rows=10,n=49152", 6},  {"layer_norm", "dtype=bf16,rows=10,n=262144", 8},
        {"rms_norm", "dtype=bf16,rows=10,n=65536", 8},    {"rms_norm", "dtype=bf16,rows=10,n=262144", 8},
        {"layer_norm", "dtype=bf16,rows=10,n=40960", 5},  {"layer_norm", "dtype=bf16,rows=10,n=40968", 2},
        {"softmax_inner", "dtype=bf16,rows=512,n=256", 1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct plan plan;
        lathe_error err;
        CHECK_EQ(pick(CASES[i].spec, CASES[i].sizes, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.cluster, CASES[i].cluster);
        CHECK(plan.cluster == 0 || plan.blocks % plan.cluster == 0);
        CHECK_EQ(pick(CASES[i].spec, CASES[i].sizes, &A100, &plan, &err), LATHE_OK);
        CHECK(plan.cluster <= 1);
    }
}

/* Clusters of rowwise_inner are not equally fast: they do not take strips in turn. */
TEST(clusters_take_strips_from_a_counter)
{
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick("softmax_inner", "dtype=bf16,rows=512,n=4096", &H100, &plan, &err), LATHE_OK);
    CHECK_HAS(plan.reason, "blocks take rows from a counter");
    CHECK_EQ(pick("softmax_inner", "dtype=bf16,rows=512,n=256", &H100, &plan, &err), LATHE_OK);
    CHECK_HAS(plan.reason, "blocks take rows in turn");
}

/* What `lathe tune` measures: the rows of the tables that fit, the picked one first, each by its name. */
TEST(candidates_are_the_rows_that_fit)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    struct plan best;
    struct plan plan;
    struct plan again;
    lathe_error err;
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,b=1,h=2,q=64,d=128", &problem, &err), LATHE_OK);
    CHECK_EQ(plan_pick(ir, LATHE_FORWARD, &problem, &A100, &best, &err), LATHE_OK);
    int n = 0;
    for (; plan_candidate(ir, LATHE_FORWARD, &problem, &A100, n, &plan); n++) {
        struct device wish = A100;
        snprintf(wish.tile, sizeof wish.tile, "%s", plan.tile);
        CHECK(plan.smem_bytes <= A100.smem_bytes);
        CHECK_EQ(plan_pick(ir, LATHE_FORWARD, &problem, &wish, &again, &err), LATHE_OK);
        CHECK_STR(again.tile, plan.tile);
        CHECK_EQ(again.bm * 1000 + again.bn, plan.bm * 1000 + plan.bn);
        if (n == 0)
            CHECK_STR(plan.tile, best.tile);
    }
    CHECK(n >= 4 && n < 40);
    struct device wish = A100;
    snprintf(wish.tile, sizeof wish.tile, "48x48s1w3");
    CHECK_EQ(plan_pick(ir, LATHE_FORWARD, &problem, &wish, &again, &err), LATHE_UNSUPPORTED);
    ir_free(ir);
}

/* Those of the device's own template first, then the portable one's. */
TEST(candidates_are_of_every_template_that_serves)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    struct plan plan;
    lathe_error err;
    int of_sm90 = 0;
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,b=1,h=2,q=64,d=64", &problem, &err), LATHE_OK);
    for (int i = 0; plan_candidate(ir, LATHE_FORWARD, &problem, &H100, i, &plan); i++)
        of_sm90 += strcmp(plan.template_name, "attention_fwd_sm90") == 0;
    CHECK(of_sm90 >= 2);
    CHECK_STR(plan.template_name, "attention_fwd_sm80"); /* the last one asked */
    ir_free(ir);
}

/* Rows in shared memory, on devices with less and less of it: a plan fits with what the kernel has beside, or
 * there is none. */
TEST(rows_in_shared_memory_fit_it)
{
    static const struct {
        const char *spec, *problem;
        lathe_pass pass;
        bool sums; /* over rows: those of a team meet in static shared memory */
    } cases[] = {{"softmax", "dtype=f32,rows=10,n=60000", LATHE_FORWARD, false},
                 {"rms_norm_residual", "dtype=bf16,rows=10,n=60000", LATHE_FORWARD, false},
                 {"layer_norm", "dtype=f32,rows=1000,n=256", LATHE_BACKWARD, true},
                 {"layer_norm", "dtype=bf16,rows=1000,n=4096", LATHE_BACKWARD, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int taken = 0;
        int refused = 0;
        for (int kb = 2; kb < 80; kb++) {
            struct device d =
                asking_for(&A100, cases[i].pass == LATHE_FORWARD ? "rowwise_staged" : "rowwise_staged_bwd");
            struct plan plan;
            lathe_error err = {0};
            d.smem_bytes = kb * 1024;
            if (pick_pass(cases[i].spec, cases[i].pass, cases[i].problem, &d, &plan, &err) != LATHE_OK) {
                CHECK_HAS(err.text, "shared memory");
                refused++;
                continue;
            }
            const int met = cases[i].sums && plan.rows_per_block > 1 ? 4 * plan.threads * plan.per_thread : 0;
            CHECK(plan.per_thread > 0);
            CHECK(plan.smem_bytes + met + 1024 <= d.smem_bytes); /* 1 KiB: the reductions */
            taken++;
        }
        CHECK(taken > 0 && refused > 0);
    }
}

/* Beside packed columns a block has three rows: where there is less shared memory, other shapes serve. */
TEST(long_rows_stay_in_shared_memory_where_there_is_less_of_it)
{
    static const struct device SM_120 = {.sm = 120, .sm_count = 170, .smem_bytes = 101376, .arch = "sm_120a"};
    static const struct {
        int n, cluster;
        lathe_pass pass;
        bool packed;
    } cases[] = {
        {70000, 8, LATHE_FORWARD, false},  {131072, 8, LATHE_FORWARD, true},
        {196608, 8, LATHE_FORWARD, false}, {49152, 8, LATHE_BACKWARD, false},
        {65536, 8, LATHE_BACKWARD, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        char problem[64];
        snprintf(problem, sizeof problem, "dtype=bf16,rows=512,n=%d", cases[i].n);
        CHECK_EQ(pick_pass("layer_norm", cases[i].pass, problem, &SM_120, &plan, &err), LATHE_OK);
        CHECK(strstr(plan.template_name, "rowwise_staged") != NULL);
        CHECK_EQ(plan.cluster, cases[i].cluster);
        CHECK_EQ(plan.cols_packed, cases[i].packed);
    }
}

/* Of two tensors reduced in one pass, the second reduction is of one: that alone was looked at. */
TEST(rows_are_read_again_where_the_first_pass_leaves_a_tensor_out)
{
    static const struct {
        const char *sum;
        bool again;
    } cases[] = {{"rowmax(abs(v)) * rowsum(v * v)", true},
                 {"rowmax(abs(v)) * rowsum(r * r)", false},
                 {"rowmax(abs(r)) * rowsum(v * v)", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        char spec[512];
        snprintf(
            spec, sizeof spec,
            "return rowwise { inputs = { r = tensor('float', 'rows', 'n') }, forward = function(v, at, x)\n"
            "local r = x.r(at.row, at.i) return (v + r) / %s end }",
            cases[i].sum);
        CHECK_EQ(pick(spec, "dtype=bf16,rows=99,n=8192", &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.reread, cases[i].again);
    }
}

/* Other devices have 8 at most, however many SMs. */
TEST(clusters_of_16_blocks_are_asked_of_devices_that_promise_them)
{
    static const struct {
        int sm, sm_count, cluster;
    } cases[] = {{90, 132, 16}, {100, 148, 16}, {103, 160, 16}, {90, 114, 8}, {110, 132, 8}, {120, 188, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device device = H100;
        struct plan plan;
        lathe_error err = {0};
        device.sm = cases[i].sm;
        device.sm_count = cases[i].sm_count;
        CHECK_EQ(pick("softmax", "dtype=f32,rows=64,n=300000", &device, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.cluster, cases[i].cluster);
    }
}

/* Two to a register, where they come from a tensor of x's 16 bits. */
TEST(columns_of_long_rows_are_packed_where_nothing_is_lost)
{
    static const struct {
        const char *spec, *problem;
        lathe_pass pass;
        bool packed, spreads;
    } cases[] = {
        {"layer_norm", "dtype=bf16,rows=99,n=131072", LATHE_FORWARD, true, true},
        {"layer_norm", "dtype=f16,rows=99,n=100000", LATHE_FORWARD, true, false}, /* threads are not full */
        {"layer_norm", "dtype=bf16,rows=99,n=131072,weight=f32", LATHE_FORWARD, false, false},
        {"layer_norm", "dtype=bf16,rows=99,n=100000,weight=f32,bias=f32", LATHE_FORWARD, false, false},
        {"layer_norm", "dtype=f32,rows=99,n=131072", LATHE_FORWARD, false, false},
        {"layer_norm", "dtype=bf16,rows=99,n=131072", LATHE_BACKWARD, true, false},
        {"layer_norm", "dtype=f16,rows=99,n=100000", LATHE_BACKWARD, true, false},
        {"layer_norm", "dtype=bf16,rows=99,n=262144,weight=f32", LATHE_BACKWARD, false, false},
        {"layer_norm", "dtype=f32,rows=99,n=100000", LATHE_BACKWARD, false, false},
        {"rms_norm", "dtype=bf16,rows=99,n=131072", LATHE_FORWARD, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        lathe_error err = {0};
        CHECK_EQ(pick_pass(cases[i].spec, cases[i].pass, cases[i].problem, &H100, &plan, &err), LATHE_OK);
        CHECK_EQ(plan.cols_packed, cases[i].packed);
        CHECK_EQ(plan.spreads, cases[i].spreads);
        CHECK(!plan.cols_packed || (plan.cols_held && plan.late && !plan.taken));
        CHECK(!plan.cols_packed || plan.sure == plan.per_thread / plan.vector - !plan.full);
    }
}

static bool asks_keys(lathe_pass pass, const char *problem_text, const struct device *device)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    ir_free(ir);
    return plan_asks_keys(pass, &problem, device);
}

/* Kernels are told apart by lengths only where this is true. */
TEST(plans_that_differ_for_many_keys_are_foretold)
{
    static const char *const specs[] = {"full", "causal", "sliding_window", "sigmoid", "relative_bias"};
    const struct device *const devices[] = {&A100, &H100};
    int differ = 0;
    for (int i = 0; i < 2; i++)
        for (int d = 16; d <= 256; d += 16)
            for (int pass = 0; pass < 2; pass++)
                for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
                    struct plan few;
                    struct plan many;
                    lathe_error err;
                    char text[64];
                    snprintf(text, sizeof text, "dtype=bf16,q=1024,kv=1024,d=%d", d);
                    const lathe_status first =
                        pick_pass(specs[k], (lathe_pass)pass, text, devices[i], &few, &err);
                    snprintf(text, sizeof text, "dtype=bf16,q=16384,kv=16384,d=%d", d);
                    CHECK_EQ(pick_pass(specs[k], (lathe_pass)pass, text, devices[i], &many, &err), first);
                    if (first != LATHE_OK || strcmp(few.tile, many.tile) == 0)
                        continue;
                    CHECK(asks_keys((lathe_pass)pass, text, devices[i]));
                    differ++;
                }
    CHECK(differ > 0);
    CHECK(asks_keys(LATHE_FORWARD, "dtype=bf16,d=64", &H100));
    CHECK(!asks_keys(LATHE_FORWARD, "dtype=bf16,d=80", &H100));
    CHECK(!asks_keys(LATHE_FORWARD, "dtype=bf16,d=64", &A100));
    CHECK(!asks_keys(LATHE_BACKWARD, "dtype=bf16,d=64", &H100));
}

/* What warps hand on lies in static shared memory, of which a block has 48 KiB: four sums take fewer warps.
 */
TEST(packed_sums_fit_static_shared_memory)
{
    static const char SPEC[] =
        "return rowwise { along = -2, inputs = { since = tensor('i32', 'n') },\n"
        "  forward = function(x, at, p)\n"
        "    local s = where(eq(p.since(at.i), 0), 1.0, 0.0)\n"
        "    return cumsum(x, s) + cumsum(x * x, s) + cumsum(abs(x), s) + cumsum(exp(x), s)\n  end }";
    struct plan plan;
    lathe_error err = {0};
    CHECK_EQ(pick_pass(SPEC, LATHE_FORWARD, "dtype=bf16,rows=2048,n=4096", &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(strcmp(plan.template_name, "rowwise_walk"), 0);
    CHECK(2 * 4 * plan.threads * plan.vector * 8 <= 48 * 1024);
    CHECK(plan.whole_warps * 32 <= plan.threads);
    CHECK(plan.part_places > 0);
}

/* Batches of each warp wait, and beside them what warps hand on: two or three words of each row, twice. */
TEST(walks_along_an_inner_dim_fit_shared_memory)
{
    static const struct {
        const char *formula;
        int handed_on[2]; /* bytes of a row, of the scans of either pass */
    } specs[] = {{"logcumsumexp(x * p.a(at.row, at.i) + p.b(at.row, at.i), 0.0)", {12, 2 * 12}},
                 {"cumsum(x * p.a(at.row, at.i) + p.b(at.row, at.i) * p.b(at.row, at.i), 0.0)", {8, 8}}};
    static const char *const sizes[] = {"dtype=bf16,rows=4096,n=4096", "dtype=f32,rows=64,n=100"};
    static const struct device *const devices[] = {&H100, &A100, &RTX4090};
    for (int i = 0; i < 24; i++) {
        const struct device *device = devices[i / 4 % 3];
        char spec[400];
        struct plan plan;
        lathe_error err = {0};
        snprintf(
            spec, sizeof spec,
            "return rowwise { along = -2, inputs = { a = tensor('float', 'rows', 'n', { grad = true }), b = "
            "tensor('float', 'rows', 'n') },\n  forward = function(x, at, p) return %s end }",
            specs[i / 12].formula);
        CHECK_EQ(
            pick_pass(spec, i % 2 ? LATHE_BACKWARD : LATHE_FORWARD, sizes[i / 2 % 2], device, &plan, &err),
            LATHE_OK);
        CHECK_EQ(strncmp(plan.template_name, "rowwise_walk", strlen("rowwise_walk")), 0);
        CHECK(plan.stages >= 2);
        CHECK(plan.places >= 4);
        CHECK_EQ(plan.smem_bytes % (plan.stages * plan.threads / 32 * plan.places * 64), 0);
        CHECK(plan.smem_bytes + 2 * plan.threads * plan.vector * specs[i / 12].handed_on[i % 2] + 1024 <=
              device->smem_bytes);
    }
}

/* Reductions: the static sums of a strip count, too, and have a limit of their own. */
TEST(strips_along_an_inner_dim_fit_shared_memory)
{
    static const char *const dtypes[] = {"f32", "bf16"};
    for (int kb = 4; kb < 100; kb++)
        for (int k = 0; k < 2; k++) {
            struct device d = RTX4090;
            char sizes[96];
            struct plan plan;
            lathe_error err = {0};
            d.smem_bytes = kb * 1024;
            snprintf(sizes, sizeof sizes, "dtype=%s,rows=512,n=4096", dtypes[k]);
            CHECK_EQ(pick("softmax_inner", sizes, &d, &plan, &err), LATHE_OK);
            if (strcmp(plan.template_name, "rowwise_inner") != 0)
                continue;
            const int sums = 2 * 4 * (plan.threads / 32 + 1) * plan.units_wide * plan.vector;
            CHECK(plan.per_thread >= 0);
            CHECK(plan.smem_bytes + (sums + 1023) / 1024 * 1024 <= d.smem_bytes);
        }
}
