/*
 * nsa.c: the pieces of native sparse attention on the host device: all blocks chosen are causal attention,
 * what blocks weigh is a gradient, which blocks are chosen; and which masks a kernel takes for lists of
 * blocks.
 */
#include "check.h"
#include "plan_pick.h"
#include "loaded.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static void run(const char *spec, lathe_pass pass, const lathe_arg *args, int n)
{
    struct signature sig;
    lathe_error err = {0};
    struct ir *ir = load_signed(spec, pass, &sig);
    const lathe_status status = pass == LATHE_FORWARD ? host_forward(ir, &sig, args, n, NULL, 0, &err)
                                                      : host_backward(ir, &sig, args, n, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
    ir_free(ir);
}

static void fill(double *x, int n, int step)
{
    for (int i = 0; i < n; i++)
        x[i] = ((i * step) % 101) / 50.0 - 1;
}

enum { H = 4, H_KV = 2, T = 150, D = 6, ENTRIES = 16 };
static double q[H * T * D], k[H_KV * T * D], v[H_KV * T * D], dout[H * T * D];
static const int64_t QUERIES[] = {1, H, T, D};
static const int64_t KEYS[] = {1, H_KV, T, D};

/* Every block once, in an order of its own, one of them again, and what is none: o, dq, dk, dv. */
static void attend(bool by_lists, double *result[4])
{
    static int32_t blocks[H_KV * T * ENTRIES];
    static const int64_t lists[] = {1, H_KV, T, ENTRIES};
    for (int row = 0; row < H_KV * T; row++)
        for (int i = 0; i < ENTRIES; i++)
            blocks[row * ENTRIES + (i * 5 + row) % ENTRIES] = i < 3 ? i : i == 3 ? row % 3 : i % 2 ? -1 : T;
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, QUERIES, NULL},
                              {"k", k, LATHE_F64, 4, KEYS, NULL},
                              {"v", v, LATHE_F64, 4, KEYS, NULL},
                              {"do", dout, LATHE_F64, 4, QUERIES, NULL},
                              {"dq", result[1], LATHE_F64, 4, QUERIES, NULL},
                              {"dk", result[2], LATHE_F64, 4, KEYS, NULL},
                              {"dv", result[3], LATHE_F64, 4, KEYS, NULL},
                              {"blocks", blocks, LATHE_I32, 4, lists, NULL}};
    const lathe_arg forward[] = {
        args[0], args[1], args[2], {"o", result[0], LATHE_F64, 4, QUERIES, NULL}, args[7]};
    run(by_lists ? "nsa_selected" : "causal", LATHE_FORWARD, forward, by_lists ? 5 : 4);
    run(by_lists ? "nsa_selected" : "causal", LATHE_BACKWARD, args, by_lists ? 8 : 7);
}

TEST(all_blocks_chosen_are_causal_attention)
{
    static double result[2][4][H * T * D];
    fill(q, H * T * D, 37);
    fill(k, H_KV * T * D, 53);
    fill(v, H_KV * T * D, 29);
    fill(dout, H * T * D, 43);
    for (int by_lists = 0; by_lists < 2; by_lists++) {
        double *to[4] = {result[by_lists][0], result[by_lists][1], result[by_lists][2], result[by_lists][3]};
        attend(by_lists, to);
    }
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < (r < 2 ? H : H_KV) * T * D; i++)
            CHECK_CLOSE(result[1][r][i], result[0][r][i], 1e-12);
}

/* ---- what blocks weigh ------------------------------------------------------------------------------------
 */

enum { PAST = 40, BLOCKS = 3 }; /* of 64 keys: (T + PAST) / 64 = 2 are complete, the third is not */

static double score(int h, int t, int c)
{
    double s = 0;
    for (int d = 0; d < D; d++)
        s += q[(h * T + t) * D + d] * k[(h / (H / H_KV) * BLOCKS + c) * D + d];
    return s / sqrt(D);
}

/* What a block weighs in the softmax over those that are complete. */
static double weight(int h, int t, int c)
{
    const int n = (t + PAST + 1) / 64;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(score(h, t, i));
    return c < n ? exp(score(h, t, c)) / sum : 0.0;
}

