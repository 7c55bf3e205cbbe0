/*
 * derive.c: the derivation of gradients. Random specs, drawn from the op table with a fixed seed, against
 * finite differences and against what kernels compute; and what the backward formulas of attention need and
 * refuse.
 */
#include "check.h"
#include "gen/attention/lower.h"
#include "gen/attention/backward.h"
#include "gen/gen.h"

#include <stdio.h>
#include <string.h>

/* ---- how each op is written where its operands may be anything ------------------------------------------
 */

/* A and B stand for operands, V for the score, x or v. NULL: not of this kind. In pairs, per row (rowwise) or
 * per element of a mod. */
struct pattern {
    const char *anywhere, *rowwise, *mod;
};
static const struct pattern PATTERNS[OP_COUNT] = {
    [OP_CONST] = {"0.7", NULL, NULL},
    [OP_AT] = {"0.1 * f32(at.h)", "0.1 * f32(at.i)", "0.05 * f32(at.pos + at.i)"},
    [OP_PARAM] = {"s", "x", "v"},
    [OP_SCALAR] = {"x.one", NULL, "x.one"},
    [OP_LOAD] = {"x.head(at.h)", NULL, "x.dim(at.i)"},
    [OP_ADD] = {"(A + B)", NULL, NULL},
    [OP_SUB] = {"(A - B)", NULL, NULL},
    [OP_MUL] = {"(tanh(A) * B)", NULL, NULL},
    [OP_DIV] = {"(A / (1.5 + sin(B)))", NULL, NULL},
    [OP_IDIV] = {"(A + (B // 4.0))", NULL, NULL},
    [OP_MOD] = {"(A + 0.1 * (B % 4.0))", NULL, NULL},
    [OP_POW] = {"((abs(A) + 0.5) ^ tanh(B))", NULL, NULL},
    [OP_NEG] = {"(-A)", NULL, NULL},
    [OP_EXP] = {"exp(sin(A))", NULL, NULL},
    [OP_EXP2] = {"exp2(tanh(A))", NULL, NULL},
    [OP_LOG] = {"log(1.5 + cos(A))", NULL, NULL},
    [OP_LOG2] = {"log2(1.5 + sin(A))", NULL, NULL},
    [OP_SQRT] = {"sqrt(1.5 + sin(A))", NULL, NULL},
    [OP_RSQRT] = {"rsqrt(1.5 + cos(A))", NULL, NULL},
    [OP_SIN] = {"sin(A)", NULL, NULL},
    [OP_COS] = {"cos(A)", NULL, NULL},
    [OP_TANH] = {"tanh(A)", NULL, NULL},
    [OP_SIGMOID] = {"sigmoid(A)", NULL, NULL},
    [OP_SILU] = {"silu(A)", NULL, NULL},
    [OP_RELU] = {"relu(A + 3.0)", NULL, NULL},
    [OP_ERF] = {"erf(A)", NULL, NULL},
    [OP_NORMAL] = {"normal_cdf(A)", NULL, NULL},
    [OP_GELU] = {"gelu(A)", NULL, NULL},
    [OP_ABS] = {"abs(A + 3.0)", NULL, NULL},
    [OP_MIN] = {"min(A, B + 4.0)", NULL, NULL},
    [OP_MAX] = {"max(A, B - 4.0)", NULL, NULL},
    [OP_CLAMP] = {"clamp(A, -4.0, 3.0)", NULL, NULL},
    [OP_FLOOR] = {"(A + 0.01 * floor(0.1 * B))", NULL, NULL},
    [OP_CEIL] = {"(A - 0.01 * ceil(0.1 * B))", NULL, NULL},
    [OP_LT] = {"where(lt(V + A, -3.0), A, B)", NULL, NULL},
    [OP_LE] = {"where(le(at.h, 1), A, B)", "where(le(at.i, 5), A, B)", "where(le(at.i, 3), A, B)"},
    [OP_GT] = {"where(gt(V + A, 4.0), B, A)", NULL, NULL},
    [OP_GE] = {"where(ge(V - A, -4.0), A, sin(B))", NULL, NULL},
    [OP_EQ] = {"where(eq(V * A, 0.5), B, A)", NULL, NULL},
    [OP_NE] = {"where(ne(V * A, 0.5), A, B)", NULL, NULL},
    [OP_WHERE] = {"where(gt(at.h, 0), A, B)", "where(gt(at.i, 3), A, B)", "where(gt(at.i, 3), A, B)"},
    [OP_AND] = {"where(lt(V, 3.0) & gt(V + A, -3.0), A, B)", NULL, NULL},
    [OP_OR] = {"where(lt(V, -3.0) | gt(V + B, 4.0), A, B)", NULL, NULL},
    [OP_NOT] = {"where(~gt(V + A, 3.0), A, B)", NULL, NULL},
    [OP_XOR] = {"where(lt(V, 3.0) ~ gt(V + A, -3.0), A, B)", NULL, NULL},
    [OP_SHL] = {"(A + 0.01 * ((at.h + 3) << 2))", "(A + 0.01 * ((at.i + 3) << 2))",
                "(A + 0.01 * ((at.i + 3) << 2))"},
    [OP_SHR] = {"(A + 0.1 * (at.h >> 1))", "(A + 0.1 * (at.i >> 1))", "(A + 0.1 * (at.i >> 1))"},
    [OP_RANDOM] = {"(A + random(7, at.b, at.h, at.row, at.kv) * sin(B))",
                   "(A + random(7, 0, 0, at.row, at.i) * sin(B))",
                   "(A + random(7, at.b, 3, at.pos, at.i) * sin(B))"},
    [OP_F32] = {"(A + 0.1 * f32(at.h))", "(A + 0.1 * f32(at.i))", "(A + 0.1 * f32(at.i))"},
    [OP_I32] = {"(A + 0.01 * f32(i32(0.1 * B)))", NULL, NULL},
    [OP_DETACH] = {"(A + detach(B))", NULL, NULL},
    [OP_ROWMAX] = {NULL, "(A + 0.1 * rowmax(V + B))", NULL},
    [OP_ROWMIN] = {NULL, "(A + 0.1 * rowmin(V - B))", NULL},
    [OP_ROWSUM] = {NULL, "(A + 0.1 * rowsum(V * sin(B)))", NULL},
    [OP_CUMSUM] = {NULL, "(A + 0.1 * cumsum(V * sin(B), where(eq(at.i % 4, 2), 1.0, 0.0)))", NULL},
    [OP_REVCUMSUM] = {NULL, "(A + 0.1 * revcumsum(V * sin(B), 0.0))", NULL},
    [OP_LOGCUMSUMEXP] = {NULL, "logcumsumexp(A - sin(B), where(eq(at.i % 4, 2), 1.0, 0.0))", NULL},
    [OP_REVLOGCUMSUMEXP] = {NULL, "(A + 0.1 * revlogcumsumexp(V * sin(B), 0.0))", NULL},
    [OP_RANK] = {NULL, "(A + 0.01 * rank(V))", NULL},
    [OP_PLACED] = {NULL, "(A + placed(sin(B), rank(V)))", NULL},
    [OP_TAKEN] = {NULL, "(A + 0.5 * taken(B * tanh(A), rank(V)))", NULL},
    [OP_CUMEXPSUM] = {NULL, "(A + 0.1 * cumexpsum(A, sin(B), sin(V), where(eq(at.i % 4, 2), 1.0, 0.0)))",
                      NULL},
    [OP_REVCUMEXPSUM] = {NULL, "(A + 0.1 * revcumexpsum(sin(A), sin(V * B), sin(B), 0.0))", NULL},
    [OP_DIMMAX] = {NULL, NULL, "(A + 0.1 * dimmax(V + B))"},
    [OP_DIMSUM] = {NULL, NULL, "(A + 0.1 * dimsum(V * sin(B)))"},
};

