/*
 * prove.c: good specs pass every proof, and specs with one deliberate mistake fail the proof that is about
 * it, with the line of the mistake. Specs are texts of this file; lines are counted from 1.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 7 };

struct verdicts {
    struct ir *ir;
    int n;
    struct proof proof[PROOF_MAX];
};

static void run(struct verdicts *v, const char *text)
{
    v->ir = load_spec(text);
    v->n = prove(v->ir, SEED, v->proof);
}

static const struct proof *find(const struct verdicts *v, const char *what)
{
    int i = 0;
    while (i < v->n && strcmp(v->proof[i].what, what) != 0)
        i++;
    CHECK(i < v->n);
    return &v->proof[i];
}

static void expect_all_pass(const char *text)
{
    struct verdicts v;
    run(&v, text);
    for (int i = 0; i < v.n; i++) {
        if (!v.proof[i].passed)
            CHECK_STR(v.proof[i].note, "");
        CHECK(v.proof[i].passed);
        CHECK(v.proof[i].error <= v.proof[i].bound);
    }
    ir_free(v.ir);
}

/* That proof fails, at that line, with a note that has that part. */
static void expect_failure(const char *text, const char *what, int line, const char *part)
{
    struct verdicts v;
    run(&v, text);
    const struct proof *p = find(&v, what);
    CHECK(p->applies);
    CHECK(!p->passed);
    CHECK_HAS(p->note, part);
    CHECK_EQ(p->line, line);
    ir_free(v.ir);
}

static void expect_pass(const char *text, const char *what)
{
    struct verdicts v;
    run(&v, text);
    CHECK_STR(find(&v, what)->note, "");
    CHECK(find(&v, what)->passed);
    ir_free(v.ir);
}

/* ---- right specs ------------------------------------------------------------------------------- */

TEST(softmax_passes_and_everything_applies)
{
    struct verdicts v;
    run(&v, "return attention { mask_mod = causal }");
    CHECK_EQ(v.n, 9);
    for (int i = 0; i < v.n; i++) {
        CHECK_EQ(v.proof[i].applies,
                 strcmp(v.proof[i].what, "backward = derived") != 0); /* the spec gives none */
        CHECK(v.proof[i].passed);
    }
    CHECK_HAS(find(&v, "mask bounds")->note, "decides");
    CHECK(find(&v, "gradients")->error > 0); /* differences are never exact: something was compared */
    ir_free(v.ir);
}

TEST(every_slot_with_gradients)
{
    expect_all_pass(
        "local function turn(lo, hi, at)\n"
        "  local t = at.pos * exp2(-2.0 * at.i / at.d)\n"
        "  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)\n"
        "end\n"
        "return attention {\n"
        "  inputs = { gain = tensor('f32', 'd', { grad = true }), slope = tensor('f32', 'h', { grad = true "
        "}),\n"
        "             temperature = scalar('f32', { grad = true, default = 0.7 }) },\n"
        "  query_mod = half(turn),\n"
        "  key_mod = interleaved(turn),\n"
        "  value_mod = function(v, at, x) return v * tanh(v) end,\n"
        "  scale = function(at, x) return x.temperature * rsqrt(at.d) end,\n"
        "  score_mod = function(s, at, x) return 5.0 * tanh(s / 5.0) - x.slope(at.h) * (at.q - at.kv) end,\n"
        "  output_mod = function(o, at, x) return o * rsqrt(dimsum(o * o) / at.d_v + 1e-3) end,\n"
        "  mask_mod = causal,\n"
        "}\n");
}

TEST(rowwise_has_values_and_gradients)
{
    struct verdicts v;
    run(&v, "return rowwise { inputs = { w = tensor('float', 'n', { grad = true }) },\n"
            "  forward = function(x, at, p)\n"
            "    local r = rsqrt(rowsum(x * x) / at.n + 1e-5)\n"
            "    return x * r * p.w(at.i), { rstd = r } end }");
    CHECK_EQ(v.n, 2);
    CHECK_STR(v.proof[0].what, "f32 = double");
    CHECK_STR(v.proof[1].what, "gradients");
    CHECK(v.proof[0].passed && v.proof[1].passed);
    ir_free(v.ir);
}

