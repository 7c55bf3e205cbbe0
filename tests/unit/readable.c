/*
 * readable.c: what is left out of a kernel's text for its reader. That the machine code stays is
 * tests/same_code.sh's; that it compiles, tests/templates.sh's.
 */
#include "check.h"
#include "gen/base/text.h"
#include "gen/readable/readable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *kept;

static const char *readable(const char *text)
{
    struct text_buf out = {0};
    readable_text(text, strlen(text), &out);
    CHECK(!out.failed);
    free(kept);
    kept = out.data;
    return kept;
}

static bool has(const char *text, const char *part)
{
    return strstr(readable(text), part) != NULL;
}

#define KERNEL "extern \"C\" __global__ void f(int *p)\n{\n    *p = used();\n}\n"

TEST(what_no_kernel_reaches_is_left_out)
{
    CHECK_STR(readable("int used() { return 1; }\nint unused() { return 2; }\n" KERNEL),
              "int used() { return 1; }\n" KERNEL);
    CHECK_STR(
        readable("constexpr int A = 1, B = 2;\nconstexpr int C = 3;\nint used() { return B; }\n" KERNEL),
        "constexpr int A = 1, B = 2;\nint used() { return B; }\n" KERNEL);
    CHECK(has("enum e { // comment\n    A, // a\n    B\n};\nint used() { return A; }\n" KERNEL, "B\n"));
    CHECK(has("enum e { A, // a\n    B };\nint used() { return B; }\n" KERNEL, "enum e"));
    CHECK(!has("static_assert(true, \"x\");\nint used();\n" KERNEL, "static_assert"));
    CHECK(!has("#define M 1\n#define N 2\nint used() { return N; }\n" KERNEL, "M 1"));
    CHECK(has("#define PART_1 1\n#define JOIN(n) PART_##n\nint used() { return JOIN(1); }\n" KERNEL,
              "PART_1 1"));
}

TEST(members_are_left_out_but_for_data)
{
    const char *text =
        "struct s {\n    int data, more;\n    s(int x) { data = x; }\n    int get() { return data; }\n"
        "    int other() { return more; }\n};\nint used() { return s(1).get(); }\n" KERNEL;
    CHECK(has(text, "int data, more;"));
    CHECK(has(text, "s(int x)"));
    CHECK(has(text, "int get()"));
    CHECK(!has(text, "other"));
    /* a member of that name is no use of the function, nor is a variable */
    CHECK(
        !has("int load() { return 1; }\nstruct s { int load; };\nint used() { s x; return x.load; }\n" KERNEL,
             "int load()"));
    CHECK(!has("int turn() { return 1; }\nint used() { int turn = 2; return turn; }\n" KERNEL, "int turn()"));
}

TEST(branches_that_numbers_decide_are_left_out)
{
    const char *const numbers = "namespace cfg {\nconstexpr bool ON = true;\nconstexpr int N = 3;\n}\n";
    char text[800];
    snprintf(text, sizeof text,
             "%sint a();\nint b();\nint used()\n{\n    if constexpr (cfg::ON && cfg::N > 2) {\n"
             "        return a();\n    } else {\n        return b();\n    }\n}\n" KERNEL,
             numbers);
    CHECK(has(text, "return a();"));
    CHECK(!has(text, "b()"));
    CHECK(!has(text, "if constexpr"));
    snprintf(text, sizeof text,
             "%sint a();\ntemplate <int P> int used()\n{\n    if constexpr (!cfg::ON || P == 1) {\n"
             "        return a();\n    }\n    return 0;\n}\n" KERNEL,
             numbers);
    CHECK(has(text, "if constexpr (!cfg::ON || P == 1)")); /* a parameter decides */
    snprintf(text, sizeof text,
             "%sint a();\nint used(bool x)\n{\n    for (;;)\n        if (!cfg::ON && x)\n"
             "            return a();\n}\n" KERNEL,
             numbers);
    CHECK(has(text, "return a();")); /* the loop would lose its body */
}

/* A local variable, or a parameter, hides a number of that name. */
TEST(names_of_a_function_are_its_own)
{
    CHECK(has("constexpr bool ON = false;\nint a();\nint used(bool ON) { if (ON) { return a(); } return 0; "
              "}\n" KERNEL,
              "a();"));
    CHECK(!has("constexpr bool ON = false;\nint a();\nint used() { constexpr bool HERE = !ON; if (!HERE) { "
               "return a(); } return 0; }\n" KERNEL,
               "a();"));
}

