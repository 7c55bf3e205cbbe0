/*
 * lower.c: the rewritten graph computes what the spec says: online functions on random rows, before and after
 * lowering, in double precision; and the schedule's promises (what an element holds, which sums are lazy).
 */
#include "check.h"
#include "gen/gen.h"
#include "gen/attention/lower.h"
#include "gen/rowwise/pass.h"
#include "gen/lower/terms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 37, DIM = 64 };

static struct problem attention_problem(const struct signature *sig)
{
    struct problem p;
    lathe_error err;
    CHECK_EQ(problem_parse(sig, "dtype=bf16,b=1,h=4,q=37,kv=37,d=64", &p, &err), LATHE_OK);
    return p;
}

static double noise(void)
{
    return (double)rand() / RAND_MAX * 6 - 3;
}

/* Values of a row: at fields, the product and row states; the same for both graphs. */
struct row {
    double qk[KEYS];
    double kv[KEYS];
    double s[KEYS];
    double state[MAX_STATE];
};

static void bind(struct eval_env *env, const struct ir *ir, const struct row *row, const lathe_arg *input)
{
    memset(env, 0, sizeof *env);
    env->ir = ir;
    env->axis = SPAN_KV;
    env->n = KEYS;
    env->at[AT_H] = 2;
    env->at[AT_N_H] = 4;
    env->at[AT_N_H_KV] = 4;
    env->at[AT_Q] = 30;
    env->at[AT_ROW] = 30;
    env->at[AT_LEN_Q] = KEYS;
    env->at[AT_LEN_KV] = KEYS;
    env->at[AT_D] = DIM;
    env->at[AT_D_V] = DIM;
    env->at_axis[AT_KV] = row->kv;
    env->param[LEAF_QK] = row->qk;
    env->param[LEAF_S] = row->s;
    for (int k = 0; k < ir->n_states; k++)
        env->param[LEAF_STATE + k] = &row->state[k];
    for (int i = 0; i < ir->n_inputs; i++)
        env->input[i] = input;
}

/* LEAF_S of the online function: scale * qk, then score_mod. */
static void score(const struct ir *ir, struct row *row, const lathe_arg *input)
{
    struct eval_env env;
    bind(&env, ir, row, input);
    CHECK(eval_run(&env, ir->scale.root, 1));
    for (int j = 0; j < KEYS; j++)
        row->s[j] = row->qk[j] * env.value[ir->scale.root[0]][0];
    if (ir->score.n_roots > 0) {
        double after[KEYS];
        CHECK(eval_run(&env, ir->score.root, 1));
        memcpy(after, env.value[ir->score.root[0]], sizeof after);
        memcpy(row->s, after, sizeof after);
    }
    eval_free(&env);
}

static void compare_roots(struct eval_env *a, const struct ir *ir, struct eval_env *b, const struct ir *w)
{
    for (int i = 0; i < ir->online.n_roots; i++) {
        const double *x = a->value[ir->online.root[i]];
        const double *y = b->value[w->online.root[i]];
        bool x_row = (ir->node[ir->online.root[i]].span & SPAN_KV) != 0;
        bool y_row = (w->node[w->online.root[i]].span & SPAN_KV) != 0;
        for (int j = 0; j < (x_row ? KEYS : 1); j++)
            CHECK_CLOSE(y[y_row ? j : 0], x[j], 1e-12);
    }
}

/* text NULL: the shipped spec of that name. */
static struct ir *load(const char *name, const char *text)
{
    struct diag diag = {0};
    struct ir *ir = spec_load(name, text, text ? strlen(text) : 0, &diag);
    CHECK_STR(diag.n > 0 ? diag.entry[0].text : "", "");
    CHECK(ir != NULL);
    return ir;
}

static void compare(const char *name, const char *text)
{
    static float table[4 * 64];
    const int64_t shape[] = {4, 32};
    const float bias = 0.25f;
    lathe_arg input = {"input", table, LATHE_F32, 2, shape, NULL};
    struct signature sig;
    struct ir *ir = load(name, text);
    if (ir->n_inputs > 0 && ir->input[0].is_scalar)
        input = (lathe_arg){"input", (void *)(uintptr_t)&bias, LATHE_F32, 0, NULL, NULL};
    signature_make(ir, LATHE_FORWARD, &sig);
    struct problem problem = attention_problem(&sig);
    struct ir *w = NULL;
    CHECK_EQ(attention_lower_forward(ir, &sig, &problem, &w), LATHE_OK);
    CHECK(w != NULL);
    srand(3);
    for (int i = 0; i < 128; i++)
        table[i] = (float)noise();
    for (int trial = 0; trial < 20; trial++) {
        struct row row;
        struct eval_env before;
        struct eval_env after;
        for (int j = 0; j < KEYS; j++) {
            row.qk[j] = noise() * (trial % 2 ? 1 : 40);
            row.kv[j] = j;
        }
        for (int k = 0; k < ir->n_states; k++)
            row.state[k] = trial == 0 ? ir->state[k].init : fabs(noise());
        score(ir, &row, &input);
        bind(&before, ir, &row, &input);
        bind(&after, w, &row, &input);
        CHECK(eval_run(&before, ir->online.root, ir->online.n_roots));
        CHECK(eval_run(&after, w->online.root, w->online.n_roots));
        compare_roots(&before, ir, &after, w);
        eval_free(&before);
        eval_free(&after);
    }
    ir_free(w);
    ir_free(ir);
}