/* Lower-precision inputs are proved in double as well. */
TEST(half_inputs_are_widened)
{
    expect_all_pass("return attention { inputs = { bias = tensor('bf16', 'h', { grad = true }) },\n"
                    "  score_mod = function(s, at, x) return s * exp(x.bias(at.h)) end }");
}

TEST(the_spec_stays_as_it_was)
{
    struct ir *ir = load_spec("return attention { mask_mod = causal }");
    struct proof first[PROOF_MAX];
    struct proof second[PROOF_MAX];
    int n_nodes = ir->n_nodes;
    int n = prove(ir, SEED, first);
    CHECK_EQ(ir->n_nodes, n_nodes);
    CHECK_EQ(prove(ir, SEED, second), n);
    for (int i = 0; i < n; i++) {
        CHECK(first[i].error == second[i].error);
        CHECK_STR(first[i].note, second[i].note);
    }
    ir_free(ir);
}

/* One in four, under sanitizers in sixteen, which the commit draws: cli/specs.sh proves all of them, by
   `lathe check --strict`. */
TEST_TIMEOUT(shipped_specs_pass, 120)
{
    enum { EVERY = 4 * LATHE_TEST_EVERY };
    int n_specs = check_drawn(EVERY);
    int n_proved = 0;
    for (const struct embedded *e = embedded_files; e->name; e++) {
        if (strncmp(e->name, "specs/", 6) != 0 || strcmp(e->name, "specs/prelude.lua") == 0)
            continue;
        if (n_specs++ % EVERY != 0)
            continue;
        n_proved++;
        struct diag diag = {0};
        struct ir *ir = spec_load(e->name, e->data, e->size, &diag);
        CHECK(ir != NULL);
        struct proof proof[PROOF_MAX];
        int n = prove(ir, SEED, proof);
        for (int i = 0; i < n; i++) {
            if (!proof[i].passed)
                CHECK_STR(proof[i].note, e->name);
            CHECK(proof[i].passed);
        }
        ir_free(ir);
    }
    CHECK(n_proved > 80 / EVERY);
}

/* ---- wrong online functions -------------------------------------------------------------------- */

/* softmax with holes: %1 the new l, %2 o_scale, %3 forward, %4 the merged lse. */
static void softmax_text(char *out, size_t size, const char *l, const char *o_scale, const char *forward,
                         const char *merged)
{
    snprintf(out, size,
             "local wrong = online_func {\n"
             "  online_rowscales = { m = -inf, l = 0.0 },\n"
             "  online_fwd = function(s, r)\n"
             "    local m = max(r.m, detach(rowmax(s)))\n"
             "    local a = exp(r.m - m)\n"
             "    local p = exp(s - m)\n"
             "    local l = %s\n"
             "    local o_scale = %s\n"
             "    return p, { m = m, l = l }, o_scale\n"
             "  end,\n"
             "  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,\n"
             "  forward = function(s, final)\n"
             "    return %s\n"
             "  end,\n"
             "  combine = function(part)\n"
             "    local m = splitmax(part.m)\n"
             "    local a = %s\n"
             "    return a, { m = m, l = splitsum(part.l * a) }\n"
             "  end,\n"
             "}\n"
             "return attention { mask_mod = causal, online_func = wrong }\n",
             l, o_scale, forward, merged);
}

static const char *const L = "r.l * a + rowsum(p)";
static const char *const WEIGHT = "exp(s - final.lse)";
static const char *const MERGED = "exp(part.m - finite(m))";

TEST(the_frame_of_the_wrong_ones_is_right)
{
    char text[2048];
    softmax_text(text, sizeof text, L, "a", WEIGHT, MERGED);
    expect_all_pass(text);
}

