/*
 * positions.c: what is made of positions and decides something: one arithmetic for the host device, the
 * proofs and kernels, and a warning where f32 decides otherwise than exact arithmetic. Specs are texts of
 * this file.
 */
#include "check.h"
#include "emit_call.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MASK(text)  "return attention { mask_mod = function(at) return " text " end }"
#define SCORE(text) "return attention { score_mod = function(s, at) return s + " text " end }"

/* ---- values ----------------------------------------------------------------------------------------- */

/* Of a mask, at one pair. */
static double mask_at(const struct ir *ir, double q, double kv)
{
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 1};
    env.at[AT_Q] = q;
    env.at_axis[AT_KV] = &kv;
    CHECK(eval_run(&env, ir->mask.root, 1));
    const double value = env.value[ir->mask.root[0]][0];
    eval_free(&env);
    return value;
}

static float times(float a, float b)
{
    volatile float product = a * b; /* rounded, whatever the compiler keeps more of */
    return product;
}

TEST(masks_of_positions_are_f32_on_the_host_device)
{
    struct ir *ir = load_spec(MASK("eq(floor(f32(at.q) * 0.29), floor(f32(at.kv) * 0.29))"));
    for (int q = 0; q < 3000; q++)
        for (int kv = q > 3 ? q - 3 : 0; kv < q + 4; kv++)
            CHECK_EQ(mask_at(ir, q, kv) != 0,
                     floorf(times((float)q, 0.29f)) == floorf(times((float)kv, 0.29f)));
    CHECK(mask_at(ir, 100, 102) != 0); /* 29 and 29; in double precision 28 and 29 */
    ir_free(ir);
}

TEST(functions_of_positions_are_the_nearest_f32_number)
{
    struct ir *ir = load_spec(MASK("gt(exp(f32(at.q - at.kv)), 0.0)"));
    for (int q = 0; q < 200; q++)
        CHECK_EQ(mask_at(ir, 0, q) != 0, (float)exp(-(double)q) > 0.0F);
    CHECK(mask_at(ir, 0, 103) != 0); /* a subnormal number */
    CHECK(mask_at(ir, 0, 104) == 0);
    ir_free(ir);
}

TEST(constants_beside_positions_are_f32)
{
    struct ir *ir = load_spec(MASK("ge(f32(at.q) / 8.0, 0.1 * 0.1) & lt(f32(at.kv) * 0.1, 0.7)"));
    CHECK_EQ(mask_at(ir, 1, 7) != 0, times(7.0F, 0.1F) < 0.7F);
    CHECK_EQ(mask_at(ir, 1, 6) != 0, times(6.0F, 0.1F) < 0.7F);
    ir_free(ir);
}

/* Of a mask of the scalar c alone. */
static bool mask_of_scalar(const char *mask, lathe_dtype dtype, double c)
{
    char text[256];
    const float narrow = (float)c;
    const lathe_arg arg = {.dtype = dtype, .data = dtype == LATHE_F32 ? (void *)&narrow : (void *)&c};
    snprintf(text, sizeof text,
             "return attention { inputs = { c = scalar('f32') }, mask_mod = function(at, x) return %s end }",
             mask);
    struct ir *ir = load_spec(text);
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 1, .input = {&arg}};
    CHECK(eval_run(&env, ir->mask.root, 1));
    const bool live = env.value[ir->mask.root[0]][0] != 0;
    eval_free(&env);
    ir_free(ir);
    return live;
}

/* A kernel has both in f32, where 0.1 is what it was given. */
TEST(constants_beside_given_numbers_are_f32)
{
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_F64};
    for (int i = 0; i < 2; i++) {
        CHECK(mask_of_scalar("eq(x.c, 0.1)", DTYPE[i], 0.1));
        CHECK(mask_of_scalar("le(x.c, 0.1) & ~lt(0.1, x.c)", DTYPE[i], 0.1));
        CHECK(
            mask_of_scalar("gt(x.c % 0.3, 0.2)", DTYPE[i], 3.0)); /* 0.3 is more in f32: 9 times and a rest */
        CHECK(mask_of_scalar("eq(x.c // 0.3, 9.0)", DTYPE[i], 3.0));
    }
}

static bool is_query_as_f32(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    return n->type == TYPE_F32 && n->n_args == 1 && ir_is_at(ir, n->arg[0], AT_Q);
}

/* Values that nothing decides by stay as exact as they were. */
TEST(smooth_values_of_positions_stay_in_double_precision)
{
    struct ir *ir = load_spec(SCORE("f32(at.q - at.kv) * 0.29"));
    for (int i = 0; i < ir->n_nodes; i++)
        CHECK(!ir->node[i].rounded);
    ir_free(ir);
    ir = load_spec(SCORE("f32(at.q) * 0.29 + floor(f32(at.q) * 0.29)"));
    int n = 0;
    for (int i = 0; i < ir->n_nodes; i++)
        n += ir->node[i].op == OP_MUL && is_query_as_f32(ir, ir->node[i].arg[0]);
    CHECK(n <= 2);
    ir_free(ir);
}

