/*
 * inspect.c: lathe_inspect.h: the arguments of a spec as data, the text of its kernels, its proofs.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lathe_inspect.h"

static lathe_spec *parse(const char *text)
{
    lathe_spec *spec;
    lathe_error err = {0};
    if (lathe_spec_parse(&spec, "own.lua", text, strlen(text), &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return spec;
}

static lathe_spec *shipped(const char *name)
{
    lathe_spec *spec;
    lathe_error err = {0};
    if (lathe_spec_load(&spec, name, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return spec;
}

static int arg_named(const lathe_spec *spec, lathe_pass pass, const char *name, lathe_arg_info *out)
{
    int i = 0;
    while (lathe_spec_arg(spec, pass, i, out) && strcmp(out->name, name) != 0)
        i++;
    return lathe_spec_arg(spec, pass, i, out);
}

static void check_dim(lathe_dim dim, const char *name, int times, int plus)
{
    CHECK_STR(dim.name, name);
    CHECK_EQ(dim.times, times);
    CHECK_EQ(dim.plus, plus);
}

static const char OWN[] = "return attention { mask_mod = causal, inputs = {\n"
                          "    table = tensor('float', 'h', 7, 'width', { grad = true }),\n"
                          "    gain = scalar('f32', { default = 0.25 }) },\n"
                          "  score_mod = function(s, at, x)\n"
                          "    return s * x.gain + x.table(at.h, 0, 0)\n"
                          "  end }\n";

TEST(arguments_are_data)
{
    lathe_arg_info a;
    lathe_spec *spec = parse(OWN);
    CHECK_STR(lathe_spec_name(spec), "own");
    CHECK_STR(lathe_spec_kind(spec), "attention");
    CHECK(lathe_spec_arg(spec, LATHE_FORWARD, 0, &a));
    CHECK_STR(a.name, "q");
    CHECK_EQ(a.role, LATHE_ROLE_TENSOR);
    CHECK_EQ(a.dtype, LATHE_NONE);
    CHECK(a.shares_dtype && !a.optional && !a.is_input);
    CHECK_EQ(a.ndim, 4);
    check_dim(a.dim[1], "h", 1, 0);
    check_dim(a.dim[3], "d", 1, 0);
    CHECK(arg_named(spec, LATHE_FORWARD, "o", &a));
    CHECK_EQ(a.role, LATHE_ROLE_RESULT);
    CHECK(arg_named(spec, LATHE_FORWARD, "lse", &a));
    CHECK(a.optional && a.role == LATHE_ROLE_RESULT && a.dtype == LATHE_F32);
    CHECK(arg_named(spec, LATHE_FORWARD, "table", &a));
    CHECK(a.is_input && !a.optional && a.dtype == LATHE_NONE && !a.shares_dtype);
    check_dim(a.dim[0], "h", 1, 0);
    check_dim(a.dim[1], "", 0, 7);
    check_dim(a.dim[2], "width", 1, 0);
    CHECK(arg_named(spec, LATHE_FORWARD, "gain", &a));
    CHECK(a.is_input && a.optional && a.role == LATHE_ROLE_SCALAR && a.default_value == 0.25);
    CHECK(arg_named(spec, LATHE_FORWARD, "cu_q", &a));
    check_dim(a.dim[0], "seqs", 1, 1);
    CHECK(arg_named(spec, LATHE_BACKWARD, "dtable", &a));
    CHECK_EQ(a.role, LATHE_ROLE_RESULT);
    CHECK(!arg_named(spec, LATHE_BACKWARD, "dgain", &a)); /* it was not declared with a gradient */
    CHECK(!lathe_spec_arg(spec, LATHE_FORWARD, -1, &a));
    CHECK(!lathe_spec_arg(NULL, LATHE_FORWARD, 0, &a));
    lathe_spec_destroy(spec);
}