TEST(what_blocks_weigh_is_the_gradient_of_lse)
{
    static double given[H_KV * T * BLOCKS];
    static double o[H * T * D];
    static double lse[H * T];
    static const double zero = 0;
    static const double one = 1;
    static int32_t past[] = {PAST};
    const int64_t keys[] = {1, H_KV, BLOCKS, D};
    const int64_t table[] = {1, H_KV, T, BLOCKS};
    const int64_t rows[] = {1, H, T};
    const int64_t batch[] = {1};
    const int64_t none[4] = {0};
    fill(q, H * T * D, 37);
    fill(k, H_KV * BLOCKS * D, 53);
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, QUERIES, NULL},
                              {"k", k, LATHE_F64, 4, keys, NULL},
                              {"v", k, LATHE_F64, 4, keys, NULL},
                              {"past", past, LATHE_I32, 1, batch, NULL},
                              {"o", o, LATHE_F64, 4, QUERIES, NULL},
                              {"lse", lse, LATHE_F64, 3, rows, NULL},
                              {"do", (void *)&zero, LATHE_F64, 4, QUERIES, none},
                              {"dlse", (void *)&one, LATHE_F64, 3, rows, none},
                              {"dimportance", given, LATHE_F64, 4, table, NULL}};
    run("nsa_compressed", LATHE_FORWARD, args, 6);
    run("nsa_compressed", LATHE_BACKWARD, args, 9);
    for (int h = 0; h < H_KV; h++)
        for (int t = 0; t < T; t++)
            for (int c = 0; c < BLOCKS; c++)
                CHECK_CLOSE(given[(h * T + t) * BLOCKS + c], weight(2 * h, t, c) + weight(2 * h + 1, t, c),
                            1e-13);
}

/* ---- which are chosen -------------------------------------------------------------------------------------
 */

enum { COLUMNS = 24, ROWS = 8 };

TEST(own_first_and_latest_blocks_come_before_what_weighs_most)
{
    static float x[ROWS][COLUMNS];
    static int32_t chosen[ROWS][ENTRIES];
    static const int32_t own[ROWS] = {0, 1, 2, 23, 20, 20, 12, 23};
    static const int32_t first[ROWS] = {0, 0, 0, 0, 0, 10, 10, 3};
    static const int32_t counts[ROWS] = {16, 16, 16, 5, 1, 2, 16, 0};
    static const int32_t wanted[ROWS][ENTRIES] = {
        {0, -1},
        {1, 0, -1},
        {2, 0, 1, -1},         /* fewer blocks than places: none of the future */
        {23, 0, 22, 7, 9, -1}, /* infinite ones, as they lie, do not come before those forced */
        {20, -1},
        {10, 0, -1}, /* few are asked for; of another sequence from column 10 on */
        {2, 0, 1, -1},
        {-1}};
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < COLUMNS; i++)
            x[r][i] = (float)((i * 7 + r) % 11);
    x[3][7] = x[3][9] = INFINITY;
    x[3][0] = NAN; /* forced all the same */
    const int64_t shape[] = {ROWS, COLUMNS};
    const int64_t places[] = {ROWS, ENTRIES};
    const int64_t rows[] = {ROWS};
    const lathe_arg args[] = {{"x", x, LATHE_F32, 2, shape, NULL},
                              {"own", (void *)own, LATHE_I32, 1, rows, NULL},
                              {"first", (void *)first, LATHE_I32, 1, rows, NULL},
                              {"counts", (void *)counts, LATHE_I32, 1, rows, NULL},
                              {"blocks", chosen, LATHE_I32, 2, places, NULL}};
    run("nsa_select", LATHE_FORWARD, args, 5);
    for (int r = 0; r < ROWS; r++) {
        bool ended = false;
        for (int i = 0; i < ENTRIES; i++) {
            ended |= wanted[r][i] < 0;
            CHECK_EQ(chosen[r][i], ended ? -1 : wanted[r][i]);
        }
    }
}

TEST(what_weighs_nothing_at_all_is_not_chosen_and_equal_ones_come_as_they_lie)
{
    static float x[COLUMNS];
    static int32_t chosen[ENTRIES];
    static const int32_t own = 23;
    static const int32_t wanted[] = {23, 0, 22, 9, 11, 4, 17, 20, -1};
    const int64_t shape[] = {1, COLUMNS};
    const int64_t places[] = {1, ENTRIES};
    const int64_t rows[] = {1};
    for (int i = 0; i < COLUMNS; i++)
        x[i] = -INFINITY;
    x[4] = x[17] = 2;
    x[20] = 1;
    x[9] = NAN;
    x[11] = INFINITY;
    const lathe_arg args[] = {{"x", x, LATHE_F32, 2, shape, NULL},
                              {"own", (void *)&own, LATHE_I32, 1, rows, NULL},
                              {"blocks", chosen, LATHE_I32, 2, places, NULL}};
    run("nsa_select", LATHE_FORWARD, args, 3);
    for (int i = 0; i < 9; i++)
        CHECK_EQ(chosen[i], wanted[i]);
}

/* On a GPU a table that is left out is a constant; its gradient is refused, and not zero in silence. */
TEST(gradients_of_what_is_left_out_are_refused)
{
    struct plan plan;
    lathe_error err;
    CHECK_EQ(pick_pass("nsa_compressed", LATHE_BACKWARD,
                       "dtype=f32,h=4,h_kv=2,q=64,kv=4,d=16,importance=none", &H100, &plan, &err),
             LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "dimportance is asked for and importance is left out");
    CHECK_EQ(pick_pass("nsa_compressed", LATHE_BACKWARD, "dtype=f32,h=4,h_kv=2,q=64,kv=4,d=16", &H100, &plan,
                       &err),
             LATHE_OK);
}

/* ---- which masks are lists --------------------------------------------------------------------------------
 */