/* What a function returns is not looked for, though some '=' stands in it. */
TEST(calls_are_not_evaluated)
{
    CHECK(has("int a();\ntemplate <int R> constexpr int find() { int x = -1; x = R; return x; }\n"
              "template <int R> int used() { constexpr int F = find<R>(); if constexpr (F >= 0) { return "
              "a(); } return 0; }\n" KERNEL,
              "return a();"));
    CHECK(has("int a();\ntemplate <int R> int find = R;\nint used() { if (find<1> == 0) { return a(); } "
              "return 0; }\n" KERNEL,
              "return a();"));
}

TEST(members_that_no_type_has_are_not_there)
{
    const char *const body =
        "template <class P> constexpr bool HAS = requires(P p) { p.extra; };\nint a();\n"
        "template <class P> int used(P p) { if constexpr (HAS<P>) { return a(); } return 0; }\n"
        "extern \"C\" __global__ void f(params p) { used(p); }\n";
    char text[800];
    snprintf(text, sizeof text, "struct params { int plain; };\n%s", body);
    CHECK(!has(text, "a();"));
    snprintf(text, sizeof text, "struct params { int extra; };\n%s", body);
    CHECK(has(text, "a();"));
}

TEST(forms_of_templates_are_chosen)
{
    const char *text = "struct v { static constexpr bool ON = false; };\n"
                       "template <class V, bool ON = V::ON> struct form { int off() { return v::ON; } };\n"
                       "template <class V> struct form<V, true> { int on() { return 1; } };\n"
                       "int used() { form<v> f; return f.off() + f.on(); }\n" KERNEL;
    CHECK(has(text, "int off()"));
    CHECK(!has(text, "int on()"));
    const char *given = "struct v { static constexpr bool ON = false; };\n"
                        "template <class V, bool ON = V::ON> struct form { int off() { return v::ON; } };\n"
                        "template <class V> struct form<V, true> { int on() { return 1; } };\n"
                        "int used() { form<v, true> f; return f.off() + f.on(); }\n" KERNEL;
    CHECK(has(given, "int on()"));
}

#define FORMS                                                                                                \
    "template <class V> struct form { int one() { return 1; } };\n"                                          \
    "template <class V>\n    requires(requires(V x) { x.extra; })\n"                                         \
    "struct form<V> : base { int two() { return 2; } };\nint used() { form<v> f; return f.one() + f.two(); " \
    "}\n"                                                                                                    \
    "extern \"C\" __global__ void f(v p) { used(); }\n"

/* Of two forms, the one whose condition does not hold goes; where that is not known, both stay. */
TEST(conditions_of_forms_are_asked)
{
    CHECK(has("struct v { int extra; };\n" FORMS, "int two()"));
    CHECK(strstr(kept, "int one()"));
    CHECK(!has("struct v { int plain; };\n" FORMS, "int two()"));
    CHECK(strstr(kept, "int one()"));
}

TEST(kernels_that_are_not_launched_are_left_out)
{
    const char *text = "#define LATHE_KERNEL_one 1\nint used();\n#if LATHE_COMPILED(one)\n" KERNEL "#endif\n"
                       "#if LATHE_COMPILED(two)\nextern \"C\" __global__ void g() {}\n#endif\n";
    CHECK(has(text, "void f("));
    CHECK(!has(text, "void g("));
    CHECK(!has(text, "#if"));
}

TEST(headings_stay_with_what_they_stand_above)
{
    const char *text = "// ==== a.cuh\n// a.cuh: of a.\n\nint unused();\n\n// ==== b.cuh\n// b.cuh: of b.\n\n"
                       "// ---- none\n\nint none();\n\n// ---- some\n\n// says one\nint used();\n" KERNEL;
    readable(text);
    CHECK(strstr(kept, "b.cuh: of b") && strstr(kept, "---- some") && strstr(kept, "says one"));
    CHECK(!strstr(kept, "a.cuh") && !strstr(kept, "---- none"));
}

TEST(a_text_that_is_not_understood_stays)
{
    CHECK_STR(readable("int a( { }"), "int a( { }");
    CHECK_STR(readable("'"), "'");
    CHECK_STR(readable("if constexpr (true"), "if constexpr (true");
}