TEST(arguments_of_other_kinds)
{
    lathe_arg_info a;
    lathe_spec *spec = shipped("adamw");
    CHECK_STR(lathe_spec_kind(spec), "elementwise");
    int results = 0;
    for (int i = 0; lathe_spec_arg(spec, LATHE_FORWARD, i, &a); i++)
        results += a.role == LATHE_ROLE_RESULT && a.alias[0];
    CHECK_EQ(results, 3); /* the parameter and its two moments, each over its old value */
    CHECK(!lathe_spec_arg(spec, LATHE_BACKWARD, 0, &a) || a.is_list == 0);
    lathe_spec_destroy(spec);
    spec = shipped("rms_norm");
    CHECK_STR(lathe_spec_kind(spec), "rowwise");
    CHECK(arg_named(spec, LATHE_FORWARD, "y", &a));
    CHECK_EQ(a.ndim, 4);
    CHECK(a.leading_optional);
    lathe_spec_destroy(spec);
}

TEST(results_that_may_be_written_in_part)
{
    static const char *const list[][3] = {{"simple_gla", "o", "cu"},
                                          {"simple_gla", "state_out", "state_index"},
                                          {"linear_elu", "norm_out", "state_index"},
                                          {"linear_elu", "norms", "states_index"},
                                          {"simple_gla", "states", "states_index"},
                                          {"rope_append", "v_cache", "slot"},
                                          {"rope_append", "q_out", ""},
                                          {"causal", "o", ""}};
    lathe_arg_info a;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        lathe_spec *spec = shipped(list[i][0]);
        CHECK(arg_named(spec, LATHE_FORWARD, list[i][1], &a));
        CHECK_STR(a.kept_by, list[i][2]);
        lathe_spec_destroy(spec);
    }
    lathe_spec *spec = shipped("simple_gla");
    for (int i = 0; lathe_spec_arg(spec, LATHE_BACKWARD, i, &a); i++)
        CHECK_STR(a.kept_by, strcmp(a.name, "dstate") == 0 ? "state_index" : "");
    lathe_spec_destroy(spec);
}

TEST(what_a_pass_does_not_take_says_why)
{
    static const struct {
        const char *spec;
        lathe_pass pass;
        const char *name, *why;
    } list[] = {
        {"return linear_attention { causal = false }", LATHE_FORWARD, "states", "with causal = false"},
        {"return linear_attention { updates = 2, delta = function() return 1.0 end }", LATHE_FORWARD,
         "states_index", "a token makes several updates"},
        {"return linear_attention {}", LATHE_FORWARD, "norms", "with normalise = true alone"},
        {"return linear_attention { query_heads = 2 }", LATHE_FORWARD, "states",
         "several heads of q read each head of the state"},
        {"return linear_attention {}", LATHE_BACKWARD, "states",
         "states behind tokens have no backward pass"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        lathe_spec *spec = parse(list[i].spec);
        CHECK_HAS(lathe_spec_absent(spec, list[i].pass, list[i].name), list[i].why);
        CHECK_STR(lathe_spec_absent(spec, list[i].pass, "q"), "");
        lathe_spec_destroy(spec);
    }
    CHECK_STR(lathe_spec_absent(NULL, LATHE_FORWARD, "q"), "");
}

TEST(what_counts_tokens_is_known)
{
    static const struct {
        const char *text;
        int counts, line;
    } list[] = {
        {"return attention { mask_mod = causal }", 0, 0},
        {"return attention {\n mask_mod = function(at) return ge(at.row, at.kv) end }", 1, 2},
        {"return attention { inputs = { w = tensor('f32', 'q') },\n"
         " score_mod = function(s, at, x) return s + x.w(at.row) end }",
         0, 0},
        {"return linear_attention { inputs = { g = tensor('float', 't') },\n"
         " decay = function(at, x) return -abs(x.g(at.t)) end }",
         0, 0},
        {"return linear_attention {\n query_mod = function(q, at) return q * f32(at.pos) end }", 1, 2},
        {"return rowwise { forward = function(x, at) return x * f32(at.row) end }", 0, 0},
    };
    int line;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        lathe_spec *spec = parse(list[i].text);
        CHECK_EQ(lathe_spec_counts(spec, &line), list[i].counts);
        CHECK_EQ(line, list[i].line);
        CHECK_EQ(lathe_spec_counts(spec, NULL), list[i].counts);
        lathe_spec_destroy(spec);
    }
    CHECK_EQ(lathe_spec_counts(NULL, &line), 0);
}

