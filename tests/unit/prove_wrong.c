/*
 * prove_wrong.c: specs that are wrong where proofs would not look of themselves, and specs that are right
 * where they might complain. In: tests/specs/wrong/NAME.lua, each with a first line `-- fails: PROOF: part of
 * its note`, or `-- warns: ...`. Out: that proof fails (or passes with a warning, as "not seen" is one) with
 * that note for several seeds; and the texts below pass every proof.
 */
#include "check.h"
#include "gen/gen.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = LATHE_TEST_EVERY > 1 ? 1 : 3 }; /* another seed goes the same ways */

static const struct proof *find(const struct proof *proof, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (strcmp(proof[i].what, what) == 0)
            return &proof[i];
    return NULL;
}

static struct ir *load(const char *name, const char *text)
{
    struct diag diag = {0};
    struct ir *ir = spec_load(name, text, text ? strlen(text) : 0, &diag);
    CHECK_STR(diag.n > 0 ? diag.entry[0].text : "", "");
    CHECK(ir != NULL);
    return ir;
}

struct expected { /* by the first line of a wrong spec */
    char how[8];  /* "fails", "warns" */
    char what[64];
    char part[128];
};

static struct expected read_expected(const char *path)
{
    struct expected e;
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    CHECK(fscanf(f, "-- %5[^:]: %63[^:]: %127[^\n]", e.how, e.what, e.part) == 3);
    CHECK(strcmp(e.how, "fails") == 0 || strcmp(e.how, "warns") == 0);
    fclose(f);
    return e;
}

static bool is_told(const char *path, unsigned seed, const struct expected *e)
{
    struct proof proof[PROOF_MAX];
    struct ir *ir = load(path, NULL);
    const int n = prove(ir, seed, proof);
    bool good = false;
    for (int i = 0; i < n; i++) {
        const bool told = strcmp(e->how, "fails") == 0
                              ? !proof[i].passed
                              : proof[i].passed && (proof[i].warned || proof[i].unseen);
        good |= told && strcmp(proof[i].what, e->what) == 0 && strstr(proof[i].note, e->part);
    }
    for (int i = 0; i < n && !good; i++)
        printf("%s, seed %u: %s: %s '%s'; expected: %s: %s\n", path, seed, proof[i].what,
               proof[i].passed ? "passed" : "failed", proof[i].note, e->what, e->part);
    ir_free(ir);
    return good;
}

TEST_TIMEOUT(wrong_specs_fail, 240)
{
    DIR *dir = opendir(check_source_path("tests/specs/wrong"));
    int n = 0;
    int n_good = 0;
    int number = check_drawn(LATHE_TEST_EVERY);
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512];
        if (entry->d_name[0] == '.' || number++ % LATHE_TEST_EVERY != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", check_source_path("tests/specs/wrong"), entry->d_name);
        const struct expected e = read_expected(path);
        for (unsigned seed = 1; seed <= SEEDS; seed++, n++)
            n_good += is_told(path, seed, &e);
    }
    closedir(dir);
    CHECK(n > 20 * SEEDS / LATHE_TEST_EVERY);
    CHECK_EQ(n_good, n);
}

/* ---- right ones ---------------------------------------------------------------------------------- */

static void expect_all_pass(const char *text)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct proof proof[PROOF_MAX];
        struct ir *ir = load("right.lua", text);
        const int n = prove(ir, seed, proof);
        for (int i = 0; i < n; i++) {
            if (!proof[i].passed)
                printf("%s\nseed %u: %s: %s\n", text, seed, proof[i].what, proof[i].note);
            CHECK(proof[i].passed);
            CHECK(!proof[i].unseen);
            CHECK(!proof[i].warned);
        }
        ir_free(ir);
    }
}