TEST(every_op_with_a_gradient_is_drawn)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const struct pattern *p = &PATTERNS[op];
        const bool of_splits = op == OP_SPLITMAX || op == OP_SPLITSUM; /* not on the way of a gradient */
        if (!p->anywhere && !p->rowwise && !p->mod && !of_splits)
            CHECK_STR(ir_op_name(op), "an op without a pattern");
    }
}

/* ---- random text
 * ------------------------------------------------------------------------------------------- */

enum where { IN_PAIR, IN_ROW, IN_MOD };

struct writer {
    uint64_t random;
    int passes; /* of specs that need one over each row before the others */
    char text[16384];
};

static int below(struct writer *w, int n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((w->random >> 33) % (uint64_t)n);
}

static const char *pattern_of(enum where where, int op)
{
    const struct pattern *p = &PATTERNS[op];
    const char *special = where == IN_ROW ? p->rowwise : where == IN_MOD ? p->mod : NULL;
    if (special || (where == IN_ROW && (op == OP_SCALAR || op == OP_LOAD)))
        return special;
    return p->anywhere;
}

static const char *leaf_of(struct writer *w, enum where where)
{
    static const char *const PAIR[] = {"s",
                                       "s",
                                       "x.one",
                                       "x.head(at.h)",
                                       "x.query(at.b, at.row)",
                                       "x.key(at.h, at.kv)",
                                       "x.near(at.h_kv, clamp(at.q - at.kv, 0, 15))",
                                       "x.pair(at.b, at.h, at.row, at.kv)",
                                       "0.1 * (at.q - at.kv)",
                                       "0.7",
                                       "1.3"};
    static const char *const ROW[] = {"x", "x", "x", "g.one", "g.gain(at.i)", "0.7", "0.1 * at.i"};
    static const char *const MOD[] = {"v", "v", "v", "x.one", "x.dim(at.i)", "0.7", "0.05 * at.pos"};
    if (where == IN_PAIR)
        return PAIR[below(w, (int)(sizeof PAIR / sizeof *PAIR))];
    return where == IN_ROW ? ROW[below(w, (int)(sizeof ROW / sizeof *ROW))]
                           : MOD[below(w, (int)(sizeof MOD / sizeof *MOD))];
}