TEST(sizes_are_data)
{
    lathe_size_info s;
    lathe_spec *spec = shipped("causal");
    int compiled_in = 0;
    for (int i = 0; lathe_spec_size(spec, LATHE_FORWARD, i, &s); i++) {
        compiled_in += s.is_compiled_in;
        if (strcmp(s.name, "h_kv") == 0)
            CHECK_STR(s.same_as, "h");
        if (strcmp(s.name, "d") == 0)
            CHECK(s.is_compiled_in && s.least == 16 && s.most == 576 && s.step == 1);
        if (strcmp(s.name, "b") == 0)
            CHECK_STR(s.same_as, "");
    }
    CHECK_EQ(compiled_in, 2);
    CHECK(!lathe_spec_size(spec, LATHE_FORWARD, 100, &s));
    lathe_spec_destroy(spec);
}

static const int64_t SHAPE[4] = {1, 2, 64, 64};

static int call_of(lathe_arg *arg, lathe_dtype dtype)
{
    static const char *const name[] = {"q", "k", "v", "o"};
    for (int i = 0; i < 4; i++)
        arg[i] = (lathe_arg){name[i], NULL, dtype, 4, SHAPE, NULL};
    return 4;
}

TEST(the_file_of_a_kernel)
{
    char *text;
    lathe_arg arg[4];
    lathe_error err = {0};
    lathe_spec *spec = shipped("softcap");
    const int n = call_of(arg, LATHE_BF16);
    CHECK_EQ(lathe_source(&text, spec, LATHE_FORWARD, "sm_80", arg, n, &err), LATHE_OK);
    CHECK(strncmp(text, "// softcap_attention_fwd_sm80_bf16", 34) == 0);
    CHECK(strstr(text, "extern \"C\" __global__") != NULL);
    CHECK(strstr(text, "tanh") != NULL);
    lathe_text_free(text);
    lathe_spec_destroy(spec);
}

TEST(no_file_says_why)
{
    char *text;
    lathe_arg arg[4];
    lathe_error err = {0};
    lathe_spec *spec = shipped("causal");
    int n = call_of(arg, LATHE_F64);
    CHECK_EQ(lathe_source(&text, spec, LATHE_FORWARD, "sm_80", arg, n, &err), LATHE_UNSUPPORTED);
    CHECK(text == NULL && err.text[0]);
    n = call_of(arg, LATHE_BF16);
    CHECK_EQ(lathe_source(&text, spec, LATHE_FORWARD, "sm_81", arg, n, &err), LATHE_ARG);
    CHECK(strstr(err.text, "sm_90a") && strstr(err.text, "given 'sm_81'"));
    CHECK_EQ(lathe_source(&text, spec, LATHE_FORWARD, "sm_80", arg, 2, &err), LATHE_ARG);
    CHECK(strstr(err.text, "argument 'v': missing") != NULL);
    lathe_spec_destroy(spec);
}

TEST(what_serves_a_call)
{
    char *text;
    lathe_arg arg[4];
    lathe_error err = {0};
    lathe_spec *spec = shipped("causal");
    const int n = call_of(arg, LATHE_BF16);
    CHECK_EQ(lathe_explain(&text, spec, LATHE_FORWARD, "sm_80", arg, n, 0, &err), LATHE_OK);
    CHECK_HAS(text, "causal (attention, forward)");
    CHECK_HAS(text, "  template      attention_fwd_sm80");
    CHECK_HAS(text, "  not chosen    attention_fwd_sm90");
    lathe_text_free(text);
    CHECK_EQ(lathe_explain(&text, spec, LATHE_FORWARD, "sm_90a", arg, n, 1, &err), LATHE_OK);
    CHECK_HAS(text, "\"template\": \"attention_fwd_sm90\"");
    CHECK_HAS(text, "\"served\": true");
    lathe_text_free(text);
    CHECK_EQ(lathe_explain(&text, spec, LATHE_FORWARD, "sm_80", arg, call_of(arg, LATHE_F64), 0, &err),
             LATHE_OK);
    CHECK_HAS(text, "  not served\nattention_selected");
    lathe_text_free(text);
    CHECK_EQ(lathe_explain(&text, spec, LATHE_FORWARD, "sm_8", arg, n, 0, &err), LATHE_ARG);
    CHECK(text == NULL);
    lathe_spec_destroy(spec);
}

