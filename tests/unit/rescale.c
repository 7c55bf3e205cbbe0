/*
 * rescale.c: which online functions may keep their running maximum, which may not and why; and that the
 * rewritten functions give the same o and finals as the spec's own, over rows in tiles, in double precision.
 */
#include "check.h"
#include "kernel.h"
#include "loaded.h"
#include "gen/gen.h"
#include "gen/attention/lower.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E4M3 "bf16,q=f8e4m3,k=f8e4m3,v=f8e4m3"

/* A spec's text, or a shipped one by name; specialised for a problem of this dtype, d = 64. */
static struct ir *lowered(const char *name, const char *text, const char *dtype, struct ir **spec)
{
    char words[96];
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = spec_load(name, text, text ? strlen(text) : 0, &diag);
    if (!ir)
        fprintf(stderr, "%s: %s\n", name, diag.entry[0].text);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    snprintf(words, sizeof words, "dtype=%s,b=1,h=4,q=37,kv=37,d=64", dtype);
    CHECK_EQ(problem_parse(&sig, words, &problem, &err), LATHE_OK);
    struct ir *w = NULL;
    CHECK_EQ(attention_lower_forward(ir, &sig, &problem, &w), LATHE_OK);
    CHECK(w != NULL);
    rescale_pass(w, problem.dtype[DTYPE_Q]);
    masked_once_pass(w);
    if (spec)
        *spec = ir;
    else
        ir_free(ir);
    return w;
}

static const char *path_name(const struct ir *w)
{
    static const char *const name[] = {"exact", "deferred", "stateless", "bounded", "lazy", "below"};
    return name[w->lowered.rescale.path];
}

static void expect(const char *name, const char *text, const char *dtype, const char *path, const char *why)
{
    struct ir *w = lowered(name, text, dtype, NULL);
    CHECK_STR(path_name(w), path);
    if (why && !strstr(w->lowered.rescale.why, why))
        CHECK_STR(w->lowered.rescale.why, why);
    if (w->lowered.rescale.path == ROWS_LAZY) {
        CHECK_EQ(w->node[w->lowered.rescale.kept.root[0]].phase, 0);
        CHECK(w->lowered.rescale.watch >= 0);
    }
    ir_free(w);
}

TEST(shipped_specs_take_their_paths)
{
    static const char *const LAZY[] = {"full",      "causal",   "alibi",        "sliding_window",
                                       "prefix_lm", "document", "softmax_one",  "sinks",
                                       "rope",      "qk_norm",  "relative_bias"};
    for (size_t i = 0; i < sizeof LAZY / sizeof *LAZY; i++) {
        expect(LAZY[i], NULL, "bf16", "lazy", "nothing bounds the scores");
        expect(LAZY[i], NULL, "f16", "lazy", "nothing bounds the scores");
    }
    for (size_t i = 0; i < sizeof LAZY / sizeof *LAZY; i++)
        if (strcmp(LAZY[i], "rope") != 0 && strcmp(LAZY[i], "qk_norm") != 0)
            expect(LAZY[i], NULL, E4M3, "below", "");
    expect("softcap", NULL, E4M3, "below", "");
    expect("sigmoid", NULL, E4M3, "stateless", "");
    expect("retention", NULL, E4M3, "exact", "no row state is a running maximum");
    expect("sigmoid", NULL, "bf16", "stateless", "");
    expect("relu", NULL, "f16", "stateless", "");
    expect("retention", NULL, "bf16", "deferred", "");
    expect("retention", NULL, "f16", "exact", "no row state is a running maximum"); /* s beyond 65504 */
    expect("softcap", NULL, "bf16", "bounded", "");
    expect("softcap", NULL, "f16", "lazy", "too far apart"); /* 2^-43 is nothing in f16 */
}

/* online_fwd and its epilogue, with the names that the tests change. */
#define ONLINE(states, maximum, scale, weight, next, factor, finals)                                         \
    "return attention { online_func = online_func {\n"                                                       \
    "  online_rowscales = { " states " },\n"                                                                 \
    "  online_fwd = function(s, r)\n"                                                                        \
    "    local m = " maximum "\n"                                                                            \
    "    local a = " scale "\n"                                                                              \
    "    local p = " weight "\n"                                                                             \
    "    return p, { " next " }, a\n"                                                                        \
    "  end,\n"                                                                                               \
    "  online_fwd_epilogue = function(r) return " factor ", { " finals " } end,\n"                           \
    "  forward = function(s, final) return exp(s - final.lse) end } }\n"