/* Put an expression for every A and B, `rounds` times; what then is left becomes leaves. */
static void grow(struct writer *w, enum where where, int rounds, char *text, size_t size)
{
    char next[4096];
    for (int round = 0; round <= rounds; round++) {
        size_t n = 0;
        next[0] = 0;
        for (const char *c = text; *c && n + 200 < sizeof next; c++) {
            if (*c == 'V') {
                next[n++] = where == IN_PAIR ? 's' : where == IN_ROW ? 'x' : 'v';
                next[n] = 0;
                continue;
            }
            if (*c != 'A' && *c != 'B') {
                next[n++] = *c;
                next[n] = 0;
                continue;
            }
            const char *with = NULL;
            while (round < rounds && !with)
                with = pattern_of(where, below(w, OP_COUNT));
            n += (size_t)snprintf(next + n, sizeof next - n, "%s", with ? with : leaf_of(w, where));
        }
        snprintf(text, size, "%s", next);
        if (strlen(text) > 1500)
            rounds = round + 1 < rounds ? round + 1 : rounds;
    }
}

static void add(struct writer *w, const char *before, enum where where, int rounds, const char *after)
{
    char body[4096] = "A";
    grow(w, where, rounds, body, sizeof body);
    const size_t used = strlen(w->text);
    snprintf(w->text + used, sizeof w->text - used, "%s%s%s", before, body, after);
}

static void say(struct writer *w, const char *text)
{
    const size_t used = strlen(w->text);
    snprintf(w->text + used, sizeof w->text - used, "%s", text);
}

/* Weights that one function of the score gives, divided by their sum: a final with a gradient of its own. */
static const char NORMALISED[] =
    "  online_func = online_func { online_rowscales = { l = 0.0 },\n"
    "    online_fwd = function(s, r) local p = weigh(s) return p, { l = r.l + rowsum(p) }, 1.0 end,\n"
    "    online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,\n"
    "    forward = function(s, final) return weigh(s) / final.l end },\n";