TEST(sum_that_is_not_rescaled)
{
    char text[2048];
    softmax_text(text, sizeof text, "r.l + rowsum(p)", "a", WEIGHT, MERGED);
    expect_failure(text, "online = whole row", 7, "row value l");
    expect_pass(text, "forward = whole row"); /* the row as one tile is right */
}

TEST(output_that_is_not_rescaled)
{
    char text[2048];
    softmax_text(text, sizeof text, L, "exp(0.5 * (r.m - m))", WEIGHT, MERGED);
    expect_failure(text, "online = whole row", 8, "o_scale");
}

TEST(forward_that_differs_from_online)
{
    char text[2048];
    softmax_text(text, sizeof text, L, "a", "exp(s - 1.001 * final.lse)", MERGED);
    expect_failure(text, "forward = whole row", 13, "by forward");
    expect_pass(text, "online = whole row");
}

TEST(combine_in_the_wrong_base)
{
    char text[2048];
    softmax_text(text, sizeof text, L, "a", WEIGHT, "exp2(part.m - finite(m))");
    expect_failure(text, "combine = whole", 18, "row value l of combine");
    expect_pass(text, "online = whole row");
}

TEST(combine_that_adds_up_as_if_parts_were_alike)
{
    expect_failure(
        "return attention { online_func = online_func {\n"
        "  online_rowscales = { n = 0.0 },\n"
        "  online_fwd = function(s, r) return sigmoid(s), { n = r.n + rowsum(sigmoid(s)) }, 1.0 end,\n"
        "  online_fwd_epilogue = function(r) return 1.0 / r.n, { n = r.n } end,\n"
        "  forward = function(s, f) return sigmoid(s) / f.n end,\n"
        "  combine = function(f)\n"
        "    local n = splitsum(f.n)\n"
        "    return f.n / n, { n = n } end,\n"
        "} }\n",
        "combine = whole", 8, "the factor of o of combine");
}

/* ---- gradients --------------------------------------------------------------------------------- */

/* A gradient of 1 beside values of 1e6 and more: differences are rounding. */
TEST(differences_of_large_numbers_are_left_out)
{
    static const char *const factor[] = {"1e6", "1e8"};
    for (size_t i = 0; i < 2; i++) {
        struct verdicts v;
        char text[256];
        snprintf(text, sizeof text,
                 "return rowwise { inputs = { w = tensor('f32', 'n', { grad = true }) },\n"
                 "forward = function(x, at, p) return x * %s + p.w(at.i) end }",
                 factor[i]);
        run(&v, text);
        const struct proof *p = find(&v, "gradients");
        CHECK_STR(p->passed ? "" : p->note, "");
        CHECK_HAS(p->note, "differences left out: of numbers too large");
        ir_free(v.ir);
    }
}

/* They say nothing where there is nothing else. */
TEST(large_numbers_alone_prove_nothing)
{
    expect_failure("return rowwise {\n"
                   "forward = function(x) return x + 1e11 * detach(x) end }",
                   "gradients", 2, "tell nothing");
}

/* Scores of 1e6 and more are right to their last digit, which is a part of 1e-9 of a weight: no mistake of
   the spec. */
TEST(rounding_of_large_scores_is_no_mistake)
{
    static const char *const score[] = {"s * 1e6", "s + 1e7", "s + 1e10", "tanh(s) * 1e8"};
    for (size_t i = 0; i < sizeof score / sizeof score[0]; i++) {
        struct verdicts v;
        char text[256];
        snprintf(text, sizeof text,
                 "return attention {\n  mask_mod = causal,\n  score_mod = function(s) return %s end }",
                 score[i]);
        run(&v, text);
        for (int k = 0; k < v.n; k++)
            if (!v.proof[k].passed)
                CHECK_HAS(v.proof[k].note, "tell nothing");
        CHECK(find(&v, "online = whole row")->passed);
        CHECK(find(&v, "forward = whole row")->passed);
        CHECK(find(&v, "combine = whole")->passed);
        ir_free(v.ir);
    }
}