struct verdicts {
    int n;
    int failed;
    int line; /* of what failed */
    int gradients;
};

static void take_verdict(void *user, const lathe_proof *proof)
{
    struct verdicts *v = user;
    v->n++;
    v->failed += !proof->passed;
    if (!proof->passed)
        v->line = proof->line;
    v->gradients += proof->applies && proof->passed && strcmp(proof->name, "gradients") == 0;
}

TEST(proofs_of_a_sound_spec)
{
    struct verdicts v = {0};
    lathe_error err = {0};
    lathe_spec *spec = shipped("causal");
    CHECK_EQ(lathe_prove(spec, 1, take_verdict, &v, &err), LATHE_OK);
    CHECK(v.n >= 5);
    CHECK_EQ(v.failed, 0);
    CHECK_EQ(v.gradients, 1);
    lathe_spec_destroy(spec);
}

TEST(proofs_of_a_wrong_spec)
{
    static const char WRONG[] = "return attention { online_func = online_func {\n"
                                "  online_rowscales = { l = 0.0 },\n"
                                "  online_fwd = function(s, r)\n"
                                "    local p = exp(s)\n"
                                "    return p, { l = rowsum(p) }, 1.0\n" /* what was before is forgotten */
                                "  end,\n"
                                "  online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,\n"
                                "  forward = function(s, final) return exp(s) / final.l end } }\n";
    struct verdicts v = {0};
    lathe_error err = {0};
    lathe_spec *spec = parse(WRONG);
    CHECK_EQ(lathe_prove(spec, 1, take_verdict, &v, &err), LATHE_OK);
    CHECK(v.failed > 0);
    CHECK_EQ(lathe_prove(spec, 1, NULL, NULL, &err), LATHE_ARG);
    lathe_spec_destroy(spec);
}

/* ---- locales ------------------------------------------------------------------------------------- */

/* A locale with a decimal comma, made by localedef where the system has none. */
static bool set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8"};
    char command[1000];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]))
            return true;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1",
             check_temp_dir());
    if (system(command) != 0)
        return false;
    setenv("LOCPATH", check_temp_dir(), 1);
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

static char *told(const char *text, int what)
{
    char *out = NULL;
    lathe_error err = {0};
    lathe_arg arg[8];
    lathe_spec *spec = parse(text);
    const int n = call_of(arg, LATHE_BF16);
    const lathe_status status = what == 2
                                    ? lathe_source(&out, spec, LATHE_FORWARD, "sm_80", arg, n, &err)
                                    : lathe_explain(&out, spec, LATHE_FORWARD, "sm_80", arg, n, what, &err);
    if (status != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    lathe_spec_destroy(spec);
    return out;
}

TEST(numbers_have_a_point_where_the_program_has_a_decimal_comma)
{
    static const char good[] = "local CAP = param('CAP', 2.5)\n"
                               "return attention { mask_mod = causal,\n"
                               "  score_mod = function(s) return CAP * tanh(s / CAP) + 0.0625 end }\n";
    static const char bad[] = "local CAP = param('CAP', 2.5, 0.25)\nreturn attention { score_mod = 0.75 }\n";
    char *plain[3];
    lathe_spec *spec;
    lathe_error expected = {0};
    lathe_error given = {0};
    for (int what = 0; what < 3; what++)
        plain[what] = told(good, what);
    CHECK(strstr(plain[1], "\"CAP\": 2.5"));
    CHECK(lathe_spec_parse(&spec, "own.lua", bad, strlen(bad), &expected) != LATHE_OK);
    if (!set_comma_locale())
        SKIP("no locale with a decimal comma");
    CHECK_STR(localeconv()->decimal_point, ",");
    for (int what = 0; what < 3; what++) {
        char *text = told(good, what);
        CHECK_STR(text, plain[what]);
        lathe_text_free(text);
        lathe_text_free(plain[what]);
    }
    CHECK(lathe_spec_parse(&spec, "own.lua", bad, strlen(bad), &given) != LATHE_OK);
    CHECK_STR(given.text, expected.text);
    CHECK_STR(localeconv()->decimal_point, ","); /* the program's own locale is as it was */
}
