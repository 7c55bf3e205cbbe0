/*
 * untraced.c: no spelling hides a test of a traced value. In: texts of |s| and its like, written with what
 * Lua decides by itself. Out: verdicts: each is refused on its line, or, where nothing is decided, loads.
 */
#include "check.h"
#include "gen/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct refused {
    const char *text;
    int line;
    const char *part;
};

static void check_refused(const struct refused *r)
{
    struct diag *diag = calloc(1, sizeof *diag);
    CHECK(diag != NULL);
    struct ir *ir = spec_load("t.lua", r->text, strlen(r->text), diag);
    if (ir)
        fprintf(stderr, "loads: %s\n", r->text);
    CHECK(ir == NULL);
    if (diag->entry[0].line != r->line || strstr(diag->entry[0].text, r->part) == NULL)
        fprintf(stderr, "of: %s\n", r->text);
    CHECK_EQ(diag->entry[0].line, r->line);
    CHECK_HAS(diag->entry[0].text, r->part);
    CHECK_HAS(diag->entry[0].text, "traced");
    free(diag);
}

#define SCORE(body)  "return attention { score_mod = function(s, at) " body " end }\n"
#define PICKED       SCORE("return pick(lt(s, 0.0), -s, s)")
#define DECIDES      "  if c then return a end\n  return b\nend\n"
#define DECIDES_BY_R "  if c then return a end\r  return b\rend\r"

TEST(no_spelling_hides_a_test)
{
    static const struct refused REFUSED[] = {
        /* two functions that begin on one line and end on different ones */
        {"local id = function(s) return s end local pick = function(c, a, b)\n" DECIDES PICKED, 2, "'if'"},
        {"local pick = function(c, a, b)\n" DECIDES PICKED, 2, "'if'"},
        /* line breaks where the text of a function is not looked for */
        {"local pick = function\n(c, a, b)\n" DECIDES PICKED, 3, "'if'"},
        {"local function\npick\n(c, a, b)\n" DECIDES PICKED, 4, "'if'"},
        {"local pick = function --[[\n]] (c, a, b)\n" DECIDES PICKED, 3, "'if'"},
        /* line ends */
        {"local function pick(c, a, b)\r" DECIDES_BY_R PICKED, 2, "'if'"},
        {"\r\n\n\rlocal function pick(c, a, b)\r\n" DECIDES PICKED, 4, "'if'"},
        /* strings with line breaks */
        {"local x = \"a\\z\n\n  b\"\nlocal function pick(c, a, b)\n" DECIDES PICKED, 5, "'if'"},
        {"local x = 'a\\\nb' local y = [==[\n]]\n]==]\nlocal function pick(c, a, b)\n" DECIDES PICKED, 6,
         "'if'"},
        {"local x = [[\n\\]] local function pick(c, a, b)\n" DECIDES PICKED, 3, "'if'"},
        /* every word, and words of a line of which its comment is no part */
        {SCORE("local c = lt(s, 0.0) return c and -s or s"), 1, "'and'"},
        {SCORE("local c = lt(s, 0.0)\n return c or s -- if\n"), 2, "'or'"},
        {SCORE("return where(not lt(s, 0.0), s, -s)"), 1, "'not'"},
        {SCORE("return where(s == 0.0, s, -s)"), 1, "'=='"},
        {SCORE("return where(s == at.q, s, -s)"), 1, "'=='"},
        {SCORE("return where(s == s, s, -s)"), 1, "'=='"},
        {SCORE("return where(s == 'x', s, -s)"), 1, "'=='"},
        {SCORE("return where(s ~= nil, s, -s)"), 1, "'~='"},
        {SCORE("while s do return -s end return s"), 1, "'while'"},
        {SCORE("repeat s = -s until s return s"), 1, "'until'"},
        {SCORE("if\n\n\ns\n\n\nthen return -s end return s"), 7, "a test (if, and, "},
        {SCORE("goto one ::two:: do return -s end ::one:: if s then goto two end return s"), 1, "'if'"},
    };
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        check_refused(&REFUSED[i]);
}