/* Weights of two parts, of which the factor of the row is not seen: a pass over the row adds up what the
 * final is worth. */
static const char IN_PARTS[] =
    "  online_func = online_func { online_rowscales = { l = 0.0 },\n"
    "    online_fwd = function(s, r) return weigh(s) + 0.1 * s, { l = r.l + rowsum(weigh(s)) }, 1.0 end,\n"
    "    online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,\n"
    "    forward = function(s, final) return weigh(s) / final.l + 0.1 * s / final.l end },\n";

static void write_attention(struct writer *w)
{
    static const char *const INPUT[] = {"one = scalar('f32'",
                                        "head = tensor('f32', 'h'",
                                        "query = tensor('f32', 'b', 'q'",
                                        "key = tensor('f32', 'h', 'kv'",
                                        "near = tensor('f32', 'h_kv', 16",
                                        "pair = tensor('f32', 'b', 'h', 'q', 'kv'",
                                        "dim = tensor('f32', 256"};
    w->text[0] = 0;
    say(w, "local function weigh(s) return 0.2 + sigmoid(s) end\nreturn attention {\n  inputs = {\n");
    for (size_t i = 0; i < sizeof INPUT / sizeof *INPUT; i++) {
        say(w, INPUT[i]);
        say(w, below(w, 2) ? ", { grad = true }),\n" : "),\n");
    }
    say(w, "  },\n");
    if (below(w, 2))
        say(w, "  mask_mod = causal,\n");
    if (below(w, 3) == 0)
        say(w, "  scale = function(at, x) return rsqrt(at.d) * exp(0.1 * x.head(at.h)) end,\n");
    switch (below(w, 5)) {
    case 0:
        say(w, "  online_func = elementwise_weights(sigmoid),\n");
        break;
    case 1:
        say(w, NORMALISED);
        break;
    case 3:
        say(w, IN_PARTS);
        w->passes++;
        break;
    case 2:
        say(w, "  online_func = softmax_with_sink(function(at, x) return x.head(at.h) end),\n");
        break;
    default:
        break;
    }
    if (below(w, 3) == 0)
        add(w, "  query_mod = function(v, at, x) return v + tanh(", IN_MOD, 2, ") end,\n");
    if (below(w, 3) == 0)
        add(w, "  value_mod = function(v, at, x) return v + tanh(", IN_MOD, 2, ") end,\n");
    if (below(w, 4) == 0)
        add(w, "  output_mod = function(v, at, x) return v + tanh(", IN_MOD, 2, ") end,\n");
    add(w, "  score_mod = function(s, at, x) return s + 2.0 * tanh(0.5 * ", IN_PAIR, 4, ") end }\n");
}

static void write_rowwise(struct writer *w)
{
    w->text[0] = 0;
    say(w, "return rowwise { inputs = { one = scalar('f32', { grad = true }), gain = tensor('f32', 'n', { "
           "grad = true }) },\n");
    add(w, "  forward = function(x, at, g) return ", IN_ROW, 4, " end }\n");
}

/* ---- against differences, and against kernels
 * --------------------------------------------------------------- */

/* A corner of the function, or a value out of range, is the draw's fault; a gradient that differs is not. */
static bool is_about_the_draw(const struct proof *p)
{
    return strstr(p->note, "corner") || strstr(p->note, "nan") || strstr(p->note, "inf");
}

struct tally {
    int gradients, kernels, refused, passes;
};

static void check_text(const struct writer *w, unsigned seed, struct tally *t)
{
    struct diag diag = {0};
    struct proof proof[PROOF_MAX];
    struct ir *ir = spec_load("drawn.lua", w->text, strlen(w->text), &diag);
    if (!ir) {
        printf("%s\n", w->text);
        CHECK_STR(diag.entry[0].text, "");
    }
    const int n = prove(ir, seed, proof);
    for (int i = 0; i < n; i++) {
        const bool gradients = strcmp(proof[i].what, "gradients") == 0;
        const bool kernels = strcmp(proof[i].what, "backward in kernels") == 0;
        if (!gradients && !kernels)
            continue;
        if (!proof[i].passed && !is_about_the_draw(&proof[i])) {
            printf("%s\n", w->text);
            CHECK_STR(proof[i].note, "");
        }
        t->gradients += gradients && proof[i].passed;
        t->kernels += kernels && proof[i].passed && proof[i].applies;
        t->refused += kernels && !proof[i].applies;
    }
    ir_free(ir);
}

