/*
 * mla.c: values that are the first elements of keys, and wide head dims: on the host device what a v that
 * lies in k gives, gradients too; what kernels there are, and the sentences where there are none.
 */
#include "check.h"
#include "loaded.h"
#include "gen/base/diag.h"
#include "gen/gen.h"
#include "gen/plan/plan.h"
#include "plan_pick.h"

#include <string.h>

enum { B = 2, H = 6, H_KV = 2, Q = 5, KV = 9, D = 12, D_V = 8 };
enum { N_Q = B * H * Q * D, N_K = B * H_KV * KV * D, N_O = B * H * Q * D_V, N_V = B * H_KV * KV * D_V };
static const int64_t Q_SHAPE[] = {B, H, Q, D};
static const int64_t K_SHAPE[] = {B, H_KV, KV, D};
static const int64_t V_SHAPE[] = {B, H_KV, KV, D_V};
static const int64_t V_STRIDES[] = {H_KV * KV * D, KV *D, D, 1};
static const int64_t O_SHAPE[] = {B, H, Q, D_V};

struct tensors {
    double q[N_Q], k[N_K], o[N_O], dout[N_O], dq[N_Q], dk[N_K], dv[N_V];
};

static void fill(double *to, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (double)(seed >> 8) / (1 << 23) - 1;
    }
}

