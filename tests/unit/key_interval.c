/*
 * key_interval.c: a mask cut into an interval of keys and a rest, against the mask itself on every pair of a
 * grid; and which masks leave no rest.
 */
#include "check.h"
#include "gen/gen.h"
#include "gen/attention/lower.h"

#include <stdio.h>
#include <string.h>

enum { QUERIES = 24, KEYS = 30 };

struct mask_case {
    const char *mask; /* a body: `return ...` of at */
    bool rest;        /* something must still be asked */
};

static const struct mask_case CASES[] = {
    {"return ge(at.q, at.kv)", false},
    {"return lt(at.kv, at.q)", false},
    {"return le(2 + at.kv - at.q, 5)", false},
    {"return ge(at.q, at.kv) & lt(at.q - at.kv, 7)", false},
    {"return le(abs(at.q - at.kv), 4)", false},
    {"return lt(abs(at.kv - 9), at.q - 3)", false},
    {"return ge(at.q, at.kv) | lt(at.kv, 11)", false},
    {"return gt(at.kv, at.q) | ge(at.kv, 20)", false},
    {"return ~ge(at.q, at.kv)", false},
    {"return ~(ge(at.q, at.kv) | lt(at.kv, 6))", false},
    {"return eq(at.q, at.kv)", false},
    {"return eq(-at.kv, 3 - at.q)", false},
    {"return gt(at.q, 4)", false},
    {"return gt(at.q, 4) | ge(at.q, at.kv)", false},
    {"return ~(gt(at.q, 4) | ge(at.q, at.kv))", false},
    {"return gt(at.q, 4) & eq(at.q % 3, 0) & le(at.kv, at.q)", false},
    {"return le(abs(at.q - at.kv), 2147483647)", false}, /* no limit, as people write it */
    {"return le(at.kv - at.q, 2147483647)", false},
    {"return lt(at.q - at.kv, 2147483647) & ge(at.q, at.kv)", false},
    {"return gt(at.kv - at.q, -2147483647)", false},
    {"return lt(at.kv - at.q, -2147483647)", false},
    {"return ge(at.kv + 2147483000, at.q + 2147483000)", false},
    {"return eq(at.q // 8, at.kv // 8)", true},
    {"return ge(at.q, at.kv) & eq(at.kv % 3, 0)", true},
    {"return ge(at.q, at.kv) & ne(at.kv, 5) & ge(at.kv, 2)", true},
    {"return le(abs(at.q - at.kv), 4) | lt(at.kv, 3)", true},
    {"return le(at.q, at.kv) | lt(at.kv, 3)", true},
    {"return le(2 * at.kv, at.q)", true},
    {"return lt(0.5 * at.kv, 3.0)", true},
    {"return ge(at.q, at.kv) & lt(sin(0.3 * at.q), 0.5)", true}, /* no warp that loads asks for a sine */
    {"return ~lt(cos(0.3 * at.q), 0.5)", true},
    {"return ge(at.q, at.kv) | lt(sin(0.3 * at.q), 0.5)", true},
    {"return le(at.kv, at.q + i32(floor(9.0 * sin(0.3 * at.q))))", true},
    {"return gt(at.q, 9) & ge(at.q, at.kv) | le(at.q, 9) & le(at.q, at.kv)", true},
};

static struct ir *cut(const char *mask)
{
    char text[256];
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    lathe_error err;
    snprintf(text, sizeof text, "return attention { mask_mod = function(at) %s end }", mask);
    struct ir *ir = spec_load("mask.lua", text, strlen(text), &diag);
    if (!ir)
        fprintf(stderr, "%s\n", diag.entry[0].text);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,d=64", &problem, &err), LATHE_OK);
    struct ir *w = NULL;
    CHECK_EQ(attention_lower_forward(ir, &sig, &problem, &w), LATHE_OK);
    ir_free(ir);
    CHECK(w != NULL);
    key_interval_pass(w);
    CHECK(!w->failed);
    return w;
}

static double value_at(struct eval_env *env, int root)
{
    CHECK(eval_run(env, &root, 1));
    return env->value[root][0];
}

TEST(interval_and_rest_are_the_mask)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct ir *w = cut(CASES[i].mask);
        CHECK_EQ(w->lowered.keys_left.n_roots > 0, CASES[i].rest);
        for (int pair = 0; pair < QUERIES * KEYS; pair++) {
            const double kv = pair % KEYS;
            struct eval_env env = {.ir = w, .axis = SPAN_KV, .n = 1};
            env.at[AT_Q] = pair / KEYS - 2;
            env.at_axis[AT_KV] = &kv;
            const bool in =
                kv >= value_at(&env, w->lowered.key_interval.root[0]) &&
                kv <= value_at(&env, w->lowered.key_interval.root[1]) &&
                (!w->lowered.keys_left.n_roots || value_at(&env, w->lowered.keys_left.root[0]) != 0);
            if (in != (value_at(&env, w->mask.root[0]) != 0))
                fprintf(stderr, "%s: q %g, kv %g\n", CASES[i].mask, env.at[AT_Q], kv);
            CHECK_EQ(in, value_at(&env, w->mask.root[0]) != 0);
            eval_free(&env);
        }
        CHECK(!(w->node[w->lowered.key_interval.root[0]].span & SPAN_KV));
        CHECK(!(w->node[w->lowered.key_interval.root[1]].span & SPAN_KV));
        ir_free(w);
    }
}

TEST(the_rest_is_no_larger_than_it_must_be)
{
    struct ir *w = cut("return ge(at.q, at.kv) & eq(at.kv % 3, 0)");
    CHECK(!ir_depends_on(w, w->lowered.keys_left.root[0], OP_AT, AT_Q)); /* causality is in the interval */
    CHECK(ir_depends_on(w, w->lowered.key_interval.root[1], OP_AT, AT_Q));
    ir_free(w);
}

TEST(a_sine_beside_causality_is_the_rest)
{
    struct ir *w = cut("return ge(at.q, at.kv) & lt(sin(0.3 * at.q), 0.5)");
    CHECK(ir_depends_on(w, w->lowered.key_interval.root[1], OP_AT, AT_Q));
    CHECK(!mask_has_angle(w, w->lowered.key_interval.root[1]));
    CHECK(mask_has_angle(w, w->lowered.keys_left.root[0]));
    ir_free(w);
    w = cut("return lt(sin(0.3 * at.q), 0.5)");
    CHECK(!ir_depends_on(w, w->lowered.key_interval.root[1], OP_AT, AT_Q));
    ir_free(w);
}