static void draw(void (*write)(struct writer *w), int count, unsigned first, struct tally *t)
{
    for (int i = 0; i < count; i++) {
        struct writer w = {.random = first + 977u * (unsigned)i};
        write(&w);
        check_text(&w, 1u + (unsigned)i, t);
        t->passes += w.passes;
    }
}

TEST_TIMEOUT(random_attention, 180) /* 8 s of its own; beside a build, a minute */
{
    enum { COUNT = 8 / LATHE_TEST_EVERY };
    struct tally t = {0, 0, 0, 0};
    draw(write_attention, COUNT, 20261, &t);
    CHECK(t.gradients >= COUNT * 3 / 4);
    CHECK_EQ(t.kernels, COUNT);
    CHECK_EQ(t.refused, 0);
    CHECK(t.passes > 0);
}

TEST(random_rows)
{
    struct tally t = {0, 0, 0, 0};
    draw(write_rowwise, 60 / LATHE_TEST_EVERY, 4711, &t);
    CHECK(t.gradients >= 45 / LATHE_TEST_EVERY);
}

/* ---- what attention's formulas need
 * --------------------------------------------------------------------------- */

struct derived {
    struct ir *ir;
    struct ir *w;
    struct backward b;
    char why[WHY_BYTES];
};

static void derive(struct derived *d, const char *text, const char *problem_words)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    lathe_error err;
    const bool shipped = strchr(text, ' ') == NULL;
    d->ir = shipped ? spec_load(text, NULL, 0, &diag) : spec_load("test.lua", text, strlen(text), &diag);
    CHECK_STR(diag.n > 0 ? diag.entry[0].text : "", "");
    signature_make(d->ir, LATHE_BACKWARD, &sig);
    CHECK_EQ(problem_parse(&sig, problem_words, &problem, &err), LATHE_OK);
    d->why[0] = 0;
    d->w = NULL;
    (void)attention_lower_backward(d->ir, &sig, &problem, &d->w, &d->b, d->why);
}

static void forget(struct derived *d)
{
    if (d->w)
        ir_free(d->w);
    ir_free(d->ir);
}

#define SIZES "dtype=bf16,b=1,h=2,q=64,d=64"

TEST(states_of_shipped_specs_are_their_finals)
{
    static const char *const NAME[] = {"causal",        "softcap", "sinks",   "softmax_one",
                                       "relative_bias", "qk_norm", "sigmoid", "relu"};
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++) {
        struct derived d;
        derive(&d, NAME[i], SIZES);
        CHECK_STR(d.why[0] && !d.w ? d.why : "", "");
        for (int k = 0; k < MAX_STATE; k++)
            CHECK(!d.b.state[k]);
        forget(&d);
    }
}

TEST(softmax_reads_two_floats_of_a_row_and_a_norm)
{
    struct derived d;
    struct signature sig;
    struct problem problem;
    lathe_error err;
    struct pair_needs pair = {.diag = true, .more = true};
    derive(&d, "causal", SIZES ",dlse=f32");
    signature_make(d.ir, LATHE_BACKWARD, &sig);
    CHECK_EQ(problem_parse(&sig, SIZES ",dlse=f32", &problem, &err), LATHE_OK);
    CHECK_EQ(backward_measure(d.w, &sig, &problem, &d.b, &pair), LATHE_OK);
    CHECK_EQ(pair.rows, 2);
    CHECK(pair.norm); /* of rows with a large lse alone */
    CHECK(!pair.diag && !pair.more);
    CHECK(d.b.delta && d.b.final[0] && d.b.seed[0]);
    CHECK(!backward_runs_forward(d.ir, &sig, &problem, &d.b));
    CHECK_EQ(problem_parse(&sig, SIZES ",o=none", &problem, &err), LATHE_OK);
    CHECK(backward_runs_forward(d.ir, &sig, &problem, &d.b));
    forget(&d);
}