#define STATES  "m = -inf, l = 0.0"
#define MAXIMUM "max(r.m, detach(rowmax(s)))"
#define SCALE   "exp(r.m - m)"
#define WEIGHT  "exp(s - m)"
#define NEXT    "m = m, l = r.l * a + rowsum(p)"
#define FACTOR  "1.0 / r.l"
#define LSE     "lse = r.m + log(r.l)"

TEST(made_up_functions_that_qualify)
{
    static const char *const texts[] = {
        ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, FACTOR, LSE),
        /* powers of two throughout */
        ONLINE(STATES, MAXIMUM, "exp2((r.m - m) * 1.4426950408889634)", "exp2((s - m) * 1.4426950408889634)",
               NEXT, FACTOR, LSE),
        /* the first tile told apart by the sum */
        ONLINE(STATES, MAXIMUM, "where(gt(r.l, 0.0), exp(r.m - m), 0.0)", WEIGHT, NEXT, FACTOR, LSE),
        /* a sum of squares beside, for the effective number of keys */
        ONLINE("m = -inf, l = 0.0, l2 = 0.0", MAXIMUM, SCALE, WEIGHT,
               "m = m, l = r.l * a + rowsum(p), l2 = r.l2 * a * a + rowsum(p * p)", FACTOR,
               LSE ", n = r.l * r.l / r.l2"),
        /* softmax one with a state of its own: 1 = exp(0 - 0) joins the sum from the start */
        ONLINE("m = 0.0, l = 1.0", MAXIMUM, SCALE, WEIGHT, NEXT, FACTOR, LSE),
        /* the largest score is kept apart, as a final that does not depend on m */
        ONLINE("m = -inf, l = 0.0, best = -inf", MAXIMUM, SCALE, WEIGHT,
               "m = m, l = r.l * a + rowsum(p), best = max(r.best, rowmax(s))", FACTOR,
               LSE ", best = r.best"),
        /* a factor that scales the sums alike */
        ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, "2.0 / sqrt(r.l * r.l)", LSE),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect("made_up.lua", texts[i], "bf16", "lazy", NULL);
}

TEST(functions_that_only_look_alike_do_not)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, FACTOR, LSE ", top = r.m"),
         "final top depends on the value of m"},
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, "1.0 / max(r.l, 1.0)", LSE),
         "factor of o does not follow exp(m)"},
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, "1.0", LSE), "factor of o does not follow exp(m)"},
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, FACTOR, "lse = log(r.l)"),
         "final lse depends on the value of m"},
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, FACTOR, "lse = 2.0 * r.m + log(r.l)"),
         "final lse depends"},
        {ONLINE(STATES, MAXIMUM, "exp(0.5 * (r.m - m))", WEIGHT, NEXT, FACTOR, LSE), "no sum of weights"},
        {ONLINE(STATES, MAXIMUM, SCALE, "exp(0.5 * (s - m))", NEXT, FACTOR, LSE), "no sum of weights"},
        {ONLINE(STATES, MAXIMUM, SCALE, "exp(2.0 * s - m)", NEXT, FACTOR, LSE), "not exp(score - m)"},
        {ONLINE(STATES, MAXIMUM, SCALE, "exp(s - m) + 0.001", NEXT, FACTOR, LSE), "no sum of weights"},
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, "m = m, l = r.l * a + rowsum(s)", FACTOR, LSE),
         "no sum of weights"},
        {ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, "m = m, l = r.l + rowsum(p)", FACTOR, LSE),
         "no sum of weights"},
        {ONLINE(STATES, MAXIMUM, "2.0 * exp(r.m - m)", WEIGHT, NEXT, FACTOR, LSE), "not exp(old m - new m)"},
        {ONLINE(STATES, "max(r.m, detach(-rowmax(s)))", SCALE, WEIGHT, NEXT, FACTOR, LSE),
         "m is not the maximum"},
        {ONLINE(STATES, "min(r.m, detach(rowmin(s)))", SCALE, WEIGHT, NEXT, FACTOR, LSE), "running maximum"},
        {ONLINE(STATES, "max(r.m, detach(rowmax(s + r.l)))", SCALE, WEIGHT, NEXT, FACTOR, LSE), ""},
        {ONLINE(STATES, MAXIMUM, "where(gt(r.m, -3.0), exp(r.m - m), 0.0)", WEIGHT, NEXT, FACTOR, LSE), ""},
        {ONLINE(STATES, MAXIMUM, SCALE, "where(gt(m, 0.0), exp(s - m), 0.0)", NEXT, FACTOR, LSE), ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect("made_up.lua", cases[i].text, "bf16", "exact", cases[i].why);
}

