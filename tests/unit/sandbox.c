/*
 * sandbox.c: any text ends within seconds, and is told why. In: texts that run, grow or nest without end.
 * Out: verdicts; a text that takes too long runs into the time limit of its test.
 */
#include "check.h"
#include "gen/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check_ends(const char *text, const char *part)
{
    struct diag *diag = calloc(1, sizeof *diag);
    const clock_t start = clock();
    CHECK(diag != NULL);
    struct ir *ir = spec_load("t.lua", text, strlen(text), diag);
    CHECK(ir == NULL);
    CHECK_EQ(diag->n, 1);
    CHECK_HAS(diag->entry[0].text, part);
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > 15.0)
        fprintf(stderr, "%.1f s: %s\n", seconds, text);
    CHECK(seconds < 15.0);
    free(diag);
}

TEST(strings_that_grow_end)
{
    check_ends("local s = '' while true do s = s .. 'xxxxxxxxxxxxxxxx' end", "allocates more than 1 GiB");
    check_ends("local s = 'x' while true do s = s .. s end", "string of more than 1 MiB");
    check_ends("return attention { score_mod = function(s) local t = '' for i = 1, 1000000 do t = t .. "
               "'xxxxxxxx' end "
               "return s end }",
               "allocates more than 1 GiB");
}

TEST(labels_and_jumps_without_end_end)
{
    struct text_buf text = {0};
    for (int i = 0; i < 30000; i++)
        text_add(&text, "goto a%d\n", i);
    for (int i = 0; i < 30000; i++)
        text_add(&text, "::a%d:: do end\n", i); /* labels in a row are calls in one another to the parser */
    CHECK(!text.failed && text.size < 1 << 20);
    check_ends(text.data, "returns one constructor call");
    text_free(&text);
}

TEST(tables_that_grow_end)
{
    check_ends("local t = {} for i = 1, 100000000 do t[i] = {} end", "64 MiB");
    check_ends("local function f(...) return { ... } end local t = {} for i = 1, 50 do t[i] = i end\n"
               "while true do t = f(t, t, t, t, t, t, t, t, t, { t, t, t, t, t, t, t, t }, t, t, t, t, t, t, "
               "t, t) end",
               "MiB");
}

TEST(deep_calls_end)
{
    static const char deep[] =
        "local f = causal for i = 1, 10000 do f = both(f, causal) end return attention { ";
    char text[200];
    snprintf(text, sizeof text, "%smask_mod = f }", deep);
    check_ends(text, "more than 1000 deep");
    check_ends(
        "local function f() return 1 + f() end return attention { score_mod = function(s) return f() end }",
        "more than 1000 deep");
}

/* Each operation looks through all levels for its place in the spec. */
TEST(operations_of_deep_calls_are_found_in_time)
{
    static const char text[] =
        "local f = causal for i = 1, 400 do f = both(f, causal) end\n"
        "return attention { mask_mod = function(at) return both(f, causal)(at) | f(at) end }";
    struct diag *diag = calloc(1, sizeof *diag);
    const clock_t start = clock();
    CHECK(diag != NULL);
    struct ir *ir = spec_load("t.lua", text, strlen(text), diag);
    CHECK(ir != NULL);
    CHECK_EQ(ir->node[ir->mask.root[0]].line, 2);
    CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 10.0);
    ir_free(ir);
    free(diag);
}

TEST(instructions_that_take_long_end)
{
    check_ends("local s = 'x' for i = 1, 19 do s = s .. s end local t, u = s .. 'y', s .. 'z'\n"
               "while true do local b = t < u end",
               "runs too long");
}

TEST(the_budget_is_reported_once)
{
    check_ends("local function f(s) while true do end end\n"
               "return attention { query_mod = f, key_mod = f, score_mod = f, mask_mod = f }",
               "runs too long");
}