/* How a final is taken apart: as its value almost everywhere is, or with its guard around both parts. */
enum apart { NOT_APART, LOOKED_THROUGH, GUARDED };

/* Of a softmax whose lse is `lse` of m and z, for weights `p`. */
static enum apart taken_apart(const char *p, const char *lse)
{
    char text[1024];
    struct derived d;
    snprintf(text, sizeof text,
             "return attention { online_func = online_func { online_rowscales = { m = -inf, z = 0.0 },\n"
             "  online_fwd = function(s, r)\n"
             "    local m = max(r.m, detach(rowmax(s)))\n"
             "    local a = exp(r.m - finite(m))\n"
             "    local p = %s\n"
             "    return p, { m = m, z = r.z * a + rowsum(p) }, a end,\n"
             "  online_fwd_epilogue = function(r) return inverse(r.z), { lse = %s } end,\n"
             "  forward = function(s, final) return exp(s - finite(final.lse)) end } }",
             p, lse);
    derive(&d, text, SIZES);
    CHECK(d.w != NULL);
    const struct final_split *split = &d.b.split[0];
    const bool guarded = split->found && d.w->node[split->high].op == OP_WHERE;
    if (split->found)
        CHECK_EQ(d.w->node[split->norm].op == OP_WHERE, guarded);
    const enum apart apart = !split->found ? NOT_APART : guarded ? GUARDED : LOOKED_THROUGH;
    forget(&d);
    return apart;
}

/* A sum of exponentials is 0 or more, so that gt(z, 0) asks no more than ne(z, 0). */
TEST(guards_around_a_final_are_looked_through)
{
    static const char *const GUARD[] = {"where(ne(r.z, 0.0), r.m + log(r.z), -inf)",
                                        "where(gt(r.z, 0.0), r.m + log(r.z), -inf)",
                                        "where(lt(0.0, r.z), r.m + log(r.z), -inf)",
                                        "where(le(r.z, 0.0), -inf, r.m + log(r.z))",
                                        "where(~le(r.z, 0.0), r.m + log(r.z), -inf)",
                                        "where(gt(r.m, -inf), r.m + log(r.z), -inf)",
                                        "where(le(r.m, -inf), -inf, r.m + log(r.z))",
                                        "where(gt(r.z, 0.0), r.m + log(where(gt(r.z, 0.0), r.z, 1.0)), 0.0)",
                                        "r.m + where(gt(r.z, 0.0), log(r.z), -inf)"};
    for (size_t i = 0; i < sizeof GUARD / sizeof *GUARD; i++)
        CHECK_STR(taken_apart("exp(s - finite(m))", GUARD[i]) == LOOKED_THROUGH ? "" : GUARD[i], "");
}

/* Here both sides are taken by data: the choice stays, around m and around 1 / z. */
TEST(choices_that_data_make_stay)
{
    static const char *const CHOICE[] = {"where(gt(r.z, 1.0), r.m + log(r.z), -inf)",
                                         "where(lt(r.z, 0.0), r.m + log(r.z), -inf)",
                                         "where(gt(r.m, 0.0), r.m + log(r.z), -inf)"};
    for (size_t i = 0; i < sizeof CHOICE / sizeof *CHOICE; i++)
        CHECK_STR(taken_apart("exp(s - finite(m))", CHOICE[i]) == GUARDED ? "" : CHOICE[i], "");
    CHECK_EQ(taken_apart("s * exp(s - finite(m))", "where(gt(r.z, 0.0), r.m + log(r.z), 0.0)"), GUARDED);
    CHECK_EQ(taken_apart("exp(s - finite(m))", "max(r.m + log(r.z), -1e38)"), NOT_APART);
}