TEST(scores_that_are_noise_tell_nothing)
{
    expect_failure("return attention {\n"
                   "  score_mod = function(s) return s + 1e30 end }",
                   "forward = whole row", 2, "tell nothing");
}

/* A score of -1e30 has no weight, so its rounding is no excuse. */
TEST(masks_by_large_scores_excuse_nothing)
{
    static const char good[] = "return attention {\n"
                               "  score_mod = function(s, at) return where(ge(at.q, at.kv), s, -1e30) end }";
    expect_all_pass(good);
    expect_failure("return attention {\n"
                   "  score_mod = function(s, at) return where(ge(at.q, at.kv), s, -1e30) end,\n"
                   "  online_func = online_func {\n"
                   "    online_rowscales = { m = -inf, l = 0.0 },\n"
                   "    online_fwd = function(s, r)\n"
                   "      local m = max(r.m, rowmax(s))\n"
                   "      local p = exp(s - m)\n"
                   "      return p, { m = m, l = r.l * exp(r.m - m) + rowsum(p) }, exp(r.m - m) end,\n"
                   "    online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,\n"
                   "    forward = function(s, f) return exp(s - f.lse) * 1.0000001 end } }",
                   "forward = whole row", 10, "by forward");
}

/* In tiles and as a whole alike: no fault of online_fwd. */
TEST(weights_that_overflow_are_no_difference)
{
    expect_failure("return attention {\n"
                   "  score_mod = function(s) return s * s end,\n"
                   "  online_func = elementwise_weights(function(s) return exp2(s) end) }",
                   "online = whole row", 3, "overflows where scores have deviation 40");
}

/* No overflow: the operation is named, with its line. */
TEST(operations_that_make_nan_are_named)
{
    expect_failure("return attention {\n"
                   "  score_mod = function(s)\n"
                   "    return 2.0 *\n"
                   "      sqrt(s) end }",
                   "online = whole row", 4, "sqrt of -");
}

/* What is masked in an output, and not in a score: the others have their gradients. */
TEST(infinite_outputs_have_no_gradient)
{
    expect_pass("return rowwise { forward = function(v, at)\n"
                "  return v * v + where(eq(at.i, 0), -inf, 0.0) end }",
                "gradients");
    expect_pass("return elementwise { over = { 'n' }, operands = { a = tensor('float') },\n"
                "  results = { y = tensor('float'), z = tensor('float') },\n"
                "  forward = function(v, at)\n"
                "    return { y = where(eq(at.n, 1), inf, v.a), z = tanh(v.a) } end }",
                "gradients");
    expect_failure("return rowwise { forward = function(v, at)\n"
                   "  return v * v + 0.0 * where(eq(at.i, 0), -inf, 0.0) end }",
                   "gradients", 2, "nan");
}

TEST(function_full_of_corners)
{
    expect_failure("return attention {\n"
                   "  score_mod = function(s)\n"
                   "    return floor(s * 1e5) * 1e-5 end }\n",
                   "gradients", 3, "");
}

TEST(detach_that_does_not_cancel_is_mentioned)
{
    struct verdicts v;
    run(&v, "return attention { score_mod = function(s) return s * detach(tanh(s)) end }");
    CHECK(find(&v, "gradients")->passed);
    CHECK_HAS(find(&v, "gradients")->note, "detach() changes the gradient by ");
    double with = 0, without = 0, apart = 0;
    const char *numbers = strstr(find(&v, "gradients")->note, "it is ");
    CHECK(numbers && sscanf(numbers, "it is %lf, without detach() %lf, %lf", &with, &without, &apart) == 3);
    CHECK(fabs(apart - fabs(with - without) / fmax(fabs(with), fabs(without))) < 0.05 * apart ||
          apart < fabs(with - without) / fabs(without)); /* of the largest entry, where that is more */
    ir_free(v.ir);
}