TEST(lowering_keeps_the_values)
{
    static const char *const specs[] = {"full",    "alibi", "softcap",   "relative_bias",
                                        "sigmoid", "relu",  "retention", "softmax_one"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        compare(specs[i], NULL);
}

static void schedule_text(const char *name, const char *text, struct schedule *s, struct ir **w)
{
    struct signature sig;
    struct ir *ir = load(name, text);
    signature_make(ir, LATHE_FORWARD, &sig);
    struct problem problem = attention_problem(&sig);
    CHECK_EQ(attention_lower_forward(ir, &sig, &problem, w), LATHE_OK);
    CHECK(*w != NULL);
    CHECK(schedule_online(*w, s));
    ir_free(ir);
}

static void schedule_of(const char *name, struct schedule *s, struct ir **w)
{
    schedule_text(name, NULL, s, w);
}

static int state_number(const struct ir *w, const char *name)
{
    for (int k = 0; k < w->n_states; k++)
        if (strcmp(w->state[k].name, name) == 0)
            return k;
    return -1;
}

TEST(softmax_has_two_passes_and_a_lazy_sum)
{
    struct schedule s;
    struct ir *w;
    schedule_of("causal", &s, &w);
    CHECK_EQ(s.reductions.passes, 2);
    CHECK_EQ(s.reductions.n, 2);
    CHECK_EQ(s.store_pass, 1);
    CHECK(!s.lazy[0] && s.lazy[1]);
    CHECK(s.state_lazy[state_number(w, "l")] && !s.state_lazy[state_number(w, "m")]);
    CHECK_EQ(w->node[s.carry].op, OP_PARAM); /* scale went into the exponent */
    CHECK_EQ(s.diag, -1);
    ir_free(w);
}

TEST(softcap_keeps_the_tanh)
{
    struct schedule s;
    struct ir *w;
    schedule_of("softcap", &s, &w);
    CHECK_EQ(w->node[s.carry].op, OP_TANH); /* the factor 30 went into the exponent */
    ir_free(w);
}

TEST(retention_needs_its_sum_at_once)
{
    struct schedule s;
    struct ir *w;
    schedule_of("retention", &s, &w);
    CHECK_EQ(s.reductions.n, 1);
    CHECK(!s.lazy[0]);
    CHECK(s.diag >= 0); /* gamma^(q - kv) */
    ir_free(w);
}

TEST(sigmoid_has_one_pass)
{
    struct schedule s;
    struct ir *w;
    schedule_of("sigmoid", &s, &w);
    CHECK_EQ(s.reductions.passes, 1);
    CHECK_EQ(s.reductions.n, 0);
    CHECK_EQ(s.store_pass, 0);
    ir_free(w);
}

TEST(tables_by_distance_are_shared_along_diagonals)
{
    struct schedule s;
    struct ir *w;
    schedule_of("relative_bias", &s, &w);
    CHECK(s.diag >= 0);
    CHECK(ir_depends_on(w, s.diag, OP_LOAD, -1)); /* the table's value over the scale */
    ir_free(w);
    schedule_of("alibi", &s, &w);
    CHECK_EQ(s.diag, -1); /* cheaper per element */
    ir_free(w);
}

/* How many nodes of that op pairs compute, each for itself. */
static int left_to_pairs(const struct ir *w, const struct schedule *s, enum ir_op op)
{
    bool *reached = calloc((size_t)w->n_nodes, sizeof *reached);
    int n = 0;
    CHECK(reached != NULL);
    ir_mark_until(w, w->online.root, w->online.n_roots, &s->diag, 1, reached);
    for (int i = 0; i < w->n_nodes; i++)
        n += reached[i] && i != s->diag && w->node[i].op == op;
    free(reached);
    return n;
}

TEST(terms_of_the_distance_are_one_value)
{
#define SCORE(formula)                                                                                       \
    "return attention { mask_mod = causal, score_mod = function(s, at)\n"                                    \
    "  local d = f32(abs(at.q - at.kv))\n  return " formula "\nend }\n"
    static const struct {
        const char *text;
        int left; /* powers that pairs compute */
    } CASE[] = {
        {SCORE("s - 0.1 * (1.0 + d) ^ 0.7 + (2.0 + d) ^ 0.3"), 0},
        {SCORE("-((1.0 + d) ^ 0.7 - (s - 0.5 * d)) - s * 0.5 + (2.0 + d) ^ 0.3"), 0},
        {SCORE("tanh(s - (1.0 + d) ^ 0.7) + (2.0 + d) ^ 0.3"), 1}, /* another value of the distance */
        {SCORE("s * (1.0 + d) ^ 0.7 + (2.0 + d) ^ 0.3"), 1},
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct schedule s;
        struct ir *w;
        compare("powers.lua", CASE[i].text);
        schedule_text("powers.lua", CASE[i].text, &s, &w);
        CHECK(s.diag >= 0);
        CHECK_EQ(left_to_pairs(w, &s, OP_POW), CASE[i].left);
        ir_free(w);
    }
}

static bool uses(const struct ir *w, int root, enum ir_op op)
{
    return ir_depends_on(w, root, op, -1);
}

TEST(float_rows_subtract_before_the_exponential)
{
    static const char *const dtypes[] = {"f32", "bf16"};
    for (int i = 0; i < 2; i++) {
        struct diag diag = {0};
        struct signature sig;
        struct problem problem;
        lathe_error err;
        char text[64];
        struct ir *ir = spec_load("softmax", NULL, 0, &diag);
        CHECK(ir != NULL);
        signature_make(ir, LATHE_FORWARD, &sig);
        snprintf(text, sizeof text, "dtype=%s,rows=4,n=100", dtypes[i]);
        CHECK_EQ(problem_parse(&sig, text, &problem, &err), LATHE_OK);
        struct row_pass pass;
        char why[ROW_WHY_BYTES];
        CHECK_EQ(row_pass_make(ir, LATHE_FORWARD, &sig, &problem, &pass, why), LATHE_OK);
        const struct ir *w = pass.ir;
        CHECK_EQ(uses(w, w->row.root[0], OP_EXP), i == 0);
        CHECK_EQ(uses(w, w->row.root[0], OP_EXP2), i == 1);
        row_pass_free(&pass);
        ir_free(ir);
    }
}

TEST(rows_of_large_values_subtract_before_the_exponential)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct ir *ir = spec_load("log_softmax", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,rows=4,n=100", &problem, &err), LATHE_OK);
    struct row_pass pass;
    char why[ROW_WHY_BYTES];
    CHECK_EQ(row_pass_make(ir, LATHE_FORWARD, &sig, &problem, &pass, why), LATHE_OK);
    const struct ir *w = pass.ir;
    for (int i = 0; i < w->n_nodes; i++) {
        if (w->node[i].op != OP_EXP2)
            continue;
        const struct ir_node *product = &w->node[w->node[i].arg[0]];
        CHECK_EQ(product->op, OP_MUL);
        CHECK(w->node[product->arg[0]].op == OP_SUB || w->node[product->arg[1]].op == OP_SUB);
    }
    row_pass_free(&pass);
    ir_free(ir);
}

/* -1e30 * log2 e - round(-1e30 * log2 e) is 6e21, whose power of 2 is no weight. */
TEST(mask_values_subtract_before_the_exponential)
{
    static const char *const texts[] = {
        "return attention { score_mod = function(s, at) return where(ge(at.q, at.kv), s, -1e30) end }",
        "return attention { score_mod = function(s, at) return s + where(ge(at.q, at.kv), 0.0, -3.4e38) end "
        "}"};
    for (int i = 0; i < 2; i++) {
        struct diag diag = {0};
        struct signature sig;
        struct ir *ir = spec_load("mask.lua", texts[i], strlen(texts[i]), &diag);
        CHECK(ir != NULL);
        signature_make(ir, LATHE_FORWARD, &sig);
        struct problem problem = attention_problem(&sig);
        struct ir *w = NULL;
        CHECK_EQ(attention_lower_forward(ir, &sig, &problem, &w), LATHE_OK);
        CHECK(w != NULL);
        const struct ir_node *weight = &w->node[w->online.root[0]];
        CHECK_EQ(weight->op, OP_EXP2);
        const struct ir_node *product = &w->node[weight->arg[0]];
        CHECK_EQ(product->op, OP_MUL);
        CHECK(w->node[product->arg[0]].op == OP_SUB || w->node[product->arg[1]].op == OP_SUB);
        ir_free(w);
        ir_free(ir);
    }
}

TEST(a_tiny_scale_divides_nothing)
{
    static const char text[] =
        "return attention { scale = 1.2e-38, score_mod = function(s, at) return s + 1e3 * at.kv end }";
    struct diag diag = {0};
    struct signature sig;
    struct ir *ir = spec_load("tiny.lua", text, strlen(text), &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    struct problem problem = attention_problem(&sig);
    struct ir *w = NULL;
    CHECK_EQ(attention_lower_forward(ir, &sig, &problem, &w), LATHE_OK);
    CHECK(w != NULL);
    bool used[4096] = {false};
    CHECK(w->n_nodes <= 4096);
    ir_mark(w, w->online.root, w->online.n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        CHECK(!used[i] || w->node[i].op != OP_CONST || !(fabs(w->node[i].value) > 3.4e38) ||
              isinf(w->node[i].value));
    ir_free(w);
    ir_free(ir);
}