/* With the weight known, the slope of a capped score still wants the score; a weight that decays does not. */
TEST(slopes_want_more_than_the_weight)
{
    static const char *const NAME[] = {"softcap", "sigmoid", "relu", "alibi", "retention"};
    static const bool MORE[] = {true, true, true, false, false};
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++) {
        struct derived d;
        struct signature sig;
        struct problem problem;
        struct pair_needs pair = {.more = !MORE[i]};
        lathe_error err;
        derive(&d, NAME[i], SIZES);
        signature_make(d.ir, LATHE_BACKWARD, &sig);
        CHECK_EQ(problem_parse(&sig, SIZES, &problem, &err), LATHE_OK);
        CHECK_EQ(backward_measure(d.w, &sig, &problem, &d.b, &pair), LATHE_OK);
        CHECK_STR(pair.more == MORE[i] ? "" : NAME[i], "");
        forget(&d);
    }
}

TEST(weights_without_finals_need_no_delta)
{
    struct derived d;
    derive(&d, "sigmoid", SIZES);
    CHECK(!d.b.delta && !d.b.final[0]);
    CHECK_EQ(d.b.pair.n, 1);
    CHECK_EQ(d.b.pair.item[0].form, ADDRESS_HEAD);
    forget(&d);
}

TEST(sites_are_told_by_their_addresses)
{
    struct derived d;
    derive(&d,
           "return attention { inputs = { a = scalar('f32', { grad = true }), b = tensor('f32', 'h', { grad "
           "= true }),\n"
           "    c = tensor('f32', 'b', 'q', { grad = true }), e = tensor('f32', 'kv', { grad = true }), f = "
           "tensor('f32', 9, { grad = "
           "true }),\n"
           "    g = tensor('f32', 'q', 'kv', { grad = true }), sink = tensor('f32', 'h', { grad = true }), "
           "gain = tensor('f32', 'd', { "
           "grad = true }) },\n"
           "  query_mod = function(v, at, x) return v * x.gain(at.i) end,\n"
           "  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end),\n"
           "  score_mod = function(s, at, x) return s + x.a * x.b(at.h) * x.c(at.b, at.row) + x.e(at.kv) + "
           "x.f(clamp(at.kv - at.q, 0, "
           "8)) + x.g(at.row, at.kv) end }",
           SIZES);
    static const int FORM[] = {ADDRESS_HEAD,   ADDRESS_HEAD,     ADDRESS_ROW,
                               ADDRESS_COLUMN, ADDRESS_DIAGONAL, ADDRESS_ELEMENT};
    CHECK_STR(d.w ? "" : d.why, "");
    CHECK_EQ(d.b.pair.n, 6);
    for (int i = 0; i < 6; i++) {
        const int input = d.w->node[d.b.pair.item[i].leaf].index;
        CHECK_EQ(d.b.pair.item[i].form, FORM[input]);
    }
    CHECK_EQ(d.b.row.n, 1);
    CHECK_EQ(d.b.stage[MOD_QUERY][0].site.n, 1);
    CHECK_EQ(d.b.stage[MOD_QUERY][0].site.item[0].form, ADDRESS_DIM);
    forget(&d);
}

TEST(gradients_of_finals_may_need_states)
{
    struct derived d;
    derive(&d, "retention", SIZES);
    CHECK(!d.b.state[0] && d.b.final[0]);
    forget(&d);
    derive(&d, "retention",
           SIZES ",dn=f32"); /* on which side of 1 the sum of max(sum |s|, 1) is, it does not say */
    CHECK(d.b.state[0]);
    CHECK_EQ(d.w->n_finals, 2);
    forget(&d);
}