/* ---- texts of kernels ------------------------------------------------------------------------------- */

TEST(kernels_round_what_decides_and_others_have_no_such_text)
{
    struct source s;
    make_source(MASK("eq(floor(f32(at.q) * 0.29), floor(f32(at.kv) * 0.29))"), "dtype=bf16,d=64", &s);
    CHECK_HAS(text_named(&s, "variant.gen.cuh")->data, "#include \"common/exact.cuh\"");
    CHECK_HAS(text_named(&s, "variant.gen.cuh")->data, "= exact_mul(");
    CHECK(
        !strstr(text_named(&s, "variant.gen.cuh")->data, " * 0x1.28f5c2p-2f")); /* in bounds of tiles, too */
    source_free(&s);
    make_source("alibi", "dtype=bf16,d=64", &s);
    CHECK(!strstr(text_named(&s, "variant.gen.cuh")->data, "exact"));
    for (int i = 0; i < s.n_texts; i++)
        CHECK(strcmp(s.text[i].name, "common/exact.cuh") != 0);
    source_free(&s);
}

/* exp() is not made exp2() of another argument, nor a quotient a product. */
/* Rows, and dims that inputs name, may be more than 2^24: f32(n) - f32(row) would be 0 at the last but one.
 */
TEST(differences_of_many_rows_are_integers)
{
    struct source s;
    make_source("return rowwise { forward = function(v, at) return v * f32(at.n_rows - at.row) end }", "n=64",
                &s);
    CHECK_HAS(text_named(&s, "variant.gen.cuh")->data, "m_sub((z.rows0 * z.rows1 * z.rows), v.row);");
    source_free(&s);
    make_source("return attention { inputs = { t = tensor('f32', 'places') },\n"
                "  score_mod = function(s, at, x) return s * f32(at.n_places - at.kv) + x.t(0) end }",
                "d=64,places=5", &s);
    CHECK_HAS(text_named(&s, "variant.gen.cuh")->data, "(x.size_places - c.kv);");
    source_free(&s);
}

TEST(what_decides_is_not_rewritten)
{
    struct source s;
    make_source(MASK("gt(exp(f32(at.q - at.kv) / 3.0), 0.1)"), "dtype=bf16,d=64", &s);
    CHECK_HAS(text_named(&s, "variant.gen.cuh")->data, "= exact_div(");
    CHECK_HAS(text_named(&s, "variant.gen.cuh")->data, "= exact_exp(");
    source_free(&s);
}

/* ---- check ------------------------------------------------------------------------------------------ */

/* The proof, or NULL: there is nothing to prove. */
static const struct proof *proof_of(const char *spec, const struct prove_given *given, struct proof *proof)
{
    struct ir *ir = load_spec(spec);
    const int n = prove_with(ir, 1, given, proof);
    ir_free(ir);
    for (int i = 0; i < n; i++)
        if (strcmp(proof[i].what, "positions in f32") == 0)
            return &proof[i];
    return NULL;
}

TEST(the_first_position_that_f32_decides_otherwise_is_named)
{
    static const struct {
        const char *spec;
        const char *note;
    } CASES[] = {
        {MASK("eq(floor(f32(at.q) * 0.29), floor(f32(at.kv) * 0.29))"),
         "floor(f32(at.q) * 0.29): at.q = 100 gives 29 in f32, 28 in double precision; write (at.q * 29) // "
         "100"},
        {MASK("gt(exp(f32(at.q - at.kv)), 0.0)"),
         "gt(exp(f32(at.q - at.kv)), 0): at.q - at.kv = -104 gives false in f32, true in double precision"},
        {MASK("ge(at.q, at.kv) & ge(f32(at.q - at.kv) * 0.29, 29.0)"),
         "at.q - at.kv = 100 gives true in f32, false in double precision"},
        {MASK("eq(i32(f32(at.q) * 0.29) % 2, 0)"), "at.q = 100 gives 29 in f32, 28 in double precision"},
        {MASK("lt((f32(at.kv) * 0.29) % 1.0, 0.5)"), "at.kv = 100 gives 0 in f32, 1 in double precision"},
        {MASK("lt(f32(at.kv) // 0.01, 100.0)"), "at.kv = 1 gives 100 in f32, 99 in double precision"},
        {MASK("lt(f32(at.q) * 0.29, f32(at.kv))"), "in f32, "},
        {SCORE("floor(f32(at.q - at.kv) * 0.29)"), "write ((at.q - at.kv) * 29) // 100"},
        {SCORE("where(ge(f32(at.h) * 0.29, 29.0), 1.0, 0.0)"),
         "at.h = 100 gives true in f32, false in double"},
        {"return attention { inputs = { t = tensor('f32', 'h', 64) }, score_mod = function(s, at, x)\n"
         "  return s + x.t(at.h, clamp(i32(f32(abs(at.q - at.kv)) * 0.29), 0, 63)) end }",
         "at.q - at.kv = 100 gives 29 in f32, 28 in double precision; write (abs(at.q - at.kv) * 29) // 100"},
        {"return rowwise { forward = function(x, at) return x * (1.0 + floor(f32(at.i) * 0.29)) end }",
         "at.i = 100 gives 29 in f32"},
        {"return linear_attention { decay = function(at)\n"
         "  return where(eq(floor(f32(at.pos) * 0.29) % 2.0, 0.0), -0.1, -0.01) end }",
         "at.pos = 100 gives 29 in f32"},
        {"return elementwise { over = { 'n' }, operands = { x = tensor('float') }, results = { y = "
         "tensor('float') },\n"
         "  forward = function(x, at) return x.x * ceil(f32(at.n) * 0.01) end }",
         " in double precision; write -(-at.n // 100)"},
    };
    for (size_t i = (size_t)CHECK_FIRST_TAKEN; i < sizeof CASES / sizeof *CASES; i += LATHE_TEST_EVERY) {
        struct proof proof[PROOF_MAX];
        const struct proof *p = proof_of(CASES[i].spec, NULL, proof);
        CHECK(p != NULL);
        CHECK_HAS(p->note, CASES[i].note);
        CHECK(p->passed && p->warned && p->line > 0);
    }
}

