/*
 * params.c: param(name, default) of specs: what a caller gives takes the default's place, as a constant.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "lathe_inspect.h"

static const char WINDOW[] = "local W = param(\"W\", 4)\n"
                             "local GAIN = param(\"GAIN\", 1.5)\n"
                             "return attention {\n"
                             "  mask_mod = function(at) return lt(at.q - at.kv, W) end,\n"
                             "  score_mod = function(s) return s * GAIN end,\n"
                             "}\n";

static lathe_spec *open_with(const char *text, const lathe_param *params, int n)
{
    lathe_spec *spec;
    lathe_error err = {0};
    if (lathe_spec_open(&spec, "own.lua", text, strlen(text), params, n, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return spec;
}

static void check_param(const lathe_spec *spec, int number, const char *name, double value, double usual)
{
    lathe_param_info p;
    CHECK(lathe_spec_param(spec, number, &p));
    CHECK_STR(p.name, name);
    CHECK(p.value == value && p.default_value == usual);
    CHECK_EQ(p.line, number + 1);
}

TEST(parameters_are_data)
{
    lathe_param_info p;
    const lathe_param given[] = {{"W", 2}};
    lathe_spec *spec = open_with(WINDOW, given, 1);
    check_param(spec, 0, "W", 2, 4);
    check_param(spec, 1, "GAIN", 1.5, 1.5);
    CHECK(lathe_spec_param(spec, 0, &p) && p.is_integer);
    CHECK(lathe_spec_param(spec, 1, &p) && !p.is_integer);
    CHECK(!lathe_spec_param(spec, 2, &p));
    lathe_spec_destroy(spec);
}

/* The sum of o where all v are 1 over the keys that a window leaves tells nothing; so v counts keys. */
static double mean_key(const lathe_param *params, int n)
{
    enum { LENGTH = 8, DIM = 8 };
    static float q[LENGTH * DIM], v[LENGTH * DIM], o[LENGTH * DIM];
    const int64_t shape[] = {1, 1, LENGTH, DIM};
    const lathe_arg arg[] = {{"q", q, LATHE_F32, 4, shape, NULL},
                             {"k", q, LATHE_F32, 4, shape, NULL},
                             {"v", v, LATHE_F32, 4, shape, NULL},
                             {"o", o, LATHE_F32, 4, shape, NULL}};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx;
    lathe_kernel *kernel;
    lathe_error err = {0};
    lathe_spec *spec = open_with(WINDOW, params, n);
    options.device = LATHE_DEVICE_HOST;
    for (int i = 0; i < LENGTH * DIM; i++)
        v[i] = (float)(i / DIM);
    if (lathe_ctx_create(&ctx, &options, &err) ||
        lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, arg, 4, &err) ||
        lathe_launch(kernel, arg, 4, NULL, NULL, &err))
        check_fail(__FILE__, __LINE__, err.text);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
    return (double)o[(LENGTH - 1) * DIM];
}

/* Query 7 sees keys 8 - W .. 7 with equal weights. */
TEST(what_is_given_is_computed_with)
{
    const lathe_param two[] = {{"W", 2}};
    const lathe_param one[] = {{"GAIN", 3.0}, {"W", 1}};
    CHECK(mean_key(NULL, 0) == 5.5);
    CHECK(mean_key(two, 1) == 6.5);
    CHECK(mean_key(one, 2) == 7.0);
}

TEST(a_shipped_spec_takes_parameters)
{
    char *text;
    lathe_spec *spec;
    lathe_arg arg[4];
    lathe_error err = {0};
    static const char *const name[] = {"q", "k", "v", "o"};
    static const int64_t shape[] = {1, 1, 64, 64};
    const lathe_param given[] = {{"CAP", 50.0}};
    for (int i = 0; i < 4; i++)
        arg[i] = (lathe_arg){name[i], NULL, LATHE_BF16, 4, shape, NULL};
    CHECK_EQ(lathe_spec_open(&spec, "softcap", NULL, 0, given, 1, &err), LATHE_OK);
    CHECK_EQ(lathe_source(&text, spec, LATHE_FORWARD, "sm_80", arg, 4, &err), LATHE_OK);
    CHECK_HAS(text, "// Parameter: CAP = 50 (specs/softcap.lua:2)");
    lathe_text_free(text);
    lathe_spec_destroy(spec);
}

static void check_refused(const char *text, const lathe_param *params, int n, lathe_status status,
                          const char *part)
{
    lathe_spec *spec;
    lathe_error err = {0};
    CHECK_EQ(lathe_spec_open(&spec, "own.lua", text, strlen(text), params, n, &err), status);
    CHECK(spec == NULL);
    CHECK_HAS(err.text, part);
}

TEST(parameters_that_are_refused)
{
    const lathe_param unknown[] = {{"w", 2}};
    const lathe_param half[] = {{"W", 2.5}};
    const lathe_param twice[] = {{"W", 2}, {"W", 3}};
    const lathe_param nan[] = {{"GAIN", (double)__builtin_nanf("")}};
    const lathe_param infinite[] = {{"GAIN", -(double)__builtin_inff()}};
    const lathe_param wide[] = {{"GAIN", 1e39}};
    const lathe_param narrow[] = {{"GAIN", 1e-39}};
    const lathe_param nameless[] = {{NULL, 2}};
    check_refused(WINDOW, unknown, 1, LATHE_SPEC,
                  "parameter 'w': this spec has none of that name; it has W, GAIN");
    check_refused(WINDOW, half, 1, LATHE_SPEC, "parameter 'W' is a whole number, given 2.5");
    check_refused(WINDOW, nan, 1, LATHE_SPEC, "parameter 'GAIN' is a finite number, given ");
    check_refused(WINDOW, infinite, 1, LATHE_SPEC, "parameter 'GAIN' is a finite number, given -inf");
    check_refused(WINDOW, wide, 1, LATHE_SPEC,
                  "parameter 'GAIN', which is 1e+39, is beyond the largest number");
    check_refused(WINDOW, narrow, 1, LATHE_SPEC, "parameter 'GAIN', which is 1e-39, is below 1.2e-38");
    check_refused(WINDOW, twice, 2, LATHE_ARG, "parameter 'W': given twice");
    check_refused(WINDOW, nameless, 1, LATHE_ARG, "expected a name");
    check_refused(WINDOW, unknown, -1, LATHE_ARG, "given n=-1");
    check_refused("return attention {}", unknown, 1, LATHE_SPEC, "this spec has no parameters; local W");
    check_refused("local A = param('A', 1)\nlocal B = param('A', 2)\nreturn attention {}", NULL, 0,
                  LATHE_SPEC, "'A' is declared twice");
    check_refused("local A = param('A', 'x')\nreturn attention {}", NULL, 0, LATHE_SPEC, "a finite number");
    check_refused("local A = param('a b', 1)\nreturn attention {}", NULL, 0, LATHE_SPEC, "a word of letters");
    check_refused("return attention { score_mod = function(s) return s * param('A', 1) end }", NULL, 0,
                  LATHE_SPEC, "param stands outside of traced functions");
}