TEST(detach_that_cancels_is_not)
{
    struct verdicts v;
    run(&v, "return rowwise { forward = function(x)\n"
            "  local e = exp(x - detach(rowmax(x)))\n"
            "  return e / rowsum(e) end }");
    CHECK(find(&v, "gradients")->passed);
    CHECK_STR(find(&v, "gradients")->note, "");
    ir_free(v.ir);
}

TEST(read_outside_a_tensor)
{
    expect_failure("return attention { inputs = { table = tensor('f32', 'h', 4, { grad = true }) },\n"
                   "  score_mod = function(s, at, x)\n"
                   "    return s + x.table(at.h, at.kv) end }\n",
                   "gradients", 3, "outside 0..3");
}

/* ---- a spec's own backward ----------------------------------------------------------------------- */

#define SOFTMAX_WITH(backward)                                                                               \
    "return attention { mask_mod = causal, score_mod = function(s) return 3.0 * tanh(s) end,\n"              \
    "  online_func = online_func { online_rowscales = { m = -inf, l = 0.0 },\n"                              \
    "  online_fwd = function(s, r)\n"                                                                        \
    "    local m = max(r.m, detach(rowmax(s)))\n"                                                            \
    "    local p = exp(s - m)\n"                                                                             \
    "    return p, { m = m, l = r.l * exp(r.m - m) + rowsum(p) }, exp(r.m - m)\n"                            \
    "  end,\n"                                                                                               \
    "  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,\n"                  \
    "  forward = function(s, final) return exp(s - final.lse) end,\n"                                        \
    "  backward = function(dw, w, s, delta, final) return " backward " end } }\n"

TEST(own_backward_is_compared)
{
    expect_all_pass(SOFTMAX_WITH("w * (dw - delta)"));
    expect_all_pass(SOFTMAX_WITH("exp(s - final.lse) * dw - w * delta"));
    expect_failure(SOFTMAX_WITH("w * dw"), "backward = derived", 10, "derived");
    expect_failure(SOFTMAX_WITH("w * (1.0 - w) * (dw - delta)"), "backward = derived", 10, "derived");
}

/* A test of integers against a constant may hold anywhere: a weight that it drops has a gradient by lse. */
TEST(weights_that_integers_drop_have_gradients)
{
    expect_pass("return attention { online_func = softmax_with_dropout(\n"
                "  function(at) return ne(at.kv % 3, 0) end, function(at) return 2.0 end) }",
                "backward in kernels");
    expect_pass(
        "return attention { inputs = { keep = tensor('u8', 'b', 'h', 'q', 'kv') }, online_func =\n"
        "  softmax_with_dropout(function(at, x) return ne(x.keep(at.b, at.h, at.row, at.kv), 0) end,\n"
        "  function(at) return 2.0 end) }",
        "backward in kernels");
}

#define LEAKY(score, test)                                                                                   \
    "return attention { score_mod = function(s) return " score " end,\n"                                     \
    "  online_func = online_func { online_rowscales = { m = -inf, l = 0.0, n = 0.0 },\n"                     \
    "  online_fwd = function(s, r)\n"                                                                        \
    "    local m, n = max(r.m, detach(rowmax(s))), max(r.n, detach(rowmax(relu(s))))\n"                      \
    "    local p = exp(s - m)\n"                                                                             \
    "    return p, { m = m, l = r.l * exp(r.m - m) + rowsum(p), n = n }, exp(r.m - m)\n"                     \
    "  end,\n"                                                                                               \
    "  online_fwd_epilogue = function(r)\n"                                                                  \
    "    return 1.0 / r.l, { lse = r.m + log(r.l), n = r.n } end,\n"                                         \
    "  forward = function(s, final)\n"                                                                       \
    "    return where(" test ", exp(s - 2.0 * final.lse), exp(s - final.lse)) end } }\n"

/* What is 0 in many pairs or rows, as relu of a score, is tested for both answers: each has a gradient by
 * lse. */