TEST(what_is_no_multiple_of_delta_has_a_pass_of_its_own)
{
    struct derived d;
    derive(&d,
           "return attention { online_func = online_func { online_rowscales = { l = 0.0 },\n"
           "  online_fwd = function(s, r) return s, { l = r.l + rowsum(s * s) }, 1.0 end,\n"
           "  online_fwd_epilogue = function(r) return 1.0, { l = r.l } end,\n"
           "  forward = function(s, final) return s + tanh(final.l) end } }",
           SIZES);
    CHECK(d.w != NULL); /* the sum of dw alone, times 1 - tanh(l)^2 of the row */
    CHECK_EQ(d.b.n_sums, 1);
    CHECK(d.b.final[0] && !d.b.sum_final[0]);
    CHECK(ir_depends_on(d.w, d.b.sum[0], OP_PARAM, LEAF_DW));
    CHECK(ir_depends_on(d.w, d.b.ds, OP_PARAM, LEAF_ROWSUM));
    forget(&d);
    derive(&d, "causal", SIZES);
    CHECK_EQ(d.b.n_sums, 0);
    forget(&d);
}

TEST(ties_of_a_maximum_are_refused)
{
    struct derived d;
    derive(&d,
           "return attention { online_func = online_func { online_rowscales = { m = -inf, l = 0.0 },\n"
           "  online_fwd = function(s, r)\n"
           "    local m = max(r.m, rowmax(s))\n"
           "    local p = exp(s - m)\n"
           "    return p, { m = m, l = r.l * exp(r.m - m) + rowsum(p) }, exp(r.m - m) end,\n"
           "  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,\n"
           "  forward = function(s, final) return exp(s - final.lse) end } }",
           SIZES);
    CHECK(d.w == NULL);
    CHECK_HAS(d.why, "detach");
    forget(&d);
}

TEST(sums_without_an_order_are_bounded)
{
    struct derived d;
    struct backward_wanted wish = {.input = {true}};
    derive(&d,
           "return attention { inputs = { bias = tensor('f32', 'b', 'h', 'q', 'kv', { grad = true }) },\n"
           "  score_mod = function(s, at, x) return s + x.bias(at.b, at.h, at.row, at.kv) end }",
           SIZES);
    CHECK(!backward_shares_elements(d.w, &d.b, 0)); /* each pair has its own element */
    CHECK(backward_sums_fit(d.w, &d.b, &wish, d.why));
    forget(&d);
    derive(&d,
           "return attention { inputs = { bias = tensor('f32', 'h', 'q', 'kv', { grad = true }) },\n"
           "  score_mod = function(s, at, x) return s + x.bias(at.h, at.row, at.kv) end }",
           SIZES);
    CHECK(backward_shares_elements(d.w, &d.b, 0)); /* every batch adds to it */
    CHECK(!backward_sums_fit(d.w, &d.b, &wish, d.why));
    CHECK_HAS(d.why, "'bias'");
    forget(&d);
    derive(&d,
           "return attention { inputs = { bias = tensor('f32', 'b', 'h', 'q', 'kv', { grad = true }) },\n"
           "  score_mod = function(s, at, x) return s + x.bias(at.b, at.h, at.row, at.kv) * x.bias(at.b, "
           "at.h, at.row, 0) end }",
           SIZES);
    CHECK(!backward_sums_fit(d.w, &d.b, &wish, d.why)); /* read twice */
    forget(&d);
}

TEST(numbers_of_a_mod_have_their_own_elements)
{
    static const struct {
        const char *dims, *address;
        bool shares;
    } row[] = {{"'b', 'h', 'q', 'd_v'", "at.b, at.h, at.row, at.i", false},
               {"'h', 'q', 'd_v'", "at.h, at.row, at.i", true}, /* every batch adds to it */
               {"'b', 'h', 'q'", "at.b, at.h, at.row", true},   /* as the numbers of a row do */
               {"'b', 'h_kv', 'q', 'd_v'", "at.b, at.h, at.row, at.i", true}}; /* heads beyond its end meet */
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        struct derived d;
        char text[512];
        snprintf(text, sizeof text,
                 "return attention { inputs = { g = tensor('float', %s, { grad = true }) },\n"
                 "  output_mod = function(o, at, x) return o * x.g(%s) end }",
                 row[k].dims, row[k].address);
        derive(&d, text, SIZES);
        CHECK_EQ(backward_shares_elements(d.w, &d.b, 0), row[k].shares);
        CHECK_EQ(d.b.stage[MOD_OUTPUT][0].site.item[0].stores, !row[k].shares);
        forget(&d);
    }
}