/* Large scores have no digit for what is small beside them: rounding them alone does the same. */
TEST(digits_that_large_numbers_cannot_have_are_no_mistake)
{
    expect_all_pass("return attention { score_mod = function(s, at)\n"
                    "  return s + where(ge(at.q, at.kv), 0.0, -1e9) end }");
    expect_all_pass("return attention { score_mod = function(s, at)\n"
                    "  return where(ge(at.q, at.kv), s, -1e9) end }");
    expect_all_pass("return attention { mask_mod = causal, score_mod = function(s, at)\n"
                    "  return s - 8.0 * (at.q - at.kv) end }");
    expect_all_pass("return attention { mask_mod = causal, score_mod = function(s) return s * 1000.0 end }");
}

TEST(stable_formulas_pass)
{
    expect_all_pass("return attention { score_mod = function(s)\n"
                    "  return max(s, 0.0) + log(1.0 + exp(-abs(s))) end }");
    expect_all_pass("return elementwise { over = { 'n' }, operands = { x = tensor('float') },\n"
                    "  results = { y = tensor('float') }, forward = function(v)\n"
                    "    return max(v.x, 0.0) + log(1.0 + exp(-abs(v.x))) end }");
    expect_all_pass("return rowwise { forward = function(x, at)\n"
                    "  local mean = rowsum(x) / at.n\n"
                    "  local d = x - mean\n"
                    "  return d * rsqrt(rowsum(d * d) / at.n + 1e-5) end }");
    expect_all_pass("return rowwise { forward = function(x)\n"
                    "  local m = detach(rowmax(x))\n"
                    "  return { lse = m + log(rowsum(exp(x - m))) } end }");
}

/* Inputs and scalars at the ends of their ranges, and far out where they have none. */
TEST(stable_formulas_of_inputs_pass)
{
    expect_all_pass("return attention { inputs = { g = tensor('float', 'h', 'kv', { grad = true,\n"
                    "  range = { -200.0, 200.0 } }) }, score_mod = function(s, at, x)\n"
                    "    return s * sigmoid(x.g(at.h, at.kv)) end }");
    expect_all_pass("return attention { inputs = { a = tensor('f32', 'h', { grad = true }) },\n"
                    "  score_mod = function(s, at, x) local a = x.a(at.h)\n"
                    "    return s * (max(a, 0.0) + log(1.0 + exp(-abs(a)))) end }");
    expect_all_pass("return attention { inputs = { t = tensor('f32', 'h', { grad = true,\n"
                    "  range = { 0.0, 4.0 } }) }, mask_mod = causal, score_mod = function(s, at, x)\n"
                    "    return s * sqrt(x.t(at.h)) end }");
    expect_all_pass("return rowwise { inputs = { a = scalar('f32', { grad = true, default = 1.0 }) },\n"
                    "  forward = function(x, at, p) return x * sigmoid(p.a * x) end }");
}

/* What is itself outside of f32's range is compared with nothing. */
TEST(results_that_f32_does_not_hold_are_no_mistake)
{
    expect_all_pass("return attention { online_func = elementwise_weights(exp) }");
    expect_all_pass("return elementwise { over = { 'n' }, operands = { x = tensor('float') },\n"
                    "  results = { y = tensor('float') }, forward = function(v) return exp(v.x) end }");
}

/* ---- what was looked at -------------------------------------------------------------------------- */

static const struct proof *find_unseen(const struct proof *proof, int n, int line)
{
    for (int i = 0; i < n; i++)
        if (proof[i].unseen && proof[i].line == line)
            return &proof[i];
    return NULL;
}

/* A score is never above 1e30, a distance is: by the sizes that the constant asks for. */
TEST(sides_that_were_not_taken_are_named)
{
    struct proof proof[PROOF_MAX];
    struct ir *ir = load("sides.lua", "return attention { mask_mod = causal, score_mod = function(s, at)\n"
                                      "  local a = where(gt(at.q - at.kv, 4000), s, 0.5 * s)\n"
                                      "  local b = where(gt(at.kv, 60000), a, a + 1.0)\n"
                                      "  local c = where(gt(at.h, 25), b, b + 1.0)\n"
                                      "  local d = where(eq(s, 17.0), c, c + 1.0)\n"
                                      "  local e = where(lt(s, -300.0), d, d + 1.0)\n"
                                      "  return where(gt(e, 1e30), 0.0, e) end }");
    const int n = prove(ir, 1, proof);
    for (int line = 2; line <= 6; line++)
        CHECK(!find_unseen(proof, n, line));
    const struct proof *p = find_unseen(proof, n, 7);
    CHECK(p != NULL);
    CHECK_HAS(p->note, "gt was never true");
    ir_free(ir);
}