TEST(what_decides_alike_is_not_warned_of)
{
    static const char *const SPECS[] = {
        /* logarithmic buckets, kept off their edges */
        SCORE("0.1 * f32(where(lt(abs(at.q - at.kv), 8), abs(at.q - at.kv), min(15, 8 + i32(2.0 * "
              "log2(f32(max(abs(at.q - at.kv), 8)) / 8.0) + 1e-3))))"),
        /* steps that are hit exactly */
        MASK("eq(floor(f32(at.q) * 0.25), floor(f32(at.kv) / 4.0))"),
        /* of the branch that is not taken, and of pairs that the mask removes */
        SCORE("where(lt(at.q - at.kv, 100), floor(f32(at.q - at.kv) / 4.0), 3.0)"),
        "return attention { mask_mod = function(at) return ge(at.q, at.kv) end,\n"
        "  score_mod = function(s, at) return s + where(gt(exp(f32(at.q - at.kv)), 0.0), 1.0, 0.0) end }",
        MASK("ge(at.q, at.kv) & gt(exp(f32(at.q - at.kv)), 0.0)"),
    };
    for (size_t i = (size_t)CHECK_FIRST_TAKEN; i < sizeof SPECS / sizeof *SPECS; i += LATHE_TEST_EVERY) {
        struct proof proof[PROOF_MAX];
        const struct proof *p = proof_of(SPECS[i], NULL, proof);
        CHECK(p != NULL);
        CHECK(p->passed && !p->warned);
        CHECK_HAS(p->note, "decided as in double precision");
    }
}

/* Data are rounded anyhow; nothing is decided by a slope. */
TEST(specs_without_such_decisions_have_nothing_to_prove)
{
    static const char *const SPECS[] = {
        "causal",
        "alibi",
        "relative_bias",
        "rope",
        "cross_entropy",
        "dropout",
        SCORE("exp(f32(at.q - at.kv) * 0.29)"),
    };
    for (size_t i = (size_t)CHECK_FIRST_TAKEN; i < sizeof SPECS / sizeof *SPECS; i += LATHE_TEST_EVERY) {
        struct proof proof[PROOF_MAX];
        CHECK(proof_of(SPECS[i], NULL, proof) == NULL);
    }
}

/* q, kv; -1: nothing is given, and a sample leads there. */
TEST(positions_are_looked_at_up_to_the_sizes_that_are_given)
{
    static const char LATE[] = MASK("eq(i32(f32(at.kv) * 32.0 + 0.7) % 2, 0)"); /* from 2^23 / 32 on */
    static const int64_t KEYS[] = {4096, 262144, 262145, 1 << 24, -1};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        struct proof proof[PROOF_MAX];
        struct prove_given given;
        prove_given_init(&given);
        given.dim[SYM_Q] = KEYS[i] > 0 ? 1 : -1;
        given.dim[SYM_KV] = KEYS[i];
        given.positions_alone = KEYS[i] > PROVE_KEYS_MAX;
        const struct proof *p = proof_of(LATE, &given, proof);
        CHECK(p != NULL);
        CHECK_EQ(p->warned, KEYS[i] < 0 || KEYS[i] > 262144);
        CHECK_HAS(p->note, p->warned ? "at.kv = 262144 gives 8388609 in f32, 8388608 in double precision"
                                     : "decided as in double precision");
    }
}