/* Both passes. in_k: v is no argument. */
static void run(const char *text, bool in_k, struct tensors *t)
{
    struct signature sig;
    lathe_error err = {0};
    struct ir *ir = load_spec(text);
    lathe_arg arg[8] = {{"q", t->q, LATHE_F64, 4, Q_SHAPE, NULL},
                        {"k", t->k, LATHE_F64, 4, K_SHAPE, NULL},
                        {"o", t->o, LATHE_F64, 4, O_SHAPE, NULL},
                        {"v", t->k, LATHE_F64, 4, V_SHAPE, V_STRIDES}};
    fill(t->q, N_Q, 1);
    fill(t->k, N_K, 2);
    fill(t->dout, N_O, 3);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(host_forward(ir, &sig, arg, in_k ? 3 : 4, NULL, 0, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    arg[2] = (lathe_arg){"do", t->dout, LATHE_F64, 4, O_SHAPE, NULL};
    arg[in_k ? 3 : 4] = (lathe_arg){"dq", t->dq, LATHE_F64, 4, Q_SHAPE, NULL};
    arg[in_k ? 4 : 5] = (lathe_arg){"dk", t->dk, LATHE_F64, 4, K_SHAPE, NULL};
    arg[6] = (lathe_arg){"dv", t->dv, LATHE_F64, 4, V_SHAPE, NULL};
    signature_make(ir, LATHE_BACKWARD, &sig);
    CHECK_EQ(host_backward(ir, &sig, arg, in_k ? 5 : 7, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    ir_free(ir);
}

TEST(values_in_keys_are_what_a_v_that_lies_there_gives)
{
    static struct tensors own;
    static struct tensors apart;
    run("return attention { v = 'k', mask_mod = causal, scale = 0.7 }", true, &own);
    run("return attention { mask_mod = causal, scale = 0.7 }", false, &apart);
    for (int i = 0; i < N_O; i++)
        CHECK_CLOSE(own.o[i], apart.o[i], 1e-14);
    for (int i = 0; i < N_Q; i++)
        CHECK_CLOSE(own.dq[i], apart.dq[i], 1e-13);
    for (int i = 0; i < N_K; i++)
        CHECK_CLOSE(own.dk[i], apart.dk[i] + (i % D < D_V ? apart.dv[i / D * D_V + i % D] : 0), 1e-13);
}

static const char MLA[] = "return attention { v = 'k', mask_mod = causal, scale = 0.07 }";

static lathe_status asked(const char *text, lathe_pass pass, const struct device *device, const char *line,
                          struct plan *plan, lathe_error *err)
{
    *err = (lathe_error){0};
    return pick_pass(text, pass, line, device, plan, err);
}

TEST(latent_attention_has_a_kernel_on_every_gpu)
{
    static const struct {
        const struct device *device;
        const char *name, *tile;
    } GIVEN[] = {{&H100, "attention_mla_sm90", "64x64s2w12"},
                 {&A100, "attention_mla", "64x32s2w8"},
                 {&RTX4090, "attention_mla", "32x16s2w4"}};
    struct plan plan;
    lathe_error err;
    for (size_t i = 0; i < sizeof GIVEN / sizeof *GIVEN; i++) {
        CHECK_EQ(asked(MLA, LATHE_FORWARD, GIVEN[i].device,
                       "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512", &plan, &err),
                 LATHE_OK);
        CHECK_STR(err.text, "");
        CHECK_STR(plan.row->name, GIVEN[i].name);
        CHECK_STR(plan.tile, GIVEN[i].tile);
        CHECK(plan.attention.v_is_k);
    }
    CHECK_EQ(
        asked("return attention {}", LATHE_FORWARD, &H100, "dtype=f16,h=4,q=8,d=576,d_v=512", &plan, &err),
        LATHE_OK);
    CHECK_STR(plan.tile, "64x32s2w8");
    CHECK(!plan.attention.v_is_k);
}

TEST(latent_attention_by_wgmma_wants_values_in_keys)
{
    static const char APART[] = "return attention {}";
    struct plan plan;
    lathe_error err;
    struct device wish = H100;
    snprintf(wish.template_name, sizeof wish.template_name, "attention_mla_sm90");
    CHECK_EQ(asked(MLA, LATHE_FORWARD, &wish, "dtype=bf16,b=64,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512", &plan,
                   &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla_sm90");
    CHECK_STR(plan.tile, "64x64s2w12");
    CHECK(plan.attention.v_is_k && plan.attention.parts_even);
    CHECK_EQ(plan.attention.part_blocks, H100.sm_count);
    CHECK(plan.attention.smem_bytes <= H100.smem_bytes);
    CHECK_EQ(
        asked(APART, LATHE_FORWARD, &wish, "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512", &plan, &err),
        LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_mla_sm90: v has memory of its own");
    CHECK_EQ(
        asked(MLA, LATHE_FORWARD, &wish, "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=320,d_v=264", &plan, &err),
        LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "is beyond the columns of k; attention_mla takes them");
}

TEST(odd_head_dims_are_copied_by_the_portable_template)
{
    struct plan plan;
    lathe_error err = {0};
    CHECK_EQ(pick("causal", "dtype=bf16,h=4,q=8,d=100,d_v=33", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm80");
    CHECK_HAS(plan.reason, "a head dim is no multiple of 8, so its tensors are copied");
    CHECK(plan.attention.o_f32);
    CHECK_EQ(pick("rope", "dtype=bf16,h=4,q=8,d=100", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text,
              "attention_fwd_sm80: a head dim is no multiple of 8, and there are mods of q, k, v or o");
    CHECK_EQ(pick("causal", "dtype=bf16,h=4,q=8,d=100,used_kv=i32", &A100, &plan, &err), LATHE_OK);
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, "dtype=bf16,h=4,q=8,d=100", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_sm80");
    CHECK_HAS(plan.reason, "a head dim is no multiple of 8, so its tensors are copied");
    CHECK_HAS(plan.reason, "; the forward kernel runs first");
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, "dtype=bf16,h=4,q=8,d=100,d_v=64", &H100, &plan, &err),
             LATHE_OK);
    CHECK(!strstr(plan.reason, "the forward kernel runs first"));
    CHECK_EQ(pick_pass("rope", LATHE_BACKWARD, "dtype=bf16,h=4,q=8,d=100", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_bwd_sm90: d = 100; it takes multiples of 8 from 16 to 128");
    CHECK_HAS(err.text,
              "attention_bwd_sm80: a head dim is no multiple of 8, and there are mods of q, k, v or o");
}

/* Beyond 256 columns, too; where v lies in k there would be no place for its own copies. */
TEST(wide_odd_head_dims_are_copied_for_latent_attention)
{
    struct plan plan;
    lathe_error err = {0};
    CHECK_EQ(pick("causal", "dtype=bf16,h=4,q=8,d=300", &A100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla");
    CHECK_HAS(plan.reason, "a head dim is no multiple of 8, so its tensors are copied");
    CHECK_EQ(pick("causal", "dtype=f16,h=4,q=800,d=100,d_v=300", &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla");
    CHECK_EQ(pick("mla", "dtype=bf16,h=4,h_kv=1,q=8,d=300,d_v=100", &H100, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_mla: d = 300; beside a v that is k's memory it takes multiples of 8");
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, "dtype=bf16,h=4,q=8,d=300,d_v=128", &H100, &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_slices");
    CHECK_HAS(plan.reason, "a head dim is no multiple of 8, so its tensors are copied");
    CHECK_EQ(pick_pass("causal", LATHE_BACKWARD, "dtype=bf16,h=4,q=8,d=300", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text,
              "attention_bwd_slices: d_v = 300 is no multiple of 8, so the forward kernel would run first");
}

TEST(what_latent_attention_lacks_is_said)
{
    struct plan plan;
    lathe_error err;
    struct signature sig;
    struct problem problem;
    struct ir *ir = load_signed(MLA, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,h=4,q=8,d=64,d_v=128", &problem, &err), LATHE_ARG);
    ir_free(ir);
    CHECK_HAS(err.text, "expected d_v <= d, of whose elements it takes the first, given d_v=128 and d=64");
    CHECK_EQ(asked(MLA, LATHE_FORWARD, &H100, "dtype=f32,h=4,q=8,d=576,d_v=512", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_mla: dtype f32; it takes f16 and bf16");
    CHECK_EQ(asked(MLA, LATHE_FORWARD, &H100, "dtype=bf16,h=4,q=8,d=584,d_v=512", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_mla: d = 584; it takes 16 to 576 (the host device takes that)");
}

TEST(wide_head_dims_and_values_in_keys_have_gradients_on_every_gpu)
{
    static const struct device *const DEVICE[] = {&H100, &A100, &RTX4090};
    static const char *const TILE[] = {"64x64w4p1s2", "64x64w4p1s2", "32x64w4p1s2"};
    struct plan plan;
    lathe_error err;
    CHECK_EQ(asked(MLA, LATHE_BACKWARD, &H100, "dtype=bf16,h=16,h_kv=1,q=512,d=576,d_v=512", &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_latent_sm90");
    for (size_t i = 0; i < sizeof DEVICE / sizeof *DEVICE; i++) {
        const struct device slices = asking_for(DEVICE[i], "attention_bwd_slices");
        CHECK_EQ(
            asked(MLA, LATHE_BACKWARD, &slices, "dtype=bf16,h=16,h_kv=1,q=512,d=576,d_v=512", &plan, &err),
            LATHE_OK);
        CHECK_STR(err.text, "");
        CHECK_STR(plan.row->name, "attention_bwd_slices");
        CHECK_STR(plan.tile, TILE[i]);
        CHECK_HAS(plan.reason, "head dims go in slices of 64 columns");
        CHECK_HAS(plan.reason, "what v gives is added to dk");
    }
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=f16,h=4,q=8,d=264,d_v=512", &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_slices");
    CHECK(!strstr(plan.reason, "what v gives"));
    CHECK(!strstr(plan.reason, "pages"));
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=f16,h=4,q=8,d=264,page=16", &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_slices");
    CHECK_HAS(plan.reason, "keys are copied out of their pages");
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=f16,h=4,q=8,d=192,d_v=128", &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_wide_sm90");
    CHECK_EQ(asked(MLA, LATHE_BACKWARD, &H100, "dtype=bf16,h=4,q=8,d=64,o=none", &plan, &err), LATHE_OK);
    CHECK_HAS(plan.reason, "the forward kernel runs first");
}

TEST(absorbed_gradients_go_by_wgmma)
{
    static const char LATENT[] = "dtype=bf16,h=16,h_kv=1,q=512,d=576,d_v=512";
    static const char DOCUMENTS[] =
        "return attention { v = 'k', inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = function(at, "
        "x)\n"
        "  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)), x.doc(at.b, at.kv)) end }\n";
    static const struct {
        const char *spec, *problem, *why;
    } REFUSED[] = {
        {"causal", LATENT, "v has memory of its own"},
        {MLA, "dtype=bf16,h=4,q=8,d=192,d_v=128", "d = 192; it takes multiples of 8 from 552 to 576"},
        {MLA, "dtype=bf16,h=4,q=8,d=576,d_v=512,deterministic=1", "deterministic is asked for"},
        {MLA, "dtype=bf16,h=4,q=80,seqs=3,d=576,d_v=512", "cu_q is given"},
        {MLA, "dtype=bf16,h=4,q=8,d=576,d_v=512,o=none", "no forward kernel"},
        {DOCUMENTS, LATENT, "the mask reads data or is no interval of keys"}};
    struct plan plan;
    lathe_error err;
    struct device wish = H100;
    snprintf(wish.template_name, sizeof wish.template_name, "attention_bwd_latent_sm90");
    CHECK_EQ(asked(MLA, LATHE_BACKWARD, &wish, LATENT, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_latent_sm90");
    CHECK_STR(plan.tile, "64x64w8p2s1");
    CHECK(plan.attention.v_is_k && plan.attention.back.walks_keys);
    CHECK(plan.attention.back.smem_bytes <= H100.smem_bytes);
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        CHECK_EQ(asked(REFUSED[i].spec, LATHE_BACKWARD, &wish, REFUSED[i].problem, &plan, &err),
                 LATHE_UNSUPPORTED);
        CHECK_HAS(err.text, "attention_bwd_latent_sm90: ");
        CHECK_HAS(err.text, REFUSED[i].why);
    }
}

TEST(gradients_that_wide_head_dims_lack_are_said)
{
    struct plan plan;
    lathe_error err;
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=bf16,h=4,q=8,d=512,o=none", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text,
              "attention_bwd_slices: no forward kernel for head dims beyond 256 runs in front of it: give "
              "o and the finals");
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=f32,h=4,q=8,d=512", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_bwd_slices: dtype f32; it takes f16 and bf16");
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=bf16,h=4,q=8,d=512,used_kv=i32", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_bwd_slices: used_kv is given without cu_q (the host device takes that)");
    CHECK_EQ(asked(MLA, LATHE_BACKWARD, &H100, "dtype=bf16,h=4,q=8,d=64", &plan, &err), LATHE_OK);
    CHECK_EQ(asked("causal", LATHE_BACKWARD, &H100, "dtype=bf16,h=4,q=8,d=100,d_v=300", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_bwd_slices: d_v = 300 is no multiple of 8, so the forward kernel");
}

enum { D1 = 8, D2 = D - D1 };

/* Both passes of a pair of pairs that lie in one tensor each, or are two arguments. */
static void run_pair(bool apart, struct tensors *t)
{
    static const int64_t q1[] = {B, H, Q, D1};
    static const int64_t q2[] = {B, H, Q, D2};
    static const int64_t k1[] = {B, H_KV, KV, D1};
    static const int64_t k2[] = {B, H_KV, KV, D2};
    static const int64_t q_strides[] = {H * Q * D, Q * D, D, 1};
    struct signature sig;
    lathe_error err = {0};
    struct ir *ir = load_spec(apart ? "return attention { v = 'k', qk2 = true, mask_mod = causal }"
                                    : "return attention { v = 'k', mask_mod = causal }");
    lathe_arg arg[7] = {{"q", t->q, LATHE_F64, 4, apart ? q1 : Q_SHAPE, q_strides},
                        {"k", t->k, LATHE_F64, 4, apart ? k1 : K_SHAPE, V_STRIDES},
                        {"o", t->o, LATHE_F64, 4, O_SHAPE, NULL},
                        {"q2", t->q + D1, LATHE_F64, 4, q2, q_strides},
                        {"k2", t->k + D1, LATHE_F64, 4, k2, V_STRIDES}};
    fill(t->q, N_Q, 1);
    fill(t->k, N_K, 2);
    fill(t->dout, N_O, 3);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(host_forward(ir, &sig, arg, apart ? 5 : 3, NULL, 0, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    lathe_arg back[9] = {arg[0],
                         arg[1],
                         {"do", t->dout, LATHE_F64, 4, O_SHAPE, NULL},
                         {"dq", t->dq, LATHE_F64, 4, arg[0].shape, q_strides},
                         {"dk", t->dk, LATHE_F64, 4, arg[1].shape, V_STRIDES},
                         arg[3],
                         arg[4],
                         {"dq2", t->dq + D1, LATHE_F64, 4, q2, q_strides},
                         {"dk2", t->dk + D1, LATHE_F64, 4, k2, V_STRIDES}};
    signature_make(ir, LATHE_BACKWARD, &sig);
    CHECK_EQ(host_backward(ir, &sig, back, apart ? 9 : 5, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    ir_free(ir);
}

TEST(a_second_pair_is_what_one_wide_pair_gives)
{
    static struct tensors apart;
    static struct tensors whole;
    run_pair(true, &apart);
    run_pair(false, &whole);
    for (int i = 0; i < N_O; i++)
        CHECK_CLOSE(apart.o[i], whole.o[i], 1e-14);
    for (int i = 0; i < N_Q; i++)
        CHECK_CLOSE(apart.dq[i], whole.dq[i], 1e-13);
    for (int i = 0; i < N_K; i++)
        CHECK_CLOSE(apart.dk[i], whole.dk[i], 1e-13);
}

TEST(a_second_pair_is_read_where_keys_are_cut_and_copied_elsewhere)
{
    static const char PAIR[] = "return attention { qk2 = true, v = 'k', mask_mod = causal, scale = 0.07 }";
    static const char APART[] = "return attention { qk2 = true, mask_mod = causal }";
    struct plan plan;
    lathe_error err;
    CHECK_EQ(asked(PAIR, LATHE_FORWARD, &H100, "dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=512,d2=64,d_v=512",
                   &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla_sm90");
    CHECK_EQ(plan.attention.d2, 64);
    CHECK_EQ(plan.attention.d_pad, 576);
    CHECK_HAS(plan.reason, "the last 64 columns of q and k are read from q2 and k2");
    CHECK_EQ(asked(APART, LATHE_FORWARD, &H100, "dtype=bf16,h=32,h_kv=8,q=1,kv=8192,d=128,d2=64,d_v=128",
                   &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_mla");
    CHECK_EQ(asked(APART, LATHE_FORWARD, &H100, "dtype=bf16,h=16,q=2048,d=128,d2=64,d_v=128", &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    CHECK_EQ(plan.attention.d2, 64);
    CHECK_HAS(plan.reason, "the last 64 columns of q and k are read from q2 and k2");
    CHECK_EQ(asked(APART, LATHE_FORWARD, &H100, "dtype=bf16,h=16,q=2048,d=128,d2=32,d_v=128", &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_fwd_sm90");
    CHECK_EQ(plan.attention.d2, 0);
    CHECK_HAS(plan.reason, "those of q2 and k2, copied behind them");
    CHECK_EQ(asked(APART, LATHE_FORWARD, &H100, "dtype=bf16,h=16,q=64,d=128,d2=60,d_v=128", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_fwd_sm90: ");
    CHECK_HAS(err.text, "attention_fwd_sm80: a head dim is no multiple of 8");
}

TEST(a_second_pair_of_a_cache_and_of_packed_sequences_is_read)
{
    static const char APART[] = "return attention { qk2 = true, mask_mod = causal }";
    static const struct {
        lathe_pass pass;
        const char *line, *template_name;
        int d2;
    } GIVEN[] = {
        {LATHE_FORWARD, "dtype=bf16,b=2,h=16,q=64,kv=4096,d=128,d2=64,used_kv=i32", "attention_mla", 64},
        {LATHE_FORWARD, "dtype=bf16,b=2,h=16,q=64,kv=4096,d=128,d2=64,page=64", "attention_mla", 64},
        {LATHE_FORWARD, "dtype=bf16,h=16,q=200,kv=4096,d=128,d2=64,seqs=4,page=64,cu_q=i32", "attention_mla",
         64},
        {LATHE_FORWARD, "dtype=bf16,h=16,q=900,kv=4096,d=128,d2=64,seqs=4,page=64,cu_q=i32",
         "attention_fwd_sm90", 64},
        {LATHE_FORWARD, "dtype=bf16,h=16,q=900,kv=4080,d=128,d2=64,seqs=4,page=24,cu_q=i32", "attention_mla",
         64},
        {LATHE_FORWARD, "dtype=bf16,h=16,q=4096,d=128,d2=64,seqs=4", "attention_fwd_sm90", 64},
        {LATHE_FORWARD, "dtype=f32,h=16,q=4096,d=128,d2=64,seqs=4", "attention_fwd_sm80", 0},
        {LATHE_FORWARD, "dtype=f32,b=2,h=16,q=64,kv=4096,d=128,d2=64,used_kv=i32", "attention_fwd_sm80", 0},
        {LATHE_BACKWARD, "dtype=bf16,h=16,q=4096,d=128,d2=64,seqs=4", "attention_bwd_wide_sm90", 0},
    };
    struct plan plan;
    lathe_error err;
    for (size_t i = 0; i < sizeof GIVEN / sizeof *GIVEN; i++) {
        CHECK_EQ(asked(APART, GIVEN[i].pass, &H100, GIVEN[i].line, &plan, &err), LATHE_OK);
        CHECK_STR(err.text, "");
        CHECK_STR(plan.row->name, GIVEN[i].template_name);
        CHECK_EQ(plan.attention.d2, GIVEN[i].d2);
    }
    CHECK_EQ(asked(APART, LATHE_FORWARD, &H100, "dtype=f32,b=2,h=16,q=64,kv=4096,d=128,d2=64,page=64", &plan,
                   &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(
        err.text,
        "attention_fwd_sm80: q2 and k2 would be copied behind q and k, which keys in pages do not go with");
}

TEST(gradients_of_a_second_pair_have_a_kernel_on_every_gpu)
{
    static const char PAIR[] = "return attention { qk2 = true, v = 'k', mask_mod = causal, scale = 0.07 }";
    static const char APART[] = "return attention { qk2 = true, mask_mod = causal }";
    static const struct {
        const char *text;
        const struct device *device;
        const char *line, *template_name;
    } GIVEN[] = {
        {APART, &H100, "dtype=bf16,h=16,q=2048,d=128,d2=64,d_v=128", "attention_bwd_wide_sm90"},
        {APART, &H100, "dtype=f16,h=16,q=2048,d=64,d2=64,d_v=64", "attention_bwd_sm90"},
        {APART, &H100, "dtype=f32,h=16,q=2048,d=64,d2=64,d_v=64", "attention_bwd_sm80"},
        {APART, &A100, "dtype=bf16,h=16,q=2048,d=128,d2=64,d_v=128", "attention_bwd_sm80"},
        {APART, &RTX4090, "dtype=f16,h=16,q=2048,d=512,d2=64,d_v=512", "attention_bwd_slices"},
        {PAIR, &H100, "dtype=bf16,h=16,h_kv=1,q=2048,d=512,d2=64,d_v=512", "attention_bwd_latent_sm90"},
    };
    struct plan plan;
    lathe_error err;
    for (size_t i = 0; i < sizeof GIVEN / sizeof *GIVEN; i++) {
        CHECK_EQ(asked(GIVEN[i].text, LATHE_BACKWARD, GIVEN[i].device, GIVEN[i].line, &plan, &err), LATHE_OK);
        CHECK_STR(err.text, "");
        CHECK_STR(plan.row->name, GIVEN[i].template_name);
        CHECK_HAS(plan.reason, "64 columns of q and k are those of q2 and k2, copied behind them, and their "
                               "gradients back to dq, dq2, dk and dk2");
    }
    CHECK_EQ(asked(APART, LATHE_BACKWARD, &H100, "dtype=bf16,h=4,q=8,d=64,d2=12", &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "attention_bwd_sm80: a head dim is no multiple of 8, beside q2 and k2");
}