TEST(sides_of_rows_and_maps)
{
    expect_all_pass(
        "return rowwise { inputs = { mode = scalar('i32', { default = 0 }) }, forward = function(x, at, p)\n"
        "  local a = where(gt(at.i, 3000), x, 0.5 * x)\n"
        "  return where(eq(p.mode, 3), a, 2.0 * a) + where(gt(x, 77.0), 1.0, 0.0) end }");
    expect_all_pass("return elementwise { over = { 'rows', 'n' }, operands = { x = tensor('float') },\n"
                    "  results = { y = tensor('float') }, forward = function(v, at)\n"
                    "    return where(gt(at.rows, 500) & lt(at.n, 300), v.x, 0.0) end }");
}

/* No data of a proof is infinite or NaN, which guards ask for. */
TEST(guards_against_infinity_and_nan_need_no_other_side)
{
    expect_all_pass("return rowwise { forward = function(x) local m = rowmax(x)\n"
                    "  return where(gt(m, -inf) & lt(m, inf), exp(x - m), 0.0) end }");
    expect_all_pass("return rowwise { forward = function(x)\n"
                    "  return where(~(eq(abs(x), inf) | ne(x, x)), x, 0.0) end }");
    struct proof proof[PROOF_MAX];
    struct ir *ir = load("beside.lua", "return rowwise { forward = function(x)\n"
                                       "  return where(lt(x, inf) & lt(x, 1e30), x, 0.0) end }");
    CHECK(find_unseen(proof, prove(ir, 1, proof), 2) != NULL);
    ir_free(ir);
}

/* ---- time ---------------------------------------------------------------------------------------- */

/* 1000 exponentials, one in the other: something is left out, and what is left is said. */
TEST_TIMEOUT(proofs_of_any_text_end, 120)
{
    struct proof proof[PROOF_MAX];
    struct ir *ir = load("chain.lua", "return attention { mask_mod = causal, score_mod = function(s)\n"
                                      "  for i = 1, 1000 do s = s + 1e-4 * exp(-s) end\n"
                                      "  return s end }");
    const int n = prove(ir, 1, proof);
    int cut_short = 0;
    for (int i = 0; i < n; i++)
        cut_short += proof[i].cut_short;
    CHECK(cut_short > 0);
    ir_free(ir);
}

/* ---- linear attention ------------------------------------------------------------------------------ */

static void check_growth(const char *text, bool grows)
{
    struct proof proof[PROOF_MAX];
    struct ir *ir = load("growth.lua", text);
    const struct proof *p = find(proof, prove(ir, 1, proof), "chunks = recurrence");
    CHECK(p != NULL);
    CHECK(p->passed);
    CHECK_EQ(p->warned, grows);
    if (grows) {
        CHECK_EQ(p->line, 3);
        CHECK_HAS(p->note, "beyond 2 the state grows with every token; key_mod = unit keeps it");
        CHECK_HAS(p->note, "kernels that go in chunks may then give NaN where the state is finite");
    }
    ir_free(ir);
}

/* Where beta |k|^2 is beyond 2 a chunk's inverse grows with its length, and so does the state. */
TEST(a_delta_rule_that_grows_is_named)
{
    static const char HEAD[] = "return linear_attention {\n"
                               "  inputs = { beta = tensor('f32', 'b', 'h', 't') },\n"
                               "  delta  = function(at, x) return x.beta(at.b, at.h, at.t) end,\n";
    char text[512];
    snprintf(text, sizeof text, "%s}", HEAD);
    check_growth(text, true);
    snprintf(text, sizeof text, "%s  key_mod = unit }", HEAD);
    check_growth(text, false);
}
