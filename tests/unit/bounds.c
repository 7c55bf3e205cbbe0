/*
 * bounds.c: the class of a tile against the mask evaluated on every pair of it: never "all" with a dead pair,
 * never "none" with a live one; and exact where interval arithmetic can be (causal, windows, prefixes).
 */
#include "check.h"
#include "gen.h"

#include <stdlib.h>
#include <string.h>

static struct ir *load(const char *text)
{
    struct diag diag = {0};
    struct ir *ir = spec_load("mask.lua", text, strlen(text), &diag);
    if (!ir)
        fprintf(stderr, "%s\n", diag.entry[0].text);
    CHECK(ir != NULL);
    return ir;
}

static bool live(const struct ir *ir, int64_t q, int64_t row, double kv)
{
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 1};
    env.at[AT_Q] = (double)q;
    env.at[AT_ROW] = (double)row;
    env.at_axis[AT_KV] = &kv;
    CHECK(eval_run(&env, ir->mask.root, 1));
    bool result = env.value[ir->mask.root[0]][0] != 0;
    eval_free(&env);
    return result;
}

static enum tile_class by_looking(const struct ir *ir, const struct tile_at *t)
{
    int64_t n = 0;
    for (int64_t row = t->row0; row <= t->row1; row++)
        for (int64_t kv = t->kv0; kv <= t->kv1; kv++)
            n += live(ir, row + t->q_start, row, (double)kv);
    int64_t all = (t->row1 - t->row0 + 1) * (t->kv1 - t->kv0 + 1);
    return n == 0 ? TILE_NONE : n == all ? TILE_ALL : TILE_SOME;
}

/* How many of the random tiles that are uniform were decided. */
static void compare(const char *text, int *decided, int *uniform)
{
    struct ir *ir = load(text);
    *decided = 0;
    *uniform = 0;
    srand(7);
    for (int i = 0; i < 400; i++) {
        struct tile_at t = {.q_start = rand() % 40 - 20, .row0 = rand() % 40, .kv0 = rand() % 60};
        t.row1 = t.row0 + rand() % 6;
        t.kv1 = t.kv0 + rand() % 6;
        enum tile_class claim = bounds_class(ir, &t);
        enum tile_class truth = by_looking(ir, &t);
        if (claim != TILE_SOME)
            CHECK_EQ(claim, truth);
        *uniform += truth != TILE_SOME;
        *decided += claim != TILE_SOME;
    }
    ir_free(ir);
}

static void compare_exact(const char *text)
{
    int decided;
    int uniform;
    compare(text, &decided, &uniform);
    CHECK(uniform > 50);
    CHECK_EQ(decided, uniform);
}

TEST(causal_is_exact)
{
    compare_exact("return attention { mask_mod = causal }");
}

TEST(windows_are_exact)
{
    compare_exact("local function near(at) return lt(at.q - at.kv, 9) end\n"
                  "return attention { mask_mod = both(causal, near) }");
}

TEST(prefixes_are_exact)
{
    compare_exact("return attention { mask_mod = either(causal, function(at) return lt(at.kv, 13) end) }");
}

TEST(negation_is_exact)
{
    compare_exact("return attention { mask_mod = function(at) return ~ge(at.q, at.kv) end }");
}

TEST(undecided_forms_are_sound)
{
    static const char *const masks[] = {
        "eq(at.q % 4, at.kv % 4)",
        "ne(at.q // 8, at.kv // 8)",
        "lt(abs(at.q - at.kv), 5)",
        "gt(clamp(at.q - at.kv, -3, 3) * 2, 1)",
        "le(max(at.q, at.kv) - min(at.q, at.kv), 4)",
        "lt(f32(at.q) * 0.5, floor(at.kv / 3))",
        "lt(sin(at.q * 1.0), 0.5) & ge(at.q, at.kv)",
    };
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char text[256];
        int decided;
        int uniform;
        snprintf(text, sizeof text, "return attention { mask_mod = function(at) return %s end }", masks[i]);
        compare(text, &decided, &uniform);
    }
}

TEST(no_mask_is_all)
{
    struct ir *ir = load("return attention {}");
    struct tile_at t = {.row1 = 3, .kv1 = 3};
    CHECK_EQ(bounds_class(ir, &t), TILE_ALL);
    ir_free(ir);
}

TEST(reads_of_data_are_found)
{
    struct ir *by_pair = load("return attention { inputs = { d = tensor('i32', 'kv') },\n"
                              "mask_mod = function(at, x) return eq(x.d(at.kv), 1) end }");
    struct ir *by_head = load("return attention { inputs = { d = tensor('i32', 'h') },\n"
                              "mask_mod = function(at, x) return lt(at.kv, x.d(at.h)) end }");
    CHECK(bounds_mask_reads_data(by_pair));
    CHECK(!bounds_mask_reads_data(by_head));
    ir_free(by_pair);
    ir_free(by_head);
}