TEST(bounds_of_scores)
{
    expect("a.lua", "return attention { score_mod = function(s) return 15.0 * tanh(s) end }", "bf16",
           "bounded", "");
    expect("b.lua", "return attention { score_mod = function(s) return 3.0 * tanh(s) + 2.0 end }", "f16",
           "bounded", "");
    expect("c.lua", "return attention { score_mod = function(s) return clamp(s, -20.0, 20.0) end }", "bf16",
           "bounded", "");
    expect("d.lua", "return attention { score_mod = function(s) return 50.0 * tanh(s) end }", "bf16", "lazy",
           "too far apart");
    expect("e.lua", "return attention { score_mod = function(s) return min(s, 20.0) end }", "bf16", "lazy",
           "nothing bounds");
    expect(
        "f.lua",
        "return attention { score_mod = function(s, at) return where(ge(at.q, at.kv), tanh(s), -inf) end }",
        "bf16", "lazy", "nothing bounds");
}

/* Dead pairs are told once where a score of -inf, or a weight of 0, does all that has to be done. */
TEST(dead_pairs_are_told_once_where_that_is_proved)
{
    static const struct {
        const char *name;
        const char *text;
        bool once;
        double dead;
    } cases[] = {
        {"causal", NULL, true, -HUGE_VAL},
        {"alibi", NULL, true, -HUGE_VAL},
        {"relative_bias", NULL, true, -HUGE_VAL},
        {"sinks", NULL, true, -HUGE_VAL},
        {"softcap", NULL, true, 0}, /* bounded: the weight is there in pass 0 */
        {"sigmoid", NULL, true, 0},
        {"relu", NULL, true, 0},
        {"retention", NULL, true, 0}, /* deferred: the weight is there in pass 0 */
        /* exp(-inf - -inf) where a tile has no live pair */
        {"a.lua", ONLINE(STATES, MAXIMUM, SCALE, WEIGHT, NEXT, FACTOR, LSE), false, 0},
        /* the mean score beside: -inf * 0 */
        {"b.lua",
         "local function finite(m) return where(eq(m, -inf), 0.0, m) end\n" ONLINE(
             "m = -inf, l = 0.0, e = 0.0", MAXIMUM, "exp(r.m - finite(m))", "exp(s - finite(m))",
             "m = m, l = r.l * a + rowsum(p), e = r.e * a + rowsum(p * s)", FACTOR, LSE ", mean = r.e / r.l"),
         false, 0},
        {"c.lua",
         "local function finite(m) return where(eq(m, -inf), 0.0, m) end\n" ONLINE(
             "m = -inf, l = 0.0, e = 0.0", MAXIMUM, "exp(r.m - finite(m))", "exp(s - finite(m))",
             "m = m, l = r.l * a + rowsum(p), e = r.e * a * a + rowsum(p * p)", FACTOR,
             LSE ", n = r.l * r.l / r.e"),
         true, -HUGE_VAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ir *w = lowered(cases[i].name, cases[i].text, "bf16", NULL);
        CHECK_EQ(w->lowered.rescale.masked_once, cases[i].once);
        if (cases[i].once)
            CHECK(w->lowered.rescale.dead == cases[i].dead);
        ir_free(w);
    }
}

/* ---- the same numbers --------------------------------------------------------------------------- */

enum { KEYS = 60, TILE = 12 };

struct outcome {
    double o;
    double final[MAX_STATE];
    int raised;     /* times that o was scaled, beyond the first tile */
    double largest; /* of the weights, where they are of e4m3 */
};

static void bind(struct eval_env *env, const struct ir *ir, const double *qk, const double *kv,
                 const double *state, const lathe_arg *input)
{
    memset(env, 0, sizeof *env);
    env->ir = ir;
    env->axis = SPAN_KV;
    env->n = TILE;
    env->at[AT_H] = 2;
    env->at[AT_N_H] = env->at[AT_N_H_KV] = 4;
    env->at[AT_Q] = env->at[AT_ROW] = 30;
    env->at[AT_LEN_Q] = env->at[AT_LEN_KV] = KEYS;
    env->at[AT_D] = env->at[AT_D_V] = 64;
    env->at_axis[AT_KV] = kv;
    env->param[LEAF_QK] = qk;
    for (int k = 0; k < ir->n_states; k++)
        env->param[LEAF_STATE + k] = &state[k];
    for (int i = 0; i < ir->n_inputs; i++)
        env->input[i] = input;
}

/* One row, tile by tile. `kept`: of a lowered spec, every tile after the first as rescale.kept. */
static void run_row(const struct ir *w, const double *qk, const double *v, const lathe_arg *input, bool kept,
                    struct outcome *out)
{
    double state[MAX_STATE];
    double kv[KEYS];
    memset(out, 0, sizeof *out);
    for (int k = 0; k < w->n_states; k++)
        state[k] = w->state[k].init;
    for (int j = 0; j < KEYS; j++)
        kv[j] = j;
    struct eval_env env;
    for (int j0 = 0; j0 < KEYS; j0 += TILE) {
        const struct ir_fn *fn = kept && j0 > 0 ? &w->lowered.rescale.kept : &w->online;
        bind(&env, w, qk + j0, kv + j0, state, input);
        CHECK(eval_run(&env, fn->root, fn->n_roots));
        double scale = env.value[fn->root[1]][0];
        out->raised += j0 > 0 && scale != 1;
        out->o *= scale;
        for (int j = 0; j < TILE; j++) {
            out->o += env.value[fn->root[0]][j] * v[j0 + j];
            out->largest = fmax(out->largest, fabs(env.value[fn->root[0]][j]));
        }
        for (int k = 0; k < w->n_states; k++)
            state[k] = env.value[fn->root[2 + k]][0];
        eval_free(&env);
    }
    bind(&env, w, qk, kv, state, input);
    CHECK(eval_run(&env, w->epilogue.root, w->epilogue.n_roots));
    out->o *= env.value[w->epilogue.root[0]][0];
    for (int i = 0; i < w->n_finals; i++)
        out->final[i] = env.value[w->epilogue.root[1 + i]][0];
    eval_free(&env);
}

/* The spec's own functions on the same products: scale and score_mod put in front of them. */
static struct ir *composed(struct ir *ir)
{
    int qk = ir_param(ir, LEAF_QK, (struct ir_at){0, 0});
    int s = ir_param(ir, LEAF_S, (struct ir_at){0, 0});
    int scaled = ir2(ir, OP_MUL, qk, ir->scale.root[0]);
    if (ir->score.n_roots > 0)
        scaled = ir_substitute(ir, ir->score.root[0], &s, &scaled, 1);
    for (int i = 0; i < ir->online.n_roots; i++)
        ir->online.root[i] = ir_substitute(ir, ir->online.root[i], &s, &scaled, 1);
    return ir;
}

static double draw(void)
{
    return (double)rand() / RAND_MAX * 2 - 1;
}

static void check_row(const struct ir *ir, const struct ir *w, const double *qk, const double *v,
                      const lathe_arg *input, bool kept, int *raised)
{
    struct outcome spec;
    struct outcome low;
    run_row(ir, qk, v, input, false, &spec);
    run_row(w, qk, v, input, kept, &low);
    if (w->lowered.rescale.path == ROWS_BELOW)
        CHECK(low.largest <= 256.0 * (1 + 1e-9)); /* of every tile, and so of the first one */
    CHECK_CLOSE(low.o, spec.o, 1e-9);
    for (int i = 0; i < ir->n_finals; i++)
        CHECK_CLOSE(low.final[i], spec.final[i], 1e-9);
    *raised = low.raised;
}

static void check_rows(const char *name, const char *text, const char *dtype)
{
    static float table[128];
    const int64_t shape[] = {4, 32};
    lathe_arg input = {"input", table, LATHE_F32, 2, shape, NULL};
    struct ir *ir;
    struct ir *w = lowered(name, text, dtype, &ir);
    composed(ir);
    CHECK(w->lowered.rescale.path == ROWS_LAZY || w->lowered.rescale.path == ROWS_BOUNDED ||
          w->lowered.rescale.path == ROWS_DEFERRED || strcmp(dtype, E4M3) == 0);
    srand(5);
    for (int i = 0; i < 128; i++)
        table[i] = (float)draw();
    for (int trial = 0; trial < 30; trial++) {
        double qk[KEYS];
        double v[KEYS];
        double size = trial % 3 == 0 ? 4 : trial % 3 == 1 ? 60 : 500; /* over 8 = sqrt d */
        double slope = trial % 2 ? 8 * 9.0 / TILE : 0;                /* maxima that grow by 9 a tile */
        for (int j = 0; j < KEYS; j++) {
            qk[j] = size * draw() + slope * j;
            v[j] = draw();
        }
        int raised;
        check_row(ir, w, qk, v, &input, false, &raised);
        if (strcmp(dtype, E4M3) == 0)
            continue;
        if (w->lowered.rescale.path != ROWS_LAZY)
            CHECK_EQ(raised, 0);
        else if (size == 4.0)
            CHECK_EQ(raised, slope > 0 ? KEYS / TILE - 1 : 0);
        if (w->lowered.rescale.path == ROWS_LAZY && size == 4.0) {
            check_row(ir, w, qk, v, &input, true, &raised);
            CHECK_EQ(raised, 0);
        }
    }
    ir_free(w);
    ir_free(ir);
}

TEST(the_rewritten_functions_give_the_same_rows)
{
    static const char *const names[] = {"full", "softmax_one", "sinks", "relative_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_rows(names[i], NULL, "bf16");
    check_rows("alibi", NULL, "f16");
}

/* The largest weight of a row is 2^8, but where the row starts from more; others are held by their bounds. */
TEST(weights_in_e4m3_give_the_same_rows)
{
    static const char *const names[] = {"full", "softmax_one", "sinks", "relative_bias", "alibi", "softcap"};
    static const char BOUNDED[] =
        "return attention { online_func = elementwise_weights(function(s) return 3.0 * tanh(s) end) }";
    static const struct {
        const char *name, *text;
        double most; /* of the weights of the spec; 0: nobody knows */
    } held[] = {{"sigmoid", NULL, 1}, {"bounded.lua", BOUNDED, 3}, {"relu", NULL, 0}, {"retention", NULL, 0}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_rows(names[i], NULL, E4M3);
    check_rows("held.lua", BOUNDED, E4M3);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        struct ir *w = lowered(held[i].name, held[i].text, E4M3, NULL);
        const struct ir_node *weight = &w->node[w->online.root[0]];
        CHECK_EQ(w->lowered.rescale.unheld, held[i].most == 0);
        if (held[i].most > 0) {
            CHECK_EQ(weight->op, OP_MUL);
            const double by = fmax(w->node[weight->arg[0]].value, w->node[weight->arg[1]].value);
            CHECK(held[i].most * by > 128 && held[i].most * by <= 256);
        }
        ir_free(w);
    }
}

TEST(bounded_rows_are_the_same)
{
    check_rows("softcap", NULL, "bf16");
    check_rows("shifted.lua", "return attention { score_mod = function(s) return 3.0 * tanh(s) + 2.0 end }",
               "f16");
}

/* ---- normalisers that wait until the end ------------------------------------------------------ */

#define SUMS(weight, next, scale, factor)                                                                    \
    "return attention { online_func = online_func {\n"                                                       \
    "  online_rowscales = { r = 0.5, n = 1.0 },\n"                                                           \
    "  online_fwd = function(s, row)\n"                                                                      \
    "    local r = row.r + rowsum(abs(s))\n"                                                                 \
    "    local n = row.n + rowsum(s * s)\n"                                                                  \
    "    return " weight ", { " next " }, " scale "\n"                                                       \
    "  end,\n"                                                                                               \
    "  online_fwd_epilogue = function(row) return " factor ", { n = row.n } end,\n"                          \
    "  forward = function(s, final) return s / final.n end } }\n"

TEST(normalisers_wait_where_the_product_shows_them)
{
    static const char *const texts[] = {
        SUMS("s / max(r, 1.0)", "r = r, n = n", "max(row.r, 1.0) / max(r, 1.0)", "1.0"),
        SUMS("s * 3.0 / r", "r = r, n = n", "row.r / r", "1.0 + row.n"),
        SUMS("s * abs(s) / (r * n)", "r = r, n = n", "row.r * row.n / (r * n)", "2.0 / row.n"),
        SUMS("r * s", "r = r, n = n", "r / row.r", "1.0 / row.r"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        expect("made_up.lua", texts[i], "bf16", "deferred", "");
        expect("made_up.lua", texts[i], "f16", "exact", NULL);
        check_rows("made_up.lua", texts[i], "bf16");
    }
    check_rows("retention", NULL, "bf16");
}

/* The mean of v with weights of this kind. */
#define MEAN(weight)                                                                                         \
    "return attention { online_func = online_func { online_rowscales = { l = 0.0 },\n"                       \
    "  online_fwd = function(s, r)\n"                                                                        \
    "    local p = " weight "\n"                                                                             \
    "    local l = r.l + rowsum(p)\n"                                                                        \
    "    return p / l, { l = l }, r.l / l end,\n"                                                            \
    "  online_fwd_epilogue = function(r) return 1.0, { l = r.l } end,\n"                                     \
    "  forward = function(s, final) return s / final.l end } }\n"

TEST(normalisers_wait_in_f16_where_weights_are_neither_large_nor_small)
{
    static const char *const held[] = {MEAN("1.5 + tanh(s)"), MEAN("sigmoid(s) + 0.001"),
                                       MEAN("-0.0001 - sigmoid(s)")};
    static const char *const lost[] = {
        MEAN("sigmoid(s)"),           /* 2e-9 at s = -20: nothing in f16, though 1 / n of their sum */
        MEAN("tanh(s)"),              /* of either sign, so of any size */
        MEAN("sigmoid(s) + 0.00001"), /* digits are lost below 2^-14 */
        MEAN("40000.0 - sigmoid(s)"), /* too large */
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        expect("held.lua", held[i], "f16", "deferred", "");
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        expect("lost.lua", lost[i], "f16", "exact", NULL);
        expect("lost.lua", lost[i], "bf16", "deferred", "");
    }
}

TEST(normalisers_do_not_wait_where_the_product_differs)
{
    static const char *const texts[] = {
        SUMS("s / r", "r = r, n = n", "row.r / max(r, 1.0)", "1.0"), /* o has another factor */
        SUMS("s / row.r", "r = r, n = n", "row.r / r", "1.0"),       /* of the old state */
        SUMS("s / r", "r = r, n = n", "1.0", "1.0"),                 /* o is not rescaled */
        SUMS("s / r + 1.0", "r = r, n = n", "row.r / r", "1.0"),     /* no product */
        SUMS("s / rowsum(abs(s))", "r = r, n = n", "1.0", "1.0"),    /* of the tile alone */
        SUMS("s / r", "r = 0.5 * r, n = n", "row.r / r", "1.0"),     /* r is not the next state */
        SUMS("s / r", "r = r, n = n", "2.0 * row.r / r", "1.0"),     /* a constant more */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect("made_up.lua", texts[i], "bf16", "exact", NULL);
}

/* ---- what reaches the kernel -------------------------------------------------------------------- */

static void expect_text(const char *name, const char *problem_text, const char *template_name,
                        const char *part)
{
    struct device device = {.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};
    struct signature sig;
    struct problem problem;
    struct plan plan;
    struct source s;
    lathe_error err;
    snprintf(device.template_name, sizeof device.template_name, "%s", template_name);
    struct ir *ir = load_signed(name, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    CHECK_EQ(plan_of(ir, LATHE_FORWARD, &problem, &device, &plan, &err), LATHE_OK);
    CHECK_EQ(emit_by(ir, LATHE_FORWARD, &problem, &device, &plan, &s, &err), LATHE_OK);
    const char *variant = NULL;
    for (int i = 0; i < s.n_texts; i++)
        if (strcmp(s.text[i].name, "variant.gen.cuh") == 0)
            variant = s.text[i].data;
    CHECK(variant != NULL);
    CHECK_HAS(variant, part);
    source_free(&s);
    ir_free(ir);
}

TEST(steps_that_keep_the_maximum_are_written_where_the_template_takes_them)
{
    static const char D128[] = "dtype=bf16,b=1,h=2,q=64,d=128";
    expect_text("causal", D128, "attention_fwd_sm90", "struct kept {");
    expect_text("causal", D128, "attention_fwd_sm90", "return t.f2 < 0x1p80f && s.s1 > -0x1p120f;");
    expect_text("causal", "dtype=f16,b=1,h=2,q=64,d=128", "attention_fwd_sm90", "< 0x1p14f");
    expect_text("causal", "dtype=bf16,b=1,h=2,q=64,d=256", "attention_fwd_sm90", "KEEPS = false");
    expect_text("causal", D128, "attention_fwd_sm80", "KEEPS = false");
    expect_text("retention", D128, "attention_fwd_sm90", "KEEPS = false");
    expect_text("sigmoid", D128, "attention_fwd_sm90", "RESCALE = false");
    expect_text("sigmoid", D128, "attention_fwd_sm90", "REDUCTIONS = 0");
    expect_text("softcap", D128, "attention_fwd_sm90", "RESCALE = false"); /* and a sum alone */
    expect_text("softcap", D128, "attention_fwd_sm90", "PASSES = 1, REDUCTIONS = 1;");
}