TEST(weights_of_both_sides_of_a_test_have_gradients)
{
    expect_pass(LEAKY("s", "eq(relu(s), 0.0)"), "backward in kernels");
    expect_pass(LEAKY("s", "le(0.0, s - abs(s))"), "backward in kernels");
    expect_pass(LEAKY("s", "ne(floor(s), 0.0)"), "backward in kernels");
    expect_pass(LEAKY("relu(s)", "eq(s, 0.0)"), "backward in kernels");
    expect_pass(LEAKY("s - 1.0", "eq(final.n, 0.0)"), "backward in kernels");
    expect_pass(LEAKY("s", "eq(where(lt(s, 0.0), -inf, s), -inf)"), "backward in kernels");
}

#define EMPTY(finals, weight)                                                                                \
    "return attention { mask_mod = causal,\n"                                                                \
    "  inputs = { g = tensor('f32', 'b', 'h', 'q', { grad = true }) },\n"                                    \
    "  online_func = online_func { online_rowscales = softmax_states, online_fwd = softmax_step,\n"          \
    "  online_fwd_epilogue = function(r, at, x)\n"                                                           \
    "    local c, lse = x.g(at.b, at.h, at.row), finite(r.m) + log_of_sum(r.l)\n"                            \
    "    return inverse(r.l) * " weight ", { " finals " } end,\n"                                            \
    "  forward = function(s, final) return exp(s - finite(final.lse)) * " weight " end } }\n"

/* Beside a final that is -inf there may be one of inputs. */
TEST(finals_of_rows_without_live_pairs_have_gradients)
{
    expect_pass(EMPTY("lse = lse, c = c", "1.0"), "gradients");
    expect_pass(EMPTY("lse = lse, c = sin(c), d = c * c", "1.0"), "gradients");
}

/* What online_fwd reads by key is of a pair, in its weights and in its states. */
TEST(states_of_inputs_by_key_have_gradients)
{
    expect_pass(
        "return attention { inputs = { g = tensor('f32', 'b', 'kv', { grad = true }) },\n"
        "  online_func = online_func { online_rowscales = { m = -inf, l = 0.0, n = 0.0 },\n"
        "  online_fwd = function(s, r, at, x)\n"
        "    local g, m = x.g(at.b, at.kv), max(r.m, detach(rowmax(s)))\n"
        "    local a, p = exp(r.m - finite(m)), exp(s - finite(m))\n"
        "    return p, { m = m, l = r.l * a + rowsum(p * (0.3 + sigmoid(g))), n = r.n + rowsum(g) }, a end,\n"
        "  online_fwd_epilogue = function(r)\n"
        "    return inverse(r.l), { lse = finite(r.m) + log_of_sum(r.l), n = r.n } end,\n"
        "  forward = softmax_weight } }",
        "backward in kernels");
}

/* ---- masks ------------------------------------------------------------------------------------- */

TEST(bounds_that_lie_are_caught)
{
    struct ir *ir = load_spec("local function near(at)\n"
                              "  return ge(at.q, at.kv) end\n"
                              "return attention { mask_mod = near }\n");
    struct proof proof[PROOF_MAX];
    for (int lie = 0; lie < 2; lie++) { /* "no pair is live", "every pair is live" */
        ir->bounds.root[0] = ir_const(ir, lie, TYPE_BOOL);
        ir->bounds.root[1] = ir_const(ir, lie, TYPE_BOOL);
        int n = prove(ir, SEED, proof);
        CHECK_STR(proof[n - 2].what, "mask bounds");
        CHECK(!proof[n - 2].passed);
        CHECK_EQ(proof[n - 2].line, 2);
        CHECK_HAS(proof[n - 2].note, lie ? "called whole" : "called empty");
    }
    ir_free(ir);
}

TEST(no_mask_has_nothing_to_prove)
{
    struct verdicts v;
    run(&v, "return attention {}");
    CHECK(!find(&v, "mask bounds")->applies);
    CHECK(find(&v, "online = whole row")->applies);
    ir_free(v.ir);
}