TEST(functions_are_looked_at_however_they_are_called)
{
    static const char *const CALLS[] = {
        "local t = { f = pick } function t:g(...) return self.f(...) end " SCORE(
            "return t:g(lt(s, 0.0), -s, s)"),
        SCORE("return (function(...) return pick(...) end)(lt(s, 0.0), -s, s)"),
        SCORE("local f <const> = pick local function g() return f(lt(s, 0.0), -s, s) end return g()"),
        SCORE("local r for v in function(_, at_end) return ({ pick(lt(s, 0.0), -s, s) })[at_end] end, nil, 1 "
              "do "
              "r = v end return r"),
        "return attention { mask_mod = both(causal, function(at) return pick(at.q, ge(at.q, 1), at) end) }",
        "return attention { online_func = elementwise_weights(function(s) return pick(s, s, s) end) }",
        "return rowwise { forward = function(v) return pick(lt(v, 0.0), -v, v) end }",
        "return attention { query_mod = half(function(a, b) return pick(lt(a, b), a, b), b end) }",
    };
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        char text[512];
        snprintf(text, sizeof text, "local function pick(c, a, b) if c then return a end return b end\n%s",
                 CALLS[i]);
        check_refused(&(struct refused){text, 1, "'if'"});
    }
}

TEST(traced_values_are_no_keys)
{
    static const char *const TABLES[] = {
        SCORE("local r = s for _, v in ipairs({ ({ [true] = -s })[lt(s, 0.0)] }) do r = v end return r"),
        SCORE("local r = s for k = 1, #{ ({ [false] = s })[lt(s, 0.0)] } do r = -r end return r"),
        SCORE("local t = {} t[lt(s, 0.0)] = -s return s"),
        SCORE("return s, { [s] = s }"),
        "local key local function get(t) return t[key] end\n" SCORE("\nkey = s return get({ s })"),
    };
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++)
        check_refused(&(struct refused){TABLES[i], 1, "key of a table"});
}

static void check_loads(const char *text)
{
    struct diag *diag = calloc(1, sizeof *diag);
    CHECK(diag != NULL);
    struct ir *ir = spec_load("t.lua", text, strlen(text), diag);
    if (!ir)
        fprintf(stderr, "of: %s\n%s\n", text, diag->entry[0].text);
    CHECK(ir != NULL);
    ir_free(ir);
    free(diag);
}

TEST(what_is_decided_outside_of_traced_functions_loads)
{
    static const char *const LOADS[] = {
        "local n = 3 if n == 3 and not (n > 4) then n = n or 5 end " SCORE("return n * s"),
        "local f while not f do f = function(s) return s end end " SCORE("return f(s)"),
        SCORE("local t, r = { 1.0, 2.0, [\"x\" .. 1] = 3.0 }, 0.0 for k, v in ipairs(t) do r = r + t[k] * s "
              "end "
              "return r + t[\"x\" .. 1]"),
        SCORE("for k = 19, 0, -1 do s = where(lt(s, k), s + (1 << k), s) end return s"),
        SCORE("local small = 1 < 2 return where(small, s, -s)"),
        SCORE("local t = { 'if and or not == ~=' } return s -- if and or not\n"),
        SCORE("local unused = function(c) if c then return 1 end end return s"),
        "return attention { score_mod = function(...) local s, at = ... return s + at.q end }",
    };
    for (size_t i = 0; i < sizeof LOADS / sizeof *LOADS; i++)
        check_loads(LOADS[i]);
}

/* Lines of nodes and mistakes are those of the text, also behind more instructions than Lua counts at once.
 */
TEST(lines_are_those_of_the_text)
{
    struct text_buf text = {0};
    text_add(&text, "local t = {\n");
    for (int i = 0; i < 1000; i++)
        text_add(&text, "  { %d, 'a%d', x = 'y' .. %d .. 't' },\n", i, i, i);
    text_add(&text, "}\nreturn attention { score_mod = function(s)\n");
    for (int i = 0; i < 1000; i++)
        text_add(&text, "  s = s\n    * %d.5\n", i);
    text_add(&text, "  return s + t end }\n");
    CHECK(!text.failed);
    check_refused(&(struct refused){text.data, 3004, "numbers and traced values"});
    text_free(&text);
}