#define LISTS(entry, keys, mask)                                                                             \
    "local function chosen(at, x) return eq(x.blocks(at.b, at.h_kv, at.row, 0), at.kv // " keys ") | "       \
    "eq(at.kv // " keys ", x.blocks(at.b, at.h_kv, at.row, " entry ")) end\n"                                \
    "return attention { inputs = { blocks = tensor('i32', 'b', 'h_kv', 'q', 2) }, mask_mod = " mask " }\n"

TEST(masks_that_are_lists_and_an_interval_are_taken)
{
    static const char SIZES[] = "dtype=bf16,h=8,h_kv=2,q=256,d=128";
    static const char *const taken[] = {LISTS("1", "16", "chosen"), LISTS("1", "48", "both(causal, chosen)"),
                                        "nsa_selected"};
    static const char *const refused[] = {
        LISTS("0", "16", "chosen"), /* an entry that nothing reads may be a block */
        LISTS("1", "16", "both(chosen, function(at) return eq(at.kv % 3, 0) end)"),
        LISTS("1", "16", "either(chosen, causal)"), "causal", "block_mask"};
    const struct device device = asking_for(&H100, "attention_selected");
    struct plan plan;
    lathe_error err;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        CHECK_EQ(pick(taken[i], SIZES, &device, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, "attention_selected");
        CHECK_EQ(pick(taken[i], SIZES, &H100, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, "attention_selected");
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const bool blocks = strcmp(refused[i], "block_mask") == 0;
        CHECK_EQ(pick(refused[i], blocks ? "dtype=bf16,h=8,q=256,d=128,q_blocks=4,kv_blocks=4" : SIZES,
                      &device, &plan, &err),
                 LATHE_UNSUPPORTED);
        CHECK_HAS(err.text, "the mask is not an interval of keys and a list of up to 128 blocks of them");
    }
    static const char packed[] = "dtype=bf16,h=8,h_kv=2,q=256,d=128,seqs=3,cu_q=i32";
    CHECK_EQ(pick("nsa_selected", packed, &H100, &plan, &err), LATHE_OK);
    CHECK_STR(plan.row->name, "attention_selected");
    CHECK_EQ(pick(LISTS("1", "24", "chosen"), SIZES, &device, &plan, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "blocks are of multiples of 16 keys");
}

TEST(gradients_of_lists_have_a_kernel_of_their_own)
{
    static const char SIZES[] = "dtype=bf16,h=8,h_kv=2,q=256,d=128";
    static const char LEARNED[] =
        "local function chosen(at, x) return eq(x.blocks(at.b, at.h_kv, at.row, 0), at.kv // 64) end\n"
        "return attention { mask_mod = chosen, inputs = { blocks = tensor('i32', 'b', 'h_kv', 'q', 1),\n"
        "  slope = tensor('f32', 'h', { grad = true }) },\n"
        "  score_mod = function(s, at, x) return s - x.slope(at.h) * (at.q - at.kv) end }\n";
    static const struct {
        const char *spec, *problem, *why;
    } refused[] = {
        {"causal", SIZES, "the mask is not an interval of keys and a list of up to 128 blocks of them"},
        {LISTS("1", "24", "chosen"), SIZES, "blocks are of 24 keys; it takes multiples of 16"},
        {LEARNED, SIZES, "pairs add to gradients of inputs"},
        {"nsa_selected", "dtype=bf16,h=8,h_kv=2,q=256,d=128,deterministic=1", "take that"},
        {"nsa_selected", "dtype=bf16,h=8,h_kv=2,q=256,d=128,seqs=3,cu_q=i32,unaligned=do",
         "rows of do do not start at multiples of 16 bytes; align them"},
        {"nsa_selected", "dtype=f32,h=8,h_kv=2,q=256,d=128", "(attention_bwd_sm80 takes that)"},
    };
    static const char *const taken[] = {"nsa_selected", LISTS("1", "16", "both(causal, chosen)"),
                                        LISTS("1", "160", "chosen")};
    static const int keys[] = {64, 16, 32}; /* of a tile */
    const struct device device = asking_for(&H100, "attention_bwd_selected");
    struct plan plan;
    lathe_error err;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        CHECK_EQ(pick_pass(taken[i], LATHE_BACKWARD, SIZES, &device, &plan, &err), LATHE_OK);
        CHECK_STR(plan.row->name, "attention_bwd_selected");
        CHECK_EQ(plan.attention.back.bn, keys[i]);
    }
    CHECK_EQ(pick_pass("nsa_selected", LATHE_BACKWARD, "dtype=bf16,h=8,h_kv=2,q=256,d=128,seqs=3,cu_q=i32",
                       &H100, &plan, &err),
             LATHE_OK);
    CHECK_STR(plan.row->name, "attention_bwd_selected");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_EQ(pick_pass(refused[i].spec, LATHE_BACKWARD, refused[i].problem, &device, &plan, &err),
                 LATHE_UNSUPPORTED);
        CHECK_HAS(err.text, refused[i].why);
    }
}
